"""Drive a server with the python `mcp` client, release 2, and report what the client understood.

`python drive_mcp2.py SCENARIO TARGET...` prints one JSON object, the same as drive_mcp1.py does; the target is a
command for stdio or an address for streamable HTTP. The environment variable `DRIVE_MODE` is the client's `mode`:
"auto" asks `server/discover` first, "legacy" says `initialize`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp import Client
from opening_mcp2 import MODERN, open_client
from scenario import Reporting, be_asked, call_every_tool, cross, summary


class Driver(Reporting):
    """One connection, and what came over it besides answers."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Client
        self.root = "file:///work"
        self.before_answer: Callable[[], Awaitable[None]] | None = None

    async def logging(self, params: Any) -> None:
        self.report["logs"].append([params.level, params.data])
        self.arrived.set()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.report["progress"].append([progress, total, message])
        self.arrived.set()

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            self.report["updated"].append(str(message.params.uri))
        elif method.endswith("list_changed"):
            self.report["changed"].append(method)
        self.arrived.set()

    # --- requests ---

    async def pages(self, listing: Any, member: str) -> list[Any]:
        found: list[Any] = []
        cursor = None
        while True:
            page = await listing(cursor=cursor)
            found += getattr(page, member)
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def ping(self) -> str:
        await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        return "answered"

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        result = await self.client.call_tool(name, arguments or {}, **options)
        return summary(result)


async def tools(driver: Driver) -> None:
    listed = await driver.pages(driver.client.list_tools, "tools")
    driver.report["tools"] = {
        tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed
    }
    driver.report["calls"] = await call_every_tool(driver)


async def reading(driver: Driver) -> None:
    report, client = driver.report, driver.client
    report["resources"] = [str(each.uri) for each in await driver.pages(client.list_resources, "resources")]
    templates = await driver.pages(client.list_resource_templates, "resource_templates")
    report["templates"] = [each.uri_template for each in templates]
    report["read"] = {}
    for uri in ("note://today", "note://tomorrow", "picture://pixel", "nothing://here"):
        try:
            contents = (await client.read_resource(uri)).contents[0]
            report["read"][uri] = contents.text if hasattr(contents, "text") else contents.blob
        except Exception as error:
            report["read"][uri] = {"raised": str(error)}
    report["prompts"] = [each.name for each in await driver.pages(client.list_prompts, "prompts")]
    review = await client.get_prompt("review", {"subject": "this", "tone": "harsh"})
    report["review"] = [[message.role, message.content.text] for message in review.messages]  # type: ignore[union-attr]
    illustrated = await client.get_prompt("illustrated")
    report["illustrated"] = [message.content.type for message in illustrated.messages]
    prompt = types.PromptReference(type="ref/prompt", name="review")
    found = await client.complete(prompt, {"name": "tone", "value": "k"}, {"subject": "this"})
    report["completion"] = found.completion.values
    template = types.ResourceTemplateReference(type="ref/resource", uri="note://{day}")
    report["days"] = (await client.complete(template, {"name": "day", "value": "to"})).completion.values


async def reports(driver: Driver) -> None:
    client = driver.client
    modern = client.protocol_version == MODERN
    await driver.pages(client.list_tools, "tools")
    if not modern:
        await client.send_ping()
    driver.report["counted"] = await driver.call("count", {"to": 3}, progress_callback=driver.progress)
    paced = asyncio.create_task(driver.call("pace", progress_callback=driver.progress))
    await driver.until("progress", 4)
    await driver.call("go")
    driver.report["paced"] = await paced
    await driver.call("chatter")
    if modern:
        await driver.call("chatter", meta={"io.modelcontextprotocol/logLevel": "error"})
    else:
        await client.set_logging_level("error")
        await driver.call("chatter")
    before, driver.report["logs"] = driver.report["logs"], []
    async with anyio.create_task_group() as group:
        group.start_soon(driver.call, "wait")
        await driver.until("logs")
        group.cancel_scope.cancel()
    driver.report["logs"] = before + driver.report["logs"]
    driver.report["after"] = await driver.call("echo", {"text": "still here"})


async def asking(driver: Driver) -> None:
    await driver.pages(driver.client.list_tools, "tools")
    for name in ("order", "wizard", "opinion", "folders"):
        driver.report[name] = await driver.call(name)


async def changes(driver: Driver) -> None:
    await driver.pages(driver.client.list_tools, "tools")
    if driver.client.protocol_version == MODERN:
        await listening(driver)
    else:
        await subscribing(driver)
    driver.report["sprout"] = await driver.call("sprout")


