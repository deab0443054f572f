"""The two dialects of tasks, made out of each other: results, states and the names of tasks in them.

2025-11-25 has tasks in its core, and 2026-07-28 has them in an extension. Members that both know are the same. A result
names its task in the first, and stands in the task in the second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from toolwire.gateway.relaying import Answer, members_of
from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import InvalidResponse
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import related_meta
from toolwire.server.call import Call

_encode = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
W = TypeVar("W", bound=t.Wire)


def created_task(answer: Answer) -> t.Task | t.TaskCreatedResult | None:
    """Return the task that a server made of a call; None where it answered with a result."""
    if answer.questions is not None:
        return None
    try:
        if answer.connection.modern:
            members = answer.members or {}
            if bytes(members.get("resultType", b"")) != b'"task"':
                return None
            return decoder_of(t.TaskCreatedResult).decode(answer.raw)
        if "task" not in members_of(answer.raw):
            return None
        return decoder_of(t.CreateTaskResult).decode(answer.raw).task
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"The task cannot be read: {error}") from None


def created_under(answer: Answer, name: str) -> dict[str, Any]:
    """Return the answer with which a server made a task, with the name that the client knows."""
    members: dict[str, Any] = dict(members_of(answer.raw) if answer.members is None else answer.members)
    if answer.connection.modern:
        members["taskId"] = name
    else:
        members["task"] = {**_members(members["task"]), "taskId": name}
    return without_connection(members)


def modern_fields(state: t.Task, name: str) -> dict[str, Any]:
    """Return what every state of a task has, as the extension has it."""
    return {
        "task_id": name,
        "status": state.status,
        "status_message": state.status_message,
        "created_at": state.created_at,
        "last_updated_at": state.last_updated_at,
        "ttl_ms": state.ttl,
        "poll_interval_ms": state.poll_interval,
    }


def as_core(state: t.TaskFields, name: str, type_: type[W]) -> W:
    """Return a task of a modern server as 2025-11-25 knows it. There a tool's error fails the task."""
    is_failed = state.status == "completed" and _is_error(getattr(state, "result", UNSET))
    return type_(
        task_id=name,
        status="failed" if is_failed else state.status,
        status_message=state.status_message,
        created_at=state.created_at,
        last_updated_at=state.last_updated_at,
        ttl=state.ttl_ms,
        poll_interval=state.poll_interval_ms,
    )


def _is_error(result: Any) -> bool:
    members = msgspec.json.decode(result) if isinstance(result, Raw) else result
    return isinstance(members, dict) and members.get("isError") is True


def related_answers(ask: Callable[[Incoming], Awaitable[Raw]], task: str) -> Callable[[Incoming], Awaitable[Raw]]:
    """2025-11-25 tasks: the answer to a question of a task names the task, as the server knows it."""

    async def answer(request: Incoming) -> Raw:
        members: dict[str, Any] = dict(_members(await ask(request)))
        return Raw(_encode({**members, "_meta": {**_meta_of(members), **related_meta(task)}}))

    return answer


def with_related(result: Any, name: str) -> dict[str, Any]:
    """2025-11-25 tasks: the result of a task names the task, as the client knows it."""
    members: dict[str, Any] = dict(_members(result if isinstance(result, Raw) else t.encode(result)))
    return {**members, "_meta": {**_meta_of(members), **related_meta(name)}}


def without_related(answer: Answer) -> Answer:
    """Return a result as it is where it is no answer to `tasks/result`."""
    members: dict[str, Any] = dict(members_of(answer.raw))
    meta = _meta_of(members)
    if t.RELATED_TASK_KEY not in meta:
        return answer
    del meta[t.RELATED_TASK_KEY]
    kept = {name: value for name, value in members.items() if name != "_meta"}
    return Answer(Raw(_encode({**kept, "_meta": meta} if meta else kept)), None, answer.connection)


def inlined(result: Any) -> Raw:
    """Return a result as it stands in a task of the extension."""
    if isinstance(result, Raw):
        return result
    result.result_type = "complete"
    return Raw(t.encode(shape(result, MODERN)))


def without_connection(members: dict[str, Any]) -> dict[str, Any]:
    """Leave out the members of `_meta` that describe the connection to the other server."""
    meta = {key: value for key, value in _meta_of(members).items() if key not in t.MODERN_META_KEYS}
    kept = {name: value for name, value in members.items() if name != "_meta"}
    return {**kept, "_meta": meta} if meta else kept


def _meta_of(members: Mapping[str, Any]) -> dict[str, Any]:
    meta = members.get("_meta")
    return dict(_members(meta)) if isinstance(meta, Raw) else dict(meta or {})


def members_sent(call: Call) -> dict[str, Any]:
    """Return the members of the client's params, but for those that the gateway writes."""
    raw = call.request.raw
    members = {} if raw is UNSET else _members(raw)
    return {name: value for name, value in members.items() if name not in ("taskId", "_meta")}


def without_ttl(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state for a comparison: a longer ttl is no change of the task."""
    return {name: value for name, value in state.items() if name != "ttl_ms"}
