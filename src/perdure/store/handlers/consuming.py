"""Consumers and subscriptions: a cursor moves together with what its consumer wants done, or not at all.

A consumer has one owner, a live worker, that names the fence of its claim and the cursor it started from. An effect
that is refused does not hold the others up: it leaves a fact, or, for a start that a subscription asks for, a parked
event. Starts keep to the bounds of their chain of events; what they put off is kept, and told of.
"""

from typing import Any

from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.keys import consumer_scope, start_scope
from perdure.model.outcomes import (
    Counted,
    CursorMoved,
    EmitOutcome,
    Fenced,
    Moved,
    Refusal,
    Started,
    Wake,
)
from perdure.model.records import (
    ConsumerRecord,
    DeferredRecord,
    ParkedRecord,
    SubscriptionRecord,
)
from perdure.store.handlers import ledger, queues
from perdure.store.handlers.facts import refusal_of, tell_ledger
from perdure.store.handlers.keys import keep_key, used_key
from perdure.store.handlers.owning import is_known, start_run
from perdure.store.handlers.sending import send_signal
from perdure.store.tables import Tables

# --- who reads ---


def claim_consumer(tables: Tables, op: ops.ClaimConsumer) -> ConsumerRecord | Refusal:
    known = tables.consumer(op.name)
    if known is not None and _is_anothers(tables, known, op.worker_id):
        return Refusal("owned", f"consumer {op.name!r} is read by another worker")
    if known is None:
        known = ConsumerRecord(
            name=op.name,
            patterns=op.patterns,
            # The beginning is the oldest event that is kept.
            position=max(_start(tables, op.start, op.start_at), tables.first_position() - 1),
            created_at=tables.now,
            advanced_at=tables.now,
        )
    consumer = replace(
        known,
        patterns=op.patterns,
        every=op.every,
        zone=op.zone,
        owner=op.worker_id,
        fence=op.fence,
    )
    tables.put_consumer(consumer)
    return consumer


def _is_anothers(tables: Tables, consumer: ConsumerRecord, worker_id: str) -> bool:
    owner = consumer.owner
    return owner is not None and owner != worker_id and tables.is_live(owner)


def _start(tables: Tables, position: int | None, at: int | None) -> int:
    """Where to begin: after a position, with a time, or at the end."""
    if at is not None:
        return tables.position_at(at)
    last = tables.last_position()
    return last if position is None else min(position, last)


def advance_cursor(tables: Tables, op: ops.AdvanceCursor) -> CursorMoved | Moved | Fenced:
    consumer = tables.consumer(op.name)
    if consumer is None or consumer.fence != op.fence:
        return Fenced(op.name, None)
    if op.caught_up is not None:
        if not _catch_up(tables, op.caught_up, op.seen, op.position):
            return Moved(consumer.position)
    elif consumer.position != op.seen or _is_finished(tables, op.name, op.finished):
        return Moved(consumer.position)
    outcomes = _commit(tables, op.name, op.effects, op.parked, op.finished)
    for deferred in op.deferred:
        tables.put_deferred(replace(deferred, deferred_at=tables.now))
    # The bounds may have put off more; that is counted where it happens.
    consumer = replace(tables.consumer(op.name) or consumer, advanced_at=tables.now, error=op.error)
    if op.caught_up is None:
        consumer = replace(consumer, position=op.position)
    if any(one.reason == "fanout" for one in op.deferred):
        consumer = replace(consumer, capped=consumer.capped + 1)
    tables.put_consumer(consumer)
    return CursorMoved(consumer, outcomes)


def _catch_up(tables: Tables, name: str, seen: int, position: int) -> bool:
    """A subscription's own reading of what was there before it has come as far as this."""
    subscription = tables.subscription(name)
    if subscription is None or subscription.behind != seen:
        return False
    behind = None if position >= subscription.until else position
    tables.put_subscription(replace(subscription, behind=behind))
    return True


