"""Lists of those who are let in, or trusted: a mapping is refused, whatever its values say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Server
from toolwire.auth import JWT, ApiKeys, GitHub, Google, OAuth, Principal, ResourceServer, ServerOAuth, TokenExchange

URL = "https://a.example"
NO: Any = {URL: False}
KEYS = ApiKeys({"the-key-of-ann-1234": "ann"})

LISTS: dict[str, Callable[[], object]] = {
    "issuer": lambda: JWT(NO, audience=URL),
    "audience": lambda: JWT(URL, audience=NO),
    "other_audiences": lambda: JWT(URL, audience=URL, other_audiences=NO),
    "users": lambda: GitHub("a", "b", users=NO),
    "client_id": lambda: Google(NO),
    "operators": lambda: ServerOAuth(URL, operators=NO),
    "scopes": lambda: ServerOAuth(URL, operators=["ann"], scopes=NO),
    "subject_issuers": lambda: TokenExchange(URL, subject_issuers=NO),
    "trusted_hosts": lambda: OAuth(trusted_hosts=NO),
    "trusted_hosts of a provider": lambda: ServerOAuth(URL, operators=["ann"], trusted_hosts=NO),
    "trusted_proxies": lambda: Server("x").http_app(trusted_proxies={"10.0.0.0/8": False}),
    "allowed_origins": lambda: Server("x").http_app(allowed_origins=NO),
    "authorization_servers": lambda: ResourceServer(KEYS, authorization_servers=NO),
    "allow": lambda: ResourceServer(KEYS, allow=NO),
    "scopes of a principal": lambda: Principal("ann", scopes=NO),
}


@cases("name", LISTS)
def test_mapping_is_refused_as_a_list(name: str) -> None:
    with pytest.raises(Exception, match="list"):
        LISTS[name]()
