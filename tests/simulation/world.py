"""The simulated world: virtual time, processes, and the one thread that runs all of them in an order of the seed.

Each process has an event loop of its own. Within a process, callbacks run first in, first out, as asyncio promises. A
step of the world is one callback of one process, and the seed chooses the process. Time stands still while anything can
run; then it jumps to the next timer. So a seed replays exactly, in any process and on any machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import math
import random
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from typing import Any, Final

from tests.simulation import seams

#: The time of day at which every simulation begins.
EPOCH: Final = 1_800_000_000.0
#: So many steps without any time passing are a loop without an end.
MOST_STEPS: Final = 200_000

_numbers = count(1)


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address in memory."""

    def __new__(cls, *args: Any, **options: Any) -> SimFuture:
        made = super().__new__(cls)
        made.number = next(_numbers)
        return made

    number: int

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    def __new__(cls, *args: Any, **options: Any) -> SimTask:
        made = super().__new__(cls)
        made.number = next(_numbers)
        return made

    number: int

    def __hash__(self) -> int:
        return self.number


class Process:
    """A simulated process: an event loop, a clock of its machine, and randomness of its own."""

    def __init__(self, world: World, name: str, machine: str = "") -> None:
        self.world = world
        self.name = name
        self.machine = machine or name
        # More than Linux gives to any process.
        self.pid = 5_000_000 + len(world.processes)
        self.loop = SimLoop(self)
        self.died = math.inf
        """When it ended."""
        self.offset = 0.0
        """How many seconds the clock of its machine is ahead."""
        self.held_until = 0.0
        """Until when it is paused, or its loop is blocked."""
        self.fuse: int | None = None
        """After how many more steps it is killed."""
        self.on_fuse: Callable[[], None] | None = None
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[SimTask] = []
        """Every task that is not done, and some that are. Those of a killed process are kept: a coroutine that is
        collected runs its `finally`."""
        self.threads: list[Thread] = []
        """The threads that it has started, besides the one of its loop."""
        self._tidy_at = 64
        self._random = random.Random(f"{world.seed}/{name}")
        world.processes.append(self)

    @property
    def dead(self) -> bool:
        return self.died < math.inf

    def wall(self) -> float:
        return EPOCH + self.world.now + self.offset

    def monotonic(self) -> float:
        return 1000.0 + self.world.now

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def lives(self, pid: int) -> bool:
        return any(each.pid == pid and not each.dead for each in self.world.processes)

    def start(self, work: Coroutine[Any, Any, Any]) -> SimTask:
        """Run a coroutine in this process."""
        return self.loop.create_task(work)

    def start_thread(self, work: Callable[[], None]) -> None:
        """Run a function in a thread of this process."""
        self.threads.append(Thread(self, work))

    def pending(self) -> int:
        """Return how many tasks are not done."""
        self._tidy()
        return len(self.tasks)

    def keep(self, task: SimTask) -> None:
        self.tasks.append(task)
        if len(self.tasks) >= self._tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        self.tasks = [task for task in self.tasks if not task.done()]
        self._tidy_at = 2 * len(self.tasks) + 64

    def hold(self, seconds: float) -> None:
        """Let nothing of it run for some time: it is paused, or a handler blocks its loop."""
        self.held_until = max(self.held_until, self.world.now + seconds)
        self.world.at(self.held_until, lambda: None)

    def kill(self) -> None:
        """End it as SIGKILL does: no `finally`, no answer, no farewell."""
        self.died = min(self.died, self.world.now)
        for thread in self.threads:
            thread.kill()
        # Its tasks, timers and callbacks stay where they are, so that nothing collects and closes them.


class Thread(Process):
    """A thread of a process: a real one, which runs only while the world waits for it.

    It runs until it waits for time to pass or for something in a queue. All of that is one step of the world. So a seed
    decides when a thread goes on, and nothing else runs meanwhile. A thread of a killed process never goes on.
    """

    def __init__(self, owner: Process, work: Callable[[], None]) -> None:
        super().__init__(owner.world, f"{owner.name}/{len(owner.threads) + 1}")
        self.owner = owner
        self.pid, self.machine = owner.pid, owner.machine
        self._work = work
        self._may_go_on, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        seams.start_real_thread(self._live)
        self.wake()

    def wall(self) -> float:
        return self.owner.wall()

    def start_thread(self, work: Callable[[], None]) -> None:
        self.owner.start_thread(work)

    def wake(self) -> None:
        """Let it go on soon."""
        self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._may_go_on.release()
        self._waits.acquire()

    def _live(self) -> None:
        self._may_go_on.acquire()
        self._work()
        self._waits.release()

    # --- in the thread ---

    def wait(self) -> None:
        """Let the world go on until something wakes this thread."""
        self._waits.release()
        self._may_go_on.acquire()

    def sleep(self, seconds: float) -> None:
        self.world.send(self.world.now + seconds, self, self._go_on)
        self.wait()


