-- Every statement of the SQLite store but the schema. Three marks are filled in by statements.py:
--
--   {run as json}, {step as json of s}   a json_object of every field of that record (of that table)
--   {run columns}, {run values}          the fields of that record, as a list of columns or of :parameters
--   {rows}                               values (?, …), (?, …), …: many rows bound by one call
--
-- A read gives one row of JSON arrays, and a write takes many rows, because every call of the driver gives up
-- the interpreter lock and may wait 5 ms for it under load: what counts is the number of calls. `limit ?` after
-- {rows} lets a batch of 180 use the cached statement for 192; rows beyond the limit are bound but never read.


-- --- a batch: what it starts from -------------------------------------------------------------------

-- name: data_version
-- Moves when another connection has committed anything at all: then what we remember is worth nothing.
pragma data_version;

-- name: last_commit
-- Asked only when the last commit was not ours: its number; what code the file needs by now, because whoever wrote may
-- have migrated it; the last position; which events have more runs to resume; which of the engine's facts are awaited.
select
    coalesce(max(number), 0),
    (select value from meta where name = 'min_code'),
    (select coalesce(max(position), 0) from events),
    (select json_group_array(position) from (select position from fan_outs order by position)),
    (select json_group_array(value) from json_each(:facts) where exists (
        select 1 from watchers where kind = 'topic' and target = value and target <> ''
     ))
from commits;

-- name: prefetch_runs
-- All that plain step results need.
select json_group_array({run as json}) from runs where run_id in (select value from json_each(:runs));

-- name: prefetch
-- Everything the ops of a batch will look at, in one call. `inside` are runs whose waits, watchers and signals
-- matter, `targets` are runs that end, `waits` are (run, path) of steps, `parents` are runs whose children are asked.
with waiters (run_id) as materialized (
    select distinct run_id from watchers
    where kind = 'run' and target <> '' and target in (select value from json_each(:targets))
),
concerned (run_id) as materialized (
    select value from json_each(:inside) union select run_id from waiters
)
select
    (select json_group_array({run as json}) from runs
     where run_id in (select value from json_each(:runs) union select run_id from waiters)),
    (select json_group_array({watcher as json}) from watchers
     where run_id in (select run_id from concerned)),
    (select json_group_array({signal as json}) from signals
     where run_id in (select value from json_each(:inside))),
    (select json_group_array({step as json of s})
     from concerned as c cross join watchers as w on w.run_id = c.run_id
     cross join steps as s
         on s.run_id = w.run_id and s.generation = w.generation and s.path = w.path and s.superseded = 0),
    (select json_group_array({step as json of s})
     from json_each(:waits) as w cross join runs as r on r.run_id = w.value ->> 0
     cross join steps as s
         on s.run_id = r.run_id and s.generation = r.generation and s.path = w.value ->> 1
         and s.superseded = 0),
    (select json_group_array({key as json of k})
     from json_each(:keys) as w cross join keys as k on k.scope = w.value ->> 0 and k.key = w.value ->> 1),
    (select json_group_array({watcher as json}) from watchers
     where kind = 'run' and target <> '' and target in (select value from json_each(:targets))),
    (select json_group_array(json_array(parent_run_id, run_id)) from runs
     where parent_run_id in (select value from json_each(:parents)) and finished_at is null),
    (select json_group_array({cursor as json}) from cursors
     where run_id in (select value from json_each(:seeing)));


-- --- a batch: rows that were not prefetched ----------------------------------------------------------

-- name: step
-- The living row of a path.
select json_group_array({step as json}) from steps
where run_id = :run_id and generation = :generation and path = :path and superseded = 0;

-- name: steps
-- A whole generation, with what was superseded: only retry asks.
select json_group_array({step as json}) from steps where run_id = :run_id and generation = :generation;

-- name: retrying_steps
-- The steps between two attempts.
select json_group_array({step as json}) from steps
where run_id = :run_id and generation = :generation and state = 'retrying' and superseded = 0;

-- name: watchers
-- What one run waits for.
select json_group_array({watcher as json}) from watchers where run_id = :run_id;

-- name: watchers_on_run
-- Who waits for one run to end.
select json_group_array({watcher as json}) from watchers
where kind = 'run' and target <> '' and target = :run_id;

-- name: cursors
-- How far one run has seen topics.
select json_group_array({cursor as json}) from cursors where run_id = :run_id;

-- name: streams
-- How far the streams of some runs have come.
select json_group_array({stream as json}) from streams
where run_id in (select value from json_each(:run_ids));

-- name: places_watched
-- Whether anybody waits for a topic or queue: some who do.
select json_group_array(json_array(run_id, path, ix)) from (
    select run_id, path, ix from watchers where kind = :kind and target = :target and target <> ''
    limit :limit
);

-- name: topic_watchers
-- Two walks along one index, for any entity and for the event's own, each no longer than asked for; then merged by
-- age. Those that the event came too early or too late for are stepped over.
select json_group_array({watcher as json}) from (
    select * from (
        select * from watchers
        where kind = 'topic' and target = :topic and target <> '' and entity = ''
        and after < :position and (deadline_at is null or deadline_at >= :recorded_at)
        order by opened_at, run_id, path, ix limit :limit
    )
    union all
    select * from (
        select * from watchers
        where kind = 'topic' and target = :topic and target <> '' and entity = :entity and :entity <> ''
        and after < :position and (deadline_at is null or deadline_at >= :recorded_at)
        order by opened_at, run_id, path, ix limit :limit
    )
    order by opened_at, run_id, path, ix limit :limit
);

-- name: queue_watchers
-- Who has waited longest for a queue. A wait past its deadline takes nothing any more.
select json_group_array({watcher as json}) from (
    select * from watchers
    where kind = 'queue' and target = :queue and target <> '' and entity = ''
    and (deadline_at is null or deadline_at >= :now)
    order by opened_at, run_id, path, ix limit :limit
);

-- name: first_items
-- The oldest items of a queue that were put by then.
select json_group_array({item as json}) from (
    select * from queue_items where queue = :queue and (:put_by is null or put_at <= :put_by)
    order by position limit :limit
);

-- name: event
-- One event by its id.
select json_group_array({event as json}) from events where event_id = :event_id;

-- name: event_at
-- One event by its place.
select json_group_array({event as json}) from events where position = :position;

-- name: last_of_topic
-- Where the newest event of a type is: one look at the end of its part of the index.
select max(position) from events where type = :type;

