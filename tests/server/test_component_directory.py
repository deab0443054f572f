"""Components from a directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from toolwire import Client, Server, scan
from toolwire.protocol.errors import ServerError
from toolwire.server.component_directory import component_files

pytestmark = pytest.mark.warm_start


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Component directories join the search path of a program for good; here for one test."""
    monkeypatch.setattr(sys, "path", list(sys.path))


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
    (tmp_path / "third" / "tools").mkdir(parents=True)
    (tmp_path / "third" / "tools" / "linked").symlink_to(tmp_path / "real" / "tools")
    assert names(scan(tmp_path / "third").tools) == names(scan(tmp_path / "real").tools)


# Ways to reach a server whose file says `directory="components"`, from a folder that has nothing of it.
STARTED = {
    "as a script": ["server.py"],
    "by the command line": ["-m", "toolwire", "run", "server.py"],
    "as a module of a package": ["-m", "toolwire", "run", "package/server.py"],
    "loaded again on changes": ["-m", "toolwire", "run", "server.py", "--reload"],
}


@pytest.mark.covers("J51")
@pytest.mark.parametrize("how", STARTED)
@pytest.mark.parametrize(
    "made", ["server = Server('s', directory='components')", "server = Server('s').add_directory('components')"]
)
async def test_a_relative_path_starts_at_the_file_of_the_server(tmp_path: Path, how: str, made: str) -> None:
    project = tmp_path / "project"
    for folder in (project, project / "package"):
        write(folder / "components", FILES)
        (folder / "server.py").write_text(
            f"from toolwire import Server\n{made}\nif __name__ == '__main__':\n    server.run()\n"
        )
    (project / "package" / "__init__.py").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = [str(project / word) if word.endswith(".py") else word for word in STARTED[how]]
    async with Client([sys.executable, *words], cwd=elsewhere) as client:
        assert len(await client.list_tools()) == 4


@pytest.mark.covers("J51")
def test_the_file_that_calls_counts_and_not_the_program(tmp_path: Path) -> None:
    write(tmp_path / "library" / "components", FILES)
    (tmp_path / "library" / "made.py").write_text("from toolwire import Server, scan\nfound = scan('components')\n")
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.path.append(sys.argv[1])\nimport made\nprint(len(made.found))\n")
    command = [sys.executable, program, tmp_path / "library"]
    assert subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout == "7\n"


