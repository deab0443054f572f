"""`toolwire call`: arguments typed by the schema, results drawn as what they are, the exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.cli.command import Command
from tests.client.fake import FakeServer

from toolwire import Audio, Context, File, Image, ResourceLink, Server, ToolError
from toolwire.cli.show_content import drawn
from toolwire.protocol import types as t

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 2000


@dataclass
class Row:
    city: str
    high: float | None
    rain: bool = False


@dataclass
class Address:
    city: str
    number: int


@pytest.fixture
def server() -> Server:
    server = Server("shop", debug=True)

    @server.tool
    def echo(
        text: str = "",
        count: int = 0,
        share: float = 0.0,
        sure: bool = False,
        tags: list[str] | None = None,
        numbers: list[int] | None = None,
        address: Address | None = None,
        kind: Literal["a", "b"] | None = None,
        free: Any = None,
    ) -> dict[str, Any]:
        return {key: value for key, value in locals().items() if value}

    @server.tool
    def buy(what: str, count: int) -> str:
        """Buy.

        Args:
            count: How many.
        """
        return f"{count} {what}"

    @server.tool
    def rows(many: int = 2) -> list[Row]:
        return [Row("Oslo", 21.5), Row("\x1b[31mBergen\nGrieghallen", None, True)][:many] * max(1, many // 2)

    @server.tool
    def fail() -> str:
        raise ToolError("out of \x1b[2J stock")

    @server.tool
    def media() -> list[Any]:
        link = ResourceLink(uri="shop://\x1b7", name="link")
        return ["text", Image(data=PNG), Audio(data=b"RIFF....WAVE"), File(data=b"hi", name="a.txt"), link]

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1, total=2, message="half \x1b[2J way")
        await ctx.info("so far so good \x1b[2J")
        return "done"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return f"{answer.action} {answer.data}"

    return server


@pytest.mark.parametrize(
    ("words", "means"),
    [
        (["text=3"], {"text": "3"}),
        (["text=a=b"], {"text": "a=b"}),
        (["count=3", "share=0.5", "sure=true"], {"count": 3, "share": 0.5, "sure": True}),
        (["tags=a"], {"tags": ["a"]}),
        (["tags=a", "tags=b"], {"tags": ["a", "b"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (["numbers=[3, 4]"], {"numbers": [3, 4]}),
        (["address.city=Oslo", "address.number=7"], {"address": {"city": "Oslo", "number": 7}}),
        (['address={"city": "Oslo", "number": 7}'], {"address": {"city": "Oslo", "number": 7}}),
        (["kind=b"], {"kind": "b"}),
        (["free=3"], {"free": "3"}),
        (["free:=3", 'text:="x"'], {"free": 3, "text": "x"}),
    ],
)
def test_arguments_are_read_as_the_schema_asks(
    toolwire: Command, server: Server, words: list[str], means: dict[str, Any]
) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "echo", *words)
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == means


def test_options_may_stand_anywhere(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    for words in (["--json", "echo", "count=3"], ["echo", "--json", "count=3"], ["echo", "count=3", "--json"]):
        assert json.loads(toolwire("call", "server", *words).out)["content"][0]["text"] == '{"count":3}'


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["buy", "what=x"], 'Missing argument "count": expected an integer'),
        (["buy", "what=x", "cuont=1"], "there is no argument 'cuont'; did you mean 'count'?"),
        (["buy", "what=x", "count=many"], 'Argument "count": expected an integer, got "many"'),
        (["buy", "what"], "'what' is neither KEY=VALUE nor KEY:=JSON"),
        (["buy", "what:=x"], "what follows := in 'what:=x' is not JSON"),
        (["buy", "what=a", "what.b=c"], "'what.b' gives a member to 'what', which was given a value before"),
        (["by"], "the server has no tool 'by'; did you mean 'buy'?"),
        (["nothing-like-it"], "it has ask, buy, echo, fail, media, rows, slow"),
    ],
)
def test_wrong_use_is_one_line_and_status_two(toolwire: Command, server: Server, words: list[str], says: str) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", *words)
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_an_argument_that_a_tool_does_not_have_is_refused_by_the_server(toolwire: Command, server: Server) -> None:
    """A schema that every vendor takes does not say that there are no others."""
    toolwire.serves(server)
    done = toolwire("call", "server", "buy", "what=x", "count=1", "wat=2")
    assert (done.status, 'Unknown argument "wat"' in done.out) == (1, True)


def test_what_the_tool_says_is_left_to_the_server_on_request(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "buy", "what=x", "count=many", "--unchecked")
    assert done.status == 1
    assert "expected an integer" in done.out


def test_a_failure_of_the_tool_is_status_one(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "fail")
    assert (done.status, done.out) == (1, "out of \\x1b[2J stock\n")
    failed = toolwire("call", "server", "fail", "--json")
    assert failed.status == 1
    assert json.loads(failed.out)["isError"] is True


def test_records_are_a_table(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    for revision in ("2026-07-28", "2025-06-18"):
        assert toolwire("call", "server", "rows", "--revision", revision).out == (
            "city                         high  rain\n"
            "Oslo                         21.5  false\n"
            "\\x1b[31mBergen\\nGrieghallen        true\n"
        )


def test_everything_else_is_drawn_as_what_it_is(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    out = toolwire("call", "server", "media").out
    text, picture, sound, name, content, link = out.splitlines()
    assert text == "text"
    found = re.fullmatch(r"a picture, image/png, ([\d,]+) bytes: (.*\.png)", picture)
    assert found is not None
    assert Path(found[2]).read_bytes() == PNG
    Path(found[2]).unlink()
    assert sound.startswith("a sound, audio/wav, 12 bytes: ")
    Path(sound.rpartition(": ")[2]).unlink()
    assert (name, content) == ("file:///a.txt:", "hi")
    assert link == "→ shop://\\x1b7  link"


def test_terminals_that_draw_pictures_get_nothing_but_base64() -> None:
    kitty = drawn(PNG, "image/png", {"TERM": "xterm-kitty"})
    assert kitty is not None
    pieces = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", kitty)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in pieces) == kitty
    assert [keys for keys, _ in pieces] == ["a=T,f=100,m=1", "m=1", "m=1", "m=0"]
    iterm = drawn(PNG, "image/png", {"TERM_PROGRAM": "iTerm.app"})
    assert iterm is not None
    assert re.fullmatch(r"\x1b\]1337;File=inline=1;size=\d+:[A-Za-z0-9+/=]+\a", iterm)
    assert drawn(PNG, "image/png", {"TERM": "xterm"}) is None
    assert drawn(b"x" * 5_000_000, "image/png", {"TERM": "xterm-kitty"}) is None


@pytest.mark.filterwarnings("ignore:Logging to the client is deprecated")
def test_logs_go_to_standard_error(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "slow")
    assert (done.out, done.err) == ("done\n", "server| [info] so far so good \\x1b[2J\n")


def test_without_a_terminal_nobody_is_asked(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "ask")
    assert done.status == 1
    assert "elicitation" in done.err
    assert "`toolwire inspect`" in done.err
    assert done.out == ""


def test_arguments_may_come_as_one_json_object(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server", "echo", '{"text": "=", "numbers": [1, 2]}', "count=3")
    assert json.loads(done.out) == {"text": "=", "numbers": [1, 2], "count": 3}
    done = toolwire("call", "server", "echo", '{"text": ')
    assert (done.status, done.err) == (2, "toolwire: '{\"text\": ' is not JSON: Input data was truncated\n")


def test_a_call_without_a_tool_names_those_there_are(toolwire: Command, server: Server) -> None:
    toolwire.serves(server)
    done = toolwire("call", "server")
    assert done.status == 2
    assert done.err.startswith("toolwire: name a tool; the server has ask, ")


def test_whoever_calls_their_own_file_sees_where_it_failed(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "import sys\nfrom toolwire import Server\nserver = Server('shop')\n"
        "@server.tool\ndef divide(by: int) -> float:\n    print('dividing', file=sys.stderr)\n    return 1 / by\n"
    )
    done = toolwire("call", str(file), "divide", "by=0")
    assert done.status == 1
    assert done.out.startswith("Internal error in the tool divide")
    assert 'shop.py", line 7, in divide' in done.err
    assert "ZeroDivisionError" in done.err
    # A call that went well is not disturbed, unless somebody wants to see all of it.
    assert toolwire("call", str(file), "divide", "by=1").err == ""
    assert "dividing" in toolwire("call", str(file), "divide", "by=1", "--verbose").err


WHO = """
from toolwire import Context, Server
server = Server("who")

