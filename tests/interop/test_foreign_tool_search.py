"""Clients of others find one of 2,000 tools behind our gateway, and call it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.test_foreign_agents import drive
from tests.interop.test_foreign_clients import AUTO, CLIENT, LEGACY, SDK, Client

from toolwire.tokens import count_tokens

SERVER = [sys.executable, str(peers.SCRIPTS / "serve_search.py")]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("search_tools", {"query": "weight of a parcel"}),
    ("call_tool", {"name": "shop_weigh_parcel", "arguments": {"grams": 1500}}),
    ("call_tool", {"name": "shop_weigh_parcel", "arguments": {}}),
    ("call_tool", {"name": "s3_refund_pipeline_0300", "arguments": {"workspace": "w"}}),
    ("search_tools", {"query": "select:s12_list_invoice_1220"}),
    ("call_tool", {"name": "s12_list_invoice_1220", "arguments": {"workspace": "mine"}}),
    ("shop_opening_hours", {}),
]
CLIENTS = (
    Client("mcp-1.9.4", "2025-03-26", "stdio"),
    Client("mcp-1.30.0", "2025-11-25", "stdio"),
    Client("mcp-2.3.0", "2025-11-25", "stdio", environment=LEGACY),
    Client("mcp-2.3.0", "2026-07-28", "stdio", environment=AUTO),
    Client("node-sdk-1", "2025-11-25", "stdio", environment=SDK),
    Client("node-client-2", "2026-07-28", "stdio", environment=CLIENT | AUTO),
)

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("client", CLIENTS, ids=[f"{each.name}-{each.revision}" for each in CLIENTS])
def test_found_tools_are_called_through_a_gateway(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVE_CALLS", json.dumps(CALLS))
    report = client.play_with(SERVER, "given")
    assert report["revision"] == client.revision
    assert sorted(report["tools"]) == ["call_tool", "search_tools", "shop_opening_hours"]
    assert count_tokens(json.dumps(report["tools"])) < 6_000
    found, weighed, wrong, unknown, selected, listed, pinned = report["calls"]
    hit = json.loads(found["text"])["tools"][0]
    assert (hit["name"], hit["server"], hit["inputSchema"]["required"]) == ("shop_weigh_parcel", "shop", ["grams"])
    assert hit["annotations"]["readOnlyHint"] is True
    assert json.loads(weighed["text"]) == {"kilograms": 1.5} and not weighed["error"]
    assert wrong["error"] and '"required":["grams"]' in wrong["text"]
    assert unknown["error"] and "There is no tool" in unknown["text"]
    assert [each["name"] for each in json.loads(selected["text"])["tools"]] == ["s12_list_invoice_1220"]
    assert listed["text"] == "list_invoice_1220 of mine"
    assert pinned["text"] == "9 to 5"


@pytest.mark.parametrize("framework", ["langchain", "pydantic_ai"])
def test_found_tools_are_called_by_frameworks(framework: str) -> None:
    done = drive(framework, SERVER, CALLS[:2])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert sorted(report["handed"]["tools"]) == ["call_tool", "search_tools", "shop_opening_hours"]
    found, weighed = report["answers"]
    assert "shop_weigh_parcel" in found
    assert "1.5" in weighed
