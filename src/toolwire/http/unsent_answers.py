"""Large answers: sent in pieces, and counted for their callers until they are sent.

A large answer stays in memory for as long as its client does not read. `send` of ASGI returns when the server has room
for more, so that nearly all of an answer in pieces is sent when the last `send` returns.

```
less than half of the limit   everything is accepted
half of the limit             further requests are refused, and stalled answers are given up sooner
the limit                     answers of requests that run already are dropped
```

Both hold for one caller, with its share of the limit, and for all callers together. An answer counts from the moment
when it is encoded (`PacedSend.hold`), also while it waits in a queue, for a log or for other answers of its batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from toolwire.http1.asgi_types import SendMessage
from toolwire.protocol.errors import INTERNAL_ERROR
from toolwire.protocol.jsonrpc import RequestId, encode_error
from toolwire.wire.deadlines import in_time
from toolwire.wire.shares import Caller, Shares, Taken

#: An answer up to this size is sent in one piece, and not counted.
PIECE_BYTES: Final = 64 * 1024
#: Bytes of large answers that a process holds until they are sent.
UNSENT_BYTES: int = 512 * 1024 * 1024
#: The seconds in which a client takes a piece: in general, and when requests are refused because of unread answers.
PIECE_SECONDS: float = 30.0
SCARCE_SECONDS: float = 5.0
_WHAT: Final = "bytes of unread answers"
_DROPPED: Final = "The answer was dropped, because too many earlier answers are unread"
_RETRY_SECONDS: Final = 5


def unread(amount: int, *, own: bool = True) -> Taken:
    """Return the refusal of a request, because so many bytes of answers are unread."""
    return Taken(amount, _WHAT, _RETRY_SECONDS, own=own)


class UnsentAnswers:
    """The bytes of large answers that are not sent yet, by caller."""

    __slots__ = ("_half", "_own_half", "shares")

    def __init__(self, share: float) -> None:
        self.shares: Shares = Shares(UNSENT_BYTES, share, _WHAT, seconds=_RETRY_SECONDS)
        self._half = self.shares.limit // 2
        self._own_half = self.shares.own // 2

    def check(self, caller: Caller) -> None:
        """Raise `Taken` for a new request while too many answers are unread."""
        shares = self.shares
        if shares.total < self._own_half:
            return  # Nearly always.
        if caller is not None and shares.held_by(caller) >= self._own_half:
            raise unread(self._own_half)
        if shares.total >= self._half:
            raise unread(self._half, own=False)

    def seconds(self, caller: Caller) -> float:
        """Return the time in which a client has to take the next piece."""
        try:
            self.check(caller)
        except Taken:
            return SCARCE_SECONDS
        return PIECE_SECONDS


class PacedSend:
    """The `send` of one request. It counts large bodies, and sends them in pieces.

    A body that exceeds the limit, or that its client does not read, cancels the request. The server then closes
    the connection, because the answer is not complete.
    """

    __slots__ = ("_caller", "_held", "_send", "_task", "_unsent")

    def __init__(
        self, send: SendMessage, unsent: UnsentAnswers, caller: Caller, task: asyncio.Task[Any] | None = None
    ) -> None:
        """`task` serves the request; None for the current one."""
        self._task = task or asyncio.current_task()
        self._send = send
        self._unsent = unsent
        self._caller = caller
        self._held = 0

    def hold(self, identifier: RequestId | None, answer: bytes) -> bytes:
        """Count an answer from now on; return it, or an error in its place where it has to be dropped."""
        size = len(answer)
        if size > PIECE_BYTES:
            try:
                self._unsent.shares.take(self._caller, size)
            except Taken:
                return encode_error(identifier, INTERNAL_ERROR, _DROPPED)
            self._held += size
        return answer

    def release(self) -> None:
        """Stop counting the answers that wait, which were given up, and let go of the task of the request."""
        self._task = None
        held, self._held = self._held, 0
        if held:
            self._unsent.shares.give_back(self._caller, held)

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        body = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await self._send(message)
            return
        shares, caller = self._unsent.shares, self._caller
        held = min(self._held, len(body))
        self._held -= held
        if held:
            shares.add(caller, len(body) - held)  # The rest of an event, whose answer is counted already.
        else:
            try:
                shares.take(caller, len(body))
            except Taken:
                await self._cut()
                return
        try:
            await self._send_pieces(body, message.get("more_body", False))
        finally:
            shares.give_back(caller, len(body))

    async def _send_pieces(self, body: bytes, more: bool) -> None:
        for start in range(0, len(body), PIECE_BYTES):
            end = start + PIECE_BYTES
            piece = {"type": "http.response.body", "body": body[start:end], "more_body": more or end < len(body)}
            if not await in_time(self._unsent.seconds(self._caller), self._send(piece)):
                await self._cut()
                return

    async def _cut(self) -> None:
        if self._task is not None:
            self._task.cancel()
        # Where this is the task that serves the request, it ends here.
        await asyncio.sleep(0)
