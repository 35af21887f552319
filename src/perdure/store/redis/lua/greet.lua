-- The first word with every start of a server. Makes the namespace if there is none, and says what has become of it.
--
-- A server that was started again, or another one that has taken its place, may have lost the last batches. Nobody but
-- their writers and readers can know: so whoever comes first notes how many batches there were left. Who has seen more of
-- them has seen some that are gone. Who has not greeted this very start writes nothing.
--
-- ARGV: the schema that the caller writes, the oldest code that may use it, an id for a new namespace.
-- Answers: {'greeted', clock, server, began, commits, head, needed}, or {'foreign', type of the key}.
local kind = call('TYPE', prefix .. 'meta').ok
if kind ~= 'none' and kind ~= 'hash' then
    return {'foreign', kind}
end
local present = server()
local meta = call('HMGET', prefix .. 'meta', 'schema', 'min_code', 'server', 'began')
local commits = call('HGET', prefix .. 'head', 'commits') or '0'

if not meta[1] then
    meta = {ARGV[1], ARGV[2], present, '0'}
    call('HSET', prefix .. 'meta', 'schema', ARGV[1], 'min_code', ARGV[2], 'created', ARGV[3],
        'server', present, 'began', '0')
elseif meta[3] ~= present then
    meta[4] = commits
    call('HSET', prefix .. 'meta', 'server', present, 'began', commits)
end

return {'greeted', clock(), present, meta[4], commits, call('HGET', prefix .. 'head', 'position') or '0', meta[2]}
