"""The terms on which servers behind this one have tasks (see `server.tasks.tasks_elsewhere`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from toolwire.protocol import types as t
from toolwire.server.call import Call


class ForeignTask(Struct, array_like=True, frozen=True):
    """A task of a server behind this one."""

    id: str
    """The id that the other server gave it."""
    tool: str
    """The tool that was called, under the name that clients of this server know."""
    server: str
    """The mark of the server that has it."""
    made: str = ""
    """The mark of its making. A server that is a process for each conversation may give two tasks the same id."""
    judged: str = ""
    """The mark of what was decided when the call was accepted; empty in names of earlier versions."""


class TaskElsewhere:
    """A task that does not run in this process, for the observers of the call that made it."""

    def __init__(self, name: str, watch: Callable[[], asyncio.Future[Any]]) -> None:
        self.id: str = name
        self._watch = watch

    def when_over(self, tell: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call a function with the outcome once the end is known. Only then does anybody look for the end."""
        self._watch().add_done_callback(tell)


#: Raises the error for a caller who may not use a task any more.
Check: TypeAlias = Callable[[], None]


class ForeignTasks(Protocol):
    """The tasks of one server behind this one."""

    mark: str
    """Tells the server from others. One that was replaced while it had tasks has the same as its successor."""

    def knows(self, task: ForeignTask) -> bool:
        """Return whether a task was made by this object, and its result was not got."""

    async def answer(self, call: Call, foreign: ForeignTask, tool: Any, check: Check) -> Any:
        """Answer a request about a task of a tool, in the dialect of its client.

        `check` is called before each question; it raises once the caller may not use the task any more.
        """

    async def state(self, call: Call, foreign: ForeignTask, name: str) -> t.Task:
        """Return a task as 2025-11-25 knows it, under the name that the client knows."""

    def listening(
        self,
        call: Call,
        tasks: Mapping[str, ForeignTask],
        calls: Mapping[str, Call],
        tell: Callable[[str, Mapping[str, Any]], None],
    ) -> AbstractAsyncContextManager[list[str]]:
        """Send changes of tasks, by their names. Yield the names of the tasks that exist.

        `calls` has the call of the stream for each task, with what was decided about the task.
        """

    async def stop_watching(self) -> None:
        """Say of the ends that observers wait for that they are not known: this server is about to stop."""


class TaskHost(Protocol):
    """The server in front of other servers, as far as a call that becomes a task of one of them needs it."""

    @property
    def window(self) -> float:
        """The seconds that a call may take before its client gets a task instead of the result."""

    async def accept(self, call: Call) -> str:
        """Keep what was decided about a call that becomes a task; return its mark."""

    async def keep(self, call: Call, name: str) -> None:
        """Keep the name of a task for the lists of its owner."""

    async def ended(self, call: Call, result: Any) -> t.CreateTaskResult:
        """Make a task out of a call that has ended."""
