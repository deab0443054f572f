"""The pytest plugin, in projects of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.testing_plugin.forked_pytest import ForkedPytest

Run = Callable[..., tuple[int, str]]

SERVER = '''
from toolwire import Server, ToolError

server = Server("shop", instructions="Ask first.")

@server.tool
def total(prices: list[float], discount: int = 0) -> float:
    """Add prices up."""
    return sum(prices) - discount

@server.resource("shop://{item}")
def item(item: str) -> str:
    return item
'''

CONFIGURATION = """
[pytest]
toolwire_server = src/server.py
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
addopts = --strict-markers -p no:cacheprovider
"""

# The configuration of a project that has no other plugin for async tests.
ALONE = "[pytest]\ntoolwire_server = src/server.py\naddopts = -p no:cacheprovider\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "server.py").write_text(SERVER)
    (tmp_path / "pytest.ini").write_text(CONFIGURATION)
    return tmp_path


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedPytest]:
    process = ForkedPytest()
    yield process
    process.close()


@pytest.fixture
def run(project: Path, forked: ForkedPytest) -> Run:
    """Run pytest in the project with one file of tests: its exit status, and what it printed."""

    def run(test: str, *options: str) -> tuple[int, str]:
        (project / "test_it.py").write_text(test)
        return forked.run(project, "-q", *options)

    return run


ASYNC_WITHOUT_MODE = """
import pytest

class TestIt:
    @pytest.mark.parametrize("price", [1.5, 2.5])
    @pytest.mark.toolwire(revisions=["2026-07-28"])
    async def test_total(self, server, price, unused=None):
        async with server.connect() as (client, wire):
            assert await client.call_tool("total", {"prices": [price]}, returns=float) == 1.5
"""


# The fixture says which loop anyio runs the test on.
ANYIO = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def check_async_tests(status: int, said: str) -> None:
    assert status == 1, said
    assert "1 failed, 1 passed" in said
    assert "assert 2.5 == 1.5" in said


def test_tests_with_its_fixtures_may_be_async_where_the_asyncio_plugin_is_strict(run: Run) -> None:
    check_async_tests(*run(ASYNC_WITHOUT_MODE, "-o", "asyncio_mode=strict"))


def test_tests_with_its_fixtures_may_be_async_without_another_plugin(project: Path) -> None:
    """In a process of its own, which has imported nothing before."""
    (project / "pytest.ini").write_text(ALONE)
    (project / "test_it.py").write_text(ASYNC_WITHOUT_MODE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    check_async_tests(done.returncode, done.stdout + done.stderr)


@pytest.mark.covers("R32")
def test_a_server_on_every_revision_and_transport(run: Run) -> None:
    status, said = run(
        """
import pytest

async def test_everywhere(server):
    async with server.connect() as (client, wire):
        assert client.revision == server.revision
        assert await client.call_tool("total", {"prices": [1, 2]}, returns=float) == 3
        assert wire.messages

@pytest.mark.toolwire(revisions=["2025-06-18"], over=["stdio"])
def test_without_async(server):
    assert (server.revision, server.over) == ("2025-06-18", "stdio")
    assert server.call_tool("total", {"prices": [1]}, returns=float) == 1

async def test_also_within_a_loop(server):
    assert server.call_tool("total", {"prices": [1]}).text == "1.0"
""",
        "-vv",
    )
    assert status == 0, said
    for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"):
        assert f"test_everywhere[{revision}-memory] PASSED" in said
    for over in ("stdio", "http"):
        assert f"test_everywhere[2026-07-28-{over}] PASSED" in said
    assert "test_without_async[2025-06-18-stdio] PASSED" in said
    assert "19 passed" in said


def test_a_server_of_the_users_own_making(run: Run) -> None:
    status, said = run(
        """
import pytest
from toolwire import Server

@pytest.fixture
def toolwire_server():
    return Server("mine")

@pytest.mark.toolwire(revisions=["2026-07-28"])
async def test_mine(server):
    async with server.connect() as (client, _):
        assert client.server.name == "mine"

class TestOverridden:
    @pytest.fixture
    def server(self):
        return 7

    def test_is_left_alone(self, server):
        assert server == 7
