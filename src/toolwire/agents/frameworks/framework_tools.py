"""`FrameworkTools`: the tools of a toolset, for frameworks that have a loop of their own.

The frameworks differ in how they want a tool and its result. Names, order, approval, budget, pins and search are those
of the toolset for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import UNSET, Struct

from toolwire.agents.answers import _words
from toolwire.agents.catalogue import SEARCH_TOOL, Entry
from toolwire.agents.responses import Family, ModelCall, ModelTurn, read_arguments
from toolwire.agents.result_parts import Part, ResultParts, json_text
from toolwire.agents.toolset import Toolset
from toolwire.agents.vendors import TargetName, find_target

_FAMILIES: Final[dict[str, Family]] = {"openai-chat": "openai-chat", "gemini": "gemini"}


@contextmanager
def framework(package: str) -> Iterator[None]:
    """Name the command that installs a framework where its imports fail (`ImportError`)."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"this adapter needs {package}: pip install {package} ({error})") from None


class FrameworkTool(Struct, frozen=True):
    """A tool as frameworks take it."""

    name: str
    description: str
    schema: dict[str, Any]
    server: str
    is_strict: bool
    is_parallel: bool
    """Whether its calls may overlap with other calls."""
    is_deferred: bool
    """Whether the model should search for it first, for frameworks that have a search."""


class CallSlot:
    """The place of one call in the order of calls."""

    def __init__(self, order: CallOrder, is_parallel: bool) -> None:
        self.is_parallel = is_parallel
        self._order = order
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._before = [slot for slot in order.slots if not (is_parallel and slot.is_parallel)]
        order.slots.append(self)

    async def wait(self) -> None:
        """Wait for the calls that have to end before this one begins."""
        if before := [slot._done for slot in self._before if not slot._done.done()]:
            await asyncio.wait(before)
        self._before = []

    def leave(self) -> None:
        """Let the calls behind this one begin."""
        if not self._done.done():
            self._done.set_result(None)
            self._order.slots.remove(self)


class CallOrder:
    """Runs calls that only read together, and every other call alone, in their order."""

    def __init__(self) -> None:
        self.slots: list[CallSlot] = []


class FrameworkTools:
    """The tools of a toolset for one agent of a framework."""

    def __init__(
        self, servers: Sequence[Any], options: Mapping[str, Any], *, target: TargetName = "openai-chat"
    ) -> None:
        """`servers` are those of `Toolset`, or one `Toolset`. It stays open if it was open."""
        if len(servers) == 1 and isinstance(servers[0], Toolset):
            if options:
                raise TypeError(f"the toolset has its options already: {', '.join(options)}")
            self.toolset: Toolset = servers[0]
        else:
            self.toolset = Toolset(*servers, **options)
        self._target = find_target(target)
        self._order = CallOrder()
        self._opening = asyncio.Lock()
        self._users = 0
        self._is_owned = False
        self._last_id = 0

    async def open(self) -> None:
        """Connect to the servers, unless the toolset is open. Each `open` needs its `close`."""
        async with self._opening:
            if not self.toolset._is_open:
                self._is_owned = True
                try:
                    await self.toolset.connect()
                except BaseException:
                    await self.toolset.close()
                    raise
            self._users += 1

    async def close(self) -> None:
        """Close what was opened here, after the last user."""
        async with self._opening:
            self._users = max(0, self._users - 1)
            if not self._users and self._is_owned:
                self._is_owned = False
                await self.toolset.close()

    async def list_tools(self, *, has_search: bool = False) -> list[FrameworkTool]:
        """Return the tools in the order in which models get them.

        `has_search` is for frameworks that search for deferred tools themselves: they get all tools. The rest get
        the tools of the moment, with `search_tools` if there are more.
        """
        definitions = await self.toolset.definitions(self._target.name)
        if "function_declarations" in (definitions[0] if definitions else ()):
            functions = list(definitions[0]["function_declarations"])
        else:
            functions = [each["function"] for each in definitions]
        if has_search:
            known = {each["name"] for each in functions}
            functions = [each for each in functions if each["name"] != SEARCH_TOOL]
            functions += [
                converted.function | {"strict": converted.is_strict}
                for entry in self.toolset._catalogue.entries
                if (converted := self.toolset._catalogue.convert(entry, self._target)).name not in known
            ]
        return [self._tool(each) for each in functions]

    def _tool(self, function: Mapping[str, Any]) -> FrameworkTool:
        entry = self._find(function["name"])
        schema = function["parameters_json_schema"] if "parameters_json_schema" in function else function["parameters"]
        return FrameworkTool(
            name=function["name"],
            description=function["description"],
            schema=schema,
            server="" if entry is None else entry.server,
            is_strict=function.get("strict", False),
            is_parallel=entry is None or entry.is_parallel,
            is_deferred=entry is not None and entry.is_deferred,
        )

    def _find(self, name: str) -> Entry | None:
        return self.toolset._catalogue.find(name, self._target)

    def enter(self, name: str) -> CallSlot:
        """Return the place of a call in the order of calls."""
        entry = self._find(name)
        return CallSlot(self._order, entry is None or entry.is_parallel)

    async def call(self, name: str, arguments: Any, id: str | None = None, slot: CallSlot | None = None) -> ResultParts:
        """Call a tool in its turn, and return its result or its error."""
        slot = slot or self.enter(name)
        try:
            await slot.wait()
            if id is None:
                self._last_id += 1
                id = f"call_{self._last_id}"
            read, problem = read_arguments(arguments)
            turn = ModelTurn(_FAMILIES[self._target.name], [ModelCall(id, name, read, problem)], [])
            await self.toolset._refresh()
            (answer,) = await self.toolset._answer_all(turn, self._target, is_ordered=True)
            return answer.result
        finally:
            slot.leave()


def part_text(part: Part) -> str:
    """Return a part as text: its own, or words that say what is left out."""
    return _words(part)


def result_text(result: ResultParts) -> str:
    """Return a result as text, with words for what a text cannot have."""
    texts = [part_text(part) for part in result.parts]
    if result.structured is not UNSET:
        texts.append(json_text(result.structured))
    return "\n\n".join(texts)
