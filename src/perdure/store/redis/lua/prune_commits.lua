-- Forget which batches were written so long ago that nobody asks any more.
-- ARGV: the bound as a member of the index, how many at most. Answers how many went.
local old = call('ZRANGEBYLEX', prefix .. 'commits:age', '-', '(' .. ARGV[1], 'LIMIT', 0, tonumber(ARGV[2]))
for _, member in ipairs(old) do
    call('HDEL', prefix .. 'commits', string.sub(member, 19))
    call('ZREM', prefix .. 'commits:age', member)
end
return #old
