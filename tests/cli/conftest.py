"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest
from tests.cli.command import Command


@pytest.fixture
def toolwire(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)
