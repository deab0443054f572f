"""The clients of the simulation, of both eras. They speak HTTP to the fleet, and note what they are told.

A client behaves as the specification wants it: it comes back to a stream with the id of the last event, polls its
tasks, answers questions, and starts a new session when the server says that the old one is over. It is told to go away,
or reads slowly, by faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from tests.simulation.fleet import ALL, URIS, Fleet
from tests.simulation.ledger import Ledger, Work
from tests.simulation.network import Broken, Exchange
from tests.simulation.world import Process

from toolwire.auth.principal import Principal
from toolwire.protocol.framing import Event

MODERN: Final = "2026-07-28"
LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
PREFIX: Final = "io.modelcontextprotocol/"
TASKS: Final = f"{PREFIX}tasks"
BOTH: Final = "application/json, text/event-stream"
NAMED_BY: Final = {
    "tools/call": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
OVER: Final = ("completed", "failed", "cancelled")
#: Requests that the network may deliver twice: they change nothing, or the same.
REPEATABLE: Final = ("tools/list", "tasks/get", "tasks/cancel", "resources/read", "resources/subscribe")
#: Statuses that say: try again.
BUSY: Final = (429, 502, 503)

Message = dict[str, Any]


class Refused(Exception):
    """The answer is an HTTP status that is no success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text[:80]}")
        self.status = status


class Failed(Exception):
    """The answer is a JSON-RPC error."""

    def __init__(self, error: Message) -> None:
        super().__init__(f"{error.get('code')} {error.get('message')}")


