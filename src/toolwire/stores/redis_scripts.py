"""The operations of the stores in Redis. Each is one script, so that it is atomic.

All keys begin with the prefix in braces, which puts them into one slot of a cluster. The clock is that of Redis, the
only one that all machines share; tests give a clock of their own, in milliseconds. A full Redis refuses a script only
if its first change needs room, so a script that may be refused begins with such a change.

{prefix}:kv:<name>    a value, which Redis itself removes a while after its time
{prefix}:kv-names     the names in the order of their bytes
{prefix}:kv-deadlines the names that have a deadline, in its order
{prefix}:kv-sizes     how many bytes each name stands for; {prefix}:kv-bytes is their sum
{prefix}:log:<name>   the events of a stream, under their positions
{prefix}:log-streams  the streams in the order in which they were last appended to
{prefix}:log-state    floor, last position and bytes of each stream; {prefix}:log-bytes is the sum of those
{prefix}:log-position the last position that was given
{prefix}:bus          the messages of the last minute, numbered without a gap; {prefix}:bus-bytes is their size
{prefix}:bus-last     the number of the last message
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final


class Script:
    """A script of Redis.

    `keys` are the keys of every call, without the prefix: the first ones of KEYS. The keys that a call adds follow. A
    `repeatable` script does no harm when it runs twice.
    """

    __slots__ = ("_keys", "repeatable", "sha", "text")

    def __init__(self, *parts: str, keys: Sequence[str] = (), repeatable: bool = False) -> None:
        self.text: str = "\n".join(parts)
        self.sha: str = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self.repeatable: bool = repeatable
        self._keys = tuple(key.encode() for key in keys)

    def by_name(self, prefix: bytes, arguments: Iterable[Any], keys: Sequence[bytes] = ()) -> tuple[Any, ...]:
        return ("EVALSHA", self.sha, *self._declared(prefix, keys), *arguments)

    def in_full(self, prefix: bytes, arguments: Iterable[Any], keys: Sequence[bytes] = ()) -> tuple[Any, ...]:
        return ("EVAL", self.text, *self._declared(prefix, keys), *arguments)

    def _declared(self, prefix: bytes, keys: Sequence[bytes]) -> list[Any]:
        # Without a key, the prefix alone leads a cluster to its slot.
        every = (*self._keys, *keys) or (b"",)
        return [len(every), *(b"%b:%b" % (prefix, key) for key in every)]


#: How long a value stays in Redis after its time, so that the next script finds it and corrects the sums.
_SLACK_MS: Final = 60_000
#: A stream without an append for this long is deleted.
_LOG_MS: Final = 24 * 3600 * 1000
#: How long messages of the bus are kept for processes that are behind, and how many.
_BUS_MS: Final = 60_000
_BUS_MESSAGES: Final = 10_000
_BUS_BYTES: Final = 64 * 1024 * 1024

_CLOCK: Final = """
local prefix = string.match(KEYS[1], '^{[^}]*}')
local function clock(given)
    if given ~= '' then return tonumber(given) end
    local now = redis.call('TIME')
    return tonumber(now[1]) * 1000 + tonumber(now[2]) / 1000
end
local function whole(number) return string.format('%.0f', number) end
-- Numbers begin at the time of day in microseconds: one from before all was lost is not taken for one of ours.
local function last_number(key)
    return tonumber(redis.call('GET', key) or whole(clock('') * 1000))
end
"""

# --- KV ---

_KV: Final = (
    _CLOCK
    + f"""
local names, deadlines = prefix .. ':kv-names', prefix .. ':kv-deadlines'
local sizes, bytes = prefix .. ':kv-sizes', prefix .. ':kv-bytes'
local function value_of(name) return prefix .. ':kv:' .. name end
local function is_over(name, now)
    local deadline = redis.call('ZSCORE', deadlines, name)
    return deadline and tonumber(deadline) <= now
end
local function forget(name)
    local size = redis.call('HGET', sizes, name)
    redis.call('UNLINK', value_of(name))
    redis.call('ZREM', names, name)
    redis.call('ZREM', deadlines, name)
    redis.call('HDEL', sizes, name)
    if size then redis.call('DECRBY', bytes, size) end
end
local function sweep(now, steps)
    local over = redis.call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, steps)
    for _, name in ipairs(over) do forget(name) end
    return #over
end
local function live(name, now)
    local value = not is_over(name, now) and redis.call('GET', value_of(name))
    if not value and redis.call('HEXISTS', sizes, name) == 1 then forget(name) end
    return value
