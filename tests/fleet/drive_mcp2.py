"""Calls a fleet with the client of python `mcp` 2 until a file appears, and writes a line for each call.

`python drive_mcp2.py URL MODE OUTPUT STOP`: MODE is the client's `mode` ("auto" or "legacy"). A line is written when a
call begins and when it ends. This runs where that library is, and needs nothing else.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from pathlib import Path
from typing import Any, TextIO

from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)

COUNT = 4
PAUSE = 0.4
CALL_SECONDS = 90.0
#: The numbers of calls of other clients are smaller.
FIRST = {"auto": 1_000_000_000, "legacy": 2_000_000_000}


async def call(client: Client, number: int, output: TextIO) -> bool:
    """Call once, and say whether the connection can be used further."""
    told: dict[str, Any] = {"number": number, "count": COUNT}
    seen: list[int] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(int(progress))

    print(json.dumps(told), file=output, flush=True)
    arguments = {"number": number, "count": COUNT, "pause": PAUSE}
    try:
        result = await client.call_tool("steps", arguments, read_timeout_seconds=CALL_SECONDS, progress_callback=report)
        told |= {"outcome": "result", "text": result.content[0].text}  # type: ignore[union-attr]
    except MCPError as error:
        timed_out = "timed out" in str(error).lower()
        told |= {"outcome": "broken" if timed_out else "error", "text": f"{type(error).__name__}: {error}"}
    except Exception as error:
        told |= {"outcome": "error", "text": f"{type(error).__name__}: {error}"}
    print(json.dumps(told | {"seen": seen}), file=output, flush=True)
    return told["outcome"] == "result"


async def main(url: str, mode: str, output: TextIO, stop: Path) -> None:
    number = FIRST[mode]
    while not stop.exists():
        try:
            async with Client(url, mode=mode) as client:
                while not stop.exists():
                    number += 1
                    if not await call(client, number, output):
                        break
        except Exception as error:
            print(f"the connection ended: {error!r}", file=sys.stderr)
        await asyncio.sleep(0.3)


if __name__ == "__main__":
    url, mode, output, stop = sys.argv[1:]
    with Path(output).open("a") as lines:
        asyncio.run(main(url, mode, lines, Path(stop)))
