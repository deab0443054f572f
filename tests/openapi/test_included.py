"""APIs on servers: included, called, overridden, taken away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Arrived, Reply, StubApi, json_reply, stub_api

from toolwire import Client, Context, Policy, ProtocolError, Server, ToolResult, testing
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.errors import ServerError
from toolwire.openapi import ALL, Api, DescriptionError, Operation, OperationFailed, openapi
from toolwire.server.components import Cache
from toolwire.server.metrics import Metrics
from toolwire.shape import Shape
from toolwire.types import REVISIONS

CAT = {"id": 7, "name": "Tom", "tag": "cat"}


@dataclass
class Pet:
    id: int
    name: str


@pytest.fixture
async def stub() -> AsyncIterator[StubApi]:
    async with stub_api() as made:
        yield made


def pets(stub: StubApi, keep: Any = ALL, described: dict[str, Any] | None = None, **options: Any) -> Api:
    drop = options.pop("drop", ["headPet"])
    return openapi(described or petstore(), keep=keep, drop=drop, base_url=stub.url, **options)


async def names(client: Client) -> list[str]:
    return [each.name for each in await client.list_tools()]


# --- including --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-8.1")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_tools_of_an_api(stub: StubApi, revision: str) -> None:
    server = Server("shop").include(pets(stub), prefix="pets")
    async with testing.connect(server, revision=revision) as (client, _):
        assert await names(client) == [
            "pets_createPet",
            "pets_delete_pets_by_petId",
            "pets_listOrders",
            "pets_listPets",
            "pets_showPet",
        ]
        stub.answers(json_reply([CAT]))
        result = await client.call_tool("pets_listPets", {"limit": 3})
        assert json.loads(result.text) == [CAT]
        assert (stub.last.method, stub.last.target) == ("GET", "/pets?limit=3")
        stub.answers(json_reply(CAT, 201))
        await client.call_tool("pets_createPet", {"name": "Tom", "tag": "cat"})
        assert (stub.last.method, stub.last.path, stub.last.json) == ("POST", "/pets", {"name": "Tom", "tag": "cat"})


async def test_nothing_is_made_for_calls_before_the_first_one(stub: StubApi) -> None:
    """An API may have a thousand operations, of which few are called."""
    api = pets(stub)
    async with Client(Server("shop").include(api)) as client:
        await client.list_tools()
        tools = {each.name: each for each in api.server.tools}
        assert not any("caller" in vars(each) for each in tools.values())
        await client.call_tool("listPets", {})
        assert [name for name, each in tools.items() if "caller" in vars(each)] == ["listPets"]


@pytest.mark.covers("OA-8.1")
async def test_an_api_comes_and_goes_while_the_server_runs(stub: StubApi) -> None:
    server = Server("shop")
    api = pets(stub, keep="listPets")
    async with Client(server) as client:
        assert await names(client) == []
        server.include(api)
        assert await names(client) == ["listPets"]
        stub.answers(json_reply([CAT]))
        assert (await client.call_tool("listPets", {})).structured == [CAT]
        server.exclude(api)
        assert await names(client) == []
        server.include(api, prefix="again")
        assert (await client.call_tool("again_listPets", {})).structured == [CAT]


@pytest.mark.covers("OA-8.1")
async def test_a_call_in_flight_ends_when_its_api_is_taken_away(stub: StubApi) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: Arrived) -> Reply:
        arrived.set()
        await go_on.wait()
        return json_reply([CAT])

    stub.answers(answer)
    server, api = Server("shop"), pets(stub, keep="listPets")
    server.include(api)
    async with Client(server) as client:
        calling = asyncio.ensure_future(client.call_tool("listPets", {}))
        await arrived.wait()
        server.exclude(api)
        assert await names(client) == []
        for _ in range(200):  # Meanwhile the lifespan of the API ends.
            await asyncio.sleep(0)
        go_on.set()
        assert (await calling).structured == [CAT]
        server.include(api)
        assert not (await client.call_tool("listPets", {})).is_error


async def test_several_apis_on_one_server_and_one_api_on_two(stub: StubApi) -> None:
    first, second = pets(stub, keep="listPets"), pets(stub, keep="listOrders")
    one = Server("one").include(first, prefix="a").include(second, prefix="b")
    two = Server("two").include(first)
    stub.answers(json_reply([CAT]))
    async with Client(one) as client_one, Client(two) as client_two:
        assert await names(client_one) == ["a_listPets", "b_listOrders"]
        assert await names(client_two) == ["listPets"]
        results = await asyncio.gather(
            client_one.call_tool("a_listPets", {}),
            client_one.call_tool("b_listOrders", {}),
            client_two.call_tool("listPets", {}),
        )
        assert [each.structured for each in results] == [[CAT]] * 3
    # One server ends while the other one still calls the API.
    async with Client(two) as client_two:
        async with Client(one) as client_one:
            await client_one.call_tool("a_listPets", {})
        assert not (await client_two.call_tool("listPets", {})).is_error


async def test_mistakes_of_including(stub: StubApi) -> None:
    server, api = Server("shop"), pets(stub, keep="listPets")
    with pytest.raises(ServerError, match=r"include\(\) takes what openapi\(\) returns, not str"):
        server.include("api.yaml")  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="does not include this API"):
        server.exclude(api)
    server.include(api)
    with pytest.raises(ServerError, match="includes the API 'Pets' already"):
        server.include(api, prefix="b")
    with pytest.raises(DescriptionError, match="its server '/' is relative"):
        Server("x").include(openapi(petstore(servers=[]), keep="listPets"))
    with pytest.raises(ServerError, match=r"origins= has URLs such as https://api\.example\.com, not 'x'"):
        Server("x").include(pets(stub, keep="listPets", origins="x"))
    with pytest.raises(ServerError, match=r"client= is an httpx\.AsyncClient, not str"):
        Server("x").include(pets(stub, keep="listPets", client="x"))


@pytest.mark.covers("OA-8.2")
async def test_rules_of_servers_hold_for_generated_tools(stub: StubApi) -> None:
    """Policies, restrictions of tags, shapes and deadlines work as for any other tool."""
    api = pets(
        stub,
        operations={
            "listPets": {"policy": Policy(rate="1/hour")},
            "createPet": {"timeout": 0.05},
            "showPet": {"visible_to": lambda principal: principal.subject == "root"},
        },
    )
    server = Server("shop", local_principal=Principal("alice", scopes=frozenset({"orders"})))
    server.restrict("admin", visible_to="admin").restrict("orders", scopes="orders")
    server.include(api, shape=Shape(deny=["listOrders"]))
    stub.answers(json_reply([CAT]))
    async with Client(server) as client:
        assert await names(client) == ["listPets"]
        assert not (await client.call_tool("listPets", {})).is_error
        assert (await client.call_tool("listPets", {})).is_error
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("showPet", {"petId": "1"})


@pytest.mark.covers("OA-6.9")
async def test_a_call_is_audited_without_its_arguments(stub: StubApi) -> None:
    described = petstore()
    owner = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    described["components"]["schemas"]["Pet"]["properties"] |= {
        "chip": {"type": "string", "format": "password"},
        "owner": owner,
    }
    lines: list[bytes] = []
    audit = AuditLog(lines.append, key="a key of sixteen bytes")
    server = Server("shop", audit=audit, local_principal=Principal("alice"))
    server.include(pets(stub, described=described))
    stub.answers(json_reply(CAT))
    async with Client(server) as client:
        await client.call_tool("showPet", {"petId": "the-secret-id"})
        await client.call_tool("createPet", {"name": "Tom", "chip": "hunter2", "owner": {"pin": "hunter3"}})
    audit.close()
    shown, created = [each for each in map(json.loads, lines) if each.get("method") == "tools/call"]
    assert shown["api"] == [
        {"operation": "showPet", "method": "GET", "path": "/pets/{petId}", "status": 200, "bytes": len(json.dumps(CAT))}
    ]
    assert "alice" in str(shown["who"])
    assert created["api"][0]["operation"] == "createPet"
    assert "hunter2" not in json.dumps(created) and "hunter3" not in json.dumps(created)


@pytest.mark.covers("OA-5.11")
async def test_drift_is_a_metric_of_the_server(stub: StubApi) -> None:
    metrics = Metrics()
    server = Server("shop", metrics=metrics).include(pets(stub))
    stub.answers(json_reply([{"name": None}]))
    async with Client(server) as client:
        await client.call_tool("listPets", {})
        await client.call_tool("listPets", {})
        await client.list_tools()
    (line,) = [each for each in metrics.render().splitlines() if each.startswith("toolwire_openapi_drift_total")]
    assert 'operation="listPets"' in line and line.endswith(" 2")


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-4.8")
async def test_arguments_are_checked_against_all_rules_and_published_in_the_ones_of_every_vendor(stub: StubApi) -> None:
    described = petstore()
    described["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"]["schema"] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "chip": {"type": "string"}},
        "anyOf": [{"required": ["name"]}, {"required": ["chip"]}],
    }
    server = Server("shop").include(pets(stub, described=described, keep="createPet"))
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        assert "anyOf" not in tool.input_schema
        refused = await client.call_tool("createPet", {})
        assert refused.is_error
        assert stub.arrived == []
        assert not (await client.call_tool("createPet", {"chip": "1"})).is_error


async def test_fixed_values_are_sent_with_every_call_and_are_no_arguments(stub: StubApi) -> None:
    api = pets(
        stub,
        keep=["listPets", "showPet"],
        operations={"listPets": {"fixed": {"limit": 5}}, "showPet": {"fixed": {"petId": "a b"}}},
    )
    server = Server("shop").include(api)
    async with Client(server) as client:
        listed = {each.name: each.input_schema["properties"] for each in await client.list_tools()}
        assert "limit" not in listed["listPets"]
        assert "petId" not in listed["showPet"]
        await client.call_tool("listPets", {})
        assert stub.last.target == "/pets?limit=5"
        await client.call_tool("showPet", {})
        assert stub.last.target == "/pets/a%20b"


# --- a person's tools -------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-8.3")
async def test_a_function_takes_the_place_of_a_generated_tool(stub: StubApi) -> None:
    api = pets(stub, keep=["listPets", "createPet"])

    @api.override("createPet")
    async def create(name: str, call: Operation, ctx: Context) -> Pet:
        """Create a cat."""
        return await call(name=name.title(), tag="cat", returns=Pet)

    server = Server("shop").include(api, prefix="pets")
    stub.answers(json_reply(CAT, 201))
    async with Client(server) as client:
        tools = {each.name: each for each in await client.list_tools()}
        assert sorted(tools) == ["pets_createPet", "pets_listPets"]
        mine = tools["pets_createPet"]
        assert mine.description == "Create a cat."
        assert list(mine.input_schema["properties"]) == ["name"]
        assert mine.annotations == tools["pets_createPet"].annotations
        result = await client.call_tool("pets_createPet", {"name": "tom"}, returns=Pet)
        assert result == Pet(7, "Tom")
        assert stub.last.json == {"name": "Tom", "tag": "cat"}


@pytest.mark.covers("OA-8.3")
async def test_an_override_may_come_later_and_have_another_name(stub: StubApi) -> None:
    api = pets(stub, keep="listPets")
    server = Server("shop").include(api)
    async with Client(server) as client:
        assert await names(client) == ["listPets"]

        @api.override("GET /pets", name="cats", annotations={"readOnlyHint": True})
        async def cats(call: Operation) -> list[str]:
            return [each["name"] for each in await call({"limit": 2})]

        @api.override("listOrders")
        async def orders(call: Operation, count: int = 1) -> int:
            return len(await call()) + count

        assert await names(client) == ["cats", "listOrders"]
        stub.answers(json_reply([CAT, CAT]))
        assert await client.call_tool("cats", {}, returns=list[str]) == ["Tom", "Tom"]
        assert stub.last.target == "/pets?limit=2"
        assert await client.call_tool("listOrders", {"count": 3}, returns=int) == 5
    with pytest.raises(DescriptionError, match="the API has no operation 'listCats'"):
        api.override("listCats")
    with pytest.raises(ServerError, match=r"override\(\) takes a function"):
        api.override("listPets")(print)


@pytest.mark.covers("OA-8.4")
async def test_calls_of_code(stub: StubApi) -> None:
    """Arguments are checked, answers are whole and typed, failures are raised."""
    api = pets(stub, keep=None, max_tokens=10)
    server = Server("shop").include(api)
    outcomes: list[Any] = []

    @server.tool
    async def work(which: str) -> str:
        outcomes.append(await STEPS[which](api))
        return "done"

    cases: dict[str, tuple[Reply, Any]] = {
        "typed": (json_reply([CAT]), [Pet(7, "Tom")]),
        "plain": (json_reply([CAT] * 500), [CAT] * 500),
        "text": (Reply(200, b"hello", "text/plain"), "hello"),
        "bytes": (Reply(200, b"\0\1", "application/pdf"), b"\0\1"),
        "image": (Reply(200, b"\x89PNG", "image/png"), b"\x89PNG"),
        "nothing": (Reply(204, b"", None), None),
    }
    async with Client(server) as client:
        for which, (reply, expected) in cases.items():
            stub.answers(reply)
            assert (await client.call_tool("work", {"which": which})).text == "done"
            assert outcomes.pop() == expected, which
        stub.answers(json_reply({"title": "No such pet"}, 404))
        failed = await client.call_tool("work", {"which": "plain"})
        assert failed.is_error and "listPets answered 404" in failed.text
        stub.answers(json_reply({"title": "No such pet"}, 404))
        await client.call_tool("work", {"which": "caught"})
        assert outcomes.pop() == 404
        stub.answers(json_reply([]))
        refused = await client.call_tool("work", {"which": "wrong"})
        assert refused.is_error and "listPets was not called" in refused.text
        assert stub.arrived == []
        stub.answers(json_reply("no list"))
        other = await client.call_tool("work", {"which": "typed"})
        assert other.is_error and "The answer of listPets is not of type list[" in other.text
        stub.answers(Reply(200, b"x" * 3_000_000, "text/plain"))
        large = await client.call_tool("work", {"which": "text"})
        assert large.is_error and "has more than 2,000,000 bytes" in large.text
    with pytest.raises(ServerError, match="listPets is called by a handler"):
        await api.call("listPets")


async def test_a_whole_result_is_handed_on_as_the_tool_would_tell_it(stub: StubApi) -> None:
    api = pets(stub)
    server = Server("shop").include(api)

    @server.tool
    async def work() -> ToolResult:
        try:
            return await api.call("listPets", returns=ToolResult)
        except OperationFailed as failed:
            return failed.result

    async with testing.connect(server) as (client, wire):
        stub.answers(json_reply([CAT]))
        assert (await client.call_tool("work", {})).structured == [CAT]
        # What was noted of the answer is nothing for clients.
        assert set(wire.received[-1]["result"].get("_meta", {})) <= {"io.modelcontextprotocol/serverInfo"}
        stub.answers(json_reply({}, 503, retry_after="3600"))
        assert (await client.call_tool("work", {})).is_error
        assert wire.received[-1]["result"]["_meta"]["toolwire/retryAfterMs"] == 3_600_000


async def _caught(api: Api) -> int | None:
    try:
        await api.call("listPets")
    except OperationFailed as failed:
        assert isinstance(failed.result, ToolResult)
        return failed.status
    return None


STEPS: dict[str, Any] = {
    "typed": lambda api: api.call("listPets", {"limit": 1}, returns=list[Pet]),
    "plain": lambda api: api.call("listPets"),
    "text": lambda api: api.call("listOrders"),
    "bytes": lambda api: api.call("listOrders"),
    "image": lambda api: api.call("listOrders"),
    "nothing": lambda api: api.call("DELETE /pets/{petId}", {"petId": "1"}),
    "caught": _caught,
    "wrong": lambda api: api.call("listPets", {"limit": 1000}),
}


async def test_tools_that_nobody_reaches_are_told(stub: StubApi, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shop").include(pets(stub), prefix="a")
    assert caplog.messages == []
    server.include(pets(stub, keep=["listPets", "createPet"]), prefix="a")
    (told,) = caplog.messages
    assert "(a_listPets, a_createPet): include it with prefix=" in told
    caplog.clear()
    server.include(pets(stub, resources="showPet"), prefix="b")
    server.include(pets(stub, keep=[], resources="showPet"), prefix="c")
    (told,) = caplog.messages
    assert "(openapi://pets/pets/{petId}): give the API another title" in told


# --- an HTTP client of the operator -----------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.1")
async def test_an_httpx_client_carries_the_requests(stub: StubApi) -> None:
    httpx = import_module("httpx")
    async with httpx.AsyncClient(headers={"x-team": "blue"}) as http:
        server = Server("shop").include(pets(stub, keep=["listPets", "createPet"], client=http))
        async with Client(server) as client:
            stub.answers(json_reply([CAT]))
            assert (await client.call_tool("listPets", {})).structured == [CAT]
            assert stub.last.headers["x-team"] == "blue"
            stub.answers(Reply(302, b"", None, {"location": "https://elsewhere.example/"}))
            assert "leads to https://elsewhere.example" in (await client.call_tool("listPets", {})).text
            stub.answers(Reply(breaks="before"))
            lost = await client.call_tool("createPet", {"name": "x"})
            assert "outcome of createPet is unknown" in lost.text
            assert len(stub.arrived) == 1
            stub.answers(Reply(200, b"x" * 3_000_000, "text/plain"))
            assert "more than 2,000,000 bytes" in (await client.call_tool("listPets", {})).content[1].text
        # It belongs to the operator, and stays open.
        assert not http.is_closed


@pytest.mark.covers("OA-6.8")
async def test_cookies_of_an_answer_do_not_reach_the_next_caller(stub: StubApi) -> None:
    httpx = import_module("httpx")
    async with httpx.AsyncClient(cookies={"team": "blue"}) as http:
        server = Server("shop").include(pets(stub, keep=["listPets"], client=http))
        async with Client(server) as first, Client(server) as second:
            session = json_reply([CAT], **{"set-cookie": "session=of-the-first; Path=/", "cache-control": "no-store"})
            stub.answers(session, session)
            await first.call_tool("listPets", {})
            await second.call_tool("listPets", {})
        assert [each.headers["cookie"] for each in stub.arrived] == ["team=blue", "team=blue"]
        assert dict(http.cookies) == {"team": "blue"}
        http.cookies.set("team", "red")
        async with Client(server) as third:
            await third.call_tool("listPets", {})
        assert stub.last.headers["cookie"] == "team=red"


@pytest.mark.covers("OA-6.8")
async def test_an_httpx_client_goes_only_where_the_operator_says() -> None:
    httpx = import_module("httpx")
    where: dict[str, Any] = {"keep": "listPets", "base_uri": "https://docs.example/openapi.json"}
    async with httpx.AsyncClient() as http:
        with pytest.raises(DescriptionError, match=r"listPets: its server https://pets\.example is the choice of"):
            Server("shop").include(openapi(petstore(), client=http, **where))
        for typed in ({"origins": ["https://pets.example"]}, {"base_url": "https://pets.example"}):
            Server("shop").include(openapi(petstore(), client=http, **where, **typed))
        # A server of the origin of the description is one that the operator typed, and others are not needed.
        described = petstore(servers=[{"url": "/v1"}])
        described["paths"]["/orders"]["servers"] = [{"url": "https://orders.example"}]
        api = openapi(described, client=http, **where)
        Server("shop").include(api)
        assert api.tools._connection.origins == {"https://docs.example"}


_SECRETS: dict[str, dict[str, Any]] = {
    "headers": {"headers": {"authorization": "Bearer sk-1"}},
    "auth": {"auth": ("user", "sk-1")},
    "cookies": {"cookies": {"sid": "sk-1"}},
    "params": {"params": {"key": "sk-1"}},
}


@pytest.mark.covers("OA-6.8")
@pytest.mark.parametrize("led_by", ["redirect", "description"])
@pytest.mark.parametrize("secret", _SECRETS)
async def test_secrets_of_an_httpx_client_stay_at_the_server_of_the_api(secret: str, led_by: str) -> None:
    httpx = import_module("httpx")
    arrived: list[Any] = []

    def answer(request: Any) -> Any:
        arrived.append(request)
        is_led = led_by == "redirect" and request.url.host == "pets.example"
        away = httpx.Response(302, headers={"location": "https://other.example/x"})
        return away if is_led else httpx.Response(200, json=[])

    described = petstore(servers=[{"url": "https://pets.example"}])
    if led_by == "description":
        described["paths"]["/pets"]["get"]["servers"] = [{"url": "https://other.example"}]
    origins = ["https://other.example"] if led_by == "redirect" else []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), **_SECRETS[secret]) as http:
        server = Server("shop").include(openapi(described, keep=["listPets"], client=http, origins=origins))
        async with Client(server) as client:
            await client.call_tool("listPets", {})
    assert arrived[-1].url.host == "other.example"
    texts = [f"{each.url} {each.headers.get('cookie')} {each.headers.get('authorization')}" for each in arrived]
    sent = ["sk-1" in text or "Basic" in text for text in texts]
    assert sent == ([True, False] if led_by == "redirect" else [False])


@pytest.mark.parametrize("location", ["mailto:ann@a.example", "app:done", "https:other.example", "http://[", "/thanks"])
async def test_write_through_an_httpx_client_is_sent_once_wherever_its_answer_leads(location: str) -> None:
    httpx = import_module("httpx")
    arrived: list[Any] = []

    def answer(request: Any) -> Any:
        arrived.append(request)
        return httpx.Response(303, headers={"location": location})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        described = petstore(servers=[{"url": "https://pets.example"}])
        server = Server("shop").include(openapi(described, keep=["createPet"], client=http))
        async with Client(server) as client:
            assert (await client.call_tool("createPet", {"name": "x"})).is_error
    assert len(arrived) == 1


def _with_body(media_type: str, stub: StubApi) -> dict[str, Any]:
    members = {"v": {"type": "string"}, "role": {"type": "string"}}
    schema = {"type": "object", "properties": members, "required": ["role"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Users", "version": "1"},
        "servers": [{"url": stub.url}],
        "paths": {
            "/users": {
                "post": {
                    "operationId": "addUser",
                    "requestBody": {"content": {media_type: {"schema": schema}}},
                    "responses": {"200": {"description": ""}},
                }
            }
        },
    }


@pytest.mark.parametrize("media_type", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_fixed_members_of_a_body_are_sent_and_are_not_arguments(media_type: str, stub: StubApi) -> None:
    api = openapi(_with_body(media_type, stub), keep=ALL, operations={"addUser": {"fixed": {"role": "guest"}}})
    async with Client(Server("users").include(api)) as client:
        (tool,) = await client.list_tools()
        assert list(tool.input_schema["properties"]) == ["v"]
        refused = await client.call_tool("addUser", {"role": "admin"})
        assert refused.is_error
        await client.call_tool("addUser", {"v": "x"})
        await client.call_tool("addUser", {})
    assert len(stub.arrived) == 2
    assert all(b"guest" in each.body and b"admin" not in each.body for each in stub.arrived)


@pytest.mark.parametrize(
    "settings",
    [{"fixed": {"rolle": "guest"}}, {"ask": ["X-Nothing"]}, {"arguments": {"query nothing": "n"}}],
    ids=["fixed", "ask", "arguments"],
)
def test_settings_that_name_nothing_of_the_operation_are_refused(settings: dict[str, Any], stub: StubApi) -> None:
    described = _with_body("application/json", stub)
    with pytest.raises(DescriptionError, match=r"addUser.*(fixed|ask|arguments) has"):
        openapi(described, keep=ALL, operations={"addUser": settings})


@cases(("options", "ttl"), [({}, 0), ({"cache": Cache(ttl_ms=60_000)}, 60_000)])
async def test_lists_with_an_api_are_fresh_unless_the_server_lets_clients_keep_them(
    options: dict[str, Any], ttl: int
) -> None:
    """Tools may come and go while a server runs, and not every client listens to announcements."""
    api = openapi(petstore(), keep=["showPet"])
    server = Server("s", **options).include(api)
    async with Client(server, cache=False) as client:
        page = await client.list_tools_page()
        assert ([tool.name for tool in page.tools], page.ttl_ms) == (["showPet"], ttl)
        server.exclude(api)
        assert await client.list_tools() == []
