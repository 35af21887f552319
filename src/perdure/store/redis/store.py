"""The store on Redis and Valkey: keys with one prefix, shared by many processes.

Ops are decided here by the shared handlers, on rows that are known or looked up; one script then compares and writes
(store/optimistic, lua/apply.lua). A script is alone on the server while it runs, so it needs no locks. The time is the
server's.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from redis import exceptions

from perdure.errors import NotRunning, StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.records import OutboxRecord
from perdure.store.base import (
    Applied,
    BatchFailed,
    BatchLost,
    BatchUnknown,
    Described,
    Rewound,
    StoreBusy,
    Versions,
)
from perdure.store.beating import Beating
from perdure.store.hint import Hint
from perdure.store.optimistic.changes import Changes, Conflict, Written, everything
from perdure.store.optimistic.deciding import Backend, Decider
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.reaching import Reaching
from perdure.store.redis import borrowing, fetching, judging, opening
from perdure.store.redis.connecting import (
    Calls,
    Client,
    Options,
    check_server,
    connect,
    database_of,
    is_lost,
    on_our_node,
    parse_url,
    refuses_all,
    run_script,
    server_facts,
)
from perdure.store.redis.fetching import Fetcher, Question, Reply
from perdure.store.redis.hints import Hints
from perdure.store.redis.layout import Layout, glob_escaped, moment, time_of
from perdure.store.redis.pulse import Pulse
from perdure.store.redis.reads import RedisReads
from perdure.store.redis.rows import decode_run
from perdure.store.redis.writing import argument_of
from perdure.store.ticking import ServerClock
from perdure.store.transaction import Transaction
from perdure.store.urls import without_password

log = logging.getLogger("perdure.store.redis")

# How long the owner of a parked run may take to answer a call, before anybody may claim the run.
_sticky_us: Final = 250_000
_disowned_max: Final = 1000
# Who has all others wait is given up on after this: it decides and writes one batch meanwhile.
_alone_ms: Final = 5000
_pause_s: Final = 0.005
_scanned: Final = 500
_unreachable: Final = (exceptions.RedisError, OSError, TimeoutError)


class RedisStore(RedisReads, Backend):
    """A namespace behind one hash tag."""

    batch_ops = 500
    needs_beats = True

    def __init__(
        self, url: str, *, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool = True
    ) -> None:
        self.url = without_password(url)
        self.lifecycle = lifecycle
        self._options: Options = parse_url(url)
        self.namespace = namespace
        self._layout = Layout(namespace)
        self.sends_hints = self._options.notify
        if self.sends_hints:
            self.sticky_us = _sticky_us
        self._clock = ServerClock(clock)
        self._ids = ids
        self._fetcher = Fetcher(self._layout, self._clock.now, lambda: self.worker_id)
        self._decider = Decider(self, ids, lifecycle)
        self._calls: Calls | None = None  # while it is open
        self._hints: Hints | None = None
        self._reaching = Reaching(is_lost)
        self._beating: Beating | None = None
        self._refused: str | None = None  # why, once newer code has shut this code out
        self._server = self._epoch = ""  # the start of it that was greeted last
        self._commits_seen = 0
        self._alone = ""
        self._pid = os.getpid()
        self._turn = asyncio.Lock()

    # --- life ---

    async def open(self) -> None:
        """Connect, check the server, make the namespace; raises StoreRefused. Open already: nothing happens."""
        self._check_process()
        async with self._turn:
            if self._calls is not None:
                return
            self._reaching.patience_s = self.patience_s
            client = None
            try:
                async with asyncio.timeout(self.patience_s):
                    client = await connect(self._options)
                await self._greet(client, self._ids.ulid())
            except BaseException as error:
                if client is not None:
                    await client.aclose()
                if isinstance(error, _unreachable):
                    raise self._out_of_reach(error) from error
                raise
            self._calls = Calls(client)
            self._refused = None
            if self._options.notify:
                # Messages know no databases: what is told in one is heard in all.
                channel = self._layout.key("hints", database_of(self._options))
                self._hints = Hints(self._options, channel, self._ids.ulid(), self._heard)
                await self._hints.open()

    async def _greet(self, client: Client, new_id: str = "") -> None:
        """Check the server and learn what it has kept; raises StoreRefused if it, or this code, must not be used.

        A namespace is made only if it is given an id.
        """
        async with asyncio.timeout(self.patience_s):
            await check_server(client, self._options, self._layout)
            greeted = await opening.greet(client, self._layout, new_id, self._epoch)
            self._clock.learn(greeted.clock)
            if self._epoch not in ("", greeted.epoch):
                self._decider.known.forget()
                if greeted.began is not None and greeted.began < self._commits_seen:
                    await self._rewind(client, greeted, self._commits_seen - greeted.began)
        self._server, self._epoch = greeted.server, greeted.epoch

    async def _greet_again(self, calls: Calls) -> None:
        """Raises StoreRefused, also if the server is out of reach."""

        async def once() -> None:
            async with calls.one() as client:
                try:
                    await self._greet(client)
                except StoreRefused:
                    await calls.look_anew()
                    raise

        try:
            await self._reaching.until_reached(once)
        except _unreachable as error:
            raise self._out_of_reach(error, passing=True) from error

    async def _rewind(self, client: Client, greeted: opening.Greeted, lost: int) -> None:
        """What this process has seen is gone: it must not go on from there, with no run that it has in memory."""
        if self.worker_id is not None:
            taken = _disowned_max
            while taken == _disowned_max:
                taken = await run_script(
                    client, self._layout, "disown", self.worker_id, _disowned_max
                )
        seen = max(self.head, self._decider.known.head)
        log.error(
            "%s has lost its last writes, at least %d batches: the ledger ends at %d, and was seen to end at %d",
            self.url,
            lost,
            greeted.head,
            seen,
        )
        self.rewound = Rewound(greeted.server, greeted.head, seen)
        if self.on_rewound is not None:
            self.on_rewound()
        self._commits_seen = greeted.commits
        self.head = self._decider.known.head = greeted.head
        self._lost_lease()

    def _out_of_reach(self, error: BaseException, *, passing: bool = False) -> StoreRefused:
        if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
            keys = f"{self._layout.prefix}*"
            return StoreRefused(
                f"{self.url} does not let this user in, to the keys {keys}: {error}"
            )
        reason = f"{self.url} cannot be reached: {error or type(error).__name__}"
        return StoreRefused(reason, passing=passing)

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._check_process()
        self.stop_beating()
        async with self._turn:
            hints, self._hints = self._hints, None
            if hints is not None:
                await hints.stop()
            calls, self._calls = self._calls, None
            if calls is not None:
                await calls.close()
            self._decider.known.forget()

    def clock(self, given: Clock) -> Clock:
        """The server's, unless a test brings its own."""
        return self._clock if self._clock.follows else given

    def start_beating(self, worker_id: str, lease_s: float, every_s: float) -> None:
        self._check_process()
        self.stop_beating()
        pulse = Pulse(
            self._options, self._layout, self._clock, worker_id, lease_s, every_s, self._refuse
        )
        self._beating = Beating(
            pulse.beat,
            lease_s=lease_s,
            every_s=every_s,
            on_lost=self._lost_lease,
            on_end=pulse.close,
        )
        self._beating.start()

    def outlive(self, until: threading.Event) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.stop_after(until)

    def stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.stop()
            self._beating = None

    def _lost_lease(self) -> None:
        if self.on_lost_lease is not None:
            self.on_lost_lease()

    def _refuse(self, reason: StoreRefused) -> None:
        """From now on, for good: newer code has shut this code out. Called in the thread of the life signs too."""
        log.error("%s", reason)
        self._refused = reason.reason

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this store belongs to process {self._pid}; after a fork make a store of your own"
            )

    # --- writes ---

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        self._check_writable()
        applied = await self._decider.apply(batch_id, ops, decided)
        self._committed(applied)
        return applied

    def _check_writable(self) -> Calls:
        self._check_process()
        if self._calls is None:
            raise BatchFailed("the store is not open")
        if self._refused is not None:
            raise StoreBusy(self._refused)
        return self._calls

    def _committed(self, applied: list[Applied]) -> None:
        self.head = max(self.head, self._decider.known.head)
        if self._hints is not None:
            self._hints.tell(applied, self.worker_id, self.head, self._clock.now())

    def _heard(self, hint: Hint) -> None:
        if self.on_hint is not None:
            for wake in hint.wakes(self.worker_id):
                self.on_hint(wake)

    def now(self) -> int:
        return self._clock.now()

    async def fetch(self, looks: Looks, needs: Iterable[Need]) -> None:
        try:
            await self._fetcher.fetch(self._ask_now, looks, needs)
        except StoreRefused as error:
            raise (StoreBusy if error.passing else BatchFailed)(error.reason) from error
        except NotRunning as error:
            raise BatchFailed(str(error)) from error

    async def commit(self, changes: Changes) -> Written | Conflict:
        while True:
            calls = self._check_writable()
            answer = await self._write(calls, changes)
            kind, clock, *rest = answer
            self._clock.learn(int(clock))
            match kind:
                case b"written":
                    return self._written(rest)
                case b"overtaken":
                    return self._overtaken(changes, rest)
                case b"taken":
                    return everything(changes)
                case b"alone":
                    await asyncio.sleep(_pause_s)
                case b"restarted":
                    try:
                        await self._greet_again(calls)
                    except StoreRefused as error:
                        raise StoreBusy(error.reason) from error
                    except NotRunning as error:
                        raise BatchFailed(str(error)) from error
                    # All that is known may be of what is gone.
                    return everything(changes)
                case b"settled":
                    raise BatchFailed("somebody was told that this batch was not written")
                case _:
                    raise AssertionError(f"the script says {answer!r}")

    async def _write(self, calls: Calls, changes: Changes) -> list[Any]:
        try:
            argument = argument_of(
                self._layout,
                changes,
                server=self._server,
                epoch=self._epoch,
                alone=self._alone,
                now=self._clock.now(),
            )
        except ValueError as error:
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        try:
            async with calls.one() as client:
                answer: list[Any] = await run_script(client, self._layout, "apply", argument)
            return answer
        except BaseException as error:
            if is_lost(error):
                return await self._learn_the_answer(changes, error)
            if refuses_all(error):
                raise StoreBusy(f"{type(error).__name__}: {error}") from error
            if isinstance(error, exceptions.RedisError):
                raise await self._how_it_failed(changes, error) from error
            raise

    async def _how_it_failed(self, changes: Changes, error: Exception) -> Exception:
        """A script that stops cannot be undone: it does so before its first write, unless our keys are not ours."""
        reason = f"{type(error).__name__}: {error}"
        if await self._settle(changes.batch_id, BatchUnknown(reason)) is None:
            return BatchFailed(reason)
        log.critical("a batch was written in part: keys of %s are not ours: %s", self.url, error)
        return BatchUnknown(reason)

    def _written(self, rest: list[Any]) -> Written:
        head, commits, claimed = rest
        self._commits_seen = max(self._commits_seen, commits)
        slices = []
        for taken, later in claimed:
            found = [one for one in map(decode_run, taken) if one is not None]
            known = self._decider.known
            known.seq = max(known.seq, *(seq for _, seq in found), 0)
            next_at = time_of(later.decode()) if later else None
            slices.append((tuple(kept for kept, _ in found), next_at))
        return Written(int(head), tuple(slices))

    def _overtaken(self, changes: Changes, rest: list[Any]) -> Conflict:
        runs, units, seq, head, now = rest
        self._clock.not_before(int(now))
        return Conflict(
            runs=tuple(changes.runs[one - 1].run_id for one in runs),
            units=tuple(
                (changes.units[one - 1].kind, changes.units[one - 1].name) for one in units
            ),
            seq=int(seq),
            head=int(head),
            now=int(now),
        )

    async def _learn_the_answer(self, changes: Changes, error: BaseException) -> list[Any]:
        """After a lost connection: what the script would have said."""
        unknown = BatchUnknown(f"the connection was lost: {error or type(error).__name__}")
        head = await self._settle(changes.batch_id, unknown)
        if head is None:
            raise BatchLost(f"nothing was written: {unknown}") from error
        if changes.claims:
            # Which runs were claimed is not kept. Whoever claimed them looks at all that it holds.
            raise unknown from error
        return [b"written", self._clock.now(), head, self._commits_seen, []]

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        calls = self._check_writable()
        name = self._ids.ulid()
        key = self._layout.key("alone")
        try:
            async with calls.one(self.patience_s) as client:
                while not await client.set(key, name, nx=True, px=_alone_ms):  # noqa: ASYNC110
                    await asyncio.sleep(_pause_s)
        except (exceptions.RedisError, TimeoutError, NotRunning) as error:
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        self._alone = name
        try:
            yield
        finally:
            self._alone = ""
            try:
                async with calls.one(self.patience_s) as client:
                    await run_script(client, self._layout, "let_go", name)
            except (*_unreachable, NotRunning):
                log.debug("others wait until they are let go by themselves", exc_info=True)

    async def transact(self, batch_id: str, work: Transaction) -> list[Applied]:
        raise StoreRefused(
            "a step cannot be a transaction on Redis: it has none that could be read in"
        )

    async def write_outbox(self, connection: Any, row: OutboxRecord) -> None:
        self.write_outbox_here(connection, row)

    def write_outbox_here(self, connection: Any, row: OutboxRecord) -> None:
        borrowing.check_pipeline(connection, self._options)
        connection.hset(self._layout.key("outbox"), row.outbox_id, msgspec.json.encode(row))
        connection.zadd(self._layout.key("outbox", "all"), {row.outbox_id: 0})

    async def settle(self, batch_id: str) -> bool:
        """Whether that batch was committed. If it was not, it never will be: its id is taken."""
        return await self._settle(batch_id, BatchUnknown(batch_id)) is not None

    async def _settle(self, batch_id: str, unknown: BatchUnknown) -> int | None:
        """Where the ledger ended before that batch; None if it was not committed. Raises BatchUnknown."""
        try:
            head = await self._scripted("settle", batch_id, moment(self._clock.now()))
        except (StoreRefused, NotRunning) as error:
            raise BatchUnknown(f"{unknown}; {error}") from error
        return int(head) if head else None

    # --- for who looks after the store ---

    async def versions(self) -> Versions:
        self._check_process()
        calls = self._calls
        try:
            if calls is not None:
                async with calls.one(self.patience_s) as client:
                    return await opening.stored(client, self._layout)
            async with asyncio.timeout(self.patience_s):
                client = await connect(self._options)
                try:
                    return await opening.stored(client, self._layout)
                finally:
                    await client.aclose()
        except _unreachable as error:
            raise self._out_of_reach(error) from error

    async def describe(self) -> Described:
        facts = await self._plainly(lambda client: server_facts(client, self._layout))
        version = facts.get("valkey_version", facts["redis_version"])
        return Described(
            kind="redis",
            product="Valkey" if "valkey_version" in facts else "Redis",
            version=version,
            versions=await self.versions(),
            namespace=self.namespace,
            bytes=int(facts["used_memory"]),
            settings=tuple(judging.judged(facts)),
            facts={
                name: facts[name]
                for name in ("role", "connected_slaves", "used_memory", "maxmemory", "cluster")
                if name in facts
            },
            relaxed=self._options.relaxed,
        )

    async def backup(self, path: str) -> int:
        raise StoreRefused(
            "a store on Redis is backed up by Redis: BGSAVE and a copy of its RDB file, or a copy of its AOF directory "
            "(appenddirname) while auto-aof-rewrite-percentage is 0"
        )

    async def _scan(self, cursor: int) -> tuple[int, list[str]]:
        prefix = self._layout.prefix

        async def scan(client: Client) -> Any:
            pattern = glob_escaped(prefix) + "*"
            command = ("SCAN", str(cursor), "MATCH", pattern, "COUNT", str(_scanned))
            return await on_our_node(client, self._layout, *command)

        further, keys = await self._plainly(scan)
        return int(further), [one.decode().removeprefix(prefix) for one in keys]

    async def _plainly(self, ask: Callable[[Client], Awaitable[Any]]) -> Any:
        """Something that is asked of the server by commands, with no script."""
        self._check_process()
        calls = self._calls
        if calls is None:
            raise NotRunning("the store is not open: the app is closed, or closing")
        try:
            async with calls.one(self.patience_s) as client:
                return await ask(client)
        except _unreachable as error:
            raise self._out_of_reach(error, passing=is_lost(error)) from error

    # --- reads ---

    def _note_workers(self, workers: frozenset[str]) -> None:
        self.living = workers
        if self._hints is not None:
            self._hints.others = bool(workers - {self.worker_id})

    async def _note_server(self, server: str) -> None:
        calls = self._calls
        if server != self._server and calls is not None:
            async with self._decider.turn:  # not while a batch is decided on what is known
                await self._greet_again(calls)

    async def _ask(self, questions: Sequence[Question]) -> Reply:
        self._check_process()
        if self._refused is not None:
            raise StoreRefused(self._refused)
        return await self._ask_now(questions)

    async def _ask_now(self, questions: Sequence[Question]) -> Reply:
        return await fetching.answered(self._ask_once, questions)

    async def _ask_once(self, questions: Sequence[Question]) -> Reply:
        clock, head, commits, epoch, answers, insides = await self._scripted(
            "ask", msgspec.msgpack.encode(questions), fetching.looked_max
        )
        self._clock.learn(int(clock))
        if epoch.decode() == self._epoch:  # of another one nothing is lost that we have seen
            self._commits_seen = max(self._commits_seen, int(commits))
        return Reply(int(clock), int(head), int(commits), answers, insides)

    async def _scripted(self, name: str, *arguments: Any) -> Any:
        """What a script says that may be run twice, if a connection is lost."""
        calls = self._calls
        if calls is None:
            raise NotRunning("the store is not open: the app is closed, or closing")

        async def once() -> Any:
            # A server that vanished without a word is missed by nobody but us.
            async with calls.one(self.patience_s) as client:
                return await run_script(client, self._layout, name, *arguments)

        try:
            return await self._reaching.until_reached(once)
        except BaseException as error:
            if is_lost(error):
                raise self._out_of_reach(error, passing=True) from error
            if isinstance(error, exceptions.RedisError):
                passing = refuses_all(error)
                reason = f"{self.url} does not answer: {type(error).__name__}: {error}"
                raise StoreRefused(reason, passing=passing) from error
            raise
