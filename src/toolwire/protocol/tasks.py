"""Tasks: work that outlives its request, in the two dialects of the protocol.

2025-11-25 has tasks in its core (basic/utilities/tasks): the client asks for one, polls with `tasks/get`, fetches the
outcome with `tasks/result`. 2026-07-28 has the extension io.modelcontextprotocol/tasks: the server decides, and
`tasks/get` carries questions and outcome. Both are views of the same `Record`; what may happen to a record, and how it
looks in either dialect, is decided here. Keeping it, and the clock, are the caller's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import (
    BAD_JSON,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    ProtocolError,
    ServerError,
    counted,
)
from toolwire.protocol.revisions import supports
from toolwire.protocol.rounds import Kind, checked_answer
from toolwire.protocol.surrogates import readable_error, readable_text

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
#: Questions that one task may ask.
MAX_QUESTIONS: Final = 100
#: The longest time that a program may ask for, in seconds: a year.
LONGEST_TIME: Final = 366 * 24 * 3600.0
#: The latest time that a record may have: the end of the year 9999, up to which dates can be written.
_LAST_TIME: Final = 253_402_300_799.0
#: Characters of a status message that are kept.
MAX_MESSAGE: Final = 1000
#: The status message of a task that waits to be started.
WAITING: Final = "Waiting to be started"
#: Where a task of the extension says how far it is: its `_meta` has the numbers, and its status message the words.
PROGRESS_KEY: Final = "toolwire/progress"
# Kept free in the record of a task that runs: a store that is full takes what is no longer than what it replaces, and
# so the end of a task can always be written down.
_ROOM: Final = "." * 512

#: Characters that the record of a task keeps free for the name of its process.
LONGEST_PROCESS: Final = 100
#: Processes that the record of a task names as its watchers, before all processes are told of its changes.
MOST_WATCHERS: Final = 32
#: The watcher that stands for all processes. No process has this name.
EVERY_PROCESS: Final = "*"

Verdict: TypeAlias = Literal["call", "task", "may"]
W = TypeVar("W", bound=t.Wire)


# --- Who gets a task -------------------------------------------------------------------------------------------------


def is_declared(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a modern request says that its client can take a task."""
    return t.has_capability(capabilities, _EXTENSION)


def verdict(
    support: t.TaskSupport, revision: str, client: Mapping[str, Any], server: Mapping[str, Any], wanted: bool
) -> Verdict:
    """Return how a call is run: as an ordinary call, as a task, or as the server likes.

    `wanted` says whether the call carried `params.task`. Refusals are raised.
    """
    if supports(revision, "core_tasks"):
        if not t.has_capability(server, "tasks.requests.tools.call"):
            return "call"  # 2025-11-25 tasks, capability negotiation: what was not offered is ignored.
        if support == "forbidden" and wanted:
            raise ProtocolError(METHOD_NOT_FOUND, "This tool cannot run as a task: call it without `task`")
        if support == "required" and not wanted:
            raise ProtocolError(METHOD_NOT_FOUND, "This tool only runs as a task: call it with `task`")
        return "task" if wanted else "call"
    if not supports(revision, "tasks_extension") or support == "forbidden" or not t.has_capability(server, _EXTENSION):
        return "call"
    if not is_declared(client):
        # TSK-1: never a task for a client that did not declare it.
        if support == "required":
            raise missing_extension("This tool only runs as a task")
        return "call"
    return "task" if support == "required" else "may"


_EXTENSION: Final = f"extensions.{t.TASKS_EXTENSION}"


def missing_extension(reason: str) -> ProtocolError:
    """TSK-4, TSK-5"""
    required: dict[str, Any] = {"extensions": {t.TASKS_EXTENSION: {}}}
    text = f"{reason}, and this request does not declare the extension {t.TASKS_EXTENSION}"
    return ProtocolError(MISSING_CLIENT_CAPABILITY, text, {"requiredCapabilities": required})


def unknown_task() -> ProtocolError:
    """One text for a task that never was, that is over, and that is somebody else's (2025-11-25 tasks, security)."""
    return ProtocolError(INVALID_PARAMS, "There is no such task, or it has expired")


