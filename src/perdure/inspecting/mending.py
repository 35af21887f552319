"""Setting right what ops can set right, and nothing else: what a repair does, any worker could have done.

A run that is stuck replays and opens its waits again; what a dead worker left is made ready; deadlines that passed are
acted on; keys that have run out go. Whether that helped is not believed but looked at: the store is checked again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence, Set

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import StoreRefused
from perdure.inspecting.checking import Check
from perdure.inspecting.findings import At, Found, Progress, Report
from perdure.model import limits, ops
from perdure.store.base import Store

log = logging.getLogger("perdure.inspecting")

_mended_at_once = 100


async def check(store: Store, now: Callable[[], int], progress: Progress | None) -> Report:
    """Look at everything, and change nothing."""
    report, _ = await _checked(store, now, progress)
    return report


async def check_and_repair(
    store: Store, now: Callable[[], int], coordinator: Coordinator, progress: Progress | None
) -> Report:
    """The same, set right what can be, and look again if there was anything."""
    before, found = await _checked(store, now, progress)
    if not any(one.means for one in found):
        return before
    await _repair(coordinator, found, now)
    # Also beyond what a report tells: what is not seen there may still be wrong.
    still: set[At] = set()
    after, _ = await _checked(store, now, None, {one.at for one in found}, still)
    return Report(
        findings=after.findings,
        repaired=[one.finding for one in found if one.means and one.at not in still],
        checked=before.checked,
        unjudged=after.unjudged,
        truncated=before.truncated or after.truncated,
    )


async def _checked(
    store: Store,
    now: Callable[[], int],
    progress: Progress | None,
    wanted: Set[At] = frozenset(),
    still: set[At] | None = None,
) -> tuple[Report, list[Found]]:
    """As many findings as a report tells; with `still` all are looked at, and what is `wanted` of them is put there."""
    one_check = Check(store, now, progress)
    found: list[Found] = []
    truncated = False
    async for one in one_check.found():
        if still is not None and one.at in wanted:
            still.add(one.at)
        if len(found) < limits.findings_max:
            found.append(one)
            continue
        truncated = True
        if still is None:
            break
    report = Report(
        findings=[one.finding for one in found],
        repaired=[],
        checked=one_check.checked,
        unjudged=one_check.unjudged,
        truncated=truncated,
    )
    return report, found


async def _repair(coordinator: Coordinator, found: Sequence[Found], now: Callable[[], int]) -> None:
    means = {one.means for one in found}
    stuck = [one.finding.run_id for one in found if one.means == "mend" and one.finding.run_id]
    run_ids = list(dict.fromkeys(stuck))
    for begin in range(0, len(run_ids), _mended_at_once):
        # Each by itself: one whose rows cannot be read must not keep the others from being mended.
        await asyncio.gather(
            *(_mend(coordinator, one) for one in run_ids[begin : begin + _mended_at_once])
        )
    if "recover" in means:
        more = True
        while more:
            more = (await coordinator.submit(ops.Recover(limit=limits.batch_ops_max))).more
    if "fire" in means:
        more = True
        while more:
            fired = await coordinator.submit(ops.FireTimers(limit=limits.batch_ops_max))
            more = fired.count > 0 and fired.next_at is not None and fired.next_at <= now()
    if "prune" in means:
        more = True
        while more:
            prune = ops.Prune(finished_before=None, limit=limits.batch_ops_max)
            more = (await coordinator.submit(prune)).more


async def _mend(coordinator: Coordinator, run_id: str) -> None:
    try:
        await coordinator.submit(ops.Mend(run_ids=(run_id,)))
    except StoreRefused as refused:
        about = {"run_id": run_id}
        log.error("run %r could not be mended: %s", run_id, refused.reason, extra=about)
