"""From a line of the shell to a small function, and from whatever it did to an exit code.

A command is an async function of a `Scene` and of its own arguments; `command` gives it the options that all have
(where, --json, --debug), opens the place, and tells what went wrong in the words of the library. No traceback, unless
one asks.
"""

import asyncio
import inspect
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from perdure.cli import exits
from perdure.cli.places import Place, opened, resolved
from perdure.cli.processes import hush_logging, loop_factory
from perdure.cli.showing import Out, ReaderGone, json_line, plain
from perdure.cli.wording import for_shell
from perdure.errors import PerdureError
from perdure.model.limits import BadValue, unsaid

Function = Callable[..., Awaitable[int | None]]


class Root(msgspec.Struct, kw_only=True):
    """What was said before the name of the command."""

    place: Place
    json: bool
    debug: bool


class Scene:
    """What a command works with. `verbs` are those of an App, or of a Client, which are the same."""

    def __init__(self, said: Place, out: Out, *, debug: bool, yes: bool = False) -> None:
        self.said = said
        self.place = resolved(said)
        self.out = out
        self.debug = debug
        self.yes = yes
        self.verbs: Any = None
        self.facts: dict[str, Any] = {}  # what is known by now, for whoever is told an error later

    @property
    def is_remote(self) -> bool:
        return self.place.is_remote

    def here(self, verb: str) -> Any:
        """A verb that a server may not have; raises BadValue if so."""
        found = getattr(self.verbs, verb, None)
        if found is None:
            raise BadValue(
                f"`{verb}`", unsaid, "is not there over HTTP: give the URL of the store itself"
            )
        return found

    def confirm(self, what: str) -> None:
        """Ask before something that cannot be undone. Where nobody can be asked, --yes must have been said."""
        if self.yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise typer.BadParameter(
                f"this would {plain(what)}; where nobody can be asked, say so with --yes"
            )
        if not _agreed(f"{plain(what[:1].upper() + what[1:])}? [y/N] "):
            self.out.note("nothing was done")
            raise typer.Exit(exits.REFUSED)


def _agreed(question: str) -> bool:
    """Ctrl-C is to end the question: the handler of asyncio would only cancel a task that does not go on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signal.signal(signal.SIGINT, before)


# --- options that all have ---

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store (sqlite:///file.db, postgresql://…, redis://…) or a server (http://…). PERDURE_URL",
    ),
]
AppName = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", help="The app whose store it is. PERDURE_APP"),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Within the store. PERDURE_NAMESPACE"),
]
TokenText = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="For a server; better in PERDURE_TOKEN"),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on the standard output")]
Debug = Annotated[bool, typer.Option("--debug", help="Tracebacks of errors")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]

_options: Final[dict[str, tuple[Any, Any]]] = {
    "url": (Url, None),
    "app": (AppName, None),
    "namespace": (Namespace, None),
    "token": (TokenText, None),
    "json": (AsJson, False),
    "debug": (Debug, False),
    "yes": (Yes, False),
}
_of_places: Final = ("url", "app", "namespace", "token")
_of_all: Final = ("json", "debug")


def root(
    url: str | None,
    app: str | None,
    namespace: str | None,
    token: str | None,
    json: bool,
    debug: bool,
) -> Root:
    return Root(place=Place(url, app, namespace, token), json=json, debug=debug)


def parameters(*names: str) -> list[inspect.Parameter]:
    """Options of this name, as typer reads them from a signature."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, annotation=_options[name][0], default=_options[name][1])
        for name in names
    ]


def command(
    group: typer.Typer,
    name: str,
    *,
    opens: bool = True,
    places: bool = True,
    destroys: bool = False,
    stays: bool = False,
) -> Callable[[Function], Function]:
    """Make a function a command.

    `opens`: it is handed open verbs; `places`: it has the options that say where; `destroys`: it has --yes, and asks
    before it acts; `stays`: it runs for long, on the quicker event loop if that is installed.
    """

    def define(function: Function) -> Function:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        own = [_described(one.replace(kind=inspect.Parameter.KEYWORD_ONLY)) for one in own]
        names = (*(_of_places if places else ()), *_of_all, *(("yes",) if destroys else ()))

        def called(*, ctx: typer.Context, **given: Any) -> None:
            scene = _scene(ctx, {one: given.pop(one) for one in names})
            code = _ended(function, scene, given, opens=opens, stays=stays)
            if code:
                raise typer.Exit(code)

        first = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        every = [first, *own, *parameters(*names)]
        called.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in every}
        called.__doc__ = function.__doc__
        group.command(name, cls=_Command)(called)
        return function

    return define


