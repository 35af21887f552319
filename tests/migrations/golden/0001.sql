BEGIN TRANSACTION;
CREATE TABLE commits (
    number integer primary key,
    batch_id text not null unique,
    at integer not null
) strict;
INSERT INTO "commits" VALUES(1,'01M7GJ01T765E5MMM0PEVA0001',1794778335048460);
INSERT INTO "commits" VALUES(2,'01M7GJ01TCKJN7B69434RZ0000',1794778335052559);
INSERT INTO "commits" VALUES(3,'01M7GJ01TN31P3J06TV0AN0000',1794778335063043);
INSERT INTO "commits" VALUES(4,'01M7GJ01TT8RGTS6S4RA990000',1794778335067124);
INSERT INTO "commits" VALUES(5,'01M7GJ01V2SJ1MEM8PWMRT0000',1794778335074449);
INSERT INTO "commits" VALUES(6,'01M7GJ01V383A1NB9YHTWV0000',1794778335076095);
INSERT INTO "commits" VALUES(7,'01M7GJ01V7JS8P261AV8800000',1794778335080086);
INSERT INTO "commits" VALUES(8,'01M7GJ01VADK20MCARTZ150000',1794778335083159);
INSERT INTO "commits" VALUES(9,'01M7GJ01VCJ0D7K7KTEG9J0000',1794778335084668);
INSERT INTO "commits" VALUES(10,'01M7GJ01VD6CXVPGGATHY40000',1794778335085835);
INSERT INTO "commits" VALUES(11,'01M7GJ01VFXSJ36KSZZQQH0000',1794778335088665);
INSERT INTO "commits" VALUES(12,'01M7GJ01VHR6FC749R6R1B0000',1794778335090204);
INSERT INTO "commits" VALUES(13,'01M7GJ01VQC860F0DG3CNV0000',1794778335095133);
INSERT INTO "commits" VALUES(14,'01M7GJ01W9ZWKECQ9EA6G40000',1794778335114056);
INSERT INTO "commits" VALUES(15,'01M7GJ01WE07HAJ8YC10FK0000',1794778335118949);
INSERT INTO "commits" VALUES(16,'01M7GJ01WH8MKAT3VXTY6F0001',1794778335121924);
INSERT INTO "commits" VALUES(17,'01M7GJ01WN8F3FK4NQ31NJ0000',1794778335125382);
INSERT INTO "commits" VALUES(18,'01M7GJ01WQ43V1H78KRRJ20000',1794778335127731);
INSERT INTO "commits" VALUES(19,'01M7GJ01WR5QHJXM6147W40000',1794778335128719);
INSERT INTO "commits" VALUES(20,'01M7GJ01WV14KZ5J0PAGVF0001',1794778335131375);
INSERT INTO "commits" VALUES(21,'01M7GJ01WW42DSFWE4A20J0001',1794778335132846);
INSERT INTO "commits" VALUES(22,'01M7GJ01WXRGYKXW8X2PXV0001',1794778335134065);
INSERT INTO "commits" VALUES(23,'01M7GJ01X09XB7Y7K9WCGM0000',1794778335136353);
INSERT INTO "commits" VALUES(24,'01M7GJ01X4XDDQTV08EK860000',1794778335141068);
INSERT INTO "commits" VALUES(25,'01M7GJ01X9XSEEQKP76ZBQ0000',1794778335145932);
INSERT INTO "commits" VALUES(26,'01M7GJ01XBS0XT1FPJBBGK0000',1794778335147283);
INSERT INTO "commits" VALUES(27,'01M7GJ01XC235T7YK5EFSH0000',1794778335148896);
INSERT INTO "commits" VALUES(28,'01M7GJ01XHH06REYHE6NRJ0000',1794778335153953);
INSERT INTO "commits" VALUES(29,'01M7GJ01XKZAY16KTQH1E30000',1794778335155578);
INSERT INTO "commits" VALUES(30,'01M7GJ01XW84MAGTZFSJSB0000',1794778335164854);
INSERT INTO "commits" VALUES(31,'01M7GJ01Y5XCDYH72HKQWP0000',1794778335173280);
INSERT INTO "commits" VALUES(32,'01M7GJ01Y7XRMEAMWSA2TH0000',1794778335175324);
INSERT INTO "commits" VALUES(33,'01M7GJ01YC596NG0XYV9NX0000',1794778335181059);
INSERT INTO "commits" VALUES(34,'01M7GJ01YEE3TFSFNXVFS80000',1794778335182935);
INSERT INTO "commits" VALUES(35,'01M7GJ01YJDRCNNBY39K5N0000',1794778335186681);
INSERT INTO "commits" VALUES(36,'01M7GJ01YKT3HZ81GCDJYN0000',1794778335187789);
CREATE TABLE dead_letters (
    dead_letter_id text not null unique,
    run_id text not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    reason text not null,
    received_at integer not null,
    dead_at integer not null,
    cause text not null,
    expires_at integer,
    codec text not null default 'json/1'
) strict;
CREATE TABLE events (
    position integer primary key,
    event_id text not null unique,
    type text not null,
    entity_type text,
    entity_id text,
    payload text not null,
    occurred_at integer not null,
    recorded_at integer not null,
    caused_by text,
    root_id text,
    depth integer not null,
    key text,
    trace text,
    codec text not null default 'json/1'
) strict;
INSERT INTO "events" VALUES(1,'01M7GJ01TQ88GNDZGG4J4A0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794778335063043,1794778335063043,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(2,'01M7GJ01V2ARR5BYTWBVH90000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794778335074449,1794778335074449,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(3,'01M7GJ01V8S078KCPSJQS50000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794778335080086,1794778335080086,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(4,'01M7GJ01VB31HBXNZ0YFV50000','workflow.run_started','run','01M7GJ01V81YZZHE4SF003ADKJ','{"run_id":"01M7GJ01V81YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794778335083159,1794778335083159,NULL,NULL,1,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(5,'01M7GJ01VGKT1XR6GWD7KH0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794778335088665,1794778335088665,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(6,'01M7GJ01VQZNTK4YT8QFYK0000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794778335095133,1794778335095133,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(7,'01M7GJ01WNEQMJZH9ZB6CV0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794778335125382,1794778335125382,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(8,'01M7GJ01WQ43V1H78KRRJ20001','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7GJ01WQ43V1H78KRRJ20001","name":"item","path":"item","payload":0}',1794778335128719,1794778335128719,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(9,'01M7GJ01WV14KZ5J0PAGVF0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7GJ01WV14KZ5J0PAGVF0000","name":"item","path":"item#2","payload":1}',1794778335131375,1794778335131375,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(10,'01M7GJ01WW42DSFWE4A20J0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7GJ01WW42DSFWE4A20J0000","name":"item","path":"item#3","payload":2}',1794778335132846,1794778335132846,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(11,'01M7GJ01WYV0F1040G17JB0000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794778335134065,1794778335134065,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(12,'01M7GJ01WXRGYKXW8X2PXV0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7GJ01WXRGYKXW8X2PXV0000","name":"item","path":"item","payload":3}',1794778335136353,1794778335136353,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(13,'01M7GJ01XAH0X17ASXYHZ20000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794778335145932,1794778335145932,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(14,'01M7GJ01YG55FWFYKRZRZ90000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794778335182935,1794778335182935,NULL,NULL,0,NULL,NULL,'json/1');
CREATE TABLE keys (
    scope text not null,
    key text not null,
    digest text not null,
    answer text not null,
    run_id text,
    created_at integer not null,
    primary key (scope, key)
) strict, without rowid;
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7GJ01WH8MKAT3VXTY6F0000","replaced":null}','paused',1794778335121924);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7GJ01SXDJJCMM0ZK7ZD0000');
INSERT INTO "meta" VALUES('min_code','1');
INSERT INTO "meta" VALUES('schema','1');
CREATE TABLE runs (
    run_id text not null unique,
    workflow text not null,
    version integer not null,
    status text not null,
    input text not null,
    created_at integer not null,
    generation integer not null,
    owner text,
    fence integer not null,
    revision integer not null,
    ready_at integer,
    finished_at integer,
    output text,
    error text,
    reason text,
    pause_requested integer not null,
    cancel_requested integer not null,
    parent_run_id text,
    parent_path text,
    tags text,
    entity_type text,
    entity_id text,
    key text,
    published text,
    root_id text,
    depth integer not null,
    codec text not null default 'json/1'
) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794778335063043,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794778335074449,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794778335080086,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('01M7GJ01V81YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794778335083159,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794778335088665,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794778335095133,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794778335125382,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794778335145932,0,NULL,0,3,NULL,1794778335182935,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,'json/1');
CREATE TABLE signals (
    signal_id text not null unique,
    position integer not null,
    run_id text not null,
    name text not null,
    path text,
    payload text not null,
    policy text not null,
    on_end text not null,
    received_at integer not null,
    expires_at integer,
    codec text not null default 'json/1'
) strict;
INSERT INTO "signals" VALUES('01M7GJ01WH8MKAT3VXTY6F0000',16777217,'paused','go',NULL,'"kept"','latest','discard',1794778335121924,NULL,'json/1');
CREATE TABLE steps (
    run_id text not null,
    generation integer not null,
    path text not null,
    kind text not null,
    name text not null,
    state text not null,
    seq integer not null,
    value text,
    error text,
    attempt integer not null,
    winner integer,
    wait text,
    started_at integer not null,
    recorded_at integer,
    retry_at integer,
    superseded integer not null,
    codec text not null default 'json/1',
    unique (run_id, generation, path, superseded)
) strict;
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794778335066432,1794778335066503,NULL,0,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve","delay_us":null,"until_at":null},{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794781935067124,"deadline_ix":1}',1794778335067124,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335076095,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7GJ01V81YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794778335083159,1794778335083159,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335083159,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7GJ01V81YZZHE4SF003ADKJ","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335084668,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('01M7GJ01V81YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335090204,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794781935090204,"deadline_ix":0}',1794778335090204,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335114056,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335127731,1794778335128719,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335131375,1794778335131375,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794778335131117,1794778335131174,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335132846,1794778335132846,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794778335132623,1794778335132670,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794778335133820,1794778335133863,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335136353,1794778335136353,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794778335140833,1794778335140892,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794778335141068,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794778335147283,1794778335147283,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794778335147052,1794778335147105,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794778335171524,1794778335171582,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794778335173280,1794778335173280,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794778335174296,1794778335175049,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","target":"","delay_us":5000,"until_at":null}],"deadline_at":1794778335180324,"deadline_ix":0}',1794778335175324,1794778335181059,NULL,0,'json/1');
CREATE TABLE watchers (
    run_id text not null,
    path text not null,
    ix integer not null,
    generation integer not null,
    kind text not null,
    target text not null,
    opened_at integer not null,
    deadline_at integer,
    deadline_ix integer,
    primary key (run_id, path, ix)
) strict, without rowid;
INSERT INTO "watchers" VALUES('01M7GJ01V81YZZHE4SF003ADKJ','go',0,0,'signal','go',1794778335090204,NULL,NULL);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794778335067124,1794781935067124,1);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794778335141068,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794778335083159,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7GJ01V81YZZHE4SF003ADKJ',1794778335084668,NULL,NULL);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794778335090204,1794781935090204,0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794778335076095,NULL,NULL);
CREATE TABLE workers (
    worker_id text primary key,
    started_at integer not null,
    lease_until integer not null
) strict, without rowid;
CREATE TABLE workflows (
    name text not null,
    version integer not null,
    input_schema text not null,
    output_schema text not null,
    signals text not null,
    strict_signals integer not null,
    primary key (name, version)
) strict, without rowid;
INSERT INTO "workflows" VALUES('approval',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"approve":{"schema":{"type":"string"},"buffer":"first","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('branches',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('collector',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"items":{"type":"integer"},"title":"seen","type":"array"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"item":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('family',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{}',0);
INSERT INTO "workflows" VALUES('hanging',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"marker","type":"string"}],"type":"array"}','{"type":"string"}','{}',0);
INSERT INTO "workflows" VALUES('leaf',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"integer"}','{}',0);
INSERT INTO "workflows" VALUES('listener',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"count","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"word":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('order',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{}',0);
INSERT INTO "workflows" VALUES('race',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"array"}','{"nudge":{"schema":{"type":"integer"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('sleeper',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{}',0);
INSERT INTO "workflows" VALUES('stuck',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1);
INSERT INTO "workflows" VALUES('waiter',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1);
CREATE INDEX runs_by_status on runs (status, created_at, run_id, owner);
CREATE INDEX runs_by_created on runs (created_at, run_id);
CREATE INDEX runs_by_workflow on runs (workflow, created_at, run_id);
CREATE INDEX runs_by_entity on runs (entity_type, entity_id, created_at, run_id)
    where entity_type is not null;
CREATE INDEX runs_by_parent on runs (parent_run_id, created_at, run_id) where parent_run_id is not null;
CREATE INDEX runs_ready on runs (ready_at, run_id, workflow, version) where ready_at is not null;
CREATE INDEX runs_finished on runs (finished_at, run_id) where finished_at is not null;
CREATE INDEX watchers_by_deadline on watchers (deadline_at) where deadline_at is not null;
CREATE INDEX watchers_by_target on watchers (kind, target) where target <> '';
CREATE INDEX signals_by_run on signals (run_id, position);
CREATE INDEX signals_by_expiry on signals (expires_at) where expires_at is not null;
CREATE INDEX keys_by_run on keys (run_id) where run_id is not null;
CREATE INDEX events_by_entity on events (entity_type, entity_id, occurred_at, position)
    where entity_type is not null;
CREATE INDEX events_by_type on events (type, position);
CREATE TRIGGER events_are_final before update on events
begin
    select raise(abort, 'the ledger is append-only: an event is never changed');
end;
CREATE TRIGGER events_are_kept before delete on events
when not exists (select 1 from meta where name = 'retention')
begin
    select raise(abort, 'the ledger is append-only: only retention deletes events');
end;
CREATE INDEX dead_letters_by_run on dead_letters (run_id, dead_letter_id);
COMMIT;
