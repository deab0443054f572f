"""A message for an older peer carries nothing that its revision does not know.

One server, full of everything there is to say, talks to a client of each revision that claims to understand it all.
Every message is held against the official schema of the revision, closed to members it does not name; then each feature
is looked for: there from its first revision on, absent before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.golden.fixture import ICON, META, make_server
from tests.schema_check import conversation
from tests.wireclient import MODERN, REVISIONS, WireClient, connect

from toolwire import Context, Server, ToolResult
from toolwire.protocol.errors import UrlRequired
from toolwire.protocol.revisions import at_least

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")

Message = dict[str, Any]

EVERYTHING = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}},
    "extensions": {"com.example/shiny": {}},
}
ANSWERS: dict[str, Message] = {
    "roots/list": {"roots": [{"uri": "file:///work"}]},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "It is."}, "model": "tiny-1"},
    "elicitation/create": {"action": "accept", "content": {"size": "large"}},
}


def full_server() -> Server:
    server = make_server()
    server.extension("com.example/shiny", {"level": 3})

    @server.tool
    async def receipt() -> ToolResult:
        return ToolResult("paid", structured={"total": 3}, meta=META)

    @server.tool
    async def visit(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please sign in", "https://example.com/sign-in")
        await ctx.elicitation_complete(answer.id)
        return answer.action

    @server.tool
    async def sign_in() -> str:
        raise UrlRequired("Sign in first", "https://example.com/sign-in")

    return server


class Tour:
    """Everything that was said on one connection."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self.lists: dict[str, Message] = {}
        self.calls: dict[str, Message] = {}
        self.answers: dict[str, Message] = {}

    @property
    def questions(self) -> list[Message]:
        """What the server asked: its requests on older revisions, its `inputRequests` on 2026-07-28."""
        asked = [message for message in self.received if "method" in message and "id" in message]
        rounds = [message["result"].get("inputRequests", {}) for message in self.received if "result" in message]
        return asked + [question for requests in rounds for question in requests.values()]

    def asked(self, method: str) -> list[Message]:
        return [question["params"] for question in self.questions if question["method"] == method]

    def tool(self, name: str) -> Message:
        tools: list[Message] = self.lists["tools"]["tools"]
        return next(tool for tool in tools if tool["name"] == name)

    def block(self, name: str) -> Message:
        block: Message = self.calls[name]["result"]["content"][0]
        return block


async def tour(revision: str) -> Tour:
    made = Tour(revision)
    # One page is enough for everything, and pages are not what this is about.
    server = full_server()
    server.apply_settings(replace(server.settings, page_size=100))
    async with connect(server) as client:
        _record(client, made)
        client.answers = {method: lambda params, method=method: ANSWERS[method] for method in ANSWERS}  # type: ignore[misc]
        await _open(client, made)
        await _look_around(client, made)
        await _call_everything(client, made)
        await _watch(client, made)
        made.received = list(client.received)
    return made


def _record(client: WireClient, made: Tour) -> None:
    send = client.send

    def recorded(message: Any) -> None:
        made.sent.append(message)
        send(message)

    client.send = recorded  # type: ignore[method-assign]


async def _open(client: WireClient, made: Tour) -> None:
    if made.revision == MODERN:
        client.revision, client.capabilities = MODERN, EVERYTHING
        made.answers["open"] = await client.result("server/discover")
    else:
        made.answers["open"] = await client.initialize(made.revision, EVERYTHING)


async def _look_around(client: WireClient, made: Tour) -> None:
    for name, method in (
        ("tools", "tools/list"),
        ("resources", "resources/list"),
        ("templates", "resources/templates/list"),
        ("prompts", "prompts/list"),
    ):
        made.lists[name] = await client.result(method)
    for uri in ("note://today", "note://tomorrow", "picture://pixel"):
        made.answers[uri] = await client.result("resources/read", {"uri": uri})
    await client.error("resources/read", {"uri": "nothing://here"})
    made.answers["review"] = await client.result("prompts/get", {"name": "review", "arguments": {"subject": "x"}})
    made.answers["illustrated"] = await client.result("prompts/get", {"name": "illustrated"})
    reference = {"type": "ref/prompt", "name": "review"}
    await client.result("completion/complete", {"ref": reference, "argument": {"name": "tone", "value": "k"}})


