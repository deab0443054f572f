"""`OAuth`: what a client gives as `auth=` to sign in where a server wants it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from toolwire.auth.client.grants import Grant
from toolwire.auth.client.guarded import OnFetch
from toolwire.auth.client.login import Announce, Login
from toolwire.auth.client.records import SignInRecords
from toolwire.auth.client.settings import OAuthSettings
from toolwire.auth.client.sign_in import SignIn
from toolwire.auth.client.signing import PrivateKey
from toolwire.auth.client.storage import MemoryStorage, Storage
from toolwire.auth.client.token_source import TokenSource
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.authorization import check_redirect_uri, query_parameters
from toolwire.auth.flow.clients import Naming, Registration, check_metadata_url
from toolwire.auth.flow.scopes import clean_scopes
from toolwire.auth.flow.urls import checked_issuers, is_loopback_host, without_query
from toolwire.util.text_lists import text_list

#: How long a person may take to sign in.
LOGIN_SECONDS: Final = 300.0


class OAuth:
    """Signs in at the first challenge of a server and refreshes the tokens.

    One object serves any number of servers.

    Without arguments it registers itself where it may, opens the browser of this machine, and remembers tokens until
    the program ends.

    * `storage`: where tokens and registrations outlive the program: `FileStorage(folder)`, or any object with `load`
      and `save`. An object with `lock` may be shared by several processes.
    * `login`: `"browser"`, an `async` function that is given the URL to open and gives back the address that the
      browser was sent to, or None to raise `NeedsLogin` instead. So does `"browser"` where there is none.
    * `announce`: a function that is given the URL before the browser opens, so that a person can open it by hand. With
      it, `"browser"` waits for the person also where there is no browser.
    * `client_id`, `client_secret`, `issuer`: a client that was registered by hand, and the authorization server it is
      for. Without `issuer` the first one that a server names is it from then on.
    * `client_metadata_url`: the URL of the client ID metadata document of the application.
    * `client_key`: proves who such a client is, instead of a secret (`private_key_jwt`).
    * `redirect_uri`: where the browser comes back to; by default a free port of this machine.
    * `scopes`: what to ask for instead of all that the server lists.
    * `grant`: sign in without a person: `ClientCredentials`, `WorkloadIdentity`, `EnterpriseManaged`.
    * `dpop`: bind tokens to a key (RFC 9449), and accept only bound ones.
    * `trusted_hosts`: hosts of authorization servers that may be at private addresses, or behind a proxy.
    * `accept_issuer`: issuers that a server names, each with the other issuer that the metadata found there may name,
      such as `{"https://login.example.com": "https://tenant.login.example.com"}`. Without it such metadata is refused.
    * `parameters`: more of them for the authorization request, `{"audience": ...}` say.
    * `send_resource`: off for authorization servers that refuse resource indicators.
    * `default_endpoints`: take a server that publishes nothing to have the endpoints of 2025-03-26.
    * `on_fetch`: a function that is given every request to a metadata document or an authorization server, and its
      answer or failure, to find out why a sign-in fails. Both hold secrets.
    """

    def __init__(
        self,
        *,
        storage: Storage | None = None,
        login: Login = "browser",
        announce: Announce | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_key: PrivateKey | None = None,
        issuer: str | None = None,
        token_endpoint_auth_method: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Toolwire",
        client_uri: str | None = None,
        redirect_uri: str | None = None,
        scopes: Collection[str] = (),
        grant: Grant | None = None,
        dpop: bool = False,
        trusted_hosts: Collection[str] = (),
        accept_issuer: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
        send_resource: bool = True,
        default_endpoints: bool = False,
        login_timeout: float = LOGIN_SECONDS,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        on_fetch: OnFetch | None = None,
    ) -> None:
        if isinstance(scopes, str):
            raise ValueError("scopes= is a list of scopes, not a text")
        if client_secret is not None and client_id is None:
            raise ValueError("client_secret= needs client_id=")
        if grant is not None and client_id is not None:
            raise ValueError("a grant has a client of its own: use grant= or client_id=")
        if (
            login == "browser"
            and redirect_uri is not None
            and not is_loopback_host(urlsplit(redirect_uri).hostname or "")
        ):
            raise ValueError(
                "a browser can only come back to this machine: redirect_uri= is on localhost, or login= differs"
            )
        if client_key is not None and (client_secret is not None or not (client_id or client_metadata_url)):
            raise ValueError("client_key= is for client_id= or client_metadata_url=, instead of client_secret=")
        metadata_url = None if client_metadata_url is None else check_metadata_url(client_metadata_url)
        self._settings = OAuthSettings(
            naming=Naming(client_name, client_uri, metadata_url),
            client=None if client_id is None else Registration(client_id, client_secret, token_endpoint_auth_method),
            key=client_key,
            issuer=issuer,
            scopes=clean_scopes(scopes),
            login=login,
            announce=announce,
            redirect_uri=None if redirect_uri is None else check_redirect_uri(redirect_uri),
            login_seconds=login_timeout,
            grant=grant,
            dpop=dpop,
            send_resource=send_resource,
            default_endpoints=default_endpoints,
            trusted_hosts=text_list(trusted_hosts, "trusted_hosts="),
            accept_issuer=checked_issuers(accept_issuer or {}),
            parameters=dict(parameters or {}),
            tls=tls,
            clock=clock,
            on_fetch=on_fetch,
        )
        self._records = SignInRecords(MemoryStorage() if storage is None else storage)
        self._servers: dict[str, SignIn] = {}

    def at(self, server_url: str) -> SignIn:
        """Return the authorization for one server, by its URL.

        Clients call this themselves.
        """
        key = without_query(server_url)
        found = self._servers.get(key)
        if found is None:
            found = self._servers[key] = SignIn(TokenSource(self._settings, self._records, key))
        return found

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return await self.at(url).headers(method, url)

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        return await self.at(url).challenged(method, url, status, headers)

    async def finish(self, answer: str) -> None:
        """Finish a sign-in that began with `NeedsLogin`, here or in another process.

        `answer` is the address that the browser was sent to. Another process needs the same storage.
        """
        parameters = query_parameters(answer.strip())
        attempt = await self._records.pop_attempt(parameters.get("state", ""))
        if attempt is None:
            raise SignInFailed("The answer belongs to no sign-in that is under way")
        await self.at(attempt.server_url).source.complete(attempt, parameters)

    async def forget(self, server_url: str) -> None:
        """Sign out of a server: its token is forgotten."""
        await self.at(server_url).source.forget()
