"""Setting right what ops can set right, and nothing else: what a repair does, any worker could have done.

A run that is stuck replays and opens its waits again; what a dead worker left is made ready; deadlines that passed are
acted on; keys that have run out go. Whether that helped is not believed but looked at: the store is checked again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import StoreRefused
from perdure.inspecting.checking import Check
from perdure.inspecting.findings import Found, Progress, Report
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
    after, left = await _checked(store, now, None)
    still = {one.at for one in left}
    return Report(
        findings=after.findings,
        repaired=[one.finding for one in found if one.means and one.at not in still],
        checked=before.checked,
        unjudged=after.unjudged,
        truncated=before.truncated or after.truncated,
    )


async def _checked(
    store: Store, now: Callable[[], int], progress: Progress | None
) -> tuple[Report, list[Found]]:
    one_check = Check(store, now, progress)
    found: list[Found] = []
    truncated = False
    async for one in one_check.found():
        if len(found) == limits.findings_max:
            truncated = True
            break
        found.append(one)
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
