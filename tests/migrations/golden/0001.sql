BEGIN TRANSACTION;
CREATE TABLE commits (
    number integer primary key,
    batch_id text not null unique,
    at integer not null
) strict;
INSERT INTO "commits" VALUES(1,'01M7H35Q4ATVFRPZ3T85XF0001',1794796346507208);
INSERT INTO "commits" VALUES(2,'01M7H35Q4C4RWWGS4W2SYE0000',1794796346508908);
INSERT INTO "commits" VALUES(3,'01M7H35Q4HCC2THVPRSJM60000',1794796346513808);
INSERT INTO "commits" VALUES(4,'01M7H35Q4KF2BY3Z8NH8ZH0000',1794796346516244);
INSERT INTO "commits" VALUES(5,'01M7H35Q4S6XD2FE0820TG0000',1794796346521550);
INSERT INTO "commits" VALUES(6,'01M7H35Q4TVJNYMGA6Y5SF0000',1794796346523286);
INSERT INTO "commits" VALUES(7,'01M7H35Q4XGYH195G8EFHP0000',1794796346526068);
INSERT INTO "commits" VALUES(8,'01M7H35Q4Z4EXCZA039X370000',1794796346527562);
INSERT INTO "commits" VALUES(9,'01M7H35Q516EREFJ1DWXGF0000',1794796346529559);
INSERT INTO "commits" VALUES(10,'01M7H35Q53TP6DNTPN26XF0000',1794796346531539);
INSERT INTO "commits" VALUES(11,'01M7H35Q54CPWYZCBBGQ0Q0000',1794796346532853);
INSERT INTO "commits" VALUES(12,'01M7H35Q563M1R0JXGW7YH0000',1794796346534349);
INSERT INTO "commits" VALUES(13,'01M7H35Q57Y4K356YNV2Q40000',1794796346535581);
INSERT INTO "commits" VALUES(14,'01M7H35Q5BQ9PNJHVFZTYS0000',1794796346539362);
INSERT INTO "commits" VALUES(15,'01M7H35Q5CZ4DK0S38JCYQ0000',1794796346540737);
INSERT INTO "commits" VALUES(16,'01M7H35Q5G53T100KHFDPP0000',1794796346544500);
INSERT INTO "commits" VALUES(17,'01M7H35Q5HXCC0JK770HYR0001',1794796346545704);
INSERT INTO "commits" VALUES(18,'01M7H35Q5M5D0FHS2GNDQM0000',1794796346548620);
INSERT INTO "commits" VALUES(19,'01M7H35Q5NP1VPBG0QKAP80001',1794796346549860);
INSERT INTO "commits" VALUES(20,'01M7H35Q5Q50EGF7KC34QT0001',1794796346551416);
INSERT INTO "commits" VALUES(21,'01M7H35Q5RJ8H9155AWXD50001',1794796346552821);
INSERT INTO "commits" VALUES(22,'01M7H35Q5T47WH18GJ3A5R0000',1794796346554143);
INSERT INTO "commits" VALUES(23,'01M7H35Q5WHWGFNX2GKCER0000',1794796346556290);
INSERT INTO "commits" VALUES(24,'01M7H35Q5X050TNJQ31S390000',1794796346557529);
INSERT INTO "commits" VALUES(25,'01M7H35Q602YZGZMAQ0GJ30000',1794796346560198);
INSERT INTO "commits" VALUES(26,'01M7H35Q6184KZQ14FTWPH0000',1794796346561319);
INSERT INTO "commits" VALUES(27,'01M7H35Q637Q0F8SS7WVK00000',1794796346563195);
INSERT INTO "commits" VALUES(28,'01M7H35Q67E0TX2ACHJPHF0000',1794796346567623);
INSERT INTO "commits" VALUES(29,'01M7H35Q6946BZMY0ZK80S0000',1794796346570107);
INSERT INTO "commits" VALUES(30,'01M7H35Q6J4FDK64829Z500000',1794796346578775);
INSERT INTO "commits" VALUES(31,'01M7H35Q6MWNS0RYWV33CY0000',1794796346580607);
INSERT INTO "commits" VALUES(32,'01M7H35Q6P5DHJCV0MXVMK0000',1794796346582577);
INSERT INTO "commits" VALUES(33,'01M7H35Q6W19MPMS05XCXW0000',1794796346588221);
INSERT INTO "commits" VALUES(34,'01M7H35Q6XH4TYWRTKS2YR0000',1794796346590024);
INSERT INTO "commits" VALUES(35,'01M7H35Q70ZAGA3JS8T60J0000',1794796346592252);
INSERT INTO "commits" VALUES(36,'01M7H35Q71W5ZG969NFZGM0000',1794796346593565);
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
INSERT INTO "events" VALUES(1,'01M7H35Q4JY5GKX4B7YED30000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794796346513808,1794796346513808,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(2,'01M7H35Q4S32E1Y4Y91GPN0000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794796346521550,1794796346521550,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(3,'01M7H35Q4YR5Y12NFE0FCA0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794796346526068,1794796346526068,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(4,'01M7H35Q4ZMER71RHMBNEP0000','workflow.run_started','run','01M7H35Q4Y1YZZHE4SF003ADKJ','{"run_id":"01M7H35Q4Y1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794796346527562,1794796346527562,NULL,NULL,1,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(5,'01M7H35Q56HN5MV8YKGMNE0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794796346534349,1794796346534349,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(6,'01M7H35Q5BF7620X7DZZTR0000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794796346539362,1794796346539362,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(7,'01M7H35Q5MQP2P8A0XFGME0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794796346548620,1794796346548620,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(8,'01M7H35Q5NP1VPBG0QKAP80000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H35Q5NP1VPBG0QKAP80000","name":"item","path":"item","payload":0}',1794796346549860,1794796346549860,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(9,'01M7H35Q5Q50EGF7KC34QT0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H35Q5Q50EGF7KC34QT0000","name":"item","path":"item#2","payload":1}',1794796346551416,1794796346551416,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(10,'01M7H35Q5RJ8H9155AWXD50000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H35Q5RJ8H9155AWXD50000","name":"item","path":"item#3","payload":2}',1794796346552821,1794796346552821,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(11,'01M7H35Q5TB0W2JW6S8MX60000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794796346554143,1794796346554143,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(12,'01M7H35Q5SN6KRWE1QS6S50000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H35Q5SN6KRWE1QS6S50000","name":"item","path":"item","payload":3}',1794796346556290,1794796346556290,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(13,'01M7H35Q6066VF67JPNBSB0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794796346560198,1794796346560198,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(14,'01M7H35Q6YSCP03Q3BDT7R0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794796346590024,1794796346590024,NULL,NULL,0,NULL,NULL,'json/1');
CREATE TABLE keys (
    scope text not null,
    key text not null,
    digest text not null,
    answer text not null,
    run_id text,
    created_at integer not null,
    primary key (scope, key)
) strict, without rowid;
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7H35Q5HXCC0JK770HYR0000","replaced":null}','paused',1794796346545704);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7H35Q48X3W3DY1WQRTH0000');
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
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794796346513808,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794796346521550,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794796346526068,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('01M7H35Q4Y1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794796346527562,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794796346534349,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794796346539362,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794796346548620,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794796346560198,0,NULL,0,3,NULL,1794796346590024,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,'json/1');
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
INSERT INTO "signals" VALUES('01M7H35Q5HXCC0JK770HYR0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794796346545704,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794796346515395,1794796346515503,NULL,0,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve","delay_us":null,"until_at":null},{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794799946516244,"deadline_ix":1}',1794796346516244,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346523286,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7H35Q4Y1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794796346527562,1794796346527562,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346527562,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7H35Q4Y1YZZHE4SF003ADKJ","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346529559,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('01M7H35Q4Y1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346532853,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794799946535581,"deadline_ix":0}',1794796346535581,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346540737,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346549860,1794796346549860,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346551416,1794796346551416,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794796346551132,1794796346551202,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346552821,1794796346552821,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794796346552516,1794796346552578,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794796346553813,1794796346553869,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346556290,1794796346556290,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794796346557315,1794796346557363,NULL,0,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794796346557529,NULL,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794796346561319,1794796346561319,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794796346561051,1794796346561098,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794796346580227,1794796346580284,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794796346580607,1794796346580607,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794796346581688,1794796346582289,NULL,0,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","target":"","delay_us":5000,"until_at":null}],"deadline_at":1794796346587577,"deadline_ix":0}',1794796346582577,1794796346588221,NULL,0,'json/1');
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
INSERT INTO "watchers" VALUES('01M7H35Q4Y1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794796346532853,NULL,NULL);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794796346516244,1794799946516244,1);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794796346557529,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794796346527562,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7H35Q4Y1YZZHE4SF003ADKJ',1794796346529559,NULL,NULL);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794796346535581,1794799946535581,0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794796346523286,NULL,NULL);
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
CREATE INDEX runs_ready on runs (workflow, version, ready_at, run_id) where ready_at is not null;
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
