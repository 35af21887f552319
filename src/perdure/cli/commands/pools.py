"""`perdure pools`: how many runs go at once, and who waits."""

from typing import Annotated, Any

import typer

from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show, show_pages
from perdure.cli.showing import Column

Name = Annotated[str, typer.Argument(metavar="POOL", help="The name of a pool")]

_columns = (
    Column("pool", lambda one: one.name, whole=True),
    Column("limit", lambda one: one.limit),
    Column("per key", lambda one: one.per_key),
    Column("rate", lambda one: one.rate),
    Column("rate per key", lambda one: one.per_key_rate),
    Column("taken", lambda one: one.taken),
    Column("waiting", lambda one: one.waiting),
    Column("since", lambda one: one.waiting_since),
)
_line = (
    Column("run", lambda one: one.run_id, whole=True),
    Column("key", lambda one: one.key),
    Column("priority", lambda one: one.priority),
    Column("since", lambda one: one.since),
    Column("why", lambda one: one.reason),
)


def add(program: typer.Typer) -> None:
    pools = group(program, "pools", "Pools: how many runs go at once, and who waits")
    command(pools, "list")(list_pools)
    command(pools, "set")(set_pool)
    command(pools, "reset")(reset)
    command(pools, "line")(line)


async def list_pools(scene: Scene) -> None:
    """All pools: limits, slots that are taken, how many wait for one."""
    show(scene, _columns, await scene.verbs.pools())


async def set_pool(
    scene: Scene,
    name: Name,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N|none", help="Runs at once")
    ] = None,
    per_key: Annotated[
        str | None, typer.Option("--per-key", metavar="N|none", help="Of one key")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE|none", help="Such as 10/1m")
    ] = None,
    per_key_rate: Annotated[
        str | None,
        typer.Option("--per-key-rate", metavar="RATE|none", help="Of one key, such as 10/1m"),
    ] = None,
) -> None:
    """Change limits of a pool, from now on and for all processes; `none` takes one away, others stay."""
    given: dict[str, Any] = {
        "limit": _number("--limit", limit),
        "per_key": _number("--per-key", per_key),
        "rate": rate,
        "per_key_rate": per_key_rate,
    }
    said = {key: None if one == "none" else one for key, one in given.items() if one is not None}
    info = await scene.verbs.set_pool(name, **said)
    _tell(scene, info)


def _number(option: str, given: str | None) -> int | str | None:
    if given is None or given == "none":
        return given
    try:
        return int(given)
    except ValueError:
        raise typer.BadParameter(
            f"{given!r} is neither a number nor none", param_hint=option
        ) from None


async def reset(scene: Scene, name: Name) -> None:
    """Set the limits of a pool back to what code declares."""
    _tell(scene, await scene.verbs.reset_pool(name))


def _tell(scene: Scene, info: Any) -> None:
    if scene.out.json:
        scene.out.document(info)
    else:
        scene.out.table(_columns, [info])


async def line(
    scene: Scene, name: Name, limit: Limit = None, after: After = None, all: All = False
) -> None:
    """Who stands in the line of a pool, longest first, and why."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.waiting_for_slot(name, **page)

    await show_pages(scene, _line, fetch, limit, after, all)
