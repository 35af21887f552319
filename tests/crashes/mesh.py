"""Signals from each process to each: every process starts runs, and sends one greeting to every run of everybody.

What a process is asked to do it does as a whole, and may be asked again: runs have ids and greetings have keys. A run
ends when it has as many greetings as there are processes, and gives them as they came. Nobody asks a process that
was killed; another in its place is asked the same.
"""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from crashes import fsck, story
from crashes.crew import Crew, Member, until
from crashes.drive import Figures
from perdure import App, Context, Signal, step, workflow

processes = 4
hail = Signal("hail", int, buffer="all")

# Runs of each process that are started, and greeted by all, before the next are begun.
_runs_per_round = 125


@step
async def note_down(number: int) -> int:
    story.note()
    return number


@workflow(signals=[hail])
async def meeting(ctx: Context, number: int) -> list[int]:
    """Takes one greeting after the other, whoever sends it; then a step that leaves its mark."""
    heard = [await ctx.wait(hail) for _ in range(processes)]
    await ctx.step(note_down, number)
    return heard


def run_id(starter: int, number: int) -> str:
    return f"meeting-{starter}-{number}"


# --- in a process --------------------------------------------------------------------------------


async def start(app: App, starter: int, first: int, count: int) -> int:
    numbers = range(first, first + count)
    await asyncio.gather(*(app.start(meeting, one, id=run_id(starter, one)) for one in numbers))
    return count


async def greet(app: App, sender: int, first: int, count: int) -> int:
    """Greet these runs of every process."""
    ids = [run_id(one, nth) for nth in range(first, first + count) for one in range(processes)]
    await asyncio.gather(*(app.signal(one, hail, sender, key=f"from {sender}") for one in ids))
    return len(ids)


async def obey(app: App, asked: dict[str, Any]) -> int:
    do = {"start": start, "greet": greet}[asked["what"]]
    return await do(app, asked["process"], asked["first"], asked["count"])


# --- in the test ---------------------------------------------------------------------------------


class Mesh:
    """A crew on one file, all that it is asked to do, and what must come of it."""

    def __init__(self, crew: Crew, rng: random.Random, runs: int, kills: int) -> None:
        self._crew = crew
        self._rng = rng
        self._runs_each = runs // processes
        rounds = [*range(0, self._runs_each, _runs_per_round)]
        # In which rounds somebody is to die, and how often.
        self._kills = Counter(rng.choices(rounds, k=kills))
        self._acknowledged = 0

    async def play(self) -> None:
        for first in range(0, self._runs_each, _runs_per_round):
            count = min(_runs_per_round, self._runs_each - first)
            killing = asyncio.create_task(self._kill(self._kills[first]))
            for what in ("start", "greet"):
                await asyncio.gather(
                    *(
                        self._insist(member, what=what, process=nth, first=first, count=count)
                        for nth, member in enumerate(self._crew.members)
                    )
                )
            await killing
        for member in self._crew.members:
            await member.ensure()  # the last to die had nothing left to do

    async def _kill(self, times: int) -> None:
        """Somebody, in the midst of whatever it does."""
        for _ in range(times):
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            self._rng.choice(self._crew.members).child.kill()
            self._crew.kills += 1

    async def _insist(self, member: Member, **asked: Any) -> None:
        """Ask until it is done, whoever has to die for it."""
        while True:
            try:
                told = await asyncio.to_thread(member.child.ask, do="mesh", **asked)
            except AssertionError:  # it died
                await member.replace()
                continue
            assert "ok" in told, told
            self._acknowledged += told["ok"]
            return

    async def check(self, app: App, db: Path, effects: Path) -> Figures:
        """Every run has ended, has each greeting once, and ran its step; the file is sound."""
        store = app._engine().store
        runs = processes * self._runs_each

        async def all_ended() -> bool:
            return (await store.counts()).get("runs.completed", 0) == runs

        await until(all_ended, f"{runs} runs end")
        with fsck.copy_of(db, in_use=True) as connection:
            fsck.check_state(connection)
            self._check_runs(fsck.rows(connection, "select run_id, status, output from runs"))
            self._check_ledger(connection)
        bodies = Counter(one["body"] for one in story.effects_in(effects))
        claims = Counter((one["body"], one["claim"]) for one in story.effects_in(effects))
        assert len(bodies) == runs, "a step is recorded that never ran"
        assert max(claims.values()) == 1, "a body ran twice though nobody had lost the run"
        return Figures(
            kills=self._crew.kills,
            acknowledged=self._acknowledged,
            runs=runs,
            bodies=bodies.total(),
            again=bodies.total() - runs,
        )

    def _check_runs(self, rows: list[dict[str, Any]]) -> None:
        wanted = {run_id(p, nth) for p in range(processes) for nth in range(self._runs_each)}
        assert {one["run_id"] for one in rows} == wanted
        for one in rows:
            assert one["status"] == "completed", one
            assert sorted(json.loads(one["output"])) == [*range(processes)], one

    def _check_ledger(self, connection: Any) -> None:
        """Each run began once and ended once, each greeting was delivered once, and no place is empty."""
        counted = "select type, count(*) as n, count(distinct {}) as d from events group by type"
        by_run = {
            one["type"]: (one["n"], one["d"])
            for one in fsck.rows(connection, counted.format("payload ->> 'run_id'"))
        }
        runs = processes * self._runs_each
        assert by_run["workflow.run_started"] == by_run["workflow.run_completed"] == (runs, runs)
        assert by_run["signal.delivered"] == (runs * processes, runs)
        first, last, count = connection.execute(
            "select min(position), max(position), count(*) from events"
        ).fetchone()
        assert (first, last) == (1, count)