@server.tool(scopes=["read"], visible_to=["staff"])
def who(ctx: Context) -> str:
    return f"{ctx.principal.subject} {sorted(ctx.principal.scopes)}" if ctx.principal else "nobody"
"""


@pytest.mark.parametrize("form", ["{}", "{}:server"])
def test_the_caller_of_a_server_file_can_be_told(toolwire: Command, tmp_path: Path, form: str) -> None:
    file = tmp_path / "who.py"
    file.write_text(WHO)
    target = form.format(file)
    assert toolwire("call", target, "who").out.strip() == "nobody"
    told = toolwire("call", target, "who", "--as", "ann", "--scope", "read", "--scope", "staff")
    assert told.out.strip() == "ann ['read', 'staff']", told.err
    refused = toolwire("call", target, "who", "--as", "ann", "--scope", "staff")
    assert refused.status == 1 and "read" in refused.err
    hidden = toolwire("list", target, "tools", "--json", "--as", "ann")
    assert json.loads(hidden.out)["tools"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["call", "http://localhost:1/mcp", "who", "--as", "ann"], "--as is for a Python server file or module"),
        (["call", "server", "who", "--as", "ann"], "--as is for a Python server file or module"),
        (["call", "who.py", "who", "--scope", "read"], "--scope needs --as"),
        (["run", "who.py", "--scope", "read"], "--scope needs --as"),
        (["call", "who.py", "who", "--as", "al\udcffice"], "--as SUBJECT is text in UTF-8"),
        (["run", "who.py", "--transport", "http", "--as", "ann"], "--as is for --transport stdio"),
    ],
)
def test_a_caller_is_told_where_that_means_something(
    toolwire: Command,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    (tmp_path / "who.py").write_text(WHO)
    monkeypatch.chdir(tmp_path)
    toolwire.serves(server)
    done = toolwire(*words)
    assert (done.status, says in done.err) == (2, True), done.err


def test_a_broken_promise_is_told_beside_the_result(toolwire: Command) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = t.Tool("wrong", {"type": "object"}, output_schema=schema)
    answers = {
        "tools/list": lambda request, outlet: t.ListToolsResult(tools=[tool]),
        "tools/call": lambda request, outlet: t.CallToolResult(content=[], structured_content={"n": "x"}),
    }
    toolwire.serves(FakeServer(answers, capabilities={"tools": {}}))
    done = toolwire("call", "server", "wrong")
    assert json.loads(done.out) == {"n": "x"}
    assert 'does not fit the tool\'s output schema: Value "n": expected an integer, got "x"' in done.err


def hostile(**tools: Any) -> FakeServer:
    """A server that says what it likes: by name, the input schema of a tool and what the tool answers."""
    listed = [t.Tool(name, schema) for name, (schema, _) in tools.items()]
    return FakeServer(
        {
            "tools/list": lambda request, outlet: t.ListToolsResult(tools=listed),
            "tools/call": lambda request, outlet: t.CallToolResult(
                content=tools[msgspec.json.decode(request.raw)["name"]][1]
            ),
        }
    )


LOUD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "n", "version": "1"},
                  "tools": [{"name": "shout", "inputSchema": {"type": "object"}}]}
        if message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "\\x1b" + "a" * 50_000_000}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_fifty_megabytes_of_text_are_bounded_on_a_terminal(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "loud.py"
    file.write_text(LOUD)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = toolwire("call", str(file), "shout", "--revision", "2025-06-18")
    assert 60_000 < len(done.out) < 70_000
    assert "\x1b" not in done.out
    assert "more characters; send standard output to a file" in done.err


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "$ref": "https://evil.example/schema.json"},
        {"type": "object", "properties": 7, "required": "everything"},
        {"type": 5, "anyOf": "x"},
    ],
    ids=["endless", "recursive", "elsewhere", "malformed", "nonsense"],
)
def test_a_hostile_schema_stops_nobody(toolwire: Command, schema: dict[str, Any]) -> None:
    toolwire.serves(hostile(odd=(schema, [t.TextContent("done")])))
    assert toolwire("call", "server", "odd", 'a={"a": {}}').out == "done\n"
    assert "odd" in toolwire("list", "server").out
    assert toolwire("lint", "server").status in (0, 1)


def test_names_from_a_server_do_not_reach_the_terminal_as_they_are(toolwire: Command) -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202e\n"
    schema = {"type": "object", "properties": {evil: {"type": "integer"}}, "required": [evil]}
    toolwire.serves(hostile(**{f"tool{evil}": (schema, [])}))
    for words in (
        ["call", "server", "nothing"],
        ["call", "server", f"tool{evil}"],
        ["call", "server", f"tool{evil}", "x=1"],
    ):
        done = toolwire(*words)
        assert done.status == 2
        assert not set("\x1b\x07\x9b\u202e") & set(done.err)
        assert done.err.count("\n") == 1


ASKING = """
from dataclasses import dataclass
from enum import Enum
from toolwire import Server, Context

