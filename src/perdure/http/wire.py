"""What travels over HTTP: the bodies and queries of requests, and answers that the library has no value for.

Everything else that is answered is a value of the library itself (`RunInfo`, `Event`, `Delivered` …), as JSON. A field
bears the name of the argument it is handed on as; one that is left out is not handed on. Durations are texts such as
"1h30m" or seconds; a time is RFC 3339 with a zone. Knows nothing of a web framework: server, document and client
share it.
"""

from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from perdure.http.problems import Problem
from perdure.model.outcomes import Buffered, Delivered, Duplicate, Emitted, Finished, NotFound
from perdure.model.records import CatchUp, Overlap
from perdure.model.status import Status

T = TypeVar("T")

Span = str | int | float  # a duration
Moment = str | int | float  # a time, or how long from now on
Place = int | str  # a position, a time, "beginning" or "now"

# Fields whose text may be a time: told from a duration or a word by how it begins.
MOMENTS: Final = frozenset({"start_at", "deadline", "expires", "to", "since", "until", "start"})


class Sent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a request brings. A name that is not known is refused: it would be ignored, and its sender not know."""


# --- answers ---


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a listing. Give `cursor` as `after` to get the next part; null when this is the last."""

    items: list[T]
    cursor: str | None = None


class Value(msgspec.Struct, Generic[T], frozen=True):
    """A single value."""

    value: T


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and whether this request has made it."""

    id: str
    created: bool


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run. `output` is as it is stored; `failure` says what a failed one failed with."""

    id: str
    status: Status
    ended: bool
    output: Any = None
    failure: dict[str, Any] | None = None
    reason: str | None = None


class Refused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """One of several was refused; the others were not touched by that."""

    problem: Problem


SentOrNot = Delivered | Buffered | Duplicate[Delivered | Buffered] | Finished | NotFound | Refused
ToldOrNot = Emitted | Duplicate[Emitted] | Refused


