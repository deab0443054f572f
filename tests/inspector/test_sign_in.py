"""A server that wants somebody to sign in: the page sends them there, and their browser comes back to the inspector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.auth.stand_in import Reply, Request, Scene, Stage
from tests.client.scripted_http import DISCOVERED, text
from tests.http.httpclient import Answer, HttpClient
from tests.inspector.page_client import Page

from toolwire.auth.flow.messages import Fetched, get
from toolwire.inspector import Inspector, InspectorApp
from toolwire.inspector.events import Events
from toolwire.inspector.sign_in_steps import MAX_STEPS, SignInSteps


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


@asynccontextmanager
async def connecting_to(scene: Scene) -> AsyncIterator[tuple[Page, asyncio.Task[None]]]:
    """A page whose inspector connects to a server where a person has to sign in."""
    callback = "http://127.0.0.1:8000/callback"
    app = InspectorApp(Inspector(scene.server.mcp, label="protected", url=scene.server.mcp, callback=callback))
    page = Page(app)
    connecting = asyncio.create_task(app.inspector.connect())
    try:
        yield page, connecting
    finally:
        await app.inspector.close()
        await asyncio.wait({connecting})
        app.drain()
        await page.http.close()


async def sign_in(scene: Scene, page: Page) -> Answer:
    """Do what a person and their browser do; the answer of the page that they come back to."""
    sent_to = urlsplit(await scene.person((await page.question())["params"]["url"]))
    return await HttpClient(page.app).start("GET", path=sent_to.path, query=sent_to.query).finished()


async def steps(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await page.ask("state"))["signIn"]
    return found


async def test_a_person_signs_in_and_comes_back(scene: Scene) -> None:
    async with connecting_to(scene) as (page, connecting):
        question = await page.question()
        assert question["kind"] == "sign-in"
        assert (await sign_in(scene, page)).status == 200
        await connecting
        assert (await page.ask("state"))["connection"]["state"] == "connected"
        assert await page.text(await page.start("tools/call", name="anything")) == "done"


async def test_whoever_does_not_sign_in_is_told_so(scene: Scene) -> None:
    async with connecting_to(scene) as (page, connecting):
        await page.respond(await page.question(), action="cancel")
        await connecting
        connection = (await page.ask("state"))["connection"]
        assert connection["state"] == "failed" and "no sign-in" in connection["problem"]
        assert [each["state"] for each in await steps(page)][-2:] == ["done", "failed"]


async def test_every_step_is_shown_without_its_secrets(scene: Scene) -> None:
    async with connecting_to(scene) as (page, connecting):
        waiting = await page.event("sign-in-step", step=lambda step: step["state"] == "waiting")
        assert waiting["step"]["request"]["parameters"]["code_challenge_method"] == "S256"
        await sign_in(scene, page)
        await connecting
        shown = await steps(page)
        assert [(each["name"], each["state"]) for each in shown] == [
            ("Challenge of the server", "done"),
            ("Protected resource metadata", "done"),
            ("Authorization server metadata", "done"),
            ("Registration of the client", "done"),
            ("Authorization request", "done"),
            ("Answer of the authorization server", "done"),
            ("Token request", "done"),
            ("Signed in", "done"),
        ]
        challenge, resource, server, registration, asked, answered, token, _ = shown
        assert challenge["answer"]["headers"]["www-authenticate"].startswith("Bearer")
        assert resource["answer"]["body"]["authorization_servers"] == [scene.login.url]
        assert server["answer"]["body"]["issuer"] == scene.login.url
        assert registration["request"]["body"]["client_name"] == "Toolwire inspector"
        assert asked["request"]["parameters"]["resource"] == scene.server.mcp
        assert token["answer"]["body"]["token_type"] == "Bearer"
        assert token["request"]["parameters"]["grant_type"] == "authorization_code"
        for value in (
            answered["answer"]["parameters"]["code"],
            asked["request"]["parameters"]["state"],
            token["answer"]["body"]["access_token"],
            token["answer"]["body"]["refresh_token"],
            token["request"]["parameters"]["code_verifier"],
        ):
            assert value.startswith("••••")
        everything = json.dumps(
            [page.events, shown, (await page.http.start("GET", path="/api/export").finished()).json()]
        )
        query = scene.login.logins[0]
        secrets = [*scene.login.valid, *scene.login.refresh_tokens, scene.login.grants[0]["code"]]
        # The page is given the address to open, which has the state; no step has.
        assert not [secret for secret in secrets if secret in everything] and query["state"] not in json.dumps(shown)
        await app_again(page)
        assert await steps(page) == []


async def app_again(page: Page) -> None:
    """Connect once more: the token is there, and nobody signs in."""
    assert (await page.ask("connect"))["connection"]["state"] == "connected"


@pytest.mark.parametrize(
    ("document", "failed", "advice"),
    [
        ({"code_challenge_methods_supported": None}, "Authorization server metadata", "Turn PKCE on"),
        ({"registration_endpoint": None}, "Not signed in", "Register a client"),
        ({"issuer": "https://other.example"}, "Not signed in", "Compare the error with the last steps"),
        ({"registration_endpoint": "http://127.0.0.1:9/register"}, "Registration of the client", "can be reached"),
    ],
)
async def test_a_step_that_fails_says_what_to_do(
    scene: Scene, document: dict[str, Any], failed: str, advice: str
) -> None:
    scene.login.document = document
    async with connecting_to(scene) as (page, connecting):
        await connecting
        shown = await steps(page)
        first = next(each for each in shown if each["state"] == "failed")
        assert first["name"] == failed and advice in first["advice"]
        assert shown[-1]["name"] == "Not signed in"
        assert shown[-1]["problem"] == (await page.ask("state"))["connection"]["problem"]
        assert advice in shown[-1]["advice"]
        if "registration_endpoint" in document and document["registration_endpoint"] is None:
            assert any("cannot register themselves" in (each["problem"] or "") for each in shown)


@pytest.mark.parametrize(
    ("error", "advice"), [("invalid_grant", "Sign in again"), ("invalid_client", "Check the client ID"), ("odd", None)]
)
async def test_a_refusal_of_the_token_endpoint_is_explained(scene: Scene, error: str, advice: str | None) -> None:
    scene.login.refuses = {"authorization_code": error}
    async with connecting_to(scene) as (page, connecting):
        await sign_in(scene, page)
        await connecting
        refused = (await steps(page))[-2]
        assert (refused["name"], refused["answer"]["status"]) == ("Token request", 400)
        assert error in refused["problem"]
        assert refused["advice"] is None if advice is None else advice in refused["advice"]


@pytest.mark.parametrize("query", ["error=access_denied&error_description=<b>no</b>", "nothing=1"])
async def test_an_answer_without_a_code_is_explained(scene: Scene, query: str) -> None:
    async with connecting_to(scene) as (page, connecting):
        asked = urlsplit((await page.question())["params"]["url"])
        state = dict(parse_qsl(asked.query))["state"]
        back = HttpClient(page.app).start("GET", path="/callback", query=f"{query}&state={state}")
        assert (await back.finished()).status == 200
        await connecting
        answered = next(each for each in await steps(page) if each["name"].startswith("Answer"))
        assert answered["state"] == "failed"
        assert ("<b>no</b>" in answered["problem"]) == ("error" in query)


async def test_a_server_that_publishes_nothing_is_seen_to(scene: Scene) -> None:
    scene.server.challenge = {"resource_metadata": f"{scene.server.url}/nothing"}
    async with connecting_to(scene) as (page, connecting):
        await connecting
        shown = await steps(page)
        assert [each["state"] for each in shown] == ["done", "absent", "failed"]
        assert "status 404" in shown[1]["problem"]


async def test_a_client_that_was_registered_by_hand_is_used(scene: Scene) -> None:
    scene.login.document = {"registration_endpoint": None}
    async with connecting_to(scene) as (page, connecting):
        await connecting
        again = asyncio.create_task(page.ask("connect", client={"id": "by-hand", "scopes": "notes:read"}))
        await sign_in(scene, page)
        assert (await again)["connection"]["state"] == "connected"
        assert (scene.login.logins[0]["client_id"], scene.login.logins[0]["scope"]) == ("by-hand", "notes:read")


def test_steps_are_bounded() -> None:
    found = SignInSteps(Events())
    for number in range(3 * MAX_STEPS):
        body = b'{"error": "' + b"x" * 100_000 + b'"}'
        found.fetched(get(f"https://login.example/{number}"), Fetched(500, {}, body))
    shown = found.describe()
    assert len(shown) == MAX_STEPS and len(shown[0]["problem"]) <= 5_000
    deep = Fetched(200, {}, b"[" * 500 + b"]" * 500)
    found.fetched(get("https://login.example/"), deep)
    assert json.dumps(found.describe())
