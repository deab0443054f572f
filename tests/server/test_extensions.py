"""Extensions: methods, notifications, listen filters and result types of one's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.server.reaching import CARRY, WAYS, reach, settled, told_by
from tests.wireclient import MODERN, REVISIONS, WireClient, connect, modern_meta

from toolwire import Context, Limits, Server, types
from toolwire.protocol.errors import ServerError

NAME = "org.example/jobs"
DECLARED = {"extensions": {NAME: {}}}


class JobParams(types.RequestParams, kw_only=True):
    job: str


class JobNotice(types.NotificationParams, kw_only=True):
    job: str


def extended(seen: list[Any] | None = None) -> Server:
    server = Server("s")
    extension = server.extension(NAME, {"max": 3})

    @extension.method("jobs/get", params=JobParams)
    async def get(params: JobParams, ctx: Context) -> dict[str, Any]:
        return {"job": params.job, "method": ctx.method}

    @extension.method("jobs/open")
    async def anything(params: types.RequestParams, ctx: Context) -> dict[str, Any] | None:
        assert params is ctx.params
        return params.extra or None

    @extension.notification("notifications/jobs/done", params=JobNotice)
    def done(params: JobNotice) -> None:
        (seen if seen is not None else []).append(params.job)

    @extension.method("jobs/fail")
    async def fail(params: Any, ctx: Context) -> None:
        raise RuntimeError("the password is hunter2")

    return server


@pytest.mark.covers("EXT-1")
async def test_an_extension_is_announced_with_its_settings() -> None:
    async with connect(extended(), MODERN) as client:
        assert (await client.result("server/discover"))["capabilities"]["extensions"] == {NAME: {"max": 3}}


@pytest.mark.covers("EXT-3")
async def test_there_are_none_until_the_developer_says_so() -> None:
    async with connect(Server("s"), MODERN, DECLARED) as client:
        assert "extensions" not in (await client.result("server/discover"))["capabilities"]
        assert (await client.error("jobs/get", {"job": "a"}))["code"] == -32601


async def test_a_method_of_an_extension_is_served() -> None:
    async with connect(extended(), MODERN, DECLARED) as client:
        result = await client.result("jobs/get", {"job": "a"})
        assert (result["job"], result["method"], result["resultType"]) == ("a", "jobs/get", "complete")
        assert "io.modelcontextprotocol/serverInfo" in result["_meta"]
        assert (await client.result("jobs/open"))["resultType"] == "complete"
        assert (await client.result("jobs/open", {"anything": [1]}))["anything"] == [1]


@pytest.mark.covers("EXT-2", "CAP-1")
async def test_a_client_that_did_not_declare_it_is_told_what_it_lacks() -> None:
    async with connect(extended(), MODERN) as client:
        error = await client.error("jobs/get", {"job": "a"})
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {NAME: {}}}}


@pytest.mark.covers("EXT-4")
async def test_unknown_extensions_of_a_client_are_ignored() -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> bool:
        seen.append(ctx.client_capabilities["extensions"])
        return ctx.supports("extensions")

    server = extended()
    server.tool(look)
    declared = {"extensions": {"com.other/thing-v2": {"x": 1}, NAME: {}}}
    async with connect(server, MODERN, declared) as client:
        assert (await client.call("look"))["structuredContent"] is True
    assert seen == [declared["extensions"]]


@pytest.mark.covers("EXT-5")
async def test_fields_of_an_extension_are_validated() -> None:
    async with connect(extended(), MODERN, DECLARED) as client:
        for wrong in ({}, {"job": 1}, {"job": None}):
            error = await client.error("jobs/get", wrong)
            assert error["code"] == -32602
            assert "jobs/get" in error["message"]


async def test_a_failing_method_is_masked() -> None:
    async with connect(extended(), MODERN, DECLARED) as client:
        error = await client.error("jobs/fail")
    assert error["code"] == -32603
    assert "hunter2" not in error["message"]


async def test_a_method_has_the_time_of_any_handler() -> None:
    server = Server("s", limits=Limits(tool=0.05))

    @server.extension(NAME).method("jobs/wait")
    async def wait(params: Any, ctx: Context) -> None:
        await asyncio.Event().wait()

    async with connect(server, MODERN, DECLARED) as client:
        error = await client.error("jobs/wait")
    assert (error["code"], error["message"]) == (-32603, "jobs/wait did not finish within 0.05 seconds")


async def test_a_notification_of_an_extension() -> None:
    seen: list[Any] = []
    async with connect(extended(seen), "2025-11-25", DECLARED) as client:
        client.notify("notifications/jobs/done", {"job": "a"})
        client.notify("notifications/jobs/done", {"job": 1})
        await client.result("ping")
    assert seen == ["a"]
    async with connect(extended(seen), "2025-11-25") as client:
        client.notify("notifications/jobs/done", {"job": "b"})
        await client.result("ping")
    assert seen == ["a"], "a client that did not declare the extension has no such notification"


async def test_a_notification_of_an_extension_on_the_current_revision() -> None:
    seen: list[Any] = []
    async with connect(extended(seen), MODERN, DECLARED) as client:
        await client.result("server/discover")
        meta = {"io.modelcontextprotocol/clientCapabilities": DECLARED}
        client.notify("notifications/jobs/done", {"job": "a", "_meta": meta})
        await client.result("server/discover")
    assert seen == ["a"]


# --- Revisions, clients and transports -------------------------------------------------------------------------------

DOES_NOT_CARRY = ("2024-11-05", "2025-03-26", "2025-06-18")


def one_sided(seen: list[Any], *, needs_client: bool = False, **options: Any) -> Server:
    """A server whose extension has a method, a notification and a listen filter."""
    server = Server("s")
    extension = server.extension(NAME, {"max": 3}, needs_client=needs_client, **options)

    @extension.method("jobs/get", params=JobParams)
    async def get(params: JobParams, ctx: Context) -> dict[str, Any]:
        return {"job": params.job, "revision": ctx.revision}

    @extension.notification("notifications/jobs/done", params=JobNotice)
    def done(params: JobNotice) -> None:
        seen.append(params.job)

    extension.listen_filter("jobIds", lambda asked: asked, legacy=True)
    return server


async def declared_to(client: WireClient) -> dict[str, Any]:
    """The extensions that the server declares to the client."""
    extensions: dict[str, Any] = (await told_by(client))["capabilities"].get("extensions", {})
    return extensions


async def send_done(client: WireClient, job: str) -> None:
    """Send the notification of the extension, and wait until the server has taken it."""
    params: dict[str, Any] = {"job": job}
    if client.revision == MODERN:
        params["_meta"] = modern_meta(client.capabilities)
    client.notify("notifications/jobs/done", params)
    await settled(client)


@pytest.mark.pairwise
@pytest.mark.covers("EXT-2", "EXT-6")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("revision", CARRY)
@pytest.mark.parametrize("needs_client", [False, True])
@pytest.mark.parametrize("declares", [False, True])
async def test_who_can_use_an_extension(way: str, revision: str, needs_client: bool, declares: bool) -> None:
    seen: list[Any] = []
    server = one_sided(seen, needs_client=needs_client)
    # Without a session, nobody remembers what a legacy client declared.
    is_forgotten = way == "stateless" and revision != MODERN
    async with reach(server, way, revision, DECLARED if declares else {}) as client:
        response = await client.request("jobs/get", {"job": "a"})
        if not needs_client or (declares and not is_forgotten):
            assert response["result"].items() >= {"job": "a", "revision": revision}.items()
        elif is_forgotten:
            assert response["error"]["code"] == -32601
        else:
            assert response["error"]["code"] == -32021
            assert response["error"]["data"] == {"requiredCapabilities": DECLARED}
        assert await declared_to(client) == ({} if needs_client and is_forgotten else {NAME: {"max": 3}})
        await send_done(client, "a")
    assert seen == (["a"] if "result" in response else [])


@pytest.mark.covers("EXT-6")
@cases("way", WAYS)
@cases("revision", DOES_NOT_CARRY)
async def test_a_revision_that_carries_no_extensions_has_none(way: str, revision: str) -> None:
    seen: list[Any] = []
    async with reach(one_sided(seen), way, revision, DECLARED) as client:
        error = await client.error("jobs/get", {"job": "a"})
        assert (error["code"], error["message"]) == (-32601, "Method not found: jobs/get")
        assert await declared_to(client) == {}
        await send_done(client, "a")
    assert seen == []


@pytest.mark.pairwise
@pytest.mark.covers("EXT-6")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("only", CARRY)
@pytest.mark.parametrize("revision", CARRY)
async def test_an_extension_exists_on_the_revisions_that_it_names(way: str, only: str, revision: str) -> None:
    seen: list[Any] = []
    async with reach(one_sided(seen, revisions=[only]), way, revision) as client:
        response = await client.request("jobs/get", {"job": "a"})
        assert ("result" in response) == (only == revision)
        assert (await declared_to(client) == {}) == (only != revision)
        if only != revision:
            assert response["error"]["code"] == -32601
        await send_done(client, "a")
    assert seen == (["a"] if only == revision else [])


async def test_an_extension_that_the_server_takes_back_has_no_methods() -> None:
    server = Server("s", capabilities={"extensions": {NAME: None}})

    @server.extension(NAME, needs_client=False).method("jobs/get")
    async def get(params: Any, ctx: Context) -> None:
        raise AssertionError

    for revision in CARRY:
        async with connect(server, revision) as client:
            assert (await client.error("jobs/get"))["code"] == -32601


@pytest.mark.pairwise
@pytest.mark.covers("EXT-7")
@pytest.mark.parametrize("way", ["memory", "stdio", "http"])
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("needs_client", "declares"), [(False, False), (True, False), (True, True)])
async def test_a_legacy_client_gets_what_is_published_if_the_filter_says_so(
    way: str, legacy: bool, needs_client: bool, declares: bool
) -> None:
    server = Server("s")
    extension = server.extension(NAME, needs_client=needs_client)
    extension.listen_filter("jobIds", lambda asked: asked, legacy=legacy)
    async with reach(server, way, "2025-11-25", DECLARED if declares else {}) as client:
        await client.result("ping")
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a", "done": 1.5})
        server.notify_changed("tools")
        await client.notified("notifications/tools/list_changed")
        heard = client.of("notifications/jobs/progress")
    assert heard == ([{"job": "a", "done": 1.5}] if legacy and (declares or not needs_client) else [])


@pytest.mark.covers("EXT-7")
@cases("revision", DOES_NOT_CARRY)
async def test_a_revision_without_extensions_hears_nothing_of_them(revision: str) -> None:
    server = one_sided([])
    async with connect(server, revision, DECLARED) as client:
        await client.result("ping")
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a"})
        server.notify_changed("tools")
        await client.notified("notifications/tools/list_changed")
        assert client.of("notifications/jobs/progress") == []


@pytest.mark.covers("EXT-7")
@cases("way", WAYS)
async def test_a_client_that_declares_nothing_can_ask_for_a_filter(way: str) -> None:
    server = one_sided([])
    async with reach(server, way, MODERN) as client:
        client.start("subscriptions/listen", {"notifications": {"jobIds": ["a"]}}, id="sub")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"jobIds": ["a"]}
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a"})
        (heard,) = await client.notified("notifications/jobs/progress")
    assert heard["job"] == "a"


@pytest.mark.covers("EXT-6")
@pytest.mark.parametrize("revision", CARRY)
async def test_a_filter_of_another_revision_is_left_out(revision: str) -> None:
    server = one_sided([], revisions=[revision])
    async with connect(server, MODERN) as client:
        client.start("subscriptions/listen", {"notifications": {"jobIds": ["a"]}}, id="sub")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == ({"jobIds": ["a"]} if revision == MODERN else {})


class Jobs(types.CacheableResult, kw_only=True):
    jobs: list[str]


class Plain(types.Wire):
    job_name: str


@pytest.mark.covers("EXT-8")
@cases("way", WAYS)
@cases("revision", CARRY)
async def test_a_typed_result_has_the_members_of_its_revision(way: str, revision: str) -> None:
    server = Server("s")
    extension = server.extension(NAME, needs_client=False)

    @extension.method("jobs/list")
    async def jobs(params: Any, ctx: Context) -> Jobs:
        return Jobs(jobs=["a"], ttl_ms=5, cache_scope="public")

    @extension.method("jobs/plain")
    async def plain(params: Any, ctx: Context) -> Plain:
        return Plain("a")

    @extension.method("jobs/dict")
    async def members(params: Any, ctx: Context) -> dict[str, Any]:
        return {"ttlMs": 5, "cacheScope": "public", "resultType": "complete", "_meta": {"a/b": 1}}

    async with reach(server, way, revision) as client:
        listed, typed, free = [await client.result(f"jobs/{name}") for name in ("list", "plain", "dict")]
    if revision == MODERN:
        signed = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}}
        common = {"resultType": "complete", "_meta": signed}
        assert listed == {"jobs": ["a"], "ttlMs": 5, "cacheScope": "public", **common}
        assert typed == {"jobName": "a", **common}
    else:
        signed = {}
        assert listed == {"jobs": ["a"]}
        assert typed == {"jobName": "a"}
    assert free == {"ttlMs": 5, "cacheScope": "public", "resultType": "complete", "_meta": {**signed, "a/b": 1}}


async def test_a_typed_result_of_a_type_nobody_registered_is_not_sent() -> None:
    server = Server("s")

    @server.extension(NAME, needs_client=False).method("jobs/start")
    async def start(params: Any, ctx: Context) -> types.Result:
        return types.Result(result_type="surprise")

    async with connect(server, MODERN) as client:
        assert (await client.error("jobs/start"))["code"] == -32603


@pytest.mark.parametrize("revision", CARRY)
async def test_typed_params_keep_the_members_that_their_type_lacks(revision: str) -> None:
    server = Server("s")

    @server.extension(NAME, needs_client=False).method("jobs/get", params=JobParams)
    async def get(params: JobParams, ctx: Context) -> dict[str, Any]:
        assert params is ctx.params
        return {"job": params.job, **params.extra}

    async with connect(server, revision) as client:
        result = await client.result("jobs/get", {"job": "a", "more": {"x": [1]}})
    assert (result["job"], result["more"]) == ("a", {"x": [1]})


@cases("revision", REVISIONS)
async def test_an_extension_declares_the_families_that_it_needs(revision: str) -> None:
    server = Server("s")
    server.extension(NAME, needs_client=False, families=["resources"])
    async with connect(server, revision) as client:
        assert (await told_by(client))["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
        assert (await client.result("resources/list"))["resources"] == []


# --- Listen filters ---


def publishing() -> Server:
    server = extended()
    known = {"a", "b"}

    def accept(asked: Any) -> Any:
        return [each for each in asked if each in known] if isinstance(asked, list) else None

    server.catalog.extensions[NAME].listen_filter("jobIds", accept)
    return server


LISTEN = {"notifications": {"toolsListChanged": True, "jobIds": ["a", "z"], "unknown": True}}


async def test_a_filter_of_an_extension_is_acknowledged_as_far_as_it_is_honoured() -> None:
    server = publishing()
    async with connect(server, MODERN, DECLARED) as client:
        client.start("subscriptions/listen", LISTEN, id="sub")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"toolsListChanged": True, "jobIds": ["a"]}
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a", "done": 1})
        server.publish("jobIds", "b", "notifications/jobs/progress", {"job": "b", "done": 1})
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a", "done": 2})
        published = await client.notified("notifications/jobs/progress", 2)
        await client.result("server/discover")
    meta = {"io.modelcontextprotocol/subscriptionId": "sub"}
    assert published == [{"job": "a", "done": n, "_meta": meta} for n in (1, 2)]


@pytest.mark.covers("EXT-2")
async def test_a_filter_of_an_extension_the_client_lacks_is_left_out() -> None:
    server = publishing()
    async with connect(server, MODERN) as client:
        client.start("subscriptions/listen", LISTEN, id="sub")
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"toolsListChanged": True}
        server.publish("jobIds", "a", "notifications/jobs/progress", {"job": "a"})
        await client.result("server/discover")
        assert client.of("notifications/jobs/progress") == []


async def test_a_filter_that_fails_is_a_masked_error() -> None:
    server = extended()
    server.catalog.extensions[NAME].listen_filter("jobIds", lambda asked: asked["nope"])
    async with connect(server, MODERN, DECLARED) as client:
        error = await client.error("subscriptions/listen", {"notifications": {"jobIds": []}})
    assert error["code"] == -32603


# --- Result types ---


async def test_a_result_type_of_an_extension() -> None:
    server = Server("s")
    extension = server.extension(NAME)
    extension.result_type("job")

    @extension.method("jobs/start")
    async def start(params: Any, ctx: Context) -> dict[str, Any]:
        return {"resultType": "job", "job": "a"}

    async with connect(server, MODERN, DECLARED) as client:
        result = await client.result("jobs/start")
    assert (result["resultType"], result["job"]) == ("job", "a")


async def test_a_result_type_nobody_registered_is_not_sent() -> None:
    server = Server("s")
    extension = server.extension(NAME)

    @extension.method("jobs/start")
    async def start(params: Any, ctx: Context) -> dict[str, Any]:
        return {"resultType": "surprise"}

    async with connect(server, MODERN, DECLARED) as client:
        assert (await client.error("jobs/start"))["code"] == -32603


async def test_a_result_is_an_object() -> None:
    server = Server("s")

    @server.extension(NAME).method("jobs/start")
    async def start(params: Any, ctx: Context) -> Any:
        return ["a"]

    async with connect(server, MODERN, DECLARED) as client:
        assert (await client.error("jobs/start"))["code"] == -32603


@cases(
    ("make", "text"),
    [
        (lambda: Server("s").extension("jobs"), "'jobs' is not an extension name: use your domain in reverse"),
        (lambda: Server("s").extension("a/b"), "is not an extension name"),
        (
            lambda: Server("s").extension("io.modelcontextprotocol/tasks"),
            "offers io.modelcontextprotocol/tasks by itself",
        ),
        (lambda: Server("s").extension(NAME, revisions=["2025-06-18"]), "carry extensions: 2025-11-25, 2026-07-28"),
        (lambda: Server("s").extension(NAME, revisions=()), "revisions= of an extension"),
        (lambda: Server("s").extension(NAME, families=["skills"]), "families= of an extension"),
        (lambda: extended().extension(NAME), "'s' has the extension org.example/jobs already"),
        (lambda: Server("s").extension(NAME).method("tools/call"), "'tools/call' is a method of the protocol"),
        (lambda: Server("s").extension(NAME).method("x/y", params=dict), "a subclass of types.RequestParams"),  # type: ignore[arg-type]
        (lambda: Server("s").extension(NAME).result_type("complete"), "is a result type of the protocol"),
    ],
)
def test_mistakes_are_named(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()


@pytest.mark.covers("META-6")
async def test_every_request_is_judged_by_its_own_declaration() -> None:
    async with connect(extended(), MODERN, DECLARED) as client:
        await client.result("jobs/get", {"job": "a"})
        client.capabilities = {}
        assert (await client.error("jobs/get", {"job": "a"}))["code"] == -32021
        client.capabilities = DECLARED
        answers = await asyncio.gather(*(client.result("jobs/get", {"job": str(n)}) for n in range(3)))
    assert [each["job"] for each in answers] == ["0", "1", "2"]
