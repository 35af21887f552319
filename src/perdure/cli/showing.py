"""What is written: tables and lines for people, JSON for programs.

To a terminal goes what rich makes of it; anywhere else (to a dumb one, too) plain columns, no colours, and no line is
broken or cut, so that `grep` and `awk` find what is there. What users have stored never reaches the terminal as a
control character. JSON is one document, or a line each where things come one after the other; it says all there is, in
the forms of the HTTP API; what a terminal would obey is escaped in it.
"""

import asyncio
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final, NamedTuple

import msgspec

from perdure.model.codec import Unencodable, codec_for

_controls: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_beyond_ascii: Final = re.compile(r"[^\x00-\x7f]")
_styles: Final = {
    "completed": "green",
    "ok": "green",
    "failed": "red",
    "error": "red",
    "refused": "red",
    "degraded": "red",
    "cancelled": "yellow",
    "terminated": "yellow",
    "paused": "yellow",
    "warning": "yellow",
    "running": "cyan",
    "waiting": "blue",
    "sleeping": "blue",
}
_cell_chars_max: Final = 200
_untyped = codec_for(Any)


class Column(NamedTuple):
    """A column of a table.

    `whole`: it is copied by people, so it is never broken. `painted`: its words are ours, and have colours.
    """

    title: str
    get: Callable[[Any], Any]
    whole: bool = False
    painted: bool = False


# --- values as text ---


def plain(text: str) -> str:
    """Without what a terminal would obey."""
    return _controls.sub(lambda found: repr(found[0])[1:-1], text)


def cell(value: Any, *, brief: bool = False) -> str:
    """A value as one cell shows it. `brief`: of a time only how long ago it was."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            text = value
        case datetime():
            text = ago(value) if brief else when(value)
        case timedelta():
            text = span(value.total_seconds())
        case list() | tuple() if all(isinstance(one, str) for one in value):
            text = ", ".join(value)
        case _:
            text = json_line(value)
    return plain(text).replace("\n", "\\n").replace("\t", " ")


def short(value: Any) -> str:
    """A payload in a table: its beginning; --json and `show` have all of it."""
    text = json_line(value)
    return text if len(text) <= _cell_chars_max else text[: _cell_chars_max - 1] + "…"


def when(moment: datetime, now: datetime | None = None) -> str:
    """In the zone of this machine, and how long ago or from now on that is."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} ({ago(moment, now)})"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago or from now on a time is."""
    seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def span(seconds: float) -> str:
    """About how long, in the two largest units that say something."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def json_line(value: Any) -> str:
    """A value as JSON in one line. What JSON lacks is written as the store writes it, else as text."""
    text = msgspec.json.encode(value, enc_hook=_hook).decode()
    return _controls.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON may write any."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[ix : ix + 2].hex()}" for ix in range(0, len(units), 2))


def _hook(value: Any) -> Any:
    try:
        return msgspec.Raw(_untyped.encode(value).encode())
    except Unencodable:
        return str(value)


# --- where it goes ---


class Out:
    """Where a command writes to. `json`: nothing but JSON goes to the standard output."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    @property
    def is_terminal(self) -> bool:
        """One that can do more than write line after line."""
        is_plain = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
        return not self.json and sys.stdout.isatty() and not is_plain

    async def pause(self, seconds: float) -> None:
        """Between two looks. Raises ReaderGone: who has nothing to write would not hear of it otherwise."""
        if _nobody_reads(sys.stdout):
            raise ReaderGone
        await asyncio.sleep(seconds)

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        _write_json(msgspec.json.format(json_line(value), indent=2))

    def line(self, value: Any) -> None:
        """One of many JSON documents, a line each."""
        _write_json(json_line(value))

    def say(self, text: str) -> None:
        """To people, and so not with --json."""
        if not self.json:
            _write(sys.stdout, plain(text))

    def note(self, text: str) -> None:
        """Beside what was asked for."""
        with suppress(ReaderGone):
            _write(sys.stderr, plain(text))

    def tell(self, document: Any, text: str) -> None:
        """An answer that is short: as a sentence, or as JSON."""
        if self.json:
            self.document(document)
        else:
            self.say(text)

    def table(self, columns: Sequence[Column], rows: Iterable[Any]) -> None:
        if self.is_terminal:
            _rich_table(columns, list(rows))
            return
        cells = [[cell(one.get(row)) for one in columns] for row in rows]
        for line in aligned([[one.title for one in columns], *cells]):
            _write(sys.stdout, line)

    def facts(self, facts: dict[str, Any]) -> None:
        """One thing, a line for each that is known of it."""
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            if value is not None and value != {} and value != []:
                _write(sys.stdout, f"{name:<{width}}  {cell(value)}")

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Called with how many are done by now, it shows that, where somebody looks."""
        if not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console(sys.stderr)) as shown:
            task = shown.add_task(what, total=total)
            yield lambda done: shown.update(task, completed=done)


class ReaderGone(Exception):
    """Whoever reads what we write has left, as `head` does. Not an error, and no connection of a store's."""


def _write(stream: IO[str], text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError as error:
        # Nothing more is to be written, not even at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise ReaderGone from error


def _nobody_reads(stream: IO[str]) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # nothing but errors and the end are told of
        return bool(poll.poll(0))
    except (AttributeError, OSError):  # Windows has no such thing, and what is no file no number
        return False


def _write_json(text: str) -> None:
    if (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8"):
        text = _beyond_ascii.sub(_escaped, text)
    _write(sys.stdout, text)


def console(stream: IO[str] | None = None) -> Any:
    from rich.console import Console

    return Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Plain columns, two blanks between them; nothing is cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            f"{text:<{width}}" for text, width in zip(row, widths, strict=True)
        ).rstrip()


def rich_table(columns: Sequence[Column], rows: Sequence[Any], width: int) -> Any:
    """A table for a screen that is so wide: where whole times would be broken over many lines, they are brief."""
    from rich.table import Table
    from rich.text import Text

    cells = [[cell(one.get(row)) for one in columns] for row in rows]
    if _width(columns, cells) > width:
        cells = [[cell(one.get(row), brief=True) for one in columns] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for ix, column in enumerate(columns):
        widest = max([len(column.title), *(len(row[ix]) for row in cells)])
        if column.whole:
            table.add_column(column.title, no_wrap=True, min_width=widest)
        else:
            table.add_column(column.title, overflow="fold", min_width=min(widest, 10))
    for row in cells:
        styled = zip(row, columns, strict=True)
        table.add_row(
            *(Text(text, style=_styles.get(text, "") if at.painted else "") for text, at in styled)
        )
    return table


def _width(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> int:
    table = [[one.title for one in columns], *cells]
    return sum(max(map(len, column)) + 1 for column in zip(*table, strict=True)) - 1


def _rich_table(columns: Sequence[Column], rows: Sequence[Any]) -> None:
    screen = console()
    table = rich_table(columns, rows, screen.width)
    # Rather wider than the screen, which breaks lines itself, than with an id that is cut.
    screen.width = max(screen.width, sum((one.min_width or 0) + 1 for one in table.columns))
    screen.print(table, crop=False, no_wrap=True, overflow="ignore")