def lacking_tool(reason: str) -> ProtocolError:
    """The answer to the owner of a task whose tool this process lacks, while another one may have it."""
    text = f"The task cannot be shown now: {reason}; try again later"
    return ProtocolError(INTERNAL_ERROR, text, {"retryAfterMs": 1000})


def too_many_questions() -> ProtocolError:
    """The answer to a question of a task that has asked too many."""
    return ProtocolError(INVALID_PARAMS, f"The task asked more than {MAX_QUESTIONS} questions")


def already_over() -> ProtocolError:
    """2025-11-25 tasks, cancellation: a task that is over cannot be cancelled."""
    return ProtocolError(INVALID_PARAMS, "The task is over, so it cannot be cancelled")


def was_cancelled() -> ProtocolError:
    """The answer to `tasks/result` of a task that was cancelled."""
    return ProtocolError(INTERNAL_ERROR, "The task was cancelled")


def wanted_ttl(task: Raw | UnsetType) -> int | UnsetType:
    """The time to live that a call asks for; -32602 for a wish that cannot be read.

    Read only where it means something: 2026-07-28 tells servers to ignore it, whatever it is.
    """
    try:
        return UNSET if task is UNSET else decoder_of(t.TaskMetadata).decode(task).ttl
    except msgspec.ValidationError as error:
        raise ProtocolError(INVALID_PARAMS, f"Invalid params for tools/call: {error} in `task`") from None


def lifetime(wanted: int | UnsetType | None, default: float, longest: float) -> int:
    """Return how long a task is kept after its end, in milliseconds: what was asked for, within bounds.

    2025-11-25 tasks, ttl: the receiver may override what was asked for. Raises -32602 for what is no time.
    """
    if wanted is UNSET or wanted is None:
        wanted = int(default * 1000)
    if wanted <= 0:
        raise ProtocolError(INVALID_PARAMS, "The ttl of a task is a number of milliseconds above zero")
    return min(wanted, int(longest * 1000))


# --- The record ------------------------------------------------------------------------------------------------------


class Question(Struct, omit_defaults=True):
    """Something that a task has asked and that is not answered."""

    kind: Kind
    digest: str
    params: Raw | UnsetType = UNSET


class Reply(Struct, omit_defaults=True):
    """An answer, or the error that came instead of one; with the digest of what was asked."""

    digest: str
    result: Raw | UnsetType = UNSET
    error: t.Error | UnsetType = UNSET


class StoredCall(Struct, omit_defaults=True):
    """A call that was accepted, with everything that any process needs to run it."""

    params: Raw
    revision: str
    kind: str = ""
    """The tool, under the name that processes take tasks by; empty where a list handler makes the tools up."""
    capabilities: dict[str, Any] = {}
    client: t.Implementation | UnsetType = UNSET
    principal: Raw | UnsetType = UNSET
    is_local: bool = False
    """Whether the call came over stdio, where nobody needs a token; without a principal that is a great difference."""
    progress_token: str | int | UnsetType = UNSET
    idempotent: bool = False
    """Whether the call may be run again after it has begun."""
    line: str = ""
    """The line that the task of a caller without a principal waits in. Other tasks wait in the line of their owner."""
    wait: float = 0.0
    """`Limits(task_wait)` of the process that accepted it; 0 in records of earlier versions."""
    attempts: int = 0
    """`Limits(task_attempts)` of that process; 0 in records of earlier versions."""


