"""The components of a server by name, those of mounted servers among them, in pages of stable order."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from toolwire.protocol.apps import SCHEME as VIEW_SCHEME
from toolwire.protocol.changes import Change
from toolwire.protocol.cursors import MISSING_KEY, decode_cursor, encode_cursor, page
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.methods import is_unknown_method
from toolwire.protocol.types import has_capability
from toolwire.protocol.upstreams import GatewayMark
from toolwire.server.call import Call, OwnServer
from toolwire.server.completion import Completion
from toolwire.server.components import Component, Prompt, Resource, ResourceTemplate, ToolBase
from toolwire.server.components.restriction import Audience, Effective, TagRule
from toolwire.server.extensions import AnyMethod, Extension, ExtensionMethod, merged_settings
from toolwire.server.foreign_tasks import ForeignTasks
from toolwire.server.hops import BackFigures
from toolwire.server.middleware import Middleware
from toolwire.server.subscriptions import Hub
from toolwire.stores import Stores

if TYPE_CHECKING:
    from toolwire.audit.log import AuditLog
    from toolwire.server.address_spellings import ListedAddresses
    from toolwire.server.named_uris import NamedUris
    from toolwire.server.policy import Policy

log: logging.Logger = logging.getLogger("toolwire.server")

C = TypeVar("C", bound=Component)

# The families of the protocol: templates change with resources (1.10.7: they have no notification of their own).
# SEP-2640: so do skills.
FAMILY: Final = {
    "tools": "tools",
    "resources": "resources",
    "templates": "resources",
    "skills": "resources",
    "prompts": "prompts",
}

_LISTED: Final = frozenset(("tools", "prompts", "resources", "templates"))

# What listeners are told of when an extension changes: clients have no notification of it.
_EXTENSIONS: Final = "extensions"

#: Permission sets whose lists are kept in order.
MAX_ORDERS: Final = 1024


class Mount:
    """Another server's catalogue, its names behind a prefix. A shape lets through less, and other names."""

    policy: Policy | None = None
    """The policy of the mount itself, which holds for all components that come through it."""
    scopes: frozenset[str] = frozenset()
    visible_to: Audience | None = None
    is_guarded: bool = False
    """Whether it, or one of the forms that it gives to components, has a policy."""
    approvals: Awaited | None = None
    """The approvals that decide what the mount lets through; None where it lets tools through without any."""
    is_shaped: bool = False
    """Whether components come through it in another form than the mounted server has."""
    upstream: str | None = None
    """The name of the upstream of a gateway that the catalogue is of; None for any other server."""

    def __init__(self, prefix: str, catalog: Catalog) -> None:
        self.prefix = prefix
        self.catalog = catalog

    def inner(self, name: str) -> str | None:
        """Return the name without the prefix; None when it cannot be a name of the mounted server."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    def inner_name(self, kind: str, name: str) -> str | None:
        """Return the name that the mounted server has for a tool or a prompt; None where it can have none."""
        return self.inner(name)

    def public_name(self, kind: str, name: str) -> str:
        """Return the name that a tool or a prompt of the mounted server has here."""
        return self.prefix + name

    # The methods of a catalogue with the same names say what these do. `way` is the part that leads to this mount.

    def tool(self, name: str, sees: Sees | None, way: Way) -> Found[ToolBase] | None:
        inner = self.inner(name)
        return None if inner is None else self.catalog.tool(inner, sees, (*way, self))

    def prompt(self, name: str, sees: Sees | None, way: Way) -> Found[Prompt] | None:
        inner = self.inner(name)
        return None if inner is None else self.catalog.prompt(inner, sees, (*way, self))

    def resource(self, uri: str, sees: Sees | None, way: Way) -> Found[Resource] | None:
        return self.catalog.resource(uri, sees, (*way, self))

    def template(self, uri: str, sees: Sees | None, way: Way) -> tuple[Found[ResourceTemplate], dict[str, str]] | None:
        return self.catalog.template(uri, sees, (*way, self))

    def unlisted_ways(self, uri: str, way: Way) -> list[Found[ResourceTemplate]]:
        return self.catalog.unlisted_ways(uri, (*way, self))

    def merged(self, kind: str, view: SeesComponents | None, way: Way) -> Iterator[tuple[str, Found[Any]]]:
        """Yield the components of a kind with their names here."""
        prefix = self.prefix if kind in ("tools", "prompts") else ""
        for name, found in self.catalog.merged(kind, view, (*way, self)):
            yield prefix + name, found

    def each(self, way: Way) -> Iterator[Found[Any]]:
        return self.catalog.each((*way, self))

    def each_extension(self, way: Way) -> Iterator[tuple[Extension, Owner, Way]]:
        return self.catalog.each_extension((*way, self))

    def completion(self, reference: str, name: str, argument: str, way: Way) -> tuple[Completion, Any] | None:
        """Find a completion behind this mount. `way` leads on from the mounted server."""
        inner = self.inner(name) if reference == "ref/prompt" else name
        return None if inner is None else self.catalog.completion(reference, inner, argument, way)

    def has(self, kind: str) -> bool:
        return self.catalog.has(kind)

    def reads_unlisted(self) -> bool:
        """Return whether resources can be read through this mount that are in no list."""
        return self.catalog.reads_unlisted()

    def reaches(self, uri: str) -> bool:
        """Return whether an address may be read through this mount."""
        return True

    def end(self) -> None:
        """Let go of what the mount keeps, because the other server is mounted no longer."""

    def tells_of(self, uri: str) -> bool:
        """Return whether clients here may hear that a resource of the mounted server was updated."""
        return True


Way: TypeAlias = "tuple[Mount, ...]"


class Restrictions(Protocol):
    """The demands of a server for components with certain tags (see `access.Access`)."""

    implies: bool
    effective: Effective
    rules: dict[str, tuple[TagRule, ...]]


class OwnerKernel(Protocol):
    """The kernel of a server, as far as the servers that mount it need it."""

    audit: AuditLog | None
    lifespans: dict[Any, Any]
    """What has entered the lifespan of the server, on each loop, with the value that it yielded."""
    middleware: list[Middleware]
    named_uris: NamedUris
    stores: Stores

    @property
    def access(self) -> Restrictions: ...

    @property
    def hubs(self) -> list[Hub]:
        """The hubs of the runtimes of the server."""

    def tell(self, change: Change) -> None:
        """Tell the clients of the server, on any loop and in any process, of a change."""

    @property
    def has_list_handler(self) -> bool: ...

    @property
    def hosted_tasks(self) -> Any:
        """The `server.tasks` of the server."""

    def compose(self) -> None: ...


class UpstreamRestrictions(Protocol):
    """The restrictions of an upstream in this process (see `gateway.upstream_access`)."""

    @property
    def access(self) -> Restrictions: ...

    def demand(self, component: Component) -> Any:
        """Return the `access.Demand` of the upstream for a component; None for one that it does not have."""


class Owner(OwnServer, Protocol):
    """The server that a catalogue belongs to, as far as the servers that mount it need it."""

    catalog: Catalog

    @property
    def policy(self) -> Policy | None: ...

    @property
    def kernel(self) -> OwnerKernel: ...

    @property
    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[Any]] | None: ...


class Awaited(Protocol):
    """Knows something that lists wait for, for a short time."""

    @property
    def is_public(self) -> bool:
        """Return whether the components are the same for everybody, and everybody may know them."""

    async def wait_until_known(self) -> None:
        """Wait, for a short time, until the components are known."""

    def freshen(self) -> Awaitable[None] | None:
        """Look again whether the components have changed; return None where nobody has to wait for that."""


class Follower(Awaited, Protocol):
    """Keeps a catalogue up to date whose components live elsewhere."""

    @property
    def load_caller_lists(self) -> Callable[[Call], Awaitable[None] | None] | None:
        """Called before a request is looked at, where the components differ between callers; None where they do not."""

    @property
    def credential(self) -> str | None:
        """The kind of the credential with which calls are made there; None where there is none."""

    def has_named_secret(self, uri: str) -> bool:
        """Return whether the server named a URI to the caller that others should not get."""

    def is_named_secret(self, uri: str) -> bool:
        """Return whether any server, also one that is gone, named such a URI to the caller."""

    def figures(self) -> BackFigures:
        """Return the state of the server that has the components, for the metrics."""

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        """Look again for components, before a tool of a call is unknown; None where that tells nothing new."""


class Found(Struct, Generic[C], frozen=True):
    """A component, the server it belongs to, and the mounts that lead to that one, from the outside in.

    The garbage collector has to see it: a catalogue keeps some of these, and each leads back to its server.
    """

    component: C
    owner: Owner
    way: Way = ()


Sees: TypeAlias = Callable[[Found[Any]], bool]


class SeesComponents(Protocol):
    """Says which components somebody sees."""

    def sees(self, found: Found[Any]) -> bool: ...


class Seen(SeesComponents, Protocol):
    """The view of the callers with one permission set."""

    @property
    def admitted(self) -> Hashable:
        """The permission set."""

    def enters(self, audience: Audience) -> bool:
        """Return whether the callers belong to the audience of a catalogue."""

    def lists(self, found: Found[Any]) -> bool:
        """Return whether lists have a component that the callers see."""

    def added(self, kind: str) -> Mapping[str, Found[Any]]:
        """Return components that only these lists have, by their names."""


class Claim(Struct, frozen=True):
    """A name that an extension of a server has, and no other extension can have."""

    kind: str
    name: str
    extension: Extension
    owner: Owner


class _Extended(Struct, frozen=True):
    """The extensions that a server offers, their settings, and every way to their methods, the nearest first."""

    extensions: dict[str, Extension]
    settings: dict[str, dict[str, Any]]
    methods: dict[str, list[Found[ExtensionMethod]]]
    unknown: list[Found[AnyMethod]]
    """The ways to the servers that have methods which nobody here knows."""
    withheld: dict[str, list[Owner]]
    """The extensions that cannot be offered, and the servers that have them."""


class SkillSource(Protocol):
    """A server elsewhere that has skills."""

    async def get_skill(self, call: Any, uri: str) -> Any | None:
        """Return its answer to `skills/get`; None where it has no such skill."""


class SkillSet(Struct, frozen=True):
    """The skills of one server. A reload replaces all of them in one step, so that no reader sees two generations."""

    skills: dict[str, Resource] = {}
    """The skills by the URIs of their SKILL.md."""
    listed: dict[str, Resource] = {}
    """The files that `resources/list` has."""
    files: dict[str, Resource] = {}
    """The URI of every file and directory, each with the component that reads it."""
    digests: dict[str, str] = {}
    """The digest of every file, by its URI."""
    folders: tuple[str, ...] = ()
    """The folders that the skills come from."""
    open_roots: dict[str, Resource] = {}
    """The roots of skills whose files nobody here knows, each with the component that reads them."""
    source: SkillSource | None = None
    """The server elsewhere that may have skills which it does not list."""

    def below_open_root(self, uri: str) -> Resource | None:
        """Return the skill that may have a file or a directory at an address."""
        while self.open_roots and uri:
            if uri in self.open_roots:
                return self.open_roots[uri]
            uri = uri.rpartition("/")[0]
        return None


class Catalog:
    """The components of one server. Reading never waits; changing, from any thread, tells the listeners."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.tools: dict[str, ToolBase] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, Prompt] = {}
        self.skill_set: SkillSet = SkillSet()
        self.completions: dict[tuple[str, str, str], Completion] = {}
        self.extensions: dict[str, Extension] = {}
        self.mounts: list[Mount] = []
        self._by_prefix: list[Mount] = []
        """The mounts in the order in which a tool or a prompt is looked for: the longest prefix first."""
        self._hosts: list[Catalog] = []
        self._family: list[Catalog] | None = None
        self._local: list[Catalog] | None = None
        self.listeners: list[Callable[[str], None]] = []
        self.mount_listeners: list[Callable[[], None]] = []
        """Called when a catalogue was mounted or removed, here or in a catalogue that is mounted here."""
        self.follower: Follower | None = None
        """Keeps the components up to date; None where they do not live elsewhere."""
        self._followers: list[Follower] | None = None
        self._awaited: list[Awaited] | None = None
        self.announce: Callable[[str, bool], None] | None = None
        """Tells the clients of the server, on all its loops, that a list changed: for sure or perhaps."""
        self.is_read: bool = True
        """Whether the lists of an upstream were read; True for a server in this process."""
        self.left_out: Mapping[str, str] = {}
        """Why components of an upstream cannot be offered, by their names."""
        self.is_unlisted: bool = False
        """Whether the components are in no list. They can still be called: the error then says what is wrong."""
        self.is_retired: bool = False
        """Whether the upstream of the components was taken away, and finishes what began."""
        self.is_strict: bool = False
        """Whether a list is an error while components of a mounted server are missing in it."""
        self.version: int = 0
        self._mark: str | None = None
        self.elsewhere: ResourceTemplate | None = None
        """Reads addresses that the server of these components does not list. It lives elsewhere."""
        self.further_capabilities: dict[str, Any] = {}
        """Capabilities of a server that lives elsewhere which nobody here knows."""
        self.upstream_capabilities: Mapping[str, Any] | None = None
        """What an upstream declares; None for a server of this process, and for an upstream that was not reached."""
        self.addresses: dict[tuple[str, str], Owner] = {}
        """The addresses of mounted servers that live elsewhere, by kind and text. The first one keeps it."""
        self.notes: dict[str, list[str]] = {}
        """Further members of `_meta` in lists, such as the names of servers whose components are missing."""
        self.gateways: Sequence[GatewayMark] = ()
        """The marks of gateways that an upstream brought, each with the servers behind it that lead to the gateway."""
        self.foreign_tasks: ForeignTasks | None = None
        """The tasks of the server elsewhere whose components these are; None where the components run here."""
        self.audience: Audience | None = None
        """The callers who see the components; None for everybody."""
        self.own_audience: Audience | None = None
        """The callers who see the components in the lists; None for all who see the catalogue."""
        self.find_unlisted: Callable[[str, str], Found[Any] | None] | None = None
        """Finds a tool or a prompt that is in no list, by its kind and its public name."""
        self.upstream_access: UpstreamRestrictions | None = None
        """The restrictions of an upstream that is a server of this process; None for any other server."""
        self.own_tasks: bool = False
        """Whether the program of the server makes tasks by itself (`Server(tasks=True)`)."""
        self.public_uri: Callable[[str], str] | None = None
        """Returns the URI that a resource of an upstream has in the servers that mount it; None if all URIs stay."""
        self.inner_uri: Callable[[str], str] | None = None
        """Returns the URI that a resource here has at its upstream; None for a server of this process."""
        self.has_upstreams: bool = False
        """Whether a gateway has upstreams here, or in a catalogue that is mounted here."""
        self.guarded: bool = False
        """Whether there is a policy here, or in a catalogue that is mounted here."""
        self.reserved_tools: frozenset[str] = frozenset()
        """Names of tools that clients of this server get from nothing here: those of its search."""
        self._reported_names: set[str] = set()
        self._repeating = (-1, False)
        self._ordered: dict[tuple[str, Any], tuple[int, list[str], dict[str, Found[Any]]]] = {}
        self._by_specificity: tuple[int, list[ResourceTemplate]] | None = None
        self._addresses: ListedAddresses | None = None
        self._extended: tuple[int, _Extended] | None = None

    # --- changing ---

    def add(self, *components: Component) -> None:
        """Add components. Listeners are called once for each family that changed."""
        for component in components:
            if not isinstance(component, Component):
                raise ServerError(f"{type(component).__name__} is not a tool, resource, template or prompt")
        self._check_reserved([component.key for component in components if component.kind == "tools"])
        for component in components:
            self._kind(component.kind)[component.key] = component
            self.guarded = self.guarded or component.policy is not None
        for family in dict.fromkeys(FAMILY[component.kind] for component in components):
            self.changed(family)

    def reserve_tools(self, names: frozenset[str]) -> None:
        """Reserve names of tools.

        Mounted tools that have them are left out of what this server itself offers. Raise `ServerError`, and change
        nothing, when a tool of the server itself has one of them.
        """
        self._check_reserved(self.tools, names)
        self.reserved_tools = names

    def _check_reserved(self, tools: Iterable[str], reserved: frozenset[str] | None = None) -> None:
        taken = (self.reserved_tools if reserved is None else reserved).intersection(tools)
        if taken:
            raise ServerError(
                f"{self.owner.name!r} has a search, which has the name {min(taken)!r}: give the tool another name"
            )

    def find(self, component: Component) -> Component | None:
        """Return the component of the same kind and name or address; None without one."""
        return self._kind(component.kind).get(component.key)

    def remove(self, *components: Component | str) -> None:
        """Remove components. Listeners are called once for each family that changed."""
        found = [self._held(component) for component in components]
        for component in found:
            self._kind(component.kind).pop(component.key, None)
        for family in dict.fromkeys(FAMILY[component.kind] for component in found):
            self.changed(family)

    def _held(self, component: Component | str) -> Component:
        """Find a component of this server by the object, by its key or, for a resource, by its name."""
        for kind in FAMILY:
            if kind == "skills":
                continue  # They come and go with their folder.
            items = self._kind(kind)
            held: Component | None = items.get(component.key if isinstance(component, Component) else component)
            if held is not None and (held is component or isinstance(component, str)):
                return held
        if isinstance(component, str) and (named := self._named(component)) is not None:
            return named
        raise ServerError(f"There is no component {component!r} to remove")

    def complete(self, reference: str, name: str, argument: str, completion: Completion) -> None:
        self.completions[reference, name, argument] = completion
        self.version += 1

    def mount(self, mount: Mount) -> None:
        catalog = mount.catalog
        if catalog is self or self in catalog.family():
            raise ServerError("A server cannot be mounted inside itself")
        for host in (self, *self.hosts()):
            for claim in catalog.claims():
                host.check_claim(claim)
        for uri, digest in catalog.digests().items():
            if uri.startswith(VIEW_SCHEME) and mount.resource(uri, None, ()) is not None:
                self.check_view(uri, digest)
        self.mounts.append(mount)
        self._order_by_prefix()
        catalog._hosts.append(self)
        self.guarded = self.guarded or catalog.guarded or mount.is_guarded
        self._mounts_changed(catalog)

    def check_view(self, uri: str, digest: str) -> None:
        """Raise `ServerError` when clients know another page under the address of a view.

        One of two tools would show the view of the other. Two servers with the same page may be mounted together.
        """
        for host in (self, *self.hosts()):
            if host.digests().get(uri, digest) != digest:
                raise ServerError(
                    f"Two servers in {host.owner.name!r} have the view {uri}, with different pages: "
                    "give one of them another uri="
                )

    def unmount(self, catalog: Catalog) -> None:
        """Offer the components of another catalogue no longer."""
        for mount in self.mounts:
            if mount.catalog is catalog:
                mount.end()
        self.mounts = [mount for mount in self.mounts if mount.catalog is not catalog]
        self._order_by_prefix()
        catalog._hosts = [host for host in catalog._hosts if host is not self]
        self._mounts_changed(catalog)

    def arrange(self, catalogs: Sequence[Catalog]) -> None:
        """Put mounted catalogues into this order, which decides where names collide. Others come after them."""
        places = {catalog: place for place, catalog in enumerate(catalogs)}
        arranged = sorted(self.mounts, key=lambda mount: places.get(mount.catalog, len(places)))
        if arranged != self.mounts:
            self.mounts = arranged
            self._order_by_prefix()
            for host in (self, *self.hosts()):
                host._family = host._local = host._followers = host._awaited = None
            for kind in ("tools", "resources", "prompts", _EXTENSIONS):
                self.changed(kind, for_sure=False)

    def _order_by_prefix(self) -> None:
        self._by_prefix = sorted(self.mounts, key=lambda mount: -len(mount.prefix))

    def _is_withheld(self, name: str, mount: Mount) -> bool:
        """Return whether a name of a mount may be that of another one, whose lists are not known yet.

        It begins with the longer prefix of the other one.
        """
        return any(
            not each.catalog.is_read and len(each.prefix) > len(mount.prefix) and name.startswith(each.prefix)
            for each in self._by_prefix
        )

    def _mounts_changed(self, catalog: Catalog) -> None:
        """Take note that a catalogue was mounted or removed here."""
        hosts = (self, *self.hosts())
        for host in hosts:
            host._family = host._local = host._followers = host._awaited = None
            each_mount = (mount for each in (host, *host.family()) for mount in each.mounts)
            host.has_upstreams = any(mount.upstream is not None for mount in each_mount)
        is_loading = any(each.load_caller_lists is not None for each in catalog.followers)
        if is_loading or any(each.owner.kernel.middleware for each in (catalog, *catalog.family())):
            for host in hosts:
                host.owner.kernel.compose()
        for kind in ("tools", "resources", "prompts", _EXTENSIONS):
            # The components of a server that lives elsewhere may not be known yet.
            self.changed(kind, for_sure=not catalog.followers)
        for host in hosts:
            for listener in tuple(host.mount_listeners):
                listener()

    def all_notes(self, view: Seen | None = None) -> dict[str, list[str]]:
        """Return what this server and those mounted in it say in `_meta` of their lists.

        `view` is that of the callers who get a list. Without it, only that counts which concerns everybody.
        """
        found: dict[str, dict[str, None]] = {}
        for catalog in self._each_seen(None if view is None else view.sees):
            audience = catalog.audience
            if audience is not None and (view is None or not view.enters(audience)):
                continue
            for key, texts in catalog.notes.items():
                found.setdefault(key, {}).update(dict.fromkeys(texts))
        return {key: list(texts) for key, texts in found.items()}

    def missing(self, view: Seen | None = None) -> list[str]:
        """Return the names of the servers whose components are missing in lists, or may be out of date."""
        return self.all_notes(view).get(MISSING_KEY, [])

    def find_left_out(self) -> list[str]:
        """Return the components of upstreams that cannot be offered, each behind the name of its upstream."""
        return [f"{each.owner.name}/{name}" for each in (self, *self.family()) for name in each.left_out]

    def missing_for(self, name: str, sees: Sees | None = None, way: Way = ()) -> list[str]:
        """Return servers that may have a tool or prompt of a name, and whose lists are missing: three at most."""
        found: list[str] = []
        for mount in self.mounts:
            inner = mount.inner(name)
            longer = (*way, mount)
            if inner is not None and _sees_server(mount, longer, sees):
                found += (
                    *mount.catalog.notes.get(MISSING_KEY, ()),
                    *mount.catalog.missing_for(inner, sees, longer),
                )
        return found[:3]

    def each_server(self, way: Way = ()) -> Iterator[Found[ResourceTemplate]]:
        """Yield what stands for all that each mounted server may have, also while its lists are missing."""
        for mount in self.mounts:
            longer = (*way, mount)
            yield Found(any_resource(), mount.catalog.owner, longer)
            yield from mount.catalog.each_server(longer)

    def _each_seen(self, sees: Sees | None, way: Way = ()) -> Iterator[Catalog]:
        """Yield this catalogue and those of the mounted servers that a caller may know of."""
        yield self
        for mount in self.mounts:
            longer = (*way, mount)
            if _sees_server(mount, longer, sees):
                yield from mount.catalog._each_seen(sees, longer)

    @property
    def mark(self) -> str:
        """A text that no other catalogue has, in any process. It shows when servers lead to each other in a circle."""
        if self._mark is None:
            self._mark = os.urandom(8).hex()
        return self._mark

    def family(self) -> Sequence[Catalog]:
        """Return the catalogues mounted here, at any depth; each once, however often it is mounted."""
        known = self._family
        if known is None:
            found: dict[Catalog, None] = {}
            for mount in self.mounts:
                found.update(dict.fromkeys((mount.catalog, *mount.catalog.family())))
            known = self._family = list(found)
        return known

    @property
    def followers(self) -> Sequence[Follower]:
        """The followers of this catalogue and of those that are mounted here."""
        known = self._followers
        if known is None:
            following = (each.follower for each in (self, *self.family()))
            known = self._followers = list(dict.fromkeys(each for each in following if each is not None))
        return known

    @property
    def awaited(self) -> Sequence[Awaited]:
        """The followers, and the approvals of mounts: lists wait for them."""
        known = self._awaited
        if known is None:
            approvals = (mount.approvals for each in (self, *self.family()) for mount in each.mounts)
            known = self._awaited = [*self.followers, *(each for each in approvals if each is not None)]
        return known

    def hosts(self) -> list[Catalog]:
        """Return the catalogues in which this one is mounted, at any depth; each once."""
        found: dict[Catalog, None] = {}
        for host in self._hosts:
            found.update(dict.fromkeys((host, *host.hosts())))
        return list(found)

    @property
    def host_name(self) -> str:
        """Return the name of the server that mounts this one first; empty where none does."""
        return next((host.owner.name for host in self._hosts), "")

    def hosts_told_of(self, uri: str) -> list[Catalog]:
        """Return the catalogues in which this one is mounted, and whose clients may hear of a resource here."""
        found: dict[Catalog, None] = {}
        for host in self._hosts:
            if any(mount.catalog is self and mount.tells_of(uri) for mount in host.mounts):
                found.update(dict.fromkeys((host, *host.hosts_told_of(uri))))
        return list(found)

    def sees_server(self, owner: Owner, sees: Sees) -> bool:
        """Return whether a caller may know of a server that is mounted here itself."""
        return any(_sees_server(mount, (mount,), sees) for mount in self.mounts if mount.catalog.owner is owner)

    def ways_to(self, server: str, way: Way = ()) -> Iterator[tuple[Owner, Way]]:
        """Yield the servers of a name, here and mounted here, with the mounts that lead to them."""
        if self.owner.name == server:
            yield self.owner, way
        for mount in self.mounts:
            yield from mount.catalog.ways_to(server, (*way, mount))

    def _hosts_changed(self, for_sure: bool) -> dict[Catalog, bool]:
        """Return the catalogues in which this one is mounted, and whether their lists changed for sure.

        A shape may leave out whatever changed.
        """
        found: dict[Catalog, bool] = {}
        for host in self._hosts:
            is_sure = for_sure and any(mount.catalog is self and not mount.is_shaped for mount in host.mounts)
            for each, sure in ((host, is_sure), *host._hosts_changed(is_sure).items()):
                found[each] = found.get(each, False) or sure
        return found

    @property
    def is_shaped(self) -> bool:
        """Return whether components come through a shape, here or in a catalogue that is mounted here."""
        return any(mount.is_shaped for each in (self, *self.family()) for mount in each.mounts)

    def local(self) -> Sequence[Catalog]:
        """Return this catalogue and the mounted ones whose components live in this process."""
        known = self._local
        if known is None:
            known = self._local = [each for each in (self, *self.family()) if each.follower is None]
        return known

    def skill_sources(self, uri: str, usable: Sees | None, way: Way = ()) -> Iterator[SkillSource]:
        """Yield the servers elsewhere that may have a skill at an address which they do not list.

        `usable` says whether a caller may read what such a server does not list.
        """
        source, reader = self.skill_set.source, self.elsewhere
        if source is not None and (usable is None or (reader is not None and usable(Found(reader, self.owner, way)))):
            yield source
        for mount in tuple(self.mounts):
            if mount.reaches(uri):
                yield from mount.catalog.skill_sources(uri, usable, (*way, mount))

    def set_skills(self, skills: SkillSet) -> None:
        """Replace all skills in one step."""
        self.skill_set = skills
        self.changed("skills")

    def digests(self) -> dict[str, str]:
        """Return the digest of every file of a skill and of every view, here and in mounted servers, by its URI."""
        found: dict[str, str] = {}
        for catalog in (*self.family(), self):
            found.update(catalog.skill_set.digests)
            found.update({uri: each.digest for uri, each in catalog.resources.copy().items() if each.digest})
        return found

    def changed(self, kind: str, *, for_sure: bool = True) -> None:
        """Take note that components changed. `for_sure`: clients are told, also where the lists look the same."""
        touched = {self: for_sure, **self._hosts_changed(for_sure)}
        for catalog in touched:
            catalog.version += 1
            # Lists of callers who never come back must not keep components that are gone.
            catalog._ordered = {}
            catalog.guarded = catalog.guarded or self.guarded
        family = FAMILY.get(kind, kind)
        for catalog, is_sure in touched.items():
            for listener in tuple(catalog.listeners):
                listener(family)
            if catalog.announce is not None:
                catalog.announce(family, is_sure)

    # --- extensions ---

    def add_extension(self, extension: Extension) -> None:
        if not extension.is_remote:
            self.claim(extension, "extension", extension.identifier)
        self.extensions[extension.identifier] = extension
        self.changed(_EXTENSIONS)

    def claim(self, extension: Extension, kind: str, name: str) -> None:
        """Raise `ServerError` when an extension of this server cannot have a name, because another one has it."""
        for host in (self, *self.hosts()):
            host.check_claim(Claim(kind, name, extension, self.owner))

    def extended(self, method: ExtensionMethod) -> None:
        """Take note that an extension of this server has a new method."""
        self.guarded = self.guarded or method.policy is not None
        self.changed(_EXTENSIONS)

    def claims(self) -> Iterator[Claim]:
        """Yield the names that the extensions of this server and of those mounted in it have."""
        for catalog in (self, *self.family()):
            for extension in catalog.extensions.values():
                for kind, name in extension.claims():
                    yield Claim(kind, name, extension, catalog.owner)

    def check_claim(self, claim: Claim) -> None:
        """Raise `ServerError` when another extension that is offered here has the name."""
        for held in self.claims():
            if held.extension.is_shared and claim.extension.is_shared:
                continue
            if (held.kind, held.name) == (claim.kind, claim.name) and held.extension is not claim.extension:
                if held.owner is claim.owner:
                    raise ServerError(f"{claim.owner.name!r} has the {claim.kind} {claim.name} already")
                both = f"{held.owner.name!r} and {claim.owner.name!r}"
                raise ServerError(
                    f"{both} both have the {claim.kind} {claim.name}: take it from one of them, or mount only one"
                )

    def set_extensions(self, extensions: dict[str, Extension]) -> None:
        """Replace the extensions of a server that lives elsewhere."""
        self.extensions = extensions
        self.changed(_EXTENSIONS)

    def has_own_tasks(self) -> bool:
        """Return whether this server, or one mounted in it, has `tasks=True`."""
        return self.own_tasks or any(catalog.own_tasks for catalog in self.family())

    def all_extensions(self) -> Mapping[str, Extension]:
        """Return the extensions of this server and of those mounted in it, by their identifiers."""
        return self._all_extended().extensions

    def extension_settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings of the extensions, merged where several servers have one together."""
        return self._all_extended().settings

    def seen_extension_settings(self, sees: Sees) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings of the extensions that are offered, of the servers that a caller may know of."""
        offered, held = self._all_extended(), dict[str, list[Extension]]()
        for extension, owner, way in self.each_extension(()):
            name = extension.identifier
            is_offered = name in offered.extensions and owner not in offered.withheld.get(name, ())
            if is_offered and sees(Found(any_resource(), owner, way)):
                held.setdefault(name, []).append(extension)
        return {name: merged_settings(extensions) for name, extensions in held.items()}

    def all_further_capabilities(self, sees: Sees | None = None) -> dict[str, Any]:
        """Return the capabilities of servers elsewhere that no type here knows. The first server decides.

        With `sees`, only the servers count that a caller may know of.
        """
        found: dict[str, Any] = {}
        for catalog in (self, *self.family()) if sees is None else self._each_seen(sees):
            for name, value in catalog.further_capabilities.items():
                held = found.setdefault(name, value)
                if isinstance(held, dict) and isinstance(value, dict):
                    found[name] = {**value, **held}
        return found

    def withheld_extensions(self) -> Mapping[str, list[Owner]]:
        """Return the extensions that are not offered, because nothing says which server a request is for.

        Each comes with the servers elsewhere that have it.
        """
        return self._all_extended().withheld

    def extension_method(
        self, name: str, sees: Sees | None = None, declared: Mapping[str, Any] | None = None
    ) -> Found[ExtensionMethod] | None:
        """Return a method of an extension; None where there is none, or where the caller does not see it.

        `declared` are the capabilities of the caller, as in `unknown_methods`.
        """
        extended = self._all_extended()
        ways: Iterable[Found[Any]] = extended.methods.get(name) or self.unknown_methods(name, sees, declared)
        return next((each for each in ways if sees is None or sees(each)), None)

    def unknown_methods(
        self, name: str, sees: Sees | None = None, declared: Mapping[str, Any] | None = None
    ) -> list[Found[AnyMethod]]:
        """Return the ways to the servers elsewhere that may have a method, the likeliest first.

        Only a server with an extension in `declared`, the capabilities of a client, may get what that client sends;
        None stands for any client. All ways have the same servers on them, so that the same rules hold for each.
        """
        extended = self._all_extended()
        if not extended.unknown or name in extended.methods or not is_unknown_method(name):
            return []
        ways = [each for each in extended.unknown if _may_take(each, sees, declared)]
        ways.sort(key=lambda each: -each.component.likelihood(name))
        return _first_of_each([each for each in ways if each.way[:-1] == ways[0].way[:-1]])

    def unknown_servers(self, sees: Sees | None, declared: Mapping[str, Any]) -> list[Found[AnyMethod]]:
        """Return one way to each server elsewhere that has a declared extension which nobody here knows."""
        return _first_of_each([each for each in self._all_extended().unknown if _may_take(each, sees, declared)])

    def _all_extended(self) -> _Extended:
        version, known = self.version, self._extended
        if known is None or known[0] != version:
            known = self._extended = (version, _extended(self.each_extension(())))
        return known[1]

    def each_extension(self, way: Way) -> Iterator[tuple[Extension, Owner, Way]]:
        """Yield the extensions of this server and of those mounted in it, each with its server and the way to it."""
        for extension in tuple(self.extensions.values()):
            yield extension, self.owner, way
        for mount in tuple(self.mounts):
            yield from mount.each_extension(way)

    # --- finding ---

    # `sees` says whether a caller sees a component. Hiding a component may uncover another of the same name. `sees`
    # gets the whole way to a component, because each server on the way decides. `way` is the part that leads here.

    def tool(self, name: str, sees: Sees | None = None, way: Way = ()) -> Found[ToolBase] | None:
        own = self.tools.get(name)
        if own is not None:
            found = Found(own, self.owner, way)
            if sees is None or sees(found):
                return found
        if not way:
            if sees is None:
                return self._mounted("tools", name)
            if name in self.reserved_tools:
                return None
        for mount in self._by_prefix:
            if (held := mount.tool(name, sees, way)) is not None and not self._is_withheld(name, mount):
                return held
        return None

    @property
    def is_overlay(self) -> bool:
        """Return whether only one client sees these components: they are no part of the lists of all."""
        return self.audience is not None and self.audience.clients is not None

    @property
    def repeats_arguments(self) -> bool:
        """Return whether headers repeat arguments of a tool, here or behind this server."""
        version, repeats = self._repeating
        if version != self.version:
            version = self.version
            repeats = any(found.component.headers for found in self._order("tools")[2].values())
            self._repeating = (version, repeats)
        return repeats

    def prompt(self, name: str, sees: Sees | None = None, way: Way = ()) -> Found[Prompt] | None:
        own = self.prompts.get(name)
        if own is not None:
            found = Found(own, self.owner, way)
            if sees is None or sees(found):
                return found
        if sees is None and not way:
            return self._mounted("prompts", name)
        for mount in self._by_prefix:
            if (held := mount.prompt(name, sees, way)) is not None and not self._is_withheld(name, mount):
                return held
        return None

    def resource(self, uri: str, sees: Sees | None = None, way: Way = ()) -> Found[Resource] | None:
        # Addresses are global already, so a prefix does not apply to them. The file of a skill comes before a resource
        # of the same address, because its skill promises a digest.
        skills = self.skill_set
        for own in (skills.files.get(uri), self.resources.get(uri), skills.below_open_root(uri)):
            if own is not None:
                found = Found(own, self.owner, way)
                if sees is None or sees(found):
                    return found
        mounted = (mount.resource(uri, sees, way) for mount in self.mounts)
        return next((found for found in mounted if found is not None), None)

    def unlisted_component(self, kind: str, name: str) -> Found[Any] | None:
        """Return a tool or a prompt that is in no list; None where all are listed."""
        return None if self.find_unlisted is None else self.find_unlisted(kind, name)

    def address(self, name: str) -> str:
        """Return the address of the resource of that name; any other text is taken for an address."""
        if self.resource(name) is None and self.template(name) is None:
            named = self._named(name)
            if isinstance(named, Resource):
                return named.uri
        return name

    def _named(self, name: str) -> Resource | ResourceTemplate | None:
        readable: list[Resource | ResourceTemplate] = [*self.resources.values(), *self.templates.values()]
        found = [each for each in readable if each.name == name]
        if len(found) > 1:
            raise ServerError(f"{len(found)} resources are named {name!r}: say the address")
        return found[0] if found else None

    def template(
        self, uri: str, sees: Sees | None = None, way: Way = ()
    ) -> tuple[Found[ResourceTemplate], dict[str, str]] | None:
        """Return the most specific template that matches, with its variables."""
        is_hidden = sees is not None and bool(self.templates) and self._hides(uri, sees, way)
        for template in () if is_hidden else self._templates():
            if template.function is None:
                continue  # Listed, but it cannot be read.
            found = Found(template, self.owner, way)
            if sees is not None and not sees(found):
                continue
            variables = template.template.match(uri)
            if variables is not None:
                return found, variables
        mounted = [mount.template(uri, sees, way) for mount in self.mounts]
        matched = [each for each in mounted if each is not None]
        if matched and not way and self.has_upstreams and any(each.is_named_secret(uri) for each in self.followers):
            # A signed URI is for nobody but the upstream that named it, whatever templates match it.
            named = [each for each in self.followers if each.has_named_secret(uri)]
            matched = [each for each in matched if each[0].owner.catalog.follower in named]
        # Of templates that are equally specific, that of the first mount is used.
        return min(matched, key=lambda each: each[0].component.template.specificity[:4], default=None)

    def _hides(self, uri: str, sees: Sees, way: Way) -> bool:
        """Return whether an upstream would read a component at an address that the caller does not see.

        The upstream gets the address alone, and reads what it has there, whichever template of it matched here.
        """
        if self.follower is None and not self.is_overlay:
            return False
        from toolwire.server.address_spellings import LONGEST, ListedAddresses  # Few servers need it.

        if self._addresses is None or self._addresses.version != self.version:
            self._addresses = ListedAddresses(self.version, self.resources.values(), self.templates.values())
        if len(uri) > LONGEST:
            return True
        return not all(sees(Found(each, self.owner, way)) for each in self._addresses.find_nearest(uri))

    def unlisted(self, uri: str, sees: Sees | None = None) -> tuple[Found[ResourceTemplate], dict[str, str]] | None:
        """Return what reads an address that no list has, at a server elsewhere; None for any other address.

        An address that one caller sees is none of these for all callers.
        """
        ways = [each for each in self.unlisted_ways(uri) if sees is None or sees(each)]
        if not ways or self.resource(uri) is not None or self.template(uri) is not None:
            return None
        return ways[0], {"uri": uri}

    def unlisted_ways(self, uri: str, way: Way = ()) -> list[Found[ResourceTemplate]]:
        """Return the ways to the servers elsewhere that may know an address which they do not list.

        All of them have the same servers on the way. A server with a policy of its own comes behind those without one:
        a call is judged as one of the first server, and by the policies of the others when they are asked.
        """
        own = [] if self.elsewhere is None else [Found(self.elsewhere, self.owner, way)]
        found = [*own, *(each for mount in self.mounts for each in mount.unlisted_ways(uri, way))]
        alike = [each for each in found if each.way[:-1] == found[0].way[:-1]]
        return sorted(alike, key=lambda each: each.owner.policy is not None)

    def completion(self, reference: str, name: str, argument: str, way: Way) -> tuple[Completion, Any] | None:
        """Find the completion for an argument, and its server: this one, or the nearest one on the way.

        `name` is the name of the component in this server, and `way` leads from here to the server that the component
        belongs to.
        """
        own = self.completions.get((reference, name, argument))
        if own is None and not way:
            component = (self.prompts if reference == "ref/prompt" else self.templates).get(name)
            own = None if component is None else component.completions.get(argument)
        if own is not None and self._is_nearest(reference, name, way):
            return own, self.owner
        if not way:
            return None
        return way[0].completion(reference, name, argument, way[1:])

    def _is_nearest(self, reference: str, name: str, way: Way) -> bool:
        """Return whether a completion here is for the component at the end of `way`.

        It is for the first component of its name. A caller who does not see the first one gets the next, and must not
        get the completions of the first.
        """
        if reference == "ref/prompt":
            first: Found[Any] | None = self.prompt(name)
        else:
            first = self.all("templates").get(name) or self.resource(name)
        return first is None or first.way == way

    def look_again(self, call: Call, name: str) -> list[Awaitable[Any]]:
        """Look again for a tool that is not known; return what to wait for."""
        found: list[Awaitable[Any]] = []
        for mount in self.mounts:
            inner = mount.inner(name)
            if inner is None:
                continue
            follower = mount.catalog.follower
            waited = None if follower is None or mount.catalog.is_overlay else follower.look_again(call)
            found += [waited] if waited is not None else mount.catalog.look_again(call, inner)
        return found

    def has_completions(self) -> bool:
        own: list[Prompt | ResourceTemplate] = [*self.prompts.values(), *self.templates.values()]
        return (
            bool(self.completions)
            or any(each.choices or each.completions for each in own)
            or any(mount.catalog.has_completions() for mount in self.mounts)
        )

    def lists(self, component: Component) -> bool:
        """Return whether a component is in the lists of this server itself. Skills and unlisted resources are not."""
        return component.kind in _LISTED and self._kind(component.kind).get(component.key) is component

    def has(self, kind: str) -> bool:
        return bool(self._kind(kind)) or any(mount.has(kind) for mount in self.mounts)

    def reads_unlisted(self) -> bool:
        """Return whether unlisted resources can be read: kept results, or those of an upstream."""
        return self.elsewhere is not None or any(mount.reads_unlisted() for mount in self.mounts)

    def each(self, way: Way = ()) -> Iterator[Found[Any]]:
        """Yield every component of this server and of those mounted in it, also those that a nearer one hides."""
        for kind in FAMILY:
            for component in self._kind(kind).copy().values():
                yield Found(component, self.owner, way)
        for extension in tuple(self.extensions.values()):
            for method in tuple(extension.methods.values()):
                yield Found(method, self.owner, way)
            if extension.any_method is not None:
                yield Found(extension.any_method, self.owner, way)
        for mount in tuple(self.mounts):
            yield from mount.each(way)

    def each_elsewhere(self, way: Way = ()) -> Iterator[Found[ResourceTemplate]]:
        """Yield what reads addresses that no list has, at each server elsewhere."""
        if self.elsewhere is not None:
            yield Found(self.elsewhere, self.owner, way)
        for mount in tuple(self.mounts):
            yield from mount.catalog.each_elsewhere((*way, mount))

    def all(self, kind: str, view: Seen | None = None) -> dict[str, Found[Any]]:
        """Return every component of a kind by its public name; the nearest one wins where names collide."""
        return self._order(kind, view)[2]

    def listed(self, kind: str, view: Seen | None = None) -> dict[str, Component]:
        """Return the components in the lists of callers with a view, by their public names; None sees everything."""
        _, names, items = self._order(kind, view)
        return {name: items[name].component for name in names}

    def listed_ways(self, kind: str, view: Seen | None = None) -> dict[str, Found[Any]]:
        """Return the components in the lists of callers with a view, with the ways to them."""
        _, names, items = self._order(kind, view)
        return {name: items[name] for name in names}

    # --- pages ---

    def page(
        self, kind: str, cursor: str | None, size: int, view: Seen | None = None
    ) -> tuple[list[tuple[str, Found[Any]]], str | None]:
        """Return one page in the order of names, and the cursor of the next."""
        after = None
        if cursor is not None:
            try:
                after = decode_cursor(cursor, kind)
            except ValueError:
                raise ProtocolError(INVALID_PARAMS, "Unknown cursor; start again without one") from None
        _, keys, items = self._order(kind, view)
        names, last = page(keys, after, size)
        return [(name, items[name]) for name in names], None if last is None else encode_cursor(kind, last)

    def _order(self, kind: str, view: Seen | None = None) -> tuple[int, list[str], dict[str, Found[Any]]]:
        key = (kind, None if view is None else view.admitted)
        # Read the version before the components. If another thread adds one meanwhile, the next call looks again.
        version = self.version
        known = self._ordered.get(key)
        if known is None or known[0] != version:
            has_overlays = view is None and any(each.is_overlay for each in self.family())
            items = dict(self.merged(kind, WITHOUT_OVERLAYS if has_overlays else view))
            if kind == "tools" and not self.reserved_tools.isdisjoint(items):
                self._leave_out_reserved(items)
            # A plain dict, not `Expiring`: each list looks here, and when it is full it is cheap to begin anew.
            if len(self._ordered) >= MAX_ORDERS:
                self._ordered.clear()
            # TOL-1: the same order in every call and every process.
            added = {} if view is None else view.added(kind)
            listed = sorted((*(name for name, found in items.items() if _is_listed(found, view)), *added))
            items |= added
            known = self._ordered[key] = (version, listed, items)
        return known

    def _leave_out_reserved(self, tools: dict[str, Found[Any]]) -> None:
        """Leave out mounted tools that have a reserved name."""
        for name in self.reserved_tools.intersection(tools):
            server = tools.pop(name).owner.name
            if name not in self._reported_names:
                self._reported_names.add(name)
                log.warning(
                    "the tool %r of %r is left out: the search of %r has this name; give %r another prefix",
                    *(name, server, self.owner.name, server),
                )

    def merged(self, kind: str, view: SeesComponents | None, way: Way = ()) -> Iterator[tuple[str, Found[Any]]]:
        """Yield the components of a kind by their public names. The last one of a name wins."""
        # Mounted catalogues cache nothing here, because the way to them decides what a caller sees.
        is_named = kind in ("tools", "prompts")
        for mount in reversed(self._by_prefix if is_named else self.mounts):
            for name, found in mount.merged(kind, view, way):
                if not (is_named and self._is_withheld(name, mount)):
                    yield name, found
        # A copy in one step: another thread may change the components meanwhile.
        own: Iterable[tuple[str, Any]] = self._kind(kind).copy().items()
        if kind == "resources" and self.skill_set.listed:
            own = (*own, *self.skill_set.listed.items())
        for key, component in own:
            found = Found(component, self.owner, way)
            if view is None or view.sees(found):
                yield key, found

    def _templates(self) -> list[ResourceTemplate]:
        version, known = self.version, self._by_specificity
        if known is None or known[0] != version:
            ordered = sorted(self.templates.values(), key=lambda each: each.template.specificity)
            known = self._by_specificity = (version, ordered)
        return known[1]

    def _mounted(self, kind: str, name: str) -> Found[Any] | None:
        """Find a tool or a prompt of the servers mounted here, for somebody who sees everything."""
        if not self.mounts:
            return None
        known = self._ordered.get((kind, None))  # Every call looks here, and nearly always this is the newest.
        return (self._order(kind) if known is None or known[0] != self.version else known)[2].get(name)

    def _kind(self, kind: str) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "resources": self.resources,
            "templates": self.templates,
            "skills": self.skill_set.skills,
            "prompts": self.prompts,
        }[kind]  # type: ignore[return-value]


