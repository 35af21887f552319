"""What reads the ledger while its process is killed: a consumer, a subscription, and the points at which they die.

Every event is to lead to one line of `crash.seen`, one item and one signal by the consumer, and one run by the
subscription; the handler also leaves a line in a file that outlives the process, as an effect in the world would.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from crashes import story
from perdure import App, Batch, Context, Event, Queue, Topic
from perdure.model import ops
from perdure.model.outcomes import Duplicate
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import Writer

happened = Topic("crash.happened", int)
seen = Topic("crash.seen", int)
todo = Queue("crash.todo", int)


def add_to(app: App, die_in: Callable[[str], None]) -> None:
    """Let the app read. `die_in` is told where the handler is, and may not come back."""
    app.add(happened)

    @app.consumer("reader", "crash.happened", batch=3)
    async def read(batch: Batch) -> None:
        die_in("handler begins")
        for event in batch:
            line = {"handled": event.payload, "pid": os.getpid()}
            os.write(story.World.effects_fd, json.dumps(line).encode() + b"\n")
            batch.emit(seen, event.payload)
            batch.put(todo, event.payload)
        die_in("handler ends")

    @app.on("crash.happened", name="react")
    @app.workflow
    async def react(ctx: Context, event: Event) -> int:
        value: int = event.payload
        return value


async def emit(app: App, numbers: list[int]) -> list[str]:
    """Emit these, each with a key: whoever asks again, because the answer was lost, changes nothing."""
    told = [await app.emit(happened, number, key=f"n{number}") for number in numbers]
    return ["duplicate" if isinstance(one, Duplicate) else "emitted" for one in told]


async def are_done(app: App) -> bool:
    """Whether both readers have dealt with every event that there is, and every run has ended."""
    health = await app.health()
    counts = await app._engine().store.counts()
    unfinished = [name for name in counts if name in ("runs.ready", "runs.running")]
    return all(one.lag == 0 for one in health.consumers) and not unfinished


def arm(place: str, number: int, die: Callable[[], None]) -> Callable[[str], None]:
    """Die at the n-th time this life comes to the place: in the handler, or around a cursor's commit."""
    times = 0

    def come_to(where: str) -> None:
        nonlocal times
        if where == place:
            times += 1
            if times == number:
                die()

    apply, commit = SqliteStore.apply, Writer._commit
    moving = False

    async def apply_or_die(store: SqliteStore, batch_id: str, batch: Any, *rest: Any) -> Any:
        nonlocal moving
        moving = any(isinstance(one, ops.AdvanceCursor) and one.effects for one in batch)
        if moving:
            come_to("before the commit")
        applied = await apply(store, batch_id, batch, *rest)
        if moving:
            come_to("after the commit")
        return applied

    def commit_or_die(writer: Writer, *args: Any) -> None:
        if moving:
            come_to("inside the commit")
        commit(writer, *args)

    SqliteStore.apply = apply_or_die  # type: ignore[method-assign]
    Writer._commit = commit_or_die  # type: ignore[method-assign]
    return come_to


PLACES = (
    "handler begins",
    "handler ends",
    "before the commit",
    "inside the commit",
    "after the commit",
)
