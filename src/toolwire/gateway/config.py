"""The file of a gateway: `mcpServers` as other programs write it, and a table `gateway`, in JSON or TOML.

{"mcpServers": {"back": {"url": "https://…/mcp", "prefix": "", "revision": "2025-11-25"}}, "gateway": {"name": "front"}}

The members of a server are those that other programs know, and the arguments of `Gateway.add`. Members that only other
programs know are ignored, unless they look like a mistake.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from toolwire.client.config import ServerEntry, entry_target
from toolwire.gateway.gateway import Gateway
from toolwire.gateway.remote_server import LIST_SECONDS, TIMEOUT_SECONDS
from toolwire.protocol.errors import ServerError

T = TypeVar("T")


class BackEntry(ServerEntry):
    """A server in the file of a gateway."""

    prefix: str | None = None
    timeout: float = TIMEOUT_SECONDS
    revision: str | None = None
    list_timeout: float = LIST_SECONDS
    trust: bool = False


class GatewayTable(Struct, omit_defaults=True):
    """The table `gateway`: the name and the description of the gateway itself, and its lists."""

    name: str = "gateway"
    version: str = "1.0.0"
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    strict: bool = False
    stale: bool = False


def gateway_of(source: Mapping[str, Any] | str | os.PathLike[str], **options: Any) -> Gateway:
    """Make the gateway that a file describes. `options` are those of `Gateway`, and win over the file.

    Raise `ServerError`, with the place of the mistake, for a file that describes none.
    """
    if isinstance(source, Mapping):
        label, content = "This", dict(source)
    else:
        label, content = repr(os.fspath(source)), _content(Path(source))
    if not isinstance(content, dict):
        raise ServerError(f"{label} is not the file of a gateway: it is no object with mcpServers")
    # VS Code calls the same `servers`.
    servers = content.get("mcpServers", content.get("servers"))
    if servers is None and (close := _nearest(content, ("mcpServers", "servers"))) is not None:
        raise ServerError(f"{label} has {close[0]!r}: did you mean {close[1]!r}?")
    if not isinstance(servers, dict) and servers is not None:
        raise ServerError(f"{label} is not the file of a gateway: mcpServers are objects by name")
    table = content.get("gateway", {})
    if isinstance(table, dict):
        for name in table.keys() - set(GatewayTable.__struct_fields__):
            _unknown(f"The table gateway of {label}", name, GatewayTable.__struct_fields__)
    described = msgspec.to_builtins(_converted(table, GatewayTable, f"The table gateway of {label}"))
    gateway = Gateway(**{"name": "gateway", **described, **options})
    for name, entry in (servers or {}).items():
        _add(gateway, name, entry, f"The server {name!r} of {label}")
    if not gateway.backs:
        raise ServerError(f"{label} names no server: a gateway needs mcpServers")
    return gateway


def is_gateway_file(name: str) -> bool:
    """Return whether a text is the path of a file that describes a gateway: one with a table `gateway`."""
    path = Path(name)
    if path.suffix.lower() not in (".json", ".toml") or not path.is_file():
        return False
    try:
        content = _content(path)
    except ServerError:
        return False
    return isinstance(content, dict) and "gateway" in content


def _add(gateway: Gateway, name: str, members: Any, label: str) -> None:
    if isinstance(members, dict):
        # A member of another program is no mistake, but one that is nearly one of ours is.
        close = _nearest(members, BackEntry.__struct_fields__)
        if close is not None:
            raise ServerError(f"{label} has {close[0]!r}: did you mean {close[1]!r}?")
    entry = _converted(members, BackEntry, label)
    if entry.disabled:
        return
    try:
        target = entry_target(name, entry)
    except ValueError as error:
        raise ServerError(str(error)) from None
    gateway.add(
        name,
        target,
        prefix=entry.prefix,
        timeout=entry.timeout,
        revision=entry.revision,
        list_timeout=entry.list_timeout,
        trust=entry.trust,
    )


def _converted(content: Any, type_: type[T], label: str) -> T:
    try:
        return msgspec.convert(content, type_)
    except msgspec.ValidationError as error:
        raise ServerError(f"{label} is wrong: {error}") from None


def _nearest(members: Mapping[str, Any], known: Iterable[str]) -> tuple[str, str] | None:
    """Return a member that is not known and nearly one of those that are, with that one."""
    from difflib import get_close_matches

    names = list(known)
    for member in members:
        if member not in names and (close := get_close_matches(member, names, n=1, cutoff=0.8)):
            return member, close[0]
    return None


def _unknown(label: str, name: str, known: Iterable[str]) -> NoReturn:
    close = _nearest({name: None}, known)
    hint = f"the members are {', '.join(known)}" if close is None else f"did you mean {close[1]!r}?"
    raise ServerError(f"{label} has {name!r}: {hint}")


def _content(path: Path) -> Any:
    """Read a file. A name that stands twice in one object is a mistake: JSON would silently drop the first one."""
    try:
        text = path.read_text("utf-8-sig")
        return tomllib.loads(text) if path.suffix.lower() == ".toml" else _json(text)
    except OSError as error:
        raise ServerError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        form = "TOML" if path.suffix.lower() == ".toml" else "JSON"
        raise ServerError(f"{os.fspath(path)!r} cannot be read as a {form} file: {error}") from None


def _json(text: str) -> Any:
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
