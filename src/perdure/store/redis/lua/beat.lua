-- A life sign. A worker that was taken for dead, and has no row any more, does not come to life again.
-- ARGV: the worker, until when its lease is to last. Answers what code the namespace needs by now, or ''.
local row = call('HGET', prefix .. 'workers', ARGV[1])
if not row then
    return ''
end
call('HSET', prefix .. 'workers', ARGV[1], ARGV[2] .. string.match(row, ':.*$'))
return call('HGET', prefix .. 'meta', 'min_code')
