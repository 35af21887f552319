"""Commands of one batch as they gather, grouped by key; and texts whose positions only the commit can give.

Of a row that goes and another that comes in its place only the latter is left: things may be added before others are
removed. A text with positions travels in pieces: [text, n, text, …], where n stands for the n-th place after the end of
the ledger; [n] is one of fixed width.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from perdure.store.optimistic.changes import UNPLACED, Changes
from perdure.store.optimistic.placing import MARK
from perdure.store.redis.layout import Layout

Value = str | list[Any]

# A command takes no more than this: a script cannot hand over any number of them.
_arguments_max: Final = 1000

# Where our own texts hold positions: as fields of a row, and within a text that is a field of a row.
ROW_NUMBERS: Final = re.compile(rf'"(?:position|after|until|behind)":({MARK}\d{{5}})')
ANSWER_NUMBERS: Final = re.compile(rf'\\"position\\":({MARK}\d{{5}})')
WAIT_NUMBERS: Final = re.compile(r'\\"after\\":\[[\d,]*\]')
_number = re.compile(rf"{MARK}\d{{5}}")


class Gathering:
    """What a batch writes, key by key."""

    def __init__(self, layout: Layout, changes: Changes) -> None:
        self._key = layout.key
        self._changes = changes
        # By key, then by field or member; None and False take away. What belongs to an index is collected by the parts
        # of its key, since there are many members and few keys.
        self._hashes: dict[str, dict[str, Value | None]] = {}
        self._zsets: dict[tuple[str, ...], dict[str, bool]] = {}
        self._sets: dict[tuple[str, ...], dict[str, bool]] = {}
        self._counted: dict[str, str] = {}  # hashes whose fields are rows of a table
        self._placed: list[list[Any]] = []  # commands whose arguments may be in pieces

    def _hash(self, table: str, *parts: str) -> dict[str, Value | None]:
        """The fields of a hash that change; those of a named table are counted."""
        name = self._key(*parts)
        if table:
            self._counted[name] = table
        return self._hashes.setdefault(name, {})

    def _index(self, *parts: str) -> dict[str, bool]:
        return self._zsets.setdefault(parts, {})

    def _set(self, *parts: str) -> dict[str, bool]:
        return self._sets.setdefault(parts, {})

    def _commands(self) -> tuple[list[list[Any]], list[list[Any]]]:
        adds: list[list[Any]] = []
        removes: list[list[Any]] = []
        for key, fields in self._hashes.items():
            table = self._counted.get(key, "")
            there: list[str] = []
            gone: list[str] = []
            for at, one in fields.items():
                if type(one) is str:
                    there += (at, one)
                elif one is None:
                    gone.append(at)
                else:
                    self._placed.append([table, "HSET", key, at, one])
            adds += _cut(table, "HSET", key, there)
            removes += _cut(table, "HDEL", key, gone)
        for parts, members in self._zsets.items():
            key = self._key(*parts)
            coming = [one for one, is_in in members.items() if is_in]
            scored = ["0"] * (2 * len(coming))
            scored[1::2] = coming
            adds += _cut("", "ZADD", key, scored)
            removes += _cut("", "ZREM", key, [one for one, is_in in members.items() if not is_in])
        for parts, members in self._sets.items():
            key = self._key(*parts)
            adds += _cut("", "SADD", key, [one for one, is_in in members.items() if is_in])
            removes += _cut("", "SREM", key, [one for one, is_in in members.items() if not is_in])
        return adds, removes


def position_text(position: int) -> Value:
    return ["", position - UNPLACED] if position >= UNPLACED else str(position)


def pieces(where: re.Pattern[str], value: str) -> Value:
    """A text cut at the positions that have no place yet; the text itself if there are none."""
    if MARK not in value:
        return value
    parts: list[Any] = []
    done = 0
    for found in where.finditer(value):
        for number in _number.finditer(value, found.start(), found.end()):
            parts += [value[done : number.start()], int(number[0]) - UNPLACED]
            done = number.end()
    return [*parts, value[done:]] if parts else value


def _cut(table: str, command: str, key: str, arguments: list[str]) -> Iterable[list[Any]]:
    for begin in range(0, len(arguments), _arguments_max):
        yield [table, command, key, *arguments[begin : begin + _arguments_max]]
