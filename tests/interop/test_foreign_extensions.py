"""Clients that we did not write use the extension of examples/polls, as far as they can send what they do not know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from tests.interop import peers
from tests.interop.test_foreign_clients import AUTO, CLIENT, LEGACY, SDK, Client

FOLDER = peers.ROOT / "examples" / "polls"
SERVE = "import server; server.server.run('http', port=0, on_ready=lambda address: print(address, flush=True))"
CLIENTS = [
    Client(name, revision, over, environment=environment)
    for over in ("stdio", "http")
    for name, revision, environment in (
        ("mcp-2.3.0", "2025-11-25", LEGACY),
        ("mcp-2.3.0", "2026-07-28", AUTO),
        ("node-sdk-1", "2025-11-25", SDK),
        ("node-client-2", "2025-11-25", CLIENT | LEGACY),
        ("node-client-2", "2026-07-28", CLIENT | AUTO),
    )
]

pytestmark = pytest.mark.timeout(180)


@contextmanager
def served() -> Iterator[list[str]]:
    """The server of the example over HTTP; its address."""
    command = [sys.executable, "-c", SERVE]
    with subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "it did not start"
            yield [address]
        finally:
            process.terminate()


@pytest.mark.parametrize("client", CLIENTS, ids=[f"{each.name}-{each.over}-{each.revision}" for each in CLIENTS])
def test_a_foreign_client_uses_an_extension(client: Client) -> None:
    serving = nullcontext([sys.executable, str(FOLDER / "server.py")]) if client.over == "stdio" else served()
    with serving as target:
        report = client.play_with(target, "extension")
    assert report["revision"] == client.revision
    assert report["extensions"] == {"com.example/polls": {"polls": ["lunch", "logo"]}}
    assert report["votes"] == [{"soup": 1}, {"soup": 1, "stew": 1}]
    assert report["seen"]["structured"] == {"logo": 1}
    assert "There is no poll 'supper'" in report["wrong"]
    if client.is_node:
        assert report["heard"] == report["votes"]
