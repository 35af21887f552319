"""Writes the types of the synchronous faces: `make faces`, or `PYTHONPATH=src:tests python -m synchronous.stubs`.

The blocking methods are made when the library is loaded, so a type checker cannot see them. Here the source of each
async verb is read, overloads and all, and written as a plain `def`: without `async`, with a face for each handle and a
generator for each async generator. Names come from where the verb's own module has them.
"""

import ast
import builtins
import functools
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import perdure.client.synchronous
import perdure.synchronous.faces
from perdure import App, Client, RunHandle
from perdure.synchronous.face import verbs_of

Definition = ast.FunctionDef | ast.AsyncFunctionDef
# Of each name what it means, and the line that brings it here.
Names = dict[str, tuple[str, str]]


class Stub(NamedTuple):
    """A file of types: whose it is, what stands at its top, and how its classes begin, with what their verbs are of."""

    module: ModuleType
    opening: str
    classes: list[tuple[str, type]]

    @property
    def path(self) -> Path:
        return Path(str(self.module.__file__)).with_suffix(".pyi")


_written_by = (
    "# Written by `make faces` from the async verbs (tests/synchronous/stubs.py). Do not edit."
)

_run = '''
class SyncRun(Face, Generic[R_co]):
    """One run, for code that may wait: as a RunHandle or a RemoteRun, without `await`."""

    @property
    def id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def created(self) -> bool:
        """Whether the call that gave this has made the run; else it had existed before."""
'''

_app = '''
class SyncApp(Opener):
    """The verbs of an App for code that may wait. `with app.sync as shop:` opens the app in the background.

    Where the app is open already, in the loop of a server, any other thread uses it as it is.
    """

    def __init__(self, real: App) -> None: ...
'''

_client = '''
class SyncClient(Opener):
    """The verbs of an App over HTTP, for code that may wait. Use it as `with SyncClient(url, token) as client:`.

    Any number of threads may use it at once.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration = "30s",
        transport: Any = None,
    ) -> None: ...
    @property
    def url(self) -> str: ...
'''

STUBS = [
    Stub(
        perdure.synchronous.faces,
        """
from typing import Generic, TypeVar, TypeVarTuple, overload
from perdure.app import App
from perdure.synchronous.face import Face, Opener
""",
        [(_run, RunHandle), (_app, App)],
    ),
    Stub(
        perdure.client.synchronous,
        """
from typing import Any, TypeVar, TypeVarTuple, overload
from perdure.model.duration import Duration
from perdure.synchronous.face import Opener
from perdure.synchronous.faces import SyncRun
""",
        [(_client, Client)],
    ),
]


def text_of(stub: Stub) -> str:
    """The whole file, as it is to be on disk."""
    names: Names = {}
    classes = []
    for opening, kind in stub.classes:
        verbs = [text for name in verbs_of(kind) for text in _verb(kind, name, names)]
        classes.append(opening + "".join(verbs))
    lines = sorted({line for _, line in names.values()}, key=lambda one: ("TypeVar" in one, one))
    return _formatted("\n".join([_written_by, stub.opening, *lines, *classes]), stub.path)


def _verb(kind: type, name: str, names: Names) -> Iterator[str]:
    path, group = _definitions(kind, name)
    for one in _blocking(group):
        yield _as_text(one, names, path)


# --- one verb ---


def _definitions(kind: type, name: str) -> tuple[str, list[Definition]]:
    """What the class says of a verb, overloads first; and the file that says it."""
    owner = next(one for one in kind.__mro__ if name in vars(one))
    path = str(inspect.getsourcefile(owner))
    body = next(
        one.body
        for one in _tree(path).body
        if isinstance(one, ast.ClassDef) and one.name == owner.__name__
    )
    return path, [one for one in body if isinstance(one, Definition) and one.name == name]


