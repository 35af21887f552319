"""The built-in consumer `workflow_runner`: events start the workflows that subscribe to them.

The starts of an event are committed with the cursor, so each happens once. More than a bound for one event are put
off and drained in later passes; what the bounds of a chain put off stays until an operator decides. A subscription
that begins in the past catches up by a cursor of its own, beside the others. The rows are read after the events they
are to judge: whoever subscribes before an event is written is asked about it, in whatever process it was done.
"""

import asyncio
import logging
from collections import Counter

import msgspec

from perdure.alarm import Alarm
from perdure.errors import StoreRefused
from perdure.ledger.definitions import Readers, anything
from perdure.ledger.handling import parked_record
from perdure.ledger.matching import Drained, Made, Match, Table, event_at, judge, load_table
from perdure.ledger.reader import Means, Reader
from perdure.ledger.rules import Known, told
from perdure.model import limits, ops
from perdure.model.cron import Cron
from perdure.model.records import RUNNER, DeferredRecord, EventRecord
from perdure.model.topics import parse_pattern

log = logging.getLogger("perdure.ledger")

_page = limits.page_rows_max
# So many starts are committed at once; a cursor may stand between any two events.
_starts_per_commit = 500
# Rules are asked on the loop, some ten microseconds each: others are let in after so many.
_judged_per_breath = 200
# How long events may wait to be passed over, when nothing subscribes to anything.
_idle_look_us = 5_000_000

_lost_words = (
    "subscription %r had still to be asked about events %s to %s, which retention has deleted"
)


