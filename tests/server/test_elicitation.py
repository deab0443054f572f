"""Forms: what is sent on each revision, what comes back, and what a handler makes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from tests.cases import cases
from tests.server.answering import ASKING, EVERYTHING, accept, call
from tests.wireclient import MODERN, Message, connect

from toolwire import Context, Server

every_revision = cases("revision", ASKING)
OLDEST, *NEWER = ASKING


def asker(type: Any) -> Server:
    """A server whose one tool asks for a value of a type and tells what it got."""
    server = Server("asker", debug=True)

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Well?", type)
        return f"{answer.action}: {answer.data!r}"

    return server


async def asked(type: Any, revision: str, content: Message | None) -> tuple[Message, str]:
    """What goes out for a type, and what the tool makes of this content."""
    async with connect(asker(type), revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: {"action": "accept", "content": content})
        ((kind, params),) = done.asked
        assert kind == "elicitation/create"
        return params, done.text


class Unit(enum.Enum):
    METRES = "m"
    FEET = "ft"


@dataclass
class Trip:
    city: str
    days: Annotated[int, msgspec.Meta(ge=1, le=30, description="How many days.")] = 3
    unit: Unit = Unit.METRES
    pets: bool = False
    budget: float | None = None


@every_revision
@pytest.mark.covers("1.16.2.1", "1.16.1.3", "2.2.12", "T-24", "2.2.11")
async def test_a_form_has_a_message_and_a_flat_schema(revision: str) -> None:
    params, text = await asked(Trip, revision, {"city": "Oslo", "days": 2, "unit": "ft", "budget": 95.5})
    assert set(params) - {"mode"} == {"message", "requestedSchema"}
    # 2025-06-18 has no modes.
    assert params.get("mode") == (None if revision == OLDEST else "form")
    schema = params["requestedSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    assert {name: member["type"] for name, member in schema["properties"].items()} == {
        "city": "string",
        "days": "integer",
        "unit": "string",
        "pets": "boolean",
        "budget": "number",
    }
    assert "accept: Trip(city='Oslo', days=2, unit=<Unit.FEET: 'ft'>, pets=False, budget=95.5)" in text


async def test_a_list_of_texts_is_a_choice() -> None:
    params, text = await asked(["low", "high"], MODERN, {"value": "high"})
    assert params["requestedSchema"] == {
        "type": "object",
        "properties": {"value": {"type": "string", "enum": ["low", "high"]}},
        "required": ["value"],
    }
    assert text == "accept: 'high'"


@cases("wrong", [[], ["low", 1], [["low"]]])
async def test_a_list_of_anything_else_is_none(wrong: Any) -> None:
    async with connect(asker(wrong), "2025-11-25", EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: {"action": "cancel"})
    assert done.asked == []
    assert "A list to choose from has texts in it" in done.failure


@every_revision
@pytest.mark.covers("1.16.2.2", "1.16.2.8", "2.2.16", "2.2.17", "2.2.18")
async def test_titles_and_defaults_are_written_in_the_words_of_the_revision(revision: str) -> None:
    params, _ = await asked(Trip, revision, {"city": "Oslo"})
    properties = params["requestedSchema"]["properties"]
    assert properties["pets"] == {"type": "boolean", "default": False}
    if revision == OLDEST:
        assert properties["unit"] == {"type": "string", "enum": ["m", "ft"], "enumNames": ["Metres", "Feet"]}
        assert properties["days"] == {
            "type": "integer",
            "minimum": 1,
            "maximum": 30,
            "description": "How many days.",
        }
    else:
        choices = [{"const": "m", "title": "Metres"}, {"const": "ft", "title": "Feet"}]
        assert properties["unit"] == {"type": "string", "oneOf": choices, "default": "m"}
        assert properties["days"]["default"] == 3


@pytest.mark.parametrize("revision", NEWER)
@pytest.mark.covers("1.16.2.4", "1.16.2.6", "2.2.17", "T-40")
async def test_choices_of_many(revision: str) -> None:
    @dataclass
    class Report:
        parts: Annotated[list[Unit], msgspec.Meta(min_length=1)]
        tags: list[Literal["a", "b"]] = field(default_factory=list)

    params, text = await asked(Report, revision, {"parts": ["m", "ft"], "tags": ["b"]})
    properties = params["requestedSchema"]["properties"]
    assert properties["parts"] == {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"const": "m", "title": "Metres"}, {"const": "ft", "title": "Feet"}]},
    }
    assert properties["tags"]["items"] == {"type": "string", "enum": ["a", "b"]}
    assert "parts=[<Unit.METRES: 'm'>, <Unit.FEET: 'ft'>], tags=['b']" in text


@pytest.mark.covers("1.16.2.8", "2.2.17")
async def test_choices_of_many_do_not_exist_on_2025_06_18() -> None:
    async with connect(asker(list[Unit]), OLDEST, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: accept(["m"]))
        assert "The client cannot be asked this" in done.failure
        assert "2025-06-18" in done.failure
        assert client.requests == []


class Contact(pydantic.BaseModel):
    email: Annotated[str, pydantic.Field(json_schema_extra={"format": "email"})]
    age: Annotated[int, pydantic.Field(ge=0)] = 0


class Options(TypedDict):
    colour: Literal["red", "green"]


@every_revision
@pytest.mark.parametrize(
    ("type", "content", "expected"),
    [
        (bool, {"value": True}, "True"),
        (int, {"value": 3}, "3"),
        (float, {"value": 1.5}, "1.5"),
        (float, {"value": 2}, "2.0"),
        (str, {"value": "x"}, "'x'"),
        (Unit, {"value": "ft"}, "<Unit.FEET: 'ft'>"),
        (Literal["a", "b"], {"value": "b"}, "'b'"),
        (Options, {"colour": "red"}, "{'colour': 'red'}"),
        (Contact, {"email": "a@example.com"}, "Contact(email='a@example.com', age=0)"),
        (Annotated[str, {"no": "hash"}], {"value": "x"}, "'x'"),
        (int | None, {"value": None}, "None"),
    ],
    ids=str,
)
async def test_types_that_can_be_asked_for(revision: str, type: Any, content: Message, expected: str) -> None:
    params, text = await asked(type, revision, content)
    assert text == f"accept: {expected}"
    for member in params["requestedSchema"]["properties"].values():
        assert member["type"] in ("string", "integer", "number", "boolean")


@cases("type", [list[int], dict[str, int], list[Trip], {"type": "string"}], ids=str)
@pytest.mark.covers("1.16.2.1")
async def test_what_is_not_flat_cannot_be_asked_for(type: Any) -> None:
    async with connect(asker(type), MODERN, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: accept("x"))
        assert done.asked == []
        assert done.failure


@every_revision
@pytest.mark.covers("1.16.2.5", "ELI-10")
async def test_what_was_left_out_has_its_default(revision: str) -> None:
    _, text = await asked(Trip, revision, {"city": "Oslo", "days": None})
    assert "days=3, unit=<Unit.METRES: 'm'>, pets=False, budget=None" in text


@every_revision
@pytest.mark.covers("1.16.2.7", "ELI-10")
@pytest.mark.parametrize(
    "content", [{}, {"city": 7}, {"city": "Oslo", "days": 31}, {"city": "Oslo", "unit": "inch"}], ids=str
)
async def test_an_answer_that_does_not_fit_is_not_trusted(revision: str, content: Message) -> None:
    async with connect(asker(Trip), revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: {"action": "accept", "content": content})
        if revision == MODERN:
            # The answer is part of the request there.
            assert done.error["code"] == -32602
            assert "does not fit the form" in done.error["message"]
        else:
            assert "does not fit the form" in done.failure


@cases("revision", [OLDEST, "2025-11-25"])
@cases("answer", [{}, {"action": "perhaps"}, {"action": "accept", "content": []}, []], ids=str)
async def test_an_answer_that_is_none_fails_the_tool(revision: str, answer: Any) -> None:
    async with connect(asker(str), revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: answer)
        assert done.failure == "The client's answer to the elicitation request cannot be read"


@every_revision
@pytest.mark.covers("ELI-6", "1.16.2.6", "T-50")
async def test_declining_and_dismissing_are_answers(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Well?", str)
        return f"{answer.accepted} {answer.declined} {answer.cancelled} {answer.data} {answer.action}"

    async with connect(server, revision, EVERYTHING) as client:
        for action, expected in (
            ("accept", "True False False x accept"),
            ("decline", "False True False None decline"),
            ("cancel", "False False True None cancel"),
        ):
            answer = {"action": action, "content": {"value": "x"}}
            done = await call(client, "ask", {}, lambda *_, answer=answer: answer)  # type: ignore[misc]
            assert done.text == expected
        done = await call(client, "ask", {}, lambda *_: {"action": "decline", "content": None})
        assert "decline" in done.text


@every_revision
@pytest.mark.covers("1.16.1.1", "1.16.1.2", "T-21", "ELI-4")
async def test_the_empty_capability_means_forms_and_url_alone_means_none(revision: str) -> None:
    server = asker(str)

    @server.tool
    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Sign in", "https://example.com/")).action

    def answer(kind: str, params: Message) -> Message:
        return {"action": "accept"} if params.get("mode") == "url" else accept("x")

    for declared, forms, pages in (
        ({}, True, False),
        ({"form": {}}, True, False),
        ({"url": {}}, False, True),
        ({"form": {}, "url": {}}, True, True),
    ):
        if revision == OLDEST and "url" in declared:
            continue
        async with connect(server, revision, {"elicitation": declared}) as client:
            for tool, possible in (("ask", forms), ("page", pages)):
                done = await call(client, tool, {}, answer)
                if possible:
                    assert "accept" in done.text
                elif revision == MODERN:
                    mode = "form" if tool == "ask" else "url"
                    assert done.error["data"] == {"requiredCapabilities": {"elicitation": {mode: {}}}}
                else:
                    assert "does not support" in done.failure
                assert len(done.asked) == possible


@every_revision
@pytest.mark.covers("ELI-1", "MRTR-11", "1.16.2.9")
@pytest.mark.parametrize(
    "name",
    ["password", "user_password", "apiKey", "api_key", "access_token", "token", "clientSecret", "card_number", "cvv"],
)
async def test_a_form_does_not_ask_for_secrets(revision: str, name: str) -> None:
    server = asker(msgspec.defstruct("Login", [("user", str), (name, str)]))
    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: accept(user="ada"))
        assert done.asked == []
        assert f"A form must not ask for a secret such as {name!r}" in done.failure
        assert "elicit_url" in done.failure


@pytest.mark.covers("ELI-1")
async def test_a_secret_type_is_a_secret_by_any_name() -> None:
    class Login(pydantic.BaseModel):
        word: pydantic.SecretStr

    for type in (Login, pydantic.SecretStr):
        async with connect(asker(type), MODERN, EVERYTHING) as client:
            done = await call(client, "ask", {}, lambda kind, params: accept(word="x"))
            assert "must not ask for a secret" in done.failure


@cases("name", ["token_count", "passenger", "keyboard", "secretary", "max_tokens", "pass_by"])
async def test_harmless_names_are_not_taken_for_secrets(name: str) -> None:
    _, text = await asked(msgspec.defstruct("Harmless", [(name, str)]), MODERN, {name: "x"})
    assert "accept" in text


@every_revision
async def test_a_form_written_by_hand(revision: str) -> None:
    form = {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
            "count": {"type": "integer", "minimum": 1},
        },
        "required": ["count"],
    }
    params, text = await asked(form, revision, {"count": 2})
    assert params["requestedSchema"]["properties"]["count"] == {"type": "integer", "minimum": 1}
    assert text == "accept: {'size': 'm', 'count': 2}"
    async with connect(asker(form), revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, lambda kind, params: accept(count=0))
        assert "does not fit the form" in (done.error["message"] if revision == MODERN else done.failure)
    secret = {"type": "object", "properties": {"password": {"type": "string"}}}
    async with connect(asker(secret), revision, EVERYTHING) as client:
        assert "must not ask for a secret" in (await call(client, "ask", {}, lambda *_: accept("x"))).failure


async def test_the_default_question_is_yes_or_no() -> None:
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("Sure?"))

    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await call(client, "ask", {}, lambda kind, params: accept(True))).text == "Elicited('accept', True)"
