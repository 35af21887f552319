"""How a play is performed: its parts, one after the other, as steps and waits of an ordinary run.

The state travels as text. A callback gets a fresh copy of it for each attempt, and what it leaves behind is the value
of its step: so a replay takes the state from the record and calls nothing again, and no attempt sees what another one
left half done. What a function says of the state (a condition, a choice, a duration, an input) is a step too, asked
once. What happens to a signal is told to the ledger in the commit that records what was done with it.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.channels import Signal, TimedOut, timer
from perdure.errors import Permanent, StateConflict, StepFailed
from perdure.inputs import encoded_input
from perdure.model.codec import BadPayload, Codec, codec_for
from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue, check_payload
from perdure.model.policy import Retry
from perdure.model.records import RECEIVE, TIMEOUT
from perdure.play.checking import COMPENSATE, CONDITION, DURATION, INPUT, is_coroutine, takes
from perdure.play.parts import Act, Call, Chorus, Cue, Part, Scene, Sleep, walk, way_parts
from perdure.play.states import merged
from perdure.registry import Step
from perdure.runtime.calls import Facts
from perdure.runtime.context import Context
from perdure.runtime.failures import arising
from perdure.runtime.sagas import FAILURES, roll_back
from perdure.runtime.steps import step_info

if TYPE_CHECKING:
    from perdure.play.play import Play

# A compensation whose act says nothing of its own: that it succeeds matters more than how soon the run has failed.
_patient = Retry(attempts=5, backoff="1s", factor=2, max_backoff="1m")


class Undo(NamedTuple):
    """An act that was done and can be undone. `order` says when, among all of the run."""

    order: int
    name: str
    path: str


class Performance:
    """One run of a play, or one branch of it: where its state stands, and what the saga around it would undo."""

    __slots__ = ("_ctx", "_order", "_play", "_undo", "text")

    def __init__(
        self,
        play: "Play[Any]",
        ctx: Context,
        text: str,
        undo: list[Undo] | None = None,
        order: Iterator[int] | None = None,
    ) -> None:
        self._play = play
        self._ctx = ctx
        self.text = text
        self._undo: list[Undo] = [] if undo is None else undo
        self._order = itertools.count() if order is None else order

    # --- parts ---

    async def perform(self, parts: Sequence[Any], *, saga: bool) -> None:
        """All parts in their order. A saga undoes what they did if one fails; what it keeps is its saga's around it."""
        if not saga:
            for part in parts:
                await self.part(part)
            return
        outer, self._undo = self._undo, []
        try:
            for part in parts:
                await self.part(part)
        except FAILURES as error:
            left = await self._roll_back(error)
            if left is not error:
                raise left from error
            raise
        else:
            outer.extend(self._undo)
        finally:
            self._undo = outer

    async def part(self, part: Any) -> None:
        """One part, unless its condition says no."""
        if part.condition is not None and not await self._enters(part):
            return
        match part:
            case Act():
                await self._act(part)
            case Signal():
                await self._signal(part)
            case Scene():
                with self._ctx.scope(part.name):
                    await self.perform(part.parts, saga=part.saga)
            case Chorus():
                await self._chorus(part)
            case Cue():
                way = await self._ctx._act(self._step(part.name), self.text, kind="cue")
                await self.perform(way_parts(part.ways[way]), saga=False)
            case Sleep():
                await self._sleep(part)
            case Call():
                await self._call(part)

    async def _enters(self, part: Any) -> bool:
        tells = functools.partial(_skipped, part.name) if isinstance(part, Signal) else None
        step = self._step(part.name + CONDITION)
        entered: bool = await self._ctx._act(step, self.text, kind="cue", tells=tells)
        return entered

    async def _act(self, part: Act[Any]) -> None:
        call = self._ctx._act(self._step(part.name), self.text)
        self.text = await call
        if part.compensate is not None:
            self._undo.append(Undo(next(self._order), part.name, call.path))

    async def _signal(self, part: Signal[Any]) -> None:
        if part.timeout_us is None:
            call = self._ctx.wait(part, name=part.name)
        elif part.on_timeout is None:
            call = self._ctx.wait(
                part, timeout=timedelta(microseconds=part.timeout_us), name=part.name
            )
        else:
            late = timer(timedelta(microseconds=part.timeout_us))
            call = self._ctx.wait(part | late, name=part.name)
            call.handles_timeout = True  # type: ignore[attr-defined]
        call.announced = True  # type: ignore[attr-defined]
        value = await call
        if isinstance(value, TimedOut) and part.on_timeout is not None:
            await self._handle(part.name + TIMEOUT, call.path, _timed_out(part.name, call.path))
            return
        payload = part.codec.encode(value)
        tells = _received(part.name, call.path, payload)
        await self._handle(part.name + RECEIVE, call.path, tells, payload)

    async def _handle(self, name: str, path: str, tells: Any, *payload: str) -> None:
        """What the play does with what it waited for. If that fails, the play has failed at the place of the wait."""
        try:
            self.text = await self._ctx._act(self._step(name), self.text, *payload, tells=tells)
        except StepFailed as failed:
            raise arising(failed, path) from None

    async def _chorus(self, part: Chorus[Any]) -> None:
        branches = [
            Performance(self._play, self._ctx, self.text, self._undo, self._order)
            for _ in part.parts
        ]
        makers = [
            functools.partial(one.part, each)
            for one, each in zip(branches, part.parts, strict=True)
        ]
        try:
            await self._ctx._gather(part.name, makers, len(makers))
        except FAILURES:
            # For what is undone now: as far as each branch had come, if that can be told.
            self._join(branches)
            raise
        problem = self._join(branches)
        if isinstance(problem, BadValue):
            raise arising(problem, self._place(part))
        if problem is not None:
            field, which = problem
            conflict = StateConflict(part.name, field, [part.parts[one].name for one in which])
            raise arising(conflict, self._place(part))

    def _join(self, branches: "list[Performance]") -> tuple[str, list[int]] | BadValue | None:
        """Put the states of branches together; gives what is wrong with the whole, if anything is."""
        text, contested = merged(self.text, [one.text for one in branches])
        try:
            check_payload(text.encode())
        except BadValue as too_large:  # then nothing could be made of it, not even what undoes it
            return too_large
        self.text = text
        return contested

    async def _sleep(self, part: Sleep[Any]) -> None:
        duration = part.duration
        if callable(duration):
            step = self._step(part.name + DURATION)
            duration = timedelta(microseconds=await self._ctx._act(step, self.text, kind="cue"))
        await self._ctx._sleep(timer(duration), part.name)

    async def _call(self, part: Call[Any]) -> None:
        if part.input is None:
            given = _input_of(part, ())
        else:
            given = await self._ctx._act(self._step(part.name + INPUT), self.text, kind="cue")
        result = await self._ctx._call_as(part.name, part.workflow, given)
        if part.on_result is not None:
            payload = part.workflow.codec.encode(result)
            self.text = await self._ctx._act(self._step(part.name + RECEIVE), self.text, payload)

    # --- undoing ---

    async def _roll_back(self, error: BaseException) -> BaseException:
        done = sorted(self._undo)
        if not done:
            return error
        undo = [functools.partial(self._compensate, one.name) for one in reversed(done)]
        return await roll_back(undo, error, done[0].path, self._take)

    def _compensate(self, name: str) -> Any:
        return self._ctx._act(self._step(name + COMPENSATE), self.text)

    def _take(self, text: str) -> None:
        self.text = text

    # --- the rest ---

    def _step(self, name: str) -> Step[..., Any]:
        return self._play.steps[name]

    def _place(self, part: Any) -> str:
        return self._play.places[part.name].path


