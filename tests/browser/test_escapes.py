"""Hostile views in Chromium: whatever a view tries, nothing arrives at an address that its server did not declare.

`escapes.js` has the attempts. Each has a port and a host name of its own. The listeners here count connections and
packets, and the log of the browser's network says which names were looked up.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias
from urllib.parse import unquote

import pytest
from playwright.sync_api import Frame, expect
from playwright.sync_api import Page as PlayedPage
from tests.browser.conftest import FLAGS, HERE, Inspected, Tab
from tests.browser.test_hosts import Files
from tests.browser.test_views import look, shop

from toolwire.apps import Csp
from toolwire.apps.page import with_host_script
from toolwire.testing.browser_views import BrowserView

SOURCE = (HERE / "escapes.js").read_text(encoding="utf-8")
ADDRESS = re.compile(r"DevTools listening on (ws://\S+)")
#: Browsers look up names below localhost by themselves.
DOMAIN = "leak.localhost"
#: Seconds after the last report of a page. What is stopped leaves no trace to wait for.
SECONDS = 1.0

SERVER = """
from toolwire import Server
from toolwire.apps import Csp, Page
server = Server("s")
app = server.app(Page("plain.html", "<!doctype html><title>plain</title><p>x"), csp=Csp(connect=["{origin}"]))
@server.tool(app=app)
def plain() -> str:
    return "x"
