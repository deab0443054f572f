local now, name, amount, ttl, most = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local present = live(name, now)
if present and not string.match(present, '^-?%d+$') then return {-2, 0} end
local number = tonumber(present or '0')
if math.max(math.abs(number), math.abs(number + amount)) > most then return {-2, 0} end
local sum = whole(number + amount)
if present then ttl = nil end
if not store(name, sum, present, now, ttl, tonumber(ARGV[6]), tonumber(ARGV[7])) then
    return {-1, 0, overdue(now)}
end
return {1, tonumber(sum), overdue_if_many(now)}
