"""Addresses of resources that two servers behind a gateway have, and their places in results.

An address stays as it is, because content and hosts refer to it. Only where another server has the address already,
it carries the name of its server. Then it is rewritten wherever the protocol has it. Files and texts are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.gateway.names import named_uri, plain_uri
from toolwire.protocol.uri_template import UriTemplate

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode


class UriNames:
    """The addresses of one server that are known under other addresses here."""

    def __init__(self, back: str) -> None:
        self._back = back
        self._public: dict[str, str] = {}
        self._templates: list[UriTemplate] = []

    def rename(self, uris: Iterable[str], templates: Iterable[str]) -> None:
        """Rename these addresses, and no others."""
        self._public = {uri: named_uri(uri, self._back) for uri in uris}
        self._templates = [UriTemplate(template, screen=False) for template in templates]

    @property
    def active(self) -> bool:
        """Return whether any address is renamed."""
        return bool(self._public or self._templates)

    def public(self, uri: str) -> str:
        """Return the address that clients know."""
        known = self._public.get(uri)
        if known is not None:
            return known
        if any(template.match(uri) is not None for template in self._templates):
            return named_uri(uri, self._back)
        return uri

    def inner(self, uri: str) -> str:
        """Return the address that the server knows."""
        plain = plain_uri(uri, self._back) if self.active else None
        return plain if plain is not None and self.public(plain) == uri else uri

    # --- places in messages ---

    def in_result(self, raw: Raw) -> Raw:
        """Return a result with public addresses: in contents, links, embedded resources, messages and `_meta`."""
        members: dict[str, Any] = _members(raw)
        self._in_meta(members)
        for name in ("content", "contents"):
            if name in members:
                members[name] = [self._in_block(item) for item in _items(members[name])]
        if "messages" in members:
            members["messages"] = [self._in_message(item) for item in _items(members["messages"])]
        return Raw(_encode(members))

    def _in_message(self, raw: Raw) -> Raw:
        members: dict[str, Any] = _members(raw)
        if "content" in members:
            content = members["content"]
            is_list = bytes(content).startswith(b"[")
            members["content"] = (
                [self._in_block(item) for item in _items(content)] if is_list else self._in_block(content)
            )
        return Raw(_encode(members))

    def _in_block(self, raw: Raw) -> Raw:
        """Rewrite one content block, or the contents of one resource."""
        members: dict[str, Any] = _members(raw)
        self._in_meta(members)
        if "uri" in members:
            members["uri"] = self.public(_text(members["uri"]))
        if "resource" in members:
            members["resource"] = self._in_block(members["resource"])
        return Raw(_encode(members))

    def _in_meta(self, members: dict[str, Any]) -> None:
        if "_meta" in members:
            members["_meta"] = self.in_meta(_members(members["_meta"]))

    def in_meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Return `_meta` with the public address of its user interface (SEP-1865: nested, or flat as it was)."""
        changed = dict(meta)
        flat = _plain(meta.get("ui/resourceUri"))
        if isinstance(flat, str):
            changed["ui/resourceUri"] = self.public(flat)
        nested = _plain(meta.get("ui"))
        if isinstance(nested, dict) and isinstance(nested.get("resourceUri"), str):
            changed["ui"] = {**nested, "resourceUri": self.public(nested["resourceUri"])}
        return changed


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
