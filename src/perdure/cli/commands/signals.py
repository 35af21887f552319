"""`perdure signal`: one signal, or many from a file. `perdure dead-letters`: those that nobody could take."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, group
from perdure.cli.commands.runs import RunId
from perdure.cli.paging import After, All, Limit, show_pages
from perdure.cli.showing import Column, json_line, plain, short
from perdure.model import limits
from perdure.model.outcomes import Buffered, Delivered, Duplicate, Finished, NotFound
from perdure.views import Refused

_chunk = 500
_bad_lines_shown = 20
_too_many = f"nothing was sent: it has more than {limits.signals_per_file_max} lines (signals_per_file_max); split it"


class _One(TyperGroup):
    """A group that sends one, unless it is told to send many: `perdure signal RUN NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["one", *args]
        return super().parse_args(ctx, args)


def add(program: typer.Typer) -> None:
    signal = group(
        program, "signal", "Signals: RUN NAME [PAYLOAD] sends one, `many FILE` many", cls=_One
    )
    command(signal, "one")(one)
    command(signal, "many")(many)
    letters = group(program, "dead-letters", "Signals and items that nobody could take any more")
    command(letters, "list")(dead_letters)
    command(letters, "resend")(resend)


# --- one ---


async def one(
    scene: Scene,
    run_id: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the signal")],
    payload: Annotated[
        values.Json | None,
        typer.Argument(metavar="PAYLOAD", parser=values.json_value, help="JSON, @file.json, or -"),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again sends nothing twice")
    ] = None,
    path: Annotated[str | None, typer.Option("--path", help="The wait that is meant")] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Only if the run waits for it; nothing is kept")
    ] = False,
) -> None:
    """Send a signal: delivered if the run waits for it, else kept by its policy."""
    value = None if payload is None else payload.value
    sent = await scene.verbs.signal(run_id, name, value, key=key, path=path, buffer=not now)
    scene.out.tell(sent, said(sent))


def said(answer: Any) -> str:
    """The answer to a send in a few words."""
    match answer:
        case Delivered():
            return f"delivered to {answer.run_id} at {answer.path}"
        case Buffered(replaced=None):
            return f"buffered as {answer.signal_id}"
        case Buffered():
            return f"buffered as {answer.signal_id}, in place of {answer.replaced}"
        case Duplicate():
            return f"sent before: {said(answer.of)}"
        case Finished():
            return f"refused: run {answer.run_id!r} has already ended: {answer.status}"
        case NotFound():
            return f"refused: there is no run {answer.run_id!r}"
        case Refused():
            return f"refused: {answer.error}"
        case _:
            return json_line(answer)


# --- many ---


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file."""

    run_id: str
    signal: str
    payload: Any = None


_decode = msgspec.json.Decoder(Line).decode


async def many(
    scene: Scene,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A signal on each line; - for the standard input")
    ],
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what was accepted")
    ] = False,
) -> int:
    """Send many signals: lines of JSON, {"run_id": …, "signal": …, "payload": …}. Each has its own answer.

    Exit 4 if some were refused; the others are sent. A file with a line that is none is refused whole.
    """
    lines = _lines(file)
    counts: Counter[str] = Counter()
    with scene.out.progress("signals", len(lines)) as done:
        for first in range(0, len(lines), _chunk):
            part = lines[first : first + _chunk]
            answers = await scene.verbs.signal_many(
                (one.run_id, one.signal, one.payload) for _, one in part
            )
            for (number, line), answer in zip(part, answers, strict=True):
                counts[outcome_of(answer)] += 1
                _tell(scene, number, line, answer, verbose)
            done(first + len(part))
    refused = sum(counts[one] for one in ("refused", "finished", "not_found"))
    _summary(scene, counts, refused)
    return exits.SOME_REFUSED if refused else exits.OK


def outcome_of(answer: Any) -> str:
    if isinstance(answer, Refused):
        return "refused"
    return str(answer.__struct_config__.tag)


def _tell(scene: Scene, number: int, line: Line, answer: Any, verbose: bool) -> None:
    if scene.out.json:
        scene.out.line(
            {"line": number, "run_id": line.run_id, "signal": line.signal, **_form(answer)}
        )
    elif verbose or isinstance(answer, Refused | Finished | NotFound):
        scene.out.say(f"line {number}: {line.run_id} {line.signal}: {said(answer)}")


def _form(answer: Any) -> dict[str, Any]:
    """As the HTTP API tells it."""
    from perdure.http.problems import problem_of

    if isinstance(answer, Refused):
        return {"outcome": "refused", "problem": problem_of(answer.error)}
    form: dict[str, Any] = msgspec.to_builtins(answer)
    return form


def _summary(scene: Scene, counts: Counter[str], refused: int) -> None:
    total = counts.total()
    if scene.out.json:
        scene.out.line(
            {"summary": {"sent": total - refused, "refused": refused, "outcomes": dict(counts)}}
        )
        return
    parts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))
    scene.out.say(f"{total} signals: {parts or 'nothing to send'}")


def _lines(file: str) -> list[tuple[int, Line]]:
    content = sys.stdin.buffer if file == "-" else _opened(file)
    found: list[tuple[int, Line]] = []
    bad: list[str] = []
    with content:
        for number, text in enumerate(content, start=1):
            if number > limits.signals_per_file_max:
                raise typer.BadParameter(_too_many, param_hint="FILE")
            if text.strip():
                try:
                    found.append((number, _decode(text)))
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    bad.append(plain(f"line {number}: {error}"))
    if bad:
        raise typer.BadParameter(_all_bad(bad), param_hint="FILE")
    return found


def _opened(file: str) -> Any:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise typer.BadParameter(
            f"{file} cannot be read: {error.strerror or error}", param_hint="FILE"
        ) from None


def _all_bad(bad: Sequence[str]) -> str:
    more = len(bad) - _bad_lines_shown
    shown: Iterable[str] = [*bad[:_bad_lines_shown], *([f"and {more} more"] if more > 0 else [])]
    return (
        'nothing was sent; these are not {"run_id": …, "signal": …, "payload": …}:\n'
        + "\n".join(f"  {one}" for one in shown)
    )


# --- dead letters ---

_letters = (
    Column("id", lambda one: one.id, whole=True),
    Column("kind", lambda one: one.kind),
    Column("run", lambda one: one.run_id or None, whole=True),
    Column("name", lambda one: one.name),
    Column("payload", lambda one: short(one.payload)),
    Column("reason", lambda one: one.reason),
    Column("dead since", lambda one: one.dead_at),
)


async def dead_letters(
    scene: Scene,
    run_id: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run")] = None,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """Signals, and items of queues, that nobody could take any more."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.dead_letters(run_id, **page)

    await show_pages(scene, _letters, fetch, limit, after, all)


async def resend(
    scene: Scene,
    dead_letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` gives it")],
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="To another run")
    ] = None,
) -> None:
    """Send a dead letter again; it leaves the list if it is accepted."""
    sent = await scene.verbs.resend(dead_letter_id, run_id=run_id)
    scene.out.tell(sent, said(sent))
