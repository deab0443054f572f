"""Scopes that bring others with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def with_implied(scopes: Iterable[str], implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the scopes, those that they imply, and so on; scopes that imply each other are no harm."""
    held: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in held:
            held.add(scope)
            waiting.extend(implies.get(scope, ()))
    return frozenset(held)