""",
    )
    assert (status, "2 passed" in said) == (0, True), said


def test_the_server_is_the_one_that_tests_import(run: Run) -> None:
    test = """
import sys
sys.path.insert(0, "src")
from server import server as mine

def test_it(toolwire_server):
    assert toolwire_server is mine
"""
    assert run(test)[0] == 0


@pytest.mark.parametrize(
    ("configuration", "says"),
    [
        ("[pytest]\n", 'No server is named for this test: write toolwire_server = "server.py" into'),
        ("[pytest]\ntoolwire_server = gone.py\n", "there is no file"),
        ("[pytest]\ntoolwire_server = src/server.py:nothing\n", "has no 'nothing'"),
    ],
)
def test_what_is_wrong_with_the_configuration_is_said(project: Path, run: Run, configuration: str, says: str) -> None:
    (project / "pytest.ini").write_text(configuration)
    status, said = run("def test_it(surface): pass")
    assert status == 1
    assert says in said


def test_missing_server_is_one_error_for_each_test(project: Path, run: Run) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    status, said = run("async def test_it(server): pass\n")
    assert status == 1
    assert "1 error in" in said
    assert "Traceback" not in said and "fixtures.py" not in said


WITHOUT_FIXTURES = """
from server import server
{imports}

{mark}
async def test_connect():
    import sys
    from toolwire import testing as t
    assert {backend!r} in sys.modules
    async with t.connect(server) as (client, _):
        assert await client.call_tool("total", {{"prices": [2]}}, returns=float) == 2
"""


@pytest.mark.parametrize(
    ("imports", "mark", "options", "backend"),
    [
        ("", "", ("-p", "no:asyncio", "-p", "no:anyio"), "asyncio"),
        ("", "", ("-o", "asyncio_mode=strict"), "asyncio"),
        ("", "", ("-o", "asyncio_mode=auto"), "pytest_asyncio"),
        ("import pytest", "@pytest.mark.asyncio", ("-o", "asyncio_mode=strict"), "pytest_asyncio"),
        (ANYIO, "@pytest.mark.anyio", ("-o", "asyncio_mode=strict"), "anyio"),
    ],
    ids=["alone", "strict", "auto", "marked for asyncio", "marked for anyio"],
)
def test_async_tests_of_a_file_that_has_something_of_toolwire_run(
    project: Path, run: Run, imports: str, mark: str, options: tuple[str, ...], backend: str
) -> None:
    if "no:asyncio" in options:
        (project / "pytest.ini").write_text(ALONE)
    test = WITHOUT_FIXTURES.format(imports=imports, mark=mark, backend=backend)
    status, said = run(f"import sys\nsys.path.insert(0, 'src')\n{test}", *options)
    assert (status, "1 passed" in said) == (0, True), said


def test_async_tests_without_anything_of_toolwire_are_left_alone(project: Path, run: Run) -> None:
    (project / "pytest.ini").write_text(ALONE)
    status, said = run("async def test_it():\n    pass\n", "-p", "no:asyncio", "-p", "no:anyio")
    assert status == 1
    assert "async def functions are not natively supported" in said


@pytest.mark.covers("R32")
def test_a_change_of_the_surface_does_not_go_unnoticed(project: Path, run: Run) -> None:
    test = "def test_surface(surface):\n    surface.check()\n"
    status, said = run(test)
    assert (status, "surface-shop.json does not exist yet: run pytest --update-surface" in said) == (1, True), said
    assert run(test, "--update-surface")[0] == 0
    kept = json.loads((project / "surface-shop.json").read_text())
    assert kept["instructions"] == "Ask first."
    assert [tool["name"] for tool in kept["tools"]] == ["total"]
    assert run(test)[0] == 0
    (project / "src" / "server.py").write_text(SERVER.replace("discount: int = 0", "discount: float = 0"))
    status, said = run(test)
    assert status == 1
    assert "The surface that clients see has changed (pytest --update-surface accepts it)" in said
    assert '-            "type": "integer"' in said
    assert '+            "type": "number"' in said
    # What a client does not see is no change.
    (project / "src" / "server.py").write_text(SERVER.replace("sum(prices)", "sum(sorted(prices))"))
    assert run(test)[0] == 0


@pytest.mark.covers("R32")
def test_tools_are_fuzzed(project: Path, run: Run) -> None:
    test = "def test_tools(fuzz):\n    fuzz.check()\n"
    assert run(test)[0] == 0
    (project / "src" / "server.py").write_text(SERVER.replace("sum(prices)", "sum(prices) / len(prices)"))
    status, said = run(test)
    assert status == 1
    assert "total raised ZeroDivisionError; the arguments were" in said
    assert '{\n  "prices": []\n}' in said
    assert "sum(prices) / len(prices)" in said


CARELESS = """
@server.tool
def find(name: str) -> str:
    raise ToolError(f"no {name} with sk-live-1")
