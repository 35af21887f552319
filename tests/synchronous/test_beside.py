"""`app.sync` beside a loop that has the app open: from other threads, from steps, and from where it may not be used."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure import (
    App,
    Context,
    NotRunning,
    OutcomeUnknown,
    PerdureError,
    RunFailed,
    StepFailed,
    WrongLoop,
)
from perdure.synchronous import bridge
from perdure.synchronous.face import verbs_of

from .shop import Order, approve, arrived, jobs, note, shop, workflow

TEA = Order("tea", 3)


# --- from other threads ---------------------------------------------------------------------------


async def test_other_threads_use_an_app_that_is_open_in_a_loop(place: dict[str, Any]) -> None:
    app = shop(**place)

    def handle_request() -> int:
        run = app.sync.start(workflow(app, "order"), TEA)
        app.sync.signal(run.id, approve, True)
        return run.result()

    async with app:
        assert await asyncio.to_thread(handle_request) == 3
        with pytest.raises(NotRunning, match="open already"):
            await asyncio.to_thread(app.sync.open)
        await asyncio.to_thread(app.sync.close)  # which has opened nothing
        assert len(await app.runs()) == 1
    with pytest.raises(NotRunning):
        await asyncio.to_thread(app.sync.runs)


async def test_a_thread_with_a_loop_of_its_own_may_wait_too(place: dict[str, Any]) -> None:
    app = shop(**place)

    async def elsewhere() -> int:
        with pytest.raises(WrongLoop, match=r"to_thread\(app\.sync\.start"):
            await app.start("double", 4)
        return (await asyncio.to_thread(app.sync.start, "double", 4)).result()

    async with app:
        assert await asyncio.to_thread(asyncio.run, elsewhere()) == 8


async def test_fifty_threads_at_once(any_place: dict[str, Any]) -> None:
    app = shop(**any_place)
    gate = threading.Barrier(50)

    def use(number: int) -> tuple[int, list[Any]]:
        gate.wait(20)
        run = app.sync.start(workflow(app, "order"), Order("tea", number), id=f"o{number}")
        app.sync.signal(run.id, note, number)
        items = run.stream("notes")
        first = next(items)
        app.sync.signal(run.id, approve, True)
        return run.result(timeout="60s"), [first.value, *[one.value for one in items]]

    async with app:
        with ThreadPoolExecutor(50) as threads:
            loop = asyncio.get_running_loop()
            told = await asyncio.gather(
                *(loop.run_in_executor(threads, use, number) for number in range(50))
            )
        assert told == [(number, [number]) for number in range(50)]
        assert (await app.counts())["runs.completed"] == 50


@pytest.mark.parametrize("verb", verbs_of(App))
async def test_in_the_loop_itself_each_verb_says_what_to_use(verb: str) -> None:
    app = shop(worker=False)
    async with app:
        with pytest.raises(WrongLoop, match=rf"app\.sync\.{verb} .* use `(await )?app\.{verb}\("):
            getattr(app.sync, verb)()


async def test_in_the_loop_itself_a_handle_says_what_to_use() -> None:
    app = shop()
    async with app:
        run = await asyncio.to_thread(app.sync.start, "order", {"sku": "tea", "count": 1})
        with pytest.raises(WrongLoop, match=r"use `await run\.result\("):
            run.result()
        with pytest.raises(WrongLoop, match=r"use `async for … in run\.stream\("):
            run.stream("notes")
        items = await asyncio.to_thread(run.stream, "notes")
        with pytest.raises(WrongLoop):
            next(items)


async def test_a_plain_step_may_use_the_app(place: dict[str, Any]) -> None:
    app = shop(**place)
    seen: list[Any] = []

    @app.step
    def helped(number: int) -> int:
        seen.append(threading.current_thread().name)
        run = app.sync.start(workflow(app, "double"), number)
        seen.append(run.info().trace)
        return run.result()

    @app.workflow
    async def asking(ctx: Context, number: int) -> int:
        return await ctx.step(helped, number)

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with app:
        run = await app.start(asking, 4, trace=trace)
        assert await run.result() == 8
    assert seen[0].startswith("perdure-step")
    assert seen[1] is not None and trace[:35] == seen[1][:35]  # it is of the step that asked


async def test_workflow_code_may_not(place: dict[str, Any]) -> None:
    app = shop(**place)

    @app.workflow
    async def wrong(ctx: Context) -> None:
        app.sync.start("double", 1)

    async with app:
        run = await app.start(wrong)
        with pytest.raises(RunFailed, match=r"ForeignAwait: .*app\.sync\.start.* the verbs of ctx"):
            await run.result(timeout="10s")
        assert len(await app.runs()) == 1


def test_a_transaction_may_not_wait_for_the_app(tmp_path: Any) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")

    @app.step
    def body(connection: Any) -> None:
        app.sync.start("double", 1)

    @app.workflow
    async def wrong(ctx: Context) -> str:
        try:
            await ctx.transaction(body)
        except StepFailed as error:
            return f"{error.type}: {error.message}"
        return "nothing"

    with app.sync as opened:
        said = opened.start(wrong).result(timeout="20s")
        assert said.startswith("ForeignAwait: app.sync.start was called in a transaction")
        assert len(opened.runs()) == 1


async def test_what_the_caller_knows_is_known_in_the_loop() -> None:
    """Context variables of the thread that calls: of tracers, and of web frameworks."""
    asked_by: contextvars.ContextVar[str] = contextvars.ContextVar("asked_by")
    heard: list[str] = []

    class Listening(App):
        async def counts(self) -> dict[str, int]:
            heard.append(asked_by.get("nobody"))
            return await super().counts()

    app = Listening("memory://")

    def ask(name: str) -> None:
        asked_by.set(name)
        app.sync.counts()

    async with app:
        for name in ("anna", "bert"):
            await asyncio.to_thread(ask, name)
        await app.counts()
    assert heard == ["anna", "bert", "nobody"]


# --- the same answers ---------------------------------------------------------------------------

# What is different by the hour, and what has no answer that could be compared.
_never_the_same = {"health", "run"}


async def came_of(call: Callable[[], Any]) -> Any:
    try:
        made = call()
        return await made if asyncio.iscoroutine(made) else made
    except (TypeError, PerdureError) as error:
        return type(error), str(error), vars(error)


@pytest.mark.parametrize("args", [(), (object(),), ("o", "approve"), ("nobody", "nobody", {})])
async def test_each_verb_answers_and_refuses_as_the_async_one(args: tuple[Any, ...]) -> None:
    app = shop(worker=False)
    async with app:
        await app.start("order", {"sku": "tea", "count": 1}, id="o")
        await app.emit(arrived, 1)
        await app.put(jobs, 1)
        compared = 0
        for verb in verbs_of(App):
            if verb in _never_the_same or (args and verb == "schema_version"):
                continue  # the last is a method of its own, which says so when it is called wrongly
            before = await app.counts()
            told = await came_of(lambda verb=verb: getattr(app, verb)(*args))
            again = await asyncio.to_thread(
                lambda verb=verb: asyncio.run(came_of(lambda: getattr(app.sync, verb)(*args)))
            )
            if await app.counts() == before:  # else its second answer is another one
                assert again == told or repr(again) == repr(told), verb
                compared += 1
        assert compared >= 40


# --- loops that do not run -----------------------------------------------------------------------


def test_nobody_waits_for_a_loop_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_look_every_s", 0.01)
    app = shop()
    with asyncio.Runner() as runner:
        runner.run(app.__aenter__())
        for _ in range(2):
            with pytest.raises(NotRunning, match="does not run"):
                app.sync.runs()
        runner.run(app.__aexit__(None, None, None))


def test_a_loop_that_ends_with_the_app_open_lets_go_of_who_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = threading.Event()

    class Slow(App):
        async def counts(self) -> dict[str, int]:
            begun.set()
            await asyncio.Event().wait()
            return {}

    app = Slow("memory://", worker=False)

    async def serve(threads: ThreadPoolExecutor) -> Any:
        await app.__aenter__()
        asked = threads.submit(app.sync.counts)
        await asyncio.to_thread(begun.wait, 10)
        return asked

    with ThreadPoolExecutor(1) as threads:
        asked = asyncio.run(serve(threads))
        assert isinstance(asked.exception(10), OutcomeUnknown)
    assert isinstance(caught(app.sync.runs), NotRunning)
    app._life._engine = None


def caught(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None
