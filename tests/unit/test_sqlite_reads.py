"""Reads: pages, filters, the sweep, and that every one of them is answered by an index."""

import random
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.model import ops
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.model.records import Condition
from perdure.store.base import RunFilter
from perdure.store.sqlite import opening, reads, shapes, statements
from perdure.store.sqlite.shapes import Shape, padded
from perdure.store.sqlite.statements import Statements, queries
from perdure.store.sqlite.store import SqliteStore

ids = Ids(SystemClock(), random.Random(7))


class Clock(SystemClock):
    us = 1_000_000

    def now(self) -> int:
        return self.us


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    clock = Clock()
    store = SqliteStore(
        str(tmp_path / "one.db"), clock=clock, ids=Ids(clock, random.Random()), synchronous="NORMAL"
    )
    store.worker_id = "W"
    store.test_clock = clock  # type: ignore[attr-defined]
    await store.open()
    yield store
    await store.close()


async def apply(store: SqliteStore, *batch: ops.Op[Any]) -> None:
    await store.apply(ids.ulid(), batch)


def start(run_id: str, **more: Any) -> ops.StartRun:
    given = {"workflow": "w", "version": 1, "input": "null", "owner": "W", "fence": 1}
    return ops.StartRun(run_id=run_id, **{**given, **more})


def suspend(run_id: str, *on: Condition) -> ops.Suspend:
    wait = ops.Wait(path="wait", kind="wait", name="wait", on=on)
    return ops.Suspend(run_id=run_id, fence=1, revision=0, waits=(wait,))


# --- pages and filters -------------------------------------------------------------------------


@pytest.fixture
async def listed(store: SqliteStore) -> SqliteStore:
    clock = store.test_clock  # type: ignore[attr-defined]
    for nth in range(12):
        clock.us += 10 * (nth % 2)  # two by two at the same time
        await apply(
            store,
            start(
                f"r{nth:02}",
                workflow="ab"[nth % 2],
                tags=f'{{"team":"x","n":"{nth}"}}' if nth % 3 else None,
                entity_type="order" if nth < 6 else None,
                entity_id=str(nth % 2) if nth < 6 else None,
                parent_run_id="r00" if nth > 9 else None,
            ),
        )
    for nth in range(8):
        status = "completed" if nth % 2 else "failed"
        end = ops.Finish(run_id=f"r{nth:02}", fence=1, revision=0, status=status, error="{}")
        await apply(store, end)
    return store


async def found(store: SqliteStore, page: int = 100, **where: Any) -> list[int]:
    """All pages of a listing, one after the other."""
    numbers: list[int] = []
    after = None
    while rows := await store.runs(RunFilter(**where), after, page):
        numbers += [int(one.run_id[1:]) for one in rows]
        after = (rows[-1].created_at, rows[-1].run_id)
    return numbers


@pytest.mark.parametrize("page", [1, 3, 100])
async def test_runs_are_listed_newest_first(listed: SqliteStore, page: int) -> None:
    newest = list(range(11, -1, -1))
    assert await found(listed, page) == newest
    assert await found(listed, page, workflow="a") == newest[1::2]
    assert await found(listed, page, statuses=("failed",)) == [6, 4, 2, 0]
    assert await found(listed, page, statuses=("failed", "completed")) == newest[4:]
    assert await found(listed, page, statuses=("running", "failed"), workflow="a") == newest[1::2]
    assert await found(listed, page, entity=("order", "1")) == [5, 3, 1]
    assert await found(listed, page, entity=("order", "1"), statuses=("running",)) == []
    assert await found(listed, page, parent_run_id="r00") == [11, 10]
    assert await found(listed, page, tag=("team", None)) == [n for n in newest if n % 3]
    assert await found(listed, page, tag=("n", "5")) == [5]
    assert await found(listed, page, tag=("n", "5"), statuses=("failed",)) == []
    middle = {"created_from": 1_000_020, "created_before": 1_000_040}
    assert await found(listed, page, **middle) == [6, 5, 4, 3]
    assert await found(listed, page, **middle, statuses=("failed",), workflow="a") == [6, 4]


async def test_events_by_type_and_entity(listed: SqliteStore) -> None:
    positions = [one.position for one in await listed.events(0, 100)]
    assert positions == list(range(1, 21))
    failed = await listed.events(0, 100, type="workflow.run_failed")
    assert [one.position for one in failed] == [13, 15, 17, 19]
    assert [one.position for one in await listed.events(15, 1, type="workflow.run_failed")] == [17]
    order = await listed.events(0, 100, entity=("order", "1"))
    assert [one.position for one in order] == [2, 4, 6, 14, 16, 18]
    both = await listed.events(2, 100, entity=("order", "1"), type="workflow.run_completed")
    assert [one.position for one in both] == [14, 16, 18]


