"""Redaction of secrets in logs and records, by names and by patterns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal

from toolwire.protocol.errors import ServerError

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
#: Words that make a name secret as a whole word or at the end. Inside of one, as in `tokenizer`, they are harmless.
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

    __slots__ = ("_names", "_renamed", "names", "patterns", "renamed")

    def __init__(
        self,
        names: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
        renamed: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Add `names` to `SECRET_NAMES`, compared as a whole, and `patterns`, which are regular expressions.

        `renamed` has pairs of names: the first name is secret where the second is.
        """
        self.names: tuple[str, ...] = check_names(names)
        self.patterns: tuple[re.Pattern[str], ...] = compile_masks(patterns)
        self.renamed: tuple[tuple[str, str], ...] = tuple(renamed)
        self._names = frozenset(_plain(each) for each in self.names)
        self._renamed: dict[str, list[str]] = {}
        for name, other in self.renamed:
            self._renamed.setdefault(_plain(name), []).append(other)

    def __or__(self, other: Redaction) -> Redaction:
        """Combine two redactions: secrets of either are redacted."""
        return Redaction(
            (*self.names, *other.names), (*self.patterns, *other.patterns), (*self.renamed, *other.renamed)
        )

    def hides(self, name: str, value: Any) -> bool:
        """Return whether the value of this name is secret."""
        if not self._names and not self._renamed:
            return _is_secret(name, value)
        plain = _plain(name)
        if plain in self._names or _is_secret(name, value):
            return True
        return any(_plain(each) in self._names or _is_secret(each, value) for each in self._renamed.get(plain, ()))

    def text(self, text: str) -> str:
        """Mask the matches of the patterns in a text, also behind percent-encoding."""
        for pattern in self.patterns:
            text = pattern.sub(MASK, text)
            if "%" in text:
                text = _mask_encoded(pattern, text)
        return text

    def matches(self, number: float) -> bool:
        """Return whether a pattern matches a number in one of its JSON forms."""
        return self._matches_any(_number_texts(number))

    def arguments(self, value: Any) -> Any:
        """Mask secret names and the matches of the patterns in a value for a record.

        Text that is JSON is read: a server takes it in place of an object, too.
        """
        return self._walk(value, by_name=True, depth=0)

    def content(self, value: Any) -> Any:
        """Mask the matches of the patterns in a JSON value that is sent on.

        A number becomes 0. The value keeps its types, so that it still fits the schema that a tool promised. A text
        that is JSON stays JSON.
        """
        return self._walk(value, by_name=False, depth=0)

    def _walk(self, value: Any, by_name: bool, depth: int, in_text: int = 0) -> Any:
        if isinstance(value, _Number):
            return (MASK if by_name else 0) if self._matches_any(_written_numbers(value)) else value
        if isinstance(value, str):
            return self._text_or_json(value, by_name, in_text) if by_name or self.patterns else value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (MASK if by_name else 0) if self.matches(value) else value
        if depth > _MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return dict(self._members(value.items(), by_name, depth, in_text))
        if isinstance(value, _Members):
            return _Members(self._members(value, by_name, depth, in_text))
        if isinstance(value, list):
            return [self._walk(item, by_name, depth + 1, in_text) for item in value]
        return value

    def _members(
        self, members: Iterable[tuple[str, Any]], by_name: bool, depth: int, in_text: int
    ) -> Iterator[tuple[str, Any]]:
        members = list(members)
        names = self._names_of([key for key, _ in members], by_name, in_text)
        for name, (key, item) in zip(names, members, strict=True):
            is_hidden = by_name and self.hides(key, item)
            yield name, MASK if is_hidden else self._walk(item, by_name, depth + 1, in_text)

    def _names_of(self, keys: list[str], by_name: bool, in_text: int) -> list[str]:
        """Return the masked names of members. All are distinct, so no value is lost.

        The author of a call chooses names, too: in a record a name is masked as a value is.
        """
        if not by_name and not self.patterns:
            return keys
        names = [self._text_or_json(key, by_name, in_text) if by_name else self.text(key) for key in keys]
        taken = {name for name, key in zip(names, keys, strict=True) if name == key}
        counts: dict[str, int] = {}
        for index, (masked, key) in enumerate(zip(names, keys, strict=True)):
            if masked == key:
                continue
            count = counts.get(masked, 0) + 1
            while (name := masked if count == 1 else f"{masked} {count}") in taken:
                count += 1
            counts[masked] = count
            taken.add(name)
            names[index] = name
        return names

    def _text_or_json(self, text: str, by_name: bool, in_text: int) -> str:
        """Mask a text. In JSON mask the values, so that it stays JSON.

        `in_text` is in how many texts of JSON this one stands.
        """
        start = text.lstrip(_BEFORE_JSON)
        if start[:1] not in ("{", "[", '"'):
            return self.text(text)
        if in_text >= _MAX_TEXTS:
            return MASK if by_name else self.unescaped_text(text)
        try:
            value = _read_json(start)
            clean = self._walk(value, by_name, depth=0, in_text=in_text + 1)
            if clean != value:
                # Spaces stay where they are usual, so that a pattern of a name and its value still matches.
                comma, colon = (", ", ": ") if '": ' in text else (",", ":")
                text = _write_json(clean, comma, colon)
        except ValueError:
            return self.unescaped_text(text)  # The text only begins like JSON.
        except RecursionError:
            return MASK  # No honest text is nested that deeply.
        return self.text(text)

    def unescaped_text(self, text: str) -> str:
        """Mask the matches in a text, also behind its JSON escapes."""
        text = self.text(text)
        if not self.patterns or "\\" not in text:
            return text
        meant = _ESCAPE.sub(lambda escape: _unescape(escape[0]), text)
        spans = [match.span() for pattern in self.patterns for match in pattern.finditer(meant)]
        # Each part stands for one character, so that a span of characters is a span of parts.
        return mask_spans(_ESCAPE_OR_CHARACTER.findall(text), spans) if spans else text

    def _matches_any(self, texts: Iterable[str]) -> bool:
        return any(pattern.search(text) for text in texts for pattern in self.patterns)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of secret arguments. Raise `ServerError` for anything but a list of names."""
    found = None if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if found is None or not all(isinstance(each, str) for each in found):
        raise ServerError(f"redact= takes a list of names, such as ['iban'], not {names!r:.100}")
    return found


def compile_masks(patterns: Iterable[str | re.Pattern[str]]) -> tuple[re.Pattern[str], ...]:
    """Compile the patterns of masks. Raise `ServerError` for anything but a list of regular expressions."""
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ServerError(f"mask= takes a list of regular expressions, not {patterns!r:.100}")
    return tuple(map(compile_mask, patterns))


def compile_mask(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Compile the pattern of a mask. Raise `ServerError` if it matches an empty text."""
    try:
        made = re.compile(pattern)
    except (re.error, TypeError):
        raise ServerError(f"mask= has regular expressions; {pattern!r} is none") from None
    if any(not found[0] for text in ("", "a") for found in made.finditer(text)):
        raise ServerError(f"The pattern {made.pattern!r} of mask= matches the empty text: say what it masks at least")
    return made


