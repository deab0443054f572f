"""Servers behind a gateway that hang, die, lie or never end. The error names the server, and nobody else notices."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.client.scripted_http import (
    DISCOVERED,
    JSON,
    STREAM,
    URL,
    Reply,
    Request,
    Script,
    event,
    initialized,
    result,
    rpc,
    stream,
    text,
    unanswered,
)
from tests.gateway.backs import until
from tests.http.httpclient import HttpClient
from tests.server.tasks.talking import talk
from tests.wireclient import modern_meta

from toolwire import Client, Limits, Policy, Server, Tool, testing
from toolwire.auth.errors import Refused
from toolwire.client import targets
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Link, Target
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway, list_follower, remote_lists
from toolwire.gateway.list_pace import READINGS_A_SECOND
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN
from toolwire.server.policy import rules
from toolwire.server.rule_names import warn_of_unknown_names

TOOLS_ONLY = {"tools": {}}
BOTH_ERAS = pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])


def fake(call: Callable[..., Any], tools: list[Any] | None = None) -> FakeServer:
    """Make a server with the tool `run`, whose calls `call` answers."""
    listed = [{"name": "run", "inputSchema": {"type": "object"}}] if tools is None else tools
    page = {"tools": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return FakeServer(
        {"tools/list": lambda request, outlet: Raw(msgspec.json.encode(page)), "tools/call": call},
        capabilities=TOOLS_ONLY,
    )


def healthy() -> Server:
    server = Server("good")

    @server.tool
    async def fine() -> str:
        return "fine"

    return server


def pair(server: Any, **options: Any) -> Gateway:
    gateway = Gateway("front")
    gateway.add("bad", server, **options).add("good", healthy())
    return gateway


def raw(text: bytes) -> Callable[..., Any]:
    return lambda request, outlet: Raw(text)


@pytest.mark.covers("GW-12.2")
@BOTH_ERAS
@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b'"text"',
        b"7",
        b'{"content":7}',
        b'{"content":[{"type":7}]}',
        b'{"resultType":"task","taskId":"1"}',
        b'{"resultType":7,"content":[]}',
        b'{"resultType":"input_required"}',
        b'{"resultType":"input_required","inputRequests":{"a":{"method":"what"}}}',
        b'{"_meta":7,"content":[]}',
    ],
)
async def test_answers_that_are_none(revision: str, answer: bytes) -> None:
    """A modern client in front of a modern server may be handed on what only it can judge."""
    gateway = pair(fake(raw(answer)), revision=revision)
    async with testing.connect(gateway, revision="2025-06-18") as (client, _):
        if not (revision != MODERN and b"resultType" in answer and b"content" in answer):
            failed = await client.call_tool("bad_run")
            assert failed.is_error, answer
            assert "'bad'" in failed.text, failed.text
        assert await client.call_tool("good_fine", returns=str) == "fine"


@pytest.mark.covers("GW-12.1")
@BOTH_ERAS
async def test_a_call_that_is_not_answered_in_time_names_the_server(revision: str) -> None:
    async def hang(request: Any, outlet: Any) -> Any:
        await asyncio.Event().wait()

    gateway = pair(fake(hang), revision=revision, timeout=0.05)
    async with testing.connect(gateway) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error
        assert "The server 'bad' behind this one failed" in failed.text
        assert "within 0.05 seconds" in failed.text and "may have been carried out" in failed.text
        assert await client.call_tool("good_fine", returns=str) == "fine"


@pytest.mark.covers("GW-12.1")
@BOTH_ERAS
async def test_a_server_that_dies_in_a_call_is_not_called_twice(revision: str) -> None:
    calls = 0

    async def die(request: Any, outlet: Any) -> Any:
        nonlocal calls
        calls += 1
        await outlet.connection.channel.close()
        outlet.connection.end()

    gateway = pair(fake(die), revision=revision)
    async with testing.connect(gateway) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error and "'bad'" in failed.text and "may have been carried out" in failed.text
        assert calls == 1
        assert await client.call_tool("good_fine", returns=str) == "fine"


@pytest.mark.covers("GW-3.4")
async def test_rounds_without_end_end() -> None:
    state = b'{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}'
    gateway = pair(fake(raw(state)), revision=MODERN)
    async with testing.connect(gateway, revision="2025-11-25", roots=["file:///a"]) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error and "more than 10 rounds" in failed.text


@pytest.mark.covers("GW-3.17")
@cases("code", [-32020, -32022])
@cases("front", [MODERN, "2025-11-25"])
async def test_errors_between_gateway_and_server_are_none_of_the_clients(code: int, front: str) -> None:
    def refuse(request: Any, outlet: Any) -> Any:
        raise ProtocolError(code, "this is about the connection")

    gateway = pair(fake(refuse), revision=MODERN)
    async with testing.connect(gateway, revision=front) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error and "'bad'" in failed.text and "about the connection" in failed.text


@pytest.mark.covers("GW-12.2")
@BOTH_ERAS
async def test_broken_entry_of_a_list_is_named_and_the_others_are_served(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {"type": "object"}
    tools: list[Any] = [
        {"name": "run", "inputSchema": plain},
        {"name": "bare"},
        {"name": "typed", "inputSchema": "object"},
        {"inputSchema": plain},
        7,
        {"name": "line\nbreak", "inputSchema": plain},
    ]
    server = fake(raw(b'{"content":[{"type":"text","text":"ok"}]}'), tools)
    gateway = pair(server, revision=revision)
    async with testing.connect(gateway) as (client, _):
        assert {tool.name for tool in await client.list_tools()} == {"bad_run", "good_fine"}
        assert (await client.call_tool("bad_run")).text == "ok"
        assert "io.toolwire/missing" not in str((await client.list_tools_page()).meta)
        left_out = gateway.backs["bad"].left_out
        assert list(left_out) == ["bare", "typed", "tools[3]", "tools[4]", "line\nbreak"]
        assert "inputSchema" in left_out["bare"]
        app = gateway.http_app()
        ready = await HttpClient(app, path="/readyz").start("GET").finished()
        assert ready.status == 200 and b"'bad/bare'" in ready.body and b"left out" in ready.body
        await app.stop()
        before = caplog.text.count("'bare' is left out")
        await gateway.fronts.front.upstreams["bad"].lists.follower.refresh()
        assert before == caplog.text.count("'bare' is left out") == 1


@pytest.mark.covers("GW-12.2")
@BOTH_ERAS
async def test_definitions_that_nobody_can_use_are_left_out(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = {"type": "object"}
    tools = [
        {"name": "run", "inputSchema": plain},
        {"name": "", "inputSchema": plain},
        {"name": "line\nbreak", "inputSchema": plain},
        {"name": "n" * 500, "inputSchema": plain},
        {"name": "run", "inputSchema": plain, "title": "once more"},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
        {"name": "empty", "inputSchema": {}},
    ]
    gateway = pair(fake(raw(b'{"content":[]}'), tools), revision=revision)
    async with testing.connect(gateway) as (client, _):
        names = {tool.name for tool in await client.list_tools()}
        assert {"bad_run", "bad_odd", "bad_empty", "good_fine"} <= names
        assert len(names) == 5 and all(len(name) <= 64 for name in names)
    assert "is left out" in caplog.text


IMPOSSIBLE: list[Any] = [
    {"properties": 5},
    {"properties": None},
    {"properties": [["path", {}]]},
    {"properties": {"path": 5}},
    {"properties": {"path": {"properties": "none"}}},
    {"properties": {"path": {"items": {"anyOf": {"type": "string"}}}}},
    {"required": "path"},
    {"required": [1]},
    {"$defs": []},
    {"allOf": [None]},
]


@pytest.mark.covers("GW-12.2")
@BOTH_ERAS
@pytest.mark.parametrize("member", ["inputSchema", "outputSchema"])
async def test_tools_with_impossible_schemas_are_left_out_beside_rules(revision: str, member: str) -> None:
    plain = {"type": "object", "properties": {"path": {"type": "string"}, "not": True, "items": {"items": [{}]}}}
    tools: list[Any] = [{"name": "run", "inputSchema": plain, "outputSchema": plain}]
    tools += [
        {"name": f"bad{number}", "inputSchema": plain, member: {"type": "object", **schema}}
        for number, schema in enumerate(IMPOSSIBLE)
    ]
    policy = Policy(rules={"path": rules.at_most(1000), "bytes": rules.at_most(5)})
    gateway = Gateway("front", policy=policy)
    gateway.add("bad", fake(raw(b'{"content":[]}'), tools), revision=revision, policy=policy).add("good", healthy())
    async with testing.connect(gateway) as (client, _):
        assert {tool.name for tool in await client.list_tools()} == {"bad_run", "good_fine"}
        left_out = gateway.backs["bad"].left_out
        assert list(left_out) == [f"bad{number}" for number in range(len(IMPOSSIBLE))]
        assert all(each.startswith(f"{member}: ") for each in left_out.values())


def test_names_in_rules_are_looked_for_in_every_schema() -> None:
    tool = Tool(lambda: "", name="fine")
    server = Server("own", tools=[tool], policy=Policy(rules={"path": rules.at_most(1000)}))
    for properties in (5, None, [["path", {}]]):
        tool.input_schema = {"type": "object", "properties": properties}
        warn_of_unknown_names(server)


def large(member: str, sizes: list[int]) -> FakeServer:
    """Make a server that lists entries of these sizes."""
    entries: list[dict[str, Any]] = [{"name": f"n{number}", "description": "x" * n} for number, n in enumerate(sizes)]
    keys: dict[str, tuple[str, str, Any]] = {
        "tools": ("tools/list", "inputSchema", {"type": "object"}),
        "prompts": ("prompts/list", "arguments", []),
        "resources": ("resources/list", "uri", None),
        "resourceTemplates": ("resources/templates/list", "uriTemplate", None),
    }
    method, key, value = keys[member]
    for number, each in enumerate(entries):
        each[key] = value if value is not None else f"large://{sizes[0]}/{number}"
    page = {member: entries, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}
    empty = {
        "resources": [],
        "resourceTemplates": [],
        "resultType": "complete",
        "ttlMs": 60_000,
        "cacheScope": "private",
    }
    answers: dict[str, Any] = {"resources/list": empty, "resources/templates/list": empty, method: page}
    handlers = {
        name: (lambda request, outlet, found=found: Raw(msgspec.json.encode(found))) for name, found in answers.items()
    }
    return FakeServer(
        handlers, capabilities={"resources" if "/" in key or member.startswith("resource") else member: {}}
    )


@BOTH_ERAS
@pytest.mark.pairwise
@pytest.mark.parametrize("member", ["tools", "prompts", "resources", "resourceTemplates"])
@pytest.mark.parametrize("sizes", [[[420_000]], [[4_000] * 110], [[200_000], [210_000]]])
@pytest.mark.parametrize("is_read", [False, True])
async def test_a_merged_list_over_the_limit_leaves_out_the_largest_servers(
    revision: str, member: str, sizes: list[list[int]], is_read: bool, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"tools": "good_fine", "prompts": "good_ask", "resources": "good://1", "resourceTemplates": "good://{a}"}
    server = healthy()

    @server.prompt
    def ask() -> str:
        return "ask"

    @server.resource("good://1")
    def one() -> str:
        return "one"

    @server.resource("good://{a}")
    def each(a: str) -> str:
        return a

    gateway = Gateway("front", limits=Limits(result=400_000)).add("good", server)
    for number, each_sizes in enumerate(sizes):
        gateway.add(f"bad{number}", large(member, each_sizes), revision=revision)
    if is_read:
        gateway.use(pass_on)
    async with testing.connect(gateway, revision=revision) as (client, _):

        async def listed() -> set[str]:
            if member == "tools":
                return {entry.name for entry in await client.list_tools()}
            if member == "prompts":
                return {entry.name for entry in await client.list_prompts()}
            if member == "resources":
                return {entry.uri for entry in await client.list_resources()}
            return {entry.uri_template for entry in await client.list_resource_templates()}

        found = await listed()
        assert own[member] in found
        left = f"bad{len(sizes) - 1}"
        assert not any(each.startswith((f"{left}_", f"large://{sizes[-1][0]}/")) for each in found)
        assert any(each.startswith(("bad0_", "large://200000/")) for each in found) == (len(sizes) == 2)
        assert f"of {left!r} are left out of a list" in caplog.text
        if member == "tools":
            assert (await client.list_tools_page()).meta[MISSING_KEY] == [left]
            assert "isError" not in str(await client.call_tool("good_fine"))


@BOTH_ERAS
@cases(
    ("limit", "sizes", "left"),
    [
        (16_000, [[500], [600]], set()),
        (100_000, [[30_000], [60_000]], set()),
        (100_000, [[30_000], [80_000]], {"bad1"}),
        (20_000, [[500], [600], [30_000]], {"bad2"}),
    ],
)
@pytest.mark.parametrize("is_read", [False, True])
async def test_no_server_is_left_out_of_a_list_that_fits(
    revision: str, limit: int, sizes: list[list[int]], left: set[str], is_read: bool
) -> None:
    gateway = Gateway("front", limits=Limits(result=limit)).add("good", healthy())
    for number, each in enumerate(sizes):
        gateway.add(f"bad{number}", large("tools", each), revision=revision)
    if is_read:
        gateway.use(pass_on)
    names = {f"bad{number}" for number in range(len(sizes))}
    async with testing.connect(gateway, revision=revision) as (client, _):
        listed = {entry.name.partition("_")[0] for entry in await client.list_tools()}
    assert listed == {"good"} | names - left


@BOTH_ERAS
async def test_a_list_follows_the_limit_of_results(revision: str) -> None:
    gateway = Gateway("front", limits=Limits(result=100_000)).add("good", healthy())
    gateway.add("bad", large("tools", [60_000]), revision=revision)
    async with testing.connect(gateway, revision=revision) as (client, _):
        for limit, names in ((100_000, {"good", "bad"}), (40_000, {"good"}), (200_000, {"good", "bad"})):
            gateway.apply_settings(replace(gateway.settings, limits=Limits(result=limit)))
            assert {entry.name.partition("_")[0] for entry in await client.list_tools()} == names


async def pass_on(ctx: Any, call_next: Any) -> Any:
    return await call_next(ctx)


@pytest.mark.covers("GW-12.3")
async def test_a_server_that_never_acknowledges_a_subscription_lists_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert list_follower.SUBSCRIBE_SECONDS < list_follower.LIST_SECONDS / 2
    monkeypatch.setattr(list_follower, "SUBSCRIBE_SECONDS", 0.01)

    async def silent(request: Any, outlet: Any) -> Any:
        await asyncio.Event().wait()

    server = fake(raw(b'{"content":[]}'))
    server.declared, server.handlers["subscriptions/listen"] = {"tools": {"listChanged": True}}, silent
    gateway = pair(server, revision=MODERN)
    async with testing.connect(gateway) as (client, _):
        assert {tool.name for tool in await client.list_tools()} == {"bad_run", "good_fine"}
        assert gateway.backs["bad"].state == "ready"
    assert "bad: it does not tell of its changes" in caplog.text
    assert "is away" not in caplog.text


class _Gone(Target):
    """A server that cannot be reached."""

    label = "gone"

    async def open(self) -> Link:
        raise Unreachable("nobody is there")


@pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
async def test_a_name_of_a_server_that_never_listed_it_names_the_server(front: str) -> None:
    async with testing.connect(pair(_Gone()), revision=front) as (client, _):
        with pytest.raises(ProtocolError, match=r"Unknown tool: bad_run \(the list of the server 'bad' is missing"):
            await client.call_tool("bad_run")
        with pytest.raises(ProtocolError, match=r"Unknown prompt: bad_run \(the list of the server 'bad' is missing"):
            await client.get_prompt("bad_run")
        with pytest.raises(ProtocolError) as unknown:
            await client.call_tool("good_run")
        assert unknown.value.message == "Unknown tool: good_run; did you mean 'good_fine'?"
        assert await client.call_tool("good_fine", returns=str) == "fine"


@pytest.mark.covers("GW-12.3")
async def test_lists_that_change_all_the_time_are_offered_all_the_same() -> None:
    """Each reading finds that the lists have changed again."""
    readings = 0
    server = fake(raw(b'{"content":[{"type":"text","text":"ok"}]}'))
    page = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}

    def listed(request: Any, outlet: Any) -> Any:
        nonlocal readings
        readings += 1
        outlet.connection.notify("notifications/tools/list_changed", msgspec.UNSET)
        return Raw(msgspec.json.encode(page))

    server.handlers["tools/list"] = listed
    server.declared = {"tools": {"listChanged": True}}
    async with testing.connect(pair(server, revision="2025-11-25")) as (client, _):
        assert "bad_run" in {tool.name for tool in await client.list_tools()}
        await until(lambda: readings >= READINGS_A_SECOND)
        assert (await client.call_tool("bad_run")).text == "ok"
        assert await client.call_tool("good_fine", returns=str) == "fine"


@pytest.mark.covers("GW-12.3")
async def test_large_lists_that_change_all_the_time_are_read_at_a_bounded_rate() -> None:
    readings: list[float] = []
    server = fake(raw(b'{"content":[{"type":"text","text":"ok"}]}'))
    # Two megabytes: each pause between two readings is twice as long as the one before, from two seconds on.
    filling = "x" * (2 * 1024 * 1024)

    def listed(request: Any, outlet: Any) -> Any:
        readings.append(asyncio.get_running_loop().time())
        outlet.connection.notify("notifications/tools/list_changed", msgspec.UNSET)
        tool = {"name": "run", "description": f"{len(readings)} {filling}", "inputSchema": {"type": "object"}}
        return Raw(msgspec.json.encode({"tools": [tool]}))

    server.handlers["tools/list"] = listed
    server.declared = {"tools": {"listChanged": True}}
    async with testing.connect(pair(server, revision="2025-11-25")) as (client, _):
        assert "bad_run" in {tool.name for tool in await client.list_tools()}
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 1.5:
            assert (await client.call_tool("bad_run")).text == "ok"
            await asyncio.sleep(0.1)
        # The first reading, and the one more that was announced while it ran.
        assert len(readings) == 2
        assert await client.call_tool("good_fine", returns=str) == "fine"


RUN = {"name": "run", "inputSchema": {"type": "object"}}


def over_http(requests: list[str] | None = None, **answers: Any) -> HttpTarget:
    """Make a modern server with the tool `run`. `answers` has what it answers differently, by method."""
    counts: dict[str, int] = {}

    def answer(request: Request) -> Any:
        method = request.rpc.replace("/", "_")
        counts[method] = counts.get(method, 0) + 1
        if requests is not None:
            requests.append(request.rpc)
        other = answers.get(method)
        if other is not None:
            return other(request, counts[method]) if callable(other) else other
        if method == "server_discover":
            told = {"listChanged": "subscriptions_listen" in answers}
            return result(request, **{**DISCOVERED, "capabilities": {"tools": told}})
        if method == "tools_list":
            return listed(request)
        return result(request, content=text("ok")) if method == "tools_call" else Reply(400)

    return HttpTarget(URL, pool=AsgiPool(Script(answer)))


def listed(request: Request, tools: Any = (RUN,), cursor: str | None = None) -> Reply:
    return result(request, tools=tools, nextCursor=cursor, ttlMs=0, cacheScope="private")


def breaking_off(*pieces: bytes, headers: Any = STREAM) -> Callable[..., Reply]:
    """Make answers that begin and end too early."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        raise ConnectionError("the server died")

    return lambda request, count: Reply(headers=headers, body=body())


