"""`toolwire gateway FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.gateway.backs import Away, everything, one
from tests.http_process import started

from toolwire import Client, Gateway, testing
from toolwire.protocol.revisions import MODERN

COMMAND = (sys.executable, "-m", "toolwire", "gateway")


@pytest.mark.covers("GW-1.5")
@pytest.mark.parametrize(("back", "workers"), [(MODERN, "1"), ("2025-11-25", "2")])
async def test_the_servers_of_a_file_are_served_at_one_address(back: str, workers: str, tmp_path: Path) -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        file = tmp_path / "gateway.json"
        file.write_text(
            json.dumps(
                {"mcpServers": {"back": {"url": url, "prefix": "", "revision": back}}, "gateway": {"name": "front"}}
            )
        )
        async with started([*COMMAND, file, "--port", "0", "--workers", workers]) as served:
            for front in (MODERN, "2025-11-25"):
                address = f"http://127.0.0.1:{served.port}/mcp"
                client = Client(address, revision=front, elicit=lambda message, params: {"value": True})
                async with client:
                    assert client.server is not None and client.server.name == "front"
                    assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
                    assert await client.call_tool("book", returns=str) == "True True"
        async with Client([*COMMAND, str(file), "--transport", "stdio"]) as client:
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("nowhere.json",), 2, "cannot be read"),
        ((__file__,), 2, "cannot be read as a JSON file"),
        (("nowhere.json", "--transport", "stdio", "--port", "1"), 2, "--port is for --transport http"),
        (("nowhere.json", "--inspect", "--workers", "2"), 2, "--inspect is for one process over HTTP"),
        (("nowhere.json", "--inspect", "--transport", "stdio"), 2, "--inspect is for one process over HTTP"),
    ],
)
def test_wrong_use_is_named(toolwire: Command, words: tuple[str, ...], status: int, text: str) -> None:
    done = toolwire("gateway", *words)
    assert done.status == status
    assert text in done.err


def test_servers_that_a_gateway_cannot_reach_are_named(toolwire: Command) -> None:
    gateway = Gateway("front").add("gone", Away()).add("there", one("t", "run"))
    toolwire.serves(gateway)
    done = toolwire("list", "server")
    assert "there_run" in done.out
    assert done.err.endswith("toolwire: the lists are not complete: this gateway cannot reach gone\n")
    done = toolwire("call", "server", "gone_run")
    assert done.status == 2
    assert "the server has no tool 'gone_run'; it has there_run, and cannot reach gone" in done.err
