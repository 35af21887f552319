"""Orders that chance would seldom bring about: a process is held at one place until another has done its part.

Who is `overtaken` stands still before one of its calls to the server, that is between a look, a decision and the
commit. An `Outsider` stops a batch inside its commit, between what it has compared and what it writes: by a row that
it has inserted itself and not committed, so that the batch must wait for it.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import asyncpg
from racing import Process

_patience_s = 30

# A process, and what it is to do.
Task = tuple[Process, Any]


class Place(NamedTuple):
    """Where a process can be held: before its nth such call from now on, or before a statement of that name."""

    call: str
    nth: int = 1
    statement: str | None = None


SECOND_LOOK: Final = Place("fetch", 2)
COMMIT: Final = Place("commit")


def reading(statement: str) -> Place:
    """Within a look, before the first statement of that name."""
    return Place("row", statement=statement)


@contextmanager
def overtaken(process: Process, place: Place, awaited: Any) -> Iterator["Future[Any]"]:
    """Begin something in a process and hold it at a place, for others to do their part. It has ended when this has."""
    reached, go = threading.Event(), threading.Event()
    with _standing_still(process.store, place, reached, go):
        late = process.begin(awaited)
        assert reached.wait(_patience_s), f"the process never came to {place}"
        yield late
        go.set()
        late.exception(_patience_s)


@contextmanager
def _standing_still(
    store: Any, place: Place, reached: threading.Event, go: threading.Event
) -> Iterator[None]:
    target = store if place.statement is None else store._fetcher
    made, calls = getattr(target, place.call), 0

    async def stand_still(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += place.statement is None or place.statement in args
        if calls == place.nth and not reached.is_set():
            reached.set()
            # The loop is this process's own: all of it stands still.
            assert go.wait(_patience_s)
        return await made(*args, **named)

    setattr(target, place.call, stand_still)
    try:
        yield
    finally:
        go.set()
        delattr(target, place.call)


class Outsider:
    """A connection that is no store's, in the namespace of a race."""

    def __init__(self, url: str, schema: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection: Any = self._loop.run_until_complete(
            asyncpg.connect(url, server_settings={"search_path": schema})
        )

    def execute(self, statement: str, *values: object) -> None:
        self._loop.run_until_complete(self._connection.execute(statement, *values))

    def fetchval(self, statement: str, *values: object) -> Any:
        return self._loop.run_until_complete(self._connection.fetchval(statement, *values))

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    # --- holding ---

    def hold_step(self, run_id: str, path: str) -> None:
        """Whoever adds this step waits."""
        self.execute("begin")
        self.execute(
            "insert into steps (run_id, generation, path, kind, name, state, seq, attempt, started_at, superseded) "
            "values ($1, 0, $2, 'step', '', 'done', 0, 1, 0, 0)",
            run_id,
            path,
        )

    def hold_event(self, event_id: str) -> None:
        """Whoever appends this event waits, with the end of the ledger in its hands."""
        self.execute("begin")
        self.execute(
            "insert into events (position, event_id, type, payload, occurred_at, recorded_at, depth) "
            "values (1::bigint << 50, $1, 'held', '1', 0, 0, 0)",
            event_id,
        )

    def hold_run(self, run_id: str) -> None:
        """Whoever changes this run waits."""
        self.execute("begin")
        self.execute("select 1 from runs where run_id = $1 for update", run_id)

    def release(self) -> None:
        self.execute("rollback")

    def waiting(self) -> int:
        """How many wait for this connection, or for one that does."""
        count: int = self.fetchval(
            "with recursive behind (pid) as ("
            " select a.pid from pg_stat_activity as a where pg_backend_pid() = any (pg_blocking_pids(a.pid))"
            " union"
            " select a.pid from behind as b join pg_stat_activity as a on b.pid = any (pg_blocking_pids(a.pid))"
            ") select count(*) from behind"
        )
        return count

    def until(self, holds: Callable[[], bool]) -> None:
        """Ask the server again and again; each question is a round trip, so nothing spins."""
        for _ in range(20_000):
            if holds():
                return
        raise AssertionError("what was waited for never came")

    def until_held(self, count: int = 1) -> None:
        self.until(lambda: self.waiting() >= count)

    def behind(self, first: Task, second: Task) -> tuple[Any, Any]:
        """The second begins when the first waits for what is held, and is answered or waits as well. Both answers."""
        leading = first[0].begin(first[1])
        self.until_held()
        following = second[0].begin(second[1])
        self.until_settled(following, 2)
        self.release()
        return leading.result(_patience_s), following.result(_patience_s)

    def until_settled(self, one: "Future[Any]", count: int) -> None:
        """Until that one has its answer, or waits as well."""
        self.until(lambda: self.waiting() >= count or one.done())
