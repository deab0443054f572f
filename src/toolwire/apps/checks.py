"""Static checks of views, and of the tools that show them.

The linter, the doctor and the test host share these rules. Everything that is checked may come from a foreign server,
so nothing here trusts a type, a size or a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from toolwire.apps.content_security_policy import Origin, host_policy, parse_origin
from toolwire.apps.page_reader import PageReader
from toolwire.apps.served import CLAUDE_DOMAIN, claude_domain
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, FLAT_KEY, SCHEME, audiences, is_app_type, ui_of, view_address
from toolwire.protocol.errors import counted

#: A page with more bytes than this is slow to load, and some hosts refuse it.
LARGE_PAGE: Final = 1024 * 1024
#: A longer page is not read for its contents.
_MAX_READ: Final = 4 * 1024 * 1024
_MAX_NAMED: Final = 5

#: `error`: some host shows nothing. `warning`: some host shows it badly. `hint`: could be better.
CheckLevel: TypeAlias = Literal["error", "warning", "hint"]

_CSS_VIEWPORT: Final = re.compile(r"(?<!max-)height\s{0,20}:\s{0,20}(?:calc\(\s{0,20})?100[sdl]?vh\b", re.IGNORECASE)
_JS_VIEWPORT: Final = re.compile(r"""["'`]100[sdl]?vh["'`]""")
_ADDRESS: Final = re.compile(r"\b(?:https?|wss?)://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?", re.IGNORECASE)
_HANDSHAKE: Final = "ui/initialize"
_CLAUDE: Final = re.compile(rf"[0-9a-f]{{32}}\.{re.escape(CLAUDE_DOMAIN)}")


class ViewFinding(Struct, frozen=True):
    """A fault of a view, or of a tool that shows one."""

    level: CheckLevel
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


class FoundView(Struct, frozen=True):
    """A view as a host found it: its list entry and its contents."""

    uri: str
    contents: list[t.ResourceContents]
    listed: t.Resource | None = None
    """The entry in the list; None if the view is not listed, which a server may do."""

    @property
    def html(self) -> str:
        """The page; empty where the answer has none."""
        if not self.contents:
            return ""
        first = self.contents[0]
        if first.text is not UNSET:
            return first.text
        return "" if first.blob is UNSET else first.blob.decode("utf-8", "replace")

    @property
    def ui(self) -> Mapping[str, Any]:
        """`_meta.ui`. That of the answer wins over that of the list."""
        read = ui_of(self.contents[0].meta) if self.contents else {}
        return read or ui_of(self.listed.meta if self.listed is not None else None)

    @property
    def meta(self) -> Any:
        """`_meta` of the answer."""
        return self.contents[0].meta if self.contents else None

    @property
    def mime_type(self) -> str:
        kind = self.contents[0].mime_type if self.contents else UNSET
        return "" if kind is UNSET else kind


# --- views ------------------------------------------------------------------------------------------------------------


def check_view(view: FoundView, *, endpoint: str | None = None) -> Iterator[ViewFinding]:
    """Check a view. `endpoint` is the public address of its server, where it is known."""
    yield from _check_answer(view)
    yield from _check_meta(view, endpoint)
    size = len(view.html.encode("utf-8", "replace"))
    if size > LARGE_PAGE:
        yield ViewFinding("warning", "UI006", f"the page has {size:,} bytes, and should have at most {LARGE_PAGE:,}")
    if size <= _MAX_READ:
        yield from _check_page(view)


def _check_answer(view: FoundView) -> Iterator[ViewFinding]:
    authority = view.uri.removeprefix("ui://").partition("/")[0]
    if view.uri.endswith("/") or authority != authority.lower():
        message = "its address has a slash at its end, or upper case in its host; some hosts then look for another one"
        yield ViewFinding("warning", "UI013", message)
    if len(view.contents) != 1:
        yield ViewFinding("error", "UI012", f"resources/read answers with {counted(len(view.contents), 'item')}, not 1")
        if not view.contents:
            return
    if view.contents[0].uri != view.uri:
        yield ViewFinding("error", "UI012", "resources/read answers with another address than the tool names")
    if not is_app_type(view.mime_type):
        yield ViewFinding("error", "UI012", f"its MIME type is {view.mime_type[:100]!r}, not {APP_MIME_TYPE}")
    if not view.html.strip():
        yield ViewFinding("error", "UI012", "resources/read answers without a page")


def _check_meta(view: FoundView, endpoint: str | None) -> Iterator[ViewFinding]:
    read = ui_of(view.contents[0].meta) if view.contents else {}
    if view.listed is not None and view.contents and ui_of(view.listed.meta) != read:
        message = "_meta.ui is not the same in resources/list and resources/read, and hosts look at one of them"
        yield ViewFinding("error", "UI001", message)
    for member, reason in host_policy(view.ui.get("csp")).refused[:_MAX_NAMED]:
        yield ViewFinding("error", "UI009", f"hosts leave {member} out of the policy: {reason}")
    yield from _check_domain(view.ui.get("domain"), endpoint)


def _check_domain(domain: Any, endpoint: str | None) -> Iterator[ViewFinding]:
    if domain is None:
        return
    if not isinstance(domain, str):
        yield ViewFinding("error", "UI007", "domain is not a text")
        return
    if not domain.endswith(f".{CLAUDE_DOMAIN}"):
        return  # It is for another host.
    if endpoint is None:
        if _CLAUDE.fullmatch(domain) is None:
            yield ViewFinding("error", "UI007", f"Claude takes 32 hexadecimal digits before .{CLAUDE_DOMAIN}")
    elif domain != (right := claude_domain(endpoint)):
        yield ViewFinding("error", "UI007", f"Claude shows no view of {endpoint} with this domain: use {right}")


def _check_page(view: FoundView) -> Iterator[ViewFinding]:
    page = PageReader(view.html)
    yield from _check_loads(view, page)
    yield from _check_connect(view, page)
    if any(map(_CSS_VIEWPORT.search, page.styles)) or any(map(_JS_VIEWPORT.search, page.scripts)):
        message = "100vh is the height of the frame, which grows with the page: let the content decide the height"
        yield ViewFinding("warning", "UI010", message)
    # A remote script may have the handshake.
    if not speaks_handshake(view.html) and not any(each.kind == "script" for each in page.loads):
        message = "the page does not speak the handshake (ui/initialize), and hosts that wait for it never show it"
        yield ViewFinding("error", "UI011", message)


def speaks_handshake(html: str) -> bool:
    """Return whether a page has the text of the handshake with its host."""
    return _HANDSHAKE in html


def _check_loads(view: FoundView, page: PageReader) -> Iterator[ViewFinding]:
    granted = host_policy(view.ui.get("csp")).granted
    blocked: list[str] = []
    external: list[str] = []
    for each in page.loads:
        declared = granted.get("frameDomains" if each.kind == "frame" else "resourceDomains", [])
        (external if _is_covered(each.address, declared) else blocked).append(each.address)
    if blocked:
        message = f"its policy blocks {_named(blocked)}: put it into the page (bundle=True), or declare its origin"
        yield ViewFinding("error", "UI002", message)
    if external:
        message = f"the page loads {_named(external)}, and some hosts ignore declared origins: put it into the page"
        yield ViewFinding("warning", "UI002", message)
    if page.has_font_inside:
        message = "the page has a font inside, which the policy of the specification blocks (font-src): name more, too"
        yield ViewFinding("warning", "UI002", message)


def _check_connect(view: FoundView, page: PageReader) -> Iterator[ViewFinding]:
    used = {origin for text in page.scripts for origin in _origins_in(text)}
    wide = []
    for each in host_policy(view.ui.get("csp")).granted.get("connectDomains", []):
        declared = parse_origin(each)
        inside = {origin for origin in used if _covers(declared, origin)}
        if not inside or (declared.is_wildcard and len(inside) == 1):
            wide.append(each)
    # A remote script may use all of them.
    if wide and not any(each.kind == "script" for each in page.loads):
        message = f"connect is wider than the scripts of the page use: none of them needs {_named(wide)}"
        yield ViewFinding("hint", "UI003", message)


def _origins_in(text: str) -> Iterator[Origin]:
    for found in _ADDRESS.findall(text):
        try:
            yield parse_origin(found.rstrip("."))
        except ValueError:
            continue


def _is_covered(address: str, declared: Iterable[str]) -> bool:
    try:
        parts = urlsplit(address)
        origin = parse_origin(f"{parts.scheme or 'https'}://{parts.netloc}")
    except ValueError:
        return False
    return any(_covers(parse_origin(each), origin) for each in declared)


def _covers(declared: Origin, origin: Origin) -> bool:
    same_host = declared.host == origin.host
    if declared.is_wildcard:
        same_host = origin.host.endswith(f".{declared.host}")
    return same_host and declared.port == origin.port and declared.scheme == origin.scheme


def _named(texts: list[str]) -> str:
    different = list(dict.fromkeys(each[:100] for each in texts))
    more = len(different) - _MAX_NAMED
    return ", ".join(different[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- tools ------------------------------------------------------------------------------------------------------------


def check_app_tool(tool: t.Tool) -> Iterator[ViewFinding]:
    """Check a tool that shows a view, or that is for views."""
    ui = ui_of(tool.meta)
    if not ui and view_address(tool.meta) is None:
        return
    said = audiences(tool.meta)
    nested = ui.get("resourceUri")
    flat = tool.meta.get(FLAT_KEY) if isinstance(tool.meta, Mapping) else None
    # Hosts look for the view of a call that a model makes, and of no other.
    if isinstance(nested, str) and flat != nested and "model" in said:
        message = f"_meta has no {FLAT_KEY!r} with the address of the view, where older hosts look for it"
        yield ViewFinding("warning", "UI008", message)
    elif nested is None and flat is not None:
        message = f"_meta has the view under {FLAT_KEY!r} alone, which is deprecated: name it in ui.resourceUri, too"
        yield ViewFinding("warning", "UI008", message)
    if isinstance(nested, str) and not nested.startswith(SCHEME):
        yield ViewFinding("error", "UI012", f"the address of its view starts with {SCHEME}, unlike {nested[:100]!r}")
    ignored = [member for member in ("csp", "permissions") if member in ui]
    if ignored:
        message = f"hosts ignore {' and '.join(ignored)} of a tool: declare it on the resource"
        yield ViewFinding("error", "UI014", message)
    visibility = ui.get("visibility")
    if visibility is not None and not (
        isinstance(visibility, list) and said and all(each in said for each in visibility)
    ):
        message = f"visibility is a list of 'model' and 'app', unlike {visibility!r:.100}: hosts disagree about it"
        yield ViewFinding("error", "UI015", message)
    hints = tool.annotations
    reads_only = hints is not UNSET and hints.read_only_hint is True
    if "app" in said and not reads_only and (hints is UNSET or hints.destructive_hint is UNSET):
        message = "views can call it, and its annotations have neither destructiveHint nor readOnlyHint"
        # A call that no model makes is one that no user of a chat sees.
        yield ViewFinding("hint" if "model" in said else "warning", "UI005", message)


def check_shown_result(result: ToolResult) -> Iterator[ViewFinding]:
    """Check a result that a view shows."""
    if not result.text.strip():
        message = "its result has no text, which is all that a model, or a host without views, gets of it"
        yield ViewFinding("warning", "UI004", message)
