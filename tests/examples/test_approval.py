"""One decision counts; a push that a crash repeats is a no-op by its key."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import approval
import pytest
from approval import (
    ERP_FILE,
    Erp,
    Proposal,
    Verdict,
    ask,
    click,
    desk,
    has_read_all,
    pusher,
    verdict,
)

from perdure import SignalTaken
from perdure.testing import World


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder}/approval.db"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("early", [True, False])
async def test_many_click_and_one_counts(store: str, early: bool, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else url_in(tmp_path)
    async with World(desk, url) as world:
        start_at = "1h" if early else None
        run = await world.app.start(ask, Proposal("A-1", "a text"), start_at=start_at)
        await world.settle()
        clicks = [
            world.app.signal(run.id, verdict, Verdict("reject" if n % 2 else "approve", f"p{n}"))
            for n in range(50)
        ]
        answers = await asyncio.gather(*clicks, return_exceptions=True)
        refused = [one for one in answers if isinstance(one, BaseException)]
        assert len(refused) == 49 and {type(one) for one in refused} == {SignalTaken}
        await world.advance("1h")
        winner = next(n for n, one in enumerate(answers) if not isinstance(one, BaseException))
        heard = "hitl.rejected" if winner % 2 else "hitl.approved"
        assert await run.result() == f"{heard} by p{winner}"
        (event,) = await world.app.events("hitl.*")
        assert event.type == heard and event.entity == "action/A-1" and event.key == "A-1"
        assert event.payload == {"idempotency_key": "A-1", "text": "a text", "by": f"p{winner}"}


async def test_nobody_clicks(tmp_path: Path) -> None:
    async with World(desk) as world:
        run = await world.app.start(ask, Proposal("A-2", "a text"))
        await world.advance("48h")
        assert await run.result() == "hitl.deferred by nobody"
        assert await click(world.app, run.id, Verdict("approve", "too late")) is False


def run_service(role: str, folder: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-W", "error", approval.__file__, role],
        cwd=folder,
        timeout=60,
        check=False,
    )
    return done.returncode


async def test_killed_between_the_effect_and_the_cursor(tmp_path: Path) -> None:
    erp = Erp(str(tmp_path / ERP_FILE))
    async with desk.copy(url_in(tmp_path)) as app:
        run = await app.start(ask, Proposal("A-3", "a text"))
        await app.signal(run.id, verdict, Verdict("approve", "Ada"))
        assert await run.result() == "hitl.approved by Ada"

    assert run_service("deadly", tmp_path) == -signal.SIGKILL
    assert erp.lines() == ["accepted A-3 a text"]
    async with pusher.copy(url_in(tmp_path), worker=False) as client:
        (row,) = [one for one in await client.consumers() if one.name == "erp_push"]
        assert row.lag > 0 and not await client.events("erp.pushed")  # nothing of it was committed

    assert run_service("push", tmp_path) == 0
    assert erp.lines() == ["accepted A-3 a text", "ignored A-3 a text"]

    # By hand, the same event again: the reader knows its key, and the handler is not called.
    async with pusher.copy(url_in(tmp_path), deps=[erp]) as app:
        assert (await app.replay("erp_push", dry_run=False)).events == 1
        await app.rewind("erp_push", "beginning")
    assert run_service("push", tmp_path) == 0
    assert len(erp.lines()) == 2
    async with pusher.copy(url_in(tmp_path), worker=False) as client:
        assert len(await client.events("erp.pushed")) == 1
        assert not await client.parked()
        assert await has_read_all(client)
