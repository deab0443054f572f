"""The verified identity of a caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.protocol.surrogates import is_encodable


class Principal(Struct, frozen=True):
    """The caller of a request.

    Two principals are the same caller when provider and subject are equal.
    """

    subject: str
    """The id of the caller at the provider. It is unique there, and never given to another caller."""
    provider: str = ""
    """Who vouches for them: the issuer of their token, or the name of a verifier."""
    username: str | None = None
    """A name for people to read. It may change and be reused: decide nothing by it that matters."""
    scopes: frozenset[str] = frozenset()
    """What they were granted."""
    claims: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Everything else that the token, or its issuer, says about them."""
    is_shared: bool = False
    """Whether indistinguishable callers share this principal, as with `Anonymous`."""

    def __post_init__(self) -> None:
        if not isinstance(self.subject, str) or not self.subject:
            raise ValueError("A principal needs a subject")
        for name in ("subject", "provider"):
            if not is_encodable(getattr(self, name)):
                # It is never mended: two callers would become one.
                raise ValueError(f"The {name} of a principal has half of a surrogate pair, which UTF-8 cannot carry")
        if not isinstance(self.scopes, frozenset):
            msgspec.structs.force_setattr(self, "scopes", scopes_of(self.scopes))

    def __repr__(self) -> str:
        # Claims may be anything that an issuer knows about a person, and a representation ends up in logs.
        return f"Principal({self.subject!r}, provider={self.provider!r})"


class TokenPrincipal(Principal, frozen=True, dict=True):
    """A principal with the token of the request, from which a credential is made.

    The token is not a field: a principal that is stored, compared or shown is without it.
    """


def with_token(principal: Principal, token: str) -> Principal:
    """Return a principal that remembers the token of its request."""
    fields = {name: getattr(principal, name) for name in principal.__struct_fields__}
    made = TokenPrincipal(**fields)
    made.__dict__["token"] = token
    return made


def with_scopes(principal: Principal, scopes: frozenset[str]) -> Principal:
    """Return the same caller with other scopes."""
    if scopes == principal.scopes:
        return principal
    changed = msgspec.structs.replace(principal, scopes=scopes)
    token = token_of(principal)
    return changed if token is None else with_token(changed, token)


def token_of(principal: Principal | None) -> str | None:
    """Return the token that a principal came with; None where it was not kept."""
    return principal.__dict__.get("token") if isinstance(principal, TokenPrincipal) else None


def scopes_of(value: str | Iterable[str] | None) -> frozenset[str]:
    """Read scopes from a text with spaces, from a list, or from None.

    RFC 6749 section 3.3.
    """
    if value is None:
        return frozenset()
    if isinstance(value, Mapping):
        raise ValueError("scopes are a list of texts, not a mapping")
    return frozenset(value.split()) if isinstance(value, str) else frozenset(value)
