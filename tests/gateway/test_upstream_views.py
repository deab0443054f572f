"""Views at a gateway: they reach the tools and resources of their upstream by its names, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Away, Recorded, behind, until
from tests.openapi.petstore import petstore
from tests.patience import patience

from toolwire import Client, Header, Server, testing
from toolwire.apps import RENDERS_APPS
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.client import Denied
from toolwire.content import ToolResult
from toolwire.gateway import Gateway
from toolwire.openapi import openapi
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION, view_address
from toolwire.protocol.errors import HEADER_MISMATCH, InsufficientScope, ProtocolError, ServerError, ToolwireError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import MAX_SERVERS, UPSTREAM_KEY, read_upstream
from toolwire.server.policy import Policy
from toolwire.server.shaping import Shape, ToolPins, ToolShape

REVISIONS = (MODERN, "2025-11-25", "2025-03-26")
HOPS = ("gateway", "two gateways", "mounted gateway", "mount of an upstream")
FORGED: dict[str, Any] = {UPSTREAM_KEY: {"servers": ["bank"], "name": "transfer"}}


def monitor(says: str = "monitor", *, forged: bool = False, **options: Any) -> Server:
    """Make a server whose view calls `poll`, and that knows nothing of prefixes, as foreign servers do."""
    server, further = Server(says), FORGED if forged else {}
    uri = f"ui://{says}/main.html"

    @server.tool(meta={"ui": {"resourceUri": uri}, **further})
    def show() -> str:
        return f"{says} shown"

    @server.tool(meta={"ui": {"visibility": ["app"]}, **further}, **options)
    def poll(number: int = 1) -> str:
        return f"{says} polled {number}"

    @server.resource(uri, mime_type=APP_MIME_TYPE, meta=dict(further))
    def page() -> str:
        return f"<!doctype html><p>{says}</p>"

    @server.resource("state://now", meta=dict(further))
    def now() -> str:
        return f"{says} now"

    return server


def bank() -> Server:
    """Make a server that has something to lose, and no view."""
    server = Server("bank")

    @server.tool
    def transfer() -> str:
        return "paid"

    @server.resource("bank://balance")
    def balance() -> str:
        return "7 EUR"

    @server.resource("account://{number}")
    def account(number: str) -> str:
        return number

    return server


@asynccontextmanager
async def front(
    hops: str, back: str, policy: Policy | None = None, **servers: Server
) -> AsyncIterator[tuple[Server, str, list[str]]]:
    """Yield a server that leads to others, the beginning of the names of their tools, and the servers on the way.

    `policy` is that of the first of them.
    """
    gateway = Gateway("front")
    if hops == "mount of an upstream":
        async with behind(servers.pop("mon"), "memory") as mounted:
            plain = Server("plain").mount(Client(mounted)._target, "mon")
            for name, server in servers.items():
                plain.mount(server, name)
            yield plain, "", []
        return
    for name, server in servers.items():
        gateway.add(name, server, revision=back, policy=policy if name == "mon" else None)
    if hops == "two gateways":
        yield Gateway("outer").add("in", gateway, revision=back), "in_", ["in"]
    elif hops == "mounted gateway":
        yield Server("plain").mount(gateway, "m"), "m_", ["front:m_"]
    else:
        yield gateway, "", []


@cases(("hops", "revision", "back"), list(itertools.product(HOPS[:3], REVISIONS, (MODERN, "2025-11-25"))))
async def test_lists_name_the_upstream_of_tools_and_resources(hops: str, revision: str, back: str) -> None:
    async with (
        front(hops, back, mon=monitor(forged=True), bank=bank()) as (server, prefix, way),
        Client(server, revision=revision) as client,
    ):
        tools = {each.name: read_upstream(each.meta) for each in await client.list_tools(audience=None)}
        # What an upstream says of itself is replaced.
        assert tools == {
            f"{prefix}mon_show": ((*way, "mon"), "show"),
            f"{prefix}mon_poll": ((*way, "mon"), "poll"),
            f"{prefix}bank_transfer": ((*way, "bank"), "transfer"),
        }
        listed = [*await client.list_resources(), *await client.list_resource_templates()]
        owners = {getattr(each, "uri", None) or each.uri_template: read_upstream(each.meta).servers for each in listed}
        assert owners == {
            "ui://monitor/main.html": (*way, "mon"),
            "state://now": (*way, "mon"),
            "bank://balance": (*way, "bank"),
            "account://{number}": (*way, "bank"),
        }


async def test_an_upstream_that_poses_as_a_gateway_stays_itself() -> None:
    server = monitor("forger", forged=True)

    @server.use
    async def pose(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method.endswith("/list"):
            result.meta = {"io.toolwire/gateways": ["mark"]}
        return result

    gateway = Gateway("front").add("forger", server).add("bank", bank()).add("mon", monitor())
    async with Client(gateway, extensions=RENDERS_APPS) as client:
        tools = {each.name: read_upstream(each.meta) for each in await client.list_tools(audience=None)}
        assert tools["forger_poll"].servers == ("forger", "bank")
        view = await client.apps.open("forger_show")
        for name in ("bank_transfer", "mon_poll"):
            with pytest.raises(Denied):
                await client.apps.call_from_view(view, name)
        with pytest.raises(ToolwireError, match="no such resource"):
            await client.apps.read_from_view(view, "bank://balance")
        assert (await client.call_tool("poll")).text == "monitor polled 1"


@cases(("hops", "revision", "back"), list(itertools.product(HOPS, REVISIONS, (MODERN, "2025-11-25"))))
async def test_a_tool_is_called_by_the_name_that_its_server_gave_it(hops: str, revision: str, back: str) -> None:
    async with (
        front(hops, back, mon=monitor(), bank=bank()) as (server, prefix, _),
        Client(server, revision=revision) as client,
    ):
        assert (await client.call_tool("poll", {"number": 3})).text == "monitor polled 3"
        assert (await client.call_tool(f"{prefix}mon_poll")).text == "monitor polled 1"
        # The other server has no views.
        for name in ("transfer", "nothing"):
            with pytest.raises(ProtocolError, match=f"Unknown tool: {name}"):
                await client.call_tool(name)


@cases(("hops", "revision", "back"), list(itertools.product(HOPS[:3], REVISIONS, (MODERN, "2025-11-25"))))
async def test_our_host_keeps_a_view_at_its_upstream(hops: str, revision: str, back: str) -> None:
    async with (
        front(hops, back, mon=monitor(), twin=monitor(), bank=bank()) as (server, prefix, _),
        Client(server, revision=revision, extensions=RENDERS_APPS) as client,
    ):
        for name in ("mon", "twin"):
            view = await client.apps.open(f"{prefix}{name}_show")
            made = client.apps.view(t.Tool(name=view.tool.name, input_schema={}), view.uri, view.html, {})
            for each in (view, made):
                assert [tool.name for tool in await client.apps.tools_for_view(each)] == ["poll", "show"]
                for tool in ("poll", f"{prefix}{name}_poll"):
                    assert (await client.apps.call_from_view(each, tool)).text == "monitor polled 1"
                other = {"mon": "twin", "twin": "mon"}[name]
                for tool in (f"{prefix}{other}_poll", f"{prefix}bank_transfer", "transfer", "bank_transfer"):
                    with pytest.raises(Denied, match="its server does not list"):
                        await client.apps.call_from_view(each, tool)
                for uri in ("bank://balance", "account://7"):
                    with pytest.raises(ToolwireError, match="no such resource"):
                        await client.apps.read_from_view(each, uri)
                inside = "" if name == "mon" else "twin/"
                assert (await client.apps.read_from_view(each, f"state://{inside}now"))[0].text == "monitor now"
                uris = {listed.uri for listed in await client.apps.resources_for_view(each)}
                assert uris == {f"ui://{inside}monitor/main.html", f"state://{inside}now"}
                assert await client.apps.templates_for_view(each) == []
        with pytest.raises(Denied, match="is not listed any more"):
            await client.apps.tools_for_view(client.apps.view(_gone(client), "ui://gone", "", {}))


def _gone(client: Client) -> t.Tool:
    return t.Tool(name="gone", input_schema={})


async def test_a_view_of_the_second_server_reads_its_own_uri_as_its_server_names_it() -> None:
    gateway = Gateway("front").add("mon", monitor()).add("twin", monitor("twin"))
    async with Client(gateway) as client:
        view = await client.apps.open("twin_show")
        assert (await client.apps.read_from_view(view, "state://now"))[0].text == "twin now"
        assert (await client.read_resource("state://now"))[0].text == "monitor now"


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("hops", HOPS[:3])
async def test_gateway_enforces_the_upstream_that_a_request_names(hops: str, revision: str) -> None:
    async with front(hops, MODERN, mon=monitor(), twin=monitor("twin"), bank=bank()) as (server, prefix, way):

        @server.tool
        def own() -> str:
            return "of the gateway itself"

        async with Client(server, revision=revision) as client:

            async def call(name: str, *servers: str) -> str:
                return (await client.call_tool(name, meta={UPSTREAM_KEY: {"servers": [*way, *servers]}})).text

            assert await call("poll", "twin") == "twin polled 1"
            assert await call(f"{prefix}twin_poll", "twin") == "twin polled 1"
            for name in (f"{prefix}mon_poll", f"{prefix}bank_transfer", "own", "transfer", "nothing"):
                with pytest.raises(ProtocolError, match="The server of the view has no tool"):
                    await call(name, "twin")
            with pytest.raises(ProtocolError, match="The server of the view has no tool"):
                await call("poll", "nobody")
            for uri in ("bank://balance", "account://7", "ui://monitor/main.html"):
                with pytest.raises(ProtocolError, match="no such resource"):
                    await client.read_resource(uri, meta={UPSTREAM_KEY: {"servers": [*way, "twin"]}})


@pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
async def test_an_upstream_gets_no_name_of_another_server(back: str) -> None:
    recorded = Recorded()
    async with behind(monitor(), "memory", recorded) as target:
        gateway = Gateway("front").add("mon", target, revision=back)
        async with Client(gateway) as client:
            view = await client.apps.open("mon_show")
            await client.apps.call_from_view(view, "poll")
            await client.apps.read_from_view(view, "state://now")
    assert recorded.sent("tools/call") and recorded.sent("resources/read")
    assert UPSTREAM_KEY not in str(recorded.sent())


# --- a name that may be two ---


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_name_that_two_upstreams_have_is_refused(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway("front").add("mon", monitor()).add("twin", monitor("twin"))
    async with Client(gateway, revision=revision) as client:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="may be 'mon_poll' or 'twin_poll': call it by one of these names"):
                await client.call_tool("poll")
        # Some hosts say which view a call is from.
        for uri, says in (("ui://monitor/main.html", "monitor"), ("ui://twin/main.html", "twin")):
            called = await client.call_tool("poll", meta={"ui": {"resourceUri": uri}})
            assert called.text == f"{says} polled 1"
        with pytest.raises(ProtocolError, match="may be"):
            await client.call_tool("poll", meta={"ui": {"resourceUri": "ui://nobody/main.html"}})
    assert caplog.text.count("a view called 'poll', which may be 'mon_poll' or 'twin_poll'") == 1


@pytest.mark.parametrize("shape", [Shape(deny=["poll"]), Shape(visible_to="staff")])
async def test_a_tool_that_is_taken_away_leaves_its_name_to_no_other(shape: Shape) -> None:
    gateway = Gateway("front").add("mon", monitor()).add("twin", monitor("twin"), shape=shape)
    async with testing.connect(gateway, principal=Principal("bob")) as (client, _):
        with pytest.raises(ProtocolError, match="Unknown tool: poll"):
            await client.call_tool("poll")
        assert (await client.call_tool("mon_poll")).text == "monitor polled 1"


async def test_a_listed_name_stays_what_it_is() -> None:
    gateway = Gateway("front").add("mon", monitor()).add("other", bank(), prefix="")

    @gateway.tool
    def poll() -> str:
        return "of the gateway"

    async with Client(gateway) as client:
        assert (await client.call_tool("poll")).text == "of the gateway"
        assert (await client.call_tool("transfer")).text == "paid"
        view = await client.apps.open("mon_show")
        assert (await client.apps.call_from_view(view, "poll")).text == "monitor polled 1"
        with pytest.raises(Denied):
            await client.apps.call_from_view(view, "transfer")


# --- no way around a restriction ---


@pytest.mark.parametrize("hops", HOPS[:3])
@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
async def test_the_inner_name_is_judged_as_the_public_one(hops: str, revision: str) -> None:
    staff, guest = Principal("ann", scopes=frozenset({"staff"})), Principal("bob")
    async with front(hops, MODERN, mon=monitor(scopes="staff"), bank=bank()) as (server, prefix, _):
        for over in ("memory", "http"):
            async with testing.connect(server, revision=revision, over=over, principal=guest) as (client, _):
                for name in ("poll", f"{prefix}mon_poll"):
                    with pytest.raises(ToolwireError) as raised:
                        await client.call_tool(name)
                    assert isinstance(raised.value, InsufficientScope) or "scope" in str(raised.value), name
            async with testing.connect(server, revision=revision, over=over, principal=staff) as (client, _):
                assert (await client.call_tool("poll")).text == "monitor polled 1"


@pytest.mark.parametrize("hops", HOPS[:3])
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
async def test_policies_count_both_names_together_for_each_caller(revision: str, over: Any, hops: str) -> None:
    policy = Policy(by_principal=lambda caller: Policy(rate="2/hour", mask=["monitor"]))
    async with front(hops, MODERN, policy, mon=monitor(), bank=bank()) as (server, prefix, way):
        for name in ("ann", "bob") if hops != "two gateways" else ("ann",):
            async with testing.connect(server, revision=revision, over=over, principal=Principal(name)) as (client, _):
                assert "monitor" not in (await client.call_tool("poll")).text
                meta = {UPSTREAM_KEY: {"servers": [*way, "mon"]}}
                assert "monitor" not in (await client.call_tool(f"{prefix}mon_poll", meta=meta)).text
                for tool in ("poll", f"{prefix}mon_poll"):
                    assert "2 calls" in (await client.call_tool(tool)).text


async def test_headers_repeat_the_arguments_of_an_inner_name_too() -> None:
    server = monitor()

    @server.tool(meta={"ui": {"visibility": ["app"]}})
    def ask(region: Annotated[str, Header("Region")] = "eu") -> str:
        return region

    gateway = Gateway("front").add("mon", server)
    async with testing.connect(gateway, revision=MODERN, over="http") as (client, _):
        right = {"mcp-param-region": "us"}
        assert (await client.call_tool("ask", {"region": "us"}, headers=right)).text == "us"
        for arguments in ({"region": "eu"}, {}):
            with pytest.raises(ProtocolError) as raised:
                await client.call_tool("ask", arguments, headers=right)
            assert raised.value.code == HEADER_MISMATCH


async def test_denied_withheld_and_renamed_tools() -> None:
    for shape, expected in (
        (Shape(deny=["poll"]), "Unknown tool: poll"),
        (Shape(visible_to="staff"), "Unknown tool: poll"),
        (Shape(tools={"poll": ToolShape(rename="ask", arguments={})}), "monitor polled 1"),
        (Shape(tools={"show": ToolShape(rename="poll")}, deny=["poll"]), "Unknown tool: poll"),
    ):
        gateway = Gateway("front").add("mon", monitor(), shape=shape)
        async with testing.connect(gateway, principal=Principal("bob")) as (client, _):
            try:
                says = (await client.call_tool("poll")).text
            except ProtocolError as error:
                says = error.message
            assert says.partition(";")[0] == expected, shape


async def test_a_tool_in_quarantine_stays_there() -> None:
    server, pins = monitor(), ToolPins()
    gateway = Gateway("front").add("mon", server, shape=Shape(pins=pins))
    async with Client(gateway) as client:
        await client.list_tools()
        server.remove("poll")

        @server.tool(meta={"ui": {"visibility": ["app"]}}, description="Another one")
        def poll() -> str:
            return "changed"

        async with patience("the tool in quarantine"):
            while not gateway.backs["mon"].quarantined:
                await asyncio.sleep(0.01)
        direct, inner = await client.call_tool("mon_poll"), await client.call_tool("poll")
        assert direct.is_error and direct.text == inner.text


async def test_audit_names_the_tool_that_ran() -> None:
    lines: list[str] = []
    gateway = Gateway("front", audit=AuditLog(lines.append, key="k" * 32)).add("mon", monitor())
    async with Client(gateway) as client:
        await client.call_tool("poll")
        with pytest.raises(ProtocolError):
            await client.call_tool("nothing", meta={UPSTREAM_KEY: {"servers": ["mon"]}})
    assert sum('"mon_poll"' in line for line in lines) == 1
    assert sum('"nothing"' in line for line in lines) == 1


# --- views=False ---


def shown() -> Server:
    """Make a server whose results have views."""
    server = monitor()

    @server.tool(meta={"com.example/x": 1})
    def embed() -> ToolResult:
        view = {"type": "resource", "resource": {"uri": "ui://monitor/more.html", "text": "<p>more</p>"}}
        link = {"type": "resource_link", "uri": "UI://monitor/main.html", "name": "main"}
        content: Any = [{"type": "text", "text": "kept"}, view, link]
        meta = {"ui": {"resourceUri": "ui://monitor/main.html"}, "com.example/x": 1}
        return ToolResult(content=content, meta=meta)

    @server.prompt
    def ask() -> Any:
        return "a question"

    return server


@pytest.mark.parametrize("revision", REVISIONS[:2])
@pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
async def test_views_are_taken_away_from_an_upstream(revision: str, back: str) -> None:
    recorded = Recorded()
    async with behind(shown(), "memory", recorded) as target:
        gateway = Gateway("front").add("mon", target, revision=back, views=False).add("twin", monitor("twin"))
        async with Client(gateway, revision=revision, extensions=RENDERS_APPS) as client:
            tools = {each.name: each for each in await client.list_tools(audience=None)}
            assert set(tools) == {"mon_show", "mon_embed", "twin_show", "twin_poll"}
            assert view_address(tools["mon_show"].meta) is None
            assert tools["mon_embed"].meta is not None and tools["mon_embed"].meta["com.example/x"] == 1
            assert {each.uri for each in await client.list_resources()} >= {"state://now", "ui://twin/main.html"}
            for uri in ("ui://monitor/main.html", "UI://monitor/main.html", "ui://monitor/other.html"):
                with pytest.raises(ProtocolError, match="not found"):
                    await client.read_resource(uri)
            result = await client.call_tool("mon_embed")
            assert [each.to_dict() for each in result.content] == [{"type": "text", "text": "kept"}]
            assert {key for key in result.meta if not key.startswith("io.modelcontextprotocol/")} == {"com.example/x"}
            # Its tools for views alone cannot be called by any name, and leave their names to others.
            for name in ("mon_poll",):
                with pytest.raises(ProtocolError, match="Unknown tool"):
                    await client.call_tool(name)
            assert (await client.call_tool("poll")).text == "twin polled 1"
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await client.call_tool("embed")
        assert gateway.backs["mon"].withheld == ()
    assert UI_EXTENSION not in str(recorded.sent("tools/call"))
    assert "ui://" not in str(recorded.sent("resources/read")).lower()


async def test_an_api_has_no_views_to_take_away() -> None:
    with pytest.raises(ServerError, match="is an API"):
        Gateway("front").add("pets", openapi(petstore(), base_url="http://127.0.0.1:1"), views=False)


# --- what a server says of its upstream ---


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "bank",
        [],
        ["bank"],
        {},
        {"servers": "bank"},
        {"servers": []},
        {"servers": [7]},
        {"servers": [""]},
        {"servers": ["x" * 201]},
        {"servers": ["x"] * (MAX_SERVERS + 1)},
    ],
)
def test_an_upstream_that_cannot_be_read_is_none(value: Any) -> None:
    assert read_upstream({UPSTREAM_KEY: value}).servers == ()


def test_a_name_that_cannot_be_read_is_none() -> None:
    assert read_upstream({UPSTREAM_KEY: {"servers": ["a"], "name": 7}}) == (("a",), None)
    assert read_upstream("x") == read_upstream(None) == ((), None)


@pytest.mark.parametrize("hops", HOPS[:3])
@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
async def test_a_task_of_the_inner_name_belongs_to_its_caller(revision: str, back: str, hops: str) -> None:
    staff, guest = Principal("ann", scopes=frozenset({"staff"})), Principal("bob", scopes=frozenset({"staff"}))
    server = monitor(task="optional", scopes="staff")
    async with (
        front(hops, back, mon=server, bank=bank()) as (gateway, _, _),
        testing.connect(gateway, revision=revision, principal=staff) as (ann, _),
        testing.connect(gateway, revision=revision, principal=guest) as (bob, _),
    ):
        handle = await ann.call_tool_as_task("poll", {"number": 4})
        assert (await handle.wait()).text == "monitor polled 4"
        with pytest.raises(ToolwireError):
            await bob.task(handle.id).status()


@cases(("revision", "back"), list(itertools.product(REVISIONS, (MODERN, "2025-11-25"))))
@cases("how", ["removed", "away", "away without prefix", "behind a mount"])
async def test_a_view_gets_no_calls_for_a_server_that_is_away(how: str, revision: str, back: str) -> None:
    prefix = "" if how == "away without prefix" else "bank_"
    server, other, target = monitor(), bank(), Away(bank())
    for name in ("bank_transfer", "transfer", "own"):
        server.tool(name)(lambda: "taken by the view")
    served: Server = Gateway("front")
    gateway = Gateway("inner") if how == "behind a mount" else served
    assert isinstance(gateway, Gateway)
    gateway.add("mon", server, revision=back)
    if how == "removed":
        gateway.add("bank", other, revision=back)
    else:
        gateway.add("bank", target, revision=back, prefix=prefix.removesuffix("_"))
    if gateway is not served:
        served = Server("front").mount(gateway)
    async with Client(served, revision=revision) as client:
        await until(lambda: "mon_own" in served.catalog.listed("tools"))
        other.remove("transfer")
        await until(lambda: "bank_transfer" not in served.catalog.listed("tools"))
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool(f"{prefix}transfer")
        of_view = {UPSTREAM_KEY: {"servers": ["inner", "mon"] if gateway is not served else ["mon"]}}
        assert (await client.call_tool("bank_transfer", meta=of_view)).text == "taken by the view"
        if prefix and how == "removed":
            assert (await client.call_tool("own")).text == "taken by the view"
