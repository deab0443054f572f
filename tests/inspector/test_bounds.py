"""Servers that send too much: what they send is cut before it reaches the page, and can be had in full."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import cases
from tests.client.json_server import JsonServer
from tests.inspector.page_client import inspected

from toolwire import Client, Limits, Server, Tool
from toolwire.inspector.catalogue import ServerCatalogue
from toolwire.inspector.events import MAX_QUEUED, Events
from toolwire.inspector.excerpt import MAX_DEPTH, MAX_TEXT, Excerpt
from toolwire.inspector.reproduce import as_command, as_entry
from toolwire.inspector.wire_log import WireLog

SIZE = 50 * 1024 * 1024


async def test_fifty_megabytes_of_text_are_cut_for_the_page_and_kept_whole() -> None:
    server = Server("large", limits=Limits(result=2 * SIZE))

    @server.tool(structured=False)
    async def flood() -> str:
        return "x" * SIZE

    async with inspected(server) as page:
        call = await page.call("tools/call", name="flood")
        assert call["size"] > SIZE
        answer = await page.answer("result", call=call["id"])
        assert len(answer.body) < 2 * MAX_TEXT
        assert answer.json()["cut"] == [{"pointer": "/content/0/text", "kind": "text", "size": SIZE}]
        query = f"call={call['id']}&pointer=/content/0/text"
        whole = await page.http.start("GET", path="/api/part", query=query).finished()
        assert len(whole.body) == SIZE and whole.headers["content-type"].startswith("text/plain")
        # The stream of events says that something happened, not all that was sent.
        assert len(msgspec.json.encode(page.events)) < 1_000_000


async def test_ten_thousand_tools_are_listed_in_short() -> None:
    server = Server("crowd")

    def nothing() -> str:
        return ""

    for number in range(10_000):
        server.add(Tool(nothing, name=f"tool_{number:05}", description="d" * 1000))
    async with inspected(server) as page:
        items = (await page.ask("state"))["catalogue"]["tools"]["items"]
        assert len(items) == 10_000 and len(msgspec.json.encode(items)) < 4_000_000
        found = await page.ask("definition", kind="tools", key="tool_09999")
        assert len(found["definition"]["description"]) == 1000


async def test_endless_list_with_a_broken_definition_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.inspector.catalogue.MAX_BYTES", 20_000, raising=False)
    numbers = itertools.count()

    def page(params: dict[str, Any]) -> dict[str, Any]:
        number = next(numbers)
        tools = [{"name": f"t{number}", "description": "d" * 1_000, "inputSchema": {}}, {"name": 7}]
        return {"tools": tools, "nextCursor": str(number), "ttlMs": 0, "cacheScope": "private"}

    catalogue = ServerCatalogue()
    async with Client(JsonServer({"tools/list": page})) as client:
        await catalogue.refresh(client, "tools")
    listing = catalogue.listings["tools"]
    assert listing.error is not None
    assert 10 < len(listing.definitions) < 20


@pytest.mark.covers("ICN-1")
@pytest.mark.parametrize("kind", ["png", "jpeg"])
async def test_icons_that_would_have_to_be_fetched_are_not_shown(kind: str) -> None:
    server = Server("icons")
    inside = f"data:image/{kind};base64,AAAA"

    @server.tool(icons=[{"src": "https://tracker.example/pixel.png"}, {"src": inside}])
    def one() -> str:
        return ""

    @server.tool(icons=[{"src": "data:text/html,<script>alert(1)</script>"}])
    def two() -> str:
        return ""

    async with inspected(server) as page:
        items = (await page.ask("state"))["catalogue"]["tools"]["items"]
        assert [each.get("icon") for each in items] == [inside, None]


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


def test_a_deep_value_is_cut_where_nobody_looks_any_more() -> None:
    assert Excerpt(nested(400)).cut == [{"pointer": "/0" * MAX_DEPTH, "kind": "value", "size": 1}]


def test_a_wide_value_is_cut() -> None:
    assert Excerpt(list(range(100_000))).cut[0]["size"] == 100_000
    assert len(msgspec.json.encode(Excerpt([[[0] * 500] * 500] * 100).value)) < 1_000_000


def test_a_picture_is_shown_in_whole() -> None:
    assert Excerpt({"type": "image", "data": "A" * (MAX_TEXT + 1)}).cut == []
    assert Excerpt({"text": "A" * (MAX_TEXT + 1)}).cut


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_a_small_value_is_shown_as_it_is(value: Any) -> None:
    excerpt = Excerpt(value)
    assert excerpt.value == value and excerpt.cut == []


def test_the_log_forgets_the_oldest_first() -> None:
    log = WireLog(lambda entry: None, entries=3, total=1000)
    for number in range(5):
        log.record("→", b'{"jsonrpc":"2.0","method":"m%d"}' % number)
    assert [entry.method for entry in log] == ["m2", "m3", "m4"]
    assert log.find(2) is None and log.find(5) is not None and log.find(6) is None
    log.record("←", b"x" * 990)
    assert len(log) == 1 and log.find(6) is not None


@example(b"[" * 5_000)
@example(b"[" * 5_000 + b"]" * 5_000)
@given(st.binary() | JSON.map(msgspec.json.encode))
def test_any_bytes_can_be_recorded(data: bytes) -> None:
    entries: list[Any] = []
    WireLog(entries.append).record("←", data)
    assert entries and all(msgspec.json.encode(entry.summary()) for entry in entries)


def test_a_batch_is_its_messages() -> None:
    log = WireLog(lambda entry: None)
    log.record("→", b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]')
    log.record("←", b'[{"jsonrpc":"2.0","id":1,"result":{}}]')
    assert [(entry.kind, entry.method) for entry in log] == [("request", "a"), ("notification", "b"), ("result", "a")]


async def test_a_page_that_does_not_read_is_told_that_it_missed_something() -> None:
    events = Events()
    reader = events.open()
    for _ in range(3):
        events.tell("message", text="x" * (MAX_QUEUED // 2))
    events.end()
    lines = await reader.read() or b""
    assert [msgspec.json.decode(line)["type"] for line in lines.splitlines()] == ["lost", "message"]
    assert await reader.read() is None


async def test_a_page_that_opens_after_the_end_is_at_its_end() -> None:
    events = Events()
    events.end()
    assert await events.open().read() is None


@cases("name", ["'; rm -rf ~ #", "$(touch /tmp/x)", "\x1b]0;owned\x07", "a\nb", "`id`", "\u202e"])
def test_a_command_to_copy_cannot_be_made_to_do_something_else(name: str) -> None:
    message = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}})
    text = as_command(message, revision="2026-07-28", url="http://127.0.0.1:1/mcp", command=None)
    assert text.isascii() and text.replace("\n", "").isprintable()
    words = shlex.split(text)
    assert words[0] == "curl" and msgspec.json.decode(words[-1])["params"]["name"] == name
    piped = as_command(message, revision="2026-07-28", url=None, command=["serve", "it's"])
    assert piped.isascii() and piped.endswith("| serve 'it'\"'\"'s'")


def test_a_legacy_command_leaves_the_session_to_the_shell() -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    text = as_command(message, revision="2025-11-25", url="http://127.0.0.1:1/mcp", command=None)
    assert '"mcp-session-id: $SESSION"' in text


def test_a_server_inside_the_program_has_no_command() -> None:
    with pytest.raises(ValueError, match="inside this program"):
        as_command(b"{}", revision=None, url=None, command=None)
    with pytest.raises(ValueError, match="inside this program"):
        as_entry("here", url=None, command=None)


def test_an_entry_for_other_clients_names_secrets_and_does_not_tell_them(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    entry = as_entry("My Server\x1b]0;", url="http://127.0.0.1:1/mcp", command=None, headers=["Authorization", "X-Key"])
    headers = {"Authorization": "Bearer ${AUTHORIZATION}", "X-Key": "${X_KEY}"}
    at_url = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": headers}
    assert msgspec.json.decode(entry) == {"mcpServers": {"my-server-0": at_url}} and entry.isascii()
    command = ["python", "server.py", "--flag"]
    entry = as_entry("", url=None, command=command, env={"TOKEN": "hush"}, cwd=str(tmp_path))
    started = {
        "command": "python",
        "args": [str(tmp_path / "server.py"), "--flag"],
        "env": {"TOKEN": "${TOKEN}"},
        "cwd": str(tmp_path),
    }
    assert msgspec.json.decode(entry) == {"mcpServers": {"server": started}}
