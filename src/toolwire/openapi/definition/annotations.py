"""Annotations of tools by HTTP method.

All four are always set, because some directories refuse a gap.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET

from toolwire.openapi.model import OperationObject
from toolwire.protocol import types as t

_READ: Final = t.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
_REPLACE: Final = t.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True
)
# POST is cautious: it may destroy, and a second call may do more than the first one. Unknown methods are like it.
_WRITE: Final = t.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)
_BY_METHOD: Final = {"GET": _READ, "HEAD": _READ, "QUERY": _READ, "PUT": _REPLACE, "DELETE": _REPLACE}

#: Methods that are never tools: they say something about an address and do nothing for a model.
NEVER_TOOLS: Final = frozenset(("HEAD", "OPTIONS", "TRACE", "CONNECT"))

#: Words in a path, or in the name of a tool, that say that something is changed.
CHANGING_VERBS: Final = re.compile(
    r"(?:activate|add|approve|archive|assign|block|buy|cancel|clear|close|create|deactivate|delete|destroy|disable|drop|"
    r"enable|execute|kill|lock|logout|merge|move|pay|publish|purge|reboot|refresh|register|remove|rename|reset|restart|"
    r"restore|revoke|rotate|send|shutdown|start|stop|submit|subscribe|transfer|trigger|unblock|unlock|unsubscribe|"
    r"update|wipe)"
)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def annotations_of(operation: OperationObject, decided: t.ToolAnnotations | None) -> t.ToolAnnotations:
    """Return the annotations of the tool of an operation. Those that a person decided win."""
    derived = _BY_METHOD.get(operation.method, _WRITE)
    if decided is None:
        return derived
    fields = {name: value for name in decided.__struct_fields__ if (value := getattr(decided, name)) is not UNSET}
    if fields.get("read_only_hint") is True:
        # A tool that reads destroys nothing, and may be called again.
        fields = {"destructive_hint": False, "idempotent_hint": True, **fields}
    return msgspec.structs.replace(derived, **fields)


def changing_read(operation: OperationObject) -> str | None:
    """Return the changing verb in the path of a GET, or None."""
    if operation.method not in ("GET", "QUERY"):
        return None
    segments = [segment for segment in operation.path.split("/") if segment and "{" not in segment]
    for segment in segments:
        first = _WORDS.search(segment)
        if first is not None and CHANGING_VERBS.fullmatch(first[0].lower()) is not None:
            return str(first[0].lower())
    return None
