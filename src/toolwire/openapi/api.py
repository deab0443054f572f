"""`openapi()`: an API as a source of tools, from its description."""

from __future__ import annotations

import gc
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, Unpack, cast, overload

import msgspec

from toolwire.base_errors import ServerError
from toolwire.http1.asgi_pool import Application
from toolwire.openapi.access.credentials import CredentialLike
from toolwire.openapi.api_options import ApiOptions, split_settings
from toolwire.openapi.api_pool import OpenPool
from toolwire.openapi.api_server import ApiTools
from toolwire.openapi.asgi_application import ADDRESS, DESCRIPTION_PATH, is_application, read_application, running
from toolwire.openapi.bridge import ApiBridge
from toolwire.openapi.definition.chosen_operations import ApiOperations, OperationRow
from toolwire.openapi.definition.descriptions import MAX_DESCRIPTION
from toolwire.openapi.definition.selection import ALL, Choice, OperationSelection
from toolwire.openapi.definition.tool_definitions import ToolDefiner
from toolwire.openapi.description.documents import Limits
from toolwire.openapi.description.fetching import Reach
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.description.references import Description
from toolwire.openapi.lock_file.lock import Lock, is_lock, used_schemes
from toolwire.openapi.lock_file.locked_operations import LockedTools
from toolwire.openapi.model import DescriptionError, OperationSettings, Output, ToolDefinition
from toolwire.openapi.operation_calls import Arguments, Operation
from toolwire.openapi.overriding import with_operation
from toolwire.openapi.request.request_urls import check_variables
from toolwire.openapi.watching import ApiWatch
from toolwire.printable import printable
from toolwire.server.components import Tool
from toolwire.server.components.decorating import ToolOptions, check_options
from toolwire.server.components.tools import ToolBase
from toolwire.server.described_api import DescribedApi
from toolwire.server.server import Server

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_MAX_TITLE: Final = 100

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: A description: a file, a URL, the text of a document, its content, or a lock file.
SourceLike: TypeAlias = str | os.PathLike[str] | bytes | Mapping[str, Any]
#: The same, or an ASGI application in this process that serves its description.
ApiSource: TypeAlias = SourceLike | Application


