"""Definitions of tools, written by hand, and a server that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from toolwire import Client, Server
from toolwire.content import ToolResult
from toolwire.http1.pool import HttpPool
from toolwire.openapi.answer.answer_drift import AnswerDrift
from toolwire.openapi.model import (
    MediaTypeObject,
    OperationObject,
    OperationSettings,
    ParameterObject,
    RequestBodyObject,
    ResponseObject,
    ServerObject,
    ToolArgument,
    ToolDefinition,
)
from toolwire.openapi.operation_tools import ApiConnection, operation_tool
from toolwire.protocol import types as t

READ = t.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
WRITE = t.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form", "querystring": "form"}


def parameter(name: str, location: Any, **members: Any) -> ParameterObject:
    style = members.pop("style", STYLES[location])
    explode = members.pop("explode", style in ("form", "cookie"))
    required = members.pop("required", location == "path")
    return ParameterObject(name=name, location=location, style=style, explode=explode, required=required, **members)


def define(
    method: str = "GET",
    path: str = "/things",
    *parameters: ParameterObject,
    name: str = "things",
    members: tuple[str, ...] = (),
    whole: bool = False,
    media: MediaTypeObject | None = None,
    body_required: bool = True,
    annotations: t.ToolAnnotations | None = None,
    is_decided_read: bool = False,
    servers: tuple[ServerObject, ...] = (),
    responses: dict[str, ResponseObject] | None = None,
    settings: OperationSettings | None = None,
    output: dict[str, Any] | None = None,
    true_output: dict[str, Any] | None = None,
    input_schema: dict[str, Any] | None = None,
) -> ToolDefinition:
    arguments = [ToolArgument(name=each.name, parameter=each) for each in parameters]
    arguments += [ToolArgument(name=each, member=each) for each in members]
    if whole:
        arguments.append(ToolArgument(name="body"))
    media = media or (MediaTypeObject(media_type="application/json") if members or whole else None)
    body = None if media is None else RequestBodyObject(content=(media,), required=body_required)
    return ToolDefinition(
        operation=OperationObject(
            method=method,
            path=path,
            operation_id=name,
            parameters=parameters,
            request_body=body,
            responses=responses or {},
            servers=servers,
        ),
        name=name,
        description=f"{method} {path}",
        input_schema=input_schema or {"type": "object", "properties": {each.name: {} for each in arguments}},
        output_schema=output,
        true_output_schema=true_output,
        annotations=annotations or (READ if method in ("GET", "QUERY") else WRITE),
        is_decided_read=is_decided_read,
        arguments=tuple(arguments),
        media=media,
        settings=settings or OperationSettings(),
    )


class Calls:
    """A server with tools of an API, and a client of it."""

    def __init__(self, server: Server, client: Client, drift: AnswerDrift) -> None:
        self.server = server
        self.client = client
        self.drift = drift

    async def __call__(self, tool: str = "things", **arguments: Any) -> ToolResult:
        return await self.client.call_tool(tool, arguments)


@asynccontextmanager
async def calling(
    url: str,
    *definitions: ToolDefinition,
    revision: str | None = None,
    signer: Any = None,
    parts: Any = None,
    **connection: Any,
) -> AsyncIterator[Calls]:
    drift = AnswerDrift()
    server = Server("api")
    async with HttpPool(repeats_writes=False) as pool:
        way = ApiConnection(pool=pool, base_url=url, drift=drift, **connection)
        for definition in definitions:
            server.add(operation_tool(definition, way, signer=signer, parts=parts))
        async with Client(server, revision=revision) as client:
            yield Calls(server, client, drift)
