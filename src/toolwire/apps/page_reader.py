"""`PageReader`: scripts, styles and loaded addresses of a page that may be hostile.

`html.parser` takes time that grows with the square of some pages, so the tags are found here, in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

# Attributes that make a browser load something, by element.
_LOADS: Final[Mapping[str, tuple[str, ...]]] = {
    "script": ("src",),
    "img": ("src",),
    "source": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "object": ("data",),
}
_FRAMES: Final = frozenset({"iframe", "frame"})
_LINKS: Final = frozenset({"stylesheet", "icon", "preload", "modulepreload", "prefetch", "manifest"})
# Elements whose content is text and no markup.
_ENDS: Final = {name: re.compile(rf"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea", "title")}

_NAME: Final = re.compile(r"[a-zA-Z][^\s/>]{0,60}")
_QUOTE_OR_END: Final = re.compile(r"""=\s{0,20}["']|>""")
_ATTRIBUTE: Final = re.compile(
    r"""([^\s"'<>/=]{1,100})(?:\s{0,20}=\s{0,20}(?:"([^"]*)"|'([^']*)'|([^\s"'>]{1,5000})))?"""
)
_CSS_URL: Final = re.compile(r"""url\(\s{0,20}["']?([^"'()\s]{1,2000})""", re.IGNORECASE)
_CSS_IMPORT: Final = re.compile(r"""@import\s{1,20}["']([^"'\s]{1,2000})""", re.IGNORECASE)
_INNER_FONT: Final = re.compile(r"""@font-face\s{0,20}\{[^{}]{0,2000}?url\(\s{0,20}["']?data:""", re.IGNORECASE)
_MODULE: Final = re.compile(
    r"""\b(?:from|import)\s{0,20}\(?\s{0,20}["']((?:https?:)?//[^"'\s]{1,2000}|\.{1,2}/[^"'\s]{1,2000})["']"""
)

LoadKind: TypeAlias = Literal["script", "frame", "file"]


class Load(Struct, frozen=True):
    """An address that a page loads something from."""

    kind: LoadKind
    address: str


class PageReader:
    """The parts of a page that checks look at."""

    def __init__(self, html: str) -> None:
        self.loads: list[Load] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.has_font_inside: bool = False
        """Whether a style sheet has a font as a `data:` address."""
        for tag, attributes, text in _elements(html):
            self._element(tag, attributes)
            if tag == "script":
                self._script(text)
            elif tag == "style":
                self._style(text)

    def _element(self, tag: str, given: Mapping[str, str]) -> None:
        kind: LoadKind = "script" if tag == "script" else "frame" if tag in _FRAMES else "file"
        for name in _LOADS.get(tag, ()):
            self._load(kind, given.get(name, ""))
        candidates = given.get("srcset", "")
        # A `data:` address may have commas.
        for each in () if "data:" in candidates else candidates.split(","):
            self._load(kind, each.strip().split(" ")[0])
        relations = set(given.get("rel", "").lower().split())
        if tag == "link" and relations & _LINKS:
            self._load("script" if "modulepreload" in relations else "file", given.get("href", ""))
        if given.get("style"):
            self._style(given["style"])

    def _script(self, text: str) -> None:
        self.scripts.append(text)
        for address in _MODULE.findall(text):
            self._load("script", address)

    def _style(self, sheet: str) -> None:
        self.styles.append(sheet)
        self.has_font_inside = self.has_font_inside or _INNER_FONT.search(sheet) is not None
        for address in (*_CSS_URL.findall(sheet), *_CSS_IMPORT.findall(sheet)):
            self._load("file", address)

    def _load(self, kind: LoadKind, address: str) -> None:
        address = address.strip()
        # Addresses inside the page need no server: data:, blob:, about: and fragments.
        if address and not address.startswith("#") and not address.lower().startswith(("data:", "blob:", "about:")):
            self.loads.append(Load(kind, address))


def _elements(html: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield the name and attributes of each start tag, and the text of raw elements."""
    place = 0
    while (start := html.find("<", place)) >= 0:
        if html.startswith("<!--", start):
            end = html.find("-->", start + 4)
            if end < 0:
                return
            place = end + 3
            continue
        name = _NAME.match(html, start + 1)
        if name is None:
            place = start + 1
            continue
        end = _tag_end(html, name.end())
        if end < 0:
            return
        tag, text, place = name[0].lower(), "", end + 1
        if tag in _ENDS:
            closed = _ENDS[tag].search(html, place)
            stop = len(html) if closed is None else closed.start()
            text, place = html[place:stop], stop
        yield tag, _attributes(html[name.end() : end]), text


def _tag_end(html: str, place: int) -> int:
    """Return where the `>` of a tag stands; -1 if the page ends before."""
    while (found := _QUOTE_OR_END.search(html, place)) is not None:
        if found[0] == ">":
            return found.start()
        closing = html.find(found[0][-1], found.end())
        if closing < 0:
            return -1
        place = closing + 1
    return -1


def _attributes(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(text):
        # HTML: of two attributes with one name, the first counts.
        given.setdefault(name.lower(), next((each for each in values if each), ""))
    return given
