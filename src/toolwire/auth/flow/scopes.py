"""The choice of scopes to ask for (2026-07-28 basic/authorization, scope selection and step-up)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# RFC 6749 section 3.3.
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")

#: A server that goes on naming new scopes is not followed further than this.
MAX_SCOPES: Final = 100

OFFLINE: Final = "offline_access"

Scopes = tuple[str, ...]


def parse_scopes(text: str) -> Scopes:
    """The scopes of a space-separated list; what cannot be a scope is left out."""
    return clean_scopes(text.split(" "))


def clean_scopes(scopes: Iterable[str]) -> Scopes:
    found = dict.fromkeys(scope for scope in scopes if _SCOPE.fullmatch(scope))
    return tuple(found)[:MAX_SCOPES]


def union(*sets: Scopes) -> Scopes:
    """All of them once, in the order in which they came."""
    return clean_scopes(scope for scopes in sets for scope in scopes)


def select_scopes(challenged: Scopes | None, supported: Iterable[str] | None, configured: Scopes = ()) -> Scopes:
    """Return the scopes for the first request: the challenge's, else all that the resource lists. Empty: omit them.

    What the user configured replaces the resource's list, but never takes away what the challenge says is needed.
    """
    if configured:
        return union(configured, challenged or ())
    return challenged if challenged is not None else clean_scopes(supported or ())


def with_offline_access(scopes: Scopes, supported: Iterable[str] | None) -> Scopes:
    """The same and `offline_access`, where the authorization server knows it (SEP-2207).

    Not where no scope is asked for: a list of one would take the server's default away.
    """
    return union(scopes, (OFFLINE,)) if scopes and OFFLINE in (supported or ()) else scopes
