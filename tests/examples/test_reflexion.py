"""What is rejected three times is not proposed again; what fails three times is told."""

from pathlib import Path

import pytest
from reflexion import Memory, app, failure_pattern, try_one

from perdure.testing import World


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/reflexion.db"


async def test_rejections_teach(url: str) -> None:
    async with World(app, url, deps=[Memory()]) as world:
        assert [await try_one(world, "discount", False) for _ in range(2)] == ["rejected"] * 2
        assert await try_one(world, "discount", True) == "approved"
        assert await try_one(world, "discount", False) == "rejected"
        assert [await try_one(world, "discount", True) for _ in range(3)] == ["avoided"] * 3
        assert await try_one(world, "reminder", False) == "rejected"
        (lesson,) = await world.app.events("reflexion.avoid")
        third = (await world.app.events("hitl.rejected"))[2]
        assert lesson.entity == "kind/discount"
        assert lesson.caused_by is not None and lesson.caused_by.event_id == third.event_id

        # A second chance, and rejections count anew.
        await world.app.emit("reflexion.allow", entity="kind/discount")
        await world.settle()
        assert [await try_one(world, "discount", False) for _ in range(4)] == [
            *["rejected"] * 3,
            "avoided",
        ]
        assert len(await world.app.events("reflexion.avoid")) == 2


async def test_failures_of_a_kind_are_a_pattern(url: str) -> None:
    async with World(app, url, deps=[Memory()]) as world:
        for _ in range(5):
            assert await try_one(world, "merge", True) == "approved"
        (told,) = await world.app.events(failure_pattern)
        assert told.entity == "workflow/carry_out"
        found = failure_pattern.read(told)
        assert (found.error, found.times) == ("LookupError", 3)


async def test_read_again_the_ledger_teaches_the_same(url: str) -> None:
    memory = Memory()
    async with World(app, url, deps=[memory]) as world:
        for _ in range(3):
            await try_one(world, "discount", False)
            await try_one(world, "merge", True)
        lessons = await world.app.events("reflexion.*")
        await world.app.rewind("reflexion", "beginning")
        await world.settle()
        assert memory.count("kind/discount") == 3
        assert list(await world.app.events("reflexion.*")) == list(lessons)
        assert not await world.app.events("ledger.*")
