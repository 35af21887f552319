-- apply_v1: one batch, in one call. It takes the locks, compares what the decision rests on with what is there by then,
-- and writes all of it or nothing. No lock outlives the call's own transaction, and no client holds one while it thinks.
--
-- Locks are taken in one order by everybody, so that nobody waits in a circle: that of who goes alone, units by number,
-- runs by id, the head of the ledger, and only then rows are written (keys in order, since a unique index waits like a
-- lock). What is locked is read by a LATER statement: one that locks and reads at once would wait and then see the rows
-- as they were before.
--
-- Rows come as arrays of JSON objects, the fields of a record by their names; what a batch has none of is null.
-- Positions from 2^62 on are counted from the end of the ledger and are placed here. Marks are filled in by statements.py:
--
--   {step rows p_x}                     json_to_recordset(p_x) with the columns of that record and their types
--   {step columns}, {step columns of s}  its columns; `with x placed` places one of them
--   {step excluded}                     x = excluded.x for each of them
--   {run as json of r}                  an object of all of them
--   {place x}                           the position x, placed
create or replace function {schema}.apply_v1(
    p_batch_id text,
    p_now bigint,
    p_seq bigint,
    p_seq_before bigint,
    p_born bigint,
    p_needs_head boolean,
    p_judges_time boolean,
    p_head bigint,
    p_units json,
    p_runs json,
    p_new_runs json,
    p_changed_runs json,
    p_new_steps json,
    p_put_steps json,
    p_new_watchers json,
    p_gone_watchers json,
    p_new_signals json,
    p_gone_signals json,
    p_put_cursors json,
    p_new_items json,
    p_gone_items json,
    p_new_keys json,
    p_new_events json,
    p_claims json,
    p_rest json,
    out conflict json,
    out head bigint,
    out clock bigint,
    out claimed json
)
language plpgsql volatile
-- Whatever the role or the database says: names mean this schema, and rows are found by their index, also in tables that
-- were never analysed. (A hash or merge join would read a whole index to find ten rows in it.)
set search_path = {schema}, pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
set lock_timeout = '15s'
as $function$
#variable_conflict use_column
declare
    v_run_ids text[];
    v_changes bigint[];
    v_bumps boolean[];
    v_generations bigint[];
    v_stale_units json;
    v_looked boolean;
    v_stale_runs json;
    v_seq bigint;
    v_recorded_at bigint;
    v_count bigint;
    v_wanted bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'perdure needs the isolation level read committed, not %', current_setting('transaction_isolation')
            using errcode = 'PD002';
    end if;
    clock := extract(epoch from clock_timestamp()) * 1000000;

    -- Whoever was overtaken too often takes this lock for itself, and all others wait.
    perform pg_advisory_xact_lock_shared({lock_class}, -2);

    -- --- lock and compare: units ---

    if p_units is not null then
        -- lock units
        perform case
            when one.bump then pg_advisory_xact_lock({lock_class}, one.number)
            else pg_advisory_xact_lock_shared({lock_class}, one.number)
        end
        from (
            select hashtext(u.kind || '/' || u.name) & 127 as number, bool_or(u.bump) as bump
            from json_to_recordset(p_units) as u (kind text, name text, bump boolean)
            group by 1 order by 1
        ) as one;

        -- compare units
        select
            json_agg(json_build_array(u.kind, u.name)) filter (where coalesce(v.version, 0) <> u.version),
            bool_or(u.newest is not null)
        into v_stale_units, v_looked
        from json_to_recordset(p_units) as u (kind text, name text, version bigint, newest bigint)
        left join units as v on v.kind = u.kind and v.name = u.name;
    end if;

    -- --- lock and compare: runs ---

    if p_runs is not null then
        select array_agg(r.run_id), array_agg(r.change), array_agg(r.bump), array_agg(r.generation)
        into v_run_ids, v_changes, v_bumps, v_generations
        from json_to_recordset(p_runs) as r (run_id text, change bigint, bump boolean, generation bigint);

        -- lock runs
        perform 1 from runs as r where r.run_id = any (v_run_ids) order by r.run_id for no key update;

        -- compare runs
        select json_agg(s.run_id) into v_stale_runs
        from unnest(v_run_ids, v_changes) as s (run_id, change)
        left join runs as r on r.run_id = s.run_id
        where r.change is distinct from s.change;

        -- What the owner of a running run has recorded meanwhile must be older than what this batch adds to it.
        select max(t.seq) into v_seq
        from unnest(v_run_ids, v_generations) as s (run_id, generation)
        join steps as t on t.run_id = s.run_id and t.generation = s.generation
        where s.generation is not null and t.seq > p_seq_before;
    end if;

    -- --- lock and compare: the head of the ledger ---

    if p_needs_head then
        select h.position, h.recorded_at into head, v_recorded_at from ledger_head as h for no key update;
    end if;

    if v_looked and v_stale_units is null then
        -- compare events
        -- Whoever opens a wait keeps those who emit to its topic away by the lock of the topic. Whoever only looked for
        -- an event, and appends or lets a deadline pass because there was none, does so by the lock of the head: so
        -- this is asked after it.
        select json_agg(json_build_array(u.kind, u.name)) into v_stale_units
        from json_to_recordset(p_units) as u (kind text, name text, newest bigint)
        where u.newest is not null and u.newest <> coalesce(
            (select e.position from events as e where e.type = u.name order by e.position desc limit 1), 0
        );
    end if;

    if v_stale_units is not null or v_stale_runs is not null or v_seq is not null
        or head <> p_head or (p_judges_time and v_recorded_at > p_now)
    then
        conflict := json_build_object(
            'units', coalesce(v_stale_units, '[]'), 'runs', coalesce(v_stale_runs, '[]'),
            'seq', coalesce(v_seq, 0), 'head', coalesce(head, 0), 'now', coalesce(v_recorded_at, 0)
        );
        return;
    end if;

    -- --- write: units and runs ---

    if p_units is not null then
        -- No smaller than the numbers of this batch: whoever reads it counts on from there.
        insert into units as v (kind, name, version)
        select u.kind, u.name, greatest(u.version + 1, p_seq)
        from json_to_recordset(p_units) as u (kind text, name text, version bigint, bump boolean)
        where u.bump
        on conflict (kind, name) do update set version = excluded.version;
    end if;

    if p_rest is not null then
        perform {schema}.delete_v1(p_rest);
    end if;

    if p_new_runs is not null then
        insert into runs ({run columns}, change, seq)
        select {run columns of r with position placed}, p_born, p_seq
        from {run rows p_new_runs} as r order by r.run_id;
    end if;

    if p_changed_runs is not null then
        update runs as r set
            status = c.status, owner = c.owner, fence = c.fence, revision = c.revision,
            ready_at = c.ready_at, finished_at = c.finished_at, output = c.output, error = c.error,
            reason = c.reason, pause_requested = c.pause_requested, cancel_requested = c.cancel_requested,
            published = coalesce(c.published, r.published), line_at = c.line_at, admitted = c.admitted,
            change = r.change + 1, seq = p_seq
        from json_to_recordset(p_changed_runs) as c (
            run_id text, status text, owner text, fence bigint, revision bigint, ready_at bigint,
            finished_at bigint, output text, error text, reason text, pause_requested boolean,
            cancel_requested boolean, published text, line_at bigint, admitted boolean
        )
        where r.run_id = c.run_id;
    end if;

    -- Those whose row stays as it is while something that belongs to them changes. The others were moved above.
    update runs as r set change = r.change + 1, seq = p_seq
    from unnest(v_run_ids, v_changes, v_bumps) as s (run_id, change, bump)
    where s.bump and r.run_id = s.run_id and r.change = s.change;

    -- --- write: what belongs to runs ---

    if p_put_steps is not null then
        insert into steps ({step columns})
        select {step columns of s with value, wait placed} from {step rows p_put_steps} as s
        on conflict (run_id, generation, path, superseded) do update set
            kind = excluded.kind, name = excluded.name, state = excluded.state, seq = excluded.seq,
            value = excluded.value, error = excluded.error, attempt = excluded.attempt,
            winner = excluded.winner, wait = excluded.wait, started_at = excluded.started_at,
            recorded_at = excluded.recorded_at, retry_at = excluded.retry_at, taken_id = excluded.taken_id;
    end if;
    if p_new_steps is not null then
        insert into steps ({step columns})
        select {step columns of s with value, wait placed} from {step rows p_new_steps} as s;
    end if;
    if p_gone_watchers is not null then
        delete from watchers as w
        using json_to_recordset(p_gone_watchers) as g (run_id text, path text, ix bigint)
        where w.run_id = g.run_id and w.path = g.path and w.ix = g.ix;
    end if;
    if p_new_watchers is not null then
        insert into watchers ({watcher columns})
        select {watcher columns of w with after placed} from {watcher rows p_new_watchers} as w;
    end if;
    if p_gone_signals is not null then
        delete from signals as s using json_array_elements_text(p_gone_signals) as g where s.signal_id = g;
    end if;
    if p_new_signals is not null then
        insert into signals ({signal columns}) select {signal columns of s} from {signal rows p_new_signals} as s;
    end if;
    if p_put_cursors is not null then
        insert into cursors ({cursor columns})
        select {cursor columns of c with position placed} from {cursor rows p_put_cursors} as c
        on conflict (run_id, branch, topic, entity, filter) do update set position = excluded.position;
    end if;

    -- --- write: queues, keys, ledger ---

    if p_gone_items is not null then
        with gone as (
            delete from queue_items as i using json_array_elements_text(p_gone_items) as g where i.item_id = g
            returning 1
        )
        select count(*), json_array_length(p_gone_items) into v_count, v_wanted from gone;
        if v_count <> v_wanted then
            raise exception '% of % items were there to be taken', v_count, v_wanted using errcode = 'PD003';
        end if;
    end if;
    if p_new_items is not null then
        insert into queue_items ({item columns}) select {item columns of i} from {item rows p_new_items} as i;
    end if;
    if p_new_keys is not null then
        insert into keys ({key columns})
        select {key columns of k with answer placed} from {key rows p_new_keys} as k order by k.scope, k.key;
    end if;
    if p_rest is not null then
        perform {schema}.put_v1(p_rest, head, p_seq);
    end if;
    if p_rest -> 'put_streams' is not null then
        perform {schema}.publish_v1(p_rest -> 'put_streams', p_rest -> 'new_stream_items');
    end if;

    if p_claims is not null then
        select json_agg({schema}.claim_v1(c.value, p_now) order by c.ordinality) into claimed
        from json_array_elements(p_claims) with ordinality as c;
    end if;

    if p_rest ->> 'trim' is not null then
        -- The oldest events, and of the new ones below those that are not worth writing; never the newest one of all,
        -- whose place is where the ledger ends. Before what comes: an id may be used anew.
        perform set_config('perdure.retention', 'on', true);
        delete from events as e where e.position <= (p_rest ->> 'trim')::bigint;
        perform set_config('perdure.retention', '', true);
    end if;
    if p_new_events is not null then
        -- Another process may have appended meanwhile, at a later time: the times of the ledger never go back.
        insert into events ({event columns})
        select {event columns of e with position, recorded_at placed} from {event rows p_new_events} as e
        where {place e.position} > coalesce((p_rest ->> 'trim')::bigint, 0);
    end if;
    if p_needs_head then
        update ledger_head as h set
            position = h.position + coalesce(json_array_length(p_new_events), 0),
            recorded_at = greatest(h.recorded_at, p_now);
    end if;

    insert into commits (batch_id, at, head) values (p_batch_id, p_now, coalesce(head, 0));
