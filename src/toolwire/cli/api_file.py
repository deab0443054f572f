"""Servers of API descriptions for `toolwire run`: a lock file, or a description.

`toolwire run api.lock.json` needs no code. What was chosen and reviewed stands in the lock file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from toolwire.cli.errors import UsageError
from toolwire.wire.regular_files import read_beginning

if TYPE_CHECKING:
    from toolwire.server.server import Server

#: For how long clients may use a list of tools again. After a restart they see the new one this much later at most.
LIST_TTL_MS: Final = 60_000
SUFFIXES: Final = (".json", ".yaml", ".yml")
_MARK: Final = b'"toolwire-openapi-lock/'


def is_api_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file may be an API description or a lock file, not Python."""
    return Path(path).suffix.lower() in SUFFIXES


def is_lock_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a lock file. Nothing is imported for that."""
    try:
        return _MARK in read_beginning(Path(path), 200)
    except (OSError, ValueError):
        return False


def make_server(
    path: str | os.PathLike[str],
    *,
    everything: bool = False,
    bridge: bool = False,
    base_url: str | None = None,
    rate: list[str] | None = None,
    credentials: Mapping[str, str] | None = None,
) -> Server:
    """Make the server of an API.

    Raise `UsageError` where nothing is chosen, and `ServerError` for a wrong description.

    * `everything`: offer all operations of a description. A lock file has its own choice.
    * `bridge`: offer three tools that list, describe and call the operations.
    * `credentials`: references to secrets, by the name of the security scheme.
    """
    # Imported here because most servers are Python files.
    from toolwire.openapi import ALL, openapi
    from toolwire.openapi.access.credential_references import referenced
    from toolwire.server.components.cache import Cache
    from toolwire.server.server import Server

    is_locked = is_lock_file(path)
    if not is_locked and not everything and not bridge:
        raise UsageError(
            f"{path} is an API description, and nothing is chosen: write a lock file with "
            f"`toolwire openapi add {path} --tags ...` and run that, or say --all or --bridge"
        )
    options: dict[str, Any] = {"keep": ALL} if not is_locked else {}
    shape: Literal["tools", "bridge"] = "bridge" if bridge else "tools"
    named = {scheme: referenced(scheme, text) for scheme, text in (credentials or {}).items()}
    api = openapi(path, base_url=base_url, rate=rate, credentials=named, shape=shape, **options)
    # The list is large, and stays as it is until the server starts again.
    return Server(api.name, version=api.version or "1.0.0", cache=Cache(ttl_ms=LIST_TTL_MS)).include(api)
