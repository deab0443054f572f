"""`ShapedMount`: a mounted server of which a shape lets through a part, in another form."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.tool_changes import Definition, definition_of
from toolwire.server.address_spellings import LONGEST, ListedAddresses, bare_form, find_spellings
from toolwire.server.catalog import Awaited, Catalog, Found, Mount, Owner, Sees, SeesComponents, Way
from toolwire.server.completion import Completion
from toolwire.server.components import Component, Prompt, Resource, ResourceTemplate, ToolBase
from toolwire.server.components.restriction import Audience, audience_of, names_of
from toolwire.server.extensions import Extension
from toolwire.server.kept_results import KeptResult, is_kept_result
from toolwire.server.shaping.arguments import ArgumentMistake, nearest
from toolwire.server.shaping.components import (
    ShapedCompletion,
    ShapedPrompt,
    ShapedTool,
    WithheldTool,
    shaped_resource,
)
from toolwire.server.shaping.large_results import LargeResults
from toolwire.server.shaping.pins import UNKNOWN, ListedTool, PinBook, Quarantined
from toolwire.server.shaping.shapes import ResourceShape, Selection, Shape, ShapeFault, ToolShape, selectors_of, tags_of
from toolwire.stores import Stores

if TYPE_CHECKING:
    from toolwire.server.policy import Policy

log: logging.Logger = logging.getLogger("toolwire.server")

_NAMED: Final = ("tools", "prompts")
_AS_IT_IS: Final = ToolShape()


class _Names(NamedTuple):
    """The names of the tools and prompts of a mounted server, for one version of its catalogue."""

    version: int
    inner: dict[str, dict[str, str]]
    """The name that the mounted server has for a name here, by kind."""
    public: dict[str, dict[str, str]]
    """The name here, for each name that the mounted server has and that comes through."""
    withheld: dict[str, str]
    """The tools whose shape does not fit, and whose callers are told why."""
    not_approved: dict[tuple[Component, bool], str | None] | None
    """Why a tool is not approved, in lists for all callers or for some of them; None without pins."""
    faults: tuple[ShapeFault, ...]


class ShapedMount(Mount):
    """A mount behind a shape. What comes through is decided when the mounted catalogue changes, not by each call."""

    is_shaped = True

    def __init__(self, prefix: str, catalog: Catalog, shape: Shape, host: Owner, stores: Callable[[], Stores]) -> None:
        super().__init__(prefix, catalog)
        self.shape = shape
        self.policy: Policy | None = shape.policy
        entries: list[Any] = [*shape.tools.values(), *shape.prompts.values(), *shape.resources.values()]
        self.is_guarded: bool = shape.policy is not None or any(each.policy is not None for each in entries)
        self.scopes: frozenset[str] = names_of(shape.scopes, "scopes=")
        self.visible_to: Audience | None = audience_of(shape.visible_to)
        self._selections: dict[str, Selection] = {
            "tools": Selection(shape.allow, shape.deny, lambda component: ()),
            "prompts": Selection(shape.allow_prompts, shape.deny_prompts, lambda component: ()),
            "resources": Selection(shape.allow_resources, shape.deny_resources, self._names_of_readable),
            "extensions": Selection(shape.allow_extensions, shape.deny_extensions, lambda component: ()),
        }
        budgets = [shape.result_budget, *(each.result_budget for each in shape.tools.values())]
        self._large_results = (
            LargeResults(shape.result_budget or 0, f"{host.name}\n{prefix}\n{catalog.owner.name}")
            if any(each is not None for each in budgets)
            else None
        )
        self._kept = None if self._large_results is None else KeptResult(self._large_results.kept_results.place)
        self._book: PinBook | None = None
        if shape.pins is not None:
            self._book = shape.pins.book(host.name, catalog.owner.name, stores, self._pins_changed)
            self.approvals: Awaited | None = self._book
        self._made: dict[tuple[Component, Way], Component | None] = {}
        self._made_before: dict[tuple[Component, Way], Component | None] = {}
        """Those of the version before, so that a component whose form stays is the same object in both."""
        self._names: _Names | None = None
        self._addresses: ListedAddresses | None = None
        self._told: frozenset[str] = frozenset()

    @property
    def faults(self) -> tuple[ShapeFault, ...]:
        """The mistakes in the shape: tools and arguments that the mounted server does not have, and the like."""
        return self._table().faults

    @property
    def quarantined(self) -> list[Quarantined]:
        """The tools that wait for the approval of a person."""
        self._table()
        return [] if self._book is None else self._book.quarantined()

    def end(self) -> None:
        """Let go of the pins, because the server is mounted no longer."""
        if self.shape.pins is not None and self._book is not None:
            self.shape.pins.forget(self.catalog.owner.name, self._book)

    def _pins_changed(self) -> None:
        self._names = None
        self.catalog.changed("tools", for_sure=False)

    # --- names ---

    def _table(self) -> _Names:
        """Return the names of what comes through, made once for each version of the mounted catalogue."""
        version = self.catalog.version
        if self._names is None or self._names.version != version:
            self._names = self._new_table(version)
            self._made_before, self._made = self._made, {}
            self._warn(self._names.faults)
        return self._names

    def _new_table(self, version: int) -> _Names:
        faults: list[ShapeFault] = []
        inner: dict[str, dict[str, str]] = {}
        public: dict[str, dict[str, str]] = {}
        withheld: dict[str, str] = {}
        not_approved: dict[tuple[Component, bool], str | None] | None = None
        for kind in _NAMED:
            # A name may be there twice: one caller sees the first one, and another caller the second.
            ways = list(self.catalog.merged(kind, None, ()))
            merged = [(name, found.component) for name, found in ways]
            listed = dict(merged)
            entries: dict[str, Any] = getattr(self.shape, kind)
            faults += [*self._unknown(kind, entries, listed), *self._unmatched(kind, merged)]
            selection = self._selections[kind]
            through = list(dict.fromkeys(name for name, component in merged if selection.admits(name, component)))
            if kind == "tools" and self._book is not None:
                pinned = [ListedTool(name, _pinned(each.component), _is_for_all(each.way)) for name, each in ways]
                keys = [(each.component, _is_for_all(each.way)) for _, each in ways]
                not_approved = dict(zip(keys, self._book.judge(pinned, self.catalog.is_read), strict=True))
            for name in tuple(through):
                if (entry := entries.get(name)) is None:
                    continue
                same = [each for named, each in ways if named == name]
                if (fault := self._fault(kind, name, same, entry)) is not None:
                    faults.append(fault)
                    if kind == "tools":
                        withheld[name] = "This tool is not available: the shape that an operator gave it does not fit."
                    else:
                        through = [each for each in through if each != name]
            inner[kind], public[kind] = _named(kind, through, entries, faults)
        faults += self._unknown_resources()
        return _Names(version, inner, public, withheld, not_approved, tuple(faults))

    def _fault(self, kind: str, name: str, founds: Sequence[Found[Any]], entry: Any) -> ShapeFault | None:
        """Return why the components of a name cannot have their form; None where one can.

        Those in lists for some callers do not count, unless all are.
        """
        fault: ShapeFault | None = None
        for found in [each for each in founds if _is_for_all(each.way)] or founds:
            component = found.component
            try:
                if kind == "tools":
                    ShapedTool(component, self, component.key, entry, None)
                else:
                    ShapedPrompt(component, self, component.key, entry)
                return None
            except ServerError as error:
                argument = ("arguments", error.argument) if isinstance(error, ArgumentMistake) else ()
                fault = ShapeFault(f"the {kind[:-1]} {name!r} is withheld: {error}", (kind, name, *argument))
        return fault

    def _unknown_resources(self) -> list[ShapeFault]:
        listed = {
            kind: [(key, found.component) for key, found in self.catalog.merged(kind, None, ())]
            for kind in ("resources", "templates")
        }
        known = [
            each
            for kind in listed.values()
            for key, component in kind
            for each in (key, *self._names_of_readable(component))
        ]
        faults = self._unknown("resources", self.shape.resources, known)
        # A template makes addresses that are in no list, and a pattern may be for them.
        return faults if listed["templates"] else faults + self._unmatched("resources", listed["resources"])

    def _unmatched(self, kind: str, listed: list[tuple[str, Component]]) -> list[ShapeFault]:
        """Return the patterns that select nothing: a misspelled `deny` would open what it should close."""
        if not listed and self.catalog.followers:
            return []  # The lists of the other server are not known yet.
        matches = self._selections[kind].matches
        faults: list[ShapeFault] = []
        for side in ("allow", "deny"):
            member = side if kind == "tools" else f"{side}_{kind}"
            for index, selector in enumerate(getattr(self.shape, member) or ()):
                if any(matches(selector, name, component) for name, component in listed):
                    continue
                known = [each for name, component in listed for each in (name, *selectors_of(component))]
                text = f"{member}: {selector!r} matches no {kind[:-1]}{nearest(selector, known)}"
                faults.append(ShapeFault(text, (member, index), is_warning=True))
        return faults

    def _unknown(self, kind: str, entries: Iterable[str], known: Iterable[str]) -> list[ShapeFault]:
        """Return the names in a shape that the mounted server does not have."""
        names = list(known)
        if not names and self.catalog.followers:
            return []  # The lists of the other server are not known yet.
        return [
            ShapeFault(f"there is no {kind[:-1]} {name!r}{nearest(name, names)}", (kind, name))
            for name in entries
            if name not in names
        ]

    def _warn(self, faults: Iterable[ShapeFault]) -> None:
        """Say each fault once, for as long as it is there."""
        now = frozenset(each.text for each in faults)
        for each in sorted(now - self._told):
            log.warning("the shape of %r: %s", self.catalog.owner.name, each)
        self._told = now

    def check(self) -> None:
        """Raise `ServerError` for a shape that does not fit a server in this process. A warning is no hindrance."""
        faults = [each.text for each in self.faults if not each.is_warning]
        if faults:
            raise ServerError(f"The shape of {self.catalog.owner.name!r} does not fit: {'; '.join(faults)}")

    def inner_name(self, kind: str, name: str) -> str | None:
        stripped = self.inner(name)
        return None if stripped is None else self._table().inner[kind].get(stripped)

    def public_name(self, kind: str, name: str) -> str:
        return self.prefix + self._table().public[kind].get(name, name)

    # --- components ---

    def _shaped(self, found: Found[Any]) -> Found[Any] | None:
        """Return a component of the mounted server in its form here; None for one that does not come through."""
        below = found.way[found.way.index(self) + 1 :]
        key = (found.component, below)
        table = self._table()
        if key not in self._made:
            made = self._make(found.component, below, table)
            before = self._made_before.get(key)
            self._made[key] = before if made is not None and _is_same(before, made) else made
        made = self._made[key]
        return None if made is None else Found(made, found.owner, found.way)

    def _make(self, component: Component, below: Way, table: _Names) -> Component | None:
        if component.kind not in ("tools", "prompts", "resources", "templates", "skills"):
            return component  # A method of an extension.
        if component.kind not in _NAMED:
            return self._make_readable(component)
        name = _name_at_mount(component, below)
        public = table.public[component.kind].get(name)
        if public is None or not self._selections[component.kind].admits(name, component):
            return None
        try:
            if isinstance(component, ToolBase):
                return self._make_tool(component, name, public, table, _is_for_all(below))
            assert isinstance(component, Prompt)
            entry = self.shape.prompts.get(name)
            return component if entry is None else ShapedPrompt(component, self, public, entry)
        except ServerError as error:
            # Another component of the same name fits: see `_fault`.
            log.warning("the shape of %r: %r is left out: %s", self.catalog.owner.name, name, error)
            return None

    def _make_tool(self, tool: ToolBase, name: str, public: str, table: _Names, is_for_all: bool) -> ToolBase:
        entry = self.shape.tools.get(name)
        why = table.withheld.get(name)
        if why is None and table.not_approved is not None:
            why = table.not_approved.get((tool, is_for_all), UNKNOWN)
        if why is not None:
            return WithheldTool(tool, self, public, entry or _AS_IT_IS, why)
        budget = self.shape.result_budget if entry is None or entry.result_budget is None else entry.result_budget
        if entry is None and budget is None:
            return tool
        large = None if budget is None or self._large_results is None else self._large_results.with_budget(budget)
        return ShapedTool(tool, self, public, entry or _AS_IT_IS, large)

    def _make_readable(self, component: Component) -> Component | None:
        address = component.key
        if isinstance(component, KeptResult):
            # The result of a tool that came through. A list of allowed resources is not about results.
            return None if self._selections["resources"].denies(address, component) else component
        if not self._selections["resources"].admits(address, component):
            return None
        entry = self._entry_of(component)
        return component if entry is None else shaped_resource(component, self, entry)

    def _names_of_readable(self, component: Component) -> tuple[str, ...]:
        """Return the name of a resource, and its address at the upstream, which may be another one here."""
        inner = self.catalog.inner_uri
        if inner is None:
            return (component.name,)
        return component.name, component.upstream_key or inner(component.key)

    def _entry_of(self, component: Component) -> ResourceShape | None:
        """Return what the shape says of a resource, by its address here or at the upstream, or by its name."""
        names = (component.key, *reversed(self._names_of_readable(component)))
        return next((entry for each in names if (entry := self.shape.resources.get(each)) is not None), None)

    def _find_spellings(self, uri: str) -> tuple[str, ...]:
        """Return the plain forms of an address, as it is here and at the upstream."""
        inner = self.catalog.inner_uri
        renamed = uri if inner is None else inner(uri)
        return find_spellings(uri) if renamed == uri else (*find_spellings(uri), *find_spellings(renamed))

    def _sees(self, sees: Sees | None) -> Sees:
        """Return the function that says of a component of the mounted server whether a caller sees its form here."""

        def sees_shaped(found: Found[Any]) -> bool:
            shaped = self._shaped(found)
            return shaped is not None and (sees is None or sees(shaped))

        return sees_shaped

    def tool(self, name: str, sees: Sees | None, way: Way) -> Found[ToolBase] | None:
        inner = self.inner_name("tools", name)
        found = None if inner is None else self.catalog.tool(inner, self._sees(sees), (*way, self))
        return None if found is None else self._shaped(found)

    def prompt(self, name: str, sees: Sees | None, way: Way) -> Found[Prompt] | None:
        inner = self.inner_name("prompts", name)
        found = None if inner is None else self.catalog.prompt(inner, self._sees(sees), (*way, self))
        return None if found is None else self._shaped(found)

    def resource(self, uri: str, sees: Sees | None, way: Way) -> Found[Resource] | None:
        if not self._is_not_denied(uri):
            return None
        found = self.catalog.resource(uri, self._sees(sees), (*way, self))
        return None if found is None else self._shaped(found)

    def template(self, uri: str, sees: Sees | None, way: Way) -> tuple[Found[ResourceTemplate], dict[str, str]] | None:
        if self._kept is not None:
            here: Found[ResourceTemplate] = Found(self._kept, self.catalog.owner, (*way, self))
            variables = self._kept.template.match(uri)
            if variables is not None and (sees is None or sees(here)):
                return here, variables
        if not self._is_not_denied(uri):
            return None
        matched = self.catalog.template(uri, self._sees(sees), (*way, self))
        if matched is not None and self.shape.resources and self._is_rule_evaded(uri, matched[0].component):
            return None
        shaped = None if matched is None else self._shaped(matched[0])
        return None if matched is None or shaped is None else (shaped, matched[1])

    def reaches(self, uri: str) -> bool:
        selection = self._selections["resources"]
        if selection.is_open and not self.shape.resources:
            return True
        if len(uri) > LONGEST:
            return False
        spellings = self._find_spellings(uri)
        # A kept result is the result of a tool that came through. A list of allowed resources is not about results.
        is_allowed = is_kept_result(uri) or all(map(selection.allows_text, spellings))
        if not is_allowed or not self._is_not_denied(uri):
            return False
        forms = dict.fromkeys((*spellings, *map(bare_form, spellings)))
        return not any(map(self._is_ruled, (*filter(None, map(self._find_listed, forms)), *self._listed().find(uri))))

    def _is_rule_evaded(self, uri: str, template: Component) -> bool:
        """Return whether an upstream may read something with rules of its own where another template matched."""
        if len(uri) > LONGEST:
            return True
        nearest = self._listed().find_nearest(uri)
        return any(each is not template and self._is_ruled(each) for each in nearest)

    def _find_listed(self, uri: str) -> Component | None:
        """Return the listed resource or template that has an address in this very spelling."""
        found = self.catalog.resource(uri, None, (self,))
        if found is not None:
            return found.component
        matched = self.catalog.template(uri, None, (self,))
        return None if matched is None else matched[0].component

    def _is_ruled(self, component: Component) -> bool:
        """Return whether a listed resource or template is denied or has rules of its own."""
        entry = self._entry_of(component)
        has_rules = entry is not None and bool(entry.scopes or entry.visible_to or entry.policy)
        return has_rules or self._selections["resources"].denies(component.key, component)

    def _listed(self) -> ListedAddresses:
        """Return the listed addresses in the form in which all spellings are equal."""
        if self._addresses is None or self._addresses.version != self.catalog.version:
            listed = (self.catalog.merged(kind, None, (self,)) for kind in ("resources", "templates"))
            self._addresses = ListedAddresses(
                self.catalog.version, *([each.component for _, each in found] for found in listed)
            )
        return self._addresses

    def unlisted_ways(self, uri: str, way: Way) -> list[Found[ResourceTemplate]]:
        return [] if not self.reaches(uri) else self.catalog.unlisted_ways(uri, (*way, self))

    def tells_of(self, uri: str) -> bool:
        if self._selections["resources"].is_open:
            return True
        return self._is_not_denied(uri) and bool(self.resource(uri, None, ()) or self.template(uri, None, ()))

    def _is_not_denied(self, uri: str) -> bool:
        """Return whether an address may be read: it is not denied, in whichever way it is spelled."""
        selection = self._selections["resources"]
        if selection.is_open:
            return True
        if len(uri) > LONGEST:
            return False
        spellings = self._find_spellings(uri)
        bare = dict.fromkeys(map(bare_form, spellings))
        if any(selection.denies_text(each) for each in (*spellings, *bare)):
            return False
        if not all(map(self._is_open, spellings)) or any(map(self._is_denied, bare)):
            return False
        if self.catalog.resource(uri, None, (self,)) is not None:
            return True  # The server lists it beside the others, so that it is an address of its own.
        alike = self._listed().find_resources(uri)
        return not any(selection.denies(each.key, each) for each in alike)

    def _is_open(self, uri: str) -> bool:
        """Return whether no resource that does not come through has this address."""
        found = self.catalog.resource(uri, None, (self,))
        return found is None or self._shaped(found) is not None

    def _is_denied(self, uri: str) -> bool:
        """Return whether a resource that is denied has this address."""
        found = self.catalog.resource(uri, None, (self,))
        return found is not None and self._selections["resources"].denies(uri, found.component)

    def merged(self, kind: str, view: SeesComponents | None, way: Way) -> Iterator[tuple[str, Found[Any]]]:
        prefix = self.prefix if kind in _NAMED else ""
        shown = None if view is None else _ShapedView(self._sees(view.sees))
        table = self._table()
        for name, found in self.catalog.merged(kind, shown, (*way, self)):
            shaped = self._shaped(found)
            if shaped is not None:
                yield prefix + (table.public[kind].get(name, name) if kind in _NAMED else name), shaped

    def each(self, way: Way) -> Iterator[Found[Any]]:
        for found in self.catalog.each((*way, self)):
            shaped = self._shaped(found)
            if shaped is not None:
                yield shaped
        if self._kept is not None:
            yield Found(self._kept, self.catalog.owner, (*way, self))

    def each_extension(self, way: Way) -> Iterator[tuple[Extension, Owner, Way]]:
        selection = self._selections["extensions"]
        for extension, owner, whole in self.catalog.each_extension((*way, self)):
            if selection.admits(extension.identifier, extension):
                yield extension, owner, whole

    def completion(self, reference: str, name: str, argument: str, way: Way) -> tuple[Completion, Any] | None:
        if reference != "ref/prompt":
            return self.catalog.completion(reference, name, argument, way)
        inner = self.inner_name("prompts", name)
        found = None if inner is None else self.catalog.prompt(inner, None, (self,))
        prompt = None if found is None else self._shaped(found)
        if inner is None or prompt is None:
            return None
        shaped = prompt.component
        if shaped.shaped_by is not self:
            return self.catalog.completion(reference, inner, argument, way)
        original = shaped.to_original_name(argument)
        suggesting = None if original is None else self.catalog.completion(reference, inner, original, way)
        return None if suggesting is None else (ShapedCompletion(suggesting[0], shaped), suggesting[1])

    def has(self, kind: str) -> bool:
        return next(self.merged(kind, None, ()), None) is not None

    def reads_unlisted(self) -> bool:
        return self._kept is not None or super().reads_unlisted()


class _ShapedView(NamedTuple):
    sees: Callable[[Found[Any]], bool]


def _name_at_mount(component: Component, below: Way) -> str:
    """Return the name by which a mounted server has a tool or a prompt that is mounted in itself."""
    original = component
    while original.original is not None:
        original = original.original
    name = original.key
    for mount in reversed(below):
        name = mount.public_name(component.kind, name)
    return name


def _is_for_all(below: Way) -> bool:
    """Return whether a component is in lists for all callers, and not in those of an account or of some clients."""
    return all(mount.catalog.audience is None for mount in below)


def _pinned(tool: ToolBase) -> Definition:
    """Return the definition of a tool that somebody approves, with its tags: a shape may let it through for them."""
    definition = definition_of(tool.wire(MODERN))
    tags = sorted(tags_of(tool))
    return {**definition, "tags": tags} if tags else definition


def _is_same(before: Component | None, made: Component) -> bool:
    """Return whether a component has the form that it had before."""
    if before is None or before.original is None or before.original is not made.original:
        return False
    # The reason of a tool that is withheld may be another one.
    return before.key == made.key and type(before) is type(made) and not isinstance(made, WithheldTool)


def _named(
    kind: str, names: list[str], entries: dict[str, Any], faults: list[ShapeFault]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names here with those of the mounted server, and the other way round.

    A name that a shape gives wins over one that a tool has, and the other tool does not come through.
    """
    wished = {name: entry.rename for name, entry in entries.items() if entry.rename is not None and name in names}
    inner: dict[str, str] = {}
    for name in (*wished, *(each for each in names if each not in wished)):
        public = wished.get(name, name)
        if public in inner:
            first = inner[public]
            text = f"two {kind} would be {public!r}: {first!r} takes the name, and {name!r} is withheld"
            faults.append(ShapeFault(text, (kind, first)))
        else:
            inner[public] = name
    return inner, {name: public for public, name in inner.items()}
