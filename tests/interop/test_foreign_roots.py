"""Roots of foreign clients at server-filesystem, behind a gateway: it reads only what the roots of the client allow."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from tests.interop import peers
from tests.interop.test_foreign_clients import AUTO, CLIENT, LEGACY, SDK, Client
from tests.interop.test_foreign_http_servers import package
from tests.ports import free_port

pytestmark = pytest.mark.timeout(180)

CLIENTS = (
    Client("mcp-1.30.0", "2025-11-25", "stdio"),
    Client("mcp-1.30.0", "2025-11-25", "http"),
    Client("mcp-2.3.0", "2025-11-25", "stdio", environment=LEGACY),
    Client("mcp-2.3.0", "2025-11-25", "http", environment=LEGACY),
    Client("mcp-2.3.0", "2026-07-28", "stdio", environment=AUTO),
    Client("mcp-2.3.0", "2026-07-28", "http", environment=AUTO),
    Client("node-sdk-1", "2025-11-25", "stdio", environment=SDK),
    Client("node-sdk-1", "2025-11-25", "http", environment=SDK),
    Client("node-client-2", "2026-07-28", "stdio", environment=CLIENT | AUTO),
    Client("node-client-2", "2026-07-28", "http", environment=CLIENT | AUTO),
)

GATEWAY = """
import sys
from toolwire.gateway import Gateway

port, *command = sys.argv[1:]
gateway = Gateway("front")
gateway.add("files", command, prefix="")
gateway.run("http", port=int(port)) if int(port) else gateway.run()
"""


@contextmanager
def serving(script: Path, over: str, command: list[str]) -> Iterator[list[str]]:
    """Yield the target of a gateway in front of a command."""
    if over == "stdio":
        yield [sys.executable, str(script), "0", *command]
        return
    port = free_port()
    with Popen([sys.executable, str(script), str(port), *command], stderr=PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            while "http://" not in (line := process.stderr.readline()):
                assert line, "it did not start"
            yield [f"http://127.0.0.1:{port}/mcp"]
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.mark.parametrize("client", CLIENTS, ids=[f"{each.name}-{each.over}-{each.revision}" for each in CLIENTS])
def test_server_filesystem_obeys_the_roots_of_a_client_and_their_change(client: Client, tmp_path: Path) -> None:
    folders = []
    for name in ("first", "second", "unused"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "text.txt"
        file.write_text(f"words of {name}", encoding="utf-8")
        folders.append({"uri": (tmp_path / name).as_uri(), "file": str(file)})
    shown = json.dumps(folders[:2])
    playing = replace(client, environment={**client.environment, "DRIVE_FOLDERS": shown})
    script = tmp_path / "gateway.py"
    script.write_text(GATEWAY, encoding="utf-8")
    command = [str(peers.needed_node()), package("server-filesystem"), str(tmp_path / "unused")]
    with serving(script, client.over, command) as target:
        report = playing.play_with(target, "files")
    assert report["revision"] == client.revision
    for at, read in enumerate(report["reads"]):
        assert read[at] == f"words of {('first', 'second')[at]}"
        assert "Access denied" in read[1 - at]
