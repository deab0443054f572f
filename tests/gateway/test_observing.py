"""Servers behind a gateway in metrics, traces, the audit log and `/readyz`."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cases import cases
from tests.gateway.backs import Away, Recorded, everything, gateway_before, one, until
from tests.gateway.faulty_backs import faulty
from tests.http.httpclient import HttpClient

import toolwire
from toolwire import Client, Gateway, Server, testing
from toolwire.audit import AuditLog
from toolwire.auth import NoCredential, Principal, StaticSecret, UserSecret
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Breaker
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN

ERAS = (MODERN, "2025-11-25")
FRONT_AND_BACK = pytest.mark.parametrize(("front", "back"), [(front, back) for front in ERAS for back in ERAS])


def yes(message: str, params: Any) -> dict[str, Any]:
    return {"value": True}


def numbers(gateway: Server, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric, by the values of their labels without that of the process."""
    assert gateway.metrics is not None
    found: dict[tuple[str, ...], float] = {}
    for line in gateway.metrics.render().splitlines():
        if line.startswith(f"{name}{{"):
            labels, _, value = line.removeprefix(f"{name}{{").partition("} ")
            texts = [each.partition("=")[2].strip('"') for each in labels.split(",") if "process=" not in each]
            found[tuple(texts)] = float(value)
    return found


@pytest.mark.covers("GW-9.8")
@FRONT_AND_BACK
async def test_requests_are_counted_by_server(front: str, back: str) -> None:
    server = everything()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await go_on.wait()
        return "x"

    @server.tool
    async def refuse() -> str:
        raise ProtocolError(-32001, "no")

    async with (
        gateway_before(server, "memory", back, metrics=True) as gateway,
        testing.connect(gateway, revision=front, elicit=yes) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2})
        await client.read_resource("note://today")
        with pytest.raises(ProtocolError):
            await client.call_tool("b_refuse")
        assert await client.call_tool("b_book", returns=str) == "True True"
        waiting = asyncio.ensure_future(client.call_tool("b_wait"))
        await begun.wait()
        assert numbers(gateway, "toolwire_back_requests_in_flight") == {("b",): 1}
        go_on.set()
        await waiting
        counted = numbers(gateway, "toolwire_back_requests_total")
        # A modern client asks again with its answers; a legacy client is asked meanwhile.
        rounds = {("b", "tools/call", "asked"): 1.0} if front == MODERN else {}
        assert counted == {
            ("b", "tools/call", "ok"): 3,
            ("b", "resources/read", "ok"): 1,
            ("b", "tools/call", "error"): 1,
            **rounds,
        }
        times = numbers(gateway, "toolwire_back_request_seconds_count")
        assert times == {("b", "tools/call"): 4 + len(rounds), ("b", "resources/read"): 1}
        assert numbers(gateway, "toolwire_back_requests_in_flight") == {("b",): 0}
        assert numbers(gateway, "toolwire_back_missing") == {("b",): 0}


@pytest.mark.covers("GW-7.8", "GW-11.9")
async def test_a_server_that_is_missing_is_in_the_metrics() -> None:
    target = Away(one("b", "run"), is_there=True)
    gateway = Gateway("front", metrics=True).add("fragile", target).add("there", one("t", "run"))
    async with testing.connect(gateway) as (client, _):
        assert numbers(gateway, "toolwire_back_missing") == {("fragile",): 0, ("there",): 0}
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        await client.call_tool("fragile_run")
        assert numbers(gateway, "toolwire_back_missing") == {("fragile",): 1, ("there",): 0}
        assert numbers(gateway, "toolwire_back_requests_total") == {("fragile", "tools/call", "failed"): 1}


@cases("front", [MODERN, "2025-11-25"])
async def test_caller_without_an_account_is_no_failed_request_of_the_server(front: str) -> None:
    async with faulty(b=one("b", "run")) as pool:
        gateway = Gateway("front", metrics=True, secret="s" * 32)
        place = HttpTarget("http://b/mcp", pool=pool)
        gateway.add("b", place, credentials=UserSecret(), list_credentials=NoCredential())
        async with testing.connect(gateway, revision=front, principal=Principal("ann")) as (client, _):
            result = await client.call_tool("b_run")
            assert result.is_error and "Connect your account for 'b'" in result.text
            assert pool.calls("b") == 0
        assert numbers(gateway, "toolwire_back_requests_total") == {("b", "tools/call", "no_account"): 1}


