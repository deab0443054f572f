"""A server of this process behind a gateway judges the callers of the gateway, as if the gateway mounted it.

The table is that of tests/server/test_access_through_mounts.py, with gateways in place of mounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import behind
from tests.http.httpclient import HttpClient
from tests.server.tasks.talking import CORE, Over, begin, open_to, outcome
from tests.server.test_access_through_mounts import (
    CALLERS,
    RIGHT,
    WRONG,
    Rule,
    Verdict,
    expected,
    is_allowed,
    owner,
    task_verdicts,
    verdict,
    verdicts,
)
from tests.wireclient import MODERN

from toolwire import Client, Context, Limits, Policy, Server, Tool, testing
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.client.target import Link
from toolwire.client.targets import CommandTarget
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ProtocolError
from toolwire.wire.channel import memory_pair

Joint: TypeAlias = Literal["mount", "gateway"]
JOINTS: list[tuple[Joint, Joint]] = [("gateway", "mount"), ("mount", "gateway"), ("gateway", "gateway")]


class Tower:
    """Three servers, one behind the other: A, B and C, with a rule in one of them."""

    def __init__(
        self, joints: tuple[Joint, Joint], prefixes: bool, rules: Callable[[dict[str, Server]], object], **options: Any
    ) -> None:
        self.prefix = "b_c_" if prefixes else ""
        outer, inner = joints
        self.servers: dict[str, Server] = {
            "A": (Gateway if outer == "gateway" else Server)("A", **options),
            "B": (Gateway if inner == "gateway" else Server)("B", **options),
            "C": owner(**options),
        }
        # The gateway subscribes to listed resources alone, and `updates` of the table waits for an open one.
        self.servers["C"].resource("note://open")(lambda: "open")
        self._join("B", "C", prefixes)
        self._join("A", "B", prefixes)
        rules(self.servers)

        @self.root.tool
        async def fetch(uri: str, ctx: Context) -> str:
            return str((await ctx.read_resource(uri))[0].text)

    def _join(self, outer: str, inner: str, prefixes: bool) -> None:
        front, back, name = self.servers[outer], self.servers[inner], inner.lower()
        if isinstance(front, Gateway):
            front.add(name, back, prefix=None if prefixes else "")
        else:
            front.mount(back, name if prefixes else None)

    @property
    def root(self) -> Server:
        return self.servers["A"]


@pytest.mark.pairwise
@pytest.mark.covers("6.1.13")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("prefixes", [False, True], ids=["plain", "prefixed"])
@pytest.mark.parametrize("rule", ["visible_to", "scopes"])
@pytest.mark.parametrize("place", ["A", "B", "C"])
@pytest.mark.parametrize("joints", JOINTS, ids="-".join)
async def test_the_rule_of_any_server_behind_a_gateway_holds(
    joints: tuple[Joint, Joint], place: str, rule: Rule, prefixes: bool, revision: str, over: Over
) -> None:
    tower = Tower(joints, prefixes, lambda servers: servers[place].restrict("t", **{rule: ["admin"]}))
    async with open_to(tower.root, revision, over) as join:
        for caller, principal in CALLERS.items():
            async with join(principal=principal) as client:
                found = await verdicts(client, tower)  # type: ignore[arg-type]
            assert found == expected(rule, is_allowed(caller, over)), caller


@pytest.mark.pairwise
@pytest.mark.covers("6.1.13")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("prefixes", [False, True], ids=["plain", "prefixed"])
@pytest.mark.parametrize("rule", ["visible_to", "scopes"])
@pytest.mark.parametrize("place", ["A", "B", "C"])
@pytest.mark.parametrize("joints", JOINTS, ids="-".join)
async def test_a_task_behind_a_gateway_is_for_those_who_may_use_its_tool(
    joints: tuple[Joint, Joint], place: str, rule: Rule, prefixes: bool, revision: str, over: Over
) -> None:
    limits = Limits(task_window=0.0)
    tower = Tower(joints, prefixes, lambda servers: servers[place].restrict("t", **{rule: ["admin"]}), limits=limits)
    async with open_to(tower.root, revision, over) as join, join(principal=RIGHT) as client:
        ended = await begin(client, f"{tower.prefix}slow", {"wait": False})
        assert (await outcome(client, ended))["content"][0]["text"] == "done"
        waiting = await begin(client, f"{tower.prefix}slow", {"wait": True})
        async with join(principal=None) as nobody:
            assert set((await task_verdicts(nobody, ended, waiting)).values()) == {"hidden"}
        async with join(principal=WRONG) as wrong:
            found = await task_verdicts(wrong, ended, waiting)
        refused: Verdict = "refused" if rule == "scopes" else "hidden"
        assert found == {name: "hidden" if name in ("list", "listen") else refused for name in found}
        found = await task_verdicts(client, ended, waiting)
        assert set(found.values()) == {"usable"}, found


@cases("joints", JOINTS)
@cases("revision", [CORE, MODERN])
async def test_a_restriction_that_comes_later_holds_behind_a_gateway(
    joints: tuple[Joint, Joint], revision: str
) -> None:
    tower = Tower(joints, True, lambda servers: None)
    async with open_to(tower.root, revision, "http") as join:
        async with join(principal=WRONG) as client:
            assert set((await verdicts(client, tower)).values()) == {"usable"}  # type: ignore[arg-type]
        tower.servers["C"].restrict("t", visible_to=["admin"])
        async with join(principal=WRONG) as client:
            assert await verdicts(client, tower) == expected("visible_to", False)  # type: ignore[arg-type]


@cases(
    ("rule_in", "implied_by", "counts"),
    [("A", "A", True), ("B", "A", True), ("C", "B", True), ("C", "C", True), ("A", "B", False), ("B", "C", False)],
)
@cases("rule", ["visible_to", "scopes"])
async def test_implied_scopes_count_for_an_upstream_and_for_those_behind_it(
    rule: str, rule_in: str, implied_by: str, counts: bool
) -> None:
    implying = Policy(implies={"staff": ["admin"]})
    inner = owner(policy=implying) if implied_by == "C" else owner()
    middle = Gateway("B", policy=implying if implied_by == "B" else None).add("c", inner, prefix="")
    root = Gateway("A", policy=implying if implied_by == "A" else None).add("b", middle, prefix="")
    {"A": root, "B": middle, "C": inner}[rule_in].restrict("t", **{rule: ["admin"]})  # type: ignore[arg-type]
    async with open_to(root, MODERN, "http") as join, join(principal=Principal("sam", scopes=["staff"])) as client:
        answer = await client.request("tools/call", {"name": "work", "arguments": {}})
        assert (verdict(answer) == "usable") is counts


@cases("revision", [CORE, MODERN])
@cases("back", [CORE, MODERN])
async def test_an_upstream_of_this_process_knows_the_caller_of_each_call(revision: str, back: str) -> None:
    strict = Policy(by_principal=lambda caller: Policy(rate="2/hour") if caller.subject == "ann" else None)
    inner = Server("inner", policy=strict)

    @inner.tool
    def who(ctx: Context) -> str:
        return "nobody" if ctx.principal is None else ctx.principal.subject

    gateway = Gateway("front").add("in", inner, revision=back)
    async with (
        open_to(gateway, revision, "http") as join,
        join(principal=RIGHT) as ann,
        join(principal=Principal("bob")) as bob,
        join(principal=None) as nobody,
    ):
        for client, name in ((ann, "ann"), (bob, "bob"), (nobody, "nobody"), (ann, "ann"), (bob, "bob")):
            assert (await client.call("in_who"))["content"][0]["text"] == name
        assert (await ann.call("in_who"))["isError"] is True
        assert (await bob.call("in_who"))["content"][0]["text"] == "bob"


async def test_calls_that_wait_together_keep_their_callers() -> None:
    """More calls than run at once: the rest waits in the session of the upstream."""
    inner = Server("inner", limits=Limits(in_flight=2))

    @inner.tool
    async def who(ctx: Context) -> str:
        await asyncio.sleep(0)
        return "nobody" if ctx.principal is None else ctx.principal.subject

    gateway = Gateway("front").add("in", inner)
    async with (
        open_to(gateway, MODERN, "http") as join,
        join(principal=RIGHT) as ann,
        join(principal=Principal("bob")) as bob,
    ):
        answers = await asyncio.gather(*(each.call("in_who") for _ in range(20) for each in (ann, bob)))
    assert [each["content"][0]["text"] for each in answers] == ["ann", "bob"] * 20


async def test_a_local_caller_without_a_principal_is_the_local_principal_of_an_upstream() -> None:
    inner = owner(local_principal=WRONG)
    inner.restrict("t", scopes=["admin"])
    gateway = Gateway("front").add("in", inner, prefix="")
    async with open_to(gateway, MODERN, "memory") as join:
        for principal, said in ((None, "refused"), (WRONG, "refused"), (RIGHT, "usable")):
            async with join(principal=principal) as client:
                assert verdict(await client.request("tools/call", {"name": "work", "arguments": {}})) == said


@cases("revision", [CORE, MODERN])
@cases("back", [CORE, MODERN])
async def test_audit_log_of_an_upstream_names_the_caller_of_the_gateway(revision: str, back: str) -> None:
    lines: list[Any] = []
    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    inner = Server("inner", audit=audit)
    inner.tool(name="look")(lambda: "seen")
    gateway = Gateway("front").add("in", inner, revision=back)
    async with (
        open_to(gateway, revision, "http") as join,
        join(principal=RIGHT) as ann,
        join(principal=Principal("bob")) as bob,
    ):
        for client in (ann, bob, ann):
            await client.call("in_look")
    assert [each["who"]["subject"] for each in lines if each.get("method") == "tools/call"] == ["ann", "bob", "ann"]


# --- a server that is a command has one caller: the gateway ---


class Command(CommandTarget):
    """A command whose process is a server in this process."""

    def __init__(self, server: Server) -> None:
        super().__init__(["command"], "command")
        self._server = server

    async def open(self) -> Link:
        ours, theirs = memory_pair()
        self._serving = asyncio.ensure_future(self._server.serve(theirs))
        return Link(ours, self.label)


def restricted(**options: Any) -> Server:
    server = Server("strict", **options)
    server.tool(name="purge", scopes=["admin"])(lambda: "purged")
    server.tool(name="look")(lambda: "seen")
    return server


@cases("back", [CORE, MODERN])
@cases(
    "how",
    [
        lambda server: server.tool(name="purge", scopes=["admin"])(lambda: "purged"),
        lambda server: server.tool(name="purge", visible_to=["admin"])(lambda: "purged"),
        lambda server: server.tool(name="purge", tags=["t"])(lambda: "purged") and server.restrict("t", scopes=["a"]),
        lambda server: server.mount(restricted(), "inner"),
        lambda server: server.resource("note://one", scopes=["admin"])(lambda: "note"),
    ],
)
async def test_command_with_restrictions_is_refused_and_the_rest_is_served(
    how: Callable[[Server], object], back: str
) -> None:
    server = Server("strict")
    how(server)
    gateway = Gateway("front").add("s", Command(server), revision=back).add("o", Server("open", tools=Tool(len)))
    async with testing.connect(gateway) as (client, _):
        assert [each.name for each in await client.list_tools()] == ["o_len"]
        known = gateway.backs["s"]
        assert known.state == "away"
        assert known.error is not None and "--as SUBJECT" in known.error and "local_principal=" in known.error


async def test_refused_command_is_named_with_its_remedy_in_log_and_readyz(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway("front").add("s", Command(restricted())).add("o", Server("open", tools=Tool(len)))
    app = gateway.http_app()
    async with testing.connect(gateway) as (client, _):
        await client.list_tools()
        ready = await HttpClient(app, path="/readyz").start("GET").finished()
    await app.stop()
    assert (ready.status, ready.body) == (200, b"ok, s missing")
    (line,) = {record.message for record in caplog.records if "'s'" in record.message}
    assert "toolwire run FILE --as SUBJECT" in line and "local_principal=" in line


@cases("back", [CORE, MODERN])
async def test_command_with_a_local_principal_is_served_with_its_restrictions(back: str) -> None:
    server = restricted(local_principal=Principal("gateway", scopes=["other"]))
    gateway = Gateway("front").add("s", Command(server), revision=back)
    async with testing.connect(gateway) as (client, _):
        assert (await client.call_tool("s_look")).text == "seen"
        with pytest.raises(ProtocolError):
            await client.call_tool("s_purge")


@cases("revision", [CORE, MODERN])
async def test_restricted_command_serves_a_client_of_its_own(revision: str) -> None:
    """Nobody stands between the client and its server, also where the client has several."""
    async with Client({"s": Command(restricted())}, revision=revision) as client:
        assert (await client.call_tool("purge")).text == "purged"
    async with Client({"s": Command(restricted()), "o": Server("open", tools=Tool(len))}) as client:
        assert (await client.call_tool("s_purge")).text == "purged"


@cases("revision", [CORE, MODERN])
async def test_restrictions_are_named_to_local_clients_without_a_principal_alone(revision: str) -> None:
    async def declares(server: Server, over: Over, principal: Principal | None = None) -> bool:
        async with testing.connect(server, revision=revision, over=over, principal=principal) as (client, _):
            return "io.toolwire/restricted" in client.capabilities.get("experimental", {})

    assert await declares(restricted(), "memory")
    assert not await declares(restricted(), "http")
    assert not await declares(restricted(), "memory", Principal("ann"))
    assert not await declares(restricted(local_principal=Principal("ann")), "memory")
    assert not await declares(Server("open", tools=Tool(len)), "memory")


@cases("revision", [CORE, MODERN])
@cases("back", [CORE, MODERN])
async def test_gateway_names_the_restrictions_of_its_servers_to_its_own_local_clients_alone(
    revision: str, back: str
) -> None:
    async def declares(over: Over, principal: Principal | None = None) -> bool:
        gateway = Gateway("front").add("s", restricted(), revision=back)
        async with testing.connect(gateway) as (client, _):
            assert await client.list_tools()  # From now on the gateway knows what its server declares.
            async with testing.connect(gateway, revision=revision, over=over, principal=principal) as (other, _):
                return "io.toolwire/restricted" in other.capabilities.get("experimental", {})

    assert await declares("memory")
    assert not await declares("http")
    assert not await declares("memory", Principal("ann"))


@cases("revision", [CORE, MODERN])
async def test_gateway_that_tells_its_callers_apart_can_be_used_behind_another_gateway(revision: str) -> None:
    inner = Gateway("inner").add("s", restricted(), prefix="", revision=revision)
    async with testing.connect(inner) as (client, _):
        await client.list_tools()
        async with behind(inner, "http") as target:
            outer = Gateway("outer").add("i", target, revision=revision)
            async with testing.connect(outer) as (other, _):
                assert (await other.call_tool("i_look")).text == "seen"
