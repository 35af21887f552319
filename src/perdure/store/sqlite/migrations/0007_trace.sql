-- In which trace a run was started.
-- older code may go on

alter table runs add column trace text;
