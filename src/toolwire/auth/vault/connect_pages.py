"""The pages on which a user connects an account at another service.

The steps, each bound to the browser that began it:

1. The link shows what is to be connected. It does not show who asked.
2. The user proves who they are, in the way in which callers of the server do. A link that was made for another user
   ends here, so that a link which is sent around connects nothing (MCP security best practices, confused deputy; URL
   elicitation, identity verification).
3. The user signs in at the service, or enters a secret. The link is used up.

A link, a form and a sign-in are good for the settings with which they were opened: after the service behind a name was
changed, nothing is connected by them. Each step judges the user again, by the authorization that is in force.

At `/connect/` itself, users who sign in see their accounts, connect them before they are asked, and forget them.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from html import escape
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from toolwire.auth.browser import (
    NO_STORE,
    PAGE_HEADERS,
    BadPage,
    BrowserCookie,
    BrowserSignIn,
    PageResponse,
    SignedIn,
    SignInBegun,
    count_sign_in,
    digest,
    error_page,
    form_of,
    page,
    wait_page,
)
from toolwire.auth.errors import Refused, SignInFailed
from toolwire.auth.flow.authorization import Attempt
from toolwire.auth.flow.clients import Registration
from toolwire.auth.principal import Principal
from toolwire.auth.vault.kinds import UserSecret, checked_secret
from toolwire.auth.vault.links import LINK_SECONDS, AccountForm, Link, PageForm, Pending
from toolwire.auth.vault.providers import ProviderClient
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import FewerScopes, SettingsChanged, Vault
from toolwire.auth.verify.provider_limits import Throttled
from toolwire.auth.verify.verifier import InvalidToken, Unavailable
from toolwire.http.body import read_body
from toolwire.http.responses import HttpRefusal, respond
from toolwire.http1.asgi_types import Receive, Scope, SendMessage
from toolwire.protocol.errors import ServerError
from toolwire.protocol.sealing import TooLargeToSeal

log: logging.Logger = logging.getLogger("toolwire.auth")

ROOT: Final = "/connect/"
CALLBACK: Final = f"{ROOT}callback"
MAX_BODY: Final = 32 * 1024
BODY_SECONDS: Final = 10.0
#: The name of the server's own client at its authorization server. No credential has such a name.
_FRONT: Final = "\0front"
_NOT_ALLOWED: Final = "You are not allowed here, so nothing was connected"


class Identifies(Protocol):
    """The gate of the server, as far as pages need it."""

    async def identify(self, token: str, scope: Scope) -> Principal:
        """Return the principal of a token or a key; raise `HttpRefusal`."""

    def allows(self, principal: Principal) -> bool:
        """Return whether a principal is let in."""


class ConnectPages:
    """The pages at `/connect/`.

    `sign_in` proves who a user is; without one, the user enters the key of the server.
    """

    def __init__(self, vault: Vault, gate: Identifies, public_url: str, sign_in: BrowserSignIn | None) -> None:
        self._vault = vault
        self._links = vault.links
        self._gate = gate
        self._sign_in = sign_in
        self._public_url = public_url
        self._cookie = BrowserCookie("toolwire-connect", public_url, LINK_SECONDS)
        vault.connect_url = f"{public_url}{ROOT}"

    def is_for_browsers(self, path: str) -> bool:
        return path.startswith(ROOT)

    async def serve(
        self, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Answer a request for one of the pages; return False for any other."""
        is_callback = path.startswith(CALLBACK) or (self._sign_in is not None and path == self._sign_in.callback)
        if not is_callback and not path.startswith(ROOT):
            return False
        method = scope["method"]
        if path.startswith(ROOT) and method not in (("GET",) if is_callback else ("GET", "POST")):
            raise HttpRefusal(405, "This page does not know the method")
        try:
            if is_callback:
                answer = await self._came_back(path, scope, headers)
                if answer is None:
                    return False
            elif method == "GET":
                answer = await self._show(path.removeprefix(ROOT), headers)
            else:
                sent = form_of(await read_body(headers, receive, MAX_BODY, BODY_SECONDS))
                answer = await self._pressed(scope, headers, sent) if path == ROOT else None
                answer = answer or await self._sent(path.removeprefix(ROOT), scope, headers, sent)
        except BadPage as error:
            answer = 400, error_page(str(error)), PAGE_HEADERS
        except Throttled as error:
            answer = wait_page(error)
        except (InvalidToken, Unavailable, SignInFailed, TooLargeToSeal) as error:
            log.warning("an account was not connected: %s", error)
            answer = 400, error_page(_error_for_user(error)), PAGE_HEADERS
        await respond(send, *answer)
        return True

    # --- step 1: the link ---

    async def _show(self, identifier: str, headers: Mapping[str, str]) -> PageResponse:
        browser, cookie = self._cookie.given(headers)
        server = escape(self._vault.server_name)
        if identifier:
            link = await self._link(identifier)
            expires, title = link.expires, "Connect an account"
            name = escape(link.name)
            purpose = f"""<p><strong>{server}</strong> wants to use <strong>{name}</strong> in your name.</p>
<p class="warning">Go on only if you have just asked for this yourself.</p>"""
        else:
            expires, title = self._vault.clock() + LINK_SECONDS, "Your accounts"
            purpose = f"<p>See which accounts <strong>{server}</strong> may use in your name.</p>"
        form = self._links.write_form(PageForm(identifier, digest(browser), False, expires))
        proof = (
            "<p>First sign in to this server.</p>"
            if self._sign_in is not None
            else "<p>First enter the key with which you use this server.</p>"
            '<p><input type="password" name="key" autocomplete="off" required></p>'
        )
        body = f"""{purpose}
<form method="post">
<input type="hidden" name="page" value="{escape(form)}">
{proof}
<button>Continue</button>
</form>"""
        return 200, page(title, body), (*PAGE_HEADERS, cookie)

    async def _link(self, identifier: str) -> Link:
        link = await self._links.get(identifier)
        if link is None or link.name not in self._vault:
            raise BadPage("This link was used already, or is too old")
        if not _same(link.identity, self._vault.identity(link.name)):
            raise SettingsChanged(link.name)
        return link

    # --- step 2: who is it? ---

    async def _sent(
        self, identifier: str, scope: Scope, headers: Mapping[str, str], sent: Mapping[str, str]
    ) -> PageResponse:
        form = self._links.read_form(sent.get("page", ""), PageForm)
        browser = self._cookie.read_value(headers)
        if form is None or browser is None or not _same(digest(browser), form.browser) or form.link != identifier:
            raise BadPage("This page is no longer valid, or was opened in another browser")
        link = await self._link(identifier) if identifier else None
        if link is not None:
            if form.is_proven:
                await self._judge(link.owner, link.name, form.proof, scope)
                return await self._store_secret(link, sent.get("secret", ""))
            if not await self._links.may_try(link):
                raise BadPage("This link was tried too often")
        if self._sign_in is not None:
            if link is None:
                # This user was not asked to sign in.
                count_sign_in(scope)
            begun = await self._sign_in.begin_sign_in("" if link is None else link.owner.provider)
            return await self._go(begun, Pending(identifier, form.browser, False, begun.memory, form.expires))
        key = sent.get("key", "")
        return await self._proven(link, form.browser, SignedIn(await self._identify(key, scope), key))

    async def _identify(self, key: str, scope: Scope) -> Principal:
        """Return the user of a key that was entered."""
        try:
            return await self._gate.identify(key, scope)
        except HttpRefusal as refusal:
            if refusal.status == 429:
                wait = dict(refusal.headers).get(b"retry-after", b"1")
                raise Throttled("Too many keys were wrong", retry_after=float(wait)) from None
            wrong = refusal.status in (400, 401, 403)
            raise BadPage("The key is not valid here" if wrong else "The key cannot be checked now") from None

    async def _judge(self, owner: Owner, name: str, proof: str, scope: Scope) -> None:
        """Raise `BadPage` for a user whose access or right to connect was withdrawn."""
        if not proof:
            raise BadPage("This page is no longer valid")
        if self._sign_in is None:
            principal = await self._identify(proof, scope)
        else:
            principal = await self._sign_in.identify_again(proof)
        if not self._gate.allows(principal) or not _same(Owner.from_principal(principal).id, owner.id):
            raise BadPage(_NOT_ALLOWED)
        self._check_operator(owner, name)

    def _check_operator(self, owner: Owner, name: str) -> None:
        if not self._vault.may_connect(name, owner):
            raise BadPage(_NOT_ALLOWED)

    async def _go(self, begun: SignInBegun, pending: Pending) -> PageResponse:
        """Send the browser away to sign in, and remember why."""
        await self._links.put_sign_in(begun.state, pending)
        return 303, b"", (*NO_STORE, (b"location", begun.url.encode()))

    async def _came_back(self, path: str, scope: Scope, headers: Mapping[str, str]) -> PageResponse | None:
        """Process the answer with which a browser returns; None if it is for other pages."""
        came = form_of(scope.get("query_string", b""))
        pending = await self._links.pop_sign_in(came.get("state", ""))
        if pending is None:
            if not path.startswith(CALLBACK):
                return None
            raise BadPage("This sign-in was not begun here, or is finished, or was begun too long ago")
        browser = self._cookie.read_value(headers)
        if browser is None or not _same(digest(browser), pending.browser):
            raise BadPage("This sign-in was begun in another browser")
        link = await self._link(pending.link) if pending.link else None
        if path != self._callback(link.name if link is not None and pending.is_proven else None):
            raise BadPage("This answer is for another service")
        if link is not None and pending.is_proven:
            await self._judge(link.owner, link.name, pending.proof, scope)
            return await self._connected(link, pending.memory, came)
        assert self._sign_in is not None
        if "code" not in came:
            raise BadPage("You did not sign in, so nothing was connected")
        user = await self._sign_in.end_sign_in(pending.memory, came)
        if not self._gate.allows(user.principal):
            raise BadPage(_NOT_ALLOWED)
        return await self._proven(link, pending.browser, user)

    def _callback(self, name: str | None) -> str:
        """Return the path that a browser comes back to from a service.

        None as the name means the sign-in to this server. RFC 9700 section 4.4.2: each service has one of its own. So a
        service cannot have the code of another one sent to itself, by sending the browser on to it.
        """
        if name is not None:
            return f"{CALLBACK}/{name}"
        return CALLBACK if self._sign_in is None else self._sign_in.callback

    async def _proven(self, link: Link | None, browser: str, user: SignedIn) -> PageResponse:
        """Continue with the user of a link, and refuse other users.

        Without a link, show the accounts.
        """
        if link is None:
            return await self._accounts(_account_owner(user.principal), browser, user.proof)
        if not _same(Owner.from_principal(user.principal).id, link.owner.id):
            log.warning("a link for %r was opened by another user; nothing was connected", link.name)
            raise BadPage("You are not the user who asked for this page, so nothing was connected")
        self._check_operator(link.owner, link.name)
        return await self._proceed(link, browser, user.proof)

    async def _proceed(self, link: Link, browser: str, proof: str) -> PageResponse:
        """Continue with a user who is the owner of a link."""
        if isinstance(self._vault.kind(link.name), UserSecret):
            return self._ask_secret(link, browser, proof)
        redirect_uri = f"{self._public_url}{quote(self._callback(link.name))}"
        attempt = await self._vault.begin(link.name, redirect_uri, link.scopes, identity=link.identity)
        begun = SignInBegun(attempt.url, attempt.state, msgspec.json.encode(attempt).decode())
        return await self._go(begun, Pending(link.id, browser, True, begun.memory, link.expires, proof))

    # --- step 3: the account ---

    async def _connected(self, link: Link, memory: str, came: Mapping[str, str]) -> PageResponse:
        if "code" not in came:
            raise BadPage("The service did not agree, so nothing was connected")
        if not await self._links.use(link):
            raise BadPage("This link was used already")
        attempt = msgspec.json.decode(memory, type=Attempt)
        holder = self._vault.holder(link.name, link.owner)
        await self._vault.finish(link.name, holder, attempt, came, identity=link.identity)
        return self._done(link)

    def _ask_secret(self, link: Link, browser: str, proof: str) -> PageResponse:
        kind = self._vault.kind(link.name)
        hint = kind.hint if isinstance(kind, UserSecret) else ""
        form = self._links.write_form(PageForm(link.id, browser, True, link.expires, proof))
        body = f"""<p>Enter your key for <strong>{escape(link.name)}</strong>. {escape(hint)}</p>
<form method="post" action="{escape(f"{self._public_url}{ROOT}{link.id}")}">
<input type="hidden" name="page" value="{escape(form)}">
<p><input type="password" name="secret" autocomplete="off" required></p>
<button>Keep it</button>
</form>"""
        return 200, page("Enter a key", body), PAGE_HEADERS

    async def _store_secret(self, link: Link, secret: str) -> PageResponse:
        owner = self._vault.holder(link.name, link.owner)
        try:
            checked_secret(secret)
        except ServerError:
            raise BadPage("A key consists of visible characters, without spaces around it") from None
        if not await self._links.use(link):
            raise BadPage("This link was used already")
        await self._vault.store(link.name, owner, secret, identity=link.identity)
        return self._done(link)

    def _done(self, link: Link) -> PageResponse:
        log.info("an account for %r was connected", link.name)
        self._vault.tell_connected(link)
        done = "is connected. Close this page, and go back to the application."
        return 200, page("Connected", f"<p><strong>{escape(link.name)}</strong> {done}</p>"), PAGE_HEADERS

    # --- the accounts of a user ---

    async def _accounts(self, owner: Owner, browser: str, proof: str) -> PageResponse:
        """Show a user which accounts there are, and which could be."""
        rows = [
            self._row(name, owner, browser, proof, is_connected=is_connected)
            for name, is_connected in await self._vault.accounts(owner)
        ]
        body = "".join(rows) or "<p>There is no account that you could connect.</p>"
        return 200, page("Your accounts", body), PAGE_HEADERS

    def _row(self, name: str, owner: Owner, browser: str, proof: str, *, is_connected: bool) -> str:
        expires, identity = self._vault.clock() + LINK_SECONDS, self._vault.identity(name)
        buttons = [(True, "Connect again" if is_connected else "Connect")]
        if is_connected:
            buttons.append((False, "Disconnect"))
        forms = "".join(
            f"""<form method="post" action="{escape(f"{self._public_url}{ROOT}")}">
<input type="hidden" name="account"
 value="{escape(self._links.write_form(form))}">
<button>{text}</button></form>"""
            for form, text in (
                (AccountForm(owner, name, connects, browser, expires, proof, identity), text)
                for connects, text in buttons
            )
        )
        state = "connected" if is_connected else "not connected"
        return f"<dl><dt>{escape(name)}</dt><dd>{state}</dd></dl>{forms}"

    async def _pressed(self, scope: Scope, headers: Mapping[str, str], sent: Mapping[str, str]) -> PageResponse | None:
        """Do what a button on the page of accounts says; None without a button."""
        if "account" not in sent:
            return None
        form = self._links.read_form(sent["account"], AccountForm)
        browser = self._cookie.read_value(headers)
        if form is None or browser is None or not _same(digest(browser), form.browser) or form.name not in self._vault:
            raise BadPage("This page is no longer valid, or was opened in another browser")
        await self._judge(form.owner, form.name, form.proof, scope)
        if not form.connects:
            await self._vault.revoke(form.name, self._vault.holder(form.name, form.owner))
            return await self._accounts(form.owner, form.browser, form.proof)
        link = await self._link(await self._links.open(form.owner, form.name, form.identity, ()))
        if not await self._links.may_try(link):
            raise BadPage("This link was tried too often")
        return await self._proceed(link, form.browser, form.proof)


