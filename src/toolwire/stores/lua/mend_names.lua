local names, sizes = prefix .. ':kv-names', prefix .. ':kv-sizes'
if redis.call('ZCARD', names) >= redis.call('HLEN', sizes) then return end
redis.call('ZREM', names, '')
for _, name in ipairs(fields(sizes)) do redis.call('ZADD', names, 0, name) end
