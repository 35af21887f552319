-- The first schema. Times are microseconds since 1970 UTC; payloads are JSON text with their codec beside.
--
-- Tables that are written at the rate of steps have a rowid and a unique index instead of a clustered key:
-- rows are then appended to full pages, and a commit of 1,000 steps of 1,000 runs dirties some dozen pages of
-- rows and the small index, not 1,000 pages (measured: half the time to commit).

create table meta (
    name text primary key,
    value text not null
) strict, without rowid;

-- One row per committed batch, so that a lost answer can be settled. The newest row is never pruned: its
-- number is the clock of all sequence numbers.
create table commits (
    number integer primary key,
    batch_id text not null unique,
    at integer not null
) strict;

create table runs (
    run_id text not null unique,
    workflow text not null,
    version integer not null,
    status text not null,
    input text not null,
    created_at integer not null,
    generation integer not null,
    owner text,
    fence integer not null,
    revision integer not null,
    ready_at integer,
    finished_at integer,
    output text,
    error text,
    reason text,
    pause_requested integer not null,
    cancel_requested integer not null,
    parent_run_id text,
    parent_path text,
    tags text,
    entity_type text,
    entity_id text,
    key text,
    published text,
    root_id text,
    depth integer not null,
    origin text,
    position integer not null,
    event_id text,
    codec text not null default 'json/1'
) strict;

-- The only index that a change of status touches: listings by status, the sweep over parked runs, and who
-- owns the running ones, without reading a row.
create index runs_by_status on runs (status, created_at, run_id, owner);
create index runs_by_created on runs (created_at, run_id);
create index runs_by_workflow on runs (workflow, created_at, run_id);
create index runs_by_entity on runs (entity_type, entity_id, created_at, run_id)
    where entity_type is not null;
create index runs_by_parent on runs (parent_run_id, created_at, run_id) where parent_run_id is not null;
-- Only a run that may be claimed, now or soon, has a ready_at, only an ended one a finished_at: other moves leave
-- these two alone.
-- Led by the workflow: a worker asks for those it knows, and ready runs of others may be many.
create index runs_ready on runs (workflow, version, ready_at, run_id) where ready_at is not null;
-- How many runs a chain of events has started; runs that no event led to stay out.
create index runs_by_root on runs (root_id) where root_id is not null;
create index runs_finished on runs (finished_at, run_id) where finished_at is not null;

create table steps (
    run_id text not null,
    generation integer not null,
    path text not null,
    kind text not null,
    name text not null,
    state text not null,
    seq integer not null,
    value text,
    error text,
    attempt integer not null,
    winner integer,
    wait text,
    started_at integer not null,
    recorded_at integer,
    retry_at integer,
    superseded integer not null,
    taken_id text,
    codec text not null default 'json/1',
    unique (run_id, generation, path, superseded)
) strict;

create table watchers (
    run_id text not null,
    path text not null,
    ix integer not null,
    generation integer not null,
    kind text not null,
    target text not null,
    opened_at integer not null,
    deadline_at integer,
    deadline_ix integer,
    entity text not null,
    after integer not null,
    filter text not null,
    held integer not null,
    primary key (run_id, path, ix)
) strict, without rowid;

-- Whose deadline a filter must be asked about first stays out: the matcher watches those.
create index watchers_by_deadline on watchers (deadline_at) where deadline_at is not null and held = 0;
-- Timers and retries wait for nothing by name; they stay out. Whoever has waited longest comes first.
create index watchers_by_target on watchers (kind, target, entity, opened_at) where target <> '';

-- How far a branch of a run has seen a topic.
create table cursors (
    run_id text not null,
    branch text not null,
    topic text not null,
    entity text not null,
    filter text not null,
    position integer not null,
    primary key (run_id, branch, topic, entity, filter)
) strict, without rowid;

create table queue_items (
    item_id text not null unique,
    position integer not null,
    queue text not null,
    payload text not null,
    put_at integer not null,
    codec text not null default 'json/1'
) strict;

create index queue_items_in_order on queue_items (queue, position);

