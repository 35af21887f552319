"""Plans on a fresh file, that nobody has analysed: what the ledger, topics and queues ask is found by an index.

`test_sqlite_reads.py` sees to it that no statement scans a table. Here each question names the index that answers it,
how much of it is used to find the place, and whether anything is sorted.
"""

import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.model.ids import Ids
from perdure.store.sqlite.statements import queries
from perdure.store.sqlite.store import SqliteStore
from perdure.testing import VirtualClock

_named = re.compile(r":(\w+)")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    clock = VirtualClock()
    store = SqliteStore(
        str(tmp_path / "one.db"),
        clock=clock,
        ids=Ids(clock, random.Random(1)),
        synchronous="NORMAL",
    )
    await store.open()
    yield store
    await store.close()


async def plan(store: SqliteStore, text: str) -> list[str]:
    def explain(sql: Any) -> list[str]:
        params = dict.fromkeys(_named.findall(text))
        rows = sql.connection.execute(f"explain query plan {text}", params)
        return [row[3] for row in rows]

    found: list[str] = await store._read(explain)
    return found


def of(name: str, **marks: str) -> str:
    text = queries[name]
    for mark, value in marks.items():
        text = text.replace("{" + mark + "}", value)
    return text


narrowed = {
    "": "",
    "type": queries["events_of_type"],
    "entity": queries["events_of_entity"],
    "both": f"{queries['events_of_type']} {queries['events_of_entity']}",
}

# Each line: an id, the statement, and how its table is to be searched.
asked: list[tuple[str, str, str]] = [
    (
        "watchers of a topic",
        of("topic_watchers"),
        "watchers USING INDEX watchers_by_target (kind=? AND target=? AND entity=?",
    ),
    (
        "watchers of a queue",
        of("queue_watchers"),
        "watchers USING INDEX watchers_by_target (kind=? AND target=? AND entity=?",
    ),
    ("whether anybody watches", of("places_watched"), "watchers_by_target (kind=? AND target=?"),
    ("who waits for a topic", of("waiting_for_topic"), "watchers_by_target (kind=? AND target=?"),
    (
        "due watchers",
        of("due_watchers"),
        "watchers USING INDEX watchers_by_deadline (deadline_at<?",
    ),
    ("next deadline", of("next_deadline"), "watchers USING INDEX watchers_by_deadline"),
    ("matches", of("matches"), "watchers_by_target (kind=?"),
    (
        "approvals",
        of("approvals"),
        "watchers USING INDEX watchers_asking ((opened_at,run_id,path,ix)>",
    ),
    ("next event", of("next_event", order="asc"), "events_by_type (type=? AND position>?"),
    ("newest event", of("next_event", order="desc"), "events_by_type (type=? AND position>?"),
    (
        "next event about",
        of("next_event_about", order="asc"),
        "events_by_topic (type=? AND entity_type=? AND entity_id=? AND position>?",
    ),
    (
        "newest event about",
        of("next_event_about", order="desc"),
        "events_by_topic (type=? AND entity_type=? AND entity_id=? AND position>?",
    ),
    (
        "next event about a run",
        of("next_event_about_run", order="asc"),
        "events_by_entity (entity_type=? AND entity_id=?",
    ),
    ("last of a topic", of("last_of_topic"), "COVERING INDEX events_by_type (type=?"),
    ("event by id", of("event"), "(event_id=?)"),
    ("event by position", of("event_at"), "INTEGER PRIMARY KEY (rowid=?)"),
    ("when recorded", of("recorded_at"), "INTEGER PRIMARY KEY (rowid>?)"),
    ("the ledger", of("page_events", narrowed=narrowed[""]), "INTEGER PRIMARY KEY (rowid>?)"),
    (
        "events of a type",
        of("page_events", narrowed=narrowed["type"]),
        "events_by_type (type=? AND position>?",
    ),
    (
        "events about an entity",
        of("page_events", narrowed=narrowed["entity"]),
        "events_by_entity (entity_type=? AND entity_id=?",
    ),
    ("events by time", of("page_events_by_time"), "events_by_time ("),
    ("timeline", of("page_timeline"), "events_by_entity (entity_type=? AND entity_id=?"),
    ("first items", of("first_items"), "queue_items_in_order (queue=?"),
    ("items of a queue", of("page_items"), "queue_items_in_order (queue=? AND position>?"),
    (
        "items of a stream",
        of("page_stream_items"),
        "stream_items USING INDEX sqlite_autoindex_stream_items_1 (run_id=? AND stream=? AND position>?)",
    ),
    ("streams of a run", of("stream_spans"), "s USING PRIMARY KEY (run_id=?)"),
    ("the first item", of("stream_spans"), "stream_items_1 (run_id=? AND stream=?)"),
    ("how far streams are", of("streams"), "streams USING PRIMARY KEY (run_id=?)"),
    (
        "the oldest items of a stream",
        of("trim_streams"),
        "i USING COVERING INDEX sqlite_autoindex_stream_items_1 (run_id=? AND stream=? AND position<?)",
    ),
    (
        "the first item that is kept",
        of("trim_streams"),
        "k USING INDEX sqlite_autoindex_stream_items_1 (run_id=? AND stream=? AND position>?)",
    ),
    ("sends to be applied", of("page_outbox"), "outbox USING PRIMARY KEY (outbox_id>?)"),
    ("sends that are kept", of("kept_outbox"), "outbox USING PRIMARY KEY (outbox_id=?)"),
    ("cursors", of("cursors"), "cursors USING PRIMARY KEY (run_id=?)"),
    ("key", of("key"), "keys USING PRIMARY KEY (scope=? AND key=?)"),
    ("known keys", of("known_keys"), "k USING PRIMARY KEY (scope=? AND key=?)"),
    ("expired keys", of("keys_have_expired"), "keys_by_expiry (expires_at<?"),
    ("ids of runs", of("run_ids"), "runs USING COVERING INDEX sqlite_autoindex_runs_1 (run_id>?)"),
    ("parked event", of("parked_event"), "(consumer=? AND position=? AND subscription=?)"),
    ("deferred start", of("deferred_start"), "(position=? AND subscription=?)"),
    ("deferred starts", of("page_deferred"), "deferred USING PRIMARY KEY"),
    ("dead letters", of("page_dead_letters"), "(dead_letter_id>?)"),
    ("dead letters of a run", of("page_dead_letters_of_run"), "(run_id=? AND dead_letter_id>?)"),
    ("started under", of("started_under"), "runs_by_root (root_id=?)"),
    ("trim", of("trim_events"), "INTEGER PRIMARY KEY (rowid<?)"),
    ("consumer", of("consumer"), "consumers USING PRIMARY KEY (name=?)"),
    ("subscription", of("subscription"), "subscriptions USING PRIMARY KEY (name=?)"),
    ("channel", of("channel"), "channels USING PRIMARY KEY (kind=? AND name=?)"),
]
# What may be sorted after it was found: the watchers of one topic, in a listing for people; a merge of two walks that
# are no longer than asked for; those of one deadline or one age, by run; the short timeline of one entity or run.
sorted_late = {
    "who waits for a topic",
    "watchers of a topic",
    "watchers of a queue",
    "due watchers",
    "next event about a run",
    "events about an entity",
}


