"""The tables of the file: one class for each, and one attribute for each key.

The JSON schema, the page of all keys and the check of unknown keys are made from these classes. The text behind an
attribute describes the key there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.gateway.config.apis import ApiTable
from toolwire.gateway.config.authorization import AuthTable
from toolwire.gateway.config.credentials import CredentialTable
from toolwire.gateway.config.policies import PolicyTable
from toolwire.gateway.config.shapes import PinsTable, PromptTable, ResourceTable, ToolTable
from toolwire.gateway.file_types import FilePath, Secret, StoreAddress, Table
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS, UpstreamSettings
from toolwire.protocol.types import LoggingLevel
from toolwire.schemas import Profile
from toolwire.search import SearchSettings
from toolwire.server.components import Cache
from toolwire.server.http_options import HttpSettings
from toolwire.server.limits import Limits
from toolwire.server.metrics import BUCKETS


class TlsTable(Table, kw_only=True, frozen=True):
    """Certificates for the connections to a server."""

    ca: FilePath | None = None
    """A file with the certificates of authorities that are trusted, instead of those of the system."""
    certificate: FilePath | None = None
    """A file with the certificate of the gateway, for a server that asks for one."""
    key: FilePath | None = None
    """A file with the private key of that certificate, where it is not in the same file."""

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [Path(each) for each in (self.ca, self.certificate, self.key) if each]


class BackEntry(UpstreamSettings[TlsTable, CredentialTable, PolicyTable], kw_only=True, frozen=True):
    """A server behind the gateway. Members that only other programs know are ignored."""

    command: str | None = None
    """The program that is the server."""
    args: list[str] = []
    """The arguments of the program."""
    url: Secret | None = None
    """The address of a server that runs already."""
    type: str | None = None
    """The transport, as other programs write it: `http`, `streamable-http` or `sse`. All of them are the same here."""
    transport: str | None = None
    """Another name for `type`."""
    disabled: bool = False
    """Whether the server is left out."""
    openapi: FilePath | None = None
    """The description of an API, in place of a server: a file or a URL. Its operations become tools."""
    lock: FilePath | None = None
    """The lock file of the API. Tools, names and documents are those that were locked."""
    api: ApiTable | None = None
    """The operations of the API that become tools, and how they are called."""
    allow: list[str] | None = None
    """The tools that come through: names with `*` and `?`, `tag:NAME`, `annotation:NAME`; all by default."""
    deny: list[str] = []
    """The tools that do not come through, written as those of `allow`. It wins over `allow`."""
    allow_prompts: list[str] | None = None
    """The prompts that come through, by name; all by default."""
    deny_prompts: list[str] = []
    """The prompts that do not come through."""
    allow_resources: list[str] | None = None
    """The resources and templates that come through, by address or name; all by default."""
    deny_resources: list[str] = []
    """The resources and templates that do not come through."""
    allow_extensions: list[str] | None = None
    """The extensions of the protocol that come through, by identifier; all by default."""
    deny_extensions: list[str] = []
    """The extensions that do not come through."""
    tools: dict[str, ToolTable] = {}
    """Other forms of tools, by the names that the server gives them."""
    prompts: dict[str, PromptTable] = {}
    """Other forms of prompts, by the names that the server gives them."""
    resources: dict[str, ResourceTable] = {}
    """Other forms of resources and templates, by address or name."""
    scopes: str | list[str] = []
    """The scopes that every use of the server needs."""
    visible_to: str | list[str] | None = None
    """The scopes of which a caller has to hold one to see anything of the server."""
    result_budget: int | None = None
    """How many bytes a result may have. All of a larger one is a resource that its caller can read for a while."""
    pins: PinsTable | bool = False
    """Whether a tool that is new or changed is withheld until somebody approves it."""
    # A file has fewer types than a program.
    timeout: float = TIMEOUT_SECONDS
    cwd: str | None = None
    forward_headers: list[str] = []
    urls: list[str] = []

    @property
    def is_api(self) -> bool:
        """Return whether this is an API, and not a server."""
        return self.openapi is not None or self.lock is not None

    @property
    def paths(self) -> list[Path]:
        """The files that it refers to: certificates, and those that decide which tools an API has.

        These are its lock file, or else its description and the overlays.
        """
        certificates = [] if self.tls is None else self.tls.paths
        if self.lock is not None:
            return [*certificates, Path(self.lock)]
        named = [self.openapi or "", *([] if self.api is None else self.api.overlays)]
        return [*certificates, *(Path(each) for each in named if each and "://" not in each)]


class IconTable(Table, kw_only=True, frozen=True):
    """A picture for the gateway."""

    src: str
    """Its address: `https`, `http` or `data`."""
    mime_type: str | None = msgspec.field(name="mimeType", default=None)
    """Its media type."""
    sizes: list[str] | None = None
    """Its sizes, such as `48x48`."""
    theme: str | None = None
    """The theme that it is for: `light` or `dark`."""


class AuditTable(Table, kw_only=True, frozen=True):
    """The audit log: a signed line for every call."""

    path: FilePath | None = None
    """The file that lines are appended to."""
    logger: str | None = None
    """The name of a logger that gets the lines, instead of a file."""
    key: Secret | None = None
    """The key that signs the lines; `TOOLWIRE_AUDIT_KEY` by default."""
    anchor: FilePath | None = None
    """A second file, elsewhere, which is told how far the log has come."""
    anchor_every: int = 1000
    """After how many lines it is told."""
    redact: list[str] = []
    """Names of arguments that no line shows."""
    mask: list[str] = []
    """Regular expressions of text that no line shows."""
    required: bool = True
    """Whether no call runs that could not be recorded."""
    queue: int = 10_000
    """Lines that may wait to be written."""
    max_arguments: int = 8192
    """Bytes of arguments above which a line leaves them out."""


class MetricsTable(Table, kw_only=True, frozen=True):
    """The metrics at `/metrics`."""

    token: Secret | None = None
    """The token that the page asks for."""
    buckets: tuple[float, ...] = BUCKETS
    """The upper bounds of the histograms, in seconds."""


class PrincipalTable(Table, kw_only=True, frozen=True):
    """A caller."""

    subject: str
    """The id of the caller."""
    provider: str = ""
    """Who vouches for the caller."""
    username: str | None = None
    """A name for people to read."""
    scopes: list[str] = []
    """The scopes of the caller."""
    claims: dict[str, Any] = {}
    """What else is known about the caller."""


class GatewayTable(Table, kw_only=True, frozen=True):
    """The gateway itself: its name and description, and the options of a server."""

    name: str = "gateway"
    """The name that clients are told."""
    version: str = "1.0.0"
    """The version that clients are told."""
    title: str | None = None
    """The name for people to read."""
    description: str | None = None
    """A sentence about the gateway, for people."""
    website_url: str | None = None
    """The address of a page about the gateway."""
    icons: list[IconTable] | None = None
    """Pictures for the gateway."""
    instructions: str | None = None
    """What clients tell their model about the gateway."""
    strict: bool = False
    """Whether a list in which the components of a server are missing is an error."""
    stale: bool = False
    """Whether the last components that are known stay in lists while their server is away."""
    ping: bool = True
    """Whether `ping` is answered on 2026-07-28, which has none, to hosts that show views."""
    auth: AuthTable | None = None
    """Who is let in over HTTP."""
    local_principal: PrincipalTable | None = None
    """The caller over standard input and output; one without any restriction by default."""
    policy: PolicyTable | None = None
    """The policy for all calls."""
    limits: Limits | None = None
    """The limits of every edge."""
    audit: AuditTable | None = None
    """The audit log."""
    metrics: bool | MetricsTable = False
    """Whether metrics are served at `/metrics`."""
    tracing: bool = False
    """Whether calls have spans, with the provider of OpenTelemetry that the process has set."""
    stores: StoreAddress | None = None
    """Where state is kept: the path of a SQLite file, or the address of a Redis. `TOOLWIRE_STORES` by default."""
    secret: Secret | list[Secret] | None = None
    """The secret that seals what clients and stores keep. Of several, the first seals and all open. `TOOLWIRE_SECRET`
    by default."""
    credentials: dict[str, CredentialTable] | None = None
    """Credentials of tools in `directory`, by name."""
    directory: FilePath | None = None
    """A directory of Python files with components of the gateway itself."""
    capabilities: dict[str, Any] | None = None
    """Further capabilities that clients are told."""
    page_size: int | None = None
    """Entries of one page of a list; all of them by default, because many clients read the first page alone."""
    cache: Cache | None = None
    """How long, and by whom, lists may be kept."""
    schema_profile: Profile = "portable"
    """The profile of the schemas of tools in `directory`."""
    search: SearchSettings | None = None
    """When clients find tools by a search instead of a list."""
    debug: bool = False
    """Whether clients are told the errors of tools in `directory`."""


class HttpTable(HttpSettings, Table, kw_only=True, frozen=True):
    """The options of the gateway over HTTP. Options of the command line win."""

    log_level: LoggingLevel | None = None
    """From which level on it is logged to standard error."""


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
    http: HttpTable = msgspec.field(default_factory=HttpTable)
    """How it is served over HTTP."""


#: The tables in which other programs have members of their own.
OPEN_TABLES: Final[frozenset[type[Any]]] = frozenset({FileTables, BackEntry})
