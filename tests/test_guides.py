"""Files on the pages of docs/guides run in the real frameworks and hosts, and tables there agree with the server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from mangum import Mangum
from tests.blocks import ROOT, blocks_of
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient
from tests.http.modernclient import ModernClient, text_of
from tests.wireclient import modern_meta

from toolwire import Context, Limits, Server
from toolwire.auth import ApiKeys
from toolwire.cli import run

GUIDES = ROOT / "docs" / "guides"


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Import a block of a page; its first line is a comment with its file name."""

    def load(page: str, name: str) -> ModuleType:
        (block,) = (each for each in blocks_of(GUIDES / page).values() if each.startswith(f"# {name}\n"))
        file = tmp_path / name
        file.write_text(block, encoding="utf-8")
        specification = importlib.util.spec_from_file_location(f"guide_{file.stem}", file)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, specification.name, module)
        specification.loader.exec_module(module)
        return module

    return load


@asynccontextmanager
async def started(app: Any) -> AsyncIterator[None]:
    """Send the lifespan events that an ASGI server sends."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    running = asyncio.ensure_future(app(scope, events.get, said.put))
    events.put_nowait({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    yield
    events.put_nowait({"type": "lifespan.shutdown"})
    assert (await said.get())["type"] == "lifespan.shutdown.complete"
    await running


async def get(app: Any, path: str, **headers: str) -> Answer:
    answer = await HttpClient(app).start("GET", path=path, headers=headers).finished()
    await answer.task  # Django closes the body of the request after the answer.
    return answer


# --- frameworks ---


async def test_fastapi(guide: Callable[[str, str], ModuleType]) -> None:
    app = guide("frameworks.md", "fastapi_app.py").app
    async with started(app):
        for number, path in enumerate(("/ai/mcp", "/ai/"), 1):
            answer = await ModernClient(app, path=path).call("add", {"text": "milk"})
            assert answer.answer()["result"]["structuredContent"] == number
        assert (await get(app, "/notes")).json() == ["milk", "milk"]


async def test_starlette(guide: Callable[[str, str], ModuleType]) -> None:
    app = guide("frameworks.md", "starlette_app.py").app
    async with started(app):
        answer = await ModernClient(app, path="/ai/mcp").call("shout", {"text": "milk"})
        assert text_of(answer.answer()) == "MILK"
        assert (await get(app, "/")).body == b"welcome"


async def test_a_lifespan_of_its_own(guide: Callable[[str, str], ModuleType]) -> None:
    module = guide("frameworks.md", "own_lifespan.py")
    async with started(module.app):
        assert module.EVENTS == ["web open", "tools open"]
    assert module.EVENTS[2:] == ["tools closed", "web closed"]


async def test_keys_that_both_parts_take(guide: Callable[[str, str], ModuleType]) -> None:
    app = guide("frameworks.md", "shared_auth.py").app
    token = {"authorization": "Bearer a-long-random-key"}
    async with started(app):
        client = ModernClient(app, path="/ai/mcp")
        assert text_of((await client.call("whoami", headers=token)).answer()) == "alice"
        assert (await client.call("whoami")).status == 401
        assert (await get(app, "/me", **token)).json() == "alice"
        assert (await get(app, "/me")).status == 401


async def test_cors_beside_a_middleware_that_does_it_too(guide: Callable[[str, str], ModuleType]) -> None:
    app = guide("frameworks.md", "two_apps.py").app
    async with started(app):
        for path, method, status in (("/ai/mcp", "POST", 204), ("/api/hello", "GET", 200)):
            asked = {"origin": "https://app.example", "access-control-request-method": method}
            answer = await HttpClient(app).start("OPTIONS", path=path, headers=asked).finished()
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, "https://app.example")


@pytest.fixture
def django_guide(
    guide: Callable[[str, str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """Load the project with its tables. Django can be set up once in a process."""
    monkeypatch.setenv("DATABASE", str(tmp_path / "db.sqlite3"))
    module = guide("frameworks.md", "asgi.py")
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    connections.close_all()
    yield module
    connections.close_all()


async def test_django(django_guide: ModuleType) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections

    app = django_guide.application
    user = await django_guide.User.objects.acreate(username="ann")
    token = {"authorization": f"Bearer {django_guide.tokens.sign(str(user.pk))}"}
    async with started(app):
        client = ModernClient(app)
        assert text_of((await client.call("my_name", headers=token)).answer()) == "ann"
        for forged in ({}, {"authorization": f"Bearer {user.pk}~1~made-up"}):
            assert (await client.call("my_name", headers=forged)).status == 401
        assert (await get(app, "/")).body == b"welcome"
    await sync_to_async(connections.close_all)()


# --- CORS ---


@pytest.mark.parametrize(
    ("origin", "statuses"),
    [
        ("https://app.example", (204, 200)),
        ("https://staging.app.example", (204, 200)),
        ("http://localhost:3000", (204, 200)),
        ("https://other.example", (403, 403)),
        (None, (405, 200)),
    ],
)
async def test_cors(guide: Callable[[str, str], ModuleType], origin: str | None, statuses: tuple[int, int]) -> None:
    app = guide("cors.md", "cors.py").app
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "mcp-name"}
    preflight = await HttpClient(app).start("OPTIONS", headers=asked).finished()
    call = await ModernClient(app).call("add", {"text": "milk"}, headers={"origin": origin})
    assert (preflight.status, call.status) == statuses
    allowed = statuses == (204, 200)
    assert preflight.headers.get("access-control-allow-origin") == (origin if allowed else None)
    if allowed:
        page = (GUIDES / "cors.md").read_text(encoding="utf-8")
        assert preflight.headers["access-control-allow-methods"] == "POST, GET, DELETE"
        assert "Mcp-Name" in preflight.headers["access-control-allow-headers"]
        assert call.headers["access-control-allow-origin"] == origin
        assert all(f"`{name}`" in page for name in call.headers["access-control-expose-headers"].split(", "))
        assert "access-control-allow-credentials" not in call.headers


# --- Kubernetes ---


def manifests() -> dict[str, Any]:
    page = (GUIDES / "kubernetes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}


async def test_the_probes_ask_for_what_there_is() -> None:
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    app = Server("notes", auth=ApiKeys({"a-long-random-key": "alice"})).http_app(public_url="https://notes.example/mcp")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        answer = await get(app, container[probe]["httpGet"]["path"], host="10.1.2.3:8000")
        assert (answer.status, answer.body) == (200, b"ok")
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]


def test_the_command_line_of_the_pod() -> None:
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    program, command, *words = container["args"]
    parser = ArgumentParser()
    run.add_arguments(parser)
    given = parser.parse_args(words)
    assert (program, command, given.transport, given.port) == ("toolwire", "run", "http", 8000)
    assert given.port == container["ports"][0]["containerPort"]
    assert {each["name"] for each in container["env"]} == {"TOOLWIRE_SECRET", "TOOLWIRE_STORES"}


def test_a_pod_has_the_time_to_end() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    waits = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= 2 * (waits + Limits().drain)


def test_the_manifests_fit_together() -> None:
    made = manifests()
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    backend = made["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": made["Service"]["metadata"]["name"], "port": {"name": "http"}}
    assert made["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]


async def test_the_fleet_is_scaled_by_metrics_that_exist() -> None:
    (trigger,) = manifests()["ScaledObject"]["spec"]["triggers"]
    server = Server("notes", metrics=True)

    @server.tool(task="optional")
    async def work() -> str:
        return "done"

    page = await get(server.http_app(), "/metrics")
    named = set(re.findall(r"toolwire_\w+", trigger["metadata"]["query"]))
    assert named == {"toolwire_tasks_queued", "toolwire_tasks_running"}
    for name in named:
        assert f'{name}{{tool="work"}} 0'.encode() in page.body


# --- Lambda ---


def function_url_event(body: Any, headers: dict[str, str]) -> dict[str, Any]:
    """Make the event of a function URL (payload format 2.0)."""
    host = "abc123.lambda-url.eu-north-1.on.aws"
    http = {"method": "POST", "path": "/mcp", "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7", "userAgent": "test"}
    context = {
        "accountId": "anonymous",
        "apiId": "abc123",
        "domainName": host,
        "domainPrefix": "abc123",
        "http": http,
        "requestId": "2f0a2b6e-7a0e-4c2f-9d36-000000000000",
        "routeKey": "$default",
        "stage": "$default",
        "time": "16/Nov/2026:03:00:00 +0000",
        "timeEpoch": 1794798000000,
    }
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/mcp",
        "rawQueryString": "",
        "headers": {"host": host, "content-type": "application/json", "x-forwarded-proto": "https", **headers},
        "requestContext": context,
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


@pytest.fixture
def lambda_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Set the event loop that Mangum asks for, as the runtime of Lambda has one for each instance."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


def test_lambda(guide: Callable[[str, str], ModuleType], lambda_loop: asyncio.AbstractEventLoop) -> None:
    """Serve both eras, one event after the other in one instance."""
    module = guide("lambda.md", "lambda_function.py")
    handler = module.handler
    accept = {"accept": "application/json, text/event-stream"}
    params: dict[str, Any] = {"name": "forecast", "arguments": {"city": "Oslo"}}
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "forecast", **accept}
    legacy = {"mcp-protocol-version": "2025-11-25", **accept}
    for headers, meta in ((modern, {"_meta": modern_meta()}), (legacy, {}), (modern, {"_meta": modern_meta()})):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, **meta}}
        answer = handler(function_url_event(message, headers), None)
        assert (answer["statusCode"], answer["headers"]["content-type"]) == (200, "application/json")
        assert text_of(json.loads(answer["body"])) == "Oslo: sunny"
    lambda_loop.run_until_complete(module.app.stop())


def test_a_question_in_lambda_is_answered_by_another_instance(
    monkeypatch: pytest.MonkeyPatch, lambda_loop: asyncio.AbstractEventLoop
) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", "the same secret in every instance")

    def instance() -> Any:
        server = Server("shop")

        @server.tool
        async def order(ctx: Context) -> str:
            await ctx.progress(1, 2)
            answer = await ctx.elicit("Sure?", bool)
            return "ordered" if answer.data else "not ordered"

        return server.http_app(stateless=True)

    capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}, "progressToken": "p"}
    params: dict[str, Any] = {"name": "order", "arguments": {}, "_meta": {**modern_meta(), **capabilities}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "order",
    }

    def messages(more: dict[str, Any]) -> list[Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, **more}}
        app = instance()
        answer = Mangum(app, lifespan="off")(function_url_event(message, headers), None)
        lambda_loop.run_until_complete(app.stop())
        assert answer["headers"]["content-type"] == "text/event-stream"
        return [json.loads(line[5:]) for line in answer["body"].splitlines() if line.startswith("data:")]

    progress, asked = messages({})
    assert progress["method"] == "notifications/progress"
    (key,) = asked["result"]["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": True}}}
    *_, done = messages({"inputResponses": answers, "requestState": asked["result"]["requestState"]})
    assert text_of(done) == "ordered"


# --- troubleshooting ---

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
SESSION = {"mcp-session-id": "made-up", "mcp-protocol-version": "2025-11-25"}
STATUSES: list[tuple[int, str, dict[str, Any]]] = [
    (400, "POST", {"headers": {**MODERN, "mcp-method": "tools/call"}}),
    (401, "POST", {"headers": {**MODERN, "authorization": None}}),
    (403, "POST", {"headers": {**MODERN, "origin": "https://other.example"}}),
    (404, "POST", {"headers": MODERN, "path": "/"}),
    (404, "POST", {"headers": SESSION}),
    (405, "GET", {"headers": MODERN}),
    (406, "POST", {"headers": {**MODERN, "accept": "text/html"}}),
    (413, "POST", {"headers": MODERN, "body": b"x" * 2000}),
    (415, "POST", {"headers": {**MODERN, "content-type": "text/plain"}}),
    (421, "POST", {"headers": {**MODERN, "host": "other.example"}}),
]


@cases(("status", "method", "request_"), STATUSES, ids=[str(row[0]) for row in STATUSES])
async def test_the_statuses_of_the_troubleshooting_page(status: int, method: str, request_: dict[str, Any]) -> None:
    server = Server("notes", auth=ApiKeys({"a-long-random-key": "alice"}), limits=Limits(line=1000))
    common = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": "Bearer a-long-random-key",
    }
    client = HttpClient(server.http_app(), headers=common)
    answer = await client.start(method, **{"body": json.dumps(CALL).encode(), **request_}).finished()
    assert answer.status == status, answer.body
    assert f"| {status}" in (GUIDES / "troubleshooting.md").read_text(encoding="utf-8")


# --- apps ---


def files_of(page: Path) -> dict[str, str]:
    """Return the files on a page, by the names in their first lines."""
    found = re.findall(r"```(?:py|html)\n(?:# |<!-- )([\w.]+)(?: -->)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return dict(found)


def test_the_first_view_passes_its_own_test(tmp_path: Path) -> None:
    files = files_of(GUIDES / "apps.md")
    assert sorted(files) == ["orders.html", "server.py", "test_orders.py", "test_page.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    commands = (
        ["pytest", "-q", "-p", "no:asyncio", "-W", "error", "test_orders.py"],
        ["toolwire", "lint", "server.py"],
    )
    for command in commands:
        done = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout
