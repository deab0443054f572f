"""A server that wants a token or a header: the page is told so, gives it, and is never told it back."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.http_process import started
from tests.inspector.page_client import Page, inspected

from toolwire import Server
from toolwire.inspector.credentials import ConnectionCredentials, OAuthClient

KEY = "right-key-0123456789"
PROTECTED = f"""
from toolwire import Context, Server
from toolwire.auth import ApiKeys

server = Server("protected", auth=ApiKeys({{{KEY!r}: "ann"}}))

@server.tool
async def whoami(ctx: Context) -> str:
    return f"{{ctx.principal.subject}} {{ctx.headers.get('x-team')}}"
"""


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    file = tmp_path / "protected.py"
    file.write_text(PROTECTED)
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "http", "--port", "0"]
    async with started(command) as served:
        yield f"http://127.0.0.1:{served.port}/mcp"


async def connection(page: Page) -> dict[str, Any]:
    shown: dict[str, Any] = (await page.ask("state"))["connection"]
    return shown


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("callback", [None, "http://127.0.0.1:1/callback"], ids=["nobody signs in", "somebody could"])
async def test_a_token_is_given_in_the_page(address: str, revision: str, callback: str | None) -> None:
    async with inspected(address, url=address, revision=revision, callback=callback) as page:
        found = await connection(page)
        assert (found["state"], found["refused"]) == ("failed", True)
        assert "auth=" not in found["problem"] and "headers=" not in found["problem"]
        assert (found["credentials"]["token"], found["credentials"]["headers"]) == (False, [])
        assert (found["credentials"]["client"] is None) == (callback is None)
        # The refusal is on the wire, with the request that it answers.
        messages = (await page.ask("state"))["messages"]
        refusal = next(message for message in messages if message["kind"] == "http")
        assert refusal["id"] == 401
        asked = next(message for message in messages if message["number"] == refusal["answers"])
        assert (refusal["method"], asked["kind"]) == (asked["method"], "request")
        told = json.loads((await page.ask("message", number=refusal["number"]))["text"])
        assert told["sent"]["content-type"] == "application/json"
        assert (told["status"], told["request"]) == (401, f"POST {address}")
        assert told["headers"]["www-authenticate"].startswith("Bearer")

        await page.ask("connect", token=f" {KEY} ", headers=[["X-Team", "blue"]])
        found = await connection(page)
        assert (found["state"], found["refused"]) == ("connected", False)
        assert (found["credentials"]["token"], found["credentials"]["headers"]) == (True, ["X-Team"])
        assert await page.text(await page.start("tools/call", name="whoami")) == "ann blue"
        # A value that is not given stays; a header that is left out goes.
        await page.ask("connect", headers=[["X-Team", None], ["X-Other", "1"]])
        assert await page.text(await page.start("tools/call", name="whoami")) == "ann blue"
        await page.ask("connect", headers=[["Authorization", f"Bearer {KEY}"]], token=None)
        assert await page.text(await page.start("tools/call", name="whoami")) == "ann None"
        everything = json.dumps([page.events, await page.ask("state")])
        assert KEY not in everything and "blue" not in everything.replace("ann blue", "")
        await page.ask("connect", headers=[], token=None)
        assert (await connection(page))["refused"] is True


async def test_a_command_to_copy_names_the_token_and_does_not_tell_it(address: str) -> None:
    options = {"auth": KEY, "headers": {"X-Team": "blue"}}
    async with inspected(address, url=address, options=options) as page:
        await page.call("tools/call", name="whoami")
        messages = (await page.ask("state"))["messages"]
        sent = next(message for message in messages if message["method"] == "tools/call")
        text = (await page.ask("command", number=sent["number"]))["text"]
        assert '-H "Authorization: $AUTHORIZATION"' in text and '-H "X-Team: $X_TEAM"' in text
        assert KEY not in text and "blue" not in text


@cases(
    ("asked", "says"),
    [
        ({"headers": [["bad name", "x"]]}, "'bad name' is not the name of a header"),
        ({"headers": [["X-New", None]]}, "The header X-New has no value"),
        ({"headers": [["X-New", "a\r\nHost: evil"]]}, "has characters that cannot be sent"),
        ({"headers": [["X-New", "\u20ac"]]}, "has characters that cannot be sent"),
        ({"headers": [["X-New", ""]]}, "The header X-New is empty"),
        ({"headers": [[f"X-{number}", "x"] for number in range(51)]}, "At most 50 headers"),
        ({"token": "a\nb"}, "The token is empty, or has characters"),
        ({"token": "a" * 20_000}, "The token is longer than 16384 characters"),
        ({"token": "  "}, "The token is empty"),
        ({"client": {"id": "a\nb"}}, "The client ID is empty, or has characters"),
        ({"client": {"id": "a", "secret": "\r"}}, "The client secret is empty, or has characters"),
        ({"client": {"id": "a", "scopes": 'good "bad"'}}, "Scopes are at most 100 words"),
        ({"client": {"id": "a", "scopes": "s " * 101}}, "Scopes are at most 100 words"),
    ],
)
def test_what_http_cannot_carry_changes_nothing(asked: dict[str, Any], says: str) -> None:
    credentials = ConnectionCredentials({"X-Old": "1"}, "token", None)
    with pytest.raises(ValueError, match=says):
        credentials.change({"token": "new", **asked} if "token" not in asked else {"headers": [], **asked})
    assert (credentials.headers, credentials.auth) == ({"X-Old": "1"}, "token")
    assert credentials.client == OAuthClient()


def test_a_client_that_was_registered_by_hand_signs_in_anew_when_it_changes() -> None:
    made: list[OAuthClient] = []

    def sign_in(client: OAuthClient) -> object:
        made.append(client)
        return object()

    credentials = ConnectionCredentials(None, None, sign_in)
    first = credentials.auth
    assert credentials.auth is first and made == [OAuthClient()] and credentials.signs_in
    credentials.change({"client": {"id": " mine ", "secret": "hush-hush", "scopes": "read write"}})
    assert credentials.auth is not first
    assert made[1:] == [OAuthClient("mine", "hush-hush", ("read", "write"))]
    assert credentials.describe()["client"] == {"id": "mine", "secret": True, "scopes": ["read", "write"]}
    assert "hush" not in repr(made[1]) and credentials.secrets == ["hush-hush"]
    # A secret that is not given stays with its client, and goes with it.
    credentials.change({"client": {"id": "mine", "scopes": ""}})
    assert credentials.client == OAuthClient("mine", "hush-hush")
    credentials.change({"client": {"id": "other"}})
    assert credentials.client == OAuthClient("other")
    credentials.change({"token": "given-token"})
    assert credentials.auth == "given-token" and not credentials.signs_in


@cases("timeout", [0, -1, 3601, "5", None, True, [1]])
async def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    async with inspected(Server("here")) as page:
        answer = await page.answer("connect", timeout=timeout)
        assert answer.status == 422 and "number of seconds" in answer.json()["error"]
        assert (await connection(page))["timeout"] == 60


async def test_a_timeout_is_given_in_the_page(address: str) -> None:
    async with inspected(address, url=address, options={"auth": KEY}) as page:
        shown = (await page.ask("connect", timeout=2.5))["connection"]
        assert (shown["state"], shown["timeout"]) == ("connected", 2.5)
        assert page.app.inspector.client._sender.timeout == 2.5


async def test_a_server_without_an_address_takes_no_credentials() -> None:
    async with inspected(Server("here")) as page:
        assert (await connection(page))["credentials"] is None
        answer = await page.answer("connect", token="x")
        assert answer.status == 422


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_message_shows_the_exchange_that_carried_it(address: str, revision: str) -> None:
    options = {"auth": KEY, "headers": {"X-Team": "blue-team"}}
    async with inspected(address, url=address, revision=revision, options=options) as page:
        await page.call("tools/call", name="whoami")
        messages = (await page.ask("state"))["messages"]
        request, answer = (each for each in messages if each["method"] == "tools/call")
        shown = [(await page.ask("message", number=each["number"]))["http"] for each in (request, answer)]
        assert shown[0] == shown[1]
        assert (shown[0]["request"], shown[0]["status"]) == (f"POST {address}", 200)
        sent, received = shown[0]["sent"], shown[0]["headers"]
        assert sent["authorization"] == f"Bearer •••• ({len(KEY)} characters)"
        assert sent["x-team"] == "•••• (9 characters)"
        assert sent["mcp-protocol-version"] == revision and "content-type" in received
        if revision == "2025-11-25":
            assert sent["mcp-session-id"].startswith("••••")
        # Notifications are answered, too; a stream that opens carries no message.
        kinds = {each["kind"] for each in messages}
        assert kinds <= {"request", "result", "notification", "http"}
        for each in messages:
            if each["kind"] == "http":
                assert each["method"] in ("GET", "DELETE") and each["id"] == 200
        everything = json.dumps([page.events, [await page.ask("message", number=each["number"]) for each in messages]])
        assert KEY not in everything and "blue-team" not in everything.replace("ann blue-team", "")
