"""Links to connect accounts: each for one user, and for one use.

A link is a random name. What it is for stands sealed in the store, so that any process serves it. Nothing follows from
having a link: the page behind it finds out who opens it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from toolwire.auth.browser import digest
from toolwire.auth.flow.scopes import Scopes
from toolwire.auth.vault.records import Owner
from toolwire.protocol.sealing import Sealer
from toolwire.redaction import repr_without
from toolwire.stores import KV
from toolwire.util.sealed import Sealed

#: For how many seconds a link is good.
LINK_SECONDS: Final = 600.0
#: A link is given out again while it is good for at least this long.
REUSED_SECONDS: Final = 120.0
#: How often the user of one link may begin to sign in, or enter a key.
MAX_TRIES: Final = 20


class Link(Struct, frozen=True):
    """The purpose of a link: its user, and the account to connect."""

    id: str
    owner: Owner
    name: str
    scopes: Scopes
    expires: float
    session: str = ""
    """The legacy session whose client is notified when the account is connected; empty for none."""
    identity: str = ""
    """The identity of the settings with which the link was opened. It connects nothing for other settings."""

    def __repr__(self) -> str:
        return repr_without(self, "id", "session")


class Pending(Struct, frozen=True):
    """A sign-in that began at a link, until the browser comes back."""

    link: str
    """The id of the link; empty for a user who wants to see their accounts."""
    browser: str
    """A digest of the cookie of the browser."""
    is_proven: bool
    """False while the user proves who they are; True while they connect the account."""
    memory: str
    expires: float
    proof: str = ""
    """The token with which the user proved who they are; empty while that is not done."""

    def __repr__(self) -> str:
        return repr_without(self, "link", "memory", "proof")


class PageForm(Struct, frozen=True):
    """A form on a page, bound to its link and to its browser."""

    link: str
    """The id of the link; empty on the page of a user's accounts."""
    browser: str
    is_proven: bool
    expires: float
    proof: str = ""
    """The token with which the user proved who they are; empty while that is not done."""

    def __repr__(self) -> str:
        return repr_without(self, "link", "proof")


class AccountForm(Struct, frozen=True):
    """A button on the page of a user's accounts, bound to user and browser."""

    owner: Owner
    name: str
    connects: bool
    """True to connect an account, False to forget it."""
    browser: str
    expires: float
    proof: str = ""
    """The token with which the user proved who they are."""
    identity: str = ""
    """The identity of the settings with which the page was shown."""

    def __repr__(self) -> str:
        return repr_without(self, "proof")


T = TypeVar("T", Link, Pending, PageForm, AccountForm)


class Links:
    """The links that are open, and the sign-ins that began there."""

    def __init__(self, kv: KV, sealer: Sealer, clock: Callable[[], float]) -> None:
        self.kv = kv
        self._clock = clock
        kinds: tuple[type[Any], ...] = (Link, Pending, PageForm, AccountForm)
        self._forms = {kind: Sealed[Any](sealer, kind, clock=lambda: self._clock()) for kind in kinds}
        # The id of the link that is open for a purpose.
        self._ids = Sealed(sealer, str, encode=str.encode, decode=bytes.decode)

    async def open(self, owner: Owner, name: str, identity: str, scopes: Scopes, session: str = "") -> str:
        """Return the id of a link.

        A link that is open for the same purpose is used again.
        """
        purpose = msgspec.json.encode([name, identity, *sorted(scopes)]).decode()
        opened = f"toolwire:vault:open:{owner.id}:{digest(purpose)}"
        known = self._ids.open(await self.kv.get(opened), opened.encode())
        if known is not None:
            link = await self.get(known)
            if link is not None and link.expires > self._clock() + REUSED_SECONDS:
                return link.id
        expires = self._clock() + LINK_SECONDS
        link = Link(secrets.token_urlsafe(32), owner, name, scopes, expires, session, identity)
        await self.kv.put(_link(link.id), self._sealed(link, link.id), ttl=LINK_SECONDS)
        await self.kv.put(opened, self._ids.seal(link.id, opened.encode()).encode(), ttl=LINK_SECONDS)
        return link.id

    async def get(self, identifier: str) -> Link | None:
        """Return a link that is open; None for any other."""
        return self._opened(await self.kv.get(_link(identifier)), identifier, Link)

    async def use(self, link: Link) -> bool:
        """Use a link up; return whether it was open until now, in all processes."""
        return await self.kv.delete(_link(link.id))

    async def may_try(self, link: Link) -> bool:
        """Count an attempt of the user of a link; return False for one too many."""
        return await self.kv.add(f"toolwire:vault:tries:{digest(link.id)}", 1, ttl=LINK_SECONDS) <= MAX_TRIES

    # --- sign-ins that began ---

    async def put_sign_in(self, state: str, pending: Pending) -> None:
        left = max(1.0, pending.expires - self._clock())
        await self.kv.put(_pending(state), self._sealed(pending, state), ttl=left)

    async def pop_sign_in(self, state: str) -> Pending | None:
        """Return and remove the sign-in with this state."""
        pending = self._opened(await self.kv.get(_pending(state)), state, Pending)
        return pending if pending is not None and await self.kv.delete(_pending(state)) else None

    # --- forms ---

    def write_form(self, form: PageForm | AccountForm) -> str:
        """Return the text that a form carries."""
        return self._sealed(form, "").decode()

    def read_form(self, text: str, kind: type[T]) -> T | None:
        """Open the form that a text carries.

        None for another kind of form, or one that is too old.
        """
        return self._opened(text.encode(), "", kind)

    # --- sealing ---

    def _sealed(self, value: Any, name: str) -> bytes:
        return self._forms[type(value)].seal(value, _context(type(value), name)).encode()

    def _opened(self, sealed: bytes | None, name: str, kind: type[T]) -> T | None:
        return self._forms[kind].open(sealed, _context(kind, name))


def elicitation_id(url: str) -> str:
    """Return the elicitation id of the question to open an address (2025-11-25)."""
    return digest(url)


def _link(identifier: str) -> str:
    # A digest, so that a person who reads the store has no links.
    return f"toolwire:vault:link:{digest(identifier)}"


def _pending(state: str) -> str:
    return f"toolwire:vault:pending:{digest(state)}"


def _context(kind: type[Any], name: str) -> bytes:
    return msgspec.json.encode(["vault", kind.__name__, name])
