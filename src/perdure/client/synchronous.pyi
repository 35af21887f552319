# Written by `make faces` from the async verbs (tests/synchronous/stubs.py). Do not edit.

from collections.abc import Generator, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from perdure.approvals import ApprovalInfo
from perdure.channels import Plain, Queue, Signal, Topic
from perdure.client.running import AnyWorkflow
from perdure.http import wire
from perdure.inputs import Fact
from perdure.inspecting.catalogue import ChannelInfo, WorkerInfo, WorkflowInfo
from perdure.inspecting.doctor import Diagnosis, SchemaVersion
from perdure.inspecting.findings import Report
from perdure.ledger.definitions import Start
from perdure.ledger.health import Health
from perdure.ledger.replaying import Replayed
from perdure.model.duration import Duration
from perdure.model.events import Cause, Event
from perdure.model.outcomes import Decided, Duplicate, Queued, Sent, Taken, Told, Trimmed
from perdure.model.records import CatchUp, Overlap
from perdure.model.status import Status
from perdure.pools import Pool
from perdure.registry import Workflow
from perdure.sending import SentOrNot
from perdure.synchronous.face import Opener
from perdure.synchronous.faces import SyncRun
from perdure.views import (
    Backfilled,
    BufferedSignal,
    ConsumerInfo,
    DeadLetter,
    DeferredStart,
    Page,
    ParkedEvent,
    PoolInfo,
    QueueItem,
    Refused,
    RunInfo,
    ScheduleInfo,
    SignalStatus,
    SlotWait,
    SubscriptionInfo,
    Waiting,
)

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

