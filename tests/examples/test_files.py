"""The files: everything under the root, nothing outside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolwire import Client, Server
from toolwire.protocol.errors import ProtocolError


@pytest.fixture
def server(example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    root = tmp_path / "root"
    (root / "reports").mkdir(parents=True)
    (root / "reports" / "may.md").write_text("# May\n\nSales rose.\n", encoding="utf-8")
    (root / "large.txt").write_bytes(b"sales " * 200_000)
    (tmp_path / "secret.txt").write_text("sales of secrets", encoding="utf-8")
    if sys.platform != "win32":
        (root / "link.txt").symlink_to(tmp_path / "secret.txt")
        (root / "up").symlink_to(tmp_path)
    monkeypatch.setenv("FILES_ROOT", str(root))
    server: Server = example("files").server
    return server


async def test_files_are_listed_read_and_searched(server: Server) -> None:
    async with Client(server) as client:
        listed = await client.call_tool("list_files", returns=list[dict[str, Any]])
        assert [entry["path"] for entry in listed] == ["large.txt", "reports"]
        read = await client.call_tool("read_file", {"path": "reports/may.md"})
        assert read.content[0].resource.text == "# May\n\nSales rose.\n"  # type: ignore[union-attr]
        found = await client.call_tool("search_files", {"words": "SALES"}, returns=list[dict[str, Any]])
        assert found == [{"path": "reports/may.md", "line": 3, "text": "Sales rose."}]
        (contents,) = await client.read_resource("files://reports/may.md")
        assert contents.text == "# May\n\nSales rose.\n"


OUTSIDE = ["../secret.txt", "reports/../../secret.txt", "/etc/passwd", "link.txt", "up/secret.txt", "..", "~", "a\0b"]


@pytest.mark.parametrize("path", [*OUTSIDE, "large.txt"])
async def test_nothing_outside_the_root_is_read(server: Server, path: str) -> None:
    if sys.platform == "win32" and path.startswith(("link", "up")):
        pytest.skip("links need a privilege there")
    async with Client(server) as client:
        for tool, arguments in (("read_file", {"path": path}), ("list_files", {"folder": path})):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert "secrets" not in result.text
        with pytest.raises(ProtocolError):
            await client.read_resource(f"files://{path}".replace("\0", "%00"))
