"""Perdure: durable, event-driven workflows for Python.

A workflow is an ordinary async function. Every step's result is recorded; a run can wait for days; a crash at any point
loses nothing.
"""

from perdure.app import App
from perdure.channels import Queue, Signal, TimedOut, Topic, Won, ended, timer
from perdure.errors import (
    AfterFork,
    AmbiguousSignal,
    BadExpression,
    Conflict,
    CursorTooOld,
    ExpressionFailed,
    ExpressionsUnavailable,
    ForeignAwait,
    InvalidPayload,
    NonDeterminism,
    NotRunning,
    NotWaiting,
    OutcomeUnknown,
    Overloaded,
    PerdureError,
    Permanent,
    RetryAfter,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    SignalClosed,
    SignalTaken,
    StepFailed,
    StoreRefused,
    Undecodable,
    UnknownConsumer,
    UnknownSignal,
    UnknownWorkflow,
    WaitTimeout,
    WrongLoop,
)
from perdure.handle import RunHandle
from perdure.inputs import Fact
from perdure.model.codec import BadHint
from perdure.model.events import Cause, Event
from perdure.model.limits import BadValue
from perdure.model.outcomes import (
    Buffered,
    Delivered,
    Duplicate,
    Emitted,
    Finished,
    NotFound,
    Queued,
)
from perdure.model.policy import Retry
from perdure.registry import Step, Workflow, step, workflow
from perdure.runtime.context import Context
from perdure.runtime.steps import StepInfo, step_info
from perdure.views import (
    BufferedSignal,
    DeadLetter,
    HistoryEntry,
    Page,
    QueueItem,
    Refused,
    RunInfo,
    SignalStatus,
    Waiting,
)

__version__ = "0.1.0"

__all__ = [
    "AfterFork",
    "AmbiguousSignal",
    "App",
    "BadExpression",
    "BadHint",
    "BadValue",
    "Buffered",
    "BufferedSignal",
    "Cause",
    "Conflict",
    "Context",
    "CursorTooOld",
    "DeadLetter",
    "Delivered",
    "Duplicate",
    "Emitted",
    "Event",
    "ExpressionFailed",
    "ExpressionsUnavailable",
    "Fact",
    "Finished",
    "ForeignAwait",
    "HistoryEntry",
    "InvalidPayload",
    "NonDeterminism",
    "NotFound",
    "NotRunning",
    "NotWaiting",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PerdureError",
    "Permanent",
    "Queue",
    "QueueItem",
    "Queued",
    "Refused",
    "Retry",
    "RetryAfter",
    "RunCancelled",
    "RunFailed",
    "RunFinished",
    "RunHandle",
    "RunInfo",
    "RunNotFound",
    "Signal",
    "SignalClosed",
    "SignalStatus",
    "SignalTaken",
    "Step",
    "StepFailed",
    "StepInfo",
    "StoreRefused",
    "TimedOut",
    "Topic",
    "Undecodable",
    "UnknownConsumer",
    "UnknownSignal",
    "UnknownWorkflow",
    "WaitTimeout",
    "Waiting",
    "Won",
    "Workflow",
    "WrongLoop",
    "ended",
    "step",
    "step_info",
    "timer",
    "workflow",
]
