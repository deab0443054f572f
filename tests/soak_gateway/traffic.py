"""The clients of `make soak-gateway`: our own of both eras, and raw HTTP; patient ones, and some that vanish."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.http_process import Connection, connected, post
from tests.soak_gateway.ledger import Call, Ledger, stretched
from tests.soak_gateway.processes import AccountBack, Back, HttpBack, StdioBack
from tests.wireclient import MODERN, Message, modern_meta

from toolwire import Client, ToolResult
from toolwire.protocol.errors import ToolwireError, TransportError

LEGACY = "2025-11-25"
#: Users with a client of each era. Each has a secret of its own for the server with accounts.
USERS = ("ada", "ben")
#: The keys with which users and programs are let in.
KEYS = {name: f"{name}-has-a-key-of-32-characters-here" for name in (*USERS, "raw", "listener")}
SECRETS = {name: f"the secret of {name}" for name in USERS}
#: Seconds after which a client gives up: longer than the gateway waits for any server.
PATIENCE = 90.0
#: Seconds in which a listener is told of a change.
TOLD_SECONDS = 20.0
#: Seconds in which a change of the file is in force.
APPLY_SECONDS = 20.0
#: How many times `steps` of back.py reports its progress.
STEPS = 3
_QUESTION = re.compile(r"The (first|second) half of (\d+)\?")
_POST = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "Authorization": f"Bearer {KEYS['raw']}",
}


class Caller:
    """A client of ours with the calls that it has under way, which makes calls of every kind."""

    def __init__(self, user: str, url: str, revision: str, ledger: Ledger, chance: random.Random) -> None:
        self.name = f"{user} on {revision}"
        self.user = user
        self._ledger = ledger
        self._chance = chance
        self._asking: dict[int, Call] = {}
        self.client = Client(
            url, revision=revision, auth=KEYS[user], timeout=PATIENCE, cache=False, elicit=self._answer
        )

    async def _answer(self, message: str, params: Any) -> dict[str, Any]:
        return {"value": answer_to(message, self._asking, self._ledger, self.name)}

    def _begin(self, back: Back, kind: str) -> Call:
        return self._ledger.begin(secrets.token_hex(8), back.name, kind, self.name)

    def _enter(self, call: Call, found: ToolResult) -> bool:
        """Note how a call ended; return whether it has its result."""
        if found.is_error:
            self._ledger.error(call, found.text)
        else:
            self._ledger.result(call, found.text)
        return not found.is_error

    @asynccontextmanager
    async def _judged(self, call: Call) -> AsyncIterator[None]:
        try:
            yield
        except TransportError as error:
            self._ledger.broken(call, f"{type(error).__name__}: {error}")
        except ToolwireError as error:
            self._ledger.error(call, str(error))

    async def echo(self, back: Back) -> None:
        call = self._begin(back, "echo")
        async with self._judged(call):
            given = {"number": call.number, "token": call.token}
            self._enter(call, await self.client.call_tool(back.tool("echo"), given))

    async def steps(self, back: Back, pause: float = 0.05, *, strict: bool = False) -> None:
        call = self._begin(back, "steps")
        call.strict = strict
        heard: list[float] = []
        async with self._judged(call):
            given = {"number": call.number, "token": call.token, "pause": pause}
            found = await self.client.call_tool(
                back.tool("steps"), given, on_progress=lambda params: heard.append(params.progress)
            )
            if self._enter(call, found) and heard != list(range(1, STEPS + 1)):
                self._ledger.problem("progress", f"{call.name} heard {heard}")

    async def ask(self, back: Back) -> None:
        call = self._begin(back, "ask")
        self._asking[call.number] = call
        async with self._judged(call):
            found = await self.client.call_tool(back.tool("ask"), {"number": call.number})
            self._enter(call, found)
        del self._asking[call.number]

    async def work(self, back: Back) -> None:
        """Have a call made as a task."""
        call = self._begin(back, "work")
        async with self._judged(call):
            given = {"number": call.number, "token": call.token, "seconds": self._chance.uniform(0.0, 1.0)}
            handle = await self.client.call_tool_as_task(back.tool("work"), given, ttl=60.0)
            self._enter(call, await handle.wait())

    async def cancel(self, back: Back) -> None:
        call = self._begin(back, "hold")
        runs = asyncio.Event()
        async with self._judged(call):
            made = asyncio.ensure_future(
                self.client.call_tool(back.tool("hold"), {"number": call.number}, on_progress=lambda params: runs.set())
            )
            running = asyncio.ensure_future(runs.wait())
            try:
                await asyncio.wait({made, running}, return_when=asyncio.FIRST_COMPLETED)
                if made.done():
                    self._enter(call, made.result())
                else:
                    self._ledger.cancel(call)
            finally:
                made.cancel()
                running.cancel()
                await asyncio.wait({made, running})

    async def account(self, back: Back) -> None:
        """Call with the account of the user."""
        call = self._ledger.begin(SECRETS[self.user], back.name, "account", self.name)
        async with self._judged(call):
            self._enter(call, await self.client.call_tool(back.tool("account"), {"number": call.number}))

    async def lists(self, backs: list[Back]) -> None:
        """Read all lists: the components of every server that is well are in them."""
        began = time.monotonic()
        try:
            tools = {tool.name for tool in await self.client.list_tools()}
            prompts = {prompt.name for prompt in await self.client.list_prompts()}
            await self.client.list_resources()
        except ToolwireError as error:
            self._ledger.problem("lists", f"{self.name}: {error!r}")
            return
        for back in backs:
            is_there = back.tool("echo") in tools and back.tool("greeting") in prompts
            if not is_there and not self._ledger.may_fail(back.name, began, time.monotonic()):
                self._ledger.problem("lists", f"{back.name} is missing in the lists of {self.name}")

    async def read(self, back: Back) -> None:
        call = self._begin(back, "read")
        try:
            found = await self.client.read_resource(f"{back.name}://{call.token}")
            prompt = await self.client.get_prompt(back.tool("greeting"), {"token": call.token})
        except ToolwireError as error:
            if not self._ledger.may_fail(back.name, call.began, time.monotonic()):
                self._ledger.problem("failed", f"{call.name}: {error!r}")
            return
        if call.token not in repr(found) or call.token not in repr(prompt):
            self._ledger.problem("wrong result", f"{call.name} has {found!r}, {prompt!r}")


def answer_to(message: str, asking: dict[int, Call], ledger: Ledger, client: str) -> str:
    """Answer a question about a call of this client with half of the token. A question for another client is wrong."""
    found = _QUESTION.fullmatch(message)
    call = asking.get(int(found.group(2))) if found else None
    if found is None or call is None:
        ledger.problem("wrong question", f"{client} was asked {message!r}")
        return "nothing"
    middle = len(call.token) // 2
    return call.token[:middle] if found.group(1) == "first" else call.token[middle:]


# --- raw HTTP ---------------------------------------------------------------------------------------------------------


class RawCaller:
    """A client that writes HTTP by hand, with a connection of its own for everything it does."""

    def __init__(self, port: int, ledger: Ledger, chance: random.Random) -> None:
        self._port = port
        self._ledger = ledger
        self._chance = chance
        self._last_id = 0

    def _begin(self, back: Back, kind: str, era: str) -> Call:
        return self._ledger.begin(secrets.token_hex(8), back.name, kind, f"a raw {era} client")

    def _message(self, method: str, params: Message) -> Message:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    # --- 2026-07-28 ---

    def _modern(self, method: str, params: Message, capabilities: Message | None = None, **meta: Any) -> bytes:
        message = self._message(method, {**params, "_meta": {**modern_meta(capabilities), **meta}})
        headers = {**_POST, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        return post(json.dumps(message).encode(), headers)

    async def _answered(self, connection: Connection, asked: dict[int, Call] | None = None) -> Message:
        """Return the response on a connection: as it is, or at the end of a stream."""
        status, headers = await connection.head()
        if headers.get("content-type") == "text/event-stream":
            *_, last = [message async for message in connection.events()]
        else:
            last = json.loads(await connection.reader.readexactly(int(headers.get("content-length", 0))) or b"null")
        if not isinstance(last, dict):
            raise ValueError(f"HTTP {status}: {last}")
        return last

    def _enter(self, call: Call, answer: Message) -> None:
        """Note how a call ended."""
        if "error" in answer:
            self._ledger.error(call, answer["error"]["message"])
        elif answer["result"].get("isError"):
            self._ledger.error(call, answer["result"]["content"][0]["text"])
        else:
            self._ledger.result(call, answer["result"]["content"][0]["text"])

    async def echo(self, back: Back) -> None:
        call = self._begin(back, "echo", "modern")
        with _breaks(self._ledger, call):
            async with connected(self._port) as connection:
                given = {"number": call.number, "token": call.token}
                connection.send(self._modern("tools/call", {"name": back.tool("echo"), "arguments": given}))
                self._enter(call, await self._answered(connection))

    async def ask(self, back: Back) -> None:
        call = self._begin(back, "ask", "modern")
        asking = {call.number: call}
        params: Message = {"name": back.tool("ask"), "arguments": {"number": call.number}}
        more: Message = {}
        with _breaks(self._ledger, call):
            async with connected(self._port) as connection:
                while True:
                    connection.send(self._modern("tools/call", {**params, **more}, {"elicitation": {"form": {}}}))
                    answer = await self._answered(connection)
                    result = answer.get("result", {})
                    if result.get("resultType") != "input_required":
                        break
                    answers = {
                        key: _accepted(answer_to(asked["params"]["message"], asking, self._ledger, call.client))
                        for key, asked in result["inputRequests"].items()
                    }
                    more = {"requestState": result["requestState"], "inputResponses": answers}
                self._enter(call, answer)

    async def leave_a_call(self, back: Back) -> None:
        """Go away in the middle of a stream, which cancels the call."""
        call = self._begin(back, "steps", "modern")
        self._ledger.leave(call)
        async with connected(self._port) as connection:
            params = {"name": back.tool("steps"), "arguments": {"number": call.number, "token": call.token}}
            connection.send(self._modern("tools/call", params, progressToken=call.number))
            if self._chance.random() < 0.7:
                await connection.head()

    async def leave_a_question(self, back: Back) -> None:
        """Be asked, and never come back."""
        call = self._begin(back, "ask", "modern")
        self._ledger.leave(call)
        async with connected(self._port) as connection:
            params = {"name": back.tool("ask"), "arguments": {"number": call.number}}
            connection.send(self._modern("tools/call", params, {"elicitation": {"form": {}}}))
            await connection.head()

    async def leave_an_upload(self, back: Back) -> None:
        async with connected(self._port) as connection:
            params = {"name": back.tool("echo"), "arguments": {"number": 0, "token": "never whole"}}
            connection.send(self._modern("tools/call", params)[:-20])
            await asyncio.sleep(0.02)

    # --- sessions ---

    async def _open(self, connection: Connection) -> dict[str, str]:
        identity = {"name": "raw", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": identity}
        connection.send(post(json.dumps(self._message("initialize", params)).encode(), _POST))
        status, headers, body = await connection.answer()
        if status != 200:
            raise ValueError(f"initialize: HTTP {status}: {body!r}")
        session = {**_POST, "Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
        await self._notify(connection, session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session

    async def _notify(self, connection: Connection, session: dict[str, str], message: Message) -> None:
        connection.send(post(json.dumps(message).encode(), session))
        status, _, body = await connection.answer()
        if status != 202:
            raise ValueError(f"{message}: HTTP {status}: {body!r}")

    async def session(self, back: Back) -> None:
        """Open a session, be asked, cancel a call, and end the session."""
        asked, cancelled = self._begin(back, "ask", "legacy"), None
        with _breaks(self._ledger, asked):
            async with connected(self._port) as connection, connected(self._port) as other:
                session = await self._open(other)
                params: Message = {"name": back.tool("ask"), "arguments": {"number": asked.number}}
                connection.send(post(json.dumps(self._message("tools/call", params)).encode(), session))
                self._enter(asked, await self._answering(connection, other, session, asked))
                cancelled = self._begin(back, "hold", "legacy")
        if cancelled is None:
            return
        with _breaks(self._ledger, cancelled):
            async with connected(self._port) as connection, connected(self._port) as other:
                params = {"name": back.tool("hold"), "arguments": {"number": cancelled.number}}
                message = self._message("tools/call", {**params, "_meta": {"progressToken": cancelled.number}})
                connection.send(post(json.dumps(message).encode(), session))
                await self._cancelling(connection, other, session, cancelled, message["id"])
                other.send(f"DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{_lines(session)}\r\n\r\n".encode())
                await other.answer()

    async def _answering(
        self, connection: Connection, other: Connection, session: dict[str, str], call: Call
    ) -> Message:
        """Answer the questions of a call, and return its response."""
        _, headers = await connection.head()
        if headers.get("content-type") != "text/event-stream":
            answer: Message = json.loads(await connection.reader.readexactly(int(headers["content-length"])))
            return answer
        last: Message = {}
        async for last in connection.events():
            if last.get("method") == "elicitation/create":
                text = answer_to(last["params"]["message"], {call.number: call}, self._ledger, call.client)
                await self._notify(other, session, {"jsonrpc": "2.0", "id": last["id"], "result": _accepted(text)})
        return last

    async def _cancelling(
        self, connection: Connection, other: Connection, session: dict[str, str], call: Call, request: int
    ) -> None:
        """Cancel a call once it runs."""
        _, headers = await connection.head()
        if headers.get("content-type") != "text/event-stream":
            self._enter(call, json.loads(await connection.reader.readexactly(int(headers["content-length"]))))
            return
        async for message in connection.events():
            if message.get("method") == "notifications/progress":
                self._ledger.cancel(call)
                params = {"requestId": request}
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                await self._notify(other, session, note)
            elif "method" not in message and not call.left:
                self._enter(call, message)

    async def leave_a_session(self, back: Back) -> None:
        """Leave a session without a word: an idle one, or one with a call or a question."""
        call = self._begin(back, self._chance.choice(("echo", "steps", "ask")), "legacy")
        self._ledger.leave(call)
        async with connected(self._port) as connection:
            session = await self._open(connection)
            given: Message = {"number": call.number, "token": call.token}
            if call.kind == "ask":
                del given["token"]
            params = {"name": back.tool(call.kind), "arguments": given}
            connection.send(post(json.dumps(self._message("tools/call", params)).encode(), session))
            if self._chance.random() < 0.7:
                await connection.head()


class _breaks:
    """Note an answer that breaks off, or is none."""

    def __init__(self, ledger: Ledger, call: Call) -> None:
        self._ledger = ledger
        self._call = call

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if isinstance(error, (OSError, EOFError, ValueError, KeyError)):
            self._ledger.broken(self._call, repr(error))
            return True
        return False


def _accepted(text: str) -> Message:
    return {"action": "accept", "content": {"value": text}}


def _lines(headers: dict[str, str]) -> str:
    return "\r\n".join(f"{name}: {value}" for name, value in headers.items())


# --- all of them ------------------------------------------------------------------------------------------------------


class Traffic:
    """All clients: they do so many things a second, at random, whether or not the ones before have ended."""

    def __init__(self, url: str, port: int, ledger: Ledger, backs: list[Back], rate: float) -> None:
        self._ledger = ledger
        self.backs = backs
        self._rate = rate
        self._chance = random.Random(11)
        self._callers = [
            Caller(user, url, revision, ledger, self._chance) for user in USERS for revision in (MODERN, LEGACY)
        ]
        self._raw = RawCaller(port, ledger, self._chance)
        self._listened = list(backs)
        self._listeners = [Listener(revision, url, ledger) for revision in (MODERN, LEGACY)]
        self._pending: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        for caller in self._callers:
            await caller.client.connect()
        for listener in self._listeners:
            await listener.open([back.name for back in self._listened])

    async def close(self) -> None:
        tasks = [*self._pending, *([self._ticking] if self._ticking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            await listener.close()
        for caller in self._callers:
            await caller.client.close()

    def begin(self) -> None:
        self._ticking = asyncio.create_task(self._tick())

    async def pause(self) -> None:
        """Begin nothing new, and wait until everything has come to its end."""
        assert self._ticking is not None
        self._ticking.cancel()
        await asyncio.wait({self._ticking})
        if self._pending:
            _, pending = await asyncio.wait(self._pending, timeout=PATIENCE + 10)
            if pending:
                self._ledger.problem("no end", f"{len(pending)} things that clients did, such as {pending.pop()}")

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            task = loop.create_task(self._something())
            self._pending.add(task)
            task.add_done_callback(self._done)
            # A busy machine gets fewer calls, and a moment in which it was busy is not made up for.
            at = max(at + stretched(1 / self._rate), loop.time() - 1.0)
            await asyncio.sleep(max(0.0, at - loop.time()))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ledger.problem("client", repr(error))

    def _something(self) -> Awaitable[None]:
        """Choose what is done, and at which server."""
        caller, raw = self._chance.choice(self._callers), self._raw
        # A legacy server over stdio has a process for each conversation.
        weights = [1 if back.name == "oldchild" else 4 for back in self.backs]
        [back] = self._chance.choices(self.backs, weights)
        if isinstance(back, AccountBack):
            return caller.account(back)
        does: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (40, lambda: caller.echo(back)),
            (10, lambda: caller.steps(back)),
            (6, lambda: caller.ask(back)),
            (5, lambda: caller.work(back)),
            (4, lambda: caller.cancel(back)),
            (3, lambda: caller.lists(self.backs)),
            (4, lambda: caller.read(back)),
            (10, lambda: raw.echo(back)),
            (3, lambda: raw.ask(back)),
            (3, lambda: raw.leave_a_call(back)),
            (0.1, lambda: raw.leave_a_question(back)),
            (1, lambda: raw.leave_an_upload(back)),
        ]
        if isinstance(back, HttpBack):
            does += [(4, lambda: raw.session(back)), (0.1, lambda: raw.leave_a_session(back))]
        [chosen] = self._chance.choices([do for _, do in does], [weight for weight, _ in does])
        return chosen()

    async def touch_all(self) -> None:
        """Change an item of each server, and wait until every listener was told."""
        caller = self._callers[0].client
        wanted: set[str] = set()
        for listener in self._listeners:
            listener.forget()
        for back in self._listened:
            if isinstance(back, AccountBack) or (isinstance(back, StdioBack) and back.revision is not None):
                continue  # Each user or conversation has a process of its own, which knows nothing of the others.
            began = time.monotonic()
            try:
                await caller.call_tool(back.tool("touch"), {"item": ITEM})
                wanted.add(f"{back.name}://{ITEM}")
            except ToolwireError as error:
                if not self._ledger.may_fail(back.name, began, time.monotonic()):
                    self._ledger.problem("failed", f"touch at {back.name}: {error!r}")
        for listener in self._listeners:
            await listener.told(wanted)

    # --- changes of the file ---

    def begin_long_calls(self) -> list[asyncio.Task[None]]:
        """Make a call at each server that is well which takes some seconds, and which nothing may cut off."""
        well = [back for back in self.backs if not back.shaky and not isinstance(back, AccountBack)]
        return [
            asyncio.create_task(caller.steps(back, 1.0, strict=True)) for caller in self._callers[:2] for back in well
        ]

    async def until_applied(self) -> None:
        """Wait until the tools in the list are those of the servers in the file."""
        wanted = {back.tool(name) for back in self.backs for name in TOOLS if not back.shaky}
        shaky = {back.tool(name) for back in self.backs for name in TOOLS if back.shaky}
        found: set[str] = set()
        try:
            async with asyncio.timeout(stretched(APPLY_SECONDS)):
                while (found := {tool.name for tool in await self._callers[0].client.list_tools()} - shaky) != wanted:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self._ledger.problem("not applied", f"missing {sorted(wanted - found)}, too many {sorted(found - wanted)}")


ITEM = "one"
TOOLS = ("echo", "steps", "ask", "work", "hold", "account", "touch")


class Listener:
    """A client that listens for changes of an item of each server."""

    def __init__(self, revision: str, url: str, ledger: Ledger) -> None:
        self._revision = revision
        self._url = url
        self._ledger = ledger
        self._heard: set[str] = set()
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def open(self, names: list[str]) -> None:
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen([f"{name}://{ITEM}" for name in names], ready))
        async with asyncio.timeout(30.0):
            await ready.wait()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, uris: list[str], ready: asyncio.Event) -> None:
        key = KEYS["listener"]
        async with Client(self._url, revision=self._revision, auth=key, timeout=PATIENCE, cache=False) as client:
            while True:
                try:
                    async with client.listen(resources=uris) as subscription:
                        ready.set()
                        async for change in subscription:
                            if change.uri is not None:
                                self._heard.add(change.uri)
                                self._changed.set()
                except ToolwireError as error:
                    self._ledger.problem("listening", f"the stream of {self._revision} ended: {error!r}")
                await asyncio.sleep(0.2)

    def forget(self) -> None:
        self._heard.clear()

    async def told(self, wanted: set[str]) -> None:
        """Wait until all of these changes were heard."""
        try:
            async with asyncio.timeout(stretched(TOLD_SECONDS)):
                while not wanted <= self._heard:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._ledger.problem("not told", f"the listener of {self._revision} of {sorted(wanted - self._heard)}")
