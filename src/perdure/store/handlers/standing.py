"""What stands over a run, whatever its code does: its deadline, and the events that cancel it.

Both are watchers of their own paths, beside those of the waits. So a deadline is found by the index of deadlines, and
an event reaches the run as it reaches one that waits for it. They are no waits: they neither keep a run waiting nor go
when it is paused or continues as another. They are there until the run ends, or is asked to stop by whomever: it cannot
be asked twice.
"""

import msgspec

from perdure.model.outcomes import Wake
from perdure.model.records import (
    CANCEL_ON_PATH,
    DEADLINE_PATH,
    EventRecord,
    RunRecord,
    WatcherRecord,
)
from perdure.store.tables import Tables

DEADLINE_REASON = "deadline"

_decode_cancel_on = msgspec.json.Decoder(tuple[tuple[str, str], ...]).decode


def watch_over(tables: Tables, run: RunRecord, after: int) -> None:
    """Let the deadline and the events that come after this position cancel the run."""
    if run.deadline_at is not None:
        tables.add_watcher(
            WatcherRecord(
                run_id=run.run_id,
                path=DEADLINE_PATH,
                ix=0,
                generation=run.generation,
                kind="timer",
                target="",
                opened_at=tables.now,
                deadline_at=run.deadline_at,
                deadline_ix=0,
            )
        )
        tables.wakes.append(Wake("deadline", at=run.deadline_at))
    for ix, (topic, entity) in enumerate(_decode_cancel_on(run.cancel_on or "[]")):
        tables.add_watcher(
            WatcherRecord(
                run_id=run.run_id,
                path=CANCEL_ON_PATH,
                ix=ix,
                generation=run.generation,
                kind="topic",
                target=topic,
                opened_at=tables.now,
                entity=entity,
                after=after,
            )
        )


def is_watched_over(run: RunRecord) -> bool:
    return run.deadline_at is not None or run.cancel_on is not None


def watch_no_more(tables: Tables, run: RunRecord) -> None:
    """It was asked to stop: it cannot be asked twice."""
    if is_watched_over(run):
        tables.delete_watchers(run.run_id, DEADLINE_PATH)
        tables.delete_watchers(run.run_id, CANCEL_ON_PATH)


def waits_of(tables: Tables, run_id: str) -> list[WatcherRecord]:
    """The open watchers of a run's own waits; not what only stands beside one."""
    return [one for one in tables.watchers(run_id) if not one.is_standing and not one.is_beside]


def leave_waits(tables: Tables, run: RunRecord) -> None:
    """Delete the watchers of all waits of a run that lives on."""
    if not is_watched_over(run):
        tables.delete_watchers(run.run_id)
        return
    for path in {one.path for one in tables.watchers(run.run_id) if not one.is_standing}:
        tables.delete_watchers(run.run_id, path)


def reason_of(event: EventRecord) -> str:
    """Why an event cancelled a run."""
    return f"{event.type}, event {event.event_id}"