def openapi(
    source: ApiSource,
    *,
    overlays: Iterable[SourceLike] | None = None,
    lock: str | os.PathLike[str] | None = None,
    keep: Iterable[Choice] | Choice | None = None,
    drop: Iterable[Choice] | Choice | None = None,
    resources: Iterable[Choice] | Choice | None = None,
    operations: Mapping[str, OperationSettings | Mapping[str, Any]] | None = None,
    base_uri: str | None = None,
    base_url: str | None = None,
    server: str | None = None,
    server_variables: Mapping[str, str] | None = None,
    credentials: Mapping[str, CredentialLike] | None = None,
    output: Output | None = None,
    max_bytes: int | None = None,
    max_tokens: int | None = None,
    inline_bytes: int | None = None,
    max_items: int | None = None,
    timeout: float | None = None,
    rate: str | Iterable[str] | None = None,
    forward_headers: Iterable[str] = (),
    passthrough: bool = False,
    require_scopes: bool | None = None,
    reach: Reach = None,
    origins: Iterable[str] = (),
    depth: int | None = None,
    max_description: int | None = None,
    cache: bool = True,
    client: Any = None,
    tls: ssl.SSLContext | None = None,
    proxy: str | None = None,
    shape: Literal["tools", "bridge"] = "tools",
    description_path: str = DESCRIPTION_PATH,
    lifespan: bool = True,
    watch: float | None = None,
    limits: Limits = Limits(),
) -> Api:
    """Read the description of an API (OpenAPI 3.0 to 3.2, Swagger 2.0).

    `server.include(api)` serves its tools.

    Raise `DescriptionError` for a description that cannot be used; the text names the file, the place and the remedy.

    * `source`: a file, a URL, the text of a document, its content as a dict, a lock file, or an ASGI application such
      as `FastAPI()`, which is read and called in this process.
    * `overlays`: overlays (Overlay Specification 1.x): files, URLs or dicts, which change the description in this order
      before it is read. Without them, those of the lock file are used.
    * `lock`: the lock file of the API. Tools, names and documents are those that were locked.
    * `keep`, `drop`: the operations that become tools: ids, paths (`/pets/*`, `GET /pets`), `tag(...)`, functions, or
      `ALL`. Without them, and without a lock file, there is no tool. What is dropped is never kept.
    * `resources`: the GET operations that become resources or resource templates, chosen as by `keep`.
    * `operations`: settings of single operations (`OperationSettings`), by id or by method and path; also `policy`,
      `scopes`, `visible_to`, `tags`, `icons` and `meta` of their tools.
    * `base_url`: the address of the API in place of the servers in the description. `server` chooses one of those, by
      name or URL, and `server_variables` fills in their variables.
    * `credentials`: a source of credentials for each security scheme, by the name of the scheme.
    * `output`: `"advertise-loose"` publishes loosened schemas of answers, `"strict"` the true ones, and `"none"` none.
    * `max_bytes`, `max_tokens`, `inline_bytes`, `max_items`, `timeout`: see `OperationSettings`.
    * `rate`: how many requests the API gets, such as `"60/minute"` or several of them, counted over all callers of this
      process. A request waits for its turn, up to 10 seconds. A call that would wait longer fails, and its result says
      when to try again.
    * `forward_headers`: the headers of a caller's request that go on to the API; none otherwise. `passthrough=True`
      permits `Authorization` among them, which MCP forbids unless both are the same service.
    * `require_scopes`: whether the OAuth scopes of an operation are scopes that a caller of its tool needs. None: where
      the credential is made of the caller's own token.
    * `reach`: the origins from which other documents may be fetched. `origins`: other origins of the API. Reads may be
      redirected there, and operations that the description serves there get credentials. Without it, they go to the
      root servers of the description alone.
    * `depth`: write schemas without `$ref`, down to so many levels. `max_description`: characters of a description.
    * `cache`: whether answers of reads are used again as their headers permit, each for its caller alone. Clients
      learn how long they may keep the answer of a resource.
    * `client`: an `httpx.AsyncClient` that carries the requests. Its cookies are sent; cookies that the API sets are
      dropped, because callers share the client. `tls`, `proxy`: for the connections otherwise.
    * `description_path`, `lifespan`: for an application: where it serves its description, and whether its lifespan is
      run here. Write `lifespan=False` for an application that a server of its own runs.
    * `watch`: every how many seconds the description is compared with the lock file. A difference is logged once and
      counted as a metric. What is served stays as it was locked.
    * `shape`: `"tools"`, or `"bridge"` for three tools that list, describe and call all chosen operations.
    """
    carrier: OpenPool | None = None
    if is_application(source):
        application = cast("Application", source)
        base_url = base_url or ADDRESS
        source = read_application(application, description_path, base_url, limits)
        carrier = partial(running, application, lifespan=lifespan)
    source = cast("SourceLike", source)
    locked = _locked(source, lock)
    settings = {} if locked is None else locked.lock.settings
    own, options_of = split_settings(operations or {})
    call_options = ApiOptions.from_settings(
        settings,
        None if locked is None else locked.folder,
        base_url=base_url,
        server=server,
        server_variables=server_variables,
        credentials=credentials,
        timeout=timeout,
        rate=rate if rate is None or isinstance(rate, str) else tuple(rate),
        forward_headers=tuple([forward_headers] if isinstance(forward_headers, str) else forward_headers),
        passthrough=passthrough,
        require_scopes=require_scopes,
        origins=tuple([origins] if isinstance(origins, str) else origins),
        cache=cache,
        client=client,
        tls=tls,
        proxy=proxy,
        shape=shape,
        tool_options=options_of,
    )
    defaults = _defaults(
        settings,
        output=output,
        max_bytes=max_bytes,
        max_tokens=max_tokens,
        inline_bytes=inline_bytes,
        max_items=max_items,
    )
    is_chosen = locked is None or keep is not None or drop is not None
    description = _read(source, overlays, locked, base_uri, reach, limits)
    definer = ToolDefiner(
        description,
        max_description=max_description or settings.get("max_description") or MAX_DESCRIPTION,
        depth=depth or settings.get("depth"),
    )
    with _garbage_stays():
        found = ApiOperations(
            description,
            definer,
            selection=OperationSelection(_all_of(locked, keep), drop) if is_chosen else None,
            defaults=defaults,
            decisions=own,
            locked=locked,
        )
    check_variables(call_options.server_variables, found.servers)
    if locked is not None:
        locked.check_schemes(used_schemes(description, found.chosen))
    api = Api(description, found, call_options, locked, carrier)
    if resources is not None:
        api.resources = tuple(found.selected(OperationSelection(resources, drop, "resources")))
    if watch is not None:
        if locked is None:
            raise ServerError("watch= compares an API with its lock file: give lock=, too")
        api.watch = ApiWatch(locked, api.name, watch)
    return api


