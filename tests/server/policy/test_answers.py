"""What leaves the server: its size, and the secrets that must not be in it."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Image, Policy, Prompt, ProtocolError, Resource, Server, ToolError, testing
from toolwire.client import Accept
from toolwire.errors import ServerError

SECRET = "sk-live-1234"
POLICY = Policy(mask=[r"sk-live-\w+"])


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.covers("R17")
@cases("revision", REVISIONS)
async def test_an_answer_over_its_size_is_refused(revision: str) -> None:
    server = Server("s")

    @server.tool(policy=Policy(result=500))
    async def fill(size: int) -> str:
        return "x" * size

    server.add(Resource("big://x", content="x" * 900, policy=Policy(result=500)))
    async with connect(server, revision) as client:
        assert text(await client.call("fill", {"size": 100})) == "x" * 100
        refused = await client.call("fill", {"size": 5000})
        assert refused["isError"] is True
        assert text(refused).endswith("and may have 500. Ask for less.")
        assert (await client.error("resources/read", {"uri": "big://x"}))["code"] == 403


def leaking() -> Server:
    """A server that says its secret in every way there is."""
    server = Server("s", policy=POLICY)

    @server.tool
    async def plain() -> str:
        return f"key {SECRET}"

    @server.tool
    async def structured() -> dict[str, list[str]]:
        return {"keys": [SECRET], SECRET: []}

    @server.tool
    async def fails() -> str:
        raise ToolError(f"denied for {SECRET}")

    @server.tool
    async def errs() -> str:
        raise ProtocolError(-5, f"bad {SECRET}", {"key": SECRET})

    @server.tool
    async def reports(ctx: Context) -> str:
        await ctx.progress(1, message=SECRET)
        await ctx.log("error", {"key": SECRET})
        await ctx.log("error", SECRET)
        return "done"

    @server.tool
    def reports_from_a_thread(ctx: Context) -> str:
        ctx.progress(1, message=SECRET)  # type: ignore[unused-coroutine]
        return "done"

    @server.tool
    async def asks(ctx: Context) -> str:
        await ctx.elicit(f"Use {SECRET}?", bool)
        return "asked"

    server.add(Resource("leak://r", content=SECRET)).add(Prompt.text(f"say {SECRET}", name="p"))
    return server


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.filterwarnings("ignore:Logging to the client:DeprecationWarning")
async def test_a_secret_leaves_by_no_way(revision: str) -> None:
    async with connect(leaking(), revision, {"elicitation": {}}) as client:
        client.answers["elicitation/create"] = lambda params: {"action": "cancel"}
        names = ["plain", "structured", "fails", "errs", "reports", "reports_from_a_thread"]
        names += ["asks"] if revision not in ("2024-11-05", "2025-03-26") else []
        meta: dict[str, Any] = {"progressToken": "t"}
        if revision == MODERN:
            meta["io.modelcontextprotocol/logLevel"] = "debug"
        for name in names:
            await client.request("tools/call", {"name": name, "_meta": meta})
        await client.result("resources/read", {"uri": "leak://r"})
        await client.result("prompts/get", {"name": "p"})
        received = str(client.received)
    assert SECRET not in received
    # Every one of them had something to say.
    assert received.count("[redacted]") >= len(names) + 4


async def test_a_middleware_that_leaks_is_masked_as_well() -> None:
    async def middleware(ctx: Context, call_next: Any) -> Any:
        raise ToolError(f"no {SECRET}")

    async def f() -> str:
        return ""

    async with connect(Server("s", tools=f, policy=POLICY, middleware=middleware), MODERN) as client:
        assert text(await client.call("f")) == "no [redacted]"


async def test_what_holds_no_secret_passes_as_it_is() -> None:
    server = Server("s", policy=POLICY)

    @server.tool
    async def picture() -> list[Any]:
        return ["a", Image(data=b"sk-live-1234", mime_type="image/png")]

    async with connect(server, MODERN) as client:
        masked = await client.call("picture")
        server.apply_settings(replace(server.settings, policy=None))
        assert await client.call("picture") == masked


@cases("revision", REVISIONS)
async def test_error_over_the_size_of_a_result_is_shortened(revision: str) -> None:
    server = Server("s", policy=Policy(result=500, mask=[r"sk-live-\w+"]))

    @server.tool
    async def fail(size: int) -> str:
        raise ProtocolError(-32050, "m" * 195 + SECRET, {"rows": "z" * size})

    @server.tool
    async def inside(ctx: Context) -> str:
        try:
            return str(await ctx.read_resource("bad://x"))
        except (ProtocolError, ToolError) as error:
            return str(len(str(error)))

    @server.resource("bad://x")
    async def bad() -> str:
        raise ProtocolError(-32050, "failed" + "z" * 5000)

    async with connect(server, revision) as client:
        small = await client.error("tools/call", {"name": "fail", "arguments": {"size": 10}})
        assert small == {"code": -32050, "message": "m" * 195 + "[redacted]", "data": {"rows": "z" * 10}}
        large = await client.error("tools/call", {"name": "fail", "arguments": {"size": 5000}})
        assert large["code"] == -32050
        assert "data" not in large
        assert large["message"].startswith("m" * 195 + "[reda ")
        assert large["message"].endswith("and 500 are allowed. The rest is left out.]")
        read = await client.error("resources/read", {"uri": "bad://x"})
        assert len(read["message"]) < 400
        assert int(text(await client.call("inside"))) < 400


async def test_middleware_error_over_the_size_of_a_result_is_refused() -> None:
    server = Server("s", policy=Policy(result=500))

    @server.tool
    async def hello() -> str:
        return "hello"

    @server.use
    async def fail(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            raise ToolError("x" * 5000)
        return await call_next(ctx)

    async with connect(server, MODERN) as client:
        assert text(await client.call("hello")).endswith("and may have 500. Ask for less.")


async def test_size_of_a_result_is_measured_after_its_masks() -> None:
    server = Server("s", policy=Policy(mask=[r"\b[0-9]{4}\b"], result=10_000))

    @server.tool
    async def pins(count: int) -> str:
        return "1234 " * count

    async with connect(server, MODERN) as client:
        assert text(await client.call("pins", {"count": 500})) == "[redacted] " * 500
        assert text(await client.call("pins", {"count": 1500})).endswith("and may have 10000. Ask for less.")


@cases(
    ("options", "told"),
    [
        ({"rate": "5 per 0 hours"}, "is not a rate"),
        ({"rate": "1/0second"}, "is not a rate"),
        ({"quota": ["1/minute", "2 per 00 days"]}, "is not a rate"),
        ({"mask": "abc"}, "mask= takes a list"),
        ({"mask": 5}, "mask= of a Policy takes a list"),
        ({"mask": iter(["abc"])}, "mask= of a Policy takes a list"),
        ({"redact": "iban"}, "redact= takes a list of names"),
        ({"redact": [5]}, "redact= takes a list of names"),
        ({"by_principal": 5}, "by_principal= takes a function"),
        ({"approve": "yes"}, "approve= takes a function"),
        ({"concurrency": "abc"}, "concurrency= takes a number"),
        ({"concurrency": [4]}, "concurrency= takes a number"),
    ],
)
def test_option_of_the_wrong_kind_is_refused(options: Any, told: str) -> None:
    with pytest.raises(ServerError, match=re.escape(told)):
        Policy(**options)


def test_rate_over_several_units_is_allowed() -> None:
    assert Policy(rate=["5 per 10 hours", "10/minute"], quota="100/day").rate == ["5 per 10 hours", "10/minute"]


class Account(enum.Enum):
    SAVINGS = "sk-live-1 s"
    CURRENT = "sk-live-2 c"


@dataclass
class Transfer:
    source: Literal["from sk-live-1", "anywhere"]
    targets: list[Account]
    note: str = ""


WRITTEN: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "enum": ["x sk-live-1", "y sk-live-2"]}, "b": {"type": "integer"}},
}
TRANSFER = {"source": "from [redacted]", "targets": ["[redacted] c", "[redacted] s"], "note": "[redacted] c"}


@pytest.mark.covers("R17")
@pytest.mark.parametrize("revision", [each for each in REVISIONS if each >= "2025-11"])
@pytest.mark.parametrize(
    ("form", "chosen", "data"),
    [
        (["savings sk-live-1", "current sk-live-2"], {"value": "current [redacted]"}, "current sk-live-2"),
        (Literal["savings sk-live-1", "none"], {"value": "savings [redacted]"}, "savings sk-live-1"),
        (Account, {"value": "[redacted] c"}, Account.CURRENT),
        (
            Transfer,
            TRANSFER,
            Transfer("from sk-live-1", [Account.CURRENT, Account.SAVINGS], "[redacted] c"),
        ),
        (WRITTEN, {"a": "y [redacted]", "b": 3}, {"a": "y sk-live-2", "b": 3}),
    ],
    ids=["list", "literal", "enum", "record", "written"],
)
async def test_masked_choice_can_be_chosen(revision: str, form: Any, chosen: dict[str, Any], data: Any) -> None:
    server, answers = Server("s", policy=POLICY), list[Any]()

    @server.tool
    async def pay(ctx: Context) -> str:
        answers.append((await ctx.elicit("Which?", form)).data)
        return "paid"

    asked: list[str] = []

    def choose(message: Any, form: Any) -> Accept:
        asked.append(str(form.requested_schema))
        return Accept(chosen)

    async with testing.connect(server, revision=revision, elicit=choose) as (client, _):
        assert (await client.call_tool("pay")).text == "paid"
    assert answers[-1] == data
    assert "sk-live" not in asked[0]


async def test_choices_that_a_mask_makes_equal_are_not_asked() -> None:
    server = Server("s", policy=POLICY)

    @server.tool
    async def pay(ctx: Context) -> str:
        with pytest.raises(ServerError, match=r"two choices of the form are both 'current \[redacted\]'"):
            await ctx.elicit("Which?", ["savings sk-live-1", "current sk-live-2", "current sk-live-3"])
        return "not asked"

    async with testing.connect(server, elicit=lambda message, form: pytest.fail("asked")) as (client, _):
        assert (await client.call_tool("pay")).text == "not asked"
