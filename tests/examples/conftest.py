"""Fixtures of the examples' tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.cli.command import Command

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """An example, loaded anew: what it reads from the environment it reads now."""

    def load(name: str) -> ModuleType:
        specification = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, specification.name, module)
        specification.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def toolwire(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)
