"""What is wrong with the rows in memory, apart from what every store is asked: rows without a run, wrong indexes."""

from collections.abc import Iterator

from perdure.store.base import Flaw
from perdure.store.memory.rows import KeptRows

_advice = "the process is at fault, not a store: end it, and tell us how it came to this"


def find_flaws(rows: KeptRows) -> Iterator[Flaw]:
    yield from _strays(rows)
    yield from _indexes(rows)


def _strays(rows: KeptRows) -> Iterator[Flaw]:
    """Rows of runs that are not there."""
    found = {
        "steps": {run_id for (run_id, _), steps in rows.steps_by_run.items() if steps},
        "watchers": {run_id for run_id, found in rows.watchers_by_run.items() if found},
        "signals": {run_id for run_id, found in rows.signals_by_run.items() if found},
        "cursors": {at[0] for at in rows.cursors},
        "streams": {run_id for run_id, found in rows.streams_by_run.items() if found},
        "keys": {one.run_id for one in rows.keys.values() if one.run_id is not None},
        "dead_letters": {one.run_id for one in rows.letters.values()},
    }
    for table, run_ids in found.items():
        for run_id in sorted(run_ids - rows.runs_by_id.keys()):
            what = f"{table} of run {run_id!r}, which is not there"
            yield Flaw(invariant="X3", what=what, run_id=run_id, advice=_advice)
    for run_id, stream in sorted(rows.published_items):
        if stream not in rows.streams_by_run.get(run_id, {}):
            what = f"items of stream {stream!r} of run {run_id!r}, which has no such stream"
            yield Flaw(invariant="M4", what=what, run_id=run_id, advice=_advice)


def _indexes(rows: KeptRows) -> Iterator[Flaw]:
    for position in rows.markers:
        if position not in rows.events:
            yield _wrong(f"no event is at {position}, and it is on its way to runs")
    if rows.positions != {one.event_id: at for at, one in rows.events.items()}:
        yield _wrong("the ids of events do not lead to their positions")
    buffered = {one for signals in rows.signals_by_run.values() for one in signals}
    if rows.signal_ids != buffered:
        yield _wrong("the ids of buffered signals are not those of the buffers")
    waiting = {at: found for at, found in rows.waiting_for.items() if found}
    there: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
    for one in rows.all_watchers():
        if (one.kind, one.target) in waiting or one.kind in ("run", "topic", "queue"):
            there.setdefault((one.kind, one.target), set()).add((one.run_id, one.path, one.ix))
    if waiting != there:
        yield _wrong("who waits for runs, topics and queues is not what the watchers say")


def _wrong(what: str) -> Flaw:
    return Flaw(invariant="X4", what=what, advice=_advice)
