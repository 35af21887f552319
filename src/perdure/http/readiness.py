"""Whether work gets done here: what `/health/ready` answers, to whoever asks, and that is strangers too.

To know it takes some reads of the store. So it is looked at once for all who ask within a second, and for no longer
than a bound: one who asks again and again costs no more than one who asks now and then. Where the store is nobody is
told.
"""

import asyncio
import logging
from typing import Final

from perdure.app import App
from perdure.errors import PerdureError, StoreRefused
from perdure.http import wire
from perdure.model import limits

log = logging.getLogger("perdure.http")

_fresh_s: Final = 1.0


class Readiness:
    """What is known of it, and for how long."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: wire.Ready | None = None
        self._known_s = 0.0
        self._looking: asyncio.Task[wire.Ready] | None = None

    async def look(self) -> wire.Ready:
        """As it is now, or was a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if self._known is not None and now_s - self._known_s < _fresh_s:
            return self._known
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="perdure-http-ready")
        # Who no longer wants to know must not keep the others from it.
        return await asyncio.shield(self._looking)

    async def _look(self) -> wire.Ready:
        self._known = await _ready(self._app)
        self._known_s = asyncio.get_running_loop().time()
        return self._known


async def _ready(app: App) -> wire.Ready:
    """The store answers, and nothing stalls."""
    try:
        async with asyncio.timeout(limits.http_ready_s):
            health = await app.health()
    except TimeoutError:
        return wire.Ready(status="degraded", reasons=["the store does not answer"])
    except StoreRefused as refused:
        log.warning("not ready: %s", refused)
        return wire.Ready(status="degraded", reasons=["the store does not answer"])
    except PerdureError as error:
        return wire.Ready(status="degraded", reasons=[str(error)])
    return wire.Ready(status=health.status, reasons=health.reasons)
