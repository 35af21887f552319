"""A business that does not exist: what it writes in a month, from a seed, and the people who decide.

The plan is made before anything happens, so that a test knows what must come of it. Most of it is chance; what the
readers should find is planted.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure import App, Fact
from perdure.testing import World

from . import topics
from .workflows import verdict

CUSTOMERS = [f"customer/{n}" for n in range(1, 9)]
ITEMS = [f"item/{n}" for n in range(1, 13)]
BOUNCING, SILENT = "customer/4", "customer/6"  # nothing else is mailed to these two
ON_HOLIDAY = "item/3"  # whose reviews nobody answers


@dataclass
class Task:
    """At a moment the business tells a fact; without one, the pricing desk looks at what waits for it."""

    at: datetime
    fact: Fact | None = None


def plan(begin: datetime, days: int, seed: int) -> list[Task]:
    """Everything that the business will do, in order."""
    chance = random.Random(seed)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    tasks = [
        task
        for day in range(days)
        for task in _day(chance, day, midnight + timedelta(days=day), begin)
    ]
    return sorted((one for one in tasks if one.at > begin), key=lambda one: one.at)


def _day(chance: random.Random, day: int, midnight: datetime, begin: datetime) -> Iterator[Task]:
    def at(hours: float) -> datetime:
        return midnight + timedelta(hours=hours)

    for hours in (11, 16):
        yield Task(at(hours))
    for tier, hours in (("hot", 6), ("hot", 18), ("warm", 3), *((("cold", 2),) * (day % 7 == 6))):
        done = topics.TierCompleted(tier, chance.randrange(10_000))  # type: ignore[arg-type]
        yield Task(
            at(hours), Fact(topic=topics.tier_completed, payload=done, entity=f"sync/{tier}")
        )
    for _ in range(6):
        moment = at(chance.uniform(8.2, 18.8))
        late = timedelta(hours=chance.randrange(1, 60)) if chance.random() < 0.2 else timedelta()
        yield Task(moment, _by_chance(chance, max(begin, moment - late)))
    yield from _planted(day, at)


def _by_chance(chance: random.Random, occurred_at: datetime) -> Fact:
    """One of everything that may happen; what is found out late says when it happened."""
    customer = chance.choice([one for one in CUSTOMERS if one not in (BOUNCING, SILENT)])
    item, price = chance.choice(ITEMS), chance.randrange(100, 900)
    mail = topics.Mail(f"{chance.getrandbits(32):08x}")
    line = topics.LineChanged(chance.randrange(1, 20), price, price + chance.randrange(-50, 50))
    cost = topics.CostChanged(item.split("/")[1], price, int(price * chance.uniform(0.9, 1.28)))
    happened: list[tuple[Any, Any, str]] = [
        (topics.email_parsed, mail, customer),
        (topics.email_replied, mail, customer),
        (topics.bucket_moved, topics.BucketMoved(*chance.sample([0, 30, 60, 90], 2)), customer),
        (topics.customer_updated, topics.CustomerUpdated("address"), customer),
        (topics.order_placed, topics.OrderPlaced(price), customer),
        (topics.bid_line_changed, line, f"bid/{chance.randrange(5)}"),
        (topics.quote_line_changed, line, f"quote/{chance.randrange(5)}"),
        (topics.cost_changed, cost, f"vendor/{chance.randrange(3)}"),
        (topics.item_created, topics.ItemCreated("a new item"), item),
        (topics.spec_updated, topics.SpecUpdated(chance.randrange(9)), item),
    ]
    topic, payload, entity = chance.choice(happened)
    return Fact(topic=topic, payload=payload, entity=entity, occurred_at=occurred_at)


def _planted(day: int, at: Any) -> Iterator[Task]:
    """What the readers should find."""

    def tell(hours: float, topic: Any, payload: Any, entity: str) -> Task:
        return Task(at(hours), Fact(topic=topic, payload=payload, entity=entity))

    match day:
        case 1 | 11 | 18:  # three steep rises: each is rejected, and that is a lesson
            yield tell(9.5, topics.price_changed, topics.PriceChanged(100, 150), "item/1")
        case 4 | 19:  # a modest one, and one whose reviewer is away
            yield tell(9.5, topics.price_changed, topics.PriceChanged(100, 115), "item/2")
            yield tell(9.6, topics.price_changed, topics.PriceChanged(100, 115), ON_HOLIDAY)
        case 6:  # a storm: twelve small changes in twelve minutes
            for minute in range(1, 13):
                change = topics.PriceChanged(100 + minute, 101 + minute)
                yield tell(12 + minute / 60, topics.price_changed, change, f"item/{minute}")
        case 2:  # three bounces in a row
            for nth in range(3):
                mail = topics.Mail(f"bounce-{nth}")
                yield tell(10 + nth / 10, topics.email_bounced, mail, BOUNCING)
        case 9:  # two reminders: one is answered, one is not
            sent = topics.CollectionSent(1)
            yield tell(10, topics.collection_sent, sent, SILENT)
            yield tell(10, topics.collection_sent, sent, CUSTOMERS[0])
        case 10:
            yield tell(10, topics.email_replied, topics.Mail("sorry"), CUSTOMERS[0])
        case 12 | 13 | 14:  # three specs that cannot be read: another lesson
            spec = topics.SpecUpdated(day, readable=False)
            yield tell(10, topics.spec_updated, spec, "item/5")


class Business:
    """Lives through a plan, in virtual time."""

    def __init__(self, world: World, tasks: list[Task]) -> None:
        self.world = world
        self._tasks = iter(tasks)
        self._next = next(self._tasks, None)

    async def live(self, until: datetime) -> None:
        while self._next is not None and self._next.at <= until:
            await self._reach(self._next.at)
            await self._do(self._next)
            self._next = next(self._tasks, None)
        await self._reach(until)

    async def _reach(self, moment: datetime) -> None:
        await self.world.advance(moment - self.world.clock.moment)

    async def _do(self, task: Task) -> None:
        if task.fact is None:
            await decide(self.world.app)
        else:
            await self.world.app.emit_many([task.fact])


async def decide(app: App) -> None:
    """The pricing desk answers every review that waits, but for those of a colleague who is away."""
    for waiting in await app.find_waiting(verdict):
        proposal = await app.run(waiting.run_id).get("proposal")
        if f"item/{proposal['sku']}" != ON_HOLIDAY:
            steep = proposal["new"] * 10 > proposal["old"] * 13
            await app.signal(waiting.run_id, verdict, "reject" if steep else "approve")
