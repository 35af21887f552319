BEGIN TRANSACTION;
CREATE TABLE channels (
    kind text not null,
    name text not null,
    schema text,
    enforce integer not null,
    repeats text not null,
    primary key (kind, name)
) strict, without rowid;
CREATE TABLE commits (
    number integer primary key,
    batch_id text not null unique,
    at integer not null
) strict;
INSERT INTO "commits" VALUES(1,'01M7JW6SWWDS5W1B33HNP30000',1794856150940907);
INSERT INTO "commits" VALUES(2,'01M7JW6SWY2NW25V5WCVWD0000',1794856150942852);
INSERT INTO "commits" VALUES(3,'01M7JW6SX2J4KQQM6M5MQE0000',1794856150946854);
INSERT INTO "commits" VALUES(4,'01M7JW6SX57ERS2F0SR02R0000',1794856150949541);
INSERT INTO "commits" VALUES(5,'01M7JW6SX99C7JSF2FNGZH0000',1794856150953473);
INSERT INTO "commits" VALUES(6,'01M7JW6SXAKXNMPJ2VDQ630000',1794856150955768);
INSERT INTO "commits" VALUES(7,'01M7JW6SXFCFP7JWBGD9QS0000',1794856150959636);
INSERT INTO "commits" VALUES(8,'01M7JW6SXHJAXA4FSQVVGT0000',1794856150961447);
INSERT INTO "commits" VALUES(9,'01M7JW6SXJZ7656PPK4MD20000',1794856150963067);
INSERT INTO "commits" VALUES(10,'01M7JW6SXMR28NXCNG3JRV0000',1794856150965791);
INSERT INTO "commits" VALUES(11,'01M7JW6SXPE8G2NXN9RFC70000',1794856150967109);
INSERT INTO "commits" VALUES(12,'01M7JW6SXTN6MK0VVD6X290000',1794856150970424);
INSERT INTO "commits" VALUES(13,'01M7JW6SXZKTKR3BRKDAJ80000',1794856150975560);
INSERT INTO "commits" VALUES(14,'01M7JW6SY4QJV0GYASF0430000',1794856150981375);
INSERT INTO "commits" VALUES(15,'01M7JW6SY9D1WSY3KZTBDA0000',1794856150985763);
INSERT INTO "commits" VALUES(16,'01M7JW6SYEQNPMZ8E1T2FA0000',1794856150990897);
INSERT INTO "commits" VALUES(17,'01M7JW6SYG7VSQB0VXW99W0001',1794856150993414);
INSERT INTO "commits" VALUES(18,'01M7JW6SYPE3YYTG0V382Q0000',1794856150998675);
INSERT INTO "commits" VALUES(19,'01M7JW6SYR1D0CW4SYA4120001',1794856151001393);
INSERT INTO "commits" VALUES(20,'01M7JW6SYW0DPHNX3MASFT0001',1794856151004933);
INSERT INTO "commits" VALUES(21,'01M7JW6SYZQND1JE682DPJ0001',1794856151007588);
INSERT INTO "commits" VALUES(22,'01M7JW6SZ3YMTJ41R1QGBR0001',1794856151011248);
INSERT INTO "commits" VALUES(23,'01M7JW6SZC5ZBEKBD9W4750000',1794856151020444);
INSERT INTO "commits" VALUES(24,'01M7JW6SZK0GKWXXS8XY3Q0000',1794856151028400);
INSERT INTO "commits" VALUES(25,'01M7JW6SZQ7DG2ZKXJ2QB10000',1794856151031404);
INSERT INTO "commits" VALUES(26,'01M7JW6SZT3AV7Z9056W3E0000',1794856151035262);
INSERT INTO "commits" VALUES(27,'01M7JW6SZZ4FFE9M9SJ4TH0000',1794856151041711);
INSERT INTO "commits" VALUES(28,'01M7JW6T062R4X85F46RH40000',1794856151046229);
INSERT INTO "commits" VALUES(29,'01M7JW6T09K6JQNBQGJZVS0000',1794856151050553);
INSERT INTO "commits" VALUES(30,'01M7JW6T0KWJN7TBMADEC00000',1794856151059196);
INSERT INTO "commits" VALUES(31,'01M7JW6T0PE4KYSPJAQ7BK0000',1794856151063275);
INSERT INTO "commits" VALUES(32,'01M7JW6T0W6TX514JN8G5G0000',1794856151068507);
INSERT INTO "commits" VALUES(33,'01M7JW6T128S2PRQC2VWKP0000',1794856151074867);
INSERT INTO "commits" VALUES(34,'01M7JW6T17B5QMKHZ6C9C60000',1794856151080098);
INSERT INTO "commits" VALUES(35,'01M7JW6T19MY131TZAVDRQ0000',1794856151083334);
INSERT INTO "commits" VALUES(36,'01M7JW6T1DYM65W5JW786Y0000',1794856151089577);
INSERT INTO "commits" VALUES(37,'01M7JW6T1MSBHMF5SF2ZG00000',1794856151092982);
CREATE TABLE consumers (
    name text primary key,
    patterns text not null,
    position integer not null,
    created_at integer not null,
    every text,
    zone text not null,
    paused integer not null,
    reason text,
    owner text,
    fence integer not null,
    advanced_at integer not null,
    error text,
    capped integer not null
) strict, without rowid;
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794856150946854,NULL,'UTC',0,NULL,'01M7JW6SWVX1MVYNW9F85P0000',2276466553997734971,1794856151083334,NULL,0);
CREATE TABLE cursors (
    run_id text not null,
    branch text not null,
    topic text not null,
    entity text not null,
    filter text not null,
    position integer not null,
    primary key (run_id, branch, topic, entity, filter)
) strict, without rowid;
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
    kind text not null,
    codec text not null default 'json/1'
) strict;
CREATE TABLE deferred (
    position integer not null,
    subscription text not null,
    event_id text not null,
    reason text not null,
    deferred_at integer not null,
    primary key (position, subscription)
) strict, without rowid;
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
    repeated integer not null default 0,
    codec text not null default 'json/1'
) strict;
INSERT INTO "events" VALUES(1,'01M7JW6SX2AG67W5YD2MYE0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794856150946854,1794856150946854,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7JW6SX9VBCE107N05CG0000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794856150953473,1794856150953473,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7JW6SXFNZB6P3FPVMFS0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794856150959636,1794856150959636,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7JW6SXH9NT2VD8C2TT10000','workflow.run_started','run','01M7JW6SXF1YZZHE4SF003ADKJ','{"run_id":"01M7JW6SXF1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794856150961447,1794856150961447,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7JW6SXT8GARMKXE3VDH0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794856150970424,1794856150970424,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7JW6SY5PCVSVKK1CK4F0000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794856150981375,1794856150981375,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7JW6SYPC6ZFH82DCM120000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794856150998675,1794856150998675,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7JW6SYR1D0CW4SYA4120000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JW6SYR1D0CW4SYA4120000","name":"item","path":"item","payload":0}',1794856151001393,1794856151001393,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7JW6SYW0DPHNX3MASFT0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JW6SYW0DPHNX3MASFT0000","name":"item","path":"item#2","payload":1}',1794856151004933,1794856151004933,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7JW6SYZQND1JE682DPJ0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JW6SYZQND1JE682DPJ0000","name":"item","path":"item#3","payload":2}',1794856151007588,1794856151007588,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7JW6SZ3N6K9PNRZ610X0000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794856151011248,1794856151011248,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7JW6SZ3YMTJ41R1QGBR0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JW6SZ3YMTJ41R1QGBR0000","name":"item","path":"item","payload":3}',1794856151020444,1794856151020444,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7JW6SZQDJF159DNT20N0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794856151031404,1794856151031404,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7JW6T18SE7TWB9M6PX30000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794856151080098,1794856151080098,NULL,NULL,0,NULL,NULL,0,'json/1');
CREATE TABLE fan_outs (
    position integer primary key
) strict;
CREATE TABLE keys (
    scope text not null,
    key text not null,
    digest text not null,
    answer text not null,
    run_id text,
    created_at integer not null,
    expires_at integer,
    primary key (scope, key)
) strict, without rowid;
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7JW6SYG7VSQB0VXW99W0000","replaced":null}','paused',1794856150993414,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7JW6SWS3FJ5M8JJZTFF0000');
INSERT INTO "meta" VALUES('min_code','1');
INSERT INTO "meta" VALUES('schema','4');
CREATE TABLE outbox (
    outbox_id text primary key,
    op text not null,
    created_at integer not null
) strict, without rowid;
CREATE TABLE parked (
    consumer text not null,
    position integer not null,
    subscription text not null,
    event_id text not null,
    type text not null,
    reason text not null,
    attempts integer not null,
    parked_at integer not null,
    primary key (consumer, position, subscription)
) strict, without rowid;
CREATE TABLE queue_items (
    item_id text not null unique,
    position integer not null,
    queue text not null,
    payload text not null,
    put_at integer not null,
    codec text not null default 'json/1'
) strict;
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
    position integer not null,
    event_id text,
    codec text not null default 'json/1'
, deadline_at integer, cancel_on text, replaced integer) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794856150946854,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794856150953473,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794856150959636,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('01M7JW6SXF1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794856150961447,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794856150970424,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794856150981375,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794856150998675,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794856151031404,0,NULL,0,3,NULL,1794856151080098,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1',NULL,NULL,NULL);
CREATE TABLE schedules (
    name text primary key,
    workflow text not null,
    input text not null,
    cron text,
    interval_us integer,
    zone text not null,
    catch_up text not null,
    overlap text not null,
    code integer not null,
    paused integer not null,
    reason text,
    anchor_at integer not null,
    next_at integer not null,
    due_at integer,
    last_at integer,
    last_run_id text,
    queued text not null,
    living text not null,
    skipped integer not null,
    skipping integer not null,
    created_at integer not null,
    codec text not null default 'json/1'
, cancel_on text) strict, without rowid;
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
INSERT INTO "signals" VALUES('01M7JW6SYG7VSQB0VXW99W0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794856150993414,NULL,'json/1');
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
    taken_id text,
    codec text not null default 'json/1',
    unique (run_id, generation, path, superseded)
) strict;
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794856150948360,1794856150948432,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794859750949541,"deadline_ix":1}',1794856150949541,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794856150955768,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7JW6SXF1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794856150961447,1794856150961447,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794856150961447,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7JW6SXF1YZZHE4SF003ADKJ"}],"branch":"gather[0]/"}',1794856150963067,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7JW6SXF1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794856150967109,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794859750975560,"deadline_ix":0}',1794856150975560,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794856150985763,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794856151001393,1794856151001393,NULL,0,'01M7JW6SYR1D0CW4SYA4120000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794856151004933,1794856151004933,NULL,0,'01M7JW6SYW0DPHNX3MASFT0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794856151004238,1794856151004349,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794856151007588,1794856151007588,NULL,0,'01M7JW6SYZQND1JE682DPJ0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794856151007220,1794856151007283,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794856151010854,1794856151010919,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794856151020444,1794856151020444,NULL,0,'01M7JW6SZ3YMTJ41R1QGBR0000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794856151026974,1794856151027050,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794856151028400,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794856151035262,1794856151035262,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794856151034011,1794856151034098,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794856151062067,1794856151062146,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794856151063275,1794856151063275,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794856151065392,1794856151068211,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794856151073507,"deadline_ix":0}',1794856151068507,1794856151074867,NULL,0,NULL,'json/1');
CREATE TABLE subscriptions (
    name text primary key,
    pattern text not null,
    workflow text not null,
    "where" text,
    map text,
    key text,
    code integer not null,
    enabled integer not null,
    position integer not null,
    behind integer,
    until integer not null,
    created_at integer not null
) strict, without rowid;
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
    entity text not null,
    after integer not null,
    filter text not null,
    held integer not null,
    primary key (run_id, path, ix)
) strict, without rowid;
INSERT INTO "watchers" VALUES('01M7JW6SXF1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794856150967109,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794856150949541,1794859750949541,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794856151028400,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794856150961447,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7JW6SXF1YZZHE4SF003ADKJ',1794856150963067,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794856150975560,1794859750975560,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794856150955768,NULL,NULL,'',0,'',0);
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
    strict_signals integer not null, cancel_on text,
    primary key (name, version)
) strict, without rowid;
INSERT INTO "workflows" VALUES('approval',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"approve":{"schema":{"type":"string"},"buffer":"first","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('branches',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('collector',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"items":{"type":"integer"},"title":"seen","type":"array"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"item":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('family',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{}',0,NULL);
INSERT INTO "workflows" VALUES('hanging',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"marker","type":"string"}],"type":"array"}','{"type":"string"}','{}',0,NULL);
INSERT INTO "workflows" VALUES('leaf',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"integer"}','{}',0,NULL);
INSERT INTO "workflows" VALUES('listener',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"count","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"word":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('order',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{}',0,NULL);
INSERT INTO "workflows" VALUES('race',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"array"}','{"nudge":{"schema":{"type":"integer"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('sleeper',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{}',0,NULL);
INSERT INTO "workflows" VALUES('stuck',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL);
INSERT INTO "workflows" VALUES('waiter',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL);
CREATE INDEX runs_by_status on runs (status, created_at, run_id, owner);
CREATE INDEX runs_by_created on runs (created_at, run_id);
CREATE INDEX runs_by_workflow on runs (workflow, created_at, run_id);
CREATE INDEX runs_by_entity on runs (entity_type, entity_id, created_at, run_id)
    where entity_type is not null;
CREATE INDEX runs_by_parent on runs (parent_run_id, created_at, run_id) where parent_run_id is not null;
CREATE INDEX runs_ready on runs (workflow, version, ready_at, run_id) where ready_at is not null;
CREATE INDEX runs_by_root on runs (root_id) where root_id is not null;
CREATE INDEX runs_finished on runs (finished_at, run_id) where finished_at is not null;
CREATE INDEX watchers_by_deadline on watchers (deadline_at) where deadline_at is not null and held = 0;
CREATE INDEX watchers_by_target on watchers (kind, target, entity, opened_at) where target <> '';
CREATE INDEX queue_items_in_order on queue_items (queue, position);
CREATE INDEX signals_by_run on signals (run_id, position);
CREATE INDEX signals_by_expiry on signals (expires_at) where expires_at is not null;
CREATE INDEX keys_by_run on keys (run_id) where run_id is not null;
CREATE INDEX keys_by_expiry on keys (expires_at) where expires_at is not null;
CREATE INDEX events_by_entity on events (entity_type, entity_id, occurred_at, position)
    where entity_type is not null;
CREATE INDEX events_by_type on events (type, position);
CREATE INDEX events_by_time on events (occurred_at, position);
CREATE INDEX events_by_topic on events (type, entity_type, entity_id, position)
    where entity_type is not null and entity_type <> 'run';
CREATE TRIGGER events_are_final before update on events
begin
    select raise(abort, 'the ledger is append-only: an event is never changed');
end;
CREATE TRIGGER events_are_kept before delete on events
when not exists (select 1 from meta where name = 'retention')
begin
    select raise(abort, 'the ledger is append-only: only retention deletes events');
end;
CREATE INDEX parked_by_position on parked (position, consumer, parked_at);
CREATE INDEX deferred_by_subscription on deferred (subscription);
CREATE INDEX dead_letters_by_run on dead_letters (run_id, dead_letter_id);
CREATE INDEX schedules_by_due on schedules (due_at, name, workflow) where due_at is not null;
COMMIT;
