"""The middleware that holds calls to the policies of a server, its mounted servers and their components."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from toolwire.redaction import Redaction
from toolwire.server.context import Context
from toolwire.server.middleware import Next
from toolwire.server.policy.concurrency import Gates
from toolwire.server.policy.plan import Placement, Plan
from toolwire.server.policy.rates import Counters
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.server.subject import Subject, subject_of

_MAX_PLANS: Final = 4096


class Counting(NamedTuple):
    """Who counts calls: one for those of this process, one for those of all processes together."""

    own: Callable[[], Counters]
    shared: SharedCounters


class Enforcer:
    """One for a server; installed when there is a first policy to enforce."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._counting = Counting(cache(_memory_counters), SharedCounters(server.stores))
        self.gates: Gates = Gates()

    async def __call__(self, ctx: Context, call_next: Next) -> Any:
        subject = subject_of(ctx)
        if subject is None:
            return await call_next(ctx)
        plan = self._plan(ctx, subject)
        return await (call_next(ctx) if plan is None else plan.run(ctx, subject, call_next))

    def count_with(self, counting: Counting) -> Counting:
        """Count calls with others from now on; returns those that counted them until now."""
        before, self._counting = self._counting, counting
        self._plans.clear()
        return before

    def redaction(self, ctx: Context, subject: Subject) -> Redaction | None:
        """What records of a call must not show; None where no policy says anything."""
        plan = self._plan(ctx, subject)
        return None if plan is None else plan.redaction

    def _plan(self, ctx: Context, subject: Subject) -> Plan | None:
        placements = self._placements(ctx.principal, subject)
        if not placements:
            return None
        key = tuple((place, id(policy)) for place, policy in placements)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                # A plan can be made again at any time: what was counted is kept elsewhere.
                self._plans.clear()
            plan = self._plans[key] = Plan(placements, self._counting.own, self.gates, self._counting.shared)
        return plan

    def _placements(self, principal: Any, subject: Subject) -> list[Placement]:
        """From the outside in: this server, the mounted ones on the way to the component, the component."""
        server, found = self._server, subject.found
        placements = [] if server.policy is None else [Placement(server.name, server.policy.for_caller(principal))]
        if found is None:
            return placements
        component, owner = found.component, found.owner
        placements.extend(
            Placement(f"{server.name}/{mounted.name}", mounted.policy.for_caller(principal))
            for mounted in (mount.catalog.owner for mount in found.way)
            if mounted.policy is not None
        )
        if component.policy is not None:
            place = f"{server.name}/{owner.name}/{component.kind}/{component.key}"
            placements.append(Placement(place, component.policy.for_caller(principal)))
        return placements


def _memory_counters() -> Counters:
    # Imported here because only rates and quotas need the library behind it.
    from toolwire.server.policy.counter_memory import CounterMemory

    return Counters(CounterMemory())
