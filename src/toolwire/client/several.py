"""A client of several servers: a client of a gateway in the same process.

Each server has a client of its own, a member, with one connection. The gateway sends everything on the connections of
the members. So each server is spoken to in its own revision, and the callbacks of the program answer its questions on
that connection. The program itself is connected to the gateway, in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, Protocol, Self

import msgspec
from msgspec import UNSET, Raw

from toolwire.client.connection import CEILING_SECONDS, ClientConnection
from toolwire.client.errors import InvalidResponse
from toolwire.client.listen import Change, Subscription
from toolwire.client.middleware import Around, AroundConnection, ClientContext, ClientMiddleware, around
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection, RelayedCall
from toolwire.client.repeated_rounds import run_rounds, send_round
from toolwire.client.requests import encode_arguments
from toolwire.client.target import START_SECONDS, Link, Target
from toolwire.client.targets import InProcessServer
from toolwire.lazy_parts import load_part
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.peer import Peer
from toolwire.protocol.rounds import result_kind, retry_params
from toolwire.wire.channel import Channel, memory_pair
from toolwire.wire.deadlines import CallClock
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import ClientHandler, OnProgress, Session

#: How many seconds the result of a call waits for a middleware that is busy with notifications.
REPORT_SECONDS: Final = 1.0
# These members of `_meta` say who sends a request. The middleware of a client does not see them.
_OF_THE_SENDER: Final = frozenset({*t.MODERN_META_KEYS, t.PROGRESS_TOKEN_KEY, "io.toolwire/hops", "io.toolwire/client"})

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


class OwnGateway(InProcessServer, Protocol):
    """The gateway inside a client (`toolwire.gateway.client_gateway`)."""

    errors: dict[RequestId, Exception | None]

    @property
    def missing(self) -> dict[str, str]: ...

    def begin(self) -> None: ...

    async def reached(self) -> None: ...

    def add_member(self, name: str, target: Target, connector: Connector) -> None: ...

    async def joined(self, name: str) -> None: ...

    async def remove_member(self, name: str, connector: Connector) -> None: ...

    def told(self, server: str, method: str | None) -> None: ...

    def origin(self, tool: str) -> tuple[str, t.Tool] | None: ...

    def tools_of(self, server: str) -> list[t.Tool]: ...

    def own_address(self, server: str, uri: str) -> str: ...


class SeveralTarget(Target):
    """Several servers as the place that a client connects to."""

    def __init__(self, targets: Mapping[str, Target], timeout: float | None) -> None:
        """`targets` are the servers by the name that stands before the names of their tools."""
        self._targets = dict(targets)
        self._name()
        self._patience = START_SECONDS if timeout is None else timeout
        self._gateway: OwnGateway | None = None
        self._session: Session | None = None

    def _name(self) -> None:
        self.label: str = f"the servers {', '.join(self._targets)}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        loops = (target.loop for target in self._targets.values())
        return next((loop for loop in loops if loop is not None), None)

    def use(self, connectors: Mapping[str, Connector]) -> None:
        """Send everything on these connections, by the name of the server."""
        members = {name: (target, connectors[name]) for name, target in self._targets.items()}
        self._gateway = load_part("client.gateway")(members, self._patience)

    def add(self, name: str, target: Target, connector: Connector) -> None:
        """Add a server, and the connection to send its requests on."""
        self.gateway.add_member(name, target, connector)
        self._targets[name] = target
        self._name()

    async def remove(self, name: str, connector: Connector) -> None:
        """Take a server away, and close the connection to it: calls in flight end with an error."""
        del self._targets[name]
        self._name()
        await self.gateway.remove_member(name, connector)

    @property
    def gateway(self) -> OwnGateway:
        assert self._gateway is not None
        return self._gateway

    async def open(self) -> Link:
        gateway = self.gateway
        gateway.begin()
        ours, theirs = memory_pair()
        serving = asyncio.get_running_loop().create_task(_serve(gateway, theirs))
        link = _SeveralLink(ours, self.label, serving, self._begun)
        reaching = asyncio.ensure_future(gateway.reached())
        try:
            await asyncio.wait({serving, reaching}, return_when=asyncio.FIRST_COMPLETED)
            if not reaching.done():
                serving.result()
            reaching.result()
        except BaseException:
            reaching.cancel()
            await link.close()
            raise
        return link

    def _begun(self, lifecycle: ClientLifecycle, channel: Channel, handler: ClientHandler, ceiling: float) -> Session:
        self._session = _FrontSession(self.gateway, channel, Peer(lifecycle), handler, ceiling)
        return self._session

    def paused(self) -> AbstractContextManager[None]:
        """Let no deadline of the program pass while one of the servers is answered."""
        return nullcontext() if self._session is None else self._session.answering()

    # --- what the client wants to know of its servers ---

    @property
    def missing(self) -> dict[str, str]:
        return self.gateway.missing

    def server_of(self, tool: str) -> str | None:
        found = self.gateway.origin(tool)
        return None if found is None else found[0]

    def own_name(self, tool: str) -> str:
        found = self.gateway.origin(tool)
        return tool if found is None else found[1].name

    def tool_at(self, server: str, own_name: str) -> str:
        return f"{server}_{own_name}"

    def address_at(self, server: str, uri: str) -> str:
        return self.gateway.own_address(server, uri)

    def pinned(self, name: str, tool: t.Tool | None) -> tuple[str, str, t.Tool | None]:
        found = self.gateway.origin(name)
        if found is None:
            return self.address, name, tool
        server, remote = found
        return self._targets[server].address, remote.name, remote

    def pinned_lists(self, tools: list[t.Tool]) -> dict[str, list[t.Tool]]:
        away = self.missing
        return {
            target.address: self.gateway.tools_of(name) for name, target in self._targets.items() if name not in away
        }


async def _serve(server: InProcessServer, channel: Channel) -> None:
    try:
        await server.serve(channel)
    finally:
        await channel.close()


class _SeveralLink(Link):
    """The way to the gateway. A failure concerns one request, because the servers behind it are not one."""

    duplex = False

    def __init__(
        self, channel: Channel, label: str, serving: asyncio.Task[None], begun: Callable[..., Session]
    ) -> None:
        super().__init__(channel, label)
        self._serving = serving
        self._begun = begun

    def session(self, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float) -> Session:
        return self._begun(lifecycle, self.channel, handler, ceiling)

    async def close(self) -> None:
        await self.channel.close()
        # The gateway closes the connections to all servers before it ends.
        await asyncio.wait({self._serving})


class _FrontSession(Session):
    """The program's end of the way to the gateway. It raises the error of a server as it was raised there."""

    def __init__(
        self, gateway: OwnGateway, channel: Channel, peer: Peer, handler: ClientHandler, ceiling: float
    ) -> None:
        super().__init__(channel, peer, handler, ceiling=ceiling)
        self._gateway = gateway

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        identifier: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw | None:
        own = self.peer.next_id() if identifier is None else identifier
        errors = self._gateway.errors
        errors[own] = None
        try:
            answer = await super().request(method, params, timeout, on_progress, own)
        except ToolwireError as error:
            raise errors[own] or error from None
        else:
            if (failure := errors[own]) is not None:
                raise failure
            return answer
        finally:
            del errors[own]