class _WithoutOverlays:
    """The view of a caller who sees everything but the lists of single clients."""

    def sees(self, found: Found[Any]) -> bool:
        return not any(mount.catalog.is_overlay for mount in found.way)


WITHOUT_OVERLAYS: Final = _WithoutOverlays()


# Stands for all that a server may have.
@cache
def any_resource() -> ResourceTemplate:
    return ResourceTemplate("{+uri}", lambda uri: uri, name="unlisted", screen=False)


def _sees_server(mount: Mount, way: Way, sees: Sees | None) -> bool:
    """Return whether a caller may know of a mounted server."""
    return sees is None or sees(Found(any_resource(), mount.catalog.owner, way))


def _is_listed(found: Found[Any], view: Seen | None) -> bool:
    if found.owner.catalog.is_unlisted or found.component.is_unlisted:
        return False
    return view is None or view.lists(found)


def _may_take(way: Found[AnyMethod], sees: Sees | None, declared: Mapping[str, Any] | None) -> bool:
    if declared is not None and not has_capability(declared, way.component.extension.capability):
        return False
    return sees is None or sees(way)


def _first_of_each(ways: list[Found[AnyMethod]]) -> list[Found[AnyMethod]]:
    """Return the first way to each server."""
    first: dict[Owner, Found[AnyMethod]] = {}
    for each in ways:
        first.setdefault(each.owner, each)
    return list(first.values())


