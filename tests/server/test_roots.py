"""Asking for the client's directories, on every revision."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.server.answering import EVERYTHING, call
from tests.wireclient import LEGACY, MODERN, REVISIONS, Message, Refusal, connect

from toolwire import Context, Server, testing
from toolwire.server.context import SyncContext

every_revision = pytest.mark.parametrize("revision", REVISIONS)


@pytest.fixture
def server() -> Server:
    server = Server("roots")

    @server.tool
    async def where(ctx: Context) -> str:
        roots = await ctx.list_roots()
        return " ".join(f"{root.uri}={root.name}" for root in roots) or "nowhere"

    @server.tool
    def where_plainly(ctx: SyncContext) -> str:
        return " ".join(root.uri for root in ctx.list_roots(key="roots")) or "nowhere"

    return server


def answer(kind: str, params: Message) -> Message:
    return {"roots": [{"uri": "file:///home/ada", "name": "Home"}, {"uri": "file:///srv"}]}


@every_revision
@pytest.mark.covers("1.14.2")
async def test_the_clients_roots(revision: str, server: Server) -> None:
    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "where", {}, answer)
        assert done.text == "file:///home/ada=Home file:///srv=UNSET"
        assert [(kind, params) for kind, params in done.asked] == [("roots/list", {})]
        assert (await call(client, "where_plainly", {}, answer)).text == "file:///home/ada file:///srv"
        # Roots may vanish.
        assert (await call(client, "where", {}, lambda kind, params: {"roots": []})).text == "nowhere"


async def test_on_2026_07_28_roots_are_a_question_like_any_other(server: Server) -> None:
    async with connect(server, MODERN, EVERYTHING) as client:
        result = await client.call("where_plainly")
        assert result["inputRequests"] == {"roots": {"method": "roots/list"}}


@every_revision
@pytest.mark.covers("1.14.4", "1.14.1")
async def test_a_client_without_roots_is_not_asked(revision: str, server: Server) -> None:
    async with connect(server, revision, {"sampling": {}}) as client:
        done = await call(client, "where", {}, answer)
        assert done.asked == []
        if revision == MODERN:
            assert done.error["code"] == -32021
            assert done.error["data"] == {"requiredCapabilities": {"roots": {}}}
        else:
            assert done.failure == "The client does not support roots"


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.covers("1.14.3")
async def test_a_client_that_fails_fails_the_tool(revision: str, server: Server) -> None:
    def fail(kind: str, params: Message) -> Message:
        raise Refusal(-32603, "Internal error")

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "where", {}, fail)
        assert done.failure == "The client refused roots/list: Internal error"
        done = await call(client, "where", {}, lambda kind, params: {"roots": "everywhere"})
        assert done.failure == "The client's answer to the roots request cannot be read"


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.covers("1.14.1")
async def test_a_change_of_roots_reaches_the_server(revision: str, server: Server) -> None:
    changes: list[Any] = []
    server.on_notification("notifications/roots/list_changed", changes.append)
    async with connect(server, revision, {"roots": {"listChanged": True}}) as client:
        client.notify("notifications/roots/list_changed")
        await client.request("ping")
    assert len(changes) == 1


@pytest.mark.covers("CAP-4")
async def test_on_2026_07_28_the_developer_is_warned_once(server: Server, warned: set[str]) -> None:
    warned.clear()
    async with connect(server, MODERN, EVERYTHING) as client:
        with pytest.warns(DeprecationWarning, match="Roots is deprecated since protocol revision 2026-07-28") as caught:
            assert (await call(client, "where", {}, answer)).text
        assert [warning.filename for warning in caught] == [__file__]
        assert (await call(client, "where", {}, answer)).text


@pytest.mark.parametrize("revision", LEGACY)
async def test_before_there_is_nothing_to_warn_of(revision: str, server: Server, warned: set[str]) -> None:
    warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with connect(server, revision, EVERYTHING) as client:
            assert (await call(client, "where", {}, answer)).text
    assert caught == []


@every_revision
async def test_with_toolwires_own_client(revision: str, server: Server, tmp_path: Path) -> None:
    async with testing.connect(server, revision=revision, roots=[tmp_path]) as (client, _):
        assert (await client.call_tool("where_plainly")).text == tmp_path.as_uri()
