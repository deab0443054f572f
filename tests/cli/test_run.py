"""`toolwire run`, as a process: what it serves, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import cases

from toolwire import cli
from toolwire._version import __version__
from toolwire.client import Client
from toolwire.client.targets import CommandTarget

pytestmark = pytest.mark.cold_start

# A server object as the command sees one: it has `serve` and `run`. It answers every request with its name.
SERVER = """
import json, os, sys
from toolwire.wire.stdio import claim

class FakeServer:
    def __init__(self, name):
        self.name = name
    def serve(self, channel):
        raise NotImplementedError
    def run(self, transport="stdio"):
        requests, responses = claim()
        with os.fdopen(requests) as lines:
            for line in lines:
                message = json.loads(line)
                if "id" in message:
                    info = {"name": self.name, "version": "1"}
                    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
                    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    os.write(responses, json.dumps(answer).encode() + b"\\n")
"""


def toolwire(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolwire", *arguments]
    return subprocess.run(command, input=input, capture_output=True, text=True, timeout=30)


def write(folder: Path, body: str, name: str = "my_server.py") -> str:
    path = folder / name
    path.write_text(SERVER + body, encoding="utf-8")
    return str(path)


async def served(*arguments: str) -> str:
    """The name of the server that a client finds behind the command."""
    async with Client([sys.executable, "-m", "toolwire", "run", *arguments], revision="2025-06-18") as client:
        assert client.server is not None
        return client.server.name


async def test_the_usual_name_is_found_and_printing_harms_nobody(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
print("chatter at import")
os.write(1, b"more, from a C library")
other, server = FakeServer("other"), FakeServer("main")
if __name__ == "__main__":
    raise SystemExit("was run as a script")
""",
    )
    assert await served(file) == "main"
    assert await served(f"{file}:other", "--transport", "stdio") == "other"


@pytest.mark.parametrize("name", ["server", "mcp", "app", "anything"])
async def test_any_name_will_do_for_the_only_server(tmp_path: Path, name: str) -> None:
    assert await served(write(tmp_path, f"{name} = again = FakeServer('only')")) == "only"


