"""Results of tools: as the caller's types, checked against schemas, and of every kind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pydantic
import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, raw_arguments, text

from toolwire import Server, testing
from toolwire.client import Client, InvalidResponse
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolFailed
from toolwire.protocol.revisions import MODERN
from toolwire.testing import elapse

OBJECT = {"type": "object"}


def tool(name: str, **members: Any) -> t.Tool:
    return t.Tool(name, OBJECT, **members)


def listing(*tools: t.Tool) -> Any:
    return lambda request, outlet: t.ListToolsResult(tools=list(tools))


@dataclass
class Row:
    city: str
    high: float


@dataclass
class Defaults:
    loud: bool = False


# --- typed results ---


@cases(
    ("structured", "returns", "value"),
    [
        ({"city": "Oslo", "high": 3.5}, Row, Row("Oslo", 3.5)),
        ([{"city": "Oslo", "high": 3}], list[Row], [Row("Oslo", 3.0)]),
        ({"result": [1, 2]}, list[int], [1, 2]),
        ({"result": 5}, int, 5),
        ({"result": 5}, dict[str, int], {"result": 5}),
        (None, int | None, None),
        (7, type(None), None),
        ({"city": "Oslo", "high": 3.5, "added_later": True}, Row, Row("Oslo", 3.5)),
        ([{"city": "Oslo", "high": 3.5, "added_later": True}], list[Row], [Row("Oslo", 3.5)]),
        ({"result": {"loud": True}}, Defaults | None, Defaults(loud=True)),
        ({"result": {"loud": True, "added_later": 1}}, Defaults, Defaults(loud=True)),
        ({"result": 5}, Defaults, Defaults()),
    ],
)
async def test_returns_makes_a_value_of_structured_content(structured: Any, returns: Any, value: Any) -> None:
    result = {"resultType": "complete", "content": [], "structuredContent": structured}
    async with Client(FakeServer({"tools/call": lambda r, o: result})) as client:
        assert await client.call_tool("x", returns=returns) == value
        assert (await client.call_tool("x", returns=ToolResult)).structured == structured


WRAPPED = {"type": "object", "properties": {"result": {}}, "required": ["result"]}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_wrapped_schema_is_unwrapped_even_where_the_wrapper_would_fit(revision: str) -> None:
    server = FakeServer(
        {
            "tools/list": listing(tool("x", output_schema=WRAPPED)),
            "tools/call": lambda r, o: text("", structured_content={"result": {"a": 1}}),
        }
    )
    async with Client(server, revision=revision) as client:
        assert await client.call_tool("x", returns=dict[str, Any]) == {"a": 1}
    del server.handlers["tools/list"]
    async with Client(server, revision=revision) as client:
        assert await client.call_tool("x", returns=dict[str, Any]) == {"result": {"a": 1}}, "nobody knows the schema"


@cases(
    ("texts", "returns", "value"),
    [
        (["plain words"], str, "plain words"),
        (["a", "b"], str, "a\nb"),
        (['{"city": "Oslo", "high": 3}'], Row, Row("Oslo", 3.0)),
        (['{"city": "Oslo", "high": 3, "added_later": true}'], Row, Row("Oslo", 3.0)),
        (["5"], int, 5),
        (["hello"], str | None, "hello"),
        (["1", "2"], list[int], [1, 2]),
        (["a", "b"], list[str], ["a", "b"]),
        ([], list[int], []),
    ],
)
async def test_returns_reads_text_where_there_is_nothing_else(texts: list[str], returns: Any, value: Any) -> None:
    async with Client(FakeServer({"tools/call": lambda r, o: text(*texts)}), revision="2024-11-05") as client:
        assert await client.call_tool("x", returns=returns) == value


async def test_a_model_with_a_computed_field_is_read_back_by_its_own_class() -> None:
    class Square(pydantic.BaseModel):
        side: int

        @pydantic.computed_field
        def area(self) -> int:
            return self.side**2

    structured = Square(side=2).model_dump()
    async with Client(FakeServer({"tools/call": lambda r, o: text("", structured_content=structured)})) as client:
        assert await client.call_tool("x", returns=Square) == Square(side=2)


async def test_returns_raises_for_a_tools_error_and_for_a_wrong_value() -> None:
    server = FakeServer({"tools/call": lambda r, o: text("out of ink", is_error=True)})
    async with Client(server) as client:
        with pytest.raises(ToolFailed, match="out of ink") as caught:
            await client.call_tool("print", returns=int)
        assert caught.value.result.is_error
        server.handlers["tools/call"] = lambda r, o: text("", structured_content={"result": "many"})
        with pytest.raises(InvalidResponse, match=r"^'print' returned .*many.*, which cannot be read as int: "):
            await client.call_tool("print", returns=int)
        server.handlers["tools/call"] = lambda r, o: text("many\x1b" + 200 * "x")
        shown = r"^'print' returned the text 'many\\x1bx{95}…', which cannot be read as int$"
        with pytest.raises(InvalidResponse, match=shown):
            await client.call_tool("print", returns=int)


async def test_a_stub_calls_tools_by_its_methods() -> None:
    class Weather(Protocol):
        async def forecast(self, city: str, days: int = 1) -> list[Row]: ...

        async def reset(self) -> None: ...

        async def raw(self, *, deep: bool): ...  # type: ignore[no-untyped-def]

    calls: list[Any] = []

    def call(request: Any, outlet: Any) -> Any:
        calls.append((request.params.name, raw_arguments(request)))
        return text("", structured_content={"result": [{"city": "Oslo", "high": 1}]})

    async with Client(FakeServer({"tools/call": call})) as client:
        weather = client.stub(Weather)
        assert await weather.forecast("Oslo") == [Row("Oslo", 1.0)]
        assert await weather.forecast(city="Oslo", days=2) == [Row("Oslo", 1.0)]
        await weather.reset()
        assert isinstance(await weather.raw(deep=True), ToolResult)
        with pytest.raises(TypeError):
            await weather.forecast()  # type: ignore[call-arg]
    assert calls == [
        ("forecast", {"city": "Oslo"}),
        ("forecast", {"city": "Oslo", "days": 2}),
        ("reset", {}),
        ("raw", {"deep": True}),
    ]


def test_a_stub_of_what_can_not_be_called_is_refused() -> None:
    class NotAsync(Protocol):
        def go(self) -> int: ...

    class Star(Protocol):
        async def go(self, *args: int) -> int: ...

    class Nothing(Protocol):
        x: int

    client = Client(FakeServer())
    for wrong in (NotAsync, Star, Nothing):
        with pytest.raises(TypeError):
            client.stub(wrong)


INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# --- validation ---


@pytest.mark.covers("OUT-2", "R24")
@cases("revision", ["2025-06-18", "2025-11-25", MODERN])
@cases("returns", [None, dict[str, Any]])
async def test_the_first_structured_result_is_checked_though_nobody_listed_the_tools(
    revision: str, returns: Any
) -> None:
    answers = {"bad": {"n": "one"}, "good": {"n": 1}}
    server = FakeServer(
        {
            "tools/list": listing(*(tool(name, output_schema=INTEGER) for name in answers)),
            "tools/call": lambda request, o: text("", structured_content=answers[request.params.name]),
        }
    )
    async with Client(server, revision=revision) as client:
        results = await asyncio.gather(
            *(client.call_tool(name, returns=returns) for name in ("bad", "good", "bad", "good")),
            return_exceptions=True,
        )
        assert [isinstance(result, InvalidResponse) for result in results] == [True, False, True, False]
        # However many wait for it, the list is asked for once.
        assert server.methods().count("tools/list") == 1
        with pytest.raises(InvalidResponse, match="output schema"):
            await client.call_tool("bad")
        assert server.methods().count("tools/list") == 1


async def test_a_result_without_structure_costs_no_listing() -> None:
    server = FakeServer({"tools/list": listing(tool("x")), "tools/call": lambda r, o: text("plain")})
    async with Client(server) as client:
        assert (await client.call_tool("x")).text == "plain"
    assert "tools/list" not in server.methods()


@pytest.mark.covers("R24")
@pytest.mark.parametrize("trouble", ["refused", "broken", "silent", "not there"])
async def test_a_list_that_cannot_be_had_takes_no_result_away(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def listed(request: Any, outlet: Any) -> Any:
        asked.set()
        if trouble == "silent":
            await asyncio.Event().wait()
        if trouble == "refused":
            raise ProtocolError(-32603, "no list today")
        return {"tools": "many"}

    answer = text("", structured_content={"n": "one"})
    server = FakeServer({"tools/list": listed, "tools/call": lambda r, o: answer})
    if trouble == "not there":
        del server.handlers["tools/list"]
        asked.set()
    async with Client(server) as client:
        calling = asyncio.ensure_future(client.call_tool("x"))
        await asked.wait()
        if trouble == "silent":
            await elapse(6)
        assert (await calling).structured == {"n": "one"}
        assert (await client.call_tool("x")).structured == {"n": "one"}
    assert server.methods().count("tools/list") <= 1
    assert "results are not checked" in caplog.text


@pytest.mark.covers("OUT-2", "T-19")
@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_results_are_checked_against_the_schema_once_it_is_known(revision: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answer: t.CallToolResult = text("", structured_content={"n": "one"})
    server = FakeServer({"tools/list": listing(tool("x", output_schema=schema)), "tools/call": lambda r, o: answer})
    async with Client(server, revision=revision) as client:
        await client.list_tools()
        before = len(server.requests)
        with pytest.raises(InvalidResponse, match=r'does not fit .* output schema.*"n"'):
            await client.call_tool("x")
        with pytest.raises(InvalidResponse, match="output schema"):
            await client.call_tool("x", returns=dict[str, Any])
        # A check costs no request. The first result that does not fit asks whether the schema is still the same.
        methods = [each.method for each in server.requests[before:]]
        assert methods == ["tools/call", "tools/list", "tools/call"]
        answer = text("")
        with pytest.raises(InvalidResponse, match="no structured content"):
            await client.call_tool("x")
        answer = text("failed", is_error=True)
        assert (await client.call_tool("x")).is_error
        answer = text("", structured_content={"n": 1})
        assert (await client.call_tool("x")).structured == {"n": 1}


async def test_a_schema_that_points_outside_is_refused_not_fetched() -> None:
    server = FakeServer(
        {
            "tools/list": listing(tool("x", output_schema={"$ref": "http://127.0.0.1:9/schema"})),
            "tools/call": lambda r, o: text("", structured_content={}),
        }
    )
    async with Client(server) as client:
        await client.list_tools()
        with pytest.raises(InvalidResponse, match="the output schema of 'x'"):
            await client.call_tool("x")


@pytest.mark.covers("R7")
async def test_a_changed_list_is_listed_again() -> None:
    strict = {"type": "object", "required": ["new"]}
    server = FakeServer({"tools/list": listing(tool("x")), "tools/call": lambda r, o: text("", structured_content={})})
    async with testing.connect(server, revision="2025-06-18") as (client, wire):
        server.session.notify("notifications/tools/list_changed", msgspec.UNSET)
        await client.ping()
        assert server.methods() == []  # Nobody asked for the list yet, so nobody needs a new one.
        await client.list_tools()
        server.handlers["tools/list"] = listing(tool("x", output_schema=strict))
        server.session.notify("notifications/tools/list_changed", msgspec.UNSET)
        await wire.until(lambda way, message: way == "←" and "new" in str(message.get("result")))
        await client.ping()
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_who_hears_of_a_change_and_lists_is_not_doubled(revision: str) -> None:
    server = Server("s")
    server.tool(lambda: "", name="first")
    async with testing.connect(server, revision=revision) as (client, wire):
        await client.list_tools()
        async with client.listen(tools=True) as changes:
            server.tool(lambda: "", name="second")
            await anext(aiter(changes))
            assert len(await client.list_tools()) == 2
        await client.ping()
        sent = [message.get("method") for way, message in wire.messages if way == "→"]
        assert sent.count("tools/list") == 2


async def test_definitions_that_are_out_of_date_are_not_used() -> None:
    strict = {"type": "object", "required": ["old"]}
    listed = asyncio.Event()
    server = FakeServer(
        {
            "tools/list": listing(tool("x", output_schema=strict)),
            "tools/call": lambda r, o: text("", structured_content={}),
        }
    )
    async with testing.connect(server, revision="2025-06-18") as (client, _):
        await client.list_tools()
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")

        async def later(request: Any, outlet: Any) -> Any:
            await listed.wait()
            return t.ListToolsResult(tools=[])

        server.handlers["tools/list"] = later
        server.session.notify("notifications/tools/list_changed", msgspec.UNSET)
        assert (await client.call_tool("x")).structured == {}
        listed.set()


@pytest.mark.covers("JSC-5")
async def test_unknown_keywords_and_members_survive() -> None:
    schema = {"type": "object", "$defs": {"a": {"$anchor": "b"}}, "x-mcp-header": "Q", "if": {}, "unevaluatedItems": 1}
    raw = {"tools": [{"name": "x", "inputSchema": schema, "futureMember": [1]}], "resultType": "complete"}
    async with Client(FakeServer({"tools/list": lambda r, o: raw})) as client:
        [found] = await client.list_tools()
        assert found.input_schema == schema
        assert found.extra == {"futureMember": [1]}


# --- result types ---


@pytest.mark.covers("RPC-7")
@cases("kind", ["task", "sideways", 7, None])
async def test_an_unknown_result_type_is_invalid(kind: Any) -> None:
    broken = {"resultType": kind, "content": [], "tools": []}
    async with Client(FakeServer({"tools/call": lambda r, o: broken, "tools/list": lambda r, o: broken})) as client:
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")
        with pytest.raises(InvalidResponse):
            await client.list_tools()


@pytest.mark.covers("RPC-8")
async def test_a_missing_result_type_is_complete() -> None:
    async with Client(FakeServer({"tools/call": lambda r, o: {"content": []}})) as client:
        assert (await client.call_tool("x")).content == []


async def test_only_three_methods_may_ask_back() -> None:
    asks = {"resultType": "input_required", "requestState": "s"}
    async with Client(FakeServer({"tools/list": lambda r, o: asks})) as client:
        with pytest.raises(InvalidResponse, match="input_required"):
            await client.list_tools()


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_broken_result_is_an_invalid_response(revision: str) -> None:
    async with Client(FakeServer({"tools/call": lambda r, o: {"content": "text"}}), revision=revision) as client:
        with pytest.raises(InvalidResponse, match="tools/call is broken"):
            await client.call_tool("x")
