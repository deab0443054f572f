"""Pages: the arguments that ask for them, and the answers that promise another one."""

from __future__ import annotations

from typing import Any

from tests.cases import cases

from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.openapi.answer.pagination import (
    NextPage,
    Pagination,
    hint,
    items_in,
    merge_pages,
    next_link,
    total_in,
    with_items,
)
from toolwire.openapi.model import (
    OperationObject,
    OperationSettings,
    ParameterObject,
    ToolArgument,
    ToolDefinition,
)
from toolwire.types import ToolAnnotations

FROM_ZERO = {"type": "integer", "default": 0}
URL = "https://api.example/v1/pets?tag=a&page=2"


def paged(**arguments: Any) -> Pagination:
    """Return the pagination of an operation with query parameters of these types, or of these schemas."""
    schemas = {name: each if isinstance(each, dict) else {"type": each} for name, each in arguments.items()}
    definition = ToolDefinition(
        operation=OperationObject(method="GET", path="/pets"),
        name="listPets",
        input_schema={"type": "object", "properties": schemas},
        annotations=ToolAnnotations(),
        arguments=tuple(
            ToolArgument(name=name, parameter=ParameterObject(name=name, location="query")) for name in schemas
        ),
        settings=OperationSettings(),
    )
    return Pagination.from_definition(definition)


@cases(
    ("arguments", "given", "value", "expected"),
    [
        # page and limit
        ({"page": "integer", "limit": "integer"}, {"limit": 2}, [1, 2], {"page": 2}),
        ({"page": "integer", "per_page": "integer"}, {"page": 4, "per_page": 2}, [1, 2], {"page": 5}),
        ({"page": "integer", "limit": "integer"}, {"limit": 3}, [1, 2], None),
        (
            {"page": {"type": "integer", "default": 0}, "size": {"type": "integer", "default": 2}},
            {},
            [1, 2],
            {"page": 1},
        ),
        ({"page": {"type": "integer", "minimum": 0}}, {}, {"content": [1], "totalPages": 1}, None),
        ({"page": {"type": "integer", "minimum": 0}}, {}, {"content": [1], "totalPages": 2}, {"page": 1}),
        ({"page": "integer"}, {"page": 3}, {"data": [1], "meta": {"total_pages": 3}}, None),
        ({"page": "integer"}, {}, {"data": [1], "meta": {"next_page": 7}}, {"page": 7}),
        ({"page[number]": "integer"}, {}, {"data": [1], "last": False}, {"page[number]": 2}),
        ({"page": "integer"}, {}, {"content": [1], "last": True}, None),
        ({"page": "integer"}, {}, {"items": []}, None),
        # offset
        ({"offset": "integer", "limit": "integer"}, {"offset": 20, "limit": 2}, {"rows": [1, 2]}, {"offset": 22}),
        ({"$skip": "integer", "$top": "integer"}, {"$top": 2}, {"value": [1, 2]}, {"$skip": 2}),
        ({"offset": "integer"}, {"offset": 2}, {"items": [1, 2], "total": 4}, None),
        ({"offset": "integer"}, {"offset": 2}, {"items": [1, 2], "total": 5}, {"offset": 4}),
        # cursor
        ({"cursor": "string"}, {}, {"items": [1], "next_cursor": "abc"}, {"cursor": "abc"}),
        ({"cursor": "string"}, {}, {"ok": True, "response_metadata": {"next_cursor": "abc"}}, {"cursor": "abc"}),
        ({"cursor": "string"}, {}, {"items": [1], "next_cursor": ""}, None),
        ({"cursor": "string"}, {}, {"items": [1], "next_cursor": None}, None),
        ({"pageToken": "string"}, {}, {"files": [1], "nextPageToken": "t"}, {"pageToken": "t"}),
        ({"continue": "string"}, {}, {"metadata": {"continue": "t"}, "items": [1]}, {"continue": "t"}),
        ({"after": "string"}, {}, {"data": [1], "paging": {"cursors": {"after": "t"}}}, {"after": "t"}),
        ({"after": "string"}, {}, {"nodes": [1], "pageInfo": {"endCursor": "t", "hasNextPage": False}}, None),
        (
            {"starting_after": "string"},
            {},
            {"data": [{"id": "a"}, {"id": "b"}], "has_more": True},
            {"starting_after": "b"},
        ),
        ({"starting_after": "string"}, {}, {"data": [{"id": "a"}], "has_more": False}, None),
        # no argument says it
        ({"tag": "string"}, {}, [1, 2], None),
        ({"tag": "string"}, {}, "text", None),
    ],
)
def test_the_next_call(arguments: Any, given: Any, value: Any, expected: Any) -> None:
    found = paged(**arguments).next_page(given, value, None, "https://api.example/v1/pets")
    assert (None if found is None else found.arguments) == expected


