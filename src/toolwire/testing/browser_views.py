"""`BrowserView`: a view in a real Chromium, driven by Playwright.

The host page and the view have two origins, each with a listener of its own on this machine. The view is a frame with
its own address and its own Content-Security-Policy header, as in hosts: a policy in a `srcdoc` would be that of the
page around it. Messages pass through the host page to `ViewHost`, which answers in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolwire.apps import bridge
from toolwire.apps.content_security_policy import allow_attribute
from toolwire.apps.host import ViewHost
from toolwire.apps.page import with_host_script
from toolwire.apps.profiles import HostSettings, openai_globals
from toolwire.content import ToolResult
from toolwire.inspector.views.pages import (
    TRUSTED_TYPES,
    choose_nested_policy,
    choose_sandbox,
    closing_script,
    openai_script,
    writing_script,
)
from toolwire.testing.scripted_views import View

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Frame, Page, Request

#: The programs that are looked for where no browser is named.
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Tests may run as root, where Chromium has no sandbox. The rest keeps it from calling home.
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A view sends nothing by WebRTC.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
#: What a browser logs that has no directive for WebRTC.
NO_WEBRTC: Final = "Unrecognized Content-Security-Policy directive 'webrtc'."
_MAX_TOLD: Final = 1_000
_AXE_FILE: Final = "node_modules/axe-core/axe.min.js"

_HOST_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A host for tests</title>
<style>
  html, body {{ margin: 0; background: Canvas; color-scheme: {theme}; }}
  iframe {{ border: 0; display: block; visibility: {visibility}; }}
</style>
<main><iframe title="The view" sandbox="{sandbox}" csp="{csp}" allow="{allow}" width="{width}"
height="{height}"></iframe></main>
<script>
"use strict";
const frame = document.querySelector("iframe"), origin = {origin};
const hasOrigin = frame.sandbox.contains("allow-same-origin"), sender = hasOrigin ? origin : "null";
let credit = {burst}, at = 0, isOver = false;
{written}
const end = (reason) => {{ isOver = true; frame.remove(); toolwireReceive(null, reason); }};
// The host listens before the view is loaded: it may speak at once. A flood ends here, not on the way to the test.
addEventListener("message", (event) => {{
  if (isOver || event.source !== frame.contentWindow || event.origin !== sender) return;
  const now = performance.now();
  credit = Math.min({burst}, credit + (now - at) * {rate} / 1000) - 1;
  at = now;
  if (credit < 0) return end({flood});
  const text = written(event.data, {limit});
  if (text === null) end({too_long});
  else toolwireReceive(text, "");
}});
globalThis.toolwireHost = {{
  open: () => {{ frame.src = origin + {path}; }},
  send: (message) => frame.contentWindow.postMessage(message, hasOrigin ? origin : "*"),
  show: () => {{ frame.style.visibility = "visible"; }},
  resize: (height) => {{ frame.height = height; }},
  remove: () => {{ isOver = true; frame.remove(); }},
}};
</script>"""

# It runs in the frame of the view before the page does. The page cannot read the word that its reports begin with.
_WATCH: Final = """(() => {{
  if (location.origin !== {origin} || window.top === window) return;
  const say = console.debug.bind(console), text = JSON.stringify.bind(JSON);
  addEventListener("securitypolicyviolation", (event) => say({word}, text({{
    violation: [event.effectiveDirective, event.blockedURI, event.sourceFile || "", event.lineNumber || 0] }})), true);
  new PerformanceObserver((list) => {{
    if (list.getEntriesByName("first-contentful-paint").length) say({word}, text({{ painted: true }}));
  }}).observe({{ type: "paint", buffered: true }});
}})()"""


class Violation(Struct, frozen=True):
    """Something that the policy of the view blocked."""

    directive: str
    """The directive, such as `connect-src`."""
    blocked: str
    """The address, or "inline" or "eval"."""
    source: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.directive} blocked {self.blocked}"


class ViewGone(RuntimeError):
    """The frame of the view was removed."""


