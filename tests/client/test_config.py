"""Configurations with `mcpServers`: one server, or several as one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.client.fake import FakeServer, text

from toolwire import Context, Server, Tool
from toolwire.client import Client, ResourceNotFound, ToolCall
from toolwire.client.config import read_config
from toolwire.client.group import Group, GroupTarget
from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import CommandTarget, ServerTarget
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Unreachable
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.wire.outlet import Outlet

HELLO = """
import sys
from toolwire import Server
server = Server(sys.argv[1])
@server.tool
def hello() -> str:
    return f"from {server.name}"
server.run()
"""


def configured(tmp_path: Path, *names: str) -> dict[str, Any]:
    file = tmp_path / "hello.py"
    file.write_text(HELLO)
    return {"mcpServers": {name: {"command": sys.executable, "args": [str(file), name]} for name in names}}


async def test_one_server_keeps_its_names(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "alone")) as client:
        assert [tool.name for tool in await client.list_tools()] == ["hello"]


async def test_one_server_may_be_called_anything(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "my notes, of 2026")) as client:
        assert (await client.call_tool("hello")).text == "from my notes, of 2026"


async def test_names_of_several_servers_become_part_of_those_of_tools(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "my notes", "ünïcode")) as client:
        assert [tool.name for tool in await client.list_tools()] == ["my_notes_hello", "_n_code_hello"]
        assert (await client.call_tool("my_notes_hello")).text == "from my notes"


async def test_several_servers_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(configured(tmp_path, "a", "b")))
    async with Client(str(file)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_hello", "b_hello"]
        assert (await client.call_tool("b_hello")).text == "from b"


def test_what_an_entry_may_say() -> None:
    found = read_config(
        {
            "mcpServers": {
                "web": {"url": "https://example.com/mcp", "headers": {"X-Key": "k"}, "type": "http", "unknown": 1},
                "local": {"command": "npx", "args": ["server"], "env": {"A": "1"}, "cwd": "/tmp"},
                "off": {"url": "https://example.com/", "disabled": True},
            },
            "other": {},
        }
    )
    assert set(found) == {"web", "local"}
    web, local = found["web"], found["local"]
    assert isinstance(web, HttpTarget)
    assert web._headers == {"X-Key": "k"}
    assert isinstance(local, CommandTarget)
    assert (local.command, local._env, local._cwd) == (["npx", "server"], {"A": "1"}, "/tmp")


def test_values_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("TRICKY", "${KEY}")
    monkeypatch.delenv("UNSET", raising=False)
    entry = {
        "command": "${UNSET:-npx}",
        "args": [
            "${env:KEY}-${KEY}",
            "${EMPTY}",
            "${EMPTY:-filled}",
            "${KEY:-other}",
            "${UNSET:-}",
            "$KEY $$ ${} {KEY}",
        ],
        "env": {"A": "${KEY}", "B": "${TRICKY}", "C": "${X##*/} ${X:?no}"},
        "cwd": "/${KEY}",
    }
    web = {"url": "https://${UNSET:-example.com}/${KEY}", "headers": {"Authorization": "Bearer ${env:KEY}"}}
    found = read_config({"mcpServers": {"local": entry, "web": web}})
    local = found["local"]
    assert isinstance(local, CommandTarget)
    assert local.command == ["npx", "secret-secret", "", "filled", "secret", "", "$KEY $$ ${} {KEY}"]
    # What a variable holds is not expanded again, and the forms of a shell are the shell's.
    assert local._env == {"A": "secret", "B": "${KEY}", "C": "${X##*/} ${X:?no}"}
    assert local._cwd == "/secret"
    assert isinstance(found["web"], HttpTarget)
    assert (found["web"]._url, found["web"]._headers) == (
        "https://example.com/secret",
        {"Authorization": "Bearer secret"},
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "${NOT_SET}"}, "variable NOT_SET is not set, which the command of the server 'it' needs"),
        ({"command": "x", "args": ["${env:NOT_SET}"]}, "NOT_SET is not set, which the args of the server 'it'"),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "NOT_SET is not set, which the variable 'A' of the server 'it'"),
        ({"url": "http://x/${NOT_SET}"}, "NOT_SET is not set, which the url of the server 'it'"),
        ({"url": "http://x/", "headers": {"K": "${NOT_SET}"}}, "which the header 'K' of the server 'it' needs: set it"),
        (
            {"command": "x", "env": {"A": "${input:key}"}},
            r"'\$\{input:key\}' in the variable 'A' of the server 'it' cannot",
        ),
    ],
)
def test_a_variable_that_is_not_set_is_named_with_the_server_that_needs_it(
    entry: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match=says):
        Client({"mcpServers": {"it": entry}})
    # A server that is switched off needs nothing.
    other = {"command": "x"}
    assert set(read_config({"mcpServers": {"it": {**entry, "disabled": True}, "other": other}})) == {"other"}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "no mcpServers, nor servers as VS Code has"),
        ({"mcpServers": []}, "not a configuration"),
        ({"mcpServers": {"a": {"command": 1}}}, "not a configuration"),
        ({"mcpServers": {"a": {}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "http://x/"}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "headers": {}}}}, "has no headers"),
        ({"mcpServers": {"a": {"url": "http://x/", "type": "ws"}}}, "has the transport 'ws'"),
        ({"mcpServers": {"a": {"url": "nonsense"}}}, "not the URL"),
        ({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}}, "would both be called 'a_b'"),
        ({"mcpServers": {"a" * 65: {"command": "x"}, "b": {"command": "x"}}}, "cannot be the name of one of several"),
        ({"mcpServers": {"": {"command": "x"}, "b": {"command": "x"}}}, "cannot be the name of one of several"),
        ({"mcpServers": {str(n): {"command": "x"} for n in range(101)}}, "more than 100"),
        ("missing.json", "cannot be read"),
    ],
)
def test_what_is_no_configuration(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Client(config)


def test_vs_code_calls_it_servers_and_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"inputs": [], "servers": {"one": {"type": "stdio", "command": "npx", "args": ["server"]}}}')
    (found,) = read_config(file).values()
    assert isinstance(found, CommandTarget)
    assert found.command == ["npx", "server"]
    file.write_text('{"mcpServers": {},}')
    with pytest.raises(ValueError, match=r"mcp\.json' is not a configuration with mcpServers: JSON is malformed"):
        Client(file)


def test_options_belong_to_the_entries() -> None:
    with pytest.raises(ValueError, match="headers= is not for a configuration"):
        Client({"mcpServers": {"a": {"command": "x"}}}, headers={"a": "b"})


# --- groups ---


@asynccontextmanager
async def grouped(revision: str | None = None, **servers: Server) -> AsyncIterator[Client]:
    members = {name: Client(server, revision=revision) for name, server in servers.items()}
    async with Client(GroupTarget(Group(members))) as client:
        yield client


def make(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def who() -> str:
        return name

    @server.tool
    async def count(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step)
        return "counted"

    @server.resource(f"memo://{name}")
    def memo() -> str:
        return f"memo of {name}"

    @server.resource(f"note://{name}/{{key}}")
    def note(key: str) -> str:
        return f"{name} {key}"

    @server.prompt
    def greet(you: str) -> str:
        return f"{name} greets {you}"

    @server.completion(prompt="greet", argument="you")
    def people(partial: str) -> list[str]:
        return [f"{partial} of {name}"]

    return server


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_each_server_says_how_it_is_used(revision: str) -> None:
    a, b, c = Server("a", instructions="Ask first."), Server("b"), Server("c", instructions="Be brief.")
    async with grouped(revision, a=a, b=b, c=c) as client:
        assert client.instructions == "a: Ask first.\n\nc: Be brief."
    async with grouped(revision, b=b) as client:
        assert client.instructions is None


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_each_server_is_reached_by_its_name(revision: str) -> None:
    seen: list[float] = []
    async with grouped(revision, a=make("a"), a_b=make("a_b")) as client:
        assert sorted(tool.name for tool in await client.list_tools()) == ["a_b_count", "a_b_who", "a_count", "a_who"]
        assert (await client.call_tool("a_who")).text == "a"
        assert (await client.call_tool("a_b_who")).text == "a_b"
        await client.call_tool("a_count", on_progress=lambda params: seen.append(params.progress))
        assert {resource.uri for resource in await client.list_resources()} == {"memo://a", "memo://a_b"}
        assert (await client.read_resource("memo://a_b"))[0].text == "memo of a_b"
        assert (await client.read_resource("note://a_b/x"))[0].text == "a_b x"
        assert len(await client.list_resource_templates()) == 2
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_greet", "a_b_greet"]
        assert "a_b greets you" in str((await client.get_prompt("a_b_greet", {"you": "you"})).messages)
        completion = await client.complete(t.PromptReference("a_b_greet"), ("you", "x"))
        assert completion.values == ["x of a_b"]
    assert seen == [0, 1, 2]


async def test_what_would_be_taken_for_that_of_another_server_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Else `a` could catch the calls of `a_b`, or be called instead of it."""
    short, long = make("a"), make("a_b")

    @short.tool(name="b_who")
    async def catch() -> str:
        return "caught"

    @short.prompt(name="b_greet")
    def catch_prompt(you: str) -> str:
        return "caught"

    async with grouped(a=short, a_b=long) as client:
        assert [tool.name for tool in await client.list_tools()].count("a_b_who") == 1
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_greet", "a_b_greet"]
        assert (await client.call_tool("a_b_who")).text == "a_b"
    assert "'b_who' of a is left out: 'a_b_who' would be one of a_b" in caplog.text


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_meta_and_progress_are_handed_on(revision: str) -> None:
    seen: list[dict[str, Any]] = []

    async def note(request: Incoming, outlet: Outlet) -> Any:
        assert request.raw is not UNSET
        seen.append(t.request_meta(request.raw))
        progress = t.ProgressNotificationParams(progress_token=seen[-1][t.PROGRESS_TOKEN_KEY], progress=0.5)
        outlet.notify("notifications/progress", progress)
        if request.method == "tools/call":
            return t.CallToolResult(content=[])
        if request.method == "prompts/get":
            return t.GetPromptResult(messages=[])
        return t.ReadResourceResult(contents=[], ttl_ms=0, cache_scope="private")

    fake = FakeServer(dict.fromkeys(["tools/call", "prompts/get", "resources/read"], note))
    given = {"com.example/tenant": "t1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    reported: list[float] = []

    def report(params: t.ProgressNotificationParams) -> None:
        reported.append(params.progress)

    members = {"a": Client(fake, revision=revision), "b": Client(Server("b"))}
    async with Client(GroupTarget(Group(members))) as client:
        await client.call_tool("a_x", meta=given, on_progress=report)
        await client.get_prompt("a_x", meta=given, on_progress=report)
        await client.read_resource("memo://a", meta=given, on_progress=report)
    assert reported == [0.5] * 3
    for meta in seen:
        own = {key: value for key, value in meta.items() if key in given}
        assert own == given
        assert (t.CLIENT_INFO_KEY in meta) == (revision == MODERN), "each connection says itself what it is"


@pytest.mark.covers("1.14.1")
async def test_new_roots_reach_every_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(request: Incoming, outlet: Outlet) -> Any:
        return text(bytes(await outlet.request("roots/list", t.RequestParams(), timeout=5) or b"").decode())

    fakes = {name: FakeServer({"tools/call": ask}) for name in ("a", "b")}
    targets = {name: ServerTarget(fake) for name, fake in fakes.items()}
    monkeypatch.setattr("toolwire.client.config.read_config", lambda config, **_: targets)
    async with Client({"mcpServers": {}}, revision=LATEST_LEGACY, roots=["file:///old"]) as client:
        await client.set_roots(["file:///new"])
        for name, fake in fakes.items():
            assert (await client.call_tool(f"{name}_x")).text == '{"roots":[{"uri":"file:///new"}]}'
            assert fake.notices[-1].method == "notifications/roots/list_changed"


async def test_what_no_server_has() -> None:
    async with grouped(a=make("a"), b=make("b")) as client:
        with pytest.raises(ProtocolError, match="names begin with that of a server"):
            await client.call_tool("who")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("a_nothing")
        with pytest.raises(ResourceNotFound):
            await client.read_resource("memo://nobody")


async def test_changes_of_any_server() -> None:
    second = make("b")
    async with grouped(a=make("a"), b=second) as client, client.listen(tools=True) as changes:
        second.remove("who")
        async for change in changes:
            assert change.kind == "tools"
            break
        assert "b_who" not in {tool.name for tool in await client.list_tools()}


async def test_who_approves_is_shown_what_a_tool_is_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    server, shown = make("a"), list[Any]()
    targets = {"a": ServerTarget(server), "b": ServerTarget(Server("b"))}
    monkeypatch.setattr("toolwire.client.config.read_config", lambda config, **_: targets)

    def approve(call: ToolCall) -> bool:
        shown.append(call.tool and call.tool.description)
        return True

    async def who() -> str:
        """Tells all."""
        return "all"

    async with Client({"mcpServers": {}}, revision=LATEST_LEGACY, approve=approve) as client:
        await client.call_tool("a_who")
        server.add(Tool(who))
        await client.call_tool("a_who")  # The announcement comes before the answer.
        await client.call_tool("a_who")
    assert shown[-1] == "Tells all."


@pytest.mark.covers("SUB-4")
@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_only_its_owner_is_asked_about_a_resource(revision: str) -> None:
    def subscribe(request: Incoming, outlet: Outlet) -> Any:
        if request.params.uri != "memo://b":
            raise ProtocolError(-32002, "no such resource")
        return t.EmptyResult()

    async def listen(request: Incoming, outlet: Outlet) -> Any:
        wanted = request.params.notifications
        accepted = t.SubscriptionFilter(resource_subscriptions=wanted.resource_subscriptions)
        meta = {t.SUBSCRIPTION_ID_KEY: request.id}
        outlet.notify("notifications/subscriptions/acknowledged", {"notifications": accepted, "_meta": meta})
        await asyncio.Event().wait()

    other = FakeServer(
        {
            "resources/list": lambda request, outlet: t.ListResourcesResult(
                resources=[t.Resource(uri="memo://b", name="b")], ttl_ms=0, cache_scope="private"
            ),
            "resources/subscribe": subscribe,
            "resources/unsubscribe": lambda request, outlet: t.EmptyResult(),
            "subscriptions/listen": listen,
        }
    )
    own = make("a")
    members = {"a": Client(own, revision=revision), "b": Client(other, revision=revision)}
    async with (
        Client(GroupTarget(Group(members))) as client,
        client.listen(resources_list=True, resources=["memo://a", "memo://b"]) as changes,
    ):
        assert changes.accepted is not None
        assert changes.accepted.resource_subscriptions == ["memo://a", "memo://b"]
        own.notify_updated("memo://a")
        async for change in changes:
            assert change.uri == "memo://a"
            break
        assert "memo://a" not in str([request.params for request in other.requests])


async def test_a_resource_that_its_server_no_longer_lists_is_looked_for_again() -> None:
    one, other = make("a"), Server("b")

    @other.resource("memo://{key}")
    def memo(key: str) -> str:
        return f"{key} of b"

    async with grouped(a=one, b=other) as client:
        await client.list_resources()
        one.remove("memo://a")
        await client.list_resources()
        assert (await client.read_resource("memo://a"))[0].text == "a of b"


async def test_one_that_can_not_be_reached_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    members = {"a": Client(make("a")), "b": Client(str(broken))}
    with pytest.raises(Unreachable, match="exited with code 3"):
        await Client(GroupTarget(Group(members))).connect()
    assert not members["a"].connected


async def test_an_error_is_the_one_of_the_server_behind(tmp_path: Path) -> None:
    file = tmp_path / "dies.py"
    file.write_text(
        "import os\nfrom toolwire import Server\nserver = Server('dies')\n"
        "@server.tool\ndef die() -> None:\n    os._exit(9)\nserver.run()\n"
    )
    async with Client(GroupTarget(Group({"a": Client(make("a")), "b": Client(str(file))}))) as client:
        with pytest.raises(OutcomeUnknown, match="exited with code 9"):
            await client.call_tool("b_die")
        assert (await client.call_tool("a_who")).text == "a"


async def test_cancelling_reaches_the_server_behind() -> None:
    server = Server("slow")
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with grouped(a=server, b=make("b")) as client:
        calling = asyncio.ensure_future(client.call_tool("a_hang"))
        await started.wait()
        calling.cancel()
        await stopped.wait()


async def test_headers_have_no_place_in_a_group() -> None:
    async with grouped(a=make("a"), b=make("b")) as client:
        with pytest.raises(NotSupported, match="headers="):
            await client.call_tool("a_who", headers={"x": "y"})
