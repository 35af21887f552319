"""`perdure runs watch`: runs as they change, or one run until it has ended. `runs stream`: what a run publishes.

To watch is to look now and then, and to show what is other than before: a live table on a terminal, a line for each
change elsewhere.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Annotated, Any

import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command
from perdure.cli.commands.runs import RUNS, STEPS, WAITS, RunId, Status, Workflow
from perdure.cli.showing import cell, console, json_line, rich_table, when
from perdure.model import limits
from perdure.model.status import TERMINAL


def add(runs: typer.Typer) -> None:
    command(runs, "watch")(watch)
    command(runs, "stream")(stream)


async def watch(
    scene: Scene,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help="One run, until it has ended")
    ] = None,
    workflow: Workflow = None,
    status: Status = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many runs")] = 20,
    every_s: values.Every = "500ms",
) -> int:
    """Watch the newest runs; or one run, step by step, until it has ended (exit 1 if it did not complete)."""
    if run_id is None:
        await _watch_all(scene, every_s, limit, workflow=workflow, status=status or None)
        return exits.OK
    ended = await _watch_one(scene, run_id, every_s)
    return exits.OK if ended == "completed" else exits.REFUSED


class _Screen:
    """A live table on a terminal; nothing elsewhere."""

    def __init__(self, scene: Scene) -> None:
        self._live: Any = None
        if scene.out.is_terminal:
            from rich.live import Live

            self._live = Live(console=console(), auto_refresh=False, vertical_overflow="visible")

    def __enter__(self) -> "_Screen":
        (self._live or nullcontext()).__enter__()
        return self

    def __exit__(self, *about: Any) -> None:
        (self._live or nullcontext()).__exit__(*about)

    @property
    def is_live(self) -> bool:
        return self._live is not None

    @property
    def rows(self) -> int:
        """How many lines of a table there is room for, beside what stands around it."""
        height: int = console().height
        return max(5, height - 15)

    def show(self, *parts: Any) -> None:
        from rich.console import Group

        self._live.update(Group(*parts), refresh=True)


async def _looks(scene: Scene, every_s: float, look: Any) -> AsyncIterator[Any]:
    """What a look gives, whenever that is something else."""
    seen: Any = None
    while True:
        now = await look()
        if now != seen:
            seen = now
            yield now
        await scene.out.pause(every_s)


# --- all ---


async def _watch_all(scene: Scene, every_s: float, limit: int, **wanted: Any) -> None:
    told: dict[str, Any] = {}

    async def look() -> list[Any]:
        found: list[Any] = (await scene.verbs.runs(limit=limit, **wanted)).items
        return found

    with _Screen(scene) as screen:
        async for runs in _looks(scene, every_s, look):
            if screen.is_live:
                screen.show(_table(RUNS, runs))
                continue
            for one in reversed(runs):
                if told.get(one.id) != one:
                    told[one.id] = one
                    _tell_run(scene, one)


def _tell_run(scene: Scene, run: Any) -> None:
    if scene.out.json:
        scene.out.line({"run": run})
    else:
        scene.out.say(f"{cell(run.created_at)}  {run.id}  {run.workflow}  {run.status}")


# --- one ---


async def _watch_one(scene: Scene, run_id: str, every_s: float) -> str:
    run = scene.verbs.run(run_id)
    told: set[Any] = set()
    history = _History(run)

    async def look() -> tuple[Any, Any, Any]:
        # The run before its steps: of one that has ended all steps are there.
        return await run.info(), await history.look(), await run.waiting()

    with _Screen(scene) as screen:
        status = ""
        async for info, steps, waits in _looks(scene, every_s, look):
            if screen.is_live:
                screen.show(*_one(info, steps[-screen.rows :], waits))
            else:
                for step in steps:
                    _tell_step(scene, step, told)
                if info.status != status:
                    _tell_run(scene, info)
            status = info.status
            if status in TERMINAL:
                break
    return status


class _History:
    """The history of a run that is looked at again and again: of its pages only the last may change."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._decided: list[Any] = []
        self._after: str | None = None

    async def look(self) -> list[Any]:
        found, after = list(self._decided), self._after
        while True:
            page = await self._run.history(limit=limits.page_rows_max, after=after)
            found += page.items
            after = page.cursor
            if after is None:
                return found
            self._decided, self._after = list(found), after


def _one(info: Any, steps: Any, waits: Any) -> list[Any]:
    from rich.text import Text

    head = f"{info.id}  {info.workflow}  {info.status}  began {when(info.created_at)}"
    parts = [Text(cell(head), style="bold"), _table(STEPS[:6], steps)]
    return [*parts, Text("waits for"), _table(WAITS[1:6], waits)] if waits else parts


def _tell_step(scene: Scene, step: Any, told: set[Any]) -> None:
    at = (step.generation, step.path, step.status, step.attempt)
    if at in told:
        return
    told.add(at)
    if scene.out.json:
        scene.out.line({"step": step})
    else:
        shown = cell(STEPS[4].get(step))
        scene.out.say(f"{step.path}  {step.kind}  {step.status}  attempt {step.attempt}  {shown}")


def _table(columns: Any, rows: Any) -> Any:
    return rich_table(columns, rows, console().width)


# --- what it publishes ---


async def stream(
    scene: Scene,
    run_id: RunId,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="As `runs show` lists them")],
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="POSITION", help="Only what came after this")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until the run has ended")
    ] = False,
) -> None:
    """What a run has published to a stream, a line for each item: a text as it is, anything else as JSON."""
    items = scene.verbs.run(run_id).stream(name, after=after, follow=follow)
    async with aclosing(items) as found:
        async for one in found:
            if scene.out.json:
                scene.out.line(one)
            else:
                scene.out.say(one.value if isinstance(one.value, str) else json_line(one.value))
