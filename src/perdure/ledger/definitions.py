"""What code declares about reading the ledger: consumers, subscriptions, anomaly detectors.

A definition is checked when it is made: names, patterns, schedules, expressions, the handler's signature. Whatever is
wrong with it is told there and then, not when the first event comes. `Readers` holds those of one app; its copies
share them.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perdure.channels import Topic
from perdure.errors import Conflict
from perdure.inputs import checked_flag, is_whole
from perdure.ledger.expressions import Filter
from perdure.ledger.rules import Function, Rule, checked_rule, own_key, takes_event
from perdure.model import limits
from perdure.model.clock import from_datetime
from perdure.model.cron import Cron, parse_cron
from perdure.model.duration import Duration, parse_duration
from perdure.model.events import Event
from perdure.model.limits import BadValue, check_name, unsaid
from perdure.model.policy import Retry
from perdure.model.records import RUNNER, EventRecord, SubscriptionRecord
from perdure.model.topics import Pattern, parse_pattern
from perdure.registry import Workflow

if TYPE_CHECKING:
    from perdure.ledger.batches import Batch

Handler = Callable[["Batch"], Awaitable[None]]
CatchUp = Literal["one", "skip"]
Where = Filter | Function
Start = Literal["beginning", "now"] | int | datetime

# Five tries within a quarter of a minute: long enough for a restart of what the handler talks to, short enough that
# one bad event does not hold up the rest for long.
RETRY_DEFAULT = Retry(attempts=5)
_types_kept = 4096


class Begin(NamedTuple):
    """Where a new reader begins: after a position, or with a time, or (both None) at the end."""

    position: int | None
    at: int | None


def checked_start(value: Any, what: str = "start") -> Begin:
    """What `start=` was given, or `to` of a rewind."""
    match value:
        case "beginning":
            return Begin(0, None)
        case "now":
            return Begin(None, None)
        case datetime():
            return Begin(None, from_datetime(value, what))
        case int() if is_whole(value, 0, limits.int_max):
            return Begin(value, None)
    raise BadValue(
        what,
        value,
        'must be "beginning", "now", a position (events after it count) or a datetime with a zone',
    )


def pattern_of(given: Any) -> Pattern:
    """What a reader was told to read: a pattern, or a topic."""
    return parse_pattern(given.name if isinstance(given, Topic) else given)


def wanting(patterns: Sequence[Pattern]) -> Callable[[str], bool]:
    """Whether a reader of these wants events of a type; asked once for each type that is about."""
    return functools.lru_cache(_types_kept)(lambda type: any(one.matches(type) for one in patterns))


def anything(type: str) -> bool:
    """What a reader of everything wants."""
    return True


# --- consumers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerDef:
    """A handler and what it wants to read. Live without `cron`."""

    name: str
    patterns: tuple[Pattern, ...]
    handler: Handler
    cron: Cron | None
    catch_up: CatchUp
    batch: int
    dedupe: bool
    start: Begin
    retry: Retry
    where: Where | None = None  # which of them it wants; of those that a webhook sends

    def keys_of(self, record: EventRecord) -> tuple[str, ...]:
        """What is remembered of an event once it is dealt with: with dedupe its key, if it has one."""
        key = own_key(record) if self.dedupe else None
        return () if key is None else (key,)


def consumer_def(
    name: str,
    patterns: Sequence[str | Topic[Any]],
    handler: Any,
    *,
    every: str | None,
    zone: str,
    catch_up: CatchUp,
    batch: int,
    dedupe: bool,
    start: Start,
    retry: Retry | None,
) -> ConsumerDef:
    """A consumer, checked."""
    name = checked_reader_name("consumer", name)
    if not patterns:
        raise BadValue("consumer", name, 'reads nothing: give it a pattern, such as "order.*"')
    if catch_up not in ("one", "skip"):
        raise BadValue("catch_up", catch_up, 'must be "one" or "skip"')
    checked_flag("dedupe", dedupe)
    if retry is not None and not isinstance(retry, Retry):
        raise BadValue("retry", retry, "must be a policy: Retry(attempts=…)")
    return ConsumerDef(
        name=name,
        patterns=tuple([pattern_of(one) for one in patterns]),
        handler=checked_handler(name, handler),
        cron=checked_cron(every, zone),
        catch_up=catch_up,
        batch=_checked_batch(batch),
        dedupe=dedupe,
        start=checked_start(start),
        retry=retry or RETRY_DEFAULT,
    )


def checked_reader_name(what: str, name: Any) -> str:
    """The name of a consumer or detector: they share one table, and one name is taken."""
    checked = check_name(what, name)
    if checked == RUNNER:
        raise BadValue(what, name, "is the name of the built-in consumer of subscriptions")
    return checked


def checked_cron(every: str | None, zone: str) -> Cron | None:
    """A schedule, or None for a live reader; the zone is checked in any case."""
    cron = parse_cron("@daily" if every is None else every, zone)
    return None if every is None else cron


def checked_handler(name: str, handler: Handler) -> Handler:
    """An `async def` that can be called with a batch alone."""
    if not inspect.iscoroutinefunction(handler):
        raise BadValue(f"consumer {name!r}", handler, "must be an `async def` that takes the batch")
    signature = inspect.signature(handler)
    try:
        signature.bind(None)
    except TypeError as error:
        raise BadValue(
            f"consumer {name!r}", handler, f"must take one argument, the batch: {error}"
        ) from None
    first = next(iter(signature.parameters.values()))
    if first.annotation in (Event, "Event"):  # else each event would fail, and be parked
        raise BadValue(
            f"consumer {name!r}",
            handler,
            f"takes one argument, a Batch of events, and no Event: `async def {handler.__name__}(batch: Batch)`",
        )
    return handler


def _checked_batch(batch: Any) -> int:
    bound = limits.events_per_batch_max
    if not is_whole(batch, 1, bound):
        raise BadValue("batch", batch, f"must be from 1 to {bound} (events_per_batch_max)")
    return int(batch)


# --- subscriptions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubscriptionDef:
    """A rule that code declares: a pattern starts a workflow."""

    name: str
    pattern: Pattern
    workflow: str
    rule: Rule
    start: Begin

    def record(self) -> SubscriptionRecord:
        """The row; the store gives it its place on the ledger."""
        return SubscriptionRecord(
            name=self.name,
            pattern=self.pattern.text,
            workflow=self.workflow,
            where=self.rule.text("where"),
            map=self.rule.text("map"),
            key=self.rule.text("key"),
            code=self.rule.is_code,
            declared=True,
        )


def subscription_def(
    pattern: str | Topic[Any],
    workflow: Workflow[Any, *tuple[Any, ...]],
    *,
    name: str | None,
    where: Any,
    map: Any,
    key: Any,
    start: Start,
) -> SubscriptionDef:
    """A subscription of a workflow whose code is here, checked."""
    parsed = pattern_of(pattern)
    rule = checked_rule(where, map, key)
    check_input(workflow, mapped=map is not None)
    return SubscriptionDef(
        name=check_name("subscription", f"{workflow.name}:{parsed}" if name is None else name),
        pattern=parsed,
        workflow=workflow.name,
        rule=rule,
        start=checked_start(start),
    )


def check_input(workflow: Workflow[Any, *tuple[Any, ...]], *, mapped: bool) -> None:
    """Whether a workflow can be started by an event: with what a mapper makes, or with the event itself."""
    params = workflow.args.params
    required = [one.name for one in params if one.default is inspect.Parameter.empty]
    what = f"workflow {workflow.name!r}"
    if len(required) > 1 or (mapped and not params):
        listed = ", ".join(required) or "none"
        raise BadValue(
            what,
            unsaid,
            f"must take one input besides ctx to be started by an event; it has: {listed}",
        )
    if not mapped and params and not takes_event(workflow):
        raise BadValue(
            what,
            unsaid,
            f"takes {params[0].name!r}, which is no Event: give map= to make it from the event",
        )


# --- anomalies ---------------------------------------------------------------------------------------


class Rate(NamedTuple):
    """More than `most` events within a span of time."""

    most: int
    within_us: int


class Missing(NamedTuple):
    """An event that is not followed by another about the same entity within a span of time."""

    first: Pattern
    then: Pattern
    within_us: int


@dataclass(frozen=True, slots=True)
class AnomalyDef:
    """A detector on a schedule; what it finds is told as `anomaly.<name>`."""

    name: str
    patterns: tuple[Pattern, ...]
    cron: Cron
    find: Rate | Missing
    by_entity: bool


def anomaly_def(
    name: str,
    pattern: str | Topic[Any] | None,
    *,
    every: str,
    zone: str,
    rate: tuple[int, Duration] | None,
    missing: tuple[str | Topic[Any], str | Topic[Any], Duration] | None,
    by_entity: bool,
) -> AnomalyDef:
    """A detector, checked."""
    name = checked_reader_name("anomaly", name)
    parse_pattern(f"anomaly.{name}")  # it will be a topic
    if (rate is None) == (missing is None):
        raise BadValue("anomaly", name, "looks for rate=(count, within) or missing=(A, B, within)")
    find = _checked_rate(rate) if rate is not None else _checked_missing(missing)
    if isinstance(find, Missing):
        if pattern is not None:
            raise BadValue("anomaly", name, "with missing= names its patterns there, and no other")
        patterns: tuple[Pattern, ...] = (find.first, find.then)
    else:
        patterns = (pattern_of(pattern),)
    return AnomalyDef(
        name=name,
        patterns=patterns,
        cron=parse_cron(every, zone),
        find=find,
        by_entity=checked_flag("by_entity", by_entity) or isinstance(find, Missing),
    )


def _checked_rate(rate: Any) -> Rate:
    if not isinstance(rate, tuple) or len(rate) != 2:
        raise BadValue("rate", rate, "must be (count, within), such as (100, '15m')")
    count, within = rate
    if not is_whole(count, 0):
        raise BadValue("rate", rate, "must begin with a whole number from 0")
    return Rate(count, _checked_within(within))


def _checked_missing(missing: Any) -> Missing:
    if not isinstance(missing, tuple) or len(missing) != 3:
        raise BadValue("missing", missing, "must be (A, B, within), such as ('a', 'b', '2h')")
    first, then, within = missing
    return Missing(pattern_of(first), pattern_of(then), _checked_within(within))


def _checked_within(within: Any) -> int:
    within_us = parse_duration(within, "within")
    if within_us == 0:
        raise BadValue("within", within, "must be more than nothing")
    return within_us


# --- all of an app -----------------------------------------------------------------------------------


class Readers:
    """What one app declares about reading the ledger, by name."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerDef] = {}
        self.subscriptions: dict[str, SubscriptionDef] = {}
        self.anomalies: dict[str, AnomalyDef] = {}

    def add(self, one: ConsumerDef | SubscriptionDef | AnomalyDef) -> None:
        """Raises Conflict for a name that is taken; consumers and detectors share theirs."""
        if isinstance(one, SubscriptionDef):
            if one.name in self.subscriptions:
                raise Conflict(
                    f"subscription {one.name!r} is already defined: give one of them name="
                )
            self.subscriptions[one.name] = one
            return
        if one.name in self.consumers or one.name in self.anomalies:
            raise Conflict(f"consumer {one.name!r} is already defined")
        if isinstance(one, ConsumerDef):
            self.consumers[one.name] = one
        else:
            self.anomalies[one.name] = one
