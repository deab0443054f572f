"""Policies through mounts: A mounts B, B mounts C, and the policy of any of them holds however C is reached.

One table: the server that has the policy, what the policy says, and every way to reach a component of C.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from tests.cases import cases
from tests.server.tasks.talking import CORE, Over, open_to
from tests.wireclient import MODERN, Message, WireClient, connect

from toolwire import Context, Policy, Resource, Server
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.server.policy import Call, Slots

ANN, PAID = Principal("ann"), Principal("pia", scopes=frozenset({"paid"}))
SECRET = "sk-12345678"


def owner(policy: Policy | None, answer: Callable[[str], Awaitable[str]]) -> Server:
    """A server with one component of each kind; all of them take `name`."""
    server = Server("C", policy=policy)

    @server.tool
    async def work(name: str) -> str:
        return await answer(name)

    @server.resource("page://{name}")
    async def page(name: str) -> str:
        return await answer(name)

    @server.prompt
    async def ask(name: str) -> str:
        return await answer(name)

    @server.completion(prompt="ask", argument="name")
    async def suggest(partial: str) -> list[str]:
        return [await answer(partial)]

    return server


def tower(place: str, policy: Policy, answer: Callable[[str], Awaitable[str]], **options: Any) -> Server:
    policies = {place: policy}
    middle = Server("B", policy=policies.get("B")).mount(owner(policies.get("C"), answer), "c")
    root = Server("A", policy=policies.get("A"), **options).mount(middle, "b")

    @root.tool
    async def fetch(uri: str, ctx: Context) -> str:
        return str((await ctx.read_resource(uri))[0].text)

    return root


#: How each kind of component is reached with the argument `x`.
REQUESTS: dict[str, tuple[str, Message]] = {
    "tool": ("tools/call", {"name": "b_c_work", "arguments": {"name": "x"}}),
    "template": ("resources/read", {"uri": "page://x"}),
    "prompt": ("prompts/get", {"name": "b_c_ask", "arguments": {"name": "x"}}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "b_c_ask"}, "argument": {"name": "name", "value": "x"}},
    ),
    "read by a tool": ("tools/call", {"name": "fetch", "arguments": {"uri": "page://x"}}),
}


async def ask(client: WireClient, entry: str) -> tuple[bool, str]:
    """Whether a request was refused, and all that was said."""
    method, params = REQUESTS[entry]
    response = await client.request(method, json.loads(json.dumps(params)))
    refused = "error" in response or response["result"].get("isError", False)
    return refused, json.dumps(response.get("error") or response["result"])


async def plain(name: str) -> str:
    return f"{name} {SECRET}"


async def stuck(name: str) -> str:
    await asyncio.Event().wait()
    return name


async def no(ctx: Context, call: Call) -> str:
    return "nobody agrees"


class Kind(NamedTuple):
    """A policy, how components answer, and what a caller is told."""

    policy: Policy
    told: str
    answer: Callable[[str], Awaitable[str]] = plain
    is_refusal: bool = True


KINDS = {
    "quota": Kind(Policy(quota="1/hour"), "Too many calls"),
    "rate": Kind(Policy(rate="1/hour"), "Too many calls"),
    "rules": Kind(Policy(rules={"name": lambda name: "it is wrong"}), "it is wrong"),
    "approve": Kind(Policy(approve=no), "nobody agrees"),
    "result": Kind(Policy(result=10), "may have 10"),
    "timeout": Kind(Policy(timeout=0.01), "within 0.01 seconds", stuck),
    "mask": Kind(Policy(mask=[r"sk-\d+"]), "[redacted]", is_refusal=False),
}


@pytest.mark.pairwise
@pytest.mark.covers("R18")
@pytest.mark.parametrize("entry", REQUESTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["A", "B", "C"])
@pytest.mark.parametrize("added", [False, True], ids=["general", "by_principal"])
@pytest.mark.parametrize(("revision", "over"), [(CORE, "memory"), (MODERN, "http")])
async def test_the_policy_of_any_server_on_the_way_holds(
    place: str, kind: str, entry: str, added: bool, revision: str, over: Over
) -> None:
    policy, told, answer, is_refusal = KINDS[kind]
    given = Policy(by_principal=lambda principal: policy) if added else policy
    async with open_to(tower(place, given, answer), revision, over) as join, join(principal=ANN) as client:
        if kind in ("quota", "rate"):
            assert not (await ask(client, entry))[0]
        refused, text = await ask(client, entry)
    if kind == "rules" and entry == "completion":
        # Half a word is judged by nobody; what a rule refuses is not suggested.
        assert not refused and '"values": []' in text
        return
    assert refused is is_refusal, text
    assert told in text
    assert SECRET not in text


@cases("entry", REQUESTS)
async def test_what_is_added_for_a_caller_takes_nothing_away(entry: str) -> None:
    """The mask, the rules and the approval of the general policy hold for a caller who gets a policy of their own."""
    asked: list[str] = []

    async def yes(ctx: Context, call: Call) -> bool:
        asked.append(call.method)
        return True

    policy = Policy(
        mask=[r"sk-\d+"],
        approve=yes,
        by_principal=lambda principal: Policy(rate="600/minute", mask=["more"]) if "paid" in principal.scopes else None,
    )

    async def answer(name: str) -> str:
        return f"{name} {SECRET} more"

    for principal, more in ((PAID, False), (ANN, True)):
        async with connect(tower("B", policy, answer), MODERN, principal=principal) as client:
            refused, text = await ask(client, entry)
            assert not refused and SECRET not in text
            assert ("more" in text) is more
    # The tool that reads is no part of B, and what it reads is.
    method = "resources/read" if entry == "read by a tool" else REQUESTS[entry][0]
    assert asked == [method] * 2


async def test_rules_of_both_policies_hold_and_the_shorter_time() -> None:
    policy = Policy(
        rules={"name": lambda name: "it is a" if name == "a" else None},
        timeout=0.01,
        by_principal=lambda principal: Policy(
            rules={"name": lambda name: "it is b" if name == "b" else None}, timeout=60
        ),
    )
    async with connect(tower("B", policy, stuck), MODERN, principal=ANN) as client:
        for name, told in (("a", "it is a"), ("b", "it is b"), ("c", "within 0.01 seconds")):
            assert told in (await client.call("b_c_work", {"name": name}))["content"][0]["text"]


async def test_by_principal_that_returns_something_else_lets_nothing_through() -> None:
    policy = Policy(by_principal=lambda principal: {"rate": "1/hour"})  # type: ignore[arg-type, return-value]
    async with connect(tower("B", policy, plain), MODERN, principal=ANN) as client:
        refused, text = await ask(client, "tool")
        assert refused and SECRET not in text


@cases("place", ["A", "B", "C"])
async def test_records_leave_out_what_any_server_on_the_way_says(place: str) -> None:
    lines: list[str] = []
    policy = Policy(redact=["name"], by_principal=lambda principal: Policy(mask=["fetched"]))
    log = AuditLog(lines.append, key="a key of sixteen bytes")
    server = tower(place, policy, plain, audit=log)
    async with connect(server, MODERN, principal=ANN) as client:
        await client.call("b_c_work", {"name": "fetched-x"})
        await client.result("prompts/get", {"name": "b_c_ask", "arguments": {"name": "y"}})
        await client.result("resources/read", {"uri": "page://fetched"})
    entries = [json.loads(line) for line in lines if "method" in json.loads(line)]
    assert [entry["arguments"].get("name") for entry in entries] == ["[redacted]"] * 3
    assert "fetched" not in str(entries)


async def test_the_log_of_a_mounted_server_says_what_the_log_of_its_host_leaves_out() -> None:
    own, hosts = [list[str]() for _ in range(2)]
    inner = Server("inner", audit=AuditLog(own.append, key="a key of sixteen bytes", redact=["iban"]))
    inner.tool(name="pay")(lambda iban: "paid")
    outer = Server("outer", audit=AuditLog(hosts.append, key="a key of sixteen bytes")).mount(inner)
    async with connect(outer, MODERN) as client:
        await client.call("pay", {"iban": "NO93"})
    assert "NO93" not in str(hosts) and '"iban":"[redacted]"' in str(hosts)


# --- reading inside of a call ---


class Shelf:
    """A server whose tool reads a resource that has a policy of its own."""

    def __init__(self, policy: Policy | None, resource: Policy) -> None:
        self.server = Server("s", policy=policy)
        self.server.add(Resource("note://a", self._note, name="note", policy=resource))

        @self.server.tool
        async def fetch(ctx: Context) -> str:
            return str((await ctx.read_resource("note://a"))[0].text)

        @self.server.tool
        def fetch_blocking(ctx: Context) -> str:
            return str(ctx.read_resource("note://a")[0].text)  # type: ignore[index]

    async def _note(self) -> str:
        return f"note {SECRET}"


@pytest.mark.parametrize("tool", ["fetch", "fetch_blocking"])
async def test_a_handler_reads_what_the_policy_of_the_resource_leaves(tool: str) -> None:
    shelf = Shelf(None, Policy(mask=[r"sk-\d+"], quota="2/hour"))
    async with connect(shelf.server, MODERN) as client:
        results = [await client.call(tool) for _ in range(3)]
        assert [each["content"][0]["text"] for each in results[:2]] == ["note [redacted]"] * 2
        assert "Too many calls: note://a allows 2 calls an hour for you" in results[2]["content"][0]["text"]


@pytest.mark.parametrize("tool", ["fetch", "fetch_blocking"])
async def test_what_the_call_has_passed_is_not_counted_again(tool: str) -> None:
    # With one slot for all, a read that wanted one as well would wait for its own call.
    policy = Policy(quota="3/hour", concurrency=Slots(1, queue=0), mask=[r"sk-\d+"])
    shelf = Shelf(policy, Policy(concurrency=1))
    async with connect(shelf.server, MODERN) as client:
        results = [await client.call(tool) for _ in range(4)]
    assert [each.get("isError", False) for each in results] == [False, False, False, True]
    assert results[0]["content"][0]["text"] == "note [redacted]"


async def test_a_read_inside_of_a_completion_obeys_too() -> None:
    shelf = Shelf(None, Policy(mask=[r"sk-\d+"], concurrency=1, timeout=5))
    shelf.server.prompt(name="p")(lambda x: x)

    @shelf.server.completion(prompt="p", argument="x")
    async def suggest(partial: str, ctx: Context) -> list[str]:
        return [str((await ctx.read_resource("note://a"))[0].text)]

    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}}
    async with connect(shelf.server, MODERN) as client:
        found = await client.result("completion/complete", params)
    assert found["completion"]["values"] == ["note [redacted]"]


async def test_a_person_approves_a_read_inside_of_a_call() -> None:
    calls: list[tuple[str, str, dict[str, Any]]] = []

    async def decide(ctx: Context, call: Call) -> bool:
        calls.append((call.method, call.name, call.arguments))
        return call.method != "resources/read"

    shelf = Shelf(Policy(approve=decide), Policy())
    async with connect(shelf.server, MODERN) as client:
        result = await client.call("fetch")
    assert result["isError"] is True and "was not approved" in result["content"][0]["text"]
    assert calls == [("tools/call", "fetch", {}), ("resources/read", "note://a", {"uri": "note://a"})]


@pytest.mark.parametrize("failure", [TimeoutError("slow"), RuntimeError("broken")])
async def test_a_hook_that_breaks_lets_nothing_be_read(failure: Exception) -> None:
    async def approve(ctx: Context, call: Call) -> bool:
        raise failure

    shelf = Shelf(None, Policy(approve=approve))
    async with connect(shelf.server, MODERN) as client:
        result = await client.call("fetch")
    assert result["isError"] is True
    assert SECRET not in str(result) and str(failure) not in str(result)


async def test_reads_of_two_handlers_share_the_slots_of_the_resource() -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    server = Server("s")

    @server.resource("note://a", policy=Policy(concurrency=1, timeout=60))
    async def note() -> str:
        inside.set()
        await go.wait()
        return "note"

    @server.tool
    async def fetch(ctx: Context) -> str:
        return str((await ctx.read_resource("note://a"))[0].text)

    async with connect(server, MODERN) as client:
        first, second = [client.start("tools/call", {"name": "fetch"}) for _ in range(2)]
        await inside.wait()
        assert not second.done()
        go.set()
        for each in (first, second):
            assert (await each)["result"]["content"][0]["text"] == "note"