def logged() -> bytes:
    params = {"level": "info", "data": "x"}
    return event(rpc(method="notifications/message", params=params))


@cases(
    "answers",
    [
        {"server_discover": Reply(500, body=b"no")},
        {"server_discover": Reply(headers={"content-type": "text/html"}, body=b"<html>")},
        {"server_discover": lambda request, count: Reply(body=rpc(id=4711, result=DISCOVERED))},
        {"server_discover": breaking_off(headers=JSON)},
        {"server_discover": Reply(body=b'{"a":' * 10_000)},
        {"tools_list": Reply(503)},
        {"tools_list": lambda request, count: listed(request, {"run": RUN})},
        {"tools_list": lambda request, count: Reply(body=rpc(id=4711, result={"tools": [RUN]}))},
        {"tools_list": breaking_off(b'{"jsonrpc":', headers=JSON)},
    ],
)
async def test_a_server_that_fails_before_it_has_listed_anything(answers: dict[str, Any]) -> None:
    gateway = pair(over_http(**answers))
    async with testing.connect(gateway) as (client, _):
        assert [tool.name for tool in await client.list_tools()] == ["good_fine"]
        assert gateway.backs["bad"].state == "away"
        with pytest.raises(ProtocolError, match="the list of the server 'bad' is missing"):
            await client.call_tool("bad_run")
        assert await client.call_tool("good_fine", returns=str) == "fine"


