-- What every script begins with. KEYS[1] is <tag>:meta, a key that is always there: it says which node is meant, and all
-- other keys begin as it does. (A key that never exists would be looked for elsewhere while a slot is moved.)
--
-- Rows are texts that nobody here looks into. Numbers that may be greater than 2^53 (versions, fences) stay texts; a
-- number becomes a text by `whole`, never by itself, which would round it.
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

local run_fields = {'born', 'state', 'published', 'status', 'owner', 'fence', 'ready', 'position', 'change', 'seq'}

-- The last number in the history of a run. Its owner adds plain results without touching the run itself.
local function last_seq(run, generation)
    local seq = tonumber(call('HGET', prefix .. 'run:' .. run, 'seq') or '0')
    local added = tonumber(call('HGET', prefix .. 'steps:' .. run .. ':' .. generation, '!seq') or '0')
    return math.max(seq, added)
end

-- A run as store/redis/rows.py reads it: its id, and these fields of it.
local function run_row(run)
    local row = call('HMGET', prefix .. 'run:' .. run, unpack(run_fields))
    if row[1] then
        row[10] = whole(last_seq(run, call('HGET', prefix .. 'run:' .. run, 'generation')))
    end
    table.insert(row, 1, run)
    return row
end

-- The pools to be served, the runs in none ('') among them: those given, or (false) all that have or had ready runs.
local function served(pools)
    if pools then
        return pools
    end
    local all = call('SMEMBERS', prefix .. 'ready_pools')
    table.insert(all, '')
    return all
end

-- The key of the runs of a workflow in a pool that may be claimed.
local function ready_key(pool, workflow)
    return prefix .. 'ready:' .. (pool == '' and '' or pool .. '\0') .. workflow
end
