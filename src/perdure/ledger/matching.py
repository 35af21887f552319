"""The subscriptions as they stand, ready to be asked: which of them match an event, and what that leads to.

A table is made from the rows and never changed; when the rows change another one is made. Judging an event is pure:
starts, events to park and starts to put off come out, to be committed together. Among many patterns only those that
the event's type can reach are visited.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from perdure.errors import BadExpression, ExpressionsUnavailable
from perdure.ledger.batches import Desk
from perdure.ledger.definitions import Readers
from perdure.ledger.handling import parked_record
from perdure.ledger.rules import Known, Rule, Unstartable, asked, rule_of, start_of, told
from perdure.model import ops
from perdure.model.events import Cause, event_of
from perdure.model.ids import Ids
from perdure.model.limits import BadValue
from perdure.model.records import (
    RUNNER,
    DeferredRecord,
    EventRecord,
    ParkedRecord,
    SubscriptionRecord,
    WorkflowRecord,
)
from perdure.model.topics import PatternIndex, parse_pattern
from perdure.store.base import Store

_capped = "ledger.fanout_capped"
_encode = msgspec.json.encode

# A start that was put off, as the store is told of it: event, subscription, the start, or why there is none.
Drained = tuple[int, str, ops.StartRun | None, str | None]


@dataclass(frozen=True, slots=True)
class Match:
    """A row and its rule: None if only another process can ask it, a text if it is broken."""

    row: SubscriptionRecord
    rule: Rule | str | None


class Table:
    """All subscriptions, and an index of those that are enabled, in the order in which they were made."""

    def __init__(
        self, rows: Sequence[SubscriptionRecord], readers: Readers, known: Known, ids: Ids
    ) -> None:
        self.rows = list(rows)
        self.known = known
        self.by_name: dict[str, Match] = {}
        self.ids = ids
        self._index: PatternIndex[Match] = PatternIndex()
        for row in sorted(rows, key=lambda one: (one.created_at, one.name)):
            match = Match(row, _rule(row, readers))
            self.by_name[row.name] = match
            if row.enabled:
                self._index.add(parse_pattern(row.pattern), match)

    def __len__(self) -> int:
        """How many are enabled."""
        return len(self._index)

    def matching(self, record: EventRecord, *, ever: bool = False) -> list[Match]:
        """Those whose pattern fits an event that came after they were made (or whenever it came)."""
        found = self._index.matching(record.type)
        return [one for one in found if ever or one.row.position < record.position]

    def behind(self) -> list[Match]:
        """Those that have still to catch up with what was there before them."""
        found = self.by_name.values()
        return [one for one in found if one.row.enabled and one.row.behind is not None]

    def start(self, match: Match, record: EventRecord) -> ops.StartRun | None:
        """The start that this event asks for, None if it does not match; raises Unstartable."""
        rule = match.rule
        if isinstance(rule, str):
            raise Unstartable(rule)
        if rule is None:
            raise Unstartable("its functions are in code that this process does not have")
        event = event_of(record)
        if not asked(rule, record, event):
            return None
        return start_of(match.row, rule, record, event, self.known, self.ids)

    def drained(self, match: Match, record: EventRecord) -> Drained:
        """The same of a start that was put off."""
        start, reason = None, None
        try:
            start = self.start(match, record)
        except Unstartable as error:
            reason = str(error)
        return record.position, match.row.name, start, reason


def _rule(row: SubscriptionRecord, readers: Readers) -> Rule | str | None:
    if row.code:
        declared = readers.subscriptions.get(row.name)
        return declared.rule if declared is not None and declared.rule.is_code else None
    try:
        return rule_of(row)
    except ExpressionsUnavailable:
        return None  # as with functions that only another process has
    except (BadExpression, BadValue) as error:
        return told(error)


async def load_table(store: Store, desk: Desk, readers: Readers, last: Table | None) -> Table:
    """The table of the rows that are stored now; the last one, if they are the same."""
    rows = await store.subscriptions()
    if last is not None and last.rows == rows and not last.known.catalogue:
        return last
    catalogue: dict[str, WorkflowRecord] = {}
    if any(one.enabled and not desk.registry.has(one.workflow) for one in rows):
        for line in await store.catalogue():  # by name and version: the newest stays
            catalogue[line.name] = line
    if last is not None and last.rows == rows and last.known.catalogue == catalogue:
        return last
    return Table(rows, readers, Known(desk.registry, catalogue), desk.ids)


async def event_at(store: Store, position: int) -> EventRecord | None:
    """The event that a row was kept for, unless retention has deleted it."""
    found = await store.events(position - 1, 1)
    return found[0] if found and found[0].position == position else None


# --- what events lead to -----------------------------------------------------------------------------


@dataclass(slots=True)
class Made:
    """What is to be committed together."""

    effects: list[ops.Effect] = field(default_factory=list)
    parked: list[ParkedRecord] = field(default_factory=list)
    deferred: list[DeferredRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.effects) + len(self.parked) + len(self.deferred)

    def defer(self, record: EventRecord, match: Match, reason: Literal["fanout", "code"]) -> None:
        self.deferred.append(
            DeferredRecord(
                position=record.position,
                subscription=match.row.name,
                event_id=record.event_id,
                reason=reason,
                deferred_at=0,  # the store says when
            )
        )

    def park(self, record: EventRecord, match: Match, reason: str) -> None:
        self.parked.append(parked_record(RUNNER, record, reason, subscription=match.row.name))


def judge(
    table: Table, record: EventRecord, matches: Sequence[Match], fanout: int, made: Made
) -> None:
    """Add what one event leads to: up to `fanout` starts, the rest put off and told of."""
    starts: list[tuple[Match, ops.StartRun]] = []
    for match in matches:
        if match.rule is None:
            made.defer(record, match, "code")
            continue
        try:
            start = table.start(match, record)
        except Unstartable as reason:
            made.park(record, match, str(reason))
            continue
        if start is not None:
            starts.append((match, start))
    for match, start in starts[:fanout]:
        made.effects.append(
            ops.Effect(op=start, position=record.position, subscription=match.row.name)
        )
    for match, _ in starts[fanout:]:
        made.defer(record, match, "fanout")
    # Not about what tells of the ledger itself: nine who listen to caps would have one more to hear each time.
    if len(starts) > fanout and not record.type.startswith("ledger."):
        made.effects.append(_cap(record, len(starts), fanout, table.ids))


def _cap(record: EventRecord, matched: int, cap: int, ids: Ids) -> ops.Effect:
    facts = {"event_id": record.event_id, "type": record.type, "matched": matched, "cap": cap}
    new = ops.NewEvent(
        event_id=ids.ulid(),
        type=_capped,
        payload=_encode(facts).decode(),
        caused_by=_encode(Cause(event_id=record.event_id, consumer=RUNNER)).decode(),
        # Of the chain, or what it starts would be without bound.
        root_id=record.root_id or record.event_id,
        depth=record.depth + 1,
    )
    return ops.Effect(op=ops.Emit(events=(new,)), position=record.position)
