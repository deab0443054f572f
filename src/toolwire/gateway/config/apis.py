"""The table of an API: a server that is made from an API description."""

from __future__ import annotations

from typing import Any, Literal

from toolwire.gateway.config.credentials import CredentialTable
from toolwire.gateway.file_types import FilePath, Table


class ApiTable(Table, kw_only=True, frozen=True):
    """The operations of an API that become tools, and how they are called."""

    keep: list[str] = []
    """The operations that become tools: ids, paths with `*` (`GET /pets/*`), `tag:NAME`, or `*` for all. With a lock
    file, all that are locked by default; otherwise none."""
    drop: list[str] = []
    """The operations that never become tools, written as those of `keep`."""
    resources: list[str] = []
    """The GET operations that become resources or resource templates, written as those of `keep`."""
    overlays: list[FilePath] = []
    """Files with overlays, which change the description in this order before it is read."""
    operations: dict[str, dict[str, Any]] = {}
    """Settings of single operations, by id or by method and path: `name`, `description`, `timeout`, `fixed`, …"""
    base_url: str | None = None
    """The address of the API, in place of the servers in the description."""
    server: str | None = None
    """The server in the description to use, by name or address; the first one by default."""
    server_variables: dict[str, str] = {}
    """Values of the variables in the address of that server."""
    credentials: dict[str, CredentialTable] = {}
    """The account that acts at the API, by the name of the security scheme."""
    output: Literal["advertise-loose", "strict", "none"] = "advertise-loose"
    """Which schema of answers clients are told: a loosened one, the true one, or none."""
    max_bytes: int | None = None
    """How many bytes of an answer are read; 2,000,000 by default."""
    max_tokens: int | None = None
    """How large a result the model gets; 10,000 tokens by default. A larger one is a preview and a resource."""
    inline_bytes: int | None = None
    """How many bytes of an image or a sound are put into a result; 1,000,000 by default."""
    max_items: int | None = None
    """How many items are collected by following pages in one call; by default no page is followed."""
    rate: list[str] = []
    """How many requests the API gets, counted over all callers of this process: `["10/second", "1000/hour"]`."""
    passthrough: bool = False
    """Whether `forward_headers` may name Authorization and cookies, because both are the same service."""
    require_scopes: bool | None = None
    """Whether callers need the OAuth scopes of an operation; by default where their own token is used at the API."""
    reach: list[str] = []
    """The origins from which further documents of the description may be fetched."""
    origins: list[str] = []
    """Further origins of the API: redirected reads and credentials may be sent there."""
    shape: Literal["tools", "bridge"] = "tools"
    """Whether each operation is a tool, or three tools list, describe and call all of them."""
    depth: int | None = None
    """Down to how many levels schemas are written without `$ref`, for clients that cannot take it."""
    max_description: int | None = None
    """How many characters a description has; 500 by default."""
    watch: float | None = None
    """Every how many seconds the description is compared with the lock file. A difference is logged and counted."""
    cache: bool = True
    """Whether answers of reads are used again as their headers permit."""
