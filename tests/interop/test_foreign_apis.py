"""Clients that we did not write use servers that were made from APIs: a stub on a real port, and a FastAPI application.

`make interop` installs the clients and runs this.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.golden.fixture import PIXEL
from tests.interop import peers
from tests.openapi.stub_api import Arrived, Reply, json_reply, stub_api

# Starting a client takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(180)

SERVER = [sys.executable, str(peers.SCRIPTS / "serve_api.py")]
CAT = {"id": 7, "name": "Tom", "tag": "cat"}
PROBLEM = b'{"title": "No such pet", "detail": "Nobody is called so."}'
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("showPet", {"petId": "a/b c", "fields": ["name", "tag"], "X-Tenant": "blue", "theme": "dark"}),
    ("createPet", {"name": "Tom", "tag": "cat"}),
    ("showPhoto", {"petId": "tom"}),
    ("showPhoto", {"petId": "nobody"}),
    ("createPet", {"tag": "bird"}),
    ("showPet", {"petId": "..", "X-Tenant": "blue", "theme": "dark"}),
]
#: Each client, and the revision that it speaks in each of its modes.
CLIENTS = [
    ("mcp-2.3.0", "auto", "2026-07-28"),
    ("mcp-2.3.0", "legacy", "2025-11-25"),
    ("node", "auto", "2026-07-28"),
    ("node", "legacy", "2025-11-25"),
]


class Pets:
    """The API behind: it answers by the path, and an export is done at the second look."""

    def __init__(self) -> None:
        self.looks = 0

    def answer(self, arrived: Arrived) -> Reply:
        if arrived.path == "/exports":
            return Reply(202, headers={"operation-location": "/exports/1", "retry-after": "0"})
        if arrived.path == "/exports/1":
            self.looks += 1
            return json_reply({"status": "succeeded" if self.looks > 1 else "running"}, retry_after="0")
        if arrived.path == "/pets/nobody/photo":
            return Reply(404, PROBLEM, "application/problem+json")
        if arrived.path.endswith("/photo"):
            return Reply(200, base64.b64decode(PIXEL) if isinstance(PIXEL, str) else PIXEL, "image/png")
        return json_reply(CAT, 201 if arrived.method == "POST" else 200)


async def ran(command: list[str], given: bytes | None = None, **options: Any) -> str:
    """Return what a program printed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, **options)
    output, errors = await process.communicate(given)
    assert process.returncode == 0, errors.decode()
    return output.decode()


