"""Where a policy holds: on a server, on a component, on a server that is mounted."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.wireclient import MODERN, connect

from toolwire import Context, Policy, Prompt, Resource, ResourceTemplate, Server, Tool
from toolwire.protocol.errors import ServerError

ONCE = Policy(quota="1/hour")


async def f() -> str:
    return "f"


async def is_refused(client: Any, name: str) -> bool:
    return "isError" in await client.call(name)


async def test_a_mounted_server_keeps_its_policy() -> None:
    inner = Server("inner", tools=f, policy=ONCE)
    outer = Server("outer", tools=f).mount(inner, prefix="in")
    async with connect(outer, MODERN) as client:
        assert [await is_refused(client, name) for name in ("in_f", "f", "f", "in_f")] == [False, False, False, True]


async def test_so_does_one_that_mounts_others() -> None:
    middle = Server("middle", policy=ONCE).mount(Server("inner", tools=f), prefix="in")
    async with connect(Server("outer").mount(middle), MODERN) as client:
        assert [await is_refused(client, "in_f") for _ in range(2)] == [False, True]


async def test_a_tool_that_comes_later_brings_its_policy_along_through_any_mount() -> None:
    inner, middle = Server("inner"), Server("middle")
    outer = Server("outer", tools=f).mount(middle.mount(inner))
    async with connect(outer, MODERN) as client:
        assert outer.enforcer is None
        inner.add(Tool(f, name="late", policy=ONCE))
        assert [await is_refused(client, "late") for _ in range(2)] == [False, True]
        assert not await is_refused(client, "f")


async def test_every_kind_of_component_takes_one() -> None:
    server = Server("s")
    server.add(Resource("a://b", content="x", policy=ONCE))
    server.add(ResourceTemplate("t://{id}", lambda id: id, name="t", policy=ONCE))
    server.add(Prompt.text("x", name="p"))
    server.prompt(name="q", policy=ONCE)(f)
    async with connect(server, MODERN) as client:
        for method, params in (
            ("resources/read", {"uri": "a://b"}),
            ("resources/read", {"uri": "t://1"}),
            ("prompts/get", {"name": "q"}),
        ):
            assert "result" in await client.request(method, params)
            assert (await client.error(method, params))["code"] == 429
        # One template is one place, whatever is read by it; and the prompt without a policy has none.
        assert (await client.error("resources/read", {"uri": "t://2"}))["code"] == 429
        for _ in range(3):
            await client.result("prompts/get", {"name": "p"})


async def test_completions_count_for_the_server() -> None:
    server = Server("s", prompts=Prompt.text("hi {name}", name="p"), policy=ONCE)
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "name", "value": "x"}}
    server.completion(prompt="p", argument="name")(suggest)
    async with connect(server, MODERN) as client:
        await client.result("completion/complete", params)
        assert (await client.error("completion/complete", params))["code"] == 429


async def suggest(partial: str) -> list[str]:
    return [partial]


async def test_what_is_refused_reaches_no_middleware() -> None:
    seen: list[str] = []

    async def middleware(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    server = Server("s", middleware=middleware)
    server.add(Tool(f, policy=ONCE))
    async with connect(server, MODERN) as client:
        assert [await is_refused(client, "f") for _ in range(3)] == [False, True, True]
    assert seen == ["tools/call"]


async def test_tools_of_a_call_handler_obey_the_policy_of_the_server() -> None:
    server = Server("s", policy=ONCE)
    server.on_list_tools(lambda: [{"name": "any", "inputSchema": {"type": "object"}}])
    server.on_call_tool(lambda name, arguments: "x")
    async with connect(server, MODERN) as client:
        assert [await is_refused(client, "any") for _ in range(2)] == [False, True]


def test_a_server_without_a_policy_loads_none_of_it() -> None:
    code = (
        "import sys; from toolwire import Server; s = Server('s'); s.tool(name='f')(lambda: 1); "
        "assert s.enforcer is None and s.kernel._entry is None; "
        "print(*[m for m in sys.modules if 'policy' in m or m == 'limits' or 'redaction' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("make", [lambda: Tool(f, policy={}), lambda: Resource("a://b", content="", policy=3)])
def test_only_a_policy_is_a_policy(make: Any) -> None:
    with pytest.raises(ServerError, match="policy= takes a Policy, not"):
        make()
