"""A server behind real sockets: where it listens, and how it comes to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cases import cases
from tests.http.serving_here import add_endless, make_server, serving
from tests.http_process import Connection, Served, call, connected, modern, post, started, text_of_call
from tests.wireclient import MODERN, modern_meta

from toolwire import Client, Context, Server
from toolwire.http import serving as http_server
from toolwire.http import uvicorn_end as http_host
from toolwire.protocol.errors import OutcomeUnknown, ServerError

pytestmark = pytest.mark.warm_start

ready_for_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


def get(*headers: str) -> bytes:
    return "\r\n".join(["GET /livez HTTP/1.1", *headers, "", ""]).encode()


@contextmanager
def listening(host: str, port: int = 0, *, public: bool = False) -> Iterator[list[socket.socket]]:
    sockets = http_server.listen(host, port, public=public)
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


# --- where it listens ---


@pytest.mark.covers("HTTP-3")
@cases("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_a_public_address_needs_to_be_wanted(host: str) -> None:
    with pytest.raises(ServerError, match="allow_unauthenticated"):
        Server("open").run("http", host=host, port=0)


def test_a_public_address_that_is_wanted() -> None:
    with listening("0.0.0.0", public=True) as sockets:
        port = sockets[0].getsockname()[1]
        assert http_server.url_of(sockets, "0.0.0.0", "/mcp") == f"http://127.0.0.1:{port}/mcp"


def test_all_addresses_of_a_name_have_the_same_port() -> None:
    with listening("localhost") as sockets:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert http_server.url_of(sockets, "localhost", "/") == f"http://localhost:{sockets[0].getsockname()[1]}/"


@pytest.mark.covers("J90")
def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with listening("127.0.0.1") as sockets:
        port = sockets[0].getsockname()[1]
        with pytest.raises(ServerError, match=f"^Port {port} of 127.0.0.1 is in use[^\n]*$"):
            Server("late").run("http", port=port)


@cases(
    ("options", "says"),
    [
        ({"host": "no such host.invalid"}, "not an address"),
        ({"port": 70000}, "not a port"),
        ({"port": "8000"}, "port"),
        ({"path": "mcp"}, "starts with a slash"),
        ({"public_url": "ftp://x"}, "public_url"),
        ({"workers": 0}, "at least one"),
        ({"allowed_hosts": "example.com"}, "allowed_hosts"),
        ({"colour": "red"}, "no option 'colour' for 'http'"),
        ({"log_level": "loud"}, "not a log level"),
    ],
)
def test_options_that_are_no_good_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ServerError, match=says):
        Server("picky").run("http", **{"port": 0, **options})


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(ServerError, match=r"^Serving HTTP needs httptools: pip install 'toolwire\[http\]'"):
        Server("bare").run("http", port=0)


def test_run_in_a_thread_and_stop_from_another() -> None:
    server = make_server()
    ready = threading.Event()
    urls: list[str] = []

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    with pytest.raises(ServerError, match="not running"):
        server.stop()
    for _ in range(2):
        ready.clear()
        thread = threading.Thread(target=lambda: server.run("http", port=0, on_ready=on_ready))
        thread.start()
        assert ready.wait(30)
        assert server.active
        with pytest.raises(ServerError, match="already running"):
            server.run("http", port=0)
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
    assert all(url.startswith("http://127.0.0.1:") and url.endswith("/mcp") for url in urls)


@pytest.mark.parametrize(("transport", "has_sse"), [("streamable-http", False), ("sse", True)])
def test_run_knows_the_names_of_other_libraries(transport: str, has_sse: bool) -> None:
    server = make_server()
    found: Queue[tuple[int, str | None]] = Queue()

    def look(url: str) -> None:
        try:
            address = urlsplit(url)
            connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
            connection.request("GET", "/sse", headers={"Accept": "text/event-stream"})
            response = connection.getresponse()
            found.put((response.status, response.getheader("content-type")))
            connection.close()
        finally:
            server.stop()

    server.run(transport=transport, port=0, on_ready=lambda url: threading.Thread(target=look, args=(url,)).start())
    status, content_type = found.get(timeout=30)
    assert (status == 200 and content_type == "text/event-stream") is has_sse


def test_a_lifespan_that_fails_is_raised_where_it_was_run() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise ConnectionError("the database is not there")
        yield

    with pytest.raises(ConnectionError, match="the database"):
        Server("broken", lifespan=broken).run("http", port=0)


# --- the end, in this process ---


STOPPED: dict[str, Any] = {
    "code": -32603,
    "message": "The server stopped before it answered; the request may have run",
    "data": {"mayHaveRun": True},
}


def add_lasting(server: Server) -> None:
    """Add tools that outlive the drain, each in its own way."""
    started: asyncio.Event = server.test_started  # type: ignore[attr-defined]
    loop = asyncio.get_running_loop()

    @server.tool
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "too late"

    @server.tool
    def blocking() -> str:
        loop.call_soon_threadsafe(started.set)
        time.sleep(0.5)
        return "too late"

    @server.tool
    async def reporting(ctx: Context) -> None:
        await ctx.progress(1, 2)
        started.set()
        await asyncio.Event().wait()


@pytest.mark.covers("FLT-44")
@pytest.mark.parametrize("tool", ["endless", "stubborn", "blocking", "reporting"])
@pytest.mark.parametrize("kind", ["modern", "stateless", "session"])
async def test_the_end_answers_calls_that_outlive_the_drain(kind: str, tool: str) -> None:
    server = make_server()
    cancelled = add_endless(server)
    add_lasting(server)
    params = {"name": tool, "arguments": {}, "_meta": {"progressToken": 7}}
    message = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
    async with serving(server, stateless=kind == "stateless") as port:
        connection = await _opened(port)
        if kind == "modern":
            params["_meta"] = {**modern_meta(), "progressToken": 7}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        else:
            headers = await open_session(port) if kind == "session" else {"MCP-Protocol-Version": "2025-06-18"}
        connection.send(post(json.dumps(message).encode(), headers))
        await server.test_started.wait()  # type: ignore[attr-defined]
    assert cancelled.is_set() is (tool == "endless")
    if tool == "reporting":
        status, _ = await connection.head()
        answer = [event async for event in connection.events()][-1]
    else:
        status, _, body = await connection.answer()
        answer = json.loads(body)
    # A proxy may repeat a request after 503, and this one may have run.
    assert (status, answer["id"], answer["error"]) == (200, 9, STOPPED)
    assert await connection.rest() == b""
    connection.writer.close()


async def test_the_end_answers_a_whole_batch_that_outlives_the_drain() -> None:
    server = make_server()
    add_endless(server)
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 2, "method": "missing"},
    ]
    async with serving(server, stateless=True) as port:
        connection = await _opened(port)
        connection.send(post(json.dumps(batch).encode(), {"MCP-Protocol-Version": "2025-03-26"}))
        await server.test_started.wait()  # type: ignore[attr-defined]
    status, _, body = await connection.answer()
    answers = {each["id"]: each["error"] for each in json.loads(body)}
    assert (status, answers[1], answers[2]["code"]) == (200, STOPPED, -32601)
    connection.writer.close()


async def test_the_end_lets_calls_finish() -> None:
    server = make_server()
    async with serving(server) as port:
        connection = await _opened(port)
        connection.send(call("wait"))
        await server.test_started.wait()  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_later(0.05, server.test_release.set)  # type: ignore[attr-defined]
    assert (await connection.answer())[0] == 200
    assert await connection.rest() == b""
    connection.writer.close()


async def _opened(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def test_ready_is_over_when_draining() -> None:
    server = make_server()
    application = server.http_app()
    sent: list[Any] = []

    async def ask() -> int:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": [(b"host", b"localhost")]}
        await application(scope, receive, send)
        status: int = sent[-2]["status"]
        return status

    assert await ask() == 200
    application.drain()
    assert await ask() == 503


SCRIPT = """
import asyncio, sys
from pathlib import Path
from toolwire import Limits, Server