class BrowserView(View):
    """A view in Chromium."""

    def __init__(self, host: ViewHost, result: ToolResult | None, settings: HostSettings) -> None:
        super().__init__(host, result)
        self.violations: list[Violation] = []
        """The loads and connections that the policy of the view blocked."""
        self.errors: list[str] = []
        """The errors in the console of the view, and its exceptions."""
        self.requests: list[str] = []
        """The addresses that the view tried to load from, without its own."""
        self._settings = settings
        self._word = secrets.token_hex(16)
        self._address = f"/{secrets.token_hex(16)}"
        self._page: Page | None = None
        self._painted = asyncio.Event()
        self._sized = asyncio.Event()
        self._outgoing: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._delivered = asyncio.Event()
        self._origin = ""
        self._is_removed = False

    # --- for tests ---

    @property
    def page(self) -> Page:
        """The page of the host, as an object of Playwright."""
        if self._page is None:
            raise RuntimeError("the view is not open")
        return self._page

    @property
    def frame(self) -> Frame:
        """The frame of the view, as an object of Playwright: `view.frame.get_by_role("button").click()`."""
        found = self._find_frame()
        if found is None:
            raise ViewGone(f"the view is gone: {self.stopped or 'its frame was removed'}")
        return found

    def _find_frame(self) -> Frame | None:
        frames = self.page.frames
        return next((frame for frame in frames if frame.parent_frame is self.page.main_frame), None)

    async def click(self, selector: str) -> None:
        """Click on an element, by a selector of Playwright such as `text=Cancel`."""
        await self.frame.locator(selector).click()

    async def fill(self, selector: str, text: str) -> None:
        """Type a text into a field."""
        await self.frame.locator(selector).fill(text)

    async def text(self, selector: str = "body") -> str:
        """Return the visible text of the page or of one element, after painting."""
        await self.painted()
        shown: str = await self.frame.locator(selector).inner_text()
        return shown

    async def painted(self, patience: float | None = None) -> None:
        """Wait until the view shows something and has everything the host sent.

        Fails if that never happens. `patience` is how many seconds it has for that; without it, those of
        `testing.view`.
        """
        seconds = self.host.patience if patience is None else patience
        await self._flushed()
        try:
            async with asyncio.timeout(seconds):
                await self._painted.wait()
        except TimeoutError:
            why = "" if self.stopped is None else f", and was stopped: {self.stopped}"
            raise AssertionError(f"the view painted nothing within {seconds:g} seconds{why}") from None
        # Two frames later the page has drawn the last message.
        await self.frame.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    async def screenshot(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """Return a picture of the view (PNG), and write it to a file."""
        await self.painted()
        picture: bytes = await self.page.locator("iframe").screenshot(path=None if path is None else os.fspath(path))
        return picture

    async def check(self) -> None:
        """Fail unless the view paints, reports a size, logs no error, breaks no policy."""
        await self.painted()
        if self.stopped is None:
            # A view measures itself after it has painted. Its report takes another way than the answer of its frame.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.host.patience):
                    await self._sized.wait()
        faults = [*map(str, self.violations), *self.errors]
        if self.stopped is not None:
            faults.append(f"the host stopped the view: {self.stopped}")
        if not self.sizes:
            faults.append("the view never reported its size (ui/notifications/size-changed)")
        assert not faults, "\n".join([f"{self.found.uri} has faults:", *faults])

    async def accessibility(self, axe: str | os.PathLike[str] | None = None) -> list[str]:
        """Return the violations that axe-core finds in the view, one line for each rule.

        `axe` is the path of `axe.min.js`. Without it, TOOLWIRE_AXE names the file, or it is looked for in the
        `node_modules` of this folder and of those above.
        """
        await self.painted()
        await self.frame.evaluate(find_axe(axe).read_text(encoding="utf-8"))
        # The frame is a page of its own here: what is around it belongs to the host.
        found = await self.frame.evaluate("() => axe.run(document, { resultTypes: ['violations'], iframes: false })")
        return [
            f"{each['id']}: {each['help']} ({', '.join(' '.join(map(str, node['target'])) for node in each['nodes'])})"
            for each in found["violations"]
        ]

    # --- the bridge ---

    def deliver(self, message: dict[str, Any]) -> None:
        """Take a message of the host for the view."""
        self._put("send", message)

    def _put(self, what: str, value: Any) -> None:
        self._delivered.clear()
        self._outgoing.put_nowait((what, value))

    async def _flushed(self) -> None:
        if self._outgoing.empty():
            self._delivered.set()
        await self._delivered.wait()

    async def _pump(self) -> None:
        """Hand the messages of the host to the host page, in order."""
        while True:
            what, value = await self._outgoing.get()
            with contextlib.suppress(Exception):  # The page may be closed meanwhile.
                await self.page.evaluate(f"(value) => toolwireHost.{what}(value)", value)
            if self._outgoing.empty():
                self._delivered.set()

    def _receive(self, source: dict[str, Any], *told: Any) -> None:
        """Receive from the host page: a message of the view, or why it ended."""
        if source["frame"] is not self.page.main_frame:
            return  # The view found the function. It speaks to its host by messages alone.
        text, reason = told
        sizes = len(self.sizes)
        if text is None:
            self._stop(reason)
            return
        self.host.receive(text)
        if len(self.sizes) > sizes:
            self._sized.set()
            if (height := self.sizes[-1].height) is not None:
                self._put("resize", max(0, min(int(height), self._settings.max_height)))
        if self.stopped is not None:
            self._stop(self.stopped)

    def _stop(self, reason: str) -> None:
        """Stop the view, and take its frame away."""
        self.host.stop(reason)
        if not self._is_removed:
            self._is_removed = True
            self._put("remove", None)

    # --- the browser ---

    @contextlib.asynccontextmanager
    async def opened(self, program: str | None) -> AsyncIterator[None]:
        """Open the view in a browser; raise `AssertionError` if the view never initializes."""
        async_playwright = _playwright()
        async with (
            _listening(self._host_page, self._view_page) as (origin, self._origin),
            async_playwright() as started,
        ):
            browser = await started.chromium.launch(executable_path=program or find_browser(), args=list(_FLAGS))
            try:
                settings = self._settings
                context = await browser.new_context(
                    viewport={"width": settings.width, "height": 800},
                    color_scheme=settings.theme,
                    locale=settings.locale,
                    timezone_id=settings.time_zone,
                )
                self._page = await context.new_page()
                await self._watch()
                pumping = asyncio.create_task(self._pump())
                try:
                    await self.page.goto(f"{origin}/")
                    self.host.start()
                    if self.stopped is None:
                        self._put("open", None)
                    await self.host.settled()
                    if self.stopped is not None:
                        why = f"the host stopped the view: {self.stopped}"
                        raise AssertionError("\n".join([why, *map(str, self.violations), *self.errors]))
                    self._put("show", None)
                    async with self._explaining_ends():
                        yield
                finally:
                    pumping.cancel()
            finally:
                await browser.close()

    @contextlib.asynccontextmanager
    async def _explaining_ends(self) -> AsyncIterator[None]:
        """Explain why the host stopped the view, if a test fails without its frame."""
        try:
            yield
        except Exception as error:
            is_about_frame = isinstance(error, ViewGone) or type(error).__module__.partition(".")[0] == "playwright"
            if not is_about_frame or (self._find_frame() is not None and self.stopped is None):
                raise
            # The frame is removed first, and the reason comes behind it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.host.patience):
                    await self.host.ended()
            if self.stopped is None:
                raise
            raise AssertionError(f"the host stopped the view: {self.stopped}") from error

    async def _watch(self) -> None:
        page = self.page
        await page.expose_binding("toolwireReceive", self._receive)
        word, origin = json.dumps(self._word), json.dumps(self._origin)
        await page.add_init_script(_WATCH.format(word=word, origin=origin))
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self._note(self.errors, str(error)))
        page.on("request", self._requested)
        page.on("framenavigated", self._navigated)
        page.on("crash", lambda _: self.host.stop("the browser ended its process"))
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.dismiss()))

    def _note(self, kept: list[Any], value: Any) -> None:
        if len(kept) < _MAX_TOLD:
            kept.append(value)

    def _logged(self, message: ConsoleMessage) -> None:
        word, _, rest = message.text.partition(" ")
        if word == self._word:
            told = json.loads(rest)
            if "painted" in told:
                self._painted.set()
            else:
                self._note(self.violations, Violation(*told["violation"]))
        # What the policy blocked is noted as that.
        elif message.type == "error" and "Content Security Policy" not in message.text and message.text != NO_WEBRTC:
            self._note(self.errors, message.text)

    def _requested(self, request: Request) -> None:
        is_own = request.is_navigation_request() and request.url == self._origin + self._address
        if not is_own and request.frame is not self.page.main_frame:
            self._note(self.requests, request.url)

    def _navigated(self, frame: Frame) -> None:
        is_view = frame.parent_frame is self.page.main_frame
        if is_view and frame.url.partition("#")[0] not in ("about:blank", self._origin + self._address):
            self._stop("the view left its page, and a host shows nothing else in its frame")

    # --- pages ---

    def _host_page(self, path: str) -> tuple[str, dict[str, str]] | None:
        if path != "/":
            return None
        settings, allow = self._settings, allow_attribute(self.found.ui.get("permissions"))
        html = _HOST_PAGE.format(
            sandbox=choose_sandbox(allow),
            csp=choose_nested_policy(self.host.policy),
            allow=escape(allow),
            theme=settings.theme,
            visibility="hidden" if self.host.profile.hides_until_ready else "visible",
            width=settings.width,
            height=200,
            origin=json.dumps(self._origin),
            path=json.dumps(self._address),
            written=writing_script(),
            limit=bridge.MAX_MESSAGE_BYTES,
            burst=bridge.MAX_BURST,
            rate=bridge.MAX_MESSAGES_PER_SECOND,
            flood=json.dumps(bridge.FLOOD),
            too_long=json.dumps(bridge.TOO_LONG),
        )
        # The view cannot navigate its frame to another page.
        policy = f"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-src {self._origin}"
        return html, {"content-security-policy": policy}

    def _view_page(self, path: str) -> tuple[str, dict[str, str]] | None:
        if path != self._address:
            return None
        scripts = closing_script()
        if self.host.profile.has_openai:
            scripts += f"<script>{openai_script(self._globals()).decode()}</script>"
        return with_host_script(self.html, scripts), {
            "content-security-policy": f"{self.policy}; {TRUSTED_TYPES}",
            "connection-allowlist": self.host.policy.connections,
        }

    def _globals(self) -> dict[str, Any]:
        """Return the values of `window.openai` when the page starts."""
        result = {} if self.result is None else self.result.to_wire().to_dict()
        return openai_globals(self.context, self.host.arguments, result)


