local now, name, value, ttl = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local if_absent, has_expected, expected = ARGV[5] == '1', ARGV[6] == '1', ARGV[7]
local present = live(name, now)
if (if_absent and present) or (has_expected and present ~= expected) then return {0, 0} end
if not store(name, value, present, now, ttl, tonumber(ARGV[8]), tonumber(ARGV[9])) then
    return {-1, 0, overdue(now)}
end
return {1, 0, overdue_if_many(now)}
