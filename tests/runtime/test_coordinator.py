"""The single writer: group commit, poison, back-pressure, a store that does not answer."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure import (
    App,
    Buffered,
    Context,
    Delivered,
    Duplicate,
    NotRunning,
    OutcomeUnknown,
    Signal,
    StoreRefused,
    step,
)
from perdure.coordinator import coordinator
from perdure.model import limits
from perdure.model.ops import SendSignal
from perdure.store.base import BatchFailed, BatchUnknown

go = Signal("go", int)
line = Signal("line", int, buffer="all")


class Wrapped:
    """A real store behind a door: `before` and `after` may delay or spoil a batch."""

    def __init__(self, store: Any) -> None:
        object.__setattr__(self, "inner", store)
        object.__setattr__(self, "batches", [])
        object.__setattr__(self, "before", None)
        object.__setattr__(self, "after", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        at = self if name in ("before", "after") else self.inner
        object.__setattr__(at, name, value)

    async def apply(self, batch_id: str, ops: Sequence[Any], *rest: Any) -> Any:
        self.batches.append(list(ops))
        if self.before is not None:
            await self.before(ops)
        applied = await self.inner.apply(batch_id, ops, *rest)
        if self.after is not None:
            await self.after(ops)
        return applied

    def sends(self) -> list[int]:
        """How many signals each batch held, those without any left out."""
        counts = [sum(isinstance(op, SendSignal) for op in batch) for batch in self.batches]
        return [count for count in counts if count]


def behind_a_door(stage: Any) -> Any:
    """The stage, whose app will find its store wrapped."""
    make = stage.app._make_store
    stage.app._make_store = lambda ids: Wrapped(make(ids))
    return stage


@pytest.fixture
def sleeper(app: App) -> Any:
    @app.workflow
    async def sleeper(ctx: Context) -> list[int]:
        await ctx.sleep("1d")
        return []

    return sleeper


def has_sends(ops: Sequence[Any]) -> bool:
    return any(isinstance(op, SendSignal) for op in ops)


# --- group commit --------------------------------------------------------------------------------


async def test_what_queues_during_a_commit_goes_as_one_batch(
    world: Any, app: App, sleeper: Any
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hold(ops: Any) -> None:
            if has_sends(ops):
                inside.set()
                await gate.wait()

        w.store.before = hold
        first = asyncio.ensure_future(w.app.signal("a", line, 0))
        await inside.wait()
        rest = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(1, 50)]
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(first, *rest)
        assert all(isinstance(one, Buffered) for one in answers)
        assert w.store.sends() == [1, 49]
        assert [one.payload for one in await w.app.buffered("a")] == list(range(50))


async def test_a_batch_is_bounded(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "batch_ops_max", 8)
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        await w.app.signal_many([("a", line, n) for n in range(30)])
        assert max(w.store.sends()) <= 8
        assert sum(w.store.sends()) == 30


async def test_ops_are_logged_one_line_each(
    world: Any, app: App, sleeper: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(app) as w:
        await w.begin(sleeper, id="a")
        caplog.set_level(logging.DEBUG, "perdure.ops")
        await w.app.signal("a", line, 5)
        said = [one.getMessage() for one in caplog.records if one.name == "perdure.ops"]
        assert any(one.startswith("SendSignal(") and "-> Buffered(" in one for one in said)


# --- poison --------------------------------------------------------------------------------------


async def test_an_op_that_spoils_its_batch_is_found_and_stands_alone(
    world: Any, app: App, sleeper: Any
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")

        async def spoil(ops: Any) -> None:
            if any(isinstance(op, SendSignal) and op.payload == "13" for op in ops):
                raise BatchFailed("thirteen")

        w.store.before = spoil
        sends = (w.app.signal("a", line, n) for n in range(20))
        answers = await asyncio.gather(*sends, return_exceptions=True)
        refused = [one for one in answers if isinstance(one, StoreRefused)]
        assert len(refused) == 1
        assert "thirteen" in str(refused[0])
        assert "nothing changed" in str(refused[0])
        assert sum(isinstance(one, Buffered) for one in answers) == 19
        kept = [one.payload for one in await w.app.buffered("a")]
        assert kept == [n for n in range(20) if n != 13]


async def test_a_store_that_fails_for_a_while_does_not_lose_a_run(world: Any, app: App) -> None:
    """The commit of a step's result fails: the run is loaded anew and uses the result it has."""
    ran: list[int] = []
    failures = 3

    @step
    async def work() -> int:
        ran.append(1)
        return 7

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(work)

    async with behind_a_door(world(app)) as w:

        async def fail_finish(ops: Any) -> None:
            nonlocal failures
            if failures and any(type(op).__name__ in ("Finish", "RecordStep") for op in ops):
                failures -= 1
                raise BatchFailed("disk full")

        w.store.before = fail_finish
        run = await w.begin(flow)
        assert await run.result(timeout="10s") == 7
        assert ran == [1]