_Answer = Callable[[str], "tuple[str, dict[str, str]] | None"]


@contextlib.asynccontextmanager
async def _listening(host: _Answer, view: _Answer) -> AsyncIterator[tuple[str, str]]:
    """Serve two pages on two ports of this machine, and yield their origins."""
    from toolwire.http import serving

    serving.check_installed()
    origins, servers, tasks = [], [], []
    try:
        for answer in (host, view):
            sockets = serving.listen("127.0.0.1", 0, public=False)
            origins.append(serving.url_of(sockets, "127.0.0.1", ""))
            ready = asyncio.Event()
            servers.append(serving.HttpServer(_Pages(answer), sockets, drain=0.1))
            tasks.append(asyncio.create_task(servers[-1].serve(ready.set)))
            await ready.wait()
        yield origins[0], origins[1]
    finally:
        for server in servers:
            server.stop()
        await asyncio.gather(*tasks)


class _Pages:
    """An application that serves the pages of one origin."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in ("startup", "shutdown"):
                event = await receive()
                await send({"type": f"{event['type']}.complete"})
            return
        found = self._answer(scope["path"]) if scope["method"] == "GET" else None
        html, headers = ("", {}) if found is None else found
        body = html.encode("utf-8", "replace")
        sent = {
            "content-type": "text/html; charset=utf-8",
            "content-length": str(len(body)),
            "cache-control": "no-store",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            **headers,
        }
        status = 404 if found is None else 200
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    def drain(self) -> None:
        """Do nothing: there are no streams to end."""

    def give_up(self) -> None:
        """Do nothing: every answer is sent at once."""


def _playwright() -> Any:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise RuntimeError("testing.view(browser=...) needs Playwright: pip install playwright") from None
    return async_playwright


def find_browser() -> str | None:
    """Return the browser program: TOOLWIRE_BROWSER, or Chromium on the PATH.

    None leaves it to Playwright.
    """
    named = os.environ.get("TOOLWIRE_BROWSER")
    return named or next((found for each in _PROGRAMS if (found := shutil.which(each)) is not None), None)


def find_axe(named: str | os.PathLike[str] | None = None) -> Path:
    """Return the file of axe-core. Raise `FileNotFoundError` if there is none."""
    given = named or os.environ.get("TOOLWIRE_AXE")
    places = [Path(given)] if given else [folder / _AXE_FILE for folder in (Path.cwd(), *Path.cwd().parents)]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(
        f"there is no {given or _AXE_FILE}: run `npm install axe-core`, or name its axe.min.js (axe=, or TOOLWIRE_AXE)"
    )
