"""The HTTP messages of the flows, as values."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Struct

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.redaction import repr_without
from toolwire.server_texts import ServerTexts

T = TypeVar("T")

#: Fields of a form that hold a secret.
_SECRET_FIELDS: Final = frozenset(
    {
        *("code", "code_verifier", "refresh_token", "token"),
        *("client_secret", "client_assertion", "assertion", "subject_token", "actor_token"),
    }
)
FORM: Final = "application/x-www-form-urlencoded"


class Fetch(Struct, frozen=True):
    """A request.

    `redirects` is set only if following a redirect cannot send a secret to another server.
    """

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


def refusal(answer: Fetched, step: str, sent: Fetch | None = None) -> SignInFailed:
    """Return the error for a refusal: `Refused` if its reason can be read.

    The reason is without the secrets of the request that was `sent`, which some servers quote.
    """
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return SignInFailed(f"{step} failed with status {answer.status}")
    texts = ServerTexts()
    if sent is not None:
        texts.note_signature(sent.headers)
        texts.note(value for name, value in parse_qsl(sent.body.decode()) if name in _SECRET_FIELDS)
    return Refused(step, texts.hide(said.error), texts.hide(said.error_description or ""))
