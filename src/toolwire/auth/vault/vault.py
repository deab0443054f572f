"""`Vault`: the credentials of one server, obtained, kept sealed, renewed once, and revoked."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct, structs

from toolwire.auth.client.grants import supplied
from toolwire.auth.client.signing import ProofKey
from toolwire.auth.errors import NotConnected, Refused, SignInFailed
from toolwire.auth.flow.authorization import Attempt
from toolwire.auth.flow.clients import Naming, Registration
from toolwire.auth.flow.scopes import Scopes, union
from toolwire.auth.flow.tokens import TokenResponse, granted_scopes
from toolwire.auth.principal import Principal
from toolwire.auth.vault.kinds import (
    KINDS,
    NOT_GRANTED,
    WITH_SUBJECT_TOKEN,
    IdentityAssertion,
    Kind,
    NoCredential,
    Passthrough,
    Provider,
    ServerOAuth,
    StaticSecret,
    TokenExchange,
    UserOAuth,
    UserSecret,
    checked_secret,
)
from toolwire.auth.vault.leased_work import LeasedWork
from toolwire.auth.vault.links import Link, Links, elicitation_id
from toolwire.auth.vault.local_connections import LocalConnections
from toolwire.auth.vault.providers import ProviderClient
from toolwire.auth.vault.records import (
    THE_SERVER,
    Owner,
    RecordKey,
    SealedRecords,
    VaultRecord,
    prefix_of,
    record_of,
)
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.errors import ServerError, Unauthorized
from toolwire.protocol.rounds import digest
from toolwire.protocol.sealing import NO_SECRET
from toolwire.sealing_aes import make_sealer
from toolwire.stores import KV
from toolwire.util.expiring import Expiring

log: logging.Logger = logging.getLogger("toolwire.auth")

#: For how many seconds a token counts whose issuer does not say when it ends.
UNKNOWN_SECONDS: Final = 300.0
MAX_NAME: Final = 64
_CLIENT: Final = "client"
# RFC 6749 section 5.2: the refresh token is worthless. Every other refusal is about this server, or passes.
_REVOKED: Final = "invalid_grant"


class FewerScopes(SignInFailed):
    """A provider granted less than is needed."""

    def __init__(self, lacking: Scopes) -> None:
        super().__init__(f"The provider granted fewer rights than are needed: {' '.join(lacking)} is missing")


class SettingsChanged(SignInFailed):
    """A sign-in or page began with other settings than those in force; nothing is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The settings of {name!r} changed after this began", "begin again")


class Credential:
    """A secret or a token, and the headers that carry it.

    Its representation does not show it.
    """

    __slots__ = ("_in_header", "_proof_key", "name", "owner", "token")

    def __init__(
        self,
        name: str,
        owner: str,
        token: str,
        *,
        in_header: Callable[[str], dict[str, str]] | None = None,
        proof_key: ProofKey | None = None,
    ) -> None:
        self.name: str = name
        self.owner: str = owner
        """The owner of the account: two credentials with the same name and owner are the same account."""
        self.token: str = token
        """The secret or the token; empty for `NoCredential`."""
        self._in_header = in_header
        self._proof_key = proof_key

    @property
    def is_bound(self) -> bool:
        """Return whether the token is bound to a key, and works only with `headers`."""
        return self._proof_key is not None

    def headers(self, method: str, url: str) -> dict[str, str]:
        """Return the headers for one request."""
        if not self.token:
            return {}
        if self._proof_key is not None:
            proof = self._proof_key.proof(method, url, self.token)
            return {"authorization": f"DPoP {self.token}", "dpop": proof}
        return {"authorization": f"Bearer {self.token}"} if self._in_header is None else self._in_header(self.token)

    def learn_nonce(self, url: str, nonce: str) -> bool:
        """Use a new nonce of the service (RFC 9449 section 8); return whether that helps."""
        if self._proof_key is None:
            return False
        self._proof_key.learn(url, nonce)
        return True

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"


class Asker(Struct, frozen=True):
    """The caller for whom a credential is obtained."""

    owner: Owner | None
    """None for a caller who was not verified."""
    principal: Principal | None = None
    subject_token: str | None = None
    """The token that the caller came with."""

    def __repr__(self) -> str:
        return f"Asker({self.owner!r})"


