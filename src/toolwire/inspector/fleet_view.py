"""The tasks of the inspected server's fleet, for the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from toolwire.inspector.excerpt import Excerpt
from toolwire.protocol.errors import ToolwireError
from toolwire.server.tasks.fleet_tasks import (
    OTHER_STATES,
    QUEUED_STATES,
    Fleet,
    FleetTasks,
    holder_name,
    shown_letter,
)
from toolwire.stores import Stores

#: Tasks that the page gets at once.
MAX_TASKS: Final = 200
_NAME: Final = 200
_STATES: Final = {"queue": QUEUED_STATES, "over": OTHER_STATES}


class FleetView:
    """The tasks of one server in a store.

    `stores` gives the store, and `server` the name of the server.
    """

    def __init__(self, stores: Callable[[], Stores], server: Callable[[], str]) -> None:
        self._stores = stores
        self._server = server

    @property
    def _tasks(self) -> FleetTasks:
        return FleetTasks(self._stores(), self._server())

    async def describe(self, which: str) -> dict[str, Any]:
        """Return the numbers of the fleet and tasks of the `queue`, `over`, or `dead`."""
        tasks, now = self._tasks, time.time()
        fleet = await tasks.fleet()
        if which == "dead":
            letters, is_cut = await tasks.letters(limit=MAX_TASKS)
            entries = [shown_letter(letter, now) for letter in letters]
        elif which in _STATES:
            found, is_cut = await tasks.search(_STATES[which], limit=MAX_TASKS)
            named = await tasks.names()
            entries = [{**task.shown(now), "holder": holder_name(task.process, named)} for task in found]
        else:
            raise ToolwireError("There is no such list of tasks")
        shown = [{**entry, "tool": entry["tool"][:_NAME]} for entry in entries]
        return {"tasks": shown, "isCut": is_cut, **_numbers(fleet)}

    async def task(self, identifier: str, *, with_values: bool) -> dict[str, Any]:
        described: dict[str, Any] = Excerpt(await self._tasks.describe(identifier, with_values=with_values)).value
        return described

    async def cancel(self, identifier: str) -> dict[str, Any]:
        return (await self._tasks.cancel(identifier)).shown(time.time())

    async def send_again(self, identifier: str) -> dict[str, Any]:
        return {"id": await self._tasks.send_again(identifier)}


def _numbers(fleet: Fleet) -> dict[str, Any]:
    ready, held = fleet.counts.ready, fleet.counts.held
    tools = [
        {"tool": tool[:_NAME], "queued": ready.get(tool, 0), "running": held.get(tool, 0)}
        for tool in sorted({*ready, *held})[:MAX_TASKS]
    ]
    return {
        "tools": tools,
        "queued": sum(ready.values()),
        "running": sum(held.values()),
        "letters": fleet.letters,
        "replicas": len(fleet.replicas),
    }
