-- Whether the names are those of all values. A lost key lacks all that was written before, so the oldest ones tell it.
local function are_named()
    local names, sizes, deadlines = prefix .. ':kv-names', prefix .. ':kv-sizes', prefix .. ':kv-deadlines'
    local count = redis.call('ZCARD', names)
    if count < math.max(redis.call('HLEN', sizes), redis.call('ZCARD', deadlines), redis.call('HLEN', places)) then
        return false
    end
    local next_over, oldest = redis.call('ZRANGE', deadlines, 0, 0)[1], redis.call('ZRANGE', ages, 0, 0)[1]
    return not (next_over and not redis.call('ZSCORE', names, next_over))
        and not (oldest and not redis.call('ZSCORE', names, string.sub(oldest, 17)))
end
