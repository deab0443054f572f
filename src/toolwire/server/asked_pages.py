"""`AskedPages`: the pages that servers behind this one asked each caller to open, on all replicas.

A server may say that a page is done, to the caller whom it asked and to no other. It may say so to another replica than
the one that handed the question on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.server.call import Call
from toolwire.server.named_uris import NamedUris
from toolwire.server.replay_state import limit_key
from toolwire.stores import MemoryKV

log: logging.Logger = logging.getLogger("toolwire.server")

#: For how many seconds the other replicas know that a caller was asked.
PAGE_SECONDS: Final = 3600.0
#: How many records are looked up or written at a time. A server may invent any number of pages.
MAX_AT_ONCE: Final = 100
_SETTLE_SECONDS: Final = 0.2


class AskedPages:
    """The ids of pages, by the server that asked and by the caller."""

    def __init__(self, server: str) -> None:
        """`server` is the name of the server that the callers use."""
        self._server = server
        self._known = NamedUris()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, call: Call, identifier: str) -> None:
        """Remember that the server of a call asked its caller to open a page."""
        is_new = self._known.add(call.server.name, limit_key(call), digest(identifier))
        if is_new and not isinstance(call.host.stores.kv, MemoryKV):
            self._begin(self._share(call, identifier))

    def tell_if_asked(self, call: Call, identifier: str, tell: Callable[[], Any]) -> None:
        """Call `tell`, at once or soon, if the server of a call asked its caller to open a page at any replica."""
        if self._known.has(call.server.name, limit_key(call), [digest(identifier)]):
            tell()
        elif not isinstance(call.host.stores.kv, MemoryKV):
            self._begin(self._tell_later(call, identifier, tell))

    async def _share(self, call: Call, identifier: str) -> None:
        try:
            await call.host.stores.kv.put(self._key(call, identifier), b"", ttl=PAGE_SECONDS)
        except ToolwireError as error:
            log.warning("the end of a page can be told by this process only: %s", error)

    async def _tell_later(self, call: Call, identifier: str, tell: Callable[[], Any]) -> None:
        try:
            for pause in (0.0, _SETTLE_SECONDS):
                # The record may be written at the moment in which this process reads it.
                await asyncio.sleep(pause)
                if await call.host.stores.kv.get(self._key(call, identifier)) is not None:
                    tell()
                    return
        except ToolwireError as error:
            log.warning("the end of a page cannot be told: %s", error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= MAX_AT_ONCE:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _key(self, call: Call, identifier: str) -> str:
        return f"toolwire:page:{self._server}:{digest(call.server.name, limit_key(call), identifier)}"
