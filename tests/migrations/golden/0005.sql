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
INSERT INTO "commits" VALUES(1,'01M7JY67DBDHWYSC1V0Q5K0000',1794858229164435);
INSERT INTO "commits" VALUES(2,'01M7JY67DG521XG9BCZH660000',1794858229168585);
INSERT INTO "commits" VALUES(3,'01M7JY67DWHF744FXG5G4P0000',1794858229181826);
INSERT INTO "commits" VALUES(4,'01M7JY67E796KZ65TSJB6B0000',1794858229191263);
INSERT INTO "commits" VALUES(5,'01M7JY67ENV6N6ZAV982480000',1794858229207102);
INSERT INTO "commits" VALUES(6,'01M7JY67ES0G5BQYM7B6MV0000',1794858229210089);
INSERT INTO "commits" VALUES(7,'01M7JY67EZD75ST539Q51M0000',1794858229215568);
INSERT INTO "commits" VALUES(8,'01M7JY67F59GR7CE5420WP0000',1794858229223239);
INSERT INTO "commits" VALUES(9,'01M7JY67FA3TGCFR91SAD50000',1794858229227139);
INSERT INTO "commits" VALUES(10,'01M7JY67FF9DT672AW7GG90000',1794858229231740);
INSERT INTO "commits" VALUES(11,'01M7JY67FJQAG11NAMDH6K0000',1794858229235325);
INSERT INTO "commits" VALUES(12,'01M7JY67FNBSZ8K3KVBZMZ0000',1794858229238065);
INSERT INTO "commits" VALUES(13,'01M7JY67FRRV0YH8HE2D0Z0000',1794858229241869);
INSERT INTO "commits" VALUES(14,'01M7JY67G0XPYH3Y0W4M4B0000',1794858229249157);
INSERT INTO "commits" VALUES(15,'01M7JY67G5PN7EAVY5Y3DT0000',1794858229254940);
INSERT INTO "commits" VALUES(16,'01M7JY67GCWGBAM132E2220000',1794858229261668);
INSERT INTO "commits" VALUES(17,'01M7JY67GNCQ3YQ9DGKS1P0001',1794858229271821);
INSERT INTO "commits" VALUES(18,'01M7JY67H0KP028AV5TFA70000',1794858229280864);
INSERT INTO "commits" VALUES(19,'01M7JY67H57M9PQMPKG1YW0001',1794858229286126);
INSERT INTO "commits" VALUES(20,'01M7JY67HA4W1Z3BH8CFJ20001',1794858229291336);
INSERT INTO "commits" VALUES(21,'01M7JY67HJV6N8M0BT6XN50001',1794858229299271);
INSERT INTO "commits" VALUES(22,'01M7JY67HRTE3M52T5WEW10001',1794858229304523);
INSERT INTO "commits" VALUES(23,'01M7JY67HZ5TATEPMJBWS60000',1794858229312207);
INSERT INTO "commits" VALUES(24,'01M7JY67J3R6J17QNMT1SV0000',1794858229316013);
INSERT INTO "commits" VALUES(25,'01M7JY67JGV10722DEWD470000',1794858229328931);
INSERT INTO "commits" VALUES(26,'01M7JY67JRRHW7BXDKWBAQ0000',1794858229337128);
INSERT INTO "commits" VALUES(27,'01M7JY67JZ64HXKGPA271M0000',1794858229350160);
INSERT INTO "commits" VALUES(28,'01M7JY67KBQXDFBQPDMVX20000',1794858229355267);
INSERT INTO "commits" VALUES(29,'01M7JY67KE3QM5XDN3YKY30000',1794858229358220);
INSERT INTO "commits" VALUES(30,'01M7JY67KPFCKAXRT0546A0000',1794858229366934);
INSERT INTO "commits" VALUES(31,'01M7JY67KSBEM9S3VWD5BG0000',1794858229369590);
INSERT INTO "commits" VALUES(32,'01M7JY67KYKMEM5YHD83300000',1794858229374578);
INSERT INTO "commits" VALUES(33,'01M7JY67M4SEF6B2830YAN0000',1794858229380508);
INSERT INTO "commits" VALUES(34,'01M7JY67M87VRKBC1F0FB50000',1794858229385143);
INSERT INTO "commits" VALUES(35,'01M7JY67MCZ23GGPVZ247Z0000',1794858229388509);
INSERT INTO "commits" VALUES(36,'01M7JY67MGKFSVQKK396RG0000',1794858229393175);
INSERT INTO "commits" VALUES(37,'01M7JY67MKN99T2M0KDT4T0000',1794858229395828);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794858229181826,NULL,'UTC',0,NULL,'01M7JY67D9VP4DE9Y0NCDZ0000',4170042729385503705,1794858229388509,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7JY67DXQRWV3BBCVWDN0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794858229181826,1794858229181826,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7JY67EQYZHMRRF0ZNNN0000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794858229207102,1794858229207102,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7JY67EZMVQRQTGSKV4Q0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794858229215568,1794858229215568,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7JY67F7R0RWB9VD1AAA0000','workflow.run_started','run','01M7JY67EZM1TMRCP58YGSY0EQ','{"run_id":"01M7JY67EZM1TMRCP58YGSY0EQ","workflow":"waiter","version":1}',1794858229223239,1794858229223239,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7JY67FPFYSE6YC51HRP0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794858229238065,1794858229238065,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7JY67G1V0QC1B7SGHG30000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794858229249157,1794858229249157,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7JY67H0N5ECPF9D6Y5D0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794858229280864,1794858229280864,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7JY67H57M9PQMPKG1YW0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JY67H57M9PQMPKG1YW0000","name":"item","path":"item","payload":0}',1794858229286126,1794858229286126,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7JY67HA4W1Z3BH8CFJ20000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JY67HA4W1Z3BH8CFJ20000","name":"item","path":"item#2","payload":1}',1794858229291336,1794858229291336,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7JY67HJV6N8M0BT6XN50000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JY67HJV6N8M0BT6XN50000","name":"item","path":"item#3","payload":2}',1794858229299271,1794858229299271,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7JY67HR5SEF7SYPTYM80000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794858229304523,1794858229304523,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7JY67HRTE3M52T5WEW10000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7JY67HRTE3M52T5WEW10000","name":"item","path":"item","payload":3}',1794858229312207,1794858229312207,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7JY67JGCK600JE5P4FD0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794858229328931,1794858229328931,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7JY67M9EFYR19X88GQJ0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794858229385143,1794858229385143,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7JY67GNCQ3YQ9DGKS1P0000","replaced":null}','paused',1794858229271821,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7JY67D4K6GQYM90C9KH0000');
INSERT INTO "meta" VALUES('min_code','5');
INSERT INTO "meta" VALUES('schema','5');
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
CREATE TABLE pools (
    name text primary key,
    limits text not null,
    declared text,
    created_at integer not null,
    codec text not null default 'json/1'
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
, deadline_at integer, cancel_on text, replaced integer, pool text not null default '', pool_key text not null default '', priority integer not null default 0, line_at integer, admitted integer not null default 1) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794858229181826,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794858229207102,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794858229215568,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('01M7JY67EZM1TMRCP58YGSY0EQ','waiter',1,'waiting','[1]',1794858229223239,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794858229238065,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794858229249157,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794858229280864,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794858229328931,0,NULL,0,3,NULL,1794858229385143,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1);
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
INSERT INTO "signals" VALUES('01M7JY67GNCQ3YQ9DGKS1P0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794858229271821,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794858229186787,1794858229187510,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794861829191263,"deadline_ix":1}',1794858229191263,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794858229210089,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7JY67EZM1TMRCP58YGSY0EQ"',NULL,1,NULL,NULL,1794858229223239,1794858229223239,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794858229223239,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7JY67EZM1TMRCP58YGSY0EQ"}],"branch":"gather[0]/"}',1794858229227139,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7JY67EZM1TMRCP58YGSY0EQ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794858229235325,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794861829241869,"deadline_ix":0}',1794858229241869,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794858229254940,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794858229286126,1794858229286126,NULL,0,'01M7JY67H57M9PQMPKG1YW0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794858229291336,1794858229291336,NULL,0,'01M7JY67HA4W1Z3BH8CFJ20000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794858229289689,1794858229290193,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794858229299271,1794858229299271,NULL,0,'01M7JY67HJV6N8M0BT6XN50000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794858229297888,1794858229297959,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794858229302560,1794858229304164,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794858229312207,1794858229312207,NULL,0,'01M7JY67HRTE3M52T5WEW10000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794858229315541,1794858229315686,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794858229316013,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794858229337128,1794858229337128,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794858229336720,1794858229336812,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794858229369231,1794858229369289,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794858229369590,1794858229369590,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794858229372812,1794858229374275,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794858229379578,"deadline_ix":0}',1794858229374578,1794858229380508,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7JY67EZM1TMRCP58YGSY0EQ','go',0,0,'signal','go',1794858229235325,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794858229191263,1794861829191263,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794858229316013,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794858229223239,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7JY67EZM1TMRCP58YGSY0EQ',1794858229227139,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794858229241869,1794861829241869,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794858229210089,NULL,NULL,'',0,'',0);
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
    strict_signals integer not null, cancel_on text, pool text not null default '',
    primary key (name, version)
) strict, without rowid;
INSERT INTO "workflows" VALUES('approval',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"approve":{"schema":{"type":"string"},"buffer":"first","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('branches',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('collector',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"items":{"type":"integer"},"title":"seen","type":"array"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"item":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('family',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{}',0,NULL,'');
INSERT INTO "workflows" VALUES('hanging',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"marker","type":"string"}],"type":"array"}','{"type":"string"}','{}',0,NULL,'');
INSERT INTO "workflows" VALUES('leaf',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"integer"}','{}',0,NULL,'');
INSERT INTO "workflows" VALUES('listener',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"count","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"word":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('order',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{}',0,NULL,'');
INSERT INTO "workflows" VALUES('race',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"array"}','{"nudge":{"schema":{"type":"integer"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('sleeper',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{}',0,NULL,'');
INSERT INTO "workflows" VALUES('stuck',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
INSERT INTO "workflows" VALUES('waiter',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'');
CREATE INDEX runs_by_status on runs (status, created_at, run_id, owner);
CREATE INDEX runs_by_created on runs (created_at, run_id);
CREATE INDEX runs_by_workflow on runs (workflow, created_at, run_id);
CREATE INDEX runs_by_entity on runs (entity_type, entity_id, created_at, run_id)
    where entity_type is not null;
CREATE INDEX runs_by_parent on runs (parent_run_id, created_at, run_id) where parent_run_id is not null;
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
CREATE INDEX runs_ready on runs (pool, workflow, version, ready_at, run_id) where ready_at is not null;
CREATE INDEX runs_with_slot on runs (pool, pool_key)
    where pool <> '' and line_at is null and status in ('ready', 'running');
CREATE INDEX runs_in_line on runs (pool, pool_key, admitted desc, priority desc, line_at, run_id)
    where line_at is not null;
CREATE INDEX runs_in_line_by_age on runs (pool, line_at, run_id) where line_at is not null;
CREATE INDEX runs_begun_in_line on runs (pool) where line_at is not null and admitted = 1;
COMMIT;
