"""Estimates of the processes and the memory that the commands of a file need for many client sessions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from toolwire.client.targets import CommandTarget
from toolwire.gateway.account_relay import AccountRelay
from toolwire.gateway.back_connections import MAX_CONVERSATIONS
from toolwire.gateway.upstream import Upstream
from toolwire.protocol.revisions import is_modern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolwire.gateway.config.tables import BackEntry
    from toolwire.gateway.gateway import Gateway
    from toolwire.wire.subprocess import ProcessChannel

#: The number of sessions that estimates are made for.
SESSIONS: Final = 100
_MIB: Final = 1024 * 1024


class Estimate(Struct, frozen=True):
    """The processes of one command while clients have `SESSIONS` sessions, each with another user."""

    least: int
    """The processes if no client can be asked anything."""
    most: int
    """The processes if all clients of older revisions can be asked (elicitation, sampling, roots)."""
    bytes_each: int | None
    """The memory of the process that was measured; None where the system does not tell."""

    def __str__(self) -> str:
        number = "1 process" if self.most == 1 else f"{self.most} processes"
        if self.least < self.most:
            number = f"{self.least} to {number}"
        if self.bytes_each is None:
            return f"{SESSIONS} sessions: {number}"
        whole = self.most * self.bytes_each / _MIB
        return f"{SESSIONS} sessions: {number}, up to {whole:,.0f} MiB ({self.bytes_each / _MIB:.0f} MiB each)"


class CommandMemory:
    """Measures the processes of the commands behind a gateway. Make it before the gateway runs."""

    def __init__(self, gateway: Gateway) -> None:
        self._channels: dict[str, ProcessChannel] = {}
        for remote in _find_commands(gateway):
            target = cast("CommandTarget", remote.back_connections.target)
            target.on_start = partial(self._channels.__setitem__, remote.name)

    def measure(self, name: str) -> int | None:
        """Return the bytes of memory that the newest process of a server uses; None where that is not known."""
        channel = self._channels.get(name)
        return None if channel is None else channel.memory()


def estimate_processes(
    gateway: Gateway, entries: Mapping[str, BackEntry], memory: CommandMemory
) -> dict[str, Estimate]:
    """Estimate the processes of each command behind a gateway that was reached."""
    found: dict[str, Estimate] = {}
    for remote in _find_commands(gateway):
        entry, revision = entries[remote.name], gateway.backs[remote.name].revision
        if revision is not None:
            least, most = _count_processes(entry, revision, is_per_caller=isinstance(remote.relay, AccountRelay))
            found[remote.name] = Estimate(least, most, memory.measure(remote.name))
    return found


def _count_processes(entry: BackEntry, revision: str, *, is_per_caller: bool) -> tuple[int, int]:
    several = 1 + min(SESSIONS, entry.max_processes or MAX_CONVERSATIONS)  # One of them reads the lists.
    if entry.isolation == "shared":
        pool = 1 if is_modern(revision) else min(entry.max_processes or 1, SESSIONS)
        return pool, pool
    if is_per_caller or not is_modern(revision):
        return several, several
    return 1, 1 if entry.revision is not None else several


def _find_commands(gateway: Gateway) -> Iterator[Upstream]:
    owners = (mount.catalog.owner for mount in gateway.catalog.mounts)
    for owner in owners:
        if isinstance(owner, Upstream) and isinstance(owner.back_connections.target, CommandTarget):
            yield owner
