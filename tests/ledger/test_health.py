"""Health: who lags, who stalls, what waits for a decision; and retention, which never deletes what is needed."""

import asyncio
from typing import Any

import msgspec
import pytest
from worlds import ELSEWHERE

from perdure import App, BadValue, Batch, Context, Event, Pool, Queue, Retry
from perdure.ledger import watch
from perdure.model import ops


def consumer(app: App, **options: Any) -> list[Any]:
    seen: list[Any] = []

    @app.consumer("c", "in.*", **options)
    async def c(batch: Batch) -> None:
        for event in batch:
            if event.payload == "bad":
                raise ValueError
        seen.extend(event.payload for event in batch)

    return seen


async def of(w: Any, name: str = "c") -> Any:
    return next(one for one in (await w.app.health()).consumers if one.name == name)


async def test_all_is_well(world: Any, app: App) -> None:
    consumer(app)
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.emit("other")
        health = await w.app.health()
        assert health.status == "ok" and health.reasons == []
        assert [(one.name, one.lag, one.behind_s) for one in health.consumers] == [
            ("c", 0, 0),
            ("workflow_runner", 0, 0),
        ]
        assert (health.parked, health.deferred, health.dead_letters, health.timers_due) == (0,) * 4
        assert health.oldest_ready_s is None


async def test_what_waits_for_somebody_is_counted(world: Any, app: App) -> None:
    consumer(app, retry=Retry(attempts=1))
    jobs = Queue("jobs", int)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(jobs)

    @app.workflow
    async def other(ctx: Context, event: Event) -> None: ...

    async with world(app, fanout=1, runner_every="0 * * * *") as w:
        for name in ("a", "b", "c"):
            await w.app.subscribe("x", other, name=name)
        await w.emit("in.a", "bad")
        await w.app.put("jobs", "no number")
        await w.begin(flow)
        await w.emit("x")
        await w.advance("1h")
        health = await w.app.health()
        assert (health.parked, health.deferred, health.dead_letters) == (1, 2, 1)
        assert (await of(w, "workflow_runner")).capped == 1
        # Each waits for a decision, or for the next tick; none of it says that the engine is ill.
        assert health.status == "ok"


async def test_a_stall_degrades_and_is_told_once(world: Any, app: App) -> None:
    consumer(app, retry=Retry(attempts=100, backoff="1m", factor=1))
    async with world(app) as w:
        first = await w.emit("in.a", "bad")
        await w.advance("55m")
        assert (await w.app.health()).status == "ok"
        c = await of(w)
        assert c.lag == 1 and c.behind_s == 3300 and c.error == "ValueError" and not c.stalled
        await w.advance("20m")
        health = await w.app.health()
        assert health.status == "degraded" and (await of(w)).stalled
        assert "'c'" in health.reasons[0] and "ValueError" in health.reasons[0]
        (fact,) = await w.facts("ledger.consumer_stalled")
        facts = msgspec.json.decode(fact.payload)
        assert facts == {"consumer": "c", "position": first.position - 1}
        await w.advance("12m")
        assert len(await w.facts("ledger.consumer_stalled")) == 1
        await w.advance("1h")  # the last try is over, the event is parked
        health = await w.app.health()
        assert health.status == "ok" and health.parked == 1


async def test_a_stall_is_over_an_hour(world: Any, app: App) -> None:
    consumer(app)
    async with world(app) as w:
        await w.app.pause_consumer("c", "holiday")
        await w.emit("in.a", 1)
        await w.advance("1h")
        assert not (await of(w)).stalled
        await w.advance("1us")
        assert (await of(w)).stalled
        (reason,) = (await w.app.health()).reasons
        assert "'c'" in reason and "paused (holiday)" in reason


async def test_a_schedule_is_late_only_after_its_tick(world: Any, app: App) -> None:
    consumer(app, every="0 18 * * *")  # it is nine o'clock
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.advance("8h")
        assert not (await of(w)).stalled
        await w.app.pause_consumer("c", "on holiday")
        await w.advance("1h59m")
        assert not (await of(w)).stalled
        await w.advance("15m")
        c = await of(w)
        assert c.stalled and c.paused and c.reason == "on holiday"
        assert len(await w.facts("ledger.consumer_stalled")) == 1


async def test_an_idle_consumer_never_stalls(world: Any, app: App) -> None:
    consumer(app)
    async with world(app) as w:
        for _ in range(48):
            await w.emit("other")
            await w.advance("1h")
        assert (await w.app.health()).status == "ok"
        assert await w.facts("ledger.consumer_stalled") == []


async def test_a_client_sees_the_same(world: Any, app: App) -> None:
    consumer(app)
    async with world(app) as w:
        await w.emit("in.a", 1)
    async with world(app, worker=False) as w:
        await w.emit("in.a", 2)
        await w.advance("2h")
        health = await w.app.health()
        assert health.status == "degraded" and (await of(w)).stalled


