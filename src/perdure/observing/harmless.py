"""Watching must not fail what is watched: whatever an exporter or a processor of somebody else raises ends here."""

import functools
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("perdure.app")

_told: Final[set[str]] = set()


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """The same function, but for errors: they are logged, the first of each place, and it gives None."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            name = function.__qualname__
            if name not in _told:
                _told.add(name)
                log.exception("%s failed: something is not seen; what follows is not told", name)
            return None

    return guarded
