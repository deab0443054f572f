"""The answer to an HTTP request, over a connection or from the same process."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from toolwire.base_errors import InvalidResponse, OutcomeUnknown
from toolwire.http1.url import origin

_MAX_DIGITS: Final = 15


class TooLarge(OutcomeUnknown, InvalidResponse):
    """The answer is longer than the caller allows.

    The request may have been carried out, and would fail the same way again.
    """


class MalformedResponse(OutcomeUnknown, InvalidResponse):
    """The answer is not valid HTTP, or exceeds a limit.

    A second request would fail the same way.
    """


class CrossedClosing(OutcomeUnknown):
    """A reused connection closed without an answer.

    The server has most likely not read the request.
    """


class Lost(Exception):
    """The connection ended, or was given up, before the headers of the answer were there.

    `silent` when nothing at all had come: so ends a connection that the server closed while it was idle. `malformed`
    when the bytes were not an answer: the next attempt gets the same.
    """

    def __init__(self, why: str, silent: bool, malformed: bool = False) -> None:
        super().__init__(why)
        self.silent: bool = silent
        self.malformed: bool = malformed

    def outcome(self, url: str, *, reused: bool) -> OutcomeUnknown:
        """Return the error for the caller. `reused`: the connection had answered another request."""
        told = f"The connection to {origin(url)} failed before it answered: {self}"
        if self.malformed:
            return MalformedResponse(told)
        return (CrossedClosing if reused and self.silent else OutcomeUnknown)(told)


class HttpResponse(ABC):
    """The answer to one request.

    Close it, or use `async with`: unread bytes close the connection.
    """

    status: int
    url: str

    @abstractmethod
    def header(self, name: str) -> str | None:
        """Return the first header of this name, in any case."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """Return all headers by lower-case name. Repeated ones are joined by commas."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raise `OutcomeUnknown` when it breaks off."""

    @abstractmethod
    def close(self) -> None:
        """Close. The rest of the body is not wanted."""

    def let_go(self) -> None:
        """Close an answer of which only the end is missing.

        The connection is kept if the end comes soon.
        """
        self.close()

    def whole(self, limit: int) -> bytes | None:
        """Return the body if it has arrived within the limit; otherwise None: await `read`.

        After that there is nothing to close.
        """
        return None

    async def read(self, limit: int) -> bytes:
        """Return the whole body; raise `TooLarge` when it has more than `limit` bytes."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                self.close()
                raise TooLarge(f"The answer of {origin(self.url)} has more than {limit} bytes")
        return bytes(body)

    @property
    def media_type(self) -> str:
        """Return the content type without its parameters, in lower case."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def retry_after(self) -> float | None:
        """Return after how many seconds to repeat the request; None if unsaid.

        RFC 9110 section 10.2.3.
        """
        later = (self.header("retry-after") or "").strip()
        if later.isascii() and later.isdigit():
            # A number of more digits may be too large for a float. The longest time stands for it.
            return float(later[:_MAX_DIGITS])
        # Imported here because hardly any server sends a date.
        import time
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, parsedate_to_datetime(later).timestamp() - time.time())
        except (ValueError, OverflowError):
            return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StartedResponse(HttpResponse):
    """The answer to a request that was sent.

    It may be read when `began` is done.
    """

    began: asyncio.Future[bytes | None]
    """Done when the headers are there. It raises `Lost` where they do not come.

    It may have the body of a success that is not a stream of events, if all of it came with its headers. The body can
    still be read.
    """

    @abstractmethod
    def give_up(self, error: BaseException) -> bool:
        """Abort the connection, and raise `error` in place of the headers.

        Return False where the headers have already arrived.
        """


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name. The values of a repeated name are joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
