-- Which subscriptions code declares: they are changed there.
-- older code may go on

alter table subscriptions add column declared integer not null default 0;
