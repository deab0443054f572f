"""The policies for one component and one kind of caller, compiled into the checks of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import CallRefused, ProtocolError, ToolError, counted
from toolwire.protocol.free_members import find_result_type
from toolwire.protocol.jsonrpc import bound_error
from toolwire.redaction import Redaction, compile_masks
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget
from toolwire.server.components import Component, ToolBase, failed_result
from toolwire.server.context import context_of
from toolwire.server.lowlevel import LowLevel
from toolwire.server.middleware import Operation
from toolwire.server.policy.concurrency import Gates, Placed, compile_slots
from toolwire.server.policy.held_threads import HeldThreads
from toolwire.server.policy.masking import LARGE, encoded_result, mask_large, masked, masked_error, masked_result
from toolwire.server.policy.policy import Call as JudgedCall
from toolwire.server.policy.policy import Policy, rules_of
from toolwire.server.policy.rates import Counted, Counters, compile_rates
from toolwire.server.policy.rules import Rule, check, passes
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.server.replay_state import asked, limit_key

_COMPLETE: Final = "completion/complete"
#: What holds the state of a task, and the members that its tool fills.
_STATES: Final = (t.TaskFields, t.Task, t.CreateTaskResult)
_ANSWERS: Final = ("result", "error", "inputRequests")
#: The ids, times and message of a state may have so many bytes.
_STATE_BYTES: Final = 1024
Handler: TypeAlias = Coroutine[Any, Any, Any]
#: The shapes before a policy, from the outside in: its arguments are those that come out of them.
Through: TypeAlias = tuple[Component, ...]


class Placement(NamedTuple):
    """A policy, and the name of the server or component that it is for."""

    place: str
    policy: Policy
    counts: bool = True
    """Whether rates, quotas, slots and time hold; the rest always does."""
    asks: bool = True
    """Whether somebody has to approve."""
    through: Through = ()
    subject: str = ""
    """What a refusal names instead of the component; "" for a policy of one component."""


class Plan:
    """The checks of a call, in this order: rates and quotas, rules, approval, a slot; then its answer is checked."""

    def __init__(
        self,
        placements: Sequence[Placement],
        counters: Callable[[], Counters],
        gates: Gates,
        shared_counters: SharedCounters,
        lowlevel: LowLevel,
    ) -> None:
        # The policies are kept alive, because plans are found by the ids of their policies, which must stay in use.
        self._policies = policies = [each.policy for each in placements]
        counting = [each for each in placements if each.counts]
        counted = [
            each
            for placed in counting
            for each in (
                *compile_rates("rate", placed.policy.rate, placed.place, placed.subject),
                *compile_rates("quota", placed.policy.quota, placed.place, placed.subject),
            )
        ]
        # Two policies of one place may have the same rate or the same slots, which count once.
        counted = list(dict.fromkeys(counted))
        self._counted: list[Counted] = [each for each in counted if not each.shared]
        self._counters = counters() if self._counted else None
        self._shared = [each for each in counted if each.shared]
        self._shared_counters = shared_counters
        self._gates = gates
        self._lowlevel = lowlevel
        self._slots: list[Placed] = list(
            dict.fromkeys(
                slots
                for placed in counting
                for slots in compile_slots(placed.policy.concurrency, placed.place, placed.subject)
            )
        )
        self._rules: dict[Through, dict[str, list[Rule]]] = {}
        for each in placements:
            for argument, given in each.policy.rules.items():
                self._rules.setdefault(each.through, {}).setdefault(argument, []).extend(rules_of(given))
        self._approvers = [each for each in placements if each.asks and each.policy.approve is not None]
        self._timeout = min((each.policy.timeout for each in counting if each.policy.timeout is not None), default=None)
        self._result = min((policy.result for policy in policies if policy.result is not None), default=None)
        self.redaction: Redaction = Redaction(
            [
                name
                for each in placements
                for secret in each.policy.redact
                for name in _public_names(secret, each.through)
            ],
            [pattern for policy in policies for pattern in policy.mask],
        )
        self._holds_while_running = bool(
            self._slots or self._timeout is not None or self._result is not None or self.redaction.patterns
        )

    @property
    def result_limit(self) -> int | None:
        """The bytes that an answer may have; None for any number."""
        return self._result

    def covers(self, policy: Policy) -> bool:
        """Return whether these policies mask and limit answers as much as another one does."""
        is_within = policy.result is None or (self._result is not None and self._result <= policy.result)
        return is_within and set(compile_masks(policy.mask)) <= set(self.redaction.patterns)

    async def run(self, call: Call, target: CallTarget, call_next: Operation) -> Any:
        """Run a request within these policies, outside of all middleware."""
        self._mask(call)
        try:
            await self._admit(call, target)
            return await self._leave(call, await call_next(call), target, target.method)
        except (ProtocolError, ToolError) as error:
            raise self._leaving_error(error, target.name) from None

    async def run_late(self, call: Call, target: CallTarget, operation: Operation) -> Any:
        """Let out what belongs to a call that was let in before."""
        self._mask(call)
        try:
            return await self._leave(call, await operation(call), target, call.method)
        except (ProtocolError, ToolError) as error:
            raise self._leaving_error(error, target.name) from None

    async def run_inside(self, call: Call, target: CallTarget, use: Operation) -> Any:
        """Use a component for a running handler. Only the timeouts of policies limit that."""
        self._mask(call)
        try:
            await self._admit(call, target)
            using = _in_time(use, call, self._timeout, target.name)
            result = await self._within(call, target, limit_key(call), using)
            return await self._leave(call, result, target, target.method)
        except (ProtocolError, ToolError) as error:
            raise self._leaving_error(error, target.name) from None

    def _mask(self, call: Call) -> None:
        if self.redaction.patterns:
            outer, own = call.mask, partial(masked, self.redaction)
            # A call inside another call keeps the masks of the outer one.
            call.mask = own if outer is None else lambda value, type_=None: own(outer(value, type_), type_)

    async def _admit(self, call: Call, target: CallTarget) -> None:
        caller = limit_key(call)
        judges = bool(self._rules or self._approvers)
        if (self._shared or self._counters is not None) and not await self._goes_on(call, target, judges):
            if self._shared:
                await self._count_everywhere(caller, target.name)
            elif self._counters is not None:
                self._counters.take(self._counted, caller, target.name)
        if judges:
            arguments = await self._judged(call, target)
            if target.method != _COMPLETE:  # A partial word is no value. The suggestions are checked instead.
                known = () if target.found is None else target.found.component.argument_names
                for through, rules in self._rules.items():
                    _check_through(through, rules, arguments, target.name, known)
            if self._approvers:
                # Do not ask anybody to approve a call for which there is no slot.
                for slots in self._slots:
                    self._gates.check(slots, caller, target.name)
            for placement in self._approvers:
                seen = _arguments_after(placement.through, arguments, target.method)
                judged = JudgedCall(target.method, target.name, seen, call.principal)
                await _approval(placement.policy, call, judged)
        self._guard(call, target, caller)

    def hold(self, call: Call, target: CallTarget) -> None:
        """Hold a handler to its slots and its time, and mask what it says, as `run` does it."""
        self._mask(call)
        self._guard(call, target, limit_key(call))

    def _guard(self, call: Call, target: CallTarget, caller: str) -> None:
        if self._holds_while_running:
            call.guard = lambda seconds, coroutine: self._running(call, target, caller, seconds, coroutine)
        if self._result is not None or self.redaction.patterns:
            call.release = lambda outcome: self._released(call, target, outcome)

    def _released(self, call: Call, target: CallTarget, outcome: Any) -> Any:
        """Return the outcome of a task as `run` lets out that of a call."""
        if isinstance(outcome, ProtocolError):
            return self._leaving_error(outcome, target.name)
        try:
            return self.leaving(call, outcome, target, target.method)
        except CallRefused as error:
            raise self._leaving_error(error, target.name) from None

    async def _goes_on(self, call: Call, target: CallTarget, judges: bool) -> bool:
        """Return whether a request brings the answers to an earlier call, which was counted when it began.

        MRTR-7: the state is marked as used here, so that it serves one request.
        """
        request = call.request
        if not request.modern or not request.row.rounds or request.params.request_state is UNSET:
            return False
        if target.found is not None and target.found.component.owns_state(call):
            return False  # Nobody marks such a state as used, so that every request with it counts.
        if judges:
            # Judge the arguments first, because a state belongs to the judged arguments of its request.
            await self._judged(call, target)
        if call.asking is None:
            await call.open_asking()
        if asked(call):
            raise asyncio.CancelledError  # Answers are missing: nothing runs, and the client is asked for the rest.
        return True

    async def _judged(self, call: Call, target: CallTarget) -> dict[str, Any]:
        """Return the arguments as the handler will get them, because JSON in a string may hide a forbidden value."""
        found = target.found
        if target.method == _COMPLETE:
            return target.arguments
        if found is None and target.method == "tools/call" and self._lowlevel.active:
            # The tool is kept, so that the judged tool is the one that runs, and the list handler runs once.
            found = target.found = await self._lowlevel.find(call.params.name, call)
        sent = target.arguments
        meant: dict[str, Any] = sent if found is None else found.component.meant(sent)
        if target.method == "tools/call" and call.params.arguments is not UNSET:
            # The handler gets exactly the arguments that were judged. Of a name that is there twice, that is the last.
            exact = meant if meant != sent else _members(call.params.arguments)
            call.params.arguments = Raw(msgspec.json.encode(exact))
        return meant

    async def _count_everywhere(self, caller: str, name: str) -> None:
        taken = await self._shared_counters.take(self._shared, caller, name)
        if self._counters is not None:
            try:
                self._counters.take(self._counted, caller, name)
            except CallRefused:
                await self._shared_counters.give_back(taken)
                raise

    def _running(
        self, call: Call, target: CallTarget, caller: str, seconds: float, coroutine: Handler
    ) -> tuple[float, Handler]:
        """Return the time that the handler has, and the handler within its slots."""
        if call.task_run is not None:
            call.task_run.policy_timeout = self._timeout
        shorter = seconds if self._timeout is None else min(seconds, self._timeout)
        return shorter, self._within(call, target, caller, coroutine)

    async def _within(self, call: Call, target: CallTarget, caller: str, coroutine: Handler) -> Any:
        with ExitStack() as held:
            try:
                for slots in self._slots:
                    held.callback(await self._gates.enter(slots, caller, target.name, call.deadline))
            except BaseException:
                coroutine.close()
                raise
            if self._slots:
                workers = call.workers = HeldThreads(call.workers or call.work.workers)
                held.callback(workers.when_ended, held.pop_all().close)
            return await coroutine

    async def _leave(self, call: Call, result: Any, target: CallTarget, method: str) -> Any:
        """Return what `leaving` returns, and let other calls go on while a large result is masked."""
        if not self.redaction.patterns:
            return self.leaving(call, result, target, method)
        result = self._suggested(result, target) if self._rules else result
        encoded = encoded_result(result)
        mask = partial(self._masked, call, result, target, method, encoded)
        result = mask() if len(encoded) <= LARGE else await mask_large(mask)
        return self._sized(result, target, method)

    def leaving(self, call: Call, result: Any, target: CallTarget, method: str) -> Any:
        """Check and mask a result before it leaves. Raise `CallRefused` if it is too large."""
        if self._rules:
            result = self._suggested(result, target)
        if self.redaction.patterns:
            result = self._masked(call, result, target, method)
        return result if self._result is None else self._sized(result, target, method)

    def _masked(self, call: Call, result: Any, target: CallTarget, method: str, encoded: bytes | None = None) -> Any:
        find_schema = partial(find_output_schema, call.revision, target)
        return masked_result(self.redaction, result, method, find_schema, encoded)

    def _sized(self, result: Any, target: CallTarget, method: str) -> Any:
        if self._result is not None:
            _check_size(result, self._result, target.name, method)
        return result

    def _suggested(self, result: Any, target: CallTarget) -> Any:
        """Return a result without the suggestions that the rules of its argument do not allow."""
        if isinstance(result, t.CompleteResult):
            for through, rules in self._rules.items():
                (name,) = _arguments_after(through, {target.params.argument.name: ""}, _COMPLETE) or ("",)
                result = _allowed(result, rules.get(name, ()))
        return result

    def _leaving_error(self, error: ProtocolError | ToolError, name: str) -> Exception:
        """Return an error with a text and data that the client may see, of a size that a result may have."""
        clean = masked_error(self.redaction, error)
        if self._result is None or isinstance(clean, CallRefused):
            return clean
        if isinstance(clean, ProtocolError):
            return bound_error(clean, self._result)
        try:
            _check_size(failed_result(clean), self._result, name)
        except CallRefused as refusal:
            return refusal
        return clean


_members = msgspec.json.Decoder(dict[str, Raw]).decode


def find_output_schema(revision: str, target: CallTarget) -> Any:
    """Return the output schema of a called tool in a revision; None without one."""
    tool = None if target.found is None else target.found.component
    return (
        None
        if not isinstance(tool, ToolBase) or tool.output_schema is None
        else tool.definition(revision).output_schema
    )


def _arguments_after(through: Through, arguments: dict[str, Any], method: str) -> dict[str, Any]:
    """Return the arguments of a call as a policy behind shapes sees them."""
    for each in through:
        if method == _COMPLETE:
            named = {each.to_original_name(name): value for name, value in arguments.items()}
            arguments = {name: value for name, value in named.items() if name is not None}
        else:
            arguments = each.to_original(arguments)
    return arguments


def _public_names(name: str, through: Through) -> set[str]:
    """Return the names that a secret argument may have in a record: that at the policy, and that of callers."""
    names: set[str] = {name}
    public: str | None = name
    for each in reversed(through):
        public = None if public is None else each.public_argument(public)
    return names if public is None else {*names, public}


def _check_through(
    through: Through, rules: dict[str, list[Rule]], arguments: dict[str, Any], name: str, known: Collection[str]
) -> None:
    """Check arguments by the rules of policies. One behind a shape must not name what the shape hides."""
    if not through:
        check(rules, arguments, name, known)
        return
    try:
        inner = () if through[-1].original is None else through[-1].original.argument_names
        check(rules, _arguments_after(through, arguments, ""), name, inner)
    except CallRefused as error:
        raise CallRefused(f"A rule of the server behind {name} refuses these arguments", reason="rule") from error


async def _in_time(read: Operation, call: Call, seconds: float | None, name: str) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await read(call)
    except TimeoutError:
        if not limit.expired():
            raise
        raise ToolError(f"{name} did not end within {counted(seconds or 0, 'second')}") from None


def _allowed(result: t.CompleteResult, rules: Sequence[Rule]) -> t.CompleteResult:
    """Return the suggestions that the rules would let through as values."""
    suggested = result.completion.values
    kept = [each for each in suggested if any(passes(rules, value) for value in _readings(each))]
    if len(kept) == len(suggested):
        return result
    return t.CompleteResult(completion=t.Completion(values=kept, has_more=result.completion.has_more), meta=result.meta)


def _readings(text: str) -> list[Any]:
    """Return the values that a text may be read as: itself, or the number or truth value that it spells."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return [text]
    return [text, value] if isinstance(value, int | float) else [text]


