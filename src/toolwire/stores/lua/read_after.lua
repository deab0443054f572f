local name, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local floor, last = state_of(name)
if after ~= '' and not (floor and floor <= tonumber(after) and tonumber(after) <= last) then return false end
if not floor or limit <= 0 then return {} end
local found = {}
local from = after == '' and '-' or '(' .. after
for _, event in ipairs(redis.call('XRANGE', events_of(name), from, '+', 'COUNT', limit)) do
    found[#found + 1] = whole(number_of(event[1]))
    found[#found + 1] = event[2][2]
end
return found
