local reply = {1}
if ARGV[1] == '1' then
    local rung = redis.pcall('XADD', KEYS[1], 'MAXLEN', 1, '*', 'r', '')
    if type(rung) == 'table' then reply[1] = 0 end
    redis.call('PEXPIRE', KEYS[1], TOPIC_MS)
end
for index = 2, #ARGV do
    local topic, messages, seen = KEYS[2 * index - 2], KEYS[2 * index - 1], ARGV[index]
    local last = redis.call('HGET', topic, 'last')
    if not last then
        last = first_number()
        -- Those that are left belong to other numbers. What is not a stream belongs to another program.
        if redis.call('XLEN', messages) > 0 then redis.call('UNLINK', messages) end
        -- Where Redis is full it cannot be written down; then the next look begins anew, and everybody notices.
        redis.pcall('HSET', topic, 'last', last, 'bytes', 0)
    end
    redis.call('PEXPIRE', topic, TOPIC_MS)
    local found = {last}
    if seen ~= '' and tonumber(seen) < tonumber(last) then
        for _, message in ipairs(redis.call('XRANGE', messages, '(' .. seen, '+', 'COUNT', 1000)) do
            found[#found + 1] = message
        end
    end
    reply[index] = found
end
return reply
