"""What is asked for by a mere name: workflows to start, and payloads whose type is known elsewhere.

HTTP, the command line and apps without the code have names and JSON. A name means what the code here says, else what
the catalogue says. The store checks what is sent by name, and refuses what it cannot check as far as the schema goes
("unchecked"); then the sender looks the schema up, checks it itself, and sends it again with the digest of what it was
checked against. So the usual send costs no read, and none gets past a schema that has changed meanwhile.
"""

import asyncio
import functools
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import InvalidPayload, UnknownWorkflow
from perdure.fitting import is_slow, misfits
from perdure.inputs import encoded_payload, is_whole, offered_input
from perdure.model import limits, ops
from perdure.model.codec import Codec, codec_for
from perdure.model.limits import BadValue, check_name
from perdure.model.outcomes import Refusal
from perdure.model.records import RunRecord, SignalEntry, WorkflowRecord
from perdure.model.sameness import completed
from perdure.model.schema import schema_digest
from perdure.registry import Registry, Workflow
from perdure.store.base import Store

A = TypeVar("A")
S = TypeVar("S", ops.SendSignal, ops.NewEvent, ops.Put)

_untyped = codec_for(Any)

# --- workflows ---


class Called(NamedTuple):
    """A workflow that was asked for by name, with its input as it is stored."""

    workflow: (
        Workflow[Any, *tuple[Any, ...]] | WorkflowRecord
    )  # the code, or what the catalogue says
    input: str
    values: tuple[Any, ...] | None  # as a run here reads the input; None: it is elsewhere
    codec: Codec  # of its result


async def called(
    registry: Registry, store: Store, name: str, args: tuple[Any, ...], version: int | None = None
) -> Called:
    """The workflow of that name, here or elsewhere, in its newest version there; raises UnknownWorkflow.

    Arguments may be JSON builtins; raises InvalidPayload, and Uncheckable if only its code could check them.
    """
    found = await find(registry, store, name, version)
    if isinstance(found, WorkflowRecord):
        return Called(found, await _checked_input(found, args), None, _untyped)
    text, values = offered_input(found, args)
    return Called(found, text, values, found.codec)


async def find(
    registry: Registry, store: Store, name: str, version: int | None = None
) -> Workflow[Any, *tuple[Any, ...]] | WorkflowRecord:
    """A workflow by its name: the newest of the code here, else the newest of the catalogue; or that version."""
    check_name("workflow", name)
    if version is not None and not is_whole(version, 1, limits.version_max):
        raise BadValue("version", version, f"must be from 1 to {limits.version_max} (version_max)")
    if version is None and registry.has(name):
        return registry.newest(name)
    here = None if version is None else registry.find(name, version)
    return here or await _declared_elsewhere(registry, store, name, version)


async def _declared_elsewhere(
    registry: Registry, store: Store, name: str, version: int | None
) -> WorkflowRecord:
    lines = await store.catalogue()
    found = [one for one in lines if one.name == name and version in (None, one.version)]
    if found:
        return max(found, key=lambda one: one.version)
    known = {one.name for one in registry.all()}
    elsewhere = sorted({one.name for one in lines} - known)
    asked = name if version is None else f"{name} version {version}"
    raise UnknownWorkflow(asked, sorted(known), elsewhere)


async def _checked_input(workflow: WorkflowRecord, args: tuple[Any, ...]) -> str:
    what = f"the input of workflow {workflow.name!r}"
    text = encoded_payload(_untyped, what, list(args))
    schema = _schema(workflow.input_schema)
    errors = await _misfits(what, schema, text)
    if errors:
        raise InvalidPayload(what, errors)
    # As the code would have stored it: the same input has the same text, and defaults are those of this day.
    return completed(schema, text)


# --- payloads ---


