-- What stands over a run: its deadline, and the events that cancel it. How often another input took the place of its own.
-- older code may go on

alter table {schema}.runs add column deadline_at bigint;
alter table {schema}.runs add column cancel_on text;
alter table {schema}.runs add column replaced bigint;
alter table {schema}.schedules add column cancel_on text;
alter table {schema}.workflows add column cancel_on text;