async def test_what_no_worker_takes(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async with world(app, worker=False) as w:
        # Somebody is there who has the code, and who does nothing.
        elsewhere = ops.Beat(worker_id=ELSEWHERE, lease_us=10**12, workflows=(("flow", 1),))
        await w.coordinator.submit(elsewhere)
        await w.app.start(flow)
        await w.advance("1h")
        health = await w.app.health()
        assert health.oldest_ready_s == 3600 and health.status == "ok"  # for an hour, not over one
        await w.advance("1us")
        assert (await w.app.health()).status == "degraded"
        await w.advance("1h")
        health = await w.app.health()
        assert health.oldest_ready_s == 7200.000001 and "no worker takes it" in health.reasons[0]


async def test_a_version_that_no_live_worker_has_is_told_of(world: Any, app: App) -> None:
    def made(*versions: int) -> App:
        made = App("memory://")
        for version in versions:

            async def flow(ctx: Context) -> str:
                return "ended"

            made.workflow(name="flow", version=version)(flow)
        return made

    async with world(made(1, 2), worker=False) as w:
        client = w.app
        first = await client.start(client.registry.find("flow", 1))
        since = (await first.info()).starts_at
        await w.advance("2s")
        for _ in range(2):
            await client.start("flow")
        health = await client.health()  # nobody is alarmed at once
        assert (health.status, health.reasons) == ("ok", [])
        said = [(one.workflow, one.version, one.runs) for one in health.unserved]
        assert said == [("flow", 1, 1), ("flow", 2, 2)] and health.unserved[0].since == since
        await w.advance("9s")
        health = await client.health()
        assert health.status == "degraded" and len(health.reasons) == 1
        assert "a run of 'flow' version 1" in health.reasons[0]
        assert "no live worker has that version" in health.reasons[0]
        assert (await first.info()).version == 1
    async with world(made(2)) as w:
        await w.settle()
        health = await w.app.health()
        assert [(one.version, one.runs) for one in health.unserved] == [(1, 1)]
        (waiting,) = await w.app.waiting(first.id)
        assert (waiting.kind, waiting.target, waiting.since) == ("worker", "flow", since)
        assert "version 1" in (waiting.reason or "")
    async with world(made(1)) as w:
        await w.settle()
        health = await w.app.health()
        assert (health.status, health.unserved) == ("ok", [])
        assert await w.app.run(first.id).result() == "ended"
        assert await w.app.waiting(first.id) == []


async def test_those_in_line_wait_for_a_worker_too(world: Any, app: App) -> None:
    @app.workflow(version=3, pool=Pool("gpu", limit=1))
    async def flow(ctx: Context) -> None: ...

    async with world(app):
        pass  # the pool is declared by who runs the workflow
    async with world(app, worker=False) as w:
        await w.app.start(flow)
        await w.advance("1m")
        health = await w.app.health()
        assert [(one.version, one.runs) for one in health.unserved] == [(3, 1)]
        assert any("version 3" in one for one in health.reasons)


async def test_a_worker_tells_of_workflows_that_came_later(world: Any, app: App) -> None:
    async with world(app) as w:
        (row,) = await w.store.workers()
        assert row.workflows == "[]"

        @app.workflow
        async def flow(ctx: Context) -> str:
            return "ended"

        await w.worker.recovery.look(thorough=False)
        await w.settle()
        (row,) = await w.store.workers()
        assert row.workflows == '[["flow",1]]'


# --- retention ---------------------------------------------------------------------------------------


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks every six hours: for tests of whole months."""
    monkeypatch.setattr(watch, "_every_us", 6 * 3600 * 1_000_000)


async def test_old_events_go_by_age(world: Any, app: App, seldom: None) -> None:
    seen = consumer(app)
    async with world(app, keep_events="1d") as w:
        for n in range(3):
            await w.emit("in.a", n)
        await w.advance("12h")
        await w.emit("in.a", 3)
        await w.advance("19h")
        assert [one.payload for one in await w.facts("in.a")] == ["3"]
        assert seen == [0, 1, 2, 3]
        await w.advance("30d")
        assert len(await w.facts()) == 1  # the newest one stays, and with it the count


async def test_old_events_go_by_number(world: Any, app: App) -> None:
    async with world(app, keep_events_max=5) as w:
        for n in range(20):
            await w.emit("a", n)
        await w.advance("20m")
        assert [one.payload for one in await w.facts()] == ["15", "16", "17", "18", "19"]


async def test_what_is_needed_stays(world: Any, app: App) -> None:
    seen = consumer(app)
    async with world(app, keep_events="1h") as w:
        await w.app.pause_consumer("c")
        await w.emit("in.a", 1)
        await w.emit("in.a", 2)
        await w.advance("1d")
        trimmed = await w.app.trim_ledger()
        assert trimmed.held_by == "c" and len(await w.facts("in.a")) == 2
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [1, 2]
        await w.emit("other")
        await w.advance("2h")
        assert await w.facts("in.a") == []


async def test_a_consumer_that_nobody_runs_holds_it_for_thirty_days(
    world: Any, app: App, seldom: None
) -> None:
    consumer(app)
    async with world(app) as w:
        await w.emit("other")
    bare = App("memory://")
    async with world(bare, keep_events="1h") as w:
        await w.emit("in.a", 1)
        await w.emit("in.a", 2)
        await w.advance("29d")
        assert len(await w.facts("in.a")) == 2
        await w.advance("2d")
        assert len(await w.facts("in.a")) <= 1


async def test_trim_by_hand(world: Any, app: App) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue, match="keep_events"):
            await w.app.trim_ledger()
        await w.app.emit_many([("a", n) for n in range(2500)])
        await w.settle()
        await w.advance("1m")
        assert (await w.app.trim_ledger(keep=10)).count == 2490
        assert (await w.app.trim_ledger(keep=10)).count == 0
        assert (await w.app.trim_ledger(older_than="10s")).count == 9


async def test_keys_that_ran_out_are_forgotten(world: Any, app: App) -> None:
    async with world(app) as w:
        await w.emit("a", key="k")
        assert (await w.store.counts())["keys"] == 1
        await w.advance("6d")
        assert (await w.store.counts())["keys"] == 1
        await w.advance("2d")
        assert (await w.store.counts())["keys"] == 0


async def test_a_world_settles_while_a_batch_backs_off(world: Any, app: App) -> None:
    consumer(app, retry=Retry(attempts=3, backoff="1h"))
    async with world(app) as w:
        async with asyncio.timeout(5):
            await w.emit("in.a", "bad")
        assert (await of(w)).error == "ValueError"
