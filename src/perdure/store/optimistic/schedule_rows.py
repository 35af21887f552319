"""Schedules: read anew for each batch that asks, each a unit of its own.

Which of them are due the store says from its index; each that it names is judged by its row, and by what this batch has
made of it.
"""

from collections.abc import Iterable

from perdure.model.records import ScheduleRecord
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt

Due = tuple[int, str]  # when, and its name


class ScheduleRows(LookedAt):
    """Calendars that start workflows."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._schedules: dict[str, ScheduleRecord | None] = {}
        self._looked_at: dict[str, None] = {}

    def schedule(self, name: str) -> ScheduleRecord | None:
        self._rest_on(("schedule", name))
        self._looked_at[name] = None
        if name in self._schedules:
            return self._schedules[name]
        found: ScheduleRecord | None = self._answer("schedule", name)
        return found

    def put_schedule(self, schedule: ScheduleRecord) -> None:
        self.schedule(schedule.name)  # as it was: see schedules_before
        self._rest_on(("schedule", schedule.name), bump=True)
        self._schedules[schedule.name] = schedule

    def delete_schedule(self, name: str) -> None:
        self.schedule(name)
        self._rest_on(("schedule", name), bump=True)
        self._schedules[name] = None

    def _schedules_before(self) -> dict[str, ScheduleRecord]:
        """Those that this batch changes, as they stand in the store."""
        found = {name: self._answers.get(("schedule", name)) for name in self._schedules}
        return {name: one for name, one in found.items() if one is not None}

    def due_schedules(self, workflows: Iterable[str], limit: int) -> list[ScheduleRecord]:
        known = tuple(sorted(workflows))
        # Those that this batch has touched may stand elsewhere by now: so many others, and all of them.
        stored: list[Due] = self._first_of(
            limit, lambda one: one[1] not in self._schedules, "schedules_due", known, self.now
        )
        names = {name for _, name in stored} | {*self._schedules}
        rows = (self.schedule(name) for name in sorted(names))
        due = [one for one in rows if one and self._is_due(one) and one.workflow in known]
        return sorted(due, key=lambda one: (one.due_at or 0, one.name))[:limit]

    def _is_due(self, row: ScheduleRecord) -> bool:
        return row.due_at is not None and row.due_at <= self.now

    def next_schedule_at(self, workflows: Iterable[str]) -> int | None:
        """Only a hint, so nothing rests on it: who is told of another time looks again then."""
        known = tuple(sorted(workflows))
        # What the index says of rows that were looked at may be older than they are. Another one is among so many.
        stored: list[Due] = self._answer("schedules_next", known, len(self._looked_at) + 1)
        rows = (self.schedule(name) for name in self._looked_at)
        return min(
            [
                *(at for at, name in stored if name not in self._looked_at),
                *(one.due_at for one in rows if one and one.due_at and one.workflow in known),
            ],
            default=None,
        )
