"""The search finds what our own queries need. `scripts/search_recall.py` judges it by public collections, too."""

from __future__ import annotations

from tests.search.own_queries import QUERIES, own_tools, recall

from toolwire.search import ToolIndex


def test_own_queries_find_their_tools() -> None:
    index = ToolIndex(own_tools())
    needed = list(QUERIES.values())
    assert len(QUERIES) == 60
    assert {name for names in needed for name in names} <= {tool.name for tool in index.tools}
    found = [[hit.name for hit in index.search(query)] for query in QUERIES]
    assert recall(found, needed) >= 0.80
    assert recall([names[:1] for names in found], needed) >= 0.60


def test_every_exact_name_finds_its_tool_first() -> None:
    index = ToolIndex(own_tools())
    assert [index.search(tool.name, 1)[0].name for tool in index.tools] == [tool.name for tool in index.tools]
