"""`HttpSettings`: the options of a server over HTTP, for `run("http")`, the command line and the gateway file."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct


class HttpSettings(Struct, kw_only=True, frozen=True):
    """The options that a command or a file can give, with their types and defaults."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port; 0 takes any free one."""
    path: str = "/mcp"
    """The path of the endpoint."""
    workers: int = 1
    """The number of processes that serve."""
    public_url: str | None = None
    """The address that clients use, if there is a proxy in front."""
    allowed_hosts: tuple[str, ...] = ()
    """Further hosts that requests may name, such as the name of a proxy."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server; `*` for all."""
    allow_unauthenticated: bool = False
    """Whether a public address may be listened on without authorization."""
    stateless: bool = False
    """Whether clients before 2026-07-28 get no sessions."""
    sse: bool = False
    """Whether the transport of 2024-11-05 is served, too."""
    access_log: bool = False
    """Whether each HTTP request is a line of the log."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose X-Forwarded-For header is believed."""
    log_level: str | None = None
    """From which level on it is logged to standard error; by default "info", unless the program has set up logging."""
    stores_wait: float = 60.0
    """How many seconds the start waits for a store that is not reached."""


#: The options that `http_app()` takes. The others are of the processes that serve it.
APP_OPTIONS: Final = (
    "path",
    "allowed_hosts",
    "allowed_origins",
    "public_url",
    "stateless",
    "sse",
    "trusted_proxies",
)


def find_app_options(settings: HttpSettings) -> dict[str, Any]:
    """Return the options of `http_app()` with their values."""
    return {name: getattr(settings, name) for name in APP_OPTIONS}
