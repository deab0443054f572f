"""`toolwire dev FILE`: a change of the file reaches those who are connected; a broken file changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http_process import ADDRESS, Connection, Served, call, connected, modern, started, text_of_call

from toolwire import Client
from toolwire.cli import main
from toolwire.client import Accept

PAGE = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)")
SERVER = """
from toolwire import Server
from helper import GREETING

server = Server("greeter")

@server.tool
async def greet() -> str:
    return GREETING
"""

IN_A_PACKAGE = """
from toolwire import Server
from .helper import GREETING

async def create() -> Server:
    server = Server("greeter")
    server.tool(lambda: GREETING, name="greet")
    return server
"""


class Developed(Served):
    """A server under development, and its page."""

    page_port = 0
    token = ""

    async def find_page(self) -> None:
        while not self.token:
            found = PAGE.search(await self.said_next())
            if found:
                self.page_port, self.token = int(found.group(1)), found.group(2)

    async def said_next(self) -> str:
        line = await self.line()
        assert line, "".join(self.said)
        return line

    async def says(self, text: str) -> str:
        while True:
            line = await self.said_next()
            if text in line:
                return line

    async def page(self, operation: str, **members: Any) -> Any:
        async with connected(self.page_port) as connection:
            body = json.dumps(members).encode()
            headers = f"Host: localhost\r\nContent-Type: application/json\r\nX-Toolwire-Token: {self.token}\r\n"
            head = f"POST /api/{operation} HTTP/1.1\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
            connection.send(head.encode() + body)
            status, _, answer = await connection.answer()
            assert status == 200, answer
            return json.loads(answer)


@asynccontextmanager
async def developing(file: Path, *options: str) -> AsyncIterator[Developed]:
    command = [sys.executable, "-m", "toolwire", "dev", file, "--port", "0", "--no-open", *options]
    async with started(command) as served:
        developed = Developed(served.process)
        developed.port, developed.said = served.port, served.said
        await developed.find_page()
        yield developed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    write(tmp_path / "helper.py", 'GREETING = "hello"\n')
    return tmp_path


def write(file: Path, text: str) -> None:
    """As an editor does: the new file takes the place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def listening(connection: Connection) -> AsyncIterator[Any]:
    connection.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    status, _ = await connection.head()
    assert status == 200
    async for message in connection.events():
        yield message


async def test_a_change_reaches_who_is_connected(folder: Path) -> None:
    async with (
        developing(folder / "server.py") as served,
        connected(served.port) as client,
        connected(served.port) as ear,
    ):
        heard = listening(ear)
        assert (await anext(heard))["method"] == "notifications/subscriptions/acknowledged"
        assert await text_of_call(client, "greet") == "hello"
        write(folder / "server.py", SERVER.replace("async def greet", "async def welcome"))
        assert (await anext(heard))["method"] == "notifications/tools/list_changed"
        assert await text_of_call(client, "welcome") == "hello"
        await served.says("tools changed")
        await heard.aclose()


async def test_a_module_that_the_file_imports_counts_too(folder: Path) -> None:
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        # Of the same length, within the same second.
        write(folder / "helper.py", 'GREETING = "salve"\n')
        await served.says("loaded again")
        assert await text_of_call(client, "greet") == "salve"


async def test_a_server_that_a_function_in_a_package_makes_is_made_again(folder: Path) -> None:
    (folder / "__init__.py").touch()
    (folder / "server.py").write_text(IN_A_PACKAGE)
    async with developing(folder / "server.py:create") as served, connected(served.port) as client:
        assert await text_of_call(client, "greet") == "hello"
        write(folder / "helper.py", 'GREETING = "salve"\n')
        await served.says("loaded again")
        assert await text_of_call(client, "greet") == "salve"


async def test_a_file_that_breaks_is_told_with_its_line_and_changes_nothing(folder: Path) -> None:
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        write(folder / "server.py", SERVER + "\nboom = 1 / 0\n")
        await served.says("ZeroDivisionError")
        assert f'{folder / "server.py"}", line 11' in "".join(served.said)
        error = (await served.page("state"))["reload"]["error"]
        assert (error["file"], error["line"], error["code"]) == (str(folder / "server.py"), 11, "boom = 1 / 0")
        assert await text_of_call(client, "greet") == "hello"
        write(folder / "server.py", SERVER + "\ndef broken(:\n")
        await served.says("SyntaxError")
        await served.says("the last version that worked is still served")
        error = (await served.page("state"))["reload"]["error"]
        assert error["line"] == 11 and error["message"].startswith("SyntaxError")
        write(folder / "server.py", SERVER.replace("return GREETING", "return GREETING.upper()"))
        await served.says("loaded again")
        assert (await served.page("state"))["reload"]["error"] is None
        assert await text_of_call(client, "greet") == "HELLO"


