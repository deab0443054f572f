"""The second origin of the inspector: who gets the pages of views, under which policy, and what it reveals."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.inspector.page_client import inspected
from tests.inspector.view_client import PORT, View, fetch, open_view

from toolwire import Server
from toolwire.apps import Csp
from toolwire.apps import Page as ViewHtml
from toolwire.inspector import Inspector, InspectorApp, serving

HTML = "<!doctype html><html><head><title>v</title></head><body>hello</body></html>"
FRAME = {"sec-fetch-dest": "iframe"}


def shop(**options: Any) -> Server:
    server = Server("shop")
    app = server.app(ViewHtml("v.html", HTML), view=False, **options)

    @server.tool(app=app)
    def show() -> str:
        return "x"

    return server


def directives(policy: str) -> dict[str, str]:
    return {name: sources for name, _, sources in (each.strip().partition(" ") for each in policy.split(";"))}


def origin_of(view: View) -> str:
    parts = urlsplit(view.frame["view"]["url"])
    return f"{parts.scheme}://{parts.netloc}"


@pytest.mark.covers("APP-4.1")
async def test_each_view_has_a_host_and_a_path_of_its_own() -> None:
    async with inspected(shop()) as page:
        views = [await open_view(page, "show") for _ in range(2)]
        origins = {origin_of(each) for each in views}
        assert len(origins) == 2
        assert all(each.startswith("http://view-") and each.endswith(f".localhost:{PORT}") for each in origins)
        assert {each.frame["origin"] for each in views} == {f"http://views.localhost:{PORT}"}
        assert len({each.frame["src"] for each in views}) == 2
        assert min(len(each.frame["src"]) for each in views) > len(f"http://views.localhost:{PORT}/") + 40


@pytest.mark.covers("APP-4.1")
async def test_answers_are_kept_by_nobody_and_set_no_cookie() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        base = view.frame["view"]["url"].removesuffix("/view.html")
        for url in (view.frame["src"], f"{base}/view.html", f"{base}/host.js", f"{base}/none"):
            answer = await fetch(page, url, headers=FRAME)
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in answer.headers
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.covers("APP-4.1")
@cases(
    ("change", "status"),
    [
        ({}, 200),
        ({"headers": {"host": "evil.example"}}, 421),
        ({"headers": {"host": f"127.0.0.1:{PORT}"}}, 421),
        ({"headers": {"host": f"localhost:{PORT}"}}, 421),
        ({"headers": {"host": "views.localhost:1"}}, 421),
        ({"headers": {"host": None}}, 421),
        ({"headers": {"host": f"view-0.localhost:{PORT}"}}, 404),
        ({"headers": {"host": f"views.localhost.evil.example:{PORT}"}}, 421),
        ({"headers": {"sec-fetch-dest": "document"}}, 403),
        ({"headers": {"sec-fetch-dest": "empty"}}, 403),
        ({"server": ("192.0.2.7", 80)}, 403),
        ({"client": ("192.0.2.7", 80)}, 403),
        ({"method": "PUT"}, 405),
    ],
)
async def test_others_do_not_get_the_page_of_a_view(change: dict[str, Any], status: int) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        assert (await fetch(page, view.frame["view"]["url"], **change)).status == status


@pytest.mark.covers("APP-4.1")
async def test_the_page_of_one_view_is_not_at_the_origin_of_another() -> None:
    async with inspected(shop()) as page:
        one, other = [await open_view(page, "show") for _ in range(2)]
        path = one.frame["view"]["url"].removeprefix(origin_of(one))
        assert (await fetch(page, origin_of(other) + path)).status == 404
        assert (await fetch(page, f"http://views.localhost:{PORT}{path}")).status == 404
        for file in ("sandbox.js", "sandbox.css", "rate.js", "written.js"):
            assert (await fetch(page, f"http://views.localhost:{PORT}/{file}")).status == 200
            assert (await fetch(page, f"{origin_of(one)}/{file}")).status == 404
        assert (await fetch(page, f"http://views.localhost:{PORT}/../page/main.js")).status == 404


@pytest.mark.covers("APP-4.2")
async def test_the_policy_of_a_view_is_a_header() -> None:
    csp = Csp(connect=["https://api.example"], resource=["https://cdn.example"])
    async with inspected(shop(csp=csp)) as page:
        view = await open_view(page, "show")
        answer = await fetch(page, view.frame["view"]["url"])
        policy = directives(answer.headers["content-security-policy"])
        assert policy["default-src"] == "'none'"
        assert policy["connect-src"] == "https://api.example"
        assert policy["script-src"] == "'self' 'unsafe-inline' https://cdn.example"
        assert policy["frame-src"] == "'none'"
        assert policy["frame-ancestors"] == f"http://views.localhost:{PORT} http://127.0.0.1:8000"
        assert policy["sandbox"] == "allow-scripts"
        assert policy["require-trusted-types-for"] == "'script'"
        assert answer.headers["connection-allowlist"] == (
            '(response-origin "https://api.example" "https://cdn.example"); redirects=allow'
        )
        assert answer.body.decode().index("/host.js") < answer.body.decode().index("<title>")


@pytest.mark.covers("APP-4.2")
@cases("listed", [True, False])
@cases("read", [True, False])
async def test_the_answer_to_a_read_wins_over_the_list(listed: bool, read: bool) -> None:
    server = Server("s")

    @server.tool(meta={"ui": {"resourceUri": "ui://s/v.html"}})
    def show() -> str:
        return "x"

    meta = {"ui": {"csp": {"connectDomains": ["https://list.example"]}}} if listed else None

    @server.resource("ui://s/v.html", mime_type="text/html;profile=mcp-app", meta=meta)
    def view() -> str:
        return HTML

    async with inspected(server) as page:
        client = page.app.inspector.client
        request = client.request

        async def answered(method: str, params: Any, **options: Any) -> Any:
            result = await request(method, params, **options)
            own = {"ui": {"csp": {"connectDomains": ["https://read.example"]}}} if read else {}
            return {**result, "contents": [{**result["contents"][0], "_meta": own}]}

        client.request = answered  # type: ignore[method-assign,assignment]
        opened = await open_view(page, "show")
        wanted = "https://read.example" if read else "https://list.example" if listed else "'none'"
        assert directives(opened.opened["view"]["policy"])["connect-src"] == wanted
        remarks = [each["text"] for each in opened.opened["findings"]]
        assert any("_meta.ui" in each for each in remarks) == (read or listed)


@pytest.mark.covers("APP-4.2")
async def test_no_view_is_granted_the_inspector() -> None:
    own = ["http://127.0.0.1:8000", "http://localhost:8000", f"http://127.0.0.1:{PORT}", f"http://localhost:{PORT}"]
    async with inspected(shop(csp=Csp(connect=[*own, "http://localhost:3000"], resource=own, frame=own))) as page:
        view = await open_view(page, "show")
        policy = directives((await fetch(page, view.frame["view"]["url"])).headers["content-security-policy"])
        assert policy["connect-src"] == "http://localhost:3000"
        assert policy["frame-src"] == "'none'"
        assert "8000" not in policy["script-src"]
        assert sum("which no view may reach" in each["text"] for each in view.opened["findings"]) == 12


@pytest.mark.covers("APP-4.1")
async def test_the_sandbox_page_lets_its_view_go_nowhere() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        answer = await fetch(page, view.frame["src"], headers=FRAME)
        policy = directives(answer.headers["content-security-policy"])
        assert policy["frame-src"] == view.frame["view"]["url"]
        assert policy["frame-ancestors"] == "http://127.0.0.1:8000"
        assert policy["script-src"] == "'self'"
        assert policy["default-src"] == "'none'"
        assert view.frame["sandbox"] == "allow-scripts allow-same-origin"
        assert view.frame["view"]["sandbox"] == "allow-scripts"
        assert view.frame["view"]["csp"] == "sandbox"
        assert answer.headers["connection-allowlist"] == f'(response-origin "{origin_of(view)}"); report-to=none'
        body = answer.body.decode()
        assert 'data-host="http://127.0.0.1:8000"' in body
        assert f'data-view="{view.frame["view"]["origin"]}"' in body


@pytest.mark.covers("APP-4.1")
@cases(
    ("granted", "has_origin"),
    [
        ([], False),
        (["clipboardWrite", "geolocation"], False),
        (["camera"], True),
        (["geolocation", "microphone"], True),
    ],
)
async def test_only_a_view_that_may_use_camera_or_microphone_has_an_origin(
    granted: list[str], has_origin: bool
) -> None:
    asked = ["camera", "microphone", "geolocation", "clipboardWrite"]
    async with inspected(shop(permissions=asked)) as page:
        view = await open_view(page, "show", granted=granted)
        policy = directives((await fetch(page, view.frame["view"]["url"])).headers["content-security-policy"])
        sandbox = "allow-scripts allow-same-origin" if has_origin else "allow-scripts"
        assert policy["sandbox"] == view.frame["view"]["sandbox"] == sandbox
        assert view.frame["view"]["origin"] == (origin_of(view) if has_origin else "null")
        assert any("has an origin" in each["text"] for each in view.opened["findings"]) == has_origin


@pytest.mark.covers("APP-4.2")
async def test_a_view_that_shows_pages_of_others_says_that_they_can_send_data() -> None:
    async with inspected(shop(csp=Csp(frame=["https://frames.example"]))) as page:
        view = await open_view(page, "show")
        assert view.frame["view"]["csp"] == ""
        assert any("pages of https://frames.example" in each["text"] for each in view.opened["findings"])
        # In Claude there are no such frames.
        view = await open_view(page, "show", profile="claude")
        assert view.frame["view"]["csp"] == "sandbox"


@pytest.mark.covers("APP-4.3")
async def test_the_inspector_frames_one_origin_and_no_other() -> None:
    app = InspectorApp(Inspector(Server("quiet"), label="quiet"))
    before = (await HttpClient(app).start("GET", path="/").finished()).headers
    assert directives(before["content-security-policy"])["frame-src"] == "blob:"
    app.show_views(PORT)
    after = (await HttpClient(app).start("GET", path="/").finished()).headers
    origin = f"http://views.localhost:{PORT}"
    assert directives(after["content-security-policy"])["frame-src"] == f"blob: {origin}"
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"content-security-policy", "permissions-policy"}
    policy = after["content-security-policy"].replace(f" {origin}", "")
    assert policy == before["content-security-policy"]


@pytest.mark.covers("APP-4.4")
async def test_permissions_are_given_by_a_person_alone() -> None:
    async with inspected(shop(permissions=["camera", "clipboard_write"])) as page:
        view = await open_view(page, "show")
        assert view.opened["view"]["permissions"] == ["camera", "clipboardWrite"]
        assert view.frame["allow"] == view.frame["view"]["allow"] == ""
        header = (await fetch(page, view.frame["view"]["url"])).headers["permissions-policy"]
        assert header == "camera=(), microphone=(), geolocation=(), clipboard-write=()"
        assert (await view.initialize())["hostCapabilities"]["sandbox"]["permissions"] == {}
        allowed = await open_view(page, "show", granted=["camera", "geolocation", "usb"])
        assert allowed.frame["allow"] == allowed.frame["view"]["allow"] == "camera"
        header = (await fetch(page, allowed.frame["view"]["url"])).headers["permissions-policy"]
        assert header == "camera=(self), microphone=(), geolocation=(), clipboard-write=()"
        assert (await allowed.initialize())["hostCapabilities"]["sandbox"]["permissions"] == {"camera": {}}


def report(**members: Any) -> bytes:
    return json.dumps({"csp-report": members}).encode()


@pytest.mark.covers("APP-4.5")
@cases(
    ("body", "status", "said"),
    [
        (
            report(**{"effective-directive": "img-src", "blocked-uri": "https://a.example/x.png", "line-number": 7}),
            204,
            "img-src blocked https://a.example/x.png, line 7 of the page",
        ),
        (
            report(**{"violated-directive": "script-src 'self'", "blocked-uri": "eval"}),
            204,
            "script-src blocked the eval",
        ),
        (report(), 204, "the policy blocked something"),
        (b"{}", 204, "the policy blocked something"),
        (b"[", 400, None),
        (b"[" * 50_000, 400, None),
        (b"x" * 70_000, 413, None),
    ],
)
async def test_what_the_policy_blocked_is_said(body: bytes, status: int, said: str | None) -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        url = view.frame["view"]["url"].replace("/view.html", "/report")
        assert (await fetch(page, url, method="POST", body=body)).status == status
        if said is not None:
            await view.noticed("policy", said)


async def test_only_so_many_reports_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.inspector.views.pages.MAX_REPORTS", 2)
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        url = view.frame["view"]["url"].replace("/view.html", "/report")
        for number in range(4):
            body = report(**{"blocked-uri": f"https://a.example/{number}"})
            assert (await fetch(page, url, method="POST", body=body)).status == 204
        shown = page.app.inspector.views.find(view.id)
        assert shown is not None
        assert [each["text"][-1] for each in shown.findings] == ["0", "1"]


async def test_a_page_that_loads_twice_ends_its_view() -> None:
    async with inspected(shop()) as page:
        view = await open_view(page, "show")
        for _ in range(2):
            await fetch(page, view.frame["view"]["url"])
        assert "a second time" in (await view.state("stopped"))["problem"]


async def test_both_origins_are_served_and_ended_together() -> None:
    listeners = serving.listen(0)
    app = InspectorApp(Inspector(Server("quiet"), label="quiet"))
    server = serving.InspectorServer(app, listeners)
    assert app.inspector.views.pages.port == listeners.views[0].getsockname()[1]
    assert listeners.views[0].getsockname()[0] == "127.0.0.1"
    await server.serve(server.stop)
    assert all(each.fileno() == -1 for each in (*listeners.page, *listeners.views))
