"""Sign in with the python `mcp` client, release 2, and use a guarded server.

`python drive_oauth_mcp2.py ADDRESS SECONDS` waits so many seconds before its last call, until its token has ended.
It plays the user's browser, too: redirects are followed until they lead to the client. The report says what the tools
answered, and which scopes each visit to the authorization server asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

CALLBACK = "http://127.0.0.1:7777/callback"


class Memory:
    """Where the client keeps what it was given."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Browser:
    """A user who signs in wherever the client sends them."""

    def __init__(self) -> None:
        self.visits: list[list[str]] = []
        self.answer: dict[str, list[str]] = {}

    async def visit(self, url: str) -> None:
        self.visits.append(sorted(parse_qs(urlsplit(url).query).get("scope", [""])[0].split()))
        async with httpx2.AsyncClient(follow_redirects=False) as http:
            while not url.startswith(CALLBACK):
                response = await http.get(url)
                if response.status_code == 200:
                    response = await self.agree(http, response.text)
                url = str(response.url.join(response.headers["location"]))
        self.answer = parse_qs(urlsplit(url).query)

    async def agree(self, http: httpx2.AsyncClient, page: str) -> httpx2.Response:
        """Somebody asks for consent: press the first button."""
        form = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', page)[:2])
        action = re.findall(r'action="([^"]*)"', page)[0]
        return await http.post(unescape(action), data={name: unescape(value) for name, value in form.items()})

    async def come_back(self) -> AuthorizationCodeResult:
        first = {name: values[0] for name, values in self.answer.items()}
        assert "code" in first, first
        return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))


async def main(address: str, seconds: float) -> None:
    browser = Browser()
    metadata = OAuthClientMetadata(
        client_name="drive-oauth",
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(
        address, metadata, Memory(), redirect_handler=browser.visit, callback_handler=browser.come_back
    )
    report: dict[str, Any] = {}
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=os.environ.get("DRIVE_MODE", "auto")) as client:
            report["tools"] = [tool.name for tool in (await client.list_tools()).tools]
            report["whoami"] = await text(client, "whoami")
            report["write"] = await text(client, "write", text="this")
            report["visits"] = list(browser.visits)
            await asyncio.sleep(seconds)
            report["later"] = await text(client, "whoami")
            report["visits_later"] = len(browser.visits)
    print(json.dumps(report))


async def text(client: Client, tool: str, **arguments: str) -> str:
    result = await client.call_tool(tool, arguments)
    return str(result.content[0].text)  # type: ignore[union-attr]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