# --- what the ledger is told ---


def _fact(type: str, **facts: Any) -> Facts:
    return ((type, msgspec.json.encode(facts).decode()),)


def _skipped(name: str, path: str, value: str | None, error: str | None) -> Facts:
    if value != "false":
        return ()
    return _fact("signal.skipped", name=name, path=path.removesuffix(CONDITION))


def _received(name: str, path: str, payload: str) -> Callable[[str, str | None, str | None], Facts]:
    def tells(_: str, value: str | None, error: str | None) -> Facts:
        if value is None:
            return ()
        facts = {"payload": _raw(payload), "state_after": _raw(value)}
        return _fact("signal.received", name=name, path=path, **facts)

    return tells


def _timed_out(name: str, path: str) -> Callable[[str, str | None, str | None], Facts]:
    def tells(_: str, value: str | None, error: str | None) -> Facts:
        came: dict[str, Any] = (
            {"error": _raw(error or "null")} if value is None else {"state_after": _raw(value)}
        )
        return _fact("signal.timeout", name=name, path=path, **came)

    return tells


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


# --- steps ---


class _StateText(Codec):
    """The state as text on both sides: what a step of a play leaves, and what the play goes on with."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        return value, value

    def schema(self) -> dict[str, Any]:
        return self._codec.schema()

    def _parse(self, raw: bytes) -> Any:
        # A record that no longer fits the type is found where it is read; one that fits is as the type has it now, so
        # that fields which came or went with new code are not taken for changes.
        return self._codec.encode(self._codec.decode(raw))


class _Way(Codec):
    """The way of a cue. One that was gone in the record and is no way of the code by now does not decode."""

    def __init__(self, part: Cue[Any]) -> None:
        self._part = part

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        return _text.roundtrip(value)

    def schema(self) -> dict[str, Any]:
        return _text.schema()

    def _parse(self, raw: bytes) -> Any:
        way = _text.decode(raw)
        if way not in self._part.ways:
            raise BadPayload([_no_way(self._part, way)])
        return way


_text = codec_for(str)


def _no_way(part: Cue[Any], answer: Any) -> str:
    ways = ", ".join(map(repr, part.ways))
    return f"cue {part.name!r} was answered {answer!r}, and its ways are {ways}"


def steps_of(name: str, parts: Sequence[Any], codec: Codec) -> dict[str, Step[..., Any]]:
    """The steps of a play, by name: made once, when it is defined."""
    made: dict[str, Step[..., Any]] = {}

    def add(name: str, body: Callable[..., Any], **options: Any) -> None:
        made[name] = Step(body, name=name, **options)

    def add_act(name: str, function: Any, payload: Codec | None = None, **options: Any) -> None:
        add(name, _body(function, codec, payload), **options)
        made[name].codec = _StateText(codec)

    for part in walk(parts):
        if part.condition is not None:
            add(part.name + CONDITION, _condition(part.condition, codec))
        match part:
            case Act():
                add_act(part.name, part.function, retry=part.retry, timeout=part.timeout)
                if part.compensate is not None:
                    add_act(part.name + COMPENSATE, part.compensate, retry=part.retry or _patient)
            case Signal():
                function = part.on_receive or _nothing
                add_act(part.name + RECEIVE, function, part.codec, retry=part.retry)
                if part.on_timeout is not None:
                    add_act(part.name + TIMEOUT, part.on_timeout, retry=part.retry)
            case Call():
                if part.input is not None:
                    add(part.name + INPUT, _given(part, codec))
                if part.on_result is not None:
                    payload = part.workflow.codec
                    add_act(part.name + RECEIVE, part.on_result, payload, retry=part.retry)
            case Sleep() if callable(part.duration):
                add(part.name + DURATION, _duration(part, codec))
            case Cue():
                add(part.name, _choice(part, codec))
                made[part.name].codec = _Way(part)
            case Part():
                continue
    return made


def _body(function: Any, codec: Codec, payload: Codec | None) -> Callable[..., Any]:
    """A callback as the body of a step: from the state as text to the state as text."""

    def arguments(text: str, more: tuple[str, ...]) -> list[Any]:
        given = [] if payload is None else [payload.decode(more[0])]
        return [step_info(), codec.decode(text), *given]

    if is_coroutine(function) or function is _nothing:

        async def body(text: str, *more: str) -> Any:
            args = arguments(text, more)
            result = function(*args)
            return _after(codec, args[1], await result if inspect.isawaitable(result) else result)

        return body

    def body_in_thread(text: str, *more: str) -> Any:
        args = arguments(text, more)
        return _after(codec, args[1], function(*args))

    return body_in_thread


def _nothing(ctx: Any, state: Any, payload: Any) -> None:
    """A signal without a handler: it was received, and that is all."""


def _after(codec: Codec, state: Any, result: Any) -> str:
    """The state after a callback: the one that it changed, or the one that it gave back."""
    if result is None:
        return codec.encode(state)
    if type(result) is not type(state):
        kinds = f"{type(result).__name__}, which is neither None nor a {type(state).__name__}"
        raise Permanent(
            f"a callback of a play gave back a {kinds}: change the state, or return one"
        )
    return codec.encode(result)


def _condition(function: Any, codec: Codec) -> Callable[[str], Any]:
    async def asked(text: str) -> bool:
        return bool(_ask(function, codec, text))

    return asked


def _choice(part: Cue[Any], codec: Codec) -> Callable[[str], Any]:
    async def chosen(text: str) -> str:
        answer = _ask(part.choose, codec, text)
        if isinstance(answer, str) and answer in part.ways:
            return answer
        if "else" in part.ways:
            return "else"
        raise Permanent(_no_way(part, answer))

    return chosen


def _duration(part: Sleep[Any], codec: Codec) -> Callable[[str], Any]:
    async def asked(text: str) -> int:
        return parse_duration(_ask(part.duration, codec, text), "duration")

    return asked


def _given(part: Call[Any], codec: Codec) -> Callable[[str], Any]:
    async def asked(text: str) -> str:
        given = _ask(part.input, codec, text)
        return _input_of(part, given if isinstance(given, tuple) else (given,))

    return asked


def _input_of(part: Call[Any], args: tuple[Any, ...]) -> str:
    """As it is stored, so that a replay needs neither the function nor the types of the child."""
    return encoded_input(part.workflow, args)[0]


def _ask(function: Any, codec: Codec, text: str) -> Any:
    state = codec.decode(text)
    answer = function(state) if takes(function, 1) else function(step_info(), state)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise Permanent(
            "a condition, choice, duration or input gave back an awaitable: it must be a plain function"
        )
    return answer
