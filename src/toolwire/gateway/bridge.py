"""A bridge: one server at a URL, for a client that can only start a command.

It is a server with one other server mounted in it, without a prefix. So everything crosses as it does in a gateway, on
whichever revision each side speaks. Clients see the name and the instructions of the other server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from toolwire._version import __version__
from toolwire.client.http_target import HttpTarget
from toolwire.gateway.upstream import Upstream
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS, UpstreamRules
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import REVISIONS
from toolwire.server.catalog import Mount
from toolwire.server.server import Server

#: How many seconds a client waits for the server at the start. A person may have to sign in meanwhile.
START_SECONDS: Final = 30.0


class Bridge(Server):
    """A server that hands everything on to the one at a URL.

    `report` gets one line whenever the other server is reached, or goes away.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        revision: str | None = None,
        timeout: float | None = TIMEOUT_SECONDS,
        report: Callable[[str], None] | None = None,
    ) -> None:
        if revision is not None and revision not in REVISIONS:
            raise ServerError(f"Unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")
        try:
            target = HttpTarget(url, headers=headers, auth=auth)
        except ValueError as error:
            raise ServerError(str(error)) from None
        super().__init__("toolwire-bridge", version=__version__)
        self._report = report
        self._last_line: str | None = None
        self._remote = Upstream(
            target.label,
            target,
            timeout=timeout,
            revision=revision,
            list_timeout=START_SECONDS,
            find_rules=lambda: UpstreamRules(keeps_stale_lists=True),
        )
        self._remote.availability.watchers.append(self._review_remote)
        # A client asks once what there is, and the other server may not be there yet.
        self.kernel.offer.add_families(("tools", "resources", "prompts"))
        self.catalog.mount(Mount("", self._remote.catalog))

    def _review_remote(self) -> None:
        """Take note that the other server was reached, has changed, or is away."""
        remote = self._remote
        connection = remote.back_connections.shared.connection
        if remote.availability.is_ready and connection is not None:
            agreement = connection.agreement
            if agreement.server is not UNSET:
                self.kernel.introduce(agreement.server)
            self.kernel.offer.tell_instructions(remote.remote_instructions or "")
            self._say(f"connected to {remote.name}, which speaks {connection.revision}")
        elif remote.availability.is_away:
            self._say(f"{remote.name} is away, and is tried again: {remote.availability.error}")

    def _say(self, line: str) -> None:
        if line != self._last_line and self._report is not None:
            self._report(line)
        self._last_line = line
