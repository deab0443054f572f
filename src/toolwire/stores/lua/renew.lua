local now, process, lease = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if redis.call('ZSCORE', buried, process) then return 0 end
insist()
redis.call('HINCRBY', renewals, process, 1)
redis.call('ZADD', leases, now + lease, process)
redis.call('ZADD', processes, 0, process)
return 1
