"""One price changes, thousands of quotes go on: `python examples/price_fanout.py`.

Each quote is a run that waits for a price of its sku. One `price.changed` resumes all that wait for that sku, and
nobody else: a thousand in the commit of the event, the rest in chunks from a stored marker, so that no commit is long
and a crash in between loses none. Each resumes exactly once.

Beside them a subscription: every `vendor.cost_changed` that is worth it starts one repricing. What is worth it
(`where`) and what the run gets (`map`) are CEL, checked when they are registered. What is mapped becomes the type that
the workflow takes.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from perdure import App, Context, Emitted, Topic


@dataclass
class Price:
    cents: int


@dataclass
class Cost:
    sku: str
    old: int
    new: int


@dataclass
class Repricing:
    """What a repricing is started with; made by the subscription's `map`."""

    sku: str
    vendor: str
    cost: int


price_changed = Topic("price.changed", Price)
cost_changed = Topic("vendor.cost_changed", Cost)

app = App("sqlite:///price_fanout.db")
app.add(price_changed)
app.add(cost_changed)


@app.workflow
async def quote(ctx: Context, sku: str, quantity: int) -> int:
    """A quote that stays open until its price is known."""
    price = await ctx.wait(price_changed.about(f"sku/{sku}"))
    return price.cents * quantity


@app.on(
    "vendor.cost_changed",
    name="costs worth a new price",
    where="payload.new * 100 > payload.old * 105 || payload.new * 100 < payload.old * 95",
    map="{'sku': payload.sku, 'vendor': entity_id, 'cost': payload.new}",
)
@app.workflow
async def reprice(ctx: Context, task: Repricing) -> int:
    """A cost that moved by more than a twentieth becomes a price: half as much again."""
    price = Price(task.cost * 3 // 2)
    await ctx.emit(price_changed, price, entity=f"sku/{task.sku}")
    return price.cents


async def open_quotes(app: App, sku: str, count: int) -> list[str]:
    """Start so many quotes; each has its own quantity."""
    handles = await asyncio.gather(
        *(app.start(quote, sku, n + 1, id=f"quote-{sku}-{n}") for n in range(count))
    )
    return [one.id for one in handles]


# --- the story ------------------------------------------------------------------------------------

MANY = 3000


async def main() -> None:
    for old in Path.cwd().glob("price_fanout.db*"):  # of the last time
        old.unlink()
    async with app:
        began = time.perf_counter()
        quotes = await open_quotes(app, "7", MANY)
        others = await open_quotes(app, "8", 10)
        while await waiting(app) < MANY + 10:  # noqa: ASYNC110 (what is awaited are rows)
            await asyncio.sleep(0.01)
        print(f"{MANY + 10} quotes wait, after {time.perf_counter() - began:.1f} s")

        began = time.perf_counter()
        told = await app.emit(price_changed, Price(250), entity="sku/7")
        assert isinstance(told, Emitted)
        more = ", and more follow" if told.more else ""
        print(f"price.changed: {told.resumed} resumed in its commit{more}")
        totals = await asyncio.gather(*(app.run(one).result() for one in quotes))
        assert totals == [250 * (n + 1) for n in range(MANY)]
        print(f"all {MANY} have their price, after {time.perf_counter() - began:.1f} s")
        print(f"{await waiting(app)} quotes of another sku still wait")

        for cost in (Cost("8", old=100, new=103), Cost("8", old=103, new=120)):
            await app.emit(cost_changed, cost, entity="vendor/acme")
        prices = await asyncio.gather(*(app.run(one).result() for one in others))
        print(f"a vendor's cost rose by 3 %: nothing; by 17 %: repriced, first quote {prices[0]}")
        print("repricings:", len(await app.runs(workflow="reprice")))


async def waiting(app: App) -> int:
    """How many wait for a price."""
    count, cursor = 0, None
    while True:
        page = await app.watchers(price_changed, limit=1000, after=cursor)
        count += len(page)
        if (cursor := page.cursor) is None:
            return count


if __name__ == "__main__":
    asyncio.run(main())
