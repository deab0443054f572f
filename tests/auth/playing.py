"""Plays a flow against pages that are given by hand, and remembers what it asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from toolwire.auth.flow.messages import Fetch, Fetched, Flow
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered

T = TypeVar("T")

Page = Fetched | dict[str, Any] | Callable[[Fetch], Fetched]

SERVER = "https://api.example.org/mcp"
ISSUER = "https://login.example.org"


def answer(document: object, status: int = 200, **headers: str) -> Fetched:
    return Fetched(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(document).encode()
    )


def form(request: Fetch) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode()))


def server_document(issuer: str = ISSUER, **changes: object) -> dict[str, Any]:
    document: dict[str, Any] = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "code_challenge_methods_supported": ["S256"],
        **changes,
    }
    return {name: value for name, value in document.items() if value is not None}


def metadata(**changes: Any) -> AuthorizationServer:
    return AuthorizationServer(**server_document(**changes))


def discovered(**changes: Any) -> Discovered:
    return Discovered(metadata(**changes), SERVER)


class Site:
    """Pages by URL; whatever else is asked for is not there."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = dict(pages)
        self.asked: list[Fetch] = []

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.asked]

    def serve(self, request: Fetch) -> Fetched:
        self.asked.append(request)
        assert len(self.asked) < 50, "a flow has to end"
        page = self.pages.get(request.url)
        if page is None:
            return Fetched(404, {}, b"")
        if isinstance(page, Fetched):
            return page
        return answer(page) if isinstance(page, dict) else page(request)

    def play(self, flow: Flow[T]) -> T:
        try:
            request = next(flow)
            while True:
                request = flow.send(self.serve(request))
        except StopIteration as done:
            result: T = done.value
            return result
