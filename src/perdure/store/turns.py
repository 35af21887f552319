"""Claims take by turns from several pools, so that many ready runs of one keep those of another from nobody."""

from collections.abc import Iterable

from perdure.model.records import RunRecord


def by_turns(pools: Iterable[Iterable[RunRecord]], limit: int) -> list[RunRecord]:
    """The oldest run of each pool, by age; then the second ones, and so on."""
    placed = []
    for runs in pools:
        in_order = sorted(runs, key=lambda one: (one.ready_at or 0, one.run_id))[:limit]
        placed += [(nth, one.ready_at or 0, one.run_id, one) for nth, one in enumerate(in_order)]
    return [one[-1] for one in sorted(placed, key=lambda one: one[:3])[:limit]]
