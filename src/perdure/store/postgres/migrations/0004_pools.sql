-- Pools: what runs share, and the lines of those with limits. Older code would let runs go on without a slot, so it is
-- shut out.

create table {schema}.pools (
    name text collate "C" primary key,
    limits text not null,
    declared text,
    created_at bigint not null,
    codec text not null default 'json/1'
);

alter table {schema}.runs add column pool text collate "C" not null default '';
alter table {schema}.runs add column pool_key text collate "C" not null default '';
alter table {schema}.runs add column priority bigint not null default 0;
alter table {schema}.runs add column line_at bigint;
alter table {schema}.runs add column admitted boolean not null default true;

alter table {schema}.workflows add column pool text not null default '';

-- Led by the pool now: many ready runs of one pool are not even stepped over by who takes from another.
drop index {schema}.runs_ready;
create index runs_ready on {schema}.runs (pool, workflow, version, ready_at, run_id) where ready_at is not null;
-- Slots that are taken are counted here. Runs in no pool stay out.
create index runs_with_slot on {schema}.runs (pool, pool_key)
    where pool <> '' and line_at is null and status in ('ready', 'running');
-- A line: by key, in the order in which its runs are let through; by age; and those in it that have begun.
create index runs_in_line on {schema}.runs (pool, pool_key, admitted desc, priority desc, line_at, run_id)
    where line_at is not null;
create index runs_in_line_by_age on {schema}.runs (pool, line_at, run_id) where line_at is not null;
create index runs_begun_in_line on {schema}.runs (pool) where line_at is not null and admitted;
