"""Credentials for the caller of a request: obtained from the vault, or the caller is asked to connect an account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from toolwire.auth.errors import NotConnected, SignInFailed
from toolwire.auth.principal import token_of
from toolwire.auth.vault.kinds import Kind, ServerOAuth, UserOAuth, UserSecret
from toolwire.auth.vault.links import elicitation_id
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker, Credential, Vault
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolError, ToolwireError, Unauthorized, UrlRequired
from toolwire.protocol.revisions import supports
from toolwire.util.backoff import Backoff
from toolwire.wire.shares import is_distinct

if TYPE_CHECKING:
    from toolwire.server.call import Call

#: How many seconds a call waits for a user who has opened the page to connect an account.
FINISH_SECONDS: Final = 20.0
#: Tells a client that its user has finished a page (2025-11-25).
COMPLETE: Final = "notifications/elicitation/complete"

log: logging.Logger = logging.getLogger("toolwire.auth")


def asker_of(call: Call, vault: Vault) -> Asker:
    """Return the caller as the vault sees it. Without a principal, only the user of this process is somebody."""
    principal = call.principal
    if principal is None:
        return Asker(Owner.from_principal(None) if call.outlet.is_local else None)
    owner = Owner.from_principal(principal)
    return Asker(owner if is_distinct(principal) else None, principal, token_of(principal))


async def credential_for(
    call: Call,
    vault: Vault,
    name: str,
    *,
    scopes: tuple[str, ...] = (),
    refused: str | None = None,
    kind: Kind | None = None,
) -> Credential:
    """Return a credential for the caller. Raise `UrlRequired`, or `ToolError` with what the user has to do.

    `refused` is a token that the service has just refused. `kind` is that of `Vault.obtain`. No error says what the
    provider said, which the log has.
    """
    asker = asker_of(call, vault)
    try:
        return await _obtained(call, lambda: vault.obtain(name, asker, scopes=scopes, refused=refused, kind=kind))
    except NotConnected as missing:
        raise await connect_error(call, vault, missing) from missing
    except Unavailable as error:
        log.warning("the credential %r cannot be obtained now: %s", name, error)
        raise ToolError(f"The provider of {name!r} cannot be asked now; try again later") from None
    except SignInFailed as error:
        log.warning("the credential %r was refused: %s", name, error)
        raise ToolError(f"The provider gave no token for {name!r}") from None
    except Unauthorized as error:
        raise ToolError(error.message) from None


async def _obtained(call: Call, obtain: Callable[[], Awaitable[Credential]]) -> Credential:
    """Obtain a credential. A user who has agreed to open the page gets some time to finish there."""
    loop = asyncio.get_running_loop()
    last, pauses = loop.time() + (FINISH_SECONDS if _agreed(call) else 0.0), Backoff(longest=1.0)
    while True:
        try:
            return await obtain()
        except NotConnected:
            if loop.time() >= last:
                raise
        await asyncio.sleep(pauses.after(None))


def _agreed(call: Call) -> bool:
    """Return whether the user has just agreed to something: the answer of a round of 2026-07-28 says so.

    Clients answer when the user has opened a page, and not when the user is done there.
    """
    answers = getattr(call.params, "input_responses", UNSET)
    if not call.request.modern or answers is UNSET:
        return False
    return any(b'"accept"' in bytes(each) for each in answers.values())


async def connect_error(call: Call, vault: Vault, missing: NotConnected) -> ToolwireError:
    """Return the error that asks the caller to connect an account."""
    asker = asker_of(call, vault)
    kind = vault.kind(missing.name)
    if isinstance(kind, ServerOAuth):
        subject = None if asker.principal is None else asker.principal.subject
        # The user who started the process operates it.
        if not call.outlet.is_local and (asker.owner is None or subject not in kind.operators):
            return ToolError(f"An operator of this server has to connect {missing.name!r} first")
    assert asker.owner is not None
    link = await _link(call, vault, asker.owner, missing)
    if link is None:
        return ToolError(
            f"There is no account for {missing.name!r}, and this server has no page to connect one: "
            "over HTTP, it needs auth= and public_url="
        )
    text = f"Connect your account for {missing.name!r} first"
    if call.client_can("elicitation.url"):
        return UrlRequired(text, link, elicitation_id(link))
    return ToolError(f"{text}.\nOpen {link} and try again.")


async def _link(call: Call, vault: Vault, owner: Owner, missing: NotConnected) -> str | None:
    """Return the address at which the caller connects an account; None where there is none."""
    is_told = supports(call.revision, "elicitation_complete")
    if not call.outlet.is_local:
        session = call.session_id if is_told else None
        return await vault.connect_link(missing.name, owner, missing.scopes, session or "")
    url = await _local_link(vault, owner, missing)
    notify = getattr(call.outlet.connection, "notify", None) if is_told else None
    if url is not None and notify is not None:
        params = t.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id(url))
        vault.local_connections().on_connected[url] = partial(notify, COMPLETE, params)
    return url


async def _local_link(vault: Vault, owner: Owner, missing: NotConnected) -> str | None:
    """Return the address at which the user who started this process connects an account; None where there is none."""
    kind = vault.kind(missing.name)
    if not isinstance(kind, UserOAuth | ServerOAuth | UserSecret):
        return None
    try:
        if isinstance(kind, UserSecret):
            return await vault.local_connections().secret_url(missing.name, owner, kind.hint)
        return await vault.local_connections().url(missing.name, owner, missing.scopes)
    except (SignInFailed, Unavailable) as error:
        log.warning("the credential %r cannot be obtained now: %s", missing.name, error)
        raise ToolError(f"The provider of {missing.name!r} cannot be asked now; try again later") from None