class Client:
    """A client of either era: its process, its principal, and the calls that it makes."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of operations to choose from; those that are there twice are chosen twice as often."""
        raise NotImplementedError

    def start(self, streams: int) -> None:
        """Open so many streams for notifications."""
        raise NotImplementedError

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.world = fleet.world
        self.ledger: Ledger = fleet.ledger
        self.name = name
        self.process = Process(fleet.world, name)
        self.principal = Principal(name, "simulation")
        self.random = random.Random(f"{fleet.world.seed}/{name}/choices")
        self.slow_until = 0.0
        self.open: dict[Exchange, None] = {}
        self.known: dict[str, int] = {}
        """The version of each resource that it has read."""
        self.subscribed: dict[str, tuple[float, float]] = {}
        """When it asked for the subscription to each resource, and when that was confirmed."""
        self.tools: set[str] = set()
        """The tools of the list that it has read last."""
        self._last = 0
        self._listed = 0.0

    # --- operations ---

    def begin(self, kind: str, number: int) -> None:
        """Begin an operation of a kind, in the process of this client."""
        nonce = f"{self.name}-{number}"
        work = self.ledger.call(nonce, kind, self.name)
        self.run(self._perform(work))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the process of this client; an error in it is one of the simulation."""
        self.process.start(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.world.aside("".join(traceback.format_exception(error)))
            self.ledger.broken("crash", f"{self.name}: {type(error).__name__}: {error}")

    async def _perform(self, work: Work) -> None:
        self.world.note(f"{work.nonce} {work.kind}")
        try:
            await getattr(self, f"do_{work.kind}")(work)
            self.ledger.end(work, "answered")
        except Broken:
            self.ledger.end(work, "error: the connection broke")
        except (Refused, Failed) as error:
            self.ledger.end(work, f"error: {error}")

    # --- HTTP ---

    def send(self, method: str, headers: Message, message: Message | None, *, repeatable: bool = False) -> Exchange:
        given = {"host": "127.0.0.1:8000", **headers}
        body = b"" if message is None else json.dumps(message).encode()
        exchange = self.fleet.network.request(self.process, method, given, body, self.principal, repeatable)
        exchange.slow_until = self.slow_until
        self.open[exchange] = None
        return exchange

    def read_slowly(self, seconds: float) -> None:
        self.slow_until = self.world.now + seconds
        for exchange in self.open:
            exchange.slow_until = self.slow_until

    async def accepted(self, exchange: Exchange) -> Exchange:
        """Wait for the headers; raise `Refused` for anything but success."""
        status = await exchange.started()
        if status not in (200, 202):
            text = (await exchange.whole()).decode()
            self.open.pop(exchange, None)
            raise Refused(status, text)
        return exchange

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def check_answer(self, work: Work, result: Message) -> None:
        """An answer belongs to the call that it answers, and to its caller."""
        if result.get("isError"):
            raise Failed({"code": "tool", "message": str(result.get("content"))})
        text = result["content"][0]["text"]
        if text != f"{work.nonce} for {self.name}":
            self.ledger.broken("wrong caller", f"{work.nonce} of {self.name} was answered {text!r}")

    async def request(self, method: str, params: Message) -> Message:
        """Make a request, and return its result."""
        raise NotImplementedError

    # --- resources ---

    def read_again(self, uri: str, wanted: Callable[[], bool], subscribe: Sequence[str] = ()) -> None:
        """Subscribe to some resources, and read one that may have changed; try for as long as anybody wants it."""
        self.run(self._read(uri, wanted, list(subscribe)))

    async def _read(self, uri: str, wanted: Callable[[], bool], subscribe: list[str]) -> None:
        while wanted():
            try:
                while subscribe:
                    began = self.world.now
                    await self.request("resources/subscribe", {"uri": subscribe[-1]})
                    self.subscribed[subscribe.pop()] = (began, self.world.now)
                result = await self.request("resources/read", {"uri": uri})
                for name, version in json.loads(result["contents"][0]["text"]).items():
                    self.known[name] = max(self.known.get(name, 0), version)
                return
            except (Broken, Refused, Failed):
                await asyncio.sleep(self.random.uniform(0.5, 2.0))

    def list_again(self, wanted: Callable[[], bool]) -> None:
        """Read the list of tools, which may have changed; try for as long as anybody wants it."""
        self.run(self._list(wanted))

    async def _list(self, wanted: Callable[[], bool]) -> None:
        while wanted():
            try:
                asked = self.world.now
                result = await self.request("tools/list", {})
                if asked >= self._listed:
                    self._listed, self.tools = asked, {tool["name"] for tool in result["tools"]}
                return
            except (Broken, Refused, Failed):
                await asyncio.sleep(self.random.uniform(0.5, 2.0))

    # --- tasks, in the words of either era ---

    def became(self, work: Work, identifier: str) -> None:
        work.task = identifier
        self.ledger.by_task[identifier] = work

    async def look(self, identifier: str) -> Message:
        raise NotImplementedError

    async def cancel(self, identifier: str) -> None:
        raise NotImplementedError

    async def give(self, work: Work, task: Message) -> None:
        raise NotImplementedError

    async def fetch(self, work: Work, task: Message) -> None:
        """Fetch the outcome of a task that is completed, and check it."""
        raise NotImplementedError

    async def follow(self, work: Work, gives_up: bool) -> None:
        """Poll a task to its end, however long that takes."""
        until = self.world.now + self.random.uniform(0.0, 15.0) if gives_up else None
        asked = 0
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 2.0))
            if until is not None and self.world.now >= until and not work.cancelled:
                work.cancelled = True
                with contextlib.suppress(Broken, Refused, Failed):
                    await self.cancel(work.task)
            try:
                task = await self.look(work.task)
                if task["status"] == "input_required":
                    # A person takes a while to answer.
                    asked += 1
                    if asked > 3:
                        await self.give(work, task)
                elif task["status"] == "completed":
                    await self.fetch(work, task)
            except Broken:
                continue
            except Refused as refused:
                if refused.status in BUSY or refused.status == 404:
                    continue  # A task outlives the session that made it.
                raise
            except Failed as failed:
                if "try again" in str(failed):
                    continue
                if "no such task" in str(failed):
                    self.ledger.vanished(work)
                raise
            if task["status"] in OVER:
                self.ledger.told_end(work, task["status"], str(task.get("statusMessage", "")))
                if gives_up:
                    # It may be too late to cancel a task, and the end stays what it is.
                    with contextlib.suppress(Broken, Refused, Failed):
                        await self.cancel(work.task)
                return

    async def do_once(self, work: Work) -> None:
        await self._task(work, "once", asks=False)

    async def do_again(self, work: Work) -> None:
        await self._task(work, "again", asks=False)

    async def do_once_asking(self, work: Work) -> None:
        await self._task(work, "once", asks=True)

    async def do_again_asking(self, work: Work) -> None:
        await self._task(work, "again", asks=True)

    async def do_long_task(self, work: Work) -> None:
        await self._task(work, self.random.choice(("once", "again")), asks=False, lengths=(20.0,))

    async def do_long_again(self, work: Work) -> None:
        await self._task(work, "again", asks=False, lengths=(40.0,))

    async def do_added(self, work: Work) -> None:
        await self._task(work, "added", asks=False, lengths=(1.0, 20.0))

    async def do_retired(self, work: Work) -> None:
        await self._task(work, "retired", asks=False, lengths=(1.0, 20.0))

    async def do_threaded(self, work: Work) -> None:
        await self._task(work, "threaded", asks=self.random.random() < 0.3)

    async def do_cancelled(self, work: Work) -> None:
        await self._task(work, self.random.choice(("once", "again", "threaded")), asks=False, gives_up=True)

    async def _task(
        self,
        work: Work,
        tool: str,
        *,
        asks: bool,
        gives_up: bool = False,
        lengths: Sequence[float] = (0.05, 1.0, 5.0, 20.0, 45.0, 120.0),
    ) -> None:
        seconds = self.random.choice(lengths) * self.random.uniform(0.5, 1.0)
        steps = self.random.choice((1, 4))
        arguments = {"nonce": work.nonce, "seconds": round(seconds, 3), "steps": steps, "asks": asks}
        identifier = await self.start_task(work, tool, arguments)
        if identifier is not None:
            self.became(work, identifier)
            await self.follow(work, gives_up)

    async def start_task(self, work: Work, tool: str, arguments: Message) -> str | None:
        """Call a tool as a task; return its id, or None where it was answered at once."""
        raise NotImplementedError


class ModernClient(Client):
    """A client of 2026-07-28."""

    @property
    def kinds(self) -> tuple[str, ...]:
        tasks = ("once", "once", "again", "again", "once_asking", "again_asking", "threaded", "cancelled")
        return ("echo", "hold", "hold_thread", "ask", "touch", *tasks)

    def _post(self, method: str, params: Message) -> tuple[int, Exchange]:
        meta = {
            f"{PREFIX}protocolVersion": MODERN,
            f"{PREFIX}clientCapabilities": {"elicitation": {"form": {}}, "extensions": {TASKS: {}}},
            f"{PREFIX}clientInfo": {"name": self.name, "version": "0"},
        }
        identifier = self.next_id()
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "content-type": "application/json",
            "accept": BOTH,
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
        }
        if method in NAMED_BY:
            headers["mcp-name"] = params[NAMED_BY[method]]
        return identifier, self.send("POST", headers, message, repeatable=method in REPEATABLE)

    async def _messages(self, exchange: Exchange) -> AsyncIterator[Message]:
        """Read what comes back: one object, or the messages of a stream."""
        await exchange.started()
        if exchange.answered.get("content-type") == "text/event-stream":
            async for event in exchange.events():
                yield json.loads(event.data)
            return
        body = await exchange.whole()
        if exchange.answered.get("content-type") != "application/json" or not body:
            raise Refused(exchange.status, body.decode())
        yield json.loads(body)

    async def request(self, method: str, params: Message) -> Message:
        identifier, exchange = self._post(method, params)
        try:
            async for message in self._messages(exchange):
                if "method" not in message:
                    if message.get("id") is None:
                        raise Refused(exchange.status, json.dumps(message))
                    return self._result(identifier, message)
        finally:
            self.open.pop(exchange, None)
        raise Broken

    def _result(self, identifier: int, answer: Message) -> Message:
        if answer["id"] != identifier:
            self.ledger.broken("wrong caller", f"{self.name} asked {identifier} and was answered {answer['id']}")
        if "error" in answer:
            raise Failed(answer["error"])
        result: Message = answer["result"]
        return result

    async def _call(self, work: Work, tool: str, **arguments: Any) -> None:
        given = {"name": tool, "arguments": {"nonce": work.nonce, **arguments}}
        self.check_answer(work, await self.request("tools/call", given))

    async def do_echo(self, work: Work) -> None:
        await self._call(work, "echo")

    async def do_hold(self, work: Work) -> None:
        await self._call(work, "hold", seconds=self.random.uniform(0.5, 20.0))

    async def do_hold_thread(self, work: Work) -> None:
        await self._call(work, "hold_thread", seconds=self.random.uniform(0.5, 20.0))

    async def do_touch(self, work: Work) -> None:
        await self._call(work, "touch", uri=self.ledger.next_uri(URIS))

    async def do_ask(self, work: Work) -> None:
        params = {"name": "ask", "arguments": {"nonce": work.nonce}}
        self.check_answer(work, await self._answered(work, params))

    async def _answered(self, work: Work, params: Message) -> Message:
        """Call a tool, and answer its questions by making the call again, at whichever replica."""
        result = await self.request("tools/call", params)
        while result.get("resultType") == "input_required":
            await asyncio.sleep(self.random.uniform(0.0, 20.0))
            given = {"action": "accept", "content": {"value": f"name of {work.nonce}"}}
            answers = dict.fromkeys(result["inputRequests"], given)
            state = {"requestState": result["requestState"], "inputResponses": answers}
            result = await self.request("tools/call", {**params, **state})
        return result

    # --- listening ---

    def start(self, streams: int) -> None:
        for number in range(streams):
            self.run(self._listen(number))

    async def _listen(self, number: int) -> None:
        """Keep a listen stream open. One that breaks says nothing of what follows, so everything is read again."""
        while True:
            wanted = {"resourceSubscriptions": list(URIS), "toolsListChanged": True}
            _, exchange = self._post("subscriptions/listen", {"notifications": wanted})
            try:
                async for message in self._messages(exchange):
                    self._heard(message, exchange, number)
            except (Broken, Refused):
                pass
            finally:
                self.ledger.leave("listening", (self.name, number))
                self.open.pop(exchange, None)
                exchange.close()
            await asyncio.sleep(self.random.uniform(0.5, 2.0))

    def _heard(self, message: Message, exchange: Exchange, number: int) -> None:
        if message.get("method") == "notifications/subscriptions/acknowledged":
            replica = exchange.replica
            self.ledger.enter("listening", (self.name, number), None if replica is None else replica.process)
            self.read_again(ALL, lambda: True)
            self.list_again(lambda: True)
        elif message.get("method") == "notifications/tools/list_changed":
            self.list_again(lambda: True)
        elif message.get("method") == "notifications/resources/updated":
            self.read_again(message["params"]["uri"], lambda: True)

    # --- tasks ---

    async def start_task(self, work: Work, tool: str, arguments: Message) -> str | None:
        result = await self._answered(work, {"name": tool, "arguments": arguments})
        if result.get("resultType") != "task":
            self.check_answer(work, result)
            return None
        return str(result["taskId"])

    async def look(self, identifier: str) -> Message:
        return await self.request("tasks/get", {"taskId": identifier})

    async def cancel(self, identifier: str) -> None:
        await self.request("tasks/cancel", {"taskId": identifier})

    async def give(self, work: Work, task: Message) -> None:
        given = {"action": "accept", "content": {"value": f"name of {work.nonce}"}}
        answers = dict.fromkeys(task.get("inputRequests", {}), given)
        await self.request("tasks/update", {"taskId": work.task, "inputResponses": answers})

    async def fetch(self, work: Work, task: Message) -> None:
        self.check_answer(work, task["result"])


class LegacyClient(Client):
    """A client of a legacy revision, with a session and a stream of its own notifications."""

    def __init__(self, fleet: Fleet, name: str, revision: str) -> None:
        super().__init__(fleet, name)
        self.revision = revision
        self.has_tasks = revision == "2025-11-25"
        self.session: dict[str, str] = {}
        self.generation = 0
        self._opening: asyncio.Lock | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        counting = ("count", "count", "count_away", "count_away")
        common = ("echo", *counting, "hold", "hold_thread", "flood", "touch", "touch", "over")
        tasks = ("once", "again", "once_asking", "again_asking", "threaded", "cancelled", "once", "again")
        asking = () if self.revision == "2025-03-26" else ("ask",)  # 2025-06-18 brought forms.
        return (*common, *asking, *tasks) if self.has_tasks else (*common, *asking)

    def start(self, streams: int) -> None:
        # The server uses one of them.
        for number in range(streams):
            self.run(self._listen(number))

    # --- sessions ---

    async def _ensure_session(self) -> None:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            while not self.session:
                try:
                    await self._initialize()
                except (Broken, Refused, Failed):
                    self.session = {}
                    await asyncio.sleep(self.random.uniform(0.5, 3.0))

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": self.revision,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": self.name, "version": "0"},
        }
        message = {"jsonrpc": "2.0", "id": self.next_id(), "method": "initialize", "params": params}
        headers = {"content-type": "application/json", "accept": BOTH}
        exchange = await self.accepted(self.send("POST", headers, message))
        await exchange.whole()
        self.open.pop(exchange, None)
        self.session = {"mcp-session-id": exchange.answered["mcp-session-id"], "mcp-protocol-version": self.revision}
        self.generation += 1
        await self._notify({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.session)

    async def _notify(self, message: Message, session: dict[str, str]) -> None:
        """Post a notification or an answer."""
        headers = {"content-type": "application/json", "accept": BOTH, **session}
        exchange = self.send("POST", headers, message, repeatable=True)
        try:
            await self.accepted(exchange)
            await exchange.whole()
        finally:
            self.open.pop(exchange, None)

    def _session_over(self, session: dict[str, str]) -> None:
        """Give a session up with all its streams. The server does not know it any more, or was told to forget it."""
        if self.session is session:
            self.world.note(f"{self.name} lost its session")
            self.session = {}
            for exchange in tuple(self.open):
                # Where the server was not reached, it goes on with the streams that it has.
                if exchange.method == "GET" and exchange.headers["mcp-session-id"] == session["mcp-session-id"]:
                    exchange.close()

    # --- requests ---

    async def request(  # type: ignore[override]
        self, method: str, params: Message, work: Work | None = None, leaves: bool = False
    ) -> Message:
        """Make a request; come back for the answer where the stream breaks and can be resumed.

        A client that `leaves` goes away after the first event, and comes back.
        """
        await self._ensure_session()
        session = self.session
        identifier = self.next_id()
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        headers = {"content-type": "application/json", "accept": BOTH, **session}
        exchange = self.send("POST", headers, message, repeatable=method in REPEATABLE)
        answer = Answer(self, identifier, work)
        try:
            await self.accepted(exchange)
            if exchange.answered.get("content-type") != "text/event-stream":
                return answer.result(json.loads(await exchange.whole()))
            await self._read_to_answer(exchange, answer, session, leaves)
        except Refused as refused:
            if refused.status == 404:
                self._session_over(session)
            raise
        finally:
            self.open.pop(exchange, None)
        assert answer.message is not None
        return answer.result(answer.message)

    async def _read_to_answer(self, exchange: Exchange, answer: Answer, session: dict[str, str], leaves: bool) -> None:
        state, key = "stream", answer
        while True:
            try:
                replica = exchange.replica
                self.ledger.enter(state, key, None if replica is None else replica.process)
                await self._read_events(exchange, answer, session, leaves)
            except Broken:
                pass
            finally:
                self.ledger.leave(state, key)
                self.open.pop(exchange, None)
            if answer.message is not None:
                return
            if not answer.last_event_id:
                raise Broken
            exchange.close()
            if leaves:
                leaves = False
                holder = answer.work.begun[-1].process if answer.work is not None and answer.work.begun else None
                self.ledger.enter("away", key, holder)
                await asyncio.sleep(self.random.choice((0.1, 2.0, 10.0, 40.0)) * self.random.uniform(0.5, 1.0))
                self.ledger.leave("away", key)
            exchange = await self._resume(answer, session)
            state = "resuming"

    async def _resume(self, answer: Answer, session: dict[str, str]) -> Exchange:
        """Come back to a stream, and keep trying while the server cannot be reached."""
        while True:
            await asyncio.sleep(answer.retry * self.random.uniform(1.0, 1.5))
            headers = {"accept": "text/event-stream", "last-event-id": answer.last_event_id, **session}
            exchange = self.send("GET", headers, None, repeatable=True)
            try:
                return await self.accepted(exchange)
            except Broken:
                continue
            except Refused as refused:
                if refused.status not in BUSY:
                    raise

    async def _read_events(self, exchange: Exchange, answer: Answer, session: dict[str, str], leaves: bool) -> None:
        answer.seen.connected()
        async for event in exchange.events():
            answer.take(event)
            if not event.data:
                if leaves and answer.last_event_id:
                    return
                continue
            message = json.loads(event.data)
            if "method" in message and "id" in message:
                self.run(self._answer_question(message, session))
            elif "method" in message:
                answer.notified(message)
            else:
                answer.message = message
                return
            if leaves and answer.last_event_id:
                return

    async def _answer_question(self, question: Message, session: dict[str, str]) -> None:
        """Answer an elicitation, at whichever replica, until it is taken or the server refuses it for good."""
        await asyncio.sleep(self.random.uniform(0.0, 5.0))
        nonce: str = question["params"]["message"].removeprefix("name of ").removesuffix("?")
        work = self.ledger.work.get(nonce)
        if work is None or work.client != self.name:
            self.ledger.broken("wrong caller", f"{self.name} was asked {question['params']['message']!r}")
        result = {"action": "accept", "content": {"value": f"name of {nonce}"}}
        while True:
            try:
                await self._notify({"jsonrpc": "2.0", "id": question["id"], "result": result}, session)
                return
            except Refused as refused:
                if refused.status not in BUSY:
                    return
            except Broken:
                pass
            await asyncio.sleep(self.random.uniform(1.0, 4.0))

    # --- operations ---

    async def _call(self, work: Work, tool: str, leaves: bool = False, **arguments: Any) -> None:
        given = {"name": tool, "arguments": {"nonce": work.nonce, **arguments}}
        self.check_answer(work, await self.request("tools/call", given, work, leaves))

    async def do_echo(self, work: Work) -> None:
        await self._call(work, "echo")

    async def do_hold(self, work: Work) -> None:
        await self._call(work, "hold", seconds=self.random.uniform(0.5, 20.0))

    async def do_count(self, work: Work) -> None:
        work.steps = self.random.randint(3, 12)
        await self._call(work, "count", steps=work.steps, seconds=self.random.choice((0.1, 1.0, 4.0)))

    async def do_count_away(self, work: Work) -> None:
        work.steps = self.random.randint(3, 12)
        seconds = self.random.choice((0.1, 1.0, 4.0))
        await self._call(work, "count", leaves=True, steps=work.steps, seconds=seconds)

    async def do_flood(self, work: Work) -> None:
        await self._call(work, "flood", leaves=self.random.random() < 0.5, steps=self.random.choice((20, 600)))

    async def do_ask(self, work: Work) -> None:
        await self._call(work, "ask")

    async def do_hold_thread(self, work: Work) -> None:
        await self._call(work, "hold_thread", seconds=self.random.uniform(0.5, 20.0))

    async def do_touch(self, work: Work) -> None:
        await self._call(work, "touch", uri=self.ledger.next_uri(URIS))

    async def do_over(self, work: Work) -> None:
        """End the session. Nobody takes it for alive afterwards."""
        await self._ensure_session()
        session, ended_at = self.session, self.world.now
        exchange = self.send("DELETE", session, None, repeatable=True)
        try:
            await self.accepted(exchange)
            await exchange.whole()
        finally:
            self.open.pop(exchange, None)
            self._session_over(session)
        await asyncio.sleep(self.random.uniform(0.0, 30.0))
        message = {"jsonrpc": "2.0", "id": self.next_id(), "method": "ping", "params": {}}
        probe = self.send("POST", {"content-type": "application/json", "accept": BOTH, **session}, message)
        try:
            await probe.started()
            if probe.status == 200 and not self.ledger.lost_since(ended_at):
                self.ledger.broken("ended session", f"{self.name} ended a session, and it is alive")
            await probe.whole()
        finally:
            self.open.pop(probe, None)

    # --- tasks ---

    async def start_task(self, work: Work, tool: str, arguments: Message) -> str | None:
        params = {"name": tool, "arguments": arguments, "task": {"ttl": 300_000}}
        result = await self.request("tools/call", params, work)
        return str(result["task"]["taskId"])

    async def look(self, identifier: str) -> Message:
        return await self.request("tasks/get", {"taskId": identifier})

    async def cancel(self, identifier: str) -> None:
        await self.request("tasks/cancel", {"taskId": identifier})

    async def give(self, work: Work, task: Message) -> None:
        # 2025-11-25 tasks, input required: the question comes while `tasks/result` waits.
        with contextlib.suppress(Failed):
            await self.request("tasks/result", {"taskId": work.task})

    async def fetch(self, work: Work, task: Message) -> None:
        self.check_answer(work, await self.request("tasks/result", {"taskId": work.task}))

    # --- the stream of the session ---

    async def _listen(self, number: int) -> None:
        """Keep a stream open for as long as the client lives, and read what is said to have changed."""
        place = Place(self.world.now)
        while True:
            await self._ensure_session()
            session = self.session
            if place.session is not session:
                place = Place(self.world.now)
                place.session = session
            headers = {"accept": "text/event-stream", **session}
            if place.last_event_id:
                headers["last-event-id"] = place.last_event_id
            exchange = self.send("GET", headers, None, repeatable=bool(place.last_event_id))
            try:
                await self.accepted(exchange)
                await self._hear(exchange, place, number)
            except Broken:
                pass
            except Refused as refused:
                if refused.status == 404:
                    self._session_over(session)
                elif refused.status == 400:
                    place = Place(self.world.now)  # The place is lost, and the server says so.
            finally:
                self.ledger.leave("listening", (self.name, number))
                self.open.pop(exchange, None)
                exchange.close()
            await asyncio.sleep(place.retry * self.random.uniform(1.0, 1.5))

    async def _hear(self, exchange: Exchange, place: Place, number: int) -> None:
        replica = exchange.replica
        self.ledger.enter("listening", (self.name, number), None if replica is None else replica.process)
        if not place.last_event_id:
            # A new stream says nothing of what was before.
            self.read_again(ALL, lambda: self.session is place.session, () if place.subscribed else URIS)
            self.list_again(lambda: self.session is place.session)
            place.subscribed = True
        place.seen.connected()
        async for event in exchange.events():
            if not place.seen.takes(event) and not self.ledger.lost_since(place.begun):
                self.ledger.broken("event doubled", f"{self.name} got {event.id} a second time")
            place.last_event_id = event.id or place.last_event_id
            if event.retry is not None:
                place.retry = event.retry / 1000
            if event.data:
                message = json.loads(event.data)
                if message.get("method") == "notifications/resources/updated":
                    self.read_again(message["params"]["uri"], lambda: self.session is place.session)
                elif message.get("method") == "notifications/tools/list_changed":
                    self.list_again(lambda: self.session is place.session)


class Place:
    """The place of a client on the stream of its session."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.session: dict[str, str] | None = None
        self.last_event_id = ""
        self.retry = 1.0
        self.subscribed = False
        self.seen = Seen()


