"""The argument `select`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.descriptions import api, tool_of

from toolwire.openapi.answer.partial_answers import SELECT_SCHEMA, NothingSelected, offer_select, selected
from toolwire.openapi.model import OperationSettings

PAGE: dict[str, Any] = {
    "items": [{"id": 1, "owner": {"name": "Ann", "age": 3}}, {"id": 2, "owner": None}, {"id": 3}],
    "total": 3,
    "a/b": {"~": 1},
}


@cases(
    ("paths", "expected"),
    [
        (["total"], {"total": 3}),
        ("/total", {"total": 3}),
        (["/items/id"], {"items": [{"id": 1}, {"id": 2}, {"id": 3}]}),
        (["/items/*/id"], {"items": [{"id": 1}, {"id": 2}, {"id": 3}]}),
        (["/items/0/owner/name"], {"items": [{"owner": {"name": "Ann"}}]}),
        (["/items/1"], {"items": [{"id": 2, "owner": None}]}),
        (["/items/1", "/items/id"], {"items": [{"id": 1}, {"id": 2, "owner": None}, {"id": 3}]}),
        (["/items", "/items/id", "total"], {"items": PAGE["items"], "total": 3}),
        (["/items/id", "/items"], {"items": PAGE["items"]}),
        (["/a~1b/~0"], {"a/b": {"~": 1}}),
        # The names of items, where the answer has one list.
        (["id"], {"items": [{"id": 1}, {"id": 2}, {"id": 3}]}),
        (["", "total"], PAGE),
        ([], PAGE),
    ],
)
def test_a_part_keeps_the_shape_of_the_answer(paths: Any, expected: Any) -> None:
    assert selected(PAGE, paths) == expected


def test_fields_of_a_list() -> None:
    assert selected([{"a": 1, "b": 2}, {"b": 3}, 4], ["a"]) == [{"a": 1}]
    assert selected([], ["a"]) == []
    assert selected([[{"a": 1}], [{"a": 2}]], ["/1/a"]) == [[{"a": 2}]]


@cases("value", [PAGE, [{"a": 1}], "text", 3])
def test_nothing_selected_says_what_is_there(value: Any) -> None:
    with pytest.raises(NothingSelected, match="nothing of what was selected"):
        selected(value, ["/nothing/here"])


def test_the_argument_is_offered_under_a_free_name() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    made, name = offer_select(schema)
    assert (name, made["properties"]["select"]) == ("select", SELECT_SCHEMA)
    assert "select" not in schema["properties"]
    again, second = offer_select(made)
    assert second == "select_answer"
    assert offer_select(again) == (again, None)
    assert offer_select({"type": "object"})[1] == "select"


LIST = {"type": "array", "items": {"type": "object"}}


@cases(
    ("at", "media_type", "output", "offered"),
    [
        ("get /pets", "application/json", None, True),
        ("query /pets", "application/problem+json", None, True),
        ("get /pets", "application/json", "strict", False),
        ("get /pets", "image/png", None, False),
        ("post /pets", "application/json", None, False),
    ],
)
def test_reads_that_answer_json_offer_it(at: str, media_type: str, output: Any, offered: bool) -> None:
    responses = {"200": {"description": "", "content": {media_type: {"schema": LIST}}}}
    made = tool_of(api({"responses": responses}, "3.2.0", at=at), settings=OperationSettings(output=output))
    assert made.select == ("select" if offered else None)
    for schema in (made.input_schema, made.argument_schema()):
        assert ("select" in schema["properties"]) is offered
    assert made.arguments == ()
