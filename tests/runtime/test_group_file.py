"""A SQLite file that belongs to a group: its members share it, whoever opened it first and whatever their umask."""

import asyncio
import os
import shutil
import sqlite3
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure import App, Context, Signal
from perdure.store.sqlite import store as _imported_before_privileges_go  # noqa: F401

GROUP, ADA, BOB = 4242, 5001, 5002

go = Signal("go", int)
shop = App("memory://")


@shop.workflow
async def waiter(ctx: Context) -> int:
    return await ctx.wait(go)


def modes(directory: Path) -> dict[str, int]:
    return {
        one.name.partition(".db")[2]: stat.S_IMODE(one.stat().st_mode)
        for one in directory.iterdir()
    }


async def test_what_lies_beside_it_has_its_mode(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with shop.copy(url):
        pass
    os.chmod(tmp_path / "a.db", 0o660)
    before = os.umask(0o077)
    try:
        async with shop.copy(url):
            found = modes(tmp_path)
            (worker,) = (tmp_path / "a.db-workers").iterdir()
            assert stat.S_IMODE(worker.stat().st_mode) == 0o660
    finally:
        os.umask(before)
    assert (found[""], found["-lock"], found["-wal"]) == (0o660, 0o660, 0o660)
    assert (found["-workers"], found["-peers"]) == (0o770, 0o770)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory for the group, where others than the one who runs the tests can get at."""
    directory = Path(tempfile.mkdtemp(prefix="perdure-group-"))
    os.chown(directory, ADA, GROUP)
    directory.chmod(0o2770)
    yield directory
    shutil.rmtree(directory)


def as_user(user: int, act: Callable[[], None]) -> int:
    """Do this in a process of somebody who is nobody but a member of the group; gives the pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setgroups([GROUP])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o022)
        act()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be others"
)
def test_members_of_the_group_work_on_one_file(shared: Path) -> None:
    database = shared / "a.db"
    url = f"sqlite:///{database}"

    async def make() -> None:
        async with shop.copy(url, worker=False):
            pass
        os.chmod(database, 0o660)

    async def work() -> None:
        async with shop.copy(url) as app:
            run = await app.start(waiter, id="a")
            assert await run.result("20s") == 7

    async def send() -> None:
        async with shop.copy(url, worker=False) as app:
            store = app._engine().store
            async with asyncio.timeout(20):
                while not await store.waiting("a"):  # noqa: ASYNC110 (another process's run)
                    await asyncio.sleep(0.01)
            await app.signal("a", go, 7)
            assert await app.run("a").result("20s") == 7
            noticing = getattr(store, "_noticing")  # noqa: B009
            assert noticing._peers.anybody, "they cannot tell each other"

    def until_done(*pids: int) -> None:
        for pid in pids:
            assert os.waitpid(pid, 0)[1] == 0

    until_done(as_user(ADA, lambda: asyncio.run(make())))
    until_done(as_user(BOB, lambda: asyncio.run(work())), as_user(ADA, lambda: asyncio.run(send())))
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select status from runs").fetchall() == [("completed",)]
    assert set(modes(shared)) <= {"", "-lock", "-wal", "-shm"}
