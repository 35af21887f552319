"""Deadlines: found by an index, never by a scan; acting on one twice is a no-op.

A deadline decides nothing that was decided before it: the watcher is gone then, and there is nothing to find.
"""

from perdure.model import ops
from perdure.model.outcomes import Fired
from perdure.model.records import DEADLINE_PATH, Completion, RunRecord, WatcherRecord
from perdure.store.handlers import asking, ending, taking
from perdure.store.handlers.facts import awaken, tell
from perdure.store.handlers.standing import DEADLINE_REASON
from perdure.store.tables import Tables


def fire_timers(tables: Tables, op: ops.FireTimers) -> Fired:
    due = tables.due_watchers(op.limit)
    alarms = [one for one in due if one.kind == "alarm"]
    # A wait with several conditions has several watchers and one deadline: act on it once.
    first_of = {(one.run_id, one.path): one for one in reversed(due) if one.kind != "alarm"}
    for watcher in first_of.values():
        run = tables.run(watcher.run_id)
        if run is not None:
            _fire(tables, run, watcher)
    # After the waits: of what has ended nobody need be reminded.
    for alarm in alarms:
        run = tables.run(alarm.run_id)
        if run is not None:
            asking.ring(tables, ending.catch_up(tables, run), alarm)
    expired = tables.expired_signals(op.limit)
    for signal in expired:
        tables.delete_signal(signal)
        run = tables.run(signal.run_id)
        if run is not None:
            taking.expire(tables, run, signal)
    return Fired(len(first_of) + len(alarms) + len(expired), tables.next_deadline())


def _fire(tables: Tables, run: RunRecord, watcher: WatcherRecord) -> None:
    if watcher.kind == "retry":
        tables.delete_watchers(run.run_id, watcher.path)
        step = tables.step(run.run_id, watcher.generation, watcher.path)
        awaken(tables, run, _retry_due(watcher, 1 if step is None else step.attempt))
        return
    if watcher.path == DEADLINE_PATH:
        tables.delete_watchers(run.run_id, watcher.path)
        ending.cancel_run(tables, run.run_id, DEADLINE_REASON)
        return
    run = ending.catch_up(tables, run)
    watchers = [one for one in tables.watchers(run.run_id) if one.path == watcher.path]
    if not watchers:
        return  # an event had come before the deadline
    time_out(tables, run, watcher, watchers)


def time_out(
    tables: Tables, run: RunRecord, watcher: WatcherRecord, watchers: list[WatcherRecord]
) -> None:
    """End a wait by its deadline; `watchers` are all that it has."""
    names = [one.target for one in watchers if one.kind == "signal"]
    ix = watcher.deadline_ix
    step = ending.resolve(tables, run, watcher.path, "timer", winner=ix, value="null")
    if step is None or taking.decode_spec(step.wait or "").handles_timeout:
        return
    for name in names:
        tell(tables, run, "signal.timeout", {"name": name, "path": watcher.path})


def _retry_due(watcher: WatcherRecord, attempt: int) -> Completion:
    """`attempt` is the one that failed."""
    due_at = watcher.deadline_at or 0
    return Completion(watcher.path, "step", "retrying", 0, None, None, None, due_at, attempt)
