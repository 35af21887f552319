"""Whether the indexes are what the rows make them: every key of a namespace is looked at, while others write.

Written from the description in layout.py, not from the code that keeps the indexes. A **subject** is a row that
indexes lead to: a run, a wait, a signal, an event, an item, and so on. What it is to be found by is worked out from the
row (`_expected`). Then both ways: each row must be in the indexes it asks for, and whatever an index holds must be
asked for by a row. A row and the entries that are compared with it are read in one call, so they are of one moment; a
row that has moved since it was read is taken anew. Keys that nothing accounts for would never be found by a read, and
would fill the memory: they are told as well.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.errors import StoreRefused
from perdure.model.records import RunRecord, SignalRecord, WatcherRecord, entity_text
from perdure.model.status import LIVE
from perdure.store.base import Flaw
from perdure.store.redis import fetching
from perdure.store.redis.fetching import Question, Reply
from perdure.store.redis.layout import SEP, Layout, is_indexed, line_member, moment, place
from perdure.store.redis.rows import decode_event, decode_key, decode_run, decode_watcher

# Subjects, or entries of an index, that one call looks at: some milliseconds of the server's time.
_part: Final = 100
# How often a row that moves is taken anew, before it is left: it is at work.
_tries_max: Final = 5

# Kept as they are: nothing leads to them.
_plain: Final = frozenset(
    "meta head units counts commits commits:age alone consumers subscriptions pools workers workflows channels "
    "fan_outs".split()
)
# Hashes of rows, by the kind of subject that each field is; the first is the table they are counted in.
_rows: Final = {
    "items": ("queue_items", "item"),
    "keys": ("keys", "key"),
    "letters": ("dead_letters", "letter"),
    "schedules": ("schedules", "schedule"),
    "parked": ("parked", "parked"),
    "deferred": ("deferred", "deferred"),
    "outbox": ("", "outbox"),
}
# Likewise those of one run, whose id follows in the name of the key; of some nothing is indexed.
_rows_of_runs: Final = {
    "waits": ("watchers", "wait"),
    "signals": ("signals", "signal"),
    "open": ("steps", ""),
    "steps": ("steps", ""),
    "cursors": ("cursors", ""),
    "streams": ("streams", ""),
    "stream": ("stream_items", ""),
}
_counted: Final = ("consumers", "subscriptions", "pools", "workers", "workflows", "channels")
# Indexes that are sets, not sorted ones.
_sets: Final = frozenset(
    ("ready_names", "owners", "queues", "lines", "children", "root", "keys_of", "deferred:of")
)
# Names of indexes that hold something: the index of each.
_names: Final = {
    "ready_names": "ready:",
    "owners": "owned:",
    "queues": "queue:",
    "lines": "line_age:",
}
_advice: Final = (
    "no op mends an index: stop the workers and restore the server from its last good RDB or AOF file; or, knowing the "
    "row to be right, add or remove just this entry"
)

Ask = Callable[[Sequence[Question]], Awaitable[Reply]]
Scan = Callable[[int], Awaitable[tuple[int, list[str]]]]


class Subject(NamedTuple):
    """A row that indexes lead to."""

    kind: str
    at: tuple[str, ...]


class Entry(NamedTuple):
    """A member of an index, by the name of its key."""

    key: str
    member: str
    score: float = 0


class Drift:
    """One look at a namespace."""

    def __init__(self, layout: Layout, ask: Ask, scan: Scan) -> None:
        self._key = layout.key
        self._ask = ask
        self._scan = scan
        self._counts: Counter[str] = Counter()

    async def flaws(self) -> AsyncIterator[Flaw]:
        try:
            async for flaw in self._all():
                yield flaw
        except StoreRefused as refused:
            if refused.passing:
                raise
            what = f"the indexes could not be looked at: {refused.reason}"
            advice = "let this user use SCAN and HSCAN, or look as another one"
            yield Flaw(invariant="X4", what=what, advice=advice, doubt=True)

    async def _all(self) -> AsyncIterator[Flaw]:
        commits = (await self._ask([])).commits
        seen: set[str] = set()
        cursor, first = 0, True
        while cursor or first:
            cursor, keys = await self._scan(cursor)
            first = False
            # Of those of a run one that is seen twice does no harm but to the counts.
            fresh = [key for key in keys if _is_of_run(key) or key not in seen]
            seen.update(key for key in fresh if not _is_of_run(key))
            runs = [_run_of(key) for key in fresh]
            async for flaw in self._from_rows([one for one in runs if one is not None]):
                yield flaw
            # All at once: each takes some questions, and a server far away as many times its distance.
            others = [key for key, run in zip(fresh, runs, strict=True) if run is None]
            for flaws in await asyncio.gather(*map(self._flaws_of, others)):
                for flaw in flaws:
                    yield flaw
        async for flaw in self._ledger():
            yield flaw
        reply = await self._ask([("HGETALL", self._key("counts"))])
        for flaw in self._wrong_counts(reply, commits):
            yield flaw

    def _wrong_counts(self, reply: Reply, commits: int) -> Iterator[Flaw]:
        """How many rows there are is told by numbers that are kept beside them: to be compared while nobody writes."""
        flat = reply.answers[0]
        told = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
        counted = {name: n for name, n in self._counts.items() if n and name}
        kept = {name: n for name, n in told.items() if n}
        if reply.commits != commits:
            what = "how many rows there are was not compared: there were commits meanwhile"
            yield Flaw(invariant="C1", what=what, doubt=True)
        elif counted != kept:
            wrong = [
                f"{kept.get(name, 0)} {name} for {counted.get(name, 0)}"
                for name in sorted(counted.keys() | kept.keys())
                if kept.get(name, 0) != counted.get(name, 0)
            ]
            yield Flaw(
                invariant="C1",
                what=f"the counts of rows are wrong: {', '.join(wrong)}",
                advice=f"listings are right all the same; set these fields of the hash {self._key('counts')} right",
            )

    # --- one key ---

    async def _flaws_of(self, key: str) -> list[Flaw]:
        return [flaw async for flaw in self._of_key(key)]

    async def _of_key(self, key: str) -> AsyncIterator[Flaw]:
        kind, _, rest = key.partition(":")
        if key in _plain:
            if key in _counted or key == "fan_outs":
                self._counts[key] += await self._one("HLEN", self._key(key))
            return
        if key in ("events", "event_ids"):
            return  # with the ledger
        if key in _rows:
            table, subject = _rows[key]
            async for flaw in self._hash(key, table, subject, ()):
                yield flaw
        elif kind in _rows_of_runs and rest:
            async for flaw in self._of_run(key, kind, rest):
                yield flaw
        elif key == "signal_ids":
            async for flaw in self._signal_ids():
                yield flaw
        elif _family(key) is None:
            yield self._flaw(f"the key {self._key(key)!r} is none of a namespace")
        else:
            async for flaw in self._index(key):
                yield flaw

    async def _of_run(self, key: str, kind: str, rest: str) -> AsyncIterator[Flaw]:
        """Rows that belong to a run: it must be there."""
        table, subject = _rows_of_runs[kind]
        run_id = rest.rpartition(":")[0] if kind == "steps" else rest.partition(SEP)[0]
        length = ("XLEN" if kind == "stream" else "HLEN", self._key(key))
        asked: list[Question] = [("EXISTS", self._key("run", run_id)), length]
        if kind == "steps":
            asked.append(("HEXISTS", self._key(key), "!seq"))
        there, rows, *marks = (await self._ask(asked)).answers
        if rows and not there:
            yield Flaw(
                invariant="X3",
                what=f"{table} of run {run_id!r}, which is not there",
                run_id=run_id,
                advice=f"restore the run from a backup, or delete the key {self._key(key)!r}",
            )
        if subject:
            async for flaw in self._hash(key, table, subject, (run_id,)):
                yield flaw
        else:
            self._counts[table] += rows - sum(marks)

    async def _hash(
        self, key: str, table: str, subject: str, of: tuple[str, ...]
    ) -> AsyncIterator[Flaw]:
        cursor, first = 0, True
        while cursor or first:
            further, flat = await self._one("HSCAN", self._key(key), str(cursor), "COUNT", "100")
            cursor, first = int(further), False
            fields = dict.fromkeys(one.decode() for one in flat[::2])
            self._counts[table] += len(fields)
            async for flaw in self._from_rows(Subject(subject, (*of, one)) for one in fields):
                yield flaw

    async def _ledger(self) -> AsyncIterator[Flaw]:
        """Every event is found by its id, by its type, by when it happened and by what it is about."""
        after = "-"
        while True:
            page = await self._one("XRANGE", self._key("events"), after, "+", "COUNT", str(_part))
            if not page:
                break
            self._counts["events"] += len(page)
            places = [entry[0].decode() for entry in page]
            after = f"({places[-1]}"
            subjects = [Subject("event", (one.partition("-")[0],)) for one in places]
            async for flaw in self._from_rows(subjects):
                yield flaw
        there, ids = (
            await self._ask([("XLEN", self._key("events")), ("HLEN", self._key("event_ids"))])
        ).answers
        if ids != there:
            yield self._flaw(f"{there} events have {ids} ids")

    # --- from rows to indexes ---

    async def _from_rows(self, subjects: Iterable[Subject]) -> AsyncIterator[Flaw]:
        """What these rows are to be found by, and are not."""
        left = list(subjects)
        for _ in range(_tries_max):
            moved: list[Subject] = []
            for begin in range(0, len(left), _part):
                async for flaw in self._compare(left[begin : begin + _part], moved):
                    yield flaw
            left = moved
            if not left:
                break

    async def _compare(self, subjects: list[Subject], moved: list[Subject]) -> AsyncIterator[Flaw]:
        asked = [self._question(one) for one in subjects]
        rows = (await self._ask(asked)).answers
        expected = [list(_expected(one, row)) for one, row in zip(subjects, rows, strict=True)]
        checks = [self._membership(entry) for entries in expected for entry in entries]
        answers = (await self._ask([*asked, *checks])).answers
        again, found = answers[: len(asked)], iter(answers[len(asked) :])
        for subject, row, now, entries in zip(subjects, rows, again, expected, strict=True):
            scores = [next(found) for _ in entries]
            if now != row:
                moved.append(subject)
                continue
            for entry, score in zip(entries, scores, strict=True):
                if not _holds(entry, score):
                    what = (
                        f"{_words(subject)} is not in {self._key(entry.key)!r} as {entry.member!r}"
                    )
                    yield self._flaw(what, subject)

    def _question(self, subject: Subject) -> Question:
        kind, at = subject
        match kind:
            case "run":
                return ("run", *at)
            case "wait" | "signal":
                return ("HGET", self._key(f"{kind}s", at[0]), at[1])
            case "event":
                return ("events_at", [int(at[0])])
            case "parked" | "deferred" | "outbox":
                return ("HGET", self._key(kind), *at)
            case _:
                return ("HGET", self._key(f"{kind}s"), *at)

    def _membership(self, entry: Entry) -> Question:
        key = self._key(entry.key)
        family = _family(entry.key)
        if entry.key in ("event_ids", "signal_ids"):
            return ("HGET", key, entry.member)
        if family == "type":
            return ("XRANGE", key, f"{entry.member}-0", f"{entry.member}-0")
        return ("SISMEMBER" if family in _sets else "ZSCORE", key, entry.member)

    # --- from indexes to rows ---

    async def _index(self, key: str) -> AsyncIterator[Flaw]:
        """What an index holds and no row asks for; and that it is named, if there is a list of such names."""
        named = _named(key)
        if named is not None:
            listed = "SISMEMBER" if _family(named.key) in _sets else "ZSCORE"
            asked = [("EXISTS", self._key(key)), (listed, self._key(named.key), named.member)]
            there, is_named = (await self._ask(asked)).answers
            if there and is_named in (0, None):
                yield self._flaw(f"{self._key(key)!r} is not named in {self._key(named.key)!r}")
        async for page in self._pages(key):
            async for flaw in self._unasked(key, page):
                yield flaw

    async def _pages(self, key: str) -> AsyncIterator[list[Entry]]:
        """The entries of an index, in pages."""
        name = (await self._one("TYPE", self._key(key))).decode()
        if name == "set":
            async for page in self._scanned(key, "SSCAN", 1):
                yield page
        elif name == "zset":
            async for page in self._scanned(key, "ZSCAN", 2):
                yield page
        elif name == "stream":
            after = "-"
            while found := await self._one(
                "XRANGE", self._key(key), after, "+", "COUNT", str(_part)
            ):
                after = f"({found[-1][0].decode()}"
                yield [Entry(key, one[0].decode().partition("-")[0]) for one in found]

    async def _scanned(self, key: str, command: str, step: int) -> AsyncIterator[list[Entry]]:
        cursor, first = 0, True
        while cursor or first:
            found = await self._one(command, self._key(key), str(cursor), "COUNT", str(_part))
            cursor, first = int(found[0]), False
            yield [Entry(key, one.decode()) for one in dict.fromkeys(found[1][::step])]

    async def _unasked(self, key: str, page: list[Entry]) -> AsyncIterator[Flaw]:
        """Each with its row, from one moment."""
        if key in _names or _family(key) == "line_keys":
            prefix = _names.get(key) or f"line:{key.partition(':')[2]}{SEP}"
            indexes = [self._key(prefix + one.member) for one in page]
            asked = [("EXISTS", one) for one in indexes]
            answers = (await self._ask([*asked, *map(self._membership, page)])).answers
            for nth, entry in enumerate(page):
                if answers[len(page) + nth] not in (0, None) and not answers[nth]:
                    yield self._flaw(
                        f"{self._key(key)!r} names {entry.member!r}, which holds nothing"
                    )
            return
        subjects = [_subject_of(one) for one in page]
        asked = [self._question(one) for one in subjects if one is not None]
        answers = (await self._ask([*asked, *map(self._membership, page)])).answers
        rows, there = iter(answers[: len(asked)]), answers[len(asked) :]
        for entry, subject, is_there in zip(page, subjects, there, strict=True):
            row = None if subject is None else next(rows)
            if is_there in (0, None, []):
                continue  # gone by now
            wanted = () if subject is None else _expected(subject, row)
            if not any((one.key, one.member) == (entry.key, entry.member) for one in wanted):
                whose = "nothing" if subject is None else _words(subject)
                what = f"{self._key(key)!r} holds {entry.member!r}, and {whose} does not ask for it"
                yield self._flaw(what, subject)

    async def _signal_ids(self) -> AsyncIterator[Flaw]:
        """Where buffered signals are, by their ids: a hash with the run of each."""
        cursor, first = 0, True
        while cursor or first:
            key = self._key("signal_ids")
            further, flat = await self._one("HSCAN", key, str(cursor), "COUNT", str(_part))
            cursor, first = int(further), False
            ids = dict(zip(flat[::2], flat[1::2], strict=True))
            asked: list[Question] = [("HGET", key, one.decode()) for one in ids]
            asked += [
                ("HEXISTS", self._key("signals", run.decode()), one.decode())
                for one, run in ids.items()
            ]
            answers = (await self._ask(asked)).answers
            for nth, (one, run) in enumerate(ids.items()):
                if answers[nth] == run and not answers[len(ids) + nth]:
                    what = f"{key!r} holds {one.decode()!r}, and run {run.decode()!r} has no such signal"
                    yield self._flaw(what, Subject("signal", (run.decode(), one.decode())))

    async def _one(self, *question: Any) -> Any:
        return (await self._ask([question])).answers[0]

    def _flaw(self, what: str, subject: Subject | None = None) -> Flaw:
        of_run = subject is not None and subject.kind in ("run", "wait", "signal")
        run_id = subject.at[0] if subject is not None and of_run else None
        return Flaw(invariant="X4", what=what, run_id=run_id, advice=_advice)


def _words(subject: Subject) -> str:
    return f"{subject.kind} {' '.join(subject.at)!r}"


def _run_of(key: str) -> Subject | None:
    """The run whose row a key holds."""
    kind, _, run_id = key.partition(":")
    return Subject("run", (run_id,)) if kind == "run" and run_id else None


def _is_of_run(key: str) -> bool:
    """Whether there may be any number of such keys."""
    return key.partition(":")[0] in ("run", *_rows_of_runs)


# --- what a row is to be found by --------------------------------------------------------------------


def _expected(subject: Subject, row: Any) -> Iterator[Entry]:
    """Every entry that a row asks for; none if there is no such row."""
    kind, at = subject
    if row is None or (kind == "run" and row[1] is None) or (kind == "event" and not row):
        return
    match kind:
        case "run":
            found = decode_run(row)
            assert found is not None
            yield from _of_run(found[0].run)
        case "wait":
            yield from _of_watcher(decode_watcher(row), at[1])
        case "signal":
            yield from _of_signal(fetching.decode_signal(row))
        case "event":
            yield from _of_event(row[0])
        case "item":
            item = fetching.decode_item(row)
            yield Entry(f"queue:{item.queue}", place(item.position) + item.item_id)
        case "key":
            key = decode_key(row)
            if key.run_id is not None:
                yield Entry(f"keys_of:{key.run_id}", at[0])
            if key.expires_at is not None:
                yield Entry("keys:expiry", moment(key.expires_at) + at[0])
        case "letter":
            yield Entry("letters:all", at[0])
            yield Entry(f"letters:of:{fetching.decode_letter(row).run_id}", at[0])
        case "schedule":
            schedule = fetching.decode_schedule(row)
            yield Entry("schedules:all", at[0])
            if schedule.due_at is not None:
                yield Entry("schedules:due", moment(schedule.due_at) + at[0])
                yield Entry(f"due:{schedule.workflow}", moment(schedule.due_at) + at[0])
        case "parked":
            yield Entry("parked:all", at[0])
            yield Entry("parked:age", place(fetching.decode_parked(row).position) + SEP + at[0])
        case "deferred":
            yield Entry("deferred:all", at[0])
            yield Entry(f"deferred:of:{fetching.decode_deferred(row).subscription}", at[0])
        case "outbox":
            yield Entry("outbox:all", at[0])


def _of_run(run: RunRecord) -> Iterator[Entry]:
    run_id, member = run.run_id, moment(run.created_at) + run.run_id
    for key in _listings(run):
        yield Entry(key, member)
    if run.root_id is not None:
        yield Entry(f"root:{run.root_id}", run_id)
    if run.parent_run_id is not None and run.status in LIVE:
        yield Entry(f"children:{run.parent_run_id}", run_id)
    if run.finished_at is not None:
        yield Entry("runs:finished", moment(run.finished_at) + run_id)
    owner = run.owner or ""
    if run.status == "running":
        yield Entry(f"owned:{owner}", run_id)
    if owner:
        yield Entry(f"held:{owner}", run_id)
    if run.ready_at is not None:
        name = f"{run.workflow}:{run.version}"
        part = f"{run.pool}{SEP}{name}" if run.pool else name
        yield Entry(f"ready:{part}", moment(run.ready_at) + run_id)
    shared = f"{run.pool}{SEP}{run.pool_key}"
    if run.line_at is not None:
        yield Entry(f"line:{shared}", line_member(run, run.line_at, run.admitted))
        yield Entry(f"line_age:{run.pool}", moment(run.line_at) + run_id)
        if run.admitted:
            yield Entry(f"begun:{run.pool}", run_id)
    elif run.pool and run.status in ("ready", "running"):
        yield Entry(f"slots:{run.pool}", run_id)
        yield Entry(f"slots:{shared}", run_id)


def _listings(run: RunRecord) -> Iterator[str]:
    yield "runs"
    yield f"runs:status:{run.status}"
    yield f"runs:workflow:{run.workflow}"
    if run.entity_type is not None:
        yield f"runs:entity:{entity_text(run.entity_type, run.entity_id)}"
    if run.parent_run_id is not None:
        yield f"runs:parent:{run.parent_run_id}"
    for name, value in msgspec.json.decode(run.tags or "{}").items():
        yield f"runs:tag:{name}"
        yield f"runs:tag:{name}{SEP}{value}"


def _of_watcher(watcher: WatcherRecord, field: str) -> Iterator[Entry]:
    at = f"{watcher.run_id}{SEP}{field}"
    member = moment(watcher.opened_at) + at
    if watcher.target:
        yield Entry(f"watch:{watcher.kind}:{watcher.target}", member)
    if watcher.kind == "topic":
        yield Entry(f"watch:about:{watcher.target}{SEP}{watcher.entity}", member)
    if watcher.kind == "match":
        yield Entry("matches", SEP.join((watcher.target, watcher.entity, member)))
    if watcher.kind == "approval":
        yield Entry("approvals", member)
    if watcher.deadline_at is not None and not watcher.held:
        yield Entry("deadlines", moment(watcher.deadline_at) + at)


def _of_signal(signal: SignalRecord) -> Iterator[Entry]:
    yield Entry("signal_ids", signal.signal_id)
    if signal.expires_at is not None:
        at = moment(signal.expires_at) + place(signal.position)
        yield Entry("expiries", SEP.join((at, signal.run_id, signal.signal_id)))


def _of_event(entry: Any) -> Iterator[Entry]:
    event = decode_event(entry)
    position, about = event.position, entity_text(event.entity_type, event.entity_id)
    member = moment(event.occurred_at) + place(position)
    yield Entry("event_ids", event.event_id, position)
    yield Entry(f"type:{event.type}", str(position))
    yield Entry("times", member)
    if about:
        yield Entry("timelines", about + SEP + member)
        if is_indexed(event.type, about):
            repeated = "1" if event.repeated else "0"
            yield Entry(f"topic:{event.type}{SEP}{about}", f"{repeated}{position}", position)
            yield Entry(f"entity:{about}", str(position), position)


def _holds(entry: Entry, found: Any) -> bool:
    """Whether what was found under an entry is what the row asks for."""
    if found in (None, 0, []):
        return False
    if entry.key == "event_ids" or _family(entry.key) in ("topic", "entity"):
        return float(found) == entry.score
    return True


# --- what an entry leads to ---------------------------------------------------------------------------


def _run_after_time(member: str) -> Subject | None:
    return Subject("run", (member[18:],))


def _run_itself(member: str) -> Subject | None:
    return Subject("run", (member,))


def _run_in_line(member: str) -> Subject | None:
    return Subject("run", (member[22:].partition(SEP)[0],))


def _wait(member: str) -> Subject | None:
    run_id, _, field = member[18:].partition(SEP)
    return Subject("wait", (run_id, field))


def _match(member: str) -> Subject | None:
    parts = member.split(SEP, 2)
    return _wait(parts[2]) if len(parts) == 3 else None


def _signal(member: str) -> Subject | None:
    parts = member.split(SEP)
    return Subject("signal", (parts[1], parts[2])) if len(parts) == 3 else None


def _event_last(member: str) -> Subject | None:
    return _event_at(member[-16:])


def _event_repeated(member: str) -> Subject | None:
    return _event_at(member[1:])


def _event_at(member: str) -> Subject | None:
    return Subject("event", (str(int(member)),)) if member.isdecimal() else None


def _row(kind: str, cut: int = 0) -> Callable[[str], Subject | None]:
    return lambda member: Subject(kind, (member[cut:],))


# By the family of an index: which row asks for a member of it.
_subjects: Final[dict[str, Callable[[str], Subject | None]]] = {
    "runs": _run_after_time,
    "ready": _run_after_time,
    "line_age": _run_after_time,
    "line": _run_in_line,
    "slots": _run_itself,
    "begun": _run_itself,
    "owned": _run_itself,
    "held": _run_itself,
    "root": _run_itself,
    "children": _run_itself,
    "watch": _wait,
    "approvals": _wait,
    "deadlines": _wait,
    "matches": _match,
    "expiries": _signal,
    "times": _event_last,
    "timelines": _event_last,
    "type": _event_at,
    "entity": _event_at,
    "topic": _event_repeated,
    "queue": _row("item", 16),
    "keys_of": _row("key"),
    "keys:expiry": _row("key", 18),
    "letters:all": _row("letter"),
    "letters:of": _row("letter"),
    "schedules:all": _row("schedule"),
    "schedules:due": _row("schedule", 18),
    "due": _row("schedule", 18),
    "parked:all": _row("parked"),
    "parked:age": _row("parked", 17),
    "deferred:all": _row("deferred"),
    "deferred:of": _row("deferred"),
    "outbox:all": _row("outbox"),
}
# Of two words, or whose name is all of the key.
_double: Final = frozenset(one for one in _subjects if ":" in one)
_alone: Final = frozenset(
    "approvals deadlines matches expiries times timelines signal_ids event_ids".split()
)


def _family(key: str) -> str | None:
    """Of which kind an index is, by the name of its key; None if there is none of that name."""
    if key in _names or key in _alone or key == "runs":
        return key
    first, _, rest = key.partition(":")
    double = f"{first}:{rest.partition(':')[0]}"
    if double in _double:
        return double
    if not rest or first in _alone:
        return None
    return first if first in _subjects or first == "line_keys" else None


def _subject_of(entry: Entry) -> Subject | None:
    find = _subjects.get(_family(entry.key) or "")
    return None if find is None else find(entry.member)


def _named(key: str) -> Entry | None:
    """Where an index is named as one that holds something."""
    family, _, rest = key.partition(":")
    match family:
        case "ready":
            return Entry("ready_names", rest)
        case "owned":
            return Entry("owners", rest)
        case "queue":
            return Entry("queues", rest)
        case "line_age":
            return Entry("lines", rest)
        case "line":
            pool, _, of = rest.partition(SEP)
            return Entry(f"line_keys:{pool}", of)
    return None
