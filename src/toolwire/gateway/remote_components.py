"""Components that live at another server: its definitions, listed here, and its answers, handed on."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.client.connection import CEILING_SECONDS
from toolwire.gateway.linked_uris import (
    URI_MARK,
    LinkedUris,
    find_link,
    find_namers,
    is_link_of_another,
    may_be_secret,
    origin_of,
)
from toolwire.gateway.relaying import Answer, Relay
from toolwire.gateway.remote_schemas import find_fault
from toolwire.gateway.sent_request import Sent, sent_with
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.apps import is_view
from toolwire.protocol.errors import (
    InvalidResponse,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    ToolError,
)
from toolwire.protocol.open_codec import exact_meta, replace_members
from toolwire.protocol.parameter_headers import BadHeader, header_paths, parameter_headers
from toolwire.protocol.revisions import MODERN, is_modern
from toolwire.protocol.tasks import Verdict
from toolwire.protocol.uri_template import UriTemplate
from toolwire.server.binding.results import OpenResult
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.catalog import Found
from toolwire.server.completion import Completion
from toolwire.server.components import Prompt, Resource, ResourceTemplate, ToolBase
from toolwire.server.components.base import checked_name
from toolwire.server.components.tools import Runner, as_object, is_of_objects, output_schema_for
from toolwire.server.foreign_tasks import TaskHost
from toolwire.server.judgements import Judgement
from toolwire.server.kept_results import SCHEME as KEPT_SCHEME
from toolwire.server.kernel import Kernel
from toolwire.server.replay_state import principal_key
from toolwire.server.upstream_views import servers_on

log: logging.Logger = logging.getLogger("toolwire.gateway")

R = TypeVar("R", bound=t.Result)

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_arguments = msgspec.json.Decoder(dict[str, Raw] | None).decode
_encode = msgspec.json.encode
#: The seconds of a handler whose request has no deadline: ten years.
UNLIMITED: Final = 10.0 * 365 * 24 * 3600
_PRIVATE: Final = Raw(b'"private"')
_NO_META: Final = Raw(b"{}")
# `_meta` of a result is signed once while it is at most this long.
_SHORT_META: Final = 2048
# Results of unknown tools are short: one sentence.
_SHORT: Final = 500
_UNKNOWN: Final = re.compile(rb"unknown tool|not found", re.IGNORECASE)
#: How many upstreams an error names that may have a URI.
MAX_NAMED: Final = 3


class ToolTasks(Protocol):
    """The tasks of another server, as far as its tools need them (see `gateway.remote_tasks`)."""

    async def call(
        self,
        call: Call,
        tool: RemoteTool,
        sent: Sent,
        headers: Callable[[], Mapping[str, str]],
        way: Verdict,
        host: TaskHost,
    ) -> Any:
        """Call a tool as the client asked for it: as a call, as a task, or as the server likes."""


class Home(Protocol):
    """The server that has the components of another server."""

    relay: Relay
    trusts: bool
    """Whether what the other server calls public is public."""
    origins: frozenset[str]
    """The origins of the addresses that the other server lists."""
    shows_views: bool
    """Whether views of the other server are offered."""
    links: LinkedUris
    """The addresses that results of the other server name."""
    reads_directories: bool
    """Whether the other server declares that it reads directories of skills."""
    uris: UriNames
    """The URIs of the other server that are renamed here."""

    @property
    def answers_pings(self) -> bool:
        """Return whether pings of hosts that show its views are answered on 2026-07-28."""

    @property
    def tool_tasks(self) -> ToolTasks: ...

    def task_support(self, definition: t.Tool) -> t.TaskSupport | None:
        """Return whether calls of a tool may, or must, be tasks of the other server; None for never."""

    def listed_tool(self, key: str) -> ToolBase | None:
        """Return the tool that is listed under a key now."""


def handler_seconds(relay: Relay) -> float:
    """Return the time of a handler here. The time of the request itself is shorter, and its error names the server."""
    return UNLIMITED if relay.timeout is None else CEILING_SECONDS + relay.timeout


class RemoteTool(ToolBase):
    """A tool of another server."""

    has_foreign_tasks = True

    def __init__(self, home: Home, definition: t.Tool, key: str) -> None:
        self._home = home
        self.remote: t.Tool = definition
        self.upstream_name: str = definition.name
        self.name: str = checked_name(key, "tool")
        self.key: str = self.name
        self.annotations: t.ToolAnnotations | UnsetType = definition.annotations
        self.task: t.TaskSupport | None = home.task_support(definition)
        self.needs_task: bool = False
        """Whether a modern server refused a call of the tool that could not be a task."""
        self.input_schema: dict[str, Any] = definition.input_schema
        output = definition.output_schema
        self.output_schema: dict[str, Any] | None = None if output is UNSET else output
        for member, schema in (("inputSchema", self.input_schema), ("outputSchema", self.output_schema)):
            if schema is not None and (fault := find_fault(schema)) is not None:
                raise ServerError(f"{member}: {fault}")
        self.wraps: bool = self.output_schema is not None and not is_of_objects(self.output_schema)
        try:
            self.headers: Mapping[str, tuple[str, ...]] = header_paths(definition.input_schema)
        except BadHeader as error:
            # XMH-6: clients leave out a tool with such a mark.
            raise ServerError(str(error)) from None
        super().__init__(
            None,
            title=_given(definition.title),
            description=_given(definition.description),
            timeout=handler_seconds(home.relay),
        )

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    def definition(self, revision: str) -> t.Tool:
        remote = self.remote
        execution = UNSET if self.task is None else t.ToolExecution(task_support=self.task)
        changes: dict[str, Any] = {"name": self.name, "execution": execution}
        if remote.output_schema is not UNSET:
            changes["output_schema"] = output_schema_for(remote.output_schema, revision)
        if remote.meta is not UNSET and self._home.uris.active:
            changes["meta"] = self._home.uris.in_meta(remote.meta)
        return replace_members(remote, **changes)

    def run_elsewhere(self, runner: Runner, call: Call, found: Any) -> Coroutine[Any, Any, Any]:
        request = call.request
        if (
            request.revision == MODERN
            and call.guard is None
            and call.asking is None
            and call.outer is None
            and request.params.request_state is UNSET
        ):
            call.owner = found.owner
            return self._run(runner, call)
        return super().run_elsewhere(runner, call, found)

    async def _run(self, runner: Runner, call: Call) -> Any:
        """Run a call that asks nothing here.

        It needs no deadline of a handler, because its request has one.
        """
        home = self._home
        try:
            sent, headers = self._sent(call, raw := call.request.params.arguments), None
            if self.headers:
                headers = partial(self._repeated, raw)
            result = self.outcome(call, await home.relay.send(call, "tools/call", sent, headers))
            if home.links.urgent:
                await home.links.wait_for_writes()
            return result
        except BaseException as error:
            return await runner.failed(call, self, self.name, error)

    async def call(self, call: Call, raw: Raw | UnsetType) -> Any:
        sent = self._sent(call, raw)
        headers = partial(self._repeated, raw)
        result = self.outcome(call, await self._home.relay.send(call, "tools/call", sent, headers))
        await self._home.links.wait_for_writes()
        return result

    async def call_elsewhere(self, call: Call, raw: Raw | UnsetType, way: Verdict, host: TaskHost) -> Any:
        sent = self._sent(call, raw)
        return await self._home.tool_tasks.call(call, self, sent, lambda: self._repeated(raw), way, host)

    def _sent(self, call: Call, raw: Raw | UnsetType) -> Sent:
        sent = sent_with(call, "tools/call")
        members = sent.members
        members["name"] = self.remote.name
        if raw is not UNSET:
            members["arguments"] = raw
        else:
            members.pop("arguments", None)
        return sent

    def outcome(self, call: Call, answer: Answer) -> Any:
        """Return the result of a call in the form in which the kernel finishes it."""
        members = answer.members
        if (
            (members is None or "isError" in members)
            and len(answer.raw) < _SHORT
            and _says_unknown(bytes(answer.raw), self.remote.name)
        ):
            self._home.relay.refresh_lists_soon()
        result = handed_on(call, answer, OpenResult, self._home)
        if type(result) is Raw:
            return result
        is_wrapped = isinstance(result, t.CallToolResult) and not call.request.modern
        if is_wrapped and result.structured_content is not UNSET:
            wraps = self.wraps and answer.connection.modern
            result.structured_content = as_object(result.structured_content, wraps, call.revision)
        return result

    def _repeated(self, raw: Raw | UnsetType) -> dict[str, str]:
        """Return the headers that repeat arguments, by the newest definition of the tool (XMH-2)."""
        paths = (self._home.listed_tool(self.key) or self).headers
        return parameter_headers(paths, msgspec.json.decode(raw)) if paths and raw is not UNSET else {}


def _says_unknown(result: bytes, name: str) -> bool:
    """Return whether a short result looks like that of a server which answers unknown tools with `isError`."""
    return b'"isError"' in result and name.encode() in result and bool(_UNKNOWN.search(result))


class RemotePrompt(Prompt):
    """A prompt of another server."""

    def __init__(self, home: Home, definition: t.Prompt, key: str) -> None:
        self._home = home
        self.remote: t.Prompt = definition
        arguments = () if definition.arguments is UNSET else definition.arguments
        super().__init__(name=key, messages=(), arguments=arguments, timeout=handler_seconds(home.relay))
        self.title: str | None = _given(definition.title)
        self.description: str | None = _given(definition.description)

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    def definition(self, revision: str) -> t.Prompt:
        return replace_members(self.remote, name=self.name)

    async def get(self, call: Call, values: dict[str, str]) -> Any:
        sent = sent_with(call, "prompts/get")
        sent.members["name"] = self.remote.name
        if "arguments" in sent.members:
            # Of a name that is there twice, the last value was judged, and it alone is handed on.
            sent.members["arguments"] = _decode_arguments(sent.members["arguments"])
        elif values:
            sent.members["arguments"] = values
        answer = await self._home.relay.send(call, "prompts/get", sent)
        return await hand_on(call, answer, t.GetPromptResult, self._home)


class RemoteResource(Resource):
    """A resource of another server."""

    def __init__(self, home: Home, definition: t.Resource) -> None:
        self._home = home
        self.remote: t.Resource = definition
        super().__init__(
            home.uris.public(definition.uri),
            content="",
            name=definition.name or None,
            timeout=handler_seconds(home.relay),
        )
        self.upstream_key: str | None = definition.uri
        self.title: str | None = _given(definition.title)
        self.description: str | None = _given(definition.description)

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    def definition(self, revision: str) -> t.Resource:
        return replace_members(self.remote, uri=self.uri)

    async def read(self, call: Call, uri: str) -> Any:
        return await read_elsewhere(self._home, call, self.remote.uri)


class RemoteTemplate(ResourceTemplate):
    """A resource template of another server."""

    def __init__(self, home: Home, definition: t.ResourceTemplate) -> None:
        self._home = home
        self.remote: t.ResourceTemplate = definition
        text = home.uris.public_template(definition.uri_template)
        super().__init__(
            text,
            # Clients expand any template. URIs of one that cannot be matched, or has no scheme, are read as unlisted.
            _elsewhere if _can_match(text) and _has_scheme(text) else None,
            name=definition.name or None,
            screen=False,
            timeout=handler_seconds(home.relay),
        )
        self.upstream_key: str | None = definition.uri_template
        self.title: str | None = _given(definition.title)
        self.description: str | None = _given(definition.description)

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    def definition(self, revision: str) -> t.ResourceTemplate:
        return replace_members(self.remote, uri_template=self.uri_template)

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        return sent

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> Any:
        links = self._home.links
        if may_be_secret(uri) and not links.has(call, uri) and await is_link_of_another(call, uri, links.key):
            raise ResourceNotFound()
        return await read_elsewhere(self._home, call, self._home.uris.inner(uri))


def _can_match(text: str) -> bool:
    """Return whether addresses can be taken apart by a template. Raise `ServerError` for what is none."""
    try:
        return UriTemplate(text, screen=False).unmatchable is None
    except ValueError as error:
        raise ServerError(f"{text!r} is not a URI template: {error}") from None


def _has_scheme(text: str) -> bool:
    """Return whether all URIs of a template have one scheme. Other templates match the URIs of all upstreams."""
    return ":" in text.partition("{")[0]


async def _elsewhere() -> str:
    """Stand for the function of a template, which is at another server."""
    raise ToolError("This resource is read at another server")


class UnlistedResources(ResourceTemplate):
    """The resources of another server that it does not list, such as those that its tools link to."""

    def __init__(self, home: Home) -> None:
        super().__init__("{+uri}", _elsewhere, screen=False, timeout=handler_seconds(home.relay))
        self.home: Home = home

    def owns_state(self, call: Call) -> bool:
        return self.home.relay.owns_state(call)

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        return sent

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> Any:
        """Read a URI at the one upstream that it may belong to."""
        kernel = cast("Kernel", call.host)
        usable = kernel.methods.usable(call)
        ways = [
            each
            for each in kernel.catalog.unlisted_ways(uri)
            if isinstance(each.component, UnlistedResources) and (usable is None or usable(each))
        ]
        is_kept = origin_of(uri) == KEPT_SCHEME
        judgement = Judgement()
        if is_kept:
            # The answer names the URI once more.
            judgement = call.judgement = await _find_judgement(kernel, call, uri)
        way = await _find_owner(call, ways, uri)
        try:
            result = await _read_under_policy(kernel, call, way, uri)
        except ProtocolError as error:
            # Old servers in Python answer an unknown URI with the code 0. Callers who do not see everything get the
            # words that stand for a hidden resource, too.
            is_plain = error.code == 0 or (
                isinstance(error, ResourceNotFound) and kernel.methods.view(call) is not None
            )
            raise (ResourceNotFound() if is_plain else error) from None
        return _contents(call, _mask_kept(kernel, call, way, result, judgement) if is_kept else result)


async def _find_owner(call: Call, ways: list[Found[Any]], uri: str) -> Found[Any]:
    """Return the way to the one upstream that an unlisted URI may belong to; raise `ResourceNotFound` for any other.

    A view belongs to the upstream whose tool names it, a link to the one whose result named it to the caller. The store
    knows the links of other replicas. A URI that no upstream named is one of the only upstream that lists URIs of its
    origin. Nothing is asked for a URI that may belong to two of them, or that one has named which is gone.
    """
    kernel = cast("Kernel", call.host)
    is_only = len(kernel.catalog.unlisted_ways(uri)) == 1
    if call.view_servers is not None:
        servers = call.view_servers
        ways = [each for each in ways if servers[: len(on_way := servers_on(each.way))] == on_way]
        is_only = len(ways) == 1
    holder = kernel.catalog.addresses.get(("resources", uri))
    owners = [each for each in ways if each.owner is holder]
    if not owners:
        namers = find_namers(call, uri)
        if not namers and (key := await find_link(call, uri)) is not None:
            namers = {key}
        owners = [each for each in ways if each.component.home.links.key in namers]
        if namers and not owners:
            raise ResourceNotFound()
    if not owners:
        origin = origin_of(uri)
        owners = [each for each in ways if origin in each.component.home.origins]
    if not owners and is_only:
        owners = ways
    if len(owners) > 1:
        names = " and ".join(repr(each.owner.name) for each in owners[:MAX_NAMED])
        log.warning("a URI of the origin %r is withheld: %s may have it", origin_of(uri)[:200], names)
        if kernel.methods.view(call) is not None:
            raise ResourceNotFound()
        raise ResourceNotFound(f"The resource is withheld: {names} may have it, and neither of them lists it")
    if not owners:
        raise ResourceNotFound()
    if call.view_servers is not None:
        call.view_servers = call.view_servers[len(servers_on(owners[0].way)) :]
    return owners[0]


async def _find_judgement(kernel: Kernel, call: Call, uri: str) -> Judgement:
    """Return what was decided about the call that made a kept result. A result is hidden where that is not known."""
    judgement = await kernel.judgements.find_result(principal_key(call.principal), uri)
    if judgement is None:
        raise ResourceNotFound()
    return judgement


def _mask_kept(kernel: Kernel, call: Call, way: Found[Any], result: Any, judgement: Judgement) -> Any:
    """Mask a kept result of an upstream with the masks of its call, and those that its tools have now.

    Its address does not say which tool that was. So the masks of all tools of the upstream hold.
    """
    kernel.check_judgement(call, judgement, way.way)
    enforcer, kept = kernel.enforce_late(judgement)
    if enforcer is None:
        return result
    tools = (
        found
        for found in kernel.catalog.each()
        if isinstance(found.component, ToolBase) and found.way[:1] == way.way[:1]
    )
    return enforcer.mask_kept(call, tools, result, kept)


async def _read_under_policy(kernel: Kernel, call: Call, way: Found[Any], uri: str) -> Any:
    """Read an address that no server lists at one of them, under the policy of that server."""
    home: Home = way.component.home

    async def read(call: Call) -> Any:
        return await _answer_elsewhere(home, call, home.uris.inner(uri))

    judged = target_of(call)
    was_judged = judged is not None and judged.found is not None and judged.found.owner is way.owner
    if kernel.enforcer is None or way.owner.policy is None or was_judged:
        return await read(call)
    target = CallTarget("resources/read", uri, t.ReadResourceRequestParams(uri=uri), way, {"uri": uri})
    return await kernel.enforcer.run_inside(judged, call, target, read)


async def read_elsewhere(home: Home, call: Call, uri: str) -> Any:
    """Read a resource of another server, under the address that it has there."""
    return _contents(call, await _answer_elsewhere(home, call, uri))


async def _answer_elsewhere(home: Home, call: Call, uri: str) -> Any:
    if is_view(uri) and not home.shows_views:
        raise ResourceNotFound()
    sent = sent_with(call, "resources/read")
    sent.members["uri"] = uri
    answer = await home.relay.send(call, "resources/read", sent)
    return await hand_on(call, answer, t.ReadResourceResult, home)


def _contents(call: Call, result: Any) -> Any:
    """Return a result in the form in which the kernel takes it; a handler that reads gets the contents alone."""
    if isinstance(result, t.ReadResourceResult) and call.outer is not None:
        return result.contents
    return result


class RemoteCompletion(Completion):
    """Suggestions of another server for one argument of a prompt, or one variable of a template."""

    def __init__(self, home: Home, reference: Mapping[str, Any], argument: str) -> None:
        super().__init__(())
        self._home = home
        self._reference = dict(reference)
        self._argument = argument

    async def complete(self, call: Call, partial: str, arguments: dict[str, str]) -> t.Completion:
        sent = sent_with(call, "completion/complete")
        sent.members["ref"] = self._reference
        sent.members["argument"] = {"name": self._argument, "value": partial}
        answer = await self._home.relay.send(call, "completion/complete", sent)
        return _decoded(self._home, answer.raw, t.CompleteResult).completion


async def hand_on(call: Call, answer: Answer, type_: type[R], home: Home) -> Any:
    """Return what `handed_on` does, as soon as the other replicas know the secret URIs that it names."""
    result = handed_on(call, answer, type_, home)
    await home.links.wait_for_writes()
    return result


def handed_on(call: Call, answer: Answer, type_: type[R], home: Home) -> Any:
    """Return a result of another server in the form in which the kernel finishes it.

    It stays as it came where the client knows all that the server's revision knows, and nobody here reads it.
    """
    if answer.questions is not None:
        return answer.questions
    raw, members, uris = answer.raw, answer.members, home.uris
    if URI_MARK in bytes(raw):
        home.links.remember(call, raw)
    if members is not None and "cacheScope" in members and not _is_shared(home, call):
        members["cacheScope"] = _PRIVATE
    if uris.active:
        raw = uris.in_result(raw if members is None else Raw(_encode(members)))
        members = None if members is None else _members(raw)
    connection, revision = answer.connection, call.request.revision
    is_known = revision == connection.revision or _knows_all(revision, connection.revision)
    if is_known and call.outer is None and not call.host.results_are_read:
        return raw if members is None else _signed(call, members)
    if connection.modern and _is_question(raw):
        return _without_connection(_decoded(home, raw, t.InputRequiredResult))
    result = _without_connection(_decoded(home, raw, type_))
    if isinstance(result, t.CacheableResult):
        # 2026-07-28 demands both hints. Earlier revisions have none.
        if result.cache_scope is UNSET or not _is_shared(home, call):
            result.cache_scope = "private"
        result.ttl_ms = 0 if result.ttl_ms is UNSET else result.ttl_ms
    return result


def _knows_all(client: str, server: str) -> bool:
    """Return whether a newer client takes every result of a server of its era."""
    return client > server and is_modern(client) == is_modern(server)


def _signed(call: Call, members: dict[str, Any]) -> Raw:
    """Return a modern result with the name of this server in place of the other's (META-8)."""
    given = bytes(members.get("_meta", _NO_META))
    # Most results have nothing there but the name of the server.
    sign = _signed_meta if len(given) <= _SHORT_META else _signed_meta.__wrapped__
    members["_meta"] = sign(given, call.host.signature)
    return Raw(_encode(members))


