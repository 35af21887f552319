"""`perdure consumers`, `perdure subscriptions`: who reads the ledger, how far, and what they could not deal with."""

from typing import Annotated, Any

import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show, show_pages
from perdure.cli.showing import Column, cell

Consumer = Annotated[str, typer.Argument(metavar="NAME", help="Of a consumer")]
RuleName = Annotated[str, typer.Argument(metavar="NAME", help="Of a subscription")]
Position = Annotated[
    int, typer.Argument(metavar="POSITION", min=0, help="Of the event, as the list gives it")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept")]


def add(program: typer.Typer) -> None:
    consumers = group(program, "consumers", "Consumers: readers of the ledger")
    command(consumers, "list")(list_consumers)
    command(consumers, "pause")(pause)
    command(consumers, "resume")(resume)
    command(consumers, "rewind", destroys=True)(rewind)
    command(consumers, "drop", destroys=True)(drop)
    command(consumers, "parked")(parked)
    command(consumers, "refire")(refire)
    command(consumers, "drop-parked", destroys=True)(drop_parked)
    rules = group(program, "subscriptions", "Subscriptions: events that start workflows")
    command(rules, "list")(list_rules)
    command(rules, "set")(set_rule)
    command(rules, "drop", destroys=True)(drop_rule)
    command(rules, "enable")(enable)
    command(rules, "disable")(disable)
    command(rules, "deferred")(deferred)
    command(rules, "release")(release)
    command(rules, "drop-deferred", destroys=True)(drop_deferred)


# --- consumers ---

_consumers = (
    Column("consumer", lambda one: one.name, whole=True),
    Column("patterns", lambda one: one.patterns),
    Column("position", lambda one: one.position),
    Column("lag", lambda one: one.lag),
    Column("every", lambda one: one.every),
    Column("paused", lambda one: one.paused),
    Column("advanced", lambda one: one.advanced_at),
    Column("owner", lambda one: one.owner),
    Column("trouble", lambda one: one.reason or one.error),
)
_parked = (
    Column("consumer", lambda one: one.consumer, whole=True),
    Column("position", lambda one: one.position),
    Column("subscription", lambda one: one.subscription or None, whole=True),
    Column("type", lambda one: one.type),
    Column("attempts", lambda one: one.attempts),
    Column("parked", lambda one: one.parked_at),
    Column("reason", lambda one: one.reason),
)


async def list_consumers(scene: Scene) -> None:
    """All consumers: where they are, and how far behind."""
    show(scene, _consumers, await scene.verbs.consumers())


async def pause(scene: Scene, name: Consumer, reason: Reason = None) -> None:
    """Let a consumer read no further."""
    await scene.verbs.pause_consumer(name, reason)
    scene.out.tell({"name": name, "paused": True}, f"{name} is paused")


async def resume(scene: Scene, name: Consumer) -> None:
    """Let a paused consumer read on."""
    await scene.verbs.resume_consumer(name)
    scene.out.tell({"name": name, "paused": False}, f"{name} reads on")


async def rewind(
    scene: Scene,
    name: Consumer,
    to: Annotated[
        Any,
        typer.Argument(
            parser=values.position,
            metavar="PLACE",
            help="A position, a time, how long ago, beginning or now",
        ),
    ],
) -> None:
    """Move a consumer's cursor, back or forth: what it reads again it does again, and what it skips it never does."""
    scene.confirm(f"move the cursor of {name} to {cell(to)}")
    position = await scene.verbs.rewind(name, to)
    scene.out.tell({"name": name, "position": position}, f"{name} reads on after {position}")


async def drop(scene: Scene, name: Consumer) -> None:
    """Forget a consumer that no code reads for any more."""
    scene.confirm(f"forget consumer {name} and where it was")
    await scene.verbs.drop_consumer(name)
    scene.out.tell({"name": name, "dropped": True}, f"{name} is forgotten")


async def parked(
    scene: Scene,
    consumer: Annotated[str | None, typer.Argument(metavar="NAME", help="Of this consumer")] = None,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """Events that a consumer could not deal with, and why."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.parked(consumer, **page)

    await show_pages(scene, _parked, fetch, limit, after, all)


Rule = Annotated[str, typer.Option("--subscription", help="Of workflow_runner: for which rule")]


async def refire(
    scene: Scene, consumer: Consumer, position: Position, subscription: Rule = ""
) -> int:
    """Deal with a parked event once more; exit 1 if it failed again. A consumer of your own needs --app."""
    went = await scene.verbs.refire(consumer, position, subscription)
    words = "is dealt with" if went else "failed again; it stays parked"
    scene.out.tell(
        {"consumer": consumer, "position": position, "done": went}, f"event {position} {words}"
    )
    return exits.OK if went else exits.REFUSED


async def drop_parked(
    scene: Scene, consumer: Consumer, position: Position, subscription: Rule = ""
) -> int:
    """Forget a parked event; exit 3 if it is not parked."""
    scene.confirm(f"forget event {position}, which {consumer} has parked")
    gone = await scene.verbs.drop_parked(consumer, position, subscription)
    return _dropped(scene, {"consumer": consumer, "position": position}, gone, f"event {position}")


def _dropped(scene: Scene, at: dict[str, Any], gone: bool, what: str) -> int:
    scene.out.tell(
        {**at, "dropped": gone}, f"{what} is forgotten" if gone else f"{what} is not there"
    )
    return exits.OK if gone else exits.NOT_FOUND


# --- subscriptions ---

_rules = (
    Column("subscription", lambda one: one.name, whole=True),
    Column("pattern", lambda one: one.pattern),
    Column("workflow", lambda one: one.workflow),
    Column("where", lambda one: one.where),
    Column("map", lambda one: one.map),
    Column("key", lambda one: one.key),
    Column("in code", lambda one: one.declared),
    Column("enabled", lambda one: one.enabled),
)
_deferred = (
    Column("position", lambda one: one.position),
    Column("subscription", lambda one: one.subscription, whole=True),
    Column("event", lambda one: one.event_id, whole=True),
    Column("reason", lambda one: one.reason),
    Column("since", lambda one: one.deferred_at),
)


async def list_rules(scene: Scene) -> None:
    """All subscriptions, by name."""
    show(scene, _rules, await scene.verbs.subscriptions())


async def set_rule(
    scene: Scene,
    name: RuleName,
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Of which events, such as order.*")
    ],
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="That they start")],
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="CEL", help="Only events for which this is true"),
    ] = None,
    map: Annotated[
        str | None, typer.Option("--map", metavar="CEL", help="The input of the run")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="CEL", help="One run for each")
    ] = None,
    start: Annotated[
        Any,
        typer.Option("--start", parser=values.position, metavar="PLACE", help="From where on"),
    ] = "now",
) -> None:
    """Make or change a subscription."""
    await scene.verbs.subscribe(
        pattern, workflow, name=name, where=where, map=map, key=key, start=start
    )
    scene.out.tell({"name": name}, f"{pattern} starts {workflow}")


async def drop_rule(scene: Scene, name: RuleName) -> int:
    """Delete a subscription and what it has put off; exit 3 if there is none."""
    scene.confirm(f"delete subscription {name} and the starts it has put off")
    gone = await scene.verbs.unsubscribe(name)
    return _dropped(scene, {"name": name}, gone, f"subscription {name}")


async def enable(scene: Scene, name: RuleName) -> None:
    """Switch a subscription on."""
    await scene.verbs.enable_subscription(name, True)
    scene.out.tell({"name": name, "enabled": True}, f"{name} is on")


async def disable(scene: Scene, name: RuleName) -> None:
    """Switch a subscription off: events that come meanwhile do not count for it."""
    await scene.verbs.enable_subscription(name, False)
    scene.out.tell({"name": name, "enabled": False}, f"{name} is off")


async def deferred(
    scene: Scene, limit: Limit = None, after: After = None, all: All = False
) -> None:
    """Starts that a bound has put off."""
    await show_pages(scene, _deferred, scene.verbs.deferred, limit, after, all)


async def release(scene: Scene, position: Position, subscription: RuleName) -> int:
    """Start what was put off, whatever bound it broke; exit 3 if it is not there."""
    went = await scene.verbs.release_deferred(position, subscription)
    words = "is started" if went else "is not there, or could not be started"
    at = {"position": position, "subscription": subscription, "started": went}
    scene.out.tell(at, f"event {position} for {subscription} {words}")
    return exits.OK if went else exits.NOT_FOUND


async def drop_deferred(scene: Scene, position: Position, subscription: RuleName) -> int:
    """Forget a start that was put off; exit 3 if it is not there."""
    scene.confirm(f"forget the start of {subscription} for event {position}")
    gone = await scene.verbs.drop_deferred(position, subscription)
    at = {"position": position, "subscription": subscription}
    return _dropped(scene, at, gone, f"the start of {subscription} for event {position}")
