"""Questions that a client did not declare to answer stop at the gateway, in every pair of eras."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.client.fake import text as said
from tests.gateway.backs import OVER, REVISIONS, gateway_before
from tests.patience import patience
from tests.server.tasks.talking import DIALECTS, begin, outcome, talk, text_in
from tests.wireclient import connect

from toolwire import Context, Limits, Server, testing
from toolwire.client import Accept, Elicitation, Sampling
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.server.input_requests import Refused

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

FORM: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
TURN = t.SamplingMessage(role="user", content=t.TextContent(text="How is it?"))
#: The method and the params of each question, and the capability that it needs.
QUESTIONS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "form": (
        "elicitation/create",
        t.ElicitRequestParams(mode="form", message="Sure?", requested_schema=FORM),
        {"elicitation": {"form": {}}},
    ),
    "url": (
        "elicitation/create",
        t.ElicitRequestParams(mode="url", message="Sign in", url="https://example.com/in", elicitation_id="7"),
        {"elicitation": {"url": {}}},
    ),
    "sampling": (
        "sampling/createMessage",
        t.CreateMessageRequestParams(messages=[TURN], max_tokens=10),
        {"sampling": {}},
    ),
    "tools": (
        "sampling/createMessage",
        t.CreateMessageRequestParams(
            messages=[TURN], max_tokens=10, tools=[t.Tool(name="weather", input_schema={"type": "object"})]
        ),
        {"sampling": {"tools": {}}},
    ),
    "roots": ("roots/list", None, {"roots": {}}),
}
#: A server of 2025-06-18 has no words for URLs and tools.
CELLS = [
    (front, back, kind)
    for front in REVISIONS
    for back in REVISIONS
    for kind in QUESTIONS
    if back != "2025-06-18" or kind not in ("url", "tools")
]
ASKING = ("elicitation/create", "sampling/createMessage", "roots/list")


def asking() -> Server:
    """Make a server that asks whatever its client declared."""
    server = Server("back")

    @server.tool
    async def ask(ctx: Context, kind: str) -> str:
        method, params, _ = QUESTIONS[kind]
        return bytes(await ctx._call.ask(method, params, None, None, False)).decode()  # type: ignore[arg-type]

    @server.tool
    async def cope(ctx: Context, kind: str) -> str:
        method, params, _ = QUESTIONS[kind]
        try:
            await ctx._call.ask(method, params, None, None, False)  # type: ignore[arg-type]
        except Refused as refusal:
            return f"refused with {refusal.code}"
        return "answered"

    @server.tool
    async def think_of_here(ctx: Context) -> str:
        params = t.CreateMessageRequestParams(messages=[TURN], max_tokens=10, include_context="thisServer")
        return bytes(await ctx._call.ask("sampling/createMessage", params, None, None, False)).decode()

    return server


def all_but(kind: str, asked: list[Any]) -> dict[str, Any]:
    """Return the callbacks of a client that declares everything but one capability."""

    def note(*given: Any) -> Any:
        asked.append(given)
        return Accept({}) if len(given) == 2 else "answered"

    declared: dict[str, Any] = {"roots": ["file:///work"]}
    declared["elicit"] = Elicitation(form=None if kind == "form" else note, url=None if kind == "url" else note)
    declared["sample"] = Sampling(note, tools=kind != "tools")
    for name in {"sampling": ["sample"], "roots": ["roots"]}.get(kind, []):
        del declared[name]
    return declared


def questions_in(wire: Any) -> list[str]:
    """Return the questions that reached the client, in either era."""
    asked = [each["method"] for each in wire.received if each.get("method") in ASKING]
    for each in wire.received:
        inner = (each.get("result") or {}).get("inputRequests") or {}
        asked += [question["method"] for question in inner.values()]
    return asked


@pytest.mark.slow
@pytest.mark.covers("GW-3.2")
@cases("far", OVER)
@cases(("front", "back", "kind"), CELLS)
async def test_an_undeclared_question_never_reaches_the_client(front: str, back: str, kind: str, far: str) -> None:
    asked: list[Any] = []
    async with (
        gateway_before(asking(), far, back) as gateway,
        testing.connect(gateway, revision=front, **all_but(kind, asked)) as (client, wire),
    ):
        if front == MODERN:
            with pytest.raises(ProtocolError, match="The client does not support") as caught:
                await client.call_tool("b_ask", {"kind": kind})
            assert caught.value.code == -32021
            assert caught.value.data == {"requiredCapabilities": QUESTIONS[kind][2]}
        else:
            result = await client.call_tool("b_ask", {"kind": kind})
            assert result.is_error
            assert "The client does not support" in result.text
        assert not asked
        assert not questions_in(wire)


@pytest.mark.covers("GW-3.2")
@cases(("front", "back", "kind"), [cell for cell in CELLS if cell[1] != MODERN])
async def test_a_legacy_server_gets_the_error_of_its_revision_and_may_go_on(front: str, back: str, kind: str) -> None:
    asked: list[Any] = []
    async with (
        gateway_before(asking(), "memory", back) as gateway,
        testing.connect(gateway, revision=front, **all_but(kind, asked)) as (client, _),
    ):
        said = (await client.call_tool("b_cope", {"kind": kind})).text
    is_whole = kind in ("sampling", "roots") or (kind == "form" and front == "2025-06-18")
    assert said == f"refused with {-32601 if is_whole else -32602}"
    assert not asked


@cases("back", REVISIONS)
@cases("front", REVISIONS)
async def test_included_context_is_left_out_for_a_client_that_did_not_declare_it(front: str, back: str) -> None:
    async def answer(params: t.CreateMessageRequestParams) -> str:
        return str(params.include_context)

    async with gateway_before(asking(), "memory", back) as gateway:
        for knows in (False, True):
            async with testing.connect(gateway, revision=front, sample=Sampling(answer, context=knows)) as (client, _):
                text = (await client.call_tool("b_think_of_here")).text
            # 2025-06-18 has no capability for it, so that every client may get it.
            assert ("thisServer" in text) == (knows or front == "2025-06-18")


@cases("far", OVER)
async def test_a_later_round_may_declare_less(far: str) -> None:
    """META-6: what the client declared in its first request says nothing about the second."""
    server = Server("back")

    @server.tool
    async def twice(ctx: Context) -> str:
        method, params, _ = QUESTIONS["form"]
        for _ in range(2):
            await ctx._call.ask(method, params, None, None, False)  # type: ignore[arg-type]
        return "done"

    async with gateway_before(server, far, "2025-11-25") as gateway, talk(gateway, MODERN) as client:
        first = await client.result("tools/call", {"name": "b_twice", "arguments": {}})
        (key,) = first["inputRequests"]
        client.capabilities = {}
        answers = {"requestState": first["requestState"], "inputResponses": {key: {"action": "decline"}}}
        error = await client.error("tools/call", {"name": "b_twice", "arguments": {}, **answers})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})


@pytest.mark.covers("GW-3.15")
@cases("far", OVER)
@cases("back", DIALECTS)
@cases("front", DIALECTS)
async def test_an_undeclared_question_of_a_task_never_reaches_the_client(front: str, back: str, far: str) -> None:
    server = Server("back", limits=Limits(task_window=0.0, task_poll=0.02, drain=0.1))

    @server.tool(task="required")
    async def sign(ctx: Context) -> str:
        method, params, _ = QUESTIONS["url"]
        return bytes(await ctx._call.ask(method, params, None, None, False)).decode()  # type: ignore[arg-type]

    async with gateway_before(server, far, back) as gateway, talk(gateway, front) as client:
        task = await begin(client, "b_sign")
        if back == MODERN:
            # Only the client gets an error: the extension has no answer that says why there is none.
            if front == MODERN:
                error: Any = None
                async with patience("the refusal"):
                    while error is None:
                        error = (await client.request("tasks/get", {"taskId": task})).get("error")
                assert error["code"] == -32021
                assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
            else:
                # The extension has no refusals: a user who was not asked has cancelled.
                assert "cancel" in text_in(await outcome(client, task))
        else:
            end = await outcome(client, task)
            assert end["isError"]
            assert "URL elicitation" in text_in(end)
        assert not client.requests
        assert not [each for each in client.received if (each.get("result") or {}).get("inputRequests")]


@cases("back", REVISIONS[1:])
@cases("front", REVISIONS[1:])
async def test_the_refusal_of_a_client_reaches_a_legacy_server_as_it_is(front: str, back: str) -> None:
    server = Server("back")

    @server.tool
    async def think(ctx: Context) -> str:
        try:
            await ctx.sample("How is it?")
        except Refused as refusal:
            assert refusal.error is not None
            return f"{refusal.error.code} {refusal.error.message} {refusal.error.data}"
        return "answered"

    def refuse(params: Any) -> str:
        raise ProtocolError(-1, "User rejected sampling request", {"why": "because"})

    async with (
        gateway_before(server, "memory", back) as gateway,
        testing.connect(gateway, revision=front, sample=refuse) as (client, _),
    ):
        said = (await client.call_tool("b_think")).text
    assert said == "-1 User rejected sampling request {'why': 'because'}"


#: Questions that no revision knows, by what they are: their method and their params.
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown": ("x/evil", {}),
    "of a client": ("tools/call", {"name": "good_x"}),
    "ping": ("ping", {}),
    "case": ("sampling/createmessage", {"messages": [], "maxTokens": 1}),
    "mode": ("elicitation/create", {"mode": "weird", "message": "m", "requestedSchema": FORM}),
    "mode of a page": (
        "elicitation/create",
        {"mode": "URL", "message": "m", "url": "https://x.example", "elicitationId": "1"},
    ),
    "mode below": ("elicitation/create", {"mode": "form.x", "message": "m", "requestedSchema": FORM}),
}
DECLARED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "forms": {"elicitation": {"form": {}}, "sampling": {}},
    "another extension": {"elicitation": {}, "extensions": {"org.example/other": {}}},
    "what we know": {"elicitation": {}, "extensions": {t.TASKS_EXTENSION: {}, UI_EXTENSION: {}}},
}


def odd(method: str, params: dict[str, Any]) -> FakeServer:
    """Make a server that asks this, and says what it got in place of an answer."""
    question = {"method": method, "params": params}

    async def call(request: Any, outlet: Any) -> Any:
        if request.revision == MODERN:
            return Raw(msgspec.json.encode({"resultType": "input_required", "inputRequests": {"k": question}}))
        try:
            await outlet.request(method, Raw(msgspec.json.encode(params)), timeout=10)
        except ProtocolError as error:
            return said(str(error.code))
        return said("answered")

    listed = t.ListToolsResult(tools=[t.Tool("ask", {"type": "object"})], ttl_ms=0, cache_scope="private")
    return FakeServer(
        {"tools/list": lambda request, outlet: listed, "tools/call": call},
        capabilities={"tools": {}, "extensions": {"org.evil/x": {}, t.TASKS_EXTENSION: {}}},
    )


@cases("kind", ODD)
@cases("declared", DECLARED)
@cases("back", [MODERN, "2025-11-25"])
@cases("front", [MODERN, "2025-11-25"])
async def test_question_that_no_revision_knows_never_reaches_a_client_that_did_not_declare_it(
    front: str, back: str, declared: str, kind: str
) -> None:
    gateway = Gateway("front").add("b", cast("Server", odd(*ODD[kind])), revision=back)
    async with connect(gateway) as client:
        await client.open(front, DECLARED[declared])
        answer = await client.request("tools/call", {"name": "b_ask", "arguments": {}})
        assert not [each for each in client.requests if each["method"] == ODD[kind][0]]
        assert not [each for each in client.received if "inputRequests" in (each.get("result") or {})]
        if back == MODERN:
            assert "error" in answer or answer["result"]["isError"]
        elif kind != "ping":  # The gateway answers that by itself.
            assert answer["result"]["content"][0]["text"] in ("-32601", "-32602")


@cases("back", [MODERN, "2025-11-25"])
async def test_question_of_an_extension_reaches_a_client_that_declares_it(back: str) -> None:
    gateway = Gateway("front").add("b", cast("Server", odd("x/evil", {"a": 1})), revision=back)
    async with connect(gateway) as client:
        await client.open(back, {"extensions": {"org.evil/x": {}}})
        client.answers["x/evil"] = lambda params: {"found": params["a"]}
        answer = await client.result("tools/call", {"name": "b_ask", "arguments": {}})
        if back == MODERN:
            assert answer["inputRequests"] == {"k": {"method": "x/evil", "params": {"a": 1}}}
        else:
            assert answer["content"][0]["text"] == "answered"


async def test_mode_of_elicitation_that_no_revision_knows_reaches_a_client_that_declares_it() -> None:
    gateway = Gateway("front").add("b", cast("Server", odd(*ODD["mode"])), revision=MODERN)
    async with connect(gateway) as client:
        await client.open(MODERN, {"elicitation": {"weird": {}}})
        answer = await client.result("tools/call", {"name": "b_ask", "arguments": {}})
        assert answer["inputRequests"]["k"]["params"]["mode"] == "weird"
        await client.open(MODERN, {"elicitation": {}})
        error = await client.error("tools/call", {"name": "b_ask", "arguments": {}})
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"weird": {}}}}
