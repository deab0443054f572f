"""Results that are larger than their budget: a short form in the answer, and the whole as a resource for a while.

The whole is in the store of the server, so that every replica has it. Only the principal that made the call can read
it, because the key of the entry is made of the principal. Each caller has a bounded number of results and bytes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import ResourceNotFound, ToolError
from toolwire.server.call import Call
from toolwire.server.components import ResourceTemplate, ToolBase
from toolwire.server.replay_state import principal_key
from toolwire.stores import KV, StoreFailed, StoreFull

log: logging.Logger = logging.getLogger("toolwire.server")

#: For how many seconds the whole of a large result can be read.
KEPT_SECONDS: Final = 600.0
#: How many large results, and how many bytes of them, are kept for one caller. The oldest ones go first.
MAX_KEPT: Final = 32
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
SCHEME: Final = "toolwire-result"
# Two replicas may write the list of a caller at once. One of them tries again, up to so many times.
_ATTEMPTS: Final = 8
# Room for the words that say where the whole is.
_ROOM: Final = 640


class _Entry(Struct, array_like=True, frozen=True):
    """A result that is kept for a caller."""

    id: str
    size: int
    ends: float


_entries = msgspec.json.Decoder(list[_Entry]).decode
_encode = msgspec.json.encode


class LargeResults:
    """The results of one mounted server that are larger than a budget."""

    def __init__(self, budget: int, whose: str) -> None:
        """`whose` names the mount, and is the same on every replica."""
        self.budget = budget
        self.place: str = hashlib.sha256(whose.encode()).hexdigest()[:16]

    def with_budget(self, budget: int) -> LargeResults:
        """Return the same place with another budget."""
        made = LargeResults(budget, "")
        made.place = self.place
        return made

    async def kept(self, call: Call, tool: ToolBase, result: Any) -> Any:
        """Return a result as it is, or its short form where it is too large."""
        if isinstance(result, Raw):
            if len(result) <= self.budget:
                return result
            encoded = bytes(result)
        elif isinstance(result, t.CallToolResult) or (isinstance(result, dict) and "content" in result):
            encoded = t.encode(result)
        else:
            return result  # A question, or a task.
        if len(encoded) <= self.budget:
            return result
        decoded = t.decode(t.CallToolResult, encoded)
        if call.mask is not None:
            # What a policy masks in an answer stays masked in the resource, whoever reads it.
            decoded = call.mask(decoded)
        return await self._shortened(call, tool, decoded)

    async def _shortened(self, call: Call, tool: ToolBase, result: t.CallToolResult) -> t.CallToolResult:
        texts = [each.text for each in result.content if isinstance(each, t.TextContent)]
        is_text = len(texts) == len(result.content) and texts
        whole = "\n".join(texts).encode() if is_text else t.encode(_without_meta(result))
        shown = "\n".join(texts).encode()[: max(self.budget - _ROOM, 0)].decode(errors="ignore")
        content: list[Any] = [t.TextContent(shown)] if shown else []
        identifier = await _keep(call, whole, "text/plain" if is_text else "application/json")
        said = f"The result has {len(whole)} bytes, and {self.budget} are allowed."
        if identifier is None:
            content.append(t.TextContent(f"[{said} The rest is left out. Ask for less.]"))
        else:
            uri = f"{SCHEME}://{self.place}/{identifier}"
            minutes = round(KEPT_SECONDS / 60)
            content.append(t.TextContent(f"[{said} All of it is the resource {uri}, for {minutes} minutes.]"))
            content.append(
                t.ResourceLink(
                    uri=uri,
                    name=f"result of {tool.name}"[:200],
                    mime_type="text/plain" if is_text else "application/json",
                    size=len(whole),
                )
            )
        # 2025-06-18 server/tools: a tool with an output schema has structured content, unless the call failed.
        failed = result.is_error is True or tool.output_schema is not None
        meta = result.meta if result.meta is not UNSET and len(t.encode(result.meta)) <= _ROOM else UNSET
        return t.CallToolResult(content=content, is_error=True if failed else UNSET, meta=meta)


def _without_meta(result: t.CallToolResult) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(t.encode(result), type=dict[str, Raw])
    members.pop("_meta", None)
    members.pop("resultType", None)
    return members


class KeptResult(ResourceTemplate):
    """The resources that are the whole of large results. They are in no list."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{SCHEME}://{place}/{{id}}", _read_here, name="large results", screen=False)

    async def read(self, call: Call, uri: str, variables: dict[str, str]) -> list[t.ResourceContents]:
        held = await _kept(call.host.stores.kv, _owner(call), variables["id"])
        if held is None:
            # The same for a result of somebody else.
            raise ResourceNotFound()
        mime_type, _, text = held.partition(b"\n")
        return [t.ResourceContents(uri=uri, mime_type=mime_type.decode(), text=text.decode(errors="replace"))]


async def _read_here(id: str) -> str:
    """Stand for the function of the template."""
    raise ToolError("This resource is read from the store")


def _owner(call: Call) -> str:
    who = principal_key(call.principal) or "nobody"
    return f"large-results/{who}"


async def _kept(kv: KV, owner: str, identifier: str) -> bytes | None:
    if len(identifier) != 32 or not identifier.isalnum():
        return None
    return await kv.get(f"{owner}/{identifier}")


async def _keep(call: Call, whole: bytes, mime_type: str) -> str | None:
    """Keep a result for its caller; return its id, or None where there is no room for it."""
    if len(whole) > MAX_KEPT_BYTES:
        return None
    kv, owner, identifier = call.host.stores.kv, _owner(call), os.urandom(16).hex()
    try:
        gone = await _make_room(kv, owner, _Entry(identifier, len(whole), time.time() + KEPT_SECONDS))
        if gone is None:
            return None
        for each in gone:
            await kv.delete(f"{owner}/{each.id}")
        await kv.put(f"{owner}/{identifier}", mime_type.encode() + b"\n" + whole, ttl=KEPT_SECONDS)
    except (StoreFull, StoreFailed) as error:
        log.warning("a large result cannot be kept: %s", error)
        return None
    return identifier


async def _make_room(kv: KV, owner: str, new: _Entry) -> list[_Entry] | None:
    """Write a result into the list of its caller; return those that have to go for it, or None where it cannot be."""
    for _ in range(_ATTEMPTS):
        known = await kv.get(owner)
        now = time.time()
        entries = [] if known is None else [each for each in _entries(known) if each.ends > now]
        gone: list[_Entry] = []
        while entries and (len(entries) >= MAX_KEPT or sum(each.size for each in entries) + new.size > MAX_KEPT_BYTES):
            gone.append(entries.pop(0))
        value = _encode([*entries, new])
        if await kv.put(owner, value, ttl=KEPT_SECONDS, if_absent=known is None, expect=known):
            return gone
    return None
