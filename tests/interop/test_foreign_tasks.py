"""Tasks across libraries: our client drives those of others, and another client drives ours."""

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

from toolwire import Client
from toolwire.client import TaskCancelled

EVERYTHING = Path(__file__).resolve().parents[2] / "examples" / "everything.py"
FOREIGN = Path(__file__).resolve().with_name("serve_fastmcp_tasks.py")
SERVER = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"

pytestmark = pytest.mark.timeout(180)


async def test_a_task_of_the_reference_server() -> None:
    """2025-11-25: a tool that only runs as a task, reports, and asks on the way."""

    def choose(message: str, params: Any) -> dict[str, Any]:
        ((name, field),) = params.requested_schema["properties"].items()
        return {name: field["oneOf"][0]["const"]}

    target = [str(peers.node()), str(peers.node_folder() / SERVER)]
    async with Client(target, elicit=choose) as client:
        assert client.revision == "2025-11-25"
        await client.list_tools()  # It refuses a plain call with a result, not with an error.
        query = {"topic": "tea", "ambiguous": True}
        assert "(technical)" in (await client.call_tool("simulate-research-query", query)).text
        handle = await client.call_tool_as_task("simulate-research-query", {"topic": "tea"}, ttl=60)
        seen = [state.status async for state in handle.updates()]
        assert (seen[0], seen[-1]) == ("working", "completed")
        assert "tea" in (await client.task(handle.id).wait()).text


async def test_a_task_of_fastmcp() -> None:
    """2026-07-28: the server decides."""
    target = [str(peers.BY_NAME["fastmcp-4.1.2"].python), str(FOREIGN)]
    async with Client(target, probe_timeout=60) as client:
        assert client.revision == "2026-07-28"
        assert (await client.call_tool("slow", {"label": "a"})).text == "slow a"
        handle = await client.call_tool_as_task("slow", {"label": "b"})
        assert handle.id
        assert await client.task(handle.id).wait(returns=str) == "slow b"
        assert (await client.call_tool("broken")).is_error
        stopped = await client.call_tool_as_task("forever")
        await stopped.cancel()
        with pytest.raises(TaskCancelled):
            await stopped.wait()


@contextmanager
def served(over: str) -> Iterator[list[str]]:
    if over == "stdio":
        yield [sys.executable, "-m", "toolwire", "run", str(EVERYTHING)]
        return
    command = [sys.executable, "-m", "toolwire", "run", str(EVERYTHING), "--transport", "http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield [next(word for word in process.stderr.readline().split() if word.startswith("http://"))]
        finally:
            process.terminate()


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_the_typescript_sdk_drives_our_tasks(over: str) -> None:
    with served(over) as target:
        command = [str(peers.node()), str(peers.SCRIPTS / "drive_node_tasks.mjs"), *target]
        played = subprocess.run(
            command, cwd=peers.node_folder(), env=os.environ, capture_output=True, text=True, timeout=120
        )
    assert played.returncode == 0, played.stderr
    report = json.loads(played.stdout)
    assert (report["slow"][0], report["slow"][-1]) == ("working", "driven: computed for 0.3 seconds")
    assert report["progress"] > 1
    assert report["asking"][-1] == "Deleted a.txt"
    assert "input_required" in report["asking"]
    assert (report["failing"][0], report["failing"][-1]) == ("working", "error")
    assert (report["cancelled"], report["unknown"]) == ("cancelled", -32602)
    assert report["listed"] == ("withheld" if over == "http" else 4)
