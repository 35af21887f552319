"""By name and JSON alone, as HTTP and the command line have it: starts, and payloads that only a schema can check."""

import json
import sys
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from perdure import (
    App,
    BadValue,
    Buffered,
    Conflict,
    Context,
    Delivered,
    Emitted,
    InvalidPayload,
    Pool,
    Queue,
    Queued,
    Refused,
    Signal,
    Topic,
    Uncheckable,
    UnknownWorkflow,
)


@dataclass
class Order:
    sku: str
    count: int = 1


@dataclass
class Receipt:
    order: Order
    after: timedelta


# What our own checker does not know, so that a sender without the code needs another.
Even = Annotated[int, msgspec.Meta(extra_json_schema={"not": {"const": 0}})]
Odd = Annotated[int, msgspec.Meta(extra_json_schema={"not": {"const": 1}})]
# And what nobody can check in bounded time.
Twice = Annotated[str, msgspec.Meta(pattern=r"^(a+)\1*b+$")]

even = Signal("even", Even, buffer="all")
twice = Signal("twice", Twice, buffer="all")
paid = Topic("order.paid", Even)
jobs = Queue("jobs", Even)
cancelled = Topic("order.cancelled", int)


def shop() -> App:
    app = App("memory://")
    app.add(paid)
    app.add(jobs)

    @app.workflow(pool=Pool("shipping", limit=2))
    async def fulfil(ctx: Context, order: Order, after: timedelta = timedelta(0)) -> Receipt:
        return Receipt(order, after)

    @app.workflow(name="fulfil", version=2, cancel_on=cancelled)
    async def fulfil_2(ctx: Context, order: Order) -> Receipt:
        await ctx.sleep("1h")
        return Receipt(order, timedelta(0))

    @app.workflow(signals=[even, twice])
    async def listening(ctx: Context) -> int:
        return await ctx.wait(even)

    @app.workflow(signals=[even])
    async def failing(ctx: Context) -> int:
        number = await ctx.wait(even)
        if number == 1:
            raise ValueError("one")
        return number

    @app.workflow
    async def odd(ctx: Context, number: Even) -> int:
        return number

    return app


def client() -> App:
    """An app that has none of the code."""
    return App("memory://", worker=False)


# --- starts, with the code -----------------------------------------------------------------------


async def test_a_registered_name_takes_plain_json(world: Any) -> None:
    async with world(shop()) as w:
        run = await w.begin("fulfil", {"sku": "a", "count": 2}, "PT90S", version=1)
        assert await run.result() == Receipt(Order("a", 2), timedelta(seconds=90))
        run = await w.begin("fulfil", Order("b"), "PT1S", version=1)
        assert await run.result() == Receipt(Order("b"), timedelta(seconds=1))
        run = await w.begin("fulfil", {"sku": "a"}, timedelta(1), version=1)
        assert await run.result() == Receipt(Order("a"), timedelta(1))


async def test_what_does_not_fit_is_told_by_its_parameter(world: Any) -> None:
    async with world(shop()) as w:
        for args, words in (
            (({"sku": 5},), "at order.sku"),
            (({"sku": "a"}, "soon"), "at after"),
            ((), "0 arguments given, 1 to 2 wanted"),
            (({"sku": "a"}, object()), "after"),
        ):
            with pytest.raises(InvalidPayload, match=words):
                await w.app.start("fulfil", *args, version=1)
        assert len(await w.app.runs()) == 0


async def test_json_is_the_same_input_as_the_value(world: Any) -> None:
    """Under one id both find the same run."""
    async with world(shop()) as w:
        run = await w.begin("fulfil", {"sku": "a"}, id="a", version=1)
        again = await w.app.start("fulfil", Order("a"), id="a", version=1)
        assert run.created and not again.created