class Entry(Struct, frozen=True):
    """A credential that is kept, as an operator sees it."""

    name: str
    owner: str
    subject: str = ""
    provider: str = ""
    scopes: Scopes = ()
    created: float | None = None
    expires_at: float | None = None
    is_readable: bool = True
    """False where the secret that it is sealed with is gone, or its settings changed."""


class Vault:
    """The credentials of one server.

    `secrets` are those of the server: the first one seals, all of them open.
    """

    def __init__(
        self,
        kv: KV,
        secrets: Sequence[str | bytes] | None,
        credentials: Mapping[str, Kind] | None = None,
        *,
        server_name: str = "Toolwire",
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.server_name = server_name
        self.records: SealedRecords = SealedRecords(kv, make_sealer(secrets, random=os.urandom, purpose="vault"))
        self.links: Links = Links(kv, self.records.sealer, clock)
        self.connect_url: str | None = None
        """The address that links begin with; None while the server has no address for browsers."""
        self.on_connected: Callable[[str, str], None] | None = None
        """Called with a legacy session, and the id of the elicitation that its user has finished."""
        self._local: LocalConnections | None = None
        self._has_secret = secrets is not None
        self._has_warned = False
        self._tls = tls
        self._flight = LeasedWork(kv)
        self._kinds: dict[str, Kind] = {}
        # Calls to a server that was replaced keep its settings until they end.
        self._clients: WeakKeyDictionary[Provider, ProviderClient] = WeakKeyDictionary()
        # DPoP: the keys with the nonces that services gave. They are sealed in the records.
        self._proof_keys: Expiring[str, tuple[str, ProofKey]] = Expiring(1024)
        for name, kind in (credentials or {}).items():
            self.add(name, kind)

    def use_store(self, kv: KV) -> None:
        """Use another store from now on. Call this before anything is served."""
        self.records.kv = self.links.kv = self._flight.kv = kv

    # --- what there is ---

    def add(self, name: str, kind: Kind) -> None:
        """Add a credential under a name."""
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME:
            raise ServerError(f"A credential has a name of 1 to {MAX_NAME} printable characters")
        if not isinstance(kind, KINDS):
            raise ServerError(f"The credential {name!r} is one of {', '.join(each.__name__ for each in KINDS)}")
        if name in self._kinds:
            raise ServerError(f"There is a credential {name!r} already")
        if isinstance(kind, Provider):
            kind.check(name)
            naming = Naming(self.server_name)
            self._clients[kind] = ProviderClient(kind, naming=naming, tls=self._tls, clock=self.clock)
        if isinstance(kind, Passthrough):
            log.warning("the tokens of callers are handed on to %r, for the audience %s", name, kind.audience)
        if not (self._has_secret or self._has_warned) and _is_connected_by_people(kind):
            self._has_warned = True
            log.warning("after a restart, users have to connect their accounts again: %s", NO_SECRET)
        self._kinds[name] = kind

    def remove(self, name: str) -> None:
        """Forget a credential's settings. What users connected stays in the store."""
        self._kinds.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def kind(self, name: str) -> Kind:
        kind = self._kinds.get(name)
        if kind is None:
            raise ServerError(f"There is no credential {name!r}: give it in credentials= of the server")
        return kind

    def identity(self, name: str) -> str:
        """Return a digest of a credential's settings; accounts are bound to it."""
        return self.kind(name).identity

    def _same_kind(self, name: str, identity: str) -> Kind:
        """Return the settings of a credential.

        Raises `SettingsChanged` if they do not have this identity any more.
        """
        kind = self._kinds.get(name)
        if kind is None or kind.identity != identity:
            raise SettingsChanged(name)
        return kind

    @property
    def has_accounts(self) -> bool:
        """Return whether a credential is an account of the caller."""
        return any(kind.is_per_user for kind in self._kinds.values())

    @property
    def needs_subject_tokens(self) -> bool:
        """Return whether a credential is made of the token that a caller came with."""
        return any(isinstance(kind, WITH_SUBJECT_TOKEN) for kind in self._kinds.values())

    # --- obtaining ---

    async def obtain(
        self,
        name: str,
        asker: Asker,
        *,
        scopes: Scopes = (),
        refused: str | None = None,
        kind: Kind | None = None,
    ) -> Credential:
        """Return a credential for a caller.

        `scopes` are needed beside those of the settings. `refused` is a token that the service has just refused, so
        that another one is needed. `kind` are the settings with which this name was added; they may have changed since.
        Raise `NotConnected` where a person has to connect an account, and `Unauthorized` or `Unavailable` where that
        would not help.
        """
        kind = self.kind(name) if kind is None else kind
        if isinstance(kind, NoCredential):
            return Credential(name, "", "")
        if isinstance(kind, StaticSecret):
            if refused is not None:
                raise Unauthorized(f"The service does not take the secret of {name!r}")
            secret = checked_secret(await supplied(kind.secret))
            return Credential(name, THE_SERVER.id, secret, in_header=kind.headers)
        if isinstance(kind, ServerOAuth):
            if kind.grant is None:
                key = self._key(name, kind, THE_SERVER)
                return await self._connected(name, kind, key, THE_SERVER, scopes, refused)
            wanted = union(kind.scopes, scopes)
            # A token for fewer scopes is not a token for these.
            key = self._key(name, kind, THE_SERVER, digest(sorted(wanted)) if scopes else "")
            return await self._without_person(name, kind, key, THE_SERVER, wanted, refused, None)
        owner = asker.owner
        if owner is None:
            raise Unauthorized(f"{name!r} is an account of the caller, and this caller is anonymous", "sign in first")
        if isinstance(kind, UserSecret):
            found = await self.records.get(self._key(name, kind, owner))
            if found is None or found[0].secret == refused:
                raise NotConnected(name)
            return Credential(name, owner.id, found[0].secret, in_header=kind.headers)
        if isinstance(kind, UserOAuth):
            return await self._connected(name, kind, self._key(name, kind, owner), owner, scopes, refused)
        return await self._for_subject(name, kind, asker, owner, scopes, refused)

    async def _for_subject(
        self,
        name: str,
        kind: TokenExchange | IdentityAssertion | Passthrough,
        asker: Asker,
        owner: Owner,
        scopes: Scopes,
        refused: str | None,
    ) -> Credential:
        subject = asker.subject_token
        if subject is None:
            raise Unauthorized(f"{name!r} is made of the token of the caller, and this caller came without one")
        if isinstance(kind, Passthrough):
            if kind.audience not in _audiences(asker.principal) or refused is not None:
                raise Unauthorized(f"The token of the caller is not for {kind.audience}")
            return Credential(name, owner.id, subject)
        if kind.subject_issuers and owner.provider not in kind.subject_issuers:
            raise Unauthorized(f"{name!r} is not for callers of {owner.provider or 'this provider'}")
        wanted = union(kind.scopes, scopes)
        further = digest(sha256(subject.encode()).hexdigest(), sorted(wanted))
        key = self._key(name, kind, owner, further)
        return await self._without_person(name, kind, key, owner, wanted, refused, subject)

    def _key(self, name: str, kind: Kind, owner: Owner, further: str = "") -> RecordKey:
        return RecordKey(name, kind.identity, owner.id, further)

    def _credential(self, key: RecordKey, record: VaultRecord) -> Credential:
        return Credential(key.name, key.owner, record.secret, proof_key=self._proof_key(key, record))

    def _proof_key(self, key: RecordKey, record: VaultRecord) -> ProofKey | None:
        if record.key is None:
            return None
        known = self._proof_keys.get(key.text)
        if known is None or known[0] != record.key:
            known = (record.key, ProofKey(record.key))
            self._proof_keys.put(key.text, known)
        return known[1]

    # --- tokens that need no person ---

    async def _without_person(
        self,
        name: str,
        kind: ServerOAuth | TokenExchange | IdentityAssertion,
        key: RecordKey,
        owner: Owner,
        scopes: Scopes,
        refused: str | None,
        subject: str | None,
    ) -> Credential:
        found = await self.records.get(key)
        if found is not None and self._is_good(found[0], refused):
            return self._credential(key, found[0])

        async def find_good() -> VaultRecord | None:
            now_there = await self.records.get(key)
            return now_there[0] if now_there is not None and self._is_good(now_there[0], refused) else None

        async def work() -> VaultRecord:
            begun = self.clock()
            prover = ProofKey() if kind.dpop else None
            response = await self._asked(kind, subject, scopes, prover)
            exported = None if prover is None else prover.export()
            record = record_of(response, begun, owner, scopes, key=exported)
            left = (UNKNOWN_SECONDS if record.expires_at is None else record.expires_at - begun) or UNKNOWN_SECONDS
            await self._put(key, record, ttl=left)
            return record

        return self._credential(key, await self._flight.run(key.text, key.identity, find_good, work))

    async def _asked(
        self,
        kind: ServerOAuth | TokenExchange | IdentityAssertion,
        subject: str | None,
        scopes: Scopes,
        prover: ProofKey | None,
    ) -> TokenResponse:
        client = self._clients[kind]
        if isinstance(kind, ServerOAuth):
            response = await client.granted(kind, scopes, prover)
        elif isinstance(kind, TokenExchange):
            response = await client.exchanged(kind, subject or "", scopes, prover)
        else:
            response = await client.asserted(kind, subject or "", scopes, prover)
        lacking = kind.lacks(granted_scopes(response, scopes))
        if lacking:
            raise Refused("The request for a token", "invalid_scope")
        return response

    def _is_good(self, record: VaultRecord, refused: str | None) -> bool:
        return not record.is_due(self.clock()) and record.secret != refused

    # --- accounts that a person connected ---

    async def _connected(
        self,
        name: str,
        kind: UserOAuth | ServerOAuth,
        key: RecordKey,
        owner: Owner,
        scopes: Scopes,
        refused: str | None,
    ) -> Credential:
        found = await self.records.get(key)
        if found is None:
            raise NotConnected(name, scopes)
        record, sealed = found
        if self.records.is_outdated(sealed):
            await self.records.put(key, record, expect=sealed)
        if not self._is_good(record, refused):
            try:
                record = await self._renewed(name, kind, key, owner, record, refused)
            except NotConnected:
                raise NotConnected(name, union(record.scopes, scopes)) from None
        known = NOT_GRANTED.union(record.scopes)
        if kind.lacks(record.scopes) or not known.issuperset(scopes):
            # With what it has already: a provider may grant just what it is asked for.
            raise NotConnected(name, union(record.scopes, scopes))
        return self._credential(key, record)

    async def _renewed(
        self,
        name: str,
        kind: UserOAuth | ServerOAuth,
        key: RecordKey,
        owner: Owner,
        record: VaultRecord,
        refused: str | None,
    ) -> VaultRecord:
        """Return the refreshed record, or the old one while its token can still be used."""

        async def find_good() -> VaultRecord | None:
            found = await self.records.get(key)
            if found is None:
                raise NotConnected(name)
            return found[0] if self._is_good(found[0], refused) else None

        usable = not record.is_over(self.clock()) and record.secret != refused
        if record.refresh_token is None:
            if usable:
                return record
            raise NotConnected(name)
        try:
            return await self._flight.run(
                key.text, key.identity, find_good, lambda: self._refresh(name, kind, key, owner)
            )
        except (Refused, SignInFailed, Unavailable) as error:
            log.info("the account for %r was not renewed: %s", name, error)
            if usable:
                return record
            if isinstance(error, Refused) and error.error == _REVOKED:
                raise NotConnected(name) from None
            raise Unavailable(f"The provider of {name!r} cannot be asked now") from None

    async def _refresh(self, name: str, kind: Provider, key: RecordKey, owner: Owner) -> VaultRecord:
        found = await self.records.get(key)
        if found is None or found[0].refresh_token is None:
            raise NotConnected(name)
        record, sealed = found
        assert record.refresh_token is not None
        begun = self.clock()
        client = kind.client or record.client
        if client is None:
            raise NotConnected(name)
        prover = self._proof_key(key, record)
        try:
            response = await self._clients[kind].refresh(client, record.issuer, record.refresh_token, prover)
        except Refused as refusal:
            if refusal.error == _REVOKED:
                # The token itself may be good until its end.
                over = structs.replace(record, refresh_token=None, renew_at=record.expires_at)
                await self.records.put(key, over, expect=sealed)
            raise
        renewed = record_of(
            response,
            begun,
            owner,
            record.scopes,
            issuer=record.issuer,
            client=record.client,
            key=record.key,
            before=record,
        )
        # A record that was revoked, or connected anew, in the meantime stays so.
        while not await self._put(key, renewed, expect=sealed):
            again = await self.records.get(key)
            if again is None or again[0] == structs.replace(record, refresh_token=None):
                # The token that this refresh has used up was revoked at the provider.
                await self._tell_provider(name, kind, renewed)
                raise NotConnected(name)
            if again[0] != record:
                return again[0]
            sealed = again[1]  # The same record, sealed with a newer secret.
        return renewed

    async def _put(
        self, key: RecordKey, record: VaultRecord, *, ttl: float | None = None, expect: bytes | None = None
    ) -> bool:
        try:
            return await self.records.put(key, record, ttl=ttl, expect=expect)
        except ValueError:
            raise SignInFailed(f"The tokens for {key.name!r} are too long to be kept") from None

    # --- connecting ---

    async def begin(self, name: str, redirect_uri: str, scopes: Scopes = (), *, identity: str) -> Attempt:
        """Begin to connect an account.

        The browser of the owner opens the URL of the attempt. `identity` is that of the settings for which it is
        connected, here and in `finish` and `store`. If they have changed, `SettingsChanged` is raised.
        """
        kind = self._same_kind(name, identity)
        if not isinstance(kind, UserOAuth | ServerOAuth):
            raise ServerError(f"{name!r} is not connected in a browser")
        provider_client = self._clients[kind]
        client = await self.registered(name, provider_client, redirect_uri)
        return await provider_client.begin(client, redirect_uri, scopes)

    async def registered(self, name: str, provider_client: ProviderClient, redirect_uri: str) -> Registration:
        """Return the client of this server at a provider, given or registered.

        All processes share a registration.
        """
        kind = provider_client.provider
        if kind.client is not None:
            return kind.client
        key = RecordKey(name, kind.identity, THE_SERVER.id, _CLIENT)

        async def find_good() -> VaultRecord | None:
            found = await self.records.get(key)
            client = None if found is None else found[0].client
            usable = client is not None and client.usable(self.clock(), redirect_uri, kind.scopes)
            return found[0] if found is not None and usable else None

        async def work() -> VaultRecord:
            made = await provider_client.register(redirect_uri)
            record = VaultRecord("", self.clock(), client=made)
            await self._put(key, record)
            return record

        record = await find_good() or await self._flight.run(key.text, key.identity, find_good, work)
        assert record is not None and record.client is not None
        return record.client

    async def connect_link(self, name: str, owner: Owner, scopes: Scopes = (), session: str = "") -> str | None:
        """Return the address at which a user connects an account; None without such pages.

        `session` is the legacy session whose client is notified when that is done.
        """
        if self.connect_url is None:
            return None
        return f"{self.connect_url}{await self.links.open(owner, name, self.identity(name), scopes, session)}"

    def tell_connected(self, link: Link) -> None:
        """Notify the client that was asked to open a link that the account is connected."""
        if link.session and self.on_connected is not None:
            self.on_connected(link.session, elicitation_id(f"{self.connect_url}{link.id}"))

    def local_connections(self) -> LocalConnections:
        """Return the sign-ins of the user who started this process, on the running loop."""
        if self._local is None or self._local.loop is not asyncio.get_running_loop():
            self._local = LocalConnections(self)
        return self._local

    def holder(self, name: str, owner: Owner) -> Owner:
        """Return who owns the account that a user connects: the user, or the server."""
        return THE_SERVER if isinstance(self.kind(name), ServerOAuth) else owner

    async def finish(
        self, name: str, owner: Owner, attempt: Attempt, parameters: Mapping[str, str], *, identity: str
    ) -> None:
        """Keep the account that the answer to an attempt is for. Raise `SignInFailed`."""
        kind = self._same_kind(name, identity)
        assert isinstance(kind, UserOAuth | ServerOAuth)
        begun = self.clock()
        provider_client = self._clients[kind]
        client = await self.registered(name, provider_client, attempt.redirect_uri)
        if client.client_id != attempt.client.client_id:
            raise SettingsChanged(name)
        prover = ProofKey() if kind.dpop else None
        response = await provider_client.redeem(attempt, client, parameters, prover)
        record = record_of(
            response,
            begun,
            owner,
            attempt.scopes,
            issuer=attempt.found.issuer,
            client=None if kind.client is not None else client,
            key=None if prover is None else prover.export(),
        )
        lacking = kind.lacks(record.scopes)
        if lacking:
            raise FewerScopes(lacking)
        # A record for settings that are not in force any more would take the place of one that is.
        self._same_kind(name, identity)
        key = self._key(name, kind, owner)
        await self._put(key, record)
        await self._flight.forget(key.text)

    async def store(self, name: str, owner: Owner, secret: str, *, identity: str | None = None) -> None:
        """Store the secret of a user.

        Without an identity, it is stored for the current settings.
        """
        kind = self.kind(name) if identity is None else self._same_kind(name, identity)
        if not isinstance(kind, UserSecret):
            raise ServerError(f"{name!r} is not a secret of a user")
        record = VaultRecord(checked_secret(secret), self.clock(), owner.subject, owner.provider)
        await self._put(self._key(name, kind, owner), record)

    # --- what an operator does ---

    async def accounts(self, owner: Owner) -> list[tuple[str, bool]]:
        """Return the accounts that a user may connect, and whether each is connected."""
        found: list[tuple[str, bool]] = []
        for name, kind in self._kinds.items():
            if self.may_connect(name, owner):
                record = await self.records.get(self._key(name, kind, self.holder(name, owner)))
                found.append((name, record is not None))
        return found

    def may_connect(self, name: str, owner: Owner) -> bool:
        """Return whether a user may connect and forget an account."""
        kind = self.kind(name)
        if isinstance(kind, ServerOAuth):
            return owner.subject in kind.operators
        return isinstance(kind, UserOAuth | UserSecret)

    async def revoke(self, name: str, owner: Owner) -> bool:
        """Delete an owner's account in all processes, and revoke it at its provider.

        Returns whether there was one.
        """
        kind = self.kind(name)
        key = self._key(name, kind, owner)
        found = await self._end_refreshes(key)
        forgotten = False
        async for each in self.records.keys(key.text):
            if not each.endswith(f":{_CLIENT}"):
                forgotten = await self.records.delete(each) or forgotten
        if found is not None and isinstance(kind, UserOAuth | ServerOAuth):
            await self._tell_provider(name, kind, found[0])
        return forgotten

    async def _end_refreshes(self, key: RecordKey) -> tuple[VaultRecord, bytes] | None:
        """Return a record, and let no refresh that is under way renew it any more."""
        while (found := await self.records.get(key)) is not None and found[0].refresh_token is not None:
            if await self.records.put(key, structs.replace(found[0], refresh_token=None), expect=found[1]):
                break
        return found

    async def _tell_provider(self, name: str, kind: Provider, record: VaultRecord) -> None:
        client = kind.client or record.client
        if client is None:
            return
        token, hint = record.refresh_token or record.secret, "refresh_token" if record.refresh_token else "access_token"
        try:
            await self._clients[kind].revoke(client, token, hint)
        except (SignInFailed, Unavailable) as error:
            # The account is forgotten here, whatever the provider says.
            log.warning("a token was not revoked at the provider of %r: %s", name, error)

    async def entries(self, name: str | None = None) -> AsyncIterator[Entry]:
        """Yield what is kept, without secrets."""
        for each in self._kinds if name is None else (name,):
            kind = self.kind(each)
            prefix = prefix_of(each)
            async for text in self.records.keys(prefix):
                owner, _, further = text.removeprefix(prefix).partition(":")
                if further == _CLIENT:
                    continue
                found = await self.records.get(RecordKey(each, kind.identity, owner, further))
                if found is None:
                    yield Entry(each, owner, is_readable=False)
                    continue
                record = found[0]
                yield Entry(
                    each, owner, record.subject, record.provider, record.scopes, record.created, record.expires_at
                )

    async def reseal(self) -> int:
        """Seal all records with the newest secret; return how many.

        After that the old secrets can be removed.
        """
        count = 0
        for name, kind in self._kinds.items():
            prefix = prefix_of(name)
            async for text in self.records.keys(prefix):
                owner, _, further = text.removeprefix(prefix).partition(":")
                key = RecordKey(name, kind.identity, owner, further)
                found = await self.records.get(key)
                if found is None or not self.records.is_outdated(found[1]):
                    continue
                # Exchanged tokens end soon. They are sealed anew when they are.
                is_short = isinstance(kind, TokenExchange | IdentityAssertion)
                if not is_short and await self.records.put(key, found[0], expect=found[1]):
                    count += 1
        return count


def _audiences(principal: Principal | None) -> list[str]:
    """Return the audiences of a caller's token, as far as its verifier knows them."""
    found = None if principal is None else principal.claims.get("aud")
    return [found] if isinstance(found, str) else list(found) if isinstance(found, list) else []


def _is_connected_by_people(kind: Kind) -> bool:
    """Return whether accounts of this kind can be connected only by a person."""
    return isinstance(kind, UserOAuth | UserSecret) or (isinstance(kind, ServerOAuth) and bool(kind.operators))
