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
INSERT INTO "commits" VALUES(1,'01M7TWWDXKHNVEAQK5DRVM0001',1795125295028209);
INSERT INTO "commits" VALUES(2,'01M7TWWDXN3MXC7A5F9C530000',1795125295029423);
INSERT INTO "commits" VALUES(3,'01M7TWWDXRKDWNRWFRP29C0000',1795125295032509);
INSERT INTO "commits" VALUES(4,'01M7TWWDXTBFC9J9TCK6FZ0000',1795125295034461);
INSERT INTO "commits" VALUES(5,'01M7TWWDXYJGR5B36DVC260000',1795125295038674);
INSERT INTO "commits" VALUES(6,'01M7TWWDXZJ3VR186D5WH40000',1795125295039566);
INSERT INTO "commits" VALUES(7,'01M7TWWDY2HMNGBTXZQQH30000',1795125295042662);
INSERT INTO "commits" VALUES(8,'01M7TWWDY3QZRR088V3DRH0000',1795125295043628);
INSERT INTO "commits" VALUES(9,'01M7TWWDY4YK6ZBT0RFQ290000',1795125295044750);
INSERT INTO "commits" VALUES(10,'01M7TWWDY51AB9MS5H8SSZ0000',1795125295045957);
INSERT INTO "commits" VALUES(11,'01M7TWWDY6M6RF336D4Y400000',1795125295046839);
INSERT INTO "commits" VALUES(12,'01M7TWWDY97F7GDF5FEP2E0000',1795125295049760);
INSERT INTO "commits" VALUES(13,'01M7TWWDYABQZ5AKV7FM270000',1795125295050602);
INSERT INTO "commits" VALUES(14,'01M7TWWDYDMHNRVP2DKX170000',1795125295053574);
INSERT INTO "commits" VALUES(15,'01M7TWWDYEGF6610X3JDKP0000',1795125295054332);
INSERT INTO "commits" VALUES(16,'01M7TWWDYH8KV7Q8B7HZ8X0000',1795125295057238);
INSERT INTO "commits" VALUES(17,'01M7TWWDYH8KV7Q8B7HZ8X0002',1795125295058046);
INSERT INTO "commits" VALUES(18,'01M7TWWDYPQ9JDG4PY6FK50000',1795125295062774);
INSERT INTO "commits" VALUES(19,'01M7TWWDYQTKQFPB7E7NN10001',1795125295063701);
INSERT INTO "commits" VALUES(20,'01M7TWWDYR2MH6ENMEEPDQ0001',1795125295064865);
INSERT INTO "commits" VALUES(21,'01M7TWWDYS4Y0KR2JJJ1A50001',1795125295065766);
INSERT INTO "commits" VALUES(22,'01M7TWWDYTHXEM64WNY0Q70001',1795125295066609);
INSERT INTO "commits" VALUES(23,'01M7TWWDYWC93RYV6JQ03Y0000',1795125295068468);
INSERT INTO "commits" VALUES(24,'01M7TWWDYXQD4DQ83WAA430000',1795125295069306);
INSERT INTO "commits" VALUES(25,'01M7TWWDYYE083NN669CTF0000',1795125295070826);
INSERT INTO "commits" VALUES(26,'01M7TWWDZ10WYBYHR84QAG0000',1795125295073854);
INSERT INTO "commits" VALUES(27,'01M7TWWDZ3FSWX37GRNS550000',1795125295075353);
INSERT INTO "commits" VALUES(28,'01M7TWWDZ8PGQZDZTT0R750000',1795125295080173);
INSERT INTO "commits" VALUES(29,'01M7TWWDZ9WXNV3QEGQ8PM0000',1795125295081338);
INSERT INTO "commits" VALUES(30,'01M7TWWDZJS8M02FHSJ3DK0000',1795125295090203);
INSERT INTO "commits" VALUES(31,'01M7TWWDZKBVNEGNNMBVDV0000',1795125295091102);
INSERT INTO "commits" VALUES(32,'01M7TWWDZMCQN3CY3YZ32Y0000',1795125295092242);
INSERT INTO "commits" VALUES(33,'01M7TWWDZS1NJ372NB5EA30000',1795125295098074);
INSERT INTO "commits" VALUES(34,'01M7TWWDZVG5Z76JXX6ZS20000',1795125295099201);
INSERT INTO "commits" VALUES(35,'01M7TWWDZWMS09KTK1K7PF0000',1795125295100197);
INSERT INTO "commits" VALUES(36,'01M7TWWDZXAYYF464WFF9E0000',1795125295101277);
INSERT INTO "commits" VALUES(37,'01M7TWWDZXAYYF464WFF9E0001',1795125295102044);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1795125295032509,NULL,'UTC',0,NULL,'01M7TWWDXKHNVEAQK5DRVM0000',706501509805132449,1795125295100197,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7TWWDXRX5B4MQG7EZ2A0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1795125295032509,1795125295032509,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7TWWDXYCZADMME6J5G70000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1795125295038674,1795125295038674,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7TWWDY2XND4FKS74G6J0000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1795125295042662,1795125295042662,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7TWWDY3ZE0ERY0V0B3Y0000','workflow.run_started','run','01M7TWWDY25W7SMYRJ7YEFDFJ6','{"run_id":"01M7TWWDY25W7SMYRJ7YEFDFJ6","workflow":"waiter","version":1}',1795125295043628,1795125295043628,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7TWWDY9MN5HK7HD8MQ30000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1795125295049760,1795125295049760,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7TWWDYDN123NZBNCKS60000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1795125295053574,1795125295053574,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7TWWDYPM36N1B14M9WW0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1795125295062774,1795125295062774,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7TWWDYQTKQFPB7E7NN10000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7TWWDYQTKQFPB7E7NN10000","name":"item","path":"item","payload":0}',1795125295063701,1795125295063701,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7TWWDYR2MH6ENMEEPDQ0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7TWWDYR2MH6ENMEEPDQ0000","name":"item","path":"item#2","payload":1}',1795125295064865,1795125295064865,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7TWWDYS4Y0KR2JJJ1A50000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7TWWDYS4Y0KR2JJJ1A50000","name":"item","path":"item#3","payload":2}',1795125295065766,1795125295065766,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7TWWDYTB5P5M4XPS7CY0000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1795125295066609,1795125295066609,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7TWWDYTHXEM64WNY0Q70000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7TWWDYTHXEM64WNY0Q70000","name":"item","path":"item","payload":3}',1795125295068468,1795125295068468,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7TWWDYY9W0DJ1XM9HTX0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1795125295070826,1795125295070826,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7TWWDZVC17QN850J6990000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1795125295099201,1795125295099201,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7TWWDYH8KV7Q8B7HZ8X0001","replaced":null}','paused',1795125295058046,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7TWWDXHVA3PH22P4HPG0000');
INSERT INTO "meta" VALUES('min_code','6');
INSERT INTO "meta" VALUES('schema','8');
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
, deadline_at integer, cancel_on text, replaced integer, pool text not null default '', pool_key text not null default '', priority integer not null default 0, line_at integer, admitted integer not null default 1, forked text, trace text) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1795125295032509,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1795125295038674,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1795125295042662,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('01M7TWWDY25W7SMYRJ7YEFDFJ6','waiter',1,'waiting','[1]',1795125295043628,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1795125295049760,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1795125295053574,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1795125295062774,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1795125295070826,0,NULL,0,3,NULL,1795125295099201,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1',NULL,NULL,NULL,'','',0,NULL,1,NULL,NULL);
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
INSERT INTO "signals" VALUES('01M7TWWDYH8KV7Q8B7HZ8X0001',17825793,'paused','go',NULL,'"kept"','latest','discard',1795125295058046,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1795125295033719,1795125295033787,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1795128895034461,"deadline_ix":1}',1795125295034461,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1795125295039566,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7TWWDY25W7SMYRJ7YEFDFJ6"',NULL,1,NULL,NULL,1795125295043628,1795125295043628,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1795125295043628,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7TWWDY25W7SMYRJ7YEFDFJ6"}],"branch":"gather[0]/"}',1795125295044750,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7TWWDY25W7SMYRJ7YEFDFJ6',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1795125295046839,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1795128895050602,"deadline_ix":0}',1795125295050602,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1795125295054332,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1795125295063701,1795125295063701,NULL,0,'01M7TWWDYQTKQFPB7E7NN10000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1795125295064865,1795125295064865,NULL,0,'01M7TWWDYR2MH6ENMEEPDQ0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1795125295064691,1795125295064747,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1795125295065766,1795125295065766,NULL,0,'01M7TWWDYS4Y0KR2JJJ1A50000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1795125295065649,1795125295065667,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1795125295066474,1795125295066489,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1795125295068468,1795125295068468,NULL,0,'01M7TWWDYTHXEM64WNY0Q70000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1795125295069169,1795125295069206,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1795125295069306,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1795125295073854,1795125295073854,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1795125295073694,1795125295073723,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1795125295090940,1795125295090969,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1795125295091102,1795125295091102,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1795125295091715,1795125295092062,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1795125295097242,"deadline_ix":0}',1795125295092242,1795125295098074,NULL,0,NULL,'json/1');
CREATE TABLE stream_items (
    run_id text not null,
    stream text not null,
    position integer not null,
    item text not null,
    path text not null,
    attempt integer not null,
    published_at integer not null,
    bytes_before integer not null,
    codec text not null default 'json/1',
    unique (run_id, stream, position)
) strict;
CREATE TABLE streams (
    run_id text not null,
    stream text not null,
    last integer not null,
    bytes_all integer not null,
    primary key (run_id, stream)
) strict, without rowid;
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
, declared integer not null default 0) strict, without rowid;
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
    held integer not null, asks text not null default '',
    primary key (run_id, path, ix)
) strict, without rowid;
INSERT INTO "watchers" VALUES('01M7TWWDY25W7SMYRJ7YEFDFJ6','go',0,0,'signal','go',1795125295046839,NULL,NULL,'',0,'',0,'');
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1795125295034461,1795128895034461,1,'',0,'',0,'');
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1795125295069306,NULL,NULL,'',0,'',0,'');
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1795125295043628,NULL,NULL,'',0,'',0,'');
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7TWWDY25W7SMYRJ7YEFDFJ6',1795125295044750,NULL,NULL,'',0,'',0,'');
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1795125295050602,1795128895050602,0,'',0,'',0,'');
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1795125295039566,NULL,NULL,'',0,'',0,'');
CREATE TABLE workers (
    worker_id text primary key,
    started_at integer not null,
    lease_until integer not null
, workflows text not null default '[]') strict, without rowid;
CREATE TABLE workflows (
    name text not null,
    version integer not null,
    input_schema text not null,
    output_schema text not null,
    signals text not null,
    strict_signals integer not null, cancel_on text, pool text not null default '', play text,
    primary key (name, version)
) strict, without rowid;
INSERT INTO "workflows" VALUES('approval',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"approve":{"schema":{"type":"string"},"buffer":"first","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('branches',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('collector',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"items":{"type":"integer"},"title":"seen","type":"array"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"item":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('family',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{}',0,NULL,'',NULL);
INSERT INTO "workflows" VALUES('hanging',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"marker","type":"string"}],"type":"array"}','{"type":"string"}','{}',0,NULL,'',NULL);
INSERT INTO "workflows" VALUES('leaf',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"integer"}','{}',0,NULL,'',NULL);
INSERT INTO "workflows" VALUES('listener',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"count","type":"integer"}],"type":"array"}','{"items":{"type":"integer"},"type":"array"}','{"word":{"schema":{"type":"integer"},"buffer":"all","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('order',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"items":{"type":"string"},"type":"array"}','{}',0,NULL,'',NULL);
INSERT INTO "workflows" VALUES('race',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"array"}','{"nudge":{"schema":{"type":"integer"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('sleeper',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{}',0,NULL,'',NULL);
INSERT INTO "workflows" VALUES('stuck',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
INSERT INTO "workflows" VALUES('waiter',1,'{"items":false,"maxItems":1,"minItems":1,"prefixItems":[{"title":"n","type":"integer"}],"type":"array"}','{"type":"string"}','{"go":{"schema":{"type":"string"},"buffer":"latest","ttl_us":null,"on_end":"discard"}}',1,NULL,'',NULL);
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
CREATE INDEX watchers_asking on watchers (opened_at, run_id, path, ix) where kind = 'approval';
COMMIT;