class Runner(Reader):
    """Reads every event and starts what subscribes to it."""

    def __init__(self, means: Means, readers: Readers, fanout: int, cron: Cron | None) -> None:
        super().__init__(means, RUNNER, (), cron)
        self.wants = anything
        self._readers = readers
        self._fanout = fanout
        registry = means.desk.registry
        self._table = Table((), readers, Known(registry, {}), means.desk.ids)
        self._rows_due = True
        self._deferred = True  # something may have been put off that can go on now
        self._later = Alarm(means.clock, self.on_rows)

    # --- what others tell it ---

    def wake(self) -> None:
        # With nothing to match, events are passed over now and then, not read at each commit.
        if len(self._table):
            super().wake()
        elif self.cron is None:
            self._later.set(self.means.clock.now() + _idle_look_us)

    def on_rows(self) -> None:
        """The subscriptions may have changed."""
        self._rows_due = True
        self._woken.set()

    def claimed(self) -> None:
        self._rows_due = self._deferred = True

    def reached(self) -> int:
        return self.position if len(self._table) else max(self.position, self.means.store.head)

    def has_more(self) -> bool:
        return self._rows_due or self._deferred or bool(self._table.behind())

    # --- reading ---

    def _has_unread(self) -> bool:
        return (len(self._table) > 0 or self.cron is not None) and super()._has_unread()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._later.clear()

    async def read(self) -> None:
        if len(self._table) == 0:
            await self._load()
        if len(self._table) == 0:
            return
        records, upto = await self.gather()
        await self._load()
        await self._deal_with(records, upto)

    async def _load(self) -> None:
        self._rows_due = False
        store = self.means.store
        head = store.head
        self._table = await load_table(store, self.means.desk, self._readers, self._table)
        if len(self._table) == 0:
            # Whoever subscribes after these rows were read begins behind what was there before.
            self.pass_over(max(head, self.position))

    async def _deal_with(self, records: list[EventRecord], upto: int) -> None:
        made = Made()
        judged = 0
        for record in records:
            matches = self._table.matching(record)
            if matches:
                self._judge(record, matches, made)
                judged += len(matches)
                if judged >= _judged_per_breath:
                    judged = 0
                    await asyncio.sleep(0)
            if len(made) >= _starts_per_commit:
                await self._commit(record.position, made)
                made = Made()
                if self.is_to_stop:
                    return
        if len(made):
            await self._commit(upto, made)
        else:
            self.pass_over(upto)

    def _judge(self, record: EventRecord, matches: list[Match], made: Made) -> None:
        judge(self._table, record, matches, self._fanout, made)

    async def _commit(
        self, upto: int, made: Made, caught_up: tuple[str, int] | None = None
    ) -> None:
        if any(one.reason == "fanout" for one in made.deferred):
            self._deferred = True
        for one in made.parked:
            log.error(
                "subscription %r parks event %s: %s", one.subscription, one.event_id, one.reason
            )
        try:
            await self._commit_all(upto, made, caught_up)
        except StoreRefused as refused:
            if refused.passing:
                raise
            # Told first: if the store does not even take that it is not the fault of these starts.
            await self.commit(self.position, error=told(refused))
            await self._start_apart(made)
            await self._commit_all(upto, made, caught_up)

    async def _commit_all(self, upto: int, made: Made, caught_up: tuple[str, int] | None) -> None:
        await self.commit(
            upto,
            effects=made.effects,
            parked=made.parked,
            deferred=made.deferred,
            caught_up=caught_up,
        )

    async def _start_apart(self, made: Made) -> None:
        """The store did not take these starts together: each by itself, and one that it does not take is parked.

        They have keys, so one that is made here and whose event is read again finds its run.
        """
        starts = [one for one in made.effects if one.subscription]
        made.effects = [one for one in made.effects if not one.subscription]
        alone = [ops.CommitEffects(consumer=RUNNER, effects=(one,)) for one in starts]
        answers = await self.means.coordinator.submit_many(alone)
        for start, answer in zip(starts, answers, strict=True):
            if isinstance(answer, StoreRefused) and not answer.passing:
                event = await event_at(self.means.store, start.position)
                if event is None:
                    log.error(_lost_words, start.subscription, start.position, start.position)
                    continue
                made.parked.append(
                    parked_record(RUNNER, event, told(answer), subscription=start.subscription)
                )
            elif isinstance(answer, BaseException):
                raise answer

    # --- besides ---

    async def do_more(self) -> None:
        if self._rows_due:
            await self._load()
        while behind := self._table.behind():
            for match in behind:
                await self._catch_up(match)
                if self.is_to_stop:
                    return
            await self._load()
            if self.cron is None:
                break  # the present is not kept waiting
        if self._deferred:
            self._deferred = False
            self._deferred = await self.drain()

    async def _catch_up(self, match: Match) -> None:
        """Take a subscription on by a chunk of what was there before it."""
        row = match.row
        behind = row.behind or 0
        pattern = parse_pattern(row.pattern)
        records = await self.means.store.events(behind, _page)
        upto = min(records[-1].position, row.until) if records else row.until
        made = Made()
        if records and records[0].position > behind + 1:  # positions are dense
            lost = min(records[0].position - 1, upto)
            log.error(_lost_words, row.name, behind + 1, lost)
            made.effects.append(self._lost(row.name, behind + 1, lost))
        for record in records:
            if record.position <= upto and pattern.matches(record.type):
                self._judge(record, [match], made)
        self._rows_due = True  # whatever becomes of it, the row says where to go on
        await self._commit(upto, made, caught_up=(row.name, behind))

    def _lost(self, name: str, first: int, last: int) -> ops.Effect:
        """Retention was forced over what a subscription had still to catch up with: nothing is skipped in silence."""
        facts = {"subscription": name, "first": first, "last": last}
        new = ops.NewEvent(
            event_id=self.means.desk.ids.ulid(),
            type="ledger.events_lost",
            payload=msgspec.json.encode(facts).decode(),
        )
        return ops.Effect(op=ops.Emit(events=(new,)), position=last)

    # --- what was put off ---

    async def drain_foreign(self) -> None:
        """For a process that does not own the runner: start what only this one can ask about."""
        if await self.means.store.deferred(None, 1):
            await self._load()
            await self.drain(only_code=True)

    async def drain(self, only_code: bool = False) -> bool:
        """Start what was put off and can go on, up to `fanout` for each event; whether more is left."""
        taken: Counter[int] = Counter()
        left = False
        event: EventRecord | None = None  # of one there may be many starts, in a row
        after: tuple[int, str] | None = None
        while True:
            page = await self.means.store.deferred(after, _page)
            starts: list[Drained] = []
            for one in page:
                if not self._can_go_on(one, only_code):
                    continue
                if taken[one.position] >= self._fanout:
                    left = True
                    continue
                taken[one.position] += 1
                if event is None or event.position != one.position:
                    event = await event_at(self.means.store, one.position)
                starts.append(self._drained(one, event))
            if starts:
                await self._submit_drain(starts)
            if len(page) < _page:
                return left
            after = (page[-1].position, page[-1].subscription)

    async def _submit_drain(self, starts: list[Drained]) -> None:
        drain = ops.DrainDeferred(starts=tuple(starts), consumer=RUNNER)
        try:
            await self.means.coordinator.submit(drain)
        except StoreRefused as refused:
            if refused.passing:
                raise
            if len(starts) == 1:
                position, name, start, _ = starts[0]
                if start is None:
                    raise  # it takes nothing at all
                starts = [(position, name, None, told(refused))]
            for one in starts:
                await self._submit_drain([one])

    def _can_go_on(self, one: DeferredRecord, only_code: bool) -> bool:
        match = self._table.by_name.get(one.subscription)
        if match is None or not match.row.enabled or match.rule is None:
            return False
        return one.reason == "code" or (one.reason == "fanout" and not only_code)

    def _drained(self, one: DeferredRecord, event: EventRecord | None) -> Drained:
        if event is None:
            log.error(_lost_words, one.subscription, one.position, one.position)
            return one.position, one.subscription, None, None
        return self._table.drained(self._table.by_name[one.subscription], event)
