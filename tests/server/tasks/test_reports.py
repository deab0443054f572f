"""What a client hears of a task that runs: its transitions and its progress, over each transport, in each dialect."""

from __future__ import annotations

import pytest
from tests.httpwire import HttpLine
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    RELATED,
    Way,
    answer,
    begin,
    changes,
    look,
    reaches,
    says,
    wait_for_end,
    ways,
)

TRANSITIONS = ["input_required", "working", "completed"]


@ways
@pytest.mark.covers("J83", "E33", "E35")
async def test_each_transition_is_announced_on_the_right_channel(way: Way) -> None:
    held = Held()
    async with way.talk(held.server) as client:
        task = await begin(client, "staged")
        if way.modern:
            await wait_for_end(client, task)
        held.go.set()
        await changes(client, 1)
        await answer(client, task, name="Ada")
        await changes(client, 2)
        held.go_on.set()
        told = await changes(client, 3)
        assert [each["status"] for each in told] == TRANSITIONS
        # With the whole task as `tasks/get` has it, and nothing else but what names the subscription.
        shown = await look(client, task)
        meta = told[-1].pop("_meta", None)
        assert told[-1] == {name: value for name, value in shown.items() if name not in ("_meta", "resultType")}
        assert (meta and list(meta)) == (["io.modelcontextprotocol/subscriptionId"] if way.modern else None)
        if isinstance(client.channel, HttpLine):
            stream = client.channel.streams["subscriptions/listen" if way.modern else "GET"]
            heard = [each for each in stream if each["method"].startswith("notifications/tasks")]
            assert [each["params"]["status"] for each in heard] == TRANSITIONS


@ways
@pytest.mark.filterwarnings("ignore:Logging to the client is deprecated")
@pytest.mark.covers("J85", "T-12", "1.6.5", "TSK-17")
async def test_progress_goes_on_as_the_dialect_has_it(way: Way) -> None:
    held = Held()
    meta = {"progressToken": "p7", "io.modelcontextprotocol/logLevel": "debug"}
    async with way.talk(held.server) as client:
        task = await begin(client, "reporting", _meta=meta)
        await says(client, task, "a quarter")
        held.go.set()
        assert "statusMessage" not in await reaches(client, task, "completed")
        if way.modern:
            assert client.notifications == []
            return
        told = await client.notified("notifications/progress", 2)
        assert [(each["progress"], each["progressToken"]) for each in told] == [(1, "p7"), (4, "p7")]
        (logged,) = await client.notified("notifications/message")
        assert all(each["_meta"][RELATED] == {"taskId": task} for each in [*told, logged])
