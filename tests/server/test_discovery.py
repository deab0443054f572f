"""Components from a directory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from toolwire import Server, scan
from toolwire.protocol.errors import ServerError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(content))
    return root


FILES = {
    "tools/sums.py": """
        from toolwire import Tool

        def _add(a: int, b: int) -> int:
            return a + b

        add = Tool(_add, name="add")
        twice = Tool(lambda n: 2 * n, name="twice", input_schema={"type": "object"})
    """,
    "tools/plain.py": """
        from os.path import join
        from json import dumps

        def greet(name: str) -> str:
            \"\"\"Says hello.\"\"\"
            return f"Hello {name}"

        async def bye() -> str:
            return "Bye"

        def _private() -> None: ...
    """,
    "resources/notes.py": """
        from toolwire import Resource, ResourceTemplate

        today = Resource("note://today", content="rain", name="today")
        any_day = ResourceTemplate("note://{day}", lambda day: day, name="any_day")
    """,
    "prompts/brief.py": """
        from toolwire import Prompt

        brief = Prompt.text("About {city}", name="brief")
    """,
    "tools/_helper.py": "raise RuntimeError('never imported')",
    "tools/README.md": "not Python",
}


def names(items: Any) -> list[str]:
    return sorted(each.name for each in items)


@pytest.mark.covers("J49", "J50")
async def test_what_the_folders_define_is_registered(tmp_path: Path) -> None:
    server = Server("s", directory=write(tmp_path, FILES))
    assert names(server.tools) == ["add", "bye", "greet", "twice"]
    assert (names(server.resources), names(server.templates)) == (["today"], ["any_day"])
    assert names(server.prompts) == ["brief"]
    assert (await server.call_tool("add", {"a": 1, "b": 2})).text == "3"
    assert (await server.call_tool("greet", {"name": "Ann"})).text == "Hello Ann"
    assert next(tool for tool in server.tools if tool.name == "greet").description == "Says hello."


@pytest.mark.covers("J49")
@pytest.mark.parametrize("folder", ["tools", "resources", "prompts"])
def test_every_folder_is_optional(tmp_path: Path, folder: str) -> None:
    files = {name: content for name, content in FILES.items() if name.startswith(folder)}
    found = scan(write(tmp_path, files))
    assert len(found.all()) == {"tools": 4, "resources": 2, "prompts": 1}[folder]


@pytest.mark.covers("J52")
def test_a_scan_groups_by_kind_and_registers_nothing(tmp_path: Path) -> None:
    found = scan(write(tmp_path, FILES))
    assert names(found.tools) == ["add", "bye", "greet", "twice"]
    assert names(found.resources) == ["today"]
    assert names(found.templates) == ["any_day"]
    assert names(found.prompts) == ["brief"]
    assert len(found.all()) == 7


@pytest.mark.covers("J51")
@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "real", FILES)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert len(scan(tmp_path / "link").all()) == 7
    (tmp_path / "other" / "tools").mkdir(parents=True)
    (tmp_path / "other" / "tools" / "linked.py").symlink_to(tmp_path / "real" / "tools" / "plain.py")
    assert names(scan(tmp_path / "other").tools) == ["bye", "greet"]


@pytest.mark.covers("J51")
def test_a_relative_path_starts_where_the_program_lies(tmp_path: Path) -> None:
    write(tmp_path / "project" / "components", FILES)
    program = tmp_path / "project" / "server.py"
    program.write_text("from toolwire import Server\nprint(len(Server('s', directory='components').tools))\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = subprocess.run([sys.executable, program], cwd=elsewhere, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "4"


@pytest.mark.covers("J51")
def test_a_relative_path_may_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "components", FILES)
    monkeypatch.chdir(tmp_path)
    assert len(scan("components").all()) == 7


@pytest.mark.parametrize(
    "broken", ["raise RuntimeError('boom')", "def (", "import no_such_module", "import sys; sys.exit(1)"]
)
def test_a_broken_file_does_not_stop_the_others(tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    found = scan(write(tmp_path, {**FILES, "tools/a_broken.py": broken}))
    assert len(found.tools) == 4
    assert "a_broken.py was left out" in caplog.text


def test_a_file_without_components_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert scan(write(tmp_path, {"tools/empty.py": "x = 1"})).all() == []
    assert "empty.py defines no component" in caplog.text


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder in "ab":
        write(tmp_path / folder, {"tools/same.py": f"def {folder}() -> str:\n    return __name__\n"})
    one, other = scan(tmp_path / "a").tools[0], scan(tmp_path / "b").tools[0]
    assert one.function() != other.function()


def test_a_dataclass_in_a_component_file(tmp_path: Path) -> None:
    files = {
        "tools/typed.py": """
            from __future__ import annotations
            from dataclasses import dataclass

            @dataclass
            class Point:
                x: int

            def move(point: Point) -> Point:
                return Point(point.x + 1)
        """
    }
    (tool,) = scan(write(tmp_path, files)).tools
    assert tool.input_schema["properties"]["point"]["properties"] == {"x": {"type": "integer"}}


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="There is no component directory"):
        Server("s", directory=tmp_path / "nowhere")
