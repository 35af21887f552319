"""Pools: slots, lines, rates and turns as users meet them, with one worker and with several."""

import asyncio
import logging
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import pytest
from worlds import Stage, Worlds

from perdure import (
    App,
    BadValue,
    Context,
    Pool,
    RunCancelled,
    Signal,
    UnknownPool,
    workflow,
)
from perdure.model import limits, ops
from perdure.model.outcomes import Admitted
from perdure.runtime.lines import Lines
from perdure.testing import Crowd, VirtualClock

go = Signal("go", int)


class Desk:
    """Runs that are at work: they go on when they are told to."""

    def __init__(self) -> None:
        self.at_work: list[str] = []
        self.began: list[str] = []
        self.most: Counter[str] = Counter()  # at once, in all ("") and for each key
        self._doors: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.workflow = workflow(self.body, name="render", pool="gpu")

    async def body(self, ctx: Context, name: str) -> str:
        async def work() -> str:
            self.at_work.append(name)
            self.began.append(name)
            self._note(name[0])
            await self._doors[name].wait()
            self.at_work.remove(name)
            return name

        return await ctx.step(work)

    def _note(self, key: str) -> None:
        mine = sum(one[0] == key for one in self.at_work)
        self.most[""] = max(self.most[""], len(self.at_work))
        self.most[key] = max(self.most[key], mine)

    def finish(self, *names: str) -> None:
        for name in names:
            self._doors[name].set()  # also of one that has not begun

    async def until(self, *names: str) -> None:
        """Until exactly these are at work."""
        try:
            async with asyncio.timeout(10):
                while sorted(self.at_work) != sorted(names):  # noqa: ASYNC110 (a list, of several workers)
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"{sorted(self.at_work)} are at work, not {names}") from None


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def queue_up(app: App, desk: Desk, *names: str, **options: Any) -> None:
    """Start runs; the first letter of a name is its key."""
    for name in names:
        await app.start(desk.workflow, name, id=name, **{"pool_key": name[0], **options})


# --- slots ---------------------------------------------------------------------------------------


async def test_no_more_runs_are_at_work_than_there_are_slots(
    world: Worlds, app: App, desk: Desk
) -> None:
    app.add(desk.workflow)
    async with world(app, pools=[Pool("gpu", limit=2)]) as w:
        await queue_up(w.app, desk, "a1", "a2", "a3", "a4")
        await desk.until("a1", "a2")
        (pool,) = await w.app.pools()
        assert (pool.name, pool.limit, pool.taken, pool.waiting) == ("gpu", 2, 2, 2)
        assert pool.waiting_since is not None
        page = await w.app.waiting_for_slot("gpu")
        assert [one.run_id for one in page] == ["a3", "a4"]
        assert {one.reason for one in page} == {"pool gpu: 2 of 2 slots are taken"}
        desk.finish("a1")
        await desk.until("a2", "a3")
        desk.finish("a2", "a3")
        await desk.until("a4")
        desk.finish("a4")
        assert await w.app.run("a4").result("5s") == "a4"
        assert desk.most[""] == 2


async def test_a_run_that_waits_gives_its_slot_to_the_next(world: Worlds, app: App) -> None:
    @app.workflow(pool=Pool("approvals", limit=1))
    async def approve(ctx: Context) -> int:
        first = await ctx.wait(go)
        await ctx.sleep("1d")
        return first + await ctx.wait(go)

    async with world(app) as w:
        for run_id in ("r1", "r2", "r3"):
            await w.begin(approve, id=run_id)
            assert await w.app.run(run_id).status() == "waiting"
        for run_id in ("r1", "r2", "r3"):
            await w.app.signal(run_id, go, 1)
        await w.settle()
        await w.advance("1d")
        for run_id in ("r1", "r2", "r3"):
            await w.app.signal(run_id, go, 2)
        await w.settle()
        assert [await w.app.run(one).result("5s") for one in ("r1", "r2", "r3")] == [3, 3, 3]


