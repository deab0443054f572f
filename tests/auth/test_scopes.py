"""Which scopes a client asks for."""

from __future__ import annotations

import pytest
from tests.cases import cases

from toolwire.auth.flow.scopes import MAX_SCOPES, parse_scopes, select_scopes, union, with_offline_access


@pytest.mark.covers("6.2.15", "4.3.C5", "T-47")
@cases(
    ("challenged", "supported", "configured", "expected"),
    [
        (("a",), ["b", "c"], (), ("a",)),
        (None, ["b", "c"], (), ("b", "c")),
        (None, None, (), ()),
        ((), ["b"], (), ()),
        (None, ["b"], ("mine",), ("mine",)),
        (("a",), ["b"], ("mine",), ("mine", "a")),
    ],
)
def test_the_first_request(
    challenged: tuple[str, ...] | None,
    supported: list[str] | None,
    configured: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    assert select_scopes(challenged, supported, configured) == expected


@pytest.mark.covers("6.2.12")
def test_offline_access_only_where_the_server_knows_it() -> None:
    assert with_offline_access(("a",), ["offline_access"]) == ("a", "offline_access")
    assert with_offline_access(("a",), ["b"]) == ("a",)
    assert with_offline_access(("a",), None) == ("a",)
    # A list of one would take away what the server gives by default.
    assert with_offline_access((), ["offline_access"]) == ()


@pytest.mark.covers("6.2.25")
def test_a_union_keeps_what_was_asked_before() -> None:
    assert union(("a", "b"), ("c", "a")) == ("a", "b", "c")


def test_hostile_scopes() -> None:
    assert parse_scopes('a  b "c" d\\e \x00 ' + "f" * 300) == ("a", "b")
    assert len(parse_scopes(" ".join(map(str, range(500))))) == MAX_SCOPES
