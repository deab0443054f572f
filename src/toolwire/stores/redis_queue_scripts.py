"""The operations of the queue in Redis. Each is one script, so that a record and its place change together.

A script declares every key that it uses, and reads no record but the one it is given. The scripts that find tasks
return their names; the client reads the records, which it can then declare, with the script READ.

The names of kinds, owners, processes and tasks are any bytes. Where several of them are joined, each but the last
stands behind its length.

{prefix}:queue-places   the place of each task: "h", its process and kind; or "r", its number, since when it can be
                        taken, whether it is in line, its kind and owner
{prefix}:queue-ends     the tasks whose record has a deadline, in its order
{prefix}:queue-ages     the ready tasks, by the moment from which on they can be taken
{prefix}:queue-delays   those of them that are not in line yet
{prefix}:queue-lines    "l": the tasks in line, by kind, owner and number; "t": the owners of a kind, by their turn
{prefix}:queue-turns    the turn of each kind ("k") and of each owner of a kind ("o") that has tasks in line
{prefix}:queue-held     the tasks that are held, by process
{prefix}:queue-counts   how many tasks of each kind are ready ("r") and held ("h"); "#" is the number given last
{prefix}:queue-leases   the processes that have a lease, by its end
{prefix}:queue-renewals how often each of them was renewed
{prefix}:queue-processes their names, in the order of the bytes
{prefix}:queue-gone     processes that had tasks when they lost their lease
{prefix}:queue-buried   processes that must not get a lease again, by the moment they lost it

A Redis that evicts keys, or a person who deletes them, may remove any one of these. No script fails or loops then:
a member of an index that the places do not confirm is removed where it is met, a lease is known by any of its three
keys, and MEND builds the indexes again from the places.
"""

from __future__ import annotations

from typing import Final

from toolwire.stores.queue import BURIED_SECONDS, MOST_BURIED, MOST_DUE, MOST_LEASES
from toolwire.stores.redis_scripts import CLOCK_PART, KV_KEYS, KV_PART, LIST_PART, STORE_PART, Script

_QUEUE_KEYS: Final = (
    *("queue-places", "queue-ends", "queue-ages", "queue-delays", "queue-lines", "queue-turns", "queue-held"),
    *("queue-counts", "queue-leases", "queue-renewals"),
)
#: The largest number of places that a single script counts.
_MOST_RECOUNTED: Final = 50_000

_LEASES: Final = """
local leases, renewals = prefix .. ':queue-leases', prefix .. ':queue-renewals'
local gone, buried = prefix .. ':queue-gone', prefix .. ':queue-buried'
local processes = prefix .. ':queue-processes'
local function has_lease(process)
    return redis.call('ZSCORE', leases, process) or redis.call('HEXISTS', renewals, process) == 1
end
-- A full Redis refuses only the first change of a script: after this one it refuses none.
local function insist() redis.call('ZREM', leases, '') end
"""

# The names of all members of a hash.
_FIELDS: Final = """
local function fields(hash)
    local found = {}
    for index, each in ipairs(redis.call('HGETALL', hash)) do
        if index % 2 == 1 then found[#found + 1] = each end
    end
    return found
end
"""

_PLACES: Final = """
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

-- Whether a task has a record: the scripts of the KV that remove one leave its place to those of the queue.
local function is_alive(name, now)
    local deadline = redis.call('ZSCORE', prefix .. ':kv-deadlines', name)
    if deadline and tonumber(deadline) <= now then return false end
    local is_known = redis.call('HEXISTS', prefix .. ':kv-sizes', name) == 1
        or redis.call('ZSCORE', prefix .. ':kv-names', name)
    return is_known, deadline
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
    while true do
        local over = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 1000)
        for _, name in ipairs(over) do
            local alive, deadline = is_alive(name, now)
            if not alive then
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
    local page = redis.call('ZRANGEBYLEX', held, from, '(' .. sized(process) .. '\\255', 'LIMIT', 0, limit)
    for index, member in ipairs(page) do page[index] = string.sub(member, 9 + #process) end
    return page
end
"""

