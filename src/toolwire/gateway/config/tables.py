"""The tables of the file: one class for each, and one attribute for each key.

The JSON schema, the page of all keys and the check of unknown keys are made from these classes. The text behind an
attribute describes the key there.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from toolwire.client.config import ServerEntry
from toolwire.gateway.back_health import QUEUE, QUEUE_SECONDS, Breaker, Health
from toolwire.gateway.remote_server import LIST_SECONDS, TIMEOUT_SECONDS
from toolwire.redaction import repr_without

#: Marks the type of a secret, in whose place a reference may stand.
SECRET: Final = "io.toolwire/secret"
Secret: TypeAlias = Annotated[str, Meta(extra={SECRET: True})]


class BackEntry(ServerEntry, kw_only=True):
    """A server behind the gateway. Members that only other programs know are ignored."""

    env: dict[str, Secret] | None = None
    headers: dict[str, Secret] | None = None
    prefix: str | None = None
    """What the names of its tools and prompts start with; its name and `_` by default, and "" for none."""
    timeout: float = TIMEOUT_SECONDS
    """How many seconds a request to it may take."""
    revision: str | None = None
    """The revision to speak with it, instead of the newest that both know."""
    list_timeout: float = LIST_SECONDS
    """How many seconds lists wait for it."""
    trust: bool = False
    """Whether what it calls public is public."""
    breaker: Breaker | bool = True
    """When calls to it fail at once, because it does not work; false for never."""
    health: Health | None = None
    """When it is asked for signs of life while nobody calls it; never by default."""
    max_calls: int | None = None
    """How many calls run there at once; no bound by default."""
    max_calls_per_caller: int | None = None
    """How many calls of one caller run there at once; no bound by default."""
    queue: int = QUEUE
    """How many calls wait until others have ended, where there is a bound."""
    queue_seconds: float = QUEUE_SECONDS
    """How many seconds a call waits until others have ended."""

    def __repr__(self) -> str:
        return repr_without(self, "args", "env", "url", "headers")


class GatewayTable(Struct, kw_only=True, frozen=True):
    """The gateway itself: its name and description, and the options of a server."""

    name: str = "gateway"
    """The name that clients are told."""
    version: str = "1.0.0"
    """The version that clients are told."""
    title: str | None = None
    """The name for people to read."""
    description: str | None = None
    """A sentence about the gateway, for people."""
    instructions: str | None = None
    """What clients tell their model about the gateway."""
    strict: bool = False
    """Whether a list in which the components of a server are missing is an error."""
    stale: bool = False
    """Whether the last components that are known stay in lists while their server is away."""


class FileTables(Struct, kw_only=True, frozen=True):
    """The file of a gateway. Members that only other programs know are ignored."""

    schema_address: str | None = msgspec.field(name="$schema", default=None)
    """The address of the JSON schema, for editors."""
    servers: dict[str, BackEntry] | None = msgspec.field(name="mcpServers", default=None)
    """The servers behind the gateway, by name."""
    vscode_servers: dict[str, BackEntry] | None = msgspec.field(name="servers", default=None)
    """The same, as VS Code calls them."""
    gateway: GatewayTable = msgspec.field(default_factory=GatewayTable)
    """The gateway itself."""


#: The tables in which other programs have members of their own.
OPEN_TABLES: Final[frozenset[type[Any]]] = frozenset({FileTables, BackEntry})
