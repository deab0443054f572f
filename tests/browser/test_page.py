"""What a person does with the page, on both eras, light and dark, at desktop and at phone width."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

HERE = Path(__file__).parent
FRIENDLY = HERE / "servers" / "friendly.py"
LEGACY, MODERN = "2025-11-25", "2026-07-28"
both_eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


@pytest.fixture
def friendly(inspect: Callable[..., Any], tab: Callable[..., Any]) -> Callable[..., Any]:
    """A page that looks at the friendly server."""

    def open_page(revision: str = MODERN, **options: Any) -> Any:
        return tab(inspect("inspect", FRIENDLY, "--revision", revision), **options)

    return open_page


def arguments_of(result: Any) -> Any:
    result.get_by_role("radio", name="Text").first.click()
    return json.loads(result.locator("pre.text").first.inner_text())


def test_the_token_leaves_the_address_and_is_remembered(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    token = tab.inspected.url.partition("#token=")[2]
    assert "token" not in tab.page.url
    assert not any(token in url for url in tab.requests)
    tab.page.reload()
    tab.page.locator(".status.connected").wait_for()


def test_without_the_token_the_page_says_what_to_do(inspect: Callable[..., Any], tab: Callable[..., Any]) -> None:
    opened = tab(inspect("inspect", FRIENDLY), connected=False)
    opened.page.goto(opened.inspected.origin)
    opened.page.get_by_text("Open the address that the inspector printed").wait_for()
    opened.shot("no-token")
    said = opened.page.locator("body").inner_text()
    assert "no token" in said
    assert "Connecting" not in said and "inspector ended" not in said and "Asking" not in said
    opened.errors.clear()  # The browser logs every refusal.


@both_eras
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_the_server(friendly: Callable[..., Any], revision: str, scheme: str) -> None:
    tab = friendly(revision, color_scheme=scheme)
    expect(tab.page.locator("#top")).to_contain_text("Studio", use_inner_text=True)
    expect(tab.page.locator("#top select")).to_have_value(revision)
    expect(tab.page.locator(".instructions strong")).to_have_text("echo", use_inner_text=True)
    tab.shot(f"welcome-{revision}-{scheme}")
    tab.choose("order")
    tab.shot(f"form-{revision}-{scheme}")
    luminance = tab.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (luminance < 60) == (scheme == "dark")


@both_eras
def test_a_nested_form_sends_what_was_filled_in(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    page = tab.page
    tab.choose("order")
    page.get_by_label("customer").fill("Ada")
    page.get_by_role("group", name="items").get_by_role("button", name="Add an item").click()
    page.get_by_label("sku").fill("pen")
    page.get_by_role("group", name="tags").get_by_role("button", name="Add an item").click()
    page.get_by_role("group", name="tags").locator("textarea").fill("blue")
    page.get_by_label("street").fill("Main 1")
    page.get_by_label("country").select_option("SE")
    page.get_by_role("switch", name="express").check()
    page.get_by_role("button", name="Add note").click()
    page.get_by_label("Which kind of value").select_option(label="2. text")
    page.get_by_role("group", name="note").locator("textarea").fill("ring twice")
    page.get_by_role("checkbox", name="red").check()
    page.get_by_role("checkbox", name="blue").check()
    page.get_by_role("button", name="Add labels").click()
    page.get_by_role("button", name="Add a member").click()
    page.get_by_label("Name of the member").fill("floor")
    page.get_by_role("group", name="labels").locator("textarea").fill("third")
    tab.shot(f"form-filled-{revision}")
    tab.run()
    assert arguments_of(tab.result()) == {
        "customer": "Ada",
        "items": [{"sku": "pen", "amount": 1, "tags": ["blue"]}],
        "address": {"street": "Main 1", "country": "SE"},
        "express": True,
        "gift": "paper",
        "note": "ring twice",
        "colours": ["red", "blue"],
        "labels": {"floor": "third"},
    }


def test_a_number_that_is_none_is_not_sent(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    tab.choose("order")
    tab.page.get_by_role("group", name="items").get_by_role("button", name="Add an item").click()
    tab.page.get_by_label("amount").fill("many")
    tab.run()
    problem = tab.page.get_by_role("alert").get_by_text("many is not a number")
    problem.wait_for()
    amount = tab.page.get_by_label("amount")
    expect(amount).to_have_attribute("aria-invalid", "true")
    # Right below its field, which has the focus, and gone as soon as that is changed.
    assert problem.evaluate("note => note.previousElementSibling === document.activeElement")
    assert amount.get_attribute("aria-errormessage") == problem.get_attribute("id")
    tab.shot("form-problem")
    expect(tab.page.locator("#drawer-calls .count")).to_have_text("0", use_inner_text=True)
    amount.fill("2")
    problem.wait_for(state="detached")


# What happens all the time while somebody presses something: the server is described anew, a tool is added before the
# others, messages arrive.
HAPPENINGS = """async () => {
    const { apply, state } = await import("/store.js");
    const catalogue = structuredClone(state.catalogue);
    catalogue.tools.items.unshift({ key: "aardvark", name: "aardvark", hints: [] });
    apply({ type: "connection", connection: structuredClone(state.connection) });
    apply({ type: "catalogue", catalogue });
    const last = state.messages.at(-1);
    for (let number = 1; number <= 40; number += 1)
        apply({ type: "message", message: { ...last, number: last.number + number, method: "later" } });
    for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
}"""


@pytest.mark.parametrize(
    ("pressed", "opened"),
    [
        ("#browse .virtual-row:has-text('twice')", ".detail h2:text-is('twice')"),
        ("#tab-prompts", "#tab-prompts[aria-selected=true]"),
        ("#drawer-notes", "#drawer-notes[aria-selected=true]"),
        ("#drawer .virtual-row:has-text('resources/list') >> nth=0", ".side-head:has-text('resources/list')"),
        ("#top .server", ".welcome h2:text-is('Studio')"),
        ("button:text-is('Look at prompts')", "#tab-prompts[aria-selected=true]"),
    ],
)
def test_a_press_opens_what_was_pressed_whatever_happens_meanwhile(
    friendly: Callable[..., Any], pressed: str, opened: str
) -> None:
    tab = friendly()
    page = tab.page
    if "server" in pressed:
        tab.choose("twice")
    if "Look" in pressed:
        page.locator("#search").fill("brief")
    page.locator(pressed).hover()
    page.mouse.down()
    page.evaluate(HAPPENINGS)
    page.mouse.up()
    page.locator(opened).wait_for()


def test_a_row_knows_its_item_and_stays_the_same_element(friendly: Callable[..., Any]) -> None:
    page = friendly().page
    row = page.locator("#browse .virtual-row", has_text="twice")
    row.wait_for()
    # The tab has changed, and its rows are not drawn yet.
    row.evaluate("row => { document.getElementById('tab-prompts').click(); row.click(); }")
    page.locator(".detail h2", has_text="twice").wait_for()
    # A tool that comes before the others adds its row, and moves none of theirs.
    moved = page.evaluate(
        f"""async () => {{
            const space = document.querySelector("#browse .space");
            // A busy machine may still draw the rows of the tab that was chosen last.
            const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            for (let count = -1; count !== space.children.length; await frames()) count = space.children.length;
            const before = [...space.children];
            const changes = [];
            new MutationObserver((records) => changes.push(...records)).observe(space, {{ childList: true }});
            await ({HAPPENINGS})();
            return [changes.length, before.filter((row) => !row.isConnected).length];
        }}"""
    )
    assert moved == [1, 0]


def test_what_was_typed_is_there_when_one_comes_back(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    tab.choose("order")
    tab.page.get_by_label("customer").fill("Ada")
    tab.page.get_by_role("group", name="items").get_by_role("button", name="Add an item").click()
    tab.page.get_by_label("amount").fill("many")
    tab.choose("brief", "Prompts")
    tab.page.get_by_label("city").fill("Oslo")
    tab.choose("order")
    expect(tab.page.get_by_label("customer")).to_have_value("Ada")
    expect(tab.page.get_by_label("amount")).to_have_value("many")
    tab.choose("brief", "Prompts")
    expect(tab.page.get_by_label("city")).to_have_value("Oslo")


@both_eras
def test_an_old_call_is_shown_with_what_was_sent_and_made_again(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    page = tab.page
    tab.choose("twice")
    for value in ("1", "2"):
        page.get_by_label("value").fill(value)
        tab.run()
        page.locator(".result", has_text=f"total: {2 * int(value)}").first.wait_for()
    tab.call("forecast")
    page.locator("#drawer-calls").click()
    page.locator(".call-row", has_text="twice").first.click()
    page.locator(".detail h2", has_text="twice").wait_for()
    page.locator(".result", has_text="total: 2").first.wait_for()
    expect(page.get_by_label("value")).to_have_value("1")
    tab.shot(f"old-call-{revision}")
    page.get_by_role("button", name="Run again").click()
    page.locator("#drawer-calls .count", has_text="4").wait_for()
    page.locator(".result", has_text="total: 2").first.wait_for()


@both_eras
def test_a_request_is_saved_and_opened_another_day(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    page = tab.page
    tab.choose("twice")
    page.get_by_label("value").fill("4")
    page.locator("summary", has_text="Saved requests").click()
    page.get_by_label("Save this request as").fill("four")
    page.keyboard.press("Enter")
    page.locator(".saved-list button", has_text="four").wait_for()
    tab.choose("brief", "Prompts")
    page.get_by_label("city").fill("Oslo")
    page.locator("summary", has_text="Saved requests").click()
    page.get_by_label("Save this request as").fill("capital")
    page.get_by_role("button", name="Save", exact=True).click()
    page.locator(".saved-list button", has_text="capital").wait_for()
    tab.shot(f"saved-{revision}")
    # Another inspector of the same server, with the keyboard alone.
    again = friendly(revision).page
    again.locator("#drawer-wire").focus()
    for key in ["ArrowRight"] * 4:
        again.keyboard.press(key)
    again.locator("#drawer-saved[aria-selected=true]", has_text="2").wait_for()
    again.keyboard.press("Tab")
    again.keyboard.press("Tab")
    again.keyboard.press("Tab")
    assert again.evaluate("document.activeElement.getAttribute('aria-label')") == "Saved requests"
    again.keyboard.press("ArrowDown")
    again.keyboard.press("Enter")
    again.locator(".side", has_text="arguments").wait_for()
    again.keyboard.press("Tab")
    again.keyboard.press("Enter")
    again.locator(".detail h2", has_text="twice").wait_for()
    expect(again.get_by_label("value")).to_have_value("4")
    again.keyboard.press("Control+Enter")
    again.locator(".result", has_text="total: 8").first.wait_for()
    # What stands in the form now is replaced by what was saved, and a saved request can be removed.
    again.get_by_label("value").fill("5")
    again.locator("summary", has_text="Saved requests").click()
    again.locator(".saved-list button", has_text="four").click()
    expect(again.get_by_label("value")).to_have_value("4")
    again.locator("summary", has_text="Saved requests").click()
    again.get_by_role("button", name="Remove the saved request four").click()
    again.locator("#drawer-saved", has_text="1").wait_for()


@both_eras
def test_a_session_is_saved_as_a_file(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.choose("twice")
    tab.page.get_by_label("value").fill("21")
    tab.run()
    tab.page.locator(".result", has_text="total: 42").first.wait_for()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Save the session as a file").click()
    assert download.value.suggested_filename.startswith("toolwire-session-")
    session = json.loads(Path(download.value.path()).read_text())
    assert session["calls"][0]["params"]["arguments"] == {"value": 21}
    assert session["connection"]["revision"] == revision
    assert "tools/call" in [each["message"].get("method") for each in session["messages"]]


def test_the_entry_for_other_clients_is_copied(friendly: Callable[..., Any]) -> None:
    page = friendly().page
    page.get_by_label("Settings of this client").click()
    page.get_by_role("button", name="Copy the entry for mcpServers").click()
    page.locator("dialog .toast", has_text="Entry copied").wait_for()
    entry = json.loads(page.evaluate("navigator.clipboard.readText()"))["mcpServers"]["studio"]
    assert entry["command"] == sys.executable and entry["args"][-1] == str(FRIENDLY)


def test_a_timeout_is_set_in_the_settings(friendly: Callable[..., Any]) -> None:
    page = friendly().page
    dialog = page.locator("dialog.settings")
    page.get_by_label("Settings of this client").click()
    dialog.get_by_label("Timeout").fill("soon")
    dialog.get_by_role("button", name="Apply").click()
    dialog.get_by_text("“soon” is not a number of seconds").wait_for()
    dialog.get_by_label("Timeout").fill("7.5")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    page.locator(".status.connected").wait_for()
    page.get_by_label("Settings of this client").click()
    expect(dialog.get_by_label("Timeout")).to_have_value("7.5")


def test_ctrl_enter_runs_wherever_the_focus_is(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    tab.choose("forecast")
    tab.page.evaluate("document.activeElement.blur()")
    tab.page.keyboard.press("Control+Enter")
    expect(tab.result()).to_contain_text("Oslo", use_inner_text=True)
    tab.page.locator("#search").focus()
    tab.page.keyboard.press("Control+Enter")
    tab.page.locator("#drawer-calls .count", has_text="2").wait_for()
    # In the list of tools, which takes a plain Enter.
    for count, keys in enumerate(("Control+Enter", "Meta+Enter"), start=3):
        tab.page.locator("#browse").get_by_role("listbox").focus()
        tab.page.keyboard.press(keys)
        tab.page.locator("#drawer-calls .count", has_text=str(count)).wait_for()
    # One press is one call, also in a field of the form.
    tab.choose("twice")
    tab.page.get_by_label("value").fill("3")
    tab.page.keyboard.press("Control+Enter")
    tab.page.locator(".result", has_text="total: 6").first.wait_for()
    expect(tab.page.locator("#drawer-calls .count")).to_have_text("5", use_inner_text=True)
    # In a list of suggestions, which takes a plain Enter.
    tab.choose("brief", "Prompts")
    city = tab.page.get_by_label("city")
    city.fill("O")
    tab.page.get_by_role("option", name="Odense").wait_for()
    city.press("ArrowDown")
    city.press("Control+Enter")
    tab.page.locator(".message.user", has_text="Write about O in").wait_for()


def test_json_is_the_way_out_of_a_form(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    tab.choose("order")
    tab.page.get_by_label("customer").fill("Ada")
    tab.page.get_by_role("radio", name="JSON").click()
    raw = tab.page.get_by_label("Arguments as JSON")
    assert json.loads(raw.input_value())["customer"] == "Ada"
    raw.fill('{"customer": "Bo", "items": [], "address": {"street": "x"}, "express": false, "note": 7}')
    tab.page.get_by_role("radio", name="Form").click()
    expect(tab.page.get_by_label("customer")).to_have_value("Bo")
    tab.page.get_by_role("radio", name="JSON").click()
    raw.fill("{broken")
    tab.run()
    tab.page.get_by_text("That is not JSON").wait_for()
    raw.fill('{"customer": "Bo", "items": [], "address": {"street": "x"}, "express": false, "unknown": 7}')
    tab.run()
    expect(tab.result()).to_contain_text("unknown", use_inner_text=True)


@both_eras
def test_results_are_drawn_as_what_they_are(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    table = tab.call("forecast").locator("table").first
    expect(table.locator("th")).to_have_text(["city", "high", "rain"], use_inner_text=True)
    expect(table.locator("tbody tr")).to_have_count(2)
    tab.shot(f"table-{revision}")
    essay = tab.call("essay")
    expect(essay.locator(".markdown h3")).to_have_text("Thanks", use_inner_text=True)
    expect(essay.locator(".markdown a")).to_have_attribute("href", "https://example.com/shop")
    expect(essay.locator(".markdown a")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(essay.locator(".markdown li li")).to_have_text("three", use_inner_text=True)
    expect(essay.locator(".markdown pre")).to_have_text("print(1)", use_inner_text=True)
    tab.shot(f"markdown-{revision}")
    media = tab.call("media")
    expect(media.locator(".picture img")).to_have_js_property("naturalWidth", 64)
    assert media.locator("audio").evaluate("audio => audio.src.startsWith('data:audio/wav;base64,')")
    tab.shot(f"media-{revision}")
    media.get_by_role("button", name="Read").click()
    tab.page.locator(".markdown", has_text="Sunny").wait_for()
    tree = tab.call("deep").locator(".tree").first
    tree.get_by_role("button", name="150 more").wait_for()
    tree.get_by_role("button", name="all 500 characters").click()
    expect(tab.call("embedded")).to_contain_text("Inside.", use_inner_text=True)
    tab.call("broken")
    expect(tab.page.locator(".call-head")).to_have_text(re.compile("^Tool failed"), use_inner_text=True)


@both_eras
def test_progress_is_seen_and_a_call_cancelled(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.choose("slow")
    tab.run()
    tab.page.locator("progress[value]").wait_for()
    tab.page.locator(".progress-text", has_text="step 3").wait_for()
    tab.shot(f"progress-{revision}")
    tab.page.get_by_role("button", name="Cancel").click()
    tab.page.get_by_text("Cancelled. The server was told.").wait_for()
    tab.page.locator("#drawer-notes").click()
    tab.page.locator(".note", has_text="step").first.wait_for()
    tab.page.locator("#drawer-calls").click()
    tab.page.locator(".call-row", has_text="slow").click()
    tab.page.locator(".state.cancelled").first.wait_for()


@both_eras
def test_questions_are_answered_in_a_dialog(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    dialog = tab.page.locator("dialog.question")
    tab.choose("ask")
    tab.run()
    dialog.get_by_text("Who are you?").wait_for()
    expect(dialog.get_by_role("switch", name="newsletter")).to_be_checked()
    tab.shot(f"elicitation-{revision}")
    dialog.get_by_label("name").fill("Ada")
    dialog.get_by_role("button", name="Answer").click()
    expect(tab.result()).to_contain_text("accept: Contact(name='Ada', newsletter=True)", use_inner_text=True)
    expect(tab.page.locator(".badge", has_text="ran again, round 2")).to_have_count(int(revision == "2026-07-28"))
    tab.run()
    dialog.get_by_role("button", name="Decline").click()
    tab.page.locator(".result", has_text="decline").wait_for()
    tab.run()
    dialog.wait_for()
    tab.page.keyboard.press("Escape")
    tab.page.locator(".result", has_text="cancel").wait_for()
    tab.choose("think")
    tab.run()
    dialog.locator("strong", has_text="France").wait_for()
    tab.shot(f"sampling-{revision}")
    dialog.get_by_label("What the model answers").fill("Paris")
    dialog.get_by_role("button", name="Answer").click()
    tab.page.locator(".result", has_text="It said: Paris").wait_for()
    tab.choose("visit")
    tab.run()
    dialog.get_by_text("https://login.example/start?x=1").wait_for()
    expect(dialog.locator("strong", has_text="login.example")).to_be_visible()
    tab.shot(f"url-{revision}")
    dialog.get_by_role("button", name="Decline").click()
    tab.page.locator(".result", has_text="decline").wait_for()


@both_eras
def test_roots_are_set_in_the_settings(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.page.get_by_label("Settings of this client").click()
    tab.page.get_by_label("Roots, one address a line").fill("file:///work\nfile:///home")
    tab.shot(f"settings-{revision}")
    tab.page.get_by_role("button", name="Apply").click()
    tab.page.locator("dialog.settings").wait_for(state="hidden")
    expect(tab.call("folders")).to_contain_text("file:///home", use_inner_text=True)


@both_eras
def test_a_resource_that_is_watched_is_read_again(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.choose("count", "Resources")
    tab.page.locator(".result", has_text="counted 0 times").wait_for()
    tab.page.get_by_role("button", name="Watch").click()
    tab.page.get_by_role("button", name="Watching").wait_for()
    other = tab.page.context.new_page()
    other.goto(tab.inspected.url)
    other.locator(".status.connected").wait_for()
    other.locator("#search").fill("increase")
    other.locator("#browse").get_by_role("option", name="increase").click()
    other.get_by_role("button", name="Run", exact=True).click()
    tab.page.locator(".result", has_text="counted 1 times").wait_for()


@both_eras
def test_values_are_suggested_while_typing(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.choose("brief", "Prompts")
    city = tab.page.get_by_label("city")
    city.fill("O")
    tab.page.get_by_role("option", name="Odense").wait_for()
    tab.page.get_by_role("option", name="Bergen").wait_for(state="detached")
    expect(tab.page.locator(".suggestions li")).to_have_text(["Oslo", "Odense"], use_inner_text=True)
    tab.shot(f"completion-{revision}")
    city.press("ArrowDown")
    city.press("ArrowDown")
    city.press("Enter")
    expect(city).to_have_value("Odense")
    tab.run("Get")
    tab.page.locator(".message.user", has_text="Write about Odense in a calm tone.").wait_for()
    tab.choose("file", "Templates")
    tab.page.get_by_label("folder").fill("mu")
    tab.page.get_by_role("option", name="music").click()
    tab.page.get_by_label("name", exact=True).fill("a b")
    expect(tab.page.locator(".preview")).to_have_text("file://music/a%20b", use_inner_text=True)
    tab.run("Read")
    tab.page.locator(".result", has_text="a b in music").wait_for()


@both_eras
def test_every_message_is_on_the_wire_panel(friendly: Callable[..., Any], revision: str) -> None:
    tab = friendly(revision)
    tab.call("forecast")
    page = tab.page
    page.get_by_label("Filter the messages by text").fill("tools/call")
    rows = page.locator(".wire-row")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator(".kind")).to_have_text("request", use_inner_text=True)
    expect(rows.locator(".method")).to_have_text(["tools/call forecast"] * 2, use_inner_text=True)
    expect(rows.nth(1).locator(".took")).to_contain_text("ms", use_inner_text=True)
    rows.nth(0).click()
    page.locator(".side .tree", has_text="forecast").wait_for()
    tab.shot(f"wire-{revision}")
    page.locator(".side").get_by_role("button", name="Command").click()
    page.get_by_text("Command copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("printf '%s\\n' '") and "friendly.py" in copied and "tools/call" in copied
    page.locator(".side").get_by_role("button", name="Its answer").click()
    page.locator(".side .side-head", has_text="Its request").wait_for()


def test_the_revision_is_changed_in_the_page(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    tab.page.locator("#top select").select_option("2024-11-05")
    tab.page.get_by_label("Filter the messages by text").fill("initialize")
    tab.page.locator(".wire-row", has_text="initialize").first.wait_for()
    tab.call("good_total")


def test_the_keyboard_is_enough(friendly: Callable[..., Any]) -> None:
    tab = friendly()
    page = tab.page
    page.keyboard.press("/")
    page.keyboard.type("ask")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".detail h2", has_text="ask").wait_for()
    page.get_by_role("button", name="Run", exact=True).focus()
    page.keyboard.press("Enter")
    # Keys that were typed for something else accept nothing, so the dialog waits for a pause.
    expect(page.locator("dialog.question button.primary")).to_have_attribute("aria-disabled", "false")
    page.keyboard.type("Ada")
    page.keyboard.press("Enter")
    expect(tab.result()).to_contain_text("accept", use_inner_text=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_one_thing_after_the_other(friendly: Callable[..., Any], scheme: str) -> None:
    tab = friendly(viewport={"width": 390, "height": 780}, color_scheme=scheme, has_touch=True, is_mobile=True)
    page = tab.page
    assert tab.fits()
    tab.shot(f"phone-list-{scheme}")
    tab.choose("order")
    expect(page.locator("#browse")).to_be_hidden()
    assert tab.fits()
    tab.shot(f"phone-form-{scheme}")
    page.get_by_label("Back to the list").click()
    expect(page.locator("#browse")).to_be_visible()
    tab.call("forecast")
    assert tab.fits()
    tab.shot(f"phone-result-{scheme}")
    page.locator("#drawer-wire").click()
    page.locator(".wire-row").first.wait_for()
    page.locator(".wire-row").first.click()
    page.locator(".side .tree").wait_for()
    assert tab.fits()
    tab.shot(f"phone-wire-{scheme}")


def test_a_change_of_the_file_shows_in_an_open_page(
    inspect: Callable[..., Any], tab: Callable[..., Any], server_file: Callable[[str], Path]
) -> None:
    file = server_file("friendly")
    opened = tab(inspect("dev", file, "--port", "0"))
    page = opened.page
    opened.choose("forecast")
    source = file.read_text()
    file.write_text(
        source.replace('"""Rows, for a table."""', '"""Rows of tomorrow."""').replace('"Oslo", 21.5', '"Tromsø", 3')
    )
    page.locator(".description", has_text="Rows of tomorrow.").wait_for()
    opened.run()
    expect(opened.result()).to_contain_text("Tromsø", use_inner_text=True)
    file.write_text(source + "\nboom = 1 / 0\n")
    banner = page.locator(".banner")
    banner.wait_for()
    line = len(source.splitlines()) + 2
    expect(banner).to_contain_text("ZeroDivisionError")
    expect(banner).to_contain_text(f"{file}:{line}")
    opened.shot("reload-failed")
    file.write_text(source)
    banner.wait_for(state="detached")
    opened.call("broken")
    page.locator("#drawer-notes").click()
    page.locator(".note", has_text="ZeroDivisionError").wait_for()
    expect(page.locator(".note", has_text="ZeroDivisionError")).to_contain_text(str(file), use_inner_text=True)
    # A server with an address is called by hand with curl.
    page.locator("#drawer-wire").click()
    page.get_by_label("Filter the messages by text").fill("tools/call")
    page.locator(".wire-row").first.click()
    page.locator(".side").get_by_role("button", name="curl").click()
    page.get_by_text("Command copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -sS http://127.0.0.1:")


def test_the_page_says_when_the_inspector_is_gone(inspect: Callable[..., Any], tab: Callable[..., Any]) -> None:
    inspected = inspect("inspect", FRIENDLY)
    opened = tab(inspected)
    inspected.process.terminate()
    inspected.process.wait(timeout=20)
    opened.page.get_by_text("The inspector no longer answers.").wait_for()
    opened.errors.clear()  # The browser logs every attempt to reach it.


def test_a_server_that_does_not_start_is_said_to(
    inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise SystemExit('no licence')\n")
    opened = tab(inspect("inspect", file), connected=False)
    opened.page.goto(opened.inspected.url)
    opened.page.locator(".welcome", has_text="no licence").wait_for()
    opened.shot("no-connection")


@both_eras
def test_a_task_is_watched_and_cancelled(inspect: Callable[..., Any], tab: Callable[..., Any], revision: str) -> None:
    everything = HERE.parent.parent / "examples" / "everything.py"
    opened = tab(inspect("inspect", f"{everything}:server", "--revision", revision))
    page = opened.page
    opened.choose("slow_compute")
    page.get_by_label("seconds").fill("60")
    if revision == LEGACY:
        page.get_by_label("Run as a task").check()
    opened.run()
    page.locator(".call-head", has_text="task: working").wait_for()
    page.locator(".outcome", has_text="of 10").wait_for()
    opened.shot(f"task-{revision}")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".call-head", has_text="task: cancelled").wait_for()
    opened.choose("confirm_delete")
    if revision == LEGACY:
        page.get_by_label("Run as a task").check()
    opened.run()
    page.locator("dialog.question").get_by_role("switch", name="confirm").check()
    page.locator("dialog.question").get_by_role("button", name="Answer").click()
    expect(opened.result()).to_contain_text("Deleted notes.txt", use_inner_text=True)
    page.locator(".call-head", has_text="task: completed").wait_for()


LONG = """
from toolwire import Server

