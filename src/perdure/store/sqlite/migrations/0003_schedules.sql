-- Calendars that start workflows. A table of its own, and nothing else changes:
-- older code may go on

create table schedules (
    name text primary key,
    workflow text not null,
    input text not null,
    cron text,
    interval_us integer,
    zone text not null,
    catch_up text not null,
    overlap text not null,
    code integer not null,
    paused integer not null,
    reason text,
    anchor_at integer not null,
    next_at integer not null,
    due_at integer,
    last_at integer,
    last_run_id text,
    queued text not null,
    living text not null,
    skipped integer not null,
    skipping integer not null,
    created_at integer not null,
    codec text not null default 'json/1'
) strict, without rowid;

-- When a worker has to look at one: read from its low end with every look.
create index schedules_by_due on schedules (due_at, name, workflow) where due_at is not null;
