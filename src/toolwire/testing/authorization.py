"""Authorization in tests: a caller's permissions, and a trusted test issuer."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.auth.jose import ALGORITHMS, generate_private_key, sign
from toolwire.auth.principal import Principal, scopes_of
from toolwire.auth.resource import as_resource_server
from toolwire.auth.verify.jwt import JWT
from toolwire.auth.verify.verifier import Chain, Verifier
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.sealing import encode_base64url

_HOUR: Final = 3600.0
_KEY_ID: Final = "test"
# Keys on elliptic curves are quick to generate.
_PREFERRED: Final = (*(each for each in ALGORITHMS if each.startswith("ES")), *ALGORITHMS)

Permission: TypeAlias = Literal["usable", "refused", "hidden"]


class Permissions(Struct, frozen=True, kw_only=True):
    """The permission for each component, by name or URI.

    It is `usable`, `refused` (listed but not usable) or `hidden`.
    """

    tools: dict[str, Permission]
    resources: dict[str, Permission]
    templates: dict[str, Permission]
    prompts: dict[str, Permission]


def permissions(server: Any, principal: Principal | None = None) -> Permissions:
    """Return what a caller over HTTP may do, without calling anything.

    None is a caller without a token. A caller that `auth=` does not let in sees nothing.
    """
    access, catalog = server.kernel.access, server.catalog
    let_in = _is_let_in(server, principal)
    view = access.view_of(principal)

    def judge(kind: str) -> dict[str, Permission]:
        seen = catalog.all(kind, view)
        found: dict[str, Permission] = {}
        for name in catalog.all(kind):
            if not let_in or name not in seen:
                found[name] = "hidden"
            else:
                found[name] = "usable" if access.permits(principal, seen[name]) else "refused"
        return found

    return Permissions(
        tools=judge("tools"), resources=judge("resources"), templates=judge("templates"), prompts=judge("prompts")
    )


def _is_let_in(server: Any, principal: Principal | None) -> bool:
    resource_server = as_resource_server(server.auth)
    if resource_server is None:
        return True
    if principal is None or not resource_server.allows(principal):
        return False
    scopes: frozenset[str] = server.kernel.access.effective(principal.scopes)
    return resource_server.scopes <= scopes


@contextmanager
def issuer(server: Any, of: str | None = None) -> Iterator[Issuer]:
    """Make the server accept tokens of a test issuer, within the block.

    The test issuer stands in for the one in `auth=`. The rest of the verification is the server's own: issuer,
    audience, algorithms, times, scopes. `of` names the issuer if there are several. Raise `LookupError` if the server
    does not verify signed tokens itself: use `connect(principal=)` there, or `connect(auth=)` with an API key.
    """
    resource_server = as_resource_server(server.auth)
    known = [] if resource_server is None else list(_signed(resource_server.verifier))
    verifier = next((each for each in known if of is None or of in each.issuers), None)
    if verifier is None or resource_server is None:
        raise LookupError(
            f"{server!r} verifies no tokens of {of or 'an issuer'} with a key: there is no such JWT in auth="
        )
    made = Issuer(server, verifier, of or min(verifier.issuers), resource_server.scopes)
    no_more = verifier.trust(made.keys)
    try:
        yield made
    finally:
        no_more()


def _signed(verifier: Verifier) -> Iterator[JWT]:
    if isinstance(verifier, JWT):
        yield verifier
    elif isinstance(verifier, Chain):
        for each in verifier.verifiers:
            yield from _signed(each)


class Issuer:
    """An issuer that signs tokens which the server accepts, and tokens which it must refuse."""

    def __init__(self, server: Any, verifier: JWT, url: str, needed: frozenset[str]) -> None:
        self.url = url
        self._server = server
        self._terms = verifier.terms
        self._algorithm = next(each for each in _PREFERRED if each in verifier.algorithms)
        self._key = generate_private_key(self._algorithm)
        self._needed = needed

    @property
    def keys(self) -> dict[str, Any]:
        """Return the public keys in the form that `JWT(keys=)` takes."""
        return {"keys": [{**self._key.as_dict(private=False), "kid": _KEY_ID}]}

    def token(
        self,
        subject: str = "tester",
        *,
        scopes: str | Iterable[str] | None = None,
        expires_in: float = _HOUR,
        **claims: Any,
    ) -> str:
        """Sign a token that the server accepts, unless an argument makes it unacceptable.

        The token has the scopes that every request needs unless `scopes` gives different ones. `claims` are added, or
        replace `iss`, `aud` and the like; None leaves a claim out.
        """
        return self._signed(self._claims(subject, scopes, expires_in, claims), self._key)

    def bad_tokens(self) -> dict[str, str]:
        """Return tokens that no server may accept, by what is wrong with them."""
        far = self._terms.skew + _HOUR
        good = self._claims("tester", None, _HOUR, {})
        header, payload, signature = self._signed(good, self._key).split(".")
        return {
            "expired": self.token(expires_in=-far),
            "not valid yet": self.token(nbf=time.time() + far),
            "without an end": self.token(exp=None),
            "for another server": self.token(aud="https://another.example"),
            "for other servers as well": self.token(aud=[min(self._terms.audience), "https://another.example"]),
            "without an audience": self.token(aud=None),
            "of another issuer": self.token(iss="https://another.example"),
            "without a subject": self._signed(self._without(good, self._terms.subject_claims), self._key),
            "signed with another key": self._signed(good, generate_private_key(self._algorithm)),
            "changed after it was signed": f"{header}.{_part({**good, 'sub': 'admin'})}.{signature}",
            "cut off": f"{header}.{payload}.{signature[:-8]}",
            "not signed": f"{_part({'alg': 'none'})}.{payload}.",
            "signed with the public key as a password": self._with_shared_secret(payload),
        }

    async def check(self) -> None:
        """Fail unless the server accepts a good token and refuses every bad one.

        The requests go over HTTP; a bad token has to get status 401.
        """
        __tracebackhide__ = True
        app = self._server.http_app()
        pool = AsgiPool(app)
        try:
            if (status := await _status(pool, self.token())) in (401, 403):
                raise AssertionError(
                    f"a good token was turned away with status {status}, so the bad tokens prove nothing"
                )
            attempts: dict[str, str | None] = {f"a token {what}": token for what, token in self.bad_tokens().items()}
            attempts["no token"] = None
            let_in = [what for what, token in attempts.items() if await _status(pool, token) != 401]
        finally:
            app.drain()
            await pool.close()
            await app.stop()
        if let_in:
            raise AssertionError(f"{self._server!r} lets callers in with {'; with '.join(let_in)}")

    def _claims(
        self, subject: str, scopes: str | Iterable[str] | None, expires_in: float, claims: dict[str, Any]
    ) -> dict[str, Any]:
        now = time.time()
        granted = self._needed if scopes is None else scopes_of(scopes)
        made = {
            "iss": self.url,
            "aud": min(self._terms.audience),
            "sub": subject,
            "iat": min(now, now + expires_in),
            "exp": now + expires_in,
            self._terms.scope_claims[0]: " ".join(sorted(granted)),
        }
        return {name: value for name, value in {**made, **claims}.items() if value is not None}

    @staticmethod
    def _without(claims: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        return {name: value for name, value in claims.items() if name not in names}

    def _signed(self, claims: dict[str, Any], key: Any) -> str:
        return sign({"alg": self._algorithm, "kid": _KEY_ID, "typ": "at+jwt"}, claims, key)

    def _with_shared_secret(self, payload: str) -> str:
        """Sign with the public key as a secret.

        A careless verifier accepts it (RFC 8725 section 2.1).
        """
        signed = f"{_part({'alg': 'HS256', 'kid': _KEY_ID, 'typ': 'at+jwt'})}.{payload}"
        signature = hmac.digest(self._key.as_pem(private=False), signed.encode(), sha256)
        return f"{signed}.{encode_base64url(signature)}"


def _part(value: Any) -> str:
    return encode_base64url(msgspec.json.encode(value))


async def _status(pool: AsgiPool, token: str | None) -> int:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    response = await pool.send("POST", "http://localhost/mcp", headers, body)
    response.close()
    return response.status
