"""The addresses under which the resources and skills of one server elsewhere are offered.

The server that was there first keeps its addresses. A later one that collides carries its name inside. An address that
is offered is never renamed because another server comes. The addresses of one skill are renamed together, because the
entry of a skill names all its files, which lie below its root.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final, Literal, NamedTuple, TypeAlias

from toolwire.gateway.names import Renaming, uri_name
from toolwire.gateway.upstream_log import Quoted, UpstreamLog
from toolwire.gateway.uris import UriNames
from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.apps import view_address
from toolwire.protocol.uri_template import UriTemplate
from toolwire.server.catalog import Catalog, Owner

Kind: TypeAlias = Literal["resources", "templates", "skills"]
Address: TypeAlias = tuple[str, str]

#: How many names are tried, where the address with the name of the server is taken, too.
_MAX_TRIES: Final = 20
#: How many templates of one scheme an address is compared with.
_MAX_COMPARED: Final = 64

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


class Unit(NamedTuple):
    """Addresses that are renamed together or not at all: one resource, one template, or a skill with its files."""

    kind: Kind
    main: str
    """The address that stands for all of them: that of the resource or template, or the root of the skill."""
    addresses: tuple[Address, ...]


def units_of(
    resources: Iterable[t.Resource],
    templates: Iterable[t.ResourceTemplate],
    skills: Iterable[t.Skill],
    tools: Iterable[t.Tool] = (),
) -> list[Unit]:
    """Return the addresses in the lists of a server. A skill inside another one belongs to that one.

    A tool names the address of its view. The view need not be in the list of resources (SEP-1865).
    """
    entries = {rules.root_of(each.uri): each for each in skills}
    outermost = {root: root for root in entries if _nearest(entries, root.rpartition("/")[0]) is None}
    below: dict[str, dict[Address, None]] = {root: {} for root in outermost}
    units: list[Unit] = []
    for root, entry in entries.items():
        found = below[_outermost(outermost, root)]
        found["skills", root] = None
        found["resources", entry.uri] = None
        if entry.resources != rules.DYNAMIC:
            found.update({("resources", file.uri): None for file in entry.resources})
    views = (view for each in tools if (view := view_address(each.meta)) is not None)
    for uri in dict.fromkeys((*(each.uri for each in resources), *views)):
        root_above = _nearest(outermost, uri)
        if root_above is None:
            units.append(Unit("resources", uri, (("resources", uri),)))
        else:
            below[root_above]["resources", uri] = None
    units += [Unit("templates", each.uri_template, (("templates", each.uri_template),)) for each in templates]
    return [*units, *(Unit("skills", root, tuple(addresses)) for root, addresses in below.items())]


def _outermost(outermost: Collection[str], root: str) -> str:
    while root not in outermost:
        root = root.rpartition("/")[0]
    return root


def _nearest(roots: Collection[str], uri: str) -> str | None:
    """Return the root that an address is, or lies below."""
    while roots and uri:
        if uri in roots:
            return uri
        uri = uri.rpartition("/")[0]
    return None


class Addresses:
    """The addresses of one server elsewhere in all the servers that mount it. `names` has those that are renamed."""

    def __init__(self, owner: Owner, log: UpstreamLog) -> None:
        self._owner = owner
        self._log = log
        self._name = uri_name(owner.name)
        self._renamings: dict[tuple[Kind, str], Renaming] = {}
        self._kept: set[tuple[Kind, str]] = set()
        self._claimed: set[Address] = set()
        self.names: UriNames = UriNames()

    def choose_addresses(self, units: Iterable[Unit]) -> None:
        """Choose the addresses of all units. While a unit is listed, its addresses stay the same."""
        others = _Others(self._owner)
        renamings: dict[tuple[Kind, str], Renaming] = {}
        kept: list[str] = []
        kept_units: set[tuple[Kind, str]] = set()
        claimed: set[Address] = set()
        for unit in units:
            renaming = self._renaming(unit, others)
            if renaming is not None:
                renamings[unit.kind, unit.main] = renaming
            else:
                kept_units.add((unit.kind, unit.main))
                kept += [address for kind, address in unit.addresses if kind == "resources"]
            claimed.update(_public(unit, renaming))
        self._renamings, self._kept = renamings, kept_units
        self._claim(claimed)
        by_kind: dict[Kind, dict[str, Renaming]] = {"resources": {}, "templates": {}, "skills": {}}
        for (kind, key), renaming in renamings.items():
            by_kind[kind][key] = renaming
        self.names.rename(by_kind["resources"], by_kind["skills"], by_kind["templates"], kept)

    def give_up(self) -> None:
        """Leave all addresses to others."""
        self._claim(set())

    def _renaming(self, unit: Unit, others: _Others) -> Renaming | None:
        """Return how a unit is renamed; None where it keeps its addresses."""
        known = self._renamings.get((unit.kind, unit.main))
        # What others have got since then does not count, unless it is the very same address at a server here.
        collides = others.has_address if (unit.kind, unit.main) in self._kept else others.has_overlap
        if known is None and not any(map(collides, unit.addresses)):
            return None
        for renaming in chain([known], (Renaming.of(unit.main, name) for name in self._names())):
            if renaming is not None and not any(others.has_address(address) for address in _public(unit, renaming)):
                return renaming
        self._log.warning("%r cannot be offered, because another server has it", Quoted(unit.main[:200]))
        return None

    def _names(self) -> Iterator[str]:
        """Yield the texts that an address may carry, the name of the server first."""
        yield self._name
        yield from (f"{self._name}-{number}" for number in range(2, _MAX_TRIES))

    def _claim(self, claimed: set[Address]) -> None:
        """Claim these addresses in all servers that mount this one, and leave those claimed before to others."""
        for host in self._owner.catalog.hosts():
            for address in self._claimed - claimed:
                if host.addresses.get(address) is self._owner:
                    del host.addresses[address]
            for address in claimed:
                host.addresses.setdefault(address, self._owner)
        self._claimed = claimed


def _public(unit: Unit, renaming: Renaming | None) -> Iterator[Address]:
    for kind, address in unit.addresses:
        yield kind, address if renaming is None else renaming.public(address)


class _Others:
    """The addresses of all other servers, here and elsewhere, in the servers that mount one server."""

    def __init__(self, owner: Owner) -> None:
        self._taken: set[Address] = set()
        for host in owner.catalog.hosts():
            self._taken.update(address for address, holder in host.addresses.items() if holder is not owner)
            for catalog in host.local():
                self._taken.update(_local(catalog))
        self._roots = {key for kind, key in self._taken if kind == "skills"}
        self._above = {above for root in self._roots for above in _ancestors(root)}
        self._shapes: set[str] = set()
        self._templates: dict[str, list[tuple[str, UriTemplate]]] = {}
        self._samples: dict[str, list[str]] = {}
        for kind, key in self._taken:
            scheme = key.partition(":")[0]
            if kind == "templates":
                self._shapes.add(_shape(key))
                held = self._templates.setdefault(scheme, [])
                if len(held) < _MAX_COMPARED and (template := _parsed(key)) is not None:
                    held.append((_beginning(key), template))
            if kind != "skills":
                samples = self._samples.setdefault(scheme, [])
                if len(samples) < _MAX_COMPARED:
                    samples.append(_sample(key))

    def has_address(self, address: Address) -> bool:
        """Return whether another server has an address."""
        kind, key = address
        if address in self._taken or (kind == "templates" and _shape(key) in self._shapes):
            return True
        # A skill inside that of another server would look like a part of it.
        return kind == "skills" and (key in self._above or any(each in self._roots for each in _ancestors(key)))

    def has_overlap(self, address: Address) -> bool:
        """Return whether another server has an address, or a template that matches it, or is matched by it."""
        kind, key = address
        if self.has_address(address):
            return True
        scheme = key.partition(":")[0]
        if kind == "skills":
            return False
        sample = _sample(key)
        for beginning, template in self._templates.get(scheme, ()):
            if sample.startswith(beginning) and template.match(sample) is not None:
                return True
        samples = self._samples.get(scheme, ()) if kind == "templates" else ()
        near = [each for each in samples if each.startswith(_beginning(key))]
        own = _parsed(key) if near else None
        return own is not None and any(own.match(each) is not None for each in near)


def _local(catalog: Catalog) -> Iterator[Address]:
    yield from (("resources", uri) for uri in tuple(catalog.resources))
    yield from (("resources", uri) for uri in tuple(catalog.skill_set.files))
    yield from (("templates", text) for text in tuple(catalog.templates))
    yield from (("skills", uri.rpartition("/")[0]) for uri in tuple(catalog.skill_set.skills))


def _ancestors(root: str) -> Iterator[str]:
    above = root.rpartition("/")[0]
    while not above.endswith("/") and above:
        yield above
        above = above.rpartition("/")[0]


def _shape(text: str) -> str:
    """Return a template without the names of its variables, which say nothing about the addresses that it matches."""
    return _EXPRESSION.sub("{}", text)


def _sample(text: str) -> str:
    """Return one of the addresses of a template; the address itself, if it is none."""
    return _EXPRESSION.sub("0", text)


def _beginning(text: str) -> str:
    """Return the part of a template before its first variable, with which all its addresses begin."""
    return text.partition("{")[0]


def _parsed(text: str) -> UriTemplate | None:
    try:
        template = UriTemplate(text, screen=False)
    except ValueError:
        return None
    return None if template.unmatchable is not None else template
