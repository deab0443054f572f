"""Pins of a server that mounts others: a tool whose definition nobody approved does not come through.

A server can change what a tool does, or what its description tells the model, after somebody has looked at it and
agreed. The approved definitions are in a store, so that they outlive the process and every replica has the same.

Each definition is judged by itself. A server may list a tool in another form for some callers: those with an account,
a session, or fewer capabilities. Such a variant is withheld from them, and from no other caller, until it is approved
beside the definition for all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, structs

from toolwire.protocol.errors import BAD_JSON, ServerError
from toolwire.protocol.tool_changes import Change, Definition, changes, complete_definition, digest_of, is_same_json
from toolwire.stores import KV, StoreFailed, StoreFull, Stores
from toolwire.util.single_flight import SingleFlight

log: logging.Logger = logging.getLogger("toolwire.server")

#: How many seconds pass between two reads of the store for a list of tools, unless a tool waits for an approval.
FRESH_SECONDS: Final = 1.0
#: How many tools of one server wait for an approval at most. Further ones are withheld, and are not kept.
MAX_WAITING: Final = 1000
#: How many variants of one tool are approved, and how many wait for an approval. A new one evicts the oldest.
MAX_VARIANTS: Final = 8
#: The reason for a tool before the approvals were read.
UNKNOWN: Final = "It is not known yet whether this tool was approved. Try again in a moment."
_ATTEMPTS: Final = 8
# Also a digest that was copied in part or written in capitals: it is not the end of a name.
_DIGEST_FORM: Final = re.compile(r"[0-9a-fA-F]+")


class Quarantined(Struct, frozen=True):
    """A tool that waits for an approval: the definition that was approved, and the one that the server lists now.

    A tool that some callers see in other forms may be there several times.
    """

    tool: str
    before: Definition | None
    """None for a tool that is new."""
    after: Definition
    digest: str
    """A text that stands for the new definition."""

    @property
    def changes(self) -> list[Change]:
        """The differences of the two definitions; empty for a new tool."""
        return [] if self.before is None else changes(self.tool, self.before, self.after)


class ListedTool(NamedTuple):
    """A tool in a list of a mounted server."""

    name: str
    definition: Definition
    is_for_all: bool
    """Whether the list is for all callers, and not for some of them."""


#: Further definitions of tools, for some callers, the oldest first.
Variants: TypeAlias = dict[str, list[Definition]]


class _Record(Struct):
    """The definitions of one server, as the store has them."""

    approved: dict[str, Definition] = {}
    waiting: dict[str, Definition] = {}
    variants: Variants = {}
    """Approved for lists that are not for all callers, beside `approved`."""
    waiting_variants: Variants = {}
    """Those that this process or another one has listed. They stay when such a list is gone."""

    def each_waiting(self) -> Iterator[tuple[str, Definition]]:
        yield from self.waiting.items()
        for name, variants in self.waiting_variants.items():
            yield from ((name, each) for each in variants)

    def approves(self, tool: ListedTool) -> bool:
        definition = tool.definition
        if is_same_json(self.approved.get(tool.name), definition):
            return True
        return not tool.is_for_all and _has(self.variants.get(tool.name, ()), definition)


_read = msgspec.json.Decoder(_Record).decode


class ToolPins:
    """The approved definitions of the tools of mounted servers.

    They are in the stores of the server that mounts, or in `stores`, which is a path or an address as that of
    `Server(stores=)`. The first list of a server is approved as it is, unless `approve_first` is False. A tool that
    changes later, or is new, is in no list, and calls of it are refused, until somebody approves it.
    """

    def __init__(self, stores: Stores | str | os.PathLike[str] | None = None, *, approve_first: bool = True) -> None:
        self._given = stores
        self._own: Stores | None = None
        self._approve_first = approve_first
        self._books: dict[str, PinBook] = {}

    def book(
        self, host: str, server: str, stores: Callable[[], Stores], changed: Callable[[], None] | None = None
    ) -> PinBook:
        """Return the pins of a server that is mounted in another.

        `changed` is called when other tools come through than before.
        """
        book = PinBook(host, server, lambda: self._kv(stores), self._approve_first, changed)
        self._books[server] = book
        return book

    def forget(self, server: str, book: PinBook) -> None:
        """Let go of a server that is mounted no longer. Its approvals stay in the store."""
        if self._books.get(server) is book:
            del self._books[server]

    def _kv(self, stores: Callable[[], Stores]) -> KV:
        if self._given is None:
            return stores().kv
        if self._own is None:
            from toolwire.stores.by_address import open_stores

            self._own = self._given if isinstance(self._given, Stores) else open_stores(self._given)
        return self._own.kv

    @property
    def has_stores(self) -> bool:
        """Return whether the pins have a store of their own."""
        return self._given is not None

    async def load(self, server: str) -> None:
        """Read what another process wrote of a mounted server."""
        book = self._books.get(server)
        if book is not None:
            await book.load()

    def quarantined(self, server: str) -> list[Quarantined]:
        """Return the tools of a mounted server that wait for an approval."""
        book = self._books.get(server)
        return [] if book is None else book.quarantined()

    async def approve(self, server: str, *tools: str) -> list[str]:
        """Approve tools of a mounted server as it lists them now, or all of them; return their names.

        `name@digest` approves the definition with that digest and no other one. A name that itself ends with `@` and
        hexadecimal digits needs its digest.
        """
        book = self._books.get(server)
        if book is None:
            raise ServerError(f"No server {server!r} is mounted with these pins")
        return await book.approve(tools)


class PinBook:
    """The pins of one mounted server."""

    def __init__(
        self, host: str, server: str, kv: Callable[[], KV], approve_first: bool, changed: Callable[[], None] | None
    ) -> None:
        self._server = server
        self._key = f"tool-pins/{host}/{server}"
        self._kv = kv
        self._approve_first = approve_first
        self._changed = changed
        self._record: _Record | None = None
        """The record of the store; None before it was read."""
        self._stored: bytes | None = None
        self._is_new = False
        """Whether the store had no record when it was read."""
        self._withholds = False
        """Whether a tool of the newest lists waits for an approval."""
        self._read_at = float("-inf")
        self._saving = SingleFlight[None]()

    # --- what comes through ---

    def judge(self, listed: Sequence[ListedTool], is_read: bool = True) -> list[str | None]:
        """Return for each listed tool why it does not come through; None for one that does.

        `is_read` is False while the list of the server is not read: an unread list is not an empty one.
        """
        record = self._record
        if record is None or (not listed and not is_read):
            return [UNKNOWN for _ in listed]
        by_name: dict[str, list[ListedTool]] = {}
        for each in sorted(listed, key=lambda each: not each.is_for_all):
            by_name.setdefault(each.name, []).append(each)
            self._complete(record, each)
        if self._is_new and self._approve_first and not record.approved:
            # An empty list is a first list, too: what is listed after it is new.
            self._is_new = False
            record.approved = {name: tools[0].definition for name, tools in by_name.items()}
            self._save_soon()
        reasons = [None if record.approves(each) else _reason(record, each) for each in listed]
        self._withholds = any(reasons)
        self._keep_waiting(record, by_name)
        return reasons

    def _complete(self, record: _Record, tool: ListedTool) -> None:
        """Complete an approval of an earlier version: what it did not cover is approved as it is now."""
        approved = record.approved.get(tool.name)
        if approved is not None and "_meta" not in approved and not changes(tool.name, approved, tool.definition):
            record.approved[tool.name] = complete_definition(approved, tool.definition)
            self._save_soon()

    def _keep_waiting(self, record: _Record, by_name: dict[str, list[ListedTool]]) -> None:
        """Take note of the definitions that wait for an approval."""
        waiting: dict[str, Definition] = {}
        variants: Variants = {}
        for name, tools in by_name.items():
            refused = [each for each in tools if not record.approves(each)]
            is_listed = any(is_same_json(record.approved.get(name), each.definition) for each in tools)
            if refused and (refused[0].is_for_all or not is_listed) and len(waiting) < MAX_WAITING:
                waiting[name] = refused[0].definition
            known = [each for each in record.waiting_variants.get(name, ()) if not _has_approved(record, name, each)]
            found = _joined(known, (each.definition for each in refused if not each.is_for_all), waiting.get(name))
            if found and sum(map(len, variants.values())) < MAX_WAITING:
                variants[name] = found
        if is_same_json(waiting, record.waiting) and is_same_json(variants, record.waiting_variants):
            return
        for name in waiting.keys() - record.waiting.keys():
            what = "has changed" if name in record.approved else "is new"
            log.warning("the tool %r of %r %s and is withheld until it is approved", name, self._server, what)
        for name, found in variants.items():
            if not all(_has(record.waiting_variants.get(name, ()), each) for each in found):
                text = (
                    "the tool %r of %r is another one for some callers and is withheld from them until it is approved"
                )
                log.warning(text, name, self._server)
        record.waiting, record.waiting_variants = waiting, variants
        self._save_soon()

    def quarantined(self) -> list[Quarantined]:
        """Return the tools that wait for an approval."""
        record = self._record or _Record()
        return [
            Quarantined(name, record.approved.get(name), definition, digest_of(definition))
            for name, definition in sorted(record.each_waiting(), key=lambda each: each[0])
        ]

    async def approve(self, tools: Iterable[str]) -> list[str]:
        """Approve tools that wait, or all of them; return their names."""
        await self.load()
        for _ in range(_ATTEMPTS):
            record = self._record or _Record()
            chosen = _chosen(self._server, record, list(tools))
            if await self._write(_approving(record, chosen)):
                if self._changed is not None:
                    self._changed()
                return list(dict.fromkeys(name for name, _ in chosen))
            await self.load()
        raise ServerError(f"The pins of {self._server!r} change all the time; try again")

    # --- the store ---

    async def load(self) -> None:
        """Read the record of the store, which another process may have changed."""
        stored = await self._kv().get(self._key)
        self._read_at = asyncio.get_running_loop().time()
        if stored == self._stored and self._record is not None:
            return
        # A broken record is not an empty one: otherwise breaking it would approve every tool again.
        self._record = _Record() if stored is None else _decoded(stored, self._server)
        self._stored, self._is_new = stored, stored is None
        if self._changed is not None:
            self._changed()

    async def _write(self, record: _Record) -> bool:
        """Write a record in place of the one that was read; return whether that still was the one there."""
        value = msgspec.json.encode(record, order="sorted")
        if not await self._kv().put(self._key, value, if_absent=self._stored is None, expect=self._stored):
            return False
        self._record, self._stored, self._is_new = record, value, False
        return True

    def _save_soon(self) -> None:
        with suppress(RuntimeError):  # The server does not run. `settle` writes it.
            self._saving.start(self._save)

    async def _save(self) -> None:
        record = self._record
        try:
            if record is not None and not await self._write(structs.replace(record)):
                # Another replica was first. Its approvals count.
                await self.load()
        except (StoreFull, StoreFailed) as error:
            log.warning("the pins of %r cannot be written: %s", self._server, error)

    # --- the follower of a mount ---

    @property
    def is_public(self) -> bool:
        return True

    async def wait_until_known(self) -> None:
        """Read the approvals before the first list is made."""
        try:
            await self.load()
        except (StoreFull, StoreFailed, ServerError) as error:
            log.warning(
                "the pins of %r cannot be read, so that none of its tools comes through: %s", self._server, error
            )

    def freshen(self) -> Any:
        """Look for approvals of other processes: always while a tool waits, otherwise after some time."""
        if (self._record is None or not self._withholds) and self._is_fresh():
            return None
        return self.wait_until_known()

    def _is_fresh(self) -> bool:
        return asyncio.get_running_loop().time() - self._read_at < FRESH_SECONDS


def _decoded(stored: bytes, server: str) -> _Record:
    try:
        return _read(stored)
    except BAD_JSON:
        raise ServerError(f"The pins of {server!r} in the store are damaged") from None


def _reason(record: _Record, tool: ListedTool) -> str:
    if tool.name not in record.approved:
        why = "was not approved yet"
    elif tool.is_for_all:
        why = "changed since it was approved"
    else:
        why = "is another one for you than the one that was approved"
    return f"This tool {why}. An operator of this server has to approve it."


def _has(definitions: Iterable[Definition], definition: Definition) -> bool:
    return any(is_same_json(each, definition) for each in definitions)


def _has_approved(record: _Record, name: str, definition: Definition) -> bool:
    return record.approves(ListedTool(name, definition, is_for_all=False))


def _joined(
    known: list[Definition], further: Iterable[Definition], besides: Definition | None = None
) -> list[Definition]:
    """Return different definitions, the newest ones where there are too many."""
    found = [each for each in known if not is_same_json(each, besides)]
    for each in further:
        if not is_same_json(each, besides) and not _has(found, each):
            found.append(each)
    return found[-MAX_VARIANTS:]


def _approving(record: _Record, chosen: list[tuple[str, Definition]]) -> _Record:
    """Return a record in which these definitions that waited are approved."""
    approved, variants = dict(record.approved), dict(record.variants)
    for name, definition in chosen:
        if record.waiting.get(name) is definition:
            approved[name] = definition
        else:
            variants[name] = _joined(variants.get(name, []), [definition])
    left: Variants = {}
    is_chosen = {id(definition) for _, definition in chosen}
    for name, waiting_variants in record.waiting_variants.items():
        found = [each for each in waiting_variants if id(each) not in is_chosen]
        if found:
            left[name] = found
    waiting = {name: each for name, each in record.waiting.items() if id(each) not in is_chosen}
    return _Record(approved, waiting, variants, left)


def _chosen(server: str, record: _Record, tools: list[str]) -> list[tuple[str, Definition]]:
    """Return the definitions to approve. Raise `ServerError` for a tool that does not wait."""
    if not tools:
        return list(record.each_waiting())
    return [found for each in tools for found in _find_waiting(server, record, each)]


def _find_waiting(server: str, record: _Record, text: str) -> list[tuple[str, Definition]]:
    """Return the waiting definitions that `NAME` or `NAME@DIGEST` means.

    The server chooses the names. A tool named `send@DIGEST` must not take the approval of a definition of `send`, so
    that what looks like a digest is one, and a name that ends like this needs the digest of its own definition.
    """
    waiting: dict[str, list[Definition]] = {}
    for each, definition in record.each_waiting():
        waiting.setdefault(each, []).append(definition)
    name, mark, digest = text.rpartition("@")
    if mark and not digest:
        raise ServerError(f"{text!r} has no digest behind the @: copy it from the list of what waits")
    is_digest = bool(mark) and _DIGEST_FORM.fullmatch(digest) is not None
    if text in waiting and not (is_digest or (mark and name in waiting)):
        return [(text, each) for each in waiting[text]]
    if mark and name in waiting and (is_digest or text not in waiting):
        found = [(name, each) for each in waiting[name] if digest_of(each) == digest]
        if not found:
            raise ServerError(f"The definition of {name!r} is another one now: look at it again")
        return found
    if text in waiting:
        raise ServerError(
            f"{text!r} may be the name of a tool, or a name with a digest: write {text + '@DIGEST'!r}, with the digest "
            "from the list of what waits"
        )
    known = ", ".join(map(repr, sorted(waiting))) or "none"
    raise ServerError(f"{text!r} of {server!r} waits for no approval; waiting: {known}")
