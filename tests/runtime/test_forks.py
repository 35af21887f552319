"""Forks: another run that goes on from a place of a run's history, whatever has become of that one."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace
from test_replay import app_of, charge, reserve, ship

from perdure import (
    App,
    BadDocument,
    BadValue,
    Conflict,
    Context,
    InvalidPayload,
    Pool,
    Queue,
    Retry,
    RunNotFound,
    Signal,
    SignalTaken,
    Topic,
    UnknownPool,
    UnknownWorkflow,
    step,
    step_info,
)
from perdure.model import limits

go = Signal("go", int)
line = Signal("line", int, buffer="all")
once = Signal("once", int, buffer="first")
paid = Topic("order.paid", int)
jobs = Queue("jobs", int)


class Count:
    """How often each step was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def step(self, name: str) -> Any:
        @step(name=name)
        async def counted() -> str:
            self.calls.append(name)
            return name

        return counted


def three_steps(app: App, count: Count) -> Any:
    @app.workflow
    async def flow(ctx: Context, given: int) -> list[Any]:
        got: list[Any] = [given]
        for name in ("a", "b", "c"):
            got.append(await ctx.step(count.step(name)))
            await ctx.set("last", name)
        return got

    return flow


@pytest.mark.parametrize(
    ("from_path", "called"),
    [(None, "abc"), ("a", "abc"), ("b", "bc"), ("set.last#2", "c"), ("c", "c")],
)
async def test_what_was_before_is_taken_over_and_the_rest_is_done_anew(
    world: Any, app: App, from_path: str | None, called: str
) -> None:
    count = Count()
    flow = three_steps(app, count)
    async with world(app) as w:
        run = await w.begin(flow, 5)
        count.calls.clear()
        fork = await run.fork(from_path)
        assert fork.created and fork.id != run.id
        await w.settle()
        assert count.calls == list(called)
        assert await fork.result() == [5, "a", "b", "c"]
        assert await fork.get("last") == "c"
        assert [one.path for one in await fork.history()] == [
            one.path for one in await run.history()
        ]


async def test_published_state_is_as_of_the_place(world: Any, app: App) -> None:
    begin = Signal("begin", int)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(begin)
        await ctx.set("one", 1)
        await ctx.set("two", 1)
        await ctx.wait(go)
        await ctx.set("one", 2)
        await ctx.set("three", 3)
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow)
        for one in (begin, go):
            await w.app.signal(run.id, one, 1)
            await w.settle()
        fork = await run.fork("go")
        assert [await fork.get(key) for key in ("one", "two", "three")] == [1, 1, None]
        empty = await run.fork()  # which waits before it publishes anything
        assert await empty.get("one") is None


async def test_a_run_of_any_status_can_be_forked(world: Any) -> None:
    @step
    async def bad() -> str:
        raise ValueError("no luck")

    async def flow(ctx: Context) -> Any:
        one = await ctx.step(reserve)
        way = await ctx.wait(go)
        if way == 1:
            await ctx.step(bad)
        return [one, way]

    async with world(app_of(flow)) as w:
        made = {name: await w.begin("flow", id=name) for name in ("waiting", "paused", "failed")}
        made |= {name: await w.begin("flow", id=name) for name in ("completed", "terminated")}
        await made["paused"].pause()
        await made["terminated"].terminate()
        await w.app.signal("failed", go, 1)
        await w.app.signal("completed", go, 2)
        await w.settle()
        for name, run in made.items():
            assert await run.status() == name
            fork = await run.fork("go", id=f"fork of {name}")
            await w.settle()
            assert await fork.status() == "waiting"
            await w.app.signal(fork.id, go, 2)
            await w.settle()
            assert await fork.result() == ["reserved", 2]
            assert await run.status() == name


async def test_a_run_that_met_other_code_is_mended_by_a_fork(world: Any) -> None:
    async def old(ctx: Context) -> Any:
        return [await ctx.step(reserve), await ctx.step(charge), await ctx.wait(go)]

    async def new(ctx: Context) -> Any:
        return [await ctx.step(reserve), await ctx.step(ship), await ctx.wait(go)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(new)) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused" and "fork it" in (info.reason or "")
        fork = await w.app.run("a").fork("charge", id="b")
        await w.app.signal("b", go, 2)
        await w.settle()
        assert await fork.result() == ["reserved", "shipped", 2]


