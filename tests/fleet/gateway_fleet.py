"""Three gateways with one file and one Redis behind nginx, servers of both eras behind them, and their clients.

Clients of both eras call the servers, with and without questions, have tasks, and listen for changes. Requests go to
one gateway after the other, so that most answers arrive at another gateway than the one that holds the call.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fleet.gateway_ledger import Asked, judge
from tests.fleet.ledger import LEGACY, MODERN, Counts, Ledger, Listener, Loss, read_notes
from tests.fleet.replicas import DRAIN, KEY, Address, Nginx, Process, Redis, Replica, free_port
from tests.fleet.traffic import PATIENCE

from toolwire import Client, ToolResult
from toolwire.client import TaskHandle
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ToolwireError, TransportError

FOLDER = Path(__file__).resolve().parent
#: The servers behind the gateways. `child` runs over stdio: its calls end with their gateway.
BACKS = ("modern", "legacy", "child")
#: Those that outlive the gateways, so that their tasks do.
HTTP_BACKS = ("modern", "legacy")
ITEMS = ("modern://one", "legacy://one", "modern://two", "legacy://two")
#: The header by which a server behind the gateways learns which of them called it.
HEADER = "x-fleet-replica"
_NUMBER = re.compile(r"\d+")


class Back(Process):
    """A server behind the gateways, over HTTP."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(f"back-{name}", folder)
        self._port = free_port()
        self._environment = {"FLEET_FOLDER": str(folder), "FLEET_BACK": name}
        self.url = f"http://127.0.0.1:{self._port}/mcp"

    async def start(self) -> None:
        await self.spawn([sys.executable, FOLDER / "back.py", str(self._port)], self._environment)
        await self.answers(self._port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 200 ")


class GatewayFleet:
    """The processes and the clients of the scene."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.ledger = Ledger()
        self.calls: list[Asked] = []
        self.redis = Redis("redis", folder)
        self.address = Address(self.redis)
        self.backs = {name: Back(name, folder) for name in HTTP_BACKS}
        self.file = folder / "gateway.json"
        self.configuration = configuration(self.backs)
        self.write_file()
        self.replicas = [
            Replica(number, folder, self.address.url, {}, 0.0, command=("gateway", self.file)) for number in (1, 2, 3)
        ]
        self.nginx = Nginx(folder, self.replicas)
        self.clients: dict[str, Client] = {}
        self._chance = random.Random(7)
        self._numbers = itertools.count(1)
        self._makers: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._pending: set[asyncio.Task[None]] = set()
        self._announcing = asyncio.Lock()
        self._gates: dict[int, asyncio.Event] = {}
        """What the answers of calls that are held for long wait for, by the number of the call."""
        self._asked: dict[int, asyncio.Event] = {}
        """Whether such a call has asked."""
        self._sessions: Counter[str] = Counter()
        """How many sessions each legacy client has begun."""
        self.most_sessions = 1
        """How many it may begin."""
        (folder / "notes").touch()

    @asynccontextmanager
    async def running(self, **environment: str) -> AsyncIterator[GatewayFleet]:
        """Run the fleet until the end of the block. `environment` is that of the gateways."""
        processes: list[Process] = [*self.replicas, *self.backs.values(), self.nginx, self.redis]
        try:
            await self.redis.start()
            await self.address.open()
            for back in self.backs.values():
                await back.start()
            async with asyncio.TaskGroup() as group:
                for replica in self.replicas:
                    group.create_task(replica.start(**environment))
            await self.nginx.start()
            for revision in (LEGACY, MODERN):
                self.clients[revision] = await self._client("the caller", revision).connect()
                ready = asyncio.Event()
                self._listening.append(asyncio.create_task(self._listen(revision, ready)))
                async with asyncio.timeout(PATIENCE):
                    await ready.wait()
            yield self
        finally:
            working = (*self._makers, *self._listening, *self._pending)
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            for client in self.clients.values():
                await client.close()
            for process in processes:
                process.signal(signal.SIGKILL)
            await self.address.cut()
            await asyncio.gather(*(process.ended() for process in processes), return_exceptions=True)

    def _client(self, name: str, revision: str) -> Client:
        def count_sessions(direction: str, message: bytes) -> None:
            if b'"method":"initialize"' in message:
                self._sessions[f"{name} on {revision}"] += 1

        return Client(
            self.nginx.url,
            revision=revision,
            auth=KEY,
            timeout=PATIENCE,
            cache=False,
            elicit=self._answer_form,
            on_message=count_sessions,
        )

    async def kill(self, replica: Replica) -> None:
        """End a gateway by SIGKILL, in a moment when no change has just been announced."""
        async with self._announcing:
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await replica.kill()
            # On a busy machine a process lives on for a moment after the signal that kills it.
            self.ledger.losses.append(Loss(replica.name, began, time.monotonic() - began))

    async def stop(self, replica: Replica) -> None:
        """End a gateway by SIGTERM, and wait until it has left."""
        began = time.monotonic()
        took, wrong = await replica.stop()
        self.ledger.losses.append(Loss(replica.name, began, max(DRAIN, took)))
        self.ledger.wedged += wrong

    def write_file(self, text: str | None = None) -> None:
        """Write the file of the gateways as editors do: another one takes its place."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(json.dumps(self.configuration) if text is None else text)
        draft.replace(self.file)

    async def expect_tools(self, wanted: set[str]) -> None:
        """Wait until all gateways list these tools."""
        until, agreed, found = time.monotonic() + PATIENCE, 0, set[str]()
        while agreed < 2 * len(self.replicas):
            found = {tool.name for tool in await self.clients[MODERN].list_tools()}
            agreed = agreed + 1 if found == wanted else 0
            if time.monotonic() > until:
                self.ledger.wedged.append(f"a change of the file is not in force: {sorted(found ^ wanted)}")
                return
            await asyncio.sleep(0.1)

    # --- clients ---

    def start_load(self) -> None:
        for revision in self.clients:
            for back in BACKS:
                self._makers.append(asyncio.create_task(self._repeat(0.25, revision, back, "plain")))
                self._makers.append(asyncio.create_task(self._repeat(0.8, revision, back, "book")))
            for back in HTTP_BACKS:
                self._makers.append(asyncio.create_task(self._repeat(0.8, revision, back, "work")))
        self._makers.append(asyncio.create_task(self._touch()))

    async def hold_questions(self) -> list[Asked]:
        """Begin calls whose questions stay open until `answer` is called; return when all have asked."""
        calls = [self._new_call(revision, back, "book") for revision in self.clients for back in BACKS]
        for call in calls:
            self._gates[call.number] = asyncio.Event()
            self._asked[call.number] = asyncio.Event()
            self._spawn(self._call(call))
        async with asyncio.timeout(PATIENCE):
            for call in calls:
                await self._asked[call.number].wait()
        return calls

    async def hold_tasks(self, seconds: float) -> list[Asked]:
        """Begin tasks whose results are not asked for until `answer` is called; return when all are accepted."""
        calls = [self._new_call(revision, back, "work") for revision in self.clients for back in HTTP_BACKS]
        for call in calls:
            self._gates[call.number] = asyncio.Event()
            self._spawn(self._work(call, seconds))
        async with asyncio.timeout(PATIENCE):
            while not all(call.requests for call in calls):
                await asyncio.sleep(0.1)
        return calls

    async def call_once(self, back: str) -> None:
        """Call a server from each client."""
        await asyncio.gather(*(self._call(self._new_call(revision, back, "plain")) for revision in self.clients))

    def answer(self, calls: Iterable[Asked]) -> None:
        for call in calls:
            self._gates[call.number].set()

    async def stop_load(self) -> None:
        """End the load, and wait until all that is under way has come to its end."""
        for task in self._makers:
            task.cancel()
        await asyncio.gather(*self._makers, return_exceptions=True)
        if self._pending:
            await asyncio.wait(self._pending, timeout=PATIENCE)

    async def _repeat(self, pause: float, revision: str, back: str, tool: str) -> None:
        while True:
            call = self._new_call(revision, back, tool)
            self._spawn(self._work(call, self._chance.uniform(0.1, 3.0)) if tool == "work" else self._call(call))
            await asyncio.sleep(pause * self._chance.uniform(0.5, 1.5))

    def _new_call(self, revision: str, back: str, tool: str) -> Asked:
        call = Asked(next(self._numbers), revision, back, tool, time.monotonic())
        self.calls.append(call)
        return call

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _call(self, call: Asked) -> None:
        client = self.clients[call.revision]
        try:
            if call.revision == MODERN:
                result = await self._rounds(client, call)
            else:
                result = await self._request(client, call, {})
            text = result["content"][0]["text"]
            if result.get("isError"):
                call.error = text
            else:
                call.text = text
        except TransportError as error:
            call.broken = f"{type(error).__name__}: {error}"
        except ToolwireError as error:
            call.error = f"{type(error).__name__}: {error}"
        call.ended = time.monotonic()

    async def _rounds(self, client: Client, call: Asked) -> dict[str, Any]:
        """Call, and answer each round after a while, in a request that another gateway may get."""
        more: dict[str, Any] = {}
        while True:
            result = await self._request(client, call, more)
            if result.get("resultType") != "input_required":
                return result
            await self._think(call.number)
            answers = {key: _answer(asked["params"]["message"]) for key, asked in result["inputRequests"].items()}
            more = {"requestState": result["requestState"], "inputResponses": answers}

    async def _request(self, client: Client, call: Asked, more: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        params = {"name": f"{call.back}_{call.tool}", "arguments": {"number": call.number}, **more}
        types = ["complete", "input_required"] if call.revision == MODERN else ()
        try:
            found: dict[str, Any] = await client.request("tools/call", params, result_types=types)
            return found
        finally:
            call.requests.append((began, time.monotonic()))

    async def _answer_form(self, message: str, params: Any) -> dict[str, Any]:
        number = _NUMBER.search(message)
        assert number is not None, message
        await self._think(int(number[0]))
        content: dict[str, Any] = _answer(message)["content"]
        return content

    async def _think(self, number: int) -> None:
        if number in self._gates:
            self._asked[number].set()
            await self._gates[number].wait()
        else:
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))

    # --- tasks ---

    async def _work(self, call: Asked, seconds: float) -> None:
        client, began = self.clients[call.revision], time.monotonic()
        arguments = {"number": call.number, "seconds": seconds}
        try:
            handle = await client.call_tool_as_task(f"{call.back}_work", arguments, ttl=300.0)
            call.requests.append((began, time.monotonic()))
            if call.number in self._gates:
                await self._gates[call.number].wait()
            result = await self._result_of(handle)
            if result.is_error:
                call.error = result.text
            else:
                call.text = result.text
        except TransportError as error:
            call.broken = f"{type(error).__name__}: {error}"
            if not call.requests:
                call.requests.append((began, time.monotonic()))
        except ToolwireError as error:
            call.error = f"{type(error).__name__}: {error}"
        call.ended = time.monotonic()

    async def _result_of(self, handle: TaskHandle) -> ToolResult:
        """Return the result of a task. A request for it may end with its gateway; the task does not."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return await handle.wait()
            except ToolwireError as error:
                unknown = isinstance(error, ProtocolError) and error.code == INVALID_PARAMS
                if unknown or time.monotonic() > until:
                    raise
            await asyncio.sleep(0.5)

    # --- changes ---

    async def _touch(self) -> None:
        for item in itertools.cycle(ITEMS):
            await self.touch(item)
            await asyncio.sleep(0.5)

    async def touch(self, item: str) -> None:
        """Change an item of one of the servers."""
        back, _, name = item.partition("://")
        async with self._announcing:
            asked = time.monotonic()
            try:
                await self.clients[MODERN].call_tool(f"{back}_touch", {"item": name})
                self.ledger.touched[item] = asked
            except ToolwireError:
                pass  # It may have happened or not, so no listener has to hear of it.

    async def _listen(self, revision: str, ready: asyncio.Event) -> None:
        listener = Listener(f"the listener of {revision}")
        self.ledger.listeners.append(listener)
        async with self._client("the listener", revision) as client:
            while True:
                try:
                    async with client.listen(resources=ITEMS) as subscription:
                        listener.heard = dict.fromkeys(ITEMS, time.monotonic())
                        ready.set()
                        async for change in subscription:
                            if change.uri is not None:
                                listener.heard[change.uri] = time.monotonic()
                except ToolwireError:
                    pass
                await asyncio.sleep(0.2)

    async def all_told(self) -> None:
        """Wait until every listener knows of every change, or the patience is over."""
        until = time.monotonic() + 20
        while time.monotonic() < until and any(map(self.ledger.missed, self.ledger.listeners)):
            await asyncio.sleep(0.1)

    # --- the end ---

    async def settle(self) -> None:
        """End the load, see that every listener hears of one more change, and that every gateway is ready."""
        await self.stop_load()
        for item in ITEMS:
            await self.touch(item)
        await self.all_told()
        for replica in self.replicas:
            if not await replica.is_ready():
                self.ledger.wedged.append(f"{replica.name} is not ready at the end")
        for client, count in self._sessions.items():
            if count > self.most_sessions:
                self.ledger.wedged.append(f"{client} lost its session {count - 1} times")

    def verdict(self) -> Counts:
        with (self.folder / "notes").open() as written:
            notes = read_notes(written)
        return judge(self.calls, self.ledger, notes)


def _answer(message: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": 2 if message.startswith("How many") else "Anna"}}


def configuration(backs: dict[str, Back]) -> dict[str, Any]:
    """Return the file of the gateways. What differs between them is in their environment."""
    named = {"headers": {HEADER: "${FLEET_REPLICA}"}}
    child = {"FLEET_FOLDER": "${FLEET_FOLDER}", "FLEET_REPLICA": "${FLEET_REPLICA}", "FLEET_BACK": "child"}
    legacy = {"revision": LEGACY}
    return {
        "mcpServers": {
            "modern": {"url": backs["modern"].url, **named},
            "legacy": {"url": backs["legacy"].url, **legacy, **named},
            # Its events are kept by nobody: a call that is held there ends with its gateway.
            "child": {
                "command": sys.executable,
                "args": [str(FOLDER / "back.py")],
                **legacy,
                "env": child,
                "inherit_env": True,
            },
        },
        "gateway": {
            "name": "fleet",
            "auth": {"api_keys": {"keys": {"fleet": {"key": KEY}}}},
            "stores": "${FLEET_STORES}",
            "secret": {"env": "TOOLWIRE_SECRET"},
        },
    }
