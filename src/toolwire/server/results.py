"""Shapes the results of a server for the revision of their request."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.open_codec import exact_meta, has_unknown
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.shaping import shape
from toolwire.server.call import CURRENT
from toolwire.server.call_target import target_of
from toolwire.server.deep_results import SHALLOW_BYTES, is_deep, leave_out_structured


class Results:
    """Shapes results, and adds the name of the server to modern ones (META-8)."""

    def __init__(self, implementation: t.Implementation) -> None:
        self.introduce(implementation)

    def introduce(self, implementation: t.Implementation) -> None:
        """Name the server by these words from now on."""
        self._server_info = {t.SERVER_INFO_KEY: shape(implementation, MODERN)}
        self.signature: bytes = msgspec.json.encode(self._server_info[t.SERVER_INFO_KEY])
        """The name of the server as JSON, for components that write their results themselves."""
        # Encoded once, because nearly every result has it.
        self._meta = Raw(msgspec.json.encode(self._server_info))

    def sign(self, result: t.Result) -> None:
        """Name the server in a modern result."""
        if result.meta is UNSET:
            result.meta = self._meta
        elif isinstance(result.meta, dict):
            result.meta = {**self._server_info, **(exact_meta(result) if result.__dict__ else result.meta)}

    def finish(self, revision: str, result: Any, *, is_open: bool = True) -> Any:
        """Return a result in the form of its revision.

        `is_open=False`: a `CallToolResult` comes from the converter of a tool, which makes an `OpenResult` where there
        are members that the types do not know. So nobody has to look for them.
        """
        structured = getattr(result, "structured_content", None)
        if structured and (type(structured) is not Raw or len(structured) > SHALLOW_BYTES):
            if is_deep(structured):
                leave_out_structured(result, _promises_structured())
        elif type(result) is dict and is_deep(result.get("structuredContent")):
            result = t.decode(t.CallToolResult, t.encode(result))
            leave_out_structured(result, _promises_structured())
        if isinstance(result, t.Result):
            is_closed = type(result) is t.CallToolResult and not is_open
            if revision == MODERN:
                self.sign(result)
                if isinstance(result, t.CallToolResult):
                    result.result_type = "complete"
                    if is_closed:
                        return result  # 2026-07-28 knows all members, so nothing is left out.
            elif isinstance(result, t.CallToolResult):
                # A middleware may return a result of the other era. It is reset here, because `shape` would copy it.
                result.result_type = UNSET
                if result.meta is self._meta:
                    result.meta = UNSET
            shaped = shape(result, revision)
            return shaped if is_closed else _whole(shaped)
        if isinstance(result, dict):
            if revision == MODERN:
                meta = {**self._server_info, **_meta_in(result)}
                return _whole({"resultType": "complete", **result, "_meta": meta})
            return _whole(result)
        return result


def _promises_structured() -> bool:
    """Return whether the tool of the running call has an output schema."""
    call = CURRENT.get(None)
    target = None if call is None or call.method != "tools/call" else target_of(call)
    return (
        target is not None and target.found is not None and bool(getattr(target.found.component, "output_schema", None))
    )


def _whole(result: Any) -> Any:
    """Return a result that the plain encoder writes with every member, known or not."""
    return Raw(t.encode(result)) if has_unknown(result) else result


def _meta_in(members: dict[str, Any]) -> dict[str, Any]:
    meta = members.get("_meta")
    return msgspec.json.decode(meta, type=dict[str, Raw]) if isinstance(meta, Raw) else meta or {}
