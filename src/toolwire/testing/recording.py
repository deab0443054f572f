"""The record of what a client and a server say to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from toolwire.wire.tapped_channel import Direction


class Wire:
    """Every message of a connection, in order, as the client saw it: "→" went to the server, "←" came from it."""

    def __init__(self) -> None:
        self.messages: list[tuple[Direction, dict[str, Any]]] = []
        self._watchers: list[tuple[Callable[[Direction, dict[str, Any]], bool], asyncio.Future[dict[str, Any]]]] = []

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [message for direction, message in self.messages if direction == "→"]

    @property
    def received(self) -> list[dict[str, Any]]:
        return [message for direction, message in self.messages if direction == "←"]

    async def until(self, matches: Callable[[Direction, dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message, past or future, for which `matches(direction, message)` is true."""
        for direction, message in self.messages:
            if matches(direction, message):
                return message
        found: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._watchers.append((matches, found))
        return await found

    def record(self, direction: Direction, data: bytes) -> None:
        try:
            decoded = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            decoded = {"unreadable": data.decode("utf-8", "replace")}
        # A batch of 2025-03-26 is its messages.
        for message in decoded if isinstance(decoded, list) else [decoded]:
            self.messages.append((direction, message))
            for matches, found in self._watchers:
                if not found.done() and matches(direction, message):
                    found.set_result(message)
