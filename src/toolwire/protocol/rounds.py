"""Multi round-trip requests: what was asked, what was answered, and the state that travels in between.

On 2026-07-28 a server asks by ending the request with `input_required`; the client sends the request again with the
answers (2026-07-28 basic/patterns/mrtr). The handler then runs again from the top, and every question it asks is looked
up here: an answered one returns at once, a new one is kept for the next round. The state is bound to the request, the
principal and a deadline (MRTR-6); sealing and storing it is the caller's part.

The handler runs again only when every question of a state is answered. The caller then uses up the state's id, so that
no state lets a handler run twice (MRTR-7). Answers that are not complete run nothing and use up nothing: the questions
that are left are asked again, in a state with the same id and the same deadline.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import (
    BAD_JSON,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    InvalidResponse,
    ProtocolError,
    find_data_member,
)
from toolwire.protocol.methods import methods
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.revisions import MODERN

Kind: TypeAlias = Literal["elicitation/create", "sampling/createMessage", "roots/list"]

MAX_ROUNDS: Final = 10
LIFETIME: Final = 600.0
# Bytes of questions that one state carries, to ask them again when only some of them were answered.
_CARRIED: Final = 16 * 1024
_NOTHING: Final = Raw(b"null")

_REQUESTS: Final[dict[str, type[Any]]] = {
    "elicitation/create": t.ElicitRequest,
    "sampling/createMessage": t.CreateMessageRequest,
    "roots/list": t.ListRootsRequest,
}
_RESULTS: Final[dict[str, type[Any]]] = {
    "elicitation/create": t.ElicitResult,
    "sampling/createMessage": t.CreateMessageResult,
    "roots/list": t.ListRootsResult,
}


class Asked(Struct, array_like=True):
    """A question that left: its kind, the digest of what it said, and the whole of it unless it is long."""

    kind: str
    digest: str
    request: Raw = _NOTHING


class Answered(Struct, array_like=True):
    """A question that came back: the digest of what it said, and the answer as it stood on the wire."""

    digest: str
    result: Raw


class State(Struct):
    """The sealed state that travels from one round to the next."""

    id: str
    request: str
    principal: str
    expires: float
    round: int
    asked: dict[str, Asked] = {}
    answers: dict[str, Answered] = {}
    steps: dict[str, Raw] = {}


_encode = msgspec.json.Encoder(order="sorted").encode
_encode_state = msgspec.json.Encoder().encode


def digest(*parts: Any) -> str:
    """A short name for a JSON value, the same however its members are ordered or spaced."""
    plain = [msgspec.json.decode(part) if isinstance(part, Raw) else part for part in parts]
    # Imported here because most servers ask nothing.
    import hashlib

    return hashlib.sha256(_encode(plain)).hexdigest()[:32]


def request_digest(method: str, params: t.RoundRequestParams) -> str:
    """Names the originating request: its method and every member of its params that is the caller's own (MRTR-6)."""
    own = {
        field: value
        for field in params.__struct_fields__
        if field not in ("meta", "input_responses", "request_state") and (value := getattr(params, field)) is not UNSET
    }
    own.update(params.extra)  # The members of an extension's method, which no type here knows.
    return digest(method, {name: msgspec.json.decode(v) if isinstance(v, Raw) else v for name, v in own.items()})


def invalid_state() -> ProtocolError:
    """One text for every reason, so that nobody learns which check failed."""
    return ProtocolError(INVALID_PARAMS, "The requestState is not valid for this request; start again without it")


def answers_refused() -> ProtocolError:
    """Return the error for answers that cannot be used now. Nothing was done with them."""
    return ProtocolError(INTERNAL_ERROR, "The answers cannot be taken now; try again later", {"retryAfterMs": 1000})


def repeat_pause(error: ProtocolError) -> float | None:
    """Return the seconds before answers may be sent again; None for a final error.

    MRTR-7: a state works once. So a server that names a time has not used it, and a second copy cannot run twice.
    """
    return read_pause(find_data_member(error, "retryAfterMs", object))


