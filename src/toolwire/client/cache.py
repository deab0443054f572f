"""A cache of answers, for as long as the server allows (2026-07-28 server/utilities/caching).

The cache keeps an answer as bytes, and each reader decodes it anew: nobody can change what others see. It serves only
the same request to the same server, and a private answer only to the client that asked. A change that the server
announces, or that an error suggests, makes the entries that it concerns stale at once. The cache never sends a request
because time has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.surrogates import refusing_surrogates
from toolwire.util.expiring import Expiring

R = TypeVar("R", bound=t.Result)

MAX_ENTRIES: Final = 1_000
MAX_BYTES: Final = 16 * 1024 * 1024
#: No answer is kept longer than a day, whatever the server says.
MAX_SECONDS: Final = 86_400.0

CACHEABLE: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
# The methods that each announcement makes stale. An update concerns the one resource that it names.
_STALE: Final = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}

# The server, the client whose private answer it is (None: public), the method, the params.
Key: TypeAlias = tuple[object, object, str, bytes]

_encode = refusing_surrogates(msgspec.json.Encoder(order="deterministic").encode)


class Cache:
    """The cached answers of any number of servers, for any number of clients. `clock` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries: Expiring[Key, Raw] = Expiring(
            MAX_ENTRIES, max_weight=MAX_BYTES, weigh=lambda raw: memoryview(raw).nbytes, clock=clock
        )

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Raw | None:
        return self._entries.use(key)

    def put(self, key: Key, raw: Raw, seconds: float) -> None:
        if memoryview(raw).nbytes <= MAX_BYTES // 4:
            self._entries.put(key, raw, min(seconds, MAX_SECONDS))

    def drop(self, key: Key) -> None:
        self._entries.pop(key)

    def drop_where(self, matches: Callable[[Key], bool]) -> None:
        for key in [key for key in self._entries if matches(key)]:
            self.drop(key)


class CacheView:
    """The part of a cache that one client sees: the entries of its server, with its own private ones."""

    def __init__(self, cache: Cache, server: object) -> None:
        self._cache = cache
        self._server = server
        # CCH-4: nobody else finds a private answer.
        self._me = object()

    def get(self, method: str, params: t.RequestParams) -> Raw | None:
        """Return a fresh answer, if there is one."""
        said = _said(params)
        for owner in (self._me, None):
            raw = self._cache.get((self._server, owner, method, said))
            if raw is not None:
                return raw
        return None

    def keeping(self, method: str, params: t.RequestParams, decode: Callable[[Raw], R]) -> Callable[[Raw], R]:
        """Return `decode` in a form that also caches what it reads, if the server allows it."""
        said = _said(params)
        first = True

        def read(raw: Raw) -> R:
            nonlocal first
            # CCH-8: a result that depends on answers to the server's questions is for this call alone.
            keep, first = first, False
            result = decode(raw)
            if keep and isinstance(result, t.CacheableResult):
                self._keep(method, said, raw, result)
            return result

        return read

    def _keep(self, method: str, said: bytes, raw: Raw, result: t.CacheableResult) -> None:
        ttl = result.ttl_ms
        if result.result_type != "complete" or ttl is UNSET or ttl <= 0:
            return
        # An absent scope counts as private, which is safe.
        owner = None if result.cache_scope == "public" else self._me
        self._cache.put((self._server, owner, method, said), raw.copy(), ttl / 1000)

    def changed(self, notification: str, uri: str | None) -> None:
        """Drop what the server says has changed."""
        if uri is not None:
            said = _said(t.ReadResourceRequestParams(uri=uri))
            self._cache.drop_where(lambda key: key[0] == self._server and key[2] == "resources/read" and key[3] == said)
        for method in _STALE.get(notification, ()):
            self.suspect(method)

    def suspect(self, method: str) -> None:
        """CCH-6: drop the answers to a method, because an error does not fit them."""
        self._cache.drop_where(lambda key: key[0] == self._server and key[2] == method)

    def clear(self) -> None:
        """Drop everything about this server."""
        self._cache.drop_where(lambda key: key[0] == self._server)


def _said(params: t.RequestParams) -> bytes:
    meta, params.meta = params.meta, UNSET
    try:
        return _encode(params)
    finally:
        params.meta = meta
