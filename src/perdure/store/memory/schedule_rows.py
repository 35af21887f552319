"""Schedules."""

from collections.abc import Iterable

from perdure.model.records import ScheduleRecord
from perdure.store.memory.rows import KeptRows


class ScheduleRows(KeptRows):
    """Calendars that start workflows."""

    def schedule(self, name: str) -> ScheduleRecord | None:
        return self.schedules.get(name)

    def put_schedule(self, schedule: ScheduleRecord) -> None:
        self.schedules[schedule.name] = schedule

    def delete_schedule(self, name: str) -> None:
        self.schedules.pop(name, None)

    def due_schedules(self, workflows: Iterable[str], limit: int) -> list[ScheduleRecord]:
        found = [(at, name) for at, name in self._by_due(workflows) if at <= self.now]
        return [self.schedules[name] for _, name in found[:limit]]

    def next_schedule_at(self, workflows: Iterable[str] | None) -> int | None:
        """Of all workflows, for None."""
        return min((at for at, _ in self._by_due(workflows)), default=None)

    def _by_due(self, workflows: Iterable[str] | None) -> list[tuple[int, str]]:
        known = None if workflows is None else set(workflows)
        return sorted(
            (one.due_at, one.name)
            for one in self.schedules.values()
            if one.due_at is not None and (known is None or one.workflow in known)
        )
