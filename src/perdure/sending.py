"""Signals to a run, from what the sender gave to the op, and from its outcome to what the sender is told.

A payload is checked and encoded here by the type the sender knows; what the run's workflow declares is the store's to
judge, in the commit. One send raises what was refused; of many, each has its own answer and none spoils another.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.channels import Signal
from perdure.engine import Engine
from perdure.errors import (
    InvalidPayload,
    PerdureError,
    RunNotFound,
    Uncheckable,
    UnknownSignal,
    refusal_error,
)
from perdure.inputs import checked_id, new_signal
from perdure.model import ops
from perdure.model.limits import BadValue, check_run_id
from perdure.model.outcomes import (
    Buffered,
    Delivered,
    Duplicate,
    Finished,
    NotFound,
    Queued,
    Refusal,
    SendOutcome,
    Sent,
)
from perdure.model.records import DeadLetterRecord, WaitSpec, WorkflowRecord
from perdure.named import Catalogue
from perdure.registry import Workflow
from perdure.views import Refused

SentOrNot = Sent | Finished | NotFound | Refused

# One of several, as callers give it.
a_send: Final = "(run_id, signal, payload)"

# --- one ---


async def send_op(
    engine: Engine,
    run_id: str,
    signal: Signal[Any] | str,
    payload: Any,
    key: str | None,
    path: str | None,
    buffer: bool,
    catalogue: Catalogue | None = None,
) -> ops.SendSignal:
    """The op of a send. For a mere name the type comes from the code here; the store has the last word.

    It is submitted by `named.submit`, or after `named.Catalogue` has checked what the store cannot.
    """
    declared = None
    if isinstance(signal, str):
        named = Catalogue(engine.store) if catalogue is None else catalogue
        declared = await _declared(engine, named, check_run_id(run_id), signal)
    return new_signal(
        *(engine.ids.ulid(), run_id, signal, payload, key, path, buffer, declared), by_name=True
    )


async def start_signal_op(
    engine: Engine,
    workflow: Workflow[Any, *tuple[Any, ...]] | WorkflowRecord,
    run_id: str,
    signal: Signal[Any] | str,
    payload: Any,
    key: str | None,
) -> ops.SendSignal:
    """The op of a signal to a run that may have to be started: a mere name is what that workflow declares."""
    declared = None
    if isinstance(signal, str) and isinstance(workflow, Workflow):
        declared = workflow.signals.get(signal)
    send = new_signal(
        *(engine.ids.ulid(), run_id, signal, payload, key, None, True, declared), by_name=True
    )
    if not send.by_name:
        return send
    return await Catalogue(engine.store).of_start(send, workflow.name, workflow.version)


async def _declared(
    engine: Engine, catalogue: Catalogue, run_id: str, name: str
) -> Signal[Any] | None:
    """The signal as the run's workflow declares it, if its code is here: it reads instances of the type."""
    run = await catalogue.run(run_id)
    workflow = None if run is None else engine.registry.find(run.workflow, run.version)
    return None if workflow is None else workflow.signals.get(name)


def accepted(outcome: SendOutcome, name: str, run_id: str) -> Sent:
    """The outcome of a send that was accepted; raises what says why another was not."""
    match outcome:
        case Delivered() | Buffered() | Duplicate():
            return outcome
        case NotFound() | Finished() | Refusal():
            raise refusal_error(outcome, name, run_id)


async def answer_op(engine: Engine, run_id: str, path: str, payload: Any) -> ops.Retry:
    """A retry that answers a wait anew: the signal that had ended it says what the payload must fit."""
    history = await engine.store.history(check_run_id(run_id))
    waits = [one for one in history if one.path == path and one.state == "done" and one.wait]
    won = None
    if waits:
        newest = max(waits, key=lambda one: one.generation)
        won = msgspec.json.decode(newest.wait or "", type=WaitSpec).on[newest.winner or 0]
    if won is None or won.kind != "signal":
        if await engine.store.run(run_id) is None:
            raise RunNotFound(run_id)
        raise BadValue("path", path, f"is no wait of run {run_id!r} that a signal has ended")
    catalogue = Catalogue(engine.store)
    send = await send_op(engine, run_id, won.target, payload, None, None, True, catalogue)
    answer = await catalogue.checked(send)
    return ops.Retry(run_id=run_id, path=path, answer=answer)


# --- many ---


async def send_many(
    engine: Engine, sends: Iterable[tuple[str, Signal[Any] | str, Any]]
) -> list[SentOrNot]:
    """Send them all, and answer in their order. What is wrong with one is its answer."""
    made: list[ops.SendSignal | Refused] = []
    if not isinstance(sends, Iterable):
        raise BadValue("sends", sends, f"are not several: give a list of {a_send}")
    catalogue = Catalogue(engine.store)
    for one in sends:
        try:
            run_id, signal, payload = send_parts(one)
            send = await send_op(engine, run_id, signal, payload, None, None, True, catalogue)
            made.append(await catalogue.checked(send))
        except (InvalidPayload, Uncheckable, UnknownSignal, BadValue) as error:
            made.append(Refused(error))
    posted = [one for one in made if isinstance(one, ops.SendSignal)]
    outcomes = iter(await engine.coordinator.submit_many(posted))
    return [one if isinstance(one, Refused) else _told(next(outcomes), one) for one in made]


def send_parts(send: Any) -> tuple[str, Signal[Any] | str, Any]:
    if not isinstance(send, tuple | list) or len(send) != 3:
        raise BadValue("send", send, f"is not {a_send}")
    run_id, signal, payload = send
    return run_id, signal, payload


def _told(outcome: SendOutcome | BaseException, op: ops.SendSignal) -> SentOrNot:
    match outcome:
        case Refusal():
            return Refused(refusal_error(outcome, op.name, op.run_id))
        case PerdureError():
            return Refused(outcome)
        case BaseException():
            raise outcome
        case _:
            return outcome


# --- again ---


async def send_again(engine: Engine, dead_letter_id: str, run_id: str | None) -> Sent | Queued:
    """Send a dead letter again; raises as a send does, and the letter stays."""
    op = ops.ResendDeadLetter(
        dead_letter_id=checked_id("dead letter", dead_letter_id),
        signal_id=engine.ids.ulid(),
        run_id=None if run_id is None else check_run_id(run_id),
    )
    outcome = await engine.coordinator.submit(op)
    if isinstance(outcome, Refusal):  # it is still there, and tells what was refused
        letter = await engine.store.signal(op.dead_letter_id)
        if isinstance(letter, DeadLetterRecord):
            to = run_id or letter.run_id
            if outcome.code == "unchecked":
                op = replace(op, schema=await _checked_against(engine, letter, to))
                outcome = await engine.coordinator.submit(op)
            if isinstance(outcome, Refusal):
                raise refusal_error(outcome, letter.name, to)
    if isinstance(outcome, Queued):
        return outcome
    return accepted(outcome, dead_letter_id, run_id or "")


async def _checked_against(engine: Engine, letter: DeadLetterRecord, run_id: str) -> str | None:
    """The schema that the payload of a letter was checked against, for a run that it was not sent to."""
    send = ops.SendSignal(
        signal_id="", run_id=run_id, name=letter.name, payload=letter.payload, by_name=True
    )
    checked = await Catalogue(engine.store).checked(send)
    if checked.errors:
        raise InvalidPayload(f"the payload of signal {letter.name!r}", list(checked.errors))
    return checked.schema
