"""The spellings of an address that servers may take for the same one.

A rule about a resource is for every spelling of its address. Which of them a server behind this one understands is not
known, so that every form which parsers of URLs take for the same counts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote

from toolwire.protocol.uri_template import UriTemplate
from toolwire.server.components import Component, Resource, ResourceTemplate

#: The longest address that is compared in all its forms. A longer one is refused where there are rules.
LONGEST: Final = 8 * 1024
# How often servers may decode an address: a proxy before a server decodes it, too.
_MOST_DECODINGS: Final = 3
# The schemes that parsers of URLs read more freely than others, with their usual ports.
_SPECIAL: Final = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21", "file": ""}
_LEFT_OUT: Final = {ord(each): None for each in "\t\n\r"}
_BLANKS: Final = "".join(map(chr, range(0x21)))
_LITERAL: Final = "!#$&'()*+,/:;=?@[]~"
_EXPRESSION: Final = re.compile(r"(\{[^{}]*\})")


class ListedAddresses:
    """The addresses of one version of a catalogue, by a form that is equal for all spellings of an address."""

    def __init__(self, version: int, resources: Iterable[Resource], templates: Iterable[ResourceTemplate]) -> None:
        self.version: int = version
        self._resources: dict[str, list[Resource]] = {}
        for each in resources:
            bare, whole = _fold(each.key)
            # A listed query or fragment is a part of the address. Anywhere else a server may ignore it.
            self._resources.setdefault(whole if _without_tail(each.key)[1] else bare, []).append(each)
        self._templates = [(folded, each) for each in templates for folded in _fold_template(each)]

    def find_resources(self, uri: str) -> list[Resource]:
        """Return the listed resources whose address a server may take for this one."""
        return [each for form in _folded_forms(uri) for each in self._resources.get(form, ())]

    def find_nearest(self, uri: str) -> Sequence[Resource | ResourceTemplate]:
        """Return what a server reads at an address: the resources that have it, or else the most specific template."""
        resources = self.find_resources(uri)
        if resources:
            return resources
        templates = list(self._find_templates(uri))
        return templates and [min(templates, key=lambda each: each.template.specificity)]

    def find(self, uri: str) -> Iterator[Component]:
        """Yield the listed resources and templates whose address a server may take for this one."""
        yield from self.find_resources(uri)
        yield from self._find_templates(uri)

    def _find_templates(self, uri: str) -> Iterator[ResourceTemplate]:
        if self._templates:
            forms = dict.fromkeys(map(_encode, _folded_forms(uri)))
            for folded, template in self._templates:
                if any(folded.match(form) is not None for form in forms):
                    yield template


def _folded_forms(uri: str) -> list[str]:
    """Return the folded forms of all spellings of an address, with and without query and fragment."""
    return list(dict.fromkeys(form for spelling in find_spellings(uri) for form in _fold(spelling)))


def _fold(uri: str) -> tuple[str, str]:
    """Return the form that is equal for all spellings of an address: without its query and fragment, and with them."""
    for _ in range(_MOST_DECODINGS):
        uri = unquote(_plain(uri))
    head, tail = _without_tail(uri)
    bare = bare_form(head)
    return bare, bare + tail


def _fold_template(template: ResourceTemplate) -> list[UriTemplate]:
    """Return a template with its literal parts folded; none where that makes no template."""
    parts = _EXPRESSION.split(template.key)
    expressions = parts[1::2]
    # What stands for the expressions is no part of any address, and has one form in all spellings.
    text = "".join(f"zz{index // 2}zz" if index % 2 else part for index, part in enumerate(parts))
    folded = _encode(_fold(text)[1])
    for index, expression in enumerate(expressions):
        folded = folded.replace(f"zz{index}zz", expression, 1)
    try:
        return [UriTemplate(folded)]
    except ValueError:
        return []


def _encode(text: str) -> str:
    """Return a decoded text with escapes where a template and an address must have them."""
    return quote(text, safe=_LITERAL)


def find_spellings(uri: str) -> tuple[str, ...]:
    """Return an address as it was sent, and the plain forms of it that a server may read instead.

    A server may decode before and after it takes out detours, so that each form is decoded again.
    """
    forms = latest = dict.fromkeys((uri, _plain(uri)))
    for _ in range(_MOST_DECODINGS):
        decoded = map(unquote, latest)
        latest = dict.fromkeys(form for text in decoded for form in (text, _plain(text)))
        forms = forms | latest
    return tuple(forms)


def _plain(uri: str) -> str:
    """Return an address with small letters where their size does not matter, and with a path without detours."""
    # WHATWG URL section 4.4: parsers leave out tabs and newlines, and blanks around an address.
    address, tail = _without_tail(uri.translate(_LEFT_OUT).strip(_BLANKS))
    scheme, separator, rest = address.partition(":")
    scheme = scheme.lower()
    if scheme in _SPECIAL:
        # The same section: `\` is `/` there, and any number of them may stand before the host.
        rest = rest.replace("\\", "/")
        if scheme != "file":
            rest = f"//{rest.lstrip('/')}"
        elif not rest.startswith("//"):
            rest = f"///{rest}"  # RFC 8089 section 2: file:/path is file:///path.
    if not rest.startswith("//"):
        return f"{scheme}{separator}{rest}{tail}" if separator else uri
    host, slash, path = rest[2:].partition("/")
    host = host.lower()
    if (scheme, host) == ("file", "localhost"):
        host = ""  # RFC 8089 section 2, too.
    # Two slashes at the beginning would stay two.
    steps = posixpath.normpath(slash + path.lstrip("/")) if slash else ""
    if path.endswith("/") and steps != "/":
        steps += "/"
    return f"{scheme}://{host}{steps}{tail}"


def bare_form(uri: str) -> str:
    """Return an address without what many servers ignore: query, fragment, the last slash, all around the host."""
    plain = _plain(_without_tail(_plain(uri))[0].replace("\\", "/"))
    scheme, separator, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    named = host.rpartition("@")[2].removesuffix(_SPECIAL.get(scheme, "")).rstrip(".")
    return f"{scheme}{separator}{'' if scheme == 'file' else named}{slash}{path}".rstrip("/")


def _without_tail(uri: str) -> tuple[str, str]:
    """Return an address without its query and fragment, and these."""
    end = min(len(uri.partition(mark)[0]) for mark in "?#")
    return uri[:end], uri[end:]
