"""Judgements of calls whose clients were asked: they hold when the answers come.

The state that the client carries has a mark of the judgement (see `server.kept_judgements`). The server or tool of the
call may be gone by then, or have other scopes and policies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

from toolwire.gateway.held_calls import not_now
from toolwire.protocol import types as t
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.rounds import invalid_state
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.stores import StoreFailed, StoreFull

if TYPE_CHECKING:
    from toolwire.server.kernel import Kernel


class Answered(Protocol):
    """An answer of an upstream: a result, or the questions of a call that is held."""

    raw: Raw
    members: dict[str, Raw] | None
    questions: t.InputRequiredResult | None


A = TypeVar("A", bound=Answered)


_members = msgspec.json.Decoder(dict[str, Raw]).decode


async def keep_judgement(call: Call) -> str:
    """Keep what was decided about a call that asks its client; return the mark for its state."""
    kernel, target = cast("Kernel", call.host), target_of(call)
    judgement = call.judgement
    if judgement is None:
        if target is None or target.found is None:
            return ""
        judgement = kernel.judge(call, target.found)
    return await kernel.judgements.keep(judgement)


async def answer_within_judgement(call: Call, mark: str, ask: Callable[[], Awaitable[A]]) -> A:
    """Ask an upstream to go on with a call, by what was decided when the call was accepted.

    Raise `InsufficientScope` for a caller who lacks a scope, and -32602 for one who may not know of the call.
    """
    kernel, target = cast("Kernel", call.host), target_of(call)
    found = None if target is None else target.found
    try:
        judgement = await kernel.find_judgement(call, found, mark) if mark else kernel.judge_earlier(call, found)
    except (StoreFailed, StoreFull) as error:
        raise not_now(error) from None
    if judgement is None:
        raise invalid_state()
    way = () if found is None else found.way
    permission = kernel.access.permission(call.principal, call.outlet.is_local, judgement, way)
    if permission == "hidden":
        raise invalid_state()
    if permission == "refused":
        raise InsufficientScope(frozenset().union(*(each.scopes for each in judgement.scopes)), call.request_id)
    call.judgement = judgement
    enforcer, kept = kernel.enforce_late(judgement)
    if enforcer is None or kept is None:
        return await ask()
    answers: list[A] = []

    async def take(call: Call) -> Any:
        answers.append(answer := await ask())
        return answer.raw if answer.questions is None else answer.questions

    name = "" if target is None else target.name
    outcome = await enforcer.about_accepted(call, CallTarget(call.method, name, call.params, found), take, kept)
    (answer,) = answers
    if answer.questions is not None:
        answer.questions = outcome
    elif outcome is not answer.raw:
        answer.raw = cast("Raw", outcome)
        answer.members = None if answer.members is None else _members(answer.raw)
    return answer
