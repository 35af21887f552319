"""What runs ask of people: the rows and the facts of approvals, from being asked to being closed.

An open approval is a watcher of its wait, and beside it an alarm, if there are reminders or an expiry. When its run is
paused both go, and a row stays that says it was asked: so whatever becomes of the run, each `hitl.requested` has one
`hitl.decided`, `hitl.timed_out` or `hitl.withdrawn`, in the commit that closes it. Whoever takes the watchers of a wait
away comes here first. Who decides is in approving.py.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.approvals import (
    Asks,
    alarm_at,
    approval_id,
    decode_asks,
    encode_asks,
    reminders_past,
)
from perdure.model.clock import to_datetime
from perdure.model.outcomes import Wake
from perdure.model.records import Condition, RunRecord, StepRecord, WaitSpec, WatcherRecord
from perdure.store.handlers.facts import tell
from perdure.store.handlers.standing import leave_waits
from perdure.store.tables import Tables

# What stands beside the watcher of a condition has its number and this: no wait has so many conditions.
_beside: Final = 1000
_decode_spec = msgspec.json.Decoder(WaitSpec).decode


def may_ask(step: StepRecord) -> bool:
    """Whether a wait asks anybody; nearly none does, and then nothing need be parsed."""
    return step.wait is not None and '"asks"' in step.wait


def asked(
    tables: Tables, run: RunRecord, path: str | None = None
) -> Iterator[tuple[WatcherRecord, Asks]]:
    """The approvals of a run that are not closed, those set aside too; of one wait, or of all. In the order of their
    paths: facts about several stand on the ledger in one order, whatever the store's own."""
    found = [one for one in tables.watchers(run.run_id) if one.kind in ("approval", "asked")]
    for one in sorted(found, key=lambda watcher: (watcher.path, condition_ix(watcher))):
        if path in (None, one.path):
            yield one, decode_asks(one.asks)


def condition_ix(watcher: WatcherRecord) -> int:
    """Which condition of its wait it is about."""
    return watcher.ix % _beside


# --- opening ---