@pytest.mark.covers("J51")
def test_a_relative_path_may_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "components", FILES)
    monkeypatch.chdir(tmp_path)
    assert len(scan("components").all()) == 7


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def (", "SyntaxError: invalid syntax"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("from .nothing import x", "ModuleNotFoundError: No module named 'toolwire_components_"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, broken: str, says: str) -> None:
    write(tmp_path, {**FILES, "tools/a_broken.py": broken, "prompts/deep/worse.py": "1 / 0"})
    with pytest.raises(ServerError, match=r"^The component files cannot be imported: ") as caught:
        scan(tmp_path)
    assert f"tools/a_broken.py ({says}" in str(caught.value)
    assert "; prompts/deep/worse.py (ZeroDivisionError: division by zero)" in str(caught.value)
    assert type(caught.value.__cause__).__name__ == says.partition(":")[0]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("where", ["tools", "resources", "prompts", "tools/deep"])
@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("dangling.py", "it is a link that leads nowhere"),
        ("dangling", "it is a link that leads nowhere"),
        ("loop.py", "it is a link that leads nowhere"),
        ("pipe.py", "it is a device, a pipe or a socket"),
        ("zero.py", "it is a device, a pipe or a socket"),
        ("folder.py", "it is a folder, whose name must not end in .py"),
        ("full.py", "it is a folder, whose name must not end in .py"),
    ],
)
def test_what_only_looks_like_a_component_file_is_an_error(tmp_path: Path, where: str, made: str, says: str) -> None:
    write(tmp_path, FILES)
    path = tmp_path / where / made
    path.parent.mkdir(exist_ok=True)
    match made:
        case "pipe.py":
            os.mkfifo(path)
        case "folder.py":
            path.mkdir()
        case "full.py":
            write(path, {"one.py": "def one() -> str:\n    return ''\n"})
        case "zero.py":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to("loop.py" if made == "loop.py" else "nowhere")
    with pytest.raises(ServerError, match=rf"{where}/{made} \(ServerError: {says}\)"):
        scan(tmp_path)
    assert path not in component_files(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("folder", ["tools", "resources", "prompts"])
def test_component_folder_that_is_none_is_an_error(tmp_path: Path, folder: str) -> None:
    for make in (lambda path: path.touch(), lambda path: path.symlink_to("nowhere")):
        make(tmp_path / folder)
        with pytest.raises(ServerError, match=rf"{folder} \(ServerError: it is no folder\)"):
            scan(tmp_path)
        (tmp_path / folder).unlink()


def test_error_names_the_broken_files_whatever_they_raise(tmp_path: Path) -> None:
    broken = {
        f"tools/broken_{number:03}.py": f"raise ValueError('a\\nb\\x1b' + 'x' * {number}000)" for number in range(200)
    }
    with pytest.raises(ServerError) as caught:
        scan(write(tmp_path, broken))
    said = str(caught.value)
    assert "tools/broken_000.py (ValueError: a b\\x1b); tools/broken_001.py (ValueError: a b\\x1bxxx" in said
    assert said.endswith("; and 190 more")
    assert len(said) < 8000
    assert said.isprintable()


def test_the_traceback_begins_in_the_file_that_is_broken(tmp_path: Path) -> None:
    write(tmp_path, {"components/tools/broken.py": "def fail():\n    1 / 0\nfail()\n"})
    (tmp_path / "server.py").write_text("from toolwire import Server\nserver = Server('s', directory='components')\n")
    command = [sys.executable, "-m", "toolwire", "run", str(tmp_path / "server.py")]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert re.findall(r'File "[^"]*?(\w+\.py)", line (\d)', done.stderr) == [
        ("broken.py", "3"),
        ("broken.py", "2"),
        ("server.py", "2"),
    ]
    assert "The component file cannot be imported: tools/broken.py (ZeroDivisionError" in done.stderr


NEIGHBOURS = {
    "tools/_shared.py": "def twice(n: int) -> int:\n    return 2 * n\n",
    "tools/deep/_below.py": "from .._shared import twice\n",
    "common.py": "def thrice(n: int) -> int:\n    return 3 * n\n",
}


@pytest.mark.covers("J50")
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("tools/user.py", "from ._shared import twice"),
        ("tools/user.py", "from _shared import twice"),
        ("tools/user.py", "from .deep._below import twice"),
        ("tools/user.py", "from ..common import thrice as twice"),
        ("tools/user.py", "from common import thrice as twice"),
        ("tools/deep/user.py", "from .._shared import twice"),
        ("tools/deep/user.py", "from _shared import twice"),
        ("tools/deep/user.py", "from ...common import thrice as twice"),
    ],
)
async def test_a_component_file_imports_its_neighbours(tmp_path: Path, file: str, line: str) -> None:
    server = Server("s", directory=uses(tmp_path, file, line, "thread"))
    assert (await server.call_tool("use", {"n": 3})).text == ("9" if "common" in line else "6")


@pytest.mark.parametrize("line", ["from .._shared import twice", "from _shared import twice"])
async def test_a_component_file_imports_its_neighbours_in_a_process_too(tmp_path: Path, line: str) -> None:
    server = Server("s", directory=uses(tmp_path, "tools/deep/user.py", line, "process"))
    async with Client(server) as client:
        assert (await client.call_tool("use", {"n": 3})).text == "6"


def uses(root: Path, file: str, line: str, executor: str) -> Path:
    """A directory with a tool that needs what the line imports."""
    for name in ("_shared", "common"):
        sys.modules.pop(name, None)  # They may be those of another directory.
    body = f"{line}\nfrom toolwire import Tool\ndef _use(n: int) -> int:\n    return twice(n)\n"
    body += f"use = Tool(_use, name='use', executor={executor!r})\n"
    return write(root, {**NEIGHBOURS, file: body})


