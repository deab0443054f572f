"""Log messages to the client: by connection in the legacy era, by request on 2026-07-28."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import pytest
from tests.wireclient import LEGACY, MODERN, PREFIX, REVISIONS, connect, modern_meta

from toolwire import Context, Server, testing
from toolwire.server.context import SyncContext
from toolwire.wire.channel import UNREAD_CONGESTED

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MESSAGE = "notifications/message"
every_legacy_revision = pytest.mark.parametrize("revision", LEGACY)
every_revision = pytest.mark.parametrize("revision", REVISIONS)


@pytest.fixture
def server() -> Server:
    server = Server("logs", debug=True)

    @server.tool
    async def every_level(ctx: Context) -> list[bool]:
        return [await ctx.log(level, {"at": level}) for level in LEVELS]  # type: ignore[arg-type]

    @server.tool
    async def shortcuts(ctx: Context) -> list[bool]:
        return [await ctx.debug(1), await ctx.info("two", logger="mine"), await ctx.warning(None), await ctx.error([4])]

    @server.tool
    def shortcuts_plainly(ctx: SyncContext) -> list[bool]:
        return [ctx.debug(1), ctx.info("two", logger="mine"), ctx.warning(None), ctx.error([4])]

    @server.tool
    async def unknown_level(ctx: Context) -> bool:
        return await ctx.log("loud", "x")  # type: ignore[arg-type]

    @server.tool
    async def fails(ctx: Context) -> None:
        raise RuntimeError("the password is hunter2")

    return server


def levels(messages: list[dict[str, Any]]) -> list[str]:
    return [each["level"] for each in messages]


# --- Legacy ----------------------------------------------------------------------------------------------------------


@every_legacy_revision
@pytest.mark.covers("1.8.1", "1.8.2", "S18")
async def test_by_default_a_legacy_connection_gets_info_and_above(revision: str, server: Server) -> None:
    async with connect(server) as client:
        result = await client.initialize(revision)
        assert result["capabilities"]["logging"] == {}
        await client.call("every_level")
        assert client.of(MESSAGE) == [{"level": level, "data": {"at": level}} for level in LEVELS[1:]]


@every_legacy_revision
@pytest.mark.covers("1.8.3", "1.8.2", "J61")
async def test_each_of_the_eight_levels_is_a_threshold(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        for number, level in enumerate(LEVELS):
            assert await client.result("logging/setLevel", {"level": level}) == {}
            client.notifications.clear()
            await client.call("every_level")
            assert levels(client.of(MESSAGE)) == list(LEVELS[number:])


@every_legacy_revision
@pytest.mark.covers("1.8.5", "LOG-2")
async def test_an_unknown_level_is_refused(revision: str, server: Server) -> None:
    async with connect(server, revision) as client:
        for params in ({"level": "loud"}, {"level": 3}, {"level": "INFO"}, {}):
            assert (await client.error("logging/setLevel", params))["code"] == -32602
        await client.call("every_level")
        assert levels(client.of(MESSAGE)) == list(LEVELS[1:])


@every_legacy_revision
@pytest.mark.covers("1.8.6")
async def test_the_level_belongs_to_its_connection(revision: str, server: Server) -> None:
    before = logging.getLogger().level, logging.getLogger("toolwire").level
    async with connect(server, revision) as quiet, connect(server, revision) as other:
        await quiet.result("logging/setLevel", {"level": "alert"})
        for client in (quiet, other):
            await client.call("every_level")
        assert levels(quiet.of(MESSAGE)) == ["alert", "emergency"]
        assert levels(other.of(MESSAGE)) == list(LEVELS[1:])
        assert (logging.getLogger().level, logging.getLogger("toolwire").level) == before
    async with connect(server, revision) as again:
        await again.call("every_level")
        assert levels(again.of(MESSAGE)) == list(LEVELS[1:])


@every_revision
@pytest.mark.covers("1.8.4", "S18", "E41")
async def test_a_message_has_any_json_and_a_logger_if_named(revision: str, server: Server) -> None:
    meta = {"_meta": {f"{PREFIX}logLevel": "debug"}} if revision == MODERN else {}
    async with connect(server, revision) as client:
        if revision != MODERN:
            await client.result("logging/setLevel", {"level": "debug"})
        for name in ("shortcuts", "shortcuts_plainly"):
            client.notifications.clear()
            result = await client.call(name, **meta)
            assert result["content"][0]["text"].replace(" ", "") == "[true,true,true,true]"
            assert client.of(MESSAGE) == [
                {"level": "debug", "data": 1},
                {"level": "info", "data": "two", "logger": "mine"},
                {"level": "warning", "data": None},
                {"level": "error", "data": [4]},
            ]


async def test_what_is_not_sent_says_so(server: Server) -> None:
    async with connect(server, "2025-11-25") as client:
        result = await client.call("shortcuts")
        assert result["content"][0]["text"].replace(" ", "") == "[false,true,true,true]"
        assert "unknown logging level 'loud'" in (await client.call("unknown_level"))["content"][0]["text"]


@every_legacy_revision
@pytest.mark.covers("E41")
async def test_the_server_logs_to_every_connection_that_wants_the_level(revision: str, server: Server) -> None:
    async with connect(server, revision) as one, connect(server, revision) as two, connect(server, MODERN) as modern:
        await modern.result("tools/list")
        await two.result("logging/setLevel", {"level": "error"})
        server.log("info", "for one")
        server.log("error", {"for": "both"}, logger="main")
        thread = threading.Thread(target=server.log, args=("alert", "from a thread"))
        thread.start()
        thread.join()
        await one.notified(MESSAGE, 3)
        await two.notified(MESSAGE, 2)
        assert one.of(MESSAGE)[1] == {"level": "error", "data": {"for": "both"}, "logger": "main"}
        assert levels(two.of(MESSAGE)) == ["error", "alert"]
        # There a message belongs to a request.
        await modern.result("tools/list")
        assert modern.notifications == []


@every_revision
async def test_where_logging_is_not_offered_there_are_no_messages(revision: str, warned: set[str]) -> None:
    server = Server("quiet", capabilities={"logging": None})

    @server.tool
    async def speak(ctx: Context) -> str:
        return str(await ctx.error("from the tool"))

    async with connect(server, revision) as client:
        meta = {} if revision in LEGACY else {"_meta": modern_meta(log_level="debug")}
        server.log("error", "from the server")
        called = await client.result("tools/call", {"name": "speak", **meta})
        assert called["content"][0]["text"] == "False"
        assert client.of(MESSAGE) == []


async def test_the_servers_own_messages_are_checked_and_never_pile_up(server: Server) -> None:
    async with connect(server, "2025-11-25") as client:
        with pytest.raises(ValueError, match="unknown logging level"):
            server.log("loud", "x")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            server.log("info", object())
        client.channel.pause()
        for number in range(UNREAD_CONGESTED * 4):
            server.log("info", number)
        client.channel.resume()
        await client.request("ping")
        # A reader that is behind misses messages; they are no changes of state.
        assert len(client.of(MESSAGE)) == UNREAD_CONGESTED + 1
        server.log("info", "again")
        await client.notified(MESSAGE, UNREAD_CONGESTED + 2)


@every_revision
@pytest.mark.covers("LOG-3", "1.8.5")
async def test_the_library_sends_nothing_of_its_own(revision: str) -> None:
    server = Server("logs")

    @server.tool
    async def fails() -> None:
        raise RuntimeError("the password is hunter2")

    meta = {"_meta": {f"{PREFIX}logLevel": "debug"}} if revision == MODERN else {}
    async with connect(server, revision) as client:
        if revision != MODERN:
            await client.result("logging/setLevel", {"level": "debug"})
        assert (await client.call("fails", **meta))["isError"]
        assert "hunter2" not in str(client.received)
        assert client.notifications == []


# --- 2026-07-28 ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("LOG-1", "LOG-2")
async def test_only_a_request_that_asks_for_messages_gets_them(server: Server) -> None:
    async with connect(server, MODERN) as client:
        result = await client.result("server/discover")
        assert result["capabilities"]["logging"] == {}
        await client.call("every_level")
        assert client.notifications == []
        for number, level in enumerate(LEVELS):
            client.notifications.clear()
            await client.call("every_level", _meta=modern_meta(log_level=level))
            assert levels(client.of(MESSAGE)) == list(LEVELS[number:])
        client.notifications.clear()
        await client.call("every_level")
        assert client.notifications == []


async def test_messages_come_before_the_answer_of_their_request(server: Server) -> None:
    async with connect(server, MODERN) as client:
        await client.call("every_level", _meta=modern_meta(log_level="alert"))
        kinds = [each.get("method", "answer") for each in client.received]
        assert kinds == [MESSAGE, MESSAGE, "answer"]


async def test_after_the_answer_nothing_more_is_sent(server: Server) -> None:
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> None:
        kept.append(ctx)

    async with connect(server, MODERN) as client:
        await client.call("keep", _meta=modern_meta(log_level="debug"))
        assert await kept[0].info("late") is False
        await client.result("tools/list")
        assert client.notifications == []


@pytest.mark.covers("LOG-2")
async def test_an_unknown_level_of_a_request_is_refused(server: Server) -> None:
    async with connect(server, MODERN) as client:
        for level in ("loud", 3, "INFO"):
            params = {"name": "every_level", "_meta": modern_meta(log_level=level)}
            assert (await client.error("tools/call", params))["code"] == -32602


@pytest.mark.covers("CAP-4")
async def test_on_2026_07_28_the_developer_is_warned_once(server: Server, warned: set[str]) -> None:
    warned.clear()
    async with connect(server, MODERN) as client:
        # Nobody asked for messages, so there is nothing to warn of.
        await client.call("shortcuts")
        with pytest.warns(
            DeprecationWarning, match="Logging .* deprecated since protocol revision 2026-07-28"
        ) as caught:
            await client.call("shortcuts", _meta=modern_meta(log_level="debug"))
        assert [warning.filename for warning in caught] == [__file__]
        await client.call("shortcuts", _meta=modern_meta(log_level="debug"))


@every_legacy_revision
async def test_before_there_is_nothing_to_warn_of(revision: str, server: Server, warned: set[str]) -> None:
    warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with connect(server, revision) as client:
            await client.call("shortcuts")
    assert caught == []


# --- Progress, beside it ---------------------------------------------------------------------------------------------


@every_revision
@pytest.mark.covers("S17", "E40")
async def test_progress_may_count_to_one_or_to_a_total(revision: str, server: Server) -> None:
    @server.tool
    async def works(ctx: Context) -> list[bool]:
        return [await ctx.progress(0.5), await ctx.progress(1.0), await ctx.progress(50, 100), await ctx.progress(50)]

    async with connect(server, revision) as client:
        result = await client.call("works", _meta={"progressToken": "p"})
        assert result["content"][0]["text"].replace(" ", "") == "[true,true,true,false]"
        told = client.of("notifications/progress")
        assert [(each["progress"], each.get("total")) for each in told] == [(0.5, None), (1.0, None), (50, 100)]
        assert {each["progressToken"] for each in told} == {"p"}
        result = await client.call("works")
        assert result["content"][0]["text"].replace(" ", "") == "[false,false,false,false]"


# --- With our own client ---------------------------------------------------------------------------------------------


@every_revision
async def test_with_toolwires_own_client(revision: str, server: Server) -> None:
    seen: list[Any] = []
    async with testing.connect(server, revision=revision, on_log=seen.append) as (client, _):
        await client.call_tool("shortcuts_plainly")
        assert len(seen) >= 3
