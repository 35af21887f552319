"""Streams: what a run and its steps publish, read along by whoever wants to, in order, from any place on."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from worlds import Deadly, Stage, Worlds

from perdure import (
    App,
    BadValue,
    Context,
    InvalidPayload,
    NotRunning,
    Overloaded,
    PerdureError,
    Retry,
    RunFailed,
    RunHandle,
    RunNotFound,
    Signal,
    StepFailed,
    StepInfo,
    StoreRefused,
    StreamInfo,
    StreamItem,
    Undecodable,
    following,
    step,
    step_info,
)
from perdure.model import limits, ops
from perdure.runtime import publishing
from perdure.testing import Crowd
from perdure.testing.conformance import check_invariants

go = Signal("go", int, buffer="all")


@dataclass
class Progress:
    done: int
    of: int


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody hears of is found soon."""
    monkeypatch.setattr(following, "_look_every_s", 0.02)
    monkeypatch.setattr(following, "_look_soon_s", 0.02)


async def all_of(run: RunHandle[Any], stream: str = "a", **options: Any) -> list[Any]:
    async with asyncio.timeout(10):
        return [one.value async for one in run.stream(stream, **options)]


async def now_in(run: RunHandle[Any], stream: str = "a", **options: Any) -> list[Any]:
    return await all_of(run, stream, follow=False, **options)


def reading(run: RunHandle[Any], stream: str = "a", **options: Any) -> "asyncio.Task[list[Any]]":
    return asyncio.ensure_future(all_of(run, stream, **options))


