"""Redaction of secrets in logs, records and representations: values by their names, parts of texts by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Literal

MASK: Final = "[redacted]"

#: Words that make a name secret wherever they occur in it. They are compared without case and separators, so that
#: `api_key` is found in `X-API-Key` and in `myApiKey`.
SECRET_NAMES: Final = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "authorization",
    "cookie",
    "api_key",
    "access_key",
    "auth_key",
    "encryption_key",
    "master_key",
    "private_key",
    "privkey",
    "signing_key",
    "ssh_key",
    "auth_code",
    "access_code",
    "backup_code",
    "recovery_code",
    "recovery_phrase",
    "mnemonic",
    "connection_string",
)
#: Words that make a name secret as a whole word or at the end. Inside others, as in `tokenizer`, they are harmless.
SECRET_WORDS: Final = ("token", "pwd", "jwt", "otp", "bearer")
# Plurals are often counts, as in `max_tokens`. A number under such a name is not secret.
_PLURALS: Final = ("tokens", "jwts")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_NAME: Final = 200

_MAX_DEPTH: Final = 128
# Members that hold encoded bytes, or a name that a server made, and the members beside them. A pattern would match
# there only by accident, and break the data.
_ENCODED: Final = {
    "data": ("type", "mimeType"),
    "blob": ("uri",),
    "requestState": ("resultType",),
    "taskId": ("status", "createdAt"),
}


class Redaction:
    """Names whose values are secret, and patterns of text that is secret anywhere."""

    __slots__ = ("_names", "names", "patterns")

    def __init__(
        self,
        names: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
    ) -> None:
        """Add `names` to `SECRET_NAMES`, compared as a whole, and `patterns`, which are regular expressions."""
        self.names: tuple[str, ...] = tuple(names)
        self.patterns: tuple[re.Pattern[str], ...] = tuple(re.compile(each) for each in patterns)
        self._names = frozenset(_plain(each) for each in self.names)

    def __or__(self, other: Redaction) -> Redaction:
        """Combine two redactions: secrets of either are redacted."""
        return Redaction((*self.names, *other.names), (*self.patterns, *other.patterns))

    def hides(self, name: str, value: Any) -> bool:
        """Return whether the value of this name is secret."""
        return (bool(self._names) and _plain(name) in self._names) or _is_secret(name, value)

    def text(self, text: str) -> str:
        """Return the text with the matches of the patterns masked."""
        for pattern in self.patterns:
            text = pattern.sub(MASK, text)
        return text

    def arguments(self, value: Any) -> Any:
        """Redact a JSON value for a record: mask the values of secret names and the matches of the patterns."""
        return self._walk(value, by_name=True, depth=0)

    def content(self, value: Any) -> Any:
        """Redact a JSON value that is passed on: mask the matches of the patterns and keep encoded bytes whole."""
        return self._walk(value, by_name=False, depth=0)

    def _walk(self, value: Any, by_name: bool, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value) if self.patterns else value
        if depth > _MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {self.text(key): self._member(value, key, by_name, depth + 1) for key in value}
        if isinstance(value, list):
            return [self._walk(item, by_name, depth + 1) for item in value]
        return value

    def _member(self, parent: dict[str, Any], key: str, by_name: bool, depth: int) -> Any:
        item = parent[key]
        if by_name and self.hides(key, item):
            return MASK
        if not by_name and isinstance(item, str) and all(each in parent for each in _ENCODED.get(key, ("",))):
            return item
        return self._walk(item, by_name, depth)


def _plain(name: str) -> str:
    return "".join(each for each in name if each.isalnum()).casefold()


def _is_secret(name: str, value: Any) -> bool:
    if len(name) > _MAX_NAME:
        return True  # No honest argument has such a long name, and searching it would cost time.
    kind = _kind(name)
    return kind == "secret" or (kind == "several" and not isinstance(value, int | float))


@lru_cache(maxsize=1024)
def _kind(name: str) -> Literal["secret", "several", "plain"]:
    plain = _plain(name)
    words = {each.lower() for each in _WORD.findall(name)}
    if any(each in plain for each in _ANYWHERE) or not words.isdisjoint(SECRET_WORDS) or plain.endswith(SECRET_WORDS):
        return "secret"
    return "several" if not words.isdisjoint(_PLURALS) or plain.endswith(_PLURALS) else "plain"


_ANYWHERE: Final = tuple(map(_plain, SECRET_NAMES))


# --- representations -------------------------------------------------------------------------------------------------


def repr_without(record: Any, *names: str) -> str:
    """Represent a Struct or a NamedTuple; of these fields show only whether they have a value.

    Representations end up in logs, tracebacks and error reports.
    """
    fields: tuple[str, ...] = getattr(record, "__struct_fields__", None) or record._fields
    shown = (f"{name}={_shown(getattr(record, name), name in names)}" for name in fields)
    return f"{type(record).__name__}({', '.join(shown)})"


def _shown(value: Any, is_secret: bool) -> str:
    return "..." if is_secret and value else repr(value)
