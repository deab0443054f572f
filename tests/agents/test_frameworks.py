"""What all adapters for agent frameworks share. Their agents run in tests/interop/test_foreign_adapters.py."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest
from tests.blocks import ROOT
from tests.cases import cases
from tests.patience import patience

from toolwire import Client, Server, Tool, ToolError, agents
from toolwire.agents import (
    LangChainTools,
    LlamaIndexTools,
    Toolset,
    adk_toolset,
    openai_agents_server,
    pydantic_ai_toolset,
)
from toolwire.agents.frameworks.framework_tools import FrameworkTools, part_text, result_text
from toolwire.agents.frameworks.graph_calls import GraphCall, GraphQuestion
from toolwire.agents.result_parts import Part, ResultParts
from toolwire.client import Accept
from toolwire.types import ElicitRequestParams, ToolAnnotations

FOLDER = ROOT / "src" / "toolwire" / "agents" / "frameworks"
ADAPTERS = [path for path in sorted(FOLDER.glob("*.py")) if "with framework(" in path.read_text("utf-8")]
READS = ToolAnnotations(read_only_hint=True)


def shop() -> Server:
    server = Server("shop")

    @server.tool(annotations=READS)
    async def add(a: int) -> str:
        """Add."""
        return f"shop {a}"

    @server.tool
    async def fail() -> str:
        raise ToolError("sold out")

    return server


@cases("path", ADAPTERS, ids=lambda path: path.stem)
def test_adapters_are_short_and_import_no_mcp(path: object) -> None:
    text = path.read_text("utf-8")  # type: ignore[attr-defined]
    assert re.findall(r"^\s*(?:from|import) mcp\b|\"mcp\"", text, re.MULTILINE) == []
    assert len(text.splitlines()) < 200


@pytest.mark.covers("AG-14")
async def test_tools_are_listed_and_called_as_in_the_toolset() -> None:
    other = Server("zoo")
    other.add(Tool(lambda: "fed", name="feed"))
    tools = FrameworkTools([{"shop": shop(), "zoo": other}], {"approve": lambda call: call.name != "feed"})
    await tools.open()
    try:
        listed = await tools.list_tools()
        assert [(each.name, each.server, each.is_parallel) for each in listed] == [
            ("shop_add", "shop", True),
            ("shop_fail", "shop", False),
            ("zoo_feed", "zoo", False),
        ]
        assert listed[0].description == "Add."
        assert listed[0].schema["required"] == ["a"]
        assert await tools.call("shop_add", {"a": 1}) == ResultParts([Part("text", "shop 1")])
        assert result_text(await tools.call("shop_add", '{"a": 2}')) == "shop 2"
        for name, arguments, text in (
            ("shop_fail", {}, "sold out"),
            ("zoo_feed", {}, "denied"),
            ("shop_ad", {}, "did you mean 'shop_add'"),
            ("shop_add", "[", "not valid JSON"),
            ("shop_add", {"a": "x"}, "expected an integer"),
        ):
            refused = await tools.call(name, arguments)
            assert refused.is_error
            assert text in result_text(refused)
    finally:
        await tools.close()


@pytest.mark.covers("AG-14")
async def test_writes_run_alone_and_in_order() -> None:
    log: list[str] = []
    server = Server("shop")

    async def work(name: str, number: int) -> str:
        log.append(f"{name} {number}")
        await asyncio.sleep(0.01)
        log.append(f"end {name}")
        return name

    @server.tool
    async def write(number: int) -> str:
        return await work("write", number)

    @server.tool(annotations=READS)
    async def read(number: int) -> str:
        return await work("read", number)

    tools = FrameworkTools([server], {})
    await tools.open()
    names = ["read", "read", "write", "write", "read"]
    calls = [asyncio.ensure_future(tools.call(name, {"number": number})) for number, name in enumerate(names)]
    cancelled = asyncio.ensure_future(tools.call("write", {"number": 9}))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(*calls)
    await tools.close()
    assert sorted(log[:2]) == ["read 0", "read 1"]
    assert log[2:4] == ["end read", "end read"]
    assert log[4:] == ["write 2", "end write", "write 3", "end write", "read 4", "end read"]


async def test_calls_behind_one_that_was_cancelled_at_once_begin() -> None:
    tools = FrameworkTools([shop()], {})
    await tools.open()
    cancelled = GraphCall(tools, "fail", {}, None, None)
    cancelled.task.cancel()
    result = await GraphCall(tools, "fail", {}, None, None).result()
    assert result_text(result) == "sold out"
    assert cancelled.task.cancelled()
    await tools.close()


async def test_a_call_that_asks_lets_the_next_begin_and_takes_answers_once() -> None:
    begun: list[str] = []
    server = Server("slow")
    answered = asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.append("wait")
        await answered.wait()
        return "waited"

    tools = FrameworkTools([server], {})
    await tools.open()
    first, second = GraphCall(tools, "wait", {}, None, None), GraphCall(tools, "wait", {}, None, None)
    async with patience("the first call"):
        while not begun:
            await asyncio.sleep(0.01)
    assert begun == ["wait"]
    question = GraphQuestion("How many?", ElicitRequestParams(message="How many?", requested_schema={"type": "object"}))
    first.ask(question)
    assert first.is_asking
    async with patience("the second call"):
        while len(begun) < 2:
            await asyncio.sleep(0.01)
    with pytest.raises(ValueError, match="accept, decline or cancel"):
        question.resume({"responses": {"2": {"action": "accept"}}})
    question.resume({"responses": {"1": {"action": "accept", "content": {"a": 1}}}})
    question.resume({"action": "decline"})
    assert await question.answer == Accept({"a": 1})
    assert not first.is_asking
    answered.set()
    assert [result_text(await call.task) for call in (first, second)] == ["waited", "waited"]
    await tools.close()


def test_questions_for_a_page_have_its_address() -> None:
    async def payload() -> object:
        params = ElicitRequestParams(message="Sign in", mode="url", url="https://login.example", elicitation_id="1")
        return GraphQuestion("Sign in", params).payload

    expected = {"key": "1", "message": "Sign in", "mode": "url", "url": "https://login.example"}
    assert asyncio.run(payload()) == expected


async def test_a_toolset_stays_open_if_it_was_open_and_another_is_opened_again() -> None:
    async with Toolset(shop()) as toolset:
        for _ in range(2):
            tools = FrameworkTools([toolset], {})
            await tools.open()
            await tools.close()
            assert not (await tools.call("add", {"a": 1})).is_error
        with pytest.raises(TypeError, match="has its options already: timeout"):
            FrameworkTools([toolset], {"timeout": 1.0})
    client = Client(shop())
    tools = FrameworkTools([client], {})
    for number in range(2):
        await tools.open()
        await tools.open()
        await tools.close()
        assert result_text(await tools.call("add", {"a": number})) == f"shop {number}"
        await tools.close()
        assert not client.connected


async def test_a_failed_opening_closes_what_it_opened() -> None:
    tools = FrameworkTools([shop()], {})

    async def fail() -> None:
        raise RuntimeError("no")

    tools.toolset._refresh = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no"):
        await tools.open()
    assert not tools.toolset._is_open


async def test_deferred_tools_are_found_by_the_toolset_or_by_the_framework() -> None:
    server = shop()
    server.add(
        [Tool(lambda: "x", name=f"handle_{number}", description=f"Handle item {number}.") for number in range(9)]
    )
    tools = FrameworkTools([server], {"defer": True, "pinned": ["add"]})
    await tools.open()
    assert [each.name for each in await tools.list_tools()] == ["search_tools", "add"]
    everything = await tools.list_tools(has_search=True)
    assert len(everything) == 11
    assert {each.name for each in everything if not each.is_deferred} == {"add"}
    found = result_text(await tools.call("search_tools", {"query": "handle item 3"}))
    assert "handle_3" in found
    assert [each.name for each in await tools.list_tools()][:2] == ["search_tools", "add"]
    assert "handle_3" in [each.name for each in await tools.list_tools()]
    await tools.close()


async def test_long_results_are_read_on() -> None:
    server = Server("long")
    server.add(Tool(lambda: "word " * 5_000, name="read"))
    tools = FrameworkTools([server], {"max_result_tokens": 200})
    await tools.open()
    assert sorted(each.name for each in await tools.list_tools()) == ["read", "read_result"]
    text = result_text(await tools.call("read", {}))
    uri = re.search(r"toolwire://results/[\w-]+", text)
    assert uri is not None
    assert "word" in result_text(await tools.call("read_result", {"uri": uri[0], "offset": 100}))
    await tools.close()


def test_parts_that_are_no_text_become_words() -> None:
    assert (
        part_text(Part("image", data=b"12", mime_type="image/png"))
        == "[image, image/png, 2 bytes: cannot be shown here]"
    )
    assert result_text(ResultParts([Part("text", "a")], structured={"b": 1})) == 'a\n\n{"b":1}'


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("pydantic-ai-slim", lambda: pydantic_ai_toolset(shop())),
        ("openai-agents", lambda: openai_agents_server(shop())),
        ("google-adk", lambda: adk_toolset(shop())),
    ],
)
def test_a_missing_framework_is_named(package: str, make: object) -> None:
    with pytest.raises(ImportError, match=f"pip install {package}"):
        make()  # type: ignore[operator]


async def test_a_framework_is_needed_to_list() -> None:
    async with LangChainTools(shop()) as tools, LlamaIndexTools(shop()) as more:
        assert tools.toolset.missing == more.toolset.missing == {}
        for needed in (tools.list_tools, more.list_tools):
            with pytest.raises(ImportError, match=r"pip install (langchain|llama-index-core)"):
                await needed()
        for make in (tools.middleware, more.retriever):
            with pytest.raises(ImportError, match=r"pip install (langchain|llama-index-core)"):
                make()


def test_the_adapters_load_no_framework() -> None:
    for name in agents.__all__:
        getattr(agents, name)
    assert (
        not {"pydantic_ai", "langchain_core", "langgraph", "agents.mcp", "google.adk", "llama_index"}
        & sys.modules.keys()
    )
