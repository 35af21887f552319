"""What processes that stay have in common: how they are told to stop, their log, their event loop."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final, TextIO

import typer

from perdure.cli import exits
from perdure.cli.showing import plain
from perdure.observing.logs import dress

# Set for a process whose parent holds its standard input: when that ends, so does the parent, however it ended.
LIFELINE_VARIABLE: Final = "PERDURE_LIFELINE"
_levels: Final = ("debug", "info", "warning", "error")


class Stop:
    """Told by a signal that it is time to go. The second signal ends the process at once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> None:
        await self.event.wait()

    def tell(self, number: int) -> None:
        if self.event.is_set():
            os._exit(exits.SIGNALLED + number)
        self.event.set()

    @classmethod
    @contextlib.contextmanager
    def on_signals(cls) -> Iterator["Stop"]:
        """One that hears SIGTERM and Ctrl-C, and the end of the process that holds us by a lifeline."""
        stop = cls()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.tell, number)
        holds = is_held()
        if holds:
            loop.add_reader(sys.stdin.fileno(), _let_go, loop, stop)
        try:
            yield stop
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            if holds:
                loop.remove_reader(sys.stdin.fileno())


def _let_go(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        loop.remove_reader(sys.stdin.fileno())
        stop.event.set()


def is_held() -> bool:
    """Whether a process that starts us anew holds us by a lifeline."""
    return bool(os.environ.get(LIFELINE_VARIABLE))


# --- log ---


class _Lines(logging.StreamHandler[TextIO]):
    """To the standard error, which may be a terminal: what others have sent does not reach it as it stands."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def set_up_logging(level: str, *, as_json: bool) -> None:
    """The log of this process, to the standard error."""
    if level.lower() not in _levels:
        raise typer.BadParameter(
            f"{level!r} is none of {', '.join(_levels)}", param_hint="--log-level"
        )
    handler = _Lines()
    dress(handler, as_json=as_json)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level.lower() != "debug":
        # Each start and stop of it is told by us.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def hush_logging() -> None:
    """Of a command that answers and ends: what is wrong it says itself, so that the log would say it twice."""
    handler = _Lines()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    handler.setLevel(logging.ERROR)
    logging.lastResort = (
        handler  # for as long as nobody, an app of the user for one, sets up another
    )


# --- loop ---


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The quicker event loop, if it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
