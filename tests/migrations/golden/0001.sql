BEGIN TRANSACTION;
CREATE TABLE commits (
    number integer primary key,
    batch_id text not null unique,
    at integer not null
) strict;
INSERT INTO "commits" VALUES(1,'01M7H4MTHXW0805BZW6V8K0001',1794797890109718);
INSERT INTO "commits" VALUES(2,'01M7H4MTHYJK9EQFBRPV7K0000',1794797890111031);
INSERT INTO "commits" VALUES(3,'01M7H4MTJ2S2H6H15DQZ770000',1794797890114912);
INSERT INTO "commits" VALUES(4,'01M7H4MTJ54TF5YS34TCKK0000',1794797890117526);
INSERT INTO "commits" VALUES(5,'01M7H4MTJ98WFM6GBDNGZ80000',1794797890121810);
INSERT INTO "commits" VALUES(6,'01M7H4MTJBZ7HC8FQPPBCA0000',1794797890123555);
INSERT INTO "commits" VALUES(7,'01M7H4MTJEN6NSC4HMP5X70000',1794797890127439);
INSERT INTO "commits" VALUES(8,'01M7H4MTJH88217CQCRQ9E0000',1794797890129800);
INSERT INTO "commits" VALUES(9,'01M7H4MTJMGENRZB9H08V70000',1794797890132392);
INSERT INTO "commits" VALUES(10,'01M7H4MTJPQMHHPH2R7WT10000',1794797890134845);
INSERT INTO "commits" VALUES(11,'01M7H4MTJRP290D7N3EB1D0000',1794797890136461);
INSERT INTO "commits" VALUES(12,'01M7H4MTJT5TQ5YG5H8X2G0000',1794797890139068);
INSERT INTO "commits" VALUES(13,'01M7H4MTJWEWKTSBXHWY9R0000',1794797890140656);
INSERT INTO "commits" VALUES(14,'01M7H4MTK0RABBHM7NZ7JX0000',1794797890145075);
INSERT INTO "commits" VALUES(15,'01M7H4MTK23R79FEHKZAEZ0000',1794797890146771);
INSERT INTO "commits" VALUES(16,'01M7H4MTK6PYARY1JKV1X40000',1794797890151034);
INSERT INTO "commits" VALUES(17,'01M7H4MTK86K3YJMC2A6N70001',1794797890152867);
INSERT INTO "commits" VALUES(18,'01M7H4MTKBT500J9TRWDZ30000',1794797890156338);
INSERT INTO "commits" VALUES(19,'01M7H4MTKDS9KWPYTV2X600001',1794797890158133);
INSERT INTO "commits" VALUES(20,'01M7H4MTKGJWT1H48MDWGY0001',1794797890160413);
INSERT INTO "commits" VALUES(21,'01M7H4MTKHH6F678ZGD1MG0001',1794797890162017);
INSERT INTO "commits" VALUES(22,'01M7H4MTKK34TVKEGV3V710001',1794797890163434);
INSERT INTO "commits" VALUES(23,'01M7H4MTKQZ1MFZ83PCGAB0000',1794797890167629);
INSERT INTO "commits" VALUES(24,'01M7H4MTKSVCX16NCPQA8F0000',1794797890170084);
INSERT INTO "commits" VALUES(25,'01M7H4MTKXW1PHR79DRD9M0000',1794797890173571);
INSERT INTO "commits" VALUES(26,'01M7H4MTKZZ15Y9ZJPZND00000',1794797890175392);
INSERT INTO "commits" VALUES(27,'01M7H4MTM2DNVZE1NAG0EN0000',1794797890178833);
INSERT INTO "commits" VALUES(28,'01M7H4MTM7CD1BJMJPFGMB0000',1794797890183728);
INSERT INTO "commits" VALUES(29,'01M7H4MTM9RJHQMZT3W1MF0000',1794797890186195);
INSERT INTO "commits" VALUES(30,'01M7H4MTMJX62DAAXTA95B0000',1794797890194974);
INSERT INTO "commits" VALUES(31,'01M7H4MTMMEFKZ5YY7HRJT0000',1794797890196694);
INSERT INTO "commits" VALUES(32,'01M7H4MTMPR438DTRKTWSA0000',1794797890199224);
INSERT INTO "commits" VALUES(33,'01M7H4MTMWRHXVDH2ZZYHB0000',1794797890204786);
INSERT INTO "commits" VALUES(34,'01M7H4MTMYRVR342Q84EKV0000',1794797890206514);
INSERT INTO "commits" VALUES(35,'01M7H4MTN0JYZXVBK9A3RF0000',1794797890208499);
INSERT INTO "commits" VALUES(36,'01M7H4MTN1JXY6BZH6JDST0000',1794797890209739);
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
INSERT INTO "events" VALUES(1,'01M7H4MTJ2XS36FP1JDYZ60000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794797890114912,1794797890114912,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(2,'01M7H4MTJ9BC2193MYT7V10000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794797890121810,1794797890121810,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(3,'01M7H4MTJF1AXT97CPD8JE0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794797890127439,1794797890127439,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(4,'01M7H4MTJHK728N4ZRXSP90000','workflow.run_started','run','01M7H4MTJF1YZZHE4SF003ADKJ','{"run_id":"01M7H4MTJF1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794797890129800,1794797890129800,NULL,NULL,1,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(5,'01M7H4MTJVK0Q59BXJCARG0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794797890139068,1794797890139068,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(6,'01M7H4MTK1K8Y559C8HY480000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794797890145075,1794797890145075,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(7,'01M7H4MTKCR6N1Y3M8YBYQ0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794797890156338,1794797890156338,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(8,'01M7H4MTKDS9KWPYTV2X600000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H4MTKDS9KWPYTV2X600000","name":"item","path":"item","payload":0}',1794797890158133,1794797890158133,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(9,'01M7H4MTKGJWT1H48MDWGY0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H4MTKGJWT1H48MDWGY0000","name":"item","path":"item#2","payload":1}',1794797890160413,1794797890160413,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(10,'01M7H4MTKHH6F678ZGD1MG0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H4MTKHH6F678ZGD1MG0000","name":"item","path":"item#3","payload":2}',1794797890162017,1794797890162017,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(11,'01M7H4MTKK9KA0KYG007TJ0000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794797890163434,1794797890163434,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(12,'01M7H4MTKK34TVKEGV3V710000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7H4MTKK34TVKEGV3V710000","name":"item","path":"item","payload":3}',1794797890167629,1794797890167629,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(13,'01M7H4MTKXJC8BZADH0QVV0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794797890173571,1794797890173571,NULL,NULL,0,NULL,NULL,'json/1');
INSERT INTO "events" VALUES(14,'01M7H4MTMYX2CFTTN7FED70000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794797890206514,1794797890206514,NULL,NULL,0,NULL,NULL,'json/1');
CREATE TABLE keys (
    scope text not null,
    key text not null,
    digest text not null,
    answer text not null,
    run_id text,
    created_at integer not null,
    primary key (scope, key)
) strict, without rowid;
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7H4MTK86K3YJMC2A6N70000","replaced":null}','paused',1794797890152867);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7H4MTHV7ZWEAAT1GK890000');
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
    origin text,
    codec text not null default 'json/1'
) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794797890114912,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794797890121810,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794797890127439,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'json/1');
INSERT INTO "runs" VALUES('01M7H4MTJF1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794797890129800,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794797890139068,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794797890145075,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794797890156338,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8','json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794797890173571,0,NULL,0,3,NULL,1794797890206514,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,'json/1');
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
INSERT INTO "signals" VALUES('01M7H4MTK86K3YJMC2A6N70000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794797890152867,NULL,'json/1');
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
    signal_id text,
    codec text not null default 'json/1',
    unique (run_id, generation, path, superseded)
) strict;
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794797890116767,1794797890116851,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve","delay_us":null,"until_at":null},{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794801490117526,"deadline_ix":1}',1794797890117526,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890123555,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7H4MTJF1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794797890129800,1794797890129800,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890129800,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7H4MTJF1YZZHE4SF003ADKJ","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890132392,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7H4MTJF1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890136461,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","target":"","delay_us":3600000000,"until_at":null}],"deadline_at":1794801490140656,"deadline_ix":0}',1794797890140656,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890146771,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890158133,1794797890158133,NULL,0,'01M7H4MTKDS9KWPYTV2X600000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890160413,1794797890160413,NULL,0,'01M7H4MTKGJWT1H48MDWGY0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794797890160105,1794797890160179,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890162017,1794797890162017,NULL,0,'01M7H4MTKHH6F678ZGD1MG0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794797890161764,1794797890161809,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794797890163071,1794797890163109,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890167629,1794797890167629,NULL,0,'01M7H4MTKK34TVKEGV3V710000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794797890169424,1794797890169494,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item","delay_us":null,"until_at":null}],"deadline_at":null,"deadline_ix":null}',1794797890170084,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794797890175392,1794797890175392,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794797890175094,1794797890175151,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794797890196344,1794797890196407,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794797890196694,1794797890196694,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794797890197794,1794797890198404,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","target":"","delay_us":5000,"until_at":null}],"deadline_at":1794797890204224,"deadline_ix":0}',1794797890199224,1794797890204786,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7H4MTJF1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794797890136461,NULL,NULL);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794797890117526,1794801490117526,1);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794797890170084,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794797890129800,NULL,NULL);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7H4MTJF1YZZHE4SF003ADKJ',1794797890132392,NULL,NULL);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794797890140656,1794801490140656,0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794797890123555,NULL,NULL);
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
