"""`mcpServers` configurations, which many programs use: servers by name, each with a command or a URL.

{"mcpServers": {"files": {"command": "npx", "args": ["some-server"]}, "weather": {"url": "https://…/mcp"}}}

VS Code calls the same `servers`. Values may come from the environment: `${NAME}`, `${env:NAME}`, `${NAME:-default}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.client.targets import CommandTarget, TargetOptions, is_started, resolve
from toolwire.redaction import repr_without
from toolwire.schemas.wording import nearest
from toolwire.wire.regular_files import read_regular

EntryT = TypeVar("EntryT", bound="ServerEntry")

# Characters that a tool's name does not have, and how long the server's part of the name may be.
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 64
# Larger than any configuration: some clients keep their history in it.
_MOST_BYTES: Final = 256 * 1024 * 1024
# Only these forms: `$NAME` without braces is plain text, which is common in passwords.
# `$${` stands for `${` itself.
_VARIABLE: Final = re.compile(
    r"(?P<escaped>\$)?\$\{(?:(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?"
    r"|[A-Za-z_][\w.-]*:[A-Za-z_][^}]*)\}"
)
_TRANSPORTS: Final = frozenset({"http", "streamable-http", "sse"})


class ServerEntry(Struct):
    """One server of a configuration. Members that only other programs know are ignored."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    type: str | None = None
    transport: str | None = None
    disabled: bool = False

    def __repr__(self) -> str:
        return repr_without(self, "args", "env", "url", "headers")


class _File(Struct):
    servers: dict[str, ServerEntry] | None = msgspec.field(name="mcpServers", default=None)
    vscode: dict[str, ServerEntry] | None = msgspec.field(name="servers", default=None)


def read_config(source: Mapping[str, Any] | str | os.PathLike[str], *, inherit_env: bool = False) -> dict[str, Target]:
    """Return the servers of a configuration, or of a configuration file, by name. Raise `ValueError` if it is none.

    A mapping may have anything that a client connects to in place of an entry, such as a `Server`. A mapping of names
    to such targets needs no `mcpServers`. With `inherit_env` commands get the environment of this process.
    """
    servers = _given(source) if isinstance(source, Mapping) else _written(source)
    if servers is None:
        raise ValueError(f"{_named(source)} is not a configuration: it has no mcpServers, nor servers as VS Code has")
    chosen = {name: one for name, one in servers.items() if not (isinstance(one, ServerEntry) and one.disabled)}
    if not chosen:
        raise ValueError("The configuration names no server")
    return {name: _server(name, one, inherit_env) for name, one in chosen.items()}


def _written(path: str | os.PathLike[str]) -> Mapping[str, ServerEntry] | None:
    """Return the entries of a file."""
    try:
        content = read_regular(Path(path), _MOST_BYTES)
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ValueError(f"{_named(path)} is not a configuration with mcpServers: {error}") from None
    except OSError as error:
        raise ValueError(f"The configuration {os.fspath(path)!r} cannot be read: {error.strerror}") from None
    servers = file.vscode if file.servers is None else file.servers
    if servers is not None and any(_is_empty(entry) for entry in servers.values()):
        members = msgspec.json.decode(content)["servers" if file.servers is None else "mcpServers"]
        for name, entry in servers.items():
            check_keys(name, entry, members[name])
    return servers


def _is_empty(entry: ServerEntry) -> bool:
    return entry.command is None and entry.url is None and not entry.disabled


def check_keys(name: str, entry: ServerEntry, members: Mapping[str, Any]) -> None:
    """Raise `ValueError` for an entry without a server whose key was probably misspelt."""
    if not _is_empty(entry):
        return
    for key in members:
        if key not in ServerEntry.__struct_fields__ and (meant := nearest(key, ("command", "url"))) is not None:
            raise ValueError(f"The server {name!r} has the key {key!r}; did you mean {meant!r}?")


