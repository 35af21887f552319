"""Sockets between the processes on one file: after a commit, one datagram to each of the others.

`<db>-peers/<name>` is the socket of an open store; its name is used once only. It is bound under another name and then
renamed, so that a socket which nobody listens at is known to be of the dead: whoever meets one removes it. A newcomer
greets everybody it finds, and who hears from somebody unknown has met it.

A send never waits. What a peer has no room for just now is kept and tried again, up to a bound of number and time; what
is lost all the same is found by looking. Where there are no such sockets (Windows, some file systems), there are no
peers. Belongs to one loop.
"""

import asyncio
import errno
import logging
import os
import re
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from perdure.model import limits
from perdure.store.hint import Hint, heard
from perdure.store.sqlite import beside

log = logging.getLogger("perdure.store.sqlite")

# A socket's address has 108 bytes on Linux, 104 elsewhere, and a zero at the end.
_address_bytes_max = 107 if sys.platform == "linux" else 103
_by_descriptor = "/proc/self/fd"
_unfinished = ".new"
# What anybody may claim to be called, before it becomes a part of a path.
_is_name = re.compile(r"[0-9A-Za-z_-]{1,64}").fullmatch
# So long a socket may stay under its first name before it is taken for a dead process's.
_unfinished_s = 60.0
# Hints that follow each other within this go as one: under load that is most of them.
_gather_s = 0.002
# What could not be sent is tried again, ever less often, and given up after a second.
_again_s = 0.005
_again_max_s = 0.1
_give_up_s = 1.0
_reads_at_once = 64
_full = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS)


