"""Search for tools by words: a BM25 index, and the settings of a server's search."""

from toolwire.search.settings import DEFERRING_CLIENTS as DEFERRING_CLIENTS
from toolwire.search.settings import SearchSettings as SearchSettings
from toolwire.search.tool_index import IndexedTool as IndexedTool
from toolwire.search.tool_index import ToolHit as ToolHit
from toolwire.search.tool_index import ToolIndex as ToolIndex

__all__ = ["DEFERRING_CLIENTS", "IndexedTool", "SearchSettings", "ToolHit", "ToolIndex"]