server = Server("warehouse")
for place in ("north", "south"):
    server.tool(lambda: place, name=f"inventory_management_service_count_all_items_of_the_{place}")

@server.tool(structured=False)
def line() -> str:
    return "word " * 200
"""


@pytest.fixture
def written(inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A page that looks at a server which is written here."""

    def open_page(source: str, *arguments: str, command: str = "inspect", **options: Any) -> Any:
        file = tmp_path / "written.py"
        file.write_text(source)
        return tab(inspect(command, file, *arguments), **options)

    return open_page


def test_long_names_that_begin_alike_can_be_told_apart(written: Callable[..., Any]) -> None:
    tab = written(LONG)
    tails = tab.page.locator(".item-name .tail")
    expect(tails).to_have_count(2)
    tab.shot("long-names")
    assert [tail.inner_text()[-5:] for tail in tails.all()] == ["north", "south"]
    names = tab.page.locator(".item-name .head").evaluate_all("all => all.map(head => head.parentElement.title)")
    for name in names:
        expect(tab.page.locator("#browse").get_by_role("option", name=name)).to_have_count(1)
    for tail in tails.all():
        box, pane = tail.bounding_box(), tab.page.locator("#browse").bounding_box()
        assert box["x"] + box["width"] <= pane["x"] + pane["width"]


