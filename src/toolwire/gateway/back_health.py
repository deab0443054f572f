"""Circuit breaker, health checks and concurrency limits of one upstream.

Costs nothing while the upstream is healthy: the first failure wraps the function that sends requests, and the wrapper
goes when no failure counts any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from math import inf
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.base_errors import UnsendableRequest
from toolwire.gateway.upstream_log import UpstreamLog
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
from toolwire.util.numbers import COUNT, SECONDS, Allowed, check_fields, check_number

#: The longest `Retry-After` of an upstream that counts, in seconds.
LONGEST_PAUSE: Final = 600.0

#: How many seconds pass at least between two health checks of a closed breaker.
CHECK_SECONDS: Final = 1.0

#: How many calls wait for a slot of an upstream, and for how many seconds.
QUEUE: Final = 100
QUEUE_SECONDS: Final = 30.0

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
#: Sends one request: the call that it is for, the method, the params, the headers. It returns the answer.
Send: TypeAlias = Callable[[Call, str, Any, Any], Coroutine[Any, Any, Any]]
#: The origin of a failure: the caller, and the tool or the URI.
Source: TypeAlias = tuple[Hashable, Hashable]


class Breaker(Struct, frozen=True, kw_only=True):
    """When to stop sending calls to a failing upstream, and when to try again.

    closed     all calls pass; `failures` failures in a row are followed by a health check
    open       the check failed: calls fail at once for `pause` seconds, then the next check is sent
    half-open  a check passed: `probes` calls pass at a time; `probes` successes, or a second passed check, close it

    Failures in a row are counted for each caller and tool. A passed check clears all of them, so that a caller whose
    input makes a tool fail does not open the breaker. Each reopening doubles `pause`, up to `longest` seconds.
    """

    failures: int = 5
    """How many failures in a row lead to a health check, which opens the breaker if it fails."""
    pause: float = 1.0
    """How many seconds the breaker is open at first."""
    longest: float = 60.0
    """How many seconds the breaker is open at most, unless the upstream names a longer time."""
    probes: int = 1
    """How many calls at a time find out whether the upstream works again."""

    def __post_init__(self) -> None:
        longest = Allowed(0, 86_400, is_above=True)
        check_fields("Breaker", {"failures": COUNT, "probes": COUNT, "longest": longest}, self)
        check_number("Breaker", "pause", self.pause, Allowed(0, self.longest, is_above=True))


class Health(Struct, frozen=True, kw_only=True):
    """Health checks of an idle upstream, one for every `every` seconds without a call in flight.

    After `failures` failed checks in a row the breaker opens. These checks are `server/discover`, or `ping` before
    2026-07-28.
    """

    every: float = 30.0
    """How many seconds lie between two checks."""
    timeout: float = 5.0
    """How many seconds the upstream has to answer a check."""
    failures: int = 2
    """How many failed checks in a row open the breaker."""

    def __post_init__(self) -> None:
        check_fields("Health", {"failures": COUNT, "every": SECONDS, "timeout": SECONDS}, self)


class UpstreamLimits(Struct, frozen=True):
    """Breaker, health checks and concurrency limits of one upstream."""

    breaker: Breaker | None = Breaker()
    health: Health | None = None
    slots: tuple[Slots, ...] = ()
    """How many calls run at once, and how many wait."""


class CredentialMissing(Unreachable):
    """The caller of a request has no credential now. The request was not sent, and the upstream may work."""


def is_failure(error: BaseException) -> bool:
    """Return whether an error says that the upstream does not work.

    Only transport errors and timeouts count. A protocol error, 401, 403 or 429 means that the upstream works. What a
    caller made impossible to send says nothing about it.
    """
    if isinstance(error, CredentialMissing | UnsendableRequest):
        return False
    if isinstance(error, TransportError):
        return error.status is None or error.status >= 500
    return isinstance(error, Timeout)


def source_of(call: Call) -> Source:
    """Return the caller of a call, and its tool or URI."""
    params = call.params
    return limit_key(call), getattr(params, "name", None) or getattr(params, "uri", None) or call.method


class CircuitBreaker:
    """The states of a breaker (see `Breaker`). It knows no tasks and no requests, and gets the time from `clock`."""

    def __init__(
        self, settings: Breaker, clock: Callable[[], float], describe: Callable[[BaseException], str] = str
    ) -> None:
        """`describe` returns the text of an error, as operators may see it."""
        self._describe = describe
        self._settings = settings
        self._clock = clock
        self._pauses = Backoff(first=settings.pause, longest=settings.longest)
        self.state: BreakerState = "closed"
        self.next_check_at: float | None = None
        """When the next health check is sent; None while none is needed."""
        self.error: str | None = None
        """The last failure."""
        self._failures: dict[Source, int] = {}
        """The failures in a row of each caller and tool."""
        self._failed_at = -inf
        self._passed_at = -inf
        """When a check passed last while the breaker was closed."""
        self._retry_after = 0.0
        self._passed = 0

    @property
    def failures(self) -> int:
        """The failures in a row of all callers and tools."""
        return sum(self._failures.values())

    @property
    def seconds_until_check(self) -> float:
        """Return the seconds that are left until the next health check."""
        return 0.0 if self.next_check_at is None else max(0.0, self.next_check_at - self._clock())

    def record_failure(self, error: ToolwireError, source: Source) -> None:
        """Count a failure. Enough of them lead to a health check, and one is enough while the breaker is half open."""
        now = self._clock()
        self.error, self._failed_at = self._describe(error), now
        self._retry_after = max(self._retry_after, getattr(error, "retry_after", None) or 0.0)
        if self.failures < self._settings.failures:
            self._failures[source] = self._failures.get(source, 0) + 1
        if self.state == "half-open":
            self.next_check_at = now
        elif self.failures >= self._settings.failures and self.next_check_at is None:
            self.next_check_at = max(now, self._passed_at + CHECK_SECONDS)

    def record_success(self, source: Source) -> None:
        """Record a call that the upstream answered. It ends the failures in a row of its caller and tool."""
        if self.state == "half-open":
            self._passed += 1
            if self._passed >= self._settings.probes:
                self._close()
        elif self.state == "closed":
            self._end_row(source)

    def _end_row(self, source: Source) -> None:
        self._failures.pop(source, None)
        if self._clock() - self._failed_at > self._settings.longest:
            self._failures.clear()  # Their callers have not called again.
        if not self._failures:
            self._close()
        elif self.failures < self._settings.failures:
            self.next_check_at = None

    def record_health_check(self) -> None:
        """Record a passed health check: half-open after the first, closed after the second."""
        if self.state == "open":
            self.state, self.next_check_at = "half-open", None
            return
        if self.state == "closed":
            self._passed_at = self._clock()
        self._close()

    def record_probe(self) -> None:
        """Record that a call passes while the breaker is half open. A slow one does not delay the next check."""
        if self.next_check_at is None:
            self.next_check_at = self._clock() + self._settings.pause

    def open(self, error: ToolwireError) -> None:
        """Open the breaker after a failed health check, with exponential back-off."""
        asked = max(self._retry_after, getattr(error, "retry_after", None) or 0.0)
        self.error = self._describe(error)
        self.state, self._passed, self._retry_after = "open", 0, 0.0
        self._failures.clear()
        self.next_check_at = self._clock() + max(self._pauses.after(None), min(asked, LONGEST_PAUSE))

    def _close(self) -> None:
        self.state, self.error, self.next_check_at = "closed", None, None
        self._failures.clear()
        self._retry_after = 0.0
        self._pauses.reset()


class UpstreamGuard:
    """Applies the limits of one upstream to the calls of all clients.

    `send` sends a request, `use` replaces the function that sends requests from now on. `changed` is called when the
    breaker has moved, `check_needed` when a health check is needed while calls pass, and `succeeded` when a request
    succeeds after failures.
    """

    def __init__(
        self,
        log: UpstreamLog,
        limits: UpstreamLimits,
        send: Send,
        use: Callable[[Send], None],
        changed: Callable[[BreakerState], None],
        *,
        check_needed: Callable[[], None],
        succeeded: Callable[[], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._log = log
        self._name = name = log.texts.name
        self._use = use
        self._changed = changed
        self._check_needed = check_needed
        self._succeeded = succeeded
        self._send = send
        self._gates = Gates()
        self._placed = [Placed(each, name) for each in limits.slots]
        self._normal: Send = self._send_in_slots if self._placed else send
        self.breaker: CircuitBreaker | None = None
        if limits.breaker is not None:
            self.breaker = CircuitBreaker(limits.breaker, clock or _loop_time, log.texts.describe)
            self._probes = limits.breaker.probes
        self._probing = 0
        self._running = 0
        use(self._normal)

    @property
    def state(self) -> BreakerState:
        return "closed" if self.breaker is None else self.breaker.state

    @property
    def needs_check(self) -> bool:
        """Return whether a health check decides about the breaker next."""
        return self.breaker is not None and self.breaker.next_check_at is not None

    @property
    def seconds_until_check(self) -> float:
        """Return the seconds until the next health check, where one is needed."""
        return 0.0 if self.breaker is None else self.breaker.seconds_until_check

    @property
    def error(self) -> str | None:
        """The last failure, as long as it counts."""
        return None if self.breaker is None else self.breaker.error

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot."""
        return self._gates.waiting

    @property
    def running(self) -> int:
        """The number of calls that have a slot."""
        return self._running

    # --- what happens at the upstream ---

    def record_failure(self, error: BaseException, source: Source) -> None:
        """Record a failed request. Requests that were sent before the breaker opened do not count."""
        if self.breaker is not None and self.breaker.state == "closed" and is_failure(error):
            self._move(self.breaker.record_failure, error, source)

    def record_failed_check(self, error: ToolwireError) -> None:
        """Open the breaker, because a health check failed, or enough of them where none was needed."""
        if self.breaker is not None:
            self._move(self.breaker.open, error)

    def record_health_check(self) -> None:
        """Record a passed health check."""
        if self.breaker is not None:
            self._move(self.breaker.record_health_check)

    def _move(self, step: Callable[..., None], *arguments: Any) -> None:
        breaker = self.breaker
        assert breaker is not None
        before = breaker.state
        step(*arguments)
        if breaker.state == "open":
            self._use(self._refuse)
        elif breaker.state == "half-open":
            self._use(self._send_probe)
        else:
            self._use(self._send_counted if breaker.failures else self._normal)
        if breaker.state != before:
            self._log.warning("the breaker is %s%s", breaker.state, f": {breaker.error}" if breaker.error else "")
        if breaker.state != before or breaker.state == "open":
            self._changed(breaker.state)
        elif breaker.next_check_at is not None:
            self._check_needed()

    # --- the ways to send a request ---

    async def _send_counted(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request while failures count. A success ends those of its caller and tool."""
        try:
            answer = await self._normal(call, method, sent, headers)
        except ProtocolError:
            self._record_success("closed", call)
            raise
        self._record_success("closed", call)
        return answer

    async def _refuse(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send nothing: the breaker is open."""
        raise self._refusal()

    async def _send_probe(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request while the breaker is half open, unless enough other ones are in flight."""
        assert self.breaker is not None
        if self._probing >= self._probes:
            raise self._refusal()
        self._probing += 1
        self._move(self.breaker.record_probe)
        try:
            answer = await self._normal(call, method, sent, headers)
        except ProtocolError:
            self._record_success("half-open", call)
            raise
        except ToolwireError as error:
            cause = getattr(error, "error", error)
            if self.breaker.state == "half-open" and is_failure(cause):
                self._move(self.breaker.record_failure, cause, source_of(call))
            raise
        finally:
            self._probing -= 1
        self._record_success("half-open", call)
        return answer

    def _record_success(self, when: BreakerState, call: Call) -> None:
        if self.breaker is not None and self.breaker.state == when:
            self._move(self.breaker.record_success, source_of(call))
        if self._succeeded is not None:
            self._succeeded()

    def _refusal(self) -> CallRefused:
        seconds = max(1.0, self.seconds_until_check)
        return CallRefused(
            f"Upstream {self._name!r} is unreachable, and the call was not carried out. The next attempt is in "
            f"{in_words(seconds)}: try again then.",
            reason="breaker",
            retry_after=seconds,
        )

    async def _send_in_slots(self, call: Call, method: str, sent: Any, headers: Any) -> Any:
        """Send a request when one of the slots is free."""
        if sent.about_task is not None:
            # It may wait for the end of a task, which another request has to be able to cancel meanwhile.
            return await self._send(call, method, sent, headers)
        releases: list[Callable[[], None]] = []
        try:
            for placed in self._placed:
                caller = limit_key(call)
                releases.append(await self._gates.enter(placed, caller, f"Upstream {self._name!r}"))
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


class HealthChecks:
    """Sends health checks to an upstream, one at a time: when its breaker needs one, and as often as is configured.

    `check` sends one, waits for so many seconds, and raises what is wrong. `is_idle` says whether the upstream is ready
    and no call is in flight.
    """

    def __init__(
        self,
        guard: UpstreamGuard,
        health: Health | None,
        is_idle: Callable[[], bool],
        check: Callable[[float], Awaitable[None]],
    ) -> None:
        self._guard = guard
        self._health = health
        self._is_idle = is_idle
        self._send_check = check
        self._failed = 0
        self._next: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None

    def plan(self) -> None:
        """Plan the next health check, where one is needed."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._guard.needs_check:
            seconds = self._guard.seconds_until_check
        elif self._health is not None:
            seconds = self._health.every
        else:
            return
        self._next = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def stop(self) -> None:
        """Send no more checks."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait({self._checking})
            self._checking = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _begin(self) -> None:
        self._next = None
        if self._checking is not None:
            return  # The next check is planned when this one has ended.
        if self._guard.needs_check or self._is_idle():
            self._checking = asyncio.get_running_loop().create_task(self._check())
        else:
            self.plan()

    async def _check(self) -> None:
        before = self._guard.state
        failure: ToolwireError | None = None
        try:
            await self._send_check((self._health or _DEFAULT_HEALTH).timeout)
        except ToolwireError as error:
            if is_failure(error):
                failure = error
        finally:
            self._checking = None
        # A call may have moved the breaker meanwhile. Then the check was for an earlier state.
        if self._guard.state == before:
            self._record(failure)
        self.plan()

    def _record(self, failure: ToolwireError | None) -> None:
        self._failed = 0 if failure is None else self._failed + 1
        if failure is None:
            if self._guard.needs_check:
                self._guard.record_health_check()
        elif self._guard.needs_check or (self._health is not None and self._failed >= self._health.failures):
            self._guard.record_failed_check(failure)


_DEFAULT_HEALTH: Final = Health()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
