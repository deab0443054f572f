"""The host of views in the inspector: the bridge, its order, consent, calls of views, contexts, profiles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from tests.cases import cases
from tests.inspector.page_client import Page, inspected
from tests.inspector.view_client import INITIALIZE, View, fetch, open_view, try_view

from toolwire import Context, Server
from toolwire.apps import Csp, claude_domain
from toolwire.apps import Page as ViewHtml
from toolwire.apps.bridge import MAX_BURST
from toolwire.client import Budget
from toolwire.inspector.views import view as view_module
from toolwire.inspector.views.open_views import ABSENT_SECONDS
from toolwire.inspector.views.view import MAX_REFUSALS
from toolwire.testing import elapse
from toolwire.types import ToolAnnotations

HTML = "<!doctype html><html><head><title>v</title></head><body><p>hello</p></body></html>"


class Orders(Struct):
    numbers: list[int]


class Choice(Struct):
    number: int


def shop(**options: Any) -> Server:
    server = Server("shop")
    app = server.app(ViewHtml("orders.html", HTML), view=False, **options)

    @server.tool(app=app)
    async def show(month: str = "May") -> Orders:
        return Orders([1, 2])

    @server.tool(app=app)
    async def waits(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool(app=app)
    async def fails() -> str:
        raise ValueError("no")

    @app.tool
    def cancel(number: int) -> str:
        return f"cancelled {number}"

    @app.tool(annotations=ToolAnnotations(destructive_hint=True))
    def wipe() -> str:
        return "wiped"

    @app.tool
    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit("Which one?", Choice))

    @server.tool(visibility=("model",))
    def secret() -> str:
        return "for models"

    @server.resource("shop://terms")
    def terms() -> str:
        return "be nice"

    return server


# --- the handshake and the order of messages ---


@pytest.mark.covers("APP-5.1")
@cases("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_view_gets_its_input_once_and_then_the_result(revision: str) -> None:
    async with inspected(shop(), revision=revision) as page:
        view = await open_view(page, "show", {"month": "June"})
        assert view.taken == []
        result = await view.initialize()
        assert result["protocolVersion"] == "2026-01-26"
        assert result["hostContext"]["toolInfo"]["tool"]["name"] == "show"
        assert result["hostContext"]["theme"] == "light"
        assert len(result["hostContext"]["styles"]["variables"]) == 76
        assert await view.told("tool-input") == {"arguments": {"month": "June"}}
        shown = await view.told("tool-result")
        assert json.loads(shown["content"][0]["text"]) == {"numbers": [1, 2]}
        assert "resultType" not in shown
        assert [each for each in view.taken if each.get("method", "").startswith("ui/notifications/tool-")] == []
        assert (await view.state("ready"))["app"]["name"] == "v"


@pytest.mark.covers("APP-5.1")
async def test_nothing_is_sent_and_nothing_done_before_the_handshake() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await page.ask("viewSettings", view=view.id, settings={"theme": "dark"})
        early = await view.request("tools/call", name="cancel", arguments={"number": 1})
        assert "comes after ui/notifications/initialized" in early["error"]["message"]
        await view.notify("ui/notifications/initialized")
        assert view.taken == []
        assert (await view.initialize())["hostContext"]["theme"] == "dark"
        again = await view.request("ui/initialize", **INITIALIZE)
        assert "initialized already" in again["error"]["message"]
        assert [call["via"] for call in (await page.ask("state"))["calls"]] == [None]


@pytest.mark.covers("APP-5.1")
@pytest.mark.parametrize(("tool", "told"), [("fails", "tool-result"), ("waits", "tool-cancelled")])
async def test_the_end_of_a_call_is_told_however_it_ends(tool: str, told: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, tool)
        await view.initialize()
        assert await view.told("tool-input") == {"arguments": {}}
        if tool == "waits":
            await page.ask("cancel", call=view.opened["view"]["call"])
        ended = await view.told(told)
        assert ended == {"reason": "cancelled"} if tool == "waits" else ended["isError"] is True


@pytest.mark.covers("APP-5.2")
async def test_a_view_is_asked_before_it_goes() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        closing = asyncio.ensure_future(page.ask("closeView", view=view.id))
        asked = await view.until(lambda each: each.get("method") == "ui/resource-teardown")
        assert not closing.done()
        await view.send({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        await closing
        await view.state("closed")
        assert (await fetch(page, view.frame["view"]["url"])).status == 404
        assert await page.ask("viewMessages", view=view.id) == {"messages": [], "closed": True}
        for operation in ("closeView", "viewReport", "viewSettings"):
            assert await page.ask(operation, view=view.id, kind="flooded", settings={}) == {}
        assert (await page.ask("viewMessage", view=view.id, number=1))["method"] == "ui/initialize"
        assert (await page.answer("viewMessage", view="99", number=1)).status == 422


@pytest.mark.covers("APP-5.2")
async def test_a_view_that_does_not_answer_goes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "TEARDOWN_SECONDS", 0)
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await view.notify("ui/notifications/request-teardown")
        await view.state("closed")
        await view.noticed("remark", "did not answer ui/resource-teardown")


async def test_views_end_with_the_connection() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await page.ask("connect")
        assert "connection" in (await view.state("stopped"))["problem"]


# --- the context ---


@pytest.mark.covers("APP-5.3")
@cases(
    ("settings", "told"),
    [
        ({"theme": "dark"}, {"theme": "dark"}),
        ({"locale": "de-DE", "timeZone": "Europe/Berlin"}, {"locale": "de-DE", "timeZone": "Europe/Berlin"}),
        ({"touch": True}, {"deviceCapabilities": {"touch": True, "hover": False}}),
        ({"platform": "mobile"}, {"platform": "mobile"}),
        ({"displayMode": "fullscreen"}, {"displayMode": "fullscreen"}),
        (
            {"containerDimensions": {"width": 420, "maxHeight": 720}},
            {"containerDimensions": {"width": 420, "maxHeight": 720}},
        ),
    ],
)
async def test_a_view_is_told_of_what_changed_and_nothing_else(settings: dict[str, Any], told: dict[str, Any]) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await page.ask("viewSettings", view=view.id, settings=settings)
        assert await view.told("host-context-changed") == told
        await page.ask("viewSettings", view=view.id, settings=settings)
        await view.request("ping")
        assert [each["method"] for each in view.taken if "method" in each] == [
            "ui/notifications/tool-input",
            "ui/notifications/tool-result",
        ]


@cases(
    "settings",
    [
        {"theme": "blue"},
        {"locale": "x" * 100},
        {"locale": "<script>"},
        {"containerDimensions": {"width": -1}},
        {"containerDimensions": {"width": 1e9}},
        {"displayMode": "popup"},
        {"unknown": 1},
    ],
)
async def test_settings_that_there_are_not_are_refused(settings: dict[str, Any]) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        assert (await page.answer("viewSettings", view=view.id, settings=settings)).status == 400


@pytest.mark.covers("APP-5.3")
@pytest.mark.parametrize(("mode", "answered"), [("fullscreen", "fullscreen"), ("pip", "inline")])
async def test_a_view_gets_only_display_modes_that_it_declared(mode: str, answered: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        answer = await view.request("ui/request-display-mode", mode=mode)
        assert answer["result"] == {"mode": answered}
        assert (await view.state("ready"))["settings"]["displayMode"] in ("inline", answered)
        await page.ask("viewSettings", view=view.id, settings={"displayMode": "pip"})
        await view.request("ping")
        assert not any(each.get("params", {}).get("displayMode") == "pip" for each in view.taken)


# --- what a view asks of the person ---

WISHES = [
    ("ui/open-link", {"url": "https://a.example/x"}),
    ("ui/message", {"role": "user", "content": [{"type": "text", "text": "do it"}]}),
    (
        "ui/download-file",
        {
            "contents": [
                {"type": "resource", "resource": {"uri": "file:///a/b.csv", "mimeType": "text/csv", "text": "1"}}
            ]
        },
    ),
    ("tools/call", {"name": "wipe", "arguments": {}}),
]


@pytest.mark.covers("APP-4.6")
@cases("allowed", [True, False])
@cases(("method", "params"), WISHES)
async def test_a_person_decides(method: str, params: dict[str, Any], allowed: bool) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        identifier = await view.begin(method, **params)
        question = await page.question()
        assert question["kind"] == method
        assert question["params"]["view"] == "ui://shop/orders.html"
        assert not any(each.get("id") == identifier for each in view.taken)
        await page.respond(question, action="accept" if allowed else "decline")
        answer = await view.until(lambda each: each.get("id") == identifier)
        assert ("result" in answer) == allowed
        if not allowed:
            assert answer["error"] == {"code": -32000, "message": "the user did not allow it"}
            await view.noticed("refused", f"{method}: the user did not allow it")


async def test_view_asks_no_more_after_refusals_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "TEARDOWN_SECONDS", 0)
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        link = {"url": "https://shop.example/"}
        for number in range(1, MAX_REFUSALS + 1):
            identifier = await view.begin("ui/open-link", **link)
            await page.event("question", question=lambda each, number=number: each["id"] == str(number))
            await page.respond({"id": str(number)}, action="decline")
            await view.until(lambda each, number=identifier: each.get("id") == number)
        answer = await view.request("ui/open-link", **link)
        assert "may not ask until it is shown anew" in answer["error"]["message"]
        await view.noticed("refused", "may not ask until it is shown anew")
        # Its server can have it shown anew; only the person makes it ask again.
        call = view.opened["view"]["call"]
        await page.ask("closeView", view=view.id)
        again = View(page, await page.ask("openView", call=call))
        await again.initialize()
        assert "error" in await again.request("ui/open-link", **link)
        await page.ask("closeView", view=again.id)
        fresh = View(page, await page.ask("openView", call=call, fresh=True))
        await fresh.initialize()
        identifier = await fresh.begin("ui/open-link", **link)
        last = str(MAX_REFUSALS + 1)
        await page.event("question", question=lambda each: each["id"] == last)
        await page.respond({"id": last}, action="accept")
        assert "result" in await fresh.until(lambda each: each.get("id") == identifier)


@pytest.mark.covers("APP-4.6")
@cases("url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "https://u@a.example"])
async def test_other_links_are_refused_without_a_question(url: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        assert "only http and https" in (await view.request("ui/open-link", url=url))["error"]["message"]
        file = {"type": "resource_link", "uri": url, "name": "x"}
        assert "error" in await view.request("ui/download-file", contents=[file])
        assert not [each for each in page.events if each["type"] == "question"]


@pytest.mark.covers("APP-4.6")
async def test_a_view_asks_one_question_at_a_time() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        first = await view.begin("ui/open-link", url="https://a.example")
        question = await page.question()
        second = await view.request("ui/open-link", url="https://b.example")
        assert "waits for an answer already" in second["error"]["message"]
        await page.respond(question, action="accept")
        await view.until(lambda each: each.get("id") == first)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("tool", ["asks", "wipe"])
async def test_calls_and_questions_of_a_view_end_when_it_closes(tool: str, revision: str) -> None:
    async with inspected(shop(), revision=revision) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await view.begin("tools/call", name=tool, arguments={})
        question = await page.question()
        await asyncio.gather(page.ask("closeView", view=view.id), _answer_teardown(view))
        await page.event("answered", id=question["id"])
        state = await page.ask("state")
        assert state["questions"] == []
        if tool == "asks":
            await page.event("call", call=lambda call: call["subject"] == tool and call["state"] == "cancelled")


@pytest.mark.parametrize("tool", ["asks", "wipe"])
async def test_calls_and_questions_of_a_view_end_when_its_browser_crashed(tool: str) -> None:
    async with inspected(shop()) as page:
        other = Page(page.app, "other")
        view, kept = await open_view(page, "show"), await open_view(other, "show")
        await view.initialize()
        await view.begin("tools/call", name=tool, arguments={})
        question = await page.question()
        await page.crash()
        page.read_events()  # Such as after a short loss of the connection.
        await elapse(ABSENT_SECONDS + 1)
        assert [each["id"] for each in (await other.ask("state"))["questions"]] == [question["id"]]
        await page.crash()
        await elapse(ABSENT_SECONDS + 1)
        await other.event("answered", id=question["id"])
        assert (await other.ask("state"))["questions"] == []
        if tool == "asks":
            await other.event("call", call=lambda call: call["subject"] == tool and call["state"] == "cancelled")
        assert page.app.inspector.views.find(view.id) is None
        assert page.app.inspector.views.find(kept.id) is not None
        await other.crash()
        late = await open_view(other, "show")
        await elapse(ABSENT_SECONDS + 1)
        assert page.app.inspector.views.find(late.id) is None


async def _answer_teardown(view: View) -> None:
    asked = await view.until(lambda each: each.get("method") == "ui/resource-teardown")
    await view.send({"jsonrpc": "2.0", "id": asked["id"], "result": {}})


@pytest.mark.covers("APP-5.4")
async def test_the_context_of_the_model_replaces_the_one_before() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await view.request("ui/update-model-context", content=[{"type": "text", "text": "one"}])
        await view.request("ui/update-model-context", structuredContent={"selected": 2})
        models = [each["model"] for each in page.events if each["type"] == "view-model"]
        assert [each["context"] for each in models] == [
            {"content": [{"type": "text", "text": "one"}]},
            {"structuredContent": {"selected": 2}},
        ]


# --- what a view asks of the server ---


@pytest.mark.covers("APP-4.7")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_calls_of_a_view_are_in_the_log_of_the_calls(revision: str) -> None:
    async with inspected(shop(), revision=revision) as page:
        view = await open_view(page, "show")
        await view.initialize()
        called = await view.request("tools/call", name="cancel", arguments={"number": 7})
        assert called["result"]["content"][0]["text"] == "cancelled 7"
        read = await view.request("resources/read", uri="shop://terms")
        assert read["result"]["contents"][0]["text"] == "be nice"
        calls = (await page.ask("state"))["calls"]
        assert [(each["via"], each["method"], each["subject"], each["state"]) for each in calls] == [
            (None, "tools/call", "show", "done"),
            ("app", "tools/call", "cancel", "done"),
            ("app", "resources/read", "shop://terms", "done"),
        ]
        listed = await view.request("tools/list")
        assert {each["name"] for each in listed["result"]["tools"]} == {
            "show",
            "waits",
            "fails",
            "asks",
            "cancel",
            "wipe",
        }
        assert [each["uri"] for each in (await view.request("resources/list"))["result"]["resources"]]
        assert (await view.request("resources/templates/list"))["result"] == {"resourceTemplates": []}
        assert (await view.request("ping"))["result"] == {}


@pytest.mark.covers("APP-4.8")
@cases(
    ("method", "params", "said"),
    [
        ("tools/call", {"name": "secret", "arguments": {}}, "not open to views"),
        ("tools/call", {"name": "other_server_tool", "arguments": {}}, "does not list"),
        ("resources/read", {"uri": "other://thing"}, "not found"),
        ("prompts/get", {"name": "x"}, "views have no 'prompts/get'"),
        ("sampling/createMessage", {}, "views have no"),
    ],
)
async def test_what_a_view_may_not_reach_is_refused_and_said(method: str, params: dict[str, Any], said: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        answer = await view.request(method, **params)
        assert said in answer["error"]["message"]
        await view.noticed("refused", said)


@pytest.mark.covers("APP-4.7")
async def test_calls_of_a_view_pass_the_approvals_and_budgets_of_the_client() -> None:
    seen: list[str] = []

    def approve(call: Any) -> Any:
        seen.append(call.name)
        return call.name == "show" or call.arguments != {"number": 13} or "an unlucky number"

    options = {"approve": approve, "budget": Budget(calls=3)}
    async with inspected(shop(), options=options) as page:
        view = await open_view(page, "show")
        await view.initialize()
        denied = await view.request("tools/call", name="cancel", arguments={"number": 13})
        assert "an unlucky number" in denied["error"]["message"]
        for number in (1, 2):
            assert "result" in await view.request("tools/call", name="cancel", arguments={"number": number})
        spent = await view.request("tools/call", name="cancel", arguments={"number": 3})
        assert "error" in spent
        assert seen.count("cancel") == 3
        await view.noticed("refused", "calls")


# --- views that misbehave ---


@pytest.mark.covers("APP-9.5")
async def test_a_view_that_floods_is_stopped_and_named() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await view.send(
            *[{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}] * (MAX_BURST + 9)
        )
        stopped = await view.state("stopped")
        assert stopped["problem"].startswith("The view ui://shop/orders.html was stopped: ")
        assert "messages a second" in stopped["problem"]
        await view.noticed("stopped", stopped["problem"])
        assert (await fetch(page, view.frame["view"]["url"])).status == 404


@pytest.mark.covers("APP-9.5")
@cases(
    ("kind", "said"),
    [
        ("flooded", "messages a second"),
        ("large", "bytes"),
        ("navigated", "another page (https://evil.example)"),
        ("hung", "does not respond"),
        ("unguarded", "this browser does not keep it from sending data to any address"),
    ],
)
async def test_what_the_page_notices_stops_a_view(kind: str, said: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await page.ask("viewReport", view=view.id, kind=kind, text="https://evil.example")
        assert said in (await view.state("stopped"))["problem"]


@cases(
    "message",
    ["", "null", "[]", "{", '{"jsonrpc":"1.0"}', json.dumps({"jsonrpc": "2.0", "id": 99, "method": "x"}), "[" * 50_000],
)
async def test_messages_that_are_none_are_refused_and_said(message: str) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.send(message)
        await view.noticed("refused", "")
        assert "result" in await view.request("ui/initialize", **INITIALIZE)


async def _silent(view: View) -> None:
    await fetch(view.page, view.frame["src"])
    await fetch(view.page, view.frame["view"]["url"])


async def _half(view: View) -> None:
    await _silent(view)
    await view.request("ui/initialize", **INITIALIZE)


async def _wrong(view: View) -> None:
    await _silent(view)
    await view.request("ui/initialize", protocolVersion=1)


async def _broken(view: View) -> None:
    await _silent(view)
    await view.page.ask("viewReport", view=view.id, kind="console", text="start is not defined")


async def _blocked(view: View) -> None:
    await _broken(view)
    report = {"effective-directive": "script-src-elem", "blocked-uri": "https://cdn.example/app.js"}
    base = view.frame["view"]["url"].removesuffix("/view.html")
    await fetch(view.page, f"{base}/report", method="POST", body=json.dumps({"csp-report": report}).encode())


async def _nothing(view: View) -> None:
    pass


async def _no_page(view: View) -> None:
    await fetch(view.page, view.frame["src"])


@pytest.mark.covers("APP-9.6")
@pytest.mark.parametrize(
    ("act", "said"),
    [
        (_nothing, "did not ask for its frame"),
        (_no_page, "did not ask for its page"),
        (_silent, "did not send ui/initialize"),
        (_half, "not ui/notifications/initialized"),
        (_wrong, "Its messages were refused: ui/initialize"),
        (_broken, "This happened before: start is not defined"),
        (_blocked, "This happened before: script-src-elem blocked https://cdn.example/app.js"),
    ],
)
async def test_a_view_that_never_initializes_is_reported_with_the_reason(
    act: Callable[[View], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert view_module.INITIALIZE_SECONDS < 5
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await act(view)
        shown = page.app.inspector.views.find(view.id)
        assert shown is not None
        shown.report_late()
        event = await page.event("view", view=lambda shown: shown["problem"] is not None)
        assert said in event["view"]["problem"]
        await view.noticed("problem", event["view"]["problem"])
        if act is not _half:
            await view.initialize()
            assert (await view.state("ready"))["problem"] is None


async def test_the_time_to_initialize_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "INITIALIZE_SECONDS", 0)
    async with inspected(shop()) as page:
        await open_view(page, "show")
        await page.event("view", view=lambda shown: shown["problem"] is not None)


async def test_only_so_many_views_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.inspector.views.open_views.MAX_OPEN", 2)
    async with inspected(shop()) as page:
        first, *_ = [await open_view(page, "show") for _ in range(3)]
        await first.state("closed")


async def test_a_view_has_only_so_many_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "MAX_WAITING", 2)
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        await view.told("tool-result")
        for _ in range(2):
            await view.begin("tools/call", name="waits", arguments={})
        assert "wait for an answer" in (await view.request("ping"))["error"]["message"]


# --- views that cannot be shown ---


def served(contents: Any, *, meta: Any = None) -> Server:
    """A server whose view is written by hand, with everything that it gets wrong."""
    server = Server("odd")

    @server.tool(meta=meta or {"ui": {"resourceUri": "ui://odd/v.html"}})
    def show() -> str:
        return "x"

    @server.resource("ui://odd/v.html", **contents)
    def view() -> Any:
        return contents["mime_type"] and HTML

    return server


@cases(
    ("server", "said"),
    [
        (served({"mime_type": "text/html"}), "has the MIME type 'text/html'"),
        (served({"mime_type": "text/html"}, meta={"ui": {"resourceUri": "https://a.example"}}), None),
        (served({"mime_type": "text/html"}, meta={"ui": {"resourceUri": "ui://odd/none"}}), "cannot be read"),
    ],
)
async def test_a_view_that_cannot_be_shown_says_why(server: Server, said: str | None) -> None:
    async with inspected(server) as page:
        page.app.show_views(40_001)
        definition = await page.ask("definition", kind="tools", key="show")
        assert definition["view"] is (said is not None)
        assert (said or "starts with ui://") in (await try_view(page, "show"))["problem"]


async def test_tools_without_a_view_have_none() -> None:
    async with inspected(shop()) as page:
        assert (await page.ask("definition", kind="tools", key="show"))["view"] is False
        assert (await page.answer("openView", call="1")).status == 422
        page.app.show_views(40_001)
        assert (await page.ask("definition", kind="tools", key="show"))["view"] is True
        assert (await page.ask("definition", kind="tools", key="secret"))["view"] is False
        assert (await page.answer("openView", call="99")).status == 422
        assert (await page.answer("openView", call="99", profile="nobody")).status == 400


# --- hosts ---


@pytest.mark.covers("APP-5.5")
@cases(
    ("url", "domain", "said"),
    [
        (None, "wrong.example", "shows no view whose domain"),
        (None, claude_domain("https://shop.example/mcp"), None),
        ("https://shop.example/mcp", claude_domain("https://shop.example/mcp"), None),
        ("https://shop.example/mcp", claude_domain("https://shop.example/other"), "use "),
        ("http://127.0.0.1:8000/mcp", claude_domain("https://shop.example/mcp"), None),
    ],
)
async def test_claude_shows_no_view_of_another_domain(url: str | None, domain: str, said: str | None) -> None:
    async with inspected(shop(domain=domain), url=url) as page:
        answer = await try_view(page, "show", profile="claude")
        assert (said in answer["problem"]) if said else ("problem" not in answer)
        assert "problem" not in await try_view(page, "show")


@pytest.mark.covers("APP-5.5")
async def test_claude_hides_a_view_until_it_is_initialized_and_ignores_frames() -> None:
    async with inspected(shop(csp=Csp(frame=["https://maps.example"]))) as page:
        assert "frame-src https://maps.example" in (await open_view(page, "show")).opened["view"]["policy"]
        view = await open_view(page, "show", profile="claude")
        assert view.opened["view"]["hidden"] is True
        assert "frame-src 'none'" in view.opened["view"]["policy"]
        assert any("ignores it" in each["text"] for each in view.opened["findings"])
        await view.initialize()
        assert (await view.state("ready"))["hidden"] is False
        assert (await view.state("ready"))["modes"] == ["inline", "fullscreen"]


@pytest.mark.covers("APP-5.5")
async def test_chatgpt_gives_window_openai_and_reads_its_own_keys() -> None:
    server = Server("widgets")

    @server.tool(meta={"openai/outputTemplate": "ui://widgets/w.html"})
    def show(city: str) -> Orders:
        return Orders([3])

    @server.resource(
        "ui://widgets/w.html",
        mime_type="text/html+skybridge",
        meta={"openai/widgetCSP": {"connect_domains": ["https://api.example"]}},
    )
    def page_of_the_widget() -> str:
        return HTML

    async with inspected(server) as page:
        assert "only ChatGPT" in (await try_view(page, "show", {"city": "Bern"}))["problem"]
        call = await page.call("tools/call", name="show", arguments={"city": "Bern"})
        view = View(page, await page.ask("openView", call=call["id"], profile="chatgpt"))
        base = view.frame["view"]["url"].removesuffix("/view.html")
        html = (await fetch(page, f"{base}/view.html")).body.decode()
        assert "/openai.js" in html
        script = (await fetch(page, f"{base}/openai.js")).body.decode()
        values = json.loads(script.partition("\n")[0].removeprefix("const GLOBALS = ").removesuffix(";"))
        assert values["toolInput"] == {"city": "Bern"}
        assert values["toolOutput"] == {"numbers": [3]}
        assert "connect-src https://api.example" in view.opened["view"]["policy"]


async def test_other_hosts_have_no_window_openai() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        base = view.frame["view"]["url"].removesuffix("/view.html")
        assert "openai" not in (await fetch(page, f"{base}/view.html")).body.decode()
        assert (await fetch(page, f"{base}/openai.js")).status == 404


async def test_the_inspector_tells_servers_that_it_shows_views() -> None:
    server = Server("asks")

    @server.tool
    def renders(ctx: Context) -> bool:
        return ctx.client_renders_apps

    async with inspected(server) as page:
        assert (await page.result(await page.call("tools/call", name="renders")))["structuredContent"] is True


async def test_a_message_of_the_bridge_can_be_looked_at() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        await view.initialize()
        event = await page.event("view-message", view=view.id)
        shown = await page.ask("viewMessage", view=view.id, number=event["message"]["number"])
        assert json.loads(shown["text"])["method"] == "ui/initialize"
        assert (await page.answer("viewMessage", view=view.id, number=999)).status == 422


@pytest.mark.covers("APP-4.8", "APP-9.4")
async def test_a_view_of_one_server_reaches_no_other_server() -> None:
    other = Server("bank")

    @other.tool
    def pay() -> str:
        return "paid"

    @other.resource("bank://account")
    def account() -> str:
        return "a million"

    async with inspected({"shop": shop(), "bank": other}) as page:
        view = await open_view(page, "shop_show")
        await view.initialize()
        called = await view.request("tools/call", name="cancel", arguments={"number": 7})
        assert called["result"]["content"][0]["text"] == "cancelled 7"
        for name in ("pay", "bank_pay", "bank_pay "):
            assert "does not list" in (await view.request("tools/call", name=name))["error"]["message"]
        assert "error" in await view.request("resources/read", uri="bank://account")
        assert (await view.request("resources/read", uri="shop://terms"))["result"]["contents"][0]["text"] == "be nice"
        tools = (await view.request("tools/list"))["result"]["tools"]
        assert {each["name"] for each in tools} == {"show", "waits", "fails", "asks", "cancel", "wipe"}
        resources = (await view.request("resources/list"))["result"]["resources"]
        assert {each["uri"] for each in resources} == {"shop://terms", "ui://shop/orders.html"}
