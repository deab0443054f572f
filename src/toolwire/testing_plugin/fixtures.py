"""What the fixtures of the plugin are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest

from toolwire import testing
from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.handlers import ElicitCallback, SampleCallback
from toolwire.loops import finish
from toolwire.testing_plugin import surfaces


class Served:
    """A server, and how this run of the test reaches it."""

    def __init__(self, target: Any, revision: str, over: Any) -> None:
        self.target = target
        self.revision = revision
        self.over = over

    def connect(self, **options: Any) -> AbstractAsyncContextManager[tuple[Client, testing.Wire]]:
        """A connected client and the record of what is said; `options` are those of `testing.connect`."""
        return testing.connect(self.target, revision=self.revision, over=self.over, **options)

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *, returns: Any = None) -> Any:
        """One call, from a test that is not `async`."""

        async def call() -> Any:
            async with self.connect() as (client, _):
                return await client.call_tool(name, arguments, returns=returns)

        return finish(call())

    def __repr__(self) -> str:
        return f"<{self.target!r} on {self.revision} over {self.over}>"


class Surface:
    """The surface of a server and the file it is kept in, next to the test."""

    def __init__(self, server: Any, folder: Path, *, update: bool) -> None:
        self._server = server
        self._folder = folder
        self._update = update

    def check(self) -> None:
        """Fail when the surface is not the one that was kept."""
        name, found = finish(surfaces.of(self._server))
        path = self._folder / f"surface-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.json"
        if self._update:
            path.write_text(found, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path.name} is not there yet: run pytest --update-surface, and commit it", pytrace=False)
        kept = path.read_text(encoding="utf-8")
        if kept != found:
            changes = surfaces.difference(kept, found, path.name)
            pytest.fail(f"What clients see has changed (pytest --update-surface accepts it):\n{changes}", pytrace=False)


class FuzzOptions(TypedDict, total=False):
    """What `fuzz.check` can be told, as `testing.fuzz`."""

    tools: Sequence[str] | None
    principal: Any
    timeout: float
    elicit: Elicitation | ElicitCallback | None
    sample: Sampling | SampleCallback | None


class AttackOptions(FuzzOptions, total=False):
    """What `hostile.check` can be told, as `testing.attack`."""

    secrets: Sequence[str]


class Fuzz:
    """Fuzzing of a server's tools."""

    def __init__(self, server: Any, *, examples: int, seed: int) -> None:
        self._server = server
        self._examples = examples
        self._seed = seed

    def check(self, **options: Unpack[FuzzOptions]) -> None:
        """Fail when a tool breaks. Tools with `destructiveHint` are left out unless they are named."""
        _fail_for(finish(testing.fuzz(self._server, examples=self._examples, seed=self._seed, **options)))


class Hostile:
    """Calls of a server with the texts of callers who mean harm."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def check(self, **options: Unpack[AttackOptions]) -> None:
        """Fail when a component raises, hangs, obeys or reveals something; the options are those of `attack`."""
        _fail_for(finish(testing.attack(self._server, **options)))


def _fail_for(failures: Sequence[testing.Failure]) -> None:
    if failures:
        pytest.fail("\n\n".join(str(failure) for failure in failures), pytrace=False)
