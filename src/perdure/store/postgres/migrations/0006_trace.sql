-- In which trace a run was started.
-- older code may go on

alter table {schema}.runs add column trace text;
