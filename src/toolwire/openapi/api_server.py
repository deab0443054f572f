"""The tools of an API as a server, which other servers mount."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec

from toolwire.auth.flow.urls import Zone
from toolwire.base_errors import ServerError
from toolwire.http1.pool import Pool
from toolwire.http1.url import origin, parse_url
from toolwire.openapi.access.forwarded_headers import allowed
from toolwire.openapi.access.origins import PermittedPool, is_from_network, permitted_origins
from toolwire.openapi.access.security import ApiSecurity, read_security_schemes
from toolwire.openapi.access.signing import Signer
from toolwire.openapi.answer.answer_drift import AnswerDrift
from toolwire.openapi.answer.answer_parts import answer_parts
from toolwire.openapi.answer.answers import MAX_BYTES, AnswerParts, ApiAnswers
from toolwire.openapi.answer.exchange_records import record_exchange
from toolwire.openapi.answer.response_cache import ResponseCache
from toolwire.openapi.api_options import ApiOptions
from toolwire.openapi.api_pool import ApiPool, OpenPool
from toolwire.openapi.api_resources import operation_resource
from toolwire.openapi.calling import GeneratedTool
from toolwire.openapi.description.operations import root_servers
from toolwire.openapi.description.references import Description
from toolwire.openapi.httpx_pool import HttpxPool, check_client
from toolwire.openapi.model import DescriptionError, OperationObject, ToolDefinition
from toolwire.openapi.operation_calls import Operation, for_code, with_bytes
from toolwire.openapi.operation_tools import ApiConnection, operation_base, operation_tool, server_base
from toolwire.openapi.request.api_rate import ApiRate
from toolwire.server.components import Resource, ResourceTemplate
from toolwire.server.components.options import Options
from toolwire.server.forwarded_headers import spell_header
from toolwire.server.kept_results import KeptResult, KeptResults
from toolwire.server.server import Server

#: Looks at an API now and then, until it is cancelled.
Watch: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class ApiTools:
    """Makes the tools of one API.

    * `operations`: all of the API. Its origins are theirs, and no call leaves them.
    * `chosen`: the definitions of those that become tools.
    * `reviewed`: the operations whose servers a lock file has, as `METHOD /path`.
    * `carrier`: opens what carries requests in place of connections; None for connections.
    """

    def __init__(
        self,
        description: Description,
        options: ApiOptions,
        operations: Iterable[OperationObject],
        chosen: tuple[ToolDefinition, ...],
        *,
        reviewed: Collection[str] = (),
        carrier: OpenPool | None = None,
    ) -> None:
        self._options = options
        known = list(operations)
        self._root_servers = root_servers(description)
        # Links of a 202 name operations by their ids.
        self._paths = {each.operation_id: each.path for each in known if each.operation_id and each.method == "GET"}
        root = description.root
        is_typed = not is_from_network(root.retrieved_from)
        self.security: ApiSecurity = ApiSecurity(
            read_security_schemes(description),
            options.credentials,
            base=root.retrieved_from,
            is_named=is_typed,
            forward_headers=(forwarded := allowed(options.forward_headers, passthrough=options.passthrough)),
        )
        self._forwarded = frozenset(map(spell_header, forwarded))
        if options.tls is not None and self.security.tls is not None:
            raise ServerError("An API has one TLS context: give tls=, or the one of a mutualTLS scheme")
        self._client = None if options.client is None else check_client(options.client)
        self.drift: AnswerDrift = AnswerDrift()
        self._cache = ResponseCache() if options.cache else None
        # The same on every replica.
        self._kept = KeptResults(f"openapi {root.retrieved_from} {description.title}")
        self._carrier = carrier
        self.pool: ApiPool = ApiPool(self._open)
        """The connections of the API on each loop."""
        self._connection = ApiConnection(
            pool=self.pool,
            base_url=options.base_url,
            server=options.server,
            server_variables=options.server_variables,
            max_bytes=MAX_BYTES,
            timeout=options.timeout,
            rate=None if not options.rate else ApiRate(options.rate),
            drift=self.drift,
            ended=record_exchange,
            hold=self._hold,
        )
        self._reviewed = reviewed
        self._home = self._find_home()
        if (service := self._find_service()) is not None:
            self.security.bind_to(service)
        bases = list(self._bases(known, {id(each.operation) for each in chosen}))
        typed = () if is_typed else (root.retrieved_from,)
        self._zones = self._permitted(bases, typed)
        if self._client is not None:
            self._permit_typed_origins(chosen)
        # A client of the operator has secrets, too. They go where credentials go, and not where redirects lead.
        self._client_home = self._home & {service, *(origin(base) for _, base in bases)}
        self._connection.origins = frozenset(self._zones)

    def _hold(self) -> Callable[[], None]:
        return partial(self.pool.end, self.pool.begin())

    def _bases(self, operations: list[OperationObject], chosen: set[int]) -> Iterator[tuple[OperationObject, str]]:
        """Yield one operation for each server of the API, with its URL.

        Raises where the URL of a chosen operation is wrong.
        """
        known: set[int] = set()
        for each in operations:
            # Most operations share the servers of the document.
            if id(each.servers) in known:
                continue
            try:
                yield each, operation_base(each, self._connection)
                known.add(id(each.servers))
            except DescriptionError:
                if id(each) in chosen:
                    raise

    def _find_service(self) -> str | None:
        """Return the origin of the server in use; None if operations have different ones."""
        try:
            return origin(server_base(self._root_servers, self._connection, "the description"))
        except DescriptionError:
            return None

    def _find_home(self) -> frozenset[str]:
        """Return the origins of the root servers, and those that the operator names."""
        found = {self._named_origin(each) for each in self._options.origins}
        for each in self._root_servers:
            try:
                found.add(origin(server_base((each,), self._connection, "the description")))
            except DescriptionError:  # Nothing is served there, or the operator chose another one.
                continue
        return frozenset(found)

    def _named_origin(self, url: str) -> str:
        try:
            parse_url(url)
        except ValueError:
            raise ServerError(f"origins= has URLs such as https://api.example.com, not {url!r}") from None
        return origin(url)

    def _permitted(self, bases: list[tuple[OperationObject, str]], typed: tuple[str, ...]) -> dict[str, Zone]:
        zones = permitted_origins(bases, base_url=self._options.base_url, typed=typed)
        return zones | {self._named_origin(each): Zone.NAMED for each in self._options.origins}

    def _permit_typed_origins(self, chosen: tuple[ToolDefinition, ...]) -> None:
        """Permit only origins that the operator typed.

        A client of the operator resolves names itself, unseen.
        """
        self._zones = {each: zone for each, zone in self._zones.items() if zone is Zone.NAMED}
        for each in chosen:
            found = origin(operation_base(each.operation, self._connection))
            if found not in self._zones:
                raise DescriptionError(
                    f"{each.operation.label}: its server {found} is the choice of a description from the network, and "
                    f"client= would go wherever that leads: give base_url=, or origins=[{found!r}]"
                )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Pool]:
        options = self._options
        async with AsyncExitStack() as stack:
            carrier: Pool | None = None
            if self._carrier is not None:
                carrier = await stack.enter_async_context(self._carrier())
            elif self._client is not None:
                carrier = await stack.enter_async_context(HttpxPool(self._client, self._client_home))
            tls = options.tls or self.security.tls
            permitted = PermittedPool(self._zones, pool=carrier, tls=tls, proxy=options.proxy)
            yield await stack.enter_async_context(permitted)

    @contextmanager
    def carried_by(self, carrier: OpenPool) -> Iterator[None]:
        """Send the requests of servers that start meanwhile through another pool.

        Tests use it for stubs.
        """
        before, self._carrier = self._carrier, carrier
        try:
            yield
        finally:
            self._carrier = before

    # --- tools ---

    def tool(self, definition: ToolDefinition) -> GeneratedTool:
        """Make the tool of a definition."""
        return operation_tool(
            self.offered(definition),
            self._connection,
            signer=self._signer(definition.operation),
            parts=self._parts(definition),
            **self.component_options(definition),
        )

    def offered(self, definition: ToolDefinition) -> ToolDefinition:
        """Return a definition as callers see it: without arguments for headers that they send themselves."""
        return without_headers(definition, self._forwarded)

    def component_options(self, definition: ToolDefinition) -> Options:
        """Return the options that the tool of an operation has as a component."""
        operation = definition.operation
        made: Options = {
            "tags": [_tag(each) for each in operation.tags if each.strip()],
            "scopes": tuple(self._scopes(definition)),
        }
        return {**made, **self._given(operation)}

    def resource(self, definition: ToolDefinition, api: str) -> Resource | ResourceTemplate:
        """Make the resource of a definition. `api` is the title of the API."""
        return operation_resource(self.typed_call(definition), api, self.component_options(definition))

    def typed_call(self, definition: ToolDefinition) -> Operation:
        """Make the call of an operation for code that is written by hand."""
        whole = for_code(definition, self._connection.max_bytes)
        tool = operation_tool(
            whole,
            self._connection,
            signer=self._signer(definition.operation),
            parts=lambda answers: with_bytes(answers, self._parts(whole)(answers), is_kept=self._cache is not None),
        )
        return Operation(whole, tool)

    def _signer(self, operation: OperationObject) -> Signer | None:
        """Return the signer of an operation. Raise `DescriptionError` for a foreign origin."""
        signer = self.security.signer(operation)
        foreign = self._foreign_origin(operation, signer)
        if foreign is not None and f"{operation.method} {operation.path}" not in self._reviewed:
            raise DescriptionError(
                f"{operation.label}: its server {foreign} is not one of the whole API, and would get its credentials: "
                f"give origins=[{foreign!r}] if it may have them, or base_url=, or leave the operation out by drop=. "
                "A server that you reviewed in a lock file may have them, too: `toolwire openapi add` writes one"
            )
        return signer

    def foreign_origin(self, operation: OperationObject) -> str | None:
        """Return the origin that only this operation sends credentials to; None where there is none.

        A description can name servers for one operation or one path. The origins of the whole API are those of its
        root servers, `base_url=` and `origins=`.
        """
        return self._foreign_origin(operation, self.security.signer(operation))

    def _foreign_origin(self, operation: OperationObject, signer: Signer | None) -> str | None:
        has_secret = signer is not None or self.security.tls is not None
        if not has_secret or self._options.base_url is not None or operation.servers == self._root_servers:
            return None
        found = origin(operation_base(operation, self._connection))
        return None if found in self._home else found

    def _parts(self, definition: ToolDefinition) -> Callable[[ApiAnswers], AnswerParts]:
        return lambda answers: answer_parts(answers, definition, self._kept, cache=self._cache, paths=self._paths)

    def _given(self, operation: OperationObject) -> Options:
        """Return the options of a component that a person gave for an operation."""
        given = self._options.tool_options
        found = given.get(operation.label) or given.get(f"{operation.method} {operation.path}") or {}
        return cast("Options", found)

    def _scopes(self, definition: ToolDefinition) -> Iterable[str]:
        """Return the scopes that a caller of an operation needs."""
        if self._options.require_scopes is None:
            return self.security.caller_scopes(definition.operation)
        return definition.scopes if self._options.require_scopes else ()

    def server(self, name: str, version: str, components: list[Any], watch: Watch | None) -> Server:
        """Make the server that has the tools.

        Its lifespan is that of the connections, and of a watch over the API.
        """

        @asynccontextmanager
        async def lifespan(server: Server) -> AsyncIterator[None]:
            async with self.pool.held(), _running(watch):
                yield

        made = Server(name, version=version or "1.0.0", lifespan=lifespan)
        return made.add([*components, KeptResult(self._kept.place)])


@asynccontextmanager
async def _running(watch: Watch | None) -> AsyncIterator[None]:
    """Watch an API meanwhile."""
    if watch is None:
        yield
        return
    task = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def without_headers(definition: ToolDefinition, names: frozenset[str]) -> ToolDefinition:
    """Return a definition without arguments for headers that come from the caller's own request.

    `names` are spelled by `spell_header`. Otherwise a model could send another value than the caller did. The settings
    of an operation may `ask` for one.
    """
    asked = definition.settings.ask or ()
    hidden = {
        each.name
        for each in definition.arguments
        if each.parameter is not None
        and each.parameter.location == "header"
        and spell_header(each.parameter.name) in names
        and each.parameter.name not in asked
    }
    if not hidden:
        return definition
    return msgspec.structs.replace(
        definition,
        arguments=tuple(each for each in definition.arguments if each.name not in hidden),
        input_schema=_without_members(definition.input_schema, hidden),
        whole_input_schema=lambda: _without_members(definition.argument_schema(), hidden),
    )


def _without_members(schema: dict[str, Any], names: set[str]) -> dict[str, Any]:
    left = {name: each for name, each in schema.get("properties", {}).items() if name not in names}
    needed = [name for name in schema.get("required", ()) if name not in names]
    result = {key: value for key, value in schema.items() if key != "required"} | {"properties": left}
    return {**result, "required": needed} if needed else result


def _tag(tag: str) -> str:
    """Turn a tag of the description into a component's tag, which has no spaces."""
    return "-".join(tag.split())
