"""A view in the inspector, without a browser: its messages go through the operations of the page."""

from __future__ import annotations

import json
from typing import Any

from tests.http.httpclient import Answer, HttpClient
from tests.inspector.page_client import Page

PORT = 40_001
HOST = "127.0.0.1:8000"
INITIALIZE = {
    "protocolVersion": "2026-01-26",
    "appInfo": {"name": "v", "version": "1"},
    "appCapabilities": {"availableDisplayModes": ["inline", "fullscreen"]},
}


class View:
    """An open view."""

    def __init__(self, page: Page, opened: dict[str, Any]) -> None:
        self.page = page
        self.opened = opened
        self.id: str = opened["view"]["id"]
        self.frame: dict[str, Any] = opened["frame"]
        self.taken: list[dict[str, Any]] = []
        self._count = 0

    async def noticed(self, kind: str, text: str) -> str:
        """Wait until the inspector notices something."""
        event = await self.page.event(
            "view-finding", view=self.id, finding=lambda each: each["kind"] == kind and text in each["text"]
        )
        found: str = event["finding"]["text"]
        return found

    async def state(self, state: str) -> dict[str, Any]:
        event = await self.page.event("view", view=lambda view: view["id"] == self.id and view["state"] == state)
        shown: dict[str, Any] = event["view"]
        return shown

    async def send(self, *messages: Any) -> None:
        """Send messages: objects, or texts as they are."""
        texts = [each if isinstance(each, str) else json.dumps(each) for each in messages]
        answer = await self.page.answer("viewMessages", view=self.id, messages=texts)
        if answer.status == 200:
            self.taken += answer.json()["messages"]

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def until(self, fits: Any) -> dict[str, Any]:
        """Take messages for the view until one fits."""
        while (found := next(filter(fits, self.taken), None)) is None:
            before = sum(each["type"] == "view-outbox" for each in self.page.events)
            await self.send()
            if not any(map(fits, self.taken)):
                await self.page.more_events("view-outbox", before)
        self.taken.remove(found)
        message: dict[str, Any] = found
        return message

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its answer."""
        identifier = await self.begin(method, **params)
        return await self.until(lambda each: each.get("id") == identifier and "method" not in each)

    async def begin(self, method: str, **params: Any) -> int:
        self._count += 1
        await self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    async def told(self, name: str) -> Any:
        """Wait for a notification of the host, and return its params."""
        return (await self.until(lambda each: each.get("method") == f"ui/notifications/{name}"))["params"]

    async def initialize(self) -> dict[str, Any]:
        answer = await self.request("ui/initialize", **INITIALIZE)
        await self.notify("ui/notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result


async def open_view(page: Page, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> View:
    """Call a tool, and open its view. The call may still run."""
    return View(page, await try_view(page, tool, arguments, **options))


async def try_view(page: Page, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Call a tool, and return what the inspector says about its view."""
    page.app.show_views(PORT)
    call = await page.start("tools/call", name=tool, arguments=arguments or {})
    answer: dict[str, Any] = await page.ask("openView", call=call, page=page.name, **options)
    return answer


async def fetch(page: Page, url: str, **options: Any) -> Answer:
    """Ask the second origin for something, as a browser does."""
    host, _, path = url.removeprefix("http://").partition("/")
    headers = {"host": host, "origin": None, **options.pop("headers", {})}
    client = HttpClient(page.app.inspector.views.pages, headers=headers)
    return await client.start(options.pop("method", "GET"), path=f"/{path}", **options).finished()