async def test_a_file_that_is_broken_from_the_start_can_be_mended(folder: Path) -> None:
    write(folder / "server.py", "import nothing_of_that_name\n")
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        said = "".join(served.said)
        assert "nothing_of_that_name" in said
        assert "server.py will serve at http://127.0.0.1" in said
        assert "serves" not in said
        assert (await served.page("state"))["reload"]["error"]["line"] == 1
        write(folder / "server.py", SERVER)
        await served.says("loaded again")
        assert await text_of_call(client, "greet") == "hello"


async def test_component_files_are_watched_also_those_that_are_new_or_broken(folder: Path) -> None:
    write(folder / "server.py", "from toolwire import Server\nserver = Server('s', directory='components')\n")
    tools = folder / "components" / "tools"
    tools.mkdir(parents=True)
    (tools / "one.py").write_text("def one() -> str:\n    return 'one'\n\n1 / 0\n")
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        error = (await served.page("state"))["reload"]["error"]
        assert (error["file"], error["line"], error["code"]) == (str(tools / "one.py"), 4, "1 / 0")
        assert "tools/one.py (ZeroDivisionError: division by zero)" in error["message"]
        write(tools / "one.py", "def one() -> str:\n    return 'one'\n")
        await served.says("loaded again")
        assert await text_of_call(client, "one") == "one"
        write(tools / "two.py", "from .one import one\n\ndef two() -> str:\n    return one() + one()\n")
        await served.says("loaded again, tools changed")
        assert await text_of_call(client, "two") == "oneone"
        (tools / "two.py").unlink()
        await served.says("loaded again, tools changed")


async def test_skills_are_watched_also_those_that_are_new_or_broken(folder: Path) -> None:
    write(folder / "server.py", "from toolwire import Server\nserver = Server('s')\nserver.skills('skills')\n")
    skill = folder / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Use it: now\n---\n")
    async with developing(folder / "server.py") as served:
        error = (await served.page("state"))["reload"]["error"]
        assert (error["file"], error["line"]) == (str(skill / "SKILL.md"), 3)
        assert 'write description: "Use it: now"' in error["message"]
        write(skill / "SKILL.md", "---\nname: pdf\ndescription: Use it now\n---\n")
        await served.says("loaded again, resources changed")
        (skill / "FORMS.md").write_text("forms")
        await served.says("loaded again, resources changed")
        async with Client(f"http://127.0.0.1:{served.port}/mcp") as client:
            (listed,) = await client.skills.list()
            assert sorted(listed.files) == ["FORMS.md", "SKILL.md"]


async def test_a_neighbour_that_is_broken_from_the_start_is_watched(folder: Path) -> None:
    write(folder / "helper.py", "GREETING = (\n")
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        assert (await served.page("state"))["reload"]["error"]["file"] == str(folder / "helper.py")
        write(folder / "helper.py", "GREETING = 'mended'\n")
        await served.says("loaded again")
        assert await text_of_call(client, "greet") == "mended"


async def test_a_tool_that_fails_is_shown_with_its_line(folder: Path) -> None:
    write(folder / "server.py", SERVER.replace("return GREETING", "return GREETING / 2"))
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        client.send(call("greet"))
        _, _, body = await client.answer()
        assert b"TypeError" in body  # Whoever calls it is whoever writes it.
        notes = (await served.page("state"))["notes"]
        assert [(note["file"], note["line"]) for note in notes] == [(str(folder / "server.py"), 9)]


ASKING = """
from toolwire import Context, Server

server = Server("asking")

@server.tool
async def form(ctx: Context) -> str:
    return str((await ctx.elicit("Sure?", bool)).data)

@server.tool
async def model(ctx: Context) -> str:
    return str((await ctx.sample("Sure?")).content)

@server.tool
def folders(ctx: Context) -> str:
    return str(ctx.list_roots())
"""


