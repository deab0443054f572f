"""The limits of a server, each with its default."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from toolwire.util.numbers import (
    BYTES,
    COUNT,
    COUNT_OR_NONE,
    SECONDS,
    SECONDS_OR_NONE,
    Allowed,
    check_fields,
)

#: The limits that are looked at for each request, connection, session or task, so that they can change while a server
#: runs. The others size something that is made once.
LIMITS_AT_USE: Final = (
    "line",
    "depth",
    "batch",
    "in_flight",
    "result",
    "state",
    "rounds",
    "session_idle",
    "session_age",
    "streams",
    "task",
    "task_ttl",
    "task_ttl_max",
    "task_window",
    "task_wait",
    "task_attempts",
    "ping",
    "drain",
    "drain_stdio",
    "drain_tasks",
)


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server. Every edge has a bound; these can be set."""

    line: int = 4 * 1024 * 1024
    """Bytes of one message."""
    depth: int = 128
    """Levels of nesting in a message."""
    batch: int = 100
    """Messages in a batch (2025-03-26); 0 refuses batches."""
    in_flight: int = 256
    """Requests of one connection that run at once."""
    exchanges: int = 1000
    """HTTP requests that run at once in one process; listen streams have their own limit."""
    uploads: int = 256 * 1024 * 1024
    """Bytes of large HTTP requests that one process receives or works on at a time."""
    share: float = 0.25
    """How much of each limit that all callers share one caller may use over HTTP: 0.25 is a quarter, 1 is all of it.

    A caller is a principal, otherwise an address. It holds for `exchanges`, `uploads`, `sessions`, `listeners`, streams
    by GET, `threads`, `queue`, `tasks_running`, `tasks_waiting` and `task_results`. On stdio and in memory there is one
    caller, and no share.
    """
    result: int = 16 * 1024 * 1024
    """Bytes of one answer."""
    tool: float = 300.0
    """Seconds a handler may run."""
    threads: int = 40
    """Worker threads for `def` handlers."""
    queue: int = 1000
    """Calls that may wait for a worker thread; 0 refuses a call while all threads are busy."""
    rounds: int = 10
    """Rounds of questions in one call; 0 allows no questions."""
    state: float = 600.0
    """Seconds within which questions must be answered."""
    listeners: int = 1000
    """Listen streams open at once."""
    uris: int = 256
    """Resources one listen stream, or one legacy connection, may subscribe to; 0 allows none."""
    page: int = 1000
    """Entries of one page of a list; many clients never ask for the second."""
    sessions: int = 10_000
    """Legacy HTTP sessions that one process opens."""
    session_idle: float = 30 * 60.0
    """Seconds after which a legacy HTTP session that nobody uses is over."""
    session_age: float = 12 * 3600.0
    """Seconds after which every legacy HTTP session is over."""
    streams: int = 8
    """Streams that one legacy HTTP session may have open by GET; 0 allows none."""
    task: float = 24 * 3600.0
    """Seconds a task may run, unless its tool has a timeout of its own; the time of open questions does not count."""
    task_ttl: float = 300.0
    """Seconds that a task is kept after its end, unless its client asks for another time."""
    task_ttl_max: float = 3600.0
    """The longest such time."""
    task_poll: float = 1.0
    """Seconds that clients are asked to wait between two looks at a task."""
    task_window: float = 0.25
    """Seconds within which an optional task of 2026-07-28 is answered like any other call; 0 makes each a task."""
    tasks: int = 1000
    """Tasks of one principal that are kept, running or done."""
    task_results: int = 64 * 1024 * 1024
    """Bytes of the results of tasks that one process keeps at a time."""
    tasks_running: int = 1000
    """Tasks that run at once in one process; those that wait for an answer of their client do not count."""
    tasks_waiting: int = 10_000
    """Tasks that wait to be started, in all processes together; calls beyond that are refused.
    With 0, a task starts at once or not at all."""
    task_wait: float = 3600.0
    """Seconds that a task waits to be started before it fails."""
    task_attempts: int = 3
    """How often the call of an idempotent tool is begun, when its process is lost every time."""
    task_lease: float = 15.0
    """Seconds after which the process of a task counts as gone if it shows no sign of life, and others have seen that
    for as long again."""
    tasks_dead: int = 1000
    """Calls that are kept after their last attempt, to be sent again; the oldest go first; 0 keeps none."""
    task_dead_ttl: float = 7 * 24 * 3600.0
    """Seconds that such a call is kept."""
    ping: float = 0.0
    """Seconds between two pings to the client of a legacy connection other than HTTP, which closes when one is not
    answered within that time; 0 sends none."""
    drain: float = 5.0
    """Seconds that calls in flight get to finish when the connection or the server ends."""
    drain_stdio: float = 1.5
    """The same when standard input ends, for tasks, too: clients kill a server that has not left two to four seconds
    later."""
    drain_tasks: float = 5.0
    """Seconds that running tasks get to finish when the server ends, from the same moment on as calls. A task that
    waits for an answer is put back at once, so that another process asks."""

    def __post_init__(self) -> None:
        check_fields("Limits", _ALLOWED, self)


# A limit of 0 is allowed where its field says what it means. For no sessions, there is `http_app(stateless=True)`.
_ALLOWED: Final[dict[str, Allowed]] = {
    **dict.fromkeys(("line", "uploads", "result", "task_results"), BYTES),
    **dict.fromkeys(
        (
            *("in_flight", "exchanges", "listeners", "page", "sessions"),
            *("tasks", "tasks_running", "task_attempts"),
        ),
        COUNT,
    ),
    **dict.fromkeys(("batch", "queue", "rounds", "uris", "streams", "tasks_waiting", "tasks_dead"), COUNT_OR_NONE),
    **dict.fromkeys(
        (
            *("tool", "state", "session_idle", "session_age"),
            *("task", "task_ttl_max", "task_poll", "task_wait", "task_lease"),
        ),
        SECONDS,
    ),
    **dict.fromkeys(
        ("task_ttl", "task_window", "task_dead_ttl", "ping", "drain", "drain_stdio", "drain_tasks"), SECONDS_OR_NONE
    ),
    # The decoders of JSON reach the end of the stack with more levels.
    "depth": Allowed(1, 1_000, is_whole=True),
    "threads": Allowed(1, 10_000, is_whole=True),
    "share": Allowed(0, 1, is_above=True),
}
