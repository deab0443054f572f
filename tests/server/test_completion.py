"""Suggestions for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Limits, Prompt, ResourceTemplate, Server, types
from toolwire.protocol.errors import ServerError

CITIES = ["Oslo", "Osaka", "Lima"]
BRIEF = Prompt.text("About {city} in {country}", name="brief")
TEMPLATE = ResourceTemplate("forecast://{country}/{city}", name="forecast")


def suggesting(source: Any) -> Server:
    return Server("s", prompts=BRIEF, templates=TEMPLATE, completions={("brief", "city"): source})


def params(value: str = "", *, argument: str = "city", name: str = "brief", **more: Any) -> dict[str, Any]:
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": value}, **more}


async def complete(server: Server, request: dict[str, Any], revision: str = MODERN) -> dict[str, Any]:
    async with connect(server, revision) as client:
        completion: dict[str, Any] = (await client.result("completion/complete", request))["completion"]
        return completion


@pytest.mark.covers("E30", "1.9.1", "1.9.6")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_completion_belongs_to_a_prompt_argument_or_a_template_variable(revision: str) -> None:
    server = Server("s", prompts=BRIEF, templates=TEMPLATE)

    @server.completion(prompt="brief", argument="city")
    async def cities(partial: str) -> list[str]:
        return [city for city in CITIES if city.startswith(partial)]

    @server.completion(template="forecast://{country}/{city}", argument="country")
    async def countries(partial: str) -> list[str]:
        return [partial + "!"]

    assert (await complete(server, params("Os"), revision))["values"] == ["Oslo", "Osaka"]
    template = {
        "ref": {"type": "ref/resource", "uri": "forecast://{country}/{city}"},
        "argument": {"name": "country", "value": "pt"},
    }
    assert (await complete(server, template, revision))["values"] == ["pt!"]


@pytest.mark.covers("E31", "1.9.2")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a", "b"], {"values": ["a", "b"], "total": 2, "hasMore": False}),
        (["a"][:0], {"values": [], "total": 0, "hasMore": False}),
        ((["a"], True), {"values": ["a"], "hasMore": True}),
        (types.Completion(values=["a"], total=7, has_more=True), {"values": ["a"], "total": 7, "hasMore": True}),
        ([str(n) for n in range(150)], {"values": [str(n) for n in range(100)], "total": 150, "hasMore": True}),
        (
            types.Completion(values=[str(n) for n in range(150)], total=900, has_more=True),
            {"values": [str(n) for n in range(100)], "total": 900, "hasMore": True},
        ),
    ],
    ids=["list", "empty", "more", "object", "long", "long object"],
)
async def test_what_a_completion_returns(value: Any, expected: dict[str, Any]) -> None:
    async def function(partial: str) -> Any:
        return value

    assert await complete(suggesting(function), params()) == expected


@pytest.mark.covers("E31", "1.9.1")
async def test_a_completion_may_take_the_context_and_what_was_chosen_already() -> None:
    async def function(partial: str, ctx: Context, arguments: dict[str, str]) -> list[str]:
        return [f"{partial} {ctx.method} {arguments.get('country')}"]

    request = params("L", context={"arguments": {"country": "pt"}})
    assert (await complete(suggesting(function), request))["values"] == ["L completion/complete pt"]
    assert (await complete(suggesting(function), params("L")))["values"] == ["L completion/complete None"]


async def test_a_list_is_filtered_by_prefix_without_regard_to_case() -> None:
    assert (await complete(suggesting(CITIES), params("os")))["values"] == ["Oslo", "Osaka"]


async def test_a_blocking_completion_runs_in_a_thread() -> None:
    def function(partial: str, ctx: Context) -> list[str]:
        ctx.log("info", "x")
        return [str(threading.current_thread() is threading.main_thread())]

    assert (await complete(suggesting(function), params()))["values"] == ["False"]


async def test_an_object_with_an_async_call() -> None:
    class Cities:
        async def __call__(self, partial: str) -> list[str]:
            return [partial]

    assert (await complete(suggesting(Cities()), params("x")))["values"] == ["x"]


@pytest.mark.covers("E32", "1.9.3")
async def test_the_capability_appears_with_the_first_completion() -> None:
    server = Server("s", prompts=BRIEF)
    async with connect(server, MODERN) as client:
        assert "completions" not in (await client.result("server/discover"))["capabilities"]
        server.completion(prompt="brief", argument="city")(async_list)
        assert (await client.result("server/discover"))["capabilities"]["completions"] == {}
    for revision in ("2024-11-05", "2025-03-26"):
        async with connect(server) as client:
            declared = (await client.initialize(revision))["capabilities"]
        assert ("completions" in declared) is (revision != "2024-11-05")


async def async_list(partial: str) -> list[str]:
    return ["x"]


@pytest.mark.covers("1.9.4", "DIS-1")
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_without_completions_the_method_is_not_there(revision: str) -> None:
    async with connect(Server("s", prompts=BRIEF), revision) as client:
        assert (await client.error("completion/complete", params()))["code"] == -32601


@pytest.mark.covers("T-5")
async def test_on_the_first_revision_completion_is_served_without_a_capability() -> None:
    assert (await complete(suggesting(CITIES), params("L"), "2024-11-05"))["values"] == ["Lima"]


@pytest.mark.covers("CMP-1", "1.9.5", "1.9.4")
@pytest.mark.parametrize(
    "request_params",
    [
        params(name="nope"),
        params(argument="nope"),
        {"ref": {"type": "ref/resource", "uri": "nope://{x}"}, "argument": {"name": "x", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": TEMPLATE.uri_template}, "argument": {"name": "x", "value": ""}},
        {"ref": {"type": "ref/other", "name": "x"}, "argument": {"name": "x", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "city", "value": 1}},
        {"ref": {"type": "ref/prompt", "name": "brief"}},
        {"argument": {"name": "city", "value": ""}},
        params(context={"arguments": {"country": 1}}),
    ],
)
async def test_completion_requests_are_validated(request_params: dict[str, Any]) -> None:
    async with connect(suggesting(CITIES), MODERN) as client:
        assert (await client.error("completion/complete", request_params))["code"] == -32602


async def test_a_known_argument_without_suggestions_is_answered_with_none() -> None:
    assert await complete(suggesting(CITIES), params(argument="country")) == {
        "values": [],
        "total": 0,
        "hasMore": False,
    }


@pytest.mark.covers("1.9.5")
async def test_a_failure_is_internal_and_masked() -> None:
    async def function(partial: str) -> list[str]:
        raise RuntimeError("the password is hunter2")

    async def numbers(partial: str) -> list[Any]:
        return [1]

    for source in (function, numbers):
        async with connect(suggesting(source), MODERN) as client:
            error = await client.error("completion/complete", params())
        assert error["code"] == -32603
        assert "hunter2" not in json.dumps(error)


async def test_a_completion_has_the_time_of_any_handler() -> None:
    async def never(partial: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    completions = {("brief", "city"): never}
    server = Server("s", prompts=BRIEF, completions=completions, limits=Limits(tool=0.05))
    async with connect(server, MODERN) as client:
        error = await client.error("completion/complete", params())
    assert (error["code"], error["message"]) == (-32603, "the completion of city did not finish within 0.05 seconds")


def nothing() -> list[str]:
    return []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Server("s").completion(argument="x"), "for prompt= or for template=, one of the two"),
        (lambda: Server("s").completion(prompt="p", template="t", argument="x"), "one of the two"),
        (lambda: suggesting("Oslo"), "A completion is a function or a list of texts"),
        (lambda: suggesting([1]), "A completion is a function or a list of texts"),
        (lambda: suggesting(nothing), "takes the partial value"),
        (lambda: suggesting(lambda partial, other: []), "has no parameter 'other': it takes"),
    ],
)
def test_mistakes_are_named_when_a_completion_is_registered(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()
