"""The configuration files of MCP clients: their places, their form, and safe changes of them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

from toolwire.cli.errors import UsageError
from toolwire.wire.regular_files import follow_link, read_regular, replace_file, write_new
from toolwire.wire.server_files import TOOLWIRE

#: Larger than any configuration: some clients keep their history in it.
MOST_BYTES: Final = 256 * 1024 * 1024
_LOCK_SECONDS: Final = 10.0


class ClientFile(NamedTuple):
    """A client: its title, its configuration file, and where that holds servers."""

    title: str
    path: Callable[[], Path]
    member: str
    # Further members of an entry for a command.
    kind: dict[str, str]
    # The entry for a URL.
    remote: Callable[[str], dict[str, Any]]
    after: str


def _by_url(url: str) -> dict[str, Any]:
    return {"type": "http", "url": url}


def _by_bridge(url: str) -> dict[str, Any]:
    """Return an entry for a client whose configuration knows commands only."""
    return {"command": TOOLWIRE[0], "args": [*TOOLWIRE[1:], "bridge", url]}


def _home() -> Path:
    return Path.home()


def _application_data() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home() / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")


def own_folder() -> Path:
    """Return the folder in which this command keeps its own files."""
    return _application_data() / "toolwire"


CLIENTS: Final = {
    "claude-desktop": ClientFile(
        "Claude Desktop",
        lambda: _application_data() / "Claude" / "claude_desktop_config.json",
        "mcpServers",
        {},
        _by_bridge,
        "Quit Claude Desktop and start it again.",
    ),
    "claude-code": ClientFile(
        "Claude Code",
        lambda: _home() / ".claude.json",
        "mcpServers",
        {"type": "stdio"},
        _by_url,
        "Start a new Claude Code session; /mcp shows the server.",
    ),
    "vscode": ClientFile(
        "VS Code",
        lambda: _application_data() / "Code" / "User" / "mcp.json",
        "servers",
        {"type": "stdio"},
        _by_url,
        "VS Code offers to start the server; 'MCP: List Servers' shows it.",
    ),
    "cursor": ClientFile(
        "Cursor",
        lambda: _home() / ".cursor" / "mcp.json",
        "mcpServers",
        {},
        lambda url: {"url": url},
        "Cursor's settings show the server under MCP.",
    ),
}


class UnreadableFile(Exception):
    """A file exists and is not plain JSON with an object at the top."""


def read(path: Path) -> dict[str, Any]:
    """Read a whole configuration; an absent or empty file is an empty one."""
    return _parse(path, _text_of(path))


def _parse(path: Path, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_members)
        # Python reads values that JSON cannot hold, such as too large a number. They could not be written back.
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not plain JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableFile(f"{path} does not hold a JSON object")
    return found


def _text_of(path: Path) -> str:
    """Return the text of a configuration; an empty one for an absent file."""
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same name twice")
    return members


def with_entry(path: Path, member: str, name: str, entry: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Add a server to the text of a file.

    Returns the text, and the entry that had its name before.
    """
    old = _text_of(path)
    servers = _parse(path, old).get(member, {})
    if not isinstance(servers, dict):
        raise UnreadableFile(f"{member} in {path} is not an object")
    numbers = _Numbers()
    whole = json.loads(old, parse_int=numbers.mark, parse_float=numbers.mark) if old.strip() else {}
    whole.setdefault(member, {})[name] = entry
    text = json.dumps(whole, indent=_indent(old), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(whole, indent=_indent(old))
    return numbers.restore(text) + "\n", servers.get(name)


class _Numbers:
    """Numbers of a file, exactly as they are written there.

    A float does not hold all of them, nor the way they are written.
    """

    def __init__(self) -> None:
        # No text of the file is taken for a number.
        self._mark = f"number {token_hex(16)} "
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        """Return a text that stands for a number."""
        self._texts.append(text)
        return f"{self._mark}{len(self._texts) - 1}"

    def restore(self, text: str) -> str:
        """Return JSON with the numbers in place of their marks."""
        return re.sub(f'"{self._mark}([0-9]+)"', lambda found: self._texts[int(found[1])], text)


def _indent(text: str) -> int | str:
    """Return the indentation of a file: the white space of its first indented line."""
    lines = text.splitlines()
    white = next((line[: len(line) - len(line.lstrip())] for line in lines if line[:1] in " \t" and line.strip()), "  ")
    return white if white.startswith("\t") else len(white)


def entries(path: Path) -> dict[str, dict[str, Any]]:
    """Return the servers in the configuration file of any client."""
    try:
        found = read(path)
    except UnreadableFile as error:
        raise UsageError(str(error)) from None
    for member in ("mcpServers", "servers"):
        servers = found.get(member)
        if isinstance(servers, dict):
            return {name: entry for name, entry in servers.items() if isinstance(entry, dict)}
    return {}


def write(path: Path, text: str) -> Path | None:
    """Write a file atomically. Return the backup of the old file, if any; raise `OSError`."""
    # A link stays: the file behind it is replaced.
    path = follow_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        replace_file(path, text.encode())
        return None
    # Such files hold credentials, so the new ones have the permissions of the old one.
    mode = path.stat().st_mode & 0o777
    backup = _free(path)
    write_new(backup, read_regular(path, MOST_BYTES), mode)
    replace_file(path, text.encode(), mode)
    return backup


def _free(path: Path) -> Path:
    """Return an unused name for a backup, so that an earlier one is never overwritten."""
    number = 1
    # A link that leads to nothing is in the way as well.
    while os.path.lexists(candidate := path.with_name(f"{path.name}.backup-{number}")):
        number += 1
    return candidate


@contextmanager
def locked() -> Iterator[None]:
    """Lock all configurations against other commands. Raise `OSError`, or `TimeoutError` after a while."""
    # Imported here because most commands change no configuration.
    from toolwire.wire.file_locks import FileLock, NoFileLocks

    folder = own_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "install.lock") as held:
        try:
            if not held.acquire(_LOCK_SECONDS):
                raise TimeoutError(f"another install has been running for {_LOCK_SECONDS:g} s")
        except NoFileLocks:
            pass  # As before there were locks: the check of the file just before it is written remains.
        yield