async def test_a_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'next door'", encoding="utf-8")
    assert await served(write(tmp_path, "from neighbour import NAME\nserver = FakeServer(NAME)")) == "next door"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A file in a package, which imports its neighbours with and without the name of the package."""
    folder = tmp_path / "src" / "shop"
    (folder / "api").mkdir(parents=True)
    for module in ("__init__", "api/__init__", "names"):
        (folder / f"{module}.py").write_text("")
    (folder / "db.py").write_text("NAME = __name__")
    (folder / "api" / "neighbour.py").write_text("NAME = __name__")
    body = "from ..db import NAME\nimport neighbour, shop.names\nserver = FakeServer(f'{NAME} {neighbour.NAME}')"
    write(folder / "api", body)
    return folder


async def test_a_file_in_a_package_is_imported_as_part_of_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await served(str(package / "api" / "my_server.py")) == "shop.db neighbour"
    monkeypatch.chdir(package)
    assert await served("api/my_server.py:server") == "shop.db neighbour"


async def test_a_module_is_found_from_this_folder_on(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(package.parent)
    assert await served("shop.api.my_server") == "shop.db neighbour"
    assert await served("shop.api.my_server:server") == "shop.db neighbour"
    said = toolwire("run", "shop.api.nothing")
    assert (said.returncode, said.stderr) == (2, "toolwire: there is no file and no module 'shop.api.nothing'\n")
    assert "'shop' defines no Server" in toolwire("run", "shop").stderr


def test_a_module_that_is_meant_for_its_server_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    write(tmp_path / "shop", "server = FakeServer('shop')", "server.py")
    (tmp_path / "main.py").write_text("from shop import server")
    done = toolwire("run", str(tmp_path / "main.py"))
    said = "toolwire: 'main.py' imports the module shop.server and no server from it: name the module instead\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_relative_import_outside_of_a_package_is_explained(tmp_path: Path) -> None:
    done = toolwire("run", write(tmp_path, "from .db import NAME"))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "toolwire: my_server.py is not in a package: put an __init__.py beside it, or import without the dot\n"
    )


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_function_that_makes_the_server(tmp_path: Path, kind: str) -> None:
    file = write(tmp_path, f"{kind} create_server(name='made'):\n    return FakeServer(name)")
    assert await served(f"{file}:create_server") == "made"


def test_a_function_that_fails_shows_its_frames_only(tmp_path: Path) -> None:
    done = toolwire("run", write(tmp_path, "def create():\n    return 1 / 0") + ":create")
    assert done.returncode == 1
    assert done.stderr.count('File "') == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("body", "suffix", "says"),
    [
        ("", "", "'my_server.py' defines no Server"),
        ("def create_server(): ...", "", "or name the function that makes it by adding :create_server\n"),
        ("def create(): ...", ":create", "'create' in 'my_server.py' made a NoneType, not a Server"),
        ("", ":FakeServer", "must be callable without arguments to make the server: missing a required"),
        ("a, b = FakeServer('a'), FakeServer('b')", "", "several servers (a, b): say which, as my_server.py:NAME"),
        ("server = FakeServer('a')", ":missing", "'my_server.py' has no 'missing'"),
        ("server = FakeServer('a')", ":os", "'os' in 'my_server.py' is a module, not a Server"),
        ("server = FakeServer('a')", ":", "ends with a colon"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(tmp_path: Path, body: str, suffix: str, says: str) -> None:
    done = toolwire("run", write(tmp_path, body) + suffix)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("toolwire: ")
    assert done.stdout == ""


@cases("spec", ["missing.py", "missing.py:server", "no/such/place.py"])
def test_a_missing_file_is_named(spec: str) -> None:
    done = toolwire("run", spec)
    assert (done.returncode, done.stderr) == (2, f"toolwire: there is no file {spec.removesuffix(':server')!r}\n")


def test_the_file_beside_it_that_may_be_meant_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "server = FakeServer('a')")
    assert "did you mean" not in toolwire("run", str(tmp_path / "nothing.py")).stderr
    for typed in ("my_sever.py", "my_server", "my_sever.py:server"):
        done = toolwire("run", str(tmp_path / typed))
        assert (done.returncode, f"; did you mean {file!r}?" in done.stderr) == (2, True), done.stderr
    assert "is a folder: name the Python file in it" in toolwire("run", str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("def broken():\n    return 1 / 0\nbroken()", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "No module named"),
    ],
)
def test_an_error_in_the_users_file_shows_their_frames_only(tmp_path: Path, body: str, error: str) -> None:
    done = toolwire("run", write(tmp_path, body))
    assert done.returncode == 1
    assert done.stdout == ""
    assert error in done.stderr
    assert "my_server.py" in done.stderr
    assert "toolwire" not in done.stderr.replace(str(tmp_path), "")
    assert "importlib" not in done.stderr


def test_a_tool_that_can_not_be_registered_is_shown_at_the_users_line(tmp_path: Path) -> None:
    body = "from toolwire import Server\nserver = Server('x')\n@server.tool\ndef many(*names: str) -> str: ...\n"
    file = tmp_path / "star.py"
    file.write_text(body)
    done = toolwire("run", str(file))
    assert done.returncode == 1
    assert done.stderr.count('File "') == 1
    assert 'star.py", line 3' in done.stderr
    assert done.stderr.endswith("ServerError: many: *names cannot be described; name each parameter\n")


def test_a_file_that_needs_a_missing_extra_is_answered_in_one_line(tmp_path: Path) -> None:
    body = "sys.modules['limits'] = None\nfrom toolwire import Policy\nPolicy(rate='1/minute')\n"
    done = toolwire("run", write(tmp_path, body))
    said = "toolwire: my_server.py: rate= of a Policy needs limits: pip install 'toolwire[policy]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_file_that_is_not_python_is_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "my_server.py"
    path.write_text("this is = not python", encoding="utf-8")
    done = toolwire("run", str(path))
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr


def test_the_version_goes_to_standard_output() -> None:
    done = toolwire("--version")
    assert (done.returncode, done.stdout) == (0, f"toolwire {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lst",), "unknown command 'lst'; did you mean list? (`toolwire --help` lists the commands)"),
        (("dance",), "unknown command 'dance' (`toolwire --help` lists the commands)"),
        (("call",), "the following arguments are required: TARGET (`toolwire call --help` explains the command)"),
        (("request", "x"), "the following arguments are required: METHOD (`toolwire request --help`"),
        (("skills",), "the following arguments are required: ACTION, TARGET (`toolwire skills --help`"),
        (("run", "x.py", "--zed"), "unknown option --zed (`toolwire run --help` explains the command)"),
        (("run", "x.py", "--prot=1"), "unknown option --prot; did you mean --port?"),
        (("list", "x", "--timeout", "soon"), "'soon' is not a time to wait: give a number of seconds above 0"),
        (("run", "x.py", "--port", "http"), "'http' is not a port: give a number from 0 to 65535"),
        (("tasks", "list", "--limit", "all"), "'all' is not a count: give a whole number of at least 1"),
        (("run",), "the following arguments are required: FILE[:OBJECT] (`toolwire run --help` explains the command)"),
        (("run", "x.py", "--transport", "htp"),
         "argument --transport: 'htp' is not one of stdio, http, streamable-http, sse; did you mean http? ("),
        (("run", "x.py", "--prot", "1"), "unknown option --prot; did you mean --port? (`toolwire run"),
        (("run", "x.py", "y.py"), "unexpected argument 'y.py' (`toolwire run --help`"),
        (("list", "x.py", "tols"), "'tols' is not one of tools, resources, templates, prompts; did you mean tools? ("),
        (("list", "x.py", "--jsn=1"), "unknown option --jsn; did you mean --json? (`toolwire list"),
        (("gateway", "check"), "are required: FILE (`toolwire gateway check --help`"),
        (("tasks", "lst", "x.db"), "did you mean list?"),
        (("openapi", "ad", "api.yaml"), "'ad' is not one of list, add, check; did you mean add? ("),
        (("gateway", "chek", "g.toml"),
         "'chek' is neither a file nor one of check, credentials, pins, schema; did you mean check? ("),
        (("gateway", "pinz", "list", "g.toml", "--json"), "did you mean pins? (`toolwire gateway --help`"),
        (("gateway", "--port", "8001", "shema"), "did you mean schema?"),
        (("gateway", "pins", "lst", "g.toml"), "did you mean list?"),
        (("gateway", "credentials", "revok", "g.toml"), "did you mean revoke?"),
        (("skills", "digst", "x"), "did you mean digest?"),
        (("audit", "verfy", "x"), "did you mean verify?"),
        (("--verson",), "unknown option --verson; did you mean --version?"),
    ],
)  # fmt: skip
def test_mistake_is_one_line_that_says_what_was_meant(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("toolwire: ") and err.count("\n") == 1
    assert says in err


def test_no_command_shows_the_commands() -> None:
    done = toolwire()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: toolwire")


def test_start_up_loads_little() -> None:
    code = "import json, sys, toolwire.cli; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"argparse", "asyncio", "toolwire.cli.run", "toolwire.client"} & set(json.loads(done.stdout))


def test_a_server_is_served_without_the_other_commands(tmp_path: Path) -> None:
    file = write(tmp_path, "sys.stderr.write(json.dumps(sorted(sys.modules)))\nraise SystemExit(0)")
    loaded = set(json.loads(toolwire("run", file).stderr))
    assert "toolwire.cli.run" in loaded
    ours = {name for name in loaded if name.startswith("toolwire.cli.")}
    needed = ("run", "errors", "parsing", "server_file", "server_source", "options", "api_file", "openapi_options")
    assert ours == {f"toolwire.cli.{name}" for name in needed}
    assert not {"toolwire.client", "toolwire.openapi", "rich", "httptools"} & loaded


# --- what is logged, and what is said at a terminal ------------------------------------------------------------------

FAILING = """
import logging
from toolwire import Server
{before}
server = Server("failing")

