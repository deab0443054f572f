"""Report why a started server does not answer, such as a port it listens on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolwire.cli.screen import note
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from toolwire.wire.subprocess import ProcessChannel

SILENT_SECONDS: Final = 3.0
_SHOWN: Final = 200


class StartWatch:
    """Watches a started server, and reports after a few seconds that it is silent."""

    def __init__(self, label: str, timeout: float) -> None:
        self._label = label
        self._seconds = min(SILENT_SECONDS, timeout / 2)
        self._has_answered: Callable[[], bool] = bool
        self.advice: str = ""
        """What to do about a server that listens on a port; empty for any other."""

    def until(self, has_answered: Callable[[], bool]) -> None:
        self._has_answered = has_answered

    def started(self, channel: ProcessChannel) -> None:
        """Watch a process that was started just now."""
        asyncio.get_running_loop().call_later(self._seconds, self._report_silence, channel)

    def _report_silence(self, channel: ProcessChannel) -> None:
        if self._has_answered() or channel.returncode is not None:
            return
        # Imported here because it loads the client, which has started the process.
        from toolwire.client.targets import advise_port

        self.advice = advise_port(channel, self._label)
        if not sys.stderr.isatty():
            return
        said = channel.last_said[:_SHOWN]
        note(
            f"toolwire: {self._label} has not answered for {counted(self._seconds, 'second')}"
            + (f"; {self.advice}" if self.advice else f"; its last line is: {said}" if said else "")
            + " (Ctrl+C ends it)"
        )
