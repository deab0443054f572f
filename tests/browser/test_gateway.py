"""A gateway in the page: the servers behind it, their state, and each hop of a call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

FRIENDLY = Path(__file__).parent / "servers" / "friendly.py"
COMMAND = {"command": sys.executable, "args": ["-m", "toolwire", "run", str(FRIENDLY)]}


def write(folder: Path) -> Path:
    """Write the file of a gateway with a server of each era, and one that is away."""
    file = folder / "gateway.json"
    servers = {
        "old": {**COMMAND, "revision": "2025-11-25"},
        "new": COMMAND,
        "gone": {"url": "http://127.0.0.1:9/mcp"},
    }
    file.write_text(json.dumps({"mcpServers": servers, "gateway": {"name": "front"}}))
    return file


@pytest.mark.parametrize(
    ("words", "scheme"), [(("inspect",), "light"), (("gateway", "--inspect", "--port", "0"), "dark")]
)
def test_the_servers_behind_a_gateway(
    words: tuple[str, ...], scheme: str, inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path
) -> None:
    file = write(tmp_path)
    opened = tab(inspect(*words, file), color_scheme=scheme)
    page = opened.page
    page.get_by_role("tab", name="Servers").click()
    servers, side = page.get_by_role("listbox", name="Servers behind the gateway"), page.locator("#drawer .side")
    expect(servers.get_by_role("option")).to_have_count(3)
    expect(side).to_contain_text("In force since")
    if words[0] == "gateway":
        # The file is followed. One that is wrong changes nothing, and its mistake is shown.
        right = file.read_text()
        file.write_text(right.replace('"url"', '"urll"'))
        expect(side.locator(".problem")).to_contain_text("line 1, mcpServers.gone.urll")
        opened.shot(f"gateway-wrong-{scheme}")
        file.write_text(right)
        expect(side.locator(".problem")).to_have_count(0)
    servers.get_by_role("option", name="gone").click()
    expect(side).to_contain_text("cannot be reached")
    expect(side.locator(".state")).to_have_text("away")
    for name, revision, era in (("old", "2025-11-25", "legacy"), ("new", "2026-07-28", "modern")):
        servers.get_by_role("option", name=name).click()
        expect(side).to_contain_text(revision)
        expect(side).to_contain_text(era)
        expect(side).to_contain_text("stdio")
    opened.shot(f"gateway-servers-{scheme}")

    opened.call("old_forecast")
    expect(servers.get_by_role("option", name="old")).to_contain_text("1 request")
    page.locator("#drawer-wire").click()
    page.get_by_label("Filter the messages by text").fill("forecast")
    page.get_by_role("radio", name="Requests").click()
    messages = page.get_by_role("listbox", name="Messages")
    expect(messages.locator(".is-hop")).to_have_count(2)
    messages.locator(".is-hop.is-result").click()
    expect(side).to_contain_text("from old")
    opened.shot(f"gateway-hops-{scheme}")
    side.get_by_role("button", name="Its request").click()
    expect(side).to_contain_text("to old")
    assert opened.fits()
