"""Cases of one test: each runs, and each failure is reported."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from tests import cases as module
from tests.cases import cases

place: ContextVar[str] = ContextVar("place", default="")


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "separate", False)


pytestmark = pytest.mark.usefixtures("together")


def test_each_case_of_a_grid_runs_with_the_fixtures_of_the_test() -> None:
    seen: list[Any] = []

    @cases("a, b", [(1, 2), pytest.param(3, 4, id="other")])
    @cases("c", "xy")
    def test(a: int, b: int, c: str, fixture: str) -> None:
        seen.append((a, b, c, fixture))

    test(fixture="f")
    assert seen == [(1, 2, "x", "f"), (3, 4, "x", "f"), (1, 2, "y", "f"), (3, 4, "y", "f")]


def test_each_failing_case_is_reported_by_name() -> None:
    @cases("a", [1, 2, 3], ids=["one", "two", "three"])
    def test(a: int) -> None:
        if a == 2:
            pytest.fail("not two")
        assert a == 1

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as failed:
        test()
    assert [error.__notes__ for error in failed.value.exceptions] == [["in the case two"], ["in the case three"]]


def test_one_failing_case_is_reported_as_it_is() -> None:
    @cases("a", [1, 2])
    def test(a: int) -> None:
        assert a == 1

    with pytest.raises(AssertionError) as failed:
        test()
    assert failed.value.__notes__ == ["in the case 2"]


async def test_cases_of_an_async_test_have_contexts_of_their_own() -> None:
    seen = []

    @cases("name", ["a", "b"])
    async def test(name: str) -> None:
        await asyncio.sleep(0)
        seen.append(place.get())
        place.set(name)
        assert name == "a"

    with pytest.raises(AssertionError):
        await test()
    assert seen == ["", ""]


def test_cases_of_a_test_have_contexts_of_their_own() -> None:
    seen = []

    @cases("name", ["a", "b"])
    def test(name: str) -> None:
        seen.append(place.get())
        place.set(name)

    test()
    assert seen == ["", ""]


def test_skipped_case_does_not_end_the_others() -> None:
    seen = []

    @cases("a", [1, 2])
    def test(a: int) -> None:
        if a == 1:
            pytest.skip("not here")
        seen.append(a)

    test()
    assert seen == [2]


def test_test_without_a_case_that_ran_is_skipped() -> None:
    @cases("a", [1, 2])
    def test(a: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        test()


def test_timeout_of_a_case_ends_the_test() -> None:
    seen = []

    @cases("a", [1, 2])
    def test(a: int) -> None:
        seen.append(a)
        pytest.fail("Timeout (>240.0s) from pytest-timeout.")

    with pytest.raises(pytest.fail.Exception):
        test()
    assert seen == [1]


def test_case_with_marks_is_refused() -> None:
    with pytest.raises(TypeError, match="marks"):
        cases("a", [pytest.param(1, marks=pytest.mark.skip)])


def test_separate_cases_are_tests_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "separate", True)

    @cases("a", [1, 2])
    def test(a: int) -> None: ...

    assert [mark.args for mark in test.pytestmark] == [("a", [1, 2])]  # type: ignore[attr-defined]
