"""Tools that call an API: arguments become a request, the answer becomes a result.

Nothing here knows a document of OpenAPI. A tool needs a definition, a function that builds requests from arguments, and
one that reads answers. Descriptions of another kind, such as GraphQL or gRPC, would come in here: with their own makers
of those three.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, Protocol, TypeAlias, Unpack

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire import schemas
from toolwire.http1.response import HttpResponse
from toolwire.openapi.access.signing import OutgoingRequest, SignedRequest
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ToolError
from toolwire.protocol.revisions import MODERN
from toolwire.redaction import Redaction
from toolwire.schemas.secret_members import secret_members
from toolwire.server.binding.arguments import InvalidArguments, SchemaReader
from toolwire.server.call import Call
from toolwire.server.components.base import checked_name
from toolwire.server.components.options import Options
from toolwire.server.components.tools import ToolBase, as_object, error_result, is_of_objects

log: logging.Logger = logging.getLogger("toolwire.openapi")


class CalledOperation(Struct, frozen=True, kw_only=True):
    """An operation as logs, audit lines and error texts name it."""

    name: str
    method: str
    path: str
    """The template, without any argument."""
    is_read: bool
    """Whether calling it changes nothing, so that a request may be sent again."""


class CallDefinition(Protocol):
    """The part of a tool that clients see."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str | None: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> dict[str, Any]: ...

    def argument_schema(self) -> dict[str, Any]:
        """Make the schema that arguments are checked against.

        The published one may say less.
        """

    @property
    def secret_names(self) -> frozenset[str]:
        """Return the arguments that no record shows."""

    @property
    def output_schema(self) -> dict[str, Any] | None: ...

    @property
    def annotations(self) -> t.ToolAnnotations: ...


class Sending(Protocol):
    """The sender of an operation's requests (see `openapi.request.retries`)."""

    async def sign(self, exchange: ApiExchange) -> None:
        """Put the credentials of the caller into the request of an exchange."""

    async def send(self, exchange: ApiExchange, *, is_read: bool) -> None:
        """Send the signed request of an exchange, and set its response."""


#: Makes a request of validated arguments.
Build: TypeAlias = Callable[[dict[str, Any]], OutgoingRequest]


class ApiExchange:
    """One call of an API: its arguments, its last request and that answer."""

    credentials: SignedRequest | None = None
    """The request with credentials; None where the operation needs none."""
    response: HttpResponse | None = None
    """The answer to the last request. Its headers are there, its body may not be."""
    received: int = 0
    """How many bytes of bodies were read."""

    def __init__(
        self,
        call: Call,
        operation: CalledOperation,
        sending: Sending,
        build: Build,
        arguments: dict[str, Any],
    ) -> None:
        self.call = call
        self.operation = operation
        self.arguments = arguments
        self.build = build
        """The function that makes a request of arguments, also for the next page."""
        self.request: OutgoingRequest = build(arguments)
        """The request without credentials."""
        self.address: str = self.request.url
        """The URL of the first request. Redirects, further pages and polls of a state have other URLs."""
        self.signed: OutgoingRequest = self.request
        """The request as it is sent. No log and no error text may show it."""
        self._sending = sending

    @property
    def answer(self) -> HttpResponse:
        """Return the answer, for a reader, which is called when there is one."""
        assert self.response is not None
        return self.response

    async def read(self, limit: int) -> tuple[bytes, bool]:
        """Return the body up to about `limit` bytes, and whether that is all of it.

        Where it is not all, the answer stays open, and its `chunks()` go on.
        """
        answer = self.answer
        whole = answer.whole(limit)
        if whole is not None:
            self.received += len(whole)
            return whole, True
        body = bytearray()
        try:
            async for chunk in answer.chunks():
                body += chunk
                if len(body) > limit:
                    self.received += len(body)
                    return bytes(body), False
        except OutcomeUnknown:
            name, status = self.operation.name, answer.status
            raise ToolError(f"{name} answered {status}, but the connection broke before its answer ended") from None
        self.received += len(body)
        return bytes(body), True

    async def send(self, request: OutgoingRequest) -> HttpResponse:
        """Send another request, such as one for the next page, and return its answer.

        It gets the credentials of the operation, and may only go where the operation may. Redirects of GET are
        followed.
        """
        self.close()
        self.request = request
        await self._sending.sign(self)
        await self._sending.send(self, is_read=request.method in ("GET", "HEAD"))
        return self.answer

    def close(self) -> None:
        """Close the last answer. An unread rest closes its connection."""
        if self.response is not None:
            self.response.close()


