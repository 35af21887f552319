"""One decision, one push, although many click and a process dies: `python examples/approval.py`.

An action is proposed. Many people look at it and some click at once; **one decision counts**: the signal is an atomic
claim (`buffer="first"`), the others get `SignalTaken`. The workflow tells the decision as `hitl.approved`, `.rejected`
or `.deferred`, under the id of the proposed action. Another service reads approvals and pushes them to an ERP.

That service is killed in the worst moment: the ERP has been told, the cursor is not yet committed. Restarted, it is
given the event again, pushes again under the same key, and the ERP ignores it. Then the event is fired anew by hand;
now the reader knows the key itself and the handler is not even called.

What is exact here, and what is not:

- What a handler does **through its batch** (start, signal, emit, put) is committed with the cursor: exactly once.
- What it does **elsewhere** happens at least once. Nobody can commit a cursor and a foreign system together. So the
  foreign system must take the key, as this ERP does, and ignore what it knows: at-least-once and idempotency. With one
  that takes no key, a crash in that moment pushes twice.
"""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from perdure import App, Batch, Context, RunFinished, Signal, SignalTaken, TimedOut, Topic, timer

STORE = "sqlite:///approval.db"
ERP_FILE = "approval_erp.txt"


@dataclass
class Proposal:
    action_id: str
    text: str


@dataclass
class Verdict:
    say: str  # approve, reject or defer
    by: str


@dataclass
class Decision:
    """The key by which whoever acts on it knows it again is the id of the proposed action."""

    idempotency_key: str
    text: str
    by: str


verdict = Signal("verdict", Verdict, buffer="first")
approved = Topic("hitl.approved", Decision)
rejected = Topic("hitl.rejected", Decision)
deferred = Topic("hitl.deferred", Decision)
HEARD = {"approve": approved, "reject": rejected, "defer": deferred}

# --- one service: people decide -------------------------------------------------------------------

desk = App(STORE)


@desk.workflow(signals=[verdict])
async def ask(ctx: Context, proposal: Proposal) -> str:
    answer = await ctx.wait(verdict | timer("48h"))
    if isinstance(answer, TimedOut):
        answer = Verdict("defer", by="nobody")
    topic, action_id = HEARD[answer.say], proposal.action_id
    decision = Decision(idempotency_key=action_id, text=proposal.text, by=answer.by)
    await ctx.emit(topic, decision, entity=f"action/{action_id}", key=action_id)
    return f"{topic.name} by {answer.by}"


async def click(app: App, run_id: str, given: Verdict) -> bool:
    """Whether this was the decision."""
    try:
        await app.signal(run_id, verdict, given)
    except (SignalTaken, RunFinished):
        return False
    return True


# --- another service: approvals are pushed --------------------------------------------------------


class Erp:
    """A foreign system that takes a key with each order and carries out each key once: here, a file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    async def push(self, key: str, text: str) -> None:
        known = any(line.split()[1] == key for line in self.lines())
        with self._file.open("a") as file:
            file.write(f"{'ignored' if known else 'accepted'} {key} {text}\n")

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []


class DeadlyErp(Erp):
    """The process that pushes does not live to hear the answer."""

    async def push(self, key: str, text: str) -> None:
        await super().push(key, text)
        os.kill(os.getpid(), signal.SIGKILL)


pusher = App(STORE)


@pusher.consumer("erp_push", "hitl.approved", dedupe=True)
async def push(batch: Batch) -> None:
    for event in batch:
        decision = approved.read(event)
        await batch.dep(Erp).push(decision.idempotency_key, decision.text)  # at least once
        batch.emit("erp.pushed", {"by": decision.by}, entity=event.entity)  # exactly once


async def push_all(erp: Erp) -> None:
    """Run the service until it has read everything."""
    async with pusher.copy(STORE, deps=[erp]) as app:
        while not await has_read_all(app):  # noqa: ASYNC110 (what is awaited is a row)
            await asyncio.sleep(0.02)


async def has_read_all(app: App) -> bool:
    readers = (await app.health()).consumers
    return any(one.name == "erp_push" and one.lag == 0 for one in readers)


# --- the story ------------------------------------------------------------------------------------


async def main() -> None:
    for old in Path.cwd().glob("approval*.[dt][bx]*"):  # of the last time
        old.unlink()
    erp = Erp(ERP_FILE)
    async with desk:
        run = await desk.start(ask, Proposal("A-17", "raise the limit of Ada"))
        people = [Verdict("approve", f"person {n}") for n in range(20)]
        counted = await asyncio.gather(*(click(desk, run.id, one) for one in people))
        print(f"{len(people)} clicks, {sum(counted)} counts: {await run.result()}")

    code = subprocess.run([sys.executable, __file__, "deadly"], check=False).returncode  # noqa: ASYNC221
    print(f"the service pushed and was killed before its cursor moved (exit code {code})")
    print("  the ERP:", erp.lines())

    subprocess.run([sys.executable, __file__, "push"], check=True)  # noqa: ASYNC221
    print("restarted, it was given the event again")
    print("  the ERP:", erp.lines())

    async with pusher.copy(STORE, deps=[erp]) as app:
        fired = await app.replay("erp_push", dry_run=False)
        pushed = await app.events("erp.pushed")
    print(f"fired anew by hand: {fired.events} event, which the reader knows by its key")
    print("  the ERP:", erp.lines())
    print(f"on the ledger: {len(pushed)} erp.pushed")


if __name__ == "__main__":
    roles = {"deadly": DeadlyErp, "push": Erp}
    if len(sys.argv) > 1:
        asyncio.run(push_all(roles[sys.argv[1]](ERP_FILE)))
    else:
        asyncio.run(main())