async def test_what_code_does_not_say_can_be_set_while_runs_wait(
    world: Worlds, app: App, desk: Desk
) -> None:
    app.add(desk.workflow)
    async with world(app) as w:
        await w.app.set_pool("gpu", limit=1)
        await queue_up(w.app, desk, "a1", "a2", "a3", "a4")
        await desk.until("a1")
        (info,) = await w.app.pools()
        assert (info.limit, info.waiting) == (1, 3)
        # How many wait is looked up after the change: by then some may have been let in.
        assert (await w.app.set_pool("gpu", limit=3)).limit == 3
        await desk.until("a1", "a2", "a3")
        # Lowered, it takes nobody's slot away.
        await w.app.set_pool("gpu", limit=1)
        desk.finish("a1", "a2")
        await desk.until("a3")
        await asyncio.sleep(0.02)
        assert desk.at_work == ["a3"]
        await w.app.set_pool("gpu", limit=None)
        await desk.until("a3", "a4")
        desk.finish("a3", "a4")
        await w.app.run("a4").result("5s")


async def test_a_run_in_line_is_cancelled_terminated_and_paused(app: App, desk: Desk) -> None:
    app.add(desk.workflow)
    async with Stage(app, pools=[Pool("gpu", limit=1)]) as w:
        await queue_up(w.app, desk, "a1", "a2", "a3", "a4")
        await desk.until("a1")
        cancelled, terminated, paused = (w.app.run(one) for one in ("a2", "a3", "a4"))
        await cancelled.cancel("not needed")
        with pytest.raises(RunCancelled, match="not needed"):
            await cancelled.result("5s")
        await terminated.terminate()
        await paused.pause()
        assert await paused.status() == "paused"
        desk.finish("a1")
        await w.app.run("a1").result("5s")
        await paused.resume()
        await desk.until("a4")
        desk.finish("a4")
        assert await paused.result("5s") == "a4"
        assert desk.began == ["a1", "a4"]


async def test_one_that_is_to_start_later_stands_in_line_from_then_on(app: App) -> None:
    @app.workflow(pool=Pool("gpu", limit=1))
    async def late(ctx: Context) -> str:
        return ctx.now().isoformat()

    async with Stage(app) as w:
        run = await w.begin(late, start_at="1h")
        (wait,) = await w.app.waiting(run.id)
        assert wait.reason is not None
        assert wait.reason.startswith("starts at ")
        assert (await w.app.runs())[0].starts_at == wait.since
        await w.advance("59m")
        assert await run.status() == "ready"
        await w.advance("1m")
        assert await run.status() == "completed"


# --- keys and turns ------------------------------------------------------------------------------


async def test_a_flooded_key_does_not_starve_another(place: dict[str, Any], desk: Desk) -> None:
    app = App("memory://", pools=[Pool("gpu", limit=2)])
    app.add(desk.workflow)
    async with Crowd(app, **place, workers=2) as crowd:
        await queue_up(crowd.app, desk, *(f"a{n}" for n in range(10)))
        await queue_up(crowd.apps[1], desk, "b0", "c0")
        await desk.until("a0", "a1")
        desk.finish("a0")
        await desk.until("a1", "b0")
        desk.finish("a1", "b0")
        # After b it is the turn of c, and then of a again.
        await desk.until("a2", "c0")
        assert desk.most[""] == 2
        desk.finish("c0", *(f"a{n}" for n in range(2, 10)))
        await crowd.app.run("a9").result("10s")


async def test_a_key_has_its_own_slots_and_says_so(app: App, desk: Desk) -> None:
    app.add(desk.workflow)
    async with Stage(app, pools=[Pool("gpu", limit=5, per_key=1)]) as w:
        await queue_up(w.app, desk, "a1", "a2", "b1", "b2")
        await desk.until("a1", "b1")
        (wait,) = await w.app.waiting("a2")
        assert (wait.kind, wait.target) == ("slot", "gpu")
        assert wait.reason == "key a: 1 of 1 slots are taken"
        info = next(one for one in await w.app.runs() if one.id == "a2")
        assert (info.pool, info.pool_key, info.in_line_since) == ("gpu", "a", wait.since)
        desk.finish("b1")
        await desk.until("a1", "b2")
        desk.finish("a1", "b2")
        await desk.until("a2")
        desk.finish("a2")
        await w.app.run("a2").result("5s")
        assert (desk.most["a"], desk.most["b"]) == (1, 1)


async def test_higher_priority_first(app: App, desk: Desk) -> None:
    app.add(desk.workflow)
    async with Stage(app, pools=[Pool("gpu", limit=1)]) as w:
        await queue_up(w.app, desk, "a1", "a2")
        await queue_up(w.app, desk, "a3", priority=5)
        await desk.until("a1")
        desk.finish("a1")
        await desk.until("a3")
        desk.finish("a3")
        await desk.until("a2")
        desk.finish("a2")
        await w.app.run("a2").result("5s")


