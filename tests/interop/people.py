"""Two users with browsers of their own, and their accounts at npm's `oidc-provider`."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from tests.http.httpclient import Answer, HttpClient

from toolwire import Client
from toolwire.auth import ApiKeys
from toolwire.auth.vault.records import Owner
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool

#: The address under which users know the server.
PUBLIC = "http://127.0.0.1:8799"
KEYS = {user: f"the-key-of-{user}-0123456789" for user in ("alice", "bob")}
AUTH = ApiKeys({KEYS[user]: user for user in KEYS})


class Person:
    """Somebody at a browser of their own, who is signed in at the provider under another name than here."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.name = f"{user}-at-the-provider"
        self.visits = 0
        self.app: Any = None
        self._cookies: dict[str, str] = {}
        self._browser = urllib.request.build_opener(_Stops(), urllib.request.HTTPCookieProcessor(CookieJar()))

    async def connect(self, link: str) -> Answer:
        self.visits += 1
        page = await self._here(link, None)
        found = re.search(r'name="page" value="([^"]*)"', page.body.decode())
        assert found is not None, page.body
        answer = await self._here(link, {"page": unescape(found[1]), "key": KEYS[self.user]})
        url = answer.headers["location"]
        back = await asyncio.to_thread(self._elsewhere, f"{url}&{urlencode({'login_hint': self.name})}")
        return await self._here(back, None)

    async def _here(self, url: str, form: dict[str, str] | None) -> Answer:
        parts = urlsplit(url)
        cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = {"host": "127.0.0.1:8799", **({"cookie": cookie} if cookie else {})}
        client = HttpClient(self.app, path=parts.path, headers=headers)
        body = b"" if form is None else urlencode(form).encode()
        answer = await client.start("GET" if form is None else "POST", body=body, query=parts.query).finished()
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer

    def _elsewhere(self, url: str) -> str:
        for _ in range(10):
            if url.startswith(PUBLIC):
                return url
            try:
                page = self._browser.open(url, timeout=30)
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code in (302, 303), error.read()
                    url = urljoin(url, error.headers["location"])
            else:
                raise AssertionError(page.read())
        raise AssertionError("too many redirects")


class _Stops(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


@asynccontextmanager
async def client_of(person: Person, app: Any, revision: str) -> AsyncIterator[Client]:
    async def opened(message: str, params: Any) -> bool:
        answer = await person.connect(params.url)
        assert b"is connected" in answer.body, answer.body
        return True

    pool = AsgiPool(app)
    target = HttpTarget(f"{PUBLIC}/mcp", auth=KEYS[person.user], pool=pool)
    async with Client(target, revision=revision, elicit=Elicitation(url=opened)) as client:
        yield client
    await pool.close()


async def owner_of(person: Person) -> Owner:
    return Owner.from_principal(await AUTH.verify(KEYS[person.user]))
