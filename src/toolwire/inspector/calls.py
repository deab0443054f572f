"""The requests that the page made, with their progress and their results, within a bound."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw

from toolwire import schemas
from toolwire.client import Client
from toolwire.client.apps import View
from toolwire.client.connection import OnProgress
from toolwire.client.tasks import TaskCancelled, TaskState
from toolwire.inspector.events import Events
from toolwire.inspector.excerpt import Excerpt
from toolwire.inspector.tasks import call_as_task, describe_state
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.revisions import is_modern

MAX_KEPT: Final = 100
MAX_KEPT_BYTES: Final = 160 * 1024 * 1024
MAX_RUNNING: Final = 100


class _Whole(t.Result, kw_only=True):
    """A result as the server sent it, of any shape."""

    raw: Any = None


class _Outcome(msgspec.Struct):
    result_type: str = msgspec.field(default="complete", name="resultType")
    is_error: Any = msgspec.field(default=False, name="isError")


_decode_outcome = msgspec.json.Decoder(_Outcome).decode


def _whole(raw: Raw) -> _Whole:
    return _Whole(result_type=_decode_outcome(raw).result_type, raw=raw)


class PageCall:
    """One request of the page."""

    def __init__(self, identifier: str, method: str, params: Mapping[str, Any], via: str | None = None) -> None:
        self.identifier = identifier
        #: "app" for a call that a view made; None for one of the person at the page.
        self.via = via
        self.method = method
        self.subject: str = str(params.get("name") or params.get("uri") or "")
        #: The extension that the method belongs to; None for a method of the protocol.
        self.extension: str | None = None
        #: The parameters as they were sent, as JSON.
        self.params: bytes = msgspec.json.encode(params)
        self.state = "running"
        self.started: float = time.time()
        self.took: float | None = None
        self.progress: dict[str, Any] | None = None
        self.result: bytes | None = None
        self.error: dict[str, Any] | None = None
        #: Whether the result of the tool says that it failed (`isError`).
        self.failed = False
        #: The task that the call became, if it did.
        self.as_task: dict[str, Any] | None = None
        #: How often the request was sent: more than once where the server asked, on 2026-07-28.
        self.rounds = 1
        self.problems: list[str] = []
        self.task: asyncio.Task[None] | None = None

    async def ended(self) -> None:
        """Wait for the end of the call."""
        if self.task is not None:
            await asyncio.wait({self.task})

    def cancel(self) -> bool:
        """Cancel the call; return whether it was running."""
        return self.task is not None and self.task.cancel()

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.identifier,
            "method": self.method,
            "subject": self.subject,
            "via": self.via,
            "extension": self.extension,
            "state": self.state,
            "started": self.started,
            "took": self.took,
            "progress": self.progress,
            "error": self.error,
            "failed": self.failed,
            "task": self.as_task,
            "rounds": self.rounds,
            "problems": self.problems,
            "size": None if self.result is None else len(self.result),
        }


class PageCalls:
    """The calls of the page, the oldest forgotten first."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._calls: dict[str, PageCall] = {}
        self._numbers = itertools.count(1)

    def describe(self) -> list[dict[str, Any]]:
        return [call.describe() for call in self._calls.values()]

    def all(self) -> list[PageCall]:
        return list(self._calls.values())

    def find(self, identifier: str) -> PageCall | None:
        return self._calls.get(identifier)

    def start(
        self,
        client: Client,
        method: str,
        params: Mapping[str, Any],
        tool: Mapping[str, Any],
        extension: str | None = None,
        *,
        view: View | None = None,
    ) -> PageCall:
        """Send a request: `tools/call` (of `tool`), `resources/read`, `prompts/get`, or one of an extension.

        `params` with a true `task` asks for a task where the client may. `view` is the view that
        asks for it, and only `tools/call` and `resources/read` are for views.
        """
        if sum(call.state == "running" for call in self._calls.values()) >= MAX_RUNNING:
            raise ToolwireError(f"{MAX_RUNNING} calls are running already: wait for one, or cancel it")
        call = PageCall(str(next(self._numbers)), method, params, None if view is None else "app")
        call.extension = extension
        send = (
            self._sender(call, client, params, tool)
            if view is None
            else partial(_send_for_view, client, view, call, params)
        )
        self._calls[call.identifier] = call
        self._tell(call)
        call.task = asyncio.get_running_loop().create_task(self._run(call, send, tool.get("outputSchema")))
        return call

    def _sender(
        self, call: PageCall, client: Client, params: Mapping[str, Any], tool: Mapping[str, Any]
    ) -> Callable[[], Awaitable[Raw]]:
        report = self._reporter(call)
        if call.method == "tools/call" and _may_be_task(client, params, tool):
            arguments = dict(params.get("arguments") or {})
            return partial(call_as_task, client, call.subject, arguments, report, partial(self._task_is, call))
        if call.extension is not None:
            return partial(_send_extension, client, call, params, report)
        request = _request(call.method, params)

        async def send() -> Raw:
            # No timeout: a person watches the call, and may be answering a question of the server.
            whole = await client._sender.ask(call.method, request, _whole, timeout=math.inf, on_progress=report)
            raw: Raw = whole.raw
            return raw

        return send

    def cancel(self, identifier: str) -> bool:
        call = self._calls.get(identifier)
        return call is not None and call.cancel()

    async def cancel_all(self) -> None:
        running = [call.task for call in self._calls.values() if call.task is not None and not call.task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _run(self, call: PageCall, send: Callable[[], Awaitable[Raw]], output_schema: Any) -> None:
        began = time.perf_counter()
        try:
            call.result = bytes(await send())
            call.state = "done"
            call.failed = _decode_outcome(call.result).is_error is True
            if output_schema is not None and not call.failed:
                call.problems = _problems(call.result, output_schema)
        except (asyncio.CancelledError, TaskCancelled):
            call.state = "cancelled"
        except ProtocolError as error:
            data = None if error.data is msgspec.UNSET else Excerpt(error.data).value
            call.state, call.error = "failed", {"message": error.message, "code": error.code, "data": data}
        except ToolwireError as error:
            call.state, call.error = "failed", {"message": str(error), "kind": type(error).__name__}
        call.took = time.perf_counter() - began
        self._forget_old()
        self._tell(call)

    def _reporter(self, call: PageCall) -> Callable[[t.ProgressNotificationParams], None]:
        def report(params: t.ProgressNotificationParams) -> None:
            call.progress = params.to_dict()
            call.progress.pop("progressToken", None)
            self._tell(call)

        return report

    def sent(self, message: bytes) -> None:
        """Count a round of a call when the client sends its request state."""
        if b'"requestState"' not in message:
            return
        # The client sends the requests of a call in the asyncio task of the call.
        task = asyncio.current_task()
        call = next((each for each in self._calls.values() if each.task is task), None)
        if call is not None:
            call.rounds += 1
            self._tell(call)

    def _task_is(self, call: PageCall, state: TaskState) -> None:
        call.as_task = describe_state(state)
        self._tell(call)

    def _tell(self, call: PageCall) -> None:
        self._events.tell("call", call=call.describe())

    def _forget_old(self) -> None:
        kept = [call for call in self._calls.values() if call.state != "running"]
        total = sum(map(_weight, kept))
        for call in kept[:-1]:
            if len(kept) <= MAX_KEPT and total <= MAX_KEPT_BYTES:
                return
            kept.remove(call)
            total -= _weight(call)
            del self._calls[call.identifier]
            self._events.tell("forgotten", id=call.identifier)


def _weight(call: PageCall) -> int:
    return len(call.params) + len(call.result or b"")


def _may_be_task(client: Client, params: Mapping[str, Any], tool: Mapping[str, Any]) -> bool:
    if is_modern(client.revision):
        return True
    execution = tool.get("execution")
    return bool(params.get("task")) or (isinstance(execution, dict) and execution.get("taskSupport") == "required")


async def _send_extension(client: Client, call: PageCall, params: Mapping[str, Any], report: OnProgress) -> Raw:
    try:
        sent = client.request(call.method, params, extension=call.extension, timeout=math.inf, on_progress=report)
        return Raw(msgspec.json.encode(await sent))
    except ValueError as error:  # A name that cannot be sent, or that belongs to the connection.
        raise ToolwireError(str(error)) from None


async def _send_for_view(client: Client, view: View, call: PageCall, params: Mapping[str, Any]) -> Raw:
    """Send a request of a view.

    The user did not press a button for it, so the client checks it (`client.apps`).
    """
    if call.method == "tools/call":
        result = await client.apps.call_from_view(view, call.subject, params["arguments"], timeout=math.inf)
        return Raw(msgspec.json.encode(result.to_wire().to_dict()))
    contents = await client.apps.read_from_view(view, call.subject, timeout=math.inf)
    return Raw(msgspec.json.encode({"contents": [each.to_dict() for each in contents]}))


def _request(method: str, params: Mapping[str, Any]) -> t.RequestParams:
    arguments = Raw(msgspec.json.encode(params.get("arguments") or {}))
    if method == "tools/call":
        return t.CallToolRequestParams(name=str(params["name"]), arguments=arguments)
    if method == "prompts/get":
        return t.GetPromptRequestParams(name=str(params["name"]), arguments=arguments)
    if method == "resources/read":
        return t.ReadResourceRequestParams(uri=str(params["uri"]))
    raise ToolwireError(f"{method} cannot be sent from here")


def _problems(result: bytes, output_schema: Any) -> list[str]:
    """List how a result breaks the output schema of its tool (OUT-2).

    The page shows the result all the same.
    """
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        decoded = msgspec.json.decode(result)
        if "structuredContent" not in decoded:
            return ["The tool has an output schema, and the result has no structuredContent."]
        try:
            validator = schemas.compile(output_schema, what="the output schema")
        except schemas.SchemaError as error:
            return [str(error)]
        found = validator.check(decoded["structuredContent"])
        return [schemas.sentence(problem, "structuredContent") for problem in found]
    return []
