"""The credentials of the inspector: a token, headers, or a sign-in.

They are for a server with a URL. The page can change them, and never gets their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from toolwire.redaction import repr_without

MAX_HEADERS: Final = 50
MAX_LENGTH: Final = 16 * 1024
MAX_SCOPES: Final = 100
# RFC 9110 sections 5.1 and 5.5.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_VALUE: Final = re.compile(r"[\x21-\x7e\x80-\xff]([\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")


class OAuthClient(Struct, frozen=True):
    """A client that a person registered at the authorization server, with its scopes.

    Without an ID the inspector registers itself.
    """

    client_id: str | None = None
    client_secret: str | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return repr_without(self, "client_secret")


MakeSignIn: TypeAlias = Callable[[OAuthClient], Any]


class ConnectionCredentials:
    """The headers and the token of every request.

    Without a token, `sign_in` makes the `auth=` that signs in.
    """

    def __init__(self, headers: Mapping[str, str] | None, token: Any, sign_in: MakeSignIn | None) -> None:
        self.headers: dict[str, str] = dict(headers or {})
        self.client: OAuthClient = OAuthClient()
        self._token = token
        self._sign_in = sign_in
        # Kept between connections, because it holds the tokens.
        self._signed_in: Any = None

    @property
    def auth(self) -> Any:
        """The value of `auth=` for a client."""
        if self._token is not None or any(name.lower() == "authorization" for name in self.headers):
            return self._token
        if self._signed_in is None and self._sign_in is not None:
            self._signed_in = self._sign_in(self.client)
        return self._signed_in

    @property
    def signs_in(self) -> bool:
        """True when a person signs in if the server wants a token."""
        return self._sign_in is not None and self.auth is self._signed_in

    @property
    def secrets(self) -> list[str]:
        """Every value that must not be shown."""
        token = [self._token] if isinstance(self._token, str) else []
        return [*token, *self.headers.values(), *filter(None, [self.client.client_secret])]

    @property
    def names(self) -> list[str]:
        """The names of the headers that the user gave, with `Authorization` for a token."""
        return [*(["Authorization"] if self._token is not None else []), *self.headers]

    def describe(self) -> dict[str, Any]:
        """Return which credentials exist, without their values."""
        client = self.client
        known = {"id": client.client_id, "secret": client.client_secret is not None, "scopes": list(client.scopes)}
        return {
            "token": self._token is not None,
            "headers": list(self.headers),
            "client": None if self._sign_in is None else known,
        }

    def change(self, asked: Mapping[str, Any]) -> None:
        """Take what the page sends; `ValueError` for what HTTP cannot carry.

        `token` is a text, or None for none. `headers` are pairs of name and value, all that are to be sent; a value of
        None stays what it was. `client` has `id` and `scopes`, and `secret` where that is to change.
        """
        headers = self.headers if "headers" not in asked else self._read(asked["headers"])
        token = self._token
        if "token" in asked:
            token = None if asked["token"] is None else _checked(str(asked["token"]).strip(), "The token")
        client = self.client if "client" not in asked else self._read_client(asked["client"])
        self.headers, self._token = headers, token
        if client != self.client:
            self.client, self._signed_in = client, None

    def _read_client(self, asked: Mapping[str, Any]) -> OAuthClient:
        identifier = str(asked.get("id") or "").strip()
        if not identifier:
            return OAuthClient(scopes=_scopes(asked))
        kept = self.client.client_secret if identifier == self.client.client_id else None
        secret = asked.get("secret", kept)
        return OAuthClient(
            _checked(identifier, "The client ID"),
            None if not secret else _checked(str(secret), "The client secret"),
            _scopes(asked),
        )

    def _read(self, pairs: Any) -> dict[str, str]:
        if len(pairs) > MAX_HEADERS:
            raise ValueError(f"At most {MAX_HEADERS} headers can be sent")
        found: dict[str, str] = {}
        for name, value in pairs:
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise ValueError(f"{str(name)[:100]!r} is not the name of a header")
            if value is None and name not in self.headers:
                raise ValueError(f"The header {name} has no value")
            found[name] = self.headers[name] if value is None else _checked(str(value), f"The header {name}")
        return found


def _scopes(asked: Mapping[str, Any]) -> tuple[str, ...]:
    found = tuple(str(asked.get("scopes") or "").split())
    # RFC 6749 section 3.3.
    if len(found) > MAX_SCOPES or not all(_SCOPE.fullmatch(scope) for scope in found):
        raise ValueError(f"Scopes are at most {MAX_SCOPES} words of visible ASCII, separated by spaces")
    return found


def _checked(value: str, what: str) -> str:
    if len(value) > MAX_LENGTH:
        raise ValueError(f"{what} is longer than {MAX_LENGTH} characters")
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"{what} is empty, or has characters that cannot be sent")
    return value