class Seen:
    """The events of a stream that a client has had, by their ids."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._last = ""

    def connected(self) -> None:
        """A new connection carries the stream."""
        self._last = ""

    def takes(self, event: Event) -> bool:
        """Take an event; return False for one that was there before.

        The decoder gives an event without an id that of the event before it, as the format wants it.
        """
        is_new = not event.id or not event.data or event.id == self._last or event.id not in self._ids
        if event.id and event.data:
            self._ids.add(event.id)
        self._last = event.id
        return is_new


class Answer:
    """The answer to one legacy request, as far as it has come, over all connections that carry it."""

    def __init__(self, client: LegacyClient, identifier: int, work: Work | None) -> None:
        self.client = client
        self.identifier = identifier
        self.work = work
        self.message: Message | None = None
        self.last_event_id = ""
        self.retry = 1.0
        self.seen = Seen()
        self._begun = client.world.now
        self._number = 0

    def take(self, event: Event) -> None:
        if not self.seen.takes(event) and not self.client.ledger.lost_since(self._begun):
            self.client.ledger.broken("event doubled", f"{self.client.name} got {event.id} a second time")
        self.last_event_id = event.id or self.last_event_id
        if event.retry is not None:
            self.retry = event.retry / 1000

    def notified(self, message: Message) -> None:
        """Numbered messages come in order, each once, and none is left out."""
        data = message.get("params", {}).get("data")
        if self.work is None or not isinstance(data, dict) or "number" not in data:
            return
        if data["nonce"] != self.work.nonce:
            self.client.ledger.broken("wrong caller", f"{self.work.nonce} heard of {data['nonce']}")
        elif data["number"] != self._number + 1 and not self.client.ledger.lost_since(self.work.at):
            rule = "event doubled" if data["number"] <= self._number else "event lost"
            self.client.ledger.broken(rule, f"{self.work.nonce} heard {data['number']} after {self._number}")
        self._number = max(self._number, data["number"])

    def result(self, message: Message) -> Message:
        if message.get("id") != self.identifier:
            self.client.ledger.broken(
                "wrong caller", f"{self.client.name} asked {self.identifier} and was answered {message.get('id')}"
            )
        if "error" in message:
            raise Failed(message["error"])
        work = self.work
        if work is not None and work.steps != self._number and not self.client.ledger.lost_since(work.at):
            text = f"{work.nonce} heard {self._number} of {work.steps} messages"
            self.client.ledger.broken("event lost", text)
        result: Message = message["result"]
        return result
