"""The operations of the stores in Redis. Each is one script, so that it is atomic.

All keys begin with the prefix in braces, which puts them into one slot of a cluster. A script declares every key that
it uses, because some servers refuse others. Keys that a script finds while it runs, such as those of expired values,
are returned to the client, which declares them to a second script.

The clock is that of Redis, the only one that all machines share; tests give a clock of their own, in milliseconds. A
full Redis, or one that takes no changes now, refuses a script only at its first change. So each script reads first, and
one that may be refused begins to write with a change that needs room. A refused script has changed nothing.

{prefix}:kv:<name>    a value, which Redis itself removes a while after its time
{prefix}:kv-names     the names in the order of their bytes
{prefix}:kv-deadlines the names that have a deadline, in its order
{prefix}:kv-sizes     how many bytes each name stands for; {prefix}:kv-bytes is their sum
{prefix}:log:<name>   the events of a stream, under their positions
{prefix}:log-streams  the streams in the order in which they were last appended to
{prefix}:log-state    floor, last position and bytes of each stream; {prefix}:log-bytes is the sum of those
{prefix}:log-position the last position that was given
{prefix}:bus:<topic>  the messages of the last minute on a topic, numbered without a gap
{prefix}:bus-topic:<topic> the number of the last message and the bytes of all; it exists while a process listens
{prefix}:bus-bell:<process> wakes the connection on which a process listens
{prefix}:primary      is written by each new connection, to see that the server takes changes
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolwire.stores.names import encode_name

#: Without a key, the prefix alone leads a cluster to its slot.
_NO_KEY: Final = (b"",)


def _bulk(value: bytes | str | int) -> bytes:
    data = value if type(value) is bytes else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Script:
    """A script of Redis.

    `keys` are the keys of every call, without the prefix: the first ones of KEYS. The keys that a call adds follow. A
    `repeatable` script does no harm when it runs twice.
    """

    __slots__ = ("_declarations", "_keys", "repeatable", "sha", "text")

    def __init__(self, *parts: str, keys: Sequence[str] = (), repeatable: bool = False) -> None:
        self.text: str = "\n".join(parts)
        self.sha: str = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self.repeatable: bool = repeatable
        self._keys = tuple(key.encode() for key in keys)
        # The keys of every call as they are sent, by prefix.
        self._declarations: dict[bytes, bytes] = {}

    def by_name(self, prefix: bytes, arguments: Sequence[Any], keys: Sequence[bytes] = ()) -> bytes:
        """Return the call by its digest, as Redis reads it: an array of strings, each behind its length.

        The client library would encode the name and the same keys anew for each call.
        """
        declaration = self._declarations.get(prefix)
        if declaration is None:
            declaration = b"".join(_bulk(b"%b:%b" % (prefix, key)) for key in self._keys)
            self._declarations[prefix] = declaration
        if not self._keys and not keys:
            keys = _NO_KEY
        count = len(self._keys) + len(keys)
        head = b"*%d\r\n$7\r\nEVALSHA\r\n" % (3 + count + len(arguments))
        added = [b"$%d\r\n%b:%b\r\n" % (len(prefix) + 1 + len(key), prefix, key) for key in keys]
        return b"".join((head, _bulk(self.sha), _bulk(count), declaration, *added, *map(_bulk, arguments)))

    def in_full(self, prefix: bytes, arguments: Iterable[Any], keys: Sequence[bytes] = ()) -> tuple[Any, ...]:
        """Return the call with the text of the script, as the words of a command."""
        return ("EVAL", self.text, *self._declared(prefix, keys), *arguments)

    def _declared(self, prefix: bytes, keys: Sequence[bytes]) -> list[Any]:
        every = (*self._keys, *keys) or _NO_KEY
        return [len(every), *(b"%b:%b" % (prefix, key) for key in every)]


#: How long a value stays in Redis after its time, so that the next script finds it and corrects the sums.
_SLACK_MS: Final = 60_000
#: A stream without an append for this long is deleted.
_LOG_MS: Final = 24 * 3600 * 1000
#: How long messages of a topic are kept for processes that are behind, and how many.
_BUS_MS: Final = 60_000
_BUS_MESSAGES: Final = 10_000
_BUS_BYTES: Final = 16 * 1024 * 1024
#: How long a topic exists after a process has looked at it. Each process looks every few seconds.
_TOPIC_MS: Final = 60_000
#: So many values have to be over before a script asks for their removal, beside its own work.
_SWEEP_FROM: Final = 64

CLOCK_PART: Final = """
local prefix = string.match(KEYS[1], '^{[^}]*}')
local function clock(given)
    if given ~= '' then return tonumber(given) end
    local now = redis.call('TIME')
    return tonumber(now[1]) * 1000 + tonumber(now[2]) / 1000
