-- Put a value in the place of one that lives, or of none; false where there is no room. Without a ttl the deadline
-- stays; an empty one is none.
local function store(name, value, present, now, ttl, max_items, max_bytes)
    local grown = present and #value - #present or #name + #value
    -- What shrinks or only replaces is never refused.
    local count = not present and redis.call('HLEN', sizes)
    if count and count >= max_items and count - is_marked(sizes) >= max_items then return false end
    local known, total = redis.call('GET', bytes), 0
    if known then
        total = tonumber(known)
    else
        for index, size in ipairs(redis.call('HGETALL', sizes)) do
            if index % 2 == 0 then total = total + tonumber(size) end
        end
    end
    if grown > 0 and total + grown > max_bytes then return false end
    -- Nor is it by a full Redis, after a change that needs no room.
    if present and grown <= 0 then redis.call('HDEL', sizes, name) end
    if not ttl then
        redis.call('SET', value_of(name), value, 'KEEPTTL')
    elseif ttl == '' then
        redis.call('SET', value_of(name), value)
    else
        redis.call('SET', value_of(name), value, 'PX', kept(ttl))
    end
    if redis.call('HSET', sizes, name, #name + #value) == 1 then redis.call('ZADD', names, 0, name) end
    if not known then
        redis.call('SET', bytes, whole(total + grown))
    elseif grown ~= 0 then
        redis.call('INCRBY', bytes, grown)
    end
    if ttl then note_deadline(name, now, ttl) end
    return true
end
