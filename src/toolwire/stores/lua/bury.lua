local now, process, renewal = clock(ARGV[1]), ARGV[2], ARGV[3]
if renewal ~= '' then
    if not has_lease(process) then return 1 end
    if (redis.call('HGET', renewals, process) or '0') ~= renewal then return 0 end
end
insist()
redis.call('ZREM', leases, process)
redis.call('HDEL', renewals, process)
redis.call('ZREM', processes, process)
redis.call('ZADD', buried, 'NX', now, process)
redis.call('ZREMRANGEBYSCORE', buried, '-inf', now - BURIED_MS)
redis.call('ZREMRANGEBYRANK', buried, 0, LAST_RANK)
if #held_by(process, nil, 1) > 0 then redis.call('ZADD', gone, 0, process) end
return 1
