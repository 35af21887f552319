"""Texts that are no plain str: enums, and what templates mark as safe. Of people's words plain text is kept."""

import enum
from typing import Any

from worlds import Worlds

from perdure import App, Context
from perdure.approvals import approval

SECRET = "a secret of sixteen bytes or more"


class Safe(str):
    """As markupsafe has it: whatever is done with it is of its kind again, and shows itself in another way."""

    def __str__(self) -> str:
        return f"safe:{str.__str__(self)}"

    def strip(self, *args: Any) -> "Safe":
        return Safe(super().strip(*args))

    def partition(self, sep: str) -> Any:
        return tuple(Safe(one) for one in super().partition(sep))

    def join(self, parts: Any) -> "Safe":
        return Safe(super().join(parts))


class Word(str, enum.Enum):  # noqa: UP042 (that one's str() would be right)
    """Its str() is `Word.ANNA` in recent Pythons."""

    ANNA = "anna"
    YES = "yes"
    FINANCE = "group:finance"


async def test_words_of_any_kind_are_kept_as_plain_text(world: Worlds, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, kind: str) -> list[str | None]:
        text: Any = Safe if kind == "safe" else str
        asked = approval(
            text("refund"),
            title=text("Refund?"),
            description=text("It arrived broken."),
            choices=[Word.YES, text("no")],
            who=[Word.ANNA, text("bob"), Word.FINANCE],
            data={"note": text("x")},
        )
        decision = await ctx.wait(asked)
        return [decision.choice, decision.by, decision.comment]

    async with world(app.copy(secret=SECRET)) as w:
        for n, (choice, by, comment) in enumerate(
            [(Word.YES, Word.ANNA, Safe("fine")), (Safe("no"), Safe("bob"), Word.YES)]
        ):
            run = await w.begin(flow, ("safe", "plain")[n])
            (asked,) = await w.app.approvals(who=[Word.ANNA, Safe("bob")], run_id=Safe(run.id))
            assert (asked.title, asked.description) == ("Refund?", "It arrived broken.")
            assert (asked.choices, asked.who) == (("yes", "no"), ("anna", "bob", "group:finance"))
            assert asked.data == {"note": "x"}
            decided = await w.app.decide(
                Safe(asked.id),
                choice,
                by=by,
                groups=[Safe("finance"), Word.FINANCE],
                comment=comment,
                key=Safe("k"),
            )
            assert decided.approval_id == asked.id  # type: ignore[union-attr]
            plain = [str.__str__(one) for one in (choice, by, comment)]
            assert await run.result() == plain
            *_, told = await w.app.events("hitl.decided")
            assert [told.payload[one] for one in ("choice", "by", "comment")] == plain


async def test_so_are_those_of_links(world: Worlds, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str | None]:
        decision = await ctx.wait(approval("refund", choices=["yes", "no"]))
        return [decision.choice, decision.by, decision.comment]

    async with world(app.copy(secret=SECRET)) as w:
        run = await w.begin(flow)
        (asked,) = await w.app.approvals()
        made = {"by": Word.ANNA, "choice": Word.YES, "url": Safe(" https://a.example/x?a=1 ")}
        link = w.app.approval_link(Safe(asked.id), **made)  # type: ignore[arg-type]
        assert type(link) is str
        assert link.startswith("https://a.example/x?a=1&token=")
        await w.app.answer(Safe(f" {link} "), Safe("yes"), comment=Safe("by mail"))
        assert await run.result() == ["yes", "anna", "by mail"]


async def test_a_reason_is_plain_text_too(world: Worlds, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause(Safe("a look"))
        assert (await run.info()).reason == "a look"
