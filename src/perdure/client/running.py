"""The verbs of a client about runs, signals and approvals."""

# ruff: noqa: ASYNC109 (timeout is the API's word)

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple, overload

from msgspec import UNSET

from perdure.approvals import ApprovalInfo
from perdure.channels import Plain, Signal
from perdure.client.batching import send_each, written
from perdure.client.runs import RemoteRun
from perdure.client.transport import Transport
from perdure.client.wording import (
    called_fields,
    codec_of,
    decoded_published,
    name_of,
    own_field,
    signal_fields,
    untyped,
)
from perdure.http import wire
from perdure.inputs import checked_names, checked_statuses, checked_tag, checked_who
from perdure.model import limits
from perdure.model.codec import codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, check_run_id
from perdure.model.outcomes import Decided, Duplicate, Queued, Sent
from perdure.model.status import Status
from perdure.pools import Pool
from perdure.registry import Workflow
from perdure.sending import SentOrNot, a_send, send_parts
from perdure.views import (
    BufferedSignal,
    DeadLetter,
    Page,
    RunInfo,
    SignalStatus,
    Waiting,
)

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AnyWorkflow = Workflow[Any, *tuple[Any, ...]]

# As long as the server holds a request for an answer.
_longest_held = timedelta(microseconds=limits.http_wait_us_max)


