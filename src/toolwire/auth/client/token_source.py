"""The tokens of one client at one server: obtained, renewed, and kept across restarts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from msgspec import structs

from toolwire.auth.client.guarded import Fetcher
from toolwire.auth.client.login import open_door
from toolwire.auth.client.records import SignInRecord, SignInRecords
from toolwire.auth.client.settings import OAuthSettings
from toolwire.auth.client.signing import KeyCredentials, ProofKey
from toolwire.auth.errors import NeedsLogin, Refused, SignInFailed, quoted
from toolwire.auth.flow.authorization import Attempt, answer_parameters, begin, query_parameters, read_code
from toolwire.auth.flow.challenges import Challenge
from toolwire.auth.flow.clients import Credentials, Registration, published_client, register
from toolwire.auth.flow.discovery import discover, other_issuer
from toolwire.auth.flow.flows import exchange_code, refresh
from toolwire.auth.flow.metadata import Discovered
from toolwire.auth.flow.scopes import Scopes, clean_scopes, select_scopes, union, with_offline_access
from toolwire.auth.flow.tokens import Token, TokenResponse, make_token
from toolwire.auth.flow.urls import Reach
from toolwire.stores.leases import WORK_SECONDS
from toolwire.wire.deadlines import PersonTime

log: logging.Logger = logging.getLogger("toolwire.auth")

#: For how many seconds a sign-in is used before the storage is read again: another process may have signed out.
STORED_SECONDS: Final = 1.0
#: Refusals that may pass. Any other refusal of a refresh is final.
_PASSING: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class TokenSource:
    """The source of tokens for one server. It does one thing at a time."""

    def __init__(self, settings: OAuthSettings, records: SignInRecords, server_url: str) -> None:
        self.server_url = server_url
        self.person_time: PersonTime = PersonTime()
        self._settings = settings
        self._records = records
        self._reach = Reach(server_url, settings.named_hosts)
        self._record: SignInRecord | None = None
        self._loaded = False
        self._read_at = settings.clock()
        """The time at which the stored record was read or written."""
        self._proof_key: ProofKey | None = None
        #: Refreshes that run to their end, also when no caller waits for them.
        self._refreshes: set[asyncio.Task[bool]] = set()

    # --- what there is ---

    async def current(self) -> SignInRecord | None:
        """Return the sign-in, at most a second behind other processes; None without one."""
        if not self._loaded:
            stored = await self._records.record(self.server_url)
            if not self._loaded:
                self._adopt(stored)
        elif not self._read_at <= self._settings.clock() < self._read_at + STORED_SECONDS:
            await self._read_again()
        return self._record

    async def _read_again(self) -> None:
        """Use the stored sign-in, where another process replaced it, or signed out."""
        before, self._read_at = self._record, self._settings.clock()
        stored = await self._records.record(self.server_url)
        if self._record is not before:
            return  # This process has a newer one.
        if stored is None:
            self._record = None
        elif before is None or stored.token != before.token:
            self._adopt(stored)

    def is_due(self, record: SignInRecord) -> bool:
        """Return whether a token should be renewed and can be."""
        if record.token.fresh(self._settings.clock()):
            return False
        return self._settings.grant is not None or record.token.refresh_token is not None

    @property
    def proof_key(self) -> ProofKey:
        if self._proof_key is None:
            self._proof_key = ProofKey()
        return self._proof_key

    def learn_nonce(self, headers: Mapping[str, str]) -> bool:
        nonce = headers.get("dpop-nonce")
        if nonce is None or not self._settings.dpop:
            return False
        self.proof_key.learn(self.server_url, nonce)
        return True

    async def forget(self) -> None:
        """Forget the token, and a sign-in that is under way. The registration stays."""
        await self._records.discard_attempt(self.server_url)
        async with self._records.lock_record(self.server_url):
            self._record, self._loaded, self._read_at = None, True, self._settings.clock()
            await self._records.write_record(self.server_url, None)

    # --- how it changes; True where it took a new sign-in ---

    async def recover(self, challenge: Challenge | None, *, refreshing: bool) -> bool:
        """Get a token after a 401: find the issuer, then refresh, then ask a person."""
        async with self._fetcher() as fetcher:
            found = await self._discover(fetcher, challenge)
            record = self._record
            if record is not None and record.found.issuer != found.issuer:
                # 2026-07-28 basic/authorization/client-registration: nothing of the old server goes to the new one.
                log.info("%s takes tokens of %s now", self.server_url, quoted(found.issuer))
                record = None
            if refreshing and await self._refresh(record, found.issuer):
                return False
            challenged = challenge.scopes if challenge is not None else None
            scopes = select_scopes(challenged, found.scopes_supported, self._settings.scopes)
            await self._obtain(fetcher, found, union(record.token.scopes if record is not None else (), scopes))
        return True

    async def extend(self, challenge: Challenge, scopes: Scopes) -> bool:
        """Get a token with more scopes from the current authorization server, after an `insufficient_scope`."""
        async with self._fetcher() as fetcher:
            await self._obtain(fetcher, await self._discover(fetcher, challenge), scopes)
        return True

    async def renew(self) -> bool:
        """Renew a token before it expires, without a person."""
        record = self._record
        if record is not None:
            if self._settings.grant is None:
                await self._refresh(record)
                return False
            async with self._fetcher() as fetcher:
                await self._obtain(fetcher, record.found, record.token.scopes)
        return False

    async def finish(self, state: str, answer: str) -> None:
        """Finish a sign-in that began with `NeedsLogin`.

        `answer` is the address that the browser was sent to, or a code.
        """
        attempt = await self._records.pop_attempt(state)
        if attempt is None:
            raise SignInFailed("This sign-in is not under way any more; start again")
        await self.complete(attempt, answer_parameters(answer, attempt))

    async def complete(self, attempt: Attempt, parameters: Mapping[str, str]) -> None:
        await self.current()
        given = self._settings.client
        if given is not None and given.client_id == attempt.client.client_id:
            attempt = structs.replace(attempt, client=given)
        async with self._fetcher() as fetcher:
            await self._exchange(fetcher, attempt, parameters)

    # --- refreshing ---

    async def _refresh(self, record: SignInRecord | None, issuer: str | None = None) -> bool:
        """Get a newer token than that of `record`, without a person. Return whether that worked.

        With `issuer`, only a token of that issuer counts. A caller that gives up does not end the request: the answer
        may hold the only refresh token that is still valid.
        """
        if self._settings.grant is not None:
            return False
        task = asyncio.get_running_loop().create_task(self._refresh_alone(record, issuer))
        self._refreshes.add(task)
        task.add_done_callback(self._end_refresh)
        return await asyncio.shield(task)

    def _end_refresh(self, task: asyncio.Task[bool]) -> None:
        self._refreshes.discard(task)
        if not task.cancelled():
            task.exception()  # A caller that waits has it as well.

    async def _refresh_alone(self, record: SignInRecord | None, issuer: str | None) -> bool:
        """Refresh the stored token, as the only one of all processes that share the storage.

        A refresh token may be valid once (RFC 9700 section 4.14.2): the authorization server takes a second use for
        theft, and revokes all tokens of the sign-in.
        """
        async with self._records.lock_record(self.server_url):
            try:
                async with asyncio.timeout(WORK_SECONDS), self._fetcher() as fetcher:
                    return await self._refresh_locked(fetcher, record, issuer)
            except TimeoutError:
                raise SignInFailed(f"The refresh for {self.server_url} took more than {WORK_SECONDS:g} s") from None

    async def _refresh_locked(self, fetcher: Fetcher, record: SignInRecord | None, issuer: str | None) -> bool:
        stored = await self._records.record(self.server_url)
        if stored is None:
            if record is not None:
                self._record = None  # Another process has signed out.
            return False
        if issuer is not None and stored.found.issuer != issuer:
            return False
        if record is None or stored.token != record.token:
            # Another process has a newer token. Its refresh token is the valid one, also when the rest has expired.
            if not self._adopt(stored):
                return False
            if self._is_fresh():
                return True
        return await self._exchange_refresh_token(fetcher, stored)

    async def _exchange_refresh_token(self, fetcher: Fetcher, record: SignInRecord) -> bool:
        """Refresh the token; return whether that gave a new one.

        A final refusal discards the refresh token.
        """
        client = self._settings.client or record.client
        if client is None or record.token.refresh_token is None:
            return False
        flow = refresh(
            record.found,
            self._credentials(client),
            record.token,
            prover=self._prover(),
            send_resource=self._settings.send_resource,
        )
        try:
            response = await fetcher.run(flow)
        except Refused as refusal:
            if refusal.error in _PASSING:
                raise
            log.info("the refresh for %s was refused: %s", self.server_url, refusal.error)
            if refusal.error == "invalid_client":
                await self._records.discard_registration(record.found.issuer, record.client)
            spent = structs.replace(record, token=structs.replace(record.token, refresh_token=None))
            return not await self._replace(record, spent) and self._is_fresh()
        renewed = self._new_record(record.found, client, response, record.token.scopes, record.token)
        await self._replace(record, renewed)
        return self._is_fresh()

    def _is_fresh(self) -> bool:
        return self._record is not None and self._record.token.fresh(self._settings.clock())

    async def _replace(self, before: SignInRecord, after: SignInRecord) -> bool:
        """Compare-and-set the stored record. Return whether it succeeded.

        If the record has changed, the stored one is used. It cannot change under a lock that all processes share.
        """
        stored = await self._records.record(self.server_url)
        if stored is not None and stored.token == before.token:
            self._record, self._read_at = after, self._settings.clock()
            await self._records.write_record(self.server_url, after)
            return True
        self._record = None
        if stored is not None:
            self._adopt(stored)
        return False

    # --- signing in ---

    async def _discover(self, fetcher: Fetcher, challenge: Challenge | None) -> Discovered:
        client_id, issuer = self._settings.given_client_id, self._settings.given_issuer
        if issuer is None and client_id is not None:
            # The user's credentials are for one authorization server: the one that the user named, or the first one.
            issuer = await self._records.issuer_of(client_id)
        flow = discover(
            self.server_url,
            challenge,
            issuer=issuer,
            known=self._record.found.issuer if self._record is not None else None,
            default_endpoints=self._settings.default_endpoints,
            accept_issuer=self._settings.accept_issuer,
        )
        found = await fetcher.run(flow)
        if issuer is None and client_id is not None:
            claimed = await self._records.claim_issuer(client_id, found.issuer)
            if claimed != found.issuer:
                # Another process has used the credentials first, at another authorization server.
                raise other_issuer(found.issuer, claimed)
        return found

    async def _obtain(self, fetcher: Fetcher, found: Discovered, scopes: Scopes) -> None:
        """Get a token: through the grant if there is one, otherwise by asking a person."""
        grant = self._settings.grant
        if grant is None:
            await self._ask_person(fetcher, found, with_offline_access(scopes, found.server.scopes_supported))
            return
        response = await grant.token(found, scopes, fetcher, self._prover())
        await self._store_token(found, None, response, scopes)

    async def _ask_person(self, fetcher: Fetcher, found: Discovered, scopes: Scopes) -> None:
        settings = self._settings
        stored = await self._records.registration(found.issuer)
        registered = stored.redirect_uris if stored is not None else []
        async with open_door(
            settings.login, settings.redirect_uri, registered, settings.login_seconds, settings.announce
        ) as door:
            client = await self._client(fetcher, found, door.redirect_uri, scopes)
            attempt = begin(
                found,
                client,
                door.redirect_uri,
                scopes,
                reach=self._reach,
                random=secrets.token_bytes,
                now=settings.clock(),
                server_url=self.server_url,
                extra=settings.parameters,
                send_resource=settings.send_resource,
            )
            try:
                with self.person_time.asking():
                    answer = await door.ask(attempt)
            except SignInFailed:
                # The server may have forgotten the client. Then the browser shows an error and is not redirected.
                await self._records.discard_registration(found.issuer, client)
                raise
        if answer is None:
            raise await self._needs_login(attempt)
        await self._exchange(fetcher, attempt, query_parameters(answer))

    async def _client(self, fetcher: Fetcher, found: Discovered, redirect_uri: str, scopes: Scopes) -> Registration:
        """Return the client's registration: made beforehand, by its metadata document, or made now."""
        if self._settings.client is not None:
            return self._settings.client
        published = published_client(found.server, self._settings.naming, redirect_uri)
        if published is not None:
            return published
        async with self._records.lock_registration(found.issuer):
            stored = await self._records.registration(found.issuer)
            if stored is not None and stored.usable(self._settings.clock(), redirect_uri, scopes):
                return stored
            likely = union(scopes, clean_scopes(found.scopes_supported or ()))
            fresh = await fetcher.run(register(found.server, self._settings.naming, redirect_uri, likely))
            await self._records.write_registration(found.issuer, fresh)
            return fresh

    async def _needs_login(self, attempt: Attempt) -> NeedsLogin:
        """Return the error for a program without a person.

        While one sign-in is open, every call gets the same one.
        """
        if self._settings.client is not None:
            # The secret that the user gave is not stored.
            attempt = structs.replace(attempt, client=structs.replace(attempt.client, client_secret=None))
        attempt = await self._records.add_attempt(attempt, self._settings.clock())
        return NeedsLogin(attempt.url, lambda answer: self.finish(attempt.state, answer))

    async def _exchange(self, fetcher: Fetcher, attempt: Attempt, parameters: Mapping[str, str]) -> None:
        code = read_code(attempt, parameters, self._settings.clock())
        flow = exchange_code(
            attempt,
            self._credentials(attempt.client),
            code,
            prover=self._prover(),
            send_resource=self._settings.send_resource,
        )
        try:
            response = await fetcher.run(flow)
        except Refused as refusal:
            if refusal.error == "invalid_client":
                await self._records.discard_registration(attempt.found.issuer, attempt.client)
            raise
        await self._store_token(attempt.found, attempt.client, response, attempt.scopes)

    # --- what is remembered ---

    def _adopt(self, record: SignInRecord | None) -> bool:
        """Use a stored record; return whether it can be used."""
        self._loaded, self._read_at = True, self._settings.clock()
        if record is not None and record.token.dpop:
            if record.key is None or not self._settings.dpop:
                return False  # The key of the token is missing, or DPoP is off.
            self._proof_key = ProofKey(record.key)
        self._record = record
        return True

    async def _store_token(
        self, found: Discovered, client: Registration | None, response: TokenResponse, scopes: Scopes
    ) -> None:
        """Store the token of a new sign-in, and replace the earlier one."""
        record = self._new_record(found, client, response, scopes)
        async with self._records.lock_record(self.server_url):
            self._record, self._loaded, self._read_at = record, True, self._settings.clock()
            await self._records.write_record(self.server_url, record)

    def _new_record(
        self,
        found: Discovered,
        client: Registration | None,
        response: TokenResponse,
        scopes: Scopes,
        earlier: Token | None = None,
    ) -> SignInRecord:
        token = make_token(response, self._settings.clock(), scopes, earlier)
        key = self.proof_key.export() if token.dpop else None
        known = None if self._settings.client is not None else client
        log.info("there is a token of %s for %s", quoted(found.issuer), self.server_url)
        return SignInRecord(found, token, known, key)

    def _credentials(self, client: Registration) -> Credentials:
        key = self._settings.key
        return client if key is None else KeyCredentials(client.client_id, key)

    def _prover(self) -> ProofKey | None:
        return self.proof_key if self._settings.dpop else None

    def _fetcher(self) -> Fetcher:
        return Fetcher(self._reach, tls=self._settings.tls, on_fetch=self._settings.on_fetch)
