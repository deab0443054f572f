"""The options of a server behind a gateway, each written once.

The file of a gateway is read with them. Its JSON schema, its page, and the signature and texts of `Gateway.add` are
written from them by `scripts/gateway_file.py`. The text behind an attribute describes the option there.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from toolwire.gateway.back_health import QUEUE, QUEUE_SECONDS, Breaker, Health
from toolwire.gateway.file_types import Secret, Table
from toolwire.gateway.list_follower import LIST_SECONDS
from toolwire.util.numbers import COUNT, COUNT_OR_NONE, SECONDS, TIMEOUT, Allowed, check_number

if TYPE_CHECKING:
    from toolwire.auth.vault.kinds import Kind  # noqa: F401 - named as a text below
    from toolwire.server.policy import Policy  # noqa: F401 - likewise
    from toolwire.server.shaping import Shape

#: How many seconds a request to another server may take.
TIMEOUT_SECONDS: Final = 60.0

TlsT = TypeVar("TlsT")
KindT = TypeVar("KindT")
PolicyT = TypeVar("PolicyT")


class UpstreamRules(Struct, frozen=True):
    """Rules of a gateway for all its upstreams."""

    keeps_stale_lists: bool = False
    """Whether components stay in lists while their upstream is away."""
    answers_pings: bool = True
    """Whether hosts that show views may ping on 2026-07-28."""


class UpstreamSettings(Table, Generic[TlsT, KindT, PolicyT], kw_only=True, frozen=True):
    """The options that a program and a file can give.

    Three of them are objects in a program and tables in a file.
    """

    prefix: str | None = None
    """What the names of its tools and prompts start with; its name and `_` by default, and "" for none."""
    timeout: float | None = TIMEOUT_SECONDS
    """How many seconds a call may take, with its rounds and a second attempt."""
    revision: str | None = None
    """The one revision to speak with it, instead of the newest that both know and, for legacy clients, 2025-11-25."""
    list_timeout: float = LIST_SECONDS
    """How many seconds lists wait for it."""
    trust: bool = False
    """Whether what it calls public is public; otherwise clients are told that nobody but them may keep it."""
    env: Mapping[str, Secret] | None = None
    """Environment variables of the program."""
    cwd: str | os.PathLike[str] | None = None
    """The directory in which the program runs."""
    inherit_env: bool | None = None
    """Whether the program gets the whole environment of the gateway, instead of the few variables that are harmless."""
    headers: Mapping[str, Secret] | None = None
    """HTTP headers of every request to the address."""
    tls: TlsT | None = None
    """Certificates for the connections to the address."""
    proxy: Secret | None = None
    """The address of an HTTP proxy on the way."""
    credentials: KindT | None = None
    """Whose account acts at the server. A program has processes of its own for each account."""
    list_credentials: KindT | None = None
    """The account of the gateway that reads lists for all callers; without it, each caller's own account does."""
    credential_variable: str | None = None
    """The environment variable in which a program finds the secret of `credentials`."""
    forward_headers: Iterable[str] = ()
    """The HTTP headers of a client's request that go on to the server, beside those of a trace."""
    breaker: Breaker | bool = True
    """When calls to it fail at once, because it does not work; false for never."""
    health: Health | None = None
    """When health checks are sent to it without calls; never by default."""
    max_calls: int | None = None
    """How many calls run there at once; no bound by default."""
    max_calls_per_caller: int | None = None
    """How many calls of one caller run there at once; no bound by default."""
    queue: int = QUEUE
    """How many calls wait until others have ended, where there is a bound. The next one is refused."""
    queue_seconds: float = QUEUE_SECONDS
    """How many seconds a call waits until others have ended."""
    policy: PolicyT | None = None
    """The policy for all calls of the server."""
    isolation: Literal["conversation", "shared", "principal"] | None = None
    """Who shares a connection to a server before 2026-07-28, which is a process if the server is a program:
    `"conversation"`, the default, for one of each client session; `"shared"` for a pool of all clients, for a server
    that keeps nothing for its clients and asks nothing; `"principal"` for processes of its own for each principal, also
    of a modern program (the default where each caller has an account)."""
    max_processes: int | None = None
    """How many processes of a program, or other connections, there are for callers; 256 by default, 1 if shared. The
    one that was used longest ago ends."""
    idle_seconds: float | None = None
    """After how many seconds without a call a process, or another connection of a caller, ends; 600 by default."""
    urls: Sequence[str] | None = None
    """The addresses of the server, if it has several, in the order of preference, behind the one that is named first.
    The first one that works is used."""
    views: bool = True
    """Whether its views come through, and its tools that are for views alone."""
    lazy: bool = False
    """Whether it starts with its first call, and stops after `idle_seconds` without one. Its lists of the last run come
    from the stores of the gateway meanwhile."""


class UpstreamOptions(UpstreamSettings[ssl.SSLContext, "Kind", "Policy"], kw_only=True, frozen=True):
    """The options that a program gives to `Gateway.add`."""

    auth: Any = None
    """What a `Client` takes as `auth` for an address, in place of `credentials`."""
    shape: Shape | None = None
    """Which of its components come through, and in which form."""


def check_numbers(name: str, options: UpstreamOptions) -> None:
    """Check the numbers among the options of a server. Raise `InvalidNumber` for one that makes no sense."""
    for option, allowed in _NUMBERS.items():
        value = getattr(options, option)
        if value is not None or option not in _OPTIONAL_NUMBERS:
            check_number(f"upstream {name!r}", option, value, allowed)


_NUMBERS: Final[dict[str, Allowed]] = {
    "timeout": TIMEOUT,
    "list_timeout": TIMEOUT,
    "queue": COUNT_OR_NONE,
    "queue_seconds": SECONDS,
    "max_calls": COUNT,
    "max_calls_per_caller": COUNT,
    "max_processes": COUNT,
    "idle_seconds": TIMEOUT,
}
_OPTIONAL_NUMBERS: Final = frozenset({"timeout", "max_calls", "max_calls_per_caller", "max_processes", "idle_seconds"})
