"""A protected MCP server and its authorization server, on real ports of this machine, as tame or wild as a test wants.

Nothing here speaks MCP: what counts is who is let in.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from toolwire.auth import Auth
from toolwire.http1.pool import HttpPool


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


@dataclass
class Reply:
    status: int = 200
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


Handler = Callable[[Request], Reply]


class Site:
    """An HTTP server with a function for each path; it remembers what it was asked."""

    def __init__(self) -> None:
        self.routes: dict[str, Handler] = {}
        self.requests: list[Request] = []
        self.silent: set[str] = set()
        """Paths whose requests are never answered."""
        self.noticed: asyncio.Event = asyncio.Event()
        """Set when a request for one of them is there."""
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    def asked(self, path: str) -> list[Request]:
        return [each for each in self.requests if each.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                parts = urlsplit(target)
                request = Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
                self.requests.append(request)
                if request.path in self.silent:
                    self.noticed.set()
                    await reader.read()  # It returns when the other side hangs up.
                    return
                handler = self.routes.get(parts.path)
                reply = Reply(404) if handler is None else handler(request)
                raw = reply.raw if reply.raw is not None else json.dumps(reply.document).encode()
                sent = {"content-type": "application/json", **reply.headers, "content-length": str(len(raw))}
                lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
                writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode("latin-1") + raw)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            del self._serving[task]
            writer.close()


class AuthorizationServer(Site):
    """Registers every client, signs every user in, and rotates refresh tokens.

    A second use of a refresh token revokes all tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.document: dict[str, Any] = {}
        self.expires_in: int | None = 3600
        self.refuses: dict[str, str] = {}
        self.iss: str | None = None
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, str] = {}
        self.spent: set[str] = set()
        self.reuses = 0
        self.valid: dict[str, str] = {}
        self.clients: dict[str, dict[str, Any]] = {}
        self._number = count(1)
        self.routes = {
            "/.well-known/oauth-authorization-server": lambda request: Reply(document=self.metadata()),
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
        }

    def metadata(self) -> dict[str, Any]:
        document = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            **self.document,
        }
        return {name: value for name, value in document.items() if value is not None}

    @property
    def logins(self) -> list[dict[str, str]]:
        return [each.query for each in self.asked("/authorize")]

    @property
    def grants(self) -> list[dict[str, str]]:
        return [each.form for each in self.asked("/token")]

    def _register(self, request: Request) -> Reply:
        client_id = f"client-{next(self._number)}"
        self.clients[client_id] = json.loads(request.body)
        return Reply(201, {"client_id": client_id, **self.clients[client_id]})

    def _authorize(self, request: Request) -> Reply:
        query = request.query
        code = f"code-{next(self._number)}"
        self.codes[code] = query
        answer = {"code": code, "state": query["state"]} | ({} if self.iss is None else {"iss": self.iss})
        return Reply(302, headers={"location": f"{query['redirect_uri']}?{urlencode(answer)}"})

    def _token(self, request: Request) -> Reply:
        form = request.form
        refusal = self.refuses.get(form["grant_type"])
        if refusal is not None:
            return Reply(400, {"error": refusal})
        scope = form.get("scope", "")
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert asked["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            assert asked["redirect_uri"] == form["redirect_uri"]
            assert asked.get("resource") == form.get("resource")
            scope = asked.get("scope", "")
        elif form["grant_type"] == "refresh_token":
            known = self.refresh_tokens.pop(form["refresh_token"], None)
            if form["refresh_token"] in self.spent:
                self.reuses += 1
                self.refresh_tokens.clear()
            self.spent.add(form["refresh_token"])
            if known is None:
                return Reply(400, {"error": "invalid_grant"})
            scope = known
        return Reply(document=self.issue(scope))

    def issue(self, scope: str) -> dict[str, Any]:
        number = next(self._number)
        self.valid[f"token-{number}"] = scope
        self.refresh_tokens[f"refresh-{number}"] = scope
        document = {"access_token": f"token-{number}", "token_type": "Bearer", "refresh_token": f"refresh-{number}"}
        return document | ({} if self.expires_in is None else {"expires_in": self.expires_in})

    def expire(self) -> None:
        """Every access token is worthless from now on."""
        self.valid.clear()


class ProtectedServer(Site):
    """Lets in who has a token of its authorization server; `needs` are the scopes that a path wants."""

    def __init__(self, login: AuthorizationServer) -> None:
        super().__init__()
        self.login = login
        self.needs: dict[str, str] = {}
        self.resource: dict[str, Any] = {}
        self.challenge: dict[str, str] = {}
        self.routes = {
            "/mcp": self._call,
            "/mcp/write": self._call,
            "/.well-known/oauth-protected-resource/mcp": lambda request: Reply(document=self.metadata()),
        }

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def metadata(self) -> dict[str, Any]:
        return {"resource": self.mcp, "authorization_servers": [self.login.url], **self.resource}

    def _call(self, request: Request) -> Reply:
        token = request.headers.get("authorization", "").partition(" ")[2]
        if token not in self.login.valid:
            return self.refuse(401, {})
        needed = self.needs.get(request.path, "")
        if not set(needed.split()) <= set(self.login.valid[token].split()):
            return self.refuse(403, {"error": "insufficient_scope", "scope": needed})
        return self.serve(request)

    def serve(self, request: Request) -> Reply:
        """What whoever is let in gets."""
        return Reply(document="in")

    def refuse(self, status: int, more: Mapping[str, str]) -> Reply:
        where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        said = {"resource_metadata": where, **self.challenge, **more}
        parameters = ", ".join(f'{name}="{text}"' for name, text in said.items())
        return Reply(status, headers={"www-authenticate": f"Bearer {parameters}"})


@dataclass
class Scene:
    """A server, its authorization server, and somebody in front of the browser."""

    server: ProtectedServer
    login: AuthorizationServer
    pool: HttpPool
    visits: int = 0

    async def person(self, url: str) -> str:
        """Signs in: the address that the browser is sent to in the end."""
        self.visits += 1
        async with await self.pool.request("GET", url, redirects=0) as response:
            location = response.header("location")
        assert location is not None
        return location

    async def call(self, auth: Auth, path: str = "/mcp") -> int:
        """What a transport does with one request; the status it ends with."""
        url = self.server.url + path
        while True:
            headers = await auth.headers("POST", url)
            async with await self.pool.request("POST", url, headers=headers, body=b"{}") as response:
                if response.status not in (401, 403):
                    return response.status
                if not await auth.challenged("POST", url, response.status, response.headers):
                    return response.status


class Stage:
    """`async with Stage() as scene`."""

    async def __aenter__(self) -> Scene:
        self._stack = AsyncExitStack()
        login = await self._stack.enter_async_context(AuthorizationServer())
        server = await self._stack.enter_async_context(ProtectedServer(login))
        pool = await self._stack.enter_async_context(HttpPool())
        return Scene(server, login, pool)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


def basic(request: Request) -> tuple[str, str]:
    """The client that a request proves itself as, by HTTP Basic."""
    pair = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    client_id, _, secret = pair.partition(":")
    return unquote_plus(client_id), unquote_plus(secret)


def query_of(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query)
