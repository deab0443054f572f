"""The extensions of another server, as they are offered here.

This library knows skills, which it serves together with those of all other servers, user interfaces, which are
resources, and tasks. Of any other extension it knows the name and the settings, but neither methods nor notifications.
So everything whose name nobody here knows goes to a server that declares such an extension.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec

from toolwire.client.listen import Subscription
from toolwire.gateway.remote_components import Home, hand_on
from toolwire.gateway.sent_request import sent_with
from toolwire.gateway.upstream_log import Quoted
from toolwire.protocol import types as t
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import METHOD_NOT_FOUND, ProtocolError, ServerError, ToolwireError
from toolwire.protocol.revisions import CARRY_EXTENSIONS
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog
from toolwire.server.extensions import AnyMethod, Extension
from toolwire.server.kernel import Kernel
from toolwire.server.offer import RESTRICTED_KEY, is_marked_restricted
from toolwire.server.ping import answer_ping

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many extensions of one server are offered, and how many bytes their settings may have.
MAX_EXTENSIONS: Final = 64
MAX_SETTINGS: Final = 16 * 1024
# What a server has of these, follows from its components and extensions.
_KNOWN_CAPABILITIES: Final = frozenset(
    {"tools", "resources", "prompts", "completions", "logging", "tasks", "extensions"}
)
#: How many methods of one server are remembered.
MAX_METHODS: Final = 1_000


def extensions_of(home: Home, catalog: Catalog, capabilities: Mapping[str, Any]) -> dict[str, Extension]:
    """Return the extensions that another server declares, but for tasks."""
    declared = capabilities.get("extensions")
    found: dict[str, Extension] = {}
    if not isinstance(declared, dict):
        return found
    known: dict[str, None] = {}
    for identifier, settings in list(declared.items())[:MAX_EXTENSIONS]:
        if identifier == t.TASKS_EXTENSION or (identifier == UI_EXTENSION and not home.shows_views):
            continue
        if not isinstance(settings, dict) or len(msgspec.json.encode(settings)) > MAX_SETTINGS:
            home.relay.log.warning("the extension %r is left out: its settings cannot be used", Quoted(identifier))
            continue
        try:
            if identifier == t.SKILLS_EXTENSION:
                from toolwire.gateway.remote_skills import skills_extension

                found[identifier] = skills_extension(catalog, settings)
            else:
                found[identifier] = RemoteExtension(home, catalog, identifier, settings, known)
        except ServerError as error:
            home.relay.log.warning("an extension is left out: %s", error)
    return found


def further_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities of another server that nobody here knows, such as experimental ones."""
    found = {name: value for name, value in capabilities.items() if name not in _KNOWN_CAPABILITIES}
    if is_marked_restricted(capabilities):
        # That was said to this gateway. The gateway decides by itself whom of its own clients it says so.
        found["experimental"] = {key: value for key, value in found["experimental"].items() if key != RESTRICTED_KEY}
        if not found["experimental"]:
            del found["experimental"]
    return found if len(msgspec.json.encode(found)) <= MAX_SETTINGS else {}


class RemoteExtension(Extension):
    """An extension of another server that nobody here knows, or that has no methods."""

    def __init__(
        self, home: Home, catalog: Catalog, identifier: str, settings: Mapping[str, Any], known: dict[str, None]
    ) -> None:
        super().__init__(
            identifier,
            settings,
            # The other server refuses requests of clients that lack a declaration.
            needs_client=False,
            revisions=CARRY_EXTENSIONS,
            families=(),
            catalog=catalog,
            is_shared=identifier == UI_EXTENSION,
            is_remote=True,
        )
        if not self.is_shared:
            self.any_method: AnyMethod | None = RemoteMethods(home, self, known)
        elif home.answers_pings:
            # A ping asks whether the one that gets it is there, and that is this server.
            answer_ping(self)


class RemoteMethods(AnyMethod):
    """All methods of an extension of another server."""

    def __init__(self, home: Home, extension: Extension, known: dict[str, None]) -> None:
        """`known` are the methods that the other server has answered."""
        super().__init__(extension)
        self._home = home
        self._known = known
        vendor, _, name = extension.identifier.casefold().partition("/")
        self._words = (name, vendor, extension.identifier.casefold())

    def owns_state(self, call: Call) -> bool:
        return self._home.relay.owns_state(call)

    def likelihood(self, name: str) -> int:
        if name in self._known:
            return 2
        # Most extensions put their name, or that of their author, before the names of their methods.
        plain = name.casefold().removeprefix("notifications/")
        return int(any(plain.startswith((f"{word}/", f"{word}.")) for word in self._words))

    async def handle(self, call: Call) -> Any:
        """Send a request to the first server that has the method.

        A server that does not have it carries out nothing, so that the next one can be asked.
        """
        kernel = cast("Kernel", call.host)
        for found in kernel.catalog.unknown_methods(
            call.method, kernel.methods.usable(call), call.request.capabilities
        ):
            try:
                return await cast("RemoteMethods", found.component).answer(call)
            except ProtocolError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {kernel.offer.repeat(call.method[:200])}")

    async def answer(self, call: Call) -> Any:
        """Send a request to this server, and return its result."""
        try:
            answer = await self._home.relay.send(call, call.method, sent_with(call, call.method))
        except ProtocolError as error:
            if error.code == METHOD_NOT_FOUND:
                self._known.pop(call.method, None)
            raise
        if len(self._known) < MAX_METHODS:
            self._known[call.method] = None
        return await hand_on(call, answer, t.Result, self._home)

    @asynccontextmanager
    async def listening(
        self,
        call: Call,
        wanted: Mapping[str, Any],
        notify: Callable[[str, Mapping[str, Any]], None],
        end: Callable[[], None],
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Open a subscription of the client at the server. One before 2026-07-28 cannot be asked for anything."""
        relay = self._home.relay
        subscription: Subscription | None = None
        try:
            subscription = await relay.subscription(call, wanted)
            if subscription is not None:
                await subscription.__aenter__()
        except (ToolwireError, msgspec.ValidationError) as error:
            relay.log.debug("a subscription cannot be handed on: %s", error)
        accepted = None if subscription is None else subscription.accepted
        hearing: asyncio.Future[None] | None = None
        if subscription is not None and accepted is not None and accepted.extra:
            hearing = asyncio.ensure_future(_hear(subscription, notify, end))
        try:
            yield {} if accepted is None else accepted.extra
        finally:
            if hearing is not None:
                hearing.cancel()
                await asyncio.wait({hearing})
            if subscription is not None:
                await subscription.close()

    def notified(self, notice: Notice, session: object) -> None:
        self._home.relay.notify(notice, session)


async def _hear(
    subscription: Subscription, notify: Callable[[str, Mapping[str, Any]], None], end: Callable[[], None]
) -> None:
    """Hand on the notifications of a subscription, until the server ends it."""
    try:
        async for change in subscription:
            if change.method is None:
                continue
            params = dict(change.params or {})
            meta = params.get("_meta")
            if isinstance(meta, dict):
                params["_meta"] = {key: value for key, value in meta.items() if key != t.SUBSCRIPTION_ID_KEY}
            notify(change.method, params)
    except ToolwireError as error:
        log.debug("a subscription of a client ended: %s", error)
    end()
