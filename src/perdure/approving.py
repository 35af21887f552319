"""The verbs of an app that concern approvals: the inbox, decisions, and links that decide one approval.

`Approving` is the part of App that holds them. The store decides whose answer counts; here an answer is put into the
form that is stored, and who came too late is told what became of the approval.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.approvals import ApprovalInfo, approval_info, json_text, own_schema
from perdure.engine import Engine
from perdure.errors import ApprovalClosed, ApprovalNotFound, PerdureError, RunPaused, refusal_error
from perdure.inputs import (
    checked_limit,
    checked_moment,
    checked_names,
    checked_who,
    checked_workflow_name,
)
from perdure.links import SECRET_VARIABLE, Link, Secrets, made_link, read_link
from perdure.model import limits, ops
from perdure.model.approvals import (
    GROUP,
    Asks,
    decode_asks,
    decode_verdict,
    may_answer,
    parse_approval_id,
)
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import (
    BadValue,
    check_choice,
    check_key,
    check_name,
    check_person,
    check_run_id,
    check_words,
)
from perdure.model.outcomes import Decided, DecideOutcome, Duplicate, NotFound
from perdure.model.records import Condition, RunRecord, StepRecord, WaitSpec, WatcherRecord
from perdure.model.status import TERMINAL
from perdure.registry import Workflow
from perdure.store.base import Store, WatcherPlace
from perdure.views import Page, decode_cursor, encode_cursor, watcher_place

# Rows that are read at once; each may hold a description, data and a schema.
_rows_per_read: Final = 200
_decode_spec = msgspec.json.Decoder(WaitSpec).decode


class Approving:
    """What an App can do with approvals."""

    _engine: Callable[[], Engine]
    _secrets: Callable[[], Secrets | None]

    # --- the inbox ---

    async def approvals(
        self,
        *,
        who: str | Sequence[str] | None = None,
        workflow: str | Workflow[Any, *tuple[Any, ...]] | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[ApprovalInfo]:
        """Approvals that are open, longest waiting first; `who=["anna", "group:finance"]`: that one of them may answer.

        A page may have fewer than `limit` and still a cursor: a call looks through a bounded number of rows.
        """
        limit = checked_limit(limit)
        engine = self._engine()
        wanted = _wanted(who, checked_workflow_name(workflow), name)
        seen: WatcherPlace | None = None
        if after is not None:
            seen = decode_cursor(after, tuple[int, str, str, int])
        source = _of_run(engine.store, run_id) if run_id is not None else engine.store.approvals
        rows, more = await _gathered(source, wanted, seen, limit)
        now = engine.clock.now()
        return Page(
            [approval_info(one, now) for one in rows[:limit]],
            encode_cursor(*more) if more is not None else None,
        )

    # --- deciding ---

    async def decide(
        self,
        approval_id: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        by: str,
        groups: Iterable[str] = (),
        comment: str | None = None,
        key: str | None = None,
    ) -> Decided | Duplicate[Decided]:
        """Answer an approval, as `by` and a member of `groups`: of all who answer, one decides.

        Who `by` is you must know: nobody checks that here. Raises ApprovalClosed (and says what became of it),
        ApprovalNotFound, ApprovalExpired, NotAllowed, InvalidPayload, RunPaused; nothing is changed then. The same
        `key` again gives a Duplicate with the first answer.
        """
        engine = self._engine()
        by = _checked_by(by)
        id, run_id = parse_approval_id(approval_id)
        op = ops.Decide(
            run_id=run_id,
            approval_id=id,
            choice=None if choice is None else check_choice(choice),
            payload=None if payload is None else json_text("the payload", payload),
            schema=None if payload is None else own_schema(payload),
            by=by,
            people=(by, *_checked_groups(groups)),
            comment=_checked_comment(comment),
            key=None if key is None else check_key(key),
        )
        return await self._submitted(engine, op)

    # --- links ---

    def approval_link(
        self,
        approval_id: str,
        *,
        by: str,
        choice: str | None = None,
        expires: Duration | datetime = "7d",
        url: str | None = None,
    ) -> str:
        """A link with which whoever has it answers this approval once, as `by`, whatever `who` says.

        With a `choice` it can only give that one. It is a token, or `url` with the token. Needs App(secret=…).
        """
        engine = self._engine()
        whole = ".".join(parse_approval_id(approval_id))
        now = engine.clock.now()
        if isinstance(expires, datetime):
            expires_at = checked_moment("expires", expires)
        else:
            expires_at = now + parse_duration(expires, "expires")
        if expires_at <= now:
            raise BadValue("expires", expires, "is past: nobody could use the link")
        link = Link(
            engine.ids.ulid(),
            whole,
            _checked_by(by),
            None if choice is None else check_choice(choice),
            expires_at,
        )
        return made_link(self._needed_secrets(), link, url)

    async def answer(
        self,
        link: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        comment: str | None = None,
    ) -> Decided:
        """Answer by a link or its token. Raises BadLink, LinkExpired, and as `decide` does."""
        engine = self._engine()
        said = read_link(self._needed_secrets(), link)
        if said.choice is not None and choice not in (None, said.choice):
            raise BadValue("choice", choice, f"is not what this link is for: {said.choice!r}")
        choice = said.choice if choice is None else check_choice(choice)
        id, run_id = parse_approval_id(said.approval_id)
        op = ops.Decide(
            run_id=run_id,
            approval_id=id,
            choice=choice,
            payload=None if payload is None else json_text("the payload", payload),
            schema=None if payload is None else own_schema(payload),
            by=said.by,
            comment=_checked_comment(comment),
            link_id=said.link_id,
            link_expires_at=said.expires_at,
        )
        decided = await self._submitted(engine, op)
        return decided.of if isinstance(decided, Duplicate) else decided

    async def _submitted(self, engine: Engine, op: ops.Decide) -> Decided | Duplicate[Decided]:
        outcome = await engine.coordinator.submit(op)
        return await _decided(engine.store, op, outcome, engine.clock.now())

    def _needed_secrets(self) -> Secrets:
        found = self._secrets()
        if found is None:
            raise BadValue(
                "secret",
                limits.unsaid,
                f"is needed for links, and this app has none: give App(secret=…), or set {SECRET_VARIABLE}, the same "
                "wherever links are made and answered",
            )
        return found


# --- what is given ---


def _checked_by(by: Any) -> str:
    person = check_person("by", by)
    if person.startswith(GROUP):
        raise BadValue("by", by, "names a group; by= is the person, groups= are those it is in")
    return person


def _checked_groups(groups: Any) -> list[str]:
    named = checked_names("groups", groups)
    found = [f"{GROUP}{check_person('group', one).removeprefix(GROUP)}" for one in named]
    if len(found) > limits.groups_max:
        problem = f"are {len(found)}; at most {limits.groups_max} (groups_max)"
        raise BadValue("groups", limits.unsaid, problem)
    return found


def _checked_comment(comment: Any) -> str | None:
    return None if comment is None else check_words("comment", comment, limits.comment_bytes_max)


# --- the inbox ---

Source = Callable[[WatcherPlace | None, int], Any]


def _wanted(
    who: str | Sequence[str] | None, workflow: str | None, name: str | None
) -> Callable[[Asks], bool]:
    people = checked_who(who)
    asked_for = None if people is None else set(people)
    named = None if name is None else check_name("approval", name)

    def fits(asks: Asks) -> bool:
        return (
            (asked_for is None or may_answer(asks, asked_for))
            and workflow in (None, asks.workflow)
            and named in (None, asks.name)
        )

    return fits


def _of_run(store: Store, run_id: str) -> Source:
    """The approvals of one run: few, so they are read together."""
    check_run_id(run_id)

    async def read(after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        rows = [one for one in await store.waiting(run_id) if one.kind == "approval"]
        ahead = [one for one in rows if after is None or watcher_place(one) > after]
        return sorted(ahead, key=watcher_place)[:limit]

    return read


async def _gathered(
    source: Source, wanted: Callable[[Asks], bool], seen: WatcherPlace | None, limit: int
) -> tuple[list[WatcherRecord], WatcherPlace | None]:
    """The next ones that are wanted, and from where on there may be more."""
    found: list[WatcherRecord] = []
    scanned = 0
    while scanned < limits.approvals_scanned_max:
        rows: list[WatcherRecord] = await source(seen, _rows_per_read)
        for row in rows:
            if wanted(decode_asks(row.asks)):
                if len(found) == limit:
                    return found, seen
                found.append(row)
            seen = watcher_place(row)
        scanned += len(rows)
        if len(rows) < _rows_per_read:
            return found, None
    return found, seen


# --- what came of an answer ---


async def _decided(
    store: Store, op: ops.Decide, outcome: DecideOutcome, now: int
) -> Decided | Duplicate[Decided]:
    if isinstance(outcome, Decided | Duplicate):
        return outcome
    whole = f"{op.approval_id}.{op.run_id}"
    if isinstance(outcome, NotFound):
        raise ApprovalNotFound(whole)
    if outcome.code == "approval_closed":
        raise await _what_became(store, op, whole, now)
    name = op.by if outcome.code == "not_allowed" else whole
    raise refusal_error(outcome, name, op.run_id)


async def _what_became(store: Store, op: ops.Decide, whole: str, now: int) -> PerdureError:
    """Why it is closed, by what is on record of its run."""
    run = await store.run(op.run_id)
    if run is None:
        return ApprovalNotFound(whole)
    for step in await store.history(op.run_id):
        for ix, one in enumerate(_decode_spec(step.wait).on if step.wait else ()):
            asks = decode_asks(one.asks) if one.kind == "approval" else None
            if asks is not None and asks.id == op.approval_id:
                return _closed(whole, run, step, ix, now)
            if asks is not None and op.approval_id in asks.before:
                anew = f"it was withdrawn, and is asked anew as {asks.id}.{op.run_id}"
                return ApprovalClosed(whole, "withdrawn", anew)
    return ApprovalNotFound(whole)


def _closed(whole: str, run: RunRecord, step: StepRecord, ix: int, now: int) -> PerdureError:
    if step.wait is None or step.winner is None:
        return _unanswered(whole, run, step, now)
    won: Condition = _decode_spec(step.wait).on[step.winner]
    if step.winner == ix and step.value is not None:
        verdict = decode_verdict(step.value)
        chosen = "" if verdict.choice is None else f" as {verdict.choice!r}"
        reason = f"{verdict.by!r} has decided it{chosen}"
        return ApprovalClosed(whole, "decided", reason, by=verdict.by, choice=verdict.choice)
    if won.kind == "timer":
        return ApprovalClosed(whole, "timed_out", "its time ran out")
    return ApprovalClosed(whole, "withdrawn", f"{won.kind} {won.target!r} came first")


def _unanswered(whole: str, run: RunRecord, step: StepRecord, now: int) -> PerdureError:
    """Its wait never ended by itself."""
    if step.state == "superseded":
        return ApprovalClosed(whole, "withdrawn", "its run failed, and was retried")
    if step.generation != run.generation:  # where what was open stays open for ever
        return ApprovalClosed(whole, "withdrawn", "its run has gone on as another (continue_as)")
    if run.status in TERMINAL:
        return ApprovalClosed(whole, "withdrawn", f"its run has ended: {run.status}")
    if step.state == "open" and run.status == "paused":
        return RunPaused(run.run_id, run.reason or "")
    if step.state == "open":
        deadline_at = _decode_spec(step.wait or "").deadline_at
        if deadline_at is not None and now >= deadline_at:  # and nobody has acted on that yet
            return ApprovalClosed(whole, "timed_out", "its time ran out")
        # Of a run that was imported, and that no worker has taken.
        return ApprovalNotFound(
            whole, "its run does not ask yet; app.approvals() lists it when it does"
        )
    return ApprovalClosed(whole, "withdrawn", "the branch that asked has left it")
