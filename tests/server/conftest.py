"""What all tests of the server share."""

from __future__ import annotations

import pytest

from toolwire.server.context import deprecation


@pytest.fixture(autouse=True)
def warned(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """As if the process had warned of everything already; a test that wants warnings clears the set."""
    known = {"Sampling", "Roots", "Logging to the client"}
    monkeypatch.setattr(deprecation, "_warned", known)
    return known