end
local function whole(number) return string.format('%.0f', number) end
-- Numbers begin at the time of day in microseconds: one from before all was lost is not taken for one of ours.
local function first_number() return whole(clock('') * 1000) end
"""

_IS_FORBIDDEN: Final = """
local function is_forbidden(text)
    return string.find(text, "can't run", 1, true) or string.find(text, 'permission', 1, true)
end
"""

#: A connection sends this first. A full Redis can be used, one that takes no changes for another reason cannot.
#: RIGHTS reports what the user may not do.
GREET: Final = Script(
    _IS_FORBIDDEN,
    """
local written = redis.pcall('SET', KEYS[1], '1', 'PX', 60000)
local text = written.err
if text and not string.find(text, 'OOM', 1, true) and not is_forbidden(text) then return redis.error_reply(text) end
return 1
""",
    keys=("primary",),
    repeatable=True,
)

#: The commands that scripts use, each with arguments that change nothing: its key is a string. An error that comes
#: instead of a reply names neither the command nor the user, so each command is tried by itself.
COMMANDS: Final = {
    **dict.fromkeys(("EXISTS", "GET", "HGETALL", "HLEN", "PERSIST", "XLEN", "ZCARD"), "k"),
    **dict.fromkeys(("DECRBY", "INCRBY", "HDEL", "HEXISTS", "HGET", "HMGET", "XDEL", "ZMSCORE", "ZREM"), "k 0"),
    **dict.fromkeys(("HINCRBY", "HSET", "HSETNX", "ZADD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE"), "k 0 0"),
    **dict.fromkeys(("ZREMRANGEBYRANK", "ZREMRANGEBYSCORE"), "k 0 0"),
    **dict.fromkeys(("XRANGE", "ZLEXCOUNT", "ZRANGEBYLEX"), "k - +"),
    "TIME": "",
    "UNLINK": "k",
    "ZSCORE": "k 0",
    "SET": "k 1",
    "PEXPIRE": "k 60000",
    "XADD": "k * f v",
    "XTRIM": "k MAXLEN 0",
}

# Returns the commands of the arguments that the user may not run. Each argument is a command with its own arguments.
RIGHTS: Final = Script(
    _IS_FORBIDDEN,
    """
