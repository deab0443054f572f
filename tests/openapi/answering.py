"""Servers with tools of an API and all readers of its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.openapi.operations import define

from toolwire import Server, types
from toolwire.content import ToolResult
from toolwire.http1.pool import HttpPool
from toolwire.openapi.answer.answer_drift import AnswerDrift
from toolwire.openapi.answer.answer_parts import answer_parts
from toolwire.openapi.answer.answers import AnswerParts, ApiAnswers
from toolwire.openapi.answer.response_cache import ResponseCache
from toolwire.openapi.model import OperationSettings, ToolDefinition
from toolwire.openapi.operation_tools import ApiConnection, operation_tool
from toolwire.server.kept_results import KeptResult, KeptResults

PAGES = ("page", "limit", "offset", "cursor")


def listing(*parameters: Any, settings: dict[str, Any] | None = None, **members: Any) -> ToolDefinition:
    """Define a read with query parameters."""
    properties = {
        each.name: {"type": "string" if each.name == "cursor" else "integer"} if each.name in PAGES else {}
        for each in parameters
    }
    return define(
        "GET",
        "/things",
        *parameters,
        input_schema={"type": "object", "properties": properties},
        settings=OperationSettings(**settings or {}),
        **members,
    )


@asynccontextmanager
async def api_server(
    url: str,
    *definitions: ToolDefinition,
    cache: ResponseCache | None = None,
    paths: Mapping[str, str] | None = None,
    signer: Any = None,
    **options: Any,
) -> AsyncIterator[Server]:
    """Make a server with the tools of definitions. Its pool is closed at the end."""
    kept = KeptResults("api")
    server = Server("api", **options).add(KeptResult(kept.place))
    async with HttpPool() as pool:
        way = ApiConnection(pool=pool, base_url=url, drift=AnswerDrift())
        for definition in definitions:

            def parts(answers: ApiAnswers, definition: ToolDefinition = definition) -> AnswerParts:
                return answer_parts(answers, definition, kept, cache=cache, paths=paths)

            server.add(operation_tool(definition, way, signer=signer, parts=parts))
        yield server


def link_in(result: ToolResult) -> types.ResourceLink:
    (link,) = [each for each in result.content if isinstance(each, types.ResourceLink)]
    return link


def said(result: ToolResult) -> str:
    """Return the notes behind the first text."""
    return " ".join(each.text for each in result.content[1:] if isinstance(each, types.TextContent))
