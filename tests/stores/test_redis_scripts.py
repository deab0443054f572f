"""The scripts of the stores use the keys that they declare, and the commands that the documentation lists."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.redis_server import RedisServer, running, until_refused

from toolwire import stores as stores_package
from toolwire.stores import Stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.redis_queue_scripts import QUEUE_SCRIPTS
from toolwire.stores.redis_scripts import GREET, RIGHTS, SCRIPTS
from toolwire.testing.stores import BusContract, KVContract, LogContract, MakeStores, Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "stores.md"
EVERY = (GREET, RIGHTS, *SCRIPTS, *QUEUE_SCRIPTS)
LUA = Path(stores_package.__file__).parent / "lua"
LUA_FILES = sorted(LUA.rglob("*.lua"))
# The texts in quotes and the comments of a script: what stands in them is not code.
QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|--[^\n]*")

#: Shadows `redis` with one that refuses a key that is not declared. All our commands but TIME have one key, the first.
STRICT = """
local real, declared = redis, {}
for _, key in ipairs(KEYS) do declared[key] = true end
local function strict(name)
    return function(command, key, ...)
        if command == 'TIME' then return real[name](command) end
        if not declared[key] then error('undeclared key ' .. tostring(key) .. ' of ' .. command) end
        return real[name](command, key, ...)
    end
end
local redis = {call = strict('call'), pcall = strict('pcall'), error_reply = real.error_reply}
"""

_prefixes = (f"strict {number}" for number in itertools.count())


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
def make_stores(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStores]:
    for script in EVERY:
        text = STRICT + script.text
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setattr(script, "sha", hashlib.sha1(text.encode()).hexdigest())
    made: list[RedisStores] = []

    def stores(*, clock: Callable[[], float] | None = None, **limits: Any) -> Stores:
        made.append(RedisStores(redis.url, prefix=next(_prefixes), clock=clock, **limits))
        return made[-1]

    yield stores
    for each in made:
        each.close()


class TestKeysOfTheKV(KVContract):
    pass


class TestKeysOfTheLog(LogContract):
    pass


class TestKeysOfTheBus(BusContract):
    pass


@pytest.mark.parametrize("file", LUA_FILES, ids=lambda file: file.relative_to(LUA).with_suffix("").as_posix())
def test_lua_file_compiles(redis: RedisServer, file: Path) -> None:
    # Redis compiles what it loads, and runs nothing.
    assert redis.command("SCRIPT", "LOAD", file.read_bytes()).startswith(b"$40\r\n")


def test_scripts_have_a_number_for_every_word_in_capitals() -> None:
    left = {word for script in EVERY for word in re.findall(r"\b[A-Z][A-Z_]+\b", QUOTED.sub("", script.text))}
    assert left == {"ARGV", "KEYS"}


def test_every_lua_file_is_part_of_a_script() -> None:
    lines = {line for script in EVERY for line in script.text.splitlines()}
    for file in LUA_FILES:
        # A line with a word such as LOG_MS has a number in the script.
        own = {line for line in file.read_text(encoding="utf-8").splitlines() if not re.search(r"[A-Z]_[A-Z]", line)}
        assert own <= lines, file


def allowed() -> list[str]:
    """The rules of the user in the documentation."""
    found = re.search(r"^ACL SETUSER toolwire on >password (.+?)\n```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found
    return found[1].replace("\\\n", " ").split()


def test_the_documented_user_may_run_every_command_of_the_scripts_and_no_other() -> None:
    used = {name.lower() for script in EVERY for name in re.findall(r"redis\.p?call\('([A-Z]+)'", script.text)}
    sent = {"eval", "evalsha", "script|load", "xread", "info", "ping", "select"}
    rules = allowed()
    assert rules[:4] == ["resetkeys", "~{toolwire}:*", "resetchannels", "-@all"]
    assert rules[4:] == [f"+{command}" for command in sorted(used | sent)]


@pytest.mark.covers("FLT-27")
async def test_the_documented_user_is_enough(redis: RedisServer) -> None:
    assert redis.command("ACL", "SETUSER", "least", "on", ">password", *allowed()).startswith(b"+OK")
    stores = RedisStores(f"unix://least:password@{redis.socket}?db=1", max_items=10, max_streams=2, max_events=2)
    heard = Recorder()
    stores.bus.subscribe("t", heard)
    for number in range(30):
        await stores.kv.put(f"{number % 10}", b"%d" % number, ttl=60 if number % 2 else None)
        await stores.log.append(f"{number % 5}", b"%d" % number)
        await stores.bus.publish("t", b"%d" % number)
    assert await stores.kv.add("0", 1) == 21
    assert await stores.kv.expire("1", None)
    assert await stores.kv.delete("2")
    assert await stores.kv.keys("") == ["0", "1", *map(str, range(3, 10))]
    assert [data for _, data in await stores.log.read_after("4", None, 10)] == [b"29"]
    assert await stores.log.delete("4")
    await heard.until(30)
    await stores.check()
    stores.close()


async def test_the_documented_user_sees_nothing_else(redis: RedisServer) -> None:
    redis.command("ACL", "SETUSER", "least", "on", ">password", *allowed())
    elsewhere = RedisStores(f"unix://least:password@{redis.socket}", prefix="other", timeout=0.3)
    await until_refused(elsewhere.check, "may not do what the store needs")
    elsewhere.close()


async def test_values_that_are_over_are_removed_many_at_once(redis: RedisServer) -> None:
    now = [1000.0]
    stores = RedisStores(redis.url, prefix="sweep", clock=lambda: now[0])
    await asyncio.gather(*(stores.kv.put(f"{number}", b"x", ttl=1) for number in range(200)))
    now[0] += 2
    for number in range(8):
        await stores.kv.put(f"new {number}", b"x")
    left = int(redis.command("HLEN", "{sweep}:kv-sizes")[1:])
    assert left < 8 + 64, "those that are over are removed while others are written"
    kept = redis.command("GET", "{sweep}:kv-bytes").split(b"\r\n")[1]
    counted = redis.command(
        "EVAL",
        "local sum = 0 for _, size in ipairs(redis.call('HVALS', KEYS[1])) do sum = sum + size end return sum",
        "1",
        "{sweep}:kv-sizes",
    )
    assert int(kept) == int(counted[1:])
    stores.close()
