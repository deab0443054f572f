local topic, messages, data, now = KEYS[1], KEYS[2], ARGV[1], clock('')
local last, size = unpack(redis.call('HMGET', topic, 'last', 'bytes'))
if not last then return 0 end
local number, size = tonumber(last) + 1, tonumber(size or 0) + #data
redis.call('XADD', messages, whole(number) .. '-0', 'd', data, 's', whole(now))
local count = redis.call('XLEN', messages)
local is_enough = false
while not is_enough do
    is_enough = true
    for _, message in ipairs(redis.call('XRANGE', messages, '-', '+', 'COUNT', 20)) do
        local fields = message[2]
        is_enough = count <= BUS_MESSAGES and size <= BUS_BYTES and (tonumber(fields[4]) or 0) > now - BUS_MS
        if is_enough then break end
        redis.call('XDEL', messages, message[1])
        count, size = count - 1, size - #fields[2]
    end
end
redis.call('HSET', topic, 'last', whole(number), 'bytes', size)
redis.call('PEXPIRE', messages, BUS_EXPIRE_MS)
return number
