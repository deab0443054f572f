"""Who is told what: list changes and resource updates in both eras."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.runtimes import clients_of, streams_of
from tests.server.answering import ASKING, EVERYTHING
from tests.wireclient import LEGACY, MODERN, PREFIX, REVISIONS, Message, WireClient, connect

from toolwire import Context, Limits, Prompt, Resource, ResourceTemplate, Server, Tool, testing
from toolwire.protocol.errors import ServerError
from toolwire.server.subscriptions import MAX_HELD
from toolwire.util.out_queue import FULL
from toolwire.wire.channel import UNREAD_CONGESTED

every_legacy_revision = pytest.mark.parametrize("revision", LEGACY)
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
UPDATED = "notifications/resources/updated"
ID = f"{PREFIX}subscriptionId"
EVERY_LIST = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def changed(family: str) -> str:
    return f"notifications/{family}/list_changed"


def hello() -> str:
    return "hello"


def named_by_itself() -> str:
    return "plain"


@pytest.fixture
def server() -> Server:
    """A server with one of each."""
    return Server(
        "told",
        tools=[Tool(hello)],
        resources=[Resource("note://today", hello), Resource("dir://a", hello)],
        templates=[ResourceTemplate("note://{day}/text", lambda day: day, name="days")],
        prompts=[Prompt.text("Hello", name="hello")],
    )


async def listen(client: WireClient, *, id: str | int = "L1", **wanted: Any) -> asyncio.Future[Message]:
    """Open a listen stream and wait until it is acknowledged."""
    before = len(client.of(ACKNOWLEDGED))
    response = client.start("subscriptions/listen", {"notifications": wanted}, id=id)
    await client.notified(ACKNOWLEDGED, before + 1)
    return response


async def quiet(client: WireClient) -> None:
    """Everything that was to be sent has been: an answer comes after it."""
    await client.result("tools/list")


# --- Legacy ----------------------------------------------------------------------------------------------------------


@every_legacy_revision
@pytest.mark.covers("1.10.7", "S20", "S21", "E39", "R7")
async def test_a_legacy_connection_is_told_of_every_change_of_a_list(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        added = Tool(hello, name="another")
        for change, family in (
            (lambda: server.add(added), "tools"),
            (lambda: server.remove(added), "tools"),
            (lambda: server.remove("hello"), "tools"),
            (lambda: server.add(Resource("note://new", hello)), "resources"),
            (lambda: server.remove("note://new"), "resources"),
            (lambda: server.add(ResourceTemplate("a://{b}", lambda b: b, name="b")), "resources"),
            (lambda: server.add(Prompt.text("x", name="x")), "prompts"),
            (lambda: server.remove("x"), "prompts"),
            (lambda: server.notify_changed("tools"), "tools"),
        ):
            before = len(client.of(changed(family)))
            everything = len(client.notifications)
            change()
            await client.notified(changed(family), before + 1)
            await quiet(client)
            assert len(client.notifications) == everything + 1
            assert "params" not in client.notifications[-1]


@every_legacy_revision
async def test_what_is_added_is_listed_and_what_is_removed_is_gone(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        assert server.add(Tool(hello, name="one")).add(Tool(hello, name="two")) is server
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names == ["hello", "one", "two"]
        server.remove("one").remove("two")
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names == ["hello"]
        with pytest.raises(ServerError, match="no component"):
            server.remove("one")


@pytest.mark.covers("S20", "S21")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_several_come_and_go_with_one_notice_for_each_list(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        if revision == MODERN:
            await listen(client, **EVERY_LIST)
        several = [Tool(hello, name="one"), Resource("note://new", hello), Tool(hello, name="two"), named_by_itself]
        for change in (lambda: server.add(several), lambda: server.remove(["one", "note://new", several[2]])):
            before, told_before = len(client.notifications), len(client.of(changed("resources")))
            change()
            await client.notified(changed("resources"), told_before + 1)
            await quiet(client)
            told = [notice["method"] for notice in client.notifications[before:]]
            assert sorted(told) == [changed("resources"), changed("tools")]
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names == ["hello", "named_by_itself"]


@pytest.mark.covers("S20")
def test_of_several_all_are_added_and_removed_or_none(server: Server) -> None:
    with pytest.raises(ServerError, match="int is not a tool"):
        server.add([Tool(hello, name="one"), 3])  # type: ignore[list-item]
    with pytest.raises(ServerError, match="no component 'nothing'"):
        server.remove(["hello", "nothing"])
    assert [tool.name for tool in server.tools] == ["hello"]
    assert server.add([]).remove([]) is server


@every_legacy_revision
async def test_a_list_that_became_empty_is_still_a_list(revision: str) -> None:
    server = Server("told", tools=[hello], prompts=[Prompt.text("x", name="x")])
    async with connect(server, revision) as client:
        server.remove("hello").remove("x")
        await client.notified(changed("tools"))
        # What was promised when the connection was opened holds.
        assert (await client.result("tools/list"))["tools"] == []
        assert (await client.result("prompts/list"))["prompts"] == []


@pytest.mark.covers("E38")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_update_carries_what_the_host_adds(revision: str, server: Server) -> None:
    further = {"reason": "edited", "_meta": {"version": 7}}
    async with connect(server, revision) as client:
        if revision == MODERN:
            await listen(client, resourceSubscriptions=["note://today"])
        else:
            await client.result("resources/subscribe", {"uri": "note://today"})
        server.notify_updated("note://today", further)
        server.notify_updated("note://today")
        await client.notified(UPDATED, 2)
        own = {ID: "L1"} if revision == MODERN else {}
        first, second = client.of(UPDATED)
        assert first == {"uri": "note://today", "reason": "edited", "_meta": {"version": 7, **own}}
        assert second == {"uri": "note://today", **({"_meta": own} if own else {})}
    for wrong, error in (({"uri": "note://b"}, ServerError), ({"why": object()}, TypeError)):
        with pytest.raises(error):
            server.notify_updated("note://today", wrong)


async def test_a_connection_is_told_only_what_it_was_promised() -> None:
    server = Server("told", tools=[hello])
    silent = Server("silent", tools=[hello], capabilities={"tools": {"listChanged": False}})
    async with connect(server, "2025-11-25") as client:
        server.add(Resource("note://today", hello))
        await client.request("ping")
        assert client.notifications == []
    async with connect(server, "2025-11-25") as client:
        server.add(Resource("note://new", hello))
        await client.notified(changed("resources"))
    async with connect(silent, "2025-11-25") as client, connect(silent, MODERN) as modern:
        await listen(modern, toolsListChanged=True)
        assert modern.of(ACKNOWLEDGED)[0]["notifications"] == {}
        silent.add(Tool(hello, name="new"))
        await client.request("ping")
        await quiet(modern)
        assert client.notifications == []
        assert len(modern.notifications) == 1


@pytest.mark.covers("1.10.7")
async def test_nothing_is_told_before_the_client_is_ready(server: Server) -> None:
    async with connect(server) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        server.add(Tool(hello, name="zero"))
        await client.result("initialize", params)
        server.add(Tool(hello, name="one"))
        await client.request("ping")
        assert client.notifications == []
        client.notify("notifications/initialized")
        await client.request("ping")
        server.add(Tool(hello, name="two"))
        await client.notified(changed("tools"))
        assert len(client.notifications) == 1


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.covers("E39")
async def test_changes_may_come_from_another_thread(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        if revision == MODERN:
            await listen(client, toolsListChanged=True, resourceSubscriptions=["note://today"])
        else:
            await client.result("resources/subscribe", {"uri": "note://today"})

        def change() -> None:
            for number in range(5):
                server.add(Tool(hello, name=f"tool{number}"))
                server.notify_updated("note://today")

        thread = threading.Thread(target=change)
        thread.start()
        await client.notified(changed("tools"), 5)
        await client.notified(UPDATED, 5)
        thread.join()


@every_legacy_revision
@pytest.mark.covers("1.10.5", "1.10.6", "E38")
async def test_a_legacy_client_subscribes_and_unsubscribes(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        server.notify_updated("note://today")
        assert await client.result("resources/subscribe", {"uri": "note://today"}) == {}
        assert await client.result("resources/subscribe", {"uri": "note://today"}) == {}
        server.notify_updated("note://today")
        server.notify_updated("note://other")
        await quiet(client)
        assert client.of(UPDATED) == [{"uri": "note://today"}]
        assert await client.result("resources/unsubscribe", {"uri": "note://today"}) == {}
        assert await client.result("resources/unsubscribe", {"uri": "note://never"}) == {}
        server.notify_updated("note://today")
        await quiet(client)
        assert len(client.notifications) == 1


@every_legacy_revision
@pytest.mark.covers("1.10.11", "E38")
async def test_subscriptions_belong_to_their_connection(revision: str, server: Server) -> None:
    async with connect(server, revision) as one, connect(server, revision) as two:
        await one.result("resources/subscribe", {"uri": "note://today"})
        server.notify_updated("note://today")
        await quiet(one)
        await quiet(two)
        assert len(one.of(UPDATED)) == 1
        assert two.of(UPDATED) == []
    async with connect(server, revision) as again:
        server.notify_updated("note://today")
        await quiet(again)
        assert again.notifications == []


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.covers("1.10.6")
async def test_a_subscription_covers_what_is_inside(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        if revision == MODERN:
            await listen(client, resourceSubscriptions=["dir://a", "dir://b/"])
        else:
            await client.result("resources/subscribe", {"uri": "dir://a"})
            await client.result("resources/subscribe", {"uri": "dir://b/"})
        for uri in ("dir://a/x", "dir://ab", "dir://b/c/d", "dir://b", "dir://a"):
            server.notify_updated(uri)
        await quiet(client)
        assert [each["uri"] for each in client.of(UPDATED)] == ["dir://a/x", "dir://b/c/d", "dir://a"]


async def test_a_legacy_connection_has_a_limit_of_subscriptions(server: Server) -> None:
    server = Server("told", resources=[Resource("note://today", hello)], limits=Limits(uris=2))
    async with connect(server, "2025-11-25") as client:
        for uri in ("a://1", "a://2", "a://2"):
            await client.result("resources/subscribe", {"uri": uri})
        error = await client.error("resources/subscribe", {"uri": "a://3"})
        assert error == {"code": -32602, "message": "At most 2 resources can be subscribed to at once"}
        await client.result("resources/unsubscribe", {"uri": "a://1"})
        await client.result("resources/subscribe", {"uri": "a://3"})


async def test_legacy_subscriptions_do_not_exist_on_2026_07_28_nor_listen_before(server: Server) -> None:
    async with connect(server, MODERN) as client:
        assert (await client.error("resources/subscribe", {"uri": "note://today"}))["code"] == -32601
        assert (await client.error("logging/setLevel", {"level": "info"}))["code"] == -32601
    for revision in LEGACY:
        async with connect(server, revision) as client:
            assert (await client.error("subscriptions/listen", {"notifications": {}}))["code"] == -32601


async def test_a_mounted_servers_changes_are_told(server: Server) -> None:
    inner = Server("inner", resources=[Resource("inner://x", hello)])
    server.mount(inner, "in")
    async with connect(server, "2025-11-25") as client, connect(server, MODERN) as modern:
        await client.result("resources/subscribe", {"uri": "inner://x"})
        await listen(modern, toolsListChanged=True, resourceSubscriptions=["inner://x"])
        inner.add(Tool(hello))
        inner.notify_updated("inner://x")
        for each in (client, modern):
            await quiet(each)
            assert len(each.of(changed("tools"))) == 1
            assert [params["uri"] for params in each.of(UPDATED)] == ["inner://x"]


# --- In process ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("J43")
async def test_callbacks_in_this_process(server: Server) -> None:
    seen: list[str] = []
    assert server.subscribe("note://today", seen.append) is server
    server.notify_updated("note://today")
    server.notify_updated("note://other")
    assert seen == ["note://today"]
    assert server.unsubscribe("note://today", seen.append) is server
    assert server.unsubscribe("note://never", seen.append) is server
    server.notify_updated("note://today")
    assert seen == ["note://today"]


async def test_a_callback_that_fails_does_not_keep_the_others_from_being_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def fail(uri: str) -> None:
        raise RuntimeError("no")

    server.subscribe("note://today", fail).subscribe("note://today", seen.append)
    server.notify_updated("note://today")
    assert seen == ["note://today"]
    assert "a callback for note://today failed" in caplog.text


async def test_only_families_change(server: Server) -> None:
    with pytest.raises(ServerError, match="'templates' is not tools, resources or prompts"):
        server.notify_changed("templates")


# --- Listening -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("SUB-2", "SUB-3", "SUB-6")
async def test_the_first_message_of_a_stream_says_what_is_honoured(server: Server) -> None:
    bare = Server("bare", tools=[hello])
    wanted = {**EVERY_LIST, "resourceSubscriptions": ["note://today"], "somethingNew": True}
    async with connect(server, MODERN) as client:
        await listen(client, **wanted)
        assert client.received == [
            {
                "jsonrpc": "2.0",
                "method": ACKNOWLEDGED,
                "params": {
                    "_meta": {ID: "L1"},
                    "notifications": {**EVERY_LIST, "resourceSubscriptions": ["note://today"]},
                },
            }
        ]
    async with connect(bare, MODERN) as client:
        await listen(client, **wanted)
        assert client.of(ACKNOWLEDGED)[0]["notifications"] == {"toolsListChanged": True}
        await listen(client, id=2)
        assert client.of(ACKNOWLEDGED)[1]["notifications"] == {}


@pytest.mark.covers("SUB-5", "SUB-8")
async def test_a_stream_gets_what_it_asked_for_and_nothing_else(server: Server) -> None:
    def everything() -> None:
        server.add(Tool(hello, name="new"))
        server.add(Prompt.text("x", name="new"))
        server.add(Resource("note://new", hello))
        server.notify_updated("note://today")
        server.notify_updated("note://other")

    async with connect(server, MODERN) as client:
        everything()
        await quiet(client)
        # Nobody asked.
        assert client.notifications == []
    for wanted, expected in (
        ({"toolsListChanged": True}, [changed("tools")]),
        ({"promptsListChanged": True, "toolsListChanged": False}, [changed("prompts")]),
        ({"resourcesListChanged": True}, [changed("resources")]),
        ({"resourceSubscriptions": ["note://today"]}, [UPDATED]),
        ({"resourceSubscriptions": []}, []),
        ({}, []),
        (EVERY_LIST, [changed("tools"), changed("prompts"), changed("resources")]),
    ):
        async with connect(server, MODERN) as client:
            await listen(client, **wanted)
            everything()
            await quiet(client)
            told = client.notifications[1:]
            assert [each["method"] for each in told] == expected, wanted
            assert all(each["params"]["_meta"] == {ID: "L1"} for each in told)


@pytest.mark.covers("SUB-1", "SUB-6", "META-9")
async def test_several_streams_on_one_connection_keep_the_type_of_their_ids(server: Server) -> None:
    async with connect(server, MODERN) as client:
        await listen(client, id="7", toolsListChanged=True)
        await listen(client, id=7, toolsListChanged=True, promptsListChanged=True)
        server.add(Tool(hello, name="new"))
        server.add(Prompt.text("x", name="new"))
        await quiet(client)
        assert [each["_meta"][ID] for each in client.of(ACKNOWLEDGED)] == ["7", 7]
        told = [each["_meta"][ID] for each in client.of(changed("tools"))]
        assert sorted(type(each).__name__ for each in told) == ["int", "str"]
        assert [each["_meta"][ID] for each in client.of(changed("prompts"))] == [7]
        # One of them ends; the other goes on.
        client.notify(CANCELLED, {"requestId": "7"})
        await quiet(client)
        server.add(Tool(hello, name="newer"))
        await quiet(client)
        assert [each["_meta"][ID] for each in client.of(changed("tools"))[2:]] == [7]


async def test_a_stream_the_client_cancels_gets_no_answer(server: Server) -> None:
    async with connect(server, MODERN) as client:
        response = await listen(client, toolsListChanged=True)
        assert len(streams_of(server)) == 1
        client.notify(CANCELLED, {"requestId": "L1"})
        await quiet(client)
        assert streams_of(server) == set()
        assert not response.done()
        assert client.of(CANCELLED) == []


@pytest.mark.covers("SUB-6", "CAN-5", "META-9")
async def test_a_server_that_stops_ends_its_streams_gracefully(server: Server) -> None:
    async with connect(server, MODERN) as client:
        await listen(client, id=1, toolsListChanged=True)
        await listen(client, id="two", toolsListChanged=True)
        (session,) = clients_of(server)
        await session.close(5.0)
        await client.ended.wait()
        for identifier in (1, "two"):
            about = [
                each
                for each in client.received[2:]
                if each.get("id") == identifier or each.get("params", {}).get("requestId") == identifier
            ]
            result, cancelled = about
            assert result["result"]["resultType"] == "complete"
            assert result["result"]["_meta"][ID] == identifier
            assert cancelled["method"] == CANCELLED


@pytest.mark.covers("CAN-5")
async def test_a_modern_server_cancels_nothing_but_subscriptions(server: Server) -> None:
    @server.tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Well?"))

    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await client.call("slow"))["isError"]
        assert (await client.call("ask"))["resultType"] == "input_required"
        client.start("tools/call", {"name": "ask"}, id="gone")
        client.notify(CANCELLED, {"requestId": "gone"})
        await quiet(client)
        assert client.notifications == []


async def test_a_connection_that_ends_takes_its_streams_along(server: Server) -> None:
    async with connect(server, MODERN) as client:
        await listen(client, toolsListChanged=True)
    assert streams_of(server) == set()
    assert clients_of(server) == {}


async def test_there_is_a_limit_of_streams_and_of_addresses(server: Server) -> None:
    server = Server("told", resources=[Resource("note://today", hello)], limits=Limits(listeners=2, uris=2))
    async with connect(server, MODERN) as client, connect(server, MODERN) as other:
        params = {"notifications": {"resourceSubscriptions": ["a://1", "a://2", "a://3"]}}
        error = await client.error("subscriptions/listen", params)
        assert error == {"code": -32602, "message": "At most 2 resources can be subscribed to at once"}
        await listen(client, id=1001, resourceSubscriptions=["a://1", "a://2"])
        await listen(other, id=1001)
        error = await client.error("subscriptions/listen", {"notifications": {}})
        assert error["code"] == -32603
        assert "listen streams open at once" in error["message"]
        client.notify(CANCELLED, {"requestId": 1001})
        await client.result("resources/list")
        await listen(client, id=1002)


@pytest.mark.parametrize("params", [{}, {"notifications": []}, {"notifications": {"toolsListChanged": "yes"}}], ids=str)
async def test_a_malformed_listen_is_refused(server: Server, params: Message) -> None:
    async with connect(server, MODERN) as client:
        assert (await client.error("subscriptions/listen", params))["code"] == -32602
        assert client.notifications == []


@pytest.mark.covers("SUB-7")
async def test_progress_and_log_messages_never_go_to_a_listen_stream(server: Server) -> None:
    @server.use
    async def chatty(ctx: Context, call_next: Any) -> Any:
        sent = [await ctx.progress(1), await ctx.info("hello")]
        ctx.state["sent"] = sent
        return await call_next(ctx)

    meta = {"progressToken": 1, f"{PREFIX}logLevel": "debug"}
    async with connect(server, MODERN) as client:
        client.start("subscriptions/listen", {"notifications": EVERY_LIST, "_meta": meta}, id="L1")
        await client.notified(ACKNOWLEDGED)
        assert [each["method"] for each in client.notifications] == [ACKNOWLEDGED]


# --- Readers that are behind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_reader_that_is_behind_gets_each_change_once(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        if revision == MODERN:
            await listen(client, toolsListChanged=True, resourceSubscriptions=["note://today", "dir://a"])
        else:
            await client.result("resources/subscribe", {"uri": "note://today"})
            await client.result("resources/subscribe", {"uri": "dir://a"})
        client.channel.pause()
        for _ in range(UNREAD_CONGESTED + 1000):
            server.notify_updated("note://today")
        # From here on the reader is behind.
        held = len(client.channel._inbox)  # type: ignore[attr-defined]
        assert held <= UNREAD_CONGESTED + 1
        for _ in range(1000):
            server.notify_changed("tools")
            server.notify_updated("dir://a/x")
            server.notify_updated("dir://a")
        assert len(client.channel._inbox) == held  # type: ignore[attr-defined]
        client.channel.resume()
        await client.notified(changed("tools"))
        await quiet(client)
        assert len(client.of(changed("tools"))) == 1
        assert [each["uri"] for each in client.of(UPDATED)[held:]] == ["note://today", "dir://a/x", "dir://a"]
        # And nothing is held back once it has caught up.
        server.notify_changed("tools")
        await client.notified(changed("tools"), 2)


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_what_is_kept_for_a_reader_that_is_behind_has_a_bound(
    revision: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(server, revision) as client:
        if revision == MODERN:
            response = await listen(client, resourceSubscriptions=["dir://a"])
        else:
            await client.result("resources/subscribe", {"uri": "dir://a"})
        client.channel.pause()
        for number in range(UNREAD_CONGESTED + MAX_HELD * 3):
            server.notify_updated(f"dir://a/{number}")
        client.channel.resume()
        if revision == MODERN:
            # It has missed too much: the stream ends, and the client looks again and listens anew.
            assert (await response)["result"]["_meta"][ID] == "L1"
            assert len(client.of(UPDATED)) <= UNREAD_CONGESTED + 1 + MAX_HELD + 1
            assert caplog.messages == ["a listen stream is too far behind, and ends"]
        else:
            # It is told to look at everything again, instead of at those that happen to be left.
            await client.until(lambda: client.of(UPDATED)[-1]["uri"] == "dir://a")
            await client.notified(changed("tools"))
            assert len(client.of(UPDATED)) == UNREAD_CONGESTED + 2
            assert caplog.messages == ["a client is too far behind: it is told to look at everything again"]
            # And from then on as ever.
            server.notify_updated("dir://a/new")
            await client.until(lambda: client.of(UPDATED)[-1]["uri"] == "dir://a/new")


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_what_is_kept_for_a_reader_that_is_behind_is_bounded_in_bytes(
    revision: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    extension = server.extension("com.example/jobs")
    extension.listen_filter("jobIds", lambda wanted: wanted, legacy=True)
    size, count = 100_000, 100
    async with connect(server, revision, {"extensions": {"com.example/jobs": {}}}) as client:
        if revision == MODERN:
            response = await listen(client, jobIds=["j1"])
        client.channel.pause()
        for _ in range(count):
            server.publish("jobIds", "j1", "notifications/jobs/done", {"text": "x" * size})
        client.channel.resume()
        if revision == MODERN:
            assert (await response)["result"]["_meta"][ID] == "L1"
            assert caplog.messages == ["a listen stream is too far behind, and ends"]
        else:
            await client.notified(changed("tools"))
            assert caplog.messages == ["a client is too far behind: it is told to look at everything again"]
        assert len(client.of("notifications/jobs/done")) * size < FULL


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_reader_that_catches_up_again_and_again_gets_every_change(
    revision: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    extension = server.extension("com.example/jobs")
    extension.listen_filter("jobIds", lambda wanted: wanted, legacy=True)
    size, count = 100_000, 20
    async with connect(server, revision, {"extensions": {"com.example/jobs": {}}}) as client:
        if revision == MODERN:
            await listen(client, jobIds=["j1"])
        for round in range(1, 6):
            # About half of them are kept until the reader has caught up: more than the bound in all rounds together.
            client.channel.pause()
            for number in range(count):
                server.publish("jobIds", "j1", "notifications/jobs/done", {"text": "x" * size, "at": [round, number]})
            client.channel.resume()
            await client.notified("notifications/jobs/done", round * count)
    assert caplog.messages == []


async def test_a_reader_that_is_behind_is_told_how_many_log_messages_it_missed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(server, "2025-11-25") as client:
        await client.result("logging/setLevel", {"level": "info"})
        client.channel.pause()
        for number in range(UNREAD_CONGESTED + 50):
            server.log("info", number)
        client.channel.resume()
        await client.until(lambda: "not sent" in str(client.of("notifications/message")[-1]["data"]))
        *sent, last = client.of("notifications/message")
        assert [each["data"] for each in sent] == list(range(len(sent)))
        missed = UNREAD_CONGESTED + 50 - len(sent)
        assert last["data"] == f"The client was behind, so {missed} log messages were not sent"
        assert caplog.messages == ["a client reads too slowly: log messages to it are dropped"]


# --- Extensions ------------------------------------------------------------------------------------------------------


async def test_an_extension_publishes_to_the_streams_that_named_a_key(server: Server) -> None:
    extension = server.extension("com.example/jobs")
    extension.listen_filter("jobIds", lambda wanted: [each for each in wanted if each.startswith("j")] or None)
    declared = {"extensions": {"com.example/jobs": {}}}
    async with connect(server, MODERN, declared) as client, connect(server, MODERN) as other:
        await listen(client, jobIds=["j1", "x"])
        await listen(other, jobIds=["j1"])
        assert client.of(ACKNOWLEDGED)[0]["notifications"] == {"jobIds": ["j1"]}
        assert other.of(ACKNOWLEDGED)[0]["notifications"] == {}
        server.publish("jobIds", "j1", "notifications/jobs", {"job": "j1"})
        server.publish("jobIds", "j2", "notifications/jobs", {"job": "j2"})
        await quiet(client)
        await quiet(other)
        assert client.of("notifications/jobs") == [{"job": "j1", "_meta": {ID: "L1"}}]
        assert other.of("notifications/jobs") == []


# --- With our own client ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ASKING)
async def test_with_toolwires_own_client(revision: str, server: Server) -> None:
    async with testing.connect(server, revision=revision) as (client, wire):
        changes = client.listen(tools=True, resources=["note://today"])
        seen: list[Any] = []

        async def collect() -> None:
            async for change in changes:
                seen.append(change)
                if len(seen) == 2:
                    return

        collecting = asyncio.create_task(collect())
        opened = "subscriptions/listen" if revision == MODERN else "resources/subscribe"
        question = await wire.until(lambda way, message: message.get("method") == opened)
        if revision == MODERN:
            await wire.until(lambda way, message: message.get("method") == ACKNOWLEDGED)
        else:
            await wire.until(lambda way, message: way == "←" and message.get("id") == question["id"])
        server.add(Tool(hello, name="new"))
        server.notify_updated("note://today")
        await collecting
        assert len(seen) == 2


async def test_listen_streams_take_no_place_of_calls() -> None:
    began, go_on = asyncio.Semaphore(0), asyncio.Event()
    server = Server("told", limits=Limits(in_flight=2))

    @server.tool
    async def hold() -> str:
        began.release()
        await go_on.wait()
        return "held"

    async with connect(server, MODERN) as client:
        streams = [await listen(client, id=f"L{number}", toolsListChanged=True) for number in range(5)]
        await quiet(client)
        for number in range(5):
            client.notify("notifications/cancelled", {"requestId": f"L{number}"})
        await quiet(client)
        calls = [client.start("tools/call", {"name": "hold", "arguments": {}}) for _ in range(3)]
        await began.acquire()
        await began.acquire()
        for _ in range(10):
            await asyncio.sleep(0)
        assert began.locked(), "the places that they had beside the others are gone with them"
        go_on.set()
        await asyncio.gather(*calls)
        assert not any(stream.done() for stream in streams)