class Record(Struct, omit_defaults=True):
    """One task, as it is kept."""

    id: str
    created: float
    updated: float
    """When it was changed last; for a task that is over, when it ended."""
    ttl_ms: int
    """How long it is kept after its end."""
    poll_ms: int
    status: t.TaskStatus = "working"
    message: str = ""
    tool: str = ""
    """The tool whose call it is, under the name that clients know; empty where there is none."""
    progress: float | None = None
    total: float | None = None
    process: str = ""
    """The process that holds it; empty for a task that waits to be taken, and for one that the host drives."""
    begun: bool = False
    """Whether its handler may have run its first line; True before it does."""
    attempt: int = 1
    """One, and one more for each lease that was lost after the handler had begun."""
    origin: str = ""
    """The process that accepted the call. It holds the connection of the client, and tells the client of the task."""
    questions: dict[str, Question] = {}
    answers: dict[str, Reply] = {}
    steps: dict[str, Raw] = {}
    """The results of the steps that its call made before it was a task."""
    result: Raw | UnsetType = UNSET
    revision: str = ""
    """The revision that the result is written for."""
    is_error: bool = False
    error: t.Error | UnsetType = UNSET
    call: StoredCall | UnsetType = UNSET
    """The call, while another process may have to run it."""
    name: str = ""
    """What the host calls a task that it drives; clients do not see it."""
    metadata: dict[str, Any] = {}
    """What the host wants to know of such a task later on."""
    watchers: list[str] = []
    """The processes that are told of each change, beside the one that holds it and the one that accepted the call."""
    heartbeat: float = 0.0
    """The longest pause between two reports of the worker of a host's task; 0: any."""
    longest: float = 0.0
    """The longest pause between two changes of such a task; 0: the server's limits."""
    judgement: Raw | UnsetType = UNSET
    """What was decided when its call was accepted; unset in records of earlier versions."""
    room: str = ""

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    def shown_ttl(self, now: float) -> int:
        """The ttl as both dialects have it, in milliseconds from the creation on.

        A running task is never dropped, so its ttl grows for as long as it runs: a client that reads the ttl now finds
        the task, or its outcome, until then.
        """
        lived = (self.updated if self.over else max(now, self.updated)) - self.created
        return self.ttl_ms + max(int(lived * 1000), 0)


encode: Final = msgspec.json.Encoder().encode


class Unreadable(ProtocolError):
    """The record of a task is damaged."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "The task cannot be read any more")


def decode(data: bytes, identifier: str | None = None) -> Record:
    """Read a record; raise `Unreadable` if it is damaged or has another id."""
    try:
        record: Record = decoder_of(Record).decode(data)
        data.decode()  # The decoder does not look into calls, questions and results.
    except BAD_JSON:
        raise Unreadable from None
    if not _is_possible(record) or (identifier is not None and record.id != identifier):
        raise Unreadable
    return record


def _is_possible(record: Record) -> bool:
    """Return whether the times of a record are in the range of dates."""
    return (
        0 <= record.created <= _LAST_TIME
        and 0 <= record.updated <= _LAST_TIME
        and 0 <= record.ttl_ms <= _LAST_TIME * 1000
        and 0 <= record.poll_ms <= _LAST_TIME * 1000
        and 0 <= record.heartbeat <= _LAST_TIME
        and 0 <= record.longest <= _LAST_TIME
    )


def unreadable_task(identifier: str) -> ServerError:
    """The error for a program that reports on a task whose record is damaged."""
    return ServerError(f"The record of the task {identifier!r} is damaged, so nothing can be reported on it any more")


def damaged_record(identifier: str, now: float, ttl_ms: int) -> Record:
    """Make the failed end of a task whose record is damaged.

    The id begins with the time of creation.
    """
    try:
        created = min(int(identifier.partition("-")[0], 16) / 1000, now)
    except ValueError:
        created = now
    record = Record(identifier, created, now, ttl_ms, 1000)
    fail(record, ProtocolError(INTERNAL_ERROR, "The record of this task was damaged; the task may have run"))
    return record


# --- What a program writes into it: encoding checks no types, and reading does ----------------------------------------


def checked_text(name: str, value: Any) -> str:
    """Return a text as a record can keep it; raise `ServerError` for any other value."""
    if not isinstance(value, str):
        raise ServerError(f"{name}= is text, not {type(value).__name__}")
    return readable_text(value)


def checked_number(name: str, value: Any, *, is_time: bool = False) -> float:
    """Return a number as a record can keep it; raise `ServerError` for any other value."""
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if is_time and not 0 < number <= LONGEST_TIME:
        shown = f"{number:g}" if math.isfinite(number) else _named(value)
        raise ServerError(f"{name}= is a number of seconds above zero, at most a year, not {shown}")
    if not math.isfinite(number):
        raise ServerError(f"{name}= is a number that a float can have, not {_named(value)}")
    return number


def _named(value: Any) -> str:
    return f"{value!r}" if isinstance(value, str | bool | float) and len(repr(value)) < 50 else type(value).__name__


def checked(edit: Callable[[Record], bool]) -> Callable[[Record], bool]:
    """Return an edit that raises `ServerError` if the record could not be read again."""

    def edit_readable(record: Record) -> bool:
        is_changed = edit(record)
        if is_changed:
            check_record(record)
        return is_changed

    return edit_readable


def check_record(record: Record) -> None:
    """Raise `ServerError` for a record that could not be read again."""
    try:
        decode(encode(record))
    except (Unreadable, TypeError, ValueError, RecursionError):
        raise ServerError("A task keeps text, finite numbers and JSON values only") from None


def new_record(identifier: str, now: float, ttl_ms: int, poll_ms: int, **details: Any) -> Record:
    return Record(identifier, now, now, ttl_ms, poll_ms, room=_ROOM, **details)


def leave_room(record: Record) -> None:
    """Keep room for what taking a task and running it again add to its record."""
    record.room += "." * (LONGEST_PROCESS + 32)


# --- What may happen to it: each says whether anything changed -------------------------------------------------------


def complete(record: Record, result: Raw, failure: str | None = None, revision: str = "") -> bool:
    """The call has a result, written for `revision`; `failure` is what a result that is a tool's error says."""
    if record.over:
        return False  # A result that comes late is discarded.
    _end(record, "completed")
    record.result, record.revision, record.is_error = result, revision, failure is not None
    record.message = readable_text(failure or "")[:MAX_MESSAGE]
    return True


