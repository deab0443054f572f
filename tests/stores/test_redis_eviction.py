"""A Redis that evicts keys, and a user of Redis who lacks rights: refused at the start, and reported later."""

from __future__ import annotations

import asyncio
import logging
import re
import sys

import pytest
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.redis_server import running, until_answered

from toolwire import Server
from toolwire.protocol.errors import ServerError
from toolwire.stores import Evictions, StoreFailed
from toolwire.stores.by_address import open_stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.redis_eviction import EvictionWatch, RedisReport, join_report
from toolwire.stores.redis_queue_scripts import QUEUE_SCRIPTS
from toolwire.stores.redis_scripts import COMMANDS, SCRIPTS

on_redis = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")
SECRET = "hunter2"


@on_redis
@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru"])
async def test_a_redis_that_evicts_is_refused_unless_the_address_allows_it(policy: str) -> None:
    with running("--maxmemory", "64mb", "--maxmemory-policy", policy) as redis:
        stores = RedisStores(redis.url, timeout=30.0)
        with pytest.raises(StoreFailed, match=rf"maxmemory-policy {policy}.*\?evicts=allow") as raised:
            await stores.open()
        assert not raised.value.temporary, "the start of a server does not wait for it"
        # The operator repairs it, and the same process continues.
        redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await until_answered(stores.open, though="evicts keys")
        stores.close()
        redis.command("CONFIG", "SET", "maxmemory-policy", policy)
        allowed = open_stores(f"{redis.url}?evicts=allow&timeout=30")
        await allowed.check()
        assert allowed.evictions() == Evictions(evicts=True, keys=0)
        allowed.close()


@on_redis
async def test_a_redis_without_a_memory_limit_is_used_whatever_its_policy() -> None:
    with running("--maxmemory-policy", "allkeys-lru") as redis:
        stores = RedisStores(redis.url, timeout=30.0)
        await stores.open()
        assert stores.evictions() == Evictions(evicts=False, keys=0)
        stores.close()


@on_redis
async def test_a_policy_that_changes_later_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolwire.stores")
    with running("--maxmemory", "64mb") as redis:
        stores = RedisStores(redis.url, timeout=30.0)
        await stores.open()
        redis.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        await until_answered(stores.check)
        while not stores.evictions().evicts:
            await asyncio.sleep(0.01)
        stores.close()
    assert "evicts keys now (maxmemory-policy volatile-lru)" in caplog.text


@on_redis
async def test_the_metrics_show_whether_the_store_evicts_keys() -> None:
    with running("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru") as redis:
        stores = RedisStores(f"{redis.url}?evicts=allow", timeout=30.0)
        app = Server("s", stores=stores, metrics=True).http_app()
        assert (await HttpClient(app, path="/readyz").start("GET").finished()).status == 200
        page = (await HttpClient(app, path="/metrics").start("GET").finished()).body.decode()
        await app.stop()
        stores.close()
    assert re.search(r"^toolwire_store_evicts\S* 1(\.0)?$", page, re.MULTILINE)
    assert re.search(r"^toolwire_store_evicted_keys_total\S* 0(\.0)?$", page, re.MULTILINE)


def test_evicted_keys_are_counted_and_logged_once_for_each_report(caplog: pytest.LogCaptureFixture) -> None:
    watch = EvictionWatch("redis://host/0", is_allowed=True)
    for run_id, evicted in ((b"one", 7), (b"one", 7), (b"one", 10), (b"two", 1), (b"two", 1)):
        watch.note(RedisReport(run_id, "allkeys-lru", evicted))
    assert watch.seen == Evictions(evicts=True, keys=4), "those from before the first report are not counted"
    assert [each.getMessage().partition(",")[0] for each in caplog.records] == [
        "the store redis://host/0 has evicted 3 keys",
        "the store redis://host/0 has evicted 1 key",
    ]


def test_report_without_a_section_is_ignored() -> None:
    assert join_report([b"run_id:x\r\n", RuntimeError("NOPERM"), b"evicted_keys:1\r\n"]) is None


@on_redis
async def test_a_user_without_info_is_served_and_the_log_says_once_what_is_not_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru") as redis:
        redis.command("ACL", "SETUSER", "blind", "on", f">{SECRET}", "~*", "+@all", "-info")
        stores = RedisStores(f"unix://blind:{SECRET}@{redis.socket}", timeout=30.0)
        await stores.open()
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        await until_answered(stores.check)
        stores.close()
    assert len([each for each in caplog.records if "may not run INFO" in each.getMessage()]) == 1


@on_redis
async def test_each_command_that_a_user_lacks_is_named() -> None:
    """The stores cannot be used at all, so that a replica of which only the tasks would fail is not ready."""
    with running() as redis:
        for command in COMMANDS:
            redis.command("ACL", "SETUSER", command, "on", f">{SECRET}", "~*", "+@all", f"-{command.lower()}")
            stores = RedisStores(f"unix://{command}:{SECRET}@{redis.socket}", timeout=30.0)
            with pytest.raises(StoreFailed, match=rf"may not run {command}: .*docs/reference/stores.md"):
                await stores.check()
            stores.close()


def test_the_commands_of_all_scripts_are_checked() -> None:
    called = {
        name.upper()
        for script in (*SCRIPTS, *QUEUE_SCRIPTS)
        for name in re.findall(r"redis\.p?call\('(\w+)'", script.text)
    }
    # Without SCAN the store is used, and the log says once what is not found again.
    assert called - {"SCAN"} <= set(COMMANDS)


@cases("scheme", ["postgresql", "http", "mysql+pool"])
def test_an_unknown_scheme_is_named_with_those_that_exist(scheme: str) -> None:
    with pytest.raises(ServerError, match=rf"{re.escape(scheme)}://.*redis://.*SQLite") as raised:
        open_stores(f"{scheme}://user:{SECRET}@host/0")
    assert SECRET not in str(raised.value)


@cases("given", ["", "deny", "yes"])
def test_evicts_is_allow_or_is_left_out(given: str) -> None:
    with pytest.raises(ServerError, match="evicts= in the address of the store is allow"):
        open_stores(f"redis://host/0?evicts={given}")
