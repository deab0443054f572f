local prefix = string.match(KEYS[1], '^{[^}]*}')
local function clock(given)
    if given ~= '' then return tonumber(given) end
    local now = redis.call('TIME')
    return tonumber(now[1]) * 1000 + tonumber(now[2]) / 1000
end
local function whole(number) return string.format('%.0f', number) end
-- Numbers begin at the time of day in microseconds: one from before all was lost is not taken for one of ours.
local function first_number() return whole(clock('') * 1000) end
