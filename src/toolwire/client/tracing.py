"""Tracing: a span of OpenTelemetry for every request of a client, and its trace context in the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwire._version import __version__
from toolwire.extras import require
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.trace import trace_in


def traced(ask: Any, provider: Any) -> Any:
    """Return `ask` with a span around it; `provider` is a `TracerProvider`, or True for the one of the process."""
    trace = require("opentelemetry.trace", extra="otel", what="Tracing")
    inject = require("opentelemetry.propagate", extra="otel", what="Tracing").inject
    tracer = trace.get_tracer("toolwire", __version__, tracer_provider=None if provider is True else provider)

    async def asked(
        method: str, params: t.RequestParams, *rest: Any, meta: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        name, attributes = _described(method, params)
        with tracer.start_as_current_span(
            name,
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carried: dict[str, str] = {}
            inject(carried)
            try:
                # SEP-414: only the W3C names, whatever else a propagator writes.
                result = await ask(method, params, *rest, meta={**trace_in(carried), **(meta or {})}, **options)
            except BaseException as error:
                _failed(span, trace, str(error.code) if isinstance(error, ProtocolError) else type(error).__name__)
                raise
            if isinstance(result, t.CallToolResult) and result.is_error is True:
                _failed(span, trace, "tool_error")
            return result

    return asked


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
