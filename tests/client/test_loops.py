"""Which event loops clients and servers share, in every situation and over every transport."""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Client, Server
from toolwire.client import sync
from toolwire.protocol.errors import ServerError, Unreachable

SERVER = """
from toolwire import Server

server = Server("adder", tasks=True)

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""
KINDS = ("in memory", "stdio", "http")
CONNECTED = "is connected on another event loop. A server with upstreams runs on one loop at a time"


def adder() -> Server:
    found: dict[str, Any] = {}
    exec(SERVER, found)
    server: Server = found["server"]
    return server


@contextmanager
def over_http() -> Iterator[str]:
    """Run a server in a thread with a loop of its own; gives its address."""
    server, address = adder(), queue.Queue[str]()
    thread = threading.Thread(target=lambda: server.run("http", port=0, on_ready=address.put))
    thread.start()
    try:
        yield address.get(timeout=30)
    finally:
        server.stop()
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with over_http() as address:
        yield address


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "in memory":
        return adder()
    if request.param == "http":
        return request.getfixturevalue("address")
    file = tmp_path / "adder.py"
    file.write_text(SERVER + "\nserver.run()\n")
    return str(file)


async def added(target: Any) -> int:
    async with Client(target) as client:
        return await client.call_tool("add", {"a": 1, "b": 2}, returns=int)


def added_blocking(target: Any) -> int:
    with sync.Client(target) as client:
        return client.call_tool("add", {"a": 1, "b": 2}, returns=int)


# --- The situations: each gives the sums that its clients were told ---


def an_async_client(target: Any) -> list[int]:
    return [asyncio.run(added(target))]


def a_blocking_client(target: Any) -> list[int]:
    return [added_blocking(target)]


def a_blocking_client_beside_a_loop(target: Any) -> list[int]:
    async def main() -> int:
        return await asyncio.to_thread(added_blocking, target)

    return [asyncio.run(main())]


def a_blocking_client_that_holds_up_a_loop(target: Any) -> list[int]:
    async def main() -> int:
        return added_blocking(target)

    return [asyncio.run(main())]


def two_blocking_clients(target: Any) -> list[int]:
    with sync.Client(target) as client:
        sums = [added_blocking(target)]
        assert [each.name for each in threading.enumerate()].count("toolwire-client") == 1
        return [*sums, client.call_tool("add", {"a": 3, "b": 4}, returns=int)]


def two_blocking_clients_in_two_threads(target: Any) -> list[int]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(added_blocking, (target, target)))


def a_blocking_client_in_a_plain_handler(target: Any) -> list[int]:
    outer = Server("outer")

    @outer.tool
    def call() -> int:
        return added_blocking(target)

    with sync.Client(outer) as client:
        return [client.call_tool("call", returns=int)]


def one_loop_after_another(target: Any) -> list[int]:
    return [
        asyncio.run(added(target)),
        added_blocking(target),
        asyncio.run(added(target)),
        added_blocking(target),
    ]


def a_client_that_is_connected_again(target: Any) -> list[int]:
    client = sync.Client(target)
    sums = []
    for _ in range(2):
        with client:
            sums.append(client.call_tool("add", {"a": 1, "b": 2}, returns=int))
    return sums


SITUATIONS: dict[Callable[[Any], list[int]], list[int]] = {
    an_async_client: [3],
    a_blocking_client: [3],
    a_blocking_client_beside_a_loop: [3],
    a_blocking_client_that_holds_up_a_loop: [3],
    two_blocking_clients: [3, 7],
    two_blocking_clients_in_two_threads: [3, 3],
    a_blocking_client_in_a_plain_handler: [3],
    one_loop_after_another: [3, 3, 3, 3],
    a_client_that_is_connected_again: [3, 3],
}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_what_works(situation: Callable[[Any], list[int]], target: Any) -> None:
    assert situation(target) == SITUATIONS[situation]
    assert "toolwire-client" not in {thread.name for thread in threading.enumerate()}


# --- A server that runs in another thread ---


class Elsewhere:
    """A thread whose loop has a client of a target open until the end of the block."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._opened, self._close = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._hold()))

    async def _hold(self) -> None:
        async with Client(self._target) as client:
            await client.ping()
            self._opened.set()
            await asyncio.to_thread(self._close.wait)

    def __enter__(self) -> Elsewhere:
        self.thread.start()
        assert self._opened.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._close.set()
        self.thread.join()


def test_a_blocking_client_while_another_thread_uses_the_server(target: Any) -> None:
    with Elsewhere(target):
        assert added_blocking(target) == 3


async def test_a_blocking_client_is_handed_to_the_loop_of_its_server() -> None:
    server, here = Server("s"), threading.current_thread()

    @server.tool
    async def is_here() -> bool:
        return threading.current_thread() is here

    def elsewhere() -> bool:
        with sync.Client(server) as client:
            assert "toolwire-client" not in {thread.name for thread in threading.enumerate()}
            return client.call_tool("is_here", returns=bool)

    async with Client(server):
        assert server.loop is asyncio.get_running_loop()
        assert await asyncio.to_thread(elsewhere)
    assert server.loop is None


