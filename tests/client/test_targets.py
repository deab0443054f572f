"""Targets of a client: objects, files, commands, and the processes behind them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire.client import Client
from toolwire.client import sync as blocking
from toolwire.client.targets import CommandTarget, TargetOptions, resolve
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN, REVISIONS
from toolwire.wire.channel import MemoryChannel

HELLO = {"tools/call": lambda request, outlet: text("hello")}


def write(folder: Path, body: str, name: str = "server.py") -> str:
    path = folder / name
    path.write_text(body, encoding="utf-8")
    return str(path)


# What the scripted processes below share: read lines, answer by a function, note what arrived.
LINES = """
import json, os, sys
def answer(id, result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\\n")
    sys.stdout.flush()
def fail(id, code, message="no", **data):
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}) + "\\n")
    sys.stdout.flush()
def initialized(id, version="2025-06-18"):
    answer(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
def messages():
    for line in sys.stdin:
        yield json.loads(line)
"""


# --- targets ---


@cases(
    ("target", "says"),
    [
        ("ftp://example.com/mcp", "not the URL of a server"),
        ("http:///mcp", "not the URL of a server"),
        ("http://user:secret@example.com/mcp", "do not belong into the URL"),
        ({"mcpServers": {}}, "names no server"),
        ("server.rb", "neither .py nor .js"),
        ("missing.py", "no server file"),
        (42, "A client takes a URL"),
        ([], "A client takes a URL"),
        (FakeServer, "A client takes a URL"),
    ],
)
def test_a_target_that_is_none_says_what_is_supported(target: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        Client(target)


def test_a_file_is_run_by_its_interpreter(tmp_path: Path) -> None:
    python, script = write(tmp_path, "", "a.py"), write(tmp_path, "", "a.js")
    found = [resolve(python), resolve(script), resolve(Path(python)), resolve(["run", "it"])]
    assert all(isinstance(target, CommandTarget) for target in found)
    commands = [target.command for target in found if isinstance(target, CommandTarget)]
    run = [sys.executable, "-P", "-m", "toolwire", "run", "--main", python]
    assert commands == [run, ["node", script], run, ["run", "it"]]


def test_the_address_tells_servers_apart_that_look_alike(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    files = [write(tmp_path / name, "", "server.py") for name in ("one", "two")]
    targets = [
        *map(resolve, files),
        *(resolve(["python", file]) for file in files),
        *(resolve(["python", "server.py"], TargetOptions(cwd=tmp_path / name)) for name in ("one", "two")),
        resolve(["npx", "server"]),
        resolve(["npx", "server", "--key=secret"]),
        *(resolve(f"https://example.com/mcp{query}") for query in ("", "?tenant=a", "?key=secret")),
    ]
    addresses = [target.address for target in targets]
    assert len(set(addresses)) == len(addresses)
    assert "secret" not in "".join(addresses)


def test_the_address_is_the_same_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "", "server.py")
    targets = [resolve(file), resolve(["python", file]), resolve(["npx", "server"])]
    addresses = [target.address for target in targets]
    assert addresses[0] == str(Path(file).resolve())
    monkeypatch.chdir(tmp_path)
    targets = [resolve("server.py"), resolve(["python", "server.py"]), resolve(["npx", "server"])]
    assert [target.address for target in targets] == addresses


def test_process_options_need_a_process() -> None:
    with pytest.raises(ValueError, match="env= is not for a server in this process"):
        Client(FakeServer(), env={"A": "1"})


def test_an_unknown_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown revision"):
        Client(FakeServer(), revision="2025-01-01")


# --- processes ---


async def test_a_server_file_runs_over_stdio(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
sys.stderr.write("ERROR: only chatter\\n")
for message in messages():
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "tools/call":
        answer(message["id"], {"content": [{"type": "text", "text": os.environ["GREETING"]}]})
    elif "id" in message:
        fail(message["id"], -32601)
""",
    )
    async with Client(server, env={"GREETING": "hi"}) as client:
        assert (await client.call_tool("x")).text == "hi"
    assert not client.connected


