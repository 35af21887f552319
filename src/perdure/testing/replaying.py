"""Does new code still fit the histories of the runs that are alive? Ask before it is deployed.

    def test_living_runs_still_replay():
        replay_check(app, "tests/histories")

The documents are those of `run.export()`. They are replayed against the app's code: no store is opened, no step is run.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from perdure.app import App
from perdure.documents import Document, read_document, run_of, steps_of
from perdure.errors import BadDocument, NonDeterminism, PerdureError, Undecodable, UnknownWorkflow
from perdure.model.limits import BadValue
from perdure.runtime.rehearsal import rehearse

# A document, the path of a JSON file that holds one or several, or of a folder of such files.
History = dict[str, Any] | str | os.PathLike[str]


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A document that the code fits."""

    source: str
    run_id: str
    workflow: str
    version: int


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was replayed, when all is well."""

    count: int
    runs: list[ReplayedRun]


class NotReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """A document that the code does not fit: where, what was recorded there, and what the code asks for instead."""

    source: str
    run_id: str
    error: PerdureError
    path: str | None = None
    recorded: str | None = None
    asked: str | None = None


class ReplayFailed(PerdureError, AssertionError):
    """Some documents do not replay with this code; `failures` says which, and why each."""

    def __init__(self, failures: list[NotReplayed], count: int) -> None:
        self.failures, self.count = failures, count
        lines = [f"{one.source}, run {one.run_id!r}: {one.error}" for one in failures]
        super().__init__(
            f"{len(failures)} of {count} histories do not replay:\n" + "\n".join(lines)
        )


def replay_check(app: App, histories: History | Iterable[History]) -> ReplayReport:
    """Replay exported runs against the app's code; raises ReplayFailed, which lists all that do not fit.

    Takes documents, paths of JSON files or of folders of them, one or several. A run that was recorded midway may stand
    at new calls in the end; one that had completed must come to the same end with the same result.
    """
    found = [one for given in _several(histories) for one in _documents(given)]
    if not found:
        raise BadValue(
            "histories", histories, "hold no document: a check of nothing proves nothing"
        )
    replayed: list[ReplayedRun] = []
    failures: list[NotReplayed] = []
    for source, document in found:
        outcome = _in_a_loop(app, source, document)
        if isinstance(outcome, ReplayedRun):
            replayed.append(outcome)
        else:
            failures.append(outcome)
    if failures:
        raise ReplayFailed(failures, len(found))
    return ReplayReport(count=len(replayed), runs=replayed)


def _several(histories: Any) -> Iterable[History]:
    if isinstance(histories, dict | str | os.PathLike):
        return [histories]
    if isinstance(histories, Iterable):
        return histories
    raise BadValue("histories", histories, "is neither a document, a path, nor several of them")


def _documents(given: Any) -> Iterator[tuple[str, Any]]:
    """What is to be read, each with where it is from."""
    if isinstance(given, dict):
        yield "a document", given
        return
    if not isinstance(given, str | os.PathLike):
        raise BadValue("history", given, "is neither a document nor the path of one")
    path = Path(given)
    if not path.exists():
        raise BadValue("history", str(path), "is no file and no folder")
    inside = (one for one in path.glob("*.json") if not one.is_dir())
    for file in sorted(inside) if path.is_dir() else [path]:
        try:
            held = json.loads(file.read_bytes())
        except RecursionError:
            held = BadDocument("is no document: it nests too deep")
        except ValueError as error:
            held = BadDocument(f"is no JSON: {error}")
        for one in held if isinstance(held, list) else [held]:
            yield str(file), one


def _in_a_loop(app: App, source: str, given: Any) -> ReplayedRun | NotReplayed:
    """In a thread with a loop of its own: whoever calls may be in one."""
    with ThreadPoolExecutor(1, "perdure-replay") as thread:
        return thread.submit(asyncio.run, _replay(app, source, given)).result()


async def _replay(app: App, source: str, given: Any) -> ReplayedRun | NotReplayed:
    try:
        document = _read(given)
    except BadDocument as bad:
        return NotReplayed(source=source, run_id="", error=bad)
    run = document.run
    error = _rehearsed(app, document)
    if error is None:
        return ReplayedRun(source=source, run_id=run.id, workflow=run.workflow, version=run.version)
    facts: dict[str, str] = {}
    if isinstance(error, NonDeterminism):
        facts = {"path": error.path, "recorded": error.recorded, "asked": error.asked}
    elif isinstance(error, Undecodable):
        facts = {"path": error.path}
    return NotReplayed(source=source, run_id=run.id, error=error, **facts)


def _read(given: Any) -> Document:
    if isinstance(given, BadDocument):
        raise given
    return read_document(given)


def _rehearsed(app: App, document: Document) -> PerdureError | None:
    run = run_of(document.run)
    workflow = app.registry.find(run.workflow, run.version)
    if workflow is None:
        known = [f"{name} version {version}" for name, version in app.registry.keys()]
        return UnknownWorkflow(f"{run.workflow} version {run.version}", known)
    return rehearse(app.registry, app._settings.deps, workflow, run, steps_of(document))