_FINDING: Final = ("kv-deadlines", "kv-names", "kv-sizes", *_QUEUE_KEYS)

# Returns "written"; "other" and the record that is there; "lost"; "crowded"; "full" and names of values that are over.
CHANGE: Final = Script(
    KV_PART,
    STORE_PART,
    _LEASES,
    _PLACES,
    """
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
    if redis.call('ZCARD', ages) >= most_ready then return {'crowded'} end
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
""",
    keys=(*KV_KEYS, *_QUEUE_KEYS),
    repeatable=True,
)

# Returns the names of the tasks; nothing for a process without a lease.
TAKE: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    f"""
local now, process, most = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not has_lease(process) then return false end
local at = 4
local function list()
    local found, size = {{}}, tonumber(ARGV[at])
    for index = at + 1, at + size do found[#found + 1] = ARGV[index] end
    at = at + 1 + size
    return found
end
local function set(texts)
    local found = {{}}
    for _, text in ipairs(texts) do found[text] = true end
    return found
end
local kinds, passing_over = list(), set(list())

insist()
clean(now)
local found = {{}}

for _, member in ipairs(redis.call('ZRANGEBYSCORE', delays, '-inf', now, 'LIMIT', 0, {MOST_DUE})) do
    local name, place = is_ready(delays, member, 0)
    redis.call('ZREM', delays, member)
    if name then stand_in_line(name, place) end
end

local turn_of = {{}}
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
        if not member then
            -- A turn of an owner without tasks.
            redis.call('ZREM', lines, turn)
            redis.call('HDEL', turns, 'o' .. sized(kind) .. owner)
            if not first_in(lines, 't' .. sized(kind)) then redis.call('HDEL', turns, 'k' .. kind) end
        elseif name and is_alive(name, now) then
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
return found
""",
    keys=_FINDING,
)

# Returns how many tasks a process holds, and names of them that come after one.
HELD: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    """
local now, process, after, limit = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
clean(now)
local found = {redis.call('ZLEXCOUNT', held, '[' .. sized(process), '(' .. sized(process) .. '\\255')}
if after == '' then after = nil end
while #found <= limit do
    local page = held_by(process, after, limit + 1 - #found)
    if #page == 0 then break end
    after = page[#page]
    for _, name in ipairs(page) do
        if not is_alive(name, now) then
            unplace(name)
        elseif is_held(process, name) then
            found[#found + 1] = name
        end
    end
end
return found
""",
    keys=_FINDING,
    repeatable=True,
)

# Returns the records of tasks, in the order of their names; nothing for one that has none.
READ: Final = Script(
    KV_PART,
    """
local now, found = clock(ARGV[1]), {}
for index = 2, #ARGV do
    found[index - 1] = not is_over(ARGV[index], now) and redis.call('GET', value_of(ARGV[index]))
end
return found
""",
    keys=("kv-deadlines",),
    repeatable=True,
)

# Returns names and processes of tasks, in turns.
ORPHANS: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    """
local now, limit = clock(ARGV[1]), tonumber(ARGV[2])
clean(now)
local found = {}
for _, process in ipairs(redis.call('ZRANGE', gone, 0, -1)) do
    local after
    while #found < 2 * limit do
        local page = held_by(process, after, limit - #found / 2)
        if #page == 0 then
            if not after then redis.call('ZREM', gone, process) end
            break
        end
        after = page[#page]
        for _, name in ipairs(page) do
            if not is_alive(name, now) then
                unplace(name)
            elseif is_held(process, name) then
                found[#found + 1] = name
                found[#found + 1] = process
            end
        end
    end
end
return found
""",
    keys=(*_FINDING, "queue-gone"),
    repeatable=True,
)

# Returns names of tasks.
WAITING: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    """
local now, longer_than, limit = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
clean(now)
local found = {}
while #found < limit do
    local page = redis.call('ZRANGEBYSCORE', ages, '-inf', now - longer_than, 'LIMIT', #found, limit - #found)
    if #page == 0 then break end
    for _, member in ipairs(page) do
        local name = is_ready(ages, member, 0)
        if name and is_alive(name, now) then
            found[#found + 1] = name
        elseif name then
            unplace(name)
        end
    end
end
return found
""",
    keys=_FINDING,
    repeatable=True,
)

