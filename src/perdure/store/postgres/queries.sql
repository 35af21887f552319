-- Every statement of the Postgres store but the schema and its functions. Marks are filled in by statements.py:
--
--   {run as json of r}   a json_build_object of every field of that record, of that table
--   :name                a parameter
--
-- A read gives JSON arrays, decoded straight into records. Paging compares whole rows, as the indexes are ordered. What
-- is looked up for each of several given rows is `lateral ... offset 0`: a plan for a join, made while tables were empty,
-- could begin at the wrong end and be kept.


-- --- a batch ----------------------------------------------------------------------------------------

-- name: apply
-- Locks, compares, writes: see functions/apply_v1.sql.
select conflict, head, clock, claimed from {schema}.apply_v1(
    :batch_id, :now, :seq, :seq_before, :born, :needs_head, :judges_time, :head, :units, :runs, :new_runs,
    :changed_runs, :new_steps, :put_steps, :new_watchers, :gone_watchers, :new_signals, :gone_signals, :put_cursors,
    :new_items, :gone_items, :new_keys, :new_events, :claims, :rest
);

-- name: fetch
-- What most decisions look at, from one snapshot: see functions/fetch_v1.sql.
select * from {schema}.fetch_v1(
    :runs, :inside, :on_run, :children, :steps, :keys, :topics, :watching, :queues, :units, :events, :positions,
    :fan_outs
);

-- name: settle
-- Takes the id of a batch that was not committed, so that it never will be. While the batch is still being written this
-- waits for its end.
insert into {schema}.commits (batch_id, at) values (:batch_id, :at) on conflict (batch_id) do nothing;

-- name: settled
-- Asked after that, and as often as it takes: where the ledger ended before the batch; null if it was not committed.
select head from {schema}.commits where batch_id = :batch_id;

-- name: prune_commits
-- Only fresh batches are ever settled. Rows that another process is about to delete are left to it.
with gone as (
    delete from {schema}.commits as c using (
        select batch_id from {schema}.commits where at < :before order by at limit :limit for update skip locked
    ) as old
    where c.batch_id = old.batch_id
    returning 1
)
select count(*) from gone;


-- --- a batch: what is looked at seldom ---------------------------------------------------------------

-- name: streams
-- How far the streams of some runs have come.
select coalesce(json_agg({stream as json of s}), '[]') from {schema}.streams as s where s.run_id = any (:run_ids);

-- name: steps
-- A whole generation, with what was superseded: only retry asks.
select coalesce(json_agg({step as json of s}), '[]') from {schema}.steps as s
where s.run_id = :run_id and s.generation = :generation;

-- name: letter
-- One dead letter.
select coalesce(json_agg({letter as json of d}), '[]') from {schema}.dead_letters as d
where d.dead_letter_id = :dead_letter_id;

-- name: letters
-- The dead letters of one run.
select coalesce(json_agg({letter as json of d}), '[]') from {schema}.dead_letters as d where d.run_id = :run_id;

-- name: items
-- The oldest items of a queue that were put before.
select coalesce(json_agg({item as json of i} order by i.position), '[]') from (
    select * from {schema}.queue_items as i
    where i.queue = :queue and (:put_before::bigint is null or i.put_at < :put_before)
    order by i.position limit :limit
) as i;

-- name: next_event
-- The first event of a topic after a position; {order} is "asc", or "desc" for the newest.
select coalesce(json_agg({event as json of e}), '[]') from (
    select * from {schema}.events as e
    where e.type = :type and e.position > :after
    and (:recorded_by::bigint is null or e.recorded_at <= :recorded_by) and (:repeats or not e.repeated)
    order by e.position {order} limit 1
) as e;

-- name: next_event_about
-- The same about one entity.
select coalesce(json_agg({event as json of e}), '[]') from (
    select * from {schema}.events as e
    where e.type = :type and e.entity_type = :entity_type and e.entity_id = :entity_id
    and e.entity_type <> 'run' and e.position > :after
    and (:recorded_by::bigint is null or e.recorded_at <= :recorded_by) and (:repeats or not e.repeated)
    order by e.position {order} limit 1
) as e;

-- name: next_event_about_run
-- The same about a run, whose timeline is short: read whole, then sorted.
select coalesce(json_agg({event as json of e}), '[]') from (
    select * from (
        select * from {schema}.events as e
        where e.entity_type = :entity_type and e.entity_id = :entity_id
        offset 0
    ) as e
    where e.type = :type and e.position > :after
    and (:recorded_by::bigint is null or e.recorded_at <= :recorded_by) and (:repeats or not e.repeated)
    order by e.position {order} limit 1
) as e;

-- name: deadlines
-- The earliest deadlines, passed or not.
select coalesce(json_agg({watcher as json of w} order by w.deadline_at, w.run_id, w.path, w.ix), '[]') from (
    select * from {schema}.watchers as w where w.deadline_at is not null and not w.held
    order by w.deadline_at, w.run_id, w.path, w.ix limit :limit
) as w;

-- name: expiries
-- The buffered signals whose time runs out first.
select coalesce(json_agg({signal as json of s} order by s.expires_at, s.position), '[]') from (
    select * from {schema}.signals as s where s.expires_at is not null
    order by s.expires_at, s.position limit :limit
) as s;

-- name: owners
-- Who is said to run something and lives no more, found by hopping along the index from one owner to the next. Who
-- asks lives, whatever its lease says, if it has a row.
with recursive owner_of (owner) as (
    (select r.owner from {schema}.runs as r where r.status = 'running' order by r.owner limit 1)
    union all
    select (
        select r.owner from {schema}.runs as r where r.status = 'running' and r.owner > o.owner
        order by r.owner limit 1
    ) from owner_of as o where o.owner is not null
)
select coalesce(json_agg(o.owner), '[]') from owner_of as o
where o.owner is not null and not exists (
    select 1 from {schema}.workers as w
    where w.worker_id = o.owner and (w.lease_until > :now or w.worker_id = :worker_id)
);

