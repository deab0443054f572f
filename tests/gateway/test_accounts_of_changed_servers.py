"""Accounts, pages and sign-ins after the server behind a name, or who is let in, was changed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace
from tests.auth.connecting import FRONTS, PUBLIC, SECRET, Accounts, Browser, World
from tests.auth.test_proxy import Google
from tests.cases import cases
from tests.http.httpclient import Answer

from toolwire import Gateway
from toolwire.auth import ApiKeys, Principal, ServerOAuth, UserOAuth, UserSecret
from toolwire.auth.errors import NotConnected
from toolwire.auth.vault.kinds import Kind
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker

FIRST, SECOND = "https://one.example/mcp", "https://two.example/mcp"


def of_secret(scene: World) -> Kind:
    return UserSecret()


def of_endpoints(scene: World) -> Kind:
    login = scene.login.url
    return UserOAuth(
        token_endpoint=f"{login}/token", authorization_endpoint=f"{login}/authorize", client_id="us", client_secret="s"
    )


def of_resource(scene: World) -> Kind:
    # The resource names the service, whatever the address that requests are sent to.
    return UserOAuth(
        token_endpoint=f"{scene.login.url}/token",
        authorization_endpoint=f"{scene.login.url}/authorize",
        resource=FIRST,
        client_id="us",
        client_secret="s",
    )


KINDS = {"secret": of_secret, "endpoints": of_endpoints, "resource": of_resource}


class Scene(World):
    """A gateway with one server `b`. Users connect accounts for it on the pages of the gateway."""

    gateway: Gateway

    @property
    def alice(self) -> Asker:
        return Asker(self.owner)

    @property
    def owner(self) -> Owner:
        provider = {"keys": "api-key", "server": self.entrance.url, "proxy": "google"}[self.front]
        return Owner.from_principal(Principal("alice", provider))

    async def link(self) -> str:
        link = await self.gateway.vault.connect_link("b", self.owner)
        assert link is not None
        return link

    async def is_connected(self) -> bool:
        try:
            await self.gateway.vault.obtain("b", self.alice)
        except NotConnected:
            return False
        return True

    async def prove(self, browser: Browser, link: str) -> Answer:
        """Open a link, and prove who sits there; return the page, or the redirect to the service."""
        page = await browser.open(link)
        key = {"key": f"the-key-of-{browser.user}-0123456789"} if self.front == "keys" else {}
        return await browser.submit(page, link, **key)


@asynccontextmanager
async def opened(kind: Callable[[World], Kind], front: str = "keys") -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        login = await stack.enter_async_context(Accounts())
        entrance = await stack.enter_async_context(Accounts(10_001))
        scene = Scene(front, login, entrance, Google())
        scene.gateway = Gateway("front", auth=scene.auth(), secret=SECRET)
        scene.gateway.add("b", FIRST, credentials=kind(scene))
        scene.app = scene.gateway.http_app(public_url=PUBLIC)
        stack.push_async_callback(scene.app.stop)
        yield scene


def swap(scene: Scene, kind: Kind, url: str = SECOND) -> None:
    scene.gateway.remove("b")
    scene.gateway.add("b", url, credentials=kind)


class CameBack(Exception):
    """The service sent a browser back to the gateway."""


async def url_of_answer(browser: Browser, act: Awaitable[Answer]) -> str:
    """Let a user agree at the service; return the address that the browser is sent back to, without opening it."""
    here = browser._here

    async def stop_at_callback(url: str, form: Mapping[str, str] | None) -> Answer:
        if "/connect/callback/b" in url:
            raise CameBack(url)
        return await here(url, form)

    browser._here = stop_at_callback  # type: ignore[method-assign]
    try:
        await act
    except CameBack as came:
        return str(came)
    finally:
        browser._here = here  # type: ignore[method-assign]
    raise AssertionError("the service was not asked")


@cases("kind", KINDS)
async def test_account_of_one_origin_is_not_used_for_another(kind: str) -> None:
    async with opened(KINDS[kind]) as scene:
        browser = Browser(scene, "alice")
        done = await browser.connect(await scene.link(), **({"secret": "a-secret"} if kind == "secret" else {}))
        assert b"is connected" in done.body
        assert await scene.is_connected()
        swap(scene, KINDS[kind](scene), "https://one.example/another-path")
        assert await scene.is_connected()
        swap(scene, KINDS[kind](scene))
        assert not await scene.is_connected()


@cases("kind", KINDS)
async def test_page_that_was_open_during_a_change_connects_nothing(kind: str) -> None:
    async with opened(KINDS[kind]) as scene:
        browser = Browser(scene, "alice")
        link = await scene.link()
        if kind == "secret":
            page = await scene.prove(browser, link)
            swap(scene, KINDS[kind](scene))
            refused = await browser.submit(page, link, secret="a-secret")
        else:
            came = await url_of_answer(browser, scene.prove(browser, link))
            swap(scene, KINDS[kind](scene))
            refused = await browser.open(came)
        assert refused.status == 400 and b"settings changed" in refused.body
        assert not await scene.is_connected()
        assert (await browser.open(link)).status == 400
        assert await scene.link() != link
        assert scene.login.asked("/token") == []


@cases("kind", KINDS)
async def test_button_of_a_page_before_a_change_connects_nothing(kind: str) -> None:
    async with opened(KINDS[kind]) as scene:
        browser = Browser(scene, "alice")
        page = await browser.connect(f"{PUBLIC}/connect/")
        swap(scene, KINDS[kind](scene))
        refused = await browser.open(f"{PUBLIC}/connect/", {"account": button(page)})
        assert refused.status == 400 and b"settings changed" in refused.body


async def test_account_of_a_replaced_server_stays_with_its_calls() -> None:
    async with opened(of_secret) as scene:
        vault = scene.gateway.vault
        before = vault.kind("b")
        await vault.store("b", scene.owner, "a-secret", identity=vault.identity("b"))
        swap(scene, UserSecret())
        with pytest.raises(NotConnected):
            await vault.obtain("b", scene.alice)
        assert (await vault.obtain("b", scene.alice, kind=before)).token == "a-secret"


def button(page: Answer) -> str:
    found = re.search(r'name="account"\s+value="([^"]*)"', page.body.decode())
    assert found is not None, page.body
    return unescape(found[1])


# --- users who are removed ---


def without_alice(scene: World) -> Any:
    if scene.front == "keys":
        return ApiKeys({"the-key-of-bob-0123456789": "bob"})
    return scene.auth(allow=["bob"])


def change_auth(scene: Scene, auth: Any) -> None:
    scene.gateway.apply_settings(replace(scene.gateway.settings, auth=auth))


@cases("front", FRONTS)
async def test_form_for_a_secret_refuses_a_user_who_was_removed(front: str) -> None:
    async with opened(of_secret, front) as scene:
        browser = Browser(scene, "alice")
        link = await link_of_page(scene, browser)
        change_auth(scene, without_alice(scene))
        assert (await browser.submit(link[1], link[0], secret="a-secret")).status == 400
        assert [each async for each in scene.gateway.vault.entries()] == []
        change_auth(scene, scene.auth())
        assert b"is connected" in (await browser.submit(link[1], link[0], secret="a-secret")).body


async def link_of_page(scene: Scene, browser: Browser) -> tuple[str, Answer]:
    """Press the button of an account; return the address and the page with the form for its secret."""
    page = await browser.connect(f"{PUBLIC}/connect/")
    page = await browser.open(f"{PUBLIC}/connect/", {"account": button(page)})
    found = re.search(r'action="([^"]*)"', page.body.decode())
    assert found is not None, page.body
    return unescape(found[1]), page


@cases("front", FRONTS)
async def test_page_of_accounts_refuses_a_user_who_was_removed(front: str) -> None:
    async with opened(of_secret, front) as scene:
        browser = Browser(scene, "alice")
        page = await browser.connect(f"{PUBLIC}/connect/")
        change_auth(scene, without_alice(scene))
        assert (await browser.open(f"{PUBLIC}/connect/", {"account": button(page)})).status == 400


@cases("front", FRONTS)
async def test_answer_of_a_service_is_refused_for_a_user_who_was_removed(front: str) -> None:
    async with opened(of_endpoints, front) as scene:
        browser = Browser(scene, "alice")
        page = await browser.connect(f"{PUBLIC}/connect/")
        came = await url_of_answer(browser, browser.open(f"{PUBLIC}/connect/", {"account": button(page)}))
        change_auth(scene, without_alice(scene))
        assert (await browser.open(came)).status == 400
        assert scene.login.asked("/token") == []


@pytest.mark.parametrize("connects", [True, False])
async def test_operator_who_was_removed_does_not_change_the_account_of_the_server(connects: bool) -> None:
    def kind(*operators: str) -> Kind:
        login = scene.login.url
        return ServerOAuth(
            token_endpoint=f"{login}/token",
            authorization_endpoint=f"{login}/authorize",
            client_id="us",
            client_secret="s",
            operators=operators,
        )

    async with opened(of_secret) as scene:
        swap(scene, kind("alice", "bob"), FIRST)
        browser = Browser(scene, "alice")
        page = await browser.connect(f"{PUBLIC}/connect/")
        if not connects:
            done = await browser.open(f"{PUBLIC}/connect/", {"account": button(page)})
            assert b"is connected" in done.body
            page = await browser.connect(f"{PUBLIC}/connect/")
        pressed = re.findall(r'name="account"\s+value="([^"]*)"', page.body.decode())[0 if connects else 1]
        swap(scene, kind("bob"), FIRST)
        refused = await browser.open(f"{PUBLIC}/connect/", {"account": unescape(pressed)})
        assert refused.status == 400 and b"not allowed" in refused.body
        assert len([each async for each in scene.gateway.vault.entries()]) == (0 if connects else 1)