class Api(DescribedApi):
    """An API whose description was read. `server.include(api)` offers its tools."""

    def __init__(
        self,
        description: Description,
        operations: ApiOperations,
        options: ApiOptions,
        locked: LockedTools | None = None,
        carrier: OpenPool | None = None,
    ) -> None:
        """`carrier` opens what carries requests in place of connections. `openapi()` makes all of these."""
        self.description: Description = description
        self.options: ApiOptions = options
        self._operations = operations
        self._locked = locked
        self._carrier = carrier
        self._server: Server | None = None
        self._tools: ApiTools | None = None
        self._bridge: ApiBridge | None = None
        self._overriding: dict[str, Tool] = {}
        """The tools of a person in place of generated ones, by method and path."""
        self._calls: dict[str, Operation] = {}
        self.resources: tuple[ToolDefinition, ...] = ()
        """The definitions of the operations that are resources."""
        self.watch: ApiWatch | None = None
        """The comparison of the API with its lock file; None if `watch=` is not given."""

    @property
    def name(self) -> str:
        """The title of the API, as it was locked."""
        title = self.description.title if self._locked is None else self._locked.lock.title
        return printable(title)[:_MAX_TITLE] or "api"

    @property
    def version(self) -> str:
        """The version of the API, as its lock file or its description says."""
        return self.description.version if self._locked is None else self._locked.lock.version

    @property
    def lock(self) -> Lock | None:
        """The content of the lock file; None for an API without one."""
        return None if self._locked is None else self._locked.lock

    @property
    def operations(self) -> list[OperationRow]:
        """Every operation of the API, with its tool or why it has none."""
        return self._operations.rows

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools of the chosen operations, in the order of the description."""
        return self._operations.chosen

    @property
    def tools(self) -> ApiTools:
        """The maker of the tools, with the credentials and the connections of the API."""
        if self._tools is None:
            self._tools = ApiTools(
                self.description,
                self.options,
                self._operations.readable,
                self.definitions,
                reviewed=() if self._locked is None else self._locked.places,
                carrier=self._carrier,
            )
        return self._tools

    @property
    def server(self) -> Server:
        """The server that has the tools. `server.include(api)` mounts it."""
        if self._server is None:
            definitions = [
                self.tools.offered(each) for each in self.definitions if _place(each) not in self._overriding
            ]
            generated: list[ToolBase] = [self.tools.tool(each) for each in definitions]
            if self.options.shape == "bridge":
                for each in generated:
                    each.is_unlisted = True
                self._bridge = ApiBridge(self.name, definitions, generated)
                generated += self._bridge.tools
            resources = [self.tools.resource(each, self.name) for each in self.resources]
            components = [*self._overriding.values(), *generated, *resources]
            self._server = self.tools.server(
                self.name, self.version, components, None if self.watch is None else self.watch.run
            )
        return self._server

    def override(self, operation: str, **options: Unpack[ToolOptions]) -> Callable[[F], F]:
        """Replace the tool of an operation by a function.

        The operation is named by its id, or by method and path.

        A parameter of the type `Operation` gets the call of the operation. Name, description, annotations and tags are
        those of the generated tool, unless the options or the docstring of the function say otherwise. The options
        are those of `server.tool`. An operation that is not chosen gets a tool, too.
        """
        definition = self._operations.definition(self._operations.find(operation))

        def register(function: F) -> F:
            self._put(definition, function, dict(options))
            return function

        return register

    def _put(self, definition: ToolDefinition, function: Callable[..., Any], options: dict[str, Any]) -> None:
        check_options(options, ToolOptions, "override")
        options.setdefault("name", definition.name)
        options.setdefault("title", definition.title)
        options.setdefault("annotations", definition.annotations)
        if not function.__doc__:
            options.setdefault("description", definition.description)
        for name, value in self.tools.component_options(definition).items():
            options.setdefault(name, value)
        call = self.operation(definition.operation.label)
        tool = Tool(with_operation(function, lambda: call), **options)
        if self._bridge is not None:
            self._bridge.leave_out(definition.name)
        if self._server is not None:
            before: Any = self._overriding.get(_place(definition)) or self._server.catalog.tools.get(definition.name)
            if before is not None and before.name != tool.name:
                self._server.remove(before)
            self._server.add(tool)
        self._overriding[_place(definition)] = tool

    def operation(self, operation: str) -> Operation:
        """Return the call of an operation, for a handler.

        The operation is named by its id, or by method and path.
        """
        found = self._calls.get(operation)
        if found is None:
            definition = self._operations.definition(self._operations.find(operation))
            found = self._calls[operation] = self.tools.typed_call(definition)
        return found

    @overload
    async def call(self, operation: str, arguments: Arguments = None, *, returns: type[T]) -> T: ...

    @overload
    async def call(self, operation: str, arguments: Arguments = None, *, returns: Any = None) -> Any: ...

    async def call(self, operation: str, arguments: Arguments = None, *, returns: Any = None) -> Any:
        """Call an operation in a handler of a server that includes the API; see `Operation`.

        The operation need not be chosen. Requests carry the credentials of the handler's caller.
        """
        return await self.operation(operation)(arguments, returns=returns)

    def __repr__(self) -> str:
        return f"<Api {self.name!r}: {len(self.definitions)} tools>"


def _place(definition: ToolDefinition) -> str:
    return f"{definition.operation.method} {definition.operation.path}"


@contextmanager
def _garbage_stays() -> Iterator[None]:
    """Pause the garbage collector while definitions are made.

    It would walk a large document again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- reading ---------------------------------------------------------------------------------------------------------


