"""A hostile web page that guesses the port, rebinds a name, frames the page or posts a form gets nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.inspector.page_client import inspected

from toolwire import Server
from toolwire.auth.errors import SignInFailed
from toolwire.inspector import Inspector, InspectorApp


@pytest.fixture
def app() -> InspectorApp:
    return InspectorApp(Inspector(Server("quiet"), label="quiet"))


@pytest.mark.parametrize("token", [None, "", "guess", "\xe9"])
async def test_nothing_is_told_without_the_token(app: InspectorApp, token: str | None) -> None:
    client = HttpClient(app)
    headers = {"x-toolwire-token": token}
    assert (await client.post({}, headers, path="/api/state")).status == 401
    assert (await client.start("GET", path="/api/events", headers=headers).finished()).status == 401
    assert (await client.start("GET", path="/api/part", headers=headers).finished()).status == 401
    assert (await client.post({}, {"x-toolwire-token": app.token}, path="/api/state")).status == 200


def test_the_token_is_random_and_long() -> None:
    tokens = {InspectorApp(Inspector(Server("quiet"), label="quiet")).token for _ in range(20)}
    assert len(tokens) == 20 and min(map(len, tokens)) >= 43


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", None])
@pytest.mark.parametrize("path", ["/", "/main.js", "/api/state"])
async def test_a_name_that_was_rebound_to_this_machine_is_refused(
    app: InspectorApp, host: str | None, path: str
) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token})
    assert (await client.post({}, {"host": host}, path=path)).status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8000"])
async def test_another_page_is_refused_even_with_the_token(app: InspectorApp, origin: str) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token, "origin": origin})
    assert (await client.post({}, path="/api/state")).status == 403


async def test_the_page_itself_is_let_in(app: InspectorApp) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token, "origin": "http://127.0.0.1:8000"})
    assert (await client.post({}, path="/api/state")).status == 200


async def test_another_machine_is_refused(app: InspectorApp) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token})
    assert (await client.start("GET", path="/", server=("192.0.2.7", 8000)).finished()).status == 403


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
async def test_a_form_that_is_posted_is_refused(app: InspectorApp, kind: str) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token})
    assert (await client.post(b"{}", {"content-type": kind}, path="/api/state")).status == 415


async def test_no_other_page_is_told_that_it_may_ask(app: InspectorApp) -> None:
    asking = {"origin": "http://127.0.0.1:8000", "access-control-request-headers": "x-toolwire-token"}
    answer = await HttpClient(app).start("OPTIONS", path="/api/state", headers=asking).finished()
    assert answer.status == 401
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/main.js", "/base.css", "/nothing", "/api/state"])
async def test_every_answer_carries_the_policy(app: InspectorApp, path: str) -> None:
    answer = await HttpClient(app).start("GET", path=path).finished()
    whole = answer.headers["content-security-policy"]
    policy = dict(part.strip().split(" ", 1) for part in whole.split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in whole and "http" not in whole
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


async def test_the_page_has_no_script_or_style_inside_and_none_from_elsewhere(app: InspectorApp) -> None:
    page = (await HttpClient(app).start("GET", path="/").finished()).body.decode()
    assert page.count("<script") == 1 and '<script type="module" src="main.js"></script>' in page
    for forbidden in ("<style", "style=", "onclick", "://"):
        assert forbidden not in page


@pytest.mark.parametrize("path", ["/../app.py", "/..%2fapp.py", "/app.py", "//etc/passwd", "/page/main.js", "/.."])
async def test_only_the_files_of_the_page_are_served(app: InspectorApp, path: str) -> None:
    assert (await HttpClient(app).start("GET", path=path).finished()).status == 404


@cases("body", [b"", b"[]", b"{", b'{"method": 1}', b'{"method": "x", "params": 3}', b"[" * 100_000])
async def test_nonsense_is_refused(body: bytes) -> None:
    async with inspected(Server("quiet")) as page:
        assert (await page.http.post(body, path="/api/call")).status in (400, 422)


async def test_a_body_without_end_is_refused() -> None:
    async with inspected(Server("quiet")) as page:
        assert (await page.http.post(b"x", {"content-length": str(10**9)}, path="/api/call")).status == 413


async def test_signing_in_ends_where_it_began(app: InspectorApp) -> None:
    questions = app.inspector.input_requests
    client = HttpClient(app, headers={"x-toolwire-token": app.token})
    signing_in = asyncio.create_task(questions.sign_in("https://login.example/authorize?state=secret&x=1"))
    await asyncio.sleep(0)
    [question] = (await client.post({}, path="/api/state")).json()["questions"]
    assert question["kind"] == "sign-in"
    # A page of somebody else's, or an older attempt, does not know the state.
    for query in ("code=stolen", "code=stolen&state=guess", "code=stolen&state="):
        assert (await client.start("GET", path="/callback", query=query).finished()).status == 404
    claimed = {"question": question["id"], "answer": {"action": "accept", "address": "http://evil.example"}}
    assert (await client.post(claimed, path="/api/answer")).status == 422
    # The browser that comes back has no token to show.
    back = await HttpClient(app).start("GET", path="/callback", query="code=good&state=secret").finished()
    assert back.status == 200 and b"good" not in back.body
    assert await signing_in == "http://127.0.0.1:8000/callback?code=good&state=secret"
    assert (await client.start("GET", path="/callback", query="code=good&state=secret").finished()).status == 404


async def test_signing_in_can_be_given_up(app: InspectorApp) -> None:
    client = HttpClient(app, headers={"x-toolwire-token": app.token})
    signing_in = asyncio.create_task(
        app.inspector.input_requests.sign_in("https://login.example/authorize?state=secret")
    )
    await asyncio.sleep(0)
    [question] = app.inspector.input_requests.describe()
    await client.post({"question": question["id"], "answer": {"action": "cancel"}}, path="/api/answer")
    with pytest.raises(SignInFailed):
        await signing_in