def fail(record: Record, error: ProtocolError) -> bool:
    if record.over:
        return False
    _end(record, "failed")
    code, message, data = readable_error(error.code, error.message, error.data)
    if isinstance(data, Raw):
        data = msgspec.json.decode(data)
    record.error = t.Error(code=code, message=message, data=data)
    record.message = record.error.message[:MAX_MESSAGE]
    return True


def cancel(record: Record) -> bool:
    if record.over:
        return False
    _end(record, "cancelled")
    record.message = "Cancelled"
    return True


def begin(record: Record, process: str) -> bool:
    """A process that has taken the task is about to run its handler."""
    if record.over or record.begun:
        return False
    before = len(encode(record))
    record.process, record.begun = process, True
    if record.message == WAITING:
        record.message = ""
    if record.call is not UNSET and not record.call.idempotent:
        record.call = UNSET  # It is never run again.
    _fill(record, before)
    return True


def hand_back(record: Record, call: StoredCall | UnsetType = UNSET, steps: Mapping[str, Raw] | None = None) -> bool:
    """The process that holds a task ends: another takes it where the call allows that, else it has failed.

    `call` and `steps` are those of a handler that does nothing but wait for answers. It runs again from its start, as
    any handler that asks does on 2026-07-28. Its open questions stay open, so that an answer is never dropped.
    """
    if record.over:
        return False
    if call is not UNSET:
        record.call, record.steps = call, dict(steps or {})
        return _put_back(record, keeps_questions=True)
    if not _may_move(record):
        return fail(record, ProtocolError(INTERNAL_ERROR, "The server stopped while the task was running"))
    return _put_back(record)


Loss: TypeAlias = Literal["over", "put back", "run again", "dead", "failed"]


def lose_lease(record: Record, most_attempts: int, *, counts: bool = True) -> Loss:
    """Take a task from an unreachable process. Return what becomes of the task.

    A task that had not begun goes to any process. One that had begun is run again if its call is idempotent. After
    `most_attempts` it is dead: perhaps it takes its process down every time. An attempt that does not count leaves the
    number as it is.

    A process that is cut off from the store may have run the task to its end, so the text does not say that it ended.
    """
    if record.over:
        return "over"
    if record.heartbeat:
        silent = counted(record.heartbeat, "second")
        text = f"The worker of this task did not report for {silent}; the work may have run"
        if not record.begun:
            text = "No worker reported on this task in time; the work may have run"
        fail(record, ProtocolError(INTERNAL_ERROR, text))
        return "failed"
    if not _may_move(record):
        if record.begun:
            text = "The server lost contact with the process that ran this task; the task may have run"
        else:
            text = "The server lost contact with the process that was to run this task"
        fail(record, ProtocolError(INTERNAL_ERROR, text))
        return "failed"
    if not record.begun:
        _put_back(record)
        return "put back"
    if not counts:
        _put_back(record)
        return "run again"
    if record.attempt >= most_attempts:
        lost = "the process" if record.attempt == 1 else f"{record.attempt} processes"
        text = f"The server lost contact with {lost} that ran this task; the task may have run"
        fail(record, ProtocolError(INTERNAL_ERROR, text))
        return "dead"
    _put_back(record, record.attempt + 1)
    return "run again"


