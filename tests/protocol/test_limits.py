"""The bounds of the core. A changed one changes what peers may send, so it is changed here as well."""

from __future__ import annotations

from typing import Any

from tests.cases import cases

from toolwire.protocol import cursors, framing, jsonrpc, rounds, sealing, tasks, uri_expressions

KIB = 1024
MIB = 1024 * KIB


@cases(
    ("module", "name", "expected"),
    [
        (framing, "LINE_LIMIT", 4 * MIB),
        (framing, "EVENT_LIMIT", 64 * MIB),
        (jsonrpc, "MAX_DEPTH", 128),
        (jsonrpc, "MAX_BATCH", 100),
        (sealing, "MIN_SECRET_LENGTH", 16),
        (sealing, "MAX_TOKEN_LENGTH", 48 * KIB),
        (cursors, "MAX_CURSOR_LENGTH", 48 * KIB),
        (rounds, "MAX_ROUNDS", 10),
        (rounds, "LIFETIME", 600),
        (uri_expressions, "MAX_URI_LENGTH", 8 * KIB),
        (uri_expressions, "MAX_VARIABLES", 64),
        (tasks, "MAX_QUESTIONS", 100),
        (tasks, "MAX_MESSAGE", 1000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_bound(module: Any, name: str, expected: int) -> None:
    assert getattr(module, name) == expected
