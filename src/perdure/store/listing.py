"""Pages of rows, as every SQL store asks for them: the statement for a list of runs, and the place a page begins after.

A statement is put together of parts that each store has under the same names in its queries.sql.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.store.base import MatchPlace, RunFilter, WatcherPlace

# Before every event, by when it occurred and its position.
BEFORE_ALL_TIMES: Final = (-(2**63), 0)


def runs_query(
    part: Callable[[str], str],
    as_list: Callable[[Sequence[str]], object],
    where: RunFilter,
    after: tuple[int, str] | None,
    limit: int,
) -> tuple[str, dict[str, Any]]:
    """The statement for a page of runs. One index leads: entity, parent, status, workflow or age.

    `part` gives a part by its name, `as_list` the form in which the database takes several texts.
    """
    params: dict[str, Any] = {"limit": limit}
    conditions: list[str] = []
    by_status = where.is_led_by_status

    def narrow(name: str, **values: object) -> None:
        conditions.append(part(name))
        params.update(values)

    if after is not None:
        narrow("runs_after", after_created_at=after[0], after_run_id=after[1])
    if where.created_from is not None:
        narrow("runs_created_from", created_from=where.created_from)
    if where.created_before is not None:
        narrow("runs_created_before", created_before=where.created_before)
    if where.workflow is not None:
        narrow("runs_of_workflow_too" if by_status else "runs_of_workflow", workflow=where.workflow)
    if where.entity is not None:
        narrow("runs_of_entity", entity_type=where.entity[0], entity_id=where.entity[1])
    if where.parent_run_id is not None:
        narrow("runs_of_parent", parent_run_id=where.parent_run_id)
    if where.tag is not None:
        narrow("runs_tagged", tag_name=where.tag[0], tag_value=where.tag[1])
    narrowed = " and ".join(conditions) or part("runs_all")
    if where.statuses:
        params["statuses"] = as_list(where.statuses)
        if by_status:
            narrowed = part("runs_of_statuses").replace("{narrowed}", narrowed)
        else:
            narrowed += " and " + part("runs_of_status")
    return part("page_runs").replace("{narrowed}", narrowed), params


def events_query(
    part: Callable[[str], str], type_: str | None, entity: tuple[str, str] | None
) -> tuple[str, dict[str, Any]]:
    """The statement for a page of events; where the page begins and how long it is are still to be given."""
    params: dict[str, Any] = {}
    narrowed = []
    if type_ is not None:
        narrowed.append(part("events_of_type"))
        params["type"] = type_
    if entity is not None:
        narrowed.append(part("events_of_entity"))
        params["entity_type"], params["entity_id"] = entity
    return part("page_events").replace("{narrowed}", " ".join(narrowed)), params


# --- places ----------------------------------------------------------------------------------------


def watcher_place(after: WatcherPlace | None) -> dict[str, Any]:
    names = ("opened_at", "run_id", "path", "ix")
    return dict(zip(names, after or (-1, "", "", -1), strict=True))


def match_place(after: MatchPlace | None) -> dict[str, Any]:
    names = ("target", "entity", "opened_at", "run_id", "path", "ix")
    return dict(zip(names, after or ("", "", -1, "", "", -1), strict=True))


def parked_place(consumer: str | None, after: tuple[str, int, str] | None) -> dict[str, Any]:
    """Of one consumer, or from the first on."""
    names = ("consumer", "position", "subscription")
    return dict(zip(names, max(after or ("", -1, ""), (consumer or "", -1, "")), strict=True))
