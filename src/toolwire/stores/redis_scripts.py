"""The operations of the stores in Redis. Each is one script, so that it is atomic.

The texts are the files in `lua/`, and `lua/shared/` has the functions that several scripts use. A word in capitals such
as LOG_MS is a number that `read_lua` puts in.

All keys begin with the prefix in braces, which puts them into one slot of a cluster. A script declares every key that
it uses, because some servers refuse others. Keys that a script finds while it runs, such as those of expired values,
are returned to the client, which declares them to a second script.

The clock is that of Redis, the only one that all machines share; tests give a clock of their own, in milliseconds. A
full Redis, or one that takes no changes now, refuses a script only at its first change. So each script reads first, and
one that may be refused begins to write with a change that needs room. A refused script has changed nothing.

{prefix}:kv:<name>    a value, which Redis itself removes a while after its time
{prefix}:kv-names     the names in the order of their bytes, and a mark that none of them is missing
{prefix}:kv-deadlines the names that have a deadline, in its order
{prefix}:kv-sizes     how many bytes each name stands for, and the same mark; {prefix}:kv-bytes is their sum
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
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from toolwire.stores.names import encode_name

_FOLDER: Final = Path(__file__).parent / "lua"
#: Without a key, the prefix alone leads a cluster to its slot.
_NO_KEY: Final = (b"",)


def _bulk(value: bytes | str | int) -> bytes:
    data = value if type(value) is bytes else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def read_lua(*names: str, **numbers: int) -> str:
    """Return the text of files in `lua/`, with numbers in place of the words that name them."""
    text = "".join("\n" + (_FOLDER / f"{name}.lua").read_text(encoding="utf-8") for name in names)
    for word, number in numbers.items():
        text = re.sub(rf"\b{word}\b", str(number), text)
    return text


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

CLOCK_PART: Final = read_lua("shared/clock")

IS_FORBIDDEN: Final = read_lua("shared/is_forbidden")

#: A connection sends this first. A full Redis can be used, one that takes no changes for another reason cannot.
#: RIGHTS reports what the user may not do.
GREET: Final = Script(IS_FORBIDDEN, read_lua("greet"), keys=("primary",), repeatable=True)

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
RIGHTS: Final = Script(IS_FORBIDDEN, read_lua("rights"), keys=("primary",), repeatable=True)
RIGHTS_ARGUMENTS: Final = tuple(f"{name} {arguments}" for name, arguments in COMMANDS.items())

# --- KV ---

KV_PART: Final = read_lua("shared/clock", "shared/kv", SWEEP_FROM=_SWEEP_FROM, SLACK_MS=_SLACK_MS)

KV_KEYS: Final = ("kv-names", "kv-deadlines", "kv-sizes", "kv-bytes")

GET: Final = Script(CLOCK_PART, read_lua("get"), keys=("kv-deadlines",), repeatable=True)

WHOLE_PART: Final = read_lua("shared/whole")

STORE_PART: Final = WHOLE_PART + read_lua("shared/store")

# PUT and ADD return a code, a number, and names of values that are over. With the code -1 (no room) they have changed
# nothing: remove the values, and try again.

PUT: Final = Script(KV_PART, STORE_PART, read_lua("put"), keys=KV_KEYS)

ADD: Final = Script(KV_PART, STORE_PART, read_lua("add"), keys=KV_KEYS)

SWEEP: Final = Script(KV_PART, read_lua("sweep"), keys=KV_KEYS, repeatable=True)

DELETE: Final = Script(KV_PART, read_lua("delete"), keys=KV_KEYS)

EXPIRE: Final = Script(KV_PART, read_lua("expire"), keys=KV_KEYS)

LIST_PART: Final = read_lua("shared/list_names")

LIST: Final = Script(CLOCK_PART, LIST_PART, read_lua("list"), keys=("kv-names", "kv-deadlines"), repeatable=True)


def list_arguments(prefix: str, after: str, limit: int) -> tuple[bytes, bytes, int, int]:
    """Return the arguments of LIST behind the time. The list starts at the later of `prefix` and `after`."""
    first, last = encode_name(prefix), encode_name(after)
    return first, last, limit, int(last >= first and after != "")


# --- Log ---

_LOG: Final = read_lua("shared/clock", "shared/log")

_LOG_KEYS: Final = ("log-streams", "log-state", "log-bytes")

#: Return names of the streams that were silent for longest, where there are too many streams or events.
_TOO_MUCH: Final = read_lua("shared/too_much")

# Returns the position, and names of streams to forget.
APPEND: Final = Script(_LOG, _TOO_MUCH, read_lua("append", LOG_MS=_LOG_MS), keys=(*_LOG_KEYS, "log-position"))

# Returns names of further streams to forget.
FORGET_SILENT: Final = Script(_LOG, _TOO_MUCH, read_lua("forget_silent"), keys=_LOG_KEYS, repeatable=True)

READ_AFTER: Final = Script(_LOG, read_lua("read_after"), keys=("log-state",), repeatable=True)

FORGET: Final = Script(_LOG, read_lua("forget"), keys=_LOG_KEYS)

# --- Bus ---

# Returns the number of the message, or 0 where no process listens to the topic: then nobody can miss it.
PUBLISH: Final = Script(
    CLOCK_PART,
    read_lua("publish", BUS_MESSAGES=_BUS_MESSAGES, BUS_BYTES=_BUS_BYTES, BUS_MS=_BUS_MS, BUS_EXPIRE_MS=2 * _BUS_MS),
)

# Makes topics exist for a while, so that their messages are kept. KEYS are the bell and two for each topic; ARGV says
# whether to ring the bell, and the number of the last message on each topic that was handed out. Returns 0 where the
# bell could not be rung, and for each topic the number of its last message and the messages that were not handed out.
LOOK: Final = Script(CLOCK_PART, read_lua("look", TOPIC_MS=_TOPIC_MS), repeatable=True)

SCRIPTS: Final = (GET, PUT, ADD, SWEEP, DELETE, EXPIRE, LIST, APPEND, FORGET_SILENT, READ_AFTER, FORGET, PUBLISH, LOOK)
