"""Commands behind a gateway: one process for all callers, or processes of its own for each principal."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import until

from toolwire import Client, Server, testing
from toolwire.auth import Principal, UserSecret
from toolwire.client.target import Link
from toolwire.client.targets import CommandTarget
from toolwire.gateway import Breaker, Gateway, gateway_of
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.wire.channel import Channel, memory_pair

ERAS = pytest.mark.parametrize("back", [MODERN, "2025-11-25"])


class Processes(CommandTarget):
    """A command whose processes are servers in this process, with numbers."""

    def __init__(self) -> None:
        super().__init__(["command"], "command")
        self.started = 0
        self.running: dict[int, Channel] = {}
        self.go_on = asyncio.Event()
        self.waiting = 0

    async def open(self) -> Link:
        ours, theirs = memory_pair()
        self.started += 1
        number = self.started
        self.running[number] = theirs
        serving = asyncio.ensure_future(self._server(number, theirs).serve(theirs))
        serving.add_done_callback(lambda _: self.running.pop(number))
        return Link(ours, self.label)

    def _server(self, number: int, channel: Channel) -> Server:
        server = Server("command")

        @server.tool
        async def number_of_process() -> int:
            return number

        @server.tool
        async def wait() -> int:
            self.waiting += 1
            try:
                await self.go_on.wait()
            finally:
                self.waiting -= 1
            return number

        @server.tool
        async def die() -> None:
            await channel.close()

        return server


async def number(client: Client) -> int:
    return await client.call_tool("b_number_of_process", returns=int)


def connected(gateway: Gateway, name: str | None, front: str = MODERN) -> Any:
    return testing.connect(gateway, revision=front, principal=None if name is None else Principal(name))


@pytest.mark.covers("GW-9.10")
@cases("front", [MODERN, "2025-11-25"])
@cases(
    ("back", "isolation", "share"),
    [
        (MODERN, "shared", True),
        (MODERN, None, True),
        (MODERN, "principal", False),
        (MODERN, "conversation", True),
        # A server before 2026-07-28 knows its client by the process, unless the operator says otherwise.
        ("2025-11-25", "shared", True),
        ("2025-11-25", "conversation", False),
        ("2025-11-25", None, False),
        ("2025-11-25", "principal", False),
    ],
)
async def test_which_callers_share_a_process(front: str, back: str, isolation: Any, share: bool) -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, revision=back, isolation=isolation)
    async with (
        connected(gateway, "ann", front) as (ann, _),
        connected(gateway, "bob", front) as (bob, _),
        connected(gateway, "ann", front) as (again, _),
    ):
        numbers = [await number(each) for each in (ann, bob, again, ann, bob)]
        assert numbers[:2] == numbers[3:]
        assert (numbers[0] == numbers[1]) is share
        if back == MODERN:
            assert numbers[2] == numbers[0]
        assert numbers[1] not in (numbers[0], numbers[2]) or share
        # One more process reads the lists. It is the only one where callers share it. Another one of a legacy server
        # reads those for clients that declare nothing, and ends.
        assert command.started == 1 + (0 if share else len(set(numbers)) + (back != MODERN))


@pytest.mark.covers("GW-9.10")
@ERAS
async def test_a_crash_in_the_process_of_one_caller_does_not_touch_others(back: str) -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, revision=back, isolation="principal", breaker=Breaker(failures=1))
    async with connected(gateway, "ann") as (ann, _), connected(gateway, "bob") as (bob, _):
        before = await number(bob)
        waiting = asyncio.ensure_future(bob.call_tool("b_wait", returns=int))
        await until(lambda: command.waiting == 1)
        first = await number(ann)
        for _ in range(3):
            assert (await ann.call_tool("b_die")).is_error
        assert gateway.backs["b"].breaker == "closed"
        assert await number(ann) > first
        command.go_on.set()
        # A call of a modern client that may be asked has a process of a legacy server for itself.
        assert await waiting >= before and await number(bob) == before


@pytest.mark.covers("GW-9.10")
@ERAS
@pytest.mark.covers("GW-5.19")
async def test_the_process_that_was_used_longest_ago_makes_room(back: str) -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, revision=back, isolation="principal", max_processes=2)
    async with (
        connected(gateway, "ann") as (ann, _),
        connected(gateway, "bob") as (bob, _),
        connected(gateway, "cid") as (cid, _),
    ):
        first, second = await number(ann), await number(bob)
        assert await number(ann) == first
        third = await number(cid)
        await until(lambda: second not in command.running)
        assert {first, third} < set(command.running) and gateway.backs["b"].connections == 3
        assert await number(ann) == first
        assert await number(bob) not in (first, second, third)


@pytest.mark.covers("GW-9.10")
@ERAS
async def test_a_call_waits_for_a_process_or_is_refused(back: str) -> None:
    command = Processes()
    gateway = Gateway("front")
    gateway.add("b", command, revision=back, isolation="principal", max_processes=2, queue=1)
    async with (
        connected(gateway, "ann") as (ann, _),
        connected(gateway, "bob") as (bob, _),
        connected(gateway, "cid") as (cid, _),
        connected(gateway, "dan") as (dan, _),
    ):
        busy = [asyncio.ensure_future(each.call_tool("b_wait", returns=int)) for each in (ann, bob)]
        await until(lambda: command.waiting == 2)
        late = asyncio.ensure_future(number(cid))
        await until(lambda: gateway.backs["b"].waiting == 1)
        refused = await dan.call_tool("b_number_of_process")
        assert refused.is_error and "Too many calls" in refused.text and "try again" in refused.text
        assert refused.meta["toolwire/retryAfterMs"] == 1000
        late.cancel()
        await until(lambda: gateway.backs["b"].waiting == 0)
        late = asyncio.ensure_future(number(cid))
        await until(lambda: gateway.backs["b"].waiting == 1)
        command.go_on.set()
        numbers = [await each for each in busy]
        assert await late not in numbers


@pytest.mark.covers("GW-9.10")
@ERAS
async def test_a_call_does_not_wait_for_a_process_for_ever(back: str) -> None:
    command = Processes()
    gateway = Gateway("front")
    gateway.add("b", command, revision=back, isolation="principal", max_processes=1, queue_seconds=0.01)
    async with connected(gateway, "ann") as (ann, _), connected(gateway, "bob") as (bob, _):
        busy = asyncio.ensure_future(ann.call_tool("b_wait", returns=int))
        await until(lambda: command.waiting == 1)
        assert "Too many calls" in (await bob.call_tool("b_number_of_process")).text
        command.go_on.set()
        await busy


@pytest.mark.covers("GW-9.10")
async def test_many_callers_take_turns_with_few_processes() -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, revision=MODERN, isolation="principal", max_processes=2)
    names = [f"caller {each}" for each in range(6)]

    async def calls(name: str) -> None:
        async with connected(gateway, name) as (client, _):
            for _ in range(3):
                assert await number(client) > 0

    async with connected(gateway, "first"):
        await asyncio.gather(*(calls(each) for each in names))
        await until(lambda: len(command.running) <= 3)


@pytest.mark.covers("GW-9.10")
@ERAS
@pytest.mark.covers("GW-5.19")
async def test_a_process_that_nobody_uses_ends(back: str) -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, revision=back, isolation="principal", idle_seconds=0.02)
    async with connected(gateway, "ann") as (ann, _):
        first = await number(ann)
        await until(lambda: first not in command.running)
        assert len(command.running) == 1, "the process that reads the lists stays"
        assert await number(ann) > first


@cases(
    ("target", "options", "text"),
    [
        (Server("a"), {"isolation": "principal"}, "for a command"),
        ("https://back.example/mcp", {"isolation": "principal"}, "for a command"),
        (["command"], {"isolation": "user"}, "'shared' or 'principal' .got 'user'."),
        (["command"], {"max_processes": 0}, "max_processes must be at least 1 .got 0."),
        (["command"], {"idle_seconds": 0}, "idle_seconds must be above 0 .got 0."),
        (
            ["command"],
            {"isolation": "shared", "credentials": UserSecret(), "credential_variable": "KEY"},
            "cannot be shared",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(target: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        Gateway("front").add("b", target, **options)


# --- processes --------------------------------------------------------------------------------------------------------

#: A server before 2026-07-28 in few lines, which starts at once. `fork` leaves a process behind that holds no pipe.
CHILD = """
import json, os, subprocess, sys

