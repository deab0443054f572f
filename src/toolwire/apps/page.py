"""Pages of views with their files and the view library."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.apps.bundle import MAX_BYTES, Bundle, PageError
from toolwire.protocol.errors import ServerError

#: Whether the view library is put into a page: always, never, or where the page does not speak with its host itself.
Library: TypeAlias = Literal["auto"] | bool

#: The name with which a page can ask for the library: `<script src="toolwire-view.js"></script>`.
LIBRARY_FILE: Final = "toolwire-view.js"
# A page that has one of these texts speaks with its host itself.
_SPEAKS: Final = ("ui/initialize", "toolwire-view.js")
_ASKS: Final = re.compile(
    rf"""<script\b[^>]*\bsrc\s*=\s*["']?(?:\./)?{re.escape(LIBRARY_FILE)}["']?[^>]*>\s*</script\s*>""", re.IGNORECASE
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
# The character set stays within the first 1,024 bytes, where browsers look for it.
# From the beginning of the document, because comments and scripts may have these texts, too.
_COMMENTS: Final = r"\s*(?:<!--.*?-->\s*)*"
_BEFORE_SCRIPTS: Final = re.compile(
    rf"{_COMMENTS}(?:<!doctype\b[^>]*>)?(?:{_COMMENTS}<html\b[^>]*>)?"
    rf"(?:{_COMMENTS}<head\b[^>]*>)?(?:\s*<meta\s+charset\b[^>]*>)?",
    re.IGNORECASE | re.DOTALL,
)
# `<!-->` and `<!--->` are whole comments, `--!>` ends one, and `>` ends a doctype even inside quotes.
_BEFORE_HOST: Final = re.compile(r"\ufeff?(?>\s*<!--(?>-?>|.*?--!?>))*+\s*<!doctype[^>]*>", re.IGNORECASE | re.DOTALL)


class Page(Struct, frozen=True):
    """A page that a program makes: `Page("orders.html", "<!doctype html>…")`."""

    name: str
    """The last part of its address."""
    html: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ServerError(f"{self.name[:100]!r} cannot be the name of a page: use letters, digits, and . _ -")


class LoadedPage(Struct, frozen=True):
    """A page as it is served."""

    html: str
    digest: str
    files: tuple[str, ...]
    """The files that it is made of."""
    reads_structured: bool
    """Whether its own scripts read the structured content of results, as far as that can be seen."""


def load_page(page: Page | Path, *, bundle: bool, library: Library) -> LoadedPage:
    """Load a page with its local files, and with the view library if needed."""
    files: tuple[str, ...] = ()
    if isinstance(page, Page):
        own = page.html
        if len(own.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            raise PageError(page.name, f"it has more than {MAX_BYTES} bytes")
    else:
        source = Bundle(page)
        text = source.read_page()
        has_own = (page.parent / LIBRARY_FILE).is_file()
        own = text if has_own else _ASKS.sub(_placeholder, text)
        own = source.whole_page(own) if bundle else own
        files = tuple(str(each) for each in source.files)
    try:
        own.encode()
    except UnicodeEncodeError:
        raise PageError(getattr(page, "name", str(page)), "it has characters that UTF-8 cannot write") from None
    html = with_library(own, library)
    digest = f"sha256:{hashlib.sha256(html.encode()).hexdigest()}"
    # A third-party library inside a page contains that name, whether or not the page itself reads it.
    reads = "structuredContent" in own and not any(each in own for each in _SPEAKS)
    return LoadedPage(html, digest, files, reads)


_PLACEHOLDER: Final = f"<script data-asks={LIBRARY_FILE}></script>"


def _placeholder(_: re.Match[str]) -> str:
    # The bundler would look for a file of this name.
    return _PLACEHOLDER


def with_library(html: str, library: Library) -> str:
    """Add the view library to a page, where it asks or before its scripts."""
    if library not in ("auto", True, False):
        raise ServerError(f"view= is 'auto', True or False, not {library!r}")
    html = _ASKS.sub(_placeholder, html)
    if _PLACEHOLDER in html:
        return html.replace(_PLACEHOLDER, library_script(), 1).replace(_PLACEHOLDER, "")
    if library is False or (library == "auto" and any(each in html for each in _SPEAKS)):
        return html
    return with_first_element(html, library_script())


def with_first_element(html: str, element: str) -> str:
    """Return a page with an element before its own, whose scripts run later."""
    # Without <head>, what follows the start of the document belongs to it.
    place = _BEFORE_SCRIPTS.match(html).end()  # type: ignore[union-attr]
    return f"{html[:place]}{element}{html[place:]}"


def with_host_script(html: str, element: str) -> str:
    """Return a page with an element of a host before any script of the page.

    Only a byte order mark, comments and the doctype stand before the element, and they are read as browsers read them:
    an attribute such as `<html title=">">` would hide an element behind it. A browser adds the attributes of `<html>`
    to the element that it made already.
    """
    found = _BEFORE_HOST.match(html)
    place = 0 if found is None else found.end()
    return f"{html[:place]}{element}{html[place:]}"


def library_script() -> str:
    """Return the view library as an element of a page."""
    return f"<script>{view_library()}</script>"


def view_library() -> str:
    """Return the text of the view library, `toolwire-view.js`."""
    return (resources.files("toolwire.apps") / LIBRARY_FILE).read_text(encoding="utf-8")
