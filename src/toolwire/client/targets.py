"""Targets: a server in this process, a child process, a channel, a URL."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    runtime_checkable,
)

from msgspec import Struct

from toolwire.client.python_file import python_command
from toolwire.client.target import Link, Target, fingerprint
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.redaction import repr_without
from toolwire.server_texts import ServerTexts
from toolwire.wire.channel import Channel, RelayedChannel, memory_pair, relayed_pair
from toolwire.wire.session import ClientHandler, Session

if TYPE_CHECKING:
    from toolwire.wire.subprocess import ProcessChannel

log: logging.Logger = logging.getLogger("toolwire.client")

ClientT = TypeVar("ClientT")
Options = ParamSpec("Options")

# How long a server may take to close an in-process connection.
GRACE_SECONDS: Final = 2.0
_STDERR_SHOWN: Final = 500
_STDOUT_SHOWN: Final = 300


@runtime_checkable
class InProcessServer(Protocol):
    """A server object in this process: it serves one connection until that ends."""

    def serve(self, channel: Channel, /) -> Awaitable[None]: ...


TargetLike: TypeAlias = InProcessServer | Channel | str | os.PathLike[str] | Sequence[str] | Mapping[str, Any] | Target

SUPPORTED: Final = (
    "A client takes a URL, a Server object, the path of a server (.py, .py:OBJECT or .js), "
    "a command as a list of strings, a configuration with mcpServers (a dict or a .json file), a mapping of names to "
    "any of these, or a Channel"
)


# --- A server in this process ----------------------------------------------------------------------------------------


class _MemoryLink(Link):
    def __init__(self, channel: Channel, label: str, texts: ServerTexts, task: asyncio.Task[None]) -> None:
        super().__init__(channel, label, texts)
        self._task = task

    async def close(self) -> None:
        await self.channel.close()
        _, running = await asyncio.wait({self._task}, timeout=GRACE_SECONDS)
        if running:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=GRACE_SECONDS)

    async def last_words(self) -> str:
        await self.close()
        failure = None if not self._task.done() or self._task.cancelled() else self._task.exception()
        return f"{self.label} stopped serving" + ("" if failure is None else f": {failure}")


class ServerTarget(Target):
    is_relayed: bool = False
    """Whether requests are sent for other clients. The server judges each of them as one of its client."""

    def __init__(self, server: InProcessServer) -> None:
        self.server: InProcessServer = server
        self.label: str = f"the server {getattr(server, 'name', '')!r}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        loop = getattr(self.server, "loop", None)
        return loop if isinstance(loop, asyncio.AbstractEventLoop) else None

    async def open(self) -> Link:
        ours, theirs = relayed_pair() if self.is_relayed else memory_pair()
        serving = asyncio.get_running_loop().create_task(self._serve(theirs))
        link = _MemoryLink(ours, self.label, self.texts, serving)
        if isinstance(theirs, RelayedChannel):
            link.senders = theirs.senders
        return link

    async def _serve(self, channel: Channel) -> None:
        try:
            await self.server.serve(channel)
        finally:
            await channel.close()


# --- A server as a child process -------------------------------------------------------------------------------------


def advise_port(channel: ProcessChannel, label: str) -> str:
    """Return advice about a started server that listens on a port; "" for any other."""
    ports = channel.listening_ports()
    if not ports:
        return ""
    advice = f"it listens on port {ports[0]}, so give its address, such as http://127.0.0.1:{ports[0]}/mcp"
    return f"{advice}, or name the server object in the file, as {label}:server" if label.endswith(".py") else advice


class _ProcessLink(Link):
    _session: Session | None = None

    def session(self, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float) -> Session:
        self._session = super().session(lifecycle, handler, ceiling)
        return self._session

    def advise_silence(self) -> str:
        return advise_port(cast("ProcessChannel", self.channel), self.label)

    async def last_words(self) -> str:
        # A child has an exit status only after it was waited for.
        await self.channel.close()
        status: int | None = self.channel.returncode  # type: ignore[attr-defined]
        how = "went away"
        if status is not None:
            how = f"exited with code {status}" if status >= 0 else f"died of signal {-status}"
        tail: str = self.channel.stderr_tail  # type: ignore[attr-defined]
        said: str = self.channel.last_said  # type: ignore[attr-defined]
        if said and status == 1 and (at := self._line(tail)) is not None:
            said = f"{self.texts.excerpt(said, _STDERR_SHOWN - 100)} ({self.label}, line {at})"
        if not said and status == 0 and self.label.endswith(".py"):
            said = (
                "it neither starts nor defines a server at its top level. If a function of it makes the server, "
                f"name the function: {self.label}:make_server"
            )
        ignored = "" if self._session is None else self._session.ignored
        texts = self.texts
        if ignored:
            shown = ignored[:_STDOUT_SHOWN] if texts.is_quotable else "the log has it at debug"
            how += f" after it wrote to standard output what is not an MCP message ({shown})"
        if said and not texts.is_quotable:
            log.debug("%s: its last words were: %s", self.name, texts.hide(said))
            said = ""
        return f"{self.label} {how}" + (f": {texts.excerpt(said, _STDERR_SHOWN)}" if said else "")

    def _line(self, tail: str) -> str | None:
        """Return the line of the server's own file at which Python reports an error, if it does."""
        found = re.findall(rf'^ *File "(?:[^"]*[/\\])?{re.escape(self.label)}", line (\d+)', tail, re.MULTILINE)
        return found[-1] if found else None


