"""Principals, and the lazy package around them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from tests.cases import cases

from toolwire import auth
from toolwire.auth import Principal


def test_a_subject_is_enough() -> None:
    principal = Principal("alice")
    assert (principal.subject, principal.provider, principal.username) == ("alice", "", None)
    assert principal.scopes == frozenset()
    assert principal.claims == {}


@cases("scopes", ["read write", ["write", "read"], {"read", "write"}, frozenset({"read", "write"})])
def test_scopes_are_a_text_or_a_list(scopes: object) -> None:
    assert Principal("alice", scopes=scopes).scopes == frozenset({"read", "write"})  # type: ignore[arg-type]


@pytest.mark.parametrize("subject", ["", None])
def test_nobody_is_not_a_principal(subject: object) -> None:
    with pytest.raises(ValueError, match="subject"):
        Principal(subject)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"subject": "al\ud800ice"}, {"subject": "alice", "provider": "\udfff"}])
def test_half_of_a_surrogate_pair_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"(subject|provider) of a principal has half of a surrogate pair"):
        Principal(**given)  # type: ignore[arg-type]


def test_text_beyond_ascii_is_a_subject() -> None:
    assert Principal("Zoë 😀", provider="müller").subject == "Zoë 😀"


def test_it_cannot_be_changed_and_can_travel_to_a_process() -> None:
    principal = Principal("alice", scopes=frozenset({"read"}), claims={"email": "alice@example.org"})
    with pytest.raises(AttributeError):
        principal.subject = "bob"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(principal)) == principal


def test_its_representation_keeps_the_claims_to_itself() -> None:
    assert "secret@example.org" not in repr(Principal("alice", claims={"email": "secret@example.org"}))


def test_the_package_loads_nothing_until_a_name_is_used() -> None:
    code = "import sys, toolwire.auth\nprint(*[name for name in sys.modules if name.startswith('toolwire.auth.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_name_is_there() -> None:
    for name in auth.__all__:
        assert getattr(auth, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = auth.no_such_name
