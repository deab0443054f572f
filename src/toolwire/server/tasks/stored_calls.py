"""Calls as data: what another process, or this one later, needs to run the call of a task."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.auth.principal import Principal
from toolwire.protocol.lifecycle import Incoming, decode_params
from toolwire.protocol.methods import methods
from toolwire.protocol.surrogates import encode_readable
from toolwire.protocol.tasks import StoredCall
from toolwire.server.call import Call
from toolwire.server.components import ToolBase
from toolwire.server.in_process import Nowhere
from toolwire.server.limits import Limits
from toolwire.server.tasks.owners import counted_caller, line_of
from toolwire.wire.shares import Caller, caller_of, is_distinct


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
    return None if call.principal is UNSET else msgspec.json.decode(call.principal, type=Principal)


class Gone(Nowhere):
    """The outlet of a call whose connection is that of another process, or has ended."""

    in_process = False
    why = "The connection of this call is elsewhere, or gone"
