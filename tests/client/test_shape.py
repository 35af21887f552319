"""The client has every verb of App and RunHandle, with the same arguments, defaults, overloads and answers."""

import inspect
import re
from collections.abc import Callable
from typing import Any, get_overloads

import pytest

from perdure import App, Client, RemoteRun, RunHandle

# What only a process has that has the store: the docs say so.
LOCAL_VERBS = {"backup"}
LOCAL_ARGUMENTS = {"connection", "progress"}
# All other differences, as text: of the app, and of the client.
DIFFERENT = {
    # Who decides is by default who the token names.
    "decide": ("by: str,", "by: str | None = None,"),
    # A handler is code, and code stays where it is.
    "replay": (
        "into: str | collections.abc.Callable[['Batch'], collections.abc.Awaitable[None]],",
        "into: str,",
    ),
    # An app declares by it too, before it is open.
    "schedule": ("-> collections.abc.Awaitable[None]", "-> None"),
}
# Over HTTP they have to be awaited.
PLAIN_VERBS = {"approval_link", "schedule", "stream"}


def verbs_of(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: one
        for name, one in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and (inspect.iscoroutinefunction(one) or name in PLAIN_VERBS)
    }


def signatures_of(verb: Callable[..., Any]) -> list[str]:
    """How it may be called, as text, one line for each overload; without what only an app takes."""
    lines = []
    for one in get_overloads(verb) or [verb]:
        found = inspect.signature(one)
        given = found.parameters.values()
        if any(each.name in LOCAL_ARGUMENTS and each.default is each.empty for each in given):
            continue  # it is about nothing else
        kept = [each for each in given if each.name not in LOCAL_ARGUMENTS]
        told = ", ".join(map(written, kept))
        lines.append(plain(f"{told}, -> {shown(found.return_annotation)}"))
    return lines


def written(parameter: inspect.Parameter) -> str:
    star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**", "KEYWORD_ONLY": "/"}
    hint = "" if parameter.name == "self" else f": {shown(parameter.annotation)}"
    default = parameter.default
    text = "" if default is parameter.empty else f" = {default!r}"
    return f"{star.get(parameter.kind.name, '')}{parameter.name}{hint}{text}"


def shown(hint: Any) -> str:
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def plain(text: str) -> str:
    """Without where a name is defined, and with one word for a default that means: not said."""
    text = re.sub(r"<object object at \w+>|UNSET", "UNSAID", text)
    return re.sub(r"\bperdure(\.\w+)*\.", "", text).replace("RunHandle", "RemoteRun")


CASES = [
    (kind, ours, name)
    for kind, ours in ((App, Client), (RunHandle, RemoteRun))
    for name in verbs_of(kind)
    if name not in LOCAL_VERBS
]


@pytest.mark.parametrize(
    ("kind", "ours", "name"), CASES, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_verb_is_called_as_that_of_the_library(kind: type, ours: type, name: str) -> None:
    theirs, mine = getattr(kind, name), getattr(ours, name, None)
    assert mine is not None, f"{ours.__name__} has no {name}"
    before, after = DIFFERENT.get(name, ("", ""))
    wanted = signatures_of(theirs)
    assert all(before in one for one in wanted), "this difference is none"
    assert signatures_of(mine) == [one.replace(before, after) if before else one for one in wanted]


def test_the_comparison_sees_a_difference() -> None:
    class Wrong:
        async def purge(self, queue: str, *, older_than: float | None = None) -> int:
            raise NotImplementedError

    assert signatures_of(Wrong.purge) != signatures_of(App.purge)
    assert len(CASES) > 75
    assert len(signatures_of(App.start)) == 2 and len(get_overloads(App.start)) == 4


@pytest.mark.parametrize("name", ["id", "run_id", "created"])
def test_a_handle_says_the_same_of_itself(name: str) -> None:
    assert hasattr(RunHandle, name) and hasattr(RemoteRun, name)