#: Makes a result of the answer of an exchange.
AnswerReader: TypeAlias = Callable[[ApiExchange], Awaitable[t.CallToolResult]]
#: Changes arguments before a request is built of them, as for the content of files.
Prepare: TypeAlias = Callable[[Call, dict[str, Any]], Awaitable[dict[str, Any]]]
#: Looks at a signed request before it is sent; may answer in place of the API.
Before: TypeAlias = Callable[[ApiExchange], Awaitable[t.CallToolResult | None]]
#: Changes a result before it leaves.
After: TypeAlias = Callable[[ApiExchange, t.CallToolResult], t.CallToolResult]
#: Gets each call at its end, with the status of the last answer; None where there was none.
Ended: TypeAlias = Callable[[ApiExchange, int | None], None]


class ApiCaller:
    """Runs a call: prepare arguments, build, sign and send the request, read the answer."""

    def __init__(
        self,
        operation: CalledOperation,
        build: Build,
        sending: Sending,
        read: AnswerReader,
        *,
        prepare: Prepare | None = None,
        before: Before | None = None,
        after: After | None = None,
        ended: Ended | None = None,
        hold: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        """`hold` keeps the connections for one call; what it returns lets go of them."""
        self._hold = hold
        self.operation = operation
        self._build = build
        self._sending = sending
        self._read = read
        self._prepare = prepare
        self._before = before
        self._after = after
        self._ended = ended

    async def call(self, call: Call, arguments: dict[str, Any]) -> t.CallToolResult:
        """Call the API with validated arguments."""
        if self._hold is None:
            return await self._call(call, arguments)
        let_go = self._hold()
        try:
            return await self._call(call, arguments)
        finally:
            let_go()

    async def _call(self, call: Call, arguments: dict[str, Any]) -> t.CallToolResult:
        if self._prepare is not None:
            arguments = await self._prepare(call, arguments)
        exchange = ApiExchange(call, self.operation, self._sending, self._build, arguments)
        try:
            await self._sending.sign(exchange)
            result = None if self._before is None else await self._before(exchange)
            if result is None:
                await self._sending.send(exchange, is_read=self.operation.is_read)
                result = await self._read(exchange)
            return result if self._after is None else self._after(exchange, result)
        finally:
            exchange.close()
            if self._ended is not None:
                self._ended(exchange, None if exchange.response is None else exchange.response.status)


class GeneratedTool(ToolBase):
    """A tool that calls an operation of an API."""

    is_unlisted_without_scopes = True

    def __init__(
        self,
        definition: CallDefinition,
        make_caller: Callable[[], ApiCaller],
        *,
        task: t.TaskSupport | None = None,
        detaches: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """`detaches`: a call becomes a task if the API says that it continues."""
        self._make_caller = make_caller
        self._definition = definition
        self.name: str = checked_name(definition.name, "tool")
        self.key: str = self.name
        self.annotations: t.ToolAnnotations | UnsetType = definition.annotations
        self.task: t.TaskSupport | None = None if task == "forbidden" else task
        self.detaches: bool = detaches
        self.input_schema: dict[str, Any] = definition.input_schema
        self.output_schema: dict[str, Any] | None = definition.output_schema
        self.wraps: bool = self.output_schema is not None and not is_of_objects(self.output_schema)
        self.headers: Mapping[str, tuple[str, ...]] = {}
        self._reader: SchemaReader | None = None
        self._told_nulls = False
        options.setdefault("title", definition.title)
        options.setdefault("description", definition.description)
        super().__init__(None, **options)

    @cached_property
    def caller(self) -> ApiCaller:
        """The object that runs the calls.

        The first call makes it, because an API may have many operations.
        """
        return self._make_caller()

    @cached_property
    def secret_arguments(self) -> Redaction | None:
        # Those of the whole schema, because the published one leaves out what some vendors refuse.
        names = self._definition.secret_names | secret_members(self._definition.argument_schema())
        return Redaction(names) if names else None

    def compile(self) -> SchemaReader:
        """Compile the schema of the arguments, once.

        Otherwise the first call does so: an API may have many operations.
        """
        if self._reader is None:
            schema = self._definition.argument_schema()
            validator = schemas.compile(schema, what=f"the input schema of {self.name!r}")
            self._reader = SchemaReader(validator, self._tell_nulls)
        return self._reader

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.compile().meant(sent)
        except InvalidArguments as error:
            raise ToolError(str(error)) from None

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        try:
            arguments = (self._reader or self.compile()).sent(raw)
        except InvalidArguments as error:
            # 2025-11-25 server/tools onwards: the model sees what was wrong and can mend its call.
            return error_result(str(error))
        result = await self.caller.call(call, arguments)
        if call.request.revision != MODERN and result.structured_content is not UNSET:
            result.structured_content = as_object(result.structured_content, self.wraps, call.request.revision)
        return result

    def _tell_nulls(self) -> None:
        """Log once that a client sent null for optional arguments that do not allow it."""
        if not self._told_nulls:
            self._told_nulls = True
            log.warning("%s: null was sent for arguments that do not take it, and is read as left out", self.name)
