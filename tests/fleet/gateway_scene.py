"""Three gateways on one Redis behind nginx, servers of both eras behind them, and one gateway killed again and again.

Clients of both eras call the servers, with and without questions, and listen for changes. Requests go to one gateway
after the other, so that most answers arrive at another gateway than the one that holds the call. The rules are those of
docs/guides/gateway.md: what may fail is a request that is in flight on the gateway that is killed, and a call that this
gateway holds at a server whose events nobody keeps. Nothing runs twice.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fleet.ledger import LEGACY, MODERN, Counts, Ledger, Listener, Loss, Note, read_notes
from tests.fleet.replicas import Address, FleetError, Nginx, Process, Redis, Replica, free_port
from tests.fleet.traffic import KEY, PATIENCE

from toolwire import Client
from toolwire.protocol.errors import ToolwireError, TransportError

FOLDER = Path(__file__).resolve().parent
#: The servers behind the gateways. `child` runs over stdio: its calls end with their gateway.
BACKS = ("modern", "legacy", "child")
ITEMS = ("modern://one", "legacy://one", "modern://two", "legacy://two")
#: A request that ends so many seconds after the kill may have been in flight then.
SLACK = 1.0


@dataclass
class Asked:
    """A call as its client sees it."""

    number: int
    revision: str
    back: str
    tool: str
    began: float
    ended: float = 0.0
    requests: list[tuple[float, float]] = field(default_factory=list)
    """When each of its requests began and ended."""
    text: str = ""
    """The text of its result."""
    error: str = ""
    """The text of an error that the gateway answered with."""
    broken: str = ""
    """Why the client got no answer."""

    @property
    def name(self) -> str:
        return f"{self.tool} {self.number} of {self.revision} at {self.back}"

    @property
    def expected(self) -> str:
        return str(self.number) if self.tool == "plain" else f"{self.number} 2 Anna"


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
        self.backs = {name: Back(name, folder) for name in BACKS if name != "child"}
        environment = {f"FLEET_{name.upper()}": back.url for name, back in self.backs.items()}
        self.replicas = [
            Replica(number, folder, self.address.url, environment, 0.0, server=FOLDER / "gateway.py")
            for number in (1, 2, 3)
        ]
        self.nginx = Nginx(folder, self.replicas)
        self.clients: dict[str, Client] = {}
        self._chance = random.Random(7)
        self._numbers = itertools.count(1)
        self._makers: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._pending: set[asyncio.Task[None]] = set()
        self._announcing = asyncio.Lock()
        (folder / "notes").touch()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GatewayFleet]:
        processes: list[Process] = [*self.replicas, *self.backs.values(), self.nginx, self.redis]
        try:
            await self.redis.start()
            await self.address.open()
            for back in self.backs.values():
                await back.start()
            async with asyncio.TaskGroup() as group:
                for replica in self.replicas:
                    group.create_task(replica.start())
            await self.nginx.start()
            for revision in (LEGACY, MODERN):
                self.clients[revision] = await self._client(revision).connect()
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

    def _client(self, revision: str) -> Client:
        return Client(
            self.nginx.url, revision=revision, auth=KEY, timeout=PATIENCE, cache=False, elicit=self._answer_form
        )

    async def kill(self, replica: Replica) -> None:
        """End a gateway by SIGKILL, in a moment when no change has just been announced."""
        async with self._announcing:
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await replica.kill()
            # On a busy machine a process lives on for a moment after the signal that kills it.
            self.ledger.losses.append(Loss(replica.name, began, time.monotonic() - began))

    # --- clients ---

    def start_load(self) -> None:
        for revision in self.clients:
            for back in BACKS:
                self._makers.append(asyncio.create_task(self._repeat(0.25, revision, back, "plain")))
                self._makers.append(asyncio.create_task(self._repeat(0.8, revision, back, "book")))
        self._makers.append(asyncio.create_task(self._touch()))

    async def stop_load(self) -> None:
        """End the load, and wait until all that is under way has come to its end."""
        for task in self._makers:
            task.cancel()
        await asyncio.gather(*self._makers, return_exceptions=True)
        if self._pending:
            await asyncio.wait(self._pending, timeout=PATIENCE)

    async def _repeat(self, pause: float, revision: str, back: str, tool: str) -> None:
        while True:
            call = Asked(next(self._numbers), revision, back, tool, time.monotonic())
            self.calls.append(call)
            self._spawn(self._call(call))
            await asyncio.sleep(pause * self._chance.uniform(0.5, 1.5))

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
            await self._think()
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
        await self._think()
        content: dict[str, Any] = _answer(message)["content"]
        return content

    async def _think(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 2.0))

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
                pass  # It may have happened or not, so nobody has to hear of it.

    async def _listen(self, revision: str, ready: asyncio.Event) -> None:
        listener = Listener(f"the listener of {revision}")
        self.ledger.listeners.append(listener)
        async with self._client(revision) as client:
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

    def verdict(self) -> Counts:
        with (self.folder / "notes").open() as written:
            notes = read_notes(written)
        return judge(self.calls, self.ledger, notes)


def _answer(message: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": 2 if message.startswith("How many") else "Anna"}}


# --- the verdict ------------------------------------------------------------------------------------------------------


def judge(calls: list[Asked], ledger: Ledger, notes: list[Note]) -> Counts:
    """Count what happened, and what must not have happened."""
    counts = Counts(calls=len(calls))
    begins: dict[int, list[Note]] = defaultdict(list)
    ends: Counter[int] = Counter()
    for note in notes:
        if note.what == "begin":
            begins[note.number].append(note)
        else:
            ends[note.number] += 1
    for call in calls:
        begun = begins[call.number]
        # A modern server asks by running its handler again, up to the answer that is missing.
        runs = ends[call.number] if call.back == "modern" else max(ends[call.number], len(begun))
        if runs > 1:
            counts.breach("doubled", f"{call.name} ran {runs} times")
        _judge_call(call, begun, ledger, counts)
    asking = [call for call in calls if call.tool == "book"]
    resumed = sum(bool(call.text) and _lost_its_holder(call, begins[call.number], ledger) for call in asking)
    ledger.remarks.append(
        f"{len(ledger.losses)} gateways killed, {len(asking)} calls with questions, {resumed} went on elsewhere"
    )
    for listener in ledger.listeners:
        for change in ledger.missed(listener):
            counts.breach("lost_events", f"{listener.name} was not told of {change}")
    for replica in ledger.wedged:
        counts.breach("wedged", replica)
    return counts


def _judge_call(call: Asked, begun: list[Note], ledger: Ledger, counts: Counts) -> None:
    if call.text:
        if call.text != call.expected:
            counts.breach("wrong", f"{call.name} has the result {call.text!r}")
        return
    if not call.ended:
        counts.breach("unanswered", f"{call.name} has no end")
        return
    counts.failed += 1
    if call.broken and call.requests:
        began, ended = call.requests[-1]
        if not any(began <= loss.at + loss.grace and loss.at <= ended + SLACK for loss in ledger.losses):
            counts.breach("unanswered", f"{call.name}: {call.broken}")
        return
    if not begun and any(call.began <= loss.at <= call.ended for loss in ledger.losses):
        return  # It was in flight on the gateway, and never reached the server.
    if not _lost_its_holder(call, begun, ledger):
        counts.breach("wrong", f"{call.name}, made by {begun[0].replica if begun else 'nobody'}: {call.error}")
    elif call.revision == MODERN and call.back == "legacy":
        counts.breach("wrong", f"{call.name} was not resumed: {call.error}")
    elif call.revision == MODERN and not (repr(call.back) in call.error and "may have been carried out" in call.error):
        counts.breach("wrong", f"{call.name} has an error that says too little: {call.error}")


def _lost_its_holder(call: Asked, begun: list[Note], ledger: Ledger) -> bool:
    """Return whether the gateway that made a call at its server was killed meanwhile."""
    holders = {note.replica for note in begun}
    return any(loss.replica in holders and call.began <= loss.at <= call.ended for loss in ledger.losses)


# --- the scene --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatewayScene:
    """A gateway killed every ten seconds, for so many seconds."""

    about: str
    lasting: float
    pause: float = 10.0
    alone: bool = False

    @property
    def seconds(self) -> float:
        return self.lasting + 30

    async def run(self, folder: Path) -> tuple[Counts, list[str]]:
        fleet = GatewayFleet(folder)
        async with fleet.running():
            fleet.start_load()
            await asyncio.sleep(self.pause / 3)
            until = time.monotonic() + self.lasting
            for victim in itertools.cycle(fleet.replicas):
                if time.monotonic() >= until:
                    break
                began = time.monotonic()
                await fleet.kill(victim)
                await victim.start()
                await asyncio.sleep(max(0.0, self.pause - (time.monotonic() - began)))
            await fleet.stop_load()
            for item in ITEMS:
                await fleet.touch(item)
            await fleet.all_told()
            for replica in fleet.replicas:
                if not await replica.is_ready():
                    fleet.ledger.wedged.append(f"{replica.name} is not ready at the end")
            counts = fleet.verdict()
        if not fleet.ledger.losses or not fleet.calls:
            raise FleetError("nothing happened")
        return counts, fleet.ledger.remarks


SECONDS = float(os.environ.get("FLEET_GATEWAY_SECONDS") or 180)
GATEWAY_SCENES: dict[str, GatewayScene] = {
    "gateways": GatewayScene("a gateway killed every ten seconds", SECONDS),
    "gateways-short": GatewayScene("three gateways killed, one after the other", 20, pause=6.0),
}
