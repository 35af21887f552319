"""The answers of the ops, as frozen values. Expected answers are outcomes, not exceptions.

Those that senders are told have a tag, `outcome`, which tells them apart as JSON: in rows, and over HTTP.

`Wake` is what a commit changed for others: a hint that may be lost, never the truth itself.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from perdure.model.records import Completion, ConsumerRecord, RunRecord
from perdure.model.status import Status

RefusalCode = Literal[
    "conflict",
    "taken",
    "closed",
    "no_answer",
    "no_step",
    "not_waiting",
    "ambiguous",
    "full",
    "not_failed",
    "not_paused",
    "no_dead_letter",
    "too_much_published",
    "unknown_signal",
    "invalid_payload",
    "unchecked",
    "owned",
    "no_consumer",
    "cursor_too_old",
    "too_deep",
    "no_schedule",
    "no_pool",
    "too_many_streams",
    "approval_closed",
    "approval_expired",
    "not_allowed",
    "paused",
    "link_expired",
]


class Started(msgspec.Struct, frozen=True, gc=False):
    """The run exists: made now, or found under its id or key."""

    run: RunRecord
    created: bool


class Delivered(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="delivered"):
    """The run waited for it: the wait has ended with this payload."""

    run_id: str
    path: str
    signal_id: str = ""


class Buffered(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="buffered"):
    """Accepted and kept until the run waits for it. `replaced` names the signal whose slot it took."""

    signal_id: str
    replaced: str | None = None


class Decided(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="decided"):
    """The decision counts: the approval is closed, and the run goes on with it."""

    approval_id: str
    run_id: str
    path: str


class Queued(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="queued"):
    """Accepted and kept until a run takes it from the queue."""

    item_id: str


class Emitted(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="emitted"):
    """The event is on the ledger. `resumed` runs go on with it by now; `more` will, in a moment."""

    event_id: str
    position: int
    resumed: int = 0
    more: bool = False


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Written with your own transaction: it takes effect, once, if and only if you commit.

    `target` is the id of what will be then: a run, a signal, an event or an item, as `kind` says.
    """

    id: str
    kind: Literal["start", "signal", "emit", "put"]
    target: str


First = TypeVar("First")


class Duplicate(
    msgspec.Struct, Generic[First], frozen=True, gc=False, tag_field="outcome", tag="duplicate"
):
    """The same key (or event id) was used before: nothing happened now. `of` is the first answer."""

    of: First


class Finished(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="finished"):
    """The run has ended: nothing was stored."""

    run_id: str
    status: Status


class NotFound(msgspec.Struct, frozen=True, gc=False, tag_field="outcome", tag="not_found"):
    """No such run: nothing was stored."""

    run_id: str


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The op cannot be applied: nothing was stored. `paths` and `detail` say about what."""

    code: RefusalCode
    detail: str
    paths: tuple[str, ...] = ()


class Advanced(msgspec.Struct, frozen=True, gc=False):
    """The owner's op is recorded. `completions` are waits and sends that were decided on the spot."""

    revision: int
    now: int
    completions: tuple[Completion, ...] = ()
    parked: bool = False
    paused: bool = False  # the run is paused now and no longer the owner's
    pause_requested: bool = False
    cancel_requested: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False):
    """Somebody changed the run since the revision that the owner named: nothing was recorded."""

    revision: int
    pause_requested: bool = False
    cancel_requested: bool = False


class Fenced(msgspec.Struct, frozen=True, gc=False):
    """The run is no longer the sender's: nothing was recorded."""

    run_id: str
    status: Status | None


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The runs now owned by the claimer, and when the next ready one of its workflows is due."""

    runs: tuple[RunRecord, ...]
    next_at: int | None


class Fired(msgspec.Struct, frozen=True, gc=False):
    """How many deadlines were acted on, and when the next one is due."""

    count: int
    next_at: int | None


class Steered(msgspec.Struct, frozen=True, gc=False):
    """A steering op was taken; `status` is the run's status after it."""

    run_id: str
    status: Status
    changed: bool


