"""Requests through a gateway: each revision in front, each revision behind, over messages and over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.gateway.backs import OVER, REVISIONS, Recorded, everything, gateway_before
from tests.http.httpclient import serving
from tests.http.legacy.session_server import Gate, make_server
from tests.http.modernclient import text_of
from tests.server.tasks.talking import open_to
from tests.wireclient import modern_meta

from toolwire import Client, Context, Server, testing
from toolwire.auth import Principal
from toolwire.client import Sampling
from toolwire.gateway import Gateway, back_connections, sent_request
from toolwire.gateway.sent_request import CLIENT_KEY, HOPS_KEY
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ResourceNotFound
from toolwire.protocol.revisions import MODERN
from toolwire.server.header_arguments import Header

# 2026-07-28 has deprecated sampling and log messages, and servers still use both.
pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

CELLS = pytest.mark.parametrize(
    ("front", "back", "near", "far"),
    [(front, back, near, far) for front in REVISIONS for back in REVISIONS for near in OVER for far in OVER],
)


def yes(message: str, params: Any) -> dict[str, Any]:
    return {"value": True}


@pytest.mark.covers("GW-3.1", "GW-4.9")
@pytest.mark.pairwise
@CELLS
async def test_everything_a_client_does_with_a_server(front: str, back: str, near: Any, far: str) -> None:
    async with (
        gateway_before(everything(), far, back) as gateway,
        testing.connect(gateway, revision=front, over=near) as (client, _),
    ):
        assert client.revision == front
        assert client.instructions == "b: Ask the back."
        names = {tool.name for tool in await client.list_tools()}
        assert names == {"b_add", "b_words", "b_steps", "b_talk", "b_fail", "b_book"}
        assert await client.call_tool("b_add", {"a": 1, "b": 2}, returns=int) == 3
        assert await client.call_tool("b_words", {"count": 2}, returns=list[str]) == ["word", "word"]
        assert (await client.read_resource("note://today"))[0].text == "sunny"
        assert (await client.read_resource("note://monday/9"))[0].text == "monday 9"
        assert [each.uri_template for each in await client.list_resource_templates()] == ["note://{day}/{hour}"]
        prompt = await client.get_prompt("b_brief", {"city": "Oslo"})
        assert prompt.messages[0].content == t.TextContent("Brief me on Oslo.")
        suggested = await client.complete(t.PromptReference(name="b_brief"), ("city", "Os"))
        assert suggested.values == ["Oslo"]
        assert gateway.backs["b"].revision == back


@pytest.mark.covers("GW-3.11", "GW-3.12")
@pytest.mark.pairwise
@CELLS
async def test_progress_and_log_messages_reach_the_client_of_the_call(
    front: str, back: str, near: Any, far: str
) -> None:
    logged: list[Any] = []
    progress: list[Any] = []
    async with (
        gateway_before(everything(), far, back) as gateway,
        testing.connect(gateway, revision=front, over=near, on_log=lambda each: logged.append(each.data)) as (
            client,
            _,
        ),
    ):
        await client.set_level("warning")
        await client.call_tool("b_steps", on_progress=lambda each: progress.append((each.progress, each.message)))
        await client.call_tool("b_talk")
        assert [amount for amount, _ in progress] == [1, 2]
        assert progress[0][1] == "half"
        assert logged == ["loud"]


@pytest.mark.covers("GW-3.17")
@pytest.mark.pairwise
@CELLS
async def test_failures_of_the_server_cross_as_they_are(front: str, back: str, near: Any, far: str) -> None:
    async with (
        gateway_before(everything(), far, back) as gateway,
        testing.connect(gateway, revision=front, over=near) as (client, _),
    ):
        failed = await client.call_tool("b_fail")
        assert failed.is_error and "secret" not in failed.text
        wrong = await client.call_tool("b_add", {"a": "x"})
        assert wrong.is_error
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ResourceNotFound):
            await client.read_resource("note://nowhere")
        with pytest.raises(ProtocolError, match="brief"):
            await client.get_prompt("b_brief", {})


@pytest.mark.covers("GW-3.4")
@pytest.mark.pairwise
@CELLS
async def test_forms_cross(front: str, back: str, near: Any, far: str) -> None:
    async with (
        gateway_before(everything(), far, back) as gateway,
        testing.connect(gateway, revision=front, over=near, elicit=yes) as (client, _),
    ):
        assert await client.call_tool("b_book", returns=str) == "True True"


@pytest.mark.covers("GW-3.7", "GW-11.1")
@pytest.mark.pairwise
@CELLS
async def test_a_model_with_tools_is_asked_with_its_tools(front: str, back: str, near: Any, far: str) -> None:
    if "2025-06-18" in (front, back):
        return  # Sampling has no tools there.
    server = Server("back")

    @server.tool
    async def think(ctx: Context) -> str:
        weather = t.Tool(name="weather", input_schema={"type": "object"})
        answer = await ctx.sample("How is it?", tools=[weather], tool_choice="required")
        return str(answer.text)

    asked: list[t.CreateMessageRequestParams] = []

    async def model(params: t.CreateMessageRequestParams) -> str:
        asked.append(params)
        return "fine"

    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, revision=front, over=near, sample=Sampling(model, tools=True)) as (client, _),
    ):
        assert await client.call_tool("b_think", returns=str) == "fine"
    assert [tool.name for tool in asked[0].tools or []] == ["weather"]
    assert asked[0].tool_choice == t.ToolChoice(mode="required")


@pytest.mark.covers("GW-3.4")
@pytest.mark.pairwise
@CELLS
async def test_two_questions_at_once_are_asked_together(front: str, back: str, near: Any, far: str) -> None:
    server = Server("back")

    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await asyncio.gather(ctx.elicit("One?", bool), ctx.elicit("Two?", bool))
        return f"{one.data} {two.data}"

    waiting = 0
    together = asyncio.Event()

    async def answer(message: str, params: Any) -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            together.set()
        await together.wait()
        return {"value": True}

    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, revision=front, over=near, elicit=answer) as (client, _),
    ):
        assert await client.call_tool("b_both", returns=str) == "True True"


@pytest.mark.covers("GW-3.13")
@pytest.mark.pairwise
@CELLS
async def test_a_cancelled_call_is_cancelled_at_the_server(front: str, back: str, near: Any, far: str) -> None:
    server = Server("back")
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, revision=front, over=near) as (client, _),
    ):
        call = asyncio.ensure_future(client.call_tool("b_wait"))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        await cancelled.wait()


@pytest.mark.pairwise
@pytest.mark.covers("GW-3.3", "GW-3.12", "GW-3.22")
@pytest.mark.parametrize("far", OVER)
@pytest.mark.parametrize("back", REVISIONS)
@pytest.mark.parametrize("front", REVISIONS)
async def test_meta_of_a_request_crosses_but_for_what_describes_the_connection(front: str, back: str, far: str) -> None:
    recorded = Recorded()
    async with (
        gateway_before(everything(), far, back, recorded) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2}, meta={"com.example/note": {"x": [1.50]}})
        meta = recorded.sent("tools/call")[0]["params"]["_meta"]
    assert meta["com.example/note"] == {"x": [1.5]}
    assert meta[HOPS_KEY] == 1
    assert "progressToken" not in meta
    if back == MODERN:
        assert meta[t.PROTOCOL_VERSION_KEY] == MODERN
        assert meta[t.CLIENT_INFO_KEY]["name"] == "toolwire"
        assert CLIENT_KEY not in meta
    else:
        assert t.MODERN_META_KEYS.isdisjoint(meta)
        assert meta[CLIENT_KEY]["name"] == "toolwire"


@pytest.mark.covers("GW-1.4")
@cases("back", REVISIONS)
@cases("front", REVISIONS)
async def test_a_steady_call_is_one_request_to_the_server(front: str, back: str) -> None:
    recorded = Recorded()
    async with (
        gateway_before(everything(), "http", back, recorded) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2})
        before = len(recorded.sent())
        for _ in range(5):
            await client.call_tool("b_add", {"a": 1, "b": 2})
        assert len(recorded.sent()) - before == 5


@pytest.mark.parametrize("far", OVER)
@pytest.mark.parametrize("near", OVER)
async def test_a_plain_request_leads_to_the_same_messages_as_any_other(
    near: Any, far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for longest in (2048, 0):
        # With 0 no `_meta` is remembered, so that no request is plain.
        monkeypatch.setattr(sent_request, "SHORT_META", longest)
        said.append(await _said_to_modern_server(near, far))
    assert said[0] == said[1]


async def _said_to_modern_server(near: Any, far: str) -> list[Any]:
    """Make requests of every kind twice. Return the params that the server got, and what the client got."""
    recorded, got = Recorded(), []
    server = everything()

    @server.tool
    async def region(at: Annotated[str, Header("Region")], ctx: Context) -> list[str]:
        return sorted(f"{name}: {value}" for name, value in (ctx.headers or {}).items() if name.startswith("mcp-param"))

    async with (
        gateway_before(server, far, MODERN, recorded) as gateway,
        testing.connect(gateway, revision=MODERN, over=near, elicit=yes, on_log=got.append) as (client, _),
    ):
        await client.list_tools()
        for _ in range(2):
            got.append(await client.call_tool("b_add", {"a": 1, "b": 2}, returns=int))
            got.append((await client.call_tool("b_add", {"a": "x"})).text)
            got.append((await client.call_tool("b_region", {"at": "north"})).text)
            got.append((await client.call_tool("b_book")).text)
            got.append((await client.read_resource("note://monday/9"))[0].text)
            got.append((await client.get_prompt("b_brief", {"city": "Oslo"})).messages[0].content)
            got.append((await client.complete(t.PromptReference(name="b_brief"), ("city", "Os"))).values)
            await client.call_tool("b_steps", on_progress=lambda each: got.append((each.progress, each.message)))
            with pytest.raises(ResourceNotFound):
                await client.read_resource("note://nowhere")
        await client.set_level("warning")
        got += [(await client.call_tool("b_talk")).text for _ in range(2)]
    sent = [message["params"] for message in recorded.sent()]
    # A state is sealed anew each time.
    return [got, [{**params, "requestState": "requestState" in params} for params in sent]]


@pytest.mark.covers("GW-3.21")
@cases("back", REVISIONS)
async def test_conversations_with_a_legacy_server_are_kept_apart(back: str) -> None:
    server = Server("back")

    @server.tool
    async def session(ctx: Context) -> str:
        return str(ctx.session_id)

    async with (
        gateway_before(server, "http", back) as gateway,
        testing.connect(gateway, revision="2025-11-25") as (one, _),
        testing.connect(gateway, revision="2025-11-25") as (two, _),
    ):
        first = {await one.call_tool("b_session", returns=str) for _ in range(2)}
        second = {await two.call_tool("b_session", returns=str) for _ in range(2)}
    if back != MODERN:
        assert len(first) == len(second) == 1 and first != second


@cases("back", ["2025-11-25", "2025-06-18"])
@cases("front", ["2025-11-25", "2025-06-18"])
async def test_a_client_comes_back_later_if_the_server_wants_that(front: str, back: str) -> None:
    """2025-11-25 basic/transports: the server closes the stream of a call, and the client resumes it."""
    gate = Gate()
    async with gateway_before(make_server(gate), "http", back) as gateway, serving(gateway.http_app()) as [client]:
        await client.initialize(front)
        call = client.start_call("b_poll", id=3)
        if front == back == "2025-11-25":
            await call.finished()
            assert (call.messages, call.retry) == ([], 70)
            following = await client.get({"last-event-id": call.last_event_id})
        else:
            # One of the two sides does not know streams that end early.
            await gate.reached.wait()
            following = call
        gate.opened.set()
        await following.finished()
        assert text_of(following.answer()) == "polled"


async def test_members_that_are_null_count_as_absent() -> None:
    """Several libraries write null for a member that is not there."""
    async with gateway_before(everything(), "memory", None) as gateway, serving(gateway.http_app()) as [client]:
        await client.initialize("2025-11-25")
        call = client.start_call("b_add", {"a": 1, "b": 2}, id=3, _meta=None)
        await call.finished()
        assert text_of(call.answer()) == "3"


@pytest.mark.covers("GW-11.15")
async def test_a_circle_of_gateways_is_refused() -> None:
    async with (
        gateway_before(everything(), "memory", None) as gateway,
        testing.connect(gateway) as (client, _),
    ):
        assert not (await client.call_tool("b_add", {"a": 1, "b": 2}, meta={HOPS_KEY: 7})).is_error
        with pytest.raises(ProtocolError, match="8 gateways"):
            await client.call_tool("b_add", {"a": 1, "b": 2}, meta={HOPS_KEY: 8})


@pytest.mark.covers("GW-4.8")
async def test_the_state_of_a_server_crosses_byte_for_byte_and_is_bound_to_its_request() -> None:
    recorded = Recorded()
    async with (
        gateway_before(everything(), "memory", MODERN, recorded) as gateway,
        testing.connect(gateway, elicit=yes) as (client, wire),
    ):
        assert await client.call_tool("b_book", returns=str) == "True True"
        asked = next(each for each in wire.received if each.get("result", {}).get("resultType") == "input_required")
        own = next(
            message["result"]["requestState"]
            for direction, message in recorded.messages
            if direction == "←" and message.get("result", {}).get("resultType") == "input_required"
        )
        wrapped = asked["result"]["requestState"]
        assert wrapped != own
        assert recorded.sent("tools/call")[1]["params"]["requestState"] == own
        with pytest.raises(ProtocolError, match="requestState"):
            await client.request("tools/call", {"name": "b_add", "arguments": {}, "requestState": wrapped})
        with pytest.raises(ProtocolError, match="requestState"):
            await client.request("tools/call", {"name": "b_book", "arguments": {}, "requestState": wrapped + "x"})


@pytest.mark.covers("GW-4.8")
@cases("size", [10, 40_000, 200_000])
async def test_a_long_state_of_a_server_crosses_byte_for_byte(size: int) -> None:
    states: list[Any] = []
    question = {"method": "elicitation/create", "params": {"message": "?", "mode": "form", "requestedSchema": FORM}}

    def answer(request: Any, outlet: Any) -> Any:
        states.append(request.params.request_state)
        if len(states) == 2:
            return Raw(b'{"resultType":"complete","content":[]}')
        asked = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "é" * size}
        return Raw(msgspec.json.encode(asked))

    tool = {"name": "run", "inputSchema": {"type": "object"}}
    page = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    server = FakeServer(
        {"tools/list": lambda request, outlet: Raw(msgspec.json.encode(page)), "tools/call": answer},
        capabilities={"tools": {}},
    )
    gateway = Gateway("front")
    gateway.add("b", server, revision=MODERN)
    async with testing.connect(gateway, elicit=yes) as (client, _):
        result = await client.call_tool("b_run")
        if size == 200_000:
            assert result.is_error and "too long" in result.text
        else:
            assert not result.is_error
            assert states[1] == "é" * size


FORM = {"type": "object", "properties": {"value": {"type": "boolean"}}}


@pytest.mark.covers("GW-3.22")
@cases("reads", [False, True], ids=["raw", "read"])
@cases("front", REVISIONS)
async def test_members_that_nobody_knows_cross_in_results(front: str, reads: bool) -> None:
    """`reads`: a middleware looks at results, so that they are decoded on the way."""
    server = Server("back")

    @server.tool
    async def odd() -> Any:
        return t.decode(
            t.CallToolResult,
            b'{"content":[{"type":"text","text":"x","_meta":{"com.example/a":1.10},"new":[1e2]}],'
            b'"_meta":{"com.example/b":2.50},"isError":false,"future":{"x":1.0}}',
        )

    async with gateway_before(server, "memory", front) as gateway:
        if reads:

            async def look(ctx: Any, call_next: Any) -> Any:
                return await call_next(ctx)

            gateway.use(look)
        raws: list[bytes] = []
        client = Client(gateway, revision=front, on_message=lambda way, data: raws.append(data) if way == "←" else None)
        async with client:
            await client.call_tool("b_odd")
        answer = next(each for each in raws if b'"future"' in each)
        for part in (b'"future":{"x":1.0}', b'"com.example/b":2.50', b'"com.example/a":1.10', b'"new":[1e2]'):
            assert part in answer, part
        assert answer.count(b'"front"') == (1 if front == MODERN else 0)
        assert b'"back"' not in answer


@pytest.mark.covers("GW-3.11")
@pytest.mark.pairwise
@CELLS
async def test_questions_progress_and_logs_of_many_clients_never_cross(
    front: str, back: str, near: Any, far: str
) -> None:
    server = Server("back")
    everyone = asyncio.Barrier(8)

    @server.tool
    async def who(ctx: Context, name: str) -> str:
        await everyone.wait()  # All calls are in flight now.
        await ctx.progress(1, message=f"progress of {name}")
        await ctx.info(f"log of {name}")
        answer = await ctx.elicit(f"Are you {name}?", str)
        return f"{name} is {answer.data}"

    async def one(gateway: Any, name: str) -> None:
        heard: list[str] = []

        async def answer(message: str, params: Any) -> dict[str, Any]:
            assert message == f"Are you {name}?"
            await asyncio.sleep(0)
            return {"value": name}

        async with testing.connect(
            gateway,
            revision=front,
            over=near,
            elicit=answer,
            on_log=lambda each: heard.append(each.data),
        ) as (client, _):
            result = await client.call_tool(
                "b_who", {"name": name}, on_progress=lambda each: heard.append(str(each.message))
            )
            assert result.text == f"{name} is {name}"
        assert set(heard) <= {f"progress of {name}", f"log of {name}"}
        assert f"progress of {name}" in heard

    async with gateway_before(server, far, back) as gateway, testing.connect(gateway):
        names = [f"client{number}" for number in range(8)]
        async with asyncio.timeout(60):
            await asyncio.gather(*(one(gateway, name) for name in names))


async def test_one_caller_leaves_connections_of_a_legacy_server_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_connections, "MAX_CONVERSATIONS", 4)
    server, go, begun = Server("back"), asyncio.Event(), asyncio.Semaphore(0)

    @server.tool
    async def hold() -> str:
        begun.release()
        await go.wait()
        return "held"

    async with (
        gateway_before(server, "memory", "2025-11-25") as gateway,
        open_to(gateway, "2025-11-25", "http") as join,
        AsyncExitStack() as stack,
    ):
        # Each session is a conversation of its own.
        sessions = [await stack.enter_async_context(join(principal=Principal("ann"))) for _ in range(4)]
        calls = [session.start("tools/call", {"name": "b_hold"}) for session in sessions[:3]]
        for _ in calls:
            await begun.acquire()
        refused = await sessions[3].result("tools/call", {"name": "b_hold"})
        assert refused["isError"] and "try again later" in str(refused)
        bob = await stack.enter_async_context(join(principal=Principal("bob")))
        calls.append(bob.start("tools/call", {"name": "b_hold"}))
        await begun.acquire()
        go.set()
        for call in calls:
            assert "held" in str(await call)


async def test_one_client_does_not_take_all_connections_of_a_legacy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call with other capabilities needs a connection of its own, and a command behind it a process."""
    monkeypatch.setattr(back_connections, "MAX_CONVERSATIONS", 3)
    monkeypatch.setattr(back_connections, "MAX_CONVERSATIONS_OF_ONE", 2)
    server, go, begun = Server("back"), asyncio.Event(), asyncio.Semaphore(0)

    @server.tool
    async def hold() -> str:
        begun.release()
        await go.wait()
        return "held"

    def params(number: int) -> dict[str, Any]:
        return {"name": "b_hold", "_meta": modern_meta({"experimental": {"number": {"is": number}}})}

    async with (
        gateway_before(server, "memory", "2025-11-25") as gateway,
        open_to(gateway, MODERN, "http") as join,
        join(principal=Principal("ann")) as ann,
        join(principal=Principal("bob")) as bob,
    ):
        calls = [ann.start("tools/call", params(number)) for number in range(2)]
        for _ in calls:
            await begun.acquire()
        refused = await ann.result("tools/call", params(2))
        assert refused["isError"] and "try again later" in str(refused)
        calls.append(bob.start("tools/call", params(0)))
        await begun.acquire()
        go.set()
        for call in calls:
            assert "held" in str(await call)
        # Those that nobody uses any more make room.
        assert "held" in str(await ann.result("tools/call", params(3)))
