"""`Client`: everything a program does with an MCP server, on every revision."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Never, NoReturn, Self, TypeVar, Unpack, cast, overload

from msgspec import UNSET, Raw, UnsetType

from toolwire._version import __version__
from toolwire.client.approval import Approve
from toolwire.client.budget import Budget
from toolwire.client.cache import Cache, CacheView
from toolwire.client.connection import CEILING_SECONDS, DEFAULT_SECONDS, ClientConnection, OnLog, OnProgress
from toolwire.client.errors import ResourceNotFound, is_resource_not_found
from toolwire.client.extensions import (
    CALL_KINDS,
    KINDS,
    OpenParams,
    RequestOptions,
    check_method,
    keep_result,
    read_call_params,
    read_value,
    require_extension,
    split_params,
)
from toolwire.client.handlers import (
    Answers,
    Elicitation,
    ElicitCallback,
    Roots,
    SampleCallback,
    Sampling,
    as_roots,
    check_extension,
)
from toolwire.client.listen import Subscription, make_filter, subscribe, unsubscribe
from toolwire.client.listing import Lists
from toolwire.client.middleware import ClientMiddleware, connection_type
from toolwire.client.notifications import NotificationHandlers, OnNotification
from toolwire.client.pins import Pins
from toolwire.client.reconnect import Connector, Opener, name_card
from toolwire.client.requests import Arguments, CallOptions, RequestSender, encode_arguments, reader
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
from toolwire.client.tasks import TaskHandle, TaskState, state_of
from toolwire.client.tool_calls import ToolCalls
from toolwire.client.tools import RawResult
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import AUDIENCES, Audience
from toolwire.protocol.errors import NotSupported, ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN, REVISIONS, supports
from toolwire.protocol.shaping import shape
from toolwire.util.numbers import PING_INTERVAL, TIMEOUT, check_number
from toolwire.wire.deadlines import CallClock
from toolwire.wire.tapped_channel import Tap

if TYPE_CHECKING:
    from toolwire.audit import AuditLog
    from toolwire.auth.contract import Auth
    from toolwire.client.apps import Apps
    from toolwire.client.safety import Safety
    from toolwire.client.several import SeveralTarget
    from toolwire.client.skills import OriginSkills, Skills

log: logging.Logger = logging.getLogger("toolwire.client")

Reference = t.PromptReference | t.ResourceTemplateReference

T = TypeVar("T")
P = TypeVar("P")
F = TypeVar("F", bound=OnNotification)

PROBE_SECONDS: Final = 5.0

_read_discover = reader(t.DiscoverResult)
_read_empty = reader(t.EmptyResult)
_read_contents = reader(t.ReadResourceResult)
_read_prompt = reader(t.GetPromptResult)
_read_completion = reader(t.CompleteResult)


class Client:
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
    * `ping_interval`: seconds between pings to each server, at least 1. They keep an idle connection open, and the
      connection to a server that leaves a ping unanswered for that long is closed: calls in flight end with an error,
      and the next operation connects again. Off by default: a server that blocks its loop answers no ping.
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
        ping_interval: float | None = None,
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
        if ping_interval is not None:
            check_number("Client", "ping_interval", ping_interval, PING_INTERVAL)
        icons = tuple(icons)
        options = TargetOptions(env, cwd, headers, auth, tls, proxy, inherit_env or None)
        self._members: dict[str, Client] = {}
        self._group: _Group | None = None
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
                    ping_interval=ping_interval,
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
                self._target = SeveralTarget({names[each]: one for each, one in targets.items()}, seconds)
                self._members = {names[each]: member(one) for each, one in targets.items()}

                def read_target(label: str, one: TargetLike) -> Target:
                    found = config.read_config({"mcpServers": {label: one}}, inherit_env=inherit_env)
                    if on_stderr is not None:
                        watch_stderr(found, lambda line: on_stderr(f"{label}: {line}"))
                    return found[label]

                is_guarded = any(each is not None for each in (approve, budget, pins, audit))
                # Each server has a connection with the middleware. The one to the gateway is no wire.
                make_connection = member_connection(self._target, middleware, is_guarded=is_guarded)
                self._group = _Group(self._target, read_target, member, make_connection)
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
        self._sender = self._make_sender(tracing, seconds, on_progress)
        self._lists = Lists(self._sender)
        # Between the parts of a client of several servers, which is no wire, nothing can be lost.
        self._ping_interval = None if self._members else ping_interval
        self._level: t.LoggingLevel | None = None
        self._subscribed: dict[str, None] = {}
        self._approve_skill = approve_skill
        self._pins = pins
        self._skills: Skills | None = None
        self._origins: dict[str, OriginSkills] = {}
        self._apps: Apps | None = None
        self._safety: Safety | None = None
        if any(each is not None for each in (approve, budget, pins, audit)):
            # Imported here because most clients have none of these options.
            from toolwire.client.safety import Safety

            self._safety = Safety(self._target, approve, budget, pins, audit)
        self._tools = ToolCalls(
            self._sender,
            self._lists,
            self._safety,
            # A limit that the program has set holds for tasks, too. The default is too short for most of them.
            task_seconds=CEILING_SECONDS if timeout is UNSET else 0.0,
            has_pins=pins is not None,
        )
        if self._group is not None:
            for label, each in self._members.items():
                self._join(self._group, label, each)
            self._group.target.use({label: each._connector for label, each in self._members.items()})
        elif middleware:
            self._opener.make_connection = connection_type(middleware, is_guarded=self._safety is not None)

    def _join(self, group: _Group, label: str, member: Client) -> None:
        """Have the client of one of several servers use the callbacks and the middleware of this one."""
        opener = member._opener
        opener.handlers = self._handlers
        # One for all, because they ask the same person.
        member._answers = opener.answers = self._answers
        opener.make_connection = group.make_connection
        opener.changed = partial(self._member_changed, label, member)

    @classmethod
    @taking_options_of(__init__)
    def remote(cls, url: str, **options: Any) -> Self:
        """Return a client of the server at a URL, with the options of `Client`.

        `Client("name.py")` starts that file. Use this one for a text that you did not write yourself: it raises
        `ValueError` for everything but a URL.
        """
        return cls(check_url(url), **options)

    def _make_sender(self, tracing: Any, timeout: float | None, on_progress: OnProgress | None) -> RequestSender:
        if not tracing:
            return RequestSender(self._target, self._connector, self._cache, timeout, on_progress)
        # Imported here because most clients make no spans.
        from toolwire.client.tracing import TracingSender

        return TracingSender(tracing, self._target, self._connector, self._cache, timeout, on_progress)

    # --- several servers ---

    async def add_server(self, name: str, target: TargetLike) -> None:
        """Add a server to a client of several, and wait until its components are known, or it is in `missing`.

        `target` is what a mapping of servers may have: anything that a client connects to, or an entry of a
        configuration. Raise `ValueError` for a name that is taken, or that begins like the names of another server.
        """
        # Imported here because few clients have several servers.
        from toolwire.client.config import prefixes

        group = self._require_group()
        label = prefixes([*self._members, name])[name]
        shorter = next((each for each in self._members if label.startswith(f"{each}_")), None)
        if shorter is not None:
            raise ValueError(f"Tools of {shorter!r} may have names that begin with '{label}_': use another name")
        place = group.read_target(label, target)
        self._members[label] = member = group.make_member(place)
        self._join(group, label, member)
        group.target.add(label, place, member._connector)
        if self._skills is not None:
            self._origins[label] = member._own_skills(label)
        if self.connected:
            connection = self._connector.current()
            joining = asyncio.ensure_future(group.target.gateway.joined(label))
            try:
                await asyncio.wait({joining, connection.reader}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                joining.cancel()
            if connection.ended:
                raise Unreachable(f"The client was closed while it added {label!r}")
            await connection.learn_capabilities(self._sender.timeout)
        self._changed(None, None)

    async def remove_server(self, name: str) -> None:
        """Take a server out of a client of several. Its calls in flight end with an error; they may have run."""
        from toolwire.client.config import prefixes

        group, label = self._require_group(), prefixes([name])[name]
        if label not in self._members:
            raise ValueError(f"There is no server {name!r:.100}: the servers are {', '.join(self._members)}")
        if len(self._members) == 1:
            raise ValueError(f"{label!r} is the last server of the client: close the client instead")
        member = self._members.pop(label)
        self._origins.pop(label, None)
        await group.target.remove(label, member._connector)
        if self.connected:
            await self._connector.current().learn_capabilities(self._sender.timeout)
        self._changed(None, None)

    def _require_group(self) -> _Group:
        if self._group is None:
            text = f"{self._target.label} is one server: give Client a mapping of two or more to add and remove servers"
            raise NotSupported(text)
        return self._group

    # --- the connection ---

    async def connect(self) -> Self:
        """Connect, unless connected. Afterwards the server's revision and capabilities are known."""
        await self._connector.live()
        return self

    async def close(self) -> None:
        """Close the connection, and end the process if the client started it. Calls in flight are lost."""
        await self._connector.close()
        for member in tuple(self._members.values()):
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

    async def ping(self, *, timeout: float | None = None) -> None:
        """Ask the server for a sign of life, by `server/discover` where `ping` no longer exists."""
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        if connection.modern:
            await self._sender.ask("server/discover", t.RequestParams(), _read_discover, clock=clock)
        else:
            await self._sender.ask("ping", t.RequestParams(), _read_empty, clock=clock)

    async def _take_up(self, connection: ClientConnection) -> None:
        """Set up a new connection as the one before it: pings, log level and subscriptions (1.10.11)."""
        if self._ping_interval is not None:
            # Imported here because few clients ping.
            from toolwire.client.keepalive import keep_alive

            connection.callbacks.start(keep_alive(connection, self._ping_interval))
        if connection.modern:
            # A client with a log callback wants logs. On 2026-07-28 a server sends none unless the request asks for
            # them.
            default: t.LoggingLevel | None = "info" if self._on_log is not None and _logs(connection) else None
            connection.set_log_level(self._level or default)
            return
        try:
            if self._level is not None and "logging/setLevel" in connection.callable:
                level = t.SetLevelRequestParams(level=self._level)
                await connection.send("logging/setLevel", level, timeout=self._sender.timeout)
            for uri in self._subscribed:
                await subscribe(connection, uri, self._sender.timeout)
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
        return await self._tools.list_tools(audience, timeout)

    async def list_tools_page(self, cursor: str | None = None, *, timeout: float | None = None) -> t.ListToolsResult:
        """Return one page of the list as the server has it, with the tools of all audiences."""
        page: t.ListToolsResult = await self._lists.read_page("tools/list", cursor, timeout)
        return self._lists.remove_unusable(page)

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
            return self._tools.call(name, arguments, returns, timeout, on_progress, meta, headers)

        def make(arguments: Mapping[str, Any] | None, clock: CallClock) -> Coroutine[Any, Any, Any]:
            return self._tools.call(name, arguments, returns, timeout, on_progress, meta, headers, clock)

        return self._tools.call_checked(name, arguments, timeout, make)

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

        return await self._tools.call_as_task(name, arguments, ttl, timeout, on_progress, meta, headers)

    async def list_tasks(self, *, timeout: float | None = None) -> list[TaskState]:
        """List the tasks that this caller has at the server, which only 2025-11-25 can.

        `client.task(state.id)` gives a handle. On any other revision, and for a client of several servers, raise
        `NotSupported`: keep the ids of the handles there.
        """
        connection = await self._connector.usable()
        if not supports(connection.revision, "core_tasks"):
            what = "a client of several servers" if self._members else f"{connection.revision}, which the server speaks"
            raise NotSupported(f"There is no list of tasks for {what}: keep the ids of the tasks")
        return [state_of(task) for task in await self._lists.read("tasks/list", timeout)]

    def task(self, id: str, tool: str | None = None) -> TaskHandle:
        """Return a handle of a task that was made earlier, by this client or by another of the same principal."""
        return TaskHandle(self._tools, id, tool)

    def stub(self, protocol: Callable[..., P]) -> P:
        """Return an object with the methods of `protocol` (a class), each of which calls the tool of its name."""

        async def call(name: str, arguments: Mapping[str, Any], returns: Any) -> Any:
            return await self.call_tool(name, arguments, returns=returns)

        return make_stub(protocol, call)

    # --- resources ---

    async def list_resources(self, *, timeout: float | None = None) -> list[t.Resource]:
        return await self._lists.read("resources/list", timeout)

    async def list_resources_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourcesResult:
        page: t.ListResourcesResult = await self._lists.read_page("resources/list", cursor, timeout)
        return page

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[t.ResourceTemplate]:
        return await self._lists.read("resources/templates/list", timeout)

    async def list_resource_templates_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourceTemplatesResult:
        page: t.ListResourceTemplatesResult = await self._lists.read_page("resources/templates/list", cursor, timeout)
        return page

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[t.ResourceContents]:
        """Return the contents of a resource: usually one, several for something like a directory.

        Raise `ResourceNotFound` when the server has no resource at this URI.
        """
        params = t.ReadResourceRequestParams(uri=uri)
        try:
            result = await self._sender.ask(
                "resources/read",
                params,
                _read_contents,
                timeout=timeout,
                on_progress=on_progress,
                meta=meta,
                headers=headers,
            )
        except ProtocolError as error:
            if not is_resource_not_found(error):
                raise
            raise ResourceNotFound(error.message, error.data, code=error.code) from None
        return result.contents

    async def subscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """Subscribe to updates of a resource, before 2026-07-28. They arrive at `listen(resources=[...])`."""
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        if uri not in self._subscribed:
            await subscribe(connection, uri, clock.limit("resources/subscribe"))
            self._subscribed[uri] = None

    async def unsubscribe(self, uri: str, *, timeout: float | None = None) -> None:
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        if uri not in self._subscribed and uri in connection.subscribed:
            return  # It is one of `listen()`, which ends it.
        self._subscribed.pop(uri, None)
        await unsubscribe(connection, uri, clock.limit("resources/unsubscribe"))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Sequence[str] = (),
        extensions: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Listen for changes, on every revision: `async for change in client.listen(tools=True): ...`.

        `extensions` are members that extensions add to the filter: `{"notesChanged": True}`. Before 2026-07-28 nobody
        can ask for them, and all notifications of extensions that the server sends count. Enter it with `async with` to
        be sure that it is open before you go on.
        """
        wanted = make_filter(tools, prompts, resources_list, resources, extensions)
        if not self._members or not wanted.extra:
            return Subscription(self._connector, wanted, self._sender.timeout)
        # Imported here because few clients have several servers.
        from toolwire.client.several import joint_subscription

        return joint_subscription(self._connector, self._members, wanted, self._sender.timeout)

    # --- prompts and completion ---

    async def list_prompts(self, *, timeout: float | None = None) -> list[t.Prompt]:
        return await self._lists.read("prompts/list", timeout)

    async def list_prompts_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListPromptsResult:
        page: t.ListPromptsResult = await self._lists.read_page("prompts/list", cursor, timeout)
        return page

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> t.GetPromptResult:
        """Return the messages of a prompt. Arguments are sent as strings; other values are written as JSON."""
        texts = UNSET if arguments is None else {key: _as_text(value) for key, value in arguments.items()}
        params = t.GetPromptRequestParams(
            name=name, arguments=UNSET if texts is UNSET else Raw(encode_arguments(texts))
        )
        return await self._sender.ask(
            "prompts/get", params, _read_prompt, timeout=timeout, on_progress=on_progress, meta=meta, headers=headers
        )

    async def complete(
        self,
        ref: Reference,
        argument: tuple[str, str],
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> t.Completion:
        """Return suggestions for an argument (name and what was typed so far) of a prompt or resource template.

        `context` has the arguments that were chosen before; servers before 2025-06-18 do not get it.
        """
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        params = t.CompleteRequestParams(
            ref=ref,
            argument=t.CompletionArgument(*argument),
            context=UNSET if context is None else t.CompletionContext(dict(context)),
        )
        result = await self._sender.ask(
            "completion/complete", shape(params, connection.revision), _read_completion, clock=clock
        )
        return result.completion

    # --- requests and notifications of any method ---

    @overload
    def request(
        self, method: str, params: Any = None, *, returns: None = None, **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...
    @overload
    def request(
        self, method: str, params: Any = None, *, returns: type[T], **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def request(
        self, method: str, params: Any = None, *, returns: Any, **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, Any]: ...
    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        returns: Any = None,
        extension: str | None = None,
        server: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        result_types: Collection[str] = (),
    ) -> Any:
        """Send a request of any method, such as one of an extension, and return its result.

        `params` is a mapping, a dataclass or a model. The result is a value of the type `returns`; without it a dict,
        with every member as it came. `extension` names the extension that the method belongs to: a server that does not
        declare it raises `NotSupported` before anything is sent. When the connection breaks, a request that may have
        run is sent again only if it is `repeatable`. A method of the protocol is sent whether or not the server
        declared its capability: some servers answer all the same. A client of several servers sends a method to the one
        that declares its extension, or to `server`.
        """
        check_method(method, "request")
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        member = self._member_for(method, extension, server)
        if member is not None:
            return await member.request(
                method,
                params,
                returns=returns,
                timeout=clock.rest(method),
                on_progress=on_progress,
                meta=meta,
                headers=headers,
                repeatable=repeatable,
                result_types=result_types,
            )
        require_extension(connection, method, extension)
        members, own = split_params(params)
        kinds = CALL_KINDS | {*result_types} if method == "tools/call" else frozenset(result_types)
        decode = keep_result(kinds)
        # Never None, so that the answer of a cache does not stand in for what was to be sent.
        sent_meta = {**own, **(meta or {})}

        def send(params: t.RequestParams, clock: CallClock, headers: Mapping[str, str] | None) -> Awaitable[RawResult]:
            return self._sender.ask(
                method,
                params,
                decode,
                clock=clock,
                on_progress=on_progress,
                meta=sent_meta,
                headers=headers,
                repeatable=repeatable,
                unasked=True,
            )

        if method == "tools/call":
            result = await self._tools.call_as_is(read_call_params(members), clock, headers, send)
        else:
            open_params = OpenParams()
            open_params.extra.update(members)
            result = await send(open_params, clock, headers)
        return read_value(method, result.raw, returns)

    def _member_for(self, method: str, extension: str | None, server: str | None) -> Client | None:
        """Return the client of the server that a method of an extension goes to.

        Return None where there is one server, and for a method of the protocol, whose params decide. Raise
        `NotSupported` where it is not clear.
        """
        if server is not None and method in KINDS:
            raise ValueError(f"server= is for methods of extensions, and {method} is one of the protocol")
        if not self._members:
            if server is not None:
                raise ValueError(f"server= is for a client of several servers, and {self._target.label} is one")
            return None
        if method in KINDS:
            return None
        names = ", ".join(self._members)
        if server is not None:
            if server not in self._members:
                raise ValueError(f"There is no server {server!r:.100}: the servers are {names}")
            return self._members[server]
        if extension is None:
            raise NotSupported(f"{method} could go to any of the servers {names}: say extension= or server=")
        check_extension(extension)
        having = [name for name, member in self._members.items() if extension in member._declared_extensions()]
        if not having:
            raise NotSupported(f"The servers {names} did not declare the extension {extension}, which {method} needs")
        if len(having) > 1:
            both = ", ".join(having)
            raise NotSupported(f"{both} have the extension {extension}: say with server= which one is meant")
        return self._members[having[0]]

    def _declared_extensions(self) -> dict[str, Any]:
        """Return the extensions that the server declared; none while it is away."""
        connection = self._connector.connection
        declared = None if connection is None else connection.agreement.capabilities.get("extensions")
        return declared if isinstance(declared, dict) else {}

    async def notify(
        self, method: str, params: Any = None, *, extension: str | None = None, server: str | None = None
    ) -> None:
        """Send a notification, such as one of an extension. The server does not answer it.

        `extension` and `server` say where it belongs, as in `request`.
        """
        check_method(method, "notification")
        connection = await self._connector.usable()
        member = self._member_for(method, extension, server)
        if member is not None:
            await member.notify(method, params)
            return
        require_extension(connection, method, extension)
        members, own = split_params(params)
        if not await connection.notify(method, members, own):
            raise await connection.lost(Unreachable("The connection is closed"))

    @overload
    def on_notification(self, method: str, handler: F, *, params: Any = None) -> F: ...
    @overload
    def on_notification(self, method: str, handler: None = None, *, params: Any = None) -> Callable[[F], F]: ...
    def on_notification(self, method: str, handler: Any = None, *, params: Any = None) -> Any:
        """Call a function with the params of every notification of this method, such as one of an extension.

        They are a dict; with `params=T` a value of that type. The handler may be `async`, and is then called again once
        it is done: if a thousand wait, or 16 MiB, the oldest are dropped. It may be added at any time, also before
        `connect()`. Without a handler it is a decorator: `@client.on_notification("notifications/notes/changed")`.
        """
        if handler is None:
            return partial(self.on_notification, method, params=params)
        self._handlers.add(method, handler, params)
        return handler

    # --- changes ---

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
        self._tools.note_change(notification)

    # --- skills ---

    @property
    def skills(self) -> Skills:
        """The skills of the server, or of each server of a configuration (SEP-2640)."""
        if self._skills is None:
            # Imported here because most clients use no skills.
            from toolwire.client.skills import Skills

            members = self._members or {self._target.label: self}
            self._origins.update({name: member._own_skills(name) for name, member in members.items()})
            self._skills = Skills(self._origins)
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
                self._sender.start_clock,
                self._tools.find_definition,
                self._tools.find_definitions,
                self._tools.call_for_view,
                self._read_for_view,
            )
        return self._apps

    async def _read_for_view(
        self, server: str, uri: str, make: Callable[[], Awaitable[list[t.ResourceContents]]]
    ) -> list[t.ResourceContents]:
        """Make a read of a view, and record it."""
        return await make() if self._safety is None else await self._safety.read(server, uri, make)

    # --- logging and roots ---

    async def set_level(self, level: t.LoggingLevel, *, timeout: float | None = None) -> None:
        """Set the lowest level of the log messages that the server sends."""
        t.severity(level)
        clock = self._sender.start_clock(timeout)
        connection = await self._connector.usable(clock)
        if connection.modern:
            if not _logs(connection):
                raise NotSupported("The server did not declare the capability 'logging', so it sends no log messages")
            connection.set_log_level(level)
        else:
            params = t.SetLevelRequestParams(level=level)
            await self._sender.ask("logging/setLevel", params, _read_empty, clock=clock)
        self._level = level

    async def set_roots(self, roots: Roots) -> None:
        """Replace the roots. A server that knows about changes is told."""
        if self._answers.roots is None:
            raise NotSupported("The client was made without roots=, so it did not declare them")
        self._answers.roots = as_roots(roots)
        for member in tuple(self._members.values()):
            await member.set_roots(roots)
        connection = self._connector.connection
        if connection is not None and not connection.modern:
            # 1.14.1: the client declared listChanged, so it announces changes.
            await connection.notify("notifications/roots/list_changed", {}, {})

    def __repr__(self) -> str:
        state = f"speaks {self.revision}" if self.connected else "not connected"
        return f"<Client of {self._target.label}, {state}>"


class _Group(NamedTuple):
    """The parts with which a client of several servers adds one."""

    target: SeveralTarget
    read_target: Callable[[str, TargetLike], Target]
    make_member: Callable[[Target], Client]
    make_connection: Callable[..., ClientConnection]


def _logs(connection: ClientConnection) -> bool:
    return t.has_capability(connection.agreement.capabilities, "logging")


def _unknown_options(tool: str, unknown: Mapping[str, Any]) -> TypeError:
    names = ", ".join(f'"{name}": ...' for name in unknown)
    return TypeError(
        f"call_tool() has no option {next(iter(unknown))!r}. The arguments of a tool are one dict: "
        f'call_tool("{tool}", {{{names}}})'
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode_arguments(value).decode()