class Gate:
    """Lets a step publish one by one, and ends it."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.infos: list[StepInfo] = []

    async def body(self) -> str:
        self.infos.append(step_info())
        while (word := await self.said.get()) is not None:
            if isinstance(word, Exception):
                raise word
            step_info().publish("a", word)
        return "over"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def talker(app: App, gate: Gate) -> Any:
    """A run whose step says what the test tells it to."""

    @app.step(retry=Retry(attempts=3, backoff="1s", jitter=0))
    async def talk() -> str:
        return await gate.body()

    @app.workflow
    async def talker(ctx: Context) -> str:
        return await ctx.step(talk)

    return talker


@pytest.fixture
def teller(app: App) -> Any:
    """A run that publishes what it is signalled, until it is 0."""

    @app.workflow
    async def teller(ctx: Context) -> str:
        while number := await ctx.wait(go):
            await ctx.publish("a", number)
        return "over"

    return teller


# --- from workflow code ------------------------------------------------------------------------------


async def test_code_publishes_and_readers_get_it_in_order(world: Worlds, app: App) -> None:
    @app.workflow
    async def count(ctx: Context) -> list[int]:
        return [await ctx.publish("a", {"n": n}) for n in range(3)]

    async with world(app) as w:
        run = await w.begin(count)
        assert await run.result() == [1, 2, 3]
        items = [one async for one in run.stream("a")]
        assert [one.value for one in items] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert [(one.position, one.path, one.attempt) for one in items] == [
            (1, "publish.a", 1),
            (2, "publish.a#2", 1),
            (3, "publish.a#3", 1),
        ]
        assert items[0].published_at <= items[2].published_at
        assert isinstance(items[0], StreamItem)


async def test_a_replay_publishes_nothing_again(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        for number in (1, 2, 3):
            await w.app.signal(run.id, go, number)
            await w.evict()
        await w.app.signal(run.id, go, 0)
        assert await run.result() == "over"
        assert await all_of(run) == [1, 2, 3]


async def test_a_crash_anywhere_loses_nothing_and_doubles_nothing(world: Worlds, app: App) -> None:
    deadly = Deadly(2)
    work = step(deadly.work)

    @app.workflow
    async def count(ctx: Context) -> str:
        for n in range(4):
            await ctx.publish("a", n)
            await ctx.step(work, n)
        return "over"

    first = world(app)
    await first.__aenter__()
    await first.app.start(count, id="r")
    await deadly.kill(first)
    async with world(app) as w:
        run = w.app.run("r")
        assert await all_of(run) == [0, 1, 2, 3]
        assert await run.result() == "over"
        assert await check_invariants(w.store) == []


async def test_branches_publish_beside_each_other(world: Worlds, app: App) -> None:
    @app.workflow
    async def fan(ctx: Context) -> None:
        async def branch(n: int) -> None:
            for nth in range(3):
                await ctx.publish("a", [n, nth])

        await ctx.gather(*(branch(n) for n in range(4)))

    async with world(app) as w:
        run = await w.begin(fan)
        items = [one async for one in run.stream("a")]
        assert [one.position for one in items] == list(range(1, 13))
        for n in range(4):
            assert [one.value[1] for one in items if one.value[0] == n] == [0, 1, 2]
        assert await check_invariants(w.store) == []


async def test_they_survive_continue_as(world: Worlds, app: App) -> None:
    @app.workflow
    async def count(ctx: Context, n: int) -> str:
        await ctx.publish("a", n)
        if n < 3:
            await ctx.continue_as(count, n + 1)
        return "over"

    async with world(app) as w:
        run = await w.begin(count, 0)
        assert await all_of(run) == [0, 1, 2, 3]


async def test_they_are_pruned_with_the_run(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        await w.app.signal(run.id, go, 1)
        await w.app.signal(run.id, go, 0)
        await run.result()
        await w.advance("1h")
        assert await w.app.prune("1m") == 1
        with pytest.raises(RunNotFound):
            await all_of(run)
        with pytest.raises(RunNotFound):
            await run.streams()
        assert (await w.store.counts())["stream_items"] == 0


async def test_values_come_back_as_the_type_that_is_asked_for(world: Worlds, app: App) -> None:
    @app.workflow
    async def typed(ctx: Context) -> None:
        await ctx.publish("a", Progress(1, 2))
        await ctx.publish("a", {"done": 2, "of": 2})

    async with world(app) as w:
        run = await w.begin(typed)
        assert await all_of(run, type=Progress) == [Progress(1, 2), Progress(2, 2)]
        assert await all_of(run) == [{"done": 1, "of": 2}, {"done": 2, "of": 2}]
        with pytest.raises(Undecodable, match="item 1 of stream 'a'"):
            await all_of(run, type=int)


async def test_a_stream_too_many_is_an_error_that_code_can_catch(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "streams_per_run_max", 2)

    @app.workflow
    async def wide(ctx: Context) -> str:
        for name in "abab":
            await ctx.publish(name, 1)
        try:
            await ctx.publish("c", 1)
        except Overloaded as error:
            await ctx.wait(go)  # and on replay too
            return str(error)
        return "no"

    async with world(app) as w:
        run = await w.begin(wide)
        await w.evict()
        await w.app.signal(run.id, go, 1)
        assert "streams_per_run_max" in await run.result()
        assert [one.name for one in await run.streams()] == ["a", "b"]


# --- from steps --------------------------------------------------------------------------------------


async def test_a_reader_gets_what_a_step_publishes_while_it_runs(
    world: Worlds, app: App, talker: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told at once in its own process: it need not look for itself."""
    monkeypatch.setattr(following, "_look_every_s", 60.0)
    monkeypatch.setattr(following, "_look_soon_s", 60.0)
    async with world(app) as w:
        run = await w.app.start(talker)
        stream = run.stream("a")
        for word in ("one", "two", "three"):
            gate.said.put_nowait(word)
            item = await asyncio.wait_for(anext(stream), 10)
            assert (item.value, item.path, item.attempt) == (word, "talk", 1)
        assert await run.status() == "running"
        gate.said.put_nowait(None)
        assert [one async for one in stream] == []
        assert await run.result() == "over"


async def test_all_of_it_is_stored_before_the_result(world: Worlds, app: App) -> None:
    """Also of a body that never suspends, and of more than one op takes."""
    count = limits.stream_items_per_op_max * 2 + 10

    @step
    async def burst() -> int:
        for n in range(count):
            step_info().publish("a", n)
        return count

    @app.workflow
    async def once(ctx: Context) -> int:
        return await ctx.step(burst)

    async with world(app) as w:
        run = await w.app.start(once)
        assert await run.result() == count
        assert await now_in(run) == list(range(count))


