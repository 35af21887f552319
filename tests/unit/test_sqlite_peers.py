"""Sockets between the stores on one SQLite file: who meets whom, what is kept, who is buried, whom they are for."""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from perdure.model import limits
from perdure.store.hint import Hint
from perdure.store.sqlite import beside, peers
from perdure.store.sqlite.peers import Peers

Join = Callable[..., "Joined"]


class Joined:
    """One store's peers, and what they have heard."""

    def __init__(self, path: Path, name: str) -> None:
        self.heard: list[Hint] = []
        self.peers = Peers(str(path), name, self.heard.append)
        self.called = self.peers.open()

    def tell(self, *run_ids: str) -> None:
        self.peers.gathering().ended.extend(run_ids)
        self.peers.told_soon()

    @property
    def ended(self) -> list[str]:
        return [run_id for hint in self.heard for run_id in hint.ended]

    @property
    def knows(self) -> list[str]:
        return sorted(self.peers._peers)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "one.db"
    path.touch()
    return path


@pytest_asyncio.fixture
async def join(db: Path) -> AsyncIterator[Join]:
    joined: list[Joined] = []

    def one(name: str, path: Path = db) -> Joined:
        joined.append(Joined(path, name))
        return joined[-1]

    yield one
    for each in joined:
        each.peers.close()


def sockets(db: Path) -> Path:
    return db.with_name(db.name + "-peers")


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 (a socket of the system tells nobody)
            await asyncio.sleep(0.001)


# --- meeting ---------------------------------------------------------------------------------------


async def test_whoever_comes_is_known_to_all_and_knows_all(join: Join) -> None:
    ones = [join(name) for name in "abc"]
    await until(lambda: all(len(one.knows) == 2 for one in ones))
    ones[1].tell("r1")
    await until(lambda: ones[0].ended == ones[2].ended == ["r1"])
    assert ones[1].ended == []


async def test_nobody_is_told_where_nobody_is(join: Join, db: Path) -> None:
    alone = join("a")
    assert alone.called and not alone.peers.anybody
    alone.peers.close()
    assert not sockets(db).exists()
    alone.peers.close()


async def test_who_left_is_known_to_have_left(join: Join) -> None:
    one, two = join("a"), join("b")
    await until(lambda: one.knows == ["b"])
    two.peers.close()
    assert one.peers.sweep()
    assert not one.peers.anybody
    assert not one.peers.sweep()


async def test_what_is_gathered_goes_before_a_close(join: Join) -> None:
    one, two = join("a"), join("b")
    await until(lambda: one.knows == ["b"])
    for run_id in ("r1", "r2", "r3"):
        one.tell(run_id)
    one.peers.close()
    await until(lambda: two.ended == ["r1", "r2", "r3"])


async def test_under_load_many_go_as_few(join: Join) -> None:
    one, two = join("a"), join("b")
    await until(lambda: one.knows == ["b"])
    for number in range(100):
        one.tell(f"r{number}")
    await until(lambda: len(two.ended) == 100)
    assert len(two.heard) < 10


async def test_text_that_is_no_hint_is_no_harm(join: Join, db: Path) -> None:
    one = join("a")
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    names = [b'{"sender":"%s"}' % one for one in (b"../../x", b"..", b"", b"a\\u0000", b"x" * 99)]
    for text in (b"", b"{}", b"nonsense", b"\xff" * 20_000, *names):
        stranger.sendto(text, str(sockets(db) / "a"))
    stranger.sendto(Hint("s", ended=["r1"]).texts()[0], str(sockets(db) / "a"))
    await until(lambda: one.ended == ["r1"])
    stranger.close()
    assert one.knows == []


async def test_a_directory_that_was_swept_away_is_made_anew(join: Join, db: Path) -> None:
    one = join("a")
    (sockets(db) / "a").unlink()
    sockets(db).rmdir()
    one.peers.sweep()
    two = join("b")
    await until(lambda: one.knows == ["b"])
    two.tell("r1")
    await until(lambda: one.ended == ["r1"])


# --- the dead --------------------------------------------------------------------------------------


async def test_the_socket_of_a_dead_process_is_removed(join: Join, db: Path) -> None:
    join("a")
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(sockets(db) / "dead"))
    living = join("b")
    await until(lambda: "dead" in living.knows)
    dead.close()  # as a kill would: the file stays
    assert (sockets(db) / "dead").exists()
    assert living.peers.sweep()
    assert not (sockets(db) / "dead").exists()
    assert living.knows == ["a"]


async def test_a_send_to_a_dead_process_buries_it_too(join: Join, db: Path) -> None:
    join("a")
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(sockets(db) / "dead"))
    living = join("b")
    await until(lambda: living.knows == ["a", "dead"])
    dead.close()
    living.tell("r1")
    await until(lambda: living.knows == ["a"])
    assert not (sockets(db) / "dead").exists()
    assert living.peers.sweep()  # it is still news to whoever asks
    assert not living.peers.sweep()