def choose_record(own: Record, present: Record | None) -> Record | None:
    """Choose the record to write after a possible loss; None if the task is lost.

    `own` is the record that the process wrote or read last, `present` the one in the store.
    """
    if present is None:
        return own
    if present.over or present.attempt > own.attempt or present.process not in ("", own.process):
        return None
    if present.process == own.process and present.updated >= own.updated:
        return present
    # The store has an earlier record. A request may have begun to wait for the task since.
    own.watchers = [*own.watchers, *(each for each in present.watchers if each not in own.watchers)]
    return own


def lose_waiting(record: Record) -> bool:
    """Fail a lost waiting task unless it is idempotent. Return whether it failed.

    A lost process may have run it.
    """
    if record.over or (record.call is not UNSET and record.call.idempotent):
        return False
    return fail(record, ProtocolError(INTERNAL_ERROR, "The store of the server lost this task; the task may have run"))


def _may_move(record: Record) -> bool:
    return record.call is not UNSET and (record.call.idempotent or not record.begun)


def _put_back(record: Record, attempt: int | None = None, *, keeps_questions: bool = False) -> bool:
    before = len(encode(record))
    record.process, record.begun = "", False
    record.attempt = attempt or record.attempt
    record.message = WAITING
    if not keeps_questions:
        # The next run asks again what was asked and not answered.
        record.questions, record.status = {}, "working"
    _fill(record, before)
    return True


def _fill(record: Record, length: int) -> None:
    """Make a record as long as it was before: a store that is full takes it, and its end can be written down."""
    record.room = _ROOM
    record.room += "." * (length - len(encode(record)))


def _end(record: Record, status: t.TaskStatus) -> None:
    record.status = status
    record.questions, record.answers = {}, {}
    record.call = UNSET
    record.room = record.process = ""
    record.watchers = []
    record.begun = False


def watch(record: Record, process: str) -> bool:
    """A request in this process waits for the task. When too many processes have one, all processes are told."""
    watcher = process if len(record.watchers) < MOST_WATCHERS else EVERY_PROCESS
    if record.over or process in record.watchers or watcher in record.watchers:
        return False
    record.watchers = [*record.watchers, watcher]
    return True


def say(record: Record, message: str, progress: float | None = None, total: float | None = None) -> bool:
    """The task is so far; without numbers those that it said last stay."""
    message = message[:MAX_MESSAGE]
    if progress is None:
        progress, total = record.progress, record.total
    if record.over or (record.message, record.progress, record.total) == (message, progress, total):
        return False
    record.message, record.progress, record.total = message, progress, total
    return True


def ask(record: Record, questions: Mapping[str, Question], waiting: Collection[str] | None = None) -> bool:
    """The handler asks. `waiting` names all questions that it waits for: others are those of an earlier run."""
    if record.over:
        return False
    if waiting is not None:
        record.questions = {key: each for key, each in record.questions.items() if key in waiting}
    if len(record.questions) + len(record.answers) + len(questions) > MAX_QUESTIONS:
        raise too_many_questions()
    record.questions = {**record.questions, **questions}
    record.status = "input_required"
    return True


def withdraw(record: Record, key: str) -> bool:
    """Take back a question that nobody answered."""
    if record.over or record.questions.pop(key, None) is None:
        return False
    if not record.questions:
        record.status = "working"
    return True


def take_answers(record: Record, responses: Mapping[str, Raw]) -> bool:
    """Answers to questions that are open; -32602 for one that does not have the shape of an answer.

    TSK-12: those to questions that nobody asked, or that are answered, are passed over.
    """
    taken = {
        key: Reply(question.digest, checked_answer(key, question.kind, responses[key]))
        for key, question in record.questions.items()
        if key in responses
    }
    return _take(record, taken)


