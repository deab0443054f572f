"""The probes, as the players written in python make them. It runs where their libraries are, and needs none of them.

A player reads a plan (see plans.py) from the environment variable `PAIRS_PLAN`, makes each probe of it over one
connection, and prints one JSON object: the value of each probe. An error is a value, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

#: How long a player waits for what may never come, such as an update where nothing can be subscribed to.
PATIENCE = float(os.environ["PAIRS_PATIENCE"])
#: After the last message that was expected: would another one come?
REST = 0.4
#: Longer than the longest wait of a probe.
LIMIT = 20 + 2 * int(PATIENCE)
FIRST_ROOT, SECOND_ROOT = "file:///first", "file:///second"


class Player:
    """One connection of one library, and what came over it besides answers."""

    def __init__(self) -> None:
        self.root = FIRST_ROOT
        self.asked: list[Any] = []
        self.came: dict[str, list[Any]] = {"logs": [], "changed": [], "updated": []}
        self.arrived = asyncio.Event()
        self.values: dict[str, Any] = {}
        self.tasks: list[asyncio.Task[Any]] = []

    # --- What each library does in its own way ---

    @abstractmethod
    def opened(self) -> dict[str, Any]: ...
    @abstractmethod
    async def list(self, kind: str) -> list[dict[str, Any]]: ...
    @abstractmethod
    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Any = None, meta: dict[str, Any] | None = None
    ) -> dict[str, Any]: ...
    @abstractmethod
    async def stop(self, calling: asyncio.Task[Any]) -> None: ...
    @abstractmethod
    async def read(self, uri: str) -> Any: ...
    @abstractmethod
    async def prompt(self, name: str, arguments: dict[str, str]) -> Any: ...
    @abstractmethod
    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any: ...
    @abstractmethod
    async def ping(self) -> Any: ...
    @abstractmethod
    async def set_level(self, level: str) -> Any: ...
    @abstractmethod
    async def roots_changed(self) -> None: ...
    @abstractmethod
    def listening(self, uri: str) -> AbstractAsyncContextManager[Any]: ...
    @abstractmethod
    async def start_task(self, name: str, arguments: dict[str, Any]) -> Any: ...
    @abstractmethod
    async def follow_task(self, task: Any) -> Any: ...
    @abstractmethod
    async def cancel_task(self, task: Any) -> Any: ...
    @abstractmethod
    def error_of(self, error: Exception) -> Any: ...

    # --- What the user and the model answer ---

    def filled(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Answer a form; None is a refusal."""
        self.asked.append({"form": message, "schema": schema})
        if message == "Decline, please":
            return None
        return {name: answer_field(field) for name, field in schema["properties"].items()}

    def page_shown(self, params: Any) -> bool:
        """Note a page that the user shall open; return False for a form."""
        if getattr(params, "mode", "form") != "url":
            return False
        self.asked.append({"page": params.message, "url": params.url})
        return True

    def model_asked(self, params: Any) -> None:
        self.note_sampling(params.model_dump(mode="json", by_alias=True, exclude_none=True))

    def note_sampling(self, params: dict[str, Any]) -> None:
        self.asked.append({"sampling": {name: value for name, value in params.items() if name != "_meta"}})

    def tell(self, kind: str, what: Any) -> None:
        # How often a change is announced is left to the server; some say it for each part.
        if kind == "logs" or what not in self.came[kind]:
            self.came[kind].append(what)
        self.arrived.set()

    # --- The probes ---

    async def play(self) -> None:
        plan = json.loads(os.environ["PAIRS_PLAN"])
        self.values.update(self.opened())
        for kind in ("tools", "resources", "templates", "prompts"):
            await self.value(kind, lambda kind=kind: self.sorted_list(kind))  # type: ignore[misc]
        for probe, (name, arguments) in plan["calls"].items():
            await self.value(probe, lambda name=name, arguments=arguments: self.asking_call(name, arguments))  # type: ignore[misc]
        for probe, uri in plan["reads"].items():
            await self.value(probe, lambda uri=uri: self.read(uri))  # type: ignore[misc]
        for probe, (name, arguments) in plan["prompts"].items():
            await self.value(probe, lambda name=name, arguments=arguments: self.prompt(name, arguments))  # type: ignore[misc]
        for probe, given in plan["completions"].items():
            await self.value(probe, lambda given=given: self.complete(*given))  # type: ignore[misc]
        for probe in plan["others"]:
            await self.value(probe, lambda probe=probe: getattr(self, f"probe_{probe}")(*plan["others"][probe]))  # type: ignore[misc]
        print(json.dumps(self.values))

    async def value(self, probe: str, action: Callable[[], Awaitable[Any]]) -> None:
        """Make a probe; its answer or its error is the value."""
        try:
            async with asyncio.timeout(LIMIT):
                self.values[probe] = await action()
        except TimeoutError:
            self.values[probe] = f"no answer within {LIMIT} seconds"
        except Exception as error:
            self.values[probe] = {"raised": self.error_of(error)}
        if os.environ.get("PAIRS_SHOW"):
            print(probe, str(self.values[probe])[:300], file=sys.stderr, flush=True)

    async def sorted_list(self, kind: str) -> list[dict[str, Any]]:
        return sorted(await self.list(kind), key=lambda each: json.dumps([each["name"], each]))

    async def asking_call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; the value has the questions that came meanwhile."""
        self.asked = []
        result = await self.call(name, arguments)
        if self.asked:
            result["asked"] = self.asked
        texts = [each["text"] for each in result["content"] if each["type"] == "text"]
        if texts and len(texts[0]) > 10_000:
            # Two megabytes would only make the report long.
            result["content"] = [len(texts[0]), texts[0][:3], texts[0][-3:]]
            result.pop("structuredContent", None)
        return result

    async def probe_ping(self) -> Any:
        return await self.ping()

    async def probe_extension(self, name: str) -> Any:
        return self.values["capabilities"].get("extensions", {}).get(name)

    async def probe_unknown_meta(self, name: str, meta: dict[str, Any]) -> Any:
        return await self.call(name, {}, meta=meta)

    async def probe_progress(self, name: str, arguments: dict[str, Any]) -> Any:
        reports: list[Any] = []
        result = await self.call(name, arguments, on_progress=lambda *report: reports.append(report))
        await asyncio.sleep(REST)
        return {"reports": reports, "texts": [each.get("text") for each in result["content"]]}

    async def probe_cancellation(self, name: str, asking: str) -> Any:
        """Stop waiting for a call once it has begun; what its tool noticed."""
        calling = asyncio.create_task(self.call(name, {"key": "a"}))
        begun = await self.fate(asking, "begun")
        await self.stop(calling)
        return [begun, await self.fate(asking, "cancelled")]

    async def fate(self, asking: str, wanted: str) -> Any:
        told: Any = None
        for _ in range(int(PATIENCE / 0.1)):
            told = (await self.call(asking, {"key": "a"}))["content"][0]["text"]
            if told == wanted:
                break
            await asyncio.sleep(0.1)
        return told

    async def probe_roots_changed(self, name: str, arguments: dict[str, Any]) -> Any:
        self.root = SECOND_ROOT
        await self.roots_changed()
        # The notification and the next call may go over two connections.
        await asyncio.sleep(REST)
        try:
            return await self.call(name, arguments)
        finally:
            self.root = FIRST_ROOT

    async def probe_logging(self, name: str, arguments: dict[str, Any], count: int) -> Any:
        return await self.logged("debug", name, arguments, count)

    async def probe_log_level(self, name: str, arguments: dict[str, Any], count: int) -> Any:
        return await self.logged("error", name, arguments, count)

    async def logged(self, level: str, name: str, arguments: dict[str, Any], count: int) -> Any:
        try:
            answer = await self.set_level(level)
        except Exception as error:
            answer = {"raised": self.error_of(error)}
        self.came["logs"].clear()
        await self.call(name, arguments)
        await self.until("logs", count)
        return {"set": answer, "messages": list(self.came["logs"])}

    async def until(self, kind: str, count: int) -> None:
        """Wait for messages, and a moment for one too many."""
        try:
            async with asyncio.timeout(PATIENCE):
                while len(self.came[kind]) < count:
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            return
        await asyncio.sleep(REST)

    async def probe_changes(self, calls: list[Any], uri: str, dynamic: str | None, kinds: int, updates: int) -> Any:
        """Call tools that change the lists and a resource. The value of this probe is the subscription's."""
        for came in (self.came["changed"], self.came["updated"]):
            came.clear()
        try:
            async with self.listening(uri) as subscribed:
                await self.change(calls, kinds)
                await self.until("updated", updates)
        except Exception as error:
            subscribed = {"raised": self.error_of(error)}
            await self.change(calls, kinds)
        for kind in ("tools", "resources", "prompts"):
            self.values[f"{kind}_changed"] = f"notifications/{kind}/list_changed" in self.came["changed"]
        self.values["updated"] = sorted(self.came["updated"])
        for kind in ("tools", "resources", "prompts"):
            await self.value(f"{kind}_after", lambda kind=kind: self.names(kind))  # type: ignore[misc]
        if dynamic is not None:
            await self.value("dynamic_tool", lambda: self.call(dynamic, {}))
        return subscribed

    async def change(self, calls: list[Any], kinds: int) -> None:
        for name, arguments in calls:
            await self.call(name, arguments)
        await self.until("changed", kinds)

    async def names(self, kind: str) -> list[str]:
        return sorted(each["name"] for each in await self.list(kind))

    async def probe_task(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.follow_task(await self.start_task(name, arguments))

    async def probe_task_cancelled(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.cancel_task(await self.start_task(name, arguments))


def answer_field(field: dict[str, Any]) -> Any:
    """What a user enters."""
    if "default" in field:
        return field["default"]
    if "enum" in field or "oneOf" in field:
        return field["enum"][0] if "enum" in field else field["oneOf"][0]["const"]
    return {"string": "Ada", "integer": 4, "number": 4, "boolean": True}.get(field.get("type", ""), [])