async def test_a_version_belongs_to_a_name(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async with world(app) as w:
        with pytest.raises(BadValue, match="version"):
            await w.app.start(flow, version=1)  # type: ignore[call-overload]
        for bad in (0, True, "1", 2**70):
            with pytest.raises(BadValue, match="version"):
                await w.app.start("flow", version=bad)
        with pytest.raises(UnknownWorkflow, match="flow version 2"):
            await w.app.start("flow", version=2)


# --- starts, without the code --------------------------------------------------------------------


async def test_a_workflow_of_the_catalogue_is_started(world: Any) -> None:
    async with world(shop()):
        pass
    async with world(client()) as c:
        old = await c.app.start("fulfil", {"sku": "a"}, "PT1S", id="old", version=1)
        new = await c.app.start("fulfil", {"sku": "b"}, id="new", entity="order/1", tags={"a": "b"})
        assert (await old.info()).version == 1 and (await new.info()).version == 2
        rows = {one: await c.store.run(one) for one in ("old", "new")}
        assert (rows["old"].pool, rows["new"].pool) == ("shipping", "")
        assert rows["new"].owner is None
        again = await c.app.start("fulfil", {"sku": "b"}, id="new", entity="order/1")
        assert not again.created
    async with world(shop()) as w:
        await w.settle()
        assert await w.app.run("old").result() == {
            "order": {"sku": "a", "count": 1},
            "after": "PT1S",
        }
        await w.app.emit(cancelled, 1, entity="order/1")
        await w.settle()
        assert await w.app.run("new").status() == "cancelled"


async def test_its_input_is_checked_by_the_schema(world: Any) -> None:
    async with world(shop()):
        pass
    async with world(client()) as c:
        for args in ((), ({"sku": 5},), ({"sku": "a"}, 5), ({"sku": "a"}, "PT1S", 3)):
            with pytest.raises(InvalidPayload, match="the input of workflow 'fulfil'"):
                await c.app.start("fulfil", *args, version=1)
        with pytest.raises(BadValue, match="give entity="):
            await c.app.start("fulfil", {"sku": "a"})
        assert len(await c.app.runs()) == 0


async def test_a_name_that_nobody_has_is_told_with_all_there_are(world: Any, app: App) -> None:
    @app.workflow
    async def own(ctx: Context) -> None: ...

    async with world(shop()):
        pass
    async with world(app) as w:
        with pytest.raises(UnknownWorkflow) as unknown:
            await w.app.start("fulfill")
        assert unknown.value.known == ["own"]
        assert unknown.value.elsewhere == ["failing", "fulfil", "listening", "odd"]
        assert "other apps have: failing, fulfil" in str(unknown.value)
        with pytest.raises(UnknownWorkflow, match="fulfil version 3"):
            await w.app.start("fulfil", version=3)


async def test_a_worker_without_the_code_leaves_the_run_to_others(world: Any, app: App) -> None:
    @app.workflow
    async def own(ctx: Context) -> None: ...

    async with world(shop()):
        pass
    async with world(app) as w:
        run = await w.begin("fulfil", {"sku": "a"}, id="a", version=1)
        assert await run.status() == "ready"
        (row,) = await w.app.waiting("a")
        assert row.kind == "slot" or row.kind == "worker"
    async with world(shop()) as w:
        await w.settle()
        assert await w.app.run("a").status() == "completed"


async def test_a_signal_starts_its_run_by_names_alone(world: Any) -> None:
    async with world(shop()):
        pass
    async with world(client()) as c:
        with pytest.raises(InvalidPayload):
            await c.app.signal_with_start("listening", signal="even", payload=0, id="a")
        with pytest.raises(InvalidPayload):
            await c.app.signal_with_start("listening", signal="even", payload="x", id="a")
        assert len(await c.app.runs()) == 0
        run, sent = await c.app.signal_with_start("listening", signal="even", payload=2, id="a")
        assert run.created and isinstance(sent, Buffered)
    async with world(shop()) as w:
        await w.settle()
        assert await w.app.run("a").result() == 2
        run, _ = await w.app.signal_with_start("listening", signal="even", payload=4, id="b")
        assert await run.result() == 4


async def test_a_run_that_is_there_takes_what_its_own_version_takes(world: Any) -> None:
    newer = App("memory://")

    @newer.workflow(name="listening", version=2, signals=[Signal("even", Odd, buffer="all")])
    async def listening(ctx: Context) -> None: ...

    async with world(shop()) as w:
        await w.begin("listening", id="a")
    async with world(newer):
        pass
    async with world(client()) as c:
        for id, fits, misfits in (("a", 1, 0), ("new", 0, 1)):
            with pytest.raises(InvalidPayload):
                await c.app.signal_with_start("listening", signal="even", payload=misfits, id=id)
            run, _ = await c.app.signal_with_start("listening", signal="even", payload=fits, id=id)
            assert run.created == (id == "new")


# --- payloads that only another checker can decide -----------------------------------------------


@pytest.fixture
def no_jsonschema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)


