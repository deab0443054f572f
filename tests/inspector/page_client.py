"""What the inspector's page does, without a browser: operations with the token, and the stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.http.httpclient import Answer, HttpClient

from toolwire.inspector import Inspector, InspectorApp


class Page:
    """A page that is open."""

    def __init__(self, app: InspectorApp, name: str = "first") -> None:
        self.app = app
        self.name = name
        self.http = HttpClient(app, headers={"x-toolwire-token": app.token})
        self.read_events()

    def read_events(self) -> None:
        self._events = self.http.start("GET", path="/api/events", query=f"page={self.name}")

    async def crash(self) -> None:
        """End as a browser that is killed: the connections break, and no operation says goodbye."""
        await self._events.disconnect()

    async def ask(self, operation: str, **members: Any) -> Any:
        """The answer of an operation that succeeds."""
        answer = await self.answer(operation, **members)
        assert answer.status == 200, answer.body
        return answer.json()

    async def answer(self, operation: str, **members: Any) -> Answer:
        return await self.http.post(members, path=f"/api/{operation}")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._events.body.decode().split("\n")[:-1] if line]

    async def event(self, type: str, **matching: Any) -> dict[str, Any]:
        """The first event of a type whose members are these; a member may be a function that says whether it fits."""

        def fits(event: dict[str, Any]) -> bool:
            return event["type"] == type and all(
                wanted(event.get(name)) if callable(wanted) else event.get(name) == wanted
                for name, wanted in matching.items()
            )

        found: dict[str, Any] = await self._events.until(lambda: next(filter(fits, self.events), None))
        return found

    async def more_events(self, type: str, than: int) -> None:
        """Wait until there are more events of a type than that."""
        await self._events.until(lambda: sum(each["type"] == type for each in self.events) > than)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a call and wait for its end."""
        return await self.ended(await self.start(method, **params))

    async def start(self, method: str, **params: Any) -> str:
        identifier: str = (await self.ask("call", method=method, params=params))["call"]["id"]
        return identifier

    async def ended(self, identifier: str) -> dict[str, Any]:
        event = await self.event("call", call=lambda call: call["id"] == identifier and call["state"] != "running")
        ended: dict[str, Any] = event["call"]
        return ended

    async def result(self, call: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.ask("result", call=call["id"]))["result"]
        return answer

    async def text(self, identifier: str) -> str:
        """The text that a call ends with."""
        text: str = (await self.result(await self.ended(identifier)))["content"][0]["text"]
        return text

    async def question(self) -> dict[str, Any]:
        question: dict[str, Any] = (await self.event("question"))["question"]
        return question

    async def respond(self, question: dict[str, Any], **answer: Any) -> Answer:
        return await self.answer("answer", question=question["id"], answer=answer)


@asynccontextmanager
async def inspected(target: Any, **options: Any) -> AsyncIterator[Page]:
    """A page of an inspector that has tried to connect."""
    app = InspectorApp(Inspector(target, label="the target", **options))
    page = Page(app)
    try:
        await app.inspector.connect(app.inspector.revision)
        yield page
    finally:
        await app.inspector.close()
        app.drain()
        await page.http.close()
