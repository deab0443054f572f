"""The address of a Redis: its parts, and how it is shown to people, who never see the password."""

from __future__ import annotations

import re
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from toolwire.protocol.errors import ServerError
from toolwire.stores.limits import LIMITS, read_limits

SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
DEFAULT_PREFIX: Final = "toolwire"
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

_FORM: Final = "write it as redis://user:password@host:6379/0, with %40 for an @ and %2F for a / in the password"
_SENTINEL_FORM: Final = "write it as redis+sentinel://user:password@host:26379,host:26379/name-of-the-primary/0"
#: The options of an address, beside limits and those for TLS. Others would change how the client library behaves.
_OPTIONS: Final = frozenset(
    {"db", "username", "password", "prefix", "timeout", "evicts", "sentinel_username", "sentinel_password"}
)

#: The scheme of an address that is repeated in an error. A longer one may be part of a secret.
SCHEME_FORM: Final = re.compile(r"[a-z][a-z0-9+.-]{1,23}")

#: The host and the port of a server.
Node: TypeAlias = tuple[str, int]


class RedisAddress(Struct, frozen=True, kw_only=True):
    """The parts of an address."""

    scheme: str
    """For the client library: redis, rediss or unix."""
    user: str = ""
    """The user and the password, quoted as in the address; for the Redis itself."""
    nodes: tuple[Node, ...] = ()
    """The servers to try, one after the other; with `service`, the Sentinels. None for a socket."""
    service: str = ""
    """The name by which Sentinels know the primary; empty where there are no Sentinels."""
    sentinel_user: str = ""
    """The user and the password for the Sentinels, quoted."""
    path: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """The options for the client library."""
    prefix: str | None = None
    timeout: float | None = None
    limits: dict[str, int] = {}
    allows_eviction: bool = False
    """Whether the Redis may evict keys (`evicts=allow`)."""
    shown: str
    """For people."""
    secrets: tuple[str, ...] = ()

    def url_of(self, node: Node | None) -> str:
        """Return the address of one server for the client library, secrets included; None for the socket."""
        at = f"{self.user}@" if self.user else ""
        query = f"?{urlencode(self.options)}" if self.options else ""
        if node is None or self.scheme != "unix":
            return f"{self.scheme}://{at}{show_node(node) if node else ''}{self.path}{query}"
        # A node of a cluster that was reached by its socket has sent us to another one.
        return f"redis://{at}{show_node(node)}{query}"

    def url_of_sentinel(self, node: Node) -> str:
        at = f"{self.sentinel_user}@" if self.sentinel_user else ""
        tls = [(name, value) for name, value in self.options if name.startswith("ssl_")]
        return f"{self.scheme}://{at}{show_node(node)}{f'?{urlencode(tls)}' if tls else ''}"

    def without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        return f"RedisAddress({self.shown!r})"


def show_node(node: Node) -> str:
    host, port = node
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_url(url: str) -> SplitResult:
    """Split a URL with several hosts, which `urlsplit` refuses from Python 3.14 on."""
    scheme, separator, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if not separator:
        return urlsplit(url)
    return urlsplit(f"{scheme}://{rest[len(authority) :]}")._replace(netloc=authority)


def read_address(url: str) -> RedisAddress:
    """Return the parts of an address. Raise `ServerError`, which repeats none of it, for one that is wrong."""
    scheme, mark, _ = url.partition("://")
    if mark and scheme.lower() not in SCHEMES and SCHEME_FORM.fullmatch(scheme):
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ServerError(
            f"No store has addresses that begin with {scheme}://. Use a Redis ({known}) or the path of a SQLite file"
        )
    try:
        parts = _split_url(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        scheme = parts.scheme.lower()
        user, _, hosts = parts.netloc.rpartition("@")
        nodes = _nodes(hosts, SENTINEL_PORT if scheme.endswith("+sentinel") else REDIS_PORT)
    except ValueError:
        raise _unreadable() from None
    # An unquoted slash or question mark in a password ends the host too early.
    if scheme not in SCHEMES or parts.fragment or "@" in parts.path or "@" in parts.query:
        raise _unreadable()
    for name in given:
        if name not in _OPTIONS and name not in LIMITS and not name.startswith("ssl_"):
            raise ServerError(
                f"The address of the store has no option {name!r}: it knows db, prefix, timeout, evicts, "
                "sentinel_username, sentinel_password, ssl_… and the limits of a store"
            )
    limits = read_limits([(name, given.pop(name)) for name in LIMITS if name in given], "the address of the store")
    prefix, timeout = given.pop("prefix", None), _seconds(given.pop("timeout", None))
    evicts = given.pop("evicts", None)
    if evicts not in (None, "allow"):
        raise ServerError("evicts= in the address of the store is allow, or is left out")
    sentinel = (given.pop("sentinel_username", ""), given.pop("sentinel_password", ""))
    password = user.partition(":")[2]
    secrets = (unquote(password), password, given.get("password", ""), sentinel[1])
    library, path, service = scheme.partition("+")[0], parts.path, ""
    if scheme == "unix":
        if not path or hosts:
            raise ServerError("The address of the store is no socket: write it as unix:///run/redis.sock?db=0")
        shown = f"unix://{path}"
    else:
        if scheme.endswith("+sentinel"):
            service, _, path = path.strip("/").partition("/")
            service = unquote(service)
        database = given.pop("db", "") or path.strip("/") or "0"
        if not nodes or not database.isdigit() or (scheme.endswith("+sentinel") and not service):
            raise _unreadable(_SENTINEL_FORM if scheme.endswith("+sentinel") else _FORM)
        path = f"/{database}"
        shown = f"{scheme}://{','.join(map(show_node, nodes))}{f'/{service}' if service else ''}{path}"
    return RedisAddress(
        scheme=library,
        user=user,
        nodes=nodes,
        service=service,
        sentinel_user=":".join(quote(part, safe="") for part in sentinel) if any(sentinel) else "",
        path=path,
        options=tuple(given.items()),
        prefix=prefix,
        timeout=timeout,
        limits=limits,
        allows_eviction=evicts is not None,
        shown=shown,
        secrets=tuple(secret for secret in secrets if secret),
    )


def _nodes(hosts: str, default: int) -> tuple[Node, ...]:
    """Return the servers of a list such as `one:6379,two:6379`. Raise `ValueError`."""
    nodes: list[Node] = []
    for text in hosts.split(",") if hosts else ():
        part = urlsplit(f"//{text}")
        if not part.hostname:
            raise ValueError("a server without a name")
        nodes.append((part.hostname, part.port or default))
    return tuple(nodes)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ServerError("timeout= in the address of the store is a number of seconds") from None


def _unreadable(form: str = _FORM) -> ServerError:
    return ServerError(f"The address of the store is not one of a Redis: {form}")