-- name: orphans
-- Running runs of these owners, or of nobody. In the order of their index, also where the owner is always the same: by
-- run_id alone the planner may walk the primary key.
select coalesce(json_agg(r.run_id), '[]') from (
    (select r.run_id from unnest(:owners::text[]) as o (owner) cross join lateral (
        select r.run_id from {schema}.runs as r where r.status = 'running' and r.owner = o.owner
        order by r.run_id limit :limit
    ) as r)
    union all
    (select r.run_id from {schema}.runs as r where r.status = 'running' and r.owner is null
     order by r.owner, r.run_id limit :limit)
    order by run_id limit :limit
) as r;

-- name: ready
-- Runs of these workflows that are due, the oldest of each pool, then the second ones, and so on: each workflow in each
-- pool is a walk along one index.
with recursive pool_of (pool) as (
    (select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool >= '' order by r.pool limit 1)
    union all
    select (
        select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool > p.pool order by r.pool limit 1
    ) from pool_of as p where p.pool is not null
),
served (pool) as materialized (
    select p.pool from pool_of as p
    where p.pool is not null and (:pools::text[] is null or p.pool = any (:pools::text[]))
)
select coalesce(json_agg(r.run_id order by r.nth, r.ready_at, r.run_id), '[]') from (
    select d.run_id, d.ready_at, d.nth from (
        select found.run_id, found.ready_at,
            row_number() over (partition by s.pool order by found.ready_at, found.run_id) as nth
        from served as s
        cross join json_to_recordset(:workflows) as known (name text, version bigint) cross join lateral (
            select r.run_id, r.ready_at from {schema}.runs as r
            where r.pool = s.pool and r.workflow = known.name and r.version = known.version and r.ready_at <= :now
            order by r.ready_at, r.run_id limit :limit
        ) as found
    ) as d
    order by d.nth, d.ready_at, d.run_id limit :limit
) as r;

-- name: ready_later
-- The first of each workflow in each pool that are not due yet.
with recursive pool_of (pool) as (
    (select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool >= '' order by r.pool limit 1)
    union all
    select (
        select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool > p.pool order by r.pool limit 1
    ) from pool_of as p where p.pool is not null
),
served (pool) as materialized (
    select p.pool from pool_of as p
    where p.pool is not null and (:pools::text[] is null or p.pool = any (:pools::text[]))
)
select coalesce(json_agg(found.run_id), '[]')
from served as s
cross join json_to_recordset(:workflows) as known (name text, version bigint) cross join lateral (
    select r.run_id from {schema}.runs as r
    where r.pool = s.pool and r.workflow = known.name and r.version = known.version and r.ready_at > :now
    order by r.ready_at, r.run_id limit 10
) as found;

-- name: pool
-- One pool.
select coalesce(json_agg({pool as json of p}), '[]') from {schema}.pools as p where p.name = :name;

-- name: slots
-- Slots that are taken, counted in an index of their own.
select count(*) from {schema}.runs as r
where r.pool = :pool and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')
and (:key::text is null or r.pool_key = :key);

-- name: line_keys
-- The next keys of a line, found by hopping along its index, each with whether somebody of it is due whom the asker
-- knows, and how many slots it has taken.
with recursive key_of (key, nth) as (
    (select r.pool_key, 1 from {schema}.runs as r
     where r.pool = :pool and r.line_at is not null and (:after::text is null or r.pool_key > :after)
     order by r.pool_key limit 1)
    union all
    select (
        select r.pool_key from {schema}.runs as r
        where r.pool = :pool and r.line_at is not null and r.pool_key > k.key
        order by r.pool_key limit 1
    ), k.nth + 1 from key_of as k where k.key is not null and k.nth < :limit
)
select coalesce(json_agg(json_build_array(
    k.key,
    (
        -- In the order of its index, or a planner that knows nothing would walk along the whole line by age.
        select 1 from {schema}.runs as r
        where r.pool = :pool and r.pool_key = k.key and r.line_at is not null and r.line_at <= :now
        and r.admitted >= :begun and exists (
            select 1 from json_to_recordset(:workflows) as known (name text, version bigint)
            where known.name = r.workflow and known.version = r.version
        )
        order by r.admitted desc, r.priority desc, r.line_at limit 1
    ) is not null,
    (select count(*) from {schema}.runs as r
     where r.pool = :pool and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')
     and r.pool_key = k.key)
) order by k.key), '[]') from key_of as k where k.key is not null;

-- name: line_runs
-- The first in line of one key, in the order in which they are let through.
select coalesce(json_agg(r.run_id order by r.admitted desc, r.priority desc, r.line_at, r.run_id), '[]') from (
    select r.run_id, r.admitted, r.priority, r.line_at from {schema}.runs as r
    where r.pool = :pool and r.pool_key = :key and r.line_at is not null and r.line_at <= :now and r.admitted >= :begun
    and exists (
        select 1 from json_to_recordset(:workflows) as known (name text, version bigint)
        where known.name = r.workflow and known.version = r.version
    )
    order by r.admitted desc, r.priority desc, r.line_at, r.run_id limit :limit
) as r;

-- name: idle_slots
-- Runs of a pool that may be claimed and nobody can or does: of all that are ready there.
select coalesce(json_agg(r.run_id order by r.ready_at, r.run_id), '[]') from (
    select r.run_id, r.ready_at from {schema}.runs as r
    where r.pool = :pool and r.ready_at is not null and r.status = 'ready'
    and (r.ready_at > :now or (r.ready_at <= :since and not exists (
        select 1 from json_to_recordset(:workflows) as known (name text, version bigint)
        where known.name = r.workflow and known.version = r.version
    )))
    order by r.ready_at, r.run_id limit :limit
) as r;

