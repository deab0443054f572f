local name, data, given = ARGV[1], ARGV[2], ARGV[3]
local max_events, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local max_streams, max_total = tonumber(ARGV[6]), tonumber(ARGV[7])
local events = events_of(name)
if given ~= '' then redis.call('SET', position, given, 'NX') end
local before = tonumber(redis.call('GET', position) or first_number())
local place = before + 1
local floor, _, size = state_of(name)
if not floor then
    if redis.call('HEXISTS', states, name) == 1 then
        forget(name)
    elseif redis.call('EXISTS', events) == 1 then
        redis.call('XTRIM', events, 'MAXLEN', 0)
    end
    floor, size = before, 0
end
local known, kept_bytes = redis.call('GET', total), 0
if not known then
    -- The sum was lost, or there is no event yet.
    for index, state in ipairs(redis.call('HGETALL', states)) do
        if index % 2 == 0 then kept_bytes = kept_bytes + tonumber(string.match(state, ' (%d+)$') or 0) end
    end
end
redis.call('XADD', events, whole(place) .. '-0', 'd', data)
redis.call('SET', position, whole(place))
redis.call('PEXPIRE', events, LOG_MS)
redis.call('ZADD', streams, place, name)
redis.call('INCRBY', total, #data + kept_bytes)
size = size + #data
local count = redis.call('XLEN', events)
while count > max_events or size > max_bytes do
    for _, event in ipairs(redis.call('XRANGE', events, '-', '+', 'COUNT', 64)) do
        if count <= max_events and size <= max_bytes then break end
        floor, count, size = number_of(event[1]), count - 1, size - #event[2][2]
        redis.call('DECRBY', total, #event[2][2])
        redis.call('XDEL', events, event[1])
    end
end
redis.call('HSET', states, name, whole(floor) .. ' ' .. whole(place) .. ' ' .. whole(size))
return {whole(place), too_much(max_streams, max_total)}
