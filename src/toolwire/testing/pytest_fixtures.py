"""The values of the plugin's fixtures. `toolwire.testing` has their names, for the annotations of tests."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

import pytest

from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.handlers import ElicitCallback, SampleCallback
from toolwire.content import ToolResult
from toolwire.loops import finish
from toolwire.protocol import types as t
from toolwire.protocol.apps import RENDERS_APPS
from toolwire.protocol.errors import NotSupported
from toolwire.testing.connecting import Over, Wire, connect
from toolwire.testing.failures import Failure
from toolwire.testing.fuzzing import fuzz
from toolwire.testing.hostile import attack
from toolwire.testing.scripted_views import ScriptedView
from toolwire.testing.views import ViewOptions, view
from toolwire.wire.regular_files import check_regular, replace_file

if TYPE_CHECKING:
    from toolwire.testing.browser_views import BrowserView

T = TypeVar("T")


class ServerFixture:
    """A server, with the revision and the transport of this run of the test."""

    def __init__(self, target: Any, revision: str, over: Any) -> None:
        self.target = target
        self.revision = revision
        self.over = over

    def connect(self, **options: Any) -> AbstractAsyncContextManager[tuple[Client, Wire]]:
        """Connect a client and record the messages; `options` are those of `testing.connect`."""
        return connect(self.target, revision=self.revision, over=self.over, **options)

    @overload
    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: None = None
    ) -> ToolResult: ...

    @overload
    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: type[T]) -> T: ...

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: Any = None) -> Any:
        """Call a tool once, from a test that is not `async`."""

        async def call() -> Any:
            async with self.connect() as (client, _):
                return await client.call_tool(name, arguments, returns=returns)

        return finish(call())

    def __repr__(self) -> str:
        return f"<{self.target!r} on {self.revision} over {self.over}>"


class SurfaceFixture:
    """The surface of a server, and its file next to the test.

    The surface is what a client sees before it calls anything.
    """

    def __init__(self, server: Any, folder: Path, *, update: bool) -> None:
        self._server = server
        self._folder = folder
        self._update = update

    def check(self) -> None:
        """Fail if the surface differs from the file."""
        name, found = finish(_surface_of(self._server))
        path = self._folder / f"surface-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.json"
        if self._update:
            # A link is replaced: the folder of a test may come from another person.
            replace_file(path, found.encode(), 0o666)
            return
        if not path.exists():
            pytest.fail(
                f"{path.name} does not exist yet: run pytest --update-surface, and commit the file", pytrace=False
            )
        check_regular(path)
        kept = path.read_text(encoding="utf-8")
        if kept != found:
            changes = _difference(kept, found, path.name)
            pytest.fail(
                f"The surface that clients see has changed (pytest --update-surface accepts it):\n{changes}",
                pytrace=False,
            )


async def _surface_of(server: Any) -> tuple[str, str]:
    """Return the server's name, and what a client sees of it as sorted JSON."""
    async with Client(server) as client:
        listings: dict[str, Callable[[], Awaitable[Sequence[t.Wire]]]] = {
            "tools": partial(client.list_tools, audience=None),
            "resources": client.list_resources,
            "resourceTemplates": client.list_resource_templates,
            "prompts": client.list_prompts,
        }
        found: dict[str, Any] = {}
        if client.instructions is not None:
            found["instructions"] = client.instructions
        for kind, listing in listings.items():
            try:
                entries = [entry.to_dict() for entry in await listing()]
            except NotSupported:
                continue
            found[kind] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
        name = client.server.name if client.server is not None else "server"
    return name, json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _difference(kept: str, found: str, name: str) -> str:
    lines = difflib.unified_diff(kept.splitlines(), found.splitlines(), name, "now", lineterm="")
    return "\n".join(lines)


class FuzzOptions(TypedDict, total=False):
    """The options of `fuzz.check`, as in `testing.fuzz`."""

    tools: Sequence[str] | None
    principal: Any
    timeout: float
    elicit: Elicitation | ElicitCallback | None
    sample: Sampling | SampleCallback | None


class AttackOptions(FuzzOptions, total=False):
    """The options of `hostile.check`, as in `testing.attack`."""

    secrets: Sequence[str]


class FuzzFixture:
    """Fuzzing of a server's tools."""

    def __init__(self, server: Any, *, examples: int, seed: int) -> None:
        self._server = server
        self._examples = examples
        self._seed = seed

    def check(self, **options: Unpack[FuzzOptions]) -> None:
        """Fail if a tool breaks. Tools with `destructiveHint` are left out unless `tools` names them."""
        _fail_for(finish(fuzz(self._server, examples=self._examples, seed=self._seed, **options)))


class HostileFixture:
    """Attacks on a server."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def check(self, **options: Unpack[AttackOptions]) -> None:
        """Fail if a component raises, hangs, obeys an attacker or reveals something.

        The options are those of `testing.attack`.
        """
        _fail_for(finish(attack(self._server, **options)))


class ViewFixture:
    """Views of a server, each shown by a host for tests."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @overload
    def __call__(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        browser: Literal[False] = False,
        revision: str | None = None,
        over: Over = "memory",
        **options: Unpack[ViewOptions],
    ) -> AbstractAsyncContextManager[ScriptedView]: ...

    @overload
    def __call__(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        browser: Literal[True] | str,
        revision: str | None = None,
        over: Over = "memory",
        **options: Unpack[ViewOptions],
    ) -> AbstractAsyncContextManager[BrowserView]: ...

    def __call__(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        browser: Any = False,
        revision: str | None = None,
        over: Over = "memory",
        **options: Unpack[ViewOptions],
    ) -> AbstractAsyncContextManager[Any]:
        """Call a tool and show its view, as `testing.view` does."""
        return self._open_view(tool, arguments, browser, revision, over, options)

    @asynccontextmanager
    async def _open_view(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        browser: Any,
        revision: str | None,
        over: Over,
        options: ViewOptions,
    ) -> AsyncIterator[Any]:
        connecting = connect(self._server, revision=revision, over=over, extensions=RENDERS_APPS)
        async with (
            connecting as (client, _),
            view(client, tool, arguments, browser=browser, **options) as shown,
        ):
            yield shown


def _fail_for(failures: Sequence[Failure]) -> None:
    if failures:
        pytest.fail("\n\n".join(str(failure) for failure in failures), pytrace=False)
