"""What people fill in: instances of the type that is asked for, also of types that write otherwise than they say."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import pydantic
import pytest
from worlds import Worlds

from perdure import App, Context, InvalidPayload
from perdure.approvals import approval


class Alias(pydantic.BaseModel):
    """Read by one name, written by another."""

    a: int = pydantic.Field(validation_alias="A", serialization_alias="B")


class Dressed(pydantic.BaseModel):
    """Its schema says a number; it writes a text, and takes that too."""

    x: int

    @pydantic.field_serializer("x")
    def dress(self, x: int) -> str:
        return f"#{x}"

    @pydantic.field_validator("x", mode="before")
    @classmethod
    def undress(cls, x: Any) -> int:
        return int(str(x).lstrip("#"))


@dataclass
class Line:
    sku: str


answers: list[tuple[Any, Any]] = [
    (dict[int, str], {1: "a"}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (dict[str, list[Line]], {"a": [Line("x")]}),
    (list[Line], [Line("x")]),
    (tuple[Line, int], (Line("x"), 1)),
    (set[int], {1, 2}),
    (Alias, Alias(A=1)),
    (Dressed, Dressed(x=3)),
]


@pytest.mark.parametrize(("asked_for", "given"), answers, ids=lambda one: str(one)[:30])
async def test_an_instance_is_taken_as_a_signal_takes_it(
    world: Worlds, app: App, asked_for: Any, given: Any
) -> None:
    seen: list[Any] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        decision = await ctx.wait(approval("a", type=asked_for))
        seen.append(decision.payload)

    async with world(app) as w:
        run = await w.begin(flow)
        (asked,) = await w.app.approvals()
        await w.app.decide(asked.id, payload=given, by="anna")
        await run.result()
        assert seen[-1] == given
        assert type(seen[-1]) is type(given)


async def test_an_instance_of_another_class_is_judged_by_what_it_writes(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(approval("a", type=Line))).payload.sku

    async with world(app) as w:
        run = await w.begin(flow)
        (asked,) = await w.app.approvals()
        with pytest.raises(InvalidPayload, match="sku"):
            await w.app.decide(asked.id, payload=Dressed(x=3), by="anna")
        with pytest.raises(InvalidPayload, match="payload_bytes_max"):
            large = [Line("x" * 600_000), Line("y" * 600_000)]
            await w.app.decide(asked.id, payload=large, by="anna")
        await w.app.decide(asked.id, payload=Line("s"), by="anna")
        assert await run.result() == "s"
