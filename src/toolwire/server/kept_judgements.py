"""Judgements of calls whose results are at an upstream, or at the client.

Clients can read the names of tasks, and may not know the masks of a server. So a name has only a mark of the judgement,
made with the secret of the server, and the store has the judgement. Equal judgements have the same mark, on every
replica. The judgement of a kept result of an upstream is found by its URI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.sealing import Sealer
from toolwire.server.judgements import Judgement
from toolwire.stores import Stores
from toolwire.util.expiring import Expiring

log: logging.Logger = logging.getLogger("toolwire.server")

#: How many judgements this process remembers, and for how many seconds a judgement is kept.
MAX_REMEMBERED: Final = 4096
KEPT_SECONDS: Final = 2 * 86_400.0
# After so many seconds the store gets a judgement again that is still used.
_RENEW_SECONDS: Final = 600.0
_MARK_LENGTH: Final = 24
#: How many kept results of upstreams this process remembers, and for how many seconds.
MAX_RESULTS: Final = 10_000
RESULT_SECONDS: Final = 660.0
# The record of a result may be written at the moment in which another process reads it.
_SETTLE_SECONDS: Final = 0.2
_CONTEXT: Final = b"judgement/"

_encode = msgspec.json.encode
_decode = decoder_of(Judgement).decode


class KeptJudgements:
    """The judgements of one server, by their marks."""

    def __init__(self, server: str, signer: Sealer, stores: Callable[[], Stores]) -> None:
        self._prefix = f"toolwire:judgement:{server}:"
        self._signer = signer
        self._stores = stores
        self._known: Expiring[str, Judgement] = Expiring(MAX_REMEMBERED)
        self._stored: Expiring[str, None] = Expiring(MAX_REMEMBERED)
        self._results: Expiring[str, Judgement] = Expiring(MAX_RESULTS)
        self._writing: set[asyncio.Task[None]] = set()

    def mark_of(self, judgement: Judgement) -> str:
        """Return the mark of a judgement. It says nothing about the judgement."""
        return self._signer.seal(b"", _CONTEXT + _encode(judgement))[-_MARK_LENGTH:]

    async def keep(self, judgement: Judgement) -> str:
        """Keep a judgement in the store; return its mark."""
        mark = self.mark_of(judgement)
        self._known.put(mark, judgement)
        if mark not in self._stored:
            try:
                await self._stores().kv.put(self._prefix + mark, _encode(judgement), ttl=KEPT_SECONDS)
                self._stored.put(mark, None, _RENEW_SECONDS)
            except ToolwireError as error:
                # A process under the same policies computes it again.
                log.warning("what was decided about a call is kept by this process only: %s", error)
        return mark

    async def find(self, mark: str) -> Judgement | None:
        """Return the judgement with a mark; None for one that is not kept. Raise `ToolwireError` if the store fails."""
        known = self._known.use(mark)
        if known is not None:
            return known
        found = await self._read(mark)
        if found is not None:
            self._known.put(mark, found)
        return found

    def keep_result(self, owner: str, uri: str, judgement: Judgement) -> None:
        """Keep the judgement of a call with the URI of its result. The store gets it in the background."""
        key = _result_key(owner, uri)
        self._results.put(key, judgement, RESULT_SECONDS)
        task = asyncio.get_running_loop().create_task(self._write_result(key, judgement))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def find_result(self, owner: str, uri: str) -> Judgement | None:
        """Return the judgement of the call that made a result; None for one that is not known."""
        key = _result_key(owner, uri)
        known = self._results.get(key)
        if known is None and (known := await self._read(key)) is None:
            await asyncio.sleep(_SETTLE_SECONDS)
            known = await self._read(key)
        return known

    async def _read(self, key: str) -> Judgement | None:
        data = await self._stores().kv.get(self._prefix + key)
        try:
            return None if data is None else _decode(data)
        except BAD_JSON:
            log.warning("what was decided about a call cannot be read, so its result is hidden")
            return None

    async def _write_result(self, key: str, judgement: Judgement) -> None:
        try:
            await self._stores().kv.put(self._prefix + key, _encode(judgement), ttl=RESULT_SECONDS)
        except ToolwireError as error:
            log.warning("a kept result can be read by this process only: %s", error)


def _result_key(owner: str, uri: str) -> str:
    return f"result/{digest(owner, uri)}"