local missing = {}
for _, each in ipairs(ARGV) do
    local words = {}
    for word in string.gmatch(each, '%S+') do words[#words + 1] = word == 'k' and KEYS[1] or word end
    local reply = redis.pcall(unpack(words))
    if type(reply) == 'table' and reply.err and is_forbidden(reply.err) then missing[#missing + 1] = words[1] end
end
return missing
""",
    keys=("primary",),
    repeatable=True,
)
RIGHTS_ARGUMENTS: Final = tuple(f"{name} {arguments}" for name, arguments in COMMANDS.items())

# --- KV ---

KV_PART: Final = (
    CLOCK_PART
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
    -- A sum that was lost is added up again by the next value.
    if size and redis.call('EXISTS', bytes) == 1 then redis.call('DECRBY', bytes, size) end
end
-- Names of values that are over, for the script that removes them.
local function overdue(now)
    return unpack(redis.call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, 100))
end
local function overdue_if_many(now)
    if redis.call('ZCOUNT', deadlines, '-inf', now) >= {_SWEEP_FROM} then return overdue(now) end
end
local function live(name, now)
    local value = not is_over(name, now) and redis.call('GET', value_of(name))
    if not value and redis.call('HEXISTS', sizes, name) == 1 then forget(name) end
    return value
end
local function kept(ttl) return whole(math.min(math.max(tonumber(ttl), 0), 1e14) + {_SLACK_MS}) end
local function note_deadline(name, now, ttl)
    if ttl == '' then
        redis.call('ZREM', deadlines, name)
    else
        redis.call('ZADD', deadlines, now + tonumber(ttl), name)
    end
end
"""
)

KV_KEYS: Final = ("kv-names", "kv-deadlines", "kv-sizes", "kv-bytes")

GET: Final = Script(
    CLOCK_PART,
    """
local deadline = redis.call('ZSCORE', KEYS[1], ARGV[2])
if deadline and tonumber(deadline) <= clock(ARGV[1]) then return false end
return redis.call('GET', KEYS[2])
""",
    keys=("kv-deadlines",),
    repeatable=True,
)

STORE_PART: Final = """
-- Put a value in the place of one that lives, or of none; false where there is no room. Without a ttl the deadline
-- stays; an empty one is none.
local function store(name, value, present, now, ttl, max_items, max_bytes)
    local grown = present and #value - #present or #name + #value
    -- What shrinks or only replaces is never refused.
    if not present and redis.call('HLEN', sizes) >= max_items then return false end
    local known, total = redis.call('GET', bytes), 0
    if known then
        total = tonumber(known)
    else
        for index, size in ipairs(redis.call('HGETALL', sizes)) do
            if index % 2 == 0 then total = total + tonumber(size) end
        end
    end
    if grown > 0 and total + grown > max_bytes then return false end
    -- Nor is it by a full Redis, after a change that needs no room.
    if present and grown <= 0 then redis.call('HDEL', sizes, name) end
    if not ttl then
        redis.call('SET', value_of(name), value, 'KEEPTTL')
    elseif ttl == '' then
        redis.call('SET', value_of(name), value)
    else
        redis.call('SET', value_of(name), value, 'PX', kept(ttl))
    end
    if not present then redis.call('ZADD', names, 0, name) end
    redis.call('HSET', sizes, name, #name + #value)
    if not known then
        redis.call('SET', bytes, whole(total + grown))
    elseif grown ~= 0 then
        redis.call('INCRBY', bytes, grown)
    end
    if ttl then note_deadline(name, now, ttl) end
    return true
end
"""

# PUT and ADD return a code, a number, and names of values that are over. With the code -1 (no room) they have changed
# nothing: remove the values, and try again.

PUT: Final = Script(
    KV_PART,
    STORE_PART,
    """
local now, name, value, ttl = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local if_absent, has_expected, expected = ARGV[5] == '1', ARGV[6] == '1', ARGV[7]
local present = live(name, now)
if (if_absent and present) or (has_expected and present ~= expected) then return {0, 0} end
if not store(name, value, present, now, ttl, tonumber(ARGV[8]), tonumber(ARGV[9])) then
    return {-1, 0, overdue(now)}
end
return {1, 0, overdue_if_many(now)}
""",
    keys=KV_KEYS,
)

ADD: Final = Script(
    KV_PART,
    STORE_PART,
    """
local now, name, amount, ttl = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local present = live(name, now)
if present and not string.match(present, '^-?%d+$') then return {-2, 0} end
local sum = whole(tonumber(present or '0') + amount)
if present then ttl = nil end
if not store(name, sum, present, now, ttl, tonumber(ARGV[5]), tonumber(ARGV[6])) then
    return {-1, 0, overdue(now)}
end
return {1, tonumber(sum), overdue_if_many(now)}
""",
    keys=KV_KEYS,
)

SWEEP: Final = Script(
    KV_PART,
    """
local now = clock(ARGV[1])
for index = 2, #ARGV do
    if is_over(ARGV[index], now) then forget(ARGV[index]) end
end
""",
    keys=KV_KEYS,
    repeatable=True,
)

DELETE: Final = Script(
    KV_PART,
    """
local now, name = clock(ARGV[1]), ARGV[2]
if not live(name, now) then return 0 end
forget(name)
return 1
""",
    keys=KV_KEYS,
)

EXPIRE: Final = Script(
    KV_PART,
    """
local now, name, ttl = clock(ARGV[1]), ARGV[2], ARGV[3]
if not live(name, now) then return 0 end
if ttl == '' then redis.call('PERSIST', value_of(name)) else redis.call('PEXPIRE', value_of(name), kept(ttl)) end
note_deadline(name, now, ttl)
return 1
""",
    keys=KV_KEYS,
)

LIST_PART: Final = """
-- Names of values, from the arguments of LIST.
local function listed()
    local names, deadlines = prefix .. ':kv-names', prefix .. ':kv-deadlines'
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
end
"""

LIST: Final = Script(CLOCK_PART, LIST_PART, "return listed()", keys=("kv-names", "kv-deadlines"), repeatable=True)


def list_arguments(prefix: str, after: str, limit: int) -> tuple[bytes, bytes, int, int]:
    """Return the arguments of LIST behind the time. The list starts at the later of `prefix` and `after`."""
    first, last = encode_name(prefix), encode_name(after)
    return first, last, max(limit, 0), int(last >= first and after != "")


# --- Log ---

_LOG: Final = (
    CLOCK_PART
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

_LOG_KEYS: Final = ("log-streams", "log-state", "log-bytes")

#: Return names of the streams that were silent for longest, where there are too many streams or events.
_TOO_MUCH: Final = """
local function too_much(max_streams, max_total)
    local count, size = redis.call('ZCARD', streams), tonumber(redis.call('GET', total) or 0)
    if count <= max_streams and size <= max_total then return end
    return unpack(redis.call('ZRANGE', streams, 0, 9))
end
"""

# Returns the position, and names of streams to forget.
APPEND: Final = Script(
    _LOG,
    _TOO_MUCH,
    f"""
local name, data, given = ARGV[1], ARGV[2], ARGV[3]
local max_events, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local max_streams, max_total = tonumber(ARGV[6]), tonumber(ARGV[7])
local events = events_of(name)
if given ~= '' then redis.call('SET', position, given, 'NX') end
local before = tonumber(redis.call('GET', position) or first_number())
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
return {{whole(place), too_much(max_streams, max_total)}}
""",
    keys=(*_LOG_KEYS, "log-position"),
)

# Returns names of further streams to forget.
FORGET_SILENT: Final = Script(
    _LOG,
    _TOO_MUCH,
    """
local max_streams, max_total = tonumber(ARGV[1]), tonumber(ARGV[2])
for index = 3, #ARGV do
    -- One that was appended to meanwhile is not silent any more.
    if too_much(max_streams, max_total) ~= ARGV[index] then break end
    forget(ARGV[index])
end
return {too_much(max_streams, max_total)}
""",
    keys=_LOG_KEYS,
    repeatable=True,
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
    keys=("log-state",),
    repeatable=True,
)

FORGET: Final = Script(_LOG, "return forget(ARGV[1]) and 1 or 0", keys=_LOG_KEYS)

# --- Bus ---

# Returns the number of the message, or 0 where no process listens to the topic: then nobody can miss it.
PUBLISH: Final = Script(
    CLOCK_PART,
    f"""
local topic, messages, data, now = KEYS[1], KEYS[2], ARGV[1], clock('')
local last, size = unpack(redis.call('HMGET', topic, 'last', 'bytes'))
if not last then return 0 end
local number, size = tonumber(last) + 1, tonumber(size or 0) + #data
redis.call('XADD', messages, whole(number) .. '-0', 'd', data, 's', whole(now))
local count = redis.call('XLEN', messages)
local is_enough = false
while not is_enough do
    is_enough = true
    for _, message in ipairs(redis.call('XRANGE', messages, '-', '+', 'COUNT', 20)) do
        local fields = message[2]
        is_enough = count <= {_BUS_MESSAGES} and size <= {_BUS_BYTES} and (tonumber(fields[4]) or 0) > now - {_BUS_MS}
        if is_enough then break end
        redis.call('XDEL', messages, message[1])
        count, size = count - 1, size - #fields[2]
    end
end
redis.call('HSET', topic, 'last', whole(number), 'bytes', size)
redis.call('PEXPIRE', messages, {2 * _BUS_MS})
return number
""",
)

# Makes topics exist for a while, so that their messages are kept. KEYS are the bell and two for each topic; ARGV says
# whether to ring the bell, and the number of the last message on each topic that was handed out. Returns 0 where the
# bell could not be rung, and for each topic the number of its last message and the messages that were not handed out.
LOOK: Final = Script(
    CLOCK_PART,
    f"""
local reply = {{1}}
if ARGV[1] == '1' then
    local rung = redis.pcall('XADD', KEYS[1], 'MAXLEN', 1, '*', 'r', '')
    if type(rung) == 'table' then reply[1] = 0 end
    redis.call('PEXPIRE', KEYS[1], {_TOPIC_MS})
end
for index = 2, #ARGV do
    local topic, messages, seen = KEYS[2 * index - 2], KEYS[2 * index - 1], ARGV[index]
    local last = redis.call('HGET', topic, 'last')
    if not last then
        last = first_number()
        -- Those that are left belong to other numbers. What is not a stream belongs to another program.
        if redis.call('XLEN', messages) > 0 then redis.call('UNLINK', messages) end
        -- Where Redis is full it cannot be written down; then the next look begins anew, and everybody notices.
        redis.pcall('HSET', topic, 'last', last, 'bytes', 0)
    end
    redis.call('PEXPIRE', topic, {_TOPIC_MS})
    local found = {{last}}
    if seen ~= '' and tonumber(seen) < tonumber(last) then
        for _, message in ipairs(redis.call('XRANGE', messages, '(' .. seen, '+', 'COUNT', 1000)) do
            found[#found + 1] = message
        end
    end
    reply[index] = found
end
return reply
""",
    repeatable=True,
)

SCRIPTS: Final = (
    GET,
    PUT,
    ADD,
    SWEEP,
    DELETE,
    EXPIRE,
    LIST,
    APPEND,
    FORGET_SILENT,
    READ_AFTER,
    FORGET,
    PUBLISH,
    LOOK,
)