class Running(Transport):
    """What a client can do with runs."""

    # --- runs ---

    @overload
    async def start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> RemoteRun[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> RemoteRun[Any]: ...
    async def start(
        self,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> RemoteRun[Any]:
        """Start a run, or find it: the same id or key gives the run that exists (`created` is False then)."""
        found: wire.Started = await self._call(
            "start",
            **called_fields(workflow, args, version),
            id=id,
            key=key,
            tags=tags,
            entity=entity,
            start_at=start_at,
            deadline=deadline,
            debounce=debounce,
            debounce_max=debounce_max,
            pool=name_of(pool),
            pool_key=pool_key,
            priority=priority,
            trace=trace,
        )
        return RemoteRun(self, found.id, codec_of(workflow), created=found.created)

    @overload
    async def signal_with_start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        signal: Signal[T],
        payload: T | Plain,
        id: str,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RemoteRun[R], Sent]: ...
    @overload
    async def signal_with_start(
        self,
        workflow: str,
        *args: Any,
        signal: Signal[Any] | str,
        payload: Any = None,
        id: str,
        version: int | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RemoteRun[Any], Sent]: ...
    async def signal_with_start(
        self,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        signal: Any,
        payload: Any = None,
        id: str,
        version: int | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RemoteRun[Any], Sent]:
        """Find or start the run and signal it, in one commit. Where the workflow is a name, the signal may be one."""
        if isinstance(workflow, Workflow) and not isinstance(signal, Signal):
            raise BadValue("signal", signal, "must be a Signal here: the run may not exist yet")
        told: wire.StartedAndSent = await self._call(
            "signal_with_start",
            **called_fields(workflow, args, version),
            **signal_fields(signal, payload),
            id=id,
            key=key,
            tags=tags,
            entity=entity,
            deadline=deadline,
            pool=name_of(pool),
            pool_key=pool_key,
            priority=priority,
            trace=trace,
        )
        codec, created = codec_of(workflow), told.run.created
        return RemoteRun(self, told.run.id, codec, created=created), told.signal

    def run(self, run_id: str) -> RemoteRun[Any]:
        """A handle on a run by its id. Nothing is looked up until it is used."""
        return RemoteRun(self, check_run_id(run_id), untyped)

    async def runs(
        self,
        *,
        workflow: str | AnyWorkflow | None = None,
        status: Status | Iterable[Status] | None = None,
        tag: str | tuple[str, str] | None = None,
        entity: str | None = None,
        parent: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[RunInfo]:
        """Runs, newest first. `tag` is a name, or (name, value)."""
        tag_name, tag_value = checked_tag(tag) or (None, None)
        return await self._page(
            "runs",
            workflow=name_of(workflow),
            status=checked_statuses(status),
            tag_name=tag_name,
            tag_value=tag_value,
            entity=entity,
            parent=parent,
            created_from=created_from,
            created_before=created_before,
            limit=limit,
            after=after,
        )

    async def import_run(
        self, document: dict[str, Any], *, id: str | None = None
    ) -> RemoteRun[Any]:
        """Make the run that a document of `run.export()` tells of, under its own id or another."""
        found: wire.Started = await self._call("import_run", document=document, id=id)
        return RemoteRun(self, found.id, untyped, created=found.created)

    async def waiting(self, run_id: str) -> list[Waiting]:
        """What a run waits for."""
        return await self._list("waiting", run_id=run_id)

    # --- signals ---

    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Sent: ...
    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Sent: ...
    async def signal(
        self,
        run_id: str,
        signal: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Sent:
        """Send a signal: Delivered if the run waits for it, else Buffered by its policy."""
        sent: Sent = await self._call(
            "signal",
            run_id=run_id,
            key=key,
            path=path,
            buffer=buffer,
            **signal_fields(signal, payload),
        )
        return sent

    async def signal_many(
        self, sends: Iterable[tuple[str, Signal[Any] | str, Any]]
    ) -> list[SentOrNot]:
        """Send many signals; each has its own outcome, in the same order, and none spoils another."""
        if not isinstance(sends, Iterable):
            raise BadValue("sends", sends, f"are not several: give a list of {a_send}")
        bodies = [written(wire.OneSend, "send", _send_fields, one) for one in sends]
        return await send_each(self, "signal_many", "sends", bodies)

    @overload
    async def ask(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        type: type[R],
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> R: ...
    @overload
    async def ask(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        type: type[R],
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> R: ...
    @overload
    async def ask(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        type: Any = Any,
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> Any: ...
    @overload
    async def ask(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        type: Any = Any,
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> Any: ...
    async def ask(
        self,
        run_id: str,
        signal: Any,
        payload: Any = None,
        *,
        type: Any = Any,
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> Any:
        """Send a signal and give what workflow code answers with `ctx.reply`; within a minute, else TimeoutError."""
        codec = codec_for(type, where="the reply")
        held = _longest_held if timeout is None else timeout
        told = await self._value(
            "ask",
            held_s=parse_duration(held, "timeout") / 1_000_000,
            run_id=run_id,
            timeout=held,
            key=key,
            path=path,
            **signal_fields(signal, payload),
        )
        return decoded_published(codec, told, f"the reply to signal {name_of(signal)!r}")

    async def signal_status(self, signal_id: str) -> SignalStatus | None:
        """What became of a signal; None when nothing is known of it (any more)."""
        found: SignalStatus | None = await self._value("signal_status", signal_id=signal_id)
        return found

    async def buffered(self, run_id: str) -> list[BufferedSignal]:
        """The signals kept for a run, oldest first."""
        return await self._list("buffered", run_id=run_id)

    async def find_waiting(
        self,
        signal: Signal[Any] | str,
        *,
        path: str | None = None,
        older_than: Duration | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Waiting]:
        """Who waits for a signal, optionally at one path, or for longer than a span of time."""
        return await self._page(
            "find_waiting",
            signal=name_of(signal),
            path=path,
            older_than=older_than,
            limit=limit,
            after=after,
        )

    async def dead_letters(
        self,
        run_id: str | None = None,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Signals, and items of queues, that nobody could take any more."""
        return await self._page("dead_letters", run_id=run_id, limit=limit, after=after)

    async def resend(self, dead_letter_id: str, *, run_id: str | None = None) -> Sent | Queued:
        """Send a dead letter again, to its own run or another; it leaves the list if accepted."""
        sent: Sent | Queued = await self._call(
            "resend", dead_letter_id=dead_letter_id, run_id=run_id
        )
        return sent

    # --- approvals ---

    async def approvals(
        self,
        *,
        who: str | Sequence[str] | None = None,
        workflow: str | AnyWorkflow | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[ApprovalInfo]:
        """Approvals that are open, longest waiting first."""
        people = checked_who(who)
        return await self._page(
            "approvals",
            # A query cannot hold a list of none: one without a name stands for it.
            who=[""] if people == [] else people,
            workflow=name_of(workflow),
            name=name,
            run_id=run_id,
            limit=limit,
            after=after,
        )

    async def decide(
        self,
        approval_id: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        by: str | None = None,
        groups: Iterable[str] = (),
        comment: str | None = None,
        key: str | None = None,
    ) -> Decided | Duplicate[Decided]:
        """Answer an approval. Without `by` as whom the token names; to speak for others it needs `operate`."""
        decided: Decided | Duplicate[Decided] = await self._call(
            "decide",
            approval_id=approval_id,
            choice=choice,
            payload=own_field("the payload", payload),
            by=UNSET if by is None else by,
            groups=checked_names("groups", groups) or UNSET,
            comment=comment,
            key=key,
        )
        return decided

    async def approval_link(
        self,
        approval_id: str,
        *,
        by: str,
        choice: str | None = None,
        expires: Duration | datetime = "7d",
        url: str | None = None,
    ) -> str:
        """A link with which whoever has it answers this approval once, as `by`."""
        link: str = await self._value(
            "approval_link", approval_id=approval_id, by=by, choice=choice, expires=expires, url=url
        )
        return link

    async def answer(
        self,
        link: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        comment: str | None = None,
    ) -> Decided:
        """Answer by a link or its token; it takes no other."""
        decided: Decided = await self._call(
            "answer",
            link=link,
            choice=choice,
            payload=own_field("the payload", payload),
            comment=comment,
        )
        return decided


def _send_fields(send: Any) -> dict[str, Any]:
    run_id, signal, payload = send_parts(send)
    return {"run_id": run_id, **signal_fields(signal, payload)}
