"""The answer to an HTTP request, whoever carried it out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Self

from toolwire.base_errors import InvalidResponse, OutcomeUnknown, TransportError
from toolwire.http1.url import origin


class TooLarge(TransportError, InvalidResponse):
    """A body was longer than the caller was ready to take."""


class CrossedClosing(OutcomeUnknown):
    """A connection that had been used before was closed without a word: the request has most likely not been read."""


class HttpResponse(ABC):
    """The answer to one request. Close it, or use `async with`: an unread rest closes the connection."""

    status: int
    url: str

    @abstractmethod
    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """All headers by lower-case name; those that came more than once are joined by commas."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises `OutcomeUnknown` when it breaks off."""

    @abstractmethod
    def close(self) -> None:
        """Let go. What was not read is not wanted any more."""

    def let_go(self) -> None:
        """Close, where nothing but the end is still to come: the connection is kept if it comes soon."""
        self.close()

    async def read(self, limit: int) -> bytes:
        """The whole body, if it has no more than `limit` bytes; otherwise `TooLarge`."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                self.close()
                raise TooLarge(f"The answer of {origin(self.url)} has more than {limit} bytes")
        return bytes(body)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by name, where a name that came more than once has its values joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
