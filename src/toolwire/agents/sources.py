"""`Source`: one server of a toolset, whose list outlives its connection."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from toolwire.agents.catalogue import Entry, Listed
from toolwire.client.approval import Approve, ToolCall, Verdict
from toolwire.client.budget import Budget
from toolwire.client.client import Client
from toolwire.client.connection import OnProgress
from toolwire.client.errors import ToolChanged
from toolwire.client.listen import Subscription
from toolwire.client.pins import Pins
from toolwire.client.safety import Find, Safety
from toolwire.client.targets import CommandTarget, TargetLike, check_url
from toolwire.client.tasks import TaskHandle
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError
from toolwire.util.backoff import Backoff
from toolwire.wire.deadlines import CallClock

log: logging.Logger = logging.getLogger("toolwire.agents")

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME: Final = 32


def name_of_target(target: Any) -> str:
    """Return a short name for a server that was given without one."""
    if isinstance(target, str):
        parts = urlsplit(target)
        labels = [label for label in (parts.hostname or "").split(".") if label not in ("www", "mcp", "api")]
        name = "_".join(labels[:-1] or labels)
    elif isinstance(target, Client):
        name = target._target.label
    elif isinstance(target, list | tuple) and target:
        # The first word after the options names the server: `npx -y @scope/server-files .`.
        words = [word for word in target[1:] if isinstance(word, str) and re.match(r"[@A-Za-z]", word)]
        name = PurePath(words[0] if words else str(target[0])).stem
    else:
        name = getattr(target, "name", None) or PurePath(str(target)).stem
    return _OTHERS.sub("_", str(name)).strip("_")[:_LONGEST_NAME] or "server"


def check_target(target: Any) -> Any:
    """Return a target. Raise `ValueError` for a text that is not a URL.

    Texts come from configurations and models, and one that names a file would start it.
    """
    if not isinstance(target, str):
        return target
    try:
        return check_url(target)
    except ValueError:
        raise ValueError(
            f"{target!r:.200} is not the URL of a server. A toolset starts no file that a text names: if you wrote it "
            "yourself, give Path(...) or Client(...)"
        ) from None


class Source:
    """One server of a toolset."""

    def __init__(
        self,
        name: str,
        client: Client,
        *,
        is_owned: bool,
        approve: Approve | None,
        budget: Budget | None,
        pins: Pins | None,
        audit: Any,
    ) -> None:
        self.name = name
        self.client = client
        self.failure: str = ""
        """The reason why the server cannot be reached; "" while it can."""
        self.withheld: dict[str, str] = {}
        """Tools that differ from what was pinned, each with what has changed."""
        self.is_listed: bool = False
        self._is_owned = is_owned
        self._is_stale = True
        self._listed_on: Any = None
        self._follower: asyncio.Task[None] | None = None
        self._backoff = Backoff(longest=60.0)
        self._retry_at = 0.0
        self._pins = pins
        self._has_budget = budget is not None
        self._target = client._target
        self._starting = asyncio.Lock()
        if approve is not None:
            approve = self._name_server(approve)
        has_safety = any(each is not None for each in (approve, budget, pins, audit))
        self._safety = Safety(self._target, approve, budget, pins, audit) if has_safety else None

    def _name_server(self, approve: Approve) -> Approve:
        def ask(call: ToolCall) -> Verdict | Awaitable[Verdict]:
            server, name = self._owner(call.name)
            return approve(msgspec.structs.replace(call, server=server, name=name))

        return ask

    @property
    def is_several(self) -> bool:
        """Return whether its client has several servers, whose tools have prefixes already."""
        return bool(self.client._members)

    def _compare_lists(self) -> None:
        """Compare each list with the pins as sent: a name may stand twice."""
        if self._safety is not None and self._safety.listed not in self.client._tools.on_listed:
            self.client._tools.on_listed.append(self._safety.listed)

    @property
    def servers(self) -> Collection[str]:
        """The names of its servers, as they stand before the names of their tools."""
        return self.client._members if self.is_several else (self.name,)

    def _owner(self, tool: str) -> tuple[str, str]:
        """Return the server of a tool and the name that it has there."""
        if not self.is_several:
            return self.name, tool
        return self._target.server_of(tool) or self.name, self._target.own_name(tool)

    # --- the list ---

    @property
    def is_cold(self) -> bool:
        """Return whether the server is a process to start later, known from the pins."""
        if self.client.connected or self._pins is None or not isinstance(self._target, CommandTarget):
            return False
        return self._is_owned and bool(self._pins.tools(self._target.address))

    def list_cold(self) -> list[Listed]:
        """Return the tools that the pins have of a server that was not started."""
        assert self._pins is not None
        self.is_listed, self._is_stale = True, False
        return self._listed(self._pins.tools(self._target.address))

    @property
    def needs_listing(self) -> bool:
        """Return whether the tools have to be listed, now or after a pause."""
        if self.failure:
            return time.monotonic() >= self._retry_at
        if self.is_listed and not self.client.connected:
            return False  # An unreachable server says nothing new; the next call connects again.
        return self._is_stale or self.client._connector.connection is not self._listed_on

    async def list_tools(self, seconds: float | None) -> list[Listed] | None:
        """Return what the server lists now; None if it cannot be reached."""
        try:
            async with asyncio.timeout(seconds):
                await self.client.connect()
                # Before the list, so that no change falls between them.
                await self._follow()
                self._is_stale = False
                self._compare_lists()
                tools = await self.client.list_tools()
        except (ToolwireError, TimeoutError, OSError) as error:
            self._is_stale = True
            self.failure = str(error) or "it did not answer in time"
            self._retry_at = time.monotonic() + (self._backoff.next() or 60.0)
            log.warning("the tools of %s could not be listed: %s", self.name, self.failure)
            return None
        self.failure, self.is_listed = "", True
        self._backoff = Backoff(longest=60.0)
        self._listed_on = self.client._connector.connection
        return self._listed(self._admit(tools))

    def _listed(self, tools: Iterable[t.Tool]) -> list[Listed]:
        return [Listed(*self._owner(tool.name), tool.name, tool) for tool in tools]

    def _admit(self, tools: list[t.Tool]) -> list[t.Tool]:
        """Return the tools that are what was pinned."""
        if self._safety is None or self._pins is None:
            return tools
        kept: list[t.Tool] = []
        withheld: dict[str, str] = {}
        for tool in tools:
            try:
                self._safety.check(tool.name, tool)
            except ToolChanged as error:
                withheld[self._owner(tool.name)[1]] = str(error)
                if tool.name not in self.withheld:
                    log.warning("the tool %r of %s is withheld: %s", tool.name[:100], self.name, error)
            else:
                kept.append(tool)
        self.withheld = withheld
        return kept

    async def _follow(self) -> None:
        """Notice changes of the list from now on, if the server announces them."""
        if self._follower is not None and not self._follower.done():
            return
        if not t.has_capability(self.client.capabilities, "tools.listChanged"):
            return
        changes = self.client.listen(tools=True)
        try:
            await changes.__aenter__()
        except ToolwireError as error:
            log.warning("%s does not announce changes of its tools: %s", self.name, error)
            return
        self._follower = asyncio.create_task(self._watch(changes), name=f"toolwire agents: {self.name}")

    async def _watch(self, changes: Subscription) -> None:
        try:
            async for _ in changes:
                self._is_stale = True
        except ToolwireError as error:
            log.debug("changes of the tools of %s are not announced any more: %s", self.name, error)

    # --- calls ---

    async def call(
        self, entry: Entry, arguments: Mapping[str, Any], timeout: float | None, on_progress: OnProgress | None
    ) -> ToolResult:
        """Call a tool, if approval, budget and pins allow it."""
        name = entry.call_name
        if self._safety is None:
            called: ToolResult = await self.client.call_tool(name, arguments, timeout=timeout, on_progress=on_progress)
            return called
        clock = self.client._sender.start_clock(timeout)

        def left(clock: CallClock) -> float | None:
            # Without a limit of its own, a call gets the time that the client gives calls and tasks.
            return clock.left() if timeout is not None or self._has_budget else None

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> ToolResult:
            return await self.client.call_tool(name, arguments, timeout=left(clock), on_progress=on_progress)

        find = self._finder(entry, clock)
        checked: ToolResult = await self._safety.call(name, arguments, clock, find, make)
        return checked

    def _finder(self, entry: Entry, clock: CallClock) -> Find:
        """Return what finds the definition that a call is checked by."""

        async def find(name: str) -> t.Tool | None:
            if self._pins is None:
                return entry.tool
            if not self.client.connected:
                async with self._starting:
                    await self.client.connect()
                    self._compare_lists()
                    await self.client.list_tools(audience=None)
            return await self.client._tools._find_checked_definition(name, clock)

        return find

    async def call_as_task(
        self, entry: Entry, arguments: Mapping[str, Any], timeout: float | None, on_progress: OnProgress | None
    ) -> TaskHandle:
        """Call a tool as a task, if it is allowed, and return its handle."""

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock | None = None) -> TaskHandle:
            return await self.client.call_tool_as_task(
                entry.call_name, arguments, timeout=timeout, on_progress=on_progress
            )

        if self._safety is None:
            return await make(arguments)
        clock = self.client._sender.start_clock(timeout)
        handle: TaskHandle = await self._safety.call(
            entry.call_name, arguments, clock, self._finder(entry, clock), make
        )
        return handle

    async def close(self) -> None:
        """Stop following the list, and close the client if the toolset has opened it."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait({self._follower})
        if self._is_owned:
            self.is_listed, self._is_stale = False, True  # A toolset that is opened again lists anew.
            await self.client.close()
        if self._safety is not None:
            if self._safety.listed in self.client._tools.on_listed:
                self.client._tools.on_listed.remove(self._safety.listed)
            await self._safety.close()


