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

local stale_units, stale_runs, newer_seq = {}, {}, 0

for nth, version in ipairs(fields_of(prefix .. 'units', batch.units)) do
    if (version or '0') ~= batch.versions[nth] then
        table.insert(stale_units, nth)
    end
end

for nth = 1, #batch.runs do
    if call('HGET', prefix .. 'run:' .. batch.runs[nth], 'change') ~= batch.changes[nth] then
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
for nth, newest in ipairs(fields_of(prefix .. 'newest', batch.topics)) do
    if (newest or '0') ~= batch.newest[nth] then
        table.insert(stale_units, batch.topics_at[nth])
    end
end

local ends = call('HMGET', prefix .. 'head', 'position', 'recorded_at')
local head, recorded_at = tonumber(ends[1] or '0'), ends[2] or '0'
local is_late = tonumber(recorded_at) > tonumber(batch.at)

if #stale_units > 0 or #stale_runs > 0 or newer_seq > 0
    or (batch.head >= 0 and batch.head ~= head) or (batch.judges and is_late)
then
    return {'overtaken', time, stale_runs, stale_units, whole(newer_seq), whole(head), recorded_at}
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
local function is_forgotten(history)
    for _, run in ipairs(batch.forget) do
        if string.sub(history, 1, #run + 1) == run .. ':' then
            return true
        end
    end
    return false
end

for _, run in ipairs(batch.born) do
    if call('EXISTS', prefix .. 'run:' .. run) == 1 then
        return {'taken', time}
    end
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
for nth = 1, #batch.results, 3 do
    local key = prefix .. 'steps:' .. batch.results[nth]
    local there = call('HEXISTS', key, batch.results[nth + 1])
    if there == 1 and not is_forgotten(batch.results[nth]) and not gone[key .. '\0' .. batch.results[nth + 1]] then
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
for _, event in ipairs(batch.events) do
    local there = call('HGET', prefix .. 'event_ids', event[1])
    if there and tonumber(there) > batch.trim then
        return {'taken', time}
    end
end

-- --- write ---

call('HSET', prefix .. 'commits', batch.batch, whole(head))
call('ZADD', prefix .. 'commits:age', '0', batch.age .. batch.batch)

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
    drop_steps(run, tonumber(call('HGET', prefix .. 'run:' .. run, 'generation') or '0'))
    drop_hash('steps', prefix .. 'open:' .. run)
    drop_hash('watchers', prefix .. 'waits:' .. run)
    drop_hash('signals', prefix .. 'signals:' .. run)
    drop_hash('cursors', prefix .. 'cursors:' .. run)
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
for nth = 1, #batch.results, 3 do
    local key = prefix .. 'steps:' .. batch.results[nth]
    -- With the last number of the history, which is no row.
    call('HSET', key, batch.results[nth + 1], placed(batch.results[nth + 2]), '!seq', batch.seq)
end
count('steps', #batch.results / 3)
for _, command in ipairs(batch.placed) do
    carry_out_placed(command)
end
for _, one in ipairs(batch.chosen) do
    carry_out_placed(one[1] < head + one[2] and one[3] or one[4])
end
for _, command in ipairs(batch.removes) do
    carry_out(command)
end

-- --- claims, after all else ---

local function take(claim, member)
    local run = string.sub(member, 19)
    local key = prefix .. 'run:' .. run
    local old = call('HMGET', key, 'status', 'owner', 'created')
    if not old[1] then
        return nil -- an index that leads nowhere must not stop others
    end
    if old[1] ~= 'running' then
        call('ZREM', prefix .. 'runs:status:' .. old[1], old[3] .. run)
        call('ZADD', prefix .. 'runs:status:running', '0', old[3] .. run)
    end
    if old[1] == 'running' and old[2] ~= claim.worker then
        call('ZREM', prefix .. 'owned:' .. old[2], run)
        table.insert(batch.owners, old[2])
    end
    if old[2] and old[2] ~= '' then
        call('ZREM', prefix .. 'held:' .. old[2], run)
    end
    call('ZADD', prefix .. 'held:' .. claim.worker, '0', run)
    call('ZADD', prefix .. 'owned:' .. claim.worker, '0', run)
    call('HSET', key, 'status', 'running', 'owner', claim.worker, 'fence', claim.fence, 'ready', '')
    call('HINCRBY', key, 'change', 1)
    return run_row(run)
end

-- The oldest of each pool, then the second ones, and so on.
local function make(claim)
    local pools, first = served(claim.pools), {}
    for _, pool in ipairs(pools) do
        local due = {}
        for _, workflow in ipairs(claim.of) do
            local key = ready_key(pool, workflow)
            for _, member in ipairs(call('ZRANGEBYLEX', key, '-', '(' .. claim.now .. '\255', 'LIMIT', 0, claim.limit)) do
                table.insert(due, {member, key})
            end
        end
        table.sort(due, function(one, other) return one[1] < other[1] end)
        for nth = 1, math.min(#due, claim.limit) do
            table.insert(first, {due[nth][1], due[nth][2], nth})
        end
    end
    table.sort(first, function(one, other)
        if one[3] ~= other[3] then
            return one[3] < other[3]
        end
        return one[1] < other[1]
    end)
    local taken = {}
    for nth = 1, math.min(#first, claim.limit) do
        call('ZREM', first[nth][2], first[nth][1])
        local row = take(claim, first[nth][1])
        if row then
            table.insert(taken, row)
        end
    end
    local later = ''
    for _, pool in ipairs(pools) do
        for _, workflow in ipairs(claim.of) do
            local from = '[' .. claim.now .. '\255'
            local found = call('ZRANGEBYLEX', ready_key(pool, workflow), from, '+', 'LIMIT', 0, 1)[1]
            if found and (later == '' or string.sub(found, 1, 18) < later) then
                later = string.sub(found, 1, 18)
            end
        end
    end
    table.insert(batch.owners, claim.worker)
    return {taken, later}
end

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
            -- id, type, about, time, at, row
            local event, position = one[2], number_of(one[1])
            topics[event[4]] = true
            call('HDEL', prefix .. 'event_ids', event[2])
            call('ZREM', prefix .. 'times', event[8] .. string.format('%016.0f', position))
            if event[6] ~= '' then
                call('ZREM', prefix .. 'about:' .. event[6], event[8] .. string.format('%016.0f', position))
                call('ZREMRANGEBYSCORE', prefix .. 'topic:' .. event[4] .. '\0' .. event[6], '-inf', whole(position))
                call('ZREM', prefix .. 'entity:' .. event[6], whole(position))
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
    local ids, times, newest = {}, {}, {}
    for nth, event in ipairs(batch.events) do
        local position = head + nth
        local id, type, about, occurred, row, repeated, indexed = unpack(event)
        newest[type] = whole(position)
        -- Of the new ones too those below the bound are not worth writing.
        if position > batch.trim then
            local named = entry(position)
            call('XADD', prefix .. 'events', named,
                'id', id, 'type', type, 'about', about, 'time', occurred, 'at', at, 'row', row)
            call('XADD', prefix .. 'type:' .. type, named, 'r', repeated)
            local member = occurred .. string.format('%016.0f', position)
            if about ~= '' then
                call('ZADD', prefix .. 'about:' .. about, '0', member)
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
    count('events', #ids / 2)
    for type, position in pairs(newest) do
        call('HSET', prefix .. 'newest', type, position)
    end
    call('HSET', prefix .. 'head', 'position', whole(head + #batch.events), 'recorded_at', at)
end

for rows, number in pairs(counts) do
    if number ~= 0 then
        call('HINCRBY', prefix .. 'counts', rows, whole(number))
    end
end
local commits = call('HINCRBY', prefix .. 'head', 'commits', 1)

return {'written', time, whole(head), commits, claimed}