"""


@pytest.mark.covers("R32")
def test_a_server_is_attacked(project: Path, run: Run) -> None:
    test = "def test_attack(hostile):\n    hostile.check(secrets=['sk-live'])\n"
    assert run(test)[0] == 0
    (project / "src" / "server.py").write_text(SERVER + CARELESS)
    status, said = run(test)
    assert status == 1
    assert "the tool find revealed a secret (sk-…), sent a path out of its folder; the arguments were" in said


GUARDED = """
from toolwire import Policy, Server
from toolwire.auth import JWT

server = Server("guarded", auth=JWT("https://login.example.org", audience="https://api.example.org/mcp"))

@server.tool(policy=Policy(rate="2/minute"), scopes=["read"])
async def search() -> str:
    return "found"
"""


@pytest.mark.covers("R32")
def test_tokens_time_and_leaks_are_fixtures_too(project: Path, run: Run) -> None:
    (project / "src" / "server.py").write_text(GUARDED)
    status, said = run(
        """
import asyncio
import pytest
from toolwire import testing

async def test_tokens(issuer):
    await issuer.check()

async def test_rate(toolwire_server, issuer, clock):
    token = issuer.token("ann", scopes="read")
    async with testing.connect(toolwire_server, over="http", auth=token) as (client, _):
        refusal = await testing.exhaust(lambda: client.call_tool("search"))
        assert (refusal.calls, refusal.retry_after) == (2, 60)
        await clock.advance(60)
        assert (await client.call_tool("search")).text == "found"

async def test_nothing_is_left(toolwire_server, no_leaks, clock):
    async with no_leaks(), testing.connect(toolwire_server) as (client, _):
        assert (await client.call_tool("search")).text == "found"

async def test_something_is_left(no_leaks):
    async with no_leaks(patience=0.01):
        task = asyncio.create_task(asyncio.Event().wait())
""",
    )
    assert status == 1
    assert "a task: Event.wait at " in said
    assert "3 passed" in said
    assert "1 failed" in said


VIEWS = """
from toolwire import Server
from toolwire.apps import Page

server = Server("shop")
orders = server.app(Page("orders.html", "<!doctype html><h1>Orders</h1>"))

@server.tool(app=orders, annotations={"readOnlyHint": True})
async def show_orders(month: str) -> dict[str, int]:
    return {"orders": len(month)}
"""


@pytest.mark.covers("APP-8C.8")
def test_views_are_a_fixture_too(project: Path, run: Run) -> None:
    (project / "src" / "server.py").write_text(VIEWS)
    status, said = run(
        """
import pytest

@pytest.mark.parametrize("over", ["memory", "http"])
async def test_view(view, over):
    async with view("show_orders", {"month": "May"}, over=over, theme="dark") as shown:
        shown.check_page()
        assert (await shown.initialize())["hostContext"]["theme"] == "dark"
        assert shown.told("ui/notifications/tool-result")[0]["structuredContent"] == {"orders": 3}

async def test_a_call_that_is_refused(view):
    async with view("show_orders", {"month": "May"}) as shown:
        await shown.initialize()
        await shown.call_tool("pay", {})
""",
    )
    assert status == 1
    assert "called 'pay', which its server does not list" in said
    assert "2 passed" in said
    assert "1 failed" in said
