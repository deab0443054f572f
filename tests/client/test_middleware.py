"""Middleware of a client: around what it sends, and around what it is asked and told, on both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeServer, text
from tests.client.scripted_http import Script, on, result, stream
from tests.client.test_extensions import ERAS, LEGACY, MODERN, NOTES, Found, notes
from tests.client.test_notifications import CHANGED, SERVER, publishing, settled, several

from toolwire import Client, Context, Server, testing
from toolwire.audit import AuditLog
from toolwire.client import (
    Budget,
    Change,
    ClientContext,
    Denied,
    Elicitation,
    InvalidResponse,
    Pins,
    Rejected,
)
from toolwire.client import middleware as middleware_module
from toolwire.client.connection import ClientConnection
from toolwire.client.sync import Client as BlockingClient
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Timeout

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

TRANSPORTS = pytest.mark.parametrize("over", ["memory", "stdio", "http"])


class Seen:
    """A middleware that notes what passes and goes on."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.contexts: list[ClientContext] = []
        self.results: list[Any] = []

    async def __call__(self, ctx: ClientContext, call_next: Any) -> Any:
        self.messages.append(("in" if ctx.incoming else "out", ctx.method))
        self.contexts.append(ctx)
        answer = await call_next(ctx)
        self.results.append(answer)
        return answer

    def methods(self, direction: str = "out") -> list[str]:
        return [method for each, method in self.messages if each == direction]


def make_server() -> Server:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int = 0) -> dict[str, int]:
        return {"sum": a + b}

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", int)
        return f"{answer.data}" if answer.accepted else "none"

    @server.tool
    async def sample(ctx: Context) -> str:
        return str(getattr((await ctx.sample("hi")).content, "text", ""))

    @server.tool
    async def roots(ctx: Context) -> int:
        return len(await ctx.list_roots())

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, total=2, message="half")
        await ctx.info("working")
        return "done"

    @server.resource("note://a")
    async def note() -> str:
        return "text"

    return server


# --- what the client sends ---


@pytest.mark.covers("EXC-8")
@TRANSPORTS
@ERAS
async def test_every_request_passes_once_and_its_result_comes_back(revision: str, over: Any) -> None:
    seen = Seen()
    async with testing.connect(make_server(), revision=revision, over=over, middleware=[seen]) as (client, _):
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"sum": 3}
        assert await client.call_tool("add", {"a": 1}, returns=dict[str, int]) == {"sum": 1}
        assert [tool.name for tool in await client.list_tools()][:1] == ["add"]
        assert (await client.read_resource("note://a"))[0].text == "text"
        await client.ping()
    pinged = "server/discover" if revision == MODERN else "ping"
    first = ["tools/call", "tools/list"]  # Listed for the check of the first structured result.
    assert seen.methods() == [*first, "tools/call", "tools/list", "resources/read", pinged]
    call, answer = seen.contexts[0], seen.results[0]
    assert (call.method, call.incoming, call.is_notification, call.revision) == ("tools/call", False, False, revision)
    assert call.params == {"name": "add", "arguments": {"a": 1, "b": 2}}
    assert answer["structuredContent"] == {"sum": 3}