async def test_one_that_is_just_coming_is_not_taken_for_dead(
    join: Join, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = join("a")
    coming = sockets(db) / f"b{peers._unfinished}"
    coming.touch()  # bound by nobody yet
    one.peers.sweep()
    assert coming.exists()
    monkeypatch.setattr(peers, "_unfinished_s", -1.0)
    one.peers.sweep()
    assert not coming.exists()


# --- a peer that does not read ---------------------------------------------------------------------


@pytest_asyncio.fixture
async def deaf(join: Join, db: Path) -> AsyncIterator[socket.socket]:
    """A socket that nobody reads."""
    join("a")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound.bind(str(sockets(db) / "deaf"))
    yield bound
    bound.close()


async def test_what_it_has_no_room_for_is_kept_and_goes_in_order(
    join: Join, deaf: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_gather_s", 0.0)  # one message each
    one = join("b")
    await until(lambda: "deaf" in one.knows)
    peer = one.peers._peers["deaf"]
    sent = 0
    while not peer.lags:
        one.tell(f"r{sent}")
        sent += 1
    deaf.setblocking(False)
    found: list[str] = []

    def read() -> bool:
        try:
            while True:
                found.extend(msgspec.json.decode(deaf.recv(9000), type=Hint).ended)
        except BlockingIOError:
            return len(found) == sent

    await until(read)
    assert found == [f"r{number}" for number in range(sent)]
    assert not peer.lags


async def test_what_is_kept_for_it_has_a_bound_and_is_given_up(
    join: Join, deaf: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_gather_s", 0.0)
    one = join("b")
    await until(lambda: "deaf" in one.knows)
    peer = one.peers._peers["deaf"]
    while not peer.lags:
        one.tell("r")
    for _ in range(2 * limits.peer_backlog_max):
        one.tell("r")
    assert len(peer._backlog) == limits.peer_backlog_max
    monkeypatch.setattr(peers, "_give_up_s", 0.0)
    await until(lambda: not peer.lags)
    assert "deaf" in one.knows


async def test_others_are_told_though_one_does_not_read(
    join: Join, deaf: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_again_s", "_again_max_s"):
        monkeypatch.setattr(peers, name, 3600.0)  # nor are they told later because of it
    one, two = join("b"), join("c")
    await until(lambda: one.knows == ["a", "c", "deaf"])
    peer = one.peers._peers["deaf"]
    while not peer.lags:
        one.tell("x" * 200)
        one.peers._flush()
    await asyncio.sleep(2 * peers._gather_s)  # what is left of the flood is told
    for run_id in ("r1", "r2", "r3"):
        one.tell(run_id)
    await until(lambda: "r3" in two.ended)


# --- where they lie --------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="long paths need /proc")
async def test_a_path_that_is_too_long_for_a_socket_is_none_for_us(
    join: Join, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    db = deep / "one.db"
    db.touch()
    assert len(str(sockets(db) / "a")) > 108
    one, two = join("a", db), join("b", db)
    await until(lambda: one.knows == ["b"] and two.knows == ["a"])
    one.tell("r1")
    await until(lambda: two.ended == ["r1"])
    two.peers.close()
    assert one.peers.sweep()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="long paths need /proc")
async def test_a_long_directory_that_the_last_to_leave_removes_under_us_is_made_anew(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    db = deep / "one.db"
    db.touch()
    address = Peers._address
    asked: list[str] = []

    def late(self: Peers, name: str) -> str:
        found = address(self, name)
        asked.append(found)
        if len(asked) == 1:
            sockets(db).rmdir()
        return found

    monkeypatch.setattr(Peers, "_address", late)
    assert join("a", db).called


async def test_where_no_socket_can_be_there_are_no_peers(
    join: Join, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, db: Path
) -> None:
    def refuse(self: socket.socket, address: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    class Without(socket.socket):
        bind = refuse  # type: ignore[assignment]

    monkeypatch.setattr(peers, "_new_socket", lambda: Without(socket.AF_UNIX, socket.SOCK_DGRAM))
    one = join("a")
    assert not one.called
    assert "four times a second" in caplog.text
    assert not one.peers.sweep()
    assert not sockets(db).exists()


# --- for whose eyes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "of_directory"), [(0o600, 0o700), (0o660, 0o770), (0o644, 0o755), (0o664, 0o775)]
)
async def test_sockets_are_for_those_who_may_use_the_file(
    join: Join, db: Path, mode: int, of_directory: int
) -> None:
    os.chmod(db, mode)
    before = os.umask(0o077 if mode == 0o660 else 0)
    try:
        join("a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(sockets(db).stat().st_mode) == of_directory
    assert stat.S_IMODE((sockets(db) / "a").stat().st_mode) == mode


async def test_a_directory_that_a_stranger_made_is_not_used(
    join: Join, db: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (db.parent / "elsewhere").mkdir()
    sockets(db).symlink_to(db.parent / "elsewhere")
    assert not join("a").called
    assert "stranger" in caplog.text
    assert os.listdir(db.parent / "elsewhere") == []


def test_whose_directory_it_may_be(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(sockets(db))
    beside.make_directory(place, str(db))
    assert beside.is_trusted(place, str(db))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    owner = os.stat(db).st_uid
    if owner != 0:
        assert beside.is_trusted(place, str(db))  # the owner of the file made it
        return
    os.chown(place, 54321, os.stat(db).st_gid)
    assert not beside.is_trusted(place, str(db))
    db.chmod(0o660)
    assert beside.is_trusted(place, str(db))  # one of the group may have been first
    os.chown(place, 54321, 54321)
    assert not beside.is_trusted(place, str(db))


# --- forks -----------------------------------------------------------------------------------------


async def test_a_forked_child_does_not_keep_its_parent_alive(join: Join, db: Path) -> None:
    one, two = join("a"), join("b")
    await until(lambda: one.knows == ["b"] and two.knows == ["a"])
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        theirs.send(b"!")
        theirs.recv(1)  # until the parent is done with it
        os._exit(0)
    theirs.close()
    ours.recv(1)
    try:
        two.peers._loop.remove_reader(two.peers._socket)  # type: ignore[arg-type]
        two.peers.let_go()  # as if it were killed
        assert one.peers.sweep()
        assert not (sockets(db) / "b").exists()
    finally:
        ours.close()
        os.waitpid(child, 0)  # noqa: ASYNC222 (it ends at once)