_SHOWN: Final = """
local function shown(name, now)
    local place = place_of(name)
    if not place then return false end
    if place.process then return {'held', place.process, place.kind} end
    return {'ready', place.kind, place.owner, string.format('%.17g', math.max(place.since - now, 0))}
end
"""

# Returns "held", process and kind; or "ready", kind, owner and the rest of its delay.
PLACE: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    _SHOWN,
    """
local now, name = clock(ARGV[1]), ARGV[2]
return is_alive(name, now) and shown(name, now)
""",
    keys=("kv-deadlines", "kv-names", "kv-sizes", "queue-places"),
    repeatable=True,
)

# Returns one text: for each name five texts, each behind its length. They are the name and what PLACE returns for it;
# those that are missing are empty. Reading a text takes a client much less time than reading as many replies.
ALL_PLACES: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    LIST_PART,
    _SHOWN,
    """
local now, found = clock(ARGV[1]), {}
for _, name in ipairs(listed()) do
    local place = shown(name, now) or {}
    found[#found + 1] = sized(name)
    for index = 1, 4 do found[#found + 1] = sized(place[index] or '') end
end
return table.concat(found)
""",
    keys=("kv-names", "kv-deadlines", "queue-places"),
    repeatable=True,
)

# Returns how many tasks are delayed, how many are orphans, how long the oldest waits, how many leases there are; and a
# letter with a kind, and a number, in turns.
COUNTS: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    """
local now = clock(ARGV[1])
clean(now)
local delayed = redis.call('ZCOUNT', ages, '(' .. string.format('%.17g', now), '+inf')
local orphans = 0
for _, process in ipairs(redis.call('ZRANGE', gone, 0, -1)) do
    orphans = orphans + redis.call('ZLEXCOUNT', held, '[' .. sized(process), '(' .. sized(process) .. '\\255')
end
local oldest = redis.call('ZRANGE', ages, 0, 0, 'WITHSCORES')[2]
local waited = oldest and math.max(now - tonumber(oldest), 0) or 0
local found = {delayed, orphans, string.format('%.17g', waited), redis.call('ZCARD', leases)}
for index, each in ipairs(redis.call('HGETALL', counts)) do found[4 + index] = each end
return found
""",
    keys=(*_FINDING, "queue-gone"),
    repeatable=True,
)

# --- Leases ---

# Returns 1, or 0 for a process that must not get a lease again.
RENEW: Final = Script(
    CLOCK_PART,
    _LEASES,
    """
local now, process, lease = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if redis.call('ZSCORE', buried, process) then return 0 end
insist()
redis.call('HINCRBY', renewals, process, 1)
redis.call('ZADD', leases, now + lease, process)
redis.call('ZADD', processes, 0, process)
return 1
""",
    keys=("queue-leases", "queue-renewals", "queue-processes", "queue-buried"),
    repeatable=True,
)

# Returns 1 when the process has no lease now. Without a number the lease ends in any case, and for good.
BURY: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    f"""
local now, process, renewal = clock(ARGV[1]), ARGV[2], ARGV[3]
if renewal ~= '' then
    if not has_lease(process) then return 1 end
    if (redis.call('HGET', renewals, process) or '0') ~= renewal then return 0 end
end
insist()
redis.call('ZREM', leases, process)
redis.call('HDEL', renewals, process)
redis.call('ZREM', processes, process)
redis.call('ZADD', buried, 'NX', now, process)
redis.call('ZREMRANGEBYSCORE', buried, '-inf', now - {BURIED_SECONDS * 1000:.0f})
redis.call('ZREMRANGEBYRANK', buried, 0, -{MOST_BURIED + 1})
if #held_by(process, nil, 1) > 0 then redis.call('ZADD', gone, 0, process) end
return 1
""",
    keys=("queue-leases", "queue-renewals", "queue-processes", "queue-buried", "queue-gone", "queue-held"),
    repeatable=True,
)