end
$function$;

-- What goes, before anything comes: ids may be used anew within one batch.
create or replace function {schema}.delete_v1(p_rest json) returns void
language plpgsql volatile
as $function$
declare
    v_run_ids text[];
    v_count bigint;
    v_wanted bigint;
begin
    -- Before the runs, which take theirs along: each of these must be there.
    if p_rest -> 'gone_letters' is not null then
        with gone as (
            delete from dead_letters as d using json_array_elements_text(p_rest -> 'gone_letters') as g
            where d.dead_letter_id = g returning 1
        )
        select count(*), json_array_length(p_rest -> 'gone_letters') into v_count, v_wanted from gone;
        if v_count <> v_wanted then
            raise exception '% of % dead letters were there', v_count, v_wanted using errcode = 'PD003';
        end if;
    end if;
    if p_rest -> 'gone_keys' is not null then
        -- The very keys that were seen: another process may have put its own in their place.
        with gone as (
            delete from keys as k using {key rows p_rest -> 'gone_keys'} as g
            where k.scope = g.scope and k.key = g.key and k.created_at = g.created_at and k.answer = g.answer
            returning 1
        )
        select count(*), json_array_length(p_rest -> 'gone_keys') into v_count, v_wanted from gone;
        if v_count <> v_wanted then
            raise exception '% of % keys were there to be deleted', v_count, v_wanted using errcode = 'PD003';
        end if;
    end if;
    if p_rest -> 'gone_runs' is not null then
        v_run_ids := array(select json_array_elements_text(p_rest -> 'gone_runs'));
        delete from runs where run_id = any (v_run_ids);
        delete from steps where run_id = any (v_run_ids);
        delete from watchers where run_id = any (v_run_ids);
        delete from signals where run_id = any (v_run_ids);
        delete from cursors where run_id = any (v_run_ids);
        delete from streams where run_id = any (v_run_ids);
        delete from stream_items where run_id = any (v_run_ids);
        delete from keys where run_id = any (v_run_ids);
        delete from dead_letters where run_id = any (v_run_ids);
    end if;
    if p_rest -> 'past_steps' is not null then
        delete from steps as s
        using json_to_recordset(p_rest -> 'past_steps') as g (run_id text, generation bigint)
        where s.run_id = g.run_id and s.generation < g.generation;
    end if;
    if p_rest -> 'gone_steps' is not null then
        delete from steps as s
        using json_to_recordset(p_rest -> 'gone_steps') as g (run_id text, generation bigint, path text)
        where s.run_id = g.run_id and s.generation = g.generation and s.path = g.path and s.superseded = 0;
    end if;
    if p_rest -> 'gone_outbox' is not null then
        -- Rows that another process has applied meanwhile are gone: then this one must not apply them again.
        with gone as (
            delete from outbox as o using json_array_elements_text(p_rest -> 'gone_outbox') as g
            where o.outbox_id = g returning 1
        )
        select count(*), json_array_length(p_rest -> 'gone_outbox') into v_count, v_wanted from gone;
        if v_count <> v_wanted then
            raise exception '% of % sends were there', v_count, v_wanted using errcode = 'PD003';
        end if;
    end if;
    delete from fan_outs as f using json_array_elements_text(p_rest -> 'gone_fan_outs') as g
    where f.position = g::bigint;
    if p_rest -> 'gone_consumers' is not null then
        delete from consumers as c using json_array_elements_text(p_rest -> 'gone_consumers') as g where c.name = g;
        delete from parked as p using json_array_elements_text(p_rest -> 'gone_consumers') as g where p.consumer = g;
    end if;
    if p_rest -> 'gone_subscriptions' is not null then
        delete from subscriptions as s using json_array_elements_text(p_rest -> 'gone_subscriptions') as g
        where s.name = g;
        delete from deferred as d using json_array_elements_text(p_rest -> 'gone_subscriptions') as g
        where d.subscription = g;
    end if;
    delete from parked as p
    using json_to_recordset(p_rest -> 'gone_parked') as g (consumer text, position bigint, subscription text)
    where p.consumer = g.consumer and p.position = g.position and p.subscription = g.subscription;
    delete from deferred as d
    using json_to_recordset(p_rest -> 'gone_deferred') as g (position bigint, subscription text)
    where d.position = g.position and d.subscription = g.subscription;
    delete from schedules as s using json_array_elements_text(p_rest -> 'gone_schedules') as g where s.name = g;
    delete from workers as w using json_array_elements_text(p_rest -> 'gone_workers') as g where w.worker_id = g;
