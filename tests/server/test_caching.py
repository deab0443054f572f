"""How long, and by whom, an answer may be kept: the hints of 2026-07-28."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.server.answering import EVERYTHING, accept
from tests.wireclient import LEGACY, MODERN, Message, connect

from toolwire import Context, Policy, Prompt, Resource, ResourceTemplate, Server, Tool
from toolwire.auth import Principal
from toolwire.protocol.errors import ServerError
from toolwire.server.components import Cache

CACHEABLE: list[tuple[str, Message]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "note://today"}),
]


def hello() -> str:
    return "hello"


def build(**options: Any) -> Server:
    return Server(
        "cached",
        tools=[Tool(hello, name=f"tool{number}") for number in range(5)],
        resources=[Resource("note://today", hello), Resource("note://news", hello, cache=Cache(60_000, "public"))],
        templates=[
            ResourceTemplate("day://{day}", lambda day: day, name="day", cache=Cache(1)),
            ResourceTemplate("plain://{day}", lambda day: day, name="plain"),
        ],
        prompts=[Prompt.text("Hello", name="hello")],
        **options,
    )


def hint(result: Message) -> tuple[Any, Any]:
    return result.get("ttlMs"), result.get("cacheScope")


@cases(("method", "params"), CACHEABLE)
@pytest.mark.covers("CCH-1")
async def test_the_six_results_say_how_long_they_may_be_kept(method: str, params: Message) -> None:
    async with connect(build(), MODERN) as client:
        # The default promises nothing.
        assert hint(await client.result(method, params)) == (0, "private")
    async with connect(build(cache=Cache(5000, "public")), MODERN) as client:
        assert hint(await client.result(method, params)) == (5000, "public")


@pytest.mark.covers("CCH-1")
async def test_a_low_level_list_says_so_too() -> None:
    server = Server("cached", cache=Cache(7, "public"))

    @server.on_list_tools
    async def tools() -> list[dict[str, Any]]:
        return [{"name": "x", "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    async def call(name: str, arguments: dict[str, Any]) -> str:
        return name

    async with connect(server, MODERN) as client:
        assert hint(await client.result("tools/list")) == (7, "public")


@pytest.mark.covers("CCH-1")
async def test_a_resource_has_a_hint_of_its_own() -> None:
    async with connect(build(cache=Cache(5000, "public")), MODERN) as client:
        for uri, expected in (
            ("note://today", (5000, "public")),
            ("note://news", (60_000, "public")),
            ("day://1", (1, "private")),
            ("plain://1", (5000, "public")),
        ):
            assert hint(await client.result("resources/read", {"uri": uri})) == expected, uri


@pytest.mark.covers("CCH-7")
async def test_every_page_of_a_listing_has_the_same_scope() -> None:
    async with connect(build(cache=Cache(5000, "public"), page_size=2), MODERN) as client:
        cursor: Message = {}
        hints = []
        while True:
            page = await client.result("tools/list", cursor)
            hints.append(hint(page))
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert hints == [(5000, "public")] * 3


@pytest.mark.covers("CCH-1")
async def test_other_results_say_nothing() -> None:
    server = build(cache=Cache(5000, "public"))

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Well?", key="k")).data)

    @server.resource("note://asks")
    async def asks(ctx: Context) -> str:
        return str((await ctx.elicit("Well?", key="k")).data)

    async with connect(server, MODERN, EVERYTHING) as client:
        results = [
            await client.result("tools/call", {"name": "tool1"}),
            await client.result("tools/call", {"name": "ask"}),
            await client.result("prompts/get", {"name": "hello"}),
            first := await client.result("resources/read", {"uri": "note://asks"}),
        ]
        assert [hint(result) for result in results] == [(None, None)] * 4
        assert first["resultType"] == "input_required"
        more = {"requestState": first["requestState"], "inputResponses": {"k": accept(True)}}
        last = await client.result("resources/read", {"uri": "note://asks", **more})
        assert hint(last) == (5000, "public")


@cases("revision", LEGACY)
async def test_before_there_are_no_hints(revision: str) -> None:
    async with connect(build(cache=Cache(5000, "public")), revision) as client:
        for method, params in CACHEABLE[1:]:
            assert hint(await client.result(method, params)) == (None, None)


@cases(("ttl", "scope"), [(-1, "private"), (1.5, "private"), (True, "private"), (0, "shared")])
@pytest.mark.covers("CCH-1")
def test_a_hint_that_the_wire_does_not_allow_is_refused(ttl: Any, scope: Any) -> None:
    with pytest.raises(ServerError, match="cache hint"):
        Cache(ttl, scope)


STAFF, PLAIN = Principal("sam", scopes=frozenset({"staff"})), Principal("pat")


@pytest.mark.covers("CCH-4")
@cases("options", [{"visible_to": ["staff"]}, {"scopes": ["staff"]}, {"tags": ["t"]}, "by_principal"])
async def test_what_is_not_for_everybody_is_never_public(options: Any) -> None:
    """A cache that serves several callers would hand one of them what only another may read."""
    policy = None
    if options == "by_principal":
        options, policy = {}, Policy(by_principal=lambda principal: Policy(mask=["x"]))
    inner = Server("inner")
    for uri in ("note://{name}", "note://one"):
        public = Cache(5000, "public")
        inner.resource(uri, cache=public, **options)((lambda name: "x") if "{" in uri else (lambda: "x"))
    inner.resource("free://one", cache=Cache(5000, "public"))(lambda: "x")
    middle = Server("middle", policy=policy).mount(inner)
    middle.restrict("t", scopes=["staff"])
    server = Server("outer").mount(middle)
    async with connect(server, MODERN, principal=STAFF) as client:
        for uri in ("note://one", "note://two"):
            assert hint(await client.result("resources/read", {"uri": uri})) == (5000, "private")
        expected = "public" if policy is None else "private"
        assert hint(await client.result("resources/read", {"uri": "free://one"})) == (5000, expected)


@pytest.mark.parametrize(("takes_context", "scope"), [(True, "private"), (False, "public")])
async def test_a_list_handler_that_looks_at_its_caller_is_never_public(takes_context: bool, scope: str) -> None:
    server = Server("s", cache=Cache(5000, "public"))
    tools = [{"name": "x", "inputSchema": {"type": "object"}}]
    server.on_list_tools((lambda ctx: tools) if takes_context else (lambda: tools))
    server.on_call_tool(lambda name, arguments: name)
    async with connect(server, MODERN, principal=PLAIN) as client:
        assert hint(await client.result("tools/list")) == (5000, scope)
