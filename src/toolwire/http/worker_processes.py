"""Worker processes that serve the same sockets. The parent forks them, replaces those that die, and ends them.

The parent serves nothing. It has no event loop and no threads, so it can be forked at any time. A worker inherits
everything that was made before, such as the sockets and the secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from toolwire.protocol.errors import ServerError
from toolwire.util.backoff import Backoff
from toolwire.wire.hangup import terminal_is_gone

# Windows has no fork.
assert sys.platform != "win32"

log: logging.Logger = logging.getLogger("toolwire.http")

#: The seconds before a worker that died is replaced. They double each time, unless the worker lived for a good while.
FIRST_DELAY: Final = 0.1
LAST_DELAY: Final = 30.0
GOOD_LIFE: Final = 60.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Worker:
    """A worker, in its own process."""

    def __init__(self, report: int, lifeline: int) -> None:
        self._report = report
        self._lifeline = lifeline
        #: Whether it stopped because the parent died.
        self.orphaned = False

    def ready(self) -> None:
        """Tell the parent that this worker serves requests."""
        with contextlib.suppress(OSError):
            os.write(self._report, b"+")
        os.close(self._report)

    @contextlib.contextmanager
    def signals(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` on a signal, or when the parent dies.

        Any number of signals counts as one, because a terminal or a service manager sends them to the parent and to
        the workers, and the parent passes them on. To end a worker at once, kill it.
        """
        loop = asyncio.get_running_loop()

        def received(number: int, frame: Any) -> None:
            loop.call_soon_threadsafe(stop)

        def lost() -> None:
            loop.remove_reader(self._lifeline)
            self.orphaned = True
            stop()

        for number in STOP_SIGNALS:
            signal.signal(number, received)
        loop.add_reader(self._lifeline, lost)
        try:
            yield
        finally:
            loop.remove_reader(self._lifeline)
            for number in STOP_SIGNALS:
                # The loop is about to end, and no signal can make it end sooner.
                signal.signal(number, signal.SIG_IGN)


class _Child:
    """A worker, as the parent sees it."""

    def __init__(self, pid: int, slot: int) -> None:
        self.pid = pid
        self.slot = slot
        self.born = time.monotonic()
        self.ready = False


