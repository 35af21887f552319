"""`perdure worker`, `serve`, `dev`: processes that stay until they are told to go.

SIGTERM and Ctrl-C end them in order, with exit code 0: step bodies end (what can be cancelled has the grace for that),
runs are handed back, streams are closed. A second one ends them at once. `dev` starts a process of its own that does
the work, and starts it anew whenever a file changes.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, tell_error
from perdure.cli.exits import NoApp
from perdure.cli.places import Place, local_app, resolved
from perdure.cli.processes import Stop, is_held, set_up_logging
from perdure.store.urls import without_password

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP", help="Such as shop:app for `app` in shop.py; else PERDURE_APP"
    ),
]
Level = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error")
]
LogJson = Annotated[
    bool, typer.Option("--log-json", help="A line of JSON for each line of the log")
]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="SPAN",
        help="How long steps in flight may take to end when it is to stop; else App(grace=)",
        parser=values.span,
    ),
]
Host = Annotated[str, typer.Option("--host", help="Beyond this machine only with PERDURE_TOKENS")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes one that is free")]


def add(program: typer.Typer) -> None:
    command(program, "dev", opens=False, stays=True)(dev)
    command(program, "worker", opens=False, stays=True)(worker)
    command(program, "serve", opens=False, stays=True)(serve)


async def worker(
    scene: Scene,
    target: Target = None,
    grace: Grace = None,
    log_level: Level = "info",
    log_json: LogJson = False,
) -> None:
    """Execute runs until SIGTERM or Ctrl-C; steps in flight end, runs are handed back."""
    set_up_logging(log_level, as_json=log_json)
    app = local_app(_with_app(scene, target), worker=True, grace=grace)
    made = await _store_of(app)
    with Stop.on_signals() as stop:
        async with app:
            names = sorted({one.name for one in app.registry.all()})
            facts = {"worker": repr(app), "workflows": names, **made}
            _banner(scene, facts, as_json=log_json)
            await stop.wait()


async def serve(
    scene: Scene,
    target: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="Without one: the store of --url, and no worker"),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8321,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the API")] = False,
    grace: Grace = None,
    log_level: Level = "info",
    log_json: LogJson = False,
) -> int:
    """The HTTP API, and with an app a worker beside it, until SIGTERM or Ctrl-C."""
    set_up_logging(log_level, as_json=log_json)
    place = _place(scene, target)
    try:
        app = local_app(place, worker=place.app is not None and not no_worker, grace=grace)
    except NoApp as missing:
        if not is_held():
            raise
        # Of code that is being written: the next change may bring it.
        tell_error(scene.out, missing, scene.facts)
        return exits.REFUSED
    await _serve(scene, app, host, port, log_json)
    return exits.OK


async def _serve(scene: Scene, app: Any, host: str, port: int, log_json: bool) -> None:
    from perdure.http import needing_extra

    with needing_extra():
        from perdure.http import serving

    made = await _store_of(app)

    def listening(url: str) -> None:
        has_worker = app._settings.worker
        names = sorted({one.name for one in app.registry.all()})
        _banner(
            scene,
            {
                "url": url,
                "api": f"{url}/api/v1/openapi.json",
                "worker": has_worker,
                "workflows": names,
                **made,
            },
            as_json=log_json,
        )

    with Stop.on_signals() as stop:
        await serving.serve(app, host=host, port=port, stop=stop.event, listening=listening)


def _place(scene: Scene, target: str | None) -> Place:
    """An app that is named here is one that was said: its own store, unless a URL was said as well."""
    return resolved(scene.said._replace(app=target or scene.said.app))


def _with_app(scene: Scene, target: str | None) -> Place:
    place = _place(scene, target)
    if place.app is None:
        raise typer.BadParameter("name the app, such as shop:app for `app` in shop.py")
    return place


async def _store_of(app: Any) -> dict[str, Any]:
    """Where its runs are kept; and whether nothing was there before: then its URL may be a typing error."""
    url = without_password(app.url)
    if app.url.startswith("memory:") or (await app.schema_version()).stored is not None:
        return {"store": url}
    return {"store": url, "made": "the store is new: there was none"}


def _banner(scene: Scene, facts: dict[str, Any], *, as_json: bool) -> None:
    """`as_json`: who reads the log as JSON reads no lines that are none."""
    if scene.out.json or as_json:
        scene.out.line({**facts, "pid": os.getpid()})
        return
    scene.out.facts({**facts, "pid": os.getpid()})
    scene.out.say("Ctrl-C stops it")


# --- while one writes code ---


async def dev(
    scene: Scene,
    target: Target = None,
    host: Host = "127.0.0.1",
    port: Port = 8321,
    watch: Annotated[
        list[Path] | None,
        typer.Option(
            "--watch", exists=True, metavar="PATH", help="Where Python files are watched; else here"
        ),
    ] = None,
    no_reload: Annotated[
        bool, typer.Option("--no-reload", help="Do not start anew on changes")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(
            "--grace",
            metavar="SPAN",
            help="How long steps in flight may take to end before it starts anew",
            parser=values.span,
        ),
    ] = "2s",
    log_level: Level = "info",
    log_json: LogJson = False,
) -> int:
    """Worker and HTTP API in one process, started anew whenever a Python file changes."""
    place = _with_app(scene, target)
    if not no_reload and not _can_watch():
        scene.out.note(
            "perdure: files are not watched: that needs `pip install watchfiles` (or perdure[standard])"
        )
        no_reload = True
    if no_reload:
        set_up_logging(log_level, as_json=log_json)
        await _serve(scene, local_app(place, worker=True, grace=grace), host, port, log_json)
        return exits.OK
    from perdure.cli.reloading import Reloader

    options = [*_options(scene), "--host", host, "--port", str(port), "--log-level", log_level]
    options += ["--grace", grace]
    named = target or scene.said.app
    line = [sys.executable, "-m", "perdure.cli", "serve", *([named] if named else []), *options]
    with Stop.on_signals() as stop:
        reloader = Reloader([*line, "--log-json"] if log_json else line, scene.out.note, grace)
        return await reloader.run(watch or [Path(".")], stop)


def _options(scene: Scene) -> list[str]:
    """Only what was said: the child has our environment, and others see its command line."""
    said = {"--url": scene.said.url, "--namespace": scene.said.namespace}
    options = [part for name, value in said.items() if value is not None for part in (name, value)]
    return [
        *options,
        *(["--json"] if scene.out.json else []),
        *(["--debug"] if scene.debug else []),
    ]


def _can_watch() -> bool:
    from importlib.util import find_spec

    return find_spec("watchfiles") is not None
