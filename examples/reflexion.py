"""Learning from refusals and failures: `python examples/reflexion.py`.

An agent proposes actions. People approve or reject them, and approved ones are carried out, which may fail. None of
that code tells anybody to learn from it. A reader of `hitl.rejected` and `workflow.run_failed` does:

- three rejections of one kind of proposal, and it is to be avoided: `reflexion.avoid`, about that kind;
- three failures of one workflow with one error are a pattern: `reflexion.failure_pattern`, about that workflow.

Whoever proposes asks the reader's memory first. A human may give a kind a second chance by emitting `reflexion.allow`;
rejections count anew from there. Read again from the beginning, the ledger teaches the same.
"""

import asyncio
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from perdure import App, Batch, Context, Event, Signal, Topic, step_info
from perdure.testing import World

ENOUGH = 3


@dataclass
class Proposal:
    kind: str
    text: str


@dataclass
class Decision:
    idempotency_key: str
    kind: str


@dataclass
class Pattern:
    error: str
    times: int


verdict = Signal("verdict", bool, buffer="first")
approved = Topic("hitl.approved", Decision)
rejected = Topic("hitl.rejected", Decision)
failure_pattern = Topic("reflexion.failure_pattern", Pattern)

app = App("sqlite:///reflexion.db")

# --- who proposes and acts ------------------------------------------------------------------------


@app.step
async def is_to_be_avoided(kind: str) -> bool:
    return step_info().dep(Memory).count(f"kind/{kind}") >= ENOUGH


@app.workflow(signals=[verdict])
async def propose(ctx: Context, proposal: Proposal) -> str:
    if await ctx.step(is_to_be_avoided, proposal.kind):
        return "avoided"
    said = await ctx.wait(verdict)
    decision = Decision(idempotency_key=ctx.run_id, kind=proposal.kind)
    await ctx.emit(approved if said else rejected, decision, entity=f"kind/{proposal.kind}")
    if not said:
        return "rejected"
    await ctx.start(carry_out, proposal)
    return "approved"


@app.workflow
async def carry_out(ctx: Context, proposal: Proposal) -> None:
    if proposal.kind == "merge":
        raise LookupError("the other account is gone")


# --- who learns -----------------------------------------------------------------------------------


class Memory:
    """What was rejected or has failed. The same event remembered twice is remembered once."""

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(
            "create table if not exists seen"
            " (subject text, position integer, primary key (subject, position))"
        )

    def remember(self, subject: str, event: Event) -> int:
        """How many there are up to this one."""
        self._db.execute("insert or ignore into seen values (?, ?)", (subject, event.position))
        return self.count(subject, event.position)

    def count(self, subject: str, upto: int = 2**63 - 1) -> int:
        (count,) = self._db.execute(
            "select count(*) from seen where subject = ? and position <= ?", (subject, upto)
        ).fetchone()
        return int(count)

    def forget(self, subject: str, event: Event) -> None:
        """What came before this event counts no more."""
        self._db.execute(
            "delete from seen where subject = ? and position < ?", (subject, event.position)
        )

    def close(self) -> None:
        self._db.close()


@app.consumer("reflexion", "hitl.rejected", "reflexion.allow", "workflow.run_failed")
async def learn(batch: Batch) -> None:
    memory = batch.dep(Memory)
    for event in batch:
        match event.type:
            case "hitl.rejected":
                if memory.remember(event.entity or "", event) == ENOUGH:
                    batch.emit("reflexion.avoid", entity=event.entity, key=event.event_id)
            case "reflexion.allow":
                memory.forget(event.entity or "", event)
            case "workflow.run_failed":
                workflow, error = event.payload["workflow"], event.payload["error"]["type"]
                if (times := memory.remember(f"{workflow}: {error}", event)) == ENOUGH:
                    found = Pattern(error, times)
                    about = f"workflow/{workflow}"
                    batch.emit(failure_pattern, found, entity=about, key=event.event_id)


# --- the story ------------------------------------------------------------------------------------


async def try_one(world: World, kind: str, ok: bool) -> str:
    """Propose something and answer at once, if it is proposed at all."""
    run = await world.app.start(propose, Proposal(kind, f"a {kind}"))
    await world.settle()
    if await run.status() == "waiting":
        await world.app.signal(run.id, verdict, ok)
        await world.settle()
    return await run.result()


async def main() -> None:
    for old in Path.cwd().glob("reflexion*.db*"):  # of the last time
        old.unlink()
    memory = Memory("reflexion_memory.db")
    async with World(app, app.url, deps=[memory]) as world:
        for kind, ok in [("discount", False)] * 5 + [("reminder", True)] + [("merge", True)] * 3:
            print(f"{kind:<9} {await try_one(world, kind, ok)}")
        await world.app.emit("reflexion.allow", entity="kind/discount")
        print("a human gives discounts a second chance")
        print(f"discount  {await try_one(world, 'discount', True)}")
        for event in await world.app.events("reflexion.*"):
            print(f"learnt: {event.type} about {event.entity} {event.payload or ''}")
    memory.close()


if __name__ == "__main__":
    asyncio.run(main())