def take_refusal(record: Record, key: str, error: ProtocolError) -> bool:
    """A question that the client answered with an error, as only a 2025-11-25 client can."""
    question = record.questions.get(key)
    if question is None:
        return False
    refusal = t.Error(code=error.code, message=readable_text(error.message))
    return _take(record, {key: Reply(question.digest, error=refusal)})


def _take(record: Record, taken: Mapping[str, Reply]) -> bool:
    if record.over or not taken:
        return False
    record.answers = {**record.answers, **taken}
    record.questions = {key: question for key, question in record.questions.items() if key not in taken}
    if not record.questions:
        record.status = "working"
    return True


# --- How it looks ----------------------------------------------------------------------------------------------------


# A client that polls asks for the same two times again and again.
@lru_cache(maxsize=1024)
def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def core_task(record: Record, type_: type[W], now: float) -> W:
    """The task as 2025-11-25 knows it, as a value of `Task` or of a type made from it."""
    # 2025-11-25 tasks: there a tool's error fails the task.
    failed = record.status == "completed" and record.is_error
    fields = _fields(record, "failed" if failed else record.status)
    return type_(**fields, ttl=record.shown_ttl(now), poll_interval=record.poll_ms)


def task_created(record: Record) -> t.TaskCreatedResult:
    return t.TaskCreatedResult(**_fields(record), ttl_ms=record.ttl_ms, poll_interval_ms=record.poll_ms)


def detailed_task(record: Record, type_: type[W], now: float) -> W:
    """The task as the extension knows it, with its questions or its outcome (TSK-10)."""
    details: dict[str, Any] = {}
    if record.status == "input_required":
        details["input_requests"] = {key: _input_request(question) for key, question in record.questions.items()}
    elif record.status == "completed":
        details["result"] = record.result
    elif record.status == "failed":
        details["error"] = record.error
    if record.progress is not None and not record.over:
        numbers = {"progress": record.progress, "total": record.total}
        details["meta"] = {PROGRESS_KEY: {name: value for name, value in numbers.items() if value is not None}}
    return type_(**_fields(record), **details, ttl_ms=record.shown_ttl(now), poll_interval_ms=record.poll_ms)


def _fields(record: Record, status: str | None = None) -> dict[str, Any]:
    return {
        "task_id": record.id,
        "status": status or record.status,
        "status_message": record.message or UNSET,
        "created_at": rfc3339(record.created),
        "last_updated_at": rfc3339(record.updated),
    }


def _input_request(question: Question) -> dict[str, Any]:
    request: dict[str, Any] = {"method": question.kind}
    if question.params is not UNSET:
        request["params"] = question.params
    return request


def related_meta(identifier: str) -> dict[str, Any]:
    """2025-11-25 tasks: every message that belongs to a task names it, but for those of the task methods."""
    return {t.RELATED_TASK_KEY: {"taskId": identifier}}


def payload(record: Record) -> dict[str, Any]:
    """The answer to `tasks/result` of a task that is over: what the call would have answered, errors included."""
    if record.status == "completed":
        # The members stay JSON, because those that we do not know have to arrive as they left.
        result: dict[str, Any] = {**_decode_members(record.result or b"{}")}
        result["_meta"] = {**_decode_members(result.get("_meta", b"{}")), **related_meta(record.id)}
        return result
    if record.error is not UNSET:
        raise ProtocolError(record.error.code, record.error.message, record.error.data)
    raise was_cancelled()


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def related_params(question: Question, identifier: str) -> dict[str, Any]:
    """The params of a question as 2025-11-25 asks it: by a request that names its task."""
    params: dict[str, Any] = {} if question.params is UNSET else msgspec.json.decode(question.params)
    params["_meta"] = {**params.get("_meta", {}), **related_meta(identifier)}
    return params


def status_text(progress: float, total: float | None, message: str | None) -> str:
    """Progress as a status message, which is all that the extension has for it (TSK-17)."""
    if message:
        return readable_text(message)
    return f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
