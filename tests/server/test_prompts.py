"""Prompts: listing them, filling them, what they may hold."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, connect

from toolwire import Audio, Context, File, Image, Message, Prompt, ResourceLink, Server, Text, types
from toolwire.content import text_contents
from toolwire.protocol.errors import ProtocolError, ServerError

PNG = b"\x89PNG\r\n\x1a\n1"
ICON = {"src": "https://example.net/i.png"}


async def get(
    server: Server, name: str, arguments: dict[str, Any] | None = None, revision: str = MODERN
) -> dict[str, Any]:
    async with connect(server, revision) as client:
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        return await client.result("prompts/get", params)


def giving(value: Any) -> Server:
    async def prompt():  # type: ignore[no-untyped-def]
        return value

    return Server("s", prompts=prompt)


async def messages(value: Any, revision: str = MODERN) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(giving(value), "prompt", revision=revision))["messages"]
    return found


@pytest.mark.parametrize("revision", [LEGACY[0], MODERN])
async def test_arguments_that_are_null_are_none_at_all(revision: str) -> None:
    async with connect(giving("Hello"), revision) as client:
        answer = await client.result("prompts/get", {"name": "prompt", "arguments": None})
    assert answer["messages"][0]["content"]["text"] == "Hello"


@pytest.mark.covers("J44", "J45", "E19", "1.11.2")
async def test_a_prompt_is_listed_with_everything_it_was_given() -> None:
    prompt = Prompt(
        name="brief",
        title="Briefing",
        description="Two lines.",
        arguments=[
            types.PromptArgument(name="city", title="City", description="Where.", required=True),
            {"name": "tone"},
            "style",
        ],
        messages=["About {city}"],
        icons=ICON,
        meta={"k": 1},
    )
    async with connect(Server("s", prompts=prompt), MODERN) as client:
        assert (await client.result("prompts/list"))["prompts"] == [
            {
                "name": "brief",
                "title": "Briefing",
                "description": "Two lines.",
                "arguments": [
                    {"name": "city", "title": "City", "description": "Where.", "required": True},
                    {"name": "tone"},
                    {"name": "style"},
                ],
                "icons": [ICON],
                "_meta": {"k": 1},
            }
        ]


@pytest.mark.covers("J16", "E19", "J65")
async def test_what_was_not_given_is_not_listed() -> None:
    async with connect(giving("x"), MODERN) as client:
        assert (await client.result("prompts/list"))["prompts"] == [{"name": "prompt"}]


@pytest.mark.covers("E27", "J45")
async def test_a_function_declares_its_arguments() -> None:
    server = Server("s")

    @server.prompt
    async def brief(city: Annotated[str, "Where."], days: int = 1) -> str:
        """A briefing.

        Args:
            days: How many days.
        """
        return f"{city} {days + 1}"

    async with connect(server, "2025-06-18") as client:
        (prompt,) = (await client.result("prompts/list"))["prompts"]
    assert prompt["description"] == "A briefing."
    assert [(each["name"], each.get("required", False)) for each in prompt["arguments"]] == [
        ("city", True),
        ("days", False),
    ]
    assert prompt["arguments"][1]["description"] == "How many days."


@pytest.mark.covers("1.11.3", "T-15")
@cases("revision", REVISIONS)
async def test_arguments_are_texts_and_read_as_the_annotated_types(revision: str) -> None:
    async def brief(city: str, days: int = 1, exact: bool = False) -> str:
        return f"{city} {days + 1} {exact}"

    server = Server("s", prompts=brief)
    result = await get(server, "brief", {"city": "12", "days": "2", "exact": "true"}, revision)
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "12 3 True"}}]
    async with connect(server, revision) as client:
        error = await client.error("prompts/get", {"name": "brief", "arguments": {"city": 12}})
    assert error["code"] == -32602


@pytest.mark.covers("J46", "J48")
async def test_placeholders_are_filled() -> None:
    server = Server("s", prompts=Prompt.text("Two lines on {city}{?tone}, {tone}{/tone}.", name="brief"))
    async with connect(server, MODERN) as client:
        (listed,) = (await client.result("prompts/list"))["prompts"]
    assert listed["arguments"] == [{"name": "city"}, {"name": "tone"}]
    result = await get(server, "brief", {"city": "{tone}", "tone": "dry"})
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "Two lines on {tone}, dry."}}]
    assert (await get(server, "brief"))["messages"][0]["content"]["text"] == "Two lines on ."


@pytest.mark.covers("J46", "E28")
async def test_placeholders_in_several_turns() -> None:
    prompt = Prompt(
        name="chat", messages=["Hello {name}", Message("I am {bot}", "assistant"), Message(Image(data=PNG))]
    )
    result = await get(Server("s", prompts=prompt), "chat", {"name": "Ann", "bot": "Bo"})
    assert [each["role"] for each in result["messages"]] == ["user", "assistant", "user"]
    assert [each["content"].get("text") for each in result["messages"]] == ["Hello Ann", "I am Bo", None]


@pytest.mark.covers("J46")
async def test_annotations_of_a_filled_text_are_kept() -> None:
    marked = Text("Hi {name}", annotations=types.Annotations(priority=1.0))
    result = await get(Server("s", prompts=Prompt(name="p", messages=[Message(marked)])), "p", {"name": "Ann"})
    assert result["messages"][0]["content"] == {"type": "text", "text": "Hi Ann", "annotations": {"priority": 1.0}}


@pytest.mark.covers("J47", "1.11.4", "1.11.7")
async def test_a_message_holds_any_kind_of_content() -> None:
    found = await messages(
        [
            "text",
            Image(data=PNG),
            Message(Audio(data=b"1", mime_type="audio/wav"), "assistant"),
            ResourceLink(uri="note://a", name="a"),
            text_contents("note://a", "x"),
            File(data=b"x", name="a.txt"),
        ]
    )
    assert [each["role"] for each in found] == ["user", "user", "assistant", "user", "user", "user"]
    kinds = [each["content"]["type"] for each in found]
    assert kinds == ["text", "image", "audio", "resource_link", "resource", "resource"]
    assert all(each["content"]["resource"]["mimeType"] == "text/plain" for each in found[4:])


@pytest.mark.covers("1.11.5")
@cases("revision", LEGACY)
async def test_newer_content_becomes_text_for_older_clients(revision: str) -> None:
    audio, link = Audio(data=b"1", mime_type="audio/wav"), ResourceLink(uri="note://a", name="a")
    kinds = [each["content"]["type"] for each in await messages([audio, link], revision)]
    assert kinds[0] == ("text" if revision == "2024-11-05" else "audio")
    assert kinds[1] == ("text" if revision in ("2024-11-05", "2025-03-26") else "resource_link")


@pytest.mark.covers("E27")
@cases(
    "value",
    [
        {"description": "Mine.", "messages": [{"role": "user", "content": "x"}]},
        ("Mine.", [Message("x")]),
        types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=types.TextContent("x"))], description="Mine."
        ),
        {"description": "Mine.", "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]},
    ],
)
async def test_a_function_returns_description_and_messages(value: Any) -> None:
    result = await get(giving(value), "prompt", revision="2025-06-18")
    assert result == {
        "description": "Mine.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}],
    }


@pytest.mark.covers("E28")
async def test_several_turns() -> None:
    found = await messages([Message("q"), Message("a", "assistant"), {"role": "user", "content": "q2"}])
    assert [(each["role"], each["content"]["text"]) for each in found] == [
        ("user", "q"),
        ("assistant", "a"),
        ("user", "q2"),
    ]


@pytest.mark.covers("E28")
def test_another_role_is_refused_at_registration() -> None:
    text = "the role 'user' or 'assistant', not 'system'; put instructions"
    with pytest.raises(ValueError, match=text):
        Message("x", "system")  # type: ignore[arg-type]
    with pytest.raises(ServerError, match=text):
        Prompt(name="p", messages=[{"role": "system", "content": "x"}])


def _system_message() -> Any:
    return [Message("Be brief", "system")]  # type: ignore[arg-type]


def _system_dict() -> Any:
    return [{"role": "system", "content": "Be brief"}, "Hello"]


def _system_on_the_wire() -> Any:
    return [types.PromptMessage(role="system", content=types.TextContent("Be brief"))]  # type: ignore[arg-type]


def _system_result() -> Any:
    return types.GetPromptResult(messages=_system_on_the_wire())


def _several_blocks() -> Any:
    return [Message(["Be", Text("brief")])]


@pytest.mark.covers("E28")
@cases("revision", REVISIONS)
@cases("brief", [_system_message, _system_dict, _system_on_the_wire, _system_result, _several_blocks])
async def test_a_message_that_no_prompt_can_hold_is_named_to_the_client(revision: str, brief: Any) -> None:
    async with connect(Server("s", prompts=Prompt(brief, name="brief")), revision) as client:
        error = await client.error("prompts/get", {"name": "brief"})
    assert error["code"] == -32603
    wrong = "one Message for each block" if brief is _several_blocks else "'user' or 'assistant', not 'system'"
    assert wrong in error["message"]
    assert "error id" not in error["message"]


@pytest.mark.covers("PRM-1", "1.11.6")
@cases("revision", REVISIONS)
async def test_errors_of_prompts(revision: str) -> None:
    async def brief(city: str) -> str:
        raise RuntimeError("the password is hunter2")

    by_hand = Prompt(name="hand", messages=["{x}"], arguments=[types.PromptArgument(name="x", required=True)])
    async with connect(Server("s", prompts=[brief, by_hand]), revision) as client:
        unknown = await client.error("prompts/get", {"name": "nope"})
        missing = await client.error("prompts/get", {"name": "brief"})
        by_hand_missing = await client.error("prompts/get", {"name": "hand", "arguments": {}})
        broken = await client.error("prompts/get", {"name": "brief", "arguments": {"city": "x"}})
    assert [each["code"] for each in (unknown, missing, by_hand_missing)] == [-32602] * 3
    assert "nope" in unknown["message"]
    assert "city" in missing["message"]
    assert broken["code"] == -32603
    assert "hunter2" not in json.dumps(broken)


@cases("revision", REVISIONS)
async def test_an_argument_that_a_prompt_does_not_have_is_passed_over(revision: str) -> None:
    async def brief(city: str, days: int = 1) -> str:
        return f"{city} {days}"

    by_hand = Prompt(name="hand", messages=["{city} {days}"])
    async with connect(Server("s", prompts=[brief, by_hand]), revision) as client:
        for name in ("brief", "hand"):
            sent = {"city": "Oslo", "days": "3", "town": "y"}
            result = await client.result("prompts/get", {"name": name, "arguments": sent})
            assert result["messages"][0]["content"]["text"] == "Oslo 3"
        wrong = await client.error(
            "prompts/get", {"name": "brief", "arguments": {"city": "x", "days": "many", "z": ""}}
        )
    assert wrong["code"] == -32602
    assert "days" in wrong["message"] and "'z'" not in wrong["message"]


@pytest.mark.covers("E29", "J5")
async def test_prompts_are_listed_fetched_and_removed_locally() -> None:
    server = Server("s").add(Prompt.text("Hi {name}", name="hi")).add(Prompt.text("Bye", name="bye"))
    assert [prompt.name for prompt in server.prompts] == ["bye", "hi"]
    result = await server.get_prompt("hi", {"name": "Ann"})
    assert result.messages[0].content == types.TextContent("Hi Ann")
    server.remove("hi")
    assert [prompt.name for prompt in server.prompts] == ["bye"]
    with pytest.raises(ProtocolError, match="Unknown prompt: hi"):
        await server.get_prompt("hi")


@pytest.mark.covers("1.11.1", "E39")
@cases("revision", LEGACY)
async def test_prompts_are_declared_and_their_changes_announced(revision: str) -> None:
    server = giving("x")
    async with connect(server) as client:
        assert (await client.initialize(revision))["capabilities"]["prompts"] == {"listChanged": True}
        await client.result("ping")
        server.add(Prompt.text("x", name="more"))
        await client.notified("notifications/prompts/list_changed")
        server.remove("more")
        await client.notified("notifications/prompts/list_changed", 2)
    async with connect(Server("s")) as client:
        assert "prompts" not in (await client.initialize(revision))["capabilities"]


@pytest.mark.covers("J60", "1.7.1")
async def test_prompts_come_in_pages() -> None:
    server = Server("s", prompts=[Prompt.text("x", name=name) for name in "abc"], page_size=2)
    async with connect(server, "2024-11-05") as client:
        first = await client.result("prompts/list")
        second = await client.result("prompts/list", {"cursor": first["nextCursor"]})
    assert [each["name"] for each in first["prompts"] + second["prompts"]] == ["a", "b", "c"]
    assert "nextCursor" not in second


async def test_a_blocking_prompt_with_the_context() -> None:
    server = Server("s")

    @server.prompt
    def where(ctx: Context) -> str:
        return ctx.method

    assert (await get(server, "where"))["messages"][0]["content"]["text"] == "prompts/get"


@cases("value", [[["nested"]], object(), 12, {"role": "user"}, [{"role": "system", "content": "x"}]])
async def test_what_cannot_be_a_message_is_an_internal_error(value: Any) -> None:
    async with connect(giving(value), MODERN) as client:
        assert (await client.error("prompts/get", {"name": "prompt"}))["code"] == -32603


def blank() -> str:
    return ""


@cases(
    ("make", "text"),
    [
        (lambda: Prompt(), "A prompt needs a function or messages=, one of the two"),
        (lambda: Prompt(blank, messages=["x"]), "A prompt needs a function or messages=, one of the two"),
        (lambda: Prompt(messages=["x"]), "A prompt without a function needs a name"),
        (lambda: Prompt.text("{?a}never closed", name="p"), "is never closed"),
        (lambda: Prompt(name="p", messages=["x"], arguments=[{"title": "no name"}]), "cannot be read as an argument"),
        (lambda: Prompt(name="p", messages=["{x}{y}"], arguments=["y"]), "that are no arguments of it: x$"),
        (lambda: Prompt(name="p", messages=["{?x}a{/x}"], arguments=[]), "that are no arguments of it: x$"),
        (lambda: Prompt(name="p", messages=[object()]), "A prompt message cannot be made of object"),
    ],
)  # fmt: skip
def test_mistakes_are_named_when_a_prompt_is_registered(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()
