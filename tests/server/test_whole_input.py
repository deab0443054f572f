"""A record as the whole input of a tool: its members are the arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from tests.cases import cases

from toolwire import Context, Depends, Server

T = TypeVar("T")


@dataclass
class AsDataclass:
    """A query."""

    text: Annotated[str, "What to look for."]
    limit: int = 10
    tags: list[str] = field(default_factory=list)


class AsStruct(msgspec.Struct):
    """A query."""

    text: Annotated[str, "What to look for."]
    limit: int = 10
    tags: list[str] = []


class AsModel(pydantic.BaseModel):
    """A query."""

    text: str = pydantic.Field(description="What to look for.")
    limit: int = 10
    tags: list[str] = []


class AsNamedTuple(NamedTuple):
    """A query."""

    text: Annotated[str, "What to look for."]
    limit: int = 10
    tags: list[str] = []


class AsTypedDict(TypedDict):
    """A query."""

    text: Annotated[str, "What to look for."]
    limit: NotRequired[int]
    tags: NotRequired[list[str]]


@dataclass
class Page(Generic[T]):
    first: T


RECORDS = [AsDataclass, AsStruct, AsModel, AsNamedTuple, AsTypedDict]
LIMIT: dict[str, Any] = {"type": "integer", "default": 10}
TAGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "default": []}


def server_of(record: Any) -> Server:
    server = Server("s")

    @server.tool(input_schema=record)
    async def search(query: Any, ctx: Context, base: str = Depends(lambda: "base")) -> str:
        limit = query.get("limit", 10) if isinstance(query, dict) else query.limit
        text = query["text"] if isinstance(query, dict) else query.text
        return f"{base}: {text} {limit}"

    return server


@pytest.mark.covers("S3")
@cases("record", RECORDS)
async def test_the_members_of_a_record_are_the_arguments(record: Any) -> None:
    server = server_of(record)
    (tool,) = server.tools
    known = record is AsTypedDict
    assert tool.input_schema == {
        "type": "object",
        "description": "A query.",
        "properties": {
            "text": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer"} if known else LIMIT,
            "tags": {"type": "array", "items": {"type": "string"}} if known else TAGS,
        },
        "required": ["text"],
    }
    assert (await server.call_tool("search", {"text": "milk"})).text == "base: milk 10"
    assert (await server.call_tool("search", {"text": "milk", "limit": "3"})).text == "base: milk 3"
    assert (await server.call_tool("search", {"text": "milk", "limit": None, "tags": None})).text == "base: milk 10"


@cases("record", RECORDS)
@cases(
    ("arguments", "text"),
    [
        ({}, "text"),
        ({"text": 3}, "text"),
        ({"text": "milk", "limt": 3}, "limt"),
        ({"text": "milk", "limit": "many"}, "limit"),
        ({"text": None}, "text"),
    ],
)
async def test_arguments_that_do_not_fit_the_record(record: Any, arguments: dict[str, Any], text: str) -> None:
    result = await server_of(record).call_tool("search", arguments)
    assert result.is_error
    assert text in result.text


async def test_a_generic_record() -> None:
    server = Server("s")

    @server.tool(input_schema=Page[int])
    async def show(page: Page[int]) -> str:
        return f"{page.first + 1}"

    assert server.tools[0].input_schema["properties"] == {"first": {"type": "integer"}}
    assert (await server.call_tool("show", {"first": 3})).text == "4"
