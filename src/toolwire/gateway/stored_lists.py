"""`ListStore`: stores the lists of an upstream for its next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.gateway.remote_lists import RemoteLists
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.lifecycle.negotiation import Agreement
from toolwire.protocol.upstreams import GatewayMark
from toolwire.stores import KV

#: How long the stores keep the lists of an upstream that is not used.
KEPT_SECONDS: Final = 90 * 86_400.0
#: Longer lists are not stored: their upstream starts at once.
MAX_BYTES: Final = 4 * 1024 * 1024
#: How many seconds an upstream waits for the stores before it starts without them.
STORE_SECONDS: Final = 2.0
_FORM: Final = 1


class _Record(Struct, array_like=True):
    form: int
    revision: str
    capabilities: dict[str, Any]
    server: bytes
    instructions: str | None
    tools: list[bytes]
    prompts: list[bytes]
    resources: list[bytes]
    templates: list[bytes]
    skills: list[bytes]
    missing: list[str]
    gateways: list[GatewayMark]
    left_out: dict[str, str]
    ttl: float | None
    is_public: bool


_decode: Final = msgspec.msgpack.Decoder(_Record).decode


def encode_lists(agreement: Agreement, lists: RemoteLists) -> bytes:
    """Encode the lists and the agreement of an upstream for the stores."""

    def entries(items: Iterable[Any]) -> list[bytes]:
        return [t.encode(each) for each in items]

    return msgspec.msgpack.encode(
        _Record(
            form=_FORM,
            revision=agreement.revision,
            capabilities=agreement.capabilities,
            server=b"" if agreement.server is UNSET else t.encode(agreement.server),
            instructions=None if agreement.instructions is UNSET else agreement.instructions,
            tools=entries(lists.tools),
            prompts=entries(lists.prompts),
            resources=entries(lists.resources),
            templates=entries(lists.templates),
            skills=[bytes(each) for each in lists.skill_entries],
            missing=lists.missing,
            gateways=lists.gateways,
            left_out=lists.left_out,
            ttl=lists.ttl,
            is_public=lists.is_public,
        )
    )


def decode_lists(data: bytes, log: UpstreamLog) -> tuple[Agreement, RemoteLists]:
    """Return what `encode_lists` wrote. Raise `ValueError` for anything else."""
    record = _decode(data)
    if record.form != _FORM:
        raise ValueError("another version wrote it")
    agreement = Agreement(
        record.revision,
        record.capabilities,
        t.decode(t.Implementation, record.server) if record.server else UNSET,
        UNSET if record.instructions is None else record.instructions,
    )
    lists = RemoteLists()
    lists.tools = [t.decode(t.Tool, each) for each in record.tools]
    lists.prompts = [t.decode(t.Prompt, each) for each in record.prompts]
    lists.resources = [t.decode(t.Resource, each) for each in record.resources]
    lists.templates = [t.decode(t.ResourceTemplate, each) for each in record.templates]
    if record.skills:
        from toolwire.gateway.remote_skills import read_entries

        lists.skill_entries = [Raw(each) for each in record.skills]
        lists.skills = read_entries(log, lists.skill_entries)
    lists.missing, lists.gateways, lists.left_out = record.missing, record.gateways, record.left_out
    lists.ttl, lists.is_public = record.ttl, record.is_public
    return agreement, lists


class ListStore:
    """Reads and writes the record of one upstream."""

    def __init__(self, find_kv: Callable[[], KV], find_key: Callable[[], str], log: UpstreamLog) -> None:
        """`find_key` returns another key where another program or URL has other lists."""
        self._find_kv = find_kv
        self._find_key = find_key
        self._log = log
        self._written = b""
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def key(self) -> str:
        return self._find_key()

    @property
    def has_lists(self) -> bool:
        """Return whether the stores have lists for the next run."""
        return bool(self._written)

    async def read(self) -> tuple[Agreement, RemoteLists] | None:
        """Return the agreement and the lists of the last run; None if there are none."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                data = await self._find_kv().get(self.key)
            if data is None:
                return None
            found = decode_lists(data, self._log)
        except (ToolwireError, ValueError, TimeoutError) as error:
            self._log.warning("its lists cannot be read from the stores, so it starts: %s", error)
            return None
        self._written = data
        return found

    def write_soon(self, agreement: Agreement, lists: RemoteLists) -> None:
        """Store whole lists in the background."""
        if lists.is_partial:
            return
        data = encode_lists(agreement, lists)
        if len(data) > MAX_BYTES:
            self._log.warning("its lists have %d bytes, and are not stored: it starts with the gateway", len(data))
            return
        task = asyncio.get_running_loop().create_task(self._write(data))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, data: bytes) -> None:
        try:
            await self._find_kv().put(self.key, data, ttl=KEPT_SECONDS)
        except ToolwireError as error:
            self._log.warning("its lists cannot be stored: %s", error)
        else:
            self._written = data

    async def wait_for_writes(self) -> None:
        """Wait until all lists are stored."""
        if self._writing:
            await asyncio.wait(set(self._writing))
