"""A process that is started anew whenever a Python file changes: for `perdure dev`.

The child holds our end of a pipe as its standard input, so it goes when we go, however that comes about. One that fails
by its code (a mistake in it) is left alone until the next change; what no change of a file mends (a port in use, a
store that cannot be opened) ends us too, with its code.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from watchfiles import PythonFilter, awatch

from perdure.cli import exits
from perdure.cli.processes import LIFELINE_VARIABLE, Stop
from perdure.model.duration import parse_duration

# For all that is to be done beside waiting for steps. Then it is killed, with those that nobody can stop.
_closing_s: Final = 5
# After so long somebody at the terminal wonders.
_quiet_s: Final = 1.0
_beyond_code: Final = frozenset({exits.USAGE, exits.OUT_OF_REACH})


class Reloader:
    """Keeps one child going."""

    def __init__(self, line: Sequence[str], note: Callable[[str], None], grace: str) -> None:
        self._patience_s = parse_duration(grace) / 1_000_000 + _closing_s
        self._line = line
        self._note = note

    async def run(self, paths: Sequence[Path], stop: Stop) -> int:
        """Until we are to stop, or the child has ended for what no change mends; gives what to end with."""
        child = await self._start()
        telling = asyncio.ensure_future(self._tell_end(child, stop))
        try:
            async for changes in awatch(
                *paths, watch_filter=PythonFilter(), stop_event=stop.event, recursive=True
            ):
                self._note(f"perdure: changed {_names(changes)}: starting anew")
                telling.cancel()
                await self._end(child)
                child = await self._start()
                telling = asyncio.ensure_future(self._tell_end(child, stop))
        finally:
            telling.cancel()
            await self._end(child)
        return child.returncode if child.returncode in _beyond_code else exits.OK

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._line,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, LIFELINE_VARIABLE: "1"},
            # Ctrl-C is for us: the child is told by us, once.
            start_new_session=True,
        )

    async def _tell_end(self, child: asyncio.subprocess.Process, stop: Stop) -> None:
        code = await child.wait()
        if code in _beyond_code:
            stop.event.set()  # it has said why
        else:
            self._note(f"perdure: it has ended with {code}; waiting for a change")

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        """In order if it can, else at once."""
        if child.returncode is None:
            child.terminate()
        ending = asyncio.ensure_future(child.wait())
        await asyncio.wait((ending,), timeout=_quiet_s)
        if not ending.done():
            self._note(
                f"perdure: waiting for steps in flight to end, {self._patience_s:g} s at most; then they begin again"
            )
            await asyncio.wait((ending,), timeout=self._patience_s - _quiet_s)
        if not ending.done():
            child.kill()
        await ending


def _names(changes: set[tuple[Any, str]]) -> str:
    return ", ".join(sorted({os.path.relpath(path) for _, path in changes}))
