"""The client's end, once the revision is agreed: what it takes of its server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import METHOD_NOT_FOUND, ProtocolError
from toolwire.protocol.jsonrpc import Request
from toolwire.protocol.lifecycle.terms import NOTHING, PONG, Incoming, Unanswerable, decode_params, is_declared
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import MODERN, is_modern


class ClientLifecycle:
    """The rules for messages that a client gets from its server once the revision is agreed."""

    def __init__(
        self,
        capabilities: Callable[[str], dict[str, Any]],
        extension_notification: Callable[[str], Method | None] = lambda method: None,
        extension_request: Callable[[str], Method | None] = lambda method: None,
    ) -> None:
        """Both functions return the row of a message that no revision has; None for one that is not taken."""
        self._capabilities = capabilities
        self._extension_notification = extension_notification
        self._extension_request = extension_request
        self.revision: str | None = None

    @property
    def batches(self) -> bool:
        return self.revision == "2025-03-26"

    def accept(self, request: Request) -> Incoming | t.Wire | dict[str, Any]:
        revision = self.revision
        if revision is None or is_modern(revision):
            # RPC-5, STD-6: a modern server sends no requests, and a client sends no responses.
            raise Unanswerable
        if request.method == "ping":
            return PONG
        row = methods(revision).get(request.method) or self._extension_request(request.method)
        declared = self._capabilities(revision)
        if row is None or row.kind != "request" or row.sender == "client" or not is_declared(declared, row):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method[:200]}")
        params = decode_params(row, request.params)
        token = UNSET if params.meta is UNSET else params.meta.progress_token
        return Incoming(request.id, request.method, row, params, request.params, revision, NOTHING, UNSET, token, UNSET)

    def notice(self, method: str, raw: Raw | UnsetType) -> tuple[Method, Any] | None:
        row = methods(self.revision or MODERN).get(method) or self._extension_notification(method)
        if row is None or row.kind != "notification" or row.sender == "client":
            return None
        try:
            return row, decode_params(row, raw)
        except ProtocolError:
            return None
