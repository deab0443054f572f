"""A hostile server, and a hostile web page beside the inspector: nothing of theirs runs, and nothing is fetched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

HOSTILE = Path(__file__).parent / "servers" / "hostile.py"


@pytest.fixture
def attacked(inspect: Callable[..., Any], tab: Callable[..., Any]) -> Iterator[Any]:
    """A page that looks at the hostile server; at the end nothing of the server's has run in it."""
    opened = tab(inspect("inspect", HOSTILE))
    yield opened
    assert_unharmed(opened)


def assert_unharmed(tab: Any) -> None:
    assert tab.page.evaluate("window.owned") is None
    assert tab.page.evaluate("({}).polluted") is None
    assert tab.page.url.startswith(tab.inspected.origin)
    elsewhere = [url for url in tab.requests if not url.startswith((tab.inspected.origin, "data:", "blob:"))]
    assert elsewhere == []
    # Nothing that the server sent became an element that could do something.
    assert tab.page.locator("script:not([src='main.js'])").count() == 0
    assert tab.page.locator("iframe:not([sandbox=''])").count() == 0
    # What the browser says that it blocked is what should have been blocked.
    blocked = ("frame is sandboxed", "Content Security Policy", "Content-Security-Policy", "Refused to", "net::ERR_")
    tab.errors[:] = [error for error in tab.errors if not any(words in error for words in blocked)]


def test_names_and_instructions_are_text(attacked: Any) -> None:
    expect(attacked.page.locator("#top")).to_contain_text("<script>", use_inner_text=True)
    expect(attacked.page.locator(".welcome h2")).to_contain_text("<img", use_inner_text=True)
    attacked.page.locator("#browse").get_by_role("option", name="essay").first.wait_for()
    expect(attacked.page.locator(".virtual-row").first).to_contain_text("onerror", use_inner_text=True)
    icon = attacked.page.locator(".virtual-row img").first
    assert icon.get_attribute("src").startswith("data:image/svg+xml")
    attacked.shot("hostile-welcome")


def test_markdown_links_nowhere_it_should_not(attacked: Any) -> None:
    result = attacked.call("essay")
    result.locator(".markdown").wait_for()
    addresses = [link.get_attribute("href") for link in result.locator("a").all()]
    assert set(addresses) <= {
        "https://example.com/fine",
        "https://tracker.example/p.png",
        "https://tracker.example/p.png)",
    }
    assert "https://example.com/fine" in addresses
    assert result.locator("img").count() == 0
    for dead in result.locator(".dead-link").all():
        dead.click()
    attacked.shot("hostile-markdown")


def test_pictures_run_nothing(attacked: Any) -> None:
    result = attacked.call("pictures")
    result.locator(".picture").first.wait_for()
    assert all(
        src.startswith("data:image/svg+xml;base64,")
        for src in result.locator("img").evaluate_all("all => all.map(i => i.getAttribute('src'))")
    )


def test_resource_links_are_not_opened(attacked: Any) -> None:
    result = attacked.call("links")
    assert result.locator("a").count() == 0
    expect(result).to_contain_text("javascript:", use_inner_text=True)


@pytest.mark.parametrize("kind", ["Tools", "Resources"])
def test_a_web_page_stays_in_its_frame(attacked: Any, kind: str) -> None:
    if kind == "Tools":
        attacked.call("pages")
    else:
        attacked.choose("home", "Resources")
        attacked.result()
    assert attacked.page.locator("iframe").count() == 0
    attacked.page.get_by_role("radio", name="Page").click()
    frame = attacked.page.frame_locator("iframe.page")
    frame.locator("h1", has_text="Hello").wait_for()
    expect(attacked.page.locator("iframe.page")).to_have_attribute("sandbox", "")
    attacked.shot(f"hostile-page-{kind.lower()}")


def test_unknown_content_trees_and_errors_are_text(attacked: Any) -> None:
    expect(attacked.call("strange")).to_contain_text("<script>", use_inner_text=True)
    expect(attacked.call("tree")).to_contain_text("<script>", use_inner_text=True)
    attacked.choose("ask", "Prompts")
    attacked.page.locator(".detail .field textarea").first.fill("x")
    attacked.run("Get")
    assert attacked.result().locator(".message .role").inner_text().startswith("<img src=x")


def test_a_schema_that_contains_itself_makes_a_form(attacked: Any) -> None:
    attacked.choose("recursive")
    page = attacked.page
    page.get_by_role("button", name="Add whole").click()
    page.get_by_role("button", name="Add whole").last.click()
    attacked.shot("hostile-recursive")
    assert page.locator("textarea, input, select").count() < 2_000
    page.get_by_role("radio", name="JSON").first.click()
    page.get_by_label("Arguments as JSON").fill('{"tree": {"next": {}}, "circle": 1}')
    attacked.run()
    expect(attacked.result()).to_contain_text("called", use_inner_text=True)