@lru_cache(maxsize=256)
def _signed_meta(meta: bytes, signature: bytes) -> Raw:
    own: dict[str, Any] = _members(meta)
    own.pop(t.SUBSCRIPTION_ID_KEY, None)
    own[t.SERVER_INFO_KEY] = Raw(signature)
    return Raw(_encode(own))


def _is_shared(home: Home, call: Call) -> bool:
    """Return whether others may keep a result that the other server calls public.

    A server may call something public that it shows to nobody but the holder of its credential.
    """
    return home.trusts and call.host.is_for_everybody(call)


class _Kind(msgspec.Struct):
    result_type: str = msgspec.field(default="complete", name="resultType")


_kind = msgspec.json.Decoder(_Kind).decode


def _is_question(raw: Raw) -> bool:
    return _kind(raw).result_type == "input_required"


def _decoded(home: Home, raw: Raw, type_: type[R]) -> R:
    try:
        return t.decode(type_, raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        broken = InvalidResponse(f"Its answer is broken: {error}")
        text = home.relay.log.texts.hide(str(broken))
        raise ToolError(
            f"The server {home.relay.name!r} behind this one failed: {text}; the request may have been carried out"
        ) from None


def _without_connection(result: R) -> R:
    """Leave out the members of `_meta` that describe the connection to the other server."""
    if isinstance(result.meta, dict) and not t.MODERN_META_KEYS.isdisjoint(result.meta):
        # With the JSON of each member as it came: it may hold a signature, or a number that Python writes differently.
        kept = {key: value for key, value in exact_meta(result).items() if key not in t.MODERN_META_KEYS}
        result.meta = kept or UNSET
    return result


def _given(value: str | UnsetType) -> str | None:
    return None if value is UNSET else value
