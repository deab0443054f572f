local start, found = ARGV[1], {}
local page = redis.call('ZRANGEBYLEX', processes, '[' .. start, '(' .. start .. '\255', 'LIMIT', 0, MOST_LEASES)
for _, process in ipairs(page) do
    found[#found + 1] = process
    found[#found + 1] = redis.call('HGET', renewals, process) or '0'
end
return found