async def test_a_fork_can_go_on_with_another_version(world: Any) -> None:
    app = App("memory://")

    @app.workflow(name="flow", version=1)
    async def first(ctx: Context) -> list[Any]:
        return [await ctx.step(reserve), await ctx.step(charge)]

    @app.workflow(name="flow", version=2)
    async def second(ctx: Context) -> list[Any]:
        return [await ctx.step(reserve), await ctx.step(ship)]

    async with world(app) as w:
        run = await w.begin(first)
        fork = await run.fork("charge", version=2)
        await w.settle()
        assert await fork.result() == ["reserved", "shipped"]
        assert (await fork.info()).version == 2
        for wrong in (0, "2", True):
            with pytest.raises(BadValue, match="version"):
                await run.fork(version=wrong)
        with pytest.raises(UnknownWorkflow, match="version 3"):
            await run.fork(version=3)
    async with world(App("memory://"), worker=False) as w:
        # A client without the code: the catalogue knows which versions there are.
        assert await w.app.run(run.id).fork(version=2)
        with pytest.raises(InvalidPayload, match="at most 0"):
            await w.app.run(run.id).fork(input=3)
        with pytest.raises(UnknownWorkflow, match="version 3"):
            await w.app.run(run.id).fork(version=3, input=())


async def test_another_input(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, one: int, two: str) -> list[Any]:
        await ctx.step(reserve)
        return [one, two]

    @app.workflow
    async def single(ctx: Context, values: list[int]) -> list[int]:
        return values

    async with world(app) as w:
        run = await w.begin(flow, 1, "x")
        fork = await run.fork("reserve", input=(2, "y"))
        alone = await (await w.begin(single, [1])).fork(input=[2, 3])
        await w.settle()
        assert await fork.result() == [2, "y"]
        assert await alone.result() == [2, 3]
        before = await w.store.counts()
        for wrong in ((1,), (1, 2), 7):
            with pytest.raises(InvalidPayload, match="input of workflow"):
                await run.fork(input=wrong)
        assert await w.store.counts() == before


@dataclass
class Parcel:
    grams: int


async def test_another_input_as_json_where_the_code_is_and_where_it_is_not(
    world: Any, app: App
) -> None:
    @app.workflow
    async def weigh(ctx: Context, parcel: Parcel) -> int:
        return parcel.grams

    async with world(app) as w:
        run = await w.begin(weigh, Parcel(1))
        fork = await run.fork(input={"grams": 2})
        await w.settle()
        assert await fork.result() == 2
    async with world(App("memory://"), worker=False) as w:
        run = w.app.run(run.id)
        with pytest.raises(InvalidPayload, match="integer"):
            await run.fork(input={"grams": "x"})
        made = await run.fork(input={"grams": 3})
    async with world(app) as w:
        await w.settle()
        assert await w.app.run(made.id).result() == 3


async def test_tags_and_entity_are_kept_unless_given(world: Any, app: App) -> None:
    @app.workflow(pool=Pool("p"))
    async def flow(ctx: Context) -> None: ...

    async with world(app) as w:
        run = await w.begin(
            flow, tags={"a": "1"}, entity="order/7", pool_key="k", priority=3, key="x"
        )
        kept = await (await run.fork()).info()
        assert (kept.tags, kept.entity, kept.pool) == ({"a": "1"}, "order/7", "p")
        assert (kept.pool_key, kept.priority, kept.parent_id) == ("k", 3, None)
        given = await (await run.fork(tags={}, entity="order/8", pool="", deadline="1h")).info()
        assert (given.tags, given.entity, given.pool, given.pool_key) == ({}, "order/8", None, None)
        assert given.deadline_at is not None
        with pytest.raises(UnknownPool):
            await run.fork(pool="nowhere")


