"""An agent that asks before it acts: `python examples/approval_agent.py`.

An agent reads a complaint and drafts a refund. Before money moves, people are asked: the draft stands in an inbox, a
mail brings links that answer it, reminders follow, and after a day nobody may answer any more. One decision counts,
whoever clicks, and the agent goes on with it. The refund is a step: should the process die in it, it is made again
under the same key, by which the bank knows it.

The first customer is lucky: anna answers the reminder by its link, and the old link is of no use then. Nobody looks at
the second one: it expires, and after two days the agent hands it over to the office.

The model is a stand-in that needs no network. Days pass in virtual time, on a SQLite file.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from perdure import (
    App,
    ApprovalClosed,
    ApprovalExpired,
    Context,
    Event,
    TimedOut,
    step,
    step_info,
    timer,
    workflow,
)
from perdure.approvals import approval
from perdure.testing import World

STORE = "sqlite:///approval_agent.db"
SECRET = "only for this example, never in code"


@dataclass
class Complaint:
    order: str
    text: str


@dataclass
class Draft:
    """What the agent wants to do, and why."""

    order: str
    amount: int
    reason: str


@dataclass
class Mail:
    to: str
    text: str
    links: dict[str, str]


@dataclass
class Office:
    """What lies outside: a mail server, a bank, and the app by which links are made."""

    mails: list[Mail] = field(default_factory=list)
    refunds: dict[str, str] = field(default_factory=dict)  # the bank takes each key once
    app: App | None = None


# --- the agent ------------------------------------------------------------------------------------


@step
async def think(complaint: Complaint) -> Draft:
    """The stand-in for a model: it finds a number in the text."""
    amount = next((int(word) for word in complaint.text.split() if word.isdigit()), 0)
    return Draft(complaint.order, amount, f"the customer says: {complaint.text}")


@step
async def refund(draft: Draft) -> str:
    receipt = f"{draft.amount} EUR for {draft.order}"
    info = step_info()
    info.dep(Office).refunds[info.idempotency_key] = receipt
    return receipt


@workflow
async def agent(ctx: Context, complaint: Complaint) -> str:
    draft = await ctx.step(think, complaint)
    decision = await ctx.wait(
        approval(
            "refund",
            title=f"Refund {draft.amount} EUR for {draft.order}?",
            description=draft.reason,
            choices=["approve", "reject"],
            who=["anna", "group:finance"],
            remind=["4h", "8h"],
            expires="24h",
            data=draft,
        )
        | timer("48h")
    )
    if isinstance(decision, TimedOut):
        return "handed over to the office"
    if decision.choice == "reject":
        return f"no refund, says {decision.by}: {decision.comment}"
    receipt = await ctx.step(refund, draft)
    return f"refunded {receipt}, approved by {decision.by}"


# --- mails: whoever is asked is told, and told again ----------------------------------------------


@step
async def send(to: str, approval_id: str, text: str) -> None:
    office = step_info().dep(Office)
    assert office.app is not None
    by = f"mail:{to}@example.org"
    links = {
        choice: office.app.approval_link(approval_id, choice=choice, by=by, expires="2d")
        for choice in ("approve", "reject")
    }
    office.mails.append(Mail(to, text, links))


@workflow
async def notify(ctx: Context, event: Event) -> None:
    asked = event.payload
    again = f" (reminder {asked['number']})" if event.type == "hitl.reminded" else ""
    for person in asked["who"]:
        if not person.startswith("group:"):
            await ctx.step(send, person, asked["approval_id"], asked["title"] + again)


office = Office()
app = App(STORE, deps=[office], secret=SECRET)
app.add(agent)
app.add(notify)
for fact in ("hitl.requested", "hitl.reminded"):
    app.on(fact, name=f"mails about {fact}")(notify)


# --- the story ------------------------------------------------------------------------------------


async def ask(world: World, complaint: Complaint) -> str:
    """Let the agent begin, and give the id of its run."""
    run = await world.app.start(agent, complaint)
    await world.settle()
    (asked,) = await world.app.approvals(run_id=run.id)
    print(f"the agent asks: {asked.title}")
    return run.id


async def first_customer(world: World) -> None:
    run_id = await ask(world, Complaint("order-7", "my lamp arrived in 120 pieces"))
    print(f"  a mail to {office.mails[-1].to}: {office.mails[-1].text}")
    early = office.mails[-1].links
    await world.advance("5h")
    print(f"  five hours later: {office.mails[-1].text}")
    await world.app.answer(office.mails[-1].links["approve"], comment="poor lamp")
    print(f"  anna clicks: {await world.app.run(run_id).result()}")
    try:
        await world.app.answer(early["reject"])
    except ApprovalClosed as closed:
        print(f"  the link of the first mail: {closed.reason}")


async def second_customer(world: World) -> None:
    run_id = await ask(world, Complaint("order-8", "I want 9000 back, at once"))
    (asked,) = await world.app.approvals(who="group:finance")
    await world.advance("25h")
    try:
        await world.app.decide(asked.id, "approve", by="bob", groups=["finance"])
    except ApprovalExpired:
        print("  a day later bob wants to approve: it has expired")
    await world.advance("24h")
    print(f"  two days later: {await world.app.run(run_id).result()}")


async def main() -> None:
    for old in Path.cwd().glob("approval_agent.db*"):  # of the last time
        old.unlink()
    async with World(app, STORE) as world:
        office.app = world.app
        await first_customer(world)
        await second_customer(world)
        print(f"refunds: {list(office.refunds.values())}")
        print("on the ledger:")
        for fact in await world.app.events("hitl.*"):
            print(f"  {fact.recorded_at:%a %H:%M}  {fact.type}")


if __name__ == "__main__":
    asyncio.run(main())
