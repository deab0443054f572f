"""Suggestions for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, Optional

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Depends, Limits, Prompt, ResourceTemplate, Server, SyncContext, testing, types
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
@cases("revision", REVISIONS)
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
@cases(
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


@pytest.mark.covers("E31")
@pytest.mark.parametrize(
    "value",
    ["short", b"short", {"a": 1}, ("short", True), ({"a": 1}, False), types.Completion(values="short"), 5, [1], [None]],  # type: ignore[arg-type]
    ids=str,
)
async def test_what_is_no_list_of_texts_suggests_nothing(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A text is a sequence of characters, and a dict one of keys: neither is what somebody means to suggest."""

    async def function(partial: str) -> Any:
        return value

    async with connect(suggesting(function), MODERN) as client:
        error = await client.error("completion/complete", params())
    assert (error["code"], "short" in error["message"]) == (-32603, False)
    assert "A completion function returns" in caplog.text


@pytest.mark.covers("E31")
async def test_suggestions_may_come_in_any_collection() -> None:
    def endless(partial: str) -> Any:
        while True:
            yield partial

    for value in (("a", "b"), {"a": 1, "b": 2}.keys(), (each for each in "ab"), None):
        expected = [] if value is None else ["a", "b"]
        assert (await complete(suggesting(lambda partial, value=value: value), params()))["values"] == expected
    found = await complete(suggesting(endless), params("x"))
    assert (len(found["values"]), found["hasMore"]) == (100, True)


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
@cases("revision", ["2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_without_completions_the_method_is_not_there(revision: str) -> None:
    async with connect(Server("s", prompts=BRIEF), revision) as client:
        assert (await client.error("completion/complete", params()))["code"] == -32601


@pytest.mark.covers("T-5")
async def test_on_the_first_revision_completion_is_served_without_a_capability() -> None:
    assert (await complete(suggesting(CITIES), params("L"), "2024-11-05"))["values"] == ["Lima"]


@pytest.mark.covers("CMP-1", "1.9.5", "1.9.4")
@cases(
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


@cases(
    ("make", "text"),
    [
        (lambda: Server("s").completion(argument="x"), "for prompt= or for template=, one of the two"),
        (lambda: Server("s").completion(prompt="p", template="t", argument="x"), "one of the two"),
        (lambda: suggesting("Oslo"), "A completion is a function or a list of texts"),
        (lambda: suggesting([1]), "A completion is a function or a list of texts"),
        (lambda: suggesting(nothing), "takes the partial value"),
        (lambda: suggesting(lambda partial, other: []), "has no parameter 'other': it takes"),
        (
            lambda: Server("s", prompts=BRIEF, completions={("brief", "town"): CITIES}),
            "'brief' has no argument 'town' to complete",
        ),
        (
            lambda: Server("s", prompts=BRIEF).completion(prompt="brief", argument="citi")(async_list),
            "'brief' has no argument 'citi' to complete; did you mean 'city'?",
        ),
        (
            lambda: Server("s", templates=TEMPLATE).completion(template=TEMPLATE.uri_template, argument="uri")(
                async_list
            ),
            "has no argument 'uri' to complete",
        ),
        (
            lambda: (
                Server("s")
                .mount(Server("i", prompts=BRIEF), "in")
                .completion(prompt="in_brief", argument="x")(async_list)
            ),
            "'in_brief' has no argument 'x' to complete",
        ),
    ],
)
def test_mistakes_are_named_when_a_completion_is_registered(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()


# --- dependencies ---


class Database:
    """Says when it is open, and in which thread it was used."""

    def __init__(self) -> None:
        self.is_open = False
        self.threads: set[int] = set()

    def names(self, partial: str) -> list[str]:
        assert self.is_open
        self.threads.add(threading.get_ident())
        return [name for name in ("Ann", "Bob") if name.startswith(partial)]


@cases("kind", ["def, def", "def, async", "async, def", "async, async"])
async def test_a_completion_function_has_dependencies_like_any_handler(kind: str) -> None:
    database = Database()
    opened: list[str] = []

    def connect_blocking(ctx: SyncContext) -> Iterator[Database]:
        opened.append(ctx.method)
        database.is_open = True
        database.threads.add(threading.get_ident())
        yield database
        database.is_open = False

    async def connect_async(ctx: Context) -> AsyncIterator[Database]:
        opened.append(ctx.method)
        database.is_open = True
        yield database
        database.is_open = False

    dependency = connect_blocking if kind.endswith("def") else connect_async

    def suggest(partial: str, arguments: dict[str, str], db: Database = Depends(dependency)) -> list[str]:
        return db.names(partial)

    async def suggest_async(partial: str, db: Annotated[Database, Depends(dependency)], ctx: Context) -> list[str]:
        assert ctx.method == "completion/complete"
        return db.names(partial)

    server = suggesting(suggest_async if kind.startswith("async") else suggest)
    assert (await complete(server, params("A")))["values"] == ["Ann"]
    assert (opened, database.is_open) == (["completion/complete"], False)
    if kind == "def, def":
        assert len(database.threads) == 1, "one thread opens, uses and closes it"


async def test_a_dependency_that_fails_is_a_masked_error_and_is_cleaned_up() -> None:
    closed: list[str] = []

    def connect_blocking() -> Iterator[str]:
        try:
            yield "db"
        finally:
            closed.append("db")

    def broken(partial: str, db: str = Depends(connect_blocking)) -> list[str]:
        raise RuntimeError("hunter2")

    async with connect(suggesting(broken), MODERN) as client:
        error = await client.error("completion/complete", params())
    assert error["code"] == -32603 and "hunter2" not in error["message"]
    assert closed == ["db"]


async def test_the_dependencies_of_a_completion_can_be_replaced_in_a_test() -> None:
    def real() -> str:
        return "real"

    def suggest(partial: str, db: str = Depends(real)) -> list[str]:
        return [db]

    server = Server("outer").mount(suggesting(suggest))
    with testing.replaced(server, {real: lambda: "fake"}):
        assert (await complete(server, params()))["values"] == ["fake"]
    assert (await complete(server, params()))["values"] == ["real"]


# --- types that say what an argument can be ---


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 12


CHOICES: list[tuple[Any, list[str] | None]] = [
    (Literal["one", "two"], ["one", "two"]),
    (Literal["one", "two"] | None, ["one", "two"]),
    (Optional[Literal["one"]], ["one"]),  # noqa: UP045
    (Annotated[Literal["one", "two"], "which"], ["one", "two"]),
    (Literal["one", 2, True, None], ["one", "2", "true"]),
    (Color, ["red", "blue"]),
    (Color | None, ["red", "blue"]),
    (Literal["none"] | Color, ["none", "red", "blue"]),
    (Size, ["1", "12"]),
    (str, None),
    (Literal["one"] | str, None),
    (int | None, None),
]


@pytest.mark.covers("E30")
@cases(("annotation", "choices"), CHOICES, ids=lambda each: str(each)[:30])
@cases("revision", ["2025-11-25", MODERN])
async def test_the_type_of_an_argument_suggests_its_values(
    annotation: Any, choices: list[str] | None, revision: str
) -> None:
    def prompt(which, other="x"):  # type: ignore[no-untyped-def]
        return "text"

    prompt.__annotations__ = {"which": annotation, "return": str}

    def template(which):  # type: ignore[no-untyped-def]
        return "text"

    template.__annotations__ = {"which": annotation, "return": str}
    server = Server("s", prompts=prompt, templates=ResourceTemplate("t://{which}/{other}", template))
    server.completion(prompt="prompt", argument="other")(lambda partial: ["x"])
    of_template = {
        "ref": {"type": "ref/resource", "uri": "t://{which}/{other}"},
        "argument": {"name": "which", "value": ""},
    }
    for request in (params(name="prompt", argument="which"), of_template):
        found = await complete(server, request, revision)
        assert found == {"values": choices or [], "total": len(choices or []), "hasMore": False}


async def test_values_of_a_type_are_filtered_and_a_function_goes_first() -> None:
    server = Server("s")

    @server.prompt
    def paint(color: Color, size: Size = Size.SMALL) -> str:
        return f"{color.value} {size.value}"

    assert (await complete(server, params("R", name="paint", argument="color")))["values"] == ["red"]
    async with connect(server, MODERN) as client:
        assert (await client.result("server/discover"))["capabilities"]["completions"] == {}
        got = await client.result("prompts/get", {"name": "paint", "arguments": {"color": "red", "size": "12"}})
        assert got["messages"][0]["content"]["text"] == "red 12", "what is suggested is what the prompt takes"
    server.completion(prompt="paint", argument="color")(lambda partial: ["chosen"])
    assert (await complete(server, params("R", name="paint", argument="color")))["values"] == ["chosen"]


@pytest.mark.covers("2.2.2", "1.9.1")
@cases("over", ["memory", "http"])
@cases("revision", REVISIONS)
async def test_what_was_chosen_already_is_sent_to_servers_that_know_it(revision: str, over: Any) -> None:
    if over == "http" and revision == "2024-11-05":
        over = "sse"
    seen: list[Any] = []
    server = Server("s", prompts=BRIEF)

    @server.completion(prompt="brief", argument="city")
    def cities(partial: str, arguments: dict[str, str]) -> list[str]:
        seen.append(arguments)
        return ["Lisbon"]

    async with testing.connect(server, revision=revision, over=over) as (client, wire):
        await client.complete(types.PromptReference("brief"), ("city", "L"), {"country": "pt"})
    (sent,) = [message["params"] for message in wire.sent if message.get("method") == "completion/complete"]
    knows = revision not in ("2024-11-05", "2025-03-26")
    assert sent.get("context") == ({"arguments": {"country": "pt"}} if knows else None)
    assert seen == [{"country": "pt"} if knows else {}]


@cases("revision", REVISIONS)
async def test_completions_may_be_an_option_of_the_prompt_or_the_template(revision: str) -> None:
    prompt = Prompt.text("About {city}", name="about", completions={"city": CITIES})
    template = ResourceTemplate("map://{city}", completions={"city": lambda partial: [partial + "!"]})
    inner = Server("inner", prompts=prompt, templates=template)
    outer = Server("outer")
    outer.mount(inner, prefix="in")
    for server, name in ((inner, "about"), (outer, "in_about")):
        assert (await complete(server, params("os", name=name), revision))["values"] == ["Oslo", "Osaka"]
        reference = {"type": "ref/resource", "uri": "map://{city}"}
        request = {"ref": reference, "argument": {"name": "city", "value": "Li"}}
        assert (await complete(server, request, revision))["values"] == ["Li!"]
    inner.completion(prompt="about", argument="city")(lambda partial: ["the server's own"])
    assert (await complete(inner, params("os", name="about"), revision))["values"] == ["the server's own"]


def test_completion_option_for_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ServerError, match="about has no argument 'town' to complete; its arguments are city"):
        Prompt.text("About {city}", name="about", completions={"town": CITIES})


async def test_dependencies_of_completion_options_can_be_replaced() -> None:
    def cities() -> list[str]:
        return CITIES

    def suggest(partial: str, known: list[str] = Depends(cities)) -> list[str]:
        return known

    server = Server("s", prompts=Prompt.text("About {city}", name="about", completions={"city": suggest}))
    with testing.replaced(server, {cities: lambda: ["Rome"]}):
        assert (await complete(server, params("", name="about")))["values"] == ["Rome"]
    assert (await complete(server, params("", name="about")))["values"] == CITIES
