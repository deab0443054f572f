"""Tools of operations: definition, calls and readers of answers, put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Unpack

from msgspec import Struct

from toolwire.http1.pool import Pool
from toolwire.openapi.access.signing import Signer
from toolwire.openapi.answer.answer_drift import AnswerDrift
from toolwire.openapi.answer.answers import MAX_BYTES, AnswerParts, ApiAnswers
from toolwire.openapi.answer.long_running import is_long_running
from toolwire.openapi.calling import ApiCaller, CalledOperation, Ended, GeneratedTool
from toolwire.openapi.model import OperationObject, Output, ServerObject, ToolDefinition
from toolwire.openapi.request.api_rate import ApiRate
from toolwire.openapi.request.request_builder import RequestBuilder
from toolwire.openapi.request.request_urls import server_url
from toolwire.openapi.request.retries import Sender
from toolwire.server.components.options import Options

# The name of a draft of the IETF (httpapi-idempotency-key-header), and those that APIs had before it.
_KEY_HEADER: Final = re.compile(r"(?:x-)?idempoten(?:cy|t)(?:[-_]?key)?")


class ApiConnection(Struct, kw_only=True):
    """The way to an API, shared by all of its operations."""

    pool: Pool
    """The carrier of requests. It may be replaced when the server starts again."""
    base_url: str | None = None
    server: str | None = None
    """The name or the URL of the server to use, where the description has several."""
    server_variables: Mapping[str, str] = {}
    origins: frozenset[str] = frozenset()
    """The origins that reads may be redirected to. That of the operation's own server is always permitted."""
    output: Output = "advertise-loose"
    max_bytes: int = MAX_BYTES
    timeout: float | None = None
    rate: ApiRate | None = None
    """How many requests the API gets, over all its operations."""
    drift: AnswerDrift
    ended: Ended | None = None
    hold: Callable[[], Callable[[], None]] | None = None
    """Keeps the connections for one call; what it returns lets go of them."""


def operation_tool(
    definition: ToolDefinition,
    connection: ApiConnection,
    *,
    signer: Signer | None = None,
    parts: Callable[[ApiAnswers], AnswerParts] | None = None,
    **options: Unpack[Options],
) -> GeneratedTool:
    """Make the tool of an operation.

    `parts` makes the readers that its answers need beside JSON and text.
    """
    settings = definition.settings
    options.setdefault("timeout", connection.timeout if settings.timeout is None else settings.timeout)
    detaches = settings.task is None and parts is not None and is_long_running(definition.operation)
    return GeneratedTool(
        definition,
        partial(_caller, definition, connection, signer, parts),
        task="optional" if detaches else settings.task,
        detaches=detaches,
        **options,
    )


def _caller(
    definition: ToolDefinition,
    connection: ApiConnection,
    signer: Signer | None,
    parts: Callable[[ApiAnswers], AnswerParts] | None,
) -> ApiCaller:
    """Make the way of an operation's calls."""
    settings = definition.settings
    called = called_operation(definition)
    answers = ApiAnswers(
        called,
        tool=definition.name,
        published=definition.output_schema,
        true=definition.true_output_schema,
        output=settings.output or connection.output,
        max_bytes=connection.max_bytes if settings.max_bytes is None else settings.max_bytes,
        drift=connection.drift,
    )
    used = AnswerParts() if parts is None else parts(answers)
    answers.use(used)
    builder = RequestBuilder(definition, operation_base(definition.operation, connection))
    sender = Sender(
        called,
        lambda: connection.pool,
        builder.origin,
        connection.origins,
        signer=signer,
        idempotency_header=key_header(definition),
        repeats_writes=bool(settings.idempotency_header),
        rate=connection.rate,
    )
    return ApiCaller(
        called,
        builder.build,
        sender,
        answers.read,
        prepare=used.prepare,
        before=used.before,
        after=used.after,
        ended=connection.ended,
        hold=connection.hold,
    )


def key_header(definition: ToolDefinition) -> str | None:
    """Return the header of the idempotency key, from the settings or the description.

    A declared one is sent, because an API may require it. Only the settings of the operator permit a second attempt.
    """
    chosen = definition.settings.idempotency_header
    if chosen is not None:
        return chosen or None
    names = (each.name for each in definition.operation.parameters if each.location == "header")
    return next((name for name in names if _KEY_HEADER.fullmatch(name.lower())), None)


def called_operation(definition: ToolDefinition) -> CalledOperation:
    """Return an operation as logs and error texts name it."""
    operation = definition.operation
    return CalledOperation(
        name=operation.label,
        method=operation.method,
        path=operation.path,
        is_read=definition.is_read,
    )


def operation_base(operation: OperationObject, connection: ApiConnection) -> str:
    """Return the URL of the server of an operation."""
    return server_base(operation.servers, connection, operation.label)


def server_base(servers: tuple[ServerObject, ...], connection: ApiConnection, where: str) -> str:
    """Return the URL of the chosen server. `where` names the servers in errors."""
    return server_url(
        servers,
        base_url=connection.base_url,
        variables=connection.server_variables,
        server=connection.server,
        where=where,
    )
