"""Hints from other processes: whom they concern in this one.

A store that can tell other processes what it has committed passes it to us as wakes. Such a wake is only a reason to
look: it may be lost, doubled or late, and it brings no results along. Whoever hears one asks the store, as it would
have done a little later by itself.
"""

from perdure.coordinator.coordinator import Coordinator
from perdure.model.outcomes import Wake
from perdure.observing.observation import Observation
from perdure.runtime.worker import Worker
from perdure.store.base import Store
from perdure.upkeep import Upkeep


class Hints:
    """Passes what a store has heard to the parts of an open app."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        worker: Worker | None,
        upkeep: Upkeep,
        observed: Observation | None = None,
    ) -> None:
        self._counts = None if observed is None else observed.counts
        self._store = store
        self._coordinator = coordinator
        self._worker = worker
        self._upkeep = upkeep

    def open(self) -> None:
        self._store.on_hint = self._hear

    def close(self) -> None:
        self._store.on_hint = None

    def _hear(self, wake: Wake) -> None:
        if self._counts is not None:
            self._counts.hints.add(wake.kind)
        match wake.kind:
            case "news" | "control":
                self._call(wake)
            case "ended":
                self._call(wake)
                self._coordinator.hub.rouse("ended", wake.run_id)
                self._upkeep.on_ended(wake.run_id)
            case "events":
                self._store.head = max(self._store.head, wake.at)
                for hear in self._coordinator.on_batch:
                    hear()
            case "look":
                self._upkeep.look()
                self._coordinator.hub.rouse_all()
                if self._worker is not None:
                    self._worker.recovery.look_soon()
            case _:
                self._coordinator.hub.pass_on(wake)

    def _call(self, wake: Wake) -> None:
        if self._worker is not None:
            self._worker.on_call(wake)