def steer_consumer(tables: Tables, op: ops.SteerConsumer) -> ConsumerRecord | Refusal:
    consumer = tables.consumer(op.name)
    if consumer is None:
        return Refusal("no_consumer", f"no consumer {op.name!r} has ever run on this store")
    if op.paused is not None:
        reason = op.reason if op.paused else None
        consumer = replace(consumer, paused=op.paused, reason=reason)
    if op.position is not None or op.at is not None:
        position = _start(tables, op.position, op.at)
        oldest = tables.first_position() - 1
        if op.at is None and position < oldest and op.position != 0:
            return Refusal("cursor_too_old", str(oldest + 1))
        consumer = replace(
            consumer,
            position=max(position, oldest),
            # What its owner has under way began elsewhere and must not be committed, also if it is moved to where
            # its row stands. The owner reads the new fence with the row.
            fence=_next_fence(consumer.fence),
            advanced_at=tables.now,
            error=None,
        )
    tables.put_consumer(consumer)
    tables.wakes.append(Wake("consumer", op.name))
    return consumer


def _next_fence(fence: int) -> int:
    return fence % limits.int_max + 1


def drop_consumer(tables: Tables, op: ops.DropConsumer) -> Counted | Refusal:
    consumer = tables.consumer(op.name)
    if consumer is None:
        return Refusal("no_consumer", op.name)
    if consumer.owner is not None and tables.is_live(consumer.owner):
        return Refusal("owned", f"consumer {op.name!r} is read by a worker that lives")
    tables.delete_consumer(op.name)
    return Counted(1)


# --- what it wants done ---


def commit_effects(tables: Tables, op: ops.CommitEffects) -> Counted:
    if op.unpark is None:
        if _is_finished(tables, op.consumer, op.finished):
            return Counted(0)
        _commit(tables, op.consumer, op.effects, op.parked, op.finished)
        return Counted(1)
    parked = tables.parked(op.consumer, *op.unpark)
    if parked is None:
        return Counted(0)
    if op.reason is not None:
        tables.put_parked(replace(parked, reason=op.reason, attempts=parked.attempts + 1))
        return Counted(0)
    _commit(tables, op.consumer, op.effects, op.parked, op.finished)
    # If it differs it was refused, and is parked once more.
    if tables.parked(op.consumer, *op.unpark) == parked:
        tables.delete_parked(parked)
    return Counted(1)


def _commit(
    tables: Tables,
    consumer: str,
    effects: tuple[ops.Effect, ...],
    parked: tuple[ParkedRecord, ...],
    finished: tuple[str, ...],
) -> tuple[object, ...]:
    outcomes = tuple([_apply(tables, consumer, effect) for effect in effects])
    for one in parked:
        tables.put_parked(replace(one, parked_at=tables.now))
    scope = consumer_scope(consumer)
    for key in finished:
        keep_key(tables, scope, key, limits.dedupe_key_us)
    return outcomes


def _is_finished(tables: Tables, consumer: str, keys: tuple[str, ...]) -> bool:
    """Whether one of these keys was dealt with since the events were looked at: by a replay beside the consumer."""
    scope = consumer_scope(consumer)
    return any(used_key(tables, scope, key) is not None for key in keys)


def _apply(tables: Tables, consumer: str, effect: ops.Effect) -> object:
    op = effect.op
    outcome: object
    if isinstance(op, ops.StartRun):
        if effect.subscription and _is_put_off(tables, consumer, effect, op):
            return None
        outcome = _start_run(tables, effect, op)
    elif isinstance(op, ops.SendSignal):
        outcome = send_signal(tables, op)
    elif isinstance(op, ops.Emit):
        outcomes = tuple([_emit(tables, one) for one in op.events])
        for one in outcomes:
            _note_refusal(tables, consumer, effect, one)
        return outcomes
    else:
        outcome = queues.put(tables, op)
    _note_refusal(tables, consumer, effect, outcome)
    return outcome


