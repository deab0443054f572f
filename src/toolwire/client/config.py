"""`mcpServers` configurations, as many programs keep them: several servers by name, each a command or a URL.

{"mcpServers": {"files": {"command": "npx", "args": ["some-server"]}, "weather": {"url": "https://…/mcp"}}}

VS Code calls the same `servers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from toolwire.client.connect import CommandTarget
from toolwire.client.group import Group, GroupTarget, Member
from toolwire.client.http_target import HttpTarget
from toolwire.client.link import Target
from toolwire.hiding import hiding

MemberT = TypeVar("MemberT", bound=Member)

MAX_SERVERS: Final = 100
# What a tool's name is not made of, and how much of one that of its server may take.
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 64
_TRANSPORTS: Final = frozenset({"http", "streamable-http", "sse"})


class ServerEntry(Struct):
    """One server of a configuration; members that other programs have besides are passed over."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    type: str | None = None
    transport: str | None = None
    disabled: bool = False

    __repr__ = hiding("args", "env", "url", "headers")


class _Config(Struct):
    servers: dict[str, ServerEntry] | None = msgspec.field(name="mcpServers", default=None)
    vscode: dict[str, ServerEntry] | None = msgspec.field(name="servers", default=None)


def read_config(source: Mapping[str, Any] | str | os.PathLike[str], *, inherit_env: bool = False) -> dict[str, Target]:
    """The servers of a configuration, or of the file that has one, by name; `ValueError` for what is none.

    With `inherit_env` commands get the environment of this process.
    """
    try:
        if isinstance(source, Mapping):
            config = msgspec.convert(dict(source), _Config)
        else:
            config = msgspec.json.decode(Path(source).read_bytes(), type=_Config)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ValueError(f"{_named(source)} is not a configuration with mcpServers: {error}") from None
    except OSError as error:
        raise ValueError(f"The configuration {os.fspath(source)!r} cannot be read: {error.strerror}") from None  # type: ignore[arg-type]
    servers = config.vscode if config.servers is None else config.servers
    if servers is None:
        raise ValueError(f"{_named(source)} is not a configuration: it has no mcpServers, nor servers as VS Code has")
    entries = {name: entry for name, entry in servers.items() if not entry.disabled}
    if not entries:
        raise ValueError("The configuration names no server")
    if len(entries) > MAX_SERVERS:
        raise ValueError(f"The configuration names more than {MAX_SERVERS} servers")
    return {name: _target(name, entry, inherit_env) for name, entry in entries.items()}


def prefixes(names: Iterable[str]) -> dict[str, str]:
    """What the names of tools begin with when several servers are one, by the name of the server.

    `ValueError` for what cannot tell them apart.
    """
    found: dict[str, str] = {}
    for name in names:
        prefix = _OTHERS.sub("_", name)
        if not 1 <= len(prefix) <= _LONGEST_NAME:
            raise ValueError(f"{name[:100]!r} cannot be the name of one of several servers: use 1 to 64 characters")
        if prefix in found.values():
            raise ValueError(f"Two servers would both be called {prefix!r}: name one of them otherwise")
        found[name] = prefix
    return found


def configured(
    source: Mapping[str, Any] | str | os.PathLike[str],
    member: Callable[[Target], MemberT],
    *,
    inherit_env: bool = False,
) -> tuple[Target, list[MemberT]]:
    """What a configuration stands for: the one server it names, or a group with a `member` for each."""
    targets = read_config(source, inherit_env=inherit_env)
    if len(targets) == 1:
        return next(iter(targets.values())), []
    members = {prefix: member(targets[name]) for name, prefix in prefixes(targets).items()}
    return GroupTarget(Group(members)), list(members.values())


def _named(source: Mapping[str, Any] | str | os.PathLike[str]) -> str:
    return "This" if isinstance(source, Mapping) else repr(os.fspath(source))


def _target(name: str, entry: ServerEntry, inherit_env: bool) -> Target:
    if (entry.command is None) == (entry.url is None):
        raise ValueError(f"The server {name!r} needs either a command or a url")
    if entry.command is not None:
        if entry.headers is not None:
            raise ValueError(f"The server {name!r} is a command, which has no headers")
        return CommandTarget([entry.command, *entry.args], name, entry.env, entry.cwd, None, inherit_env)
    transport = entry.type or entry.transport
    if transport is not None and transport not in _TRANSPORTS:
        raise ValueError(
            f"The server {name!r} has the transport {transport!r}; known are {', '.join(sorted(_TRANSPORTS))}"
        )
    assert entry.url is not None
    return HttpTarget(entry.url, headers=entry.headers)
