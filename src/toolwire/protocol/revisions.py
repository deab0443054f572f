"""The revisions of the protocol: which exist, how they are ordered, and what each can do.

A revision is an opaque name out of `REVISIONS`; names are looked up, never compared as strings (VER-5). Their methods
are in `methods`, the members that each of them knows in `shaping`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MODERN = "2026-07-28"
LEGACY = REVISIONS[:-1]
LATEST_LEGACY = "2025-11-25"

_RANK = {revision: rank for rank, revision in enumerate(REVISIONS)}


def is_supported(version: object) -> bool:
    """Return whether `version` names a revision that this library speaks."""
    return isinstance(version, str) and version in _RANK


def negotiate_version(requested: object, supported: Sequence[str] = tuple(reversed(LEGACY))) -> str:
    """Choose the revision that a server answers `initialize` with; `supported` has its revisions, newest first.

    It is the requested one where the server has it, else its newest (1.3.2): the client decides whether it goes on.
    2026-07-28 has no `initialize`, so that is never the answer.
    """
    known = [revision for revision in supported if not is_modern(revision)]
    if not known:
        raise ValueError("none of the supported revisions has initialize")
    return requested if isinstance(requested, str) and requested in known else known[0]


def is_modern(revision: str) -> bool:
    """Return whether `revision` belongs to the era of exchanges: no handshake, no session."""
    return revision == MODERN


def at_least(revision: str, other: str) -> bool:
    """Return whether `revision` is `other` or came after it; False when either is unknown."""
    return revision in _RANK and other in _RANK and _RANK[revision] >= _RANK[other]


# --- Sets of revisions, for the tables here and of `methods` and `shaping` -------------------------------------------

Revisions: TypeAlias = frozenset[str]

ALL: Revisions = frozenset(REVISIONS)
FROM_2025_03: Revisions = frozenset(REVISIONS[1:])
FROM_2025_06: Revisions = frozenset(REVISIONS[2:])
FROM_2025_11: Revisions = frozenset(REVISIONS[3:])
FROM_2026_07: Revisions = frozenset({MODERN})
UNTIL_2025_03: Revisions = frozenset(REVISIONS[:2])
UNTIL_2025_06: Revisions = frozenset(REVISIONS[:3])
UNTIL_2025_11: Revisions = frozenset(LEGACY)
ONLY_2024_11: Revisions = frozenset({"2024-11-05"})
ONLY_2025_03: Revisions = frozenset({"2025-03-26"})
ONLY_2025_06: Revisions = frozenset({"2025-06-18"})
ONLY_2025_11: Revisions = frozenset({"2025-11-25"})
_HTTP_SESSIONS: Revisions = FROM_2025_03 & UNTIL_2025_11
# EXT-1: `capabilities.extensions` is not in the schema of 2025-11-25, whose capability objects are open, but the texts
# of the extensions show it there.
CARRY_EXTENSIONS: Revisions = FROM_2025_11

# --- Features --------------------------------------------------------------------------------------------------------

FEATURES: Mapping[str, Revisions] = MappingProxyType(
    {
        # Messages and lifecycle
        "batching": ONLY_2025_03,
        "handshake": UNTIL_2025_11,
        "per_request_metadata": FROM_2026_07,
        "discover": FROM_2026_07,
        "ping": UNTIL_2025_11,
        "server_requests": UNTIL_2025_11,
        "client_progress": UNTIL_2025_11,
        "result_type": FROM_2026_07,
        "input_required": FROM_2026_07,
        "cache_hints": FROM_2026_07,
        "extensions": CARRY_EXTENSIONS,
        "trace_context": FROM_2026_07,
        "timeouts": FROM_2025_03,
        "strict_capabilities": FROM_2025_06,
        "meta_key_rules": FROM_2025_06,
        "meta_on_definitions": FROM_2025_06,
        "titles": FROM_2025_06,
        "icons": FROM_2025_11,
        "implementation_description": FROM_2025_11,
        "json_schema_2020_12": FROM_2025_11,
        "error_without_id": FROM_2025_11,
        "optional_cancel_request_id": ONLY_2025_11,
        "specification_error_codes": FROM_2026_07,
        # Transports
        "stdio": ALL,
        "utf8_required": FROM_2025_03,
        "stderr_is_not_failure": FROM_2025_11,
        "http_sse": UNTIL_2025_11,
        "streamable_http": FROM_2025_03,
        "sessions": _HTTP_SESSIONS,
        "get_stream": _HTTP_SESSIONS,
        "resumability": _HTTP_SESSIONS,
        "sse_priming": ONLY_2025_11,
        "sse_retry": ONLY_2025_11,
        "early_stream_close": ONLY_2025_11,
        "event_id_names_stream": ONLY_2025_11,
        "sse_fallback_on_any_4xx": ONLY_2025_03 | ONLY_2025_06,
        "protocol_version_header": FROM_2025_06,
        "protocol_version_header_on_auth_metadata": ONLY_2025_03,
        "default_version_without_header": FROM_2025_06 & UNTIL_2025_11,
        "standard_headers": FROM_2026_07,
        "parameter_headers": FROM_2026_07,
        "unknown_method_is_404": FROM_2026_07,
        "disconnect_cancels": FROM_2026_07,
        "origin_check": ALL,
        "origin_403": FROM_2025_11,
        # Authorization
        "authorization": FROM_2025_03,
        "protected_resource_metadata": FROM_2025_06,
        "resource_indicators": FROM_2025_06,
        "oidc_discovery": FROM_2025_11,
        "client_id_metadata_documents": FROM_2025_11,
        "incremental_scope_consent": FROM_2025_11,
        "issuer_validation": FROM_2026_07,
        # Tools, resources, prompts, completion, logging
        "tool_annotations": FROM_2025_03,
        "structured_output": FROM_2025_06,
        "any_structured_content": FROM_2026_07,
        "tool_name_guidance": FROM_2025_11,
        "argument_errors_are_results": FROM_2025_11,
        "audio": FROM_2025_03,
        "resource_links": FROM_2025_06,
        "last_modified": FROM_2025_06,
        "resource_subscribe": UNTIL_2025_11,
        "resource_not_found_code": UNTIL_2025_11,
        "listen": FROM_2026_07,
        "completions_capability": FROM_2025_03,
        "completion_context": FROM_2025_06,
        "progress_message": FROM_2025_03,
        "logging": ALL,
        "logging_set_level": UNTIL_2025_11,
        "per_request_log_level": FROM_2026_07,
        # What a server may ask of a client
        "roots": ALL,
        "roots_list_changed": UNTIL_2025_11,
        "sampling": ALL,
        "sampling_audio": FROM_2025_03,
        "sampling_content_arrays": FROM_2025_11,
        "sampling_tools": FROM_2025_11,
        "include_context": ALL,
        "elicitation": FROM_2025_06,
        "elicitation_mode": FROM_2025_11,
        "url_elicitation": FROM_2025_11,
        "url_elicitation_required_error": ONLY_2025_11,
        "elicitation_complete": ONLY_2025_11,
        "enum_names": FROM_2025_06,
        "titled_enums": FROM_2025_11,
        "multi_select_enums": FROM_2025_11,
        "elicitation_defaults": FROM_2025_11,
        # Tasks
        "tasks": FROM_2025_11,
        "core_tasks": ONLY_2025_11,
        "tasks_extension": FROM_2026_07,
    }
)


def supports(version: str, feature: str) -> bool:
    """Return whether a revision has a feature; False for an unknown revision, `ValueError` for an unknown feature."""
    try:
        return version in FEATURES[feature]
    except KeyError:
        raise ValueError(_unknown_feature(feature)) from None


def _unknown_feature(feature: str) -> str:
    # Imported here because only a misspelt name needs it.
    from difflib import get_close_matches

    nearest = get_close_matches(feature, FEATURES, n=1, cutoff=0.0)
    return f"unknown feature {feature!r}; did you mean {nearest[0]!r}?"