server = Server("process", limits=Limits(drain={drain}))

def say(text):
    print(text, file=sys.stderr, flush=True)

@server.resource("note://today")
def today() -> str:
    return "sunny"

@server.tool
async def read(fifo: str) -> str:
    say("started")
    return await asyncio.to_thread(Path(fifo).read_text)

@server.tool
async def endless() -> str:
    say("started")
    try:
        await asyncio.Event().wait()
    finally:
        say("cancelled")
    return ""

app = server.http_app()
"""


RUN = """
if __name__ == "__main__":
    server.run("http", port=0)
"""


UVICORN = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir"]


LISTEN = modern("subscriptions/listen", {"notifications": {"resourcesListChanged": True}}, "subscription")


@asynccontextmanager
async def script(folder: Path, drain: float = 30.0) -> AsyncIterator[Served]:
    path = folder / "program.py"
    path.write_text(SCRIPT.format(drain=drain) + RUN, encoding="utf-8")
    async with started([sys.executable, path]) as served:
        yield served


@asynccontextmanager
async def under_uvicorn(folder: Path, *options: str) -> AsyncIterator[Served]:
    (folder / "program.py").write_text(SCRIPT.format(drain=30.0), encoding="utf-8")
    async with started([*UVICORN, folder, *options, "program:app"]) as served:
        yield served


async def listen(connection: Connection) -> AsyncIterator[Any]:
    connection.send(LISTEN)
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    events = connection.events()
    assert (await anext(events))["method"] == "notifications/subscriptions/acknowledged"
    return events


# --- the end, of a process ---


@ready_for_signals
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
async def test_a_signal_ends_streams_properly_and_the_process_with_zero(tmp_path: Path, number: str) -> None:
    async with script(tmp_path) as served, connected(served.port) as one, connected(served.port) as two:
        streams = [await listen(one), await listen(two)]
        served.signal(getattr(signal, number))
        for events in streams:
            rest = [event async for event in events]
            assert [event["id"] for event in rest] == ["subscription"]
            assert "result" in rest[0]
        assert await one.rest() == b""
        status, said = await served.end()
    assert status == 0
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


async def open_session(port: int) -> dict[str, str]:
    """Open a session of 2025-06-18, and return the headers of its requests."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with connected(port) as other:
        other.send(post(json.dumps(hello).encode()))
        status, headers, _ = await other.answer()
        assert status == 200
        session = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
        other.send(post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session))
        assert (await other.answer())[0] == 202
    return session


