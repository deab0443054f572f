"""Rules for arguments: what gets through, and what a refusal reveals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from tests.wireclient import MODERN, REVISIONS, WireClient, connect, modern_meta

from toolwire import Policy, Prompt, Server, types
from toolwire.protocol.errors import ServerError
from toolwire.server.policy import rules


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def call_raw(client: WireClient, arguments: str) -> dict[str, Any]:
    """Call `read` with arguments whose text is exactly this."""
    params = {"name": "read", "arguments": "@", "_meta": modern_meta()}
    if client.revision != MODERN:
        del params["_meta"]
    message = json.dumps({"jsonrpc": "2.0", "id": "raw", "method": "tools/call", "params": params})
    answered = client._waiting["raw"] = asyncio.get_running_loop().create_future()
    client.send(message.replace('"@"', arguments))
    result: dict[str, Any] = (await answered)["result"]
    return result


@pytest.mark.covers("R14", "R18")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_argument_that_breaks_a_rule_never_reaches_the_tool(revision: str, tmp_path: Path) -> None:
    seen: list[str] = []

    async def read(path: str, lines: int = 1) -> str:
        seen.append(path)
        return "contents"

    policy = Policy(rules={"path": rules.inside(tmp_path), "lines": [rules.between(1, 10)]})
    server = Server("s")
    server.tool(policy=policy)(read)
    async with connect(server, revision) as client:
        assert text(await client.call("read", {"path": "notes.txt"})) == "contents"
        refused = await client.call("read", {"path": "../secret-name"})
        assert refused["isError"] is True
        assert text(refused) == "read does not allow this 'path': it leads outside of the allowed directory."
        assert "from 1 to 10" in text(await client.call("read", {"path": "a", "lines": 11}))
        # The same member twice, and written in another way: the rule sees what the tool would see.
        for arguments in ('{"path": "ok", "path": "../x"}', '{"\\u0070ath": "../x"}'):
            assert (await call_raw(client, arguments))["isError"] is True
    assert seen == ["notes.txt"]


async def test_rules_of_a_server_hold_for_every_argument_of_that_name() -> None:
    async def one(url: str) -> str:
        return url

    async def two(count: int) -> int:
        return count

    server = Server("s", tools=[one, two], policy=Policy(rules={"url": rules.to_hosts("example.com")}))
    server.add(Prompt.text("see {url}", name="look"))
    async with connect(server, MODERN) as client:
        assert text(await client.call("one", {"url": "https://example.com/x"})) == "https://example.com/x"
        assert (await client.call("one", {"url": "https://evil.example"}))["isError"] is True
        assert text(await client.call("two", {"count": 3})) == "3"
        error = await client.error("prompts/get", {"name": "look", "arguments": {"url": "http://example.com"}})
        assert error["code"] == 403


async def test_a_rule_of_ones_own_may_return_a_text_or_raise_value_error() -> None:
    def even(value: Any) -> str | None:
        return "it is odd" if value % 2 else None

    def small(value: Any) -> None:
        if value > 10:
            raise ValueError("it is large")

    server = Server("s", policy=Policy(rules={"n": [even, small]}))

    @server.tool
    async def f(n: int) -> int:
        return n

    async with connect(server, MODERN) as client:
        assert text(await client.call("f", {"n": 4})) == "4"
        assert "it is odd" in text(await client.call("f", {"n": 3}))
        assert "it is large" in text(await client.call("f", {"n": 12}))


async def test_a_rule_that_breaks_lets_nothing_through_and_reveals_nothing() -> None:
    called: list[int] = []

    def broken(value: Any) -> str | None:
        raise RuntimeError("postgres://user:secret@host")

    server = Server("s", policy=Policy(rules={"n": broken}))

    @server.tool
    async def f(n: int) -> int:
        called.append(n)
        return n

    async with connect(server, MODERN) as client:
        assert "Internal error" in text(answer := await client.call("f", {"n": 4}))
        assert "secret" not in str(answer)
    assert called == []


async def test_arguments_that_the_rules_cannot_read_do_not_pass_them_by() -> None:
    called: list[str] = []
    server = Server("s", policy=Policy(rules={"path": lambda path: "no" if ".." in path else None}))

    @server.tool
    async def read(path: str, scale: float = 1.0) -> str:
        called.append(path)
        return ""

    # Too long for an integer, and yet a number that fits the parameter.
    number = "1" * 4400
    async with connect(server, MODERN) as client:
        answer = await call_raw(client, f'{{"path": "../x", "scale": {number}}}')
        assert text(answer) == "The arguments of read cannot be read"
        assert (await call_raw(client, '["../x"]'))["isError"] is True
    assert called == []


def no_secrets(paths: list[str]) -> str | None:
    return "it is secret" if any(path.startswith("/etc") for path in paths) else None


def split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


async def test_a_rule_sees_what_the_tool_gets_where_a_list_is_sent_as_a_text() -> None:
    got: list[list[str]] = []
    server = Server("s", policy=Policy(rules={"paths": no_secrets}))

    @server.tool
    async def read(paths: list[str], n: int = 1) -> int:
        got.append(paths)
        return n

    @server.tool
    async def lenient(paths: Annotated[list[str], pydantic.BeforeValidator(split)]) -> str:
        got.append(paths)
        return "read"

    @server.prompt
    def ask(paths: list[str]) -> str:
        got.append(paths)
        return "read"

    async with connect(server, MODERN) as client:
        assert "it is secret" in text(await client.call("read", {"paths": '["/etc/passwd"]'}))
        assert "it is secret" in text(await client.call("lenient", {"paths": '["/etc/passwd"]'}))
        assert (await client.error("prompts/get", {"name": "ask", "arguments": {"paths": '["/etc/x"]'}}))["code"] == 403
        assert got == []
        assert text(await client.call("read", {"paths": '["a"]', "n": "3"})) == "3"
        # What the type would have made of the text is not what was judged.
        assert text(await client.call("lenient", {"paths": '["b,/etc/x,c"]'})) == "read"
        await client.request("prompts/get", {"name": "ask", "arguments": {"paths": '["d"]'}})
        assert got == [["a"], ["b,/etc/x,c"], ["d"]]
        answer = await client.call("read", {"paths": "a", "n": "x"})
        assert answer["isError"] is True
        assert text(answer).startswith('Argument "paths"')
        error = await client.error("prompts/get", {"name": "ask", "arguments": {"paths": "a"}})
        assert error["code"] == -32602
        assert got == [["a"], ["b,/etc/x,c"], ["d"]]


async def test_rules_hold_for_the_tools_of_a_low_level_handler_too() -> None:
    server = Server("s", policy=Policy(rules={"paths": no_secrets}))
    schema = {"type": "object", "properties": {"paths": {"type": "array"}}}

    @server.on_list_tools
    async def list_tools() -> list[types.Tool]:
        return [types.Tool(name="read", input_schema=schema)]

    @server.on_call_tool
    async def call_tool(name: str, arguments: dict[str, Any]) -> str:
        return str(arguments["paths"])

    async with connect(server, MODERN) as client:
        assert text(await client.call("read", {"paths": '["a"]'})) == "['a']"
        assert "it is secret" in text(await client.call("read", {"paths": '["/etc/passwd"]'}))


def test_a_rule_for_an_argument_the_tool_does_not_have_is_a_mistake() -> None:
    async def f(path: str) -> str:
        return path

    with pytest.raises(ServerError, match="has a rule for 'pth', which is no argument of it"):
        Server("s").tool(policy=Policy(rules={"pth": rules.plain_text}))(f)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.at_most(3), ["abc", [1, 2, 3], 12345], ["abcd", [1, 2, 3, 4], {"a": 1, "b": 2, "c": 3, "d": 4}]),
        (rules.between(0, 1), [0, 1, 0.5], [-0.1, 2, True, "1", None, float("nan")]),
        (rules.one_of("a", 1), ["a", 1], ["b", True, 1.0, None]),
        (rules.matches(r"[a-z]+"), ["abc"], ["abc\n", "", 3, "a" * 70_000]),
        (rules.plain_text, ["one\ntwo\tthree", "é", 4], ["\x1b[2J", "a\x00", "a\rb", "\u202etxt", "\x9b1m"]),
    ],
)
def test_rules(rule: rules.Rule, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if rule(value) is not None] == []
    assert [value for value in bad if rule(value) is None] == []


def test_paths_stay_inside_whatever_they_are_made_of(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "link").symlink_to(tmp_path)
    rule = rules.inside(root)
    for good in ("", "a", "a/../b", "./x", str(root / "y")):
        assert rule(good) is None, good
    for bad in ("..", "a/../../x", "/etc/passwd", "link/x", str(tmp_path / "rooted" / "x"), "a\0b", 3):
        assert rule(bad) is not None, bad


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/",
        "https://evil.com/",
        "https://api.example.com.evil.com/",
        "https://api.example.com@evil.com/",
        "https://user:pw@api.example.com/",
        "https://evil.com\\@api.example.com/",
        "https://evil.com\t.api.example.com/",
        "https://api.example.com:x\ny/",
        "//api.example.com/",
        "file:///etc/passwd",
        "https://",
        "https://[::1/",
        "https://example.com/",
        "",
        7,
    ],
)
def test_addresses_elsewhere_are_refused_however_they_are_written(url: Any) -> None:
    assert rules.to_hosts("api.example.com", "*.cdn.example.com")(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/x?y",
        "https://API.example.com:8443",
        "https://a.b.cdn.example.com/",
        "https://api.example.com./",
    ],
)
def test_addresses_on_allowed_hosts(url: str) -> None:
    assert rules.to_hosts("api.example.com", "*.cdn.example.com")(url) is None