def _scene(ctx: typer.Context, said: dict[str, Any]) -> Scene:
    before: Root = ctx.obj
    place = Place(*(said.get(one) for one in _of_places))
    return Scene(
        place.over(before.place),  # what stands behind a command wins over what stands before it
        Out(json=said["json"] or before.json),
        debug=said["debug"] or before.debug,
        yes=said.get("yes", False),
    )


class _Command(TyperCommand):
    """A command whose help says of an argument what it is, and not which Python type."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for one in self.params:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = lambda ctx: None


_metavars: Final = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """With a word for what it takes, where none was said: the name of a Python type is none."""
    kind, about = get_args(parameter.annotation)[:2]
    if about.metavar is None:
        inner = next((one for one in _metavars if one is kind or one in _parts(kind)), None)
        if isinstance(about, OptionInfo) and inner is not None:
            about.metavar = _metavars[inner]
    return parameter


def _parts(kind: Any) -> Iterator[Any]:
    for one in get_args(kind):
        yield one
        yield from _parts(one)


# --- one command, from its beginning to its end ---


def _ended(
    function: Function,
    scene: Scene,
    given: dict[str, Any],
    *,
    opens: bool,
    stays: bool,
) -> int:
    async def main() -> int:
        async with AsyncExitStack() as stack:
            if opens:
                scene.verbs = await stack.enter_async_context(opened(scene.place))
            return await function(scene, **given) or exits.OK

    if not stays:
        hush_logging()
    try:
        with asyncio.Runner(loop_factory=loop_factory() if stays else None) as runner:
            return runner.run(main())
    except KeyboardInterrupt as error:
        if scene.facts and scene.out.json:
            tell_error(scene.out, error, scene.facts)
        return exits.INTERRUPTED
    except ReaderGone:
        return exits.OK
    except (PerdureError, TimeoutError, OSError, ModuleNotFoundError) as error:
        if scene.debug:
            scene.out.note(traceback.format_exc().rstrip())
        tell_error(scene.out, error, scene.facts)
        return exits.code_of(error, opened=scene.verbs is not None and not scene.is_remote)


def tell_error(out: Out, error: BaseException, facts: Mapping[str, Any]) -> None:
    """Why nothing came of it, to the standard error: in words, or as a problem, with `facts` beside its own."""
    if not out.json:
        out.note(f"perdure: {for_shell(error, _words(error))}")
        return
    problem = _problem(error)
    out.note(json_line(msgspec.structs.replace(problem, facts={**facts, **problem.facts})))


def _problem(error: BaseException) -> Any:
    """As the HTTP API tells it; what is none of the library's own in the same form."""
    from perdure.http.problems import Problem, problem_of

    if isinstance(error, PerdureError):
        return problem_of(error)
    name = type(error).__name__
    title, status = _titles.get(name, ("It could not be done", 500))
    return Problem(
        type=f"urn:perdure:error:{name}",
        title=title,
        status=status,
        detail=_words(error),
        error=name,
    )


# The status is the one that the HTTP API has for the same.
_titles: Final = {
    "TimeoutError": ("It has not come in time, and still may", 504),
    "KeyboardInterrupt": ("Whoever asked has left, and what was asked goes on", 499),
}


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


# --- groups ---


class Listing(TyperGroup):
    """A group that lists, if nothing else is said: `perdure pools` is `perdure pools list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def group(
    program: typer.Typer, name: str, says: str, cls: type[TyperGroup] = Listing
) -> typer.Typer:
    """A group of commands."""
    made = typer.Typer(name=name, help=says, cls=cls, rich_markup_mode=None, no_args_is_help=False)
    program.add_typer(made)
    return made
