local now, name, amount, ttl = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local present = live(name, now)
if present and not string.match(present, '^-?%d+$') then return {-2, 0} end
local sum = whole(tonumber(present or '0') + amount)
if present then ttl = nil end
if not store(name, sum, present, now, ttl, tonumber(ARGV[5]), tonumber(ARGV[6])) then
    return {-1, 0, overdue(now)}
end
return {1, tonumber(sum), overdue_if_many(now)}
