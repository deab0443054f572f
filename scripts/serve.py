"""Serves examples/everything.py over HTTP, and says where it is and how to connect."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from toolwire.protocol.errors import ServerError

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# One request that needs no other before it, and no headers that repeat it.
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "curl", "version": "8"}},
}


def announce(url: str) -> None:
    curl = (
        f"curl -sS {url} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' "
        f"-d '{json.dumps(INITIALIZE)}'"
    )
    lines = [
        f"examples/everything.py serves at {url} (Ctrl+C ends it)",
        "",
        "Give that address to any MCP client that speaks Streamable HTTP, of whatever revision, or say:",
        f"  {curl}",
        "",
        "The README has a longer session, on 2026-07-28 and in a session of the earlier revisions.",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def main() -> int:
    sys.path.insert(0, str(EXAMPLES))
    server = importlib.import_module("everything").server
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    try:
        server.run("http", port=port, log_level="warning", on_ready=announce)
    except ServerError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
