"""The files under one folder, and nothing outside it: list, read, search.

Run it with `FILES_ROOT=~/documents toolwire run examples/files.py`. Whatever path a model asks for, a link included, is
resolved first and refused unless it lies under the root; the template of the resource screens its paths as well.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from toolwire import File, Server, ToolError
from toolwire.errors import ResourceNotFound

server = Server("files", version="1.0.0", instructions="Reads files under one folder. Paths are relative to it.")

LARGEST = 1_000_000
MOST_MATCHES = 200


@dataclass
class Entry:
    path: str
    kind: str
    size: int


@dataclass
class Match:
    path: str
    line: int
    text: str


def root() -> Path:
    return Path(os.environ.get("FILES_ROOT", ".")).resolve()


def inside(path: str) -> Path:
    """The place that a path means, if it is under the root."""
    try:
        found = (root() / path).resolve()
        there = found.exists()
    except (OSError, ValueError):
        raise ToolError("No file has such a name.") from None
    if not found.is_relative_to(root()):
        raise ToolError(f"{path!r} is outside the folder that is served.")
    if not there:
        raise ResourceNotFound(f"There is no {path!r}; list_files shows what there is.")
    return found


def readable(path: str) -> Path:
    found = inside(path)
    if not found.is_file():
        raise ToolError(f"{path!r} is not a file.")
    if found.stat().st_size > LARGEST:
        raise ToolError(f"{path!r} has more than {LARGEST:,} bytes.")
    return found


def relative(path: Path) -> str:
    return path.relative_to(root()).as_posix()


@server.tool(annotations={"readOnlyHint": True})
def list_files(folder: str = ".") -> list[Entry]:
    """List a folder. Returns its files and folders, by name.

    Args:
        folder: The folder, such as `reports/2026`; the root when it is left out.
    """
    found = inside(folder)
    if not found.is_dir():
        raise ToolError(f"{folder!r} is not a folder.")
    # What a link leads to may lie elsewhere, so links are neither followed nor measured.
    return [
        Entry(relative(path), "folder" if path.is_dir() else "file", path.stat().st_size)
        for path in sorted(found.iterdir())
        if not path.is_symlink()
    ]


@server.tool(annotations={"readOnlyHint": True})
def read_file(path: str) -> File:
    """Read a file. Returns its contents, as text where it is text.

    Args:
        path: The file, such as `reports/2026/may.md`.
    """
    found = readable(path)
    return File(found, uri=f"files://{relative(found)}")


@server.tool(annotations={"readOnlyHint": True})
def search_files(words: str, folder: str = ".") -> list[Match]:
    """Find lines of text files. Returns the lines that have the words, with file and number.

    Args:
        words: What the line has to have, in upper or lower case.
        folder: Where to look; everywhere when it is left out.
    """
    matches: list[Match] = []
    for path in sorted(inside(folder).rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        matches += [
            Match(relative(path), at, line.strip()[:200])
            for at, line in enumerate(lines, start=1)
            if words.casefold() in line.casefold()
        ]
        if len(matches) >= MOST_MATCHES:
            break
    return matches[:MOST_MATCHES]


@server.resource("files://{+path}")
def file(path: str) -> File:
    """A file under the root."""
    return File(readable(path))


if __name__ == "__main__":
    server.run()
