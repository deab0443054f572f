"""The ten tools of GitHub: as their lock file has them, against a stub of GitHub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.cli.command import Command

from toolwire import Client, testing
from toolwire.cli.lint import findings
from toolwire.cli.lint_rules import tool_tokens
from toolwire.openapi.lock_file.lock import read_lock

FOLDER = Path(__file__).parents[2] / "examples" / "github"


@pytest.fixture
def github(example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    return example("github/github")


async def test_ten_tools_that_the_linter_likes(github: ModuleType) -> None:
    async with Client(github.server) as client:
        assert client.instructions
        tools = await client.list_tools()
    assert len(tools) == 10
    assert findings(tools) == []
    assert sum(map(tool_tokens, tools)) < 2_200
    reading = {tool.name for tool in tools if tool.annotations.read_only_hint is True}  # type: ignore[union-attr]
    assert {tool.name for tool in tools} - reading == {"create_issue", "create_comment"}


async def test_every_tool_calls_its_operation(github: ModuleType) -> None:
    replayed = {each.tool: each for each in await testing.replay(github.server, github.api)}
    assert len(replayed) == 10
    assert all(each.result is not None for each in replayed.values())
    readme = replayed["get_readme"].result
    assert readme is not None and readme.text == "# Hello\n"
    assert replayed["get_readme"].requests[0].path == "/repos/text/text/readme"
    assert "authorization" not in replayed["get_issue"].requests[0].headers


async def test_a_token_goes_with_every_request(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    loaded = example("github/github")
    replayed = await testing.replay(loaded.server, loaded.api)
    assert {each.requests[0].headers["authorization"] for each in replayed} == {"Bearer t0ken"}


def test_the_lock_file_is_that_of_the_description(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Command(capsys, monkeypatch)("openapi", "check", str(FOLDER / "api.lock.json"))
    assert (done.status, "as it did" in done.out) == (0, True), done.out
    assert read_lock(FOLDER / "api.lock.json").overlays == ("overlay.yaml",)
