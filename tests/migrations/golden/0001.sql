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
INSERT INTO "commits" VALUES(1,'01M7HMSPNWF9VABRXW55TG0001',1794814827197308);
INSERT INTO "commits" VALUES(2,'01M7HMSPNZAMSCGM951EWT0000',1794814827199473);
INSERT INTO "commits" VALUES(3,'01M7HMSPP793J02BAKNQTX0000',1794814827208189);
INSERT INTO "commits" VALUES(4,'01M7HMSPPDK565F9TV2KVC0000',1794814827215724);
INSERT INTO "commits" VALUES(5,'01M7HMSPPJS8EZBARQNP910000',1794814827219029);
INSERT INTO "commits" VALUES(6,'01M7HMSPPM0081DH6WNB7M0000',1794814827221440);
INSERT INTO "commits" VALUES(7,'01M7HMSPPSV50GCDA13Y3R0000',1794814827225386);
INSERT INTO "commits" VALUES(8,'01M7HMSPPVSCB0PA16YMZA0000',1794814827227493);
INSERT INTO "commits" VALUES(9,'01M7HMSPPYJS444KT547QB0000',1794814827230496);
INSERT INTO "commits" VALUES(10,'01M7HMSPQ1MEDBGW9X38P40000',1794814827233584);
INSERT INTO "commits" VALUES(11,'01M7HMSPQ4BKA6QKW0ACC10000',1794814827237030);
INSERT INTO "commits" VALUES(12,'01M7HMSPQ7A17V901QJT380000',1794814827239160);
INSERT INTO "commits" VALUES(13,'01M7HMSPQC0N9054G07YBC0000',1794814827245408);
INSERT INTO "commits" VALUES(14,'01M7HMSPQJ696V1QVF2QC00000',1794814827251707);
INSERT INTO "commits" VALUES(15,'01M7HMSPQS0XKDRV1592JB0000',1794814827257958);
INSERT INTO "commits" VALUES(16,'01M7HMSPQXB8JQ410494RV0001',1794814827261783);
INSERT INTO "commits" VALUES(17,'01M7HMSPR6KWWW1CHJ7DB70000',1794814827270895);
INSERT INTO "commits" VALUES(18,'01M7HMSPRAZPD4VFNRNVD80001',1794814827274390);
INSERT INTO "commits" VALUES(19,'01M7HMSPRE7WRXTHM0MF5F0000',1794814827278292);
INSERT INTO "commits" VALUES(20,'01M7HMSPRJKAAP66XP7TS90001',1794814827282342);
INSERT INTO "commits" VALUES(21,'01M7HMSPRM14GB51AW101E0001',1794814827284696);
INSERT INTO "commits" VALUES(22,'01M7HMSPRTV0F39683ZK5R0000',1794814827290375);
INSERT INTO "commits" VALUES(23,'01M7HMSPRWN2TEVKBD9G8K0000',1794814827294611);
INSERT INTO "commits" VALUES(24,'01M7HMSPS3QHGVZEK8YTX50000',1794814827299719);
INSERT INTO "commits" VALUES(25,'01M7HMSPS606M1MZ7K8THF0000',1794814827302561);
INSERT INTO "commits" VALUES(26,'01M7HMSPSA0F6AGM362D510000',1794814827306587);
INSERT INTO "commits" VALUES(27,'01M7HMSPSFJAK6MG21GCY20000',1794814827311880);
INSERT INTO "commits" VALUES(28,'01M7HMSPSJ3AFCMCTZX2KF0000',1794814827315795);
INSERT INTO "commits" VALUES(29,'01M7HMSPSWX89022PVEZ650000',1794814827325104);
INSERT INTO "commits" VALUES(30,'01M7HMSPSZKJRKX8G914EB0000',1794814827327408);
INSERT INTO "commits" VALUES(31,'01M7HMSPT1A2XTVY3RB8200000',1794814827329561);
INSERT INTO "commits" VALUES(32,'01M7HMSPT7N69QVA7WNX8P0000',1794814827336059);
INSERT INTO "commits" VALUES(33,'01M7HMSPTC4YYZYN9EJFEX0000',1794814827340560);
INSERT INTO "commits" VALUES(34,'01M7HMSPTEVMWME6CVEWVH0000',1794814827343119);
INSERT INTO "commits" VALUES(35,'01M7HMSPTJHVM6SZWPA6T20000',1794814827347070);
INSERT INTO "commits" VALUES(36,'01M7HMSPTMPW3XRTZHAH3Q0000',1794814827348862);
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
INSERT INTO "consumers" VALUES('workflow_runner','[]',1,1794814827208189,NULL,'UTC',0,NULL,'01M7HMSPNWF9VABRXW55TG0000',3058295452881112932,1794814827343119,NULL,0);
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
INSERT INTO "events" VALUES(1,'01M7HMSPP8HP4J9WPCXPQQ0000','workflow.run_started','run','approval','{"run_id":"approval","workflow":"approval","version":1}',1794814827208189,1794814827208189,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(2,'01M7HMSPPKJM62YDKZ9C050000','workflow.run_started','run','waiter','{"run_id":"waiter","workflow":"waiter","version":1}',1794814827219029,1794814827219029,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(3,'01M7HMSPPSAMVYMQHSY1K20000','workflow.run_started','run','parent','{"run_id":"parent","workflow":"stuck","version":1}',1794814827225386,1794814827225386,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(4,'01M7HMSPPVJNJS0P0G8EDY0000','workflow.run_started','run','01M7HMSPPS1YZZHE4SF003ADKJ','{"run_id":"01M7HMSPPS1YZZHE4SF003ADKJ","workflow":"waiter","version":1}',1794814827227493,1794814827227493,NULL,NULL,1,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(5,'01M7HMSPQ5EKADWRDKA2CY0000','workflow.run_started','run','sleeper','{"run_id":"sleeper","workflow":"sleeper","version":1}',1794814827237030,1794814827237030,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(6,'01M7HMSPQDTHV7V4RZ5T2N0000','workflow.run_started','run','paused','{"run_id":"paused","workflow":"waiter","version":1}',1794814827245408,1794814827245408,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(7,'01M7HMSPR6AQ7ZYE07A9330000','workflow.run_started','run','collector','{"run_id":"collector","workflow":"collector","version":1}',1794814827270895,1794814827270895,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(8,'01M7HMSPRAZPD4VFNRNVD80000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HMSPRAZPD4VFNRNVD80000","name":"item","path":"item","payload":0}',1794814827274390,1794814827274390,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(9,'01M7HMSPRD31MW1VT9FSHT0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HMSPRD31MW1VT9FSHT0000","name":"item","path":"item#2","payload":1}',1794814827278292,1794814827278292,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(10,'01M7HMSPRJKAAP66XP7TS90000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HMSPRJKAAP66XP7TS90000","name":"item","path":"item#3","payload":2}',1794814827282342,1794814827282342,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(11,'01M7HMSPRMK7XMDVP6GB350000','workflow.run_continued','run','collector','{"run_id":"collector","workflow":"collector","generation":1,"to":"collector"}',1794814827284696,1794814827284696,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(12,'01M7HMSPRM14GB51AW101E0000','signal.delivered','run','collector','{"run_id":"collector","workflow":"collector","signal_id":"01M7HMSPRM14GB51AW101E0000","name":"item","path":"item","payload":3}',1794814827290375,1794814827290375,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(13,'01M7HMSPS3N74FQQS924C00000','workflow.run_started','run','order','{"run_id":"order","workflow":"order","version":1}',1794814827299719,1794814827299719,NULL,NULL,0,NULL,NULL,0,'json/1');
INSERT INTO "events" VALUES(14,'01M7HMSPTC2XCXRCHX98JK0000','workflow.run_completed','run','order','{"run_id":"order","workflow":"order"}',1794814827340560,1794814827340560,NULL,NULL,0,NULL,NULL,0,'json/1');
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
INSERT INTO "keys" VALUES('signal/paused/go','k','"kept"','{"outcome":"buffered","signal_id":"01M7HMSPQXB8JQ410494RV0000","replaced":null}','paused',1794814827261783,NULL);
CREATE TABLE meta (
    name text primary key,
    value text not null
) strict, without rowid;
INSERT INTO "meta" VALUES('created','01M7HMSPNRFNRZF802JJC40000');
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
INSERT INTO "runs" VALUES('approval','approval',1,'waiting','[1]',1794814827208189,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,1,NULL,'json/1');
INSERT INTO "runs" VALUES('waiter','waiter',1,'waiting','[1]',1794814827219029,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,2,NULL,'json/1');
INSERT INTO "runs" VALUES('parent','stuck',1,'waiting','[1]',1794814827225386,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,3,NULL,'json/1');
INSERT INTO "runs" VALUES('01M7HMSPPS1YZZHE4SF003ADKJ','waiter',1,'waiting','[1]',1794814827227493,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,'parent','waiter',NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,4,NULL,'json/1');
INSERT INTO "runs" VALUES('sleeper','sleeper',1,'sleeping','[1]',1794814827237030,0,NULL,0,0,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,5,NULL,'json/1');
INSERT INTO "runs" VALUES('paused','waiter',1,'paused','[2]',1794814827245408,0,NULL,0,1,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,6,NULL,'json/1');
INSERT INTO "runs" VALUES('collector','collector',1,'waiting','[[0,1,2]]',1794814827270895,1,NULL,0,3,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'7e0fc0b9e70c9fe4bb4a1e55bdac08b8',7,NULL,'json/1');
INSERT INTO "runs" VALUES('order','order',1,'completed','[1]',1794814827299719,0,NULL,0,3,NULL,1794814827340560,'["pay 1!","ship!","mail!"]',NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{"stage":"shipped"}',NULL,0,NULL,13,NULL,'json/1');
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
INSERT INTO "signals" VALUES('01M7HMSPQXB8JQ410494RV0000',16777217,'paused','go',NULL,'"kept"','latest','discard',1794814827261783,NULL,'json/1');
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
INSERT INTO "steps" VALUES('approval',0,'act','step','act','done',4194305,'"ask!"',NULL,1,NULL,NULL,1794814827211003,1794814827211105,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('approval',0,'approve','wait','approve','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"approve"},{"kind":"timer","delay_us":3600000000}],"deadline_at":1794818427215724,"deadline_ix":1}',1794814827215724,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('waiter',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794814827221440,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter','start','waiter','done',8388609,'"01M7HMSPPS1YZZHE4SF003ADKJ"',NULL,1,NULL,NULL,1794814827227493,1794814827227493,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}],"branch":"gather[1]/"}',1794814827227493,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('parent',0,'waiter.result','wait','waiter.result','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"run","target":"01M7HMSPPS1YZZHE4SF003ADKJ"}],"branch":"gather[0]/"}',1794814827230496,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('01M7HMSPPS1YZZHE4SF003ADKJ',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794814827237030,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('sleeper',0,'sleep','sleep','sleep','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"timer","delay_us":3600000000}],"deadline_at":1794818427239160,"deadline_ix":0}',1794814827239160,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('paused',0,'go','wait','go','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"go"}]}',1794814827251707,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item','wait','item','done',18874369,'0',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794814827274390,1794814827274390,NULL,0,'01M7HMSPRAZPD4VFNRNVD80000','json/1');
INSERT INTO "steps" VALUES('collector',0,'item#2','wait','item','done',19922946,'1',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794814827278292,1794814827278292,NULL,0,'01M7HMSPRD31MW1VT9FSHT0000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act','step','act','done',19922945,'"take 0!"',NULL,1,NULL,NULL,1794814827277720,1794814827277828,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'item#3','wait','item','done',20971522,'2',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794814827282342,1794814827282342,NULL,0,'01M7HMSPRJKAAP66XP7TS90000','json/1');
INSERT INTO "steps" VALUES('collector',0,'act#2','step','act','done',20971521,'"take 1!"',NULL,1,NULL,NULL,1794814827281797,1794814827281892,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',0,'act#3','step','act','done',22020097,'"take 2!"',NULL,1,NULL,NULL,1794814827284142,1794814827284204,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item','wait','item','done',23068673,'3',NULL,1,0,'{"on":[{"kind":"signal","target":"item"}]}',1794814827290375,1794814827290375,NULL,0,'01M7HMSPRM14GB51AW101E0000','json/1');
INSERT INTO "steps" VALUES('collector',1,'act','step','act','done',24117249,'"take 3!"',NULL,1,NULL,NULL,1794814827292158,1794814827292253,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('collector',1,'item#2','wait','item','open',0,NULL,NULL,1,NULL,'{"on":[{"kind":"signal","target":"item"}]}',1794814827294611,NULL,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage','set','stage','done',26214402,'"paid"',NULL,1,NULL,NULL,1794814827302561,1794814827302561,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act','step','act','done',26214401,'"pay 1!"',NULL,1,NULL,NULL,1794814827302047,1794814827302135,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_at_third_try','step','act_at_third_try','done',31457281,'"ship!"',NULL,3,NULL,NULL,1794814827326960,1794814827327046,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'set.stage#2','set','stage','done',31457282,'"shipped"',NULL,1,NULL,NULL,1794814827327408,1794814827327408,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'act_in_thread','step','act_in_thread','done',32505857,'"mail!"',NULL,1,NULL,NULL,1794814827328714,1794814827329255,NULL,0,NULL,'json/1');
INSERT INTO "steps" VALUES('order',0,'sleep','sleep','sleep','done',33554433,'null',NULL,1,0,'{"on":[{"kind":"timer","delay_us":5000}],"deadline_at":1794814827334561,"deadline_ix":0}',1794814827329561,1794814827336059,NULL,0,NULL,'json/1');
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
INSERT INTO "watchers" VALUES('01M7HMSPPS1YZZHE4SF003ADKJ','go',0,0,'signal','go',1794814827237030,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('approval','approve',0,0,'signal','approve',1794814827215724,1794818427215724,1,'',0,'',0);
INSERT INTO "watchers" VALUES('collector','item#2',0,1,'signal','item',1794814827294611,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','go',0,0,'signal','go',1794814827227493,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('parent','waiter.result',0,0,'run','01M7HMSPPS1YZZHE4SF003ADKJ',1794814827230496,NULL,NULL,'',0,'',0);
INSERT INTO "watchers" VALUES('sleeper','sleep',0,0,'timer','',1794814827239160,1794818427239160,0,'',0,'',0);
INSERT INTO "watchers" VALUES('waiter','go',0,0,'signal','go',1794814827221440,NULL,NULL,'',0,'',0);
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
