-- The first word on every new connection. Makes the namespace if there is none, and says what has become of it.
--
-- A server that was started again, or another one that has taken its place, may have lost the last batches. Nobody but
-- their writers and readers can know: so whoever comes first begins a new epoch, and notes how many batches there were left.
-- Who has seen more of them has seen some that are gone. A batch of an older epoch is not written.
--
-- ARGV: the schema that the caller writes, the oldest code that may use it, an id for a new namespace.
-- Answers: {'greeted', clock, epoch, began, commits, head, needed}, or {'foreign', type of the key}.
local kind = call('TYPE', prefix .. 'meta').ok
if kind ~= 'none' and kind ~= 'hash' then
    return {'foreign', kind}
end
local server = string.match(call('INFO', 'server'), 'run_id:(%w+)')
local meta = call('HMGET', prefix .. 'meta', 'schema', 'min_code', 'epoch', 'server', 'began')
local commits = call('HGET', prefix .. 'head', 'commits') or '0'

if not meta[1] then
    meta = {ARGV[1], ARGV[2], '1', server, '0'}
    call('HSET', prefix .. 'meta', 'schema', ARGV[1], 'min_code', ARGV[2], 'created', ARGV[3],
        'epoch', '1', 'server', server, 'began', '0')
elseif meta[4] ~= server then
    meta[3] = whole(tonumber(meta[3]) + 1)
    meta[5] = commits
    call('HSET', prefix .. 'meta', 'epoch', meta[3], 'server', server, 'began', commits)
end

return {'greeted', clock(), meta[3], meta[5], commits, call('HGET', prefix .. 'head', 'position') or '0', meta[2]}
