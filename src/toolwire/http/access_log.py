"""The access log: one line for each HTTP request with the client, the path, the status and the time."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from toolwire.http1.asgi_types import DIRECT, Receive, Scope, SendMessage
from toolwire.logs import ACCESS
from toolwire.protocol.http import METHOD, NAME

log: logging.Logger = logging.getLogger(ACCESS)

_LONGEST: Final = 200
# 2026-07-28 basic/transports/streamable-http: headers name the method of a request and its tool, prompt or resource.
_SUBJECT: Final = (METHOD.lower().encode(), NAME.lower().encode())


class AccessLog:
    """An application whose answers are logged. The query is left out, because it may hold secrets."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def drain(self) -> None:
        """Tell the application that it is about to stop."""
        self._application.drain()

    def give_up(self) -> None:
        """Tell the application that the time of its calls is over."""
        self._application.give_up()

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        scope.pop(DIRECT, None)  # An answer that goes directly to the connection would not pass here.
        status = "-"
        begun = time.perf_counter()

        async def seen(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._application(scope, receive, seen)
        except Exception:
            status = "500" if status == "-" else status
            raise
        finally:
            took = (time.perf_counter() - begun) * 1000
            client = scope.get("client")
            log.info(
                '%s "%s %s" %s %.1f ms%s',
                client[0] if client else "-",
                scope["method"],
                scope["path"][:_LONGEST],
                status,
                took,
                _subject(scope),
            )


def _subject(scope: Scope) -> str:
    headers = dict(scope["headers"])
    words = (headers.get(name, b"").decode("latin-1")[:_LONGEST] for name in _SUBJECT)
    return "".join(f" {word}" for word in words if word)
