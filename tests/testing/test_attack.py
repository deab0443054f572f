"""Attacks on a server: nothing is found in one that holds, and everything in one that does not."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import pytest
from msgspec import Meta
from tests.cases import cases

from toolwire import Limits, Policy, Server, ToolError, testing
from toolwire.server.policy import Rate
from toolwire.testing.hostile_texts import bait, hostile_texts

KEY = "sk-live-12345"


def holding() -> Server:
    server = Server("notes")
    notes = {"a": "first"}

    @server.tool
    def read(name: Annotated[str, Meta(max_length=100)], lines: list[str] | None = None) -> str:
        if name not in notes:
            raise ToolError("There is no such note.")
        return notes[name]

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool(annotations={"destructiveHint": True})
    def purge(name: str) -> str:
        raise AssertionError("a tool that destroys is not tried unless it is named")

    @server.prompt
    def ask(topic: str) -> str:
        return f"Tell me about {topic}."

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return notes.get(name, "")

    return server


@pytest.mark.covers("R32")
async def test_a_server_that_holds() -> None:
    assert await testing.attack(holding(), secrets=[KEY]) == []


async def test_a_server_without_tools() -> None:
    assert await testing.attack(Server("empty")) == []


def _traceback(text: str) -> str:
    try:
        return str(int(text))
    except ValueError:
        return traceback.format_exc()


def _sql(text: str) -> str:
    with closing(sqlite3.connect(":memory:")) as database:
        return str(database.execute(f"SELECT 'a' WHERE 'a' = '{text}'").fetchall())


def _careful_sql(text: str) -> str:
    try:
        return _sql(text)
    except (sqlite3.Error, ValueError, sqlite3.Warning):
        raise ToolError("That cannot be looked up.") from None


def _shell(text: str) -> str:
    try:
        return subprocess.run(f"true {text}", shell=True, capture_output=True, text=True).stdout
    except (ValueError, OSError):
        raise ToolError("That cannot be run.") from None


def _file(text: str) -> str:
    try:
        return Path("/srv", text).read_text()
    except (OSError, ValueError):
        raise ToolError("There is no such file.") from None


def _address(text: str) -> str:
    try:
        return Path(unquote(urlsplit(text).path)).read_text() if text.startswith("file:") else ""
    except (OSError, ValueError):
        raise ToolError("There is no such file.") from None


def _template(text: str) -> str:
    return str(eval(text)) if text.replace("*", "").isdigit() else text


def _folder(text: str) -> str:
    raise ToolError(f"not in {sys.prefix}")


def _object(text: str) -> str:
    raise ToolError(f"{object()!r} does not like that")


def _secret(text: str) -> str:
    return f"looked up with {KEY}"


def echo(text: str = "") -> str:
    return text


def _key_error(text: str) -> str:
    return {"": ""}[text]


async def _hangs(text: str) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.covers("R32")
@cases(
    ("broken", "problem"),
    [
        (_traceback, "revealed a traceback, sent a path out of its folder"),
        (_folder, "revealed a folder of this machine"),
        (_object, "revealed an object of the server"),
        (_secret, "revealed a secret (sk-…)"),
        (_key_error, "raised KeyError"),
        (_sql, "raised "),
        (_careful_sql, "evaluated the text of the caller, sent SQL"),
        (_shell, "evaluated the text of the caller, sent a shell command"),
        (_template, "evaluated the text of the caller, sent an expression"),
        (_file, "gave out a file that it should not read, sent a path out of its folder"),
        (_address, "gave out a file that it should not read, sent a file address"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_what_does_not_hold_is_found(broken: Any, problem: str) -> None:
    (failure,) = await testing.attack(Server("s", tools=broken), secrets=[KEY])
    assert failure.name == f"the tool {broken.__name__}"
    assert failure.problem.startswith(problem)
    assert failure.arguments["text"]
    assert failure.problem in str(failure)


async def test_a_tool_that_hangs_is_found() -> None:
    (failure,) = await testing.attack(Server("s", tools=_hangs), timeout=0.05)
    assert failure.problem.startswith("did not answer in time")


@pytest.mark.parametrize("shared", [False, True])
async def test_a_rate_protects_nothing_from_being_tried(shared: bool) -> None:
    server = Server("s", tools=[_file, echo], policy=Policy(rate=Rate("1/day", shared=shared)))
    (failure,) = await testing.attack(server)
    assert failure.problem.startswith("gave out a file")
    # It holds again afterwards.
    async with testing.connect(server) as (client, _):
        assert (await testing.exhaust(lambda: client.call_tool("echo"), most=2)).calls == 1


async def test_prompts_and_templates_are_tried_too() -> None:
    server = Server("s")

    @server.prompt
    def ask(topic: str = "") -> str:
        return _traceback(topic)

    @server.resource("files:///{+path}")
    def files(path: str) -> str:
        return _file(path)

    found = await testing.attack(server)
    assert [failure.name for failure in found] == ["the prompt ask"]
    # The library screens what a template is given, unless it is told not to.
    assert "traceback" in found[0].problem


async def test_texts_inside_of_arguments_are_places_too() -> None:
    server = Server("s")

    @server.tool
    def store(rows: list[dict[str, str]]) -> str:
        return "".join(_secret(value) for row in rows for value in row.values() if "\x1b" in value)

    failure, *_ = await testing.attack(server, secrets=[KEY])
    assert failure.problem == "revealed a secret (sk-…), sent terminal sequences"


async def test_tools_that_destroy_are_tried_when_they_are_named() -> None:
    (failure,) = await testing.attack(holding(), tools=["purge"])
    assert (failure.name, failure.problem[:22]) == ("the tool purge", "raised AssertionError,")
    with pytest.raises(ValueError, match="no tool 'gone'"):
        await testing.attack(holding(), tools=["gone"])


class Lax:
    """What it says of its limits is not what it does."""

    limits = Limits(depth=20)

    def __init__(self, server: Server) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


async def test_a_server_that_takes_messages_beyond_its_limits_is_found() -> None:
    (failure,) = await testing.attack(Lax(holding()))
    assert failure.name == "the server"
    assert failure.problem.startswith("answered a message nested too deeply with: Unknown tool")


def test_the_texts_reach_what_they_are_meant_to() -> None:
    with bait() as file:
        texts = hostile_texts(file.path)
        assert Path("/srv", texts["a path out of its folder"]).read_text() == file.content
        assert Path(texts["an absolute path"]).read_text() == file.content
        assert file.find_proof([f"…{file.content}…"]) is not None
        assert file.find_proof(list(texts.values())) is None
        assert max(map(len, texts.values())) >= 200_000
    assert not file.path.exists()
