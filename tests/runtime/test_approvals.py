"""A person answers a run: asked, reminded, decided once, by a call or by a link, and the same on every replay."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from perdure import (
    App,
    ApprovalClosed,
    ApprovalExpired,
    ApprovalNotFound,
    BadLink,
    BadValue,
    Context,
    Duplicate,
    InvalidPayload,
    LinkExpired,
    NotAllowed,
    Retry,
    RunFailed,
    RunPaused,
    Signal,
    TimedOut,
    Topic,
    WaitTimeout,
    Won,
    timer,
)
from perdure.approvals import Decided, Decision, approval
from perdure.model import limits

SECRET = "a secret of sixteen bytes or more"


@dataclass
class Refund:
    amount: int
    note: str = ""


stop = Signal("stop", int)
again = Signal("again", int, buffer="all")
paid = Topic("order.paid", int)


async def hitl(w: Any) -> list[str]:
    facts = await w.store.events(0, 1000)
    return [one.type.removeprefix("hitl.") for one in facts if one.type.startswith("hitl.")]


async def told(w: Any, what: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(one.payload) for one in await w.facts(f"hitl.{what}")]


async def only(w: Any, **narrowed: Any) -> Any:
    (one,) = await w.app.approvals(**narrowed)
    return one


def plain(app: App) -> Any:
    @app.workflow
    async def flow(ctx: Context) -> str:
        match await ctx.wait(approval("refund", title="Refund?") | timer("48h")):
            case Decision(choice="approve", by=by):
                return f"approved by {by}"
            case Decision(by=by, comment=comment):
                return f"rejected by {by}: {comment}"
            case TimedOut():
                return "nobody"
        raise AssertionError("neither")

    return flow


# --- deciding ---


async def test_a_run_asks_and_somebody_decides(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        assert (asked.run_id, asked.name, asked.path) == (run.id, "refund", "refund")
        assert (asked.title, asked.choices, asked.workflow) == (
            "Refund?",
            ("approve", "reject"),
            "flow",
        )
        assert asked.id.endswith(f".{run.id}")
        assert asked.deadline_at - asked.opened_at == timedelta(hours=48)
        outcome = await w.app.decide(asked.id, "reject", by="anna", comment="too much")
        assert outcome == Decided(asked.id, run.id, "refund")
        await w.settle()
        assert await run.result() == "rejected by anna: too much"
        assert not await w.app.approvals()
        assert await hitl(w) == ["requested", "decided"]


async def test_what_is_waited_for_shows_the_approval_and_no_alarm(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(approval("refund", remind="1h", expires="5h") | timer("48h"))

    async with world(app) as w:
        run = await w.begin(flow)
        (one,) = await run.waiting()
        assert (one.kind, one.target, one.path) == ("approval", "refund", "refund")
        await run.pause()
        await w.settle()
        assert await run.waiting() == []


async def test_of_many_who_decide_at_once_one_does(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        answers = await asyncio.gather(
            *(w.app.decide(asked.id, "approve", by=f"p{n}") for n in range(20)),
            return_exceptions=True,
        )
        (winner,) = [n for n, one in enumerate(answers) if isinstance(one, Decided)]
        refused = [one for one in answers if not isinstance(one, Decided)]
        assert {type(one) for one in refused} == {ApprovalClosed}
        assert {(one.state, one.by, one.choice) for one in refused} == {
            ("decided", f"p{winner}", "approve")
        }
        assert f"'p{winner}' has decided it as 'approve'" in str(refused[0])
        await w.settle()
        assert await run.result() == f"approved by p{winner}"


async def test_a_typed_answer_comes_back_as_its_type(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Refund:
        decision = await ctx.wait(approval("refund", type=Refund))
        assert decision.choice is None
        return decision.payload

    async with world(app) as w:
        for payload in (Refund(7, "ok"), {"amount": 7, "note": "ok"}):
            run = await w.begin(flow)
            asked = await only(w)
            assert asked.schema is not None and asked.choices == ()
            for wrong in (None, {"amount": "x"}, {}, object(), {1: 2}, [Refund(1)]):
                with pytest.raises(InvalidPayload):
                    await w.app.decide(asked.id, payload=wrong, by="anna")
            await w.app.decide(asked.id, payload=payload, by="anna")
            await w.settle()
            assert await run.result() == Refund(7, "ok")


async def test_what_only_the_runs_own_type_refuses_is_asked_again(world: Any, app: App) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Even(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("is odd")
            return number

    @app.workflow
    async def flow(ctx: Context) -> int:
        decision = await ctx.wait(approval("even", type=Even))
        return decision.payload.number

    async with world(app) as w:
        run = await w.begin(flow)
        first = await only(w)
        await w.app.decide(first.id, payload={"number": 3}, by="anna")
        await w.settle()
        assert await hitl(w) == ["requested", "decided", "returned", "requested"]
        assert "odd" in (await told(w, "returned"))[0]["reason"]
        second = await only(w)
        assert second.id == first.id
        await w.app.decide(second.id, payload={"number": 4}, by="anna")
        await w.settle()
        assert await run.result() == 4


async def test_what_code_of_today_cannot_read_is_asked_again_in_its_words(world: Any) -> None:
    class Old(msgspec.Struct, forbid_unknown_fields=True):
        amount: int

    class New(msgspec.Struct, forbid_unknown_fields=True):
        amount: int
        note: str

    def deployed(type: Any, title: str) -> App:
        app = App("memory://")

        @app.workflow
        async def flow(ctx: Context) -> str:
            asked = approval("a", type=type, title=title, expires="9h", remind=["1h", "6h"])
            decision = await ctx.wait(asked | timer("48h"))
            return repr(decision.payload)

        return app

    async with world(deployed(Old, "old")) as w:
        run = await w.begin("flow", id="r")
        first = await only(w)
        await w.advance("2h")
    async with world(deployed(New, "new")) as w:
        await w.settle()
        assert (
            await only(w)
        ).title == "old"  # it is open: nothing changes for those who look at it
        with pytest.raises(InvalidPayload):
            await w.app.decide(first.id, payload={"amount": 1, "note": "n"}, by="anna")
        await w.app.decide(first.id, payload={"amount": 1}, by="anna")
        await w.settle()
        second = await only(w)
        assert (second.id, second.title, second.reminded) == (first.id, "new", 1)
        assert (second.opened_at, second.expires_at) == (first.opened_at, first.expires_at)
        asked = [(one["title"], one["expires_at"]) for one in await told(w, "requested")]
        assert asked == [("old", asked[0][1]), ("new", asked[0][1])]
        await w.app.decide(first.id, payload={"amount": 1, "note": "n"}, by="anna")
        run = w.app.run("r")
        assert "note='n'" in await run.result()
        assert await hitl(w) == [
            *["requested", "reminded", "decided", "returned", "requested", "decided"]
        ]


async def test_it_can_be_one_of_several_named_conditions_or_have_a_timeout(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        won: Won[Any] = await ctx.first(yes=approval("a"), no=stop, late=timer("1h"))
        try:
            await ctx.wait(approval("b"), timeout="1h")
        except WaitTimeout as error:
            return [won.name, won.value.choice, error.path]
        return []

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.decide((await only(w, name="a")).id, "approve", by="anna")
        await w.settle()
        assert (await only(w)).name == "b"
        await w.advance("1h")
        assert await run.result() == ["yes", "approve", "b"]
        assert await hitl(w) == ["requested", "decided", "requested", "timed_out"]


async def test_who_comes_after_continue_as_is_told_that_it_was_withdrawn(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context, first: bool) -> None:
        async def leave() -> None:
            await ctx.wait(stop)
            await ctx.continue_as(flow, False)

        if first:
            await ctx.gather(ctx.wait(approval("a")), leave())
        await ctx.wait(approval("b"))

    async with world(app) as w:
        run = await w.begin(flow, True)
        asked = await only(w)
        await w.app.signal(run.id, stop, 1)
        await w.settle()
        assert await hitl(w) == ["requested", "withdrawn", "requested"]
        with pytest.raises(ApprovalClosed, match="gone on as another") as closed:
            await w.app.decide(asked.id, "approve", by="anna")
        assert closed.value.state == "withdrawn"
        await w.app.decide((await only(w)).id, "approve", by="anna")
        await run.result()
        with pytest.raises(ApprovalClosed) as closed:
            await w.app.decide(asked.id, "approve", by="anna")
        assert closed.value.state == "withdrawn"


async def test_a_replay_sees_the_same_decision_and_asks_nobody_twice(world: Any, app: App) -> None:
    seen: list[Any] = []

    @app.workflow
    async def flow(ctx: Context) -> str:
        decision = await ctx.wait(approval("refund", type=Refund, choices=["yes", "no"]))
        seen.append(decision)
        await ctx.wait(stop)
        return decision.by

    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        await w.evict()
        assert (await only(w)).id == asked.id
        await w.app.decide(asked.id, "yes", payload=Refund(1), by="anna", comment="fine")
        await w.evict()
        decided_at = w.clock.moment
        await w.crash()
    async with world(app) as w:
        await w.app.signal(run.id, stop, 1)
        await w.settle()
        assert await w.app.run(run.id).result() == "anna"
        assert set(map(repr, seen)) == {
            repr(
                Decision(
                    choice="yes",
                    payload=Refund(1),
                    by="anna",
                    comment="fine",
                    decided_at=decided_at,
                )
            )
        }
        assert len(seen) >= 2
        assert await hitl(w) == ["requested", "decided"]


async def test_a_key_makes_it_safe_to_repeat(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        await w.begin(flow)
        asked = await only(w)
        first = await w.app.decide(asked.id, "approve", by="anna", key="k")
        assert await w.app.decide(asked.id, "approve", by="anna", key="k") == Duplicate(first)


# --- what became of it ---


async def test_who_comes_too_late_is_told_what_became_of_it(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(approval("refund") | stop | timer("1h"))

    async def fate(w: Any, asked: Any) -> tuple[str, str]:
        with pytest.raises(ApprovalClosed) as closed:
            await w.app.decide(asked.id, "approve", by="bob")
        assert asked.id in str(closed.value)
        return closed.value.state, closed.value.reason

    async with world(app) as w:
        await w.begin(flow)
        asked = await only(w)
        await w.advance("2h")
        assert await fate(w, asked) == ("timed_out", "its time ran out")
        run = await w.begin(flow)
        asked = await only(w)
        await w.app.signal(run.id, stop, 1)
        assert await fate(w, asked) == ("withdrawn", "signal 'stop' came first")
        run = await w.begin(flow)
        asked = await only(w)
        await run.terminate()
        assert await fate(w, asked) == ("withdrawn", "its run has ended: terminated")


async def test_an_unknown_one_is_another_error(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        run = await w.begin(flow)
        id = (await only(w)).id.split(".")[0]
        for unknown in (f"{id}.nobody", f"01KE6P4YM01YF50Y44PQRF000A.{run.id}"):
            with pytest.raises(ApprovalNotFound) as error:
                await w.app.decide(unknown, "approve", by="anna")
            assert error.value.approval_id == unknown
        for bad in ("", id, f"{id}.", "x.y", None, 7):
            with pytest.raises(BadValue):
                await w.app.decide(bad, "approve", by="anna")


async def test_a_cancelled_run_withdraws_what_it_asked(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        await run.cancel("no need")
        await w.settle()
        assert await run.status() == "cancelled"
        assert [one["reason"] for one in await told(w, "withdrawn")] == [
            "the run was cancelled (no need)"
        ]
        with pytest.raises(ApprovalClosed) as closed:
            await w.app.decide(asked.id, "approve", by="bob")
        assert closed.value.state == "withdrawn"
        assert not await w.app.approvals()


async def test_a_branch_that_is_left_withdraws_what_it_asked(world: Any, app: App) -> None:
    async def fail(ctx: Context) -> None:
        await ctx.wait(stop)
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.wait(approval("refund", remind="1h")), fail(ctx))
        except ValueError:
            pass
        await ctx.wait(again)
        return "on"

    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        await w.evict()
        await w.app.signal(run.id, stop, 1)
        await w.settle()
        assert not await w.app.approvals()
        assert await hitl(w) == ["requested", "withdrawn"]
        with pytest.raises(ApprovalClosed) as closed:
            await w.app.decide(asked.id, "approve", by="bob")
        assert closed.value.reason == "the branch that asked has left it"


async def test_a_retry_asks_anew_and_the_old_id_says_so(world: Any, app: App) -> None:
    """Its wait stood beside the branch that failed: it stays, and was withdrawn with the end of the run."""
    attempts: list[int] = []

    @app.step(retry=Retry(attempts=1))
    async def flaky() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("no")

    async def fail(ctx: Context) -> None:
        await ctx.wait(again)
        await ctx.step(flaky)

    @app.workflow
    async def flow(ctx: Context) -> str:
        decision, _ = await ctx.gather(ctx.wait(approval("refund")), fail(ctx))
        return decision.by

    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        first = await only(w)
        link = w.app.approval_link(first.id, by="anna")
        await w.app.signal(run.id, again, 1)
        await w.settle()
        with pytest.raises(RunFailed):
            await run.result()
        await run.retry()
        await w.settle()
        second = await only(w)
        assert second.id != first.id
        assert await hitl(w) == ["requested", "withdrawn", "requested"]
        for late in (w.app.decide(first.id, "approve", by="bob"), w.app.answer(link, "approve")):
            with pytest.raises(ApprovalClosed) as closed:
                await late
            assert closed.value.state == "withdrawn"
        await w.app.decide(second.id, "approve", by="carl")
        await w.settle()
        assert await run.result() == "carl"


async def test_a_timeout_that_failed_the_run_is_asked_anew_by_a_retry(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(approval("refund"), timeout="1h")).by

    async with world(app) as w:
        run = await w.begin(flow)
        first = await only(w)
        await w.advance("1h")
        await run.retry()
        await w.settle()
        second = await only(w)
        assert second.id != first.id
        with pytest.raises(ApprovalClosed) as closed:
            await w.app.decide(first.id, "approve", by="bob")
        assert closed.value.state == "timed_out"
        await w.app.decide(second.id, "approve", by="anna")
        await w.settle()
        assert await run.result() == "anna"


async def test_while_the_run_is_paused_it_takes_no_decision(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        await run.pause("audit")
        await w.settle()
        assert not await w.app.approvals()
        with pytest.raises(RunPaused) as paused:
            await w.app.decide(asked.id, "approve", by="anna")
        assert (paused.value.run_id, paused.value.reason) == (run.id, "audit")
        assert "resume" in str(paused.value)
        await run.resume()
        await w.settle()
        assert (await only(w)).id == asked.id
        await w.app.decide(asked.id, "approve", by="anna")
        await w.settle()
        assert await run.result() == "approved by anna"
        assert await hitl(w) == ["requested", "decided"]


async def test_the_next_generation_asks_by_itself(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, left: int) -> str:
        decision = await ctx.wait(approval("refund"))
        if left:
            await ctx.continue_as(flow, left - 1)
        return decision.by

    async with world(app) as w:
        run = await w.begin(flow, 1)
        first = await only(w)
        await w.app.decide(first.id, "approve", by="anna")
        await w.settle()
        second = await only(w)
        assert second.id != first.id and second.path == first.path
        await w.app.decide(second.id, "approve", by="bob")
        await w.settle()
        assert await run.result() == "bob"


# --- who, until when, reminders ---


async def test_who_may_answer(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(approval("refund", who=["anna", "group:finance"]))).by

    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        with pytest.raises(NotAllowed) as refused:
            await w.app.decide(asked.id, "approve", by="bob", groups=["sales"])
        assert refused.value.who == ("anna", "group:finance")
        assert "anna, group:finance" in str(refused.value)
        # A name is no group, whatever somebody is called.
        for by in ("group:finance", "", "x" * 300, None):
            with pytest.raises(BadValue):
                await w.app.decide(asked.id, "approve", by=by)
        for groups in ("finance", [""], ["x"] * 300, 7):
            with pytest.raises(BadValue):
                await w.app.decide(asked.id, "approve", by="bob", groups=groups)
        await w.app.decide(asked.id, "approve", by="bob", groups=["sales", "group:finance"])
        await w.settle()
        assert await run.result() == "bob"


async def test_reminders_and_expiry_are_told_in_time(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        asked = approval("refund", remind=["4h", "8h"], expires="24h", who=["anna"])
        return type(await ctx.wait(asked | timer("48h"))).__name__

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("9h")
        assert [one["number"] for one in await told(w, "reminded")] == [1, 2]
        facts = await w.facts("hitl.reminded")
        assert [one.recorded_at - w.clock.now() for one in facts] == [
            -5 * 3600 * 10**6,
            -1 * 3600 * 10**6,
        ]
        asked = await only(w)
        assert (asked.reminded, asked.expired) == (2, False)
        await w.advance("16h")
        asked = await only(w)
        assert asked.expired
        with pytest.raises(ApprovalExpired) as expired:
            await w.app.decide(asked.id, "approve", by="anna")
        assert expired.value.expires_at == asked.expires_at
        await w.advance("24h")
        assert await run.result() == "TimedOut"
        assert await hitl(w) == ["requested", "reminded", "reminded", "expired", "timed_out"]


async def test_reminders_outlive_the_process(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(approval("refund", remind="4h"))).by

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("5h")
        await w.crash()
    async with world(app) as w:
        await w.advance("8h")
        assert [one["number"] for one in await told(w, "reminded")] == [1, 2, 3]
        await w.app.decide((await only(w)).id, "approve", by="anna")
        await w.settle()
        assert await w.app.run(run.id).result() == "anna"
        await w.advance("8h")
        assert len(await told(w, "reminded")) == 3


async def test_a_reminder_starts_a_workflow_that_sends_a_mail(world: Any, app: App) -> None:
    sent: list[str] = []

    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(approval("refund", title="Refund?", remind=["1h"]))).by

    @app.step
    async def send(text: str) -> None:
        sent.append(text)

    @app.workflow
    async def mail(ctx: Context, event: dict[str, Any]) -> None:
        await ctx.step(send, f"{event['title']} ({event['number']})")

    app.on("hitl.reminded", name="mails", map=lambda event: event.payload)(mail)
    async with world(app) as w:
        await w.begin(flow)
        await w.advance("2h")
        assert sent == ["Refund? (1)"]


# --- the inbox ---


async def test_the_inbox_is_narrowed_and_pages(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, name: str, who: list[str]) -> None:
        await ctx.wait(approval(name, who=who, data={"name": name}))

    @app.workflow
    async def other(ctx: Context) -> None:
        await ctx.gather(ctx.wait(approval("x")), ctx.wait(approval("y", who="anna")))

    async with world(app) as w:
        for name, who in (("a", ["anna"]), ("b", ["group:finance"]), ("c", []), ("a", ["bob"])):
            await w.begin(flow, name, who)
            await w.advance("1m")
        run = await w.begin(other)

        async def names(**narrowed: Any) -> list[str]:
            found, after = [], None
            while True:
                page = await w.app.approvals(**narrowed, after=after)
                found += [one.name for one in page]
                after = page.cursor
                if after is None:
                    return found

        assert await names() == ["a", "b", "c", "a", "x", "y"]
        assert await names(limit=1) == ["a", "b", "c", "a", "x", "y"]
        assert await names(limit=4) == ["a", "b", "c", "a", "x", "y"]
        assert await names(who="anna") == ["a", "c", "x", "y"]
        assert await names(who=["bob", "group:finance"], limit=1) == ["b", "c", "a", "x"]
        assert await names(who=[]) == ["c", "x"]
        assert await names(name="a") == ["a", "a"]
        assert await names(workflow=other) == ["x", "y"]
        assert await names(workflow="flow", who="anna") == ["a", "c"]
        assert await names(run_id=run.id) == ["x", "y"]
        assert await names(run_id=run.id, limit=1) == ["x", "y"]
        assert await names(run_id=run.id, who="bob") == ["x"]
        assert await names(run_id="nobody") == []
        assert (await w.app.approvals(name="c"))[0].data == {"name": "c"}
        for wrong in (
            {"who": 7},
            {"who": [""]},
            {"name": ""},
            {"workflow": 7},
            {"run_id": ""},
            {"limit": 0},
            {"after": "x"},
        ):
            with pytest.raises(BadValue):
                await w.app.approvals(**wrong)


async def test_a_call_looks_through_a_bounded_number_of_rows(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow
    async def flow(ctx: Context, name: str) -> None:
        await ctx.wait(approval(name))

    monkeypatch.setattr(limits, "approvals_scanned_max", 2)
    monkeypatch.setattr("perdure.approving._rows_per_read", 2)
    async with world(app) as w:
        for name in ("a", "a", "a", "a", "b"):
            await w.app.start(flow, name)
            await w.advance("1m")
        page = await w.app.approvals(name="b")
        seen = [list(page)]
        while page.cursor is not None:
            page = await w.app.approvals(name="b", after=page.cursor)
            seen.append(list(page))
        assert [len(one) for one in seen] == [0, 0, 1]


# --- links ---


async def test_a_link_answers_one_approval_as_the_person_it_was_made_for(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        decision = await ctx.wait(approval("refund", who=["group:finance"]))
        return [decision.choice, decision.by, decision.comment, decision.link_id is not None]

    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        asked = await only(w)
        link = w.app.approval_link(asked.id, by="mail:anna@example.org")
        with pytest.raises(InvalidPayload, match="'approve', 'reject'"):
            await w.app.answer(link)
        await w.app.answer(link, "reject", comment="by mail")
        await w.settle()
        assert await run.result() == ["reject", "mail:anna@example.org", "by mail", True]
        (fact,) = await told(w, "decided")
        assert (fact["via"], fact["by"]) == ("link", "mail:anna@example.org")
        assert fact["link_id"]
        with pytest.raises(ApprovalClosed, match="mail:anna"):
            await w.app.answer(link, "approve")


async def test_a_link_may_have_its_choice_and_a_page(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        asked = await only(w)
        link = w.app.approval_link(
            asked.id, choice="approve", by="anna", url="https://shop.example/a?x=1#top"
        )
        assert link.startswith("https://shop.example/a?x=1&token=") and link.endswith("#top")
        with pytest.raises(BadValue, match="not what this link is for"):
            await w.app.answer(link, "reject")
        await w.app.answer(link)
        await w.settle()
        assert await run.result() == "approved by anna"


async def test_a_link_brings_a_payload(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return (await ctx.wait(approval("refund", type=Refund))).payload.amount

    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        link = w.app.approval_link((await only(w)).id, by="anna")
        await w.app.answer(link, payload={"amount": 3})
        await w.settle()
        assert await run.result() == 3


async def test_of_many_who_use_a_link_at_once_one_decides(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        asked = await only(w)
        link = w.app.approval_link(asked.id, by="anna")
        answers = await asyncio.gather(
            *(w.app.answer(link, ("approve", "reject")[n % 2], comment=str(n)) for n in range(20)),
            return_exceptions=True,
        )
        (winner,) = [n for n, one in enumerate(answers) if isinstance(one, Decided)]
        assert {type(one) for one in answers} == {Decided, ApprovalClosed}
        (fact,) = await told(w, "decided")
        assert fact["comment"] == str(winner)
        await run.result()


async def test_a_link_opens_nothing_beside_its_approval(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        one = approval("a", description="the first of two")
        decisions = await ctx.gather(ctx.wait(one), ctx.wait(approval("b", who=["bob"])))
        return [decision.by for decision in decisions]

    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        first, second = await only(w, name="a"), await only(w, name="b")
        assert (first.description, second.description) == ("the first of two", "")
        link = w.app.approval_link(first.id, by="anna", choice="approve")
        await w.app.answer(link)
        with pytest.raises(ApprovalClosed):
            await w.app.answer(link)
        assert (await only(w)).id == second.id
        body, _, _ = link.partition(".")
        other = w.app.approval_link(second.id, by="bob", choice="approve")
        with pytest.raises(BadLink):  # what the one says, signed for the other
            await w.app.answer(f"{body}.{other.partition('.')[2]}")
        await w.app.answer(other)
        assert await run.result() == ["anna", "bob"]


async def test_what_is_given_back_can_be_answered_by_the_same_link(world: Any, app: App) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Even(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("is odd")
            return number

    @app.workflow
    async def flow(ctx: Context) -> int:
        return (await ctx.wait(approval("even", type=Even))).payload.number

    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        link = w.app.approval_link((await only(w)).id, by="anna")
        await w.app.answer(link, payload={"number": 3})
        await w.settle()
        await w.app.answer(link, payload={"number": 4})
        assert await run.result() == 4
        with pytest.raises(ApprovalClosed):
            await w.app.answer(link, payload={"number": 6})


async def test_a_link_is_good_for_a_time(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app, secret=SECRET) as w:
        await w.begin(flow)
        asked = await only(w)
        link = w.app.approval_link(asked.id, choice="approve", by="anna", expires="1h")
        until = w.clock.moment + timedelta(minutes=30)
        short = w.app.approval_link(asked.id, choice="approve", by="anna", expires=until)
        await w.advance("1h")
        with pytest.raises(LinkExpired) as expired:
            await w.app.answer(short)
        assert expired.value.expires_at == until
        await w.advance("1s")
        with pytest.raises(LinkExpired):
            await w.app.answer(link)
        for wrong in ("0s", w.clock.moment, "x", None):
            with pytest.raises(BadValue):
                w.app.approval_link(asked.id, by="anna", expires=wrong)


async def test_a_link_that_was_changed_is_refused(world: Any, app: App) -> None:
    flow = plain(app)
    async with world(app, secret=SECRET) as w:
        await w.begin(flow)
        asked = await only(w)
        link = w.app.approval_link(asked.id, choice="approve", by="anna")
        body, _, signature = link.partition(".")
        other = w.app.approval_link(asked.id, choice="reject", by="anna")
        changed = [
            other.split(".")[0] + "." + signature,
            body + "." + signature[:-2],
            body,
            f"{body}.",
            "",
            ".",
            "x",
            "é.é",
            "https://shop.example/a?x=1",
            "https://shop.example/a?token=1&token=2",
            "x" * 5000,
            None,
            7,
        ]
        for at in (0, 5, len(body) - 1, len(body) + 1, len(link) - 1):
            letter = "A" if link[at] != "A" else "B"
            changed.append(link[:at] + letter + link[at + 1 :])
        for one in changed:
            with pytest.raises(BadLink):
                await w.app.answer(one, "approve")
        assert await hitl(w) == ["requested"]
        await w.app.answer(link)


async def test_secrets_are_replaced_one_by_one(world: Any, app: App) -> None:
    flow = plain(app)
    new = b"another secret, and a newer one"
    async with world(app, secret=SECRET) as w:
        run = await w.begin(flow)
        link = w.app.approval_link((await only(w)).id, choice="approve", by="anna")
    async with world(app, secret=[new]) as w:
        with pytest.raises(BadLink):
            await w.app.answer(link)
    async with world(app, secret=[new, SECRET]) as w:
        assert SECRET not in repr(w.app._settings) and SECRET not in repr(w.app)
        newer = w.app.approval_link((await only(w)).id, choice="approve", by="anna")
        await w.app.answer(link)
    async with world(app, secret=new) as w:
        with pytest.raises(ApprovalClosed):
            await w.app.answer(newer)
        await w.settle()
        assert await w.app.run(run.id).result() == "approved by anna"


async def test_without_a_secret_an_error_says_what_to_do(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = plain(app)
    monkeypatch.delenv("PERDURE_SECRET", raising=False)
    async with world(app) as w:
        await w.begin(flow)
        asked = await only(w)
        for call in (
            lambda: w.app.approval_link(asked.id, by="anna"),
            lambda: asyncio.ensure_future(w.app.answer("x")),
        ):
            with pytest.raises(BadValue, match=r"App\(secret=…\), or set PERDURE_SECRET"):
                made = call()
                if not isinstance(made, str):
                    await made
        monkeypatch.setenv("PERDURE_SECRET", f"{'n' * 16} {'o' * 16}")
        link = w.app.approval_link(asked.id, choice="approve", by="anna")
        monkeypatch.setenv("PERDURE_SECRET", "n" * 16)
        await w.app.answer(link)


@pytest.mark.parametrize(
    "secret", ["short", b"short", [], ["x" * 16, "short"], 7, [7], "\ud800" * 16]
)
def test_a_secret_that_is_none_is_refused_and_never_shown(secret: Any) -> None:
    with pytest.raises(BadValue) as refused:
        App("memory://", secret=secret)
    assert "short" not in str(refused.value)


# --- what is asked ---


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a/b"}, "'/'"),
        ({"title": 7}, "title"),
        ({"title": "x" * 600}, "approval_title_bytes_max"),
        ({"description": "x" * 9000}, "approval_description_bytes_max"),
        ({"description": "a\0b"}, "zero byte"),
        ({"choices": []}, "are none"),
        ({"choices": "approve"}, "list"),
        ({"choices": ["a", "a"]}, "twice"),
        ({"choices": [""]}, "empty"),
        ({"choices": [7]}, "choice"),
        ({"choices": list(map(str, range(40)))}, "choices_max"),
        ({"who": 7}, "who"),
        ({"who": [""]}, "empty"),
        ({"who": ["group:"]}, "no group"),
        ({"who": ["x" * 300]}, "person_bytes_max"),
        ({"who": list(map(str, range(70)))}, "approvers_max"),
        ({"expires": "soon"}, "expires"),
        ({"expires": 0}, "more than nothing"),
        ({"remind": "often"}, "remind"),
        ({"remind": 0}, "more than nothing"),
        ({"remind": ["2h", "1h"]}, "in order"),
        ({"remind": ["1h", "1h"]}, "in order"),
        ({"remind": list(range(1, 60))}, "reminders_max"),
        ({"remind": "2h", "expires": "1h"}, "nobody may answer any more"),
        ({"remind": ["1h", "2h"], "expires": "2h"}, "nobody may answer any more"),
        ({"data": "x" * 20_000}, "approval_data_bytes_max"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        approval(**{"name": "refund", **wrong})


def test_data_that_is_no_json_is_refused_at_once() -> None:
    with pytest.raises(InvalidPayload):
        approval("refund", data=object())


def test_a_type_with_too_large_a_form_is_refused_at_once() -> None:
    large = msgspec.defstruct("Large", [(f"field_{n}", str) for n in range(2000)])
    with pytest.raises(BadValue, match="approval_schema_bytes_max"):
        approval("refund", type=large)


def test_it_looks_like_what_one_writes() -> None:
    assert repr(approval("refund") | timer("1h")) == "approval('refund') | timer('3600s')"


async def test_a_python_filter_beside_it_is_refused(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(approval("refund") | paid.about(where=lambda amount: amount > 1))
        except BadValue as error:
            return str(error)
        return ""

    async with world(app) as w:
        run = await w.begin(flow)
        assert "CEL" in await run.result()


async def test_only_the_engine_tells_of_approvals(world: Any, app: App) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue, match="engine alone"):
            await w.app.emit("hitl.decided", {})
        await w.app.emit("hitl.approved", {})


async def test_instances_inside_containers_are_taken(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        asked = approval("refunds", type=list[Refund], data=[Refund(1), {"x": Refund(2)}])
        return sum(one.amount for one in (await ctx.wait(asked)).payload)

    async with world(app) as w:
        run = await w.begin(flow)
        asked = await only(w)
        assert asked.data == [{"amount": 1, "note": ""}, {"x": {"amount": 2, "note": ""}}]
        await w.app.decide(asked.id, payload=[Refund(1), {"amount": 2}], by="anna")
        await w.settle()
        assert await run.result() == 3


def test_a_decision_can_be_matched_and_compared() -> None:
    decision = Decision(choice="a", payload=None, by="x", decided_at=None)  # type: ignore[arg-type]
    assert replace(decision, by="y") != decision
