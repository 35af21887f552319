-- Plays, approvals, versions, streams: the graph of a play, what an approval asks, which workflows a worker executes,
-- from whom a run was forked, and what runs publish. Older code would take a new wait for one without a condition, so it
-- is shut out.

alter table {schema}.runs add column forked text;
alter table {schema}.watchers add column asks text not null default '';
create index watchers_asking on {schema}.watchers (opened_at, run_id, path, ix) where kind = 'approval';
alter table {schema}.workflows add column play text;
alter table {schema}.workers add column workflows text not null default '[]';

-- How far the streams of a run have come, and the newest of what was published.
create table {schema}.streams (
    run_id text collate "C" not null,
    stream text collate "C" not null,
    last bigint not null,
    bytes_all bigint not null,
    primary key (run_id, stream)
);

create table {schema}.stream_items (
    run_id text collate "C" not null,
    stream text collate "C" not null,
    position bigint not null,
    item text not null,
    path text not null,
    attempt bigint not null,
    published_at bigint not null,
    bytes_before bigint not null,
    codec text not null default 'json/1',
    primary key (run_id, stream, position)
);