class StartedAndSent(msgspec.Struct, frozen=True, kw_only=True):
    """The run that was found or made, and what became of the signal."""

    run: Started
    signal: Delivered | Buffered | Duplicate[Delivered | Buffered]


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. `every` is cron, or seconds between two ticks."""

    name: str
    workflow: str
    input: list[Any]
    every: str | float
    zone: str
    catch_up: CatchUp
    overlap: Overlap
    code: bool
    paused: bool
    reason: str | None
    next_ticks: list[datetime]
    last_tick: datetime | None
    last_run_id: str | None
    waiting: int
    skipped: int
    created_at: datetime


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as this server knows them."""

    name: str
    scopes: list[str]
    groups: list[str]


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Whether work gets done, and what is in its way."""

    status: Literal["ok", "degraded"]
    reasons: list[str]


# --- runs ---


class StartRun(Sent):
    """A start. `input` are the arguments of the workflow, in their order."""

    workflow: str
    input: list[Any] = []
    version: int | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET
    entity: str | UnsetType | None = UNSET
    start_at: Moment | UnsetType | None = UNSET
    deadline: Moment | UnsetType | None = UNSET
    debounce: Span | UnsetType | None = UNSET
    debounce_max: Span | UnsetType | None = UNSET
    pool: str | UnsetType | None = UNSET
    pool_key: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    trace: str | UnsetType | None = UNSET


class SignalWithStart(Sent):
    """A signal to a run that is started if it is not there."""

    workflow: str
    id: str
    signal: str
    payload: Any = None
    input: list[Any] = []
    version: int | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET
    entity: str | UnsetType | None = UNSET
    deadline: Moment | UnsetType | None = UNSET
    pool: str | UnsetType | None = UNSET
    pool_key: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    trace: str | UnsetType | None = UNSET


class RunsQuery(Sent):
    """Which runs; everything named must hold. `tag` is a name, or `name:value`; `tag_name`, with or without
    `tag_value`, is for names and values that may hold a colon."""

    workflow: str | UnsetType = UNSET
    status: list[Status] | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    tag_name: str | UnsetType = UNSET
    tag_value: str | UnsetType = UNSET
    entity: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    created_from: datetime | UnsetType = UNSET
    created_before: datetime | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class PageQuery(Sent):
    """Which part of a listing."""

    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class ResultQuery(Sent):
    """How long to wait for the end."""

    wait: str | UnsetType = UNSET


class StateQuery(Sent):
    """The part of a play after which the state is asked for; the state as it is now without one."""

    path: str | UnsetType = UNSET


class StreamQuery(Sent):
    """Which part of a stream."""

    after: int | UnsetType = UNSET
    limit: int | UnsetType = UNSET


class StreamFollowQuery(Sent):
    """From which position on."""

    after: int | UnsetType = UNSET


class Reason(Sent):
    """Why."""

    reason: str | UnsetType | None = UNSET


class RetryRun(Sent):
    """From where on, and what a signal is answered anew with."""

    path: str | UnsetType | None = UNSET
    payload: Any = UNSET


class ForkRun(Sent):
    """Where the fork begins, and what it has of its own. `input` are all arguments."""

    from_path: str | UnsetType | None = UNSET
    input: list[Any] | UnsetType = UNSET
    id: str | UnsetType | None = UNSET
    version: int | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET
    entity: str | UnsetType | None = UNSET
    deadline: Moment | UnsetType | None = UNSET
    pool: str | UnsetType | None = UNSET
    pool_key: str | UnsetType | None = UNSET
    priority: int | UnsetType | None = UNSET


class ImportRun(Sent):
    """A run as it was exported."""

    document: dict[str, Any]
    id: str | UnsetType | None = UNSET


# --- signals ---


class SendSignal(Sent):
    """A signal to one run."""

    signal: str
    payload: Any = None
    key: str | UnsetType | None = UNSET
    path: str | UnsetType | None = UNSET
    buffer: bool | UnsetType = UNSET


class OneSend(Sent):
    """A signal among several."""

    run_id: str
    signal: str
    payload: Any = None


class SendMany(Sent):
    """Several signals; each has its own answer."""

    sends: list[OneSend]


class Ask(Sent):
    """A question to a run."""

    signal: str
    payload: Any = None
    timeout: Span | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    path: str | UnsetType | None = UNSET


class WaitingQuery(Sent):
    """Who waits for a signal."""

    signal: str
    path: str | UnsetType = UNSET
    older_than: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class DeadLettersQuery(Sent):
    """Of which run."""

    run_id: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class Resend(Sent):
    """To which run, if not to its own."""

    run_id: str | UnsetType | None = UNSET


# --- approvals ---


class ApprovalsQuery(Sent):
    """Whose approvals, and which. `who=` alone, without a name: only those that anybody may answer."""

    who: list[str] | UnsetType = UNSET
    workflow: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class Decide(Sent):
    """A decision. `by` and `groups` are those of the token, unless its scopes let it speak for others."""

    choice: str | UnsetType | None = UNSET
    payload: Any = None
    by: str | UnsetType = UNSET
    groups: list[str] | UnsetType = UNSET
    comment: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET


class MakeLink(Sent):
    """A link that answers an approval, for whom and until when."""

    by: str
    choice: str | UnsetType | None = UNSET
    expires: Moment | UnsetType = UNSET
    url: str | UnsetType | None = UNSET


class AnswerLink(Sent):
    """An answer by a link, or by its token."""

    link: str
    choice: str | UnsetType | None = UNSET
    payload: Any = None
    comment: str | UnsetType | None = UNSET


# --- the ledger ---


class Emit(Sent):
    """An event."""

    topic: str
    payload: Any = None
    entity: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    event_id: str | UnsetType | None = UNSET
    occurred_at: datetime | UnsetType | None = UNSET
    caused_by: str | UnsetType | None = UNSET
    trace: str | UnsetType | None = UNSET


class EmitMany(Sent):
    """Several events, in their order; each has its own answer."""

    events: list[Emit]


class EventsQuery(Sent):
    """Which events."""

    pattern: str | UnsetType = UNSET
    entity: str | UnsetType = UNSET
    order: Literal["position", "occurred_at"] | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class TimelineQuery(Sent):
    """Of which entity."""

    entity: str
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class LatestQuery(Sent):
    """The newest of which topic, about which entity."""

    topic: str
    entity: str | UnsetType = UNSET


class WatchersQuery(Sent):
    """Of which topic."""

    topic: str
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class FollowQuery(Sent):
    """What to follow: events of a pattern and an entity, after a position (or from now on), and these runs."""

    pattern: str | UnsetType = UNSET
    entity: str | UnsetType = UNSET
    after: int | UnsetType = UNSET
    run: list[str] | UnsetType = UNSET


class PutItem(Sent):
    """An item of a queue."""

    payload: Any = None
    key: str | UnsetType | None = UNSET


class OlderThan(Sent):
    """What is older than this."""

    older_than: Span | UnsetType | None = UNSET


class Trim(Sent):
    """How much of the ledger is kept."""

    older_than: Span | UnsetType | None = UNSET
    keep: int | UnsetType | None = UNSET
    force: bool | UnsetType = UNSET


# --- readers of the ledger ---


class Rewind(Sent):
    """Where a consumer is to read on: after a position, from a time, "beginning" or "now"."""

    to: Place


class ParkedQuery(Sent):
    """Of which consumer."""

    consumer: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    after: str | UnsetType = UNSET


class ParkedPlace(Sent):
    """An event that is parked; `subscription` is empty for a consumer of one's own."""

    consumer: str
    position: int
    subscription: str | UnsetType = UNSET


class DeferredPlace(Sent):
    """A start that was put off."""

    position: int
    subscription: str


class Replay(Sent):
    """A window of the ledger, and into which consumer it is fired anew."""

    into: str
    since: Place | UnsetType = UNSET
    until: Place | UnsetType | None = UNSET
    pattern: str | UnsetType | None = UNSET
    dry_run: bool | UnsetType = UNSET
    rate: float | UnsetType | None = UNSET
    only_if_no_run: bool | UnsetType = UNSET


class Subscribe(Sent):
    """A rule: events of a pattern start a workflow."""

    pattern: str
    workflow: str
    where: str | UnsetType | None = UNSET
    map: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    start: Place | UnsetType = UNSET


class Switch(Sent):
    """On or off."""

    on: bool


# --- schedules and pools ---


class Schedule(Sent):
    """A calendar that starts a workflow. `input` are its arguments."""

    every: Span
    workflow: str
    input: list[Any] = []
    zone: str | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET


class Backfill(Sent):
    """A window of ticks, from `since` to before `until`."""

    since: datetime
    until: datetime
    dry_run: bool | UnsetType = UNSET


class SetPool(Sent):
    """Limits to be changed; null takes one away, those that are left out stay."""

    limit: int | UnsetType | None = UNSET
    per_key: int | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    per_key_rate: str | UnsetType | None = UNSET


# --- operation ---


class Check(Sent):
    """Whether what can be set right is."""

    repair: bool | UnsetType = UNSET


# --- who asks ---


class SignIn(Sent):
    """A token that is exchanged for a cookie."""

    token: str
