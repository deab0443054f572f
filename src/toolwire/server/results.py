"""Shapes the results of a server for the revision of their request."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.shaping import shape


class Results:
    """Shapes results, and adds the name of the server to modern ones (META-8)."""

    def __init__(self, implementation: t.Implementation) -> None:
        self._server_info = {t.SERVER_INFO_KEY: shape(implementation, MODERN)}
        # Encoded once, because nearly every result has it.
        self._meta = Raw(msgspec.json.encode(self._server_info))

    def sign(self, result: t.Result) -> None:
        """Name the server in a modern result."""
        if result.meta is UNSET:
            result.meta = self._meta
        elif isinstance(result.meta, dict):
            result.meta = {**self._server_info, **result.meta}

    def finish(self, revision: str, result: Any) -> Any:
        """Return a result in the form of its revision."""
        if isinstance(result, t.Result):
            if revision == MODERN:
                self.sign(result)
                if type(result) is t.CallToolResult:
                    result.result_type = "complete"
                    return result  # 2026-07-28 knows all members, so nothing is left out.
            elif type(result) is t.CallToolResult:
                # A middleware may return a result of the other era. It is reset here, because `shape` would copy it.
                result.result_type = UNSET
                if result.meta is self._meta:
                    result.meta = UNSET
            return shape(result, revision)
        if isinstance(result, dict) and revision == MODERN:
            return {"resultType": "complete", **result, "_meta": {**self._server_info, **result.get("_meta", {})}}
        return result
