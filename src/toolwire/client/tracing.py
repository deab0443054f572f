"""Tracing: a span of OpenTelemetry for every request of a client, and its trace context in the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Raw

from toolwire._version import __version__
from toolwire.client.requests import RequestSender
from toolwire.extras import require
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.trace import trace_in

R = TypeVar("R", bound=t.Result)


class TracingSender(RequestSender):
    """Sends the requests of a client, each in a span."""

    def __init__(self, provider: Any, *arguments: Any) -> None:
        """`provider` is a `TracerProvider`, or True for the one of the process."""
        super().__init__(*arguments)
        self._trace = require("opentelemetry.trace", extra="otel", what="Tracing")
        self._inject = require("opentelemetry.propagate", extra="otel", what="Tracing").inject
        self._tracer = self._trace.get_tracer(
            "toolwire", __version__, tracer_provider=None if provider is True else provider
        )

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        decode: Callable[[Raw], R],
        *,
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> R:
        name, attributes = _described(method, params)
        with self._tracer.start_as_current_span(
            name,
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carried: dict[str, str] = {}
            self._inject(carried)
            try:
                # SEP-414: only the W3C names, whatever else a propagator writes.
                whole = {**trace_in(carried), **(meta or {})}
                result = await super().ask(method, params, decode, meta=whole, **options)
            except BaseException as error:
                kind = str(error.code) if isinstance(error, ProtocolError) else type(error).__name__
                _failed(span, self._trace, kind)
                raise
            if isinstance(result, t.CallToolResult) and result.is_error is True:
                _failed(span, self._trace, "tool_error")
            return result


def _described(method: str, params: t.RequestParams) -> tuple[str, dict[str, str]]:
    # The names of OpenTelemetry's conventions for MCP. Spans hold neither arguments nor results.
    attributes = {"mcp.method.name": method}
    if isinstance(params, t.CallToolRequestParams):
        attributes |= {"gen_ai.tool.name": params.name, "gen_ai.operation.name": "execute_tool"}
    elif isinstance(params, t.GetPromptRequestParams):
        attributes["gen_ai.prompt.name"] = params.name
    else:
        return method, attributes
    return f"{method} {params.name}", attributes


def _failed(span: Any, trace: Any, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR)
