"""`perdure queues`: items that one run each takes."""

from typing import Annotated, Any

import typer

from perdure.cli import values
from perdure.cli.calling import Scene, command, group
from perdure.cli.commands.signals import said
from perdure.cli.paging import After, All, Limit, show_pages
from perdure.cli.showing import Column, short
from perdure.model.outcomes import Duplicate, Queued

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of a queue")]

_columns = (Column("queue", lambda one: one[0], whole=True), Column("items", lambda one: one[1]))
_items = (
    Column("item", lambda one: one.item_id, whole=True),
    Column("put", lambda one: one.put_at),
    Column("payload", lambda one: short(one.payload)),
)


def add(program: typer.Typer) -> None:
    queues = group(program, "queues", "Queues: items that one run each takes")
    command(queues, "list")(list_queues)
    command(queues, "items")(items)
    command(queues, "put")(put)
    command(queues, "purge", destroys=True)(purge)


async def list_queues(scene: Scene) -> None:
    """How many items each queue holds; empty ones are left out."""
    found = await scene.verbs.queues()
    if scene.out.json:
        scene.out.document(
            {
                "items": [{"queue": one, "items": size} for one, size in found.items()],
                "cursor": None,
            }
        )
    else:
        scene.out.table(_columns, sorted(found.items()))


async def items(
    scene: Scene, name: Name, limit: Limit = None, after: After = None, all: All = False
) -> None:
    """What is in a queue, oldest first."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.queue_items(name, **page)

    await show_pages(scene, _items, fetch, limit, after, all)


async def put(
    scene: Scene,
    name: Name,
    payload: Annotated[
        values.Json | None,
        typer.Argument(metavar="PAYLOAD", parser=values.json_value, help="JSON, @file.json, or -"),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again puts nothing twice")
    ] = None,
) -> None:
    """Put an item into a queue: to the run that waits longest, else kept."""
    answer = await scene.verbs.put(name, None if payload is None else payload.value, key=key)
    first = answer.of if isinstance(answer, Duplicate) else answer
    words = f"queued as {first.item_id}" if isinstance(first, Queued) else said(first)
    scene.out.tell(answer, f"put before: {words}" if isinstance(answer, Duplicate) else words)


async def purge(
    scene: Scene,
    name: Name,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            parser=values.span,
            metavar="SPAN",
            help="Only what has been there for longer",
        ),
    ] = None,
) -> None:
    """Delete what is in a queue, or what has been there for longer than this."""
    which = "all" if older_than is None else f"what is older than {older_than}"
    scene.confirm(f"delete {which} in queue {name}")
    count = await scene.verbs.purge(name, older_than=older_than)
    scene.out.tell({"queue": name, "deleted": count}, f"deleted {count} items")
