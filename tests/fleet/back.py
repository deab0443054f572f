"""The server behind the gateways of a fleet: over HTTP as a process of its own, or as a child of a gateway over stdio.

Each handler notes its beginning and its end in the file of the fleet. A note names the number that the client gave to
the call, and the gateway that made it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from pathlib import Path

from toolwire import Context, Limits, Server

FOLDER = Path(os.environ["FLEET_FOLDER"])
#: The gateway whose child this is; over HTTP a header names it.
REPLICA = os.environ.get("FLEET_REPLICA", "")
HEADER = "x-fleet-replica"

NAME = os.environ["FLEET_BACK"]

# All requests come from the gateways.
server = Server("back", limits=Limits(share=1.0, task_poll=0.5))
notes = os.open(FOLDER / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(what: str, number: int, ctx: Context, token: str) -> None:
    """Append one line by one system call, so that the lines of several processes stay whole."""
    replica = REPLICA or ctx.headers.get(HEADER, "nobody")
    os.write(notes, f"{what} {number} {replica} {token} {time.monotonic():.3f}\n".encode())


@server.tool
async def plain(number: int, ctx: Context) -> str:
    token = secrets.token_hex(4)
    note("begin", number, ctx, token)
    note("end", number, ctx, token)
    return str(number)


@server.tool
async def book(number: int, ctx: Context) -> str:
    """Ask twice, and do the work once, after the answers."""
    token = secrets.token_hex(4)
    note("begin", number, ctx, token)
    seats = await ctx.elicit(f"How many seats? {number}", int)
    name = await ctx.elicit(f"Whose name? {number}", str)
    note("end", number, ctx, token)
    return f"{number} {seats.data} {name.data}"


@server.tool(task="required")
async def work(number: int, seconds: float, ctx: Context) -> str:
    token = secrets.token_hex(4)
    note("begin", number, ctx, token)
    await asyncio.sleep(seconds)
    note("end", number, ctx, token)
    return str(number)


@server.tool
async def touch(item: str) -> str:
    server.notify_updated(f"{NAME}://{item}")
    return item


@server.resource(f"{NAME}://{{name}}")
def item(name: str) -> str:
    return name


if __name__ == "__main__":
    server.run("stdio") if len(sys.argv) == 1 else server.run("http", port=int(sys.argv[1]))
