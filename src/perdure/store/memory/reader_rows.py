"""Consumers, subscriptions, parked events and deferred starts."""

from perdure.model.records import ConsumerRecord, DeferredRecord, ParkedRecord, SubscriptionRecord
from perdure.store.memory.rows import KeptRows


class ReaderRows(KeptRows):
    """Who reads the ledger, by which rules, and what it could not deal with."""

    def consumer(self, name: str) -> ConsumerRecord | None:
        return self.consumers_by_name.get(name)

    def consumers(self) -> list[ConsumerRecord]:
        return [self.consumers_by_name[name] for name in sorted(self.consumers_by_name)]

    def put_consumer(self, consumer: ConsumerRecord) -> None:
        self.consumers_by_name[consumer.name] = consumer

    def delete_consumer(self, name: str) -> None:
        self.consumers_by_name.pop(name, None)
        self.parked_events = {at: one for at, one in self.parked_events.items() if at[0] != name}

    def subscription(self, name: str) -> SubscriptionRecord | None:
        return self.subscriptions.get(name)

    def put_subscription(self, subscription: SubscriptionRecord) -> None:
        self.subscriptions[subscription.name] = subscription

    def delete_subscription(self, name: str) -> None:
        self.subscriptions.pop(name, None)
        self.deferred_starts = {
            at: one for at, one in self.deferred_starts.items() if one.subscription != name
        }

    def parked(self, consumer: str, position: int, subscription: str) -> ParkedRecord | None:
        return self.parked_events.get((consumer, position, subscription))

    def put_parked(self, parked: ParkedRecord) -> None:
        self.parked_events[parked.consumer, parked.position, parked.subscription] = parked

    def delete_parked(self, parked: ParkedRecord) -> None:
        self.parked_events.pop((parked.consumer, parked.position, parked.subscription), None)

    def deferred(self, position: int, subscription: str) -> DeferredRecord | None:
        return self.deferred_starts.get((position, subscription))

    def put_deferred(self, deferred: DeferredRecord) -> None:
        self.deferred_starts[deferred.position, deferred.subscription] = deferred

    def delete_deferred(self, deferred: DeferredRecord) -> None:
        self.deferred_starts.pop((deferred.position, deferred.subscription), None)