def mask_spans(parts: Sequence[str], spans: Iterable[tuple[int, int]]) -> str:
    """Return the text of parts or characters, with spans of them masked."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if end <= done:
            continue
        pieces += [*parts[done:start], MASK] if start >= done else []
        done = end
    return "".join([*pieces, *parts[done:]])


# --- percent-encoding ------------------------------------------------------------------------------------------------

_ENCODED: Final = re.compile("(?:%[0-9a-fA-F]{2})+")
_ENCODED_OR_CHARACTER: Final = re.compile(f"{_ENCODED.pattern}|.", re.DOTALL)


def _mask_encoded(pattern: re.Pattern[str], text: str) -> str:
    """Mask the matches of a pattern in what a percent-encoded text means."""
    meant = _ENCODED.sub(lambda encoded: _percent_decoded(encoded[0]), text)
    spans = [match.span() for match in pattern.finditer(meant)] if meant != text else []
    if not spans:
        return text
    parts: list[str] = []
    for part in _ENCODED_OR_CHARACTER.findall(text):
        if len(part) == 1:
            parts.append(part)
            continue
        start = 0
        for character in _percent_decoded(part):
            end = start + 3 * len(character.encode("utf-8", "surrogateescape"))
            parts.append(part[start:end])
            start = end
    return mask_spans(parts, spans)


def _percent_decoded(encoded: str) -> str:
    return bytes.fromhex(encoded.replace("%", "")).decode("utf-8", "surrogateescape")


# --- JSON in texts ---------------------------------------------------------------------------------------------------


class _Number(str):
    """A number as a JSON text has it: of any size, also NaN and Infinity."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object of a JSON text. A name may be there twice."""

    __slots__ = ()


