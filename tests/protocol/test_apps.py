"""Members of `_meta` that MCP Apps give a meaning."""

from __future__ import annotations

from typing import Any

from tests.cases import cases

from toolwire.protocol.apps import audiences


@cases(
    ("visibility", "expected"),
    [
        (None, {"model", "app"}),
        (["model"], {"model"}),
        (["app", "user"], {"app"}),
        ("app", {"app"}),
        ("model", {"model"}),
        ("model,app", set()),
        ({"app": True}, set()),
        (True, set()),
        ([], set()),
        ([["app"]], set()),
    ],
)
def test_malformed_visibility_opens_tool_to_no_other_audience(visibility: Any, expected: set[str]) -> None:
    assert audiences({"ui": {"visibility": visibility}}) == expected


def test_tool_without_visibility_is_for_models_and_apps() -> None:
    assert audiences(None) == audiences({"ui": {}}) == {"model", "app"}
