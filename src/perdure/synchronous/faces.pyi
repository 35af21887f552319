# Written by `make faces` from the async verbs (tests/synchronous/stubs.py). Do not edit.

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, TypeVarTuple, overload

from perdure.app import AnyWorkflow, App
from perdure.approvals import ApprovalInfo
from perdure.channels import Plain, Queue, Signal, Topic
from perdure.inputs import Fact
from perdure.inspecting.catalogue import ChannelInfo, WorkerInfo, WorkflowInfo
from perdure.inspecting.doctor import Diagnosis, SchemaVersion
from perdure.inspecting.findings import Progress, Report
from perdure.ledger.definitions import Handler, Start
from perdure.ledger.health import Health
from perdure.ledger.replaying import Place, Replayed
from perdure.model.duration import Duration
from perdure.model.events import Cause, Event
from perdure.model.outcomes import Accepted, Decided, Duplicate, Queued, Sent, Taken, Told, Trimmed
from perdure.model.records import CatchUp, Overlap
from perdure.model.status import Status
from perdure.pools import Pool
from perdure.registry import Workflow
from perdure.sending import SentOrNot
from perdure.synchronous.face import Face, Opener
from perdure.telling import Order
from perdure.views import (
    Backfilled,
    BufferedSignal,
    ConsumerInfo,
    DeadLetter,
    DeferredStart,
    HistoryEntry,
    Page,
    ParkedEvent,
    PoolInfo,
    QueueItem,
    Refused,
    RunContents,
    RunInfo,
    ScheduleInfo,
    SignalStatus,
    SlotWait,
    StreamInfo,
    StreamItem,
    SubscriptionInfo,
    Waiting,
)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

