"""Metrics: what is counted, and that Prometheus' own parser reads it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.http.httpclient import HttpClient, SessionClient
from tests.http.modernclient import ModernClient
from tests.wireclient import MODERN, connect

from toolwire import Policy, Prompt, Resource, Server, ToolError
from toolwire.protocol.errors import ServerError
from toolwire.server import metrics as metrics_module
from toolwire.server.metrics import Metrics


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and its labels, the process left out."""
    return {
        (sample.name, frozenset((key, value) for key, value in sample.labels.items() if key != "process")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def found(server: Server, metric: str, /, **labels: str) -> float | None:
    assert server.metrics is not None
    return samples(server.metrics.render()).get((f"toolwire_{metric}", frozenset(labels.items())))


async def fine() -> str:
    return ""


@pytest.mark.covers("R21", "R30")
async def test_requests_are_counted_by_method_name_and_outcome() -> None:
    server = Server("s", tools=fine, metrics=True, policy=Policy(rules={"n": lambda n: "no"}))

    @server.tool
    async def wrong() -> str:
        raise ToolError("x")

    @server.tool
    async def broken() -> str:
        raise RuntimeError

    @server.tool
    async def ruled(n: int) -> str:
        return ""

    server.add(Resource("note://a", content="x")).add(Prompt.text("x", name="p"))
    server.resource("t://{id}", name="t")(lambda id: id)
    async with connect(server, MODERN) as client:
        for name in ("fine", "fine", "wrong", "broken"):
            await client.call(name)
        await client.call("ruled", {"n": 1})
        await client.error("tools/call", {"name": "guessed"})
        await client.result("tools/list")
        for uri in ("note://a", "t://1", "t://2"):
            await client.result("resources/read", {"uri": uri})
        await client.result("prompts/get", {"name": "p"})
    counted = {
        ("tools/call", "fine", "ok"): 2,
        ("tools/call", "wrong", "error"): 1,
        ("tools/call", "broken", "failed"): 1,
        ("tools/call", "ruled", "refused"): 1,
        ("tools/call", "", "error"): 1,
        ("tools/list", "", "ok"): 1,
        ("resources/read", "note://a", "ok"): 1,
        ("resources/read", "t://{id}", "ok"): 2,
        ("prompts/get", "p", "ok"): 1,
    }
    for (method, name, outcome), count in counted.items():
        labels = {"method": method, "outcome": outcome} | ({"name": name} if name else {})
        assert found(server, "requests_total", **labels) == count, labels
    assert found(server, "refusals_total", reason="rule") == 1
    assert found(server, "requests_in_flight") == 0
    # A name that a caller made up is in no label.
    assert server.metrics is not None
    assert "guessed" not in server.metrics.render()


async def test_the_time_of_requests_is_a_histogram() -> None:
    server = Server("s", tools=fine, metrics=Metrics(buckets=[0.5, 1000.0]))
    async with connect(server, MODERN) as client:
        await client.call("fine")
    labels = {"method": "tools/call", "name": "fine"}
    assert found(server, "request_seconds_count", **labels) == 1
    assert found(server, "request_seconds_bucket", **labels, le="1000") == 1
    assert found(server, "request_seconds_bucket", **labels, le="+Inf") == 1
    assert 0 < (found(server, "request_seconds_sum", **labels) or 0) < 1000


async def test_what_is_going_on_is_shown_while_it_goes_on() -> None:
    server = Server("s", metrics=True, policy=Policy(concurrency=1))
    started, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def held() -> str:
        started.set()
        await go.wait()
        return ""

    async with connect(server, "2025-11-25") as client:
        calls = [client.start("tools/call", {"name": "held"}) for _ in range(2)]
        await started.wait()
        while found(server, "waiting", kind="slot") != 1:
            await asyncio.sleep(0)
        assert found(server, "requests_in_flight") == 2
        assert found(server, "connections") == 1
        assert found(server, "waiting", kind="thread") == 0
        go.set()
        await asyncio.gather(*calls)
        assert found(server, "waiting", kind="slot") == 0
    assert found(server, "connections") == 0


async def test_a_cancelled_request_is_no_longer_in_flight() -> None:
    server = Server("s", metrics=True)
    started = asyncio.Event()

    @server.tool
    async def endless() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async with connect(server, MODERN) as client:
        client.start("tools/call", {"name": "endless"}, id="e")
        await started.wait()
        client.notify("notifications/cancelled", {"requestId": "e"})
    assert found(server, "requests_in_flight") == 0
    assert found(server, "requests_total", method="tools/call", name="endless", outcome="cancelled") == 1


async def test_over_http_they_are_at_metrics() -> None:
    server = Server("s", tools=fine, metrics=True)
    app = server.http_app()
    assert (await ModernClient(app).call("fine")).status == 200
    session = SessionClient(app)
    await session.initialize("2025-11-25")
    answer = await HttpClient(app).start("GET", path="/metrics").finished()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    shown = samples(answer.body.decode())
    assert shown["toolwire_http_sessions", frozenset()] == 1
    foreign = await HttpClient(app).start("GET", path="/metrics", headers={"origin": "https://evil.example"}).finished()
    assert foreign.status == 403
    assert (await HttpClient(app).start("POST", path="/metrics").finished()).status == 404
    await session.close()
    await app.stop()


async def test_with_a_token_they_are_for_those_who_know_it() -> None:
    app = Server("s", metrics=Metrics(token="t0ken")).http_app()
    client = HttpClient(app)
    for wrong in (None, "", "t0ken", "Bearer ", "Bearer t0ke", "bearer t0ken", "Bearer t0ken ", "Bearer t\xf6ken"):
        answer = await client.start("GET", path="/metrics", headers={"authorization": wrong}).finished()
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), wrong
    answer = await client.start("GET", path="/metrics", headers={"authorization": "Bearer t0ken"}).finished()
    assert answer.status == 200


async def test_without_the_switch_there_is_nothing() -> None:
    server = Server("s", tools=fine)
    assert (await HttpClient(server.http_app()).start("GET", path="/metrics").finished()).status == 404
    assert server.metrics is None
    assert server.kernel._entry is None


async def test_names_without_end_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "_MAX_SERIES", 10)
    server = Server("s", metrics=True)
    for n in range(30):
        server.tool(name=f"tool{n}")(fine)
    async with connect(server, MODERN) as client:
        for n in range(30):
            await client.call(f"tool{n}")
    assert server.metrics is not None
    assert len(server.metrics._series) == 11
    assert found(server, "requests_total", method="tools/call", name="(other)", outcome="ok") == 20


async def test_labels_are_escaped() -> None:
    server = Server("s", metrics=True)
    server.tool(name='a"b\\c')(fine)
    async with connect(server, MODERN) as client:
        await client.call('a"b\\c')
    assert found(server, "requests_total", method="tools/call", name='a"b\\c', outcome="ok") == 1


@pytest.mark.parametrize("given", ["yes", 3])
def test_mistakes(given: Any) -> None:
    with pytest.raises(ServerError, match="metrics= takes True or a Metrics"):
        Server("s", metrics=given)