-- name: finished
-- The oldest ends first. A run that living ones still refer to stays: its id could be used anew, and what they
-- mean would become another run's. (`limit 1` and not `exists`: a join of all runs with all runs is what that would
-- become.)
select coalesce(json_agg(r.run_id), '[]') from (
    select r.run_id from {schema}.runs as r
    where r.finished_at < :before
    and (
        select 1 from {schema}.watchers as w where w.kind = 'run' and w.target = r.run_id and w.target <> '' limit 1
    ) is null
    and (
        select 1 from {schema}.runs as c where c.parent_run_id = r.run_id and c.finished_at is null limit 1
    ) is null
    order by r.finished_at, r.run_id limit :limit
) as r;

-- name: expired_keys
-- Keys whose time has run out, the oldest first; one may hold a large answer, so not all of them at once.
select coalesce(json_agg({key as json of k}), '[]') from (
    select k.*, sum(octet_length(k.answer)) over (order by k.expires_at, k.scope, k.key) as bytes_upto from (
        select * from {schema}.keys as k where k.expires_at <= :now order by k.expires_at limit :limit
    ) as k
) as k
where k.bytes_upto - octet_length(k.answer) < :bytes_max;

-- name: started_under
-- How many runs the chain of one event has started; counted no further than asked.
select count(*) from (
    select 1 from {schema}.runs as r where r.root_id = :root_id and r.root_id is not null limit :limit
) as r;

-- name: consumer
-- One reader of the ledger.
select coalesce(json_agg({consumer as json of c}), '[]') from {schema}.consumers as c where c.name = :name;

-- name: consumers
-- All readers of the ledger: a handful.
select coalesce(json_agg({consumer as json of c} order by c.name), '[]') from {schema}.consumers as c;

-- name: subscription
-- One rule.
select coalesce(json_agg({subscription as json of s}), '[]') from {schema}.subscriptions as s where s.name = :name;

-- name: parked_event
-- One event that a consumer could not deal with.
select coalesce(json_agg({parked as json of p}), '[]') from {schema}.parked as p
where p.consumer = :consumer and p.position = :position and p.subscription = :subscription;

-- name: deferred_start
-- One start that a bound has put off.
select coalesce(json_agg({deferred as json of d}), '[]') from {schema}.deferred as d
where d.position = :position and d.subscription = :subscription;

-- name: oldest_needed
-- The first event that a parked or deferred row of some age still needs, or a rule that has to catch up with it.
select
    (select json_build_array(p.position, p.consumer) from {schema}.parked as p
     where p.parked_at >= :idle_before order by p.position, p.consumer limit 1),
    (select json_build_array(d.position, d.subscription) from {schema}.deferred as d
     where d.deferred_at >= :idle_before order by d.position, d.subscription limit 1),
    (select json_build_array(s.behind + 1, s.name) from {schema}.subscriptions as s
     where s.behind is not null and s.enabled and greatest(
         s.created_at, (select c.advanced_at from {schema}.consumers as c where c.name = :runner)
     ) >= :idle_before
     order by s.behind, s.name limit 1);

-- name: span
-- The oldest event that is kept, and the newest: the two ends of the table.
select
    coalesce((select e.position from {schema}.events as e order by e.position limit 1), 1),
    (select h.position from {schema}.ledger_head as h);

-- name: recorded_at
-- When an event was recorded; its neighbour answers for one that is gone.
select e.recorded_at from {schema}.events as e where e.position >= :position order by e.position limit 1;

-- name: has_outbox
-- Which of these sends are still to be applied.
select coalesce(json_agg(o.outbox_id), '[]')
from unnest(:outbox_ids::text[]) as w (outbox_id) join {schema}.outbox as o on o.outbox_id = w.outbox_id;

-- name: workers
-- All that have come and not said goodbye; few.
select coalesce(json_agg({worker as json of w}), '[]') from {schema}.workers as w;

-- name: workflow
-- A line of the catalogue, and the version of the whole.
select
    (select coalesce(json_agg({workflow as json of w}), '[]') from {schema}.workflows as w
     where w.name = :name and w.version = :version),
    coalesce((select u.version from {schema}.units as u where u.kind = 'catalogue' and u.name = ''), 0);

-- name: channel
-- A topic or queue of the catalogue, likewise.
select
    (select coalesce(json_agg({channel as json of c}), '[]') from {schema}.channels as c
     where c.kind = :kind and c.name = :name),
    coalesce((select u.version from {schema}.units as u where u.kind = 'catalogue' and u.name = ''), 0);


-- --- reads -------------------------------------------------------------------------------------------

-- name: load
-- Runs and the living rows of their present generation, from one snapshot.
select
    (select coalesce(json_agg({run as json of r}), '[]')
     from unnest(:run_ids::text[]) as w (run_id) join {schema}.runs as r on r.run_id = w.run_id),
    (select coalesce(json_agg({step as json of s}), '[]')
     from unnest(:run_ids::text[]) as w (run_id) join {schema}.runs as r on r.run_id = w.run_id
     cross join lateral (
         select * from {schema}.steps as s
         where s.run_id = r.run_id and s.generation = r.generation and s.superseded = 0 offset 0
     ) as s);

-- name: outbox
-- Sends that callers have committed and nobody has applied yet.
select coalesce(json_agg({outbox as json of o} order by o.outbox_id), '[]') from (
    select * from {schema}.outbox as o where o.outbox_id > :after order by o.outbox_id limit :limit
) as o;

-- name: write_outbox
-- By a connection of the caller's own: one row, which nobody waits for.
insert into {schema}.outbox (outbox_id, op, created_at) values (:outbox_id, :op, :created_at);

-- name: revisions
-- How far others have changed the runs that are at work here. One that was ended keeps its revision: it is left out.
select coalesce(json_object_agg(r.run_id, r.revision), '{}')
from unnest(:run_ids::text[]) as w (run_id) join {schema}.runs as r on r.run_id = w.run_id
where r.finished_at is null;

