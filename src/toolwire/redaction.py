"""Redaction of secrets in logs, records and representations: values by their names, parts of texts by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal

import msgspec

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
# How deep texts of JSON are read that stand in texts of JSON. Each level costs as much as the text is long.
_MAX_TEXTS: Final = 4
# White space, and the mark of the byte order that files begin with.
_BEFORE_JSON: Final = " \t\r\n\ufeff"


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

    def matches(self, number: float) -> bool:
        """Return whether a pattern matches a number in one of its JSON forms."""
        return any(pattern.search(text) for text in _number_texts(number) for pattern in self.patterns)

    def arguments(self, value: Any) -> Any:
        """Redact a JSON value for a record: mask the values of secret names and the matches of the patterns."""
        return self._walk(value, by_name=True, depth=0)

    def content(self, value: Any) -> Any:
        """Mask the matches of the patterns in a JSON value that is sent on.

        A number becomes 0. The value keeps its types, so that it still fits the schema that a tool promised. A text
        that is JSON stays JSON.
        """
        return self._walk(value, by_name=False, depth=0)

    def _walk(self, value: Any, by_name: bool, depth: int, in_text: int = 0) -> Any:
        if isinstance(value, str):
            if not self.patterns:
                return value
            return self.text(value) if by_name else self._text_or_json(value, in_text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (MASK if by_name else 0) if self.matches(value) else value
        if depth > _MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            names = self._names_of(value) if self.patterns else value
            return {
                name: MASK if by_name and self.hides(key, item) else self._walk(item, by_name, depth + 1, in_text)
                for name, (key, item) in zip(names, value.items(), strict=True)
            }
        if isinstance(value, list):
            return [self._walk(item, by_name, depth + 1, in_text) for item in value]
        return value

    def _names_of(self, members: dict[str, Any]) -> list[str]:
        """Return the masked names of members. All are distinct, so no value is lost."""
        counts: dict[str, int] = {}
        names: list[str] = []
        for key in members:
            name = masked = self.text(key)
            if masked != key:
                count = counts.get(masked, 0) + 1
                while (name := masked if count == 1 else f"{masked} {count}") in members:
                    count += 1
                counts[masked] = count
            names.append(name)
        return names

    def _text_or_json(self, text: str, in_text: int) -> str:
        """Mask a text. In JSON mask the values, so that it stays JSON.

        `in_text` is in how many texts of JSON this one stands.
        """
        start = text.lstrip(_BEFORE_JSON)
        if in_text < _MAX_TEXTS and start[:1] in ("{", "[", '"'):
            try:
                value = msgspec.json.decode(start)
                clean = self._walk(value, by_name=False, depth=0, in_text=in_text + 1)
                if clean != value:
                    text = msgspec.json.encode(clean).decode()
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass  # The text only begins like JSON.
        return self.text(text)


def _number_texts(number: float) -> Iterator[str]:
    """Yield the JSON forms of a number: as a decimal, and with an exponent."""
    try:
        text = str(number)
    except ValueError:  # Python writes at most some thousand digits.
        text = hex(int(number))
    yield text
    if isinstance(number, float) and isfinite(number):
        plain = format(Decimal(text), "f")
        yield plain.removesuffix(".0")


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