async def test_a_plain_function_publishes_from_its_thread(world: Worlds, app: App) -> None:
    @step
    def spell(word: str) -> str:
        for letter in word:
            step_info().publish("a", letter)
        return word

    @app.workflow
    async def once(ctx: Context) -> str:
        return await ctx.step(spell, "perdure")

    async with world(app) as w:
        run = await w.app.start(once)
        assert await run.result() == "perdure"
        assert await now_in(run) == list("perdure")


async def test_threads_of_a_body_publish_side_by_side(world: Worlds, app: App) -> None:
    meet = threading.Barrier(4)

    def speak(info: StepInfo, name: int) -> None:
        meet.wait(10)
        for n in range(50):
            info.publish("a", [name, n])

    @step
    async def crowd() -> None:
        info = step_info()
        await asyncio.gather(*(asyncio.to_thread(speak, info, name) for name in range(4)))

    @app.workflow
    async def once(ctx: Context) -> None:
        await ctx.step(crowd)

    async with world(app) as w:
        run = await w.app.start(once)
        await run.result()
        found = await now_in(run)
        for name in range(4):
            assert [n for one, n in found if one == name] == list(range(50))


async def test_two_steps_and_a_branch_publish_at_once(world: Worlds, app: App) -> None:
    @step
    async def speak(name: str) -> None:
        for n in range(20):
            step_info().publish("a", [name, n])
            await asyncio.sleep(0)

    @app.workflow
    async def choir(ctx: Context) -> None:
        async def branch() -> None:
            for n in range(20):
                await ctx.publish("a", ["branch", n])

        await ctx.gather(ctx.step(speak, "x"), ctx.step(speak, "y"), branch())

    async with world(app) as w:
        run = await w.app.start(choir)
        items = [one async for one in run.stream("a")]
        assert [one.position for one in items] == list(range(1, 61))
        for name in ("x", "y", "branch"):
            assert [one.value[1] for one in items if one.value[0] == name] == list(range(20))
        await run.result()
        assert await check_invariants(w.store) == []


async def test_tokens_gather_while_the_store_writes(world: Worlds, app: App) -> None:
    """One op under way at a time: what comes meanwhile goes with the next."""
    sizes: list[int] = []

    @step
    async def speak() -> None:
        for n in range(200):
            step_info().publish("a", n)
            if n % 10 == 9:
                await asyncio.sleep(0)

    @app.workflow
    async def once(ctx: Context) -> None:
        await ctx.step(speak)

    async with world(app) as w:
        apply = w.store.apply

        async def noting(batch_id: str, batch: Any, *rest: Any) -> Any:
            published = [one for one in batch if isinstance(one, ops.Publish)]
            assert len(published) <= 1
            sizes.extend(len(one.items) for one in published)
            await asyncio.sleep(0.005)
            return await apply(batch_id, batch, *rest)

        w.store.apply = noting  # type: ignore[method-assign]
        run = await w.app.start(once)
        await run.result()
        assert await now_in(run) == list(range(200))
        assert sum(sizes) == 200
        assert len(sizes) < 20


async def test_an_attempt_that_is_tried_again_publishes_again_and_says_so(
    world: Worlds, app: App, talker: Any, gate: Gate
) -> None:
    async with world(app) as w:
        run = await w.app.start(talker)
        for word in ("one", "two", ValueError("no"), "one", "two", None):
            gate.said.put_nowait(word)
        await w.until(lambda: _is(run, "sleeping"))
        assert await now_in(run) == ["one", "two"]
        await w.advance("2s")
        assert await run.result() == "over"
        items = [(one.attempt, one.value) async for one in run.stream("a")]
        assert items == [(1, "one"), (1, "two"), (2, "one"), (2, "two")]


async def _is(run: RunHandle[Any], status: str) -> bool:
    return await run.status() == status


async def test_a_process_that_dies_loses_nothing_that_a_reader_was_given(
    world: Worlds, app: App, talker: Any, gate: Gate
) -> None:
    first = world(app)
    await first.__aenter__()
    run = await first.app.start(talker, id="r")
    stream = run.stream("a")
    seen = []
    for word in ("one", "two"):
        gate.said.put_nowait(word)
        seen.append((await asyncio.wait_for(anext(stream), 10)).position)
    await stream.aclose()
    await first.crash()
    gate.said = asyncio.Queue()
    for word in ("three", None):
        gate.said.put_nowait(word)
    async with world(app) as w:
        again = w.app.run("r")
        items = [(one.position, one.value) async for one in again.stream("a")]
        assert items == [(1, "one"), (2, "two"), (3, "three")]
        assert await all_of(again, after=seen[-1]) == ["three"]


