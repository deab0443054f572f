local streams, states = prefix .. ':log-streams', prefix .. ':log-state'
local total, position = prefix .. ':log-bytes', prefix .. ':log-position'
local function events_of(name) return prefix .. ':log:' .. name end
local function forget(name)
    local known = redis.call('HGET', states, name)
    local size = known and string.match(known, ' (%d+)$')
    redis.call('UNLINK', events_of(name))
    redis.call('ZREM', streams, name)
    redis.call('HDEL', states, name)
    -- A sum that was lost is added up again by the next event.
    if size and redis.call('EXISTS', total) == 1 then redis.call('DECRBY', total, size) end
    return known
end
local function state_of(name)
    local known = redis.call('HGET', states, name)
    if not known or redis.call('EXISTS', events_of(name)) == 0 then return nil end
    local floor, last, size = string.match(known, '^(%d+) (%d+) (%d+)$')
    return tonumber(floor), tonumber(last), tonumber(size)
end
local function number_of(id) return tonumber(string.match(id, '^%d+')) end
