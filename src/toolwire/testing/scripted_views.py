"""Views in tests: `View` records what a view did, `ScriptedView` is played."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolwire.apps.bridge import DENIED, WIRE_VERSION, LogMessage, Refusal, SizeChanged
from toolwire.apps.checks import FoundView, ViewFinding, check_app_tool, check_shown_result, check_view
from toolwire.apps.host import ViewCall, ViewHost
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError

_APP: Final = {"name": "test", "version": "1"}
_MODES: Final = ("inline", "fullscreen", "pip")


class View:
    """A view and what it did. `testing.view()` yields it."""

    def __init__(self, host: ViewHost, result: ToolResult | None) -> None:
        self.host: ViewHost = host
        """The host's half of the bridge."""
        self.result: ToolResult | None = result
        """The result that the view shows; None for a call that was cancelled."""

    @property
    def tool(self) -> t.Tool:
        return self.host.tool

    @property
    def found(self) -> FoundView:
        """The view as its server sent it."""
        return self.host.view

    @property
    def html(self) -> str:
        return self.host.view.html

    @property
    def policy(self) -> str:
        """The Content-Security-Policy that holds for the view."""
        return self.host.policy.header

    @property
    def context(self) -> Mapping[str, Any]:
        """The `hostContext` as it is now."""
        return self.host.context

    @property
    def calls(self) -> list[ViewCall]:
        """The calls of tools that the view made, in order, also those that were refused."""
        return self.host.calls

    @property
    def messages(self) -> list[list[dict[str, Any]]]:
        """The messages that the view put into the chat, each a list of content blocks."""
        return self.host.messages

    @property
    def model_context(self) -> dict[str, Any] | None:
        """The context that the view last gave the model; None if it gave none."""
        return self.host.model_context

    @property
    def links(self) -> list[str]:
        """The links that the view opened."""
        return self.host.links

    @property
    def downloads(self) -> list[list[dict[str, Any]]]:
        """The files that the view offered, each a list of resources."""
        return self.host.downloads

    @property
    def logs(self) -> list[LogMessage]:
        """The log messages of the view (`notifications/message`)."""
        return self.host.logs

    @property
    def sizes(self) -> list[SizeChanged]:
        """The sizes that the view reported."""
        return self.host.sizes

    @property
    def refusals(self) -> list[Refusal]:
        """The messages of the view that were not let through, each with the reason."""
        return self.host.refusals

    @property
    def stopped(self) -> str | None:
        """Why the view was stopped; None if it was not."""
        return self.host.stopped

    @property
    def wants_teardown(self) -> bool:
        """True if the view asked its host to close it."""
        return self.host.wants_teardown

    @property
    def wire(self) -> list[tuple[str, dict[str, Any]]]:
        """All messages of the bridge: "→" went to the view, "←" came from it."""
        return self.host.log

    def change_context(self, **change: Any) -> None:
        """Change members of `hostContext`, by their names on the wire, and tell the view: `theme="dark"`."""
        self.host.change_context(change)

    def findings(self) -> list[ViewFinding]:
        """Return faults of the page, its `_meta`, the tool and the result.

        The page is not run.
        """
        found = [*check_view(self.host.view, endpoint=self.host.endpoint), *check_app_tool(self.tool)]
        return found if self.result is None else [*found, *check_shown_result(self.result)]

    def check_page(self) -> None:
        """Fail if the page, its `_meta`, the tool or the result has a fault.

        Hints do not count.
        """
        faults = [str(each) for each in self.findings() if each.level != "hint"]
        assert not faults, "\n".join([f"{self.found.uri} has faults:", *faults])


class ScriptedView(View):
    """A view that the test plays, message by message."""

    def __init__(self, host: ViewHost, result: ToolResult | None) -> None:
        super().__init__(host, result)
        self.received: list[dict[str, Any]] = []
        """The notifications that the host sent to the view."""
        self._count = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def deliver(self, message: dict[str, Any]) -> None:
        """Receive a message of the host.

        Its requests are answered at once, as every view has to.
        """
        if "method" not in message:
            waiting = self._waiting.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif "id" in message:
            self.received.append(message)
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        else:
            self.received.append(message)

    def send(self, message: Mapping[str, Any] | str | bytes) -> None:
        """Send anything to the host: a message, or a text that is none."""
        self.host.receive(message if isinstance(message, str | bytes) else msgspec.json.encode(message))

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to the host."""
        self.send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the host and return the result.

        An error is raised as `ProtocolError`.
        """
        self._count += 1
        identifier = self._count
        waiting = self._waiting[identifier] = asyncio.get_running_loop().create_future()
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": dict(params or {})})
        stopping = asyncio.ensure_future(self.host.ended())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._waiting.pop(identifier, None)
        if not waiting.done():
            waiting.cancel()
            raise ProtocolError(DENIED, self.stopped or "the view is closed")
        answer = waiting.result()
        if "error" in answer:
            raise ProtocolError(answer["error"]["code"], answer["error"]["message"])
        result: dict[str, Any] = answer["result"]
        return result

    async def initialize(self, *, display_modes: tuple[str, ...] = _MODES) -> dict[str, Any]:
        """Make the handshake, and return the answer of the host.

        The host then sends the input and the result.
        """
        params = {
            "protocolVersion": WIRE_VERSION,
            "appInfo": _APP,
            "appCapabilities": {"availableDisplayModes": list(display_modes)},
        }
        answer = await self.request("ui/initialize", params)
        self.notify("ui/notifications/initialized")
        return answer

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool of the server of the view."""
        answer = await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})
        return ToolResult.from_wire(msgspec.convert(answer, t.CallToolResult))

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the params of all notifications of this method: `told("ui/notifications/tool-result")`."""
        return [each["params"] for each in self.received if each["method"] == method]
