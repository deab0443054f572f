"""What an HTTP application asks of whoever decides who is let in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from toolwire.http1.asgi_types import Receive, Scope, SendMessage

# Where an application leaves the address that a request comes from, before it shows the request to the gate.
ADDRESS: Final = "toolwire.address"


class HttpGate(Protocol):
    """Every request passes here before anything else of it is read."""

    @property
    def nobody(self) -> Any:
        """The principal that stands for all callers who have not said who they are; None where there is none."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        """The names of headers besides `Authorization` that a request may have its key in."""

    async def admit(self, scope: Scope, headers: dict[str, str]) -> Any:
        """The principal of a request; raises `Refused`. Credentials are gone from the headers afterwards."""

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request for one of the gate's own pages; False when it is for none of them."""

    def insufficient(self, scope: Scope, headers: Mapping[str, str], scopes: Iterable[str]) -> tuple[bytes, bytes]:
        """The header that says which scopes a refused request needs."""