async def test_the_fork_is_on_the_ledger(world: Any, app: App) -> None:
    flow = three_steps(app, Count())
    async with world(app) as w:
        run = await w.begin(flow, 1, entity="order/7")
        fork = await run.fork("b")
        (fact,) = [one for one in await w.facts("workflow.run_started") if fork.id in one.payload]
        assert f'"forked_from":"{run.id}","from_path":"b"' in fact.payload
        assert (fact.entity_type, fact.entity_id) == ("order", "7")


async def test_a_path_that_is_none_is_refused_and_others_are_named(world: Any, app: App) -> None:
    flow = three_steps(app, Count())
    async with world(app) as w:
        run = await w.begin(flow, 1)
        before = await w.store.counts()
        with pytest.raises(
            BadValue, match=r"from_path 'set.lost' is not in .* set.last, set.last#"
        ):
            await run.fork("set.lost")
        with pytest.raises(BadValue, match=r"from_path 'zzzz' .* there is: a, set.last, b"):
            await run.fork("zzzz")
        for wrong in ("", 7, "a\n"):
            with pytest.raises(BadValue, match="path"):
                await run.fork(wrong)
        with pytest.raises(RunNotFound):
            await w.app.run("nobody").fork()
        with pytest.raises(BadValue, match="run id"):
            await run.fork(id="")
        assert await w.store.counts() == before


async def test_the_same_fork_again_is_found(world: Any, app: App) -> None:
    flow = three_steps(app, Count())
    async with world(app) as w:
        run = await w.begin(flow, 1)
        first = await run.fork("b", id="f")
        await w.settle()
        again = await run.fork("b", id="f")
        assert (first.created, again.created) == (True, False)
        for other in ({"from_path": "c"}, {"from_path": "b", "input": 9}):
            with pytest.raises(Conflict):
                await run.fork(id="f", **other)
        with pytest.raises(Conflict):
            await run.fork(id=run.id)


# --- chance ----------------------------------------------------------------------------------------


