"""`toolwire doctor`: each thing that it checks, on a server that does it right and on one that does not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.http_process import started

from toolwire.cli import doctor, doctor_http, doctor_stdio
from toolwire.cli.diagnosis import Diagnosis, good
from toolwire.cli.screen import results
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import Unreachable

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"

# --- over stdio ------------------------------------------------------------------------------------------------------

OLD = """
import json, sys, time
{before}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "n", "version": "1"}}, "tools": {tools}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
{after}
"""


def server(folder: Path, before: str = "", after: str = "", tools: str = "[]") -> str:
    file = folder / "old.py"
    file.write_text(OLD.format(before=before, after=after, tools=tools))
    return str(file)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine no program starts or ends quickly."""
    monkeypatch.setattr(doctor_stdio, "FAST_SECONDS", 60.0)
    monkeypatch.setattr(doctor_stdio, "HOST_SECONDS", 30.0)
    monkeypatch.setattr(doctor_stdio, "LEAVING_SECONDS", 30.0)


def test_a_good_server_is_told_so(toolwire: Command) -> None:
    done = toolwire("doctor", str(HELLO))
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("ok  start: the first answer came after ")
    assert lines[1:] == [
        "ok  standard output: nothing but messages",
        "ok  end: it left when its input ended",
        "ok  revisions: 2026-07-28, and 2025-11-25 for the older clients",
        "ok  tools: 2, and the linter has no complaint",
        "--  leaving: no tool declares readOnlyHint and needs no arguments: name a tool with --call",
        "",
        "5 good, 0 to look at, 0 to mend.",
    ]


@pytest.mark.parametrize(
    ("parts", "check", "says"),
    [
        ({"before": "print('\\x1b[2Jbanner', flush=True)"}, "standard output", "the first: '\\x1b[2Jbanner'"),
        ({"before": "sys.exit('no key')"}, "start", "it ended with code 1; its last words: no key"),
        (
            {"tools": "[{'name': 'a b', 'inputSchema': {'type': 'object'}}]"},
            "tools",
            "the first in a b: the name is not",
        ),
    ],
)
def test_what_is_wrong_over_stdio(
    toolwire: Command, tmp_path: Path, parts: dict[str, str], check: str, says: str
) -> None:
    done = toolwire("doctor", server(tmp_path, **parts), "--json")
    assert done.status == 1
    found = {each["check"]: each for each in json.loads(done.out)}
    assert found[check]["verdict"] == "bad"
    assert says in found[check]["found"]
    assert found[check]["advice"]


async def test_a_server_that_stays_when_its_input_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_stdio, "LEAVING_SECONDS", 0.05)
    stays = server(tmp_path, after="while True: time.sleep(1)")
    found = [each async for each in doctor_stdio.check([sys.executable, stays], None, None, 30.0)]
    assert [each.verdict for each in found if each.check == "end"] == ["bad"]


async def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import sys\nsys.stdin.read()")
    found = [each async for each in doctor_stdio.check([sys.executable, str(silent)], None, None, 0.3)]
    assert [(each.check, each.verdict) for each in found] == [("start", "bad")]
    missing = [each async for each in doctor_stdio.check(["/no/such/program"], None, None, 1.0)]
    assert [(each.check, each.verdict) for each in missing] == [("start", "bad")]


# What it does when a tool is called is up to the test.
CALLED = """
import json, sys, time

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": NUMBER},
]
ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}

def answer(message):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {**ABOUT, "tools": TOOLS}}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "tools/call":
        CALLED
    elif "id" in message:
        answer(message)
"""


def called(folder: Path, does: str) -> str:
    file = folder / "called.py"
    file.write_text(CALLED.replace("        CALLED", f"        {does}"))
    return str(file)


@pytest.mark.parametrize(
    ("does", "head_start", "verdict", "says"),
    [
        ("pass", 0.1, "good", "it leaves with a client that leaves during a call of look"),
        ("time.sleep(60)", 1.0, "bad", "it stays when its client leaves during a call of look, and has to be killed"),
        ("answer(message)", 30.0, "good", "it leaves with a client that leaves right after a call of look"),
    ],
    ids=["leaves", "stays", "answers"],
)
def test_a_client_that_leaves_during_a_call_over_stdio(
    toolwire: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: str,
    head_start: float,
    verdict: str,
    says: str,
) -> None:
    monkeypatch.setattr(doctor_stdio, "HEAD_START", head_start)
    if verdict == "bad":
        monkeypatch.setattr(doctor_stdio, "LEAVING_SECONDS", 0.3)
    done = toolwire("doctor", called(tmp_path, does), "--json")
    found = {each["check"]: each for each in json.loads(done.out)}
    assert (found["leaving"]["verdict"], found["leaving"]["found"]) == (verdict, says)


