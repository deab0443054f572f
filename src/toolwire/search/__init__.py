"""Search for tools by words: a BM25 index, without dependencies."""

from toolwire.search.tool_index import IndexedTool as IndexedTool
from toolwire.search.tool_index import ToolHit as ToolHit
from toolwire.search.tool_index import ToolIndex as ToolIndex
from toolwire.search.tool_index import ToolIndexes as ToolIndexes
