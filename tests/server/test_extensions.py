"""Extensions: methods, notifications, listen filters and result types of one's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.wireclient import LEGACY, MODERN, connect

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


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_notification_of_an_extension(revision: str) -> None:
    seen: list[Any] = []
    async with connect(extended(seen), revision, DECLARED) as client:
        client.notify("notifications/jobs/done", {"job": "a"})
        client.notify("notifications/jobs/done", {"job": 1})
        await client.result("ping")
    assert seen == ["a"]
    async with connect(extended(seen), revision) as client:
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


# --- Listen filters ---


def publishing() -> Server:
    server = extended()
    known = {"a", "b"}

    def accept(asked: Any) -> Any:
        return [each for each in asked if each in known] if isinstance(asked, list) else None

    server.kernel.extensions[NAME].listen_filter("jobIds", accept)
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
    server.kernel.extensions[NAME].listen_filter("jobIds", lambda asked: asked["nope"])
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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Server("s").extension("jobs"), "'jobs' is not an extension name: use your domain in reverse"),
        (lambda: Server("s").extension("a/b"), "is not an extension name"),
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