class CommandTarget(Target):
    transport = "stdio"
    restartable = True

    def __init__(
        self,
        command: Sequence[str],
        label: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        file: Path | None = None,
        inherit_env: bool = False,
    ) -> None:
        self.command: list[str] = list(command)
        self.label = label
        self.on_stderr: Callable[[str], None] | None = None
        """Gets each line that the server writes to its standard error. By default, tracebacks are logged."""
        self.on_start: Callable[[ProcessChannel], None] | None = None
        """Gets the channel to each process that is started, before the first message."""
        self._env = env
        self._cwd = cwd
        self._file = file
        self._inherit_env = inherit_env
        self._secrets: Callable[[], Awaitable[Mapping[str, str]]] | None = None
        self._texts = ServerTexts()
        self._texts.note_settings(environment={**(os.environ if inherit_env else {}), **(env or {})})

    def with_secrets(self, secrets: Callable[[], Awaitable[Mapping[str, str]]]) -> CommandTarget:
        """Return the same command, whose process gets further variables, which are asked for when it is started."""
        made = copy(self)
        made._secrets = secrets
        return made

    def without_quotes(self) -> CommandTarget:
        """Return the same command, whose errors say nothing that the server said."""
        quiet = copy(self)
        quiet._texts = self.texts.without_quotes()
        return quiet

    @property
    def address(self) -> str:
        """The server's file; or the command with the full paths of its files, and the working directory if one was
        given.
        """
        if self._file is not None:
            return str(self._file.resolve())
        program, *words = [self._in_full(word) for word in self.command]
        return f"{program} {fingerprint(*words, os.fspath(self._cwd or ''))}"

    def _in_full(self, word: str) -> str:
        path = Path(self._cwd or ".", word)
        return str(path.resolve()) if os.path.isfile(path) else word  # noqa: PTH113 - it takes any text for a path

    async def open(self) -> Link:
        # Imported here because a client of a server in this process starts no other process.
        from toolwire.wire.subprocess import ProcessChannel
        from toolwire.wire.tracebacks import TracebackLog

        env = self._env
        if self._secrets is not None:
            secrets = await self._secrets()
            self.texts.note(secrets.values())
            env = {**(env or {}), **secrets}
        # An error id leads nowhere unless the program can see what the server has logged.
        on_stderr = TracebackLog(log, self.label).add if self.on_stderr is None else self.on_stderr
        texts = self.texts
        channel = await ProcessChannel.spawn(
            self.command,
            env=env,
            cwd=self._cwd,
            inherit_env=self._inherit_env,
            on_stderr=lambda line: on_stderr(texts.hide(line)),
        )
        if self.on_start is not None:
            self.on_start(channel)
        return _ProcessLink(channel, self.label, texts)


def watch_stderr(targets: Mapping[str, Target], on_stderr: Callable[[str], None]) -> None:
    """Call `on_stderr` with the lines of started servers.

    The lines of several servers begin with their names.
    """
    for name, target in targets.items():
        if isinstance(target, CommandTarget):
            target.on_stderr = on_stderr if len(targets) == 1 else partial(_pass_stderr, on_stderr, name)


def _pass_stderr(on_stderr: Callable[[str], None], name: str, line: str) -> None:
    on_stderr(f"{name}: {line}")


