"""Waits: open them, close them, and give back what they held.

A wait that opens first looks at what is already there (taking.py). What it does not find it watches for, with one
watcher for each condition; whoever brings it ends the wait from outside (ending.py).
"""

import logging
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Wake
from perdure.model.records import (
    Completion,
    Condition,
    ItemRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WaitSpec,
    WatcherRecord,
)
from perdure.store.handlers import asking
from perdure.store.handlers.ending import catch_up, completion_of, resolve
from perdure.store.handlers.facts import bury, tell
from perdure.store.handlers.taking import (
    after_of,
    branch_in,
    branch_of_wait,
    decode_spec,
    free_claim,
    is_held,
    see,
    take,
    topic_of,
)
from perdure.store.tables import Tables

log = logging.getLogger("perdure.store")

_encode = msgspec.json.encode


def open_wait(tables: Tables, run: RunRecord, wait: ops.Wait) -> Completion | None:
    """Decide a wait at once, or register its watchers and give None."""
    step = tables.step(run.run_id, run.generation, wait.path) if wait.known else None
    if step is not None and step.state != "open":
        return completion_of(step)
    if step is not None and any(
        one.path == wait.path and not one.is_beside for one in tables.watchers(run.run_id)
    ):
        return None
    spec = _spec(tables.now, wait) if step is None else decode_spec(step.wait or "")
    spec = _with_cursors(tables, run, wait, spec)
    step = step or StepRecord(
        run_id=run.run_id,
        generation=run.generation,
        path=wait.path,
        kind=wait.kind,
        name=wait.name,
        state="open",
        wait=_encode(spec).decode(),
        started_at=tables.now,
    )
    found = take(tables, run, wait, spec)
    if found is not None:
        step = replace(step, seq=tables.next_seq(), recorded_at=tables.now, **found)
    if asking.may_ask(step):
        spec, step = _with_approvals(tables, run, wait, spec, step)
    if wait.known:
        tables.put_step(step)
    else:
        tables.add_step(step)
    if found is not None:
        return completion_of(step)
    _watch(tables, run, wait, spec, step.started_at)
    if wait.announced and not wait.known:
        _announce(tables, run, wait, spec)
    return None


