"""The statements of queries.sql and of the functions: marks filled in, for one schema.

A read gives JSON arrays, decoded straight into records, and rows travel to the server the same way: as arrays of
parameters they would cost the client eight times as much (measured with 1,000 rows of 17 columns), and the client is
what a single process has only one of.
"""

import functools
import re
import typing
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

from perdure.store.optimistic.changes import UNPLACED
from perdure.store.optimistic.placing import MARK
from perdure.store.sql import RECORDS, load_queries

_sql_types: Final[dict[type, str]] = {int: "bigint", bool: "boolean", str: "text"}
# Texts in which a position may stand that is not placed yet; of a step's values only that of an emit is our own.
_texts_with_places: Final = {"value": "{table}.kind = 'emit' and ", "wait": "", "answer": ""}

_mark = re.compile(
    r"\{(?:"
    r"(?P<rows>\w+) rows (?P<source>[^{}]+)"
    r"|(?P<columns>\w+) columns(?: of (?P<table>\w+)(?: with (?P<placed>[\w, ]+) placed)?)?"
    r"|(?P<excluded>\w+) excluded"
    r"|(?P<json>\w+) as json of (?P<of>\w+)"
    r"|place (?P<place>[^{}]+)"
    r")\}"
)
_parameter = re.compile(r"(?<![:\w]):([a-z_]+)")


def filled(text: str, head: str = "head") -> str:
    """A text with its marks about records filled in; `head` is what the end of the ledger is called there."""

    def fill(match: re.Match[str]) -> str:
        parts = match.groupdict()
        if parts["rows"]:
            columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in _columns(parts["rows"]))
            # The alias follows in the text.
            return f"rows from (json_to_recordset({parts['source']}) as ({columns}))"
        if parts["columns"]:
            return _listed(parts["columns"], parts["table"], parts["placed"], head)
        if parts["excluded"]:
            names = [_quoted(name) for name, _ in _columns(parts["excluded"])]
            return ", ".join(f"{name} = excluded.{name}" for name in names)
        if parts["json"]:
            return _as_json(parts["json"], parts["of"])
        return _placed(parts["place"], head)

    return _mark.sub(fill, text)


def _columns(record: str) -> list[tuple[str, str]]:
    """The fields of a record and the types they have as columns."""
    kind = RECORDS[record]
    hints = typing.get_type_hints(kind)
    return [(name, _sql_type(hints[name])) for name in kind.__struct_fields__]


def _sql_type(hint: Any) -> str:
    if hint in _sql_types:
        return _sql_types[hint]
    for part in typing.get_args(hint):
        if part is not type(None):
            return _sql_types.get(part, "text")  # a Literal's values are texts
    raise TypeError(f"no column type for {hint!r}")


def _listed(record: str, table: str | None, placed: str | None, head: str) -> str:
    names = [_quoted(name) for name, _ in _columns(record)]
    if table is None:
        return ", ".join(names)
    to_place = set() if placed is None else {one.strip() for one in placed.split(",")}
    return ", ".join(
        _placed_column(table, name, head) if name in to_place else f"{table}.{name}"
        for name in names
    )


def _placed_column(table: str, name: str, head: str) -> str:
    column = f"{table}.{name}"
    if name == "recorded_at":
        return f"greatest({column}, v_recorded_at)"
    if name not in _texts_with_places:
        return _placed(column, head)
    ours = _texts_with_places[name].replace("{table}", table)
    return (
        f"case when {ours}strpos({column}, '{MARK}') > 0 "
        f"then {{schema}}.placed_text({column}, {head}) else {column} end"
    )


def _placed(expression: str, head: str) -> str:
    return (
        f"case when {expression} >= {UNPLACED} then {expression} - {UNPLACED} + {head} "
        f"else {expression} end"
    )


def _as_json(record: str, table: str) -> str:
    pairs = (f"'{name}', {table}.{_quoted(name)}" for name, _ in _columns(record))
    return f"json_build_object({', '.join(pairs)})"


def _quoted(name: str) -> str:
    return f'"{name}"' if name == "where" else name  # a word of SQL itself


class Statement(NamedTuple):
    """A statement with numbered parameters, and their names in that order."""

    text: str
    names: tuple[str, ...]

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        return [params[name] for name in self.names]


def statement(text: str) -> Statement:
    """`:name` becomes `$1`: the driver knows only numbers."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    numbered = _parameter.sub(number, text)
    return Statement(numbered, tuple(names))


_queries: Final = {name: filled(text) for name, text in load_queries(__package__).items()}


@functools.cache
def functions() -> dict[str, str]:
    """The texts that make the functions of the schema, by the name of their file; {schema} is left open."""
    found = files(__package__).joinpath("functions").iterdir()
    texts = {
        one.name.removesuffix(".sql"): one.read_text(encoding="utf-8")
        for one in sorted(found, key=lambda one: one.name)
        if one.name.endswith(".sql")
    }
    return {name: _function(text) for name, text in texts.items()}


def _function(text: str) -> str:
    # In the functions beside apply_v1 the end of the ledger is a parameter.
    main, *others = text.split("\ncreate or replace function")
    parts = [filled(main)]
    for nth, other in enumerate(others):
        parts.append(filled(other, "head" if nth == 0 else "p_head"))
    whole = "\ncreate or replace function".join(parts)
    return whole.replace("{unplaced_mark}", MARK).replace("{unplaced}", str(UNPLACED))


class Statements:
    """The statements of one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        quoted = quote(schema)
        self._texts = {name: text.replace("{schema}", quoted) for name, text in _queries.items()}
        self._ready: dict[str, Statement] = {}

    def text(self, name: str) -> str:
        """A part of a statement that is put together elsewhere."""
        return self._texts[name]

    def ordered(self, name: str, order: str) -> Statement:
        """A statement that reads an index from one end or the other."""
        key = f"{name} {order}"
        found = self._ready.get(key)
        if found is None:
            text = self._texts[name].replace("{order}", order)
            found = self._ready[key] = statement(text)
        return found

    def __getitem__(self, name: str) -> Statement:
        found = self._ready.get(name)
        if found is None:
            found = self._ready[name] = statement(self._texts[name])
        return found


def quote(name: str) -> str:
    """A name as SQL writes it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'
