"""Addresses that HTTP sessions subscribed to: one caller does not take the place of others."""

from __future__ import annotations

from toolwire.server.watched_addresses import WatchedAddresses


def test_who_has_the_most_addresses_loses_the_oldest() -> None:
    watched = WatchedAddresses(4)
    watched.add("ann", "note://one")
    watched.add("bob", "note://shared")
    for number in range(9):
        watched.add("eve", "note://shared")
        watched.add("eve", f"note://{number}")
    assert {*watched} == {"note://one", "note://shared", "note://8"}


def test_an_address_counts_once_for_a_caller() -> None:
    watched = WatchedAddresses(2)
    for uri in ("note://one", "note://two", "note://one", "note://two", "note://three"):
        watched.add(None, uri)
    assert list(watched) == ["note://two", "note://three"]
