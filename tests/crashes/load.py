"""Asks a crew for scene after scene while something is done to it, and looks in the end at what came of everything.

What is asked has an id or a key; if the answer is that nothing happened, or that nobody knows, it is asked again. What
is acknowledged must have had its effect, once, whoever died meanwhile. The expectations are those of the scripts.
"""

import asyncio
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from crashes import scenes
from crashes.crew import Crew, Place, open_crew, patience_s, until
from crashes.drive import Figures
from crashes.obeying import answer
from crashes.script import Answers, Ask, Story
from crashes.story import effects_in
from perdure import App
from perdure.testing.conformance.driver import all_runs
from perdure.testing.conformance.invariants import check_invariants

# So many scenes are played at once.
_scenes_at_once = 8
_ask_again_s = 0.05
_seed = os.environ.get("PERDURE_CRASH_SEED", "0")
_not_taken = ("StoreRefused", "OutcomeUnknown")
_terminal = ("completed", "failed", "cancelled", "terminated")


Faults = Callable[[Crew, random.Random], Awaitable[None]]


class Load:
    """One namespace, a client that asks, and all that it was told."""

    def __init__(self, app: App, effects: Path, rng: random.Random) -> None:
        self._app = app
        self._effects = effects
        self._cast = scenes.cast(rng)
        self._stories: list[Story] = []
        self._answers: Answers = {}
        self._heard: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._refused = 0

    # --- asking ---

    async def during(self, faults: Awaitable[None]) -> None:
        """Play scenes until the faults are over; then all that were begun must come to their ends."""
        trouble = asyncio.ensure_future(faults)
        scenes_played: set[asyncio.Task[None]] = set()
        room = asyncio.Semaphore(_scenes_at_once)
        try:
            while not trouble.done():
                await room.acquire()
                scenes_played.add(asyncio.create_task(self._play(next(self._cast), room)))
                await asyncio.sleep(0.02)  # a steady load, not one that comes all at once
            await trouble
            await self._end_in_time(scenes_played)
        finally:
            for one in (trouble, *scenes_played):
                one.cancel()

    async def _end_in_time(self, played: "set[asyncio.Task[None]]") -> None:
        """Once nothing is done to them any more."""
        done, hanging = await asyncio.wait(played, timeout=patience_s)
        for one in done:
            one.result()
        silent = [one.name for one in self._asks if one.name not in self._answers]
        assert not hanging, f"no answer within {patience_s} s: {silent}\n{await self._living()}"

    @property
    def _asks(self) -> list[Ask]:
        return [ask for story in self._stories for ask in story.asks]

    async def _play(self, stories: list[Story], room: asyncio.Semaphore) -> None:
        self._stories += stories
        try:
            await asyncio.gather(*(self._ask(ask) for story in stories for ask in story.asks))
        finally:
            room.release()

    async def _ask(self, ask: Ask) -> None:
        for name in ask.after:
            await self._heard[name].wait()
        told = await answer(self._app, ask.message())
        while told.get("error") in _not_taken:
            self._refused += told["error"] == "StoreRefused"
            await asyncio.sleep(_ask_again_s)
            told = await answer(self._app, ask.message())
        self._answers[ask.name] = told
        self._heard[ask.name].set()

    # --- looking ---

    async def check(self, crew: Crew) -> Figures:
        """Whether all is as it must be, now that nothing is done to the crew any more."""
        await until(self._all_ended, "every run ends")
        store = self._app._engine().store
        wrong = await check_invariants(store)
        # Of several writers each counts for itself: only within a run are sequence numbers unique.
        assert [one for one in wrong if not one.startswith("R3 sequence number")] == []
        runs = {one.run_id: one for one in await all_runs(store)}
        for story in self._stories:
            run = runs[story.run]
            assert run.status == story.status, f"{story.run}: {run}"
            story.check(self._answers, json.loads(run.output or "null"))
        self._check_jobs([one.output for one in runs.values() if one.workflow == "taking"])
        self._check_children(Counter(one.parent_run_id for one in runs.values()))
        again = await self._check_bodies(list(runs))
        return Figures(
            kills=crew.kills,
            stops=crew.stops,
            restarts=crew.restarts,
            fenced=sum([(await one.who())["fenced"] for one in crew.members]),
            refused=self._refused,
            acknowledged=len(self._answers),
            runs=len(runs),
            bodies=sum(map(len, self._bodies().values())),
            again=again,
        )

    async def _all_ended(self) -> bool:
        counts = await self._app._engine().store.counts()
        return not [one for one in counts if one.startswith("runs.") and one[5:] not in _terminal]

    async def _living(self) -> str:
        store = self._app._engine().store
        living = [one for one in await all_runs(store) if one.status not in _terminal]
        look = await store.look()
        lines = [str(look)]
        for one in living[:20]:
            lines += [str(one), *map(str, await store.waiting(one.run_id))]
        return "\n".join(lines)

    def _check_jobs(self, taken: list[str | None]) -> None:
        """Every item that was put, from outside or by a run, was taken by one run."""
        speakers = [one.run for one in self._stories if one.run.startswith("speaking-")]
        first = [10 * int(one.rpartition("-")[2]) for one in speakers]
        put = [*first, *(one + 1 for one in first)]
        assert sorted(json.loads(one or "null") for one in taken) == sorted(put)

    def _check_children(self, children: Counter[str | None]) -> None:
        expected = {"family": 2, "speaking": 1}
        for story in self._stories:
            number = expected.get(story.run.partition("-")[0])
            assert number is None or children[story.run] == number, (
                f"{story.run} has other children"
            )

    def _bodies(self) -> dict[tuple[str, int], list[str]]:
        """By body and attempt, the claims under which it ran, in order."""
        bodies: dict[tuple[str, int], list[str]] = defaultdict(list)
        for effect in effects_in(self._effects):
            bodies[effect["body"], effect["attempt"]].append(effect["claim"])
        return bodies

    async def _check_bodies(self, run_ids: list[str]) -> int:
        """Every recorded step had a body that ran, and again only if the run was claimed anew; gives how many did."""
        bodies = self._bodies()
        ran = {body for body, _ in bodies}
        store = self._app._engine().store
        for run_id in run_ids:
            for step in await store.history(run_id):
                if step.kind == "step" and step.state == "done":
                    assert f"{run_id}/{step.generation}/{step.path}" in ran, step
        twice = {body: claims for body, claims in bodies.items() if len(claims) > 1}
        kept = {body: claims for body, claims in twice.items() if len(set(claims)) < len(claims)}
        assert not kept, f"run again though nobody had lost the run: {kept}"
        return sum(len(claims) - 1 for claims in twice.values())


def client_of(place: Place) -> App:
    """An app that only asks, in this very process."""
    return scenes.app_on(place.url, namespace=place.namespace, worker=False)


async def survive(directory: Path, place: Place, size: int, faults: Faults) -> Figures:
    """Play scenes with a crew during these faults, and look at what came of it."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "")
    rng = random.Random(f"{_seed}/{name}")
    try:
        async with open_crew(directory, place, size) as crew, client_of(place) as app:
            load = Load(app, place.effects, rng)
            await load.during(faults(crew, rng))
            return await load.check(crew)
    except BaseException as error:
        error.add_note(f"seed {_seed}/{name}")
        raise
