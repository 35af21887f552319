"""The process that outlives a test run, to end the servers of it.

Started with a pipe as its standard input, whose other end only the run holds, and with the directories of the run. The
pipe ends when the run closes it or dies, by whatever signal: then every server that has a pid file in the first
directory is ended, and the directories are removed. A script of its own that imports nothing of ours, in a session of
its own, so that neither Ctrl-C nor a kill of the run's process group reaches it.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

# A fast shutdown takes a tenth of a second; whoever is still there after this has hung.
patience_s = 5.0


def alive(pid: int) -> bool:
    """Whether this process runs. A zombie does not: it only waits for a parent that may never ask for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # The state follows the name, which stands in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self/stat").exists()


def wait_for(holds: Callable[[], bool], patience_s: float = patience_s) -> bool:
    """Wait until it holds; False when patience ended first."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def end(pid: int) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            # Our servers lead their process group. Whoever does not has been given the number of a dead server.
            if os.getpgid(pid) != pid:
                return
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if wait_for(lambda: not alive(pid)):
            return


def remove(path: Path) -> bool:
    """Remove the directory, again and again while a dying server still writes into it."""

    def removed() -> bool:
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()

    return wait_for(removed)


def main(*paths: Path) -> bool:
    sys.stdin.buffer.read()
    for file in paths[0].glob("*.pid"):
        end(int(file.read_text()))
    return all([remove(path) for path in paths])


if __name__ == "__main__":
    sys.exit(not main(*map(Path, sys.argv[1:])))
