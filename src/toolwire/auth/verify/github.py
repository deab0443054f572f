"""GitHub's tokens, by asking GitHub whose they are.

They are opaque and name no audience. What takes its place is the check that the token was made for our own OAuth
application (https://docs.github.com/en/rest/apps/oauth-applications#check-a-token); `any_app` does without it.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from toolwire.auth.principal import Principal
from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.remote import RemoteVerifier
from toolwire.auth.verify.verifier import InvalidToken, Unavailable
from toolwire.protocol.errors import ServerError
from toolwire.util.text_lists import text_list

API: Final = "https://api.github.com"
PROVIDER: Final = "https://github.com"
SECONDS: Final = 300.0
#: Scopes that include further scopes, which are then not listed.
INCLUDED: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("read:user", "user:email", "user:follow"),
    "repo": ("repo:status", "repo_deployment", "public_repo", "repo:invite", "security_events"),
    "admin:org": ("write:org",),
    "write:org": ("read:org",),
    "admin:repo_hook": ("write:repo_hook",),
    "write:repo_hook": ("read:repo_hook",),
    "admin:public_key": ("write:public_key",),
    "write:public_key": ("read:public_key",),
    "write:packages": ("read:packages",),
}
_HEADERS: Final = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}


class GitHub(RemoteVerifier):
    """Tokens of GitHub users.

    * `client_id`, `client_secret`: our OAuth application, whose tokens are accepted; or `any_app=True`.
    * `users`: only these logins. `organization`: only its members (the token then needs `read:org`).
    * `remember`: seconds for which an answer is kept.
    """

    #: A login belongs to one account. It can be given up, and taken by another user.
    unique_usernames: bool = True

    def __init__(
        self,
        client_id: str | None = None,
        client_secret: str | None = None,
        *,
        users: Iterable[str] | None = None,
        organization: str | None = None,
        any_app: bool = False,
        remember: float = SECONDS,
        api: str = API,
        provider: str = PROVIDER,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(remember, fetch=fetch, clock=clock)
        if (client_id is None or client_secret is None) and not any_app:
            raise ServerError(
                "GitHub needs client_id= and client_secret= to see that a token was made for this server;"
                " any_app=True takes the tokens of every application"
            )
        self._client_id, self._client_secret = client_id, client_secret
        self._users = None if users is None else frozenset(_login(each) for each in text_list(users, "users="))
        self._organization = organization
        self._api = checked_url(api, "address of GitHub").rstrip("/")
        self._provider = provider

    async def _ask(self, token: str) -> Principal | None:
        found = await (self._user(token) if self._client_id is None else self._checked_user(token))
        if found is None:
            return None
        user, scopes = found
        login, number = user.get("login"), user.get("id")
        if not isinstance(login, str) or not isinstance(number, int):
            raise Unavailable("GitHub answered without a user")
        if self._users is not None and _login(login) not in self._users:
            raise InvalidToken("This user is not allowed here")
        if self._organization is not None and not await self._is_member(token):
            raise InvalidToken("This user is not a member of the organisation")
        # The number stays; a login can be given up and taken by another person.
        return Principal(str(number), self._provider, login, _with_included(scopes), user)

    async def _user(self, token: str) -> tuple[dict[str, Any], list[str]] | None:
        answer = await self._get("/user", token)
        if answer is None:
            return None
        scopes = [each.strip() for each in answer.headers.get("x-oauth-scopes", "").split(",") if each.strip()]
        return answer.json(), scopes

    async def _checked_user(self, token: str) -> tuple[dict[str, Any], list[str]] | None:
        pair = base64.b64encode(f"{self._client_id}:{self._client_secret}".encode()).decode()
        answer = await self._fetch(
            "POST",
            f"{self._api}/applications/{quote(str(self._client_id), safe='')}/token",
            headers={**_HEADERS, "authorization": f"Basic {pair}"},
            json={"access_token": token},
        )
        if answer.status in (404, 422):
            return None
        _check(answer)
        content = answer.json()
        user, scopes = content.get("user"), content.get("scopes")
        if not isinstance(user, dict):
            return None
        return user, [each for each in scopes or () if isinstance(each, str)]

    async def _is_member(self, token: str) -> bool:
        answer = await self._get(f"/user/memberships/orgs/{quote(str(self._organization), safe='')}", token)
        return answer is not None and answer.json().get("state") == "active"

    async def _get(self, path: str, token: str) -> ProviderAnswer | None:
        headers = {**_HEADERS, "authorization": f"Bearer {token}"}
        answer = await self._fetch("GET", f"{self._api}{path}", headers=headers)
        limited = answer.headers.get("x-ratelimit-remaining") == "0"
        if answer.status in (401, 404) or (answer.status == 403 and not limited):
            return None
        _check(answer)
        return answer


def _check(answer: ProviderAnswer) -> None:
    if answer.status != 200:
        raise Unavailable(f"GitHub answered with status {answer.status}")


def _with_included(scopes: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in found:
            found.add(scope)
            waiting += INCLUDED.get(scope, ())
    return frozenset(found)


def _login(name: str) -> str:
    # GitHub's logins are the same in any case.
    return name.lower()
