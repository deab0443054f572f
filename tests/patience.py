"""A bound for waits of tests: a behaviour that is broken fails soon, and says what was waited for."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

#: How many seconds nothing may happen.
SILENCE = 20.0
#: How many seconds that may take at most, on a machine that has more to do than it can: so many times the quiet ones.
BUSY = 3
#: Where Linux says for how long a process that could run had to wait for a processor.
PRESSURE = Path("/proc/pressure/cpu")


class Stopwatch:
    """Measures time, without that in which the machine had more to do than it could."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pressure: Path = PRESSURE) -> None:
        self._clock, self._pressure = clock, pressure
        self._began, self._waited = clock(), self._read_pressure()

    def real(self) -> float:
        """Return the seconds since it was made."""
        return self._clock() - self._began

    def quiet(self) -> float:
        """Return those of these seconds in which no process waited for a processor."""
        return self.real() - (self._read_pressure() - self._waited)

    def left(self, seconds: float) -> float:
        """Return how many quiet seconds are left of these, or real ones of `BUSY` times as many where that is less."""
        return min(seconds - self.quiet(), seconds * BUSY - self.real())

    def _read_pressure(self) -> float:
        try:
            file = os.open(self._pressure, os.O_RDONLY)  # Read for every test, and again and again in many.
        except OSError:  # another system
            return 0.0
        try:
            found = re.match(rb"some [^\n]*total=(\d+)", os.read(file, 200))
        except OSError:
            return 0.0
        finally:
            os.close(file)
        return int(found[1]) / 1e6 if found else 0.0


def alarm(seconds: float, ring: Callable[[], None]) -> Callable[[], None]:
    """Ring after so many quiet seconds, or `BUSY` times as many real ones; return what cancels that (POSIX)."""
    watch = Stopwatch()

    def check(number: int, frame: object) -> None:
        left = watch.left(seconds)
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.1))
        else:
            ring()

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return cancel


@asynccontextmanager
async def patience(what: str, seconds: float = SILENCE) -> AsyncIterator[None]:
    """Fail when the block takes longer than some quiet seconds, or `BUSY` times as many real ones.

    It does not matter what the test makes of the loop's clock.
    """
    loop, task, watch = asyncio.get_running_loop(), asyncio.current_task(), Stopwatch()
    assert task is not None
    is_over = False

    def check() -> None:
        nonlocal is_over, timer
        left = watch.left(seconds)
        if left > 0:
            timer = loop.call_later(left, check)
        else:
            is_over = True
            task.cancel()

    timer = loop.call_later(seconds, check)
    try:
        yield
    except asyncio.CancelledError:
        if is_over and not task.uncancel():
            raise AssertionError(f"waited {seconds:g} seconds for {what}") from None
        raise
    finally:
        timer.cancel()
