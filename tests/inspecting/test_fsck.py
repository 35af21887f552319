"""fsck finds what somebody has planted in a store, and nothing in one that is sound; what it repairs is sound then."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from inspecting.scene import make_app, prepare
from inspecting.vandals import OnPostgres, OnRedis, OnSqlite, Vandal, vandal_of
from msgspec.structs import replace
from worlds import Worlds

from perdure import App, BadValue, Context, Finding, Queue, Report, Signal, Topic, timer
from perdure.inspecting.checking import Check
from perdure.model.records import (
    CANCEL_ON_PATH,
    DeadLetterRecord,
    ItemRecord,
    KeyRecord,
    ParkedRecord,
    SignalRecord,
    StreamRecord,
    SubscriptionRecord,
    WatcherRecord,
)
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.redis.store import RedisStore
from perdure.store.sqlite.store import SqliteStore

DAY = 86_400 * 1_000_000


# --- what is planted ---------------------------------------------------------------------------------

Plant = Callable[[Vandal, Store], Awaitable[None]]


async def _run(store: Store, run_id: str) -> Any:
    run = await store.run(run_id)
    assert run is not None
    return run


async def _watcher(store: Store, run_id: str, kind: str) -> WatcherRecord:
    (found,) = [one for one in await store.waiting(run_id) if one.kind == kind]
    return found


async def _step(store: Store, run_id: str, kind: str, nth: int = 0) -> Any:
    return [one for one in await store.history(run_id) if one.kind == kind][nth]


def buffered(run_id: str, name: str, signal_id: str = "planted", **fields: Any) -> SignalRecord:
    return SignalRecord(
        **{
            **{"signal_id": signal_id, "position": 10**6, "run_id": run_id, "name": name},
            **{"path": None, "payload": "5", "policy": "all", "on_end": "discard"},
            **{"received_at": 1, **fields},
        }
    )


async def no_watcher(vandal: Vandal, store: Store) -> None:
    await vandal.drop(await _watcher(store, "waiter", "signal"))


async def wrong_status(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "sleeper"), status="waiting"))


async def not_claimable(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "later"), ready_at=None))


async def watching_after_its_end(vandal: Vandal, store: Store) -> None:
    watcher = await _watcher(store, "waiter", "signal")
    await vandal.add(replace(watcher, run_id="ended", path="go#9", deadline_at=None))


async def signal_after_its_end(vandal: Vandal, store: Store) -> None:
    await vandal.add(buffered("ended", "go"))


async def no_end(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "ended"), finished_at=None))


async def owner_without_fence(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), owner="ghost"))


async def dead_owner(vandal: Vandal, store: Store) -> None:
    run = await _run(store, "waiter")
    await vandal.put(replace(run, status="running", owner="ghost", fence=7))
    await _owned(vandal, "ghost")


async def nobodys(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), status="running", owner=None, fence=0))
    await _owned(vandal, "")


async def _owned(vandal: Vandal, owner: str) -> None:
    """Redis finds by an index what dead workers left."""
    if isinstance(vandal, OnRedis):
        await vandal.execute("ZADD", vandal.key("owned", owner), "0", "waiter")
        await vandal.execute("SADD", vandal.key("owners"), owner)


async def no_winner(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "ended", "wait"), winner=None))


async def won_by_nothing(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "ended", "wait"), winner=9))


async def waits_for_gibberish(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "ended", "wait"), wait="{"))


async def asks_gibberish(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _watcher(store, "asker", "approval"), asks="{"))


async def no_row_at_all(vandal: Vandal, store: Store) -> None:
    step = await _step(store, "ended", "wait")
    await vandal.put(replace(step, kind="nonsense"))


async def watcher_of_nothing(vandal: Vandal, store: Store) -> None:
    await vandal.add(replace(await _watcher(store, "waiter", "signal"), path="nowhere"))


async def another_deadline(vandal: Vandal, store: Store) -> None:
    watcher = await _watcher(store, "waiter", "signal")
    await vandal.put(replace(watcher, deadline_at=(watcher.deadline_at or 0) + 1))


async def lost_signal(vandal: Vandal, store: Store) -> None:
    await vandal.add(buffered("waiter", "go"))


async def lost_end(vandal: Vandal, store: Store) -> None:
    watcher = await _watcher(store, "waiter", "signal")
    await vandal.put(replace(watcher, kind="run", target="ended"))


async def lost_item(vandal: Vandal, store: Store) -> None:
    item = ItemRecord(item_id="planted", position=10**6, queue="jobs", payload="5", put_at=1)
    await vandal.add(item)


async def lost_event(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _watcher(store, "listener", "topic"), after=0))


async def beyond_the_ledger(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _watcher(store, "listener", "topic"), after=10**6))


async def decided_and_buffered(vandal: Vandal, store: Store) -> None:
    (told,) = await store.events(0, 10, type="signal.delivered")
    await vandal.add(buffered("waiter", "other", told.event_id))


async def taken_and_buffered(vandal: Vandal, store: Store) -> None:
    step = await _step(store, "ended", "wait")
    await vandal.add(buffered("ended", "go", step.taken_id))


async def two_in_a_slot(vandal: Vandal, store: Store) -> None:
    for nth in range(2):
        signal = buffered("waiter", "x", f"planted-{nth}", policy="latest", position=10**6 + nth)
        await vandal.add(signal)


async def letter_and_fact(vandal: Vandal, store: Store) -> None:
    (told,) = await store.events(0, 10, type="signal.delivered")
    await vandal.add(
        DeadLetterRecord(
            **{"dead_letter_id": told.event_id, "run_id": "ended", "name": "go", "path": None},
            **{"payload": "1", "policy": "latest", "on_end": "discard", "reason": "planted"},
            **{"received_at": 1, "dead_at": 2},
        )
    )


async def superseded_and_living(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "ended", "wait"), state="superseded"))


async def number_given_twice(vandal: Vandal, store: Store) -> None:
    first = await _step(store, "ended", "wait")
    await vandal.put(replace(await _step(store, "ended", "wait", 1), seq=first.seq))


async def open_with_a_number(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "waiter", "wait"), seq=10**6))


async def taken_and_queued(vandal: Vandal, store: Store) -> None:
    step = await _step(store, "ended", "wait", 1)
    put = ItemRecord(item_id=step.taken_id, position=10**6, queue="q", payload="2", put_at=1)
    await vandal.add(put)


async def another_value(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _step(store, "ended", "wait", 2), value="4"))


async def gap(vandal: Vandal, store: Store) -> None:
    events = await store.events(0, 1000)
    await vandal.drop(events[len(events) // 2])


async def consumer_beyond(vandal: Vandal, store: Store) -> None:
    (consumer,) = [one for one in await store.consumers() if one.name == "reader"]
    await vandal.put(replace(consumer, position=10**6))


async def consumer_before(vandal: Vandal, store: Store) -> None:
    (consumer,) = [one for one in await store.consumers() if one.name == "reader"]
    await vandal.put(replace(consumer, position=-5))


async def consumer_with_half_an_owner(vandal: Vandal, store: Store) -> None:
    (consumer,) = [one for one in await store.consumers() if one.name == "reader"]
    await vandal.put(replace(consumer, owner="ghost", fence=0))


async def subscription_beyond(vandal: Vandal, store: Store) -> None:
    rule = SubscriptionRecord(name="r", pattern="a.b", workflow="waiter", position=10**6)
    await vandal.add(rule)


async def parked_nowhere(vandal: Vandal, store: Store) -> None:
    await vandal.add(
        ParkedRecord(
            **{"consumer": "reader", "position": 2, "event_id": "planted", "type": "a.b"},
            **{"reason": "planted", "attempts": 1, "parked_at": 1},
        )
    )


async def schedule_never_due(vandal: Vandal, store: Store) -> None:
    (schedule,) = await store.schedules("", 10)
    await vandal.put(replace(schedule, due_at=None))


async def schedule_too_late(vandal: Vandal, store: Store) -> None:
    (schedule,) = await store.schedules("", 10)
    await vandal.put(replace(schedule, due_at=schedule.next_at + 1))


async def schedule_tick_twice(vandal: Vandal, store: Store) -> None:
    (schedule,) = await store.schedules("", 10)
    await vandal.put(replace(schedule, queued="[1,1]"))


async def no_such_pool(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), pool="gone"))


async def waits_in_line(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), line_at=1, pool="gone"))


async def watched_over_after_its_end(vandal: Vandal, store: Store) -> None:
    watcher = await _watcher(store, "listener", "topic")
    await vandal.add(replace(watcher, run_id="ended", path=CANCEL_ON_PATH, after=10**3))


async def not_watched_over(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), cancel_on='[["a.b",""]]'))


async def no_deadline_watched(vandal: Vandal, store: Store) -> None:
    await vandal.put(replace(await _run(store, "waiter"), deadline_at=10**17))


async def no_alarm(vandal: Vandal, store: Store) -> None:
    await vandal.drop(await _watcher(store, "asker", "alarm"))


async def set_aside_and_parked(vandal: Vandal, store: Store) -> None:
    alarm, asking = [await _watcher(store, "asker", kind) for kind in ("alarm", "approval")]
    await vandal.drop(alarm)
    await vandal.add(replace(asking, kind="asked", ix=alarm.ix))


async def stream_too_long(vandal: Vandal, store: Store) -> None:
    await vandal.put(StreamRecord(run_id="ended", stream="lines", last=5, bytes_all=10))


async def rows_of_no_run(vandal: Vandal, store: Store) -> None:
    if isinstance(vandal, OnRedis):
        await vandal.drop_run("sleeper")
    else:
        await vandal.drop(await _run(store, "sleeper"))


async def old_key(vandal: Vandal, store: Store) -> None:
    key = KeyRecord(
        **{"scope": "emit/a.b", "key": "old", "digest": "", "answer": "null", "run_id": None},
        **{"created_at": 1, "expires_at": 2},
    )
    await vandal.add(key)
    if isinstance(vandal, OnRedis):
        member = f"{2 + 10**17:018d}emit/a.b\0old"
        await vandal.execute("ZADD", vandal.key("keys", "expiry"), "0", member)
        await vandal.execute("HINCRBY", vandal.key("counts"), "keys", "1")


# What is planted, what is to be found, and whether a repair sets it right.
PLANTED: list[tuple[Plant, str, bool]] = [
    (no_watcher, "R5", True),
    (no_watcher, "W2", True),
    (wrong_status, "R5", True),
    (not_claimable, "R6", True),
    (watching_after_its_end, "R7", True),
    (signal_after_its_end, "R7", False),
    (no_end, "R1", False),
    (owner_without_fence, "F4", False),
    (dead_owner, "F4", True),
    (nobodys, "R5", True),
    (no_winner, "W1", False),
    (won_by_nothing, "W1", False),
    (waits_for_gibberish, "W1", False),
    (asks_gibberish, "H1", False),
    (watcher_of_nothing, "W2", True),
    (another_deadline, "T1", True),
    (lost_signal, "W4", True),
    (lost_end, "W4", True),
    (lost_item, "W4", True),
    (lost_event, "W4", True),
    (beyond_the_ledger, "W7", False),
    (decided_and_buffered, "S1", False),
    (taken_and_buffered, "S2", False),
    (two_in_a_slot, "B1", False),
    (letter_and_fact, "S1", False),
    (superseded_and_living, "R2", False),
    (number_given_twice, "R3", False),
    (open_with_a_number, "R3", False),
    (taken_and_queued, "Q2", False),
    (another_value, "E2", False),
    (consumer_beyond, "L7", False),
    (consumer_before, "L9", False),
    (consumer_with_half_an_owner, "F4", False),
    (subscription_beyond, "L7", False),
    (parked_nowhere, "L7", False),
    (schedule_never_due, "T1", False),
    (schedule_too_late, "T1", False),
    (schedule_tick_twice, "T1", False),
    (no_such_pool, "P4", False),
    (waits_in_line, "P1", False),
    (watched_over_after_its_end, "O1", True),
    (not_watched_over, "O2", False),
    (no_deadline_watched, "O3", False),
    (no_alarm, "H1", True),
    (set_aside_and_parked, "H2", True),
    (stream_too_long, "M1", False),
    (rows_of_no_run, "X3", False),
    (old_key, "K3", True),
]


def found(report: Report, invariant: str) -> list[Finding]:
    return [one for one in report.findings if one.invariant == invariant]


@pytest.mark.parametrize(
    ("plant", "invariant", "repairable"),
    PLANTED,
    ids=[f"{plant.__name__}-{invariant}" for plant, invariant, _ in PLANTED],
)
async def test_what_is_planted_is_found(
    world: Worlds, plant: Plant, invariant: str, repairable: bool
) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        assert (await stage.app.fsck()).findings == []
        await plant(vandal_of(stage.store), stage.store)
        report = await stage.app.fsck()
        findings = found(report, invariant)
        assert findings, report.findings
        assert all(one.repairable == repairable and one.what and one.advice for one in findings)
        # To look changes nothing.
        assert found(await stage.app.fsck(), invariant) == findings


REPAIRED = [plant for plant, _, repairable in PLANTED if repairable]


@pytest.mark.parametrize("plant", dict.fromkeys(REPAIRED), ids=lambda plant: plant.__name__)
async def test_what_is_repaired_is_sound(world: Worlds, plant: Plant) -> None:
    """On Redis but for the indexes that the vandal left as they were."""
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        await plant(vandal_of(stage.store), stage.store)
        report = await stage.app.fsck(repair=True)
        assert report.repaired
        left = [one for one in report.findings if one.invariant not in ("X4", "C1")]
        assert left == []
        if world.kind in ("sqlite", "postgres"):
            assert report.findings == []
            assert (await stage.app.fsck(repair=True)).repaired == []


async def test_a_run_that_missed_its_signal_goes_on_after_the_repair(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        await lost_signal(vandal_of(stage.store), stage.store)
        if isinstance(stage.store, RedisStore):
            vandal = OnRedis(stage.store)
            await vandal.execute("HSET", vandal.key("signal_ids"), "planted", "waiter")
        report = await stage.app.fsck(repair=True)
        assert [one.invariant for one in report.repaired] == ["W4"]
        assert report.repaired[0].run_id == "waiter"
    async with world(app) as stage:
        await stage.settle()
        assert await stage.app.run("waiter").result() == 5
        report = await stage.app.fsck()
        assert [one for one in report.findings if one.invariant != "C1"] == []


@pytest.mark.parametrize("at_once", [1, 1000])
async def test_deadlines_that_nobody_acts_on_are_told_and_acted_on(
    world: Worlds, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: an op takes a bounded number of them."""
    monkeypatch.setattr("perdure.model.limits.batch_ops_max", at_once)
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        world.clock.set(world.clock.now() + 31 * DAY)
        report = await stage.app.fsck()
        (finding,) = found(report, "T4")
        assert finding.severity == "warning"
        assert report.ok
        report = await stage.app.fsck(repair=True)
        assert "T4" in [one.invariant for one in report.repaired]
        assert await stage.app.run("sleeper").status() == "ready"
        assert found(await stage.app.fsck(), "T4") == []


