"""ctx.patched: new runs take the new way, runs that have passed keep to the old one, and every replay agrees."""

import asyncio
import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
from test_replay import app_of, charge, reserve, ship
from worlds import Worlds

from perdure import App, BadValue, Context, Retry, Signal, step
from perdure.model import ops
from perdure.model.outcomes import Moved
from perdure.testing import World, replay_check

go = Signal("go", int)
line = Signal("line", int, buffer="all")

Body = Callable[[Context], Any]


async def before(ctx: Context) -> Any:
    one = await ctx.step(reserve)
    return [one, await ctx.wait(go)]


async def patched_before_the_wait(ctx: Context) -> Any:
    one = await ctx.step(reserve)
    new = [await ctx.step(ship)] if ctx.patched("ship") else []
    return [one, *new, await ctx.wait(go)]


async def removed(ctx: Context) -> Any:
    """The patch is gone from the code: all that lives took the new way."""
    one = await ctx.step(reserve)
    return [one, await ctx.step(ship), await ctx.wait(go)]


async def marks(w: Any, run_id: str = "a") -> list[str]:
    return [one.path for one in await w.app.run(run_id).history() if one.kind == "patch"]


async def finish(w: Any, run_id: str = "a") -> Any:
    await w.app.signal(run_id, go, 3)
    await w.settle()
    info = await w.app.run(run_id).info()
    assert info.status == "completed", info.reason
    return await w.app.run(run_id).result()


async def test_a_new_run_takes_the_new_way_and_a_mark_says_so(world: Any) -> None:
    async with world(app_of(patched_before_the_wait)) as w:
        await w.begin("flow", id="a")
        assert await marks(w) == ["!patch/ship"]
        await w.evict()
        assert await finish(w) == ["reserved", "shipped", 3]
        assert await marks(w) == ["!patch/ship"]


async def test_a_run_that_stands_right_after_the_place_keeps_to_the_old_way(world: Any) -> None:
    async with world(app_of(before)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(patched_before_the_wait)) as w:
        await w.settle()
        await w.evict()
        assert await finish(w) == ["reserved", 3]
        assert await marks(w) == []


async def test_a_run_that_stands_before_the_place_takes_the_new_way(world: Any) -> None:
    async def old(ctx: Context) -> Any:
        return [await ctx.wait(go), await ctx.step(charge)]

    async def new(ctx: Context) -> Any:
        got = await ctx.wait(go)
        if ctx.patched("free"):
            return [got, "free"]
        return [got, await ctx.step(charge)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(new)) as w:
        assert await finish(w) == [3, "free"]
        assert await marks(w) == ["!patch/free"]


async def test_a_patch_that_was_removed_leaves_a_mark_that_nobody_minds(world: Any) -> None:
    async with world(app_of(patched_before_the_wait)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(removed)) as w:
        assert await finish(w) == ["reserved", "shipped", 3]


async def test_a_mark_costs_no_commit_of_its_own(world: Any) -> None:
    async def plain(ctx: Context) -> Any:
        return [await ctx.step(reserve), await ctx.step(ship), await ctx.wait(go)]

    async def asks(ctx: Context) -> Any:
        ctx.patched("first")
        one = await ctx.step(reserve)
        ctx.patched("second")
        two = await ctx.step(ship)
        ctx.patched("third")
        return [one, two, await ctx.wait(go)]

    counted = {}
    for body in (plain, asks):
        async with world(app_of(body)) as w:
            posted: list[Any] = []
            post = w.worker.post
            w.worker.post = lambda op, *rest, post=post, to=posted: (to.append(op), post(op, *rest))
            await w.begin("flow", id=body.__name__)
            counted[body] = [type(one).__name__ for one in posted]
    assert counted[asks] == counted[plain]


