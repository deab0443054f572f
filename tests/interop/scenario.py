"""What the drivers written in python have in common; it runs where their libraries are, and needs none of them."""

from __future__ import annotations

import asyncio
from typing import Any


class Reporting:
    """What came over a connection besides answers."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {"progress": [], "logs": [], "changed": [], "updated": []}
        self.arrived = asyncio.Event()

    async def until(self, kind: str, count: int = 1) -> None:
        while len(self.report[kind]) < count:
            self.arrived.clear()
            await self.arrived.wait()


def summary(result: Any) -> dict[str, Any]:
    """The result of a tool, in words that every release has."""
    members = result.model_dump(by_alias=True)
    return {
        "types": [block.type for block in result.content],
        "text": "\n".join(block.text for block in result.content if block.type == "text"),
        "structured": members.get("structuredContent"),
        "error": bool(members.get("isError")),
    }


def filled_in(properties: dict[str, Any]) -> dict[str, Any]:
    """What the user enters into a form."""
    if list(properties) == ["value"]:
        return {"value": "Ada" if properties["value"]["type"] == "string" else True}
    return {"size": "large", "count": 2, "gift": True}


async def call_every_tool(driver: Any) -> dict[str, Any]:
    calls = {}
    calls["echo"] = await driver.call("echo", {"text": "héllo"})
    calls["forecast"] = await driver.call("forecast", {"city": "Oslo"})
    for name in ("cities", "picture", "sound", "link", "attachment", "refuse", "crash"):
        calls[name] = await driver.call(name)
    for name, arguments in (("nonsense", {}), ("echo", {"txt": "x"})):
        try:
            calls[f"bad {name}"] = await driver.call(name, arguments)
        except Exception as error:
            calls[f"bad {name}"] = {"raised": str(error)}
    return calls
