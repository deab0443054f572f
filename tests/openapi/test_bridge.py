"""Three tools for a large API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.http.modernclient import ModernClient
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Arrived, Reply, StubApi, json_reply, stub_api

from toolwire import Client, Limits, Policy, ProtocolError, Server, testing
from toolwire.audit import AuditLog
from toolwire.auth import ApiKeys, Principal
from toolwire.cli import lint_vendors
from toolwire.cli.lint_rules import check_tool
from toolwire.openapi import ALL, Api, DescriptionError, openapi, tag
from toolwire.openapi.answer import long_running
from toolwire.shape import Shape
from toolwire.tokens import definition_tokens
from toolwire.types import REVISIONS

CAT = {"id": 7, "name": "Tom"}
TOOLS = ["call_operation", "describe_operation", "list_operations"]


@pytest.fixture
async def stub() -> AsyncIterator[StubApi]:
    async with stub_api() as made:
        yield made


def pets(stub: StubApi, keep: Any = ALL, described: dict[str, Any] | None = None, **options: Any) -> Api:
    return openapi(described or petstore(), keep=keep, drop="headPet", base_url=stub.url, shape="bridge", **options)


@pytest.mark.covers("OA-1.2")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_bridge_of_three_tools(stub: StubApi, revision: str) -> None:
    server = Server("shop").include(pets(stub), prefix="pets")
    async with testing.connect(server, revision=revision) as (client, _):
        assert [each.name for each in await client.list_tools()] == [f"pets_{name}" for name in TOOLS]
        listed = json.loads((await client.call_tool("pets_list_operations", {})).text)
        assert [each["operation"] for each in listed["operations"]] == [
            "listPets",
            "createPet",
            "showPet",
            "delete_pets_by_petId",
            "listOrders",
        ]
        assert (listed["total"], listed["tags"]) == (5, ["admin", "orders", "pets"])
        described = json.loads((await client.call_tool("pets_describe_operation", {"operation": "listPets"})).text)
        assert described["arguments"]["properties"]["limit"]["maximum"] == 100
        assert described["annotations"]["readOnlyHint"] is True
        stub.answers(json_reply([CAT]))
        called = await client.call_tool("pets_call_operation", {"operation": "listPets", "arguments": {"limit": 2}})
        assert json.loads(called.text) == [CAT]
        assert stub.last.target == "/pets?limit=2"


@pytest.mark.covers("OA-1.2")
async def test_the_cost_does_not_grow_with_the_api(stub: StubApi) -> None:
    described = petstore()
    for number in range(200):
        described["paths"][f"/things/{number}"] = {
            "get": {"operationId": f"getThing{number}", "summary": "x " * 100, "responses": {}}
        }

    async def cost(api: Api) -> int:
        async with Client(Server("shop").include(api)) as client:
            return sum(
                definition_tokens(each.name, each.description or "", each.input_schema)
                for each in await client.list_tools()
            )

    small, large = await cost(pets(stub, keep="listPets")), await cost(pets(stub, described=described))
    assert abs(large - small) < 10
    assert large < 500


async def test_every_vendor_takes_the_tools(stub: StubApi) -> None:
    async with Client(Server("shop").include(pets(stub))) as client:
        tools = await client.list_tools()
    assert [finding.rule for tool in tools for finding in lint_vendors.check(tool)] == []
    assert "no-return" not in [finding.rule for tool in tools for finding in check_tool(tool)]


@pytest.mark.covers("OA-1.2")
@pytest.mark.parametrize(
    ("search", "tag", "found"),
    [
        ("", "orders", ["listOrders"]),
        ("pet create", "", ["createPet"]),
        ("creating a pet", "", ["createPet"]),
        ("PETS list", "", ["listPets"]),
        ("list", "", ["listOrders", "listPets"]),
        ("removing a pet", "admin", ["delete_pets_by_petId"]),
        ("select:showPet,nothing", "", ["showPet"]),
        ("unicorn", "", []),
        ("pets", "nothing", []),
    ],
)
async def test_operations_are_searched(stub: StubApi, search: str, tag: str, found: list[str]) -> None:
    async with Client(Server("shop").include(pets(stub))) as client:
        listed = await client.call_tool("list_operations", {"search": search, "tag": tag}, returns=dict[str, Any])
        names = [each["operation"] for each in listed["operations"]]
        # The best ones come first; what matches less comes behind.
        assert names[: len(found)] == found
        assert found or not names


async def test_best_twenty_operations_are_found(stub: StubApi) -> None:
    described = petstore()
    for number in range(300):
        described["paths"][f"/things/{number}"] = {
            "get": {"operationId": f"getThing{number}", "summary": "Read a thing.", "responses": {}}
        }
    async with Client(Server("shop").include(pets(stub, described=described))) as client:
        listed = await client.call_tool("list_operations", {"search": "reading things"}, returns=dict[str, Any])
        assert (len(listed["operations"]), listed["total"]) == (20, 20)
        exact = await client.call_tool("list_operations", {"search": "getThing207"}, returns=dict[str, Any])
        assert exact["operations"][0]["operation"] == "getThing207"


async def test_pages_of_operations(stub: StubApi) -> None:
    described = petstore()
    for number in range(120):
        described["paths"][f"/things/{number}"] = {"get": {"operationId": f"getThing{number}", "responses": {}}}
    async with Client(Server("shop").include(pets(stub, described=described))) as client:
        names: list[str] = []
        while True:
            page = await client.call_tool("list_operations", {"skip": len(names)}, returns=dict[str, Any])
            names += [each["operation"] for each in page["operations"]]
            if len(names) >= page["total"]:
                break
        assert len(names) == len(set(names)) == 125


@pytest.mark.covers("OA-1.3")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"operation": "listPets", "arguments": {"limit": 1000}}, "limit"),
        ({"operation": "listPets", "arguments": {"limits": 1}}, "limits"),
        ({"operation": "createPet"}, "name"),
        ({"operation": "listPet"}, "There is no operation 'listPet'. Did you mean 'listPets'?"),
        ({"operation": "headPet"}, "There is no operation 'headPet'."),
        ({"operation": 7}, "The arguments are a name `operation` and an object `arguments`"),
        ({"operation": "listPets", "arguments": [1]}, "The arguments are a name `operation`"),
        ({}, "The arguments are a name `operation`"),
        ({"operation": "call_operation", "arguments": {"operation": "listPets"}}, "There is no operation"),
    ],
)
async def test_arguments_are_checked_against_the_schema_of_the_operation(
    stub: StubApi, arguments: dict[str, Any], told: str
) -> None:
    async with Client(Server("shop").include(pets(stub))) as client:
        result = await client.call_tool("call_operation", arguments)
        assert result.is_error
        assert told in result.text
        assert stub.arrived == []


async def test_arguments_as_a_text_are_understood(stub: StubApi) -> None:
    async with Client(Server("shop").include(pets(stub))) as client:
        for arguments in ('{"limit": 2}', "", None):
            assert not (
                await client.call_tool("call_operation", {"operation": "listPets", "arguments": arguments})
            ).is_error
        unknown = await client.call_tool("describe_operation", {"operation": "showPets"})
        assert unknown.is_error and "Did you mean 'showPet'?" in unknown.text


@pytest.mark.covers("OA-1.3")
async def test_annotations_are_true_for_every_operation(stub: StubApi) -> None:
    reads = Server("reads").include(pets(stub, keep=["listPets", tag("orders")]))
    writes = Server("writes").include(pets(stub))
    async with Client(reads) as client, Client(writes) as other:
        (call, *_), (cautious, *_) = await client.list_tools(), await other.list_tools()
        assert call.annotations is not None and cautious.annotations is not None
        assert (call.annotations.read_only_hint, call.annotations.destructive_hint) == (True, False)
        assert (cautious.annotations.read_only_hint, cautious.annotations.destructive_hint) == (False, True)


@pytest.mark.covers("OA-1.4")
async def test_rules_of_an_operation_hold_for_its_call(stub: StubApi) -> None:
    api = pets(
        stub,
        operations={
            "listPets": {"policy": Policy(rate="1/hour")},
            "showPet": {"visible_to": lambda principal: principal.subject == "root"},
            "listOrders": {"scopes": "orders:read"},
            "createPet": {"policy": Policy(rules={"name": lambda name: "it is no name" if name == "Rex" else None})},
        },
    )
    server = Server("shop", local_principal=Principal("alice")).include(api, shape=Shape(deny=["delete_*"]))
    stub.answers(json_reply(CAT))
    async with Client(server) as client:

        async def call(operation: str, **arguments: Any) -> Any:
            return await client.call_tool("call_operation", {"operation": operation, "arguments": arguments})

        assert not (await call("listPets")).is_error
        assert (await call("listPets")).is_error
        assert "There is no operation 'showPet'" in (await call("showPet", petId="1")).text
        assert "There is no operation 'delete" in (await call("delete_pets_by_petId", petId="1")).text
        with pytest.raises(ProtocolError, match="orders:read"):
            await call("listOrders")
        assert not (await call("createPet", name="Tom")).is_error
        assert "it is no name" in (await call("createPet", name="Rex")).text
        assert len(stub.arrived) == 2
        listed = await client.call_tool("list_operations", {}, returns=dict[str, Any])
        assert [each["operation"] for each in listed["operations"]] == ["listPets", "createPet"]
        for hidden in ("showPet", "listOrders", "delete_pets_by_petId"):
            assert (await client.call_tool("describe_operation", {"operation": hidden})).is_error
            for tool in ("describe_operation", "call_operation"):
                near = await client.call_tool(tool, {"operation": f"{hidden}s"})
                assert "Did you mean" not in near.text.replace("Did you mean 'listPets'?", "")
        # The tool of an operation is in no list, and the same rules hold for it.
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("showPet", {"petId": "1"})


@pytest.mark.covers("OA-1.4")
async def test_a_lack_of_scopes_is_challenged_over_http(stub: StubApi) -> None:
    api = pets(stub, operations={"listPets": {"scopes": "pets:read"}})
    keys = ApiKeys(
        {"key-of-alice": Principal("alice"), "key-of-bob": Principal("bob", scopes=frozenset({"pets:read"}))}
    )
    app = Server("shop", auth=keys).include(api).http_app()
    async with app.lifespan():
        for key, status in (("key-of-alice", 403), ("key-of-bob", 200)):
            sent = {"authorization": f"Bearer {key}"}
            answer = await ModernClient(app).call("call_operation", {"operation": "listPets"}, headers=sent)
            assert answer.status == status


async def test_secret_arguments_of_operations_are_in_no_record(stub: StubApi) -> None:
    described = petstore()
    owner = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    described["components"]["schemas"]["Pet"]["properties"] |= {
        "chip": {"type": "string", "format": "password"},
        "owner": owner,
    }
    lines: list[str] = []
    audit = AuditLog(lines.append, key="a key of sixteen bytes")
    async with Client(Server("shop", audit=audit).include(pets(stub, described=described))) as client:
        await client.call_tool(
            "call_operation",
            {"operation": "createPet", "arguments": {"name": "Tom", "chip": "hunter2", "owner": {"pin": "hunter3"}}},
        )
    audit.close()
    assert stub.last.json["chip"] == "hunter2"
    assert "createPet" in "".join(lines)
    assert "hunter2" not in "".join(lines) and "hunter3" not in "".join(lines)


JOBS: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Jobs", "version": "1"},
    "paths": {
        "/jobs": {"post": {"operationId": "start", "responses": {"202": {"description": "Accepted."}}}},
        "/state": {"get": {"operationId": "state", "responses": {"200": {"description": "A state."}}}},
    },
}


@pytest.mark.covers("OA-1.2", "OA-5.19")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_an_operation_that_goes_on_is_a_task(
    stub: StubApi, monkeypatch: pytest.MonkeyPatch, revision: str, over: Any
) -> None:
    for name in ("FIRST_SECONDS", "LEAST_SECONDS"):
        monkeypatch.setattr(long_running, name, 0.01)
    api = openapi(
        JOBS, keep=ALL, base_url=stub.url, shape="bridge", operations={"start": {"policy": Policy(rate="9/minute")}}
    )
    shop = Server("shop", limits=Limits(task_poll=0.05)).include(api)
    async with testing.connect(shop, revision=revision, over=over) as (client, _):
        stub.answers(
            json_reply({}, 202, location="/state", retry_after="0"),
            json_reply({"status": "running"}),
            json_reply({"status": "succeeded", "n": 1}),
        )
        task = await client.call_tool_as_task("call_operation", {"operation": "start"})
        assert (await task.wait()).structured == {"status": "succeeded", "n": 1}
        assert [each.method for each in stub.arrived] == ["POST", "GET", "GET"]
        stub.answers(json_reply({"n": 2}))
        assert (await client.call_tool("call_operation", {"operation": "state"})).structured == {"n": 2}
    plain = openapi(JOBS, keep="state", base_url=stub.url, shape="bridge")
    assert plain.server.catalog.tools["call_operation"].task is None


async def test_every_operation_has_its_own_time(stub: StubApi) -> None:
    answered = asyncio.Event()

    async def late(_: Arrived) -> Reply:
        await answered.wait()
        return json_reply({"n": 1})

    api = openapi(JOBS, keep=ALL, base_url=stub.url, shape="bridge", operations={"start": {"timeout": 0.05}})
    async with Client(Server("shop").include(api)) as client:
        stub.answers(late)
        waiting = asyncio.ensure_future(client.call_tool("call_operation", {"operation": "state"}))
        short = await client.call_tool("call_operation", {"operation": "start"})
        assert short.is_error and "did not finish within 0.05 seconds" in short.text
        assert not waiting.done()
        answered.set()
        assert (await waiting).structured == {"n": 1}


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_tool_by_hand_is_no_operation_of_the_bridge(stub: StubApi, is_late: bool) -> None:
    api = pets(stub)
    server = Server("shop")
    if is_late:
        server.include(api)

    @api.override("listPets")
    async def by_hand(word: str) -> str:
        return word

    if not is_late:
        server.include(api)
    async with Client(server) as client:
        assert [each.name for each in await client.list_tools()] == sorted([*TOOLS, "listPets"])
        assert (await client.call_tool("listPets", {"word": "mine"})).text == "mine"
        for tool in ("describe_operation", "call_operation"):
            refused = await client.call_tool(tool, {"operation": "listPets"})
            assert refused.is_error and "There is no operation 'listPets'" in refused.text


@pytest.mark.parametrize("principal", [None, Principal("anna")])
async def test_an_operation_is_no_other_tool_of_its_name(stub: StubApi, principal: Principal | None) -> None:
    server = Server("shop")

    @server.tool(name="listPets")
    async def of_the_server() -> str:
        return "of the server"

    other = openapi(petstore(), keep="listPets", base_url=stub.url)
    server.include(other, prefix="b").include(pets(stub)).include(pets(stub), prefix="b")
    async with testing.connect(server, principal=principal) as (client, _):
        stub.answers(json_reply([CAT]))
        assert (await client.call_tool("listPets")).text == "of the server"
        for name in ("call_operation", "b_call_operation"):
            assert (await client.call_tool(name, {"operation": "listPets"})).structured == [CAT]


async def test_an_operation_cannot_have_the_name_of_a_tool_of_the_bridge(stub: StubApi) -> None:
    described = petstore()
    described["paths"]["/pets"]["get"]["operationId"] = "list_operations"
    with pytest.raises(DescriptionError, match="GET /pets cannot be called 'list_operations'"):
        Server("shop").include(pets(stub, described=described))
    api = pets(stub, described=described, operations={"GET /pets": {"name": "listPets"}})
    Server("shop").include(api)