@pytest.mark.covers("STD-5", "2.1.3")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_talkative_stderr_is_no_failure(revision: str, tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
for message in messages():
    sys.stderr.write("Traceback (most recent call last): fatal error\\n" * 5000)
    sys.stderr.flush()
    if message["method"] == "initialize":
        initialized(message["id"], message["params"]["protocolVersion"])
    elif message["method"] == "server/discover":
        known = ["2026-07-28"]
        answer(message["id"], {"resultType": "complete", "supportedVersions": known, "capabilities": {}, "ttlMs": 0})
    elif "id" in message:
        answer(message["id"], {})
""",
    )
    async with Client(server, revision=revision) as client:
        await client.ping()


@pytest.mark.covers("STL-5")
async def test_one_process_serves_every_conversation(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        """
import os
from toolwire import Server
server = Server("one")
@server.tool
async def process() -> int:
    return os.getpid()
server.run()
""",
    )

    async def conversation(client: Client) -> set[int]:
        await client.list_tools()
        with pytest.raises(ProtocolError):
            await client.call_tool("no-such-tool")
        return {await client.call_tool("process", returns=int) for _ in range(5)}

    async with Client(server) as client:
        first = await asyncio.create_task(conversation(client))
        # Each conversation is a task of its own; one is given up in the middle.
        given_up = asyncio.create_task(client.call_tool("process"))
        given_up.cancel()
        await asyncio.wait({given_up})
        others = await asyncio.gather(*(conversation(client) for _ in range(3)))
        assert len(first) == 1
        assert others == [first] * 3


async def test_a_server_that_dies_at_once_says_why(tmp_path: Path) -> None:
    server = write(tmp_path, "import sys; sys.stderr.write('no database\\n\\n'); sys.exit(3)")
    with pytest.raises(Unreachable, match=r"^server\.py exited with code 3: no database$"):
        await Client(server).connect()


@pytest.mark.covers("ERA-10", "ERA-7")
async def test_a_server_that_dies_of_the_probe_is_started_again_without_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = write(
        tmp_path,
        LINES
        + f"""
for message in messages():
    with open({str(log)!r}, "a") as notes:
        notes.write(message["method"] + "\\n")
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "server/discover":
        sys.exit(1)
    elif message["method"] == "tools/call":
        os._exit(7)
""",
    )
    async with Client(server) as client:
        assert client.revision == "2025-06-18"
        with pytest.raises(OutcomeUnknown, match="exited with code 7"):
            await client.call_tool("x")
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
    opened = ["initialize", "notifications/initialized", "tools/call"]
    assert log.read_text().split() == ["server/discover", *opened, *opened]


@pytest.mark.covers("STD-12")
async def test_a_crashed_process_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
for message in messages():
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "tools/call" and message["params"]["name"] == "crash":
        sys.stderr.write("segmentation dream\\n")
        sys.stderr.flush()
        os._exit(1)
    elif message["method"] == "tools/call":
        answer(message["id"], {"content": []})
""",
    )
    async with Client(server, revision="2025-06-18") as client:
        with pytest.raises(OutcomeUnknown, match=r"server\.py exited with code 1: segmentation dream; .*tools/call"):
            await client.call_tool("crash")
        assert (await client.call_tool("fine")).content == []


@pytest.mark.covers("1.10.11")
async def test_what_was_set_is_set_again_after_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = write(
        tmp_path,
        LINES
        + f"""
for message in messages():
    with open({str(log)!r}, "a") as notes:
        notes.write(message["method"] + "\\n")
    if message["method"] == "initialize":
        capabilities = {{"tools": {{}}, "logging": {{}}, "resources": {{"subscribe": True}}}}
        info = {{"name": "s", "version": "1"}}
        answer(message["id"], {{"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}})
    elif message["method"] == "tools/call":
        os._exit(0)
    elif message["method"] == "resources/subscribe" and message["params"]["uri"] == "gone:":
        fail(message["id"], -32002)
    elif "id" in message:
        answer(message["id"], {{}})
""",
    )
    async with Client(server, revision="2025-06-18") as client:
        await client.set_level("error")
        await client.subscribe("memo://a")
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
        await client.ping()
        # What cannot be had again does not stand in the way.
        client._subscribed["gone:"] = None
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
        await client.ping()
    opened = ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"]
    assert log.read_text().split() == [
        *opened,
        "tools/call",
        *opened,
        "ping",
        "tools/call",
        *opened,
        "resources/subscribe",
        "ping",
    ]


