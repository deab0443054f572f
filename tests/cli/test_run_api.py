"""Lock files and API descriptions as servers: `toolwire run`, and the target of other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.openapi.petstore import petstore

from toolwire.cli import server_file, targets
from toolwire.cli.errors import UsageError
from toolwire.cli.reloading import LoadFailed, Reloader
from toolwire.client import Client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolwire: Command) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("api.json").write_text(json.dumps(petstore()))
    assert toolwire("openapi", "add", "api.json", "--tags", "pets", "--write", "pets.lock.json").status == 0
    return tmp_path


async def tools(server: Any) -> list[str]:
    async with Client(server) as client:
        return [tool.name for tool in await client.list_tools()]


@pytest.mark.covers("OA-12.5")
def test_two_commands_give_a_server_that_is_served_and_linted(toolwire: Command, folder: Path) -> None:
    """The first one made the lock file. Both commands here start `toolwire run` as a process of its own."""
    listed = toolwire("list", "pets.lock.json", "tools", "--json")
    assert listed.status == 0, listed.err
    assert [tool["name"] for tool in json.loads(listed.out)["tools"]] == ["createPet", "listPets", "showPet"]
    linted = toolwire("lint", "pets.lock.json", "--json")
    assert linted.status == 0, linted.err
    assert linted.out and {*json.loads(linted.out)["tokens"]} == {"createPet", "listPets", "showPet"}


@pytest.mark.covers("OA-12.5")
async def test_a_lock_file_is_a_server(folder: Path) -> None:
    server = server_file.load("pets.lock.json")
    assert (server.name, server.version) == ("Pets", "1.4")
    assert await tools(server) == ["createPet", "listPets", "showPet"]


async def test_a_description_is_a_server_once_something_is_chosen(folder: Path) -> None:
    with pytest.raises(UsageError, match="nothing is chosen: write a lock file with `toolwire openapi add"):
        server_file.load("api.json")
    assert len(await tools(server_file.load_api("api.json", everything=True))) == 5
    assert len(await tools(server_file.load_api("pets.lock.json", everything=True))) == 3
    bridge = await tools(server_file.load_api("api.json", bridge=True))
    assert bridge == ["call_operation", "describe_operation", "list_operations"]


def test_mistakes_are_one_line(toolwire: Command, folder: Path) -> None:
    Path("text.yaml").write_text("just: text")
    Path("server.py").write_text("")
    described = petstore(security=[{"key": []}])
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    Path("safe.json").write_text(json.dumps(described))
    for words, status, told in (
        (["text.yaml", "--all"], 1, "this is not an API description"),
        (["api.json"], 2, "nothing is chosen"),
        (["server.py", "--all"], 2, "are for an API description"),
        (["api.json", "--all", "--reload"], 2, "do not go with --reload"),
        (["api.json", "--all", "--credential", "key"], 2, "is not SCHEME=$NAME"),
        (["api.json", "--all", "--credential", "key=$KEY"], 1, "which is not a security scheme of the API"),
        (["safe.json", "--all"], 1, "on the command line, --credential"),
    ):
        done = toolwire("run", *words, "--transport", "http")
        assert (done.status, told in done.err, "Traceback" in done.err) == (status, True, False), done.err


def test_a_lock_file_is_loaded_again_when_it_changes(toolwire: Command, folder: Path) -> None:
    reloader = Reloader("pets.lock.json")
    assert not isinstance(reloader.load(), LoadFailed)
    Path("pets.lock.json").write_text('{"format": "toolwire-openapi-lock/1"}')
    failed = reloader.load()
    assert isinstance(failed, LoadFailed)
    assert "is not a lock file" in failed.trace


def test_a_lock_file_is_a_target_and_a_configuration_is_one_still(folder: Path) -> None:
    assert targets.locate("pets.lock.json").target == [*targets.RUN, "pets.lock.json"]
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"pets": {"url": "https://pets.example/mcp"}}}))
    assert targets.locate("mcp.json").target == "https://pets.example/mcp"


@pytest.mark.covers("OA-12.3")
def test_secrets_are_needed_by_calls_and_not_by_lists(
    toolwire: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = petstore(security=[{"key": []}])
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    Path("safe.json").write_text(json.dumps(described))
    toolwire("openapi", "add", "safe.json", "--all", "--write", "safe.lock.json")
    monkeypatch.delenv("PETS_KEY", raising=False)
    toolwire.serves(server_file.load("safe.lock.json"))
    assert toolwire("list", "server").status == 0
    done = toolwire("call", "server", "listPets")
    assert (done.status, "cannot read its credential for 'key'" in done.out + done.err) == (1, True)
