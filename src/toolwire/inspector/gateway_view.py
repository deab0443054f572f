"""The upstreams of a gateway in the page: their state, and each request to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from toolwire.gateway import Back, Gateway
from toolwire.inspector.events import Events
from toolwire.inspector.server_output import ServerOutput
from toolwire.inspector.wire_log import WireLog
from toolwire.server.call import Call
from toolwire.server.hops import Hop

#: Changes within this time are shown together.
TOGETHER_SECONDS: Final = 0.2
#: The number of servers, and of names of each, that are shown.
MAX_BACKS: Final = 1_000
MAX_NAMES: Final = 100


#: The members of a server that the page shows as they are, because it knows nothing more about them.
FURTHER: Final = tuple(
    name
    for name in Back.__struct_fields__
    if name
    not in ("name", "state", "error", "revision", "transport", "last_change", "tools", "prompts", "resources", "hidden")
)


class _Traffic:
    """The requests to one upstream while the page is open."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.in_flight = 0
        self.seconds = 0.0


class GatewayView:
    """A gateway in this process, for the page.

    `gateway` returns it, or None if there is none.
    """

    def __init__(self, gateway: Callable[[], object], events: Events, log: WireLog, output: ServerOutput) -> None:
        self._gateway = gateway
        self._events = events
        self._log = log
        self._output = output
        self._watched: Gateway | None = None
        self._traffic: dict[str, _Traffic] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Before a page asks: what a server writes while it starts is shown as well.
        self._watch()

    def describe(self) -> list[dict[str, Any]] | None:
        """Return the servers behind the gateway; None if the server is not a gateway."""
        gateway = self._watch()
        if gateway is None:
            return None
        return [self._back(back) for back in list(gateway.backs.values())[:MAX_BACKS]]

    def configuration(self) -> dict[str, Any] | None:
        """Return the state of the file of the gateway; None for one without a file."""
        gateway = self._watch()
        if gateway is None or gateway.configuration is None:
            return None
        status = gateway.configuration.status
        return {
            "file": status.file,
            "loaded": status.loaded,
            "reloads": status.reloads,
            "error": None if status.error is None else status.error[:2_000],
            "restart": list(status.restart[:MAX_NAMES]),
            "leaving": list(gateway.leaving),
        }

    def _watch(self) -> Gateway | None:
        """Watch the gateway. A file that is loaded again makes another one."""
        gateway = self._gateway()
        if gateway is not self._watched:
            if self._watched is not None:
                self._watched.watchers.remove(self._tell_soon)
                self._watched.kernel.hop_observers.remove(self._hop)
                self._watched.on_stderr = None
            self._watched = gateway if isinstance(gateway, Gateway) else None
            if self._watched is not None:
                self._watched.watchers.append(self._tell_soon)
                self._watched.kernel.hop_observers.append(self._hop)
                self._watched.on_stderr = self._output.add
        return self._watched

    def _back(self, back: Back) -> dict[str, Any]:
        traffic = self._traffic.get(back.name) or _Traffic()
        ended = traffic.requests - traffic.in_flight
        return {
            "name": back.name,
            "state": back.state,
            "error": None if back.error is None else back.error[:2_000],
            "revision": back.revision,
            "transport": back.transport,
            "lastChange": back.last_change,
            "tools": back.tools,
            "prompts": back.prompts,
            "resources": back.resources,
            "hidden": list(back.hidden[:MAX_NAMES]),
            "requests": traffic.requests,
            "failures": traffic.failures,
            "inFlight": traffic.in_flight,
            "took": traffic.seconds / ended if ended > 0 else None,
            "further": [[_label(name), _text(getattr(back, name))] for name in FURTHER if getattr(back, name)],
        }

    def _hop(self, call: Call, hop: Hop) -> Callable[[], None]:
        traffic = self._traffic.setdefault(hop.back, _Traffic())
        traffic.requests += 1
        traffic.in_flight += 1
        begun = time.perf_counter()
        asked = self._log.sent_on(hop.back, call.request_id, hop.method, hop.name, hop.params)
        self._tell_soon()

        def ended() -> None:
            traffic.in_flight -= 1
            traffic.seconds += time.perf_counter() - begun
            is_error = hop.ending not in ("ok", "asked")
            traffic.failures += is_error
            text = {"ending": hop.ending, "error": hop.error, "code": hop.code} if hop.answer is None else hop.answer
            self._log.came_back(asked, text, is_error=is_error)
            self._tell_soon()

        return ended

    def _tell_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._events.tell("backs", backs=self.describe(), configuration=self.configuration())


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _text(value: Any) -> str:
    return (", ".join(map(str, value[:MAX_NAMES])) if isinstance(value, tuple) else str(value))[:2_000]
