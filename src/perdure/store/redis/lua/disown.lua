-- Take all runs away from a worker that must not go on with what it has in memory: its tokens are worth nothing from
-- now on. Whoever claims them goes on from what is stored. ARGV: the worker, how many at most. Answers how many.
local held = call('ZRANGEBYLEX', prefix .. 'held:' .. ARGV[1], '-', '+', 'LIMIT', 0, tonumber(ARGV[2]))
for _, run in ipairs(held) do
    local key = prefix .. 'run:' .. run
    local version, status, owner, _, ready, state = claim_parts(call('HGET', key, 'claim'))
    call('HSET', key, 'claim', next_claim(version, status, owner, '0', ready, state))
    call('ZREM', prefix .. 'held:' .. ARGV[1], run)
end
if call('HDEL', prefix .. 'workers', ARGV[1]) == 1 then
    call('HINCRBY', prefix .. 'counts', 'workers', '-1')
end
return #held
