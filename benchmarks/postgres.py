"""What measurements say to Postgres themselves, past the store: the tables of Perdure, and rows counted in them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.common import Values

# Names mean Perdure's tables. Plans go by index, also in tables that were never analysed, as the store's own do.
_settings = {
    "search_path": "perdure",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncIterator[Any]:
    """A connection to the tables of Perdure, settings over the ones above."""
    connection = await asyncpg.connect(url, server_settings={**_settings, **settings})
    try:
        yield connection
    finally:
        await connection.close()


async def table_counts(url: str, *tables: str) -> Values:
    """Rows of these tables; without names, of those that a plain run writes."""
    async with connected(url) as connection:
        return {
            f"rows.{table}": await connection.fetchval(f"select count(*) from {table}")
            for table in tables or ("runs", "steps", "events")
        }
