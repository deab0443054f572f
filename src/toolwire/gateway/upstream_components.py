"""`UpstreamComponents`: what one upstream lists, as the components of a catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from msgspec import UNSET

from toolwire.gateway.addresses import Addresses, Unit, units_of
from toolwire.gateway.linked_uris import LinkedUris, find_namers, may_be_secret, origin_of
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_components import (
    RemoteCompletion,
    RemotePrompt,
    RemoteResource,
    RemoteTemplate,
    RemoteTool,
    UnlistedResources,
)
from toolwire.gateway.remote_extensions import extensions_of, further_capabilities
from toolwire.gateway.remote_lists import MAX_LEFT_OUT, KnownServer, RemoteLists
from toolwire.gateway.remote_tasks import RemoteTasks
from toolwire.gateway.upstream_access import UpstreamAccess
from toolwire.gateway.upstream_log import Quoted
from toolwire.gateway.upstream_options import UpstreamRules
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.rounds import digest
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog, SkillSet
from toolwire.server.components import ToolBase
from toolwire.server.ping import answer_ping, refuse_ping

#: How many characters of the reason are shown for which a component is left out.
MAX_REASON: Final = 1_000


class UpstreamComponents:
    """Makes components from the lists of one upstream. Each of them has this object as its `Home`."""

    def __init__(
        self,
        catalog: Catalog,
        relay: Relay,
        addresses: Addresses,
        *,
        find_connection: Callable[[], KnownServer | None],
        rename: Callable[[str], str],
        find_rules: Callable[[], UpstreamRules],
        access: UpstreamAccess | None = None,
        trusts: bool = False,
        views: bool = True,
    ) -> None:
        """
        * `find_connection`: returns the connection on which the upstream said what it can do.
        * `rename`: returns the name of a tool or prompt here. It raises `ServerError` for one that cannot be offered.
        * `find_rules`: returns what the gateway says about all upstreams now.
        * `trusts`: what the upstream calls public is public.
        * `views`: views are offered, and tools that are for views alone.
        """
        self.relay: Relay = relay
        self.uris: UriNames = addresses.names
        """The URIs of the upstream that are renamed here."""
        self.links: LinkedUris = LinkedUris(addresses.names, self._find_key)
        self.trusts: bool = trusts
        self.shows_views: bool = views
        self._find_rules = find_rules
        self.origins: frozenset[str] = frozenset()
        self.reads_directories: bool = False
        self.access: UpstreamAccess | None = access
        """The restrictions of an upstream in this process; None for any other."""
        self.tool_tasks: RemoteTasks = RemoteTasks(self, relay.name)
        self._catalog = catalog
        self._addresses = addresses
        self._find_connection = find_connection
        self._rename = rename
        self._made_for = 0
        """The generation of URIs that the components were made for."""
        catalog.public_uri, catalog.inner_uri = self.uris.public, self.uris.inner
        catalog.foreign_tasks = self.tool_tasks
        catalog.upstream_access = access
        if not views:
            self.uris.hide_views()
            self.withhold_extensions("extensions")

    # --- components ---

    def fill(self, catalog: Catalog, lists: RemoteLists) -> list[str]:
        """Make the components in the lists those of a catalogue; return the families that have changed."""
        out = dict(lists.left_out)
        tools, prompts, resources, templates = self._make_all(catalog, lists, out)
        self._note_left_out(catalog, out)
        self._made_for = self.uris.generation
        listed = (*(each.uri for each in lists.resources), *(each.uri_template for each in lists.templates))
        self.origins = frozenset(map(origin_of, listed))
        skill_set = self._extend(catalog, lists.skills)
        changed = [
            family
            for family, before, after in (
                ("tools", catalog.tools, tools),
                ("prompts", catalog.prompts, prompts),
                ("resources", catalog.resources, resources),
                ("resources", catalog.templates, templates),
                ("resources", catalog.skill_set.skills, skill_set.skills),
            )
            if before != after or (catalog.is_unlisted and after)
        ]
        for each in (catalog, *catalog.family()):
            each.is_unlisted = False
        catalog.tools, catalog.prompts = tools, prompts
        catalog.resources, catalog.templates, catalog.skill_set = resources, templates, skill_set
        self._offer_completions(catalog)
        return list(dict.fromkeys(changed))

    def fill_overlay(self, catalog: Catalog, lists: RemoteLists) -> None:
        """Make the components in the lists of one client session those of a catalogue.

        Extensions and skills are those of the shared lists.
        """
        tools, prompts, resources, templates = self._make_all(catalog, lists, dict(lists.left_out))
        catalog.tools, catalog.prompts = tools, prompts
        catalog.resources, catalog.templates = resources, templates
        self._offer_completions(catalog)

    def begin_overlay(self, catalog: Catalog) -> None:
        """Give a new overlay the shared components, so that those in its lists stay the same objects."""
        shared = self._catalog
        catalog.upstream_access, catalog.foreign_tasks = self.access, self.tool_tasks
        catalog.is_unlisted = shared.is_unlisted
        catalog.tools, catalog.prompts = shared.tools, shared.prompts
        catalog.resources, catalog.templates = shared.resources, shared.templates

    def clear(self) -> None:
        """Offer nothing any more."""
        catalog = self._catalog
        self.give_up_addresses()
        catalog.follower = catalog.elsewhere = None
        catalog.tools, catalog.prompts, catalog.resources, catalog.templates = {}, {}, {}, {}
        catalog.skill_set, catalog.completions, catalog.notes, catalog.gateways = SkillSet(), {}, {}, ()
        catalog.further_capabilities = {}
        catalog.set_extensions({})
        for family in ("tools", "prompts", "resources"):
            catalog.changed(family, for_sure=False)

    def _make_all(
        self, catalog: Catalog, lists: RemoteLists, left_out: dict[str, str]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Make tools, prompts, resources and templates. `left_out` gets the reasons for those that cannot be made."""
        rename, make = self._rename, self._make
        return (
            make(lists.tools, lambda each: RemoteTool(self, each, rename(each.name)), catalog.tools, left_out),
            make(lists.prompts, lambda each: RemotePrompt(self, each, rename(each.name)), catalog.prompts, left_out),
            make(lists.resources, lambda each: RemoteResource(self, each), catalog.resources, left_out),
            make(lists.templates, lambda each: RemoteTemplate(self, each), catalog.templates, left_out),
        )

    def _make(
        self,
        definitions: Iterable[Any],
        make: Callable[[Any], Any],
        before: dict[str, Any],
        left_out: dict[str, str],
    ) -> dict[str, Any]:
        """Make components by their keys. One whose definition is the one that stands in `before` stays that object."""
        made: dict[str, Any] = {}
        for definition in definitions:
            try:
                component = make(definition)
            except (ServerError, ValueError) as error:
                if len(left_out) < MAX_LEFT_OUT:
                    left_out[getattr(definition, "name", "")[:200]] = str(error)
                continue
            if self.access is not None:
                component.tags = self.access.tags(component)
            known = before.get(component.key)
            if known is not None and self._is_same(known, component):
                component = known
            made.setdefault(component.key, component)
        return made

    def _is_same(self, known: Any, made: Any) -> bool:
        """Return whether two components are listed the same way. URIs may stand in their definitions."""
        # The same tool may run as a task now, because the server was replaced by one that has tasks.
        tasks = (getattr(known, "task", None), getattr(made, "task", None))
        if tasks[0] != tasks[1] or known.tags != made.tags or t.encode(known.remote) != t.encode(made.remote):
            return False
        return self._made_for == self.uris.generation or t.encode(known.wire(MODERN)) == t.encode(made.wire(MODERN))

    def _note_left_out(self, catalog: Catalog, left_out: dict[str, str]) -> None:
        log = self.relay.log
        texts = log.texts
        found = {texts.hide(name): texts.excerpt(reason, MAX_REASON) for name, reason in left_out.items()}
        for name, reason in found.items():
            if catalog.left_out.get(name) != reason:
                log.warning("%r is left out: %s", Quoted(name), Quoted(reason))
        catalog.left_out = found

    def _extend(self, filled: Catalog, skills: list[t.Skill]) -> SkillSet:
        """Offer the extensions that the upstream declares; return the skills of a catalogue.

        Those that it had before stay.
        """
        connection = self._find_connection()
        catalog = self._catalog
        if connection is None:
            return filled.skill_set
        if catalog.upstream_capabilities != connection.agreement.capabilities:
            catalog.upstream_capabilities = connection.agreement.capabilities
            catalog.changed("notes")
        declared = extensions_of(self, catalog, connection.agreement.capabilities)
        further = further_capabilities(connection.agreement.capabilities)
        catalog.elsewhere = UnlistedResources(self) if "resources/read" in connection.callable else None
        extensions = connection.agreement.capabilities.get("extensions", {})
        self.reads_directories = (
            t.SKILLS_EXTENSION in declared and extensions[t.SKILLS_EXTENSION].get("directoryRead") is True
        )
        kept = {
            name: each if (known := catalog.extensions.get(name)) is None or known.settings != each.settings else known
            for name, each in declared.items()
        }
        if (kept, further) != (catalog.extensions, catalog.further_capabilities):
            catalog.further_capabilities = further
            catalog.set_extensions(kept)
            self.withhold_extensions("extensions")
        if t.SKILLS_EXTENSION not in kept:
            return SkillSet()
        from toolwire.gateway.remote_skills import skill_set_of

        return skill_set_of(self, skills, filled.skill_set)

    def withhold_extensions(self, family: str) -> None:
        """Note which extensions of the upstream no server that mounts it can offer, after a change of a family."""
        if family == "extensions":
            withheld = (
                identifier
                for host in self._catalog.hosts()
                for identifier, owners in host.withheld_extensions().items()
                if self._catalog.owner in owners
            )
            hidden = () if self.shows_views else (UI_EXTENSION,)
            self.relay.withhold(frozenset((*withheld, *hidden)))

    def _offer_completions(self, catalog: Catalog) -> None:
        """Offer completions for all arguments, where the upstream has any."""
        connection = self._find_connection()
        catalog.completions = {}
        if connection is None or "completion/complete" not in connection.callable:
            return
        for prompt in cast("dict[str, RemotePrompt]", catalog.prompts).values():
            reference = {"type": "ref/prompt", "name": prompt.remote.name}
            for argument in prompt.argument_names:
                catalog.complete("ref/prompt", prompt.key, argument, RemoteCompletion(self, reference, argument))
        for template in cast("dict[str, RemoteTemplate]", catalog.templates).values():
            reference = {"type": "ref/resource", "uri": template.remote.uri_template}
            for variable in template.template.variables:
                catalog.complete("ref/resource", template.key, variable, RemoteCompletion(self, reference, variable))

    @property
    def answers_pings(self) -> bool:
        """Return whether pings of hosts that show views are answered on 2026-07-28."""
        return self._find_rules().answers_pings

    def apply_ping_rule(self) -> None:
        """Answer pings of hosts that show views from now on, or refuse them."""
        extension = self._catalog.extensions.get(UI_EXTENSION)
        if extension is not None:
            (answer_ping if self.answers_pings else refuse_ping)(extension)
            self._catalog.changed("extensions")

    # --- URIs ---

    def choose_addresses(self, all_lists: Iterable[RemoteLists]) -> None:
        """Choose the public URIs of everything in the lists that clients see now."""
        found: dict[tuple[str, str], Unit] = {}
        for lists in all_lists:
            for unit in units_of(lists.resources, lists.templates, lists.skills, lists.tools):
                found.setdefault((unit.kind, unit.main), unit)
        self._addresses.choose_addresses(found.values())

    def give_up_addresses(self) -> None:
        """Leave all URIs to other upstreams."""
        self._addresses.give_up()

    def has_resource(self, uri: str) -> bool:
        """Return whether the upstream lists a resource, and clients may hear of it."""
        catalog = self._catalog
        # No subscription to a secret URI of another upstream goes to this one.
        is_of_others = may_be_secret(uri) and self._is_named_by_others(uri)
        if catalog.resource(uri) is None and (catalog.template(uri) is None or is_of_others):
            return False
        return bool(catalog.hosts_told_of(uri))

    def _is_named_by_others(self, uri: str) -> bool:
        """Return whether other upstreams alone named a URI to anybody."""
        known = (host.owner.kernel.named_uris for host in self._catalog.hosts())
        namers = {namer for each in known for namer in each.find_all(digest(uri))}
        return bool(namers) and self.links.key not in namers

    def find_updated(self, uri: str) -> str | None:
        """Return the public URI of a resource that the upstream announces; None for one of another server."""
        uri = self.uris.public(uri)
        own = self._catalog.owner
        for host in self._catalog.hosts():
            found = host.resource(uri)
            holder = host.addresses.get(("resources", uri)) or (None if found is None else found.owner)
            if holder is None and self._catalog.template(uri) is None and (match := host.template(uri)) is not None:
                holder = match[0].owner
            if holder is not own and (holder is not None or self._is_named_by_others(uri)):
                return None
        return uri

    def own_uris(self, call: Call, uris: Iterable[str]) -> list[str]:
        """Return the URIs, as the upstream has them, that it lists or named to the caller."""
        return [self.uris.inner(uri) for uri in uris if self.has_resource(uri) or self.links.has(call, uri)]

    def has_named_secret(self, uri: str) -> bool:
        """Return whether the upstream named a URI to the caller that other callers should not get."""
        call = CURRENT.get(None)
        return call is not None and may_be_secret(uri) and self.links.has(call, uri)

    @staticmethod
    def is_named_secret(uri: str) -> bool:
        """Return whether any upstream, also one that is gone, named such a URI to the caller."""
        call = CURRENT.get(None)
        return call is not None and may_be_secret(uri) and bool(find_namers(call, uri))

    def _find_key(self) -> str:
        """Return what stands for the name of the upstream, and the server that it is behind."""
        return f"{self._catalog.host_name}:{self.relay.name_key}"

    # --- for the components ---

    def task_support(self, definition: t.Tool) -> t.TaskSupport | None:
        """Return whether calls of a tool may, or must, be tasks of the upstream; None for never."""
        connection = self._find_connection()
        if connection is None:
            return None
        declared = connection.agreement.capabilities
        if connection.modern:
            # The extension does not say it of a tool: the server decides for each call.
            return "optional" if t.has_capability(declared, f"extensions.{t.TASKS_EXTENSION}") else None
        execution = definition.execution
        if execution is UNSET or not t.has_capability(declared, "tasks.requests.tools.call"):
            return None
        return execution.task_support if execution.task_support in ("optional", "required") else None

    def listed_tool(self, key: str) -> ToolBase | None:
        """Return the tool that is listed under a key now."""
        return self._catalog.tools.get(key)
