"""What the engine tells, nobody else can tell: by whichever road, and also if its topic is declared to be read."""

from collections.abc import Callable
from typing import Any

import pytest
from worlds import Worlds

from perdure import App, BadValue, Batch, Context, Fact, Topic
from perdure.model.topics import APPROVAL_FACTS
from perdure.views import Refused

OWN = [
    "workflow.run_completed",
    "signal.delivered",
    "ledger.consumer_stalled",
    "anomaly.silence",
    "schedule.skipped",
    *APPROVAL_FACTS,
]

Road = Callable[[App, str], Any]
roads: dict[str, Road] = {
    "name": lambda app, topic: app.emit(topic, {}),
    "topic": lambda app, topic: app.emit(Topic(topic, dict), {}),
    "entity": lambda app, topic: app.emit(topic, {}, entity="run/r1", key="k"),
    # Checked before the connection is looked at.
    "connection": lambda app, topic: app.emit(topic, {}, connection=object()),
}


@pytest.fixture
def reads_all(app: App) -> App:
    """An app that knows the types of what the engine tells."""
    for topic in OWN:
        app.add(Topic(topic, dict))
    return app


@pytest.mark.parametrize("road", list(roads.values()), ids=list(roads))
async def test_an_app_cannot_emit_it(world: Worlds, reads_all: App, road: Road) -> None:
    async with world(reads_all) as w:
        for topic in OWN:
            with pytest.raises(BadValue, match="engine"):
                await road(w.app, topic)
        assert await w.facts() == []


async def test_nor_among_many_nor_as_cloud_events(world: Worlds, reads_all: App) -> None:
    async with world(reads_all) as w:
        many: list[Any] = [(topic, {}) for topic in OWN]
        many += [Fact(topic=Topic(topic, dict), payload={}) for topic in OWN]
        answers = await w.app.emit_many(many)
        assert len(answers) == len(many)
        assert all(isinstance(one, Refused) for one in answers)
        for topic in OWN:
            text = f'{{"specversion":"1.0","id":"1","source":"/x","type":"{topic}","data":{{}}}}'
            (answer,) = await w.app.emit_cloudevents(text)
            assert isinstance(answer, Refused)
        assert await w.facts() == []


async def test_nor_can_a_run(world: Worlds, reads_all: App) -> None:
    @reads_all.workflow
    async def forger(ctx: Context) -> list[str]:
        refused = []
        for topic in OWN:
            forged: tuple[Any, ...] = (topic, Topic(topic, dict))
            for one in forged:
                for emit in (
                    lambda one=one: ctx.emit(one, {}),
                    lambda one=one: ctx.emit_many([(one, {})]),
                ):
                    try:
                        await emit()
                    except BadValue:
                        refused.append(topic)
        return refused

    async with world(reads_all) as w:
        run = await w.begin(forger)
        assert await run.result() == [topic for topic in OWN for _ in range(4)]
        assert await w.facts("hitl.decided") == []


async def test_nor_can_a_reader(world: Worlds, reads_all: App) -> None:
    refused: list[str] = []

    @reads_all.consumer("forger", "order.*")
    async def forger(batch: Batch) -> None:
        for topic in OWN:
            for one in (topic, Topic(topic, dict)):
                with pytest.raises(BadValue, match="engine"):
                    batch.emit(one, {})
                refused.append(topic)

    async with world(reads_all) as w:
        await w.emit("order.paid", 1)
        assert refused == [topic for topic in OWN for _ in range(2)]
        assert await w.facts("hitl.decided") == []


async def test_what_was_refused_is_not_noted_as_a_topic(world: Worlds, app: App) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue):
            await w.app.emit(Topic("hitl.decided", dict), {})
        await w.settle()
        assert [one.name for one in await w.store.channels()] == []
