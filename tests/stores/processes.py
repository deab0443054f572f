"""Stores that several processes use at once: what every such store does, wherever it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolwire.stores import Ready, Stores
from toolwire.testing.stores import Recorder

PRELUDE = """
import asyncio, json, sys
from toolwire.stores.by_address import open_stores

stores = open_stores(sys.argv[1])

def say(value):
    print(json.dumps(value), flush=True)

async def line():
    return await asyncio.to_thread(sys.stdin.readline)
"""


class Process:
    """Another process that uses the stores at an address; it says what happened in lines of JSON."""

    def __init__(self, address: str | Path, body: str) -> None:
        code = PRELUDE + body + "\nasyncio.run(main())\nstores.close()\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    async def said(self) -> Any:
        assert self.process.stdout is not None
        text = await asyncio.to_thread(self.process.stdout.readline)
        return json.loads(text) if text else None

    def tell(self, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    async def end(self) -> int:
        return await asyncio.to_thread(self.process.wait)


LISTENER = """
async def main():
    heard = asyncio.Queue()
    stores.bus.subscribe("t", heard.put_nowait)
    await stores.check()
    say("ready")
    while True:
        message = (await heard.get()).decode()
        say(message)
        await stores.bus.publish("back", message.encode())
        if message == "end":
            return
"""

CLAIMER = """
async def main():
    say("ready")
    await line()
    say([key for key in range(200) if await stores.kv.put(str(key), sys.argv[1].encode(), if_absent=True)])
    for _ in range(100):
        while True:
            value = await stores.kv.get("counter")
            condition = {"expect": value} if value else {"if_absent": True}
            if await stores.kv.put("counter", b"%d" % (int(value or 0) + 1), **condition):
                break
    positions = [await stores.log.append("s", b"x") for _ in range(50)]
    say(positions)
"""

TAKER = """
async def main():
    name = (await line()).strip()
    say("ready")
    await line()
    stop = stores.queue.keep(name, 30, lambda: say("lost"))
    await stores.queue.renew(name, 30)
    found = []
    while tasks := await stores.queue.take(name, ["even", "odd"], 2):
        found += [task.key for task in tasks]
        for task in tasks[1:]:
            await stores.queue.change(task.key, b"over", ttl=60, expect=task.value, place=None, holder=name)
    say(found)
    stop()
    await line()
"""

FORKED = """
import os
async def main():
    if {used}:
        await stores.check()

async def child():
    try:
        await stores.kv.put("child", b"1")
        return 0
    except Exception as error:
        say(str(error))
        return 7

asyncio.run(main())
if (pid := os.fork()) == 0:
    os._exit(asyncio.run(child()))
say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


class ProcessContract:
    """Needs the fixtures `address`, of stores that are new, and `stores`, which are there."""

    async def test_messages_reach_other_processes_in_order(self, stores: Stores, address: str) -> None:
        heard = Recorder()
        stores.bus.subscribe("back", heard)
        with Process(address, LISTENER) as one, Process(address, LISTENER) as two:
            assert [await one.said(), await two.said()] == ["ready", "ready"]
            for number in range(100):
                await stores.bus.publish("t", b"%d" % number)
            await stores.bus.publish("t", b"end")
            expected = [*map(str, range(100)), "end"]
            assert [await one.said() for _ in expected] == expected
            assert [await two.said() for _ in expected] == expected
            await heard.until(2 * len(expected))
            assert (await one.end(), await two.end()) == (0, 0)
        assert sorted(heard) == sorted(message.encode() for message in expected * 2)

    async def test_processes_that_start_at_once_share_one_store(self, stores: Stores, address: str) -> None:
        with Process(address, CLAIMER) as one, Process(address, CLAIMER) as two, Process(address, CLAIMER) as three:
            everyone = (one, two, three)
            for each in everyone:
                assert await each.said() == "ready"
            for each in everyone:
                each.tell()
            wins = [key for each in everyone for key in await each.said()]
            positions = [position for each in everyone for position in await each.said()]
            assert [await each.end() for each in everyone] == [0, 0, 0]
        assert sorted(wins) == list(range(200))
        assert await stores.kv.get("counter") == b"300"
        assert sorted(positions) == [position for position, _ in await stores.log.read_after("s", None, 1000)]

    async def test_each_task_is_taken_by_one_process_and_left_behind_by_one_that_is_killed(
        self, stores: Stores, address: str
    ) -> None:
        queue = stores.queue
        for number in range(100):
            place = Ready("odd" if number % 2 else "even", str(number % 5))
            await queue.change(str(number), b"1", ttl=60, expect=None, place=place)
        with Process(address, TAKER) as one, Process(address, TAKER) as two, Process(address, TAKER) as three:
            everyone = {"one": one, "two": two, "three": three}
            for name, each in everyone.items():
                each.tell(name)
                assert await each.said() == "ready"
            for each in everyone.values():
                each.tell()
            found = {name: await each.said() for name, each in everyone.items()}
            for each in everyone.values():
                each.process.kill()
                await each.end()
        assert sorted(int(key) for keys in found.values() for key in keys) == list(range(100))
        assert await queue.orphans(200) == []
        leases = await queue.leases()
        assert {name for name, _ in leases} == set(everyone)
        for process, renewal in leases:
            assert await queue.bury(process, renewal)
        left = await queue.orphans(200)
        assert sum((await queue.counts()).held.values()) == len(left)
        assert all(task.key in found[task.process] for task in left)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
    @pytest.mark.parametrize("used", [False, True])
    async def test_a_store_can_be_made_before_a_fork_but_not_used(
        self, stores: Stores, address: str, used: bool
    ) -> None:
        with Process(address, FORKED.format(used=used)) as parent:
            if used:
                assert "forked" in await parent.said()
            assert await parent.said() == (7 if used else 0)
            assert await parent.end() == 0
        assert await stores.kv.get("child") == (None if used else b"1")
