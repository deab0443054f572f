"""Ready views in a real browser: keyboard, screen readers, themes, many rows, none, and texts that mean harm.

Each view runs in a frame without an origin, under the default policy of hosts.
"""

from __future__ import annotations

import base64
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import ARTEFACTS, Tab
from tests.browser.servers import views as shown
from tests.browser.view_host import OWN_LOOK, Host

from toolwire import Server
from toolwire.apps import Page
from toolwire.testing.browser_views import find_axe

Show = Callable[..., Host]

ROOT = Path(__file__).parents[2]
#: Every view with data, with the arguments of its tool.
VIEWS = [
    ("rows", {"count": 45}),
    ("columned", {}),
    ("numbers", {}),
    ("new_ticket", {}),
    ("propose", {}),
    ("picture", {"width": 1200}),
    ("pictures", {}),
    ("document", {}),
]
EMPTY = [
    ("rows", {"count": 0}, "Nobody has ordered anything."),
    ("numbers", {"count": 0}, "There are no numbers."),
    ("look", {"count": -1}, "Nothing is changed."),
    ("no_picture", {}, "There is no image."),
    ("document", {"kind": "empty"}, "There is no text."),
]


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """Shows results of tools in their views; the test fails when one of them logged an error."""
    hosts: list[Host] = []

    def open_view(
        tool: str, arguments: dict[str, Any] | None = None, server: Server = shown.server, **options: Any
    ) -> Host:
        host = Host(browser, server, tool, arguments or {}, **options)
        hosts.append(host)
        if not host.is_silent:
            host.view.locator("main:not([aria-busy])").wait_for()
        return host

    yield open_view
    for each in hosts:
        each.close()
    assert [error for each in hosts for error in each.errors] == []


def fits(host: Host) -> bool:
    """Whether nothing sticks out to the side."""
    return bool(host.frame.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def focused(host: Host) -> str:
    """The name or the text of what has the focus."""
    name = "(e) => e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText"
    return str(host.frame.evaluate(f"({name})(document.activeElement)"))


def tab_to(host: Host, name: str) -> None:
    """Press Tab until something of this name has the focus."""
    for _ in range(60):
        host.page.keyboard.press("Tab")
        if focused(host).startswith(name):
            return
    raise AssertionError(f"the keyboard never reaches {name!r}")


# --- everybody can use them ---


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("tool", "arguments"), VIEWS, ids=lambda value: value if isinstance(value, str) else "")
def test_axe_finds_nothing(show: Show, tool: str, arguments: dict[str, Any], theme: str) -> None:
    width = 420 if theme == "dark" else 900
    host = show(tool, arguments, width=width, height=1000, context={"theme": theme})
    for details in host.view.locator("details").all():
        details.evaluate("(details) => { details.open = true; }")
    host.frame.evaluate(find_axe().read_text(encoding="utf-8"))
    found = host.frame.evaluate("() => axe.run(document, { resultTypes: ['violations'], iframes: false })")
    told = [
        (each["id"], [(node["target"], node["failureSummary"]) for node in each["nodes"]])
        for each in found["violations"]
    ]
    assert told == []
    assert fits(host)
    host.shot(ARTEFACTS / f"ready-{tool}-{theme}.png")


def test_a_table_by_keyboard(show: Show) -> None:
    host = show("rows", {"count": 45})
    keyboard, view = host.page.keyboard, host.view
    host.view.locator("input").focus()
    keyboard.type("Name 1")
    expect(view.get_by_role("status")).to_contain_text("of 45 rows")
    keyboard.press("Control+A")
    keyboard.press("Delete")
    expect(view.get_by_role("status")).to_have_text("45 rows")
    tab_to(host, "Amount")
    keyboard.press("Enter")
    header = view.get_by_role("columnheader", name="Amount")
    expect(header).to_have_attribute("aria-sort", "ascending")
    keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(view.get_by_role("status")).to_have_text("Sorted by Amount, descending")
    expect(view.get_by_role("row").nth(1)).to_contain_text("66")
    tab_to(host, "Next")
    keyboard.press("Space")
    keyboard.press("Space")
    # Rows without a value are last, also in the other direction.
    expect(view.get_by_role("row").last).to_contain_text("43")
    expect(view.get_by_role("navigation")).to_contain_text("41–45 of 45")
    keyboard.press("Space")
    assert focused(host) == "Next"


