"""Our client signs in to our server at an authorization server that neither of them knows: npm's `oidc-provider`."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from tests.interop import peers
from tests.interop.protected import FOLDER, RESOURCE, protected, running
from tests.ports import free_port

from toolwire.auth import FileStorage, NeedsLogin, OAuth
from toolwire.client import Client


class Person:
    """In front of a browser that keeps cookies and follows redirects, up to the address that belongs to the client."""

    def __init__(self) -> None:
        self.visits = 0
        self._browser = urllib.request.build_opener(_Stops(), urllib.request.HTTPCookieProcessor(CookieJar()))

    async def __call__(self, url: str) -> str:
        self.visits += 1
        return await asyncio.to_thread(self._visit, url)

    def _visit(self, url: str) -> str:
        for _ in range(10):
            if url.startswith("http://127.0.0.1:8765/"):
                return url
            try:
                page: HTTPResponse = self._browser.open(url, timeout=10)
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code in (302, 303), error.read()
                    url = urljoin(url, error.headers["location"])
            else:
                raise AssertionError(page.read())
        raise AssertionError("too many redirects")


class _Stops(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with protected() as url:
        yield url


async def text(client: Client, tool: str, **arguments: str) -> str:
    return str(await client.call_tool(tool, arguments, returns=str))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("dpop", [False, True])
async def test_sign_in_step_up_refresh_and_restart(server_url: str, tmp_path: Path, revision: str, dpop: bool) -> None:
    person = Person()
    auth = OAuth(login=person, storage=FileStorage(tmp_path), dpop=dpop)
    async with Client(server_url, auth=auth, revision=revision) as client:
        assert await text(client, "whoami") == "ada may notes:read"
        assert person.visits == 1
        assert await text(client, "write", text="this") == "wrote this"
        assert person.visits == 2
        assert await text(client, "whoami") == "ada may notes:read notes:write"

    # Another program, later: the token has expired, and nobody is there to sign in.
    before = stored_token(tmp_path)
    later = OAuth(login=None, storage=FileStorage(tmp_path), dpop=dpop, clock=lambda: time.time() + 3600)
    async with Client(server_url, auth=later, revision=revision) as client:
        assert await text(client, "write", text="that") == "wrote that"
    after = stored_token(tmp_path)
    assert after["access_token"] != before["access_token"]
    # The authorization server gives out a new refresh token each time, and the new one is kept.
    assert after["refresh_token"] != before["refresh_token"]
    assert person.visits == 2


async def test_headless(server_url: str, tmp_path: Path) -> None:
    auth = OAuth(login=None, storage=FileStorage(tmp_path))
    with pytest.raises(NeedsLogin) as caught:
        async with Client(server_url, auth=auth):
            pass
    await auth.finish(await Person()(caught.value.url))
    async with Client(server_url, auth=auth) as client:
        assert await text(client, "whoami") == "ada may notes:read"


# --- servers of others that issue their own tokens ---


async def test_a_server_of_fastmcp(tmp_path: Path) -> None:
    """Its authorization server holds clients to the scopes that they were registered with."""
    port, peer = free_port(), peers.needed("fastmcp-4.1.2")
    command = [str(peer.python), str(peers.SCRIPTS / "serve_fastmcp_login.py"), str(port)]
    with running(command, f"http://127.0.0.1:{port}{RESOURCE}"):
        await sign_in_and_come_back(f"http://127.0.0.1:{port}/mcp", tmp_path, "whoami", "let in")


async def test_a_server_of_the_typescript_sdk(tmp_path: Path) -> None:
    """The example of the SDK, which takes only tokens that were issued for it."""
    port = free_port()
    example = "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"
    command = [str(peers.node()), example, "--oauth", "--oauth-strict"]
    environment = {**os.environ, "MCP_PORT": str(port), "MCP_AUTH_PORT": str(free_port())}
    with running(command, f"http://localhost:{port}{RESOURCE}", cwd=FOLDER, env=environment):
        await sign_in_and_come_back(f"http://localhost:{port}/mcp", tmp_path, "greet", "Hello, Ada!", name="Ada")


async def sign_in_and_come_back(url: str, folder: Path, tool: str, expected: str, **arguments: str) -> None:
    person = Person()
    async with Client(url, auth=OAuth(login=person, storage=FileStorage(folder))) as client:
        assert (await client.call_tool(tool, arguments)).text == expected
    async with Client(url, auth=OAuth(login=None, storage=FileStorage(folder))) as client:
        assert (await client.call_tool(tool, arguments)).text == expected
    assert person.visits == 1


def stored_token(folder: Path) -> dict[str, str]:
    found = [json.loads(each.read_text()) for each in folder.glob("*.json")]
    (token,) = (each["token"] for each in found if "token" in each)
    return dict(token)
