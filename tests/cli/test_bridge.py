"""`toolwire bridge URL`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from tests.cli.command import Command
from tests.gateway.backs import everything

from toolwire import testing

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}


async def test_a_client_that_starts_a_command_gets_messages_and_nothing_else() -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolwire", "bridge", url, "--header", "X-Tenant: ${TENANT}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TENANT": "acme"},
        )
        requests: list[dict[str, Any]] = [
            {"id": 1, "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
        ]
        assert process.stdin is not None and process.stdout is not None
        for each in requests:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
        lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
        # The end of the input is the end of the command.
        process.stdin.close()
        rest, said = await process.communicate()
    assert process.returncode == 0
    assert [line["id"] for line in lines] == [1, 2]
    assert lines[0]["result"]["serverInfo"]["name"] == "back"
    assert lines[1]["result"]["structuredContent"] == {"result": 3}
    assert [json.loads(line)["jsonrpc"] for line in rest.splitlines()] == ["2.0"] * len(rest.splitlines())
    assert said.decode() == f"toolwire: connected to {url}, which speaks 2026-07-28\n"


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("notes.example",), 2, "'notes.example' is not a URL"),
        (("https://x.example/mcp", "--header", "nonsense"), 2, "'nonsense' is not a header"),
        (("https://x.example/mcp", "--header", "K: ${NOT_SET}"), 2, "variable NOT_SET is not set"),
        (("https://x.example/mcp", "--revision", "1999-01-01"), 2, "Unknown revision '1999-01-01'"),
    ],
)
def test_wrong_use_is_named(toolwire: Command, words: tuple[str, ...], status: int, text: str) -> None:
    done = toolwire("bridge", *words)
    assert done.status == status
    assert text in done.err


@pytest.mark.parametrize("sign_in", [(), ("--no-sign-in",), ("--token", "t"), ("--header", "Authorization: Bearer t")])
@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/\nb",
        "http://a.example\r\nX: y/",
        "http://a.example/\x1b[2J",
        "http://a b/",
        "http://a.example:b/",
        "http://a.example:99999/",
        "http://",
        "http://[::1",
        "http://\u202ea.example/",
        "http://\udcff/",
    ],
)
def test_a_url_of_a_bad_form_is_a_line_of_wrong_use(toolwire: Command, url: str, sign_in: tuple[str, ...]) -> None:
    done = toolwire("bridge", url, *sign_in)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("toolwire: ") and done.err.count("\n") == 1
    assert done.err.rstrip("\n").isprintable()