async def test_a_flooded_pool_does_not_starve_another(place: dict[str, Any], desk: Desk) -> None:
    """Neither has limits: a worker with little room takes from both by turns."""
    app = App("memory://")
    app.add(desk.workflow)
    app.add(mail := workflow(Desk.body.__get__(desk), name="mail", pool="mail"))
    async with Crowd(app, **place, workers=1, concurrency=2) as crowd:
        await queue_up(crowd.app, desk, *(f"a{n}" for n in range(10)))
        await desk.until("a0", "a1")
        await crowd.app.start(mail, "m0", id="m0")
        desk.finish("a0", "a1")
        await desk.until("a2", "m0")
        desk.finish("m0", *(f"a{n}" for n in range(2, 10)))
        await crowd.app.run("a9").result("10s")


async def test_a_line_that_never_ends_does_not_keep_another_waiting(app: App) -> None:
    """One that is noted meanwhile neither: pools have an admission each by turns."""
    asked: list[str] = []

    class Answering:
        """A store that has always more to let through in one of the pools."""

        async def submit(self, op: ops.AdmitRuns) -> Admitted:
            asked.append(op.pool)
            if len(asked) == 3:
                lines.note("late", 0)
            await asyncio.sleep(0)
            return Admitted(1, more=op.pool == "flooded" and len(asked) < 50)

    lines = Lines(Answering(), VirtualClock(), tuple)  # type: ignore[arg-type]
    await lines.start()
    lines.note("flooded", 0)
    lines.note("mail", 0)
    async with asyncio.timeout(10):
        while not lines.idle:  # noqa: ASYNC110 (a flag of another object)
            await asyncio.sleep(0)
    await lines.stop()
    assert asked[:5] == ["flooded", "mail", "flooded", "late", "flooded"]
    assert len(asked) == 50


async def test_a_slot_that_nobody_can_use_is_given_on_by_a_look_alone(app: App) -> None:
    """Let through by a worker that is gone, with its code; or to start later, before there were limits."""

    @app.workflow(pool="gpu")
    async def render(ctx: Context) -> str:
        return "done"

    async with Stage(app) as w:
        old = ops.StartRun(run_id="old", workflow="gone", version=1, input="null", pool="gpu")
        await w.coordinator.submit(old)
        await w.app.start(render, id="late", start_at="1d")
        await w.app.set_pool("gpu", limit=2)
        new = await w.begin(render)
        assert await new.status() == "ready"
        w.clock.set(w.clock.now() + 60_000_000)
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert await new.status() == "completed"
        assert [one.run_id for one in await w.app.waiting_for_slot("gpu")] == ["old", "late"]
        await w.advance("1d")
        assert await w.app.run("late").status() == "completed"


# --- rates ---------------------------------------------------------------------------------------


async def test_a_rate_lets_so_many_begin(place: dict[str, Any]) -> None:
    app = App("memory://")

    @app.workflow(pool=Pool("mail", rate="2/1m"))
    async def send(ctx: Context) -> float:
        async def at() -> float:
            return crowd.clock.now() / 1_000_000

        return await ctx.step(at)

    async with Crowd(app, **place, workers=2) as crowd:
        begin = crowd.clock.now() / 1_000_000
        runs = [await crowd.apps[n % 2].start(send, id=f"r{n}") for n in range(5)]
        await crowd.settle()
        (wait,) = await crowd.app.waiting("r4")
        assert wait.reason is not None
        assert wait.reason.startswith("rate 2/1m: next at ")
        assert (await crowd.app.pools())[0].next_at is not None
        await crowd.advance("2m")
        at = sorted([round(await one.result("5s") - begin) for one in runs])
        assert at == [0, 0, 30, 60, 90]


async def test_each_key_has_a_rate_of_its_own(app: App) -> None:
    @app.workflow(pool=Pool("mail", per_key_rate="1/1m"))
    async def send(ctx: Context) -> float:
        async def at() -> float:
            return w.clock.now() / 1_000_000

        return await ctx.step(at)

    async with Stage(app) as w:
        begin = w.clock.now() / 1_000_000
        runs = [await w.app.start(send, id=f"{key}{n}", pool_key=key) for key in "ab" for n in "12"]
        await w.settle()
        (wait,) = await w.app.waiting("a2")
        assert wait.reason is not None
        assert wait.reason.startswith("key a: rate 1/1m: next at ")
        await w.advance("1m")
        assert [round(await one.result("5s") - begin) for one in runs] == [0, 60, 0, 60]


