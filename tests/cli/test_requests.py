"""`toolwire call`, `read` and `prompt`: requests over every kind of target, on both eras, with scripted answers."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.cli.command import Command
from tests.client.fake import FakeServer
from tests.http_process import started

from toolwire import Context, Server
from toolwire.cli import server_file
from toolwire.cli.answers import MOST_QUESTIONS
from toolwire.protocol import types as t
from toolwire.protocol.errors import RESOURCE_NOT_FOUND, ProtocolError

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = pytest.mark.parametrize("revision", [MODERN, LEGACY])

SHOP = '''
from dataclasses import dataclass
from enum import Enum
from toolwire import Context, Message, Server

class Size(Enum):
    SMALL = "s"
    LARGE = "l"

@dataclass
class Order:
    size: Size
    count: int
    gift: bool = False

@dataclass
class Note:
    """A note that may stay empty."""
    note: str = ""

server = Server("shop")

@server.tool
async def order(what: str, ctx: Context) -> str:
    """Order something."""
    answer = await ctx.elicit("Which?", Order)
    return f"{what} {answer.action} {answer.data}"

@server.tool
async def confirm(ctx: Context) -> str:
    """Ask twice."""
    first = await ctx.elicit("Sure?", bool)
    second = await ctx.elicit("A note?", Note)
    return f"{first.action} {first.data} {second.action} {second.data}"

@server.tool
async def visit(ctx: Context) -> str:
    """Ask for a visit to a page."""
    answer = await ctx.elicit_url("Pay here.", "https://pay.example/1")
    return answer.action

@server.tool
async def think(ctx: Context) -> str:
    """Ask a model twice."""
    first = await ctx.sample("one?")
    second = await ctx.sample("two?")
    return f"{first.text} {second.text}"

@server.resource("shop://motto")
def motto() -> str:
    return "cheap"

@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    return b"PNG"

@server.resource("shop://price/{what}")
async def price(what: str, ctx: Context) -> str:
    answer = await ctx.elicit("For which size?", Size)
    return f"{what} {answer.action} {answer.data}"

@server.prompt
def advertise(what: str, tone: str = "loud") -> str:
    """Advertise something."""
    return f"Advertise {what}, {tone}."

@server.prompt
def talk() -> list[Message]:
    return [Message("Hello", role="user"), Message("Hi", role="assistant")]

@server.prompt
async def asked(ctx: Context) -> str:
    answer = await ctx.elicit("Sure?", bool)
    return f"{answer.action} {answer.data}"
'''


@pytest.fixture(scope="module")
def shop_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shop") / "shop.py"
    file.write_text(SHOP)
    return file


@pytest.fixture(scope="module")
def shop_url(shop_file: Path) -> Iterator[str]:
    """The address of the same server in a process of its own."""
    found: list[str] = []
    ready, done = Event(), Event()

    async def serve() -> None:
        command = [sys.executable, "-m", "toolwire", "run", shop_file, "--transport", "http", "--port", "0"]
        async with started(command) as served:
            found.append(f"http://127.0.0.1:{served.port}/mcp")
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        done.set()
        thread.join()


@pytest.fixture(scope="module")
def shop(shop_file: Path) -> Server:
    server: Server = server_file.load(str(shop_file))
    return server


# The command, and the end of what it prints.
COMMANDS = [
    (
        ["call", "{}", "order", "what=tea", "--answer", "size=l", "--answer", "count=3"],
        "tea accept Order(size=<Size.LARGE: 'l'>, count=3, gift=False)\n",
    ),
    (["read", "{}", "shop://motto"], "cheap\n"),
    (["read", "{}", "shop://price/tea", "--answer", "value=s"], "tea accept Size.SMALL\n"),
    (["prompt", "{}", "advertise", "what=tea", "tone=soft"], "Advertise tea, soft.\n"),
    (["prompt", "{}", "asked", "--answer", "value=yes"], "accept True\n"),
]


@ERAS
@pytest.mark.parametrize("kind", ["file", "url"])
def test_every_request_over_stdio_and_http(
    toolwire: Command, shop_file: Path, shop_url: str, kind: str, revision: str
) -> None:
    target = str(shop_file) if kind == "file" else shop_url
    for words, printed in COMMANDS:
        done = toolwire(*(word.format(target) for word in words), "--revision", revision, "--timeout", "60")
        assert (done.status, done.out, done.err) == (0, printed, ""), words


# --- answers ---------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.filterwarnings("ignore:Sampling is deprecated")
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["order", "what=tea", "--answer", '{"size": "l", "count": 2, "gift": true}'], "gift=True)"),
        (["order", "what=tea", "--answer", "size=Large", "--answer", "count:=2"], "count=2, gift=False)"),
        (["order", "what=tea", "--answer", "size=s", "--answer", "count=1", "--answer", "gift=y"], "gift=True)"),
        (["order", "what=tea", "--answer", "decline"], "tea decline None"),
        (["order", "what=tea", "--answer", "cancel"], "tea cancel None"),
        (["confirm", "--answer", "value=no", "--answer", "note=x"], "accept False accept Note(note='x')"),
        (["confirm", "--answer", "value=true", "--answer", "accept"], "accept True accept Note(note='')"),
        (["confirm", "--answer", "value=true", "--answer", "decline"], "accept True decline None"),
        (["think", "--sample", "a", "--sample", "b"], "a b"),
    ],
)
def test_questions_are_answered_by_options(
    toolwire: Command, shop: Server, revision: str, words: list[str], printed: str
) -> None:
    toolwire.serves(shop)
    done = toolwire("call", "server", *words, "--revision", revision)
    assert (done.status, done.err) == (0, "")
    assert done.out.rstrip("\n").endswith(printed)


@ERAS
@pytest.mark.parametrize("answer", ["accept", "decline", "cancel"])
def test_a_page_is_shown_and_answered_by_an_option(toolwire: Command, shop: Server, revision: str, answer: str) -> None:
    toolwire.serves(shop)
    done = toolwire("call", "server", "visit", "--answer", answer, "--revision", revision)
    assert (done.status, done.out.strip()) == (0, answer)
    assert "https://pay.example/1" in done.err


@ERAS
@pytest.mark.filterwarnings("ignore:Sampling is deprecated")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["order", "what=tea", "--answer", "size=l"], "the server asks 'Which?': add --answer count=VALUE"),
        (
            ["order", "what=tea", "--answer", "x=1"],
            "the server asks 'Which?': add --answer size=VALUE --answer count=VALUE",
        ),
        (["order", "what=tea", "--answer", "size=l", "--answer", "cont=1"], "(did you mean 'count' by 'cont'?)"),
        (["order", "what=tea", "--answer", "accept"], "add --answer size=VALUE --answer count=VALUE"),
        (
            ["order", "what=tea", "--answer", "size=l", "--answer", "count=many"],
            'an --answer does not fit the question \'Which?\': Value "count": expected an integer, got "many"',
        ),
        (
            ["confirm", "--answer", "value=true"],
            "the server asks 'A note?': add --answer accept, decline or cancel, or one of its fields (note)",
        ),
        (["visit", "--answer", "x=1"], "add --answer accept, decline or cancel"),
        (["think", "--sample", "a"], "the server asks a model more often than --sample was given"),
    ],
)
def test_a_missing_answer_is_named(toolwire: Command, shop: Server, revision: str, words: list[str], says: str) -> None:
    toolwire.serves(shop)
    done = toolwire("call", "server", *words, "--revision", revision)
    assert (done.status, done.out) == (2, "")
    assert says in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--answer", "yes"], "--answer 'yes' is none of KEY=VALUE, KEY:=JSON, '{...}', accept, decline and cancel"),
        (["--answer", "decline", "--answer", "cancel"], "one of accept, decline and cancel, not cancel and decline"),
        (["--answer", "{"], "'{' is not JSON"),
        (["--answer", "a:=x"], "what follows := in 'a:=x' is not JSON"),
        (["--answer", "=x"], "'=x' is neither KEY=VALUE nor KEY:=JSON"),
    ],
)
def test_a_wrong_answer_option_is_refused_before_anything_happens(
    toolwire: Command, words: list[str], says: str
) -> None:
    server = FakeServer()
    toolwire.serves(server)
    done = toolwire("call", "server", "order", *words)
    assert (done.status, done.out) == (2, "")
    assert says in done.err and done.err.count("\n") == 1
    assert server.requests == []


def test_answers_that_nobody_asked_for_are_mentioned(toolwire: Command, shop: Server) -> None:
    toolwire.serves(shop)
    done = toolwire("prompt", "server", "talk", "--answer", "a=1", "--answer", "b=2", "--sample", "x")
    assert done.status == 0
    assert "the server did not ask for a, b (--answer)" in done.err
    assert "the server did not ask for 1 text of --sample" in done.err


def test_a_question_without_answers_says_what_to_do(toolwire: Command, shop: Server) -> None:
    toolwire.serves(shop)
    for words in (["call", "server", "confirm"], ["read", "server", "shop://price/a"], ["prompt", "server", "asked"]):
        done = toolwire(*words)
        assert (done.status, done.out) == (1, "")
        assert "answer it with --answer or --sample" in done.err


async def action(outlet: Any, params: t.ElicitRequestParams) -> str:
    """Ask the client, and return the action of its answer."""
    answer = await outlet.request("elicitation/create", params, timeout=50)
    said: str = json.loads(bytes(answer))["action"]
    return said


EVIL = "\x1b]0;owned\x07\u202e"


def test_a_hostile_question_reaches_neither_terminal_nor_browser(
    toolwire: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    schema = {"type": "object", "properties": {EVIL: {"$ref": "#/properties/x"}, "x": 7}, "required": [EVIL, 5]}

    async def ask(request: Any, outlet: Any) -> t.CallToolResult:
        form = t.ElicitRequestParams(mode="form", message=EVIL, requested_schema=schema)
        page = t.ElicitRequestParams(mode="url", message=EVIL, url="javascript:alert(1)", elicitation_id="1")
        actions = [await action(outlet, params) for params in (page, form)]
        return t.CallToolResult(content=[t.TextContent(" ".join(actions))])

    tools = t.ListToolsResult(tools=[t.Tool("ask", {"type": "object"})])
    toolwire.serves(FakeServer({"tools/list": lambda request, outlet: tools, "tools/call": ask}))
    for answer in ("accept", "x=1"):
        done = toolwire("call", "server", "ask", "--answer", answer, "--revision", LEGACY)
        assert done.status == 2
        assert not set(EVIL) & set("\x1b\x07\u202e") & set(done.err)
        assert "add --answer" in done.err
    assert opened == []


def test_a_server_that_asks_for_ever_is_stopped(toolwire: Command) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    asked = 0

    async def ask(request: Any, outlet: Any) -> t.CallToolResult:
        nonlocal asked
        said = "accept"
        while said == "accept":
            asked += 1
            params = t.ElicitRequestParams(mode="form", message="Again?", requested_schema=schema)
            said = await action(outlet, params)
        return t.CallToolResult(content=[])

    tools = t.ListToolsResult(tools=[t.Tool("ask", {"type": "object"})])
    toolwire.serves(FakeServer({"tools/list": lambda request, outlet: tools, "tools/call": ask}))
    done = toolwire("call", "server", "ask", "--answer", "a=1", "--revision", LEGACY)
    assert (done.status, asked) == (2, MOST_QUESTIONS + 1)
    assert f"the server asks more than {MOST_QUESTIONS} questions" in done.err


# --- read ------------------------------------------------------------------------------------------------------------


@ERAS
def test_a_resource_is_shown_as_what_it_is(toolwire: Command, shop: Server, revision: str) -> None:
    toolwire.serves(shop)
    found = re.fullmatch(
        r"a picture, image/png, 3 bytes: (.*\.png)\n",
        toolwire("read", "server", "shop://logo", "--revision", revision).out,
    )
    assert found is not None
    assert Path(found[1]).read_bytes() == b"PNG"
    Path(found[1]).unlink()
    as_json = json.loads(toolwire("read", "server", "shop://motto", "--json", "--revision", revision).out)
    assert [(one["uri"], one["text"]) for one in as_json["contents"]] == [("shop://motto", "cheap")]


def test_several_contents_have_their_addresses(toolwire: Command) -> None:
    contents = [t.ResourceContents("a://1", text="one"), t.ResourceContents(f"a://{EVIL}", text=f"two{EVIL}")]
    answers = {"resources/read": lambda request, outlet: t.ReadResourceResult(contents=contents)}
    toolwire.serves(FakeServer(answers))
    done = toolwire("read", "server", "a://all")
    assert done.out.startswith("a://1:\none\na://")
    assert not set("\x1b\x07\u202e") & set(done.out)
    contents.clear()
    assert toolwire("read", "server", "a://all").err == "(nothing)\n"


@ERAS
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a resource; the server has shop://logo, shop://motto, shop://price/{what}"),
        (["shop://moto"], "the server has no resource 'shop://moto'; did you mean 'shop://motto'?"),
        (["nothing://like-it"], "it has shop://logo, shop://motto, shop://price/{what}"),
    ],
)
def test_a_resource_that_is_not_there(
    toolwire: Command, shop: Server, revision: str, words: list[str], says: str
) -> None:
    toolwire.serves(shop)
    done = toolwire("read", "server", *words, "--revision", revision)
    assert (done.status, done.out) == (2, "")
    assert says in done.err


def test_a_listed_resource_that_the_server_does_not_find(toolwire: Command) -> None:
    def gone(request: Any, outlet: Any) -> Any:
        raise ProtocolError(RESOURCE_NOT_FOUND, f"the disk {EVIL} is gone")

    listed = t.ListResourcesResult(resources=[t.Resource(uri="a://1", name="a")])
    templates = t.ListResourceTemplatesResult(resource_templates=[])
    toolwire.serves(
        FakeServer(
            {
                "resources/read": gone,
                "resources/list": lambda request, outlet: listed,
                "resources/templates/list": lambda request, outlet: templates,
            }
        )
    )
    done = toolwire("read", "server", "a://1")
    assert done.status == 2
    assert "lists the resource 'a://1' and does not find it: the disk \\x1b" in done.err


def test_a_server_without_resources_or_prompts(toolwire: Command) -> None:
    toolwire.serves(FakeServer(capabilities={"tools": {}}))
    done = toolwire("read", "server", "a://1")
    assert (done.status, "did not declare the capability 'resources'" in done.err) == (1, True)
    done = toolwire("prompt", "server", "a")
    assert (done.status, done.err) == (2, "toolwire: the server has no prompt 'a'; it has none\n")


# --- prompt ----------------------------------------------------------------------------------------------------------


@ERAS
def test_messages_have_their_roles(toolwire: Command, shop: Server, revision: str) -> None:
    toolwire.serves(shop)
    assert toolwire("prompt", "server", "talk", "--revision", revision).out == "user:\nHello\nassistant:\nHi\n"
    done = toolwire("prompt", "server", "advertise", "what=tea", "--json", "--revision", revision)
    assert json.loads(done.out)["messages"][0]["content"]["text"] == "Advertise tea, loud."


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["what=a=b"], {"what": "a=b"}),
        (["what=3"], {"what": "3"}),
        (["what:=[1, 2]"], {"what": "[1,2]"}),
        (['{"what": {"a": 1}, "tone": "x"}'], {"what": '{"a":1}', "tone": "x"}),
        (["what=a", "what=b"], {"what": '["a","b"]'}),
    ],
)
def test_arguments_of_a_prompt_are_text(toolwire: Command, words: list[str], sent: dict[str, str]) -> None:
    arguments = [t.PromptArgument("what", required=True), t.PromptArgument("tone")]
    listed = t.ListPromptsResult(prompts=[t.Prompt("p", arguments=arguments)])
    server = FakeServer(
        {
            "prompts/list": lambda request, outlet: listed,
            "prompts/get": lambda request, outlet: t.GetPromptResult(messages=[]),
        }
    )
    toolwire.serves(server)
    assert toolwire("prompt", "server", "p", *words).status == 0
    assert json.loads(bytes(server.requests[-1].raw))["arguments"] == sent


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a prompt; the server has advertise, asked, talk"),
        (["talks"], "the server has no prompt 'talks'; did you mean 'talk'?"),
        (["advertise"], 'Missing argument "what": expected a string'),
        (["advertise", "what=a", "wat=b"], 'Unknown argument "wat"'),
        (["advertise", "what"], "'what' is neither KEY=VALUE nor KEY:=JSON"),
    ],
)
def test_wrong_use_of_a_prompt(toolwire: Command, shop: Server, words: list[str], says: str) -> None:
    toolwire.serves(shop)
    done = toolwire("prompt", "server", *words)
    assert (done.status, done.out) == (2, "")
    assert says in done.err and done.err.count("\n") == 1


# --- other options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["call", "read", "prompt", "list", "lint", "doctor"])
def test_a_server_that_cannot_be_reached_is_status_three(toolwire: Command, command: str) -> None:
    name = {"call": ["a"], "read": ["a://b"], "prompt": ["a"]}.get(command, [])
    done = toolwire(command, "http://127.0.0.1:9/mcp", *name)
    assert done.status == (1 if command == "doctor" else 3)


@pytest.mark.parametrize(
    "command", ["call", "read", "prompt", "list", "lint", "doctor", "inspect", "install", "run", "dev"]
)
def test_every_command_that_connects_or_serves_has_a_log_level(toolwire: Command, command: str) -> None:
    assert "--log-level LEVEL" in toolwire(command, "--help").out
    done = toolwire(command, "server.py", "--log-level", "loud")
    assert (done.status, "'loud' is not one of debug," in done.err) == (2, True)


@ERAS
@pytest.mark.filterwarnings("ignore:Logging to the client is deprecated")
@pytest.mark.parametrize(
    ("level", "shown"), [(None, ["info", "error"]), ("error", ["error"]), ("debug", ["debug", "info", "error"])]
)
def test_the_log_level_holds_for_the_log_messages_of_the_server(
    toolwire: Command, revision: str, level: str | None, shown: list[str]
) -> None:
    server = Server("loud")

    @server.tool
    async def shout(ctx: Context) -> str:
        await ctx.debug("debug")
        await ctx.info("info")
        await ctx.error("error")
        return "done"

    toolwire.serves(server)
    options = [] if level is None else ["--log-level", level]
    done = toolwire("call", "server", "shout", "--revision", revision, *options)
    lines = [line.removeprefix("server| [") for line in done.err.splitlines() if line.startswith("server| [")]
    assert [line.partition("]")[0] for line in lines] == shown
