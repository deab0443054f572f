"""The second origin of the inspector: the sandbox page and the open views.

A view is a program of the server. So it has a host name and a port that the inspector's page does not have, which the
browser keeps apart in storage, cookies and processes. The name is below `localhost`, which browsers resolve by
themselves: `views.localhost` for the sandbox page, and a random name for each view. So each view is a site of its own:
it cannot reach into the sandbox page or into another view, and it hangs alone.

Decision 0087 says what keeps a view from sending data past its policy.
"""

from __future__ import annotations

import html
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolwire.apps.content_security_policy import PERMISSIONS, HostPolicy, Origin
from toolwire.apps.page import with_host_script
from toolwire.http.body import read_body
from toolwire.http.origin_check import is_loopback
from toolwire.http.responses import HttpRefusal, respond
from toolwire.http1.asgi_types import HeaderList, Receive, Scope, SendMessage

#: The host of the sandbox page.
NAME: Final = "views.localhost"
#: Clause "Sandbox proxy" of the specification of apps: these two, and nothing else.
SANDBOX: Final = "allow-scripts allow-same-origin"
#: The permissions that browsers give to origins alone.
_OF_ORIGINS: Final = frozenset({"camera", "microphone"})
#: Keeps scripts out of `javascript:` addresses. `closing_script` allows everything else that this would forbid.
TRUSTED_TYPES: Final = "require-trusted-types-for 'script'"
#: How many reports of the browser about one view are read.
MAX_REPORTS: Final = 200
MAX_REPORT_BYTES: Final = 64 * 1024
BODY_SECONDS: Final = 10.0

_HERE: Final = Path(__file__).parent.parent
_SCRIPT: Final[HeaderList] = ((b"content-type", b"text/javascript; charset=utf-8"),)
_PAGE: Final[HeaderList] = ((b"content-type", b"text/html; charset=utf-8"),)
#: The files that the sandbox page has, each with its type.
_SANDBOX_FILES: Final[Mapping[str, tuple[Path, bytes]]] = {
    "/sandbox.js": (_HERE / "view_page" / "sandbox.js", b"text/javascript; charset=utf-8"),
    "/sandbox.css": (_HERE / "view_page" / "sandbox.css", b"text/css; charset=utf-8"),
    "/rate.js": (_HERE / "page" / "rate.js", b"text/javascript; charset=utf-8"),
    "/written.js": (_HERE / "page" / "written.js", b"text/javascript; charset=utf-8"),
}
_COMMON: Final[dict[str, str]] = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-dns-prefetch-control": "off",
    "origin-agent-cluster": "?1",
    "cross-origin-resource-policy": "same-origin",
}
#: A view without an origin is of another origin than its own scripts.
_FOR_VIEW: Final[dict[str, str]] = {"cross-origin-resource-policy": "cross-origin"}


def openai_script(values: Any) -> bytes:
    """Return the script that makes `window.openai`, with these values."""
    # A script inside a page must not have the text that ends it.
    encoded = msgspec.json.encode(values).replace(b"<", b"\\u003c")
    return b"const GLOBALS = %b;\n%b" % (encoded, (_HERE / "view_page" / "openai.js").read_bytes())


def closing_script() -> str:
    """Return the first script of a view, which removes WebRTC and keeps storage in memory."""
    lines = (_HERE / "view_page" / "closed.js").read_text(encoding="utf-8").splitlines()
    # Inside the page, so that it always runs, and in one line, so that the lines of the page keep their numbers.
    return f"<script>{' '.join(line.strip() for line in lines if not line.strip().startswith('//'))}</script>"


def choose_sandbox(allow: str) -> str:
    """Return the `sandbox` attribute for a view with this `allow` attribute.

    A view has no origin, so that no frame in it has the same one: its scripts cannot use the windows of its frames.
    """
    return SANDBOX if _OF_ORIGINS & set(allow.split("; ")) else "allow-scripts"


def choose_nested_policy(policy: HostPolicy) -> str:
    """Return the `csp` attribute that restricts documents which a view writes into frames.

    With "sandbox" such a document runs no script and has no origin; the view itself keeps its own policy. A page of
    another origin would have to accept the attribute by a header, so a view that may show such pages goes without it.
    """
    return "" if policy.granted.get("frameDomains") else "sandbox"


def writing_script() -> str:
    """Return the script that writes messages of a view, to be put inline."""
    return (_HERE / "page" / "written.js").read_text(encoding="utf-8").replace("export ", "")


