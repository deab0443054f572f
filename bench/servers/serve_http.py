"""Serves any of the contenders over HTTP: uvicorn with httptools and uvloop, and no access log.

Toolwire is started as its users start it, by `run("http")`, with the defaults; that is the same uvicorn with bounds on
headers. `plain` is the same with results that are text only. The others get JSON answers where they can choose, which
is the faster of their two ways. `httptools` is a bare protocol without uvicorn. The address is printed when connections
are accepted.
"""

from __future__ import annotations

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contender", choices=["toolwire", "plain", "mcp", "fastmcp", "echo", "httptools"])
    parser.add_argument("more_tools", nargs="?", type=int, default=0)
    parser.add_argument("workers", nargs="?", type=int, default=1)
    told = parser.parse_args()
    if told.contender in ("toolwire", "plain"):
        structured = False if told.contender == "plain" else None
        server = import_module("toolwire_server").build(told.more_tools, structured=structured)
        server.run("http", port=0, path=PATH, workers=told.workers, on_ready=ready)
    elif told.contender == "httptools":
        import_module("bare_httptools").serve(PATH, ready)
    else:
        serve(peer(told.contender, told.more_tools))


if __name__ == "__main__":
    main()