def test_a_form_by_keyboard(show: Show) -> None:
    shown.SAVED.clear()
    host = show("new_ticket", {"subject": "Tea"}, height=1400)
    keyboard, view = host.page.keyboard, host.view
    expect(view.get_by_label("Subject")).to_have_value("Tea")
    view.get_by_label("Subject").focus()
    keyboard.press("Control+A")
    keyboard.type("no")
    keyboard.press("Enter")
    # Both faults are told beside their fields, and the first one has the focus.
    assert focused(host) == "Subject"
    expect(view.get_by_label("Subject")).to_have_attribute("aria-invalid", "true")
    expect(view.get_by_label("Urgency")).to_have_attribute("aria-invalid", "true")
    assert host.asked == []
    keyboard.press("Control+A")
    keyboard.type("now")
    keyboard.press("Tab")
    keyboard.press("ArrowDown")
    tab_to(host, "green")
    keyboard.press("Space")
    tab_to(host, "Words")
    keyboard.type("one\ntwo")
    tab_to(host, "Address")
    keyboard.press("Space")
    tab_to(host, "Street")
    keyboard.type("Main Street 1")
    tab_to(host, "Create")
    keyboard.press("Enter")
    expect(view.get_by_role("status")).to_have_text("Ticket 1 is saved.")
    (saved,) = shown.SAVED
    assert (saved.subject, saved.urgency.value, saved.colours, saved.words) == ("now", "low", ["green"], ["one", "two"])
    assert saved.address == shown.Address("Main Street 1", "Oslo")
    assert host.asked[-1]["method"] == "ui/update-model-context"


def test_a_form_tells_what_the_server_says(show: Show) -> None:
    host = show("new_ticket", {"subject": "no."}, height=1400)
    view = host.view
    view.get_by_label("Urgency").select_option("high")
    view.get_by_label("Extra").fill("{")
    view.get_by_role("button", name="Create").click()
    expect(view.get_by_text("This is no JSON.")).to_be_visible()
    view.get_by_label("Extra").fill('{"a": "b"}')
    view.get_by_role("button", name="Create").click()
    expect(view.get_by_role("alert")).to_contain_text("extra")
    expect(view.get_by_role("button", name="Create")).to_be_enabled()
    view.get_by_label("Extra").fill('{"a": 1}')
    view.get_by_label("Subject").fill("xyz")
    view.get_by_role("button", name="Create").click()
    expect(view.get_by_role("alert")).to_have_count(0)
    expect(view.get_by_role("button", name="Create")).to_have_count(0)


@pytest.mark.parametrize(("button", "tool"), [("Approve", "apply"), ("Reject", "drop")])
def test_a_change_is_decided_by_keyboard(show: Show, button: str, tool: str) -> None:
    shown.DECIDED.clear()
    host = show("propose", height=1400)
    tab_to(host, "Comment")
    host.page.keyboard.type("as agreed")
    tab_to(host, button)
    host.page.keyboard.press("Enter")
    expect(host.view.get_by_role("status")).to_contain_text("The file")
    expect(host.view.get_by_role("button", name=button)).to_have_count(0)
    assert [(tool, 30, "as agreed")] == shown.DECIDED
    told = host.asked[-1]
    assert told["method"] == "ui/update-model-context"
    assert "by the user: notes.txt" in told["params"]["content"][0]["text"]


