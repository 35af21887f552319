"""A run outlives its process: `make demo`, or `python examples/demo.py`.

The driver below starts four short-lived processes, one after another, on one SQLite file:

    process 1   a worker; it starts the run, charges, waits for an approval, and is killed
    process 2   a client; it approves while no worker is alive
    process 3   a worker; the run goes on where it was, ships, and finishes
    process 4   a client; it reads the run's history

Then the driver counts what happened outside (one line in a file for each charge and each parcel)
and exits with an error unless the charge happened exactly once.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from perdure import App, Context, Signal, TimedOut, step_info, timer

# --- the workflow ---------------------------------------------------------------------------------

STORE = os.environ.get("DEMO_STORE", "memory://")
OUTSIDE = Path(os.environ.get("DEMO_OUTSIDE", os.devnull))
RUN_ID = "order-42"


@dataclass
class Order:
    number: int
    total: str


@dataclass
class Payment:
    reference: str


@dataclass
class Approval:
    ok: bool
    by: str


@dataclass
class Receipt:
    outcome: str
    payment: str


app = App(STORE)
approval = Signal("approval", Approval)


@app.step
async def charge(order: Order) -> Payment:
    say(f"charging {order.total} for order {order.number}")
    leave_trace("charge", order)
    return Payment(reference=f"pay-{order.number}")


@app.step
async def ship(order: Order) -> None:
    say(f"shipping order {order.number}")
    leave_trace("ship", order)


@app.workflow(signals=[approval])
async def fulfil(ctx: Context, order: Order) -> Receipt:
    payment = await ctx.step(charge, order)
    match await ctx.wait(approval | timer("48h")):
        case Approval(ok=True, by=name):
            await ctx.step(ship, order)
            return Receipt(f"shipped, approved by {name}", payment.reference)
        case Approval():
            return Receipt("refused", payment.reference)
        case TimedOut():
            return Receipt("nobody answered", payment.reference)


def leave_trace(what: str, order: Order) -> None:
    """Stands for the world outside, which does not roll back when a process dies."""
    with OUTSIDE.open("a") as file:
        file.write(f"{what} order={order.number} key={step_info().idempotency_key}\n")


# --- what each process does -----------------------------------------------------------------------


async def worker() -> None:
    async with app:
        run = await app.start(fulfil, Order(42, "49.90 EUR"), id=RUN_ID)
        say(f"started run {RUN_ID}" if run.created else f"run {RUN_ID} is there; it goes on")
        watch = asyncio.create_task(announce_wait())
        receipt = await run.result()
        watch.cancel()
        say(f"{RUN_ID}: {receipt.outcome}; paid with {receipt.payment}")


async def announce_wait() -> None:
    while True:
        if await app.run(RUN_ID).status() == "waiting":
            say("waiting for an approval, at most 48 hours", cue="waiting")
            return
        await asyncio.sleep(0.05)


async def approve() -> None:
    async with App(STORE, worker=False) as client:
        outcome = await client.signal(RUN_ID, approval, Approval(ok=True, by="Ada"))
        say(f"approval sent: {type(outcome).__name__}")


async def history() -> None:
    async with App(STORE, worker=False) as client:
        entries = await client.run(RUN_ID).history()
    say(f"history of {RUN_ID}, as stored")
    rows = [("path", "kind", "status", "attempt", "when", "value")]
    for entry in entries:
        value = entry.error if entry.error is not None else entry.value
        when = entry.recorded_at or entry.started_at
        rows.append(
            (
                entry.path,
                str(entry.kind),
                str(entry.status),
                str(entry.attempt),
                f"{when.astimezone():%H:%M:%S.%f}"[:-3] if when else "",
                shorten(json.dumps(value, default=str), 44),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say(cells.rstrip(), cue="table")


ROLES = {"worker": worker, "approve": approve, "history": history}


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def say(text: str, cue: str = "") -> None:
    """Tell the driver one line; a cue tells it what the line means."""
    print(json.dumps([cue, text]), flush=True)


# --- the driver -----------------------------------------------------------------------------------

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
COLOUR_OF = {"driver": "1", "1": "36", "2": "35", "3": "32", "4": "33", "bad": "1;31", "dim": "2"}
STARTED = time.monotonic()
PATIENCE_S = 15
BEAT_S = 1.0  # between the acts, for the reader


class DemoFailed(Exception):
    """A process did not do what the story says."""


def paint(text: str, colour: str) -> str:
    return f"\033[{COLOUR_OF[colour]}m{text}\033[0m" if COLOUR else text


def tell(speaker: str, text: str, colour: str | None = None) -> None:
    name = speaker if speaker == "driver" else f"process {speaker}"
    elapsed = paint(f"{time.monotonic() - STARTED:6.2f}s", "dim")
    print(f"{elapsed}  {paint(f'{name:<9}', colour or speaker)}  {text}", flush=True)


class Actor:
    """One process of the story. Its lines pass through here, in order and with its name."""

    def __init__(self, number: str, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process

    async def until(self, cue: str) -> None:
        """Pass its lines on up to the one with this cue."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.line() != cue:
                pass

    async def ended(self) -> None:
        """Pass all its lines on; it must end well."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while True:
                    await self.line()
            except EOFError:
                code = await self.process.wait()
        if code:
            raise DemoFailed(f"process {self.number} ended with exit code {code}")

    async def line(self) -> str:
        assert self.process.stdout is not None
        raw = (await self.process.stdout.readline()).decode()
        if not raw:
            raise EOFError(f"process {self.number} ended early")
        try:
            cue, text = json.loads(raw)
        except ValueError:  # not ours: a traceback, most likely
            cue, text = "", raw.rstrip()
        if cue == "table":
            print(f"{'':20}{text}", flush=True)
        else:
            tell(self.number, text)
        return str(cue)

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def actor(number: str, role: str, env: dict[str, str]) -> AsyncIterator[Actor]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        role,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | env,
    )
    try:
        yield Actor(number, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def drive(folder: Path) -> None:
    outside = folder / "outside.txt"
    env = {"DEMO_STORE": f"sqlite:///{folder / 'shop.db'}", "DEMO_OUTSIDE": str(outside)}

    tell("driver", "one order, one SQLite file, four processes")
    async with actor("1", "worker", env) as first:
        await first.until("waiting")
        await asyncio.sleep(BEAT_S)
        await first.kill()
    tell("driver", "process 1 killed with SIGKILL; no worker is alive now")

    await asyncio.sleep(BEAT_S)
    async with actor("2", "approve", env) as second:
        await second.ended()
    tell("driver", "process 2 is gone too; the answer is in the file, nobody has acted on it")

    await asyncio.sleep(BEAT_S)
    async with actor("3", "worker", env) as third:
        await third.ended()
    async with actor("4", "history", env) as fourth:
        await fourth.ended()

    happened = [line.split()[0] for line in outside.read_text().splitlines()]
    if sorted(happened) != ["charge", "ship"]:
        raise DemoFailed(f"expected one charge and one parcel, found {happened}")
    tell("driver", "charged exactly once, shipped exactly once, by two different processes", "3")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as folder:
        try:
            asyncio.run(drive(Path(folder)))
        except (DemoFailed, EOFError, TimeoutError) as error:
            tell("driver", f"failed: {error or 'a process took too long'}", "bad")
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(ROLES[sys.argv[1]]())
    else:
        sys.exit(main())
