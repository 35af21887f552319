"""Waiting for what another thread does soon."""

import time
from collections.abc import Callable


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit, "it never came to that"
        time.sleep(0.001)