def test_fifty_megabytes_leave_the_page_usable(attacked: Any) -> None:
    result = attacked.call("flood")
    result.get_by_text("This is the first part of 52.4 MB.").wait_for()
    assert len(attacked.page.content()) < 3_000_000
    with attacked.page.expect_download() as download:
        result.get_by_role("button", name="Save all of it").click()
    assert Path(download.value.path()).stat().st_size == 50 * 1024 * 1024
    attacked.page.get_by_label("Filter the messages by text").fill("tools/call")
    attacked.page.locator(".wire-row", has_text="52.4 MB").click()
    attacked.page.locator(".side", has_text="first part of 52.4 MB").wait_for()
    attacked.shot("hostile-flood")
    attacked.call("links")


def test_ten_thousand_tools_are_found_at_once(attacked: Any) -> None:
    page = attacked.page
    expect(page.locator("#tab-tools .count")).to_have_text("10,000", use_inner_text=True)
    assert page.locator("#browse .virtual-row").count() < 100
    attacked.choose("crowd_09990")
    expect(page.locator(".detail h2")).to_have_text("crowd_09990", use_inner_text=True)
    page.locator("#search").fill("")
    page.locator("#browse .virtual").press("End")
    page.locator("#browse").get_by_role("option", name="crowd_09990").wait_for()


def test_text_made_to_be_slow_is_not(attacked: Any) -> None:
    result = attacked.call("slowtext")
    result.locator(".view").wait_for()
    # Drawn within the patience of every wait here, and the page goes on.
    attacked.choose("links")


def test_names_that_are_saved_exported_and_copied_stay_text(attacked: Any) -> None:
    page = attacked.page
    attacked.choose("links")
    page.locator("summary", has_text="Saved requests").click()
    page.get_by_label("Save this request as").fill("<img src=x onerror=window.owned=1>")
    page.keyboard.press("Enter")
    page.locator(".saved-list button", has_text="<img").wait_for()
    page.locator("#drawer-saved").click()
    page.locator("#drawer .virtual-row", has_text="<img").click()
    page.locator(".side strong", has_text="<img").wait_for()
    page.get_by_role("button", name="Open", exact=True).click()
    attacked.run()
    attacked.result()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the session as a file").click()
    assert b"<script>" in Path(download.value.path()).read_bytes()
    page.get_by_label("Settings of this client").click()
    page.get_by_role("button", name="Copy the entry").click()
    page.locator("dialog .toast", has_text="Entry copied").wait_for()
    assert '"hostile"' in page.evaluate("navigator.clipboard.readText()")


# --- another page ---


class Evil:
    """A web page of somebody else's, on another port of this machine."""

    def __init__(self, target: str) -> None:
        self.target = target
        pages = {
            "/frame": f"<iframe id=f src='{target}/'></iframe>",
            "/form": f"<form id=f method=post action='{target}/api/state'><input name=a></form>",
            "/blank": "<p>nothing</p>",
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def evil(inspect: Callable[..., Any], tab: Callable[..., Any]) -> Iterator[tuple[Any, Evil]]:
    opened = tab(inspect("inspect", HOSTILE))
    page = Evil(opened.inspected.origin)
    yield opened, page
    opened.page.close()
    opened.errors.clear()  # The browser logs all that it refused.
    page.close()


def test_another_page_cannot_frame_it(evil: tuple[Any, Evil]) -> None:
    tab, page = evil
    tab.page.goto(f"{page.url}/frame")
    tab.page.wait_for_timeout(500)
    frame = tab.page.frames[1]
    assert frame.url.startswith("chrome-error://")


def test_another_page_learns_nothing_by_fetching(evil: tuple[Any, Evil]) -> None:
    tab, page = evil
    tab.page.goto(f"{page.url}/blank")
    fetch = """async ([target, token, mode]) => {
        try {
            const options = {method: "POST", mode, body: "{}", headers: {}};
            if (mode === "cors") options.headers["X-Toolwire-Token"] = token;
            const answer = await fetch(target + "/api/state", options);
            return answer.status + await answer.text();
        } catch (error) { return "failed"; }
    }"""
    token = tab.inspected.url.partition("#token=")[2]
    assert tab.page.evaluate(fetch, [tab.inspected.origin, token, "cors"]) == "failed"
    assert tab.page.evaluate(fetch, [tab.inspected.origin, token, "no-cors"]) == "failed"


def test_another_page_cannot_post_a_form(evil: tuple[Any, Evil]) -> None:
    tab, page = evil
    tab.page.goto(f"{page.url}/form")
    with tab.page.expect_response("**/api/state") as response:
        tab.page.evaluate("document.getElementById('f').submit()")
    assert response.value.status == 403


def test_a_name_rebound_to_this_machine_gets_nothing(evil: tuple[Any, Evil]) -> None:
    tab, _ = evil
    port = tab.inspected.origin.rpartition(":")[2]
    response = tab.page.goto(f"http://evil.example:{port}/")
    assert response.status == 421
    assert tab.page.evaluate("fetch('/api/state', {method: 'POST'}).then(answer => answer.status)") == 421