async def test_a_step_between_two_attempts_after_the_place_keeps_to_the_old_way(world: Any) -> None:
    healthy = False

    @step(retry=Retry(attempts=5, backoff="1h", jitter=0))
    async def shaky() -> str:
        if not healthy:
            raise OSError("down")
        return "worked"

    async def old(ctx: Context) -> Any:
        await ctx.step(reserve)
        return [await ctx.step(shaky)]

    async def new(ctx: Context) -> Any:
        await ctx.step(reserve)
        extra = [await ctx.step(ship)] if ctx.patched("ship") else []
        return [*extra, await ctx.step(shaky)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        assert await w.app.run("a").status() == "sleeping"
    healthy = True
    async with world(app_of(new)) as w:
        await w.advance("1h")
        assert await w.app.run("a").result() == ["worked"]


async def test_what_a_sibling_did_says_nothing(world: Any) -> None:
    """One branch has passed the place, the other not: each has an answer of its own."""
    one, two = Signal("one", int), Signal("two", int)

    async def old(ctx: Context) -> Any:
        async def line(signal: Signal[int]) -> Any:
            got = await ctx.wait(signal)
            return [got, await ctx.wait(go, name=f"go.{got}")]

        return list(await ctx.gather(line(one), line(two)))

    async def new(ctx: Context) -> Any:
        async def line(signal: Signal[int]) -> Any:
            got = await ctx.wait(signal)
            way = ["new", await ctx.step(ship)] if ctx.patched("ship") else ["old"]
            return [got, *way, await ctx.wait(go, name=f"go.{got}")]

        return list(await ctx.gather(line(one), line(two)))

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        await w.app.signal("a", two, 2)
        await w.settle()
    async with world(app_of(new)) as w:
        await w.app.signal("a", one, 1)
        await w.settle()
        await w.evict()
        assert await marks(w) == ["!patch/gather[0]/ship"]
        for path in ("gather[0]/go.1", "gather[1]/go.2"):
            await w.app.signal("a", go, 3, path=path)
            await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "completed", info.reason
        assert await w.app.run("a").result() == [[1, "new", "shipped", 3], [2, "old", 3]]


async def test_branches_that_begin_later_are_told_what_the_one_around_them_was_told(
    world: Any,
) -> None:
    async def old(ctx: Context) -> Any:
        return [await ctx.wait(go), await ctx.wait(line)]

    async def new(ctx: Context) -> Any:
        outer = ctx.patched("x")
        got = await ctx.wait(go)

        async def inner() -> bool:
            return ctx.patched("x")

        told = await ctx.gather(inner(), inner())
        return [outer, *told, got, ctx.patched("x"), await ctx.wait(line)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(new)) as w:
        await w.begin("flow", id="b")
        for run_id in ("a", "b"):
            await w.app.signal(run_id, go, 1)
            await w.settle()
            await w.evict()
            await w.app.signal(run_id, line, 2)
            await w.settle()
        assert await w.app.run("a").result() == [False, False, False, 1, False, 2]
        assert await w.app.run("b").result() == [True, True, True, 1, True, 2]
        assert await marks(w, "b") == ["!patch/x"]


async def test_in_a_loop_the_first_answer_counts(world: Any) -> None:
    async def old(ctx: Context) -> Any:
        return [await ctx.wait(line) for _ in range(4)]

    async def new(ctx: Context) -> Any:
        return [[ctx.patched("x"), await ctx.wait(line)] for _ in range(4)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        await w.app.signal("a", line, 0)
        await w.settle()
    async with world(app_of(new)) as w:
        await w.begin("flow", id="b")
        for nth in range(4):
            await w.app.signal("b", line, nth)
            await w.settle()
            await w.evict()
        for nth in range(1, 4):
            await w.app.signal("a", line, nth)
            await w.settle()
            await w.evict()
        assert await w.app.run("a").result() == [[False, nth] for nth in range(4)]
        assert await w.app.run("b").result() == [[True, nth] for nth in range(4)]


async def test_a_wait_that_a_cancel_closed_still_shows_that_the_place_was_passed(
    world: Any,
) -> None:
    async def old(ctx: Context) -> Any:
        await ctx.step(reserve)
        try:
            await ctx.wait(go)
        finally:
            await ctx.sleep("1h")

    async def new(ctx: Context) -> Any:
        await ctx.step(reserve)
        if ctx.patched("ship"):
            await ctx.step(ship)
        try:
            await ctx.wait(go)
        finally:
            if ctx.patched("charge"):
                await ctx.step(charge)
            await ctx.sleep("1h")

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        await w.app.run("a").cancel()
        await w.settle()
    async with world(app_of(new)) as w:
        await w.begin("flow", id="b")
        await w.app.run("b").cancel()
        await w.settle()
        await w.evict()
        await w.advance("1h")
        assert await w.app.run("a").status() == "cancelled"
        assert await w.app.run("b").status() == "cancelled"
        assert await marks(w, "a") == []
        assert await marks(w, "b") == ["!patch/ship", "!patch/charge"]


async def test_a_step_that_a_cancel_cut_off_shows_it_too(world: Any) -> None:
    """It has no record of its own: only the cancel names where it stood."""
    begun = asyncio.Event()

    @step
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def old(ctx: Context) -> Any:
        await ctx.step(reserve)
        try:
            await ctx.step(long)
        except asyncio.CancelledError:
            await ctx.wait(go)

    async def new(ctx: Context) -> Any:
        await ctx.step(reserve)
        if ctx.patched("ship"):
            await ctx.step(ship)
        try:
            await ctx.step(long)
        except asyncio.CancelledError:
            await ctx.wait(go)

    async with world(app_of(old)) as w:
        await w.app.start("flow", id="a")
        await begun.wait()
        await w.app.run("a").cancel()
        await w.settle()
        assert await w.app.run("a").status() == "waiting"
    async with world(app_of(new)) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "cancelled", info.reason
        assert await marks(w) == []


async def test_a_retry_does_the_failed_step_anew_the_new_way(world: Any) -> None:
    @step
    async def bad() -> None:
        raise ValueError("no luck")

    async def old(ctx: Context) -> Any:
        await ctx.step(reserve)
        return await ctx.step(bad)

    async def new(ctx: Context) -> Any:
        await ctx.step(reserve)
        return await ctx.step(ship if ctx.patched("ship") else bad)

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        assert await w.app.run("a").status() == "failed"
    async with world(app_of(new)) as w:
        await w.app.run("a").retry()
        await w.settle()
        assert await w.app.run("a").result() == "shipped"


async def test_a_retry_keeps_the_marks_that_siblings_rest_on(world: Any) -> None:
    healthy = False

    @step
    async def shaky() -> str:
        if not healthy:
            raise ValueError("no luck")
        return "worked"

    async def flow(ctx: Context) -> Any:
        async def fails() -> Any:
            await ctx.wait(go)
            return await ctx.step(shaky)

        async def goes_on() -> Any:
            way = ctx.patched("ship")
            if way:
                await ctx.step(ship)
            return [way, await ctx.wait(line)]

        return list(await ctx.gather(fails(), goes_on()))

    async with world(app_of(flow)) as w:
        await w.begin("flow", id="a")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await w.app.run("a").status() == "failed"
        healthy = True
        await w.app.run("a").retry()
        await w.settle()
        await w.app.signal("a", line, 2)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "completed", info.reason
        assert await w.app.run("a").result() == ["worked", [True, 2]]


async def test_what_a_retry_left_behind_says_nothing(world: Any) -> None:
    """What a sibling did to clean up is on record and is never asked for again."""
    healthy = False

    @step
    async def shaky() -> str:
        if not healthy:
            raise ValueError("no luck")
        return "worked"

    async def flow(ctx: Context) -> Any:
        async def fails() -> Any:
            await ctx.wait(go)
            return await ctx.step(shaky)

        async def beside() -> Any:
            try:
                return await ctx.wait(line)
            except asyncio.CancelledError:
                await ctx.step(charge)
                raise

        await ctx.gather(fails(), beside())
        told = [ctx.patched("after")]
        await ctx.wait(line, name="end")
        return [*told, ctx.patched("later")]

    async with world(app_of(flow)) as w:
        await w.begin("flow", id="a")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await w.app.run("a").status() == "failed"
        healthy = True
        await w.app.run("a").retry()
        await w.settle()
        for _ in range(2):
            await w.app.signal("a", line, 1)
            await w.settle()
            await w.evict()
        assert await w.app.run("a").result() == [True, True]
        assert await marks(w) == ["!patch/after", "!patch/later"]


async def test_pause_and_resume_find_the_answers_again(world: Any) -> None:
    async with world(app_of(before)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(patched_before_the_wait)) as w:
        await w.begin("flow", id="b")
        for run_id in ("a", "b"):
            await w.app.run(run_id).pause()
            await w.settle()
            await w.app.run(run_id).resume()
            await w.settle()
        assert await finish(w, "a") == ["reserved", 3]
        assert await finish(w, "b") == ["reserved", "shipped", 3]


async def test_a_refused_op_leaves_no_other_answer_behind(world: Any) -> None:
    """The op that would record the mark is refused; what goes on beside it is not behind the mark."""
    told: list[bool] = []

    async def flow(ctx: Context) -> Any:
        call = ctx.step(charge)

        async def asks() -> Any:
            await ctx.wait(go)
            told.append(ctx.patched("x"))
            return await ctx.wait(line)

        async def beside() -> Any:
            await ctx.wait(go, name="beside")
            return await call  # made outside: it could be anybody's

        return list(await ctx.gather(asks(), beside()))

    async with world(app_of(flow)) as w:
        await w.begin("flow", id="a")
        refused = 0
        post = w.worker.post

        def refuse(op: Any, done: Any, extra: Any = None) -> None:
            nonlocal refused
            marks = isinstance(op, ops.Suspend) and any(one.kind == "patch" for one in op.steps)
            if marks and not refused:
                refused += 1
                done(op, Moved(op.revision), extra)
            else:
                post(op, done, extra)

        w.worker.post = refuse
        await w.app.run("a").pause()  # so that both are answered in one turn
        await w.settle()
        for path in ("gather[0]/go", "gather[1]/beside"):
            await w.app.signal("a", go, 1, path=path)
        await w.app.run("a").resume()
        await w.settle()
        await w.evict()
        await w.app.signal("a", line, 2)
        await w.settle()
        assert await w.app.run("a").result() == [2, "charged"]
        assert refused and set(told) == {True}


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_branches_that_were_over_before_others_began_keep_to_the_old_way(
    world: Any, at_once: int
) -> None:
    def made(new: bool) -> App:
        async def flow(ctx: Context) -> Any:
            async def each(n: int) -> Any:
                await ctx.step(reserve)
                if n:
                    await ctx.wait(line)
                return new and ctx.patched("x") and await ctx.step(charge)

            return await ctx.map(each, range(3), concurrency=at_once)

        return app_of(flow)

    async with world(made(False)) as w:
        await w.begin("flow", id="a")
    async with world(made(True)) as w:
        for _ in range(2):
            path = next(one.path for one in await w.app.waiting("a") if one.kind == "signal")
            await w.app.signal("a", line, 1, path=path)
            await w.settle()
        told = await w.app.run("a").result()
        assert told[1:] == ["charged", "charged"]
        if at_once < 3:  # else nothing says that it went on
            assert told[0] is False


async def test_continue_as_asks_afresh(world: Any) -> None:
    def made(new: bool) -> App:
        app = App("memory://")

        @app.workflow(name="flow")
        async def flow(ctx: Context, rest: int) -> Any:
            way = ctx.patched("x") if new else None
            await ctx.wait(line)
            if rest:
                await ctx.continue_as(flow, rest - 1)
            return way

        return app

    async with world(made(False)) as w:
        await w.begin("flow", 1, id="a")
    async with world(made(True)) as w:
        for _ in range(2):
            await w.app.signal("a", line, 1)
            await w.settle()
        assert await w.app.run("a").result() is True


async def test_a_transaction_is_not_recorded_before_the_mark_that_it_rests_on(
    world: Any, app: App
) -> None:
    if world.kind not in ("sqlite", "postgres"):
        return  # the other stores have no transactions
    if world.kind == "sqlite":

        @step
        def note(connection: Any) -> str:
            return "noted"
    else:

        @step
        async def note(connection: Any) -> str:  # type: ignore[misc]
            return "noted"

    @app.workflow
    async def flow(ctx: Context) -> Any:
        way = ctx.patched("x")
        await ctx.transaction(note)
        await ctx.wait(go)
        return way

    async with world(app) as w:
        await w.begin(flow, id="a")
        history = [one.path for one in await w.app.run("a").history()]
        assert history[:2] == ["!patch/x", "note"]
        assert await finish(w) is True


@pytest.mark.parametrize("name", ["", "a/b", "a#2", 7, None])
async def test_a_name_that_is_none_is_refused(app: App, name: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            ctx.patched(name)
        except BadValue as error:
            return str(error)
        return "taken"

    async with World(app) as w:
        run = await w.app.start(flow)
        await w.settle()
        assert "patch name" in await run.result()


# --- whatever the program ------------------------------------------------------------------------


class Program:
    """Random code of steps, waits and branches, with a place where it was changed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0
        self.body = self._some(depth=0)
        # Twice the same name, perhaps: in one branch or in several.
        self.places = chance.choices(list(_places(self.body)), k=chance.randint(1, 2))
        self.told: dict[tuple[str, int], set[bool]] = {}

    def _some(self, depth: int) -> list[Any]:
        return [self._one(depth) for _ in range(self._chance.randint(1, 4))]

    def _one(self, depth: int) -> Any:
        self._names += 1
        kind = self._chance.choice(
            ["step", "shaky", "wait", "sleep", *["gather", "map"] * (depth < 2)]
        )
        if kind == "gather":
            return kind, [self._some(depth + 1) for _ in range(self._chance.randint(1, 3))]
        if kind == "map":  # one code, several branches
            count = self._chance.randint(2, 3)
            return kind, self._some(depth + 1), count, self._chance.randint(1, count)
        return kind, f"n{self._names}"

    async def run(self, ctx: Context, *, new: bool) -> None:
        await self._run(ctx, self.body, new)

    async def _run(self, ctx: Context, body: list[Any], new: bool) -> None:
        for nth in range(len(body) + 1):
            if new and (id(body), nth) in self.places:
                branch = ctx._execution.current_branch().prefix
                told = ctx.patched("place")
                self.told.setdefault((branch, nth), set()).add(told)
                if told:
                    await ctx.step(reserve.options(name="new"))
            if nth < len(body):
                await self._do(ctx, body[nth], new)

    async def _do(self, ctx: Context, node: Any, new: bool) -> None:
        match node:
            case "step", name:
                await ctx.step(reserve.options(name=name))
            case "shaky", name:
                await ctx.step(self._shaky.options(name=name))
            case "wait", name:
                await ctx.wait(line, name=name)
            case "sleep", _:
                await ctx.sleep("1m")
            case "gather", bodies:
                await ctx.gather(*(self._run(ctx, one, new) for one in bodies))
            case "map", body, count, at_once:
                each = functools.partial(self._each, ctx, body, new)
                await ctx.map(each, range(count), concurrency=at_once)

    async def _each(self, ctx: Context, body: list[Any], new: bool, _: int) -> None:
        await self._run(ctx, body, new)

    @property
    def _shaky(self) -> Any:
        @step(retry=Retry(attempts=20, backoff="30s", factor=1, jitter=0))
        async def shaky() -> None:
            if self._chance.random() < 0.5:
                raise OSError("down")

        return shaky


def _places(body: list[Any]) -> Any:
    for nth in range(len(body) + 1):
        yield id(body), nth
    for node in body:
        if node[0] == "gather":
            for one in node[1]:
                yield from _places(one)
        elif node[0] == "map":
            yield from _places(node[1])


async def stir(w: Any, chance: random.Random) -> None:
    """Something that lets the run go on, at some place of it."""
    waiting = [one for one in await w.app.waiting("a") if one.kind == "signal"]
    if waiting and chance.random() < 0.7:
        await w.app.signal("a", line, 1, path=chance.choice(waiting).path)
    else:
        await w.advance("30s")
    await w.settle()


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_the_program_every_replay_is_told_the_same(seed: int) -> None:
    """Old code goes k steps of the way; then the new code takes over, and is replayed after each step."""
    chance = random.Random(seed)
    for _ in range(6):
        program = Program(chance)
        world = Worlds("memory", chance.choice([0, 100]), None)  # type: ignore[arg-type]
        async with world(_app(program, new=False)) as w:
            await w.begin("flow", id="a")
            for _ in range(chance.randint(0, 6)):
                await stir(w, chance)
        async with world(_app(program, new=True)) as w:
            for _ in range(200):
                info = await w.app.run("a").info()
                assert info.status != "paused", (seed, program.body, program.places, info.reason)
                if info.status == "completed":
                    break
                if chance.random() < 0.5:
                    await w.evict()
                await stir(w, chance)
            else:
                pytest.fail(f"{seed}: it never ends")
            assert all(len(one) == 1 for one in program.told.values()), (seed, program.told)
            _check_prefixes(program, await w.app.run("a").export())


def _check_prefixes(program: Program, document: dict[str, Any]) -> None:
    """Whatever was on record at some time, the new code goes on from there."""
    complete = sorted(
        (one for one in document["history"] if one["seq"]), key=lambda one: one["seq"]
    )
    lived = {**document["run"], "status": "waiting", "finished_at": None, "output": None}
    prefixes = [complete[:count] for count in range(len(complete) + 1)]
    replay_check(
        _app(program, new=True), [{**document, "run": lived, "history": one} for one in prefixes]
    )


def _app(program: Program, *, new: bool) -> App:
    async def flow(ctx: Context) -> None:
        await program.run(ctx, new=new)

    return app_of(flow)
