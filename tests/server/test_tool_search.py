"""`Server(search=...)`: `search_tools` and `call_tool` in place of a long list, with every rule of the inner tool."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Client, Context, Limits, Policy, ProtocolError, Server, ToolResult, testing
from toolwire.audit import AuditLog
from toolwire.auth import ApiKeys, Principal
from toolwire.protocol.apps import RENDERS_APPS
from toolwire.protocol.errors import ServerError
from toolwire.search import DEFERRING_CLIENTS, SearchSettings
from toolwire.server import tool_search
from toolwire.server.tool_search import MAX_FOUND_TOKENS
from toolwire.types import REVISIONS

BOTH = ["call_tool", "search_tools"]


def shop(search: Any = True, **options: Any) -> Server:
    server = Server("shop", search=search, **options)

    @server.tool(annotations={"readOnlyHint": True}, keywords=["purchase"], group="orders")
    def search_customers(name: str, limit: int = 2) -> str:
        """Look up people who bought something."""
        return name * limit

    @server.tool
    def delete_order(number: int) -> int:
        """Remove an order."""
        return number

    return server


async def names(client: Client) -> list[str]:
    return [each.name for each in await client.list_tools()]


async def found(client: Client, query: str, **more: Any) -> list[str]:
    text = (await client.call_tool("search_tools", {"query": query, **more})).text
    return [each["name"] for each in json.loads(text)["tools"]] if text.startswith("{") else []


async def call(client: Client, tool: str, **arguments: Any) -> ToolResult:
    return await client.call_tool("call_tool", {"name": tool, "arguments": arguments})


# --- the list ---


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_tool_is_found_described_and_called(revision: str) -> None:
    async with testing.connect(shop(), revision=revision) as (client, _):
        assert await names(client) == BOTH
        result = json.loads((await client.call_tool("search_tools", {"query": "find a customer"})).text)
        (hit,) = result["tools"]
        assert hit["name"] == "search_customers"
        assert hit["server"] == "orders"
        assert hit["description"] == "Look up people who bought something."
        assert hit["inputSchema"]["required"] == ["name"]
        assert hit["annotations"] == {"readOnlyHint": True}
        assert set(hit["matched"]) == {"customer", "find"}
        assert hit["score"] > 0
        assert (await call(client, "search_customers", name="ab")).text == "abab"


@pytest.mark.covers("TS-3")
@cases("search", [False, None, SearchSettings(mode="off"), "auto", SearchSettings(mode="auto")])
async def test_search_is_off_by_default_and_below_the_threshold(search: Any) -> None:
    async with Client(shop(search)) as client:
        assert await names(client) == ["delete_order", "search_customers"]
    async with Client(Server("shop", tools=[len])) as client:
        with pytest.raises(ProtocolError, match="Unknown tool: search_tools"):
            await client.call_tool("search_tools", {"query": "x"})


async def test_auto_begins_above_its_threshold() -> None:
    async with Client(shop(SearchSettings(mode="auto", threshold_tokens=20))) as client:
        assert await names(client) == BOTH
    server = shop("auto")
    for number in range(300):
        server.add(_named(f"tool_{number}", "Does a thing that nothing else does. " * 3))
    async with Client(server) as client:
        assert await names(client) == BOTH


@pytest.mark.covers("TS-3")
@cases("name", [*DEFERRING_CLIENTS, "Claude-Code"])
@cases("revision", ["2025-11-25", "2026-07-28"])
async def test_a_client_that_defers_by_itself_gets_the_whole_list(revision: str, name: str) -> None:
    async with Client(shop(), name=name, revision=revision) as client:
        assert await names(client) == ["delete_order", "search_customers"]
    for mine, listed in ((("mine",), BOTH), ((name,), ["delete_order", "search_customers"])):
        async with Client(
            shop(SearchSettings(mode="always", deferring_clients=mine)), name=name, revision=revision
        ) as client:
            assert await names(client) == listed


@pytest.mark.covers("TS-3")
async def test_there_is_no_search_where_every_tool_is_pinned() -> None:
    async with Client(shop(SearchSettings(mode="always", pinned=("*_order", "search_*")))) as client:
        assert await names(client) == ["delete_order", "search_customers"]
    async with Client(Server("empty", search=True)) as client:
        assert await names(client) == []


async def test_pinned_tools_stay_in_the_list_and_are_not_found() -> None:
    server = shop(SearchSettings(mode="always", pinned=("delete_*",)))

    @server.tool(pinned=True)
    def delete_customer() -> None:
        """Remove a customer."""

    async with Client(server) as client:
        assert await names(client) == ["call_tool", "delete_customer", "delete_order", "search_tools"]
        assert await found(client, "delete order customer") == ["search_customers"]
        # They can be called either way.
        assert (await call(client, "delete_order", number=4)).text == "4"


async def test_views_and_tools_for_views_stay_in_the_list(tmp_path: Any) -> None:
    server = shop()
    page = tmp_path / "view.html"
    page.write_text("<p>Hello</p>")
    app = server.app(page)

    @server.tool(visibility=["app"])
    def of_the_view() -> str:
        """Of the view."""
        return "secret of the view"

    @server.tool(app=app)
    def with_view() -> dict[str, int]:
        """Has a view."""
        return {"n": 1}

    async with Client(server) as client:
        listed = [each.name for each in await client.list_tools(audience=None)]
        assert "of_the_view" in listed
        assert "with_view" not in listed
        assert await found(client, "view") == ["with_view"]
        assert (await call(client, "with_view")).structured == {"n": 1}
        refused = await call(client, "of_the_view")
        assert refused.is_error and "There is no tool 'of_the_view'" in refused.text
    server.tool("for_both", visibility=["model", "app"])(lambda: 2)
    async with Client(server, extensions=RENDERS_APPS) as client:
        assert {"with_view", "for_both"} <= {*await names(client)}
        assert await found(client, "view") == []


async def test_outer_hints_are_those_of_all_inner_tools() -> None:
    async def hints(server: Server) -> Any:
        async with Client(server) as client:
            tools = {each.name: each for each in await client.list_tools()}
            assert tools["search_tools"].annotations.read_only_hint is True
            return tools["call_tool"].annotations

    mixed = await hints(shop())
    assert (mixed.read_only_hint, mixed.destructive_hint) == (False, True)
    harmless = Server("shop", search=True)
    for number in range(3):
        harmless.tool(f"read_{number}", annotations={"readOnlyHint": True, "destructiveHint": False})(lambda: 1)
    shown = await hints(harmless)
    assert (shown.read_only_hint, shown.destructive_hint) == (True, False)


async def test_hints_for_hosts_are_written() -> None:
    server = Server("shop", search=False)

    @server.tool(pinned=True, keywords=["rain", "sun"], group="weather", max_result_chars=400_000, meta={"x": 1})
    def forecast() -> str:
        """Tell the weather."""
        return ""

    assert server.tools[0].meta == {
        "x": 1,
        "anthropic/alwaysLoad": True,
        "anthropic/searchHint": "rain sun",
        "anthropic/maxResultSizeChars": 400_000,
        "io.toolwire/group": "weather",
    }
    async with Client(shop()) as client:
        for tool in await client.list_tools():
            assert tool.meta["anthropic/alwaysLoad"] is True


@cases(
    "options",
    [
        {"keywords": [1]},
        {"keywords": [""]},
        {"group": ""},
        {"max_result_chars": 500_001},
        {"pinned": True, "meta": {"anthropic/alwaysLoad": False}},
    ],
)
def test_wrong_hints_are_refused(options: Any) -> None:
    with pytest.raises(ServerError, match="f"):
        Server("shop").tool("f", **options)(lambda: 1)


@cases(
    "search",
    [lambda: "yes", lambda: 3, lambda: SearchSettings(mode="on"), lambda: SearchSettings(mode="auto", results=0),
     lambda: SearchSettings(mode="auto", threshold_tokens=-1), lambda: SearchSettings(mode="auto", pinned="a")],
)  # fmt: skip
def test_wrong_settings_are_refused(search: Any) -> None:
    with pytest.raises(ServerError):
        Server("shop", search=search())


async def test_result_size_of_inner_tools_is_told_at_the_outer_tool() -> None:
    server = shop()
    server.tool("dump", max_result_chars=300_000)(lambda: "x")
    async with Client(server) as client:
        tools = {each.name: each for each in await client.list_tools()}
        assert tools["call_tool"].meta["anthropic/maxResultSizeChars"] == 300_000


@cases("name", BOTH)
async def test_own_tools_cannot_have_the_names_of_the_search(name: str) -> None:
    def own() -> str:
        return "mine"

    own.__name__ = name
    with pytest.raises(ServerError, match=f"'shop' has a search, which has the name '{name}'"):
        Server("shop", search=True, tools=[own])
    server = shop()
    for add in (lambda: server.tool(own), lambda: server.add([len, own])):
        with pytest.raises(ServerError, match="give the tool another name"):
            add()
    server = shop(False).add(own)
    with pytest.raises(ServerError, match="give the tool another name"):
        server.apply_settings(replace(server.settings, search=SearchSettings(mode="always")))
    assert server.settings.search is None
    async with Client(server) as client:
        assert (await client.call_tool(name)).text == "mine"


def taker(names: tuple[str, ...] = ("call_tool", "search_tools"), **options: Any) -> Server:
    """Make a server whose tools have the names of the search."""
    server = Server("taker")
    for name in names:
        server.tool(name, **options)(lambda: "taken")
    return server


@pytest.mark.parametrize("revision", REVISIONS)
@cases("options", [{}, {"pinned": True}, {"scopes": "read"}])
async def test_mounted_tools_never_have_the_names_of_the_search(
    revision: str, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    server = shop(local_principal=Principal("ada", scopes=["read"]))
    server.mount(taker(**options)).mount(taker(("tool", "other"), **options), prefix="call")
    async with Client(server, revision=revision) as client:
        assert [each for each in await names(client) if each in BOTH] == BOTH
        assert await found(client, "select:call_tool,search_tools") == []
        assert (await call(client, "search_customers", name="x")).text == "xx"
        assert (await call(client, "call_other")).text == "taken"
        assert "There is no tool" in (await call(client, "call_tool", name="none")).text
    async with Client(server, revision=revision, name="claude-code") as client:
        assert await names(client) == ["call_other", "delete_order", "search_customers"]
        assert (await call(client, "search_customers", name="x")).text == "xx"
    said = [each.getMessage() for each in caplog.records if "the search of 'shop'" in each.getMessage()]
    assert sorted(said) == [
        f"the tool {name!r} of 'taker' is left out: the search of 'shop' has this name; give 'taker' another prefix"
        for name in BOTH
    ]


async def test_mounted_tools_get_no_name_of_the_search_when_the_list_is_short() -> None:
    server = shop("auto").mount(taker())
    async with Client(server) as client:
        assert await names(client) == ["delete_order", "search_customers"]
        assert (await call(client, "search_customers", name="x")).text == "xx"
        server.apply_settings(replace(server.settings, search=None))
        assert await names(client) == ["call_tool", "delete_order", "search_customers", "search_tools"]
        assert (await client.call_tool("call_tool")).text == "taken"


async def test_a_host_without_a_search_has_tools_that_the_mounted_server_leaves_out() -> None:
    host = Server("host").mount(shop().mount(taker()))
    async with Client(host) as client:
        assert (await client.call_tool("call_tool")).text == "taken"


async def test_tools_of_a_function_keep_the_names_of_the_search() -> None:
    server = Server("shop", search=True)

    @server.on_list_tools
    async def listed(ctx: Context) -> list[Any]:
        return [{"name": "call_tool", "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    async def called(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{name} {arguments}"

    async with Client(server) as client:
        assert (await client.call_tool("call_tool", {"name": "x"})).text == "call_tool {'name': 'x'}"


async def test_settings_of_a_running_server_change_its_list() -> None:
    server = shop(False)
    async with Client(server) as client:
        assert await names(client) == ["delete_order", "search_customers"]
        server.apply_settings(replace(server.settings, search=SearchSettings(mode="always")))
        assert await names(client) == BOTH
        assert await found(client, "order") == ["delete_order", "search_customers"]


async def test_pages_of_the_short_list() -> None:
    server = shop(page_size=1)
    async with testing.connect(server) as (client, wire):
        assert await names(client) == BOTH
    # Clients of one caller get different lists, so none of them is for all.
    assert '"cacheScope":"public"' not in str(wire)


# --- searching ---


@pytest.mark.covers("TS-4")
async def test_an_empty_search_answers_with_a_text() -> None:
    async with Client(shop()) as client:
        for query in ("", "zebra"):
            result = await client.call_tool("search_tools", {"query": query})
            assert not result.is_error
            assert result.text.startswith(f"No tool matches '{query}'.") and "orders (1)" in result.text


async def test_wrong_arguments_of_a_search_are_an_error() -> None:
    async with Client(shop()) as client:
        for arguments in ({"query": 7}, {"query": "x", "limit": "many"}):
            result = await client.call_tool("search_tools", arguments)
            assert result.is_error and "`query`" in result.text


async def test_number_of_results_is_bounded() -> None:
    server = Server("shop", search=SearchSettings(mode="always", results=3))
    for number in range(60):
        server.add(_named(f"order_{number:02}", "About an order."))
    async with Client(server) as client:
        assert len(await found(client, "order")) == 3
        assert len(await found(client, "order", limit=7)) == 7
        assert len(await found(client, "order", limit=1_000)) == 20
        assert len(await found(client, "order", limit=-1)) == 1
        assert await found(client, "select:order_07,order_03,nothing") == ["order_07", "order_03"]


async def test_long_definitions_are_left_out_of_an_answer() -> None:
    server = Server("shop", search=True)
    for number in range(10):
        server.add(_named(f"order_{number}", "An order of many words. " * 500))
    async with Client(server) as client:
        answer = json.loads((await client.call_tool("search_tools", {"query": "order", "limit": 10})).text)
        whole = [each for each in answer["tools"] if "inputSchema" in each]
        assert 0 < len(whole) < len(answer["tools"]) == 10
        assert "definitions are left out" in answer["note"]
        assert len(json.dumps(answer)) < MAX_FOUND_TOKENS * 8


# --- calling ---


@pytest.mark.covers("TS-4")
async def test_wrong_arguments_are_answered_with_the_schema() -> None:
    async with Client(shop()) as client:
        result = await call(client, "search_customers", nme="x")
        assert result.is_error
        assert "nme" in result.text
        assert '"required":["name"]' in result.text


async def test_an_error_of_the_tool_itself_has_no_schema() -> None:
    server = shop()

    @server.tool
    def fail(x: int) -> None:
        """Fail."""
        raise ValueError

    async with Client(server) as client:
        result = await call(client, "fail", x=1)
        assert result.is_error and "schema" not in result.text


@pytest.mark.covers("TS-4")
async def test_unknown_names_are_answered_with_a_near_one() -> None:
    async with Client(shop()) as client:
        result = await call(client, "search_customer")
        assert result.is_error
        assert result.text == (
            "There is no tool 'search_customer'. Did you mean 'search_customers'? Find tools with search_tools."
        )


async def test_masks_hold_for_what_a_failed_call_explains() -> None:
    server = shop(policy=Policy(mask=["sk-[A-Z0-9]+", "Up to [0-9]+"]))

    @server.tool
    def place(number: int) -> int:
        """Place an order."""
        return number

    place_schema = server.catalog.tools["place"].input_schema["properties"]["number"]
    place_schema["description"] = "Up to 700"
    async with Client(server) as client:
        unknown = await call(client, "sk-ABCDEFGH99999")
        assert unknown.is_error and unknown.text == "There is no tool '[redacted]'. Find tools with search_tools."
        wrong = await call(client, "place", number="x")
        assert wrong.is_error and "The arguments do not fit" in wrong.text and "700" not in wrong.text


@cases("arguments", [{}, {"name": 7}, {"name": "delete_order", "arguments": [1]}, {"name": "x", "arguments": "{"}])
async def test_a_call_that_names_no_tool_is_an_error_of_call_tool(arguments: Any) -> None:
    async with Client(shop()) as client:
        result = await client.call_tool("call_tool", arguments)
        assert result.is_error and "a text `name` and an object `arguments`" in result.text


async def test_arguments_as_a_text_are_understood() -> None:
    async with Client(shop()) as client:
        asked = {"name": "search_customers", "arguments": '{"name": "x"}'}
        assert (await client.call_tool("call_tool", asked)).text == "xx"


async def test_call_tool_calls_itself_no_deeper_than_its_arguments() -> None:
    async with Client(shop()) as client:
        asked = {"name": "call_tool", "arguments": {"name": "delete_order", "arguments": {"number": 3}}}
        assert (await client.call_tool("call_tool", asked)).text == "3"
        assert (await call(client, "search_tools", query="zebra")).text.startswith("No tool matches")


# --- rules of the inner tool ---


@pytest.mark.covers("TS-1")
async def test_policies_audit_masks_and_middleware_see_the_inner_tool() -> None:
    lines: list[str] = []
    asked: list[str] = []
    seen: list[str] = []

    async def approve(ctx: Context, request: Any) -> bool:
        asked.append(request.name)
        return bool(request.arguments.get("number") != 13)

    audit = AuditLog(lines.append, key="a key of sixteen bytes")
    server = Server("shop", search=True, audit=audit)

    @server.tool(policy=Policy(approve=approve, rate="3/minute", mask=["secret-[0-9]+"]))
    def delete_order(number: int) -> str:
        """Remove an order."""
        return f"deleted secret-{number}"

    @server.use
    async def note(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            seen.append(ctx.params.name)
        return await call_next(ctx)

    async with Client(server) as client:
        assert "secret" not in (await call(client, "delete_order", number=1)).text
        assert (await call(client, "delete_order", number=13)).is_error
        assert await found(client, "order") == ["delete_order"]
        await call(client, "delete_order", number=2)
        refused = await call(client, "delete_order", number=3)
        assert refused.is_error and "3 calls a minute" in refused.text
    audit.close()
    assert asked == ["delete_order"] * 3
    assert set(seen) == {"delete_order", "search_tools"}
    recorded = [json.loads(line) for line in lines]
    called = [each["name"] for each in recorded if "name" in each and "outcome" in each]
    assert called == ["delete_order", "delete_order", "search_tools", "delete_order", "delete_order"]


async def test_arguments_of_a_broken_call_are_in_no_record() -> None:
    lines: list[str] = []
    audit = AuditLog(lines.append, key="a key of sixteen bytes")
    async with Client(shop(audit=audit)) as client:
        await client.call_tool("call_tool", {"arguments": {"password": "hunter2"}})
    audit.close()
    assert "call_tool" in "".join(lines) and "hunter2" not in "".join(lines)


@pytest.mark.covers("TS-2")
async def test_forbidden_tools_are_neither_found_nor_callable() -> None:
    server = shop(auth=ApiKeys({"a" * 16: Principal("alice"), "b" * 16: Principal("bob", scopes=frozenset({"admin"}))}))
    server.tool("wipe_orders", scopes="admin")(lambda: "wiped")
    server.tool("hidden_orders", visible_to="admin")(lambda: "hidden")
    app = server.http_app()
    async with app.lifespan():
        for key, allowed in (("a", False), ("b", True), ("a", False)):
            client, sent = ModernClient(app), {"authorization": f"Bearer {key * 16}"}
            listed = (await client.request("tools/list", headers=sent)).answer()["result"]["tools"]
            assert [each["name"] for each in listed] == BOTH
            answer = await client.call("search_tools", {"query": "orders", "limit": 20}, headers=sent)
            hits = {each["name"] for each in json.loads(answer.answer()["result"]["content"][0]["text"])["tools"]}
            assert {"wipe_orders", "hidden_orders"} <= hits if allowed else hits == {"delete_order", "search_customers"}
            wiped = await client.call("call_tool", {"name": "wipe_orders"}, headers=sent)
            assert wiped.status == (200 if allowed else 403)
            hidden = (await client.call("call_tool", {"name": "hidden_orders"}, headers=sent)).answer()["result"]
            assert hidden.get("isError", False) is not allowed
            if not allowed:
                assert "There is no tool 'hidden_orders'" in hidden["content"][0]["text"]
                near = (await client.call("call_tool", {"name": "hidden_order"}, headers=sent)).answer()["result"]
                assert "hidden_orders" not in near["content"][0]["text"]


@pytest.mark.covers("TS-2")
async def test_callers_with_different_tools_do_not_rebuild_the_index_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    class Counted(tool_search.ToolIndex):
        def __init__(self, tools: Any) -> None:
            super().__init__(tools)
            built.append(len(self))

    monkeypatch.setattr(tool_search, "ToolIndex", Counted)
    server = shop()
    server.tool("hidden_orders", visible_to="admin")(lambda: "hidden")
    admin = Principal("bob", scopes=frozenset({"admin"}))
    async with (
        testing.connect(server, principal=admin) as (bob, _),
        testing.connect(server, principal=Principal("alice")) as (alice, _),
    ):
        for _ in range(3):
            assert "hidden_orders" in await found(bob, "orders")
            assert "hidden_orders" not in await found(alice, "orders")
        assert sorted(built) == [2, 3]
        server.notify_changed("resources")
        assert "hidden_orders" in await found(bob, "orders")
        assert len(built) == 2
        server.add(_named("count_orders", "Count orders."))
        assert "count_orders" in await found(alice, "orders")
        assert len(built) == 3


async def test_a_large_index_is_built_once_for_searches_at_the_same_time() -> None:
    server = Server("shop", search=True)
    for number in range(400):
        server.add(_named(f"order_{number}", f"About order {number}."))
    async with Client(server) as client:
        results = await asyncio.gather(*(found(client, f"order {number}") for number in range(20)))
        assert [each[0] for each in results] == [f"order_{number}" for number in range(20)]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_questions_progress_and_logs_of_inner_tools(revision: str) -> None:
    server = Server("shop", search=True)

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a name."""
        await ctx.report_progress(1, 2, "half")
        if revision < "2025-06-18":
            return "Ann"
        return str((await ctx.elicit("Name?", str)).data)

    told: list[Any] = []
    answers = {"value": "Ann"}
    async with testing.connect(
        server, revision=revision, elicit=lambda message, params: answers, on_progress=told.append
    ) as (client, _):
        assert (await call(client, "ask")).text == "Ann"
        assert [each.progress for each in told][:1] == [1]


