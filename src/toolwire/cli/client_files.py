"""The configuration files of MCP clients: where they are, what they look like, and changing one without harm."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolwire.cli.errors import UsageError


class ClientFile(NamedTuple):
    """One client: its name for people, its file, and the member in which its servers stand."""

    title: str
    path: Callable[[], Path]
    member: str
    # What else an entry for a command says.
    kind: dict[str, str]
    # The entry for a URL.
    remote: Callable[[str], dict[str, Any]]
    after: str


def _by_url(url: str) -> dict[str, Any]:
    return {"type": "http", "url": url}


def _by_bridge(url: str) -> dict[str, Any]:
    """For a client whose file knows commands only."""
    plain = ["--allow-http"] if url.startswith("http://") else []
    return {"command": "npx", "args": ["-y", "mcp-remote", url, *plain]}


def _home() -> Path:
    return Path.home()


def _application_data() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home() / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")


def own_folder() -> Path:
    """Where this command keeps what it has to remember."""
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
    """A file that is there and is not plain JSON with an object at the top."""


def read(path: Path) -> dict[str, Any]:
    """The whole configuration; empty where there is no file or nothing in it."""
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
        # What Python reads and JSON does not have, such as a number that is too large, would not be written back.
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not plain JSON: {error}") from None
    if not isinstance(found, dict):
        raise Unreadable(f"{path} has no object at its top")
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return members


def with_entry(path: Path, member: str, name: str, entry: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """The text of the file with one server more, and what stood under its name before."""
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
    """As the file has it: the white space that its first indented line begins with."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return 2
    white = next((line[: len(line) - len(line.lstrip())] for line in lines if line[:1] in " \t" and line.strip()), "  ")
    return white if white.startswith("\t") else len(white)


def entries(path: Path) -> dict[str, dict[str, Any]]:
    """The servers that a configuration file names, whoever's it is."""
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
    """Put `text` into the file, all or nothing; returns where what was there before is kept."""
    # The file behind a link is what is replaced, not the link.
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
    """A name for a backup that nothing has yet: an earlier one is never overwritten."""
    number = 1
    while (candidate := path.with_name(f"{path.name}.backup-{number}")).exists():
        number += 1
    return candidate


def _put(target: Path, data: bytes, like: Path) -> None:
    """A new file that no more people can read than could read `like`: such files hold credentials."""
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
