-- Which subscriptions code declares: they are changed there.
-- older code may go on

alter table {schema}.subscriptions add column declared boolean not null default false;
