"""Whatever the library raises behind the API, the client raises: same class, same words, same facts, same bases.

But for what a store has said: that stays with the server.
"""

import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

import httpx2
import pytest

from perdure import App, Client, Refused, errors
from perdure.http import create_app
from perdure.model.root import PerdureError

WORDS = "what went wrong, ünd <why>"


def kinds_of(kind: type[PerdureError]) -> set[type[PerdureError]]:
    own = {one for one in kind.__subclasses__() if one.__module__.startswith("perdure.")}
    return own.union(*map(kinds_of, own))


# What test tools raise never comes over HTTP.
KINDS = sorted(
    (one for one in kinds_of(PerdureError) if not one.__module__.startswith("perdure.testing")),
    key=lambda one: one.__name__,
)


def sample(hint: Any) -> Any:
    """A value of a type; of a union, of its first."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is list:
        return [sample(parts[0]), sample(parts[0])]
    if origin is tuple:
        return tuple(sample(one) for one in parts if one is not ...) * (1 + (... in parts))
    if parts:
        return sample(parts[0])
    known = {datetime: datetime(2030, 1, 31, 9, 30, tzinfo=UTC), int: 3, float: 1.5, bool: True}
    return known.get(hint, WORDS)


def made(kind: type[PerdureError]) -> PerdureError:
    """One of a kind, with everything that its constructor takes."""
    hints = get_type_hints(kind.__init__)
    args, named = [], {}
    for name, one in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if one.kind is one.VAR_POSITIONAL:
            args.append(WORDS)
        elif one.kind is one.KEYWORD_ONLY:
            named[name] = sample(hints[name])
        elif one.kind is one.POSITIONAL_OR_KEYWORD:
            args.append(sample(hints[name]))
    if kind is errors.BadRequest:
        args[1] = 413
    if kind is errors.ServerFailed:
        args[2] = 502
    return kind(*args, **named)


class Raising(App):
    """An app one verb of which raises what it is told to, and another tells it among outcomes."""

    error: PerdureError

    async def counts(self) -> dict[str, int]:
        raise self.error

    async def signal_many(self, sends: Any) -> list[Any]:
        return [Refused(self.error)]


class Both:
    def __init__(self, app: Raising, client: Client) -> None:
        self.app, self.client = app, client


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    app = Raising("memory://", worker=False)
    transport = httpx2.ASGITransport(create_app(app), client=("127.0.0.1", 1))
    async with app, Client("http://localhost", transport=transport) as client:
        yield Both(app, client)


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.__name__)
async def test_an_error_arrives_as_it_was_raised(both: Both, kind: type[PerdureError]) -> None:
    error = both.app.error = made(kind)
    with pytest.raises(kind) as raised:
        await both.client.counts()
    (told,) = await both.client.signal_many([("run", "signal", None)])
    assert isinstance(told, Refused)
    for one in (raised.value, told.error):
        assert type(one) is kind
        if kind is errors.StoreRefused:  # what it says has its address in it
            assert WORDS not in repr(one.args) + repr(facts_of(one))
            assert [each[:2] for each in facts_of(one)] == [each[:2] for each in facts_of(error)]
            continue
        assert one.args == error.args and str(one) == str(error)
        assert facts_of(one) == facts_of(error)


def facts_of(error: PerdureError) -> list[tuple[str, type, Any]]:
    """A list is no tuple here, and a text no time."""
    return sorted((name, type(one), one) for name, one in vars(error).items() if name[0] != "_")


def test_there_is_something_of_everything() -> None:
    assert len(KINDS) >= 55
    shapes = {type(one) for kind in KINDS for one in vars(made(kind)).values()}
    assert {str, int, bool, list, tuple, datetime} <= shapes
    assert made(errors.RollbackFailed).failed == [(WORDS, WORDS)] * 2  # type: ignore[attr-defined]
    assert made(errors.AmbiguousSignal).paths == (WORDS, WORDS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_an_answer_of_something_between_is_no_fault_of_the_request(status: int) -> None:
    def lost(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, text="Internal Server Error")

    async with Client("http://localhost", transport=httpx2.MockTransport(lost)) as client:
        with pytest.raises(
            errors.ServerFailed, match=f"{status} without a reason: Inter"
        ) as raised:
            await client.runs()
    assert (raised.value.status, raised.value.error_id) == (status, "")


async def test_what_something_between_refuses_is_a_request_that_is_none() -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(413, text="too large")

    async with Client("http://localhost", transport=httpx2.MockTransport(refused)) as client:
        with pytest.raises(errors.BadRequest, match="413 without a reason: too large"):
            await client.emit("a.b")
