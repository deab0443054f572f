"""The pytest plugin: test a server on every revision and transport, with attacks.

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

`issuer`, `clock` and `no_leaks` are those of `toolwire.testing`, for the server under test. `toolwire.testing` has the
types of the fixtures, such as `ServerFixture`.

An `async def` test needs no other plugin if it uses one of these fixtures, or if its file imports something of
Toolwire. Tests that pytest-asyncio or anyio runs are left to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from toolwire.testing import Clock, Issuer
    from toolwire.testing.pytest_fixtures import (
        FuzzFixture,
        HostileFixture,
        ServerFixture,
        SurfaceFixture,
        ViewFixture,
    )

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
        # A mark closer to the test wins.
        marks = reversed([mark.kwargs for mark in metafunc.definition.iter_markers("toolwire")])
        given = {name: value for mark in marks for name, value in mark.items()}
        pairs = _connections(given.get("revisions"), given.get("over"))
        if not metafunc.config.getini("toolwire_server") and not _is_overridden(metafunc, "toolwire_server"):
            # One error is enough to say that no server is named.
            pairs = pairs[:1]
        metafunc.parametrize("toolwire_connection", pairs, indirect=True, ids="-".join)


def _is_overridden(metafunc: pytest.Metafunc, fixture: str) -> bool:
    """Return whether the project overrides a fixture. pytest has no public API for this."""
    definitions = getattr(metafunc, "_arg2fixturedefs", None)
    return definitions is None or len(definitions.get(fixture, ())) != 1


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test of a Toolwire program if no other plugin does.

    pytest-asyncio has replaced the function of a test that it runs. anyio runs its tests before this is called.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    if "toolwire_server" not in pyfuncitem.fixturenames and not _imports_toolwire(pyfuncitem.module):
        return None
    # Imported here because pytest loads this module in every project that has Toolwire installed.
    import asyncio

    given = pyfuncitem.funcargs
    asyncio.run(test(**{name: given[name] for name in inspect.signature(test).parameters if name in given}))
    return True


def _imports_toolwire(module: ModuleType) -> bool:
    """Return whether the file of a test imports something of Toolwire."""
    return any(
        _is_of_toolwire(home)
        for value in vars(module).values()
        for home in (
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None),
            type(value).__module__,
        )
    )


def _is_of_toolwire(home: Any) -> bool:
    return isinstance(home, str) and home.partition(".")[0] == "toolwire"


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
        pytest.fail(
            'No server is named for this test: write toolwire_server = "server.py" into pytest\'s configuration '
            "([tool.pytest.ini_options] of pyproject.toml, or [pytest] of pytest.ini), or define a fixture "
            "toolwire_server that returns the server",
            pytrace=False,
        )
    home = request.config.inipath.parent if request.config.inipath is not None else request.config.rootpath
    try:
        # A test that imports the file gets the same server object.
        return server_file.load(str(home / spec), anew=False)
    except (UsageError, server_file.FileFailed) as error:
        pytest.fail(f"toolwire_server = {spec!r}: {error}", pytrace=False)


@pytest.fixture
def toolwire_connection(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The revision and the transport of this run of the test."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def server(toolwire_server: Any, toolwire_connection: tuple[str, str]) -> ServerFixture:
    """The server under test, on one revision over one transport.

    The test runs once for each.
    """
    from toolwire.testing.pytest_fixtures import ServerFixture

    return ServerFixture(toolwire_server, *toolwire_connection)


@pytest.fixture
def surface(request: pytest.FixtureRequest, toolwire_server: Any) -> SurfaceFixture:
    """The surface of the server, compared with the file of the last `--update-surface`."""
    from toolwire.testing.pytest_fixtures import SurfaceFixture

    return SurfaceFixture(
        toolwire_server, Path(request.path).parent, update=request.config.getoption("--update-surface")
    )


@pytest.fixture
def fuzz(request: pytest.FixtureRequest, toolwire_server: Any) -> FuzzFixture:
    """Calls of every tool with arguments made from its schema, good ones and bad ones."""
    from toolwire.testing.pytest_fixtures import FuzzFixture

    option = request.config.getoption
    return FuzzFixture(toolwire_server, examples=option("--fuzz-examples"), seed=option("--fuzz-seed"))


@pytest.fixture
def hostile(toolwire_server: Any) -> HostileFixture:
    """Calls of every component that takes a text, with the texts of attackers."""
    from toolwire.testing.pytest_fixtures import HostileFixture

    return HostileFixture(toolwire_server)


@pytest.fixture
def view(toolwire_server: Any) -> ViewFixture:
    """A host for views of the server: `async with view("show_orders", {…}) as shown`."""
    from toolwire.testing.pytest_fixtures import ViewFixture

    return ViewFixture(toolwire_server)


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