-- name: ended
-- Which of the awaited runs are over, in one look for all who await here.
select coalesce(json_agg({run as json of r}), '[]')
from unnest(:run_ids::text[]) as w (run_id) cross join lateral (
    select * from {schema}.runs as r where r.run_id = w.run_id offset 0
) as r
where r.finished_at is not null;

-- name: look
-- What a worker asks for once a second, in one statement: the low ends of four indexes, in that of runs to claim one
-- for each workflow that the asker knows; both ends of the ledger; whether somebody who lives no more is said to run
-- something, found by hopping along the index from one owner to the next; workers and consumers, a handful; the next
-- parked runs by age, each with whether it waits for anything, by two walks along the index by status. The asker lives as
-- long as it has a row.
with recursive owner_of (owner) as (
    (select r.owner from {schema}.runs as r where r.status = 'running' order by r.owner limit 1)
    union all
    select (
        select r.owner from {schema}.runs as r where r.status = 'running' and r.owner > o.owner
        order by r.owner limit 1
    ) from owner_of as o where o.owner is not null
),
pool_of (pool) as (
    (select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool >= '' order by r.pool limit 1)
    union all
    select (
        select r.pool from {schema}.runs as r where r.ready_at is not null and r.pool > p.pool order by r.pool limit 1
    ) from pool_of as p where p.pool is not null
),
line_of (name) as (
    (select r.pool from {schema}.runs as r where r.line_at is not null and r.pool >= '' order by r.pool limit 1)
    union all
    select (
        select r.pool from {schema}.runs as r where r.line_at is not null and r.pool > l.name order by r.pool limit 1
    ) from line_of as l where l.name is not null
),
living (worker_id) as materialized (
    select w.worker_id from {schema}.workers as w
    where w.lease_until > :now or w.worker_id = :worker_id
)
select
    (select w.deadline_at from {schema}.watchers as w where w.deadline_at is not null and not w.held
     order by w.deadline_at limit 1),
    (select s.expires_at from {schema}.signals as s where s.expires_at is not null order by s.expires_at limit 1),
    case when :workflows::json is null then
        (select min(r.ready_at) from {schema}.runs as r where r.ready_at is not null)
    else (
        select min((
            select r.ready_at from {schema}.runs as r
            where r.pool = p.pool and r.workflow = known.name and r.version = known.version
            and r.ready_at is not null
            order by r.ready_at limit 1
        )) from pool_of as p cross join json_to_recordset(:workflows) as known (name text, version bigint)
        where p.pool is not null and (:pools::text[] is null or p.pool = any (:pools::text[]))
    ) end,
    exists (select 1 from {schema}.fan_outs),
    exists (select 1 from {schema}.outbox),
    (select s.due_at from {schema}.schedules as s
     where s.due_at is not null and (
         :workflows::json is null
         or s.workflow in (select known.name from json_to_recordset(:workflows) as known (name text))
     )
     order by s.due_at limit 1),
    (select coalesce(json_agg(json_build_object(
        'name', l.name,
        'pool', (select {pool as json of p} from {schema}.pools as p where p.name = l.name),
        'oldest_at', (select r.line_at from {schema}.runs as r
            where r.pool = l.name and r.line_at is not null order by r.line_at limit 1),
        'begun', exists (select 1 from {schema}.runs as r where r.pool = l.name and r.line_at is not null and r.admitted),
        'taken', (select count(*) from {schema}.runs as r
            where r.pool = l.name and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')),
        'state', (select k.answer from {schema}.keys as k where k.scope = 'line' and k.key = l.name)
    ) order by l.name), '[]') from line_of as l where l.name is not null),
    coalesce((select e.position from {schema}.events as e order by e.position limit 1), 1),
    (select h.position from {schema}.ledger_head as h),
    exists (
        select 1 from owner_of as o
        where o.owner is not null and o.owner not in (select l.worker_id from living as l)
    ) or exists (select 1 from {schema}.runs as r where r.status = 'running' and r.owner is null),
    (select coalesce(json_agg(l.worker_id), '[]') from living as l),
    (select coalesce(json_agg({consumer as json of c} order by c.name), '[]') from {schema}.consumers as c),
    (select coalesce(json_agg(json_build_array(p.run_id, exists (
        select 1 from {schema}.watchers as w where w.run_id = p.run_id and w.path not in ('!deadline', '!cancel_on')
        and w.kind not in ('alarm', 'asked')
     )) order by p.created_at, p.run_id), '[]') from (
        select run_id, created_at from (
            (select r.run_id, r.created_at from {schema}.runs as r
             where r.status = 'waiting' and (r.created_at, r.run_id) > (
                 coalesce((select a.created_at from {schema}.runs as a where a.run_id = :after), -1), :after
             )
             order by r.created_at, r.run_id limit :limit)
            union all
            (select r.run_id, r.created_at from {schema}.runs as r
             where r.status = 'sleeping' and (r.created_at, r.run_id) > (
                 coalesce((select a.created_at from {schema}.runs as a where a.run_id = :after), -1), :after
             )
             order by r.created_at, r.run_id limit :limit)
        ) as parked
        order by created_at, run_id limit :limit
     ) as p);

-- name: prolong_lease
-- A beat; a worker that was taken for dead, and has no row any more, does not come to life again. Gives what code the
-- schema needs by now: somebody may have renewed it under us.
update {schema}.workers set lease_until = :lease_until where worker_id = :worker_id
returning (select value from {schema}.meta where name = 'min_code');

-- name: catalogue
-- The whole catalogue; it is small.
select coalesce(json_agg({workflow as json of w} order by w.name, w.version), '[]') from {schema}.workflows as w;

-- name: all_channels
-- The topics and queues of the catalogue.
select coalesce(json_agg({channel as json of c} order by c.kind, c.name), '[]') from {schema}.channels as c;

-- name: all_subscriptions
-- All rules.
select coalesce(json_agg({subscription as json of s} order by s.name), '[]') from {schema}.subscriptions as s;

-- name: schedules
-- Those of these names.
select coalesce(json_agg({schedule as json of s}), '[]') from {schema}.schedules as s
where s.name = any (:names::text[]);

-- name: schedules_due
-- Those whose time has come, by the index of when they are due; of workflows that nobody here knows there are few.
select coalesce(json_agg(json_build_array(s.due_at, s.name) order by s.due_at, s.name), '[]') from (
    select s.due_at, s.name from {schema}.schedules as s
    where s.due_at is not null and s.due_at <= :now and s.workflow = any (:workflow_names::text[])
    order by s.due_at, s.name limit :limit
) as s;

-- name: schedules_next
-- The low end of that index.
select coalesce(json_agg(json_build_array(s.due_at, s.name) order by s.due_at, s.name), '[]') from (
    select s.due_at, s.name from {schema}.schedules as s
    where s.due_at is not null and s.workflow = any (:workflow_names::text[])
    order by s.due_at, s.name limit :limit
) as s;

-- name: all_pools
-- All there are.
select coalesce(json_agg({pool as json of p} order by p.name), '[]') from {schema}.pools as p;

-- name: lines
-- The pools in whose line somebody stands, found by hopping along its index.
with recursive line_of (name) as (
    (select r.pool from {schema}.runs as r where r.line_at is not null and r.pool >= '' order by r.pool limit 1)
    union all
    select (
        select r.pool from {schema}.runs as r where r.line_at is not null and r.pool > l.name order by r.pool limit 1
    ) from line_of as l where l.name is not null
)
select coalesce(json_agg(json_build_object(
    'name', l.name,
    'pool', (select {pool as json of p} from {schema}.pools as p where p.name = l.name),
    'oldest_at', (select r.line_at from {schema}.runs as r
        where r.pool = l.name and r.line_at is not null order by r.line_at limit 1),
    'begun', exists (select 1 from {schema}.runs as r where r.pool = l.name and r.line_at is not null and r.admitted),
    'taken', (select count(*) from {schema}.runs as r
        where r.pool = l.name and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')),
    'state', (select k.answer from {schema}.keys as k where k.scope = 'line' and k.key = l.name)
) order by l.name), '[]') from line_of as l where l.name is not null;

-- name: standing
-- How things stand in one pool, and for some keys of it.
select
    (select count(*) from {schema}.runs as r
     where r.pool = :pool and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')),
    (select count(*) from {schema}.runs as r where r.pool = :pool and r.line_at is not null),
    (select r.line_at from {schema}.runs as r where r.pool = :pool and r.line_at is not null order by r.line_at limit 1),
    (select k.answer from {schema}.keys as k where k.scope = 'line' and k.key = :pool),
    (select coalesce(json_agg(json_build_array(
        a.key,
        (select count(*) from {schema}.runs as r
         where r.pool = :pool and r.pool <> '' and r.line_at is null and r.status in ('ready', 'running')
         and r.pool_key = a.key),
        (select k.answer from {schema}.keys as k where k.scope = 'rate/' || :pool and k.key = a.key)
    )), '[]') from unnest(:keys::text[]) as a (key));

-- name: page_line
-- Who stands in a line, oldest first.
select coalesce(json_agg({run as json of r} order by r.line_at, r.run_id), '[]') from (
    select * from {schema}.runs as r
    where r.pool = :pool and r.line_at is not null and (r.line_at, r.run_id) > (:line_at, :run_id)
    order by r.line_at, r.run_id limit :limit
) as r;

-- name: page_schedules
-- Calendars by name.
select coalesce(json_agg({schedule as json of s} order by s.name), '[]') from (
    select * from {schema}.schedules as s where s.name > :after order by s.name limit :limit
) as s;

-- name: run
-- One run.
select coalesce(json_agg({run as json of r}), '[]') from {schema}.runs as r where r.run_id = :run_id;

-- name: history
-- Everything recorded for one run.
select coalesce(json_agg({step as json of s}), '[]') from {schema}.steps as s where s.run_id = :run_id;

-- name: history_page
-- What is decided after a place, in the order of the decisions, then what is open, if there is room. No index has that
-- order: one more to keep up with each step would cost all runs, and this one is for people.
with decided as (
    select * from {schema}.steps as s
    where s.run_id = :run_id and s.seq > 0 and (s.generation, s.seq, s.path) > (:generation, :seq, :path)
    order by s.generation, s.seq, s.path limit :limit
), page as (
    (select true as is_decided, d.* from decided as d)
    union all
    (
        select false, s.* from {schema}.steps as s
        where s.run_id = :run_id and s.seq = 0 and (select count(*) from decided) < :limit
    )
)
select coalesce(
    json_agg({step as json of p} order by not p.is_decided, p.generation, p.seq, p.path), '[]'
) from page as p;

-- name: waiting
-- What one run waits for.
select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.path, w.ix), '[]')
from {schema}.watchers as w where w.run_id = :run_id;

-- name: find_waiting
-- One index gives them by target, longest waiting first.
select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.run_id, w.path, w.ix), '[]') from (
    select * from {schema}.watchers as w
    where w.kind = 'signal' and w.target <> '' and w.target = :signal and w.entity = ''
    and (w.opened_at, w.run_id, w.path, w.ix) > (:opened_at, :run_id, :path, :ix)
    and (:opened_before::bigint is null or w.opened_at < :opened_before)
    order by w.opened_at, w.run_id, w.path, w.ix limit :limit
) as w;