@pytest.mark.parametrize(
    ("name", "text", "search"), [pytest.param(*one, id=one[0]) for one in asked]
)
async def test_an_index_answers(store: SqliteStore, name: str, text: str, search: str) -> None:
    found = await plan(store, text)
    assert any(line.startswith("SEARCH") and search in line for line in found), found
    tables = [line for line in found if line.startswith("SCAN")]
    assert all(_is_small(line) for line in tables), found
    if name not in sorted_late:
        assert not any("TEMP B-TREE" in line for line in found), found


def _is_small(line: str) -> bool:
    """A walk over what was given, or over what an inner select has found, is no scan of a table."""
    return (
        line.split()[1].strip("()") in ("w", "f", "json_each", "subquery-", "CONSTANT")
        or "subquery" in line
    )


async def test_two_conditions_on_events_use_an_index_too(store: SqliteStore) -> None:
    found = await plan(store, of("page_events", narrowed=narrowed["both"]))
    assert any("INDEX events_by_" in line for line in found), found
    assert not any(line.startswith("SCAN events") for line in found), found


@pytest.mark.parametrize("name", ["page_parked", "oldest_needed", "vitals", "backlog"])
async def test_what_is_read_from_one_end_follows_an_index(store: SqliteStore, name: str) -> None:
    """Read until enough is found, in the order of the index or the primary key: nothing is sorted."""
    found = await plan(store, queries[name])
    sorts = sum("TEMP B-TREE" in line for line in found)
    # Of the rules, which are a handful.
    assert sorts == (1 if name == "oldest_needed" else 0), found
    assert not any(re.fullmatch(r"SCAN (watchers|events|runs)", one) for one in found), found
