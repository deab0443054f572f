"""`Policy`: the rules of a server, of one of its components, or of a caller."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from toolwire.auth.principal import Principal
from toolwire.loops import plain_callback
from toolwire.protocol.errors import ServerError
from toolwire.redaction import check_names, compile_masks
from toolwire.server.context import Context
from toolwire.server.policy.concurrency import Concurrency, compile_slots
from toolwire.server.policy.rates import Rates, compile_rates
from toolwire.server.policy.rules import Rule
from toolwire.server.policy.scopes import with_implied
from toolwire.util.numbers import BYTES, SECONDS, check_fields, check_number


class Call(Struct, frozen=True):
    """A call that somebody has to approve."""

    method: str
    name: str
    arguments: dict[str, Any]
    principal: Any


#: True lets the call through; False, or a text that says why not, refuses it.
Approve: TypeAlias = Callable[[Context, Call], Awaitable[bool | str]]


class Policy(Struct, frozen=True, kw_only=True, eq=False):
    """The things that callers may do. Everything that is left out is allowed.

    `Server(policy=)` holds for every call of a tool, read of a resource and use of a prompt together;
    `@server.tool(policy=)` for that component alone. Where there are several, all hold: those of every server on the
    way to a component, that of the component, and what `by_principal` adds to each of them.
    """

    rate: Rates = ()
    """Calls in a moving window: `"60/minute"`, `["5/second", "1000/hour"]`, `Rate("500/minute", per="everyone")`."""
    quota: Rates = ()
    """Calls in a fixed window, which starts with the first of them: `"10000/day"`."""
    concurrency: Concurrency = ()
    """Calls that run at once, as a number or as `Slots(4, queue=16, wait=10)`."""
    timeout: float | None = None
    """Seconds a call may run; the time it waits for a slot or for approval does not count."""
    rules: Mapping[str, Rule | Sequence[Rule]] = {}
    """For an argument by its name, what it may be; see `toolwire.server.policy.rules`.

    The arguments of a resource are its `uri` and the variables of its template.
    """
    result: int | None = None
    """Bytes of an answer."""
    redact: Sequence[str] = ()
    """Names of arguments that no record shows, beside those that are secret anyway, such as `password`."""
    mask: Sequence[str | re.Pattern[str]] = ()
    """Patterns that are taken out of everything that is answered, reported or recorded."""
    approve: Approve | None = None
    """`async (ctx, call) -> bool | str`, asked before a call runs. It may wait for somebody, and may ask the client."""
    approval_timeout: float = 300.0
    """Seconds after which a call that nobody approved is refused."""
    by_principal: Callable[[Any], Policy | None] | None = None
    """A function of the principal that returns a policy to hold beside this one, or None for nothing more.

    It adds and never takes away. A rate in this policy holds for everybody: where some callers may do more than others,
    leave the rate out here and have `by_principal` return one for each kind of caller. The `implies` and `by_principal`
    of the policy that it returns are not looked at.
    """
    implies: Mapping[str, Iterable[str]] = {}
    """Scopes that bring others with them: `{"admin": ["read", "write"]}`."""

    def __post_init__(self) -> None:
        for scope, implied in self.implies.items():
            if isinstance(implied, str) or not all(isinstance(each, str) for each in (scope, *implied)):
                raise ServerError(f"implies= maps a scope to a list of scopes; {scope!r} has {implied!r}")
        check_fields("Policy", {"timeout": SECONDS, "result": BYTES}, self, may_be_none=True)
        check_number("Policy", "approval_timeout", self.approval_timeout, SECONDS)
        for argument, given in self.rules.items():
            if not all(callable(rule) for rule in rules_of(given)):
                raise ServerError(f"rules= has functions of one value; {argument!r} has {given!r}")
            for rule in rules_of(given):
                plain_callback(rule, f"A rule for {argument!r}")
        for option in ("by_principal", "approve"):
            function = getattr(self, option)
            if function is not None and not callable(function):
                raise ServerError(f"{option}= takes a function, not {function!r:.100}")
        if self.by_principal is not None:
            plain_callback(self.by_principal, "by_principal=")
        for option in ("redact", "mask"):
            # An iterator would be empty after this check.
            if not isinstance(getattr(self, option), Collection):
                raise ServerError(f"{option}= of a Policy takes a list, not {getattr(self, option)!r:.100}")
        check_names(self.redact)
        compile_masks(self.mask)
        # Compiled here only to be checked, where the mistake is made.
        compile_rates("rate", self.rate, "")
        compile_rates("quota", self.quota, "")
        compile_slots(self.concurrency, "")

    def effective_scopes(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return the scopes that count for a caller who holds these."""
        return with_implied(scopes, self.implies)

    def for_caller(self, principal: Principal | None) -> Policy | None:
        """Return the policy that `by_principal` adds for a caller; None if it adds none."""
        if principal is None or self.by_principal is None:
            return None
        added = self.by_principal(principal)
        if added is not None and not isinstance(added, Policy):
            raise TypeError(f"by_principal= returned {type(added).__name__}: it returns a Policy or None")
        return added


def rules_of(given: Rule | Sequence[Rule]) -> Sequence[Rule]:
    return [given] if callable(given) else given