-- name: next_event
-- The first event of a topic after a position; {order} is "asc", or "desc" for the newest.
select json_group_array({event as json}) from (
    select * from events
    where type = :type and position > :after
    and (:recorded_by is null or recorded_at <= :recorded_by) and (:repeats or not repeated)
    order by position {order} limit 1
);

-- name: next_event_about
-- The same about one entity.
select json_group_array({event as json}) from (
    select * from events
    where type = :type and entity_type = :entity_type and entity_id = :entity_id
    and entity_type <> 'run' and position > :after
    and (:recorded_by is null or recorded_at <= :recorded_by) and (:repeats or not repeated)
    order by position {order} limit 1
);

-- name: next_event_about_run
-- The same about a run, whose timeline is short.
select json_group_array({event as json}) from (
    select * from events
    where +type = :type and entity_type = :entity_type and entity_id = :entity_id and position > :after
    and (:recorded_by is null or recorded_at <= :recorded_by) and (:repeats or not repeated)
    order by position {order} limit 1
);

-- name: started_under
-- How many runs the chain of one event has started; counted no further than asked.
select count(*) from (
    select 1 from runs where root_id = :root_id and root_id is not null limit :limit
);

-- name: consumer
-- One reader of the ledger.
select json_group_array({consumer as json}) from consumers where name = :name;

-- name: consumers
-- All readers of the ledger: a handful.
select json_group_array({consumer as json}) from consumers;

-- name: subscription
-- One rule.
select json_group_array({subscription as json}) from subscriptions where name = :name;

-- name: parked_event
-- One event that a consumer could not deal with.
select json_group_array({parked as json}) from parked
where consumer = :consumer and position = :position and subscription = :subscription;

-- name: deferred_start
-- One start that a bound has put off.
select json_group_array({deferred as json}) from deferred
where position = :position and subscription = :subscription;

-- name: oldest_needed
-- The first event that a parked or deferred row of some age still needs, or a rule that has to catch up with it.
select
    (select json_array(position, consumer) from parked
     where parked_at >= :idle_before order by position, consumer limit 1),
    (select json_array(position, subscription) from deferred
     where deferred_at >= :idle_before order by position, subscription limit 1),
    (select json_array(behind + 1, name) from subscriptions
     where behind is not null and enabled and max(
         created_at, coalesce((select advanced_at from consumers where name = :runner), 0)
     ) >= :idle_before
     order by behind, name limit 1);

-- name: schedule
-- One calendar.
select json_group_array({schedule as json}) from schedules where name = :name;

-- name: pool
-- One pool.
select json_group_array({pool as json}) from pools where name = :name;

-- name: slots_taken
-- Counted in an index of its own.
select count(*) from runs
where pool = :pool and pool <> '' and line_at is null and status in ('ready', 'running')
and (:key is null or pool_key = :key);

-- name: line_keys
-- The next keys of a line, found by hopping along its index, each with whether somebody of it is due whom the asker
-- knows, and how many slots it has taken.
with recursive found (place) as (
    select min(pool_key) from runs
    where pool = :pool and line_at is not null and (:after is null or pool_key > :after)
    union all
    select (select min(pool_key) from runs where pool = :pool and line_at is not null and pool_key > found.place)
    from found where found.place is not null
    limit :limit
)
select json_group_array(json_array(
    place,
    json(iif(exists (
        select 1 from runs indexed by runs_in_line
        where pool = :pool and pool_key = found.place and line_at is not null and line_at <= :now and admitted >= :begun
        and exists (
            select 1 from json_each(:workflows) as known
            where known.value ->> 0 = workflow and known.value ->> 1 = version
        )
    ), 'true', 'false')),
    (select count(*) from runs
     where pool = :pool and pool <> '' and line_at is null and status in ('ready', 'running') and pool_key = found.place)
)) from found where place is not null;

-- name: line_runs
-- The first in line of one key, in the order in which they are let through.
select json_group_array({run as json}) from (
    select * from runs
    where pool = :pool and pool_key = :key and line_at is not null and line_at <= :now and admitted >= :begun
    and exists (
        select 1 from json_each(:workflows) as known
        where known.value ->> 0 = workflow and known.value ->> 1 = version
    )
    order by admitted desc, priority desc, line_at, run_id limit :limit
);

-- name: idle_slots
-- Runs of a pool that may be claimed and nobody can or does: of all that are ready there.
select json_group_array({run as json}) from (
    select * from runs
    where pool = :pool and ready_at is not null and status = 'ready'
    and (ready_at > :now or (ready_at <= :since and not exists (
        select 1 from json_each(:workflows) as known
        where known.value ->> 0 = workflow and known.value ->> 1 = version
    )))
    order by ready_at, run_id limit :limit
);

-- name: due_schedules
-- Those whose time has come, by the index of when they are due; of workflows that nobody here knows there are few.
select json_group_array({schedule as json}) from (
    select * from schedules
    where due_at <= :now and workflow in (select value from json_each(:workflows))
    order by due_at, name limit :limit
);

-- name: next_schedule_at
-- When the next one is due: the low end of that index.
select (
    select due_at from schedules
    where due_at is not null and workflow in (select value from json_each(:workflows))
    order by due_at limit 1
);

-- name: first_position
-- The oldest event that is kept.
select coalesce(min(position), 1) from events;

-- name: recorded_at
-- When an event was recorded; its neighbour answers for one that is gone.
select recorded_at from events where position >= :position order by position limit 1;

-- name: channel
-- A topic or queue of the catalogue.
select json_group_array({channel as json}) from channels where kind = :kind and name = :name;

-- name: signals
-- What is buffered for one run.
select json_group_array({signal as json}) from signals where run_id = :run_id;

-- name: children
-- The children that live by the file; the working set knows which of them still do, and which do again.
select json_group_array(json_array(parent_run_id, run_id)) from runs
where parent_run_id = :run_id and finished_at is null;

-- name: key
-- One idempotency key.
select json_group_array({key as json}) from keys where scope = :scope and key = :key;

-- name: dead_letter
-- One dead letter.
select json_group_array({letter as json}) from dead_letters where dead_letter_id = :dead_letter_id;

-- name: dead_letters
-- The dead letters of one run.
select json_group_array({letter as json}) from dead_letters where run_id = :run_id;


-- --- a batch: questions that an index answers --------------------------------------------------------

-- name: ready_pools
-- The pools that have ready runs, found by hopping along the index from one to the next.
with recursive found (pool) as (
    select min(pool) from runs where ready_at is not null
    union all
    select (select min(pool) from runs where ready_at is not null and pool > found.pool)
    from found where found.pool is not null
)
select json_group_array(pool) from found where pool is not null;

