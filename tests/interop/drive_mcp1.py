"""Drive a server with the python `mcp` client, releases 1.2 to 1.30, and report what the client understood.

`python drive_mcp1.py SCENARIO TARGET...` prints one JSON object. The target is a command, which is started and spoken
with over stdio, or the address of a server: one that ends in `/sse` is used with HTTP+SSE, any other with streamable
HTTP. It runs in the environment of the release it drives with, so it imports nothing of ours but `scenario.py`; what a
release does not have, it says by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, types
from opening_mcp1 import open_session
from scenario import Reporting, be_asked, call_every_tool, cross, summary

# The types of the first releases have no place for a cursor where the protocol has it.
TURNS_PAGES = "cursor" in types.ListToolsRequest.model_validate(
    {"method": "tools/list", "params": {"cursor": "x"}}
).model_dump().get("params", {})


class Driver(Reporting):
    """One connection, and what came over it besides answers."""

    def __init__(self) -> None:
        super().__init__()
        self.session: ClientSession
        self.root = "file:///work"

    async def message(self, message: Any) -> None:
        notification = getattr(message, "root", None)
        method = getattr(notification, "method", "")
        params: Any = getattr(notification, "params", None)
        if method == "notifications/progress":
            self.report["progress"].append([params.progress, params.total, getattr(params, "message", None)])
        elif method == "notifications/message":
            self.report["logs"].append([params.level, params.data])
        elif method == "notifications/resources/updated":
            self.report["updated"].append(str(params.uri))
        elif method.endswith("list_changed"):
            self.report["changed"].append(method)
        self.arrived.set()

    # --- requests that not every release has a method for ---

    async def ask(self, name: str, method: str, params: dict[str, Any] | None = None) -> Any:
        message = {"method": method} if params is None else {"method": method, "params": params}
        request = getattr(types, f"{name}Request").model_validate(message)
        result = getattr(types, f"{name}Result", types.EmptyResult)
        return await self.session.send_request(types.ClientRequest(request), result)

    async def pages(self, name: str, method: str, member: str) -> list[Any]:
        found: list[Any] = []
        cursor = None
        while True:
            page = await self.ask(name, method, None if cursor is None else {"cursor": cursor})
            found += getattr(page, member)
            cursor = page.nextCursor
            if cursor is None or not TURNS_PAGES:
                return found

    async def list_tools(self) -> list[Any]:
        """Every tool, by the client's own method where it can turn pages: it then knows their output schemas."""
        if not TURNS_PAGES:
            return (await self.session.list_tools()).tools
        page = await self.session.list_tools()
        found = list(page.tools)
        while page.nextCursor is not None:
            page = await self.session.list_tools(page.nextCursor)
            found += page.tools
        return found

    async def ping(self) -> str:
        await self.session.send_ping()
        return "answered"

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return summary(await self.session.call_tool(name, arguments or {}))


async def tools(driver: Driver) -> None:
    listed = await driver.list_tools()
    driver.report["tools"] = {tool.name: tool.model_dump(mode="json", exclude_none=True) for tool in listed}
    driver.report["calls"] = await call_every_tool(driver)


async def reading(driver: Driver) -> None:
    report, session = driver.report, driver.session
    report["resources"] = [str(each.uri) for each in await driver.pages("ListResources", "resources/list", "resources")]
    templates = await driver.pages("ListResourceTemplates", "resources/templates/list", "resourceTemplates")
    report["templates"] = [each.uriTemplate for each in templates]
    report["read"] = {}
    for uri in ("note://today", "note://tomorrow", "picture://pixel", "nothing://here"):
        try:
            contents = (await session.read_resource(uri)).contents[0]  # type: ignore[arg-type]
            report["read"][uri] = getattr(contents, "text", None) or contents.blob  # type: ignore[union-attr]
        except Exception as error:
            report["read"][uri] = {"raised": str(error)}
    prompts = await driver.pages("ListPrompts", "prompts/list", "prompts")
    report["prompts"] = [each.name for each in prompts]
    review = await session.get_prompt("review", {"subject": "this", "tone": "harsh"})
    report["review"] = [[message.role, message.content.text] for message in review.messages]  # type: ignore[union-attr]
    illustrated = await session.get_prompt("illustrated")
    report["illustrated"] = [message.content.type for message in illustrated.messages]
    reference: Any = types.PromptReference(type="ref/prompt", name="review")
    found = await session.complete(ref=reference, argument={"name": "tone", "value": "k"})
    report["completion"] = found.completion.values
    old = getattr(types, "ResourceReference", None)
    reference = getattr(types, "ResourceTemplateReference", old)(type="ref/resource", uri="note://{day}")
    found = await session.complete(ref=reference, argument={"name": "day", "value": "to"})
    report["days"] = found.completion.values


