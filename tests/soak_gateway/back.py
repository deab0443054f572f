"""A server behind the gateway of `make soak-gateway`: a process over HTTP, or a child of the gateway over stdio.

Each handler notes its beginning and its end in one file for all servers, with the number that the client gave to the
call. Each result repeats the token of the call. Over HTTP, SIGUSR1 makes the server answer everything with 500 and
SIGUSR2 ends that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from toolwire import Context, Limits, Server

FOLDER = Path(os.environ["SOAK_FOLDER"])
NAME = os.environ["SOAK_BACK"]
#: How many times `steps` reports its progress.
STEPS = 3

# All requests come from one address, that of the gateway. What is over goes soon, so that a short run sees it go.
server = Server(NAME, limits=Limits(share=1.0, session_idle=60.0, task_ttl=60.0, task_poll=0.2))
notes = os.open(FOLDER / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(what: str, number: int) -> None:
    """Append one line by one system call, so that the lines of several processes stay whole."""
    os.write(notes, f"{what} {number}\n".encode())


@server.tool
async def echo(number: int, token: str) -> str:
    note("begin", number)
    note("end", number)
    return token


@server.tool
async def steps(number: int, token: str, ctx: Context, pause: float = 0.05) -> str:
    """Report progress, so that the answer is a stream."""
    note("begin", number)
    for step in range(1, STEPS + 1):
        await ctx.progress(step, total=STEPS)
        await asyncio.sleep(pause)
    note("end", number)
    return token


@server.tool
async def ask(number: int, ctx: Context) -> str:
    """Ask twice. The client knows the token of the call; nobody else does."""
    first = await ctx.elicit(f"The first half of {number}?", str)
    second = await ctx.elicit(f"The second half of {number}?", str)
    note("begin", number)
    note("end", number)
    return f"{first.data}{second.data}"


@server.tool(task="optional")
async def work(number: int, token: str, seconds: float) -> str:
    note("begin", number)
    await asyncio.sleep(seconds)
    note("end", number)
    return token


@server.tool
async def hold(number: int, ctx: Context) -> str:
    """Report that it runs, and wait until it is cancelled."""
    note("begin", number)
    try:
        await ctx.progress(1)
        await asyncio.Event().wait()
    finally:
        note("cancelled", number)
    return "never"


@server.tool
async def account(number: int) -> str:
    """Return the secret of the user whose account this process has."""
    note("begin", number)
    note("end", number)
    return os.environ.get("SOAK_ACCOUNT", "nobody")


@server.tool
async def touch(item: str) -> str:
    server.notify_updated(f"{NAME}://{item}")
    return item


@server.resource(f"{NAME}://{{item}}")
def item(item: str) -> str:
    return item


@server.prompt
def greeting(token: str) -> str:
    return token


class Failing:
    """An ASGI application that answers 500 while it is told to."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.fails = False

    def switch(self, number: int, frame: Any) -> None:
        self.fails = number == signal.SIGUSR1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self.fails or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"out of order"})


def serve_http(port: int) -> None:
    import uvicorn

    app = Failing(server.http_app())
    signal.signal(signal.SIGUSR1, app.switch)
    signal.signal(signal.SIGUSR2, app.switch)
    uvicorn.run(app, port=port, log_level="warning", timeout_keep_alive=75)


if __name__ == "__main__":
    server.run("stdio") if len(sys.argv) == 1 else serve_http(int(sys.argv[1]))
