"""The notes, in a file that other processes could read too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolwire import Client, Server
from toolwire.errors import ResourceNotFound


@pytest.fixture
def server(example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("NOTES_FILE", str(tmp_path / "notes.db"))
    server: Server = example("notes").server
    return server


async def write(client: Client, title: str, body: str) -> int:
    note = await client.call_tool("add_note", {"title": title, "body": body}, returns=dict[str, Any])
    number: int = note["id"]
    return number


async def test_notes_are_kept_and_found(server: Server) -> None:
    async with Client(server) as client:
        first = await write(client, "Milk", "Buy milk; 100% fat")
        await write(client, "Bread", "Buy bread'); DROP TABLE note; --")
        for words, titles in (("", ["Bread", "Milk"]), ("buy MILK", ["Milk"]), ("DROP", ["Bread"]), ("nothing", [])):
            found = await client.call_tool("search_notes", {"words": words}, returns=list[dict[str, Any]])
            assert [note["title"] for note in found] == titles
        (contents,) = await client.read_resource(f"note://{first}")
        assert str(contents.text).startswith("# Milk\n\nBuy milk")
        with pytest.raises(ResourceNotFound, match="There is no note 999"):
            await client.read_resource("note://999")
        assert (await client.get_prompt("summarise", {"topic": "milk"})).messages


@pytest.mark.parametrize(("answer", "left"), [(True, 0), (False, 1)])
async def test_a_note_is_deleted_when_the_user_agrees(server: Server, answer: bool, left: int) -> None:
    async with Client(server, elicit=lambda message, params: {"value": answer}) as client:
        number = await write(client, "Old", "To be deleted")
        await client.call_tool("delete_note", {"note_id": number})
        assert len(await client.call_tool("search_notes", returns=list[Any])) == left
        missing = await client.call_tool("delete_note", {"note_id": 999})
        assert missing.is_error
        assert "search_notes finds" in missing.text
