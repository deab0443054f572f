"""From `working` to the end: looking, waiting, cancelling, listing, expiring; over each transport, in each dialect."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import chain
from typing import Any

import pytest
from tests.server.tasks.conftest import Clock
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    FORMS,
    RELATED,
    Way,
    begin,
    changes,
    dialects,
    look,
    outcome,
    reaches,
    says,
    status_of,
    talk,
    task_in,
    text_in,
    wait_for_end,
    ways,
)
from tests.wireclient import Message

from toolwire import Context, Limits, ToolError
from toolwire.auth import Anonymous

EMPTY = {"resultType", "_meta"}


@ways
@pytest.mark.covers("J73", "E34", "TSK-10")
async def test_a_task_goes_from_working_to_its_end(way: Way) -> None:
    held = Held()
    ttl, poll = ("ttlMs", "pollIntervalMs") if way.modern else ("ttl", "pollInterval")
    async with way.talk(held.server) as client:
        for tool, end in (("hold", "cancelled"), ("hold", "completed"), ("refused", "failed")):
            created = task_in(await client.call(tool, task={}))
            assert created["status"] == "working"
            for time in ("createdAt", "lastUpdatedAt"):
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created[time])
            if end == "cancelled":
                await client.result("tasks/cancel", {"taskId": created["taskId"]})
            held.go.set()
            ended = await reaches(client, created["taskId"], "completed", "failed", "cancelled")
            assert ended["status"] == end
            assert ended["createdAt"] == created["createdAt"]
            assert ended["lastUpdatedAt"] >= created["lastUpdatedAt"]
            assert (created[ttl], created[poll]) == (300_000, 1000)
            assert (ended[ttl] >= created[ttl], ended[poll]) == (True, created[poll])
            assert await look(client, created["taskId"]) == ended, "and looking changes nothing"


# --- the outcome -----------------------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize(
    ("tool", "core", "extension"),
    [
        ("hold", "completed", "completed"),
        ("broken", "failed", "completed"),
        ("refused", "failed", "failed"),
    ],
)
@pytest.mark.covers("J74", "T-31", "T-32", "TSK-16")
async def test_the_outcome_is_what_the_call_would_have_answered(way: Way, tool: str, core: str, extension: str) -> None:
    held = Held()
    held.go.set()
    async with way.open(held.server) as join, join() as client, join(capabilities=FORMS) as plain:
        expected = await plain.request("tools/call", {"name": tool})
        task = await begin(client, tool)
        ended = await reaches(client, task, "completed", "failed")
        assert ended["status"] == (extension if way.modern else core)
        assert RELATED not in str(ended)
        if ended["status"] == "failed":
            assert ended["statusMessage"] == (expected.get("error", {}).get("message") or text_in(expected["result"]))
        came = ended if way.modern else await client.request("tasks/result", {"taskId": task})
        assert came.get("error") == expected.get("error")
        if "result" in expected and not way.modern:
            expected["result"]["_meta"] = {RELATED: {"taskId": task}}
        assert came.get("result") == expected.get("result")


@dialects
async def test_what_a_crash_is_about_is_told_to_nobody(revision: str) -> None:
    async with talk(Held().server, revision) as client:
        task = await begin(client, "crashing")
        assert "secret" not in str([await outcome(client, task), await look(client, task)])


@ways
@pytest.mark.covers("J74", "J75")
async def test_whoever_waits_for_the_end_blocks_nobody(way: Way) -> None:
    held = Held()
    async with way.talk(held.server) as client:
        task = await begin(client, "hold")
        waiting = await wait_for_end(client, task)
        assert text_in(await client.call("plain", {"name": "Ada"})) == "Hello, Ada!"
        assert await status_of(client, task) == "working"
        assert not waiting.done()
        held.go.set()
        if way.modern:
            (told,) = await changes(client, 1)
            assert text_in(told["result"]) == "held x"
            assert not waiting.done(), "a listen stream goes on"
        else:
            result = (await waiting)["result"]
            assert text_in(result) == "held x"
            assert await client.result("tasks/result", {"taskId": task}) == result, "and again"


@ways
@pytest.mark.covers("J76")
async def test_a_client_that_goes_while_it_waits_hurts_nobody(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    held = Held(limits=Limits(task_window=0.0, drain=0.0))
    async with way.open(held.server) as join, join(principal="ada") as staying:
        async with join(principal="ada") as going:
            task = await begin(going, "hold")
            await wait_for_end(going, task)
        held.go.set()
        assert text_in(await outcome(staying, task)) == "held x"
    assert caplog.records == []


# --- cancelling ------------------------------------------------------------------------------------------------------


@ways
@pytest.mark.covers("J77", "1.5.3", "TSK-14")
async def test_cancelling_wakes_those_who_wait_and_is_final(way: Way) -> None:
    held = Held()
    async with way.talk(held.server) as client:
        task = await begin(client, "stubborn")
        await held.started.wait()
        waiting = await wait_for_end(client, task)
        answer = await client.result("tasks/cancel", {"taskId": task})
        if way.modern:
            assert answer.keys() == EMPTY
        else:
            assert answer["status"] == "cancelled"
            assert (await waiting)["error"]["message"] == "The task was cancelled"
        assert [told["status"] for told in await changes(client, 1)] == ["cancelled"]
        await held.stopped.wait()  # And now it returns a result.
        cancelled = await look(client, task)
        await client.request("tasks/cancel", {"taskId": task})
        assert await look(client, task) == cancelled
        assert (cancelled["status"], "result" in cancelled) == ("cancelled", False)


@ways
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
@pytest.mark.covers("J78", "E34", "TSK-14")
async def test_a_task_that_is_over_is_not_cancelled(way: Way, end: str) -> None:
    held = Held()
    async with way.talk(held.server) as client:
        task = await begin(client, "refused" if end == "failed" else "hold")
        if end == "cancelled":
            await client.result("tasks/cancel", {"taskId": task})
        held.go.set()
        ended = await reaches(client, task, end)
        response = await client.request("tasks/cancel", {"taskId": task})
        if way.modern:
            assert response["result"].keys() == EMPTY, "it is acknowledged"
        else:
            assert response["error"]["code"] == -32602
        assert await look(client, task) == ended


@ways
@pytest.mark.covers("J79", "J86")
async def test_a_handler_that_only_computes_starves_nobody_and_sees_that_it_was_cancelled(way: Way) -> None:
    held = Held()
    async with way.talk(held.server) as client:
        task = await begin(client, "computing")
        assert (await says(client, task, "1 of 2"))["status"] == "working"
        assert text_in(await client.call("plain")) == "Hello, you!"
        await client.result("tasks/cancel", {"taskId": task})
        await held.stopped.wait()
        assert await status_of(client, task) == "cancelled", "what it returned came too late"
    assert held.seen == [False, True]


# --- whose tasks they are --------------------------------------------------------------------------------------------


@ways
@pytest.mark.covers("J80")
async def test_clients_list_their_own_tasks_page_by_page(way: Way) -> None:
    held = Held()
    held.go.set()
    async with way.open(held.server) as join, join(principal="ada") as ada, join(principal="eve") as eve:
        if way.modern:
            await begin(ada, "hold")
            assert (await ada.error("tasks/list"))["code"] == -32601, "whoever has an id has its task, nobody has more"
            return
        made = [await begin(ada, "hold") for _ in range(120)]
        await begin(eve, "hold")
        first = await ada.result("tasks/list")
        second = await ada.result("tasks/list", {"cursor": first["nextCursor"]})
        listed = [task["taskId"] for task in [*first["tasks"], *second["tasks"]]]
        assert (sorted(listed), len(first["tasks"]), "nextCursor" in second) == (sorted(made), 100, False)
        assert first["tasks"][0] == await look(ada, first["tasks"][0]["taskId"])
        assert (await ada.error("tasks/list", {"cursor": "nonsense"}))["code"] == -32602


@pytest.mark.covers("J80")
async def test_the_page_size_of_the_server_counts_for_tasks() -> None:
    held = Held(page_size=2)
    held.go.set()
    async with talk(held.server, "2025-11-25") as client:
        made = [await begin(client, "hold") for _ in range(5)]
        pages: list[list[str]] = []
        page: Message = {"nextCursor": None}
        while "nextCursor" in page:
            page = await client.result("tasks/list", {"cursor": page["nextCursor"]} if pages else {})
            pages.append([task["taskId"] for task in page["tasks"]])
        assert [len(each) for each in pages] == [2, 2, 1]
        assert sorted(chain.from_iterable(pages)) == sorted(made)


@ways
@pytest.mark.parametrize("principal", [None, Anonymous().principal, "ada"], ids=["none", "shared", "ada"])
@pytest.mark.covers("J81")
async def test_listing_is_withheld_from_http_clients_without_a_distinct_principal(way: Way, principal: Any) -> None:
    held = Held(capabilities={"tasks": {"list": {}}})
    offered = not way.modern and (way.over == "stdio" or principal == "ada")
    async with way.talk(held.server, principal=principal) as client:
        await begin(client, "hold")
        declared = client.initialized.get("capabilities", {}).get("tasks", {})
        response = await client.request("tasks/list")
        assert ("list" in declared) == ("result" in response) == offered
        assert offered or response["error"]["code"] == -32601


@ways
@pytest.mark.covers("J82", "TSK-18")
async def test_a_task_belongs_to_its_principal(way: Way) -> None:
    held = Held()
    methods = ("tasks/get", "tasks/cancel", "tasks/update" if way.modern else "tasks/result")
    async with way.open(held.server) as join, join(principal="ada") as ada, join(principal="eve") as eve, join() as any:
        task = await begin(ada, "hold")
        unknown = await eve.error("tasks/get", {"taskId": "never was"})
        assert unknown["code"] == -32602
        for other in (eve, any):
            for method in methods:
                assert await other.error(method, {"taskId": task, "inputResponses": {}}) == unknown
        if not way.modern:
            assert await eve.result("tasks/list") == {"tasks": []}
            assert [each["taskId"] for each in (await ada.result("tasks/list"))["tasks"]] == [task]
        held.go.set()
        await reaches(ada, task, "completed")


# --- how long they are kept ------------------------------------------------------------------------------------------


@ways
@pytest.mark.covers("J84")
async def test_a_task_is_kept_as_long_as_was_asked_for_within_bounds(way: Way) -> None:
    async with way.talk(Held().server) as client:
        for wish, granted in (({}, 300_000), ({"ttl": 1234}, 1234), ({"ttl": 2**53}, 3_600_000)):
            created = task_in(await client.call("hold", task=wish))
            if way.modern:
                assert created["ttlMs"] == 300_000, "a wish means nothing here"
            else:
                assert created["ttl"] == granted


LONG_SESSIONS: dict[str, Any] = {"session_idle": 1e6, "session_age": 1e6}


def promised(task: Message) -> float:
    """The time until which a task is kept, by what it says of itself."""
    ttl = task["ttl"] if "ttl" in task else task["ttlMs"]
    return datetime.fromisoformat(task["createdAt"]).timestamp() + ttl / 1000


@ways
@pytest.mark.parametrize("ttl", [None, 1.0])
@pytest.mark.covers("J84", "E37", "T-28")
async def test_a_task_is_kept_while_it_runs_and_for_its_ttl_after_its_end(
    way: Way, ttl: float | None, clock: Clock
) -> None:
    held = Held(limits=Limits(task_window=0.0, **LONG_SESSIONS), stores=clock.stores)
    kept = 300.0 if ttl is None or way.modern else ttl  # 2026-07-28 has no way to ask for a time.
    async with way.talk(held.server) as client:
        wish = {} if ttl is None else {"ttl": int(ttl * 1000)}
        ends = {name: await begin(client, "hold", task=wish) for name in ("completed", "cancelled")}
        for seconds in (kept, 301, 3600, 36_000):
            await clock.elapse(seconds)
            for task in ends.values():
                shown = await look(client, task)
                assert shown["status"] == "working"
                assert promised(shown) == pytest.approx(clock.time() + kept), "counted from its creation"
        assert held.seen == []
        await client.result("tasks/cancel", {"taskId": ends["cancelled"]})
        held.go.set()
        for end, task in ends.items():
            shown = await reaches(client, task, end)
            assert promised(shown) == pytest.approx(clock.time() + kept)
        await clock.elapse(kept - 0.01)
        assert text_in(await outcome(client, ends["completed"])) == "held x"
        assert await status_of(client, ends["cancelled"]) == "cancelled"
        await clock.elapse(0.01)
        for task in ends.values():
            assert (await client.error("tasks/get", {"taskId": task}))["code"] == -32602
        assert await clock.stores.kv.keys("toolwire:task2:") == []


@ways
@pytest.mark.covers("J84")
async def test_a_task_that_runs_for_too_long_ends_with_an_error(way: Way, clock: Clock) -> None:
    held = Held(limits=Limits(task_window=0.0, task=7200.0, **LONG_SESSIONS), stores=clock.stores)
    async with way.talk(held.server) as client:
        task = await begin(client, "hold")
        await held.started.wait()
        # A long time is looked at once a second: the first look begins to count.
        await clock.elapse(2)
        await clock.elapse(7190)
        assert await status_of(client, task) == "working"
        await clock.elapse(20)
        await held.stopped.wait()
        shown = await reaches(client, task, "completed" if way.modern else "failed")
        assert shown["statusMessage"] == "hold did not finish within 7200 seconds"
        assert (await outcome(client, task))["isError"] is True


@ways
async def test_a_question_that_nobody_answers_is_taken_back(way: Way, clock: Clock) -> None:
    held = Held(limits=Limits(task_window=0.0, state=900.0, **LONG_SESSIONS), stores=clock.stores)

    @held.server.tool(task="optional")
    async def patient(ctx: Context, timeout: float | None = None) -> str:
        try:
            await ctx.elicit("Name?", str, key="name", timeout=timeout)
        except ToolError as refusal:
            return str(refusal)
        return "answered"

    async with way.talk(held.server) as client:
        # Whoever wants a task kept for long may take as long to answer.
        longer = 900.0 if way.modern else 3000.0
        for timeout, ttl, seconds in (
            (None, 1000, 900.0),
            (5000.0, 1000, 5000.0),
            (5.0, 1000, 5.0),
            (None, 3_000_000, longer),
        ):
            task = await begin(client, "patient", {"timeout": timeout}, task={"ttl": ttl})
            await reaches(client, task, "input_required")
            await clock.elapse(seconds - 1)
            assert await status_of(client, task) == "input_required"
            await clock.elapse(1)
            await reaches(client, task, "completed")
            assert text_in(await outcome(client, task)) == "The client did not answer elicitation/create"
