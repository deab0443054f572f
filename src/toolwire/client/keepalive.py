"""Pings that keep an idle connection open, and find out that a server no longer answers.

2024-11-05 to 2025-11-25 basic/utilities/ping: a connection without an answer may be regarded as stale and be opened
again. 2026-07-28 has no `ping`: `server/discover` takes its place there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Timeout, TransportError

if TYPE_CHECKING:
    from toolwire.client.connection import ClientConnection

log: logging.Logger = logging.getLogger("toolwire.client")


async def keep_alive(connection: ClientConnection, interval: float) -> None:
    """Ping the server every `interval` seconds. Close the connection when a ping stays without an answer.

    The next operation of the client opens a new connection.
    """
    while not connection.ended:
        await asyncio.sleep(interval)
        try:
            await connection.check(interval)
        except ProtocolError:
            continue  # An error is an answer, too.
        except (Timeout, TransportError) as error:
            if connection.ended:
                return
            log.warning("%s does not answer pings, so the connection is closed: %s", connection.link.label, error)
            await connection.close_stale(OutcomeUnknown(f"The server did not answer a ping for {interval:g} seconds"))
