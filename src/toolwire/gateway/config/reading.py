"""From the content of a file to its tables: references are followed, unknown keys and wrong types are found.

All mistakes are found, and not the first one alone. Each is told with its line and its key, and without any value.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast, get_type_hints

import msgspec
from msgspec import Struct, inspect

from toolwire.gateway.config.file_content import FileContent, Source, read_content
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.references import References
from toolwire.gateway.config.tables import OPEN_TABLES, BackEntry, FileTables, GatewayTable, HttpTable
from toolwire.gateway.file_types import PATH, SECRET, given
from toolwire.protocol.errors import ServerError
from toolwire.stores.by_address import broken_scheme

# How msgspec says where in a value a mistake is.
_AT: Final = re.compile(r"(?P<text>.*) - at `(?:key in )?\$(?P<way>.*)`", re.DOTALL)
# Types whose values may come from the environment, where every value is a text.
_SCALARS: Final[dict[type[inspect.Type], type[Any]]] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
}
#: The keys of the servers, in the order in which they are looked for.
BACKS: Final = ("mcpServers", "servers")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Problem(Struct, frozen=True):
    """A mistake in a file, or something that its author should know."""

    text: str
    place: str = ""
    """The key as it is written in TOML, such as `gateway.limits.line`; empty for the file as a whole."""
    line: int | None = None
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}, "
        return f"{line}{self.place or 'the file'}: {self.text}"


class GatewayFileError(ServerError):
    """A file that describes no gateway. `problems` has all mistakes, and the text the first one."""

    def __init__(self, label: str, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        further = len(self.problems) - 1
        more = f" (and {further} more)" if further else ""
        super().__init__(f"{label}, {self.problems[0]}{more}")


class GatewayFile:
    """A file that was read: its tables, with the values that it refers to.

    Two files describe the same server if `has_same_back` says so.
    """

    def __init__(
        self, tables: FileTables, content: FileContent, references: References, clear: tuple[KeyPath, ...] = ()
    ) -> None:
        self.content = content
        self._references = references
        self.gateway: GatewayTable = tables.gateway
        self.http: HttpTable = tables.http
        written = tables.servers if tables.servers is not None else tables.vscode_servers or {}
        self._backs_key = BACKS[tables.servers is None and tables.vscode_servers is not None]
        self.backs: dict[str, BackEntry] = {name: entry for name, entry in written.items() if not entry.disabled}
        """The servers behind the gateway that are not disabled."""
        files = {name: entry.paths for name, entry in self.backs.items()}
        self._digests = {name: [_digest(path) for path in paths] for name, paths in files.items()}
        own = () if content.path is None else (content.path,)
        self.paths: tuple[Path, ...] = (*own, *references.files, *(path for paths in files.values() for path in paths))
        """The file itself, and the files that it refers to: secrets, certificates, and those that describe APIs."""
        self.exposed: tuple[Path, ...] = tuple(references.exposed)
        """The files with secrets that others on this machine can read."""
        self.clear: tuple[KeyPath, ...] = clear
        """The keys of secrets, and of texts that may contain one, which stand in the file itself."""

    def has_same_back(self, name: str, other: GatewayFile) -> bool:
        """Return whether another file describes a server in the same way, and refers to files with the same content."""
        return self.backs[name] == other.backs[name] and self._digests[name] == other._digests[name]

    def http_options(self) -> dict[str, Any]:
        """Return the options of `run("http")` that the file gives."""
        return given(self.http)

    def problem(self, text: str, key: KeyPath, level: Literal["error", "warning"] = "error") -> Problem:
        """Return a problem with a key of this file."""
        return Problem(self.hidden(text), shown_key(key), self.content.line(key), level)

    def hidden(self, text: str) -> str:
        """Return a text without the values that this file refers to."""
        return self._references.hidden(text)

    def error(self, error: Exception, key: KeyPath) -> GatewayFileError:
        """Return the error of a file whose key led to an error."""
        return GatewayFileError(self.content.label, [self.problem(str(error), key)])

    def back_key(self, name: str) -> KeyPath:
        """Return the key of a server."""
        return self._backs_key, name


def read_gateway_file(source: Source) -> GatewayFile:
    """Read the file of a gateway, or take a mapping as one.

    Raise `GatewayFileError` with every mistake, or `ServerError` if there is no such file.
    """
    content = read_content(source)
    file, problems = examine(content)
    if file is None:
        raise GatewayFileError(content.label, problems)
    return file


def examine(content: FileContent) -> tuple[GatewayFile | None, list[Problem]]:
    """Return what a file describes, and its mistakes; None where there are any."""
    references = References(content.folder)
    reading = _Reading(content, references)
    tables = reading.tables()
    problems = sorted(reading.problems, key=lambda each: each.line or 0)
    if tables is None:
        return None, problems
    return GatewayFile(tables, content, references, tuple(reading.clear)), problems


def _digest(path: Path) -> str | None:
    """Return the digest of a file; None for one that cannot be read, which shows when it is used."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@cache
