"""Rules for arguments: what gets through, and what a refusal reveals."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, WireClient, connect, modern_meta

from toolwire import Context, Policy, Prompt, Resource, ResourceTemplate, Server, Tool, types
from toolwire.protocol.errors import ServerError
from toolwire.server.policy import rules
from toolwire.shape import ArgumentShape, Shape, ToolShape


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


@pytest.mark.covers("R18")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_paths_commands_urls_and_identifiers_are_screened(revision: str, tmp_path: Path) -> None:
    policy = Policy(
        rules={
            "path": rules.inside(tmp_path, relative_to=tmp_path),
            "command": rules.one_of("status", "log"),
            "url": rules.to_hosts("api.example.com"),
            "identifier": rules.matches(r"[a-z0-9-]{1,20}"),
        }
    )
    good = {"path": "a.txt", "command": "log", "url": "https://api.example.com/x", "identifier": "abc-1"}
    hostile = {
        "path": ["/etc/passwd", "../../x", "a/../../x"],
        "command": ["log; rm -rf /", "$(id)", "log\n", ""],
        "url": [
            "file:///etc/passwd",
            "http://api.example.com/",
            "https://127.0.0.1/",
            "https://api.example.com@x.test/",
        ],
        "identifier": ["a' OR 1=1", "../a", "a\x00", "a" * 21],
    }
    ran: list[dict[str, str]] = []
    server = Server("s")

    @server.tool(policy=policy)
    async def act(path: str, command: str, url: str, identifier: str) -> str:
        ran.append({"path": path, "command": command, "url": url, "identifier": identifier})
        return "done"

    async with connect(server, revision) as client:
        assert text(await client.call("act", good)) == "done"
        for name, values in hostile.items():
            for value in values:
                refused = await client.call("act", {**good, name: value})
                assert refused.get("isError") is True, value
                assert f"'{name}'" in text(refused)
    assert ran == [good]


@pytest.mark.covers("R14", "R18")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_argument_that_breaks_a_rule_never_reaches_the_tool(revision: str, tmp_path: Path) -> None:
    seen: list[str] = []

    async def read(path: str, lines: int = 1) -> str:
        seen.append(path)
        return "contents"

    policy = Policy(rules={"path": rules.inside(tmp_path, relative_to=tmp_path), "lines": [rules.between(1, 10)]})
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


@cases(
    ("rule", "good", "bad"),
    [
        (rules.at_most(3), ["abc", [1, 2, 3], 12345], ["abcd", [1, 2, 3, 4], {"a": 1, "b": 2, "c": 3, "d": 4}]),
        (rules.between(0, 1), [0, 1, 0.5], [-0.1, 2, True, "1", None, float("nan")]),
        (rules.one_of("a", 1), ["a", 1], ["b", True, 1.0, None]),
        (rules.matches(r"[a-z]+"), ["abc"], ["abc\n", "", 3, "a" * 70_000]),
        (rules.plain_text, ["one\ntwo\tthree", "é", 4], ["\x1b[2J", "a\x00", "a\rb", "\u202etxt", "\x9b1m"]),
        (rules.plain_text, [["a", {"b": ["c"]}]], [["a", "\x1b[2J"], {"a": {"b": ["\x00"]}}, {"\x1b": 1}]),
    ],
)
def test_rules(rule: rules.Rule, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if rule(value) is not None] == []
    assert [value for value in bad if rule(value) is None] == []


@pytest.mark.covers("R18")
def test_paths_stay_inside_whatever_they_are_made_of(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "link").symlink_to(tmp_path)
    rule = rules.inside(root, relative_to=root)
    for good in ("", "a", "a/../b", "./x", str(root / "y")):
        assert rule(good) is None, good
    for bad in ("..", "a/../../x", "/etc/passwd", "link/x", str(tmp_path / "rooted" / "x"), "a\0b", "\ud800"):
        assert rule(bad) is not None, bad
    # What `expanduser`, or a type that strips white space, makes another path of.
    for bad in ("~", "~/x", "~root/x", " /etc/passwd", "\n/etc/passwd", "x ", "\u2003/etc/passwd"):
        assert rule(bad) is not None, bad
    for bad in (None, 3, True, ["a"], {"a": "b"}):
        assert rule(bad) is not None, bad


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a file, a link to a file beside the directory, and the same name inside and outside."""
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    (root / "note.txt").write_text("inside")
    (tmp_path / "note.txt").write_text("outside")
    (root / "link.txt").symlink_to(tmp_path / "note.txt")
    (root / "loop").symlink_to(root / "loop")
    return root


