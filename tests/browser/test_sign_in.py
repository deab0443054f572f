"""A person signs in at a server that wants it, in the browser, and comes back to the inspector."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from tests.auth.stand_in import Reply, Scene, Stage
from tests.auth.test_proxy import REDIRECT, VERIFIER, Google, make_app
from tests.browser.servers.hostile import ATTACK
from tests.browser.test_hostile import assert_unharmed
from tests.inspector.test_sign_in import speak

from toolwire.auth.browser import digest
from toolwire.http import serving


class Thread:
    """A protected server and its authorization server, on a loop of their own."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.scene: Scene | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self.ready.wait(timeout=10)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Stage() as scene:
            scene.server.serve = speak  # type: ignore[method-assign]
            self.scene = scene
            self.ready.set()
            await self._stop.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=10)


@pytest.fixture
def scene(browser: Any) -> Iterator[Scene]:
    thread = Thread()
    assert thread.scene is not None
    yield thread.scene
    thread.end()


def test_a_person_signs_in_and_goes_on(inspect: Callable[..., Any], tab: Callable[..., Any], scene: Scene) -> None:
    opened = tab(inspect("inspect", scene.server.mcp), connected=False)
    page = opened.page
    page.goto(opened.inspected.url)
    dialog = page.locator("dialog.question")
    dialog.get_by_text("The server wants you to sign in").wait_for()
    opened.shot("sign-in")
    with page.context.expect_page() as another:
        dialog.get_by_role("button", name="Sign in").click()
    another.value.get_by_text("Signed in. Go back to the inspector.").wait_for()
    page.locator(".status.connected").wait_for()
    dialog.wait_for(state="hidden")
    assert scene.login.logins[0]["client_id"]
    page.locator("#drawer-signIn", has_text="8").click()
    page.locator(".step", has_text="Token request").click()
    answer = page.get_by_label("Answer", exact=True)
    answer.get_by_text("access_token").wait_for()
    expect(answer).to_contain_text("••••")
    assert next(iter(scene.login.valid)) not in page.content()
    opened.shot("sign-in-steps")


def test_a_sign_in_that_fails_says_what_to_do(
    inspect: Callable[..., Any], tab: Callable[..., Any], scene: Scene
) -> None:
    scene.login.document = {"registration_endpoint": None}
    opened = tab(inspect("inspect", scene.server.mcp), connected=False)
    page = opened.page
    page.goto(opened.inspected.url)
    page.get_by_role("button", name="See the steps of the sign-in").click()
    expect(page.locator("#drawer-signIn")).to_be_focused()
    page.locator(".step", has_text="cannot register themselves").click()
    page.locator(".advice", has_text="Register a client").wait_for()
    opened.shot("sign-in-failed")
    # The advice can be followed in the page.
    page.locator("summary", has_text="Signing in").click()
    page.get_by_label("Client ID").fill("by-hand")
    page.get_by_role("button", name="Connect", exact=True).click()
    with page.context.expect_page() as another:
        page.locator("dialog.question").get_by_role("button", name="Sign in").click()
    another.value.get_by_text("Signed in. Go back to the inspector.").wait_for()
    page.locator(".status.connected").wait_for()
    assert scene.login.logins[0]["client_id"] == "by-hand"


def test_a_hostile_authorization_server_runs_nothing(
    inspect: Callable[..., Any], tab: Callable[..., Any], scene: Scene
) -> None:
    scene.login.document = {"service_documentation": "javascript:window.owned=1", "note": ATTACK, ATTACK: ATTACK}
    scene.login.routes["/token"] = lambda request: Reply(
        400, {"error": ATTACK, "error_description": ATTACK}, headers={"x-attack": ATTACK}
    )
    opened = tab(inspect("inspect", scene.server.mcp), connected=False)
    page = opened.page
    page.goto(opened.inspected.url)
    with page.context.expect_page() as another:
        page.locator("dialog.question").get_by_role("button", name="Sign in").click()
    another.value.get_by_text("Signed in. Go back to the inspector.").wait_for()
    page.locator("#drawer-signIn").click()
    for name in ("Authorization server metadata", "Token request", "Not signed in"):
        page.locator(".step", has_text=name).click()
        page.locator(".side-head", has_text=name).wait_for()
        expect(page.locator(".side")).to_contain_text("<script>", use_inner_text=True)
    opened.shot("hostile-sign-in")
    assert page.locator(".side a").count() == 0
    assert_unharmed(opened)


class Proxy:
    """A server behind an OAuth proxy, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.sockets = serving.listen("127.0.0.1", 0, public=False)
        self.origin = serving.url_of(self.sockets, "127.0.0.1", "").replace("127.0.0.1", "localhost")
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self.ready.wait(timeout=10)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        upstream = {"authorize_url": f"{self.origin}/readyz", "token_url": f"{self.origin}/token"}
        app = make_app(Google(), time.time, upstream=upstream, public_url=self.origin)
        server = serving.HttpServer(app, self.sockets, drain=1.0)
        running = asyncio.create_task(server.serve(self.ready.set))
        await self._stop.wait()
        server.stop()
        await running

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=10)


def test_browser_names_the_origin_of_the_consent_form(browser: Any) -> None:
    proxy = Proxy()
    context = browser.new_context()
    try:
        registered = context.request.post(f"{proxy.origin}/oauth/register", data={"redirect_uris": [REDIRECT]}).json()
        asked = {
            "response_type": "code",
            "client_id": registered["client_id"],
            "redirect_uri": REDIRECT,
            "code_challenge": digest(VERIFIER),
            "code_challenge_method": "S256",
        }
        page = context.new_page()
        page.goto(f"{proxy.origin}/oauth/authorize?{urlencode(asked)}")
        with page.expect_request("**/oauth/authorize") as sent:
            page.get_by_role("button", name="Allow").click()
        page.wait_for_url("**/readyz?*")
        assert sent.value.all_headers()["origin"] == proxy.origin
    finally:
        context.close()
        proxy.end()
