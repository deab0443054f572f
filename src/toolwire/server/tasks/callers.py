"""Callers of tasks: the owner, the call as data that any process can run, and what a caller may do.

No caller may do more with a task than with the tool behind it, then and now. A task is judged by what its tool demanded
when the call was accepted, and by what the tool demands now. A task whose tool is not known any more is hidden. Where
the tool never was known, its owner is told to ask again: another process of the fleet may have it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, InsufficientScope, ProtocolError, ServerError
from toolwire.protocol.lifecycle import Incoming, decode_params
from toolwire.protocol.methods import methods
from toolwire.protocol.rounds import digest
from toolwire.protocol.surrogates import encode_readable
from toolwire.protocol.tasks import Question, Record, StoredCall
from toolwire.server.access import Permission
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget
from toolwire.server.catalog import Found, Way
from toolwire.server.components import ToolBase
from toolwire.server.in_process import Nowhere
from toolwire.server.judgements import Identity, Judgement
from toolwire.server.limits import Limits
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.parts import TaskParts
from toolwire.util.expiring import Expiring
from toolwire.wire.shares import Caller, caller_of, is_distinct

if TYPE_CHECKING:
    pass

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: How many tools of tasks a process remembers.
MAX_KNOWN: Final = 4096
# No tool has this identity.
_NO_TOOL: Final = Judgement(tool=Identity("", "", ()))
_decode = decoder_of(Judgement).decode


class JudgedTask(NamedTuple):
    """A task, as far as permissions need it."""

    tool: str
    """The tool that was called; empty for a task that the host made outside of any call of a tool."""
    judgement: Judgement | None
    """What was decided when the call was accepted; None for a task of a version that did not keep it."""
    is_own: bool = False
    """Whether the task is one of this server, and not one of an upstream."""


def task_of(record: Record) -> JudgedTask:
    """Return the task of a record, as far as permissions need it."""
    judgement = None if record.judgement is UNSET else decode_judgement(bytes(record.judgement))
    return JudgedTask(record.tool, judgement, is_own=True)


@lru_cache(maxsize=1024)
def decode_judgement(data: bytes) -> Judgement:
    """Read the judgement of a record. A damaged one hides the task."""
    try:
        return _decode(data)
    except BAD_JSON:
        return _NO_TOOL


class TaskPermissions:
    """The permissions of callers for tasks, as they are now."""

    def __init__(self, kernel: TaskParts) -> None:
        self._kernel = kernel
        # The tools whose tasks this process has shown. One that is gone later was withdrawn here.
        self._known: Expiring[str, None] = Expiring(MAX_KNOWN)

    @property
    def needs_list(self) -> bool:
        """Return whether a list handler has to be asked for tools."""
        return self._kernel.lowlevel.lists

    async def of(self, call: Call, tasks: Sequence[JudgedTask]) -> list[Permission]:
        """Return what a caller may do with each task now."""
        catalog = self._kernel.catalog
        is_made_up = any(each.tool and catalog.tool(each.tool) is None for each in tasks)
        listed = await self._listed(call) if is_made_up and self.needs_list else frozenset[str]()
        return [self.judge(call.principal, call.outlet.is_local, each, listed) for each in tasks]

    def judge(
        self, principal: Principal | None, is_local: bool, task: JudgedTask, listed: frozenset[str] = frozenset()
    ) -> Permission:
        """Return what a caller may do with a task. `listed` are the tools that the list handler names for it."""
        way: Way = ()
        access, is_usable = self._kernel.access, True
        if task.tool:
            found = access.find_tool(principal, is_local, task.tool, task.judgement)
            if found is not None:
                if task.is_own:
                    self._known.put(task.tool, None)
                way, is_usable = found.way, access.may_use(principal, is_local, found)
            elif task.tool not in listed or self._kernel.catalog.tool(task.tool) is not None:
                return "hidden"
        if task.judgement is None:
            return "usable" if is_usable else "refused"
        then = access.permission(principal, is_local, task.judgement, way)
        return then if is_usable or then == "hidden" else "refused"

    async def _listed(self, call: Call) -> frozenset[str]:
        """Return the tools that the list handler names for a caller; none when it fails, so that nothing leaks."""
        try:
            tools = await self._kernel.failures.in_time(call, self._kernel.lowlevel.tools(call), "tools/list")
        except Exception:
            log.exception("the list handler failed, so the tasks of its tools are not shown")
            return frozenset()
        return frozenset(each.name for each in tools)

    async def check(self, call: Call, task: JudgedTask) -> None:
        """Raise what a caller gets who may not use a task."""
        (permission,) = await self.of(call, [task])
        self.check_permission(call, task, permission)

    def check_now(self, call: Call, task: JudgedTask) -> None:
        """Raise what a caller gets who may not use a task of a tool that no list handler makes up."""
        self.check_permission(call, task, self.judge(call.principal, call.outlet.is_local, task))

    def check_permission(self, call: Call, task: JudgedTask, permission: Permission) -> None:
        """Raise an unknown task, or the scopes that a task needs; return for a task that is usable."""
        if permission == "refused":
            found = self.find_tool(call, task)
            needed = frozenset[str]() if found is None else self._kernel.access.scopes(found)
            if task.judgement is not None:
                needed = needed.union(*(each.scopes for each in task.judgement.scopes))
            raise InsufficientScope(needed, call.request_id)
        if permission == "hidden":
            raise self._error_for_hidden(task)

    def _error_for_hidden(self, task: JudgedTask) -> ProtocolError:
        """Return what the owner of a task gets that is not shown.

        During a rolling update another process may have the tool that this one never had.
        """
        catalog = self._kernel.catalog
        if not task.tool or catalog.tool(task.tool) is not None:
            return rules.unknown_task()
        if missing := catalog.missing_for(task.tool):
            return rules.lacking_tool(f"the list of the server {' or '.join(map(repr, missing))} is missing")
        # A list handler knows the tools of each caller.
        if not task.is_own or task.tool in self._known or self.needs_list:
            return rules.unknown_task()
        return rules.lacking_tool("its tool is not known here")

    def find_tool(self, call: Call, task: JudgedTask) -> Found[ToolBase] | None:
        """Return the tool of a task as its caller sees it now; None for one that is not known any more."""
        return self._kernel.access.find_tool(call.principal, call.outlet.is_local, task.tool, task.judgement)

    def mask(self, call: Call, record: Record) -> Record:
        """Mask what a caller reads of a task by the policies of now. Those of then were applied when it was written."""
        enforcer, _ = self._kernel.enforce_late(None)
        if enforcer is None or record.longest:
            return record  # No policy applies to a task of the host's own.
        task = task_of(record)
        found = self.find_tool(call, task) if task.tool else None
        target = CallTarget("tools/call", task.tool, t.CallToolRequestParams(name=task.tool), found)
        return enforcer.mask_record(call, target, record, task.judgement)

    def unmask(self, call: Call, record: Record, answers: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """Return answers to the questions as `mask` shows them, as answers to the questions of the record."""
        shown = self.mask(call, record)
        if shown is record:
            return answers
        asked = [name for name in answers if name in record.questions]
        return {name: _unmasked(record.questions[name], shown.questions[name], answers[name]) for name in asked}

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool:
        """Return whether the client that made a task may still hear of it."""
        task = task_of(record)
        # What a list handler names is not known here. The call was made under its list.
        listed = frozenset((task.tool,)) if self.needs_list else frozenset[str]()
        return self.judge(principal, is_local, task, listed) == "usable"


def _unmasked(question: Question, shown: Question, answer: Raw) -> Raw:
    """Return an answer with the choices as they were before a mask; as it is where they cannot be told apart."""
    # Imported here because few questions are masked later.
    from toolwire.server.context.forms import unmask_answer

    with suppress(*BAD_JSON, KeyError, TypeError, AttributeError, ServerError):
        forms = [msgspec.json.decode(each.params or b"")["requestedSchema"] for each in (question, shown)]
        said = msgspec.json.decode(answer)
        said["content"] = unmask_answer(*forms)(said["content"])
        return Raw(msgspec.json.encode(said))
    return answer


def owner_of(call: Call) -> str:
    """Return the owner of a task that this request makes.

    2025-11-25 tasks, security: to the principal where there is one. What comes without one over HTTP is never listed,
    so it is kept apart from the tasks of the user who started this process.
    """
    return principal_key(call.principal) or ("local" if call.outlet.is_local else "http")


def counted_caller(caller: Caller) -> Caller:
    """Return the caller that a slot is counted for: an address by a digest, which may be kept in the store."""
    return digest(caller) if isinstance(caller, str) else caller


def line_of(caller: Caller) -> str:
    """Return the line that the tasks of a counted caller stand in, in the queue; empty for a caller without a share.

    It is the owner for a principal (see `caller_of`). Callers without a principal are one owner, and have a line each.
    """
    if isinstance(caller, tuple):
        return digest(str(caller[0]), str(caller[1]))
    return caller if isinstance(caller, str) else ""


def stored(call: Call, tool: ToolBase, kind: str, limits: Limits) -> StoredCall | UnsetType:
    """Return a call as data; nothing where its tool says that its tasks stay, or its principal cannot be written down.

    The params are those that the handler would get now: middleware and policies may have changed them.
    """
    request = call.request
    principal: Raw | UnsetType = UNSET
    if tool.task_stays:
        return UNSET
    if request.principal is not None:
        if not isinstance(request.principal, Principal):
            return UNSET
        try:
            principal = Raw(msgspec.json.encode(request.principal))
        except (TypeError, ValueError, RecursionError):
            return UNSET
    return StoredCall(
        params=Raw(encode_readable(request.params)),
        revision=request.revision,
        kind=kind,
        capabilities=dict(request.capabilities),
        client=request.client,
        principal=principal,
        is_local=call.outlet.is_local,
        progress_token=request.progress_token,
        idempotent=tool.idempotent,
        line=line_of(counted_caller(request.caller)) if not is_distinct(request.principal) else "",
        wait=limits.task_wait,
        attempts=limits.task_attempts,
    )


def request_of(call: StoredCall) -> Incoming:
    """Return the request of a stored call, which was let in when it came."""
    row = methods(call.revision)["tools/call"]
    params = decode_params(row, call.params)
    token = call.progress_token
    request = Incoming(
        0, "tools/call", row, params, call.params, call.revision, call.capabilities, call.client, token, UNSET
    )
    request.principal = _stored_principal(call)
    request.caller = caller_of(request.principal)
    request.again = True
    return request


def caller_in(call: StoredCall) -> Caller:
    """Return the caller that the slot of a stored call is counted for."""
    return call.line or caller_of(_stored_principal(call))


def _stored_principal(call: StoredCall) -> Principal | None:
    return None if call.principal is UNSET else decoder_of(Principal).decode(call.principal)


class Gone(Nowhere):
    """The outlet of a call whose connection is that of another process, or has ended."""

    in_process = False
    why = "The connection of this call is elsewhere, or gone"