async def _call_everything(client: WireClient, made: Tour) -> None:
    meta: Message = {"progressToken": "here"}
    if made.revision == MODERN:
        meta["io.modelcontextprotocol/logLevel"] = "debug"
    else:
        await client.result("logging/setLevel", {"level": "debug"})
    arguments: dict[str, Message] = {"echo": {"text": "x"}, "forecast": {"city": "Oslo"}, "count": {"to": 2}}
    for name in [tool["name"] for tool in made.lists["tools"]["tools"]]:
        if name not in ("wait", "wizard", "touch", "grow"):
            params = {"name": name, "arguments": arguments.get(name, {}), "_meta": meta}
            made.calls[name] = await _answered(client, params)


async def _answered(client: WireClient, params: Message) -> Message:
    """The response to a call, after whatever the server wanted to know first."""
    response = await client.request("tools/call", params)
    while response.get("result", {}).get("resultType") == "input_required":
        result = response["result"]
        responses = {key: ANSWERS[question["method"]] for key, question in result["inputRequests"].items()}
        again = params | {"inputResponses": responses, "requestState": result["requestState"]}
        response = await client.request("tools/call", again)
    return response


async def _watch(client: WireClient, made: Tour) -> None:
    if made.revision == MODERN:
        every = {f"{family}ListChanged": True for family in ("tools", "prompts", "resources")}
        client.start("subscriptions/listen", {"notifications": every | {"resourceSubscriptions": ["note://today"]}})
        await client.notified("notifications/subscriptions/acknowledged")
    else:
        await client.result("resources/subscribe", {"uri": "note://today"})
    await client.call("touch", {"uri": "note://today"})
    await client.call("grow")
    for family in ("tools", "prompts", "resources"):
        await client.notified(f"notifications/{family}/list_changed")
    await client.notified("notifications/resources/updated")


