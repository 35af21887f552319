"""Who reads, and when. Each reader has a cursor of its own; none knows the others, or who writes.

workflow_runner           every 2 minutes    built in: starts what subscribes (App(runner_every=…))
customer_health_watcher   every 5 minutes    a score for each customer, told when it changes
anomaly_detector          every 15 minutes   a sequence that is unusual; beside it two ready-made detectors
reflexion_analyzer        every 30 minutes   what humans reject and what fails, learnt after three times
timeline_indexer          every hour         what happened to each entity, for a screen
"""

from dataclasses import dataclass

from perdure import Batch, Event, Topic

from .records import Records
from .workflows import app


@dataclass
class HealthChanged:
    score: int


@dataclass
class Lesson:
    subject: str
    times: int


health_changed = Topic("customer.health_changed", HealthChanged)
unreachable = Topic("customer.unreachable", type(None))
lesson_learned = Topic("reflexion.lesson_learned", Lesson)

BOUNCES = 3
TIMES = 3
WORTH = {"ar.collection_sent": -5, "email.bounced": -4, "email.replied": 5, "order.placed": 3}


@app.consumer("timeline_indexer", "**", "hitl.*", "workflow.*", every="0 * * * *")
async def index_timelines(batch: Batch) -> None:
    records = batch.dep(Records)
    for event in batch:
        records.note(batch.consumer, event.entity or "", event)


@app.consumer("customer_health_watcher", "ar.*", "email.*", "order.*", every="*/5 * * * *")
async def watch_health(batch: Batch) -> None:
    records = batch.dep(Records)
    for event in batch:
        customer = event.entity or ""
        records.note(batch.consumer, customer, event, worth(event))
        # A score as of this event: seen again, the same is told again, and its key makes that a no-op.
        points = records.points(batch.consumer, customer, upto=event)
        batch.emit(
            health_changed, HealthChanged(score(points)), entity=event.entity, key=event.event_id
        )


def worth(event: Event) -> int:
    """What an event adds to a customer's health."""
    if event.type == "ar.bucket_moved":
        return int(event.payload["old"] - event.payload["new"]) // 10
    return WORTH.get(event.type, 0)


def score(points: list[int]) -> int:
    return max(0, min(100, 70 + sum(points)))


@app.consumer("anomaly_detector", "email.*", every="*/15 * * * *")
async def find_dead_addresses(batch: Batch) -> None:
    """Three bounces in a row: a sequence, which the detectors below cannot say."""
    records = batch.dep(Records)
    for event in batch:
        customer = event.entity or ""
        records.note(batch.consumer, customer, event, int(event.type == "email.bounced"))
        if records.points(batch.consumer, customer, upto=event)[-BOUNCES:] == [1] * BOUNCES:
            batch.emit(unreachable, None, entity=event.entity, key=event.event_id)


app.anomaly("price_storm", "price.changed", rate=(10, "15m"))
app.anomaly("silent_customer", missing=("ar.collection_sent", "email.replied", "3d"))


@app.consumer("reflexion_analyzer", "hitl.rejected", "workflow.run_failed", every="*/30 * * * *")
async def learn(batch: Batch) -> None:
    records = batch.dep(Records)
    for event in batch:
        told = event.payload
        subject = told["kind"] if event.type == "hitl.rejected" else told["workflow"]
        records.note(batch.consumer, subject, event)
        if len(records.points(batch.consumer, subject, upto=event)) == TIMES:
            batch.emit(lesson_learned, Lesson(subject, TIMES), key=subject)