# --- what only a store can see -----------------------------------------------------------------------


@pytest.mark.parametrize("world", ["redis"], indirect=True)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("ZREM", "runs:status:waiting", "0", "*"), "is not in"),
        (("ZADD", "deadlines", "0", "100000000000000009ghost\0w\000000"), "does not ask for it"),
        (("SADD", "children:ghost", "ended"), "does not ask for it"),
        (("SADD", "queues", "nothing"), "which holds nothing"),
        (("SREM", "ready_names", "waiter:1"), "is not named in"),
        (("HSET", "signal_ids", "ghost", "waiter"), "has no such signal"),
        (("HDEL", "signal_ids", "*"), "is not in"),
        (("SET", "what:is:this", "1"), "is none of a namespace"),
        (("ZADD", "topic:a\0b/1", "7", "07"), "does not ask for it"),
        (("HSET", "event_ids", "ghost", "1"), "events have"),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one[:2]).replace("\0", "_"),
)
async def test_indexes_on_redis(world: Worlds, command: tuple[str, ...], words: str) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal = vandal_of(stage.store)
        assert isinstance(vandal, OnRedis)
        kind, key, *rest = command
        if rest[-1] == "*" and kind == "ZREM":
            rest = (await vandal.execute("ZRANGE", vandal.key(key), "0", "0"))[:1]
        elif rest[-1] == "*":
            rest = (await vandal.execute("HKEYS", vandal.key(key)))[:1]
        await vandal.execute(kind, vandal.key(key), *rest)
        report = await stage.app.fsck()
        assert any(words in one.what for one in found(report, "X4")), report.findings
        assert not report.ok


