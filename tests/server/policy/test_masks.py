"""Masks hold wherever a value leaves: each place of a message, mounted, as a task, through a gateway, in each era."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct
from tests.cases import cases
from tests.gateway.backs import behind, gateway_before, until
from tests.server.tasks.talking import CORE, DIALECTS, begin, look, outcome, talk, text_in
from tests.wireclient import REVISIONS

from toolwire import Context, Image, Limits, Policy, ProtocolError, Resource, Server, ToolError, ToolResult, testing
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.redaction import Redaction
from toolwire.server.policy import plan
from toolwire.server.policy.masking import mask_large, masked, masked_error, masked_result
from toolwire.server.tasks.manager import TaskManager
from toolwire.shape import Shape

CARD = 4111111111111111
KEY = "sk-live-1234"
POLICY = Policy(mask=[r"[0-9]{16}", r"sk-live-\w+"])
PICTURE = b"\xb2\x49\x9e\x95\xe8\x9e\xd7"  # In base64 it is `skmelevXtw==`.

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")


class Payment(Struct):
    card: int
    amount: float
    note: str


class Strict(Struct):
    card: Annotated[int, Meta(ge=1)]


def leaking(**options: Any) -> Server:
    """Make a server that shows a card number and a key in every place that a handler can fill."""
    server = Server("s", limits=Limits(task_window=0.0, task_poll=0.02), **options)

    @server.tool(task="optional")
    async def number() -> Payment:
        return Payment(CARD, float(CARD), f"paid with {CARD}")

    @server.tool(task="optional")
    async def encoded() -> dict[str, Any]:
        return {
            "a": {"type": "image", "mimeType": "image/png", "data": KEY},
            "b": {"uri": "x://y", "blob": KEY},
            "c": {"status": "working", "createdAt": "now", "taskId": KEY},
            "d": {"resultType": "complete", "requestState": KEY},
        }

    @server.tool(task="optional")
    async def names() -> dict[str, int]:
        return {KEY: 1, f"{KEY}5": 2, str(CARD): 3}

    @server.tool(task="optional")
    async def meta() -> ToolResult:
        return ToolResult("done", meta={"card": CARD, KEY: {"blob": KEY, "uri": "x"}})

    @server.tool(task="optional")
    async def fails() -> str:
        raise ToolError(f"no {KEY} and {CARD}")

    @server.tool(task="optional")
    async def errs() -> str:
        raise ProtocolError(-5, f"bad {KEY}", {"card": CARD, "uri": "x", "blob": KEY})

    @server.tool(task="optional")
    async def reports(ctx: Context) -> str:
        await ctx.progress(1, message=f"{KEY} {CARD}")
        await ctx.log("error", {"card": CARD, "type": "x", "mimeType": "y", "data": KEY}, logger=KEY)
        return "done"

    @server.tool
    async def picture() -> Image:
        return Image(data=PICTURE, mime_type="image/png")

    @server.tool
    async def strict() -> Strict:
        return Strict(CARD)

    server.add(Resource("leak://r", content={"card": CARD, "uri": "x", "blob": KEY}, mime_type="application/json"))
    server.add(Resource("ui://leak/view", content=f"<p>{KEY} {CARD}</p>", mime_type="text/html;profile=mcp-app"))

    @server.prompt
    async def p(x: str = "") -> str:
        return f"say {KEY} of {CARD}"

    @server.completion(prompt="p", argument="x")
    async def suggest(partial: str) -> list[str]:
        return [KEY, str(CARD)]

    return server


@asynccontextmanager
async def placed(place: str, back: str) -> AsyncIterator[tuple[Server, str]]:
    """Yield a server whose policy masks, with the tools at this place, and the prefix of their names."""
    if place == "mount":
        outer = Server("outer", policy=POLICY, limits=Limits(task_window=0.0, task_poll=0.02))
        outer.mount(leaking(), prefix="b")
        yield outer, "b_"
    elif place == "gateway":
        options: dict[str, Any] = {"policy": POLICY, "limits": Limits(task_window=0.0, task_poll=0.02)}
        async with gateway_before(leaking(), "memory", back, **options) as gateway:
            yield gateway, "b_"
    else:
        yield leaking(policy=POLICY), ""


# Every revision at the server itself; then the places, each with both eras on each side.
PLACES = [
    *(("here", revision, "") for revision in REVISIONS),
    ("mount", CORE, ""),
    ("mount", MODERN, ""),
    *(("gateway", front, back) for front in DIALECTS for back in DIALECTS),
]
TOOLS = ["number", "encoded", "names", "meta", "fails", "errs", "reports"]


@pytest.mark.covers("R17")
@cases(("place", "front", "back"), PLACES)
async def test_masks_hold_in_every_place_of_a_message(place: str, front: str, back: str) -> None:
    async with (
        placed(place, back) as (server, prefix),
        testing.connect(server, revision=front, on_log=lambda _: None) as (client, wire),
    ):
        await client.set_level("debug")
        await client.list_tools()  # From now on the client checks output schemas.
        for name in TOOLS:
            try:
                await client.call_tool(f"{prefix}{name}", on_progress=lambda _: None)
            except ProtocolError as error:
                assert name == "errs" and "[redacted]" in error.message
        paid = await client.call_tool(f"{prefix}number", returns=Payment)
        assert paid == Payment(0, 0.0, "paid with [redacted]")
        shown = await client.call_tool(f"{prefix}picture")
        assert isinstance(shown.content[0], t.ImageContent) and shown.content[0].data == PICTURE
        for uri in ("leak://r", "ui://leak/view"):
            found = [each.uri for each in await client.list_resources() if each.uri.endswith(uri.split("://")[1])]
            await client.read_resource(found[0])
        await client.get_prompt(f"{prefix}p")
        await client.complete(t.PromptReference(f"{prefix}p"), ("x", ""))
        received = str(wire.received)
    assert KEY not in received
    assert str(CARD) not in received


@cases(("place", "front", "back"), PLACES[2:])
async def test_structured_content_that_no_longer_fits_its_schema_is_withheld(place: str, front: str, back: str) -> None:
    async with placed(place, back) as (server, prefix), testing.connect(server, revision=front) as (client, _):
        await client.list_tools()
        result = await client.call_tool(f"{prefix}strict")
    assert result.is_error is True
    assert result.structured is None
    assert "a policy masks a part of it that its output schema needs" in result.text


@pytest.mark.covers("R17")
@cases(("place", "front", "back"), [each for each in PLACES if each[1] in DIALECTS], ids=lambda each: str(each))
async def test_masks_hold_for_tasks(place: str, front: str, back: str) -> None:
    async with placed(place, back) as (server, prefix), talk(server, front) as client:
        for name in TOOLS:
            task = await begin(client, f"{prefix}{name}")
            await outcome(client, task) if name != "errs" else await client.request("tasks/result", {"taskId": task})
            assert (await look(client, task))["taskId"] == task
        if front == CORE:
            listed = await client.result("tasks/list")
            assert len(listed["tasks"]) == len(TOOLS)
        received = str(client.received)
    assert KEY not in received
    assert str(CARD) not in received


async def test_a_pattern_that_matches_words_of_the_protocol_breaks_no_message() -> None:
    policy = Policy(mask=["text|complete|content|task|working|object|[0-9]"])
    server = Server("s", policy=policy, limits=Limits(task_window=0.0))

    @server.tool(task="optional")
    async def say() -> str:
        return "text 7"

    for revision in DIALECTS:
        async with talk(server, revision) as client:
            assert text_in(await outcome(client, await begin(client, "say"))) == "[redacted] [redacted]"


# --- a handler that ends while its call becomes a task ---


def hold_opening(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Let calls become tasks only after the handler ended; return when it begins, and when the handler ends."""
    opening, ended = asyncio.Event(), asyncio.Event()
    open_task = TaskManager.open

    async def wait_and_open(self: TaskManager, run: Any) -> Any:
        opening.set()
        await ended.wait()
        return await open_task(self, run)

    monkeypatch.setattr(TaskManager, "open", wait_and_open)
    return opening, ended