async def test_a_worker_that_lost_its_run_publishes_no_more(
    world: Worlds, app: App, talker: Any, gate: Gate
) -> None:
    async with world(app) as w:
        run = await w.app.start(talker)
        gate.said.put_nowait("one")
        await w.until(lambda: _has(run, 1))
        (execution,) = w.worker._executions.values()
        row = await w.store.run(run.id)
        assert row is not None
        # Somebody else has taken it, and nobody told us.
        await w.store.apply("stolen", [_release(row)])
        gate.said.put_nowait("two")
        await w.until(lambda: _dead(execution))
        assert await now_in(run) == ["one"]
        gate.said.put_nowait("three")
        gate.said.put_nowait(None)
        await w.until(lambda: _is(run, "completed"))
        assert await now_in(run) == ["one", "three"]


def _release(run: Any) -> ops.Release:
    return ops.Release(run_id=run.run_id, fence=run.fence, revision=run.revision)


async def _has(run: RunHandle[Any], count: int) -> bool:
    return len(await now_in(run)) == count


async def _dead(execution: Any) -> bool:
    return bool(execution.dead)


async def test_an_attempt_that_is_over_publishes_nothing(
    world: Worlds, app: App, talker: Any, gate: Gate
) -> None:
    async with world(app) as w:
        run = await w.app.start(talker)
        gate.said.put_nowait("one")
        gate.said.put_nowait(None)
        await run.result()
        with pytest.raises(PerdureError, match="attempt 1 of the step at 'talk' is over"):
            gate.infos[0].publish("a", "late")
        assert await now_in(run) == ["one"]


async def test_a_thread_that_outlives_its_attempt_publishes_nothing(
    world: Worlds, app: App
) -> None:
    held, told = threading.Event(), threading.Event()
    errors: list[str] = []

    @step(timeout="0.05s")
    def slow() -> None:
        step_info().publish("a", "in time")
        held.wait(10)
        try:
            step_info().publish("a", "too late")
        except PerdureError as error:
            errors.append(str(error))
        told.set()

    @app.workflow
    async def once(ctx: Context) -> str:
        try:
            await ctx.step(slow)
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        run = await w.app.start(once)
        assert await run.result() == "TimeoutError"
        held.set()
        await asyncio.to_thread(told.wait, 10)
        assert await now_in(run) == ["in time"]
        assert "is over" in errors[0]


async def test_what_a_cancelled_step_says_in_leaving_is_not_taken(world: Worlds, app: App) -> None:
    errors: list[str] = []

    @step
    async def patient() -> None:
        step_info().publish("a", "before")
        try:
            await asyncio.Event().wait()
        finally:
            try:
                step_info().publish("a", "after")
            except PerdureError as error:
                errors.append(str(error))

    @app.workflow
    async def once(ctx: Context) -> None:
        await ctx.step(patient)

    async with world(app) as w:
        run = await w.app.start(once)
        await w.until(lambda: _has(run, 1))
        await run.cancel()
        await w.until(lambda: _is(run, "cancelled"))
        assert await all_of(run) == ["before"]
        assert "cancelled" in errors[0]


async def test_a_body_that_never_began_to_publish_and_is_over(world: Worlds, app: App) -> None:
    infos: list[StepInfo] = []

    @step
    async def quiet() -> None:
        infos.append(step_info())

    @app.workflow
    async def once(ctx: Context) -> None:
        await ctx.step(quiet)

    async with world(app) as w:
        await (await w.app.start(once)).result()
        with pytest.raises(PerdureError, match="is over"):
            infos[0].publish("a", 1)


