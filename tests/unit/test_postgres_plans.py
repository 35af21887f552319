"""Plans on Postgres, in tables that nobody has ever analysed: fresh ones, and ones with 100,000 rows.

Everything the engine asks is found by an index, whatever the planner believes about tables of which it knows nothing.
Statements are explained as they are asked: with the settings of our connections, planned for their values and for any;
and as they are asked behind a pooler, where nothing can be set. What the functions do inside is seen in the plans that
the server prints as it makes them: a call with empty lists goes through every statement of a function.
"""

import asyncio
import json
import random
import re
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import asyncpg
import pytest
from servers.postgres import PostgresAddress

from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store.base import RunFilter
from perdure.store.postgres import connecting, opening
from perdure.store.postgres.committing import _rest
from perdure.store.postgres.reads import runs_query
from perdure.store.postgres.statements import Statements, statement

rows = 100_000
large = (
    *("runs", "steps", "watchers", "events", "signals", "keys", "queue_items", "commits"),
    *("streams", "stream_items"),
)

_fill = f"""
insert into {{s}}.runs (
    run_id, workflow, version, status, input, created_at, generation, owner, fence, revision, ready_at, finished_at,
    pause_requested, cancel_requested, parent_run_id, entity_type, entity_id, root_id, depth, position, change, seq,
    pool, pool_key, line_at, admitted
)
select 'run-' || n, 'flow-' || n % 5, 1,
    case when n % 10 < 6 then 'completed' when n % 10 = 6 then 'failed' when n % 10 = 7 then 'running'
         when n % 10 = 8 then 'waiting' else 'ready' end,
    'null', n, 1, case when n % 10 = 7 then 'worker-' || n % 3 end, 1, 0, case when n % 20 = 9 then n end,
    case when n % 10 < 7 then n end, false, false, case when n % 2 = 0 then 'run-' || n / 2 end,
    case when n % 4 = 0 then 'sku' end, case when n % 4 = 0 then (n % 1000)::text end,
    case when n % 4 = 1 then 'root-' || n end, 0, n, 1, n,
    case when n % 20 >= 15 then 'pool-' || n % 3 else '' end, 'key-' || n % 50, case when n % 20 = 19 then n end,
    n % 40 < 20
from generate_series(1, {rows}) as n;
insert into {{s}}.steps (
    run_id, generation, path, kind, name, state, seq, attempt, started_at, superseded
)
select 'run-' || n / 2, 1, 'step-' || n % 2, 'step', 'step',
    case when n % 10 = 9 then 'open' else 'done' end, n, 1, n, 0
from generate_series(1, {rows}) as n;
insert into {{s}}.watchers (
    run_id, path, ix, generation, kind, target, opened_at, deadline_at, entity, after, filter, held
)
select 'run-' || n, 'wait', 0, 1, (array['signal', 'topic', 'queue', 'run', 'match', 'timer'])[n % 6 + 1],
    case n % 6 when 3 then 'run-' || n + 1 when 5 then '' else 'target-' || n % 7 end, n,
    case when n % 3 = 0 then n end, case when n % 6 = 1 and n % 4 = 0 then 'sku/' || n % 100 else '' end, 0, '', false
from generate_series(1, {rows}) as n;
insert into {{s}}.events (position, event_id, type, entity_type, entity_id, payload, occurred_at, recorded_at, depth)
select n, 'event-' || n, 'type-' || n % 7, case when n % 2 = 0 then 'run' when n % 5 = 0 then 'sku' end,
    case when n % 2 = 0 then 'run-' || n when n % 5 = 0 then (n % 1000)::text end, '1', n, n, 0
from generate_series(1, {rows}) as n;
insert into {{s}}.signals (signal_id, position, run_id, name, payload, policy, on_end, received_at, expires_at)
select 'signal-' || n, n, 'run-' || n % 50000, 'go', '1', 'all', 'drop', n, case when n % 3 = 0 then n end
from generate_series(1, {rows}) as n;
insert into {{s}}.keys (scope, key, digest, answer, run_id, created_at, expires_at)
select 'scope-' || n % 3, 'key-' || n, '', '1', 'run-' || n, n, case when n % 3 = 0 then n end
from generate_series(1, {rows}) as n;
insert into {{s}}.queue_items (item_id, position, queue, payload, put_at)
select 'item-' || n, n, 'queue-' || n % 7, '1', n from generate_series(1, {rows}) as n;
insert into {{s}}.streams (run_id, stream, last, bytes_all)
select 'run-' || n, 'stream-' || n % 3, 2, 2 from generate_series(1, {rows}) as n;
insert into {{s}}.stream_items (run_id, stream, position, item, path, attempt, published_at, bytes_before)
select 'run-' || n / 2, 'stream-' || n % 3, n % 2 + 1, '1', 'step', 1, n, n % 2 from generate_series(1, {rows}) as n;
insert into {{s}}.commits (batch_id, at, head) select 'batch-' || n, n, n from generate_series(1, {rows}) as n;
"""

