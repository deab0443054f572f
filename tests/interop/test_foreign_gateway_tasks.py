"""Tasks through a gateway: servers of other libraries behind it, a client of another library in front of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers

from toolwire import Client, Gateway, Policy
from toolwire.client import TaskCancelled
from toolwire.protocol.errors import ProtocolError
from toolwire.shape import Shape

EVERYTHING = Path(__file__).resolve().parents[2] / "examples" / "everything.py"
FOREIGN = Path(__file__).resolve().with_name("serve_fastmcp_tasks.py")
SERVER = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
REVISIONS = ("2025-11-25", "2026-07-28")

pytestmark = pytest.mark.timeout(180)
fronts = pytest.mark.parametrize("front", REVISIONS)


@fronts
async def test_the_reference_server_behind_a_gateway(front: str) -> None:
    """2025-11-25: a tool that only runs as a task, reports, and asks on the way."""

    def choose(message: str, params: Any) -> dict[str, Any]:
        ((name, field),) = params.requested_schema["properties"].items()
        return {name: field["oneOf"][0]["const"]}

    gateway = Gateway("front")
    gateway.add("b", [str(peers.needed_node()), str(peers.node_folder() / SERVER)], list_timeout=60)
    async with Client(gateway, revision=front, elicit=choose, probe_timeout=60) as client:
        assert gateway.backs["b"].revision == "2025-11-25"
        query = {"topic": "tea", "ambiguous": True}
        assert "(technical)" in (await client.call_tool("b_simulate-research-query", query)).text
        handle = await client.call_tool_as_task("b_simulate-research-query", {"topic": "tea"})
        seen = [state.status async for state in handle.updates()]
        assert (seen[0], seen[-1]) == ("working", "completed")
        assert "tea" in (await client.task(handle.id).wait()).text


async def test_an_old_client_waits_for_a_task_of_the_reference_server() -> None:
    gateway = Gateway("front")
    gateway.add("b", [str(peers.needed_node()), str(peers.node_folder() / SERVER)], list_timeout=60)
    async with Client(gateway, revision="2025-06-18", probe_timeout=60) as client:
        assert "tea" in (await client.call_tool("b_simulate-research-query", {"topic": "tea"})).text


@fronts
async def test_fastmcp_behind_a_gateway(front: str) -> None:
    """2026-07-28: the server decides."""
    gateway = Gateway("front")
    command = [str(peers.needed("fastmcp-4.1.2").python), str(FOREIGN)]
    gateway.add("b", command, revision="2026-07-28", list_timeout=60)
    async with Client(gateway, revision=front, probe_timeout=60) as client:
        assert (await client.call_tool("b_slow", {"label": "a"})).text == "slow a"
        handle = await client.call_tool_as_task("b_slow", {"label": "b"})
        assert handle.id
        assert await client.task(handle.id).wait(returns=str) == "slow b"
        assert (await (await client.call_tool_as_task("b_broken")).wait()).is_error
        stopped = await client.call_tool_as_task("b_forever")
        await stopped.cancel()
        with pytest.raises(TaskCancelled):
            await stopped.wait()


@fronts
@pytest.mark.parametrize("change", ["denied", "opened"])
@pytest.mark.parametrize("server", ["reference", "fastmcp"])
async def test_foreign_task_is_judged_by_what_was_decided_when_it_was_accepted(
    server: str, change: str, front: str
) -> None:
    if server == "reference":
        command = [str(peers.needed_node()), str(peers.node_folder() / SERVER)]
        tool, arguments, secret = "b_simulate-research-query", {"topic": "tea"}, "tea"
    else:
        command = [str(peers.needed("fastmcp-4.1.2").python), str(FOREIGN)]
        tool, arguments, secret = "b_slow", {"label": "tea"}, "tea"
    gateway = Gateway("front")
    gateway.add("b", command, list_timeout=60, shape=Shape(policy=Policy(mask=[secret])))
    async with Client(gateway, revision=front, probe_timeout=60) as client:
        handle = await client.call_tool_as_task(tool, arguments)
        shape = Shape(deny=[tool.removeprefix("b_")]) if change == "denied" else None
        await gateway.replace("b", command, list_timeout=60, shape=shape)
        if change == "denied":
            with pytest.raises(ProtocolError, match="There is no such task"):
                await handle.wait()
        else:
            text = (await handle.wait()).text
            assert secret not in text
            assert "[redacted]" in text


@contextmanager
def gateway_process(over: str, back: str, folder: Path) -> Iterator[list[str]]:
    """Yield the command, or the address, of a gateway in front of our example, on one revision."""
    file = folder / "gateway.json"
    command = [sys.executable, "-m", "toolwire", "run", str(EVERYTHING)]
    entry = {"command": command[0], "args": command[1:], "prefix": "", "revision": back}
    file.write_text(json.dumps({"mcpServers": {"back": entry}, "gateway": {"name": "front"}}))
    start = [sys.executable, "-m", "toolwire", "gateway", str(file)]
    if over == "stdio":
        yield [*start, "--transport", "stdio"]
        return
    with subprocess.Popen([*start, "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            words = (word for line in process.stderr for word in line.split())
            yield [next(word for word in words if word.startswith("http://"))]
        finally:
            process.terminate()


@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("back", REVISIONS)
def test_the_typescript_sdk_in_front_of_a_gateway(back: str, over: str, tmp_path: Path) -> None:
    with gateway_process(over, back, tmp_path) as target:
        command = [str(peers.needed_node()), str(peers.SCRIPTS / "drive_node_tasks.mjs"), *target]
        played = subprocess.run(
            command, cwd=peers.node_folder(), env=os.environ, capture_output=True, text=True, timeout=120
        )
    assert played.returncode == 0, played.stderr
    report = json.loads(played.stdout)
    assert (report["slow"][0], report["slow"][-1]) == ("working", "driven: computed for 0.3 seconds")
    assert report["progress"] > 0
    assert report["asking"][-1] == "Deleted a.txt"
    assert "input_required" in report["asking"]
    assert (report["failing"][0], report["failing"][-1]) == ("working", "error")
    assert (report["cancelled"], report["unknown"]) == ("cancelled", -32602)
    assert report["listed"] == ("withheld" if over == "http" else 4)
