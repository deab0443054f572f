"""The questions of handlers between two rounds: how their state is sealed, opened and used up (`protocol.rounds`)."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final, cast

from msgspec import UNSET

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    NotSupported,
    ProtocolError,
    ToolwireError,
)
from toolwire.protocol.rounds import (
    Rounds,
    State,
    answers_refused,
    digest,
    dump_state,
    invalid_state,
    request_digest,
    used_state,
)
from toolwire.protocol.sealing import BadSeal, Sealer
from toolwire.server.call import Call
from toolwire.server.input_requests import Asking, BackChannel, NoReplay, Replay
from toolwire.stores import StoreFailed, StoreFull, Stores
from toolwire.util.backoff import Backoff
from toolwire.wire.shares import StorageBudget, is_distinct

log: logging.Logger = logging.getLogger("toolwire.server")

# A longer state stays in the store, and only its name is sent to the client.
MAX_SEALED: Final = 32 * 1024
# Clients decide how long their answers are. So these limit the bytes of one state, and of all stored states together.
MAX_STATE: Final = 256 * 1024
MAX_KEPT: Final = 16 * 1024 * 1024
# The number of used states that this process may have in the store at a time.
MAX_USED: Final = 50_000
# The clocks of two replicas may differ by this many seconds. So a used state is remembered longer than it is valid.
_SLACK: Final = 60.0
# For how many seconds a mark is written again whose writing failed, and the longest pause in between.
_MARK_SECONDS: Final = 20.0
_LONGEST_PAUSE: Final = 1.0
#: After how many milliseconds answers may be sent again that were refused for want of room, at least.
_LEAST_RETRY_MS: Final = 1000
# How a payload begins. Not `util.Sealed`: a long payload stays in the store, and its name is sealed in its place.
_INLINE, _STORED = b"=", b"@"


class Questions:
    """The questions of the handlers of one server."""

    def __init__(self, server: str, sealer: Sealer, stores: Stores, share: float) -> None:
        """`share` is `Limits.share`."""
        self._context = b"requestState/" + server.encode()
        self.sealer = sealer
        self.stores: Stores = stores
        self.on_replay: Callable[[Call, int], None] | None = None
        """Called with the number of the round, 2 or more, before a handler runs again."""
        self._kept = StorageBudget(MAX_KEPT, share)
        self._used = StorageBudget(MAX_USED, share)

    async def asking(self, call: Call) -> Asking:
        """Return the way in which a call asks its client."""
        if call.task_run is not None and (asking := call.task_run.asking) is not None:
            return asking
        if not call.request.modern:
            return BackChannel(call.outlet, call.settings.limits.state)
        if not call.request.row.rounds:
            # MRTR-1
            raise NotSupported(f"{call.method} cannot ask the client: only tools, prompts and resources can")
        digest, most = request_digest(call.method, call.params), call.settings.limits.rounds
        rounds = Rounds(digest, principal_key(call.principal), max_rounds=most)
        if call.params.request_state is not UNSET:
            await self._resume(rounds, call)
        elif call.params.input_responses is not UNSET:
            rounds.offer(call.params.input_responses)
        if not call.replay and rounds.unfinished is None:
            return NoReplay()
        # A child task of the handler may ask. The deadline knows the task of the handler itself.
        task = call.task if call.deadline is None else call.deadline.task
        return Replay(rounds, task or asyncio.current_task())

    async def take_up(self, call: Call) -> None:
        """Check the state of a request, and use its answers for the handler, which runs next."""
        asking = call.asking or await call.open_asking()
        if asked(call):
            return
        if not call.replay:
            call.asking = NoReplay()
        elif type(asking) is Replay:
            asking.task = asyncio.current_task()

    async def _resume(self, rounds: Rounds, call: Call) -> None:
        """MRTR-5: open the sealed state, and check it and the answers, which the client may have changed."""
        params: t.RoundRequestParams = call.params
        try:
            payload = await self.unsealed(cast(str, params.request_state), self._context)
        except StoreFailed as error:
            log.error("a call could not go on with its answers: the store failed: %s", error)
            raise answers_refused() from None
        responses = {} if params.input_responses is UNSET else params.input_responses
        # A request that the server itself runs again was in time when it arrived.
        state = rounds.resume(payload, responses, 0.0 if call.request.again else time.time())
        for asked in state.asked.values():
            _check_capability(call, _CAPABILITIES[asked.kind])
        for _, question in rounds.pending.values():
            if isinstance(question, t.ElicitRequest) and question.params.mode == "url":
                _check_capability(call, "elicitation.url")
        if rounds.unfinished is None and not call.request.again:
            await self._use_up(call, state)
            if self.on_replay is not None:
                self.on_replay(call, rounds.round + 1)

    async def _use_up(self, call: Call, state: State) -> None:
        """MRTR-7: mark a state as used, on all replicas; refuse a second request with the same state."""
        seconds = max(state.expires - time.time(), 0.0) + _SLACK
        if not self._used.has_room(call.request.caller, 1):
            # The state is not used up, so that the client may send the same answers again.
            later = {"retryAfterMs": max(_LEAST_RETRY_MS, math.ceil(self._used.seconds_until_release() * 1000))}
            raise ProtocolError(INTERNAL_ERROR, "Too many calls were answered in a short time; try again later", later)
        try:
            is_first = await self._mark_used(f"toolwire:used:{state.id}", seconds)
        except ToolwireError as error:
            log.error("a call could not go on with its answers: the store failed: %s", error)
            raise answers_refused() from None
        if not is_first:
            raise used_state()
        self._used.admit(call.request.caller, 1, seconds)

    async def _mark_used(self, key: str, seconds: float) -> bool:
        """Write the mark of a used state, and return whether it is the first.

        The mark is random. So it can be written again when the answer of the store was lost: the mark that is found
        then is this one, or that of another request.
        """
        loop, mark, backoff = asyncio.get_running_loop(), os.urandom(12), Backoff(longest=_LONGEST_PAUSE)
        until, is_repeated = loop.time() + _MARK_SECONDS, False
        while True:
            try:
                if await self.stores.kv.put(key, mark, ttl=seconds, if_absent=True):
                    return True
                return is_repeated and await self.stores.kv.get(key) == mark
            except StoreFailed as error:
                # A refusal now could be wrong later: perhaps the mark was written, and the state would count as used.
                if not error.temporary or loop.time() > until:
                    raise
                is_repeated = True
            await asyncio.sleep(backoff.after(None))

    async def input_required(self, call: Call) -> t.InputRequiredResult:
        asking = call.asking
        assert isinstance(asking, Replay)
        limits = call.settings.limits
        seconds = limits.tool
        if call.deadline is not None:
            call.deadline.stop()
            seconds = call.deadline.seconds
        if asking.unwinding and asking.rounds.unfinished is None:
            uncancel()
        await asking.unwound(seconds)
        state = asking.rounds.next_state(os.urandom(16).hex(), time.time(), limits.state)
        return asking.rounds.result(await self._sealed(call, state))

    async def _sealed(self, call: Call, state: State) -> str:
        payload = dump_state(state)
        if len(payload) > MAX_STATE:
            text = f"The answers to this call's questions, and its steps, are over the limit of {MAX_STATE} bytes"
            raise ProtocolError(INVALID_PARAMS, text)
        # The values of steps are secrets of the server. So they are sent encrypted, or stay in the store.
        is_secret = bool(state.steps) and not self.sealer.confidential
        try:
            return await self.sealed(call, payload, self._context, state.expires - time.time(), stays=is_secret)
        except (StoreFailed, StoreFull) as error:
            log.error("a call could not ask its client: the store failed: %s", error)
            later = {"retryAfterMs": _LEAST_RETRY_MS}
            text = "The questions of this call cannot be kept now; try again later"
            raise ProtocolError(INTERNAL_ERROR, text, later) from None

    async def sealed(self, call: Call, payload: bytes, context: bytes, seconds: float, *, stays: bool = False) -> str:
        """Return the text by which a client brings a payload back. A long one, or one that `stays`, is stored."""
        if len(payload) < MAX_SEALED and not stays:
            return self.sealer.seal(_INLINE + payload, context)
        if not self._kept.admit(call.request.caller, len(payload), call.settings.limits.state):
            text = "Too many calls wait for long answers to be carried on; try again later, or with shorter answers"
            raise ProtocolError(INTERNAL_ERROR, text)
        name = os.urandom(24).hex()
        await self.stores.kv.put(_state_key(name), _INLINE + payload, ttl=seconds)
        return self.sealer.seal(_STORED + name.encode(), context)

    async def unsealed(self, text: str, context: bytes) -> bytes:
        """Return the payload of a text that a client brought back. Raise -32602 for what was not sealed here."""
        try:
            payload = self.sealer.open(text, context)
        except BadSeal:
            raise invalid_state() from None
        if not payload.startswith(_STORED):
            return payload[1:]
        stored = await self.stores.kv.get(_state_key(payload[1:].decode()))
        if stored is None:
            raise invalid_state()
        return stored[1:]


_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def _check_capability(call: Call, capability: str) -> None:
    """MRTR-4: check that this request declares the capability which a question needs. An earlier one does not count."""
    if not t.has_capability(call.request.capabilities, capability):
        text = f"The questions of this request need the client capability {capability}"
        required: dict[str, Any] = {}
        for name in reversed(capability.split(".")):
            required = {name: required}
        raise ProtocolError(MISSING_CLIENT_CAPABILITY, text, {"requiredCapabilities": required})


def asked(call: Call) -> bool:
    asking = call.asking
    return type(asking) is Replay and asking.unwinding


def resumes_rounds(call: Call) -> bool:
    """Return whether a request continues an earlier round, by its `requestState`."""
    return call.request.modern and call.params.request_state is not UNSET


def uncancel() -> None:
    """Take back our own cancellation, because the task has to go on and answer."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def principal_key(principal: Principal | None) -> str:
    """Return a text that names the owner of something; empty for a caller without a principal."""
    if principal is None:
        return ""
    subject = getattr(principal, "subject", None)
    return digest(str(getattr(principal, "provider", "")), str(principal if subject is None else subject))


def limit_key(call: Call) -> str:
    """Return the text that per-caller limits count a call by.

    That is its principal. Strangers have none, or share one: each of their addresses is a caller.
    """
    caller = call.request.caller
    if is_distinct(call.principal) or caller is None:
        return principal_key(call.principal)
    return digest("address", str(caller))


def _state_key(name: str) -> str:
    return f"toolwire:state:{name}"