# As our own connections are set; behind a pooler nothing is.
_ours = ";".join(
    f"set {name} = {value}"
    for name, value in connecting._settings.items()
    if name.startswith(("enable_", "jit"))
)


class Scan(NamedTuple):
    """One way to the rows of a table."""

    how: str
    table: str
    index: str
    condition: str


class Plan(NamedTuple):
    """How a statement finds its rows, and how often something is sorted on the way."""

    scans: list[Scan]
    sorts: int

    @property
    def read_whole(self) -> set[str]:
        """Large tables that are walked through from end to end."""
        whole = {one.table for one in self.scans if one.how == "Seq Scan"}
        return whole & set(large)


# --- what is asked -----------------------------------------------------------------------------

_filters = {
    "all": RunFilter(),
    "workflow": RunFilter(workflow="flow-1"),
    "status": RunFilter(statuses=("failed",)),
    "statuses": RunFilter(statuses=("failed", "waiting")),
    "workflow and failed": RunFilter(workflow="flow-1", statuses=("failed",)),
    "workflow and completed": RunFilter(workflow="flow-1", statuses=("completed",)),
    "entity": RunFilter(entity=("sku", "8")),
    "entity and status": RunFilter(entity=("sku", "8"), statuses=("failed",)),
    "parent": RunFilter(parent_run_id="run-500"),
    "tag": RunFilter(tag=("a", "b")),
    "created": RunFilter(created_from=500, created_before=900),
}
_parts = {name for name in Statements("s")._texts if name.startswith(("runs_", "events_of_"))} | {
    "page_runs",
    "page_events",
    "next_event",
    "next_event_about",
    "next_event_about_run",
}
# Calls of functions, whose inside is looked at below, and what writes one row by its key.
_elsewhere = {"apply", "fetch", "write_outbox", "put_meta"}

# For parameters of any type; those that are not named are '5'.
_values = {
    "run_id": "run-500",
    "run_ids": "{run-500,run-600}",
    "generation": "1",
    "batch_id": "batch-500",
    "queue": "queue-3",
    "type": "type-3",
    "topic": "target-3",
    "signal": "target-3",
    "target": "target-3",
    "entity": "",
    "entity_type": "sku",
    "entity_id": "8",
    "repeats": "true",
    "owners": "{worker-0,worker-1}",
    "worker_id": "worker-0",
    "root_id": "root-501",
    "event_id": "event-500",
    "event_ids": "{event-500,event-600}",
    "item_ids": "{item-500,item-600}",
    "signal_id": "signal-500",
    "scope": "scope-1",
    "keys": "{key-1,key-500}",
    "parent_run_id": "run-500",
    "workflow": "flow-1",
    "workflows": '[{"name": "flow-1", "version": 1}, {"name": "flow-2", "version": 1}]',
    "workflow_names": "{flow-1,flow-2}",
    "names": "{a,b}",
    "outbox_ids": "{a,b}",
    "after": "500",
    "after_run_id": "run-500",
    "after_created_at": "500",
    "now": "500",
    "before": "500",
    "limit": "10",
    "position": "500",
    "pool": "pool-1",
    "pools": '{pool-1,""}',
    "key": "key-19",
    "begun": "true",
    "line_at": "500",
    "opened_at": "500",
    "statuses": "{failed,waiting}",
}


