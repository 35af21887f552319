-- Plays, approvals, versions, streams: the graph of a play, what an approval asks, which workflows a worker executes,
-- from whom a run was forked, and what runs publish. Older code would take a new wait for one without a condition, so it
-- is shut out.

alter table runs add column forked text;
alter table watchers add column asks text not null default '';
create index watchers_asking on watchers (opened_at, run_id, path, ix) where kind = 'approval';
alter table workflows add column play text;
alter table workers add column workflows text not null default '[]';

-- How far the streams of a run have come, and the newest of what was published. Items may be large: so they have a rowid.
create table streams (
    run_id text not null,
    stream text not null,
    last integer not null,
    bytes_all integer not null,
    primary key (run_id, stream)
) strict, without rowid;

create table stream_items (
    run_id text not null,
    stream text not null,
    position integer not null,
    item text not null,
    path text not null,
    attempt integer not null,
    published_at integer not null,
    bytes_before integer not null,
    codec text not null default 'json/1',
    unique (run_id, stream, position)
) strict;
