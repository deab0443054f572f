"""The tables of a file, and the mistakes in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire.gateway.config import GatewayFileError, gateway_of, read_gateway_file
from toolwire.protocol.errors import ServerError


@pytest.mark.covers("GW-1.5")
@cases(
    ("content", "text"),
    [
        ({}, "names no server"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "disabled": True}}}, "names no server"),
        ({"mcpServers": {"a": {}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "revision": "1999-01-01"}}}, "'a' cannot have the revision"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": 0}}}, "must be above 0"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": "soon"}}}, "mcpServers.a.timeout: Expected `float`"),
        ({"mcpServers": {"a": {"url": "http://x/${NOT_SET_ANYWHERE}"}}}, "NOT_SET_ANYWHERE is not set"),
        (
            {"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"nam": "x"}},
            "gateway.nam: there is no such key: did you mean 'name'",
        ),
        (
            {"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"port": 1}},
            "gateway.port: .*the keys are name, version",
        ),
        ({"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"strict": "x"}}, "gateway.strict: Expected `bool`"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "prefx": ""}}}, "mcpServers.a.prefx: .*did you mean 'prefix'"),
        ({"mcpServer": {"a": {"url": "http://x/mcp"}}}, "mcpServer: .*did you mean 'mcpServers'"),
        ({"mcpServers": ["http://x/mcp"]}, "mcpServers: Expected `object . null`, got `array`"),
        ({"mcpServers": {"a": "http://x/mcp"}}, "mcpServers.a: Expected `object`"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "list_timeout": 0}}}, "must be above 0"),
    ],
)
def test_mistakes_are_named(content: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        gateway_of(content)


ONE = '"back": {"url": "http://localhost:1/mcp"}'


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", "{", "cannot be read as a JSON file: .*line 1"),
        ("a.json", '{"mcpServers":\n  {,}}', "line 2"),
        ("a.toml", "x = !", "cannot be read as a TOML file: .*line 1"),
        ("a.json", None, "^'.*a.json' cannot be read: No such file"),
        ("a.json", f'{{"mcpServers": {{{ONE},\n{ONE}}}}}', "'back' stands there twice, in line 1 and in line 2"),
        ("a.toml", "[mcpServers.back]\n[mcpServers.back]\n", "line 2"),
        ("a.json", "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: str | None, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(ServerError, match=text):
        gateway_of(file)


TOML = """[mcpServers.back]
url = "http://localhost:1/mcp"
prefx = ""

[mcpServers.other]
url = "http://localhost:2/${NOT_SET_ANYWHERE}"
timeout = [ 1 ]

[gateway]
nam = "x"
"""


@pytest.mark.covers("GW-9.2")
@pytest.mark.parametrize("form", ["toml", "json"])
def test_all_mistakes_are_told_with_line_and_key_and_without_values(form: str, tmp_path: Path) -> None:
    file = tmp_path / f"gateway.{form}"
    values = {
        "mcpServers": {
            "back": {"url": "http://localhost:1/mcp", "prefx": ""},
            "other": {"url": "http://localhost:2/${NOT_SET_ANYWHERE}", "timeout": [1]},
        },
        "gateway": {"nam": "x"},
    }
    file.write_text(TOML if form == "toml" else json.dumps(values, indent=1))
    with pytest.raises(GatewayFileError) as caught:
        read_gateway_file(file)
    lines = {"toml": [3, 6, 7, 10], "json": [5, 8, 9, 15]}[form]
    keys = ["mcpServers.back.prefx", "mcpServers.other.url", "mcpServers.other.timeout", "gateway.nam"]
    assert [(each.line, each.place) for each in caught.value.problems] == list(zip(lines, keys, strict=True))
    assert str(caught.value).startswith(f"{str(file)!r}, line {lines[0]}, mcpServers.back.prefx: there is no such key")
    assert str(caught.value).endswith("(and 3 more)")
    assert "localhost" not in str(caught.value.problems)


def test_entries_are_compared_with_the_values_that_they_refer_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key = tmp_path / "gateway.toml", tmp_path / "key"
    file.write_text(
        '[mcpServers.a]\nurl = "http://localhost:1/${PLACE}"\nheaders = { X-Key = { file = "key" } }\n'
        '[mcpServers.b]\nurl = "http://localhost:2/mcp"\ntimeout = "${SECONDS:-5}"\n'
    )
    key.write_text("first-secret\n")
    monkeypatch.setenv("PLACE", "here")
    before = read_gateway_file(file)
    assert before.backs["a"].url == "http://localhost:1/here"
    assert before.backs["a"].headers == {"X-Key": "first-secret"}
    assert before.backs["b"].timeout == 5
    assert before.paths == (file, key)
    assert "first-secret" not in repr(before.backs)
    key.write_text("second-secret")
    after = read_gateway_file(file)
    assert after.backs["a"] != before.backs["a"]
    assert after.backs["b"] == before.backs["b"]
    assert after.gateway == before.gateway
