"""The catalogue: what a workflow declares decides for senders that have only a name."""

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    App,
    Buffered,
    Conflict,
    Context,
    Delivered,
    InvalidPayload,
    Refused,
    Signal,
    UnknownSignal,
)


@dataclass
class Approval:
    ok: bool
    by: str = ""


approval = Signal("approval", Approval)
line = Signal("line", int, buffer="all")


def shop() -> App:
    """An app with a workflow that declares its signals, and one that declares none."""
    app = App("memory://")

    @app.workflow(signals=[approval, line])
    async def declared(ctx: Context) -> tuple[Approval, int]:
        await ctx.sleep("1h")
        return await ctx.wait(approval), await ctx.wait(line)

    @app.workflow
    async def loose(ctx: Context) -> tuple[Approval, int]:
        first = await ctx.wait(approval)
        await ctx.sleep("1h")
        return first, await ctx.wait(line)

    return app


def client() -> App:
    """An app that has none of the code."""
    return App("memory://", worker=False)


# --- by name, with the code ----------------------------------------------------------------------


async def test_a_name_is_checked_by_the_declared_type(world: Any) -> None:
    async with world(shop()) as w:
        run = await w.begin("declared", id="a")
        before = await w.store.counts()
        with pytest.raises(InvalidPayload, match="ok"):
            await w.app.signal("a", "approval", {"ok": "perhaps"})
        with pytest.raises(InvalidPayload):
            await w.app.signal("a", "approval", None)
        assert await w.store.counts() == before
        assert isinstance(await w.app.signal("a", "approval", {"ok": True}), Buffered)
        assert isinstance(await w.app.signal("a", "line", 3), Buffered)
        await w.advance("1h")
        assert await run.result() == (Approval(True), 3)