@pytest.mark.covers("TS-1")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_inner_tools_are_tasks(revision: str, over: Any) -> None:
    server = Server("shop", search=True, limits=Limits(task_poll=0.05))

    @server.tool(task="optional")
    async def export(kind: str) -> str:
        """Export everything."""
        return f"exported {kind}"

    server.tool("plain")(lambda: "plain")
    async with testing.connect(server, revision=revision, over=over) as (client, _):
        asked = {"name": "export", "arguments": {"kind": "all"}}
        task = await client.call_tool_as_task("call_tool", asked)
        assert (await task.wait()).text == "exported all"
        assert (await client.call_tool("call_tool", {"name": "plain"})).text == "plain"


async def test_structured_content_of_inner_tools_passes() -> None:
    server = Server("shop", search=True)
    server.tool("count")(_count)
    async with testing.connect(server) as (client, _):
        assert (await call(client, "count")).structured == {"n": 3}
    assert (await server.call_tool("call_tool", {"name": "count"})).structured == {"n": 3}


def _count() -> dict[str, int]:
    """Count."""
    return {"n": 3}


def _named(name: str, text: str) -> Any:
    def function() -> str:
        return name

    function.__name__, function.__doc__ = name, text
    return function


async def test_cancelling_a_call_cancels_the_inner_tool() -> None:
    server, begun, ended = Server("shop", search=True), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with testing.connect(server) as (client, _):
        waiting = asyncio.ensure_future(client.call_tool("call_tool", {"name": "wait"}))
        await begun.wait()
        waiting.cancel()
        await ended.wait()
        assert await found(client, "wait") == ["wait"]