@cases(
    ("answer", "says"),
    [
        (breaking_off(headers=JSON), "broke off"),
        (breaking_off(b'{"jsonrpc":', headers=JSON), "broke off"),
        (breaking_off(), "broke off"),
        (breaking_off(logged()), "broke off"),
        (lambda request, count: stream(logged()), "ended its stream before it answered"),
        (lambda request, count: Reply(body=rpc(id=4711, result={"content": []})), "something else than an answer"),
        (lambda request, count: Reply(body=2 * rpc(id=request.id, result={"content": []})), "something else"),
        (lambda request, count: stream(event(rpc(id=4711, result={}))), "ended its stream before it answered"),
        (Reply(headers={"content-type": "text/html"}, body=b"<html>"), "something else than an answer"),
        (Reply(body=b"\xff\xfe"), "something else than an answer"),
        (Reply(500, body=b"boom"), "answered with status 500"),
        (Reply(401, body=b"who"), "refused with status 401"),
        (Reply(), "with nothing (status 200)"),
        (Reply(202), "with nothing (status 202)"),
        (lambda request, count: Reply(body=cancelling(request)), "The server cancelled tools/call"),
        (lambda request, count: stream(event(cancelling(request))), "The server cancelled tools/call"),
        (Reply(302, headers={"location": "http://elsewhere.example/mcp"}), "which is not followed"),
    ],
)
async def test_a_server_that_fails_in_a_call(answer: Any, says: str) -> None:
    requests: list[str] = []
    async with testing.connect(pair(over_http(requests, tools_call=answer))) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error and says in failed.text, failed.text
        assert "The server 'bad' behind this one failed" in failed.text
        refused = any(each in says for each in ("401", "not followed"))
        assert ("; the request may have been carried out" in failed.text) is not refused, failed.text
        assert requests.count("tools/call") == 1
        assert await client.call_tool("good_fine", returns=str) == "fine"


