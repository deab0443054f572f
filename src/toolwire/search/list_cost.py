"""`ListCost`: the tokens of a list of tools, with and without a search."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from toolwire.protocol.apps import audiences
from toolwire.protocol.types.tools import Tool
from toolwire.search.tool_index import ALWAYS_LOAD, IndexedTool

#: The estimated size of `search_tools` and `call_tool`, without the names of servers.
SEARCH_TOKENS = 250


class ListCost(Struct, frozen=True):
    """The estimated tokens of a list of tools, with and without a search."""

    tools: int
    tokens: int
    with_search: int

    def __str__(self) -> str:
        return f"about {self.tokens:,} tokens for {self.tools:,} tools, and {self.with_search:,} with a search"


def list_cost(tools: Iterable[Tool]) -> ListCost:
    """Estimate the tokens of a server's tool list, whole and with unpinned tools deferred."""
    count = whole = pinned = 0
    for tool in tools:
        meta = tool.meta if isinstance(tool.meta, dict) else {}
        if "model" not in audiences(meta):
            continue
        size = IndexedTool.from_definition(tool).tokens
        count, whole = count + 1, whole + size
        pinned += size if meta.get(ALWAYS_LOAD) is True else 0
    return ListCost(count, whole, whole if pinned == whole else pinned + SEARCH_TOKENS)