-- name: ready_runs
-- Each known workflow in each pool is a walk along one index, no longer than asked for; then the first of each pool by
-- ready_at, then the second ones. Ready runs that nobody here knows, however many, are not even stepped over: this holds
-- the lock of all writers.
select json_group_array({run as json of r}) from (
    select id from (
        select id, ready_at, run_id, row_number() over (partition by pool order by ready_at, run_id) as nth from (
            select
                known.value ->> 0 as pool, found.value ->> 0 as ready_at, found.value ->> 1 as run_id,
                found.value ->> 2 as id
            from json_each(:places) as known cross join json_each((
                select json_group_array(json_array(ready_at, run_id, id)) from (
                    select ready_at, run_id, rowid as id from runs
                    where pool = known.value ->> 0 and workflow = known.value ->> 1
                    and version = known.value ->> 2 and ready_at <= :now
                    order by ready_at, run_id limit :limit
                )
            )) as found
        )
    )
    order by nth, ready_at, run_id limit :limit
) as first cross join runs as r on r.rowid = first.id;

-- name: next_ready_at
-- The first ready run of these pools and workflows that is not due yet: one look for each.
select min((
    select min(ready_at) from runs
    where pool = known.value ->> 0 and workflow = known.value ->> 1 and version = known.value ->> 2 and ready_at > :now
)) from json_each(:places) as known;

-- name: running_owners
-- Who is said to run something, and the lease of each: a handful. Read from the index by status alone.
select json_group_array(json_array(
    owner, (select lease_until from workers where worker_id = owner)
)) from (select distinct owner from runs where status = 'running');

-- name: orphans
-- Running runs of these owners, or of nobody.
select json_group_array({run as json}) from (
    select * from runs
    where status = 'running' and (owner is null or owner in (select value from json_each(:owners)))
    order by run_id limit :limit
);

-- name: finished_before
-- The oldest ends first. A run that living ones still refer to stays: its id could be used anew, and what they
-- mean would become another run's.
select json_group_array(run_id) from (
    select run_id from runs
    where finished_at < :at
    and not exists (
        select 1 from watchers as w where w.kind = 'run' and w.target = runs.run_id and w.target <> ''
    )
    and not exists (
        select 1 from runs as c where c.parent_run_id = runs.run_id and c.finished_at is null
    )
    order by finished_at, run_id limit :limit
);

-- name: due_watchers
-- Deadlines that have passed, earliest first.
select json_group_array({watcher as json}) from (
    select * from watchers where deadline_at <= :now and held = 0
    order by deadline_at, run_id, path, ix limit :limit
);

-- name: expired_signals
-- Buffered signals whose time has run out.
select json_group_array({signal as json}) from (
    select * from signals where expires_at < :now order by expires_at, position limit :limit
);

-- name: next_deadline
-- Two looks at the low end of two indexes.
select
    (select min(deadline_at) from watchers where deadline_at is not null and held = 0),
    (select min(expires_at) from signals where expires_at is not null);


-- --- a batch: writing the net change -----------------------------------------------------------------

-- name: insert_runs
-- New runs; that none exists under the id was seen in this transaction.
insert into runs ({run columns}) select * from ({rows}) limit ?;

-- name: insert_plain_runs
-- A run that was just started, with no tags, entity, key or parent: a third of the columns to bind.
insert into runs (
    run_id, workflow, version, status, input, created_at, owner, fence, ready_at, position,
    generation, revision, pause_requested, cancel_requested, depth
)
select *, 0, 0, 0, 0, 0 from ({rows}) limit ?;

-- name: end_runs
-- Completed, or parked and let go: nobody owns it any more. A third of the binding of change_runs.
update runs set status = v.column2, finished_at = v.column3, output = v.column4, owner = null, fence = 0
from (select * from ({rows}) limit ?) as v
where runs.run_id = v.column1;

-- name: move_runs
-- Parked and woken: the moves of a healthy run between its start and its end.
update runs set status = v.column2, owner = v.column3, fence = v.column4, revision = v.column5
from (select * from ({rows}) limit ?) as v
where runs.run_id = v.column1;

-- name: ready_runs_move
-- Handed to whoever claims next, and claimed: of the rarer columns only that index moves.
update runs set status = v.column2, owner = v.column3, fence = v.column4, revision = v.column5, ready_at = v.column6
from (select * from ({rows}) limit ?) as v
where runs.run_id = v.column1;

-- name: change_runs
-- All that ever changes but continue_as. Workflow, input and creation are not named, so their indexes rest.
update runs set
    status = v.column2, owner = v.column3, fence = v.column4, revision = v.column5, ready_at = v.column6,
    finished_at = v.column7, output = v.column8, error = v.column9, reason = v.column10,
    pause_requested = v.column11, cancel_requested = v.column12, published = v.column13, line_at = v.column14,
    admitted = v.column15
from (select * from ({rows}) limit ?) as v
where runs.run_id = v.column1;

-- name: forget_runs
-- Before a run is written anew from end to end (continue_as); nothing refers to its rowid.
delete from runs where run_id in (select value from json_each(:run_ids));

-- name: insert_steps
-- A second checkpoint of a path breaks the unique index, and with it the batch.
insert into steps ({step columns}) select * from ({rows}) limit ?;

-- name: insert_plain_steps
-- The hot statement: a step that was done at its first attempt. Half the columns, half the binding.
insert into steps (
    run_id, generation, path, name, seq, value, started_at, recorded_at, kind, state, attempt, superseded
)
select *, 'step', 'done', 1, 0 from ({rows}) limit ?;

-- name: insert_open_waits
-- A wait that begins.
insert into steps (
    run_id, generation, path, kind, name, wait, started_at, state, seq, attempt, superseded
)
select *, 'open', 0, 1, 0 from ({rows}) limit ?;

-- name: decide_waits
-- A wait that has a row, ended by its winner.
update steps set
    state = v.column4, seq = v.column5, value = v.column6, error = v.column7, winner = v.column8,
    recorded_at = v.column9, taken_id = v.column10
from (select * from ({rows}) limit ?) as v
where steps.run_id = v.column1 and steps.generation = v.column2 and steps.path = v.column3
and steps.superseded = 0;

-- name: put_steps
-- A step that may or may not have a row: mostly a later attempt of a retried one.
insert into steps ({step columns}) select * from ({rows}) where true limit ?
on conflict (run_id, generation, path, superseded) do update set
    kind = excluded.kind, name = excluded.name, state = excluded.state, seq = excluded.seq,
    value = excluded.value, error = excluded.error, attempt = excluded.attempt, winner = excluded.winner,
    wait = excluded.wait, started_at = excluded.started_at, recorded_at = excluded.recorded_at,
    retry_at = excluded.retry_at, taken_id = excluded.taken_id;