# --- who serves what ------------------------------------------------------------------------------


async def test_a_worker_serves_only_its_pools(
    app: App, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    app.add(desk.workflow)

    @app.workflow
    async def plain(ctx: Context) -> str:
        return "done"

    with caplog.at_level(logging.WARNING, "perdure.app"):
        async with Stage(app, pools=[Pool("gpu", limit=1)]) as w:
            run = await w.app.start(plain)
            await queue_up(w.app, desk, "a1")
            await desk.until("a1")
            assert await run.status() == "ready"
            desk.finish("a1")
            await w.app.run("a1").result("5s")
    assert "serves only the pools ['gpu'], so runs of 'plain' are left to others" in caplog.text
    async with Stage(app, pools=["gpu", ""]) as w:
        assert await (await w.app.start(plain)).result("5s") == "done"


async def test_a_client_declares_and_a_worker_lets_through(
    place: dict[str, Any], desk: Desk
) -> None:
    """One that only starts runs has nobody to let them through: the worker hears of it, or looks."""
    app = App("memory://", pools=[Pool("gpu", limit=1)])
    app.add(desk.workflow)
    async with Crowd(app, **place, workers=2) as crowd:
        client, worker = crowd.apps
        await client._engine().worker.lines.stop()  # type: ignore[union-attr]
        await queue_up(client, desk, "a1", "a2")
        await worker._engine().worker.recovery.look(thorough=False)  # type: ignore[union-attr]
        await desk.until("a1")
        desk.finish("a1")
        async with asyncio.timeout(10):
            while desk.at_work != ["a2"]:
                await worker._engine().worker.recovery.look(thorough=False)  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        desk.finish("a2")
        await worker.run("a2").result("5s")


async def test_runs_of_a_worker_that_is_gone_stand_in_line_again(place: dict[str, Any]) -> None:
    app = App("memory://")
    began: list[str] = []
    has_begun, stuck = asyncio.Event(), asyncio.Event()

    @app.workflow(pool=Pool("gpu", limit=1))
    async def render(ctx: Context, name: str) -> str:
        async def work() -> str:
            began.append(name)
            has_begun.set()
            if len(began) == 1:
                await stuck.wait()
            return name

        return await ctx.step(work)

    async with Crowd(app, **place, workers=2) as crowd:
        first = await crowd.app.start(render, "first")
        async with asyncio.timeout(10):
            await has_begun.wait()
        second = await crowd.apps[1].start(render, "second")
        await crowd.cut_off(crowd.app)
        other = crowd.apps[1]
        assert await other.run(first.id).result("10s") == "first"
        assert await other.run(second.id).result("10s") == "second"
        assert began == ["first", "first", "second"]
        stuck.set()


async def test_children_and_schedules_are_in_the_pool_of_their_workflow(app: App) -> None:
    @app.workflow(pool="mail")
    async def send(ctx: Context) -> None: ...

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.call(send, id="called", pool_key="t", priority=2)
        await ctx.start(send, id="elsewhere", pool="")

    app.schedule("1h", send, name="hourly")

    async with Stage(app) as w:
        await w.begin(parent)
        await w.advance("1h")
        pools = {
            one.id: (one.pool, one.pool_key, one.priority)
            for one in await w.app.runs(workflow=send)
        }
        assert pools.pop("called") == ("mail", "t", 2)
        assert pools.pop("elsewhere") == (None, None, 0)
        assert list(pools.values()) == [("mail", None, 0)]


# --- what is declared, and what is wrong -----------------------------------------------------------


async def test_what_was_set_survives_a_start_and_a_new_word_of_code_counts(
    world: Worlds, app: App
) -> None:
    async with world(app, pools=[Pool("gpu", limit=4, rate="5/1s")]) as w:
        info = await w.app.set_pool("gpu", limit=8)
        assert (info.limit, info.rate) == (8, "5/1s")
        assert info.declared == {"limit": 4, "per_key": None, "rate": "5/1s", "per_key_rate": None}
    async with world(app, pools=[Pool("gpu", limit=4, rate="5/1s")]) as w:
        assert [one.limit for one in await w.app.pools()] == [8]
        assert (await w.app.reset_pool("gpu")).limit == 4
    async with world(app, pools=[Pool("gpu", limit=5)]) as w:
        assert [(one.limit, one.rate) for one in await w.app.pools()] == [(5, None)]


async def test_unknown_pools_are_refused(app: App) -> None:
    @app.workflow
    async def plain(ctx: Context) -> None: ...

    @app.workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.start(plain, pool="gpuu")
        except UnknownPool as error:
            return error.name
        return ""

    async with Stage(app) as w:
        with pytest.raises(UnknownPool, match=r"'gpuu'.*App\(pools="):
            await w.app.start(plain, pool="gpuu")
        with pytest.raises(UnknownPool):
            await w.app.signal_with_start(plain, signal=go, payload=1, id="r1", pool="gpuu")
        for ask in (w.app.reset_pool, w.app.waiting_for_slot):
            with pytest.raises(UnknownPool):
                await ask("gpuu")
        assert await (await w.app.start(parent)).result("5s") == "gpuu"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"limit": 0}, "from 1"),
        ({"limit": True}, "from 1"),
        ({"per_key": limits.pool_slots_max + 1}, "pool_slots_max"),
        ({"rate": "100"}, "such as"),
        ({"rate": "0/1m"}, "at least one"),
        ({"rate": 5}, "such as"),
        ({"per_key_rate": "5/soon"}, "per_key_rate .*'soon' is no span of time"),
        ({"rate": "5/m"}, "rate .*'m' is no span of time"),
        ({"rate": "5/0s"}, "at least one"),
    ],
)
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Pool("gpu", **wrong)