@pytest.mark.covers("EXC-8")
@TRANSPORTS
@ERAS
async def test_params_meta_and_results_can_be_changed(revision: str, over: Any) -> None:
    async def change(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        ctx.params["arguments"]["b"] = 40
        ctx.params["com.example/odd"] = [1]
        ctx.meta["com.example/who"] = "me"
        answer = await call_next(ctx)
        answer["structuredContent"]["sum"] += 1000
        answer["_meta"] = {"com.example/seen": True}
        return answer

    async with testing.connect(make_server(), revision=revision, over=over, middleware=[change]) as (client, wire):
        called = await client.call_tool("add", {"a": 2})
        assert called.structured == {"sum": 1042}
        assert called.meta == {"com.example/seen": True}
        assert await client.call_tool("add", {"a": 2}, returns=dict[str, int]) == {"sum": 1042}
    sent = next(message for message in wire.sent if message["method"] == "tools/call")["params"]
    assert (sent["arguments"], sent["com.example/odd"]) == ({"a": 2, "b": 40}, [1])
    assert sent["_meta"]["com.example/who"] == "me"


@pytest.mark.covers("EXC-8")
@ERAS
async def test_a_middleware_can_answer_by_itself(revision: str) -> None:
    async def answer(ctx: ClientContext, call_next: Any) -> Any:
        match ctx.method:
            case "tools/call":
                return text("mine")
            case "notes/search":
                return {"found": ["mine"]}
        return await call_next(ctx)

    server = notes(revision)
    async with Client(server, middleware=[answer]) as client:
        assert (await client.call_tool("x")).text == "mine"
        assert await client.request("notes/search", {"words": "a"}, returns=Found) == Found(["mine"])
    assert server.params("tools/call") == server.params("notes/search") == []


@pytest.mark.covers("EXC-8")
@ERAS
async def test_a_middleware_can_refuse_and_sees_the_errors_of_the_server(revision: str) -> None:
    seen: list[Exception] = []

    async def refuse(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "notes/secret":
            raise PermissionError("not this one")
        try:
            return await call_next(ctx)
        except ProtocolError as error:
            seen.append(error)
            raise

    server = notes(revision)
    async with Client(server, middleware=[refuse]) as client:
        with pytest.raises(PermissionError, match="not this one"):
            await client.request("notes/secret")
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("notes/none")
    assert len(seen) == 1
    assert server.params("notes/secret") == []


@ERAS
async def test_the_first_middleware_is_the_outermost(revision: str) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def each(ctx: ClientContext, call_next: Any) -> Any:
            order.append(f"{name} {ctx.method}")
            try:
                return await call_next(ctx)
            finally:
                order.append(f"{name} done")

        return each

    async with Client(notes(revision), middleware=[named("a"), named("b")]) as client:
        await client.request("notes/search", {"words": "a"})
    assert order == ["a notes/search", "b notes/search", "b done", "a done"]


@ERAS
@pytest.mark.parametrize("returned", [None, 3, "text", [1]])
async def test_a_middleware_that_returns_no_result_is_named(revision: str, returned: Any) -> None:
    async def forgetful(ctx: ClientContext, call_next: Any) -> Any:
        await call_next(ctx)
        return returned

    async with Client(notes(revision), middleware=[forgetful]) as client:
        with pytest.raises(
            TypeError, match=r"the middleware .*forgetful returned .* for notes/search: it returns what"
        ):
            await client.request("notes/search", {"words": "a"})


@ERAS
async def test_params_and_results_that_do_not_fit_are_mistakes_of_the_middleware(revision: str) -> None:
    async def spoil(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            ctx.params["cursor"] = 3
            return await call_next(ctx)
        return {"content": 3}

    async with Client(notes(revision), middleware=[spoil]) as client:
        with pytest.raises(TypeError, match="a middleware left tools/list in a form that the protocol does not have"):
            await client.list_tools()
        with pytest.raises(TypeError, match="a middleware returned what is no result of tools/call"):
            await client.call_tool("x")


def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"a middleware is an async function \(ctx, call_next\), not str"):
        Client(notes(), middleware=["text"])  # type: ignore[list-item]


def test_a_client_without_middleware_has_plain_connections() -> None:
    assert Client(notes())._opener.make_connection is ClientConnection


@pytest.mark.covers("EXC-8")
@ERAS
async def test_cancelling_reaches_the_middleware_and_the_server(revision: str) -> None:
    stopped: list[str] = []

    async def watch(ctx: ClientContext, call_next: Any) -> Any:
        try:
            return await call_next(ctx)
        except asyncio.CancelledError:
            stopped.append(ctx.method)
            raise

    server = notes(revision, notes_wait=lambda params: asyncio.Event().wait())
    async with Client(server, middleware=[watch]) as client:
        waiting = asyncio.ensure_future(client.request("notes/wait"))
        await server.until("notes/wait")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.until("notifications/cancelled")
    assert stopped == ["notes/wait"]


async def test_a_middleware_can_change_the_deadline() -> None:
    async def hurry(ctx: ClientContext, call_next: Any) -> Any:
        assert ctx.timeout == 60.0
        ctx.timeout = 0.01
        return await call_next(ctx)

    async with Client(notes(notes_wait=lambda params: asyncio.Event().wait()), middleware=[hurry]) as client:
        with pytest.raises(Timeout):
            await client.request("notes/wait")


@ERAS
async def test_a_middleware_can_send_a_request_again(revision: str) -> None:
    tries: list[int] = []

    def second(params: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ProtocolError(-32050, "later")
        return {"found": []}

    async def again(ctx: ClientContext, call_next: Any) -> Any:
        try:
            return await call_next(ctx)
        except ProtocolError:
            return await call_next(ctx)

    async with Client(notes(revision, notes_get=second), middleware=[again]) as client:
        assert (await client.request("notes/get"))["found"] == []
    assert len(tries) == 2


async def test_a_request_that_is_sent_again_passes_again() -> None:
    tries: list[int] = []

    def broken_once(request: Any) -> Any:
        tries.append(1)
        return stream() if len(tries) == 1 else result(request, prompts=[], ttlMs=0, cacheScope="private")

    seen: list[str] = []

    async def watch(ctx: ClientContext, call_next: Any) -> Any:
        try:
            answer = await call_next(ctx)
        except OutcomeUnknown:
            seen.append("lost")
            raise
        seen.append("answered")
        return answer

    script = Script(on(prompts_list=broken_once))
    async with script.client(middleware=[watch]) as client:
        assert await client.list_prompts() == []
    assert seen == ["lost", "answered"]


async def test_an_answer_of_the_cache_is_not_sent() -> None:
    seen = Seen()
    listed = {"tools": [], "ttlMs": 60_000, "cacheScope": "private"}
    async with Client(notes(tools_list=lambda params: listed), middleware=[seen]) as client:
        await client.list_tools()
        await client.list_tools()
    assert seen.methods() == ["tools/list"]


async def test_an_invalid_answer_of_the_server_stays_one() -> None:
    async with Client(notes(tools_list=lambda params: {"tools": 3}), middleware=[Seen()]) as client:
        with pytest.raises(InvalidResponse, match="The server's answer to tools/list is broken"):
            await client.list_tools()


@ERAS
async def test_subscriptions_levels_and_notifications_pass(revision: str) -> None:
    seen = Seen()
    server = FakeServer(
        {"resources/subscribe": lambda r, o: t.EmptyResult(), "logging/setLevel": lambda r, o: t.EmptyResult()}
    )
    async with Client(server, revision=revision, middleware=[seen], roots=["/tmp"]) as client:
        await client.set_level("error")
        await client.set_roots(["/"])
        await client.notify("notifications/notes/read", {"id": 1})
        if revision == LEGACY:
            await client.subscribe("note://a")
    passed = ["logging/setLevel", "notifications/roots/list_changed", "notifications/notes/read", "resources/subscribe"]
    assert seen.methods() == (passed if revision == LEGACY else passed[2:3])


@ERAS
async def test_a_notification_can_be_changed_or_kept(revision: str) -> None:
    async def change(ctx: ClientContext, call_next: Any) -> None:
        if ctx.is_notification and ctx.params["id"] == 1:
            ctx.params["id"] = 10
            ctx.meta["a.b/c"] = 1
            await call_next(ctx)
        elif not ctx.is_notification:
            return await call_next(ctx)  # type: ignore[no-any-return]
        return None

    server = notes(revision)
    async with Client(server, middleware=[change]) as client:
        await client.notify("notifications/notes/read", {"id": 1})
        await client.notify("notifications/notes/read", {"id": 2})
        await settled(client)
    (params,) = server.params("notifications/notes/read")
    assert (params["id"], params["_meta"]["a.b/c"]) == (10, 1)


# --- calls that were approved ---


@pytest.mark.covers("EXC-9")
@ERAS
@pytest.mark.parametrize("guard", ["approve", "budget", "pins", "audit"])
@pytest.mark.parametrize("change", [{"name": "other"}, {"arguments": {"a": 2}}])
async def test_a_call_that_was_approved_is_sent_as_it_was_approved(
    revision: str, guard: str, change: dict[str, Any]
) -> None:
    guards: dict[str, Any] = {
        "approve": lambda call: True,
        "budget": Budget(calls=9),
        "pins": Pins(),
        "audit": AuditLog(lambda line: None, key="a key of sixteen bytes"),
    }

    async def swap(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx.params.update(change)
        return await call_next(ctx)

    async def mark(ctx: ClientContext, call_next: Any) -> Any:
        ctx.meta["a.b/c"] = 1
        return await call_next(ctx)

    tool = t.Tool("x", {"type": "object"})
    server = FakeServer(
        {"tools/list": lambda r, o: t.ListToolsResult(tools=[tool]), "tools/call": lambda r, o: text("done")}
    )
    options = {guard: guards[guard], "revision": revision}
    async with Client(server, middleware=[swap], **options) as client:
        for sending in (client.call_tool("x", {"a": 1}), client.request("tools/call", {"name": "x"})):
            with pytest.raises(Denied, match="A middleware changed the call of 'x' after it was approved"):
                await sending
    assert "tools/call" not in server.methods()
    async with Client(server, middleware=[mark], **options) as client:
        assert (await client.call_tool("x", {"a": 1})).text == "done"


async def test_headers_repeat_the_arguments_that_are_sent() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    listed = [{"name": "x", "inputSchema": schema}]

    async def move(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx.params["arguments"]["region"] = "north"
            ctx.headers["X-Mine"] = "1"
        return await call_next(ctx)

    script = Script(
        on(
            tools_list=lambda request: result(request, tools=listed, ttlMs=0, cacheScope="private"),
            tools_call=lambda request: result(request, content=[]),
        )
    )
    async with script.client(middleware=[move]) as client:
        await client.list_tools()
        await client.call_tool("x", {"region": "south"})
    sent = script.requests[-1]
    assert (sent.headers["mcp-param-region"], sent.headers["x-mine"]) == ("north", "1")
    assert sent.message["params"]["arguments"] == {"region": "north"}


# --- what the client is asked ---


@pytest.mark.covers("EXC-10")
@TRANSPORTS
@ERAS
async def test_questions_of_the_server_pass(revision: str, over: Any) -> None:
    seen = Seen()
    options = {"elicit": lambda message, params: {"value": 3}, "sample": lambda params: "mine", "roots": ["/tmp"]}
    async with testing.connect(make_server(), revision=revision, over=over, middleware=[seen], **options) as (
        client,
        _,
    ):
        assert (await client.call_tool("ask")).text == "3"
        assert (await client.call_tool("sample")).text == "mine"
        assert (await client.call_tool("roots", returns=int)) == 1
    assert seen.methods("in") == ["elicitation/create", "sampling/createMessage", "roots/list"]
    asked = next(ctx for ctx in seen.contexts if ctx.incoming)
    assert (asked.params["message"], asked.is_notification, asked.revision) == ("How many?", False, revision)
    assert {"action": "accept", "content": {"value": 3}} in seen.results


@pytest.mark.covers("EXC-10")
@ERAS
async def test_questions_and_answers_can_be_changed(revision: str) -> None:
    asked: list[str] = []

    async def change(ctx: ClientContext, call_next: Any) -> Any:
        if not ctx.incoming or ctx.is_notification:
            return await call_next(ctx)
        ctx.params["message"] = "Really?"
        answer = await call_next(ctx)
        answer["content"]["value"] += 1
        return answer

    def elicit(message: str, params: Any) -> Any:
        asked.append(message)
        return {"value": 3}

    async with testing.connect(make_server(), revision=revision, elicit=elicit, middleware=[change]) as (client, _):
        assert (await client.call_tool("ask")).text == "4"
    assert asked == ["Really?"]


@pytest.mark.covers("EXC-10")
@ERAS
async def test_a_middleware_can_answer_questions_by_itself_or_reject_them(revision: str) -> None:
    async def answer(ctx: ClientContext, call_next: Any) -> Any:
        match ctx.method:
            case "elicitation/create":
                raise Rejected("no")
            case "sampling/createMessage":
                return t.CreateMessageResult(role="assistant", content=t.TextContent("made up"), model="none")
        return await call_next(ctx)

    options = {"elicit": lambda message, params: 1 / 0, "sample": lambda params: 1 / 0}
    async with testing.connect(make_server(), revision=revision, middleware=[answer], **options) as (client, _):
        assert (await client.call_tool("ask")).text == "none"
        assert (await client.call_tool("sample")).text == "made up"


@ERAS
async def test_a_question_that_a_middleware_fails_with(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(ctx: ClientContext, call_next: Any) -> Any:
        return 1 / 0 if ctx.incoming else await call_next(ctx)

    async with testing.connect(make_server(), revision=revision, sample=lambda params: "x", middleware=[fail]) as (
        client,
        _,
    ):
        if revision == LEGACY:
            assert (await client.call_tool("sample")).is_error
            assert "the answer to sampling/createMessage failed" in caplog.text
        else:
            with pytest.raises(ZeroDivisionError):
                await client.call_tool("sample")


async def test_urls_that_an_error_names_pass_too() -> None:
    def refuse(params: Any) -> Any:
        server.answers["tools/call"] = lambda params: {"content": []}
        raise ProtocolError(
            -32042, "open it", {"elicitations": [{"message": "m", "url": "https://a", "elicitationId": "1"}]}
        )

    seen = Seen()
    server = notes(LEGACY, tools_call=refuse)
    elicit = Elicitation(url=lambda message, params: True)
    async with Client(server, elicit=elicit, middleware=[seen]) as client:
        await client.call_tool("x")
    assert ("in", "elicitation/create") in seen.messages


# --- what the client is told ---


@pytest.mark.covers("EXC-10")
@TRANSPORTS
@ERAS
async def test_logs_and_progress_pass_in_order(revision: str, over: Any) -> None:
    seen, told = Seen(), list[Any]()
    async with testing.connect(
        make_server(), revision=revision, over=over, middleware=[seen], on_log=told.append, on_progress=told.append
    ) as (client, _):
        assert (await client.call_tool("work")).text == "done"
        while len(told) < 2:
            await asyncio.sleep(0)
    assert seen.methods("in") == ["notifications/progress", "notifications/message"]
    assert (told[0].message, told[1].data) == ("half", "working")


@pytest.mark.covers("EXC-10")
@ERAS
async def test_each_notification_of_a_stream_passes(revision: str) -> None:
    async def change(ctx: ClientContext, call_next: Any) -> Any:
        seen.append((ctx.method, ctx.incoming, ctx.is_notification))
        if ctx.method == CHANGED:
            if ctx.params["key"] == "kept":
                return None
            ctx.params["key"] += "!"
        return await call_next(ctx)

    seen: list[Any] = []
    heard: list[Any] = []
    server, publish = publishing()
    server.add(make_server().tools[0])
    async with testing.connect(server, revision=revision, middleware=[change]) as (client, _):
        client.on_notification(CHANGED, heard.append)
        async with client.listen(tools=True, extensions={"notesChanged": ["a", "kept"]}) as changes:
            iterator = aiter(changes)
            publish("kept")
            publish("a")
            told = await anext(iterator)
            server.notify_changed("tools")
            assert await anext(iterator) == Change("tools")
    assert told.params is not None
    assert told.params["key"] == "a!"
    assert [params["key"] for params in heard] == ["a!"]
    incoming = [method for method, is_incoming, _ in seen if is_incoming]
    assert incoming == [CHANGED, CHANGED, "notifications/tools/list_changed"]
    if revision == MODERN:
        assert ("subscriptions/listen", False, False) in seen


async def test_a_middleware_around_a_stream_sees_its_end_and_may_forbid_it() -> None:
    ended = asyncio.Event()

    async def watch(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "subscriptions/listen":
            if ctx.params["notifications"].get("promptsListChanged"):
                raise PermissionError("no prompts")
            try:
                return await call_next(ctx)
            finally:
                ended.set()
        return await call_next(ctx)

    server = FakeServer()

    async def listen(request: Any, outlet: Any) -> Any:
        meta = {t.SUBSCRIPTION_ID_KEY: request.id}
        accepted = t.SubscriptionsAcknowledgedNotificationParams(notifications=request.params.notifications, meta=meta)
        outlet.notify("notifications/subscriptions/acknowledged", accepted)
        await asyncio.Event().wait()

    server.handlers["subscriptions/listen"] = listen
    async with Client(server, middleware=[watch]) as client:
        with pytest.raises(PermissionError, match="no prompts"):
            async with client.listen(prompts=True):
                pass
        async with client.listen(tools=True):
            assert not ended.is_set()
        await ended.wait()


async def test_a_middleware_that_fails_with_a_notification_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.is_notification and ctx.params.get("n") == 1:
            raise ZeroDivisionError
        return await call_next(ctx)

    heard: list[Any] = []
    server = notes()
    async with Client(server, middleware=[fail]) as client:
        client.on_notification(CHANGED, heard.append)
        server.notify(CHANGED, {"n": 1})
        server.notify(CHANGED, {"n": 2})
        await settled(client)
    assert heard == [{"n": 2}]
    assert "a middleware failed with notifications/notes/changed" in caplog.text


async def test_notifications_that_wait_for_a_middleware_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(middleware_module, "MAX_WAITING", 10)
    may_go_on = asyncio.Event()
    done = asyncio.Event()

    async def slow(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.incoming:
            await may_go_on.wait()
        return await call_next(ctx)

    heard: list[int] = []

    def hear(params: dict[str, Any]) -> None:
        heard.append(params["n"])
        if params["n"] == 29:
            done.set()

    server = notes(LEGACY)
    async with Client(server, middleware=[slow]) as client:
        client.on_notification(CHANGED, hear)
        async with client.listen(extensions={"x": True}) as changes:
            server.notify(CHANGED, {"n": 0})
            await settled(client)
            for number in range(1, 30):
                server.notify(CHANGED, {"n": number})
            await settled(client)
            may_go_on.set()
            await done.wait()
            assert await anext(aiter(changes)) == Change("extension")
    assert heard == [0, *range(20, 30)]
    assert "the middleware is too slow" in caplog.text


# --- elsewhere ---


async def test_of_several_servers_each_message_passes_once_with_the_name_of_its_server() -> None:
    seen = Seen()
    config = several(a=SERVER.format(name="a", extension="notes"), b=SERVER.format(name="b", extension="other"))
    async with Client(config, extensions={NOTES: {}}, middleware=[seen]) as client:
        await client.call_tool("a_work")
        await client.request("notes/search", {"words": "x"}, extension=NOTES)
        await client.list_tools()
    passed = [(ctx.method, ctx.server) for ctx in seen.contexts]
    # The lists are read when the client connects, and are up to date afterwards.
    assert sorted(passed[:-2]) == [(method, name) for method in ("subscriptions/listen", "tools/list") for name in "ab"]
    assert passed[-2:] == [("tools/call", "a"), ("notes/search", "a")]
    call = seen.contexts[-2]
    assert call.params == {"name": "work"}
    assert call.meta == {}


@pytest.mark.covers("EXC-9")
@pytest.mark.parametrize("guard", ["approve", "pins"])
async def test_of_several_servers_an_approved_call_is_sent_as_it_was_approved(guard: str) -> None:
    async def swap(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx.params["arguments"] = {"a": 2}
        return await call_next(ctx)

    config = several(a=SERVER.format(name="a", extension="notes"), b=SERVER.format(name="b", extension="other"))
    options: dict[str, Any] = {"approve": lambda call: True} if guard == "approve" else {"pins": Pins()}
    async with Client(config, middleware=[swap], **options) as client:
        with pytest.raises(Denied):
            await client.call_tool("a_work")


def test_a_blocking_client_has_middleware() -> None:
    seen = Seen()
    with BlockingClient(make_server(), middleware=[seen]) as client:
        assert client.call_tool("add", {"a": 1}, returns=dict[str, int]) == {"sum": 1}
    assert seen.methods()[0] == "tools/call"


async def test_the_handshake_and_checks_of_a_connection_do_not_pass() -> None:
    seen = Seen()
    async with Client(notes(LEGACY), middleware=[seen]) as client:
        await client._connector.current().check()
    assert seen.messages == []