def _given(source: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entries and the targets of a mapping; None if it is no mapping of servers."""
    servers = next((source[key] for key in ("mcpServers", "servers") if source.get(key) is not None), None)
    if servers is None:
        is_plain = any(not isinstance(one, Mapping) for one in source.values())
        servers = source if is_plain else None
    elif not isinstance(servers, Mapping):
        raise ValueError("This is not a configuration with mcpServers: they are a mapping of names to servers")
    if servers is None:
        return None
    return {_checked(name): _entry(name, one) if isinstance(one, Mapping) else one for name, one in servers.items()}


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"This is not a configuration with mcpServers: {name!r:.100} is not the name of a server")
    return name


def _entry(name: str, members: Mapping[str, Any]) -> ServerEntry:
    try:
        entry = msgspec.convert(dict(members), ServerEntry)
        check_keys(name, entry, members)
        return entry
    except msgspec.ValidationError as error:
        raise ValueError(f"This is not a configuration with mcpServers: {error}") from None


def _server(name: str, one: Any, inherit_env: bool) -> Target:
    if isinstance(one, ServerEntry):
        return entry_target(name, one, inherit_env=inherit_env)
    try:
        return resolve(one, TargetOptions(inherit_env=inherit_env or None) if is_started(one) else TargetOptions())
    except (TypeError, ValueError) as error:
        raise ValueError(f"The server {name!r} cannot be used: {error}") from None


def entry_target(name: str, entry: ServerEntry, *, inherit_env: bool = False) -> Target:
    """Return the server that an entry describes. Raise `ValueError` for an entry that describes none."""
    return _target(name, expanded(name, entry), inherit_env)


def expanded(name: str, entry: EntryT) -> EntryT:
    """Put the values of environment variables into an entry: `${NAME}`, `${env:NAME}`, `${NAME:-default}`.

    Claude Code, VS Code and Cursor write secrets in this form. Raise `ValueError` for a variable that is not set and
    has no default, and for any other form, such as `${input:key}` of VS Code: passed on as it is, it would be a wrong
    key.
    """

    def put(text: str, where: str) -> str:
        return expanded_text(text, f"{where} of the server {name!r}")

    def each(members: dict[str, str] | None, where: str) -> dict[str, str] | None:
        return None if members is None else {key: put(value, f"{where} {key!r}") for key, value in members.items()}

    return msgspec.structs.replace(
        entry,
        command=None if entry.command is None else put(entry.command, "the command"),
        args=[put(word, "the args") for word in entry.args],
        env=each(entry.env, "the variable"),
        cwd=None if entry.cwd is None else put(entry.cwd, "the cwd"),
        url=None if entry.url is None else put(entry.url, "the url"),
        headers=each(entry.headers, "the header"),
    )


def expanded_text(text: str, where: str) -> str:
    """Put the values of environment variables into a text. Raise `ValueError`, which names the place, as `expanded`."""
    return _VARIABLE.sub(lambda found: _value(found, where), text)


def _value(found: re.Match[str], where: str) -> str:
    if found["escaped"]:
        return found[0][1:]
    variable = found["name"]
    if variable is None:
        raise ValueError(f"{found[0][:100]!r} in {where} cannot be expanded: use ${{NAME}} or ${{NAME:-default}}")
    value = os.environ.get(variable)
    if found["default"] is not None:
        # As in a shell: an empty variable counts as one that is not set.
        return value or found["default"]
    if value is None:
        raise ValueError(
            f"The environment variable {variable} is not set, which {where} needs: set it, or give it a default with "
            f"${{{variable}:-...}}"
        )
    return value


def prefixes(names: Iterable[str]) -> dict[str, str]:
    """Return the prefix of each server's tool names in a client of several servers, by the name of the server.

    Raise `ValueError` for names that two servers would share.
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


def owner_of(name: str, servers: Iterable[str]) -> str | None:
    """Return the server with the longest name that a tool name begins with."""
    return max((each for each in servers if name.startswith(f"{each}_")), key=len, default=None)


def _named(source: Mapping[str, Any] | str | os.PathLike[str]) -> str:
    return "This" if isinstance(source, Mapping) else repr(os.fspath(source))


def _target(name: str, entry: ServerEntry, inherit_env: bool) -> Target:
    if (entry.command is None) == (entry.url is None):
        raise ValueError(f"The server {name!r} needs either a command or a url")
    if entry.command is not None:
        if entry.headers is not None:
            raise ValueError(f"The server {name!r} is a command, which has no headers")
        return CommandTarget([entry.command, *entry.args], name, entry.env, entry.cwd, None, inherit_env)
    check_transport(name, entry.type or entry.transport)
    assert entry.url is not None
    return HttpTarget(entry.url, headers=entry.headers)


def check_transport(name: str, transport: str | None) -> None:
    """Raise `ValueError` for a transport over which no server is reached by URL."""
    if transport is not None and transport not in _TRANSPORTS:
        raise ValueError(
            f"The server {name!r} has the transport {transport!r}; known are {', '.join(sorted(_TRANSPORTS))}"
        )