# --- The connections to the servers -----------------------------------------------------------------------------------


class MemberConnection(RelayConnection):
    """The connection to one of several servers. The callbacks of the program answer what the server asks on it."""

    answers_itself = True

    def __init__(self, target: SeveralTarget, *arguments: Any) -> None:
        # Before the session, which may deliver messages at once.
        self._several = target
        super().__init__(*arguments)

    async def relay(
        self,
        identifier: RequestId,
        method: str,
        params: Raw | Mapping[str, Any],
        call: RelayedCall,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw:
        """Send a request, go through its rounds, and return the complete result."""
        clock = CallClock(timeout, self.session.deadlines.call_time, ceiling=CEILING_SECONDS)
        report = call.on_progress
        if timeout is None or report is None:
            return await self._relay_rounds(identifier, method, params, call, clock, headers)
        call.on_progress = self.extend_on_progress(clock, report)
        try:
            return await self._relay_rounds(identifier, method, params, call, clock, headers)
        finally:
            call.on_progress = report

    async def _relay_rounds(
        self,
        identifier: RequestId,
        method: str,
        params: Raw | Mapping[str, Any],
        call: RelayedCall,
        clock: CallClock,
        headers: Mapping[str, str] | None,
    ) -> Raw:
        raw = await super().relay(identifier, method, params, call, clock.limit(method), headers)
        if not self.modern or b'"input_required"' not in bytes(raw):
            return raw
        if _read_final(method, raw) is not None:
            return raw

        async def send(result: t.InputRequiredResult, answers: Mapping[str, Any]) -> Raw:
            # MRTR-13, MRTR-14: the same request with the answers and the state.
            asked = retry_params(t.RoundRequestParams(), result, answers)
            return await send_round(partial(self._send_round, method, params, asked, call, clock, headers), clock)

        return await run_rounds(method, raw, clock, self.answer_all, send, partial(_read_final, method))

    def _send_round(
        self,
        method: str,
        params: Raw | Mapping[str, Any],
        asked: t.RequestParams,
        call: RelayedCall,
        clock: CallClock,
        headers: Mapping[str, str] | None,
    ) -> Coroutine[Any, Any, Raw]:
        identifier, limit = self.next_id(), clock.limit(method)
        return super().relay(identifier, method, _again(params, asked, identifier), call, limit, headers)

    async def answer(self, method: str, params: Any, revision: str) -> t.Wire:
        with self._several.paused():
            return await super().answer(method, params, revision)

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire:
        return await ClientConnection.handle(self, request, outlet)

    def notified(self, notice: Notice, session: Session) -> None:
        ClientConnection.notified(self, notice, session)


def _read_final(method: str, raw: Raw) -> Raw | None:
    """Return a result of any kind that ends the rounds; None where the server asks for more."""
    try:
        return None if result_kind(raw) == "input_required" else raw
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"The server's answer to {method} is broken: {error}") from None


