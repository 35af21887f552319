"""Where plays, sagas, approvals, streams, versions and forks meet: each is the same to the others as any workflow."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure import App, Context, Permanent, RunFailed, Signal, StepInfo, step_info
from perdure.approvals import approval
from perdure.play import Act, Call, Chorus, Play, Scene, Sleep
from perdure.testing import ReplayFailed, replay_check


@dataclass
class State:
    log: list[str] = field(default_factory=list)
    left: str = ""
    right: str = ""
    said: str = ""


class Calls:
    def __init__(self) -> None:
        self.made: list[str] = []

    def act(self, name: str, **options: Any) -> Act[State]:
        def do(ctx: StepInfo, state: State) -> None:
            self.made.append(name)
            state.log.append(name)

        return Act(name, do, **options)

    def side(self, name: str) -> Act[State]:
        def do(ctx: StepInfo, state: State) -> None:
            self.made.append(name)
            setattr(state, name, ctx.run_id)

        return Act(name, do)


def take(ctx: StepInfo, state: State, said: str) -> None:
    state.said = said


def play_of(calls: Calls, *more: Any, version: int = 1) -> Play[State]:
    return Play(
        "piece",
        State,
        [
            calls.act("a"),
            Signal("ok", str, on_receive=take),
            Chorus("both", [calls.side("left"), calls.side("right")]),
            *more,
        ],
        version=version,
    )


async def performed(w: Any, play: Play[State], **options: Any) -> Any:
    run = await w.begin(play, State(), **options)
    await w.app.signal(run.id, "ok", "yes")
    await w.settle()
    return run


# --- plays and forks ---


@pytest.mark.parametrize(
    ("from_path", "again"),
    [
        (None, ["a"]),
        ("ok.receive", ["left", "right"]),
        ("both[1]/right", ["right"]),
    ],
)
async def test_a_play_is_forked_at_a_part(
    world: Any, app: App, from_path: str | None, again: list[str]
) -> None:
    calls = Calls()
    play = play_of(calls)
    app.add(play)
    async with world(app) as w:
        run = await performed(w, play)
        # Branches record side by side: what comes before one of them is a matter of the record.
        order = [one.path for one in await run.history()]
        if from_path == "both[1]/right" and order[-1] != from_path:
            again = ["left", "right"]
        calls.made.clear()
        fork = await run.fork(from_path)
        await w.settle()
        assert sorted(calls.made) == again
        if from_path is None:
            assert await fork.status() == "waiting"
            return
        state = await fork.result()
        assert (state.log, state.said, state.right) == (["a"], "yes", fork.id)
        assert await fork.get("state") == state
        assert (await fork.state_at("ok")).said == "yes"


async def test_a_fork_of_a_play_with_another_state_and_version(world: Any, app: App) -> None:
    calls = Calls()
    first, second = play_of(calls), play_of(calls, calls.act("more"), version=2)
    app.add(first)
    app.add(second)
    async with world(app) as w:
        run = await performed(w, first)
        fork = await run.fork("a", input=State(log=["other"]), version=2)
        await w.settle()
        await w.app.signal(fork.id, "ok", "no")
        await w.settle()
        state = await fork.result()
        assert (state.log, state.said) == (["other", "a", "more"], "no")


async def test_a_play_is_exported_imported_and_goes_on(world: Any, app: App) -> None:
    calls = Calls()
    play = play_of(calls, Sleep("rest", "1h"), calls.act("z"))
    app.add(play)
    async with world(app) as w:
        run = await performed(w, play)
        document = await run.export()
        copy = await w.app.import_run(document, id="copy")
        await w.settle()
        assert (await copy.get("state")).said == "yes"
        await w.advance("1h")
        assert (await copy.result()).log == (await run.result()).log == ["a", "z"]
        assert sorted(calls.made) == ["a", "left", "right", "z", "z"]


async def test_a_replay_check_of_plays(world: Any, app: App) -> None:
    calls = Calls()
    play = play_of(calls)
    app.add(play)
    async with world(app) as w:
        whole = await (await performed(w, play)).export()
        midway = await (await w.begin(play, State())).export()
    calls.made.clear()
    assert len(replay_check(app, [whole, midway]).runs) == 2
    assert calls.made == []
    changed = App("memory://")
    changed.add(Play("piece", State, [calls.act("b"), *play_of(calls).parts[1:]]))
    with pytest.raises(ReplayFailed) as caught:
        replay_check(changed, [whole, midway])
    assert len(caught.value.failures) == 2
    assert "act 'a'" in str(caught.value)


# --- sagas and forks ---


async def test_a_run_that_was_rolled_back_is_forked_from_before_it(world: Any, app: App) -> None:
    done: list[str] = []

    @app.step
    async def do(what: str) -> None:
        done.append(what)
        if what == "break" and len(done) < 4:
            raise Permanent("broken")

    @app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.saga() as saga:
            await ctx.step(do, "make")
            saga.on_rollback(do, "unmake")
            await ctx.step(do, "break")
        return "through"

    async with world(app) as w:
        run = await w.begin(work)
        with pytest.raises(RunFailed):
            await run.result()
        assert done == ["make", "break", "unmake"]
        fork = await run.fork("saga/do")
        await w.settle()
        assert await fork.result() == "through"
        assert await run.status() == "failed"


# --- approvals ---


async def test_a_retry_after_a_saga_asks_nobody_twice(world: Any, app: App) -> None:
    broken = [True]
    done: list[str] = []

    @app.step
    async def do(what: str) -> str:
        done.append(what)
        if what == "pay" and broken:
            raise Permanent("no money")
        return what

    @app.workflow
    async def refund(ctx: Context) -> str:
        async with ctx.saga() as saga:
            await ctx.step(do, "reserve")
            saga.on_rollback(do, "release")
            decision = await ctx.wait(approval("refund", title="Refund?"))
            await ctx.step(do, "pay")
            return decision.by or ""

    async with world(app) as w:
        run = await w.begin(refund)
        (asked,) = (await w.app.approvals()).items
        await w.app.decide(asked.id, "approve", by="anna")
        await w.settle()
        assert await run.status() == "failed"
        broken.clear()
        await run.retry()
        await w.settle()
        assert await run.result() == "anna"
        assert done == ["reserve", "pay", "release", "reserve", "pay"]
        requested = [one for one in await w.facts() if one.type == "hitl.requested"]
        assert len(requested) == 1


async def test_a_fork_asks_anew_under_an_id_of_its_own(world: Any, app: App) -> None:
    @app.workflow
    async def refund(ctx: Context) -> str:
        decision = await ctx.wait(approval("refund", title="Refund?"))
        return decision.choice or ""

    async with world(app) as w:
        run = await w.begin(refund)
        fork = await run.fork("refund")
        await w.settle()
        inbox = {one.run_id: one.id for one in (await w.app.approvals()).items}
        assert set(inbox) == {run.id, fork.id}
        await w.app.decide(inbox[fork.id], "reject", by="bob")
        await w.settle()
        assert (await fork.result(), await run.status()) == ("reject", "waiting")


async def test_an_open_approval_is_exported_and_asked_where_it_is_imported(
    world: Any, app: App
) -> None:
    @app.workflow
    async def refund(ctx: Context) -> str:
        decision = await ctx.wait(approval("refund", title="Refund?", expires="1d"))
        return decision.choice or ""

    async with world(app) as w:
        run = await w.begin(refund)
        copy = await w.app.import_run(await run.export(), id="copy")
        await w.settle()
        inbox = {one.run_id: one.id for one in (await w.app.approvals()).items}
        assert set(inbox) == {run.id, "copy"}
        await w.app.decide(inbox["copy"], "approve", by="bob")
        await w.settle()
        assert (await copy.result(), await run.status()) == ("approve", "waiting")


# --- streams ---


async def test_an_act_of_a_play_publishes(world: Any, app: App) -> None:
    def tell(ctx: StepInfo, state: State) -> None:
        for word in ("one", "two"):
            ctx.publish("words", word)
        step_info().publish("words", "three")

    play = Play("loud", State, [Scene("s", [Act("tell", tell)])])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        told = [(one.value, one.path) async for one in run.stream("words")]
        assert told == [(word, "s/tell") for word in ("one", "two", "three")]


async def test_what_was_published_stays_with_its_run(world: Any, app: App) -> None:
    @app.step
    async def fail() -> None:
        raise Permanent("no")

    @app.workflow
    async def work(ctx: Context) -> None:
        await ctx.publish("news", 1)
        await ctx.step(fail)

    async with world(app) as w:
        run = await w.begin(work)
        fork = await run.fork("fail")
        await w.settle()
        assert [one.value async for one in run.stream("news")] == [1]
        assert [one.value async for one in fork.stream("news")] == []


# --- patches in plays' children, versions ---


async def test_a_call_of_a_play_runs_the_version_that_it_names(world: Any, app: App) -> None:
    calls = Calls()
    old = Play("inner", State, [calls.act("old")])
    new = Play("inner", State, [calls.act("new")], version=2)
    outer = Play(
        "outer",
        State,
        [Call("in", old, input=lambda state: state, on_result=lambda ctx, state, result: result)],
    )
    app.add(new)
    app.add(outer)
    async with world(app) as w:
        run = await w.begin(outer, State())
        assert (await run.result()).log == ["old"]