@asynccontextmanager
async def masking_at(place: str, tool: Any, policy: Policy) -> AsyncIterator[tuple[Server, str]]:
    """Yield a server with a tool under a policy at this place, and the name of the tool."""
    limits, at = Limits(task_window=0.001, task_poll=0.02), {"policy": policy}
    inner = Server("inner", limits=limits, debug=True, **(at if place in ("server", "mount child") else {}))
    inner.tool(task="optional", **(at if place in ("component", "mounted component") else {}))(tool)
    if place in ("server", "component"):
        yield inner, tool.__name__
    elif place.startswith("gateway"):
        gateway = Gateway("front", limits=limits, **(at if place == "gateway" else {}))
        async with behind(inner, "memory") as target:
            shape = Shape(policy=policy) if place == "gateway shape" else None
            gateway.add("b", target, revision=MODERN, shape=shape)
            yield gateway, f"b_{tool.__name__}"
    else:
        outer = Server("outer", limits=limits, debug=True, **(at if place == "mount parent" else {}))
        outer.mount(inner, prefix="b", shape=Shape(policy=policy) if place == "mount shape" else None)
        yield outer, f"b_{tool.__name__}"


AT = ["server", "component", "mount child", "mount parent", "mounted component", "mount shape"]


@pytest.mark.covers("R17")
@pytest.mark.parametrize("place", [*AT, "gateway", "gateway shape"])
async def test_masks_hold_for_a_handler_that_ends_while_its_call_becomes_a_task(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, ended = hold_opening(monkeypatch)

    async def reveal() -> dict[str, str]:
        await opening.wait()
        ended.set()
        return {"key": KEY}

    async with masking_at(place, reveal, POLICY) as (server, name), talk(server, MODERN) as client:
        result = await outcome(client, await begin(client, name))
        assert result["structuredContent"] == {"key": "[redacted]"}
        assert KEY not in str(client.received)


@pytest.mark.parametrize("place", ["server", "mount child", "mounted component"])
async def test_limits_of_results_hold_for_a_handler_that_ends_while_its_call_becomes_a_task(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, ended = hold_opening(monkeypatch)

    async def large() -> str:
        await opening.wait()
        ended.set()
        return "x" * 5000

    async with masking_at(place, large, Policy(result=1000)) as (server, name), talk(server, MODERN) as client:
        result = await outcome(client, await begin(client, name))
    assert result["isError"] is True
    assert len(str(result)) < 1000


@pytest.mark.parametrize("place", ["server", "mount child"])
async def test_masks_hold_for_the_cause_of_an_internal_error_of_a_task(place: str) -> None:
    async def breaks(ctx: Context) -> str:
        await ctx.detach()
        raise ValueError(KEY)

    async with masking_at(place, breaks, POLICY) as (server, name), talk(server, MODERN) as client:
        result = await outcome(client, await begin(client, name))
        assert text_in(result).endswith("ValueError: [redacted]")
        assert KEY not in str(client.received)


async def test_a_mask_is_applied_once_to_the_result_of_a_task() -> None:
    async def reveal(ctx: Context) -> str:
        await ctx.detach()
        return KEY

    policy = Policy(mask=[f"{KEY}|redacted"])  # The pattern also matches the mask.
    async with masking_at("server", reveal, policy) as (server, name), talk(server, MODERN) as client:
        assert text_in(await outcome(client, await begin(client, name))) == "[redacted]"


@pytest.mark.covers("R17")
@pytest.mark.parametrize("revision", DIALECTS)
async def test_masks_hold_in_members_that_look_like_those_of_the_protocol(revision: str) -> None:
    server = Server("s", policy=POLICY)

    @server.tool
    async def reveal() -> ToolResult:
        meta = {"progressToken": KEY, t.RELATED_TASK_KEY: {"taskId": KEY}, t.SUBSCRIPTION_ID_KEY: KEY}
        annotations = t.Annotations(last_modified=KEY)
        return ToolResult([t.TextContent("x", annotations=annotations, meta=meta)], meta=meta)

    async with testing.connect(server, revision=revision) as (client, wire):
        await client.call_tool("reveal")
    assert "[redacted]" in str(wire.received)
    assert KEY not in str(wire.received)


async def test_text_in_place_of_the_base64_of_an_image_is_masked() -> None:
    server = Server("s", policy=Policy(mask=[r"sk-\w+"]))

    @server.tool
    async def picture() -> ToolResult:
        return ToolResult([t.ImageContent(data="key: sk-secret", mime_type="image/png")])  # type: ignore[arg-type]

    async with testing.connect(server) as (client, _):
        (block,) = (await client.call_tool("picture")).content
        assert isinstance(block, t.ImageContent)
        assert block.data == b"key: [redacted]"


@cases("over", ["memory", "http"])
@cases("revision", ["2025-11-25", MODERN])
async def test_name_of_an_unknown_method_is_masked(over: Any, revision: str) -> None:
    server = Server("s", policy=Policy(mask=[r"sk-\w+"]))
    async with testing.connect(server, over=over, revision=revision) as (client, _):
        with pytest.raises(ProtocolError) as caught:
            await client.request("sk-secret/get", {})
        assert caught.value.message == "Method not found: [redacted]/get"


def test_mask_leaves_the_words_of_the_protocol_in_a_wire_value() -> None:
    clean = masked(Redaction(patterns=["text"]), t.TextContent("a text"))
    assert clean == t.TextContent("a [redacted]")


@cases("message", ["1234 is taken", "z1234"])
def test_error_is_masked_wherever_the_secret_stands(message: str) -> None:
    clean = masked_error(Redaction(patterns=["1234"]), ProtocolError(-32000, message))
    assert clean.args[0] == message.replace("1234", "[redacted]")


@pytest.mark.parametrize("is_gateway", [False, True])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_other_calls_go_on_while_a_large_result_is_masked(
    revision: str, is_gateway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    entered: list[int] = []
    seen: list[bool] = []

    def slow(redaction: Redaction, result: Any, method: str, *rest: Any) -> Any:
        if "x" * 1000 in str(result):
            entered.append(1)
            seen.append(answered.wait(0 if threading.current_thread() is threading.main_thread() else 10))
        return masked_result(redaction, result, method, *rest)

    monkeypatch.setattr(plan, "masked_result", slow)
    server = Server("s")

    @server.tool
    def large() -> list[str]:
        return ["secret", *["x" * 1000] * (300)]

    @server.tool
    def small() -> str:
        return "small"

    policy = Policy(mask=["secret"])
    front: Any = Gateway("front", policy=policy).add("b", server) if is_gateway else Server("front", policy=policy)
    if not is_gateway:
        front.mount(server, prefix="b")
    async with testing.connect(front, revision=revision) as (client, _):
        waiting = asyncio.ensure_future(client.call_tool("b_large"))
        await until(lambda: bool(entered))
        assert (await client.call_tool("b_small")).text == "small"
        answered.set()
        text = (await waiting).text
    assert seen and all(seen)
    assert "[redacted]" in text and "secret" not in text


async def test_large_results_are_masked_by_one_thread() -> None:
    go, running, most = threading.Event(), 0, 0

    def mask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        assert go.wait(10)
        running -= 1
        return number

    before = threading.active_count()
    waiting = [asyncio.ensure_future(mask_large(partial(mask, number))) for number in range(20)]
    await until(lambda: running > 0)
    assert threading.active_count() <= before + 1
    waiting[7].cancel()
    go.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [each for each in ended if isinstance(each, int)] == [each for each in range(20) if each != 7]
    assert most == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_masks_large_results_with_a_thread_of_its_own() -> None:
    program = """
import asyncio, os
from toolwire.server.policy.masking import mask_large
asyncio.run(mask_large(lambda: 1))
child = os.fork()
if child == 0:
    os._exit(asyncio.run(asyncio.wait_for(mask_large(lambda: 7), 10)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.stdout.strip() == "7", ended.stderr
