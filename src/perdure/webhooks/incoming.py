"""Hooks: what others post becomes an event, or a signal to a run.

A `Hook` says who may post, and what a body means: which event, about which entity, or which signal to which run. It is
checked when it is made. `receive` takes one delivery, as bytes and headers from whatever server: it verifies, then
measures, then parses, then maps, then sends by the verbs of the app. Whatever fails on the way, nothing is stored. The
delivery's id is the key of the send, so a delivery that comes twice has one effect.
"""

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.channels import Signal, Topic, is_plain
from perdure.errors import BadSignature, ExpressionFailed, InvalidPayload
from perdure.inputs import checked_flag, checked_signal
from perdure.ledger.expressions import (
    Filter,
    Key,
    Mapper,
    compile_filter,
    compile_key,
    compile_mapper,
)
from perdure.ledger.rules import ENDS_THE_PROCESS, told
from perdure.links import Secrets
from perdure.model import limits
from perdure.model.limits import BadValue, check_key, check_name, unsaid
from perdure.model.outcomes import Sent, Told
from perdure.model.records import EventRecord
from perdure.model.topics import check_emitted
from perdure.observing.traces import parsed
from perdure.webhooks.signing import (
    SCHEMES,
    Scheme,
    Unsigned,
    Verified,
    checked_keys,
    header,
    reference,
    verify,
)

if TYPE_CHECKING:
    from perdure.app import App

Verifier = Callable[[bytes, Mapping[str, str]], Verified | Awaitable[Verified | None] | None]
# A function of the body, or of the body and the headers.
Function = Callable[..., Any]

_parse: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