async def test_chance_is_as_it_was_and_then_its_own(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        drawn: list[Any] = [ctx.random(), ctx.ulid(), ctx.now().isoformat()]
        for _ in range(3):
            await ctx.wait(line)
            drawn += [ctx.random(), ctx.ulid()]
        return drawn

    async def feed(w: Any, run: Any, count: int) -> list[Any]:
        for nth in range(count):
            await w.app.signal(run.id, line, nth)
            await w.settle()
            await w.evict()
            await w.advance("1m")
        return list(await run.result())

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1h")
        drawn = await feed(w, run, 3)
        fork = await run.fork("line#2")  # one wait is taken over
        await w.settle()
        forked = await feed(w, fork, 2)
        assert forked[:3] == drawn[:3]  # before the wait
        assert not set(forked[3:]) & set(drawn[3:])
        second = await fork.fork("line#3")
        await w.settle()
        again = await feed(w, second, 1)
        assert again[:3] == drawn[:3] and again[3:5] == forked[3:5]
        assert not set(again[5:]) & set(forked[5:] + drawn[5:])
        early = await second.fork("line#2")
        await w.settle()
        assert (await feed(w, early, 2))[:3] == drawn[:3]
        bare = await run.fork()
        await w.settle()
        own = await feed(w, bare, 3)
        assert not set(own) & set(drawn)
        late = await bare.fork("line#2")
        await w.settle()
        assert (await feed(w, late, 2))[:3] == own[:3]


async def test_a_branch_that_was_not_taken_over_draws_its_own(world: Any, app: App) -> None:
    """A key that was drawn for a payment that the fork makes anew must be another one."""
    keys: list[tuple[str, str]] = []

    @step
    async def pay(key: str) -> str:
        keys.append((step_info().run_id, key))
        return key

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        async def branch(name: str) -> str:
            key = ctx.ulid()
            await ctx.wait(go, name=name)
            return await ctx.step(pay, key)

        return list(await ctx.gather(branch("one"), branch("two")))

    async with world(app) as w:
        run = await w.begin(flow)
        for path in ("gather[1]/two", "gather[0]/one"):
            await w.app.signal(run.id, go, 1, path=path)
            await w.settle()
        first = await run.result()
        fork = await run.fork("gather[0]/one")
        await w.settle()
        await w.app.signal(fork.id, go, 1)
        await w.settle()
        second = await fork.result()
        assert second[1] == first[1] and second[0] != first[0]


async def test_children_of_a_fork_are_its_own(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> str:
        return ctx.run_id

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        await ctx.step(reserve)
        return [await ctx.call(child), await ctx.call(child)]

    async with world(app) as w:
        run = await w.begin(flow)
        first = await run.result()
        fork = await run.fork("child#2")
        anew = await run.fork("child")
        await w.settle()
        assert (await fork.result())[0] == first[0] and (await fork.result())[1] != first[1]
        assert not set(await anew.result()) & {*first, *await fork.result()}
        assert (await w.app.run((await fork.result())[1]).info()).parent_id == fork.id


# --- waits, topics, queues ---------------------------------------------------------------------------


async def test_topics_go_on_after_what_was_taken_over(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(paid) for _ in range(4)]

    async with world(app) as w:
        run = await w.begin(flow)
        for nth in range(3):
            await w.app.emit(paid, nth)
        await w.settle()
        fork = await run.fork("order.paid#2")
        await w.settle()
        assert await fork.status() == "waiting"  # it has seen the other two by now
        await w.app.emit(paid, 9)
        await w.settle()
        assert await fork.result() == await run.result() == [0, 1, 2, 9]


async def test_what_a_fork_does_anew_takes_from_queues_and_buffers_of_its_own(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(jobs), await ctx.wait(line), await ctx.wait(go)]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.put(jobs, 1)
        await w.app.signal(run.id, line, 2)
        await w.app.signal(run.id, line, 3)
        await w.settle()
        fork = await run.fork("line")
        await w.settle()
        assert await fork.buffered() == []  # those were sent to the other
        await w.app.signal(fork.id, line, 5)
        await w.app.signal(fork.id, go, 6)
        await w.settle()
        assert await fork.result() == [1, 5, 6]
        anew = await run.fork("jobs")
        await w.settle()
        await w.app.put(jobs, 7)
        await w.settle()
        assert (await anew.waiting())[0].target == "line"


async def test_a_claim_that_was_taken_over_is_taken(world: Any, app: App) -> None:
    @app.workflow(signals=[once, go])
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(once), await ctx.wait(go)]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, once, 1)
        await w.settle()
        after, before = await run.fork("go"), await run.fork("once")
        await w.settle()
        with pytest.raises(SignalTaken):
            await w.app.signal(after.id, once, 2)
        await w.app.signal(before.id, once, 2)


async def test_what_is_open_is_not_taken_over(world: Any, app: App) -> None:
    healthy = False

    @step(retry=Retry(attempts=9, backoff="1h", max_backoff="1h", jitter=0))
    async def shaky() -> str:
        if not healthy:
            raise OSError("down")
        return "worked"

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        async def waits() -> Any:
            return await ctx.wait(go, timeout="10h")

        async def works() -> Any:
            return [await ctx.step(reserve), await ctx.step(shaky)]

        return list(await ctx.gather(waits(), works()))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("30m")
        healthy = True
        fork = await run.fork("gather[0]/go")
        await w.settle()
        (waiting,) = await fork.waiting()  # its own attempt went well at once
        assert waiting.until == (await run.waiting())[0].until + (
            waiting.since - (await run.waiting())[0].since
        )
        await w.app.signal(fork.id, go, 1)
        await w.settle()
        assert await fork.result() == [1, ["reserved", "worked"]]


# --- cancels and retries -----------------------------------------------------------------------------