@pytest.mark.parametrize("has_upstream", [False, True])
async def test_blocking_client_moves_only_to_a_server_with_upstreams_that_begins_to_run_meanwhile(
    has_upstream: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, home_for = Server("front").mount(address) if has_upstream else adder(), sync._home_for
    chosen = queue.Queue[bool]()

    def too_early(client: Client) -> Any:
        home = home_for(client)
        chosen.put(home.is_shared)
        if home.is_shared:
            asyncio.run_coroutine_threadsafe(other.connect(), here).result()
        return home

    monkeypatch.setattr(sync, "_home_for", too_early)
    here, other = asyncio.get_running_loop(), Client(server)
    assert await asyncio.to_thread(added_blocking, server) == 3
    assert [chosen.get_nowait() for _ in range(chosen.qsize())] == ([True, False] if has_upstream else [True])
    await other.close()


def test_a_server_on_a_loop_that_stands_still() -> None:
    server, loop = adder(), asyncio.new_event_loop()
    client = Client(server)
    loop.run_until_complete(client.connect())
    with pytest.raises(Unreachable, match="belongs to an event loop that stands still"):
        added_blocking(server)
    assert asyncio.run(added(server)) == 3
    loop.run_until_complete(client.close())
    assert added_blocking(server) == 3
    loop.close()


def test_two_loops_at_once(target: Any) -> None:
    with Elsewhere(target):
        assert asyncio.run(added(target)) == 3
    assert asyncio.run(added(target)) == 3


def test_server_with_upstreams_is_refused_on_a_second_loop(address: str) -> None:
    server = Server("front").mount(address)
    with Elsewhere(server):
        with pytest.raises(Unreachable, match=CONNECTED):
            asyncio.run(added(server))
        assert added_blocking(server) == 3, "the first loop is none the worse for it"
    assert asyncio.run(added(server)) == 3


def call_tool(server: Server) -> Any:
    return server.call_tool("add", {"a": 1, "b": 2})


def process(server: Server) -> Any:
    return server.process(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')


def create_task(server: Server) -> Any:
    return server.tasks.create(ttl=60)


async def handle_http(server: Server) -> None:
    async with server.http_app().lifespan():
        return


@cases("use", [call_tool, process, handle_http])
def test_every_other_way_in_works_on_a_second_loop(use: Callable[[Server], Any]) -> None:
    server = adder()

    async def second() -> None:
        await use(server)

    with Elsewhere(server):
        asyncio.run(second())
        assert added_blocking(server) == 3, "the first loop is none the worse for it"
    asyncio.run(second())


def test_task_of_the_program_is_refused_on_a_loop_that_does_not_run_the_server() -> None:
    server = adder()

    async def second() -> None:
        await create_task(server)

    with Elsewhere(server), pytest.raises(ServerError, match="runs on another event loop"):
        asyncio.run(second())
    asyncio.run(second())


# --- Waiting that would never end ---


def test_a_blocking_client_in_an_async_handler_on_its_own_loop(target: Any) -> None:
    outer, refused = Server("outer"), []

    @outer.tool
    async def call() -> None:
        try:
            added_blocking(target)
        except RuntimeError as error:
            refused.append(str(error))

    with sync.Client(outer) as client:
        client.call_tool("call")
        client.call_tool("call")
    assert len(refused) == 2
    assert "would wait for itself" in refused[0]
    assert "await it, or use the blocking client in a thread" in refused[0]


async def test_a_blocking_client_on_the_loop_of_its_server() -> None:
    server = adder()
    async with Client(server):
        with pytest.raises(RuntimeError, match="would wait for itself"):
            added_blocking(server)


def test_a_client_whose_loop_has_ended() -> None:
    server = adder()
    client = sync.Client(server)
    with Elsewhere(server):
        client.connect()
        assert client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
    with pytest.raises(Unreachable, match=r"has ended: connect\(\) again"):
        client.ping()
    with client.connect():
        assert client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
    client.close()


def test_a_call_whose_loop_ends_meanwhile() -> None:
    server, began = Server("s"), threading.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        await asyncio.Event().wait()

    client = sync.Client(server)
    with ThreadPoolExecutor(1) as threads:
        with Elsewhere(server):
            client.connect()
            call = threads.submit(client.call_tool, "hold")
            assert began.wait(30)
        with pytest.raises(Unreachable):
            call.result(30)
    client.close()


@pytest.mark.parametrize("closes", [False, True], ids=["stopped", "closed"])
def test_a_call_whose_loop_stops_without_a_word(closes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "LOOK_SECONDS", 0.01)
    loop = asyncio.new_event_loop()
    home = sync._Home(loop)
    loop.run_until_complete(asyncio.sleep(0))
    if closes:
        loop.close()

    async def work() -> None:
        return

    waiting = work()
    with pytest.raises(Unreachable, match="has ended"):
        home.wait(waiting)
    if not closes:
        loop.run_until_complete(asyncio.sleep(0))  # It is cancelled before its first step.
        waiting.close()
        loop.close()


# --- Processes that fork ---

FORKS = """
import asyncio, os, sys
from toolwire.client import sync
from toolwire.protocol.errors import Unreachable

exec(open(sys.argv[1]).read().removesuffix("server.run()\\n"))

@server.tool
def plain(a: int, b: int) -> int:
    return a + b

target = {"in memory": server, "stdio": sys.argv[1]}.get(sys.argv[2], sys.argv[2])
tool = "plain" if target is server else "add"

def used(client):
    return client.call_tool(tool, {"a": 1, "b": 2}, returns=int)

client = sync.Client(target).connect()
assert used(client) == 3
child = os.fork()
if not child:
    try:
        client.ping()
    except Unreachable as error:
        assert "connected before this process was forked" in str(error), error
    else:
        os._exit(2)
    with sync.Client(target) as another:
        assert used(another) == 3
        with client.connect():
            assert used(client) == 3
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert used(client) == 3
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fork(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file, script = tmp_path / "adder.py", tmp_path / "forks.py"
    file.write_text(SERVER + "\nserver.run()\n")
    script.write_text(FORKS)
    where = request.getfixturevalue("address") if kind == "http" else kind
    # Python 3.12 and later warn of a fork beside threads, which is what happens here.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), str(file), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
