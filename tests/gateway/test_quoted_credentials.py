"""Servers behind a gateway that quote credentials, wherever they can: neither the log nor a caller sees one."""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.client.scripted_http import DISCOVERED, URL, Reply, Request, event, initialized, result, rpc, stream
from tests.gateway.backs import until
from tests.gateway.test_hostile_backs import over_http

from toolwire import testing
from toolwire.auth import NoCredential, Principal, StaticSecret, UserSecret
from toolwire.auth.vault.records import Owner
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ProtocolError

SECRET = "Zq9xYwkT0123456789LmNopQ"
WORD = "mNopQ-another-word-9876"


def error(request: Request, said: str, status: int = 200) -> Reply:
    failed = {"code": -32000, "message": f"saw {said}", "data": {"token": [said]}}
    return Reply(status, body=rpc(id=request.id, error=failed))


def listing(request: Request, *tools: Any, **members: Any) -> Reply:
    return result(request, **{"tools": list(tools), "ttlMs": 0, "cacheScope": "private", **members})


#: The ways of a server to quote what it got: the method that it answers, and the answer.
WAYS: dict[str, tuple[str, Callable[[Request, str], Reply]]] = {
    "broken JSON": ("tools/call", lambda request, said: Reply(body=b'{"jsonrpc": "2.0", "x": "' + said.encode())),
    "no JSON-RPC": ("tools/call", lambda request, said: Reply(body=msgspec.json.encode({"jsonrpc": said, "id": said}))),
    "cut in the middle": ("tools/call", lambda request, said: Reply(body=b"." * 85 + said.encode())),
    "in a stream": ("tools/call", lambda request, said: stream(event(said.encode()))),
    "result type": ("tools/call", lambda request, said: result(request, resultType=said)),
    "error": ("tools/call", error),
    "error with 400": ("tools/call", lambda request, said: error(request, said, 400)),
    "error with 500": ("tools/call", lambda request, said: error(request, said, 500)),
    "text with 404": ("tools/call", lambda request, said: Reply(404, {"content-type": "text/plain"}, said.encode())),
    "text with 403": ("tools/call", lambda request, said: Reply(403, {"content-type": "text/plain"}, said.encode())),
    "in base64": ("tools/call", lambda request, said: error(request, base64.b64encode(said.encode()).decode())),
    "broken list": ("tools/list", lambda request, said: Reply(body=b"{" + said.encode())),
    "error of a list": ("tools/list", error),
    "result type of a list": ("tools/list", lambda request, said: result(request, resultType=said)),
    "broken entry": (
        "tools/list",
        lambda request, said: listing(
            request, {"name": "k", "inputSchema": {"type": "object"}, "execution": {"taskSupport": said}}
        ),
    ),
    "name of a broken entry": (
        "tools/list",
        lambda request, said: listing(request, {"name": said, "inputSchema": {"type": "object"}, "description": 7}),
    ),
    "broken discover": ("server/discover", lambda request, said: Reply(body=b"{" + said.encode())),
    "name of an extension": (
        "server/discover",
        lambda request, said: result(
            request, **{**DISCOVERED, "capabilities": {"tools": {}, "extensions": {f"org.bad/{said}": 7}}}
        ),
    ),
    "stream of changes": ("subscriptions/listen", lambda request, said: stream(event(said.encode()))),
    "refused subscription": ("subscriptions/listen", error),
}


def quoting(way: str, said: str, **options: Any) -> HttpTarget:
    if way == "revision":
        refused, opened = Reply(400, body=b"{}"), lambda request, count: initialized(request, revision=said)
        return HttpTarget(URL, pool=over_http([], server_discover=refused, initialize=opened)._pool, **options)
    method, answer = WAYS[way]
    script = {method.replace("/", "_"): lambda request, count: answer(request, said)}
    return HttpTarget(URL, pool=over_http([], **script)._pool, **options)


async def run_against(gateway: Gateway, target: HttpTarget, **options: Any) -> str:
    """Call and list a server through a gateway; return what its client got, and what operators see."""
    gateway.add("bad", target, **options)
    caller = Principal("alice", "https://entrance.example")
    # Only a client of an earlier revision is not handed on what only it can judge.
    async with testing.connect(gateway, principal=caller, revision="2025-06-18") as (client, _):
        await client.list_tools()
        try:
            answer = (await client.call_tool("bad_run")).content
        except ProtocolError as failed:
            answer = (str(failed), failed.data)
        back = gateway.backs["bad"]
        return f"{answer} {back.error} {back.left_out}"