class Catalogue:
    """What the catalogue says of names, read when first asked for: once for many sends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._workflows: dict[tuple[str, int], WorkflowRecord] | None = None
        self._channels: dict[tuple[str, str], str | None] | None = None
        self._run: RunRecord | None = None  # the last that was asked for

    async def checked(self, send: S) -> S:
        """A send by name as it may be sent: checked here, if its schema asks for more than the store checks.

        Raises Uncheckable; what is wrong with the payload is noted, and told by the store when its turn comes.
        """
        if not send.by_name or send.errors:
            return send
        match send:
            case ops.SendSignal():
                what, schema = f"the payload of signal {send.name!r}", await self._of_run(send)
            case ops.NewEvent():
                what = f"the payload of topic {send.type!r}"
                schema = await self._of_channel("topic", send.type)
            case ops.Put():
                what = f"the payload of queue {send.queue!r}"
                schema = await self._of_channel("queue", send.queue)
        return send if schema is None else await _checked(send, what, schema)

    async def of_start(self, send: ops.SendSignal, workflow: str, version: int) -> ops.SendSignal:
        """The same, for a signal whose run may not exist yet, and is of this version then."""
        if await self.run(send.run_id) is None:
            schema = await self._of_workflow(workflow, version, send.name)
        else:
            schema = await self._of_run(send)
        what = f"the payload of signal {send.name!r}"
        return send if schema is None or send.errors else await _checked(send, what, schema)

    async def run(self, run_id: str) -> RunRecord | None:
        """A run, of which only its workflow and version count here."""
        if self._run is None or self._run.run_id != run_id:
            self._run = await self._store.run(run_id)
        return self._run

    async def _of_run(self, send: ops.SendSignal) -> dict[str, Any] | None:
        run = await self.run(send.run_id)
        return (
            None if run is None else await self._of_workflow(run.workflow, run.version, send.name)
        )

    async def _of_workflow(self, workflow: str, version: int, signal: str) -> dict[str, Any] | None:
        if self._workflows is None:
            lines = await self._store.catalogue()
            self._workflows = {(one.name, one.version): one for one in lines}
        line = self._workflows.get((workflow, version))
        entry = None if line is None else _entries(line.signals).get(signal)
        return None if entry is None else entry.schema

    async def _of_channel(self, kind: str, name: str) -> dict[str, Any] | None:
        if self._channels is None:
            lines = await self._store.channels()
            self._channels = {
                (one.kind, one.name): one.schema if one.enforce else None for one in lines
            }
        text = self._channels.get((kind, name))
        return None if text is None else _schema(text)


async def _checked(send: S, what: str, schema: dict[str, Any]) -> S:
    digest = schema_digest(schema)
    if send.schema == digest:
        return send
    errors = await _misfits(what, schema, send.payload)
    payload = send.payload if errors else completed(schema, send.payload)
    return replace(send, payload=payload, schema=digest, errors=tuple(errors))


async def _misfits(what: str, schema: dict[str, Any], text: str) -> list[str]:
    if is_slow(schema):
        return await asyncio.to_thread(misfits, what, schema, text)
    return misfits(what, schema, text)


@functools.lru_cache(maxsize=256)
def _schema(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


@functools.lru_cache(maxsize=256)
def _entries(text: str) -> dict[str, SignalEntry]:
    return msgspec.json.decode(text, type=dict[str, SignalEntry])


async def submit(coordinator: Coordinator, store: Store, op: ops.Op[A]) -> A:
    """Submit a send. One by name that the store cannot check is checked here, and submitted again."""
    outcome = await coordinator.submit(op)
    if not _is_unchecked(outcome):
        return outcome
    catalogue = Catalogue(store)
    checked: Any = op
    match op:
        case ops.SendSignal() | ops.Put():
            checked = await catalogue.checked(op)
        case ops.Emit():
            checked = ops.Emit(events=tuple([await catalogue.checked(one) for one in op.events]))
    again: A = await coordinator.submit(checked)
    return again


def _is_unchecked(outcome: object) -> bool:
    """Whether the store asks the sender to check a payload itself."""
    if isinstance(outcome, tuple):
        return any(map(_is_unchecked, outcome))
    return isinstance(outcome, Refusal) and outcome.code == "unchecked"
