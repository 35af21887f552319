"""Events fired anew: a window of the ledger into a consumer, or into a fresh handler.

The cursor does not move; what the events lead to is committed by itself, and says that it is a replay. Starts keep
their ordinary keys, so that a run that exists answers for itself, unless they are asked to run again. A dry run
counts and changes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.alarm import pause
from perdure.channels import Topic
from perdure.inputs import checked_flag, checked_moment, is_whole
from perdure.ledger.definitions import (
    ConsumerDef,
    Handler,
    anything,
    checked_handler,
    pattern_of,
    wanting,
)
from perdure.ledger.handling import HandlerFailed, call, parked_record, unfinished
from perdure.ledger.matching import Made, Table, judge, load_table
from perdure.ledger.parking import Bench, definition_of
from perdure.ledger.rules import own_key
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.keys import start_scope
from perdure.model.limits import BadValue, check_name
from perdure.model.records import RUNNER, EventRecord
from perdure.model.topics import Pattern
from perdure.store.base import Store

Place = int | datetime | Literal["beginning"]

_chunk = 500
_no_cap = limits.int_max


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did, or would do. `starts` and `existing` (runs that are there already) only of the runner.

    `failed` counts events that could not be dealt with and were parked.
    """

    dry_run: bool
    events: int
    by_type: dict[str, int]
    starts: int | None = None
    existing: int | None = None
    failed: int = 0


class Window(NamedTuple):
    """Events after one position and up to another, of these types."""

    after: int
    upto: int
    pattern: Pattern | None


