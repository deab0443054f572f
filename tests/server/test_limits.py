"""Limits that make no sense are refused where they are written, with the field, what is allowed and what was given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from toolwire import Client, Gateway, Limits, Policy, Server
from toolwire.client import Budget
from toolwire.errors import ServerError
from toolwire.gateway import Breaker, Health
from toolwire.http.limits import HttpLimits
from toolwire.openapi import OperationSettings, openapi
from toolwire.openapi.description.documents import Limits as DescriptionLimits
from toolwire.server.policy.concurrency import Slots
from toolwire.server.transports import _http_limits

NO_NUMBERS: list[Any] = ["5", None, True, [1], b"1", 1j]
NEVER: list[Any] = [*NO_NUMBERS, -1, math.nan, math.inf, -math.inf, 10**400, 1e308]


@pytest.mark.parametrize("kind", [Limits, HttpLimits, DescriptionLimits])
def test_every_field_refuses_what_is_not_a_sensible_number(kind: type[Any]) -> None:
    for field in kind.__struct_fields__:
        for value in NEVER:
            with pytest.raises(ServerError, match=rf"Limits: {field} must be .* \(got ") as refused:
                kind(**{field: value})
            assert len(str(refused.value)) < 200
        if isinstance(getattr(kind(), field), int):
            with pytest.raises(ServerError, match=rf"Limits: {field} must be a whole number \(got 1.5\)"):
                kind(**{field: 1.5})


@pytest.mark.parametrize("kind", [Limits, HttpLimits, DescriptionLimits])
def test_defaults_are_allowed(kind: type[Any]) -> None:
    made = kind()
    assert kind(**{field: getattr(made, field) for field in kind.__struct_fields__}) == made


def test_limits_of_http_follow_those_of_the_server() -> None:
    assert _http_limits(Limits()) == HttpLimits()
    shared = set(HttpLimits.__struct_fields__) & set(Limits.__struct_fields__)
    assert shared == set(HttpLimits.__struct_fields__) - {"body", "upload"}
    for name in shared:
        value = 0.5 if name == "share" else 77
        assert getattr(_http_limits(Limits(**{name: value})), name) == value
    assert _http_limits(Limits(line=77)).body == 77


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"threads": 0}, "Limits: threads must be at least 1 (got 0)"),
        ({"tool": 0}, "Limits: tool must be above 0 (got 0)"),
        ({"drain": -0.5}, "Limits: drain must be at least 0 (got -0.5)"),
        ({"share": 1.5}, "Limits: share must be at most 1 (got 1.5)"),
        ({"depth": 5000}, "Limits: depth must be at most 1,000 (got 5000)"),
        ({"tool": math.nan}, "Limits: tool must be above 0 (got nan)"),
        ({"tool": math.inf}, "Limits: tool must be at most 1,000,000,000 (got inf)"),
        ({"page": 10**5000}, "Limits: page must be at most 1,000,000,000 (got a number of many digits)"),
        ({"page": "many"}, "Limits: page must be a number (got 'many')"),
    ],
)
def test_the_text_names_the_field_what_is_allowed_and_what_was_given(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError) as refused:
        Limits(**given)
    assert str(refused.value) == text


#: The fields for which 0 means none, or at once. With 0 of any other, a server could do none of its work.
MAY_BE_ZERO = (
    *("queue", "ping", "drain", "drain_stdio", "drain_tasks"),
    *("task_window", "tasks_dead", "streams", "batch", "rounds", "uris"),
    *("tasks_waiting", "task_ttl", "task_dead_ttl"),
)


@pytest.mark.parametrize("field", MAY_BE_ZERO)
def test_zero_is_allowed_where_it_means_none(field: str) -> None:
    assert getattr(Limits(**{field: 0}), field) == 0


@pytest.mark.parametrize("field", sorted(set(Limits.__struct_fields__) - set(MAY_BE_ZERO)))
def test_zero_is_refused_where_nothing_would_work(field: str) -> None:
    for zero in (0, 0.0):
        with pytest.raises(ServerError, match=rf"^Limits: {field} must be "):
            Limits(**{field: zero})


@pytest.mark.parametrize("kind", [Limits, HttpLimits])
def test_a_bad_field_is_named_beside_the_least_value_of_any_other(kind: type[Any]) -> None:
    fields = kind.__struct_fields__
    for other in fields:
        least = next(each for each in (0, 1, 0.5) if _is_allowed(kind, **{other: each}))
        for field in fields:
            if field != other:
                with pytest.raises(ServerError, match=rf"Limits: {field} must be "):
                    kind(**{other: least, field: -1})


def _is_allowed(kind: type[Any], **given: Any) -> bool:
    try:
        kind(**given)
    except ServerError:
        return False
    return True


def test_sessions_of_http_are_at_least_one() -> None:
    with pytest.raises(ServerError, match=r"HttpLimits: sessions must be at least 1 \(got 0\)"):
        HttpLimits(sessions=0)


def test_replaced_limits_are_checked() -> None:
    with pytest.raises(ServerError, match="threads must be at least 1"):
        msgspec.structs.replace(Limits(), threads=0)


OTHERS: list[tuple[Callable[[Any], object], str]] = [
    (lambda value: Budget(calls=value), "Budget: calls"),
    (lambda value: Budget(seconds=value), "Budget: seconds"),
    (lambda value: Budget(tools={"a": value}), r"Budget: tools\['a'\]"),
    (lambda value: Slots(value), "Slots: running"),
    (lambda value: Slots(1, queue=value), "Slots: queue"),
    (lambda value: Slots(1, wait=value), "Slots: wait"),
    (lambda value: Policy(timeout=value), "Policy: timeout"),
    (lambda value: Policy(result=value), "Policy: result"),
    (lambda value: Policy(approval_timeout=value), "Policy: approval_timeout"),
    (lambda value: Breaker(failures=value), "Breaker: failures"),
    (lambda value: Breaker(pause=value), "Breaker: pause"),
    (lambda value: Breaker(longest=value), "Breaker: longest"),
    (lambda value: Health(every=value), "Health: every"),
    (lambda value: Client(Server("s"), timeout=value), "Client: timeout"),
    (lambda value: Client(Server("s"), probe_timeout=value), "Client: probe_timeout"),
    (lambda value: Server("s", page_size=value), "Server: page_size"),
    (lambda value: Server("s").tool(timeout=value)(_tool), "'_tool': timeout"),
    (lambda value: Gateway("g").add("a", "http://a.test/", timeout=value), "upstream 'a': timeout"),
    (lambda value: Gateway("g").add("a", "http://a.test/", max_calls=value), "upstream 'a': max_calls"),
    (lambda value: Gateway("g").add("a", "http://a.test/", queue=value), "upstream 'a': queue"),
    (lambda value: OperationSettings(max_bytes=value), "OperationSettings: max_bytes"),
    (lambda value: OperationSettings(timeout=value), "OperationSettings: timeout"),
    (lambda value: openapi(API, max_tokens=value), "max_tokens"),
    (lambda value: openapi(API, timeout=value), "timeout"),
]
API = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}}


def _tool() -> str:
    return "done"


@pytest.mark.parametrize(("make", "words"), OTHERS, ids=[words for _, words in OTHERS])
def test_other_limits_are_checked_alike(make: Callable[[Any], object], words: str) -> None:
    for value in (-1, math.nan, -math.inf, 10**400, 1e308, "5", True):
        with pytest.raises(ServerError, match=words):
            make(value)