-- name: supersede_step
-- The living row takes the next number of its path and is never found by path again.
update steps set
    state = 'superseded',
    superseded = (
        select max(s.superseded) + 1 from steps as s
        where s.run_id = :run_id and s.generation = :generation and s.path = :path
    )
where run_id = :run_id and generation = :generation and path = :path and superseded = 0;

-- name: delete_steps_before
-- Histories of past generations; `before` are (run, generation).
delete from steps where rowid in (
    select s.rowid from json_each(:before) as b
    cross join steps as s on s.run_id = b.value ->> 0 and s.generation < b.value ->> 1
);

-- name: insert_watchers
-- Open waits.
insert into watchers ({watcher columns}) select * from ({rows}) limit ?;

-- name: insert_plain_watchers
-- Those on anything but a topic.
insert into watchers (
    run_id, path, ix, generation, kind, target, opened_at, deadline_at, deadline_ix, entity, after, filter, held, asks
)
select *, '', 0, '', 0, '' from ({rows}) limit ?;

-- name: delete_watchers
-- By whole keys, so that only what this batch knows of goes.
delete from watchers where (run_id, path, ix) in (select * from ({rows}) limit ?);

-- name: insert_signals
-- Signals nobody waited for.
insert into signals ({signal columns}) select * from ({rows}) limit ?;

-- name: delete_signals
-- Taken, replaced, expired or discarded.
delete from signals where signal_id in (select value from json_each(:signal_ids));

-- name: insert_keys
-- Each was looked for in this transaction.
insert into keys ({key columns}) select * from ({rows}) limit ?;

-- name: insert_events
-- Positions were given in order; the ledger never changes a row.
insert into events (
    position, event_id, type, entity_type, entity_id, payload, caused_by, root_id, depth, key, trace, repeated,
    occurred_at, recorded_at
)
select * from ({rows}) limit ?;

-- name: insert_plain_events
-- Facts without a cause and a chain, which are nearly all the engine's own.
insert into events (
    position, event_id, type, entity_type, entity_id, payload, occurred_at, recorded_at, depth
)
select *, column7, 0 from ({rows}) limit ?;

-- name: put_cursors
-- A branch has seen a topic up to here.
insert into cursors ({cursor columns}) select * from ({rows}) where true limit ?
on conflict (run_id, branch, topic, entity, filter) do update set position = excluded.position;

-- name: put_streams
-- A stream has come so far.
insert into streams ({stream columns}) select * from ({rows}) where true limit ?
on conflict (run_id, stream) do update set last = excluded.last, bytes_all = excluded.bytes_all;

-- name: insert_stream_items
-- What runs have published.
insert into stream_items ({stream_item columns}) select * from ({rows}) limit ?;

-- name: trim_streams
-- Of each stream what lies before the first item that is kept: (run, stream, least position, least bytes before it).
-- Both grow along the stream, so that no more is looked at than goes.
delete from stream_items where rowid in (
    select i.rowid from json_each(:floors) as f
    cross join stream_items as i
        on i.run_id = f.value ->> 0 and i.stream = f.value ->> 1 and i.position < (
            select k.position from stream_items as k
            where k.run_id = f.value ->> 0 and k.stream = f.value ->> 1 and k.position >= f.value ->> 2
            and k.bytes_before >= f.value ->> 3
            order by k.position limit 1
        )
);

-- name: insert_items
-- Items nobody waited for.
insert into queue_items ({item columns}) select * from ({rows}) limit ?;

-- name: delete_items
-- Taken or purged.
delete from queue_items where item_id in (select value from json_each(:item_ids));

-- name: write_outbox
-- A send, by the caller's own connection, which knows no named parameters of ours: in the order of the record.
insert into main.outbox ({outbox columns}) values (?, ?, ?);

-- name: has_outbox
-- Whether anything came with a transaction of a caller's.
select exists (select 1 from outbox);

-- name: kept_outbox
-- Which of these sends are still to be applied.
select json_group_array(outbox_id) from outbox where outbox_id in (select value from json_each(:outbox_ids));

-- name: delete_outbox
-- Applied.
delete from outbox where outbox_id in (select value from json_each(:outbox_ids));

-- name: insert_fan_out
-- An event has more runs to resume.
insert or ignore into fan_outs (position) values (:position);

-- name: delete_fan_out
-- All are resumed.
delete from fan_outs where position = :position;

-- name: allow_retention
-- The trigger lets deletes pass while this row is there, within the transaction.
insert or replace into meta (name, value) values ('retention', '');

-- name: trim_events
-- The oldest events, never the newest one: the next position must not be given twice.
delete from events where position <= :upto and position < (select max(position) from events);

-- name: forbid_retention
-- The ledger is append-only again.
delete from meta where name = 'retention';

-- name: expire_keys
-- Keys whose time has run out, the oldest first.
delete from keys where (scope, key) in (
    select scope, key from keys where expires_at <= :now order by expires_at limit :limit
);

-- name: put_consumer
-- A cursor moves, or its owner changes.
insert or replace into consumers ({consumer columns}) values ({consumer values});

-- name: delete_consumer
-- A reader goes.
delete from consumers where name = :name;

-- name: delete_parked_of
-- And what it could not deal with.
delete from parked where consumer = :name;

-- name: put_subscription
-- A rule is made or changed.
insert or replace into subscriptions ({subscription columns}) values ({subscription values});

-- name: delete_subscription
-- A rule goes.
delete from subscriptions where name = :name;

-- name: delete_deferred_of
-- And what it had put off.
delete from deferred where subscription = :name;

-- name: put_schedule
-- A calendar is made or changed, or has ticked.
insert or replace into schedules ({schedule columns}) values ({schedule values});

-- name: put_pool
-- Limits are changed seldom, and at once.
insert or replace into pools ({pool columns}) values ({pool values});

-- name: delete_schedule
-- A calendar goes.
delete from schedules where name = :name;

-- name: put_parked
-- An event could not be dealt with.
insert or replace into parked ({parked columns}) values ({parked values});

-- name: delete_parked
-- It was fired anew, or dropped.
delete from parked where consumer = :consumer and position = :position and subscription = :subscription;

-- name: put_deferred
-- A start is put off.
insert or replace into deferred ({deferred columns}) values ({deferred values});

-- name: delete_deferred
-- It was started, or dropped.
delete from deferred where position = :position and subscription = :subscription;

