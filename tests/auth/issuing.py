"""An issuer for tests: keys, the tokens they sign, and the answers of its endpoints. No network, no real clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from toolwire.auth.verify.fetch import ProviderAnswer
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.sealing import encode_base64url

ISSUER = "https://login.example.org"
AUDIENCE = "https://api.example.org/mcp"
NOW = 1_800_000_000.0

# Made once: a key takes longer than all the tests that use it.
RSA = RSAKey.generate_key(2048, {"kid": "rsa-1"}, private=True)
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa-2"}, private=True)
EC = ECKey.generate_key("P-256", {"kid": "ec-1"}, private=True)
ED = OKPKey.generate_key("Ed25519", {"kid": "ed-1"}, private=True)


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; a change to None takes one away."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 300, "iat": NOW - 10, "scope": "read write"}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def sign(payload: Any, key: Any = RSA, *, alg: str = "RS256", **header: Any) -> str:
    """A token; the header has the key's id unless told otherwise."""
    head = {"alg": alg, "kid": key.kid, "typ": "at+jwt", **header}
    head = {name: value for name, value in head.items() if value is not None}
    parts = [json.dumps(each).encode() if not isinstance(each, bytes) else each for each in (head, payload)]
    signed = ".".join(map(encode_base64url, parts))
    signature = jws.JWSRegistry.algorithms[alg].sign(signed.encode(), key)
    return f"{signed}.{encode_base64url(signature)}"


def token(key: Any = RSA, *, alg: str = "RS256", header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    return sign(claims(**changes), key, alg=alg, **(header or {}))


def key_set(*keys: Any) -> dict[str, Any]:
    return KeySet(list(keys)).as_dict(private=False)  # type: ignore[return-value]


class Provider:
    """Answers of a provider by address, and a record of what it was asked."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        self.answers: dict[str, Any] = dict(answers or {})
        self.asked: list[tuple[str, str]] = []
        self.forms: list[Any] = []
        self.headers: list[Mapping[str, str]] = []
        self.gate: asyncio.Event | None = None

    async def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        form: Any = None,
        json: Any = None,
        seconds: float = 0,
    ) -> ProviderAnswer:
        self.asked.append((method, url))
        self.forms.append(form if form is not None else json)
        self.headers.append(dict(headers or {}))
        if self.gate is not None:
            await self.gate.wait()
        found = self.answers.get(url)
        if callable(found):
            found = found()
        if isinstance(found, Exception):
            raise found
        if found is None:
            return ProviderAnswer(404, {}, b"")
        if isinstance(found, ProviderAnswer):
            return found
        return ProviderAnswer(200, {}, _dump(found))


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode()


DOWN = Unavailable("it is down")