def _read_types() -> tuple[inspect.StructType, dict[str, Any]]:
    """Return the layout of the file and the types of its tables, which take longer to read than a file."""
    return cast("inspect.StructType", inspect.type_info(FileTables)), get_type_hints(FileTables)


def shown_key(key: KeyPath) -> str:
    """Return a key as it is written in TOML."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_quoted(step)}" for step in key)
    return "".join(steps).removeprefix(".")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name that somebody probably meant."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.8)), None)


def _quoted(step: str) -> str:
    return step if re.fullmatch(r"[A-Za-z0-9_$-]{1,100}", step) else repr(step[:100])


class _Reading:
    """Follows the content along the types of the tables."""

    def __init__(self, content: FileContent, references: References) -> None:
        self._content = content
        self._references = references
        self.problems: list[Problem] = []
        self.clear: list[KeyPath] = []

    def tables(self) -> FileTables | None:
        values = self._content.values
        if not isinstance(values, dict):
            self._add("it is not the file of a gateway: it is no object with mcpServers", ())
            return None
        layout, types = _read_types()
        resolved = self._resolved(values, layout, ())
        tables: dict[str, Any] = {}
        for field in layout.fields:
            name = field.encode_name
            if name in resolved:
                tables[field.name] = self._converted(resolved[name], types[field.name], (name,))
        return None if self.problems else FileTables(**tables)

    def _add(self, text: str, key: KeyPath) -> None:
        place = shown_key(key)
        # The first text about a key is the one that says most.
        if all(each.place != place for each in self.problems):
            self.problems.append(Problem(self._references.hidden(text), place, self._content.line(key)))

    def _converted(self, value: Any, type_: Any, key: KeyPath) -> Any:
        """Return a table, or the servers by name, each of which is read by itself, so that its name is known."""
        if key[0] in BACKS and len(key) == 1 and isinstance(value, dict):
            return {name: self._converted(each, BackEntry, (*key, name)) for name, each in value.items()}
        try:
            return msgspec.convert(value, type_)
        except (msgspec.ValidationError, ServerError) as error:
            self._add_wrong(str(error), key)
            return None

    def _add_wrong(self, text: str, key: KeyPath) -> None:
        """Add a mistake that msgspec found. Keys behind `[...]`, which are names of any kind, are not told."""
        found = _AT.fullmatch(text)
        if found is None:
            self._add(text, key)
        else:
            way = _STEP.findall(found["way"].partition("[...]")[0])
            self._add(found["text"], (*key, *(int(index) if index else name for name, index in way)))

    def _resolved(self, value: Any, type_: inspect.Type, key: KeyPath) -> Any:
        """Return a value with the values that it refers to, along its type."""
        if isinstance(type_, inspect.Metadata):
            return self._special(value, type_, key)
        if isinstance(type_, inspect.UnionType):
            return self._resolved(value, self._chosen(value, type_.types, key), key)
        if isinstance(value, str):
            found = self._followed(self._references.text, value, key)
            if type(type_) in _SCALARS and found != value:
                return self._scalar(found, _SCALARS[type(type_)], key)
            if isinstance(type_, inspect.LiteralType) and found not in type_.values:
                self._add(f"it is one of {', '.join(map(str, type_.values))}", key)
            return found
        if isinstance(value, dict) and isinstance(type_, inspect.StructType):
            return self._members(value, type_, key)
        if isinstance(value, dict) and isinstance(type_, inspect.DictType):
            return {name: self._resolved(each, type_.value_type, (*key, name)) for name, each in value.items()}
        if isinstance(value, list) and isinstance(type_, inspect.CollectionType):
            return [self._resolved(each, type_.item_type, (*key, index)) for index, each in enumerate(value)]
        return value

    def _scalar(self, text: str, type_: type[Any], key: KeyPath) -> Any:
        """Return the number, or the switch, that a text from the environment spells."""
        try:
            return msgspec.convert(text, type_, strict=False)
        except msgspec.ValidationError as error:
            self._add(str(error), key)
            return None

    def _special(self, value: Any, type_: inspect.Metadata, key: KeyPath) -> Any:
        """Return a secret, or a path."""
        marks = type_.extra or {}
        if SECRET in marks and isinstance(value, dict):
            return self._followed(self._references.secret, value, key)
        if SECRET in marks and isinstance(value, str) and "${" not in value:
            self.clear.append(key)
        found = self._resolved(value, type_.type, key)
        if PATH in marks and isinstance(found, str) and found and "://" not in found and not broken_scheme(found):
            return os.fspath(self._content.folder / Path(found).expanduser())
        return found

    def _followed(self, follow: Any, value: Any, key: KeyPath) -> Any:
        try:
            return follow(value, shown_key(key))
        except ValueError as error:
            self._add(str(error), key)
            return ""

    def _members(self, value: Mapping[str, Any], type_: inspect.StructType, key: KeyPath) -> dict[str, Any]:
        fields = {field.encode_name: field.type for field in type_.fields}
        known = [*fields, *([type_.tag_field] if type_.tag_field is not None else [])]
        resolved: dict[str, Any] = {}
        for name, each in value.items():
            if name in fields:
                resolved[name] = self._resolved(each, fields[name], (*key, name))
            elif name in known:
                resolved[name] = each
            elif (meant := nearest(name, known)) is not None:
                self._add(f"there is no such key: did you mean {meant!r}?", (*key, name))
            elif type_.cls not in OPEN_TABLES:
                self._add(f"there is no such key: the keys are {', '.join(known)}", (*key, name))
        return resolved

    def _chosen(self, value: Any, types: Iterable[inspect.Type], key: KeyPath) -> inspect.Type:
        """Return the one of several types that a value has."""
        several = list(types)
        if isinstance(value, dict):
            tables = [each for each in several if isinstance(each, inspect.StructType)]
            if len(tables) > 1:
                return self._tagged(value, tables, key)
            mappings = [each for each in several if isinstance(each, inspect.DictType)]
            secrets = (each for each in several if isinstance(each, inspect.Metadata))
            return next(iter([*tables, *mappings]), next(secrets, inspect.AnyType()))
        if isinstance(value, list):
            return next((each for each in several if isinstance(each, inspect.CollectionType)), inspect.AnyType())
        plain = (each for each in several if isinstance(each, inspect.LiteralType) or type(each) in _SCALARS)
        texts = [each for each in several if isinstance(each, inspect.Metadata | inspect.StrType)]
        return next(iter(texts), next(plain, inspect.AnyType()))

    def _tagged(self, value: Mapping[str, Any], tables: list[inspect.StructType], key: KeyPath) -> inspect.Type:
        field = tables[0].tag_field or ""
        known = {each.tag: each for each in tables}
        if value.get(field) in known:
            return known[value[field]]
        self._add(f"it is one of {', '.join(map(str, known))}", (*key, field))
        return inspect.AnyType()
