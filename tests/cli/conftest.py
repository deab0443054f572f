"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.command import Command

from toolwire import logs


@pytest.fixture(autouse=True)
def no_log_handler() -> Iterator[None]:
    """A command installs a log handler. It must not outlive the test, because it hides log lines from later tests."""
    yield
    logs.uninstall()


@pytest.fixture
def toolwire(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)
