"""Consumers, subscriptions, parked events and deferred starts: few, so they are written at once.

None of them waits for the flush, and none is remembered: whoever asks reads the file, inside the transaction.
"""

from msgspec.structs import asdict

from perdure.model.records import (
    ConsumerRecord,
    DeferredRecord,
    ParkedRecord,
    SubscriptionRecord,
)
from perdure.store.decoding import (
    decode_consumers,
    decode_deferred,
    decode_parked,
    decode_subscriptions,
)
from perdure.store.sqlite.loading import LoadedRows


class ReaderRows(LoadedRows):
    """Who reads the ledger, by which rules, and what it could not deal with."""

    def consumer(self, name: str) -> ConsumerRecord | None:
        found = self._read(decode_consumers, "consumer", name=name)
        return found[0] if found else None

    def consumers(self) -> list[ConsumerRecord]:
        return self._read(decode_consumers, "consumers")

    def put_consumer(self, consumer: ConsumerRecord) -> None:
        self._sql.run("put_consumer", asdict(consumer))

    def delete_consumer(self, name: str) -> None:
        self._sql.run("delete_consumer", {"name": name})
        self._sql.run("delete_parked_of", {"name": name})

    def subscription(self, name: str) -> SubscriptionRecord | None:
        found = self._read(decode_subscriptions, "subscription", name=name)
        return found[0] if found else None

    def put_subscription(self, subscription: SubscriptionRecord) -> None:
        self._sql.run("put_subscription", asdict(subscription))

    def delete_subscription(self, name: str) -> None:
        self._sql.run("delete_subscription", {"name": name})
        self._sql.run("delete_deferred_of", {"name": name})

    def parked(self, consumer: str, position: int, subscription: str) -> ParkedRecord | None:
        at = {"consumer": consumer, "position": position, "subscription": subscription}
        found = self._read(decode_parked, "parked_event", **at)
        return found[0] if found else None

    def put_parked(self, parked: ParkedRecord) -> None:
        self._sql.run("put_parked", asdict(parked))

    def delete_parked(self, parked: ParkedRecord) -> None:
        at = ("consumer", "position", "subscription")
        self._sql.run("delete_parked", {name: getattr(parked, name) for name in at})

    def deferred(self, position: int, subscription: str) -> DeferredRecord | None:
        at = {"position": position, "subscription": subscription}
        found = self._read(decode_deferred, "deferred_start", **at)
        return found[0] if found else None

    def put_deferred(self, deferred: DeferredRecord) -> None:
        self._sql.run("put_deferred", asdict(deferred))

    def delete_deferred(self, deferred: DeferredRecord) -> None:
        at = {"position": deferred.position, "subscription": deferred.subscription}
        self._sql.run("delete_deferred", at)