# Both return processes and the numbers of their last renewals, in turns. A number that is missing is 0.
# A lease of which one key was lost gets it back; without its end it counts as not renewed from now on.
STALE: Final = Script(
    CLOCK_PART,
    _FIELDS,
    _LEASES,
    f"""
local now, found = clock(ARGV[1]), {{}}
local ended, counted, named = redis.call('ZCARD', leases), redis.call('HLEN', renewals), redis.call('ZCARD', processes)
if ended ~= counted or counted ~= named then
    local known = {{}}
    for _, set in ipairs({{leases, processes}}) do
        for _, process in ipairs(redis.call('ZRANGE', set, 0, -1)) do known[process] = true end
    end
    for _, process in ipairs(fields(renewals)) do known[process] = true end
    insist()
    for process in pairs(known) do
        if not redis.call('ZSCORE', leases, process) then redis.call('ZADD', leases, now, process) end
        redis.call('HSETNX', renewals, process, 0)
        redis.call('ZADD', processes, 0, process)
    end
end
for _, process in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, {MOST_LEASES})) do
    found[#found + 1] = process
    found[#found + 1] = redis.call('HGET', renewals, process) or '0'
end
return found
""",
    keys=("queue-leases", "queue-renewals", "queue-processes"),
    repeatable=True,
)
ALL_LEASES: Final = Script(
    CLOCK_PART,
    _LEASES,
    f"""
local start, found = ARGV[1], {{}}
local page = redis.call('ZRANGEBYLEX', processes, '[' .. start, '(' .. start .. '\\255', 'LIMIT', 0, {MOST_LEASES})
for _, process in ipairs(page) do
    found[#found + 1] = process
    found[#found + 1] = redis.call('HGET', renewals, process) or '0'
end
return found
""",
    keys=("queue-processes", "queue-renewals"),
    repeatable=True,
)

# --- Repair ---

# Returns 1 where the indexes do not fit to each other, because a key was lost. Processes that hold tasks and have no
# lease are noted as gone.
GAPS: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    """
local first = redis.call('ZRANGE', held, 0, 0)[1]
while first do
    local process = string.sub(first, 9, 8 + tonumber(string.sub(first, 1, 8), 16))
    if not has_lease(process) and not redis.call('ZSCORE', gone, process) then
        insist()
        redis.call('ZADD', gone, 0, process)
    end
    first = redis.call('ZRANGEBYLEX', held, '(' .. sized(process) .. '\\255', '+', 'LIMIT', 0, 1)[1]
end
local ready, holding = redis.call('ZCARD', ages), redis.call('ZCARD', held)
local waiting, owners = redis.call('ZLEXCOUNT', lines, '[l', '(m'), redis.call('ZLEXCOUNT', lines, '[t', '(u')
local counted, letter = {r = 0, h = 0}
for index, each in ipairs(redis.call('HGETALL', counts)) do
    if index % 2 == 1 then
        letter = string.sub(each, 1, 1)
    elseif counted[letter] then
        counted[letter] = counted[letter] + tonumber(each)
    end
end
local is_whole = redis.call('HLEN', places) == ready + holding
    and waiting + redis.call('ZCARD', delays) == ready
    and (waiting == 0) == (owners == 0)
    and (owners == 0 or redis.call('HLEN', turns) > owners)
    and counted.r == ready and counted.h == holding
    and redis.call('ZCARD', prefix .. ':kv-names') == redis.call('HLEN', prefix .. ':kv-sizes')
return is_whole and 0 or 1
""",
    keys=(*_FINDING, "queue-gone"),
    repeatable=True,
)

# Adds names of values that only the sizes have.
MEND_NAMES: Final = Script(
    CLOCK_PART,
    _FIELDS,
    """
local names, sizes = prefix .. ':kv-names', prefix .. ':kv-sizes'
if redis.call('ZCARD', names) >= redis.call('HLEN', sizes) then return end
redis.call('ZREM', names, '')
for _, name in ipairs(fields(sizes)) do redis.call('ZADD', names, 0, name) end
""",
    keys=("kv-names", "kv-sizes"),
    repeatable=True,
)