def test_a_decision_that_fails_can_be_made_again(show: Show) -> None:
    shown.DECIDED.clear()
    host = show("propose")
    host.view.get_by_label("Comment").fill("no")
    host.view.get_by_role("button", name="Approve").click()
    expect(host.view.get_by_role("alert")).to_have_text("Somebody else has changed the file.")
    host.fails = "The user does not allow it."
    host.view.get_by_label("Comment").fill("")
    host.view.get_by_role("button", name="Approve").click()
    expect(host.view.get_by_role("alert")).to_have_text("The user does not allow it.")
    host.fails = None
    host.view.get_by_role("button", name="Reject").click()
    expect(host.view.get_by_text("Rejected. The file stays.").first).to_be_visible()
    assert shown.DECIDED == [("drop", 30, "")]


def test_a_change_without_tools_has_no_buttons(show: Show) -> None:
    host = show("look")
    expect(host.view.get_by_role("row").last).to_contain_text("Added: b")
    expect(host.view.get_by_role("button")).to_have_count(0)


def test_no_character_of_a_change_is_hidden(show: Show) -> None:
    host = show("hidden")
    rows = host.view.get_by_role("row")
    expect(rows.nth(1)).to_contain_text("Removed: same")
    expect(rows.nth(2)).to_contain_text("# safeU+2028run()")
    expect(rows.nth(3)).to_contain_text("No newline at the end")
    expect(rows.nth(4)).to_contain_text("sameU+000D")
    expect(rows.nth(5)).to_contain_text("# U+202Esafe")
    expect(host.view.locator(".name")).to_contain_text("U+202Etxt.exe")


def test_unseen_characters_of_a_change_are_shown_by_number(show: Show) -> None:
    host = show("unseen")
    rows = host.view.locator("tr.added")
    for character in shown.UNSEEN:
        expect(rows.filter(has_text=f"adU+{ord(character):04X}min")).to_have_count(1)


# --- many rows, and none ---


def test_ten_thousand_rows(show: Show) -> None:
    host = show("rows")
    view = host.view
    expect(view.get_by_text("10,000 rows")).to_be_visible()
    expect(view.locator("tbody tr")).to_have_count(20)
    assert host.frame.evaluate("document.querySelectorAll('*').length") < 250
    view.get_by_role("button", name="Name").click()
    expect(view.get_by_role("row").nth(1)).to_contain_text("Name 0")
    expect(view.locator("tbody tr")).to_have_count(20)
    view.get_by_role("searchbox").fill("name 9999")
    expect(view.locator("tbody tr")).to_have_count(1)
    view.get_by_role("searchbox").fill("nobody")
    expect(view.get_by_text("No row has this text.")).to_be_visible()


def test_ten_thousand_numbers(show: Show) -> None:
    for kind in ("bar", "line"):
        host = show("numbers", {"count": 10_000, "kind": kind}, height=1000)
        assert host.frame.evaluate("document.querySelectorAll('.wide *').length") < 200
        host.view.get_by_text("Numbers as a table").click()
        expect(host.view.get_by_text("10,000 rows")).to_be_visible()
        expect(host.view.locator("tbody tr")).to_have_count(20)


def test_ten_thousand_lines(show: Show) -> None:
    host = show("propose", {"count": 10_000}, height=1000)
    more = host.view.get_by_role("button", name="not shown yet")
    expect(more).to_contain_text("lines are not shown yet")
    expect(host.view.locator(".diff tr")).to_have_count(400)
    sizes = len(host.page.evaluate("window.sizes"))
    for shown_lines in range(800, 400 * 30, 400):
        if not more.is_visible():
            break
        more.dispatch_event("click")  # A click by place can miss a button that the growing frame moves.
        expect(host.view.locator(".diff tr")).to_have_count(min(shown_lines, 10_000 + 1429 + 1))
    # The frame follows each time.
    height = host.frame.evaluate("document.documentElement.getBoundingClientRect().height")
    expect(host.page.locator("#view")).to_have_css("height", f"{math.ceil(height)}px")
    assert len(host.page.evaluate("window.sizes")) > sizes


def test_a_long_document(show: Show) -> None:
    host = show("document", {"kind": "long"}, height=1000)
    expect(host.view.get_by_role("heading", name="Part 4999")).to_be_attached()


