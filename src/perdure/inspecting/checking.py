"""`fsck`: the state invariants, asked of a live store, in pages, writing nothing.

A store that others write to moves while it is read. Two things keep that from being taken for damage. A run comes with
all its rows from one moment (`Store.lives`), so what is wrong within it is wrong. And whatever is found is looked at a
second time, with a little pause before it, and told only if it is there again: what two reads of different moments
seemed to show is gone by then, since every op leaves all in order.

Which invariants of the reliability plan (kind S) are checked, and how:

| invariant | how |
|---|---|
| R2 one checkpoint per path | within each run; in SQL a unique index holds it besides |
| R3 numbers of a history | within each run: each given once, and only to what is decided |
| R5, R6, R7 | within each run |
| F4 owner, fence and a worker that lives | within each run, and against the workers that live |
| W1, W2 winner, checkpoint and watchers | within each run |
| W3, Q2 a loser consumed nothing, an item has one taker | what a wait took is in no queue any more |
| W4 no lost wake-up | buffered signals within each run; ended runs, items, events and deadlines against the store |
| S1, S2, S5, B1, B3 one disposition | within each run; buffers and dead letters against the ledger |
| E2 what ended a wait is what it stores | steps against the events that are kept |
| Q1 conservation | items against dead letters and takers; what was purged or has a pruned taker left facts at most |
| T2 one effect per timer | it is the wait's one winner: W1, W2 |
| L1, L5 dense positions, unique ids | all events in order, and each found by its id |
| L7, L9 cursors within the ledger | consumers, subscriptions, parked and deferred events, waits for topics |
| L10 one start per subscription and event | by construction: the run's key; starts put off are checked as L7 |
| L12 poison is put aside | by construction: one op parks the event and moves the cursor |
| C1 recovery finds nothing | that is this check; on Redis also the counts of rows |
| C5 a lost tail is a suffix | L1, and what cursors and waits point to: L7, W7 |
| C6 the schema is known | opening refuses all else |
| O, P, H, M, T | what stands over runs, pools, approvals, streams and schedules, as the tests have it |
| X3 rows of runs that are gone, X4 indexes, X5 the file | the store itself (`Store.flaws`) |
| X6 rows that cannot be read | runs that fail to load, one by one; of all else, that there are such rows |

B2, L4 and L11 are not checked: facts can be switched off (`lifecycle=False`) and trimmed, and what caused an event is
what its emitter says. F7 is about the memory of a process, not about a store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

import msgspec

from perdure.inspecting.findings import Finding, Found, Means, Progress, plain
from perdure.inspecting.invariants import Parts, Wrong, ends, won, wrong_with
from perdure.model import limits
from perdure.model.records import (
    DeadLetterRecord,
    EventRecord,
    RunRecord,
    SignalRecord,
    WatcherRecord,
)
from perdure.model.status import LIVE, TERMINAL
from perdure.store.base import Life, Look, Store

_runs_part: Final = 100
_rows_part: Final = 500
# Before the second look: a commit that was under way is through by then.
_pause_s: Final = 0.05
# A deadline that nobody acts on for so long: no worker is there, or none of them looks.
_overdue_us: Final = 60 * 1_000_000
# How a row that somebody else has written shows when it is decoded.
_unreadable: Final = (msgspec.DecodeError, ValueError)
# Keys that have run out are let go now and then; for so long only where nobody does it.
_keys_us: Final = 86_400 * 1_000_000


class Check:
    """One check of a store."""

    def __init__(self, store: Store, now: Callable[[], int], progress: Progress | None) -> None:
        self._store = store
        self._now = now
        self._progress = progress
        self.checked: dict[str, int] = {}
        self.unjudged: list[str] = []

    async def found(self) -> AsyncIterator[Found]:
        """All that is wrong, each of it seen twice."""
        for what, part in (
            ("runs", self._runs()),
            ("events", self._ledger()),
            ("dead letters", self._twice(self._letters)),
            ("queue items", self._twice(self._items)),
            ("consumers, subscriptions and what they put aside", self._twice(self._readers)),
            ("schedules", self._twice(self._schedules)),
            ("what is due", self._twice(self._due)),
            ("the store itself", self._flaws()),
        ):
            async for one in self._readable(what, part):
                yield one
            await asyncio.sleep(0)

    async def _readable(self, what: str, part: AsyncIterator[Found]) -> AsyncIterator[Found]:
        """What a part finds; and if it comes upon a row that cannot be read, that, instead of the rest of it."""
        try:
            async for one in part:
                yield one
        except _unreadable as error:
            said = f"{what}: a row cannot be read, it is not what this code, or any, has written"
            yield plain("X6", f"{said} ({error})", path=what)
            self._leave_unjudged(f"{what}: what comes after a row that cannot be read")

    def _leave_unjudged(self, what: str) -> None:
        if what not in self.unjudged:
            self.unjudged.append(what)

    def _count(self, what: str, number: int) -> None:
        self.checked[what] = self.checked.get(what, 0) + number
        if self._progress is not None:
            self._progress(what, self.checked[what])

    async def _twice(self, look: Callable[[bool], AsyncIterator[Found]]) -> AsyncIterator[Found]:
        """What a look finds, and finds again. The second one counts nothing."""
        first = {one.at: one async for one in look(True)}
        if not first:
            return
        await asyncio.sleep(_pause_s)
        async for one in look(False):
            if one.at in first:
                yield one

    # --- runs ---

    async def _runs(self) -> AsyncIterator[Found]:
        after, more = "", True
        while more:
            # Ids alone: a listing reads whole rows, and one that cannot be read would end the check.
            run_ids, after = await self._store.run_ids(after, _runs_part)
            async for one in self._page(run_ids):
                yield one
            self._count("runs", len(run_ids))
            await asyncio.sleep(0)  # others have their turn, also where no read waits for anything
            more = after != ""

    async def _page(self, run_ids: Sequence[str]) -> AsyncIterator[Found]:
        if not run_ids:
            return
        first = {one.at async for one in self._wrong_runs(run_ids, True)}
        if not first:
            return
        await asyncio.sleep(_pause_s)
        suspects = sorted({run_id for _, run_id, _, _ in first if run_id is not None})
        async for one in self._wrong_runs(suspects, False):
            if one.at in first:
                yield one

    async def _wrong_runs(self, run_ids: Sequence[str], counts: bool) -> AsyncIterator[Found]:
        lives, unread = await self._lives(run_ids)
        for run_id in unread:
            what = "its rows cannot be read: they are not what this code, or any, has written"
            yield plain("X6", what, run_id=run_id)
        if counts:
            for what in ("steps", "watchers", "signals", "streams"):
                self._count(what, sum(len(getattr(one, what)) for one in lives))
        for life in lives:
            for wrong in wrong_with(life):
                yield _of_run(life.run, wrong)
        # After the runs: whoever lives now may have claimed one of them.
        look = await self._store.look()
        for life in lives:
            for one in _lost_owners(life, look):
                yield one
        parts = [Parts(one) for one in lives]
        for what, among in (
            ("runs that others wait for", self._ended_targets(parts)),
            ("items that runs wait for", self._filled_queues(parts)),
            ("events that runs wait for", self._missed_events(parts, look)),
            ("facts about buffered signals", self._kept_twice(parts)),
            ("what waits took", self._taken(parts)),
            ("pools of runs", self._unknown_pools(lives)),
        ):
            async for one in self._as_far_as_readable(what, among):
                yield one

    async def _as_far_as_readable(
        self, what: str, among: AsyncIterator[Found]
    ) -> AsyncIterator[Found]:
        """What other rows say of runs. One of them that cannot be read is told where it belongs, not for each run."""
        try:
            async for one in among:
                yield one
        except _unreadable:
            self._leave_unjudged(f"{what}: some of the rows cannot be read")

    async def _lives(self, run_ids: Sequence[str]) -> tuple[list[Life], list[str]]:
        """These runs; and of those that cannot be read, the ids."""
        try:
            return await self._store.lives(run_ids), []
        except _unreadable:
            if len(run_ids) == 1:
                return [], list(run_ids)
        middle = len(run_ids) // 2
        first, second = await self._lives(run_ids[:middle]), await self._lives(run_ids[middle:])
        return first[0] + second[0], first[1] + second[1]

    async def _ended_targets(self, parts: list[Parts]) -> AsyncIterator[Found]:
        """W4: who waits for a run that has ended."""
        waits = [(life.run, one) for life in parts for one in life.watchers if one.kind == "run"]
        targets = sorted({one.target for _, one in waits})
        ended = {one.run_id: one for one in await self._store.ended(targets)} if targets else {}
        for run, watcher in waits:
            target = ended.get(watcher.target)
            if target is None or (target.status == "cancelled" and run.cancel_requested):
                continue
            if watcher.deadline_at is None or (target.finished_at or 0) <= watcher.deadline_at:
                what = f"waits at {watcher.path} for run {target.run_id!r}, which has ended"
                yield _missed(run, watcher, what)

    async def _filled_queues(self, parts: list[Parts]) -> AsyncIterator[Found]:
        """W4: who waits for a queue that has an item."""
        waits = [(life.run, one) for life in parts for one in life.watchers if one.kind == "queue"]
        for queue in sorted({one.target for _, one in waits}):
            items = await self._store.queue_items(queue, 0, 1)
            for run, watcher in waits if items else ():
                late = watcher.deadline_at is not None and items[0].put_at > watcher.deadline_at
                if watcher.target == queue and not late:
                    what = f"waits at {watcher.path} for queue {queue!r}, which has items"
                    yield _missed(run, watcher, what)

    async def _missed_events(self, parts: list[Parts], look: Look) -> AsyncIterator[Found]:
        """W4: who waits for an event that is there; W7: who waits for what comes after the end of the ledger."""
        for life in parts:
            for watcher in (*life.watchers, *life.standing):
                if watcher.after > look.last and watcher.after > (await self._store.span())[1]:
                    what = f"waits for what comes after {watcher.after}, and the ledger ends before"
                    yield _of_run(life.run, Wrong("W7", what, watcher.path))
                # While events are on their way to runs, nobody has missed them yet.
                if watcher.kind != "topic" or look.fan_out:
                    continue
                event_id = await self._next_event(watcher)
                if event_id is not None:
                    what = f"waits at {watcher.path} for event {event_id}, which is there"
                    yield _missed(life.run, watcher, what)

    async def _next_event(self, watcher: WatcherRecord) -> str | None:
        """The first event that should have ended a wait."""
        entity_type, _, entity_id = watcher.entity.partition("/")
        entity = (entity_type, entity_id) if watcher.entity else None
        after = watcher.after
        while True:
            page = await self._store.events(after, 10, type=watcher.target, entity=entity)
            for event in page:
                if ends(event, watcher):
                    return event.event_id
            # Positions and times go together: what comes later is no earlier.
            if len(page) < 10 or not all(one.repeated for one in page):
                return None
            after = page[-1].position

    async def _kept_twice(self, parts: list[Parts]) -> AsyncIterator[Found]:
        """S1: a buffered signal of which the ledger tells that it was decided."""
        kept = {one.signal_id: life.run for life in parts for one in life.signals}
        for begin in range(0, len(kept), _rows_part):
            ids = list(kept)[begin : begin + _rows_part]
            for signal_id in await self._store.positions_of(ids):
                event = await self._store.event(signal_id)
                if event is not None and event.type.startswith("signal."):
                    what = f"signal {signal_id} is in the buffer, and {event.type} tells of it"
                    yield _of_run(kept[signal_id], Wrong("S1", what, signal_id))

    async def _taken(self, parts: list[Parts]) -> AsyncIterator[Found]:
        """Q2: an item that a wait took and that is in its queue; E2: a wait with another value than its event."""
        items: dict[str, tuple[RunRecord, str]] = {}
        for life in parts:
            for step in life.steps:
                ended_by = won(step)
                if ended_by is None or step.taken_id is None:
                    continue
                if ended_by.kind == "queue" and step.superseded == 0:
                    items[step.taken_id] = (life.run, step.path)
                elif ended_by.kind == "topic" and step.error is None and step.superseded == 0:
                    event = await self._store.event(step.taken_id)
                    if event is None or event.recorded_at > (step.recorded_at or 0):
                        continue  # it was trimmed; its id may have been used anew
                    if (event.type, event.payload) != (ended_by.target, step.value):
                        what = f"has another value at {step.path} than event {event.event_id}"
                        yield _of_run(life.run, Wrong("E2", what, step.path))
        for item_id in await self._store.items_of(list(items)) if items else ():
            run, path = items[item_id]
            what = f"took item {item_id} at {path}, which is still in its queue"
            yield _of_run(run, Wrong("Q2", what, path))

    async def _unknown_pools(self, lives: list[Life]) -> AsyncIterator[Found]:
        """P4: the limits of a pool are a row."""
        used = {one.run.pool for one in lives if one.run.pool and one.run.status in LIVE}
        missing = used - {one.name for one in await self._store.pools()} if used else set()
        for life in lives:
            if life.run.pool in missing and life.run.status in LIVE:
                yield Found(
                    Finding(
                        invariant="P4",
                        what=f"is in pool {life.run.pool!r}, which is not there",
                        severity="error",
                        repairable=False,
                        advice=f"make the pool: app.set_pool({life.run.pool!r}, limit=…)",
                        run_id=life.run.run_id,
                    )
                )

    # --- the ledger and what is put aside ---

    async def _ledger(self) -> AsyncIterator[Found]:
        """L1, L5: every position from the oldest to the newest, and each event found by its id."""
        oldest, newest = await self._store.span()
        after = oldest - 1
        while after < newest:
            page = await self._store.events(after, _rows_part)
            expected = after + 1
            for event in page:
                if event.position != expected and not await self._is_gap_gone(expected):
                    what = (
                        f"no event is at position {expected}; the next one is at {event.position}"
                    )
                    yield plain("L1", what, position=expected)
                expected = event.position + 1
            if not page:
                if not await self._is_gap_gone(expected):
                    what = f"the ledger ends at {expected - 1}, and should at {newest}"
                    yield plain("L1", what, position=expected)
                return
            async for one in self._misfound(page):
                yield one
            self._count("events", len(page))
            after = page[-1].position

    async def _misfound(self, page: Sequence[EventRecord]) -> AsyncIterator[Found]:
        """L5: what is not found by its id, looked at twice; what was trimmed meanwhile is gone with its id."""
        positions = await self._store.positions_of([one.event_id for one in page])
        suspects = [one for one in page if positions.get(one.event_id) != one.position]
        if not suspects:
            return
        await asyncio.sleep(_pause_s)
        positions = await self._store.positions_of([one.event_id for one in suspects])
        for event in suspects:
            at = positions.get(event.event_id)
            there = await self._store.events(event.position - 1, 1)
            if at != event.position and [one.position for one in there] == [event.position]:
                what = f"event {event.event_id} at {event.position} is found at {at} by its id"
                yield plain("L5", what, position=event.position)

    async def _is_gap_gone(self, position: int) -> bool:
        """Whether what is missing was trimmed meanwhile, or is there after all."""
        await asyncio.sleep(_pause_s)
        oldest, _ = await self._store.span()
        page = await self._store.events(position - 1, 1)
        return position < oldest or bool(page and page[0].position == position)

    async def _letters(self, counts: bool) -> AsyncIterator[Found]:
        """S1: what was cut off by the end of a run is nowhere else."""
        after = ""
        while page := await self._store.dead_letters(None, after, _rows_part):
            after = page[-1].dead_letter_id
            if counts:
                self._count("dead_letters", len(page))
            for letter in page:
                found = await self._elsewhere(letter)
                if found is not None:
                    what = f"{letter.kind} {letter.dead_letter_id} is a dead letter, and {found}"
                    yield plain("S1", what, run_id=letter.run_id, path=letter.dead_letter_id)

    async def _elsewhere(self, letter: DeadLetterRecord) -> str | None:
        at = letter.dead_letter_id
        if letter.kind == "item":
            return "still in its queue" if await self._store.items_of([at]) else None
        if isinstance(await self._store.signal(at), SignalRecord):
            return "still in the buffer"
        # What was refused or left is a letter beside the fact of its delivery.
        event = await self._store.event(at) if letter.cause == "ended" else None
        told = event is not None and event.type.startswith("signal.")
        return f"{event.type} tells of it" if event is not None and told else None

    async def _items(self, counts: bool) -> AsyncIterator[Found]:
        """Q1: what queues hold is in them once, by their own count."""
        for queue, size in (await self._store.queues()).items():
            first, seen, last = 0, 0, 0
            while page := await self._store.queue_items(queue, last, _rows_part):
                first = first or page[0].position
                seen, last = seen + len(page), page[-1].position
            if counts:
                self._count("queue_items", seen)
            if seen != size and await self._is_still(queue, size, first, last):
                yield plain("Q1", f"queue {queue!r} has {size} items and shows {seen}", path=queue)

    async def _is_still(self, queue: str, size: int, first: int, last: int) -> bool:
        """Whether nothing was put or taken meanwhile: items come last and go first.

        The ends are looked at last: as they still are what they were, they were so when the size was asked for.
        """
        now = (await self._store.queues()).get(queue, 0)
        head = await self._store.queue_items(queue, 0, 1)
        tail = await self._store.queue_items(queue, max(last - 1, 0), 2)
        ends = [one.position for one in (*head, *tail)]
        return now == size and ends == ([first, last] if last else [])

    async def _readers(self, counts: bool) -> AsyncIterator[Found]:
        """L7, L9: cursors are within the ledger, and so is what was put aside."""
        consumers, rules = await self._store.consumers(), await self._store.subscriptions()
        oldest, newest = await self._store.span()  # after them: it only grows
        if counts:
            self._count("consumers", len(consumers))
            self._count("subscriptions", len(rules))
        for one in consumers:
            if one.position > newest:
                what = (
                    f"consumer {one.name!r} is at {one.position}, and the ledger ends at {newest}"
                )
                advice = f"the ledger has lost its end: app.rewind({one.name!r}, …) to where it is to go on"
                yield plain("L7", what, path=one.name, position=one.position, advice=advice)
            elif one.position < oldest - 1:
                what = f"consumer {one.name!r} is at {one.position}, and events before {oldest} are gone"
                advice = f"app.rewind({one.name!r}, …) to a position that is kept"
                yield plain("L9", what, path=one.name, advice=advice, severity="warning")
            if (one.owner is None) != (one.fence == 0):
                what = f"consumer {one.name!r}: owner {one.owner!r} with fence {one.fence}"
                yield plain("F4", what, path=one.name)
        for rule in rules:
            if rule.position > newest or (rule.behind is not None and rule.behind >= rule.until):
                what = (
                    f"subscription {rule.name!r} is at {rule.position} of {newest}, {rule.behind}"
                )
                yield plain("L7", what, path=rule.name)
        async for found in self._aside(oldest, counts):
            yield found

    async def _aside(self, oldest: int, counts: bool) -> AsyncIterator[Found]:
        """What consumers have parked, and starts that were put off, are at the positions they name."""
        after: tuple[str, int, str] | None = None
        while parked := await self._store.parked(None, after, _rows_part):
            after = (parked[-1].consumer, parked[-1].position, parked[-1].subscription)
            if counts:
                self._count("parked", len(parked))
            for what in await self._misplaced(
                [(one.event_id, one.position, f"parked by {one.consumer!r}") for one in parked],
                oldest,
            ):
                yield what
        seen: tuple[int, str] | None = None
        while deferred := await self._store.deferred(seen, _rows_part):
            seen = (deferred[-1].position, deferred[-1].subscription)
            if counts:
                self._count("deferred", len(deferred))
            for what in await self._misplaced(
                [(one.event_id, one.position, "put off") for one in deferred], oldest
            ):
                yield what

    async def _misplaced(self, aside: list[tuple[str, int, str]], oldest: int) -> list[Found]:
        positions = await self._store.positions_of([event_id for event_id, _, _ in aside])
        return [
            plain("L7", f"event {event_id} was {how} at {at}, where it is not", position=at)
            for event_id, at, how in aside
            if at >= oldest and positions.get(event_id) != at
        ]

    # --- schedules, time, the store itself ---

    async def _schedules(self, counts: bool) -> AsyncIterator[Found]:
        after = ""
        while page := await self._store.schedules(after, _rows_part):
            after = page[-1].name
            if counts:
                self._count("schedules", len(page))
            for row in page:
                queued = msgspec.json.decode(row.queued, type=list[int])
                wrong = ""
                if row.paused != (row.due_at is None):
                    wrong = f"paused {row.paused}, due at {row.due_at}"
                elif row.due_at is not None and row.due_at > row.next_at:
                    wrong = f"due at {row.due_at}, after its next tick"
                elif len(set(queued)) < len(queued) or len(queued) > limits.schedule_queue_max:
                    wrong = f"{len(queued)} ticks wait, {len(set(queued))} of them once"
                if wrong:
                    advice = (
                        f"app.pause_schedule and app.resume_schedule({row.name!r}) work it out anew"
                    )
                    yield plain(
                        "T1", f"schedule {row.name!r}: {wrong}", path=row.name, advice=advice
                    )

    async def _due(self, counts: bool) -> AsyncIterator[Found]:
        """W4 for time: deadlines that nobody acts on; and keys that nobody lets go."""
        now = self._now()
        due = (await self._store.vitals(now - _overdue_us)).timers_due
        if due:
            what = f"{due} deadlines passed a minute ago or more, and nobody acted on them"
            yield plain("T4", what, severity="warning", means="fire")
        if await self._store.keys_have_expired(now - _keys_us):
            what = "keys have run out a day ago or more, and nobody let them go"
            yield plain("K3", what, severity="warning", means="prune")

    async def _flaws(self) -> AsyncIterator[Found]:
        """What only the store can see. Once it says that something is wrong, it is asked again."""
        first = {(one.invariant, one.what) async for one in self._store.flaws()}
        if not first:
            return
        await asyncio.sleep(_pause_s)
        async for one in self._store.flaws():
            if (one.invariant, one.what) not in first:
                continue
            if one.doubt:
                self.unjudged.append(one.what)
            else:
                yield plain(one.invariant, one.what, run_id=one.run_id, advice=one.advice)


def _of_run(run: RunRecord, wrong: Wrong) -> Found:
    means: Means = "mend" if wrong.mends else ""
    if wrong.invariant == "R5" and run.status == "running":
        means = "recover"
    return plain(wrong.invariant, wrong.what, run_id=run.run_id, path=wrong.path, means=means)


def _missed(run: RunRecord, watcher: WatcherRecord, what: str) -> Found:
    mends = run.status not in TERMINAL and run.status in ("waiting", "sleeping")
    return _of_run(run, Wrong("W4", what, watcher.path, mends and not watcher.is_standing))


def _lost_owners(life: Life, look: Look) -> Iterator[Found]:
    """F4: a run that is at work has an owner that lives; else the next worker takes it over."""
    run = life.run
    if run.status == "running" and run.owner is not None and run.owner not in look.workers:
        what = f"running, and its worker {run.owner!r} does not live"
        yield plain("F4", what, run_id=run.run_id, severity="warning", means="recover")
