"""The far end of a channel, played by a test."""

from __future__ import annotations

from typing import Any

import msgspec

from toolwire.wire.channel import memory_pair


class Scripted:
    """The far end of a channel, played by the test."""

    def __init__(self) -> None:
        self.ours, self.theirs = memory_pair()

    async def next(self) -> dict[str, Any]:
        data = await self.theirs.read()
        assert data is not None
        message: dict[str, Any] = msgspec.json.decode(data)
        return message

    def send(self, message: dict[str, Any]) -> None:
        self.theirs.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self.send({"id": request["id"], "result": result})

    def refuse(self, request: dict[str, Any], code: int, **data: Any) -> None:
        self.send({"id": request["id"], "error": {"code": code, "message": "no", **({"data": data} if data else {})}})
