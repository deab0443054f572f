"""`fuzz`: calls of a server's tools with arguments made from their schemas.

With arguments that fit, a tool may return a result, raise `ToolError`, or refuse a client that lacks a capability. It
must not raise anything else, break its own output schema, or hang. It must refuse arguments that do not fit. A
generated user and a generated model answer the questions of the tools.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

from toolwire import schemas
from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.handlers import ElicitCallback, SampleCallback
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import has_destructive_hint
from toolwire.protocol.errors import (
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    ProtocolError,
    Timeout,
    ToolwireError,
)
from toolwire.testing.connecting import connect
from toolwire.testing.failures import Failure, hidden_causes
from toolwire.testing.generated import SIMPLEST, MadeUp, fitting
from toolwire.testing.overrides import uncounted

# How many simpler arguments to try after a failure.
_SIMPLER: Final = 100


async def fuzz(
    server: Any,
    *,
    tools: Sequence[str] | None = None,
    examples: int = 50,
    seed: int = 0,
    principal: Any = None,
    timeout: float = 10.0,
    elicit: Elicitation | ElicitCallback | None = None,
    sample: Sampling | SampleCallback | None = None,
) -> list[Failure]:
    """Return the first failure of each tool, with the simplest arguments that were found.

    `principal` is the caller; tools that they do not see are not called. Without a principal nothing is restricted.
    `elicit` and `sample` answer the questions of tools, as in `Client`. Without them, forms are filled in from their
    schema, and declined now and then. `timeout` is for each call.
    """
    failures = []
    asked = MadeUp(Random(seed))
    with uncounted(server), hidden_causes() as causes:
        async with _client(server, principal, elicit or asked.elicitation, sample or asked.sampling) as client:
            known = {tool.name: tool for tool in await client.list_tools(audience=None)}
            for tool in chosen(known, tools):
                random = Random(f"{seed} {tool.name}")
                found = await _Trial(client, tool, asked, causes, random, timeout).run(examples)
                if found is not None:
                    failures.append(found)
    return failures


@asynccontextmanager
async def _client(server: Any, principal: Any, elicit: Any, sample: Any) -> AsyncIterator[Client]:
    if principal is not None:
        async with connect(server, principal=principal, elicit=elicit, sample=sample, roots=()) as (client, _):
            yield client
    else:
        async with Client(server, elicit=elicit, sample=sample, roots=()) as client:
            yield client


def chosen(known: Mapping[str, t.Tool], named: Sequence[str] | None) -> list[t.Tool]:
    """Return the tools to call: those that are named, or all without `destructiveHint`."""
    if named is None:
        return [tool for tool in known.values() if not has_destructive_hint(tool)]
    for name in named:
        if name not in known:
            raise ValueError(f"the server has no tool {name!r}")
    return [known[name] for name in named]


class _Trial:
    """A tool that is called again and again."""

    def __init__(
        self,
        client: Client,
        tool: t.Tool,
        asked: MadeUp,
        causes: list[BaseException],
        random: Random,
        timeout: float,
    ) -> None:
        self._client = client
        self._tool = tool
        self._asked = asked
        self._causes = causes
        self._random = random
        self._timeout = timeout
        self._validator = schemas.compile(tool.input_schema, what=f"the input schema of {tool.name!r}")

    async def run(self, examples: int) -> Failure | None:
        for arguments in fitting(self._tool, self._validator, self._random, examples):
            found = await self._call(arguments)
            if found is not None:
                return await self._simplest(found)
        for arguments in self._bad():
            if await self._accepts(arguments):
                return Failure(self._tool.name, "took arguments that its schema refuses", arguments)
        return None

    def _bad(self) -> Iterator[dict[str, Any]]:
        """Yield bad arguments: one is missing, unknown, or of a wrong type."""
        good = next(fitting(self._tool, self._validator, self._random, 1))
        candidates = [{key: value for key, value in good.items() if key != name} for name in good]
        candidates += [{**good, name: {"unexpected": [None]}} for name in good]
        candidates.append({**good, "unexpected_argument": 1})
        return (arguments for arguments in candidates if self._validator.check(arguments))

    async def _call(self, arguments: dict[str, Any]) -> Failure | None:
        """Call the tool with arguments that fit; return the failure if there is one."""
        self._causes.clear()
        self._asked.given.clear()
        problem = None
        try:
            await self._client.call_tool(self._tool.name, arguments, timeout=self._timeout)
        except Timeout:
            problem = "did not answer in time"
        except ProtocolError as error:
            if not self._refuses_the_client(error):
                problem = f"ended in a protocol error: {error}"
        except ToolwireError as error:
            problem = f"broke its promise: {error}"
        if self._causes:
            problem = f"raised {type(self._causes[0]).__name__}"
        if problem is None:
            return None
        cause = self._causes[0] if self._causes else None
        return Failure(self._tool.name, problem, arguments, cause, tuple(self._asked.given))

    def _refuses_the_client(self, error: ProtocolError) -> bool:
        """Return whether the server refuses the client or a form, not the arguments.

        The schema of a form cannot express every rule of the server, such as a pattern.
        """
        return error.code == MISSING_CLIENT_CAPABILITY or (error.code == INVALID_PARAMS and bool(self._asked.given))

    async def _accepts(self, arguments: dict[str, Any]) -> bool:
        try:
            result: ToolResult = await self._client.call_tool(self._tool.name, arguments, timeout=self._timeout)
        except ProtocolError as error:
            return error.code != INVALID_PARAMS
        return not result.is_error

    async def _simplest(self, failure: Failure) -> Failure:
        """Look for the same failure with fewer and simpler arguments, within a few attempts."""
        attempts = 0
        again = True
        while again:
            again = False
            for arguments in _simpler(failure.arguments):
                attempts += 1
                if attempts > _SIMPLER:
                    return failure
                found = None if self._validator.check(arguments) else await self._call(arguments)
                if found is not None and found.problem == failure.problem:
                    failure, again = found, True
                    break
        return failure


def _simpler(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in arguments.items():
        yield {key: kept for key, kept in arguments.items() if key != name}
        for simple in SIMPLEST:
            if type(simple) is type(value):
                if simple == value:
                    break
                yield {**arguments, name: simple}
