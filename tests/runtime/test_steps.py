"""Steps: tried again in virtual time, recorded once, read back as they were stored."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    App,
    BadValue,
    Context,
    PerdureError,
    Permanent,
    Retry,
    RetryAfter,
    RunFailed,
    Signal,
    StepFailed,
    step,
    step_info,
)
from perdure.runtime.steps import _extender

go = Signal("go", int)
steady = Retry(attempts=5, backoff="10s", factor=2, max_backoff="1m", jitter=0)


class Flaky:
    """A step that fails some times before it works, and notes when it was tried."""

    def __init__(self, w: Any, failures: int, error: type[Exception] = OSError) -> None:
        self.clock, self.failures, self.error = w.clock, failures, error
        self.began = w.clock.moment
        self.tried: list[timedelta] = []

    def step(self, **options: Any) -> Any:
        async def flaky() -> str:
            self.tried.append(self.clock.moment - self.began)
            if len(self.tried) <= self.failures:
                raise self.error(f"failure {len(self.tried)}")
            return f"worked at the {len(self.tried)}th try"

        return step(**options)(flaky)


def seconds(*counts: int) -> list[timedelta]:
    return [timedelta(seconds=one) for one in counts]


# --- trying again --------------------------------------------------------------------------------


async def test_a_failing_step_is_tried_again_with_backoff(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(flaky.step(retry=steady))

    async with world(app) as w:
        flaky = Flaky(w, failures=4)
        run = await w.begin(flow)
        assert await run.status() == "sleeping"
        await w.advance("10m")
        assert await run.result() == "worked at the 5th try"
        assert flaky.tried == seconds(0, 10, 30, 70, 130)
        (entry,) = await run.history()
        assert (entry.attempt, entry.status) == (5, "done")


async def test_jitter_stays_within_its_share(world: Any, app: App) -> None:
    policy = Retry(attempts=20, backoff="100s", factor=1, max_backoff="100s", jitter=0.5)

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(flaky.step(retry=policy))

    async with world(app) as w:
        flaky = Flaky(w, failures=19)
        run = await w.begin(flow)
        await w.advance("1h")
        assert await run.status() == "completed"
        gaps = [(b - a).total_seconds() for a, b in zip(flaky.tried, flaky.tried[1:], strict=False)]
        assert all(50 <= gap <= 150 for gap in gaps)
        assert len({round(gap) for gap in gaps}) > 5


async def test_the_last_failure_is_raised_as_step_failed(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        try:
            await ctx.step(flaky.step(retry=Retry(attempts=3, backoff=1, jitter=0)))
        except StepFailed as error:
            return [error.type, error.message, error.attempts, error.path]
        return []

    async with world(app) as w:
        flaky = Flaky(w, failures=9)
        run = await w.begin(flow)
        await w.advance("1m")
        assert await run.result() == ["OSError", "failure 3", 3, "flaky"]


async def test_a_step_without_policy_is_tried_once(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(flaky.step())

    async with world(app) as w:
        flaky = Flaky(w, failures=1)
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match=r"tried once|OSError: failure 1") as failed:
            await run.result()
        assert (failed.value.type, failed.value.path) == ("OSError", "flaky")
        assert len(flaky.tried) == 1


async def test_permanent_stops_trying(world: Any, app: App) -> None:
    class NoSuchCard(Permanent):
        pass

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(flaky.step(retry=steady))
        except StepFailed as error:
            return f"{error.type} after {error.attempts}"
        return "no"

    async with world(app) as w:
        flaky = Flaky(w, failures=9, error=NoSuchCard)
        run = await w.begin(flow)
        assert await run.result() == "NoSuchCard after 1"
        assert len(flaky.tried) == 1


async def test_retry_after_says_when(world: Any, app: App) -> None:
    tried: list[timedelta] = []

    async def limited() -> str:
        tried.append(w.clock.moment - began)
        if len(tried) == 1:
            raise RetryAfter("30m", "slow down")
        return "ok"

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(step(retry=steady)(limited))

    async with world(app) as w:
        began = w.clock.moment
        run = await w.begin(flow)
        (pause,) = await run.waiting()
        assert pause.kind == "retry"
        await w.advance("29m")
        assert len(tried) == 1
        await w.advance("1m")
        assert await run.result() == "ok"
        assert tried == [timedelta(0), timedelta(minutes=30)]


async def test_retry_after_does_not_give_more_attempts(world: Any, app: App) -> None:
    async def limited() -> None:
        raise RetryAfter("1s", "slow down")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(step(retry=Retry(attempts=2))(limited))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1m")
        with pytest.raises(RunFailed, match="slow down"):
            await run.result()
        (entry,) = await run.history()
        assert entry.attempt == 2


async def test_failed_attempts_survive_a_crash(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(flaky.step(retry=steady))

    async with world(app) as w:
        flaky = Flaky(w, failures=3)
        await w.begin(flow, id="a")
        await w.advance("10s")
        assert len(flaky.tried) == 2
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert len(flaky.tried) == 2
        await w.advance("10m")
        assert await w.app.run("a").result() == "worked at the 4th try"
        assert flaky.tried == seconds(0, 10, 30, 70)


async def test_a_step_cut_off_by_a_crash_runs_again(world: Any, app: App) -> None:
    began: list[int] = []
    running = asyncio.Event()

    async def work() -> int:
        began.append(step_info().attempt)
        running.set()
        if len(began) == 1:
            await asyncio.Event().wait()
        return len(began)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(work)

    async with world(app) as w:
        await w.app.start(flow, id="a")
        await running.wait()
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == 2
        assert began == [1, 1]


async def test_retries_in_two_branches_do_not_disturb_each_other(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return list(
            await ctx.gather(
                ctx.step(one.step(retry=steady, name="one")),
                ctx.step(two.step(retry=steady, name="two")),
            )
        )

    async with world(app) as w:
        one, two = Flaky(w, failures=2), Flaky(w, failures=3)
        run = await w.begin(flow)
        await w.advance("10m")
        assert await run.result() == ["worked at the 3th try", "worked at the 4th try"]
        assert (one.tried, two.tried) == (seconds(0, 10, 30), seconds(0, 10, 30, 70))


async def test_a_retry_beside_an_open_wait(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.step(flaky.step(retry=steady)), ctx.wait(go)))

    async with world(app) as w:
        flaky = Flaky(w, failures=2)
        run = await w.begin(flow, id="a")
        assert await run.status() == "waiting"
        await w.advance("10s")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.status() == "sleeping"
        await w.advance("20s")
        assert await run.result() == ["worked at the 3th try", 1]


# --- time limits ---------------------------------------------------------------------------------


async def test_a_step_over_its_timeout_fails(world: Any, app: App) -> None:
    cut: list[bool] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(True)
            raise

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(step(timeout="10ms")(hangs))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "TimeoutError"
        assert cut == [True]


async def test_a_timeout_counts_as_a_failed_attempt(world: Any, app: App) -> None:
    tries: list[int] = []

    async def hangs_once() -> int:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return len(tries)

    @app.workflow
    async def flow(ctx: Context) -> int:
        slow = step(timeout="10ms", retry=steady)(hangs_once)
        return await ctx.step(slow)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("10s")
        assert await run.result() == 2


async def test_a_timeout_of_a_thread_lets_the_run_go_on(world: Any, app: App) -> None:
    let_go, ended = threading.Event(), threading.Event()

    def hangs() -> str:
        let_go.wait(10)
        ended.set()
        return "too late"

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(step(timeout="10ms")(hangs))
        except StepFailed as error:
            return error.type

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "TimeoutError"
        let_go.set()
        await asyncio.to_thread(ended.wait, 10)
        await w.settle()
        assert await run.result() == "TimeoutError"


async def test_a_heartbeat_starts_the_timeout_anew() -> None:
    """Looked at from inside: the moment at which the step would be cut off moves when it beats."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60) as bound:
        beat = _extender(loop, bound, 60)
        before = bound.when()
        beat()
        await asyncio.sleep(0)
        assert bound.when() is not None and before is not None
        assert bound.when() > before  # type: ignore[operator]


