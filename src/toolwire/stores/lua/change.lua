local now, name, value, ttl = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local has_expected, expected = ARGV[5] == '1', ARGV[6]
local wanted, kind, owner, delay = ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])
local holder, orphan_of, most_ready = ARGV[11], ARGV[12], tonumber(ARGV[13])

local present = live(name, now)
local place = place_of(name)
if place and not present then
    unplace(name)
    place = nil
end
if not present and has_expected then return {'other', ''} end

local is_same
if wanted == 'held' then
    is_same = place and place.process == owner and (kind == '' or kind == place.kind)
elseif wanted == 'ready' then
    is_same = place and place.number and place.kind == kind and place.owner == owner
else
    is_same = not place
end
if present == value and (is_same or not has_expected or value ~= expected) then return {'written'} end

local holding = place and place.process
if holder ~= '' and not (holding == holder and has_lease(holder)) then return {'lost'} end
if orphan_of ~= '' and not (holding == orphan_of and not has_lease(orphan_of)) then return {'lost'} end
if present and (not has_expected or present ~= expected) then return {'other', present} end
if wanted == 'held' and not has_lease(owner) then return {'lost'} end
if wanted == 'ready' and most_ready and not (place and place.number) then
    if redis.call('ZCARD', ages) >= most_ready then clean(now) end
    if redis.call('ZCARD', ages) >= most_ready then return {'crowded', unpack(doubts)} end
end

if not store(name, value, present, now, ttl, tonumber(ARGV[14]), tonumber(ARGV[15])) then
    return {'full', overdue(now)}
end
if not is_same then
    if place then unplace(name, place) end
    if wanted == 'held' then
        hold(name, owner, kind ~= '' and kind or place and place.kind or '')
    elseif wanted == 'ready' then
        make_ready(name, kind, owner, now, delay)
    end
end
if wanted ~= '' then
    if ttl == '' then redis.call('ZREM', ends, name) else redis.call('ZADD', ends, now + tonumber(ttl), name) end
end
return {'written'}
