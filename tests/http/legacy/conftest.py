"""An application with legacy sessions, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.http.httpclient import SessionClient, serving
from tests.http.legacy.session_server import Gate, make_server

from toolwire.http.asgi import HttpApp


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def app(gate: Gate) -> HttpApp:
    app: HttpApp = make_server(gate).http_app()
    return app


@pytest.fixture
async def client(app: HttpApp) -> AsyncIterator[SessionClient]:
    async with serving(app) as [client]:
        yield client
