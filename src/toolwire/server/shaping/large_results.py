"""Results that are larger than their budget: a short form in the answer, and the whole as a resource for a while.

The store and the link are those of `KeptResults`, also for answers of APIs. The short forms differ for a reason: here
any result of any server, with content of every kind, must have no more bytes than a budget, so its texts are cut at a
byte and its structured content goes. `openapi.answer.large_answers` has a budget of tokens, and a value whose schema
it knows: the preview keeps the shape, and is made smaller until it fits.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolError
from toolwire.protocol.jsonrpc import bound_error
from toolwire.server.call import Call
from toolwire.server.components import ToolBase, failed_result
from toolwire.server.kept_results import KeptResults

# Room for the words that say where the whole is.
_ROOM: Final = 640


class LargeResults:
    """The results of one mounted server that are larger than a budget."""

    def __init__(self, budget: int, whose: str) -> None:
        """`whose` names the mount, and is the same on every replica."""
        self.budget = budget
        self.kept_results: KeptResults = KeptResults(whose)

    def with_budget(self, budget: int) -> LargeResults:
        """Return the same place with another budget."""
        made = LargeResults(budget, "")
        made.kept_results = self.kept_results
        return made

    async def kept(self, call: Call, tool: ToolBase, result: Any) -> Any:
        """Return a result as it is, or its short form where it is too large."""
        if isinstance(result, Raw):
            if len(result) <= self.budget and call.mask is None:
                return result
            encoded = bytes(result)
        elif isinstance(result, t.CallToolResult) or (isinstance(result, dict) and "content" in result):
            encoded = t.encode(result)
        else:
            return result  # A question, or a task.
        if call.mask is None:
            if len(encoded) <= self.budget:
                return result
            return await self._shortened(call, tool, t.decode(t.CallToolResult, encoded))
        # What a policy masks in an answer stays masked in the resource for every reader. A mask may be longer than
        # what it hides.
        clean = call.mask(t.decode(t.CallToolResult, encoded))
        return result if len(t.encode(clean)) <= self.budget else await self._shortened(call, tool, clean)

    async def shorten(self, call: Call, tool: ToolBase, error: ToolError) -> t.CallToolResult | None:
        """Return the short form of a handler's error; None within the budget."""
        result = failed_result(error)
        if call.mask is not None:
            result = call.mask(result)
        return None if len(t.encode(result)) <= self.budget else await self._shortened(call, tool, result)

    def bound_error(self, call: Call, error: ProtocolError) -> ProtocolError:
        """Return a protocol error, or its short form where it is over the budget."""
        if bound_error(error, self.budget) is error:
            return error
        # Masked before it is cut: a policy does not find a secret in half.
        message = error.message if call.mask is None else call.mask(error.message)
        return bound_error(ProtocolError(error.code, message, error.data), self.budget)

    async def _shortened(self, call: Call, tool: ToolBase, result: t.CallToolResult) -> t.CallToolResult:
        texts = [each.text for each in result.content if isinstance(each, t.TextContent)]
        is_text = len(texts) == len(result.content) and texts
        whole = "\n".join(texts).encode() if is_text else t.encode(_without_meta(result))
        mime_type = "text/plain" if is_text else "application/json"
        shown = "\n".join(texts).encode()[: max(self.budget - _ROOM, 0)].decode(errors="ignore")
        content: list[Any] = [t.TextContent(shown)] if shown else []
        said = f"The result has {len(whole)} bytes, and {self.budget} are allowed."
        name = f"result of {tool.name}"
        content += await self.kept_results.link(call, whole.decode(errors="replace"), mime_type, name, said)
        # 2025-06-18 server/tools: a tool with an output schema has structured content, unless the call failed.
        failed = result.is_error is True or tool.output_schema is not None
        meta = result.meta if result.meta is not UNSET and len(t.encode(result.meta)) <= _ROOM else UNSET
        return t.CallToolResult(content=content, is_error=True if failed else UNSET, meta=meta)


def _without_meta(result: t.CallToolResult) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(t.encode(result), type=dict[str, Raw])
    members.pop("_meta", None)
    members.pop("resultType", None)
    return members
