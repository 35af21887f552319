"""Plays: every kind of part on every store, its state at any time, its signals, and what the ledger is told."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from perdure import (
    App,
    Buffered,
    Conflict,
    Context,
    Delivered,
    InvalidPayload,
    Permanent,
    Retry,
    RunFailed,
    Signal,
    SignalClosed,
    StepInfo,
    UnknownSignal,
    workflow,
)
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.play import Act, Call, Chorus, Cue, Play, Scene, Sleep


@dataclass
class Approval:
    ok: bool
    by: str = ""


@dataclass
class Order:
    id: str = "o-1"
    total: int = 0
    log: list[str] = field(default_factory=list)
    mailed: bool = False
    texted: bool = False
    by: str = ""


class Calls:
    """Callbacks that count how often they were really called."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.failing: set[str] = set()

    def act(self, name: str, change: Callable[[Any], object] | None = None) -> Any:
        async def function(ctx: StepInfo, state: Any) -> None:
            self.made.append(name)
            if name in self.failing:
                raise OSError(f"{name} is down")
            if change is None:
                state.log.append(name)
            else:
                change(state)

        return function


@pytest.fixture
def calls() -> Calls:
    return Calls()


def apply_approval(ctx: StepInfo, state: Order, approval: Approval) -> None:
    state.by = approval.by


def give_up(ctx: StepInfo, state: Order) -> None:
    state.log.append("gave up")


def is_large(state: Order) -> bool:
    return state.total > 1000


def order_play(calls: Calls, **options: Any) -> Play[Order]:
    return Play(
        "order",
        Order,
        [
            Act("reserve", calls.act("reserve"), compensate=calls.act("release")),
            Signal(
                "manager-approval",
                Approval,
                on_receive=apply_approval,
                timeout="48h",
                on_timeout=give_up,
                condition=is_large,
            ),
            Scene(
                "ship",
                [
                    Act("pack", calls.act("pack")),
                    Chorus(
                        "notify",
                        [
                            Act("mail", calls.act("mail", lambda s: setattr(s, "mailed", True))),
                            Act("sms", calls.act("sms", lambda s: setattr(s, "texted", True))),
                        ],
                    ),
                ],
                saga=True,
            ),
        ],
        **options,
    )


async def types_of(w: Any, prefix: str = "signal.") -> list[str]:
    return [one.type for one in await w.facts() if one.type.startswith(prefix)]


async def payload_of(w: Any, type: str) -> Any:
    (fact,) = await w.facts(type)
    return msgspec.json.decode(fact.payload)


# --- from the beginning to the end ---


