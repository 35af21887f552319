-- Questions about the rows, answered from one moment. ARGV[1] is a list of them, {name, arguments…}: one of those below,
-- or a command of the server. The answer is {clock, where the ledger ends, how many
-- batches there were, the epoch, answers, insides}, where `insides` has all that belongs to the runs that
-- somebody asked for inside, or who wait for what was asked about: that is what ending their wait takes.
--
-- A script that runs long stops the whole server. So a question is bounded by a number that it names, or by what one op
-- decides about (the inside of a run, its history, its children, who waits for it), or by what is declared (consumers,
-- pools, workflows). All others are walks, {'walk', name, limit, places, …}: these pass over rows that do not count, any
-- number of them. A walk answers {found, places}, and is asked again from those places, unless there are none.
local questions = cmsgpack.unpack(ARGV[1])
-- How many rows all walks of this call may look at.
local left = tonumber(ARGV[2])
local around, around_ids = {}, {}

local function remember(run)
    if not around_ids[run] then
        around_ids[run] = true
        table.insert(around, run)
    end
end

-- A watcher by its place in an index, <18 digits><run>\0<path>\0<ix>: its row, or false.
local function watcher_at(member)
    local cut = string.find(member, '\0', 19, true)
    local run = string.sub(member, 19, cut - 1)
    return call('HGET', prefix .. 'waits:' .. run, string.sub(member, cut + 1)), run
end

-- Goes along an index from a place on, until `take` says of a member that it is enough. Answers the places to go on from.
local function walk(key, from, upto, size, take)
    while left > 0 do
        local asked = math.min(size, left, 500)
        local page = call('ZRANGEBYLEX', key, from, upto, 'LIMIT', 0, asked)
        left = left - #page
        for _, member in ipairs(page) do
            from = '(' .. member
            if take(member) then
                return {}
            end
        end
        if #page < asked then
            return {}
        end
        size = 500
    end
    return {from}
end

-- Between which places the timeline of an entity is, among all of them.
local function timeline(about)
    return '[' .. about .. '\0', '(' .. about .. '\1'
end

-- Whoever waits by an index, in its order, from a place on.
local function watchers(key, from, upto, limit)
    local found = {}
    while #found < limit do
        local page = call('ZRANGEBYLEX', key, from, upto, 'LIMIT', 0, math.min(limit, 500))
        for _, member in ipairs(page) do
            from = '(' .. member
            local row, run = watcher_at(member)
            if row and #found < limit then
                table.insert(found, {member, row, run})
            end
        end
        if #page < math.min(limit, 500) then
            break
        end
    end
    return found
end

local function rows_of(found)
    local rows = {}
    for nth, one in ipairs(found) do
        rows[nth] = one[2]
    end
    return rows
end

-- Two lists in the order of their members, as one.
local function merged(one, other, limit)
    for _, each in ipairs(other) do
        table.insert(one, each)
    end
    table.sort(one, function(mine, its) return is_before(mine[1], its[1]) end)
    while #one > limit do
        table.remove(one)
    end
    return one
end

local function event_at(position)
    return call('XRANGE', prefix .. 'events', entry(position), entry(position))[1] or false
end

local function events_at(positions)
    local found = {}
    for _, position in ipairs(positions) do
        local event = event_at(position)
        if event then
            table.insert(found, event)
        end
    end
    return found
end

-- The place of the first event that was recorded at a time or later: found by halving, for time only goes up.
local function first_since(time)
    local oldest = call('XRANGE', prefix .. 'events', '-', '+', 'COUNT', 1)[1]
    local low = oldest and number_of(oldest[1]) or 1
    local high = tonumber(call('HGET', prefix .. 'head', 'position') or '0') + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local at = call('XRANGE', prefix .. 'events', entry(middle), '+', 'COUNT', 1)[1]
        local recorded_at = at and select(5, event_parts(at))
        if at and tonumber(recorded_at) < time then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

