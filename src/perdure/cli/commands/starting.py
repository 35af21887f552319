"""`perdure init`: a project to begin with. `perdure start`: a run, by the name of its workflow."""

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command
from perdure.cli.commands.runs import tell_result
from perdure.errors import Conflict

# What it is called in the project, and what in the package, where tools would take it for code of ours.
_files = {
    "app.py": "app.py.txt",
    "README.md": "README.md.txt",
    "tests/test_app.py": "test_app.py.txt",
    ".gitignore": "gitignore.txt",
}


def add(program: typer.Typer) -> None:
    command(program, "init", opens=False, places=False)(init)
    command(program, "start")(start)


async def init(
    scene: Scene,
    directory: Annotated[Path, typer.Argument(help="Where; it is made if it is not there")] = Path(
        "."
    ),
) -> None:
    """Make a small project: a workflow that waits for an approval, its tests, a README."""
    taken = [name for name in _files if (directory / name).exists()]
    if taken:
        raise Conflict(f"{directory} has {', '.join(taken)} already; nothing was written")
    starter = resources.files("perdure.cli") / "starter"
    for name, source in _files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((starter / source).read_text(encoding="utf-8"), encoding="utf-8")
    written = [str(directory / name) for name in _files]
    step_in = "" if directory == Path(".") else f"cd {directory} && "
    scene.out.tell(
        {"written": written},
        "\n".join([*(f"wrote {one}" for one in written), "", f"now: {step_in}perdure dev app:app"]),
    )


async def start(
    scene: Scene,
    workflow: Annotated[str, typer.Argument(help="The name of a workflow that the store knows")],
    input: Annotated[
        list[values.Json] | None,
        typer.Option(
            "--input",
            "-i",
            parser=values.json_value,
            metavar="JSON",
            help="An argument of the workflow; say it once for each. JSON, @file.json, or -",
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The run's id; the same gives the same run")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key gives the same run")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            parser=values.tag,
            metavar="NAME=VALUE",
            help="To find it by; several times",
        ),
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="TYPE/ID", help="What it is about")
    ] = None,
    start_at: Annotated[
        Any,
        typer.Option(
            "--start-at", parser=values.moment, metavar="WHEN", help="A time, or a span such as 2h"
        ),
    ] = None,
    deadline: Annotated[
        Any,
        typer.Option(
            "--deadline",
            parser=values.moment,
            metavar="WHEN",
            help="Cancelled then, if it has not ended",
        ),
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", help="That it stands in line of; else its workflow's")
    ] = None,
    pool_key: Annotated[
        str, typer.Option("--pool-key", help="Whose share of the pool it takes")
    ] = "",
    priority: Annotated[
        int, typer.Option("--priority", help="In the line of its pool; higher goes first")
    ] = 0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end and give the result")
    ] = False,
    timeout: Annotated[  # noqa: ASYNC109 (the API's word)
        str | None,
        typer.Option(
            "--timeout",
            parser=values.span,
            metavar="SPAN",
            help="With --wait: not longer than this",
        ),
    ] = None,
) -> int:
    """Start a run, or find it: the same id or key gives the run that exists."""
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout says nothing without --wait")
    run = await scene.verbs.start(
        workflow,
        *(one.value for one in input or ()),
        id=id,
        key=key,
        tags=values.tags(tag),
        entity=entity,
        start_at=start_at,
        deadline=deadline,
        pool=pool,
        pool_key=pool_key,
        priority=priority,
    )
    known = "" if run.created else " (it was there already)"
    if wait:
        if (
            not scene.out.json
        ):  # the result is what was asked for; errors as JSON have the id among their facts
            scene.out.note(f"{run.id}{known}: waiting for its end")
        return await tell_result(scene, run, timeout)
    scene.out.tell({"id": run.id, "created": run.created}, f"{run.id}{known}")
    return exits.OK
