-- What every script begins with. KEYS[1] is <tag>:meta, a key that is always there: it says which node is meant, and all
-- other keys begin as it does. (A key that never exists would be looked for elsewhere while a slot is moved.)
--
-- Rows are texts that nobody here looks into. Numbers that may be greater than 2^53 (versions of units, fences) stay
-- texts; a number becomes a text by `whole`, never by itself, which would round it.
local prefix = string.sub(KEYS[1], 1, -5)
local call = redis.call

local function whole(number)
    return string.format('%.0f', number)
end

-- Microseconds since 1970, by the server's clock.
local function clock()
    local time = call('TIME')
    return time[1] .. string.format('%06d', tonumber(time[2]))
end

-- By which name this start of the server is known: another start, or another server in its place, has another.
local function server()
    return string.match(call('INFO', 'server'), 'run_id:(%w+)')
end

-- A stream names its entries by two numbers. Ours use the first.
local function entry(position)
    return whole(position) .. '-0'
end

local function number_of(id)
    return tonumber(string.match(id, '^%d+'))
end

-- The values of many fields of a hash; false where there is none.
local function fields_of(key, fields)
    local values = {}
    for first = 1, #fields, 1000 do
        local last = math.min(first + 999, #fields)
        for _, value in ipairs(call('HMGET', key, unpack(fields, first, last))) do
            table.insert(values, value)
        end
    end
    return values
end

-- The parts of an entry of the ledger: id, type, about, when it happened, when it was recorded; the row follows.
local function event_parts(entry)
    return string.match(entry[2][2], '^([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)%z')
end

-- Of a run by its field `claim`: version, status, owner, the token of its claim, from when on anybody may claim it, and
-- its state.
local function claim_parts(claim)
    return string.match(claim, '^(%d+)%z(%a+)%z([^%z]*)%z(%d+)%z(%d*)%z(.*)$')
end

-- The same with the next version.
local function next_claim(version, ...)
    return table.concat({whole(tonumber(version) + 1), ...}, '\0')
end

-- By its field `made`: when it was made, and its generation.
local function made_parts(made)
    return string.match(made, '^(%d+):(%d+):')
end

local function generation_of(run)
    local made = call('HGET', prefix .. 'run:' .. run, 'made')
    local _, generation = made_parts(made or '0:0:')
    return generation
end

-- What its owner has recorded as plain results, without touching the run itself, ends with this number.
local function last_result(run, generation)
    return tonumber(call('HGET', prefix .. 'steps:' .. run .. ':' .. generation, '!seq') or '0')
end

-- The last number in the history of a run.
local function last_seq(run, generation)
    local seq = tonumber(call('HGET', prefix .. 'run:' .. run, 'seq') or '0')
    return math.max(seq, last_result(run, generation))
end

-- A run as store/redis/rows.py reads it: its id, and these fields of it. The last is the last number in its history.
local function run_row(run)
    local row = call('HMGET', prefix .. 'run:' .. run, 'born', 'published', 'claim', 'made', 'seq')
    if row[1] then
        local _, generation = made_parts(row[4])
        row[5] = whole(math.max(tonumber(row[5]), last_result(run, generation)))
    end
    table.insert(row, 1, run)
    return row
end

-- Where the newest event of a topic is, of those that are kept; 0 if there is none.
local function newest_of(topic)
    local newest = call('XREVRANGE', prefix .. 'type:' .. topic, '+', '-', 'COUNT', 1)[1]
    return newest and number_of(newest[1]) or 0
end

-- Byte by byte, whatever the language of the server: as the zsets are ordered.
local function is_before(one, other, from)
    for nth = from or 1, math.min(#one, #other) do
        local mine, its = string.byte(one, nth), string.byte(other, nth)
        if mine ~= its then
            return mine < its
        end
    end
    return #one < #other
end

-- The same of members that begin with a time: digits are in the same order in every language.
local function is_older(one, other)
    local mine, its = string.sub(one, 1, 18), string.sub(other, 1, 18)
    if mine ~= its then
        return mine < its
    end
    return is_before(one, other, 19)
end

-- The names of the indexes of runs of these workflows that may be claimed, {{name, …}, …}: those of a pool together, of the
-- given ones ('' for the runs in none) or (false) of all that have any.
local function ready_lines(pools, workflows)
    local lines, of_pool, known = {}, {}, {}
    local function add(pool, name)
        if not of_pool[pool] then
            of_pool[pool] = {}
            table.insert(lines, of_pool[pool])
        end
        table.insert(of_pool[pool], name)
    end
    for _, workflow in ipairs(workflows) do
        known[workflow] = true
        for _, pool in ipairs(pools or {}) do
            add(pool, (pool == '' and '' or pool .. '\0') .. workflow)
        end
    end
    if not pools then
        for _, name in ipairs(call('SMEMBERS', prefix .. 'ready_names')) do
            local pool, workflow = string.match(name, '^([^%z]*)%z(.*)$')
            if known[workflow or name] then
                add(pool or '', name)
            end
        end
    end
    return lines
end

-- The first of a line that is due, {member, name of its index}; nil if there is none. Of its indexes no more is read than is
-- needed: a worker with room for many would read all that wait.
local function next_ready(line, now)
    local first
    for _, index in ipairs(line) do
        if index.at > #index.page and not index.is_over then
            index.page = call('ZRANGEBYLEX', prefix .. 'ready:' .. index.name, index.from, '(' .. now .. '\255', 'LIMIT', 0, 16)
            index.at, index.is_over = 1, #index.page < 16
            index.from = '(' .. (index.page[#index.page] or '')
        end
        local member = index.page[index.at]
        if member and (not first or is_older(member, first.page[first.at])) then
            first = index
        end
    end
    if first then
        first.at = first.at + 1
        return {first.page[first.at - 1], first.name}
    end
end

-- Who may be claimed: the oldest of each pool, then the second ones, and so on.
local function first_ready(pools, workflows, now, limit)
    local lines, found = {}, {}
    for nth, names in ipairs(ready_lines(pools, workflows)) do
        lines[nth] = {}
        for _, name in ipairs(names) do
            table.insert(lines[nth], {name = name, from = '-', page = {}, at = 1})
        end
    end
    while #found < limit and #lines > 0 do
        local round, going = {}, {}
        for _, line in ipairs(lines) do
            local one = next_ready(line, now)
            if one then
                table.insert(round, one)
                table.insert(going, line)
            end
        end
        table.sort(round, function(one, other) return is_older(one[1], other[1]) end)
        for nth = 1, math.min(#round, limit - #found) do
            table.insert(found, round[nth])
        end
        lines = going
    end
    return found
end