async def listening(driver: Driver) -> None:
    wanted: dict[str, Any] = {
        "tools_list_changed": True,
        "prompts_list_changed": True,
        "resources_list_changed": True,
        "resource_subscriptions": ["note://today"],
    }
    async with driver.client.listen(**wanted):
        await driver.call("touch", {"uri": "note://today"})
        await driver.until("updated")
        await driver.call("touch", {"uri": "note://tomorrow"})
        await driver.call("grow")
        await driver.until("changed", 3)
    # The end of the stream is announced by a task of its own.
    await anyio.wait_all_tasks_blocked()


async def subscribing(driver: Driver) -> None:
    await driver.client.subscribe_resource("note://today")
    await driver.call("touch", {"uri": "note://today"})
    await driver.until("updated")
    await driver.client.unsubscribe_resource("note://today")
    await driver.call("touch", {"uri": "note://today"})
    await driver.call("grow")
    await driver.until("changed", 3)


questions = be_asked


async def crossing(driver: Driver) -> None:
    client = driver.client
    await cross(driver, await client.list_tools(), await client.call_tool("raw_odd"), client.read_resource)


class Tally(types.Result):
    votes: dict[str, int]


async def extension(driver: Driver) -> None:
    """Use the extension of examples/polls: what the client's own names do not know goes through its session."""
    session, report = driver.client.session, driver.report
    report["extensions"] = driver.client.server_capabilities.model_dump(by_alias=True).get("extensions")
    report["votes"] = []
    for choice in ("soup", "stew"):
        vote = types.Request[Any, str](method="polls/vote", params={"poll": "lunch", "choice": choice})
        report["votes"].append((await session.send_request(vote, Tally)).votes)
    seen = types.Notification[Any, str](method="notifications/polls/seen", params={"poll": "logo"})
    await session.send_notification(seen)  # type: ignore[arg-type]
    report["seen"] = await driver.call("team_seen")
    try:
        wrong = types.Request[Any, str](method="polls/vote", params={"poll": "supper", "choice": "soup"})
        await session.send_request(wrong, Tally)
    except Exception as error:
        report["wrong"] = str(error)


async def given(driver: Driver) -> None:
    """List the tools, and make the calls that the environment variable `DRIVE_CALLS` has."""
    listed = await driver.pages(driver.client.list_tools, "tools")
    driver.report["tools"] = {
        tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed
    }
    driver.report["calls"] = []
    for name, arguments in json.loads(os.environ["DRIVE_CALLS"]):
        result = await driver.client.call_tool(name, arguments)
        data = [block.data for block in result.content if block.type == "image"]
        driver.report["calls"].append({**summary(result), "data": data})


async def files(driver: Driver) -> None:
    """Read files of two folders: with the first as the root of the client, then with the second."""
    folders = json.loads(os.environ["DRIVE_FOLDERS"])
    await driver.pages(driver.client.list_tools, "tools")
    reads = driver.report["reads"] = []
    for folder in folders:
        driver.root = folder["uri"]
        if reads and driver.client.protocol_version != MODERN:
            await driver.client.session.send_roots_list_changed()
        reads.append([(await driver.call("read_text_file", {"path": each["file"]}))["text"] for each in folders])


async def outage(driver: Driver) -> None:
    """Make calls that ask, print a line when all have asked, and answer when a line comes on standard input."""
    # Otherwise the client lists them when the first result comes, to check it.
    await driver.pages(driver.client.list_tools, "tools")
    names = os.environ["DRIVE_NAMES"].split(",")
    asked = asyncio.Semaphore(0)
    answering = asyncio.Event()

    async def wait() -> None:
        asked.release()
        await answering.wait()

    driver.before_answer = wait
    calls = [asyncio.create_task(driver.call("book", {"name": name})) for name in names]
    for _ in names:
        await asked.acquire()
    print("asked", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    answering.set()
    driver.report["booked"] = [(await call)["text"] for call in calls]


async def main(scenario: str, target: list[str]) -> None:
    driver = Driver()
    if "DRIVE_FOLDERS" in os.environ:
        driver.root = json.loads(os.environ["DRIVE_FOLDERS"])[0]["uri"]
    mode = os.environ.get("DRIVE_MODE", "auto")
    client = open_client(driver, target, mode, logging_callback=driver.logging, log_level="info")
    async with client:
        driver.client = client
        driver.report["revision"] = client.protocol_version
        driver.report["server"] = client.server_info.name if client.server_info else None
        driver.report["instructions"] = client.instructions
        await driver.play(scenario, globals())
    driver.printed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