-- name: insert_dead_letters
-- Signals that nobody can take any more. A letter that a retry put back was deleted then, so it may die again.
insert into dead_letters ({letter columns}) select * from ({rows}) limit ?;

-- name: delete_dead_letters
-- Sent again or put back.
delete from dead_letters where dead_letter_id in (select value from json_each(:dead_letter_ids));

-- name: delete_key
-- A claim is free again: what had it was rejected, or outlived its time.
delete from keys where scope = :scope and key = :key;

-- name: insert_commit
-- The proof that the batch happened, in its own transaction.
insert into commits (number, batch_id, at) values (:number, :batch_id, :at);

-- name: prune_commits
-- Only fresh batches are ever settled. The newest row always stays: its number must not be given twice.
delete from commits where number < :number;


-- --- a batch: pruning whole runs ---------------------------------------------------------------------

-- name: delete_steps_of
-- All generations.
delete from steps where run_id in (select value from json_each(:run_ids));

-- name: delete_watchers_of
-- An ended run has none; a broken one might.
delete from watchers where run_id in (select value from json_each(:run_ids));

-- name: delete_signals_of
-- Likewise.
delete from signals where run_id in (select value from json_each(:run_ids));

-- name: delete_cursors_of
-- How far it had seen topics.
delete from cursors where run_id in (select value from json_each(:run_ids));

-- name: delete_streams_of
-- How far its streams had come.
delete from streams where run_id in (select value from json_each(:run_ids));

-- name: delete_stream_items_of
-- What it had published.
delete from stream_items where run_id in (select value from json_each(:run_ids));

-- name: delete_keys_of
-- Keys live as long as their run.
delete from keys where run_id in (select value from json_each(:run_ids));

-- name: delete_dead_letters_of
-- Letters too.
delete from dead_letters where run_id in (select value from json_each(:run_ids));


-- --- workers and catalogue ---------------------------------------------------------------------------

-- name: workers
-- All that have come and not said goodbye; few, and looked at only when another one comes.
select json_group_array(worker_id) from workers;

-- name: worker
-- Whether that worker has a row, and until when its lease runs.
select lease_until from workers where worker_id = :worker_id;

-- name: put_worker
-- The first beat makes the row, the others move the lease.
insert into workers (worker_id, started_at, lease_until, workflows)
values (:worker_id, :started_at, :lease_until, :workflows)
on conflict (worker_id) do update set lease_until = excluded.lease_until, workflows = excluded.workflows;

-- name: prolong_lease
-- A beat between batches; a worker that was taken for dead does not come to life again.
update workers set lease_until = :lease_until where worker_id = :worker_id;

-- name: delete_worker
-- It stopped, or was found dead.
delete from workers where worker_id = :worker_id;

-- name: workflow
-- A line of the catalogue.
select json_group_array({workflow as json}) from workflows where name = :name and version = :version;

-- name: put_workflow
-- Changes nothing, and counts nothing, when the line stands there just so.
insert into workflows ({workflow columns}) values ({workflow values})
on conflict (name, version) do update set
    input_schema = excluded.input_schema, output_schema = excluded.output_schema,
    signals = excluded.signals, strict_signals = excluded.strict_signals, cancel_on = excluded.cancel_on,
    pool = excluded.pool, play = excluded.play
where (input_schema, output_schema, signals, strict_signals, cancel_on, pool, play) is not (
    excluded.input_schema, excluded.output_schema, excluded.signals, excluded.strict_signals, excluded.cancel_on,
    excluded.pool, excluded.play
);


-- name: put_channel
-- Changes nothing, and counts nothing, when the line stands there just so.
insert into channels ({channel columns}) values ({channel values})
on conflict (kind, name) do update set
    schema = excluded.schema, enforce = excluded.enforce, repeats = excluded.repeats
where (schema, enforce, repeats) is not (excluded.schema, excluded.enforce, excluded.repeats);


-- --- reads -------------------------------------------------------------------------------------------

-- name: settled
-- Whether a batch was committed.
select exists (select 1 from commits where batch_id = :batch_id);

-- name: load
-- Runs and the living rows of their present generation, from one snapshot.
select
    (select json_group_array({run as json}) from runs
     where run_id in (select value from json_each(:run_ids))),
    (select json_group_array({step as json of s})
     from json_each(:run_ids) as w cross join runs as r on r.run_id = w.value
     cross join steps as s on s.run_id = r.run_id and s.generation = r.generation
     where s.superseded = 0);

-- name: revisions
-- How far others have changed the runs that are at work here. One that was ended keeps its revision: it is left out.
select json_group_object(run_id, revision) from runs
where run_id in (select value from json_each(:run_ids)) and finished_at is null;

-- name: ended
-- Which of the awaited runs are over, in one look for all who await here.
select json_group_array({run as json}) from runs
where run_id in (select value from json_each(:run_ids)) and finished_at is not null;

-- name: look
-- What a worker asks for once a second: looks at the low ends of four indexes, in that of runs to claim one for each
-- workflow that the asker knows (only for one who asks for all, as no worker does, it is read from end to end); both
-- ends of the ledger; who owns what runs, from the index by status alone; workers and consumers, a handful.
select
    (select min(deadline_at) from watchers where deadline_at is not null and held = 0),
    (select min(expires_at) from signals where expires_at is not null),
    iif(:workflows is null,
        (select min(ready_at) from runs where ready_at is not null),
        (with recursive found (pool) as (
            select min(pool) from runs where ready_at is not null
            union all
            select (select min(pool) from runs where ready_at is not null and pool > found.pool)
            from found where found.pool is not null
         )
         select min((
            select min(ready_at) from runs
            where pool = found.pool and workflow = known.value ->> 0 and version = known.value ->> 1
            and ready_at is not null
         ))
         from found cross join json_each(:workflows) as known
         where found.pool is not null
         and (:pools is null or found.pool in (select value from json_each(:pools))))),
    exists (select 1 from fan_outs),
    exists (select 1 from outbox),
    (select due_at from schedules
     where due_at is not null
     and (:workflows is null or workflow in (select value ->> 0 from json_each(:workflows)))
     order by due_at limit 1),
    (select coalesce(min(position), 1) from events),
    (select coalesce(max(position), 0) from events),
    (select json_group_array(owner) from (select distinct owner from runs where status = 'running')),
    (select json_group_array(json_array(worker_id, lease_until)) from workers),
    (select json_group_array({consumer as json}) from consumers),
    (with recursive standing (name) as (
        select min(pool) from runs where line_at is not null
        union all
        select (select min(pool) from runs where line_at is not null and pool > standing.name)
        from standing where standing.name is not null
    )
    select json_group_array(json_object(
        'name', name,
        'pool', json((select {pool as json of p} from pools as p where p.name = standing.name)),
        'oldest_at', (select min(line_at) from runs where pool = standing.name and line_at is not null),
        'begun', json(iif(exists (
            select 1 from runs indexed by runs_begun_in_line
            where pool = standing.name and line_at is not null and admitted = 1
        ), 'true', 'false')),
        'taken', (select count(*) from runs
            where pool = standing.name and pool <> '' and line_at is null and status in ('ready', 'running')),
        'state', (select answer from keys where scope = 'line' and key = standing.name)
    )) from standing where name is not null);

