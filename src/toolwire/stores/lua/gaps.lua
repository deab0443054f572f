local first = redis.call('ZRANGE', held, 0, 0)[1]
while first do
    local process = string.sub(first, 9, 8 + tonumber(string.sub(first, 1, 8), 16))
    if not has_lease(process) and not redis.call('ZSCORE', gone, process) then
        insist()
        redis.call('ZADD', gone, 0, process)
    end
    first = redis.call('ZRANGEBYLEX', held, '(' .. sized(process) .. '\255', '+', 'LIMIT', 0, 1)[1]
end
local ready, holding = redis.call('ZCARD', ages), redis.call('ZCARD', held)
local waiting, owners = redis.call('ZLEXCOUNT', lines, '[l', '(m'), redis.call('ZLEXCOUNT', lines, '[t', '(u')
local counted, letter = {r = 0, h = 0}
for index, each in ipairs(redis.call('HGETALL', counts)) do
    if index % 2 == 1 then
        letter = string.sub(each, 1, 1)
    elseif counted[letter] then
        counted[letter] = counted[letter] + tonumber(each)
    end
end
local is_whole = redis.call('HLEN', places) == ready + holding
    and waiting + redis.call('ZCARD', delays) == ready
    and (waiting == 0) == (owners == 0)
    and (owners == 0 or redis.call('HLEN', turns) > owners)
    and counted.r == ready and counted.h == holding
    and redis.call('ZCARD', all_names) == redis.call('HLEN', all_sizes)
    and are_named()
    -- What was lost as a whole looks whole, but for the marks that RECOUNT leaves.
    and redis.call('HEXISTS', counts, '!') + is_marked(all_names) + is_marked(all_sizes) == 3
return is_whole and 0 or 1
