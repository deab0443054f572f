local now, process, most = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not has_lease(process) then return false end
local at = 4
local function list()
    local found, size = {}, tonumber(ARGV[at])
    for index = at + 1, at + size do found[#found + 1] = ARGV[index] end
    at = at + 1 + size
    return found
end
local function set(texts)
    local found = {}
    for _, text in ipairs(texts) do found[text] = true end
    return found
end
local kinds, passing_over = list(), set(list())

insist()
clean(now)
local found = {}

for _, member in ipairs(redis.call('ZRANGEBYSCORE', delays, '-inf', now, 'LIMIT', 0, MOST_DUE)) do
    local name, place = is_ready(delays, member, 0)
    redis.call('ZREM', delays, member)
    if name then stand_in_line(name, place) end
end

local turn_of = {}
for _, kind in ipairs(kinds) do turn_of[kind] = tonumber(redis.call('HGET', turns, 'k' .. kind) or nil) end
local function next_kind()
    local best
    for kind, turn in pairs(turn_of) do
        if not best or turn < turn_of[best] then best = kind end
    end
    return best
end
local function next_owner(kind)
    local start = 't' .. sized(kind)
    local from = '[' .. start
    while true do
        local page = redis.call('ZRANGEBYLEX', lines, from, '(' .. start .. ':', 'LIMIT', 0, 100)
        for _, member in ipairs(page) do
            local owner = string.sub(member, #start + 17)
            if not passing_over[owner] then return owner, member end
        end
        if #page < 100 then return nil end
        from = '(' .. page[100]
    end
end
while #found < most do
    local kind = next_kind()
    if not kind then break end
    local owner, turn = next_owner(kind)
    if owner then
        local line = 'l' .. sized(kind) .. sized(owner)
        local member = first_in(lines, line)
        local name = member and is_ready(lines, member, #line)
        local alive = false
        if name then alive = is_alive(name, now) end
        if not member then
            -- A turn of an owner without tasks.
            redis.call('ZREM', lines, turn)
            redis.call('HDEL', turns, 'o' .. sized(kind) .. owner)
            if not first_in(lines, 't' .. sized(kind)) then redis.call('HDEL', turns, 'k' .. kind) end
        elseif alive == nil then
            for _, each in ipairs(redis.call('ZRANGEBYLEX', lines, '(' .. member, '(' .. line .. ':', 'LIMIT', 0, 100)) do
                is_alive(string.sub(each, #line + 17), now)
            end
            break
        elseif alive then
            redis.call('ZREM', lines, turn)
            turn_of[kind] = take_turn(kind, owner)
            local deadline = redis.call('ZSCORE', ends, name)
            unplace(name)
            hold(name, process, kind)
            if deadline then redis.call('ZADD', ends, deadline, name) end
            found[#found + 1] = name
        elseif name then
            unplace(name)
        end
        if redis.call('HEXISTS', turns, 'k' .. kind) == 0 then turn_of[kind] = nil end
    else
        turn_of[kind] = nil
    end
end
return {found, doubts}