@pytest.mark.parametrize(("tool", "arguments", "text"), EMPTY, ids=[name for name, *_ in EMPTY])
def test_no_data_is_said_to_be_none(show: Show, tool: str, arguments: dict[str, Any], text: str) -> None:
    if tool == "look":
        host = show(tool, result={"content": [], "structuredContent": {"hunks": []}})
    else:
        host = show(tool, arguments)
    expect(host.view.locator(".notice.empty")).to_have_text(text)


def test_a_failure_of_the_tool_is_shown(show: Show) -> None:
    host = show("failing_rows")
    expect(host.view.get_by_role("alert")).to_have_text("The archive is closed on Sundays.")


def test_waiting_and_cancelling(show: Show) -> None:
    host = show("rows", silent=True)
    expect(host.view.get_by_role("status")).to_have_text("Waiting for data…")
    host.page.evaluate("notify('tool-cancelled', { reason: 'the user said so' })")
    expect(host.view.get_by_text("The call was cancelled: the user said so")).to_be_visible()


@pytest.mark.parametrize(
    ("tool", "result", "text"),
    [
        ("rows", {"content": [{"type": "text", "text": "| a |\n| --- |"}]}, "| a |"),
        ("numbers", {"content": [{"type": "text", "text": "1, 2"}]}, "1, 2"),
        ("propose", {"content": [{"type": "text", "text": "+++ a"}]}, "+++ a"),
        ("rows", {"content": []}, "Nobody has ordered anything."),
        ("rows", {}, "Nobody has ordered anything."),
        ("document", {}, "There is no text."),
        ("picture", {"content": [{"type": "image", "mimeType": "text/html", "data": "x"}]}, "There is no image."),
        ("rows", {"isError": True}, "The tool failed and did not say why."),
        ("numbers", {"structuredContent": {"series": {"a": 7}, "labels": ["x"]}, "content": []}, "Numbers as a table"),
    ],
)
def test_results_without_data_are_shown_as_they_are(show: Show, tool: str, result: Any, text: str) -> None:
    host = show(tool, result=result)
    expect(host.view.locator("main")).to_contain_text(text)


def test_a_chart_without_its_drawing_is_a_table(show: Show) -> None:
    host = show("numbers", result={"content": [], "structuredContent": {"labels": ["x"], "series": {"n": [1.5]}}})
    expect(host.view.get_by_role("cell", name="1.5")).to_be_visible()
    expect(host.view.locator("svg")).to_have_count(0)


def test_a_drawing_of_somebody_else_is_left_out(show: Show) -> None:
    evil = (
        '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script><foreignObject/>'
        '<a href="javascript:alert(1)"><text>x</text></a><image href="https://evil.example/x.png"/>'
        '<rect class="bar s0" style="fill:url(https://evil.example/)" onclick="alert(1)" width="5" height="5"/></svg>'
    )
    data = {"labels": ["x"], "series": {"n": [1]}}
    drawn = {"io.toolwire/chart": {"wide": evil, "narrow": "<html xmlns='http://www.w3.org/1999/xhtml'/>"}}
    host = show("numbers", result={"content": [], "structuredContent": data, "_meta": drawn})
    inside = "[...document.querySelectorAll('svg *')].map((e) => [e.localName, e.getAttributeNames().sort().join()])"
    assert host.frame.evaluate(inside) == [["rect", "class,height,width"]]


# --- texts that mean harm ---


@pytest.mark.parametrize("width", [420, 900])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("hostile_rows", {}), ("hostile_numbers", {}), ("hostile_change", {}), ("document", {"kind": "hostile"})],
    ids=["table", "chart", "diff", "markdown"],
)
def test_hostile_texts_stay_texts(show: Show, tool: str, arguments: dict[str, Any], width: int) -> None:
    requests: list[str] = []
    host = show(tool, arguments, width=width, height=1200)
    host.page.on("request", lambda request: requests.append(request.url))
    host.page.on("dialog", lambda dialog: (requests.append(dialog.message), dialog.dismiss()))
    for details in host.view.locator("details").all():
        details.evaluate("(details) => { details.open = true; }")
    assert (
        host.frame.evaluate("document.querySelectorAll('img, iframe, object, embed, base, link, [onerror]').length")
        == 0
    )
    assert host.frame.evaluate("document.querySelectorAll('script').length") == 3
    assert host.frame.evaluate("document.querySelectorAll('style').length") == 1
    expect(host.view.locator("main")).to_contain_text("<img src=x onerror=alert(1)>")
    dead = "[...document.links].every((each) => /^https?:$/.test(each.protocol))"
    assert host.frame.evaluate(dead) is True
    assert fits(host)
    assert requests == []


