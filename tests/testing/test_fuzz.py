"""Fuzzing: what counts as a failure, and that the arguments fit the schema."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from tests.blocks import python_blocks
from tests.client.fake import FakeServer

from toolwire import Client, Context, Limits, Policy, Server, ToolError, schemas
from toolwire.auth import Principal
from toolwire.client import Decline
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported
from toolwire.testing import elapse
from toolwire.testing.failures import Failure
from toolwire.testing.fuzzing import fuzz
from toolwire.testing.hostile import attack
from toolwire.testing.schema_values import RandomMaker


@dataclass
class Node:
    name: Annotated[str, Meta(min_length=1, max_length=8)]
    children: list[Node]
    next: Node | None = None


def make_server() -> Server:
    server = Server("shop")

    @server.tool
    def good(text: str, count: Annotated[int, Meta(ge=1, le=5)], kind: Literal["a", "b"] = "a") -> str:
        assert 1 <= count <= 5
        return text * count + kind

    @server.tool
    def refuses(text: str) -> str:
        raise ToolError("not today")

    @server.tool
    def tree(node: Node, depth: Annotated[float, Meta(gt=0, lt=1)]) -> int:
        return len(node.children)

    return server


async def test_tools_that_hold_have_no_failures() -> None:
    assert await fuzz(make_server(), examples=30) == []


async def test_tasks_are_not_waited_for_longer_than_they_take() -> None:
    server = Server("tasks", limits=Limits(task_window=0.0, task_poll=3600.0))
    ran: list[int] = []

    @server.tool(task="required")
    async def only(number: int) -> int:
        ran.append(number)
        return number

    @server.tool(task="optional")
    async def maybe(number: int, ctx: Context) -> int:
        ran.append(number)
        return number

    # Who polled as seldom as the server says would be here for days.
    assert await fuzz(server, examples=5) == []
    assert len(ran) >= 10
    async with Client(server) as client:
        assert (await (await client.call_tool_as_task("maybe", {"number": 1})).status()).poll_interval == 60.0


async def test_a_rate_protects_nothing_from_being_tried() -> None:
    server = Server("s", policy=Policy(rate="1/minute"))

    @server.tool
    def index(at: int) -> str:
        return "abc"[at]

    (failure,) = await fuzz(server)
    assert failure.problem == "raised IndexError"


async def test_the_first_failure_of_a_tool_is_made_simple() -> None:
    server = make_server()

    @server.tool
    def index(words: list[str], at: int, rest: str = "") -> str:
        return words[at]

    (failure,) = await fuzz(server)
    assert failure.name == "index"
    assert failure.problem == "raised IndexError"
    assert failure.arguments == {"words": [], "at": 0}
    assert "return words[at]" in str(failure)


async def test_the_same_seed_makes_the_same_calls() -> None:
    async def calls(seed: int) -> list[Any]:
        seen: list[Any] = []
        server = Server("shop")

        @server.tool
        async def note(text: str, count: int, tags: list[str]) -> str:
            seen.append((text, count, tags))
            return ""

        await fuzz(server, seed=seed, examples=20)
        return seen

    first, again, other = await calls(1), await calls(1), await calls(2)
    assert first == again != other
    assert len(first) >= 20


async def test_tool_that_hangs_is_found_on_a_server_that_is_slow_to_list_it() -> None:
    async def list_slowly(request: Any, outlet: Any) -> Any:
        await elapse(1.0)
        return t.ListToolsResult(tools=[t.Tool("wait", {"type": "object"})])

    async def hang(request: Any, outlet: Any) -> Any:
        await asyncio.Event().wait()

    (failure,) = await fuzz(FakeServer({"tools/list": list_slowly, "tools/call": hang}), timeout=0.05)
    assert failure.problem == "did not answer in time"


def make_asking_server() -> Server:
    server = Server("shop")

    @server.tool
    async def ship(order: int, ctx: Context) -> str:
        count = await ctx.elicit("How many?", Annotated[int, Meta(ge=1, le=9)])
        if count.accepted and count.data == 9:
            raise KeyError("nine")
        return (await ctx.sample(f"Write a letter for order {order}")).text

    return server


async def test_what_a_tool_asks_is_answered_from_the_schema() -> None:
    (failure,) = await fuzz(make_asking_server())
    assert (failure.problem, failure.answers) == ("raised KeyError", ({"accept": {"value": 9}},))
    assert '"value": 9' in str(failure)


async def test_what_a_tool_asks_is_answered_by_callbacks() -> None:
    assert await fuzz(make_asking_server(), elicit=lambda message, params: {"value": 8}, sample=lambda _: "Dear…") == []
    assert await fuzz(make_asking_server(), elicit=lambda message, params: Decline()) == []


async def test_questions_are_declined_now_and_then() -> None:
    actions: set[str] = set()
    server = Server("shop")

    @server.tool
    async def agree(ctx: Context) -> None:
        actions.add((await ctx.elicit("Really?", bool)).action)

    assert await fuzz(server) == []
    assert actions == {"accept", "decline", "cancel"}


async def test_what_the_schema_of_a_form_cannot_say_is_no_failure() -> None:
    server = Server("shop")

    @server.tool
    async def find(ctx: Context) -> None:
        await ctx.elicit("Which?", Annotated[str, Meta(pattern="^[A-Z]{17}7$")])

    assert await fuzz(server) == []


async def test_a_tool_may_refuse_a_client_that_lacks_something() -> None:
    server = Server("shop")

    @server.tool
    async def sign(ctx: Context) -> None:
        raise NotSupported("this needs a client that signs", {"experimental": {"signing": {}}})

    assert await fuzz(server) == []


async def test_the_server_of_the_readme_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "readme_weather.py"
    file.write_text(python_blocks()["README_1"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    server = import_module("readme_weather").server
    assert await fuzz(server) == []
    assert await attack(server) == []


async def test_what_is_destructive_is_left_out_unless_named() -> None:
    called: list[str] = []
    server = Server("shop")

    @server.tool(annotations={"destructiveHint": True})
    async def purge() -> None:
        called.append("purge")

    assert await fuzz(server) == []
    assert called == []
    assert await fuzz(server, tools=["purge"]) == []
    assert called
    with pytest.raises(ValueError, match="no tool 'nothing'"):
        await fuzz(server, tools=["nothing"])


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (t.CallToolResult(content=[], structured_content={"n": "x"}), "broke its promise"),
        (t.CallToolResult(content=[], structured_content={"n": 1}), "took arguments that its schema refuses"),
    ],
)
async def test_a_server_that_is_not_ours(result: t.CallToolResult, problem: str) -> None:
    takes = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    gives = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = t.Tool("odd", takes, output_schema=gives)
    server = FakeServer(
        {
            "tools/list": lambda request, outlet: t.ListToolsResult(tools=[tool]),
            "tools/call": lambda request, outlet: result,
        }
    )
    (failure,) = await fuzz(server)
    assert failure.problem.startswith(problem)


async def test_a_schema_that_nothing_is_found_for() -> None:
    server = Server("shop")

    @server.tool
    async def code(text: Annotated[str, Meta(pattern="^[A-Z]{17}7$")]) -> None: ...

    with pytest.raises(ValueError, match="no arguments could be made for 'code'"):
        await fuzz(server)


SCHEMAS = [
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "integer", "minimum": 3, "exclusiveMaximum": 9, "multipleOf": 3},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    {"type": ["boolean", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}, "minItems": 2}]},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "maxItems": 2},
    {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"const": 1}}}]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"$ref": "#/$defs/Tree", "$defs": {"Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}},
    {"enum": [1, "a", None]},
    {"type": "string", "format": "date-time"},
    True,
]


@given(seed=st.integers(), schema=st.sampled_from(SCHEMAS))
def test_values_fit_their_schema(seed: int, schema: Any) -> None:
    value = RandomMaker(schema if isinstance(schema, dict) else {}, Random(seed)).value(schema)
    if isinstance(schema, dict):
        assert schemas.compile(schema, what="it").check(value) == []


async def test_tools_are_called_by_the_principal_that_is_named() -> None:
    callers: set[str | None] = set()
    server = Server("s")

    @server.tool(scopes=["read"])
    def mine(ctx: Context) -> str:
        callers.add(ctx.principal.subject)  # type: ignore[union-attr]
        return "x"

    @server.tool(visible_to=["staff"])
    def hidden() -> str:
        raise AssertionError("nobody sees it")

    assert await fuzz(server, principal=Principal("ann", scopes=frozenset({"read"})), examples=2) == []
    assert callers == {"ann"}
    (failure,) = await fuzz(server, tools=["mine"], examples=2)
    assert failure.problem == "raised AttributeError"


def test_failure_shows_control_characters_as_escapes() -> None:
    shown = str(Failure("tool\x1b[2J", "raised\x07", {}, ValueError("hidden\x1b]0;owned\x07\nsecond line")))
    assert not set("\x1b\x07") & set(shown)
    assert shown.endswith("hidden\\x1b]0;owned\\x07\nsecond line")
