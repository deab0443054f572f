"""A server of plain JSON for the client's tests: it has any method, on any revision, and checks nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.wire.channel import Channel

Answer = Callable[[dict[str, Any]], Any]


class JsonServer:
    """Answers requests by `answers`, by method: with a result, or with the `ProtocolError` that is raised."""

    name = "json"

    def __init__(
        self,
        answers: Mapping[str, Answer],
        *,
        revision: str = MODERN,
        extensions: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.answers = dict(answers)
        self.revision = revision
        self.capabilities: dict[str, Any] = {"tools": {}, **(capabilities or {})}
        if extensions is not None:
            self.capabilities["extensions"] = dict(extensions)
        self.received: list[dict[str, Any]] = []
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._channel: Channel | None = None
        self._asked: dict[Any, asyncio.Future[dict[str, Any]]] = {}

    async def serve(self, channel: Channel, *, principal: Any = None) -> None:
        self._channel = channel
        try:
            while (data := await channel.read()) is not None:
                message = msgspec.json.decode(data)
                self.received.append(message)
                self._arrived.set()
                if "method" not in message:
                    self._asked.pop(message["id"]).set_result(message)
                elif "id" in message:
                    task = asyncio.get_running_loop().create_task(self._answer(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        finally:
            for task in self._tasks:
                task.cancel()
            await channel.close()

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            result = self._opening(message["method"])
            if result is None:
                answer = self.answers.get(message["method"])
                if answer is None:
                    raise ProtocolError(-32601, f"Method not found: {message['method']}")
                result = answer(message.get("params", {}))
                if isinstance(result, Awaitable):
                    result = await result
        except ProtocolError as error:
            told = t.Error(error.code, error.message, error.data)
            self._send({"id": message["id"], "error": told})
        else:
            self._send({"id": message["id"], "result": result})

    def _opening(self, method: str) -> dict[str, Any] | None:
        if method == "server/discover":
            if self.revision != MODERN:
                raise ProtocolError(-32601, "Method not found")
            return {
                "supportedVersions": [MODERN],
                "capabilities": self.capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "initialize":
            info = {"name": self.name, "version": "1"}
            return {"protocolVersion": self.revision, "capabilities": self.capabilities, "serverInfo": info}
        return {} if method == "ping" else None

    def _send(self, message: dict[str, Any]) -> None:
        assert self._channel is not None
        self._channel.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self._send({"method": method, **({} if params is None else {"params": params})})

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the client, as servers did before 2026-07-28, and return the answer."""
        identifier = f"q{len(self._asked)}"
        self._asked[identifier] = asyncio.get_running_loop().create_future()
        self._send({"id": identifier, "method": method, "params": params})
        return await self._asked[identifier]

    async def until(self, method: str) -> dict[str, Any]:
        """Return the first message of this method, past or future."""
        while True:
            for message in self.received:
                if message.get("method") == method:
                    return message
            self._arrived.clear()
            await self._arrived.wait()

    def params(self, method: str) -> list[dict[str, Any]]:
        """Return the params of every message of this method."""
        return [message.get("params", {}) for message in self.received if message.get("method") == method]