def _announce(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> None:
    for one in wait.on:
        if one.kind == "signal":
            told = {"name": one.target, "path": wait.path, "deadline_at": spec.deadline_at}
            tell(tables, run, "signal.waiting", told)


def _with_approvals(
    tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec, step: StepRecord
) -> tuple[WaitSpec, StepRecord]:
    """Ask people, unless the wait has ended already; what was asked of them before a pause is closed then."""
    if step.state != "open":
        asking.end(tables, run, step)
        tables.delete_watchers(run.run_id, wait.path)
        return spec, step
    spec = asking.ask(tables, run, wait, spec)
    return spec, replace(step, wait=_encode(spec).decode())


def _spec(now: int, wait: ops.Wait) -> WaitSpec:
    """Durations become deadlines here, by the store's clock; the earliest timer is the deadline."""
    deadline_at: int | None = None
    deadline_ix: int | None = None
    for ix, condition in enumerate(wait.on):
        if condition.kind != "timer":
            continue
        due_at = condition.until_at if condition.delay_us is None else now + condition.delay_us
        if due_at is not None and (deadline_at is None or due_at < deadline_at):
            deadline_at, deadline_ix = due_at, ix
    return WaitSpec(
        wait.on,
        deadline_at,
        deadline_ix,
        branch=wait.branch,
        handles_timeout=wait.handles_timeout,
    )


def _with_cursors(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> WaitSpec:
    """From where on each topic counts. Opened again, a wait goes on after what it was given and did not want."""
    for one in spec.on:
        if one.kind == "topic":
            break
    else:
        return spec
    branch = branch_in(spec, wait.path)
    return replace(
        spec,
        after=tuple(
            max(
                spec.after[ix] if spec.after else 0,
                after_of(tables, run, branch, one) if one.kind == "topic" else 0,
            )
            for ix, one in enumerate(spec.on)
        ),
    )


def _watch(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec, since: int) -> None:
    """One watcher for each condition but the timer, which is their deadline; alone it is one itself."""
    others = [(ix, one) for ix, one in enumerate(wait.on) if one.kind != "timer"]
    held = is_held(spec)
    for ix, condition in others or [(spec.deadline_ix or 0, Condition("timer"))]:
        if condition.kind == "approval":
            asking.watch(tables, run, wait.path, ix, spec, held=held)
            continue
        tables.add_watcher(
            WatcherRecord(
                run_id=run.run_id,
                path=wait.path,
                ix=ix,
                generation=run.generation,
                kind="match" if condition.filter else condition.kind,
                target=condition.target,
                opened_at=since,
                deadline_at=spec.deadline_at,
                deadline_ix=spec.deadline_ix,
                entity=condition.entity,
                after=spec.after[ix] if spec.after else 0,
                filter=condition.filter or condition.code,
                held=held,
            )
        )
    if held:
        tables.wakes.append(Wake("match", run.run_id))


def offer_item(tables: Tables, item: ItemRecord) -> WatcherRecord | None:
    """Give an item to the run that has waited longest; None when nobody waits for it."""
    while tables.is_watched("queue", item.queue):
        watcher = tables.queue_watcher(item.queue)
        if watcher is None:
            return None
        run = tables.run(watcher.run_id)
        if run is None:
            tables.delete_watchers(watcher.run_id)
            continue
        revision = run.revision
        run = catch_up(tables, run)
        if run.revision == revision and resolve(
            tables,
            run,
            watcher.path,
            "queue",
            winner=watcher.ix,
            value=item.payload,
            taken_id=item.item_id,
            item=item,
        ):
            return watcher
    return None


def reopened(step: StepRecord) -> StepRecord:
    """A decided wait as it was before: whatever ended it did not count."""
    return replace(
        step, state="open", seq=0, value=None, winner=None, taken_id=None, recorded_at=None
    )


def close(tables: Tables, run: RunRecord, path: str) -> None:
    """A branch left a wait behind (a sibling failed, it was cancelled): nothing may be delivered there.

    If a signal reached the wait in the same moment it was accepted and must not vanish: a dead letter.
    """
    step = tables.step(run.run_id, run.generation, path)
    if step is None or step.state == "abandoned":
        return
    if step.state in ("open", "retrying"):
        tables.put_step(replace(step, state="abandoned", recorded_at=tables.now))
        if asking.may_ask(step):
            asking.withdraw(tables, run, asking.why_left(run), path)
        tables.delete_watchers(run.run_id, path)
        return
    if step.wait is not None:
        _give_back(tables, run, step)
        tables.put_step(replace(step, state="abandoned"))


def _give_back(tables: Tables, run: RunRecord, step: StepRecord) -> None:
    """What a wait had been given when its branch left: a letter, its place in the queue, the next to be seen."""
    won = won_by(step)
    if won is not None and won.kind == "signal":
        reason = "the branch that waited was cancelled in the same moment"
        bury_delivered(tables, run, step, reason, "left")
    else:
        untake(tables, run, step)


def untake(tables: Tables, run: RunRecord, step: StepRecord) -> None:
    """An item goes back to its place in the queue, an event is the next one to be seen: as if never taken. A signal was
    heard and is not given back, but whoever comes next may have its claim."""
    won = won_by(step)
    if won is None or step.taken_id is None:
        return
    if won.kind == "signal":
        free_claim(tables, run, won.target, step.taken_id, step.path)
    if won.kind == "queue":
        put_back_item(tables, won.target, step)
    elif won.kind == "topic":
        event = tables.event(step.taken_id)
        if event is not None:
            branch = branch_of_wait(step)
            see(tables, run.run_id, branch, topic_of(won), event.position - 1)


def put_back_item(tables: Tables, queue: str, step: StepRecord) -> None:
    """An item that was taken for nothing is where it was in its queue, for whoever waits: as if never taken."""
    position, put_at = _item_of(step)
    item = ItemRecord(
        item_id=step.taken_id or "",
        position=position,
        queue=queue,
        payload=step.value or "null",
        put_at=put_at,
    )
    if offer_item(tables, item) is None:
        tables.add_item(item)


def _item_of(step: StepRecord) -> tuple[int, int]:
    """The position of the item that ended a wait, and when it was put."""
    item = decode_spec(step.wait or "").item
    assert item is not None, f"no item ended the wait at {step.path!r}"
    return item


def won_by(step: StepRecord) -> Condition | None:
    """The condition that ended a wait."""
    if step.wait is None or step.winner is None:
        return None
    return decode_spec(step.wait).on[step.winner]


def bury_delivered(
    tables: Tables,
    run: RunRecord,
    step: StepRecord,
    reason: str,
    cause: Literal["rejected", "left"],
) -> SignalRecord | None:
    """Dead-letter the signal or item that a decided wait holds, under its own id; None if no such won."""
    won = won_by(step)
    if won is None or won.kind not in ("signal", "queue") or step.taken_id is None:
        return None
    received_at = _item_of(step)[1] if won.kind == "queue" else step.recorded_at or tables.now
    signal = SignalRecord(
        signal_id=step.taken_id,
        position=0,
        run_id=run.run_id,
        name=won.target,
        path=None,
        payload=step.value or "null",
        policy="all",
        on_end="dead_letter",
        received_at=received_at,
    )
    bury(tables, run, signal, reason, cause, "item" if won.kind == "queue" else "signal")
    if cause == "rejected" and won.kind == "signal":
        free_claim(tables, run, signal.name, signal.signal_id, step.path)
    return signal


def reject(tables: Tables, run: RunRecord, step: StepRecord, reason: str, *, passed: bool) -> None:
    """What ended a wait does not fit it: a letter, and a fact. An event concerns others too and stays as it is."""
    won = won_by(step)
    buried = bury_delivered(tables, run, step, reason, "rejected")
    if won is None or passed:
        return
    if won.kind == "approval":
        asking.give_back(tables, run, won, step, reason)
        return
    told: dict[str, Any] = {"name": won.target, "path": step.path, "reason": reason}
    if buried is not None:
        told = {"signal_id": buried.signal_id, **told}
    elif step.taken_id is not None:
        told = {"event_id": step.taken_id, **told}
    tell(tables, run, "signal.rejected", told)
