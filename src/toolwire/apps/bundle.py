"""Put the local scripts, styles, images and fonts of a page into its HTML.

Some hosts ignore the origins that a view may load from, and a view has no folder of its own there. So a page that
carries everything inside is the one that works in every host.
"""

from __future__ import annotations

import base64
import errno
import mimetypes
import os
import re
import stat
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from toolwire.protocol.errors import ServerError

#: How many files a page may be made of, and how many bytes all of them may have.
MAX_FILES: Final = 500
MAX_BYTES: Final = 16 * 1024 * 1024

# Comments and other texts come first in both: what stands in them loads nothing.
_CSS_TEXTS: Final = r"""/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
_CSS_URL: Final = re.compile(
    rf"""{_CSS_TEXTS}|url\(\s*(?:"([^"]*)"|'([^']*)'|([^"'()\s]*))\s*\)""", re.IGNORECASE | re.DOTALL
)
_CSS_IMPORT: Final = re.compile(
    rf"""{_CSS_TEXTS}|@import\s+(?:url\(\s*)?["']?([^"'()\s;]+)["']?\s*\)?([^;]*)(?:;|\Z)""",
    re.IGNORECASE | re.DOTALL,
)
# The conditions of an import in their order: a layer, what the browser supports, and media.
_CSS_CONDITIONS: Final = re.compile(
    r"""(?:(?P<layer>layer)(?:\((?P<name>[^()]*)\))?(?=\s|$))?\s*"""
    r"""(?:supports(?P<supports>\((?:[^()]|\([^()]*\))*\)))?\s*(?P<media>(?!layer|supports).*)""",
    re.IGNORECASE | re.DOTALL,
)
_MODULE_IMPORT: Final = re.compile(
    r"""(?:^|[;}\s])(?:import|export)\b[^;"'`]*?(?:from\s*)?["'](\.{0,2}/[^"']+)["']|\bimport\s*\(\s*["'](\.{0,2}/[^"']+)"""
)
_SCRIPT_TAG: Final = re.compile(r"<script[\s/>]", re.IGNORECASE)
# Attributes that name a file which the browser loads by itself.
_FILES: Final = {
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
}
_ICONS: Final = frozenset({"icon", "apple-touch-icon", "mask-icon"})
# Elements that load another document, or a part of it. A view has no second one.
_DOCUMENTS: Final = {"iframe": "src", "frame": "src", "embed": "src", "object": "data", "use": "href"}


class PageError(ServerError):
    """A page that cannot be served as a view.

    `file` is the file that has to be changed.
    """

    def __init__(self, file: str, problem: str, *, missing: str | None = None) -> None:
        super().__init__(f"{file}: {problem}")
        self.file: str = file
        self.missing: str | None = missing
        """The file that it names and that is not there."""


class Bundle:
    """The files of a page, all of them in the page's folder."""

    def __init__(self, page: Path) -> None:
        self.page: Path = page
        self._folder = page.parent
        self.files: dict[Path, None] = {}
        """The files that were read, the page first."""
        self._bytes = 0

    def read_page(self) -> str:
        """Return the page as it is."""
        return self._text(self.page)

    def whole_page(self, text: str) -> str:
        """Return the text of the page with its local files inside."""
        reader = _Reader(self, text)
        try:
            reader.feed(text)
            reader.close()
        except AssertionError as error:  # HTMLParser raises it for a broken declaration.
            raise PageError(str(self.page), f"it is not HTML: {error}") from None
        return reader.rewritten()

    # --- files ---

    def find(self, reference: str, base: Path) -> Path | None:
        """Return the local file that a reference in `base` names; None for other addresses."""
        try:
            parts = urlsplit(reference.strip())
        except ValueError:
            raise PageError(str(base), f"{reference[:100]!r} is not an address") from None
        if parts.scheme or parts.netloc or not parts.path:
            return None  # https:, data:, blob:, and #fragment
        if parts.path.startswith("/"):
            raise PageError(str(base), f"{reference[:100]!r} starts with a slash: name files relative to the page")
        try:
            found = Path(os.path.realpath(base.parent / unquote(parts.path)))
            is_inside = found.is_relative_to(os.path.realpath(self._folder))
            is_there = is_inside and _is_regular_file(found)
        except (OSError, ValueError):  # A name that is too long, or that has a zero in it.
            raise PageError(str(base), f"{reference[:100]!r} cannot be the name of a file") from None
        if not is_inside:
            raise PageError(str(base), f"{reference[:100]!r} is outside the folder of the page")
        if not is_there:
            raise PageError(str(base), f"there is no file {reference[:100]!r}", missing=str(found))
        return found

    def read(self, file: Path) -> bytes:
        """Return the contents of a file, within the limits of the page."""
        try:
            # The size is asked first, so that a disk image is not read only to be refused.
            size = file.stat().st_size
            if self._bytes + size > MAX_BYTES:
                raise PageError(str(self.page), f"it has more than {MAX_BYTES} bytes with its files")
            data = file.read_bytes()
        except OSError as error:
            raise PageError(str(file), f"it cannot be read: {error.strerror}") from None
        self.files[file] = None
        self._bytes += len(data)
        if len(self.files) > MAX_FILES:
            raise PageError(str(self.page), f"it is made of more than {MAX_FILES} files")
        return data

    def _text(self, file: Path) -> str:
        try:
            return self.read(file).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise PageError(str(file), "it is not UTF-8") from None

    def data_address(self, file: Path) -> str:
        """Return a file as a `data:` address."""
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(self.read(file)).decode()}"

    # --- scripts and styles ---

    def script(self, file: Path, *, is_module: bool) -> str:
        """Return a script as it can stand inside a page."""
        text = self._text(file)
        if is_module:
            _check_module(text, file)
        return _script_text(text)

    def style(self, text: str, base: Path, above: tuple[Path, ...] = ()) -> str:
        """Return a style sheet with its imports and files inside.

        `above` are the sheets that import it.
        """
        if len(above) > 20 or base in above:
            raise PageError(str(base), "its style sheets import each other")

        def imported(match: re.Match[str]) -> str:
            file = None if match[1] is None else self.find(match[1], base)
            if file is None:
                return match[0]
            return _conditional(self.style(self._text(file), file, (*above, base)), match[2].strip(), base)

        def loaded(match: re.Match[str]) -> str:
            reference = next((each for each in match.groups() if each), "")
            file = self.find(reference, base)
            return match[0] if file is None else f'url("{self.data_address(file)}")'

        whole = _CSS_URL.sub(loaded, _CSS_IMPORT.sub(imported, text))
        if "</style" in whole.lower():
            raise PageError(str(base), "a style sheet cannot have the text </style")
        return whole

    def style_file(self, file: Path) -> str:
        return self.style(self._text(file), file)