# It takes what other readers of JSON take: halves of surrogate pairs, control characters, numbers of any size.
_read_json: Final = json.JSONDecoder(
    object_pairs_hook=_Members, parse_float=_Number, parse_int=_Number, parse_constant=_Number, strict=False
).decode
# The escapes that stand for one character.
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]"
)
_ESCAPE_OR_CHARACTER: Final = re.compile(f"{_ESCAPE.pattern}|.", re.DOTALL)
_SHORT_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _unescape(part: str) -> str:
    if part[1] == "u":
        return str(json.loads(f'"{part}"'))
    return _SHORT_ESCAPES.get(part[1], part[1])


# --- readings --------------------------------------------------------------------------------------------------------

# How often a text may be encoded: a proxy encodes once more what was encoded.
_MAX_ENCODINGS: Final = 4


class Reading:
    """A decoded text, with the place of each character in the original text."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str, starts: Sequence[int]) -> None:
        """`starts` are the places of the characters, and the end of the original text."""
        self.text: str = text
        self._starts = starts

    def to_origin(self, span: tuple[int, int]) -> tuple[int, int]:
        """Return the start and end in the original text of a span in this one."""
        return self._starts[span[0]], self._starts[span[1]]

    def decoded(self, encoded: re.Pattern[str], decode: Callable[[str], Iterable[tuple[str, int]]]) -> Reading:
        """Decode the matches of a pattern.

        `decode` returns characters, and the length of each as it is encoded.
        """
        pieces: list[str] = []
        starts: list[int] = []
        done = 0
        for match in encoded.finditer(self.text):
            at = match.start()
            pieces.append(self.text[done:at])
            starts += self._starts[done:at]
            for character, length in decode(match[0]):
                pieces.append(character)
                starts.append(self._starts[at])
                at += length
            done = match.end()
        return Reading("".join([*pieces, self.text[done:]]), [*starts, *self._starts[done:]])


def readings(text: str) -> Iterator[Reading]:
    """Yield a text, and what it means without percent-encoding and JSON escapes, also repeated ones."""
    reading = Reading(text, range(len(text) + 1))
    yield reading
    for _ in range(_MAX_ENCODINGS):
        is_percent, is_escaped = _ENCODED.search(reading.text), _ESCAPE.search(reading.text)
        if not is_percent and not is_escaped:
            return
        unescaped = reading.decoded(_ESCAPE, lambda escape: [(_unescape(escape), len(escape))]) if is_escaped else None
        if unescaped is not None:
            yield unescaped
        if is_percent:
            yield (reading := reading.decoded(_ENCODED, _percent_characters))
            if unescaped is not None:
                yield (unescaped := reading.decoded(_ESCAPE, lambda escape: [(_unescape(escape), len(escape))]))
        reading = unescaped or reading


def _percent_characters(encoded: str) -> Iterator[tuple[str, int]]:
    for character in _percent_decoded(encoded):
        yield character, 3 * len(character.encode("utf-8", "surrogateescape"))


def _write_json(value: Any, comma: str, colon: str) -> str:
    """Write a JSON value, with the numbers and members of `_read_json`."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, _Members):
        members = (f"{_write_text(name)}{colon}{_write_json(item, comma, colon)}" for name, item in value)
        return f"{{{comma.join(members)}}}"
    if isinstance(value, list):
        return f"[{comma.join(_write_json(item, comma, colon) for item in value)}]"
    return json.dumps(value)


def _write_text(text: str) -> str:
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False))


def _written_numbers(number: _Number) -> Iterator[str]:
    """Yield a number as its JSON text has it, and in the forms of readers."""
    yield str(number)
    if not number.lstrip("-").isdigit():
        yield from _number_texts(float(number))


def _number_texts(number: float) -> Iterator[str]:
    """Yield the JSON forms of a number: as a decimal, and with an exponent."""
    try:
        text = str(number)
    except ValueError:  # Python writes at most some thousand digits.
        text = str(Decimal(number))
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
    return kind == "secret" or (kind == "several" and not isinstance(value, int | float | _Number))


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
    """Represent a record without the values of some fields.

    Of these fields it shows only whether they have a value. Representations end up in logs, tracebacks and error
    reports.
    """
    fields: tuple[str, ...] = getattr(record, "__struct_fields__", None) or record._fields
    shown = (f"{name}={_represent(getattr(record, name), name in names)}" for name in fields)
    return f"{type(record).__name__}({', '.join(shown)})"


def _represent(value: Any, is_secret: bool) -> str:
    return "..." if is_secret and value else repr(value)
