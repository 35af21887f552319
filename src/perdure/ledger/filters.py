"""The matcher: judges, outside any transaction, which events pass the filters of waits.

A wait with a filter is not ended by the store: its watchers are of kind "match", and its deadline is held. We know all
such watchers, read the events of their topics, ask each filter in the order of the ledger, and tell the store what was
found with an op that it checks once more. A deadline counts when every event up to it was judged. Several processes may
do this side by side: whoever comes second finds the wait ended.

What a filter said of an event it would say again, so of a wait that is over we remember, for a bounded number, which
events did not pass: a run that waits in a loop with a timeout is not judged from the beginning each time. Nothing
here is stored; after a restart all open waits are judged anew, from their own cursors on.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.errors import PerdureError
from perdure.ledger.expressions import Filter, compile_filter
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.limits import check_entity
from perdure.model.outcomes import Wake
from perdure.model.records import ErrorRecord, EventRecord, WatcherRecord, entity_text
from perdure.service import Service
from perdure.store.base import Look, MatchPlace, Store

# Filters are asked on the loop, some ten microseconds each: others are let in after so many.
_asked_per_breath = 200

# With more groups of waits than this, what is new is read once to see whom it concerns, instead of for each of them.
_groups_read_apart = 10

# Of so many waits that are over it is remembered what did not pass.
_passed_by_max = 10_000

Place = tuple[str, str, int]  # run_id, path, ix
Asked = tuple[str, str, str, str]  # run_id, topic, entity, filter


@dataclass(slots=True)
class _Judged:
    """A watcher, its filter, and up to where events were asked of it."""

    watcher: WatcherRecord
    filter: Filter | None  # None: it does not compile here
    examined: int
    since: int  # from where on none up to there passed
    late: int | None = None  # the first event after its deadline: of that nothing is said


class Matcher(Service):
    """Judges the filters of all open waits of a store."""

    def __init__(self, store: Store, coordinator: Coordinator, clock: Clock) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._known: dict[Place, _Judged] = {}
        self._places: dict[str, set[Place]] = {}  # of each run, what is known
        # After which position, and up to which, no event passed the filter of a wait that is over.
        self._passed_by: dict[Asked, tuple[int, int]] = {}
        self._opened: set[str] = set()  # runs that have just opened a wait with a filter
        self._examined = 0  # the end of the ledger when all were last judged
        self._work = asyncio.Event()
        self._busy = False
        self._look_due = asyncio.Event()
        self._looking = False
        self._alarm = Alarm(clock, self._work.set)
        self._detach: Callable[[], None] | None = None

    # --- life ---

    async def start(self) -> None:
        self._detach = self._coordinator.hub.attach_reader(self._hear)
        self._coordinator.on_batch.append(self._on_batch)
        await self._look()
        self._spawn("matcher", self._run)
        self._spawn("matcher-look", self._look_when_due)

    async def stop(self) -> None:
        if self._detach is not None:
            self._detach()
            self._detach = None
            self._coordinator.on_batch.remove(self._on_batch)
        self._alarm.clear()
        await super().stop()

    @property
    def settled(self) -> bool:
        """Whether nothing is left to judge."""
        if self._looking or self._look_due.is_set():
            return False
        return not self._busy and not self._work.is_set()

    # --- what wakes us ---

    def _hear(self, wake: Wake) -> None:
        if wake.kind == "match":
            self._opened.add(wake.run_id)
            self._work.set()

    def _on_batch(self) -> None:
        if self._known and self._store.head > self._examined:
            self._work.set()

    def on_look(self, look: Look, thorough: bool) -> None:
        """The worker has looked at the store: what others wrote, and now and then what they wait for."""
        self._on_batch()
        if thorough:
            self._look_due.set()

    async def _look_when_due(self) -> None:
        """Waits that other processes opened, or left behind, are found by looking."""
        while True:
            await self._look_due.wait()
            self._looking = True
            try:
                self._look_due.clear()
                await self._look()
            finally:
                self._looking = False

    # --- which waits there are ---

    async def _look(self) -> None:
        """Learn of every wait with a filter, and forget those that are no more."""
        before = list(self._known)  # what is opened while we look may not be among what we read
        found: dict[Place, WatcherRecord] = {}
        after: MatchPlace | None = None
        while page := await self._store.matches(after, limits.page_rows_max):
            found.update((_place(one), one) for one in page)
            last = page[-1]
            after = (last.target, last.entity, last.opened_at, *_place(last))
        for place in before:
            if place not in found:
                self._forget(place)
        learnt = [self._learn(one) for one in found.values()]
        if any(learnt):
            self._work.set()

    def _learn(self, watcher: WatcherRecord) -> bool:
        known = self._known.get(_place(watcher))
        if known is not None and known.watcher == watcher:
            return False
        self._forget(_place(watcher))  # a later wait at the same place
        try:
            compiled = compile_filter(watcher.filter)
        except PerdureError:
            compiled = None  # this process cannot: another may, and the wait's own code was told
        # Behind what the same filter was asked before, by a wait that ended otherwise.
        since, upto = self._passed_by.get(_asked(watcher), (0, 0))
        if not since <= watcher.after < upto:
            since = upto = watcher.after
        self._known[_place(watcher)] = _Judged(watcher, compiled, upto, since)
        self._places.setdefault(watcher.run_id, set()).add(_place(watcher))
        return True

    def _forget(self, place: Place) -> None:
        judged = self._known.pop(place, None)
        if judged is None:
            return
        self._remember(judged)
        places = self._places[place[0]]
        places.discard(place)
        if not places:
            del self._places[place[0]]

    def _remember(self, judged: _Judged) -> None:
        asked, passed_by = _asked(judged.watcher), self._passed_by
        upto = judged.examined if judged.late is None else min(judged.examined, judged.late - 1)
        if upto == judged.since:
            return  # it was asked nothing
        passed_by.pop(asked, None)
        passed_by[asked] = judged.since, upto
        if len(passed_by) > _passed_by_max:
            del passed_by[next(iter(passed_by))]  # the one that ended first

    async def _meet(self) -> None:
        """Those that were just opened in this process; what the same run waited for before is over, or among them."""
        opened, self._opened = self._opened, set()
        for run_id in opened:
            before = set(self._places.get(run_id, ()))
            waiting = [one for one in await self._store.waiting(run_id) if one.kind == "match"]
            for place in before.difference(map(_place, waiting)):
                self._forget(place)
            for watcher in waiting:
                self._learn(watcher)

    # --- judging ---

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            self._busy = True
            try:
                await self._meet()
                await self._judge_all()
            except BaseException:
                # What was found and not told must be found again.
                self._examined = 0
                for judged in self._known.values():
                    judged.examined = judged.watcher.after
                self._work.set()
                raise
            finally:
                self._busy = False

    async def _judge_all(self) -> None:
        # Before the end of the ledger is read: what comes later is not before now.
        now = self._clock.now()
        _, last = await self._store.span()
        # Waits that want the same events read them together.
        groups: dict[tuple[str, str, int], list[_Judged]] = defaultdict(list)
        for one in self._known.values():
            if one.filter is not None and one.examined < last:
                groups[one.watcher.target, one.watcher.entity, one.examined].append(one)
        found: dict[tuple[str, str], ops.ResolveWait] = {}
        news = await self._news(last) if len(groups) > _groups_read_apart else None
        for (topic, entity, after), group in groups.items():
            if news is not None and after >= self._examined and (topic, entity) not in news:
                for one in group:
                    one.examined = last
                continue
            for verdict in await self._judge(group, topic, entity, after, last):
                at = verdict.run_id, verdict.path
                found[at] = min(found.get(at, verdict), verdict, key=_order)
        self._examined = last
        await self._tell(list(found.values()))
        late = [one for one in self._known.values() if _is_late(one, now)]
        await self._tell([_verdict(one, None) for one in late])
        self._set_alarm(now)

    async def _news(self, last: int) -> set[tuple[str, str]] | None:
        """The topics and entities ("" for any) of what came since all were last judged; None if it is too much."""
        if last - self._examined > limits.page_rows_max:
            return None
        events = await self._store.events(self._examined, limits.page_rows_max)
        about = {(one.type, entity_text(one.entity_type, one.entity_id)) for one in events}
        return about | {(one.type, "") for one in events}

    async def _judge(
        self, group: list[_Judged], topic: str, entity: str, after: int, last: int
    ) -> list[ops.ResolveWait]:
        """Ask the filters of every event of their topic up to the end; each until one passes."""
        about = check_entity(entity) if entity else None
        verdicts: list[ops.ResolveWait] = []
        asked = 0
        more = True
        while more and group:
            events = await self._store.events(after, limits.page_rows_max, type=topic, entity=about)
            for event in events:
                asked += len(group)
                if asked >= _asked_per_breath:
                    asked = 0
                    await asyncio.sleep(0)
                judged = [(one, _judged(one, event)) for one in group]
                group = [one for one, found in judged if found is None]
                verdicts += [found for _, found in judged if found is not None]
            more = len(events) == limits.page_rows_max
            after = events[-1].position if more else max(after, last)
            for one in group:
                one.examined = after
        return verdicts

    async def _tell(self, verdicts: list[ops.ResolveWait]) -> None:
        """Tell the store. Whatever it answers we forget the wait: it is over, or we meet it once more."""
        answers = await self._coordinator.submit_many(verdicts) if verdicts else []
        for verdict, answer in zip(verdicts, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            self._forget((verdict.run_id, verdict.path, verdict.ix))
            if not answer.count:  # ended otherwise, or an event came between
                self._opened.add(verdict.run_id)
                self._work.set()

    def _set_alarm(self, now: int) -> None:
        deadlines = [
            one.watcher.deadline_at
            for one in self._known.values()
            if one.watcher.deadline_at is not None and one.filter is not None
        ]
        if deadlines:
            # A tick past the deadline: an event accepted at the deadline itself still wins.
            self._alarm.set(max(min(deadlines), now) + 1)


def _place(watcher: WatcherRecord) -> Place:
    return watcher.run_id, watcher.path, watcher.ix


def _asked(watcher: WatcherRecord) -> Asked:
    return watcher.run_id, watcher.target, watcher.entity, watcher.filter


def _judged(judged: _Judged, event: EventRecord) -> ops.ResolveWait | None:
    """What is to be told of a wait at this event: that it ends it, or that its filter fails at it."""
    assert judged.filter is not None
    if not _in_time(judged.watcher, event):
        judged.late = min(judged.late or event.position, event.position)
        return None
    if event.repeated:
        return None
    try:
        passes = judged.filter.test(event)
    except PerdureError as error:
        return _verdict(judged, event.position, _as_record(error, judged.watcher.path))
    return _verdict(judged, event.position) if passes else None


def _verdict(judged: _Judged, position: int | None, error: str | None = None) -> ops.ResolveWait:
    watcher = judged.watcher
    return ops.ResolveWait(
        run_id=watcher.run_id,
        generation=watcher.generation,
        path=watcher.path,
        ix=watcher.ix,
        position=position,
        examined=judged.examined,
        error=error,
    )


def _order(verdict: ops.ResolveWait) -> tuple[int, int]:
    """Of several filters of one wait the event that was recorded first wins; of the same one, the first filter."""
    return verdict.position or 0, verdict.ix


def _in_time(watcher: WatcherRecord, event: EventRecord) -> bool:
    return watcher.deadline_at is None or event.recorded_at <= watcher.deadline_at


def _is_late(judged: _Judged, now: int) -> bool:
    deadline_at = judged.watcher.deadline_at
    return judged.filter is not None and deadline_at is not None and now > deadline_at


def _as_record(error: PerdureError, path: str) -> str:
    """What the wait raises: the filter is part of the workflow, and its failure is the workflow's to handle."""
    record = ErrorRecord(kind="step", type=type(error).__name__, message=str(error), path=path)
    return msgspec.json.encode(record).decode()