async def test_a_server_with_nothing_behind_it_has_no_such_metrics() -> None:
    server = Server("plain", metrics=True)
    async with testing.connect(server) as (client, _):
        await client.list_tools()
        assert server.metrics is not None and "toolwire_back" not in server.metrics.render()


@pytest.mark.covers("GW-9.8")
@FRONT_AND_BACK
async def test_each_hop_has_a_span_that_the_server_continues(front: str, back: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorded = Recorded()
    async with (
        gateway_before(everything(), "memory", back, recorded, tracing=provider) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2})
        hop = next(span for span in exporter.get_finished_spans() if span.name == "tools/call b")
        own = next(span for span in exporter.get_finished_spans() if span.name == "tools/call b_add")
        assert hop.parent.span_id == own.context.span_id and hop.kind.name == "CLIENT"
        assert hop.attributes["toolwire.back"] == own.attributes["toolwire.back"] == "b"
        assert hop.attributes["gen_ai.tool.name"] == "add"
        assert hop.attributes["mcp.protocol.version"] == back
        (sent,) = recorded.sent("tools/call")
        assert sent["params"]["_meta"]["traceparent"].split("-")[1:3] == [
            f"{hop.context.trace_id:032x}",
            f"{hop.context.span_id:016x}",
        ]


@FRONT_AND_BACK
async def test_the_audit_log_names_the_server(front: str, back: str) -> None:
    lines: list[Any] = []
    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    async with gateway_before(everything(), "memory", back, audit=audit) as gateway:

        @gateway.tool
        async def own() -> str:
            return "here"

        async with testing.connect(gateway, revision=front) as (client, _):
            await client.call_tool("b_add", {"a": 1, "b": 2})
            await client.read_resource("note://today")
            await client.call_tool("own")
    assert [each.get("back") for each in lines if "method" in each] == ["b", "b", None]


@pytest.mark.covers("GW-9.8")
@FRONT_AND_BACK
async def test_the_audit_log_names_credential_and_decision(front: str, back: str) -> None:
    lines: list[Any] = []
    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    secret = StaticSecret("never-in-a-line")
    async with faulty(b=one("b", "run")) as pool:
        gateway = Gateway("front", audit=audit, secret="s" * 32).add("plain", one("b", "run"), revision=back)
        place = HttpTarget("http://b/mcp", pool=pool)
        gateway.add("b", place, credentials=secret, revision=back, breaker=Breaker(failures=1, pause=600, longest=600))
        async with testing.connect(gateway, revision=front) as (client, _):
            await client.call_tool("plain_run")
            await client.call_tool("b_run")
            pool.faults["b"] = "refuses"
            await client.call_tool("b_run")
            await until(lambda: gateway.backs["b"].breaker == "open")
            await client.call_tool("b_run")
    seen = [
        tuple(each.get(key) for key in ("back", "credential", "decision", "outcome", "reason"))
        for each in lines
        if "method" in each
    ]
    assert seen == [
        ("plain", None, "allowed", "ok", None),
        ("b", "StaticSecret", "allowed", "ok", None),
        ("b", "StaticSecret", "allowed", "error", None),
        ("b", "StaticSecret", "refused", "refused", "breaker"),
    ]
    assert "never-in-a-line" not in repr(lines)


