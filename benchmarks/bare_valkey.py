"""The steps of W2 on Valkey with no engine around them (bare_steps.py): what the store could do at best.

ONE script for all that gathered: it compares the token of each run, as whoever records a step must, and then writes the
steps. Rows are the JSON texts that Perdure writes, under keys like its own.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from benchmarks.bare_steps import GroupWriter, bare_run, run_bare, run_id, steps
from benchmarks.common import Order, Stopwatch, Values, all_of, run
from benchmarks.perdure_loads import store_url
from perdure.model.records import StepRecord

_tag: Final = "{bare}"
_runs_per_call: Final = 500

_write: Final = """
local rows = cmsgpack.unpack(ARGV[1])
for _, row in ipairs(rows) do
    if redis.call('HGET', KEYS[1] .. ':run:' .. row[1], 'fence') ~= row[2] then
        return 0
    end
end
for _, row in ipairs(rows) do
    redis.call('HSET', KEYS[1] .. ':steps:' .. row[1], row[3], row[4])
end
return #rows
"""


async def _make_runs(client: Any, count: int) -> dict[str, str]:
    """The token of each."""
    fences: dict[str, str] = {}
    for first in range(0, count, _runs_per_call):
        pipeline = client.pipeline(transaction=False)
        for number in range(first, min(first + _runs_per_call, count)):
            row = bare_run(number)
            fences[row.run_id] = str(row.fence)
            fields = {"fence": str(row.fence), "row": msgspec.json.encode(row)}
            pipeline.hset(f"{_tag}:run:{row.run_id}", mapping=fields)
        await pipeline.execute()
    return fences


async def _w2(order: Order, watch: Stopwatch) -> Values:
    url = store_url(order).partition("?")[0]
    async with Redis.from_url(url, socket_timeout=None) as client:
        fences = await _make_runs(client, order.warm + order.size)
        script = client.register_script(_write)

        async def commit(rows: list[StepRecord]) -> None:
            sent = [
                [one.run_id, fences[one.run_id], one.path, msgspec.json.encode(one).decode()]
                for one in rows
            ]
            written = await script(keys=[_tag], args=[msgspec.msgpack.encode(sent)])
            assert written == len(rows)

        writer = GroupWriter(commit)
        await all_of(order.warm, lambda number: run_bare(writer, number))
        warm_commits = writer.commits
        with watch:
            await all_of(order.size, lambda number: run_bare(writer, order.warm + number))
        commits = writer.commits - warm_commits
        assert await client.hlen(f"{_tag}:steps:{run_id(0)}") == steps
    return {"steps_s": order.size * steps / watch.seconds, "commits": commits}


def w2(order: Order, watch: Stopwatch) -> Values:
    return run(_w2(order, watch), uvloop=order.uvloop)


jobs: dict[str, Callable[[Order, Stopwatch], Values]] = {"w2": w2}
