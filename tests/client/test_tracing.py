"""The client's end of a trace."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cases import cases

from toolwire import Client, Context, ProtocolError, Server, ToolError, types
from toolwire.client import ClientContext
from toolwire.protocol.errors import ServerError


class Traced:
    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str, kind: trace.SpanKind) -> ReadableSpan:
        (found,) = [span for span in self._exporter.get_finished_spans() if (span.name, span.kind) == (name, kind)]
        return found


async def greet(name: str, ctx: Context) -> str:
    return f"{ctx.meta.get('baggage')}"


@pytest.mark.covers("META-7")
@cases("revision", types.REVISIONS)
async def test_one_trace_from_the_caller_through_client_and_server_to_the_handler(revision: str) -> None:
    traced = Traced()
    server = Server("s", tools=greet, tracing=traced.provider)
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        with traced.provider.get_tracer("mine").start_as_current_span("outer"):
            async with Client(server, revision=revision, tracing=traced.provider) as client:
                result = await client.call_tool("greet", {"name": "hidden"})
    finally:
        context.detach(token)
    assert result.text == "tenant=blue"
    outer = traced.named("outer", trace.SpanKind.INTERNAL)
    sent = traced.named("tools/call greet", trace.SpanKind.CLIENT)
    served = traced.named("tools/call greet", trace.SpanKind.SERVER)
    assert outer.context and sent.context and served.context and sent.parent and served.parent
    assert sent.parent.span_id == outer.context.span_id
    assert served.parent.span_id == sent.context.span_id
    assert served.context.trace_id == outer.context.trace_id
    assert dict(sent.attributes or {}) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "greet",
        "gen_ai.operation.name": "execute_tool",
    }
    assert "hidden" not in sent.to_json()


async def test_a_trace_that_the_caller_gives_by_hand_is_not_replaced() -> None:
    traced, seen = Traced(), []
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append(ctx.meta["traceparent"])
        return ""

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with Client(server, tracing=traced.provider) as client:
        await client.call_tool("look", meta={"traceparent": parent})
    assert seen == [parent]


async def test_what_fails_is_a_span_that_failed() -> None:
    traced = Traced()
    server = Server("s")

    @server.tool
    async def wrong() -> str:
        raise ToolError("private")

    async with Client(server, tracing=traced.provider) as client:
        await client.call_tool("wrong")
        with pytest.raises(ProtocolError):
            await client.call_tool("unknown")
    spans = [traced.named(f"tools/call {name}", trace.SpanKind.CLIENT) for name in ("wrong", "unknown")]
    assert [(span.attributes or {})["error.type"] for span in spans] == ["tool_error", "-32602"]
    assert not any(span.status.is_ok for span in spans)
    assert "private" not in "".join(span.to_json() for span in spans)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ServerError, match=r"pip install 'toolwire\[otel\]'"):
        Client(Server("s"), tracing=True)


async def test_without_the_switch_nothing_is_carried() -> None:
    seen: list[Any] = []
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append("traceparent" in ctx.meta)
        return ""

    with Traced().provider.get_tracer("mine").start_as_current_span("outer"):
        async with Client(server) as client:
            await client.call_tool("look")
    assert seen == [False]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_request_of_any_method_has_a_span_whose_context_middleware_sees(revision: str) -> None:
    traced, seen = Traced(), list[Any]()
    server = Server("s", tools=greet)
    extension = server.extension("com.example/notes", needs_client=False)

    @extension.method("notes/search")
    async def search(params: Any, ctx: Context) -> dict[str, Any]:
        return {"trace": ctx.meta.get("traceparent")}

    async def watch(ctx: ClientContext, call_next: Any) -> Any:
        seen.append(ctx.meta.get("traceparent"))
        return await call_next(ctx)

    async with Client(server, revision=revision, tracing=traced.provider, middleware=[watch]) as client:
        told = await client.request("notes/search")
        await client.request("tools/call", {"name": "greet", "arguments": {"name": "a"}})
    sent = traced.named("notes/search", trace.SpanKind.CLIENT)
    assert sent.context
    assert told["trace"] == seen[0]
    assert format(sent.context.span_id, "016x") in seen[0]
    traced.named("tools/call greet", trace.SpanKind.CLIENT)