# --- callers that leave --------------------------------------------------------------------------


async def test_a_cancelled_caller_undoes_nothing(world: Any, app: App, sleeper: Any) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hold(ops: Any) -> None:
            if has_sends(ops):
                inside.set()
                await gate.wait()

        w.store.before = hold
        sending = asyncio.ensure_future(w.app.signal("a", line, 1))
        await inside.wait()
        queued = asyncio.ensure_future(w.app.signal("a", line, 2))
        await asyncio.sleep(0)
        sending.cancel()
        queued.cancel()
        gate.set()
        await asyncio.wait({sending, queued})
        assert sending.cancelled()
        assert queued.cancelled()
        await w.settle()
        assert [one.payload for one in await w.app.buffered("a")] == [1, 2]


async def test_a_cancelled_starter_leaves_a_run_that_runs(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return "ran"

    async with behind_a_door(world(app)) as w:
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hold(ops: Any) -> None:
            inside.set()
            await gate.wait()

        w.store.before = hold
        starting = asyncio.ensure_future(w.app.start(flow, id="a"))
        await inside.wait()
        starting.cancel()
        await asyncio.wait({starting})
        w.store.before = None
        gate.set()
        await w.settle()
        assert await w.app.run("a").result(timeout="10s") == "ran"


# --- full load -----------------------------------------------------------------------------------


@pytest.fixture
def full_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two, and whatever waits after one is enough to hold its answers."""
    monkeypatch.setattr(limits, "batch_ops_max", 2)
    monkeypatch.setattr(coordinator, "_held_ops_min", 1)


def payloads(ops: Sequence[Any]) -> list[int]:
    return [int(op.payload) for op in ops if isinstance(op, SendSignal)]


async def test_answers_are_held_until_the_next_batch_is_under_way(
    world: Any, app: App, sleeper: Any, full_load: None
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        answered: list[int] = []
        seen: dict[int, list[int]] = {}

        async def before(ops: Any) -> None:
            seen.update((n, list(answered)) for n in payloads(ops))

        async def send(n: int) -> None:
            assert isinstance(await w.app.signal("a", line, n), Buffered)
            answered.append(n)

        w.store.before = before
        await asyncio.gather(*(send(n) for n in range(6)))
        assert answered == [0, 1, 2, 3, 4, 5]
        assert (seen[0], seen[2]) == ([], [])


async def test_the_store_says_when_held_answers_can_be_told(
    world: Any, app: App, sleeper: Any, full_load: None
) -> None:
    """Inside the second batch, once its ops are decided: not only after its commit."""
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        told_at: list[list[int]] = []
        answered: list[int] = []

        async def after(ops: Any) -> None:
            if payloads(ops) == [2, 3]:
                await asyncio.sleep(0)
                told_at.append(list(answered))

        async def send(n: int) -> None:
            await w.app.signal("a", line, n)
            answered.append(n)

        w.store.after = after
        await asyncio.gather(*(send(n) for n in range(4)))
        assert answered == [0, 1, 2, 3]
        early = "memory" not in w.store.url  # there nothing is left to do once the ops are decided
        assert told_at == [[0, 1] if early else []]


async def test_held_answers_are_told_whatever_becomes_of_the_next_batch(
    world: Any, app: App, sleeper: Any, full_load: None
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")

        async def spoil(ops: Any) -> None:
            if 2 in payloads(ops):
                raise BatchFailed("two")
            if 4 in payloads(ops):
                raise BatchUnknown("four")

        w.store.before = spoil
        sends = (w.app.signal("a", line, n) for n in range(6))
        answers = await asyncio.gather(*sends, return_exceptions=True)
        kinds = [type(one) for one in answers]
        assert kinds == [Buffered, Buffered, StoreRefused, Buffered, StoreRefused, Buffered]


async def test_a_store_that_hangs_does_not_keep_what_is_committed(
    world: Any, app: App, sleeper: Any, full_load: None
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate = asyncio.Event()

        async def hang(ops: Any) -> None:
            if 2 in payloads(ops):
                await gate.wait()

        w.store.before = hang
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(4)]
        await asyncio.wait_for(asyncio.gather(*sends[:2]), 10)
        assert not sends[2].done()
        gate.set()
        await asyncio.gather(*sends)


async def test_the_loop_turns_between_batches_under_full_load(
    world: Any, app: App, full_load: None
) -> None:
    """Runs that only send need nothing but their answers; a store in memory takes no turn of the loop."""
    turns = 0

    @app.workflow
    async def sender(ctx: Context) -> None:
        for n in range(100):
            await ctx.set("n", n)

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with world(app) as w:
        counting = asyncio.ensure_future(count())
        runs = await asyncio.gather(*(w.app.start(sender) for _ in range(6)))
        await asyncio.gather(*(run.result(timeout="10s") for run in runs))
        counting.cancel()
        assert turns > 100  # three batches for each of the sends


@pytest.mark.parametrize("load", ["light", "full"])
async def test_a_writer_that_dies_among_the_answers_gives_the_others_theirs(
    world: Any, app: App, sleeper: Any, load: str, request: pytest.FixtureRequest
) -> None:
    """Each is told once, and what is true, also of the next batch: the end waits until all have been told."""
    if load == "full":
        request.getfixturevalue("full_load")
    told: list[tuple[str, Any]] = []

    class Killed(BaseException):
        pass

    def done(op: Any, outcome: Any, extra: Any) -> None:
        told.append((op.payload, type(outcome)))
        if op.payload == "1":
            raise Killed

    async with world(app) as w:
        await w.begin(sleeper, id="a")
        sends = [
            SendSignal(signal_id=f"s{n}", run_id="a", name="line", payload=f"{n}", policy="all")
            for n in range(6)
        ]
        futures = [w.coordinator.submit(one, done) for one in sends]
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(one) for one in answers] == [Buffered] * 6
        assert told == [(f"{n}", Buffered) for n in range(6)]
        await w.settle()
        assert len(await w.app.buffered("a")) == 6


async def test_a_pump_that_is_cancelled_tells_what_it_holds(
    world: Any, app: App, sleeper: Any, full_load: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hang(ops: Any) -> None:
            if 2 in payloads(ops):
                inside.set()
                await gate.wait()

        w.store.before = hang
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(4)]
        await inside.wait()
        w.store.before = None
        w.coordinator._pump.cancel()
        answers = await asyncio.gather(*sends, return_exceptions=True)
        kinds = [type(one) for one in answers]
        assert kinds == [Buffered, Buffered, OutcomeUnknown, OutcomeUnknown]
        caplog.clear()
        await w.settle()


# --- back-pressure -------------------------------------------------------------------------------


async def test_a_full_queue_makes_callers_wait_and_loses_nothing(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "queue_ops_max", 10)
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hold(ops: Any) -> None:
            if has_sends(ops):
                inside.set()
                await gate.wait()

        w.store.before = hold
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(100)]
        await inside.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        # Those that had begun when the queue filled up are in it; the others wait outside.
        assert len(w.coordinator._queue) <= 100
        sends[60].cancel()
        gate.set()
        done = await asyncio.gather(*sends, return_exceptions=True)
        assert sum(isinstance(one, Buffered) for one in done) >= 99
        assert len(await w.app.buffered("a")) in (99, 100)


async def test_a_start_cancelled_before_there_was_space_gives_its_place_back(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "queue_ops_max", 1)
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        gate, inside = asyncio.Event(), asyncio.Event()

        async def hold(ops: Any) -> None:
            inside.set()
            await gate.wait()

        w.store.before = hold
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(3)]
        await inside.wait()
        starting = asyncio.ensure_future(w.app.start(sleeper, id="b"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert w.worker._reserved == 1
        starting.cancel()
        await asyncio.wait({starting})
        assert w.worker._reserved == 0
        w.store.before = None
        gate.set()
        await asyncio.gather(*sends)
        assert await w.store.run("b") is None


async def test_the_queue_itself_stays_bounded(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "queue_ops_max", 10)
    monkeypatch.setattr(limits, "batch_ops_max", 5)
    longest = 0
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")

        async def look(ops: Any) -> None:
            nonlocal longest
            longest = max(longest, len(w.coordinator._queue))

        w.store.before = look
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(200)]
        await asyncio.gather(*sends)
        assert longest <= 20
        assert len(await w.app.buffered("a")) == 200


# --- not knowing ---------------------------------------------------------------------------------


async def test_a_store_that_does_not_answer_in_time(world: Any, app: App, sleeper: Any) -> None:
    async with behind_a_door(world(app, store_timeout="500ms")) as w:
        await w.begin(sleeper, id="a")
        hang = True

        async def no_answer(ops: Any) -> None:
            if hang and has_sends(ops):
                await asyncio.Event().wait()

        w.store.after = no_answer
        with pytest.raises(OutcomeUnknown, match="same key is safe"):
            await w.app.signal("a", line, 1, key="k")
        hang = False
        assert isinstance(await w.app.signal("a", line, 1, key="k"), Duplicate)
        assert isinstance(await w.app.signal("a", line, 2), Buffered)
        assert [one.payload for one in await w.app.buffered("a")] == [1, 2]


@pytest.mark.parametrize("kind", [BatchUnknown, RuntimeError])
async def test_a_lost_answer_reloads_runs_and_all_goes_on(
    world: Any, app: App, kind: Callable[[str], Exception]
) -> None:
    """The commit happened, its answer was lost: nobody acts on what memory believes."""
    ran: list[str] = []

    @step
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        for n in range(4):
            seen.append(await ctx.step(work, f"{n}"))
            seen.append(await ctx.wait(line))
        return seen

    async with behind_a_door(world(app)) as w:
        run = await w.begin(flow, id="a")
        lose = 0

        async def lost(ops: Any) -> None:
            nonlocal lose
            lose += 1
            if lose % 3 == 0 and not has_sends(ops):
                raise kind("connection lost")

        w.store.after = lost
        for n in range(4):
            await w.app.signal("a", line, n)
            await w.settle()
        w.store.after = None
        assert await run.result(timeout="10s") == ["0", 0, "1", 1, "2", 2, "3", 3]
        assert sorted(set(ran)) == ["0", "1", "2", "3"]


async def test_a_lost_batch_that_never_happened_is_settled_by_its_id_and_tried_again(
    world: Any, app: App, sleeper: Any
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        once = True

        async def cut(ops: Any) -> None:
            nonlocal once
            if once and has_sends(ops):
                once = False
                raise BatchUnknown("connection lost before the commit")

        w.store.before = cut
        assert isinstance(await w.app.signal("a", line, 1), Buffered)
        assert not once
        assert len(await w.app.buffered("a")) == 1


async def test_a_store_that_does_not_say_what_became_of_a_batch_keeps_nobody_waiting(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")

        async def cut(ops: Any) -> None:
            if has_sends(ops):
                raise BatchUnknown("connection lost before the commit")

        async def silent(batch_id: str) -> bool:
            await asyncio.Event().wait()
            return True

        w.store.before = cut
        with monkeypatch.context() as patched:
            patched.setattr(w.store.inner, "settle", silent)
            patched.setattr(w.coordinator, "_store_timeout_s", 0.05)
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(w.app.signal("a", line, 1), 5)
        w.store.before = None
        assert isinstance(await w.app.signal("a", line, 2), Buffered)


async def test_an_op_whose_batch_is_lost_each_time_is_refused_and_its_neighbours_are_not(
    world: Any, app: App, sleeper: Any
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")

        async def cut(ops: Any) -> None:
            if any(getattr(one, "payload", None) == "2" for one in ops):
                raise BatchUnknown("the server dies of it")

        w.store.before = cut
        sends = [w.app.signal("a", line, n) for n in (1, 2, 3)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(one) for one in answers] == [Buffered, StoreRefused, Buffered]
        assert len(await w.app.buffered("a")) == 2


async def test_a_delivery_whose_answer_was_lost_still_wakes_the_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with behind_a_door(world(app)) as w:
        run = await w.begin(flow, id="a")
        once = True

        async def lost(ops: Any) -> None:
            nonlocal once
            if once and has_sends(ops):
                once = False
                raise BatchUnknown("connection lost")

        w.store.after = lost
        with pytest.raises(OutcomeUnknown):
            await w.app.signal("a", go, 5, key="k")
        again = await w.app.signal("a", go, 5, key="k")
        assert isinstance(again, Duplicate)
        assert isinstance(again.of, Delivered)
        assert await run.result(timeout="10s") == 5


async def test_a_start_whose_answer_was_lost_runs_all_the_same(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return "ran"

    async with behind_a_door(world(app)) as w:
        once = True

        async def lost(ops: Any) -> None:
            nonlocal once
            if once and any(type(op).__name__ == "StartRun" for op in ops):
                once = False
                raise BatchUnknown("connection lost")

        w.store.after = lost
        with pytest.raises(OutcomeUnknown):
            await w.app.start(flow, id="a")
        again = await w.app.start(flow, id="a")
        assert await again.result(timeout="10s") == "ran"


async def test_a_claim_whose_answer_was_lost_runs_all_the_same(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return n

    async with world(app, worker=False) as client:
        for n in range(5):
            await client.app.start(flow, n, id=f"{n}", start_at="1m")
    async with behind_a_door(world(app)) as w:
        once = True

        async def lost(ops: Any) -> None:
            nonlocal once
            if once and any(type(op).__name__ == "ClaimRuns" for op in ops):
                once = False
                raise BatchUnknown("connection lost")

        w.store.after = lost
        await w.advance("1m")
        results = [await w.app.run(f"{n}").result(timeout="10s") for n in range(5)]
        assert results == list(range(5))


# --- the end -------------------------------------------------------------------------------------


async def test_what_is_queued_is_written_before_the_app_closes(
    world: Any, app: App, sleeper: Any
) -> None:
    async with behind_a_door(world(app)) as w:
        await w.begin(sleeper, id="a")
        sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(20)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(one, Buffered) for one in answers)
    async with world(app) as w:
        assert len(await w.app.buffered("a")) == 20


async def test_posting_after_the_end_is_refused(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        coordinator = w.coordinator
    with pytest.raises(NotRunning):
        await coordinator.submit(SendSignal(signal_id="x", run_id="a", name="go", payload="1"))
