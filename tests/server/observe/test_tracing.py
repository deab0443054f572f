"""Spans: one a request, in the trace of the caller, without a word of what was said."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cases import cases
from tests.http.modernclient import ModernClient
from tests.wireclient import MODERN, REVISIONS, connect, modern_meta

from toolwire import Policy, Server, ToolError
from toolwire.audit import AuditLog
from toolwire.protocol.errors import ServerError

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


class Traced:
    """A provider whose spans are kept."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


async def greet(name: str) -> str:
    return f"hello {name}"


def ids(span: ReadableSpan) -> tuple[str, str | None]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", None if span.parent is None else f"{span.parent.span_id:016x}"


@pytest.mark.covers("META-7", "R30")
@cases("revision", REVISIONS)
async def test_a_span_joins_the_trace_that_the_request_carries(revision: str) -> None:
    traced = Traced()
    server = Server("s", tools=greet, tracing=traced.provider)
    async with connect(server, revision) as client:
        await client.call("greet", {"name": "hidden"}, _meta={"traceparent": PARENT, "tracestate": "a=b"})
    span = traced.spans[-1]
    assert ids(span) == (TRACE, SPAN)
    assert (span.name, span.kind) == ("tools/call greet", trace.SpanKind.SERVER)
    attributes = dict(span.attributes or {})
    assert attributes.pop("jsonrpc.request.id")
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": revision,
        "gen_ai.tool.name": "greet",
        "gen_ai.operation.name": "execute_tool",
    }
    assert "hidden" not in span.to_json()


async def test_over_http_the_header_counts_where_the_request_says_nothing() -> None:
    traced = Traced()
    client = ModernClient(Server("s", tools=greet, tracing=traced.provider).http_app())
    await client.call("greet", {"name": "x"}, headers={"traceparent": OTHER})
    meta = modern_meta() | {"traceparent": PARENT}
    await client.call("greet", {"name": "x"}, headers={"traceparent": OTHER}, meta=meta)
    await client.call("greet", {"name": "x"})
    of_header, of_meta, alone = traced.spans
    assert ids(of_header) == ("1" * 32, "2" * 16)
    assert ids(of_meta) == (TRACE, SPAN)
    assert ids(alone)[1] is None


@cases(
    "carried",
    [
        {"traceparent": "rubbish"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": PARENT + "\n"},
        {"tracestate": "a=b"},
        {"baggage": "=" * 10},
        {"baggage": "a=" + "b" * 9000},
    ],
)
async def test_what_is_no_trace_context_begins_a_trace_and_breaks_nothing(carried: dict[str, Any]) -> None:
    traced = Traced()
    async with connect(Server("s", tools=greet, tracing=traced.provider), MODERN) as client:
        assert "isError" not in await client.call("greet", {"name": "x"}, _meta=carried)
    assert ids(traced.spans[-1])[1] is None


async def test_what_a_handler_starts_is_part_of_the_span_in_any_executor() -> None:
    traced = Traced()
    server = Server("s", tracing=traced.provider)
    tracer = traced.provider.get_tracer("mine")

    @server.tool
    async def on_loop() -> str:
        with tracer.start_as_current_span("inner"):
            return str(baggage.get_baggage("tenant"))

    @server.tool
    def in_thread() -> str:
        with tracer.start_as_current_span("inner"):
            return str(baggage.get_baggage("tenant"))

    async with connect(server, MODERN) as client:
        for name in ("on_loop", "in_thread"):
            said = await client.call(name, _meta={"traceparent": PARENT, "baggage": "tenant=blue"})
            assert said["content"][0]["text"] == "blue"
    for inner, outer in (traced.spans[0:2], traced.spans[2:4]):
        assert (inner.name, outer.kind) == ("inner", trace.SpanKind.SERVER)
        assert inner.parent is not None and outer.context is not None
        assert inner.parent.span_id == outer.context.span_id


async def test_how_a_request_ended() -> None:
    traced = Traced()
    server = Server("s", tools=greet, tracing=traced.provider, policy=Policy(rules={"bad": lambda n: "no"}))

    @server.tool
    async def wrong() -> str:
        raise ToolError("private text")

    @server.tool
    async def broken() -> str:
        raise RuntimeError("private text")

    @server.tool
    async def ruled(bad: int) -> str:
        return ""

    async with connect(server, MODERN) as client:
        await client.result("tools/list")
        await client.call("wrong")
        masked = (await client.call("broken"))["content"][0]["text"]
        await client.call("ruled", {"bad": 1})
        await client.error("tools/call", {"name": "made\nup"})
    found = [(span.name, span.status.is_ok, (span.attributes or {}).get("error.type")) for span in traced.spans]
    assert found == [
        ("tools/list", True, None),
        ("tools/call wrong", False, "tool_error"),
        ("tools/call broken", False, "failed"),
        ("tools/call ruled", False, "refused"),
        ("tools/call", False, "-32602"),
    ]
    assert (traced.spans[2].attributes or {})["toolwire.error_id"] in masked
    assert (traced.spans[3].attributes or {})["toolwire.refusal"] == "rule"
    assert "private" not in "".join(span.to_json() for span in traced.spans)


async def test_a_record_names_its_trace() -> None:
    lines: list[str] = []
    log = AuditLog(lines.append, key="a key of sixteen bytes")
    server = Server("s", tools=greet, tracing=Traced().provider, audit=log)
    async with connect(server, MODERN) as client:
        await client.call("greet", {"name": "x"}, _meta={"traceparent": PARENT})
    assert f'"trace":"{TRACE}"' in lines[1]


async def test_true_takes_the_provider_of_the_process() -> None:
    # None is set here, and then nothing is recorded and everything works.
    async with connect(Server("s", tools=greet, tracing=True), MODERN) as client:
        assert "isError" not in await client.call("greet", {"name": "x"})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ServerError, match=r"Tracing needs opentelemetry.trace: pip install 'toolwire\[otel\]'"):
        Server("s", tracing=True)


async def test_without_the_switch_opentelemetry_is_not_loaded() -> None:
    code = "import sys; from toolwire import Server; Server('s'); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
