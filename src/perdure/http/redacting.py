"""Answers for those who may not see all: without the fields that the app redacts (`App(redact=…)`).

Only what holds users' data is touched. Which fields of which answers these are is said here, once; a test asks of every
field that it was thought of. A text that may quote a value, such as a reason, loses what it shows of a hidden field.
Knows nothing of a web framework, and asks no store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.approvals import ApprovalInfo
from perdure.http import wire
from perdure.http.problems import Problem
from perdure.inspecting.catalogue import ChannelInfo, SignalInfo, WorkflowInfo
from perdure.ledger.health import ConsumerHealth, Health
from perdure.model.events import Event
from perdure.model.topics import is_engines
from perdure.observing.redaction import HIDDEN, Redaction
from perdure.views import (
    BufferedSignal,
    ConsumerInfo,
    DeadLetter,
    HistoryEntry,
    ParkedEvent,
    QueueItem,
    RunContents,
    RunInfo,
    StreamItem,
    SubscriptionInfo,
    Waiting,
)

# What the versions of each workflow call its arguments, which stand in its input without names.
Parameters = Mapping[str, Sequence[Sequence[str]]]
_Show = Callable[["Redacting", Any, Any, set[str]], Any]

# Steps whose value is an answer of the engine's own.
_engines_steps: Final = frozenset(
    {"signal", "start", "emit", "put", "publish", "cancel", "retry", "patch", "cue"}
)
# Verbs whose answers hold what workflows are given.
WITH_INPUT: Final = frozenset({"contents", "schedules"})
# What an error says, beside what it is and where it was.
_words: Final = frozenset({"message", "traceback", "args"})
# Verbs whose single value is users' data.
_values: Final = frozenset({"published", "state_at", "ask"})


class Redacting:
    """Writes what a route answers a request that has brought `sent`. `redaction` says which fields are hidden."""

    def __init__(
        self,
        redaction: Redaction,
        verb: str = "",
        sent: Any = None,
        parameters: Parameters | None = None,
        quoted: Iterable[str] = (),
        runs: Mapping[str, set[str] | None] | None = None,
    ) -> None:
        self.redaction = redaction
        self._verb = verb
        # What texts may quote: what was sent, and what is hidden of the run that is asked for.
        self._known = redaction.hidden_in(sent).union(quoted)
        self._parameters = parameters or {}
        # What is hidden of the runs whose failures are told; None of one that is gone.
        self.runs = runs or {}

    def __call__(self, value: Any) -> bytes:
        return msgspec.json.encode(self.shown(value))

    def shown(self, value: Any) -> Any:
        """The same answer without what is hidden."""
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, list | tuple):
            return [self.shown(one) for one in value]
        return value

    def _struct(self, one: Any) -> Any:
        if isinstance(one, wire.Value) and self._verb in _values:
            return wire.Value(self.redaction.of(one.value))
        holds = HOLDS.get(type(one), {})
        # What is hidden of a value may be quoted by the words beside it.
        hidden = self.hidden_in(one) | self._known
        changed: dict[str, Any] = {}
        for name in one.__struct_fields__:
            value = getattr(one, name)
            shown = holds[name](self, one, value, hidden) if name in holds else self.shown(value)
            if shown is not value:
                changed[name] = shown
        return replace(one, **changed) if changed else one

    def hidden_in(self, one: Any) -> set[str]:
        """What is hidden of what an answer holds, for texts that quote it."""
        data = self._users_data(one, HOLDS.get(type(one), {}))
        return set().union(*map(self.redaction.hidden_in, data))

    def arguments(self, workflow: str, given: Sequence[Any]) -> Iterator[tuple[set[str], Any]]:
        """What a workflow is given, each with the names that some version of the workflow has for it."""
        versions = self._parameters.get(workflow, ())
        for ix, one in enumerate(given):
            yield {names[ix] for names in versions if ix < len(names)}, one

    def _users_data(self, one: Any, holds: Mapping[str, _Show]) -> Iterator[Any]:
        """What an answer holds that users have sent, each under its keys."""
        match one:
            case Event() if is_engines(one.type) and isinstance(one.payload, dict):
                yield from (part for part in one.payload.values() if isinstance(part, dict | list))
            case Event():
                yield one.payload
            case HistoryEntry():
                if one.kind not in _engines_steps:
                    yield {one.name: one.value} if one.kind == "set" else one.value
            case _:
                yield from (getattr(one, name) for name, show in holds.items() if show is _data)
                if "input" in holds:
                    for names, each in self.arguments(one.workflow, one.input):
                        yield from ({name: each} for name in names or ("",))


# --- what quotes a run ---


def quotes_its_run(value: Any) -> bool:
    """Whether an answer about one run has words that may quote it, and not what they quote."""
    match value:
        case wire.Listing():
            return any(map(quotes_its_run, value.items))
        case wire.Ended():
            return value.failure is not None
        case HistoryEntry():
            return value.error is not None
        case _:
            return False


def failed_runs(value: Any) -> Iterator[str]:
    """The runs whose failures are told, as events of the ledger."""
    match value:
        case wire.Listing():
            for one in value.items:
                yield from failed_runs(one)
        case wire.Value():
            yield from failed_runs(value.value)
        case Event(payload={"error": dict(), "run_id": str(run_id)}) if is_engines(value.type):
            yield run_id


# --- what a field holds ---


def _data(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    """Anything that users have sent."""
    return to.redaction.of(value)


def _text(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    """Words, or several of them, that may quote what users have sent."""
    if isinstance(value, str):
        return to.redaction.text(value, hidden)
    return value if value is None else [to.redaction.text(each, hidden) for each in value]


def _schema(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    return to.redaction.schema(value)


def _error(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    """A stored failure: its words, its traceback, and arguments as JSON."""
    if value is None:
        return None
    return {name: _text_or_same(to, each, hidden) for name, each in value.items()}


def _text_or_same(to: Redacting, value: Any, hidden: set[str]) -> Any:
    return to.redaction.text(value, hidden) if isinstance(value, str) else value


def _facts(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    """What a problem knows: attributes of an error, which are words and lists of words."""
    return {name: _fact(to, each, hidden) for name, each in value.items()}


def _fact(to: Redacting, fact: Any, hidden: set[str]) -> Any:
    if isinstance(fact, list):
        return [_fact(to, one, hidden) for one in fact]
    return to.redaction.text(fact, hidden) if isinstance(fact, str) else to.redaction.of(fact)


def _payload(to: Redacting, event: Event, value: Any, hidden: set[str]) -> Any:
    """What an event says. Of the engine's own only what they quote is users' data."""
    if not is_engines(event.type) or not isinstance(value, dict):
        return to.redaction.of(value)
    return {
        name: _failure(to, value.get("run_id"), one, hidden)
        if name == "error" and isinstance(one, dict)
        else _engines_fact(to, name, one, hidden)
        for name, one in value.items()
    }


def _failure(to: Redacting, run_id: Any, error: dict[str, Any], hidden: set[str]) -> Any:
    """What a run failed with may quote what it was given. Where that is not known its words are not told."""
    known = to.runs.get(run_id)
    if known is None:
        return {name: HIDDEN if name in _words else one for name, one in error.items()}
    return _error(to, None, error, hidden | known)


def _engines_fact(to: Redacting, name: str, value: Any, hidden: set[str]) -> Any:
    if name == "schema":
        return to.redaction.schema(value)
    return to.redaction.of(value) if not isinstance(value, str) else _text(to, None, value, hidden)


def _step_value(to: Redacting, step: HistoryEntry, value: Any, hidden: set[str]) -> Any:
    if step.kind in _engines_steps:
        return value
    # What `ctx.set` shows is a field of what the run publishes.
    return to.redaction.of(value, (step.name,) if step.kind == "set" else ())


def _arguments(to: Redacting, one: Any, value: Any, hidden: set[str]) -> Any:
    """What a workflow is given."""
    return [_argument(to, names, each) for names, each in to.arguments(one.workflow, value)]


def _argument(to: Redacting, names: set[str], value: Any) -> Any:
    shown = to.redaction.of(value)
    for name in names:
        shown = to.redaction.of(shown, (name,))
    return shown


HOLDS: Final[dict[type, dict[str, _Show]]] = {
    RunInfo: {"tags": _data, "reason": _text},
    HistoryEntry: {"value": _step_value, "error": _error},
    Waiting: {"where": _text, "reason": _text},
    BufferedSignal: {"payload": _data},
    QueueItem: {"payload": _data},
    DeadLetter: {"payload": _data, "reason": _text},
    StreamItem: {"value": _data},
    Event: {"payload": _payload},
    ConsumerInfo: {"reason": _text, "error": _text},
    ConsumerHealth: {"reason": _text, "error": _text},
    Health: {"reasons": _text},
    SubscriptionInfo: {"where": _text, "map": _text, "key": _text},
    ParkedEvent: {"reason": _text},
    ApprovalInfo: {"title": _text, "description": _text, "schema": _schema, "data": _data},
    WorkflowInfo: {"input_schema": _schema, "output_schema": _schema},
    SignalInfo: {"schema": _schema},
    ChannelInfo: {"schema": _schema},
    RunContents: {"input": _arguments, "published": _data, "output": _data, "failure": _error},
    wire.Ended: {"output": _data, "failure": _error, "reason": _text},
    wire.ScheduleLine: {"input": _arguments, "reason": _text},
    wire.Ready: {"reasons": _text},
    Problem: {"detail": _text, "facts": _facts},
}
