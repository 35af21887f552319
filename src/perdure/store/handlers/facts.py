"""Facts for the ledger, and the moves of a run that every handler shares.

A fact is written in the commit of the change it tells of. Life-cycle facts can be turned off for a namespace;
facts about a signal that did not reach its run (replaced, expired, discarded, rejected) and about approvals never.
"""

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from perdure.model.ops import ClaimRuns, NewEvent
from perdure.model.outcomes import Finished, NotFound, Refusal, Wake
from perdure.model.pools import holds_slot, limits_of
from perdure.model.records import Completion, DeadLetterRecord, RunRecord, SignalRecord
from perdure.model.status import PARKED, check_move
from perdure.model.topics import APPROVAL_FACTS
from perdure.store.tables import Tables

_encode = msgspec.json.encode

# What is told of runs and signals; a store may want to know at once which of them anybody waits for.
FACTS = (
    *(
        f"workflow.run_{how}"
        for how in (
            "started",
            "completed",
            "failed",
            "cancelled",
            "terminated",
            "retried",
            "continued",
            "imported",
        )
    ),
    *(
        f"signal.{fate}"
        for fate in (
            "waiting",
            "skipped",
            "delivered",
            "received",
            "timeout",
            "replaced",
            "expired",
            "discarded",
            "rejected",
        )
    ),
    *APPROVAL_FACTS,
)
# What somebody must act on, or was promised to be told.
ALWAYS = frozenset(
    {
        "signal.replaced",
        "signal.expired",
        "signal.discarded",
        "signal.rejected",
        *APPROVAL_FACTS,
    }
)


def tell(
    tables: Tables, run: RunRecord, type: str, facts: dict[str, Any], event_id: str | None = None
) -> None:
    """Append a fact about a run: to its entity's timeline if it has one, else to its own."""
    if not tables.lifecycle and type not in ALWAYS:
        return
    run_id = run.run_id
    payload = _encode({"run_id": run_id, "workflow": run.workflow, **facts}).decode()
    about = ("run", run_id) if run.entity_id is None else (run.entity_type, run.entity_id)
    chain = (run.root_id, run.depth)
    if run.trace is None:
        position = tables.append_event(type, payload, event_id, *about, *chain)
    else:
        traced = NewEvent(event_id="", type=type, payload="", trace=run.trace)
        position = tables.append_event(type, payload, event_id, *about, *chain, traced)
    if tables.is_watched("topic", type):
        resume_later(tables, position)


def tell_ledger(
    tables: Tables,
    type: str,
    facts: dict[str, Any],
    root_id: str | None = None,
    depth: int = 0,
    entity: tuple[str | None, str | None] = (None, None),
) -> None:
    """Append a fact about no run, of the chain of events that began with `root_id`; always told, for somebody must
    act on it."""
    text = _encode(facts).decode()
    position = tables.append_event(type, text, None, entity[0], entity[1], root_id, depth)
    if tables.is_watched("topic", type):
        resume_later(tables, position)


def refusal_of(outcome: object) -> str | None:
    """Why a send was refused, for a fact where no sender is left to be told; None if it was accepted."""
    match outcome:
        case Refusal():
            errors = f" ({'; '.join(outcome.paths)})" if outcome.code == "invalid_payload" else ""
            return f"{outcome.code}: {outcome.detail}{errors}"
        case Finished():
            return f"run {outcome.run_id!r} has already ended: {outcome.status}"
        case NotFound():
            return f"there is no run {outcome.run_id!r}"
        case _:
            return None


def resume_later(tables: Tables, position: int) -> None:
    """Runs that wait for this event go on with it in commits of their own.

    So it is with facts, always: they are told in the midst of a change of a run, which may itself be waiting.
    """
    tables.put_fan_out(position)
    tables.wakes.append(Wake("fan_out"))


def move(tables: Tables, run: RunRecord, **changes: Any) -> RunRecord:
    """Write a changed run, holding it to the table of legal moves."""
    changed = replace(run, **changes)
    put(tables, run, changed)
    return changed


def put(tables: Tables, run: RunRecord, changed: RunRecord) -> None:
    """Likewise, of a run that was changed already."""
    if changed.status != run.status:
        check_move(run.run_id, run.status, changed.status)
    tables.put_run(changed)
    if run.pool and holds_slot(run) and not holds_slot(changed) and is_limited(tables, run.pool):
        tables.wakes.append(Wake("line", run.pool))


def is_limited(tables: Tables, pool: str) -> bool:
    """Whether runs of a pool stand in line before they go."""
    return pool != "" and not limits_of(tables.pool(pool)).are_none


def make_ready(
    tables: Tables, run: RunRecord, completion: Completion | None = None, **changes: Any
) -> RunRecord:
    """Hand a run to whichever worker claims it next; in a pool with limits it stands in line first."""
    at = tables.now if run.line_at is None else min(run.line_at, tables.now)
    return let_go(tables, run, at, completion, status="ready", owner=None, fence=0, **changes)