class Peer:
    """Another open store on the file, and what it could not be told yet. Raises OSError where it is not there."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket = _new_socket()
        self._backlog: deque[bytes] = deque(maxlen=limits.peer_backlog_max)
        self._full_since: float | None = None
        try:
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise

    def tell(self, texts: list[bytes]) -> None:
        """Send these after what is kept. Raises OSError if it is dead."""
        self._backlog.extend(texts)
        try:
            while self._backlog:
                self._socket.send(self._backlog[0])
                self._backlog.popleft()
                self._full_since = None
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                self._backlog.clear()
            elif error.errno in _full:
                self._give_up_in_time()
            else:
                raise

    def _give_up_in_time(self) -> None:
        """One that stands still is not waited for: when it goes on, it looks."""
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > _give_up_s:
            self._backlog.clear()

    @property
    def lags(self) -> bool:
        return bool(self._backlog)

    def probe(self) -> None:
        """Raises OSError if nobody is there any more."""
        self._socket.connect(self._address)

    def close(self) -> None:
        self._socket.close()


class Peers:
    """Tells the other stores on this file, and hears them. `hear` is called in the loop."""

    def __init__(self, path: str, name: str, hear: Callable[[Hint], None]) -> None:
        self._path = path
        self._directory = f"{path}-peers"
        self._name = name
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._directory_fd: int | None = None
        self._socket: socket.socket | None = None
        self._peers: dict[str, Peer] = {}
        self._gathered: Hint | None = None
        self._told_at = 0.0
        self._soon: asyncio.TimerHandle | None = None  # to tell what is gathered
        self._again: asyncio.TimerHandle | None = None  # to tell those who had no room
        self._again_s = _again_s
        self._missed_one = False  # somebody has died or left, and `sweep` has not said so yet

    # --- life ---

    def open(self) -> bool:
        """Whether others can be told, and tell us; if not, it is logged why."""
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            return False
        _open_peers.add(self)
        try:
            self._bind()
        except (OSError, NotImplementedError) as error:
            log.warning(
                "processes on %s cannot tell each other what they do, and look for it four times a second: %s",
                self._path,
                error,
            )
            self.close()
            return False
        self.sweep()
        return True

    def _bind(self) -> None:
        for nth in range(1, 4):
            try:
                self._bind_once()
                return
            except FileNotFoundError:
                # The last one to leave has just removed the directory, and ours may be open.
                self._let_go_of_sockets()
                if nth == 3:
                    raise

    def _bind_once(self) -> None:
        beside.make_directory(self._directory, self._path)
        if not beside.is_trusted(self._directory, self._path):
            raise PermissionError(f"{self._directory} was made by a stranger")
        bound = _new_socket()
        try:
            bound.bind(self._address(self._name + _unfinished))
            first = self._file(self._name + _unfinished)
            beside.match(first, self._path)
            os.rename(first, self._file(self._name))
            self._loop.add_reader(bound, self._on_readable)
        except BaseException:
            bound.close()
            self._remove_own()
            raise
        self._socket = bound

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _remove_own(self) -> None:
        for name in (self._name, self._name + _unfinished):
            with suppress(OSError):
                os.unlink(self._file(name))

    def _address(self, name: str) -> str:
        """Where a socket is, in a form that is short enough. Raises OSError if there is none."""
        direct = self._file(name)
        if len(os.fsencode(direct)) <= _address_bytes_max:
            return direct
        if not os.path.isdir(_by_descriptor):
            raise OSError(errno.ENAMETOOLONG, "the path is too long for a socket", direct)
        if self._directory_fd is None:
            self._directory_fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        return f"{_by_descriptor}/{self._directory_fd}/{name}"

    def close(self) -> None:
        """Tell what is left to tell, and be gone. Idempotent."""
        self._flush()
        _open_peers.discard(self)
        for timer in (self._soon, self._again):
            if timer is not None:
                timer.cancel()
        self._soon = self._again = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._remove_own()
        self.let_go()
        with suppress(OSError):  # it is not there, or others still live in it
            os.rmdir(self._directory)

    def let_go(self) -> None:
        """Close everything and remove nothing: in a forked child, where these are copies of its parent's."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._let_go_of_sockets()

    def _let_go_of_sockets(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._directory_fd is not None:
            os.close(self._directory_fd)
            self._directory_fd = None

    # --- who is there ---

    def sweep(self) -> bool:
        """Meet who has come, and bury who has died; whether anybody has since the last time."""
        if self._socket is None:
            return False
        try:
            names = self._names()
            if self._name not in names:
                self._rebind()
        except OSError:
            log.debug("the sockets beside %s", self._path, exc_info=True)
            return False
        for name in names:
            if name.endswith(_unfinished):
                self._remove_if_old(name)
            elif name != self._name:
                self._meet(name)
        self._bury_the_dead()
        missed, self._missed_one = self._missed_one, False
        return missed

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []

    def _rebind(self) -> None:
        """Somebody has cleaned up too much: be there again, under the same name."""
        assert self._socket is not None
        self._loop.remove_reader(self._socket)
        self._let_go_of_sockets()
        self._bind()

    def _remove_if_old(self, name: str) -> None:
        path = self._file(name)
        with suppress(OSError):
            # The clock of the file system, so not the injected one.
            if time.time() - os.stat(path).st_mtime > _unfinished_s:
                os.unlink(path)

    def _meet(self, name: str) -> None:
        """Know somebody from now on, and greet."""
        if name in self._peers or len(self._peers) >= limits.peers_max:
            return
        if not _is_name(name):
            return
        try:
            peer = Peer(self._address(name))
        except OSError as error:
            self._remove_if_dead(name, error)
            return
        self._peers[name] = peer
        self._tell(name, peer, Hint(self._name).texts())

    def _remove_if_dead(self, name: str, error: OSError) -> None:
        if error.errno == errno.ECONNREFUSED:
            with suppress(OSError):
                os.unlink(self._file(name))

    def _bury_the_dead(self) -> None:
        for name, peer in list(self._peers.items()):
            try:
                peer.probe()
            except OSError as error:
                self._part(name, error)

    def _part(self, name: str, error: OSError) -> None:
        self._missed_one = True
        self._peers.pop(name).close()
        self._remove_if_dead(name, error)

    # --- telling ---

    @property
    def anybody(self) -> bool:
        return bool(self._peers)

    def gathering(self) -> Hint:
        """What is told next: to be added to, before `told_soon`."""
        if self._gathered is None:
            self._gathered = Hint(self._name)
        return self._gathered

    def told_soon(self) -> None:
        """Send what was gathered: at once, or together with what comes within two milliseconds of the last."""
        wait_s = self._told_at + _gather_s - self._loop.time()
        if wait_s <= 0:
            self._flush()
        elif self._soon is None:
            self._soon = self._loop.call_later(wait_s, self._flush)

    def _flush(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        hint, self._gathered = self._gathered, None
        self._told_at = self._loop.time()
        texts = [] if hint is None else hint.texts()
        for name, peer in list(self._peers.items()):
            self._tell(name, peer, texts)
        self._try_again_if_needed()

    def _tell_again(self) -> None:
        self._again = None
        for name, peer in list(self._peers.items()):
            self._tell(name, peer, [])
        self._try_again_if_needed()

    def _tell(self, name: str, peer: Peer, texts: list[bytes]) -> None:
        try:
            peer.tell(texts)
        except OSError as error:
            self._part(name, error)

    def _try_again_if_needed(self) -> None:
        if not any(peer.lags for peer in self._peers.values()):
            self._again_s = _again_s
        elif self._again is None and self._socket is not None:
            self._again = self._loop.call_later(self._again_s, self._tell_again)
            self._again_s = min(2 * self._again_s, _again_max_s)

    # --- hearing ---

    def _on_readable(self) -> None:
        for _ in range(_reads_at_once):
            if self._socket is None:
                return
            try:
                text = self._socket.recv(limits.hint_bytes_max + 1)
            except OSError:
                return
            hint = heard(text)
            if hint is not None and hint.sender != self._name:
                self._meet(hint.sender)
                self._hear(hint)


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    if sys.platform != "linux":
        # A Mac takes datagrams of 2 kB unless it is told otherwise.
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            made.setsockopt(socket.SOL_SOCKET, option, 16 * limits.hint_bytes_max)
    return made


_open_peers: "weakref.WeakSet[Peers]" = weakref.WeakSet()


def _after_fork() -> None:
    for peers in list(_open_peers):
        peers.let_go()
    _open_peers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
