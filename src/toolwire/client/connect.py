"""From what the user names to an agreed connection: which target it is, how it is opened, which revision it speaks.

A target is anything with `open()`. A transport that is reached by URL becomes one more kind of target here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from toolwire.protocol.errors import UNSUPPORTED_PROTOCOL_VERSION, ProtocolError, Timeout, ToolwireError, TransportError
from toolwire.protocol.lifecycle import Agreement, Ask, ClientLifecycle, Negotiation, Outcome
from toolwire.wire.channel import Channel, memory_pair
from toolwire.wire.session import Session

# How long a server may take to let go of an in-process connection.
GRACE_SECONDS: Final = 2.0
_STDERR_SHOWN: Final = 500


@runtime_checkable
class Serves(Protocol):
    """A server object: it serves one connection until that ends."""

    def serve(self, channel: Channel, /) -> Awaitable[None]: ...


TargetLike: TypeAlias = Serves | Channel | str | os.PathLike[str] | Sequence[str]

SUPPORTED: Final = (
    "A client takes a Server object, the path of a server (.py or .js), a command as a list of strings, or a Channel"
)


class Link:
    """An open way to a server, and whatever has to be let go together with it."""

    def __init__(self, channel: Channel, label: str) -> None:
        self.channel = channel
        self.label = label

    async def close(self) -> None:
        await self.channel.close()

    async def last_words(self) -> str:
        """Why the connection ended, as far as anybody knows."""
        return f"The connection to {self.label} ended"


class Target(ABC):
    """Where a server is. `restartable` when opening it again makes a fresh one."""

    label: str
    restartable = False

    @abstractmethod
    async def open(self) -> Link: ...


# --- A server in this process ----------------------------------------------------------------------------------------


class _MemoryLink(Link):
    def __init__(self, channel: Channel, label: str, task: asyncio.Task[None]) -> None:
        super().__init__(channel, label)
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
    def __init__(self, server: Serves) -> None:
        self._server = server
        self.label = f"the server {getattr(server, 'name', '')!r}"

    async def open(self) -> Link:
        ours, theirs = memory_pair()
        return _MemoryLink(ours, self.label, asyncio.get_running_loop().create_task(self._serve(theirs)))

    async def _serve(self, channel: Channel) -> None:
        try:
            await self._server.serve(channel)
        finally:
            await channel.close()


# --- A server as a child process -------------------------------------------------------------------------------------


class _ProcessLink(Link):
    async def last_words(self) -> str:
        # Only a child that was waited for has an exit status.
        await self.channel.close()
        status: int | None = self.channel.returncode  # type: ignore[attr-defined]
        how = "went away"
        if status is not None:
            how = f"exited with code {status}" if status >= 0 else f"died of signal {-status}"
        tail: str = self.channel.stderr_tail  # type: ignore[attr-defined]
        said = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
        if not said and status == 0 and self.label.endswith(".py"):
            said = "does it start its server, with server.run() at the end?"
        return f"{self.label} {how}" + (f": {said[:_STDERR_SHOWN]}" if said else "")


class CommandTarget(Target):
    restartable = True

    def __init__(
        self,
        command: Sequence[str],
        label: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.command = list(command)
        self.label = label
        self._env = env
        self._cwd = cwd

    async def open(self) -> Link:
        # Imported here because a client of a server in the same process starts no other.
        from toolwire.wire.subprocess import ProcessChannel

        return _ProcessLink(await ProcessChannel.spawn(self.command, env=self._env, cwd=self._cwd), self.label)


# --- A channel of the user's own -------------------------------------------------------------------------------------


class ChannelTarget(Target):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.label = f"the server behind {type(channel).__name__}"

    async def open(self) -> Link:
        await self._channel.connect()
        return Link(self._channel, self.label)


def resolve(
    target: TargetLike, env: Mapping[str, str] | None = None, cwd: str | os.PathLike[str] | None = None
) -> Target:
    """What the user meant by `target`; `ValueError` or `TypeError` with what is supported otherwise."""
    if isinstance(target, Channel):
        found: Target = ChannelTarget(target)
    elif isinstance(target, str | os.PathLike):
        return _script(os.fspath(target), env, cwd)
    elif isinstance(target, Mapping):
        raise ValueError(f"{SUPPORTED}; a configuration with mcpServers is not supported yet")
    elif isinstance(target, list | tuple) and target and all(isinstance(word, str) for word in target):
        return CommandTarget(target, Path(target[0]).name, env, cwd)
    elif isinstance(target, Serves) and not isinstance(target, type):
        found = ServerTarget(target)
    else:
        raise TypeError(f"{SUPPORTED}, not {target!r:.100}")
    if env is not None or cwd is not None:
        raise ValueError("env= and cwd= are for servers that the client starts")
    return found


def _script(path: str, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None) -> Target:
    if "://" in path:
        raise ValueError(f"{SUPPORTED}; URLs are not supported yet, got {path[:200]!r}")
    interpreter = {".py": sys.executable, ".js": "node", ".mjs": "node"}.get(Path(path).suffix.lower())
    if interpreter is None:
        raise ValueError(f"{SUPPORTED}; {path[:200]!r} is neither .py nor .js")
    if not Path(cwd or ".", path).is_file():
        raise ValueError(f"There is no server file {path[:200]!r}")
    return CommandTarget([interpreter, path], Path(path).name, env, cwd)


# --- The revision ----------------------------------------------------------------------------------------------------


class DiedOnProbe(ToolwireError):
    """The server went away when it was asked for its revision: some from before 2026-07-28 do."""


async def agree(
    session: Session,
    lifecycle: ClientLifecycle,
    begin: Callable[[], Negotiation],
    *,
    probe: float,
    timeout: float | None,
) -> Agreement:
    """Carry out a negotiation over a session."""
    steps = begin()
    ask = next(steps)
    probed = silent = False
    while True:
        try:
            outcome = await _put(session, lifecycle, ask, probe, timeout)
        except TransportError:
            # Some need a while to die, so the handshake that follows a probe counts too.
            if probed or ask.method == "server/discover":
                raise DiedOnProbe(ask.method) from None
            raise
        if silent and isinstance(outcome, ProtocolError) and outcome.code == UNSUPPORTED_PROTOCOL_VERSION:
            # ERA-10: it was only slow to start, and has meanwhile taken the probe for a modern opening. Ask again.
            silent, lifecycle.revision = False, None
            steps = begin()
            ask = next(steps)
            continue
        probed, silent = True, ask.method == "server/discover" and outcome is None
        try:
            ask = steps.send(outcome)
        except StopIteration as agreed:
            agreement: Agreement = agreed.value
            return agreement


async def _put(session: Session, lifecycle: ClientLifecycle, ask: Ask, probe: float, timeout: float | None) -> Outcome:
    try:
        if ask.method == "server/discover":
            return await _probe(session, ask, probe)
        # 2024-11-05 to 2025-11-25 basic/lifecycle: a server may ping before the handshake is over, so the era counts
        # from here on.
        lifecycle.revision = ask.revision
        return await session.request(ask.method, ask.params, timeout=timeout)
    except ProtocolError as error:
        return error
    except Timeout:
        raise Timeout(f"The server did not answer {ask.method} in time") from None


async def _probe(session: Session, ask: Ask, seconds: float) -> Outcome:
    """Ask, but not for ever. Silence is an answer (ERA-7), so no cancellation follows it.

    A server that waits for `initialize` would take the notification for one more violation.
    """
    identifier = session.peer.next_id()
    asking: asyncio.Task[Any] = asyncio.ensure_future(session.request(ask.method, ask.params, identifier=identifier))
    try:
        await asyncio.wait({asking}, timeout=seconds)
    finally:
        if not asking.done():
            session.peer.forget(identifier)
            asking.cancel()
            await asyncio.wait({asking})
    if asking.cancelled():
        return None
    outcome: Outcome = asking.result()
    return outcome
