local now = clock(ARGV[1])
clean(now)
local delayed = redis.call('ZCOUNT', ages, '(' .. string.format('%.17g', now), '+inf')
local orphans = 0
for _, process in ipairs(redis.call('ZRANGE', gone, 0, -1)) do
    orphans = orphans + redis.call('ZLEXCOUNT', held, '[' .. sized(process), '(' .. sized(process) .. '\255')
end
local oldest = redis.call('ZRANGE', ages, 0, 0, 'WITHSCORES')[2]
local waited = oldest and math.max(now - tonumber(oldest), 0) or 0
local found = {delayed, orphans, string.format('%.17g', waited), redis.call('ZCARD', leases)}
for index, each in ipairs(redis.call('HGETALL', counts)) do found[4 + index] = each end
return {found, doubts}
