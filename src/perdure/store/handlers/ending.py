"""How a wait ends from outside, and how a run does: each in one way, whoever brings it about.

One wait has one winner, stored with the completed step. A run that ends may end waits of others, and an event that ends
a wait may cancel a run: so these stand together. Whoever is about to act on a run first gives it the events that came
before (`catch_up`).
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model.outcomes import Finished, NotFound, Steered, Wake
from perdure.model.records import (
    CANCEL_PATH,
    Completion,
    EventRecord,
    ItemRecord,
    RunRecord,
    StepRecord,
    WatcherKind,
    WatcherRecord,
)
from perdure.model.status import TERMINAL
from perdure.model.ticks import NO_TICKS, schedule_of
from perdure.store.handlers import asking
from perdure.store.handlers.facts import Taker, awaken, bury, make_ready, move, put, tell
from perdure.store.handlers.standing import reason_of, watch_no_more
from perdure.store.handlers.taking import (
    branch_of_wait,
    decode_spec,
    ended_run,
    see,
    with_item,
)
from perdure.store.tables import Tables

log = logging.getLogger("perdure.store")


# --- a wait ---


def completion_of(step: StepRecord, by: WatcherKind | None = None) -> Completion:
    """What a decided step tells its owner."""
    return Completion(
        step.path,
        step.kind,
        step.state,
        step.seq,
        step.value,
        step.error,
        step.winner,
        step.recorded_at or 0,
        step.attempt,
        step.taken_id,
        by,
        step.started_at,
    )


def resolve(
    tables: Tables,
    run: RunRecord,
    path: str,
    by: WatcherKind,
    *,
    winner: int | None,
    value: str | None = None,
    state: Any = "done",
    error: str | None = None,
    taken_id: str | None = None,
    item: ItemRecord | None = None,
    taker: Taker | None = None,
) -> StepRecord | None:
    """End an open wait of `run` from outside, `by` a condition of that kind: winner and value, losers' watchers, the
    run's move.

    Gives the decided step. None when there is no such wait: its watchers were left over, which no op does. They go,
    and whoever acts on many waits at once goes on with the others.
    """
    step = tables.step(run.run_id, run.generation, path)
    if step is None or step.state != "open":
        about = {"run_id": run.run_id, "path": path}
        log.error("run %r is watched at %r and does not wait there", *about.values(), extra=about)
        tables.delete_watchers(run.run_id, path)
        return None
    step = replace(
        step,
        state=state,
        seq=tables.next_seq(),
        value=value,
        error=error,
        winner=winner,
        recorded_at=tables.now,
        taken_id=taken_id,
    )
    if item is not None:
        step = replace(step, wait=with_item(decode_spec(step.wait or ""), item))
    tables.put_step(step)
    if asking.may_ask(step):
        asking.end(tables, run, step)
    tables.delete_watchers(run.run_id, path)
    awaken(tables, run, completion_of(step, by), taker)
    return step


def deliver_event(
    tables: Tables,
    run: RunRecord,
    watcher: WatcherRecord,
    event: EventRecord,
    error: str | None = None,
    taker: Taker | None = None,
) -> bool:
    """End a wait by an event, and remember that the branch has seen it; or cancel the run, if that is what it does.

    With an error its filter failed on it, and so does the wait; the next one begins after it all the same.
    """
    if watcher.is_standing:
        if run.cancel_requested:  # with its parent, which was reached before
            return False
        _cancel_all(tables, run, reason_of(event))
        return True
    step = resolve(
        tables,
        run,
        watcher.path,
        "topic",
        winner=watcher.ix,
        value=event.payload if error is None else None,
        state="done" if error is None else "failed",
        error=error,
        taken_id=event.event_id,
        taker=taker,
    )
    if step is None:
        return False
    topic = (watcher.target, watcher.entity, watcher.filter)
    see(tables, run.run_id, branch_of_wait(step), topic, event.position)
    return True


def catch_up(tables: Tables, run: RunRecord) -> RunRecord:
    """Give a run the events that came before what is about to happen to it.

    An event that many wait for reaches them over several commits. Whoever acts on a wait meanwhile asks here first,
    so it is as if all had been resumed at once: the run as it is then is given back. One that has not begun may have
    ended, if such an event cancels it.
    """
    if not tables.fan_outs():
        return run
    found: dict[str, tuple[int, int, str, int, WatcherRecord, EventRecord]] = {}
    for watcher in tables.watchers(run.run_id):
        event = awaited_event(tables, watcher) if watcher.kind == "topic" else None
        if event is not None:
            path = watcher.path
            one = (event.position, watcher.opened_at, path, watcher.ix, watcher, event)
            found[path] = min(found.get(path, one), one, key=lambda each: (each[0], each[3]))
    # The earlier event first, then who waits longer: the order is part of the run's history. What an event cancels it
    # cancels last, as when it comes at once.
    for *_, watcher, event in sorted(
        found.values(), key=lambda each: (each[0], each[4].is_standing, *each[1:3])
    ):
        deliver_event(tables, tables.run(run.run_id) or run, watcher, event)
    return tables.run(run.run_id) or run


def waits_at(tables: Tables, run: RunRecord, path: str) -> bool:
    """Whether the run still waits there."""
    return any(one.path == path for one in tables.watchers(run.run_id))


def awaited_event(tables: Tables, watcher: WatcherRecord) -> EventRecord | None:
    """The event on the ledger that ends this wait, if it is there already."""
    return tables.next_event(
        watcher.target, watcher.entity, watcher.after, recorded_by=watcher.deadline_at
    )


# --- a run that is asked to ---


def cancel_run(tables: Tables, run_id: str, reason: str | None) -> Steered | Finished | NotFound:
    """Ask a run and all below it to stop. One that was asked before is not asked again."""
    run = tables.run(run_id)
    if run is None:
        return NotFound(run_id)
    if run.status in TERMINAL:
        return Finished(run_id, run.status)
    if not run.cancel_requested:
        run = catch_up(tables, run)
    if run.cancel_requested:  # also by an event that was on its way
        return Steered(run_id, run.status, False)
    return _cancel_all(tables, run, reason)


def _cancel_all(tables: Tables, run: RunRecord, reason: str | None) -> Steered:
    """Ask a run that was given all events before this, and those below it."""
    steered = _ask_to_stop(tables, run, reason)
    for child_id, parent_id in descendants(tables, run.run_id):
        child = tables.run(child_id)
        if child is not None and not child.cancel_requested:
            # It stops with its parent, whatever else would have stopped it.
            watch_no_more(tables, child)
            child = catch_up(tables, child)
            _ask_to_stop(tables, child, f"its parent {parent_id!r} was cancelled")
    return steered


def descendants(tables: Tables, run_id: str) -> Iterator[tuple[str, str]]:
    """Live runs below a run with their parents, level by level: a chain of runs has no bound in depth."""
    # Ids can be used anew, so a run may be its own ancestor.
    ahead, seen = deque([run_id]), {run_id}
    while ahead:
        parent_id = ahead.popleft()
        for child_id in tables.children(parent_id):
            if child_id not in seen:
                seen.add(child_id)
                ahead.append(child_id)
                yield child_id, parent_id


def _ask_to_stop(tables: Tables, run: RunRecord, reason: str | None) -> Steered:
    watch_no_more(tables, run)
    if not run.admitted:
        # In line, or paused before it came out of it: none of its code has run that could clean up, so it need not wait
        # for a slot either.
        end_run(tables, replace(run, cancel_requested=True), "cancelled", reason=reason)
        return Steered(run.run_id, "cancelled", True)
    asked: dict[str, Any] = {"cancel_requested": True, "reason": reason, "pause_requested": False}
    if run.status in ("ready", "paused"):
        # Also before its time, if it was to start later: its code runs up to the first wait, and is told.
        run = make_ready(tables, run, revision=run.revision + 1, **asked)
    else:
        run = awaken(tables, move(tables, run, **asked), None)
    return Steered(run.run_id, run.status, True)


# --- a run ---


def end_run(
    tables: Tables,
    run: RunRecord,
    status: str,
    *,
    output: str | None = None,
    error: str | None = None,
    reason: str | None = None,
) -> None:
    """The one way a run ends: buffer emptied, watchers gone, waiting runs told, fact written."""
    _empty_buffer(tables, run, status)
    asking.withdraw(tables, run, asking.why_ended(status, reason or run.reason))
    tables.delete_watchers(run.run_id)
    ended = replace(
        run,
        status=status,
        output=output,
        error=error,
        reason=reason or run.reason,
        finished_at=tables.now,
        ready_at=None,
        line_at=None,
        owner=None,
        fence=0,
        pause_requested=False,
    )
    put(tables, run, ended)
    # Before the fact of it: who waits for the run, or else for such facts, learns of the run.
    watchers = tables.watchers_on_run(run.run_id)
    if watchers:
        _tell_waiters(tables, ended, watchers)
    tell(tables, ended, f"workflow.run_{status}", _last_words(ended))
    tables.wakes.append(Wake("ended", run.run_id, run.owner, run=ended))
    _start_next(tables, ended)


def _tell_waiters(tables: Tables, run: RunRecord, watchers: list[WatcherRecord]) -> None:
    # A wait may name this run twice: its first mention wins.
    first_of = {(one.run_id, one.path): one for one in reversed(watchers)}
    for watcher in reversed(first_of.values()):
        waiter = tables.run(watcher.run_id)
        in_time = watcher.deadline_at is None or tables.now <= watcher.deadline_at
        ended = ended_run(tables, run.run_id, watcher.ix, None)
        if waiter is not None and run.parent_run_id == waiter.run_id:
            # Both were cancelled at once and the child was quicker: the parent is to learn of its own cancel
            # here, not of the child's, and closes this wait when it does.
            cancelled = run.status == "cancelled"
            in_time = in_time and not (cancelled and cancel_is_ahead(tables, waiter))
        if waiter is not None and ended is not None and in_time:
            waiter = catch_up(tables, waiter)
            if waits_at(tables, waiter, watcher.path):
                resolve(tables, waiter, watcher.path, "run", **ended)


def cancel_is_ahead(tables: Tables, run: RunRecord) -> bool:
    """Whether cancel was asked for and the code does not know yet; what it starts later is its clean-up."""
    if not run.cancel_requested:
        return False
    return tables.step(run.run_id, run.generation, CANCEL_PATH) is None


def _last_words(run: RunRecord) -> dict[str, object]:
    if run.status == "failed" and run.error is not None:
        return {"error": msgspec.Raw(run.error.encode())}
    if run.reason is not None and run.status in ("cancelled", "terminated"):
        return {"reason": run.reason}
    return {}


def _empty_buffer(tables: Tables, run: RunRecord, status: str) -> None:
    """Signals that were never taken leave the buffer with the run, each with a fact."""
    for signal in tables.signals(run.run_id):
        tables.delete_signal(signal)
        keep = signal.on_end == "dead_letter" or status == "failed"
        told = {"signal_id": signal.signal_id, "name": signal.name, "dead_letter": keep}
        # A dead letter may be delivered yet: its own id stays free for that fact.
        tell(tables, run, "signal.discarded", told, event_id=None if keep else signal.signal_id)
        if keep:
            bury(tables, run, signal, f"the run ended as {status}", "ended")


def _start_next(tables: Tables, run: RunRecord) -> None:
    """If a schedule has started the run, a tick may have waited for its end."""
    name = schedule_of(run.tags)
    row = None if name is None else tables.schedule(name)
    if row is None or row.queued == NO_TICKS or row.paused:
        return
    due_at = min(tables.now, row.next_at)
    tables.put_schedule(replace(row, due_at=due_at))
    tables.wakes.append(Wake("schedule", row.name, at=due_at))