class Supervisor:
    """The parent of the workers. `run` returns when all of them have ended."""

    def __init__(
        self,
        count: int,
        work: Callable[[Worker], None],
        *,
        grace: float,
        on_ready: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        hear_hangup: bool = False,
    ) -> None:
        """`work` runs in each child. A child that does not end is killed after `grace` seconds.

        `on_ready` is called when all workers serve for the first time, `on_stop` when they are told to end.
        `hear_hangup`: SIGHUP is passed on to the workers, which read their configuration again.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ServerError("Several workers can be run from the main thread only")
        self._count = count
        self._work = work
        self._grace = grace
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._hears_hangup = hear_hangup
        self._children: dict[int, _Child] = {}
        # Each worker has a slot, and each slot a delay of its own: one that dies again and again slows no other down.
        self._starts: dict[int, float] = {}
        self._delays = [Backoff(first=FIRST_DELAY, longest=LAST_DELAY, jitter=False) for _ in range(count)]
        for delays in self._delays:
            delays.next()  # The shortest one is for a worker that lived for a good while.
        self._received: list[int] = []
        self._stopping = False
        self._kill_at: float | None = None
        self._served = False
        self._failed = False
        #: The second signal, which made the parent kill the workers; None where there was none.
        self.forced: int | None = None
        self._selector = selectors.DefaultSelector()
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)
        # The other end of this pipe closes when the parent dies, for whatever reason.
        self._lifeline, self._life = os.pipe()

    def stop(self) -> None:
        """End all workers. May be called from any thread."""
        self._received.append(signal.SIGTERM)
        with contextlib.suppress(OSError):
            self._button.send(b"\0")

    def run(self) -> None:
        if threading.active_count() > 1:
            log.warning("other threads are running: workers start without them, and with whatever locks they hold")
        self._selector.register(self._bell, selectors.EVENT_READ)
        try:
            with self._signals():
                self._starts = dict.fromkeys(range(self._count), time.monotonic())
                while self._children or not self._stopping:
                    self._start_due()
                    self._wait()
                    self._obey()
                    self._reap()
        finally:
            self._kill_all()
            self._close()
        if self._failed:
            raise ServerError("A worker ended before it could serve; what it reported is above")

    # --- starting ---

    def _start_due(self) -> None:
        now = time.monotonic()
        for slot in [slot for slot, at in self._starts.items() if at <= now]:
            del self._starts[slot]
            self._start(slot)

    def _start(self, slot: int) -> None:
        reports, report = os.pipe()
        _flush()  # Otherwise the child would write the buffers a second time.
        # The handlers that the child inherits must not take a signal for the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid == 0:
            os.close(reports)
            self._be_worker(Worker(report, self._lifeline), before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(report)
        self._children[pid] = child = _Child(pid, slot)
        self._selector.register(reports, selectors.EVENT_READ, child)

    def _be_worker(self, worker: Worker, mask: set[Any]) -> NoReturn:
        """Work in the child, and exit: the child must not go on with what the parent does after `run`."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # A copy of it in one child would keep the others from noticing that the parent died.
            os.close(self._life)
            self._selector.close()
            self._bell.close()
            self._button.close()
            self._work(worker)
            status = 0
        except ServerError as error:
            log.error("a worker failed: %s", error)
        except BaseException:
            log.exception("a worker failed")
        finally:
            _flush()
            os._exit(status)

    # --- waiting ---

    def _wait(self) -> None:
        events = [*self._starts.values(), *([] if self._kill_at is None else [self._kill_at])]
        timeout = max(0.0, min(events) - time.monotonic()) if events else None
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(OSError):
                    while self._bell.recv(4096):
                        pass
            else:
                self._report(key.fd, key.data)
        if self._kill_at is not None and self._kill_at <= time.monotonic():
            self._kill_at = None
            self._kill_all()

    def _report(self, descriptor: int, child: _Child) -> None:
        child.ready = bool(os.read(descriptor, 1))
        self._selector.unregister(descriptor)
        os.close(descriptor)
        ready = sum(each.ready for each in self._children.values())
        if not self._served and ready == self._count:
            self._served = True
            if self._on_ready is not None:
                self._on_ready()

    def _reap(self) -> None:
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                del self._children[pid]
                if not self._stopping:
                    self._died(child, os.waitstatus_to_exitcode(status))

    def _died(self, child: _Child, status: int) -> None:
        if not self._served and not child.ready:
            # The next one would fail in the same way.
            self._failed = True
            self._stop_all()
            return
        lived = time.monotonic() - child.born
        if lived > GOOD_LIFE:
            self._delays[child.slot].reset()
        delay = self._delays[child.slot].after(None)
        log.error("worker %d ended with status %d; another one starts in %.1f s", child.pid, status, delay)
        self._starts[child.slot] = time.monotonic() + delay

    # --- ending ---

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def received(number: int, frame: Any) -> None:
            self._received.append(number)

        # A signal that the process was told to ignore stays ignored.
        handled = (*STOP_SIGNALS, signal.SIGHUP) if self._hears_hangup else STOP_SIGNALS
        numbers = [number for number in handled if signal.getsignal(number) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, received) for number in numbers}
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        descriptor = signal.set_wakeup_fd(self._button.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _obey(self) -> None:
        received, self._received = self._received, []
        for number in received:
            if number == signal.SIGHUP and not terminal_is_gone():
                self._pass_on(number)
            elif self._stopping:
                self.forced = number
                self._kill_all()
            else:
                self._stop_all()

    def _pass_on(self, number: int) -> None:
        for pid, child in self._children.items():
            # One that does not serve yet reads the newest configuration anyway.
            if child.ready:
                os.kill(pid, number)

    def _stop_all(self) -> None:
        self._stopping = True
        self._starts = {}
        self._kill_at = time.monotonic() + self._grace
        if self._on_stop is not None:
            self._on_stop()
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _close(self) -> None:
        for child in self._children.values():
            os.waitpid(child.pid, 0)
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
        self._selector.close()
        self._bell.close()
        self._button.close()
        os.close(self._lifeline)
        os.close(self._life)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