-- name: page_outbox
-- Sends that callers have committed, by id.
select json_group_array({outbox as json}) from (
    select * from outbox where outbox_id > :after order by outbox_id limit :limit
);

-- name: sweep
-- The next parked runs by age, each with whether it waits for anything: what stands over it does not wake it to go on.
-- Two walks along the index by status.
with place (created_at, run_id) as materialized (
    select coalesce((select created_at from runs where run_id = :after), -1), :after
),
parked (run_id, created_at) as (
    select run_id, created_at from (
        select run_id, created_at from runs
        where status = 'waiting' and (created_at, run_id) > (select created_at, run_id from place)
        order by created_at, run_id limit :limit
    )
    union all
    select run_id, created_at from (
        select run_id, created_at from runs
        where status = 'sleeping' and (created_at, run_id) > (select created_at, run_id from place)
        order by created_at, run_id limit :limit
    )
)
select json_group_array(json_array(run_id, watches)) from (
    select run_id, exists (
        select 1 from watchers as w where w.run_id = parked.run_id and w.path not in ('!deadline', '!cancel_on')
        and w.kind not in ('alarm', 'asked')
    ) as watches
    from parked order by created_at, run_id limit :limit
);

-- name: catalogue
-- The whole catalogue; it is small.
select json_group_array({workflow as json}) from workflows;

-- name: run
-- One run.
select json_group_array({run as json}) from runs where run_id = :run_id;

-- name: history
-- Everything recorded for one run.
select json_group_array({step as json}) from steps where run_id = :run_id;

-- name: history_page
-- What is decided after a place, in the order of the decisions. No index has that order: one more to keep up with each
-- step would cost all runs, and this one is for people.
select json_group_array({step as json}) from (
    select * from steps
    where run_id = :run_id and seq > 0 and (generation, seq, path) > (:generation, :seq, :path)
    order by generation, seq, path limit :limit
);

-- name: history_open
-- What is open of one run.
select json_group_array({step as json}) from (
    select * from steps where run_id = :run_id and seq = 0 order by generation, path
);

-- name: page_steps
-- The history in parts, by its unique index: of a run with more of it than one text holds.
select json_group_array({step as json}) from (
    select * from steps
    where run_id = :run_id and (generation, path, superseded) > (:generation, :path, :superseded)
    order by generation, path, superseded limit :limit
);

-- name: find_waiting
-- One index gives them by target, longest waiting first.
select json_group_array({watcher as json}) from (
    select * from watchers
    where kind = 'signal' and target <> '' and target = :signal and entity = ''
    and (opened_at, run_id, path, ix) > (:opened_at, :run_id, :path, :ix)
    and (:opened_before is null or opened_at < :opened_before)
    order by opened_at, run_id, path, ix limit :limit
);

-- name: waiting_for_topic
-- Who waits for a topic, with a filter or without, whatever the entity: all of one topic are sorted by age.
select json_group_array({watcher as json}) from (
    select * from watchers
    where kind in ('topic', 'match') and target <> '' and target = :topic
    and (opened_at, run_id, path, ix) > (:opened_at, :run_id, :path, :ix)
    order by opened_at, run_id, path, ix limit :limit
);

-- name: approvals
-- Those that can be answered, longest waiting first, by an index of their own.
select json_group_array({watcher as json}) from (
    select * from watchers
    where kind = 'approval' and (opened_at, run_id, path, ix) > (:opened_at, :run_id, :path, :ix)
    order by opened_at, run_id, path, ix limit :limit
);

-- name: matches
-- Watchers that a filter must be asked about, in the order of the index by target.
select json_group_array({watcher as json}) from (
    select * from watchers
    where kind = 'match' and target <> ''
    and (target, entity, opened_at, run_id, path, ix) > (:target, :entity, :opened_at, :run_id, :path, :ix)
    order by target, entity, opened_at, run_id, path, ix limit :limit
);

-- name: page_items
-- What is in a queue, oldest first.
select json_group_array({item as json}) from (
    select * from queue_items where queue = :queue and position > :after order by position limit :limit
);

-- name: page_stream_items
-- What is kept of a stream, in order.
select json_group_array({stream_item as json}) from (
    select * from stream_items where run_id = :run_id and stream = :stream and position > :after
    order by position limit :limit
);

-- name: stream_spans
-- The streams of a run, each with where it begins and ends.
select json_group_array(json_object(
    'stream', s.stream,
    'first', (select min(i.position) from stream_items as i where i.run_id = s.run_id and i.stream = s.stream),
    'last', s.last
)) from streams as s where s.run_id = :run_id;

-- name: queue_counts
-- Every queue that holds something, read from its index.
select json_group_object(queue, n) from (
    select queue, count(*) as n from queue_items group by queue order by queue
);

-- name: span
-- The oldest event that is kept, and the newest: the two ends of the table.
select (select coalesce(min(position), 1) from events), (select coalesce(max(position), 0) from events);

-- name: all_channels
-- The topics and queues of the catalogue.
select json_group_array({channel as json}) from channels;

-- name: all_subscriptions
-- All rules.
select json_group_array({subscription as json}) from subscriptions;

-- name: all_pools
-- All there are.
select json_group_array({pool as json}) from (select * from pools order by name);

-- name: lines
-- The pools in whose line somebody stands, found by hopping along its index.
with recursive standing (name) as (
    select min(pool) from runs where line_at is not null
    union all
    select (select min(pool) from runs where line_at is not null and pool > standing.name)
    from standing where standing.name is not null
)
select json_group_array(json_object(
    'name', name,
    'pool', json((select {pool as json of p} from pools as p where p.name = standing.name)),
    'oldest_at', (select min(line_at) from runs where pool = standing.name and line_at is not null),
    'begun', json(iif(exists (
        select 1 from runs indexed by runs_begun_in_line
        where pool = standing.name and line_at is not null and admitted = 1
    ), 'true', 'false')),
    'taken', (select count(*) from runs
        where pool = standing.name and pool <> '' and line_at is null and status in ('ready', 'running')),
    'state', (select answer from keys where scope = 'line' and key = standing.name)
)) from standing where name is not null;