def let_go(
    tables: Tables, run: RunRecord, at: int, completion: Completion | None = None, **changes: Any
) -> RunRecord:
    """Let a run be claimed from then on, or stand in line from then on, if its pool has limits: without a slot."""
    later_at = at if at > tables.now else 0
    if is_limited(tables, run.pool):
        run = move(tables, run, **changes, ready_at=None, line_at=at)
        tables.wakes.append(Wake("line", run.pool, completion=completion, at=later_at))
    else:
        run = move(tables, run, **changes, ready_at=at, line_at=None, admitted=True)
        tables.wakes.append(Wake("ready", run.run_id, completion=completion, at=later_at))
    return run


class Taker:
    """A worker that takes runs as they are resumed, for as long as it has room: as a claim, without asking twice."""

    def __init__(self, claim: ClaimRuns) -> None:
        self._claim = claim
        self._known = frozenset(claim.workflows)
        self._pools = claim.pools
        self._room = claim.limit

    def take(
        self, tables: Tables, run: RunRecord, revision: int, completion: Completion | None
    ) -> RunRecord | None:
        """The run, claimed; None if it is not for this worker."""
        if run.owner is not None or not self._room:
            return None
        if (run.workflow, run.version) not in self._known:
            return None
        if self._pools is not None and run.pool not in self._pools:
            return None
        if is_limited(tables, run.pool):
            return None  # it stands in line first
        self._room -= 1
        owner, fence = self._claim.worker_id, self._claim.fence
        run = move(tables, run, status="running", owner=owner, fence=fence, revision=revision)
        tables.wakes.append(Wake("claimed", run.run_id, owner, completion, revision))
        return run


def awaken(
    tables: Tables,
    run: RunRecord,
    completion: Completion | None,
    taker: Taker | None = None,
) -> RunRecord:
    """Something was decided for a run by somebody else: it must move on.

    A parked run goes on under its owner (`news`), with no claim, if that is the worker of this very process. An owner
    elsewhere is called, where a store can do so, and has a while to answer; or else the run is made ready, or taken by
    a worker that waits for such. In a pool with limits it leaves its owner and stands in line. A running one learns it
    by the revision that its next op names, or sooner by the hint.
    """
    changes: dict[str, Any] = {"revision": run.revision + 1}
    if run.status in PARKED:
        if _is_anybodys(tables, run):
            return _give_away(tables, run, completion, taker)
        changes["status"] = "running"
        if run.owner != tables.worker_id:
            # From then on anybody may claim it, unless the owner has said by an op that it goes on.
            changes["ready_at"] = tables.now + tables.sticky_us
            tables.wakes.append(Wake("ready", run.run_id, at=tables.now + tables.sticky_us))
    run = move(tables, run, **changes)
    if run.owner is not None or completion is not None:
        tables.wakes.append(
            Wake(
                "control" if completion is None else "news",
                run.run_id,
                run.owner,
                completion,
                run.revision,
                pause=run.pause_requested,
                cancel=run.cancel_requested,
            )
        )
    return run


def _is_anybodys(tables: Tables, run: RunRecord) -> bool:
    """Whether a parked run that is to go on has nobody to go on with, or has to stand in line."""
    if run.owner is None or (run.owner != tables.worker_id and not tables.is_called(run.owner)):
        return True
    return is_limited(tables, run.pool)


def _give_away(
    tables: Tables, run: RunRecord, completion: Completion | None, taker: Taker | None
) -> RunRecord:
    """A parked run goes on with whoever takes it; an owner that nobody can call has lost it."""
    revision = run.revision + 1
    taken = None if taker is None else taker.take(tables, run, revision, completion)
    if taken is not None:
        return taken
    tell_loss(tables, run, revision)
    return make_ready(tables, run, completion, revision=revision)


def tell_loss(tables: Tables, run: RunRecord, revision: int) -> None:
    """Whoever had the run in memory need not keep it."""
    if run.owner is not None:
        tables.wakes.append(Wake("control", run.run_id, run.owner, revision=revision, lost=True))


def bury(
    tables: Tables,
    run: RunRecord,
    signal: SignalRecord,
    reason: str,
    cause: Literal["ended", "rejected", "left"],
    kind: Literal["signal", "item"] = "signal",
) -> None:
    """Keep a signal, or an item of a queue, that nobody can take any more as a dead letter."""
    tables.add_dead_letter(
        DeadLetterRecord(
            dead_letter_id=signal.signal_id,
            run_id=run.run_id,
            name=signal.name,
            path=signal.path,
            payload=signal.payload,
            policy=signal.policy,
            on_end=signal.on_end,
            reason=reason,
            received_at=signal.received_at,
            dead_at=tables.now,
            cause=cause,
            expires_at=signal.expires_at,
            kind=kind,
        )
    )
