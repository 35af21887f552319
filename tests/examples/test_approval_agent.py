"""The agent acts on one decision, once; and not at all if nobody answers in time."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from approval_agent import Complaint, Office, agent, app

from perdure import ApprovalClosed, ApprovalExpired, NotAllowed
from perdure.testing import World

BROKEN = Complaint("order-7", "my lamp arrived in 120 pieces")


@pytest.fixture
def office() -> Office:
    return Office()


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def world(request: Any, office: Office, tmp_path: Path) -> AsyncIterator[World]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/agent.db"
    async with World(app, url, deps=[office]) as world:
        office.app = world.app
        yield world


async def asked(world: World) -> Any:
    await world.settle()
    (one,) = await world.app.approvals()
    return one


async def test_a_link_of_any_mail_decides_once(world: World, office: Office) -> None:
    run = await world.app.start(agent, BROKEN)
    assert (await asked(world)).data == {
        "order": "order-7",
        "amount": 120,
        "reason": "the customer says: my lamp arrived in 120 pieces",
    }
    await world.advance("9h")
    assert [one.text for one in office.mails] == [
        "Refund 120 EUR for order-7?",
        "Refund 120 EUR for order-7? (reminder 1)",
        "Refund 120 EUR for order-7? (reminder 2)",
    ]
    await world.app.answer(office.mails[1].links["approve"])
    assert await run.result() == ("refunded 120 EUR for order-7, approved by mail:anna@example.org")
    for mail in office.mails:
        for link in mail.links.values():
            with pytest.raises(ApprovalClosed):
                await world.app.answer(link)
    assert list(office.refunds.values()) == ["120 EUR for order-7"]


async def test_who_may_rejects_in_the_inbox(world: World, office: Office) -> None:
    run = await world.app.start(agent, BROKEN)
    one = await asked(world)
    with pytest.raises(NotAllowed):
        await world.app.decide(one.id, "approve", by="bob")
    await world.app.decide(one.id, "reject", by="bob", groups=["finance"], comment="it was old")
    assert await run.result() == "no refund, says bob: it was old"
    assert not office.refunds


async def test_nobody_answers(world: World, office: Office) -> None:
    run = await world.app.start(agent, BROKEN)
    one = await asked(world)
    await world.advance("25h")
    for late in (
        world.app.decide(one.id, "approve", by="anna"),
        world.app.answer(office.mails[0].links["approve"]),
    ):
        with pytest.raises(ApprovalExpired):
            await late
    await world.advance("24h")
    assert await run.result() == "handed over to the office"
    assert not office.refunds