@pytest.mark.parametrize("world", ["redis"], indirect=True)
async def test_counts_on_redis(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal = vandal_of(stage.store)
        assert isinstance(vandal, OnRedis)
        await vandal.execute("HINCRBY", vandal.key("counts"), "steps", "1")
        (finding,) = found(await stage.app.fsck(), "C1")
        assert "steps" in finding.what


@pytest.mark.parametrize("world", ["redis"], indirect=True)
async def test_an_item_that_only_the_index_has(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal = vandal_of(stage.store)
        assert isinstance(vandal, OnRedis)
        await vandal.execute("ZADD", vandal.key("queue", "q"), "0", f"{1:016d}ghost")
        await vandal.execute("SADD", vandal.key("queues"), "q")
        report = await stage.app.fsck()
        assert found(report, "Q1") and found(report, "X4")


@pytest.mark.parametrize("world", ["memory"], indirect=True)
async def test_indexes_in_memory(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        assert isinstance(stage.store, MemoryStore)
        stage.store.tables.waiting_for.clear()
        stage.store.tables.signal_ids.clear()
        assert len(found(await stage.app.fsck(), "X4")) == 2


@pytest.mark.parametrize("world", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_gap_in_the_ledger(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        events = await stage.store.events(0, 1000)
        await vandal_of(stage.store).drop(events[5])
        (finding,) = found(await stage.app.fsck(), "L1")
        assert finding.position == events[5].position
        await vandal_of(stage.store).drop(events[-1])
        assert len(found(await stage.app.fsck(), "L1")) == (1 if world.kind == "sqlite" else 2)


async def test_a_run_that_cannot_be_mended_keeps_no_other_from_it(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal = vandal_of(stage.store)
        await no_watcher(vandal, stage.store)
        asked = await _watcher(stage.store, "asker", "approval")
        await vandal.put(replace(asked, asks="{"))
        await vandal.add(replace(asked, path="nowhere"))
        report = await stage.app.fsck(repair=True)
        assert {one.run_id for one in report.repaired} == {"waiter"}
        assert {one.run_id for one in report.findings if one.invariant == "W2"} == {"asker"}


@pytest.mark.parametrize("world", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_row_that_cannot_be_read(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        await no_row_at_all(vandal_of(stage.store), stage.store)
        await no_watcher(vandal_of(stage.store), stage.store)
        report = await stage.app.fsck()
        assert [one.run_id for one in found(report, "X6")] == ["ended"]
        assert [one.run_id for one in found(report, "R5")] == ["waiter"]  # the others are read


async def test_a_run_whose_own_row_cannot_be_read(world: Worlds) -> None:
    """In memory a row is an object, and any status can be read: it is told for what it is."""
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal, store = vandal_of(stage.store), stage.store
        await no_watcher(vandal, store)
        bogus: Any = "bogus"
        await vandal.put(replace(await _run(store, "ended"), status=bogus))
        invariant = "R1" if isinstance(store, MemoryStore) else "X6"
        for repair in (False, True):
            report = await stage.app.fsck(repair=repair)
            findings = [one for one in found(report, invariant) if one.path != "the store itself"]
            assert {one.run_id for one in findings} == {"ended"} and not report.ok
            assert not any(one.repairable for one in findings)
            if not repair:
                assert [one.run_id for one in found(report, "R5")] == ["waiter"]
                assert report.checked["runs"] == 7
        assert [one.run_id for one in report.repaired if one.invariant == "R5"] == ["waiter"]


async def test_a_run_that_others_wait_for_and_that_cannot_be_read(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal, store = vandal_of(stage.store), stage.store
        await lost_end(vandal, store)
        await vandal.put(replace(await _run(store, "ended"), finished_at=None))
        bogus: Any = "bogus"
        await vandal.put(replace(await _run(store, "ended"), status=bogus))
        report = await stage.app.fsck()
        assert "ended" in [one.run_id for one in report.findings]


@pytest.mark.parametrize("world", ["sqlite", "postgres", "redis"], indirect=True)
async def test_rows_of_other_tables_that_cannot_be_read(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal, store = vandal_of(stage.store), stage.store
        await no_watcher(vandal, store)
        bogus: Any = "bogus"
        letter = DeadLetterRecord(
            **{"dead_letter_id": "planted", "run_id": "ended", "name": "go", "path": None},
            **{"payload": "1", "policy": bogus, "on_end": "discard", "reason": "planted"},
            **{"received_at": 1, "dead_at": 2},
        )
        await vandal.add(letter)
        report = await stage.app.fsck()
        assert "dead letters" in [one.path for one in found(report, "X6")]
        assert any("dead letters" in one for one in report.unjudged)
        assert [one.run_id for one in found(report, "R5")] == ["waiter"]  # all else is looked at


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
async def test_a_damaged_file(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        assert isinstance(stage.store, SqliteStore)
        damage = "update sqlite_schema set sql = replace(sql, 'is not null', 'is null') where name = 'runs_finished'"
        vandal = OnSqlite(stage.store)
        vandal.execute(("pragma writable_schema = 1", ()), (damage, ()))
    async with world(app, worker=False) as stage:
        findings = found(await stage.app.fsck(), "X5")
        assert findings and "runs_finished" in findings[0].what
        assert "backup" in findings[0].advice


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
async def test_an_event_on_its_way_that_is_not_there(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        vandal = vandal_of(stage.store)
        if isinstance(vandal, OnSqlite):
            vandal.execute(("insert into fan_outs values (?)", (10**6,)))
        else:
            assert isinstance(vandal, OnPostgres)
            await vandal.execute(f"insert into {vandal._schema}.fan_outs values ($1)", 10**6)
        assert found(await stage.app.fsck(), "X4")


# --- sound stores ------------------------------------------------------------------------------------


def random_app(chance: random.Random) -> App:
    """Runs that do everything that leaves rows, at random."""
    app = App("memory://")
    a, b = Signal("a", int), Signal("b", int, buffer="all")
    numbers, news = Queue("numbers", int), Topic("news", int)

    @app.step
    async def flaky(n: int) -> int:
        if chance.random() < 0.3:
            raise ValueError("by chance")
        return n

    @app.workflow
    async def child(ctx: Context, n: int) -> int:
        await ctx.wait(a | timer("1h"))
        return n

    @app.workflow
    async def wild(ctx: Context, n: int) -> int:
        await ctx.publish("lines", n)
        await ctx.set("n", n)
        value = await ctx.step(flaky, n)
        await ctx.wait(a | b | numbers | news | timer("2h"))
        await ctx.gather(ctx.call(child, n), ctx.sleep("30m"))
        await ctx.wait(b | timer("1d"))
        return value

    return app


async def storm(stage: Any, chance: random.Random, rounds: int) -> None:
    for nth in range(rounds):
        run_id = f"r{chance.randrange(nth // 2 + 1)}"
        what = chance.randrange(10)
        try:
            match what:
                case 0 | 1 | 2:
                    await stage.app.start("wild", nth, id=f"r{nth // 2}", tags={"n": str(nth % 3)})
                case 3 | 4:
                    await stage.app.signal(run_id, chance.choice("ab"), nth)
                case 5:
                    await stage.app.put("numbers", nth)
                case 6:
                    await stage.app.emit("news", nth, key=f"k{nth % 7}")
                case 7:
                    await stage.app.run(run_id).pause()
                case 8:
                    await stage.app.run(run_id).resume()
                case 9:
                    await stage.app.run(run_id).cancel()
        except Exception as error:  # refused, by what the run is at that moment
            assert type(error).__module__.startswith("perdure"), error


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_sound_store_has_no_finding(world: Worlds, seed: int) -> None:
    chance = random.Random(seed)
    app = random_app(chance)
    async with world(app) as stage:
        for _ in range(4):
            await storm(stage, chance, 25)
            report = await stage.app.fsck()
            assert (report.findings, report.repaired) == ([], [])
            await stage.advance("40m")
            assert (await stage.app.fsck(repair=True)).findings == []
        assert report.ok and report.checked["runs"] > 10 and report.checked["events"] > 30
        assert (await stage.app.prune("0s")) > 0
        assert (await stage.app.fsck()).findings == []
    async with world(app, worker=False) as stage:
        assert (await stage.app.fsck()).findings == []


async def test_a_busy_store_has_no_finding(world: Worlds) -> None:
    chance = random.Random(7)
    app = random_app(chance)
    async with world(app) as stage:
        going = asyncio.create_task(storm(stage, chance, 400))
        looks = 0
        while not going.done() or looks < 2:
            report = await stage.app.fsck()
            assert report.findings == []
            looks += 1
        await going


@pytest.mark.parametrize("world", ["sqlite", "postgres", "redis"], indirect=True)
async def test_what_is_trimmed_meanwhile_is_no_finding(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.inspecting.checking._rows_part", 100)
    app = App("memory://")
    async with world(app, worker=False) as stage:
        await stage.app.emit_many([("news", nth) for nth in range(1_000)])

        async def trim() -> None:
            for keep in range(1_000, 0, -5):
                await stage.app.trim_ledger(keep=keep, force=True)

        going = asyncio.create_task(trim())
        while not going.done():
            assert (await stage.app.fsck()).findings == []
        await going


@pytest.mark.parametrize("world", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_queue_that_is_in_use_is_no_finding(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many items as before are not the same items."""
    monkeypatch.setattr("perdure.inspecting.checking._rows_part", 1)
    monkeypatch.setattr("perdure.inspecting.checking._pause_s", 0)
    numbers = Queue("numbers", int)
    app = App("memory://")

    @app.workflow
    async def take(ctx: Context) -> int:
        return await ctx.wait(numbers)

    async with world(app) as stage:
        await asyncio.gather(*(stage.app.put(numbers, nth) for nth in range(8)))

        async def use() -> None:
            for nth in range(60):
                await asyncio.gather(stage.app.start(take), stage.app.put(numbers, nth))

        going = asyncio.create_task(use())
        while not going.done():
            check = Check(stage.store, lambda: 0, None)
            assert [one async for one in check._twice(check._items)] == []
        await going


async def test_progress_is_told(world: Worlds) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        told: list[tuple[str, int]] = []
        report = await stage.app.fsck(progress=lambda what, count: told.append((what, count)))
        assert dict(told) == report.checked
        counts = await stage.app.counts()
        assert {name: report.checked[name] for name in ("runs", "steps", "watchers", "events")} == {
            name: counts[name] for name in ("runs", "steps", "watchers", "events")
        }
        with pytest.raises(BadValue, match="progress"):
            await stage.app.fsck(progress="loud")  # type: ignore[arg-type]


async def test_it_tells_no_more_than_a_bound(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        await no_watcher(vandal_of(stage.store), stage.store)
        monkeypatch.setattr("perdure.model.limits.findings_max", 1)
        report = await stage.app.fsck()
        assert report.truncated and len(report.findings) == 1


async def test_what_no_report_had_room_for_is_not_repaired(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        await no_watcher(vandal_of(stage.store), stage.store)

        async def in_vain(coordinator: Any, found: Any, now: Any) -> None:
            """Nothing is set right, and something else is wrong by then, which is found before it."""
            run = await _run(stage.store, "ended")
            await vandal_of(stage.store).put(replace(run, finished_at=None))

        monkeypatch.setattr("perdure.inspecting.mending._repair", in_vain)
        monkeypatch.setattr("perdure.model.limits.findings_max", 1)
        report = await stage.app.fsck(repair=True)
        assert report.truncated and len(report.findings) == 1
        assert report.repaired == []


async def test_many_pages(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.inspecting.checking._runs_part", 2)
    monkeypatch.setattr("perdure.inspecting.checking._rows_part", 3)
    monkeypatch.setattr("perdure.store.redis.drift._part", 2)
    app = make_app()
    await prepare(world, app)
    async with world(app, worker=False) as stage:
        report = await stage.app.fsck()
        assert report.findings == []
        assert report.checked["runs"] == 7
        await lost_item(vandal_of(stage.store), stage.store)
        assert [one.run_id for one in found(await stage.app.fsck(), "W4")] == ["taker"]