-- name: standing
-- How things stand in one pool, and for some keys of it.
select
    (select count(*) from runs
     where pool = :pool and pool <> '' and line_at is null and status in ('ready', 'running')),
    (select count(*) from runs where pool = :pool and line_at is not null),
    (select min(line_at) from runs where pool = :pool and line_at is not null),
    (select answer from keys where scope = 'line' and key = :pool),
    (select json_group_array(json_array(
        value,
        (select count(*) from runs
         where pool = :pool and pool <> '' and line_at is null and status in ('ready', 'running') and pool_key = value),
        (select answer from keys where scope = 'rate/' || :pool and key = value)
    )) from json_each(:keys));

-- name: page_line
-- Who stands in a line, oldest first.
select json_group_array({run as json}) from (
    select * from runs
    where pool = :pool and line_at is not null and (line_at, run_id) > (:line_at, :run_id)
    order by line_at, run_id limit :limit
);

-- name: page_schedules
-- Calendars by name.
select json_group_array({schedule as json}) from (
    select * from schedules where name > :after order by name limit :limit
);

-- name: known_keys
-- Which of these keys were used.
select json_group_array(k.key) from json_each(:keys) as w
cross join keys as k on k.scope = :scope and k.key = w.value
where k.expires_at is null or k.expires_at > :now;

-- name: used_key
-- One key, unless it has run out.
select json_group_array({key as json}) from keys
where scope = :scope and key = :key and (expires_at is null or expires_at > :now);

-- name: keys_have_expired
-- One look at the low end of an index.
select exists (select 1 from keys where expires_at <= :now);

-- name: vitals
-- Counted no further than a bound; the index of ready runs is read from end to end, for people who ask now and then.
select
    (select count(*) from (
        select 1 from watchers where deadline_at <= :now and held = 0 limit :limit)),
    (select min(ready_at) from runs where ready_at is not null and ready_at <= :now),
    (select count(*) from (select 1 from parked limit :limit)),
    (select count(*) from (select 1 from deferred limit :limit)),
    (select count(*) from (select 1 from dead_letters limit :limit)),
    (select min(due_at) from schedules where due_at is not null);

-- name: living_workers
-- All that have a row; whether they live, their locks say.
select json_group_array({worker as json}) from workers;

-- name: backlog
-- Found by hopping along the index of runs to be claimed, from one version of a workflow to the next; each is counted no
-- further than a bound.
with recursive place (pool, workflow, version) as (
    select * from (
        select pool, workflow, version from runs where ready_at is not null order by pool, workflow, version limit 1
    )
    union all
    select next.value ->> 0, next.value ->> 1, next.value ->> 2 from place
    cross join json_each(json_array(coalesce(
        (select json_array(r.pool, r.workflow, r.version) from runs as r
         where r.ready_at is not null and r.pool = place.pool and r.workflow = place.workflow
         and r.version > place.version order by r.version limit 1),
        (select json_array(r.pool, r.workflow, r.version) from runs as r
         where r.ready_at is not null and r.pool = place.pool and r.workflow > place.workflow
         order by r.workflow, r.version limit 1),
        (select json_array(r.pool, r.workflow, r.version) from runs as r
         where r.ready_at is not null and r.pool > place.pool order by r.pool, r.workflow, r.version limit 1)
    ))) as next
    where next.value is not null
)
select json_group_array(json_array(workflow, version, count, oldest)) from (
    select
        p.workflow, p.version,
        (select count(*) from (
            select 1 from runs as r
            where r.pool = p.pool and r.workflow = p.workflow and r.version = p.version
            and r.ready_at is not null and r.ready_at <= :now limit :limit)) as count,
        (select min(r.ready_at) from runs as r
         where r.pool = p.pool and r.workflow = p.workflow and r.version = p.version
         and r.ready_at is not null) as oldest
    from place as p
) where count > 0;

-- name: page_parked
-- Parked events from a place on, up to the last of one consumer or of all.
select json_group_array({parked as json}) from (
    select * from parked
    where (consumer, position, subscription) > (:consumer, :position, :subscription)
    and consumer <= :last
    order by consumer, position, subscription limit :limit
);

-- name: page_deferred
-- Starts that were put off.
select json_group_array({deferred as json}) from (
    select * from deferred where (position, subscription) > (:position, :subscription)
    order by position, subscription limit :limit
);

-- name: page_events_by_time
-- The ledger by when things happened.
select json_group_array({event as json}) from (
    select * from events where (occurred_at, position) > (:occurred_at, :position)
    order by occurred_at, position limit :limit
);

-- name: page_timeline
-- What happened to one entity, in that order.
select json_group_array({event as json}) from (
    select * from events
    where entity_type = :entity_type and entity_id = :entity_id
    and (occurred_at, position) > (:occurred_at, :position)
    order by occurred_at, position limit :limit
);

-- name: signal
-- Where a signal is: in the buffer, among the dead letters, or told of on the ledger under its own id.
select
    (select json_group_array({signal as json}) from signals where signal_id = :signal_id),
    (select json_group_array({letter as json}) from dead_letters where dead_letter_id = :signal_id),
    (select json_group_array({event as json}) from events where event_id = :signal_id);

-- name: page_dead_letters
-- By id.
select json_group_array({letter as json}) from (
    select * from dead_letters where dead_letter_id > :after order by dead_letter_id limit :limit
);

-- name: page_dead_letters_of_run
-- By id, of one run.
select json_group_array({letter as json}) from (
    select * from dead_letters where run_id = :run_id and dead_letter_id > :after
    order by dead_letter_id limit :limit
);

-- name: page_events
-- The ledger in its order; {narrowed} is nothing, or one or both of the next two.
select json_group_array({event as json}) from (
    select * from events where position > :after {narrowed} order by position limit :limit
);

-- name: events_of_type
-- Found in order by the index by type.
and type = :type

-- name: events_of_entity
-- A timeline is short: the index by entity finds it, then it is sorted.
and entity_type = :entity_type and entity_id = :entity_id

-- name: page_runs
-- Newest first; {narrowed} is any of the following, and the first of them that has an index leads.
select json_group_array({run as json}) from (
    select * from runs where {narrowed} order by created_at desc, run_id desc limit :limit
);

-- name: runs_all
-- No condition at all.
true

