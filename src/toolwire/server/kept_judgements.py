"""Judgements whose calls are named by a client: the name has a mark, and the store has the judgement.

Clients can read the names of tasks, and may not know the masks of a server. So a name has only a mark of the judgement,
made with the secret of the server. Equal judgements have the same mark, on every replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from toolwire.protocol.errors import BAD_JSON, ToolwireError
from toolwire.protocol.sealing import Sealer
from toolwire.server.judgements import Judgement
from toolwire.stores import Stores
from toolwire.util.expiring import Expiring

log: logging.Logger = logging.getLogger("toolwire.server")

#: How many judgements this process remembers, and for how many seconds a judgement is kept.
MAX_REMEMBERED: Final = 4096
KEPT_SECONDS: Final = 2 * 86_400.0
# After so many seconds the store gets a judgement again that is still used.
_RENEW_SECONDS: Final = KEPT_SECONDS / 4
_MARK_LENGTH: Final = 24
_CONTEXT: Final = b"judgement/"

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Judgement).decode


class KeptJudgements:
    """The judgements of one server, by their marks."""

    def __init__(self, server: str, signer: Sealer, stores: Callable[[], Stores]) -> None:
        self._prefix = f"toolwire:judgement:{server}:"
        self._signer = signer
        self._stores = stores
        self._known: Expiring[str, Judgement] = Expiring(MAX_REMEMBERED)
        self._stored: Expiring[str, None] = Expiring(MAX_REMEMBERED)

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
        data = await self._stores().kv.get(self._prefix + mark)
        try:
            found = None if data is None else _decode(data)
        except BAD_JSON:
            return None
        if found is not None:
            self._known.put(mark, found)
        return found