async def test_who_waits_is_paged(store: SqliteStore) -> None:
    for nth in range(5):
        await apply(store, start(f"r{nth}"), suspend(f"r{nth}", Condition("signal", "go")))
    await apply(store, start("other"), suspend("other", Condition("signal", "no")))
    first = await store.find_waiting("go", None, None, 3)
    assert [one.run_id for one in first] == ["r0", "r1", "r2"]
    last = first[-1]
    place = (last.opened_at, last.run_id, last.path, last.ix)
    rest = await store.find_waiting("go", None, place, 3)
    assert [one.run_id for one in rest] == ["r3", "r4"]
    assert await store.find_waiting("go", 1_000_000, None, 3) == []


async def test_where_a_signal_is(store: SqliteStore) -> None:
    send = ops.SendSignal(
        signal_id="S", run_id="a", name="go", payload="1", on_end="dead_letter", policy="all"
    )
    await apply(store, start("a"), send)
    assert type(await store.signal("S")).__name__ == "SignalRecord"
    end = ops.Finish(run_id="a", fence=1, revision=0, status="completed")
    await apply(store, end)
    assert type(await store.signal("S")).__name__ == "DeadLetterRecord"
    assert [one.dead_letter_id for one in await store.dead_letters("a", "", 5)] == ["S"]
    assert await store.dead_letters("a", "S", 5) == []
    await apply(
        store, start("b"), ops.ResendDeadLetter(dead_letter_id="S", signal_id="T", run_id="b")
    )
    await apply(store, suspend("b", Condition("signal", "go")))
    assert type(await store.signal("T")).__name__ == "EventRecord"
    assert await store.signal("nothing") is None


async def swept(store: SqliteStore, after: str, limit: int) -> tuple[list[str], str]:
    look = await store.look(after=after, limit=limit)
    return list(look.suspects), look.swept


async def test_the_sweep_goes_round(store: SqliteStore, tmp_path: Path) -> None:
    for nth in range(7):
        on = Condition("signal", "go") if nth % 2 else Condition("timer", delay_us=10**9)
        await apply(store, start(f"r{nth}"), suspend(f"r{nth}", on))
    await apply(store, start("running"))
    connection = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    connection.execute("delete from watchers where run_id in ('r2', 'r3', 'r6')")
    connection.close()
    assert await swept(store, "", 3) == (["r2"], "r2")
    assert await swept(store, "r2", 3) == (["r3"], "r5")
    assert await swept(store, "r5", 3) == (["r6"], "")
    assert await swept(store, "", 100) == (["r2", "r3", "r6"], "")
    assert await swept(store, "gone", 100) == (["r2", "r3", "r6"], "")


async def test_load_gives_the_living_rows_of_the_present_generation(store: SqliteStore) -> None:
    done = ops.StepDone(path="s", name="s", state="done", value="1", started_at=1, recorded_at=1)
    turn: dict[str, Any] = {"run_id": "a", "fence": 1, "revision": 0, "steps": (done,)}
    renewed = ops.ContinueAs(**turn, workflow="w", version=1, input="2")
    await apply(store, start("a"), renewed, ops.RecordStep(**turn), start("b"))
    loaded = {run.run_id: steps for run, steps in await store.load(["b", "a", "no", "a"])}
    assert [(one.generation, one.path) for one in loaded["a"]] == [(1, "s")]
    assert loaded["b"] == []
    assert [one.generation for one in await store.history("a")] == [0, 1]


# --- more than one text holds ------------------------------------------------------------------


