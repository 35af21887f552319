"""How is each customer doing? A score, kept up to date from the ledger: `python examples/customer_health.py`.

Invoices, mails and orders are told by systems that know nothing of scores. A reader adds up what each event is worth,
every five minutes, and tells `customer.health_changed` when a score moves.

- `dedupe=True`: the mail gateway reports a bounce twice, under one `idempotency_key`; it counts once.
- The handler may be called again with events it has seen (its process died before the cursor was committed). So a score
  is stored for each event, computed from the one before: seen again, it comes out the same. What it emits is committed
  with the cursor, and so happens once.
- A rewind reads again, but for keys that are remembered. To build the scores anew, as after a change of `WORTH`, empty
  the table and fire everything anew: `app.replay(…, only_if_no_run=False)`.
"""

import asyncio
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from perdure import App, Batch, Event, Topic
from perdure.testing import World


@dataclass
class HealthChanged:
    before: int
    after: int


health_changed = Topic("customer.health_changed", HealthChanged)

BEGIN = 70
WORTH = {
    "ar.collection_sent": -10,
    "email.bounced": -5,
    "email.replied": 5,
    "order.placed": 8,
    "order.returned": -8,
}


class Scores:
    """The score of each customer after each event about it, in a table of our own."""

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(
            "create table if not exists scores"
            " (customer text, position integer, score integer, primary key (customer, position))"
        )

    def move(self, customer: str, position: int, worth: int) -> tuple[int, int]:
        """The score before and after an event; the same however often it is asked."""
        before = self._before(customer, position)
        after = max(0, min(100, before + worth))
        self._db.execute("replace into scores values (?, ?, ?)", (customer, position, after))
        return before, after

    def _before(self, customer: str, position: int) -> int:
        row = self._db.execute(
            "select score from scores where customer = ? and position < ?"
            " order by position desc limit 1",
            (customer, position),
        ).fetchone()
        return BEGIN if row is None else int(row[0])

    def all(self) -> dict[str, int]:
        # SQLite gives the other columns of the row that has the maximum.
        rows = self._db.execute(
            "select customer, score, max(position) from scores group by customer"
        )
        return {customer: score for customer, score, _ in rows}

    def forget(self) -> None:
        self._db.execute("delete from scores")

    def close(self) -> None:
        self._db.close()


app = App("sqlite:///customer_health.db")


@app.consumer("customer_health", "ar.*", "email.*", "order.*", every="*/5 * * * *", dedupe=True)
async def watch(batch: Batch) -> None:
    scores = batch.dep(Scores)
    for event in batch:
        if event.entity is None:
            continue
        before, after = scores.move(event.entity, event.position, worth(event))
        if before != after and not batch.replay:  # whoever builds the scores anew tells nobody
            changed = HealthChanged(before, after)
            batch.emit(health_changed, changed, entity=event.entity, key=event.event_id)


def worth(event: Event) -> int:
    if event.type == "ar.bucket_moved":  # ten days more overdue: one point less
        return int(event.payload["from"] - event.payload["to"]) // 10
    return WORTH.get(event.type, 0)


async def rebuild(app: App, scores: Scores) -> None:
    """All scores from the beginning of the ledger."""
    scores.forget()
    await app.replay("customer_health", dry_run=False, only_if_no_run=False)


# --- the story ------------------------------------------------------------------------------------

STORY = [
    ("order.placed", {"total": 120}, "customer/ada"),
    ("ar.bucket_moved", {"from": 0, "to": 60}, "customer/bob"),
    ("email.bounced", {"idempotency_key": "mail-7"}, "customer/bob"),
    ("email.bounced", {"idempotency_key": "mail-7"}, "customer/bob"),
    ("ar.collection_sent", {"level": 1}, "customer/bob"),
    ("email.replied", {"idempotency_key": "mail-8"}, "customer/ada"),
    ("order.returned", {"total": 120}, "customer/ada"),
    ("stock.counted", {"sku": 7}, "sku/7"),
]


async def main() -> None:
    for old in Path.cwd().glob("customer_health*.db*"):  # of the last time
        old.unlink()
    scores = Scores("customer_health_scores.db")
    async with World(
        app, app.url, deps=[scores]
    ) as world:  # virtual time: nobody waits five minutes
        for topic, payload, customer in STORY:
            await world.app.emit(topic, payload, entity=customer)
            await world.advance("5m")
        for event in await world.app.events(health_changed):
            moved = health_changed.read(event)
            print(f"{event.recorded_at:%H:%M}  {event.entity}  {moved.before} -> {moved.after}")
        print("scores: ", scores.all())
        await rebuild(world.app, scores)
        print("rebuilt:", scores.all())
    scores.close()


if __name__ == "__main__":
    asyncio.run(main())
