"""Signed tokens (RFC 7519, RFC 9068), verified with the keys of their issuer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from toolwire.auth.jose import (
    ALGORITHMS,
    PublicKey,
    check_installed,
    claims_of,
    import_keys,
    is_signed_by,
    key_type,
    parse,
)
from toolwire.auth.principal import Principal
from toolwire.auth.verify.claims import SKEW, SUBJECT_CLAIMS, Terms, audience_of, end_of
from toolwire.auth.verify.fetch import ProviderAnswer, fetch
from toolwire.auth.verify.key_server import KeyServer
from toolwire.auth.verify.token_cache import LONGEST, Remembered
from toolwire.auth.verify.verifier import InvalidToken
from toolwire.protocol.errors import ServerError
from toolwire.util.text_lists import text_list, texts_of

#: RFC 9068 section 2.1, and what issuers wrote before it. Anything else is another kind of token.
TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt"})
MAX_LENGTH: Final = 16 * 1024


class JWT:
    """Tokens of one issuer for this server.

    * `issuer`: what stands in `iss`, one text or several.
    * `audience`: what the issuer writes into `aud` of tokens for this server, one text or several.
    * `jwks_uri`: where its keys are; by default its own metadata says. `keys`: a key set (`{"keys": [...]}`) instead.
    * `algorithms`: those that are accepted; all that use public keys by default.
    * `other_audiences`: whom a token may be meant for besides this server.
    * `scope_claims`: where the scopes are; `scope` and `scp` by default.
    * `subject_claims`: what names the caller; `sub` alone by default. Name `client_id` after it only if no client can
      choose an id that is the `sub` of a user.
    """

    #: A signature cannot be guessed. So new tokens are judged also where an address sent too many unknown ones.
    takes_signed_tokens: bool = True

    def __init__(
        self,
        issuer: str | Sequence[str],
        *,
        audience: str | Sequence[str],
        jwks_uri: str | None = None,
        keys: Mapping[str, Any] | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        other_audiences: Sequence[str] = (),
        scope_claims: Sequence[str] = ("scope", "scp"),
        subject_claims: Sequence[str] = SUBJECT_CLAIMS,
        skew: float = SKEW,
        remember: float = LONGEST,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_installed()
        self.algorithms: frozenset[str] = _checked(algorithms)
        self.issuers: frozenset[str] = frozenset(texts_of(issuer, "issuer="))
        if not self.issuers:
            raise ServerError("issuer= is needed: what the issuer writes into `iss` of its tokens")
        self.terms: Terms = Terms(
            issuers=self.issuers,
            audience=audience_of(audience),
            other_audiences=frozenset(text_list(other_audiences, "other_audiences=")),
            scope_claims=tuple(scope_claims),
            subject_claims=tuple(subject_claims),
            skew=skew,
        )
        self._given = None if keys is None else _read_keys(keys)
        self._servers = {} if keys is not None else self._key_servers(jwks_uri, fetch)
        self._clock = clock
        self._remembered = Remembered(min(remember, LONGEST), clock=clock)

    def _key_servers(
        self, jwks_uri: str | None, fetch: Callable[..., Awaitable[ProviderAnswer]]
    ) -> dict[str, KeyServer]:
        """Return the key server of each issuer.

        Unless `jwks_uri` is given, no issuer can sign for another.
        """
        if jwks_uri is not None:
            shared = KeyServer(None, jwks_uri, fetch=fetch)
            return dict.fromkeys(self.issuers, shared)
        return {issuer: KeyServer(issuer, fetch=fetch) for issuer in self.issuers}

    def trust(self, keys: Mapping[str, Any]) -> Callable[[], None]:
        """Use a key set instead of the issuers' keys, for tests.

        Returns a function that ends this.
        """
        before = self._given, self._remembered
        self._given, self._remembered = _read_keys(keys), Remembered(clock=self._clock)

        def no_more() -> None:
            self._given, self._remembered = before

        return no_more

    def recall(self, token: str) -> Principal | None:
        """Return the principal of a token that was verified recently; None if unknown."""
        return self._remembered.get(token)[2]

    async def verify(self, token: str) -> Principal | None:
        digest, known, principal = self._remembered.get(token)
        if known:
            return principal
        if len(token) > MAX_LENGTH:
            raise InvalidToken("The token is too long")
        if token.count(".") != 2:
            return None  # Not a signed token at all; another verifier may know it.
        principal = await self._verified(token)
        self._remembered.put(digest, principal, end_of(principal.claims))
        return principal

    async def _verified(self, token: str) -> Principal:
        signed = parse(token)
        header = signed.header
        if header.alg not in self.algorithms:
            raise InvalidToken("The token is not signed with an algorithm that is accepted here")
        if header.typ is not None and header.typ.lower() not in TOKEN_TYPES:
            raise InvalidToken("This kind of token is not an access token")
        claims = claims_of(signed)
        issuer = claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self.issuers:
            raise InvalidToken("The token is from another issuer")
        for key in await self._keys(issuer, header.kid, key_type(header.alg)):
            if is_signed_by(signed, key, self.algorithms):
                return self.terms.principal(claims, self._clock(), issuer)
        raise InvalidToken("The signature of the token does not hold")

    async def _keys(self, issuer: str, kid: str | None, kty: str) -> list[PublicKey]:
        if self._given is None:
            return await self._servers[issuer].keys(kid, kty)
        return [key for key in self._given if key.kty == kty and (kid is None or key.kid in (kid, None))]


def _checked(algorithms: Sequence[str]) -> frozenset[str]:
    unknown = set(algorithms) - set(ALGORITHMS)
    if unknown or not algorithms:
        raise ServerError(
            f"algorithms= are some of {', '.join(ALGORITHMS)}; {', '.join(sorted(unknown)) or 'none'} cannot be used"
        )
    return frozenset(algorithms)


def _read_keys(keys: Mapping[str, Any]) -> list[PublicKey]:
    found = import_keys(keys.get("keys", ()))
    if not found:
        raise ServerError('keys= is a key set with public keys, {"keys": [...]}, and none of these can be used')
    return found
