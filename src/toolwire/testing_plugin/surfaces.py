"""The surface of a server: what a client sees of it before it calls anything, as text that can be compared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from toolwire.client import Client
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported


async def of(server: Any) -> tuple[str, str]:
    """The server's name, and its surface as JSON: sorted, so that only real changes show."""
    async with Client(server) as client:
        listings: dict[str, Callable[[], Awaitable[Sequence[t.Wire]]]] = {
            "tools": client.list_tools,
            "resources": client.list_resources,
            "resourceTemplates": client.list_resource_templates,
            "prompts": client.list_prompts,
        }
        found: dict[str, Any] = {}
        if client.instructions is not None:
            found["instructions"] = client.instructions
        for kind, listing in listings.items():
            try:
                entries = [entry.to_dict() for entry in await listing()]
            except NotSupported:
                continue
            found[kind] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
        name = client.server.name if client.server is not None else "server"
    return name, json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def difference(kept: str, found: str, name: str) -> str:
    lines = difflib.unified_diff(kept.splitlines(), found.splitlines(), name, "now", lineterm="")
    return "\n".join(lines)
