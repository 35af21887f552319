-- One batch, in one call: it compares what the decision rests on with what is there by now, and writes all of it or
-- nothing. Nothing is written before the last comparison: a script that stops cannot be undone. The first write is one
-- that the server refuses when it is out of memory or disk, so that a batch is refused as a whole.
--
-- ARGV[1] is what store/redis/writing.py has made. Answers:
--
--   {'written', clock, head, commits, claims}   where the ledger ended before, and how many batches there were with it
--   {'overtaken', clock, runs, units, seq, head, recorded_at}   by their numbers in what was sent
--   {'taken', clock}                   something that was to be new is there, or something that was to be there is not
--   {'alone', clock}                   another process has all others wait
--   {'restarted', clock}               this is not the start of the server that the caller has greeted
--   {'settled', clock}                 somebody has asked about this batch, and was told that it was not written
local batch = cmsgpack.unpack(ARGV[1])
local time = clock()

-- --- whether it may be written at all ---

-- Also one that is the same as ever, if another had its place in between.
local present = server()
local meta = call('HMGET', prefix .. 'meta', 'server', 'epoch')
if present ~= batch.server or meta[1] ~= present or meta[2] ~= batch.epoch then
    return {'restarted', time}
end
local holder = call('GET', prefix .. 'alone')
if holder and holder ~= batch.alone then
    return {'alone', time}
end
local settled = call('HGET', prefix .. 'commits', batch.batch)
if settled then
    return {'settled', time}
end

-- --- compare ---

local ends = call('HMGET', prefix .. 'head', 'position', 'recorded_at', 'units')
local head, recorded_at, no_version = tonumber(ends[1] or '0'), ends[2] or '0', ends[3] or '0'
local stale_units, stale_runs, newer_seq = {}, {}, 0

for nth, version in ipairs(fields_of(prefix .. 'units', batch.units)) do
    if (version or no_version) ~= batch.versions[nth] then
        table.insert(stale_units, nth)
    end
end

