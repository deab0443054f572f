"""The gate of an HTTP application: it authenticates requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

from toolwire.http1.asgi_types import Receive, Scope, SendMessage

# The key in the scope under which the gate finds the address that a request comes from.
ADDRESS: Final = "toolwire.address"


class HttpGate(Protocol):
    """The part that decides who is let in. Every request passes it before its body is read."""

    @property
    def nobody(self) -> Any:
        """Return the principal of all callers that are not authenticated; None where everybody has to authenticate."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        """Return the names of headers besides `Authorization` in which a request may carry its key."""

    @property
    def is_narrowed(self) -> bool:
        """Return whether another gate decides, too."""

    @property
    def admit(self) -> Callable[[Scope, dict[str, str]], Coroutine[Any, Any, Any]]:
        """Return the principal of a request, or raise `HttpRefusal`; remove credentials from the headers."""

    def is_for_browsers(self, path: str) -> bool:
        """Return whether one of the gate's own pages at a path is for people, who open it in a browser."""

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request for one of the gate's own pages; return False when it is for none of them."""

    def insufficient(self, scope: Scope, headers: Mapping[str, str], scopes: Iterable[str]) -> tuple[bytes, bytes]:
        """Return the header that names the scopes which a refused request needs."""