-- name: waiting_for_topic
-- Who waits for a topic, with a filter or without, whatever the entity: all of one topic are sorted by age.
select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.run_id, w.path, w.ix), '[]') from (
    select * from {schema}.watchers as w
    where w.kind in ('topic', 'match') and w.target <> '' and w.target = :topic
    and (w.opened_at, w.run_id, w.path, w.ix) > (:opened_at, :run_id, :path, :ix)
    order by w.opened_at, w.run_id, w.path, w.ix limit :limit
) as w;

-- name: approvals
-- Those that can be answered, longest waiting first, by an index of their own.
select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.run_id, w.path, w.ix), '[]') from (
    select * from {schema}.watchers as w
    where w.kind = 'approval' and (w.opened_at, w.run_id, w.path, w.ix) > (:opened_at, :run_id, :path, :ix)
    order by w.opened_at, w.run_id, w.path, w.ix limit :limit
) as w;

-- name: matches
-- Watchers that a filter must be asked about, in the order of the index by target.
select coalesce(
    json_agg({watcher as json of w} order by w.target, w.entity, w.opened_at, w.run_id, w.path, w.ix), '[]'
) from (
    select * from {schema}.watchers as w
    where w.kind = 'match' and w.target <> ''
    and (w.target, w.entity, w.opened_at, w.run_id, w.path, w.ix)
        > (:target, :entity, :opened_at, :run_id, :path, :ix)
    order by w.target, w.entity, w.opened_at, w.run_id, w.path, w.ix limit :limit
) as w;

