"""Policies in the file: rates, slots, rules for arguments, masks."""

from __future__ import annotations

from typing import Any

from toolwire.auth.principal import Principal
from toolwire.gateway.file_types import FilePath, Table, given
from toolwire.protocol.errors import ServerError
from toolwire.server.policy import Policy, Rate, Slots, rules
from toolwire.server.policy.rules import Rule
from toolwire.server.policy.scopes import with_implied


class RuleTable(Table, kw_only=True, frozen=True):
    """A rule for one argument. Where it has several keys, all of them hold."""

    at_most: int | None = None
    """How many characters a text, or how many items a list may have."""
    between: tuple[float, float] | None = None
    """The lowest and the highest number."""
    one_of: list[Any] | None = None
    """The values that are allowed."""
    matches: str | None = None
    """A regular expression for the whole text."""
    plain_text: bool = False
    """Whether texts with control characters are refused."""
    inside: FilePath | None = None
    """The directory that a path has to lead into."""
    relative_to: FilePath | None = None
    """The directory in which the server looks for a relative path; without it, relative paths are refused."""
    to_hosts: list[str] | None = None
    """The hosts that an address may have; `*.example.com` stands for every name below it."""
    schemes: list[str] | None = None
    """The schemes that such an address may have; `https` alone by default."""


class PolicyPart(Table, kw_only=True, frozen=True):
    """Limits and rules for calls."""

    rate: str | Rate | list[str | Rate] | None = None
    """Calls in a moving window, such as `60/minute`."""
    quota: str | Rate | list[str | Rate] | None = None
    """Calls in a fixed window, such as `10000/day`."""
    concurrency: int | Slots | list[Slots] | None = None
    """Calls that run at once, as a number or with a queue."""
    timeout: float | None = None
    """Seconds a call may run."""
    rules: dict[str, RuleTable | list[RuleTable]] = {}
    """For an argument by its name, what it may be."""
    result: int | None = None
    """Bytes of an answer."""
    redact: list[str] = []
    """Names of arguments that no record shows, beside those that are secret anyway."""
    mask: list[str] = []
    """Regular expressions of text that is taken out of all that is answered, reported or recorded."""


class PolicyTable(PolicyPart, kw_only=True, frozen=True):
    """A policy: limits and rules for all callers, and further ones for some."""

    by_scope: dict[str, PolicyPart] = {}
    """Further limits and rules for callers with a scope. The first scope in the file that a caller has counts."""
    implies: dict[str, list[str]] = {}
    """Scopes that bring others with them."""


def policy_of(table: PolicyPart) -> Policy:
    """Make the policy that a table describes. Raise `ServerError` for a rule that is none."""
    options = given(table)
    options["rules"] = {
        argument: [rule for each in (one if isinstance(one, list) else [one]) for rule in _rules(argument, each)]
        for argument, one in options.pop("rules", {}).items()
    }
    by_scope = {scope: policy_of(part) for scope, part in options.pop("by_scope", {}).items()}
    if by_scope:
        options["by_principal"] = _ByScope(by_scope, options.get("implies", {}))
    return Policy(**options)


class _ByScope:
    """Chooses the policy of a caller by scopes."""

    def __init__(self, policies: dict[str, Policy], implies: dict[str, list[str]]) -> None:
        self._policies = policies
        self._implies = implies

    def __call__(self, principal: Principal) -> Policy | None:
        scopes = with_implied(principal.scopes, self._implies)
        return next((policy for scope, policy in self._policies.items() if scope in scopes), None)


def _rules(argument: str, table: RuleTable) -> list[Rule]:
    found: list[Rule] = []
    if table.at_most is not None:
        found.append(rules.at_most(table.at_most))
    if table.between is not None:
        found.append(rules.between(*table.between))
    if table.one_of is not None:
        found.append(rules.one_of(*table.one_of))
    if table.matches is not None:
        found.append(rules.matches(table.matches))
    if table.plain_text:
        found.append(rules.plain_text)
    if table.inside is not None:
        found.append(rules.inside(table.inside, relative_to=table.relative_to))
    if table.to_hosts is not None:
        found.append(rules.to_hosts(*table.to_hosts, **({"schemes": table.schemes} if table.schemes else {})))
    if not found:
        raise ServerError(f"the rule for {argument!r} says nothing")
    return found
