"""Callers who share a principal are strangers to each other: nothing of one is listed for another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw, json
from tests.cases import cases
from tests.http.httpclient import SessionClient
from tests.http.modernclient import ModernClient, modern_meta

from toolwire import Limits, Server
from toolwire.auth import Anonymous, ApiKeys, Principal
from toolwire.http.asgi import HttpApp
from toolwire.protocol.tasks import StoredCall
from toolwire.protocol.types import TASKS_EXTENSION
from toolwire.server.tasks.callers import caller_in
from toolwire.wire.shares import caller_of, is_distinct

KEY = "the-key-of-ann-1234"
GUEST = Principal("guest", "visitors", is_shared=True)


async def admit_guests(token: str) -> Principal:
    return GUEST


@asynccontextmanager
async def serve(auth: Any, **limits: Any) -> AsyncIterator[HttpApp]:
    server = Server("jobs", auth=auth, limits=Limits(**limits))

    @server.tool(task="required")
    async def work() -> str:
        return "done"

    app: HttpApp = server.http_app()
    try:
        yield app
    finally:
        await app.stop()


@cases(
    ("auth", "headers"),
    [
        (Anonymous(), {}),
        (Anonymous(), {"authorization": "Bearer whatever"}),
        ([ApiKeys({KEY: "ann"}), Anonymous()], {}),
        ([ApiKeys({KEY: "ann"}), Anonymous(Principal("dev"))], {"authorization": "Bearer unknown-key"}),
        (admit_guests, {"authorization": "Bearer whatever"}),
    ],
)
async def test_tasks_are_not_listed_for_callers_who_share_a_principal(auth: Any, headers: dict[str, str]) -> None:
    async with serve(auth) as app:
        first, second = (SessionClient(app, headers=headers) for _ in range(2))
        for client in (first, second):
            declared = (await client.initialize()).json()["result"]["capabilities"]["tasks"]
            assert "list" not in declared and "cancel" in declared
        task = (await first.call("work", task={}))["result"]["task"]["taskId"]
        refused = (await second.post(second.request("tasks/list", {}))).answer()
        assert refused["error"]["code"] == -32601
        assert (await first.result("tasks/get", {"taskId": task}))["taskId"] == task


async def test_caller_with_a_key_lists_tasks_beside_anonymous_callers() -> None:
    async with serve([ApiKeys({KEY: "ann"}), Anonymous()]) as app:
        stranger = SessionClient(app)
        await stranger.initialize()
        await stranger.call("work", task={})
        ann = SessionClient(app, headers={"authorization": f"Bearer {KEY}"})
        assert "list" in (await ann.initialize()).json()["result"]["capabilities"]["tasks"]
        task = (await ann.call("work", task={}))["result"]["task"]["taskId"]
        assert [each["taskId"] for each in (await ann.result("tasks/list", {}))["tasks"]] == [task]


async def test_anonymous_callers_have_a_quota_of_tasks_by_address() -> None:
    meta = modern_meta(capabilities={"extensions": {TASKS_EXTENSION: {}}})
    async with serve(Anonymous(), tasks=4, share=0.5) as app:

        async def begin(address: str) -> bool:
            answer = await ModernClient(app).call("work", meta=meta, client=(address, 50000))
            return "taskId" in answer.json().get("result", {})

        assert [await begin("192.0.2.1") for _ in range(3)] == [True, True, False]
        assert await begin("192.0.2.2")


def test_stored_calls_of_a_shared_principal_count_for_their_line() -> None:
    stored = StoredCall(Raw(b"{}"), "2026-07-28", principal=Raw(json.encode(GUEST)), line="digest of an address")
    assert caller_in(stored) == "digest of an address"
    stored.line = ""
    assert caller_in(stored) is None


def test_only_a_principal_of_one_caller_is_distinct() -> None:
    assert [is_distinct(each) for each in (None, GUEST, Principal("ann"), "ada")] == [False, False, True, True]
    assert (caller_of(GUEST), caller_of(Principal("ann", "keys"))) == (None, ("keys", "ann"))
