local function too_much(max_streams, max_total)
    local count, size = redis.call('ZCARD', streams), tonumber(redis.call('GET', total) or 0)
    if count <= max_streams and size <= max_total then return end
    return unpack(redis.call('ZRANGE', streams, 0, 9))
end
