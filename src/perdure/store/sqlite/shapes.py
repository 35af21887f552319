"""Ways to write many rows with one call: which columns are bound, which the statement sets itself.

Binding a value costs a tenth of a microsecond or two with the interpreter lock held, so the usual
rows have statements of their own that bind half as much. A row takes the first shape it fits; the
last one fits all. Statements come in sizes 1, 2, 3, 4, 6, 8, 12, 16, … rows, each filled up with
rows that are never read (`limit ?`), so that few texts serve all batches and stay prepared.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec

from perdure.model.records import (
    CursorRecord,
    DeadLetterRecord,
    ItemRecord,
    KeyRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamRecord,
    WatcherRecord,
)
from perdure.store.sqlite.statements import Statements, queries

Change = tuple[Any, Any]  # a row as it is in the file, and as it is to be

# Rows of one statement. To prepare it costs five to ten microseconds a row, once for each size. After each the
# writer needs the interpreter again, and under load waits for it while all others run: so not too few. The widest
# has 40 columns; SQLite takes 32,766 variables.
_rows_max: Final = 512
# Fewer rows than this are not worth a call of their own, if another shape is written anyway.
_worth_a_call: Final = 32

# What a run is born with. Of these only `continue_as` and a debounced start change any, and they move the generation
# or `replaced` too, so that nobody need look at them to see whether a run has changed.
_born_with: Final = frozenset(
    {
        "workflow",
        "version",
        "input",
        "created_at",
        "parent_run_id",
        "parent_path",
        "tags",
        "entity_type",
        "entity_id",
        "key",
        "root_id",
        "depth",
        "origin",
        "position",
        "event_id",
        "deadline_at",
        "cancel_on",
        "pool",
        "pool_key",
        "priority",
        "forked",
        "trace",
    }
)


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[object, ...]]:
    """The fields of these names as a tuple, however many they are."""
    if not names:
        return lambda row: ()
    if len(names) == 1:
        return lambda row: (getattr(row, names[0]),)
    return attrgetter(*names)


class Shape:
    """A statement of queries.sql and the columns it binds.

    It sets the fields that are `given` itself; others are as they were (update), or defaults (insert).
    """

    def __init__(
        self,
        name: str,
        record: type[msgspec.Struct],
        columns: Sequence[str] | None = None,
        **given: object,
    ) -> None:
        bound = columns or record.__struct_fields__
        rest = [one for one in msgspec.structs.fields(record) if one.name not in bound]
        self._init(name, len(bound), attrgetter(*bound), rest, given)

    @classmethod
    def of_columns(cls, name: str, width: int) -> "Shape":
        """A shape for rows that are just their columns: tuples, or one after the other in a flat list."""
        shape = cls.__new__(cls)
        shape._init(name, width, tuple, [], {})
        return shape

    def _init(
        self,
        name: str,
        width: int,
        columns: Callable[[Any], Iterable[object]],
        rest: list[msgspec.structs.FieldInfo],
        given: dict[str, object],
    ) -> None:
        self._rest = _getter([one.name for one in rest])
        self._usual = tuple(given.get(one.name, one.default) for one in rest)
        self._kept = _getter(
            [one.name for one in rest if one.name not in given and one.name not in _born_with]
        )
        self._set = _getter(list(given))
        self._given = tuple(given.values())
        self._template = queries[name]
        self._texts: dict[int, str] = {}
        self._width = width
        self._columns = columns

    def fitting(self, rows: list[Any]) -> list[Any]:
        """The rows to insert whose fields that are not bound are as the statement sets them."""
        rest, usual = self._rest, self._usual
        return [row for row in rows if rest(row) == usual]

    def split(self, changes: list[Change]) -> tuple[list[Any], list[Change]]:
        """The new rows of those (old, new) pairs that this statement can tell, and the other pairs.

        It can if the fields that are not bound are unchanged, or as the statement sets them.
        """
        kept, set_, given = self._kept, self._set, self._given
        fitting, others = [], []
        for change in changes:
            old, new = change
            if set_(new) == given and kept(old) == kept(new):
                fitting.append(new)
            else:
                others.append(change)
        return fitting, others

    def write(self, sql: Statements, rows: Sequence[Any]) -> None:
        """Write rows of this shape, with as few calls as fit."""
        self.write_flat(sql, list(chain.from_iterable(map(self._columns, rows))))

    def write_flat(self, sql: Statements, values: list[object]) -> None:
        """Write rows whose columns stand one after the other in a single list."""
        width = self._width
        for start in range(0, len(values), _rows_max * width):
            part = values[start : start + _rows_max * width]
            count = len(part) // width
            size = padded(count)
            if size > count:
                part.extend([None] * ((size - count) * width))
            part.append(count)
            changed = sql.write(self._text(size), part)
            if changed != count and self._template.startswith("update"):
                # What we remember is not what the file holds. The batch fails, and forgets it.
                raise RuntimeError(f"{changed} of {count} rows were there to be changed")

    def _text(self, size: int) -> str:
        text = self._texts.get(size)
        if text is None:
            row = "(" + ", ".join("?" * self._width) + ")"
            rows = "values " + ", ".join([row] * size)
            text = self._texts[size] = self._template.replace("{rows}", rows)
        return text


def padded(count: int) -> int:
    """The size of the statement that takes `count` rows."""
    size: int = 1 << (count - 1).bit_length()
    smaller = size * 3 // 4
    return smaller if size >= 4 and count <= smaller else size


def write_new(sql: Statements, rows: Iterable[Any], *shapes: Shape) -> None:
    """Insert rows, each by the first shape that it fits; the last shape fits all."""
    groups: list[list[Any]] = []
    left = list(rows)
    for shape in shapes[:-1]:
        fitting = shape.fitting(left)
        groups.append(fitting)
        if len(fitting) == len(left):
            left = []
        elif fitting:
            taken = set(map(id, fitting))
            left = [row for row in left if id(row) not in taken]
    _write(sql, shapes, [*groups, left])


def write_changed(sql: Statements, changes: list[Change], *shapes: Shape) -> list[Any]:
    """Update rows from (old, new) pairs, likewise; gives back those that no shape can tell."""
    groups: list[list[Any]] = []
    left = changes
    for shape in shapes:
        fitting, left = shape.split(left)
        groups.append(fitting)
    _write(sql, shapes, groups)
    return [new for _, new in left]


def _write(sql: Statements, shapes: Sequence[Shape], groups: list[list[Any]]) -> None:
    """A few rows go with the last shape, unless theirs is the only call."""
    last = groups[-1]
    if sum(map(bool, groups)) > 1:
        for group in groups[:-1]:
            if len(group) < _worth_a_call:
                last.extend(group)
                group.clear()
    for shape, group in zip(shapes, groups, strict=True):
        shape.write(sql, group)


insert_runs = Shape("insert_runs", RunRecord)
insert_plain_runs = Shape(
    "insert_plain_runs",
    RunRecord,
    (
        "run_id",
        "workflow",
        "version",
        "status",
        "input",
        "created_at",
        "owner",
        "fence",
        "ready_at",
        "position",
    ),
)
end_runs = Shape(
    "end_runs", RunRecord, ("run_id", "status", "finished_at", "output"), owner=None, fence=0
)
move_runs = Shape("move_runs", RunRecord, ("run_id", "status", "owner", "fence", "revision"))
ready_runs_move = Shape(
    "ready_runs_move",
    RunRecord,
    ("run_id", "status", "owner", "fence", "revision", "ready_at"),
)
change_runs = Shape(
    "change_runs",
    RunRecord,
    (
        "run_id",
        "status",
        "owner",
        "fence",
        "revision",
        "ready_at",
        "finished_at",
        "output",
        "error",
        "reason",
        "pause_requested",
        "cancel_requested",
        "published",
        "line_at",
        "admitted",
    ),
)

insert_steps = Shape("insert_steps", StepRecord)
insert_plain_steps = Shape(
    "insert_plain_steps",
    StepRecord,
    ("run_id", "generation", "path", "name", "seq", "value", "started_at", "recorded_at"),
    kind="step",
    state="done",
)
insert_open_waits = Shape(
    "insert_open_waits",
    StepRecord,
    ("run_id", "generation", "path", "kind", "name", "wait", "started_at"),
    state="open",
)
decide_waits = Shape(
    "decide_waits",
    StepRecord,
    (
        "run_id",
        "generation",
        "path",
        "state",
        "seq",
        "value",
        "error",
        "winner",
        "recorded_at",
        "taken_id",
    ),
)
put_steps = Shape("put_steps", StepRecord)

insert_watchers = Shape("insert_watchers", WatcherRecord)
insert_plain_watchers = Shape(
    "insert_plain_watchers",
    WatcherRecord,
    (
        "run_id",
        "path",
        "ix",
        "generation",
        "kind",
        "target",
        "opened_at",
        "deadline_at",
        "deadline_ix",
    ),
)
delete_watchers = Shape.of_columns("delete_watchers", 3)
insert_signals = Shape("insert_signals", SignalRecord)
insert_keys = Shape("insert_keys", KeyRecord)
insert_events = Shape.of_columns("insert_events", 14)
insert_plain_events = Shape.of_columns("insert_plain_events", 7)
put_cursors = Shape("put_cursors", CursorRecord)
put_streams = Shape("put_streams", StreamRecord)
insert_stream_items = Shape("insert_stream_items", StreamItemRecord)
insert_items = Shape("insert_items", ItemRecord)
insert_dead_letters = Shape("insert_dead_letters", DeadLetterRecord)
