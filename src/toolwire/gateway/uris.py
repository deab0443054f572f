"""Addresses of one server that are known under other addresses here, and their places in messages.

An address stays as it is, because content and hosts refer to it. Only where another server has the address already,
it carries the name of its server. Then it is rewritten wherever the protocol has it. Files and texts are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from toolwire.gateway.names import Renaming
from toolwire.protocol.apps import FLAT_KEY, OPENAI_KEY, is_view, without_view
from toolwire.protocol.uri_template import UriTemplate

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode


#: The content of a message that has nothing but a view, where views are hidden.
_HIDDEN: Final = Raw(b'{"type":"text","text":"(a view)"}')


class UriNames:
    """The addresses of one server that are known under other addresses here."""

    def __init__(self) -> None:
        self._public: dict[str, str] = {}
        self._inner: dict[str, str] = {}
        self._kept: frozenset[str] = frozenset()
        self._roots: dict[str, Renaming] = {}
        self._public_roots: dict[str, Renaming] = {}
        self._templates: dict[str, tuple[UriTemplate, Renaming]] = {}
        self.active: bool = False
        """Whether any address is renamed."""
        self._hides_views = False
        self.generation: int = 0
        """Another number, whenever an address got another name."""
        # The members of results, messages, content blocks and entries in which addresses stand.
        self._places: dict[str, Callable[[Raw], Any]] = {
            "_meta": self._in_meta,
            "uri": self._address,
            "content": self._in_blocks,
            "contents": self._in_blocks,
            "messages": self._in_blocks,
            "resource": self._in_block,
            "resources": self._in_blocks,
            "skill": self._in_block,
            "result": self._in_block,
            "inputRequests": self._in_questions,
        }

    def rename(
        self,
        uris: Mapping[str, Renaming],
        roots: Mapping[str, Renaming],
        templates: Mapping[str, Renaming],
        kept: Collection[str],
    ) -> None:
        """Rename these addresses, all addresses below these roots, and those of these templates, and no others.

        `kept` are further addresses of the server, which stay as they are although a template may match them.
        """
        public = {uri: renaming.public(uri) for uri, renaming in uris.items()}
        known = {text: renaming for text, (_, renaming) in self._templates.items()}
        if (public, dict(roots), dict(templates)) != (self._public, self._roots, known):
            self.generation += 1
        self._public = public
        self._inner = {address: uri for uri, address in public.items()}
        self._kept = frozenset(kept)
        self._roots = dict(roots)
        self._public_roots = {renaming.public(root): renaming for root, renaming in roots.items()}
        self._templates = {text: (UriTemplate(text, screen=False), each) for text, each in templates.items()}
        self.active = bool(public or roots or templates or self._hides_views)

    def hide_views(self) -> None:
        """Take views out of all messages."""
        self.active = self._hides_views = True

    def public(self, uri: str) -> str:
        """Return the address that clients know."""
        known = self._public.get(uri)
        if known is not None:
            return known
        if uri in self._kept:
            return uri
        renaming = _above(self._roots, uri)
        if renaming is not None:
            return renaming.public(uri)
        for template, change in self._templates.values():
            if _matches(template, uri):
                return change.public(uri)
        return uri

    def public_template(self, text: str) -> str:
        """Return the template of addresses that clients know."""
        found = self._templates.get(text)
        return text if found is None else found[1].public(text)

    def inner(self, uri: str) -> str:
        """Return the address that the server knows."""
        known = self._inner.get(uri)
        if known is not None:
            return known
        renaming = _above(self._public_roots, uri)
        plain = None if renaming is None else renaming.inner(uri)
        if plain is not None:
            return plain
        for template, change in self._templates.values():
            plain = change.inner(uri)
            if plain is not None and _matches(template, plain):
                return plain
        return uri

    # --- places in messages ---

    def in_result(self, raw: Raw) -> Raw:
        """Return a result with public addresses, wherever the protocol has addresses.

        They are in contents, links and embedded resources, in messages and the questions of a server, in the entries of
        skills and directories, in the result of a task, and in `_meta`.
        """
        return _changed(raw, self._places)

    def in_meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return `_meta` with the public address of its view, under all the keys by which hosts find it (SEP-1865)."""
        changed = without_view(meta) if self._hides_views else dict(meta)
        if self._hides_views:
            return changed
        for key in (FLAT_KEY, OPENAI_KEY):
            flat = _plain(meta.get(key))
            if isinstance(flat, str):
                changed[key] = self.public(flat)
        nested = meta.get("ui")
        if isinstance(nested, Raw):
            changed["ui"] = _changed(nested, {"resourceUri": self._address})
        elif isinstance(nested, dict) and isinstance(nested.get("resourceUri"), str):
            changed["ui"] = {**nested, "resourceUri": self.public(nested["resourceUri"])}
        return changed

    def _address(self, raw: Raw) -> Any:
        uri = _plain(raw)
        return self.public(uri) if isinstance(uri, str) else raw

    def _in_meta(self, raw: Raw) -> Any:
        return self.in_meta(_members(raw)) if _is(raw, b"{") else raw

    def _in_block(self, raw: Raw) -> Any:
        """Rewrite a content block, the contents of a resource, a message, or the entry of a resource or skill."""
        return _changed(raw, self._places)

    def _in_blocks(self, raw: Raw) -> Any:
        if not _is(raw, b"["):
            return _HIDDEN if self._hides_views and _is_view(raw) else self._in_block(raw)
        items = _items(raw)
        if self._hides_views:
            items = [item for item in items if not _is_view(item)]
        return [self._in_block(item) for item in items]

    def _in_questions(self, raw: Raw) -> Any:
        """Rewrite the questions of a server, each by its key."""
        if not _is(raw, b"{"):
            return raw
        return {key: _changed(question, {"params": self._in_block}) for key, question in _members(raw).items()}


def _changed(raw: Raw, members: Mapping[str, Callable[[Raw], Any]]) -> Raw:
    """Return a JSON object with some of its members changed. The others are the bytes that they were."""
    if not _is(raw, b"{"):
        return raw
    found: dict[str, Any] = _members(raw)
    for name in found.keys() & members.keys():
        found[name] = members[name](found[name])
    return Raw(_encode(found))


def _is(raw: Raw, opening: bytes) -> bool:
    return bytes(memoryview(raw)[:64]).lstrip()[:1] == opening


def _above(roots: Mapping[str, Renaming], uri: str) -> Renaming | None:
    """Return the renaming of the root that an address is, or lies below."""
    while roots and uri:
        found = roots.get(uri)
        if found is not None:
            return found
        uri = uri.rpartition("/")[0]
    return None


def _matches(template: UriTemplate, uri: str) -> bool:
    return template.unmatchable is None and template.match(uri) is not None


def _is_view(raw: Raw) -> bool:
    """Return whether a content block, or an entry of a list, has the URI of a view."""
    if not _is(raw, b"{"):
        return False
    members = _members(raw)
    uri = _plain(members.get("uri"))
    return (isinstance(uri, str) and is_view(uri)) or ("resource" in members and _is_view(members["resource"]))


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