@pytest.mark.covers("ERA-10")
async def test_a_server_that_changed_its_era_is_probed_again(tmp_path: Path) -> None:
    mark = tmp_path / "upgraded"
    server = write(
        tmp_path,
        LINES
        + f"""
modern = os.path.exists({str(mark)!r})
for message in messages():
    if message["method"] == "initialize":
        fail(message["id"], -32022, supported=["2026-07-28"]) if modern else initialized(message["id"])
    elif message["method"] == "server/discover":
        found = {{"supportedVersions": ["2026-07-28"], "capabilities": {{"tools": {{}}}}}}
        answer(message["id"], found) if modern else fail(message["id"], -32601)
    elif message["method"] == "tools/call":
        open({str(mark)!r}, "w").close()
        os._exit(0)
""",
    )
    async with Client(server) as client:
        assert client.revision == "2025-06-18"
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("upgrade")
        await client.ping()
        assert client.revision == MODERN


async def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(Unreachable, match="no-such-command"):
        await Client(["no-such-command"]).connect()


async def test_a_channel_that_can_only_be_read() -> None:
    """A transport of the user's own implements three methods."""

    class Plain(MemoryChannel):
        def attach(self, feed: Any, ended: Any) -> bool:
            return False

    ours, theirs = Plain(), MemoryChannel()
    ours._peer, theirs._peer = theirs, ours
    serving = asyncio.ensure_future(FakeServer(HELLO).serve(theirs))
    async with Client(ours) as client:
        assert (await client.call_tool("hello")).text == "hello"
    await serving


def test_the_name_card_is_that_of_the_program() -> None:
    assert Client(FakeServer(), name="me", title="Me")._connector._opener.identity == t.Implementation(
        "me", Client(FakeServer())._connector._opener.identity.version, title="Me"
    )


async def test_file_without_a_server_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "idle.py"
    file.write_text("from toolwire import Server\ndef make_server():\n    return Server('idle')\nprint('no message')\n")
    with pytest.raises(Unreachable, match=r"idle\.py exited with code 0 .* name the function: idle\.py:make_server$"):
        await Client(file).connect()
    async with Client(f"{file}:make_server") as client:
        assert await client.list_tools() == []


DEFINES = "from toolwire import Server\nserver = Server('found')\n"


STARTS = f"{DEFINES}server.run()\n"


GUARDED = f"{DEFINES}if __name__ == '__main__':\n    server.run()\n"


WITH_MAIN = f"{DEFINES}def main() -> None:\n    server.run()\n"


