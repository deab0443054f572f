"""URIs that results of an upstream name, and that no list has: links, embedded resources, views."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

import msgspec
from msgspec import Raw

from toolwire.gateway.uris import UriNames
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.skills import SKILL_FILE
from toolwire.server.call import Call
from toolwire.server.kept_results import is_kept_result
from toolwire.server.named_uris import MAX_URIS, NamedUris
from toolwire.server.replay_state import limit_key, principal_key
from toolwire.stores import MemoryKV, Stores

if TYPE_CHECKING:
    from toolwire.server.kernel import Kernel

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: For how many seconds the other replicas know who named a URI.
LINK_SECONDS: Final = 3600.0
_SETTLE_SECONDS: Final = 0.2
#: How deep the files of an unlisted skill lie at most.
MAX_DEPTH: Final = 8
_SKILL: Final = "skill://"
# Two upstreams named a URI. No upstream has this key.
_SEVERAL: Final = b""
_WEB: Final = frozenset(("http", "https"))


class _Ui(msgspec.Struct):
    resource_uri: str = msgspec.field(default="", name="resourceUri")


class _Meta(msgspec.Struct):
    ui: _Ui | None = None


class _Block(msgspec.Struct):
    uri: str = ""
    resource: _Block | None = None


class _Message(msgspec.Struct):
    content: _Block | None = None


class _Result(msgspec.Struct):
    """The members of results in which the protocol has URIs."""

    content: list[_Block] = []
    contents: list[_Block] = []
    resources: list[_Block] = []
    messages: list[_Message] = []
    skill: _Block | None = None
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


_decode = msgspec.json.Decoder(_Result).decode


#: Every result that names URIs has this text, as the end of `"uri"` or `"resourceUri"`.
URI_MARK: Final = b'ri"'


class LinkedUris:
    """The URIs that an upstream named to each caller. It alone is asked for them."""

    def __init__(self, names: UriNames, find_key: Callable[[], str]) -> None:
        """`find_key` returns what stands for the name of the upstream, on every replica and whatever its address is."""
        self._names = names
        self._find_key = find_key
        self._writing: set[asyncio.Task[None]] = set()
        #: The writes of secret URIs. A result waits for them: another replica may get its URI at once, and would ask a
        #: server for it that has a wide template.
        self.urgent: set[asyncio.Task[None]] = set()

    @property
    def key(self) -> str:
        """Return the text that stands for the name of the upstream."""
        return self._find_key()

    def remember(self, call: Call, raw: Raw) -> None:
        """Remember the URIs that a result names to its caller."""
        try:
            found = [uri for uri in _uris(_decode(raw)) if uri][-MAX_URIS:]
        except (msgspec.DecodeError, RecursionError):
            return
        if not found:
            return
        caller, key, known = limit_key(call), self.key, _known_to(call)
        for uri in map(self._names.public, found):
            if known.add(key, caller, digest(uri)) and not isinstance(call.host.stores.kv, MemoryKV):
                task = asyncio.get_running_loop().create_task(self._share(call.host.stores, _link_key(call, uri)))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)
                if may_be_secret(uri):
                    self.urgent.add(task)
                    task.add_done_callback(self.urgent.discard)
            if is_kept_result(uri):
                kernel = cast("Kernel", call.host)
                if (judgement := kernel.judge_result(call)) is not None:
                    kernel.judgements.keep_result(principal_key(call.principal), uri, judgement)

    async def wait_for_writes(self) -> None:
        """Wait until the other replicas know the secret URIs that were named."""
        if self.urgent:
            await asyncio.wait(set(self.urgent))

    async def _share(self, stores: Stores, key: str) -> None:
        """Tell the other replicas that the upstream named a URI."""
        own = self.key.encode()
        try:
            if await stores.kv.put(key, own, ttl=LINK_SECONDS, if_absent=True) or await stores.kv.get(key) == own:
                return
            await stores.kv.put(key, _SEVERAL, ttl=LINK_SECONDS)
        except ToolwireError as error:
            log.warning("a linked URI can be read by this process only: %s", error)

    def has(self, call: Call, uri: str) -> bool:
        """Return whether the upstream named a URI to the caller."""
        return _known_to(call).has(self.key, limit_key(call), _digests(uri))


def find_namers(call: Call, uri: str) -> set[str]:
    """Return the keys of the upstreams that named a URI to the caller here, also of those that are gone."""
    return _known_to(call).find(limit_key(call), _digests(uri))


async def find_link(call: Call, uri: str) -> str | None:
    """Return the key of the upstream that named a URI to the caller at another replica; None if there is none."""
    kv = call.host.stores.kv
    if isinstance(kv, MemoryKV):
        return None
    for pause in (0.0, _SETTLE_SECONDS):
        # The record may be written at the moment in which this process reads it.
        await asyncio.sleep(pause)
        for each in _named_with(uri):
            found = await kv.get(_link_key(call, each))
            if found is not None:
                return found.decode()
    return None


async def is_link_of_another(call: Call, uri: str, key: str) -> bool:
    """Return whether another upstream alone named a URI to the caller, at any replica."""
    kv = call.host.stores.kv
    found = None if isinstance(kv, MemoryKV) else await kv.get(_link_key(call, uri))
    return found is not None and found not in (_SEVERAL, key.encode())


def _known_to(call: Call) -> NamedUris:
    return cast("Kernel", call.host).named_uris


def _digests(uri: str) -> list[str]:
    return [digest(each) for each in _named_with(uri)]


def _named_with(uri: str) -> Iterator[str]:
    """Yield the URIs that name a URI: itself, and those of the skills that it may be a file of."""
    yield uri
    above = uri if uri.startswith(_SKILL) else ""
    for _ in range(MAX_DEPTH):
        above = above.rpartition("/")[0]
        if len(above) < len(_SKILL):
            return
        yield f"{above}/{SKILL_FILE}"


def _link_key(call: Call, uri: str) -> str:
    # Not `toolwire:link:`, whose records of earlier versions name upstreams by other keys.
    return f"toolwire:link2:{cast('Kernel', call.host).server.name}:{digest(limit_key(call), uri)}"


def _uris(result: _Result) -> Iterator[str]:
    blocks = [*result.content, *result.contents, *result.resources]
    blocks += [each.content for each in result.messages if each.content is not None]
    for block in blocks:
        yield block.uri
        if block.resource is not None:
            yield block.resource.uri
    if result.skill is not None:
        yield result.skill.uri
    if result.meta is not None and result.meta.ui is not None:
        yield result.meta.ui.resource_uri


def origin_of(uri: str) -> str:
    """Return what URIs of one upstream have in common: the scheme, and on the web the host."""
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    return f"{scheme}://{rest.lstrip('/').partition('/')[0].lower()}" if scheme in _WEB else scheme


def may_be_secret(uri: str) -> bool:
    """Return whether a URI is one of the web, or may hold a signature or a password."""
    return "?" in uri or "@" in uri or uri.partition(":")[0].lower() in _WEB
