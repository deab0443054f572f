"""Run a coroutine as a command, and end what it started on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: The signals whose default ends a process at once. Ctrl+C is a `KeyboardInterrupt`, which asyncio turns into a cancel.
_STOPPING: Final = ("SIGTERM", "SIGHUP", "SIGBREAK")


def run_command(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the work of a command. A signal to stop cancels it and becomes `SystemExit`."""
    received: list[int] = []

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        with _signals(received, task.cancel):
            return await work()

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if not received:
            raise
        # The status that a shell gives to a process that a signal ended.
        raise SystemExit(128 + received[0]) from None


@contextmanager
def _signals(received: list[int], stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on the loop at the first signal. End the process at the second."""
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: Any) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.append(number)
        loop.call_soon_threadsafe(stop)

    before: dict[int, Any] = {}
    try:
        for name in _STOPPING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handle)
    except ValueError:
        pass  # Not in the main thread, where Python allows no handlers.
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