class ViewPage:
    """The page of one open view, and what the browser says about it."""

    def __init__(
        self,
        text: str,
        policy: HostPolicy,
        *,
        permissions: tuple[str, ...],
        host: str,
        globals: Callable[[], Any] | None,
        asked: Callable[[str], None],
        blocked: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """`policy` limits the view, `permissions` were allowed, `host` is the inspector's origin.

        `globals` returns the values of `window.openai`, where the view gets that object. `asked` is called when the
        browser asks for the `sandbox` page and for the `page` itself, `blocked` with what its policy blocked.
        """
        self.host_name: str = f"view-{secrets.token_hex(16)}.localhost"
        self.path: str = f"/{secrets.token_urlsafe(32)}"
        self.host = host
        self.permissions = permissions
        self.allow: str = "; ".join(permissions)
        self.sandbox: str = choose_sandbox(self.allow)
        self.reports = 0
        self.asked = asked
        self.blocked = blocked
        self._policy = policy
        self._globals = globals
        self._text = text

    def body(self) -> bytes:
        """Return the page, with the scripts of the host before those of the page."""
        openai = "" if self._globals is None else f'<script src="{self.path}/openai.js"></script>'
        scripts = f'{closing_script()}<script src="{self.path}/host.js"></script>{openai}'
        return with_host_script(self._text, scripts).encode("utf-8", "replace")

    def script(self, name: str) -> bytes | None:
        """Return a script of the host; None for a name that there is not."""
        if name == "host.js":
            return (_HERE / "view_page" / "host.js").read_bytes()
        if name == "openai.js" and self._globals is not None:
            return openai_script(self._globals())
        return None

    def policy(self, sandbox: str) -> str:
        """Return the Content-Security-Policy of the page.

        Only the page at `sandbox`, in the inspector, may show it.
        """
        own = f"sandbox {self.sandbox}; frame-ancestors {sandbox} {self.host}; report-uri {self.path}/report"
        return f"{self._policy.header}; {TRUSTED_TYPES}; {own}"

    @property
    def connections(self) -> str:
        """The Connection-Allowlist of the page."""
        return self._policy.connections

    def permissions_policy(self) -> str:
        """Return the Permissions-Policy: everything is off that was not allowed."""
        return ", ".join(f"{each}={'(self)' if each in self.permissions else '()'}" for each in PERMISSIONS.values())


class ViewPages:
    """An ASGI application for the sandbox page and the open views.

    It has no cookies and no token.
    """

    def __init__(self) -> None:
        self.port: int | None = None
        """The port that it is served on; None while it is not served."""
        self._pages: dict[str, ViewPage] = {}

    @property
    def origin(self) -> str | None:
        """The origin of the sandbox page."""
        return None if self.port is None else f"http://{NAME}:{self.port}"

    def address(self, page: ViewPage) -> str:
        """Return the address of the page of a view."""
        return f"{self.view_origin(page)}{page.path}/view.html"

    def view_origin(self, page: ViewPage) -> str:
        return f"http://{page.host_name}:{self.port}"

    def message_origin(self, page: ViewPage) -> str:
        """Return the origin that messages of a view have."""
        return self.view_origin(page) if page.sandbox == SANDBOX else "null"

    def sandbox_address(self, page: ViewPage) -> str:
        """Return the address of the sandbox page of a view."""
        return f"{self.origin}{page.path}"

    def add(self, page: ViewPage) -> None:
        self._pages[page.path] = page

    def remove(self, page: ViewPage) -> None:
        self._pages.pop(page.path, None)

    # --- requests ---

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    def drain(self) -> None:
        """Do nothing: every answer ends by itself."""

    def give_up(self) -> None:
        """Do nothing: there is no caller that waits for an answer."""

    async def _http(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            host = self._host(scope, headers)
            path, method = scope["path"], scope["method"]
            if host == NAME:
                await self._sandbox(path, method, headers, send)
            elif method == "POST" and path.endswith("/report"):
                await self._report(self._page(path.removesuffix("/report"), host), headers, receive)
                await respond(send, 204, b"", _headers(_FOR_VIEW))
            else:
                await self._view(path, method, host, headers, send)
        except HttpRefusal as refused:
            closed = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
            await respond(send, refused.status, refused.body, (*refused.type, *refused.headers, *_headers(closed)))

    def _host(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Return the host without the port.

        Only this machine, and only the names of this application, are served.
        """
        for address in (scope.get("server"), scope.get("client")):
            if address is None or not is_loopback(address[0]):
                raise HttpRefusal(403, "Views are for this machine only")
        name, _, port = headers.get("host", "").lower().partition(":")
        if (port or "80") != str(self.port) or not name.endswith(".localhost"):
            raise HttpRefusal(421, "This host is not served here")
        return name

    def _page(self, path: str, host: str) -> ViewPage:
        page = self._pages.get(path)
        if page is None or host not in (NAME, page.host_name):
            raise HttpRefusal(404, "There is no such view, or it was closed")
        return page

    async def _sandbox(self, path: str, method: str, headers: Mapping[str, str], send: SendMessage) -> None:
        _check_get(method)
        if path in _SANDBOX_FILES:
            file, kind = _SANDBOX_FILES[path]
            await respond(send, 200, file.read_bytes(), ((b"content-type", kind), *_headers({})))
            return
        page = self._page(path, NAME)
        _check_frame(headers)
        page.asked("sandbox")
        about = {"host": page.host, "view": self.message_origin(page)}
        attributes = " ".join(f'data-{name}="{html.escape(value)}"' for name, value in about.items())
        body = _SANDBOX_PAGE.format(attributes=attributes).encode()
        policy = "; ".join(
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                # The view cannot go anywhere else, because this policy decides where its frame may go.
                f"frame-src {self.address(page)}",
                "base-uri 'none'",
                "form-action 'none'",
                f"frame-ancestors {page.host}",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            ]
        )
        # The sandbox page sees by a report of the browser whether the browser knows this header, which views depend on.
        reached = f'(response-origin "{self.view_origin(page)}"); report-to=none'
        own = {"content-security-policy": policy, "connection-allowlist": reached}
        await respond(send, 200, body, (*_PAGE, *_headers(own)))

    async def _view(self, path: str, method: str, host: str, headers: Mapping[str, str], send: SendMessage) -> None:
        _check_get(method)
        place, _, name = path.rpartition("/")
        page = self._page(place, host)
        if name == "view.html":
            _check_frame(headers)
            page.asked("page")
            own = {
                "content-security-policy": page.policy(str(self.origin)),
                "connection-allowlist": page.connections,
                "permissions-policy": page.permissions_policy(),
            }
            await respond(send, 200, page.body(), (*_PAGE, *_headers(own)))
            return
        script = page.script(name)
        if script is None or headers.get("service-worker") is not None:
            raise HttpRefusal(404, "There is no such file")
        await respond(send, 200, script, (*_SCRIPT, *_headers(_FOR_VIEW)))

    async def _report(self, page: ViewPage, headers: Mapping[str, str], receive: Receive) -> None:
        """Take what the browser says about a view: the policy blocked something."""
        page.reports += 1
        if page.reports > MAX_REPORTS:
            return
        body = await read_body(headers, receive, MAX_REPORT_BYTES, BODY_SECONDS)
        try:
            report = msgspec.json.decode(body, type=dict[str, dict[str, Any]])
        except (msgspec.DecodeError, RecursionError):
            raise HttpRefusal(400, "That is not a report") from None
        page.blocked(report.get("csp-report", {}))


_SANDBOX_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Sandbox of a view</title><link rel="stylesheet" href="/sandbox.css">
<script type="module" src="/sandbox.js"></script></head>
<body {attributes}></body>
</html>
"""

_LOCAL: Final = re.compile(r"localhost|.*\.localhost|127(\.[0-9]+){3}")


def own_origin(ports: tuple[int | None, ...]) -> Callable[[Origin], str | None]:
    """Make the function that keeps the inspector's origins out of a view's policy."""

    def refuse(origin: Origin) -> str | None:
        port = origin.port or {"http": 80, "https": 443}.get(origin.scheme)
        is_own = _LOCAL.fullmatch(origin.host) is not None and port in ports
        return "it is the inspector, which no view may reach" if is_own else None

    return refuse


def _headers(own: Mapping[str, str]) -> HeaderList:
    return tuple((name.encode(), value.encode("latin-1")) for name, value in {**_COMMON, **own}.items())


def _check_get(method: str) -> None:
    if method != "GET":
        raise HttpRefusal(405, "Send a GET", ((b"allow", b"GET"),))


def _check_frame(headers: Mapping[str, str]) -> None:
    # A browser says what it will do with a page. One in a tab of its own would have no host around it.
    if headers.get("sec-fetch-dest", "iframe") != "iframe":
        raise HttpRefusal(403, "A view is shown inside the inspector only")