-- name: buffered
-- What is buffered for one run.
select coalesce(json_agg({signal as json of s} order by s.position), '[]')
from {schema}.signals as s where s.run_id = :run_id;

-- name: signal
-- Where a signal is: in the buffer, among the dead letters, or told of on the ledger under its own id.
select
    (select coalesce(json_agg({signal as json of s}), '[]') from {schema}.signals as s
     where s.signal_id = :signal_id),
    (select coalesce(json_agg({letter as json of d}), '[]') from {schema}.dead_letters as d
     where d.dead_letter_id = :signal_id),
    (select coalesce(json_agg({event as json of e}), '[]') from {schema}.events as e where e.event_id = :signal_id);

-- name: page_dead_letters
-- By id, of one run or all.
select coalesce(json_agg({letter as json of d} order by d.dead_letter_id), '[]') from (
    select * from {schema}.dead_letters as d
    where d.dead_letter_id > :after
    order by d.dead_letter_id limit :limit
) as d;

-- name: page_dead_letters_of_run
-- By id, of one run.
select coalesce(json_agg({letter as json of d} order by d.dead_letter_id), '[]') from (
    select * from {schema}.dead_letters as d
    where d.run_id = :run_id and d.dead_letter_id > :after
    order by d.dead_letter_id limit :limit
) as d;

-- name: page_events
-- The ledger in its order; {narrowed} is nothing, or one or both of the next two.
select coalesce(json_agg({event as json of e} order by e.position), '[]') from (
    select * from {schema}.events as e where e.position > :after {narrowed} order by e.position limit :limit
) as e;

-- name: events_of_type
-- Found in order by the index by type.
and e.type = :type

-- name: events_of_entity
-- A timeline is short: the index by entity finds it, then it is sorted.
and e.entity_type = :entity_type and e.entity_id = :entity_id

-- name: page_events_by_time
-- The ledger by when things happened.
select coalesce(json_agg({event as json of e} order by e.occurred_at, e.position), '[]') from (
    select * from {schema}.events as e where (e.occurred_at, e.position) > (:occurred_at, :position)
    order by e.occurred_at, e.position limit :limit
) as e;

-- name: page_timeline
-- What happened to one entity, in that order.
select coalesce(json_agg({event as json of e} order by e.occurred_at, e.position), '[]') from (
    select * from {schema}.events as e
    where e.entity_type = :entity_type and e.entity_id = :entity_id
    and (e.occurred_at, e.position) > (:occurred_at, :position)
    order by e.occurred_at, e.position limit :limit
) as e;

-- name: event
-- One event by its id.
select coalesce(json_agg({event as json of e}), '[]') from {schema}.events as e where e.event_id = :event_id;

-- name: page_stream_items
-- What is kept of a stream, in order.
select coalesce(json_agg({stream_item as json of i} order by i.position), '[]') from (
    select * from {schema}.stream_items as i
    where i.run_id = :run_id and i.stream = :stream and i.position > :after
    order by i.position limit :limit
) as i;

-- name: stream_spans
-- The streams of a run, each with where it begins and ends.
select coalesce(json_agg(json_build_object(
    'stream', s.stream,
    'first', (
        select i.position from {schema}.stream_items as i where i.run_id = s.run_id and i.stream = s.stream
        order by i.position limit 1
    ),
    'last', s.last
) order by s.stream), '[]') from {schema}.streams as s where s.run_id = :run_id;

-- name: page_items
-- What is in a queue, oldest first.
select coalesce(json_agg({item as json of i} order by i.position), '[]') from (
    select * from {schema}.queue_items as i where i.queue = :queue and i.position > :after
    order by i.position limit :limit
) as i;

-- name: queue_counts
-- Every queue that holds something, read from its index.
select coalesce(json_object_agg(q.queue, q.n order by q.queue), '{}') from (
    select i.queue, count(*) as n from {schema}.queue_items as i group by i.queue
) as q;

-- name: known_keys
-- Which of these keys were used.
select coalesce(json_agg(k.key), '[]')
from unnest(:keys::text[]) as w (key) cross join lateral (
    select * from {schema}.keys as k where k.scope = :scope and k.key = w.key offset 0
) as k
where k.expires_at is null or k.expires_at > :now;

-- name: used_key
-- One key, unless it has run out.
select coalesce(json_agg({key as json of k}), '[]') from {schema}.keys as k
where k.scope = :scope and k.key = :key and (k.expires_at is null or k.expires_at > :now);

-- name: keys_have_expired
-- One look at the low end of an index. (Not by `exists`: a planner that expects many would read the table for the first.)
select coalesce((
    select k.expires_at from {schema}.keys as k where k.expires_at is not null order by k.expires_at limit 1
) <= :now, false);

