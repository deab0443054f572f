"""Pins of a server that mounts others: a tool whose definition nobody approved does not come through.

A server can change what a tool does, or what its description tells the model, after somebody has looked at it and
agreed. The approved definitions are in a store, so that they outlive the process and every replica has the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.protocol.errors import BAD_JSON, ServerError
from toolwire.protocol.tool_changes import Change, Definition, changes, complete_definition, digest_of, is_same_json
from toolwire.stores import KV, StoreFailed, StoreFull, Stores
from toolwire.util.single_flight import SingleFlight

log: logging.Logger = logging.getLogger("toolwire.server")

#: How many seconds pass between two reads of the store for a list of tools, unless a tool waits for an approval.
FRESH_SECONDS: Final = 1.0
#: How many tools of one server wait for an approval at most. Further ones are withheld, and are not kept.
MAX_WAITING: Final = 1000
_ATTEMPTS: Final = 8
# Also a digest that was copied in part or written in capitals: it is not the end of a name.
_DIGEST_FORM: Final = re.compile(r"[0-9a-fA-F]+")


class Quarantined(Struct, frozen=True):
    """A tool that waits for an approval: the definition that was approved, and the one that the server lists now."""

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


class _Record(Struct):
    """The definitions of one server, as the store has them."""

    approved: dict[str, Definition] = {}
    waiting: dict[str, Definition] = {}


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
        self._read_at = float("-inf")
        self._saving = SingleFlight[None]()

    # --- what comes through ---

    def not_approved(self, listed: Iterable[tuple[str, Definition]], is_read: bool = True) -> dict[str, str]:
        """Return the tools of a list that do not come through, each with the reason.

        A name may be there twice, because accounts get other lists. Then all of its definitions have to be approved.
        `is_read` is False while the list of the server is not read: an unread list is not an empty one.
        """
        tools: dict[str, Definition] = {}
        approved = {} if self._record is None else self._record.approved
        for name, definition in listed:
            if name in approved and "_meta" not in approved[name] and not changes(name, approved[name], definition):
                # An approval of an earlier version: what it did not cover is approved as it is now.
                approved[name] = complete_definition(approved[name], definition)
                self._save_soon()
            if is_same_json(tools.setdefault(name, definition), approved.get(name)):
                tools[name] = definition
        record = self._record
        if not tools and not is_read:
            return {}
        if record is None:
            return dict.fromkeys(tools, "It is not known yet whether this tool was approved. Try again in a moment.")
        if self._is_new and self._approve_first and not record.approved:
            # An empty list is a first list, too: what is listed after it is new.
            self._is_new = False
            record.approved = dict(tools)
            self._save_soon()
        refused = [name for name, each in tools.items() if not is_same_json(record.approved.get(name), each)]
        waiting = {name: tools[name] for name in refused[:MAX_WAITING]}
        if not is_same_json(waiting, record.waiting):
            for name in waiting.keys() - record.waiting.keys():
                what = "has changed" if name in record.approved else "is new"
                log.warning("the tool %r of %r %s and is withheld until it is approved", name, self._server, what)
            record.waiting = waiting
            self._save_soon()
        why = {True: "changed since it was approved", False: "was not approved yet"}
        return {
            name: f"This tool {why[name in record.approved]}. An operator of this server has to approve it."
            for name in refused
        }

    def quarantined(self) -> list[Quarantined]:
        """Return the tools that wait for an approval."""
        record = self._record or _Record()
        return [
            Quarantined(name, record.approved.get(name), definition, digest_of(definition))
            for name, definition in sorted(record.waiting.items())
        ]

    async def approve(self, tools: Iterable[str]) -> list[str]:
        """Approve tools that wait, or all of them; return their names."""
        await self.load()
        for _ in range(_ATTEMPTS):
            record = self._record or _Record()
            chosen = _chosen(self._server, record, list(tools))
            approved = {**record.approved, **{name: record.waiting[name] for name in chosen}}
            waiting = {name: each for name, each in record.waiting.items() if name not in chosen}
            if await self._write(_Record(approved, waiting)):
                if self._changed is not None:
                    self._changed()
                return chosen
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
            if record is not None and not await self._write(_Record(record.approved, record.waiting)):
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
        if (self._record is None or not self._record.waiting) and self._is_fresh():
            return None
        return self.wait_until_known()

    def _is_fresh(self) -> bool:
        return asyncio.get_running_loop().time() - self._read_at < FRESH_SECONDS


def _decoded(stored: bytes, server: str) -> _Record:
    try:
        return _read(stored)
    except BAD_JSON:
        raise ServerError(f"The pins of {server!r} in the store are damaged") from None


def _chosen(server: str, record: _Record, tools: list[str]) -> list[str]:
    """Return the names of the tools to approve. Raise `ServerError` for one that does not wait."""
    return [_find_waiting(server, record, each) for each in tools] or list(record.waiting)


def _find_waiting(server: str, record: _Record, text: str) -> str:
    """Return the name of the waiting tool that `NAME` or `NAME@DIGEST` means.

    The server chooses the names. A tool named `send@DIGEST` must not take the approval of a definition of `send`, so
    that what looks like a digest is one, and a name that ends like this needs the digest of its own definition.
    """
    name, mark, digest = text.rpartition("@")
    if mark and not digest:
        raise ServerError(f"{text!r} has no digest behind the @: copy it from the list of what waits")
    is_digest = bool(mark) and _DIGEST_FORM.fullmatch(digest) is not None
    if text in record.waiting and not (is_digest or (mark and name in record.waiting)):
        return text
    if mark and name in record.waiting and (is_digest or text not in record.waiting):
        if digest != digest_of(record.waiting[name]):
            raise ServerError(f"The definition of {name!r} is another one now: look at it again")
        return name
    if text in record.waiting:
        raise ServerError(
            f"{text!r} may be the name of a tool, or a name with a digest: write {text + '@DIGEST'!r}, with the digest "
            "from the list of what waits"
        )
    known = ", ".join(map(repr, sorted(record.waiting))) or "none"
    raise ServerError(f"{text!r} of {server!r} waits for no approval; waiting: {known}")
