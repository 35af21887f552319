"""What a run publishes or replies comes back as the type that a reader asks for; and without one, as it was."""

import enum
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from worlds import Worlds

from perdure import App, Context, InvalidPayload, Signal, Undecodable, following, step_info

question = Signal("question", int, buffer="all")
now = datetime(2026, 1, 5, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Progress:
    done: int
    at: datetime


class Seen(TypedDict):
    at: datetime


class Pair(NamedTuple):
    a: int
    b: str


class Cat(msgspec.Struct, tag=True):
    lives: int


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    when: datetime


# What is published, the type that it is read as, and what one gets who names none.
values: list[tuple[Any, Any, Any]] = [
    ((1, "a"), tuple[int, str], (1, "a")),
    (now, datetime, now),
    (date(2026, 1, 1), date, date(2026, 1, 1)),
    (time(3, 4), time, time(3, 4)),
    (timedelta(hours=1), timedelta, timedelta(hours=1)),
    (Decimal("1.50"), Decimal, Decimal("1.50")),
    (UUID(int=7), UUID, UUID(int=7)),
    (b"\0\xff", bytes, b"\0\xff"),
    ({1, 2}, set[int], {1, 2}),
    (frozenset("ab"), frozenset[str], frozenset("ab")),
    ({"at": now}, Seen, {"at": now}),
    ({"at": now}, dict[str, datetime], {"at": now}),
    ({"at": now}, dict, {"at": now}),
    ([(1, now)], list[tuple[int, datetime]], [(1, now)]),
    ({"$pd": "mine"}, dict[str, str], {"$pd": "mine"}),
    # Of these only the type brings back more than JSON.
    (Progress(1, now), Progress, {"done": 1, "at": "2026-01-05T00:00:00Z"}),
    ([Progress(1, now)], list[Progress], [{"done": 1, "at": "2026-01-05T00:00:00Z"}]),
    ({"a": Progress(1, now)}, dict[str, Progress], None),
    ((Progress(1, now), now), tuple[Progress, datetime], None),
    ((Cat(9), Progress(1, now)), tuple[Cat, Progress], None),
    ({1: "a"}, dict[int, str], {"1": "a"}),
    ({date(2026, 1, 1): 1}, dict[date, int], {"2026-01-01": 1}),
    ({Colour.RED: Colour.RED}, dict[Colour, Colour], {"red": "red"}),
    (Colour.RED, Colour, "red"),
    ({Colour.RED}, set[Colour], ["red"]),
    (Pair(1, "x"), Pair, [1, "x"]),
    (Model(Name="n", when=now), Model, {"Name": "n", "when": "2026-01-05T00:00:00Z"}),
    ([Model(Name="n", when=now)], list[Model], None),
]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_look_every_s", 0.02)
    monkeypatch.setattr(following, "_look_soon_s", 0.02)


@pytest.fixture
def teller(app: App) -> App:
    @app.step
    async def tell(nth: int) -> None:
        step_info().publish("step", values[nth][0])

    @app.workflow
    async def teller(ctx: Context) -> None:
        for nth, (value, _, _) in enumerate(values):
            await ctx.publish("code", value)
            await ctx.step(tell, nth)
        while nth := await ctx.wait(question):
            await ctx.reply(values[nth - 1][0])

    return app


async def test_values_come_back_as_their_type_and_without_one(world: Worlds, teller: App) -> None:
    async with world(teller) as w:
        run = await w.begin("teller")
        for nth, (value, type, plain) in enumerate(values):
            for stream in ("code", "step"):
                reading = run.stream(stream, after=nth, type=type)
                assert _same((await anext(reading)).value, value)
                await reading.aclose()
                if plain is not None:
                    reading = run.stream(stream, after=nth)
                    assert _same((await anext(reading)).value, plain)
                    await reading.aclose()
            assert _same(await w.app.ask(run.id, question, nth + 1, type=type), value)
            if plain is not None:
                assert _same(await w.app.ask(run.id, question, nth + 1), plain)


def _same(found: Any, given: Any) -> bool:
    assert found == given
    return type(found) is type(given)


async def test_what_does_not_fit_is_told_in_words_that_fit(world: Worlds, app: App) -> None:
    @app.workflow
    async def pair(ctx: Context) -> None:
        await ctx.publish("a", (1, 2))
        await ctx.publish("a", {"n": "x"})

    async with world(app) as w:
        run = await w.begin(pair)
        for after, type in ((0, int), (0, tuple[int, str]), (1, dict[str, int])):
            words = f"^item {after + 1} of stream 'a' does not fit the type that it is read as: at "
            with pytest.raises(Undecodable, match=words):
                await anext(run.stream("a", after=after, type=type))


class Odd:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, Odd()], r"at \$\[1\]: .*Odd has no JSON form; use a dataclass, Struct"),
        ({"a": {"b": 1j}}, r"at \$\.a\.b: complex has no JSON form"),
        ({"\ud800": 1}, "lone surrogate"),
        ({None: 1}, r"the key None is a NoneType; JSON keys are texts"),
        ({1: "a", "1": "b"}, "two keys are '1' as a text"),
        ([Progress(1, now), "x" * 1_100_000], "payload_bytes_max"),
        ([Progress(1, now), float("nan")], r"at \$\[1\]: nan"),
    ],
)
async def test_what_cannot_be_published_is_told_in_words_that_can_be_followed(
    app: App, value: Any, words: str
) -> None:
    @app.workflow
    async def odd(ctx: Context) -> str:
        try:
            await ctx.publish("a", value)
        except InvalidPayload as error:
            return str(error)
        return ""

    async with app:
        run = await app.start(odd)
        text = await run.result()
        assert re.search(words, text), text
