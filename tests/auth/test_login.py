"""How a person is asked: the browser, its way back, and machines that have none."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from tests.auth.stand_in import Scene, Stage
from tests.cases import cases

from toolwire.auth import MemoryStorage, NeedsLogin, OAuth, SignInFailed
from toolwire.auth.client import login as login_module
from toolwire.auth.client.callback import CallbackServer
from toolwire.auth.client.login import has_browser
from toolwire.auth.loopback_server import MAX_HEADS


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        yield made


class Browser:
    """Follows redirects like a browser does, in a thread of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.urls: list[str] = []
        self.pages: list[bytes] = []
        self.done = threading.Event()
        monkeypatch.setattr(login_module, "has_browser", lambda: True)
        monkeypatch.setattr(webbrowser, "open", self.open)

    def open(self, url: str) -> bool:
        self.urls.append(url)
        threading.Thread(target=self._visit, args=(url,)).start()
        return True

    def _visit(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=10) as page:
            self.pages.append(page.read())
        self.done.set()


@pytest.mark.covers("6.2.18")
async def test_the_browser_comes_back_to_this_machine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(monkeypatch)
    assert await scene.call(OAuth()) == 200
    (url,) = browser.urls
    assert url.startswith(f"{scene.login.url}/authorize?")
    redirect_uri = scene.login.logins[0]["redirect_uri"]
    assert urlsplit(redirect_uri).hostname == "127.0.0.1"
    (client,) = scene.login.clients.values()
    assert client["redirect_uris"] == [redirect_uri]
    await asyncio.to_thread(browser.done.wait, 10)
    assert b"close this window" in browser.pages[0]


async def test_the_registered_port_is_used_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    Browser(monkeypatch)
    auth = OAuth(storage=MemoryStorage())
    assert await scene.call(auth) == 200
    await auth.forget(scene.server.mcp)
    assert await scene.call(auth) == 200
    first, second = (each["redirect_uri"] for each in scene.login.logins)
    assert first == second
    assert len(scene.login.clients) == 1


async def test_a_registered_port_that_is_taken_now(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    Browser(monkeypatch)
    auth = OAuth(storage=MemoryStorage())
    assert await scene.call(auth) == 200
    await auth.forget(scene.server.mcp)
    async with CallbackServer(scene.login.logins[0]["redirect_uri"]):
        assert await scene.call(auth) == 200
    assert len(scene.login.clients) == 2


async def test_no_browser_is_a_needs_login(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "has_browser", lambda: False)
    with pytest.raises(NeedsLogin):
        await scene.call(OAuth())
    monkeypatch.setattr(login_module, "has_browser", lambda: True)
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    with pytest.raises(NeedsLogin):
        await scene.call(OAuth())


async def test_an_announced_page_may_be_opened_by_hand(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(monkeypatch)
    monkeypatch.setattr(login_module, "has_browser", lambda: False)
    assert await scene.call(OAuth(announce=browser.open)) == 200
    assert len(browser.urls) == 1
    monkeypatch.setattr(login_module, "has_browser", lambda: True)
    announced: list[str] = []
    assert await scene.call(OAuth(announce=announced.append)) == 200
    assert announced == browser.urls[1:]


async def test_nobody_signs_in(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "has_browser", lambda: True)
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    storage = MemoryStorage()
    with pytest.raises(SignInFailed, match="There was no sign-in"):
        await scene.call(OAuth(login_timeout=0.05, storage=storage))
    # The authorization server may not know the client any more, so the next attempt registers it again.
    assert await storage_has_client(storage, scene) is False


async def storage_has_client(storage: MemoryStorage, scene: Scene) -> bool:
    return storage.load(f"client {scene.login.url}") is not None


def test_a_machine_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not has_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_browser()


# --- the callback server ---


async def status(url: str) -> int:
    def visit() -> int:
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                return int(page.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    return await asyncio.to_thread(visit)


async def test_only_the_expected_state_ends_the_wait() -> None:
    async with CallbackServer() as callback:
        assert await status(f"{callback.redirect_uri}?state=&code=x") == 404  # Nothing is expected yet.
        callback.expect("s1")
        for wrong in ("?code=x", "?code=x&state=s2", "?code=x&state=%C3%A9", "/more?state=s1"):
            assert await status(callback.redirect_uri + wrong) == 404
        assert await status(f"{callback.redirect_uri}?code=x&state=s1") == 200
        assert await callback.answer(5) == "?code=x&state=s1"
        assert await status(f"{callback.redirect_uri}?code=y&state=s1") == 200
        assert await callback.answer(5) == "?code=x&state=s1"


@cases(
    "said",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET //[?state=s1 HTTP/1.1\r\n\r\n",
        b"POST /callback?state=s1 HTTP/1.1\r\n\r\n",
        b"x" * 40_000,
    ],
)
async def test_noise_does_not_end_the_wait(said: bytes) -> None:
    async with CallbackServer() as callback:
        callback.expect("s1")
        parts = urlsplit(callback.redirect_uri)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(said)
        writer.write_eof()
        assert b"200 OK" not in await reader.read()
        writer.close()
        with pytest.raises(SignInFailed, match="There was no sign-in"):
            await callback.answer(0)


async def test_a_connection_that_says_nothing_does_not_hold_up_the_end() -> None:
    async with CallbackServer() as callback:
        parts = urlsplit(callback.redirect_uri)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        callback.expect("s1")
        assert await status(f"{callback.redirect_uri}?code=x&state=s1") == 200
    assert await reader.read() == b""
    writer.close()


@cases("held", [b"", b"GET / HTTP/1.1\r\n"])
async def test_held_connections_do_not_keep_the_answer_out(held: bytes) -> None:
    async with CallbackServer() as callback:
        callback.expect("s1")
        parts = urlsplit(callback.redirect_uri)
        writers = []
        for _ in range(MAX_HEADS + 16):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(held)
            writers.append(writer)
        assert await status(f"{callback.redirect_uri}?code=x&state=s1") == 200
        assert await callback.answer(5) == "?code=x&state=s1"
    for writer in writers:
        writer.close()


@cases("said", [b"\x16\x03\x01", b"POST /", b"GET http://", b"GETX", b"\r\n"])
async def test_what_is_no_request_for_the_page_ends_at_once(said: bytes) -> None:
    async with CallbackServer() as callback:
        parts = urlsplit(callback.redirect_uri)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(said)
        async with asyncio.timeout(5):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_a_taken_port_says_so() -> None:
    async with CallbackServer() as callback:
        with pytest.raises(SignInFailed, match="is taken"):
            async with CallbackServer(callback.redirect_uri):
                pass
