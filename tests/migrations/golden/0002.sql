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
INSERT INTO "commits" VALUES(1,'01M7J0P0MY1EJP43Y1MMMJ0001',1794827289246725);
INSERT INTO "commits" VALUES(2,'01M7J0P0MZMKVCBV6V3E4E0000',1794827289247943);
INSERT INTO "commits" VALUES(3,'01M7J0P0NBDJBYKDK9JRKN0000',1794827289259760);
INSERT INTO "commits" VALUES(4,'01M7J0P0NDTXJMC3174KA70000',1794827289262187);
INSERT INTO "commits" VALUES(5,'01M7J0P0NJRVB0PYQ164WJ0000',1794827289266381);
INSERT INTO "commits" VALUES(6,'01M7J0P0NKCZ9AD5RYYXGR0000',1794827289267571);
INSERT INTO "commits" VALUES(7,'01M7J0P0NQBK1Y3YQW9RWE0000',1794827289271115);
INSERT INTO "commits" VALUES(8,'01M7J0P0NR69GTQSSGC7X60000',1794827289272397);
INSERT INTO "commits" VALUES(9,'01M7J0P0NSGPJW7Y8241080000',1794827289274076);
INSERT INTO "commits" VALUES(10,'01M7J0P0NW6VHZ383ZKY0P0000',1794827289276146);
INSERT INTO "commits" VALUES(11,'01M7J0P0NXP58ZSEVRCHC30000',1794827289277612);
INSERT INTO "commits" VALUES(12,'01M7J0P0NZ1H0MDSGW2VP70000',1794827289279963);
INSERT INTO "commits" VALUES(13,'01M7J0P0P01BGF651D1NV20000',1794827289281068);
INSERT INTO "commits" VALUES(14,'01M7J0P0P46KEYM45MKA4E0000',1794827289284375);
INSERT INTO "commits" VALUES(15,'01M7J0P0P5SFM5EQBA8WY50000',1794827289285536);
INSERT INTO "commits" VALUES(16,'01M7J0P0P87JS3F4EJDAYQ0000',1794827289288666);
INSERT INTO "commits" VALUES(17,'01M7J0P0P9CCV0GP9SPEDS0001',1794827289289639);
INSERT INTO "commits" VALUES(18,'01M7J0P0PBSW1R43Q3KB630000',1794827289291978);
INSERT INTO "commits" VALUES(19,'01M7J0P0PC137NPBKFB15Q0001',1794827289293009);
INSERT INTO "commits" VALUES(20,'01M7J0P0PHWYW7QZS4NAD40001',1794827289297579);
INSERT INTO "commits" VALUES(21,'01M7J0P0PKZPTFJ90VE7QN0001',1794827289299168);
INSERT INTO "commits" VALUES(22,'01M7J0P0PM4Z6GTE40PE000001',1794827289300588);
INSERT INTO "commits" VALUES(23,'01M7J0P0PP0601AAXNA9YV0000',1794827289302618);
INSERT INTO "commits" VALUES(24,'01M7J0P0PQ8859FC7027YY0000',1794827289303864);
INSERT INTO "commits" VALUES(25,'01M7J0P0PSYGWW0BC919DT0000',1794827289305321);
INSERT INTO "commits" VALUES(26,'01M7J0P0PT46Z4HMNVVY750000',1794827289306512);
INSERT INTO "commits" VALUES(27,'01M7J0P0PW1VSY0BR9PG940000',1794827289308449);
INSERT INTO "commits" VALUES(28,'01M7J0P0Q1T19SATRD59QW0000',1794827289313611);
INSERT INTO "commits" VALUES(29,'01M7J0P0Q394HC6Z46384H0000',1794827289315362);
INSERT INTO "commits" VALUES(30,'01M7J0P0QCY3NYPBZM1XC00000',1794827289324664);
INSERT INTO "commits" VALUES(31,'01M7J0P0QEVTH9PJC1J4JM0000',1794827289326179);
INSERT INTO "commits" VALUES(32,'01M7J0P0QGP0WXJ6AR6JR20000',1794827289328387);
INSERT INTO "commits" VALUES(33,'01M7J0P0QNB2353Y4Q4B400000',1794827289333918);
INSERT INTO "commits" VALUES(34,'01M7J0P0QRHCH73STKPYXH0000',1794827289336543);
INSERT INTO "commits" VALUES(35,'01M7J0P0QTQ6NG93D9GM1W0000',1794827289338155);
INSERT INTO "commits" VALUES(36,'01M7J0P0QV2TD8593JKZE90000',1794827289339828);
INSERT INTO "commits" VALUES(37,'01M7J0P0QWSWZTFKDMHSWD0000',1794827289340994);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794827289259760,NULL,'UTC',0,NULL,'01M7J0P0MY1EJP43Y1MMMJ0000',2149245194587983185,1794827289338155,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7J0P0NB6PWEAJCGFFEY0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794827289259760,1794827289259760,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7J0P0NJKJSMSX1PS1WZ0000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794827289266381,1794827289266381,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7J0P0NQS5SQ5BBXKE090000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794827289271115,1794827289271115,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7J0P0NR7DR6GVETG87W0000','workflow.run_started','run','01M7J0P0NQ1YZZHE4SF003ADKJ','{"run_id":"01M7J0P0NQ1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794827289272397,1794827289272397,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7J0P0NZ6J74B4K2V2DC0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794827289279963,1794827289279963,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7J0P0P4FS14MXGZGCH50000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794827289284375,1794827289284375,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7J0P0PB4MJ1314Q2NMC0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794827289291978,1794827289291978,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7J0P0PC137NPBKFB15Q0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7J0P0PC137NPBKFB15Q0000","name":"item","path":"item","payload":0}',1794827289293009,1794827289293009,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7J0P0PHWYW7QZS4NAD40000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7J0P0PHWYW7QZS4NAD40000","name":"item","path":"item#2","payload":1}',1794827289297579,1794827289297579,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7J0P0PKZPTFJ90VE7QN0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7J0P0PKZPTFJ90VE7QN0000","name":"item","path":"item#3","payload":2}',1794827289299168,1794827289299168,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7J0P0PME6SVXDKVTBR40000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794827289300588,1794827289300588,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7J0P0PM4Z6GTE40PE000000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7J0P0PM4Z6GTE40PE000000","name":"item","path":"item","payload":3}',1794827289302618,1794827289302618,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7J0P0PSW0N6R3R57FQD0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794827289305321,1794827289305321,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7J0P0QRVCRM7VV9B92F0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794827289336543,1794827289336543,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7J0P0P9CCV0GP9SPEDS0000","replaced":null}','paused',1794827289289639,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7J0P0MWBFDGMRD95NET0000');
INSERT INTO "meta" VALUES('min_code','1');
INSERT INTO "meta" VALUES('schema','2');
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
) strict;
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794827289259760,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794827289266381,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794827289271115,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1');
INSERT INTO "runs" VALUES('01M7J0P0NQ1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794827289272397,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794827289279963,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794827289284375,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794827289291978,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794827289305321,0,NULL,0,3,NULL,1794827289336543,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1');
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
INSERT INTO "signals" VALUES('01M7J0P0P9CCV0GP9SPEDS0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794827289289639,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794827289261511,1794827289261592,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794830889262187,"deadline_ix":1}',1794827289262187,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794827289267571,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7J0P0NQ1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794827289272397,1794827289272397,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794827289272397,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7J0P0NQ1YZZHE4SF003ADKJ"}],"branch":"gather[0]/"}',1794827289274076,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7J0P0NQ1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794827289277612,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794830889281068,"deadline_ix":0}',1794827289281068,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794827289285536,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794827289293009,1794827289293009,NULL,0,'01M7J0P0PC137NPBKFB15Q0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794827289297579,1794827289297579,NULL,0,'01M7J0P0PHWYW7QZS4NAD40000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794827289297219,1794827289297298,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794827289299168,1794827289299168,NULL,0,'01M7J0P0PKZPTFJ90VE7QN0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794827289298919,1794827289298965,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794827289300288,1794827289300341,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794827289302618,1794827289302618,NULL,0,'01M7J0P0PM4Z6GTE40PE000000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794827289303601,1794827289303698,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794827289303864,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794827289306512,1794827289306512,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794827289306289,1794827289306337,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794827289325839,1794827289325898,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794827289326179,1794827289326179,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794827289327174,1794827289328161,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794827289333387,"deadline_ix":0}',1794827289328387,1794827289333918,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7J0P0NQ1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794827289277612,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794827289262187,1794830889262187,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794827289303864,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794827289272397,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7J0P0NQ1YZZHE4SF003ADKJ',1794827289274076,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794827289281068,1794830889281068,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794827289267571,NULL,NULL,'',0,'',0);
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
COMMIT;