def forms(said: str) -> list[str]:
    # The ends depend on what stands beside them.
    return [said, said[:13], base64.b64encode(said.encode()).decode()[:24]]


@cases("way", [*WAYS, "revision"])
@cases("place", ["header", "query", "auth"])
async def test_credential_of_the_gateway_is_quoted_nowhere(
    way: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    seen = {}
    for said in (SECRET, WORD):
        caplog.clear()
        options: dict[str, Any] = {"headers": {"x-key": SECRET}} if place == "header" else {}
        options |= {"auth": SECRET} if place == "auth" else {}
        target = quoting(way, said, **options)
        if place == "query":
            target = HttpTarget(f"{URL}?api_key={SECRET}", pool=target._pool)
        got = await run_against(Gateway("front"), target)
        seen[said] = f"{caplog.text} {got}"
    assert not [form for form in forms(SECRET) if form in seen[SECRET]]
    assert any(form in seen[WORD] for form in forms(WORD)), "what is no credential is shown"


@cases("way", [*WAYS, "revision"])
@cases("lists", [True, False])
async def test_server_with_accounts_of_callers_is_not_quoted_above_debug(
    way: str, lists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for said in (SECRET, WORD):
        caplog.clear()
        gateway = Gateway("front", secret="s" * 32)
        target = quoting(way, said)
        options = {"list_credentials": NoCredential()} if lists else {}
        gateway.add("bad", target, credentials=UserSecret(), **options)
        caller = Principal("alice", "https://entrance.example")
        await gateway.vault.store("bad", Owner.from_principal(caller), SECRET, identity=gateway.vault.identity("bad"))
        async with testing.connect(gateway, principal=caller, revision="2025-06-18") as (client, _):
            await client.list_tools()
            try:
                got = str((await client.call_tool("bad_run")).content)
            except ProtocolError as failed:
                got = f"{failed} {failed.data}"
        loud = "\n".join(each.getMessage() for each in caplog.records if each.levelno > logging.DEBUG)
        assert not [form for form in forms(said) if form in loud]
        assert not [form for form in forms(SECRET) if form in got]


async def test_log_names_a_server_before_it_has_answered(caplog: pytest.LogCaptureFixture) -> None:
    target = quoting("broken discover", "what")
    await run_against(Gateway("front"), target)
    ignored = [each.getMessage() for each in caplog.records if "ignored a message" in each.getMessage()]
    assert ignored and all(each.startswith("bad: ") for each in ignored)


TRACE = """
import os, sys
from toolwire import Server

server = Server("b")

@server.tool
def trace() -> str:
    try:
        raise ValueError(f"token {os.environ['TOKEN']} is bad")
    except ValueError:
        import traceback
        traceback.print_exc()
    return "done"

@server.tool
def die() -> str:
    print(f"fatal: bad token {os.environ['TOKEN']}", file=sys.stderr, flush=True)
    os._exit(1)

server.run()
"""


@pytest.mark.parametrize("kind", ["env", "static", "user"])
async def test_process_quotes_its_credential_neither_in_tracebacks_nor_at_its_end(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    script = tmp_path / "child.py"
    script.write_text(TRACE)
    gateway = Gateway("front", secret="s" * 32)
    lines: list[str] = []
    gateway.on_stderr = lines.append
    options: dict[str, Any] = {
        "env": {"env": {"TOKEN": SECRET}},
        "static": {"credentials": StaticSecret(SECRET), "credential_variable": "TOKEN"},
        "user": {"credentials": UserSecret(), "credential_variable": "TOKEN"},
    }[kind]
    gateway.add("b", [sys.executable, str(script)], **options)
    alice = Principal("alice", "https://entrance.example")
    if kind == "user":
        identity = gateway.vault.identity("b")
        await gateway.vault.store("b", Owner.from_principal(alice), SECRET, identity=identity)
    async with testing.connect(gateway, principal=alice) as (client, _):
        assert (await client.call_tool("b_trace")).text == "done"
        await until(lambda: any("is bad" in each for each in lines))
        failed = await client.call_tool("b_die")
        assert failed.is_error
    loud = "\n".join(each.getMessage() for each in caplog.records if each.levelno > logging.DEBUG)
    assert SECRET not in f"{caplog.text} {failed.text} {lines}"
    assert ("Traceback" in loud) is ("bad token [redacted]" in loud) is (kind != "user")