end
$function$;

-- What comes or changes, of the tables that a batch seldom touches.
create or replace function {schema}.put_v1(p_rest json, p_head bigint, p_seq bigint) returns void
language plpgsql volatile
as $function$
begin
    if p_rest -> 'renewed_runs' is not null then
        -- Runs that continued as another, or took another input: what a run is born with may be new.
        update runs as r set
            workflow = c.workflow, version = c.version, status = c.status, input = c.input,
            generation = c.generation, owner = c.owner, fence = c.fence, revision = c.revision,
            ready_at = c.ready_at, finished_at = c.finished_at, output = c.output, error = c.error,
            reason = c.reason, pause_requested = c.pause_requested, cancel_requested = c.cancel_requested,
            published = c.published, origin = c.origin, deadline_at = c.deadline_at, cancel_on = c.cancel_on,
            replaced = c.replaced, line_at = c.line_at, admitted = c.admitted,
            trace = coalesce(c.trace, r.trace) -- older code does not name it
        from {run rows p_rest -> 'renewed_runs'} as c
        where r.run_id = c.run_id;
    end if;
    insert into dead_letters ({letter columns})
    select {letter columns of d} from {letter rows p_rest -> 'new_letters'} as d;
    insert into fan_outs (position)
    select {place f::bigint} from json_array_elements_text(p_rest -> 'new_fan_outs') as f
    on conflict (position) do nothing;
    insert into consumers ({consumer columns})
    select {consumer columns of c with position placed} from {consumer rows p_rest -> 'put_consumers'} as c
    on conflict (name) do update set {consumer excluded};
    insert into subscriptions ({subscription columns})
    select {subscription columns of s with position, until placed}
    from {subscription rows p_rest -> 'put_subscriptions'} as s
    on conflict (name) do update set {subscription excluded};
    -- One that was to begin at the end, or beyond it, has nothing to catch up with: only now it is known where that is.
    update subscriptions as s set behind = null
    from {subscription rows p_rest -> 'put_subscriptions'} as p
    where s.name = p.name and s.behind >= s.until;
    insert into parked ({parked columns})
    select {parked columns of p} from {parked rows p_rest -> 'put_parked'} as p
    on conflict (consumer, position, subscription) do update set {parked excluded};
    insert into deferred ({deferred columns})
    select {deferred columns of d} from {deferred rows p_rest -> 'put_deferred'} as d
    on conflict (position, subscription) do update set {deferred excluded};
    insert into schedules ({schedule columns})
    select {schedule columns of s} from {schedule rows p_rest -> 'put_schedules'} as s
    on conflict (name) do update set {schedule excluded};
    insert into pools ({pool columns})
    select {pool columns of p} from {pool rows p_rest -> 'put_pools'} as p
    on conflict (name) do update set {pool excluded};
    insert into workers ({worker columns})
    select {worker columns of w} from {worker rows p_rest -> 'put_workers'} as w
    on conflict (worker_id) do update set lease_until = excluded.lease_until, workflows = excluded.workflows;
    insert into workflows ({workflow columns})
    select {workflow columns of w} from {workflow rows p_rest -> 'put_workflows'} as w
    on conflict (name, version) do update set {workflow excluded};
    insert into channels ({channel columns})
    select {channel columns of c} from {channel rows p_rest -> 'put_channels'} as c
    on conflict (kind, name) do update set {channel excluded};
