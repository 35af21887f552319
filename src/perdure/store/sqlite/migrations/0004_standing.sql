-- What stands over a run: its deadline, and the events that cancel it. How often another input took the place of its own.
-- older code may go on

alter table runs add column deadline_at integer;
alter table runs add column cancel_on text;
alter table runs add column replaced integer;
alter table schedules add column cancel_on text;
alter table workflows add column cancel_on text;