class Hook:
    """Who may post under a name, and what that means here. Frozen; its secrets are never shown.

    `verify` is "standard" (Standard Webhooks), "github", "stripe", or a function of the raw body and the headers (in
    lower case) that raises for what it does not accept, and may give `Verified(id=…)`. The newest of several secrets
    comes first. `emit` is a topic, or a function that names one, with `entity`; `signal` goes to the run that `run`
    names. `payload` makes what is sent; without, it is the body. With `where`, other deliveries are left alone. Each of
    these is a function of the body (or of body and headers), or CEL, where the body is `payload`.
    """

    __slots__ = (
        "_entity",
        "_payload",
        "_run",
        "_secrets",
        "_where",
        "emit",
        "insecure",
        "name",
        "signal",
        "verify",
    )

    name: str
    verify: Scheme | Verifier | None
    emit: "Topic[Any] | str | _Function | None"
    signal: Signal[Any] | str | None
    insecure: bool
    _secrets: Secrets | None
    _entity: "_Part"
    _run: "_Part"
    _payload: "_Part"
    _where: "_Part"

    def __init__(
        self,
        name: str,
        *,
        secret: str | bytes | Sequence[str | bytes] | None = None,
        verify: Scheme | Verifier = "standard",
        emit: Topic[Any] | str | Function | None = None,
        entity: str | Function | None = None,
        signal: Signal[Any] | str | None = None,
        run: str | Function | None = None,
        payload: str | Function | None = None,
        where: str | Function | None = None,
        insecure: bool = False,
    ) -> None:
        keep = _keeper(self)
        keep("name", check_name("hook", name))
        keep("insecure", checked_flag("insecure", insecure))
        scheme, secrets = _checked_verify(verify, secret, insecure)
        keep("verify", scheme)
        keep("_secrets", secrets)
        _check_purpose(emit, entity, signal, run)
        keep("emit", _checked_emit(emit))
        keep("signal", None if signal is None else _checked_signal(signal))
        keep("_entity", _part("entity", entity, compile_key))
        keep("_run", _part("run", run, compile_key))
        keep("_payload", _part("payload", payload, compile_mapper))
        keep("_where", _part("where", where, compile_filter))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Hook is frozen: make another one to change its {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Hook is frozen: make another one without its {name}")

    def __repr__(self) -> str:
        return f"Hook({self.name!r})"


async def receive(
    app: "App", hook: Hook, raw: bytes, headers: Mapping[str, str]
) -> Told | Sent | None:
    """Take one delivery: what `app.emit` or `app.signal` answered, or None if `where` left it alone.

    A second delivery of the same id is Duplicate. Raises BadSignature for one that is not verified, InvalidPayload for
    a body that cannot be read or mapped, BadValue, and what these verbs raise; nothing is stored then.
    """
    if not isinstance(hook, Hook):
        raise BadValue(
            "hook", hook, 'is no Hook: Hook("payments", secret=…, emit="payment.received")'
        )
    if not isinstance(raw, bytes):
        raise BadValue("raw", unsaid, f"is a {type(raw).__name__}; give the body as bytes")
    _check_size(hook, raw)
    given = _lowered(headers)
    delivery_id = await _verified(hook, raw, given, app._clock.now())
    asked = _asked(hook, raw, given, delivery_id)
    if not asked.is_wanted():
        return None
    key = None if delivery_id is None else _key(hook.name, delivery_id)
    if hook.signal is not None:
        return await app.signal(asked.made("run", hook._run), hook.signal, asked.payload(), key=key)
    entity = None if hook._entity is None else asked.made("entity", hook._entity)
    trace = given.get("traceparent")
    return await app.emit(
        asked.topic(),
        asked.payload(),
        entity=entity,
        key=key,
        trace=trace if parsed(trace) else None,
    )


# --- the definition --------------------------------------------------------------------------------


class _Function(NamedTuple):
    """A function of the body, or of the body and the headers."""

    function: Function
    takes_headers: bool

    def __call__(self, body: Any, headers: Mapping[str, str]) -> Any:
        return self.function(body, headers) if self.takes_headers else self.function(body)


_Part = _Function | Filter | Mapper | Key | None


def _keeper(hook: Hook) -> Callable[[str, object], None]:
    def keep(name: str, value: object) -> None:
        object.__setattr__(hook, name, value)

    return keep


def _checked_verify(
    verify: Any, secret: Any, insecure: bool
) -> tuple[Scheme | Verifier | None, Secrets | None]:
    if callable(verify):
        if secret is not None:
            raise BadValue("secret", unsaid, "is for a scheme; a function of yours has its own")
        return verify, None
    if verify not in SCHEMES:
        known = ", ".join(map(repr, SCHEMES))
        raise BadValue("verify", verify, f"must be {known}, or a function of body and headers")
    if secret is None:
        if not insecure:
            raise BadValue(
                "secret", unsaid, "is missing, so anybody could post: give one, or insecure=True"
            )
        return None, None
    if verify == "standard":
        reference()
    return verify, checked_keys(secret, verify)


def _check_purpose(emit: Any, entity: Any, signal: Any, run: Any) -> None:
    if (emit is None) == (signal is None):
        raise BadValue("hook", unsaid, "needs emit= (an event) or signal= (to a run), one of them")
    if signal is not None and run is None:
        raise BadValue("signal", signal, "needs run=, which says which run it goes to")
    if signal is not None and entity is not None:
        raise BadValue("entity", entity, "is for emit=; a signal goes to a run")
    if emit is not None and run is not None:
        raise BadValue("run", run, "is for signal=; an event is addressed to nobody")


def _checked_emit(emit: Any) -> Topic[Any] | str | _Function | None:
    if emit is None:
        return None
    if isinstance(emit, Topic):
        check_emitted(emit.name)
        return emit
    if isinstance(emit, str):
        return check_emitted(emit)
    return _function("emit", emit, "is neither a topic nor a plain function of the body")


def _checked_signal(signal: Any) -> Signal[Any] | str:
    checked_signal(signal)
    return signal  # type: ignore[no-any-return]


def _part(name: str, given: Any, compile: Callable[[str], Any]) -> _Part:
    if given is None:
        return None
    if isinstance(given, str):
        return compile(given)  # type: ignore[no-any-return]
    return _function(name, given, "is neither CEL nor a plain function of the body")


def _function(name: str, given: Any, problem: str) -> _Function:
    if not is_plain(given):
        raise BadValue(name, given, problem)
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # of some built-in ones nothing is known
        return _Function(given, False)
    for count in (1, 2):
        try:
            signature.bind(*[None] * count)
            return _Function(given, count == 2)
        except TypeError:
            continue
    raise BadValue(name, given, "must take the body, or the body and the headers")


# --- who sends -------------------------------------------------------------------------------------


def _lowered(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise BadValue("headers", unsaid, "are not a mapping; give a dict of str to str")
    return {str(name).lower(): str(value) for name, value in headers.items()}


async def _verified(hook: Hook, raw: bytes, headers: Mapping[str, str], now_us: int) -> str | None:
    """The id of a delivery that is its sender's; raises BadSignature."""
    try:
        if callable(hook.verify):
            return await _verified_by(hook.verify, raw, headers)
        if hook.verify is None or hook._secrets is None:  # anybody may post
            return header(headers, "webhook-id") if "webhook-id" in headers else None
        return verify(hook.verify, hook._secrets, raw, headers, now_us).id
    except Unsigned as unsigned:
        raise BadSignature(hook.name, str(unsigned)) from None


async def _verified_by(verifier: Verifier, raw: bytes, headers: Mapping[str, str]) -> str | None:
    """By a function of the user's: whatever it raises is a no, and what is not clearly a yes is one too."""
    try:
        answer = verifier(raw, headers)
        if inspect.isawaitable(answer):
            answer = await answer
    except ENDS_THE_PROCESS:
        raise
    except Exception as error:
        # Its words may tell a stranger too much; whoever debugs finds them in the cause.
        raise _said_no(type(error).__name__) from error
    if answer is None:
        return None
    if not isinstance(answer, Verified):
        raise _said_no(f"it gave {limits.shown(answer)}, which is neither None nor Verified(…)")
    return answer.id


def _said_no(words: str) -> Unsigned:
    return Unsigned(f"its own check did not accept it ({words})")


def _key(hook: str, delivery_id: str) -> str:
    """Within the hook: ids of two senders may be the same."""
    try:
        return check_key(f"{hook}/{delivery_id}")
    except BadValue:
        # Too long, or with a control character. No slash, so no plain one looks like it.
        return f"{hook}:{hashlib.sha256(delivery_id.encode(errors='replace')).hexdigest()}"


# --- what it means ---------------------------------------------------------------------------------


def _check_size(hook: Hook, raw: bytes) -> None:
    if len(raw) > limits.payload_bytes_max:
        bound = f"{limits.payload_bytes_max} (payload_bytes_max)"
        raise _unfit(hook, f"it is {len(raw)} bytes; at most {bound}")


def _asked(hook: Hook, raw: bytes, headers: Mapping[str, str], delivery_id: str | None) -> "_Asked":
    try:
        limits.check_payload(raw)
        body, text = _parse.decode(raw), raw.decode()
    except BadValue as error:
        raise _unfit(hook, str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unfit(hook, f"it is no JSON: {error}") from None
    record = EventRecord(
        position=0,
        event_id="",
        type=hook.name,
        entity_type=None,
        entity_id=None,
        payload=text,
        occurred_at=0,
        recorded_at=0,
        key=delivery_id,
    )
    return _Asked(hook, body, headers, record)


def _unfit(hook: Hook, problem: str) -> InvalidPayload:
    return InvalidPayload(f"the body of a delivery to hook {hook.name!r}", [problem])


class _Asked(NamedTuple):
    """A body that was read, and its mapping. Expressions see it as the payload of an event."""

    hook: Hook
    body: Any
    headers: Mapping[str, str]
    record: EventRecord

    def is_wanted(self) -> bool:
        return self.hook._where is None or bool(self.made("where", self.hook._where))

    def payload(self) -> Any:
        return self.body if self.hook._payload is None else self.made("payload", self.hook._payload)

    def topic(self) -> Any:
        topic = self.hook.emit
        return self.made("emit", topic) if isinstance(topic, _Function) else topic

    def made(self, what: str, part: _Part) -> Any:
        """What a part makes of the body; what it cannot be made of does not fit."""
        try:
            match part:
                case _Function():
                    return part(self.body, self.headers)
                case Filter():
                    return part.test(self.record)
                case Mapper() | Key():
                    return part.make(self.record)
        except ENDS_THE_PROCESS:
            raise
        except ExpressionFailed as failed:
            raise _unfit(self.hook, f"{what}: {failed}") from None
        except Exception as error:
            raise _unfit(self.hook, f"{what}: {told(error)}") from error
        return None
