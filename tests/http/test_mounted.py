"""The application inside applications of web frameworks: it starts, serves, and leaves its lifespan at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http.modernclient import ModernClient
from tests.http_process import Served, connected, modern, started

from toolwire import Server

pytestmark = pytest.mark.warm_start

ready_for_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

FILE = """
import sys
from contextlib import asynccontextmanager
from toolwire import Server

@asynccontextmanager
async def lifespan(server):
    print("entered", file=sys.stderr, flush=True)
    yield {"name": "notes"}
    # Not in a `finally`: an end that is no error reaches this place.
    print("left", file=sys.stderr, flush=True)

server = Server("notes", lifespan=lifespan)

@server.tool
async def name() -> str:
    return server.lifespan_value["name"]

mcp = server.http_app(path="/mcp")
"""

FRAMEWORKS = {
    "fastapi": "from fastapi import FastAPI\napp = FastAPI()\napp.mount('/ai', mcp)\n",
    "fastapi, led": "from fastapi import FastAPI\napp = FastAPI(lifespan=mcp.lifespan)\napp.mount('/ai', mcp)\n",
    "starlette": (
        "from starlette.applications import Starlette\nfrom starlette.routing import Mount\n"
        "app = Starlette(routes=[Mount('/ai', app=mcp)])\n"
    ),
    "starlette, led": (
        "from starlette.applications import Starlette\nfrom starlette.routing import Mount\n"
        "app = Starlette(routes=[Mount('/ai', app=mcp)], lifespan=mcp.lifespan)\n"
    ),
    "two of them": (
        "from fastapi import FastAPI\napp = FastAPI()\napp.mount('/ai', mcp)\n"
        "other = Server('other', lifespan=lifespan)\napp.mount('/other', other.http_app())\n"
    ),
}


@asynccontextmanager
async def under_uvicorn(folder: Path, framework: str, *options: str) -> AsyncIterator[Served]:
    (folder / "web.py").write_text(FILE + framework, encoding="utf-8")
    command = [sys.executable, "-m", "uvicorn", "web:app", "--app-dir", folder, "--port", "0", *options]
    async with started(command) as served:
        yield served


async def call(port: int, path: str = "/ai/mcp", tool: str = "name") -> tuple[int, bytes]:
    async with connected(port) as connection:
        connection.send(modern("tools/call", {"name": tool, "arguments": {}}).replace(b"/mcp", path.encode(), 1))
        status, _, body = await connection.answer()
        return status, body


@ready_for_signals
@pytest.mark.parametrize(
    ("framework", "options"),
    [
        *((each, ()) for each in FRAMEWORKS),
        ("fastapi", ("--loop", "asyncio", "--http", "h11")),
        ("fastapi", ("--limit-concurrency", "2")),
    ],
)
async def test_the_lifespan_is_left_when_the_host_ends(
    tmp_path: Path, framework: str, options: tuple[str, ...]
) -> None:
    async with under_uvicorn(tmp_path, FRAMEWORKS[framework], *options) as served:
        status, body = await call(served.port)
        assert (status, b"notes" in body) == (200, True)
        if framework == "two of them":
            await call(served.port, "/other/mcp", "none")
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    count = 2 if framework == "two of them" else 1
    assert (said.count("entered\n"), said.count("left\n")) == (count, count), said
    assert "Traceback" not in said
    assert status in (0, -signal.SIGTERM), "uvicorn raises the signal again in the end"


@ready_for_signals
async def test_a_call_is_finished_before_the_lifespan_is_left(tmp_path: Path) -> None:
    more = (
        "import asyncio, pathlib\n@server.tool\nasync def read(fifo: str) -> str:\n"
        "    print('started', file=sys.stderr, flush=True)\n"
        "    text = await asyncio.to_thread(pathlib.Path(fifo).read_text)\n"
        "    print('finished', file=sys.stderr, flush=True)\n    return text\n"
    )
    os.mkfifo(tmp_path / "fifo")
    async with under_uvicorn(tmp_path, FRAMEWORKS["fastapi"] + more) as served, connected(served.port) as connection:
        arguments = {"fifo": str(tmp_path / "fifo")}
        connection.send(modern("tools/call", {"name": "read", "arguments": arguments}).replace(b"/mcp", b"/ai/mcp", 1))
        while "started" not in await served.line():
            pass
        served.signal(signal.SIGTERM)
        while "Shutting down" not in await served.line():
            pass
        await asyncio.to_thread((tmp_path / "fifo").write_text, "text")
        assert (await connection.answer())[0] == 200
        _, said = await served.end()
    assert said.index("finished\n") < said.index("left\n")


def test_the_lifespan_is_left_properly_when_the_loop_ends() -> None:
    """Under a host that says nothing, and that cancels what is left on its loop, as `asyncio.run` does."""
    said: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        said.append("entered")
        yield
        await asyncio.sleep(0)
        said.append("left")

    server = Server("notes", lifespan=lifespan)

    @server.tool
    async def name() -> str:
        return "notes"

    async def host() -> None:
        answer = await ModernClient(server.http_app()).call("name")
        assert answer.status == 200

    asyncio.run(host())
    assert said == ["entered", "left"]


class FakeUvicorn:
    """A uvicorn that a program runs without signal handlers, such as in a thread."""

    def __init__(self) -> None:
        self.should_exit = False
        self.server_state = self
        self.servers: list[Any] = []
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()


async def test_a_program_can_name_the_uvicorn_that_runs_the_application() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        left.append("left")

    server = Server("notes", lifespan=lifespan)
    app = server.http_app()
    app.uvicorn = host = FakeUvicorn()
    client = ModernClient(app)
    stream = await client.listen(toolsListChanged=True)
    host.connections.add(stream)
    host.should_exit = True
    await stream.finished()
    (last,) = host.tasks
    assert left == [], "a connection is still open"
    host.connections.clear()
    await last
    assert left == ["left"]
    await client.close()
