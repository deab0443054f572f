"""The methods of the protocol on a server: what each does once a request is let in.

`handler_runner` runs the handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire import logs
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ProtocolError,
    ResourceNotFound,
    counted,
)
from toolwire.protocol.lifecycle import SUPPORTED, missing_extensions
from toolwire.protocol.revisions import MODERN
from toolwire.server.access import Access, View, client_key
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.catalog import Catalog, Found, Seen, Sees
from toolwire.server.completion import matching
from toolwire.server.components import Cache, Component, Resource
from toolwire.server.extensions import AnyMethod
from toolwire.server.failures import Failures, as_revision_has_it
from toolwire.server.handler_runner import HandlerRunner
from toolwire.server.limits import Limits
from toolwire.server.list_pages import Pages
from toolwire.server.lowlevel import LowLevel
from toolwire.server.middleware import Operation
from toolwire.server.offer import ServerOffer, mark_restricted
from toolwire.server.results import Results
from toolwire.server.settings import Settings
from toolwire.server.subscriptions import LegacyClient, listen
from toolwire.server.upstream_views import list_notes

if TYPE_CHECKING:
    from toolwire.server.tool_search import ToolSearch

LISTEN: Final = "subscriptions/listen"


class MethodParts(Protocol):
    """The parts of the kernel that methods work with."""

    catalog: Catalog
    lowlevel: LowLevel
    offer: ServerOffer
    access: Access
    failures: Failures
    runner: HandlerRunner
    results: Results
    settings: Settings

    @property
    def limits(self) -> Limits: ...

    async def call_found(self, call: Call, found: Found[Any]) -> Any:
        """Call a tool that became known after the policies of the call were looked up."""

    @property
    def tool_search(self) -> ToolSearch:
        """The search for tools, made at the first use."""


class Methods:
    """The methods of a server; `operations` has them by their names on the wire."""

    def __init__(self, parts: MethodParts) -> None:
        self._parts = parts
        self._catalog = parts.catalog
        self._access = parts.access
        self._failures = parts.failures
        self._lowlevel = parts.lowlevel
        self._runner = parts.runner
        self.pages: Pages = Pages(parts.catalog, lambda: parts.settings.page_size, lambda: parts.settings.limits.result)
        self.results_are_read: bool = False
        """Whether somebody else's code looks at results before they go on the wire."""
        self.operations: dict[str, Operation] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            LISTEN: self._listen,
            **dict.fromkeys(
                ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"), self._about_tasks
            ),
        }

    @property
    def cache(self) -> Cache:
        """The hint for lists and resources that have none of their own."""
        return self._parts.settings.cache

    # --- tools ---

    def _call_tool(self, call: Call) -> Awaitable[Any]:
        params: t.CallToolRequestParams = call.request.params
        found = self._catalog.tool(params.name, self._sees(call) if self._access.active else None)
        if found is None:
            return self._call_unlisted(call, params)
        if self._access.active and call.target is None:
            # What is kept of the result is for those who may use this tool, whatever has its name later.
            call.target = CallTarget("tools/call", params.name, params, found)
        component = found.component
        if component.task is not None or params.task is not UNSET:
            handled: Awaitable[Any] = call.work.tasks.tool_called(call, found)
            return handled
        if component.has_foreign_tasks:
            return component.run_elsewhere(self._runner, call, found)
        return self._runner.run(call, found, params.name, component.call(call, params.arguments))

    async def _call_unlisted(self, call: Call, params: t.CallToolRequestParams) -> Any:
        """Call a tool that is not in the catalogue: one of the low-level handlers, or none at all."""
        judged: CallTarget | None = call.target
        if judged is not None and judged.found is not None and judged.found.component.is_unlisted:
            found: Found[Any] | None = judged.found
        else:
            found = self._catalog.unlisted_component("tools", params.name)
        try:
            if self._lowlevel.active:
                if judged is not None and judged.found is not None:
                    found = judged.found
                else:
                    found = await self._failures.in_time(call, self._lowlevel.find(params.name, call), "tools/list")
        except Exception as error:
            return await self._failures.answer(call, error, f"the tool {params.name[:200]}")
        if found is None:
            late = await self._look_again(call, params.name)
            if late is not None:
                return await self._parts.call_found(call, late)
            raise ProtocolError(INVALID_PARAMS, f"Unknown tool: {params.name[:200]}{self._absence(call, params.name)}")
        if found.component.task is not None or params.task is not UNSET:
            return await call.work.tasks.tool_called(call, found)
        return await self._runner.run(call, found, params.name, found.component.call(call, params.arguments))

    async def _look_again(self, call: Call, name: str) -> Found[Any] | None:
        """Look for a tool once more, after the upstreams that may have it were asked for their lists."""
        waits = self._catalog.look_again(call, name) if self._catalog.followers and call.outer is None else []
        if not waits:
            return None
        await asyncio.gather(*waits)
        return self._catalog.tool(name, self._sees(call))

    def _absence(self, call: Call, name: str) -> str:
        """Return why a tool or prompt may be unknown; empty where everything is known."""
        missing = " or ".join(map(repr, self._catalog.missing_for(name, self._sees(call))))
        return f" (the list of the server {missing} is missing, or not whole: try again later)" if missing else ""

    async def _about_tasks(self, call: Call) -> Any:
        return await call.work.tasks.handle(call)

    async def _list_tools(self, call: Call) -> Any:
        if self._lowlevel.lists:
            try:
                tools = await self._failures.in_time(call, self._lowlevel.listed(call), "tools/list")
            except Exception as error:
                return await self._failures.answer(call, error, "the list of tools")
            result = t.ListToolsResult(tools=tools)
            return self._cached(result, self._private(self.cache) if self._lowlevel.looks_at_caller else None)
        if self._catalog.awaited:
            await self.follow(call)
        view: Seen | None = self.view(call)
        is_for_all = True
        if call.settings.search is not None:
            # Other clients of the same caller get other lists.
            view, is_for_all = self._parts.tool_search.view_for(call) or view, False
        return self._listed(
            call,
            "tools",
            lambda items, cursor: t.ListToolsResult(tools=items, next_cursor=cursor),
            view,
            is_for_all=is_for_all,
        )

    # --- resources ---

    async def _list_resources(self, call: Call) -> Any:
        if self._catalog.followers:
            await self.follow(call)
        return self._listed(
            call,
            "resources",
            lambda items, cursor: t.ListResourcesResult(resources=items, next_cursor=cursor),
            self.view(call),
        )

    async def _list_templates(self, call: Call) -> Any:
        if self._catalog.followers:
            await self.follow(call)
        return self._listed(
            call,
            "templates",
            lambda items, cursor: t.ListResourceTemplatesResult(resource_templates=items, next_cursor=cursor),
            self.view(call),
        )

    async def _read_resource(self, call: Call) -> Any:
        uri = call.params.uri
        sees = self._sees(call)
        found: Found[Any] | None = self._catalog.resource(uri, sees)
        if found is not None:
            resource = found.component
            contents = await self._runner.run(call, found, uri, resource.read(call, uri))
        else:
            matched = self._catalog.template(uri, sees) or self._catalog.unlisted(uri, self.usable(call))
            if matched is None:
                # RES-2: never an empty list.
                raise as_revision_has_it(call, ResourceNotFound())
            found, variables = matched
            resource = found.component
            contents = await self._runner.run(call, found, uri, resource.read(call, uri, variables))
        if not isinstance(contents, list):
            return contents
        hint = call.cache_hint or resource.cache or self.cache
        if hint.scope == "public" and self.depends_on_caller(found):
            hint = self._private(hint)
        return self._cached(t.ReadResourceResult(contents=contents), hint)

    def depends_on_caller(self, found: Found[Any]) -> bool:
        """Return whether a component is not for everybody, or not the same for everybody."""
        demand = self._access.demand(found)
        servers = (self._catalog.owner, *(mount.catalog.owner for mount in found.way))
        policies = (
            *(each.policy for each in servers),
            *(mount.policy for mount in found.way),
            found.component.policy,
            *(each.policy for each in _originals(found.component)),
        )
        differ = any(each is not None and each.by_principal is not None for each in policies)
        return bool(demand.audiences or demand.scopes or differ)

    async def _subscribe(self, call: Call) -> Any:
        client = _client_of(call)
        if self._access.active and not self._access.hears(
            call.request, call.outlet, Change("updated", call.params.uri)
        ):
            return t.Result()  # The same answer as for an address without a resource.
        if len(client.uris) >= self._parts.limits.uris and call.params.uri not in client.uris:
            raise ProtocolError(
                INVALID_PARAMS, f"At most {counted(self._parts.limits.uris, 'resource')} can be subscribed to at once"
            )
        client.uris.add(call.params.uri)
        self._access.note_subscription(call.principal, call.outlet.is_local, call.params.uri)
        await call.work.hub.subscribed(client, call.params.uri, call.request.caller)
        return t.Result()

    async def _unsubscribe(self, call: Call) -> Any:
        _client_of(call).uris.discard(call.params.uri)
        call.work.hub.watching_changed()
        return t.Result()

    # --- prompts and completions ---

    async def _list_prompts(self, call: Call) -> Any:
        if self._catalog.followers:
            await self.follow(call)
        return self._listed(
            call,
            "prompts",
            lambda items, cursor: t.ListPromptsResult(prompts=items, next_cursor=cursor),
            self.view(call),
        )

    async def _get_prompt(self, call: Call) -> Any:
        params: t.GetPromptRequestParams = call.params
        found = self._catalog.prompt(params.name, self._sees(call))
        if found is None:
            found = self._catalog.unlisted_component("prompts", params.name)
        if found is None:
            absence = self._absence(call, params.name)
            raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {params.name[:200]}{absence}")
        prompt = found.component
        values = _strings(params.arguments)
        return await self._runner.run(call, found, params.name, prompt.get(call, values))

    async def _complete(self, call: Call) -> Any:
        params: t.CompleteRequestParams = call.params
        reference, argument = params.ref, params.argument.name
        is_prompt = isinstance(reference, t.PromptReference)
        name = reference.name if is_prompt else reference.uri  # type: ignore[union-attr]
        # The component is looked up first, because only servers on the way to it may suggest values.
        target = target_of(call)
        found = None if target is None else target.found
        if found is None:
            # 1.9.4: an unknown prompt, template or argument is an error.
            raise ProtocolError(
                INVALID_PARAMS, f"Unknown {'prompt' if is_prompt else 'resource template'}: {name[:200]}"
            )
        kind = "ref/prompt" if is_prompt else "ref/resource"
        suggesting = self._catalog.completion(kind, name, argument, found.way)
        if suggesting is None:
            choices = _choices(found, name, argument)
            return t.CompleteResult(completion=matching(choices, params.argument.value))
        completion, owner = suggesting
        call.owner = owner
        context = {} if params.context is UNSET or params.context.arguments is UNSET else params.context.arguments
        what = f"the completion of {argument[:200]}"
        try:
            suggested = completion.complete(call, params.argument.value, context)
            return t.CompleteResult(completion=await self._failures.in_time(call, suggested, what, guarded=True))
        except Exception as error:
            return await self._failures.answer(call, error, what)

    # --- logging ---

    async def _set_level(self, call: Call) -> Any:
        _client_of(call).level = call.params.level
        if call.outlet.is_local:
            # On stdio there is one client, so a log handler that the program installed follows its level. Over HTTP
            # there are many clients, and none of them may silence or flood the log of the operator.
            logs.set_level(call.params.level)
        client = client_key(call.request, call.outlet)
        if self._catalog.followers and client is not None:
            await call.work.hub.hand_on_level(client, call.params.level)
        return t.Result()

    # --- subscriptions ---

    async def _listen(self, call: Call) -> Any:
        tasks = call.params.notifications.task_ids
        if tasks is UNSET or not self._parts.offer.has_tasks():
            return await self._open_stream(call, {})
        async with call.work.tasks.listening(call, tasks) as more:
            return await self._open_stream(call, more)

    def _open_stream(self, call: Call, more: Mapping[str, Any]) -> Awaitable[t.SubscriptionsListenResult]:
        request, outlet = call.request, call.outlet
        elsewhere = self._catalog.unknown_servers(self.usable(call), request.capabilities)
        uris = call.params.notifications.resource_subscriptions
        for uri in () if uris is UNSET else uris[: self._parts.limits.uris]:
            self._access.note_subscription(call.principal, outlet.is_local, uri)
        return listen(
            call,
            call.work.hub,
            self._parts.limits,
            self._parts.offer.capabilities(MODERN),
            self._catalog.all_extensions(),
            more=more,
            hears=lambda change: self._access.hears(request, outlet, change),
            elsewhere=[found.component for found in elsewhere],
        )

    # --- extensions ---

    async def call_extension(self, call: Call) -> Any:
        """Serve a method that is not one of the protocol."""
        sees = self._sees(call)
        found = self._catalog.extension_method(call.method, sees, call.request.capabilities)
        if found is None:
            self._require_declaration(call.method, self._catalog.unknown_methods(call.method, sees))
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {self._parts.offer.repeat(call.method[:200])}")
        call.owner = found.owner
        try:
            return await self._failures.in_time(call, found.component.handle(call), call.method, guarded=True)
        except Exception as error:
            return await self._failures.answer(call, error, call.method)

    def _require_declaration(self, method: str, ways: Sequence[Found[AnyMethod]]) -> None:
        """EXT-2: tell a client which extension it has to declare, where the name of a method says that."""
        likelihood = ways[0].component.likelihood(method) if ways else 0
        if likelihood:
            likeliest = [each for each in ways if each.component.likelihood(method) == likelihood]
            repeat = self._parts.offer.repeat
            identifiers = [repeat(each.component.extension.identifier) for each in likeliest]
            raise missing_extensions(repeat(method[:200]), identifiers)

    # --- lists ---

    async def _discover(self, call: Call) -> Any:
        offer = self._parts.offer
        capabilities, instructions = offer.capabilities(MODERN), offer.instructions
        cache: Cache | None = None
        if self._access.restricts:
            if call.principal is None and call.outlet.is_local:
                capabilities = mark_restricted(capabilities)
            elif offer.has_remote_parts:
                sees = self._access.view_of(call.principal).sees
                capabilities, instructions = offer.seen_capabilities(capabilities, sees), offer.seen_instructions(sees)
                cache = self._private(self.cache)
        result = t.DiscoverResult(
            supported_versions=list(SUPPORTED), capabilities=capabilities, instructions=instructions
        )
        return self._cached(result, cache)

    def view(self, call: Call) -> View | None:
        """Return what the caller sees; None for everything."""
        return self._access.view(call.request, call.outlet) if self._access.active else None

    def _sees(self, call: Call) -> Sees | None:
        view = self.view(call)
        return None if view is None else view.sees

    def usable(self, call: Call) -> Sees | None:
        """Return what says of a component whether the caller may use it; None where nothing is restricted."""
        return self._access.usable(call.request.principal, call.outlet.is_local) if self._access.active else None

    async def follow(self, call: Call) -> None:
        """Wait, for a short time, for components of other servers that may have changed without a word.

        Raise an error where the server is strict, and components of another server are missing.
        """
        catalog = self._catalog
        waits = [wait for each in catalog.awaited if (wait := each.freshen()) is not None]
        if waits:
            await asyncio.gather(*waits)
        if catalog.is_strict and (missing := catalog.missing(self.view(call))):
            text = f"The list is not complete: {', '.join(missing)} cannot be reached. Try again later"
            raise ProtocolError(INTERNAL_ERROR, text)

    def _listed(
        self,
        call: Call,
        kind: str,
        result: Callable[[list[Any], Any], Any],
        view: Seen | None = None,
        *,
        is_for_all: bool = True,
    ) -> Any:
        """Answer a list as the callers with a view get it. `is_for_all`: nothing else decides what it has."""
        revision = call.revision
        # The server never gives out "" as a cursor. Some clients send "" when they have no cursor.
        cursor = call.params.cursor or None
        # What another server calls public is not, unless the operator trusts it.
        is_shared = is_for_all and view is None and all(each.is_public for each in self._catalog.followers)
        cache = None if is_shared else self._private(self.cache)

        def answer(items: list[Any], following: str | None, left_out: list[str]) -> Any:
            if left_out and self._catalog.is_strict:
                text = f"The list is not complete: that of {', '.join(left_out)} is too large"
                raise ProtocolError(INTERNAL_ERROR, text)
            listed = result(items, UNSET if following is None else following)
            notes = list_notes(self._catalog, view)
            if left_out:
                notes[MISSING_KEY] = list(dict.fromkeys((*notes.get(MISSING_KEY, ()), *left_out)))
            listed.meta = notes or UNSET
            return self._cached(listed, cache)

        def finished(items: list[Any], following: str | None, left_out: list[str]) -> Any:
            return self._parts.results.finish(revision, answer(items, following, left_out))

        if self.results_are_read:
            return answer(*self.pages.page(kind, revision, cursor, finished, view))
        return self.pages.get(kind, revision, cursor, finished, view)

    @staticmethod
    def _private(hint: Cache) -> Cache:
        """CCH-4: make a hint private, because the answer depends on the caller and must not be kept for others."""
        return Cache(hint.ttl_ms, "private")

    def _cached(self, result: Any, cache: Cache | None = None) -> Any:
        # CCH-1: every complete result of these methods says how long it may be kept.
        hint = cache or self.cache
        result.ttl_ms, result.cache_scope = hint.ttl_ms, hint.scope
        return result


