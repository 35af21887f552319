"""Schedules: few are touched by a batch, so they are written at once, as readers of the ledger are."""

from collections.abc import Iterable

from msgspec.structs import asdict

from perdure.model.records import ScheduleRecord
from perdure.store.decoding import decode_schedules, first
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.statements import as_json


class ScheduleRows(LoadedRows):
    """Calendars that start workflows."""

    def schedule(self, name: str) -> ScheduleRecord | None:
        return first(self._read(decode_schedules, "schedule", name=name))

    def put_schedule(self, schedule: ScheduleRecord) -> None:
        self._sql.run("put_schedule", asdict(schedule))

    def delete_schedule(self, name: str) -> None:
        self._sql.run("delete_schedule", {"name": name})

    def due_schedules(self, workflows: Iterable[str], limit: int) -> list[ScheduleRecord]:
        rows = self._read(
            decode_schedules,
            "due_schedules",
            workflows=as_json(list(workflows)),
            now=self.now,
            limit=limit,
        )
        return sorted(rows, key=lambda one: (one.due_at or 0, one.name))

    def next_schedule_at(self, workflows: Iterable[str]) -> int | None:
        found: int | None = self._sql.row(
            "next_schedule_at", {"workflows": as_json(list(workflows))}
        )[0]
        return found