# Programs of several files: what `main.py` says, the other files, and what is named to the client.
PROGRAMS: dict[str, tuple[str, dict[str, str], str]] = {
    "from a package": ("from pkg import server", {"pkg/__init__.py": DEFINES}, "main.py"),
    "from a package that passes it on": (
        "from pkg import server",
        {"pkg/__init__.py": "from .made import server", "pkg/made.py": GUARDED},
        "main.py",
    ),
    "from a module of a package": (
        "from pkg.made import server",
        {"pkg/__init__.py": "", "pkg/made.py": DEFINES},
        "main.py",
    ),
    "from a folder that is no package": ("from pkg.made import server", {"pkg/made.py": DEFINES}, "main.py"),
    "from a neighbour": ("from made import server as mcp", {"made.py": DEFINES}, "main.py"),
    "through a circle": ("from a import server", {"a.py": f"{DEFINES}import b", "b.py": "import a"}, "main.py"),
    "an attribute": ("import made\nserver = made.server", {"made.py": DEFINES}, "main.py"),
    "by a name": ("from made import server as one, other", {"made.py": f"{DEFINES}other = Server('b')"}, "main.py:one"),
    "found at run time": (
        "import importlib\nserver = importlib.import_module('made').server",
        {"made.py": DEFINES},
        "main.py",
    ),
    "a program that ends": (
        "import asyncio\nfrom made import server\nasyncio.run(asyncio.sleep(0))",
        {"made.py": DEFINES},
        "main.py",
    ),
    "over HTTP": ("from made import server\nserver.run('http', port=1)", {"made.py": DEFINES}, "main.py"),
    "over SSE": ("from made import server\nserver.start('sse', port=1)", {"made.py": DEFINES}, "main.py"),
    "over HTTP, in its main part": (
        "import sys\nfrom made import server\n"
        "def main():\n    print('starting')\n    server.run('streamable-http', host='0.0.0.0', port=int(sys.argv[1]))\n"
        "if __name__ == '__main__':\n    sys.argv.append('1')\n    main()\n    server.name = 'after'",
        {"made.py": DEFINES},
        "main.py",
    ),
    "over HTTP, in a package": (
        "",
        {"pkg/__init__.py": "", "pkg/made.py": DEFINES, "pkg/main.py": "from .made import server\nserver.run('http')"},
        "pkg/main.py",
    ),
    "over HTTP, by a name": ("from made import server\nserver.run('http')", {"made.py": DEFINES}, "main.py:server"),
    "over HTTP, in a package, by a name": (
        "",
        {"pkg/__init__.py": "", "pkg/made.py": DEFINES, "pkg/main.py": "from .made import server\nserver.run('http')"},
        "pkg/main.py:server",
    ),
    "started by the import": ("import made", {"made.py": STARTS}, "main.py"),
    "started by a function": ("from made import main\nmain()", {"made.py": WITH_MAIN}, "main.py"),
    "started by the main program": ("from made import server\nserver.run()", {"made.py": DEFINES}, "main.py"),
}


@pytest.mark.parametrize(
    ("program", "absolute"),
    [*((program, True) for program in PROGRAMS), ("from a package", False), ("by a name", False)],
)
async def test_a_server_that_another_file_defines_is_run(tmp_path: Path, program: str, absolute: bool) -> None:
    main, files, target = PROGRAMS[program]
    for name, code in {**files, "main.py": f"{main}\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    client = Client(str(tmp_path / target)) if absolute else Client(target, cwd=tmp_path)
    async with client:
        assert client.server is not None
        assert client.server.name == "found"


async def test_two_servers_of_one_file_are_two_addresses(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(f"{DEFINES}other = Server('other')\n")
    one, other = (resolve(f"{file}:{name}") for name in ("server", "other"))
    assert one.address != other.address
    with pytest.raises(ValueError, match=r"There is no server file 'gone\.py'"):
        resolve("gone.py:server")


async def test_a_file_that_only_defines_a_server_is_run(tmp_path: Path) -> None:
    file = tmp_path / "defined.py"
    file.write_text(
        "import subprocess\nimport toolwire as wired\nserver = wired.Server('defined')\n"
        "@server.tool\ndef list_files() -> str:\n    return str(subprocess.run(['ls']))\n"
    )
    async with Client(file) as client:
        assert client.server is not None
        assert client.server.name == "defined"
    async with Client("defined.py", cwd=tmp_path) as client:
        assert [tool.name for tool in await client.list_tools()] == ["list_files"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ndef broken(:\n", r"SyntaxError: invalid syntax \(broken\.py, line 2\)$"),
        ("from toolwire import Server\nserver = Server('x')\n\n@server.tool\ndef f(*many): ...\n",
         r"\*many cannot be described; name each parameter \(broken\.py, line 4\)$"),
    ],
)  # fmt: skip
async def test_a_file_that_is_broken_names_the_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(Unreachable, match=rf"^broken\.py exited with code 1: .*{says}"):
        await Client(file).connect()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            "node:internal:301\n  throw new X();\n  ^\n\nError [ERR_X]: Cannot find package 'y' imported from z\n"
            "    at a (b:1) {\n  code: 'ERR_X'\n}\n\nNode.js v24.19.0\n",
            r"Error \[ERR_X\]: Cannot find package 'y' imported from z$",
        ),
        ("npm error 404 no package\nnpm error A complete log of this run is in: /x\n", "npm error 404 no package$"),
    ],
)  # fmt: skip
async def test_what_node_and_npm_add_is_passed_over(written: str, says: str) -> None:
    script = f"import sys; sys.stderr.write({written!r}); sys.exit(1)"
    with pytest.raises(Unreachable, match=f"exited with code 1: {says}"):
        await Client([sys.executable, "-c", script]).connect()


