"""The health of one server behind a gateway: what failed lately, and whether calls are let through.

Nothing here runs for a call that ends well while all is well. A failure puts a function between the calls and the
server that looks at how each of them ends, and the next success takes it away again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.protocol.errors import (
    CallRefused,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
    Unreachable,
)
from toolwire.server.call import Call
from toolwire.server.policy.concurrency import Gates, Placed, Slots
from toolwire.server.policy.rates import in_words
from toolwire.server.replay_state import limit_key
from toolwire.util.backoff import Backoff
from toolwire.util.numbers import COUNT, COUNT_OR_NONE, SECONDS, Allowed, check_fields, check_number

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: A server that names a time (`Retry-After`) is left alone for that long, and for this many seconds at most.
LONGEST_PAUSE: Final = 600.0

#: How many calls wait where others have all slots of a server, and for how many seconds.
QUEUE: Final = 100
QUEUE_SECONDS: Final = 30.0

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
#: Sends one request: the call that it is for, the method, the params, the headers. It returns the answer.
Send: TypeAlias = Callable[[Call, str, Any, Any], Coroutine[Any, Any, Any]]


class Breaker(Struct, frozen=True, kw_only=True):
    """The terms on which calls to a server fail at once, because the server does not work.

    After `failures` failures in a row the server is left alone for `pause` seconds. Then it is asked for a sign of
    life. If it gives one, `probes` calls at a time are let through, and as many that end well let all others through.
    So does a second sign of life, which is asked for `pause` seconds after the first of these calls has begun. Every
    failure meanwhile doubles the pause, up to `longest` seconds.

    A request that is not answered in time is only a suspicion: its caller may have asked for long work. Where such
    requests are among the failures, the server is left alone only if it gives no sign of life either.
    """

    failures: int = 5
    """How many failures in a row open the breaker."""
    pause: float = 1.0
    """For how many seconds the server is left alone at first."""
    longest: float = 60.0
    """For how many seconds it is left alone at most, unless it names a longer time."""
    probes: int = 1
    """How many calls at a time find out whether it works again."""

    def __post_init__(self) -> None:
        longest = Allowed(0, 86_400, is_above=True)
        check_fields("Breaker", {"failures": COUNT, "probes": COUNT, "longest": longest}, self)
        check_number("Breaker", "pause", self.pause, Allowed(0, self.longest, is_above=True))


class Health(Struct, frozen=True, kw_only=True):
    """The terms on which a server is asked for signs of life: every `every` seconds in which no call is in flight.

    It has `timeout` seconds to answer. After `failures` missing answers in a row it is left alone, as its `Breaker`
    says.
    """

    every: float = 30.0
    """How many seconds lie between two signs of life."""
    timeout: float = 5.0
    """How many seconds the server has to give one."""
    failures: int = 2
    """How many missing signs in a row open the breaker."""

    def __post_init__(self) -> None:
        check_fields("Health", {"failures": COUNT, "every": SECONDS, "timeout": SECONDS}, self)


class Protection(Struct, frozen=True):
    """Everything that keeps a server that fails from harming others, and others from harming it."""

    breaker: Breaker | None = Breaker()
    health: Health | None = None
    slots: tuple[Slots, ...] = ()
    """How many calls run at once, and how many wait."""


def slots_of(
    name: str, max_calls: int | None, max_calls_per_caller: int | None, queue: int, queue_seconds: float
) -> tuple[Slots, ...]:
    """Return the slots of a server. Raise `InvalidNumber` for numbers that make no sense."""
    owner = f"upstream {name!r}"
    check_number(owner, "queue", queue, COUNT_OR_NONE)
    check_number(owner, "queue_seconds", queue_seconds, SECONDS)
    if max_calls is not None:
        check_number(owner, "max_calls", max_calls, COUNT)
    if max_calls_per_caller is not None:
        check_number(owner, "max_calls_per_caller", max_calls_per_caller, COUNT)
    caller = () if max_calls_per_caller is None else (Slots(max_calls_per_caller, queue, queue_seconds, "caller"),)
    everyone = () if max_calls is None else (Slots(max_calls, queue, queue_seconds),)
    # The share of one caller comes first, so that the calls of one caller do not fill the queue of everybody.
    return (*caller, *everyone)


class CallerUnready(Unreachable):
    """A request that was not sent for a reason of its caller: it has no credential now. The server may work."""


def is_failure(error: BaseException) -> bool:
    """Return whether an error says that a server does not work.

    A server that answers, with whatever error, works. So does one that refuses a caller, or has too many requests.
    """
    if isinstance(error, CallerUnready):
        return False
    if isinstance(error, TransportError):
        return error.status is None or error.status >= 500
    return isinstance(error, Timeout)


class BreakerSwitch:
    """The states of a breaker. It knows no tasks and no requests, and gets the time from `clock`."""

    def __init__(self, settings: Breaker, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._pauses = Backoff(first=settings.pause, longest=settings.longest)
        self.state: BreakerState = "closed"
        self.failures: int = 0
        """How many failures came in a row, since the last success."""
        self.asks_at: float | None = None
        """When the server is asked for a sign of life; None while calls tell whether it works."""
        self.error: str | None = None
        """The last failure."""
        self._is_suspicion = False
        self._passed = 0

    @property
    def wait(self) -> float:
        """Return the seconds that are left until the server is asked for a sign of life."""
        return 0.0 if self.asks_at is None else max(0.0, self.asks_at - self._clock())

    def failed(self, error: ToolwireError) -> None:
        """Count a failure. Enough of them open the breaker, and one is enough while it is half open.

        If one of them is a request that was not answered in time, a sign of life decides. Otherwise one caller of a
        slow tool could take the server away from everybody.
        """
        self.failures += 1
        self.error = str(error)
        self._is_suspicion = self._is_suspicion or isinstance(error, Timeout)
        if self.state == "half-open" or (self.state == "closed" and self.failures >= self._settings.failures):
            if self._is_suspicion:
                self.asks_at = self._clock()
            else:
                self.open(error)

    def open(self, error: ToolwireError) -> None:
        """Let no call through for a while, which is longer each time."""
        asked = getattr(error, "retry_after", None) or 0.0
        self.error = str(error)
        self.state, self._passed, self._is_suspicion = "open", 0, False
        self.asks_at = self._clock() + max(self._pauses.after(None), min(asked, LONGEST_PAUSE))

    def alive(self) -> None:
        """Take note of a sign of life. Some calls are let through, and all of them after a second sign."""
        if self.state == "open":
            self.state, self.asks_at = "half-open", None
        else:
            self._close()

    def probed(self) -> None:
        """Take note that a call is let through while the breaker is half open. A slow one does not hold up others."""
        if self.asks_at is None:
            self.asks_at = self._clock() + self._settings.pause

    def succeeded(self) -> None:
        """Take note of a call that reached the server and came back."""
        self.failures = 0
        if self.state == "half-open":
            self._passed += 1
        if self.state == "closed" or self._passed >= self._settings.probes:
            self._close()

    def _close(self) -> None:
        self.state, self.failures, self.error = "closed", 0, None
        self.asks_at, self._is_suspicion = None, False
        self._pauses.reset()


class BackGuard:
    """Stands between the calls of all clients and one server, where there is a reason to.

    `send` sends a request, `use` replaces the function by which requests are sent from now on. `changed` is called when
    the breaker has moved.
    """

    def __init__(
        self,
        name: str,
        protection: Protection,
        send: Send,
        use: Callable[[Send], None],
        changed: Callable[[BreakerState], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._name = name
        self._use = use
        self._changed = changed
        self._send = send
        self._gates = Gates()
        self._placed = [Placed(each, name) for each in protection.slots]
        self._normal: Send = self._in_slots if self._placed else send
        self.switch: BreakerSwitch | None = None
        if protection.breaker is not None:
            self.switch = BreakerSwitch(protection.breaker, clock or _loop_time)
            self._probes = protection.breaker.probes
        self.on_success: Callable[[], None] | None = None
        """Is called when a request ends well after others have failed."""
        self.on_doubt: Callable[[], None] | None = None
        """Is called when a sign of life has to tell whether the server works, while calls are let through."""
        self._trying = 0
        self._running = 0
        use(self._normal)

    @property
    def state(self) -> BreakerState:
        return "closed" if self.switch is None else self.switch.state

    @property
    def needs_sign(self) -> bool:
        """Return whether a sign of life tells what happens to the breaker next."""
        return self.switch is not None and self.switch.asks_at is not None

    @property
    def wait(self) -> float:
        """Return the seconds until the server is asked for a sign of life, where one is needed."""
        return 0.0 if self.switch is None else self.switch.wait

    @property
    def error(self) -> str | None:
        """The last failure, until a call has ended well."""
        return None if self.switch is None else self.switch.error

    @property
    def waiting(self) -> int:
        """The number of calls that wait until others have ended."""
        return self._gates.waiting

    @property
    def running(self) -> int:
        """The number of calls that have one of the slots."""
        return self._running

    # --- what happens to the server ---

    def failed(self, error: BaseException) -> None:
        """Take note that a request failed. Requests that were sent before the breaker opened do not count."""
        if self.switch is not None and self.switch.state == "closed" and is_failure(error):
            self._moved(self.switch.failed, error)

    def silent(self, error: ToolwireError) -> None:
        """Take note that the server gave no sign of life, as often as is enough."""
        if self.switch is not None:
            self._moved(self.switch.open, error)

    def alive(self) -> None:
        """Take note that the server gave a sign of life."""
        if self.switch is not None:
            self._moved(self.switch.alive)

    def _moved(self, step: Callable[..., None], *arguments: Any) -> None:
        switch = self.switch
        assert switch is not None
        before = switch.state
        step(*arguments)
        if switch.state == "open":
            self._use(self._refused)
        elif switch.state == "half-open":
            self._use(self._probing)
        else:
            self._use(self._counted if switch.failures else self._normal)
        if switch.state != before:
            log.warning(
                "%s: the breaker is %s%s", self._name, switch.state, f": {switch.error}" if switch.error else ""
            )
        if switch.state != before or switch.state == "open":
            self._changed(switch.state)
        elif switch.asks_at is not None and self.on_doubt is not None:
            self.on_doubt()

    # --- the ways of a request ---

    async def _counted(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request after others have failed. A success ends the row of failures."""
        try:
            answer = await self._normal(call, method, sent, headers)
        except ProtocolError:
            self._succeeded("closed")
            raise
        self._succeeded("closed")
        return answer

    async def _refused(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send no request."""
        raise self._refusal()

    async def _probing(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request to a server that gave a sign of life, unless others find out whether it works."""
        assert self.switch is not None
        if self._trying >= self._probes:
            raise self._refusal()
        self._trying += 1
        self._moved(self.switch.probed)
        try:
            answer = await self._normal(call, method, sent, headers)
        except ProtocolError:
            self._succeeded("half-open")
            raise
        except ToolwireError as error:
            cause = getattr(error, "error", error)
            if self.switch.state == "half-open" and is_failure(cause):
                self._moved(self.switch.failed, cause)
            raise
        finally:
            self._trying -= 1
        self._succeeded("half-open")
        return answer

    def _succeeded(self, when: BreakerState) -> None:
        if self.switch is not None and self.switch.state == when:
            self._moved(self.switch.succeeded)
        if self.on_success is not None:
            self.on_success()

    def _refusal(self) -> CallRefused:
        assert self.switch is not None
        seconds = max(1.0, self.switch.wait)
        return CallRefused(
            f"The server {self._name!r} behind this one does not work at the moment, and the call was not carried out. "
            f"It is asked again in {in_words(seconds)}: try again then.",
            reason="breaker",
            retry_after=seconds,
        )

    async def _in_slots(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request when one of the slots is free."""
        if sent.about_task is not None:
            # It may wait for the end of a task, and others have to be able to cancel the task meanwhile.
            return await self._send(call, method, sent, headers)
        releases: list[Callable[[], None]] = []
        try:
            for placed in self._placed:
                caller = limit_key(call)
                releases.append(await self._gates.enter(placed, caller, f"The server {self._name!r} behind this one"))
            if self.state == "open":
                raise self._refusal()
            self._running += 1
            try:
                return await self._send(call, method, sent, headers)
            finally:
                self._running -= 1
        finally:
            for release in releases:
                release()


class SignsOfLife:
    """Asks a server for signs of life: when its breaker needs one, and as often as is configured. One at a time.

    `ask` asks once, waits for so many seconds, and raises what is wrong. `is_quiet` says whether nothing else tells
    soon whether the server works.
    """

    def __init__(
        self,
        guard: BackGuard,
        health: Health | None,
        is_quiet: Callable[[], bool],
        ask: Callable[[float], Awaitable[None]],
    ) -> None:
        self._guard = guard
        self._health = health
        self._is_quiet = is_quiet
        self._ask = ask
        self._missed = 0
        self._next: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        guard.on_doubt = self.plan

    def plan(self) -> None:
        """Plan the next sign of life, where one is needed."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._guard.needs_sign:
            seconds = self._guard.wait
        elif self._health is not None:
            seconds = self._health.every
        else:
            return
        self._next = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
            self._asking = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _begin(self) -> None:
        self._next = None
        if self._asking is not None:
            return  # The next sign is planned when this one is given or missing.
        if self._guard.needs_sign or self._is_quiet():
            self._asking = asyncio.get_running_loop().create_task(self._check())
        else:
            self.plan()

    async def _check(self) -> None:
        before = self._guard.state
        failure: ToolwireError | None = None
        try:
            await self._ask((self._health or _USUAL_HEALTH).timeout)
        except ToolwireError as error:
            if is_failure(error):
                failure = error
        finally:
            self._asking = None
        # A call may have moved the breaker meanwhile. Then the sign was for a state that is over.
        if self._guard.state == before:
            self._answered(failure)
        self.plan()

    def _answered(self, failure: ToolwireError | None) -> None:
        self._missed = 0 if failure is None else self._missed + 1
        if failure is None:
            if self._guard.needs_sign:
                self._guard.alive()
        elif self._guard.needs_sign or (self._health is not None and self._missed >= self._health.failures):
            self._guard.silent(failure)


_USUAL_HEALTH: Final = Health()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
