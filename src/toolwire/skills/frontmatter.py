"""Parse the frontmatter of SKILL.md as YAML 1.2, with the position of every mistake.

SEP-2640 asks for the frontmatter "rendered verbatim as a JSON object" and leaves open how YAML becomes JSON. A host
that reads a value differently from the server refuses an honest skill. So this module accepts only text with one
meaning: keys are strings; aliases, anchors, tags, merge keys, duplicate keys and values that JSON lacks are refused.

PyYAML reads the syntax, which YAML 1.1 and 1.2 share up to a few characters, and says where each scalar stands. The
meaning of a plain scalar is decided here: `yes`, `12:30` and `2026-09-13` are strings in 1.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolwire.base_errors import ServerError
from toolwire.util.yaml_reader import NO_NUMBER, NULL, YamlReader, core_value, finite, whole_number

#: The most bytes between the two `---` lines. Descriptions have at most 1,024 characters, so this is plenty.
MAX_BYTES: Final = 64 * 1024
#: The most levels of mappings and sequences.
MAX_DEPTH: Final = 32
#: The most scalars, mappings and sequences.
MAX_ENTRIES: Final = 4096
#: Every whole number up to here is the same in readers that keep numbers as doubles (RFC 8259, section 6).
MAX_INTEGER: Final = 2**53 - 1


class FrontmatterError(ServerError):
    """A SKILL.md whose frontmatter cannot be served.

    `line` and `column` count from 1, in the file.
    """

    def __init__(self, problem: str, advice: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}: {advice}")
        self.problem = problem
        self.advice = advice
        self.line = line
        self.column = column


class Position(NamedTuple):
    """A place in SKILL.md, counted from 1."""

    line: int
    column: int


class SkillDocument(NamedTuple):
    """A SKILL.md in its two parts.

    `positions` has the place of the value of each key at the top level.
    """

    frontmatter: dict[str, Any]
    body: str
    positions: dict[str, Position]


class YamlDifference(NamedTuple):
    """A plain scalar that YAML 1.1 and YAML 1.2 read differently, with both readings."""

    text: str
    in_1_1: str
    in_1_2: str
    position: Position

    def __str__(self) -> str:
        return f"{self.text} is {self.in_1_2} in YAML 1.2 and {self.in_1_1} in YAML 1.1: put it in quotes"


def read_skill_document(data: bytes) -> SkillDocument:
    """Parse the bytes of a SKILL.md.

    Raises `FrontmatterError` if the frontmatter is not YAML with one meaning.
    """
    source = _split(data)
    reader = _Reader(source, _core)
    fields = reader.read_fields()
    return SkillDocument(fields, source.body, reader.positions)


def read_as_yaml_1_1(data: bytes) -> dict[str, Any]:
    """Parse the frontmatter as servers with a YAML 1.1 library do, to explain a mismatch."""
    return _Reader(_split(data), _older).read_fields()


def yaml_differences(data: bytes) -> list[YamlDifference]:
    """Return the plain scalars that YAML 1.1 and YAML 1.2 read differently."""
    found: list[YamlDifference] = []

    def compare(text: str) -> Any:
        newer = _core(text)
        older = "a date" if _DATE.fullmatch(text) or _TIME.fullmatch(text) else _in_words(_older(text))
        if older != _in_words(newer):
            found.append(YamlDifference(text, older, _in_words(newer), reader.here))
        return newer

    reader = _Reader(_split(data), compare)
    reader.read_fields()
    return found


def _in_words(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False)
    return f"the string {written}" if isinstance(value, str) else written


# --- the two parts of the file ---


class _Source(NamedTuple):
    """The YAML between the `---` lines. Its first line is line 2 of the file."""

    yaml: str
    body: str

    def position(self, line: int, column: int) -> Position:
        """Convert a position in the YAML, counted from 0, to one in the file."""
        return Position(line + 2, column + 1)

    def line(self, position: Position) -> str:
        lines = self.yaml.split("\n")
        return lines[position.line - 2].rstrip("\r") if position.line - 2 < len(lines) else ""


_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*(?:\r?\n|\Z)")
_CLOSING = re.compile(rb"^---[ \t]*(?:\r?\n|\r?\Z)", re.MULTILINE)
# YAML 1.2, 5.1: the characters of a document. NEL, LS and PS are left out as well: YAML 1.1 ends a line there, YAML 1.2
# does not. A carriage return ends a line only together with a line feed: readers disagree about one alone.
_UNFIT = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\r(?!\n)"
)


def _split(data: bytes) -> _Source:
    opening = _OPENING.match(data)
    if opening is None:
        raise FrontmatterError(
            "there is no frontmatter", "begin the file with a line ---, then name: and description:, then ---", 1, 1
        )
    start = opening.end()
    # Searched in a slice of bounded length: a large file without a second line --- is not walked to its end.
    closing = _CLOSING.search(data[start : start + MAX_BYTES + 8])
    if closing is None:
        raise FrontmatterError(
            "the frontmatter does not end" if len(data) - start <= MAX_BYTES else "the frontmatter is too long",
            f"close it with a line --- after at most {MAX_BYTES:,} bytes",
            1,
            1,
        )
    yaml = _decoded(data[start : start + closing.start()], 2)
    body = _decoded(data[start + closing.end() :], 2 + yaml.count("\n") + 1)
    unfit = _UNFIT.search(yaml)
    if unfit is not None:
        index = unfit.start()
        raise FrontmatterError(
            f"the character U+{ord(unfit.group()):04X} cannot stand in YAML",
            "remove it, or write an escape in double quotes",
            yaml.count("\n", 0, index) + 2,
            index - yaml.rfind("\n", 0, index),
        )
    return _Source(yaml, body)


def _decoded(data: bytes, first_line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = first_line + before.count(b"\n")
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise FrontmatterError("the text is not UTF-8", "save the file as UTF-8", line, column) from None


# --- the meaning of a plain scalar ---


def _core(text: str) -> Any:
    """Return the YAML 1.2 value of a plain scalar.

    Raises ValueError for a number that some JSON readers cannot represent.
    """
    value = core_value(text)
    return _exact(value) if type(value) is int else value


def _whole(digits: str, base: int) -> int:
    return _exact(whole_number(digits, base))


def _exact(value: int) -> int:
    if abs(value) > MAX_INTEGER:
        raise ValueError("is larger than the numbers that every reader keeps exactly")
    return value


# The resolvers of the YAML 1.1 libraries in use (PyYAML and its relatives). They read `y` and `n` as strings.
_OLDER_BOOLEAN: Final = {
    variant: value
    for word, value in (("yes", True), ("on", True), ("true", True), ("no", False), ("off", False), ("false", False))
    for variant in (word, word.capitalize(), word.upper())
}
_OLDER_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)")
_OLDER_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)")
_SEXAGESIMAL = re.compile(r"([-+]?)([0-9][0-9_]*(?::[0-5]?[0-9])+)(\.[0-9_]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?)(?:[Tt]|[ \t]+)"
    r"(?P<hour>[0-9][0-9]?)(?P<rest>:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?)[ \t]*(?P<zone>Z|[-+][0-9][0-9]?(?::[0-9]{2})?)?"
)


def _older(text: str) -> Any:
    """Return the value of a plain scalar as YAML 1.1 libraries render it in JSON.

    Dates become strings again.
    """
    if text in NULL:
        return None
    if (boolean := _OLDER_BOOLEAN.get(text)) is not None:
        return boolean
    if _OLDER_INTEGER.fullmatch(text):
        return _older_integer(text.replace("_", ""))
    if _OLDER_FLOAT.fullmatch(text):
        digits = text.replace("_", "")
        return finite(float(digits)) if digits not in (".", "+.", "-.") else text
    if sexagesimal := _SEXAGESIMAL.fullmatch(text):
        return _sexagesimal(*sexagesimal.groups())
    if _DATE.fullmatch(text):
        return text
    if time := _TIME.fullmatch(text):
        return _iso_time(time)
    if NO_NUMBER.fullmatch(text):
        raise ValueError("is not a number that JSON has")
    return text


def _older_integer(text: str) -> int:
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    if digits.startswith("0b"):
        return _whole(sign + digits[2:], 2)
    if digits.startswith("0x"):
        return _whole(sign + digits[2:], 16)
    return _whole(sign + digits, 8 if digits.startswith("0") and digits != "0" else 10)


def _sexagesimal(sign: str, digits: str, fraction: str | None) -> int | float:
    value = 0
    for part in digits.replace("_", "").split(":"):
        value = value * 60 + _whole(part, 10)
    signed = -value if sign == "-" else value
    if fraction is None:
        return _whole(str(signed), 10)
    return signed + float(f"{sign}0{fraction.replace('_', '')}0")


def _iso_time(time: re.Match[str]) -> str:
    """Return a moment as `datetime.isoformat` writes it, which is what such libraries put into JSON."""
    date = "-".join(part.zfill(2) for part in time["date"].split("-"))
    rest, _, fraction = time["rest"].partition(".")
    fraction = fraction[:6].ljust(6, "0") if fraction else ""
    zone = time["zone"] or ""
    if zone:
        hours, _, minutes = zone[1:].partition(":")
        zone = "+00:00" if zone == "Z" else f"{zone[0]}{hours.zfill(2)}:{minutes or '00'}"
    return f"{date}T{time['hour'].zfill(2)}{rest}{'.' + fraction if fraction.strip('0') else ''}{zone}"


# --- the structure ---


class _Reader(YamlReader):
    """A reader of frontmatter, which refuses what has no single meaning in JSON."""

    extra = "skills"
    what = "Reading the frontmatter of a skill"
    one_document = "keep one mapping between the two lines ---"

    def __init__(self, source: _Source, resolve: Callable[[str], Any]) -> None:
        super().__init__(MAX_DEPTH, MAX_ENTRIES)
        self._source = source
        self._resolve = resolve
        self._entries = 0
        self._has_root = False
        self._top: dict[str, Any] | None = None
        """The mapping at the top level."""
        self._top_key: str | None = None
        """The key at the top level that waits for its value."""
        self.positions: dict[str, Position] = {}
        self.here = Position(2, 1)
        """The place of the scalar that is being resolved."""

    def read_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] | None = self.read(self._source.yaml)
        if fields is None:
            raise FrontmatterError("the frontmatter is empty", "write name: and description: before the line ---", 2, 1)
        return fields

    def read_key(self, event: Any, container: dict[str, Any]) -> str:
        key = self.read_scalar(event)
        if not isinstance(key, str):
            raise self.error_at(
                event, f"the key {event.value!r} is not a string", f'put it in quotes: "{event.value}":'
            )
        if key == "<<" and event.implicit[0]:
            raise self.error_at(event, "a merge key copies other fields", "write the fields out here")
        if key == "__proto__":
            raise self.error_at(event, "the key '__proto__' is not safe in JavaScript", "choose another name")
        if key in container:
            raise self.error_at(event, f"the key {key!r} stands here twice", "keep one of them")
        if self._top is None:
            self._top = container
        if container is self._top:
            self._top_key = key
        return key

    def read_scalar(self, event: Any) -> Any:
        self._check_root(event, is_mapping=False)
        self._check_node(event)
        if event.tag is not None:
            raise self._tagged(event)
        if event.implicit[0]:
            self.here = self._position(event)
            if event.value and self._source.yaml[event.start_mark.index - 1 : event.start_mark.index] == "?":
                # YAML 1.1 reads `[?x]` as a key without a value, YAML 1.2 as the text `?x`.
                advice = f'put the text in quotes: "?{event.value}"'
                raise self.error_at(event, "a ? in brackets has two meanings", advice)
        return super().read_scalar(event)

    def resolve(self, text: str) -> Any:
        return self._resolve(text)

    def read_alias(self, event: Any, is_key: bool) -> tuple[Any, int]:
        self._check_root(event, is_mapping=False)
        if is_key:
            raise self.error_at(event, "a key is not a string", "write a word, a colon and the value")
        raise self.error_at(event, f"*{event.anchor} is an alias", "write the value out, or put the text in quotes")

    def merge_into(self, event: Any, container: dict[str, Any], value: Any) -> None:
        container["<<"] = value  # The key was in quotes, so it means itself.

    def check_collection(self, event: Any, depth: int, is_mapping: bool) -> None:
        self._check_root(event, is_mapping)
        self._check_node(event)
        if depth > MAX_DEPTH:
            raise self.error_at(event, "the values are nested too deeply", f"nest at most {MAX_DEPTH} levels")
        if not event.implicit:
            raise self._tagged(event)

    def _check_root(self, event: Any, is_mapping: bool) -> None:
        if not (self._has_root or is_mapping):
            advice = "write lines such as name: pdf-processing"
            raise self.error_at(event, "the frontmatter is not a mapping", advice)
        self._has_root = True

    def _check_node(self, event: Any) -> None:
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise self.error_at(event, "the frontmatter has too many values", f"keep at most {MAX_ENTRIES:,}")
        if event.anchor is not None:
            advice = "remove it, or put the whole value in quotes"
            raise self.error_at(event, f"&{event.anchor} is an anchor", advice)
        if self._top_key is not None:
            self.positions[self._top_key] = self._position(event)
            self._top_key = None

    def _tagged(self, event: Any) -> FrontmatterError:
        # The parser has the long form of a tag; the text has what its author wrote.
        start = event.start_mark.index
        written = re.match(r"[^\s,\[\]{}]+", self._source.yaml[start : start + 60])
        return self.error_at(
            event, f"{written[0] if written else event.tag} is a tag", "remove it, or put the whole value in quotes"
        )

    # --- places and errors ---

    def _position(self, event: Any) -> Position:
        return self._source.position(event.start_mark.line, event.start_mark.column)

    def error_at(self, event: Any, problem: str, remedy: str) -> FrontmatterError:
        return FrontmatterError(problem, remedy, *self._position(event))

    def syntax_error(self, error: Any) -> FrontmatterError:
        mark = error.problem_mark or error.context_mark
        place = self._source.position(mark.line, mark.column)
        line = self._source.line(place)
        rest = line[place.column - 1 :]
        if "mapping values are not allowed" in error.problem:
            return FrontmatterError(
                "a value without quotes has a colon and a blank", quoted(line, place.column), *place
            )
        if "cannot start any token" in error.problem:
            if rest.startswith("\t"):
                return FrontmatterError("a tab stands where YAML wants blanks", "indent with blanks", *place)
            return FrontmatterError(
                f"a value without quotes begins with {rest[:1]}", quoted(line, place.column), *place
            )
        if "sequence entries are not allowed" in error.problem:
            return FrontmatterError(
                "a list begins beside its key",
                "begin each item on its own line, or put the text in quotes",
                *place,
            )
        if (match := _key_and_value(line)) and _TEXT_AFTER_QUOTES.match(match["value"]):
            place = place._replace(column=match.start("value") + 1)
            return FrontmatterError("a value continues after its closing quote", quoted(line, place.column), *place)
        if "could not find expected ':'" in error.problem:
            # The parser notices it one line late: the line with the key is the one to change.
            place = self._source.position(error.context_mark.line, error.context_mark.column)
            return FrontmatterError(
                "a line is not a key with a value", "write key: value, or indent the line under the value above", *place
            )
        if "<document start>" in error.problem:
            return FrontmatterError(
                "a second YAML document begins here", "keep one document between the two lines of ---", *place
            )
        return FrontmatterError(
            f"this is not YAML ({error.problem})", "check quotes, brackets and indentation up to here", *place
        )


_KEY_AND_VALUE = re.compile(r"(?P<key>[ \t]*(?:- )?[^\s:#'\"][^:]*:)[ \t]+(?P<value>.*)")

_TEXT_AFTER_QUOTES = re.compile(r"""(?:"[^"\\]*"|'[^']*')[ \t]*[^'\s#]""")


def _key_and_value(line: str) -> re.Match[str] | None:
    # Blanks at the end are cut off before the match: a pattern for them would try every run of blanks in the line.
    return _KEY_AND_VALUE.fullmatch(line.rstrip(" \t"))


def quoted(line: str, column: int) -> str:
    """Return the corrected line for a value that needs quotes at `column`."""
    match = _key_and_value(line)
    if match is None or column <= match.end("key") or len(line) > 1200:  # A continued value, or a long one.
        return "put the whole value in quotes, or begin it with >- on the line of the key"
    value = match["value"]
    quoted = f'"{value}"' if '"' not in value and "\\" not in value else "'" + value.replace("'", "''") + "'"
    return f"write {match['key'].strip()} {quoted}"