@server.tool
def fail() -> str:
    logging.getLogger("toolwire.mine").info("about to fail")
    raise RuntimeError("the reason")
"""


async def logged(folder: Path, *options: str, before: str = "") -> list[str]:
    """The first lines of what a server logs while a tool fails."""
    file = folder / "failing.py"
    file.write_text(FAILING.format(before=before), encoding="utf-8")
    said: list[str] = []
    target = CommandTarget([sys.executable, "-m", "toolwire", "run", str(file), *options], "failing.py")
    target.on_stderr = said.append
    async with Client(target) as client:
        assert (await client.call_tool("fail")).is_error
    return [line for line in said if not line.startswith((" ", "Traceback", "RuntimeError"))]


@pytest.mark.covers("J3")
@pytest.mark.parametrize(
    ("options", "before", "lines"),
    [
        ((), "", [r"\S+Z error +toolwire\.server: error \w+ in the tool fail"]),
        (("--log-level", "critical"), "", []),
        (
            ("--log-level", "info"),
            "",
            [r"\S+Z info +toolwire\.mine: about to fail", r"\S+Z error +toolwire\.server: .*"],
        ),
        # A file that sets up logging has its way, unless the command says otherwise.
        ((), "logging.basicConfig(format='mine: %(message)s')", [r"mine: error \w+ in the tool fail"]),
        ((), "from toolwire import logs\nlogs.install('error', json=True)", [r'\{.*"level":"error".*\}']),
    ],
    ids=["by default", "nothing", "more", "the file's own", "the library's, set up by the file"],
)
async def test_a_server_on_stdio_logs_to_standard_error(
    tmp_path: Path, options: tuple[str, ...], before: str, lines: list[str]
) -> None:
    said = await logged(tmp_path, *options, before=before)
    assert len(said) == len(lines), said
    for line, pattern in zip(said, lines, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_somebody_at_a_terminal_is_told_what_to_do(tmp_path: Path) -> None:
    import pty

    file = write(tmp_path, "server = FakeServer('notes')")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "toolwire", "run", file]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""
    try:
        while "for an address" not in said:
            said += os.read(ours, 4096).decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert said.startswith("toolwire: 'notes' is served over standard input and output (Ctrl+C ends it).")
    assert f"toolwire dev {file} " in said
