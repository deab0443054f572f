"""Results whose structured content is nested deeper than the reader of a message takes: they leave as text."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.jsonrpc import MAX_DEPTH, too_deep
from toolwire.protocol.surrogates import encode_readable

#: The key of `_meta` with the JSON Pointers of what is left out, or cut, in the structured content. A pointer that ends
#: with `/-` means the items after the last listed one (RFC 6901 section 4). "" means the rest of the answer,
#: whatever it is.
LEFT_OUT: Final = "io.toolwire/left-out"
#: The depth of structured content in a message, which may be the answer about a task, or a part of a batch.
MAX_STRUCTURED_DEPTH: Final = MAX_DEPTH - 3
#: Encoded content of so many bytes is never too deep: each level takes two, one to open it and one to close it.
SHALLOW_BYTES: Final = 2 * MAX_STRUCTURED_DEPTH
_WHY: Final = f"nested more than {MAX_STRUCTURED_DEPTH} levels deep"
NOTE: Final = f"[Left out of the structured content, because the result is {_WHY}: all of it.]"
_REFUSED: Final = (
    f"The call was carried out, but its result is {_WHY}, so it cannot be sent as the structured content that the "
    "tool promises. Its text follows."
)


def is_deep(structured: Any) -> bool:
    """Return whether structured content is nested too deep for a message."""
    if isinstance(structured, Raw):
        return len(structured) > SHALLOW_BYTES and too_deep(bytes(structured), MAX_STRUCTURED_DEPTH)
    if not isinstance(structured, dict | list):
        return False
    try:
        return too_deep(encode_readable(structured), MAX_STRUCTURED_DEPTH)
    except (TypeError, ValueError, RecursionError):
        return False  # It cannot be sent at all, which is found when it is written.


def leave_out_structured(result: t.CallToolResult, is_promised: bool) -> None:
    """Turn a result into its text, or into an error where structured content is promised."""
    content = list(result.content)
    if not any(isinstance(each, t.TextContent) for each in content):
        content.append(t.TextContent(encode_readable(result.structured_content).decode()))
    if is_promised and result.is_error is not True:
        # 2025-06-18 server/tools onwards: with an output schema, a success carries structured content.
        result.is_error = True
        content.insert(0, t.TextContent(_REFUSED))
    else:
        content.append(t.TextContent(NOTE))
    result.content = content
    result.structured_content = UNSET
    result.meta = _with_left_out(result.meta)


def _with_left_out(meta: dict[str, Any] | Raw | UnsetType) -> dict[str, Any]:
    members = meta if isinstance(meta, dict) else {}
    listed = members.get(LEFT_OUT)
    pointers = listed if isinstance(listed, list) else []
    return {**members, LEFT_OUT: [*(each for each in pointers if each), ""]}
