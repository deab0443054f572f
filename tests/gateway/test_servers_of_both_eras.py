"""A legacy client that can be asked has a session of its own at a server of both eras."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.client.scripted_http import Reply, Request, result, rpc
from tests.client.scripted_http import text as said
from tests.gateway.backs import Recorded, behind
from tests.gateway.test_hostile_backs import over_http

from toolwire import Client, Context, Server
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.revisions import LEGACY, MODERN

ASKED: dict[str, dict[str, Any]] = {
    "elicitation": {"elicit": lambda message, params: {}},
    "sampling": {"sample": lambda params: "It is."},
    "roots": {"roots": ["file:///work"]},
}


def of_both_eras() -> Server:
    server = Server("both")

    @server.tool
    def era(ctx: Context) -> str:
        return ctx.revision

    @server.prompt
    def old(ctx: Context) -> str:
        return ctx.revision

    @server.resource("era://now")
    def now(ctx: Context) -> str:
        return ctx.revision

    return server


async def eras(client: Client) -> set[str]:
    """Return the revisions in which the server is spoken to."""
    prompt = await client.get_prompt("b_old")
    read = await client.read_resource("era://now")
    return {(await client.call_tool("b_era")).text, prompt.messages[0].content.text, str(read[0].text)}


@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize(
    ("front", "asked"),
    # Before 2025-06-18 there was no elicitation.
    [(front, asked) for front in LEGACY for asked in ASKED if asked != "elicitation" or front >= "2025-06-18"],
)
async def test_a_legacy_client_that_can_be_asked_has_a_legacy_session(over: str, front: str, asked: str) -> None:
    recorded = Recorded()
    async with behind(of_both_eras(), over, recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with Client(gateway, revision=front, **ASKED[asked]) as client, Client(gateway, revision=front) as bare:
            assert await eras(client) == {"2025-11-25"}
            assert await eras(bare) == {MODERN}
            assert len(recorded.sent("initialize")) == 1
            assert asked in recorded.sent("initialize")[0]["params"]["capabilities"]
            assert gateway.backs["b"].revision == MODERN


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_a_modern_client_shares_the_modern_connection(over: str) -> None:
    recorded = Recorded()
    async with behind(of_both_eras(), over, recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with Client(gateway, revision=MODERN, **ASKED["elicitation"], **ASKED["roots"]) as client:
            assert await eras(client) == {MODERN}
    assert not recorded.sent("initialize")


@pytest.mark.parametrize("pinned", [MODERN, "2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("asked", [*ASKED, None])
async def test_the_operator_can_pin_either_era(pinned: str, asked: str | None) -> None:
    gateway = Gateway("front").add("b", of_both_eras(), revision=pinned)
    async with Client(gateway, revision="2025-11-25", **ASKED.get(asked or "", {})) as client:
        assert await eras(client) == {pinned}


async def test_a_server_of_the_new_era_alone_refuses_once_and_is_used() -> None:
    listed = t.ListToolsResult(tools=[t.Tool("era", {"type": "object"})], ttl_ms=0, cache_scope="private")
    server = FakeServer(
        {
            "tools/list": lambda request, outlet: listed,
            "tools/call": lambda request, outlet: text(request.revision),
        },
        capabilities={"tools": {}},
        revisions=(MODERN,),
    )
    recorded = Recorded()
    async with behind(cast("Server", server), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with (
            Client(gateway, revision="2025-11-25", **ASKED["elicitation"]) as one,
            Client(gateway, revision="2025-11-25", **ASKED["roots"]) as two,
        ):
            for client in (one, two, one):
                assert (await client.call_tool("b_era")).text == MODERN
    assert len(recorded.sent("initialize")) == 1


FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@cases("refusal", [*((status, has_body) for status in (400, 404, 405, 406, 422) for has_body in (True, False))])
@cases("asked", ASKED)
async def test_server_that_refuses_the_handshake_with_a_status_is_used_on_its_revision(
    refusal: tuple[int, bool], asked: str
) -> None:
    status, has_body = refusal

    def call(request: Request, count: int) -> Reply:
        if request.message["params"].get("inputResponses"):
            return result(request, content=said("answered"))
        if request.message["params"].get("arguments", {}).get("ask"):
            return result(
                request,
                resultType="input_required",
                inputRequests={"k": {"method": "elicitation/create", "params": FORM}},
            )
        return result(request, content=said("called"))

    body = rpc(id=1, error={"code": -32022, "message": "no", "data": {"supported": [MODERN]}}) if has_body else b""
    requests: list[str] = []
    target = over_http(requests, tools_call=call, initialize=Reply(status, body=body))
    gateway = Gateway("front").add("bad", target)
    async with (
        Client(gateway, revision="2025-11-25", **ASKED[asked]) as one,
        Client(gateway, revision="2025-11-25", **ASKED["elicitation"]) as two,
    ):
        assert (await one.call_tool("bad_run")).text == "called"
        assert (await two.call_tool("bad_run", {"ask": True})).text == "answered"
        assert (await one.call_tool("bad_run")).text == "called"
    assert requests.count("initialize") == 1 and "GET" not in requests


@cases("status", [500, 503, 429])
async def test_server_that_has_too_much_to_do_is_asked_for_a_session_again(status: int) -> None:
    requests: list[str] = []
    gateway = Gateway("front").add("bad", over_http(requests, initialize=Reply(status)))
    async with Client(gateway, revision="2025-11-25", **ASKED["roots"]) as client:
        for _ in range(2):
            assert (await client.call_tool("bad_run")).is_error
    assert requests.count("initialize") >= 2 and "tools/call" not in requests


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_each_legacy_client_has_one_session_for_all_its_calls(over: str) -> None:
    recorded = Recorded()
    async with behind(of_both_eras(), over, recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with (
            Client(gateway, revision="2025-11-25", **ASKED["roots"]) as one,
            Client(gateway, revision="2025-11-25", **ASKED["roots"]) as two,
        ):
            for client in (one, two, one, two):
                assert await eras(client) == {"2025-11-25"}
    assert len(recorded.sent("initialize")) == 2


async def test_a_question_in_a_legacy_session_reaches_its_client_alone() -> None:
    server = Server("both")

    @server.tool
    async def name(ctx: Context) -> str:
        return str((await ctx.elicit("Who?", str)).data)

    gateway = Gateway("front").add("b", server)
    async with (
        Client(gateway, revision="2025-11-25", elicit=lambda message, params: {"value": "Ann"}) as ann,
        Client(gateway, revision="2025-11-25", elicit=lambda message, params: {"value": "Bob"}) as bob,
    ):
        assert [(await each.call_tool("b_name")).text for each in (ann, bob, ann)] == ["Ann", "Bob", "Ann"]


class Notifying(FakeServer):
    """A server of both eras that announces updates in the session or stream that asked for them, and nowhere else."""

    def __init__(self, *, subscribes: bool) -> None:
        handlers: dict[str, Any] = {
            "resources/list": lambda request, outlet: t.ListResourcesResult(
                resources=[t.Resource(name="now", uri="era://now")], ttl_ms=0, cache_scope="private"
            ),
            "resources/templates/list": lambda request, outlet: t.ListResourceTemplatesResult(
                resource_templates=[], ttl_ms=0, cache_scope="private"
            ),
            "resources/subscribe": self.subscribe,
            "subscriptions/listen": self.listen,
        }
        super().__init__(handlers, capabilities={"resources": {"subscribe": True}})
        self.subscribes = subscribes
        self.subscribers: list[Any] = []
        self.listeners: list[Any] = []

    def capabilities(self, revision: str) -> dict[str, Any]:
        return self.declared if revision == MODERN or self.subscribes else {"resources": {}}

    def subscribe(self, request: Any, outlet: Any) -> t.Result:
        self.subscribers.append(outlet)
        return t.Result()

    async def listen(self, request: Any, outlet: Any) -> Any:
        wanted = request.params.notifications
        self.listeners.append((request, outlet))
        meta = {t.SUBSCRIPTION_ID_KEY: request.id}
        acknowledged = t.SubscriptionsAcknowledgedNotificationParams(notifications=wanted, meta=meta)
        outlet.notify("notifications/subscriptions/acknowledged", acknowledged)
        await asyncio.Event().wait()

    def update(self) -> None:
        updated = "notifications/resources/updated"
        for outlet in self.subscribers:
            outlet.connection.notify(updated, t.ResourceUpdatedNotificationParams(uri="era://now"))
        for request, outlet in self.listeners:
            meta = {t.SUBSCRIPTION_ID_KEY: request.id}
            outlet.notify(updated, t.ResourceUpdatedNotificationParams(uri="era://now", meta=meta))


@pytest.mark.parametrize("subscribes", [True, False])
async def test_update_in_a_legacy_session_reaches_its_client(subscribes: bool) -> None:
    """Where the server takes no subscriptions in sessions, those of the new era count."""
    server = Notifying(subscribes=subscribes)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with (
        Client(gateway, revision="2025-11-25", **ASKED["roots"]) as client,
        client.listen(resources=["era://now"]) as changes,
    ):
        told = aiter(changes)
        assert bool(server.subscribers) is subscribes
        server.update()
        async with asyncio.timeout(20):
            assert (await anext(told)).uri == "era://now"
