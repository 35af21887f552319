"""The process that is killed: an App with a worker on a SQLite file or a server, steered over a socket.

Started as `python -m crashes.child FD` it imports everything once and then forks a child for each request (the JSON
settings, with the child's socket beside them): a fresh process in milliseconds instead of a quarter of a second. It
tells the pid, and after the child is gone, its locks released, the wait status. It never has threads of its own.

A failpoint names a batch of the child by its number and a place: `before` the store gets it, `inside` the transaction
just before its commit, `after` the commit and before anybody is answered. There the child kills itself.
"""

import asyncio
import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from crashes import readers, scenes, story
from crashes.obeying import answer, claim_of, count_fences
from perdure import App
from perdure.coordinator import coordinator
from perdure.model import limits
from perdure.store.sql import Migration
from perdure.store.sqlite import opening
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import Writer


def serve(requests: socket.socket) -> None:
    while True:
        text, fds, _, _ = socket.recv_fds(requests, 1 << 16, 1)
        if not text:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            os._exit(_live(json.loads(text), socket.socket(fileno=fds[0])))
        os.close(fds[0])
        requests.send(json.dumps({"pid": pid}).encode())
        _, status = os.waitpid(pid, 0)
        requests.send(json.dumps({"status": status}).encode())


def _live(settings: dict[str, Any], wire: socket.socket) -> int:
    try:
        asyncio.run(_run(settings, wire))
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


async def _run(settings: dict[str, Any], wire: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=wire)
    story.World.tell = lambda told: writer.write(json.dumps(told).encode() + b"\n")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    story.World.effects_fd = os.open(settings["effects"], flags, 0o644)
    if settings.get("quiet"):  # it will be refused on purpose, and need not log that
        logging.disable()
    if settings.get("failpoint"):
        arm(*settings["failpoint"])
        # As under full load: answers are held while the next batch is written.
        if settings["failpoint"][1] % 2:
            limits.batch_ops_max, coordinator._held_ops_min = 4, 1
    if settings.get("migration"):
        add_migration(settings["migration"])
    if settings.get("migration_kill"):
        arm_migration(*settings["migration_kill"])
    story.World.tell({"event": "opening", "at": time.monotonic()})
    app = _make_app(settings)
    if settings.get("readers"):
        readers.add_to(app, readers.arm(*settings["readers"], die))
    story.World.claim = lambda run_id: claim_of(app, run_id)
    async with app:
        story.World.tell({"event": "open", "at": time.monotonic()})
        await _obey(app, reader)
    story.World.tell({"event": "closed"})
    await writer.drain()
    writer.close()


def _make_app(settings: dict[str, Any]) -> App:
    if "url" not in settings:
        return scenes.app_on(f"sqlite:///{settings['db']}")
    count_fences()
    return scenes.app_on(settings["url"], namespace=settings["namespace"], lease=settings["lease"])


async def _obey(app: App, reader: asyncio.StreamReader) -> None:
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        asked = json.loads(line)
        if asked["do"] == "close":
            return
        task = asyncio.create_task(_answer(app, asked))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _answer(app: App, asked: dict[str, Any]) -> None:
    story.World.tell({"name": asked["name"], **await answer(app, asked)})


# --- points to die at ----------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # it may take a moment to arrive; go no further


def arm(place: str, number: int) -> None:
    """Die at the batch of this number."""
    batches = 0
    apply, commit = SqliteStore.apply, Writer._commit

    async def apply_or_die(store: SqliteStore, batch_id: str, ops: Any, *rest: Any) -> Any:
        nonlocal batches
        batches += 1
        if place == "before" and batches == number:
            die()
        applied = await apply(store, batch_id, ops, *rest)
        if place == "after" and batches == number:
            die()
        return applied

    def commit_or_die(writer: Writer, *args: Any) -> None:
        if place == "inside" and batches == number:
            die()
        commit(writer, *args)

    SqliteStore.apply = apply_or_die  # type: ignore[method-assign]
    Writer._commit = commit_or_die  # type: ignore[method-assign]


def add_migration(text: str) -> None:
    """One schema more than this code really knows."""
    number = opening.schema_known + 1
    opening.migrations.append(Migration(number, "of_a_test", text))
    opening.schema_known = number  # type: ignore[misc]


def arm_migration(place: str, number: int) -> None:
    """Die in the migration: when its n-th `statement` begins, after n `instructions`, or `after` all of it."""
    migrate = opening.migrate
    begun = 0

    def count(statement: str) -> None:
        nonlocal begun
        begun += 1
        if begun == number:
            die()

    def migrate_or_die(sql: Any, *args: Any) -> None:
        if place == "statement":
            sql.connection.set_trace_callback(count)
        elif place == "instructions":
            sql.connection.set_progress_handler(die, number)
        migrate(sql, *args)
        sql.connection.set_trace_callback(None)
        sql.connection.set_progress_handler(None, 0)
        if place == "after":
            die()

    opening.migrate = migrate_or_die


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # the parent asks so when a child hangs
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(name)s %(message)s")
    serve(socket.socket(fileno=int(sys.argv[1])))
