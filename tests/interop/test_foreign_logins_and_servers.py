"""The steps of docs/guides/gateway-in-ten-minutes.md, with the real servers from npm and the real provider."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from tests.examples.test_gateway import blocks
from tests.interop import peers
from tests.interop.protected import running
from tests.ports import free_port

from toolwire.auth import OAuth
from toolwire.client import Client

FILES = {"files_read", "files_search_files"}
MEMORY = {
    f"memory_{name}"
    for name in ("create_entities", "create_relations", "add_observations", "read_graph", "search_nodes", "open_nodes")
}


class Folder:
    """The folder of somebody who follows the page. The ports are free ones of this machine."""

    def __init__(self, path: Path) -> None:
        node = peers.needed_node().parent
        self.path = path
        self.port, self.login_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        # The npx beside this Node is a copy which does not find what belongs to it.
        npx = path / "bin" / "npx"
        npx.parent.mkdir()
        script = node.parent / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
        npx.write_text(f'#!/bin/sh\nexec node "{script}" "$@"\n')
        npx.chmod(0o755)
        programs = (str(npx.parent), str(node), os.environ.get("PATH", ""))
        self.environment = {**os.environ, "PATH": os.pathsep.join(programs), "PWD": str(path)}
        (path / "node_modules").symlink_to(peers.node_folder() / "node_modules")
        (path / "papers").mkdir()
        (path / "papers" / "today.txt").write_text("Buy milk.\n")
        self.write("login.mjs", *blocks("js"))

    def write(self, name: str, *parts: str) -> None:
        text = "\n".join(parts).replace(":8000", f":{self.port}").replace("9000", str(self.login_port))
        (self.path / name).write_text(text, encoding="utf-8")

    def toolwire(self, *words: str) -> str:
        """Run a command of the page, and return what it prints."""
        command = [sys.executable, "-m", "toolwire", *words]
        done = subprocess.run(command, cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=100)
        return done.stdout + done.stderr

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[None]:
        command = [sys.executable, "-m", "toolwire", "gateway", "gateway.toml", "--port", str(self.port)]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.path, env=self.environment, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            said = (await process.stderr.readline()).decode()
            assert "serving at" in said, said
            yield
        finally:
            process.terminate()
            await process.communicate()

    @contextmanager
    def provider(self) -> Iterator[None]:
        ready = f"http://127.0.0.1:{self.login_port}/.well-known/openid-configuration"
        with running([str(peers.needed_node()), "login.mjs"], ready, cwd=self.path, env=self.environment):
            yield


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def tools_of(client: Client, wanted: set[str] | int) -> set[str]:
    """Return the tools, once they are those that are wanted, or as many."""
    while True:
        found = {tool.name for tool in await client.list_tools()}
        if wanted in (found, len(found)):
            return found
        await asyncio.sleep(0.1)


async def sign_in(url: str) -> str:
    """Fill in the forms of the provider, as a person does in a browser; return the address that this ends at."""
    return await asyncio.to_thread(_fill_in, url)


class _UpToTheProgram(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but for the one to the program that waits for its answer."""

    def redirect_request(self, *args: Any) -> Any:
        request = super().redirect_request(*args)
        if request is not None and "/callback?" in request.full_url:
            raise _Arrived(request.full_url)
        return request


class _Arrived(Exception):
    pass


def _fill_in(url: str) -> str:
    browser = urllib.request.build_opener(_UpToTheProgram(), urllib.request.HTTPCookieProcessor(CookieJar()))
    entered: dict[str, str] | None = None
    try:
        for _ in range(5):
            data = None if entered is None else urllib.parse.urlencode(entered).encode()
            with browser.open(url, data, timeout=30) as answer:
                page = answer.read().decode()
            found = re.search(r'<form[^>]* action="([^"]+)"', page)
            assert found is not None, page
            url = found.group(1)
            entered = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
            entered |= dict.fromkeys(re.findall(r'<input required[^>]* name="([^"]+)"', page), "ada")
    except _Arrived as arrived:
        return str(arrived)
    raise AssertionError("the provider asks again and again")


async def test_the_page_can_be_followed(folder: Folder) -> None:
    first, second, *added = blocks("toml")
    folder.write("gateway.toml", first)
    assert "0 errors" in folder.toolwire("gateway", "check", "gateway.toml")
    async with folder.gateway(), Client(folder.url, cache=False) as client:
        await tools_of(client, 23)
        assert "Buy milk." in folder.toolwire("call", folder.url, "files_read_text_file", "path=today.txt")
        # The gateway takes the change while it runs.
        folder.write("gateway.toml", second)
        await tools_of(client, FILES | MEMORY)
        assert "Buy milk." in folder.toolwire("call", folder.url, "files_read", "path=today.txt")
        assert "today.txt" in folder.toolwire("call", folder.url, "files_search_files", "pattern=*.txt")
        [search] = [tool for tool in await client.list_tools() if tool.name == "files_search_files"]
        assert "path" not in search.input_schema["properties"]
        assert "no tool" in folder.toolwire("call", folder.url, "files_write_file", "path=today.txt", "content=no")
    (folder.path / "audit.key").write_text("0123456789abcdef" * 4)
    (folder.path / "audit.key").chmod(0o600)
    folder.write("gateway.toml", second, *added)
    with folder.provider():
        async with folder.gateway():
            assert "401" in folder.toolwire("list", folder.url)
            async with Client(folder.url, auth=OAuth(login=sign_in), cache=False) as client:
                await tools_of(client, FILES | MEMORY)
                assert "Buy milk." in (await client.call_tool("files_read", {"path": "today.txt"})).text
                assert (await client.call_tool("files_search_files", {"pattern": "*", "path": ".."})).is_error
    lines = [json.loads(line) for line in (folder.path / "audit.jsonl").read_text().splitlines()]
    calls = [line for line in lines if line["kind"] == "call" and line.get("name") == "files_read"]
    assert [(line["who"]["subject"], line["back"], line["outcome"]) for line in calls] == [("ada", "files", "ok")]
    verified = folder.toolwire("audit", "verify", "--key-file", "audit.key", "audit.jsonl")
    assert "as they were written" in verified