async def test_a_handler_that_runs_again_is_reported_once(folder: Path) -> None:
    write(folder / "server.py", ASKING)
    asking: dict[str, Any] = {
        "elicit": lambda message, form: Accept({"value": True}),
        "sample": lambda params: "yes",
        "roots": ["/a"],
    }
    async with developing(folder / "server.py") as served:
        url = f"http://127.0.0.1:{served.port}/mcp"
        async with Client(url, revision="2025-11-25", **asking) as old, Client(url, **asking) as new:
            for client in (old, new, new):
                for name in ("form", "model", "folders"):
                    assert not (await client.call_tool(name)).is_error
        for version in ("# another version\n", "# and another\n"):
            write(folder / "server.py", ASKING + version)
            await served.says("loaded again")
            async with Client(url, **asking) as new:
                await new.call_tool("form")
        lines = [line for line in "".join(served.said).splitlines() if "ran again" in line]
    assert [line.split(":")[1] for line in lines] == [
        f" {name} ran again, round 2" for name in ("form", "model", "folders")
    ]
    assert all("ctx.step does it once" in line for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
async def test_a_signal_ends_both_servers(folder: Path) -> None:
    async with developing(folder / "server.py") as served:
        served.signal(signal.SIGINT)
        status, _ = await served.end()
        assert status == 0


async def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "toolwire", "dev", str(tmp_path / "none.py")],
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    _, said = await process.communicate()
    assert process.returncode == 2 and b"there is no file" in said and b"Traceback" not in said
    assert ADDRESS.search(said.decode()) is None


async def test_a_server_on_stdio_is_loaded_again_too(folder: Path) -> None:
    command = [sys.executable, "-m", "toolwire", "run", "--reload", str(folder / "server.py")]
    async with Client(command) as client, client.listen(tools=True) as changes:
        assert (await client.call_tool("greet")).text == "hello"
        write(folder / "server.py", SERVER.replace("async def greet", "async def welcome"))
        async for change in changes:
            assert change.kind == "tools"
            break
        assert (await client.call_tool("welcome")).text == "hello"


@pytest.mark.parametrize(
    ("options", "listed"),
    [((), ["greet", "purge"]), (("--as", "ann"), ["greet"]), (("--as", "ann", "--scope", "staff"), ["greet", "purge"])],
)
async def test_the_page_calls_as_whom_it_is_told(folder: Path, options: tuple[str, ...], listed: list[str]) -> None:
    hidden = '\n@server.tool(visible_to=["staff"])\ndef purge() -> None: ...\n'
    write(folder / "server.py", SERVER + hidden)
    async with developing(folder / "server.py", *options) as served:
        catalogue = (await served.page("connect"))["catalogue"]
        assert [each["key"] for each in catalogue["tools"]["items"]] == listed


def test_scopes_belong_to_somebody(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", str(folder / "server.py"), "--scope", "staff"]) == 2
    assert "--scope needs --as" in capsys.readouterr().err


ENDINGS = {
    "sys.exit": "import sys\nsys.exit(0)\n",
    "KeyboardInterrupt": "raise KeyboardInterrupt\n",
    "BaseException": "class Odd(BaseException): pass\nraise Odd('odd')\n",
    "CancelledError": "import asyncio\nraise asyncio.CancelledError\n",
    "lifespan": (
        "import sys\nfrom toolwire import Server\nasync def life(server):\n    sys.exit(0)\n    yield\n"
        "server = Server('s', lifespan=life)\n"
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_no_exception_of_the_file_ends_the_watch(folder: Path, ending: str) -> None:
    async with developing(folder / "server.py") as served, connected(served.port) as client:
        write(folder / "server.py", ENDINGS[ending])
        await served.says("the last version that worked is still served")
        assert await text_of_call(client, "greet") == "hello"
        write(folder / "server.py", SERVER.replace("async def greet", "async def welcome"))
        await served.says("loaded again")
        assert await text_of_call(client, "welcome") == "hello"


@pytest.mark.skipif(sys.platform == "win32", reason="a process gets no SIGINT there")
@pytest.mark.parametrize("when", ["at the start", "at a change"])
async def test_signal_ends_an_import_that_never_ends(folder: Path, when: str) -> None:
    endless = "import sys\nsys.stderr.write('importing\\n')\nwhile True:\n    pass\n"
    if when == "at the start":
        write(folder / "server.py", endless)
    command = [sys.executable, "-m", "toolwire", "dev", str(folder / "server.py"), "--port", "0", "--no-open"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(20):
            if when == "at a change":
                while PAGE.search((await process.stderr.readline()).decode()) is None:
                    pass
                write(folder / "server.py", endless)
            while b"importing" not in await process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()
            assert b"Traceback" not in said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_error_of_the_file_does_not_control_the_terminal(folder: Path) -> None:
    async with developing(folder / "server.py") as served:
        write(folder / "server.py", "raise ValueError('\\x1b]0;title\\x07 \\u202e')  # \x1b[31m\n")
        await served.says("the last version that worked is still served")
        assert not any("\x1b" in line or "\u202e" in line for line in served.said)
        assert any("\\x1b]0;title\\x07 \\u202e" in line for line in served.said)
