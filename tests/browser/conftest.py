"""The inspector's page in a real browser. `make browser` brings what these tests need; otherwise they do not run.

Screenshots are kept in `.browser/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolwire.testing.browser_views import NO_WEBRTC

collect_ignore_glob = [] if "TOOLWIRE_BROWSER" in os.environ else ["test_*.py"]

HERE = Path(__file__).parent
ARTEFACTS = HERE.parent.parent / ".browser"
PAGE = re.compile(r"http://127\.0\.0\.1:\d+/#token=\S+")
# No sandbox, since tests may run as root; the rest keeps the browser from calling home.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
]


class Inspected:
    """A `toolwire` command that shows a page."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        command = [sys.executable, "-m", "toolwire", *arguments, "--no-open"]
        # What it keeps for its user is not kept for the user who runs the tests.
        environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "APPDATA": str(folder)}
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
        )
        self.said: list[str] = []
        self.url = ""
        assert self.process.stderr is not None
        while not self.url:
            line = self.process.stderr.readline()
            assert line, f"it ended: {''.join(self.said)}"
            self.said.append(line)
            found = PAGE.search(line)
            self.url = found.group(0) if found else ""
        # Read on, so that it never waits for somebody to.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def origin(self) -> str:
        return self.url.partition("/#")[0]

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += list(self.process.stderr)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._reader.join(timeout=5)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    # Tests wait with `expect`: a page draws in its own time. `wait_for_function` would evaluate text, which the policy
    # of the page forbids.
    expect.set_options(timeout=20_000)
    ARTEFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["TOOLWIRE_BROWSER"], args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def inspect(tmp_path: Path) -> Iterator[Callable[..., Inspected]]:
    """Starts `toolwire` commands, and ends them after the test."""
    running: list[Inspected] = []

    def start(*arguments: str | Path) -> Inspected:
        running.append(Inspected([str(argument) for argument in arguments], tmp_path / "settings"))
        return running[-1]

    yield start
    for each in running:
        each.end()


class Tab:
    """A page, with what went wrong in it and where it sent requests."""

    def __init__(self, page: Any, inspected: Inspected) -> None:
        self.page = page
        self.inspected = inspected
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._logged)
        page.on("dialog", lambda dialog: (self.errors.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("requestfinished", lambda request: self.requests.append(request.url))
        # What the policy of the page forbids never leaves the browser.
        page.on("requestfailed", lambda request: request.failure != "csp" and self.requests.append(request.url))

    def _logged(self, message: Any) -> None:
        if message.type == "error" and message.text != NO_WEBRTC:
            self.errors.append(message.text)

    def open(self) -> Tab:
        self.page.goto(self.inspected.url)
        self.page.locator(".status.connected").wait_for()
        return self

    def choose(self, name: str, kind: str = "Tools") -> None:
        """Look at something that the server offers."""
        self.page.get_by_role("tab", name=kind).click()
        self.page.locator("#search").fill(name)
        # What is shown now has a form too.
        self.page.evaluate("document.querySelector('.detail')?.setAttribute('data-old', '')")
        # In that list: the messages below name what they are about, too.
        self.page.locator("#browse").get_by_role("option", name=name).first.click()
        self.page.locator(".detail:not([data-old]) form").wait_for()

    def run(self, button: str = "Run") -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def result(self) -> Any:
        """Where the result is drawn, once it is."""
        result = self.page.locator(".outcome .result")
        result.wait_for()
        return result

    def call(self, name: str, kind: str = "Tools") -> Any:
        self.choose(name, kind)
        self.run()
        return self.result()

    def shot(self, name: str) -> None:
        self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    def fits(self) -> bool:
        """Whether nothing sticks out to the side."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens pages; the test fails when one of them logged an error that it did not expect."""
    opened: list[Tab] = []

    def open_tab(inspected: Inspected, *, connected: bool = True, **options: Any) -> Tab:
        options.setdefault("viewport", {"width": 1280, "height": 860})
        context = browser.new_context(
            accept_downloads=True, permissions=["clipboard-read", "clipboard-write"], **options
        )
        opened.append(Tab(context.new_page(), inspected))
        return opened[-1].open() if connected else opened[-1]

    yield open_tab
    for each in opened:
        each.page.context.close()
    assert [error for each in opened for error in each.errors] == []


@pytest.fixture
def server_file(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of the servers here, for tests that change it."""

    def copy(name: str) -> Path:
        return Path(shutil.copy(HERE / "servers" / f"{name}.py", tmp_path / f"{name}.py"))

    return copy