NEXT = "https://api.example/v1/pets?tag=a&page=3"


@cases(
    ("value", "link"),
    [
        ([], f"<{NEXT}>; rel=next"),
        ([], '</v1/pets?page=9>; rel="prev last", <?tag=a&page=3>; title="a, b"; rel="x next"'),
        ({"value": [], "@odata.nextLink": NEXT}, None),
        ({"items": [], "next": NEXT}, None),
        ({"items": [], "links": {"next": "/v1/pets?tag=a&page=3"}}, None),
        ({"_embedded": {"pets": []}, "_links": {"next": {"href": "?tag=a&page=3"}}}, None),
        ({"items": [], "meta": {"pagination": {"next_url": NEXT}}}, None),
    ],
)
def test_an_address_of_the_next_page(value: Any, link: str | None) -> None:
    made = paged(tag="string", page="integer").next_page({"tag": "a", "page": 2}, value, link, URL)
    assert made == NextPage({"page": 3}, NEXT)
    # An address that differs in other things than arguments cannot be said by arguments.
    other = paged(tag="string").next_page({"tag": "a"}, value, link, URL)
    assert other == NextPage(None, NEXT)
    assert "No argument of listPets" in hint(other, "listPets").text
    assert NEXT not in hint(other, "listPets").text


@cases(
    "link",
    [None, "", "next", "<x>; rel=prev", "<http://[>; rel=next", "<javascript:next>; rel=next", "<" * 50_000 + "next"],
)
def test_other_links(link: str | None) -> None:
    assert next_link(link, URL) is None


def test_the_hint_is_a_call() -> None:
    assert hint(NextPage({"page": 3}), "listPets").text == (
        '[There are more items. The next page: call listPets with the same arguments and {"page":3}.]'
    )
    assert hint(NextPage({"page": 3}, is_certain=False), "listPets").text.startswith("[There may be more items.")


@cases(
    ("value", "way"),
    [
        ([1], ()),
        ({"items": [1], "errors": []}, ("items",)),
        ({"pets": [1], "total": 1}, ("pets",)),
        ({"_embedded": {"pets": [1]}, "x": 1}, ("_embedded", "pets")),
        ({"response": {"data": {"items": [1]}}}, ("response", "data", "items")),
    ],
)
def test_the_list_of_an_answer(value: Any, way: tuple[str, ...]) -> None:
    found = items_in(value)
    assert found is not None
    assert (found.way, found.values) == (way, [1])
    longer = with_items(value, way, [1, 2])
    again = items_in(longer)
    assert again is not None
    assert again.values == [1, 2]
    assert items_in(value) == found


def test_answers_without_one_list() -> None:
    assert items_in({"a": [1], "b": [2]}) is None
    assert items_in({"a": 1}) is None
    assert items_in("text") is None
    assert total_in({"meta": {"total": 5}, "total": -1}) == 5
    assert total_in([1]) is None


def test_pages_are_merged_and_what_differs_is_named() -> None:
    first = {
        "data": [1],
        "included": {"users": [{"id": 1}]},
        "warnings": ["w"],
        "columns": ["a"],
        "stats": {"sum": 1},
        "took": 5,
        "next_cursor": "b",
        "meta": {"total": 2, "page": 1, "notes": ["n"]},
    }
    second = {
        "data": [2],
        "included": {"users": [{"id": 2}]},
        "columns": ["a"],
        "stats": {"sum": 2},
        "took": 6,
        "meta": {"total": 2, "page": 2},
    }
    left_out = OmittedParts()
    assert merge_pages(first, second, ("data",), left_out) == {
        "data": [2],
        "included": {"users": [{"id": 1}, {"id": 2}]},
        "warnings": ["w"],
        "columns": ["a"],
        "stats": {"sum": 2},
        "took": 6,
        "meta": {"total": 2, "page": 2, "notes": ["n"]},
    }
    assert list(left_out.pointers) == ["/stats/sum", "/took"]
