"""The HTTP messages of the flows, as values. A flow yields what it wants fetched and is sent the answer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.redaction import repr_without

T = TypeVar("T")

FORM: Final = "application/x-www-form-urlencoded"


class Fetch(Struct, frozen=True):
    """A request. `redirects` is set only if following a redirect cannot send a secret elsewhere."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""
    redirects: bool = False

    def __repr__(self) -> str:
        return repr_without(self, "headers", "body")


class Fetched(Struct, frozen=True):
    """An answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return repr_without(self, "headers", "body")


Flow: TypeAlias = Generator[Fetch, Fetched, T]


def get(url: str) -> Fetch:
    return Fetch("GET", url, {"accept": "application/json"}, redirects=True)


def post_form(url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Fetch:
    sent = {"accept": "application/json", "content-type": FORM, **(headers or {})}
    return Fetch("POST", url, sent, urlencode(form).encode())


def post_json(url: str, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Fetch:
    sent = {"accept": "application/json", "content-type": "application/json", **(headers or {})}
    return Fetch("POST", url, sent, msgspec.json.encode(document))


def read(answer: Fetched, shape: type[T], what: str) -> T:
    """Decode the body of an answer as a value of `shape`; raise `SignInFailed`."""
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SignInFailed(f"{what} is not what the standard says: {error}") from None


class _Refusal(Struct):
    error: str
    error_description: str | None = None


def refusal(answer: Fetched, step: str) -> SignInFailed:
    """Return the error for a refusal (RFC 6749 section 5.2): `Refused` if its reason can be read."""
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return SignInFailed(f"{step} failed with status {answer.status}")
    return Refused(step, said.error, said.error_description or "")