def read_servers(servers: Iterable[Any]) -> list[tuple[str, TargetLike | Client]]:
    """Return the servers of a toolset by names, each only once."""
    found: list[tuple[str, Any]] = []
    for server in servers:
        if isinstance(server, Mapping):
            entries = server.get("mcpServers", server.get("servers", server))
            if not isinstance(entries, Mapping):
                raise ValueError("a configuration has `mcpServers`, a mapping of names to servers")
            for name, one in entries.items():
                if isinstance(one, Mapping):
                    if one.get("disabled") is True:
                        continue
                    one = _ConfiguredServer({"mcpServers": {name: one}})
                found.append((_OTHERS.sub("_", str(name))[:_LONGEST_NAME] or "server", check_target(one)))
        elif isinstance(server, list | tuple | str) or not _is_config_file(server):
            target = check_target(server)
            found.append((name_of_target(target), target))
        else:
            found += _read_file(server)
    names: dict[str, int] = {}
    unique: list[tuple[str, Any]] = []
    for name, target in found:
        names[name] = names.get(name, 0) + 1
        unique.append((name if names[name] == 1 else f"{name}_{names[name]}", target))
    return unique


class _ConfiguredServer:
    """An entry of a configuration, which its own client reads."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config


def _is_config_file(server: Any) -> bool:
    return hasattr(server, "__fspath__") and str(server).lower().endswith(".json")


def _read_file(path: Any) -> list[tuple[str, Any]]:
    # Imported here because few toolsets read a file.
    from toolwire.client.config import read_config

    return [(_OTHERS.sub("_", name)[:_LONGEST_NAME], target) for name, target in read_config(path).items()]


#: The name of the clients of a toolset: servers see by it that the toolset defers tools.
CLIENT_NAME: Final = "toolwire-agents"


def make_client(target: Any, options: Mapping[str, Any]) -> tuple[Client, bool]:
    """Return a client of a server, and whether the toolset has to close it."""
    if isinstance(target, Client):
        # One that was connected before is left so.
        return target, not target.connected
    options = {"name": CLIENT_NAME, **options}
    if isinstance(target, _ConfiguredServer):
        return Client(target.config, **options), True
    return Client(target, **options), True
