"""Any of the servers over HTTP, in one process: uvicorn with httptools and uvloop, and no access log.

Usage: serve_http.py toolwire|mcp|fastmcp|echo [MORE_TOOLS]

Toolwire is started as its users start it, by `run("http")`, with the defaults; that is the same uvicorn with bounds on
headers. The others get JSON answers where they can choose, which is the faster of their two ways. The address is
printed when connections are accepted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

PATH = "/mcp"


def peer(contender: str, more: int) -> Any:
    if contender == "echo":
        return import_module("echo_asgi").application
    server = import_module(f"{contender}_server").build(more)
    if contender == "mcp":
        return server.streamable_http_app(streamable_http_path=PATH, json_response=True)
    return server.http_app(path=PATH, json_response=True)


def serve(application: Any) -> None:
    import socket

    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        application, http="httptools", loop="uvloop", ws="none", access_log=False, log_level="error", backlog=2048
    )
    ready(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}")
    uvicorn.Server(config).run(sockets=[listener])


def ready(url: str) -> None:
    print(url, flush=True)


def main() -> None:
    contender, more = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if contender == "toolwire":
        import_module("toolwire_server").build(more).run("http", port=0, path=PATH, on_ready=ready)
    else:
        serve(peer(contender, more))


if __name__ == "__main__":
    main()