end
$function$;

-- What runs publish. Whoever publishes has the row of the run locked: so nobody else moves its streams meanwhile.
create or replace function {schema}.publish_v1(p_streams json, p_items json) returns void
language plpgsql volatile
as $function$
declare
    v_count bigint;
begin
    select count(*) into v_count
    from json_to_recordset(p_streams) as p (run_id text, stream text, seen bigint)
    left join streams as s on s.run_id = p.run_id and s.stream = p.stream
    where coalesce(s.last, 0) <> p.seen;
    if v_count > 0 then
        raise exception '% streams have come further than was seen', v_count using errcode = 'PD003';
    end if;
    insert into streams ({stream columns})
    select {stream columns of s} from {stream rows p_streams} as s
    on conflict (run_id, stream) do update set last = excluded.last, bytes_all = excluded.bytes_all;
    insert into stream_items ({stream_item columns})
    select {stream_item columns of i} from {stream_item rows p_items} as i;
    -- Of each stream what lies before the first item that is kept.
    delete from stream_items as i
    using json_to_recordset(p_streams) as p (run_id text, stream text, position_min bigint, bytes_min bigint)
    where (p.position_min > 1 or p.bytes_min > 0) and i.run_id = p.run_id and i.stream = p.stream
    and i.position < (
        select k.position from stream_items as k
        where k.run_id = p.run_id and k.stream = p.stream and k.position >= p.position_min
        and k.bytes_before >= p.bytes_min
        order by k.position limit 1
    );