def asked(statements: Statements) -> dict[str, str]:
    """Every statement that the store asks, by a name."""
    texts = {
        name: statements.text(name)
        for name in statements._texts
        if name not in _parts and name not in _elsewhere
    }
    for name in ("next_event", "next_event_about", "next_event_about_run"):
        for order in ("asc", "desc"):
            texts[f"{name} {order}"] = statements.text(name).replace("{order}", order)
    one, other = statements.text("events_of_type"), statements.text("events_of_entity")
    for name, narrowed in {
        "": "",
        " of type": one,
        " of entity": other,
        " of both": f"{one} {other}",
    }.items():
        texts[f"page_events{name}"] = statements.text("page_events").replace("{narrowed}", narrowed)
    for name, where in _filters.items():
        for after in (None, (500, "run-500")):
            text, _ = runs_query(statements, where, after, 10)
            texts[f"runs by {name}{', next page' if after else ''}"] = text
    return texts


# --- what the server plans ---------------------------------------------------------------------

Connection = Any


async def explain(connection: Connection, text: str) -> Plan:
    numbered = statement(text)
    values = ", ".join(
        "'" + _values.get(name, "5").replace("'", "''") + "'" for name in numbered.names
    )
    await connection.execute(f"prepare asked as {numbered.text}")
    try:
        execute = f"execute asked({values})" if values else "execute asked"
        found = await connection.fetchval(f"explain (costs off, format json) {execute}")
    finally:
        await connection.execute("deallocate asked")
    return read_plan(json.loads(found)[0]["Plan"])


def read_plan(top: dict[str, Any]) -> Plan:
    scans, sorts = [], 0
    nodes = [top]
    while nodes:
        node = nodes.pop()
        nodes.extend(node.get("Plans", ()))
        sorts += node["Node Type"] in ("Sort", "Incremental Sort")
        if "Relation Name" in node or "Index Name" in node:
            scans.append(
                Scan(
                    node["Node Type"],
                    node.get("Relation Name", ""),
                    node.get("Index Name", ""),
                    node.get("Index Cond", ""),
                )
            )
    return Plan(scans, sorts)


async def explain_all(url: str, schema: str, *settings: str) -> dict[str, Plan]:
    connection = await asyncpg.connect(url)
    try:
        for one in settings:
            await connection.execute(one)
        texts = asked(Statements(schema))
        return {name: await explain(connection, text) for name, text in texts.items()}
    finally:
        await connection.close()


async def make_schema(url: str, schema: str, fill: str = "") -> None:
    connection = await asyncpg.connect(url)
    try:
        await opening.bring_up(connection, schema, Ids(SystemClock(), random.Random()).ulid)
        for table in large:
            await connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = off)")
        if fill:
            async with connection.transaction():
                await connection.execute(fill.replace("{s}", schema))
    finally:
        await connection.close()


