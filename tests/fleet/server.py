"""The server that every replica of the fleet runs. `tests/fleet/replicas.py` starts it with `toolwire run`.

Each handler of a task notes its beginning and its end in a file that all replicas append to. A note names the number
that the client gave to the task, the replica, and a token of this run of the handler. The same token is the status
message of the task and part of its result, so that the harness sees which run wrote what.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path

from toolwire import Context, Limits, Server
from toolwire.auth import Anonymous, ApiKeys
from toolwire.stores.redis import RedisStores
from toolwire.stores.sqlite import SqliteStores
from toolwire.wire import process_identity

FOLDER = Path(os.environ["FLEET_FOLDER"])
REPLICA = os.environ["FLEET_REPLICA"]
#: Whether no replica sees the processes of the others, as on machines of their own.
APART = bool(os.environ.get("FLEET_APART"))
IDEMPOTENT = {"idempotentHint": True}

if APART:
    process_identity.own_machine = lambda: f"{REPLICA}-{os.getpid()}"

#: Whether each replica has several processes, whose notes have names of their own.
WORKERS = bool(os.environ.get("FLEET_WORKERS"))
ADDRESS = os.environ["FLEET_STORES"]

server = Server(
    "fleet",
    auth=[ApiKeys({os.environ["FLEET_KEY"]: "fleet"}), Anonymous()],
    stores=(RedisStores if "://" in ADDRESS else SqliteStores)(
        ADDRESS,
        max_items=1_000_000,
        max_bytes=1024 * 1024 * 1024,
    ),
    limits=Limits(
        share=1.0,
        tasks=200_000,
        tasks_running=int(os.environ.get("FLEET_SLOTS", "1000")),
        task_poll=0.5,
    ),
)

notes = os.open(FOLDER / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
gate = FOLDER / "gate"


def note(what: str, number: int, token: str) -> None:
    """Append one line by one system call, so that the lines of several processes stay whole."""
    name = f"{REPLICA}-{os.getpid()}" if WORKERS else REPLICA
    os.write(notes, f"{what} {number} {name} {token} {time.monotonic():.3f}\n".encode())


# --- tasks ---


async def work(number: int, seconds: float, ctx: Context) -> str:
    token = secrets.token_hex(4)
    note("begin", number, token)
    await ctx.progress(1, total=2, message=token)
    await asyncio.sleep(seconds)
    note("end", number, token)
    return f"{number} {token}"


@server.tool(task="required")
async def once(number: int, seconds: float, ctx: Context) -> str:
    """Must not be begun twice."""
    return await work(number, seconds, ctx)


@server.tool(task="required", annotations=IDEMPOTENT)
async def again(number: int, seconds: float, ctx: Context) -> str:
    """May be begun as often as it takes."""
    return await work(number, seconds, ctx)


@server.tool(task="optional")
async def maybe(number: int, seconds: float, ctx: Context) -> str:
    """Begins as a call, and becomes a task if it takes long."""
    return await work(number, seconds, ctx)


class Gate:
    """Waits for a file, for any number of handlers."""

    def __init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while not gate.exists():
            await asyncio.sleep(0.1)


opened = Gate()


async def held(number: int) -> str:
    token = secrets.token_hex(4)
    note("begin", number, token)
    await opened.wait()
    note("end", number, token)
    return f"{number} {token}"


@server.tool(task="required")
async def hold_once(number: int) -> str:
    """Runs until the gate is open."""
    return await held(number)


@server.tool(task="required", annotations=IDEMPOTENT)
async def hold_again(number: int) -> str:
    """Runs until the gate is open, in as many processes as it takes."""
    return await held(number)


if os.environ.get("FLEET_VERSION") == "2":

    @server.tool(task="required", annotations=IDEMPOTENT)
    async def added(number: int, seconds: float, ctx: Context) -> str:
        """A tool that only the next version has."""
        return await work(number, seconds, ctx)


# --- calls ---


@server.tool
async def steps(number: int, count: int, pause: float, ctx: Context) -> str:
    """Reports its progress, so that its answer is a stream."""
    for step in range(1, count + 1):
        await ctx.progress(step, total=count, message=f"steps {number}")
        await asyncio.sleep(pause)
    return str(number)


@server.tool
async def block(seconds: float) -> str:
    """Holds the loop of its replica, as a handler does that computes and never awaits."""
    note("begin", 0, "block")
    time.sleep(seconds)
    return "blocked"


@server.tool
async def ask(question: str, ctx: Context) -> str:
    """Asks its caller, who may answer another replica."""
    answer = await ctx.elicit(question, str)
    return answer.data if answer.action == "accept" else answer.action


# --- changes ---


@server.tool
async def touch(item: str) -> str:
    server.notify_updated(f"item://{item}")
    return item


@server.resource("item://{name}")
def item(name: str) -> str:
    return name