end
$function$;

-- A claim: the runs that are due, of workflows that the worker knows: the oldest of each pool that it serves, then the
-- second ones, and so on. Each workflow in each pool is a walk along one index; rows that another claim is taking are stepped over, and the rows are chosen once (materialized), for a plan
-- that asks again would take more than the limit.
create or replace function {schema}.claim_v1(p_claim json, p_now bigint) returns json
language plpgsql volatile
as $function$
declare
    v_limit bigint := p_claim ->> 'limit';
    v_pools text[];
    v_runs json;
    v_next_at bigint;
begin
    if p_claim ->> 'pools' is not null then
        v_pools := array(select json_array_elements_text(p_claim -> 'pools'));
    else
        -- All that have ready runs, found by hopping along the index from one to the next.
        with recursive found (pool) as (
            (select r.pool from runs as r where r.ready_at is not null and r.pool >= '' order by r.pool limit 1)
            union all
            select (
                select r.pool from runs as r where r.ready_at is not null and r.pool > f.pool order by r.pool limit 1
            ) from found as f where f.pool is not null
        )
        select array_agg(f.pool) into v_pools from found as f where f.pool is not null;
    end if;

    with due as materialized (
        select found.run_id, found.ready_at, found.status, p.pool
        from unnest(v_pools) as p (pool)
        cross join json_to_recordset(p_claim -> 'workflows') as known (name text, version bigint)
        cross join lateral (
            select r.run_id, r.ready_at, r.status from runs as r
            where r.pool = p.pool and r.workflow = known.name and r.version = known.version and r.ready_at <= p_now
            order by r.ready_at, r.run_id limit v_limit
            for no key update skip locked
        ) as found
    ),
    first as materialized (
        select d.run_id, d.ready_at, d.status, d.nth from (
            select due.*, row_number() over (partition by pool order by ready_at, run_id) as nth from due
        ) as d order by d.nth, d.ready_at, d.run_id limit v_limit
    ),
    taken as (
        update runs as r set
            status = 'running', owner = p_claim ->> 'worker_id', fence = (p_claim ->> 'fence')::bigint,
            ready_at = null, change = r.change + 1,
            -- What it was running, its owner may have gone on with unseen.
            seq = greatest(r.seq, case when first.status = 'running' then (
                select max(s.seq) from steps as s where s.run_id = r.run_id and s.generation = r.generation
            ) end)
        from first where r.run_id = first.run_id
        returning r.*, first.ready_at as was_ready_at, first.nth
    )
    select json_agg(json_build_object('run', {run as json of t}, 'change', t.change, 'seq', t.seq)
        order by t.nth, t.was_ready_at, t.run_id)
    into v_runs from taken as t;

    select min((
        select r.ready_at from runs as r
        where r.pool = p.pool and r.workflow = known.name and r.version = known.version and r.ready_at > p_now
        order by r.ready_at limit 1
    )) into v_next_at
    from unnest(v_pools) as p (pool)
    cross join json_to_recordset(p_claim -> 'workflows') as known (name text, version bigint);
    return json_build_object('runs', coalesce(v_runs, '[]'), 'next_at', v_next_at);
end
$function$;

-- A JSON text of ours in which positions stand that only now have a place: as `"position":…`, or in `"after":[…]`.
create or replace function {schema}.placed_text(p_text text, p_head bigint) returns text
language plpgsql immutable
as $function$
declare
    v_old text;
    v_new text;
    v_number text;
begin
    for v_old in
        select distinct m[1] from regexp_matches(p_text, '("position":{unplaced_mark}\d{5}|"after":\[[\d,]*\])', 'g') as m
    loop
        v_new := v_old;
        for v_number in select distinct m[1] from regexp_matches(v_old, '({unplaced_mark}\d{5})', 'g') as m loop
            v_new := replace(v_new, v_number, (v_number::bigint - {unplaced} + p_head)::text);
        end loop;
        p_text := replace(p_text, v_old, v_new);
    end loop;
    return p_text;
end
$function$;
