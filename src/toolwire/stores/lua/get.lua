local deadline = redis.call('ZSCORE', KEYS[1], ARGV[2])
if deadline and tonumber(deadline) <= clock(ARGV[1]) then return false end
return redis.call('GET', KEYS[2])