def _blocking(group: list[Definition]) -> Iterator[ast.FunctionDef]:
    """The same without `async`. Where there are overloads, they are the type; the words are those of the last."""
    words = ast.get_docstring(group[-1], clean=True)
    kept = group[:-1] or group
    for number, one in enumerate(kept):
        body: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
        if number == 0 and words:
            body = [ast.Expr(ast.Constant(_under_a_method(words)))]
        made = ast.FunctionDef(
            name=one.name,
            args=_short_defaults(one.args),
            body=body,
            decorator_list=one.decorator_list,
            returns=_waited(one.returns),
            lineno=0,
        )
        yield ast.fix_missing_locations(_Faces().visit(made))


def _under_a_method(words: str) -> str:
    first, *more = words.splitlines()
    return "\n".join(
        [first, *(f"    {one}" if one else "" for one in more), *(["    "] if more else [])]
    )


def _short_defaults(given: ast.arguments) -> ast.arguments:
    """A default that is a literal is shown; any other only says that there is one."""
    args = ast.parse(f"def f({ast.unparse(given)}): ...").body[0].args  # type: ignore[attr-defined]
    assert isinstance(args, ast.arguments)
    args.defaults = [_literal(one) for one in args.defaults]
    args.kw_defaults = [None if one is None else _literal(one) for one in args.kw_defaults]
    return args


def _literal(one: ast.expr) -> ast.expr:
    try:
        ast.literal_eval(one)
    except ValueError:
        return ast.Constant(...)
    return one


def _waited(hint: ast.expr | None) -> ast.expr | None:
    """What is left of an answer when somebody has waited for it."""
    if isinstance(hint, ast.Subscript) and isinstance(hint.value, ast.Name):
        if hint.value.id == "Awaitable":
            return hint.slice
        if hint.value.id == "AsyncGenerator":
            assert isinstance(hint.slice, ast.Tuple)
            return ast.Subscript(ast.Name("Generator"), hint.slice.elts[0])
    return hint


class _Faces(ast.NodeTransformer):
    """A handle is given behind its face; hints that are texts are read."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("SyncRun") if node.id in ("RunHandle", "RemoteRun") else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = self._read(node.annotation)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.args = self.visit(node.args)
        node.returns = self._read(node.returns)
        return node

    def _read(self, hint: ast.expr | None) -> ast.expr | None:
        if isinstance(hint, ast.Constant) and isinstance(hint.value, str):
            hint = ast.parse(hint.value, mode="eval").body
        return None if hint is None else self.visit(hint)


def _as_text(made: ast.FunctionDef, names: Names, path: str) -> str:
    for hint in ast.walk(made):
        if isinstance(hint, ast.Name):
            _note(hint.id, names, path)
    return textwrap.indent(ast.unparse(made), "    ") + "\n"


# --- names ---


def _note(name: str, names: Names, path: str) -> None:
    """Where a name comes from. Two meanings of one name in a file of types are an error."""
    if hasattr(builtins, name) or name in ("SyncRun", "overload"):
        return
    found = _generator if name == "Generator" else _source(name, path)
    if names.setdefault(name, found)[0] != found[0]:
        raise ValueError(f"{name} is {names[name]} and {found}: give one of them another name")


_generator = ("Generator", "from collections.abc import Generator")


def _source(name: str, path: str) -> tuple[str, str]:
    for one in ast.walk(_tree(path)):
        if isinstance(one, ast.Import | ast.ImportFrom):
            for each in one.names:
                if (each.asname or each.name) == name:
                    one = type(one)(**{**vars(one), "names": [each]})
                    return ast.unparse(one), ast.unparse(one)
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name:
            value = ast.unparse(one.value)
            if value.startswith(("TypeVar(", "TypeVarTuple(")):
                return value, f"{name} = {value}"
            return value, f"from {_module(path)} import {name}"
    raise LookupError(f"{name} is defined nowhere in {path}")


def _module(path: str) -> str:
    return next(name for name, one in sys.modules.items() if getattr(one, "__file__", None) == path)


@functools.cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


# --- the file ---


def _formatted(text: str, path: Path) -> str:
    for command in (
        ("check", "--select", "I,F401", "--fix-only", "--quiet"),
        ("format", "--quiet"),
    ):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    for stub in STUBS:
        stub.path.write_text(text_of(stub), encoding="utf-8")
        print(stub.path)
