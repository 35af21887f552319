"""A process that is started anew whenever a Python file changes: for `perdure dev`.

The child holds our end of a pipe as its standard input, so it goes when we go, however that comes about. One that fails
by itself (a mistake in the code) is left alone until the next change.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from watchfiles import PythonFilter, awatch

from perdure.cli.processes import LIFELINE_VARIABLE, Stop
from perdure.model.duration import parse_duration

# For all that is to be done beside waiting for steps. Then it is killed, with those that nobody can stop.
_closing_s: Final = 5


class Reloader:
    """Keeps one child going."""

    def __init__(self, line: Sequence[str], note: Callable[[str], None], grace: str) -> None:
        self._patience_s = parse_duration(grace) / 1_000_000 + _closing_s
        self._line = line
        self._note = note

    async def run(self, paths: Sequence[Path], stop: Stop) -> None:
        """Until we are to stop."""
        child = await self._start()
        telling = asyncio.ensure_future(self._tell_end(child))
        try:
            async for changes in awatch(
                *paths, watch_filter=PythonFilter(), stop_event=stop.event, recursive=True
            ):
                self._note(f"perdure: changed {_names(changes)}: starting anew")
                telling.cancel()
                await _end(child, self._patience_s)
                child = await self._start()
                telling = asyncio.ensure_future(self._tell_end(child))
        finally:
            telling.cancel()
            await _end(child, self._patience_s)

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._line,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, LIFELINE_VARIABLE: "1"},
            # Ctrl-C is for us: the child is told by us, once.
            start_new_session=True,
        )

    async def _tell_end(self, child: asyncio.subprocess.Process) -> None:
        code = await child.wait()
        self._note(f"perdure: it has ended with {code}; waiting for a change")


def _names(changes: set[tuple[Any, str]]) -> str:
    return ", ".join(sorted({os.path.relpath(path) for _, path in changes}))


async def _end(child: asyncio.subprocess.Process, patience_s: float) -> None:
    """In order if it can, else at once."""
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(patience_s):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
