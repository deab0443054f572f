"""Drive a server with the `fastmcp` client, release 4, and report what the client understood.

`python drive_fastmcp4.py SCENARIO TARGET...` prints one JSON object, the same as drive_mcp1.py does; the target is a
command for stdio or an address for streamable HTTP. `DRIVE_MODE` is the client's `mode`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from mcp.shared.exceptions import MCPDeprecationWarning
from scenario import Reporting, call_every_tool, cross, filled_in, summary

# Much of what we drive is deprecated on 2026-07-28, and still has to work.
warnings.simplefilter("ignore", MCPDeprecationWarning)

MODERN = "2026-07-28"


class Driver(Reporting):
    """One connection, and what came over it besides answers."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Client[Any]

    async def elicitation(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        if self.page_shown(params):
            return ElicitResult(action="accept")
        self.report.setdefault("asked_user", []).append(message)
        return ElicitResult(action="accept", content=filled_in(params.requested_schema["properties"]))

    async def sampling(self, messages: Any, params: Any, context: Any) -> str:
        self.tools_shown(params)
        self.report["asked_model"] = messages[0].content.text
        return "It is."

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.report["progress"].append([progress, total, message])
        self.arrived.set()

    async def logging(self, params: Any) -> None:
        self.report["logs"].append([params.level, params.data])
        self.arrived.set()

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            self.report["updated"].append(str(message.params.uri))
        elif method.endswith("list_changed"):
            self.report["changed"].append(method)
        self.arrived.set()

    async def ping(self) -> str:
        await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        return "answered"

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        result = await self.client.call_tool_mcp(name, arguments or {}, **options)
        return summary(result)


async def tools(driver: Driver) -> None:
    listed = await driver.client.list_tools()
    driver.report["tools"] = {
        tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed
    }
    driver.report["calls"] = await call_every_tool(driver)


async def reading(driver: Driver) -> None:
    report, client = driver.report, driver.client
    report["resources"] = [str(each.uri) for each in await client.list_resources()]
    report["templates"] = [each.uri_template for each in await client.list_resource_templates()]
    report["read"] = {}
    for uri in ("note://today", "note://tomorrow", "picture://pixel", "nothing://here"):
        try:
            contents: Any = (await client.read_resource(uri))[0]
            report["read"][uri] = contents.text if hasattr(contents, "text") else contents.blob
        except Exception as error:
            report["read"][uri] = {"raised": str(error)}
    report["prompts"] = [each.name for each in await client.list_prompts()]
    review = await client.get_prompt("review", {"subject": "this", "tone": "harsh"})
    report["review"] = [[message.role, message.content.text] for message in review.messages]  # type: ignore[union-attr]
    illustrated = await client.get_prompt("illustrated")
    report["illustrated"] = [message.content.type for message in illustrated.messages]
    prompt = types.PromptReference(type="ref/prompt", name="review")
    report["completion"] = (await client.complete(prompt, {"name": "tone", "value": "k"})).values
    template = types.ResourceTemplateReference(type="ref/resource", uri="note://{day}")
    report["days"] = (await client.complete(template, {"name": "day", "value": "to"})).values


async def reports(driver: Driver) -> None:
    client = driver.client
    modern = client.protocol_version == MODERN
    if not modern:
        await client.ping()

    def wanted(level: str) -> dict[str, Any]:
        return {"meta": {"io.modelcontextprotocol/logLevel": level}} if modern else {}

    driver.report["counted"] = await driver.call("count", {"to": 3}, progress_handler=driver.progress)
    paced = asyncio.create_task(driver.call("pace", progress_handler=driver.progress))
    await driver.until("progress", 4)
    await driver.call("go")
    driver.report["paced"] = await paced
    await driver.call("chatter", **wanted("info"))
    if not modern:
        await client.set_logging_level("error")
    await driver.call("chatter", **wanted("error"))
    before, driver.report["logs"] = driver.report["logs"], []
    waiting = asyncio.create_task(driver.call("wait", **wanted("error")))
    await driver.until("logs")
    waiting.cancel()
    await asyncio.wait([waiting])
    driver.report["logs"] = before + driver.report["logs"]
    driver.report["after"] = await driver.call("echo", {"text": "still here"})


async def asking(driver: Driver) -> None:
    for name in ("order", "wizard", "opinion", "folders"):
        driver.report[name] = await driver.call(name)


async def changes(driver: Driver) -> None:
    # This library has no method for subscriptions; the session below it has the ones of the older revisions.
    session = driver.client.session
    await session.subscribe_resource("note://today")
    await driver.call("touch", {"uri": "note://today"})
    await driver.until("updated")
    await session.unsubscribe_resource("note://today")
    await driver.call("touch", {"uri": "note://today"})
    await driver.call("grow")
    await driver.until("changed", 3)
    driver.report["sprout"] = await driver.call("sprout")


async def crossing(driver: Driver) -> None:
    client = driver.client
    odd = await client.call_tool_mcp("raw_odd", {})
    await cross(driver, await client.list_tools_mcp(), odd, client.read_resource)


def transport(target: list[str]) -> ClientTransport:
    if target[0].startswith("http://"):
        return StreamableHttpTransport(target[0])
    return StdioTransport(target[0], target[1:], keep_alive=False)


async def main(scenario: str, target: list[str]) -> None:
    driver = Driver()
    driver.client = Client(
        transport(target),
        mode=os.environ.get("DRIVE_MODE", "auto"),
        roots=["file:///work"],
        sampling_handler=driver.sampling,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
        elicitation_handler=driver.elicitation,
        log_handler=driver.logging,
        message_handler=driver.message,
    )
    async with driver.client as client:
        driver.report["revision"] = client.protocol_version
        driver.report["server"] = client.server_info.name if client.server_info else None
        driver.report["instructions"] = client.instructions
        await driver.play(scenario, globals())
    driver.printed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
