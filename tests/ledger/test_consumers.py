"""Consumers: every event once, in order, through crashes, failures and whatever operators do."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from worlds import ELSEWHERE

from perdure import (
    App,
    BadValue,
    Batch,
    CursorTooOld,
    Permanent,
    Retry,
    RetryAfter,
    UnknownConsumer,
)
from perdure.model import ops
from perdure.model.outcomes import Refusal


def numbers(app: App, name: str = "c", **options: Any) -> list[int]:
    """A consumer of `in.*` that keeps the payloads."""
    seen: list[int] = []

    @app.consumer(name, "in.*", **options)
    async def c(batch: Batch) -> None:
        seen.extend(event.payload for event in batch)

    return seen


async def row(w: Any, name: str = "c") -> Any:
    return next(one for one in await w.app.consumers() if one.name == name)


def count_commits(w: Any) -> list[Any]:
    found: list[Any] = []
    post = w.coordinator.post

    def counting(op: Any, *rest: Any) -> None:
        if isinstance(op, ops.AdvanceCursor | ops.ClaimConsumer):
            found.append(op)
        post(op, *rest)

    w.coordinator.post = counting
    return found


async def test_each_event_once_and_in_order(world: Any, app: App) -> None:
    seen = numbers(app, batch=3)
    other = numbers(app, "other")
    async with world(app) as w:
        for n in range(10):
            await w.emit_only("in.a" if n % 2 else "in.b", n)
            await w.emit_only("out.a", n)
        await w.settle()
        assert seen == other == list(range(10))
        for n in range(10, 13):
            await w.emit("in.a", n)
        assert seen == other == list(range(13))
    async with world(app) as w:
        await w.settle()
        assert seen == list(range(13))


async def test_where_a_new_consumer_begins(world: Any, app: App) -> None:
    async with world(app) as w:
        for n in range(3):
            await w.emit("in.a", n)
        await w.advance("1h")
        moment = w.clock.moment
        await w.emit("in.a", 3)
        second = (await w.facts("in.a"))[1].position
    everything = numbers(app, "a")
    new = numbers(app, "b", start="now")
    placed = numbers(app, "c", start=second)
    timed = numbers(app, "d", start=moment)
    late = numbers(app, "e", start=10**6)
    async with world(app) as w:
        await w.emit("in.a", 4)
        assert everything == [0, 1, 2, 3, 4]
        assert new == [4] and late == [4]
        assert placed == [2, 3, 4]
        assert timed == [3, 4]


async def test_batches_are_as_large_as_asked_for(world: Any, app: App) -> None:
    sizes: list[int] = []

    @app.consumer("c", "in.*", every="* * * * *", batch=4)
    async def c(batch: Batch) -> None:
        sizes.append(len(batch))

    async with world(app) as w:
        for n in range(10):
            await w.emit_only("in.a", n)
            await w.emit_only("out.a", n)
        await w.advance("1m")
        assert sizes == [4, 4, 2]


async def test_a_batch_is_gathered_over_many_events_of_others(world: Any, app: App) -> None:
    sizes: list[int] = []

    @app.consumer("c", "in.*", every="* * * * *")
    async def c(batch: Batch) -> None:
        sizes.append(len(batch))

    async with world(app) as w:
        new = [
            ops.NewEvent(event_id=f"e{n}", type="in.a" if n % 1000 == 0 else "out.a", payload="1")
            for n in range(2500)
        ]
        await w.coordinator.submit(ops.Emit(events=tuple(new)))
        await w.advance("1m")
        assert sizes == [3]
        assert (await row(w)).position >= 2500


async def test_events_of_another_process_are_found_by_the_poll(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app) as w:
        new = ops.NewEvent(event_id="e1", type="in.a", payload="1")
        head = w.store.head
        await w.store.apply("another", [ops.Emit(events=(new,))])
        w.store.head = head  # nobody here has heard of it
        await w.settle()
        assert seen == []
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert seen == [1]


async def test_a_rewind_by_another_process_is_found_by_the_poll(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.store.apply("another", [ops.SteerConsumer(name="c", position=0)])
        await w.settle()
        assert seen == [1]
        await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert seen == [1, 1]


async def test_a_rewind_that_nobody_heard_of_is_found_by_the_next_commit(
    world: Any, app: App
) -> None:
    seen, _ = fragile(app)
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.store.apply("another", [ops.SteerConsumer(name="c", position=0)])
        await w.emit("in.a", 2)
        assert seen == [1, 2, 1, 2]
        assert [one.payload for one in await w.facts("out.a")] == ["1", "1", "2"]


# --- crashes -----------------------------------------------------------------------------------------


async def test_a_crash_between_handler_and_cursor_loses_nothing_and_doubles_no_effect(
    world: Any, app: App
) -> None:
    called: list[int] = []
    crash = asyncio.Event()

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        for event in batch:
            batch.emit("out.a", event.payload)
        called.extend(event.payload for event in batch)
        if not crash.is_set():
            crash.set()
            # The power goes when everything is asked for and nothing committed.
            await asyncio.Event().wait()

    w = await world(app).__aenter__()
    await w.emit_only("in.a", 1)
    await crash.wait()
    await w.crash()
    async with world(app) as w:
        await w.settle()
        assert called == [1, 1]
        assert [one.payload for one in await w.facts("out.a")] == ["1"]


async def test_a_commit_that_fails_is_done_again(world: Any, app: App) -> None:
    called: list[int] = []

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        called.extend(event.payload for event in batch)
        for event in batch:
            batch.emit("out.a", event.payload)

    async with world(app) as w:
        apply = w.store.apply
        failed: list[Any] = []

        async def failing(batch_id: str, batch: Any, decided: Any = None) -> Any:
            if not failed and any(isinstance(op, ops.AdvanceCursor) and op.effects for op in batch):
                failed.append(batch)
                from perdure.store.base import BatchFailed

                raise BatchFailed("the disk is full")
            return await apply(batch_id, batch, decided)

        w.store.apply = failing
        try:
            await w.emit("in.a", 1)
            await w.advance("5s")
        finally:
            w.store.apply = apply
        assert failed and called == [1, 1]
        assert [one.payload for one in await w.facts("out.a")] == ["1"]


async def test_an_app_that_closes_in_the_midst_of_a_handler_has_not_failed(
    world: Any, app: App
) -> None:
    called: list[int] = []
    begun = asyncio.Event()

    @app.consumer("c", "in.*", retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        called.extend(event.payload for event in batch)
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    async with world(app) as w:
        await w.emit_only("in.a", 1)
        await begun.wait()
    async with world(app) as w:
        await w.settle()
        assert called == [1, 1]
        assert not await w.app.parked()
        assert (await row(w)).error is None


async def test_the_end_of_an_app_saves_how_far_it_has_read(world: Any, app: App) -> None:
    numbers(app)
    async with world(app) as w:
        for _ in range(3):
            await w.emit("out.a")
        assert (await row(w)).position == 0
    async with world(app) as w:
        assert (await row(w)).position == 3


# --- idle --------------------------------------------------------------------------------------------


async def test_events_of_no_interest_cost_no_commit_each(world: Any, app: App) -> None:
    numbers(app)
    async with world(app) as w:
        found = count_commits(w)
        for _ in range(50):
            await w.emit("out.a")
        assert found == []
        await w.advance("10s")
        assert len(found) == 2  # the consumer and the runner, once each
        assert (await row(w)).lag == 0
        await w.advance("1h")
        assert len(found) == 2


async def test_a_cursor_is_saved_after_many_events_of_no_interest(world: Any, app: App) -> None:
    numbers(app)
    async with world(app) as w:
        new = [ops.NewEvent(event_id=f"e{n}", type="out.a", payload="1") for n in range(1500)]
        await w.coordinator.submit(ops.Emit(events=tuple(new)))
        await w.settle()
        assert (await row(w)).position >= 1000


# --- failures ----------------------------------------------------------------------------------------


async def test_a_failing_batch_is_tried_again_by_the_clock(world: Any, app: App) -> None:
    calls: list[Any] = []

    @app.consumer("c", "in.*", retry=Retry(attempts=3, backoff="10s", jitter=0))
    async def c(batch: Batch) -> None:
        calls.append(w.clock.moment)
        batch.emit("out.a")
        if len(calls) < 3:
            raise RuntimeError("not yet")

    async with world(app) as w:
        await w.emit("in.a", 1)
        assert len(calls) == 1
        assert (await row(w)).error == "RuntimeError: not yet"
        await w.advance("1m")
        assert [(at - calls[0]) for at in calls] == [timedelta(seconds=n) for n in (0, 10, 30)]
        assert (await row(w)).error is None
        assert len(await w.facts("out.a")) == 1
        assert not await w.app.parked()


def fragile(app: App, **options: Any) -> tuple[list[int], set[int]]:
    """A consumer that fails for some numbers."""
    seen: list[int] = []
    bad: set[int] = set()

    @app.consumer("c", "in.*", **options)
    async def c(batch: Batch) -> None:
        for event in batch:
            if event.payload in bad:
                raise ValueError(f"{event.payload} is bad")
        seen.extend(event.payload for event in batch)
        for event in batch:
            batch.emit("out.a", event.payload)

    return seen, bad


async def test_one_bad_event_is_parked_and_the_others_go_on(world: Any, app: App) -> None:
    seen, bad = fragile(app, every="* * * * *", retry=Retry(attempts=2, backoff="1s"))
    bad.add(2)
    async with world(app) as w:
        for n in range(5):
            await w.emit_only("in.a", n)
        await w.advance("2m")
        assert seen == [0, 1, 3, 4]
        (parked,) = await w.app.parked()
        assert (parked.consumer, parked.type, parked.reason) == (
            "c",
            "in.a",
            "ValueError: 2 is bad",
        )
        assert parked.attempts == 3
        assert (await row(w)).lag == 0 or (await row(w)).position >= parked.position
        await w.emit_only("in.a", 5)
        await w.advance("1m")
        assert seen == [0, 1, 3, 4, 5]


async def test_a_handler_may_say_that_trying_again_is_of_no_use(world: Any, app: App) -> None:
    tried: list[list[int]] = []

    @app.consumer("c", "in.*", every="* * * * *", retry=Retry(attempts=5, backoff="1s"))
    async def c(batch: Batch) -> None:
        tried.append([event.payload for event in batch])
        if any(event.payload == 2 for event in batch):
            raise Permanent("no such account")

    async with world(app) as w:
        for n in range(4):
            await w.emit_only("in.a", n)
        await w.advance("1m")
        assert tried == [[0, 1, 2, 3], [0], [1], [2], [3]]
        (parked,) = await w.app.parked()
        assert (parked.reason, parked.attempts) == ("Permanent: no such account", 2)


async def test_a_handler_may_say_when_to_try_again(world: Any, app: App) -> None:
    tried: list[float] = []

    @app.consumer("c", "in.*", retry=Retry(attempts=3, backoff="1s", jitter=0))
    async def c(batch: Batch) -> None:
        tried.append(world.clock.monotonic())
        if len(tried) == 1:
            raise RetryAfter("90s")
        raise ValueError("as the policy says")

    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.advance("89s")
        assert len(tried) == 1
        await w.advance("1m")
        assert [at - tried[0] for at in tried] == [0, 90, 92]
        (parked,) = await w.app.parked()
        assert parked.attempts == 3


async def test_a_parked_event_is_fired_again_or_dropped(world: Any, app: App) -> None:
    seen, bad = fragile(app, retry=Retry(attempts=1))
    bad |= {1, 2}
    async with world(app) as w:
        first = await w.emit("in.a", 1)
        second = await w.emit("in.a", 2)
        assert len(await w.app.parked("c")) == 2 and not await w.app.parked("other")
        assert await w.app.refire("c", first.position) is False
        (again, _) = await w.app.parked()
        assert again.attempts == 2
        bad.clear()
        assert await w.app.refire("c", first.position) is True
        await w.settle()
        assert seen == [1]
        assert [one.payload for one in await w.facts("out.a")] == ["1"]
        with pytest.raises(BadValue, match="not parked"):
            await w.app.refire("c", first.position)
        assert await w.app.drop_parked("c", second.position) is True
        assert await w.app.drop_parked("c", second.position) is False
        assert not await w.app.parked()
        assert seen == [1]


async def test_parked_events_page(world: Any, app: App) -> None:
    _, bad = fragile(app, retry=Retry(attempts=1))
    bad |= set(range(5))
    async with world(app) as w:
        for n in range(5):
            await w.emit("in.a", n)
        page = await w.app.parked(limit=3)
        rest = await w.app.parked(limit=3, after=page.cursor)
        assert [len(page), len(rest)] == [3, 2] and rest.cursor is None


async def test_a_handler_that_cancels_itself_has_failed(world: Any, app: App) -> None:
    @app.consumer("c", "in.*", retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        raise asyncio.CancelledError

    async with world(app) as w:
        await w.emit("in.a")
        (parked,) = await w.app.parked()
        assert "Cancelled" in parked.reason


# --- dedupe ------------------------------------------------------------------------------------------


async def test_dedupe_skips_what_was_finished(world: Any, app: App) -> None:
    seen: list[Any] = []

    @app.consumer("c", "in.*", dedupe=True)
    async def c(batch: Batch) -> None:
        seen.extend(event.payload["n"] for event in batch)

    async with world(app) as w:
        await w.emit("in.a", {"n": 1}, key="k")
        await w.emit("in.b", {"n": 2}, key="k")
        await w.emit("in.a", {"n": 3, "idempotency_key": "k"})
        await w.emit("in.a", {"n": 4, "idempotency_key": "other"})
        await w.emit("in.a", {"n": 5, "idempotency_key": 7})
        await w.emit("in.a", {"n": 6, "idempotency_key": 7})
        await w.emit("in.a", {"n": 7})
        assert seen == [1, 4, 5, 6, 7]
        await w.app.rewind("c", "beginning")
        await w.settle()
        assert seen == [1, 4, 5, 6, 7, 5, 6, 7]


async def test_dedupe_within_a_batch_and_of_what_failed(world: Any, app: App) -> None:
    seen: list[Any] = []
    bad = [True]

    @app.consumer("c", "in.*", dedupe=True, every="* * * * *", retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        if bad[0]:
            raise RuntimeError
        seen.extend(event.payload for event in batch)

    async with world(app) as w:
        first = await w.emit_only("in.a", 1, key="k")
        await w.emit_only("in.b", 2, key="k")
        await w.advance("1m")
        assert len(await w.app.parked()) == 1
        bad[0] = False
        assert await w.app.refire("c", first.position)
        await w.emit_only("in.c", 3, key="k")
        await w.advance("1m")
        assert seen == [1]


# --- steering ----------------------------------------------------------------------------------------


async def test_pause_and_resume(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app) as w:
        await w.app.pause_consumer("c", "upgrade")
        await w.emit("in.a", 1)
        assert seen == []
        paused = await row(w)
        assert paused.paused and paused.reason == "upgrade" and paused.lag == 1
    async with world(app) as w:
        await w.settle()
        assert seen == []
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [1]
        assert (await row(w)).reason is None


async def test_a_pause_ends_the_tries_of_a_failing_batch(world: Any, app: App) -> None:
    seen, bad = fragile(app, retry=Retry(attempts=50, backoff="1m", factor=1))
    bad.add(1)
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.app.pause_consumer("c")
        bad.clear()
        await w.advance("1h")
        assert seen == []
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [1]


async def test_rewind_in_three_ways(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app) as w:
        first = await w.emit("in.a", 1)
        await w.advance("1h")
        moment = w.clock.moment
        await w.emit("in.a", 2)
        await w.advance("1h")
        await w.emit("in.a", 3)
        for to, again in [("beginning", [1, 2, 3]), (first.position, [2, 3]), (moment, [2, 3])]:
            seen.clear()
            await w.app.rewind("c", to)
            await w.settle()
            assert seen == again
        await w.app.pause_consumer("c")
        await w.app.rewind("c", "beginning")
        assert await w.app.rewind("c", "now") == 3
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [2, 3]


async def test_a_rewind_during_a_batch_wins_over_its_commit(world: Any, app: App) -> None:
    called: list[int] = []
    begun, go = asyncio.Event(), asyncio.Event()

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        called.extend(event.payload for event in batch)
        for event in batch:
            batch.emit("out.a", event.payload)
        if event.payload == 2 and not go.is_set():
            begun.set()
            await go.wait()

    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.emit_only("in.a", 2)
        await begun.wait()
        await w.app.rewind("c", "beginning")
        go.set()
        await w.settle()
        # What the batch asked for was not committed; both were read anew.
        assert called == [1, 2, 1, 2]
        assert [one.payload for one in await w.facts("out.a")] == ["1", "1", "2"]


async def test_a_consumer_that_nobody_knows(world: Any, app: App) -> None:
    async with world(app) as w:
        for steer in (w.app.pause_consumer, w.app.resume_consumer):
            with pytest.raises(UnknownConsumer):
                await steer("nobody")
        with pytest.raises(UnknownConsumer):
            await w.app.rewind("nobody", 0)
        with pytest.raises(BadValue):
            await w.app.rewind("workflow_runner", "soon")
        assert [one.name for one in await w.app.consumers()] == ["workflow_runner"]


async def test_a_reader_that_was_fenced_off_commits_nothing_and_goes_on_from_the_row(
    world: Any, app: App
) -> None:
    called: list[int] = []

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        called.append(batch[0].payload)
        batch.emit("out.a")

    async with world(app) as w:
        claim = ops.ClaimConsumer(name="c", worker_id=w.worker.worker_id, fence=7, patterns="[]")
        assert not isinstance(await w.coordinator.submit(claim), Refusal)
        await w.emit("in.a", 1)
        assert called == [1, 1]
        assert len(await w.facts("out.a")) == 1
        await w.emit("in.a", 2)
        assert called == [1, 1, 2]


async def test_another_live_owner_is_left_alone(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app, worker=False) as w:
        await w.claim_elsewhere("c")
    async with world(app) as w:
        await w.emit("in.a", 1)
        assert seen == [] and (await row(w)).owner == ELSEWHERE
        await w.coordinator.submit(ops.Beat(worker_id=ELSEWHERE, lease_us=0, stopping=True))
        await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert seen == [1] and (await row(w)).owner == w.worker.worker_id


# --- retention ---------------------------------------------------------------------------------------


async def test_a_cursor_that_is_too_old_pauses_with_the_reason(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app) as w:
        await w.app.pause_consumer("c")
        for n in range(5):
            await w.emit("in.a", n)
        trimmed = await w.app.trim_ledger(keep=2, force=True)
        assert trimmed.count == 3
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == []
        stuck = await row(w)
        assert stuck.paused and "oldest kept" in stuck.reason
        with pytest.raises(CursorTooOld):
            await w.app.rewind("c", 1)
        assert await w.app.rewind("c", "beginning") == 3
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [3, 4]


async def test_a_new_consumer_begins_with_the_oldest_kept_event(world: Any, app: App) -> None:
    async with world(app) as w:
        for n in range(5):
            await w.emit("in.a", n)
        await w.advance("1m")
        await w.app.trim_ledger(keep=2)
    seen = numbers(app)
    async with world(app) as w:
        await w.settle()
        assert seen == [3, 4]


async def test_a_client_runs_no_consumers(world: Any, app: App) -> None:
    seen = numbers(app)
    async with world(app, worker=False) as w:
        await w.emit("in.a", 1)
        assert seen == [] and await w.app.consumers() == []
        assert (await w.app.health()).status == "ok"
