"""What the gauges of an open app say: of this process at once, of the store by asking how it is.

See observing/gauges.py for who asks, and how often.
"""

import functools

from perdure.coordinator.coordinator import Coordinator
from perdure.ledger.consumers import Consumers
from perdure.ledger.health import measure
from perdure.model.clock import Clock
from perdure.observing import metrics
from perdure.observing.gauges import Gauges, Reading
from perdure.runtime.worker import Worker
from perdure.store.base import Store


def gauges_of(
    store: Store,
    coordinator: Coordinator,
    clock: Clock,
    worker: Worker | None,
    consumers: Consumers | None,
) -> Gauges:
    here = functools.partial(_here, store, coordinator, worker)
    return Gauges(here, functools.partial(_asked, store, clock, consumers))


def _here(store: Store, coordinator: Coordinator, worker: Worker | None) -> Reading:
    reading: Reading = [
        (metrics.QUEUE_OPS, (), coordinator.queued),
        (metrics.LEDGER_POSITION, (), store.head),
    ]
    if worker is not None:
        reading.append((metrics.RUNS_RESIDENT, (), worker.resident_runs))
        reading.append((metrics.RUNS_ACTIVE, (), worker.active_runs))
    return reading


async def _asked(store: Store, clock: Clock, consumers: Consumers | None) -> Reading:
    position_of = (lambda name: None) if consumers is None else consumers.position
    health = await measure(store, clock.now(), position_of)
    return [
        (metrics.PARKED, (), health.parked),
        (metrics.DEFERRED, (), health.deferred),
        (metrics.DEAD_LETTERS, (), health.dead_letters),
        (metrics.TIMERS_DUE, (), health.timers_due),
        (metrics.OLDEST_READY, (), health.oldest_ready_s or 0),
        *((metrics.CONSUMER_LAG, (one.name,), one.lag) for one in health.consumers),
        *((metrics.CONSUMER_BEHIND, (one.name,), one.behind_s) for one in health.consumers),
        *((metrics.IN_LINE, (pool,), waited_s) for pool, waited_s in health.in_line_s.items()),
    ]
