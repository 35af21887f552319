-- Sends that callers write with transactions of their own. A table of its own, and nothing else changes:
-- older code may go on

-- Applied in the order of their ids, which are made when the send is asked for; each goes when it is applied.
create table outbox (
    outbox_id text primary key,
    op text not null,
    created_at integer not null
) strict, without rowid;
