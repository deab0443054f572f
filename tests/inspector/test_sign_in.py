"""A server that wants somebody to sign in: the page sends them there, and their browser comes back to the inspector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from tests.auth.stand_in import Reply, Request, Scene, Stage
from tests.client.scripted_http import DISCOVERED, text
from tests.http.httpclient import HttpClient
from tests.inspector.page_client import Page

from toolwire.inspector import Inspector, InspectorApp


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        made.server.serve = speak  # type: ignore[method-assign]
        yield made


def speak(request: Request) -> Reply:
    message = json.loads(request.body)
    answers = {"server/discover": DISCOVERED, "tools/call": {"content": text("done")}}
    lists = {"tools": [], "resources": [], "resourceTemplates": [], "prompts": [], "ttlMs": 0, "cacheScope": "private"}
    result = {"resultType": "complete", **answers.get(message["method"], lists)}
    return Reply(document={"jsonrpc": "2.0", "id": message["id"], "result": result})


async def test_a_person_signs_in_and_comes_back(scene: Scene) -> None:
    callback = "http://127.0.0.1:8000/callback"
    app = InspectorApp(Inspector(scene.server.mcp, label="protected", url=scene.server.mcp, callback=callback))
    page = Page(app)
    connecting = asyncio.create_task(app.inspector.connect())
    try:
        question = await page.question()
        assert question["kind"] == "sign-in"
        sent_to = urlsplit(await scene.person(question["params"]["url"]))
        assert sent_to.path == "/callback"
        back = await HttpClient(app).start("GET", path=sent_to.path, query=sent_to.query).finished()
        assert back.status == 200
        await connecting
        assert (await page.ask("state"))["connection"]["state"] == "connected"
        assert await page.text(await page.start("tools/call", name="anything")) == "done"
    finally:
        await app.inspector.close()
        app.drain()
        await page.http.close()


async def test_whoever_does_not_sign_in_is_told_so(scene: Scene) -> None:
    callback = "http://127.0.0.1:8000/callback"
    app = InspectorApp(Inspector(scene.server.mcp, label="protected", url=scene.server.mcp, callback=callback))
    page = Page(app)
    connecting = asyncio.create_task(app.inspector.connect())
    try:
        await page.respond(await page.question(), action="cancel")
        await connecting
        connection = (await page.ask("state"))["connection"]
        assert connection["state"] == "failed" and "signed in" in connection["problem"]
    finally:
        await app.inspector.close()
        app.drain()
        await page.http.close()