def _originals(component: Component) -> Iterator[Component]:
    """Yield the components that a component is a shape of."""
    while component.original is not None:
        component = component.original
        yield component


def _client_of(call: Call) -> LegacyClient:
    client = getattr(call.outlet.connection, "state", None)
    if not isinstance(client, LegacyClient):
        raise ProtocolError(METHOD_NOT_FOUND, f"{call.method} needs a connection")
    return client


def _choices(found: Found[Any], name: str, argument: str) -> Sequence[str]:
    """Return the values that the type of an argument allows, where no function suggests any."""
    component = found.component
    if isinstance(component, Resource):
        return ()  # A resource has no arguments, but some clients ask.
    if argument not in component.completable:
        raise ProtocolError(INVALID_PARAMS, f"{name[:200]} has no argument {argument[:200]!r}")
    choices: Sequence[str] = component.choices.get(argument, ())
    return choices


_decode_strings = msgspec.json.Decoder(dict[str, str] | None).decode


def _strings(arguments: Raw | UnsetType) -> dict[str, str]:
    # 1.11.3: the arguments of a prompt are texts, in every revision.
    if arguments is UNSET:
        return {}
    try:
        return _decode_strings(arguments) or {}
    except (msgspec.DecodeError, RecursionError):
        raise ProtocolError(INVALID_PARAMS, "The arguments of a prompt are texts") from None