def test_long_texts_are_cut_and_can_be_read(show: Show) -> None:
    host = show("hostile_rows", height=1200)
    cell = host.view.get_by_role("rowheader", name="xxxxx")
    expect(cell).to_contain_text("x" * 300 + "…")
    cell.get_by_role("button", name="Show all").click()
    expect(cell).to_contain_text("x" * 5000)


def test_links_are_opened_by_the_host(show: Show) -> None:
    host = show("columned")
    expect(host.view.get_by_role("link")).to_have_count(1)
    host.view.get_by_role("link").click()
    assert host.asked == [{"method": "ui/open-link", "params": {"url": "https://tea.example/a"}}]
    document = show("document")
    document.view.get_by_role("link", name="a link").click()
    assert document.asked == [{"method": "ui/open-link", "params": {"url": "https://tea.example/a"}}]


# --- the host's look, language and names ---


def test_the_theme_of_the_host(show: Show) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    host = show("rows", {"count": 3}, context={"theme": "dark"})
    assert host.frame.evaluate(colour) == "rgb(28, 28, 31)"
    host.page.evaluate("notify('host-context-changed', { theme: 'light' })")
    expect(host.view.locator("html")).to_have_attribute("data-theme", "light")
    assert host.frame.evaluate(colour) == "rgb(255, 255, 255)"
    for theme, expected in (("light", "rgb(255, 250, 240)"), ("dark", "rgb(16, 35, 28)")):
        own = show("rows", {"count": 3}, context={"theme": theme, "styles": {"variables": OWN_LOOK}})
        assert own.frame.evaluate(colour) == expected
        assert own.frame.evaluate("getComputedStyle(document.querySelector('.box')).borderRadius") == "12px"


def test_the_language_of_the_host(show: Show) -> None:
    host = show("columned", context={"locale": "de-DE"})
    expect(host.view.get_by_role("row").nth(1)).to_contain_text("1.234,50")
    expect(host.view.get_by_role("row").nth(1)).to_contain_text("25 %")
    expect(host.view.get_by_role("row").nth(2)).to_contain_text("free")
    host.page.evaluate("notify('host-context-changed', { locale: 'en-GB' })")
    expect(host.view.get_by_role("row").nth(1)).to_contain_text("1,234.50")
    expect(host.view.get_by_role("row").nth(1)).to_contain_text("1 May 2026")
    wrong = show("columned", context={"locale": "no such locale", "timeZone": "Nowhere"})
    expect(wrong.view.get_by_role("row").nth(1)).to_contain_text("Tea")


def test_tools_of_a_mounted_server_are_called_by_their_prefix(show: Show) -> None:
    shown.DECIDED.clear()
    front = Server("front").mount(shown.server, "shop")
    host = show("shop_propose", server=front)
    host.view.get_by_role("button", name="Approve").click()
    expect(host.view.get_by_role("status")).to_contain_text("The file is written.")
    assert host.asked[0]["params"]["name"] == "shop_apply"
    assert shown.DECIDED == [("apply", 30, "")]


def test_an_image_in_its_actual_size_and_as_a_file(show: Show) -> None:
    host = show("picture", {"width": 1200}, width=600)
    size = host.view.get_by_role("button", name="Actual size")
    size.click()
    expect(size).to_have_attribute("aria-pressed", "true")
    assert host.frame.evaluate("document.querySelector('img').getBoundingClientRect().width") == 1200
    assert fits(host)
    # By keyboard: the host may still move the button, because the image got larger.
    host.view.get_by_role("button", name="Download").press("Enter")
    expect(host.view.get_by_role("status")).to_have_text("The image is saved.")
    assert host.asked[0]["method"] == "ui/download-file"
    small = show("picture", {"width": 100}, capabilities={})
    expect(small.view.get_by_role("button")).to_have_count(0)


