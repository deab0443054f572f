local places, ends = prefix .. ':queue-places', prefix .. ':queue-ends'
local ages, delays = prefix .. ':queue-ages', prefix .. ':queue-delays'
local lines, turns = prefix .. ':queue-lines', prefix .. ':queue-turns'
local held, counts = prefix .. ':queue-held', prefix .. ':queue-counts'
local function sized(text) return string.format('%08x', #text) .. text end
local function digits(number) return string.format('%016.0f', number) end
local function next_number()
    local number = redis.call('HINCRBY', counts, '#', 1)
    if number > 1 then return number end
    -- Numbers from before the counts were lost are lower than the time of day.
    local first = first_number()
    redis.call('HSET', counts, '#', first)
    return tonumber(first)
end
local function count(field, amount)
    if redis.call('HINCRBY', counts, field, amount) <= 0 then redis.call('HDEL', counts, field) end
end
-- The first member that begins with a text and goes on with digits.
local function first_in(set, start)
    return redis.call('ZRANGEBYLEX', set, '[' .. start, '(' .. start .. ':', 'LIMIT', 0, 1)[1]
end

local function place_of(name)
    local text = redis.call('HGET', places, name)
    if not text then return nil end
    local size, rest = string.match(text, '^h (%d+) (.*)$')
    if size then return {process = string.sub(rest, 1, size), kind = string.sub(rest, size + 1)} end
    local number, since, in_line
    number, since, in_line, size, rest = string.match(text, '^r (%d+) (%S+) (%d) (%d+) (.*)$')
    return {
        number = tonumber(number), since = tonumber(since), in_line = in_line == '1',
        kind = string.sub(rest, 1, size), owner = string.sub(rest, size + 1),
    }
end
local function write_place(name, place)
    local text
    if place.process then
        text = string.format('h %d ', #place.process) .. place.process .. place.kind
    else
        text = string.format('r %.0f %.17g %d %d ', place.number, place.since, place.in_line and 1 or 0, #place.kind)
            .. place.kind .. place.owner
    end
    redis.call('HSET', places, name, text)
end

-- The owner and the kind stand at the end of the line from now on.
local function take_turn(kind, owner)
    local turn = next_number()
    local field = 'o' .. sized(kind) .. owner
    local before = redis.call('HGET', turns, field)
    if before then redis.call('ZREM', lines, 't' .. sized(kind) .. digits(before) .. owner) end
    redis.call('ZADD', lines, 0, 't' .. sized(kind) .. digits(turn) .. owner)
    redis.call('HSET', turns, field, digits(turn), 'k' .. kind, digits(turn))
    return turn
end
local function stand_in_line(name, place)
    local field = 'o' .. sized(place.kind) .. place.owner
    redis.call('ZADD', lines, 0, 'l' .. sized(place.kind) .. sized(place.owner) .. digits(place.number) .. name)
    local turn = redis.call('HGET', turns, field)
    if not turn then
        turn = digits(next_number())
        redis.call('HSET', turns, field, turn)
    end
    redis.call('ZADD', lines, 0, 't' .. sized(place.kind) .. turn .. place.owner)
    redis.call('HSETNX', turns, 'k' .. place.kind, turn)
    place.in_line = true
    write_place(name, place)
end
local function leave_line(name, place)
    local line = 'l' .. sized(place.kind) .. sized(place.owner)
    redis.call('ZREM', lines, line .. digits(place.number) .. name)
    if first_in(lines, line) then return end
    local field = 'o' .. sized(place.kind) .. place.owner
    local turn = redis.call('HGET', turns, field)
    if turn then redis.call('ZREM', lines, 't' .. sized(place.kind) .. digits(turn) .. place.owner) end
    redis.call('HDEL', turns, field)
    if not first_in(lines, 't' .. sized(place.kind)) then redis.call('HDEL', turns, 'k' .. place.kind) end
end

-- Take a task out of its place, which is looked up where it is not given.
local function unplace(name, place)
    place = place or place_of(name)
    redis.call('HDEL', places, name)
    redis.call('ZREM', ends, name)
    if not place then return nil end
    if place.process then
        redis.call('ZREM', held, sized(place.process) .. name)
        count('h' .. place.kind, -1)
        return place
    end
    redis.call('ZREM', ages, digits(place.number) .. name)
    if place.in_line then leave_line(name, place) else redis.call('ZREM', delays, digits(place.number) .. name) end
    count('r' .. place.kind, -1)
    return place
end
local function hold(name, process, kind)
    write_place(name, {process = process, kind = kind})
    redis.call('ZADD', held, 0, sized(process) .. name)
    count('h' .. kind, 1)
end
local function make_ready(name, kind, owner, now, delay)
    local place = {number = next_number(), since = now + delay, in_line = false, kind = kind, owner = owner}
    redis.call('ZADD', ages, place.since, digits(place.number) .. name)
    count('r' .. kind, 1)
    if delay > 0 then
        write_place(name, place)
        redis.call('ZADD', delays, place.since, digits(place.number) .. name)
    else
        stand_in_line(name, place)
    end
end

-- Tasks that no index of the KV knows. The record was removed, or those keys were lost: the client declares the
-- records to MEND, which looks at them, and then asks again.
local doubts = {}
-- Whether a task has a record: the scripts of the KV that remove one leave its place to those of the queue.
-- nil for one in doubt.
local function is_alive(name, now)
    local deadline = redis.call('ZSCORE', prefix .. ':kv-deadlines', name)
    if deadline then return tonumber(deadline) > now, deadline end
    if redis.call('HEXISTS', prefix .. ':kv-sizes', name) == 1 then return true end
    if redis.call('ZSCORE', prefix .. ':kv-names', name) then return true end
    if #doubts < MOST_DOUBTS then doubts[#doubts + 1] = name end
    return nil
end
-- Whether the member of an index, a number and a name, is the place of a ready task. One that is not is removed.
local function is_ready(set, member, start)
    local name = string.sub(member, start + 17)
    local place = place_of(name)
    if place and place.number and digits(place.number) == string.sub(member, start + 1, start + 16) then
        return name, place
    end
    redis.call('ZREM', set, member)
    return nil
end
-- Whether a process holds a task. A member of the index that says so falsely is removed.
local function is_held(process, name)
    local place = place_of(name)
    if place and place.process == process then return true end
    redis.call('ZREM', held, sized(process) .. name)
    return false
end
-- Let every ready or held task go whose record has expired.
local function clean(now)
    local left = 0
    while true do
        local over = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', left, 1000)
        for _, name in ipairs(over) do
            local alive, deadline = is_alive(name, now)
            if alive == nil then
                left = left + 1
            elseif not alive then
                unplace(name)
            elseif deadline then
                redis.call('ZADD', ends, deadline, name)
            else
                redis.call('ZREM', ends, name)
            end
        end
        if #over < 1000 then return end
    end
end
-- The names of tasks that a process holds, from one of them on.
local function held_by(process, after, limit)
    local from = after and '(' .. sized(process) .. after or '[' .. sized(process)
    -- A name that begins with 0xff is not text.
    local page = redis.call('ZRANGEBYLEX', held, from, '(' .. sized(process) .. '\255', 'LIMIT', 0, limit)
    for index, member in ipairs(page) do page[index] = string.sub(member, 9 + #process) end
    return page
end
