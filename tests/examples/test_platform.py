"""Thirty days of the platform of design 004, with an outage, late events and planted trouble."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from event_platform import readers  # noqa: F401 (defines the consumers)
from event_platform.business import BOUNCING, SILENT, Business, Task, plan
from event_platform.records import Records
from event_platform.workflows import app

from perdure import Event
from perdure.model.topics import parse_pattern
from perdure.testing import World

DAYS = 30
OUTAGE = (20, 23)
DOWN = "customer_health_watcher"

# Name, schedule and patterns, as design 004 has them.
SCHEDULES = {
    "workflow_runner": "*/2 * * * *",
    "timeline_indexer": "0 * * * *",
    "anomaly_detector": "*/15 * * * *",
    "reflexion_analyzer": "*/30 * * * *",
    "customer_health_watcher": "*/5 * * * *",
    "price_storm": "*/15 * * * *",
    "silent_customer": "*/15 * * * *",
}
PATTERNS = {
    "timeline_indexer": ["**", "hitl.*", "workflow.*"],
    "anomaly_detector": ["email.*"],
    "reflexion_analyzer": ["hitl.rejected", "workflow.run_failed"],
    "customer_health_watcher": ["ar.*", "email.*", "order.*"],
}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_month(store: str, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/platform.db"
    records = Records()
    async with World(app, url, deps=[records], seed=1) as world:
        begin = world.clock.moment
        tasks = plan(begin, DAYS, seed=4)
        business = Business(world, tasks)

        await business.live(begin + timedelta(days=OUTAGE[0]))
        assert (await world.app.health()).status == "ok"
        await world.app.pause_consumer(DOWN, "the score service is down")
        await business.live(begin + timedelta(days=OUTAGE[1]))
        await check_outage(world)
        await world.app.resume_consumer(DOWN)
        await world.advance("5m")
        assert (await world.app.health()).status == "ok"
        await business.live(begin + timedelta(days=DAYS + 3))  # the last reviews run out

        events = await ledger(world)
        await check_cursors(world, len(events))
        check_plan(tasks, events)
        check_reading(records, events)
        await check_timelines(world, records, events)
        await check_runs(world, events)
        check_findings(events)
        health = await world.app.health()
        assert (health.status, health.parked, health.deferred, health.dead_letters) == (
            "ok",
            0,
            0,
            0,
        )
    records.close()


async def ledger(world: World) -> list[Event]:
    found: list[Event] = []
    cursor = None
    while True:
        page = await world.app.events(limit=1000, after=cursor)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found


async def check_outage(world: World) -> None:
    """Three days are noticed, and told once."""
    health = await world.app.health()
    down = next(one for one in health.consumers if one.name == DOWN)
    assert health.status == "degraded" and len(health.reasons) == 1
    assert down.stalled and down.paused and down.reason == "the score service is down"
    assert down.lag > 0 and down.behind_s > 2 * 24 * 3600
    (told,) = await world.app.events("ledger.consumer_stalled")
    assert told.payload == {"consumer": DOWN, "position": down.position}


async def check_cursors(world: World, last: int) -> None:
    found = await world.app.consumers()
    assert {one.name: one.every for one in found} == SCHEDULES
    assert {one.name: (one.position, one.lag) for one in found} == dict.fromkeys(
        SCHEDULES, (last, 0)
    )
    assert {one.error for one in found} == {None}


def check_plan(tasks: list[Task], events: list[Event]) -> None:
    """Everything that was planned is on the ledger, and of every kind that the design names there is some."""
    planned = Counter(one.fact.topic.name for one in tasks if one.fact is not None)
    found = Counter(one.type for one in events)
    del planned["price.changed"]  # costs lead to more of them
    assert {topic: found[topic] for topic in planned} == planned
    named = "hitl.approved hitl.rejected hitl.deferred workflow.run_started workflow.run_completed"
    for topic in (*named.split(), "workflow.run_failed", "price.changed", *NAMED):
        assert found[topic], topic
    assert any(one.occurred_at < one.recorded_at for one in events)


NAMED = (
    "sync.tier_completed price.bid_line_changed price.quote_line_changed email.parsed email.bounced email.replied"
    " ar.bucket_moved ar.collection_sent customer.updated vendor.cost_changed item.created spec.updated"
).split()


def check_reading(records: Records, events: list[Event]) -> None:
    """Every reader saw every event of its patterns, once."""
    for reader, texts in PATTERNS.items():
        patterns = [parse_pattern(text) for text in texts]
        wanted = [
            event.position for event in events if any(one.matches(event.type) for one in patterns)
        ]
        assert records.seen(reader) == dict.fromkeys(wanted, 1), reader


async def check_timelines(world: World, records: Records, events: list[Event]) -> None:
    """What the index has, and what the ledger says, by when it happened: also of what was told late."""
    entities = {event.entity for event in events if event.entity is not None}
    late = 0
    for entity in sorted(entities):
        about = [event for event in events if event.entity == entity]
        expected = sorted(about, key=lambda one: (one.occurred_at, one.position))
        late += expected != about
        page = await world.app.timeline(entity, limit=1000)
        assert page.cursor is None and list(page) == expected
        indexed = [
            (one.position, one.type)
            for one in expected
            if not one.type.startswith(("signal.", "anomaly."))
        ]
        assert records.timeline("timeline_indexer", entity) == indexed
    assert late > 3


async def check_runs(world: World, events: list[Event]) -> None:
    """Each event started what subscribes to it, once, and nothing else was started."""
    expected = [
        *(("import_spec", one.event_id) for one in events if one.type == "spec.updated"),
        *(("reprice", one.event_id) for one in events if one.type == "vendor.cost_changed"),
        *(("price_review", one.event_id) for one in events if is_large_rise(one)),
    ]
    runs: list[Any] = []
    cursor = None
    while True:
        page = await world.app.runs(limit=1000, after=cursor)
        runs += page
        if (cursor := page.cursor) is None:
            break
    started = [(one.workflow, one.event_id) for one in runs]
    assert sorted(started) == sorted(expected)
    assert Counter(one.status for one in runs) == {"completed": len(runs) - 3, "failed": 3}
    # A cost led to a price, a price to a review, a review to a decision; the chain is on the ledger.
    decided = [one for one in events if one.type.startswith("hitl.")]
    assert len(decided) == sum(map(is_large_rise, events))
    assert {one.depth for one in decided} == {1, 2}


def is_large_rise(event: Event) -> bool:
    return event.type == "price.changed" and event.payload["new"] * 10 > event.payload["old"] * 11


def check_findings(events: list[Event]) -> None:
    """What was planted was found, and nothing else."""
    found = [
        (one.type, one.entity)
        for one in events
        if one.type.startswith("anomaly.") or one.type == "customer.unreachable"
    ]
    assert found == [
        ("customer.unreachable", BOUNCING),
        ("anomaly.price_storm", None),
        ("anomaly.silent_customer", SILENT),
    ]
    lessons = [one.payload["subject"] for one in events if one.type == "reflexion.lesson_learned"]
    assert sorted(lessons) == ["import_spec", "steep rise"]
    moved = [one for one in events if one.type in ("ar.bucket_moved", "ar.collection_sent")]
    mails = [one for one in events if one.type.startswith(("email.", "order."))]
    told = [one for one in events if one.type == "customer.health_changed"]
    assert {one.key for one in told} == {one.event_id for one in [*moved, *mails]}
    assert sum(1 for one in events if one.type == "ledger.consumer_stalled") == 1
