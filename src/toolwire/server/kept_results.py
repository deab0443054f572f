"""Results, or parts of them, that are kept for their caller for a while, and read as resources.

They are in the store of the server, so that every replica has them. Only the principal that made the call can read
them, because the key of an entry is made of the principal. An entry begins with the demands that the caller fulfilled:
the scopes and audiences of the tool and of every server on the way to it. A reader has to fulfill them, too.
Each caller has a bounded number of results and bytes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, ResourceNotFound, ToolError
from toolwire.server.call import Call
from toolwire.server.components import Cache, ResourceTemplate
from toolwire.server.judgements import Judgement
from toolwire.server.replay_state import limit_key, principal_key
from toolwire.stores import KV, StoreFailed, StoreFull

log: logging.Logger = logging.getLogger("toolwire.server")

#: For how many seconds a result can be read.
KEPT_SECONDS: Final = 600.0
#: How many results, and how many bytes of them, are kept for one caller. The oldest ones go first.
MAX_KEPT: Final = 32
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
SCHEME: Final = "toolwire-result"
# Two replicas may write the list of a caller at once. One of them tries again, up to so many times.
_ATTEMPTS: Final = 8
# Stands behind the media type of bytes. Everything else is text.
_BYTES: Final = b" bytes"


class _Entry(Struct, array_like=True, frozen=True):
    """A result that is kept for a caller."""

    id: str
    size: int
    ends: float


_entries = decoder_of(list[_Entry]).decode
_judgement = decoder_of(Judgement).decode
_encode = msgspec.json.encode


class KeptResults:
    """The place for the results of one mounted server, or of one API."""

    def __init__(self, whose: str) -> None:
        """`whose` names the place, and is the same on every replica."""
        self.place: str = hashlib.sha256(whose.encode()).hexdigest()[:16]

    async def keep(self, call: Call, whole: str | bytes, mime_type: str) -> str | None:
        """Keep text or bytes for the caller; return the URI, or None where there is no room."""
        is_text = isinstance(whole, str)
        data = whole.encode(errors="replace") if isinstance(whole, str) else whole
        head = mime_type.encode(errors="replace").replace(b"\n", b" ") + (b"" if is_text else _BYTES)
        identifier = await _keep(call, head + b"\n", data)
        return None if identifier is None else f"{SCHEME}://{self.place}/{identifier}"

    async def link(
        self,
        call: Call,
        whole: str | bytes,
        mime_type: str,
        name: str,
        said: str,
        *,
        which: str = "All of it",
        advice: str = "",
        lost: str = "The rest is left out. Ask for less.",
        meta: dict[str, Any] | UnsetType = UNSET,
    ) -> list[Any]:
        """Keep text or bytes for the caller; return the content that links to them, or says that they are lost.

        `said` describes the whole; `which` names the part that is kept.
        """
        uri = await self.keep(call, whole, mime_type)
        if uri is None:
            return [t.TextContent(f"[{said} {lost}]")]
        where = f"{which} is the resource {uri}, for {round(KEPT_SECONDS / 60)} minutes."
        size = len(whole.encode(errors="replace") if isinstance(whole, str) else whole)
        link = t.ResourceLink(uri=uri, name=name[:200], mime_type=mime_type, size=size, meta=meta)
        return [t.TextContent(f"[{said} {where}{advice and ' ' + advice}]"), link]


class KeptResult(ResourceTemplate):
    """The resources that are kept results. They are in no list."""

    is_unlisted = True

    def __init__(self, place: str) -> None:
        # What one caller reads is not for any other, and does not change while it can be read.
        cache = Cache(ttl_ms=round(KEPT_SECONDS * 1000), scope="private")
        uri_template = f"{SCHEME}://{place}/{{id}}"
        super().__init__(uri_template, _read_here, name="large results", screen=False, cache=cache)

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> list[t.ResourceContents]:
        held = await _kept(call.host.stores.kv, _owner(call), variables["id"])
        if held is None:
            # The same for a result of another caller.
            raise ResourceNotFound()
        judgement, head, data = held.split(b"\n", 2)
        call.host.check_judgement(call, _judgement(judgement))
        mime_type = head.removesuffix(_BYTES).decode(errors="replace")
        if head.endswith(_BYTES):
            return [t.ResourceContents(uri=uri, mime_type=mime_type, blob=data)]
        return [t.ResourceContents(uri=uri, mime_type=mime_type, text=data.decode(errors="replace"))]


def is_kept_result(uri: str) -> bool:
    """Return whether a URI has the form of a kept result's."""
    return _URI.fullmatch(uri) is not None


_URI: Final = re.compile(rf"{SCHEME}://[0-9a-f]{{16}}/[0-9a-f]{{32}}")


async def _read_here(id: str) -> str:
    """Stand for the function of the template."""
    raise ToolError("This resource is read from the store")


def _owner(call: Call) -> str:
    who = principal_key(call.principal) or "nobody"
    # Versions before this one kept results without a judgement, below `large-results/`. They are not read.
    return f"kept-results/{who}"


def _list_key(call: Call) -> str:
    """Return the key of the list that bounds the results of a caller. Strangers have a list for each address."""
    owner, caller = _owner(call), limit_key(call)
    return owner if caller == principal_key(call.principal) else f"{owner}/by-address/{caller}"


async def _kept(kv: KV, owner: str, identifier: str) -> bytes | None:
    if len(identifier) != 32 or not identifier.isalnum():
        return None
    return await kv.get(f"{owner}/{identifier}")


async def _keep(call: Call, head: bytes, whole: bytes) -> str | None:
    """Keep a result for its caller; return its id, or None where there is no room for it."""
    if len(whole) > MAX_KEPT_BYTES:
        return None
    kv, owner, identifier = call.host.stores.kv, _owner(call), os.urandom(16).hex()
    try:
        gone = await _make_room(kv, _list_key(call), _Entry(identifier, len(whole), time.time() + KEPT_SECONDS))
        if gone is None:
            return None
        for each in gone:
            await kv.delete(f"{owner}/{each.id}")
        judgement = _encode(call.host.judgement_of(call)) + b"\n"
        await kv.put(f"{owner}/{identifier}", judgement + head + whole, ttl=KEPT_SECONDS)
    except (StoreFull, StoreFailed) as error:
        log.warning("a large result cannot be kept: %s", error)
        return None
    return identifier


async def _make_room(kv: KV, list_key: str, new: _Entry) -> list[_Entry] | None:
    """Write a result into the list of its caller; return those that have to go for it, or None where it cannot be."""
    for _ in range(_ATTEMPTS):
        known = await kv.get(list_key)
        now = time.time()
        entries = [each for each in _listed(known) if each.ends > now]
        gone: list[_Entry] = []
        while entries and (len(entries) >= MAX_KEPT or sum(each.size for each in entries) + new.size > MAX_KEPT_BYTES):
            gone.append(entries.pop(0))
        value = _encode([*entries, new])
        if await kv.put(list_key, value, ttl=KEPT_SECONDS, if_absent=known is None, expect=known):
            return gone
    return None


def _listed(known: bytes | None) -> list[_Entry]:
    """Decode the list of a caller's results; a damaged list counts as empty."""
    try:
        return [] if known is None else _entries(known)
    except BAD_JSON:
        return []