for nth = 1, #batch.runs do
    local claim, version = call('HGET', prefix .. 'run:' .. batch.runs[nth], 'claim'), batch.changes[nth]
    if not claim or string.sub(claim, 1, #version) ~= version then
        table.insert(stale_runs, nth)
    end
end

-- What the owner of a running run has recorded meanwhile must be older than what this batch adds to it.
for _, one in ipairs(batch.seqs) do
    local seq = last_seq(one[1], one[2])
    if seq > batch.seq_before and seq > newer_seq then
        newer_seq = seq
    end
end

-- Whoever found no event rests on where the newest one of its topic was.
for nth, topic in ipairs(batch.topics) do
    if whole(newest_of(topic)) ~= batch.newest[nth] then
        table.insert(stale_units, batch.topics_at[nth])
    end
end

local is_late = tonumber(recorded_at) > tonumber(batch.at)

if #stale_units > 0 or #stale_runs > 0 or newer_seq > 0
    or (batch.head >= 0 and batch.head ~= head) or (batch.judges and is_late)
then
    return {'overtaken', time, stale_runs, stale_units, whole(newer_seq), whole(head), recorded_at}
end

local function how_many_exist(kind, names)
    local number = 0
    for first = 1, #names, 1000 do
        local keys = {}
        for nth = first, math.min(first + 999, #names) do
            keys[nth - first + 1] = prefix .. kind .. names[nth]
        end
        number = number + call('EXISTS', unpack(keys))
    end
    return number
end

-- A key that goes with its run may be used anew in the same batch.
local function goes(field)
    for _, run in ipairs(batch.forget) do
        if call('SISMEMBER', prefix .. 'keys_of:' .. run, field) == 1 then
            return true
        end
    end
    return false
end

-- So may the steps of a run whose id is.
local forgotten = {}
for _, run in ipairs(batch.forget) do
    forgotten[run] = true
end

if how_many_exist('run:', batch.born) > 0 then
    return {'taken', time}
end
for _, one in ipairs(batch.absent) do
    if call('HEXISTS', one[1], one[2]) == 1 and not goes(one[2]) then
        return {'taken', time}
    end
end
-- One checkpoint for each path, but for one that this batch has superseded.
local gone = {}
for _, one in ipairs(batch.superseded) do
    gone[one[3] .. '\0' .. one[4]] = true
end
local histories, runs = {}, {}
for nth = 1, #batch.results, 4 do
    table.insert(runs, batch.results[nth])
    table.insert(histories, batch.results[nth] .. ':' .. batch.results[nth + 1])
end
-- Where no run has recorded anything yet, or none has a wait open, one look at all of them is enough.
local some_decided = how_many_exist('steps:', {histories[1]}) > 0 or how_many_exist('steps:', histories) > 0
local some_open = how_many_exist('open:', runs) > 0
for nth = 1, (some_decided or some_open) and #batch.results or 0, 4 do
    local run, generation, field, there = batch.results[nth], batch.results[nth + 1], batch.results[nth + 2], 0
    local key = prefix .. 'steps:' .. run .. ':' .. generation
    if some_decided then
        there = call('HEXISTS', key, field)
    end
    if some_open and there == 0 then
        -- 0:<path> is <generation>:<path> among those that wait.
        there = call('HEXISTS', prefix .. 'open:' .. run, generation .. string.sub(field, 2))
    end
    if there == 1 and not forgotten[run] and not gone[key .. '\0' .. field] then
        return {'taken', time}
    end
end
for _, one in ipairs(batch.present) do
    if call('HEXISTS', one[1], one[2]) == 0 then
        return {'taken', time}
    end
end
for _, one in ipairs(batch.same) do
    local value = call('HGET', one[1], one[2])
    if not value or string.sub(value, 1, #one[3]) ~= one[3] then
        return {'taken', time}
    end
end
local ids = {}
for nth = 1, #batch.events, 7 do
    table.insert(ids, batch.events[nth])
end
for _, there in ipairs(fields_of(prefix .. 'event_ids', ids)) do
    if there and tonumber(there) > batch.trim then
        return {'taken', time}
    end
end

-- --- write ---

call('HSET', prefix .. 'commits', batch.batch, whole(head))
call('ZADD', prefix .. 'commits:age', '0', batch.age .. batch.batch)
-- Some of those that nobody asks about any more go with each that comes: there are never many of them.
for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'commits:age', '-', '(' .. batch.old, 'LIMIT', 0, 4)) do
    call('HDEL', prefix .. 'commits', string.sub(member, 19))
    call('ZREM', prefix .. 'commits:age', member)
end

local counts = {}

local function count(rows, number)
    if rows ~= '' then
        counts[rows] = (counts[rows] or 0) + number
    end
end

-- {table, command, key, …}
local function carry_out(command)
    local changed = call(unpack(command, 2))
    if command[2] == 'HSET' then
        count(command[1], changed)
    elseif command[2] == 'HDEL' then
        count(command[1], -changed)
    end
end

-- A value in pieces: texts, and numbers that count from the end of the ledger.
local function placed(value)
    if type(value) ~= 'table' then
        return value
    end
    local parts = {}
    for nth, part in ipairs(value) do
        parts[nth] = type(part) == 'number' and whole(head + part) or part
    end
    return table.concat(parts)
end

local function carry_out_placed(command)
    for nth = 4, #command do
        command[nth] = placed(command[nth])
    end
    carry_out(command)
end

local function drop_hash(rows, key)
    count(rows, -call('HLEN', key))
    call('UNLINK', key)
end

local function drop_history(key)
    count('steps', call('HEXISTS', key, '!seq'))
    drop_hash('steps', key)
end

local function drop_steps(run, upto)
    local first = tonumber(call('HGET', prefix .. 'run:' .. run, 'kept') or '0')
    for generation = first, upto do
        drop_history(prefix .. 'steps:' .. run .. ':' .. whole(generation))
    end
end

-- What goes before anything comes: ids may be used anew within one batch. What is listed elsewhere the caller names.
for _, run in ipairs(batch.forget) do
    drop_steps(run, tonumber(generation_of(run)))
    drop_hash('steps', prefix .. 'open:' .. run)
    drop_hash('watchers', prefix .. 'waits:' .. run)
    drop_hash('signals', prefix .. 'signals:' .. run)
    drop_hash('cursors', prefix .. 'cursors:' .. run)
    for _, name in ipairs(call('HKEYS', prefix .. 'streams:' .. run)) do
        local key = prefix .. 'stream:' .. run .. '\0' .. name
        count('stream_items', -call('XLEN', key))
        call('UNLINK', key)
    end
    drop_hash('streams', prefix .. 'streams:' .. run)
    for _, field in ipairs(call('SMEMBERS', prefix .. 'keys_of:' .. run)) do
        count('keys', -call('HDEL', prefix .. 'keys', field))
    end
    for _, letter in ipairs(call('ZRANGE', prefix .. 'letters:of:' .. run, 0, -1)) do
        count('dead_letters', -call('HDEL', prefix .. 'letters', letter))
        call('ZREM', prefix .. 'letters:all', letter)
    end
    call('UNLINK', prefix .. 'run:' .. run, prefix .. 'keys_of:' .. run, prefix .. 'letters:of:' .. run)
end
for _, one in ipairs(batch.past) do
    local run, generation = one[1], tonumber(one[2])
    drop_steps(run, generation - 1)
    call('HSET', prefix .. 'run:' .. run, 'kept', one[2])
    for _, field in ipairs(call('HKEYS', prefix .. 'open:' .. run)) do
        if number_of(field) < generation then
            count('steps', -call('HDEL', prefix .. 'open:' .. run, field))
        end
    end
end
for _, consumer in ipairs(batch.consumers) do
    count('consumers', -call('HDEL', prefix .. 'consumers', consumer))
    local from, upto = '[' .. consumer .. '\0', '(' .. consumer .. '\1'
    for _, at in ipairs(call('ZRANGEBYLEX', prefix .. 'parked:all', from, upto)) do
        count('parked', -call('HDEL', prefix .. 'parked', at))
        call('ZREM', prefix .. 'parked:all', at)
        call('ZREM', prefix .. 'parked:age', string.sub(at, #consumer + 2, #consumer + 17) .. '\0' .. at)
    end
end
for _, rule in ipairs(batch.subscriptions) do
    count('subscriptions', -call('HDEL', prefix .. 'subscriptions', rule))
    for _, at in ipairs(call('SMEMBERS', prefix .. 'deferred:of:' .. rule)) do
        count('deferred', -call('HDEL', prefix .. 'deferred', at))
        call('ZREM', prefix .. 'deferred:all', at)
    end
    call('UNLINK', prefix .. 'deferred:of:' .. rule)
end

for _, command in ipairs(batch.superseded) do
    carry_out(command)
end
for _, command in ipairs(batch.adds) do
    carry_out(command)
end
for nth = 1, #batch.born_runs, 4 do
    local run, born, claim, made = unpack(batch.born_runs, nth, nth + 3)
    call('HSET', prefix .. 'run:' .. run, 'born', born, 'claim', claim, 'made', placed(made), 'seq', batch.seq)
end
for nth = 1, #batch.moved_runs, 2 do
    call('HSET', prefix .. 'run:' .. batch.moved_runs[nth], 'claim', batch.moved_runs[nth + 1], 'seq', batch.seq)
end
for nth = 1, #batch.results, 4 do
    local run, generation, field, row = unpack(batch.results, nth, nth + 3)
    -- With the last number of the history, which is no row.
    call('HSET', prefix .. 'steps:' .. run .. ':' .. generation, field, placed(row), '!seq', batch.seq)
end
count('steps', #batch.results / 4)
for nth = 1, #batch.ended, 5 do
    local run, generation, field, row, before = unpack(batch.ended, nth, nth + 4)
    count('steps', call('HSET', prefix .. 'steps:' .. run .. ':' .. generation, field, placed(row)))
    count('steps', -call('HDEL', prefix .. 'open:' .. run, before))
end
for nth = 1, #batch.cursors, 3 do
    local run, field, position = unpack(batch.cursors, nth, nth + 2)
    count('cursors', call('HSET', prefix .. 'cursors:' .. run, field, placed(position)))
end
for nth = 1, #batch.published, 3 do
    local stream, position, row = unpack(batch.published, nth, nth + 2)
    call('XADD', prefix .. 'stream:' .. stream, entry(position), 'i', row)
end
count('stream_items', #batch.published / 3)
-- Of each stream what lies before the first item that is kept: no more is looked at than goes.
for nth = 1, #batch.floors, 3 do
    local stream, position, bytes = unpack(batch.floors, nth, nth + 2)
    local key, from, kept = prefix .. 'stream:' .. stream, entry(math.max(position, 1)), nil
    local page = {from}
    while not kept and #page > 0 do
        page = call('XRANGE', key, from, '+', 'COUNT', 16)
        for _, one in ipairs(page) do
            if tonumber(string.match(one[2][2], '^%d+')) >= bytes then
                kept = one[1]
                break
            end
            from = '(' .. one[1]
        end
    end
    if kept then
        count('stream_items', -call('XTRIM', key, 'MINID', kept))
    end
end
for _, command in ipairs(batch.placed) do
    carry_out_placed(command)
end
for _, one in ipairs(batch.chosen) do
    carry_out_placed(one[1] < head + one[2] and one[3] or one[4])
end
for _, command in ipairs(batch.removes) do
    carry_out(command)
end
for nth = 1, #batch.unwatched, 2 do
    count('watchers', -call('HDEL', prefix .. 'waits:' .. batch.unwatched[nth], batch.unwatched[nth + 1]))
end

-- --- claims, after all else ---

local function note_ready(names)
    for _, name in ipairs(names) do
        local has_some = call('EXISTS', prefix .. 'ready:' .. name) == 1
        call(has_some and 'SADD' or 'SREM', prefix .. 'ready_names', name)
    end
end

local function take(claim, member)
    local run = string.sub(member, 19)
    local row = run_row(run)
    if not row[2] then
        return nil -- an index that leads nowhere must not stop others
    end
    local version, status, owner, _, _, state = claim_parts(row[4])
    local listed = made_parts(row[5]) .. run
    if status ~= 'running' then
        call('ZREM', prefix .. 'runs:status:' .. status, listed)
        call('ZADD', prefix .. 'runs:status:running', '0', listed)
    elseif owner ~= claim.worker then
        call('ZREM', prefix .. 'owned:' .. owner, run)
        table.insert(batch.owners, owner)
    end
    if owner ~= '' then
        call('ZREM', prefix .. 'held:' .. owner, run)
    end
    call('ZADD', prefix .. 'held:' .. claim.worker, '0', run)
    call('ZADD', prefix .. 'owned:' .. claim.worker, '0', run)
    row[4] = next_claim(version, 'running', claim.worker, claim.fence, '', state)
    call('HSET', prefix .. 'run:' .. run, 'claim', row[4])
    return row
end

local function make(claim)
    local taken, names = {}, {}
    for nth, one in ipairs(first_ready(claim.pools, claim.of, claim.now, claim.limit)) do
        call('ZREM', prefix .. 'ready:' .. one[2], one[1])
        names[nth] = one[2]
        local row = take(claim, one[1])
        if row then
            table.insert(taken, row)
        end
    end
    local later = ''
    for _, line in ipairs(ready_lines(claim.pools, claim.of)) do
        for _, name in ipairs(line) do
            local from = '[' .. claim.now .. '\255'
            local found = call('ZRANGEBYLEX', prefix .. 'ready:' .. name, from, '+', 'LIMIT', 0, 1)[1]
            if found and (later == '' or string.sub(found, 1, 18) < later) then
                later = string.sub(found, 1, 18)
            end
        end
    end
    table.insert(batch.owners, claim.worker)
    note_ready(names)
    return {taken, later}
end

note_ready(batch.ready)
local claimed = {}
for nth, claim in ipairs(batch.claims) do
    claimed[nth] = make(claim)
end

for _, owner in ipairs(batch.owners) do
    local runs_something = call('EXISTS', prefix .. 'owned:' .. owner) == 1
    call(runs_something and 'SADD' or 'SREM', prefix .. 'owners', owner)
end
for _, queue in ipairs(batch.queues) do
    local holds_something = call('EXISTS', prefix .. 'queue:' .. queue) == 1
    call(holds_something and 'SADD' or 'SREM', prefix .. 'queues', queue)
end
for _, one in ipairs(batch.lines) do
    local pool, key = one[1], one[2]
    if call('EXISTS', prefix .. 'line:' .. pool .. '\0' .. key) == 1 then
        call('ZADD', prefix .. 'line_keys:' .. pool, '0', key)
    else
        call('ZREM', prefix .. 'line_keys:' .. pool, key)
    end
    local is_there = call('EXISTS', prefix .. 'line_age:' .. pool) == 1
    call(is_there and 'SADD' or 'SREM', prefix .. 'lines', pool)
end

-- --- the ledger ---

-- The oldest events, with all that leads to them. Before what comes: an id may be used anew.
if batch.trim > 0 then
    local topics, from = {}, '-'
    while true do
        local old = call('XRANGE', prefix .. 'events', from, entry(batch.trim), 'COUNT', 500)
        for _, one in ipairs(old) do
            local id, type, about, occurred = event_parts(one)
            local position = number_of(one[1])
            local member = occurred .. string.format('%016.0f', position)
            topics[type] = true
            call('HDEL', prefix .. 'event_ids', id)
            call('ZREM', prefix .. 'times', member)
            if about ~= '' then
                call('ZREM', prefix .. 'timelines', about .. '\0' .. member)
                call('ZREMRANGEBYSCORE', prefix .. 'topic:' .. type .. '\0' .. about, '-inf', whole(position))
                call('ZREM', prefix .. 'entity:' .. about, whole(position))
            end
            from = '(' .. one[1]
        end
        count('events', -#old)
        if #old < 500 then
            break
        end
    end
    call('XTRIM', prefix .. 'events', 'MINID', entry(batch.trim + 1))
    for topic in pairs(topics) do
        call('XTRIM', prefix .. 'type:' .. topic, 'MINID', entry(batch.trim + 1))
        if call('XLEN', prefix .. 'type:' .. topic) == 0 then
            call('UNLINK', prefix .. 'type:' .. topic)
        end
    end
end

if batch.needs_head then
    -- Another process may have appended meanwhile, at a later time: the times of the ledger never go back.
    local at = is_late and recorded_at or batch.at
    local ids, times, timelines = {}, {}, {}
    local position = head
    for nth = 1, #batch.events, 7 do
        position = position + 1
        local id, type, about, occurred, row, repeated, indexed = unpack(batch.events, nth, nth + 6)
        -- Of the new ones too those below the bound are not worth writing.
        if position > batch.trim then
            local named = entry(position)
            call('XADD', prefix .. 'events', named, 'event',
                id .. '\0' .. type .. '\0' .. about .. '\0' .. occurred .. '\0' .. at .. '\0' .. row)
            call('XADD', prefix .. 'type:' .. type, named, 'r', repeated)
            local member = occurred .. string.format('%016.0f', position)
            if about ~= '' then
                table.insert(timelines, '0')
                table.insert(timelines, about .. '\0' .. member)
                -- The engine's facts about a run are few: its timeline finds them.
                if indexed == '1' then
                    call('ZADD', prefix .. 'topic:' .. type .. '\0' .. about, whole(position), repeated .. whole(position))
                    call('ZADD', prefix .. 'entity:' .. about, whole(position), whole(position))
                end
            end
            table.insert(ids, id)
            table.insert(ids, whole(position))
            table.insert(times, '0')
            table.insert(times, member)
        end
    end
    for first = 1, #ids, 1000 do
        local last = math.min(first + 999, #ids)
        call('HSET', prefix .. 'event_ids', unpack(ids, first, last))
        call('ZADD', prefix .. 'times', unpack(times, first, last))
    end
    for first = 1, #timelines, 1000 do
        call('ZADD', prefix .. 'timelines', unpack(timelines, first, math.min(first + 999, #timelines)))
    end
    count('events', #ids / 2)
    call('HSET', prefix .. 'head', 'position', whole(position), 'recorded_at', at)
end

-- The versions of so many names that most are of no use to anybody any more: all go. From now on a name without one
-- counts as of the greatest of them, so that no name ever has a version again that it had before.
if #batch.units > 0 and call('HLEN', prefix .. 'units') > batch.units_max then
    local greatest = 0
    for _, version in ipairs(call('HVALS', prefix .. 'units')) do
        greatest = math.max(greatest, tonumber(version))
    end
    call('HSET', prefix .. 'head', 'units', whole(greatest))
    call('UNLINK', prefix .. 'units')
end

for rows, number in pairs(counts) do
    if number ~= 0 then
        call('HINCRBY', prefix .. 'counts', rows, whole(number))
    end
end
local commits = call('HINCRBY', prefix .. 'head', 'commits', 1)

return {'written', time, whole(head), commits, claimed}
