"""Functions of a user that decide something: one whose body would never run is refused where it is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Policy, Server, Tool
from toolwire.auth import ApiKeys, ResourceServer
from toolwire.openapi.definition.selection import OperationSelection
from toolwire.openapi.model import DescriptionError
from toolwire.protocol.errors import ServerError


async def _awaits(value: Any) -> bool:
    return False


def _yields(value: Any) -> Any:
    yield False


def _restrict(function: Any) -> None:
    Server("almanac").restrict("internal", visible_to=function)


def _listen(function: Any) -> None:
    Server("almanac").extension("org.example/notes").listen_filter("notes", function)


REGISTRATIONS: dict[str, Callable[[Any], object]] = {
    "allow=": lambda function: ResourceServer(ApiKeys({"key-of-ada": "ada"}), allow=function),
    "visible_to=": lambda function: Tool(lambda: "", name="hidden", visible_to=function),
    "restrict": _restrict,
    "rule": lambda function: Policy(rules={"path": function}),
    "by_principal=": lambda function: Policy(by_principal=function),
    "listen filter": _listen,
    "keep=": lambda function: OperationSelection(keep=function),
    "drop=": lambda function: OperationSelection(None, drop=function),
}


@cases("register", REGISTRATIONS.values(), ids=REGISTRATIONS)
@cases("function", [_awaits, _yields])
def test_deciding_function_whose_body_would_never_run_is_refused(register: Any, function: Any) -> None:
    with pytest.raises(ServerError, match="takes a plain function"):
        register(function)


@cases("answer", ["no", None, 1])
def test_operation_is_chosen_by_true_and_false_alone(answer: Any) -> None:
    operation: Any = None
    with pytest.raises(DescriptionError, match="in place of True or False"):
        OperationSelection(keep=lambda operation: answer).reason_against(operation)


@cases("secret", ["", b"", [], ["a secret of at least sixteen bytes", ""]])
def test_empty_secret_is_refused(secret: Any) -> None:
    """A random one in its place would make each process refuse what another one sealed."""
    with pytest.raises(ServerError, match="secret="):
        Server("almanac", secret=secret)
