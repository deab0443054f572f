"""The pages for people who come from other libraries name what exists here, and deny nothing that exists."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from tests.blocks import ROOT
from tests.cases import cases

import toolwire
from toolwire import Client, Context, Server, testing
from toolwire.http.asgi import HttpApp

PAGE = ROOT / "docs" / "coming-from-others.md"
CODE = re.compile(r"`@?(?:raise )?([A-Za-z][\w.]*)(\(.*\))?(?:\.\w+.*)?`")
KEYWORD = re.compile(r"(?<![\w\"])(\w+)=")
OBJECTS: dict[str, Any] = {"server": Server, "ctx": Context, "client": Client}
#: Words in code that are Python's own, a user's, or an instance of a class whose members are checked below.
OTHER = {"str", "int", "type", "allow", "async", "await", "def", "ctx", "answer", "Annotated", "return", "toolwire"}


def spans() -> list[tuple[str, str]]:
    """Return the names in the column of Toolwire with the arguments behind them."""
    rows = [line.split(" | ")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    found = [each for row in rows for code in re.findall(r"`[^`]+`", row) for each in CODE.findall(code)]
    return [(name, arguments) for name, arguments in found if name.partition(".")[0] not in OTHER]


def resolve(name: str) -> Any:
    """Return the object of a name as the page writes it."""
    first, _, rest = name.partition(".")
    if first in OBJECTS:
        value = OBJECTS[first]
    elif first in toolwire.__all__:
        value = getattr(toolwire, first)
    else:
        value = import_module(f"toolwire.{first}")
    for part in filter(None, rest.split(".")):
        value = getattr(value, part)
    return value


@cases(("name", "arguments"), spans())
def test_every_name_of_the_page_exists(name: str, arguments: str) -> None:
    value = resolve(name)
    keywords = set(KEYWORD.findall(arguments))
    if keywords:
        parameters = inspect.signature(value).parameters
        options = _options(value)
        assert keywords <= parameters.keys() | options


def _options(value: Any) -> set[str]:
    """Return the names that `**options` of a function takes."""
    from toolwire.server.components.decorating import PromptOptions, ResourceOptions, ToolOptions
    from toolwire.server.run_http import HttpOptions

    if all(each.kind is not each.VAR_KEYWORD for each in inspect.signature(value).parameters.values()):
        return set()
    tables = (HttpOptions,) if value is Server.run else (ToolOptions, PromptOptions, ResourceOptions)
    return {name for table in tables for name in table.__optional_keys__}


def test_page_has_many_names() -> None:
    assert len(spans()) > 80
    assert hasattr(HttpApp, "authenticates")
    assert callable(testing.issuer)


ABSENT_ROW = re.compile(r"leave (?:it|them) out|does not have|there is none|not there")


def test_fastmcp_page_names_as_absent_only_what_is_absent() -> None:
    page = (ROOT / "docs" / "coming-from-fastmcp.md").read_text("utf-8")
    absent: dict[str, list[tuple[Any, str]]] = {
        "strict_input_validation=": [(Server, "strict_input_validation")],
        "json_response=": [(Server.http_app, "json_response")],
        "dependencies=": [(Server, "dependencies")],
        "mask_error_details=": [(Server, "mask_error_details")],
        "on_duplicate=": [(Server, "on_duplicate")],
        "show_banner=": [(Server.run, "show_banner")],
        "version=` and `run_in_thread=": [(toolwire.Tool, "version"), (toolwire.Tool, "run_in_thread")],
    }
    rows = [line for line in page.splitlines() if line.startswith("| ") and ABSENT_ROW.search(line.split(" | ")[1])]
    for row in rows:
        found = [pairs for words, pairs in absent.items() if words in row]
        assert found, f"say in this test what the row calls absent: {row}"
        for pairs in found:
            for value, name in pairs:
                assert name not in inspect.signature(value).parameters
