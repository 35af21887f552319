-- Whether a batch was written, asked by who was not told. If it was not it never will be: its id is taken.
-- ARGV: the id of the batch, its age as a member of the index. Answers where the ledger ended before it, or ''.
local head = call('HGET', prefix .. 'commits', ARGV[1])
if head then
    return head
end
call('HSET', prefix .. 'commits', ARGV[1], '')
call('ZADD', prefix .. 'commits:age', '0', ARGV[2] .. ARGV[1])
return ''