async def replay(
    bench: Bench,
    into: str | Handler,
    *,
    since: Place,
    until: int | datetime | None,
    pattern: str | Topic[Any] | None,
    dry_run: bool,
    rate: float | None,
    only_if_no_run: bool,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Fire a window anew; see `App.replay`."""
    checked_flag("dry_run", dry_run)
    checked_flag("only_if_no_run", only_if_no_run)
    pace = _Pace(bench.clock, _checked_rate(rate))
    target = _target(bench, into, only_if_no_run)
    window = await _window(bench.store, since, until, pattern)
    by_type: Counter[str] = Counter()
    async for records in _read(bench.store, window, target.wants, pace.chunk(target.chunk)):
        by_type.update(one.type for one in records)
        if dry_run:
            await target.count(records)
        else:
            await pace.wait_for(len(records))
            await target.fire(records)
        if progress is not None:
            progress(by_type.total())
    return Replayed(
        dry_run=dry_run, events=by_type.total(), by_type=dict(by_type), **target.counts()
    )


# --- what to read ------------------------------------------------------------------------------------


async def _window(store: Store, since: Any, until: Any, pattern: Any) -> Window:
    first, last = await store.span()
    upto = last if until is None else min(last, await _position("until", store, until))
    after = first - 1  # the beginning is the oldest event that is kept, and so is a time before it
    if since != "beginning":
        after = await _position("since", store, since) - isinstance(since, int)
        if isinstance(since, int) and since > 0:
            _check_kept(after + 1, first)
        after = max(after, first - 1)
    return Window(after, upto, None if pattern is None else pattern_of(pattern))


def _check_kept(position: int, first: int) -> None:
    """Nothing is left out in silence: a window whose events retention has deleted is refused."""
    if position < first:
        gone = f"is not on the ledger any more; the oldest event that is kept is at {first}"
        raise BadValue("since", position, gone)


async def _position(what: str, store: Store, place: Any) -> int:
    """A position as it is; of a time, the last one before it."""
    if is_whole(place, 0):
        return place
    if isinstance(place, datetime):
        return await store.position_at(checked_moment(what, place))
    raise BadValue(what, place, "is neither a position nor a datetime with a time zone")


async def _read(
    store: Store, window: Window, wants: Callable[[str], bool], size: int
) -> AsyncIterator[list[EventRecord]]:
    """The events of the window that the target wants, some at a time."""
    after = window.after
    while after < window.upto:
        records = await store.events(after, _chunk)
        if not records:
            return
        _check_kept(after + 1, records[0].position)  # a slow replay may be overtaken
        after = records[-1].position
        pattern = window.pattern
        found = [
            one
            for one in records
            if one.position <= window.upto
            and (pattern is None or pattern.matches(one.type))
            and wants(one.type)
        ]
        for first in range(0, len(found), size):
            yield found[first : first + size]


def _checked_rate(rate: Any) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1_000_000:
        raise BadValue("rate", rate, "must be events per second: more than 0, at most 1,000,000")
    return float(rate)


class _Pace:
    """No more events per second than asked, by the clock."""

    def __init__(self, clock: Clock, rate: float | None) -> None:
        self._clock = clock
        self._rate = rate
        self._next_at = clock.now()

    def chunk(self, most: int) -> int:
        return most if self._rate is None else max(1, min(most, int(self._rate)))

    async def wait_for(self, count: int) -> None:
        """Until these may be fired."""
        if self._rate is None:
            return
        await pause(self._clock, self._next_at - self._clock.now())
        # From now, not from when it was due: what was late is not made up for in a rush.
        self._next_at = self._clock.now() + int(count / self._rate * 1_000_000)


# --- where to ----------------------------------------------------------------------------------------


def _target(bench: Bench, into: Any, only_if_no_run: bool) -> "_IntoRunner | _IntoHandler":
    # Of a replay that is to run again, keys count within the replay only.
    suffix = "" if only_if_no_run else f"#replay-{bench.desk.ids.ulid()}"
    if into == RUNNER:
        return _IntoRunner(bench, suffix)
    if isinstance(into, str):
        found = definition_of(bench.readers, into)
        return _IntoHandler(bench, suffix, found.name, found.handler, found)
    name = check_name("consumer", f"replay:{getattr(into, '__name__', 'handler')}")
    return _IntoHandler(bench, suffix, name, checked_handler(name, into), None)


class _IntoRunner:
    """Starts what subscribes to the events, whenever it was subscribed."""

    chunk = _chunk

    def __init__(self, bench: Bench, suffix: str) -> None:
        self._bench, self._suffix = bench, suffix
        self._table: Table | None = None
        self._starts = self._existing = self._failed = 0
        self.wants = anything

    def counts(self) -> dict[str, Any]:
        return {"starts": self._starts, "existing": self._existing, "failed": self._failed}

    async def count(self, records: list[EventRecord]) -> Made:
        bench = self._bench
        self._table = await load_table(bench.store, bench.desk, bench.readers, self._table)
        made = Made()
        for record in records:
            matches = self._table.matching(record, ever=True)
            judge(self._table, record, matches, _no_cap, made)
        effects = [_with_suffix(one, self._suffix) for one in made.effects]
        made.effects = await self._without_run(effects)
        self._starts += len(made.effects)
        self._existing += len(effects) - len(made.effects)
        self._failed += len(made.parked) + len(made.deferred)
        return made

    async def _without_run(self, effects: list[ops.Effect]) -> list[ops.Effect]:
        """Those whose key no run has, of equal ones the first."""
        now = self._bench.clock.now()
        keys: dict[str, list[str]] = {}
        for one in effects:
            keys.setdefault(_workflow_and_key(one)[0], []).append(_workflow_and_key(one)[1])
        used = {
            (workflow, key)
            for workflow, some in keys.items()
            for key in await self._bench.store.known_keys(start_scope(workflow), some, now)
        }
        fresh = {_workflow_and_key(one): one for one in reversed(effects)}
        return [one for at, one in reversed(fresh.items()) if at not in used]

    async def fire(self, records: list[EventRecord]) -> None:
        made = await self.count(records)
        for first in range(0, max(len(made.effects), 1), _chunk):
            commit = ops.CommitEffects(
                consumer=RUNNER,
                effects=tuple(made.effects[first : first + _chunk]),
                parked=tuple(made.parked) if first == 0 else (),
            )
            if commit.effects or commit.parked:
                await self._bench.coordinator.submit(commit)


def _workflow_and_key(effect: ops.Effect) -> tuple[str, str]:
    op = effect.op
    assert isinstance(op, ops.StartRun)  # without a cap there is nothing to tell
    return op.workflow, op.key or ""


def _with_suffix(effect: ops.Effect, suffix: str) -> ops.Effect:
    op = effect.op
    if not suffix or not isinstance(op, ops.StartRun):
        return effect
    return replace(effect, op=replace(op, key=f"{op.key}{suffix}"))


class _IntoHandler:
    """Calls a handler: of a consumer, whose failures are parked, or a fresh one, whose failures are raised."""

    def __init__(
        self,
        bench: Bench,
        suffix: str,
        name: str,
        handler: Handler,
        definition: ConsumerDef | None,  # None: a fresh one
    ) -> None:
        self._bench, self._suffix = bench, suffix
        self._name, self._handler = name, handler
        self._definition = definition
        self.chunk = _chunk if definition is None else min(definition.batch, _chunk)
        self.wants = anything if definition is None else wanting(definition.patterns)
        self._failed = 0
        self._fired: set[str] = set()

    def counts(self) -> dict[str, Any]:
        return {"failed": self._failed}

    async def count(self, records: list[EventRecord]) -> None:
        """Nothing is known without calling it."""

    async def fire(self, records: list[EventRecord]) -> None:
        dedupe = self._definition is not None and self._definition.dedupe
        if dedupe and self._suffix:
            records = [one for one in records if self._is_first(one)]
        keys: tuple[str, ...] = ()
        while True:
            if dedupe and not self._suffix:
                store, now = self._bench.store, self._bench.clock.now()
                records, keys = await unfinished(store, self._name, records, now)
            if not records:
                return
            try:
                if await self._call(records, keys):
                    return
            except HandlerFailed as failed:
                if self._definition is None:
                    raise (failed.__cause__ or failed) from None
                await self._one_by_one(self._definition, records)
                return

    def _is_first(self, record: EventRecord) -> bool:
        """Of a replay that is to run again: whether it is the first one of its key."""
        key = own_key(record)
        if key is None:
            return True
        known = key in self._fired
        self._fired.add(key)
        return not known

    async def _one_by_one(self, definition: ConsumerDef, records: list[EventRecord]) -> None:
        for record in records:
            # Keys of a replay that is to run again count within it only.
            keys = () if self._suffix else definition.keys_of(record)
            try:
                await self._call([record], keys)
            except HandlerFailed as failed:
                self._failed += 1
                parked = parked_record(self._name, record, str(failed), 2)
                commit = ops.CommitEffects(consumer=self._name, parked=(parked,))
                await self._bench.coordinator.submit(commit)

    async def _call(self, records: list[EventRecord], keys: Sequence[str]) -> bool:
        """False if the consumer itself has dealt with one of these keys meanwhile: then nothing was done."""
        effects = await call(
            self._handler,
            self._bench.desk,
            self._name,
            records,
            where=None if self._definition is None else self._definition.where,
            replay=True,
            key_suffix=self._suffix,
        )
        if effects is None or not (effects or keys):
            return True
        commit = ops.CommitEffects(consumer=self._name, effects=effects, finished=tuple(keys))
        return (await self._bench.coordinator.submit(commit)).count > 0
