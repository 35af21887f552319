"""Questions to a run: a signal that is answered.

The verb of `App` that sends a signal and waits for what workflow code says to it with `ctx.reply`. Answers are items of
a stream of the run that only the engine writes to: so they survive what the run survives, reach any process, and one
that came while nobody listened is found again by the key of the question.
"""

# ruff: noqa: ASYNC109 (timeout is the API's word)

import asyncio
import functools
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeVar, overload

import msgspec

from perdure.channels import Plain, Signal
from perdure.engine import Engine
from perdure.errors import RunFinished, RunNotFound, SignalLost, Undecodable
from perdure.following import last_position, pages
from perdure.model.codec import BadPayload, Codec, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.outcomes import Duplicate
from perdure.model.status import TERMINAL
from perdure.model.streams import REPLIES, Reply
from perdure.sending import accepted, send_op
from perdure.views import signal_status

T = TypeVar("T")
R = TypeVar("R")

_decode = msgspec.json.Decoder(Reply).decode
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
        self._codec = codec
        self._run_id = ""
        self._name = ""
        self._signal_id = ""

    async def ask(
        self, run_id: str, signal: Any, payload: Any, key: str | None, path: str | None
    ) -> Any:
        engine = self._engine
        op = await send_op(engine, run_id, signal, payload, key, path, True)
        self._run_id, self._name = op.run_id, op.name
        # Before it is sent: the answer may be there before we look.
        after = await last_position(engine.store, op.run_id, REPLIES)
        sent = accepted(await engine.coordinator.submit(op), op.name, op.run_id)
        if isinstance(sent, Duplicate):  # it may have been answered long ago
            sent, after = sent.of, 0
        self._signal_id = sent.signal_id
        return await self._answer(after)

    async def _answer(self, after: int) -> Any:
        engine, run_id = self._engine, self._run_id
        reading = pages(
            engine.store, engine.coordinator.hub, run_id, REPLIES, after, on_idle=self._check
        )
        async with aclosing(reading) as found:
            async for page in found:
                for row in page:
                    reply = _decode(row.item)
                    if reply.signal_id == self._signal_id:
                        return self._value(reply)
        run = await engine.store.run(run_id)
        if run is None:
            raise RunNotFound(run_id)
        raise RunFinished(run_id, run.status)

    def _value(self, reply: Reply) -> Any:
        try:
            return self._codec.decode(bytes(reply.value))
        except BadPayload as error:
            raise Undecodable(f"the reply to signal {self._name!r}", str(error)) from error

    async def _check(self) -> None:
        """Whether anybody can still answer it. What the end of the run does to it is found by that."""
        store = self._engine.store
        found = await store.signal(self._signal_id)
        status = None if found is None else signal_status(found)
        if status is None or status.state not in _lost:
            return
        run = await store.run(self._run_id)
        if run is not None and run.status not in TERMINAL:
            raise SignalLost(self._signal_id, self._name, self._run_id, status.state)

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