def read_pause(milliseconds: object) -> float | None:
    """Return the seconds of a `retryAfterMs`; None for a value that is no time."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    # JSON has whole numbers that no float holds.
    return milliseconds / 1000 if 0 <= milliseconds <= sys.float_info.max else None


def used_state() -> ProtocolError:
    """MRTR-7: a state with its answers is good for one run."""
    text = "The answers to this requestState were used already, and the request has run with them; "
    return ProtocolError(INVALID_PARAMS, text + "to run it once more, start again without requestState")


class Keys:
    """The names of the questions that one call asks."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._seen: dict[str, int] = {}

    def choose(self, kind: str, asked: str, key: str | None) -> str:
        """The key that was wished for, or one made out of the digest of what is asked."""
        if key is not None:
            check_key(key, self.used)
            return key
        # Never a running number: a question keeps its name however often and in whatever order it is asked.
        name = f"{kind.partition('/')[0]}-{asked[:16]}"
        occurrence = self._seen.get(name, 0)
        self._seen[name] = occurrence + 1
        key = f"{name}-{occurrence}" if occurrence else name
        self.used.add(key)
        return key


class Rounds:
    """The questions of one run of a handler."""

    def __init__(self, request: str, principal: str, *, max_rounds: int = MAX_ROUNDS) -> None:
        self.request = request
        self.principal = principal
        self.round: int = 0
        self.pending: dict[str, tuple[Asked, Any]] = {}
        self.steps: dict[str, Raw] = {}
        self.unfinished: State | None = None
        """The state that is not answered completely: the handler must not run, and `pending` is what is missing."""
        self.answers: dict[str, Answered] = {}
        self.keys: Keys = Keys()
        self._offered: dict[str, Raw] = {}
        self._seconds: float | None = None
        self._max_rounds = max_rounds

    def resume(self, payload: bytes, responses: Mapping[str, Raw], now: float) -> State:
        """Take up the state of the round before, and the answers that came with it."""
        try:
            state: State = decoder_of(State).decode(payload)
        except BAD_JSON:
            raise invalid_state() from None
        if state.request != self.request or state.principal != self.principal or now > state.expires:
            raise invalid_state()
        self.round = state.round
        self.steps = dict(state.steps)
        self.answers = dict(state.answers)
        for key, asked in state.asked.items():
            if asked.kind not in _REQUESTS:
                raise invalid_state()
            # MRTR-9: an answer that is missing is asked for again, one that nobody asked for is ignored.
            response = responses.get(key)
            if response is not None:
                self.answers[key] = Answered(asked.digest, checked_answer(key, asked.kind, response))
            elif asked.request == _NOTHING:
                text = f"The answer to {key[:100]!r} is missing; send the answers to all questions together"
                raise ProtocolError(INVALID_PARAMS, text)
            else:
                self.unfinished = state
                self.pending[key] = (asked, t.decode(_REQUESTS[asked.kind], asked.request))
        return state

    def has_used(self, key: str) -> bool:
        """Return whether the handler asked the question with this key in this run."""
        return key in self.keys.used

    def offer(self, responses: Mapping[str, Raw]) -> None:
        """Take answers that came before anything was asked: a client may know what a named question will be."""
        self._offered = dict(responses)

    def ask(
        self, kind: Kind, params: t.Wire | None, key: str | None = None, seconds: float | None = None
    ) -> Raw | None:
        """The answer to a question; None when it has to wait for the next round, which comes within `seconds`."""
        asked = Asked(kind, digest(kind, params))
        named, key = key is not None, self.keys.choose(kind, asked.digest, key)
        if named and key in self._offered:
            self.answers[key] = Answered(asked.digest, checked_answer(key, kind, self._offered[key]))
        answered = self.answers.get(key)
        if answered is not None and answered.digest == asked.digest:
            return answered.result
        # A question that changed between rounds is asked again, never answered with another's answer.
        if seconds is not None:
            self._seconds = seconds if self._seconds is None else min(seconds, self._seconds)
        request = _REQUESTS[kind]
        self.pending[key] = (asked, request() if params is None else request(params=params))
        return None

    def next_state(self, identifier: str, now: float, lifetime: float = LIFETIME) -> State:
        """Return the state for the next round. `identifier` names it, unless nothing ran since the state before."""
        if self.unfinished is not None:
            asked = {key: asked for key, (asked, _) in self.pending.items()}
            return msgspec.structs.replace(self.unfinished, asked=asked, answers=self.answers)
        if self.round >= self._max_rounds:
            raise ProtocolError(INVALID_PARAMS, f"The call asked more than {self._max_rounds} rounds of questions")
        return State(
            id=identifier,
            request=self.request,
            principal=self.principal,
            expires=now + (lifetime if self._seconds is None else self._seconds),
            round=self.round + 1,
            asked=self._asked(),
            # Only answers that this run used, so that a stale one does not travel for ever.
            answers={key: self.answers[key] for key in self.answers if key in self.keys.used},
            steps=self.steps,
        )

    def _asked(self) -> dict[str, Asked]:
        """The questions that leave now; those that are carried whole are no longer than `_CARRIED` together."""
        room = _CARRIED
        for asked, request in self.pending.values():
            whole = Raw(t.encode(request))
            room -= len(whole)
            if room < 0:
                break
            asked.request = whole
        return {key: asked for key, (asked, _) in self.pending.items()}

    def result(self, request_state: str) -> t.InputRequiredResult:
        """The answer that ends this round (MRTR-2)."""
        return t.InputRequiredResult(
            input_requests={key: request for key, (_, request) in self.pending.items()}, request_state=request_state
        )