class _FrontAttempt(msgspec.Struct, frozen=True):
    """A sign-in to this server that has begun, and the identity of its settings."""

    identity: str
    attempt: Attempt


class ServerSignIn:
    """Signs users in at the authorization servers of callers, for the pages of this server."""

    callback: str = CALLBACK

    def __init__(self, vault: Vault, clients: Mapping[str, ProviderClient], gate: Identifies, public_url: str) -> None:
        """`clients` are those of this server, by the issuer of the authorization server.

        The first one is the usual one.
        """
        self._vault = vault
        self._clients = clients
        self._gate = gate
        self._redirect_uri = f"{public_url}{CALLBACK}"

    async def begin_sign_in(self, provider: str) -> SignInBegun:
        issuer = provider if provider in self._clients else next(iter(self._clients))
        at = self._clients[issuer]
        attempt = await at.begin(await self._registered(at), self._redirect_uri, ())
        memory = _FrontAttempt(at.provider.identity, attempt)
        return SignInBegun(attempt.url, attempt.state, msgspec.json.encode(memory).decode())

    async def end_sign_in(self, memory: str, parameters: Mapping[str, str]) -> SignedIn:
        try:
            begun = msgspec.json.decode(memory, type=_FrontAttempt)
        except msgspec.ValidationError:  # An earlier version began it.
            raise SettingsChanged(self._vault.server_name) from None
        at = next((each for each in self._clients.values() if each.provider.identity == begun.identity), None)
        if at is None:
            raise SettingsChanged(self._vault.server_name)
        response = await at.redeem(begun.attempt, await self._registered(at), parameters, None)
        return SignedIn(await self.identify_again(response.access_token), response.access_token)

    async def identify_again(self, proof: str) -> Principal:
        try:
            return await self._gate.identify(proof, {"type": "http", "method": "GET", "path": CALLBACK})
        except HttpRefusal as refusal:
            raise InvalidToken(f"The token of the user was refused with status {refusal.status}") from None

    async def _registered(self, at: ProviderClient) -> Registration:
        return await self._vault.registered(_FRONT, at, self._redirect_uri)


def _same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())


def _account_owner(principal: Principal) -> Owner:
    """Return the owner of a user's accounts; raise `BadPage` for a principal that strangers share."""
    if principal.is_shared:
        raise BadPage("You have no accounts here: the server does not know who you are")
    return Owner.from_principal(principal)


def _error_for_user(error: Exception) -> str:
    """Return the text that the user sees. What the provider said is only logged."""
    if isinstance(error, SettingsChanged):
        return "The settings changed after this page was opened, so nothing was connected. Open the link again"
    if isinstance(error, Refused):
        return "The service refused, so nothing was connected"
    if isinstance(error, TooLargeToSeal):
        return "What was sent here is too long, so nothing was connected"
    if isinstance(error, InvalidToken):
        return "You could not be signed in here, so nothing was connected"
    if isinstance(error, FewerScopes):
        return f"{error}. Nothing was connected"
    return "The service cannot be asked now, so nothing was connected. Try again later"
