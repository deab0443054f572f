"""The address of a Redis: its parts, and how it is shown to people, who never see the password."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from toolwire.protocol.errors import ServerError

SCHEMES: Final = ("redis", "rediss", "unix")
DEFAULT_PREFIX: Final = "toolwire"

_FORM: Final = "write it as redis://user:password@host:6379/0, with %40 for an @ and %2F for a / in the password"
#: The options of an address, beside those for TLS. Others would change how the client library behaves.
_OPTIONS: Final = frozenset({"db", "username", "password", "prefix", "timeout"})


class RedisAddress(Struct, frozen=True):
    """The parts of an address."""

    url: str
    """For the client library, secrets included."""
    prefix: str | None
    timeout: float | None
    shown: str
    """For people."""
    secrets: tuple[str, ...] = ()

    def without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        return f"RedisAddress({self.shown!r})"


def read_address(url: str) -> RedisAddress:
    """Return the parts of an address. Raise `ServerError`, which repeats none of it, for one that is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _unreadable() from None
    scheme = parts.scheme.lower()
    # An unquoted slash or question mark in a password ends the host too early.
    if scheme not in SCHEMES or parts.fragment or "@" in parts.path or "@" in parts.query:
        raise _unreadable()
    if scheme == "unix":
        if not parts.path or parts.hostname:
            raise ServerError("The address of the store is no socket: write it as unix:///run/redis.sock?db=0")
        shown = f"unix://{parts.path}"
    else:
        database = parts.path.strip("/") or "0"
        if not parts.hostname or not database.isdigit():
            raise _unreadable()
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        shown = f"{scheme}://{host}:{port or 6379}/{database}"
    for name, _ in options:
        if name not in _OPTIONS and not name.startswith("ssl_"):
            raise ServerError(
                f"The address of the store has no option {name!r}: it knows db, prefix, timeout and ssl_…"
            )
    given = dict(options)
    prefix, timeout = given.pop("prefix", None), given.pop("timeout", None)
    secrets = [parts.password and unquote(parts.password), parts.password, given.get("password")]
    clean = urlunsplit((scheme, parts.netloc, parts.path, urlencode(given), ""))
    return RedisAddress(clean, prefix, _seconds(timeout), shown, tuple(secret for secret in secrets if secret))


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ServerError("timeout= in the address of the store is a number of seconds") from None


def _unreadable() -> ServerError:
    return ServerError(f"The address of the store is not one of a Redis: {_FORM}")