async def test_a_step_that_is_faster_than_the_store_is_told_so(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "stream_buffer_items_max", 3)
    monkeypatch.setattr(limits, "stream_buffer_bytes_max", 100)

    @step
    async def burst() -> list[str]:
        told: list[str] = []
        for n in range(5):
            try:
                step_info().publish("a", n)
            except Overloaded as error:
                told.append(str(error))
        await asyncio.sleep(0.2)
        try:
            step_info().publish("a", "x" * 200)
        except Overloaded as error:
            told.append(str(error))
        step_info().publish("a", "last")
        return told

    @app.workflow
    async def once(ctx: Context) -> list[str]:
        return await ctx.step(burst)

    async with world(app) as w:
        run = await w.app.start(once)
        first, second, third = await run.result()
        assert "stream_buffer_items_max" in first
        assert first == second
        assert "stream_buffer_bytes_max" in third
        assert await now_in(run) == [0, 1, 2, "last"]


async def test_a_stream_too_many_fails_the_step(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "streams_per_run_max", 2)

    @step
    async def wide() -> str:
        for name in "abc":
            step_info().publish(name, 1)
        return "done"

    @step
    async def patient() -> str:
        """It is told as soon as the store has said so; what comes after what was refused is lost all the same."""
        for name in "abc":
            step_info().publish(name, 1)
        try:
            while True:
                await asyncio.sleep(0)
                step_info().publish("a", 2)
        except Overloaded:
            return "told"

    @app.workflow
    async def once(ctx: Context) -> list[str]:
        told = []
        for one in (wide, patient):
            try:
                told.append(await ctx.step(one))
            except StepFailed as error:
                told.append(f"{error.type}: {error.message}")
        return told

    async with world(app) as w:
        run = await w.app.start(once)
        for told in await run.result():
            assert told.startswith("Overloaded: ")
            assert "streams_per_run_max" in told
        assert [(one.name, one.last) for one in await run.streams()] == [("a", 2), ("b", 2)]


