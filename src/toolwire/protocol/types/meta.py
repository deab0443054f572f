"""The names of `_meta`: those that the specification has taken, and the form that others must have."""

from __future__ import annotations

from toolwire.lazy_patterns import lazy_pattern

__all__ = [
    "CLIENT_CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "LOG_LEVEL_KEY",
    "MODEL_IMMEDIATE_RESPONSE_KEY",
    "MODERN_META_KEYS",
    "PROGRESS_TOKEN_KEY",
    "PROTOCOL_VERSION_KEY",
    "RELATED_TASK_KEY",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_ID_KEY",
    "TRACE_KEYS",
    "is_reserved_meta_key",
    "is_valid_meta_key",
]

PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE_KEY = "io.modelcontextprotocol/model-immediate-response"
PROGRESS_TOKEN_KEY = "progressToken"
# SEP-414: the only other names without a prefix.
TRACE_KEYS = ("traceparent", "tracestate", "baggage")

# What a peer of an earlier revision must not be shown.
MODERN_META_KEYS = frozenset(
    {
        PROTOCOL_VERSION_KEY,
        CLIENT_CAPABILITIES_KEY,
        CLIENT_INFO_KEY,
        LOG_LEVEL_KEY,
        SERVER_INFO_KEY,
        SUBSCRIPTION_ID_KEY,
    }
)

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY = lazy_pattern(
    rf"(?:(?P<prefix>{_LABEL}(?:\.{_LABEL})*)/)?(?P<name>(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?)"
)
_RESERVED_LABELS = frozenset({"mcp", "modelcontextprotocol"})
# 2024-11-05 and 2025-03-26 have no rule for the names in `_meta`.
_WITHOUT_META_RULES = frozenset({"2024-11-05", "2025-03-26"})


def is_valid_meta_key(key: str, revision: str) -> bool:
    """Return whether `key` has the form that `revision` demands of a name in `_meta`."""
    return revision in _WITHOUT_META_RULES or _META_KEY.fullmatch(key) is not None


def is_reserved_meta_key(key: str, revision: str) -> bool:
    """Return whether the prefix of `key` belongs to the specification in `revision`.

    2025-06-18 keeps every prefix in which `mcp` or `modelcontextprotocol` is followed by one more label; 2025-11-25 and
    later keep those with such a label in second place.
    """
    if revision in _WITHOUT_META_RULES:
        return False
    match = _META_KEY.fullmatch(key)
    if match is None or match["prefix"] is None:
        return False
    labels = match["prefix"].lower().split(".")
    if revision == "2025-06-18":
        return not _RESERVED_LABELS.isdisjoint(labels[:-1])
    return len(labels) > 1 and labels[1] in _RESERVED_LABELS
