"""The file of docs/guides/gateway-in-ten-minutes.md is examples/gateway.toml, and describes a gateway."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.blocks import ROOT

from toolwire.gateway.config import read_gateway_file

PAGE = ROOT / "docs" / "guides" / "gateway-in-ten-minutes.md"
EXAMPLE = ROOT / "examples" / "gateway.toml"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_file_of_the_page_is_the_example() -> None:
    first, second, *added = blocks("toml")
    assert first.startswith("# gateway.toml\n") and second.startswith("# gateway.toml\n")
    assert "\n".join([second, *added]) == EXAMPLE.read_text(encoding="utf-8")


def test_the_provider_of_the_page_is_the_example() -> None:
    [provider] = blocks("js")
    assert provider == (ROOT / "examples" / "gateway" / "login.mjs").read_text(encoding="utf-8")


def test_the_example_describes_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", str(tmp_path))
    shutil.copy(EXAMPLE, tmp_path)
    key = tmp_path / "audit.key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    file = read_gateway_file(tmp_path / "gateway.toml")
    assert list(file.backs) == ["files", "memory"]
    assert not file.exposed