def _locked(source: SourceLike, lock: str | os.PathLike[str] | None) -> LockedTools | None:
    if lock is not None:
        return LockedTools(lock)
    is_file = isinstance(source, str | os.PathLike) and "://" not in str(source)
    return LockedTools(source) if is_file and is_lock(source) else None  # type: ignore[arg-type]


def _read(
    source: SourceLike,
    overlays: Iterable[SourceLike] | None,
    locked: LockedTools | None,
    base_uri: str | None,
    reach: Reach,
    limits: Limits,
) -> Description:
    if locked is not None and isinstance(source, str | os.PathLike):
        source = _checked_source(source, locked)
    if overlays is None:
        overlays = () if locked is None else locked.overlays
    description = read_description(
        source,
        overlays=overlays,
        base_uri=base_uri,
        reach=reach,
        limits=limits,
        copies=None if locked is None else locked.copies,
    )
    if locked is not None:
        locked.check_documents(description.digests, description.root.retrieved_from)
    for warning in description.warnings:
        log.warning("%s", warning)
    return description


def _checked_source(source: str | os.PathLike[str], locked: LockedTools) -> str:
    """Return the address of the locked description. Raise `DescriptionError` where another one is given."""
    given = os.fspath(source)
    if "://" not in given:
        given = Path(given).resolve().as_uri()
    if given not in (locked.source, locked.path.resolve().as_uri()):
        raise DescriptionError(
            f"{locked.path} is the lock file of {locked.lock.source}, and not of {source}: "
            "name that description, or the lock file alone"
        )
    return locked.source


def _all_of(locked: LockedTools | None, keep: Iterable[Choice] | Choice | None) -> Iterable[Choice] | Choice | None:
    """Return the choice: without one, all that is locked."""
    return ALL if keep is None and locked is not None else keep


def _defaults(settings: Mapping[str, Any], **given: Any) -> OperationSettings:
    known = {name: settings[name] for name in given if name in settings}
    members = {**known, **{name: value for name, value in given.items() if value is not None}}
    try:
        return msgspec.convert(members, OperationSettings)
    except msgspec.ValidationError as error:
        raise ServerError(f"openapi() cannot use its options: {error}") from None
