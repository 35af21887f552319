-- The first word with every start of a server. Makes the namespace if that is asked for, and says what has become of it.
--
-- A server that was started again, or another one that has taken its place, may have lost the last batches. Nobody but
-- their writers and readers can know: so whoever comes first begins an epoch, and notes how many batches there were left.
-- Who has seen more of them has seen some that are gone, in that epoch or in one that it slept through. Who has not greeted
-- the present epoch writes nothing.
--
-- ARGV: the schema that the caller writes, the oldest code that may use it, an id for a namespace that may be made or '',
-- the epoch that the caller has greeted before or '0', the commands that our scripts use.
-- Answers: {'greeted', clock, server, epoch, began, commits, head, needed}, where `began` is the least that any epoch since
-- has begun with, or '' if there was none; {'foreign', type of the key}; {'nothing'}; {'forbidden', commands}.

-- Known since Redis 7.
if redis.acl_check_cmd then
    local forbidden = {}
    for command in string.gmatch(ARGV[5], '%u+') do
        local is_allowed
        if command == 'TIME' or command == 'INFO' then
            is_allowed = redis.acl_check_cmd(command)
        else
            is_allowed = redis.acl_check_cmd(command, prefix .. 'meta')
        end
        if not is_allowed then
            table.insert(forbidden, command)
        end
    end
    if #forbidden > 0 then
        return {'forbidden', table.concat(forbidden, ' ')}
    end
end

local kind = call('TYPE', prefix .. 'meta').ok
if kind ~= 'none' and kind ~= 'hash' then
    return {'foreign', kind}
end
local present = server()
local meta = call('HMGET', prefix .. 'meta', 'schema', 'min_code', 'server', 'epoch')
local commits = call('HGET', prefix .. 'head', 'commits') or '0'

if not meta[1] and ARGV[3] == '' then
    return {'nothing'}
elseif not meta[1] then
    meta = {ARGV[1], ARGV[2], present, '1'}
    call('HSET', prefix .. 'meta', 'schema', ARGV[1], 'min_code', ARGV[2], 'created', ARGV[3],
        'server', present, 'epoch', '1', 'began:1', '0')
elseif meta[3] ~= present then
    meta[4] = whole(tonumber(meta[4]) + 1)
    call('HSET', prefix .. 'meta', 'server', present, 'epoch', meta[4], 'began:' .. meta[4], commits)
end

local began = ''
if ARGV[4] ~= '0' then
    for epoch = tonumber(ARGV[4]) + 1, tonumber(meta[4]) do
        local had = call('HGET', prefix .. 'meta', 'began:' .. whole(epoch))
        if had and (began == '' or tonumber(had) < tonumber(began)) then
            began = had
        end
    end
end

local head = call('HGET', prefix .. 'head', 'position') or '0'
return {'greeted', clock(), present, meta[4], began, commits, head, meta[2]}
