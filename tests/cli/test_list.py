"""`toolwire list`."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
from msgspec import UNSET
from tests.cli.command import Command
from tests.client.fake import FakeServer

from toolwire import Server, Tool
from toolwire.cli import catalogue
from toolwire.protocol import types as t
from toolwire.wire.deadlines import CallClock


def everything() -> Server:
    server = Server("shop", version="2.1", instructions="Ask before you buy.")

    @server.tool
    def buy(what: str, count: int = 1) -> str:
        """Buy something.

        It arrives soon.
        """
        return what

    @server.resource("shop://catalogue")
    def listing() -> str:
        return ""

    @server.resource("shop://{item}")
    def item(item: str) -> str:
        return item

    @server.prompt
    def haggle(price: int, tone: str = "polite") -> str:
        """Haggle about a price."""
        return ""

    return server


def test_what_a_server_offers(toolwire: Command) -> None:
    toolwire.serves(everything())
    done = toolwire("list", "server")
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "shop 2.1\nspeaks 2026-07-28\nAsk before you buy.\n\n"
        "1 tool\ntool  arguments     description\nbuy   what [count]  Buy something.\n\n"
        "1 resource\nuri               name     description\nshop://catalogue  listing\n\n"
        "1 template\nuri template   name  description\nshop://{item}  item\n\n"
        "1 prompt\nprompt  arguments     description\nhaggle  price [tone]  Haggle about a price.\n"
    )


def test_one_kind_on_an_older_revision(toolwire: Command) -> None:
    toolwire.serves(everything())
    out = toolwire("list", "server", "prompts", "--revision", "2025-03-26").out
    assert "speaks 2025-03-26" in out
    assert "haggle" in out
    assert "Buy something." not in out


def test_definitions_as_json(toolwire: Command) -> None:
    toolwire.serves(everything())
    found = json.loads(toolwire("list", "server", "--json").out)
    assert found["server"]["name"] == "shop"
    assert found["tools"][0]["inputSchema"]["required"] == ["what"]
    assert found["templates"][0]["uriTemplate"] == "shop://{item}"


@pytest.mark.slow
def test_ten_thousand_tools_are_bounded(toolwire: Command) -> None:
    async def nothing() -> None:
        pass

    names = [f"tool_{number:05}" for number in range(catalogue.MOST + 1)]
    toolwire.serves(Server("many", tools=[Tool(nothing, name=name, description="d" * 1_000) for name in names]))
    done = toolwire("list", "server")
    assert "10,000 tools" in done.out
    assert "… and 9,500 more; --all shows them" in done.out
    assert len(done.out) < 500 * 350
    assert "the server has more than 10,000 tools; the rest was not fetched" in done.err
    assert len(toolwire("list", "server", "--all").out.splitlines()) > 10_000


PAGE_OF = {
    "tools/list": lambda text, cursor: t.ListToolsResult(
        tools=[t.Tool(name=f"t{cursor}", description=text, input_schema={"type": "object"})], next_cursor=cursor
    ),
    "resources/list": lambda text, cursor: t.ListResourcesResult(
        resources=[t.Resource(uri=f"a:{cursor}", name="r", description=text)], next_cursor=cursor
    ),
    "resources/templates/list": lambda text, cursor: t.ListResourceTemplatesResult(
        resource_templates=[t.ResourceTemplate(uri_template=f"a:{cursor}/{{b}}", name="r", description=text)],
        next_cursor=cursor,
    ),
    "prompts/list": lambda text, cursor: t.ListPromptsResult(
        prompts=[t.Prompt(f"p{cursor}", description=text)], next_cursor=cursor
    ),
}


def endless_server(method: str, size: int = 1_000) -> FakeServer:
    """Return a server whose list of one kind never ends."""
    numbers = itertools.count()
    make = PAGE_OF[method]
    return FakeServer({method: lambda request, outlet: make("d" * size, str(next(numbers)))})


@pytest.mark.parametrize("method", PAGE_OF)
@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
def test_list_ends_when_the_pages_of_a_server_do_not(
    toolwire: Command, monkeypatch: pytest.MonkeyPatch, method: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(catalogue, "MOST", 300)
    monkeypatch.setattr(catalogue, "MAX_BYTES", 50_000)
    server = endless_server(method)
    toolwire.serves(server)
    done = toolwire("list", "server", *words)
    assert (done.status, done.out) == (1, "")
    assert done.err == f"toolwire: {method} gave more than 50000 bytes\n"
    assert len([each for each in server.requests if each.method == method]) < 60


@pytest.mark.parametrize(
    "words", [("call", "server", "t"), ("lint", "server"), ("read", "server"), ("prompt", "server", "p")]
)
def test_every_command_bounds_the_lists_that_it_fetches(
    toolwire: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(catalogue, "MOST", 300)
    monkeypatch.setattr(catalogue, "MAX_BYTES", 50_000)
    method = {"prompt": "prompts/list", "read": "resources/list"}.get(words[0], "tools/list")
    toolwire.serves(endless_server(method))
    done = toolwire(*words)
    assert done.status == 1
    assert f"{method} gave more than 50000 bytes" in done.out + done.err


def test_lists_of_a_command_share_their_bytes(toolwire: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MAX_BYTES", 3_000)
    pages = {method: lambda request, outlet, make=make: make("d" * 1_000, UNSET) for method, make in PAGE_OF.items()}
    toolwire.serves(FakeServer(pages))
    assert "resources/templates/list gave more than" in toolwire("list", "server").err
    assert toolwire("list", "server", "templates").status == 0


def test_timeout_is_one_for_all_pages_of_a_list(toolwire: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[CallClock] = []
    limit = CallClock.limit

    def recorded(clock: CallClock, method: str) -> float | None:
        if method == "tools/list":
            clocks.append(clock)
        return limit(clock, method)

    monkeypatch.setattr(CallClock, "limit", recorded)
    monkeypatch.setattr(catalogue, "MOST", 5)
    toolwire.serves(endless_server("tools/list"))
    assert toolwire("list", "server", "tools").status == 0
    assert len(clocks) == 6
    assert len(set(map(id, clocks))) == 1


def test_a_server_cannot_steer_the_terminal(toolwire: Command) -> None:
    async def nothing() -> None:
        pass

    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r"
    server = Server(f"name{hostile}", version="1", instructions=f"do{hostile}")
    server.add(Tool(nothing, name="t", description=f"say{hostile}\nmore"))
    toolwire.serves(server)
    for words in ((), ("--json",)):
        out = toolwire("list", "server", *words).out
        assert not set("\x1b\x07\u202e\x9b\r") & set(out)
    assert json.loads(out)["tools"][0]["description"].startswith(f"say{hostile}")


def test_colours_are_asked_for_and_refused(toolwire: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    toolwire.serves(everything())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" not in toolwire("list", "server").out
    assert "\x1b[" in toolwire("list", "server", "--color", "always").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[" not in toolwire("list", "server", "--color", "never").out


COMMANDS = [("list", "server"), ("lint", "server"), ("doctor", "server"), ("call", "server", "buy")]


@pytest.mark.parametrize("words", COMMANDS)
def test_colours_without_rich_are_missed_in_one_line(
    toolwire: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    toolwire.serves(everything())
    monkeypatch.setitem(sys.modules, "rich", None)
    done = toolwire(*words, "--color", "always")
    assert done == (1, "", "toolwire: --color always needs rich: pip install 'toolwire[cli]'\n")


def test_a_terminal_without_rich_gets_plain_text(toolwire: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    toolwire.serves(everything())
    monkeypatch.setattr("toolwire.cli.screen.find_spec", lambda name: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = toolwire("list", "server")
    assert (done.status, done.err, "\x1b" in done.out) == (0, "", False)


@pytest.mark.parametrize("search", [False, True])
def test_search_shows_the_tools_that_fit_words(toolwire: Command, search: bool) -> None:
    server = Server("shop", search=search)

    @server.tool(group="orders")
    def search_customers(name: str) -> str:
        """Look up people."""
        return name

    @server.tool
    def ping() -> None:
        """Answer."""

    toolwire.serves(server)
    done = toolwire("list", "server", "--search", "find a customer")
    assert done.status == 0
    title, header, row = done.out.splitlines()
    assert title == "1 tool of 2"
    assert header.split() == ["tool", "server", "score", "matched", "tokens", "description"]
    assert row.split()[:2] == ["search_customers", "orders"] and "Look up people." in row
    found = json.loads(toolwire("list", "server", "tools", "--search", "customers", "--json").out)
    assert found["of"] == 2 and [each["name"] for each in found["tools"]] == ["search_customers"]
    assert toolwire("list", "server", "--search", "zebra").out == "0 tools of 2\n"


def test_search_is_for_tools_alone(toolwire: Command) -> None:
    toolwire.serves(everything())
    done = toolwire("list", "server", "prompts", "--search", "x")
    assert done.status == 2 and "--search is for tools alone" in done.err