class SyncRun(Face, Generic[R_co]):
    """One run, for code that may wait: as a RunHandle or a RemoteRun, without `await`."""

    @property
    def id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def created(self) -> bool:
        """Whether the call that gave this has made the run; else it had existed before."""
    def buffered(self) -> list[BufferedSignal]:
        """The signals kept for it."""
    def cancel(self, reason: str | None = None) -> Status:
        """Ask it, and its children, to stop: CancelledError where its code stands, so it may clean up."""
    def contents(self) -> RunContents:
        """What the run was given, what it shows, and what came of it, as JSON has them."""
    def export(self) -> dict[str, Any]:
        """The run as a plain dict that JSON carries, of the format `perdure.run/1`: for `app.import_run`, or tests."""
    def fork(
        self,
        from_path: str | None = None,
        *,
        input: Any = ...,
        id: str | None = None,
        version: int | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str | None = None,
        priority: int | None = None,
    ) -> SyncRun[R_co]:
        """Make another run that goes on from a place of this one's history, whatever has become of it.

        All that was recorded before the step at `from_path` is taken over (nothing, if no path is named); from there on
        the fork is on its own. `input` replaces the input: a tuple is all arguments of the workflow, anything else its
        only one. With `version` it goes on with other code. Tags, entity and pool are those of this run unless given.
        """
    def get(self, key: str, default: Any = None) -> Any:
        """What the workflow published with `ctx.set(key, …)`; of a play, `"state"` is its state as it is now."""
    def graph(self) -> dict[str, Any]:
        """The play that this run performs, as `play.graph()` gives it, with what became of each part (`status`)."""
    def history(self, *, limit: int = ..., after: str | None = None) -> Page[HistoryEntry]:
        """What the run has done, in the order it was recorded. What is open stands behind, on the last page, all of it.

        A step that is decided while pages are read is on a later one, though it was never on one, or open, before.
        """
    def info(self) -> RunInfo:
        """Workflow, status, times, tags."""
    def pause(self, reason: str | None = None) -> Status:
        """Hold it: the step in flight is still recorded, then nothing advances; signals are buffered."""
    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and give the result; raises RunFailed, RunCancelled, or TimeoutError."""
    def resume(self) -> Status:
        """Let a paused run go on."""
    def retry(self, path: str | None = None, *, payload: Any = ...) -> Status:
        """Reopen a failed run at the step it failed at; or from the step at `path` on.

        With a `payload` the wait at `path`, which a signal had ended, ends with this one instead: both are on the
        ledger. What a saga had rolled back is done anew.
        """
    def state_at(self, path: str) -> Any:
        """The state of a play right after the part at this path: an act, a signal, a scene or a chorus."""
    def status(self) -> Status: ...
    @overload
    def stream(
        self, name: str, *, after: int = 0, type: type[T], follow: bool = True
    ) -> Generator[StreamItem[T]]:
        """What the run publishes: items after a position, those that are there and then those that come.

        Ends when the run has ended and all was given; with `follow=False` at what is there now. Whoever comes back
        gives the last position that was seen as `after=`; if that has gone by now, the oldest that is kept comes first.
        """
    @overload
    def stream(
        self, name: str, *, after: int = 0, type: Any = ..., follow: bool = True
    ) -> Generator[StreamItem[Any]]: ...
    def streams(self) -> list[StreamInfo]:
        """The streams that it has published to, by name."""
    def terminate(self, reason: str | None = None) -> Status:
        """End it, and its children, at once; no code runs."""
    def waiting(self) -> list[Waiting]:
        """What it waits for now."""

class SyncApp(Opener):
    """The verbs of an App for code that may wait. `with app.sync as shop:` opens the app in the background.

    Where the app is open already, in the loop of a server, any other thread uses it as it is.
    """

    def __init__(self, real: App) -> None: ...
    def answer(
        self,
        link: str,
        choice: str | None = None,
        *,
        payload: Any = None,
        comment: str | None = None,
    ) -> Decided:
        """Answer by a link or its token. Raises BadLink, LinkExpired, and as `decide` does."""
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
    def approvals(
        self,
        *,
        who: str | Sequence[str] | None = None,
        workflow: str | Workflow[Any, *tuple[Any, ...]] | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = ...,
        after: str | None = None,
    ) -> Page[ApprovalInfo]:
        """Approvals that are open, longest waiting first; `who=["anna", "group:finance"]`: that one of them may answer.

        A page may have fewer than `limit` and still a cursor: a call looks through a bounded number of rows.
        """
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
        """Send a signal and give what workflow code answers with `ctx.reply`, whenever it comes to handle it.

        Raises what `app.signal` raises; RunFinished if the run ends without an answer, SignalLost if the signal is
        replaced or expires before it is handled, and TimeoutError: then the answer may still come. The same `key`, with
        the same payload, asks for the same answer again and sends nothing twice.
        """
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
        """Start the ticks of a window that have no run: from `since` to before `until`, never those to come.

        All at once with overlap="allow", else one after the other. With `dry_run` it only counts. To repeat it is safe:
        a tick has one run for as long as that is kept.
        """
    def backup(self, path: str | os.PathLike[str]) -> int:
        """Copy a store on SQLite into a new file, from one moment, while workers run; gives its size in bytes.

        Raises StoreRefused if the file exists or cannot be made, and on other stores: Postgres and Redis have tools of
        their own.
        """
    def buffered(self, run_id: str) -> list[BufferedSignal]:
        """The signals kept for a run, oldest first."""
    def catalogue(self) -> list[WorkflowInfo]:
        """Every version of every workflow that some app has declared: what it takes, gives and listens to."""
    def channels(self) -> list[ChannelInfo]:
        """Every topic and queue that some app has declared."""
    def consumers(self) -> list[ConsumerInfo]:
        """All consumers that ever ran on this store, by name, with the built-in `workflow_runner`."""
    def counts(self) -> dict[str, int]:
        """How many rows of each kind there are: `runs`, `runs.waiting`, `steps`, `events`, …"""
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
    def deferred(self, *, limit: int = ..., after: str | None = None) -> Page[DeferredStart]:
        """Starts that a bound has put off. Those of the fan-out drain by themselves; others wait for you."""
    def doctor(self) -> Diagnosis:
        """What the store is, which promises it keeps as it is set up, who works on it, and what to see to."""
    def drop_consumer(self, name: str) -> None:
        """Forget a consumer that no code reads for any more: it holds retention no longer, and cannot stall.

        Refused (Conflict) while a worker that lives reads for it. One that code still defines begins anew.
        """
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
        connection: None = None,
    ) -> Told:
        """Put an event on the ledger and resume every run that waits for it.

        The same key (within its topic, for a week) or event_id again gives Duplicate and changes nothing. Raises
        InvalidPayload, Conflict; nothing is stored then. With a `connection` of your own it is Accepted, and told
        once you commit, if you do.
        """
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
        connection: None = None,
    ) -> Told: ...
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
        connection: Any,
    ) -> Accepted: ...
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
        connection: Any,
    ) -> Accepted: ...
    def emit_cloudevents(self, text: str | bytes) -> list[Told | Refused]:
        """Put CloudEvents 1.0 in JSON on the ledger: one, or a batch. Raises InvalidPayload if it is none."""
    def emit_many(self, events: Iterable[Fact | tuple[Any, ...]]) -> list[Told | Refused]:
        """Put many events on the ledger, in their order; each has its own answer and none spoils another.

        An event is a `Fact`, or (topic, payload), or (topic, payload, entity).
        """
    def enable_subscription(self, name: str, on: bool = True) -> None:
        """Switch a subscription on or off. Events that come while it is off do not count for it."""
    def event(self, event_id: str) -> Event | None:
        """One event by its id."""
    def events(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        order: Order = "position",
        limit: int = ...,
        after: str | None = None,
    ) -> Page[Event]:
        """The ledger, oldest first, by position or by when things happened.

        With a pattern (`order.*`) a page may hold fewer than `limit` and still have a cursor: it looks at a bounded
        number of events.
        """
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
    def fsck(self, repair: bool = False, progress: Progress | None = None) -> Report:
        """Check that all in the store holds together, in pages, while others work; writes nothing.

        With `repair` what ops can set right is set right, and all is checked again. `progress` is called with the name
        of a table and how many rows of it were looked at. `perdure.inspecting.checking` says what is checked.
        """
    def health(self) -> Health:
        """Whether somebody should look: consumers that stall, runs that nobody takes, and what waits for a decision."""
    def import_run(self, document: dict[str, Any], *, id: str | None = None) -> SyncRun[Any]:
        """Make the run that a document of `run.export()` tells of, under its own id or another.

        One that had ended has ended here too; one that was paused is; any other goes on by replay, with the deadlines
        it had. A run of that id that was made of the same document is found (`created` is False); any other is a
        Conflict. Raises BadDocument for what is none; nothing is stored then.
        """
    def latest(self, topic: Topic[Any] | str, *, entity: str | None = None) -> Event | None:
        """The newest event of a topic, about one entity or any."""
    def parked(
        self, consumer: str | None = None, *, limit: int = ..., after: str | None = None
    ) -> Page[ParkedEvent]:
        """Events that a consumer could not deal with, and why."""
    def pause_consumer(self, name: str, reason: str | None = None) -> None:
        """Let a consumer read no further; the batch under way is finished."""
    def pause_schedule(self, name: str, reason: str | None = None) -> None:
        """Let a schedule start nothing until it is resumed; runs that it has started go on."""
    def pools(self) -> list[PoolInfo]:
        """All pools: their limits, slots that are taken, how many wait for one and since when."""
    def prune(
        self, older_than: Duration | None = None, *, progress: Callable[[int], None] | None = None
    ) -> int:
        """Delete runs that finished longer ago than this (default: `keep=`), in bounded chunks.

        `progress` is called after each chunk with how many are gone by then.
        """
    def purge(self, queue: Queue[Any] | str, *, older_than: Duration | None = None) -> int:
        """Delete what is in a queue, or what has been there for longer than this; gives how many."""
    @overload
    def put(
        self,
        queue: Queue[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        connection: None = None,
    ) -> Taken:
        """Put an item into a queue: Delivered to the run that waits longest, else Queued until one takes it.

        With a `connection` of your own it is Accepted, and put there once you commit, if you do.
        """
    @overload
    def put(
        self,
        queue: Queue[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        connection: None = None,
    ) -> Taken: ...
    @overload
    def put(
        self, queue: Queue[T], payload: T | Plain, *, key: str | None = None, connection: Any
    ) -> Accepted: ...
    @overload
    def put(
        self,
        queue: Queue[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    def queue_items(
        self, queue: Queue[Any] | str, *, limit: int = ..., after: str | None = None
    ) -> Page[QueueItem]:
        """What is in a queue, oldest first."""
    def queues(self) -> dict[str, int]:
        """How many items each queue holds; empty ones are left out."""
    def refire(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Deal with a parked event once more. False if it failed again: it stays parked, with the new reason."""
    def release_deferred(self, position: int, subscription: str) -> bool:
        """Start what was put off, whatever bound it broke; False if it is not there or could not be started."""
    def replay(
        self,
        into: str | Handler,
        *,
        since: Place = "beginning",
        until: int | datetime | None = None,
        pattern: str | Topic[Any] | None = None,
        dry_run: bool = True,
        rate: float | None = None,
        only_if_no_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Replayed:
        """Fire a window of the ledger anew, into a consumer by name or a fresh handler; its cursor does not move.

        The window: positions, both inclusive, or times, from `since` to before `until`. With `dry_run` it only
        counts. `rate` is events per second. `only_if_no_run=False` starts runs, and calls handlers with dedupe, also
        for what was dealt with before. `progress` is called with how many events are done by then.
        """
    def resend(self, dead_letter_id: str, *, run_id: str | None = None) -> Sent | Queued:
        """Send a dead letter again, to its own run or another; it leaves the list if accepted.

        An item of a queue is put back: Delivered to the run that waits longest, else Queued.
        """
    def reset_pool(self, pool: str | Pool) -> PoolInfo:
        """Set the limits of a pool back to what code declares."""
    def resume_consumer(self, name: str) -> None:
        """Let a paused consumer read on from its cursor."""
    def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick. Those that came meanwhile do not count: see `backfill`."""
    def rewind(self, name: str, to: int | datetime | Literal["beginning", "now"]) -> int:
        """Move a consumer's cursor, back or forth; gives its new position.

        To a position: events after it are read next. To a time: those recorded from then on. What it did about
        events it reads again is done again, but for what has a key.
        """
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
        """Start a workflow at the ticks of a calendar: cron in the time of `zone`, or an interval such as "15m".

        While the app is open this makes (when awaited) the schedule of that name, by default the workflow's, or changes
        it; before that `app.schedule` declares it in code. Ticks that nobody was there for: catch_up="one" makes up for
        the newest, "all" for each, "none" for none. A tick that comes while the last run lives: overlap="skip" drops
        it, "queue" has it wait, "allow" starts it beside the other.
        """
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
        """Which schema is stored, and whether to open the store would bring it up. The app need not be open.

        Raises StoreRefused if the store is out of reach or not one of perdure.
        """
    def set_pool(
        self,
        pool: str | Pool,
        *,
        limit: int | None = ...,
        per_key: int | None = ...,
        rate: str | None = ...,
        per_key_rate: str | None = ...,
    ) -> PoolInfo:
        """Change limits of a pool for all processes, from now on; None takes one away, those not named stay.

        A new pool is made. Lowered limits take nobody's slot away. The change stays until another one, `reset_pool`, or
        code that declares other limits than code declared before.
        """
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
        connection: None = None,
    ) -> Sent:
        """Send a signal: Delivered if the run waits for it, else Buffered by its policy.

        Raises RunNotFound, RunFinished, InvalidPayload, UnknownSignal, AmbiguousSignal, SignalTaken,
        NotWaiting (with buffer=False), Conflict; nothing is stored then. With a `connection` of your own it is
        Accepted, and sent once you commit, if you do.
        """
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
        connection: None = None,
    ) -> Sent: ...
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
        connection: Any,
    ) -> Accepted: ...
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
        connection: Any,
    ) -> Accepted: ...
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
        connection: None = None,
    ) -> SyncRun[R]:
        """Start a run, or find it: the same id or key gives the run that exists (`created` is False then).

        A run keeps the version of its workflow. A mere name means the newest of this app, else of all apps that use the
        store, or that `version=`; its arguments may be JSON builtins, and the code may be elsewhere.
        If it has not ended by its `deadline` it is cancelled; a duration counts from when it may begin. With
        `debounce="5s"` it begins so long after the last call with this key, with the input of that call, and no later
        than `debounce_max` after the first.
        It is in the workflow's own pool unless you name another ("" for none); `pool_key` and `priority` count there.
        `trace` is a W3C traceparent that it keeps; unless you give one, that of the caller's current span, if any.
        With a `connection` of your own: once you commit, if you do. It is `Accepted`, and `target` the run's id.
        """
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
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
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
        connection: None = None,
    ) -> SyncRun[Any]: ...
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
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
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
        """Make or change a subscription, while the app runs and for all processes. Expressions are CEL."""
    def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, by name."""
    def timeline(self, entity: str, *, limit: int = ..., after: str | None = None) -> Page[Event]:
        """What happened to an entity, by when it happened."""
    def trigger(self, name: str) -> SyncRun[Any]:
        """Start a run of a schedule now, apart from its calendar, also if it is paused or another run lives."""
    def trim_ledger(
        self, *, older_than: Duration | None = None, keep: int | None = None, force: bool = False
    ) -> Trimmed:
        """Delete events that are older, or beyond the newest `keep`; by default as the app was told to keep them.

        Never what a consumer has still to read, unless it has not moved for 30 days, or with `force`.
        """
    def unschedule(self, name: str) -> bool:
        """Delete a schedule and what it has waiting; False if there is none. Its runs go on. One in code returns with
        its app.
        """
    def unsubscribe(self, name: str) -> bool:
        """Delete a subscription and what it has put off; False if there is none. One in code returns with its app."""
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