def test_the_button_to_copy_covers_no_text(written: Callable[..., Any]) -> None:
    tab = written(LONG)
    result = tab.call("line")
    tab.shot("copy")
    button = result.get_by_role("button", name="Copy the text").bounding_box()
    # Where the letters are, line by line.
    lines = result.locator("pre.text").evaluate(
        "pre => { const range = document.createRange(); range.selectNodeContents(pre);"
        " return [...range.getClientRects()].map(({x, y, width, height}) => ({x, y, width, height})); }"
    )
    assert len(lines) > 1
    for line in lines:
        beside = line["x"] + line["width"] <= button["x"] or line["y"] >= button["y"] + button["height"]
        assert beside, (line, button)


PROMPTS = """
from toolwire import Server

server = Server("prompts only")

@server.prompt
def brief(city: str) -> str:
    return city
"""


def test_empty_lists_say_what_is_empty(written: Callable[..., Any]) -> None:
    tab = written(PROMPTS)
    # What there is, is shown first.
    tab.page.locator("#browse").get_by_role("option", name="brief").wait_for()
    expect(tab.page.locator(".welcome")).to_contain_text("It offers 1 prompt: choose one", use_inner_text=True)
    tab.shot("prompts-only")
    tab.page.get_by_role("tab", name="Tools").click()
    tab.page.locator(".nothing", has_text="does not offer these").wait_for()
    tab.page.locator("#search").fill("nothing like it")
    tab.page.get_by_role("tab", name="Prompts").click()
    tab.page.locator(".nothing", has_text="No prompts match “nothing like it”").wait_for()


