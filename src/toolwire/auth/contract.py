"""The protocol of objects that authorize HTTP requests, and a fixed bearer token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Auth(Protocol):
    """Signs the HTTP requests of a client.

    `headers` is called before each request. `challenged` is called after each answer 401 or 403, by the task that sent
    the request. It returns whether the request should be sent again with fresh `headers`, and limits how often that
    happens. The caller gets every error that they raise, above all `Unauthorized`.
    """

    async def headers(self, method: str, url: str) -> Mapping[str, str]: ...

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool: ...


class Bearer:
    """A token that the application already has.

    A server that refuses it does not get a second request.
    """

    def __init__(self, token: str) -> None:
        # A line break in a token would begin another header.
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("A bearer token is visible ASCII without spaces")
        self._headers = {"authorization": f"Bearer {token}"}

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return self._headers

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        return False

    def __repr__(self) -> str:
        return "Bearer(...)"


@runtime_checkable
class PerServer(Protocol):
    """Makes an `Auth` for each server.

    The `Auth` also serves other URLs that the server names.
    """

    def at(self, server_url: str, /) -> Auth: ...


def as_auth(auth: str | Auth | PerServer | None, server_url: str) -> Auth | None:
    """Return the object that signs the requests to one server, made from the user's `auth=`."""
    if isinstance(auth, PerServer):
        return auth.at(server_url)
    if auth is None or isinstance(auth, Auth):
        return auth
    if isinstance(auth, str):
        return Bearer(auth)
    raise TypeError(f"auth= takes a bearer token or an object with headers() and challenged(), not {auth!r:.100}")
