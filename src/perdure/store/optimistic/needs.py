"""What a decision must know of the store: asked for by name, fetched by the backend, many at once.

A need is a tuple whose first part says what it is about. Those about runs, topics, queues and the catalogue add to
what is known from batch to batch; the answers to all others count for one batch only.

    ("run", run_id)                     the run alone, or that there is none
    ("inside", run_id)                  the run, what it waits for, what is buffered for it, its cursors
    ("on_run", run_id)                  who waits for it to end
    ("children", run_id)                the runs it started that live
    ("streams", run_id)                 how far its streams have come
    ("step", run_id, generation, path)  a living row
    ("steps", run_id, generation)       all rows of a generation
    ("key", scope, key), ("letter", id), ("letters", run_id)
    ("topic", name)                     whether anybody waits for it, and where its newest event is
    ("watching", topic, entity, position, recorded_at, limit)
    ("queue", name, limit)              its first items, and who has waited longest for one
    ("items", name, put_by, limit)
    ("event", event_id), ("event_at", position)
    ("next_event", topic, entity, after, recorded_by, newest, repeats)
    ("fan_outs",), ("first_position",), ("position_at", recorded_at), ("oldest_needed", idle_before)
    ("deadlines", limit), ("expiries", limit), ("orphans", gone_workers, limit), ("finished", before, limit)
    ("ready", workflows, pools, now, limit), ("ready_later", workflows, pools, now)
                                        pools: None for all; by turns from each
    ("expired_keys", limit), ("started_under", root_id, limit)
    ("consumer", name), ("consumers",), ("subscription", name), ("parked", consumer, position, subscription)
    ("parked_by", consumer), ("deferred", position, subscription), ("deferred_by", subscription)
    ("schedule", name)                  the row, or that there is none
    ("schedules_due", workflows, now, limit), ("schedules_next", workflows, limit)
                                        (due_at, name), the first so many: those due by then, or of all that ever
                                        are; the first is to be read no later than the second
    ("pool", name)                      the row, or that there is none
    ("slots", pool, key)                how many are taken, of a key or (None) of all
    ("line_keys", pool, after, workflows, begun, now, limit)
                                        (key, slots taken), of the next keys with somebody in line
    ("line_runs", pool, key, workflows, begun, now, limit)
    ("idle_slots", pool, workflows, now, since, limit)
    ("outbox", outbox_id)               whether it is still to be applied
    ("workers",), ("workflow", name, version), ("channel", kind, name)
"""

from collections.abc import Iterable
from typing import Any, Final

from perdure.store.optimistic.known import CATALOGUE, FAN_OUTS, LEDGER, Known, Slice, Unit

Need = tuple[Any, ...]


# What is taken for the answer to a need, by its kind, until it is known; None for all others. A decision that was made
# on such is worth nothing, but shows what else it will ask for.
UNKNOWN: Final[dict[str, Any]] = {
    "children": (),
    "steps": (),
    "letters": (),
    "watching": (),
    "queue": ((), ()),
    "items": (),
    "first_position": 1,
    "position_at": 0,
    "deadlines": (),
    "expiries": (),
    "orphans": (),
    "finished": (),
    "ready": (),
    "ready_later": (),
    "expired_keys": (),
    "started_under": 0,
    "consumers": (),
    "schedules_due": (),
    "schedules_next": (),
    "slots": 0,
    "line_keys": (),
    "line_runs": (),
    "idle_slots": (),
    "workers": (),
}


class Incomplete(Exception):
    """A decision cannot be made before these are known."""

    def __init__(self, needs: set[Need]) -> None:
        super().__init__()
        self.needs = needs


class Looks:
    """What was looked up for one decision, call after call.

    A decision may rest on several looks. What was seen at one version of a run or unit must not be taken for that of a
    later look: if another version was seen since, the looks do not fit together and the decision begins anew.
    """

    def __init__(self, known: Known) -> None:
        self.known = known
        self.answers: dict[Need, Any] = {}
        self._runs: dict[str, int] = {}
        self._units: dict[Unit, int] = {}
        self.are_overtaken = False

    def learn_run(self, found: Slice) -> None:
        if self._runs.setdefault(found.run.run_id, found.change) != found.change:
            self.are_overtaken = True
        self.known.learn_run(found)

    def learn_none(self, run_id: str) -> None:
        """There is no such run."""
        if run_id in self._runs:
            self.are_overtaken = True
        self.known.runs.pop(run_id, None)
        self.answers["run", run_id] = None

    def learn_unit(self, unit: Unit, version: int) -> None:
        if self._units.setdefault(unit, version) != version:
            self.are_overtaken = True
        self.known.learn_unit(unit, version)


def units_of(need: Need) -> Iterable[Unit]:
    """The units by whose version an answer counts."""
    match need[0]:
        case "unit":
            yield need[1], need[2]
        case "queue" | "items":
            yield "queue", need[1]
        case "consumer" | "parked":
            yield "consumer", need[1]
        case "subscription" | "schedule" | "pool":
            yield need[0], need[1]
        case "slots" | "line_keys" | "line_runs":
            yield "line", need[1]
        case "deferred":
            yield "deferred", ""
        case "first_position" | "consumers":
            yield LEDGER
        case "fan_outs":
            yield FAN_OUTS
        case "workflow" | "channel":
            yield CATALOGUE