-- name: vitals
-- Counted no further than a bound; the index of ready runs is read from end to end, for people who ask now and then.
select
    (select count(*) from (
        select 1 from {schema}.watchers as w where w.deadline_at <= :now and not w.held limit :limit) as n),
    (select min(r.ready_at) from {schema}.runs as r where r.ready_at is not null and r.ready_at <= :now),
    (select count(*) from (select 1 from {schema}.parked limit :limit) as n),
    (select count(*) from (select 1 from {schema}.deferred limit :limit) as n),
    (select count(*) from (select 1 from {schema}.dead_letters limit :limit) as n),
    (select s.due_at from {schema}.schedules as s where s.due_at is not null order by s.due_at limit 1);

-- name: living_workers
-- Those whose lease has not run out, and the asker, if it has a row.
select coalesce(json_agg({worker as json of w} order by w.worker_id), '[]') from {schema}.workers as w
where w.lease_until > :now or w.worker_id = :worker_id;

-- name: backlog
-- Found by hopping along the index of runs to be claimed, from one version of a workflow to the next; each is counted no
-- further than a bound.
with recursive place (pool, workflow, version) as (
    (select r.pool, r.workflow, r.version from {schema}.runs as r
     where r.ready_at is not null and r.pool >= '' order by r.pool, r.workflow, r.version limit 1)
    union all
    select next.pool, next.workflow, next.version from place as p cross join lateral (
        select r.pool, r.workflow, r.version from {schema}.runs as r
        where r.ready_at is not null and (r.pool, r.workflow, r.version) > (p.pool, p.workflow, p.version)
        order by r.pool, r.workflow, r.version limit 1
    ) as next
)
select coalesce(json_agg(json_build_array(f.workflow, f.version, f.count, f.oldest)), '[]') from (
    select
        p.workflow, p.version,
        (select count(*) from (
            select 1 from {schema}.runs as r
            where r.pool = p.pool and r.workflow = p.workflow and r.version = p.version
            and r.ready_at is not null and r.ready_at <= :now limit :limit) as n) as count,
        (select r.ready_at from {schema}.runs as r
         where r.pool = p.pool and r.workflow = p.workflow and r.version = p.version and r.ready_at is not null
         order by r.ready_at limit 1) as oldest
    from place as p
) as f where f.count > 0;

-- name: page_parked
-- Parked events from a place on, up to the last of one consumer or of all.
select coalesce(json_agg({parked as json of p} order by p.consumer, p.position, p.subscription), '[]') from (
    select * from {schema}.parked as p
    where (p.consumer, p.position, p.subscription) > (:consumer, :position, :subscription)
    and (:last::text is null or p.consumer <= :last)
    order by p.consumer, p.position, p.subscription limit :limit
) as p;

-- name: page_deferred
-- Starts that were put off.
select coalesce(json_agg({deferred as json of d} order by d.position, d.subscription), '[]') from (
    select * from {schema}.deferred as d where (d.position, d.subscription) > (:position, :subscription)
    order by d.position, d.subscription limit :limit
) as d;

-- name: page_runs
-- Newest first; {narrowed} is any of the following, and the first of them that has an index leads.
select coalesce(json_agg({run as json of r} order by r.created_at desc, r.run_id desc), '[]') from (
    select * from {schema}.runs as r where {narrowed} order by r.created_at desc, r.run_id desc limit :limit
) as r;

-- name: runs_all
-- No condition at all.
true

-- name: runs_after
-- The page after the last run seen.
(r.created_at, r.run_id) < (:after_created_at, :after_run_id)

-- name: runs_created_from
-- From this time on.
r.created_at >= :created_from

-- name: runs_created_before
-- Before this time.
r.created_at < :created_before

-- name: runs_of_workflow
-- Of one workflow, any version.
r.workflow = :workflow

-- name: runs_of_workflow_too
-- The same, but never by its index (an expression has none): the index by status leads.
r.workflow || '' = :workflow

-- name: runs_of_entity
-- About one entity.
r.entity_type = :entity_type and r.entity_id = :entity_id

-- name: runs_of_parent
-- Started by one run.
r.parent_run_id = :parent_run_id

-- name: runs_of_statuses
-- Several statuses as several walks along one index, each no longer than a page; else all would be sorted.
-- {narrowed} is the rest of the conditions.
r.run_id in (
    select page.run_id from unnest(:statuses::text[]) as asked (status) cross join lateral (
        select r.run_id from {schema}.runs as r where r.status = asked.status and {narrowed}
        order by r.created_at desc, r.run_id desc limit :limit
    ) as page
)

-- name: runs_of_status
-- When another index leads, the status is only compared.
r.status || '' = any (:statuses::text[])

-- name: runs_tagged
-- Within what the other conditions leave; any value when none is given.
r.tags is not null and exists (
    select 1 from json_each_text(r.tags::json) as t
    where t.key = :tag_name and (:tag_value::text is null or t.value = :tag_value)
)

-- name: counts
-- By status from its index, every other table by its smallest one.
select
    (select coalesce(json_object_agg(s.status, s.n), '{}')
     from (select r.status, count(*) as n from {schema}.runs as r group by r.status) as s),
    json_build_object(
        'steps', (select count(*) from {schema}.steps),
        'watchers', (select count(*) from {schema}.watchers),
        'signals', (select count(*) from {schema}.signals),
        'keys', (select count(*) from {schema}.keys),
        'events', (select count(*) from {schema}.events),
        'dead_letters', (select count(*) from {schema}.dead_letters),
        'workers', (select count(*) from {schema}.workers),
        'workflows', (select count(*) from {schema}.workflows),
        'cursors', (select count(*) from {schema}.cursors),
        'queue_items', (select count(*) from {schema}.queue_items),
        'streams', (select count(*) from {schema}.streams),
        'stream_items', (select count(*) from {schema}.stream_items),
        'fan_outs', (select count(*) from {schema}.fan_outs),
        'consumers', (select count(*) from {schema}.consumers),
        'subscriptions', (select count(*) from {schema}.subscriptions),
        'schedules', (select count(*) from {schema}.schedules),
        'pools', (select count(*) from {schema}.pools),
        'parked', (select count(*) from {schema}.parked),
        'deferred', (select count(*) from {schema}.deferred),
        'channels', (select count(*) from {schema}.channels),
        'outbox', (select count(*) from {schema}.outbox)
    );


