"""Running the call of a task again in another process, where its tool is idempotent."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.auth.principal import Principal
from toolwire.protocol.lifecycle import Incoming, decode_params
from toolwire.protocol.methods import methods
from toolwire.protocol.tasks import Again
from toolwire.server.call import Call
from toolwire.server.in_process import Nowhere


def again_of(call: Call) -> Again | UnsetType:
    """Return what it takes to run this call again; nothing where its principal cannot be written down."""
    request = call.request
    principal: Raw | UnsetType = UNSET
    if request.principal is not None:
        if not isinstance(request.principal, Principal):
            return UNSET
        principal = Raw(msgspec.json.encode(request.principal))
    return Again(
        params=Raw(msgspec.json.encode(request.params)),
        revision=request.revision,
        capabilities=dict(request.capabilities),
        client=request.client,
        principal=principal,
        is_local=call.outlet.is_local,
    )


def request_of(again: Again) -> Incoming:
    """Return a request like that of the first run."""
    row = methods(again.revision)["tools/call"]
    params = decode_params(row, again.params)
    principal = None if again.principal is UNSET else msgspec.json.decode(again.principal, type=Principal)
    request = Incoming(
        0, "tools/call", row, params, again.params, again.revision, again.capabilities, again.client, UNSET, UNSET
    )
    request.principal = principal
    request.again = True
    return request


class Gone(Nowhere):
    """The outlet of a call whose connection ended with the process that it was made to."""

    in_process = False
    why = "The connection of this call is gone"
