"""A gateway in front of one server over HTTP, with the names of its tools as they are.

Usage: gateway_server.py toolwire|fastmcp URL [REVISION]

The address is printed when connections are accepted. Toolwire's gateway speaks `REVISION` to the server.
"""

from __future__ import annotations

import sys

from serve_http import PATH, ready, serve


def toolwire(back: str, revision: str | None) -> None:
    from toolwire.gateway import Gateway

    gateway = Gateway("gateway")
    gateway.add("back", back, prefix="", revision=revision)
    gateway.run("http", port=0, path=PATH, on_ready=ready)


def fastmcp(back: str) -> None:
    from fastmcp.server import create_proxy

    serve(create_proxy(back).http_app(path=PATH, json_response=True))


def main() -> None:
    contender, back, *rest = sys.argv[1:]
    if contender == "toolwire":
        toolwire(back, rest[0] if rest else None)
    else:
        fastmcp(back)


if __name__ == "__main__":
    main()
