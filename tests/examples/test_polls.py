"""The package of an extension, used by public names only, over stdio and HTTP, on a mounted server."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from toolwire import Client, Server, testing
from toolwire.errors import NotSupported, ProtocolError

FOLDER = Path(__file__).parents[2] / "examples" / "polls"
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "extensions.md"
CARRY = ("2025-11-25", "2026-07-28")


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, imported anew from its folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("polls", "server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("polls")
    for name in ("polls", "server"):
        sys.modules.pop(name, None)


@asynccontextmanager
async def reach(over: str, revision: str) -> AsyncIterator[Client]:
    if over == "process":
        async with Client([sys.executable, str(FOLDER / "server.py")], revision=revision) as client:
            yield client
    else:
        server: Server = import_module("server").server
        async with testing.connect(server, over=over, revision=revision) as (client, _):  # type: ignore[arg-type]
            yield client


@pytest.mark.covers("EXT-13")
@pytest.mark.parametrize("revision", CARRY)
@pytest.mark.parametrize("over", ["memory", "stdio", "http", "process"])
async def test_both_halves_work_together(polls: Any, over: str, revision: str) -> None:
    async with reach(over, revision) as client:
        assert client.capabilities["extensions"][polls.IDENTIFIER] == {"polls": ["lunch", "logo"]}
        half = polls.PollsClient(client)
        async with half.changes("lunch") as changes:
            assert await half.vote("lunch", "soup") == {"soup": 1}
            assert await half.vote("lunch", "stew") == {"soup": 1, "stew": 1}
            following = aiter(changes)
            heard = [await anext(following), await anext(following)]
        told = [(each.method, each.params["votes"]) for each in heard]
        assert told == [("notifications/polls/changed", votes) for votes in ({"soup": 1}, {"soup": 1, "stew": 1})]
        await half.tell_seen("logo")
        assert (await client.call_tool("team_seen")).structured == {"logo": 1}
        with pytest.raises(ProtocolError, match="There is no poll 'supper'; there are lunch, logo"):
            await half.vote("supper", "soup")


@pytest.mark.covers("EXT-13")
async def test_a_server_without_it_is_not_asked(polls: Any) -> None:
    async with Client(Server("empty")) as client:
        with pytest.raises(NotSupported, match="did not declare the extension com"):
            await polls.PollsClient(client).vote("lunch", "soup")


def test_it_uses_public_names_only() -> None:
    for file in (FOLDER / "polls.py", FOLDER / "server.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolwire"):
                assert node.module in ("toolwire", "toolwire.client", "toolwire.errors")
                assert not [name.name for name in node.names if name.name.startswith("_")]
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_"), (file.name, node.attr)


# --- The page ---


def files_of_the_page() -> dict[str, str]:
    return dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL))


def test_the_page_shows_the_package() -> None:
    shown = files_of_the_page()
    for name in ("polls.py", "server.py"):
        assert shown[name] == (FOLDER / name).read_text(encoding="utf-8")


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    for name, text in files_of_the_page().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "vote.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    promised = PAGE.read_text(encoding="utf-8").partition("$ python vote.py\n")[2].partition("```")[0]
    assert (done.stderr, done.stdout) == ("", promised)
    for words in (["list", "server.py"], ["request", "server.py", "polls/vote", "poll=lunch", "choice=soup"]):
        command = [sys.executable, "-m", "toolwire", *words]
        shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr
        assert "com.example/polls" in shown.stdout or '"soup": 1' in shown.stdout
