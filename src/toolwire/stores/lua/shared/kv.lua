local names, deadlines = prefix .. ':kv-names', prefix .. ':kv-deadlines'
local sizes, bytes = prefix .. ':kv-sizes', prefix .. ':kv-bytes'
local function value_of(name) return prefix .. ':kv:' .. name end
local function is_over(name, now)
    local deadline = redis.call('ZSCORE', deadlines, name)
    return deadline and tonumber(deadline) <= now
end
local function forget(name)
    local size = redis.call('HGET', sizes, name)
    redis.call('UNLINK', value_of(name))
    redis.call('ZREM', names, name)
    redis.call('ZREM', deadlines, name)
    redis.call('HDEL', sizes, name)
    -- A sum that was lost is added up again by the next value.
    if size and redis.call('EXISTS', bytes) == 1 then redis.call('DECRBY', bytes, size) end
end
-- Names of values that are over, for the script that removes them.
local function overdue(now)
    return unpack(redis.call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, 100))
end
local function overdue_if_many(now)
    if redis.call('ZCOUNT', deadlines, '-inf', now) >= SWEEP_FROM then return overdue(now) end
end
local function live(name, now)
    local value = not is_over(name, now) and redis.call('GET', value_of(name))
    if not value and redis.call('HEXISTS', sizes, name) == 1 then forget(name) end
    return value
end
local function kept(ttl) return whole(math.min(math.max(tonumber(ttl), 0), 1e14) + SLACK_MS) end
local function note_deadline(name, now, ttl)
    if ttl == '' then
        redis.call('ZREM', deadlines, name)
    else
        redis.call('ZADD', deadlines, now + tonumber(ttl), name)
    end
end
