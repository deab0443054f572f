"""The content of the file of a gateway, as it is written: values by their keys, and the lines of the keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from toolwire.gateway.config.positions import KeyPath, lines_of
from toolwire.protocol.errors import ServerError
from toolwire.wire.regular_files import read_beginning

Source: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]

#: How many bytes the file may have. The files of large companies have a few hundred KiB.
MAX_FILE: Final = 4 * 1024 * 1024


class FileContent:
    """The values of a file, and the lines of their keys. `path` is None for a mapping that a program made."""

    def __init__(self, values: Any, *, path: Path | None = None, text: str = "") -> None:
        self.values = values
        self.path = path
        self.label: str = "This configuration" if path is None else repr(os.fspath(path))
        self._text = text
        self._lines: dict[KeyPath, int] | None = None

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the file belong to."""
        return Path() if self.path is None else self.path.parent

    def line(self, key: KeyPath) -> int | None:
        """Return the line of a key. For a key that is not there, return the line of what it belongs to."""
        if self.path is None:
            return None
        if self._lines is None:
            self._lines = lines_of(self._text, is_toml=is_toml(self.path))
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key)


def read_content(source: Source) -> FileContent:
    """Read a file, or take a mapping. Raise `ServerError` for a file that cannot be read."""
    if isinstance(source, Mapping):
        return FileContent(dict(source))
    path = Path(source)
    try:
        data = read_beginning(path, MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ServerError(f"{os.fspath(path)!r} cannot be read: it has more than {MAX_FILE} bytes")
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        values = tomllib.loads(text) if is_toml(path) else _json(text)
    except OSError as error:
        raise ServerError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        form = "TOML" if is_toml(path) else "JSON"
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ServerError(f"{os.fspath(path)!r} cannot be read as a {form} file: {why}") from None
    return FileContent(values, path=path, text=text)


def is_toml(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def is_gateway_file(name: str) -> bool:
    """Return whether a text is the path of a file that describes a gateway: one with a table `gateway`."""
    path = Path(name)
    if path.suffix.lower() not in (".json", ".toml") or not path.is_file():
        return False
    try:
        values = read_content(path).values
    except ServerError:
        return False
    return isinstance(values, dict) and "gateway" in values


def _json(text: str) -> Any:
    """Read JSON. A name that stands twice in one object is a mistake: the first one would silently be dropped."""
    # Imported here because it says the line of a mistake, and only this file needs that.
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{twice!r} stands there twice{_second_line(text, twice)}")
        return members

    return json.loads(text, object_pairs_hook=unique)


def _second_line(text: str, name: str) -> str:
    """Say where a name stands for the second time, unless it stands there more often."""
    places = [found.start() for found in re.finditer(rf'"{re.escape(name)}"\s*:', text)]
    if len(places) != 2:
        return ""
    first, second = (text.count("\n", 0, place) + 1 for place in places)
    return f", in line {first}" if first == second else f", in line {first} and in line {second}"
