if are_named() then return end
local names = prefix .. ':kv-names'
redis.call('ZREM', names, '')
for _, hash in ipairs({prefix .. ':kv-sizes', places}) do
    for _, name in ipairs(fields(hash)) do redis.call('ZADD', names, 0, name) end
end
for _, name in ipairs(redis.call('ZRANGE', prefix .. ':kv-deadlines', 0, -1)) do redis.call('ZADD', names, 0, name) end