create table signals (
    signal_id text not null unique,
    position integer not null,
    run_id text not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    received_at integer not null,
    expires_at integer,
    codec text not null default 'json/1'
) strict;

create index signals_by_run on signals (run_id, position);
create index signals_by_expiry on signals (expires_at) where expires_at is not null;

create table keys (
    scope text not null,
    key text not null,
    digest text not null,
    answer text not null,
    run_id text,
    created_at integer not null,
    expires_at integer,
    primary key (scope, key)
) strict, without rowid;

create index keys_by_run on keys (run_id) where run_id is not null;
create index keys_by_expiry on keys (expires_at) where expires_at is not null;

create table events (
    position integer primary key,
    event_id text not null unique,
    type text not null,
    entity_type text,
    entity_id text,
    payload text not null,
    occurred_at integer not null,
    recorded_at integer not null,
    caused_by text,
    root_id text,
    depth integer not null,
    key text,
    trace text,
    repeated integer not null default 0,
    codec text not null default 'json/1'
) strict;

create index events_by_entity on events (entity_type, entity_id, occurred_at, position)
    where entity_type is not null;
create index events_by_type on events (type, position);
create index events_by_time on events (occurred_at, position);
-- The next event of a topic about an entity. The engine's facts about a run are few: its timeline finds them.
create index events_by_topic on events (type, entity_type, entity_id, position)
    where entity_type is not null and entity_type <> 'run';

create trigger events_are_final before update on events
begin
    select raise(abort, 'the ledger is append-only: an event is never changed');
end;

-- Retention sets the row 'retention' in meta, deletes, and removes the row again, all in one transaction.
create trigger events_are_kept before delete on events
when not exists (select 1 from meta where name = 'retention')
begin
    select raise(abort, 'the ledger is append-only: only retention deletes events');
end;

-- Events that have more runs to resume than their own commit took.
create table fan_outs (
    position integer primary key
) strict;

create table consumers (
    name text primary key,
    patterns text not null,
    position integer not null,
    created_at integer not null,
    every text,
    zone text not null,
    paused integer not null,
    reason text,
    owner text,
    fence integer not null,
    advanced_at integer not null,
    error text,
    capped integer not null
) strict, without rowid;

create table subscriptions (
    name text primary key,
    pattern text not null,
    workflow text not null,
    "where" text,
    map text,
    key text,
    code integer not null,
    enabled integer not null,
    position integer not null,
    behind integer,
    until integer not null,
    created_at integer not null
) strict, without rowid;

-- Events that a consumer could not deal with.
create table parked (
    consumer text not null,
    position integer not null,
    subscription text not null,
    event_id text not null,
    type text not null,
    reason text not null,
    attempts integer not null,
    parked_at integer not null,
    primary key (consumer, position, subscription)
) strict, without rowid;

create index parked_by_position on parked (position, consumer, parked_at);

-- Starts that a bound has put off.
create table deferred (
    position integer not null,
    subscription text not null,
    event_id text not null,
    reason text not null,
    deferred_at integer not null,
    primary key (position, subscription)
) strict, without rowid;

create index deferred_by_subscription on deferred (subscription);

create table dead_letters (
    dead_letter_id text not null unique,
    run_id text not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    reason text not null,
    received_at integer not null,
    dead_at integer not null,
    cause text not null,
    expires_at integer,
    kind text not null,
    codec text not null default 'json/1'
) strict;

create index dead_letters_by_run on dead_letters (run_id, dead_letter_id);

create table workers (
    worker_id text primary key,
    started_at integer not null,
    lease_until integer not null
) strict, without rowid;

create table workflows (
    name text not null,
    version integer not null,
    input_schema text not null,
    output_schema text not null,
    signals text not null,
    strict_signals integer not null,
    primary key (name, version)
) strict, without rowid;

-- Topics and queues that some app has declared.
create table channels (
    kind text not null,
    name text not null,
    schema text,
    enforce integer not null,
    repeats text not null,
    primary key (kind, name)
) strict, without rowid;
