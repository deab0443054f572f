"""What may be sent a second time when the first time was lost, and what may not.

A call whose outcome is unknown may have run. Only what changes nothing, or changes nothing more the second time, is
repeated, and once (2026-07-28 basic/transports/streamable-http: a broken stream loses its request).
"""

from __future__ import annotations

from typing import Final

from toolwire.client.connection import Connection
from toolwire.client.reconnect import is_passing
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, TransportError, Unreachable

#: Requests that only read, by definition of the protocol.
READING: Final = frozenset(
    {
        "server/discover",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)


def may_repeat(error: TransportError, connection: Connection, method: str, params: t.RequestParams) -> bool:
    """Return whether a request that failed with `error` may be sent again."""
    if isinstance(error, Unreachable):
        # It never reached the server, or the server turned it away before it did anything.
        return is_passing(error)
    if not isinstance(error, OutcomeUnknown):
        return False
    if method == "tools/call" and isinstance(params, t.CallToolRequestParams):
        return connection.tools.is_repeatable(params.name)
    return method in READING
