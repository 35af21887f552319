-- Pools: what runs share, and the lines of those with limits. Older code would let runs go on without a slot, so it is
-- shut out.

create table pools (
    name text primary key,
    limits text not null,
    declared text,
    created_at integer not null,
    codec text not null default 'json/1'
) strict, without rowid;

alter table runs add column pool text not null default '';
alter table runs add column pool_key text not null default '';
alter table runs add column priority integer not null default 0;
alter table runs add column line_at integer;
alter table runs add column admitted integer not null default 1;

alter table workflows add column pool text not null default '';

-- Led by the pool now: many ready runs of one pool are not even stepped over by who takes from another.
drop index runs_ready;
create index runs_ready on runs (pool, workflow, version, ready_at, run_id) where ready_at is not null;
-- Slots that are taken are counted here. Runs in no pool stay out.
create index runs_with_slot on runs (pool, pool_key)
    where pool <> '' and line_at is null and status in ('ready', 'running');
-- A line: by key, in the order in which its runs are let through; by age; and those in it that have begun.
create index runs_in_line on runs (pool, pool_key, admitted desc, priority desc, line_at, run_id)
    where line_at is not null;
create index runs_in_line_by_age on runs (pool, line_at, run_id) where line_at is not null;
create index runs_begun_in_line on runs (pool) where line_at is not null and admitted = 1;