class _Reader(HTMLParser):
    """Finds the tags that name local files.

    Everything else of the page stays as it is, byte for byte.
    """

    # Their contents are text, too.
    CDATA_CONTENT_ELEMENTS = (*HTMLParser.CDATA_CONTENT_ELEMENTS, "textarea", "title")  # type: ignore[misc]

    def __init__(self, bundle: Bundle, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._bundle = bundle
        self._text = text
        self._page = bundle.page
        # `HTMLParser` counts a line at each "\n", and at nothing else.
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self._changes: list[tuple[int, int, str]] = []
        self._late: list[str] = []
        self._body_end: int | None = None
        self._style_from: int | None = None
        self._script: int | None = None
        self._module_from: int | None = None

    def rewritten(self) -> str:
        parts, place = [], 0
        if self._late:
            end = len(self._text) if self._body_end is None else self._body_end
            self._changes.append((end, end, "".join(self._late)))
        for start, end, text in sorted(self._changes, key=lambda each: each[:2]):
            parts += [self._text[place:start], text]
            place = end
        return "".join([*parts, self._text[place:]])

    def _here(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        start = self._here()
        source = self.get_starttag_text() or ""
        end = start + len(source)
        # HTML: of two attributes with one name, the first counts.
        given: dict[str, str] = {}
        for name, value in attrs:
            given.setdefault(name, value or "")
        if tag == "base" and "href" in given:
            raise PageError(str(self._page), "a page with <base href> cannot be bundled: give bundle=False")
        if tag == "style":
            self._style_from = end
        elif tag == "script":
            self._start_script(given, start, end)
            return
        elif tag == "link":
            self._link(given, start, end)
            return
        elif tag in _DOCUMENTS and self._find(given.get(_DOCUMENTS[tag])) is not None:
            raise PageError(str(self._page), f"<{tag}> cannot load a local file in a view")
        changed = self._changed_attributes(tag, given)
        if changed:
            self._changes.append((start, end, _tag(tag, {**given, **changed}, closes=source.endswith("/>"))))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        here = self._here()
        if tag == "style" and self._style_from is not None:
            start, self._style_from = self._style_from, None
            sheet = self._text[start:here]
            changed = self._bundle.style(sheet, self._page)
            if changed != sheet:
                self._changes.append((start, here, changed))
        elif tag == "script" and self._script is not None:
            # The element that was replaced ends here.
            start, self._script = self._script, None
            self._changes.append((start, self._text.index(">", here) + 1, ""))
        elif tag == "script" and self._module_from is not None:
            start, self._module_from = self._module_from, None
            _check_module(self._text[start:here], self._page)
        elif tag == "body":
            self._body_end = here

    def _find(self, reference: str | None) -> Path | None:
        return None if not reference else self._bundle.find(reference, self._page)

    def _start_script(self, given: dict[str, str], start: int, end: int) -> None:
        file = self._find(given.get("src"))
        is_module = given.get("type", "").strip().lower() == "module"
        if file is None:
            self._module_from = end if is_module and "src" not in given else None
            return
        kept = {name: value for name, value in given.items() if name in ("type", "id", "nonce")}
        made = f"{_tag('script', kept)}{self._bundle.script(file, is_module=is_module)}</script>"
        # A script inside a page does not wait for the page to be read, except a module.
        if not is_module and ("defer" in given or "async" in given):
            self._late.append(made)
            made = ""
        self._changes.append((start, end, made))
        self._script = end

    def _link(self, given: dict[str, str], start: int, end: int) -> None:
        file = self._find(given.get("href"))
        if file is None:
            return
        kinds = set(given.get("rel", "").lower().split())
        if "stylesheet" in kinds:
            kept = {"media": given["media"]} if given.get("media") else {}
            sheet = f"{_tag('style', kept)}{self._bundle.style_file(file)}</style>"
            self._changes.append((start, end, sheet))
        elif kinds & _ICONS:
            address = self._bundle.data_address(file)
            self._changes.append((start, end, _tag("link", {**given, "href": address})))
        elif kinds & {"preload", "prefetch", "modulepreload"}:
            self._changes.append((start, end, ""))  # The file is inside, so there is nothing to load before.
        else:
            raise PageError(str(self._page), f"<link rel={given.get('rel', '')[:40]!r}> cannot name a local file")

    def _changed_attributes(self, tag: str, given: dict[str, str]) -> dict[str, str]:
        changed: dict[str, str] = {}
        if "url(" in given.get("style", "").lower():
            sheet = self._bundle.style(given["style"], self._page)
            if sheet != given["style"]:
                changed["style"] = sheet
        for name in _FILES.get(tag, ()):
            if not given.get(name):
                continue
            if name == "srcset":
                candidates = _candidates(given[name], self._address)
                if candidates != given[name]:
                    changed[name] = candidates
            elif (address := self._address(given[name])) != given[name]:
                changed[name] = address
        return changed

    def _address(self, reference: str) -> str:
        file = self._find(reference)
        return reference if file is None else self._bundle.data_address(file)


def _check_module(text: str, file: Path) -> None:
    """Raise `PageError` for a module that imports a local file."""
    found = _MODULE_IMPORT.search(text)
    if found is not None:
        named = found[1] or found[2]
        raise PageError(
            str(file), f"it imports {named[:100]!r}, which a page of one file cannot: make one script of them"
        )


def _script_text(text: str) -> str:
    """Return a script that does not end its element. JSON has the same escape."""
    text = re.sub(r"<(?=/script)", r"\\u003c", text, flags=re.IGNORECASE)
    # HTML, script data double escaped state: "<!--" and then "<script" hide the end. Alone, "<!--" is a comment of
    # older scripts, which has no escape.
    hides = text.find("<!--")
    if hides >= 0 and _SCRIPT_TAG.search(text, hides) is not None:
        return text.replace("<!--", "\\u003c!--")
    return text


def _conditional(sheet: str, conditions: str, base: Path) -> str:
    """Return a style sheet as it counts under the conditions of its import."""
    found = _CSS_CONDITIONS.fullmatch(conditions)
    if found is None:
        raise PageError(str(base), f"an @import with {conditions[:100]!r} cannot be put into the page")
    layer, supports, media = found["layer"], found["supports"], found["media"]
    for rule in (
        media and f"@media {media}",
        supports and f"@supports {_in_brackets(supports)}",
        layer and f"@layer {found['name'] or ''}".rstrip(),
    ):
        sheet = f"{rule} {{{sheet}}}" if rule else sheet
    return sheet


def _in_brackets(condition: str) -> str:
    """Return the condition of `supports()`, which may be a declaration, as `@supports` takes it."""
    inner = condition[1:-1].strip()
    return inner if inner.startswith("(") or inner.lower().startswith(("not ", "selector(")) else condition


def _candidates(text: str, address: Callable[[str], str]) -> str:
    """Return the value of `srcset` with addresses replaced.

    A `data:` address may have commas, and is left alone.
    """
    if "data:" in text:
        return text
    found = (each.split(None, 1) for each in text.split(",") if each.strip())
    return ", ".join(" ".join([address(name), *more]) for name, *more in found)


def _tag(name: str, attributes: dict[str, str], *, closes: bool = False) -> str:
    texts = [f' {each}="{escape(value)}"' if value else f" {each}" for each, value in attributes.items()]
    return f"<{name}{''.join(texts)}{' /' if closes else ''}>"


def _is_regular_file(path: Path) -> bool:
    """Return whether the path is a regular file. Raise `OSError` for an impossible name."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        # `Path.is_file()` returns False for every error from Python 3.14 on.
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
