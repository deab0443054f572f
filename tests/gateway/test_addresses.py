"""Addresses that two servers have: the first one keeps them, and those of the other are rewritten everywhere."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.gateway.backs import behind, until
from tests.runtimes import runtime_of

from toolwire import Client, Context, ResourceTemplate, Server, ToolResult
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.gateway.names import Renaming
from toolwire.gateway.uris import UriNames
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.errors import ResourceNotFound
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import UPSTREAM_KEY
from toolwire.types import EmbeddedResource, ResourceContents, ResourceLink

APP = "ui://app/main.html"
MIME = "text/html;profile=mcp-app"
UI = {"ui": {"resourceUri": APP, "visibility": ["model"]}, "ui/resourceUri": APP, "com.example/x": 1}


def showing(says: str) -> Server:
    """Make a server that shows the addresses of its resources wherever the protocol has them."""
    server = Server("back")

    @server.tool(meta=UI)
    async def show(ctx: Context) -> ToolResult:
        link = ResourceLink(uri="note://today", name="today")
        inside = EmbeddedResource(resource=ResourceContents(uri="note://at/9", text=says))
        free = ResourceLink(uri="note://free", name="free")
        return ToolResult(content=[link, inside, free, "see note://today"], meta=UI)

    @server.tool
    async def consult(ctx: Context) -> str:
        inside = EmbeddedResource(resource=ResourceContents(uri="note://today", text=says))
        result = t.ToolResultContent(tool_use_id="1", content=[inside])
        used = t.ToolUseContent(id="1", name="x", input={})
        messages = [
            t.SamplingMessage(role="assistant", content=[used]),
            t.SamplingMessage(role="user", content=[result]),
        ]
        answer = await ctx.sample(messages)
        return str(answer.text)

    @server.resource("note://today")
    def today() -> str:
        return says

    @server.resource("note://at/{hour}")
    def at(hour: int) -> str:
        return f"{says} {hour}"

    @server.completion(template="note://at/{hour}", argument="hour")
    def hours(partial: str) -> list[str]:
        return [says]

    @server.resource(APP, mime_type=MIME, meta={"ui": {"csp": {"connectDomains": ["https://x.example"]}}})
    def app() -> str:
        return f"<p>{says}</p>"

    @server.prompt
    def brief() -> list[Any]:
        return [EmbeddedResource(resource=ResourceContents(uri="note://today", text=says))]

    return server


ERAS = list(itertools.product((MODERN, "2025-11-25"), repeat=2))
FRONT_AND_BACK = pytest.mark.parametrize(("front", "back"), [*ERAS, ("2025-06-18", "2025-06-18")])


@pytest.mark.covers("GW-4.5")
@FRONT_AND_BACK
async def test_an_address_that_two_servers_have_is_rewritten_everywhere(front: str, back: str) -> None:
    gateway = Gateway("front")
    async with behind(showing("first"), "memory") as first, behind(showing("second"), "memory") as second:
        gateway.add("a", first, revision=back).add("b", second, revision=back)
        async with Client(gateway, revision=front) as client:
            for name, inside, says in (("a", "", "first"), ("b", "b/", "second")):
                today, at, app = f"note://{inside}today", f"note://{inside}at/9", f"ui://{inside}app/main.html"
                listed = {each.uri: each for each in await client.list_resources()}
                assert {today, app} <= set(listed)
                assert listed[app].mime_type == MIME
                csp, upstream = {"connectDomains": ["https://x.example"]}, {"servers": [name]}
                assert listed[app].meta == {"ui": {"csp": csp}, UPSTREAM_KEY: upstream}
                templates = [each.uri_template for each in await client.list_resource_templates()]
                assert f"note://{inside}at/{{hour}}" in templates
                for uri, text in ((today, says), (at, f"{says} 9"), (app, f"<p>{says}</p>")):
                    (contents,) = await client.read_resource(uri)
                    assert (contents.uri, contents.text) == (uri, text)
                ui = {"ui": {"resourceUri": app, "visibility": ["model"]}, "ui/resourceUri": app, "com.example/x": 1}
                (tool,) = [each for each in await client.list_tools() if each.name == f"{name}_show"]
                assert tool.meta == {**ui, UPSTREAM_KEY: {**upstream, "name": "show"}}
                result = await client.call_tool(f"{name}_show")
                assert {key: value for key, value in result.meta.items() if key in ui} == ui
                blocks = [each.to_dict() for each in result.content]
                uris = [each.get("uri") or each.get("resource", {}).get("uri") for each in blocks]
                assert uris[:3] == [today, at, "note://free"]
                assert blocks[-1]["text"] == "see note://today"
                (message,) = (await client.get_prompt(f"{name}_brief")).messages
                assert message.content.resource.uri == today
                reference = t.ResourceTemplateReference(f"note://{inside}at/{{hour}}")
                completed = await client.complete(reference, ("hour", ""))
                assert completed.values == [says]


@pytest.mark.covers("GW-4.5")
@FRONT_AND_BACK
async def test_updates_of_a_renamed_resource_are_told_under_its_name(front: str, back: str) -> None:
    first, second = showing("first"), showing("second")
    gateway = Gateway("front")
    async with behind(first, "memory") as one, behind(second, "memory") as two:
        gateway.add("a", one, revision=back).add("b", two, revision=back)
        async with (
            Client(gateway, revision=front) as client,
            client.listen(resources=["note://today", "note://b/today", "note://b/at/9"]) as changes,
        ):
            told = aiter(changes)
            for server, inner, public in (
                (second, "note://today", "note://b/today"),
                (second, "note://at/9", "note://b/at/9"),
                (first, "note://today", "note://today"),
            ):
                further = {"_meta": {"com.example/version": 7}, "com.example/why": [1]}
                server.notify_updated(inner, further)
                change = await anext(told)
                assert (change.uri, change.params) == (public, further)


@pytest.mark.filterwarnings("ignore:Sampling is deprecated")
@pytest.mark.parametrize(("front", "back"), ERAS)
async def test_resources_in_the_questions_of_a_server_carry_public_addresses(front: str, back: str) -> None:
    shown: list[str] = []

    async def sample(params: t.CreateMessageRequestParams) -> str:
        (block,) = params.messages[-1].content[0].content
        shown.append(block.resource.uri)
        return "yes"

    gateway = Gateway("front")
    async with behind(showing("first"), "memory") as one, behind(showing("second"), "memory") as two:
        gateway.add("a", one, revision=back).add("b", two, revision=back)
        async with Client(gateway, revision=front, sample=sample) as client:
            assert await client.call_tool("a_consult", returns=str) == "yes"
            assert await client.call_tool("b_consult", returns=str) == "yes"
    assert shown == ["note://today", "note://b/today"]


# --- what collides ---


def holding(*uris: str) -> Server:
    """Make a server with resources and templates that say its addresses."""
    server = Server("back")
    for uri in uris:
        if "{" in uri:
            server.resource(uri)(_template(uri))
        else:
            server.resource(uri)(_resource(uri))
    return server


def _resource(uri: str) -> Any:
    def read() -> str:
        return uri

    return read


def _template(uri: str) -> Any:
    if "{+x}" in uri or "{x}" in uri:

        def with_x(x: str) -> str:
            return uri

        return with_x

    def with_y(y: str) -> str:
        return uri

    return with_y


@cases(
    ("first", "second", "named"),
    [
        pytest.param("note://a", "note://a", "note://b/a", id="equal"),
        pytest.param("note://{x}", "note://{y}", "note://b/{y}", id="other names of variables"),
        pytest.param("note://{x}", "note://a", "note://b/a", id="resource of the first's template"),
        pytest.param("note://a", "note://{x}", "note://b/{x}", id="template of the first's resource"),
        pytest.param("note://{+x}", "note://{+y}", "note://b/{+y}", id="spanning templates"),
        pytest.param("file:///{+x}", "file:///tmp/a", "file://b/tmp/a", id="without a host"),
        pytest.param("note://{x}", "memo://{x}", "memo://{x}", id="other schemes"),
        pytest.param("note://{x}", "note://a/b", "note://a/b", id="no match"),
    ],
)
async def test_a_later_address_that_leads_elsewhere_is_renamed(first: str, second: str, named: str) -> None:
    gateway = Gateway("front")
    gateway.add("a", holding(first)).add("b", holding(second))
    async with Client(gateway) as client:
        listed = [
            *(each.uri for each in await client.list_resources()),
            *(each.uri_template for each in await client.list_resource_templates()),
        ]
        assert sorted(listed) == sorted((first, named))
        for address, says in ((first, first), (named, second)):
            uri = address.replace("{x}", "q").replace("{+x}", "q").replace("{y}", "q").replace("{+y}", "q")
            (contents,) = await client.read_resource(uri)
            assert (contents.uri, contents.text) == (uri, says)


async def test_what_is_there_is_not_renamed_when_its_server_changes() -> None:
    """The new address of the second server matches the template of the first one."""
    first = holding("note://a", "note://n/{+y}", "note://{x}/a")
    gateway = Gateway("front")
    gateway.add("a", first).add("b", holding("note://a"))
    async with Client(gateway) as client:

        async def addresses() -> list[str]:
            templates = [each.uri_template for each in await client.list_resource_templates()]
            return sorted([*templates, *(each.uri for each in await client.list_resources())])

        before = await addresses()
        assert before == ["note://a", "note://b/a", "note://n/{+y}", "note://{x}/a"]
        first.resource("memo://more")(_resource("memo://more"))
        await until(lambda: len(gateway.catalog.all("resources")) == 3)
        assert await addresses() == ["memo://more", *before]


async def test_a_name_that_another_server_has_is_not_taken() -> None:
    gateway = Gateway("front")
    gateway.add("a", holding("note://a", "note://b/a")).add("b", holding("note://a"))
    async with Client(gateway) as client:
        assert [each.uri for each in await client.list_resources()] == ["note://a", "note://b-2/a", "note://b/a"]
        # A server that comes later does not take an address that was made here.
        gateway.add("c", holding("note://b-2/a"))
        await until(lambda: len(gateway.catalog.all("resources")) == 4)
        assert "note://c/b-2/a" in [each.uri for each in await client.list_resources()]
        (contents,) = await client.read_resource("note://b-2/a")
        assert contents.text == "note://a"


async def test_a_resource_of_its_own_address_is_not_renamed_by_a_template_that_is() -> None:
    gateway = Gateway("front")
    gateway.add("a", holding("note://{+x}")).add("b", holding("note://{+y}", "memo://a"))
    async with Client(gateway) as client:
        (contents,) = await client.read_resource("memo://a")
        assert contents.uri == "memo://a"


async def test_a_view_that_no_list_has_is_renamed_together_with_its_tool() -> None:
    back = holding("memo://other")

    @back.tool(meta=UI)
    async def show() -> str:
        return "shown"

    gateway = Gateway("front")
    gateway.add("a", holding(APP)).add("b", back)
    async with Client(gateway) as client:
        (tool,) = await client.list_tools()
        assert tool.meta["ui/resourceUri"] == "ui://b/app/main.html" == tool.meta["ui"]["resourceUri"]
        back.resource(APP)(_resource(APP))
        await until(lambda: len(gateway.catalog.all("resources")) == 3)
        (tool,) = await client.list_tools()
        assert tool.meta["ui/resourceUri"] == "ui://b/app/main.html" == tool.meta["ui"]["resourceUri"]


@FRONT_AND_BACK
async def test_a_resource_that_no_list_has_is_read_at_the_server_that_has_it(front: str, back: str) -> None:
    linking = Server("linking")

    @linking.use
    async def read(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "resources/read" and ctx.params.uri == "memo://linked":
            return {"contents": [{"uri": "memo://linked", "text": "linked"}]}
        return await call_next(ctx)

    linking.resource("memo://listed")(_resource("memo://listed"))
    gateway = Gateway("front")
    async with behind(holding("note://a"), "memory") as first, behind(linking, "memory") as second:
        gateway.add("a", first, revision=back).add("b", second, revision=back)
        async with Client(gateway, revision=front) as client:
            (contents,) = await client.read_resource("memo://linked")
            assert (contents.uri, contents.text) == ("memo://linked", "linked")
            with pytest.raises(Exception, match=r"(?i)not found|no resource|unknown"):
                await client.read_resource("memo://nobody")


async def test_a_template_that_cannot_be_matched_is_listed_and_its_addresses_are_read() -> None:
    back = holding("memo://listed")
    back.add(ResourceTemplate("memo://{a}{b}", name="both"))

    @back.use
    async def read(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "resources/read" and ctx.params.uri == "memo://xy":
            return {"contents": [{"uri": "memo://xy", "text": "expanded"}]}
        return await call_next(ctx)

    gateway = Gateway("front")
    gateway.add("b", back)
    async with Client(gateway) as client:
        assert [each.uri_template for each in await client.list_resource_templates()] == ["memo://{a}{b}"]
        (contents,) = await client.read_resource("memo://xy")
        assert contents.text == "expanded"


async def test_an_address_that_is_hidden_here_is_not_read_elsewhere() -> None:
    back, gateway = holding("memo://listed"), Gateway("front")
    asked: list[str] = []

    @back.use
    async def read(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "resources/read":
            asked.append(ctx.params.uri)
        return await call_next(ctx)

    gateway.resource("memo://secret", visible_to="staff")(_resource("memo://secret"))
    gateway.add("b", back)
    app = gateway.http_app()
    pool = AsgiPool(app)
    try:
        async with Client(HttpTarget("http://localhost/mcp", pool=pool)) as client:
            for uri in ("memo://secret", "memo://unknown"):
                with pytest.raises(ResourceNotFound):
                    await client.read_resource(uri)
    finally:
        app.drain()
        await pool.close()
        await app.stop()
    assert asked == ["memo://unknown"]


async def test_addresses_are_rewritten_on_each_of_several_hops() -> None:
    inner = Gateway("inner")
    inner.add("one", showing("first")).add("two", showing("second"))
    gateway = Gateway("front")
    gateway.add("near", showing("nearest")).add("far", inner)
    async with Client(gateway) as client:
        for uri, says in (
            ("note://today", "nearest"),
            ("note://far/today", "first"),
            ("note://two/today", "second"),
            ("note://far/at/9", "first 9"),
            ("note://two/at/9", "second 9"),
        ):
            (contents,) = await client.read_resource(uri)
            assert (contents.uri, contents.text) == (uri, says)
        tools = {each.name: each.meta for each in await client.list_tools()}
        assert tools["far_one_show"]["ui/resourceUri"] == "ui://far/app/main.html"
        assert tools["far_two_show"]["ui/resourceUri"] == "ui://two/app/main.html"


# --- places in messages that are not what they should be ---


@cases(
    "raw",
    [
        b'{"content":"text","contents":7,"messages":[1,"x",{"content":null}],"resources":"dynamic"}',
        b'{"content":[{"uri":7},{"resource":[]},{"_meta":[1]}],"_meta":"x","skill":3,"inputRequests":[1]}',
        b'{"_meta":{"ui":7,"ui/resourceUri":{}},"inputRequests":{"a":1,"b":{"params":2}}}',
        b"[1,2]",
    ],
)
def test_what_is_no_address_stays_as_it_is(raw: bytes) -> None:
    names = UriNames()
    assert msgspec.json.decode(names.in_result(Raw(raw))) == msgspec.json.decode(raw)


def test_the_result_of_a_task_has_public_addresses() -> None:
    names = UriNames()
    names.rename({"note://a": Renaming("note://", "note://b/")}, {}, {}, ())
    raw = Raw(b'{"taskId":"1","status":"completed","result":{"content":[{"type":"resource_link","uri":"note://a"}]}}')
    assert msgspec.json.decode(names.in_result(raw))["result"]["content"][0]["uri"] == "note://b/a"


@FRONT_AND_BACK
@pytest.mark.parametrize("uri", ["note://today", "note://at/9", "other://1/9", "other://9"])
async def test_updates_of_a_resource_of_another_server_are_dropped(front: str, back: str, uri: str) -> None:
    first, hostile = showing("first"), Server("hostile")

    @first.resource("other://1/9")
    @hostile.resource("other://1")
    @hostile.resource("own://1")
    def one() -> str:
        return "one"

    gateway = Gateway("front").add("a", first, revision=back).add("b", hostile, revision=back)
    async with (
        Client(gateway, revision=front) as client,
        Client(gateway, revision=front) as other,
        client.listen(resources=["note://today", "note://at/9", "other://1/9", "other://9"]) as changes,
        other.listen(resources=["own://1", "other://1"]) as changes_there,
    ):
        hub = runtime_of(hostile).hub
        for each in (*hub.streams, *hub.clients.values()):
            each.uris |= {uri}
        told, told_there = aiter(changes), aiter(changes_there)
        hostile.notify_updated(uri)
        hostile.notify_updated("own://1/child")
        assert (await anext(told_there)).uri == "own://1/child"
        first.notify_updated("note://today", {"com.example/why": "its own"})
        change = await anext(told)
        assert (change.uri, change.params) == ("note://today", {"com.example/why": "its own"})