class Size(Enum):
    SMALL = "s"
    LARGE = "l"

@dataclass
class Order:
    size: Size
    count: int
    gift: bool = False

server = Server("shop")

@server.tool
async def order(what: str, ctx: Context) -> str:
    await ctx.progress(1, total=2, message="asking")
    answer = await ctx.elicit("Which?", Order)
    return f"{what} {answer.action} {answer.data}"

server.run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        (["tea", "2", "many", "3", ""], "tea accept Order(size=<Size.LARGE: 'l'>, count=3, gift=False)"),
        (["tea", "-"], "tea decline None"),
        (["tea", "\x04"], "tea cancel None"),
    ],
)
def test_a_person_at_a_terminal_is_asked(tmp_path: Path, answers: list[str], ends: str) -> None:
    import pty

    file = tmp_path / "server.py"
    file.write_text(ASKING)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "toolwire", "call", str(file), "order"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "dumb"})
    os.close(theirs)
    said = ""
    left = list(answers)
    try:
        while ends not in said:
            said += os.read(ours, 4096).decode()
            if left and said.endswith(": "):
                answer = left.pop(0)
                os.write(ours, (answer if answer == "\x04" else f"{answer}\n").encode())
                said += "\n"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert left == []
    assert "The server asks: Which?" in said
    if "many" in answers:
        assert "2. Large" in said
        assert 'Value "count": expected an integer, got "many"' in said
        assert "50% asking" in said


PRINTS = """
import sys
from toolwire import Server
from toolwire.errors import ToolError
server = Server("prints")
print("no database", file=sys.stderr, flush=True)

@server.tool
def fail() -> str:
    raise ToolError("failed")
"""


def test_lines_printed_before_a_call_are_shown_when_the_tool_fails(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "prints.py"
    file.write_text(PRINTS, encoding="utf-8")
    done = toolwire("call", f"{file}:server", "fail")
    assert done.status == 1
    assert "server| no database\n" in done.err
