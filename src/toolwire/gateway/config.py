"""The file of a gateway: `mcpServers` as other programs write it, and a table `gateway`, in JSON or TOML.

{"mcpServers": {"back": {"url": "https://…/mcp", "prefix": "", "revision": "2025-11-25"}}, "gateway": {"name": "front"}}

Each server may say its `prefix`, its `timeout` in seconds, and the `revision` to speak with it. Members that only other
programs know are ignored.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.client.config import ServerEntry, entry_target
from toolwire.gateway.gateway import Gateway
from toolwire.gateway.remote_server import TIMEOUT_SECONDS
from toolwire.protocol.errors import ServerError


class BackEntry(ServerEntry):
    """A server in the file of a gateway."""

    prefix: str | None = None
    timeout: float = TIMEOUT_SECONDS
    revision: str | None = None


class GatewayTable(Struct, forbid_unknown_fields=True):
    """The table `gateway`: the name and the description of the gateway itself."""

    name: str = "gateway"
    version: str = "1.0.0"
    title: str | None = None
    description: str | None = None
    instructions: str | None = None


class GatewayFile(Struct):
    """The file of a gateway."""

    servers: dict[str, BackEntry] = msgspec.field(name="mcpServers", default_factory=dict)
    gateway: GatewayTable = msgspec.field(default_factory=GatewayTable)


def gateway_of(source: Mapping[str, Any] | str | os.PathLike[str], **options: Any) -> Gateway:
    """Make the gateway that a file describes. `options` are those of `Gateway`, and win over the file.

    Raise `ServerError`, with the place of the mistake, for a file that describes none.
    """
    described = _read(source)
    table = msgspec.structs.asdict(described.gateway)
    gateway = Gateway(**{**{name: value for name, value in table.items() if value is not None}, **options})
    for name, entry in described.servers.items():
        if entry.disabled:
            continue
        try:
            target = entry_target(name, entry)
        except ValueError as error:
            raise ServerError(str(error)) from None
        if not entry.timeout > 0:
            raise ServerError(f"The timeout of {name!r} is above zero, not {entry.timeout!r}")
        gateway.add(name, target, prefix=entry.prefix, timeout=entry.timeout, revision=entry.revision)
    return gateway


def _read(source: Mapping[str, Any] | str | os.PathLike[str]) -> GatewayFile:
    if isinstance(source, Mapping):
        label, content = "This", dict(source)
    else:
        label, content = repr(os.fspath(source)), _content(Path(source))
    try:
        described = msgspec.convert(content, GatewayFile)
    except msgspec.ValidationError as error:
        raise ServerError(f"{label} is not the file of a gateway: {error}") from None
    if not any(not entry.disabled for entry in described.servers.values()):
        raise ServerError(f"{label} names no server: a gateway needs mcpServers")
    return described


def _content(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text) if path.suffix.lower() == ".toml" else msgspec.json.decode(text)
    except OSError as error:
        raise ServerError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ServerError(f"{os.fspath(path)!r} cannot be read: {error}") from None