def test_the_tool_to_leave_can_be_named(toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def leave(*given: Any, **options: Any) -> Diagnosis:
        asked.append(given[-3:])
        return good("leaving", "yes")

    monkeypatch.setattr(doctor_stdio, "leave", leave)
    file = called(tmp_path, "pass")
    assert "ok  leaving: yes" in toolwire("doctor", file, "--call", "write", "n=3").out
    assert asked == [("2025-06-18", "write", {"n": 3})]
    assert "--  leaving: the server has no tool 'nothing'" in toolwire("doctor", file, "--call", "nothing").out


def test_a_server_that_leaves_late_is_to_be_looked_at(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_stdio, "HOST_SECONDS", 0.0)
    file = called(tmp_path, "pass")
    found = {each["check"]: each for each in json.loads(toolwire("doctor", file, "--json").out)}
    assert (found["end"]["verdict"], found["leaving"]["verdict"]) == ("warning", "warning")


def test_a_slow_start_is_to_be_looked_at() -> None:
    assert doctor_stdio._speed(1.0).verdict == "good"
    assert doctor_stdio._speed(61.0).verdict == "warning"


# --- over HTTP -------------------------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, str], list[bytes | None]]
Serve = Callable[[str, str, Mapping[str, str], str], Answer]


class Response(HttpResponse):
    """A scripted answer; None in its chunks is a silence that does not end."""

    def __init__(self, url: str, status: int, headers: dict[str, str], chunks: list[bytes | None]) -> None:
        self.url, self.status, self._headers, self._chunks = url, status, headers, chunks

    def header(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if chunk is None:
                await asyncio.Event().wait()
            else:
                yield chunk

    def close(self) -> None:
        pass


class FakePool(Pool):
    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        asked = json.loads(body)["method"] if body else ""
        return Response(url, *self._serve(method, url, headers, asked))

    async def close(self) -> None:
        pass


STREAM = {"content-type": "text/event-stream"}


def behaves(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    """A server that does everything right."""
    if headers.get("host") == doctor_http.STRANGER:
        return 421, {}, []
    if headers.get("origin"):
        return 403, {}, []
    if asked == "subscriptions/listen":
        return 200, STREAM, [b"data: {}\n\n", None]
    return 200, {"content-type": "application/json"}, [b"{}"]


HERE = "http://127.0.0.1:8000/mcp"


async def examine(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, url: str = HERE, headers: Mapping[str, str] | None = None
) -> dict[str, Diagnosis]:
    monkeypatch.setattr(doctor_http, "HttpPool", lambda **_: FakePool(serve))
    monkeypatch.setattr(doctor_http, "_STREAM_SECONDS", 0.05)
    return {each.check: each async for each in doctor_http.check(url, headers or {}, 5.0)}


async def test_a_good_http_server(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await examine(monkeypatch, behaves)
    assert {check: each.verdict for check, each in found.items()} == dict.fromkeys(
        ["reach", "encryption", "sign-in", "slash", "Origin", "Host", "streaming"], "good"
    )


def redirects(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    return (307, {"location": url[:-1]}, []) if url.endswith("/") else behaves(method, url, headers, asked)


def forgets_slash(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    return (404, {}, []) if url.endswith("/") else behaves(method, url, headers, asked)


def trusts(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    return behaves(method, url, {}, asked)


def holds_back(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    return (200, STREAM, [None]) if asked == "subscriptions/listen" else behaves(method, url, headers, asked)


def cuts(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
    return (200, STREAM, []) if asked == "subscriptions/listen" else behaves(method, url, headers, asked)


@pytest.mark.parametrize(
    ("serve", "check", "verdict", "says"),
    [
        (redirects, "slash", "warning", "/mcp/ is redirected (307)"),
        (forgets_slash, "slash", "warning", "/mcp/ is answered with 404"),
        (trusts, "Origin", "bad", "a strange web page may use it"),
        (trusts, "Host", "bad", "it answers to any name"),
        (holds_back, "streaming", "bad", "a stream stays silent"),
        (cuts, "streaming", "bad", "a stream ends as soon as it is opened"),
        (lambda *_: (404, {}, []), "reach", "bad", "status 404"),
        (lambda *_: (502, {}, []), "reach", "bad", "status 502"),
        (lambda *_: (308, {"location": "https://elsewhere/"}, []), "reach", "bad", "https://elsewhere/"),
        (lambda *_: (401, {}, []), "sign-in", "bad", "401 without a challenge"),
    ],
)
async def test_what_is_wrong_over_http(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, check: str, verdict: str, says: str
) -> None:
    found = (await examine(monkeypatch, serve))[check]
    assert (found.verdict, says in found.found) == (verdict, True), found
    assert found.advice


async def test_a_public_server(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await examine(monkeypatch, trusts, "http://mcp.example/mcp")
    assert (found["encryption"].verdict, found["Host"].verdict) == ("bad", "skipped")
    assert (found["Origin"].verdict, found["sign-in"].verdict) == ("warning", "warning")
    assert "reverse proxy" in found["encryption"].advice


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> Answer:
        raise Unreachable("nobody is there")

    assert {check: each.found for check, each in (await examine(monkeypatch, nobody)).items()} == {
        "reach": "nobody is there"
    }


async def test_reach_fails_when_the_body_of_an_answer_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = FakePool(lambda *_: (200, {"content-type": "application/json"}, [None]))
    monkeypatch.setattr(doctor_http, "HttpPool", lambda **_: silent)
    async with asyncio.timeout(10):
        found = [each async for each in doctor_http.check(HERE, {}, 0.05)]
    assert [(each.check, each.verdict, each.found) for each in found] == [
        ("reach", "bad", "http://127.0.0.1:8000 did not answer in 0.05 s")
    ]


URL = "https://mcp.example/mcp"
RESOURCE = {"resource": URL, "authorization_servers": ["https://login.example"]}
ISSUER = {
    "issuer": "https://login.example",
    "token_endpoint": "https://login.example/token",
    "authorization_endpoint": "https://login.example/authorize",
    "registration_endpoint": "https://login.example/register",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}


@pytest.mark.parametrize(
    ("resource", "issuer", "verdict", "says"),
    [
        (RESOURCE, ISSUER, "good", "by https://login.example"),
        (None, ISSUER, "bad", "could not be read: status 404"),
        ({**RESOURCE, "resource": "https://other.example/mcp"}, ISSUER, "bad", "not of https://mcp.example/mcp"),
        (RESOURCE, None, "bad", "publishes no metadata"),
        (RESOURCE, {**ISSUER, "code_challenge_methods_supported": []}, "bad", "PKCE"),
        (RESOURCE, {**ISSUER, "registration_endpoint": None}, "warning", "lets no client register"),
    ],
)
async def test_the_way_to_sign_in_is_walked(
    monkeypatch: pytest.MonkeyPatch, resource: Any, issuer: Any, verdict: str, says: str
) -> None:
    def serve(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
        if method == "POST":
            return 401, {"www-authenticate": 'Bearer resource_metadata="https://mcp.example/metadata"'}, []
        document = resource if url == "https://mcp.example/metadata" else issuer
        if document is None:
            return 404, {}, [b""]
        return 200, {"content-type": "application/json"}, [json.dumps(document).encode()]

    found = (await examine(monkeypatch, serve, URL))["sign-in"]
    assert (found.verdict, says in found.found) == (verdict, True), found


async def test_an_authorization_server_that_is_away_is_not_blamed_on_the_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def serve(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
        if method == "POST":
            return 401, {"www-authenticate": 'Bearer resource_metadata="https://mcp.example/metadata"'}, []
        if url != "https://mcp.example/metadata":
            raise Unreachable("https://login.example cannot be reached")
        return 200, {"content-type": "application/json"}, [json.dumps(RESOURCE).encode()]

    found = (await examine(monkeypatch, serve, URL))["sign-in"]
    assert (found.verdict, found.found) == ("bad", "https://login.example cannot be reached")
    assert "check the address of the authorization server" in found.advice


TOKEN = {"Authorization": "Bearer right"}
KEY = {"X-API-Key": "right"}
OTHER = {"Authorization": "Bearer wrong"}


@pytest.mark.parametrize(
    ("challenge", "sent", "verdict", "says"),
    [
        ("Bearer", None, "good", "by a token from another place, such as an API key"),
        ("Bearer", TOKEN, "good", "by a token from another place, such as an API key"),
        ("Bearer", OTHER, "good", "by a token from another place, such as an API key"),
        ('Bearer resource_metadata="https://mcp.example/metadata"', None, "good", "by https://login.example"),
        ('Bearer resource_metadata="https://mcp.example/metadata"', TOKEN, "good", "by https://login.example"),
        ("ApiKey realm=it", None, "good", "by credentials of the kind apikey"),
        ("ApiKey realm=it", KEY, "good", "by credentials of the kind apikey"),
        ("", None, "bad", "401 without a challenge"),
        ("", KEY, "bad", "401 without a challenge"),
        (None, None, "warning", "anybody may use it"),
        (None, TOKEN, "warning", "anybody may use it"),
    ],
)
async def test_how_somebody_gets_in_is_told_with_a_token_and_without(
    monkeypatch: pytest.MonkeyPatch, challenge: str | None, sent: Mapping[str, str] | None, verdict: str, says: str
) -> None:
    def serve(method: str, url: str, headers: Mapping[str, str], asked: str) -> Answer:
        if method == "GET":
            named = {"https://mcp.example/metadata": RESOURCE} if "metadata" in (challenge or "") else {}
            document = named.get(url, ISSUER if named else None)
            if document is None:
                return 404, {}, [b""]
            return 200, {"content-type": "application/json"}, [json.dumps(document).encode()]
        if challenge is not None and "right" not in " ".join(headers.values()):
            return 401, {"www-authenticate": challenge} if challenge else {}, []
        return behaves(method, url, headers, asked)

    found = await examine(monkeypatch, serve, URL, sent)
    assert (found["sign-in"].verdict, found["sign-in"].found) == (verdict, says)
    if sent is None:
        assert "credentials" not in found
    else:
        refused = sent is OTHER
        assert found["credentials"].verdict == ("bad" if refused else "good")


LEAVES = """
import asyncio, os, time
from toolwire import Server

server = Server("slow")

@server.tool(annotations={"readOnlyHint": True})
async def wait() -> str:
    await asyncio.Event().wait()

@server.tool
async def hold_up() -> str:
    time.sleep(60)

@server.tool
async def die() -> str:
    os._exit(0)
"""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("tool", "verdict", "says"),
    [
        ("wait", "good", "it continues when a client leaves during a call of wait"),
        ("hold_up", "bad", "no client gets an answer after one left during a call of hold_up"),
        ("die", "bad", "no client gets an answer after one left during a call of die"),
    ],
)
async def test_a_client_that_leaves_during_a_call_over_http(
    tmp_path: Path, revision: str, tool: str, verdict: str, says: str
) -> None:
    file = tmp_path / "slow.py"
    file.write_text(LEAVES)
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "http", "--port", "0"]
    async with started(command) as served:
        url = f"http://127.0.0.1:{served.port}/mcp"
        patience = 2.0 if tool == "hold_up" else 30.0
        found = await doctor_http.leave(url, {}, patience, revision, tool, {})
    assert (found.verdict, found.found.startswith(says)) == (verdict, True), found


def test_line_breaks_of_a_server_forge_no_line_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._show(results("never"), Diagnosis("tools", "bad", "a\nok  tools: no errors", "b\n9 good"))
    assert capsys.readouterr().out.splitlines()[1:] == ["      b\\n9 good"]


# --- for a vendor ---


def test_what_a_vendor_refuses(toolwire: Command, tmp_path: Path) -> None:
    tools = "[{'name': 'a.b', 'inputSchema': {'type': 'object', 'properties': {'a b': {'type': 'string'}}}}]"
    file = server(tmp_path, tools=tools)
    done = toolwire("doctor", file, "--for", "anthropic")
    found = {line.partition(":")[0]: line for line in done.out.splitlines()}
    assert "it is a program of this machine" in found["XX  address for Anthropic"]
    assert "1 name that Anthropic refuses: a.b" in found["XX  names for Anthropic"]
    assert "a.b: has a member 'a b'" in found["XX  schemas for Anthropic"]
    assert "1 tool without readOnlyHint: a.b" in found["!!  hints for Anthropic"]
    assert "ok  size for Anthropic" in found
    assert "for OpenAI" not in done.out


async def test_addresses_that_a_vendor_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolwire.cli import doctor_vendors

    answers = {"public.example.com": "93.184.216.34", "private.example.com": "10.1.2.3"}

    async def resolve(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        if host not in answers:
            raise OSError("no such name")
        return [(0, 0, 0, "", (answers[host], port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    verdicts = {
        url: (await doctor_vendors.check_address("openai", url)).verdict
        for url in (
            "https://public.example.com/mcp",
            "https://private.example.com/mcp",
            "https://unknown.example.com/mcp",
            "http://public.example.com/mcp",
        )
    }
    assert list(verdicts.values()) == ["good", "bad", "skipped", "bad"]
