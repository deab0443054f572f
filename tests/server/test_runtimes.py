"""Several event loops that run one server: one after another, and at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

import pytest
from tests.http.httpclient import SessionClient
from tests.http.modernclient import ModernClient, text_of
from tests.runtimes import runtime_of
from tests.wireclient import MODERN, connect

from toolwire import Client, Context, Resource, Server, Tool, testing
from toolwire.errors import ToolwireError
from toolwire.protocol.errors import ServerError
from toolwire.stores import MemoryBus, Stores

T = TypeVar("T")
LEGACY = "2025-11-25"
NOTE = "note://today"
UPDATED = "notifications/resources/updated"
TOOLS_CHANGED = "notifications/tools/list_changed"


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self._thread = threading.Thread(target=self.loop.run_forever)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self.stack.aclose())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


@pytest.fixture
def loops() -> Iterator[tuple[Loop, Loop]]:
    with Loop() as one, Loop() as other:
        yield one, other


class Listener:
    """A client that is told of changes, on any transport: `told` has the methods of its notifications, in order."""

    def __init__(self) -> None:
        self.find: Callable[[], list[str]] = list
        self.wait: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]

    async def told(self, *methods: str) -> list[str]:
        """Return the methods so far, when all of these are among them."""
        await self.wait(lambda: all(each in self.find() for each in methods))
        return self.find()

    async def in_memory(self, server: Server, stack: AsyncExitStack, revision: str) -> Self:
        client = await stack.enter_async_context(connect(server, revision))
        if revision == MODERN:
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
            client.start("subscriptions/listen", {"notifications": wanted})
            await client.notified("notifications/subscriptions/acknowledged")
        else:
            await client.result("resources/subscribe", {"uri": NOTE})
        self.wait = client.until
        self.find = lambda: [each["method"] for each in client.notifications if "acknow" not in each["method"]]
        return self

    async def over_http(self, app: Any, stack: AsyncExitStack, revision: str) -> Self:
        stack.push_async_callback(app.stop)
        if revision == MODERN:
            modern = ModernClient(app)
            stack.push_async_callback(modern.close)
            stream = await modern.listen(toolsListChanged=True, resourceSubscriptions=[NOTE])
            await stream.message("notifications/subscriptions/acknowledged")
        else:
            legacy = SessionClient(app)
            stack.push_async_callback(legacy.close)
            await legacy.initialize(revision)
            await legacy.result("resources/subscribe", {"uri": NOTE})
            stream = await legacy.get()
        self.wait = stream.until
        self.find = lambda: [
            each["method"] for each in stream.messages if "acknow" not in each["method"] and "id" not in each
        ]
        return self


def almanac(**options: Any) -> Server:
    server = Server("almanac", resources=Resource(NOTE, content="sunny", name="today"), **options)

    @server.tool
    async def where(ctx: Context) -> str:
        return f"{threading.current_thread().name} {ctx.lifespan}"

    return server


async def ping_tool() -> str:
    return "pong"


WAYS = [("memory", MODERN), ("memory", LEGACY), ("http", MODERN), ("http", LEGACY)]


@pytest.mark.parametrize("here", WAYS, ids="-".join)
@pytest.mark.parametrize("there", WAYS, ids="-".join)
def test_changes_reach_clients_of_all_loops_once(
    here: tuple[str, str], there: tuple[str, str], loops: tuple[Loop, Loop]
) -> None:
    server, called = almanac(), list[str]()
    server.subscribe(NOTE, called.append)

    async def listen(loop: Loop, over: str, revision: str) -> Listener:
        if over == "memory":
            return await Listener().in_memory(server, loop.stack, revision)
        return await Listener().over_http(server.http_app(), loop.stack, revision)

    listeners = [loop.run(listen(loop, *way)) for loop, way in zip(loops, (here, there), strict=True)]
    # From a thread without a loop.
    server.notify_updated(NOTE)
    server.add(Tool(ping_tool))
    server.remove("ping_tool")
    for loop, listener in zip(loops, listeners, strict=True):
        loop.run(listener.told(UPDATED, TOOLS_CHANGED))
    server.notify_updated(NOTE)  # Whatever was sent twice has arrived before this.
    for loop, listener in zip(loops, listeners, strict=True):
        loop.run(listener.wait(lambda listener=listener: listener.find()[-1] == UPDATED))
        assert listener.find().count(UPDATED) == 2
        assert listener.find().count(TOOLS_CHANGED) in (1, 2), "two changes may be told as one"
    assert called == [NOTE, NOTE]


def test_log_reaches_connections_of_all_loops_from_any_thread(loops: tuple[Loop, Loop]) -> None:
    server = almanac()
    clients = [loop.run(loop.stack.enter_async_context(connect(server, LEGACY))) for loop in loops]
    server.log("info", "from a thread")
    for loop, client in zip(loops, clients, strict=True):
        (message,) = loop.run(client.notified("notifications/message"))
        assert message["data"] == "from a thread"


def test_log_reaches_one_session_over_http_on_whichever_loop(loops: tuple[Loop, Loop]) -> None:
    server = almanac()

    @server.tool
    async def session(ctx: Context) -> str:
        return str(ctx.session_id)

    async def open_session(loop: Loop) -> tuple[str, Any]:
        app = server.http_app()
        loop.stack.push_async_callback(app.stop)
        client = SessionClient(app)
        loop.stack.push_async_callback(client.close)
        await client.initialize(LEGACY)
        return text_of(await client.call("session")), await client.get()

    sessions = [loop.run(open_session(loop)) for loop in loops]
    for (name, _), text in zip(sessions, ("first", "second"), strict=True):
        server.log("error", text, session=name)
    for loop, (_, stream), text in zip(loops, sessions, ("first", "second"), strict=True):
        assert loop.run(stream.message("notifications/message"))["params"]["data"] == text


def test_each_loop_has_a_lifespan_of_its_own(loops: tuple[Loop, Loop]) -> None:
    numbers, events = iter("ab"), list[str]()

    async def lifespan(server: Server) -> AsyncIterator[str]:
        name = next(numbers)
        events.append(f"enter {name}")
        yield name
        events.append(f"leave {name}")

    server, host = almanac(lifespan=lifespan), Server("host")
    host.mount(server, "m")

    async def look(client: Client) -> str:
        return f"{(await client.call_tool('m_where')).text[-1]} {server.lifespan_value}"

    clients = [loop.run(loop.stack.enter_async_context(Client(host))) for loop in loops]
    assert [loop.run(look(client)) for loop, client in zip(loops, clients, strict=True)] == ["a a", "b b"]
    assert host.loop is loops[0].loop and server.lifespan_value == "a"
    loops[0].run(loops[0].stack.aclose())
    assert events == ["enter a", "enter b", "leave a"]
    assert host.loop is loops[1].loop and server.lifespan_value == "b"
    loops[1].run(loops[1].stack.aclose())
    assert events[-1] == "leave b" and host.loop is None and server.lifespan_value is None


def test_server_mounted_while_two_loops_run_begins_on_both(loops: tuple[Loop, Loop]) -> None:
    entered = threading.Semaphore(0)

    async def lifespan(server: Server) -> AsyncIterator[str]:
        entered.release()
        yield "value"

    host, guest = Server("host"), almanac(lifespan=lifespan)
    clients = [loop.run(loop.stack.enter_async_context(Client(host))) for loop in loops]
    host.mount(guest, "g")
    for _ in loops:
        assert entered.acquire(timeout=10)
    for loop, client in zip(loops, clients, strict=True):
        assert loop.run(client.call_tool("g_where")).text.endswith(" value")


def test_one_application_serves_two_loops_which_share_its_sessions(loops: tuple[Loop, Loop]) -> None:
    server = almanac(tasks=True)
    app = server.http_app()
    asked: list[str] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        asked.append("asked")
        return str(await ctx.elicit("Name?", str))

    async def begin(loop: Loop) -> SessionClient:
        loop.stack.push_async_callback(app.stop)
        client = SessionClient(app)
        loop.stack.push_async_callback(client.close)
        await client.initialize(LEGACY, {"elicitation": {}})
        return client

    async def join(loop: Loop, first: SessionClient) -> SessionClient:
        loop.stack.push_async_callback(app.stop)
        client = SessionClient(app)
        loop.stack.push_async_callback(client.close)
        client.headers, client.revision, client.last_id = first.headers, first.revision, 1000
        assert "sunny" in str(await client.result("resources/read", {"uri": NOTE}))
        return client

    first = loops[0].run(begin(loops[0]))
    second = loops[1].run(join(loops[1], first))

    async def start() -> Any:
        answer = first.start_call("ask")
        return answer, await answer.message("elicitation/create")

    answer, question = loops[0].run(start())
    accepted = loops[1].run(second.respond(question, {"action": "accept", "content": {"value": "Ada"}}))
    assert accepted.status == 202
    assert "Ada" in str(loops[0].run(answer.finished()).messages)
    assert app.opened == 1
    loops[0].run(app.stop())
    assert text_of(loops[1].run(second.call("where")))


@pytest.mark.parametrize("over", ["memory", "http"])
def test_task_of_one_loop_is_followed_on_another_and_survives_it(over: str, loops: tuple[Loop, Loop]) -> None:
    server, release = Server("s"), threading.Event()

    @server.tool(task="required")
    def hold() -> str:
        release.wait(10)
        return "done"

    async def open_client(loop: Loop) -> Client:
        join = testing.connect(server, over=over)  # type: ignore[arg-type]
        client, _ = await loop.stack.enter_async_context(join)
        return client

    clients = [loop.run(open_client(loop)) for loop in loops]

    async def start() -> str:
        return (await clients[0].call_tool_as_task("hold")).id

    task = loops[0].run(start())

    async def state() -> str:
        return (await clients[1].task(task).status()).status

    assert loops[1].run(state()) == "working"
    release.set()

    async def result() -> str:
        return (await clients[1].task(task).wait()).text

    assert loops[1].run(result()) == "done"
    assert server.kernel.tasks_running == 0


def test_run_works_while_another_loop_uses_the_server(loops: tuple[Loop, Loop]) -> None:
    server, ready, address = almanac(), threading.Event(), list[str]()
    with Loop() as third:
        client = third.run(third.stack.enter_async_context(Client(server)))
        for _ in range(2):  # It can be run again.
            ready.clear()

            def note(url: str) -> None:
                address.append(url)
                ready.set()

            thread = threading.Thread(target=lambda: server.run("http", port=0, on_ready=note))
            thread.start()
            assert ready.wait(10)

            async def call() -> str:
                async with Client(address[-1]) as remote:
                    return (await remote.call_tool("where")).text

            assert loops[0].run(call())
            assert third.run(client.call_tool("where")).text
            server.stop()
            thread.join()


def test_loop_that_ended_without_leaving_is_discarded() -> None:
    bus = MemoryBus()
    memory = Stores.memory()
    stores = Stores(memory.kv, memory.log, bus, memory.queue)
    server = Server("s", tools=Tool(ping_tool, task="optional"), stores=stores)
    held, calls = threading.Event(), list[asyncio.Future[Any]]()

    @server.tool
    def blocks() -> str:
        held.wait(10)
        return "late"

    async def use() -> None:
        runtime = runtime_of(server)
        await runtime.start()  # As for an HTTP application that nothing stops.
        await runtime.work.tasks.manager.process()
        calls.append(asyncio.ensure_future(server.call_tool("blocks")))
        await asyncio.sleep(0.01)

    before = {each.ident for each in threading.enumerate()}
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # It ends with tasks that are not done.
    loop.run_until_complete(use())
    (first,) = server.kernel.runtimes.live
    lease = first.work.tasks.manager._lease.name
    loop.close()
    held.set()
    assert bus._count and lease
    assert server.kernel.runtimes.live == [] and server.loop is None

    async def again() -> str:
        text = (await server.call_tool("ping_tool")).text
        assert bus._count == 2, "the bells of this loop alone"
        return text

    async def whole() -> str:
        async with runtime_of(server).held():
            await runtime_of(server).work.tasks.manager.process()
            return await again()

    assert asyncio.run(whole()) == "pong"
    assert bus._count == 0
    assert server.kernel.abandoned_leases in ([], [lease])
    for each in threading.enumerate():
        if each.ident not in before and "toolwire" in each.name:
            each.join(10)
            assert not each.is_alive(), each.name


def test_lifespan_that_fails_on_one_loop_leaves_the_other_alone(loops: tuple[Loop, Loop]) -> None:
    fails = iter([False, True, False])

    async def lifespan(server: Server) -> AsyncIterator[None]:
        if next(fails):
            raise RuntimeError("no database")
        yield

    server = almanac(lifespan=lifespan)
    client = loops[0].run(loops[0].stack.enter_async_context(Client(server)))

    async def use() -> str:
        async with Client(server) as other:
            return (await other.call_tool("where")).text

    with pytest.raises((RuntimeError, ToolwireError)):
        loops[1].run(use())
    assert loops[0].run(client.call_tool("where")).text
    assert loops[1].run(use())


def test_settings_of_a_definition_hold_on_all_loops(loops: tuple[Loop, Loop]) -> None:
    server = almanac()
    clients = [loop.run(loop.stack.enter_async_context(Client(server))) for loop in loops]
    seen: list[str] = []

    async def middleware(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    server.use(middleware)
    for loop, client in zip(loops, clients, strict=True):
        loop.run(client.call_tool("where"))
    assert seen == ["tools/call", "tools/call"]
    assert len(server.connections) == 2


def test_tasks_of_the_program_are_created_where_the_server_runs(loops: tuple[Loop, Loop]) -> None:
    server = Server("s", tasks=True)
    for loop in loops:
        loop.run(loop.stack.enter_async_context(Client(server)))

    async def create() -> Any:
        return await server.tasks.create(ttl=60)

    tasks = [loop.run(create()) for loop in loops]

    async def finish(task: Any) -> None:
        await server.tasks.finish(task, "done")

    # Each on the other loop.
    loops[1].run(finish(tasks[0]))
    loops[0].run(finish(tasks[1]))
    with Loop() as third, pytest.raises(ServerError, match="runs on another event loop"):
        third.run(create())
