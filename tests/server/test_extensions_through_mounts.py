"""Extensions of a mounted server: the server that mounts it offers them, with everything that belongs to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.httpwire import connect_http
from tests.server.reaching import CARRY, WAYS, reach, settled, told_by
from tests.wireclient import MODERN, Message, connect, modern_meta

from toolwire import Context, Policy, Server, types
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.protocol.errors import ServerError
from toolwire.server.hot_reload import Stage

NAME = "org.example/jobs"
DECLARED = {"extensions": {NAME: {}}}
ADMIN = Principal("ann", scopes=frozenset({"admin"}))
OTHER = Principal("bob", scopes=frozenset({"other"}))
every_way = cases("way", WAYS)
both_revisions = pytest.mark.parametrize("revision", CARRY)


class JobParams(types.RequestParams, kw_only=True):
    job: str


def jobs(name: str = "jobs", seen: list[Any] | None = None, identifier: str = NAME, **options: Any) -> Server:
    """A server with an extension: a method, a notification and a listen filter."""
    server = Server(name, **options)
    extension = server.extension(identifier, {"max": 3}, needs_client=False, families=["resources"])

    @extension.method("jobs/get", params=JobParams)
    async def get(params: JobParams, ctx: Context) -> Message:
        return {"job": params.job, "server": ctx.server.name, "lifespan": ctx.lifespan, "state": dict(ctx.state)}

    @extension.notification("notifications/jobs/done")
    def done(params: Any) -> None:
        (seen if seen is not None else []).append(params.extra)

    extension.listen_filter("jobIds", lambda asked: asked, legacy=True)
    return server


def mounted_at(depth: int, inner: Server) -> Server:
    """A server with `inner` mounted in it, that many servers deep."""
    server = inner
    for number in range(depth):
        server = Server(f"outer{number}").mount(server, prefix=f"p{number}" if number % 2 else None)
    return server


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[str]:
    yield f"life of {server.name}"


# --- What is offered -------------------------------------------------------------------------------------------------


@pytest.mark.covers("EXT-9")
@every_way
@both_revisions
@pytest.mark.parametrize("depth", [1, 3])
async def test_the_extension_of_a_mounted_server_is_offered(way: str, revision: str, depth: int) -> None:
    seen: list[Any] = []
    server = mounted_at(depth, jobs(seen=seen, lifespan=lifespan))
    async with reach(server, way, revision) as client:
        declared = (await told_by(client))["capabilities"]
        result = await client.result("jobs/get", {"job": "a"})
        params: Message = {"job": "b"} | ({"_meta": modern_meta({})} if revision == MODERN else {})
        client.notify("notifications/jobs/done", params)
        await settled(client)
    assert declared["extensions"] == {NAME: {"max": 3}}
    assert "resources" in declared
    assert result.items() >= {"job": "a", "server": "jobs", "lifespan": "life of jobs", "state": {}}.items()
    assert seen == [{"job": "b"}]


@pytest.mark.covers("EXT-9")
@every_way
async def test_what_a_mounted_server_publishes_reaches_the_clients_of_the_server_that_mounts_it(way: str) -> None:
    inner = jobs()
    async with reach(mounted_at(2, inner), way, MODERN) as client:
        client.start("subscriptions/listen", {"notifications": {"jobIds": ["a"]}}, id="sub")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        inner.publish("jobIds", "b", "notifications/jobs/progress", {"job": "b"})
        inner.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a"})
        (heard,) = await client.notified("notifications/jobs/progress")
    assert acknowledged["notifications"] == {"jobIds": ["a"]}
    assert heard["job"] == "a"


@pytest.mark.covers("EXT-9")
@cases("way", ["memory", "stdio", "http"])
@cases("publisher", ["inner", "outer"])
async def test_legacy_clients_of_the_server_that_mounts_it_hear_it_too(way: str, publisher: str) -> None:
    inner = jobs()
    outer = mounted_at(2, inner)
    async with reach(outer, way, "2025-11-25") as client:
        await client.result("ping")
        server = inner if publisher == "inner" else outer
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a"})
        assert await client.notified("notifications/jobs/progress") == [{"job": "a"}]


async def test_a_server_mounted_twice_has_its_extension_once() -> None:
    inner = jobs()
    outer = Server("outer").mount(inner, prefix="a").mount(inner, prefix="b")
    async with connect(outer, MODERN) as client:
        assert (await client.result("jobs/get", {"job": "a"}))["server"] == "jobs"
        assert (await told_by(client))["capabilities"]["extensions"] == {NAME: {"max": 3}}


@both_revisions
async def test_what_is_registered_after_mounting_is_offered(revision: str) -> None:
    inner = Server("inner")
    outer = mounted_at(2, inner)
    async with connect(outer, revision) as client:
        assert (await client.error("jobs/late"))["code"] == -32601
        extension = inner.extension(NAME, needs_client=False)

        @extension.method("jobs/late")
        async def late(params: Any, ctx: Context) -> Message:
            return {"server": ctx.server.name}

        assert (await client.result("jobs/late"))["server"] == "inner"
    assert outer.capabilities(revision)["extensions"] == {NAME: {}}


@both_revisions
async def test_a_reloaded_server_offers_the_extensions_that_it_has_then(revision: str) -> None:
    stage = Stage(mounted_at(1, jobs("first")))
    async with connect_http(stage.http_app(), revision) as client:
        assert (await client.result("jobs/get", {"job": "a"}))["server"] == "first"
        await stage.replace(Server("outer").mount(Server("empty")))
        assert (await client.error("jobs/get", {"job": "a"}))["code"] == -32601
        await stage.replace(mounted_at(2, jobs("second")))
        assert (await client.result("jobs/get", {"job": "a"}))["server"] == "second"


# --- Who has a name --------------------------------------------------------------------------------------------------


def with_method(server: Server, identifier: str, method: str) -> Server:
    @server.extension(identifier).method(method)
    async def handler(params: Any, ctx: Context) -> None:
        raise AssertionError

    return server


def with_filter(server: Server, identifier: str, name: str) -> Server:
    server.extension(identifier).listen_filter(name, lambda asked: asked)
    return server


OURS = "org.example/ours"


@pytest.mark.covers("EXT-10")
@cases(
    ("claim", "what"),
    [
        (lambda server: server.extension(NAME), f"the extension {NAME}"),
        (lambda server: with_method(server, OURS, "jobs/get"), "the method jobs/get"),
        (lambda server: with_method(server, OURS, "notifications/jobs/done"), "the method notifications/jobs/done"),
        (lambda server: with_filter(server, OURS, "jobIds"), "the listen filter jobIds"),
    ],
)
@cases("depth", [1, 2])
def test_two_servers_cannot_have_one_name(claim: Any, what: str, depth: int) -> None:
    early = Server("early")
    claim(early)
    with pytest.raises(ServerError, match=f"'early' and 'jobs' both have {what}: "):
        early.mount(mounted_at(depth - 1, jobs()))
    beside = mounted_at(depth, jobs())
    other = Server("other")
    claim(other)
    with pytest.raises(ServerError, match=f"'jobs' and 'other' both have {what}: "):
        beside.mount(other)
    for late in (mounted_at(depth, jobs()), Server("late").mount(jobs())):
        with pytest.raises(ServerError, match=f"'jobs' and '{late.name}' both have {what}: "):
            claim(late)
    below = Server("below")
    Server("top").mount(jobs()).mount(mounted_at(depth - 1, below))
    with pytest.raises(ServerError, match=f"'jobs' and 'below' both have {what}: "):
        claim(below)


def test_a_refused_mount_changes_nothing() -> None:
    outer = jobs("outer")
    with pytest.raises(ServerError):
        outer.mount(jobs("inner"))
    assert outer.catalog.mounts == []


def test_two_extensions_of_one_server_cannot_have_one_method() -> None:
    with pytest.raises(ServerError, match="'jobs' has the method jobs/get already"):
        with_method(jobs(), OURS, "jobs/get")


# --- What holds for a method -----------------------------------------------------------------------------------------


@pytest.mark.covers("EXT-11")
@every_way
@both_revisions
async def test_the_middleware_of_every_server_on_the_way_runs(way: str, revision: str) -> None:
    ran: list[str] = []

    def watching(name: str) -> Any:
        async def watch(ctx: Context, call_next: Any) -> Any:
            ran.append(f"{name}: {ctx.method} {ctx.params.job} {ctx.params.extra} {ctx.server.name}")
            ctx.state[name] = True
            return await call_next(ctx)

        return watch

    inner = jobs(middleware=watching("inner"))
    middle = Server("middle", middleware=watching("middle")).mount(inner, prefix="x")
    outer = Server("outer", middleware=watching("outer")).mount(middle)
    async with reach(outer, way, revision) as client:
        result = await client.result("jobs/get", {"job": "a", "more": 1})
    calls = [f"{name}: jobs/get a {{'more': 1}} {server}" for name, server in
             (("outer", "outer"), ("middle", "middle"), ("inner", "jobs"))]  # fmt: skip
    assert ran == calls
    assert (result["server"], result["state"]) == ("jobs", {"outer": True, "middle": True, "inner": True})


async def test_a_middleware_can_answer_in_its_place() -> None:
    async def answer(ctx: Context, call_next: Any) -> Any:
        return {"answered": ctx.method}

    async with connect(Server("outer").mount(jobs(middleware=answer)), MODERN) as client:
        assert (await client.result("jobs/get", {"job": "a"}))["answered"] == "jobs/get"


@pytest.mark.covers("EXT-11")
@every_way
@both_revisions
@pytest.mark.parametrize("place", ["outer", "inner"])
async def test_policies_on_the_way_hold(way: str, revision: str, place: str) -> None:
    policy = Policy(mask=["secret-[0-9]+"], rules={"job": lambda value: "not this" if value == "bad" else None})
    options = {"outer": {}, "inner": {}, place: {"policy": policy}}
    outer = Server("outer", **options["outer"]).mount(jobs(**options["inner"]))
    async with reach(outer, way, revision) as client:
        assert (await client.result("jobs/get", {"job": "a secret-1"}))["job"] == "a [redacted]"
        refused = await client.error("jobs/get", {"job": "bad"})
    assert refused["code"] == 403
    assert "not this" in refused["message"]


@pytest.mark.covers("EXT-11")
async def test_a_policy_bounds_the_answer_and_the_rate_of_a_method() -> None:
    server = Server("s")
    extension = server.extension(NAME, needs_client=False)

    @extension.method("jobs/long", policy=Policy(result=100))
    async def long(params: Any, ctx: Context) -> Message:
        return {"text": "x" * 200}

    @extension.method("jobs/rare", policy=Policy(rate="1/hour"))
    async def rare(params: Any, ctx: Context) -> Message:
        return {"ok": True}

    async with connect(Server("outer").mount(server), MODERN) as client:
        assert "may have 100" in (await client.error("jobs/long"))["message"]
        assert (await client.result("jobs/rare"))["ok"] is True
        assert (await client.error("jobs/rare"))["code"] == 429


@pytest.mark.pairwise
@pytest.mark.covers("EXT-11")
@pytest.mark.parametrize("way", ["memory", "http"])
@both_revisions
@pytest.mark.parametrize("rule", ["scopes", "visible_to", "tag"])
@pytest.mark.parametrize("principal", [ADMIN, OTHER], ids=["admin", "other"])
async def test_restrictions_of_a_method_hold(way: str, revision: str, rule: str, principal: Principal) -> None:
    inner = Server("inner")
    options: dict[str, Any] = {"tags": "t"} if rule == "tag" else {rule: "admin"}

    @inner.extension(NAME, needs_client=False).method("jobs/all", **options)
    async def everything(params: Any, ctx: Context) -> Message:
        return {"ok": True}

    middle = Server("middle").mount(inner)
    if rule == "tag":
        middle.restrict("t", scopes="admin")
    async with reach(Server("outer").mount(middle), way, revision, principal=principal) as client:
        if principal is ADMIN:
            assert (await client.result("jobs/all"))["ok"] is True
        elif rule == "visible_to":
            error = await client.error("jobs/all")
            assert (error["code"], error["message"]) == (-32601, "Method not found: jobs/all")
        else:
            assert (await client.error("jobs/all"))["code"] == 403


def test_a_rule_for_an_argument_that_a_method_lacks_is_refused() -> None:
    extension = Server("s").extension(NAME)
    policy = Policy(rules={"jbo": lambda value: None})
    with pytest.raises(ServerError, match="'jbo', which is no argument of it"):
        extension.method("jobs/get", params=JobParams, policy=policy)(lambda params, ctx: None)


async def test_a_call_of_a_method_is_in_the_audit_log() -> None:
    lines: list[Any] = []
    log = AuditLog(lines.append, key="a key of sixteen bytes")
    inner = jobs(policy=Policy(redact=["token"]))
    async with connect(Server("outer", audit=log).mount(inner), MODERN) as client:
        await client.result("jobs/get", {"job": "a", "token": "t"})
    log.close()
    entries = [msgspec.json.decode(line) for line in lines]
    (entry,) = [each for each in entries if each.get("method") == "jobs/get"]
    assert (entry["name"], entry["outcome"], entry["arguments"]["job"]) == ("jobs/get", "ok", "a")
    assert entry["arguments"]["token"] != "t"