def test_a_component_that_another_file_imports_is_one_component(tmp_path: Path) -> None:
    files = {
        "tools/one.py": "from toolwire import Tool\ndef _add() -> int: ...\nadd = Tool(_add, name='add')\n",
        "tools/another.py": "from .one import add\nALL = [add]\n",
    }
    assert names(scan(write(tmp_path, files)).tools) == ["add"]


@pytest.mark.covers("J50")
@pytest.mark.parametrize("form", ["[{}]", "({},)"], ids=["list", "tuple"])
def test_components_in_a_list_are_registered(tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture) -> None:
    several = "Tool(lambda: 1, name='a', input_schema=S), Tool(lambda: 2, name='b', input_schema=S), 'text', len"
    files = {
        "tools/many.py": f"from toolwire import Tool\nS = {{'type': 'object'}}\nTOOLS = {form.format(several)}\n",
        "resources/many.py": "from toolwire import Resource\n"
        "NOTES = [Resource(f'note://{n}', content='', name=f'n{n}') for n in range(3)]\n_HIDDEN = [NOTES[0]]\n",
    }
    found = scan(write(tmp_path, files))
    assert (names(found.tools), names(found.resources)) == (["a", "b"], ["n0", "n1", "n2"])
    assert not caplog.records


@pytest.mark.covers("J49", "J52")
def test_a_scan_goes_down_into_folders(tmp_path: Path) -> None:
    files = {
        "tools/a.py": "def a() -> int: ...",
        "tools/billing/b.py": "def b() -> int: ...",
        "tools/billing/deep/c-d.py": "def c() -> int: ...",
        "tools/_private/d.py": "def d() -> int: ...",
        "tools/.hidden/e.py": "def e() -> int: ...",
        "tools/package/__init__.py": "def f() -> int: ...",
        "tools/package/g.py": "def g() -> int: ...",
        "prompts/x/h.py": "def h() -> str: ...",
        "other/i.py": "def i() -> int: ...",
    }
    write(tmp_path, files)
    if os.name != "nt":  # Links need a privilege on Windows.
        (tmp_path / "tools" / "billing" / "loop").symlink_to(tmp_path / "tools")
    found = scan(tmp_path)
    assert (names(found.tools), names(found.prompts)) == (["a", "b", "c", "g"], ["h"])


def test_a_scan_sees_what_changed_since_the_last(tmp_path: Path) -> None:
    write(
        tmp_path, {"tools/_value.py": "VALUE = 1", "tools/one.py": "from ._value import VALUE\ndef one(): return VALUE"}
    )
    assert scan(tmp_path).tools[0].function() == 1
    write(tmp_path, {"tools/_value.py": "VALUE = 22", "tools/two.py": "def two(): ..."})
    found = scan(tmp_path)
    assert (names(found.tools), found.tools[0].function()) == (["one", "two"], 22)


def test_two_files_with_one_tool_are_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {f"tools/{name}.py": f"def pay() -> str:\n    return {name!r}\n" for name in ("a", "b")})
    assert len(Server("s", directory=tmp_path).tools) == 1
    assert "there are two of the tool 'pay'" in caplog.text


def test_what_a_scan_found_is_added_at_once(tmp_path: Path) -> None:
    server = Server("s").add(scan(write(tmp_path, FILES)))
    assert names(server.tools) == ["add", "bye", "greet", "twice"]
    assert (names(server.templates), names(server.prompts)) == (["any_day"], ["brief"])


def test_a_directory_is_added_to_a_server_that_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    assert server.add_directory(write(tmp_path, FILES)) is server
    assert names(server.tools) == ["add", "bye", "greet", "twice"]
    assert not caplog.records
    server.add_directory(tmp_path)
    assert "there are two of the tool 'add'" in caplog.text
    assert len(server.tools) == 4


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
    with pytest.raises(ServerError, match=r"There is no component directory 'nowhere': it would be .* or ") as caught:
        Server("s", directory="nowhere")
    for place in (Path(__file__).parent, Path.cwd()):
        assert str(place / "nowhere") in str(caught.value)