"""

Groups: TypeAlias = dict[str, list[str]]
#: The pages that are shown, and the attempts of each.
Shown: TypeAlias = list[tuple[PlayedPage, dict[Frame, list[str]]]]


class Listeners:
    """A TCP and a UDP port for each attempt, the attempts that started, and those whose data arrived."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.arrived: dict[str, set[str]] = {}
        self._targets: dict[str, dict[str, Any]] = {}
        self._selector = selectors.DefaultSelector()
        self._is_open = True
        started = self.started

        class Reports(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                started.add(unquote(self.path[1:]))
                self.send_response(204)
                self.send_header("access-control-allow-origin", "*")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._reports = ThreadingHTTPServer(("127.0.0.1", 0), Reports)
        self.reports: str = f"http://127.0.0.1:{self._reports.server_port}"
        """The origin that attempts tell when they start. A view declares it."""
        self._threads = [
            threading.Thread(target=self._receive, daemon=True),
            threading.Thread(target=self._reports.serve_forever, args=(0.05,), daemon=True),
        ]
        for each in self._threads:
            each.start()

    def targets(self, names: list[str]) -> dict[str, Any]:
        """Return where the data of attempts would arrive."""
        for name in names:
            host, port = f"attempt-{len(self._targets)}.{DOMAIN}", self._listen(name)
            self._targets[name] = {"port": port, "url": f"http://127.0.0.1:{port}/", "host": host}
        return {"targets": {name: self._targets[name] for name in names}, "reports": self.reports}

    def _listen(self, name: str) -> int:
        while True:
            stream, packets = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            stream.bind(("127.0.0.1", 0))
            port: int = stream.getsockname()[1]
            try:
                packets.bind(("127.0.0.1", port))
            except OSError:  # Another program has that port.
                stream.close()
                packets.close()
                continue
            stream.listen()
            for each, kind in ((stream, "TCP"), (packets, "UDP")):
                each.setblocking(False)
                self._selector.register(each, selectors.EVENT_READ, (name, kind))
            return port

    def _receive(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select(0.1):
                name, kind = key.data
                self.arrived.setdefault(name, set()).add(kind)
                listening = key.fileobj
                assert isinstance(listening, socket.socket)
                if kind == "TCP":
                    listening.accept()[0].close()
                else:
                    listening.recv(2_000)

    def read_log(self, log: Path) -> None:
        """Add the attempts whose names the browser looked up."""
        text = log.read_text(encoding="utf-8", errors="replace")
        assert "HOST_RESOLVER" in text
        for name, target in self._targets.items():
            if target["host"] in text:
                self.arrived.setdefault(name, set()).add("DNS")

    def close(self) -> None:
        self._is_open = False
        self._reports.shutdown()
        self._reports.server_close()
        for each in self._threads:
            each.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


class Chromium:
    """A browser with a profile, as people have it: without one, it does not connect ahead of requests."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.log = folder / "network.json"
        flags = [each for each in FLAGS if not each.startswith(("--disable-quic", "--host-resolver-rules"))]
        # As Playwright does: pages that are not in front run, too.
        flags += ["--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows"]
        flags += ["--disable-background-timer-throttling", "--disable-popup-blocking"]
        own = ["--headless", "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}"]
        command = [os.environ["TOOLWIRE_BROWSER"], *flags, *own, f"--log-net-log={self.log}", "about:blank"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self.process.stderr is not None
        said: list[str] = []
        while (found := ADDRESS.search("".join(said[-1:]))) is None:
            said.append(self.process.stderr.readline())
            assert said[-1], f"it ended: {''.join(said)}"
        self._reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._reader.start()
        self._driven = browser.browser_type.connect_over_cdp(found[1])
        self.context = self._driven.contexts[0]

    def names(self) -> Groups:
        """Return the names of the attempts, by their groups."""
        found: Groups = self.context.pages[0].evaluate(f"{SOURCE}.names")
        return found

    def attempt(self, shown: Shown, listeners: Listeners, expected: Collection[str] = ()) -> set[str]:
        """Run attempts in frames, and end the browser; return those that arrived.

        Each attempt has to start, and to leave its page alive. Then they get until all of the `expected` ones arrived,
        or `SECONDS`.
        """
        for _, frames in shown:
            for frame, names in frames.items():
                frame.evaluate(f"(given) => {SOURCE}.prepare(given)", listeners.targets(names))
        for page, _ in shown:
            page.evaluate(f"{SOURCE}.start()")
        # From here nothing drives the browser: Playwright may fail when a frame is removed.
        self._driven.close()
        wanted = {name for _, frames in shown for names in frames.values() for name in names}
        wanted |= {f"alive: {names[0]}" for _, frames in shown for names in frames.values() if len(names) > 1}
        _wait(lambda: wanted <= listeners.started)
        if expected:
            _wait(lambda: listeners.arrived.keys() >= set(expected))
        else:
            time.sleep(SECONDS)
        self.end()
        listeners.read_log(self.log)
        assert wanted - listeners.started == set()
        return set(listeners.arrived)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._reader.join(timeout=5)
        assert self.process.stderr is not None
        self.process.stderr.close()


def _wait(condition: Callable[[], bool]) -> None:
    """Wait until something is so, or for a minute."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)


@pytest.fixture
def chromium(browser: Any, tmp_path: Path) -> Iterator[Chromium]:
    started = Chromium(browser, tmp_path)
    yield started
    if started.process.poll() is None:
        started.end()


def split(groups: Groups) -> list[list[str]]:
    """Return the attempts of each view. An attempt that replaces the page has a view of its own."""
    return [groups["shared"] + groups["inert"], groups["blank"], *([name] for name in groups["leaving"])]


def test_attempts_arrive_where_no_host_stops_them(chromium: Chromium, listeners: Listeners) -> None:
    """Proves the listeners and the attempts: without a policy, all arrive except those that never do."""
    view = Files({"/view": ("text/html", b"<!doctype html><title>view</title><body>")})
    host = Files({"/": ("text/html", f"<!doctype html><iframe src='{view.origin}/view'></iframe>".encode())})
    groups = chromium.names()
    wanted = {name for group, names in groups.items() if group != "inert" for name in names}
    # The last page is in front, and only a page in front loads videos.
    shown = [show_page(chromium, host.origin, names) for names in reversed(split(groups))]
    # A name leaves nothing but a line in the log.
    arrived = chromium.attempt(shown, listeners, {name for name in wanted if not name.startswith("name")})
    for each in (view, host):
        each.close()
    assert wanted - arrived == set()


def show_page(chromium: Chromium, url: str, names: list[str]) -> tuple[PlayedPage, dict[Frame, list[str]]]:
    """Show a page of a host that has the view in its only frame."""
    page = chromium.context.new_page()
    page.goto(url)
    return page, {page.frames[1]: names}


def test_nothing_escapes_from_a_view_in_the_inspector(
    chromium: Chromium, listeners: Listeners, inspect: Callable[..., Inspected], tmp_path: Path
) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER.replace("{origin}", listeners.reports))
    views = split(chromium.names())
    tab = Tab(chromium.context.new_page(), inspect("inspect", server))
    # In a page that is not seen, the inspector does not ask views whether they respond. So many are slow.
    tab.page.add_init_script("Object.defineProperty(Document.prototype, 'hidden', { value: true })")
    tab.open()
    tab.choose("plain")
    tab.run()
    expect(tab.page.locator(".app-state")).to_have_text("ready")
    frames = show_views(tab, len(views))
    assert chromium.attempt([(tab.page, dict(zip(frames, views, strict=True)))], listeners) == set()


def show_views(tab: Tab, count: int) -> list[Frame]:
    """Show the view of a call in one page many times, and return the frames of these views."""
    tab.page.evaluate(
        """async (count) => {
          const [{ viewPanel }, { state }] = await Promise.all([import("./views.js"), import("./store.js")]);
          const [call] = state.calls.keys();
          document.body.replaceChildren(...Array.from({ length: count }, () => viewPanel(call).element));
        }""",
        count,
    )
    expect(tab.page.locator(".app-state.is-ready")).to_have_count(count)
    return [frame for frame in tab.page.frames if frame.url.endswith("/view.html")]


def test_nothing_escapes_from_a_view_in_a_test(chromium: Chromium, listeners: Listeners) -> None:
    addresses: SimpleQueue[str] = SimpleQueue()
    is_over = threading.Event()

    async def serve(view: BrowserView) -> None:
        # Its pages are shown by another browser, which nothing drives while the attempts run.
        addresses.put(view.page.url)
        await asyncio.to_thread(is_over.wait)

    server = shop(csp=Csp(connect=[listeners.reports]))
    serving = threading.Thread(target=look, args=(serve, server), daemon=True)
    serving.start()
    try:
        url, shown = addresses.get(timeout=60), []
        for names in split(chromium.names()):
            page = chromium.context.new_page()
            page.goto(url)
            # The page of the host tells a function of the test what the view sends.
            page.evaluate("() => { globalThis.toolwireReceive = () => {}; toolwireHost.open(); }")
            page.frame_locator("iframe").locator("#shown").wait_for()
            shown.append((page, {page.frames[1]: names}))
        assert chromium.attempt(shown, listeners) == set()
    finally:
        is_over.set()
        serving.join()


#: Pages that try to run a script before that of the host, or to hide that of the host.
FIRST = "<script>window.first ??= 'the page'</script>"
HIDING = [
    FIRST,
    f"<!doctype html>{FIRST}",
    f"\ufeff<!doctype html><html lang=en>{FIRST}",
    f"<!doctype html><html title='>'>{FIRST}",
    f'<!doctype html><html title="><!--">{FIRST}-->',
    f"<!doctype html><head title='>'><meta charset='>'>{FIRST}",
    f"<!doctype html PUBLIC '>{FIRST}'>",
    f"<!doctypehtml>{FIRST}",
    f"<!-->{FIRST}<!-- --><!doctype html>",
    f"<!--->{FIRST}<!-- --><!doctype html>",
    f"<!-- --!>{FIRST}<!-- --><!doctype html>",
    f"<!-- a --><!----><!doctype html>{FIRST}",
    f"<!--<!doctype html>{FIRST}",
    f"<!--{FIRST}--><!doctype html>{FIRST}",
    f"<title><!doctype html></title>{FIRST}",
    f"<textarea><!doctype html></textarea>{FIRST}",
    f"<?xml version='1.0'?><!doctype html>{FIRST}",
    f"<![CDATA[<!doctype html>]]>{FIRST}",
    f"<svg><!doctype html>{FIRST}",
    f"x<!doctype html>{FIRST}",
]


def test_the_script_of_a_host_runs_before_those_of_the_page(browser: Any) -> None:
    element = "<script>window.first ??= 'the host'</script>"
    pages = {
        f"/{number}": ("text/html; charset=utf-8", with_host_script(page, element).encode())
        for number, page in enumerate(HIDING)
    }
    files, context = Files(pages), browser.new_context()
    page = context.new_page()
    found = {}
    for number, text in enumerate(HIDING):
        page.goto(f"{files.origin}/{number}")
        found[text] = page.evaluate("window.first")
    # A page with a doctype stays one.
    page.goto(f"{files.origin}/2")
    assert page.evaluate("[document.compatMode, document.documentElement.lang]") == ["CSS1Compat", "en"]
    context.close()
    files.close()
    assert found == dict.fromkeys(HIDING, "the host")
