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
INSERT INTO "commits" VALUES(1,'01M7JVG4D7R3MZZQF32ZV60001',1794855408040530);
INSERT INTO "commits" VALUES(2,'01M7JVG4DA8509A83ZV3VA0000',1794855408042151);
INSERT INTO "commits" VALUES(3,'01M7JVG4DE6TPG2X4YABB60000',1794855408046624);
INSERT INTO "commits" VALUES(4,'01M7JVG4DJXRCSBRTRFA6J0000',1794855408051398);
INSERT INTO "commits" VALUES(5,'01M7JVG4DS23KKM5C8F9PP0000',1794855408059846);
INSERT INTO "commits" VALUES(6,'01M7JVG4DX913MXVH9DREY0000',1794855408061615);
INSERT INTO "commits" VALUES(7,'01M7JVG4EANZW10HS04KEJ0000',1794855408075156);
INSERT INTO "commits" VALUES(8,'01M7JVG4ECRGR6VR1ZDSCP0000',1794855408076726);
INSERT INTO "commits" VALUES(9,'01M7JVG4EE19722M2G00NG0000',1794855408078340);
INSERT INTO "commits" VALUES(10,'01M7JVG4EHW23CF1KJ4EX00000',1794855408081846);
INSERT INTO "commits" VALUES(11,'01M7JVG4EKX571N0KCN2DH0000',1794855408083156);
INSERT INTO "commits" VALUES(12,'01M7JVG4EMDC52DHRAADBK0000',1794855408084835);
INSERT INTO "commits" VALUES(13,'01M7JVG4EPPTSGDM9A0M9Z0000',1794855408087058);
INSERT INTO "commits" VALUES(14,'01M7JVG4ETWAKC1ZJZXAH30000',1794855408090190);
INSERT INTO "commits" VALUES(15,'01M7JVG4EV44RX4G73BFK90000',1794855408091739);
INSERT INTO "commits" VALUES(16,'01M7JVG4F0P3KMJ6KQ6E2Z0000',1794855408096430);
INSERT INTO "commits" VALUES(17,'01M7JVG4F49G5F7PZY4DWN0001',1794855408100734);
INSERT INTO "commits" VALUES(18,'01M7JVG4F8D62QJKWKFBTZ0000',1794855408106967);
INSERT INTO "commits" VALUES(19,'01M7JVG4FDQ7ZAPHNTH4R50001',1794855408109962);
INSERT INTO "commits" VALUES(20,'01M7JVG4FFTMQNRAQMNKAW0001',1794855408111817);
INSERT INTO "commits" VALUES(21,'01M7JVG4FH6SNESNQWSB020001',1794855408113171);
INSERT INTO "commits" VALUES(22,'01M7JVG4FKQWQYPBYQ0NTS0001',1794855408115916);
INSERT INTO "commits" VALUES(23,'01M7JVG4FP601QMATDR9MH0000',1794855408118683);
INSERT INTO "commits" VALUES(24,'01M7JVG4FRWB6M96YTXRDW0000',1794855408121114);
INSERT INTO "commits" VALUES(25,'01M7JVG4FX7QGHGFADC9TE0000',1794855408125724);
INSERT INTO "commits" VALUES(26,'01M7JVG4FYHWYXYVHH7B660000',1794855408126839);
INSERT INTO "commits" VALUES(27,'01M7JVG4G0T97M1H4BPBGF0000',1794855408128707);
INSERT INTO "commits" VALUES(28,'01M7JVG4G5JNC2JB85XDPY0000',1794855408134276);
INSERT INTO "commits" VALUES(29,'01M7JVG4G9WX1G6H9W1HYN0000',1794855408137472);
INSERT INTO "commits" VALUES(30,'01M7JVG4GKAEHRNASMHNJ90000',1794855408147996);
INSERT INTO "commits" VALUES(31,'01M7JVG4GPM6ZWWDGMZ8CM0000',1794855408150877);
INSERT INTO "commits" VALUES(32,'01M7JVG4GWJ3JK7ADW2XFG0000',1794855408156262);
INSERT INTO "commits" VALUES(33,'01M7JVG4H1H1NYPXD9BCMW0000',1794855408162020);
INSERT INTO "commits" VALUES(34,'01M7JVG4H3NPG3EB4SARDG0000',1794855408163297);
INSERT INTO "commits" VALUES(35,'01M7JVG4H48ZVKEATSJ5KY0000',1794855408164887);
INSERT INTO "commits" VALUES(36,'01M7JVG4H641CAPXJF2WBC0000',1794855408167160);
INSERT INTO "commits" VALUES(37,'01M7JVG4H8SBZB98VJFW9G0000',1794855408168417);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794855408046624,NULL,'UTC',0,NULL,'01M7JVG4D7R3MZZQF32ZV60000',789128552884806031,1794855408164887,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7JVG4DEXB5GQJX7VBCN0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794855408046624,1794855408046624,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7JVG4DVW10KDCPDHZ8J0000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794855408059846,1794855408059846,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7JVG4EBM098PE9K6GTJ0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794855408075156,1794855408075156,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7JVG4EC7TVK7FNP5QQ70000','workflow.run_started','run','01M7JVG4EB1YZZHE4SF003ADKJ','{"run_id":"01M7JVG4EB1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794855408076726,1794855408076726,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7JVG4EMM8RCQA05CHBX0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794855408084835,1794855408084835,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7JVG4ET8ZBJG6H1WFD90000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794855408090190,1794855408090190,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7JVG4FA1XJZP24149VB0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794855408106967,1794855408106967,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7JVG4FDQ7ZAPHNTH4R50000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JVG4FDQ7ZAPHNTH4R50000","name":"item","path":"item","payload":0}',1794855408109962,1794855408109962,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7JVG4FFTMQNRAQMNKAW0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JVG4FFTMQNRAQMNKAW0000","name":"item","path":"item#2","payload":1}',1794855408111817,1794855408111817,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7JVG4FH6SNESNQWSB020000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JVG4FH6SNESNQWSB020000","name":"item","path":"item#3","payload":2}',1794855408113171,1794855408113171,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7JVG4FKAMZ5HS9WWQMR0000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794855408115916,1794855408115916,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7JVG4FKQWQYPBYQ0NTS0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JVG4FKQWQYPBYQ0NTS0000","name":"item","path":"item","payload":3}',1794855408118683,1794855408118683,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7JVG4FX059YWWMF211A0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794855408125724,1794855408125724,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7JVG4H3DTVYCPDZ7D2F0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794855408163297,1794855408163297,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7JVG4F49G5F7PZY4DWN0000","replaced":null}','paused',1794855408100734,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7JVG4D28A9Q76XKVWNJ0000');
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
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794855408046624,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794855408059846,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794855408075156,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('01M7JVG4EB1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794855408076726,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794855408084835,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794855408090190,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794855408106967,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794855408125724,0,NULL,0,3,NULL,1794855408163297,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1',NULL,NULL,NULL);
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
INSERT INTO "signals" VALUES('01M7JVG4F49G5F7PZY4DWN0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794855408100734,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794855408049119,1794855408049186,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794859008051398,"deadline_ix":1}',1794855408051398,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794855408061615,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7JVG4EB1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794855408076726,1794855408076726,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794855408076726,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7JVG4EB1YZZHE4SF003ADKJ"}],"branch":"gather[0]/"}',1794855408078340,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7JVG4EB1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794855408083156,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794859008087058,"deadline_ix":0}',1794855408087058,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794855408091739,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794855408109962,1794855408109962,NULL,0,'01M7JVG4FDQ7ZAPHNTH4R50000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794855408111817,1794855408111817,NULL,0,'01M7JVG4FFTMQNRAQMNKAW0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794855408111492,1794855408111552,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794855408113171,1794855408113171,NULL,0,'01M7JVG4FH6SNESNQWSB020000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794855408112909,1794855408112957,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794855408115203,1794855408115241,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794855408118683,1794855408118683,NULL,0,'01M7JVG4FKQWQYPBYQ0NTS0000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794855408120709,1794855408120757,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794855408121114,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794855408126839,1794855408126839,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794855408126612,1794855408126656,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794855408150519,1794855408150582,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794855408150877,1794855408150877,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794855408151905,1794855408155970,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794855408161262,"deadline_ix":0}',1794855408156262,1794855408162020,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7JVG4EB1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794855408083156,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794855408051398,1794859008051398,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794855408121114,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794855408076726,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7JVG4EB1YZZHE4SF003ADKJ',1794855408078340,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794855408087058,1794859008087058,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794855408061615,NULL,NULL,'',0,'',0);
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