-- The positions of a topic's events after a place, or before one, some at a time: {position, repeats the one before}.
local function positions_of(topic, about, after, upto, newest)
    local found = {}
    if about == '' then
        local key = prefix .. 'type:' .. topic
        local page = newest and call('XREVRANGE', key, entry(upto), entry(after + 1), 'COUNT', 64)
            or call('XRANGE', key, entry(after + 1), entry(upto), 'COUNT', 64)
        for nth, one in ipairs(page) do
            found[nth] = {number_of(one[1]), one[2][2] == '1'}
        end
    else
        local key = prefix .. 'topic:' .. topic .. '\0' .. about
        local low, high = '(' .. whole(after), whole(upto)
        local page = newest and call('ZREVRANGEBYSCORE', key, high, low, 'LIMIT', 0, 64)
            or call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 64)
        for nth, one in ipairs(page) do
            found[nth] = {tonumber(string.sub(one, 2)), string.sub(one, 1, 1) == '1'}
        end
    end
    return found
end

local ask, walks = {}, {}

function ask.walk(name, limit, places, ...)
    if limit <= 0 then
        return {{}, {}}
    end
    local found, further = walks[name](limit, places, ...)
    return {found, further}
end

-- --- for decisions ---

ask.run = run_row

function ask.inside(run)
    remember(run)
    return ''
end

-- Who waits for a run to end.
function ask.on_run(run)
    local found = watchers(prefix .. 'watch:run:' .. run, '-', '+', math.huge)
    for _, one in ipairs(found) do
        remember(one[3])
    end
    return rows_of(found)
end

function ask.children(run)
    local children = call('SMEMBERS', prefix .. 'children:' .. run)
    for _, child in ipairs(children) do
        remember(child)
    end
    return children
end

-- The versions of units. One that is not there has that of all of those.
function ask.units(names)
    local usual = call('HGET', prefix .. 'head', 'units') or '0'
    local versions = fields_of(prefix .. 'units', names)
    for nth = 1, #versions do
        versions[nth] = versions[nth] or usual
    end
    return versions
end

-- Whether anybody waits for a topic, its version, and where its newest event is.
function ask.topic(topic)
    return {
        ask.units({'topic\0' .. topic})[1],
        call('EXISTS', prefix .. 'watch:topic:' .. topic),
        whole(newest_of(topic)),
    }
end

-- Who waits for an event, about its entity or ('') any, longest first.
function walks.watching(limit, places, topic, about, position, recorded_at)
    local rows = {}
    local further = walk(prefix .. 'watch:about:' .. topic .. '\0' .. about, places[1] or '-', '+', limit, function(member)
        local row, run = watcher_at(member)
        local after, deadline = string.match(row or '', '^(%d+):(%d*):')
        if after and tonumber(after) < position and (deadline == '' or tonumber(deadline) >= recorded_at) then
            table.insert(rows, row)
            remember(run)
        end
        return #rows == limit
    end)
    return rows, further
end

-- The first items of a queue, and who has waited longest for one.
function ask.queue(queue, limit)
    local waiting = watchers(prefix .. 'watch:queue:' .. queue, '-', '+', limit)
    for _, one in ipairs(waiting) do
        remember(one[3])
    end
    return {ask.items(queue, '-', limit), rows_of(waiting)}
end

function ask.event(id)
    local position = call('HGET', prefix .. 'event_ids', id)
    return position and event_at(tonumber(position)) or false
end

ask.event_at = event_at

-- The last place that may have an event that was recorded by a time; -1 for any. Times go up with places.
local function last_by(recorded_by)
    local last = tonumber(call('HGET', prefix .. 'head', 'position') or '0')
    return recorded_by >= 0 and math.min(last, first_since(recorded_by + 1) - 1) or last
end

-- The first event of a topic after a place, or the newest one.
function walks.next_event(limit, places, topic, about, after, recorded_by, newest, repeats)
    local upto = last_by(recorded_by)
    if newest then
        upto = math.min(upto, places[1] or upto)
    else
        after = places[1] or after
    end
    while left > 0 do
        local page = positions_of(topic, about, after, upto, newest)
        left = left - #page
        for _, one in ipairs(page) do
            local event = (repeats or not one[2]) and event_at(one[1])
            if event then
                return {event}, {}
            end
            if newest then
                upto = one[1] - 1
            else
                after = one[1]
            end
        end
        if #page == 0 then
            return {}, {}
        end
    end
    return {}, {newest and upto or after}