def members(value: Any) -> Iterator[str]:
    """The names of all members of a message, at every level, but for what a user's own JSON holds."""
    if isinstance(value, list):
        for item in value:
            yield from members(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            if name not in ("_meta", "inputSchema", "outputSchema", "structuredContent", "data", "experimental"):
                yield from members(item)


every_revision = cases("revision", REVISIONS)


@pytest.mark.covers("T-49", "1.13.2.5", "2.2.23", "2.2.10")
@every_revision
async def test_no_message_has_a_member_that_the_revision_does_not_know(revision: str) -> None:
    made = await tour(revision)
    judge = conversation(revision, closed=True)
    for message in made.sent:
        judge.problems("→", message)
    problems = [(message, found) for message in made.received if (found := judge.problems("←", message))]
    assert problems == []
    assert len(made.received) > 40


@every_revision
async def test_the_check_would_notice(revision: str) -> None:
    """A member that no revision knows is found wherever it hides."""
    made = await tour(revision)
    judge = conversation(revision, closed=True)
    for message in made.sent:
        judge.problems("→", message)
    found = 0
    for message in made.received:
        part = message.get("result", message.get("params"))
        if part is not None and "error" not in message:
            part["unheardOf"] = True
            found += bool(judge.problems("←", message))
    assert found == sum("result" in message or "params" in message for message in made.received)


@pytest.mark.covers("J65")
@every_revision
async def test_what_is_not_set_is_not_sent(revision: str) -> None:
    made = await tour(revision)
    empty = [message for message in made.received for value in _optional_values(message) if value in (None, {}, [], "")]
    assert empty == []


def empty_server() -> Server:
    """A server of which every optional part is given, and empty."""
    nothing: dict[str, Any] = {"title": "", "description": "", "icons": [], "meta": {}}
    server = Server("bare", title="", description="", website_url="", icons=[], instructions="")
    server.tool("tool", annotations={"title": ""}, **nothing)(lambda: ToolResult([], meta={}))
    server.tool("hinted", annotations={}, **nothing)(lambda: "")
    server.resource("note://a", name="a", annotations={}, **nothing)(lambda: "")
    server.resource("note://{id}", name="b", annotations={"audience": []}, **nothing)(lambda id: "")
    server.prompt("prompt", arguments=[{"name": "x", "title": "", "description": ""}], **nothing)(
        lambda x: {"description": "", "messages": ["hello"]}
    )
    server.prompt("plain", arguments=[], **nothing)(lambda: "hello")
    return server


@pytest.mark.covers("J65")
@every_revision
async def test_what_is_given_and_empty_is_not_sent(revision: str) -> None:
    server = empty_server()
    async with connect(server) as client:
        await client.open(revision)
        opened = (await client.result("server/discover")) if revision == MODERN else client.initialized
        listed = {
            method: (await client.result(f"{method}/list"))
            for method in ("tools", "resources", "resources/templates", "prompts")
        }
        prompt = await client.result("prompts/get", {"name": "prompt", "arguments": {"x": "y"}})
        called = await client.call("tool")
    identity = opened["_meta"]["io.modelcontextprotocol/serverInfo"] if revision == MODERN else opened["serverInfo"]
    assert identity == {"name": "bare", "version": "1.0.0"}
    assert "instructions" not in opened
    assert [set(tool) for tool in listed["tools"]["tools"]] == [{"name", "inputSchema"}] * 2
    assert [set(each) for each in listed["resources"]["resources"]] == [{"name", "uri", "mimeType"}]
    templates = listed["resources/templates"]["resourceTemplates"]
    assert [set(each) for each in templates] == [{"name", "uriTemplate", "mimeType"}]
    plain, filled = listed["prompts"]["prompts"]
    assert plain == {"name": "plain"}
    assert filled == {"name": "prompt", "arguments": [{"name": "x"}]}
    modern = {"resultType", "_meta"} if revision == MODERN else set()
    assert set(prompt) == {"messages"} | modern
    assert set(called) == {"content"} | modern


def _optional_values(value: Any) -> Iterator[Any]:
    """The values of all members but capabilities, results and schemas, which say what they mean by being empty."""
    if isinstance(value, list):
        for item in value:
            yield from _optional_values(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in ("capabilities", "inputSchema", "outputSchema"):
                if name != "result":
                    yield item
                yield from _optional_values(item)


SINCE = {
    "2.2.3 progress messages": ("message", "notifications/progress", "2025-03-26"),
    "2.2.7 titles": ("title", "lists", "2025-06-18"),
    "2.2.8 output schemas": ("outputSchema", "lists", "2025-06-18"),
    "2.2.9 lastModified": ("lastModified", "anywhere", "2025-06-18"),
    "2.2.10 metadata on definitions": ("_meta", "definitions", "2025-06-18"),
    "2.2.23 icons": ("icons", "anywhere", "2025-11-25"),
    "cache hints": ("ttlMs", "anywhere", MODERN),
    "result types": ("resultType", "anywhere", MODERN),
}


def _where(made: Tour, place: str) -> Any:
    if place == "lists":
        # 2025-03-26 knows a title, but inside the annotations.
        return [{**item, "annotations": {}} for page in made.lists.values() for item in _items(page)]
    if place == "definitions":
        return [item for page in made.lists.values() for item in _items(page)]
    if place == "anywhere":
        return made.received
    return [message["params"] for message in made.received if message.get("method") == place]


def _items(page: Message) -> list[Message]:
    return [item for entries in page.values() if isinstance(entries, list) for item in entries]


@pytest.mark.covers("2.2.3", "2.2.7", "2.2.8", "2.2.9", "2.2.10")
@pytest.mark.parametrize("feature", SINCE)
@every_revision
async def test_a_member_appears_with_its_revision_and_not_before(revision: str, feature: str) -> None:
    member, place, since = SINCE[feature]
    made = await tour(revision)
    assert (member in set(members(_where(made, place)))) == at_least(revision, since)


@pytest.mark.covers("J9", "2.2.23")
@every_revision
async def test_the_server_says_who_it_is_as_far_as_the_revision_goes(revision: str) -> None:
    opened = (await tour(revision)).answers["open"]
    identity = opened["_meta"]["io.modelcontextprotocol/serverInfo"] if revision == MODERN else opened["serverInfo"]
    expected: Message = {"name": "golden", "version": "1.2.3"}
    if at_least(revision, "2025-06-18"):
        expected["title"] = "Golden fixture"
    if at_least(revision, "2025-11-25"):
        expected |= {
            "description": "Says the same every time.",
            "websiteUrl": "https://example.com/golden",
            "icons": [ICON],
        }
    assert identity == expected


@pytest.mark.covers("J16", "2.2.10")
@every_revision
async def test_metadata_of_definitions_is_sent_as_given_or_not_at_all(revision: str) -> None:
    made = await tour(revision)
    definitions = [
        made.tool("echo"),
        made.lists["resources"]["resources"][0],
        made.lists["templates"]["resourceTemplates"][0],
        next(prompt for prompt in made.lists["prompts"]["prompts"] if prompt["name"] == "review"),
    ]
    expected = META if at_least(revision, "2025-06-18") else None
    assert [definition.get("_meta") for definition in definitions] == [expected] * 4
    assert "_meta" not in made.tool("cities")


@pytest.mark.covers("2.2.1", "T-5")
@every_revision
async def test_capabilities_are_those_of_the_revision(revision: str) -> None:
    declared = (await tour(revision)).answers["open"]["capabilities"]
    assert ("completions" in declared) == at_least(revision, "2025-03-26")
    # EXT-1: their own texts show extensions in the handshake of 2025-11-25 too.
    assert ("extensions" in declared) == at_least(revision, "2025-11-25")


@pytest.mark.covers("2.2.4", "2.2.6", "J19")
@every_revision
async def test_content_becomes_text_where_its_kind_is_unknown(revision: str) -> None:
    made = await tour(revision)
    kinds = [message["content"]["type"] for message in made.answers["illustrated"]["messages"]]
    audio = "audio" if at_least(revision, "2025-03-26") else "text"
    link = "resource_link" if at_least(revision, "2025-06-18") else "text"
    assert made.block("sound")["type"] == audio
    assert made.block("link")["type"] == link
    assert "note://today" in (made.block("link").get("uri") or made.block("link")["text"])
    assert kinds == ["text", "image", audio, link]
    assert [block["type"] for block in made.calls["attachment"]["result"]["content"]] == ["text", "resource"]


@pytest.mark.covers("2.2.5", "2.2.7")
@every_revision
async def test_tool_annotations(revision: str) -> None:
    made = await tour(revision)
    hints = {"title": "Echo hint", "readOnlyHint": True, "openWorldHint": False}
    assert made.tool("echo").get("annotations") == (hints if at_least(revision, "2025-03-26") else None)
    # 2025-03-26 has no other place for a title.
    inherited = {"title": "Forecast"} if revision == "2025-03-26" else None
    assert made.tool("forecast").get("annotations") == inherited


@pytest.mark.covers("1.13.2.5", "2.2.8", "T-19")
@every_revision
async def test_structured_results_keep_their_text(revision: str) -> None:
    made = await tour(revision)
    forecast, cities = made.calls["forecast"]["result"], made.calls["cities"]["result"]
    assert forecast["content"][0]["text"] == '{"city":"Oslo","high":21.5,"rain":false}'
    assert cities["content"][0]["text"] == '["Oslo","Paris"]'
    known = at_least(revision, "2025-06-18")
    assert forecast.get("structuredContent") == ({"city": "Oslo", "high": 21.5, "rain": False} if known else None)
    names: Any = ["Oslo", "Paris"] if revision == MODERN else {"result": ["Oslo", "Paris"]}
    assert cities.get("structuredContent") == (names if known else None)
    assert made.calls["receipt"]["result"].get("structuredContent") == ({"total": 3} if known else None)
    # Results carry metadata in every revision.
    assert made.calls["receipt"]["result"]["_meta"]["example.com/origin"] == "fixture"


@pytest.mark.covers("2.2.11", "2.2.12", "2.2.18")
@every_revision
async def test_forms_in_the_words_of_the_revision(revision: str) -> None:
    made = await tour(revision)
    forms = [params for params in made.asked("elicitation/create") if params.get("mode", "form") == "form"]
    if not at_least(revision, "2025-06-18"):
        assert forms == []
        assert made.calls["order"]["result"]["isError"] is True
        return
    assert forms[0].get("mode") == ("form" if at_least(revision, "2025-11-25") else None)
    fields = forms[0]["requestedSchema"]["properties"]
    assert ("default" in fields["count"]) == at_least(revision, "2025-11-25")
    assert fields["gift"]["default"] is False
    assert made.calls["order"]["result"].get("isError") is None


@pytest.mark.covers("2.2.13", "2.2.14", "2.2.15")
@every_revision
async def test_pages_to_open(revision: str) -> None:
    made = await tour(revision)
    pages = [params for params in made.asked("elicitation/create") if params.get("mode") == "url"]
    completed = [message for message in made.received if message.get("method") == "notifications/elicitation/complete"]
    refused = made.calls["sign_in"]
    assert bool(pages) == at_least(revision, "2025-11-25")
    assert len(completed) == (revision == "2025-11-25")
    if revision == "2025-11-25":
        assert refused["error"]["code"] == -32042
        assert completed[0]["params"]["elicitationId"] == pages[0]["elicitationId"]
    else:
        # What older clients can do with it is to show the address; 2026-07-28 asks, and is told it was opened.
        assert refused["result"]["isError"] is True
        assert "https://example.com/sign-in" in refused["result"]["content"][0]["text"]


@every_revision
async def test_questions_travel_as_the_revision_wants(revision: str) -> None:
    made = await tour(revision)
    requests = [message["method"] for message in made.received if "method" in message and "id" in message]
    assert (requests == []) == (revision == MODERN)
    assert made.asked("sampling/createMessage")
    assert [question for question in made.questions if question["method"] == "roots/list"]
