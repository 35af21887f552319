"""The statements of queries.sql on one connection: marks filled in, few calls, whole records.

A read is one call that gives JSON arrays, decoded straight into records; a write is one call that
binds many rows (shapes.py). The head of queries.sql gives the reason. Texts are built once and stay
prepared in the driver's cache.
"""

import re
import sqlite3
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from perdure.model.records import StepRecord
from perdure.store.decoding import decode_steps
from perdure.store.sql import RECORDS, load_queries

Row = TypeVar("Row")

_mark = re.compile(r"\{(\w+) as json(?: of (\w+))?\}|\{(\w+) (columns|values)\}")


def _filled(match: re.Match[str]) -> str:
    name, table, listed, how = match.groups()
    if listed is not None:
        fields = RECORDS[listed].__struct_fields__
        return ", ".join(f":{one}" if how == "values" else _quoted(one) for one in fields)
    record = RECORDS[name]
    prefix = "" if table is None else f"{table}."
    types = typing.get_type_hints(record)
    return "json_object({})".format(
        ", ".join(
            f"'{field}', {_as_json(prefix + _quoted(field), types[field])}"
            for field in record.__struct_fields__
        )
    )


def _quoted(field: str) -> str:
    return f'"{field}"' if field == "where" else field  # a word of SQL itself


def _as_json(column: str, type_: object) -> str:
    # SQLite has no truth values; the decoder accepts nothing else for a bool.
    return f"json(iif({column}, 'true', 'false'))" if type_ is bool else column


queries: Final[dict[str, str]] = {
    name: _mark.sub(_filled, text) for name, text in load_queries(__package__).items()
}

# (owner, its lease if it has a row); a running run should have an owner.
decode_owners = msgspec.json.Decoder(list[tuple[str | None, int | None]]).decode
decode_places = msgspec.json.Decoder(list[tuple[str, str, int]]).decode

_encode = msgspec.json.encode


def as_json(value: object) -> str:
    """A list of ids or keys as the text that `json_each` takes."""
    return _encode(value).decode()


def at_most(limit: int, read: Callable[[int], list[Row]]) -> list[Row]:
    """Read up to `limit` rows: fewer, if together they are more than the 10^9 bytes SQLite puts in one text."""
    while True:
        try:
            return read(limit)
        except sqlite3.DataError:
            if limit == 1:
                raise
            limit //= 2


def in_parts(
    page: Callable[[Any, int], list[Row]], after: Any, limit: int, place: Callable[[Row], Any]
) -> list[Row]:
    """A whole page, read in parts if its rows are more than the 10^9 bytes SQLite puts in one text."""
    try:
        return page(after, limit)
    except sqlite3.DataError:
        if limit == 1:
            raise
    half = limit // 2
    rows = in_parts(page, after, half, place)
    if len(rows) == half:
        rows += in_parts(page, place(rows[-1]), limit - half, place)
    return rows


_nothing: Final[Mapping[str, object]] = {}


# Payloads of up to a mebibyte, and in JSON a text may take twice its length: mostly one text holds so many.
steps_part_rows = 256


def steps_in_parts(sql: "Statements", run_id: str, generation: int) -> list[StepRecord]:
    """The steps of a run from a generation on, when they are more than one text holds. Call it in a transaction."""

    def page(after: tuple[int, str, int], limit: int) -> list[StepRecord]:
        params = dict(zip(("generation", "path", "superseded"), after, strict=True))
        params |= {"run_id": run_id, "limit": limit}
        return sql.records(decode_steps, "page_steps", params)

    def place(step: StepRecord) -> tuple[int, str, int]:
        return step.generation, step.path, step.superseded

    steps: list[StepRecord] = []
    after = (generation, "", -1)
    while part := in_parts(page, after, steps_part_rows, place):
        steps += part
        after = place(part[-1])
    return steps


class Statements:
    """The named statements on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._execute = connection.execute

    def row(self, name: str, params: Mapping[str, object] = _nothing) -> Any:
        """The first row of a query that always has one, or None."""
        return self._execute(queries[name], params).fetchone()

    def records(
        self,
        decode: Callable[[str], list[Row]],
        name: str,
        params: Mapping[str, object] = _nothing,
    ) -> list[Row]:
        """The records of a query that gives one JSON array."""
        return decode(self._execute(queries[name], params).fetchone()[0])

    def run(self, name: str, params: Mapping[str, object] = _nothing) -> int:
        """Execute; gives how many rows changed."""
        return self._execute(queries[name], params).rowcount

    def write(self, text: str, values: Sequence[object]) -> int:
        """Execute a statement that shapes.py has put together; gives how many rows changed."""
        return self._execute(text, values).rowcount
