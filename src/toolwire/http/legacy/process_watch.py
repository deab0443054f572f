"""The processes that do not answer on the bus, and so are gone.

A process is asked on its own topic, and answers on the topic of the process that asks. That one writes down on its own
topic that it asks, before it asks. So it hears questions and answers in one order. A process is gone when it has been
silent for `SILENT_SECONDS`, by these rules:

- The silence begins when the first question that it has not answered is heard here. Any answer ends the silence.
- The time is that of this process's own monotonic clock.
- It counts only when another question, sent after the whole time, has been heard here as well. Whatever the process
  answered before that question comes before it on the topic. So neither a process that is slow to hear nor a bus that
  was away takes a living process for gone.
- When messages were lost, the answer may be among them, and everything begins anew.

The time is longer than a handler may reasonably hold up the event loop that answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SILENT_SECONDS: Final = 50.0
# Processes that are remembered. A process that is forgotten is asked again.
MAX_PROCESSES: Final = 1000


class ProcessWatch:
    """The processes that were asked, as this process knows them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is monotonic."""
        self._clock = clock
        self._silent_since: dict[str, float] = {}
        self._gone: dict[str, None] = {}

    def is_gone(self, process: str) -> bool:
        return process in self._gone

    def silence(self, process: str) -> float | None:
        """Return the beginning of a silence that is too long, for the next question; None while it is not."""
        since = self._silent_since.get(process)
        return since if since is not None and self._clock() - since >= SILENT_SECONDS else None

    def asked(self, process: str, silence: float | None) -> bool:
        """Take note of a question on the topic; return whether the process is gone.

        `silence`: what `silence()` returned when this process sent the question; None for one of another process.
        """
        since = self._silent_since.setdefault(process, self._clock())
        if silence == since:
            self._gone[process] = None
        _forget_oldest(self._silent_since)
        _forget_oldest(self._gone)
        return process in self._gone

    def heard(self, process: str) -> None:
        """Take note of an answer: the process is there."""
        self._silent_since.pop(process, None)
        self._gone.pop(process, None)

    def lost(self) -> None:
        """Begin anew, because an answer may have been lost."""
        self._silent_since.clear()


def _forget_oldest(processes: dict[str, Any]) -> None:
    if len(processes) > MAX_PROCESSES:
        del processes[next(iter(processes))]