# --- a text that the programmer did not write ---


@pytest.mark.parametrize("make", [Client.remote, blocking.Client.remote])
@pytest.mark.parametrize("text", ["server.py", "server.py:app", "mcp.json", "file:///server.py", "https:server.py", ""])
def test_remote_client_takes_urls_alone(make: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.py").write_text("app = 1")
    Path("mcp.json").write_text('{"mcpServers": {"a": {"command": "true"}}}')
    with pytest.raises(ValueError, match="begin it with http:// or https://"):
        make(text)


@pytest.mark.parametrize("make", [Client.remote, blocking.Client.remote])
def test_remote_client_has_the_options_of_a_client(make: Any) -> None:
    assert "https://example.com/mcp" in repr(make("https://example.com/mcp", auth="token", timeout=3))
    with pytest.raises(ValueError, match="env= is not for a server that is reached by URL"):
        make("https://example.com/mcp", env={})
    with pytest.raises(TypeError, match="begins"):
        make("https://example.com/mcp", begins=1)


# --- the traceback behind an error id ---

FAILING = """
import sys
from toolwire import Server

server = Server("failing")

@server.tool
def fail() -> str:
    sys.stderr.write("chatter\\n" * 1000)
    raise ValueError("the \\x1b[2Jcause")

server.run()
"""
# A program without any setting of its log, as most are.
PROGRAM = """
import asyncio, sys
from toolwire import Client
from toolwire.client import sync

async def main():
    async with Client(sys.argv[1]) as client:
        print((await client.call_tool("fail")).text)

if sys.argv[2] == "async":
    asyncio.run(main())
else:
    with sync.Client(sys.argv[1]) as client:
        print(client.call_tool("fail").text)
"""


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_program_finds_the_traceback_behind_an_error_id_on_its_standard_error(tmp_path: Path, kind: str) -> None:
    file, program = write(tmp_path, FAILING), write(tmp_path, PROGRAM, "program.py")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, program, file, kind, stdout=pipe, stderr=pipe)
    out, err = (each.decode() for each in await process.communicate())
    identifier = out.partition("error id ")[2].strip().rstrip(")")
    assert len(identifier) == 12, (out, err)
    lines = err.splitlines()
    assert lines[0].startswith("server.py: ")
    assert lines[0].endswith(f"error {identifier} in the tool fail")
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines[-1].startswith("    ValueError: the \\x1b[2Jcause")
    assert "chatter" not in err


async def test_traceback_of_each_server_of_a_configuration_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"command": sys.executable, "args": [write(tmp_path, FAILING)]}
    async with Client({"mcpServers": {"one": entry, "two": entry}}) as client:
        for name in ("one", "two"):
            assert (await client.call_tool(f"{name}_fail")).is_error
    records = [each for each in caplog.records if "Traceback (most recent call last)" in each.getMessage()]
    assert [each.getMessage()[:5] for each in records] == ["one: ", "two: "]
    assert {(each.name, each.levelname) for each in records} == {("toolwire.client", "WARNING")}


async def test_on_stderr_takes_the_place_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    async with Client(write(tmp_path, FAILING), on_stderr=lines.append) as client:
        assert (await client.call_tool("fail")).is_error
    assert "    Traceback (most recent call last):" in lines
    assert caplog.records == []