async def test_a_name_uses_the_declared_policy(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("declared", id="a")
        for n in range(3):
            await w.app.signal("a", "line", n)
            await w.app.signal("a", "approval", {"ok": False, "by": str(n)})
        kept = [(one.name, one.payload, one.policy) for one in await w.app.buffered("a")]
        assert kept == [
            ("line", 0, "all"),
            ("line", 1, "all"),
            ("line", 2, "all"),
            ("approval", {"ok": False, "by": "2"}, "latest"),
        ]


async def test_an_undeclared_name_is_unknown(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("declared", id="a")
        before = await w.store.counts()
        with pytest.raises(UnknownSignal) as refused:
            await w.app.signal("a", "aproval", {"ok": True})
        assert (refused.value.name, sorted(refused.value.known)) == (
            "aproval",
            ["approval", "line"],
        )
        with pytest.raises(UnknownSignal):
            await w.app.signal("a", Signal("other", int), 1)
        (answer,) = await w.app.signal_many([("a", "aproval", 1)])
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, UnknownSignal)
        assert await w.store.counts() == before


async def test_a_workflow_that_declares_none_takes_any(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("loose", id="a")
        assert isinstance(await w.app.signal("a", "whatever", [1, 2]), Buffered)


async def test_another_policy_than_declared_is_a_conflict(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("declared", id="a")
        before = await w.store.counts()
        with pytest.raises(Conflict, match=r"buffered as 'all'.*not 'latest'"):
            await w.app.signal("a", Signal("line", int), 1)
        assert await w.store.counts() == before


async def test_the_declared_type_counts_for_a_sender_with_a_signal_of_its_own(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("declared", id="a")
        await w.advance("1h")
        before = await w.store.counts()
        with pytest.raises(InvalidPayload, match="payload of signal 'approval'"):
            await w.app.signal("a", Signal("approval", str), "perhaps")
        (refused,) = await w.app.signal_many([("a", Signal("approval"), {"ok": 5})])
        assert isinstance(refused, Refused) and isinstance(refused.error, InvalidPayload)
        assert await w.app.run("a").status() == "waiting"
        assert await w.store.counts() == before
        assert isinstance(await w.app.signal("a", Signal("approval"), {"ok": True}), Delivered)


async def test_the_declared_type_counts_for_a_signal_that_starts_its_run(world: Any) -> None:
    async with world(shop()) as w:
        for signal, key in ((Signal("approval", str), None), (approval, "k")):
            with pytest.raises(InvalidPayload, match="payload of signal 'approval'"):
                await w.app.signal_with_start(
                    "declared", signal=signal, payload="perhaps", id="a", key=key
                )
        assert len(await w.app.runs()) == 0


async def test_an_empty_declaration_takes_nothing(world: Any, app: App) -> None:
    @app.workflow(signals=[])
    async def deaf(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with world(app) as w:
        await w.begin(deaf, id="a")
        with pytest.raises(UnknownSignal, match="declares: none"):
            await w.app.signal("a", "anything", 1)


async def test_a_signal_is_known_once_a_run_waited_for_it(world: Any) -> None:
    """An undeclared signal enters the catalogue with the first wait; from then on a name is checked."""
    async with world(shop()) as w:
        await w.begin("loose", id="a")
        with pytest.raises(InvalidPayload):
            await w.app.signal("a", "approval", {"ok": 5})
        assert isinstance(await w.app.signal("a", "approval", {"ok": True}), Delivered)


# --- by name, without the code -------------------------------------------------------------------


async def test_a_client_without_the_code_is_checked_by_the_schema(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("declared", id="a")
    async with world(client()) as c:
        before = await c.store.counts()
        for payload in ({"ok": "perhaps"}, {"by": "ann"}, [], None):
            with pytest.raises(InvalidPayload, match="payload of signal 'approval'"):
                await c.app.signal("a", "approval", payload)
        with pytest.raises(UnknownSignal, match="approval, line"):
            await c.app.signal("a", "aproval", {"ok": True})
        with pytest.raises(Conflict):
            await c.app.signal("a", Signal("line", int, buffer="first"), 1)
        assert await c.store.counts() == before
        assert isinstance(await c.app.signal("a", "approval", {"ok": True}), Buffered)
        for n in range(2):
            assert isinstance(await c.app.signal("a", "line", n), Buffered)
        assert [one.policy for one in await c.app.buffered("a")] == ["latest", "all", "all"]
    async with world(shop()) as w:
        await w.advance("1h")
        assert await w.app.run("a").result() == [{"ok": True, "by": ""}, 0]


# --- by name, before any worker came -------------------------------------------------------------


async def test_a_client_that_has_the_code_knows_what_is_declared(world: Any) -> None:
    async with world(shop(), worker=False) as c:
        await c.app.start("declared", id="a")
        with pytest.raises(UnknownSignal, match="approval, line"):
            await c.app.signal("a", "aproval", {"ok": True})
        for n in range(2):
            assert isinstance(await c.app.signal("a", "line", n), Buffered)
        assert [one.policy for one in await c.app.buffered("a")] == ["all", "all"]


async def test_a_client_that_has_the_code_tells_those_who_do_not(world: Any) -> None:
    async with world(shop(), worker=False) as c:
        await c.app.start("declared", id="a")
    async with world(client()) as c:
        with pytest.raises(InvalidPayload):
            await c.app.signal("a", "approval", {"ok": "perhaps"})


def older() -> App:
    """The shop before it knew of `line`."""
    app = App("memory://")

    @app.workflow(signals=[approval])
    async def declared(ctx: Context) -> None:
        await ctx.wait(approval)

    return app


async def test_a_client_leaves_what_a_worker_declared_alone(world: Any) -> None:
    """Its code may be older than the code that runs."""
    async with world(shop()) as w:
        await w.begin("declared", id="a")
    async with world(older(), worker=False) as c:
        assert isinstance(await c.app.signal("a", "line", 1), Buffered)


async def test_a_client_leaves_alone_what_a_worker_declares_beside_it(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client looks, the worker declares, the client declares: the store decides, not the look."""
    async with world(shop()) as w:
        await w.begin("declared", id="a")
    stage = world(older(), worker=False)
    make = stage.app._make_store

    async def nothing_yet() -> list[Any]:
        return []

    def looks_too_early(ids: Any) -> Any:
        store = make(ids)
        monkeypatch.setattr(store, "catalogue", nothing_yet)
        return store

    stage.app._make_store = looks_too_early
    async with stage as c:
        assert isinstance(await c.app.signal("a", "line", 1), Buffered)


# --- the catalogue -------------------------------------------------------------------------------


async def test_the_catalogue_tells_of_every_workflow(world: Any) -> None:
    async with world(shop()) as w:
        lines = {one.name: one for one in await w.store.catalogue()}
        assert lines["declared"].strict_signals
        assert not lines["loose"].strict_signals
        assert '"approval"' in lines["declared"].signals


async def test_opening_again_writes_no_catalogue_line_anew(world: Any) -> None:
    async with world(shop()) as w:
        await w.begin("loose", id="a")
        lines = await w.store.catalogue()
    async with world(shop()) as w:
        assert {one.name for one in await w.store.catalogue()} == {one.name for one in lines}


async def test_a_known_signal_is_not_forgotten_by_a_restart(world: Any) -> None:
    """What was seen to be waited for stays in the catalogue though the next process has not seen it yet."""
    async with world(shop()) as w:
        await w.begin("loose", id="a")
    async with world(shop()) as w:
        await w.settle()
        with pytest.raises(InvalidPayload):
            await w.app.signal("a", "approval", {"ok": 5})


# --- early, by name, undeclared ------------------------------------------------------------------


async def test_what_turns_out_not_to_fit_is_dead_lettered_and_the_wait_goes_on(
    world: Any, app: App
) -> None:
    late = Signal("late", int)

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.wait(late)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert isinstance(await w.app.signal("a", "late", "words"), Buffered)
        await w.advance("1h")
        assert await run.status() == "waiting"
        (letter,) = await w.app.dead_letters("a")
        assert (letter.name, letter.payload) == ("late", "words")
        assert "int" in letter.reason
        (fact,) = await w.facts("signal.rejected")
        assert letter.id in fact.payload
        await w.evict()
        await w.app.signal("a", late, 4)
        await w.settle()
        assert await run.result() == 4


async def test_a_rejected_signal_keeps_the_deadline_of_the_wait(world: Any, app: App) -> None:
    from perdure import TimedOut, timer

    late = Signal("late", int)

    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.sleep("1h")
        got = await ctx.wait(late | timer("10m"))
        return f"{got == TimedOut()} {ctx.now():%H:%M}"

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", "late", "words")
        await w.advance("1h")
        assert await run.status() == "waiting"
        await w.advance("10m")
        assert await run.result() == "True 10:10"


async def test_after_a_rejected_one_the_next_buffered_is_taken(world: Any, app: App) -> None:
    late = Signal("late", int, buffer="all")

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.wait(late)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        for payload in ("one", "two", 3):
            await w.app.signal("a", Signal("late", buffer="all"), payload)
        await w.advance("1h")
        assert await run.result() == 3
        assert [one.payload for one in await w.app.dead_letters()] == ["one", "two"]


async def test_a_rejection_in_one_branch_leaves_the_others_alone(world: Any, app: App) -> None:
    late = Signal("late", int)

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.sleep("1h")
        return list(await ctx.gather(ctx.wait(late), ctx.wait(line)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", "late", "words")
        await w.advance("1h")
        await w.app.signal("a", line, 2)
        await w.settle()
        await w.evict()
        await w.app.signal("a", late, 1)
        await w.settle()
        assert await run.result() == [1, 2]


async def test_two_types_under_one_name_in_one_workflow(world: Any, app: App) -> None:
    """The second wait asks for another type: what does not fit it is dead-lettered there."""
    number, word = Signal("both", int), Signal("both", str)

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return [await ctx.wait(number), await ctx.wait(word)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        await w.settle()
        await w.app.signal("a", number, 2)
        await w.settle()
        assert await run.status() == "waiting"
        assert [one.payload for one in await w.app.dead_letters()] == [2]
        await w.app.signal("a", word, "two")
        await w.settle()
        assert await run.result() == [1, "two"]