def _start_run(tables: Tables, effect: ops.Effect, op: ops.StartRun) -> Started | Refusal:
    """A subscription starts one run for each key: another event of that key finds it, whatever it says."""
    if effect.subscription:
        used = None if op.key is None else tables.key(start_scope(op.workflow), op.key)
        run = None if used is None else tables.run(used.answer)
        return start_run(tables, op) if run is None else Started(run, False)
    over = _over(tables, op)
    if over is not None:
        chain = f"the chain of events that began with {op.root_id!r}"
        bounds = {"depth": limits.event_depth_max, "root": limits.starts_per_root_max}
        return Refusal("too_deep", f"{chain} has started enough ({over}: {bounds[over]})")
    return start_run(tables, op)


def _emit(tables: Tables, new: ops.NewEvent) -> EmitOutcome:
    """A consumer that emits what it reads would go on for ever: its chain ends where that of starts does."""
    if new.depth > limits.event_depth_max:
        chain = f"the chain of events that began with {new.root_id!r}"
        return Refusal("too_deep", f"{chain} is {limits.event_depth_max} long (event_depth_max)")
    (outcome,) = ledger.emit(tables, ops.Emit(events=(new,)))
    return outcome


def _note_refusal(tables: Tables, consumer: str, effect: ops.Effect, outcome: object) -> None:
    """What was refused does not vanish: a parked event for a subscription, a fact for a handler."""
    reason = refusal_of(outcome)
    if reason is None:
        return
    if effect.subscription:
        park(tables, consumer, effect, reason)
        return
    facts = {"consumer": consumer, "effect": type(effect.op).__name__, "reason": reason}
    _tell(tables, "ledger.effect_refused", {**facts, "position": effect.position}, effect)


def park(tables: Tables, consumer: str, effect: ops.Effect, reason: str) -> None:
    event = tables.event_at(effect.position)
    if event is None:
        return
    known = tables.parked(consumer, effect.position, effect.subscription)
    tables.put_parked(
        ParkedRecord(
            consumer=consumer,
            position=effect.position,
            subscription=effect.subscription,
            event_id=event.event_id,
            type=event.type,
            reason=reason,
            attempts=1 if known is None else known.attempts + 1,
            parked_at=tables.now,
        )
    )


def _tell(
    tables: Tables, type: str, facts: dict[str, Any], about: ops.Effect, *, anew: bool = False
) -> None:
    """A fact about the ledger's own readers.

    It belongs to the chain of the event it is about, one hop further (`anew`: with its depth from the beginning), or
    whoever acts on it could go on for ever. For the same reason it is not told about such a fact.
    """
    event = tables.event_at(about.position)
    if event is not None and event.type == type:
        return
    root_id = None if event is None else event.root_id or event.event_id
    depth = 0 if event is None or anew else event.depth + 1
    tell_ledger(tables, type, facts, root_id, depth)


# --- bounds on what events start ---


def _is_put_off(tables: Tables, consumer: str, effect: ops.Effect, op: ops.StartRun) -> bool:
    reason = _over(tables, op)
    if reason is None:
        return False
    tables.put_deferred(
        DeferredRecord(
            position=effect.position,
            subscription=effect.subscription,
            event_id=op.event_id or "",
            reason=reason,
            deferred_at=tables.now,
        )
    )
    facts = {"subscription": effect.subscription, "event_id": op.event_id, "root_id": op.root_id}
    # Its depth begins anew, so that it can start something itself; the count of its chain does not.
    told = {**facts, "depth": op.depth}
    _tell(tables, f"ledger.{reason}_capped", told, effect, anew=True)
    known = tables.consumer(consumer)
    if known is not None:
        tables.put_consumer(replace(known, capped=known.capped + 1))
    return True


def _over(tables: Tables, op: ops.StartRun) -> Any:
    """Which bound a start would break: "depth", "root", or None. One that finds its run starts nothing."""
    if is_known(tables, op):
        return None
    if op.depth > limits.event_depth_max:
        return "depth"
    root_id = op.root_id or ""
    if tables.started_under(root_id, limits.starts_per_root_max) >= limits.starts_per_root_max:
        return "root"
    return None


