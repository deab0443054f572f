"""The texts of one server in logs and errors: without the credentials in use for it.

Servers quote the credentials that they get: in refusals, in errors, in broken messages, in tracebacks. Whatever one of
them wrote passes here before it enters a line of the log or an error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from toolwire.base_errors import InvalidResponse, OutcomeUnknown, ServerError, ToolwireError
from toolwire.protocol.errors import URL_ELICITATION_REQUIRED, ProtocolError, Unauthorized
from toolwire.redaction import MASK, Redaction, credential_redaction, decoded_views

E = TypeVar("E", bound=ToolwireError)

#: How many credentials of one server are known at once. The one that was noted first makes room.
MAX_KNOWN: Final = 1_024
#: In how many characters of a text encoded credentials are found. A longer text is searched for them as they are.
MAX_SEARCHED: Final = 8 * 1024
# Shorter values are words that a text may need, such as the name of a tenant.
_SHORTEST: Final = 6
# A text may be cut inside a credential: so many characters of its beginning are masked, too, and half of a longer one.
_SHORTEST_BEGINNING: Final = 12
# How deep base64 is decoded in base64.
_MAX_DECODINGS: Final = 2
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
# A cookie or a parameter of a header.
_MEMBER: Final = re.compile(r"[^\s;,=]+=\"?([^\s;,\"]+)")
_TO_STANDARD: Final = str.maketrans("-_", "+/")
# Names of variables and of parts of a URL that `SECRET_NAMES` has not.
_KEY_NAME: Final = re.compile(r"(?:^|[_-])(?:api)?(?:key|pat|auth|pass|dsn|sig|signature)(?:$|[_-])", re.IGNORECASE)
# What only a machine reads: long, without blanks, with letters and digits.
_OPAQUE: Final = re.compile(r"(?=[^\s/.:,;@\\]*[0-9])(?=[^\s/.:,;@\\]*[A-Za-z])[^\s/.:,;@\\]{16,}")
_PATH: Final = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
# Headers that each request has, and the proof of one request (RFC 9449).
_NO_CREDENTIALS: Final = frozenset({"accept", "content-type", "user-agent", "dpop"})
_ANY_NAME: Final = Redaction()


class ServerTexts:
    """The texts of one server, as logs and errors may quote them.

    Without `is_quotable`, no log line above `debug` quotes the server, because it may repeat what others sent to it.
    `name` stands for the server in the log.
    """

    __slots__ = ("_fixed", "_recent", "is_quotable", "name")

    def __init__(self, name: str = "", *, is_quotable: bool = True) -> None:
        self.name: str = name
        self.is_quotable: bool = is_quotable
        # The credentials in use, with the beginnings that are searched for: those of its settings, and those of calls.
        self._fixed: dict[str, str] = {}
        self._recent: dict[str, str] = {}

    def without_quotes(self) -> ServerTexts:
        """Return the texts of the same server, with the same credentials, as such that may not be quoted."""
        quiet = ServerTexts(self.name, is_quotable=False)
        quiet._fixed, quiet._recent = self._fixed, self._recent
        return quiet

    # --- the credentials in use ---

    def note(self, credentials: Iterable[str]) -> None:
        """Take note of credentials that the server gets with a call, or a process."""
        known = self._recent
        known.update(_heads_of(each for each in credentials if each not in known))
        while len(known) > MAX_KNOWN:
            del known[next(iter(known))]

    def note_signature(self, headers: Mapping[str, str]) -> None:
        """Take note of the headers that sign a request: the whole value, its token, passwords, cookies."""
        for name, value in headers.items():
            if value not in self._recent and name.lower() not in _NO_CREDENTIALS:
                self.note(_parts_of_header(value))

    def note_request(self, headers: Mapping[str, str]) -> None:
        """Take note of the credentials among the headers of one request."""
        self.note_signature({name: value for name, value in headers.items() if _is_credential(name, value)})

    def note_settings(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        url: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take note of the credentials in the headers, in the URL and in the variables that a server always gets."""
        for value in (headers or {}).values():
            self._fixed.update(_heads_of(_parts_of_header(value)))
        self._fixed.update(_heads_of(_parts_of_url(url)))
        for name, value in (environment or {}).items():
            parts = _parts_of_url(value) if "://" in value else [value] if _is_credential(name, value) else []
            self._fixed.update(_heads_of(parts))

    # --- the texts ---

    def excerpt(self, text: str, length: int) -> str:
        """Return the beginning of a text without credentials. Nothing is cut before they are found."""
        return self.hide(text[:MAX_SEARCHED])[:length]

    def hide(self, text: str) -> str:
        """Mask the credentials in a text: as they are, in base64, percent-encoded and with JSON escapes."""
        if len(text) > MAX_SEARCHED:
            for value in self._find_whole(text):
                text = text.replace(value, MASK)
            return text
        found = self._find(text)
        if not found:
            return text
        text = _BASE64.sub(lambda run: MASK if self._find_in(_decodings(run[0], _MAX_DECODINGS)) else run[0], text)
        return credential_redaction(found).unescaped_text(text)

    def describe(self, error: BaseException, text: str | None = None) -> str:
        """Return the text of an error for a log line above `debug`. `text` stands for the text of the error."""
        if not self.is_quotable:
            if isinstance(error, ProtocolError):
                return f"an error with the code {error.code}"
            # What is over a limit, or no HTTP response, is described in our own words.
            if isinstance(error, ValueError | InvalidResponse | ServerError) and not isinstance(error, OutcomeUnknown):
                return "its answer breaks the protocol"
        return self.excerpt(str(error) if text is None else text, MAX_SEARCHED)

    def clean(self, error: E) -> E:
        """Mask the credentials in an error that the server sent, and return it."""
        if isinstance(error, ProtocolError):
            hidden = self.hide(error.message)
            if hidden != error.message:
                error.message, error.args = hidden, (hidden, *error.args[1:])
            # A page that a person has to open is of use only as it is.
            if error.data is not msgspec.UNSET and error.code != URL_ELICITATION_REQUIRED:
                error.data = self._clean_data(error.data)
        elif isinstance(error, OutcomeUnknown) and not self.is_quotable:
            error.args = ("The server does not know the outcome", *error.args[1:])
        elif not isinstance(error, Unauthorized):
            error.args = tuple(self.hide(each) if isinstance(each, str) else each for each in error.args)
        return error

    def _clean_data(self, data: Any) -> Any:
        if not (self._fixed or self._recent):
            return data
        text = json.dumps(data, default=str)
        if len(text) > MAX_SEARCHED:
            return msgspec.UNSET if self._find_whole(text) else data
        found = self._find(text)
        return credential_redaction(found).content(data) if found else data

    def _find_whole(self, text: str) -> list[str]:
        return sorted((value for value in (*self._fixed, *self._recent) if value in text), key=len, reverse=True)

    def _find(self, text: str) -> set[str]:
        """Return the credentials in a text, and beginnings of them."""
        return self._find_in(chain([text], _decodings(text, _MAX_DECODINGS))) if self._fixed or self._recent else set()

    def _find_in(self, texts: Iterable[str]) -> set[str]:
        searched = "\0".join(texts)
        found: set[str] = set()
        for value, head in chain(self._fixed.items(), self._recent.items()):
            at = searched.find(head)
            while at >= 0:
                found.add(_common_beginning(value, searched[at : at + len(value)]))
                at = searched.find(head, at + len(head))
        return found


