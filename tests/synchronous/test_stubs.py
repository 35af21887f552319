"""What type checkers are told of the faces is true: it is what their makers would be given anew."""

import ast
import inspect
from typing import Any

import pytest

from perdure import App, Client, RemoteRun, RunHandle, SyncApp, SyncClient, SyncRun
from perdure.synchronous.face import Opener, verbs_of

from .stubs import STUBS, Stub, text_of

FACES = [(SyncApp, App), (SyncRun, RunHandle), (SyncRun, RemoteRun), (SyncClient, Client)]
_own = {"open", "close"}


@pytest.mark.parametrize("stub", STUBS, ids=lambda one: one.path.name)
def test_the_types_are_those_of_the_verbs(stub: Stub) -> None:
    assert stub.path.read_text(encoding="utf-8") == text_of(stub), "run `make faces`"


def is_async(verb: Any) -> bool:
    return inspect.iscoroutinefunction(verb) or inspect.isasyncgenfunction(verb)


@pytest.mark.parametrize(("face", "kind"), FACES, ids=lambda one: one.__name__)
def test_every_async_verb_is_there_and_blocks(face: type, kind: type) -> None:
    verbs = [name for name, one in inspect.getmembers(kind) if is_async(one) and name[0] != "_"]
    assert len(verbs) > 15
    assert set(verbs) <= set(verbs_of(kind))
    for name in verbs_of(kind):
        mine = getattr(face, name)
        assert not is_async(inspect.unwrap(mine))
        assert inspect.signature(mine).parameters


def test_there_is_nothing_else() -> None:
    """A verb of one kind of handle that the other lacks would be there, and not work."""
    assert set(verbs_of(RunHandle)) == set(verbs_of(RemoteRun))
    for face, kind in FACES:
        public = {
            name for name, _ in inspect.getmembers(face, inspect.isfunction) if name[0] != "_"
        }
        assert public - _own == set(verbs_of(kind))


def test_the_types_and_the_objects_have_the_same_names() -> None:
    for stub in STUBS:
        for one in ast.parse(stub.path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ClassDef):
                face = getattr(stub.module, one.name)
                told = {each.name for each in one.body if isinstance(each, ast.FunctionDef)}
                told -= {"__init__"}
                has = {name for name in vars(face) if name[0] != "_"}
                assert told == has, one.name
                assert issubclass(face, Opener) == (one.bases[0].id == "Opener")  # type: ignore[attr-defined]


def test_a_change_of_a_verb_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synchronous.stubs.verbs_of", lambda kind: verbs_of(kind)[1:])
    stub = STUBS[0]
    assert stub.path.read_text(encoding="utf-8") != text_of(stub)
