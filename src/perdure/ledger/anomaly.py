"""Detectors of what is unusual on the ledger: too many events, or one that did not follow.

A detector is a consumer with a schedule. At each tick it looks, and tells what it finds as `anomaly.<name>`, in the
commit that moves its cursor, under a key that names the events it is about: nothing is told twice. Time is when
events were recorded.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.ledger.definitions import AnomalyDef, Missing, Rate
from perdure.ledger.reader import Means, Reader
from perdure.model import limits, ops
from perdure.model.events import Cause
from perdure.model.records import EventRecord, entity_text

_encode = msgspec.json.encode
_chunk = limits.page_rows_max
_told_per_commit = 500
# A detector that holds its cursor back says so often enough not to be taken for stalled.
_silent_us = 30 * 60 * 1_000_000


def detector(means: Means, definition: AnomalyDef) -> "Detector":
    """The reader that runs a detector."""
    find = definition.find
    if isinstance(find, Rate):
        return RateDetector(means, definition, find)
    return MissingDetector(means, definition, find)


class Detector(Reader):
    """What both kinds share: reading far, and telling."""

    def __init__(self, means: Means, definition: AnomalyDef) -> None:
        super().__init__(means, definition.name, definition.patterns, definition.cron)
        self._by_entity = definition.by_entity

    async def scan(self, after: int) -> AsyncIterator[EventRecord]:
        """Every event from there to the end."""
        while True:
            records = await self.means.store.events(after, _chunk)
            for record in records:
                yield record
            if len(records) < _chunk:
                return
            after = records[-1].position

    def told(self, record: EventRecord, facts: dict[str, Any]) -> ops.Effect:
        """The event that tells of an anomaly, about the entity of `record` if that plays a role."""
        entity = record if self._by_entity else None
        new = ops.NewEvent(
            event_id=self.means.desk.ids.ulid(),
            type=f"anomaly.{self.name}",
            payload=_encode({"anomaly": self.name, "event_id": record.event_id, **facts}).decode(),
            entity_type=None if entity is None else entity.entity_type,
            entity_id=None if entity is None else entity.entity_id,
            # A restart of the whole ledger's reading must not tell it again.
            key=f"{self.name}/{record.position}",
            caused_by=_encode(Cause(event_id=record.event_id, consumer=self.name)).decode(),
        )
        return ops.Effect(op=ops.Emit(events=(new,)), position=record.position)


@dataclass(slots=True)
class _Seen:
    count: int
    last: EventRecord


class RateDetector(Detector):
    """More than so many events within the span of time that ends at the tick."""

    def __init__(self, means: Means, definition: AnomalyDef, rate: Rate) -> None:
        super().__init__(means, definition)
        self._rate = rate

    async def read(self) -> None:
        store, rate = self.means.store, self._rate
        since = self.means.clock.now() - rate.within_us
        seen: dict[str, _Seen] = {}
        upto = start = max(0, await store.position_at(since))
        async for record in self.scan(start):
            upto = record.position
            if self.wants(record.type):
                one = seen.setdefault(self._subject(record), _Seen(0, record))
                one.count += 1
                one.last = record
        # With no new event among them it was told before.
        over = [
            self.told(
                one.last,
                {"count": one.count, "most": rate.most, "within_s": rate.within_us / 1_000_000},
            )
            for one in seen.values()
            if one.count > rate.most and one.last.position > self.position
        ]
        if not over:
            self.pass_over(max(upto, self.position))
            return
        for first in range(0, len(over), _told_per_commit):
            part = over[first : first + _told_per_commit]
            last = first + _told_per_commit >= len(over)
            await self.commit(upto if last else self.position, effects=part)

    def _subject(self, record: EventRecord) -> str:
        return _entity(record) if self._by_entity else ""


class MissingDetector(Detector):
    """An event that another about the same entity should follow in time, and does not."""

    def __init__(self, means: Means, definition: AnomalyDef, missing: Missing) -> None:
        super().__init__(means, definition)
        self._missing = missing
        self._open_until: int | None = None  # when the next one that is waited for is overdue

    def reached(self) -> int:
        # Its cursor stays behind on purpose: what it has looked at does not wait for it.
        return max(self.position, self._end)

    def has_more(self) -> bool:
        return self._open_until is not None and self._open_until < self.means.clock.now()

    async def read(self) -> None:
        open_, late = await self._sort_out()
        now = self.means.clock.now()
        within_us = self._missing.within_us
        overdue = [one for one in open_ if one.recorded_at + within_us < now]
        waiting = [one for one in open_ if one.recorded_at + within_us >= now]
        late = sorted([*late, *overdue], key=lambda one: one.position)
        self._open_until = min((one.recorded_at + within_us for one in waiting), default=None)
        # The cursor stays before the first that may yet be followed.
        upto = min((one.position - 1 for one in waiting), default=self._end)
        await self._tell(late, upto)
        if self.record is None:
            return
        if upto > self.position:
            self.pass_over(upto)
        elif waiting and now - self.record.advanced_at > _silent_us:
            await self.commit(self.position)  # it waits on purpose: not a stall, whoever looks

    async def _sort_out(self) -> tuple[list[EventRecord], list[EventRecord]]:
        """Those that nothing has followed so far, and those that were followed too late."""
        open_: dict[str, list[EventRecord]] = {}
        late: list[EventRecord] = []
        end = self.position
        async for record in self.scan(self.position):
            if record.position != end + 1:
                await self.stop_too_old(record.position)
            end = record.position
            if self._missing.then.matches(record.type):
                in_time = record.recorded_at - self._missing.within_us
                passed = open_.pop(_entity(record), ())
                late += [one for one in passed if one.recorded_at < in_time]
            if self._missing.first.matches(record.type):
                open_.setdefault(_entity(record), []).append(record)
        self._end = end
        return [one for some in open_.values() for one in some], late

    async def _tell(self, late: list[EventRecord], upto: int) -> None:
        facts = {
            "missing": self._missing.then.text,
            "within_s": self._missing.within_us / 1_000_000,
        }
        for first in range(0, len(late), _told_per_commit):
            part = late[first : first + _told_per_commit]
            effects = [self.told(one, {"type": one.type, **facts}) for one in part]
            position = max(self.position, min(part[-1].position, upto))
            await self.commit(position, effects=effects)


def _entity(record: EventRecord) -> str:
    return entity_text(record.entity_type, record.entity_id)
