"""Extensions on the client's side: what it declares, requests and notifications of any method."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.client.json_server import JsonServer
from tests.client.scripted_http import Script, on, result, stream

from toolwire import Client, Server, testing, types
from toolwire.audit import AuditLog
from toolwire.client import Budget, BudgetExceeded, Denied, InvalidResponse, Pins, ToolCall, ToolChanged
from toolwire.client.sync import Client as BlockingClient
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Timeout

NOTES = "com.example/notes"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = cases("revision", [LEGACY, MODERN])


def notes(revision: str = MODERN, **answers: Any) -> JsonServer:
    found = {"notes/search": lambda params: {"found": [params["words"]], "resultType": "complete"}}
    return JsonServer(
        found | {name.replace("_", "/"): answer for name, answer in answers.items()},
        revision=revision,
        extensions={NOTES: {"revision": "1"}},
    )


@dataclass
class Found:
    found: list[str]


class FoundStruct(msgspec.Struct, forbid_unknown_fields=True):
    found: list[str]


class FoundModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    found: list[str]


class FoundResult(types.Result, kw_only=True):
    found: list[str]


# --- declaring ---


@pytest.mark.covers("EXC-1")
@cases("revision", types.REVISIONS)
async def test_a_client_declares_its_extensions_on_every_revision_that_can_carry_them(revision: str) -> None:
    server = FakeServer({"tools/list": lambda request, outlet: t.ListToolsResult(tools=[])})
    declared = {NOTES: {"revision": "2", "deep": {"a": [1]}}}
    async with testing.connect(server, revision=revision, extensions=declared) as (client, wire):
        await client.list_tools()
    first, last = wire.sent[0]["params"], wire.sent[-1]["params"]
    if revision == MODERN:
        for params in (first, last):
            capabilities = params["_meta"][t.CLIENT_CAPABILITIES_KEY]
            assert capabilities == {"extensions": {t.TASKS_EXTENSION: {}, **declared}}
    elif revision == LEGACY:
        assert first["capabilities"] == {"extensions": declared}
    else:
        assert first["capabilities"] == {}


@pytest.mark.covers("EXC-1")
@cases(
    ("extensions", "error", "said"),
    [
        ({"notes": {}}, ValueError, "'notes' is not an extension name: use a domain in reverse, a slash and a name"),
        ({"com.example/": {}}, ValueError, "is not an extension name"),
        ({"com.example/a b": {}}, ValueError, "is not an extension name"),
        ({1: {}}, ValueError, "1 is not an extension name"),
        ({NOTES: None}, TypeError, "the settings of com.example/notes are a mapping, {} if there are none, not None"),
        ({NOTES: {"a": object()}}, ValueError, "The settings of com.example/notes cannot be written as JSON"),
        ([NOTES], TypeError, "extensions= is a mapping of names to settings, not list"),
    ],
)
def test_what_cannot_be_declared_is_refused_at_once(extensions: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        Client(Server("s"), extensions=extensions)
    assert said in str(caught.value)


async def test_settings_are_those_of_the_time_of_declaring() -> None:
    settings = {"level": 1}
    async with testing.connect(FakeServer(), extensions={NOTES: settings}) as (client, wire):
        settings["level"] = 2
        await client.ping()
    declared = [message["params"]["_meta"][t.CLIENT_CAPABILITIES_KEY]["extensions"][NOTES] for message in wire.sent]
    assert declared == [{"level": 1}, {"level": 1}]


async def test_the_settings_of_the_tasks_extension_can_be_chosen() -> None:
    async with testing.connect(FakeServer(), extensions={t.TASKS_EXTENSION: {"x": 1}}) as (_, wire):
        meta = wire.sent[0]["params"]["_meta"]
    assert meta[t.CLIENT_CAPABILITIES_KEY] == {"extensions": {t.TASKS_EXTENSION: {"x": 1}}}


# --- requests ---


@ERAS
async def test_a_request_of_any_method_is_sent_and_its_result_comes_back_whole(revision: str) -> None:
    answer = {"found": ["milk"], "odd": {"a": 1.5}, "_meta": {"com.example/x": [None]}, "resultType": "complete"}
    server = notes(revision, notes_get=lambda params: answer)
    async with Client(server) as client:
        assert await client.request("notes/get", {"id": 7, "_meta": {"a.b/c": 1}}, meta={"a.b/d": 2}) == answer
    (params,) = server.params("notes/get")
    assert params["id"] == 7
    assert (params["_meta"]["a.b/c"], params["_meta"]["a.b/d"]) == (1, 2)


@ERAS
@pytest.mark.parametrize("returns", [Found, FoundStruct, FoundModel, FoundResult, dict[str, Any], dict])
async def test_results_have_the_wanted_type(revision: str, returns: Any) -> None:
    async with Client(notes(revision)) as client:
        value = await client.request("notes/search", {"words": "milk"}, returns=returns)
    assert (value["found"] if isinstance(value, dict) else value.found) == ["milk"]


async def test_a_wire_type_keeps_what_it_does_not_know() -> None:
    answer = {"resultType": "complete", "found": [], "odd": {"a": 1}, "_meta": {"x": 1}}
    async with Client(notes(notes_get=lambda params: answer)) as client:
        value = await client.request("notes/get", returns=FoundResult)
    assert value.extra == {"odd": {"a": 1}}
    assert msgspec.json.decode(types.encode(value)) == answer


@cases("params", [Found(["a"]), FoundStruct(["a"]), FoundModel(found=["a"]), {"found": ["a"]}])
async def test_params_are_anything_that_is_an_object(params: Any) -> None:
    server = notes(notes_put=lambda params: {})
    async with Client(server) as client:
        await client.request("notes/put", params)
    assert server.params("notes/put")[0]["found"] == ["a"]


@cases("params", [[1], "text", 3, {"_meta": 3}])
async def test_params_that_are_no_object_are_not_sent(params: Any) -> None:
    server = notes()
    async with Client(server) as client:
        with pytest.raises(TypeError):
            await client.request("notes/search", params)
    assert server.params("notes/search") == []


@ERAS
async def test_a_result_of_another_type_is_an_invalid_answer(revision: str) -> None:
    async with Client(notes(revision, notes_get=lambda params: {"found": 3})) as client:
        with pytest.raises(InvalidResponse, match='The server\'s answer to notes/get is no Found: Value "found"'):
            await client.request("notes/get", returns=Found)


@pytest.mark.covers("EXC-2")
@cases("answer", [{"resultType": "partial"}, {"resultType": 3}, [1], "text", None])
async def test_an_unknown_kind_of_result_is_an_invalid_answer(answer: Any) -> None:
    async with Client(notes(notes_get=lambda params: answer)) as client:
        with pytest.raises(InvalidResponse):
            await client.request("notes/get")


async def test_an_extension_may_have_kinds_of_results() -> None:
    answer = {"resultType": "partial", "found": []}
    async with Client(notes(notes_get=lambda params: answer)) as client:
        assert await client.request("notes/get", result_types=["partial"]) == answer


@ERAS
async def test_errors_of_the_server_are_raised(revision: str) -> None:
    def refuse(params: Any) -> None:
        raise ProtocolError(-32050, "no notes today")

    async with Client(notes(revision, notes_get=refuse)) as client:
        with pytest.raises(ProtocolError, match="no notes today") as caught:
            await client.request("notes/get")
        assert caught.value.code == -32050
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("notes/unheard")


@pytest.mark.covers("EXC-2")
@ERAS
@pytest.mark.parametrize("missing", ["com.example/other", "com.example/note"])
async def test_a_method_of_an_extension_that_the_server_lacks_is_not_sent(revision: str, missing: str) -> None:
    server = notes(revision)
    async with Client(server) as client:
        await client.request("notes/search", {"words": "a"}, extension=NOTES)
        before = len(server.received)
        with pytest.raises(NotSupported) as caught:
            await client.request("other/get", extension=missing)
        assert str(caught.value) == f"The server did not declare the extension {missing}, which other/get belongs to"
        with pytest.raises(NotSupported):
            await client.notify("notifications/other", extension=missing)
        with pytest.raises(ValueError, match="'other' is not an extension name"):
            await client.request("other/get", extension="other")
        assert len(server.received) == before


@ERAS
@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("initialize", "initialize belongs to the connection: connect() sends it"),
        ("server/discover", "use client.capabilities"),
        ("subscriptions/listen", "use client.listen()"),
        ("resources/subscribe", "use client.subscribe()"),
        ("resources/unsubscribe", "use client.unsubscribe()"),
        ("logging/setLevel", "use client.set_level()"),
        ("sampling/createMessage", "sampling/createMessage is sent by servers, not by clients"),
        ("notifications/notes/changed", "notifications/notes/changed is no request: use client.notify()"),
        ("notifications/cancelled", "cancel the task that awaits the request"),
        ("Tools/Call", "The protocol spells 'Tools/Call' as 'tools/call'"),
        ("tools//call", "The protocol spells 'tools//call' as 'tools/call'"),
        ("/tools/call/", "The protocol spells '/tools/call/' as 'tools/call'"),
        ("tools/call ", "'tools/call ' is not the name of a method"),
        ("tools/call\n", "is not the name of a method"),
        ("tооls/call", "is not the name of a method"),  # Letters of another alphabet.
        ("", "'' is not the name of a method"),
        ("a" * 300, "is not the name of a method"),
        (3, "3 is not the name of a method"),
    ],
)
async def test_what_is_no_request_of_a_program_is_refused_with_the_way_to_do_it(
    revision: str, method: Any, said: str
) -> None:
    server = notes(revision)
    async with Client(server, revision=revision) as client:
        before = len(server.received)
        with pytest.raises(ValueError) as caught:
            await client.request(method)
        assert said in str(caught.value)
        assert len(server.received) == before


@ERAS
@pytest.mark.parametrize("safe", [True, False])
async def test_a_method_of_the_protocol_is_sent_whatever_the_server_declared(revision: str, safe: bool) -> None:
    server = notes(revision, prompts_list=lambda params: {"prompts": []}, tools_call=lambda params: {"content": []})
    server.capabilities.clear()
    async with Client(server, budget=Budget(calls=1) if safe else None) as client:
        assert (await client.request("prompts/list"))["prompts"] == []
        assert (await client.request("tools/call", {"name": "a"}))["content"] == []
        with pytest.raises(NotSupported, match="capability 'prompts'"):
            await client.list_prompts()


@ERAS
async def test_an_answer_of_the_cache_is_never_that_of_a_request(revision: str) -> None:
    listed = {"tools": [], "ttlMs": 60_000, "cacheScope": "public"}
    server = notes(revision, tools_list=lambda params: listed)
    async with Client(server) as client:
        await client.list_tools()
        await client.request("tools/list")
        await client.request("tools/list")
    assert len(server.params("tools/list")) == 3


@ERAS
async def test_a_request_has_a_deadline_and_its_end_is_told(revision: str) -> None:
    server = notes(revision, notes_wait=lambda params: asyncio.Event().wait())
    async with Client(server) as client:
        with pytest.raises(Timeout, match="notes/wait was not answered within"):
            await client.request("notes/wait", timeout=0.01)
        cancelled = await server.until("notifications/cancelled")
        waiting = next(message for message in server.received if message["method"] == "notes/wait")
    assert cancelled["params"]["requestId"] == waiting["id"]


@ERAS
async def test_cancelling_the_awaiting_task_cancels_the_request(revision: str) -> None:
    server = notes(revision, notes_wait=lambda params: asyncio.Event().wait())
    async with Client(server) as client:
        waiting = asyncio.ensure_future(client.request("notes/wait"))
        sent = await server.until("notes/wait")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        cancelled = await server.until("notifications/cancelled")
    assert cancelled["params"]["requestId"] == sent["id"]


@ERAS
async def test_progress_of_a_request_is_reported(revision: str) -> None:
    def work(params: dict[str, Any]) -> dict[str, Any]:
        token = params["_meta"]["progressToken"]
        server.notify("notifications/progress", {"progressToken": token, "progress": 1, "message": "half"})
        return {}

    server = notes(revision, notes_work=work)
    heard: list[Any] = []
    async with Client(server) as client:
        await client.request("notes/work", on_progress=heard.append)
    assert [each.message for each in heard] == ["half"]


async def test_a_request_goes_through_its_rounds() -> None:
    def ask(params: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" in params:
            answer = params["inputResponses"]["who"]["content"]["name"]
            return {"resultType": "complete", "hello": answer, "kept": params["odd"], "state": params["requestState"]}
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": form}}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "s"}

    async with Client(notes(notes_ask=ask), elicit=lambda message, params: {"name": "Ann"}) as client:
        result = await client.request("notes/ask", {"odd": [1]})
    assert (result["hello"], result["kept"], result["state"]) == ("Ann", [1], "s")


@pytest.mark.covers("EXC-3")
@cases(
    ("method", "options", "sent"),
    [("notes/get", {}, 1), ("notes/get", {"repeatable": True}, 2), ("prompts/list", {}, 2), ("tools/call", {}, 1)],
)
async def test_a_request_that_may_have_run_is_sent_again_only_if_that_was_allowed(
    method: str, options: dict[str, Any], sent: int
) -> None:
    tries: list[str] = []

    def once(request: Any) -> Any:
        tries.append(method)
        return stream() if len(tries) == 1 else result(request)

    script = Script(on(**{method.replace("/", "_"): once}))
    async with script.client() as client:
        asked = client.request(method, {"name": "x"} if method == "tools/call" else None, **options)
        if sent == 1:
            with pytest.raises(OutcomeUnknown):
                await asked
        else:
            await asked
    assert len(tries) == sent


# --- a call of a tool, sent as any request ---


def calling(**options: Any) -> tuple[FakeServer, Client]:
    tool = t.Tool("send", {"type": "object"}, description="Sends.")
    server = FakeServer(
        {
            "tools/list": lambda request, outlet: t.ListToolsResult(tools=[tool]),
            "tools/call": lambda request, outlet: text("sent", is_error=request.params.name == "broken"),
        }
    )
    return server, Client(server, **options)


@pytest.mark.covers("EXC-4")
@ERAS
async def test_a_call_that_is_sent_as_a_request_is_approved_like_any_other(revision: str) -> None:
    shown: list[ToolCall] = []

    def approve(call: ToolCall) -> Any:
        shown.append(call)
        return {"to": "bob"} if call.arguments.get("to") == "ann" else False

    server, client = calling(approve=approve, revision=revision)
    async with client:
        sent = {"name": "send", "arguments": {"to": "ann"}, "com.example/odd": [1]}
        result = await client.request("tools/call", sent)
        assert result["content"] == [{"type": "text", "text": "sent"}]
        for params in ({"name": "send"}, {"name": "send", "arguments": {"to": "eve"}}):
            with pytest.raises(Denied):
                await client.request("tools/call", params)
    (made,) = [request for request in server.requests if request.method == "tools/call"]
    assert msgspec.json.decode(made.params.arguments) == {"to": "bob"}
    assert msgspec.json.decode(made.raw)["com.example/odd"] == [1]
    assert shown[0].tool is not None
    assert shown[0].tool.description == "Sends."


@pytest.mark.covers("EXC-4")
@ERAS
async def test_a_call_that_is_sent_as_a_request_is_counted_and_recorded(revision: str) -> None:
    lines: list[str] = []
    audit = AuditLog(lines.append, key="a key of sixteen bytes")
    server, client = calling(budget=Budget(calls=2), audit=audit, revision=revision)
    async with client:
        await client.request("tools/call", {"name": "send", "arguments": {"to": "ann"}}, returns=t.CallToolResult)
        await client.request("tools/call", {"name": "broken"})
        with pytest.raises(BudgetExceeded):
            await client.request("tools/call", {"name": "send"})
    entries = [entry for line in lines if "name" in (entry := msgspec.json.decode(line))]
    assert [(entry["name"], entry["outcome"]) for entry in entries] == [
        ("send", "ok"),
        ("broken", "error"),
        ("send", "denied"),
    ]
    assert entries[0]["arguments"] == {"to": "ann"}
    assert server.methods().count("tools/call") == 2


@pytest.mark.covers("EXC-4")
@ERAS
async def test_a_call_that_is_sent_as_a_request_is_of_a_tool_that_did_not_change(revision: str) -> None:
    server, client = calling(pins=Pins(), revision=revision, cache=False)
    async with client:
        await client.request("tools/call", {"name": "send"})
        changed = t.Tool("send", {"type": "object"}, description="Sends everything.")
        server.handlers["tools/list"] = lambda request, outlet: t.ListToolsResult(tools=[changed])
        await client.list_tools()
        with pytest.raises(ToolChanged):
            await client.request("tools/call", {"name": "send"})
    assert server.methods().count("tools/call") == 1


@cases("params", [None, {}, {"name": 3}, {"name": "a", "arguments": [1]}])
async def test_a_call_without_a_name_is_not_sent(params: Any) -> None:
    server, client = calling(approve=lambda call: True)
    async with client:
        with pytest.raises(TypeError, match="the params of tools/call have a name"):
            await client.request("tools/call", params)
    assert "tools/call" not in server.methods()


async def test_a_call_that_became_a_task_is_returned_as_it_came() -> None:
    task = {
        "resultType": "task",
        "taskId": "t-1",
        "status": "working",
        "createdAt": "",
        "lastUpdatedAt": "",
        "ttlMs": 1,
    }
    server = JsonServer({"tools/call": lambda params: task}, extensions={t.TASKS_EXTENSION: {}})
    async with Client(server) as client:
        assert await client.request("tools/call", {"name": "slow"}) == task


# --- notifications that the client sends ---


@ERAS
async def test_a_client_sends_notifications_of_an_extension(revision: str) -> None:
    server = notes(revision)
    async with Client(server) as client:
        await client.notify("notifications/notes/read", {"id": 7, "_meta": {"a.b/c": 1}}, extension=NOTES)
        await client.notify("notifications/notes/closed")
        await client.request("notes/search", {"words": "a"})
    (read,), (closed,) = server.params("notifications/notes/read"), server.params("notifications/notes/closed")
    assert (read["id"], read["_meta"]["a.b/c"]) == (7, 1)
    # META-6: nothing is known from earlier requests, so that a notification of 2026-07-28 says who sends it.
    for params in (read, closed):
        assert (t.CLIENT_CAPABILITIES_KEY in params.get("_meta", {})) is (revision == MODERN)


@cases(
    ("method", "said"),
    [
        ("notes/search", None),
        ("tools/list", "tools/list is no notification: use client.request()"),
        ("notifications/initialized", "connect() sends it"),
        ("notifications/message", "notifications/message is sent by servers"),
    ],
)
async def test_what_is_no_notification_of_a_program_is_refused(method: str, said: str | None) -> None:
    server = notes()
    async with Client(server) as client:
        if said is None:
            await client.notify(method)
        else:
            with pytest.raises(ValueError) as caught:
                await client.notify(method)
            assert said in str(caught.value)


# --- the blocking client ---


def test_a_blocking_client_sends_requests_of_any_method() -> None:
    server = Server("s")
    extension = server.extension(NOTES, {})

    @extension.method("notes/search")
    async def search(params: Any, ctx: Any) -> dict[str, Any]:
        return {"found": [params.extra["words"]]}

    with BlockingClient(server, extensions={NOTES: {}}, revision=MODERN) as client:
        assert client.request("notes/search", {"words": "milk"}, returns=Found, extension=NOTES) == Found(["milk"])
        assert client.request("notes/search", {"words": "milk"})["found"] == ["milk"]