end

-- The same of one of the engine's facts about a run, which only its timeline finds: the best of those that this call has
-- looked at.
function walks.next_fact(limit, places, topic, about, after, recorded_by, newest)
    local upto, found, best = last_by(recorded_by), {}, nil
    local from, upto_here = timeline(about)
    local further = walk(prefix .. 'timelines', places[1] or from, upto_here, 100, function(member)
        local position = tonumber(string.sub(member, -16))
        local is_better = not best or (newest and position > best) or (not newest and position < best)
        local event = is_better and position > after and position <= upto and event_at(position)
        if event and select(2, event_parts(event)) == topic then
            best, found[1] = position, event
        end
    end)
    return found, further
end

function ask.position_at(time)
    return whole(first_since(time) - 1)
end

-- The place of the oldest event that is kept.
function ask.first()
    local oldest = call('XRANGE', prefix .. 'events', '-', '+', 'COUNT', 1)[1]
    return oldest and whole(number_of(oldest[1])) or '1'
end

function ask.deadlines(limit)
    return rows_of(watchers(prefix .. 'deadlines', '-', '+', limit))
end

-- <18 digits><16 digits>\0<run>\0<id>
function ask.expiries(limit)
    local found = {}
    for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'expiries', '-', '+', 'LIMIT', 0, limit)) do
        local run, id = string.match(string.sub(member, 35), '^%z([^%z]*)%z(.*)$')
        local row = call('HGET', prefix .. 'signals:' .. run, id)
        if row then
            table.insert(found, row)
        end
    end
    return found
end

-- Who is said to run something and is not among those who live.
local function dead_owners(living)
    local lives, dead = {}, {}
    for _, worker in ipairs(living) do
        lives[worker] = true
    end
    for _, owner in ipairs(call('SMEMBERS', prefix .. 'owners')) do
        if not lives[owner] and call('EXISTS', prefix .. 'owned:' .. owner) == 1 then
            table.insert(dead, owner)
        end
    end
    return dead
end

-- Workers whose lease has not run out, and the one who asks, if it has a row.
local function living_workers(now, asker)
    local living = {}
    local all = call('HGETALL', prefix .. 'workers')
    for nth = 1, #all, 2 do
        if all[nth] == asker or number_of(all[nth + 1]) > now then
            table.insert(living, all[nth])
        end
    end
    return living
end

-- Running runs that nobody runs, or one of those who are gone.
function ask.orphans(now, asker, gone, limit)
    local found = {}
    local function add(owner)
        for _, run in ipairs(call('ZRANGEBYLEX', prefix .. 'owned:' .. owner, '-', '+', 'LIMIT', 0, limit)) do
            table.insert(found, {run})
        end
    end
    local counted = {}
    for _, owner in ipairs(dead_owners(living_workers(now, asker))) do
        counted[owner] = true
        add(owner)
    end
    for _, owner in ipairs(gone) do
        if not counted[owner] then
            add(owner)
        end
    end
    local runs = {}
    for nth, one in ipairs(merged(found, {}, limit)) do
        runs[nth] = one[1]
    end
    return runs
end

-- Schedules of these workflows by when they are due.
function ask.due(names, upto, limit)
    local found = {}
    for _, name in ipairs(names) do
        for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'due:' .. name, '-', upto, 'LIMIT', 0, limit)) do
            table.insert(found, {member})
        end
    end
    local due = {}
    for nth, one in ipairs(merged(found, {}, limit)) do
        due[nth] = one[1]
    end
    return due
end

-- Runs of these workflows that are due: the oldest of each pool, then the second ones, and so on.
function ask.ready(workflows, pools, now, limit)
    local runs = {}
    for nth, one in ipairs(first_ready(pools, workflows, now, limit)) do
        runs[nth] = string.sub(one[1], 19)
    end
    return runs
end

