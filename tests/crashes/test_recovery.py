"""What a process does with the file that another one left: heal what is broken, touch nothing that is whole."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crashes import story
from crashes.drive import Figures
from crashes.fsck import check_state, copy_of, dump
from crashes.nursery import Nursery, open_nursery
from perdure import App, RunHandle
from perdure.runtime.recovery import Recovery
from perdure.runtime.worker import Worker

MakeApp = Callable[[Path], App]


async def become(run: RunHandle[Any], *statuses: str) -> None:
    async with asyncio.timeout(10):
        while await run.status() not in statuses:  # noqa: ASYNC110 nobody is told that a run parks
            await asyncio.sleep(0.002)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Upkeep every few milliseconds, and a way to wait for the end of so many rounds from now."""
    kwdefaults: dict[str, Any] = Worker.__init__.__kwdefaults__
    monkeypatch.setitem(kwdefaults, "poll_s", 0.02)
    look = Recovery.look
    ended = asyncio.Condition()
    count = 0

    async def counted(recovery: Recovery, *, thorough: bool) -> None:
        nonlocal count
        await look(recovery, thorough=thorough)
        async with ended:
            count += 1
            ended.notify_all()

    async def wait(more: int) -> None:
        last = count + more
        async with asyncio.timeout(10), ended:
            await ended.wait_for(lambda: count >= last)

    monkeypatch.setattr(Recovery, "look", counted)
    return wait


def _cut_delivery_in_half(db: Path) -> None:
    """The wait of run `a` is decided and its watchers are gone, but nobody told the run."""
    with closing(sqlite3.connect(db)) as connection, connection:
        decided = connection.execute(
            """update steps set state = 'done', value = '"ann"', winner = 0, recorded_at = started_at,
            seq = (select max(seq) + 1 from steps) where run_id = 'a' and path = 'approve'"""
        )
        assert decided.rowcount == 1
        assert connection.execute("delete from watchers where run_id = 'a'").rowcount == 1


async def test_a_half_delivered_wait_is_healed_when_the_file_is_opened(
    tmp_path: Path, app_on: MakeApp
) -> None:
    db = tmp_path / "runs.db"
    async with app_on(db) as app:
        await become(await app.start(story.approval, 1, id="a"), "waiting")
    _cut_delivery_in_half(db)
    async with app_on(db) as app:
        assert await app.run("a").result("5s") == "ann"
    with copy_of(db) as connection:
        check_state(connection)


async def test_a_half_delivered_wait_is_healed_while_the_app_runs(
    tmp_path: Path, app_on: MakeApp, rounds: Any
) -> None:
    db = tmp_path / "runs.db"
    async with app_on(db) as app:
        run = await app.start(story.approval, 1, id="a")
        await become(run, "waiting")
        _cut_delivery_in_half(db)
        assert await run.result("5s") == "ann"


async def _one_of_each(app: App) -> None:
    """Runs in every state in which nothing happens by itself."""
    await become(await app.start(story.approval, 1, id="waits"), "waiting")
    await become(await app.start(story.sleeper, 1, id="sleeps"), "sleeping")
    await become(await app.start(story.stuck, 1, id="waits for a child"), "waiting")
    held = await app.start(story.waiter, 1, id="paused")
    await become(held, "waiting")
    await held.pause()
    await app.signal("paused", story.go, "buffered")
    await (await app.start(story.order, 1, id="done")).result()
    cancelled = await app.start(story.stuck, 1, id="cancelled")
    await become(cancelled, "waiting")
    await cancelled.cancel()
    await become(cancelled, "cancelled")


async def test_recovery_of_a_healthy_file_writes_nothing(
    tmp_path: Path, app_on: MakeApp, rounds: Any
) -> None:
    """Only the worker's coming and going shows: no row but in `commits`, none left in `workers`.

    And whose the consumers are: `workflow_runner` is claimed at each opening.
    """
    db = tmp_path / "runs.db"
    async with app_on(db) as app:
        await _one_of_each(app)
    with copy_of(db) as connection:
        before = dump(connection)
    async with app_on(db):
        await rounds(3)  # the look at the opening, and two rounds of upkeep
    with copy_of(db) as connection:
        after = dump(connection)
        check_state(connection)
    own = ("commits", "consumers")
    assert {name for name in before if before[name] != after[name]} <= set(own)
    assert before["workers"] == after["workers"] == []
    # Two life signs, the first and the last, the catalogue, which is found to stand there, the claim, the cursor.
    assert len(after["commits"]) - len(before["commits"]) <= 5


async def test_upkeep_beside_living_runs_writes_nothing(
    tmp_path: Path, app_on: MakeApp, rounds: Any
) -> None:
    db = tmp_path / "runs.db"
    async with app_on(db) as app:
        await _one_of_each(app)
        await rounds(1)
        with copy_of(db, in_use=True) as connection:
            before = dump(connection)
        await rounds(2)
        with copy_of(db, in_use=True) as connection:
            assert dump(connection) == before


def _hang(nursery: Nursery, tmp_path: Path, neighbours: int) -> Any:
    """A child with one run in the middle of a step, beside many that wait."""
    child = nursery.fork(db=tmp_path / "runs.db", effects=tmp_path / "effects.jsonl")
    for n in range(neighbours):
        child.ask(do="start", run=f"neighbour-{n}", workflow="waiter", input=n)
    child.send(
        {"name": "", "do": "start", "run": "r", "workflow": "hanging", "input": f"{tmp_path}/mark"}
    )
    child.hear_of("hanging")
    return child


def test_after_a_kill_the_next_process_resumes_a_run_within_a_second(
    nursery: Nursery, tmp_path: Path, figures: Figures
) -> None:
    child = _hang(nursery, tmp_path, neighbours=50)
    child.kill()
    child.buried()
    child = nursery.fork(db=tmp_path / "runs.db", effects=tmp_path / "effects.jsonl")
    opening = child.hear_of("opening")
    resumed = child.hear_of("hanging")
    assert child.ask(do="result", run="r") == {"name": "asked", "ok": "through"}
    assert child.close()
    figures.add(Figures(kills=1, acknowledged=51, runs=51, resumed=1, bodies=2, again=1))
    figures.resume_s = max(figures.resume_s, resumed["at"] - opening["at"])
    assert resumed["at"] - opening["at"] < 1.0


def test_a_living_worker_takes_over_what_a_killed_one_ran(
    nursery: Nursery, tmp_path: Path, figures: Figures
) -> None:
    """A dead process is known by its lock file: nobody waits for a lease to run out."""
    with open_nursery(tmp_path) as home:
        heir = home.fork(db=tmp_path / "runs.db", effects=tmp_path / "effects.jsonl")
        heir.hear_of("open")
        child = _hang(nursery, tmp_path, neighbours=0)
        child.kill()
        child.buried()
        heir.hear_of("hanging")  # within the patience of a test, which is shorter than a lease
        assert heir.ask(do="result", run="r") == {"name": "asked", "ok": "through"}
        assert heir.close()
    figures.add(Figures(kills=1, acknowledged=1, runs=1, resumed=1, bodies=2, again=1))
