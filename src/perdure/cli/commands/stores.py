"""`perdure db`: the store itself. Its schema, a copy of it, and how it is kept small."""

from typing import Annotated

import typer
from typer.core import TyperGroup

from perdure.cli import values
from perdure.cli.calling import Scene, command, group
from perdure.cli.places import local_app, opened
from perdure.cli.showing import span
from perdure.model.duration import parse_duration
from perdure.store.urls import without_password


def add(program: typer.Typer) -> None:
    db = group(program, "db", "The store itself: schema, copy, keeping it small", cls=TyperGroup)
    command(db, "version", opens=False)(version)
    command(db, "migrate", opens=False)(migrate)
    command(db, "backup")(backup)
    command(db, "prune", destroys=True)(prune)
    command(db, "trim", destroys=True)(trim)


async def version(scene: Scene) -> None:
    """Which schema the store has, and which this perdure works with. Nothing is changed."""
    if scene.is_remote:
        async with opened(scene.place) as client:
            found = await client.schema_version()
    else:
        found = await local_app(scene.place, worker=False).schema_version()
    stored = "no schema yet" if found.stored is None else f"schema {found.stored}"
    advice = "; `perdure db migrate` brings it up" if found.migrates else ""
    if found.refused:
        advice = "; this perdure is too old for it"
    scene.out.tell(found, f"the store has {stored}, this perdure works with {found.known}{advice}")


async def migrate(scene: Scene) -> None:
    """Make the store, or bring its schema up; one that is as it should be is left alone."""
    app = local_app(scene.place, worker=False)
    before = await app.schema_version()
    async with app:
        after = await app.schema_version()
    document = {"url": without_password(app.url), "before": before.stored, "after": after.stored}
    if before.stored == after.stored:
        words = f"the store has schema {after.stored} already"
    elif before.stored is None:
        words = f"made a store with schema {after.stored}"
    else:
        words = f"brought the schema from {before.stored} to {after.stored}"
    scene.out.tell(document, words)


async def backup(
    scene: Scene, path: Annotated[str, typer.Argument(metavar="FILE", help="A new file")]
) -> None:
    """Copy a store on SQLite into a new file, from one moment, while workers run."""
    size = await scene.here("backup")(path)
    scene.out.tell({"path": path, "bytes": size}, f"wrote {path}, {size} bytes")


async def prune(
    scene: Scene,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            parser=values.span,
            metavar="SPAN",
            help="Such as 30d; else what the app of --app keeps",
        ),
    ] = None,
) -> None:
    """Delete runs that finished longer ago than this, with their keys and dead letters."""
    which = (
        "longer ago than it keeps" if older_than is None else f"more than {_shown(older_than)} ago"
    )
    scene.confirm(f"delete all runs that finished {which} from {scene.place.shown}")
    with scene.out.progress("runs deleted", None) as done:
        options = {} if scene.is_remote else {"progress": done}
        count = await scene.verbs.prune(older_than, **options)
    scene.out.tell({"deleted": count}, f"deleted {count} runs")


async def trim(
    scene: Scene,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", parser=values.span, metavar="SPAN", help="Events before that"),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", help="Events beyond the newest so many")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also what consumers have still to read")
    ] = False,
) -> None:
    """Delete events of the ledger; never what a consumer has still to read, unless forced."""
    scene.confirm(f"delete old events from {scene.place.shown}")
    trimmed = await scene.verbs.trim_ledger(older_than=older_than, keep=keep, force=force)
    held = f"; consumer {trimmed.held_by} holds the rest" if trimmed.held_by else ""
    scene.out.tell(trimmed, f"deleted {trimmed.count} events{held}")


def _shown(older_than: str) -> str:
    """What is to be confirmed is said in full."""
    return span(parse_duration(older_than) / 1_000_000)
