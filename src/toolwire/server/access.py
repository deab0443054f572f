"""Access to components: `scopes=`, `visible_to=` and the rules for tags, in lists and in calls.

A component may come through several servers: the server that gets the request, the servers mounted in it, and the owner
of the component. Each of them enforces its own rules. If one of them hides a component from a caller, every lookup
leaves the component out. So the caller gets the same answer as for an unknown name. A caller who sees a component but
may not use it is refused before anything runs. A caller who lacks the scopes of a skill does not see the skill. The
caller's *permission set*, the audiences that the caller belongs to, decides what the caller sees. The caller's scopes
decide what it may use. Lists are computed once for each permission set.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, covers
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.lifecycle import Incoming
from toolwire.server.catalog import Catalog, Found, Mount, Owner, Sees, Way, any_resource
from toolwire.server.components import Component, ToolBase
from toolwire.server.components.restriction import (
    ANY_CLIENT,
    Audience,
    Effective,
    ListClient,
    TagRule,
    VisibleTo,
    audience_of,
    names_of,
)
from toolwire.server.judgements import Asked, Identity, Judgement
from toolwire.server.replay_state import principal_key
from toolwire.util.expiring import Expiring
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

#: What a caller may do with a component.
Permission: TypeAlias = Literal["usable", "refused", "hidden"]
#: Functions that add implied scopes to the scopes of a caller: `Policy.implies` of each server on the way, in order.
Implied: TypeAlias = tuple[Effective, ...]
Tool: TypeAlias = Found[ToolBase] | None
#: How many callers are remembered that subscribed to restricted resources.
MAX_SUBSCRIBERS: Final = 10_000
_NO_SCOPES: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Mapping[str, Found[Any]]] = {}


class AudienceOnWay(NamedTuple):
    """An audience, and the functions that add implied scopes for the server that asks for the audience."""

    audience: Audience
    implied: Implied


class Demand(Struct, frozen=True):
    """The demands that the servers on the way to a component make on a caller."""

    audiences: frozenset[AudienceOnWay]
    """A caller sees the component only if it belongs to each of these audiences."""
    scopes: tuple[tuple[frozenset[str], Implied], ...]
    """A caller may use the component only if it holds all of these scopes."""
    readers: frozenset[AudienceOnWay] = frozenset()
    """Lists have the component only for a caller that belongs to each of these audiences, too."""


class View:
    """The catalogue as the callers with one permission set see it."""

    __slots__ = ("_access", "admitted")

    def __init__(self, access: Access, admitted: frozenset[AudienceOnWay]) -> None:
        self._access = access
        self.admitted: frozenset[AudienceOnWay] = admitted

    def enters(self, audience: Audience) -> bool:
        return any(each.audience is audience for each in self.admitted)

    def sees(self, found: Found[Any]) -> bool:
        return self.admitted.issuperset(self._access.demand(found).audiences)

    def lists(self, found: Found[Any]) -> bool:
        return self.admitted.issuperset(self._access.demand(found).readers)

    def added(self, kind: str) -> Mapping[str, Found[Any]]:
        return _NOTHING


class Access:
    """The restrictions of one server, and of the servers that are mounted in it."""

    def __init__(self, catalog: Catalog, effective: Effective | None, most_uris: int) -> None:
        """`effective` adds implied scopes; None where no scope implies another. `most_uris` is `Limits.uris`."""
        self._catalog = catalog
        self._most_uris = most_uris
        # What the resources demanded that callers subscribed to.
        self._subscribed: Expiring[str, Expiring[str, tuple[Judgement, Way]]] = Expiring(MAX_SUBSCRIBERS)
        self._has_subscribers = False
        self.imply(effective)
        self.rules: dict[str, tuple[TagRule, ...]] = {}
        self.active: bool = False
        """Whether there may be restrictions. If it is False, a request is checked no further."""
        self._stale = False
        self._is_by_client = False
        """Whether some client sees other components than the rest."""
        self._audiences: tuple[AudienceOnWay, ...] = ()
        # The demands belong to one version of the catalogue.
        self._demands: tuple[int, dict[tuple[Any, Way], Demand]] = (-1, {})
        catalog.listeners.append(self._changed)

    def imply(self, effective: Effective | None) -> None:
        """Take over which scopes imply others; None where none does."""
        self.implies: bool = effective is not None
        """Whether some scope implies another."""
        self.effective: Effective = frozenset if effective is None else effective

    def restrict(self, tag: str, scopes: str | Iterable[str] | None, visible_to: VisibleTo) -> None:
        """Add a rule for every component that has, or will have, the tag. It takes no earlier rule away."""
        (name,) = names_of(tag, "A tag")
        rule = TagRule(names_of(scopes, "scopes="), audience_of(visible_to))
        self.rules[name] = (*self.rules.get(name, ()), rule)
        for kind in ("tools", "resources", "prompts"):
            self._catalog.changed(kind)

    @property
    def restricts(self) -> bool:
        """Return whether some caller may not see or use a component."""
        if self._stale:
            self._survey()
        return self.active

    def _changed(self, family: str) -> None:
        # The next request surveys the catalogue. So a thousand tools that are added one by one are surveyed once.
        self._stale = True
        self.active = True

    def _survey(self) -> None:
        self._stale = False
        # `each` also yields components that share a name: a caller who may not see the nearest one sees the next.
        found = [*self._catalog.each(), *self._catalog.each_elsewhere(), *self._catalog.each_server()]
        demands = [self.demand(each) for each in found]
        hidden = {audience: None for each in demands for audience in (*each.audiences, *each.readers)}
        # A catalogue may have no components, and yet something to say in lists.
        owned = (each.audience for each in self._catalog.family() if each.audience is not None)
        hidden.update({AudienceOnWay(each, ()): None for each in owned})
        self._audiences = tuple(hidden)
        self._is_by_client = any(each.audience.clients is not None for each in hidden)
        self.active = bool(hidden) or any(self.scopes(each) for each in found)
        if self._stale:
            self.active = True  # Another thread has added something meanwhile, which may be restricted.

    # --- what a component asks for ---

    def demand(self, found: Found[Any]) -> Demand:
        """Return the demands of the component and of every server on the way to it."""
        # Read the version before the rules. If another thread changes something meanwhile, the next call looks again.
        version = self._catalog.version
        known = self._demands
        if known[0] != version:
            known = self._demands = (version, {})
        key = (found.component, found.way)
        demand = known[1].get(key)
        if demand is None:
            demand = known[1][key] = self._demand(found)
        return demand

    def _demand(self, found: Found[Any]) -> Demand:
        component = found.component
        audiences: list[AudienceOnWay] = []
        readers: list[AudienceOnWay] = []
        scopes: list[tuple[frozenset[str], Implied]] = []
        implied: Implied = ()

        def ask(visible_to: Audience | None, needed: frozenset[str]) -> None:
            if visible_to is not None:
                audiences.append(AudienceOnWay(visible_to, implied))
            if needed:
                scopes.append((needed, implied))
                if component.is_hidden_without_scopes:
                    audiences.extend(AudienceOnWay(Audience(frozenset({each})), implied) for each in needed)
                elif component.is_unlisted_without_scopes:
                    readers.extend(AudienceOnWay(Audience(frozenset({each})), implied) for each in needed)

        ways: list[tuple[Mount | None, Any]] = [(None, self)]
        ways += [(mount, mount.catalog.owner.kernel.access) for mount in found.way]
        for mount, access in ways:
            if mount is not None:
                # The rules of a mount are those of the server that mounts.
                ask(mount.visible_to, mount.scopes)
            if access.implies:
                # The implied scopes of a server count for itself and for the servers behind it, not for servers before.
                implied = (*implied, access.effective)
            if mount is not None:
                ask(mount.catalog.audience, _NO_SCOPES)
            for tag in component.tags:
                for rule in access.rules.get(tag, ()):
                    ask(rule.visible_to, rule.scopes)
        each: Component | None = component
        while each is not None:
            ask(each.visible_to, each.scopes)
            own = found.owner.catalog.own_audience
            if own is not None and found.owner.catalog.lists(each):
                audiences.append(AudienceOnWay(own, ()))
            each = each.original
        upstream = found.owner.catalog.upstream_access
        further: Demand | None = None if upstream is None else upstream.demand(component)
        if further is not None:
            audiences += (
                AudienceOnWay(each.audience, (*implied, *each.implied))
                for each in further.audiences
                if each.audience.clients is None  # Which lists a client gets is known from the lists that were read.
            )
            readers += (AudienceOnWay(each.audience, (*implied, *each.implied)) for each in further.readers)
            scopes += ((needed, (*implied, *own)) for needed, own in further.scopes)
        return Demand(frozenset(audiences), tuple(scopes), frozenset(readers))

    def scopes(self, found: Found[Any]) -> frozenset[str]:
        """Return all the scopes that a call of the component needs."""
        return frozenset().union(*(needed for needed, _ in self.demand(found).scopes))

    # --- what is kept for a caller ---

    def judgement(self, founds: Iterable[Found[Any]], tool: Found[Any] | None = None) -> Judgement:
        """Return the demands of components, to be stored with their results. `tool` is the one that was called."""
        scopes: dict[Asked, None] = {}
        audiences: dict[Asked, None] = {}
        picked: dict[Identity, None] = {}
        for found in founds:
            demand = self.demand(found)
            scopes.update((Asked(tuple(sorted(needed)), len(implied)), None) for needed, implied in demand.scopes)
            for audience, implied in demand.audiences:
                if audience.clients is not None:
                    continue  # It says which lists a client gets, and not what a caller may read later.
                if audience.picks is None:
                    audiences[Asked(tuple(sorted(audience.scopes)), len(implied))] = None
                else:
                    picked[identity_of(found)] = None
        called = None if tool is None else identity_of(tool)
        return Judgement(tuple(scopes), tuple(audiences), tuple(picked), tool=called)

    def permission(self, principal: Principal | None, is_local: bool, judgement: Judgement, way: Way) -> Permission:
        """Return what a caller may do now with a result of this judgement. `way` leads to the place of the result."""
        if is_local and principal is None:
            return "usable"
        implied = self._implied(way)
        for each in judgement.audiences:
            if held_scopes(principal, implied[: each.depth]).isdisjoint(each.scopes):
                return "hidden"
        if not self._picks(principal, judgement.picked):
            return "hidden"
        has_scopes = all(
            held_scopes(principal, implied[: each.depth]).issuperset(each.scopes) for each in judgement.scopes
        )
        return "usable" if has_scopes else "refused"

    def _picks(self, principal: Principal | None, picked: Sequence[Identity]) -> bool:
        """Return whether the functions of components pick a caller; no function picks for a removed component.

        Accounts that see different lists of an upstream have components with one identity: each is picked for its own.
        """
        if not picked:
            return True
        missing = set(picked)
        for found in self._catalog.each():
            identity = identity_of(found)
            if identity not in missing:
                continue
            functions = [each for each in self.demand(found).audiences if each.audience.picks is not None]
            if functions and all(each.audience.admits(principal, _NO_SCOPES) for each in functions):
                missing.discard(identity)
        return not missing

    def _implied(self, way: Way) -> Implied:
        """Return the functions that add implied scopes on a way, from the outside in."""
        ways: list[Any] = [self, *(mount.catalog.owner.kernel.access for mount in way)]
        upstream = way[-1].catalog.upstream_access if way else None
        if upstream is not None:
            ways.append(upstream.access)
        return tuple(each.effective for each in ways if each.implies)

    # --- subscriptions ---

    def note_subscription(self, principal: Principal | None, is_local: bool, uri: str) -> None:
        """Keep what a resource demands of its subscriber. That holds for every update, also once it is not listed."""
        if not self.restricts or (is_local and principal is None):
            return
        found = self.readable(uri, self.view_of(principal))
        judgement = Judgement() if found is None else self.judgement([found])
        owner = principal_key(principal)
        kept = self._subscribed.use(owner)
        if found is None or judgement == Judgement():
            if kept is not None and found is not None:
                kept.pop(uri)
            return
        if kept is None:
            kept = Expiring[str, tuple[Judgement, Way]](self._most_uris)
            self._subscribed.put(owner, kept)
            self._has_subscribers = True
        kept.put(uri, (judgement, found.way))

    def _may_hear_as_then(self, principal: Principal | None, uri: str) -> bool:
        """Return whether a subscriber fulfills what the resource demanded when it was subscribed to."""
        kept = self._subscribed.get(principal_key(principal))
        if kept is None:
            return True
        return all(
            self.permission(principal, False, judgement, way) == "usable"
            for each, (judgement, way) in kept.items()
            if covers({each}, uri)
        )

    # --- what a caller gets ---

    def view(self, request: Incoming, outlet: Outlet) -> View | None:
        """Return what the caller of a request sees; None for everything."""
        if self._stale:
            self._survey()
        if not self.active:
            return None
        client = ANY_CLIENT
        if self._is_by_client:
            client = ListClient(client_key(request, outlet), request.capabilities)
        if not _is_local(request, outlet):
            return self.view_of(request.principal, client)
        if not self._is_by_client:
            return None
        lists = (each for each in self._audiences if each.audience.clients is None or each.audience.clients(client))
        return View(self, frozenset(lists))

    def view_of(self, principal: Principal | None, client: ListClient = ANY_CLIENT) -> View:
        """Return the view of a principal; None stands for a caller that is not authenticated.

        `client` is the client of the caller, where that is known.
        """
        if self._stale:
            self._survey()
        admitted = (
            each
            for each in self._audiences
            if each.audience.admits(principal, held_scopes(principal, each.implied), client)
        )
        return View(self, frozenset(admitted))

    def admit(self, request: Incoming, outlet: Outlet) -> None:
        """Raise `InsufficientScope` when the caller lacks what the request needs."""
        view = self.view(request, outlet)
        needed = None if view is None or _is_local(request, outlet) else self._needed(request, view)
        if needed is not None:
            raise InsufficientScope(needed, request.id)

    def admit_all(self, requests: Sequence[Incoming]) -> None:
        """Admit requests that came in one HTTP request: one refusal names what all of them need."""
        if not self.active:
            return
        needed = [each for request in requests if (each := self.needed(request)) is not None]
        if needed:
            raise InsufficientScope(frozenset().union(*needed), requests[0].id if len(requests) == 1 else None)

    def needed(self, request: Incoming) -> frozenset[str] | None:
        """Return all the scopes that a request over HTTP needs, when its caller lacks some of them."""
        return self._needed(request, self.view_of(request.principal))

    def _needed(self, request: Incoming, view: View) -> frozenset[str] | None:
        targets = self._targets(request, view)
        if all(self.permits(request.principal, each) for each in targets):
            return None
        return frozenset().union(*map(self.scopes, targets))

    def check_read(self, request: Incoming, outlet: Outlet, uri: str) -> None:
        """Raise `InsufficientScope` when the caller sees the resource at an address but may not read it."""
        found = self.readable(uri, self.view(request, outlet))
        if found is not None and not self.permits_call(request, outlet, found):
            raise InsufficientScope(self.scopes(found), request.id)

    def hears(self, request: Incoming, outlet: Outlet, change: Change) -> bool:
        """Return whether the caller of a request may hear of an update."""
        return _is_local(request, outlet) or self.may_hear(request.principal, change)

    def session_hears(self, session: Session, change: Change) -> bool:
        """Return whether the client of a connection may hear of an update."""
        is_local = session.principal is None and session.channel.is_local
        return is_local or self.may_hear(session.principal, change)

    def may_hear(self, principal: Principal | None, change: Change) -> bool:
        """Return whether a principal may hear of an update.

        It may hear of an address that no list has, where it may use the server that sent the update.
        """
        if change.owner and change.owner != principal_key(principal):
            return False
        if self._has_subscribers and not self._may_hear_as_then(principal, change.uri):
            return False
        if not self.active:
            return True
        uri = change.uri
        view = self.view_of(principal)
        found = self.readable(uri, view)
        if found is not None:
            return self.permits(principal, found)
        if self.readable(uri, None) is not None:
            return False
        return not change.server or self._may_hear_of(principal, view, change)

    def _may_hear_of(self, principal: Principal | None, view: View, change: Change) -> bool:
        """Return whether a principal may use the server that sent an update.

        One that was taken away does not count, and what it sends is for callers of its successor. Nothing says which
        server of a name sent the update of another process.
        """
        ways: dict[Owner, list[Found[Any]]] = {}
        for owner, way in self._catalog.ways_to(change.server):
            if not owner.catalog.is_retired:
                ways.setdefault(owner, []).append(Found(any_resource(), owner, way))
        senders = [owner for owner in ways if owner.catalog.mark == change.mark] or list(ways)
        return bool(senders) and all(
            any(view.sees(each) and self.permits(principal, each) for each in ways[owner]) for owner in senders
        )

    def usable(self, principal: Principal | None, is_local: bool) -> Sees | None:
        """Return what says of a component whether a caller sees it and may use it; None where nothing is restricted."""
        if self._stale:
            self._survey()
        if not self.active or (is_local and principal is None):
            return None
        view = self.view_of(principal)
        return lambda found: view.sees(found) and self.permits(principal, found)

    def permits_call(self, request: Incoming, outlet: Outlet, found: Found[Any]) -> bool:
        """Return whether the caller of a request, who sees a component, has the scopes to use it."""
        return _is_local(request, outlet) or self.permits(request.principal, found)

    def permits(self, principal: Principal | None, found: Found[Any]) -> bool:
        """Return whether a principal that sees a component has the scopes to use it."""
        return all(needed <= held_scopes(principal, implied) for needed, implied in self.demand(found).scopes)

    def admits(self, principal: Principal | None, is_local: bool, found: Found[Any]) -> bool:
        """Return whether a caller sees a component and may use it. It may be one that is not in the catalogue."""
        if is_local and principal is None:
            return True
        asked = ((audience, held_scopes(principal, implied)) for audience, implied in self.demand(found).audiences)
        return all(audience.admits(principal, held) for audience, held in asked) and self.permits(principal, found)

    def find_tool(self, principal: Principal | None, is_local: bool, name: str, judgement: Judgement | None) -> Tool:
        """Find the tool of a task as its caller sees it now.

        None stands for a tool that was removed, and for another tool that has its name now.
        """
        if self._stale:
            self._survey()
        sees: Sees | None
        if self.active and not (is_local and principal is None):
            sees = self.view_of(principal).sees
        else:
            sees = _sees_all if self._is_by_client else None
        found = self._catalog.tool(name, sees)
        if found is None or judgement is None or judgement.tool is None:
            return found
        return found if identity_of(found) == judgement.tool else None

    def may_use(self, principal: Principal | None, is_local: bool, found: Found[Any]) -> bool:
        """Return whether a caller who sees a component may use it."""
        return not self.active or (is_local and principal is None) or self.permits(principal, found)

    def readable(self, uri: str, view: View | None) -> Found[Any] | None:
        """Return the resource or template behind an address, as far as a caller sees it."""
        matched = self._listed(uri, view)
        return None if matched is None else matched[0]

    def matched(self, uri: str, view: View | None) -> tuple[Found[Any], dict[str, str]] | None:
        """Return the resource or template behind an address, and the variables that the template takes from it.

        An address that no list has may be known to a server elsewhere.
        """
        return self._listed(uri, view) or self._catalog.unlisted(uri, None if view is None else view.sees)

    def _listed(self, uri: str, view: View | None) -> tuple[Found[Any], dict[str, str]] | None:
        sees = None if view is None else view.sees
        found = self._catalog.resource(uri, sees)
        return self._catalog.template(uri, sees) if found is None else (found, {})

    def referred(self, is_prompt: bool, name: str, view: View | None) -> Found[Any] | None:
        """Return the prompt, template or resource that a completion is for."""
        sees = None if view is None else view.sees
        if is_prompt:
            return self._catalog.prompt(name, sees)
        return self._catalog.all("templates", view).get(name) or self._catalog.resource(name, sees)

    def _unlisted(self, uri: str, principal: Principal | None, view: View) -> Found[Any] | None:
        """Return a way to an address that no list has: one that the caller may go, or else the first that it sees."""
        first = self._catalog.unlisted(uri, view.sees)
        may_go = self._catalog.unlisted(uri, lambda found: view.sees(found) and self.permits(principal, found))
        matched = may_go or first
        return None if matched is None else matched[0]

    def _targets(self, request: Incoming, view: View) -> Sequence[Found[Any]]:
        """Return the components that a request is about."""
        method, params = request.method, request.params
        found: Found[Any] | None = None
        if method == "tools/call":
            found = self._catalog.tool(params.name, view.sees)
        elif method == "resources/subscribe":
            found = self.readable(params.uri, view)
        elif method == "resources/read":
            found = self.readable(params.uri, view) or self._unlisted(params.uri, request.principal, view)
        elif method == "prompts/get":
            found = self._catalog.prompt(params.name, view.sees)
        elif method == "completion/complete":
            is_prompt = isinstance(params.ref, t.PromptReference)
            found = self.referred(is_prompt, params.ref.name if is_prompt else params.ref.uri, view)
        elif method == "subscriptions/listen":
            uris = params.notifications.resource_subscriptions
            if uris is UNSET or len(uris) > self._most_uris:
                return ()  # So many are refused in any case, so they are not looked up.
            each = [self.readable(uri, view) for uri in uris]
            return [one for one in each if one is not None]
        else:
            found = self._catalog.extension_method(method, view.sees, request.capabilities)
        return () if found is None else (found,)


def _sees_all(found: Found[Any]) -> bool:
    """Take every component, those in the lists of single clients, too."""
    return True


def identity_of(found: Found[Any]) -> Identity:
    """Return the identity of a component on its way. It is the same in the lists of all and in those of one client."""
    way = tuple((mount.prefix, mount.catalog.owner.name) for mount in found.way if not mount.catalog.is_overlay)
    return Identity(found.component.kind, found.component.key, way)


def held_scopes(principal: Principal | None, implied: Implied) -> frozenset[str]:
    """Return the scopes of a caller as a server on the way counts them."""
    # A framework that authenticates in front of us may pass a principal of its own type.
    held = frozenset(getattr(principal, "scopes", None) or ())
    for effective in implied:
        held = effective(held)
    return held


def client_key(request: Incoming, outlet: Outlet) -> Hashable:
    """Return the connection of a legacy client, or the id of its HTTP session; None for any other caller."""
    if request.modern:
        return None
    connection = outlet.connection
    return connection if isinstance(connection, Session) else getattr(connection, "session_id", None)


def _is_local(request: Incoming, outlet: Outlet) -> bool:
    """Return whether a request is local and has no principal: then nothing is restricted.

    Over HTTP a caller without a token has no scopes.
    """
    return request.principal is None and outlet.is_local
