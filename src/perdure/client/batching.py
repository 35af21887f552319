"""Several sends over HTTP: each is written by itself, they go in parts that a server takes, and each has its answer.

What is wrong with one is its answer, and what becomes of a part is the answer of all that were in it: what others were
told is never lost. As nothing may overtake what was sent before it, no more is sent once an answer was lost.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from perdure.client.transport import Transport
from perdure.client.wording import lost, or_refused
from perdure.errors import NotAuthenticated, OutcomeUnknown, ScopeMissing, Unreachable
from perdure.http import wire
from perdure.http.routes import BY_VERB
from perdure.model import limits
from perdure.model.limits import BadValue, unsaid
from perdure.model.root import PerdureError
from perdure.views import Refused

# What a body has around its sends.
_around_bytes = 100
# Nobody is there, or they let us do nothing: it would be the same for all that follow.
_for_all = (Unreachable, NotAuthenticated, ScopeMissing)


def written(
    kind: type[wire.Sent], what: str, fields_of: Callable[[Any], dict[str, Any]], given: Any
) -> bytes | Refused:
    """One of several, as it is sent. What would make a body that no server takes is refused here."""
    try:
        fields = fields_of(given)
        text = msgspec.json.encode(fields)
        # The payload is written by its own rules.
        rest = {name: one for name, one in fields.items() if name != "payload"}
        msgspec.json.decode(msgspec.json.encode(rest), type=kind)
    except PerdureError as error:
        return Refused(error)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return Refused(BadValue(what, unsaid, f"cannot be sent: {error}"))
    if len(text) > limits.http_body_bytes_max - _around_bytes:
        most = f"at most {limits.http_body_bytes_max} (http_body_bytes_max)"
        return Refused(BadValue(what, unsaid, f"is {len(text)} bytes with all it names; {most}"))
    return text


async def send_each(
    client: Transport, verb: str, field: str, bodies: Sequence[bytes | Refused]
) -> list[Any]:
    """Send them all, and answer in their order. Raises only if nothing at all was answered."""
    outcomes: list[Any] = list(bodies)
    first: PerdureError | None = None
    behind: PerdureError | None = None
    answered = False
    for part in _parts(bodies):
        error = behind
        if error is None:
            try:
                answers = await _answers(client, verb, field, [outcomes[ix] for ix in part])
                answered = True
            except PerdureError as failed:
                error, first, behind = failed, first or failed, _behind(client, failed)
        for at, ix in enumerate(part):
            outcomes[ix] = answers[at] if error is None else Refused(error)
    if first is not None and not answered:
        raise first
    return outcomes


async def _answers(client: Transport, verb: str, field: str, texts: list[bytes]) -> list[Any]:
    try:
        told = await client._list(verb, **{field: [msgspec.Raw(one) for one in texts]})
    except TimeoutError as error:
        raise lost(BY_VERB[verb], str(error)) from error
    if len(told) != len(texts):
        raise lost(BY_VERB[verb], f"{len(told)} answers to {len(texts)} of them")
    return [or_refused(one) for one in told]


def _behind(client: Transport, error: PerdureError) -> PerdureError | None:
    """What those are told that come after a part that has failed; None if they are sent."""
    if isinstance(error, _for_all):
        return error
    if isinstance(error, OutcomeUnknown):
        return Unreachable(client.url, "the answer to those before was lost")
    return None


def _parts(bodies: Sequence[bytes | Refused]) -> Iterator[list[int]]:
    """Which of them go together: as many as a server takes at once, by their number, their bytes and their values."""
    part: list[int] = []
    size, values = _around_bytes, 0
    for ix, one in enumerate(bodies):
        if isinstance(one, Refused):
            continue
        more_values = _values_at_most(one)
        if part and (
            len(part) == limits.http_sends_max
            or size + len(one) + 1 > limits.http_body_bytes_max
            or values + more_values > limits.http_values_max - _around_bytes
        ):
            yield part
            part, size, values = [], _around_bytes, 0
        part.append(ix)
        size += len(one) + 1
        values += more_values
    if part:
        yield part


def _values_at_most(text: bytes) -> int:
    """Each comma and each container brings one; those in texts are counted too, which makes a part smaller at worst."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
