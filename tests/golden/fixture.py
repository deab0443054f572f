"""The server of the golden transcripts: one of everything, the same words every time.

Every definition carries all the metadata there is (titles, icons, annotations, `_meta`, output schemas, cache hints),
so that a transcript shows what each revision is told of it. `python tests/golden/fixture.py` serves it over stdio.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from toolwire import Audio, Context, File, Image, Message, Prompt, Resource, ResourceLink, Server, Tool, ToolError
from toolwire.protocol import types as t
from toolwire.server.components import Cache

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
CLICK = (
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data"
)
ICON = {"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "light"}
META = {"example.com/origin": "fixture"}
NOTES = {"today": "Buy milk.", "tomorrow": "Rest."}


def hints() -> t.Annotations:
    return t.Annotations(audience=["user", "assistant"], priority=0.5, last_modified="2026-01-01T00:00:00Z")


@dataclass
class Forecast:
    city: str
    high: float
    rain: bool = False


@dataclass
class Order:
    size: Literal["small", "large"]
    count: Annotated[int, "How many"] = 1
    gift: bool = False


def make_server() -> Server:
    server = Server(
        "golden",
        version="1.2.3",
        title="Golden fixture",
        description="Says the same every time.",
        website_url="https://example.com/golden",
        icons=[ICON],
        instructions="Call anything.",
        page_size=6,
        secret="a secret of thirty-two characters",
        cache=Cache(ttl_ms=60_000, scope="public"),
    )
    add_results(server)
    add_reports(server)
    add_questions(server)
    add_changes(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_results(server: Server) -> None:
    """Tools that answer at once: one for each kind of result."""

    @server.tool(
        title="Echo",
        annotations={"title": "Echo hint", "readOnlyHint": True, "openWorldHint": False},
        icons=[ICON],
        meta=META,
    )
    async def echo(text: str) -> str:
        """Say it again.

        Args:
            text: What to say.
        """
        return text

    @server.tool(title="Forecast", icons=[ICON], meta=META)
    async def forecast(city: str, days: int | None = None) -> Forecast:
        """Weather, as a structured object."""
        return Forecast(city, 21.5)

    @server.tool
    async def cities() -> list[str]:
        """Names, as a structured list."""
        return ["Oslo", "Paris"]

    @server.tool
    async def picture() -> Any:
        """One pixel."""
        return Image(data=PIXEL, annotations=hints(), meta=META)

    @server.tool
    async def sound() -> Any:
        """One click."""
        return Audio(data=CLICK, annotations=hints(), meta=META)

    @server.tool
    async def link() -> Any:
        """A link to a resource."""
        return ResourceLink(
            uri="note://today",
            name="today",
            title="Today's note",
            description="What to do",
            mime_type="text/plain",
            size=9,
            annotations=hints(),
            icons=[t.Icon(src="https://example.com/note.png")],
            meta=META,
        )

    @server.tool
    async def attachment() -> Any:
        """An embedded resource and a text about it."""
        file = File(data=b"a,b\n1,2\n", mime_type="text/csv", uri="file:///table.csv", annotations=hints(), meta=META)
        return [t.TextContent("Here it is", annotations=hints(), meta=META), file]

    @server.tool
    async def refuse() -> str:
        """Fail in a way the model should know about."""
        raise ToolError("The shop is closed")

    @server.tool
    async def crash() -> str:
        """Fail in a way nobody should know about."""
        raise RuntimeError("a secret detail")


def add_reports(server: Server) -> None:
    """Tools that speak while they run."""

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        """Count and report progress."""
        for number in range(1, to + 1):
            await ctx.progress(number, to, f"at {number}")
        return f"counted to {to}"

    @server.tool
    async def chatter(ctx: Context) -> str:
        """Log at several levels."""
        await ctx.debug("low")
        await ctx.info({"detail": "middle"}, "fixture")
        await ctx.error("high")
        return "logged"

    half_way = asyncio.Event()

    @server.tool
    async def pace(ctx: Context) -> str:
        """Report half, and finish when `go` is called."""
        await ctx.progress(0.5, 1)
        await half_way.wait()
        return "arrived"

    @server.tool
    async def go() -> str:
        """Let `pace` finish."""
        half_way.set()
        return "gone"

    @server.tool
    async def wait(ctx: Context) -> str:
        """Say so, then wait to be cancelled."""
        await ctx.error("waiting")
        await asyncio.Event().wait()
        return "never"


def add_questions(server: Server) -> None:
    """Tools that ask the client."""

    @server.tool
    async def order(ctx: Context) -> str:
        """Ask the user with a form."""
        answer = await ctx.elicit("What would you like?", Order)
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def wizard(ctx: Context) -> str:
        """Ask the user twice; the second question depends on the first answer."""
        name = await ctx.elicit("Your name?", str)
        sure = await ctx.elicit(f"{name.data}, are you sure?", bool)
        return f"{name.data} {'is' if sure.data else 'is not'} sure"

    @server.tool
    async def opinion(ctx: Context) -> str:
        """Ask the client's model."""
        answer = await ctx.sample(
            "Is it art?",
            max_tokens=50,
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["END"],
            model_preferences=t.ModelPreferences(hints=[t.ModelHint(name="small")], speed_priority=0.75),
        )
        content = answer.content
        return f"{answer.model}: {content.text if isinstance(content, t.TextContent) else content}"

    @server.tool
    async def folders(ctx: Context) -> str:
        """Ask which folders the client shows."""
        return ", ".join(root.uri for root in await ctx.list_roots())


