"""A server with something of every kind, for the page to draw."""

import asyncio
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from toolwire import Audio, Context, Image, ResourceLink, Server, types

server = Server("studio", title="Studio", version="2.1.0", instructions="Use **echo** for anything.")


@dataclass
class Item:
    sku: Annotated[str, "Stock keeping unit"]
    amount: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass
class Address:
    street: str
    country: Literal["NO", "SE", "DK"] = "NO"


@server.tool(title="Place an order", annotations={"destructiveHint": True})
async def order(
    customer: Annotated[str, "Who orders"],
    items: list[Item],
    address: Address,
    express: bool,
    note: int | str | None = None,
    colours: list[Literal["red", "green", "blue"]] | None = None,
    gift: Literal["none", "paper", "box"] = "paper",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Say what was ordered."""
    given = {"customer": customer, "items": items, "address": address, "express": express, "gift": gift}
    return {**given, "note": note, "colours": colours, "labels": labels}


@dataclass
class Row:
    city: str
    high: float
    rain: bool


@server.tool
async def forecast() -> list[Row]:
    """Rows, for a table."""
    return [Row("Oslo", 21.5, False), Row("Bergen", 17, True)]


@server.tool(structured=False)
async def essay() -> str:
    """Markdown."""
    return (
        "# Thanks\n\nYour **order** is at [the shop](https://example.com/shop).\n\n"
        "| item | price |\n|---|---|\n| pen | 2 |\n\n```py\nprint(1)\n```\n\n- one\n- two\n  - three\n"
    )


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + bytes(v for x in range(64) for v in (x * 4, y * 4, 160)) for y in range(64))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _wav() -> bytes:
    samples = bytes(800)
    header = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    return header + struct.pack("<4sI", b"data", len(samples)) + samples


@server.tool
async def media() -> list[Any]:
    """A picture, a sound and a link."""
    picture, sound = Image(data=_png(), mime_type="image/png"), Audio(data=_wav(), mime_type="audio/wav")
    return [picture, sound, ResourceLink(uri="note://today", name="today", title="Today's note")]


@server.tool
async def deep() -> dict[str, Any]:
    """A tree."""
    return {"list": list(range(250)), "inner": {"text": "x" * 500, "none": None, "yes": True}}


@server.tool
async def slow(ctx: Context) -> str:
    """Reports progress until it is cancelled."""
    step = 0
    while True:
        await ctx.progress(step % 40, total=40, message=f"step {step}")
        await ctx.info(f"step {step}")
        step += 1
        await asyncio.sleep(0.05)


@dataclass
class Contact:
    name: str
    newsletter: bool = True


@server.tool
async def ask(ctx: Context) -> str:
    """Asks the user."""
    answer = await ctx.elicit("Who are you?", Contact)
    return f"{answer.action}: {answer.data}"


@server.tool
async def visit(ctx: Context) -> str:
    """Wants a page to be opened."""
    answer = await ctx.elicit_url("Please sign in", "https://login.example/start?x=1")
    return answer.action


@server.tool
async def think(ctx: Context) -> str:
    """Asks the model."""
    answer = await ctx.sample("What is the capital of **France**?", max_tokens=50)
    return f"It said: {getattr(answer.content, 'text', '')}"


@server.tool
async def folders(ctx: Context) -> str:
    """Asks for the roots."""
    return json.dumps([root.uri for root in await ctx.list_roots()])


@server.tool
async def broken() -> float:
    """Fails."""
    return 1 / 0


@server.tool(output_schema={"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}})
async def good_total() -> dict[str, Any]:
    """Keeps its promise."""
    return {"total": 3}


@server.tool
async def twice(value: int) -> dict[str, int]:
    """Takes a number."""
    return {"total": 2 * value}


state = {"count": 0}


@server.resource("count://now", mime_type="text/plain")
def count() -> str:
    """How often something was counted."""
    return f"counted {state['count']} times"


@server.tool
async def increase() -> str:
    """Counts once more."""
    state["count"] += 1
    server.notify_updated("count://now")
    return "increased"


@server.resource("note://today", mime_type="text/markdown")
def today() -> str:
    return "# Today\n\nSunny."


@server.resource("file://{folder}/{name}")
def in_folder(folder: str, name: str) -> str:
    return f"{name} in {folder}"


@server.prompt
def brief(city: str, tone: str = "calm") -> list[Any]:
    """Write a briefing.

    Args:
        city: Where it is about.
    """
    return [f"Write about {city} in a {tone} tone."]


@server.completion(prompt="brief", argument="city")
async def cities(partial: str) -> list[str]:
    return [city for city in ("Oslo", "Odense", "Bergen") if city.lower().startswith(partial.lower())]


@server.completion(template="file://{folder}/{name}", argument="folder")
async def folder_names(partial: str) -> list[str]:
    return [name for name in ("music", "movies") if name.startswith(partial)]


EMBEDDED = types.EmbeddedResource(types.ResourceContents(uri="note://inside", mime_type="text/plain", text="Inside."))


@server.tool
async def embedded() -> types.EmbeddedResource:
    """A resource inside the result."""
    return EMBEDDED


if __name__ == "__main__":
    server.run()
