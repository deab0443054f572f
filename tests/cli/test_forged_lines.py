"""No text of a server, and no argument of a command, writes a line of its own to the terminal."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import Command
from tests.client.fake import FakeServer

from toolwire import cli
from toolwire.cli import answers as scripted
from toolwire.cli.keyboard import Keyboard
from toolwire.cli.questions import elicitation
from toolwire.client import Decline
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError

#: What begins a line of its own in some terminal or some reader of lines.
BREAKS = "\u2028\u2029\x85\x1c\x0c\x0b\r\n"
FORGED = f"x\u2028z{BREAKS}toolwire: done\nFORGED\x1b[2J"


def server() -> FakeServer:
    """A server that forges lines wherever a command shows a text of a server."""
    schema = {"type": "object", "properties": {FORGED: {"type": "string"}}, "required": [FORGED]}
    blocks: list[Any] = [
        t.ResourceLink(uri=FORGED, name=FORGED),
        t.ImageContent(data=b"1", mime_type=FORGED),
        t.EmbeddedResource(t.ResourceContents(uri=FORGED, mime_type=FORGED, blob=b"1")),
    ]

    def called(request: Any, outlet: Any) -> t.CallToolResult:
        if msgspec.json.decode(request.raw)["name"] == "fails":
            raise ProtocolError(-32000, FORGED)
        return t.CallToolResult(content=blocks)

    contents = [t.ResourceContents(uri=FORGED, mime_type=FORGED, blob=b"1")] * 2
    message = t.PromptMessage(role="assistant", content=t.ResourceLink(uri=FORGED, name=FORGED))
    tools = [
        t.Tool("blocks", {"type": "object"}),
        t.Tool("fails", {"type": "object"}),
        t.Tool(FORGED, schema, description=FORGED),
    ]
    resource = t.Resource(uri=FORGED, name=FORGED, description=FORGED)
    template = t.ResourceTemplate(uri_template=FORGED, name=FORGED)
    results: dict[str, Any] = {
        "tools/list": t.ListToolsResult(tools=tools),
        "resources/list": t.ListResourcesResult(resources=[resource]),
        "resources/templates/list": t.ListResourceTemplatesResult(resource_templates=[template]),
        "prompts/list": t.ListPromptsResult(prompts=[t.Prompt(FORGED, description=FORGED)]),
        "resources/read": t.ReadResourceResult(contents=contents),
        "prompts/get": t.GetPromptResult(messages=[message]),
    }
    handlers: dict[str, Any] = {name: lambda request, outlet, it=it: it for name, it in results.items()}
    capabilities = {"tools": {}, "resources": {}, "prompts": {}}
    return FakeServer({**handlers, "tools/call": called}, capabilities=capabilities)


@pytest.mark.parametrize("color", ["never", "always"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["list", "server"], 0),
        (["call", "server", "blocks"], 0),
        (["call", "server", "fails"], 1),
        (["call", "server", "nothing"], 2),
        (["call", "server", FORGED, "y=1"], 2),
        (["read", "server", FORGED], 0),
        (["prompt", "server", FORGED], 0),
        (["prompt", "server", "nothing"], 2),
        (["lint", "server"], 1),
    ],
    ids=lambda it: " ".join(word for word in it if word.isprintable()) if isinstance(it, list) else None,
)
def test_no_text_of_a_server_begins_a_line(toolwire: Command, words: list[str], status: int, color: str) -> None:
    toolwire.serves(server())
    done = toolwire(*words, "--color", color)
    assert done.status == status, done
    assert "\\u2028" in done.out + done.err, "the text of the server is shown"
    assert "Traceback" not in done.err
    assert not (set(BREAKS) - {"\n"}) & {*done.out, *done.err}
    lines = f"{done.out}\n{done.err}".split("\n")
    assert not [line for line in lines if line.lstrip().startswith(("FORGED", "toolwire: done"))]
    assert "\x1b[2J" not in done.out + done.err


async def test_a_question_of_a_server_forges_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Answering(Keyboard):
        async def ask(self, question: str) -> str | None:
            self.tell(question)
            return None

    member = {"type": "string", "title": FORGED, "description": FORGED, "enum": [FORGED], "default": FORGED}
    form = {"type": "object", "properties": {FORGED: member}, "required": [FORGED]}
    callbacks = elicitation(Answering(), lambda: None)
    assert callbacks.form is not None and callbacks.url is not None
    params = t.ElicitRequestParams(mode="form", message=FORGED, requested_schema=form)
    await callbacks.form(FORGED, params)
    address = f"https://a.example/{FORGED}"
    answer = await callbacks.url(FORGED, t.ElicitRequestParams(mode="url", message=FORGED, url=address))
    assert answer == Decline(), "an address that cannot be shown is not opened"
    lines = capsys.readouterr().err.split("\n")
    assert "  | FORGED\\x1b[2J" in lines, "several lines of a server are marked"
    assert not [line for line in lines if line.lstrip().startswith(("FORGED", "toolwire: done"))]
    assert all(line.isprintable() for line in lines)


def test_scripted_answers_do_not_open_what_cannot_be_shown() -> None:
    assert not scripted.questions.is_web_address("https://a.example/\nhttps://b.example/")
    assert not scripted.questions.is_web_address("https://a.example/ b")
    assert scripted.questions.is_web_address("https://a.example/b?c=d")


def test_only_the_screen_writes_to_the_terminal() -> None:
    """A module that writes by itself forgets to make the words of a server harmless."""
    found: list[str] = []
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        if file.name == "screen.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "print" or called.startswith(("sys.stdout.write", "sys.stderr.write")):
                    found.append(f"{file.name}:{node.lineno}")
    assert found == []


COMMANDS: list[list[str]] = [
    *(["list"], ["call"], ["read"], ["prompt"], ["request"], ["lint"], ["doctor"], ["bridge"], ["run"], ["dev"]),
    *(["skills", "list"], ["gateway"], ["gateway", "check"], ["gateway", "pins", "list"], ["install"], ["inspect"]),
    *(
        ["openapi", "list"],
        ["openapi", "add"],
        ["openapi", "check"],
        ["audit", "verify"],
        ["tasks", "list", "--stores"],
    ),
    ["gateway", "credentials", "list"],
]
HOSTILE = ["http://[::1", "http://a b/", "x\ntoolwire: done.py", "\udcff\x1b[2J.py", "a" * 5000, "a" * 5000 + ".json"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_hostile_argument_is_at_most_one_line(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLWIRE_AUDIT_KEY", "0123456789abcdef" * 4)
    more = ["x"] if command[0] in ("call", "read", "prompt", "request") else []
    more += ["--client", "cursor"] if command == ["install"] else []
    for argument in HOSTILE:
        done = toolwire(*command, argument, *more)
        assert done.status in (1, 2, 3), done
        written = done.out + done.err
        assert written.count("\n") <= 1 or command in (["doctor"], ["gateway", "check"]), written
        assert all(line.isprintable() for line in written.split("\n"))
        assert "\ntoolwire: done" not in written