def check_key(key: str, used: set[str]) -> None:
    """MRTR-3: the keys of a call differ."""
    if key in used:
        raise ValueError(f"The key {key!r} names two questions of the same call")
    used.add(key)


def dump_state(state: State) -> bytes:
    return _encode_state(state)


def checked_answer(key: str, kind: str, response: Raw) -> Raw:
    """The answer to a question, if it is one; -32602 otherwise."""
    try:
        decoder_of(_RESULTS[kind]).decode(response)
    except (msgspec.DecodeError, RecursionError) as error:
        text = str(error) if isinstance(error, msgspec.ValidationError) else "it cannot be read"
        raise ProtocolError(INVALID_PARAMS, f"The answer to {key[:100]!r} is not a {kind} result: {text}") from None
    # A view into the request would keep the whole frame alive inside the next state.
    return response.copy()


# --- The client's half -----------------------------------------------------------------------------------------------

# The pause before the next round, where the server asks no question. It doubles each round.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class _ResultKind(Struct):
    """The kind of a result. One that does not name its kind is complete (RPC-8)."""

    result_type: str = msgspec.field(default="complete", name="resultType")


_decode_kind = msgspec.json.Decoder(_ResultKind).decode


class Round(NamedTuple):
    """The work before a request is sent again: answer its questions, or pause where there are none."""

    result: t.InputRequiredResult
    questions: Mapping[str, t.InputRequest]
    pause: float
    """Seconds, for a round without questions."""


def result_kind(raw: Raw) -> str:
    """Return the kind of a result. Raise `msgspec.DecodeError` for what is no object."""
    return _decode_kind(raw).result_type


def check_kind(method: str, raw: Raw) -> str:
    """Return the kind of a result: `complete` or `input_required`. Raise `InvalidResponse` for any other."""
    try:
        kind = result_kind(raw)
    except msgspec.DecodeError:
        kind = ""
    row = methods(MODERN).get(method)
    # MRTR-1: the protocol says which of its methods have rounds. An extension says it for its own.
    if kind == "complete" or (kind == "input_required" and (row is None or row.rounds)):
        return kind
    # RPC-7: a response of an unknown kind, or of a kind that this method does not have, is invalid.
    raise InvalidResponse(f"The server answered {method} with the result type {kind[:50]!r}")


def read_round(method: str, raw: Raw, number: int) -> Round:
    """Return what to do after a result that asks for more. `number` counts the rounds before it."""
    check_kind(method, raw)
    if number == MAX_ROUNDS:
        raise InvalidResponse(f"{method} asked more than {MAX_ROUNDS} rounds of questions")
    try:
        result = t.decode(t.InputRequiredResult, raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidResponse(f"The server's questions in {method} cannot be read: {error}") from None
    if not result.input_requests and result.request_state is UNSET:
        raise InvalidResponse(f"The server wants more for {method} and does not say what")  # MRTR-2
    pause = min(_FIRST_PAUSE * 2.0 ** min(number, 30), _LONGEST_PAUSE)
    return Round(result, result.input_requests or {}, pause)


def retry_params(params: t.RoundRequestParams, result: t.InputRequiredResult, answers: Mapping[str, Any]) -> Any:
    """The same request once more, with the answers, and with the state byte for byte (MRTR-13, MRTR-14)."""
    return replace_members(
        params, input_responses=dict(answers) if answers else UNSET, request_state=result.request_state
    )