@asynccontextmanager
async def served(source: str) -> AsyncIterator[str]:
    """Yield the address of a generated server in a process of its own."""
    process = await asyncio.create_subprocess_exec(*SERVER, source, "http", stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        assert address, "the server did not start"
        yield address
    finally:
        process.kill()
        await process.wait()


async def played(client: str, mode: str, target: list[str], calls: list[Any]) -> dict[str, Any]:
    environment = os.environ | {"DRIVE_MODE": mode, "DRIVE_CALLS": json.dumps(calls), "DRIVE_PACKAGE": "client"}
    if client == "node":
        command = [str(peers.needed_node()), str(peers.SCRIPTS / "drive_node.mjs")]
        output = await ran([*command, "given", *target], cwd=peers.node_folder(), env=environment)
    else:
        peer = peers.needed(client)
        output = await ran([str(peer.python), str(peer.driver), "given", *target], env=environment)
    report: dict[str, Any] = json.loads(output)
    return report


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize(("client", "mode", "revision"), CLIENTS)
async def test_a_client_uses_the_tools_of_an_api(client: str, mode: str, revision: str, over: str) -> None:
    async with stub_api() as stub:
        stub.answers(Pets().answer)
        if over == "stdio":
            report = await played(client, mode, [*SERVER, stub.url], CALLS)
        else:
            async with served(stub.url) as address:
                report = await played(client, mode, [address], CALLS)
        arrived = stub.arrived
    assert report["revision"] == revision
    tools = report["tools"]
    assert set(tools) == {"showPet", "createPet", "showPhoto", "export"}
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    assert hints.items() <= tools["showPet"]["annotations"].items()
    assert tools["showPet"]["inputSchema"]["required"] == ["petId", "X-Tenant", "theme"]

    shown, made, photo, missing, refused, traversal = report["calls"]
    assert (shown["structured"], json.loads(shown["text"])) == (CAT, CAT)
    assert made["structured"] == CAT
    assert (photo["types"][0], photo["error"]) == ("image", False)
    assert base64.b64decode(photo["data"][0]).startswith(b"\x89PNG")
    assert missing["error"] and "404 Not Found: No such pet: Nobody is called so." in missing["text"]
    assert refused["error"] and '"name"' in refused["text"]
    assert traversal["error"] and "must not have the segments" in traversal["text"]

    assert [each.target for each in arrived] == [
        "/pets/a%2Fb%20c?fields=name,tag",
        "/pets",
        "/pets/tom/photo",
        "/pets/nobody/photo",
    ]
    assert (arrived[0].headers["x-tenant"], arrived[0].headers["cookie"]) == ("blue", "theme=dark")
    assert arrived[1].json == {"name": "Tom", "tag": "cat"}


@pytest.mark.parametrize(("client", "mode", "revision"), CLIENTS)
async def test_a_client_that_checks_results_takes_answers_that_contradict_the_description(
    client: str, mode: str, revision: str
) -> None:
    """Clients check structured content against the published schema. Nothing of the answer is missing in it."""
    odd = {"id": "A-17", "name": None, "tag": 5, "owner": {"name": ["x"]}}
    calls = [["showPet", {"petId": "a", "X-Tenant": "blue", "theme": "dark"}]]
    async with stub_api() as stub:
        stub.answers(json_reply(odd))
        report = await played(client, mode, [*SERVER, stub.url], calls)
        stub.answers(json_reply([odd]))
        other = await played(client, mode, [*SERVER, stub.url], calls)
    (shown,) = report["calls"]
    assert not shown["error"]
    assert shown["structured"] == odd
    (wrapped,) = other["calls"]
    assert wrapped["structured"] == {"result": [odd]}


@pytest.mark.parametrize(("client", "mode", "revision"), CLIENTS[:1])
async def test_a_client_gives_optional_headers_and_cookies(client: str, mode: str, revision: str) -> None:
    given = {"petId": "a", "X-Tenant": "blue", "theme": "dark", "Accept-Language": ["de", "en"], "size": 3}
    async with stub_api() as stub:
        stub.answers(json_reply(CAT))
        report = await played(client, mode, [*SERVER, stub.url], [["showPet", given]])
        (arrived,) = stub.arrived
    properties = report["tools"]["showPet"]["inputSchema"]["properties"]
    assert "X-Session-Token" not in properties
    assert arrived.headers["accept-language"] == "de,en"
    assert arrived.headers["cookie"] == "theme=dark; size=3"


async def test_pydantic_ai_uses_the_tools_of_an_api() -> None:
    async with stub_api() as stub:
        stub.answers(Pets().answer)
        command = [str(peers.needed("pydantic-ai").python), str(peers.SCRIPTS / "drive_agents.py"), "pydantic_ai"]
        output = await ran([*command, *SERVER, stub.url], given=json.dumps([CALLS[0], CALLS[1], CALLS[3]]).encode())
        arrived = stub.arrived
    report = json.loads(output)
    for form, handed in report["handed"].items():
        assert set(handed) == {"showPet", "createPet", "showPhoto", "export"}, form
        assert set(handed["showPet"]["properties"]) >= {"petId", "fields", "X-Tenant", "theme"}
    shown, made, missing = report["answers"]
    assert json.loads(shown) == json.loads(made) == CAT
    assert "No such pet" in missing
    assert {"/pets/a%2Fb%20c?fields=name,tag", "/pets", "/pets/nobody/photo"} == {each.target for each in arrived}


async def test_the_typescript_sdk_waits_for_an_accepted_operation_as_a_task() -> None:
    async with stub_api() as stub:
        api = Pets()
        stub.answers(api.answer)
        command = [str(peers.needed_node()), str(peers.SCRIPTS / "drive_node_tasks.mjs")]
        environment = os.environ | {"DRIVE_CALL": json.dumps(["export", {}])}
        async with served(stub.url) as address:
            output = await ran([*command, address], cwd=peers.node_folder(), env=environment)
    seen = json.loads(output)["seen"]
    assert seen[0] == "working" and "completed" in seen
    assert json.loads(seen[-1]) == {"status": "succeeded"}
    assert api.looks == 2


@pytest.mark.parametrize(("client", "mode", "revision"), CLIENTS)
async def test_a_client_uses_a_fastapi_application(client: str, mode: str, revision: str) -> None:
    calls: list[Any] = [
        ["showPet", {"pet": "a b", "tenant": "blue", "fields": "name"}],
        ["createPet", {"name": "Tom"}],
        ["showPet", {"pet": "nobody", "tenant": "blue"}],
        ["createPet", {"name": ""}],
    ]
    async with served("fastapi") as address:
        report = await played(client, mode, [address], calls)
    assert report["revision"] == revision
    assert set(report["tools"]) == {"showPet", "createPet"}
    shown, made, missing, refused = report["calls"]
    assert shown["structured"] == {"name": "a b", "tag": "blue name"}
    assert made["structured"] == {"name": "Tom", "tag": "cat"}
    assert missing["error"] and "There is no such pet" in missing["text"]
    assert refused["error"]
