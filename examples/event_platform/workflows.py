"""What events start. Whoever emits them knows nothing of it; the runner matches them every two minutes.

A vendor's cost leads to a price, a large rise of a price to a review, a review to a decision: three links of a chain,
none of which calls the next.
"""

from perdure import App, Context, Event, Signal, TimedOut, Topic, timer

from . import topics
from .topics import CostChanged, Decision, PriceChanged, SpecUpdated

app = App("sqlite:///platform.db", runner_every="*/2 * * * *")
for topic in vars(topics).values():
    if isinstance(topic, Topic):
        app.add(topic)  # whoever has only a topic's name is checked too

verdict = Signal("verdict", str, buffer="first")  # whoever answers first has decided

HEARD = {"approve": topics.approved, "reject": topics.rejected}


@app.on("price.changed", where="payload.new * 10 > payload.old * 11", name="large rises")
@app.workflow(signals=[verdict])
async def price_review(ctx: Context, event: Event) -> str:
    """A price that rises by more than a tenth is looked at by a human, within two days."""
    change = topics.price_changed.read(event)
    kind = "steep rise" if is_steep(change) else "rise"
    await ctx.set("proposal", {"sku": event.entity_id, "old": change.old, "new": change.new})
    answer = await ctx.wait(verdict | timer("2d"))
    heard = topics.deferred if isinstance(answer, TimedOut) else HEARD[answer]
    action_id = f"price-{event.event_id}"
    decision = Decision(idempotency_key=action_id, kind=kind, by="pricing desk")
    await ctx.emit(heard, decision, entity=event.entity, key=action_id)
    return heard.name


def is_steep(change: PriceChanged) -> bool:
    return change.new * 10 > change.old * 13


@app.on("vendor.cost_changed", map="payload", name="costs to prices")
@app.workflow
async def reprice(ctx: Context, cost: CostChanged) -> int:
    """What an item costs us decides what it costs others: twice as much."""
    change = PriceChanged(old=cost.old * 2, new=cost.new * 2)
    await ctx.emit(topics.price_changed, change, entity=f"item/{cost.sku}")
    return change.new


@app.on("spec.updated", map="payload", name="specs to import")
@app.workflow
async def import_spec(ctx: Context, spec: SpecUpdated) -> int:
    """Some specs cannot be read; the run fails, and `workflow.run_failed` tells those who learn from it."""
    if not spec.readable:
        raise ValueError("the spec has no table of dimensions")
    return spec.revision
