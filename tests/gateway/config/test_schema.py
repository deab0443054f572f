"""The JSON schema of the file, and the page of all its keys."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
from tests.cases import cases

from toolwire.gateway.config import GatewayFileError, read_gateway_file

ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads((ROOT / "src/toolwire/gateway/config/schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def gateway_file() -> ModuleType:
    found = importlib.util.spec_from_file_location("gateway_file", ROOT / "scripts" / "gateway_file.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.covers("GW-9.1")
def test_the_schema_and_the_page_have_every_key(gateway_file: ModuleType) -> None:
    """`python scripts/gateway_file.py` writes both from the tables."""
    for path, text in gateway_file.written().items():
        assert path.read_text("utf-8") == text, f"run python scripts/gateway_file.py: {path.name} differs"


def test_every_key_is_described(gateway_file: ModuleType) -> None:
    bare = [
        f"{cls.__name__}.{field.name}"
        for cls, (_, table) in gateway_file.tables().items()
        for field in table.fields
        if not gateway_file.text_of(cls, field)
    ]
    assert bare == []


ONE = {"mcpServers": {"a": {"url": "http://localhost:1/mcp"}}}


@cases(
    ("content", "is_good"),
    [
        (ONE, True),
        ({"$schema": "x", **ONE, "other": 1}, True),
        ({"mcpServers": {"a": {"url": "http://localhost:1/mcp", "alwaysAllow": []}}}, True),
        ({**ONE, "gateway": {"secret": {"env": "PATH"}}}, True),
        ({**ONE, "gateway": {"secret": {"env": "PATH", "file": "x"}}}, False),
        ({**ONE, "gateway": {"nam": "x"}}, False),
        ({**ONE, "gateway": {"strict": 1}}, False),
        ({**ONE, "http": {"port": "${NOT_SET_ANYWHERE:-1}"}}, True),
        ({**ONE, "http": {"log_level": "loud"}}, False),
        ({**ONE, "gateway": {"auth": {"jwt": {"issuer": "https://a.example"}}}}, False),
        ({"mcpServers": {"a": {"url": "http://a/mcp", "credentials": {"kind": "user_oauth"}}}}, True),
        ({"mcpServers": {"a": {"url": "http://a/mcp", "credentials": {"kind": "user_auth"}}}}, False),
        ({"mcpServers": {"a": {"url": "http://a/mcp", "policy": {"rate": ["1/day", {"calls": "2/day"}]}}}}, True),
    ],
)
def test_schema_and_reader_agree(content: dict[str, Any], is_good: bool) -> None:
    assert jsonschema_rs.validator_for(SCHEMA).is_valid(content) is is_good
    if is_good:
        read_gateway_file(content)
    else:
        with pytest.raises(GatewayFileError):
            read_gateway_file(content)


def test_the_example_of_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/reference/gateway-file.md").read_text("utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert jsonschema_rs.validator_for(SCHEMA).is_valid(tomllib.loads(example))
    monkeypatch.setenv("TICKETS_SECRET", "s3cret")
    (tmp_path / "secrets").mkdir()
    for name in ("gateway", "audit"):
        (tmp_path / "secrets" / name).write_text("0123456789abcdef0123456789abcdef\n")
    file = tmp_path / "gateway.toml"
    file.write_text(example)
    assert list(read_gateway_file(file).backs) == ["files", "tickets"]
