"""How long a search among 1,000 tools takes, and the index of them. Printed as JSON.

The tools are those of `tests/search/many_tools.py`, and the queries those of `tests/search/own_queries.py`.

Usage: tool_search.py SECONDS
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.search.many_tools import many_tools
from tests.search.own_queries import QUERIES

from toolwire.search import IndexedTool, ToolIndex

TOOLS = 1_000


def main(seconds: float) -> None:
    definitions = [tool.wire("2026-07-28") for tool in many_tools(TOOLS).tools]
    started = time.perf_counter()
    index = ToolIndex(map(IndexedTool.from_definition, definitions))
    built = time.perf_counter() - started
    queries = [query for query in QUERIES if index.search(query)]
    slices: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        for query in queries:
            index.search(query)
        slices.append((time.perf_counter() - started) / len(queries))
    print(json.dumps({"query": statistics.median(slices) * 1e6, "built": built}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