async def test_a_cancelled_run_is_forked_from_before_its_cancel(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Any:
        await ctx.step(reserve)
        try:
            return await ctx.wait(go)
        finally:
            await ctx.step(ship)

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel("enough")
        await w.settle()
        before = await w.store.counts()
        with pytest.raises(Conflict, match="fork it from '!cancel', or from a path before"):
            await run.fork("ship")
        assert await w.store.counts() == before
        fork = await run.fork("!cancel")
        await w.settle()
        assert await fork.status() == "waiting"
        await w.app.signal(fork.id, go, 4)
        await w.settle()
        assert await fork.result() == 4
        other = await run.fork("reserve")
        await w.settle()
        assert await other.status() == "waiting"


async def test_the_order_that_a_retry_freed_is_free_in_the_fork_too(world: Any, app: App) -> None:
    healthy = False

    @step
    async def shaky() -> str:
        if not healthy:
            raise ValueError("no luck")
        return "worked"

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        async def fails() -> str:
            await ctx.wait(go)
            return await ctx.step(shaky)

        async def beside() -> str:
            try:
                await ctx.wait(line)
                return "heard"
            except asyncio.CancelledError:
                await ctx.step(charge)
                await ctx.step(ship)
                raise

        got = list(await ctx.gather(fails(), beside()))
        return [*got, await ctx.step(reserve), await ctx.wait(go, name="end")]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, go, 1)
        await w.settle()
        assert await run.status() == "failed"
        healthy = True
        await run.retry()
        await w.settle()
        await w.app.signal(run.id, line, 1)
        await w.settle()
        # Before, within and after what the retry freed.
        for path in ("gather[1]/charge", "gather[1]/ship", "gather[0]/shaky", "reserve", "end"):
            fork = await run.fork(path)
            await w.settle()
            for _ in range(3):
                for waiting in await fork.waiting():
                    signal = line if waiting.target == "line" else go
                    await w.app.signal(fork.id, signal, 1, path=waiting.path)
                    await w.settle()
                await w.evict()
            info = await fork.info()
            assert info.status == "completed", (path, info.reason)
            assert await fork.result() == ["worked", "heard", "reserved", 1]


async def test_a_fork_of_a_later_generation(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, nth: int) -> list[Any]:
        drawn = ctx.random()
        await ctx.set("generation", nth)
        await ctx.wait(line)
        if nth < 2:
            await ctx.continue_as(flow, nth + 1)
        return [nth, drawn, await ctx.wait(go)]

    async with world(app) as w:
        run = await w.begin(flow, 0)
        for nth in range(3):
            await w.app.signal(run.id, line, nth)
            await w.settle()
        fork = await run.fork("go")
        for one in (run, fork):
            await w.app.signal(one.id, go, 5)
        await w.settle()
        assert await fork.result() == await run.result()
        assert (await fork.info()).generation == 2
        assert await fork.get("generation") == 2


async def test_bounds(world: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = three_steps(app, Count())
    async with world(app) as w:
        run = await w.begin(flow, 1)
        monkeypatch.setattr(limits, "forks_max", 2)
        fork = await run.fork("b")
        await w.settle()
        fork = await fork.fork("b")
        await w.settle()
        with pytest.raises(BadValue, match="forks_max"):
            await fork.fork("b")
        monkeypatch.setattr(limits, "document_rows_max", 2)
        with pytest.raises(BadDocument, match="document_rows_max"):
            await run.fork("c")


async def test_a_fork_is_read_as_of_one_moment(world: Any, app: App) -> None:
    """While its buffer is read the run goes on: it is read again."""

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(line), await ctx.wait(go)]

    async with world(app) as w:
        run = await w.begin(flow)
        buffered = w.store.buffered
        times = 0

        async def late(run_id: str) -> Any:
            nonlocal times
            times += 1
            found = await buffered(run_id)
            if times == 1:
                await w.app.signal(run.id, line, 1)
                await w.settle()
            return found

        w.store.buffered = late
        document = await run.export()
        assert times == 2
        assert [one["path"] for one in document["history"]] == ["line", "go"]
        del w.store.buffered


async def test_what_a_record_says_is_all_that_matters(world: Any, app: App) -> None:
    """A fork of a run that is being written to is what its history says, not what its row does."""
    flow = three_steps(app, Count())
    async with world(app) as w:
        run = await w.begin(flow, 1)
        record = await w.store.run(run.id)
        fork = await run.fork("c")
        made = await w.store.run(fork.id)
        assert made is not None and record is not None
        same = replace(
            made,
            run_id=record.run_id,
            created_at=record.created_at,
            status=record.status,
            finished_at=record.finished_at,
            output=record.output,
            ready_at=None,
            forked=None,
            published=record.published,
            revision=record.revision,
            owner=record.owner,
            fence=record.fence,
        )
        assert same == record