# --- A channel of the user's own -------------------------------------------------------------------------------------


class ChannelTarget(Target):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.label: str = f"the server behind {type(channel).__name__}"

    async def open(self) -> Link:
        await self._channel.connect()
        return Link(self._channel, self.label, self.texts)


class TargetOptions(Struct, frozen=True):
    """The options of a target. Each kind of target takes some of them."""

    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    headers: Mapping[str, str] | None = None
    auth: Any = None
    tls: ssl.SSLContext | None = None
    proxy: str | None = None
    inherit_env: bool | None = None

    def __repr__(self) -> str:
        return repr_without(self, "env", "headers", "auth", "proxy")

    def only(self, *names: str, kind: str) -> None:
        """Raise `ValueError` for an option that was given and has no meaning for this kind of target."""
        for name in self.__struct_fields__:
            if name not in names and getattr(self, name) is not None:
                raise ValueError(f"{name}= is not for {kind}")


def is_config(target: TargetLike) -> TypeGuard[Mapping[str, Any] | str | os.PathLike[str]]:
    """Say whether a target is a configuration of servers, or the file of one."""
    if isinstance(target, str | os.PathLike):
        path = os.fspath(target)
        return "://" not in path and path.lower().endswith(".json")
    return isinstance(target, Mapping)


def is_started(target: TargetLike) -> bool:
    """Say whether a target is a file or a command, which the client starts."""
    if isinstance(target, str):
        return "://" not in target
    return isinstance(target, os.PathLike | list | tuple)


_NO_OPTIONS: Final = TargetOptions()


def resolve(target: TargetLike, options: TargetOptions = _NO_OPTIONS) -> Target:
    """Return the target that the user means. Raise `ValueError` or `TypeError`, with what is supported, for anything
    else.
    """
    if isinstance(target, Channel):
        options.only(kind="a channel")
        return ChannelTarget(target)
    if isinstance(target, Target):
        options.only(kind="a target that is ready")
        return target
    if isinstance(target, str) and "://" in target:
        return _url(target, options)
    if isinstance(target, str | os.PathLike):
        options.only("env", "cwd", "inherit_env", kind="a server that the client starts")
        return _script(os.fspath(target), options)
    if isinstance(target, list | tuple) and target and all(isinstance(word, str) for word in target):
        options.only("env", "cwd", "inherit_env", kind="a server that the client starts")
        return CommandTarget(target, Path(target[0]).name, options.env, options.cwd, None, bool(options.inherit_env))
    if isinstance(target, InProcessServer) and not isinstance(target, type):
        options.only(kind="a server in this process")
        return ServerTarget(target)
    raise TypeError(f"{SUPPORTED}, not {target!r:.100}")


def taking_options_of(
    init: Callable[Concatenate[Any, Any, Options], None],
) -> Callable[[Callable[..., ClientT]], Callable[Concatenate[type[ClientT], str, Options], ClientT]]:
    """Type a class method that takes a URL with the options of a constructor."""
    return lambda method: method


def check_url(url: str) -> str:
    """Return the URL of a server. Raise `ValueError` for other texts, such as a file.

    A file would be started.
    """
    if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"{url!r:.200} is not the URL of a server: begin it with http:// or https://")
    return url


def _url(url: str, options: TargetOptions) -> Target:
    options.only("headers", "auth", "tls", "proxy", kind="a server that is reached by URL")
    # Imported here because most servers are not reached by URL.
    from toolwire.client.http_target import HttpTarget

    return HttpTarget(url, headers=options.headers, auth=options.auth, tls=options.tls, proxy=options.proxy)


def _script(path: str, options: TargetOptions) -> Target:
    # From the right, since a Windows path has a colon of its own.
    before, _, name = path.rpartition(":")
    script = before if before.endswith(".py") and name.isidentifier() else path
    kind = Path(script).suffix.lower()
    if kind not in (".py", ".js", ".mjs"):
        raise ValueError(f"{SUPPORTED}; {path[:200]!r} is neither .py nor .js")
    file = Path(options.cwd or ".", script)
    if not file.is_file():
        raise ValueError(f"There is no server file {script[:200]!r}")
    command = python_command(path) if kind == ".py" else ["node", path]
    server = file if script == path else Path(f"{file.resolve()}:{name}")
    return CommandTarget(command, file.name, options.env, options.cwd, server, bool(options.inherit_env))