def _again(params: Raw | Mapping[str, Any], asked: Any, identifier: RequestId) -> dict[str, Any]:
    """Return the params of the next round. Its progress token is its own."""
    members: dict[str, Any] = _members(_encode(params))
    for name, value in (("requestState", asked.request_state), ("inputResponses", asked.input_responses)):
        members.pop(name, None)
        if value is not UNSET:
            members[name] = value
    meta: dict[str, Any] = _members(members["_meta"])
    if t.PROGRESS_TOKEN_KEY in meta:
        meta[t.PROGRESS_TOKEN_KEY] = identifier
    return {**members, "_meta": meta}


class _AroundMember(AroundConnection, MemberConnection):
    """The connection to one of several servers, whose messages pass the middleware of the client."""

    async def relay(
        self,
        identifier: RequestId,
        method: str,
        params: Raw | Mapping[str, Any],
        call: RelayedCall,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw:
        relay = super().relay
        ctx = self._context(method, msgspec.json.decode(_encode(params)), headers=headers, timeout=timeout)
        described = {key: ctx.meta.pop(key) for key in _OF_THE_SENDER & ctx.meta.keys()}
        before = encode_arguments(ctx.params)
        received: tuple[dict[str, Any], bytes, Raw] | None = None
        if call.on_progress is not None:
            call.on_progress = self._reporter(call.on_progress)
        next_id = identifier

        async def send(ctx: ClientContext) -> dict[str, Any]:
            nonlocal received, next_id
            if encode_arguments(ctx.params) != before:
                self._check_changed(method, params, ctx)
            if t.PROGRESS_TOKEN_KEY in described:
                described[t.PROGRESS_TOKEN_KEY] = next_id
            sent = {**ctx.params, "_meta": {**ctx.meta, **described}}
            own, next_id = next_id, self.next_id()
            raw = await relay(own, method, Raw(encode_arguments(sent)), call, ctx.timeout, ctx.headers or None)
            members: dict[str, Any] = msgspec.json.decode(raw)
            received = members, encode_arguments(members), raw
            return members

        returned = await self._around.run(ctx, send)
        if call.on_progress is not None:
            # Reports that come after the result reach nobody.
            await self.passed(REPORT_SECONDS)
        if received is not None and returned is received[0] and encode_arguments(returned) == received[1]:
            return received[2]
        return Raw(encode_arguments(returned))

    def _check_changed(self, method: str, params: Raw | Mapping[str, Any], ctx: ClientContext) -> None:
        """Raise `Denied` when a middleware has changed a call that was approved."""
        if method == "tools/call":
            self._changed_params(ctx, t.decode(t.CallToolRequestParams, _encode(params)))


def member_connection(
    target: SeveralTarget, middleware: Iterable[ClientMiddleware], *, is_guarded: bool
) -> Callable[..., ClientConnection]:
    """Return what makes the connections to the servers of a client with this middleware."""
    found: Around | None = around(middleware, is_guarded=is_guarded)

    def make(*arguments: Any) -> ClientConnection:
        return MemberConnection(target, *arguments) if found is None else _AroundMember(found, target, *arguments)

    return make


# --- Listening --------------------------------------------------------------------------------------------------------


class _Member(Protocol):
    """The client of one of several servers."""

    def listen(self, *, extensions: Mapping[str, Any]) -> Subscription: ...

    def _declared_extensions(self) -> dict[str, Any]: ...


def joint_subscription(
    connector: Connector, members: Mapping[str, _Member], wanted: t.SubscriptionFilter, timeout: float | None
) -> Subscription:
    """Return one subscription of a client of several servers: to the gateway, and to extensions of the servers."""
    own = t.SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed,
        prompts_list_changed=wanted.prompts_list_changed,
        resources_list_changed=wanted.resources_list_changed,
        resource_subscriptions=wanted.resource_subscriptions,
        task_ids=wanted.task_ids,
    )

    def parts() -> list[Subscription]:
        asked = [] if own == t.SubscriptionFilter() else [Subscription(connector, own, timeout)]
        having = (member for member in members.values() if member._declared_extensions())
        return [*asked, *(member.listen(extensions=wanted.extra) for member in having)]

    return _JointSubscription(connector, wanted, timeout, parts)


