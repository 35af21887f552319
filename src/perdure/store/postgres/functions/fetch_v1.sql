-- fetch_v1: what a decision must know, in one call and from one snapshot (that is what `stable` means here: a run and
-- what belongs to it are of one version). Rows come as arrays of JSON objects.
--
-- Around those who wait for something that was asked about, everything is given that ending their wait takes.
create or replace function {schema}.fetch_v1(
    p_runs text[],
    p_inside text[],
    p_on_run text[],
    p_children text[],
    p_steps json,
    p_keys json,
    p_topics text[],
    p_watching json,
    p_queues json,
    p_units json,
    p_events text[],
    p_positions bigint[],
    p_fan_outs boolean,
    out head bigint,
    out clock bigint,
    out runs json,
    out watchers json,
    out signals json,
    out cursors json,
    out unfinished json,
    out on_run json,
    out on_inside json,
    out children json,
    out steps json,
    out keys json,
    out topics json,
    out watching json,
    out items json,
    out takers json,
    out units json,
    out events json,
    out fan_outs json
)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $function$
#variable_conflict use_column
declare
    v_inside text[] := coalesce(p_inside, '{}');
    v_more text[];
begin
    clock := extract(epoch from clock_timestamp()) * 1000000;
    select h.position into head from ledger_head as h;

    if p_on_run is not null then
        select coalesce(json_agg({watcher as json of w}), '[]'), array_agg(w.run_id) into on_run, v_more
        from unnest(p_on_run) as t (run_id)
        join watchers as w on w.kind = 'run' and w.target = t.run_id and w.target <> '';
        v_inside := v_inside || v_more;
    end if;

    if p_children is not null then
        select coalesce(json_agg(json_build_array(r.parent_run_id, r.run_id)), '[]'), array_agg(r.run_id)
        into children, v_more
        from unnest(p_children) as t (run_id)
        -- Lateral: planned while the table was empty, a join would go on to read all runs there are.
        cross join lateral (
            select r.parent_run_id, r.run_id from runs as r
            where r.parent_run_id = t.run_id and r.finished_at is null offset 0
        ) as r;
        v_inside := v_inside || v_more;
    end if;

    if p_watching is not null then
        -- Two walks along one index, for any entity and for the event's own, each no longer than asked for.
        select json_agg(found.rows order by asked.ordinality), array_agg(found.run_ids)
        into watching, v_more
        from rows from (
            json_to_recordset(p_watching) as (topic text, entity text, position bigint, recorded_at bigint, "limit" bigint)
        ) with ordinality as asked (topic, entity, position, recorded_at, "limit", ordinality)
        cross join lateral (
            select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.run_id, w.path, w.ix), '[]') as rows,
                string_agg(w.run_id, chr(31)) as run_ids
            from (
                select * from (
                    select * from watchers as w
                    where w.kind = 'topic' and w.target = asked.topic and w.target <> '' and w.entity = ''
                    and w.after < asked.position
                    and (w.deadline_at is null or w.deadline_at >= asked.recorded_at)
                    order by w.opened_at, w.run_id, w.path, w.ix limit asked."limit"
                ) as whoever
                union all
                select * from (
                    select * from watchers as w
                    where w.kind = 'topic' and w.target = asked.topic and w.target <> ''
                    and w.entity = asked.entity and asked.entity <> ''
                    and w.after < asked.position
                    and (w.deadline_at is null or w.deadline_at >= asked.recorded_at)
                    order by w.opened_at, w.run_id, w.path, w.ix limit asked."limit"
                ) as about_it
                order by opened_at, run_id, path, ix limit asked."limit"
            ) as w
        ) as found;
        v_inside := v_inside || string_to_array(array_to_string(v_more, chr(31)), chr(31));
    end if;

    if p_queues is not null then
        select json_agg(found.rows order by asked.ordinality) into items
        from rows from (
            json_to_recordset(p_queues) as (name text, "limit" bigint)
        ) with ordinality as asked (name, "limit", ordinality)
        cross join lateral (
            select coalesce(json_agg({item as json of i} order by i.position), '[]') as rows
            from (
                select * from queue_items as i where i.queue = asked.name order by i.position limit asked."limit"
            ) as i
        ) as found;
        select json_agg(found.rows order by asked.ordinality), array_agg(found.run_ids) into takers, v_more
        from rows from (
            json_to_recordset(p_queues) as (name text, "limit" bigint)
        ) with ordinality as asked (name, "limit", ordinality)
        cross join lateral (
            select coalesce(json_agg({watcher as json of w} order by w.opened_at, w.run_id, w.path, w.ix), '[]') as rows,
                string_agg(w.run_id, chr(31)) as run_ids
            from (
                select * from watchers as w
                where w.kind = 'queue' and w.target = asked.name and w.target <> '' and w.entity = ''
                order by w.opened_at, w.run_id, w.path, w.ix limit asked."limit"
            ) as w
        ) as found;
        v_inside := v_inside || string_to_array(array_to_string(v_more, chr(31)), chr(31));
    end if;

    if p_units is not null then
        select json_agg(json_build_array(u.kind, u.name, coalesce(v.version, 0))) into units
        from json_to_recordset(p_units) as u (kind text, name text)
        left join units as v on v.kind = u.kind and v.name = u.name;
    end if;

    if p_topics is not null then
        select json_agg(json_build_array(
            t.name,
            coalesce((select v.version from units as v where v.kind = 'topic' and v.name = t.name), 0),
            exists (select 1 from watchers as w where w.kind = 'topic' and w.target = t.name and w.target <> ''),
            coalesce((select e.position from events as e where e.type = t.name order by e.position desc limit 1), 0)
        )) into topics
        from unnest(p_topics) as t (name);
    end if;

    if p_keys is not null then
        select coalesce(json_agg({key as json of k}), '[]') into keys
        from json_to_recordset(p_keys) as w (scope text, key text)
        join keys as k on k.scope = w.scope and k.key = w.key;
    end if;

    if p_steps is not null then
        select coalesce(json_agg({step as json of s}), '[]') into steps
        from json_to_recordset(p_steps) as w (run_id text, generation bigint, path text)
        join steps as s
            on s.run_id = w.run_id and s.generation = w.generation and s.path = w.path and s.superseded = 0;
    end if;

    if p_events is not null or p_positions is not null then
        select coalesce(json_agg({event as json of e}), '[]') into events
        from (
            select e.* from unnest(p_events) as w (event_id) join events as e on e.event_id = w.event_id
            union
            select e.* from unnest(p_positions) as w (position) join events as e on e.position = w.position
        ) as e;
    end if;

    if p_fan_outs then
        select coalesce(json_agg(f.position order by f.position), '[]') into fan_outs from fan_outs as f;
    end if;

    if p_runs is null and cardinality(v_inside) = 0 and p_on_run is null and p_children is null then
        return;
    end if;
    select coalesce(json_agg(json_build_object('run', {run as json of r}, 'change', r.change, 'seq',
        case when r.status = 'running' then greatest(r.seq, (
            select max(s.seq) from steps as s where s.run_id = r.run_id and s.generation = r.generation
        )) else r.seq end
    )), '[]') into runs
    from (select distinct unnest(v_inside || p_runs || p_on_run || p_children) as run_id) as w
    join runs as r on r.run_id = w.run_id;

    if cardinality(v_inside) > 0 then
        select coalesce(json_agg({watcher as json of w}), '[]') into watchers
        from (select distinct unnest(v_inside) as run_id) as i join watchers as w on w.run_id = i.run_id;
        select coalesce(json_agg({signal as json of s}), '[]') into signals
        from (select distinct unnest(v_inside) as run_id) as i join signals as s on s.run_id = i.run_id;
        select coalesce(json_agg({cursor as json of c}), '[]') into cursors
        from (select distinct unnest(v_inside) as run_id) as i join cursors as c on c.run_id = i.run_id;
        -- Who waits for them too: at their end that is asked of each.
        select coalesce(json_agg({watcher as json of w}), '[]') into on_inside
        from (select distinct unnest(v_inside) as run_id) as i
        join watchers as w on w.kind = 'run' and w.target = i.run_id and w.target <> '';
        -- (An expression has no index: without it the primary key would do as well, to a planner that sees no rows.)
        select coalesce(json_agg({step as json of s}), '[]') into unfinished
        from (select distinct unnest(v_inside) as run_id) as i
        join runs as r on r.run_id = i.run_id
        cross join lateral (
            select * from steps as s
            where s.run_id = r.run_id and s.generation = r.generation
            and s.state in ('open', 'retrying') and s.superseded + 0 = 0 offset 0
        ) as s;
    end if;
end
$function$;
