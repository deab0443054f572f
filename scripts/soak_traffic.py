"""What clients of `scripts/soak.py` do, good and bad, over plain sockets; and how every request of theirs ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

Message = dict[str, Any]

PATIENCE = 30.0
MODERN = "2026-07-28"
LEGACY = ("2025-03-26", "2025-06-18", "2025-11-25")
PREFIX = "io.modelcontextprotocol/"
META = {
    f"{PREFIX}protocolVersion": MODERN,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": {"name": "soak", "version": "1"},
    f"{PREFIX}logLevel": "info",
}


class Wrong(Exception):
    """The server did something that it should not."""


class Tally:
    """How the requests of a run ended."""

    def __init__(self) -> None:
        self.requests = 0
        self.answered = 0
        self.disconnected = 0
        self.counted_calls = 0
        """Calls of tools that the server counts too."""
        self.cancelled_calls = 0
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []


class Connection:
    """One connection, which carries one request after the other."""

    def __init__(self, tally: Tally, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tally = tally
        self._reader = reader
        self._writer = writer
        self._open = False

    def send(self, verb: str, headers: Mapping[str, str], body: bytes, length: int | None = None) -> None:
        size = str(len(body) if length is None else length)
        lines = [f"{verb} /mcp HTTP/1.1", "Host: localhost", f"Content-Length: {size}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self._tally.requests += 1
        self._open = True

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        pairs = (line.partition(": ") for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], list[Message]]:
        """Status, headers and all messages of one answer."""
        status, headers = await self.head()
        if headers.get("content-type") == "text/event-stream":
            messages = [message async for message in self.events()]
        else:
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
            messages = [json.loads(body)] if body else []
            self.over()
        return status, headers, messages

    async def events(self) -> AsyncIterator[Message]:
        """The messages of a stream, as they come."""
        held = ""
        while size := int(await self._reader.readline(), 16):
            *blocks, held = (held + (await self._reader.readexactly(size)).decode()).split("\n\n")
            await self._reader.readexactly(2)
            for block in blocks:
                data = [line.removeprefix("data:") for line in block.split("\n") if line.startswith("data:")]
                if "".join(data).strip():
                    yield json.loads("\n".join(data))
        await self._reader.readexactly(2)
        self.over()

    def over(self) -> None:
        """The answer is complete."""
        self._open = False
        self._tally.answered += 1

    async def close(self) -> None:
        if self._open:
            self._tally.disconnected += 1
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


class Client:
    """Does one thing after the other, chosen at random."""

    def __init__(self, port: int, tally: Tally, seed: int) -> None:
        self._port = port
        self._tally = tally
        self._random = random.Random(seed)
        self._last_id = 0
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self.calls,
            self.streams,
            self.disconnects,
            self.uploads_half,
            self.sends_garbage,
            self.listens,
            self.uses_a_session,
            self.answers_a_question,
            self.cancels,
            self.abandons_a_session,
        ]

    async def run(self, until: float, pause: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            kind = self._random.choice(self._kinds)
            name = getattr(kind, "__name__", "?")
            try:
                async with asyncio.timeout(PATIENCE):
                    await kind()
                self._tally.kinds[name] += 1
            except Exception as error:
                self._tally.wrong.append(f"{name}: {error!r}")
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        connection = Connection(self._tally, reader, writer)
        try:
            yield connection
        finally:
            await connection.close()

    def _request(self, method: str, params: Message) -> Message:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    # --- 2026-07-28 ---

    def _send_modern(self, connection: Connection, method: str, params: Message) -> Message:
        request = self._request(method, {**params, "_meta": {**META, "progressToken": self._last_id}})
        headers = {**_POST, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
            self._tally.counted_calls += params["name"] in COUNTED
        connection.send("POST", headers, json.dumps(request).encode())
        return request

    async def call(self, connection: Connection, tool: str, **arguments: Any) -> Message:
        """A call of a tool, which is answered exactly once."""
        request = self._send_modern(connection, "tools/call", {"name": tool, "arguments": arguments})
        status, _, messages = await connection.answer()
        return _result(status, messages, request)

    async def calls(self) -> None:
        async with self.connected() as connection:
            for _ in range(self._random.randint(1, 10)):
                result = await self.call(connection, "add", a=1, b=2)
                _check(result["structuredContent"] == 3, result)
            await self.call(connection, "sleep", seconds=0.001)

    async def streams(self) -> None:
        async with self.connected() as connection:
            await self.call(connection, "report")

    async def disconnects(self) -> None:
        """2026-07-28 basic/transports: closing the stream cancels the request."""
        async with self.connected() as connection:
            self._send_modern(connection, "tools/call", {"name": "hold", "arguments": {}})
            await connection.head()
            await anext(connection.events())
        self._tally.cancelled_calls += 1

    async def uploads_half(self) -> None:
        async with self.connected() as connection:
            connection.send("POST", _POST, b'{"jsonrpc": "2.0", "id": 1, ', length=5000)
            await asyncio.sleep(0.01)

    async def sends_garbage(self) -> None:
        async with self.connected() as connection:
            connection.send("POST", _POST, b"\xff" * 100)
            status, _, _ = await connection.answer()
            _check(status == 400, status)

    async def listens(self) -> None:
        async with self.connected() as connection, self.connected() as other:
            uri = f"note://{self._random.random()}"
            self._send_modern(connection, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
            await connection.head()
            events = connection.events()
            await anext(events)
            await self.call(other, "touch", uri=uri)
            update = await anext(events)
            _check(update["method"] == "notifications/resources/updated", update)

    # --- sessions ---

    async def _open_session(self, connection: Connection) -> dict[str, str]:
        revision = self._random.choice(LEGACY)
        identity = {"name": "soak", "version": "1"}
        capabilities: Message = {"elicitation": {}, "sampling": {}}
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": identity}
        request = self._request("initialize", params)
        connection.send("POST", _POST, json.dumps(request).encode())
        status, headers, messages = await connection.answer()
        _result(status, messages, request)
        session = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        await self._post(connection, session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session

    async def _post(self, connection: Connection, session: dict[str, str], message: Message) -> None:
        """Send what has no answer of its own."""
        connection.send("POST", _POST | session, json.dumps(message).encode())
        status, _, _ = await connection.answer()
        _check(status == 202, status)

    def _send_call(self, connection: Connection, session: dict[str, str], tool: str, arguments: Message) -> Message:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        request = self._request("tools/call", params)
        self._tally.counted_calls += tool in COUNTED
        connection.send("POST", _POST | session, json.dumps(request).encode())
        return request

    async def _end_session(self, connection: Connection, session: dict[str, str]) -> None:
        connection.send("DELETE", session, b"")
        status, _, _ = await connection.answer()
        _check(status == 200, status)

    async def uses_a_session(self) -> None:
        async with self.connected() as connection:
            session = await self._open_session(connection)
            for tool, arguments in (("add", {"a": 1, "b": 2}), ("report", {})):
                request = self._send_call(connection, session, tool, arguments)
                status, _, messages = await connection.answer()
                _result(status, messages, request)
            await self._end_session(connection, session)

    async def answers_a_question(self) -> None:
        async with self.connected() as connection, self.connected() as other:
            session = await self._open_session(other)
            if session["MCP-Protocol-Version"] != "2025-03-26":  # It has no elicitation.
                request = self._send_call(connection, session, "ask", {})
                await connection.head()
                messages = []
                async for message in connection.events():
                    messages.append(message)
                    if message.get("method") == "elicitation/create":
                        [field] = message["params"]["requestedSchema"]["properties"]
                        result = {"action": "accept", "content": {field: True}}
                        await self._post(other, session, {"jsonrpc": "2.0", "id": message["id"], "result": result})
                _result(200, messages, request)
            await self._end_session(other, session)

    async def cancels(self) -> None:
        async with self.connected() as connection, self.connected() as other:
            session = await self._open_session(other)
            request = self._send_call(connection, session, "hold", {})
            await connection.head()
            async for message in connection.events():
                _check(message.get("method") == "notifications/progress", message)
                params = {"requestId": request["id"]}
                cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                await self._post(other, session, cancel)
            self._tally.cancelled_calls += 1
            await self._end_session(other, session)

    async def abandons_a_session(self) -> None:
        """Leaves without a word: from an idle session, from its stream, or in the middle of an answer."""
        async with self.connected() as connection:
            session = await self._open_session(connection)
            how = self._random.randrange(3)
            if how == 1:
                connection.send("GET", session | {"Accept": "text/event-stream"}, b"")
                await connection.head()
            elif how == 2:
                self._send_call(connection, session, "report", {})
                await connection.head()
                await anext(connection.events())


#: The tools that the server counts.
COUNTED = frozenset({"add", "report", "hold", "ask", "touch"})

_POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def _check(good: bool, what: Any) -> None:
    if not good:
        raise Wrong(str(what))


def _result(status: int, messages: list[Message], request: Message) -> Message:
    """The one response to a request; there is no other, and nothing comes after it."""
    answers = [message for message in messages if "method" not in message]
    _check(status == 200 and len(answers) == 1 and messages[-1] is answers[0], (status, messages))
    _check(answers[0].get("id") == request["id"] and "result" in answers[0], answers[0])
    result: Message = answers[0]["result"]
    return result
