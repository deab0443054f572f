"""The pytest plugin: tests of your server on every revision and transport, its surface, fuzzing and attacks.

pytest finds the plugin as soon as Toolwire is installed. `toolwire_server = "server.py"` in pytest's configuration,
or a fixture `toolwire_server` of your own, names the server.

    async def test_add(server):                       # once for each revision and transport
        async with server.connect() as (client, wire):
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3

    def test_the_surface(surface):                    # fails if a tool changes; --update-surface accepts it
        surface.check()

    def test_the_tools_hold(fuzz):                    # arguments made from the schemas
        fuzz.check()

    def test_nobody_breaks_in(hostile):               # texts of attackers
        hostile.check(secrets=["sk-live"])

    async def test_the_view(view):                    # a host for the view of a tool
        async with view("show_orders", {"month": "May"}) as shown:
            shown.check_page()

`issuer`, `clock` and `no_leaks` are those of `toolwire.testing`, for the server under test. An `async def` test with
one of these fixtures needs no other plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from toolwire.testing import Clock, Issuer
    from toolwire.testing_plugin.fixtures import Fuzz, Hostile, Served, Surface, Views

# Without a mark, a test with `server` runs on every revision in memory, and on both eras over the real transports.
_REAL_TRANSPORTS = ("stdio", "http")
_ERAS = ("2025-11-25", "2026-07-28")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("toolwire_server", "the server under test, as FILE[:OBJECT], relative to this file")
    group = parser.getgroup("toolwire", "MCP servers")
    group.addoption("--update-surface", action="store_true", help="accept the tool surface as it is now")
    group.addoption("--fuzz-examples", type=int, default=50, metavar="N", help="calls for each tool (default: 50)")
    group.addoption("--fuzz-seed", type=int, default=0, metavar="N", help="another choice of arguments (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "toolwire(revisions=None, over=None): the revisions and transports of the fixture `server` (default: all)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "toolwire_connection" in metafunc.fixturenames:
        # A mark closer to the test overrides the others.
        marks = reversed([mark.kwargs for mark in metafunc.definition.iter_markers("toolwire")])
        given = {name: value for mark in marks for name, value in mark.items()}
        pairs = _connections(given.get("revisions"), given.get("over"))
        metafunc.parametrize("toolwire_connection", pairs, indirect=True, ids="-".join)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test with our fixtures if no other plugin for such tests does."""
    test = pyfuncitem.obj
    if "toolwire_server" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(test):
        return None
    # Imported here because pytest loads this module in every project that has Toolwire installed.
    import asyncio

    given = pyfuncitem.funcargs
    asyncio.run(test(**{name: given[name] for name in inspect.signature(test).parameters if name in given}))
    return True


def _connections(revisions: Any, over: Any) -> list[tuple[str, str]]:
    # Imported here for the same reason.
    from toolwire.protocol.revisions import REVISIONS

    if revisions is None and over is None:
        return [(each, "memory") for each in REVISIONS] + [(era, real) for real in _REAL_TRANSPORTS for era in _ERAS]
    return [(each, way) for way in over or ("memory",) for each in revisions or REVISIONS]


@pytest.fixture(scope="session")
def toolwire_server(request: pytest.FixtureRequest) -> Any:
    """The server under test. Override it to build one, or set `toolwire_server` in pytest's configuration."""
    from toolwire.cli import server_file
    from toolwire.cli.errors import UsageError

    spec = request.config.getini("toolwire_server")
    if not spec:
        raise pytest.UsageError('name the server: toolwire_server = "server.py" in pytest\'s configuration')
    home = request.config.inipath.parent if request.config.inipath is not None else request.config.rootpath
    try:
        # A test that imports the file gets the same server object.
        return server_file.load(str(home / spec), anew=False)
    except (UsageError, server_file.FileFailed) as error:
        raise pytest.UsageError(f"toolwire_server: {error}") from None


@pytest.fixture
def toolwire_connection(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The revision and the transport of this run of the test."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def server(toolwire_server: Any, toolwire_connection: tuple[str, str]) -> Served:
    """The server under test, on one revision over one transport; the test runs once for each."""
    from toolwire.testing_plugin.fixtures import Served

    return Served(toolwire_server, *toolwire_connection)


@pytest.fixture
def surface(request: pytest.FixtureRequest, toolwire_server: Any) -> Surface:
    """The surface of the server, compared with the file of the last `--update-surface`."""
    from toolwire.testing_plugin.fixtures import Surface

    return Surface(toolwire_server, Path(request.path).parent, update=request.config.getoption("--update-surface"))


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, toolwire_server: Any) -> Fuzz:
    """Calls of every tool with arguments made from its schema, good ones and bad ones."""
    from toolwire.testing_plugin.fixtures import Fuzz

    option = request.config.getoption
    return Fuzz(toolwire_server, examples=option("--fuzz-examples"), seed=option("--fuzz-seed"))


@pytest.fixture
def hostile(toolwire_server: Any) -> Hostile:
    """Calls of every component that takes a text, with the texts of attackers."""
    from toolwire.testing_plugin.fixtures import Hostile

    return Hostile(toolwire_server)


@pytest.fixture
def view(toolwire_server: Any) -> Views:
    """A host for views of the server: `async with view("show_orders", {…}) as shown`."""
    from toolwire.testing_plugin.fixtures import Views

    return Views(toolwire_server)


@pytest.fixture
def issuer(toolwire_server: Any) -> Iterator[Issuer]:
    """An issuer whose tokens the server accepts like those of the issuer in its `auth=`."""
    from toolwire import testing

    with testing.issuer(toolwire_server) as made:
        yield made


@pytest.fixture
def clock(toolwire_server: Any) -> Iterator[Clock]:
    """The clock of the server's rates and quotas."""
    from toolwire import testing

    with testing.clock(toolwire_server) as made:
        yield made


@pytest.fixture
def no_leaks(toolwire_server: Any) -> Callable[..., AbstractAsyncContextManager[None]]:
    """`async with no_leaks():` fails if the block leaves something behind."""
    from toolwire import testing

    return partial(testing.no_leaks, toolwire_server)
