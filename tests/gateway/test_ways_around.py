"""Ways around the rules of a gateway: other spellings, and addresses and methods that no list has."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from tests.gateway.backs import Recorded, behind, listens, until
from tests.gateway.test_remote_extensions import NOTES, OTHER, noting

from toolwire import Client, Context, Policy, Resource, Server, testing
from toolwire.auth import Principal
from toolwire.gateway import Gateway
from toolwire.protocol.errors import InsufficientScope, ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.server.shaping import ResourceShape, Shape

BACKS = pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
FRONTS = pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
STAFF, GUEST = Principal("ann", scopes=frozenset({"staff"})), Principal("bob")


def notes() -> Server:
    """Make a server that reads addresses which it does not list, too."""
    server = Server("notes")

    @server.tool
    def plain() -> str:
        return "plain"

    @server.prompt
    def brief() -> str:
        return "brief"

    @server.resource("note://open", name="open")
    def open_note() -> str:
        return "open"

    @server.resource("note://closed", name="closed")
    def closed_note() -> str:
        return "closed"

    @server.resource("box://{name}", name="box")
    def box(name: str) -> str:
        return name

    @server.use
    async def read_everything(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "resources/read":
            return await call_next(ctx)
        return {"contents": [{"uri": "note://read", "text": "read"}], "ttlMs": 0, "cacheScope": "private"}

    return server


@BACKS
@FRONTS
@pytest.mark.parametrize(
    ("method", "params", "lookalikes"),
    [
        ("tools/call", {"name": "b_plain", "arguments": {}}, ["Name", "ARGUMENTS", "argument\u017f", "Task"]),
        ("tools/call", {"name": "b_plain"}, ["request_state", "RequestState", "meta", "_Meta", "task_"]),
        ("prompts/get", {"name": "b_brief"}, ["NAME", "Arguments", "input_responses"]),
        ("resources/read", {"uri": "note://open"}, ["URI", "Uri"]),
    ],
)
async def test_a_server_gets_no_member_that_it_may_take_for_one_that_was_judged(
    front: str, back: str, method: str, params: dict[str, Any], lookalikes: list[str]
) -> None:
    recorded = Recorded()
    async with behind(notes(), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target, revision=back)
        async with Client(gateway, revision=front) as client:
            for _ in range(2):  # The second request is a plain one.
                more: dict[str, Any] = {name: {"name": "other"} for name in lookalikes}
                await client.request(method, {**params, "com.example/z": 1, **more})
            for sent in recorded.sent(method):
                assert sent["params"]["com.example/z"] == 1
                assert not sent["params"].keys() & {*lookalikes}


@BACKS
@pytest.mark.parametrize("deny", ["box", "box://{name}"])
async def test_the_addresses_of_a_template_that_is_denied_are_not_read(back: str, deny: str) -> None:
    gateway = Gateway("front").add("b", notes(), revision=back, shape=Shape(deny_resources=[deny]))
    async with Client(gateway) as client:
        for uri in ("box://one", "BOX://one", "box://%6fne"):
            with pytest.raises(ProtocolError, match="not found"):
                await client.read_resource(uri)
        assert (await client.read_resource("other://one"))[0].text == "read"


@BACKS
@FRONTS
async def test_no_address_of_a_server_is_read_by_a_caller_who_does_not_see_the_server(back: str, front: str) -> None:
    gateway = Gateway("front").add("b", notes(), revision=back, shape=Shape(visible_to="staff"))
    async with (
        testing.connect(gateway, revision=front, principal=STAFF) as (staff, _),
        testing.connect(gateway, revision=front, principal=GUEST) as (guest, _),
    ):
        for uri in ("note://open", "NOTE://open", "other://one"):
            assert (await staff.read_resource(uri))[0].text == "read"
            with pytest.raises(ProtocolError, match="not found"):
                await guest.read_resource(uri)


@BACKS
async def test_no_address_of_a_server_is_read_without_the_scopes_of_the_server(back: str) -> None:
    gateway = Gateway("front").add("b", notes(), revision=back, shape=Shape(scopes="staff"))
    async with (
        testing.connect(gateway, principal=STAFF) as (staff, _),
        testing.connect(gateway, principal=GUEST) as (guest, _),
    ):
        for uri in ("note://open", "NOTE://open", "other://one"):
            assert (await staff.read_resource(uri))[0].text == "read"
            with pytest.raises((InsufficientScope, ProtocolError), match="staff"):
                await guest.read_resource(uri)


@BACKS
async def test_of_two_servers_an_unlisted_address_is_read_at_those_that_a_caller_may_use(back: str) -> None:
    recorded = Recorded()
    async with behind(notes(), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target, revision=back, shape=Shape(scopes="staff"))
        gateway.add("c", notes(), revision=back)
        async with testing.connect(gateway, principal=GUEST) as (guest, _):
            assert (await guest.read_resource("note://one"))[0].text == "read"
    assert not recorded.sent("resources/read")


@BACKS
@pytest.mark.parametrize("rule", [{"visible_to": "staff"}, {"scopes": "staff"}])
@pytest.mark.parametrize("uri", ["NOTE://closed", "note://%63losed", "note://closed#top", "note://closed/"])
async def test_rules_of_a_resource_hold_in_each_spelling_of_its_address(
    back: str, rule: dict[str, Any], uri: str
) -> None:
    shape = Shape(resources={"closed": ResourceShape(**rule)})
    gateway = Gateway("front").add("b", notes(), revision=back, shape=shape)
    async with testing.connect(gateway, principal=GUEST) as (guest, _):
        with pytest.raises(ProtocolError):
            await guest.read_resource(uri)


@BACKS
@FRONTS
async def test_a_server_hears_nothing_of_a_subscription_to_a_resource_that_is_denied(back: str, front: str) -> None:
    recorded = Recorded()
    async with behind(notes(), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target, revision=back, shape=Shape(deny_resources=["closed", "box"]))
        async with Client(gateway, revision=front) as client:
            await until(lambda: listens(recorded, back))
            async with client.listen(resources=["note://closed", "box://one", "note://open"]):
                await until(lambda: "note://open" in str(recorded.sent()))
        assert "note://closed" not in str(recorded.sent())
        assert "box://one" not in str(recorded.sent())


@FRONTS
@pytest.mark.parametrize("rule", [{"visible_to": "staff"}, {"scopes": "staff"}])
async def test_a_method_of_an_extension_is_not_sent_to_a_server_that_a_caller_may_not_use(
    front: str, rule: dict[str, Any]
) -> None:
    gateway = Gateway("front").add("one", noting(NOTES, "unlike", needs_client=False), shape=Shape(**rule))
    gateway.add("two", noting(OTHER, "neither", needs_client=False))
    declared: dict[str, Any] = {NOTES: {}, OTHER: {}}
    async with (
        testing.connect(gateway, revision=front, principal=STAFF, extensions=declared) as (staff, _),
        testing.connect(gateway, revision=front, principal=GUEST, extensions=declared) as (guest, _),
    ):
        for prefix in ("unlike", "neither"):
            assert (await staff.request(f"{prefix}/find"))["unknown"] == {"of": prefix}
        with pytest.raises((InsufficientScope, ProtocolError)):
            await guest.request("unlike/find")


@BACKS
@FRONTS
@pytest.mark.parametrize(("method", "name"), [("tools/call", "b_show"), ("prompts/get", "b_tell")])
async def test_a_server_gets_the_arguments_that_were_judged_and_none_that_it_may_take_for_them(
    back: str, front: str, method: str, name: str
) -> None:
    server, recorded = Server("notes"), Verbatim()

    @server.tool
    def show(path: str) -> str:
        return "shown"

    @server.prompt
    def tell(path: str) -> str:
        return "told"

    policy = Policy(rules={"path": lambda value: None if value == "/open" else "it is closed"})
    async with behind(server, "memory", recorded) as target:
        gateway = Gateway("front", policy=policy).add("b", target, revision=back)
        async with Client(gateway, revision=front) as client:
            twice = Raw(b'{"path":"/closed","path":"/open"}')
            await client.request(method, {"name": name, "arguments": twice})
            for other in ("Path", "PATH"):
                answer = await refusal(client, method, {"name": name, "arguments": {"path": "/open", other: "/closed"}})
                assert "it is closed" in answer
    assert b"/open" in recorded.whole
    assert b"/closed" not in recorded.whole


class Verbatim(Recorded):
    """The messages to a server, byte for byte."""

    whole = b""

    def record(self, direction: Any, data: bytes) -> None:
        super().record(direction, data)
        self.whole += bytes(data) if direction == "→" else b""


async def refusal(client: Client, method: str, params: dict[str, Any]) -> str:
    try:
        return str(await client.request(method, params))
    except ProtocolError as error:
        return str(error)


def documents() -> Server:
    """Make a server with a resource, a narrow template and a wide one that has all their addresses."""
    server = Server("documents")

    @server.resource("doc://hr/salaries", tags=["secret"])
    def salaries() -> str:
        return "salaries"

    @server.resource("doc://hr/staff/{name}", name="person")
    def person(name: str) -> str:
        return f"person {name}"

    @server.resource("doc://{+path}", name="any")
    def any_document(path: str) -> str:
        return f"any {path}"

    return server


HIDDEN = {
    "resource": Shape(resources={"doc://hr/salaries": ResourceShape(visible_to="staff")}),
    "template": Shape(resources={"person": ResourceShape(visible_to="staff")}),
    "scopes": Shape(resources={"doc://hr/salaries": ResourceShape(scopes="staff")}),
    "function": Shape(resources={"doc://hr/salaries": ResourceShape(visible_to=lambda caller: caller == STAFF)}),
}


@BACKS
@FRONTS
@pytest.mark.parametrize(
    ("hidden", "uri", "shown"),
    [
        ("resource", "doc://hr/salaries", "salaries"),
        ("function", "doc://hr/salaries", "salaries"),
        ("resource", "doc://hr/%73alaries", ""),
        ("template", "doc://hr/staff/ann", "person ann"),
        ("template", "doc://hr/%73taff/ann", ""),
        ("scopes", "doc://hr/%73alaries", ""),
    ],
)
async def test_hidden_resource_is_not_read_by_a_wider_template(
    back: str, front: str, hidden: str, uri: str, shown: str
) -> None:
    gateway = Gateway("front").add("b", documents(), revision=back, shape=HIDDEN[hidden])
    async with (
        testing.connect(gateway, revision=front, principal=STAFF) as (staff, _),
        testing.connect(gateway, revision=front, principal=GUEST) as (guest, _),
    ):
        with pytest.raises(ProtocolError, match="not found"):
            await guest.read_resource(uri)
        assert (await guest.read_resource("doc://other"))[0].text == "any other"
        if uri in ("doc://hr/salaries", "doc://hr/staff/ann"):
            assert (await staff.read_resource(uri))[0].text == shown


@BACKS
async def test_resource_with_a_restricted_tag_is_not_read_by_a_wider_template(back: str) -> None:
    gateway = Gateway("front").add("b", documents(), revision=back)
    gateway.restrict("secret", visible_to="staff")
    async with (
        testing.connect(gateway, principal=STAFF) as (staff, _),
        testing.connect(gateway, principal=GUEST) as (guest, _),
    ):
        assert (await staff.read_resource("doc://hr/salaries"))[0].text == "salaries"
        with pytest.raises(ProtocolError, match="not found"):
            await guest.read_resource("doc://hr/salaries")


@FRONTS
async def test_hidden_address_is_answered_as_a_missing_one(front: str) -> None:
    gateway = Gateway("front").add("hidden", notes(), shape=Shape(visible_to="staff"))
    gateway.add("one", documents(), shape=Shape(deny_resources=["any", "person"]))
    gateway.add("two", Server("two").add(*_listed("doc://two")))
    async with testing.connect(gateway, revision=front, principal=GUEST) as (guest, _):
        errors = []
        for uri in ("note://open", "note://missing", "doc://missing"):
            with pytest.raises(ProtocolError) as caught:
                await guest.read_resource(uri)
            errors.append((caught.value.code, caught.value.message))
        assert len(set(errors)) == 1


def _listed(uri: str) -> list[Resource]:
    return [Resource(uri, content="listed")]


@FRONTS
async def test_missing_server_is_named_only_to_callers_who_see_it(front: str) -> None:
    gateway = Gateway("front").add("here", documents())
    gateway.add("away", "http://127.0.0.1:9/mcp", shape=Shape(visible_to="staff"))
    async with (
        testing.connect(gateway, revision=front, principal=STAFF) as (staff, _),
        testing.connect(gateway, revision=front, principal=GUEST) as (guest, _),
    ):
        assert (await staff.request("tools/list", {}))["_meta"]["io.toolwire/missing"] == ["away"]
        assert "io.toolwire/missing" not in (await guest.request("tools/list", {})).get("_meta", {})
        with pytest.raises(ProtocolError, match="'away' is missing"):
            await staff.call_tool("away_do")
        with pytest.raises(ProtocolError, match=r"Unknown tool: away_do \(code"):
            await guest.call_tool("away_do")


def renamed_rules() -> dict[str, Shape]:
    return {
        "deny": Shape(deny_resources=["note://x/private", "note://t/*", "skill://secret/*"]),
        "pattern": Shape(deny_resources=["note://x/p*", "note://t/{name}", "skill://secret/**"]),
        "allow": Shape(allow_resources=["note://x/open"]),
        "visible_to": Shape(
            resources={
                "note://x/private": ResourceShape(visible_to="staff"),
                "note://t/{name}": ResourceShape(visible_to="staff"),
            }
        ),
        "scopes": Shape(
            resources={
                "note://x/private": ResourceShape(scopes="staff"),
                "note://t/{name}": ResourceShape(scopes="staff"),
            }
        ),
    }


def colliding(name: str) -> Server:
    """Make a server whose addresses another one has, too."""
    server = Server(name)
    for each in ("private", "open"):
        server.add(Resource(f"note://x/{each}", content=f"{each} of {name}"))

    @server.resource("note://t/{name}")
    def template(name: str) -> str:
        return f"template {name}"

    return server


@BACKS
@pytest.mark.parametrize("rule", list(renamed_rules()))
@pytest.mark.parametrize("front", [MODERN])
async def test_shape_holds_for_addresses_that_an_earlier_server_has(back: str, front: str, rule: str) -> None:
    gateway = Gateway("front").add("first", colliding("first"))
    gateway.add("second", colliding("second"), revision=back, shape=renamed_rules()[rule])
    async with testing.connect(gateway, revision=front, principal=GUEST) as (guest, _):
        listed = [each.uri for each in await guest.list_resources()]
        assert "note://second/x/open" in listed
        assert (await guest.read_resource("note://second/x/open"))[0].text == "open of second"
        assert "note://second/x/private" not in listed or rule == "scopes"
        for uri in (
            "note://second/x/private",
            "note://second/x/%70rivate",
            "note://second/x/../x/private",
            "note://second/t/one",
            "note://second/%74/one",
        ):
            with pytest.raises((ProtocolError, InsufficientScope)):
                await guest.read_resource(uri)
        assert (await guest.read_resource("note://x/private"))[0].text == "private of first"


async def test_mask_of_a_shape_holds_for_an_address_that_an_earlier_server_has() -> None:
    shape = Shape(resources={"note://x/private": ResourceShape(policy=Policy(mask=[r"private"]))})
    gateway = Gateway("front").add("first", colliding("first")).add("second", colliding("second"), shape=shape)
    async with Client(gateway) as client:
        assert "private" not in str((await client.read_resource("note://second/x/private"))[0].text)