def cancelling(request: Request) -> bytes:
    return rpc(method="notifications/cancelled", params={"requestId": request.id, "reason": "no"})


@cases(
    ("answer", "says"),
    [
        (lambda request, count: result(request, resultType="what"), "The result type 'what' cannot be handed on"),
        (lambda request, count: result(request, content=7), "Its answer is broken"),
        (lambda request, count: Reply(body=rpc(id=request.id, result=[])), "broken"),
    ],
)
async def test_broken_answer_may_have_been_one_of_a_call_that_was_carried_out(answer: Any, says: str) -> None:
    target = over_http([], tools_call=answer)
    async with testing.connect(pair(target), revision="2025-06-18") as (client, _):
        text = (await client.call_tool("bad_run")).text
    assert says in text and text.endswith("; the request may have been carried out"), text


@cases("revision", [MODERN, "2025-11-25"])
@cases("fault", ["refuses", "is silent", "breaks off", "is broken", "is unknown"])
async def test_call_that_found_no_connection_was_not_carried_out(revision: str, fault: str) -> None:
    """The server is replaced, after its lists were read, by one with which no revision can be agreed on."""
    broken: dict[str, Any] = {
        "refuses": lambda request, count: Reply(body=rpc(id=request.id, error={"code": -32603, "message": "no"})),
        "is silent": lambda request, count: unanswered(request),
        "breaks off": breaking_off(headers=JSON),
        "is broken": Reply(body=b"{"),
        "is unknown": lambda request, count: initialized(request, revision="1999-01-01"),
    }
    is_replaced = False

    def opened(request: Request, count: int) -> Any:
        if not is_replaced:
            server = {"protocolVersion": "2025-11-25", "capabilities": TOOLS_ONLY}
            server["serverInfo"] = {"name": "old", "version": "1"}
            return Reply(body=rpc(id=request.id, result=server))
        answer = broken[fault]
        return answer(request, count) if callable(answer) else answer

    said = Reply(202, {})
    legacy = {"server_discover": Reply(400, body=b"{}"), "initialize": opened, "notifications_initialized": said}
    gateway = pair(over_http([], **legacy), timeout=0.5 if fault == "is silent" else 10)
    async with testing.connect(gateway, revision=revision) as (client, _):
        await client.list_tools()
        is_replaced = True
        await gateway.fronts.front.upstreams["bad"].back_connections.close()
        text = (await client.call_tool("bad_run")).text
    assert "The server 'bad' behind this one failed" in text and text.endswith("; the request was not carried out"), (
        text
    )


