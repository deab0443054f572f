"""A span of OpenTelemetry for every request, as part of the caller's trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from toolwire._version import __version__
from toolwire.extras import require
from toolwire.protocol.trace import trace_in
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.hops import Hop
from toolwire.server.middleware import Operation
from toolwire.server.observe.outcome import Outcome, of_error, of_result

_TARGET: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}


class Tracing:
    """The observer that makes the spans. What handlers start while they run becomes part of the same trace."""

    def __init__(self, provider: Any) -> None:
        """`provider` is a `TracerProvider`, or True for the one that the process has set."""
        self._trace = require("opentelemetry.trace", extra="otel", what="Tracing")
        self._context = require("opentelemetry.context", extra="otel", what="Tracing")
        propagate = require("opentelemetry.propagate", extra="otel", what="Tracing")
        self._extract, self._inject = propagate.extract, propagate.inject
        self._tracer = self._trace.get_tracer(
            "toolwire", __version__, tracer_provider=None if provider is True else provider
        )

    async def __call__(self, call: Call, call_next: Operation) -> Any:
        name, attributes = self._described(call)
        parent = self._parent(call)
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes)
        call.trace = f"{span.get_span_context().trace_id:032x}"
        before = self._context.attach(self._trace.set_span_in_context(span, parent))
        try:
            result = await call_next(call)
        except BaseException as error:
            self._ended(span, call, of_error(call, error))
            raise
        else:
            self._ended(span, call, of_result(call, result))
            return result
        finally:
            self._context.detach(before)
            span.end()

    def hop(self, call: Call, hop: Hop) -> Callable[[], None]:
        """Make a span for a request to a server behind this one, whose own spans become part of the trace."""
        attributes = {"mcp.method.name": hop.method, "toolwire.back": hop.back}
        if hop.method in _TARGET and hop.name is not None:
            attributes[_TARGET[hop.method]] = hop.name
        span = self._tracer.start_span(
            f"{hop.method} {hop.back}", kind=self._trace.SpanKind.CLIENT, attributes=attributes
        )
        carried: dict[str, str] = {}
        self._inject(carried, context=self._trace.set_span_in_context(span))
        # SEP-414: only the W3C names, whatever else a propagator writes.
        hop.trace.update(trace_in(carried))

        def ended() -> None:
            if hop.revision is not None:
                span.set_attribute("mcp.protocol.version", hop.revision)
            if hop.ending not in ("ok", "asked"):
                span.set_attribute("error.type", hop.ending if hop.code is None else str(hop.code))
            if hop.ending in ("error", "failed"):
                span.set_status(self._trace.StatusCode.ERROR)
            span.end()

        return ended

    def _parent(self, call: Call) -> Any:
        """SEP-414: return the trace context of `_meta`, or else of the headers: HTTP may end at a proxy on the way."""
        request = call.request
        carried = trace_in(call.meta) if request.raw is not UNSET else {}
        if "traceparent" not in carried and request.headers is not None:
            carried = trace_in(request.headers) or carried
        return self._extract(carried) if carried else None

    def _described(self, call: Call) -> tuple[str, dict[str, Any]]:
        # The names of OpenTelemetry's conventions for MCP. Arguments and results are in no span.
        method = call.method
        attributes: dict[str, Any] = {
            "mcp.method.name": method,
            "mcp.protocol.version": call.revision,
            "jsonrpc.request.id": str(call.request_id)[:200],
        }
        target = target_of(call)
        # Only names of existing components are used: otherwise a caller could create any number of span names.
        back = None if target is None else target.back
        if back is not None:
            attributes["toolwire.back"] = back
        if target is None or target.found is None or method not in _TARGET:
            return method, attributes
        attributes[_TARGET[method]] = target.name
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        return f"{method} {target.name}", attributes

    def _ended(self, span: Any, call: Call, outcome: Outcome) -> None:
        if outcome.code is not None:
            span.set_attribute("rpc.response.status_code", str(outcome.code))
        if call.error_id is not None:
            span.set_attribute("toolwire.error_id", call.error_id)
        if call.refusal is not None:
            span.set_attribute("toolwire.refusal", call.refusal)
        if outcome.word in ("ok", "asked"):
            return
        kind = str(outcome.code) if outcome.code is not None else outcome.word
        span.set_attribute("error.type", "tool_error" if kind == "error" else kind)
        if outcome.word != "cancelled":
            span.set_status(self._trace.StatusCode.ERROR)