def _heads_of(credentials: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield credentials that are long enough to be masked, with the beginnings that are searched for."""
    for each in credentials:
        for part in {each, *each.splitlines()}:  # A private key is quoted line by line.
            value = part.strip()
            if len(value) >= _SHORTEST:
                yield value, value[: max(_SHORTEST_BEGINNING, len(value) // 2)]


def _common_beginning(text: str, other: str) -> str:
    length = next((at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))
    return text[:length]


def _decodings(text: str, depth: int) -> Iterator[str]:
    """Yield what a text means: without percent-encoding, without JSON escapes, and its base64."""
    views = [text, *decoded_views(text)]
    yield from views[1:]
    if not depth:
        return
    for run in {found[0] for view in views for found in _BASE64.finditer(view)}:
        plain = run.rstrip("=").translate(_TO_STANDARD)
        # Nothing says where in the run the encoded text begins.
        for start in range(min(4, len(plain) - 7)):
            piece = plain[start : len(plain) - ((len(plain) - start) % 4 == 1)]
            decoded = base64.b64decode(f"{piece}==").decode("utf-8", "surrogateescape")
            yield decoded
            yield from _decodings(decoded, depth - 1)


def _parts_of_header(value: str) -> Iterator[str]:
    scheme, _, token = value.partition(" ")
    yield from (value, token)
    for found in _MEMBER.finditer(value):
        yield from (found[1], unquote(found[1]))
    if scheme.lower() == "basic":
        with suppress(ValueError):
            whole = base64.b64decode(token).decode()
            yield from (whole, whole.partition(":")[2])


def _parts_of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return
    yield from (password or "", unquote(password or ""))
    for name, value in parse_qsl(parts.query):
        if _is_credential(name, value):
            yield value
    yield from (segment for segment in parts.path.split("/") if _OPAQUE.search(segment))


def _is_credential(name: str, value: str) -> bool:
    """Return whether a value is most likely secret, by its name or its form."""
    if _ANY_NAME.hides(name, value) or _KEY_NAME.search(name):
        return True
    return _PATH.match(value) is None and _OPAQUE.search(value) is not None