async def test_a_server_that_wants_a_credential_is_named_in_the_words_of_programs_and_files() -> None:
    gateway = pair(over_http([], server_discover=Reply(401, body=b"who")))
    async with testing.connect(gateway) as (client, _):
        await client.list_tools()
        error = gateway.backs["bad"].error
    assert error is not None and error.endswith("refused with status 401: who; give it credentials or headers")


QUOTED = "Token {} has expired, see redis.internal:6379 at 10.1.2.3 and https://internal.example/login"
#: Credentials of the gateway, and what it sends of them.
CREDENTIALS = {
    "auth": ({"auth": "gateway-token"}, "authorization", ["gateway-token"]),
    "header": ({"headers": {"x-key": "gateway-key"}}, "x-key", ["gateway-key"]),
    "password": (
        {"headers": {"authorization": "Basic dXA6Z2F0ZXdheS1wYXNz"}},
        "authorization",
        ["dXA6Z2F0ZXdheS1wYXNz", "gateway-pass"],
    ),
}


def refusing(status: int, **options: Any) -> tuple[HttpTarget, list[str]]:
    """Make a server that answers calls with this status, and quotes the credentials that it got."""
    quoted: list[str] = []

    def refuse(request: Request, count: int) -> Reply:
        name = "x-key" if "x-key" in request.headers else "authorization"
        credential = request.headers[name]
        with suppress(ValueError):
            credential += f" {base64.b64decode(credential.removeprefix('Basic '), validate=True).decode()}"
        quoted.append(credential)
        text = msgspec.json.encode({"error_description": QUOTED.format(credential)})
        return Reply(status, headers=JSON, body=text)

    return HttpTarget(URL, pool=over_http([], tools_call=refuse)._pool, **options), quoted


