"""Results that are larger than their budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Client, Limits, Server, ToolResult, testing, types
from toolwire.auth import Anonymous, ApiKeys, Principal
from toolwire.errors import ProtocolError, ToolError
from toolwire.gateway import Gateway
from toolwire.server import kept_results
from toolwire.server.policy import Policy
from toolwire.shape import Shape, ToolShape
from toolwire.stores import Stores

KEYS = {"a-key-of-alice": Principal("alice"), "a-key-of-bob": Principal("bob")}


# Clients look at their tasks without a pause.
QUICK = Limits(task_poll=0.05)


def writer() -> Server:
    server = Server("writer", limits=QUICK)

    @server.tool
    async def text(count: int, ending: str = "") -> str:
        return "x" * count + ending

    @server.tool
    async def rows(count: int) -> list[str]:
        return ["row"] * count

    @server.tool(task="required")
    async def slowly(count: int) -> str:
        return "x" * count

    return server


def front(remote: bool, shape: Shape, **options: Any) -> Server:
    return front_of(writer(), remote, shape, **options)


def front_of(back: Server, remote: bool, shape: Shape, **options: Any) -> Server:
    options = {"limits": QUICK, **options}
    if not remote:
        return Server("front", **options).mount(back, "b", shape=shape)
    gateway = Gateway("front", **options)
    gateway.add("b", back, shape=shape)
    return gateway


def link_in(result: ToolResult) -> types.ResourceLink:
    (link,) = [each for each in result.content if isinstance(each, types.ResourceLink)]
    return link


@pytest.mark.covers("GW-8.6")
@cases("remote", [False, True])
@cases("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_the_whole_of_a_large_result_is_a_resource(revision: str, remote: bool) -> None:
    async with testing.connect(front(remote, Shape(result_budget=2048)), revision=revision) as (client, _):
        assert (await client.call_tool("b_text", {"count": 100})).text == "x" * 100
        result = await client.call_tool("b_text", {"count": 5000})
        assert not result.is_error
        assert result.content[0].text.startswith("xxx")
        assert sum(len(str(each)) for each in result.content) < 4096
        uri = result.content[1].text.partition("the resource ")[2].partition(",")[0]
        assert "has 5000 bytes, and 2048 are allowed" in result.content[1].text
        (whole,) = await client.read_resource(uri)
        assert (whole.text, whole.mime_type) == ("x" * 5000, "text/plain")
        rows = await client.call_tool("b_rows", {"count": 1000})
        uri = rows.content[1].text.partition("the resource ")[2].partition(",")[0]
        assert (await client.read_resource(uri))[0].text.count("row") >= 1000
        # The resource is in no list.
        assert await client.list_resources() == []


@pytest.mark.covers("GW-8.6", "GW-8.7")
@pytest.mark.parametrize("keeps", [False, True])
async def test_a_budget_drops_the_output_schema(keeps: bool) -> None:
    entry = ToolShape(result_budget=1024, output_schema="keep" if keeps else None)
    async with Client(front(False, Shape(tools={"rows": entry}))) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert bool(tools["b_rows"].output_schema) is keeps
        assert (await client.call_tool("b_rows", {"count": 2})).structured == ["row", "row"]
        # A result without structured content would not fit the schema, unless it is an error.
        assert (await client.call_tool("b_rows", {"count": 1000})).is_error is keeps
        # Another tool has no budget.
        assert len((await client.call_tool("b_text", {"count": 5000})).text or "") == 5000


@pytest.mark.covers("GW-8.6")
@pytest.mark.parametrize("remote", [False, True])
async def test_nobody_else_reads_it(remote: bool) -> None:
    stores = Stores.memory()
    shape = Shape(result_budget=1024)
    # Two replicas with one store.
    apps = [front(remote, shape, auth=ApiKeys(KEYS), stores=stores).http_app() for _ in range(2)]
    alice, bob, elsewhere = (
        ModernClient(app, headers={"authorization": f"Bearer {key}"})
        for app, key in ((apps[0], "a-key-of-alice"), (apps[0], "a-key-of-bob"), (apps[1], "a-key-of-alice"))
    )
    called = (await alice.call("b_text", {"count": 5000})).json()["result"]
    uri = called["content"][-1]["uri"]
    for client, found in ((alice, True), (elsewhere, True), (bob, False)):
        answer = (await client.request("resources/read", {"uri": uri})).json()
        assert ("result" in answer) is found
        unknown = (await client.request("resources/read", {"uri": uri[:-4] + "0000"})).json()
        if not found:
            assert answer["error"]["code"] == unknown["error"]["code"]
            assert answer["error"]["message"] == unknown["error"]["message"]
    for client in (alice, bob, elsewhere):
        await client.close()
    for app in apps:
        await app.stop()


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    "entry",
    [ToolShape(scopes=["admin"]), ToolShape(visible_to=lambda who: "admin" in who.scopes)],
    ids=["scopes", "predicate"],
)
async def test_large_result_needs_what_the_shape_of_its_tool_asked_for(remote: bool, entry: ToolShape) -> None:
    keys = {
        "a-key-with-the-scope": Principal("alice", scopes=frozenset({"admin"})),
        "a-key-without-scopes": Principal("alice"),
    }
    app = front(remote, Shape(result_budget=1024, tools={"text": entry}), auth=ApiKeys(keys)).http_app()
    admin, plain = (ModernClient(app, headers={"authorization": f"Bearer {key}"}) for key in keys)
    called = (await admin.call("b_text", {"count": 5000})).json()["result"]
    uri = called["content"][-1]["uri"]
    for client, found in ((admin, True), (plain, False)):
        answer = (await client.request("resources/read", {"uri": uri})).json()
        assert ("result" in answer) is found
        await client.close()
    await app.stop()


@pytest.mark.covers("GW-8.6")
async def test_results_of_one_caller_are_bounded_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "MAX_KEPT", 3)
    monkeypatch.setattr(kept_results, "MAX_KEPT_BYTES", 9000)
    stores = Stores.memory()
    async with Client(front(False, Shape(result_budget=1024), stores=stores)) as client:

        async def readable(links: list[types.ResourceLink]) -> list[bool]:
            found = []
            for link in links:
                try:
                    found.append(bool(await client.read_resource(link.uri)))
                except ProtocolError:
                    found.append(False)
            return found

        links = [link_in(await client.call_tool("b_text", {"count": 1500})) for _ in range(5)]
        assert await readable(links) == [False, False, True, True, True]
        links.append(link_in(await client.call_tool("b_text", {"count": 8000})))
        assert await readable(links) == [False] * 5 + [True]
        # One that is larger than all of them may be is cut, and nothing goes for it.
        cut = await client.call_tool("b_text", {"count": 9001})
        assert "The rest is left out" in cut.content[1].text
        assert await readable(links) == [False] * 5 + [True]
    assert len(await stores.kv.keys("kept-results/")) == 2


@pytest.mark.covers("GW-8.6")
async def test_a_result_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "KEPT_SECONDS", 0.001)
    async with Client(front(False, Shape(result_budget=1024))) as client:
        link = link_in(await client.call_tool("b_text", {"count": 1500}))
        with pytest.raises(ProtocolError):
            while True:
                await client.read_resource(link.uri)


@pytest.mark.covers("GW-8.6")
async def test_what_a_policy_masks_is_masked_in_the_resource() -> None:
    entry = ToolShape(result_budget=1024, policy=Policy(mask=["secret"]))
    async with Client(front(False, Shape(tools={"text": entry}))) as client:
        link = link_in(await client.call_tool("b_text", {"count": 3000, "ending": "secret"}))
        (whole,) = await client.read_resource(link.uri)
        assert "secret" not in str(whole.text)
        assert str(whole.text).startswith("xxx")


@pytest.mark.covers("GW-8.6")
@cases("remote", [False, True])
@cases("revision", ["2025-11-25", "2026-07-28"])
async def test_the_result_of_a_task_has_the_budget(revision: str, remote: bool) -> None:
    async with testing.connect(front(remote, Shape(result_budget=1024)), revision=revision) as (client, _):
        task = await client.call_tool_as_task("b_slowly", {"count": 5000})
        result = await task.wait()
        assert len(result.content[0].text) < 1024
        assert len((await client.read_resource(link_in(result).uri))[0].text or "") == 5000


async def test_a_store_that_is_full_cuts_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = Stores.memory()

    async def put(*args: Any, **options: Any) -> bool:
        from toolwire.stores import StoreFull

        raise StoreFull("full")

    monkeypatch.setattr(stores.kv, "put", put)
    async with Client(front(False, Shape(result_budget=1024), stores=stores)) as client:
        assert "The rest is left out" in (await client.call_tool("b_text", {"count": 5000})).content[1].text


def kept_twice(outer_mask: bool, with_resource: bool = False) -> Server:
    """Return a gateway before a gateway that has a result budget."""
    inner = Gateway("inner")
    inner.add("b", writer(), shape=Shape(result_budget=1024))
    policy = Policy(mask=[r"sk-\w+"]) if outer_mask else None
    outer = Gateway("outer")
    outer.add("z", inner, prefix="", shape=Shape(tools={"b_text": ToolShape(policy=policy)}))
    if with_resource:

        @outer.resource("own://x")
        async def own() -> str:
            return "x"

    return outer


def mounted_twice() -> Server:
    middle = Server("middle").mount(writer(), "b", shape=Shape(result_budget=1024))
    # A list of allowed resources is not about the results of tools.
    return Server("outer").mount(middle, shape=Shape(deny=["b_rows"], allow_resources=[]))


@pytest.mark.parametrize("make", [mounted_twice, lambda: kept_twice(outer_mask=False)], ids=["mounts", "gateways"])
async def test_result_kept_one_level_down_can_be_read(make: Callable[[], Server]) -> None:
    async with testing.connect(make(), principal=Principal("alice")) as (client, _):
        link = link_in(await client.call_tool("b_text", {"count": 3000}))
        assert [each.text for each in await client.read_resource(link.uri)] == ["x" * 3000]


@pytest.mark.parametrize("with_resource", [False, True])
async def test_result_kept_by_an_upstream_is_read_with_the_masks_of_its_tool_here(with_resource: bool) -> None:
    async with testing.connect(kept_twice(True, with_resource), principal=Principal("alice")) as (client, _):
        link = link_in(await client.call_tool("b_text", {"count": 3000, "ending": " sk-secret"}))
        (whole,) = await client.read_resource(link.uri)
        assert whole.text == "x" * 3000 + " [redacted]"


@pytest.mark.parametrize("remote", [False, True])
async def test_budget_holds_for_an_error_that_a_handler_raises(remote: bool) -> None:
    back = writer()

    @back.tool
    async def fail(count: int) -> str:
        raise ToolError("e" * count + " sk-secret")

    shape = Shape(result_budget=1024, policy=Policy(mask=[r"sk-\w+"]))
    front = Gateway("front") if remote else Server("front").mount(back, "b", shape=shape)
    if isinstance(front, Gateway):
        front.add("b", back, shape=shape)
    async with testing.connect(front) as (client, _):
        small = await client.call_tool("b_fail", {"count": 10})
        assert (small.text, small.is_error) == ("e" * 10 + " [redacted]", True)
        large = await client.call_tool("b_fail", {"count": 100_000})
        assert large.is_error
        assert len(large.text) < 1024
        (whole,) = await client.read_resource(link_in(large).uri)
        assert whole.text == "e" * 100_000 + " [redacted]"


def failing() -> Server:
    back = Server("back", limits=QUICK)

    @back.tool
    async def fail(count: int) -> str:
        raise ProtocolError(-32050, "m" * 195 + " sk-secret" + "m" * count, {"rows": "z" * count})

    @back.tool(task="required")
    async def fail_later(count: int) -> str:
        raise ProtocolError(-32050, "failed", {"rows": "z" * count})

    return back


@pytest.mark.parametrize("remote", [False, True])
async def test_budget_holds_for_a_protocol_error(remote: bool) -> None:
    shape = Shape(result_budget=1024, policy=Policy(mask=[r"sk-\w+"]))
    front = front_of(failing(), remote, shape)
    async with testing.connect(front) as (client, _):
        with pytest.raises(ProtocolError) as small:
            await client.call_tool("b_fail", {"count": 10})
        assert small.value.data == {"rows": "z" * 10}
        with pytest.raises(ProtocolError, match="and 1024 are allowed") as large:
            await client.call_tool("b_fail", {"count": 100_000})
        assert (large.value.code, large.value.data) == (-32050, UNSET)
        assert len(large.value.message) < 400
        assert "sk-" not in large.value.message


@cases("remote", [False, True])
@cases("revision", ["2025-11-25", "2026-07-28"])
async def test_budget_holds_for_the_protocol_error_of_a_task(revision: str, remote: bool) -> None:
    shape = Shape(result_budget=1024)
    front = front_of(failing(), remote, shape)
    async with testing.connect(front, revision=revision) as (client, wire):
        with pytest.raises(ProtocolError, match="and 1024 are allowed"):
            await client.call_tool("b_fail_later", {"count": 100_000})
        assert not any("z" * 2000 in str(message) for _, message in wire.messages)


@pytest.mark.parametrize("auth", [None, Anonymous()], ids=["no principal", "shared principal"])
async def test_results_of_one_stranger_do_not_evict_those_of_another(
    auth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_results, "MAX_KEPT", 2)
    app = front(False, Shape(result_budget=1024), auth=auth).http_app()
    client = ModernClient(app)

    async def keep(address: str) -> str:
        answer = await client.call("b_text", {"count": 3000}, client=(address, 1))
        (uri,) = [each["uri"] for each in answer.json()["result"]["content"] if each["type"] == "resource_link"]
        return str(uri)

    first = await keep("203.0.113.7")
    evicted, *_ = [await keep("198.51.100.9") for _ in range(3)]
    read = await client.request("resources/read", {"uri": first}, client=("203.0.113.7", 1))
    assert read.json()["result"]["contents"][0]["text"] == "x" * 3000
    gone = await client.request("resources/read", {"uri": evicted}, client=("198.51.100.9", 1))
    assert "error" in gone.json()
    await app.stop()


def kept_behind_a_gateway(**shape: Any) -> Server:
    middle = Server("middle").mount(writer(), "b", shape=Shape(result_budget=1024))
    return Gateway("outer").add("m", middle, prefix="", shape=Shape(**shape))


async def test_list_of_allowed_resources_does_not_withhold_a_result_kept_by_an_upstream() -> None:
    async with testing.connect(kept_behind_a_gateway(allow_resources=["notes://*"])) as (client, _):
        link = link_in(await client.call_tool("b_text", {"count": 3000}))
        assert [each.text for each in await client.read_resource(link.uri)] == ["x" * 3000]
        with pytest.raises(ProtocolError):
            await client.read_resource(link.uri.rpartition("/")[0] + "/../secret")


async def test_denied_resources_withhold_a_result_kept_by_an_upstream() -> None:
    async with testing.connect(kept_behind_a_gateway(deny_resources=["toolwire-result://*"])) as (client, _):
        link = link_in(await client.call_tool("b_text", {"count": 3000}))
        with pytest.raises(ProtocolError):
            await client.read_resource(link.uri)


@pytest.mark.parametrize("fails", [False, True])
async def test_budget_is_measured_after_masks(fails: bool) -> None:
    back = Server("back")

    @back.tool
    async def pins(count: int) -> str:
        if fails:
            raise ToolError("1234 " * count)
        return "1234 " * count

    shape = Shape(result_budget=4096)
    host = Server("front", policy=Policy(mask=[r"\b[0-9]{4}\b"])).mount(back, "b", shape=shape)
    async with testing.connect(host) as (client, _):
        assert (await client.call_tool("b_pins", {"count": 100})).text == "[redacted] " * 100
        large = await client.call_tool("b_pins", {"count": 700})
        assert len(large.text) < 4096
        (whole,) = await client.read_resource(link_in(large).uri)
        assert whole.text == "[redacted] " * 700
