-- Calendars that start workflows. A table of its own, and nothing else changes:
-- older code may go on

create table {schema}.schedules (
    name text collate "C" primary key,
    workflow text collate "C" not null,
    input text not null,
    cron text,
    interval_us bigint,
    zone text not null,
    catch_up text not null,
    overlap text not null,
    code boolean not null,
    paused boolean not null,
    reason text,
    anchor_at bigint not null,
    next_at bigint not null,
    due_at bigint,
    last_at bigint,
    last_run_id text,
    queued text not null,
    living text not null,
    skipped bigint not null,
    skipping boolean not null,
    created_at bigint not null,
    codec text not null default 'json/1'
) with (fillfactor = 50);

-- When a worker has to look at one: read from its low end with every look.
create index schedules_by_due on {schema}.schedules (due_at, name, workflow) where due_at is not null;
