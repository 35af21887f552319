"""`perdure events`: the ledger, as it is and as it grows; facts put on it; a window of it fired anew."""

from typing import Annotated, Any

import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show_pages
from perdure.cli.showing import Column, cell, short
from perdure.errors import LedgerRewound
from perdure.model import limits
from perdure.model.outcomes import Duplicate
from perdure.views import encode_cursor

Pattern = Annotated[
    str | None,
    typer.Argument(metavar="PATTERN", help="Of these types, such as order.* or order.**"),
]
Entity = Annotated[str | None, typer.Option("--entity", metavar="TYPE/ID", help="About this")]

_columns = (
    Column("position", lambda one: one.position, whole=True),
    Column("type", lambda one: one.type, whole=True),
    Column("entity", lambda one: one.entity, whole=True),
    Column("occurred", lambda one: one.occurred_at),
    Column("payload", lambda one: short(one.payload)),
    Column("id", lambda one: one.event_id, whole=True),
)


def add(program: typer.Typer) -> None:
    events = group(program, "events", "Events: the ledger")
    command(events, "list")(list_events)
    command(events, "tail")(tail)
    command(events, "timeline")(timeline)
    command(events, "emit")(emit)
    command(events, "replay", destroys=True)(replay)


async def list_events(
    scene: Scene,
    pattern: Pattern = None,
    entity: Entity = None,
    by_time: Annotated[bool, typer.Option("--by-time", help="By when things happened")] = False,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """The ledger, oldest first."""
    order = "occurred_at" if by_time else "position"

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.events(pattern, entity=entity, order=order, **page)

    await show_pages(scene, _columns, fetch, limit, after, all)


async def timeline(
    scene: Scene,
    entity: Annotated[str, typer.Argument(metavar="TYPE/ID", help="Such as order/42")],
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """What happened to an entity, by when it happened."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.timeline(entity, **page)

    await show_pages(scene, _columns, fetch, limit, after, all)


# --- as it grows ---


async def tail(
    scene: Scene,
    pattern: Pattern = None,
    entity: Entity = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those that come")
    ] = False,
    count: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="How many of those that are there")
    ] = 10,
    every_s: values.Every = "500ms",
) -> None:
    """The newest events, and with -f those that come, a line each."""
    last = await _last(scene)
    shown = await _newest(scene, pattern, entity, last, count) if count else []
    for one in shown:
        _tell(scene, one)
    seen = encode_cursor(last)
    while follow:
        page = await scene.verbs.events(
            pattern, entity=entity, after=seen, limit=limits.page_rows_max
        )
        for one in page:
            _tell(scene, one)
        # A page of a pattern may be short, or empty, and not the last: its cursor knows how far it has looked.
        seen = page.cursor or (encode_cursor(page[-1].position) if page.items else seen)
        if page.cursor is None:
            await scene.out.pause(every_s)


def _tell(scene: Scene, event: Any) -> None:
    if scene.out.json:
        scene.out.line(event)
    else:
        about = "" if event.entity is None else f"  {event.entity}"
        what = cell(short(event.payload))
        scene.out.say(f"{event.position}  {cell(event.recorded_at)}  {event.type}{about}  {what}")


async def _last(scene: Scene) -> int:
    """Where the ledger ends: whoever claims to have read further is told that."""
    try:
        await scene.verbs.events(limit=1, after=encode_cursor(limits.int_max))
    except LedgerRewound as rewound:
        return rewound.last
    return limits.int_max


async def _newest(
    scene: Scene, pattern: str | None, entity: str | None, last: int, count: int
) -> list[Any]:
    """The newest ones that are wanted: from ever further back, as the ledger is read forwards."""
    back = count
    while True:
        found = await _between(scene, pattern, entity, max(0, last - back), last)
        if len(found) >= count or back >= min(last, limits.events_looked_back_max):
            return found[-count:]
        back *= 8


async def _between(
    scene: Scene, pattern: str | None, entity: str | None, after: int, last: int
) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = encode_cursor(after)
    while cursor is not None:
        page = await scene.verbs.events(
            pattern, entity=entity, after=cursor, limit=limits.page_rows_max
        )
        found += [one for one in page if one.position <= last]
        cursor = page.cursor if len(page) == 0 or page[-1].position < last else None
    return found


# --- facts ---


async def emit(
    scene: Scene,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its type, such as order.paid")],
    payload: Annotated[
        values.Json | None,
        typer.Argument(metavar="PAYLOAD", parser=values.json_value, help="JSON, @file.json, or -"),
    ] = None,
    entity: Entity = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again tells nothing twice")
    ] = None,
    event_id: Annotated[str | None, typer.Option("--id", help="A ULID of your own")] = None,
    occurred_at: Annotated[
        Any,
        typer.Option("--at", parser=values.time, metavar="TIME", help="When it happened"),
    ] = None,
    caused_by: Annotated[
        str | None, typer.Option("--caused-by", metavar="EVENT", help="What led to it")
    ] = None,
) -> None:
    """Put an event on the ledger, and resume every run that waits for it."""
    told = await scene.verbs.emit(
        topic,
        None if payload is None else payload.value,
        entity=entity,
        key=key,
        event_id=event_id,
        occurred_at=occurred_at,
        caused_by=caused_by,
    )
    first = told.of if isinstance(told, Duplicate) else told
    before = "told before: " if isinstance(told, Duplicate) else ""
    more = " and more" if first.more else ""
    scene.out.tell(
        told, f"{before}{first.event_id} at {first.position}; resumed {first.resumed}{more}"
    )


# --- again ---


async def replay(
    scene: Scene,
    into: Annotated[
        str, typer.Argument(metavar="CONSUMER", help="workflow_runner, or one of --app")
    ],
    since: Annotated[
        Any,
        typer.Option(
            "--since",
            parser=values.position,
            metavar="PLACE",
            help="A position, a time, or a span ago",
        ),
    ] = "beginning",
    until: Annotated[
        Any,
        typer.Option(
            "--until",
            parser=values.position,
            metavar="PLACE",
            help="A position, a time, or a span ago",
        ),
    ] = None,
    pattern: Annotated[str | None, typer.Option("--pattern", help="Only these types")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Events per second, at most")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was dealt with before: runs start once more")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count")] = False,
) -> int:
    """Fire a window of the ledger anew, into a consumer. It counts first, and asks before it acts."""
    window: dict[str, Any] = {
        "since": since,
        "until": until,
        "pattern": pattern,
        "only_if_no_run": not again,
    }
    counted = await scene.verbs.replay(into, dry_run=True, **window)
    if dry_run:
        scene.out.tell(counted, _counted(counted))
        return exits.OK
    if not scene.yes:
        scene.out.note(_counted(counted))
    scene.confirm(f"fire {counted.events} events into {into}")
    with scene.out.progress("events", counted.events) as done:
        options = {} if scene.is_remote else {"progress": done}
        fired = await scene.verbs.replay(into, dry_run=False, rate=rate, **window, **options)
    scene.out.tell(fired, _counted(fired))
    return exits.SOME_REFUSED if fired.failed else exits.OK


def _counted(replayed: Any) -> str:
    would = "would fire" if replayed.dry_run else "fired"
    types = ", ".join(f"{count} {name}" for name, count in sorted(replayed.by_type.items()))
    words = [f"{would} {replayed.events} events" + (f" ({types})" if types else "")]
    if replayed.starts is not None:
        words.append(f"{replayed.starts} starts, {replayed.existing} runs are there already")
    if replayed.failed:
        words.append(f"{replayed.failed} could not be dealt with")
    return "; ".join(words)
