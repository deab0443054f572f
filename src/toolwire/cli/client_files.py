"""The configuration files of MCP clients: their places, their form, and safe changes of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolwire.cli.errors import UsageError


class ClientFile(NamedTuple):
    """A client: its title, its configuration file, and the member of the file that holds its servers."""

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
    return {"command": sys.executable, "args": ["-m", "toolwire", "bridge", url]}


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


class Unreadable(Exception):
    """A file exists and is not plain JSON with an object at the top."""


def read(path: Path) -> dict[str, Any]:
    """Read a whole configuration; an absent or empty file is an empty one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_members)
        # Python reads values that JSON cannot hold, such as too large a number. They could not be written back.
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not plain JSON: {error}") from None
    if not isinstance(found, dict):
        raise Unreadable(f"{path} does not hold a JSON object")
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same name twice")
    return members


def with_entry(path: Path, member: str, name: str, entry: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the text of the file with the server added, and the entry that had its name before."""
    whole = read(path)
    servers = whole.setdefault(member, {})
    if not isinstance(servers, dict):
        raise Unreadable(f"{member} in {path} is not an object")
    before = servers.get(name)
    servers[name] = entry
    text = json.dumps(whole, indent=_indent(path), ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(whole, indent=_indent(path)) + "\n"
    return text, before


def _indent(path: Path) -> int | str:
    """Return the indentation of the file: the white space of its first indented line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return 2
    white = next((line[: len(line) - len(line.lstrip())] for line in lines if line[:1] in " \t" and line.strip()), "  ")
    return white if white.startswith("\t") else len(white)


def entries(path: Path) -> dict[str, dict[str, Any]]:
    """Return the servers in the configuration file of any client."""
    try:
        found = read(path)
    except Unreadable as error:
        raise UsageError(str(error)) from None
    for member in ("mcpServers", "servers"):
        servers = found.get(member)
        if isinstance(servers, dict):
            return {name: entry for name, entry in servers.items() if isinstance(entry, dict)}
    return {}


def write(path: Path, text: str) -> Path | None:
    """Write `text` to the file, all or nothing; return the backup of the old file, if there was one."""
    # A link stays: the file behind it is replaced.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if path.exists():
        backup = _free(path)
        _put(backup, path.read_bytes(), path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    _put(fresh, text.encode(), path)
    fresh.replace(path)
    return backup


def _free(path: Path) -> Path:
    """Return an unused name for a backup, so that an earlier one is never overwritten."""
    number = 1
    while (candidate := path.with_name(f"{path.name}.backup-{number}")).exists():
        number += 1
    return candidate


def _put(target: Path, data: bytes, like: Path) -> None:
    """Write a new file with the permissions of `like`, because such files hold credentials."""
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