@pytest.mark.covers("GW-7.8")
@cases(
    ("options", "status", "text"),
    [
        ({}, 200, b"ok, gone missing"),
        ({"strict": True}, 503, b"gone missing"),
        ({"auth": lambda headers: Principal("ann", "test")}, 200, b"ok, 1 server missing"),
    ],
)
async def test_readiness_tells_of_servers_that_are_missing(options: Any, status: int, text: bytes) -> None:
    target = Away(one("b", "run"))
    gateway = Gateway("front", **options).add("gone", target)
    app = gateway.http_app()

    async def probe(path: str) -> tuple[int | None, bytes]:
        answer = await HttpClient(app, path=path).start("GET").finished()
        return answer.status, answer.body

    # Nothing else starts the application here. A probe does, so that it can become ready.
    assert await probe("/readyz") == (status, text)
    assert await probe("/livez") == (200, b"ok")
    target.is_there = True
    await until(lambda: gateway.backs["gone"].state == "ready")
    assert await probe("/readyz") == (200, b"ok")
    await app.stop()


@pytest.mark.covers("GW-9.8")
async def test_the_page_on_metrics_names_those_of_servers_behind_a_gateway() -> None:
    """The table names every metric with its labels, and no other one."""
    async with (
        gateway_before(everything(), "memory", MODERN, metrics=True) as gateway,
        testing.connect(gateway) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2})
        assert gateway.metrics is not None
        lines = gateway.metrics.render().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE toolwire_back_"))
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text("utf-8")
    rows = re.findall(r"^\| `(toolwire_back_\w+)\{([\w,]+)\}` \| (\w+) \|", page, re.MULTILINE)
    assert {name: kind for name, _, kind in rows} == kinds
    for name, labels, _ in rows:
        for line in lines:
            if line.startswith(f"{name}{{"):
                shown = re.findall(r'(\w+)="', line.removeprefix(name))
                assert sorted(shown) == sorted([*labels.split(","), "process"])


# --- the traceback behind an error id ---

FAILING = """
import sys
from toolwire import Server

server = Server("failing")

@server.tool
def fail() -> str:
    sys.stderr.write("chatter\\n")
    raise ValueError("the cause")

server.run()
"""


@pytest.fixture
def failing(tmp_path: Path) -> str:
    file = tmp_path / "failing.py"
    file.write_text(FAILING, encoding="utf-8")
    return str(file)


async def test_traceback_of_an_upstream_is_a_warning_and_its_other_lines_are_not(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolwire.gateway")
    gateway, lines = Gateway("front"), list[str]()
    gateway.add("back", failing)
    gateway.on_stderr = lines.append
    async with testing.connect(gateway) as (client, _):
        result = await client.call_tool("back_fail")
        identifier = result.text.partition("error id ")[2].rstrip(")")
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    written = warning.getMessage().split("\n")
    assert written[0].startswith("back: ")
    assert written[0].endswith(f"error {identifier} in the tool fail")
    assert written[1] == "    Traceback (most recent call last):"
    assert written[-1] == "    ValueError: the cause"
    assert any(each.levelno == logging.DEBUG and each.getMessage() == "back: chatter" for each in caplog.records)
    assert {"back: chatter", "back:     ValueError: the cause"} <= set(lines)


async def test_traceback_of_a_mounted_server_file_is_a_warning(failing: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("front")
    server.mount(failing, prefix="back")
    async with testing.connect(server) as (client, _):
        result = await client.call_tool("back_fail")
    identifier = result.text.partition("error id ")[2].rstrip(")")
    assert f"error {identifier} in the tool fail\n    Traceback (most recent call last):" in caplog.text


async def test_traceback_of_an_upstream_reaches_the_client_that_started_the_gateway(
    failing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"command": sys.executable, "args": ["-m", "toolwire", "run", failing]}
    file = tmp_path / "gateway.json"
    file.write_bytes(msgspec.json.encode({"mcpServers": {"back": entry}}))
    command = [sys.executable, "-m", "toolwire", "gateway", str(file), "--transport", "stdio"]
    # The gateway runs the code that is under test, wherever the tests are started.
    async with Client(command, env={"PYTHONPATH": str(Path(toolwire.__file__).parents[1])}) as client:
        result = await client.call_tool("back_fail")
    identifier = result.text.partition("error id ")[2].rstrip(")")
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "toolwire.gateway: back: " in record.getMessage()
    assert f"error {identifier} in the tool fail\n        Traceback (most recent call last):" in record.getMessage()
    assert record.getMessage().endswith("ValueError: the cause")