def drain_deferred(tables: Tables, op: ops.DrainDeferred) -> Counted:
    count = 0
    for position, name, start, reason in op.starts:
        deferred = tables.deferred(position, name)
        if deferred is None:
            continue
        if start is not None and not op.released and _over(tables, start) == deferred.reason:
            continue  # as before: that was told already
        count += 1
        tables.delete_deferred(deferred)
        effect = ops.Effect(op=start or _nothing, position=position, subscription=name)
        if start is None:
            _let_go(tables, op, effect, reason)
        elif op.released or not _is_put_off(tables, op.consumer, effect, start):
            outcome = _start_run(tables, effect, start)
            _note_refusal(tables, op.consumer, effect, outcome)
    return Counted(count)


_nothing = ops.Emit(events=())


def _let_go(tables: Tables, op: ops.DrainDeferred, effect: ops.Effect, reason: str | None) -> None:
    """A start that was put off and never comes: no longer wanted, impossible, or its event is gone."""
    if reason is not None:
        park(tables, op.consumer, effect, reason)
    elif not op.released and tables.event_at(effect.position) is None:
        at = effect.position
        lost = {"subscription": effect.subscription, "first": at, "last": at}
        _tell(tables, "ledger.events_lost", lost, effect)


def drop_parked(tables: Tables, op: ops.DropParked) -> Counted:
    found = [tables.parked(op.consumer, *at) for at in op.events]
    kept = [one for one in found if one is not None]
    for one in kept:
        tables.delete_parked(one)
    return Counted(len(kept))


# --- rules ---


def put_subscription(tables: Tables, op: ops.PutSubscription) -> Counted | Refusal:
    known = tables.subscription(op.subscription.name)
    if known is not None and known.declared and not op.subscription.declared:
        detail = f"subscription {known.name!r} is declared in code; change it there"
        return Refusal("conflict", detail)
    if known is None:
        new = _new_subscription(tables, op)
    else:
        kept = ("position", "behind", "until", "created_at")
        new = replace(op.subscription, **{name: getattr(known, name) for name in kept})
        new = _switched(tables, new, known, known.enabled if op.keep_enabled else new.enabled)
    if new == known:
        return Counted(0)
    tables.put_subscription(new)
    tables.wakes.append(Wake("consumer"))
    return Counted(1)


def _switched(
    tables: Tables, new: SubscriptionRecord, known: SubscriptionRecord, enabled: bool
) -> SubscriptionRecord:
    if enabled and not known.enabled:
        # What came while it was off does not count for it, whether the runner has passed that or not.
        new = replace(new, position=max(known.position, tables.last_position()))
    return replace(new, enabled=enabled)


def switch_subscription(tables: Tables, op: ops.SwitchSubscription) -> Counted:
    known = tables.subscription(op.name)
    if known is None:
        return Counted(0)
    if known.enabled != op.enabled:
        tables.put_subscription(_switched(tables, known, known, op.enabled))
        tables.wakes.append(Wake("consumer"))
    return Counted(1)


def _new_subscription(tables: Tables, op: ops.PutSubscription) -> SubscriptionRecord:
    """It begins at the end of the ledger; what lies before that and is asked for, it catches up with by itself.

    Not where the runner stands: that may be dealing with events now, and does not know of this subscription.
    """
    reached = tables.last_position()
    # The beginning is the oldest event that is kept.
    start = max(_start(tables, op.start, op.start_at), min(tables.first_position() - 1, reached))
    return replace(
        op.subscription,
        position=max(start, reached),
        behind=start if start < reached else None,
        until=reached,
        created_at=tables.now,
    )


def drop_subscription(tables: Tables, op: ops.DropSubscription) -> Counted:
    if tables.subscription(op.name) is None:
        return Counted(0)
    tables.delete_subscription(op.name)
    tables.wakes.append(Wake("consumer"))
    return Counted(1)