-- The first of each workflow in each pool that are not due yet.
function ask.ready_later(workflows, pools, now)
    local runs = {}
    for _, line in ipairs(ready_lines(pools, workflows)) do
        for _, name in ipairs(line) do
            local from = '[' .. now .. '\255'
            for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'ready:' .. name, from, '+', 'LIMIT', 0, 10)) do
                table.insert(runs, string.sub(member, 19))
            end
        end
    end
    return runs
end

-- Who stands in line of one key and is due, of workflows that the asker knows, in the order in which they are let
-- through: <begun or not, priority: 4><since when: 18><run>\0<workflow:version>. Those whose time is still to come are
-- the last of their rank: then the next rank follows.
local function in_line(pool, key, workflows, begun, now, limit, from)
    local known, runs = {}, {}
    for _, workflow in ipairs(workflows) do
        known[workflow] = true
    end
    while left > 0 do
        local page = call('ZRANGEBYLEX', prefix .. 'line:' .. pool .. '\0' .. key, from, '+', 'LIMIT', 0, 100)
        left = left - math.max(#page, 1)
        for _, member in ipairs(page) do
            from = '(' .. member
            if begun and string.sub(member, 1, 1) == '1' then
                return runs, {}
            end
            if is_before(now, string.sub(member, 5, 22)) then
                from = '(' .. string.sub(member, 1, 4) .. ':' -- which is after all digits
                break
            end
            local cut = string.find(member, '\0', 23, true)
            if known[string.sub(member, cut + 1)] then
                table.insert(runs, string.sub(member, 23, cut - 1))
                if #runs == limit then
                    return runs, {}
                end
            end
        end
        if #page == 0 then
            return runs, {}
        end
    end
    return runs, {from}
end

function walks.line_runs(limit, places, pool, key, workflows, begun, now)
    return in_line(pool, key, workflows, begun, now, limit, places[1] or '-')
end

-- Runs of a pool that may be claimed and nobody can or does: those whose time is still to come, and, of workflows that
-- are not among these, those who were ready by then.
function ask.idle_slots(pool, names, now, since, limit)
    local known, found, lead = {}, {}, pool .. '\0'
    for _, name in ipairs(names) do
        known[name] = true
    end
    local function add(name, from, upto)
        for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'ready:' .. name, from, upto, 'LIMIT', 0, limit)) do
            table.insert(found, {member})
        end
    end
    for _, name in ipairs(call('SMEMBERS', prefix .. 'ready_names')) do
        if string.sub(name, 1, #lead) == lead then
            add(name, '[' .. now .. '\255', '+')
            if not known[name] then
                add(name, '-', '(' .. since .. '\255')
            end
        end
    end
    local runs = {}
    for nth, one in ipairs(merged(found, {}, limit)) do
        runs[nth] = string.sub(one[1], 19)
    end
    return runs
end

-- The next keys of a line with somebody who is due, and how many slots each has taken. The places are a key, and one in
-- its line.
function walks.line_keys(limit, places, pool, from, workflows, begun, now)
    local found, inner = {}, places[2] or '-'
    from = places[1] or from
    while left > 0 do
        local asked = math.min(limit, 100)
        local page = call('ZRANGEBYLEX', prefix .. 'line_keys:' .. pool, from, '+', 'LIMIT', 0, asked)
        for _, key in ipairs(page) do
            local runs, further = in_line(pool, key, workflows, begun, now, 1, inner)
            if further[1] then
                return found, {'[' .. key, further[1]}
            end
            from, inner = '(' .. key, '-'
            if #runs > 0 then
                table.insert(found, {key, call('ZCARD', prefix .. 'slots:' .. pool .. '\0' .. key)})
                if #found == limit then
                    return found, {}
                end
            end
        end
        if #page < asked then
            return found, {}
        end
    end
    return found, {from, inner}
end

-- The oldest ends first. A run that living ones still refer to stays: its id could be used anew, and what they mean would
-- become another run's.
function walks.finished(limit, places, before)
    local runs = {}
    local further = walk(prefix .. 'runs:finished', places[1] or '-', '(' .. before, limit, function(member)
        local run = string.sub(member, 19)
        if call('EXISTS', prefix .. 'watch:run:' .. run, prefix .. 'children:' .. run) == 0 then
            table.insert(runs, run)
        end
        return #runs == limit
    end)
    return runs, further
end

-- The first row of a table, in the order of an index whose members end with its name, that is not older than a time. A
-- row begins with its own.
function walks.first_since(limit, places, index, rows, cut, time)
    local found = {}
    local further = walk(prefix .. index, places[1] or '-', '+', 100, function(member)
        local row = call('HGET', prefix .. rows, string.sub(member, cut + 1))
        found[1] = row and tonumber(string.match(row, '^%-?%d+')) >= time and row or nil
        return found[1]
    end)
    return found, further
end

function ask.expired_keys(now, limit, bytes_max)
    local found, bytes = {}, 0
    local expired = call('ZRANGEBYLEX', prefix .. 'keys:expiry', '-', '(' .. now .. '\255', 'LIMIT', 0, limit)
    for _, member in ipairs(expired) do
        local row = call('HGET', prefix .. 'keys', string.sub(member, 19))
        if row then
            table.insert(found, row)
            bytes = bytes + #row
        end
        -- One may hold a large answer: the rest goes with the next look.
        if bytes > bytes_max then
            break
        end
    end
    return found
end

-- --- for the engine ---

-- The steps of a generation that are decided, without the last number of them.
local function decided(run, generation)
    local rows = {}
    local all = call('HGETALL', prefix .. 'steps:' .. run .. ':' .. generation)
    for nth = 1, #all, 2 do
        if all[nth] ~= '!seq' then
            table.insert(rows, all[nth + 1])
        end
    end
    return rows
end

ask.decided = decided

-- Runs with all that is recorded of their present generation.
function ask.load(runs)
    local found = {}
    for _, run in ipairs(runs) do
        local row = run_row(run)
        if row[2] then
            local _, generation = made_parts(row[5])
            table.insert(found, {
                row,
                decided(run, generation),
                call('HVALS', prefix .. 'open:' .. run),
            })
        end
    end
    return found
end

-- Everything recorded of a run.
function ask.history(run)
    local kept = call('HMGET', prefix .. 'run:' .. run, 'kept', 'made')
    local found = call('HVALS', prefix .. 'open:' .. run)
    if kept[2] then
        local _, last = made_parts(kept[2])
        for generation = tonumber(kept[1] or '0'), tonumber(last) do
            for _, row in ipairs(decided(run, whole(generation))) do
                table.insert(found, row)
            end
        end
    end
    return found
end

local function earliest(key)
    local first = call('ZRANGEBYLEX', prefix .. key, '-', '+', 'LIMIT', 0, 1)[1]
    return first and string.sub(first, 1, 18) or ''
end

-- From when on the first run of these workflows and pools, or of all, may be claimed.
function ask.first_ready(workflows, pools)
    local lines = workflows and ready_lines(pools, workflows) or {call('SMEMBERS', prefix .. 'ready_names')}
    local first = ''
    for _, line in ipairs(lines) do
        for _, name in ipairs(line) do
            local at = earliest('ready:' .. name)
            if at ~= '' and (first == '' or at < first) then
                first = at
            end
        end
    end
    return first
end

-- How many runs of each workflow may be claimed by then, and since when the first may. The server counts in its head.
function ask.backlog(upto)
    local found = {}
    for nth, name in ipairs(call('SMEMBERS', prefix .. 'ready_names')) do
        local key = 'ready:' .. name
        found[nth] = {name, call('ZLEXCOUNT', prefix .. key, '-', upto), earliest(key)}
    end
    return found
end

-- The pools in whose line somebody stands.
function ask.lines()
    local found = {}
    for _, pool in ipairs(call('SMEMBERS', prefix .. 'lines')) do
        table.insert(found, {
            pool,
            call('HGET', prefix .. 'pools', pool),
            earliest('line_age:' .. pool),
            call('EXISTS', prefix .. 'begun:' .. pool),
            call('ZCARD', prefix .. 'slots:' .. pool),
            call('HGET', prefix .. 'keys', 'line\0' .. pool),
        })
    end
    return found
end

-- How things stand in one pool, and for some keys of it.
function ask.standing(pool, keys)
    local of_keys = {}
    for nth, key in ipairs(keys) do
        of_keys[nth] = {
            call('ZCARD', prefix .. 'slots:' .. pool .. '\0' .. key),
            call('HGET', prefix .. 'keys', 'rate/' .. pool .. '\0' .. key),
        }
    end
    return {
        call('ZCARD', prefix .. 'slots:' .. pool),
        call('ZCARD', prefix .. 'line_age:' .. pool),
        earliest('line_age:' .. pool),
        call('HGET', prefix .. 'keys', 'line\0' .. pool),
        of_keys,
    }
end

-- Who stands in a line, oldest first, from a place on.
function ask.line(pool, from, limit)
    local rows = {}
    for nth, member in ipairs(call('ZRANGEBYLEX', prefix .. 'line_age:' .. pool, from, '+', 'LIMIT', 0, limit)) do
        rows[nth] = run_row(string.sub(member, 19))
    end
    return rows
end

-- When the first schedule of these workflows, or of all, is due.
function ask.first_due(names)
    if not names then
        return earliest('schedules:due')
    end
    local first = ask.due(names, '+', 1)[1]
    return first and string.sub(first, 1, 18) or ''
end

-- Whether a run waits for anything: what stands over it (its deadline, events that cancel it) does not wake it to go on,
-- nor what stands beside a wait, whose number is 1000 or more.
local function waits(run)
    -- A deadline and 16 topics at most (limits.cancel_on_max): among more there is something that it waits for.
    if call('HLEN', prefix .. 'waits:' .. run) > 17 then
        return 1
    end
    for _, field in ipairs(call('HKEYS', prefix .. 'waits:' .. run)) do
        local is_beside = tonumber(string.match(field, '%d+$')) >= 1000
        if not is_beside and not string.find(field, '^!deadline%z') and not string.find(field, '^!cancel_on%z') then
            return 1
        end
    end
    return 0
end

-- What a worker asks for once a second: the low ends of a few indexes, both ends of the ledger, workers and consumers, a
-- handful; the next parked runs by age, each with whether it watches anything.
function ask.look(now, asker, after, limit, workflows, names, pools)
    local living = living_workers(now, asker)
    local made = call('HGET', prefix .. 'run:' .. after, 'made')
    local from = made and '(' .. made_parts(made) .. after or '-'
    local parked = {}
    if limit > 0 then
        for _, status in ipairs({'waiting', 'sleeping'}) do
            local page = call('ZRANGEBYLEX', prefix .. 'runs:status:' .. status, from, '+', 'LIMIT', 0, limit)
            for _, member in ipairs(page) do
                table.insert(parked, {member})
            end
        end
    end
    local swept = {}
    for nth, one in ipairs(merged(parked, {}, limit)) do
        local run = string.sub(one[1], 19)
        swept[nth] = {run, waits(run)}
    end
    return {
        earliest('deadlines'),
        earliest('expiries'),
        ask.first_ready(workflows, pools),
        call('EXISTS', prefix .. 'fan_outs'),
        call('EXISTS', prefix .. 'outbox'),
        ask.first(),
        call('HGET', prefix .. 'head', 'position') or '0',
        #dead_owners(living),
        living,
        call('HVALS', prefix .. 'consumers'),
        swept,
        server(),
        ask.first_due(names),
        ask.lines(),
    }
end

-- Of these runs, those whose status is not among the given.
function ask.runs_in(runs, statuses, wanted)
    local is_one, found = {}, {}
    for _, status in ipairs(statuses) do
        is_one[status] = true
    end
    for _, run in ipairs(runs) do
        local row = run_row(run)
        local _, status = claim_parts(row[4] or '')
        if row[2] and (is_one[status] or false) == wanted then
            table.insert(found, row)
        end
    end
    return found
end

-- --- for people ---

-- Runs from the newest to the oldest, by indexes alone: `groups` are alternatives that must hold all, {{key, …}, …}. The
-- one with the fewest members leads, the others are asked about each. Looks at so many at most, and says where to go on.
function ask.runs(groups, upto, from, limit)
    local leading, fewest = nil, math.huge
    for _, group in ipairs(groups) do
        local size = 0
        for _, key in ipairs(group) do
            size = size + call('ZCARD', prefix .. key)
        end
        if size < fewest then
            leading, fewest = group, size
        end
    end
    local candidates = {}
    local part = math.max(limit, 100)
    local is_cut = false
    for _, key in ipairs(leading) do
        local page = call('ZREVRANGEBYLEX', prefix .. key, upto, from, 'LIMIT', 0, part)
        for _, member in ipairs(page) do
            table.insert(candidates, {member})
        end
        is_cut = is_cut or #page == part
    end
    table.sort(candidates, function(one, other) return is_before(other[1], one[1]) end)
    local found, last = {}, ''
    for nth = 1, math.min(#candidates, part) do
        local member = candidates[nth][1]
        local fits = true
        for _, group in ipairs(groups) do
            local is_in = group == leading
            for _, key in ipairs(group) do
                is_in = is_in or call('ZSCORE', prefix .. key, member)
            end
            fits = fits and is_in
        end
        last = member
        if fits then
            table.insert(found, run_row(string.sub(member, 19)))
            if #found == limit then
                return {found, last}
            end
        end
    end
    return {found, (is_cut or #candidates > part) and last or ''}
end

-- Who waits by an index, from a place on.
function ask.watchers(key, from, upto, limit)
    return rows_of(watchers(prefix .. key, from, upto, limit))
end

function ask.topic_watchers(topic, from, limit)
    local plain = watchers(prefix .. 'watch:topic:' .. topic, from, '+', limit)
    return rows_of(merged(plain, watchers(prefix .. 'watch:match:' .. topic, from, '+', limit), limit))
end

-- <topic>\0<entity>\0<18 digits><run>\0<path>\0<ix>
function ask.matches(from, limit)
    local found = {}
    for _, member in ipairs(call('ZRANGEBYLEX', prefix .. 'matches', from, '+', 'LIMIT', 0, limit)) do
        local row = watcher_at(string.match(member, '^[^%z]*%z[^%z]*%z(.*)$'))
        if row then
            table.insert(found, row)
        end
    end
    return found
end

-- The rows of a table in the order of an index whose members are their names, or end with them.
function ask.page(index, rows, cut, from, upto, limit)
    local found = {}
    for _, member in ipairs(call('ZRANGEBYLEX', prefix .. index, from, upto, 'LIMIT', 0, limit)) do
        local row = call('HGET', prefix .. rows, string.sub(member, cut + 1))
        if row then
            table.insert(found, row)
        end
    end
    return found
end

function ask.items(queue, from, limit)
    return ask.page('queue:' .. queue, 'items', 16, from, '+', limit)
end

-- Those that were put before a time.
function walks.items_before(limit, places, queue, time)
    local rows = {}
    local further = walk(prefix .. 'queue:' .. queue, places[1] or '-', '+', limit, function(member)
        local row = call('HGET', prefix .. 'items', string.sub(member, 17))
        if row and tonumber(string.match(row, '^%-?%d+')) < time then
            table.insert(rows, row)
        end
        return #rows == limit
    end)
    return rows, further
end

function ask.signal(id)
    local run = call('HGET', prefix .. 'signal_ids', id)
    return {
        run and call('HGET', prefix .. 'signals:' .. run, id) or false,
        call('HGET', prefix .. 'letters', id),
        ask.event(id),
    }
end

-- Events after a place, in order, of one type or all.
function ask.events(topic, after, limit)
    if topic == '' then
        return call('XRANGE', prefix .. 'events', entry(after + 1), '+', 'COUNT', limit)
    end
    local places = call('XRANGE', prefix .. 'type:' .. topic, entry(after + 1), '+', 'COUNT', limit)
    local positions = {}
    for nth, one in ipairs(places) do
        positions[nth] = number_of(one[1])
    end
    return events_at(positions)
end

-- The same about one entity, of one type or all.
function ask.events_about(about, topic, after, limit)
    local positions = {}
    local key = topic == '' and 'entity:' .. about or 'topic:' .. topic .. '\0' .. about
    local found = call('ZRANGEBYSCORE', prefix .. key, '(' .. whole(after), '+inf', 'LIMIT', 0, limit)
    for nth, member in ipairs(found) do
        positions[nth] = tonumber(topic == '' and member or string.sub(member, 2))
    end
    return events_at(positions)
end

-- Where all facts about a run are, after a place: in no order.
function walks.facts(limit, places, about, after)
    local positions = {}
    local from, upto = timeline(about)
    local further = walk(prefix .. 'timelines', places[1] or from, upto, 100, function(member)
        if tonumber(string.sub(member, -16)) > after then
            table.insert(positions, string.sub(member, -16))
        end
    end)
    return positions, further
end

ask.events_at = events_at

-- By when things happened, of all or about one entity; after a time and position, or ('') from the first on.
function ask.events_by_time(about, after, limit)
    local key, from, upto = 'times', '-', '+'
    if about ~= '' then
        key, from, upto = 'timelines', timeline(about)
    end
    if after ~= '' then
        from = '(' .. (about ~= '' and about .. '\0' or '') .. after
    end
    local positions = {}
    for nth, member in ipairs(call('ZRANGEBYLEX', prefix .. key, from, upto, 'LIMIT', 0, limit)) do
        positions[nth] = tonumber(string.sub(member, -16))
    end
    return events_at(positions)
end

-- The streams of a run: its name, the place of its first item, and how far it has come.
function ask.streams(run)
    local found = {}
    local flat = call('HGETALL', prefix .. 'streams:' .. run)
    for nth = 1, #flat, 2 do
        local first = call('XRANGE', prefix .. 'stream:' .. run .. '\0' .. flat[nth], '-', '+', 'COUNT', 1)[1]
        table.insert(found, {flat[nth], first[1], flat[nth + 1]})
    end
    return found
end

-- The same as they are, be it wrong: its name, how far it has come, the places of the first and the last item, how many.
function ask.streams_kept(run)
    local found = {}
    local flat = call('HGETALL', prefix .. 'streams:' .. run)
    for nth = 1, #flat, 2 do
        local key = prefix .. 'stream:' .. run .. '\0' .. flat[nth]
        local first = call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
        local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
        table.insert(found, {flat[nth], flat[nth + 1], first and first[1] or '0', last and last[1] or '0', call('XLEN', key)})
    end
    return found
end

-- Those that hold something, and how many items. Some may be named twice.
function walks.queues(limit, places)
    if left <= 0 then
        return {}, {places[1] or '0'}
    end
    local found = {}
    local cursor, names = unpack(call('SSCAN', prefix .. 'queues', places[1] or '0', 'COUNT', math.min(left, 500)))
    left = left - #names
    for nth, queue in ipairs(names) do
        found[nth] = {queue, call('ZCARD', prefix .. 'queue:' .. queue)}
    end
    return found, cursor == '0' and {} or {cursor}
end

-- --- the answers ---

local answers = {}
for nth, question in ipairs(questions) do
    local answer = ask[question[1]]
    if answer then
        answers[nth] = answer(unpack(question, 2))
    else
        answers[nth] = call(unpack(question))
    end
end

-- What belongs to a run, and who waits for it to end: at its end that is asked of each.
local insides = {}
for nth, run in ipairs(around) do
    insides[nth] = {
        run_row(run),
        call('HVALS', prefix .. 'waits:' .. run),
        call('HVALS', prefix .. 'signals:' .. run),
        call('HGETALL', prefix .. 'cursors:' .. run),
        call('HVALS', prefix .. 'open:' .. run),
        rows_of(watchers(prefix .. 'watch:run:' .. run, '-', '+', math.huge)),
    }
end

local ends = call('HMGET', prefix .. 'head', 'position', 'commits')
local epoch = call('HGET', prefix .. 'meta', 'epoch') or '0'
return {clock(), ends[1] or '0', ends[2] or '0', epoch, answers, insides}
