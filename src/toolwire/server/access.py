"""Who sees and may use which components: `scopes=`, `visible_to=` and the rules for tags, in lists and in calls.

What a caller does not see does not exist for them: every lookup leaves it out, so that the answer is the very one that
an unknown name gets. What they see and may not use is refused before anything runs. Both are decided by the caller's
*permission set*, the audiences they belong to, and what was worked out for one caller serves all with the same set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import UNSET, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.lifecycle import Incoming
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components.restriction import Audience, VisibleTo, audience_of, names_of
from toolwire.wire.outlet import Outlet

_MAX_VIEWS: Final = 1024


class TagRule(Struct, frozen=True):
    """What holds for every component with a tag."""

    scopes: frozenset[str]
    visible_to: Audience | None


class View:
    """The catalogue as the callers with one permission set see it."""

    __slots__ = ("_access", "admitted")

    def __init__(self, access: Access, admitted: frozenset[Audience]) -> None:
        self._access = access
        self.admitted: frozenset[Audience] = admitted

    def sees(self, found: Found[Any]) -> bool:
        return self.admitted.issuperset(self._access.audiences(found))


class Access:
    """The restrictions of one server, those of the servers mounted in it among them."""

    def __init__(self, catalog: Catalog, effective: Callable[[Iterable[str]], frozenset[str]]) -> None:
        self._catalog = catalog
        self.effective: Callable[[frozenset[str]], frozenset[str]] = lru_cache(maxsize=1024)(effective)
        self.rules: dict[str, TagRule] = {}
        self.active: bool = False
        """Whether there may be restrictions. Without any, requests pay for nothing but looking here."""
        self._stale = False
        self._audiences: tuple[Audience, ...] = ()
        self._views: dict[frozenset[Audience], View] = {}
        catalog.listeners.append(self._changed)

    def restrict(self, tag: str, scopes: str | Iterable[str] | None, visible_to: VisibleTo) -> None:
        """Add a rule for every component that has, or will have, the tag."""
        (name,) = names_of(tag, "A tag")
        self.rules[name] = TagRule(names_of(scopes, "scopes="), audience_of(visible_to))
        for kind in ("tools", "resources", "prompts"):
            self._catalog.changed(kind)

    def _changed(self, family: str) -> None:
        # Worked out by the next request: a thousand tools that are added one by one are surveyed once.
        self._stale = True
        self.active = True

    def _survey(self) -> None:
        self._stale = False
        # Those that a nearer one of the same name hides are among them: whoever does not see that one sees them.
        found = [each for catalog in (self._catalog, *self._catalog.family()) for each in catalog.own()]
        hidden = {audience: None for each in found for audience in self.audiences(each)}
        self._audiences = tuple(hidden)
        self._views.clear()
        self.active = bool(hidden) or any(self.scopes(each) for each in found)
        if self._stale:
            self.active = True  # Another thread has added something meanwhile, which may be restricted.

    # --- what a component asks for ---

    def audiences(self, found: Found[Any]) -> list[Audience]:
        """Everyone of whom a caller must be one to see the component."""
        own = found.component.visible_to
        audiences = [] if own is None else [own]
        audiences += [rule.visible_to for rule in self._rules_of(found) if rule.visible_to is not None]
        return audiences

    def scopes(self, found: Found[Any]) -> frozenset[str]:
        """All the scopes that a call of the component needs."""
        return frozenset(found.component.scopes).union(*(rule.scopes for rule in self._rules_of(found)))

    def _rules_of(self, found: Found[Any]) -> list[TagRule]:
        """The rules of this server, and of the mounted one that the component comes from."""
        tags = found.component.tags
        if not tags:
            return []
        owner: Access = found.owner.kernel.access
        tables = [self.rules] if owner is self else [self.rules, owner.rules]
        return [table[tag] for table in tables for tag in tags if tag in table]

    # --- what a caller gets ---

    def view(self, request: Incoming, outlet: Outlet) -> View | None:
        """What the caller of a request sees; None for everything."""
        if self._stale:
            self._survey()
        if not self.active or _is_local(request, outlet):
            return None
        return self.view_of(request.principal)

    def view_of(self, principal: Any) -> View:
        """What a principal sees; None is nobody in particular."""
        if self._stale:
            self._survey()
        held = self._held(principal)
        admitted = frozenset(each for each in self._audiences if each.admits(principal, held))
        view = self._views.get(admitted)
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[admitted] = View(self, admitted)
        return view

    def admit(self, request: Incoming, outlet: Outlet) -> None:
        """Raise `InsufficientScope` when the caller lacks what the request needs."""
        view = self.view(request, outlet)
        needed = None if view is None else self._needed(request, view)
        if needed is not None:
            raise InsufficientScope(needed, request.id)

    def admit_all(self, requests: Sequence[Incoming]) -> None:
        """The same for requests that came in one HTTP request: one refusal names what all of them need."""
        if not self.active:
            return
        needed = [each for request in requests if (each := self.needed(request)) is not None]
        if needed:
            raise InsufficientScope(frozenset().union(*needed), requests[0].id if len(requests) == 1 else None)

    def needed(self, request: Incoming) -> frozenset[str] | None:
        """All the scopes that a request over HTTP needs, when its caller lacks some of them."""
        return self._needed(request, self.view_of(request.principal))

    def _needed(self, request: Incoming, view: View) -> frozenset[str] | None:
        needed: frozenset[str] = frozenset().union(*map(self.scopes, self._targets(request, view)))
        return None if needed <= self._held(request.principal) else needed

    def check_read(self, request: Incoming, outlet: Outlet, uri: str) -> None:
        """Raise `InsufficientScope` when the caller sees what is at an address and may not read it."""
        found = self.readable(uri, self.view(request, outlet))
        if found is not None and not (needed := self.scopes(found)) <= self._held(request.principal):
            raise InsufficientScope(needed, request.id)

    def hears(self, request: Incoming, outlet: Outlet, uri: str) -> bool:
        """Whether the caller of a request may be told of what happens at an address."""
        return not self.active or _is_local(request, outlet) or self.may_hear(request.principal, uri)

    def session_hears(self, session: Any, uri: str) -> bool:
        """The same for a connection, which is told things unasked."""
        is_local = session.principal is None and session.channel.is_local
        return not self.active or is_local or self.may_hear(session.principal, uri)

    def may_hear(self, principal: Any, uri: str) -> bool:
        """Whether a principal may be told of what happens at an address; also where nothing is."""
        if not self.active:
            return True
        found = self.readable(uri, self.view_of(principal))
        if found is None:
            return self.readable(uri, None) is None
        return self.permits(principal, found)

    def permits(self, principal: Any, found: Found[Any]) -> bool:
        """Whether a principal that sees a component has the scopes to use it."""
        return self.scopes(found) <= self._held(principal)

    def is_hidden(self, is_prompt: bool, name: str, view: View) -> bool:
        """Whether there is something of that name that these callers do not see."""
        return self.referred(is_prompt, name, view) is None and self.referred(is_prompt, name, None) is not None

    def readable(self, uri: str, view: View | None) -> Found[Any] | None:
        """The resource or template behind an address, as far as a caller sees it."""
        sees = None if view is None else view.sees
        found: Found[Any] | None = self._catalog.resource(uri, sees)
        if found is None and (matched := self._catalog.template(uri, sees)) is not None:
            found = matched[0]
        return found

    def referred(self, is_prompt: bool, name: str, view: View | None) -> Found[Any] | None:
        """The prompt, template or resource that a completion is for."""
        sees = None if view is None else view.sees
        if is_prompt:
            return self._catalog.prompt(name, sees)
        return self._catalog.all("templates", view).get(name) or self._catalog.resource(name, sees)

    def _targets(self, request: Incoming, view: View) -> Sequence[Found[Any]]:
        """The components that a request is about."""
        method, params = request.method, request.params
        found: Found[Any] | None = None
        if method == "tools/call":
            found = self._catalog.tool(params.name, view.sees)
        elif method in ("resources/read", "resources/subscribe"):
            found = self.readable(params.uri, view)
        elif method == "prompts/get":
            found = self._catalog.prompt(params.name, view.sees)
        elif method == "completion/complete":
            is_prompt = isinstance(params.ref, t.PromptReference)
            found = self.referred(is_prompt, params.ref.name if is_prompt else params.ref.uri, view)
        elif method == "subscriptions/listen":
            uris = params.notifications.resource_subscriptions
            each = [self.readable(uri, view) for uri in (() if uris is UNSET else uris)]
            return [one for one in each if one is not None]
        return () if found is None else (found,)

    def _held(self, principal: Any) -> frozenset[str]:
        # Whoever authenticates in front of us may have a principal of their own making.
        return self.effective(frozenset(getattr(principal, "scopes", None) or ()))


def _is_local(request: Incoming, outlet: Outlet) -> bool:
    """On stdio and in memory there is no principal unless the server was told one, and then nothing is restricted.

    Over HTTP whoever shows no token is nobody, who has no scopes.
    """
    return request.principal is None and outlet.is_local