class SyncClient(Opener):
    """The verbs of an App over HTTP, for code that may wait. Use it as `with SyncClient(url, token) as client:`.

    Any number of threads may use it at once.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration = "30s",
        transport: Any = None,
    ) -> None: ...
    @property
    def url(self) -> str: ...
    def answer(
        self,
        link: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        comment: str | None = None,
    ) -> Decided:
        """Answer by a link or its token; it takes no other."""
    def approval_link(
        self,
        approval_id: str,
        *,
        by: str,
        choice: str | None = None,
        expires: Duration | datetime = "7d",
        url: str | None = None,
    ) -> str:
        """A link with which whoever has it answers this approval once, as `by`."""
    def approvals(
        self,
        *,
        who: str | Sequence[str] | None = None,
        workflow: str | AnyWorkflow | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = ...,
        after: str | None = None,
    ) -> Page[ApprovalInfo]:
        """Approvals that are open, longest waiting first."""
    @overload
    def ask(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        type: type[R],
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> R:
        """Send a signal and give what workflow code answers with `ctx.reply`; within a minute, else TimeoutError."""
    @overload
    def ask(
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
    def ask(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        type: Any = ...,
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> Any: ...
    @overload
    def ask(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        type: Any = ...,
        timeout: Duration | None = None,
        key: str | None = None,
        path: str | None = None,
    ) -> Any: ...
    def backfill(
        self, name: str, since: datetime, until: datetime, *, dry_run: bool = True
    ) -> Backfilled:
        """Start the ticks of a window that have no run: from `since` to before `until`, never those to come."""
    def buffered(self, run_id: str) -> list[BufferedSignal]:
        """The signals kept for a run, oldest first."""
    def catalogue(self) -> list[WorkflowInfo]:
        """Every version of every workflow that some app has declared: what it takes, gives and listens to."""
    def channels(self) -> list[ChannelInfo]:
        """Every topic and queue that some app has declared."""
    def consumers(self) -> list[ConsumerInfo]:
        """All consumers that ever ran on this store, by name, with the built-in `workflow_runner`."""
    def counts(self) -> dict[str, int]:
        """How many rows of each kind there are."""
    def dead_letters(
        self, run_id: str | None = None, *, limit: int = ..., after: str | None = None
    ) -> Page[DeadLetter]:
        """Signals, and items of queues, that nobody could take any more."""
    def decide(
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
    def deferred(self, *, limit: int = ..., after: str | None = None) -> Page[DeferredStart]:
        """Starts that a bound has put off."""
    def doctor(self) -> Diagnosis:
        """What the store is, which promises it keeps as it is set up, and what to see to."""
    def drop_consumer(self, name: str) -> None:
        """Forget a consumer that no code reads for any more."""
    def drop_deferred(self, position: int, subscription: str) -> bool:
        """Forget a start that was put off; False if it is not there."""
    def drop_parked(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Forget a parked event; False if it is not parked."""
    @overload
    def emit(
        self,
        topic: Topic[T],
        payload: T | Plain,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
    ) -> Told:
        """Put an event on the ledger and resume every run that waits for it."""
    @overload
    def emit(
        self,
        topic: Topic[None] | str,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
    ) -> Told: ...
    def emit_cloudevents(self, text: str | bytes) -> list[Told | Refused]:
        """Put CloudEvents 1.0 in JSON on the ledger: one, or a batch."""
    def emit_many(self, events: Iterable[Fact | tuple[Any, ...]]) -> list[Told | Refused]:
        """Put many events on the ledger, in their order; each has its own answer and none spoils another."""
    def enable_subscription(self, name: str, on: bool = True) -> None:
        """Switch a subscription on or off."""
    def event(self, event_id: str) -> Event | None:
        """One event by its id."""
    def events(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        order: Literal["position", "occurred_at"] = "position",
        limit: int = ...,
        after: str | None = None,
    ) -> Page[Event]:
        """The ledger, oldest first, by position or by when things happened."""
    def find_waiting(
        self,
        signal: Signal[Any] | str,
        *,
        path: str | None = None,
        older_than: Duration | None = None,
        limit: int = ...,
        after: str | None = None,
    ) -> Page[Waiting]:
        """Who waits for a signal, optionally at one path, or for longer than a span of time."""
    def follow(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        after: int | None = None,
        runs: Iterable[str] = (),
    ) -> Generator[Event | RunInfo]:
        """The ledger as it grows, after a position or from now on, and each change of these runs.

        A connection that breaks is made anew, where this one ended: no event is missed, and none comes twice.
        """
    def fsck(self, repair: bool = False) -> Report:
        """Check that all in the store holds together; with `repair`, what ops can set right is set right."""
    def health(self) -> Health:
        """Whether somebody should look, and why."""
    def import_run(self, document: dict[str, Any], *, id: str | None = None) -> SyncRun[Any]:
        """Make the run that a document of `run.export()` tells of, under its own id or another."""
    def latest(self, topic: Topic[Any] | str, *, entity: str | None = None) -> Event | None:
        """The newest event of a topic, about one entity or any."""
    def me(self) -> wire.Me:
        """Who this client is to the server, and what it may do."""
    def parked(
        self, consumer: str | None = None, *, limit: int = ..., after: str | None = None
    ) -> Page[ParkedEvent]:
        """Events that a consumer could not deal with, and why."""
    def pause_consumer(self, name: str, reason: str | None = None) -> None:
        """Let a consumer read no further; the batch under way is finished."""
    def pause_schedule(self, name: str, reason: str | None = None) -> None:
        """Let a schedule start nothing until it is resumed."""
    def pools(self) -> list[PoolInfo]:
        """All pools: their limits, slots that are taken, how many wait for one and since when."""
    def prune(self, older_than: Duration | None = None) -> int:
        """Delete runs that finished longer ago than this, in bounded chunks."""
    def purge(self, queue: Queue[Any] | str, *, older_than: Duration | None = None) -> int:
        """Delete what is in a queue, or what has been there for longer than this; gives how many."""
    @overload
    def put(self, queue: Queue[T], payload: T | Plain, *, key: str | None = None) -> Taken:
        """Put an item into a queue: Delivered to the run that waits longest, else Queued until one takes it."""
    @overload
    def put(
        self, queue: Queue[None] | str, payload: Any = None, *, key: str | None = None
    ) -> Taken: ...
    def queue_items(
        self, queue: Queue[Any] | str, *, limit: int = ..., after: str | None = None
    ) -> Page[QueueItem]:
        """What is in a queue, oldest first."""
    def queues(self) -> dict[str, int]:
        """How many items each queue holds; empty ones are left out."""
    def refire(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Deal with a parked event once more. False if it failed again."""
    def release_deferred(self, position: int, subscription: str) -> bool:
        """Start what was put off, whatever bound it broke."""
    def replay(
        self,
        into: str,
        *,
        since: int | datetime | Literal["beginning"] = "beginning",
        until: int | datetime | None = None,
        pattern: str | Topic[Any] | None = None,
        dry_run: bool = True,
        rate: float | None = None,
        only_if_no_run: bool = True,
    ) -> Replayed:
        """Fire a window of the ledger anew, into a consumer by name; its cursor does not move."""
    def resend(self, dead_letter_id: str, *, run_id: str | None = None) -> Sent | Queued:
        """Send a dead letter again, to its own run or another; it leaves the list if accepted."""
    def reset_pool(self, pool: str | Pool) -> PoolInfo:
        """Set the limits of a pool back to what code declares."""
    def resume_consumer(self, name: str) -> None:
        """Let a paused consumer read on from its cursor."""
    def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick."""
    def rewind(self, name: str, to: int | datetime | Literal["beginning", "now"]) -> int:
        """Move a consumer's cursor, back or forth; gives its new position."""
    def run(self, run_id: str) -> SyncRun[Any]:
        """A handle on a run by its id. Nothing is looked up until it is used."""
    def runs(
        self,
        *,
        workflow: str | AnyWorkflow | None = None,
        status: Status | Iterable[Status] | None = None,
        tag: str | tuple[str, str] | None = None,
        entity: str | None = None,
        parent: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = ...,
        after: str | None = None,
    ) -> Page[RunInfo]:
        """Runs, newest first. `tag` is a name, or (name, value)."""
    @overload
    def schedule(
        self,
        every: Duration,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> None:
        """Start a workflow at the ticks of a calendar: makes the schedule of that name, or changes it."""
    @overload
    def schedule(
        self,
        every: Duration,
        workflow: str,
        *args: Any,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> None: ...
    def schedules(self, *, limit: int = ..., after: str | None = None) -> Page[ScheduleInfo]:
        """All schedules, by name, with their next ticks."""
    def schema_version(self) -> SchemaVersion:
        """Which schema is stored, and whether to open the store would bring it up."""
    def set_pool(
        self,
        pool: str | Pool,
        *,
        limit: int | None = ...,
        per_key: int | None = ...,
        rate: str | None = ...,
        per_key_rate: str | None = ...,
    ) -> PoolInfo:
        """Change limits of a pool for all processes; None takes one away, those not named stay."""
    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Sent:
        """Send a signal: Delivered if the run waits for it, else Buffered by its policy."""
    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Sent: ...
    def signal_many(self, sends: Iterable[tuple[str, Signal[Any] | str, Any]]) -> list[SentOrNot]:
        """Send many signals; each has its own outcome, in the same order, and none spoils another."""
    def signal_status(self, signal_id: str) -> SignalStatus | None:
        """What became of a signal; None when nothing is known of it (any more)."""
    @overload
    def signal_with_start(
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
    ) -> tuple[SyncRun[R], Sent]:
        """Find or start the run and signal it, in one commit. Where the workflow is a name, the signal may be one."""
    @overload
    def signal_with_start(
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
    ) -> tuple[SyncRun[Any], Sent]: ...
    @overload
    def start(
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
    ) -> SyncRun[R]:
        """Start a run, or find it: the same id or key gives the run that exists (`created` is False then)."""
    @overload
    def start(
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
    ) -> SyncRun[Any]: ...
    def subscribe(
        self,
        pattern: str | Topic[Any],
        workflow: AnyWorkflow | str,
        *,
        name: str,
        where: str | None = None,
        map: str | None = None,
        key: str | None = None,
        start: Start = "now",
    ) -> None:
        """Make or change a subscription, for all processes. Expressions are CEL."""
    def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, by name."""
    def timeline(self, entity: str, *, limit: int = ..., after: str | None = None) -> Page[Event]:
        """What happened to an entity, by when it happened."""
    def trigger(self, name: str) -> SyncRun[Any]:
        """Start a run of a schedule now, apart from its calendar."""
    def trim_ledger(
        self, *, older_than: Duration | None = None, keep: int | None = None, force: bool = False
    ) -> Trimmed:
        """Delete events that are older, or beyond the newest `keep`; never what a consumer has still to read."""
    def unschedule(self, name: str) -> bool:
        """Delete a schedule and what it has waiting; False if there is none."""
    def unsubscribe(self, name: str) -> bool:
        """Delete a subscription and what it has put off; False if there is none."""
    def waiting(self, run_id: str) -> list[Waiting]:
        """What a run waits for."""
    def waiting_for_slot(
        self, pool: str | Pool, *, limit: int = ..., after: str | None = None
    ) -> Page[SlotWait]:
        """Who stands in the line of a pool, longest first, and why."""
    def watchers(
        self, topic: Topic[Any] | str, *, limit: int = ..., after: str | None = None
    ) -> Page[Waiting]:
        """Who waits for a topic, longest waiting first."""
    def workers(self) -> list[WorkerInfo]:
        """The workers that live, and what they execute."""
