"""The authorization of one client at one server, as a transport sees it.

Calls that come while a sign-in is under way wait for it and share its outcome, so that ten calls open one browser, also
when they come from several event loops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from toolwire.auth.client.records import SignInRecord
from toolwire.auth.client.token_source import TokenSource
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.challenges import Challenge, oauth_challenge, parse_challenges
from toolwire.auth.flow.scopes import union
from toolwire.auth.flow.tokens import Token
from toolwire.auth.flow.urls import same_origin
from toolwire.util.single_flight import LoopsFlight, SingleFlight
from toolwire.wire.deadlines import PersonTime

log: logging.Logger = logging.getLogger("toolwire.auth")

#: The number of challenges after which a request is given up.
MAX_CHALLENGES: Final = 4
#: The number of sign-ins for one set of scopes, and of different sets of scopes.
MAX_STEP_UPS: Final = 2
MAX_KINDS: Final = 50


class _Asked:
    """The last request of an asyncio task, and its outcome."""

    __slots__ = ("challenges", "recovered", "repeating", "signed_in", "token")

    def __init__(self) -> None:
        self.token: Token | None = None
        #: Whether the request is being sent again.
        self.repeating = False
        self.begin()

    def begin(self) -> None:
        """Start to track another request, which was not refused yet."""
        self.challenges = 0
        self.recovered = False
        self.signed_in = False


class SignIn:
    """An `Auth` for one server; `OAuth` makes them."""

    def __init__(self, source: TokenSource) -> None:
        self.source = source
        self.person_time: PersonTime = source.person_time
        """Stops the clocks of requests while a person is asked, and only then."""
        self._asked: WeakKeyDictionary[asyncio.Task[Any], _Asked] = WeakKeyDictionary()
        self._working = SingleFlight[bool]()
        self._working_anywhere = LoopsFlight[bool]()
        self._own_url = source.server_url
        self._step_ups: dict[frozenset[str], int] = {}

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        if not self._is_own(url):
            return {}
        record = await self.source.current()
        if record is not None and self.source.is_due(record):
            record = await self._renew()
        asked = self._note()
        if not asked.repeating:
            asked.begin()
        asked.repeating = False
        asked.token = token = None if record is None else record.token
        if token is None:
            return {}
        if token.dpop:
            proof = self.source.proof_key.proof(method, url, token.access_token)
            return {"authorization": f"DPoP {token.access_token}", "dpop": proof}
        return {"authorization": f"Bearer {token.access_token}"}

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        if not self._is_own(url):
            return False
        asked = self._note()
        asked.challenges += 1
        asked.repeating = asked.challenges <= MAX_CHALLENGES and await self._answer(asked, status, headers)
        return asked.repeating

    async def _answer(self, asked: _Asked, status: int, headers: Mapping[str, str]) -> bool:
        """React to a refusal; return whether the request should be sent again."""
        challenge = oauth_challenge(parse_challenges(headers.get("www-authenticate", "")))
        if self.source.learn_nonce(headers) and challenge is not None and challenge.error == "use_dpop_nonce":
            return True
        record = await self.source.current()
        if record is not None and record.token != asked.token:
            return True  # Another request got a token since this one was sent.
        if status == 403:
            return await self._step_up(asked, challenge, record)
        if asked.signed_in:
            return False  # A new token was refused, too.
        refreshing, asked.recovered = not asked.recovered, True
        asked.signed_in = await self._together(lambda: self.source.recover(challenge, refreshing=refreshing))
        return True

    async def _step_up(self, asked: _Asked, challenge: Challenge | None, record: SignInRecord | None) -> bool:
        if challenge is None or challenge.error != "insufficient_scope":
            return False
        scopes = challenge.scopes or ()
        if not self._may_step_up(frozenset(scopes)):
            return False
        more = union(record.token.scopes if record is not None else (), scopes)
        asked.signed_in = await self._together(lambda: self.source.extend(challenge, more))
        return True

    def _may_step_up(self, wanted: frozenset[str]) -> bool:
        """2026-07-28 basic/authorization, step-up: allow a few attempts; after that the failure is permanent."""
        if self._working_anywhere.is_running:
            return True  # A sign-in is running and may help.
        tried = self._step_ups.get(wanted, 0)
        if not wanted or tried >= MAX_STEP_UPS or len(self._step_ups) >= MAX_KINDS:
            return False
        self._step_ups[wanted] = tried + 1
        return True

    async def _renew(self) -> SignInRecord | None:
        """Renew a token shortly before it expires.

        If that fails, the server's next answer says what to do.
        """
        try:
            await self._together(self.source.renew)
        except SignInFailed as error:
            log.info("the token for %s was not renewed: %s", self.source.server_url, error)
        return await self.source.current()

    async def _together(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """Run `work`, or join the work that runs. Return True for a new sign-in.

        False means that a token was refreshed.
        """
        working = await self._working.join(lambda: self._working_anywhere.run(work))
        if working.cancelled():
            raise SignInFailed("The sign-in was given up")
        return working.result()

    def _note(self) -> _Asked:
        task = asyncio.current_task()
        assert task is not None
        return self._asked.setdefault(task, _Asked())

    def _is_own(self, url: str) -> bool:
        """Return whether a URL is at the server of the token.

        2026-07-28 basic/authorization: no other server gets the token.
        """
        if url == self._own_url:
            return True
        own = same_origin(url, self.source.server_url)
        if own:
            self._own_url = url
        return own
