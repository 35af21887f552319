"""Errors over HTTP: the same class, words and facts at the other end."""

import inspect
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from perdure import errors
from perdure.http.problems import (
    CONTENT_TYPE,
    Problem,
    error_of,
    problem_of,
    read_problem,
    status_of,
)
from perdure.model.root import PerdureError


def subclasses(kind: type[PerdureError]) -> list[type[PerdureError]]:
    found = [one for one in kind.__subclasses__() if one.__module__.startswith("perdure.")]
    return [*found, *(deeper for one in found for deeper in subclasses(one))]


# Of the library itself: what its test tools raise never comes over HTTP.
KINDS = sorted(
    {one for one in subclasses(PerdureError) if not one.__module__.startswith("perdure.testing")},
    key=lambda one: one.__name__,
)


def sample(hint: Any) -> Any:
    """A value of a type, as far as constructors of errors ask for them."""
    if get_origin(hint) in (list, tuple, set, frozenset):
        return ["a", "b"]
    for one in get_args(hint) or (hint,):
        match one:
            case _ if one is datetime:
                return datetime(2030, 1, 31, 9, tzinfo=UTC)
            case _ if one is int:
                return 3
            case _ if one is float:
                return 1.5
            case _ if one is bool:
                return True
            case _ if get_origin(one) in (list, tuple, set, frozenset):
                return ["a", "b"]
    return "text"


def made(kind: type[PerdureError]) -> PerdureError:
    """One of a kind, through its own constructor."""
    parameters = inspect.signature(kind.__init__).parameters
    hints = get_type_hints(kind.__init__)
    args, named = [], {}
    for name, one in list(parameters.items())[1:]:
        if one.kind is one.VAR_POSITIONAL:
            args.append("what went wrong")
        elif one.kind is one.KEYWORD_ONLY:
            named[name] = sample(hints.get(name, str))
        elif one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty:
            args.append(sample(hints.get(name, str)))
    return kind(*args, **named)


_by_hand: dict[type[PerdureError], PerdureError] = {
    errors.RollbackFailed: errors.RollbackFailed([("ship#1", "no way back")], "sold out"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.__name__)
def test_an_error_arrives_as_it_was_raised(kind: type[PerdureError]) -> None:
    error = _by_hand.get(kind) or made(kind)
    told = problem_of(error)
    assert told.detail == str(error)
    assert 400 <= told.status < 600
    again = read_problem(msgspec.json.encode(told), told.status)
    assert type(again) is kind
    assert str(again) == str(error)
    assert set(vars(again)) == {one for one in vars(error) if not one.startswith("_")}


def test_what_the_client_did_wrong_is_a_4xx() -> None:
    assert status_of(errors.RunNotFound("x")) == 404
    assert status_of(errors.BadRequest("x", 413)) == 413
    assert status_of(errors.NotAuthenticated("x")) == 401


def test_a_proxy_between_us_is_told_as_it_is() -> None:
    error = read_problem(b"<html>Bad Gateway</html>", 502)
    assert "502" in str(error)
    assert "Bad Gateway" in str(error)


def test_a_newer_server_may_know_more_errors() -> None:
    error = error_of(
        Problem(
            type="urn:perdure:error:Newer", title="t", status=409, detail="newer", error="Newer"
        )
    )
    assert type(error) is PerdureError
    assert str(error) == "newer"


def test_a_server_makes_no_error_of_somebody_else() -> None:
    class Theirs(errors.RunNotFound):
        """An error of a user's own."""

    told = problem_of(errors.RunNotFound("x"))
    again = error_of(msgspec.structs.replace(told, error="Theirs"))
    assert type(again) is PerdureError
    assert Theirs.__name__ == "Theirs"


@pytest.mark.parametrize(
    "facts", [{"__class__": 1}, {"args": 5}, {"__traceback__": 3}, {"expires_at": "soon"}]
)
def test_odd_facts_do_no_harm(facts: dict[str, Any]) -> None:
    odd = msgspec.structs.replace(problem_of(errors.RunNotFound("x")), facts=facts)
    again = read_problem(msgspec.json.encode(odd), 404)
    assert type(again) is errors.RunNotFound
    assert str(again) == odd.detail


def test_problems_have_their_type() -> None:
    assert CONTENT_TYPE == "application/problem+json"
    assert problem_of(errors.RunNotFound("x")).type == "urn:perdure:error:RunNotFound"
