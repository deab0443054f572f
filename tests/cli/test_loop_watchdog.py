"""Noticing that something holds up the event loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from toolwire import Server
from toolwire.cli import server_file
from toolwire.cli.loop_watchdog import BlockedLoop, watched


async def test_a_blocking_call_in_an_async_tool_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "blocking.py"
    file.write_text(
        "import threading\nfrom toolwire import Server\nserver = Server('s')\ntold = threading.Event()\n"
        "@server.tool\nasync def slow() -> bool:\n    return told.wait(30)\n"
    )
    server: Any = server_file.load(str(file))
    assert isinstance(server, Server)
    told: threading.Event = server.tools[0].function.__globals__["told"]
    found: list[BlockedLoop] = []

    def tell(standstill: BlockedLoop) -> None:
        if standstill.file == str(file):  # A machine that is busy may stand still elsewhere.
            found.append(standstill)
            told.set()

    async with watched(tell, seconds=0.1):
        assert (await server.call_tool("slow")).structured is True
    assert (found[0].line, found[0].code) == (7, "return told.wait(30)")
    assert "plain def" in found[0].text