async def test_a_step_may_beat_with_and_without_a_timeout(world: Any, app: App) -> None:
    async def beating() -> str:
        step_info().heartbeat()
        await asyncio.sleep(0)
        return "alive"

    def beating_in_a_thread() -> str:
        step_info().heartbeat()
        return "alive too"

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [
            await ctx.step(beating),
            await ctx.step(step(timeout="1m")(beating)),
            await ctx.step(step(timeout="1m")(beating_in_a_thread)),
        ]

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == ["alive", "alive", "alive too"]


# --- errors --------------------------------------------------------------------------------------


class CardDeclined(Exception):
    def __init__(self, code: int, hint: str = "") -> None:
        self.code, self.hint = code, hint
        super().__init__(code, hint)


class Renamed(CardDeclined):
    pass


class Odd(Exception):
    """Its arguments cannot be stored."""


class Picky(Exception):
    """Its arguments are not what it is made from."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


async def decline() -> None:
    raise CardDeclined(51, "try another")


async def test_declared_errors_are_rebuilt_the_first_time_and_on_replay(
    world: Any, app: App
) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.step(step(raises=[CardDeclined])(decline))
        except CardDeclined as error:
            seen.append((type(error).__name__, error.code, error.hint, error.args))
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == 1
        assert seen == [("CardDeclined", 51, "try another", (51, "try another"))] * 2


async def test_an_uncaught_declared_error_fails_the_run_and_can_be_retried(
    world: Any, app: App
) -> None:
    healthy = False

    async def pay() -> str:
        if not healthy:
            raise CardDeclined(51)
        return "paid"

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(step(raises=[CardDeclined])(pay))

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert (failed.value.type, failed.value.path) == ("CardDeclined", "pay")
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.result() == "paid"


async def test_a_subclass_of_a_declared_error_is_step_failed(world: Any, app: App) -> None:
    """Only the named class itself can be rebuilt; a guess at its subclass would be another error."""

    async def fails() -> None:
        raise Renamed(51)

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(step(raises=[CardDeclined])(fails))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "Renamed"


async def test_errors_whose_arguments_cannot_be_stored_are_step_failed(
    world: Any, app: App
) -> None:
    async def fails() -> None:
        raise Odd(object())

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(step(raises=[Odd])(fails))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "Odd"


async def test_errors_that_cannot_be_rebuilt_are_step_failed(world: Any, app: App) -> None:
    seen: list[str] = []

    async def fails() -> None:
        raise Picky(1, 2)

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.step(step(raises=[Picky])(fails))
        except StepFailed as error:
            seen.append(f"{error.type}: {error.message}")
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == 1
        assert seen == ["Picky: 1 and 2"] * 2


async def test_an_error_message_of_any_text_is_stored(world: Any, app: App) -> None:
    async def fails() -> None:
        raise ValueError("\ud800 \0 " + "x" * 100_000)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(fails)

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert len(failed.value.message) <= 4000
        assert failed.value.message.startswith("\\ud800")


async def test_an_error_in_workflow_code_of_any_text_is_stored(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        raise ValueError("\ud800 and more")

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="and more"):
            await run.result()


async def test_an_error_that_cannot_be_told_is_stored(world: Any, app: App) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not telling")

    async def fails() -> None:
        raise Rude

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(fails)
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "Rude"


async def test_a_result_that_cannot_be_stored_fails_at_once(world: Any, app: App) -> None:
    tries: list[int] = []

    async def wrong() -> int:
        tries.append(1)
        return "text"  # type: ignore[return-value]

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(step(retry=steady)(wrong))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "Unencodable"
        assert len(tries) == 1


async def test_a_body_that_cancels_itself_is_a_failed_step(world: Any, app: App) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(gives_up)
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "CancelledError"


async def test_stop_iteration_from_a_body_is_a_failed_step(world: Any, app: App) -> None:
    def stops() -> None:
        raise StopIteration("odd")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(stops)
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() in ("StopIteration", "RuntimeError")


async def test_wrong_arguments_are_a_failed_step(world: Any, app: App) -> None:
    async def one(x: int) -> int:
        return x

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(one, 1, 2)  # type: ignore[call-overload]
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == "TypeError"


# --- results -------------------------------------------------------------------------------------


@dataclass
class Item:
    sku: str
    count: int = 1


async def test_the_result_is_what_was_stored(world: Any, app: App) -> None:
    """First run and replay see the same value: decode(encode(value))."""
    kept = Item("a")
    seen: list[Any] = []

    async def make() -> Item:
        return kept

    async def loose() -> Any:
        return {"when": timedelta(seconds=5), "pair": (1, 2), "bytes": b"raw"}

    async def sequence() -> list[float]:
        return [1, 2.5]

    @app.workflow
    async def flow(ctx: Context) -> None:
        item = await ctx.step(make)
        assert item is not kept
        seen.append((item, await ctx.step(loose), [type(x) for x in await ctx.step(sequence)]))
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        expected = {"when": timedelta(seconds=5), "pair": (1, 2), "bytes": b"raw"}
        assert seen == [(kept, expected, [float, float])] * 2


async def test_changing_an_argument_later_does_not_change_the_past(world: Any, app: App) -> None:
    async def count(items: list[int]) -> int:
        return len(items)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        items: list[int] = []
        seen = []
        for n in range(3):
            items.append(n)
            seen.append(await ctx.step(count, items))
        return seen

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == [1, 2, 3]


# --- threads -------------------------------------------------------------------------------------


async def test_a_plain_def_runs_in_a_thread_of_ours(world: Any, app: App) -> None:
    @app.step
    def blocking(x: int) -> list[Any]:
        info = step_info()
        return [x, threading.current_thread().name, info.path, info.attempt]

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return await ctx.step(blocking, 3)

    async with world(app) as w:
        x, thread, path, attempt = await (await w.begin(flow)).result()
        assert (x, path, attempt) == (3, "blocking", 1)
        assert thread.startswith("perdure-step")


async def test_runs_that_start_together_do_not_wait_for_each_others_steps(
    world: Any, app: App
) -> None:
    """A body that suspends has taken its runner: the runs that are still to begin need another."""
    here: list[int] = []
    all_here = asyncio.Event()

    async def meet(n: int) -> int:
        here.append(n)
        if len(here) == 4:
            all_here.set()
        await all_here.wait()
        return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.step(meet, n)

    async with world(app) as w, asyncio.timeout(10):
        runs = await asyncio.gather(*(w.app.start(flow, n) for n in range(4)))
        assert [await run.result() for run in runs] == [0, 1, 2, 3]


async def test_threads_are_bounded_and_runs_queue_for_them(world: Any, app: App) -> None:
    busy, peak, lock = 0, 0, threading.Lock()
    full = threading.Event()

    def work(n: int) -> int:
        nonlocal busy, peak
        with lock:
            busy += 1
            peak = max(peak, busy)
            if busy == 2:
                full.set()
        full.wait(10)
        with lock:
            busy -= 1
        return n

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.map(step(work), range(8))

    async with world(app, threads=2) as w:
        run = await w.begin(flow)
        assert await run.result() == list(range(8))
        assert peak == 2


# --- what a step knows ---------------------------------------------------------------------------


async def test_the_idempotency_key_is_the_same_on_every_attempt(world: Any, app: App) -> None:
    keys: list[str] = []
    attempts: list[int] = []

    async def pay() -> None:
        info = step_info()
        keys.append(info.idempotency_key)
        attempts.append(info.attempt)
        if len(keys) in (1, 2, 4):
            raise OSError("down")

    @app.workflow
    async def flow(ctx: Context) -> None:
        for _ in range(2):
            await ctx.step(step(retry=steady)(pay))

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.advance("10s")
        await w.crash()
    async with world(app) as w:
        await w.advance("10m")
        assert await w.app.run("a").status() == "completed"
        assert len(set(keys[:3])) == 1
        assert len(set(keys[3:])) == 1
        assert keys[0] != keys[3]
        assert attempts == [1, 2, 3, 1, 2]


async def test_deps_reach_steps_and_workflows(world: Any, app: App) -> None:
    class Pool:
        name = "pool"

    async def use() -> str:
        return step_info().dep(Pool).name

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [ctx.dep(Pool).name, await ctx.step(use)]

    async with world(app, deps=[Pool()]) as w:
        assert await (await w.begin(flow)).result() == ["pool", "pool"]


async def test_a_missing_dep_names_what_there_is(world: Any, app: App) -> None:
    class Pool:
        pass

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            ctx.dep(Pool)
        except BadValue as error:
            return str(error)
        return "no"

    async with world(app, deps=[7]) as w:
        assert "there is: int" in await (await w.begin(flow)).result()


async def test_steps_do_not_see_each_others_context_variables(world: Any, app: App) -> None:
    import contextvars

    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)

    async def leave_mark(n: int) -> int:
        found = mark.get()
        mark.set(n)
        await asyncio.sleep(0)
        return found

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        first = [await ctx.step(leave_mark, n) for n in (1, 2, 3)]
        return first + list(await ctx.gather(*(ctx.step(leave_mark, n) for n in (4, 5, 6))))

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == [0] * 6


# --- options -------------------------------------------------------------------------------------


async def test_options_change_one_call_only(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        patient = base.options(name="patient", retry=Retry(attempts=2, backoff=1, jitter=0))
        first = await ctx.step(patient)
        try:
            await ctx.step(base)
        except StepFailed as error:
            return [first, error.attempts]
        return []

    async with world(app) as w:
        flaky = Flaky(w, failures=1)
        base = flaky.step()
        run = await w.begin(flow)
        flaky.failures = 9
        await w.settle()
        assert await run.status() == "sleeping"
        flaky.failures = 1
        await w.advance("1s")
        flaky.failures = 9
        assert (await run.history())[0].path == "patient"


async def test_options_leave_the_step_itself_alone() -> None:
    @step(timeout="5s")
    async def work() -> None:
        return None

    other = work.options(name="other", timeout="1s", retry=steady)
    assert (work.name, work.timeout_us, work.retry.attempts) == ("work", 5_000_000, 1)
    assert (other.name, other.timeout_us, other.retry.attempts) == ("other", 1_000_000, 5)
    assert work.options(retry=steady).timeout_us == 5_000_000


async def test_a_step_outside_a_workflow_is_its_plain_function() -> None:
    @step
    async def double(x: int) -> int:
        return 2 * x

    @step
    def triple(x: int) -> int:
        return 3 * x

    assert await double(2) == 4
    assert triple(2) == 6


async def test_methods_partials_and_callables_as_steps(world: Any, app: App) -> None:
    class Mailer:
        async def send(self, to: str) -> str:
            return f"sent to {to}"

    mailer = Mailer()

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(mailer.send, "ann"), await ctx.step(mailer.send, to="bob")]

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == ["sent to ann", "sent to bob"]
        assert [one.path for one in await run.history()] == ["send", "send#2"]


async def test_a_base_exception_from_a_body_is_a_failed_step(world: Any, app: App) -> None:
    class Strange(BaseException):
        pass

    async def fails() -> None:
        raise Strange("from a library")

    def fails_in_thread() -> None:
        raise Strange("from a thread")

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        seen = []
        for body in (fails, fails_in_thread):
            try:
                await ctx.step(body)
            except StepFailed as error:
                seen.append(f"{error.type} {error.message}")
        return seen

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == ["Strange from a library", "Strange from a thread"]


async def test_a_task_that_a_body_left_behind_never_learns_of_another_run(
    world: Any, app: App
) -> None:
    """The runner goes on to the next body; what outlives the first one is outside any step."""
    left_behind: list[asyncio.Task[None]] = []
    seen: list[str] = []
    ask, asked = asyncio.Event(), asyncio.Event()

    async def look() -> None:
        await ask.wait()
        try:
            seen.append(step_info().run_id)
        except PerdureError as error:
            seen.append(str(error))
        asked.set()

    async def leaves() -> None:
        left_behind.append(asyncio.create_task(look()))

    async def follows() -> None:
        ask.set()
        await asked.wait()

    @app.workflow
    async def first(ctx: Context) -> None:
        await ctx.step(leaves)

    @app.workflow
    async def second(ctx: Context) -> None:
        await ctx.step(follows)

    async with world(app) as w:
        runs = await asyncio.gather(w.app.start(first, id="a"), w.app.start(second, id="b"))
        for run in runs:
            await run.result(timeout="10s")
        await asyncio.gather(*left_behind)
        assert seen == ["step_info() was called outside a step that a workflow runs"]