def ask(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> WaitSpec:
    """The wait with what it asks as it counts from now on, told on the ledger if it is asked now.

    What was set aside by a pause goes on as it was. What was closed and is asked again has its time from the first time
    if it is the same, and asks what the code says by now; it is another one if a retry asks it anew.
    """
    aside = {condition_ix(one): asks for one, asks in asked(tables, run, wait.path)}
    tables.delete_watchers(run.run_id, wait.path)
    on = list(spec.on)
    for ix, condition in enumerate(wait.on):
        if condition.kind != "approval":
            continue
        asks = aside.get(ix)
        if asks is None:
            asks = _asked_now(tables, run, decode_asks(condition.asks), decode_asks(on[ix].asks))
            _tell_requested(tables, run, wait.path, asks, spec.deadline_at)
        on[ix] = replace(condition, asks=encode_asks(asks))
    return replace(spec, on=tuple(on))


def _asked_now(tables: Tables, run: RunRecord, offered: Asks, stored: Asks) -> Asks:
    if stored.asked_at and stored.id == offered.id:
        # In the words of today: what was given back may not fit the type of code that was deployed since, and who is
        # asked again in the old ones could never answer.
        again = replace(
            offered,
            asked_at=stored.asked_at,
            expires_at=stored.expires_at,
            expired=stored.expired,
            workflow=stored.workflow,
            before=stored.before,
            reminded=stored.reminded,
        )
        # Reminders that are past were told, or were never to be: nobody waited then.
        return replace(again, reminded=reminders_past(again, tables.now))
    expires_at = offered.expires_at
    if offered.expires_us is not None:
        expires_at = tables.now + offered.expires_us
    before = (
        (*stored.before, stored.id)[-limits.approval_ids_before_max :] if stored.asked_at else ()
    )
    return replace(
        offered,
        asked_at=tables.now,
        expires_at=expires_at,
        workflow=run.workflow,
        before=before,
    )


def watch(
    tables: Tables, run: RunRecord, path: str, ix: int, spec: WaitSpec, *, held: bool
) -> None:
    """Open it to those who may answer, and see to it that what is to be told in time is told."""
    asks = decode_asks(spec.on[ix].asks)
    watcher = WatcherRecord(
        run_id=run.run_id,
        path=path,
        ix=ix,
        generation=run.generation,
        kind="approval",
        target="",
        opened_at=asks.asked_at,
        deadline_at=spec.deadline_at,
        deadline_ix=spec.deadline_ix,
        held=held,
        asks=spec.on[ix].asks,
    )
    tables.add_watcher(watcher)
    at = alarm_at(asks)
    if at is not None:
        _set_alarm(tables, watcher, at)


def _set_alarm(tables: Tables, watcher: WatcherRecord, at: int | None) -> None:
    """One that has nothing more to tell stays without a time, until it goes with its wait."""
    alarm = replace(
        watcher,
        kind="alarm",
        ix=_beside + watcher.ix,
        deadline_at=at,
        deadline_ix=None,
        held=False,
        asks="",
    )
    tables.add_watcher(alarm)


# --- while it is open ---


def ring(tables: Tables, run: RunRecord, alarm: WatcherRecord) -> None:
    """Tell what is due. Of reminders that are all late the last one speaks for the others."""
    rows = {(one.path, one.ix): one for one in tables.watchers(run.run_id)}
    watcher = rows.get((alarm.path, alarm.ix - _beside))
    if rows.get((alarm.path, alarm.ix)) != alarm or watcher is None:
        return  # the wait has ended meanwhile
    asks = decode_asks(watcher.asks)
    if asks.expires_at is not None and asks.expires_at <= tables.now:
        asks = replace(asks, expired=True)
        _tell(tables, run, "hitl.expired", alarm.path, asks, expires_at=_moment(asks.expires_at))
    else:
        asks = replace(asks, reminded=reminders_past(asks, tables.now))
        told = {"number": asks.reminded, "title": asks.title, "who": asks.who}
        _tell(tables, run, "hitl.reminded", alarm.path, asks, **told)
    watcher = replace(watcher, asks=encode_asks(asks))
    tables.add_watcher(watcher)
    at = alarm_at(asks)
    _set_alarm(tables, watcher, at)
    if at is not None:
        tables.wakes.append(Wake("deadline", at=at))


def set_aside(tables: Tables, run: RunRecord) -> None:
    """Delete the watchers of a run that is paused; what it asked stays asked, and nobody can answer it."""
    rows = [one for one, _ in asked(tables, run)]
    leave_waits(tables, run)
    for one in rows:
        tables.add_watcher(
            replace(
                one,
                kind="asked",
                ix=_beside + condition_ix(one),
                deadline_at=None,
                deadline_ix=None,
                held=False,
            )
        )


# --- closing ---


def end(tables: Tables, run: RunRecord, step: StepRecord) -> None:
    """Tell what became of the approvals of a wait that has ended; of the one that was decided its decider tells."""
    won: Condition = _decode_spec(step.wait or "").on[step.winner or 0]
    for watcher, asks in asked(tables, run, step.path):
        if won.kind == "timer":
            _tell(tables, run, "hitl.timed_out", step.path, asks)
        elif condition_ix(watcher) != step.winner:
            reason = f"{won.kind} {won.target!r} came first"
            _tell(tables, run, "hitl.withdrawn", step.path, asks, reason=reason)


def withdraw(tables: Tables, run: RunRecord, reason: str, path: str | None = None) -> None:
    """Say that nobody need answer any more. The caller takes the rows away."""
    for watcher, asks in asked(tables, run, path):
        _tell(tables, run, "hitl.withdrawn", watcher.path, asks, reason=reason)


def why_ended(status: str, reason: str | None) -> str:
    return f"the run has ended: {status}" + (f" ({reason})" if reason else "")


def why_left(run: RunRecord) -> str:
    """Why a branch left its wait."""
    if run.cancel_requested:
        return "the run was cancelled" + (f" ({run.reason})" if run.reason else "")
    return "the branch that asked was left"


def give_back(
    tables: Tables, run: RunRecord, won: Condition, step: StepRecord, reason: str
) -> None:
    """What was decided does not fit the type that the run's code has: it is asked again."""
    _tell(tables, run, "hitl.returned", step.path, decode_asks(won.asks), reason=reason)


# --- facts ---


def _tell(
    tables: Tables, run: RunRecord, type: str, path: str, asks: Asks, **facts: object
) -> None:
    tell(tables, run, type, {**about(run, path, asks), **facts})


def about(run: RunRecord, path: str, asks: Asks) -> dict[str, Any]:
    """What every fact of an approval says."""
    return {"approval_id": approval_id(asks.id, run.run_id), "name": asks.name, "path": path}


def _tell_requested(
    tables: Tables, run: RunRecord, path: str, asks: Asks, deadline_at: int | None
) -> None:
    _tell(
        tables,
        run,
        "hitl.requested",
        path,
        asks,
        title=asks.title,
        description=asks.description,
        choices=asks.choices,
        schema=_raw(asks.schema),
        data=_raw(asks.data),
        who=asks.who,
        expires_at=_moment(asks.expires_at),
        deadline_at=_moment(deadline_at),
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


def _moment(at: int | None) -> datetime | None:
    return None if at is None else to_datetime(at)
