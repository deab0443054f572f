"""`Client`: everything a program does with an MCP server, on every revision."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, Self, TypeVar, Unpack, cast, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire._version import __version__
from toolwire.client.approval import Approve
from toolwire.client.budget import Budget
from toolwire.client.cache import Cache, CacheView
from toolwire.client.connection import CEILING_SECONDS, DEFAULT_SECONDS, ClientConnection, OnLog, OnProgress
from toolwire.client.extensions import Extending, SendCall
from toolwire.client.handlers import Answers, Elicitation, ElicitCallback, Roots, SampleCallback, Sampling, as_roots
from toolwire.client.listen import Subscription, subscribe
from toolwire.client.middleware import ClientMiddleware, connection_type
from toolwire.client.notifications import NotificationHandlers
from toolwire.client.pins import Pins
from toolwire.client.reconnect import Connector, Opener, name_card
from toolwire.client.requests import Arguments, CallOptions, encode_arguments, reader
from toolwire.client.skill_approval import ApproveSkill
from toolwire.client.stub import make_stub
from toolwire.client.target import Target
from toolwire.client.targets import (
    TargetLike,
    TargetOptions,
    check_url,
    is_config,
    resolve,
    taking_options_of,
    watch_stderr,
)
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
from toolwire.protocol.apps import AUDIENCES, Audience, audiences
from toolwire.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    InvalidResponse,
    NotSupported,
    ProtocolError,
    ToolwireError,
    TransportError,
    find_data_member,
)
from toolwire.protocol.revisions import MODERN, REVISIONS, supports
from toolwire.util.numbers import TIMEOUT, check_number
from toolwire.wire.deadlines import CallClock
from toolwire.wire.tapped_channel import Tap

if TYPE_CHECKING:
    from toolwire.audit import AuditLog
    from toolwire.auth.contract import Auth
    from toolwire.client.apps import Apps
    from toolwire.client.safety import Check, Make, Safety
    from toolwire.client.several import SeveralTarget
    from toolwire.client.skills import OriginSkills, Skills

log: logging.Logger = logging.getLogger("toolwire.client")

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R", bound=t.Result)

PROBE_SECONDS: Final = 5.0
#: How long a result may wait for the list of tools that it is checked against.
LEARN_SECONDS: Final = 5.0
# A program that listens for changes lists the tools again by itself. It has begun after this many turns of the loop.
_TURNS: Final = 5

_read_empty = reader(t.EmptyResult)


class Client(Extending):
    """A client of one server, or of several.

    `target` is a URL, a `Server` object (served in memory), the path of a server file (`.py`, `.py:OBJECT`, `.js`), a
    command as a list of strings, a `Channel`, a configuration with `mcpServers` (a dict or the path of a `.json`), or a
    mapping of names to any of these. Of several servers, tools and prompts are called `server_name`, and `missing`
    names those that are away.

    Use it with `async with`, or with `connect()` and `close()`, which may be called from any task, in any order and
    more than once. A server that went away is started again, or waited for, by the next operation.

    * `elicit`, `sample`, `roots`: answers to what the server asks; having them declares the capability.
      `Elicitation(form=, url=)` and `Sampling(fn, tools=True)` declare more than a plain function does. One that is
      not `async` may block: it is called in a thread, for one question after the other.
    * `extensions`: the extensions that this program knows, each with its settings: `{"com.example/notes": {}}`. The
      client declares them on every revision that can carry them (2025-11-25 and later).
    * `on_log`, `on_progress`: called with the params of the notification, for every call that has no callback of its
      own; may be `async`, and is then called again once it is done: if a thousand wait, or 16 MiB, the oldest go.
      Progress is only asked for where there is a callback.
    * `on_message`: called with every message as it passes, ("→", bytes) to the server and ("←", bytes) from it.
    * `on_stderr`: called with each line that a server that the client started writes to standard error; of several
      servers, the line comes after the server's name. By default the logger `toolwire.client` gets the tracebacks, as
      warnings, and the last lines are kept for error messages.
    * `timeout`: seconds that each call may take, with all requests that it needs, and with the task that it becomes;
      progress restarts the clock up to ten minutes. The time that a person takes does not count. None for no limit.
      By default 60, and ten minutes for a call that becomes a task.
    * `approve`: sees each call of a tool before it is made, with the tool's definition and annotations; returns True,
      False, a text that says why not, or other arguments to call it with.
    * `approve_skill`: sees each skill before it is loaded, and returns True, False, or a text that says why not. `pins`
      keeps what was approved, bound to the digests of the files.
    * `budget`, `pins`, `audit`: how much may be called (`Budget`), that tools stay what they were (`Pins`), and a
      record of every call (`toolwire.audit.AuditLog`).
    * `tracing`: True, or a `TracerProvider` of OpenTelemetry: a span for each request, whose trace the server can join.
    * `name`, `version`, `title`, `description`, `website_url`, `icons`: what the server is told about this program, as
      far as its revision goes.
    * `revision`: speak this one only, instead of the newest that both sides know.
    * `env`, `cwd`: for a server that the client starts. It gets the variables in `env` and those that every program
      needs (`toolwire.wire.environment`), not the secrets of this program; `inherit_env=True` passes all on.
    * `headers`, `auth`, `tls`, `proxy`: for a server that is reached by URL. `headers` go along with every request,
      `auth` is a bearer token or an object that signs in (`toolwire.auth.OAuth`), `tls` an `ssl.SSLContext` instead of
      the system's certificates, `proxy` the URL of a proxy instead of what the environment names.
    * `middleware`: async functions `(ctx, call_next)` around everything that the client sends, and around everything
      that it is asked or told; the first is the outermost.
    * `cache`: whether lists and resources are kept for as long as the server allows, or a `Cache` to share with others.
    """

    def __init__(
        self,
        target: TargetLike,
        *,
        elicit: Elicitation | ElicitCallback | None = None,
        sample: Sampling | SampleCallback | None = None,
        roots: Roots | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        on_log: OnLog | None = None,
        on_progress: OnProgress | None = None,
        on_message: Tap | None = None,
        on_stderr: Callable[[str], None] | None = None,
        timeout: float | UnsetType | None = UNSET,
        approve: Approve | None = None,
        budget: Budget | None = None,
        approve_skill: ApproveSkill | None = None,
        pins: Pins | None = None,
        audit: AuditLog | None = None,
        tracing: Any = None,
        probe_timeout: float = PROBE_SECONDS,
        revision: str | None = None,
        name: str = "toolwire",
        version: str = __version__,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[t.Icon | Mapping[str, Any]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inherit_env: bool = False,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        cache: bool | Cache = True,
        middleware: Iterable[ClientMiddleware] = (),
    ) -> None:
        if revision is not None and revision not in REVISIONS:
            raise ValueError(f"unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")
        seconds = DEFAULT_SECONDS if isinstance(timeout, UnsetType) else timeout
        if seconds is not None:
            check_number("Client", "timeout", seconds, TIMEOUT)
        check_number("Client", "probe_timeout", probe_timeout, TIMEOUT)
        icons = tuple(icons)
        options = TargetOptions(env, cwd, headers, auth, tls, proxy, inherit_env or None)
        self._members: dict[str, Client] = {}
        several: SeveralTarget | None = None
        if is_config(target):
            options.only("inherit_env", kind="a configuration, which says it for each server")
            # Imported here because few clients have a configuration.
            from toolwire.client import config

            def member(one: Target) -> Client:
                return Client(
                    one,
                    elicit=elicit,
                    sample=sample,
                    roots=roots,
                    extensions=extensions,
                    on_log=on_log,
                    on_progress=on_progress,
                    timeout=timeout,
                    approve_skill=approve_skill,
                    pins=pins,
                    probe_timeout=probe_timeout,
                    revision=revision,
                    name=name,
                    version=version,
                    title=title,
                    description=description,
                    website_url=website_url,
                    icons=icons,
                    cache=cache,
                )

            targets = config.read_config(target, inherit_env=inherit_env)
            if on_stderr is not None:
                watch_stderr(targets, on_stderr)
            if len(targets) == 1:
                self._target = next(iter(targets.values()))
            else:
                from toolwire.client.several import SeveralTarget, member_connection

                names = config.prefixes(targets)
                self._target = several = SeveralTarget({names[each]: one for each, one in targets.items()}, seconds)
                self._members = {names[each]: member(one) for each, one in targets.items()}
                # Each member speaks a revision of its own. The gateway in between speaks the newest.
                revision = MODERN
        else:
            self._target = resolve(target, options)
            if on_stderr is not None:
                watch_stderr({"": self._target}, on_stderr)
        self._answers = Answers(elicit, sample, roots, extensions)
        self._handlers = NotificationHandlers()
        self._opener = Opener(
            self._target,
            self._answers,
            name_card(name, version, title, description, website_url, icons),
            on_log,
            self._changed,
            self._take_up,
            seconds,
            probe_timeout,
            revision,
            # What the members hear must not be told twice.
            NotificationHandlers() if self._members else self._handlers,
            on_message,
        )
        self._connector = Connector(self._opener, is_patient=True)
        self._cache: CacheView | None = None
        if cache is not False:
            self._cache = CacheView(Cache() if cache is True else cache, self._target.identity)
        self._on_log = on_log
        self._on_progress = on_progress
        self._timeout = seconds
        # A limit that the program has set holds for tasks, too. The default is too short for most of them.
        self._task_seconds = CEILING_SECONDS if timeout is UNSET else 0.0
        self._level: t.LoggingLevel | None = None
        self._subscribed: dict[str, None] = {}
        # The capabilities whose lack was logged.
        self._missed: set[str] = set()
        # The connection on which a change of the tools was announced, until the tools are listed again.
        self._outdated: ClientConnection | None = None
        self._approve_skill = approve_skill
        self._pins = pins
        self._skills: Skills | None = None
        self._apps: Apps | None = None
        self._safety: Safety | None = None
        if any(each is not None for each in (approve, budget, pins, audit)):
            # Imported here because most clients have none of these options.
            from toolwire.client.safety import Safety

            self._safety = Safety(self._target, approve, budget, pins, audit)
        is_guarded = self._safety is not None
        if several is not None:
            # Each server has a connection with the middleware. The one between the client and the gateway is no wire.
            make_connection = member_connection(several, middleware, is_guarded=is_guarded)
            for label, each in self._members.items():
                each._opener.handlers = self._handlers
                # One for all, because they ask the same person.
                each._answers = each._opener.answers = self._answers
                each._opener.make_connection = make_connection
                each._opener.changed = partial(self._member_changed, label, each)
            several.use({label: each._connector for label, each in self._members.items()})
        elif middleware:
            self._opener.make_connection = connection_type(middleware, is_guarded=is_guarded)
        if tracing:
            from toolwire.client.tracing import traced

            # In place of the method, so that a client without spans does not look for them.
            self._ask = traced(self._ask, tracing)  # type: ignore[method-assign]

    @classmethod
    @taking_options_of(__init__)
    def remote(cls, url: str, **options: Any) -> Self:
        """Return a client of the server at a URL, with the options of `Client`.

        `Client("name.py")` starts that file. Use this one for a text that you did not write yourself: it raises
        `ValueError` for everything but a URL.
        """
        return cls(check_url(url), **options)

    # --- the connection ---

    async def connect(self) -> Self:
        """Connect, unless connected. Afterwards the server's revision and capabilities are known."""
        await self._connector.live()
        return self

    async def close(self) -> None:
        """Close the connection, and end the process if the client started it. Calls in flight are lost."""
        await self._connector.close()
        for member in self._members.values():
            await member.close()
        self._answers.close()
        if self._safety is not None:
            await self._safety.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "Client is asynchronous: write `async with Client(...)`, or use Client of toolwire.client.sync in code "
            "without async"
        )

    def __exit__(self, *_: object) -> None:
        """Exist for `with`, which looks for this method before it calls `__enter__`."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        return self._connector.connected

    async def _take_up(self, connection: ClientConnection) -> None:
        """Set up a new connection as the one before it: log level and subscriptions (1.10.11)."""
        if connection.modern:
            # A client with a log callback wants logs. On 2026-07-28 a server sends none unless the request asks for
            # them.
            default: t.LoggingLevel | None = "info" if self._on_log is not None and _logs(connection) else None
            connection.set_log_level(self._level or default)
            return
        try:
            if self._level is not None and "logging/setLevel" in connection.callable:
                level = t.SetLevelRequestParams(level=self._level)
                await connection.send("logging/setLevel", level, timeout=self._timeout)
            for uri in self._subscribed:
                await subscribe(connection, uri, self._timeout)
        except (ProtocolError, NotSupported) as error:
            log.warning("the new connection could not be set up like the one before: %s", error)

    # --- what the server said about itself ---

    @property
    def server(self) -> t.Implementation | None:
        """The name and version of the server, if it sent them. Display them, but decide nothing by them."""
        server = self._connector.current().agreement.server
        return None if server is UNSET else server

    @property
    def capabilities(self) -> dict[str, Any]:
        declared = self._connector.current().agreement.capabilities
        return self._with_extensions(declared) if self._members else declared

    def _with_extensions(self, declared: dict[str, Any]) -> dict[str, Any]:
        """Return the capabilities of several servers with their extensions; the settings are those of the first."""
        found: dict[str, Any] = {}
        for member in self._members.values():
            for identifier, settings in member._declared_extensions().items():
                found.setdefault(identifier, settings)
        return {**declared, "extensions": {**found, **declared.get("extensions", {})}} if found else declared

    @property
    def missing(self) -> Mapping[str, str]:
        """The servers of a configuration that are away, by name, each with the reason. Their tools are not listed."""
        return self._target.missing

    @property
    def revision(self) -> str:
        return self._connector.current().revision

    @property
    def instructions(self) -> str | None:
        instructions = self._connector.current().agreement.instructions
        return None if instructions is UNSET else instructions

    # --- tools ---

    async def list_tools(self, *, audience: Audience | None = "model", timeout: float | None = None) -> list[t.Tool]:
        """List the tools for a model. Their output schemas are what results are checked against.

        Tools that are for views alone are left out (SEP-1865). `audience="app"` lists those that views may call, and
        None all tools. A client that never lists its tools does so once by itself, at the first structured result.
        """
        if audience is not None and audience not in AUDIENCES:
            raise ValueError(f"audience= is 'model', 'app' or None, not {audience!r}")
        self._outdated = None  # This listing serves for every change that was announced before it.
        listed = await self._all_tools(timeout)
        connection = self._connector.current()
        if connection.repeats_arguments:
            listed = with_valid_headers(listed)
        tools = one_of_each(listed)
        connection.tools.learn(tools, with_headers=connection.repeats_arguments)
        if self._safety is not None:
            self._safety.listed(listed)
        return tools if audience is None else [tool for tool in tools if audience in audiences(tool.meta)]

    async def list_tools_page(self, cursor: str | None = None, *, timeout: float | None = None) -> t.ListToolsResult:
        """Return one page of the list as the server has it, with the tools of all audiences."""
        return self._clean_page(await self._tools_page(cursor, timeout))

    def _clean_page(self, page: R) -> R:
        if isinstance(page, t.ListToolsResult):
            page.tools = one_of_each(page.tools)
            if self._connector.current().repeats_arguments:
                page.tools = with_valid_headers(page.tools)
        return page

    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: None = None, **options: Unpack[CallOptions]
    ) -> Coroutine[Any, Any, ToolResult]: ...
    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: type[T], **options: Unpack[CallOptions]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: Any, **options: Unpack[CallOptions]
    ) -> Coroutine[Any, Any, Any]: ...
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool. The result is a `ToolResult`, also when the tool reports an error (`is_error`).

        With `returns=T` the result is a value of that type, and a tool's error is raised as `ToolFailed`. Meanwhile the
        client's callbacks answer the questions of the server. When the connection is lost, the call may or may not have
        run: `OutcomeUnknown`.
        """
        if unknown:
            raise _unknown_options(name, unknown)
        if self._safety is None:
            return self._call_tool(name, arguments, returns, timeout, on_progress, meta, headers)

        def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> Coroutine[Any, Any, Any]:
            return self._call_tool(name, arguments, returns, timeout, on_progress, meta, headers, clock)

        return self._checked_call(name, arguments, timeout, make)

    async def _checked_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
        make: Make,
    ) -> Any:
        """Make a call of a tool within one time limit, if all checks pass."""
        clock = self._clock(timeout)
        if self._safety is None:
            return await make(arguments, clock)
        return await self._safety.call(name, arguments, clock, partial(self._checked_definition, clock=clock), make)

    async def _call_tool(
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
        if clock is None:
            clock = self._clock(timeout)
        params = t.CallToolRequestParams(
            name=name, arguments=UNSET if arguments is None else Raw(encode_arguments(arguments))
        )
        if on_progress is not None or self._on_progress is not None:
            on_progress = Rising(cast("OnProgress", on_progress or self._on_progress))
        connection = self._connector.connection
        if connection is not None and name in connection.tools.only_tasks:
            return await self._drive(params, timeout, clock, on_progress, meta, headers, returns)
        decode = decode_called if returns is None else decode_called_typed
        repeats = connection is not None and connection.repeats_arguments
        sent = self._with_arguments(params, headers) if repeats else headers
        try:
            result = await self._ask(
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
            result = await self._ask(
                "tools/call", params, decode, clock=clock, on_progress=on_progress, meta=meta, headers=sent
            )
        if type(result) is TaskAnswer:
            if timeout is None:
                clock.extend(self._task_seconds)
            return await drive(self.task(result.task_id, name), clock, on_progress, returns)
        connection = self._connector.connection
        is_learned = connection is not None and not connection.tools.listed
        if is_learned and result.structured_content is not UNSET:
            await self._learn_tools(clock)
        try:
            return self._made(name, result, returns)
        except InvalidResponse as error:
            if error.result is None or not await self._has_new_schema(name, is_learned, clock):
                raise
        return self._made(name, result, returns)

    # Python's warning about a missing await names the coroutine: it is to be the method that the user wrote.
    _call_tool.__qualname__ = _checked_call.__qualname__ = "Client.call_tool"

    async def _called(
        self,
        params: t.CallToolRequestParams,
        clock: CallClock,
        headers: Mapping[str, str] | None,
        send: SendCall,
    ) -> RawResult:
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
        find = partial(self._checked_definition, clock=clock)
        called: RawResult = await self._safety.call(params.name, before, clock, find, make)
        return called

    def _has_outdated_headers(self, error: ProtocolError) -> bool:
        """XMH-7: say whether a call failed because its headers were made from an outdated definition."""
        return error.code == HEADER_MISMATCH and self._connector.current().repeats_arguments

    async def _list_anew(self, name: str, clock: CallClock) -> None:
        """List the tools before a call is tried once more. Raise `ToolChanged` if the tool is not what was pinned."""
        await self.list_tools(timeout=clock.rest("tools/list"))
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
            if self._cache is not None:
                self._cache.suspect("tools/list")
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

    async def _learn_tools(self, clock: CallClock) -> None:
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
            await self.list_tools(timeout=timeout)
        except TransportError:
            log.debug("the connection ended before the tools were listed")
        except ToolwireError as error:
            log.warning("the tools could not be listed, so that results are not checked: %s", error)
        else:
            return True
        return False

    def _made(self, name: str | None, result: t.CallToolResult, returns: Any) -> Any:
        """Turn the result of a tool into what the caller asked for."""
        connection = self._connector.connection
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
        connection = await self._usable(clock)
        handle = await start_task(self, connection, params, None, on_progress, meta, clock=clock, headers=headers)
        if timeout is None:
            clock.extend(self._task_seconds)
        return await drive(handle, clock, on_progress, returns)

    async def _advised(self, error: ProtocolError, name: str, clock: CallClock) -> ProtocolError:
        """Add to an error the name that was probably meant, or the missing client option."""
        if error.code == INVALID_PARAMS and error.message.startswith("Unknown tool"):
            from toolwire.schemas.wording import nearest

            # The programmer may have listed nothing: the list has the names to compare with.
            await self._learn_tools(clock)
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

    async def call_tool_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> TaskHandle:
        """Call a tool and return a handle of its task, as soon as the server has created it.

        `ttl` is how many seconds the server should keep the task. 2026-07-28 leaves that to the server, and also
        whether a call becomes a task: if the server answered at once, the handle is done.
        """

        async def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> Any:
            params = t.CallToolRequestParams(
                name=name, arguments=UNSET if arguments is None else Raw(encode_arguments(arguments))
            )
            connection = await self._usable(clock)
            sent = self._with_arguments(params, headers)
            return await start_task(self, connection, params, ttl, on_progress, meta, clock=clock, headers=sent)

        return cast("TaskHandle", await self._checked_call(name, arguments, timeout, make))

    def task(self, id: str, tool: str | None = None) -> TaskHandle:
        """Return a handle of a task that was made earlier, by this client or by another of the same principal."""
        return TaskHandle(self, id, tool)

    async def _usable(self, clock: CallClock | None = None) -> ClientConnection:
        return await self._connector.usable(clock)

    def _with_arguments(
        self, params: t.CallToolRequestParams, headers: Mapping[str, str] | None
    ) -> Mapping[str, str] | None:
        """Return the headers of a call: those of the caller, and those that repeat arguments."""
        connection = self._connector.connection
        if connection is None or not connection.repeats_arguments or not connection.tools.listed:
            return headers
        return {**connection.tools.headers(params.name, params.arguments), **(headers or {})} or None

    async def _definition(self, name: str, clock: CallClock) -> t.Tool | None:
        """Return the definition of a tool; list the tools first if the list is missing or out of date."""
        if not (await self._connector.usable(clock)).tools.current:
            await self.list_tools(timeout=clock.rest("tools/list"))
        return self._connector.current().tools.definition(name)

    async def _definitions(self, clock: CallClock) -> list[t.Tool]:
        """Return the definitions of all tools; list them first if the list is missing or out of date."""
        if not (await self._connector.usable(clock)).tools.current:
            await self.list_tools(timeout=clock.rest("tools/list"))
        return self._connector.current().tools.definitions

    async def _checked_definition(self, name: str, clock: CallClock) -> t.Tool | None:
        """Return the definition that a call is checked by; with pins, list again before a name counts as not listed.

        The server may have added the tool without saying so, and `accept()` takes what was listed last.
        """
        tools = (await self._connector.usable(clock)).tools
        if self._pins is not None and tools.current and tools.definition(name) is None:
            await self.list_tools(timeout=clock.rest("tools/list"))
        return await self._definition(name, clock)

    def stub(self, protocol: Callable[..., P]) -> P:
        """Return an object with the methods of `protocol` (a class), each of which calls the tool of its name."""

        async def call(name: str, arguments: Mapping[str, Any], returns: Any) -> Any:
            return await self.call_tool(name, arguments, returns=returns)

        return make_stub(protocol, call)

    def _member_changed(self, label: str, member: Client, notification: str | None, uri: str | None) -> None:
        """Take note of a change that one of several servers announced."""
        cast("SeveralTarget", self._target).gateway.told(label, notification)
        member._changed(notification, uri)
        self._changed(notification, uri)

    def _changed(self, notification: str | None, uri: str | None) -> None:
        if self._skills is not None and (notification is None or notification.startswith("notifications/resources/")):
            self._skills.forget()
        if self._cache is not None:
            if notification is None:
                self._cache.clear()
            else:
                self._cache.changed(notification, uri)
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

    def _subscription(self, wanted: t.SubscriptionFilter) -> Subscription:
        if not self._members or not wanted.extra:
            return super()._subscription(wanted)
        # Imported here because few clients have several servers.
        from toolwire.client.several import joint_subscription

        return joint_subscription(self._connector, self._members, wanted, self._timeout)

    # --- skills ---

    @property
    def skills(self) -> Skills:
        """The skills of the server, or of each server of a configuration (SEP-2640)."""
        if self._skills is None:
            # Imported here because most clients use no skills.
            from toolwire.client.skills import Skills

            members = self._members or {self._target.label: self}
            self._skills = Skills({name: member._own_skills(name) for name, member in members.items()})
        return self._skills

    def _own_skills(self, label: str) -> OriginSkills:
        from toolwire.client.skills import OriginSkills

        return OriginSkills(self, label, self._target.address, self._approve_skill, self._pins)

    # --- views ---

    @property
    def apps(self) -> Apps:
        """The views of the server, or of each server of a configuration (SEP-1865)."""
        if self._apps is None:
            # Imported here because most clients show no views.
            from toolwire.client.apps import Apps

            members = self._members or {self._target.label: self}
            self._apps = Apps(
                self,
                members,
                self._target,
                self._clock,
                self._definition,
                self._definitions,
                self._call_for_view,
                self._read_for_view,
            )
        return self._apps

    async def _call_for_view(
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
            result: ToolResult = await self._call_tool(name, arguments, None, timeout, None, meta, None, clock)
            return result

        if self._safety is None:
            await check()
            return await make(arguments, clock)
        find = partial(self._checked_definition, clock=clock)
        called: ToolResult = await self._safety.call(name, arguments, clock, find, make, via="app", check=check)
        return called

    async def _read_for_view(
        self, server: str, uri: str, make: Callable[[], Awaitable[list[t.ResourceContents]]]
    ) -> list[t.ResourceContents]:
        """Make a read of a view, and record it."""
        return await make() if self._safety is None else await self._safety.read(server, uri, make)

    # --- logging and roots ---

    async def set_level(self, level: t.LoggingLevel, *, timeout: float | None = None) -> None:
        """Set the lowest level of the log messages that the server sends."""
        t.severity(level)
        clock = self._clock(timeout)
        connection = await self._connector.usable(clock)
        if connection.modern:
            if not _logs(connection):
                raise NotSupported("The server did not declare the capability 'logging', so it sends no log messages")
            connection.set_log_level(level)
        else:
            params = t.SetLevelRequestParams(level=level)
            await self._ask("logging/setLevel", params, _read_empty, clock=clock)
        self._level = level

    async def set_roots(self, roots: Roots) -> None:
        """Replace the roots. A server that knows about changes is told."""
        if self._answers.roots is None:
            raise NotSupported("The client was made without roots=, so it did not declare them")
        self._answers.roots = as_roots(roots)
        for member in self._members.values():
            await member.set_roots(roots)
        connection = self._connector.connection
        if connection is not None and not connection.modern:
            # 1.14.1: the client declared listChanged, so it announces changes.
            await connection.notify("notifications/roots/list_changed", {}, {})

    def __repr__(self) -> str:
        state = f"speaks {self.revision}" if self.connected else "not connected"
        return f"<Client of {self._target.label}, {state}>"


def _runs_tasks(connection: ClientConnection) -> bool:
    core = supports(connection.revision, "core_tasks")
    return core and t.has_capability(connection.agreement.capabilities, "tasks.requests.tools.call")


def _logs(connection: ClientConnection) -> bool:
    return t.has_capability(connection.agreement.capabilities, "logging")


def _unknown_options(tool: str, unknown: Mapping[str, Any]) -> TypeError:
    names = ", ".join(f'"{name}": ...' for name in unknown)
    return TypeError(
        f"call_tool() has no option {next(iter(unknown))!r}. The arguments of a tool are one dict: "
        f'call_tool("{tool}", {{{names}}})'
    )


# The options of a client that declare its capabilities.
_OPTIONS: Final = {"elicitation": "elicit", "sampling": "sample", "roots": "roots"}
