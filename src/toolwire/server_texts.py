"""The texts of one server in logs and errors, without the credentials for it.

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
from toolwire.redaction import MASK, Redaction, mask_spans, readings
from toolwire.secret_index import SHORTEST, SecretIndex

E = TypeVar("E", bound=ToolwireError)

#: How many credentials of one server are known at once, and how long they are together. The oldest makes room.
MAX_KNOWN: Final = 1_024
MAX_CHARACTERS: Final = 1_000_000
#: In how many characters of a text encoded credentials are found. A longer text is searched for them as they are.
MAX_SEARCHED: Final = 32 * 1024
# Of a text that is cut, so many characters are searched before.
_MAX_CUT: Final = 8 * 1024
# How deep base64 is decoded in base64.
_MAX_DECODINGS: Final = 2
_MAX_DEPTH: Final = 128
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX: Final = re.compile(r"[0-9A-Fa-f]{12,}")
# A cookie or a parameter of a header.
_MEMBER: Final = re.compile(r"[^\s;,=]+=\"?([^\s;,\"]+)")
_TO_STANDARD: Final = str.maketrans("-_", "+/")
# Names of variables and of parts of a URL that `SECRET_NAMES` has not.
_KEY_NAME: Final = re.compile(r"(?:^|[_-])(?:api)?(?:key|pat|auth|pass|dsn|sig|signature)(?:$|[_-])", re.IGNORECASE)
# What only a machine reads: long, without blanks, with letters and digits.
_OPAQUE: Final = re.compile(r"(?=[^\s/.:,;@\\]*[0-9])(?=[^\s/.:,;@\\]*[A-Za-z])[^\s/.:,;@\\]{16,}")
_PATH: Final = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
# Paths have more than one of these.
_SLASH: Final = re.compile(r"[\\/]")
# Headers that each request has, and the proof of one request (RFC 9449).
_NO_CREDENTIALS: Final = frozenset({"accept", "content-type", "user-agent", "dpop"})
_ANY_NAME: Final = Redaction()


class KnownCredentials:
    """The credentials of one server: those of its settings, and the last ones of calls."""

    __slots__ = ("_fixed", "_index", "_new", "_recent", "_size")

    def __init__(self) -> None:
        self._fixed: set[str] = set()
        self._recent: dict[str, None] = {}
        self._size = 0
        self._index = SecretIndex()
        # Most servers never quote anything, so calls do not wait until their credentials are indexed.
        self._new: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._fixed or self._recent)

    def __contains__(self, credential: str) -> bool:
        return credential in self._recent

    def fix(self, credentials: Iterable[str], *, in_parts: bool = True) -> None:
        """Add credentials that stay known."""
        for each in _usable_parts(credentials):
            self._fixed.add(each)
            self._index.add(each, in_parts=in_parts)

    def note(self, credentials: Iterable[str]) -> None:
        """Add credentials that the newest ones push out."""
        for each in _usable_parts(credentials):
            if each not in self._recent:
                self._recent[each] = None
                self._size += len(each)
                self._new.append(each)
        while len(self._recent) > MAX_KNOWN or (self._size > MAX_CHARACTERS and len(self._recent) > 1):
            self._drop(next(iter(self._recent)))
        if len(self._new) > 2 * MAX_KNOWN:
            self._new = [each for each in self._new if each in self._recent]

    def _drop(self, credential: str) -> None:
        del self._recent[credential]
        self._size -= len(credential)
        if credential not in self._fixed:
            self._index.remove(credential)

    def find(self, text: str) -> list[tuple[int, int]]:
        """Return the starts and ends of credentials, and of parts of them, in a text."""
        new, self._new = self._new, []
        for each in new:
            if each in self._recent and each not in self._fixed:
                self._index.add(each)
        return self._index.find(text)


class ServerTexts:
    """Hides credentials in the texts of one server, for logs and errors.

    Without `is_quotable`, no log line above `debug` quotes the server, because it may repeat what other callers sent to
    it. `name` stands for the server in the log.
    """

    __slots__ = ("_known", "is_quotable", "name")

    def __init__(self, name: str = "", *, is_quotable: bool = True) -> None:
        self.name: str = name
        self.is_quotable: bool = is_quotable
        self._known = KnownCredentials()

    def without_quotes(self) -> ServerTexts:
        """Return the same texts, with the same credentials, but not quotable."""
        quiet = ServerTexts(self.name, is_quotable=False)
        quiet._known = self._known
        return quiet

    # --- the credentials in use ---

    def note(self, credentials: Iterable[str]) -> None:
        """Take note of credentials that the server gets with a call, or a process."""
        self._known.note(credentials)

    def note_signature(self, headers: Mapping[str, str]) -> None:
        """Remember the credentials in the headers that sign a request.

        They are the whole value, its token, passwords, cookies.
        """
        for name, value in headers.items():
            if value not in self._known and name.lower() not in _NO_CREDENTIALS:
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
        """Remember the credentials in a server's fixed headers, URL and variables."""
        for name, value in (headers or {}).items():
            if name.lower() not in _NO_CREDENTIALS:
                self._known.fix(_parts_of_header(value))
        self._known.fix(_parts_of_url(url))
        for name, value in (environment or {}).items():
            if "://" in value:
                self._known.fix(_parts_of_url(value))
            elif _is_credential(name, value):
                # Folders stand in texts for other reasons, too.
                is_path = _PATH.match(value) is not None and len(_SLASH.findall(value)) > 1
                self._known.fix([value], in_parts=not is_path)

    # --- the texts ---

    def excerpt(self, text: str, length: int) -> str:
        """Return the beginning of a text without credentials. Nothing is cut before they are found."""
        return self.hide(text[: max(length, _MAX_CUT)])[:length]

    def hide(self, text: str) -> str:
        """Mask credentials and parts of them: plain, in base64 or hex, percent-encoded, with JSON escapes."""
        if len(text) < SHORTEST or not self._known:
            return text
        spans = self._known.find(text) if len(text) > MAX_SEARCHED else list(self._find_encoded(text))
        return mask_spans(text, _joined(spans)) if spans else text

    def describe(self, error: BaseException, text: str | None = None) -> str:
        """Return the text of an error for a log line above `debug`.

        `text` stands for the text of the error.
        """
        if not self.is_quotable:
            if isinstance(error, ProtocolError):
                return f"an error with the code {error.code}"
            # What is over a limit, or no HTTP response, is described in our own words.
            if isinstance(error, ValueError | InvalidResponse | ServerError) and not isinstance(error, OutcomeUnknown):
                return "its answer breaks the protocol"
        return self.excerpt(str(error) if text is None else text, _MAX_CUT)

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
        if not self._known:
            return data
        text = json.dumps(data, default=str)
        if len(text) > MAX_SEARCHED:
            return msgspec.UNSET if self._known.find(text) else data
        return self._hide_in(data)

    def _hide_in(self, value: Any, depth: int = 0) -> Any:
        """Mask the credentials in a JSON value. A number becomes 0."""
        if isinstance(value, str):
            return self.hide(value)
        if value is None or isinstance(value, bool):
            return value
        if depth > _MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            hidden: dict[str, Any] = {}
            for name, item in value.items():
                shown = unique = self.hide(name) if isinstance(name, str) else name
                count = 1
                while unique in hidden or (unique != name and unique in value):
                    count += 1
                    unique = f"{shown} {count}"
                hidden[unique] = self._hide_in(item, depth + 1)
            return hidden
        if isinstance(value, list | tuple):
            return [self._hide_in(each, depth + 1) for each in value]
        text = json.dumps(value, default=str)
        if self.hide(text) == text:
            return value
        return 0 if isinstance(value, int | float) else MASK

    def _find_encoded(self, text: str) -> Iterator[tuple[int, int]]:
        judged: dict[str, bool] = {}
        for reading in readings(text):
            yield from map(reading.to_origin, self._known.find(reading.text))
            for run in chain(_BASE64.finditer(reading.text), _HEX.finditer(reading.text)):
                if self._is_encoded(run[0], judged, _MAX_DECODINGS):
                    yield reading.to_origin(run.span())

    def _is_encoded(self, run: str, judged: dict[str, bool], depth: int) -> bool:
        """Return whether base64 or hex digits have a credential, or a part of one."""
        known = judged.get(run)
        if known is None:
            known = judged[run] = any(self._has_any(each, judged, depth - 1) for each in _decodings(run))
        return known

    def _has_any(self, text: str, judged: dict[str, bool], depth: int) -> bool:
        views = [each.text for each in readings(text)]
        if any(map(self._known.find, views)):
            return True
        runs = (run[0] for each in views for run in chain(_BASE64.finditer(each), _HEX.finditer(each)))
        return depth > 0 and any(self._is_encoded(run, judged, depth) for run in runs)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in their order, as one where they touch."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _usable_parts(credentials: Iterable[str]) -> Iterator[str]:
    """Yield credentials and their lines, where they are long enough to be masked."""
    for each in credentials:
        for part in {each, *each.splitlines()}:  # A private key is quoted line by line.
            value = part.strip()
            if len(value) >= SHORTEST:
                yield value


def _decodings(run: str) -> Iterator[str]:
    """Yield what a run of characters means in base64 and as hex digits."""
    # Nothing says where in it the encoded text begins.
    plain = run.rstrip("=").translate(_TO_STANDARD)
    for start in range(min(4, len(plain) - 7)):
        piece = plain[start : len(plain) - ((len(plain) - start) % 4 == 1)]
        yield base64.b64decode(f"{piece}==").decode("utf-8", "surrogateescape")
    if _HEX.fullmatch(run):
        for start in range(2):
            yield bytes.fromhex(run[start : len(run) - (len(run) - start) % 2]).decode("utf-8", "surrogateescape")


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