class Counted(msgspec.Struct, frozen=True, gc=False):
    """How many rows a housekeeping op changed, and whether more are left."""

    count: int
    more: bool = False


class FromOutbox(msgspec.Struct, frozen=True, gc=False):
    """How many rows of the outbox were applied, one or none, and why what it asked for was refused."""

    count: int
    refused: tuple[str, ...] = ()


class CursorMoved(msgspec.Struct, frozen=True, gc=False):
    """The consumer as it is now, and what became of the effects, in their order."""

    consumer: ConsumerRecord
    outcomes: tuple[object, ...] = ()


class Trimmed(msgspec.Struct, frozen=True, gc=False):
    """How many events retention deleted, and which consumer keeps it from deleting more."""

    count: int
    more: bool = False
    held_by: str | None = None


class Filled(msgspec.Struct, frozen=True, gc=False):
    """What became of a part of a backfill: ticks that have a run or wait for one now, and those that had before.

    `reached` is the last tick of the part, None if there was none; `full` says that no more can wait.
    """

    started: int
    existing: int
    reached: int | None
    full: bool = False


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """How many runs were let through from a line; when a rate lets the next one through; whether to ask again."""

    count: int
    next_at: int | None = None
    more: bool = False


class Wake(msgspec.Struct, frozen=True, gc=False):
    """What a commit means for somebody else.

    news: `completion` is for the owner of the run. control: pause, cancel or loss of ownership.
    ready: a run can be claimed. ended: a run reached a terminal status. deadline: the next `at`.
    fan_out: an event has more runs to resume. claimed: one that was resumed is the owner's now.
    match: a wait with a filter was opened by the run.
    consumer: somebody steered the consumer, or changed the subscriptions.
    schedule: one was made or changed, or a tick of it may start now: it is due `at`.
    line: in the line of the pool `run_id` something may move, from `at` on.
    stream: the run has published something; or the signal of this id, in place of a run's, was answered.
    events: the ledger has grown, up to the position `at`. Only from another process: here each commit shows it.
    look: another process has done something that nobody told of. Likewise.

    For who counts, the wake that comes of a wait that has ended has its completion, whomever it is for, and the one of
    a run that was made has its workflow. From another process it is a hint, without any of this and without the run:
    whoever it is for looks at what is stored.
    """

    kind: Literal[
        "news",
        "control",
        "ready",
        "ended",
        "deadline",
        "fan_out",
        "claimed",
        "match",
        "consumer",
        "schedule",
        "line",
        "stream",
        "events",
        "look",
    ]
    run_id: str = ""
    owner: str | None = None
    completion: Completion | None = None
    revision: int = 0
    at: int = 0
    pause: bool = False
    cancel: bool = False
    lost: bool = False  # the owner owns it no longer
    run: RunRecord | None = None  # of an ended run
    made: str | None = None  # the workflow of a run that was made, and that nobody owns yet


Answer = Delivered | Buffered | Queued | Emitted | Decided
_decode_answer = msgspec.json.Decoder(Answer).decode


def encode_answer(outcome: Answer) -> str:
    """The answer of an accepted send as JSON, for the key it used or the step that sent it."""
    return msgspec.json.encode(outcome).decode()


def decode_answer(text: str | bytes) -> Any:
    """The inverse of `encode_answer`."""
    return _decode_answer(text)


# What a sender is told when it was accepted: of a signal, an event, an item.
Sent = Delivered | Buffered | Duplicate[Delivered | Buffered]
Told = Emitted | Duplicate[Emitted]
Taken = Delivered | Queued | Duplicate[Delivered | Queued]

SendOutcome = Sent | Finished | NotFound | Refusal
EmitOutcome = Told | Refusal
PutOutcome = Taken | Refusal
DecideOutcome = Decided | Duplicate[Decided] | NotFound | Refusal
TurnOutcome = Advanced | Moved | Fenced
SteerOutcome = Steered | Finished | NotFound | Refusal