HANDLERS: dict[str, Callable[[Path, str], str]] = {
    "opens the path": lambda root, path: Path(path).read_text(),
    "joins it to the directory": lambda root, path: (root / path).read_text(),
    "joins it as text": lambda root, path: Path(os.path.join(root, path)).read_text(),
}


@pytest.mark.parametrize("working", [".", "sub", ".."])
@pytest.mark.parametrize(
    ("relative_to", "handler"),
    [
        *((None, handler) for handler in HANDLERS),
        ("working directory", "opens the path"),
        ("directory", "joins it to the directory"),
        ("directory", "joins it as text"),
    ],
)
def test_whatever_inside_lets_through_is_inside_when_the_handler_opens_it(
    relative_to: str | None, handler: str, working: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = handler != "opens the path"
    base = {None: None, "directory": data, "working directory": "."}[relative_to]
    rule = rules.inside(data, relative_to=base)
    monkeypatch.chdir(data / working)
    opened = []
    relative = ["note.txt", "../note.txt", "data/note.txt", "sub/../note.txt", "link.txt", "../../note.txt", "loop"]
    for path in (*relative, *(str(data / each) for each in relative)):
        if rule(path) is None and Path(path if not joins else data / path).is_file():
            assert HANDLERS[handler](data, path) == "inside", path
            opened.append(path)
    assert str(data / "note.txt") in opened
    assert any(not Path(each).is_absolute() for each in opened) is (relative_to is not None)


@pytest.mark.covers("R18")
@cases(
    "url",
    [
        "http://api.example.com/",
        "https://evil.com/",
        "https://api.example.com.evil.com/",
        "https://evil.com%2f.cdn.example.com/",
        "https://evil.com%23.cdn.example.com/",
        "https://evil.com;.cdn.example.com/",
        "https://evil.com&.cdn.example.com/",
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


@cases(
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


# --- resources and prompts ---


def small(value: Any) -> str | None:
    return None if isinstance(value, int) and value < 10 else "it is not small"


def ruled_server() -> Server:
    server = Server("s")

    @server.resource("row://{table}/{id}", policy=Policy(rules={"id": small, "table": rules.one_of("a", "b")}))
    async def row(table: str, id: int) -> str:
        return f"{table} {id}"

    @server.resource("any://{+path}", policy=Policy(rules={"path": rules.matches("[a-z/]+"), "uri": rules.at_most(30)}))
    async def anything(uri: str, variables: dict[str, str]) -> str:
        return variables["path"]

    @server.resource("own://{uri}", policy=Policy(rules={"uri": rules.one_of("x")}))
    async def own(uri: str) -> str:
        return uri

    server.add(Resource("one://x", content="x", policy=Policy(rules={"uri": rules.one_of("other://x")})))
    server.prompt(name="ask", policy=Policy(rules={"count": small}))(lambda count: count)

    @server.tool
    async def fetch(uri: str, ctx: Context) -> str:
        return str((await ctx.read_resource(uri))[0].text)

    return server


READS = [
    ("row://a/5", "a 5"),
    ("row://a/50", None),
    ("row://c/5", None),
    ("row://a/%35", "a 5"),
    ("row://a/%35%30", None),
    ("any://x/y", "x/y"),
    ("any://X", None),
    ("any://" + "x" * 30, None),
    ("own://x", "x"),
    ("own://y", None),
    ("one://x", None),
]


@pytest.mark.covers("R14")
@cases("revision", ["2025-11-25", MODERN])
@cases(("uri", "expected"), READS)
async def test_rules_judge_the_address_and_the_variables_of_a_template(
    uri: str, expected: str | None, revision: str
) -> None:
    async with connect(ruled_server(), revision) as client:
        answer = await client.request("resources/read", {"uri": uri})
        fetched = await client.call("fetch", {"uri": uri})
        if expected is None:
            assert answer["error"]["code"] == 403
            assert fetched["isError"] is True and "does not allow" in text(fetched)
        else:
            assert answer["result"]["contents"][0]["text"] == text(fetched) == expected


@cases(
    "make",
    [
        lambda policy: Tool(lambda path: path, name="t", policy=policy),
        lambda policy: Prompt.text("{path}", name="p", policy=policy),
        lambda policy: Resource("a://b", content="x", policy=policy),
        lambda policy: ResourceTemplate("a://{path}", lambda path: path, name="t", policy=policy),
    ],
)
@cases(
    ("policy", "said"),
    [
        (Policy(rules={"pth": rules.plain_text}), "has a rule for 'pth', which is no argument of it"),
        (Policy(implies={"a": ["b"]}), "has implies=, which is for that of a server"),
    ],
)
def test_mistakes_in_the_policy_of_a_component_are_named_when_it_is_made(make: Any, policy: Policy, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        make(policy)


async def test_names_that_no_component_has_are_told_when_a_server_starts(caplog: pytest.LogCaptureFixture) -> None:
    inner = Server("inner", policy=Policy(rules={"pth": rules.plain_text, "path": rules.plain_text}))
    inner.tool(name="read", tags=["files"])(lambda path: path)
    inner.restrict("fils", scopes=["x"]).restrict("files", scopes=["x"])
    inner.completion(prompt="later", argument="x")(lambda partial: [])
    outer = Server("outer", policy=Policy(rules={"path": rules.plain_text})).mount(inner)
    outer.restrict("files", scopes=["y"]).restrict("nobody", scopes=["y"])
    empty = Server("empty", policy=Policy(rules={"path": rules.plain_text}))
    for server in (outer, outer, empty):
        async with connect(server, MODERN) as client:
            await client.result("server/discover")
    assert [each.getMessage() for each in caplog.records if "the server" in each.getMessage()] == [
        "the server 'outer' restricts the tag 'nobody', which no component has",
        "the server 'inner' restricts the tag 'fils', which no component has; did you mean 'files'?",
        "the server 'inner' has a rule for the argument 'pth', which no component takes; did you mean 'path'?",
        "the server 'inner' has a completion for the prompt 'later', which does not exist",
    ]


# --- suggestions ---


async def test_what_a_rule_refuses_is_not_suggested() -> None:
    server = Server("s", policy=Policy(rules={"city": rules.one_of("Oslo", "Rome")}))
    server.prompt(name="ask", policy=Policy(rules={"count": rules.between(1, 3)}, quota="1/hour"))(
        lambda city, count: city
    )
    server.completion(prompt="ask", argument="city")(lambda partial: ["Oslo", "Paris", "Rome"])
    server.completion(prompt="ask", argument="count")(lambda partial: ["1", "2", "5", "x"])
    async with connect(server, MODERN) as client:
        for argument, values in (("city", ["Oslo", "Rome"]), ("count", ["1", "2"])):
            params = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": argument, "value": ""}}
            found = await client.result("completion/complete", params)
            assert found["completion"]["values"] == values
            assert "total" not in found["completion"], "how many were left out is nobody's business"


@cases("url", ["https://.good.com/", "https://a..good.com/", "https://good.com../", "https://./"])
def test_host_with_an_empty_label_is_refused(url: str) -> None:
    assert rules.to_hosts("good.com", "*.good.com")(url) is not None


def test_star_stands_for_the_names_below_a_host_and_not_for_the_host() -> None:
    below = rules.to_hosts("*.example.com")
    assert below("https://example.com/") is not None
    assert below("https://a.example.com/") is None
    assert rules.to_hosts("*.com")("https://example.com/") is None


async def test_argument_that_differs_in_case_and_exists_has_rules_of_its_own() -> None:
    def compare(file: str, File: str) -> str:
        return file + File

    policy = Policy(rules={"file": rules.one_of("a")})
    server = Server("s", tools=compare, policy=policy)
    assert (await server.call_tool("compare", {"file": "a", "File": "b"})).text == "ab"
    assert (await server.call_tool("compare", {"file": "b", "File": "b"})).is_error
    renamed = Shape(tools={"compare": ToolShape(arguments={"File": ArgumentShape(rename="second")})})
    again = Shape(tools={"compare": ToolShape(arguments={"second": ArgumentShape(rename="third")})})
    outer = Server("outer").mount(Server("middle").mount(server, shape=renamed), shape=again)
    assert (await outer.call_tool("compare", {"file": "a", "third": "b"})).text == "ab"
    assert (await outer.call_tool("compare", {"file": "b", "third": "b"})).is_error
