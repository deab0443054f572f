"""1,000 skills with 20 files each: seconds until they are loaded, microseconds for a page of `skills/list`, memory.

The page is asked for in this process, from the bytes of an HTTP request to those of its answer, without a socket. The
memory is how much the process grew, against the size of the files. Printed as JSON.

Usage: skills.py SECONDS
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from spawned import resident_kib
from toolwire import Server

SKILLS, FILES = 1000, 20
SLICE = 20
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "skills/list", "params": {"_meta": META}}).encode()
HEADERS = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "skills/list",
}
FRONTMATTER = """---
name: skill-{0:04}
description: Do the work of number {0}. Use it when somebody asks for number {0}.
license: MIT
metadata:
  version: "1.{0}"
  tags: [one, two]
---
"""


def write(root: Path) -> int:
    """Write the skills; return the size of all files."""
    total = 0
    for number in range(SKILLS):
        folder = root / f"skill-{number:04}" / "references"
        folder.mkdir(parents=True)
        files = {folder.parent / "SKILL.md": FRONTMATTER.format(number) + "A line of the instructions.\n" * 140}
        files |= {
            folder / f"{at:02}.md": f"{number} {at}\n" + "A line of a reference.\n" * 170 for at in range(1, FILES)
        }
        for file, text in files.items():
            total += file.write_text(text, encoding="utf-8")
    return total


async def page(server: Server, seconds: float) -> float:
    app: Any = server.http_app()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in HEADERS.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def call() -> None:
        sent.clear()
        await app(dict(scope), receive, send)

    for _ in range(3):
        await call()
    answer = json.loads(b"".join(message.get("body", b"") for message in sent))
    if not 50 <= len(answer["result"]["skills"]) <= 100:
        raise SystemExit("wrong answer")
    slices = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not slices:
        started = time.perf_counter()
        for _ in range(SLICE):
            await call()
        slices.append((time.perf_counter() - started) / SLICE)
    return statistics.median(slices) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder))
        small = Server("warm")  # Imports are not what is measured.
        small.skill(Path(folder) / "skill-0000")
        before, started = resident_kib(), time.process_time()
        server = Server("skills")
        server.skills(folder)
        loaded, grown = time.process_time() - started, resident_kib() - before
        found = {"loaded": loaded, "memory": grown * 1024 / size, "page": asyncio.run(page(server, float(sys.argv[1])))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
