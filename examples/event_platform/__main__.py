"""Three days of the platform, in the current folder: `python -m examples.event_platform`."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

from perdure.testing import World

from .business import BOUNCING, Business, plan
from .readers import score
from .records import Records
from .workflows import app

DAYS = 3


async def main() -> None:
    for old in Path.cwd().glob("platform*.db*"):  # of the last time
        old.unlink()
    records = Records("platform-records.db")
    async with World(app, "sqlite:///platform.db", deps=[records]) as world:
        begin = world.clock.moment
        business = Business(world, plan(begin, DAYS, seed=4))
        for day in range(1, DAYS + 1):
            await business.live(begin + timedelta(days=day))
            health = await world.app.health()
            print(f"{world.clock.moment:%a %d %b %H:%M}  health {health.status}")
        counts = Counter(one.type for one in await world.app.events(limit=1000))
        for topic, count in sorted(counts.items()):
            print(f"{count:6}  {topic}")
        for one in await world.app.consumers():
            print(f"{one.name:<24} {one.every:<14} at {one.position}, {one.lag} to read")
        print(f"health of {BOUNCING}:", score(records.points("customer_health_watcher", BOUNCING)))
        for event in await world.app.timeline("item/1"):
            print(f"item/1  {event.occurred_at:%d %b %H:%M}  {event.type}")
    records.close()


if __name__ == "__main__":
    asyncio.run(main())
