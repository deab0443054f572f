"""Run a coroutine as a command, and end what it started on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from toolwire.wire.child_processes import end_by_signal, kill_children

T = TypeVar("T")

#: The signals whose default ends a process at once. Ctrl+C is a `KeyboardInterrupt`, which asyncio turns into a cancel.
_STOPPING: Final = ("SIGTERM", "SIGHUP", "SIGBREAK")


def run_command(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the work of a command. A signal to stop cancels it and becomes `SystemExit`.

    A second signal, and SIGQUIT, end the process at once, after its children.
    """
    received: list[int] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    def cancel() -> None:
        for loop, task in running:
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    def handle(number: int, frame: Any) -> None:
        if received:
            end_by_signal(number)
        received.append(number)
        cancel()

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        if received:
            cancel()
        return await work()

    try:
        # Around the loop, which still ends what was started when the work was cancelled.
        with _handled(_STOPPING, handle), end_children_first("SIGQUIT"):
            return asyncio.run(cancellable())
    except KeyboardInterrupt:
        # A second Ctrl+C does not wait until a server has ended.
        kill_children()
        raise
    except asyncio.CancelledError:
        if not received:
            raise
        # The status that a shell gives to a process that a signal ended.
        raise SystemExit(128 + received[0]) from None


@contextmanager
def end_children_first(*names: str) -> Iterator[None]:
    """Have these signals kill the children of this process before they end it."""
    with _handled(names, lambda number, frame: end_by_signal(number)):
        yield


@contextmanager
def _handled(names: Sequence[str], handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Install a handler for signals that are not ignored, and restore the handlers after."""
    before: dict[int, Any] = {}
    try:
        for name in names:
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
