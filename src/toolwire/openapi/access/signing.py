"""Requests to an API before and after they get credentials.

A request without credentials is one that error texts and logs may name. Credentials are put into a copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from toolwire.redaction import repr_without
from toolwire.server.call import Call


class OutgoingRequest(Struct, kw_only=True):
    """A request to an API. The names of its headers are in lower case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None = None

    def __repr__(self) -> str:
        return repr_without(self, "url", "headers", "body")


class SignedRequest(Protocol):
    """A request with credentials."""

    @property
    def request(self) -> OutgoingRequest:
        """Return the request to send. No log and no error text may show it."""

    def repeated(self) -> SignedRequest:
        """Return the request for a second attempt.

        What is good for one request, such as a proof, is made anew.
        """

    async def again(self, status: int, headers: Mapping[str, str]) -> SignedRequest | None:
        """Return the request with other credentials after a 401 or 403.

        `headers` are those of the answer, by lower-case name. None: other credentials would not help, and the answer is
        what the API says. Raise `UrlRequired` or `ToolError` where a person has to do something about the account.
        """


class Signer(Protocol):
    """Adds the credentials that one operation needs to requests."""

    async def sign(self, call: Call, request: OutgoingRequest) -> SignedRequest:
        """Return the request with the credentials of the caller; leave `request` as it is.

        Raise `UrlRequired` or `ToolError` where the caller has to connect an account first.
        """
