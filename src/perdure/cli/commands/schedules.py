"""`perdure schedules`: calendars that start workflows."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show_pages
from perdure.cli.showing import Column, short

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a schedule")]

_columns = (
    Column("schedule", lambda one: one.name, whole=True),
    Column("workflow", lambda one: one.workflow),
    Column("every", lambda one: one.every),
    Column("zone", lambda one: one.zone),
    Column("input", lambda one: short(one.input)),
    Column("paused", lambda one: one.paused),
    Column("next", lambda one: one.next_ticks[0] if one.next_ticks else None),
    Column("last run", lambda one: one.last_run_id, whole=True),
)


def add(program: typer.Typer) -> None:
    schedules = group(program, "schedules", "Schedules: calendars that start workflows")
    command(schedules, "list")(list_schedules)
    command(schedules, "set")(set_schedule)
    command(schedules, "drop", destroys=True)(drop)
    command(schedules, "pause")(pause)
    command(schedules, "resume")(resume)
    command(schedules, "trigger")(trigger)
    command(schedules, "backfill", destroys=True)(backfill)


async def list_schedules(
    scene: Scene, limit: Limit = None, after: After = None, all: All = False
) -> None:
    """All schedules, by name, with their next ticks."""
    await show_pages(scene, _columns, scene.verbs.schedules, limit, after, all, _form)


def _form(schedule: Any) -> dict[str, Any]:
    """As the HTTP API tells it: an interval in seconds."""
    fields: dict[str, Any] = msgspec.structs.asdict(schedule)
    every = fields["every"]
    return {**fields, "every": every.total_seconds() if isinstance(every, timedelta) else every}


async def set_schedule(
    scene: Scene,
    name: Name,
    every: Annotated[
        str, typer.Argument(metavar="EVERY", help="Cron, such as '0 9 * * 1-5', or a span: 15m")
    ],
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="That it starts")],
    input: Annotated[
        list[values.Json] | None,
        typer.Option(
            "--input",
            "-i",
            parser=values.json_value,
            metavar="JSON",
            help="An argument; once for each",
        ),
    ] = None,
    zone: Annotated[
        str, typer.Option("--zone", help="Of its times, such as Europe/Berlin")
    ] = "UTC",
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="none|one|all", help="Of ticks that were missed")
    ] = "one",
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", metavar="skip|queue|allow", help="While the run before has not ended"
        ),
    ] = "skip",
) -> None:
    """Make or change a schedule."""
    args = (one.value for one in input or ())
    await scene.verbs.schedule(
        every, workflow, *args, name=name, zone=zone, catch_up=catch_up, overlap=overlap
    )
    scene.out.tell({"name": name}, f"{name} starts {workflow}: {every}")


async def drop(scene: Scene, name: Name) -> int:
    """Delete a schedule; its runs go on. Exit 3 if there is none."""
    scene.confirm(f"delete schedule {name}")
    gone = await scene.verbs.unschedule(name)
    words = f"schedule {name} is deleted" if gone else f"there is no schedule {name}"
    scene.out.tell({"name": name, "dropped": gone}, words)
    return exits.OK if gone else exits.NOT_FOUND


async def pause(
    scene: Scene,
    name: Name,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; it is kept")] = None,
) -> None:
    """Let a schedule start nothing until it is resumed."""
    await scene.verbs.pause_schedule(name, reason)
    scene.out.tell({"name": name, "paused": True}, f"{name} is paused")


async def resume(scene: Scene, name: Name) -> None:
    """Let a paused schedule go on with its next tick."""
    await scene.verbs.resume_schedule(name)
    scene.out.tell({"name": name, "paused": False}, f"{name} goes on")


async def trigger(scene: Scene, name: Name) -> None:
    """Start a run of a schedule now, apart from its calendar."""
    run = await scene.verbs.trigger(name)
    scene.out.tell({"id": run.id, "created": True}, run.id)


async def backfill(
    scene: Scene,
    name: Name,
    since: Annotated[
        Any,
        typer.Option("--since", parser=values.past, metavar="TIME", help="At or after this"),
    ],
    until: Annotated[
        Any, typer.Option("--until", parser=values.past, metavar="TIME", help="Before this")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count")] = False,
) -> None:
    """Start the ticks of a window that have no run. It counts first, and asks before it acts."""
    window = (name, since, until)
    counted = await scene.verbs.backfill(*window, dry_run=True)
    if not dry_run:
        scene.confirm(
            f"start {counted.started} runs of {name}; {counted.existing} are there already"
        )
        counted = await scene.verbs.backfill(*window, dry_run=False)
    would = "would start" if dry_run else "started"
    left = f"; {counted.left} found no room: do it again later" if counted.left else ""
    words = (
        f"{would} {counted.started} of {counted.ticks} ticks; {counted.existing} had a run{left}"
    )
    scene.out.tell(counted, words)
