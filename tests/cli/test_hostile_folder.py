"""A server that is started in a folder of another person runs no file of that folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.command import Command

from toolwire.cli import client_files
from toolwire.client import Client

# A copy of a process has imported everything and looks for no file.
pytestmark = pytest.mark.cold_start

SERVER = """
import helper
from toolwire import Server

server = Server("own")

@server.tool
def greet() -> str:
    '''Greet.'''
    return helper.GREETING
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a folder whose files have the names of modules that every start imports."""
    monkeypatch.setattr(client_files, "_home", lambda: tmp_path)
    monkeypatch.setattr(client_files, "_application_data", lambda: tmp_path / "data")
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("toolwire", "typing", "asyncio", "msgspec", "ssl", "helper"):
        # A file that runs is noticed even if the rest of the program then fails.
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server file that imports its neighbour."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "helper.py").write_text("GREETING = 'hello'\n")
    (folder / "server.py").write_text(SERVER)
    return folder / "server.py"


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("name", ["server.py", "server.py:server"])
def test_command_runs_no_file_of_the_working_directory(
    toolwire: Command, tmp_path: Path, server: Path, name: str
) -> None:
    done = toolwire("call", str(server.with_name(name)), "greet")
    assert not (tmp_path / "ran").exists()
    assert "hello" in done.out


@pytest.mark.usefixtures("hostile")
async def test_client_runs_no_file_of_the_working_directory(tmp_path: Path, server: Path) -> None:
    async with Client(str(server)) as client:
        assert await client.call_tool("greet", returns=str) == "hello"
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("target", "client"), [("file", "cursor"), ("http://127.0.0.1:9/mcp", "claude-desktop")])
def test_installed_entry_runs_no_file_of_the_working_directory(
    toolwire: Command, tmp_path: Path, server: Path, target: str, client: str
) -> None:
    target = str(server) if target == "file" else target
    assert toolwire("install", target, "--client", client, "--name", "it", "--yes").status == 0
    entry = json.loads(client_files.CLIENTS[client].path().read_text())["mcpServers"]["it"]
    subprocess.run([entry["command"], *entry["args"]], input=b"", capture_output=True, timeout=20, check=False)
    assert not (tmp_path / "ran").exists()


def test_module_of_the_working_directory_is_still_found(
    toolwire: Command, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(server.parent)
    server.rename(server.with_name("shop.py"))
    assert "hello" in toolwire("call", "shop", "greet").out
    assert "hello" in toolwire("call", "shop:server", "greet").out