@pytest.fixture
async def long_run(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run whose steps are more than SQLite, with a lowered bound, puts in one text."""
    turn: dict[str, Any] = {"run_id": "a", "fence": 1, "revision": 0}

    def done(nth: int) -> ops.StepDone:
        value = f'"{nth:01000}"'
        return ops.StepDone(
            path=f"s{nth}", name="s", state="done", value=value, started_at=1, recorded_at=1
        )

    renewed = ops.ContinueAs(**turn, workflow="w", version=1, input="2")
    await apply(store, start("a"), ops.RecordStep(**turn, steps=(done(0),)), renewed)
    await apply(store, *(ops.RecordStep(**turn, steps=(done(nth),)) for nth in range(20)))
    await apply(store, start("b"))
    connect = opening.connect

    def bounded(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4000)
        return connection

    monkeypatch.setattr(opening, "connect", bounded)
    monkeypatch.setattr(statements, "steps_part_rows", 8)
    await store.close()
    await store.open()
    return "a"


async def test_a_run_of_more_than_one_text_holds_is_loaded_whole(
    store: SqliteStore, long_run: str
) -> None:
    loaded = {run.run_id: steps for run, steps in await store.load([long_run, "b", "no"])}
    assert set(loaded) == {"a", "b"} and loaded["b"] == []
    assert sorted(int(one.path[1:]) for one in loaded["a"]) == list(range(20))
    assert {one.generation for one in loaded["a"]} == {1}
    assert {one.value for one in loaded["a"]} == {f'"{nth:01000}"' for nth in range(20)}
    history = await store.history(long_run)
    assert [(one.generation, one.path) for one in history] == [
        (0, "s0"),
        *((1, f"s{nth}") for nth in range(20)),
    ]


async def test_what_is_read_in_parts_is_one_snapshot(
    store: SqliteStore, long_run: str, tmp_path: Path
) -> None:
    def load_while_another_writes(sql: Statements) -> Any:
        records, asked = sql.records, []

        def between_parts(decode: Any, name: str, params: Any) -> Any:
            asked.append(name)
            if asked.count("page_steps") == 2:
                other = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
                other.execute("delete from steps")
                other.close()
            return records(decode, name, params)

        sql.records = between_parts  # type: ignore[method-assign]
        try:
            return reads.load(sql, [long_run]), asked
        finally:
            sql.records = records  # type: ignore[method-assign]

    ((_, steps),), asked = await store._read(load_while_another_writes)
    assert len(steps) == 20 and asked.count("page_steps") > 2
    assert [len(steps) for _, steps in await store.load([long_run])] == [0]


async def test_a_failed_run_of_more_than_one_text_holds_is_retried(
    store: SqliteStore, long_run: str
) -> None:
    error = '{"kind": "workflow", "type": "OSError", "message": "no luck"}'
    end = ops.Finish(run_id=long_run, fence=1, revision=0, status="failed", error=error)
    await apply(store, end)
    await apply(store, ops.Retry(run_id=long_run))
    run = await store.run(long_run)
    assert run is not None and run.status == "ready"


# --- plans -------------------------------------------------------------------------------------

# Few rows, or read whole on purpose.
_may_scan = {"workers", "workflows", "json_each", "pragma_data_version", "commits"}
_named = re.compile(r":(\w+)")
_scan = re.compile(r"SCAN (\w+)")


def _plan(sql: Any, text: str) -> list[str]:
    if "{rows}" in text:
        row = "(" + ", ".join("?" * 30) + ")"
        text = text.replace("{rows}", f"values {row}")
    rows = sql.connection.execute(f"explain query plan {text}", _anything(text)).fetchall()
    return [row[3] for row in rows]


def _anything(text: str) -> Any:
    if "?" in text:
        return [None] * text.count("?")
    return dict.fromkeys(_named.findall(text))


def _scanned(plan: list[str]) -> set[str]:
    """Tables that are read from end to end, by no index at all."""
    found = {match[1] for line in plan if (match := _scan.match(line)) and "INDEX" not in line}
    return found & {
        "runs",
        "steps",
        "watchers",
        "signals",
        "keys",
        "events",
        "dead_letters",
        "r",
        "s",
        "w",
    }


# What goes through everything: a count for people, and what fsck looks for.
_whole = ("counts", "strays")
_read_names = [
    name
    for name, text in queries.items()
    if text.startswith(("select", "with", "delete")) and "{" not in text and name not in _whole
]


@pytest.mark.parametrize("name", _read_names)
async def test_no_statement_scans_a_table(store: SqliteStore, name: str) -> None:
    plan = await store._read(lambda sql: _plan(sql, queries[name]))
    assert not _scanned(plan), plan
    assert not any("AUTOMATIC" in line for line in plan), plan


@pytest.mark.parametrize("name", ["ready_runs", "next_ready_at", "look"])
async def test_ready_runs_of_unknown_workflows_are_never_walked_over(
    store: SqliteStore, name: str
) -> None:
    """One seek for each workflow that the worker knows, whatever else is ready."""
    plan = await store._read(lambda sql: _plan(sql, queries[name]))
    looks = [line for line in plan if "INDEX runs_ready" in line]
    known = [line for line in looks if "(pool=? AND workflow=? AND version=? AND ready_at" in line]
    assert len(known) == 1, plan
    # look: one may ask for all workflows; and which pools have ready runs is found by hopping along the index.
    assert len(looks) == (4 if name == "look" else 1), plan
    if name == "ready_runs":  # only the merge is sorted: within each pool, and by turns
        assert sum("TEMP B-TREE" in line for line in plan) == 2, plan


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("slots_taken", "runs_with_slot (pool=?)"),
        ("line_keys", "runs_in_line (pool=? AND pool_key>?)"),
        ("line_keys", "runs_in_line (pool=? AND pool_key=? AND admitted>?)"),
        ("line_runs", "runs_in_line (pool=? AND pool_key=? AND admitted>?)"),
        ("idle_slots", "runs_ready (pool=?)"),
        ("lines", "runs_in_line_by_age (pool=? AND line_at"),
        ("lines", "runs_begun_in_line (pool=?)"),
        ("page_line", "runs_in_line_by_age (pool=? AND (line_at,run_id)>(?,?))"),
    ],
)
async def test_a_line_is_found_by_its_index(store: SqliteStore, name: str, place: str) -> None:
    plan = await store._read(lambda sql: _plan(sql, queries[name]))
    assert any(place in line for line in plan), plan
    assert not any("TEMP B-TREE" in line for line in plan if name in ("line_runs", "page_line")), (
        plan
    )


def _shapes() -> list[str]:
    return [name for name, one in vars(shapes).items() if isinstance(one, Shape)]


@pytest.mark.parametrize("name", _shapes())
async def test_no_write_of_many_rows_scans_a_table(store: SqliteStore, name: str) -> None:
    shape: Shape = getattr(shapes, name)
    plan = await store._read(lambda sql: _plan(sql, shape._text(64)))
    assert not _scanned(plan), plan
    assert not any("AUTOMATIC" in line for line in plan), plan


@pytest.mark.parametrize(
    ("where", "index"),
    [
        ({}, "runs_by_created"),
        ({"created_from": 1}, "runs_by_created"),
        ({"workflow": "a"}, "runs_by_workflow"),
        ({"statuses": ("failed",)}, "runs_by_status"),
        ({"statuses": ("failed", "ready"), "workflow": "a"}, "runs_by_status"),
        ({"statuses": ("completed",), "workflow": "a"}, "runs_by_workflow"),
        ({"entity": ("order", "1")}, "runs_by_entity"),
        ({"entity": ("order", "1"), "statuses": ("failed",), "workflow": "a"}, "runs_by_entity"),
        ({"parent_run_id": "a"}, "runs_by_parent"),
        ({"tag": ("a", "b"), "workflow": "a"}, "runs_by_workflow"),
    ],
)
@pytest.mark.parametrize("after", [None, (1, "a")])
async def test_listings_are_led_by_their_index(
    store: SqliteStore, where: dict[str, Any], index: str, after: tuple[int, str] | None
) -> None:
    text, params = reads.runs_query(RunFilter(**where), after, 10)
    plan = await store._read(
        lambda sql: [row[3] for row in sql.connection.execute(f"explain query plan {text}", params)]
    )
    assert any(index in line for line in plan), plan
    assert not _scanned(plan), plan
    sorted_late = [line for line in plan if "TEMP B-TREE" in line]
    # Only the merge of several statuses is sorted, and that is no longer than a page for each.
    assert len(sorted_late) <= ("statuses" in where and index == "runs_by_status"), plan


# --- statements --------------------------------------------------------------------------------


def test_rows_that_are_just_their_columns_fit_their_shape() -> None:
    rows = [("a", "w", 0), ("a", "w", 1)]
    assert shapes.delete_watchers.fitting(rows) == rows
    assert shapes.delete_watchers.split([(rows[0], rows[1])]) == ([rows[1]], [])


def test_statements_come_in_few_sizes() -> None:
    assert [padded(count) for count in (1, 2, 3, 4, 5, 7, 9, 13, 700, 1000)] == [
        1, 2, 3, 4, 6, 8, 12, 16, 768, 1024,
    ]  # fmt: skip
    assert all(count <= padded(count) < 2 * count for count in range(1, 5000))


async def test_batches_larger_than_a_statement(store: SqliteStore) -> None:
    many = 1500
    await apply(store, *(start(f"r{nth}", tags="{}") for nth in range(many)))
    await apply(store, *(suspend(f"r{nth}", Condition("signal", "go")) for nth in range(many)))
    counts = await store.counts()
    assert (counts["runs.waiting"], counts["steps"], counts["watchers"]) == (many, many, many)
    loaded = await store.load([f"r{nth}" for nth in range(many)])
    assert len(loaded) == many and all(len(steps) == 1 for _, steps in loaded)