async def test_what_our_checker_does_not_know_is_checked_all_the_same(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("listening", id="a")
    async with world(client()) as c:
        before = await c.store.counts()
        with pytest.raises(InvalidPayload, match="at \\$: "):
            await c.app.signal("a", "even", 0)
        with pytest.raises(InvalidPayload):
            await c.app.signal("a", "even", 0, key="k")
        with pytest.raises(InvalidPayload):
            await c.app.emit("order.paid", 0)
        with pytest.raises(InvalidPayload):
            await c.app.put("jobs", 0)
        with pytest.raises(InvalidPayload):
            await c.app.start("odd", 0)
        with pytest.raises(InvalidPayload):
            await c.app.schedule("1h", "odd", 0)
        refused = await c.app.signal_many([("a", "even", 0), ("a", "even", "x")])
        refused += await c.app.emit_many([("order.paid", 0)])
        assert all(isinstance(one.error, InvalidPayload) for one in refused)
        assert await c.store.counts() == before
        assert isinstance(await c.app.signal("a", "even", 2, key="k"), Delivered)
        assert isinstance((await c.app.signal_many([("a", "even", 4)]))[0], Buffered)
        assert isinstance(await c.app.emit("order.paid", 2), Emitted)
        assert isinstance((await c.app.emit_many([("order.paid", 4)]))[0], Emitted)
        assert isinstance(await c.app.put("jobs", 2), Queued)
        assert (await c.app.start("odd", 2)).created


async def test_without_the_other_checker_it_is_refused(world: Any, no_jsonschema: None) -> None:
    async with world(shop()) as w:
        await w.begin("listening", id="a")
    async with world(client()) as c:
        before = await c.store.counts()
        for call in (
            lambda: c.app.signal("a", "even", 2),
            lambda: c.app.ask("a", "even", 2),
            lambda: c.app.emit("order.paid", 2),
            lambda: c.app.put("jobs", 2),
            lambda: c.app.start("odd", 2),
            lambda: c.app.schedule("1h", "odd", 2),
            lambda: c.app.signal_with_start("listening", signal="even", payload=2, id="b"),
        ):
            with pytest.raises(Uncheckable, match=r"`not`.*pip install 'perdure\[server\]'"):
                await call()
        refused = await c.app.signal_many([("a", "even", 2)])
        refused += await c.app.emit_many([("order.paid", 2)])
        assert [type(one) for one in refused] == [Refused, Refused]
        assert all(isinstance(one.error, Uncheckable) for one in refused)
        with pytest.raises(InvalidPayload, match="integer"):  # that much we know ourselves
            await c.app.signal("a", "even", "x")
        assert await c.store.counts() == before


async def test_a_dead_letter_is_checked_for_a_run_that_it_was_not_sent_to(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shop()

    @app.workflow(signals=[Signal("even", buffer="all", on_end="dead_letter")])
    async def anything(ctx: Context) -> None:
        await ctx.wait(twice)

    async with world(app) as w:
        await w.begin("anything", id="old")
        await w.app.signal("old", "even", 2)
        await w.app.signal("old", "even", 0)
        await w.app.run("old").terminate()
        await w.begin("listening", id="a")
    async with world(client()) as c:
        two, nothing = (one.id for one in await c.app.dead_letters("old"))
        with pytest.raises(InvalidPayload, match="at \\$: "):
            await c.app.resend(nothing, run_id="a")
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "jsonschema", None)
            with pytest.raises(Uncheckable, match="jsonschema"):
                await c.app.resend(two, run_id="a")
        assert len(await c.app.dead_letters("old")) == 2
        assert isinstance(await c.app.resend(two, run_id="a"), Delivered)


async def test_with_the_code_nothing_else_is_needed(world: Any, no_jsonschema: None) -> None:
    async with world(shop()) as w:
        await w.begin("listening", id="a")
        assert isinstance(await w.app.signal("a", "even", 2), Delivered)
        assert isinstance(await w.app.emit("order.paid", 2), Emitted)
        assert isinstance(await w.app.put("jobs", 2), Queued)
        assert (await w.app.start("odd", 2)).created


async def test_a_pattern_that_might_take_for_ever_is_refused(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("listening", id="a")
        assert isinstance(await w.app.signal("a", "twice", "aab"), Buffered)
    async with world(client()) as c:
        before = await c.store.counts()
        with pytest.raises(Uncheckable, match="for ever; send it from an app that has the code"):
            await c.app.signal("a", "twice", "a" * 5000)
        assert await c.store.counts() == before


async def test_an_answer_given_anew_is_checked_as_well(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(shop()) as w:
        run = await w.begin("failing", id="a")
        await w.app.signal("a", even, 1)
        await w.settle()
        assert await run.status() == "failed"
        path = next(one.path for one in await run.history() if one.kind == "wait")
    async with world(client()) as c:
        before = await c.store.counts()
        with pytest.raises(InvalidPayload):
            await c.app.run("a").retry(path, payload=0)
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "jsonschema", None)
            with pytest.raises(Uncheckable):
                await c.app.run("a").retry(path, payload=2)
        assert await c.store.counts() == before
        await c.app.run("a").retry(path, payload=2)
    async with world(shop()) as w:
        await w.settle()
        assert await w.app.run("a").result() == 2


async def test_a_key_that_was_used_comes_first(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(shop()) as w:
        await w.begin("listening", id="a")
    async with world(client()) as c:
        await c.app.signal("a", "even", 2, key="k")
        monkeypatch.setitem(sys.modules, "jsonschema", None)
        again = await c.app.signal("a", "even", 2, key="k")
        assert type(again).__name__ == "Duplicate"


async def test_a_schema_that_changed_meanwhile_lets_nothing_through(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender checks against what it has read, and the store compares it with what is declared by then."""
    async with world(shop()) as w:
        await w.begin("listening", id="a")
    async with world(client()) as c:
        lines = await c.store.catalogue()
        older = [
            msgspec.structs.replace(one, signals=one.signals.replace('{"const":0}', '{"const":9}'))
            for one in lines
        ]
        assert older != lines

        async def read_before() -> Any:
            return older

        monkeypatch.setattr(c.store, "catalogue", read_before)
        with pytest.raises(Uncheckable):
            await c.app.signal("a", "even", 0)
        assert await c.app.buffered("a") == []


# --- what the codec would not take ---------------------------------------------------------------


class Zoned(msgspec.Struct):
    at: Annotated[datetime, msgspec.Meta(tz=True)]


@pytest.mark.parametrize(
    ("type", "bad", "good"),
    [
        (date, "2024-99-99", "2024-02-29"),
        (date, "2024-02-30", "2024-03-01"),
        (datetime, "2024-01-01T25:00:00Z", "2024-01-01T23:00:00Z"),
        (datetime, "2024-01-01", "2024-01-01T00:00:00"),
        (time, "99:99", "09:09:09"),
        (time, "10:00", "10:00:00Z"),
        (timedelta, "PT", "PT1S"),
        (UUID, "{00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000005"),
        (Decimal, "_", "1.50"),
        (dict[int, int], {"abc": 1}, {"1": 1}),
        (dict[date, int], {"abc": 1}, {"2024-01-01": 1}),
        (Zoned, {"at": "2024-01-01T00:00:00"}, {"at": "2024-01-01T00:00:00Z"}),
        (set[int], [1, "1"], [1, 1]),
    ],
    ids=str,
)
async def test_what_the_codec_refuses_is_refused_without_it(
    world: Any, type: Any, bad: Any, good: Any
) -> None:
    app, sent = App("memory://"), Signal("sent", type)

    @app.workflow(signals=[sent])
    async def hears(ctx: Context) -> None:
        await ctx.wait(sent)

    @app.workflow
    async def takes(ctx: Context, one: type) -> None: ...  # type: ignore[valid-type]

    async with world(app) as w:
        await w.begin("hears", id="a")
    async with world(client()) as c:
        before = await c.store.counts()
        with pytest.raises(InvalidPayload):
            await c.app.signal("a", "sent", bad)
        with pytest.raises(InvalidPayload):
            await c.app.start("takes", bad)
        assert await c.store.counts() == before
        assert isinstance(await c.app.signal("a", "sent", good), Delivered)
        await c.app.start("takes", good, id="b")
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").status() == "completed"
        assert await w.app.run("b").status() == "completed"


# --- the same in other words ---------------------------------------------------------------------


@dataclass
class Parcel:
    sku: str
    amount: int = 1
    weight: float = 0.5
    notes: list[str] = field(default_factory=list)
    due: datetime | None = None


def depot() -> App:
    app = App("memory://")
    app.add(Topic("parcel.sent", Parcel))
    app.add(Queue("parcels", Parcel))

    @app.workflow(signals=[Signal("parcel", Parcel, buffer="all")])
    async def deliver(ctx: Context, parcel: Parcel, fast: bool = False) -> None:
        await ctx.sleep("1h")

    return app


WORDS: list[dict[str, Any]] = [
    {"sku": "tea", "weight": 2.0},
    {"weight": 2, "sku": "tea"},
    {"due": None, "notes": [], "amount": 1, "weight": 2, "sku": "tea"},
]
OTHERS: list[dict[str, Any]] = [{"sku": "tea"}, {"sku": "tea", "weight": 2, "amount": 2}]


async def _starts(app: App, words: Any, given: Any) -> str:
    run = await app.start("deliver", words, **given)
    return "first" if run.created else "again"


async def _sends(call: Any) -> str:
    return "again" if type(await call).__name__ == "Duplicate" else "first"


ASKED: dict[str, Any] = {
    "id": lambda app, words: _starts(app, words, {"id": "r-1"}),
    "key": lambda app, words: _starts(app, words, {"key": "k"}),
    "signal": lambda app, words: _sends(app.signal("a", "parcel", words, key="k")),
    "emit": lambda app, words: _sends(app.emit("parcel.sent", words, key="k")),
    "put": lambda app, words: _sends(app.put("parcels", words, key="k")),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("named_first", [True, False])
async def test_the_same_in_other_words_is_the_same(
    world: Any, asked: str, named_first: bool
) -> None:
    async with world(depot()) as w:
        await w.begin("deliver", {"sku": "x"}, id="a")
    ask = ASKED[asked]

    async def all_words(app: App, first: str) -> None:
        for words in WORDS:
            assert await ask(app, words) == first, words
            first = "again"
        for words in OTHERS:
            with pytest.raises(Conflict):
                await ask(app, words)

    turns = [client, depot] if named_first else [depot, client]
    for turn, first in zip(turns, ("first", "again"), strict=True):
        async with world(turn()) as w:
            await all_words(w.app, first)


async def test_what_comes_by_name_is_stored_as_the_code_stores_it(world: Any) -> None:
    async with world(depot()) as w:
        await w.begin("deliver", {"sku": "tea"}, id="typed")
        await w.app.signal("typed", "parcel", Parcel("tea"))
    async with world(client()) as c:
        await c.app.start("deliver", {"sku": "tea"}, id="named")
        await c.app.signal("typed", "parcel", {"sku": "tea"})
        rows = [await c.store.run(one) for one in ("typed", "named")]
        assert json.loads(rows[0].input) == json.loads(rows[1].input)
        typed, named = await c.store.buffered("typed")
        assert json.loads(typed.payload) == json.loads(named.payload)
