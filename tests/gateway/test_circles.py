"""Gateways that lead to each other, and servers that pretend it: a gateway leaves out what leads back to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.client.skills.serving import ServedSkills, skill_md
from tests.gateway.backs import OVER, behind, until

from toolwire import Client, Server
from toolwire.client import targets
from toolwire.gateway import Gateway
from toolwire.gateway.remote_lists import RemoteLists
from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import (
    GATEWAYS_KEY,
    MAX_MARKS,
    MAX_SERVERS,
    UPSTREAM_KEY,
    GatewayMark,
    encode_marks,
    read_marks,
    read_upstream,
)

REVISIONS = (MODERN, "2025-11-25")


def serve_all(name: str, marks: list[Any] | None = None) -> Server:
    """Make a server with one of everything, whose lists have these marks."""
    server = ServedSkills({name: {"SKILL.md": skill_md(name)}}).server

    async def run() -> str:
        return name

    run.__name__ = f"run_{name}"
    server.tool(run)

    @server.prompt(name=f"ask_{name}")
    def ask() -> str:
        return name

    @server.resource(f"{name}://now")
    def now() -> str:
        return name

    @server.resource(f"{name}://{{number}}")
    def template(number: str) -> str:
        return number

    @server.use
    async def mark(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if marks is not None and ctx.method.endswith("/list"):
            if isinstance(result, dict):
                return {**result, "_meta": {GATEWAYS_KEY: marks}}
            result.meta = {GATEWAYS_KEY: marks}
        return result

    return server


async def names_of_all(client: Client) -> set[str]:
    """Return the names and addresses of everything that a client is shown."""
    return {
        *(each.name for each in await client.list_tools()),
        *(each.name for each in await client.list_prompts()),
        *(each.uri for each in await client.list_resources()),
        *(each.uri_template for each in await client.list_resource_templates()),
        *(each.uri for each in await client.skills.list()),
    }


def names(prefix: str, name: str) -> set[str]:
    parts = (f"{prefix}run_{name}", f"{prefix}ask_{name}", f"{name}://now", f"{name}://{{number}}")
    return {*parts, f"skill://{name}/SKILL.md"}


async def read_marks_of(server: Server) -> list[Any]:
    """Return the marks that any client of a gateway can read in its lists."""
    async with Client(server) as client:
        page = await client.list_tools_page()
        assert isinstance(page.meta, dict)
        return [each for each in page.meta[GATEWAYS_KEY] if isinstance(each, str)]


@pytest.mark.covers("GW-11.15")
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_copied_mark_costs_the_entries_of_the_upstream_that_copied_it(revision: str, over: str) -> None:
    front = Gateway("front").add("own", serve_all("own"))
    marks = await read_marks_of(front)
    inner = Gateway("inner").add("honest", serve_all("honest")).add("evil", serve_all("evil", marks))
    async with behind(inner, over) as target:
        front.add("in", target, revision=revision)
        async with Client(front) as client:
            await until(lambda: front.backs["in"].state != "connecting")
            back = front.backs["in"]
            assert (back.state, back.error) == ("ready", None)
            assert await names_of_all(client) == names("in_honest_", "honest") | names("own_", "own")
            assert await client.call_tool("in_honest_run_honest", returns=str) == "honest"
            assert dict(back.left_out) == {
                "evil/*": "it leads back to this server: the gateways form a circle",
            }


async def test_copying_upstream_cannot_name_the_way_to_another() -> None:
    marks: list[Any] = []
    inner = Gateway("inner").add("honest", serve_all("honest")).add("evil", serve_all("evil", marks))
    front = Gateway("front").add("in", inner)
    [own] = await read_marks_of(front)
    marks += ["x", {"mark": own, "servers": ["honest"]}, {"mark": own, "servers": ["in", "honest"]}]
    async with Client(front) as client:
        await until(lambda: front.backs["in"].state == "ready")
        assert names("in_honest_", "honest") <= await names_of_all(client)


@pytest.mark.covers("GW-11.15")
@cases("revision", REVISIONS)
async def test_two_gateways_that_mount_each_other_show_what_each_has(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each ends only when it has waited for the other.
    monkeypatch.setattr(targets, "GRACE_SECONDS", 0.05)
    one, two = Gateway("one"), Gateway("two")
    one.add("a", serve_all("a")).add("two", two, revision=revision, list_timeout=0.05)
    two.add("b", serve_all("b")).add("one", one, revision=revision, list_timeout=0.05)
    async with Client(one) as client:
        await until(lambda: bool(one.backs["two"].left_out) and one.backs["two"].state == "ready")
        await until(lambda: bool(two.backs["one"].left_out) and two.backs["one"].state == "ready")
        # Each reading of one would lengthen the lists of the other.
        for _ in range(3):
            await one.fronts.front.upstreams["two"].lists.reread_lists()
            await two.fronts.front.upstreams["one"].lists.reread_lists()
        expected = names("a_", "a") | names("two_b_", "b")
        assert await names_of_all(client) == expected
        assert "one/*" in one.backs["two"].left_out
        page = await client.list_tools_page()
        assert page.meta == {
            **page.meta,
            GATEWAYS_KEY: [one.catalog.mark, {"mark": two.catalog.mark, "servers": ["two"]}],
        }
        assert "io.toolwire/missing" not in page.meta


@pytest.mark.covers("GW-11.15")
async def test_gateways_in_a_longer_circle_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "GRACE_SECONDS", 0.05)
    gateways = [Gateway(f"g{number}") for number in range(3)]
    for number, gateway in enumerate(gateways):
        follower = (number + 1) % 3
        gateway.add("own", serve_all(f"s{number}"))
        gateway.add("next", gateways[follower], list_timeout=0.05)
    async with Client(gateways[0]) as client:
        await until(lambda: all(each.backs["next"].left_out for each in gateways))
        assert "next/next/*" in gateways[0].backs["next"].left_out
        for _ in range(3):
            for each in gateways:
                await each.fronts.front.upstreams["next"].lists.reread_lists()
        expected = names("own_", "s0") | names("next_own_", "s1") | names("next_next_own_", "s2")
        assert await names_of_all(client) == expected


async def test_gateway_of_an_earlier_release_that_names_every_mark_as_its_own_is_left() -> None:
    """Such a gateway hands marks on as texts, so that nothing says who brought them."""
    marks: list[Any] = ["the mark of the other gateway"]
    front = Gateway("front").add("old", serve_all("old", marks)).add("own", serve_all("own"))
    marks += await read_marks_of(front)
    async with Client(front) as client:
        await until(lambda: front.backs["old"].state == "away")
        assert "circle" in f"{front.backs['old'].error}"
        assert names("own_", "own") == await names_of_all(client)


async def test_many_marks_of_an_upstream_leave_room_for_those_of_the_next() -> None:
    inner = Gateway("inner").add("evil", serve_all("evil", [f"m{number}" for number in range(MAX_MARKS)]))
    inner.add("gateway", serve_all("gateway", ["the mark"]))
    async with Client(inner) as client:
        await until(lambda: all(each.state == "ready" for each in inner.backs.values()))
        page = await client.list_tools_page()
        assert GatewayMark("the mark", ("gateway",)) in read_marks(page.meta)


async def test_prompts_and_skills_name_their_upstream() -> None:
    forged = {UPSTREAM_KEY: {"servers": ["bank"]}, "kept": 1.10}
    server = serve_all("a")

    @server.prompt(meta=dict(forged))
    def plain() -> str:
        return "plain"

    inner = Gateway("inner").add("a", server)
    async with Client(Gateway("front").add("in", inner)) as client:
        prompts = {each.name: each.meta for each in await client.list_prompts()}
        assert read_upstream(prompts["in_a_plain"]) == (("in", "a"), None)
        assert read_upstream(prompts["in_a_ask_a"]) == (("in", "a"), None)
        assert prompts["in_a_plain"]["kept"] == 1.10
        [skill] = await client.skills.list()
        assert read_upstream(skill.entry.extra["_meta"]).servers == ("in", "a")
        loaded = await client.skills.get(skill.uri)
        assert loaded.entry == skill.entry


def listed(*servers: str) -> t.Tool:
    meta = {UPSTREAM_KEY: {"servers": list(servers)}} if servers else {}
    return t.Tool(name="_".join(servers), input_schema={"type": "object"}, meta=meta)


@cases(
    ("marks", "kept"),
    [
        ([], ["", "a", "a_b", "ab"]),
        ([GatewayMark("other", ("a",))], ["", "a", "a_b", "ab"]),
        ([GatewayMark("own", ("a",))], ["", "ab"]),
        ([GatewayMark("own", ("a", "b"))], ["", "a", "ab"]),
        ([GatewayMark("own", ("a", "b", "c"))], ["", "a", "a_b", "ab"]),
    ],
)
def test_entries_behind_a_server_with_the_own_mark_are_left_out(marks: list[GatewayMark], kept: list[str]) -> None:
    lists = RemoteLists()
    lists.gateways = marks
    lists.tools = [listed(), listed("a"), listed("a", "b"), listed("ab")]
    lists.missing = ["a", "a/b", "ab", "a/b/c"]
    assert not lists.leave_out_circles(["own"])
    assert [each.name for each in lists.tools] == kept
    assert ("ab" in lists.missing) and ("a" in lists.missing) == ("a" in kept)
    assert ("a/b/c" in lists.missing) == ("own" not in [each.text for each in marks])
    assert [each.text for each in lists.gateways] == [each.text for each in marks if each.text != "own"]


_TEXTS = st.text(max_size=5)
_ANYTHING = st.recursive(
    st.none() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["mark", "servers"]), inner),
    max_leaves=10,
)


@given(_ANYTHING)
def test_marks_of_other_servers_are_read_whatever_they_are(value: Any) -> None:
    marks = read_marks({GATEWAYS_KEY: value})
    assert len(marks) <= MAX_MARKS
    assert all(isinstance(each.text, str) and len(each.servers) <= MAX_SERVERS for each in marks)
    assert read_marks({GATEWAYS_KEY: encode_marks(marks)}) == marks
    assert read_marks(value) == []
