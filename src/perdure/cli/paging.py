"""Listings: a page, the next one, or all of them; as a table or as JSON."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from perdure.cli import values
from perdure.cli.calling import Scene
from perdure.cli.showing import Column
from perdure.model import limits

Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="How many at most; 100 if not said")
]
After = Annotated[
    str | None,
    typer.Option(
        "--after", parser=values.cursor, metavar="CURSOR", help="Go on where a listing ended"
    ),
]
All = Annotated[bool, typer.Option("--all", help="Page after page, to the end")]

Fetch = Callable[..., Awaitable[Any]]


async def show_pages(
    scene: Scene,
    columns: Sequence[Column],
    fetch: Fetch,
    limit: int | None,
    after: str | None,
    all: bool,
    form: Callable[[Any], Any] = lambda one: one,
) -> None:
    """What `fetch(limit=, after=)` gives. `form` makes of an item what JSON says."""
    if all and limit is not None:
        raise typer.BadParameter("--all and --limit contradict each other")
    usual = limits.page_rows_max if all else limits.page_rows_default
    asked = usual if limit is None else limit
    found: list[Any] = []
    while True:
        page = await fetch(limit=asked, after=after)
        found += page.items
        after = page.cursor
        if after is None or not all:
            break
    show(scene, columns, found, after, form)


def show(
    scene: Scene,
    columns: Sequence[Column],
    items: Iterable[Any],
    cursor: str | None = None,
    form: Callable[[Any], Any] = lambda one: one,
) -> None:
    """A listing that is there."""
    items = list(items)
    if scene.out.json:
        scene.out.document({"items": [form(one) for one in items], "cursor": cursor})
        return
    scene.out.table(columns, items)
    if cursor is not None:
        scene.out.note(f"there is more: --after {cursor}, or --all")
