"""Log lines: what run and step they speak of, as JSON if wanted, and without what is to be seen by few.

The library writes to loggers named `perdure.*` and sets up none. `RunFilter`, on a handler, gives each record the run,
workflow, path and attempt of the code that wrote it; `JsonLines` writes records with all they were given. What an app
redacts (`App(redact=…)`) is left out of the lines of `perdure.*` by the loggers themselves, whatever handler there is;
where a process has several apps, what any of them redacts.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

from perdure.observing.living import Living
from perdure.observing.redaction import HIDDEN, Redaction
from perdure.observing.speaking import driven, speaker
from perdure.observing.traces import current_trace, parsed

# All that the library writes to: they are made here, so that none comes to be that does not redact.
LOGGERS: Final = tuple(
    f"perdure.{name}"
    for name in (
        "app",
        "coordinator",
        "http",
        "inspecting",
        "ledger",
        "ops",
        "outbox",
        "recovery",
        "runtime",
        "service",
        "store",
        "store.postgres",
        "store.redis",
        "store.sqlite",
        "sync",
        "worker",
        "workflow",
    )
)
# What every record has; the rest was given with it.
_own: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName"),
    "about",  # ours, in words
    "color_message",  # uvicorn's: the message once more, for a terminal
}
_words: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s%(about)s"
# Whole payloads, as the repr of an op has them: their fields may have no names, such as the arguments of a workflow.
_ops_payload: Final = re.compile(
    r"\b(input|payload|value|output|error|published|state)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
)

# --- who speaks ---


class RunFilter(logging.Filter):
    """Gives records `run_id`, `workflow`, `path`, `attempt` and `trace_id`, where they are known.

    Put it on a handler: `handler.addFilter(RunFilter())`. What code in a step or a workflow writes, to whatever logger,
    speaks of its run; so do lines of the engine about one. `about` is all of it as words, or nothing. What workflow
    code writes while it only replays was written before: it is left out, unless you want it with `replays=True`.
    """

    def __init__(self, *, replays: bool = False) -> None:
        super().__init__()
        self._replays = replays

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._replays and _is_replayed(record):
            return False
        said = speaker()
        if said is not None:
            facts = {
                "run_id": said.run_id,
                "workflow": said.workflow,
                "path": said.path,
                "attempt": said.attempt,
            }
            for name, one in facts.items():
                if one is not None and not hasattr(record, name):
                    setattr(record, name, one)
        trace = parsed(current_trace())
        if trace is not None and not hasattr(record, "trace_id"):
            record.trace_id = f"{trace.trace_id:032x}"
        record.about = _about(record)
        return True


def _is_replayed(record: logging.LogRecord) -> bool:
    """Whether workflow code writes it that only replays. Our own lines are never such."""
    run = driven.run
    return run is not None and run.replaying and not record.name.startswith("perdure.")


def _about(record: logging.LogRecord) -> str:
    said = _said(record)
    facts = [
        f"{name}={one}"
        for name in ("run_id", "path", "attempt")
        if (one := getattr(record, name, None)) is not None and str(one) not in said
    ]
    return f" [{' '.join(facts)}]" if facts else ""


def _said(record: logging.LogRecord) -> str:
    """The message. One that does not fit its arguments is for its handler to complain of."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


class JsonLines(logging.Formatter):
    """Each record as a line of JSON: time, level, logger, message, and whatever it was given besides."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told = {**_given(record), **told}
        if record.exc_text:
            told["traceback"] = record.exc_text
        elif record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=lambda one: redacted(str(one)), skipkeys=True)


def _given(record: logging.LogRecord) -> dict[str, Any]:
    return {name: one for name, one in vars(record).items() if name not in _own}


def dress(handler: logging.Handler, *, as_json: bool = False) -> None:
    """Have a handler write lines that say of which run they are, as JSON or as text."""
    handler.addFilter(RunFilter())
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_words))


# --- what is left out ---

_in_force: Final[Living[Redaction]] = Living()


def redact(redaction: Redaction) -> None:
    """Leave these fields out of what `perdure.*` writes, for as long as somebody has the redaction."""
    _in_force.add(redaction)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_leave_out)  # once: a filter that is there is not added


def redacted(text: str) -> str:
    """A text without what any app of this process redacts."""
    for one in _in_force:
        text = one.text(text)
    return text


class _LeaveOut(logging.Filter):
    """On our loggers, so that it comes before every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not _in_force:
            return True
        said = _said(record)
        left = redacted(_ops_payload.sub(_without, said) if record.name == "perdure.ops" else said)
        if left != said:
            record.msg, record.args = left, None
        if record.exc_info:
            self._leave_out_of_traceback(record, record.exc_info)
        for name, one in _given(record).items():
            setattr(record, name, _without_fields(name, one))
        return True

    def _leave_out_of_traceback(self, record: logging.LogRecord, exc_info: Any) -> None:
        """The text takes the place of the error, which some handlers would format by themselves."""
        told = record.exc_text or _plain.formatException(exc_info)
        left = redacted(told)
        if left != told:
            record.exc_text, record.exc_info = left, None


def _without(payload: re.Match[str]) -> str:
    return f"{payload[1]}={HIDDEN!r}"


def _without_fields(name: str, value: Any) -> Any:
    for one in _in_force:
        value = one.of(value, (name,))
    return redacted(value) if isinstance(value, str) else value


_plain: Final = logging.Formatter()
_leave_out: Final = _LeaveOut()
