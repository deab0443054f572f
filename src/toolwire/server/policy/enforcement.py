"""The middleware that holds calls to the policies of a server, its mounted servers and their components."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.free_members import rewrite_members
from toolwire.redaction import Redaction, compile_masks
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import Component, ToolBase
from toolwire.server.judgements import Judgement, MaskPattern
from toolwire.server.lowlevel import LowLevel
from toolwire.server.middleware import Operation
from toolwire.server.policy.concurrency import Gates
from toolwire.server.policy.masking import masked_error, masked_result
from toolwire.server.policy.plan import Placement, Plan, Through, find_output_schema
from toolwire.server.policy.policy import Policy
from toolwire.server.policy.rates import Counters
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.server.settings import Settings
from toolwire.stores import Stores

if TYPE_CHECKING:
    from toolwire.protocol.tasks import Record

_MAX_PLANS: Final = 4096


class Counting(NamedTuple):
    """The counters of calls: one for this process, one for all processes together."""

    own: Callable[[], Counters]
    shared: SharedCounters


class EnforcedKernel(Protocol):
    """The kernel, as far as policies need it."""

    catalog: Catalog

    @property
    def lowlevel(self) -> LowLevel: ...


class EnforcedServer(Protocol):
    """The server, as far as policies need it."""

    name: str
    stores: Stores

    @property
    def settings(self) -> Settings: ...

    @property
    def kernel(self) -> EnforcedKernel: ...


#: What the refusals of policies name that hold for more than one component.
_THIS_SERVER: Final = "this server"
_MOUNTED: Final = "the server behind {name}"


class _Place(NamedTuple):
    """A policy of a call, with its counter key and the subject of its refusals."""

    place: str
    policy: Policy
    through: Through
    subject: str = ""


class Enforcer:
    """The observer that applies policies. A server gets it with its first policy."""

    def __init__(self, server: EnforcedServer) -> None:
        self._server = server
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._counting = Counting(cache(_memory_counters), SharedCounters(lambda: server.stores))
        self.gates: Gates = Gates()

    async def __call__(self, call: Call, call_next: Operation) -> Any:
        target = target_of(call)
        if target is None:
            return await call_next(call)
        plan = self._plan(call.settings, call.principal, target)
        return await (call_next(call) if plan is None else plan.run(call, target, call_next))

    def hold(self, call: Call, kept: Policy | None = None) -> None:
        """Hold the handler of a call that was let in before: nothing is counted, judged or approved once more.

        `kept` holds beside the policies of now.
        """
        target = target_of(call)
        plan = None if target is None else self._late_plan(call.principal, target, kept)
        if target is not None and plan is not None:
            plan.hold(call, target)

    def judge(self, call: Call, found: Found[Any]) -> tuple[tuple[MaskPattern, ...], int | None]:
        """Return the masks and the result limit that hold for a component in a call."""
        component = found.component
        method = "tools/call" if isinstance(component, ToolBase) else ""
        plan = self._plan(self._settings_of(call), call.principal, CallTarget(method, component.key, None, found))
        if plan is None:
            return (), None
        patterns = dict.fromkeys(map(pattern_of, plan.redaction.patterns))
        return tuple(patterns), plan.result_limit

    async def about_accepted(self, call: Call, target: CallTarget, operation: Operation, kept: Policy | None) -> Any:
        """Answer a request about a call that was accepted before, which is the target.

        That call was judged and counted then. Its outcome, its questions and its status leave here. `kept` holds beside
        the policies of now.
        """
        plan = self._late_plan(call.principal, target, kept)
        return await (operation(call) if plan is None else plan.run_late(call, target, operation))

    def mask_task(self, call: Call, target: CallTarget, params: Any, kept: Policy | None) -> Any:
        """Mask the state of an upstream's task for a notification or a list.

        Raise `CallRefused` where it is larger than the answer to a request about the task may be.
        """
        plan = self._late_plan(call.principal, target, kept)
        return params if plan is None else plan.leaving(call, params, target, "notifications/tasks")

    def _late_plan(self, principal: Principal | None, target: CallTarget, kept: Policy | None) -> Plan | None:
        """Return the plan of policies that hold now and of one that was kept with a call."""
        plan = self._plan(self._server.settings, principal, target)
        if kept is None or (plan is not None and plan.covers(kept)):
            return plan
        return self._plan(self._server.settings, principal, target, kept=kept)

    def mask_text(self, text: str) -> str:
        """Mask a text that belongs to no component, by the policies of the server."""
        plan = self._plan(self._server.settings, None, CallTarget("", "", None, None))
        return text if plan is None else plan.redaction.text(text)

    def mask_kept(self, call: Call, tools: Iterable[Found[Any]], result: Any, kept: Policy | None) -> Any:
        """Mask the read of a kept result as a result of these tools, and by the policy that was kept with it."""
        targets = (CallTarget("tools/call", each.component.key, None, each) for each in tools)
        found = (self.redaction(call, target) for target in targets)
        patterns = dict.fromkeys(pattern for each in found if each is not None for pattern in each.patterns)
        patterns |= dict.fromkeys(() if kept is None else compile_masks(kept.mask))
        if not patterns:
            return result
        return masked_result(Redaction(patterns=patterns), result, "resources/read", lambda: None)

    def mask_record(self, call: Call, target: CallTarget, record: Record, judgement: Judgement | None) -> Record:
        """Mask what a caller reads of a task by masks of now that did not hold when its call was accepted.

        Every mask that exists holds for a task of a version that kept no judgements.
        """
        # Not the options of the call: it may be that of the task, or a listen stream, and have begun long ago.
        plan = self._late_plan(call.principal, target, None)
        patterns = dict.fromkeys(() if plan is None else plan.redaction.patterns)
        if judgement is None:
            patterns |= dict.fromkeys(masks_of_all(self._server.kernel.catalog) or ())
        held = frozenset(() if judgement is None else judgement.masks)
        added = [pattern for pattern in patterns if pattern_of(pattern) not in held]
        if not added:
            return record
        schema = partial(find_output_schema, call.revision, target)
        return _masked_record(Redaction(patterns=added), record, schema)

    async def run_inside(self, judged: CallTarget | None, call: Call, target: CallTarget, use: Operation) -> Any:
        """Use a component in a call, or in the one around it, of the target `judged`, under its own policies.

        Policies that hold for `judged` do not count the use again. They do not ask for another slot, either, because
        the slot may be held already. All other rules apply as for any request.
        """
        settings = self._settings_of(call)
        passed = frozenset() if judged is None else frozenset(place for place, *_ in self._places(settings, judged))
        plan = self._plan(settings, call.principal, target, passed)
        return await (use(call) if plan is None else plan.run_inside(call, target, use))

    def count_with(self, counting: Counting) -> Counting:
        """Use other counters from now on; return the ones that were used before."""
        before, self._counting = self._counting, counting
        self._plans.clear()
        return before

    def redaction(self, call: Call, target: CallTarget) -> Redaction | None:
        """Return what records of a call must not show; None where no policy says anything."""
        plan = self._plan(self._settings_of(call), call.principal, target)
        return None if plan is None else plan.redaction

    def _settings_of(self, call: Call) -> Settings:
        """Return the options that a call began with; those of now for a call of another server."""
        own: object = self._server.kernel
        return call.settings if call.host is own else self._server.settings

    def _plan(
        self,
        settings: Settings,
        principal: Principal | None,
        target: CallTarget,
        passed: frozenset[str] = frozenset(),
        kept: Policy | None = None,
    ) -> Plan | None:
        placements = self._placements(settings, principal, target, passed)
        if kept is not None:
            placements.append(Placement("kept", kept))
        if not placements:
            return None
        key = tuple((each.place, id(each.policy), each.counts, each.asks, each.through) for each in placements)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                # A plan can be built again at any time: it holds no counts. A plain dict: each call looks here.
                self._plans.clear()
            plan = self._plans[key] = Plan(
                placements, self._counting.own, self.gates, self._counting.shared, self._server.kernel.lowlevel
            )
        return plan

    def _placements(
        self, settings: Settings, principal: Principal | None, target: CallTarget, passed: frozenset[str]
    ) -> list[Placement]:
        placements: list[Placement] = []
        # The policy of a component is about using it. Suggestions for its arguments do not count as use, and need no
        # approval.
        suggested: set[int] = set()
        if target.method == "completion/complete" and target.found is not None:
            component: Component | None = target.found.component
            while component is not None:
                suggested.add(id(component.policy))
                component = component.original
        for place, policy, through, subject in self._places(settings, target):
            asks = id(policy) not in suggested
            counts = place not in passed and asks
            placements.append(Placement(place, policy, counts, asks, through, subject))
            added = policy.for_caller(principal)
            if added is not None:
                # The added policy has its own place. If both policies have the same rate, a call counts once in each.
                placements.append(Placement(f"{place}/by_principal", added, counts, asks, through, subject))
        return placements

    def _places(self, settings: Settings, target: CallTarget) -> list[_Place]:
        """Return the policies from the outside in: of this server, of the mounted ones on the way, of the component.

        Each comes with the shapes before it. A policy sees the arguments that come out of these.
        """
        server, found = self._server, target.found
        places = [_Place(server.name, each, (), _THIS_SERVER) for each in settings.policies if each is not None]
        if found is None:
            return places
        component, owner = found.component, found.owner
        through: Through = ()
        for mount in found.way:
            mounted = mount.catalog.owner
            if mount.policy is not None:
                places.append(_Place(f"{server.name}/{mounted.name}/shape", mount.policy, through, _MOUNTED))
            if component.shaped_by is mount:
                if component.policy is not None:
                    key = f"{server.name}/{owner.name}/{component.kind}/{component.key}/shape"
                    places.append(_Place(key, component.policy, through))
                through, component = (*through, component), component.original
            if mounted.policy is not None:
                places.append(_Place(f"{server.name}/{mounted.name}", mounted.policy, through, _MOUNTED))
        if component.policy is not None:
            key = f"{server.name}/{owner.name}/{component.kind}/{component.key}"
            places.append(_Place(key, component.policy, through))
        return places


def _masked_record(redaction: Redaction, record: Record, output_schema: Callable[[], Any]) -> Record:
    """Return a record with masked message, questions, result and error."""
    requests = {name: {"method": each.kind, "params": each.params} for name, each in record.questions.items()}
    plain = msgspec.json.decode(msgspec.json.encode({"inputRequests": requests}))
    clean = rewrite_members(t.DetailedTask, plain, redaction.content)["inputRequests"]
    questions = {
        name: each if each.params is UNSET else replace(each, params=Raw(msgspec.json.encode(clean[name]["params"])))
        for name, each in record.questions.items()
    }
    result, error = record.result, record.error
    if result is not UNSET:
        result = masked_result(redaction, result, "tools/call", output_schema)
    if error is not UNSET:
        shown = masked_error(redaction, ProtocolError(error.code, error.message, error.data))
        assert isinstance(shown, ProtocolError)
        error = t.Error(code=error.code, message=shown.message, data=shown.data)
    message = redaction.text(record.message)
    return replace(record, message=message, questions=questions, result=result, error=error)


def pattern_of(mask: re.Pattern[str]) -> MaskPattern:
    """Return a mask in the form in which it is kept."""
    return MaskPattern(mask.pattern, mask.flags)


def kept_policy(judgement: Judgement) -> Policy | None:
    """Return the policy that was kept with a call; None where no policy masks or limits its answers."""
    if not judgement.masks and judgement.result is None:
        return None
    return _policy_of(judgement.masks, judgement.result)


# A plan belongs to the object of a policy, so that equal judgements have one.
@lru_cache(maxsize=1024)
def _policy_of(masks: tuple[MaskPattern, ...], result: int | None) -> Policy:
    return Policy(mask=[re.compile(each.pattern, each.flags) for each in masks], result=result)


def masks_of_all(catalog: Catalog) -> tuple[re.Pattern[str], ...] | None:
    """Return the masks of all components and mounted servers; None where they depend on callers."""
    policies: dict[int, Policy] = {}
    for each in (catalog, *catalog.family()):
        given = [mount.policy for mount in tuple(each.mounts)]
        if each is not catalog:
            given.append(each.owner.policy)
        # A shape may hide a component of a mounted server, so each catalogue is asked by itself.
        for found in (*each.each(), *each.each_elsewhere()):
            component: Component | None = found.component
            while component is not None:
                given.append(component.policy)
                component = component.original
        policies.update((id(policy), policy) for policy in given if policy is not None)
    if any(each.by_principal is not None for each in policies.values()):
        return None
    return Redaction(patterns=dict.fromkeys(pattern for each in policies.values() for pattern in each.mask)).patterns


def _memory_counters() -> Counters:
    # Imported here because only rates and quotas need the library behind it.
    from toolwire.server.policy.rate_counters import CounterMemory

    return Counters(CounterMemory())
