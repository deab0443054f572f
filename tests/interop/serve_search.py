"""A gateway with a search before twenty servers that have 2,000 tools, over stdio.

The servers of this program are those of `tests/search/many_tools.py`, and one with two tools of other kinds.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.search.many_tools import many_tools

from toolwire import Context, Server
from toolwire.gateway import Gateway

shop = Server("shop")


@shop.tool(annotations={"readOnlyHint": True})
def weigh_parcel(grams: int, ctx: Context) -> dict[str, float]:
    """Say what a parcel weighs in kilograms."""
    return {"kilograms": grams / 1000}


@shop.tool(pinned=True)
def opening_hours() -> str:
    """Tell when the shop is open."""
    return "9 to 5"


gateway = Gateway("front", search="auto").add("shop", shop)
for number in range(20):
    gateway.add(f"s{number}", many_tools(100, start=number * 100))

if __name__ == "__main__":
    gateway.run()
