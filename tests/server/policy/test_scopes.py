"""Scopes that imply others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire import Policy, Server
from toolwire.protocol.errors import ServerError

IMPLIES = {"owner": ["admin"], "admin": ["write", "read"], "write": ["read"]}


@cases(
    ("held", "effective"),
    [
        ([], set()),
        (["read"], {"read"}),
        (["write"], {"write", "read"}),
        (["owner", "mail"], {"owner", "admin", "write", "read", "mail"}),
    ],
)
def test_a_scope_brings_what_it_implies_at_any_depth(held: list[str], effective: set[str]) -> None:
    assert Policy(implies=IMPLIES).effective_scopes(held) == effective


def test_scopes_that_imply_each_other_come_to_an_end() -> None:
    assert Policy(implies={"a": ["b"], "b": ["a"]}).effective_scopes(["a"]) == {"a", "b"}


def test_without_implied_scopes_a_caller_has_what_it_holds() -> None:
    assert Policy().effective_scopes(["a", "b"]) == {"a", "b"}


@cases("implies", [{"admin": "read"}, {"admin": [1]}, {1: ["read"]}])
def test_what_is_no_map_of_scopes_is_refused(implies: Any) -> None:
    with pytest.raises(ServerError, match="maps a scope to a list of scopes"):
        Policy(implies=implies)


def test_a_server_keeps_its_policy() -> None:
    policy = Policy(implies=IMPLIES)
    assert Server("s", policy=policy).policy is policy
    assert Server("s").policy is None
    with pytest.raises(ServerError, match="policy= takes a Policy, not dict"):
        Server("s", policy={"admin": ["read"]})  # type: ignore[arg-type]
