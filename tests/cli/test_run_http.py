"""`toolwire run --transport http`, as one process and as several."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http_process import Connection, Served, connected, modern, started, text_of_call
from tests.redis_server import running as redis_running

from toolwire.cli import main, run
from toolwire.server.http_options import HttpSettings

SERVER = """
import asyncio, os, sys
from pathlib import Path
from toolwire import Context, Limits, Server

server = Server("from the command line", limits=Limits(drain={drain}))
print("chatter at import")

@server.tool
async def process() -> int:
    return os.getpid()

@server.tool
async def remember(key: str, value: str) -> int:
    await server.stores.kv.put(key, value.encode())
    return os.getpid()

@server.tool
async def recall(key: str) -> str:
    return (await server.stores.kv.get(key) or b"nothing").decode()

@server.tool
async def seal() -> str:
    return server.kernel.questions.sealer.seal(b"payload", b"test")

@server.tool
async def unseal(token: str) -> str:
    return server.kernel.questions.sealer.open(token, b"test").decode()

@server.tool
async def crash() -> str:
    os._exit(3)

@server.tool
async def endless() -> str:
    print("started", os.getpid(), file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    return ""

@server.tool
async def touch(uri: str) -> int:
    server.notify_updated(uri)
    return os.getpid()

@server.resource("note://today")
def today() -> str:
    return "sunny"
"""


def write(folder: Path, more: str = "", drain: float = 30.0) -> Path:
    path = folder / "my_server.py"
    path.write_text(SERVER.format(drain=drain) + more, encoding="utf-8")
    return path


@asynccontextmanager
async def running(file: Path, *options: str, environment: dict[str, str] | None = None) -> AsyncIterator[Served]:
    command = [sys.executable, "-m", "toolwire", "run", file, "--transport", "http", "--port", "0", *options]
    async with started(command, environment) as served:
        yield served


async def ask(port: int, tool: str, **arguments: Any) -> str:
    """One call on a connection of its own."""
    async with connected(port) as connection:
        return await text_of_call(connection, tool, **arguments)


# --- one process --------------------------------------------------------------------------------------


@pytest.mark.covers("J90")
async def test_it_says_where_it_serves_and_serves_there(tmp_path: Path) -> None:
    async with running(write(tmp_path), "--path", "/tools") as served:
        assert served.said == [f"toolwire: serving at http://127.0.0.1:{served.port}/tools (Ctrl+C ends it)\n"]
        async with connected(served.port) as connection:
            connection.send(modern("tools/call", {"name": "process", "arguments": {}}).replace(b"/mcp", b"/tools", 1))
            status, _, body = await connection.answer()
            assert (status, json.loads(body)["result"]["structuredContent"]) == (200, served.pid)
        served.signal(signal.SIGINT)
        assert (await served.end())[0] == 0


async def test_names_that_a_proxy_uses_can_be_allowed(tmp_path: Path) -> None:
    options = ("--allowed-hosts", "notes", "--allowed-hosts", "other")
    async with running(write(tmp_path), *options) as served, connected(served.port) as connection:
        for host, expected in ((b"notes:8000", 200), (b"other", 200), (b"evil.example", 421)):
            call = modern("tools/call", {"name": "process", "arguments": {}})
            connection.send(call.replace(b"Host: localhost", b"Host: " + host, 1))
            assert (await connection.answer())[0] == expected


@pytest.mark.parametrize("option", ["--allowed-origins", "--cors"])
async def test_web_pages_can_be_allowed(tmp_path: Path, option: str) -> None:
    options = (option, "https://app.example", option, "https://other.example")
    async with running(write(tmp_path), *options) as served, connected(served.port) as connection:
        for origin, expected in ((b"https://app.example", 204), (b"https://other.example", 204), (b"https://x.y", 403)):
            connection.send(b"OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin + b"\r\n\r\n")
            status, headers, _ = await connection.answer()
            allowed = headers.get("access-control-allow-origin", "").encode()
            assert (status, allowed) == (expected, origin if expected == 204 else b"")


async def test_transports_of_old_clients_can_be_chosen(tmp_path: Path) -> None:
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}).encode()
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for options, has_session, sse in (((), True, 404), (("--stateless", "--sse"), False, 405)):
        async with running(write(tmp_path), *options) as served:
            async with connected(served.port) as connection:
                connection.send(head % len(body) + body)
                status, headers, _ = await connection.answer()
                assert (status, "mcp-session-id" in headers) == (200, has_session)
            async with connected(served.port) as connection:
                connection.send(b"HEAD /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await connection.head())[0] == sse


def test_a_proxy_is_named_by_its_address(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolwire", "run", write(tmp_path), "--transport", "http"]
    failed = subprocess.run([*command, "--trusted-proxies", "proxy.example"], capture_output=True, text=True)
    assert failed.returncode == 1
    assert "trusted_proxies= has addresses and networks such as 10.0.0.0/8, not 'proxy.example'" in failed.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_each_request_is_a_line_of_the_access_log(tmp_path: Path, workers: str) -> None:
    """More of them than the log shows of any other message."""
    async with running(write(tmp_path), "--access-log", "--workers", workers) as served:
        async with connected(served.port) as connection:
            for _ in range(25):
                await text_of_call(connection, "process")
            connection.send(b"GET /nothing?token=secret HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await connection.answer())[0] == 404
        served.signal(signal.SIGTERM)
        _, said = await served.end()
    lines = re.findall(r"info +toolwire\.access: (.*)", said)
    assert len(lines) == 26
    assert re.fullmatch(r'127\.0\.0\.1 "POST /mcp" 200 \d+\.\d ms tools/call process', lines[0])
    assert re.fullmatch(r'127\.0\.0\.1 "GET /nothing" 404 \d+\.\d ms', lines[25])
    assert "secret" not in said


@pytest.mark.parametrize(("option", "shown"), [((), False), (("--log-level", "info"), True)])
async def test_the_level_of_the_log_is_chosen(tmp_path: Path, option: tuple[str, ...], shown: bool) -> None:
    async with running(write(tmp_path), *option) as served:
        served.signal(signal.SIGTERM)
        _, said = await served.end()
    assert ("info      toolwire.http: serving from the command line at" in said) is shown


def toolwire(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolwire", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


async def test_stores_that_are_named_outlive_the_process(tmp_path: Path) -> None:
    file, stores = write(tmp_path), str(tmp_path / "state.db")
    async with running(file, "--stores", stores) as served:
        await ask(served.port, "remember", key="a", value="kept")
    async with running(file, environment={"TOOLWIRE_STORES": stores}) as served:
        assert await ask(served.port, "recall", key="a") == "kept"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_is_not_reached_is_named_without_its_password(tmp_path: Path, workers: str) -> None:
    address = "redis://:hunter2@127.0.0.1:1/0?timeout=0.1"
    at_once = ("--workers", workers, "--stores", address, "--stores-wait", "0")
    done = toolwire(write(tmp_path), "--transport", "http", "--port", "0", *at_once)
    assert done.returncode == 1
    assert "The store redis://127.0.0.1:1/0 cannot be used: it is not reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_start_waits_for_a_store_that_is_not_there_yet(tmp_path: Path, workers: str) -> None:
    with redis_running() as redis:
        redis.kill()
        command = [sys.executable, "-m", "toolwire", "run", write(tmp_path), "--transport", "http", "--port", "0"]
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            *("--workers", workers, "--stores", f"{redis.url}?timeout=0.3"),
            stderr=asyncio.subprocess.PIPE,
        )
        served = Served(process)
        try:
            while "waiting for the store, up to 60 seconds" not in (line := await served.line()):
                assert line
            redis.start()
            await served.find_address()
            assert await ask(served.port, "recall", key="a") == "nothing"
        finally:
            process.terminate()
            await served.end()


@pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")
def test_the_start_does_not_wait_for_what_waiting_does_not_change(tmp_path: Path) -> None:
    with redis_running("--requirepass", "right") as redis:
        done = toolwire(write(tmp_path), "--transport", "http", "--port", "0", "--stores", redis.url)
    assert done.returncode == 1
    assert "it does not accept the user name and password of its address" in done.stderr
    assert "waiting" not in done.stderr


def test_an_address_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    done = toolwire(write(tmp_path), "--stores", "redis://:hunter/2@host/0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("toolwire: The address of the store is not one of a Redis: write it as redis://")
    assert "hunter" not in done.stderr


async def test_a_file_that_runs_its_server_says_where(tmp_path: Path) -> None:
    file = tmp_path / "served.py"
    file.write_text("from toolwire import Server\nServer('served').run('http', port=0)\n")
    async with started([sys.executable, file]) as served:
        assert f"serving served at http://127.0.0.1:{served.port}/mcp" in served.said[-1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_one_line_and_status_one(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = toolwire(write(tmp_path), "--transport", "http", "--port", port, "--workers", workers)
    assert done.returncode == 1
    assert done.stderr.startswith(f"toolwire: Port {port} of 127.0.0.1 is in use")
    assert done.stderr.count("\n") == 1


def test_a_public_address_is_refused_in_one_line(tmp_path: Path) -> None:
    done = toolwire(write(tmp_path), "--transport", "http", "--host", "0.0.0.0")
    assert done.returncode == 1
    assert "--allow-unauthenticated" in done.stderr
    assert done.stderr.count("\n") == 1


def test_options_of_http_are_no_options_of_stdio(tmp_path: Path) -> None:
    done = toolwire(write(tmp_path), "--port", "8000")
    assert (done.returncode, done.stderr) == (2, "toolwire: --port is for --transport http\n")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--port", "99999", "'99999' is not a port: give a number from 0 to 65535"),
        ("--port", "-1", "'-1' is not a port"),
        ("--path", "mcp", "the path of an endpoint starts with a slash, not 'mcp'"),
        ("--public-url", "notaurl", "public_url must be an http or https address, not 'notaurl'"),
        ("--workers", "0", "'0' is not a count: give a whole number of at least 1"),
    ],
)
def test_values_that_cannot_be_meant_are_status_two(
    option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "server.py", "--transport", "http", f"{option}={value}"]) == 2
    assert f"toolwire: argument {option}: {says}" in capsys.readouterr().err


# --- several processes --------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="several workers need fork")


async def in_every_worker(port: int, count: int, tool: str, **arguments: Any) -> set[str]:
    """Call a tool until it has run in so many processes; it returns the number of its process."""
    seen: set[str] = set()
    held: list[Connection] = []
    while len(seen) < count:
        # Connections that stay open make the others look for more.
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        held.append(connection)
        seen.add(await text_of_call(connection, tool, **arguments))
    for connection in held:
        connection.writer.close()
    return seen


@forks
async def test_workers_share_sockets_stores_and_the_key(tmp_path: Path) -> None:
    state = tmp_path / "tmp"
    state.mkdir()
    async with running(write(tmp_path), "--workers", "3", environment={"TMPDIR": str(state)}) as served:
        workers = await in_every_worker(served.port, 3, "process")
        assert str(served.pid) not in workers
        [folder] = state.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "state.db").stat().st_mode & 0o777 == 0o600
        for number in range(20):
            await ask(served.port, "remember", key=str(number), value=f"value {number}")
        for number in range(20):
            assert await ask(served.port, "recall", key=str(number)) == f"value {number}"
            token = await ask(served.port, "seal")
            assert await ask(served.port, "unseal", token=token) == "payload"
        served.signal(signal.SIGTERM)
        status, said = await served.end()
        assert (status, said.count("\n")) == (0, 1)
        assert list(state.iterdir()) == []


@forks
async def test_what_happens_in_one_worker_is_heard_in_the_others(tmp_path: Path) -> None:
    listen = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://today"]}}, "s")
    async with running(write(tmp_path), "--workers", "2") as served, AsyncExitStack() as stack:
        streams = []
        for _ in range(4):
            connection = await stack.enter_async_context(connected(served.port))
            connection.send(listen)
            assert (await connection.head())[0] == 200
            streams.append(connection.events())
            assert (await anext(streams[-1]))["method"] == "notifications/subscriptions/acknowledged"
        await in_every_worker(served.port, 2, "touch", uri="note://today")
        for events in streams:
            for _ in range(2):
                assert (await anext(events))["method"] == "notifications/resources/updated"
        served.signal(signal.SIGTERM)
        for events in streams:
            assert [event async for event in events][-1]["id"] == "s"
        assert (await served.end())[0] == 0


@forks
async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async with running(write(tmp_path), "--workers", "2") as served:
        before = await in_every_worker(served.port, 2, "process")
        async with connected(served.port) as connection:
            victim = int(await text_of_call(connection, "process"))
            os.kill(victim, signal.SIGKILL)
            assert f"worker {victim} ended with status -9" in await served.line()
        async with connected(served.port) as connection:
            connection.send(modern("tools/call", {"name": "crash", "arguments": {}}))
            assert await connection.rest() == b""
            assert "ended with status 3" in await served.line()
        after: set[str] = set()
        while len(after - before) < 2:
            after |= await in_every_worker(served.port, 1, "process")
        served.signal(signal.SIGTERM)
        assert (await served.end())[0] == 0


@forks
async def test_workers_that_cannot_start_are_not_tried_again(tmp_path: Path) -> None:
    more = """
from contextlib import asynccontextmanager

@asynccontextmanager
async def broken(server):
    raise ConnectionError("the database is not there")
    yield

server.lifespan = broken
"""
    done = toolwire(write(tmp_path, more), "--transport", "http", "--port", "0", "--workers", "2")
    assert done.returncode == 1
    assert "the database is not there" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("toolwire: A worker ended before it could serve")


@forks
async def test_a_signal_to_the_whole_group_does_not_hurry_the_workers(tmp_path: Path) -> None:
    async with running(write(tmp_path, drain=0.3), "--workers", "2") as served, connected(served.port) as connection:
        connection.send(modern("tools/call", {"name": "endless", "arguments": {}}))
        worker = int((await served.line()).split()[1])
        # As a terminal does: everyone gets it, and then the parent's own on top.
        os.kill(worker, signal.SIGINT)
        served.signal(signal.SIGINT)
        status, said = await served.end()
    assert status == 0
    assert "Traceback" not in said
    assert "ended with status" not in said


@forks
async def test_the_second_signal_kills(tmp_path: Path) -> None:
    state = tmp_path / "tmp"
    state.mkdir()
    environment = {"TMPDIR": str(state)}
    async with (
        running(write(tmp_path), "--workers", "2", environment=environment) as served,
        connected(served.port) as connection,
        connected(served.port) as idle,
    ):
        assert await text_of_call(idle, "process")
        connection.send(modern("tools/call", {"name": "endless", "arguments": {}}))
        await served.line()
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "the first has been taken note of"
        served.signal(signal.SIGTERM)
        assert (await served.end())[0] == -signal.SIGTERM
    assert list(state.iterdir()) == []


@forks
async def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "tmp"
    state.mkdir()
    environment = {"TMPDIR": str(state)}
    async with running(write(tmp_path), "--workers", "2", environment=environment) as served:
        await in_every_worker(served.port, 2, "process")
        served.signal(signal.SIGKILL)
        # They hold the other end of standard error: it ends when the last of them does.
        await served.end()
    assert list(state.iterdir()) == []


@forks
async def test_given_stores_are_used(tmp_path: Path) -> None:
    more = f"""
from toolwire.stores.sqlite import SqliteStores
server = Server("kept", tools=[process, remember, recall], stores=SqliteStores({str(tmp_path / "kept.db")!r}))
"""
    for expected in ("nothing", "here"):
        async with running(write(tmp_path, more), "--workers", "2") as served:
            assert await ask(served.port, "recall", key="a") == expected
            await ask(served.port, "remember", key="a", value="here")
            served.signal(signal.SIGTERM)
            assert (await served.end())[0] == 0


@forks
def test_several_workers_need_the_main_thread() -> None:
    code = (
        "import threading; from toolwire import Server; from toolwire.protocol.errors import ServerError\n"
        "def run():\n"
        "    try: Server('s').run('http', port=0, workers=2)\n"
        "    except ServerError as error: print(error)\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert "main thread" in done.stdout


def test_each_setting_has_an_option_that_is_left_out_by_default() -> None:
    parser = argparse.ArgumentParser()
    run.add_http_arguments(parser)
    assert vars(parser.parse_args([])) == dict.fromkeys({*HttpSettings.__struct_fields__} - {"log_level"})
    given = parser.parse_args(["--port", "0", "--cors", "*", "--cors", "https://a.example", "--sse"])
    assert run.http_options(given) == {"port": 0, "allowed_origins": ["*", "https://a.example"], "sse": True}
