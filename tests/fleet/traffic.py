"""The clients of a fleet, of both eras: they create tasks, call, listen, and enter in the ledger what they see."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.fleet.ledger import LEGACY, MODERN, Call, Ledger, Listener, Task
from tests.fleet.replicas import KEY, FleetError, Process
from tests.interop import peers

from toolwire import Client
from toolwire.client import TaskHandle, TaskState
from toolwire.protocol.errors import (
    INVALID_PARAMS,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
    Unreachable,
)

#: Seconds that everything has to come to its end, once the last fault is over.
PATIENCE = 100.0
POLL_SECONDS = 0.5
#: The answer of a replica that stops to a call that is not done.
STOPPED = "The server stopped before it answered; the request may have run"
#: The answer to a call whose task waits, if the store has it.
UNCONFIRMED = "it may have been accepted, and may run"
ITEMS = [f"{number:03}" for number in range(240)]
_REPORT = re.compile(rb'"message":"steps (\d+)"')
_PROGRESS = re.compile(rb'"progress":(\d+)')


def client_of(url: str, revision: str, on_message: Callable[[str, bytes], None] | None = None) -> Client:
    return Client(url, revision=revision, auth=KEY, timeout=PATIENCE, cache=False, on_message=on_message)


class Question:
    """A call of one client that waits for the answer to its question."""

    def __init__(self, call: Call, url: str) -> None:
        self._call = call
        self._asked = asyncio.Event()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._client = Client(url, revision=MODERN, auth=KEY, timeout=PATIENCE, elicit=self._wait_for_answer)
        self._running = asyncio.create_task(self._run())

    async def wait_until_asked(self) -> None:
        """Wait until the server has asked; raise what the call raised if it has ended before."""
        asked = asyncio.create_task(self._asked.wait())
        await asyncio.wait({asked, self._running}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not self._asked.is_set():
            raise FleetError(f"no question came: {self._call.text or 'no answer'}")

    async def answer(self, text: str) -> None:
        """Answer the question, and wait until the call has its result."""
        self._answer.set_result(text)
        await self._running

    async def _run(self) -> None:
        try:
            async with self._client as client:
                result = await client.call_tool("ask", {"question": "Go on?"})
        except ToolwireError as error:
            self._call.outcome, self._call.text = "broken", f"{type(error).__name__}: {error}"
        else:
            self._call.outcome = "result"
            self._call.text = str(self._call.number) if result.text == "yes" else result.text

    async def _wait_for_answer(self, message: str, form: object) -> dict[str, str]:
        self._asked.set()
        return {"value": await self._answer}


class Traffic:
    """All clients of one scene."""

    def __init__(self, url: str, ledger: Ledger, *, kills: bool) -> None:
        """Send everything to `url`. `kills`: replicas are killed, which may break the connection of a modern call."""
        self._url = url
        self._ledger = ledger
        self._kills = kills
        self._chance = random.Random(7)
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._stack = AsyncExitStack()
        self._makers: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._pending: set[asyncio.Task[None]] = set()
        self._peers: list[Peer] = []
        self.clients: dict[str, Client] = {}
        #: Held while a change is announced: a change in the moment of a kill may be lost with the process.
        self.announcing = asyncio.Lock()

    # --- the life of the clients ---

    async def open(self) -> None:
        for revision in (LEGACY, MODERN):
            self.clients[revision] = await self._stack.enter_async_context(self.client(self._url, revision))
            ready = asyncio.Event()
            self._listening.append(asyncio.create_task(self._listen(revision, ready)))
            await ready.wait()

    @asynccontextmanager
    async def client(self, url: str, revision: str = MODERN) -> AsyncIterator[Client]:
        """A client that has connected. Its streams are in the ledger."""
        async with client_of(url, revision, self._heard) as client:
            yield client

    async def close(self) -> None:
        for task in (*self._makers, *self._listening, *self._pending):
            task.cancel()
        await asyncio.gather(*self._makers, *self._listening, *self._pending, return_exceptions=True)
        for peer in self._peers:
            await peer.kill()
        await self._stack.aclose()

    # --- the usual load ---

    def start(self, folder: Path) -> None:
        """Begin the usual load: some tasks, calls and changes a second in each era."""
        for revision, client in self.clients.items():
            self._makers += [
                asyncio.create_task(self._repeat(0.5, partial(self.short_task, client))),
                asyncio.create_task(self._repeat(1.0, partial(self.call, client, revision))),
            ]
        self._makers.append(asyncio.create_task(self._touch()))
        for mode in ("auto", "legacy") if Peer.python().exists() else ():
            # A modern stream cannot be resumed, so nobody can tell its client what became of a call.
            excuse = self._kills and mode == "auto"
            peer = Peer(mode, folder, self._url, self._ledger, excuse)
            self._peers.append(peer)
            self._spawn(peer.run())

    async def stop(self) -> None:
        """End the load. What is under way goes on."""
        for task in self._makers:
            task.cancel()
        await asyncio.gather(*self._makers, return_exceptions=True)
        self._makers.clear()
        for peer in self._peers:
            peer.stop()

    async def settle(self) -> None:
        """Wait until everything has come to its end, or the patience is over. Then look at every task once more."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=PATIENCE)
        await self._all_told()
        waiting = iter([task for task in self._ledger.tasks if task.id and task.status not in ("", "gone")])
        await asyncio.gather(*(self._look_again(waiting) for _ in range(16)))

    async def _all_told(self) -> None:
        """Wait until every listener knows of every change, within what is left of the patience."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if not any(map(self._ledger.missed, self._ledger.listeners)):
                return
            await asyncio.sleep(0.1)

    async def _repeat(self, pause: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            self._spawn(work())
            await asyncio.sleep(pause * self._chance.uniform(0.5, 1.5))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"fleet: a client failed: {error!r}", file=sys.stderr)

    # --- tasks ---

    def short_task(self, client: Client) -> Coroutine[Any, Any, None]:
        kind, seconds = self._chance.choice(("once", "again")), self._chance.uniform(0.1, 3.0)
        return self.follow(self.new_task(kind, seconds), client)

    def new_task(self, kind: str, seconds: float) -> Task:
        task = Task(next(self._numbers), kind, seconds, time.monotonic())
        self._ledger.tasks.append(task)
        return task

    def begin(self, kind: str, seconds: float, client: Client, count: int = 1) -> list[Task]:
        """Create tasks and follow them in the background."""
        tasks = [self.new_task(kind, seconds) for _ in range(count)]
        for task in tasks:
            self._spawn(self.follow(task, client))
        return tasks

    async def follow(self, task: Task, client: Client) -> None:
        """Create a task, and see it to its end."""
        handle = await self.create(task, client)
        if handle is None:
            return
        if client.revision == LEGACY:
            # In this revision a client also waits for the result with one long request.
            await asyncio.gather(self._await_result(task, handle), self.see_the_end(task))
        else:
            await self.see_the_end(task)

    async def create(self, task: Task, client: Client) -> TaskHandle | None:
        """Create a task; None when it was not accepted, or already has its result."""
        arguments = {"number": task.number}
        if not task.kind.startswith("hold"):
            arguments["seconds"] = task.seconds
        try:
            # Only legacy clients say how long a task is to be kept.
            handle = await client.call_tool_as_task(task.kind, arguments, ttl=task.kept)
        except (ProtocolError, Unreachable) as error:
            if UNCONFIRMED in str(error):
                task.text = str(error)
                return None
            task.refused = f"{type(error).__name__}: {error}"
            return None
        except Timeout:
            task.is_unanswered = True
            return None
        except ToolwireError as error:
            # The client knows that it does not know. Where replicas are killed, that is all it can know; elsewhere the
            # server says so with a status, when its store was lost in the middle.
            task.is_unanswered = not self._kills and getattr(error, "status", None) is None
            task.text = str(error)
            return None
        task.id = handle.id or "inline"
        if not handle.id:
            result = await handle.status()
            self._ended(task, result)
            return None
        return handle

    async def see_the_end(self, task: Task) -> None:
        """Look at a task until it is over. Any replica can be asked, so an answer that fails is asked for again."""
        while True:
            try:
                state = await self.clients[MODERN].task(task.id).status(timeout=30.0)
            except ProtocolError as error:
                if error.code == INVALID_PARAMS:
                    task.status = "gone"
                    return
            except ToolwireError:
                pass
            else:
                if state.over:
                    self._ended(task, state)
                    return
                task.later = state.status
                task.saw(state.message)
            await asyncio.sleep(POLL_SECONDS)

    def _ended(self, task: Task, state: TaskState) -> None:
        task.status = task.later = state.status
        task.ended = time.monotonic()
        task.text = state.message or ""
        if state.status == "completed":
            content = json.loads(bytes(state.result or b"{}")).get("content") or [{}]
            task.text = content[0].get("text", "")

    async def _await_result(self, task: Task, handle: TaskHandle) -> None:
        call = Call(task.number, "2025-11-25 tasks/result", 0)
        self._ledger.calls.append(call)
        while True:
            try:
                text = (await handle.wait()).text
            except ProtocolError as error:
                # Also the answer of a task that failed.
                call.outcome, call.text = "error", str(error)
            except TransportError as error:
                if not task.status:
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                call.outcome, call.text = "error", str(error)
            except ToolwireError as error:
                call.outcome, call.text = "error", str(error)
            else:
                call.outcome, call.text = "result", text.partition(" ")[0]
            return

    async def _look_again(self, waiting: Any) -> None:
        for task in waiting:
            if task.ended + task.kept - 10 < time.monotonic():
                continue
            for _ in range(3):
                try:
                    task.later = (await self.clients[MODERN].task(task.id).status(timeout=30.0)).status
                    break
                except ProtocolError as error:
                    task.later = "gone" if error.code == INVALID_PARAMS else task.later
                except ToolwireError:
                    await asyncio.sleep(POLL_SECONDS)

    # --- calls ---

    async def call(self, client: Client, revision: str, count: int = 4, pause: float = 0.4) -> None:
        """Call a tool that reports its progress."""
        call = Call(next(self._numbers), revision, count)
        self._ledger.calls.append(call)
        self._calls[call.number] = call
        arguments = {"number": call.number, "count": count, "pause": pause}
        try:
            result = await client.call_tool("steps", arguments, on_progress=lambda params: None)
        except Timeout as error:
            call.text = str(error)
        except OutcomeUnknown as error:
            call.text = str(error)
            # A legacy stream can be resumed, so its end is known in any case, once it has begun.
            excuse = error.status is not None or self._kills
            is_answered = str(error) == STOPPED
            call.outcome = "error" if is_answered or (excuse and not (revision == LEGACY and call.seen)) else "broken"
        except ToolwireError as error:
            call.outcome, call.text = "error", f"{type(error).__name__}: {error}"
        else:
            call.outcome, call.text = "result", result.text

    def begin_call(self, client: Client, revision: str, count: int, pause: float) -> None:
        self._spawn(self.call(client, revision, count, pause))

    async def ask(self) -> Question:
        """Begin a call that asks a question; return when the question has come."""
        call = Call(next(self._numbers), MODERN, 0)
        self._ledger.calls.append(call)
        question = Question(call, self._url)
        await question.wait_until_asked()
        return question

    async def start_questions(self) -> None:
        """Begin calls that ask their user, some a second in each era."""
        for revision in (LEGACY, MODERN):
            client = Client(
                self._url, revision=revision, auth=KEY, timeout=PATIENCE, cache=False, elicit=self._answer_question
            )
            await self._stack.enter_async_context(client)
            self._makers.append(asyncio.create_task(self._repeat(0.3, partial(self._call_with_question, client))))

    async def _call_with_question(self, client: Client) -> None:
        call = Call(next(self._numbers), f"{client.revision} with a question", 0)
        self._ledger.calls.append(call)
        try:
            result = await client.call_tool("ask", {"question": str(call.number)})
        except Timeout as error:
            call.text = str(error)
        except ToolwireError as error:
            call.outcome, call.text = "error", f"{type(error).__name__}: {error}"
        else:
            call.outcome, call.text = "error" if result.is_error else "result", result.text

    async def _answer_question(self, message: str, form: object) -> dict[str, str]:
        """Answer with the question itself, some time later."""
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))
        return {"value": message}

    def _heard(self, direction: str, message: bytes) -> None:
        """Count each report as it comes over the wire, before the client does anything with it."""
        if direction == "←" and (found := _REPORT.search(message)) and (step := _PROGRESS.search(message)):
            call = self._calls.get(int(found.group(1)))
            if call is not None:
                call.seen[int(step.group(1))] += 1

    # --- changes ---

    async def _touch(self) -> None:
        """Change one item after the other."""
        for item in itertools.cycle(ITEMS):
            async with self.announcing:
                asked = time.monotonic()
                try:
                    await self.clients[MODERN].call_tool("touch", {"item": item})
                    self._ledger.touched[item] = asked
                except ToolwireError:
                    pass  # It may have happened or not, so nobody has to hear of it.
            await asyncio.sleep(0.25)

    async def _listen(self, revision: str, ready: asyncio.Event) -> None:
        """Listen for changes of all items and of the tools, as a client does that reads again what has changed."""
        listener = Listener(f"the listener of {revision}")
        self._ledger.listeners.append(listener)
        uris = [f"item://{item}" for item in ITEMS]
        async with client_of(self._url, revision) as client:
            while True:
                try:
                    async with client.listen(tools=True, resources=uris) as subscription:
                        # It reads everything after the subscription has begun, so it knows all that was before.
                        listener.heard = dict.fromkeys(ITEMS, time.monotonic())
                        listener.tools = await self._tools(client)
                        ready.set()
                        async for change in subscription:
                            if change.kind == "tools":
                                listener.tools = await self._tools(client)
                            elif change.uri is not None:
                                listener.heard[change.uri.removeprefix("item://")] = time.monotonic()
                except ToolwireError:
                    pass
                await asyncio.sleep(0.2)

    async def _tools(self, client: Client) -> frozenset[str]:
        return frozenset(each.name for each in await client.list_tools())


class Peer(Process):
    """A client of python `mcp`, in an environment of its own, which calls until it is told to stop."""

    def __init__(self, mode: str, folder: Path, url: str, ledger: Ledger, excuse: bool) -> None:
        """`excuse`: a call that the client gave up counts as answered."""
        super().__init__(f"mcp-{mode}", folder)
        self._mode = mode
        self._url = url
        self._ledger = ledger
        self._excuse = excuse
        self._output = folder / f"mcp-{mode}.lines"
        self._stop = folder / f"mcp-{mode}.stop"

    @staticmethod
    def python() -> Path:
        return peers.BY_NAME["mcp-2.3.0"].python

    def stop(self) -> None:
        self._stop.touch()

    async def run(self) -> None:
        driver = Path(__file__).resolve().parent / "drive_mcp2.py"
        command = [self.python(), driver, self._url, self._mode, self._output, self._stop]
        await self.spawn(command)
        await self.ended()
        self._enter()

    async def kill(self) -> None:
        await super().kill()
        if self._output.exists():
            self._enter()

    def _enter(self) -> None:
        """Enter in the ledger what the client wrote down: a line for each call at its beginning, and at its end."""
        calls: dict[int, Call] = {}
        for line in self._output.read_text().splitlines():
            told = json.loads(line)
            call = calls.setdefault(told["number"], Call(told["number"], f"python mcp, {self._mode}", told["count"]))
            call.seen.update(told.get("seen", []))
            call.outcome, call.text = told.get("outcome", ""), told.get("text", "")
            if self._excuse and call.outcome == "broken":
                call.outcome = "error"
        self._ledger.calls += calls.values()
        self._output.write_text("")
