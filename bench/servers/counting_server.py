"""A server over HTTP that counts the HTTP requests it gets. Its tool `requests` returns how many there were.

The address is printed when connections are accepted.
"""

from __future__ import annotations

from typing import Any

from serve_http import PATH, serve

from toolwire import Server


def application() -> Any:
    server = Server("bench")
    count = 0

    @server.tool(structured=False)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def requests() -> int:
        return count

    served: Any = server.http_app(path=PATH)

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        nonlocal count
        count += scope["type"] == "http"
        await served(scope, receive, send)

    return counting


if __name__ == "__main__":
    serve(application())
