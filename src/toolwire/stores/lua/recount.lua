insist()
redis.call('HSET', counts, '!', 1)
local is_whole = is_marked(all_names) + is_marked(all_sizes) > 0 or redis.call('ZSCORE', all_names, '\255?' .. ARGV[1])
for _, token in ipairs(redis.call('ZRANGEBYLEX', all_names, '[\255?', '+')) do redis.call('ZREM', all_names, token) end
local named = redis.call('ZCARD', all_names) - is_marked(all_names)
if is_whole and named == redis.call('HLEN', all_sizes) - is_marked(all_sizes) then
    redis.call('ZADD', all_names, 0, mark)
    if redis.call('HSET', all_sizes, mark, 0) == 1 then
        -- The sum lacks what was written and removed while sizes were lost.
        local total = 0
        for index, size in ipairs(redis.call('HGETALL', all_sizes)) do
            if index % 2 == 0 then total = total + tonumber(size) end
        end
        redis.call('SET', prefix .. ':kv-bytes', whole(total))
    end
end
if redis.call('HLEN', places) > MOST_PLACES or redis.call('ZCARD', ages) > MOST_AGES then return end
for _, member in ipairs(redis.call('ZRANGE', held, 0, -1)) do
    local size = tonumber(string.sub(member, 1, 8), 16)
    is_held(string.sub(member, 9, 8 + size), string.sub(member, 9 + size))
end
for _, member in ipairs(redis.call('ZRANGE', ages, 0, -1)) do is_ready(ages, member, 0) end
for _, member in ipairs(redis.call('ZRANGE', delays, 0, -1)) do
    local _, place = is_ready(delays, member, 0)
    if place and place.in_line then redis.call('ZREM', delays, member) end
end
for _, member in ipairs(redis.call('ZRANGE', lines, 0, -1)) do
    local kind_size = tonumber(string.sub(member, 2, 9), 16)
    local kind = string.sub(member, 10, 9 + kind_size)
    if string.sub(member, 1, 1) == 'l' then
        local at = 10 + kind_size
        is_ready(lines, member, at + 7 + tonumber(string.sub(member, at, at + 7), 16))
    else
        local turn, owner = string.sub(member, 10 + kind_size, 25 + kind_size), string.sub(member, 26 + kind_size)
        local known = redis.call('HGET', turns, 'o' .. sized(kind) .. owner)
        if not known or digits(known) ~= turn then redis.call('ZREM', lines, member) end
    end
end
local counted = {}
for _, name in ipairs(fields(places)) do
    local place = place_of(name)
    local field = (place.process and 'h' or 'r') .. place.kind
    counted[field] = (counted[field] or 0) + 1
end
for _, field in ipairs(fields(counts)) do
    if field ~= '#' and field ~= '!' then redis.call('HDEL', counts, field) end
end
for field, number in pairs(counted) do redis.call('HSET', counts, field, number) end
