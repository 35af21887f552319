"""What can be asked of an app by a message, and what is answered: by a child over its wire, or in the test itself."""

import asyncio
import logging
import resource
import time
from typing import Any

from crashes import mesh, plays, readers, scenes, story
from perdure import App, PerdureError
from perdure.model.outcomes import Buffered, Delivered, Duplicate, Fenced


class Fences(logging.Handler):
    """Counts the writes that were refused because another worker has the run: told by the log of all ops."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.args, tuple)
        self.count += isinstance(record.args[1], Fenced)


fences = Fences()


def count_fences() -> None:
    """From now on, in this process."""
    log = logging.getLogger("perdure.ops")
    log.setLevel(logging.DEBUG)
    log.addHandler(fences)
    log.propagate = False


def worker_of(app: App) -> str:
    """The id of its worker at present."""
    worker = app._engine().worker
    assert worker is not None
    return worker.worker_id


def claim_of(app: App, run_id: str) -> str:
    """By which claim it has this run: its worker's id and the fence. Also for a step in a thread, which may not ask.

    While the run is being loaded anew, with its bodies, nobody can tell.
    """
    engine = app._life._engine
    assert engine is not None
    assert engine.worker is not None
    execution = engine.worker._executions.get(run_id)
    fence = f"unknown since {time.monotonic_ns()}" if execution is None else execution.fence
    return f"{engine.worker.worker_id}/{fence}"


async def answer(app: App, asked: dict[str, Any]) -> dict[str, Any]:
    """What came of it, as JSON has it: `ok`, or the name of the `error` and its text."""
    try:
        return {"ok": await _do(app, asked)}
    except PerdureError as error:
        return {"error": type(error).__name__, "text": str(error)}


async def _do(app: App, asked: dict[str, Any]) -> Any:
    run_id = asked.get("run", "")
    match asked["do"]:
        case "start":
            workflow: Any = scenes.workflows[asked["workflow"]]
            given = asked["input"]
            first = plays.Show(**given) if asked["workflow"] in plays.plays else given
            run = await app.start(workflow, first, id=run_id)
            return {"created": run.created}
        case "signal":
            name = asked["signal"]
            sent = await app.signal(
                run_id, story.signals.get(name, name), asked["payload"], key=asked["key"]
            )
            return _sent(sent)
        case "state":
            return await app.run(run_id).get("state")
        case "emit":
            return await readers.emit(app, asked["numbers"])
        case "read":
            await asyncio.sleep(0.005)  # it is asked until it is so
            return await readers.are_done(app)
        case "announce":
            entity, key = asked["entity"], asked["key"]
            await app.emit(scenes.news, asked["payload"], entity=entity, key=key)
            return None
        case "put":
            await app.put(scenes.jobs, asked["payload"], key=asked["key"])
            return None
        case "who":
            return {"worker": worker_of(app), "fenced": fences.count}
        case "cancel":
            return await app.run(run_id).cancel()
        case "pause":
            return await app.run(run_id).pause()
        case "resume":
            return await app.run(run_id).resume()
        case "status":
            return await app.run(run_id).status()
        case "result":
            return await app.run(run_id).result()
        case "mesh":
            return await mesh.obey(app, asked)
        case "limit":
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            soft = asked["bytes"] if asked["bytes"] else hard
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            return soft
    raise AssertionError(f"what is {asked!r}?")


def _sent(outcome: Delivered | Buffered | Duplicate[Any]) -> dict[str, Any]:
    match outcome:
        case Delivered():
            return {"sent": "delivered", "path": outcome.path, "signal_id": outcome.signal_id}
        case Buffered():
            return {"sent": "buffered", "signal_id": outcome.signal_id}
        case Duplicate():
            return {"sent": "duplicate", "of": _sent(outcome.of)}
