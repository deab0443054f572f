"""Calls of tools: checked before they are made, completed as tasks, and their results checked against the list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw

from toolwire.client.connection import ClientConnection, OnProgress
from toolwire.client.listing import Lists
from toolwire.client.requests import RequestSender, encode_arguments
from toolwire.client.tasks import Rising, TaskHandle, drive, start_task
from toolwire.client.tools import (
    RawResult,
    TaskAnswer,
    decode_called,
    decode_called_typed,
    one_of_each,
    value_of,
    with_valid_headers,
)
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import Audience, audiences
from toolwire.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    InvalidResponse,
    ProtocolError,
    ToolwireError,
    TransportError,
    find_data_member,
)
from toolwire.protocol.revisions import supports
from toolwire.wire.deadlines import CallClock

if TYPE_CHECKING:
    from toolwire.client.safety import Check, Make, Safety

log: logging.Logger = logging.getLogger("toolwire.client")

#: A function that sends a call with these params, within this time limit, with these headers.
SendCall: TypeAlias = Callable[[t.CallToolRequestParams, CallClock, Mapping[str, str] | None], Awaitable[RawResult]]

#: How long a result may wait for the list of tools that it is checked against.
LEARN_SECONDS: Final = 5.0
# A program that listens for changes lists the tools again by itself. It has begun after this many turns of the loop.
_TURNS: Final = 5
# The options of a client that declare its capabilities.
_OPTIONS: Final = {"elicitation": "elicit", "sampling": "sample", "roots": "roots"}


class ToolCalls:
    """Calls the tools of a server, and keeps the list that calls and results are checked against."""

    def __init__(
        self, sender: RequestSender, lists: Lists, safety: Safety | None, *, task_seconds: float, has_pins: bool
    ) -> None:
        """`task_seconds`: how many more a call gets that becomes a task, unless it has a time limit of its own."""
        self.sender = sender
        self._connector = sender.connector
        self._lists = lists
        self._safety = safety
        self._task_seconds = task_seconds
        self._has_pins = has_pins
        self.on_listed: list[Callable[[list[t.Tool]], Any]] = []
        """Functions that get each list as the server sent it, with tools of equal names."""
        # The capabilities whose lack was logged.
        self._missed: set[str] = set()
        # The connection on which a change of the tools was announced, until the tools are listed again.
        self._outdated: ClientConnection | None = None

    async def list_tools(self, audience: Audience | None, timeout: float | None) -> list[t.Tool]:
        """List the tools for one audience, or all, and learn what results are checked against."""
        self._outdated = None  # This listing serves for every change that was announced before it.
        listed = await self._lists.read("tools/list", timeout)
        connection = self._connector.current()
        if connection.repeats_arguments:
            listed = with_valid_headers(listed)
        tools = one_of_each(listed)
        connection.tools.learn(tools, with_headers=connection.repeats_arguments)
        if self._safety is not None:
            self._safety.listed(listed)
        for tell in self.on_listed:
            tell(listed)
        return tools if audience is None else [tool for tool in tools if audience in audiences(tool.meta)]

    async def call_checked(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
        make: Make,
    ) -> Any:
        """Make a call of a tool within one time limit, if all checks pass."""
        clock = self.sender.start_clock(timeout)
        if self._safety is None:
            return await make(arguments, clock)
        find = partial(self._find_checked_definition, clock=clock)
        return await self._safety.call(name, arguments, clock, find, make)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        returns: Any,
        timeout: float | None,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        clock: CallClock | None = None,
    ) -> Any:
        """Make a call. `timeout` is what the caller has set, and `clock` the time limit if the call has begun."""
        sender = self.sender
        if clock is None:
            clock = sender.start_clock(timeout)
        params = t.CallToolRequestParams(
            name=name, arguments=UNSET if arguments is None else Raw(encode_arguments(arguments))
        )
        if on_progress is not None or sender.on_progress is not None:
            on_progress = Rising(cast("OnProgress", on_progress or sender.on_progress))
        connection = self._connector.connection
        if connection is not None and name in connection.tools.only_tasks:
            return await self._drive(params, timeout, clock, on_progress, meta, headers, returns)
        decode = decode_called if returns is None else decode_called_typed
        repeats = connection is not None and connection.repeats_arguments
        sent = self._with_arguments(params, headers) if repeats else headers
        try:
            result = await sender.ask(
                "tools/call", params, decode, clock=clock, on_progress=on_progress, meta=meta, headers=sent
            )
        except ProtocolError as error:
            if error.code == METHOD_NOT_FOUND and _runs_tasks(self._connector.current()):
                # 2025-11-25 tasks, tool-level negotiation: a tool that only runs as a task is refused with this code.
                return await self._drive(params, timeout, clock, on_progress, meta, headers, returns)
            if not self._has_outdated_headers(error):
                raise await self._advised(error, name, clock) from None
            await self._list_anew(name, clock)
            sent = self._with_arguments(params, headers)
            result = await sender.ask(
                "tools/call", params, decode, clock=clock, on_progress=on_progress, meta=meta, headers=sent
            )
        if type(result) is TaskAnswer:
            if timeout is None:
                clock.extend(self._task_seconds)
            return await drive(TaskHandle(self, result.task_id, name), clock, on_progress, returns)
        connection = self._connector.connection
        is_learned = False
        if connection is not None and not connection.tools.listed:
            is_learned = True
            if result.structured_content is not UNSET:
                await self.learn_tools(clock)
                connection = self._connector.connection
        try:
            return self._check_result(connection, name, result, returns)
        except InvalidResponse as error:
            if error.result is None or not await self._has_new_schema(name, is_learned, clock):
                raise
        return self.make_value(name, result, returns)

    # Python's warning about a missing await names the coroutine: it is to be the method that the user wrote.
    call.__qualname__ = call_checked.__qualname__ = "Client.call_tool"

    async def call_as_is(
        self,
        params: t.CallToolRequestParams,
        clock: CallClock,
        headers: Mapping[str, str] | None,
        send: SendCall,
    ) -> RawResult:
        """Make a call with the checks that every call passes, and return its result as it came."""

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> RawResult:
            if arguments is not before:
                params.arguments = UNSET if arguments is None else Raw(encode_arguments(arguments))
            try:
                return await send(params, clock, self._with_arguments(params, headers))
            except ProtocolError as error:
                if not self._has_outdated_headers(error):
                    raise
            await self._list_anew(params.name, clock)
            return await send(params, clock, self._with_arguments(params, headers))

        before = None if params.arguments is UNSET else msgspec.json.decode(params.arguments)
        if self._safety is None:
            return await make(before, clock)
        find = partial(self._find_checked_definition, clock=clock)
        called: RawResult = await self._safety.call(params.name, before, clock, find, make)
        return called

    def _has_outdated_headers(self, error: ProtocolError) -> bool:
        """XMH-7: say whether a call failed because its headers were made from an outdated definition."""
        return error.code == HEADER_MISMATCH and self._connector.current().repeats_arguments

    async def _list_anew(self, name: str, clock: CallClock) -> None:
        """List the tools before a call is tried once more. Raise `ToolChanged` if the tool is not what was pinned."""
        await self.list_tools(None, clock.rest("tools/list"))
        if self._safety is not None:
            self._safety.check(name, self._connector.current().tools.definition(name))

    async def _has_new_schema(self, name: str, is_learned: bool, clock: CallClock) -> bool:
        """List the tools anew after an unfit result. Return whether the output schema has changed.

        The list may be older than the result, unless it was learned for that. A schema that was confirmed so is not
        asked for again. The list gets what the call has left of its time.
        """
        connection = self._connector.connection
        before = None if connection is None else connection.tools.definition(name)
        if connection is None or before is None or connection.tools.confirmed.get(name) == before.output_schema:
            return False
        if not is_learned:
            if self.sender.cache is not None:
                self.sender.cache.suspect("tools/list")
            left = clock.left()
            if left is not None and left <= 0:
                return False
            if not await self._list_quietly(LEARN_SECONDS if left is None else min(LEARN_SECONDS, left)):
                return False
        after = connection.tools.definition(name)
        if after is None:
            return False
        connection.tools.confirmed[name] = after.output_schema
        return after.output_schema != before.output_schema

    async def learn_tools(self, clock: CallClock) -> None:
        """List the tools before the first structured result of a connection is returned, so that it can be checked.

        2026-07-28 server/tools, output schema: clients should validate structured results. A list that fails takes no
        result away from the caller. Neither does one that takes longer than the call has left of its time: it serves
        for the next result.
        """
        connection = self._connector.connection
        if connection is None or connection.tools.listed:
            return
        if connection.tools.learning is None:
            connection.tools.learning = connection.callbacks.start(self._list_quietly(LEARN_SECONDS))
        await clock.wait(connection.tools.learning)

    async def _list_quietly(self, timeout: float | None) -> bool:
        """List the tools, and return whether that succeeded."""
        try:
            await self.list_tools(None, timeout)
        except TransportError:
            log.debug("the connection ended before the tools were listed")
        except ToolwireError as error:
            log.warning("the tools could not be listed, so that results are not checked: %s", error)
        else:
            return True
        return False

    def make_value(self, name: str | None, result: t.CallToolResult, returns: Any) -> Any:
        """Turn the result of a tool into what the caller asked for."""
        return self._check_result(self._connector.connection, name, result, returns)

    def _check_result(
        self, connection: ClientConnection | None, name: str | None, result: t.CallToolResult, returns: Any
    ) -> Any:
        """Check a result against what the connection knows of its tool, and turn it into what the caller asked for."""
        wrapped = False
        if connection is not None and name is not None:
            tools = connection.tools
            if tools.listed:
                try:
                    tools.check(name, result)
                except InvalidResponse as error:
                    error.result = ToolResult.from_wire(result)
                    raise
            wrapped = returns is not None and tools.wraps(name)
            if result.is_error is True:
                self._advise(name, result, connection)
        if returns is None:
            return ToolResult.from_wire(result)
        return value_of(name or "the task", result, returns, wrapped=wrapped)

    async def _drive(
        self,
        params: t.CallToolRequestParams,
        timeout: float | None,
        clock: CallClock,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        returns: Any,
    ) -> Any:
        """Call a tool as a task, and wait for its result."""
        connection = await self._connector.usable(clock)
        handle = await start_task(self, connection, params, None, on_progress, meta, clock=clock, headers=headers)
        if timeout is None:
            clock.extend(self._task_seconds)
        return await drive(handle, clock, on_progress, returns)

    async def _advised(self, error: ProtocolError, name: str, clock: CallClock) -> ProtocolError:
        """Add to an error the name that was probably meant, or the missing client option."""
        if error.code == INVALID_PARAMS and error.message.startswith("Unknown tool"):
            from toolwire.schemas.wording import nearest

            # The programmer may have listed nothing: the list has the names to compare with.
            await self.learn_tools(clock)
            meant = nearest(name, self._connector.current().tools.names)
            if meant is not None and meant != name and "did you mean" not in error.message:
                return ProtocolError(error.code, f"{error.message}; did you mean {meant!r}?", error.data)
        if error.code == MISSING_CLIENT_CAPABILITY:
            needed = find_data_member(error, "requiredCapabilities", dict) or {}
            options = [f"{option}=" for capability, option in _OPTIONS.items() if capability in needed]
            if options:
                return ProtocolError(error.code, f"{error.message}: give Client {' and '.join(options)}", error.data)
        return error

    def _advise(self, name: str, result: t.CallToolResult, connection: ClientConnection) -> None:
        """Log once which option the client lacks for a tool that says so in its result, as before 2026-07-28."""
        said = result.content[0].text if result.content and isinstance(result.content[0], t.TextContent) else ""
        _, _, needed = said.partition("lient does not support ")
        for capability, option in _OPTIONS.items():
            if capability not in needed or capability in self._missed:
                continue
            self._missed.add(capability)
            revision = connection.revision
            if not supports(revision, capability):
                log.warning("the tool %r asks for %s, which %s does not have", name[:100], capability, revision)
            elif capability not in connection.answers.capabilities(revision):
                log.warning("the tool %r asks for %s: give Client %s=", name[:100], capability, option)

    async def call_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        ttl: float | None,
        timeout: float | None,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> TaskHandle:
        """Call a tool and return a handle of its task, as soon as the server has created it."""

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> Any:
            params = t.CallToolRequestParams(
                name=name, arguments=UNSET if arguments is None else Raw(encode_arguments(arguments))
            )
            connection = await self._connector.usable(clock)
            sent = self._with_arguments(params, headers)
            return await start_task(self, connection, params, ttl, on_progress, meta, clock=clock, headers=sent)

        return cast("TaskHandle", await self.call_checked(name, arguments, timeout, make))

    async def call_for_view(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        meta: Mapping[str, Any] | None,
        timeout: float | None,
        clock: CallClock,
        check: Check,
    ) -> ToolResult:
        """Make a call of a view, if the check of the view and all checks of this client pass."""

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> ToolResult:
            result: ToolResult = await self.call(name, arguments, None, timeout, None, meta, None, clock)
            return result

        if self._safety is None:
            await check()
            return await make(arguments, clock)
        find = partial(self._find_checked_definition, clock=clock)
        called: ToolResult = await self._safety.call(name, arguments, clock, find, make, via="app", check=check)
        return called

    def _with_arguments(
        self, params: t.CallToolRequestParams, headers: Mapping[str, str] | None
    ) -> Mapping[str, str] | None:
        """Return the headers of a call: those of the caller, and those that repeat arguments."""
        connection = self._connector.connection
        if connection is None or not connection.repeats_arguments or not connection.tools.listed:
            return headers
        return {**connection.tools.headers(params.name, params.arguments), **(headers or {})} or None

    async def find_definition(self, name: str, clock: CallClock) -> t.Tool | None:
        """Return the definition of a tool; list the tools first if the list is missing or out of date."""
        if not (await self._connector.usable(clock)).tools.current:
            await self.list_tools(None, clock.rest("tools/list"))
        return self._connector.current().tools.definition(name)

    async def find_definitions(self, clock: CallClock) -> list[t.Tool]:
        """Return the definitions of all tools; list them first if the list is missing or out of date."""
        if not (await self._connector.usable(clock)).tools.current:
            await self.list_tools(None, clock.rest("tools/list"))
        return self._connector.current().tools.definitions

    async def _find_checked_definition(self, name: str, clock: CallClock) -> t.Tool | None:
        """Return the definition that a call is checked by; with pins, list again before a name counts as not listed.

        The server may have added the tool without saying so, and `accept()` takes what was listed last.
        """
        tools = (await self._connector.usable(clock)).tools
        if self._has_pins and tools.current and tools.definition(name) is None:
            await self.list_tools(None, clock.rest("tools/list"))
        return await self.find_definition(name, clock)

    def note_change(self, notification: str | None) -> None:
        """List the tools again after a notification that says that they changed; None stands for any."""
        connection = self._connector.connection
        if connection is None or not connection.tools.listed:
            return
        # R7: list the tools again. Forget the outdated definitions until then.
        if notification == "notifications/tools/list_changed":
            connection.tools.forget()
        elif notification is None:
            connection.tools.current = False
        else:
            return
        if self._outdated is not connection:
            self._outdated = connection
            connection.callbacks.start(self._refresh(connection))

    async def _refresh(self, connection: ClientConnection) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._outdated is not connection or connection is not self._connector.connection or connection.ended:
            return
        await self._list_quietly(None)


def _runs_tasks(connection: ClientConnection) -> bool:
    core = supports(connection.revision, "core_tasks")
    return core and t.has_capability(connection.agreement.capabilities, "tasks.requests.tools.call")
