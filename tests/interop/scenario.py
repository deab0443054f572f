"""What the drivers written in python have in common; it runs where their libraries are, and needs none of them."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import Any


class Reporting:
    """What came over a connection besides answers."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {"progress": [], "logs": [], "changed": [], "updated": []}
        self.arrived = asyncio.Event()
        self.played: dict[str, Any] = {}

    async def play(self, scenarios: str, functions: dict[str, Any]) -> None:
        """Play a scenario, or several over one connection: `tools,reading`."""
        opened = self.report
        for name in scenarios.split(","):
            self.report = self.played[name] = deepcopy(opened)
            await functions[name](self)

    def page_shown(self, params: Any) -> bool:
        """Report a page that the user shall open; return False for a form."""
        if getattr(params, "mode", "form") != "url":
            return False
        self.report.setdefault("asked_urls", []).append([params.message, params.url])
        return True

    def model_asked(self, params: Any) -> None:
        """Report a question to the model."""
        self.tools_shown(params)
        self.report["asked_model"] = params.messages[0].content.text

    def filled(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Report a form, and fill it in."""
        self.report.setdefault("asked_user", []).append(message)
        return filled_in(schema["properties"])

    def tools_shown(self, params: Any) -> None:
        """Report the tools that a model may use, and whether it has to."""
        if getattr(params, "tools", None):
            members = params.model_dump(by_alias=True)
            self.report["asked_tools"] = [[tool["name"] for tool in members["tools"]], members["toolChoice"]["mode"]]

    def printed(self) -> None:
        """Print the report of the scenario, or those of several by their names."""
        print(json.dumps(self.report if len(self.played) == 1 else self.played))

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
    return {"ok": True} if list(properties) == ["ok"] else {"size": "large", "count": 2, "gift": True}


#: The errors that a server answers with, as the names of its tools.
ERRORS = ("error_32020", "error_32021", "error_32022", "error_32042")


async def cross(driver: Any, listed: Any, odd: Any, read: Any) -> None:
    """Use what a gateway has to translate. `listed`, `odd`: a page of tools and the result of the tool `odd`."""
    report = driver.report
    report["page"] = listed.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"tools"})
    report["odd"] = odd.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name, arguments in (("visit", {}), ("think", {}), ("place", {"region": "eu"}), ("session", {})):
        report[name] = await outcome(driver.call(name, arguments))
    for name in ERRORS:
        report[name] = await outcome(driver.call(f"raw_{name}"))
    report["pong"] = await outcome(driver.ping())
    report["missing"] = await outcome(read("nothing://here"))


async def be_asked(driver: Any) -> None:
    """Call the tools of serve_behind.py that ask."""
    for name in ("confirm", "visit", "think", "roots"):
        driver.report[name] = await outcome(driver.call(name))


async def outcome(action: Any) -> Any:
    """Wait for an answer; what came, or the error."""
    try:
        return await action
    except Exception as error:
        told = getattr(error, "error", None)
        return {"raised": str(error), "code": getattr(told, "code", None)}


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