class _JointSubscription(Subscription):
    """Several subscriptions as one. It ends when all of them have ended."""

    def __init__(
        self,
        connector: Connector,
        wanted: t.SubscriptionFilter,
        timeout: float | None,
        parts: Callable[[], list[Subscription]],
    ) -> None:
        super().__init__(connector, wanted, timeout)
        self._make_parts = parts
        self._parts: list[Subscription] = []

    async def __aenter__(self) -> Self:
        await self._connector.usable()
        self._parts = self._make_parts()
        try:
            for part in self._parts:
                await part.__aenter__()
        except BaseException:
            await self.close()
            raise
        self.accepted = _accepted(self._parts)
        return self

    async def close(self) -> None:
        for part in self._parts:
            await part.close()

    async def _changes(self) -> AsyncIterator[Change]:
        if not self._parts:
            await self.__aenter__()
        waiting = {_next(iterator): iterator for iterator in [aiter(part) for part in self._parts]}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    iterator = waiting.pop(task)
                    change = task.result()
                    if change is not None:
                        waiting[_next(iterator)] = iterator
                        yield change
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)
            await self.close()


def _next(iterator: AsyncIterator[Change]) -> asyncio.Task[Change | None]:
    """Wait for the next change; the result is None at the end."""

    async def take() -> Change | None:
        return await anext(iterator, None)

    return asyncio.get_running_loop().create_task(take())


def _accepted(parts: Iterable[Subscription]) -> t.SubscriptionFilter:
    """SUB-4: return what any of the servers agreed to tell."""
    agreed = [part.accepted for part in parts if part.accepted is not None]
    whole = next((each for each in agreed if not each.extra), t.SubscriptionFilter())
    accepted = replace_members(whole)
    for each in agreed:
        accepted.extra.update(each.extra)
    return accepted