def tool(name):
    if name == "crash":
        os._exit(3)
    if name == "fork":
        argv = [sys.executable, "-c", "import time; time.sleep(1000)"]
        pid = subprocess.Popen(argv, stdin=-3, stdout=-3, stderr=-3).pid
        return f"{os.getpid()} {pid}"
    return f"{os.getpid()} {sorted(each for each in os.environ if each.startswith('SECRET'))}"

info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "c", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        answer["result"] = info
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("who", "fork", "crash")]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": tool(asked["params"]["name"])}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"""


def is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return sys.platform != "linux"
    return status[0] != "Z"


@pytest.mark.covers("GW-9.10")
async def test_processes_of_principals_end_with_all_that_they_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setenv("SECRET_OF_THE_GATEWAY", "x")
    entry = {
        "command": sys.executable,
        "args": [str(script)],
        "env": {"SECRET_OF_THE_SERVER": "y"},
        "revision": "2025-11-25",
        "isolation": "principal",
        "idle_seconds": 0.3,
        "max_processes": 8,
    }
    gateway = gateway_of({"mcpServers": {"b": entry}})
    async with connected(gateway, "ann", "2025-11-25") as (ann, _), connected(gateway, "bob", "2025-11-25") as (bob, _):
        process, child = map(int, (await ann.call_tool("b_fork")).text.split())
        other, variables = (await bob.call_tool("b_who")).text.split(" ", 1)
        assert int(other) != process and variables == "['SECRET_OF_THE_SERVER']"
        assert (await bob.call_tool("b_crash")).is_error
        # Nobody calls any more: both processes end, and what one of them left behind.
        await until(lambda: not is_alive(process) and not is_alive(child) and not is_alive(int(other)))
