"""What a child inherits of the environment."""

from __future__ import annotations

import os

import pytest

from toolwire.wire import environment
from toolwire.wire.environment import POSIX, WINDOWS, child_environment

SECRETS = ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL", "HTTPS_PROXY", "SSH_AUTH_SOCK", "PYTHONPATH")
OURS = ("TOOLWIRE_SECRET", "TOOLWIRE_AUDIT_KEY", "TOOLWIRE_TOKEN", "TOOLWIRE_STORES", "TOOLWIRE_STORES_LIMITS")


@pytest.fixture(params=[POSIX, WINDOWS], ids=["posix", "windows"])
def inherited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
    names: frozenset[str] = request.param
    monkeypatch.setattr(environment, "_INHERITED", names)
    for name in (*names, *SECRETS, *OURS, "LC_ALL"):
        monkeypatch.setenv(name, f"value of {name}")
    return names


def test_only_what_every_program_needs_is_inherited(inherited: frozenset[str]) -> None:
    found = child_environment()
    assert {*inherited, "LC_ALL"} <= found.keys()
    assert not found.keys() & {*SECRETS, *OURS}
    assert {name for name in found if not name.startswith("LC_")} <= inherited


def test_everything_is_inherited_but_our_own_keys(inherited: frozenset[str]) -> None:
    found = child_environment(inherit_all=True)
    assert found == {name: value for name, value in os.environ.items() if not name.startswith("TOOLWIRE_")}


def test_what_is_added_goes_before_what_is_inherited(inherited: frozenset[str]) -> None:
    found = child_environment({"PATH": "mine", "TOOLWIRE_TOKEN": "mine", "OPENAI_API_KEY": "mine"})
    assert {found[name] for name in ("PATH", "TOOLWIRE_TOKEN", "OPENAI_API_KEY")} == {"mine"}


def test_the_functions_of_a_shell_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "() { :; }; echo broken into")
    assert "TERM" not in child_environment()
