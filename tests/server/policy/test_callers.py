"""Policies, records and metrics together with scopes and visibility: what a caller may not know stays unknown."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.http.modernclient import ModernClient

from toolwire import Policy, Server
from toolwire.audit import AuditLog
from toolwire.auth import Anonymous, ApiKeys, Principal
from toolwire.server.metrics import Metrics
from toolwire.server.policy.concurrency import Gates, Slots
from toolwire.server.policy.plan import Placement, Plan
from toolwire.server.policy.rate_counters import CounterMemory
from toolwire.server.policy.rates import Counters
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.stores import Stores

STAFF, PLAIN = "the-key-of-the-staff", "the-key-of-a-caller"
KEYS = ApiKeys({STAFF: Principal("sam", scopes=frozenset({"staff"})), PLAIN: Principal("pat")})


def headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def work(n: int = 0) -> str:
    return "done"


async def call(app: Any, key: str, name: str, **arguments: Any) -> dict[str, Any]:
    answer = await ModernClient(app).call(name, arguments, headers=headers(key))
    response: dict[str, Any] = answer.json()
    return response


async def test_a_policy_does_not_betray_a_tool_that_the_caller_does_not_see() -> None:
    server = Server("s", auth=KEYS)
    policy = Policy(quota="1/hour", rules={"n": lambda n: "it is odd" if n % 2 else None})
    server.tool(name="hidden", visible_to=["staff"], policy=policy)(work)
    app = server.http_app()
    for arguments in ({"n": 1}, {"n": 2}, {"n": 2}):
        hidden, unknown = [await call(app, PLAIN, name, **arguments) for name in ("hidden", "nothing")]
        assert json.dumps(hidden).replace("hidden", "nothing") == json.dumps(unknown)
    assert "isError" not in (await call(app, STAFF, "hidden", n=2))["result"], "nobody has used up what others may use"
    assert (await call(app, STAFF, "hidden", n=2))["result"]["isError"] is True
    await app.stop()


async def test_a_call_without_its_scopes_is_recorded_and_counted_as_refused() -> None:
    lines: list[str] = []
    log = AuditLog(lines.append, key="a key of sixteen bytes")
    server = Server("s", auth=KEYS, audit=log, metrics=Metrics(token="t0ken"), policy=Policy(mask=["staff"]))
    server.tool(scopes=["staff"])(work)
    app = server.http_app()
    answer = await ModernClient(app).call("work", headers=headers(PLAIN))
    assert answer.status == 403
    assert 'scope="staff"' in answer.headers["www-authenticate"]
    assert server.metrics is not None
    assert 'toolwire_refusals_total{reason="scope"' in server.metrics.render()
    await app.stop()
    entry = json.loads(lines[1])
    assert (entry["who"], entry["name"], entry["outcome"], entry["reason"]) == (
        {"subject": "pat"},
        "work",
        "refused",
        "scope",
    )
    assert PLAIN not in str(lines)


async def test_metrics_are_for_callers_unless_they_have_a_token_of_their_own() -> None:
    async def status(app: Any, key: str | None) -> int | None:
        given = {} if key is None else headers(key)
        return (await HttpClient(app).start("GET", path="/metrics", headers=given).finished()).status

    app = Server("s", auth=KEYS, metrics=True).http_app()
    assert [await status(app, key) for key in (None, "wrong", PLAIN)] == [401, 401, 200]
    app = Server("s", auth=KEYS, metrics=Metrics(token="t0ken")).http_app()
    assert [await status(app, key) for key in (None, PLAIN, "t0ken")] == [401, 401, 200]


@cases("place", ["A", "B", "C"])
async def test_metrics_without_a_token_name_only_what_every_caller_sees(place: str) -> None:
    async def page(metrics: Metrics, key: str) -> str:
        inner = Server("C")
        for name in ("open", "hidden", "secret"):
            inner.tool(name=name, tags=[] if name == "open" else ["t"])(work)
        inner.resource("note://{hidden}", tags=["t"])(lambda hidden: hidden)
        inner.prompt(name="hush", tags=["t"])(lambda n: n)
        inner.completion(prompt="hush", argument="n")(lambda partial: [])
        servers = {"C": inner, "B": Server("B").mount(inner, "c")}
        servers["A"] = Server("A", auth=KEYS, metrics=metrics).mount(servers["B"], "b")
        servers[place].restrict("t", visible_to=["staff"])
        app = servers["A"].http_app()
        for name in ("open", "hidden", "secret", "secret"):
            assert "result" in await call(app, STAFF, f"b_c_{name}")
        client = ModernClient(app, headers=headers(STAFF))
        await client.request("resources/read", {"uri": "note://x"})
        await client.request("prompts/get", {"name": "b_c_hush", "arguments": {"n": "1"}})
        reference = {"ref": {"type": "ref/prompt", "name": "b_c_hush"}, "argument": {"name": "n", "value": ""}}
        await client.request("completion/complete", reference)
        answer = await HttpClient(app).start("GET", path="/metrics", headers=headers(key)).finished()
        await app.stop()
        return answer.body.decode()

    for key in (PLAIN, STAFF):
        shown = await page(Metrics(), key)
        assert 'name="b_c_open",outcome="ok"' in shown
        assert not [word for word in ("c_hidden", "secret", "note:", "hush") if word in shown]
        for method, count in (("tools/call", 3), ("resources/read", 1), ("prompts/get", 1), ("completion/complete", 1)):
            labels = f'{{method="{method}",name="(restricted)",outcome="ok",process="{os.getpid()}"}}'
            assert f"toolwire_requests_total{labels} {count}\n" in shown
    everything = await page(Metrics(token="t0ken"), "t0ken")
    assert all(name in everything for name in ("b_c_hidden", "b_c_secret", "note://{hidden}", "b_c_hush"))


def test_a_plan_keeps_the_policies_whose_identities_it_is_found_by() -> None:
    policy = Policy(mask=["secret"])
    before = sys.getrefcount(policy)
    plan = Plan(
        [Placement("s", policy)],
        lambda: Counters(CounterMemory()),
        Gates(),
        SharedCounters(Stores.memory),
        Server("s").kernel.lowlevel,
    )
    assert sys.getrefcount(policy) > before, f"another policy may get its place in memory, and {plan} with it"


@pytest.mark.parametrize("auth", [None, Anonymous()], ids=["no principal", "shared principal"])
async def test_slots_of_strangers_are_counted_by_address(auth: Any) -> None:
    server = Server("s", auth=auth, policy=Policy(concurrency=Slots(1, queue=0, per="caller")))
    started, done = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        started.set()
        await done.wait()
        return "waited"

    server.tool(work)
    app = server.http_app()
    client = ModernClient(app)
    waiting = client.start_call("wait", client=("198.51.100.9", 1))
    await asyncio.wait_for(started.wait(), 10)
    same = (await client.call("work", client=("198.51.100.9", 2))).json()["result"]
    assert "is busy" in same["content"][0]["text"]
    other = (await client.call("work", client=("203.0.113.7", 1))).json()["result"]
    assert other["content"][0]["text"] == "done"
    done.set()
    await waiting.finished()
    await app.stop()
