"""Charts: well-formed drawings of any numbers, with the texts of anybody."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.browser.servers.views import HOSTILE
from tests.cases import cases

from toolwire import Client, Server
from toolwire.apps import views
from toolwire.apps.views.charts import draw
from toolwire.types import CallToolResult, TextContent

SPACE = "{http://www.w3.org/2000/svg}"
KNOWN = {"svg", "rect", "path", "line", "text", "circle", "title"}


def drawn(chart: views.Chart, width: int = 720, height: int = 300) -> ElementTree.Element:
    root = ElementTree.fromstring(draw(chart, width, height))
    assert {each.tag.removeprefix(SPACE) for each in root.iter()} <= KNOWN
    return root


def ticks(chart: views.Chart) -> list[float]:
    return [float(each.attrib["data-value"]) for each in drawn(chart).iter() if "data-value" in each.attrib]


@pytest.mark.covers("APP-8A.8")
def test_a_bar_for_each_value() -> None:
    root = drawn(views.Chart(["a", "b"], {"one": [10, -5], "two": [None, 20]}, unit="kg"))
    bars = list(root.iter(f"{SPACE}rect"))
    assert [bar.attrib["class"] for bar in bars] == ["bar s0", "bar s0", "bar s1"]
    assert [bar[0].text for bar in bars] == ["a, one: 10 kg", "b, one: -5 kg", "b, two: 20 kg"]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.2)


def test_a_line_has_gaps_where_values_are_missing() -> None:
    root = drawn(views.Chart(list("abcdef"), {"one": [1, 2, None, 3, None, 4]}, kind="line"))
    assert len(list(root.iter(f"{SPACE}path"))) == 1
    assert len(list(root.iter(f"{SPACE}circle"))) == 2


@cases(
    ("values", "kind", "expected"),
    [
        ([3, 5], "bar", [0, 1, 2, 3, 4, 5]),
        ([95, 100], "line", [95, 96, 97, 98, 99, 100]),
        ([95, 100], "bar", [0, 20, 40, 60, 80, 100]),
        ([-3, 3], "line", [-4, -2, 0, 2, 4]),
        ([0, 0], "bar", [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([1e15], "bar", [0, 2e14, 4e14, 6e14, 8e14, 1e15]),
        ([0.001], "bar", [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
    ],
)
def test_the_axis_has_round_numbers(values: list[Any], kind: Any, expected: list[float]) -> None:
    assert ticks(views.Chart([""] * len(values), {"": values}, kind=kind)) == pytest.approx(expected)


@given(
    st.lists(st.floats(-1e15, 1e15) | st.none(), min_size=1, max_size=40),
    st.sampled_from(["bar", "line"]),
    st.text(max_size=30),
)
def test_any_numbers_stay_inside_the_drawing(values: list[float | None], kind: Any, name: str) -> None:
    root = drawn(views.Chart([name] * len(values), {name: values}, kind=kind), 380, 260)
    for bar in root.iter(f"{SPACE}rect"):
        top, height = float(bar.attrib["y"]), float(bar.attrib["height"])
        assert 7 <= top <= top + height <= 236


@pytest.mark.covers("APP-8A.7")
@cases("text", HOSTILE)
def test_texts_stay_texts(text: str) -> None:
    root = drawn(views.Chart([text, "b"], {text: [1, 2], "c": [3, 4]}, title=text, unit=text))
    assert len(list(root.iter(f"{SPACE}rect"))) == 4


@pytest.mark.covers("APP-8A.8")
@cases("kind", ["bar", "line"])
@cases("series", [1, 2])
def test_ten_thousand_values_are_as_small_as_the_drawing(kind: Any, series: int) -> None:
    values: list[float | None] = [float(number * 7919 % 1009) for number in range(10_000)]
    chart = views.Chart([f"d{n}" for n in range(10_000)], {f"s{n}": values for n in range(series)}, kind=kind)
    assert len(draw(chart, 720, 300)) < 40_000
    assert len(list(drawn(chart).iter(f"{SPACE}path"))) == series


@cases(
    ("labels", "series", "said"),
    [
        (["a"], {"x": [1, 2]}, "has 2 values, and the chart 1 labels"),
        (["a"], {"x": [float("nan")]}, "not a number, or beyond ±1e15"),
        (["a"], {"x": [1e300]}, "not a number, or beyond ±1e15"),
        (["a"], {str(n): [1] for n in range(9)}, "at most 8 series"),
        (["a"] * 100_001, {"x": [1] * 100_001}, "at most 100000 values"),
    ],
)
def test_what_cannot_be_drawn_is_refused(labels: list[str], series: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        views.Chart(labels, series)


def test_no_numbers_are_said_to_be_none() -> None:
    for data in ({"labels": [], "series": {"a": []}}, {"labels": ["a"], "series": {}}):
        result = views.chart(empty="None yet.").present(CallToolResult(content=[], structured_content=data))
        assert [each.text for each in result.content if isinstance(each, TextContent)] == ["None yet."]


@pytest.mark.parametrize(("value", "said"), [(1e308, "not a number, or beyond ±1e15"), (5e-324, "5e-324")])
async def test_extreme_numbers_are_drawn_or_refused_with_a_reason(value: float, said: str) -> None:
    server = Server("s")

    @server.tool(app=server.app(views.chart()))
    def extremes() -> views.Chart:
        return views.Chart(["a", "b"], {"x": [value, -value]})

    async with Client(server) as client:
        result = await client.call_tool("extremes")
    assert said in result.text
