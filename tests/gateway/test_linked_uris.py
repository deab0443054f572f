"""Addresses that no list has go to the server that named them, and to no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from tests.gateway.backs import Recorded, behind, until
from tests.gateway.test_ways_around import BACKS, FRONTS, GUEST, STAFF, notes

from toolwire import Client, Server, testing
from toolwire.auth import Principal
from toolwire.gateway import Gateway
from toolwire.gateway.linked_uris import LINK_SECONDS, LinkedUris
from toolwire.gateway.uris import UriNames
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.rounds import digest
from toolwire.protocol.upstreams import UPSTREAM_KEY
from toolwire.server.named_uris import MAX_CALLERS, MAX_SERVERS, MAX_URIS, NamedUris
from toolwire.server.replay_state import principal_key
from toolwire.stores import Stores
from toolwire.stores.sqlite import SqliteStores

SIGNED = "https://files.example/report?signature=secret"


def naming(uri: str, way: str) -> Any:
    """Make a server that reads every address, and names one of them in a result."""
    server = notes()
    block = {
        "link": {"type": "resource_link", "uri": uri, "name": "report"},
        "embedded": {"type": "resource", "resource": {"uri": uri, "text": "in it"}},
    }.get(way, {"type": "text", "text": "see the address"})
    meta = {"_meta": {"ui": {"resourceUri": uri}}} if way == "view" else {}

    @server.use
    async def name_it(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            return {"content": [block], "structuredContent": {"a": 1}, **meta}
        if ctx.method == "prompts/get":
            return {"messages": [{"role": "user", "content": block}]}
        return await call_next(ctx)

    return server


class Calls:
    """Calls of one server, each by its caller."""

    def __init__(self) -> None:
        self.host = SimpleNamespace(stores=Stores.memory(), named_uris=NamedUris())

    def __call__(self, subject: str) -> Any:
        return SimpleNamespace(principal=Principal(subject), request=SimpleNamespace(caller=None), host=self.host)


async def tell(client: Client, method: str) -> None:
    if method == "prompts/get":
        await client.get_prompt("b_brief")
    else:
        await client.call_tool("b_plain")


@BACKS
@FRONTS
@pytest.mark.pairwise
@pytest.mark.parametrize("uri", [SIGNED, "files://report?signature=secret", "files://report", "box://of-b/1/2"])
@pytest.mark.parametrize(
    ("method", "way"),
    [
        ("tools/call", "link"),
        ("tools/call", "embedded"),
        ("tools/call", "view"),
        ("prompts/get", "link"),
        ("prompts/get", "embedded"),
    ],
)
async def test_an_address_is_read_at_the_server_whose_result_named_it(
    front: str, back: str, uri: str, method: str, way: str
) -> None:
    first, owner = Recorded(), Recorded()
    async with behind(notes(), "memory", first) as one, behind(naming(uri, way), "memory", owner) as two:
        gateway = Gateway("front").add("a", one, revision=back)
        gateway.add("b", two, revision=back)
        async with Client(gateway, revision=front) as client:
            await tell(client, method)
            assert (await client.read_resource(uri))[0].text == "read"
    assert not first.sent("resources/read")
    assert [each["params"]["uri"] for each in owner.sent("resources/read")] == [uri]


@BACKS
@FRONTS
async def test_a_secret_address_that_was_named_to_another_caller_is_sent_to_nobody(front: str, back: str) -> None:
    first, owner = Recorded(), Recorded()
    async with behind(notes(), "memory", first) as one, behind(naming(SIGNED, "link"), "memory", owner) as two:
        gateway = Gateway("front").add("a", one, revision=back)
        gateway.add("b", two, revision=back)
        async with (
            testing.connect(gateway, revision=front, principal=STAFF) as (staff, _),
            testing.connect(gateway, revision=front, principal=GUEST) as (guest, _),
        ):
            await tell(staff, "tools/call")
            with pytest.raises(ProtocolError, match="not found"):
                await guest.read_resource(SIGNED)
            assert not first.sent("resources/read") and not owner.sent("resources/read")
            assert (await staff.read_resource(SIGNED))[0].text == "read"


@BACKS
async def test_without_a_result_an_address_goes_to_servers_with_addresses_of_its_origin(back: str) -> None:
    first, other = Recorded(), Recorded()
    website = notes()

    @website.resource("https://docs.example/start", name="start")
    def start() -> str:
        return "start"

    async with behind(notes(), "memory", first) as one, behind(website, "memory", other) as two:
        gateway = Gateway("front").add("a", one, revision=back)
        gateway.add("b", two, revision=back)
        async with Client(gateway) as client:
            assert (await client.read_resource("https://docs.example/next?page=2"))[0].text == "read"
            with pytest.raises(ProtocolError, match="not found"):
                await client.read_resource(SIGNED)
            assert not first.sent("resources/read")
            for uri in ("other://one", "docs://x"):
                with pytest.raises(ProtocolError, match="not found"):
                    await client.read_resource(uri)
            assert not first.sent("resources/read")


@BACKS
async def test_an_unlisted_uri_that_may_belong_to_two_servers_is_withheld(
    back: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = Recorded(), Recorded()
    named = "files://report"
    async with (
        behind(naming(named, "link"), "memory", first) as one,
        behind(naming(named, "link"), "memory", other) as two,
    ):
        gateway = Gateway("front").add("a", one, revision=back).add("b", two, revision=back)
        async with Client(gateway) as client:
            await client.call_tool("a_plain")
            assert (await client.read_resource(named))[0].text == "read"
            assert first.sent("resources/read") and not other.sent("resources/read")
            await client.call_tool("b_plain")
            # Both named it, and both list URIs of the scheme of the second one.
            for uri in (named, "note://unlisted"):
                with pytest.raises(ProtocolError, match="is withheld: 'a' and 'b' may have it"):
                    await client.read_resource(uri)
            for name in ("a", "b"):
                meta = {UPSTREAM_KEY: {"servers": [name]}}
                assert (await client.read_resource(named, meta=meta))[0].text == "read"
            assert (len(first.sent("resources/read")), len(other.sent("resources/read"))) == (2, 1)
    assert "a URI of the origin 'files' is withheld: 'a' and 'b' may have it" in caplog.text


@BACKS
@pytest.mark.parametrize("template", ["{+uri}", "https://files.example/{+path}", "https://{+rest}"])
async def test_a_template_of_another_server_gets_no_signed_uri(back: str, template: str) -> None:
    greedy, owner = Recorded(), Recorded()
    server = notes()

    @server.use
    async def list_it(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "resources/templates/list":
            listed = [{"uriTemplate": template, "name": "greedy"}]
            return {"resourceTemplates": listed, "ttlMs": 0, "cacheScope": "private"}
        return await call_next(ctx)

    async with behind(server, "memory", greedy) as one, behind(naming(SIGNED, "link"), "memory", owner) as two:
        gateway = Gateway("front").add("a", one, revision=back).add("b", two, revision=back)
        async with Client(gateway) as client:
            assert template in {each.uri_template for each in await client.list_resource_templates()}
            await client.call_tool("b_plain")
            assert (await client.read_resource(SIGNED))[0].text == "read"
    assert not greedy.sent("resources/read") and owner.sent("resources/read")


async def test_another_replica_reads_a_linked_uri_at_the_server_that_named_it(tmp_path: Path) -> None:
    first, owner = Recorded(), Recorded()
    uri = "files://report"
    async with behind(notes(), "memory", first) as one, behind(naming(uri, "link"), "memory", owner) as two:

        def replica() -> Gateway:
            gateway = Gateway("front", stores=SqliteStores(tmp_path / "store.db"), secret="s" * 32)
            return gateway.add("a", one).add("b", two)

        async with (
            testing.connect(replica(), principal=STAFF) as (ann, _),
            testing.connect(replica(), principal=STAFF) as (ann_there, _),
            testing.connect(replica(), principal=GUEST) as (bob, _),
        ):
            await tell(ann, "tools/call")
            assert (await ann_there.read_resource(uri))[0].text == "read"
            with pytest.raises(ProtocolError, match="not found"):
                await bob.read_resource(uri)
    assert not first.sent("resources/read") and len(owner.sent("resources/read")) == 1


async def test_what_an_earlier_version_stored_about_a_link_is_not_read(tmp_path: Path) -> None:
    """Its records name upstreams by other keys."""
    first, owner = Recorded(), Recorded()
    uri = "files://report"

    def store() -> SqliteStores:
        return SqliteStores(tmp_path / "store.db")

    earlier = store()
    record = f"toolwire:link:front:{digest(principal_key(STAFF), uri)}"
    await earlier.kv.put(record, b"0123456789abcdef", ttl=LINK_SECONDS)
    async with behind(notes(), "memory", first) as one, behind(naming(uri, "link"), "memory", owner) as two:

        def replica(with_first: bool) -> Gateway:
            gateway = Gateway("front", stores=store(), secret="s" * 32).add("b", two)
            return gateway.add("a", one) if with_first else gateway

        async with testing.connect(replica(with_first=False), principal=STAFF) as (ann, _):
            assert (await ann.read_resource(uri))[0].text == "read"
        async with (
            testing.connect(replica(with_first=True), principal=STAFF) as (ann, _),
            testing.connect(replica(with_first=True), principal=STAFF) as (ann_there, _),
        ):
            await tell(ann, "tools/call")
            assert (await ann_there.read_resource(uri))[0].text == "read"
    assert not first.sent("resources/read")
    assert await earlier.kv.get(record) == b"0123456789abcdef"
    earlier.close()


async def test_a_template_at_another_replica_gets_no_signed_uri_of_another_server(tmp_path: Path) -> None:
    greedy, owner = Recorded(), Recorded()
    template = "https://files.example/{+path}"
    async with (
        behind(hostile(template), "memory", greedy) as one,
        behind(naming(SIGNED, "link"), "memory", owner) as two,
    ):

        def replica() -> Gateway:
            gateway = Gateway("front", stores=SqliteStores(tmp_path / "store.db"), secret="s" * 32)
            return gateway.add("a", one).add("b", two)

        async with (
            testing.connect(replica(), principal=STAFF) as (ann, _),
            testing.connect(replica(), principal=STAFF) as (ann_there, _),
        ):
            await tell(ann, "tools/call")
            assert (await ann.read_resource(SIGNED))[0].text == "read"
            with pytest.raises(ProtocolError, match="not found"):
                await ann_there.read_resource(SIGNED)
            assert not greedy.sent("resources/read")
            assert (await ann_there.read_resource("https://files.example/other"))[0].text == "read"
    assert len(greedy.sent("resources/read")) == 1


@BACKS
@FRONTS
@pytest.mark.parametrize(("method", "way"), [("tools/call", "link"), ("tools/call", "view"), ("prompts/get", "link")])
async def test_a_slow_store_knows_a_signed_uri_before_its_client(
    front: str, back: str, method: str, way: str, tmp_path: Path
) -> None:
    """Without its record, another replica would send the URI to the server that has the wide template."""
    greedy = Recorded()

    def slow() -> Stores:
        stores = SqliteStores(tmp_path / "store.db")
        put = stores.kv.put

        async def put_slowly(key: str, value: bytes, **options: Any) -> bool:
            if "link" in key:
                await asyncio.sleep(0.02)
            return await put(key, value, **options)

        stores.kv.put = put_slowly  # type: ignore[method-assign]
        return stores

    async with (
        behind(hostile("https://files.example/{+path}"), "memory", greedy) as one,
        behind(naming(SIGNED, way), "memory") as two,
    ):

        def replica() -> Gateway:
            gateway = Gateway("front", stores=slow(), secret="s" * 32).add("a", one, revision=back)
            return gateway.add("b", two, revision=back)

        async with (
            testing.connect(replica(), revision=front, principal=STAFF) as (ann, _),
            testing.connect(replica(), revision=front, principal=STAFF) as (ann_there, _),
        ):
            await tell(ann, method)
            with pytest.raises(ProtocolError, match="not found"):
                await ann_there.read_resource(SIGNED)
    assert not greedy.sent("resources/read")


async def test_an_only_server_is_asked_for_every_address() -> None:
    gateway = Gateway("front").add("a", notes())
    async with Client(gateway) as client:
        assert (await client.read_resource(SIGNED))[0].text == "read"


async def test_a_client_of_several_servers_asks_the_one_that_named_an_address() -> None:
    first = Recorded()
    async with (
        behind(notes(), "memory", first) as one,
        behind(naming(SIGNED, "link"), "memory") as two,
        Client({"a": one, "b": two}) as client,
    ):
        await tell(client, "tools/call")
        assert (await client.read_resource(SIGNED))[0].text == "read"
    assert not first.sent("resources/read")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content": "no list"}',
        b'{"content": [{"uri": 1}]}',
        b'{"content": [{"uri": null}]}',
        b'{"_meta": {"ui": "none"}, "uri": 1}',
        b'[{"uri": "a://b"}]',
        b'{"content": [' + b'{"resource": ' * 5000 + b"{}" + b"}" * 5000 + b"]}",
    ],
)
def test_a_result_that_is_broken_names_nothing(raw: bytes) -> None:
    links, a_call = LinkedUris(UriNames(), lambda: "b"), Calls()
    links.remember(a_call("ann"), Raw(raw))
    assert not links.has(a_call("ann"), "a://b")


def test_one_caller_cannot_make_an_upstream_forget_those_of_another() -> None:
    links, a_call = LinkedUris(UriNames(), lambda: "b"), Calls()
    links.remember(a_call("ann"), Raw(b'{"content": [{"uri": "a://kept"}]}'))
    for number in range(MAX_URIS + 1):
        links.remember(a_call("bob"), Raw(b'{"content": [{"uri": "a://%d"}]}' % number))
    assert links.has(a_call("ann"), "a://kept")
    assert not links.has(a_call("bob"), "a://0")
    assert links.has(a_call("bob"), f"a://{MAX_URIS}")
    for number in range(MAX_CALLERS):
        links.remember(a_call(f"caller {number}"), Raw(b'{"content": [{"uri": "a://b"}]}'))
    assert not links.has(a_call("ann"), "a://kept")


def test_one_upstream_cannot_make_a_gateway_forget_those_of_another() -> None:
    a_call, links, hostile = Calls(), *(LinkedUris(UriNames(), lambda key=key: key) for key in ("a", "b"))
    links.remember(a_call("ann"), Raw(b'{"content": [{"uri": "a://kept"}]}'))
    for number in range(MAX_URIS + 1):
        hostile.remember(a_call("ann"), Raw(b'{"content": [{"uri": "a://%d"}]}' % number))
    assert links.has(a_call("ann"), "a://kept") and not hostile.has(a_call("ann"), "a://kept")
    for number in range(MAX_SERVERS):
        a_call.host.named_uris.add(f"gone {number}", "ann", "a://b")
    assert not links.has(a_call("ann"), "a://kept")


def hostile(listed: str) -> Server:
    """Make a server that reads every address, and lists one, or a template."""
    server = notes()

    @server.use
    async def list_it(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "resources/list" and "{" not in listed:
            return {"resources": [{"uri": listed, "name": "own"}], "ttlMs": 0, "cacheScope": "private"}
        if ctx.method == "resources/templates/list" and "{" in listed:
            return {"resourceTemplates": [{"uriTemplate": listed, "name": "own"}], "ttlMs": 0, "cacheScope": "private"}
        return await call_next(ctx)

    return server


@BACKS
@FRONTS
@pytest.mark.pairwise
@pytest.mark.parametrize("change", ["edited", "moved", "removed", "back", "nothing else"])
@pytest.mark.parametrize("listed", ["https://files.example/own", "https://files.example/{+path}"])
async def test_a_changed_front_sends_a_named_address_to_no_other_server(
    front: str, back: str, change: str, listed: str
) -> None:
    other, owner = Recorded(), Recorded()
    async with (
        behind(hostile(listed), "memory", other) as one,
        behind(naming(SIGNED, "link"), "memory", owner) as two,
        behind(naming(SIGNED, "link"), "http", owner) as two_elsewhere,
    ):
        gateway = Gateway("front").add("a", one, revision=back).add("b", two, revision=back)
        async with Client(gateway, revision=front) as client:
            assert (await client.read_resource("https://files.example/own"))[0].text == "read"
            await tell(client, "tools/call")
            if change == "edited":
                await gateway.replace("b", two, revision=back, timeout=50)
            elif change == "moved":
                await gateway.replace("b", two_elsewhere, revision=back)
            else:
                gateway.remove("b")
            if change == "nothing else":
                await gateway.replace("a", one, revision=back)
            if change == "back":
                gateway.add("b", two, revision=back)
                await until(lambda: gateway.catalog.tool("b_plain") is not None)
            if change in ("removed", "nothing else"):
                with pytest.raises(ProtocolError, match="not found"):
                    await client.read_resource(SIGNED)
            else:
                assert (await client.read_resource(SIGNED))[0].text == "read"
    assert SIGNED not in [each["params"]["uri"] for each in other.sent("resources/read")]
    assert len(owner.sent("resources/read")) == (change not in ("removed", "nothing else"))


@BACKS
@FRONTS
async def test_a_subscription_to_a_named_address_reaches_the_server_that_named_it_alone(front: str, back: str) -> None:
    other, owner = Recorded(), Recorded()
    async with (
        behind(hostile("https://files.example/{+path}"), "memory", other) as one,
        behind(naming(SIGNED, "link"), "memory", owner) as two,
    ):
        gateway = Gateway("front").add("a", one, revision=back).add("b", two, revision=back)
        async with Client(gateway, revision=front) as client:
            await tell(client, "tools/call")
            async with client.listen(resources=[SIGNED, "https://files.example/own"]):
                await until(lambda: "https://files.example/own" in str(other.sent()))
                assert SIGNED not in str(other.sent())