# --- pages that are written by hand ---


def test_a_page_by_hand_uses_the_view_library(show: Show) -> None:
    html = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Hand</title></head><body>
    <main><h1>Hand</h1><p id="data"></p><p id="kept"></p></main>
    <script src="toolwire-view.js"></script>
    <script>
    toolwire.on("result", (result) => { document.getElementById("data").textContent = toolwire.data(result).n; });
    toolwire.storage.setItem("a", 1);
    document.getElementById("kept").textContent = toolwire.storage.getItem("a") + typeof toolwire.storage.getItem("b");
    </script></body></html>"""
    server = Server("hand")

    @server.tool(app=server.app(Page("hand.html", html)))
    def number() -> dict[str, int]:
        return {"n": 42}

    host = show("number", server=server)
    expect(host.view.locator("#data")).to_have_text("42")
    # A frame without an origin has no localStorage, and the library keeps values in memory.
    expect(host.view.locator("#kept")).to_have_text("1object")


def test_the_template_of_an_app_passes_in_a_browser(tmp_path: Path) -> None:
    for arguments in (["toolwire", "new", "demo", "--template", "app"], ["pytest", "-q", "-p", "no:asyncio"]):
        folder = tmp_path / "demo" if arguments[0] == "pytest" else tmp_path
        done = subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


# --- the example ---


@pytest.fixture(scope="module")
def dashboard() -> Server:
    specification = importlib.util.spec_from_file_location("dashboard", ROOT / "examples" / "dashboard.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["dashboard"] = module
    specification.loader.exec_module(module)
    server: Server = module.server
    return server


def test_the_dashboard_in_the_inspector(inspect: Callable[..., Any], tab: Callable[..., Tab]) -> None:
    page = tab(inspect("inspect", ROOT / "examples" / "dashboard.py"))
    for tool, heading in (("show_orders", "Orders"), ("chart_sales", "Sales by month")):
        view = view_in_inspector(page, tool)
        expect(view.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page.page.locator(".app-findings")).to_have_text("Nothing was blocked or refused, and no script failed.")
        page.shot(f"inspector-{tool}")


def view_in_inspector(page: Tab, tool: str) -> Any:
    page.choose(tool)
    page.run()
    page.page.locator(".app-state").wait_for()
    return page.page.frame_locator(".app iframe").frame_locator("iframe")


SIDE_BY_SIDE = """<!doctype html><body style="margin: 0; padding: 16px; width: fit-content; background: {paper}">
<div style="display: grid; grid-auto-flow: column; grid-template-rows: {rows}; gap: 16px;
justify-content: start; align-items: start">{images}</div>"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 640])
def test_the_dashboard(browser: Any, dashboard: Server, show: Show, width: int, theme: str) -> None:
    """Its three views, in one picture: that of the guide."""
    images = []
    for tool in ("show_orders", "chart_sales", "propose_prices"):
        arguments = {"percent": 5, "tea": "Oolong"} if tool == "propose_prices" else {}
        host = show(tool, arguments, server=dashboard, width=width, height=1000, context={"theme": theme})
        expect(host.view.get_by_role("heading", level=1)).to_be_visible()
        assert fits(host)
        place = "grid-row: 1 / -1" if tool == "show_orders" else ""
        data = base64.b64encode(host.shot()).decode()
        images.append(f'<img src="data:image/png;base64,{data}" style="{place}; border-radius: 8px">')
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    paper, rows = ("#e8e6e1" if theme == "light" else "#000"), ("auto 1fr" if width > 500 else "auto")
    page.set_content(SIDE_BY_SIDE.format(paper=paper, rows=rows, images="".join(images)))
    page.locator("body").screenshot(path=ARTEFACTS / f"dashboard-{theme}-{width}.png")
    page.close()
