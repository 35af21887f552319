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
INSERT INTO "commits" VALUES(1,'01M7HH5BBPPBRPHFAVJ0GS0000',1794811014519063);
INSERT INTO "commits" VALUES(2,'01M7HH5BBSVM1SPAJKSC960000',1794811014521463);
INSERT INTO "commits" VALUES(3,'01M7HH5BBZ3G8X4SNVSC330000',1794811014527970);
INSERT INTO "commits" VALUES(4,'01M7HH5BC3A1W5EN6N2W0N0000',1794811014532216);
INSERT INTO "commits" VALUES(5,'01M7HH5BCBRAPB388S49V40000',1794811014539416);
INSERT INTO "commits" VALUES(6,'01M7HH5BCDT7H7B642XHJ20000',1794811014542161);
INSERT INTO "commits" VALUES(7,'01M7HH5BCJNJQW7R41TT480000',1794811014547177);
INSERT INTO "commits" VALUES(8,'01M7HH5BCNRKRSTHBHD1000000',1794811014550014);
INSERT INTO "commits" VALUES(9,'01M7HH5BCRXZ8KABMP2BBG0000',1794811014552790);
INSERT INTO "commits" VALUES(10,'01M7HH5BCT1C1JRNJ29YB80000',1794811014555216);
INSERT INTO "commits" VALUES(11,'01M7HH5BCWX15JFBB7P3MF0000',1794811014557147);
INSERT INTO "commits" VALUES(12,'01M7HH5BCYCRYKAKPGXS460000',1794811014558720);
INSERT INTO "commits" VALUES(13,'01M7HH5BD0S0WEK1HTPD5D0000',1794811014561382);
INSERT INTO "commits" VALUES(14,'01M7HH5BD4N4YXMFA3ZH820000',1794811014564566);
INSERT INTO "commits" VALUES(15,'01M7HH5BD6ETB7YEB7JCZV0000',1794811014567067);
INSERT INTO "commits" VALUES(16,'01M7HH5BDBNTDK43H1PM6Z0000',1794811014571520);
INSERT INTO "commits" VALUES(17,'01M7HH5BDDZGJQTP5FC0RX0001',1794811014574201);
INSERT INTO "commits" VALUES(18,'01M7HH5BDHW2GG54HCK0WS0000',1794811014578029);
INSERT INTO "commits" VALUES(19,'01M7HH5BDKVGSV7DT54QA90001',1794811014579890);
INSERT INTO "commits" VALUES(20,'01M7HH5BDPDJYFZPP3J32P0000',1794811014582234);
INSERT INTO "commits" VALUES(21,'01M7HH5BDQADZWVHQV2XR20001',1794811014584053);
INSERT INTO "commits" VALUES(22,'01M7HH5BDSZW25TE90KQ5Y0001',1794811014585923);
INSERT INTO "commits" VALUES(23,'01M7HH5BE05406891ACNK60000',1794811014592179);
INSERT INTO "commits" VALUES(24,'01M7HH5BE25PZ880AG3PTC0000',1794811014595103);
INSERT INTO "commits" VALUES(25,'01M7HH5BE73EXNKR4J6Y6Y0000',1794811014599700);
INSERT INTO "commits" VALUES(26,'01M7HH5BE9VK3P4YKECP6W0000',1794811014601381);
INSERT INTO "commits" VALUES(27,'01M7HH5BEB4QCFDT3ZN34E0000',1794811014603892);
INSERT INTO "commits" VALUES(28,'01M7HH5BEGVNHVFWK642C50000',1794811014609066);
INSERT INTO "commits" VALUES(29,'01M7HH5BEMPXF5TH18NH9T0000',1794811014612588);
INSERT INTO "commits" VALUES(30,'01M7HH5BEXPAQQTG788SYP0000',1794811014622241);
INSERT INTO "commits" VALUES(31,'01M7HH5BF1M4PTRP3CVK6X0000',1794811014625910);
INSERT INTO "commits" VALUES(32,'01M7HH5BF5XCWV1G8WT1G40000',1794811014629975);
INSERT INTO "commits" VALUES(33,'01M7HH5BFBVAVM7VPA4QBW0000',1794811014635611);
INSERT INTO "commits" VALUES(34,'01M7HH5BFDDCT8Y2Y1MTBD0000',1794811014637596);
INSERT INTO "commits" VALUES(35,'01M7HH5BFFW51X8V339F1M0000',1794811014639742);
INSERT INTO "commits" VALUES(36,'01M7HH5BFHRX2PQ0NDRFHT0000',1794811014642037);
INSERT INTO "commits" VALUES(37,'01M7HH5BFKYW31C7KBH6NC0000',1794811014643614);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794811014527970,NULL,'UTC',0,NULL,'01M7HH5BBNF4K2DYSFHDFF0000',1704968358117201071,1794811014639742,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7HH5BBZK01GM800N2KS0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794811014527970,1794811014527970,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7HH5BCBGNQY33M2ZK590000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794811014539416,1794811014539416,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7HH5BCKP3S04B44MF230000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794811014547177,1794811014547177,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7HH5BCPTKG4411486VJ0000','workflow.run_started','run','01M7HH5BCK1YZZHE4SF003ADKJ','{"run_id":"01M7HH5BCK1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794811014550014,1794811014550014,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7HH5BCY15A54ZB091KF0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794811014558720,1794811014558720,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7HH5BD42SG538ZRMW020000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794811014564566,1794811014564566,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7HH5BDJDK2QAPY0V5ZS0000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794811014578029,1794811014578029,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7HH5BDKVGSV7DT54QA90000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HH5BDKVGSV7DT54QA90000","name":"item","path":"item","payload":0}',1794811014579890,1794811014579890,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7HH5BDNFKTA8EYTNND70000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HH5BDNFKTA8EYTNND70000","name":"item","path":"item#2","payload":1}',1794811014582234,1794811014582234,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7HH5BDQADZWVHQV2XR20000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HH5BDQADZWVHQV2XR20000","name":"item","path":"item#3","payload":2}',1794811014584053,1794811014584053,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7HH5BDS8YB4E42XG5Z70000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794811014585923,1794811014585923,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7HH5BDSZW25TE90KQ5Y0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HH5BDSZW25TE90KQ5Y0000","name":"item","path":"item","payload":3}',1794811014592179,1794811014592179,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7HH5BE7KEAGTZ1GFVHM0000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794811014599700,1794811014599700,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7HH5BFD5WEXKX4HV54G0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794811014637596,1794811014637596,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7HH5BDDZGJQTP5FC0RX0000","replaced":null}','paused',1794811014574201,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7HH5BBKPXT9NCCVMAB60000');
INSERT INTO "meta" VALUES('min_code','1');
INSERT INTO "meta" VALUES('schema','1');
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
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794811014527970,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794811014539416,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794811014547177,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1');
INSERT INTO "runs" VALUES('01M7HH5BCK1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794811014550014,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794811014558720,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794811014564566,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794811014578029,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794811014599700,0,NULL,0,3,NULL,1794811014637596,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1');
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
INSERT INTO "signals" VALUES('01M7HH5BDDZGJQTP5FC0RX0000',17825793,'paused','go',NULL,'"kept"','latest','discard',1794811014574201,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794811014530419,1794811014530515,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794814614532216,"deadline_ix":1}',1794811014532216,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794811014542161,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7HH5BCK1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794811014550014,1794811014550014,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794811014550014,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7HH5BCK1YZZHE4SF003ADKJ"}],"branch":"gather[0]/"}',1794811014552790,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7HH5BCK1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794811014557147,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794814614561382,"deadline_ix":0}',1794811014561382,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794811014567067,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',19922945,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794811014579890,1794811014579890,NULL,0,'01M7HH5BDKVGSV7DT54QA90000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',20971522,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794811014582234,1794811014582234,NULL,0,'01M7HH5BDNFKTA8EYTNND70000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',20971521,'"take 0!"',NULL,1,NULL,NULL,1794811014581805,1794811014581873,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',22020098,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794811014584053,1794811014584053,NULL,0,'01M7HH5BDQADZWVHQV2XR20000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',22020097,'"take 1!"',NULL,1,NULL,NULL,1794811014583636,1794811014583774,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',23068673,'"take 2!"',NULL,1,NULL,NULL,1794811014585438,1794811014585494,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',24117249,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794811014592179,1794811014592179,NULL,0,'01M7HH5BDSZW25TE90KQ5Y0000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',25165825,'"take 3!"',NULL,1,NULL,NULL,1794811014594166,1794811014594268,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794811014595103,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',27262978,'"paid"',NULL,1,NULL,NULL,1794811014601381,1794811014601381,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',27262977,'"pay 1!"',NULL,1,NULL,NULL,1794811014600970,1794811014601054,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',32505857,'"ship!"',NULL,3,NULL,NULL,1794811014625074,1794811014625166,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',32505858,'"shipped"',NULL,1,NULL,NULL,1794811014625910,1794811014625910,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',33554433,'"mail!"',NULL,1,NULL,NULL,1794811014628447,1794811014629566,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',34603009,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794811014634975,"deadline_ix":0}',1794811014629975,1794811014635611,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7HH5BCK1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794811014557147,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794811014532216,1794814614532216,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794811014595103,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794811014550014,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7HH5BCK1YZZHE4SF003ADKJ',1794811014552790,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794811014561382,1794814614561382,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794811014542161,NULL,NULL,'',0,'',0);
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
