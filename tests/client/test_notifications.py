"""Notifications of extensions: handlers, and members of the filter of `listen()`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.client.json_server import JsonServer
from tests.client.test_extensions import ERAS, LEGACY, MODERN, NOTES, Found, FoundModel, notes

from toolwire import Client, Server, testing, types
from toolwire.client import Change, InvalidResponse, callbacks
from toolwire.client import listen as listen_module
from toolwire.client.callbacks import MAX_WAITING
from toolwire.client.middleware import CallNext, ClientContext
from toolwire.client.sync import Client as BlockingClient
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ProtocolError

CHANGED = "notifications/notes/changed"


class ChangedParams(types.NotificationParams, kw_only=True):
    found: list[str]


async def settled(client: Client) -> None:
    """Wait until everything that the server sent before has been delivered."""
    await client.request("notes/search", {"words": "a"})


# --- handlers ---


@pytest.mark.covers("EXC-5")
@ERAS
async def test_a_handler_is_called_with_the_params_of_its_notification(revision: str) -> None:
    heard: list[Any] = []
    server = notes(revision)
    client = Client(server)
    client.on_notification(CHANGED, heard.append)
    client.on_notification(CHANGED, heard.append, params=Found)
    client.on_notification(CHANGED, heard.append, params=FoundModel)
    client.on_notification(CHANGED, heard.append, params=ChangedParams)
    async with client:
        server.notify(CHANGED, {"found": ["milk"], "odd": 1, "_meta": {"a.b/c": 1}})
        server.notify("notifications/notes/unheard", {"found": []})
        server.notify(CHANGED)
        await settled(client)
    plain, found, wire, nothing = heard
    assert plain == {"found": ["milk"], "odd": 1, "_meta": {"a.b/c": 1}}
    assert found == Found(["milk"])
    assert (wire.found, wire.extra, wire.meta) == (["milk"], {"odd": 1}, {"a.b/c": 1})
    assert nothing == {}, "the model is strict, and the others need members"


@pytest.mark.covers("EXC-5")
async def test_params_that_do_not_fit_are_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server, heard = notes(), []
    async with Client(server) as client:
        client.on_notification(CHANGED, heard.append, params=Found)
        for params in ({"found": 3}, [1], "text", {"_meta": 3, "found": []}):
            server.notify(CHANGED, params)  # type: ignore[arg-type]
        server.notify(CHANGED, {"found": ["fine"]})
        await settled(client)
    assert heard == [Found(["fine"])]
    assert "the params of notifications/notes/changed cannot be read" in caplog.text


@pytest.mark.covers("EXC-5")
@ERAS
async def test_an_async_handler_sees_everything_in_order_and_is_bounded(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []
    may_go_on, all_done = asyncio.Event(), asyncio.Event()
    total = MAX_WAITING + 50
    server = notes(revision)
    async with Client(server) as client:

        @client.on_notification(CHANGED)
        async def changed(params: dict[str, Any]) -> None:
            await may_go_on.wait()
            heard.append(params["n"])
            if params["n"] == total - 1:
                all_done.set()

        server.notify(CHANGED, {"n": 0})
        await settled(client)
        for number in range(1, total):
            server.notify(CHANGED, {"n": number})
        await settled(client)
        may_go_on.set()
        await all_done.wait()
    assert heard == [0, *range(total - MAX_WAITING, total)]
    assert "a callback is too slow" in caplog.text


@pytest.mark.parametrize("slow_part", ["handler", "on_log", "middleware"])
async def test_large_notifications_do_not_wait_in_any_number(
    slow_part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING_BYTES", 10_000)
    may_go_on, last_came, heard = asyncio.Event(), asyncio.Event(), list[int]()
    method = "notifications/message" if slow_part == "on_log" else CHANGED

    def hear(number: int) -> None:
        heard.append(number)
        if number == 19:
            last_came.set()

    async def slow(params: Any) -> None:
        await may_go_on.wait()
        hear(params.data["n"] if slow_part == "on_log" else params["data"]["n"])

    async def middleware(ctx: ClientContext, call_next: CallNext) -> Any:
        if ctx.incoming:
            await may_go_on.wait()
        return await call_next(ctx)

    server = notes(LEGACY)
    functions = [middleware] if slow_part == "middleware" else []
    async with Client(server, on_log=slow, middleware=functions) as client:
        client.on_notification(CHANGED, slow if slow_part == "handler" else lambda params: hear(params["data"]["n"]))
        for number in range(20):
            server.notify(method, {"level": "info", "data": {"n": number, "text": "x" * 2_000}})
        await settled(client)
        may_go_on.set()
        await last_came.wait()
    assert len(heard) <= 5
    assert "too slow" in caplog.text


async def test_a_handler_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    server, heard = notes(), []
    async with Client(server) as client:
        client.on_notification(CHANGED, lambda params: 1 / 0)
        client.on_notification(CHANGED, heard.append)
        server.notify(CHANGED, {})
        await settled(client)
    assert heard == [{}]
    assert "ZeroDivisionError" in caplog.text


@cases(
    ("method", "said"),
    [
        ("notifications/message", "notifications/message belongs to the protocol: use on_log="),
        ("notifications/progress", "use on_progress="),
        ("notifications/tools/list_changed", "use client.listen()"),
        ("notifications/initialized", "notifications/initialized is no notification of a server"),
        ("tools/call", "tools/call is no notification of a server"),
    ],
)
def test_a_notification_of_the_protocol_has_its_own_way(method: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        Client(notes()).on_notification(method, print)
    assert said in str(caught.value)


def test_what_cannot_be_called_is_no_handler() -> None:
    with pytest.raises(TypeError, match="a handler of notifications/notes/changed is a function"):
        Client(notes()).on_notification(CHANGED, "text")  # type: ignore[type-var]


# --- listening ---


def publishing(legacy: bool = True) -> tuple[Server, Callable[[str], None]]:
    server = Server("s")
    extension = server.extension(NOTES, {}, needs_client=False)
    extension.listen_filter("notesChanged", lambda value: value if isinstance(value, list) else None, legacy=legacy)

    @extension.method("notes/search")
    async def search(params: Any, ctx: Any) -> dict[str, Any]:
        return {"found": []}

    return server, lambda key: server.publish("notesChanged", key, CHANGED, {"key": key, "odd": [1.5]})


@pytest.mark.covers("EXC-6")
@cases(
    ("revision", "over"),
    [(LEGACY, "memory"), (LEGACY, "stdio"), (MODERN, "memory"), (MODERN, "stdio"), (MODERN, "http")],
)
async def test_members_of_the_filter_bring_the_notifications_of_an_extension(revision: str, over: Any) -> None:
    server, publish = publishing()
    heard: list[Any] = []
    async with testing.connect(server, revision=revision, over=over, extensions={NOTES: {}}) as (client, wire):
        client.on_notification(CHANGED, heard.append)
        async with client.listen(extensions={"notesChanged": ["a", "b"]}) as changes:
            assert changes.accepted is not None
            assert changes.accepted.extra == {"notesChanged": ["a", "b"]}
            publish("a")
            publish("a")
            iterator = aiter(changes)
            found = [await anext(iterator), await anext(iterator)]
    for change in found:
        assert (change.kind, change.uri, change.method) == ("extension", None, CHANGED)
        assert change.params is not None
        assert {name: change.params[name] for name in ("key", "odd")} == {"key": "a", "odd": [1.5]}
    assert [params["key"] for params in heard] == ["a", "a"]
    if revision == MODERN:
        asked = next(message for message in wire.sent if message["method"] == "subscriptions/listen")
        assert asked["params"]["notifications"] == {"notesChanged": ["a", "b"]}


@pytest.mark.covers("EXC-6")
async def test_a_member_that_the_server_does_not_honour_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server, _ = publishing()
    async with Client(server) as client, client.listen(extensions={"notesChanged": 3, "other": 1}) as changes:
        assert changes.accepted is not None
        assert changes.accepted.extra == {}
    assert "the server will not announce changes of: notesChanged, other" in caplog.text


@pytest.mark.parametrize("extensions", [{"toolsListChanged": True}, {"resourceSubscriptions": []}])
def test_members_of_the_protocol_have_arguments_of_their_own(extensions: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="belongs to the protocol, not to an extension"):
        Client(notes()).listen(extensions=extensions)


async def listening(params: dict[str, Any], server: JsonServer, amount: int, **members: Any) -> None:
    meta = {t.SUBSCRIPTION_ID_KEY: next(m["id"] for m in server.received if m["method"] == "subscriptions/listen")}
    accepted = {"notifications": params["notifications"], "_meta": meta}
    server.notify("notifications/subscriptions/acknowledged", accepted)
    for number in range(amount):
        server.notify(CHANGED, {"n": number, **members, "_meta": meta})
    await asyncio.Event().wait()


@pytest.mark.covers("EXC-6")
@pytest.mark.parametrize(
    ("amount", "size", "said"), [(30, 0, "more than 20 changes"), (5, 300, "more than 1000 bytes")]
)
async def test_notifications_that_nobody_takes_are_bounded(
    amount: int, size: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_module, "MAX_WAITING", 20)
    monkeypatch.setattr(listen_module, "MAX_BYTES", 1000 if size else 1_000_000)
    server = notes()
    server.answers["subscriptions/listen"] = lambda params: listening(params, server, amount, text="x" * size)
    async with Client(server) as client:
        with pytest.raises(InvalidResponse, match=f"{said} that nobody took"):
            async with client.listen(extensions={"notesChanged": True}) as changes:
                await settled(client)
                async for _ in changes:
                    pass


async def test_what_was_missed_is_one_change_without_a_method() -> None:
    stream = listen_module._ChangeStream(frozenset(), (), hears_extensions=True)
    assert stream.everything() == [Change("extension")]


async def test_the_tasks_extension_has_a_member_too() -> None:
    server = notes()
    server.answers["subscriptions/listen"] = lambda params: listening(params, server, 0)
    async with Client(server) as client, client.listen(extensions={"taskIds": ["t-1"]}) as changes:
        assert changes.accepted is not None
        assert changes.accepted.task_ids == ["t-1"]
    assert server.params("subscriptions/listen")[0]["notifications"] == {"taskIds": ["t-1"]}


@ERAS
async def test_a_notification_of_nobody_is_ignored(revision: str) -> None:
    server = notes(revision)
    async with Client(server) as client:
        for params in (None, {"a": 1}, [1], "text"):
            server.notify("notifications/unheard", params)  # type: ignore[arg-type]
        await settled(client)


# --- several servers ---


def several(**files: str) -> dict[str, Any]:
    servers = {name: {"command": sys.executable, "args": ["-c", source]} for name, source in files.items()}
    return {"mcpServers": servers}


SERVER = """
from toolwire import Server
server = Server("{name}")
@server.tool
async def work() -> str:
    return "done"
