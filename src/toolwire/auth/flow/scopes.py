"""The choice of scopes to ask for (2026-07-28 basic/authorization, scope selection and step-up)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# RFC 6749 section 3.3.
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")

#: When a server names ever new scopes, they are followed up to this number.
MAX_SCOPES: Final = 100

OFFLINE: Final = "offline_access"

Scopes = tuple[str, ...]


def parse_scopes(text: str) -> Scopes:
    """Return the scopes of a space-separated list, without invalid ones."""
    return clean_scopes(text.split(" "))


def clean_scopes(scopes: Iterable[str]) -> Scopes:
    found = dict.fromkeys(scope for scope in scopes if _SCOPE.fullmatch(scope))
    return tuple(found)[:MAX_SCOPES]


def union(*sets: Scopes) -> Scopes:
    """Return all scopes once, in the order in which they came."""
    return clean_scopes(scope for scopes in sets for scope in scopes)


def select_scopes(challenged: Scopes | None, supported: Iterable[str] | None, configured: Scopes = ()) -> Scopes:
    """Return the scopes for the first request: the challenge's, else the resource's list.

    Empty means: omit the parameter. The user's configured scopes replace the resource's list. The scopes of the
    challenge are always included.
    """
    if configured:
        return union(configured, challenged or ())
    return challenged if challenged is not None else clean_scopes(supported or ())


def with_offline_access(scopes: Scopes, supported: Iterable[str] | None) -> Scopes:
    """Return the scopes with `offline_access`, if the authorization server knows it (SEP-2207).

    An empty list stays empty: otherwise the server would not use its default scopes.
    """
    return union(scopes, (OFFLINE,)) if scopes and OFFLINE in (supported or ()) else scopes
