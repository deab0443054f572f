"""The clients of the proxy: registered ones (RFC 7591), and those with a metadata document."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from toolwire.auth.proxy.sealed import SealedRegistration, Seals
from toolwire.auth.verify.fetch import ProviderAnswer, fetch_from_anywhere
from toolwire.auth.verify.provider_limits import ProviderRequests
from toolwire.auth.verify.verifier import Asker, Unavailable
from toolwire.http.origin_check import is_loopback
from toolwire.util.expiring import Expiring

MAX_REDIRECTS: Final = 10
MAX_URI: Final = 1024
MAX_NAME: Final = 100
#: Seconds for which a metadata document is kept, and how many of them.
DOCUMENT_SECONDS, DOCUMENTS = 300.0, 256
# RFC 6749 appendix A: what an address may consist of; no control characters, no spaces, no quotes.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+", re.ASCII)


class BadClient(Exception):
    """A client that is not served; the text is for people."""


class Clients:
    """Finds clients by their id, and stores none of them."""

    def __init__(
        self,
        seals: Seals,
        *,
        schemes: frozenset[str] = frozenset(),
        fetch: Callable[[str], Any] = fetch_from_anywhere,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schemes`: private schemes that redirects may have, besides https and http on this machine."""
        self._seals = seals
        self._schemes = schemes
        self._fetch = fetch
        self._documents: Expiring[str, SealedRegistration] = Expiring(DOCUMENTS, clock=clock)
        self._asking = ProviderRequests()

    def register(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a registration; raise `BadClient` for metadata that is refused."""
        registration = self._read(metadata)
        return {
            "client_id": self._seals.seal(registration),
            "client_id_issued_at": int(self._seals.clock()),
            "client_name": registration.name,
            "redirect_uris": registration.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            # With PKCE a secret adds nothing, and would have to be stored.
            "token_endpoint_auth_method": "none",
        }

    async def find(self, client_id: str, asker: Asker | None = None) -> SealedRegistration:
        """Return a client's registration, or raise `BadClient`. Its metadata is fetched on behalf of `asker`."""
        if client_id.startswith("https://"):
            return await self._document(client_id, asker)
        found = self._seals.open(client_id, SealedRegistration)
        if found is None:
            raise BadClient("This application is not registered here, or no longer")
        return found

    async def _document(self, url: str, asker: Asker | None) -> SealedRegistration:
        """Fetch the metadata document of a client (2025-11-25 basic/authorization, client id metadata documents)."""
        kept = self._documents.get(url)
        if kept is not None:
            return kept
        parts = urlsplit(url)
        if len(url) > MAX_URI or _URI.fullmatch(url) is None or parts.path in ("", "/") or parts.fragment:
            raise BadClient("The id of this application is not the address of a metadata document")
        try:
            registration = await self._asking.ask(url, asker, lambda: self._fetched(url, asker))
        except Unavailable:
            raise BadClient("The metadata of this application cannot be fetched") from None
        self._documents.put(url, registration, DOCUMENT_SECONDS)
        return registration

    async def _fetched(self, url: str, asker: Asker | None) -> SealedRegistration:
        if asker is not None:
            # The caller chose the address, so every fetch counts, whatever its result.
            asker.count_in_vain()
        answer: ProviderAnswer = await self._fetch(url)
        metadata = answer.json() if answer.status == 200 else {}
        if metadata.get("client_id") != url:
            raise BadClient("The metadata of this application is about another one")
        return self._read(metadata)

    def _read(self, metadata: dict[str, Any]) -> SealedRegistration:
        uris = metadata.get("redirect_uris")
        if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECTS:
            raise BadClient(f"redirect_uris is a list of 1 to {MAX_REDIRECTS} addresses")
        for uri in uris:
            if not isinstance(uri, str) or not self._may_redirect(uri):
                raise BadClient("A redirect address is https, or http on the user's own machine")
        name = metadata.get("client_name")
        shown = "".join(each for each in name if each.isprintable()) if isinstance(name, str) else ""
        return SealedRegistration(uris, shown[:MAX_NAME])

    def _may_redirect(self, uri: str) -> bool:
        parts = _split(uri)
        if parts is None:
            return False
        if parts.scheme in self._schemes:
            return True
        return bool(parts.hostname) and (parts.scheme == "https" or _is_local(parts))


def redirects_to(registration: SealedRegistration, uri: str) -> bool:
    """Return whether a client may get its answer at an address.

    It may at a registered one; on loopback, with any port.
    """
    if uri in registration.redirect_uris:
        return True
    # RFC 8252 section 7.3: a native client takes whatever port is free.
    native = _without_port(uri)
    return native is not None and any(_without_port(each) == native for each in registration.redirect_uris)


def is_local(uri: str) -> bool:
    """Return whether an answer goes to some program on the user's own machine."""
    parts = _split(uri)
    return parts is None or parts.scheme != "https" or is_loopback(parts.hostname or "")


def _is_local(parts: SplitResult) -> bool:
    return parts.scheme == "http" and is_loopback(parts.hostname or "")


def _without_port(uri: str) -> tuple[str, str | None, str, str] | None:
    parts = _split(uri)
    return None if parts is None or not _is_local(parts) else (parts.scheme, parts.hostname, parts.path, parts.query)


def _split(uri: str) -> SplitResult | None:
    """Split an address that people may be sent to; return None for any other address.

    The characters are checked first, because splitting ignores line breaks and a browser does not.
    """
    if len(uri) > MAX_URI or "#" in uri or _URI.fullmatch(uri) is None:
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return None if parts.username is not None else parts


def read_metadata(body: bytes) -> dict[str, Any]:
    """Decode the body of a registration; raise `BadClient` if it is not an object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise BadClient("A registration is a JSON object") from None