def in_own_loop(work: Coroutine[Any, Any, Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def schemas(postgres_server: PostgresAddress) -> Iterator[dict[str, str]]:
    """One that is fresh, and one with many rows; neither was ever analysed."""
    with ExitStack() as stack:
        names = {
            kind: stack.enter_context(postgres_server.fresh_schema()) for kind in ("fresh", "full")
        }
        in_own_loop(make_schema(postgres_server.url, names["fresh"]))
        in_own_loop(make_schema(postgres_server.url, names["full"], _fill))
        yield names


_settings = {
    "for these values": (_ours, "set plan_cache_mode = force_custom_plan"),
    "for any values": (_ours, "set plan_cache_mode = force_generic_plan"),
}
_pooled = ("set plan_cache_mode = force_custom_plan",)

# Where a walk begins at one end of an index and goes no further than asked for; and what goes through everything:
# counts for people, and what fsck looks for.
_from_one_end = {
    "deadlines",
    "expiries",
    "owners",
    "look",
    "span",
    "finished",
    "keys_have_expired",
    "runs by all",
    "runs by tag",
}
_counted = {"counts", "queue_counts", "vitals", "strays"}

# How the place in the index is found, for what the engine asks all the time.
_found_by = {
    "settled": ("commits_pkey", "(batch_id ="),
    "prune_commits": ("commits_by_age", "(at <"),
    "steps": ("steps_pkey", "(run_id = "),
    "items": ("queue_items_in_order", "(queue = "),
    "deadlines": ("watchers_by_deadline", ""),
    "expiries": ("signals_by_expiry", ""),
    "owners": ("runs_running", ""),
    "orphans": ("runs_running", "(owner = o.owner)"),
    "ready": (
        "runs_ready",
        "(pool = s.pool) AND (workflow = known.name) AND (version = known.version) AND (ready_at <=",
    ),
    "ready_later": (
        "runs_ready",
        "(pool = s.pool) AND (workflow = known.name) AND (version = known.version) AND (ready_at >",
    ),
    "backlog": ("runs_ready", "ROW(pool, workflow, version) > ROW(p"),
    "slots": ("runs_with_slot", "(pool = "),
    "line_keys": ("runs_in_line", "(pool_key = k.key)"),
    "line_runs": ("runs_in_line", "(admitted >="),
    "idle_slots": ("runs_ready", "(pool = "),
    "lines": ("runs_in_line_by_age", "(pool = l.name)"),
    "standing": ("runs_with_slot", "(pool_key = a.key)"),
    "page_line": ("runs_in_line_by_age", "ROW(line_at, run_id) >"),
    "finished": ("runs_by_parent", "(parent_run_id = r.run_id)"),
    "expired_keys": ("keys_by_expiry", "(expires_at <="),
    "keys_have_expired": ("keys_by_expiry", ""),
    "known_keys": ("keys_pkey", "AND (key = "),
    "started_under": ("runs_by_root", "(root_id ="),
    "span": ("events_pkey", ""),
    "recorded_at": ("events_pkey", '("position" >='),
    "load": ("steps_pkey", "(run_id = "),
    "ended": ("runs_pkey", "(run_id = "),
    "run": ("runs_pkey", "(run_id = "),
    "history": ("steps_pkey", "(run_id = "),
    "history_page": ("steps_pkey", "(run_id = "),
    "waiting": ("watchers_pkey", "(run_id = "),
    "find_waiting": ("watchers_by_target", "(target = "),
    "waiting_for_topic": ("watchers_by_target", "(target = "),
    "approvals": ("watchers_asking", "(ROW(opened_at,"),
    "matches": ("watchers_by_target", "(kind = 'match'::text) AND (ROW(target,"),
    "buffered": ("signals_by_run", "(run_id = "),
    "signal": ("signals_pkey", "(signal_id ="),
    "event": ("events_event_id_key", "(event_id ="),
    "page_items": ("queue_items_in_order", "(queue = "),
    "streams": ("streams_pkey", "(run_id = "),
    "stream_spans": ("stream_items_pkey", "AND (stream = s.stream)"),
    "page_stream_items": ("stream_items_pkey", 'AND ("position" >'),
    "page_timeline": ("events_by_entity", "AND (entity_id = "),
    "page_events": ("events_pkey", '("position" >'),
    "page_events of type": ("events_by_type", "(type = "),
    "page_events of entity": ("events_by_entity", "AND (entity_id = "),
    "page_events_by_time": ("events_by_time", "ROW(occurred_at,"),
    "next_event asc": ("events_by_type", "(type = "),
    "next_event desc": ("events_by_type", "(type = "),
    "next_event_about asc": ("events_by_topic", "AND (entity_id = "),
    "next_event_about desc": ("events_by_topic", "AND (entity_id = "),
    "next_event_about_run asc": ("events_by_entity", "AND (entity_id = "),
    "runs by all, next page": ("runs_by_created", "ROW(created_at, run_id) <"),
    "runs by workflow": ("runs_by_workflow", "(workflow ="),
    "runs by status": ("runs_by_status", "(status = "),
    "runs by statuses": ("runs_by_status", "(status = "),
    "runs by workflow and failed": ("runs_by_status", "(status = "),
    "runs by workflow and completed": ("runs_by_workflow", "(workflow ="),
    "runs by entity": ("runs_by_entity", "AND (entity_id = "),
    "runs by entity and status": ("runs_by_entity", "AND (entity_id = "),
    "runs by parent": ("runs_by_parent", "(parent_run_id ="),
    "runs by created": ("runs_by_created", "(created_at >="),
}


_merged = {
    "page_events of entity",
    "page_events of both",
    *(
        f"runs by {one}{page}"
        for one in ("status", "statuses", "workflow and failed")
        for page in ("", ", next page")
    ),
}


@pytest.mark.parametrize("planned", _settings)
@pytest.mark.parametrize("kind", ["fresh", "full"])
def test_an_index_answers_everything_that_is_asked(
    postgres_server: PostgresAddress, schemas: dict[str, str], kind: str, planned: str
) -> None:
    found = in_own_loop(explain_all(postgres_server.url, schemas[kind], *_settings[planned]))
    assert {name: plan for name, plan in found.items() if plan.read_whole} == {}
    walked = {
        name: plan
        for name, plan in found.items()
        if name not in _from_one_end | _counted and not all(map(has_a_place, plan.scans))
    }
    assert walked == {}
    if (kind, planned) == ("fresh", "for these values"):
        return  # to a planner any index of an empty table will do, and such a plan is not kept
    for name, (index, condition) in _found_by.items():
        assert any(
            one.index == index and condition in one.condition for one in found[name].scans
        ), (
            name,
            found[name],
        )


def has_a_place(scan: Scan) -> bool:
    """Whether a walk along an index of a large table begins at a place, not at its end."""
    return scan.table not in large or not scan.how.startswith("Index") or scan.condition != ""


def test_pages_are_read_in_the_order_of_their_index(
    postgres_server: PostgresAddress, schemas: dict[str, str]
) -> None:
    """Nothing is gathered and sorted first, but a few pages that are merged, and the short list of one entity."""
    found = in_own_loop(
        explain_all(postgres_server.url, schemas["full"], *_settings["for these values"])
    )
    pages = {
        name: plan.sorts for name, plan in found.items() if name.startswith(("runs by", "page_"))
    }
    assert {name for name, sorts in pages.items() if sorts} <= _merged


def test_behind_a_pooler_large_tables_are_read_by_index_too(
    postgres_server: PostgresAddress, schemas: dict[str, str]
) -> None:
    """There nothing is set, and each statement is planned as it is asked: the server sees how large they are."""
    found = in_own_loop(explain_all(postgres_server.url, schemas["full"], *_pooled))
    whole = {name for name, plan in found.items() if plan.read_whole}
    assert whole <= _counted


# --- what the functions do inside ----------------------------------------------------------------

_claim = '[{"limit": 1, "worker_id": "w", "fence": 1, "workflows": []}]'
_all_rest = (*_rest, "past_steps", "gone_steps", "gone_parked", "gone_deferred")
_everything = json.dumps({"trim": 0, **{name: [] for name in _all_rest}})
_lists = ", ".join(["'[]'"] * 15)
_calls = {
    "apply_v1": f"select {{s}}.apply_v1('b', 1, 1, 1, 1, true, true, null, {_lists}, '{_claim}', '{_everything}')",
    "fetch_v1": (
        "select {s}.fetch_v1('{}', '{a}', '{}', '{}', '[]', '[]', '{}', '[]', '[]', '[]', '{}', '{}', true)"
    ),
}
# In the words of a statement, and the indexes that it uses.
_inside = {
    "apply_v1": {
        "order by r.run_id for no key update": {"runs_pkey"},
        "select json_agg(s.run_id)": {"runs_pkey"},
        "select max(t.seq)": {"steps_pkey"},
        "from json_to_recordset(p_changed_runs)": {"runs_pkey"},
        "where s.bump and r.run_id = s.run_id": {"runs_pkey"},
        "delete from watchers as w": {"watchers_pkey"},
        "delete from signals as s": {"signals_pkey"},
        "delete from queue_items as i": {"queue_items_pkey"},
        "left join streams as s": {"streams_pkey"},
        "delete from stream_items as i": {"stream_items_pkey"},
        "with due as materialized": {"runs_ready", "runs_pkey", "steps_pkey"},
        "r.ready_at > p_now": {"runs_ready"},
        "with recursive found (pool)": {"runs_ready"},
        "delete from keys where run_id": {"keys_by_run"},
        "delete from steps where run_id": {"steps_pkey"},
        "delete from signals where run_id": {"signals_by_run"},
        "delete from watchers where run_id": {"watchers_pkey"},
        "delete from streams where run_id": {"streams_pkey"},
        "delete from stream_items where run_id": {"stream_items_pkey"},
    },
    "fetch_v1": {
        "select distinct unnest(v_inside) as run_id) as i join watchers": {"watchers_pkey"},
        "select distinct unnest(v_inside) as run_id) as i join signals": {"signals_by_run"},
        "s.state in ('open', 'retrying')": {"runs_pkey", "steps_unfinished"},
        "w.kind = 'run' and w.target = t.run_id": {"watchers_by_target"},
        "r.parent_run_id = t.run_id": {"runs_by_parent"},
        "as whoever": {"watchers_by_target"},
        "from queue_items as i where i.queue = asked.name order by i.position limit": {
            "queue_items_in_order"
        },
        "join keys as k": {"keys_pkey"},
        "s.superseded = 0": {"steps_pkey"},
        "order by e.position desc limit 1": {"events_by_type", "watchers_by_target", "units_pkey"},
        "join events as e on e.event_id": {"events_event_id_key", "events_pkey"},
    },
}
_node = re.compile(
    r"\{(SEQSCAN|INDEXSCAN|INDEXONLYSCAN|BITMAPINDEXSCAN) .*?scanrelid (\d+)(?: :indexid (\d+) .*?:?indexqual (<>|\())?"
)


@pytest.mark.parametrize("kind", ["fresh", "full"])
@pytest.mark.parametrize("function", _calls)
def test_every_statement_of_a_function_finds_its_rows_by_index(
    postgres_server: PostgresAddress, schemas: dict[str, str], function: str, kind: str
) -> None:
    call = _calls[function].replace("{s}", schemas[kind])
    found = in_own_loop(plans_inside(postgres_server.url, call))
    names = dict(map(tuple, postgres_server.fetch("select oid::int, relname from pg_class")))
    plans = {
        text: [scan_of(node, tree, names) for node in _node.finditer(tree)] for text, tree in found
    }
    tables = {text: scans for text, scans in plans.items() if not all(map(is_by_index, scans))}
    assert tables == {}
    for words, indexes in _inside[function].items():
        used = [
            {one.index for one in scans} - {""} for text, scans in plans.items() if words in text
        ]
        assert indexes in used, (words, used)


def is_by_index(scan: Scan) -> bool:
    return scan.table not in large or (scan.how != "SEQSCAN" and scan.condition != "<>")


def scan_of(node: re.Match[str], tree: str, names: dict[int, str]) -> Scan:
    """A node of a tree that the server has printed; the tables are listed at its end, in the order of their numbers."""
    how, number, index, condition = node.groups()
    tables = tree.partition(":rtable (")[2].split("{RANGETBLENTRY ")[1:]
    relation = re.search(r":relid (\d+)", tables[int(number) - 1])
    table = names.get(int(relation[1]), "") if relation else ""
    return Scan(how, table, names.get(int(index or 0), ""), condition or "")


async def plans_inside(url: str, call: str) -> list[tuple[str, str]]:
    """The statements that a call has planned, each with its plan as the server prints it. Nothing stays of the call."""
    connection = await asyncpg.connect(url)
    heard: list[Any] = []
    try:
        connection.add_log_listener(lambda _, message: heard.append(message))
        await connection.execute("set debug_print_plan = on; set client_min_messages = log")
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(call)
        await transaction.rollback()
    finally:
        await connection.close()
    return [
        (" ".join((one.context or "").split()), " ".join(one.detail.split()))
        for one in heard
        if one.message == "plan:"
    ]