# Builds the indexes again for some values, and removes what is known of a value that was lost.
MEND: Final = Script(
    KV_PART,
    _LEASES,
    _PLACES,
    """
local now = clock(ARGV[1])
insist()
for index = 2, #ARGV do
    local name = ARGV[index]
    local place = place_of(name)
    if redis.call('EXISTS', value_of(name)) == 0 then
        forget(name)
        unplace(name, place)
    elseif redis.call('HEXISTS', sizes, name) == 0 then
        redis.call('HSET', sizes, name, #name + #redis.call('GET', value_of(name)))
    end
    if place and redis.call('EXISTS', value_of(name)) == 1 then
        if place.process then
            redis.call('ZADD', held, 0, sized(place.process) .. name)
            if not has_lease(place.process) then redis.call('ZADD', gone, 0, place.process) end
        else
            redis.call('ZADD', ages, place.since, digits(place.number) .. name)
            if place.in_line then
                stand_in_line(name, place)
            else
                redis.call('ZADD', delays, place.since, digits(place.number) .. name)
            end
        end
        local deadline = redis.call('ZSCORE', deadlines, name)
        if deadline then redis.call('ZADD', ends, deadline, name) end
    end
end
""",
    keys=(*KV_KEYS, *_QUEUE_KEYS, "queue-gone"),
    repeatable=True,
)

# Removes members of indexes that the places do not confirm, and counts all places again, unless they are very many.
RECOUNT: Final = Script(
    CLOCK_PART,
    _FIELDS,
    _LEASES,
    _PLACES,
    f"""
if redis.call('HLEN', places) > {_MOST_RECOUNTED} or redis.call('ZCARD', ages) > {2 * _MOST_RECOUNTED} then return end
insist()
for _, member in ipairs(redis.call('ZRANGE', held, 0, -1)) do
    local size = tonumber(string.sub(member, 1, 8), 16)
    is_held(string.sub(member, 9, 8 + size), string.sub(member, 9 + size))
end
for _, member in ipairs(redis.call('ZRANGE', ages, 0, -1)) do is_ready(ages, member, 0) end
for _, member in ipairs(redis.call('ZRANGE', delays, 0, -1)) do
    local _, place = is_ready(delays, member, 0)
    if place and place.in_line then redis.call('ZREM', delays, member) end
end
for _, member in ipairs(redis.call('ZRANGE', lines, 0, -1)) do
    local kind_size = tonumber(string.sub(member, 2, 9), 16)
    local kind = string.sub(member, 10, 9 + kind_size)
    if string.sub(member, 1, 1) == 'l' then
        local at = 10 + kind_size
        is_ready(lines, member, at + 7 + tonumber(string.sub(member, at, at + 7), 16))
    else
        local turn, owner = string.sub(member, 10 + kind_size, 25 + kind_size), string.sub(member, 26 + kind_size)
        local known = redis.call('HGET', turns, 'o' .. sized(kind) .. owner)
        if not known or digits(known) ~= turn then redis.call('ZREM', lines, member) end
    end
end
local counted = {{}}
for _, name in ipairs(fields(places)) do
    local place = place_of(name)
    local field = (place.process and 'h' or 'r') .. place.kind
    counted[field] = (counted[field] or 0) + 1
end
for _, field in ipairs(fields(counts)) do
    if field ~= '#' then redis.call('HDEL', counts, field) end
end
for field, number in pairs(counted) do redis.call('HSET', counts, field, number) end
""",
    keys=_FINDING,
    repeatable=True,
)

QUEUE_SCRIPTS: Final = (
    *(CHANGE, TAKE, HELD, READ, ORPHANS, WAITING, PLACE, ALL_PLACES, COUNTS),
    *(RENEW, BURY, STALE, ALL_LEASES),
    *(GAPS, MEND_NAMES, MEND, RECOUNT),
)