async def open_legacy_stream(port: int, connection: Connection) -> None:
    """Open a session, and its stream of what the server has to say."""
    session = await open_session(port)
    request = post(b"", session).replace(b"POST", b"GET", 1).replace(b"application/json, ", b"")
    connection.send(request)
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")


@ready_for_signals
@pytest.mark.parametrize("host", ["ours", "uvicorn"])
async def test_a_signal_ends_the_streams_of_sessions_properly(tmp_path: Path, host: str) -> None:
    serves = script if host == "ours" else under_uvicorn
    async with serves(tmp_path) as served, connected(served.port) as connection:
        await open_legacy_stream(served.port, connection)
        served.signal(signal.SIGTERM)
        # A stream that was cut off would have no end.
        assert [chunk async for chunk in connection.chunks() if b"data:" in chunk] == []
        status, said = await served.end()
    assert status == (0 if host == "ours" else -signal.SIGTERM)
    assert "Traceback" not in said


@ready_for_signals
async def test_a_call_in_flight_is_finished_and_nobody_new_is_let_in(tmp_path: Path) -> None:
    async with script(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        os.mkfifo(tmp_path / "fifo")
        connection.send(call("read", fifo=str(tmp_path / "fifo")))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note"
        await asyncio.to_thread((tmp_path / "fifo").write_text, "finished")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "finished")
        assert (await served.end())[0] == 0
        with pytest.raises(OSError):
            await _opened(served.port)


@ready_for_signals
async def test_a_call_that_does_not_finish_in_time_is_cancelled(tmp_path: Path) -> None:
    async with script(tmp_path, drain=0.1) as served, connected(served.port) as connection:
        connection.send(call("endless"))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    assert status == 0
    assert said.splitlines()[1:] == ["started", "cancelled"]


@ready_for_signals
async def test_the_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    async with script(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        connection.send(call("endless"))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note of the first"
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    assert status == -signal.SIGTERM
    assert "Traceback" not in said


# --- the same application under the user's own uvicorn ---


@ready_for_signals
@pytest.mark.parametrize("options", [(), ("--lifespan", "off"), ("--loop", "asyncio", "--http", "h11")])
async def test_under_uvicorn_a_signal_ends_streams_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    async with under_uvicorn(tmp_path, *options) as served, connected(served.port) as connection:
        events = await listen(connection)
        served.signal(signal.SIGTERM)
        rest = [event async for event in events]
        assert [event["id"] for event in rest] == ["subscription"]
        status, said = await served.end()
    assert status in (0, -signal.SIGTERM), "uvicorn raises the signal again in the end"
    assert "Traceback" not in said


@ready_for_signals
async def test_under_uvicorn_a_limit_on_requests_ends_streams_too(tmp_path: Path) -> None:
    options = ("--limit-max-requests", "1")
    async with under_uvicorn(tmp_path, *options) as served, connected(served.port) as connection:
        events = await listen(connection)
        async with connected(served.port) as other:
            other.send(get("Host: localhost"))
            assert (await other.answer())[0] == 200
        assert [event["id"] async for event in events] == ["subscription"]
        assert (await served.end())[0] == 0


@ready_for_signals
async def test_under_uvicorn_calls_are_finished(tmp_path: Path) -> None:
    async with under_uvicorn(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        os.mkfifo(tmp_path / "fifo")
        connection.send(call("read", fifo=str(tmp_path / "fifo")))
        while "started" not in await served.line():
            pass
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note"
        await asyncio.to_thread((tmp_path / "fifo").write_text, "finished")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "finished")


@pytest.mark.covers("FLT-44")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_call_that_outlives_the_drain_may_have_run_for_a_client(revision: str) -> None:
    server = make_server()
    add_endless(server)
    async with serving(server) as port:
        client = Client(f"http://127.0.0.1:{port}/mcp", revision=revision)
        await client.__aenter__()
        calling = asyncio.create_task(client.call_tool("endless"))
        await server.test_started.wait()  # type: ignore[attr-defined]
    with pytest.raises(OutcomeUnknown, match=STOPPED["message"]):
        await calling
    await client.close()


@ready_for_signals
async def test_under_uvicorn_calls_that_outlive_its_timeout_are_answered(tmp_path: Path) -> None:
    options = ("--timeout-graceful-shutdown", "1")
    async with under_uvicorn(tmp_path, *options) as served, connected(served.port) as connection:
        connection.send(call("endless"))
        while "started" not in await served.line():
            pass
        served.signal(signal.SIGTERM)
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["error"]) == (200, STOPPED)


async def test_no_signal_handler_is_touched_and_no_other_host_is_watched() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(make_server()) as port, connected(port) as connection:
        assert await text_of_call(connection, "echo", text="x") == "x"
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert http_host.find_uvicorn() is None