@cases("over", ["memory", "http"])
@cases("status", [401, 403])
@cases("name", CREDENTIALS)
async def test_text_of_a_refusal_stays_in_the_log_without_credentials(
    over: Any, status: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, _, secrets = CREDENTIALS[name]
    target, quoted = refusing(status, **options)
    caplog.clear()
    async with testing.connect(pair(target), over=over) as (client, _):
        text = (await client.call_tool("bad_run")).text
    assert text == (
        f"The server 'bad' behind this one failed: it refused with status {status}; "
        "an operator of the gateway finds the reason in its log, and gives it other credentials"
    )
    assert quoted and all(secret in quoted[-1] for secret in secrets)
    log = "\n".join(record.getMessage() for record in caplog.records)
    assert "has expired, see redis.internal:6379" in log
    assert not [secret for secret in secrets if secret in log]


@cases(
    "encode",
    [
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.b64encode(f"Bearer {text}".encode()).decode(),
        lambda text: quote(text, safe=""),
        lambda text: text.replace("/", "\\/"),
    ],
)
@cases("status", [403, 500])
async def test_encoded_credentials_of_a_refusal_stay_out_of_the_log(
    encode: Callable[[str], str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "gateway/+token=="
    quoted = encode(secret)
    answer = Reply(status, headers={"content-type": "text/plain"}, body=f"you sent {quoted}".encode())
    target = HttpTarget(URL, pool=over_http([], tools_call=answer)._pool, auth=secret)
    async with testing.connect(pair(target)) as (client, _):
        assert (await client.call_tool("bad_run")).is_error
    assert "you sent " in caplog.text and quoted[8:] not in caplog.text


class LostSignIn:
    """A sign-in that its provider ends, with a text that has an address of its own."""

    is_over = False

    async def headers(self, method: str, url: str) -> dict[str, str]:
        if self.is_over:
            raise Refused("A refresh", "invalid_grant", "no such token at db.internal:5432")
        return {"authorization": "Bearer gateway-token"}

    async def challenged(self, method: str, url: str, status: int, headers: Any) -> bool:
        return False


async def test_text_of_a_failed_sign_in_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sign_in = LostSignIn()
    target = HttpTarget(URL, pool=over_http()._pool, auth=sign_in)
    async with testing.connect(pair(target)) as (client, _):
        assert (await client.call_tool("bad_run")).text == "ok"
        sign_in.is_over = True
        text = (await client.call_tool("bad_run")).text
    assert "The server 'bad' behind this one failed: the gateway could not sign in" in text
    assert "db.internal" not in text and "db.internal" in caplog.text


@cases(
    "cursor", [lambda count: f"c{count}", lambda count: "c", lambda count: "ab"[count % 2]], ids=["new", "same", "two"]
)
async def test_lists_without_an_end_end(cursor: Callable[[int], str]) -> None:
    requests: list[str] = []
    target = over_http(requests, tools_list=lambda request, count: listed(request, cursor=cursor(count)))
    async with testing.connect(pair(target)) as (client, _):
        assert {tool.name for tool in await client.list_tools()} == {"bad_run", "good_fine"}
        assert requests.count("tools/list") <= remote_lists.MAX_PAGES
        assert (await client.call_tool("bad_run")).text == "ok"


@pytest.mark.covers("GW-12.3")
@cases("broken", [stream(), breaking_off(), Reply(404), Reply(body=b"[]")])
async def test_a_server_whose_listen_streams_break_off_is_used_all_the_same(broken: Any) -> None:
    requests: list[str] = []
    gateway = pair(over_http(requests, subscriptions_listen=broken))
    async with testing.connect(gateway) as (client, _):
        assert (await client.call_tool("bad_run")).text == "ok"
        assert gateway.backs["bad"].state == "ready"
        assert requests.count("subscriptions/listen") == 1


def hostile(fault: str) -> FakeServer:
    """Make a server with a fault that lasts."""
    never = asyncio.Event()
    server = fake(raw(b'{"content":[{"type":"text","text":"ok"}]}'))
    usual = server.handlers["tools/list"]

    async def hang(request: Any, outlet: Any) -> Any:
        await never.wait()

    async def die(request: Any, outlet: Any) -> Any:
        await outlet.connection.channel.close()
        outlet.connection.end()

    def tell(request: Any, outlet: Any) -> Any:
        for _ in range(100):
            outlet.connection.notify("notifications/tools/list_changed", msgspec.UNSET)
        return usual(request, outlet)

    def endless(request: Any, outlet: Any) -> Any:
        page = {"tools": [], "nextCursor": str(len(server.requests)), "ttlMs": 0, "cacheScope": "private"}
        return Raw(msgspec.json.encode({**page, "resultType": "complete"}))

    method, handle = {
        "lists hang": ("tools/list", hang),
        "calls hang": ("tools/call", hang),
        "dies in lists": ("tools/list", die),
        "dies in calls": ("tools/call", die),
        "changes all the time": ("tools/list", tell),
        "endless pages": ("tools/list", endless),
    }[fault]
    server.handlers[method] = handle
    server.declared = {"tools": {"listChanged": True}}
    return server


@pytest.mark.covers("GW-12.1")
@BOTH_ERAS
@cases(
    "fault",
    ["lists hang", "calls hang", "dies in lists", "dies in calls", "changes all the time", "endless pages"],
)
async def test_hostile_server_comes_and_goes_while_clients_call_another_one(fault: str, revision: str) -> None:
    gateway = pair(healthy(), revision=revision)
    is_over = False

    async def call_all_the_time(client: Client) -> int:
        count = 0
        while not is_over:
            assert await client.call_tool("good_fine", returns=str) == "fine"
            count += 1
            await asyncio.sleep(0)
        return count

    async with testing.connect(gateway) as (client, _), asyncio.timeout(20):
        calling = asyncio.ensure_future(call_all_the_time(client))
        for _ in range(2):
            await gateway.replace("bad", ServerTarget(hostile(fault)), revision=revision, timeout=0.2, list_timeout=0.2)
            # An error that names the server, or its answer.
            with suppress(ProtocolError):
                answered = await client.call_tool("bad_run")
                assert "'bad'" in answered.text or answered.text == "ok"
            assert "good_fine" in {tool.name for tool in await client.list_tools()}
            await gateway.replace("bad", healthy(), revision=revision)
            assert await client.call_tool("bad_fine", returns=str) == "fine"
        is_over = True
        assert await calling > 10
        assert gateway.backs["bad"].state == "ready"


@pytest.mark.covers("GW-11.15")
async def test_gateways_in_a_circle_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each ends only when it has waited for the other.
    monkeypatch.setattr(targets, "GRACE_SECONDS", 0.05)
    one, two = Gateway("one"), Gateway("two")
    # Each begins only when it has waited for the other, too.
    one.add(healthy_tool("first")).add("two", two, list_timeout=0.05)
    two.add(healthy_tool("second")).add("one", one, list_timeout=0.05)
    async with Client(one) as client:
        async with asyncio.timeout(30):
            while "circle" not in f"{one.backs['two'].left_out} {two.backs['one'].left_out}":
                await asyncio.sleep(0)
        assert await client.call_tool("first", returns=str) == "first"
        assert len(await client.list_tools()) < 10


def healthy_tool(name: str) -> Any:
    async def answer() -> str:
        return name

    answer.__name__ = name
    return answer


@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("asks", [False, True], ids=["at once", "after a question"])
async def test_clients_elsewhere_do_not_learn_what_a_server_wrote(
    front: str, over: Any, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line on standard error, the address and the command of a server may hold a secret."""

    async def last_words(link: Link) -> str:
        return "python exited with code 1: postgres://admin:sk-live-1@10.0.0.5/db"

    async def die(request: Any, outlet: Any) -> Any:
        if asks:
            form = t.ElicitRequestParams(message="Really?", requested_schema={"type": "object", "properties": {}})
            await outlet.request("elicitation/create", form)
        await outlet.connection.channel.close()

    monkeypatch.setattr(targets, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(targets._MemoryLink, "last_words", last_words)
    gateway = pair(fake(die), revision="2025-11-25")
    async with testing.connect(gateway, revision=front, over=over, elicit=lambda message, params: {}) as (client, _):
        failed = await client.call_tool("bad_run")
        assert failed.is_error
        assert "The server 'bad' behind this one failed" in failed.text
        assert "the request may have been carried out" in failed.text
        is_held = asks and front == MODERN
        assert ("sk-live" in failed.text) == (over == "memory" and not is_held), failed.text


@pytest.mark.parametrize("kind", [r"input\u005frequired", r"t\u0061sk"])
async def test_an_escape_hides_no_result_type(kind: str) -> None:
    result = f'{{"resultType": "{kind}", "requestState": "as it came", "taskId": "1"}}'.encode()
    async with talk(pair(fake(raw(result)), revision=MODERN), MODERN) as client:
        meta = modern_meta({"extensions": {"com.example/any": {}}})
        answer = await client.request("tools/call", {"name": "bad_run", "_meta": meta})
        assert "cannot be handed on" in str(answer)
        assert "b'" not in str(answer)
        assert "as it came" not in str(answer)