extension = server.extension("com.example/{extension}", {{"name": "{name}"}}, needs_client=False)
extension.listen_filter("notesChanged", lambda value: value)
@extension.method("notes/search")
async def search(params, ctx):
    server.publish("notesChanged", "a", "notifications/notes/changed", {{"from": "{name}"}})
    await ctx.progress(1, message="half")
    return {{"found": [params.extra["words"], "{name}"], "resultType": "complete"}}
@extension.notification("notifications/notes/read")
def read(params):
    server.publish("notesChanged", "a", "notifications/notes/changed", {{"read": "{name}"}})
server.run()
"""


@pytest.mark.covers("EXC-7")
async def test_a_client_of_several_servers_sends_a_method_to_the_server_that_has_its_extension() -> None:
    config = several(
        a=SERVER.format(name="a", extension="notes"),
        b=SERVER.format(name="b", extension="other"),
        c=SERVER.format(name="c", extension="other"),
    )
    heard: list[Any] = []
    progress: list[Any] = []
    client = Client(config, extensions={NOTES: {}})
    client.on_notification(CHANGED, heard.append)
    async with client:
        assert client.capabilities["extensions"] == {NOTES: {"name": "a"}, "com.example/other": {"name": "b"}}
        words = {"words": "milk"}
        found = await client.request("notes/search", words, returns=Found, extension=NOTES, on_progress=progress.append)
        assert found == Found(["milk", "a"])
        assert [each.message for each in progress] == ["half"]
        assert await client.request("notes/search", words, returns=Found, server="c") == Found(["milk", "c"])
        for options, said in (
            ({}, "notes/search could go to any of the servers a, b, c: say extension= or server="),
            ({"extension": "com.example/other"}, "b, c have the extension com.example/other: say with server= which"),
            ({"extension": "com.example/none"}, "did not declare the extension com.example/none"),
        ):
            with pytest.raises(NotSupported) as caught:
                await client.request("notes/search", words, **options)  # type: ignore[call-overload]
            assert said in str(caught.value)
        with pytest.raises(ValueError, match="There is no server 'd': the servers are a, b, c"):
            await client.request("notes/search", words, server="d")
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("notes/none", extension=NOTES)
        async with client.listen(extensions={"notesChanged": ["a"]}) as changes:
            assert changes.accepted is not None
            assert changes.accepted.extra == {"notesChanged": ["a"]}
            await client.request("notes/search", words, extension=NOTES)
            iterator = aiter(changes)
            assert_told(await anext(iterator), {"from": "a"})
            await client.notify("notifications/notes/read", {}, server="b")
            assert_told(await anext(iterator), {"read": "b"})
    assert [each.get("from", each.get("read")) for each in heard] == ["a", "b"]


def assert_told(change: Change, expected: dict[str, Any]) -> None:
    assert (change.kind, change.method) == ("extension", CHANGED)
    assert change.params is not None
    assert {name: value for name, value in change.params.items() if name != "_meta"} == expected


async def test_the_name_of_a_server_is_for_several() -> None:
    async with Client(notes()) as client:
        with pytest.raises(ValueError, match="server= is for a client of several servers"):
            await client.request("notes/search", server="a")
        with pytest.raises(ValueError, match="server= is for methods of extensions, and tools/call is one"):
            await client.request("tools/call", {"name": "a"}, server="a")


# --- the blocking client ---


def test_a_blocking_client_hears_notifications() -> None:
    server, publish = publishing()
    heard: list[Any] = []
    with BlockingClient(server, extensions={NOTES: {}}) as client:
        client.on_notification(CHANGED, heard.append)

        with client.listen(extensions={"notesChanged": ["a"]}) as changes:
            publish("a")
            change = next(changes)
        assert change.method == CHANGED
    assert heard[0]["key"] == "a"


def test_handlers_stay_when_a_blocking_client_connects_anew() -> None:
    server, _ = publishing()
    client = BlockingClient(server)
    client.on_notification(CHANGED, print)
    with client:
        pass
    with client:
        assert CHANGED in client._client._handlers
