local now, found = clock(ARGV[1]), {}
local ended, counted, named = redis.call('ZCARD', leases), redis.call('HLEN', renewals), redis.call('ZCARD', processes)
if ended ~= counted or counted ~= named then
    local known = {}
    for _, set in ipairs({leases, processes}) do
        for _, process in ipairs(redis.call('ZRANGE', set, 0, -1)) do known[process] = true end
    end
    for _, process in ipairs(fields(renewals)) do known[process] = true end
    insist()
    for process in pairs(known) do
        if not redis.call('ZSCORE', leases, process) then redis.call('ZADD', leases, now, process) end
        redis.call('HSETNX', renewals, process, 0)
        redis.call('ZADD', processes, 0, process)
    end
end
for _, process in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, MOST_LEASES)) do
    found[#found + 1] = process
    found[#found + 1] = redis.call('HGET', renewals, process) or '0'
end
return found