async def test_bad_input_is_refused_before_anything_is_stored(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow(pool="gpu")
    async def plain(ctx: Context) -> None: ...

    for wrong in ("a/b", 5):
        with pytest.raises(BadValue, match="pool"):
            app.copy(pools=[wrong])
    with pytest.raises(BadValue, match="list"):
        app.copy(pools="gpu")
    with pytest.raises(BadValue, match="twice"):
        app.copy(pools=[Pool("gpu", limit=1), Pool("gpu", limit=2)])
    async with Stage(app) as w:
        for wrong in (limits.priority_max + 1, -limits.priority_max - 1, 1.5, True):
            with pytest.raises(BadValue, match="priority"):
                await w.app.start(plain, priority=wrong)  # type: ignore[arg-type]
        for wrong_key in ("x" * (limits.pool_key_bytes_max + 1), 7):
            with pytest.raises(BadValue, match="pool_key"):
                await w.app.start(plain, pool_key=wrong_key)  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="names no limit"):
            await w.app.set_pool("gpu")
        monkeypatch.setattr(limits, "pools_max", 1)
        with pytest.raises(BadValue, match="pools_max"):
            await w.app.set_pool("more", limit=1)
        assert list(await w.app.runs()) == []


def test_a_pool_shows_what_it_is() -> None:
    assert repr(Pool("mail")) == "Pool('mail')"
    assert repr(Pool("gpu", limit=4, rate=" 100 / 1m ")) == "Pool('gpu', limit=4, rate='100/1m')"


# --- health ---------------------------------------------------------------------------------------


async def test_a_line_that_does_not_move_though_slots_are_free_is_told(
    app: App, desk: Desk
) -> None:
    app.add(desk.workflow)
    async with Stage(app, pools=["", Pool("gpu", limit=1)]) as w:
        await queue_up(w.app, desk, "a1", "a2")
        await desk.until("a1")
        w.clock.set(w.clock.now() + timedelta(hours=1) // timedelta(microseconds=1))
        health = await w.app.health()
        # Long, but for good reason.
        assert (health.status, health.in_line_s) == ("ok", {"gpu": 3600.0})
        await w.worker.lines.stop()
        desk.finish("a1")
        await w.app.run("a1").result("5s")
        health = await w.app.health()
        assert health.status == "degraded"
        assert health.reasons == [
            "a run stands in line of pool 'gpu' since 3600 s, and slots are free"
        ]


async def test_an_idle_line_costs_no_op(app: App) -> None:
    async with Stage(app, pools=["", Pool("gpu", limit=1)]) as w:
        await w.settle()
        seen: list[Any] = []
        submit = w.coordinator.submit
        w.coordinator.submit = lambda op, *rest: (seen.append(op), submit(op, *rest))[1]  # type: ignore[method-assign]
        for _ in range(3):
            await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert not [one for one in seen if isinstance(one, ops.AdmitRuns)]