async def reports(driver: Driver) -> None:
    session = driver.session
    await driver.list_tools()
    await session.send_ping()
    counting = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "counting"}}
    driver.report["counted"] = summary(await driver.ask("CallTool", "tools/call", counting))
    pacing = {"name": "pace", "arguments": {}, "_meta": {"progressToken": "pacing"}}
    paced = asyncio.create_task(driver.ask("CallTool", "tools/call", pacing))
    await driver.until("progress", 4)
    await driver.call("go")
    driver.report["paced"] = summary(await paced)
    await driver.call("chatter")
    await session.set_logging_level("error")
    await driver.call("chatter")
    driver.report["logs"], before = [], driver.report["logs"]
    waiting = asyncio.create_task(driver.call("wait"))
    await driver.until("logs")
    # No release has a method for this; the identifier is the last one that was given out.
    params = types.CancelledNotificationParams(requestId=session._request_id - 1, reason="Enough")  # type: ignore[attr-defined]
    cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(cancelled))
    waiting.cancel()
    await asyncio.wait([waiting])
    driver.report["logs"] = before + driver.report["logs"]
    driver.report["after"] = await driver.call("echo", {"text": "still here"})


async def asking(driver: Driver) -> None:
    await driver.list_tools()
    for name in ("order", "wizard", "opinion", "folders"):
        driver.report[name] = await driver.call(name)


async def changes(driver: Driver) -> None:
    session = driver.session
    await driver.list_tools()
    await session.subscribe_resource("note://today")  # type: ignore[arg-type]
    await driver.call("touch", {"uri": "note://today"})
    await driver.until("updated")
    await session.unsubscribe_resource("note://today")  # type: ignore[arg-type]
    await driver.call("touch", {"uri": "note://today"})
    await driver.call("grow")
    await driver.until("changed", 3)
    driver.report["sprout"] = await driver.call("sprout")
    await session.send_roots_list_changed()
    await session.send_ping()


async def files(driver: Driver) -> None:
    """Read files of two folders: with the first as the root of the client, then with the second."""
    folders = json.loads(os.environ["DRIVE_FOLDERS"])
    reads = driver.report["reads"] = []
    for folder in folders:
        if reads:
            driver.root = folder["uri"]
            await driver.session.send_roots_list_changed()
        else:
            await driver.list_tools()
        reads.append([(await driver.call("read_text_file", {"path": each["file"]}))["text"] for each in folders])


async def given(driver: Driver) -> None:
    """List the tools, and make the calls that the environment variable `DRIVE_CALLS` has."""
    listed = await driver.list_tools()
    driver.report["tools"] = {tool.name: tool.model_dump(mode="json", exclude_none=True) for tool in listed}
    driver.report["calls"] = [await driver.call(name, each) for name, each in json.loads(os.environ["DRIVE_CALLS"])]


questions = be_asked


async def crossing(driver: Driver) -> None:
    listed = await driver.ask("ListTools", "tools/list")
    odd = await driver.ask("CallTool", "tools/call", {"name": "raw_odd", "arguments": {}})
    await cross(driver, listed, odd, driver.session.read_resource)


async def main(scenario: str, target: list[str]) -> None:
    driver = Driver()
    if "DRIVE_FOLDERS" in os.environ:
        driver.root = json.loads(os.environ["DRIVE_FOLDERS"])[0]["uri"]
    async with open_session(driver, target) as (session, opened):
        driver.session = session
        driver.report["revision"] = opened.protocolVersion
        driver.report["server"] = opened.serverInfo.name
        driver.report["instructions"] = getattr(opened, "instructions", None)
        await driver.play(scenario, globals())
    driver.printed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
