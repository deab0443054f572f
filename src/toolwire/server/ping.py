"""Pings to the clients of legacy connections, to notice those that are gone without a word, and pings of modern hosts.

2025-11-25 basic/utilities/ping: either side may ask, and may close a connection that does not answer. HTTP has no use
for it, since its streams are kept alive by comments. 2026-07-28 has no pings, but hosts of views send them.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, Timeout, ToolwireError
from toolwire.protocol.lifecycle import ServerLifecycle
from toolwire.protocol.methods import Method
from toolwire.protocol.revisions import MODERN
from toolwire.server.context import Context
from toolwire.server.extensions import Extension, ExtensionMethod
from toolwire.wire.session import Session

log: logging.Logger = logging.getLogger("toolwire.server")


class Pinging:
    """The pings of one connection: one every `seconds`. Each has to be answered within the same time."""

    def __init__(self, session: Session, seconds: float) -> None:
        self._session = session
        self._seconds = seconds
        self._asking: asyncio.Task[None] | None = None
        self._timer = session.loop.call_later(seconds, self._begin)

    def stop(self) -> None:
        self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _begin(self) -> None:
        lifecycle = self._session.peer.lifecycle
        if isinstance(lifecycle, ServerLifecycle) and lifecycle.era == "modern":
            return
        self._timer = self._session.loop.call_later(self._seconds, self._begin)
        # 1.3.1.4 allows pings before `initialized`, but a client whose revision is not known yet may be a modern one.
        if isinstance(lifecycle, ServerLifecycle) and lifecycle.ready and self._asking is None:
            self._asking = self._session.loop.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            await self._session.request("ping", UNSET, timeout=self._seconds)
        except Timeout:
            log.warning("a client did not answer a ping within %g seconds: its connection is closed", self._seconds)
            self._timer.cancel()
            self._session.end()
        except ProtocolError:
            pass  # A client that answers is there, whatever it answers.
        except ToolwireError:
            self._timer.cancel()
        finally:
            self._asking = None


# --- Hosts of views on 2026-07-28 -------------------------------------------------------------------------------------


def answer_ping(extension: Extension) -> None:
    """Let the extension of views answer `ping` on 2026-07-28, for requests that declare the extension.

    2026-07-28 has no ping, but hosts ping, and some show no view without an answer (ext-apps, issue 671). A request
    that does not declare the extension is told that there is no such method, as that revision demands.
    """
    extension.rows["ping"] = Method(
        name="ping",
        kind="request",
        sender="client",
        params=t.RequestParams,
        result=t.EmptyResult,
        capability=extension.capability,
        client_capability=extension.capability,
        revisions=frozenset({MODERN}),
    )
    extension.methods["ping"] = ExtensionMethod(extension, "ping", t.RequestParams, _pong)


def refuse_ping(extension: Extension) -> None:
    """Let `ping` on 2026-07-28 be a method that there is not, for everybody."""
    extension.rows.pop("ping", None)
    extension.methods.pop("ping", None)


async def _pong(params: t.RequestParams, ctx: Context) -> Raw:
    return Raw(b"{}")