async def test_a_play_waits_gets_its_signal_and_ends_with_its_state(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        assert await run.status() == "waiting"
        sent = await w.app.signal(run.id, "manager-approval", {"ok": True, "by": "ann"})
        assert isinstance(sent, Delivered)
        await w.settle()
        assert await run.result() == Order(
            total=2000, log=["reserve", "pack"], mailed=True, texted=True, by="ann"
        )
        assert sorted(calls.made) == ["mail", "pack", "reserve", "sms"]


async def test_a_replay_restores_the_state_and_calls_nothing_again(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert calls.made == ["reserve"]
        await w.evict()
        await w.app.signal(run.id, "manager-approval", Approval(ok=True, by="bob"))
        await w.settle()
        state = await w.app.run(run.id).result()
        assert (state["by"], state["log"]) == ("bob", ["reserve", "pack"])
        assert sorted(calls.made) == ["mail", "pack", "reserve", "sms"]


class Struct(msgspec.Struct):
    total: int = 0
    log: list[str] = []


class Frozen(msgspec.Struct, frozen=True):
    total: int = 0
    log: tuple[str, ...] = ()


class Model(pydantic.BaseModel):
    total: int = 0
    log: list[str] = []


@pytest.mark.parametrize("kind", [Struct, Frozen, Model])
async def test_a_state_is_a_struct_a_model_or_something_new_given_back(
    world: Any, app: App, kind: Any
) -> None:
    def add(ctx: StepInfo, state: Any) -> Any:
        if isinstance(state, Frozen):
            return Frozen(state.total + 1, (*state.log, ctx.path))
        state.total += 1
        state.log.append(ctx.path)
        return None

    play: Play[Any] = Play("sum", kind, [Act("one", add), Act("two", add)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, kind())
        state = await run.result()
        assert isinstance(state, kind)
        assert (state.total, list(state.log)) == (2, ["one", "two"])


async def test_a_callback_knows_its_run_and_gets_what_the_app_has(world: Any) -> None:
    class Bank:
        name = "the bank"

    def pay(ctx: StepInfo, state: Order) -> None:
        state.log += [ctx.run_id, ctx.path, ctx.dep(Bank).name, ctx.idempotency_key]

    app = App("memory://", deps=[Bank()])
    play = Play("pay", Order, [Scene("till", [Act("pay", pay)])])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(), id="r1")
        state = await run.result()
        assert state.log == ["r1", "till/pay", "the bank", "r1/0/till/pay"]


async def test_each_attempt_gets_the_state_as_it_was(world: Any, app: App) -> None:
    def stumble(ctx: StepInfo, state: Order) -> None:
        state.log.append(f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise OSError("down")

    play = Play("try", Order, [Act("try", stumble, retry=Retry(attempts=3, backoff="1s"))])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.advance("1m")
        assert (await run.result()).log == ["attempt 3"]


async def test_what_is_no_state_is_not_taken_for_one(world: Any, app: App) -> None:
    play = Play("bad", Order, [Act("bad", lambda ctx, state: "done", retry=Retry(attempts=9))])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed, match="neither None nor a Order") as caught:
            await run.result()
        assert caught.value.path == "bad"


# --- signals ---


async def test_a_signal_that_comes_early_is_kept_for_its_place(
    world: Any, app: App, calls: Calls
) -> None:
    play = Play(
        "late",
        Order,
        [Sleep("rest", "1h"), Signal("ok", Approval, on_receive=apply_approval)],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        assert isinstance(await w.app.signal(run.id, "ok", Approval(True, "ann")), Buffered)
        await w.advance("1h")
        assert (await run.result()).by == "ann"
        assert await types_of(w) == ["signal.delivered", "signal.received"]


async def test_the_life_of_a_signal_is_on_the_ledger_with_the_state_after(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        waiting = await payload_of(w, "signal.waiting")
        assert (waiting["name"], waiting["path"]) == ("manager-approval", "manager-approval")
        assert waiting["deadline_at"] == w.clock.now() + 48 * 3600 * 1_000_000
        await w.app.signal(run.id, "manager-approval", Approval(True, "ann"))
        await w.settle()
        assert await types_of(w) == ["signal.waiting", "signal.delivered", "signal.received"]
        received = await payload_of(w, "signal.received")
        assert received["payload"] == {"ok": True, "by": "ann"}
        assert received["state_after"]["by"] == "ann"
        assert received["run_id"] == run.id


async def test_a_wait_is_announced_once_whatever_happens_to_the_run(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        await run.pause()
        await w.settle()
        await run.resume()
        await w.settle()
        await w.evict()
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert await types_of(w) == ["signal.waiting"]


async def test_a_timeout_is_handled_and_told_with_the_state_after(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        await w.advance("48h")
        assert (await run.result()).log == ["reserve", "gave up", "pack"]
        assert await types_of(w) == ["signal.waiting", "signal.timeout"]
        timeout = await payload_of(w, "signal.timeout")
        assert timeout["path"] == "manager-approval"
        assert timeout["state_after"]["log"] == ["reserve", "gave up"]


async def test_a_timeout_without_a_handler_fails_the_play_there(world: Any, app: App) -> None:
    play = Play("wait", Order, [Signal("ok", Approval, timeout="1h")])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.advance("1h")
        with pytest.raises(RunFailed, match="WaitTimeout") as caught:
            await run.result()
        assert caught.value.path == "ok"
        assert await types_of(w) == ["signal.waiting", "signal.timeout"]


async def test_a_timeout_whose_handler_fails_is_told_once_with_the_error(
    world: Any, app: App
) -> None:
    def refuse(ctx: StepInfo, state: Order) -> None:
        raise Permanent("nobody came")

    play = Play("wait", Order, [Signal("ok", Approval, timeout="1h", on_timeout=refuse)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.advance("1h")
        with pytest.raises(RunFailed, match="nobody came") as caught:
            await run.result()
        assert caught.value.path == "ok"
        timeout = await payload_of(w, "signal.timeout")
        assert timeout["error"]["message"] == "nobody came"
        assert "state_after" not in timeout


async def test_a_condition_is_asked_once_on_the_way_in(world: Any, app: App) -> None:
    asked: list[int] = []

    def is_asked(state: Order) -> bool:
        asked.append(state.total)
        return False

    play = Play(
        "skip",
        Order,
        [Signal("ok", Approval, condition=is_asked, timeout="1h"), Sleep("rest", "1h")],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=7))
        await w.evict()
        skipped = await payload_of(w, "signal.skipped")
        assert (skipped["name"], skipped["path"]) == ("ok", "ok")
        await w.advance("1h")
        assert await run.status() == "completed"
        assert asked == [7]


@pytest.mark.parametrize("how", ["received", "timed out", "skipped"])
async def test_a_place_that_was_passed_takes_no_signal_any_more(
    world: Any, app: App, how: str
) -> None:
    play = Play(
        "once",
        Order,
        [
            Signal(
                "ok",
                Approval,
                timeout="1h",
                on_timeout=give_up,
                condition=lambda state: state.total > 0,
            ),
            Sleep("rest", "9h"),
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=0 if how == "skipped" else 1))
        if how == "received":
            await w.app.signal(run.id, "ok", Approval(True))
        elif how == "timed out":
            await w.advance("1h")
        await w.settle()
        with pytest.raises(SignalClosed, match=how) as caught:
            await w.app.signal(run.id, "ok", Approval(True))
        assert (caught.value.name, caught.value.run_id) == ("ok", run.id)
        assert await w.app.buffered(run.id) == []


async def test_a_way_that_was_not_taken_takes_no_signal(world: Any, app: App) -> None:
    play = Play(
        "ways",
        Order,
        [
            Cue(
                "way",
                lambda state: "left",
                {
                    "left": Scene("on-the-left", [Signal("left", Approval)]),
                    "else": Scene("on-the-right", [Signal("right", Approval)]),
                },
            )
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(SignalClosed, match="skipped at 'way'"):
            await w.app.signal(run.id, "right", Approval(True))
        assert [one.path for one in await run.waiting()] == ["on-the-left/left"]
        sent = await w.app.signal(run.id, "left", Approval(True), path="on-the-left/left")
        assert sent.path == "on-the-left/left"
        await w.settle()
        assert await run.status() == "completed"


async def test_only_its_own_signals_and_payloads_that_fit_are_taken(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        with pytest.raises(UnknownSignal):
            await w.app.signal(run.id, "other", 1)
        with pytest.raises(InvalidPayload):
            await w.app.signal(run.id, "manager-approval", {"ok": "perhaps"})
        for path in ("nowhere", "ship/manager-approval"):
            with pytest.raises(Conflict, match="stands at 'manager-approval' in play 'order', not"):
                await w.app.signal(run.id, "manager-approval", Approval(ok=True), path=path)
        assert await run.status() == "waiting"
        assert await run.buffered() == []


async def test_who_waits_is_found_by_name_and_by_path(world: Any, app: App) -> None:
    ok = Signal("ok", Approval)
    play = Play("one", Order, [Scene("deep", [ok])])

    @app.workflow
    async def other(ctx: Context) -> None:
        await ctx.wait(ok)

    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        plain = await w.begin(other)
        by_name = (await w.app.find_waiting(ok)).items
        assert {one.run_id for one in by_name} == {run.id, plain.id}
        by_path = (await w.app.find_waiting("ok", path="deep/ok")).items
        assert [(one.run_id, one.path) for one in by_path] == [(run.id, "deep/ok")]
        one = await w.app.find_waiting("ok", path="ok", limit=1)
        assert ([each.run_id for each in one.items], one.cursor) == ([plain.id], None)


async def test_signals_in_code_are_announced_if_they_ask_for_it(world: Any, app: App) -> None:
    loud, quiet = Signal("loud", int, announce=True), Signal("quiet", int)

    @app.workflow
    async def both(ctx: Context) -> int:
        return await ctx.wait(quiet) + await ctx.wait(loud)

    async with world(app) as w:
        run = await w.begin(both)
        await w.app.signal(run.id, quiet, 1)
        await w.settle()
        waiting = await payload_of(w, "signal.waiting")
        assert waiting["name"] == "loud"


# --- a receipt that fails ---


def counted(calls: Calls) -> Any:
    def receive(ctx: StepInfo, state: Order, approval: Approval) -> None:
        calls.made.append(approval.by)
        if approval.by in calls.failing:
            raise OSError(f"{approval.by} is unknown")
        state.by = approval.by

    return receive


async def test_a_receipt_that_raises_is_tried_again_with_the_same_payload(
    world: Any, app: App, calls: Calls
) -> None:
    calls.failing.add("ann")
    retry = Retry(attempts=3, backoff="1s", jitter=0)
    play = Play("take", Order, [Signal("ok", Approval, on_receive=counted(calls), retry=retry)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.app.signal(run.id, "ok", Approval(True, "ann"))
        await w.settle()
        assert calls.made == ["ann"]
        await w.evict()
        calls.failing.clear()
        await w.advance("1m")
        assert (await run.result()).by == "ann"
        assert calls.made == ["ann", "ann"]
        assert await types_of(w) == ["signal.waiting", "signal.delivered", "signal.received"]


async def test_a_receipt_that_fails_for_good_is_retried_or_answered_anew(
    world: Any, app: App, calls: Calls
) -> None:
    calls.failing.add("ann")
    play = Play("take", Order, [Signal("ok", Approval, on_receive=counted(calls))])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.app.signal(run.id, "ok", Approval(True, "ann"))
        await w.settle()
        with pytest.raises(RunFailed, match="ann is unknown") as caught:
            await run.result()
        assert caught.value.path == "ok"
        await run.retry()  # the same payload
        await w.settle()
        assert (await run.status(), calls.made) == ("failed", ["ann", "ann"])
        with pytest.raises(InvalidPayload):
            await run.retry("ok", payload={"ok": "perhaps"})
        assert await run.status() == "failed"
        await run.retry(caught.value.path, payload=Approval(True, "bob"))
        await w.settle()
        assert (await run.result()).by == "bob"
        assert calls.made == ["ann", "ann", "bob"]
        retried = [
            msgspec.json.decode(one.payload) for one in await w.facts("workflow.run_retried")
        ]
        assert retried[1]["path"] == "ok"
        assert retried[1]["replaced"]["payload"] == {"ok": True, "by": "ann"}
        assert retried[1]["answer"]["payload"] == {"ok": True, "by": "bob"}
        delivered = [msgspec.json.decode(one.payload) for one in await w.facts("signal.delivered")]
        assert [one["payload"]["by"] for one in delivered] == ["ann", "bob"]


# --- parts ---


async def test_a_chorus_puts_the_fields_of_its_branches_together(world: Any, app: App) -> None:
    def set_by(ctx: StepInfo, state: Order) -> None:
        state.by = "left"

    def add(ctx: StepInfo, state: Order) -> None:
        state.total += 5

    def look(ctx: StepInfo, state: Order) -> None:
        state.log = [state.by, str(state.total)]

    chorus = Chorus("both", [Scene("left", [Act("by", set_by)]), Act("add", add)])
    play = Play("chorus", Order, [chorus, Act("look", look)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=1))
        assert (await run.result()).log == ["left", "6"]
        paths = [one.path for one in await run.history() if one.kind == "act"]
        assert sorted(paths) == ["both[0]/left/by", "both[1]/add", "look"]


async def test_two_branches_that_change_one_field_are_told_of_it(world: Any, app: App) -> None:
    def set_total(ctx: StepInfo, state: Order) -> None:
        state.total = len(ctx.path)

    play = Play(
        "quarrel",
        Order,
        [Chorus("both", [Act("one", set_total), Act("other-one", set_total)])],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(
            RunFailed, match="one, other-one of chorus 'both' all changed"
        ) as failed:
            await run.result()
        assert failed.value.type == "StateConflict"
        assert "'total'" in failed.value.message


async def test_branches_of_a_chorus_wait_each_for_its_own_signal(world: Any, app: App) -> None:
    def is_mailed(ctx: StepInfo, state: Order, payload: Any) -> None:
        state.mailed = True

    def is_texted(ctx: StepInfo, state: Order, payload: Any) -> None:
        state.texted = True

    play = Play(
        "two",
        Order,
        [
            Chorus(
                "both",
                [Signal("mail", on_receive=is_mailed), Signal("text", on_receive=is_texted)],
            )
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        assert sorted(one.path for one in await run.waiting()) == ["both[0]/mail", "both[1]/text"]
        await w.app.signal(run.id, "text", 1)
        await w.settle()
        assert (await run.get("state")).texted
        await w.evict()
        await w.app.signal(run.id, "mail", 1)
        await w.settle()
        state = await run.result()
        assert (state.mailed, state.texted) == (True, True)


@pytest.mark.parametrize(("total", "log"), [(1, ["small"]), (2000, ["large", "gift"]), (0, [])])
async def test_a_cue_goes_one_way(
    world: Any, app: App, calls: Calls, total: int, log: list[str]
) -> None:
    def size(state: Order) -> Literal["small", "large", "none"]:
        return "large" if state.total > 1000 else "small" if state.total else "none"

    play = Play(
        "cue",
        Order,
        [
            Cue(
                "size",
                size,
                {
                    "small": Act("small", calls.act("small")),
                    "large": [Act("large", calls.act("large")), Act("gift", calls.act("gift"))],
                    "else": None,
                },
            )
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=total))
        assert (await run.result()).log == log


async def test_a_cue_that_is_answered_with_no_way_fails(world: Any, app: App) -> None:
    play = Play("cue", Order, [Cue("way", lambda state: "nowhere", {"here": None})])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed, match="was answered 'nowhere', and its ways are 'here'"):
            await run.result()


async def test_a_sleep_lasts_as_long_as_the_state_says(world: Any, app: App) -> None:
    play = Play("sleep", Order, [Sleep("nap", lambda state: f"{state.total}m")])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=30))
        assert await run.status() == "sleeping"
        await w.advance("29m")
        await w.evict()
        assert await run.status() == "sleeping"
        await w.advance("1m")
        assert await run.status() == "completed"


@workflow
async def double(ctx: Context, n: int, word: str) -> str:
    return f"{word} {2 * n}"


async def test_a_call_runs_a_child_and_takes_its_result(world: Any, app: App) -> None:
    def take(ctx: StepInfo, state: Order, result: str) -> None:
        state.by = result

    call = Call("ask", double, input=lambda s: (s.total, "twice"), on_result=take)
    play = Play("parent", Order, [call])
    app.add(play)  # and what it calls
    async with world(app) as w:
        run = await w.begin(play, Order(total=4))
        assert (await run.result()).by == "twice 8"
        (child,) = (await w.app.runs(parent=run.id)).items
        assert child.workflow == "double"
        paths = [one.path for one in await run.history()]
        assert paths == ["ask.input", "ask", "ask.result", "ask.receive"]


async def test_a_play_is_called_like_any_workflow(world: Any, app: App, calls: Calls) -> None:
    inner = Play("inner", Order, [Act("in", calls.act("in"))])
    outer = Play(
        "outer",
        Order,
        [Call("go-in", inner, input=lambda s: s, on_result=lambda ctx, s, result: result)],
    )
    app.add(outer)
    async with world(app) as w:
        run = await w.begin(outer, Order())
        assert (await run.result()).log == ["in"]


# --- the state, and where a run stands ---


async def test_the_state_is_seen_live_and_at_any_earlier_point(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        assert (await run.get("state")).log == ["reserve"]
        assert (await w.app.run(run.id).get("state"))["log"] == ["reserve"]
        with pytest.raises(BadValue, match=r"has no state on record .*known: reserve"):
            await run.state_at("manager-approval")
        await w.app.signal(run.id, "manager-approval", Approval(True, "ann"))
        await w.settle()
        assert (await run.state_at("reserve")).by == ""
        assert (await run.state_at("manager-approval")).log == ["reserve"]
        assert (await run.state_at("manager-approval")).by == "ann"
        assert (await run.state_at("ship/pack")).log == ["reserve", "pack"]
        assert (await run.state_at("ship/pack")).mailed is False
        after = await run.state_at("ship/notify")
        assert (after.mailed, after.texted) == (True, True)
        assert await run.state_at("ship") == await run.get("state") == await run.result()


async def test_the_state_of_a_run_that_has_done_nothing_is_its_input(world: Any, app: App) -> None:
    play = Play("rest", Order, [Sleep("rest", "1h")])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=3))
        assert await run.get("state") == Order(total=3)


async def test_what_is_no_play_has_no_state_of_one(world: Any, app: App) -> None:
    @app.workflow
    async def plain(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with world(app) as w:
        run = await w.begin(plain)
        assert await run.get("state", "none") == "none"
        with pytest.raises(BadValue, match="which is no play"):
            await run.state_at("x")
        with pytest.raises(BadValue, match="which is no play"):
            await run.graph()


def statuses(graph: dict[str, Any]) -> dict[str, str]:
    found = {}

    def walk(parts: list[dict[str, Any]]) -> None:
        for part in parts:
            found[part["name"]] = part["status"]
            walk(part.get("parts", []))
            for way in part.get("ways", {}).values():
                walk(way)

    walk(graph["parts"])
    return found


async def test_a_graph_shows_where_a_run_stands_also_to_who_has_no_code(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        assert statuses(await run.graph()) == {
            "reserve": "done",
            "manager-approval": "waiting",
            "ship": "pending",
            "pack": "pending",
            "notify": "pending",
            "mail": "pending",
            "sms": "pending",
        }
        w.app.registry._by_key.pop(play.key)
        assert statuses(await run.graph())["manager-approval"] == "waiting"
        assert (await run.get("state")).log == ["reserve"]
        w.app.registry._by_key[play.key] = play
        await w.app.signal(run.id, "manager-approval", Approval(True, "ann"))
        await w.settle()
        assert set(statuses(await run.graph()).values()) == {"done"}
        assert "class p1,p2,p3,p4,p5,p6,p7 done" in play.mermaid(await run.graph())


# --- the same to everything else ---


async def test_a_play_is_paused_and_resumed(world: Any, app: App, calls: Calls) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        await run.pause("lunch")
        await w.settle()
        sent = await w.app.signal(run.id, "manager-approval", Approval(True, "ann"))
        assert isinstance(sent, Buffered)
        await w.settle()
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert (await run.result()).by == "ann"


async def test_a_play_that_was_changed_under_a_run_parks_it(
    world: Any, app: App, calls: Calls
) -> None:
    first = Play("order", Order, [Act("one", calls.act("one")), Sleep("rest", "1h")])
    second = Play("order", Order, [Act("two", calls.act("two")), Sleep("rest", "1h")])
    app.add(first)
    async with world(app) as w:
        run = await w.begin(first, Order())
        await w.crash()
    other = App("memory://")
    other.add(second)
    async with world(other) as w:
        await w.settle()
        await w.advance("1h")
        info = await w.app.run(run.id).info()
        assert info.status == "paused"
        assert "act 'one'" in (info.reason or "")
        assert "act 'two'" in (info.reason or "")
        assert calls.made == ["one"]


async def test_a_recorded_state_that_no_longer_fits_parks_the_run(world: Any, app: App) -> None:
    def add(ctx: StepInfo, state: Order) -> None:
        state.total = 1

    @dataclass
    class Other:
        total: str

    app.add(Play("order", Order, [Act("one", add), Sleep("rest", "1h")]))
    async with world(app) as w:
        run = await w.begin("order", Order())
        await w.crash()
    other = App("memory://")
    other.add(Play("order", Other, [Act("one", add), Sleep("rest", "1h")]))
    async with world(other) as w:
        await w.settle()
        await w.advance("1h")
        info = await w.app.run(run.id).info()
        assert info.status == "paused"
        assert "no longer decodes" in (info.reason or "")


@pytest.mark.parametrize("then", ["step", "wait"])
async def test_a_way_that_is_gone_from_the_code_parks_the_run(
    world: Any, app: App, calls: Calls, then: str
) -> None:
    """Nothing is undone for it: it is the code that does not fit."""
    reached = asyncio.Event()

    async def work(ctx: StepInfo, state: Order) -> None:
        reached.set()
        await asyncio.Event().wait()

    def play_of(way: str) -> Play[Order]:
        last = Act("work", work) if then == "step" else Signal("ok", str)
        first = Act("a", calls.act("a"), compensate=calls.act("undo a"))
        return Play("order", Order, [first, Cue("tier", lambda s: way, {way: last, "not": None})])

    old = play_of("gold")
    app.add(old)
    async with world(app) as w:
        run = await w.app.start(old, Order())
        if then == "step":
            await reached.wait()
        else:
            await w.settle()
        await w.crash()
    other = App("memory://")
    other.add(play_of("vip"))
    async with world(other) as w:
        await w.settle()
        if then == "wait":
            await w.app.run(run.id).pause()
            await w.app.run(run.id).resume()
            await w.settle()
        info = await w.app.run(run.id).info()
        assert info.status == "paused"
        assert "was answered 'gold', and its ways are 'vip', 'not'" in (info.reason or "")
        assert calls.made == ["a"]


async def test_functions_of_the_state_are_asked_once(world: Any, app: App) -> None:
    asked: list[str] = []

    def say(word: str, answer: Any) -> Any:
        def function(state: Order) -> Any:
            asked.append(word)
            return answer(state) if callable(answer) else answer

        return function

    play = Play(
        "once",
        Order,
        [
            Sleep("rest", say("duration", "1h")),
            Call("ask", double, input=say("input", lambda s: (s.total, "twice"))),
            Cue("which", say("choice", "x"), {"x": Sleep("more", "1h")}),
            Act("end", lambda ctx, s: None, condition=say("condition", True)),
            Signal("ok", str),
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=1))
        for _ in range(2):
            await w.evict()
            await w.advance("1h")
        await w.evict()
        await w.app.signal(run.id, "ok", "yes")
        await w.settle()
        await run.result()
        assert asked == ["duration", "input", "choice", "condition"]


async def test_a_fork_of_a_play_goes_on_from_the_state_that_it_had(
    world: Any, app: App, calls: Calls
) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order(total=2000))
        await w.app.signal(run.id, "manager-approval", Approval(ok=True, by="ann"))
        await w.settle()
        done = await run.result()
        calls.made.clear()
        for path in ("ship/notify[1]/sms", "ship/pack", "manager-approval"):
            fork = await run.fork(path, id=f"from {path}")
            await w.settle()
            if path == "manager-approval":
                assert (await fork.get("state")).log == ["reserve"]
                await w.app.signal(fork.id, "manager-approval", Approval(ok=True, by="ann"))
                await w.settle()
            assert await fork.result() == done
            assert await fork.get("state") == done
        assert calls.made.count("reserve") == 0
        assert calls.made.count("pack") == 2
        assert calls.made.count("sms") == 3


async def test_choruses_in_choruses(world: Any, app: App, calls: Calls) -> None:
    def sets(field: str) -> Act[Order]:
        return Act(field, calls.act(field, lambda s: setattr(s, field, True)))

    def take(ctx: StepInfo, state: Order, said: str) -> None:
        state.by = said

    inner = Chorus("inner", [sets("mailed"), Signal("ok", str, on_receive=take)])
    play = Play("deep", Order, [Chorus("outer", [Scene("s", [inner]), sets("texted")])])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.evict()
        live = await run.get("state")
        assert (live.mailed, live.texted, live.by) == (True, True, "")
        await w.app.signal(run.id, "ok", "ann", path="outer[0]/s/inner[1]/ok")
        await w.settle()
        done = await run.result()
        assert (done.mailed, done.texted, done.by) == (True, True, "ann")
        assert await run.get("state") == done
        assert (await run.state_at("outer[0]/s/inner")).by == "ann"
        assert sorted(calls.made) == ["mailed", "texted"]


async def test_a_receipt_that_fails_in_a_chorus_is_answered_anew(
    world: Any, app: App, calls: Calls
) -> None:
    def take(ctx: StepInfo, state: Order, said: str) -> None:
        if said == "bad":
            raise Permanent("bad")
        state.by = said

    both = Chorus(
        "both",
        [
            Signal("ok", str, on_receive=take),
            Act("mail", calls.act("mail", lambda s: setattr(s, "mailed", True))),
        ],
    )
    play = Play("one", Order, [both])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await w.app.signal(run.id, "ok", "bad")
        await w.settle()
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.path == "both[0]/ok"
        await run.retry("both[0]/ok", payload="good")
        await w.settle()
        done = await run.result()
        assert (done.by, done.mailed) == ("good", True)
        assert calls.made == ["mail"]


async def test_a_graph_shows_what_could_not_be_undone(world: Any, app: App, calls: Calls) -> None:
    acts = [
        Act("a", calls.act("a"), compensate=calls.act("undo a"), retry=Retry(attempts=1)),
        Act("b", calls.act("b"), compensate=calls.act("undo b")),
        Act("c", calls.act("c")),
    ]
    play = Play("stuck", Order, acts)
    app.add(play)
    calls.failing |= {"c", "undo a"}
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed, match="undo a is down"):
            await run.result()
        assert statuses(await run.graph()) == {"a": "failed", "b": "compensated", "c": "failed"}


async def test_what_is_no_path_has_no_state(world: Any, app: App, calls: Calls) -> None:
    play = order_play(calls)
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        for path in (3, None, "", "x" * 5000):
            with pytest.raises(BadValue, match="path"):
                await run.state_at(path)  # type: ignore[arg-type]


async def test_versions_of_a_play_stand_side_by_side(world: Any, app: App, calls: Calls) -> None:
    first = Play("order", Order, [Sleep("rest", "1h"), Act("one", calls.act("one"))])
    second = Play("order", Order, [Act("two", calls.act("two"))], version=2)
    app.add(first)
    app.add(second)
    async with world(app) as w:
        old = await w.begin(first, Order())
        new = await w.begin("order", Order())
        await w.advance("1h")
        assert (await old.result()).log == ["one"]
        assert (await new.result()).log == ["two"]


# --- states that are put together ---


class Omitting(msgspec.Struct, omit_defaults=True):
    n: int = 0
    m: int = 0


async def test_a_branch_that_sets_a_field_back_to_its_default_has_changed_it(
    world: Any, app: App
) -> None:
    def back(ctx: StepInfo, state: Omitting) -> None:
        state.n = 0

    def other(ctx: StepInfo, state: Omitting) -> None:
        state.m = 3

    chorus = Chorus("both", [Act("back", back), Act("other", other)])
    play = Play("omit", Omitting, [chorus, Act("end", lambda ctx, state: None)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Omitting(n=5))
        assert await run.result() == Omitting(n=0, m=3)
        assert await run.get("state") == Omitting(n=0, m=3)


async def test_a_field_that_came_with_new_code_is_no_change_of_a_branch(
    world: Any, app: App
) -> None:
    def play_over(kind: Any) -> Play[Any]:
        def left(ctx: StepInfo, state: Any, said: Any) -> None:
            state.left = said
            if hasattr(state, "added"):
                state.added = 5

        def right(ctx: StepInfo, state: Any, said: Any) -> None:
            state.right = said

        sides = [Signal("left", str, on_receive=left), Signal("right", str, on_receive=right)]
        return Play("sides", kind, [Act("z", lambda ctx, state: None), Chorus("both", sides)])

    @dataclass
    class Old:
        left: str = ""
        right: str = ""

    @dataclass
    class New(Old):
        added: int = 0

    old = play_over(Old)
    app.add(old)
    async with world(app) as w:
        run = await w.begin(old, Old())
        await w.crash()
    other = App("memory://")
    other.add(play_over(New))
    async with world(other) as w:
        await w.settle()
        await w.app.signal(run.id, "left", "l")
        await w.app.signal(run.id, "right", "r")
        await w.settle()
        same = w.app.run(run.id)
        assert await same.result() == {"left": "l", "right": "r", "added": 5}
        assert await same.get("state") == await same.result()
        assert await same.state_at("both") == await same.result()


async def test_a_state_that_grows_too_large_fails_the_play_and_is_undone_all_the_same(
    world: Any, app: App, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(name: str) -> Act[Order]:
        def do(ctx: StepInfo, state: Order) -> None:
            setattr(state, name, "x" * 600)

        return Act(name, do)

    act = Act("z", calls.act("z"), compensate=calls.act("undo z"))
    play = Play("large", Order, [act, Chorus("both", [fill("id"), fill("by")])])
    app.add(play)
    async with world(app) as w:
        monkeypatch.setattr(limits, "payload_bytes_max", 1000)
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed, match="payload") as caught:
            await run.result()
        assert caught.value.path == "both"
        assert calls.made == ["z", "undo z"]


# --- what cannot be asked, and where it is said ---


async def test_a_condition_that_gives_back_a_coroutine_is_no_yes(world: Any, app: App) -> None:
    async def no(state: Order) -> bool:
        return False

    play = Play("odd", Order, [Act("a", lambda ctx, s: None, condition=lambda s: no(s))])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed, match="gave back an awaitable"):
            await run.result()


@pytest.mark.parametrize(
    ("part", "step"),
    [
        (Sleep("odd", lambda state: "soon"), "odd.duration"),
        (Sleep("odd", lambda state: {}["x"]), "odd.duration"),
        (Sleep("odd", lambda state: next(iter([]))), "odd.duration"),
        (Call("odd", double, input=lambda state: ("no number", 1)), "odd.input"),
        (Act("odd", lambda ctx, state: None, condition=lambda state: {}["x"]), "odd.condition"),
        (Cue("odd", lambda state: {}["x"], {"else": None}), "odd"),
    ],
    ids=["duration", "raises", "stops", "input", "condition", "choice"],
)
async def test_what_a_part_is_given_wrong_fails_the_play_there(
    world: Any, app: App, part: Any, step: str
) -> None:
    play = Play("odd", Order, [Scene("deep", [part])])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.path == f"deep/{step}"
        assert statuses(await run.graph())["odd"] == "failed"


async def test_a_graph_of_runs_that_have_ended_badly(world: Any, app: App, calls: Calls) -> None:
    play = Play(
        "end",
        Order,
        [Act("a", calls.act("a")), Signal("ok", str, timeout="1h"), Act("b", calls.act("b"))],
    )
    app.add(play)
    async with world(app) as w:
        late, ended = await w.begin(play, Order()), await w.begin(play, Order())
        await ended.terminate()
        await w.advance("1h")
        assert statuses(await late.graph()) == {"a": "done", "ok": "failed", "b": "pending"}
        assert statuses(await ended.graph()) == {"a": "done", "ok": "skipped", "b": "pending"}


async def test_a_wait_whose_time_is_over_takes_nothing_while_the_run_is_paused(
    world: Any, app: App
) -> None:
    play = Play("w", Order, [Signal("w", str, timeout="1h", on_timeout=give_up)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, Order())
        await run.pause()
        await w.advance("2h")
        with pytest.raises(SignalClosed, match="it timed out"):
            await w.app.signal(run.id, "w", "x")
        await run.resume()
        await w.settle()
        assert (await run.result()).log == ["gave up"]


# --- whenever the process dies ---


def long_play(calls: Calls) -> Play[Order]:
    """Every kind of part: signals in time and too late, a saga in a chorus, one that is undone if `fall` fails."""

    def doing(name: str, change: Callable[[Any], object] | None = None, **options: Any) -> Act[Any]:
        undo = calls.act(f"undo {name}", None if change is None else lambda state: None)
        return Act(name, calls.act(name, change), compensate=undo, **options)

    side = Scene("side", [doing("mail", lambda s: setattr(s, "mailed", True))], saga=True)
    return Play(
        "long",
        Order,
        [
            doing("reserve"),
            Scene("ask", [Signal("ok", Approval, on_receive=apply_approval)], saga=True),
            Signal("late", str, timeout="1h", on_timeout=give_up),
            Chorus("both", [side, Sleep("rest", lambda state: "1m")]),
            Call("double", double, input=lambda s: (s.total, "twice"), on_result=take_double),
            Cue("large", lambda s: "yes" if is_large(s) else "no", {"yes": doing("pack"), "no": None}),
            Act("fall", calls.act("fall"), condition=lambda s: s.id.startswith("bad")),
            Signal("end", str, condition=lambda s: s.id.startswith("cancelled")),
        ],
    )  # fmt: skip


def take_double(ctx: StepInfo, state: Order, result: str) -> None:
    state.log.append(result)


async def live(w: Any, play: Any, run_id: str) -> Any:
    """All that is done about a run, again after a crash."""
    run = await w.app.start(play, Order(id=run_id, total=2000), id=run_id)
    await w.settle()
    await w.app.signal(run_id, "ok", Approval(ok=True, by="ann"), key="ok")
    await w.settle()
    for _ in range(2):
        await w.advance("1h")
    if run_id.startswith("cancelled") and await run.status() == "waiting":
        await run.cancel()
        await w.settle()
    return run


def die_at(w: Any, run_id: str, place: str, number: int) -> asyncio.Event:
    """Have the process stop around the commit of this number that changes the run."""
    died, apply = asyncio.Event(), w.store.apply
    left = number

    async def dying(batch_id: str, batch: Any, *rest: Any) -> Any:
        nonlocal left
        left -= any(getattr(op, "run_id", None) == run_id for op in batch)
        if left > 0 or died.is_set():
            return await apply(batch_id, batch, *rest)
        if place == "after":
            await apply(batch_id, batch, *rest)
        died.set()
        await asyncio.Event().wait()

    w.store.apply = dying
    w.revive = lambda: setattr(w.store, "apply", apply)
    return died


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("end", ["completed", "bad", "cancelled"])
async def test_a_play_ends_in_the_same_state_whenever_the_process_dies(
    world: Any, app: App, place: str, end: str
) -> None:
    calls = Calls()
    calls.failing.add("fall")
    play = long_play(calls)
    app.add(play)
    ends: list[Any] = []
    for number in itertools.count(1):
        run_id = f"{end}-{number}"
        async with world(app) as w:
            died = die_at(w, run_id, place, number)
            life = asyncio.create_task(live(w, play, run_id))
            dies = asyncio.create_task(died.wait())
            await asyncio.wait([life, dies], return_when=asyncio.FIRST_COMPLETED)
            dies.cancel()
            killed = died.is_set()
            w.revive()
            if killed:
                await w.crash()
            else:
                ends.append(await ended(await life))
        if not killed:
            break
        async with world(app) as w:
            ends.append(await ended(await live(w, play, run_id)))
    assert number > 10
    assert all(one == ends[-1] for one in ends), ends


async def ended(run: Any) -> Any:
    """How a run has ended, and what it has on record."""
    state = await run.get("state")
    return await run.status(), state.log, state.mailed, [one.path for one in await run.history()]