def test_a_server_that_offers_nothing(written: Callable[..., Any]) -> None:
    tab = written("from toolwire import Server\nserver = Server('empty')\n")
    tab.page.locator(".welcome", has_text="The server offers no tools, resources or prompts").wait_for()


def test_values_stay_when_the_definition_changes(written: Callable[..., Any], tmp_path: Path) -> None:
    source = (
        "from toolwire import Server\nserver = Server('s')\n"
        "@server.tool\ndef book(city: str, nights: int, old: str = '') -> str:\n    return city\n"
    )
    tab = written(source, "--port", "0", command="dev")
    tab.choose("book")
    tab.page.get_by_label("city").fill("Oslo")
    tab.page.get_by_label("old").fill("gone")
    (tmp_path / "written.py").write_text(source.replace("old: str", "new: str"))
    tab.page.get_by_label("new").wait_for()
    expect(tab.page.get_by_label("city")).to_have_value("Oslo")
    tab.page.get_by_role("radio", name="JSON").click()
    tab.page.get_by_label("nights").wait_for(state="detached")


KEY = "browser-key-0123456789"
PROTECTED = f"""
from toolwire import Context, Server
from toolwire.auth import ApiKeys

server = Server("protected", auth=ApiKeys({{{KEY!r}: "ann"}}))

@server.tool
async def whoami(ctx: Context) -> str:
    return f"{{ctx.principal.subject}} {{ctx.headers.get('x-team')}}"
"""


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[str]:
    """The address of a server that wants an API key."""
    file = tmp_path / "protected.py"
    file.write_text(PROTECTED)
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        yield found.group(0)
        process.kill()


