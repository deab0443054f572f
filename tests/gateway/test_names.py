"""Names that fit, and addresses that two servers have."""

from __future__ import annotations

import pytest
from tests.cases import cases

from toolwire.gateway.names import MAX_NAME, Renaming, bounded_name, uri_name


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert bounded_name("a" * MAX_NAME, MAX_NAME) == "a" * MAX_NAME


@pytest.mark.covers("GW-4.2")
@cases("room", [64, 40, 12, 11])
def test_a_long_name_is_cut_the_same_way_every_time(room: int) -> None:
    long, other = "x" * 500 + "_search_issues", "y" * 500 + "_search_issues"
    cut = bounded_name(long, room)
    assert len(cut) <= room
    assert cut == bounded_name(long, room) != bounded_name(other, room)
    if room >= 40:
        assert cut.endswith("_search_issues")


@pytest.mark.covers("GW-4.5")
@cases(
    ("uri", "named"),
    [
        ("note://today", "note://b/today"),
        ("file:///etc/motd", "file://b/etc/motd"),
        ("ui://app/main.html", "ui://b/app/main.html"),
        ("urn:isbn:1", "urn:b/isbn:1"),
        ("note://{day}/{hour}", "note://b/{day}/{hour}"),
    ],
)
def test_an_address_carries_the_name_of_its_server_and_can_be_taken_back(uri: str, named: str) -> None:
    renaming = Renaming.of(uri, "b")
    assert renaming is not None
    assert renaming.public(uri) == named
    assert renaming.inner(named) == uri
    assert renaming.inner(uri) is None


@cases("text", ["{+uri}", "{scheme}://x", "no-scheme"])
def test_a_text_without_a_scheme_of_its_own_is_not_renamed(text: str) -> None:
    assert Renaming.of(text, "b") is None


@pytest.mark.parametrize(("back", "name"), [("b", "b"), ("my {x} / é", "my%20%7Bx%7D%20%2F%20%C3%A9")])
def test_the_name_of_a_server_is_legal_in_addresses_and_templates(back: str, name: str) -> None:
    assert uri_name(back) == name