async def _approval(policy: Policy, call: Call, judged: JudgedCall) -> None:
    """Ask for approval; refuse the call for every answer but True."""
    assert policy.approve is not None
    try:
        async with asyncio.timeout(policy.approval_timeout) as limit:
            answer = await policy.approve(context_of(call), judged)
    except TimeoutError:
        if not limit.expired():
            raise
        text = f"Nobody approved the call of {judged.name} within {counted(policy.approval_timeout, 'second')}."
        raise CallRefused(text, reason="approval") from None
    if answer is not True:
        why = f": {answer}" if isinstance(answer, str) and answer else "."
        raise CallRefused(f"The call of {judged.name} was not approved{why}", reason="approval")


def _check_size(result: Any, limit: int, name: str, method: str = "") -> None:
    size = len(result) if isinstance(result, Raw) else len(t.encode(result)) if isinstance(result, t.Wire | dict) else 0
    if size > limit:
        size = _measure_answer(result, method, size)
    if size > limit:
        raise CallRefused(f"The answer of {name} has {size} bytes and may have {limit}. Ask for less.", reason="result")


def _measure_answer(result: Any, method: str, size: int) -> int:
    """Return the bytes of a result without the state of a task.

    A client that does not get that state cannot cancel what runs, and calls again.
    """
    type_ = type(result)
    if not isinstance(result, t.Wire) or method == "tasks/result":
        type_ = find_result_type(method, msgspec.json.decode(t.encode(result)))
    if not issubclass(type_, _STATES):
        return size
    members: dict[str, Raw] = _members(t.encode(result))
    answers = sum(len(members[name]) for name in _ANSWERS if name in members)
    return answers if size - answers <= _STATE_BYTES else size