def _extended(ways: Iterable[tuple[Extension, Owner, Way]]) -> _Extended:
    """Put together the extensions that a server offers: its own, and those of the servers mounted in it."""
    found = _Extended({}, {}, {}, [], {})
    by_identifier: dict[str, list[tuple[Extension, Owner, Way]]] = {}
    for each in ways:
        by_identifier.setdefault(each[0].identifier, []).append(each)
    for identifier, held in by_identifier.items():
        offered = _offered([extension for extension, _, _ in held])
        if offered:
            found.extensions[identifier] = offered[0]
            found.settings[identifier] = merged_settings(offered)
        for extension, owner, way in held:
            if extension not in offered:
                found.withheld.setdefault(identifier, []).append(owner)
                continue
            for method in tuple(extension.methods.values()):
                found.methods.setdefault(method.key, []).append(Found(method, owner, way))
            if extension.any_method is not None:
                found.unknown.append(Found(extension.any_method, owner, way))
    return found


def _offered(held: list[Extension]) -> list[Extension]:
    """Return those of several extensions of one identifier that are offered.

    A server here is preferred to one elsewhere. Of those elsewhere nothing says which one a request is for, unless it
    is the only one, or this library knows the extension and answers for all of them.
    """
    here = [each for each in held if not each.is_remote or each.is_shared]
    if here:
        return here
    return held if len(set(held)) == 1 else []


def changed_files(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the addresses whose digest is another one now. Files that came or went change a list."""
    return sorted(uri for uri, digest in after.items() if before.get(uri, digest) != digest)