class StoreProcess(Process):
    """The machine of the store, whose scripts know one clock only: the time of day."""

    def monotonic(self) -> float:
        return self.wall()


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. The world runs it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._world = process.world

    def time(self) -> float:
        return self.process.monotonic()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.schedule(self._world.now + max(when - self.time(), 0.0), self.process, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The world passes over a timer that was cancelled."""

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> SimTask:
        task = SimTask(coro, loop=self, name=name, context=context)
        self.process.keep(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def run_in_executor(self, *_: Any) -> Any:
        raise RuntimeError("a simulated process has no threads")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._world.failed(self.process, context)


class World:
    """Everything that the simulation of one seed consists of."""

    def __init__(self, seed: int, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = random.Random(f"{seed}/order")
        self.processes: list[Process] = []
        self.violations: list[str] = []
        """The broken rules, each with what happened."""
        self.steps = 0
        self._echo = echo
        self._digest = hashlib.sha256()
        self._timers: list[tuple[float, int, Process | None, Any]] = []
        self._sequence = count()
        self._steps_now = 0
        self._running: Process | None = None
        random.seed(f"{seed}/module")

    # --- the log ---

    def note(self, text: str) -> None:
        """Write a line of the log, which is the same in every replay."""
        who = "-" if self._running is None else self._running.name
        line = f"{self.now:10.4f} {who:12} {text}"
        self._digest.update(line.encode() + b"\n")
        if self._echo is not None:
            self._echo(line)

    def aside(self, text: str) -> None:
        """Write a line for people, which is no part of what has to be the same."""
        if self._echo is not None:
            who = "-" if self._running is None else self._running.name
            self._echo(f"{self.now:10.4f} {who:12}   | {text}")

    def violation(self, rule: str, text: str) -> None:
        self.note(f"VIOLATION {rule}: {text}")
        self.violations.append(f"{rule}: {text} (at {self.now:.3f} s)")

    def failed(self, process: Process, context: dict[str, Any]) -> None:
        """Take note of an error that no code of a process caught."""
        error = context.get("exception")
        if error is not None:
            self.aside("".join(traceback.format_exception(error)))
            self.violation("uncaught", f"{context['message'].partition(' at 0x')[0]}: {type(error).__name__}: {error}")

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # --- time ---

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Call back at a time of the world, as the world itself."""
        heapq.heappush(self._timers, (max(when, self.now), next(self._sequence), None, callback))

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.at(self.now + seconds, callback)

    def schedule(self, when: float, process: Process, handle: asyncio.Handle) -> None:
        heapq.heappush(self._timers, (when, next(self._sequence), process, handle))

    def send(self, when: float, process: Process, callback: Callable[..., Any], *args: Any) -> None:
        """Call back in a process at a time; nothing happens if it is dead by then."""
        self.schedule(when, process, asyncio.Handle(callback, args, process.loop))

    # --- running ---

    @contextlib.contextmanager
    def inside(self, process: Process | None) -> Iterator[None]:
        """Let the code of the block run as code of a process."""
        before, loop = self._running, asyncio._get_running_loop()
        # From Python 3.14 on a thread has one current task, not one for each loop: the task outside steps aside.
        task = asyncio.current_task(loop) if loop is not None and sys.version_info >= (3, 12) else None
        if task is not None:
            asyncio.tasks._swap_current_task(loop, None)
        self._running = seams.current = process
        asyncio._set_running_loop(None if process is None else process.loop)
        try:
            yield
        finally:
            self._running = seams.current = before
            asyncio._set_running_loop(loop)
            if task is not None:
                asyncio.tasks._swap_current_task(loop, task)

    def run(self, until: float) -> None:
        """Let time pass until then."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=_close_generator)
        try:
            while True:
                runnable = [each for each in self.processes if each.ready and self._may_run(each)]
                if runnable:
                    self._step(runnable[0] if len(runnable) == 1 else self.random.choice(runnable))
                elif not self._timers or self._timers[0][0] > until:
                    self.now = max(self.now, until)
                    return
                else:
                    self._pass_time()
        finally:
            sys.set_asyncgen_hooks(*hooks)

    def _may_run(self, process: Process) -> bool:
        return not process.dead and process.held_until <= self.now

    def _step(self, process: Process) -> None:
        handle = process.ready.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        self._steps_now += 1
        if self._steps_now > MOST_STEPS:
            raise RuntimeError(f"{process.name} runs and runs, and no time passes")
        with self.inside(process):
            handle._run()
        if process.fuse is not None:
            process.fuse -= 1
            if process.fuse <= 0:
                process.fuse = None
                if process.on_fuse is not None:
                    process.on_fuse()

    def _pass_time(self) -> None:
        """Go to the next moment at which something is due, and make all that is due then ready to run."""
        if self._timers[0][0] > self.now:
            self.now = self._timers[0][0]
            self._steps_now = 0
        while self._timers and self._timers[0][0] <= self.now:
            _, _, process, todo = heapq.heappop(self._timers)
            if process is None:
                todo()
            elif not todo.cancelled() and not process.dead:
                # One that is held runs what was due in the meantime, in the order in which it was due.
                process.ready.append(todo)


def _close_generator(generator: Any) -> None:
    """Close an async generator that nobody reads to its end, as the event loop of asyncio does."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop().create_task(generator.aclose())
