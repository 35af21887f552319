-- The first schema. Times are microseconds since 1970 UTC; payloads are JSON text with their codec beside (text, not
-- jsonb: that reorders keys and refuses what other stores take). All names and ids compare by their bytes, on every
-- server alike, which is also the quickest way to compare.
--
-- {schema} is the namespace. Tables that are changed at the rate of steps keep room in their pages, and are vacuumed
-- early: what is dead in them is otherwise walked over by every claim.

create table {schema}.meta (
    name text primary key,
    value text not null
);

-- One row per committed batch, so that a lost answer can be settled: `head` is where the ledger ended before it. Null for
-- a batch that was not committed when somebody asked, and so never will be.
create table {schema}.commits (
    batch_id text collate "C" primary key,
    at bigint not null,
    head bigint
);

create index commits_by_age on {schema}.commits (at);

-- Versions of what several processes may decide about at once and that has no row of its own: topics, queues, readers
-- of the ledger, the catalogue. Each is locked by its name before its version is compared.
create table {schema}.units (
    kind text collate "C" not null,
    name text collate "C" not null,
    version bigint not null,
    primary key (kind, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Where the ledger ends, and when that was. Whoever appends locks this row until its commit: so positions are dense and
-- in the order of the commits, and time on the ledger never goes back.
create table {schema}.ledger_head (
    one boolean primary key default true check (one),
    position bigint not null,
    recorded_at bigint not null
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

insert into {schema}.ledger_head (position, recorded_at) values (0, 0);

create table {schema}.runs (
    run_id text collate "C" primary key,
    workflow text collate "C" not null,
    version bigint not null,
    status text collate "C" not null,
    input text not null,
    created_at bigint not null,
    generation bigint not null,
    owner text collate "C",
    fence bigint not null,
    revision bigint not null,
    ready_at bigint,
    finished_at bigint,
    output text,
    error text,
    reason text,
    pause_requested boolean not null,
    cancel_requested boolean not null,
    parent_run_id text collate "C",
    parent_path text,
    tags text,
    entity_type text collate "C",
    entity_id text collate "C",
    key text,
    published text,
    root_id text collate "C",
    depth bigint not null,
    origin text,
    position bigint not null,
    event_id text,
    codec text not null default 'json/1',
    -- Moves with everything that belongs to the run and that others may decide on.
    change bigint not null,
    -- No smaller than any sequence number in its history, except those its present owner adds while it runs.
    seq bigint not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index runs_by_status on {schema}.runs (status, created_at, run_id);
create index runs_by_created on {schema}.runs (created_at, run_id);
create index runs_by_workflow on {schema}.runs (workflow, created_at, run_id);
create index runs_by_entity on {schema}.runs (entity_type, entity_id, created_at, run_id)
    where entity_type is not null;
create index runs_by_parent on {schema}.runs (parent_run_id, created_at, run_id) where parent_run_id is not null;
-- Led by the workflow: a worker asks for those it knows, and ready runs of others may be many.
create index runs_ready on {schema}.runs (workflow, version, ready_at, run_id) where ready_at is not null;
-- Who runs something: a handful of owners, found by hopping from one to the next.
create index runs_running on {schema}.runs (owner, run_id) where status = 'running';
create index runs_by_root on {schema}.runs (root_id) where root_id is not null;
create index runs_finished on {schema}.runs (finished_at, run_id) where finished_at is not null;

create table {schema}.steps (
    run_id text collate "C" not null,
    generation bigint not null,
    path text collate "C" not null,
    kind text not null,
    name text not null,
    state text collate "C" not null,
    seq bigint not null,
    value text,
    error text,
    attempt bigint not null,
    winner bigint,
    wait text,
    started_at bigint not null,
    recorded_at bigint,
    retry_at bigint,
    superseded bigint not null,
    taken_id text,
    codec text not null default 'json/1',
    primary key (run_id, generation, path, superseded)
) with (fillfactor = 95, autovacuum_vacuum_scale_factor = 0.05);

-- What a run waits for or will try again: a few of the many.
create index steps_unfinished on {schema}.steps (run_id, generation) where state in ('open', 'retrying');

create table {schema}.watchers (
    run_id text collate "C" not null,
    path text collate "C" not null,
    ix bigint not null,
    generation bigint not null,
    kind text collate "C" not null,
    target text collate "C" not null,
    opened_at bigint not null,
    deadline_at bigint,
    deadline_ix bigint,
    entity text collate "C" not null,
    after bigint not null,
    filter text not null,
    held boolean not null,
    primary key (run_id, path, ix)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Whose deadline a filter must be asked about first stays out: the matcher watches those.
create index watchers_by_deadline on {schema}.watchers (deadline_at, run_id, path, ix)
    where deadline_at is not null and not held;
-- Timers and retries wait for nothing by name; they stay out. Whoever has waited longest comes first.
create index watchers_by_target on {schema}.watchers (kind, target, entity, opened_at, run_id, path, ix)
    where target <> '';

-- How far a branch of a run has seen a topic.
create table {schema}.cursors (
    run_id text collate "C" not null,
    branch text collate "C" not null,
    topic text collate "C" not null,
    entity text collate "C" not null,
    filter text collate "C" not null,
    position bigint not null,
    primary key (run_id, branch, topic, entity, filter)
);

create table {schema}.queue_items (
    item_id text collate "C" primary key,
    position bigint not null,
    queue text collate "C" not null,
    payload text not null,
    put_at bigint not null,
    codec text not null default 'json/1'
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index queue_items_in_order on {schema}.queue_items (queue, position);

create table {schema}.signals (
    signal_id text collate "C" primary key,
    position bigint not null,
    run_id text collate "C" not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    received_at bigint not null,
    expires_at bigint,
    codec text not null default 'json/1'
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index signals_by_run on {schema}.signals (run_id, position);
create index signals_by_expiry on {schema}.signals (expires_at, position) where expires_at is not null;

create table {schema}.keys (
    scope text collate "C" not null,
    key text collate "C" not null,
    digest text not null,
    answer text not null,
    run_id text collate "C",
    created_at bigint not null,
    expires_at bigint,
    primary key (scope, key)
);

create index keys_by_run on {schema}.keys (run_id) where run_id is not null;
create index keys_by_expiry on {schema}.keys (expires_at) where expires_at is not null;

create table {schema}.events (
    position bigint primary key,
    event_id text collate "C" not null unique,
    type text collate "C" not null,
    entity_type text collate "C",
    entity_id text collate "C",
    payload text not null,
    occurred_at bigint not null,
    recorded_at bigint not null,
    caused_by text,
    root_id text,
    depth bigint not null,
    key text,
    trace text,
    repeated boolean not null default false,
    codec text not null default 'json/1'
);

create index events_by_entity on {schema}.events (entity_type, entity_id, occurred_at, position)
    where entity_type is not null;
create index events_by_type on {schema}.events (type, position);
create index events_by_time on {schema}.events (occurred_at, position);
-- The next event of a topic about an entity. The engine's facts about a run are few: its timeline finds them.
create index events_by_topic on {schema}.events (type, entity_type, entity_id, position)
    where entity_type is not null and entity_type <> 'run';

create function {schema}.refuse_change_of_events() returns trigger language plpgsql as $$
begin
    -- Retention says so, for its own transaction.
    if tg_op = 'DELETE' and current_setting('perdure.retention', true) = 'on' then
        return old;
    end if;
    raise exception 'the ledger is append-only: an event is never changed, and only retention deletes events';
end
$$;

create trigger events_are_final before update or delete on {schema}.events
    for each row execute function {schema}.refuse_change_of_events();

create trigger events_are_kept before truncate on {schema}.events
    for each statement execute function {schema}.refuse_change_of_events();

-- Events that have more runs to resume than their own commit took.
create table {schema}.fan_outs (
    position bigint primary key
);

create table {schema}.consumers (
    name text collate "C" primary key,
    patterns text not null,
    position bigint not null,
    created_at bigint not null,
    every text,
    zone text not null,
    paused boolean not null,
    reason text,
    owner text,
    fence bigint not null,
    advanced_at bigint not null,
    error text,
    capped bigint not null
) with (fillfactor = 50);

create table {schema}.subscriptions (
    name text collate "C" primary key,
    pattern text not null,
    workflow text not null,
    "where" text,
    map text,
    key text,
    code boolean not null,
    enabled boolean not null,
    position bigint not null,
    behind bigint,
    until bigint not null,
    created_at bigint not null
);

-- Events that a consumer could not deal with.
create table {schema}.parked (
    consumer text collate "C" not null,
    position bigint not null,
    subscription text collate "C" not null,
    event_id text not null,
    type text not null,
    reason text not null,
    attempts bigint not null,
    parked_at bigint not null,
    primary key (consumer, position, subscription)
);

create index parked_by_position on {schema}.parked (position, consumer, parked_at);

-- Starts that a bound has put off.
create table {schema}.deferred (
    position bigint not null,
    subscription text collate "C" not null,
    event_id text not null,
    reason text not null,
    deferred_at bigint not null,
    primary key (position, subscription)
);

create index deferred_by_subscription on {schema}.deferred (subscription);

create table {schema}.dead_letters (
    dead_letter_id text collate "C" primary key,
    run_id text collate "C" not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    reason text not null,
    received_at bigint not null,
    dead_at bigint not null,
    cause text not null,
    expires_at bigint,
    kind text not null,
    codec text not null default 'json/1'
);

create index dead_letters_by_run on {schema}.dead_letters (run_id, dead_letter_id);

create table {schema}.workers (
    worker_id text collate "C" primary key,
    started_at bigint not null,
    lease_until bigint not null
) with (fillfactor = 50);

create table {schema}.workflows (
    name text collate "C" not null,
    version bigint not null,
    input_schema text not null,
    output_schema text not null,
    signals text not null,
    strict_signals boolean not null,
    primary key (name, version)
);

-- Topics and queues that some app has declared.
create table {schema}.channels (
    kind text collate "C" not null,
    name text collate "C" not null,
    schema text,
    enforce boolean not null,
    repeats text not null,
    primary key (kind, name)
);

-- Sends that came with transactions of their senders: written by connections of theirs, and locked by nobody.
create table {schema}.outbox (
    outbox_id text collate "C" primary key,
    op text not null,
    created_at bigint not null
);
