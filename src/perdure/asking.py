"""Questions to a run: a signal that is answered.

The verb of `App` that sends a signal and waits for what workflow code says to it with `ctx.reply`. An answer is stored
under the id of its signal: so it survives what the run survives, reaches any process, nobody reads what others were
answered, and one that came while nobody listened is found again by the key of the question.
"""

# ruff: noqa: ASYNC109 (timeout is the API's word)

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from perdure.channels import Plain, Signal
from perdure.engine import Engine
from perdure.errors import NotRunning, RunFinished, RunNotFound, SignalLost
from perdure.following import hears, look_every_s
from perdure.inputs import decoded_item
from perdure.model.codec import Codec, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.keys import reply_scope
from perdure.model.outcomes import Duplicate
from perdure.model.records import RunRecord, StepRecord
from perdure.model.status import TERMINAL
from perdure.model.streams import REPLIES
from perdure.named import submit
from perdure.sending import accepted, send_op
from perdure.views import signal_status

T = TypeVar("T")
R = TypeVar("R")

# What becomes of a signal that nobody can answer any more.
_lost = frozenset({"replaced", "expired", "discarded", "rejected", "dead_letter"})


class Asking:
    """What an App can ask of runs."""

    _engine: Callable[[], Engine]

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
        """Send a signal and give what workflow code answers with `ctx.reply`, whenever it comes to handle it.

        Raises what `app.signal` raises; RunFinished if the run ends without an answer, SignalLost if the signal is
        replaced or expires before it is handled, and TimeoutError: then the answer may still come. The same `key`, with
        the same payload, asks for the same answer again and sends nothing twice.
        """
        question = _Question(self._engine(), codec_for(type, where="the reply"))
        ask = functools.partial(question.ask, run_id, signal, payload, key, path)
        if timeout is None:
            return await ask()
        bound = asyncio.timeout(parse_duration(timeout, "timeout") / 1_000_000)
        try:
            async with bound:
                return await ask()
        except TimeoutError:
            if not bound.expired():  # the store's, not ours
                raise
            raise TimeoutError(question.too_late(timeout, key)) from None


class _Question:
    """One question on its way."""

    def __init__(self, engine: Engine, codec: Codec) -> None:
        self._engine = engine
        self._store = engine.store
        self._codec = codec
        self._run_id = ""
        self._name = ""
        self._signal_id = ""
        # The generation of the run that has received it, as far as is known; most runs have no other than the first.
        self._received_in = 0

    async def ask(
        self, run_id: str, signal: Any, payload: Any, key: str | None, path: str | None
    ) -> Any:
        engine = self._engine
        op = await send_op(engine, run_id, signal, payload, key, path, True)
        self._run_id, self._name = op.run_id, op.name
        outcome = await submit(engine.coordinator, engine.store, op)
        sent = accepted(outcome, op.name, op.run_id)
        again = isinstance(sent, Duplicate)
        self._signal_id = sent.of.signal_id if isinstance(sent, Duplicate) else sent.signal_id
        return await self._answer(again)

    async def _answer(self, again: bool) -> Any:
        """Look, and again whenever something is heard, or nothing for a while."""
        hub, every_s = self._engine.coordinator.hub, look_every_s(self._store)
        has_ended, is_idle = False, again
        if again:  # it may have been answered long ago
            self._received_in = -1
        with hub.listening(self._signal_id, self._run_id) as heard:
            while True:
                if hub.closed:
                    raise NotRunning(f"the app was closed while run {self._run_id!r} was asked")
                heard.clear()
                reply = await self._reply()
                if reply is not None:
                    return self._value(reply)
                run = await self._store.run(self._run_id)
                if run is None:
                    raise RunNotFound(self._run_id)
                if has_ended:
                    raise RunFinished(self._run_id, run.status)
                has_ended = run.status in TERMINAL
                if has_ended:
                    continue  # what it has answered is there by now: look once more
                if is_idle:
                    await self._check(run)
                is_idle = not await hears(heard, every_s)

    async def _reply(self) -> str | None:
        now = self._engine.clock.now()
        found = await self._store.used_key(reply_scope(self._run_id), self._signal_id, now)
        return None if found is None else msgspec.json.decode(found.answer, type=str)

    def _value(self, reply: str) -> Any:
        return decoded_item(self._codec, f"the reply to signal {self._name!r}", reply)

    # --- whether anybody can still answer ---

    async def _check(self, run: RunRecord) -> None:
        """Raises SignalLost if not. What the end of the run does to a signal is found by that."""
        found = await self._store.signal(self._signal_id)
        status = None if found is None else signal_status(found)
        state = None if status is None else status.state
        if state == "buffered":
            return
        if state not in _lost:
            if self._received_in == run.generation:
                return
            # Once for each generation, and not at all for most questions: it reads a whole history.
            state = await self._became(run)
        now = await self._store.run(self._run_id)
        if now is None or now.status in TERMINAL or now.generation != run.generation:
            return
        if state is not None and await self._reply() is None:
            raise self._no_more(state)

    async def _became(self, run: RunRecord) -> str | None:
        """What became of a signal that is not buffered: code answers what its own generation has received."""
        received = False
        for step in await self._store.history(self._run_id):
            if step.generation == run.generation:
                if _answers(step, self._signal_id):
                    return "forgotten"  # if the answer is not there
                received = received or step.taken_id == self._signal_id
        if not received:
            return "left"
        self._received_in = run.generation
        return None

    def _no_more(self, state: str) -> SignalLost:
        return SignalLost(self._signal_id, self._name, self._run_id, state)

    def too_late(self, timeout: Duration, key: str | None) -> str:
        if not self._signal_id:
            return (
                f"nothing was heard of the store within {timeout}: the signal may or may not have been sent; with a "
                "key it is safe to ask again"
            )
        again = (
            "give a key= to be able to ask for it again"
            if key is None
            else f"ask for it again with the same key, {key!r}"
        )
        return (
            f"run {self._run_id!r} has not answered signal {self._name!r} within {timeout}; the signal was sent, and "
            f"the reply may still come: {again}"
        )


def _answers(step: StepRecord, signal_id: str) -> bool:
    is_reply = (step.kind, step.name) == ("publish", REPLIES)
    return is_reply and step.value == msgspec.json.encode(signal_id).decode()