def add_changes(server: Server) -> None:
    """Tools that change the server."""

    @server.tool
    async def touch(uri: str) -> str:
        """Say that a resource changed."""
        server.notify_updated(uri)
        return "touched"

    @server.tool
    async def grow(ctx: Context) -> str:
        """Add a tool, a resource and a prompt."""

        async def sprout() -> str:
            return "sprouted"

        server.add(Tool(sprout, name="sprout"))
        server.add(Resource("note://new", content="New.", name="new"))
        server.add(Prompt.text("Grow.", name="growth"))
        return "grown"


def add_resources(server: Server) -> None:
    @server.resource(
        "note://today",
        name="today",
        title="Today's note",
        description="What to do",
        mime_type="text/plain",
        annotations=hints(),
        size=9,
        icons=[ICON],
        meta=META,
        cache=Cache(ttl_ms=1_000, scope="private"),
    )
    async def today() -> Any:
        return t.ResourceContents("note://today", text=NOTES["today"], mime_type="text/plain", meta=META)

    @server.resource("picture://pixel", name="pixel", mime_type="image/png")
    async def pixel() -> bytes:
        return PIXEL

    @server.resource(
        "note://{day}",
        name="note",
        title="Note of a day",
        description="By its day",
        mime_type="text/plain",
        annotations=hints(),
        icons=[ICON],
        meta=META,
    )
    async def note(day: str) -> str:
        return NOTES.get(day, "Nothing.")

    @server.completion(template="note://{day}", argument="day")
    async def days(partial: str) -> list[str]:
        return [day for day in NOTES if day.startswith(partial)]


def add_prompts(server: Server) -> None:
    server.add(
        Prompt(
            review,
            title="Review",
            description="Ask for a review.",
            arguments=[
                t.PromptArgument(name="subject", title="Subject", description="What to review", required=True),
                t.PromptArgument(name="tone", description="How to say it"),
            ],
            icons=[ICON],
            meta=META,
        )
    )

    @server.prompt
    def illustrated() -> list[Message]:
        """Text, picture, sound and a link."""
        return [
            Message("Look at this"),
            Message(Image(data=PIXEL)),
            Message(Audio(data=CLICK), role="assistant"),
            Message(ResourceLink(uri="note://today", name="today", title="Today's note")),
        ]

    @server.completion(prompt="review", argument="tone")
    async def tones(partial: str) -> list[str]:
        return [tone for tone in ("kind", "keen", "harsh") if tone.startswith(partial)]


def review(subject: str, tone: str = "kind") -> list[Message]:
    return [Message(f"Review {subject} in a {tone} way."), Message("Gladly.", role="assistant")]


if __name__ == "__main__":
    make_server().run()