-- name: runs_after
-- The page after the last run seen.
(created_at, run_id) < (:after_created_at, :after_run_id)

-- name: runs_created_from
-- From this time on.
created_at >= :created_from

-- name: runs_created_before
-- Before this time.
created_at < :created_before

-- name: runs_of_workflow
-- Of one workflow, any version.
workflow = :workflow

-- name: runs_of_workflow_too
-- The same, but never by its index (that is what the plus does): the index by status leads.
+workflow = :workflow

-- name: runs_of_entity
-- About one entity.
entity_type = :entity_type and entity_id = :entity_id

-- name: runs_of_parent
-- Started by one run.
parent_run_id = :parent_run_id

-- name: runs_of_statuses
-- Several statuses as several walks along one index, each no longer than a page; else all would be sorted.
-- {narrowed} is the rest of the conditions.
rowid in (
    select found.value from json_each(:statuses) as asked cross join json_each((
        select json_group_array(page.id) from (
            select rowid as id from runs where status = asked.value and {narrowed}
            order by created_at desc, run_id desc limit :limit
        ) as page
    )) as found
)

-- name: runs_of_status
-- When another index leads, the status is only compared.
status in (select value from json_each(:statuses))

-- name: runs_tagged
-- Within what the other conditions leave; any value when none is given.
exists (
    select 1 from json_each(runs.tags) as t
    where t.key = :tag_name and (:tag_value is null or t.value = :tag_value)
)

-- name: counts
-- By status from its index, every other table by its smallest one.
select
    (select json_group_object(status, n) from (select status, count(*) as n from runs group by status)),
    json_object(
        'steps', (select count(*) from steps),
        'watchers', (select count(*) from watchers),
        'signals', (select count(*) from signals),
        'keys', (select count(*) from keys),
        'events', (select count(*) from events),
        'dead_letters', (select count(*) from dead_letters),
        'workers', (select count(*) from workers),
        'workflows', (select count(*) from workflows),
        'cursors', (select count(*) from cursors),
        'queue_items', (select count(*) from queue_items),
        'streams', (select count(*) from streams),
        'stream_items', (select count(*) from stream_items),
        'outbox', (select count(*) from outbox),
        'fan_outs', (select count(*) from fan_outs),
        'consumers', (select count(*) from consumers),
        'subscriptions', (select count(*) from subscriptions),
        'schedules', (select count(*) from schedules),
        'pools', (select count(*) from pools),
        'parked', (select count(*) from parked),
        'deferred', (select count(*) from deferred),
        'channels', (select count(*) from channels)
    );


-- --- the file itself ---------------------------------------------------------------------------------

-- name: has_meta
-- Whether this file has a schema of ours at all.
select exists (select 1 from sqlite_schema where type = 'table' and name = 'meta');

-- name: meta
-- A fact about the file.
select value from meta where name = :name;

-- name: put_meta
-- Sets a fact about the file.
insert into meta (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;

-- name: begin
-- The write lock at once: a transaction that reads first and then wants to write is refused (BUSY_SNAPSHOT).
begin immediate;

-- name: begin_reading
-- One snapshot for several reads; it is taken by the first of them.
begin deferred;

-- name: commit
-- With synchronous=FULL this returns when the disk has it.
commit;

-- name: rollback
-- Nothing of the batch happened.
rollback;

-- name: checkpoint
-- Copies the log into the database and empties it, so that its size says how much is left to copy. With a
-- reader in the way it copies what it can and answers "busy".
pragma wal_checkpoint(truncate);


-- --- for who looks after the store ------------------------------------------------------------------

-- name: lives
-- Runs with all their rows, from one snapshot. What steps gave is left out, but for waits: it may be large, and
-- nobody asks for it.
select
    (select json_group_array({run as json}) from runs
     where run_id in (select value from json_each(:run_ids))),
    (select json_group_array(json_object(
         'run_id', s.run_id, 'generation', s.generation, 'path', s.path, 'kind', s.kind, 'name', s.name,
         'state', s.state, 'seq', s.seq, 'attempt', s.attempt, 'winner', s.winner, 'wait', s.wait,
         'started_at', s.started_at, 'recorded_at', s.recorded_at, 'retry_at', s.retry_at,
         'superseded', s.superseded, 'taken_id', s.taken_id,
         'value', case when s.wait is not null then s.value end,
         'error', case when s.wait is not null then s.error end))
     from json_each(:run_ids) as w cross join steps as s on s.run_id = w.value),
    (select json_group_array({watcher as json of t})
     from json_each(:run_ids) as w cross join watchers as t on t.run_id = w.value),
    (select json_group_array({signal as json of s})
     from json_each(:run_ids) as w cross join signals as s on s.run_id = w.value),
    (select json_group_array(json_array(
         s.run_id, s.stream, s.last,
         (select coalesce(min(i.position), 0) from stream_items as i where i.run_id = s.run_id and i.stream = s.stream),
         (select coalesce(max(i.position), 0) from stream_items as i where i.run_id = s.run_id and i.stream = s.stream),
         (select count(*) from stream_items as i where i.run_id = s.run_id and i.stream = s.stream)))
     from json_each(:run_ids) as w cross join streams as s on s.run_id = w.value);

-- name: run_ids
-- The ids of all runs, and nothing else of them: their rows may be damaged.
select json_group_array(run_id) from (
    select run_id from runs where run_id > :after order by run_id limit :limit
);

-- name: positions_of
-- Where events are, by their ids.
select json_group_object(event_id, position) from events
where event_id in (select value from json_each(:event_ids));

-- name: strays
-- Rows of runs that are not there, some of each table: reads the keys of these tables, and for each run one entry.
select json_group_array(json_array(name, run_id)) from (
    select * from (select distinct 'steps' as name, run_id from steps
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'watchers', run_id from watchers
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'signals', run_id from signals
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'cursors', run_id from cursors
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'streams', run_id from streams
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'stream_items', run_id from stream_items
        where (run_id, stream) not in (select run_id, stream from streams) limit :limit)
    union all select * from (select distinct 'dead_letters', run_id from dead_letters
        where run_id not in (select run_id from runs) limit :limit)
    union all select * from (select distinct 'keys', run_id from keys
        where run_id is not null and run_id not in (select run_id from runs) limit :limit)
    union all select * from (select 'fan_outs', cast(position as text) from fan_outs
        where position not in (select position from events) limit :limit)
);

-- name: items_of
-- Which of these items are in a queue.
select json_group_array(item_id) from queue_items where item_id in (select value from json_each(:item_ids));