-- --- for who looks after the store ------------------------------------------------------------------

-- name: lives
-- Runs with all their rows, from one snapshot. What steps gave is left out, but for waits: it may be large, and
-- nobody asks for it.
select
    (select coalesce(json_agg({run as json of r}), '[]')
     from unnest(:run_ids::text[]) as w (run_id) join {schema}.runs as r on r.run_id = w.run_id),
    (select coalesce(json_agg(json_build_object(
         'run_id', s.run_id, 'generation', s.generation, 'path', s.path, 'kind', s.kind, 'name', s.name,
         'state', s.state, 'seq', s.seq, 'attempt', s.attempt, 'winner', s.winner, 'wait', s.wait,
         'started_at', s.started_at, 'recorded_at', s.recorded_at, 'retry_at', s.retry_at,
         'superseded', s.superseded, 'taken_id', s.taken_id,
         'value', case when s.wait is not null then s.value end,
         'error', case when s.wait is not null then s.error end)), '[]')
     from unnest(:run_ids::text[]) as w (run_id)
     cross join lateral (select * from {schema}.steps as s where s.run_id = w.run_id offset 0) as s),
    (select coalesce(json_agg({watcher as json of t}), '[]')
     from unnest(:run_ids::text[]) as w (run_id)
     cross join lateral (select * from {schema}.watchers as t where t.run_id = w.run_id offset 0) as t),
    (select coalesce(json_agg({signal as json of s}), '[]')
     from unnest(:run_ids::text[]) as w (run_id)
     cross join lateral (select * from {schema}.signals as s where s.run_id = w.run_id offset 0) as s),
    (select coalesce(json_agg(json_build_array(s.run_id, s.stream, s.last, i.first, i.newest, i.count)), '[]')
     from unnest(:run_ids::text[]) as w (run_id)
     cross join lateral (select * from {schema}.streams as s where s.run_id = w.run_id offset 0) as s
     cross join lateral (
         select coalesce(min(i.position), 0) as first, coalesce(max(i.position), 0) as newest, count(*) as count
         from {schema}.stream_items as i where i.run_id = s.run_id and i.stream = s.stream offset 0
     ) as i);

-- name: run_ids
-- The ids of all runs, and nothing else of them: their rows may be damaged.
select coalesce(json_agg(f.run_id order by f.run_id), '[]') from (
    select r.run_id from {schema}.runs as r where r.run_id > :after order by r.run_id limit :limit
) as f;

-- name: positions_of
-- Where events are, by their ids.
select coalesce(json_object_agg(e.event_id, e.position), '{}')
from unnest(:event_ids::text[]) as w (event_id)
cross join lateral (select * from {schema}.events as e where e.event_id = w.event_id offset 0) as e;

-- name: items_of
-- Which of these items are in a queue.
select coalesce(json_agg(i.item_id), '[]')
from unnest(:item_ids::text[]) as w (item_id)
cross join lateral (select * from {schema}.queue_items as i where i.item_id = w.item_id offset 0) as i;

-- name: strays
-- Rows of runs that are not there, some of each table. Of steps one entry for each run is looked at, not each row.
with recursive stepped (run_id) as (
    (select s.run_id from {schema}.steps as s order by s.run_id limit 1)
    union all
    select (select s.run_id from {schema}.steps as s where s.run_id > p.run_id order by s.run_id limit 1)
    from stepped as p where p.run_id is not null
)
select coalesce(json_agg(json_build_array(f.name, f.run_id)), '[]') from (
    (select 'steps' as name, s.run_id from stepped as s
     where s.run_id is not null
     and not exists (select 1 from {schema}.runs as r where r.run_id = s.run_id) limit :limit)
    union all
    (select distinct 'watchers', t.run_id from {schema}.watchers as t
     where not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select distinct 'signals', t.run_id from {schema}.signals as t
     where not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select distinct 'cursors', t.run_id from {schema}.cursors as t
     where not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select distinct 'streams', t.run_id from {schema}.streams as t
     where not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select distinct 'stream_items', t.run_id from {schema}.stream_items as t
     where not exists (select 1 from {schema}.streams as s where s.run_id = t.run_id and s.stream = t.stream)
     limit :limit)
    union all
    (select distinct 'dead_letters', t.run_id from {schema}.dead_letters as t
     where not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select distinct 'keys', t.run_id from {schema}.keys as t
     where t.run_id is not null
     and not exists (select 1 from {schema}.runs as r where r.run_id = t.run_id) limit :limit)
    union all
    (select 'fan_outs', t.position::text from {schema}.fan_outs as t
     where not exists (select 1 from {schema}.events as e where e.position = t.position) limit :limit)
) as f;

-- name: describe
-- The settings that our promises rest on, and the size of the schema, from the catalogue.
select
    json_build_object(
        'fsync', current_setting('fsync'),
        'synchronous_commit', current_setting('synchronous_commit'),
        'full_page_writes', current_setting('full_page_writes'),
        'synchronous_standby_names', current_setting('synchronous_standby_names'),
        'max_connections', current_setting('max_connections'),
        'server_encoding', current_setting('server_encoding'),
        'server_version', current_setting('server_version'),
        'in_recovery', pg_is_in_recovery()::text
    ),
    (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
     from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
     where n.nspname = :schema and c.relkind in ('r', 'p'));


-- --- the schema itself -------------------------------------------------------------------------------

-- name: meta
-- All facts about the schema; few.
select name, value from {schema}.meta;

-- name: put_meta
-- Sets a fact about the schema.
insert into {schema}.meta (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;
