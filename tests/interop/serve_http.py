"""The fixture of the golden transcripts over HTTP, on a port that the system chooses; it prints its address.

`python -m tests.interop.serve_http` serves every revision at `/mcp`, and the transport of 2024-11-05 at `/sse`.
"""

from __future__ import annotations

from tests.golden.fixture import make_server


def announce(address: str) -> None:
    print(address, flush=True)


if __name__ == "__main__":
    make_server().run("http", port=0, sse=True, on_ready=announce)
