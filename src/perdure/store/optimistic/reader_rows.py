"""Consumers, subscriptions, parked events and deferred starts: few, read anew for each batch that asks.

Each consumer is a unit, with what it has parked; so is each subscription; all deferred starts are one.
"""

from perdure.model.records import ConsumerRecord, DeferredRecord, ParkedRecord, SubscriptionRecord
from perdure.store.optimistic.known import LEDGER
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt

_deferred = ("deferred", "")


class ReaderRows(LookedAt):
    """Who reads the ledger, by which rules, and what it could not deal with."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._consumers: dict[str, ConsumerRecord | None] = {}
        self._subscriptions: dict[str, SubscriptionRecord | None] = {}
        self._dropped_consumers: dict[str, None] = {}  # also those that have come back since
        self._dropped_subscriptions: dict[str, None] = {}
        self._parked: dict[tuple[str, int, str], ParkedRecord | None] = {}
        self._deferred: dict[tuple[int, str], DeferredRecord | None] = {}

    # --- consumers ---

    def consumer(self, name: str) -> ConsumerRecord | None:
        self._rest_on(("consumer", name))
        if name in self._consumers:
            return self._consumers[name]
        found: ConsumerRecord | None = self._answer("consumer", name)
        return found

    def consumers(self) -> list[ConsumerRecord]:
        # Only retention asks, which those who begin to read or are moved see by the ledger's own version.
        self._rest_on(LEDGER, bump=True)
        rows = {one.name: one for one in self._answer("consumers")}
        for name, one in self._consumers.items():
            if one is None:
                rows.pop(name, None)
            else:
                rows[name] = one
        return [rows[name] for name in sorted(rows)]

    def put_consumer(self, consumer: ConsumerRecord) -> None:
        self._rest_on(("consumer", consumer.name), bump=True)
        self._consumers[consumer.name] = consumer

    def delete_consumer(self, name: str) -> None:
        self._rest_on(("consumer", name), bump=True)
        self._consumers[name] = None
        self._dropped_consumers[name] = None
        for at in [at for at in self._parked if at[0] == name]:
            del self._parked[at]

    # --- subscriptions ---

    def subscription(self, name: str) -> SubscriptionRecord | None:
        self._rest_on(("subscription", name))
        if name in self._subscriptions:
            return self._subscriptions[name]
        found: SubscriptionRecord | None = self._answer("subscription", name)
        return found

    def put_subscription(self, subscription: SubscriptionRecord) -> None:
        self._rest_on(("subscription", subscription.name), bump=True)
        self._subscriptions[subscription.name] = subscription

    def delete_subscription(self, name: str) -> None:
        self._rest_on(("subscription", name), bump=True)
        self._rest_on(_deferred, bump=True)
        self._subscriptions[name] = None
        self._dropped_subscriptions[name] = None
        for at in [at for at in self._deferred if at[1] == name]:
            del self._deferred[at]

    # --- parked ---

    def parked(self, consumer: str, position: int, subscription: str) -> ParkedRecord | None:
        self._rest_on(("consumer", consumer))
        at = (consumer, position, subscription)
        if at in self._parked:
            return self._parked[at]
        if consumer in self._dropped_consumers:
            return None
        found: ParkedRecord | None = self._answer("parked", *at)
        return found

    def put_parked(self, parked: ParkedRecord) -> None:
        self._rest_on(("consumer", parked.consumer), bump=True)
        self._parked[parked.consumer, parked.position, parked.subscription] = parked

    def delete_parked(self, parked: ParkedRecord) -> None:
        self._rest_on(("consumer", parked.consumer), bump=True)
        self._parked[parked.consumer, parked.position, parked.subscription] = None

    # --- deferred ---

    def deferred(self, position: int, subscription: str) -> DeferredRecord | None:
        self._rest_on(_deferred)
        at = (position, subscription)
        if at in self._deferred:
            return self._deferred[at]
        if subscription in self._dropped_subscriptions:
            return None
        found: DeferredRecord | None = self._answer("deferred", *at)
        return found

    def put_deferred(self, deferred: DeferredRecord) -> None:
        self._rest_on(_deferred, bump=True)
        self._deferred[deferred.position, deferred.subscription] = deferred

    def delete_deferred(self, deferred: DeferredRecord) -> None:
        self._rest_on(_deferred, bump=True)
        self._deferred[deferred.position, deferred.subscription] = None

    # --- all of them ---

    def oldest_needed(self, idle_before: int) -> tuple[int, str] | None:
        if ("consumers",) in self.missing:
            # To be read after the cursors: what a consumer parks or puts off it passes in the same commit.
            return None
        stored: tuple[int, str] | None = self._answer("oldest_needed", idle_before)
        # What this batch takes away counts once more; only what it adds must not be missed.
        needed = [
            *((one.position, one.consumer) for one in self._parked.values() if one),
            *((one.position, one.subscription) for one in self._deferred.values() if one),
            *(
                (one.behind + 1, one.name)
                for one in self._subscriptions.values()
                if one and one.enabled and one.behind is not None
            ),
        ]
        return min([*needed, *([] if stored is None else [stored])], default=None)