end
local function set_deadline(name, now, ttl)
    if ttl == '' then
        redis.call('ZREM', deadlines, name)
        redis.call('PERSIST', value_of(name))
    else
        redis.call('PEXPIRE', value_of(name), whole(math.min(math.max(tonumber(ttl), 0), 1e14) + {_SLACK_MS}))
        redis.call('ZADD', deadlines, now + tonumber(ttl), name)
    end
end
"""
)

_KV_KEYS: Final = ("kv-names", "kv-deadlines", "kv-sizes", "kv-bytes")

GET: Final = Script(
    _KV,
    """
local name, now = ARGV[2], clock(ARGV[1])
if is_over(name, now) then return false end
return redis.call('GET', value_of(name))
""",
    repeatable=True,
)

_STORE: Final = """
-- Put a value in the place of one that lives, or of none; false where there is no room.
local function store(name, value, present, now, max_items, max_bytes)
    local grown = present and #value - #present or #name + #value
    local function fits()
        -- What shrinks or only replaces is never refused.
        return (present or redis.call('HLEN', sizes) < max_items)
            and (grown <= 0 or tonumber(redis.call('GET', bytes) or 0) + grown <= max_bytes)
    end
    while not fits() do
        if sweep(now, 1000) == 0 then return false end
    end
    -- Nor is it by a full Redis, after a change that needs no room.
    if present and grown <= 0 then redis.call('HDEL', sizes, name) end
    redis.call('SET', value_of(name), value, 'KEEPTTL')
    redis.call('ZADD', names, 0, name)
    redis.call('HSET', sizes, name, #name + #value)
    redis.call('INCRBY', bytes, grown)
    return true
end
"""

PUT: Final = Script(
    _KV,
    _STORE,
    """
local now, name, value, ttl = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local if_absent, has_expected, expected = ARGV[5] == '1', ARGV[6] == '1', ARGV[7]
sweep(now, 16)
local present = live(name, now)
if (if_absent and present) or (has_expected and present ~= expected) then return 0 end
if not store(name, value, present, now, tonumber(ARGV[8]), tonumber(ARGV[9])) then return -1 end
set_deadline(name, now, ttl)
return 1
""",
)

ADD: Final = Script(
    _KV,
    _STORE,
    """
local now, name, amount, ttl = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
sweep(now, 16)
local present = live(name, now)
if present and not string.match(present, '^-?%d+$') then return 'no number' end
local sum = whole(tonumber(present or '0') + amount)
if not store(name, sum, present, now, tonumber(ARGV[5]), tonumber(ARGV[6])) then return 'full' end
if not present then set_deadline(name, now, ttl) end
return tonumber(sum)
""",
)

DELETE: Final = Script(
    _KV,
    """
local now, name = clock(ARGV[1]), ARGV[2]
if not live(name, now) then return 0 end
forget(name)
return 1
""",
)

EXPIRE: Final = Script(
    _KV,
    """
local now, name, ttl = clock(ARGV[1]), ARGV[2], ARGV[3]
if not live(name, now) then return 0 end
set_deadline(name, now, ttl)
return 1
""",
)

LIST: Final = Script(
    _KV,
    """
local now, first, after, limit = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
-- No byte of UTF-8 is 0xff, so this comes after every name that begins like that.
local from, to = '[' .. first, '(' .. first .. '\\255'
if ARGV[5] == '1' then from = '(' .. after end
local found = {}
while #found < limit do
    local page = redis.call('ZRANGEBYLEX', names, from, to, 'LIMIT', 0, 200)
    if #page == 0 then break end
    local ends = redis.call('ZMSCORE', deadlines, unpack(page))
    for index, name in ipairs(page) do
        if #found < limit and not (ends[index] and tonumber(ends[index]) <= now) then found[#found + 1] = name end
    end
    from = '(' .. page[#page]
end
return found
""",
    repeatable=True,
)

# --- Log ---

_LOG: Final = (
    _CLOCK
    + """
local streams, states = prefix .. ':log-streams', prefix .. ':log-state'
local total, position = prefix .. ':log-bytes', prefix .. ':log-position'
local function events_of(name) return prefix .. ':log:' .. name end
local function forget(name)
    local known = redis.call('HGET', states, name)
    local size = known and string.match(known, ' (%d+)$')
    redis.call('UNLINK', events_of(name))
    redis.call('ZREM', streams, name)
    redis.call('HDEL', states, name)
    if size then redis.call('DECRBY', total, size) end
    return known
end
local function state_of(name)
    local known = redis.call('HGET', states, name)
    if not known or redis.call('EXISTS', events_of(name)) == 0 then return nil end
    local floor, last, size = string.match(known, '^(%d+) (%d+) (%d+)$')
    return tonumber(floor), tonumber(last), tonumber(size)
end
local function number_of(id) return tonumber(string.match(id, '^%d+')) end
"""
)

APPEND: Final = Script(
    _LOG,
    f"""
local name, data, given = ARGV[1], ARGV[2], ARGV[3]
local max_events, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local max_streams, max_total = tonumber(ARGV[6]), tonumber(ARGV[7])
local events = events_of(name)
if given ~= '' then redis.call('SET', position, given, 'NX') end
local before = last_number(position)
local place = before + 1
local floor, _, size = state_of(name)
if not floor then
    if redis.call('HEXISTS', states, name) == 1 then
        forget(name)
    elseif redis.call('EXISTS', events) == 1 then
        redis.call('XTRIM', events, 'MAXLEN', 0)
    end
    floor, size = before, 0
end
redis.call('XADD', events, whole(place) .. '-0', 'd', data)
redis.call('SET', position, whole(place))
redis.call('PEXPIRE', events, {_LOG_MS})
redis.call('ZADD', streams, place, name)
redis.call('INCRBY', total, #data)
size = size + #data
local count = redis.call('XLEN', events)
while count > max_events or size > max_bytes do
    for _, event in ipairs(redis.call('XRANGE', events, '-', '+', 'COUNT', 64)) do
        if count <= max_events and size <= max_bytes then break end
        floor, count, size = number_of(event[1]), count - 1, size - #event[2][2]
        redis.call('DECRBY', total, #event[2][2])
        redis.call('XDEL', events, event[1])
    end
end
redis.call('HSET', states, name, whole(floor) .. ' ' .. whole(place) .. ' ' .. whole(size))
while redis.call('ZCARD', streams) > max_streams or tonumber(redis.call('GET', total)) > max_total do
    forget(redis.call('ZRANGE', streams, 0, 0)[1])
end
return whole(place)
""",
)

READ_AFTER: Final = Script(
    _LOG,
    """
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
""",
    repeatable=True,
)

FORGET: Final = Script(_LOG, "return forget(ARGV[1]) and 1 or 0")

# --- Bus ---

_BUS: Final = (
    _CLOCK
    + """
local bus, last_key, bytes = prefix .. ':bus', prefix .. ':bus-last', prefix .. ':bus-bytes'
local function after(number, last)
    local reply = {whole(last)}
    if number ~= '' then
        for _, message in ipairs(redis.call('XRANGE', bus, '(' .. number, '+', 'COUNT', 1000)) do
            reply[#reply + 1] = message
        end
    end
    return reply
end
"""
)

PUBLISH: Final = Script(
    _BUS,
    f"""
local seen, topic, data, now = ARGV[1], ARGV[2], ARGV[3], clock('')
local number = last_number(last_key) + 1
local is_first = redis.call('XLEN', bus) == 0
redis.call('XADD', bus, whole(number) .. '-0', 't', topic, 'd', data, 's', whole(now))
redis.call('SET', last_key, whole(number))
if is_first then redis.call('SET', bytes, 0) end
redis.call('INCRBY', bytes, #topic + #data)
local is_enough = false
while not is_enough do
    local oldest = redis.call('XRANGE', bus, '-', '+', 'COUNT', 20)
    is_enough = true
    for _, message in ipairs(oldest) do
        local fields = message[2]
        is_enough = redis.call('XLEN', bus) <= {_BUS_MESSAGES}
            and tonumber(redis.call('GET', bytes)) <= {_BUS_BYTES}
            and (tonumber(fields[6]) or 0) > now - {_BUS_MS}
        if is_enough then break end
        redis.call('XDEL', bus, message[1])
        redis.call('DECRBY', bytes, #fields[2] + #(fields[4] or ''))
    end
end
redis.call('PEXPIRE', bus, {2 * _BUS_MS})
redis.call('PEXPIRE', bytes, {2 * _BUS_MS})
return after(seen, number)
""",
)

LOOK: Final = Script(
    _BUS,
    """
local last = last_number(last_key)
-- Where Redis is full it cannot be written down; then the next message begins anew, and everybody notices.
redis.pcall('SET', last_key, whole(last), 'NX')
return after(ARGV[1], last)
""",
    repeatable=True,
)

SCRIPTS: Final = (GET, PUT, ADD, DELETE, EXPIRE, LIST, APPEND, READ_AFTER, FORGET, PUBLISH, LOOK)