async def test_what_the_store_cannot_take_now_is_sent_again(
    world: Worlds, app: App, talker: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_pause_s", 0.001)
    async with world(app) as w:
        run = await w.app.start(talker)
        await w.until(lambda: _waits_for_words(gate))
        post, refused = w.worker.post, []

        def failing(op: Any, done: Any, extra: Any = None, *rest: Any) -> None:
            if isinstance(op, ops.Publish) and len(refused) < 3:
                refused.append(op)
                done(op, StoreRefused("the disk is full"), extra)
            else:
                post(op, done, extra, *rest)

        w.worker.post = failing  # type: ignore[method-assign, assignment]
        for word in ("one", "two", None):
            gate.said.put_nowait(word)
        assert await run.result(timeout="10s") == "over"
        assert await now_in(run) == ["one", "two"]
        assert len(refused) == 3


async def _waits_for_words(gate: Gate) -> bool:
    return bool(gate.infos)


async def test_a_transaction_cannot_publish(world: Worlds, app: App) -> None:
    def body(connection: Any) -> str:
        try:
            step_info().publish("a", 1)
        except PerdureError as error:
            return str(error)
        return "no"

    async def async_body(connection: Any) -> str:
        return body(connection)

    @app.workflow
    async def once(ctx: Context) -> str:
        made = async_body if world.kind == "postgres" else body
        return await ctx.transaction(step(made))  # type: ignore[arg-type]

    async with world(app) as w:
        run = await w.app.start(once)
        if world.kind in ("memory", "redis"):
            with pytest.raises(RunFailed, match=r"ctx\.transaction needs"):
                await run.result()
        else:
            assert "is a transaction" in await run.result()
            assert await run.streams() == []


# --- reading -----------------------------------------------------------------------------------------


async def test_a_reader_comes_back_where_it_left(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        for number in (1, 2, 3):
            await w.app.signal(run.id, go, number)
        await w.settle()
        async for one in run.stream("a"):
            if one.position == 2:
                break
        rest = reading(run, after=one.position)
        await w.app.signal(run.id, go, 4)
        await w.app.signal(run.id, go, 0)
        assert await rest == [3, 4]


async def test_without_following_it_ends_at_what_is_there(
    world: Worlds, app: App, teller: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        assert await now_in(run) == []
        for number in (1, 2):
            await w.app.signal(run.id, go, number)
        await w.settle()
        assert await now_in(run) == [1, 2]
        assert await now_in(run, after=1) == [2]
        assert await now_in(run, after=7) == []
        assert await now_in(run, "other") == []


async def test_it_ends_there_though_the_run_goes_on_publishing(
    world: Worlds, app: App, teller: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        await w.app.signal(run.id, go, 1)
        await w.settle()
        stream = run.stream("a", follow=False)
        seen = [(await anext(stream)).value]
        await w.app.signal(run.id, go, 2)
        await w.settle()
        seen += [one.value async for one in stream]
        assert seen == [1]


async def test_readers_of_a_run_that_fails_end_and_read_on_when_it_is_retried(
    world: Worlds, app: App
) -> None:
    fails = [True]

    @step
    async def shaky() -> None:
        if fails[0]:
            raise ValueError("no")

    @app.workflow
    async def once(ctx: Context) -> None:
        await ctx.publish("a", 1)
        await ctx.step(shaky)
        await ctx.publish("a", 2)

    async with world(app) as w:
        run = await w.app.start(once)
        assert await all_of(run) == [1]
        fails[0] = False
        await run.retry()
        assert await all_of(run, after=1) == [2]
        assert await all_of(run) == [1, 2]


async def test_many_read_the_same(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        readers = [reading(run) for _ in range(5)]
        for number in (1, 2, 0):
            await w.app.signal(run.id, go, number)
        assert await asyncio.gather(*readers) == [[1, 2]] * 5
        assert w.coordinator.hub._listeners == {}


async def test_a_reader_that_goes_is_forgotten(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        reader = reading(run)
        await w.until(lambda: _listens(w, 1))
        reader.cancel()
        await asyncio.wait((reader,))
        assert w.coordinator.hub._listeners == {}


async def _listens(w: Stage, count: int) -> bool:
    return len(w.coordinator.hub._listeners) == 2 * count  # for what it publishes, and for its end


async def test_a_reader_follows_from_any_position_that_there_is(
    world: Worlds, app: App, teller: Any
) -> None:
    """Also from the last one: there is nothing to come, but the end of the run."""
    async with world(app) as w:
        run = await w.begin(teller)
        reader = reading(run, after=2**63 - 1)
        await w.until(lambda: _listens(w, 1))
        for number in (1, 2):
            await w.app.signal(run.id, go, number)
            await w.settle()
        assert not reader.done()
        await w.app.signal(run.id, go, 0)
        assert await reader == []


async def test_a_reader_that_is_late_goes_on_with_the_oldest_kept(
    world: Worlds, app: App, teller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "stream_items_max", 3)
    async with world(app) as w:
        run = await w.begin(teller)
        for number in range(1, 11):
            await w.app.signal(run.id, go, number)
        await w.settle()
        items = [one.position async for one in run.stream("a", after=2, follow=False)]
        assert items == [8, 9, 10]
        assert await run.streams() == [StreamInfo(name="a", first=8, last=10)]


async def test_a_reader_is_told_when_the_app_closes(world: Worlds, app: App, teller: Any) -> None:
    async with world(app) as w:
        run = await w.begin(teller)
        reader = reading(run)
        await w.until(lambda: _listens(w, 1))
    with pytest.raises(NotRunning):
        await reader


async def test_bad_input(world: Worlds, app: App) -> None:
    class Odd:
        pass

    @step
    async def bad() -> list[str]:
        told = []
        for stream, item in (("a/b", 1), ("!replies", 1), ("", 1), (7, 1), ("a", Odd())):
            try:
                step_info().publish(stream, item)  # type: ignore[arg-type]
            except (BadValue, InvalidPayload) as error:
                told.append(type(error).__name__)
        return told

    @app.workflow
    async def once(ctx: Context) -> list[str]:
        told = []
        large = "x" * limits.payload_bytes_max
        for stream, item in (("a#b", 1), ("!replies", 1), ("a", Odd()), ("a", large)):
            try:
                await ctx.publish(stream, item)
            except (BadValue, InvalidPayload) as error:
                told.append(type(error).__name__)
        return told + await ctx.step(bad)

    async with world(app) as w:
        run = await w.app.start(once)
        refused = ["BadValue", "BadValue", "InvalidPayload", "InvalidPayload"]
        assert await run.result() == [*refused, *["BadValue"] * 4, "InvalidPayload"]
        assert await run.streams() == []
        for bad_name in ("a/b", "!replies", "", 7):
            with pytest.raises(BadValue, match="stream name"):
                run.stream(bad_name)  # type: ignore[call-overload]
        for bad_after in (-1, "1", 1.5, True):
            with pytest.raises(BadValue):
                run.stream("a", after=bad_after)  # type: ignore[call-overload]
        with pytest.raises(BadValue, match="follow"):
            run.stream("a", follow="no")  # type: ignore[call-overload]
        with pytest.raises(RunNotFound):
            await all_of(w.app.run("nobody"))
        with pytest.raises(RunNotFound):
            await now_in(w.app.run("nobody"))


async def test_step_info_outside_a_step_publishes_nothing() -> None:
    with pytest.raises(PerdureError, match="outside a step"):
        step_info().publish("a", 1)


# --- several processes -------------------------------------------------------------------------------


@pytest.fixture
def crowd(app: App, teller: Any, talker: Any, place: dict[str, Any]) -> Crowd:
    return Crowd(app, **place, workers=2, seed=1)


async def test_a_reader_in_another_process_finds_what_nobody_tells_it(
    crowd: Crowd, teller: Any
) -> None:
    async with crowd:
        ours, theirs = crowd.apps
        run = await ours.start(teller, id="r")
        reader = reading(theirs.run(run.id))
        for number in (1, 2, 3, 0):
            await ours.signal(run.id, go, number)
        assert await reader == [1, 2, 3]


async def test_what_a_process_published_that_lost_the_run_is_followed_by_the_next(
    crowd: Crowd, talker: Any, gate: Gate
) -> None:
    async with crowd:
        ours, theirs = crowd.apps
        run = await ours.start(talker, id="r")
        gate.said.put_nowait("one")
        stream = theirs.run("r").stream("a")
        assert (await asyncio.wait_for(anext(stream), 10)).value == "one"
        # The body of the first owner hangs; the second one begins the step anew and takes the words from now on.
        old, gate.said = gate.said, asyncio.Queue()
        cut = asyncio.ensure_future(_cut_off(crowd, ours))
        await _until(lambda: len(gate.infos) == 2)
        gate.said.put_nowait("two")
        assert (await asyncio.wait_for(anext(stream), 10)).value == "two"
        gate.said.put_nowait(None)
        assert [one async for one in stream] == []
        await cut
        old.put_nowait("stale")
        old.put_nowait(None)
        await crowd.mend(ours)
        assert await now_in(theirs.run(run.id)) == ["one", "two"]
        assert await check_invariants(theirs._engine().store) == []


async def _cut_off(crowd: Crowd, app: App) -> None:
    await crowd.cut_off(app)


async def _until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (another process begins)
            await asyncio.sleep(0.001)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def pair(
    request: pytest.FixtureRequest, tmp_path: Any, app: App, teller: Any
) -> AsyncIterator[tuple[App, App]]:
    """Two apps on one store whose processes tell each other what they do, in real time."""
    options: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/pair.db"}
    if request.param == "postgres":
        options = {"url": request.getfixturevalue("postgres_url")}
        options["namespace"] = request.getfixturevalue("lend_namespace")()
    elif request.param == "redis":
        options = {"url": request.getfixturevalue("redis_url")}
        options["namespace"] = request.getfixturevalue("lend_redis_namespace")()
    async with app.copy(**options) as ours, app.copy(**options, worker=False) as theirs:
        yield ours, theirs


async def test_hints_reach_a_reader_in_another_process_long_before_its_own_look(
    pair: tuple[App, App], teller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_look_every_s", 60.0)
    ours, theirs = pair
    run = await ours.start(teller, id="r")
    reader = theirs.run("r").stream("a")
    for number in (1, 2, 3):
        await ours.signal(run.id, go, number)
        assert (await asyncio.wait_for(anext(reader), 10)).value == number
    await ours.signal(run.id, go, 0)
    async with asyncio.timeout(10):
        assert [one async for one in reader] == []
