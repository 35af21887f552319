"""The shop behind its HTTP API, as this machine sees it and as others do."""

from collections.abc import AsyncIterator

import pytest
from asking import Asked, asked, scene, shop, tokens


@pytest.fixture
async def open_shop() -> AsyncIterator[Asked]:
    """Without tokens: as this machine sees it."""
    async with asked(shop()) as found:
        await scene(found.app)
        yield found


@pytest.fixture
async def locked_shop() -> AsyncIterator[Asked]:
    """With tokens: as others see it."""
    async with asked(
        shop(), client="203.0.113.9", base="https://shop.example", tokens=tokens()
    ) as found:
        await scene(found.app)
        yield found