def test_a_server_with_api_keys_is_given_one_in_the_page(
    inspect: Callable[..., Any], tab: Callable[..., Any], protected: str
) -> None:
    opened = tab(inspect("inspect", protected), connected=False)
    page = opened.page
    page.goto(opened.inspected.url)
    page.get_by_label("Token").wait_for()
    said = page.locator(".welcome").inner_text()
    assert "auth=" not in said and "headers=" not in said
    page.locator(".wire-row.is-http", has_text="HTTP 401").first.click()
    page.locator(".side .tree", has_text="www-authenticate").wait_for()
    opened.shot("refused")
    page.get_by_label("Headers").fill("no colon")
    page.get_by_role("button", name="Connect", exact=True).click()
    page.get_by_role("alert").get_by_text("is not NAME: VALUE").wait_for()
    page.get_by_label("Headers").fill("X-Team: blue")
    page.get_by_label("Token").fill(KEY)
    page.get_by_role("button", name="Connect", exact=True).click()
    page.locator(".status.connected").wait_for()
    expect(opened.call("whoami")).to_contain_text("ann blue", use_inner_text=True)
    # The exchange of HTTP stands beside the message, without its secrets.
    page.get_by_label("Filter the messages by text").fill("tools/call")
    page.locator(".wire-row", has_text="whoami").first.click()
    page.locator(".exchange summary", has_text="HTTP 200").click()
    sent = page.get_by_label("Sent headers").inner_text()
    assert "Bearer ••••" in sent and "x-team" in sent and KEY not in sent and "blue" not in sent
    expect(page.get_by_label("Received headers")).to_contain_text("content-type", use_inner_text=True)
    opened.shot("http-exchange")
    page.get_by_label("Settings of this client").click()
    dialog = page.locator("dialog.settings")
    expect(dialog.get_by_label("Headers")).to_have_value("X-Team: ••••••")
    expect(dialog.get_by_label("Token")).to_have_value("")
    opened.shot("settings-credentials")
    dialog.get_by_label("Headers").fill("X-Team: red")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    page.locator(".status.connected").wait_for()
    opened.run()
    page.locator(".result", has_text="ann red").wait_for()
    page.get_by_label("Settings of this client").click()
    dialog.get_by_role("button", name="Send no token").click()
    dialog.get_by_role("button", name="Apply").click()
    page.locator(".status.failed").wait_for()


NOISY = """
import sys
from toolwire import Server

server = Server("noisy")

@server.tool
def fail() -> str:
    print("<b>printed</b>")
    raise RuntimeError("the reason")

if __name__ == "__main__":
    server.run("http")
"""


def test_output_and_traceback_of_the_server_are_shown(
    inspect: Callable[..., Any], tab: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY, encoding="utf-8")
    opened = tab(inspect("inspect", file))
    opened.page.get_by_role("tab", name="Output").click()
    panel = opened.page.get_by_role("listbox", name="Output of the server")
    expect(panel).to_contain_text("the traceback of an error, appears here")
    error_id = opened.call("fail").inner_text().partition("error id ")[2][:12]
    panel.get_by_text("RuntimeError: the reason").click()
    shown = opened.page.locator(".drawer-body .side pre")
    for text in ("<b>printed</b>", f"error {error_id} in the tool fail", "Traceback (most recent call last):"):
        expect(shown).to_contain_text(text)
    opened.shot("output")
    # A page that opens later has the same lines.
    opened.page.reload()
    opened.page.locator(".status.connected").wait_for()
    opened.page.get_by_role("tab", name="Output").click()
    expect(panel).to_contain_text("RuntimeError: the reason")
