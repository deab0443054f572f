"""Charts, drawn on the server as SVG in two widths.

The page decides about colours and language.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from toolwire.apps.views.ready import ReadyView, data_of, with_text
from toolwire.apps.views.tables import markdown_table
from toolwire.protocol.errors import ToolError
from toolwire.protocol.types import CallToolResult

#: The member of `_meta` of a result that has the drawings.
CHART_KEY: Final = "io.toolwire/chart"
#: How many series a chart may have: there are as many colours.
MAX_SERIES: Final = 8
MAX_VALUES: Final = 100_000
_LARGEST: Final = 1e15
_SMALLEST: Final = 1e-300
_WIDE: Final = (640, 280)
_NARROW: Final = (380, 260)
# How wide a letter of the labels is, in pixels.
_LETTER: Final = 6.6


class BadChart(ToolError, ValueError):
    """A chart that cannot be drawn; the caller of the tool gets the reason."""


class Chart(Struct, omit_defaults=True):
    """The numbers of a chart: `Chart(["May", "June"], {"Oslo": [3, 5], "Bergen": [2, 4]})`."""

    labels: list[str]
    series: dict[str, list[float | None]]
    """The values of each series, one for each label; None for a gap."""
    kind: Literal["bar", "line"] = "bar"
    title: str = ""
    unit: str = ""
    """The unit of the values, such as "NOK"."""
    axis: str = ""
    """The name of what the labels are, such as "Month"."""

    def __post_init__(self) -> None:
        if len(self.series) > MAX_SERIES:
            raise BadChart(f"A chart has at most {MAX_SERIES} series, and this one has {len(self.series)}")
        if len(self.labels) * max(1, len(self.series)) > MAX_VALUES:
            raise BadChart(f"A chart has at most {MAX_VALUES} values")
        for name, values in self.series.items():
            if len(values) != len(self.labels):
                raise BadChart(
                    f"The series {name[:100]!r} has {len(values)} values, and the chart {len(self.labels)} labels"
                )
            if not all(value is None or abs(value) <= _LARGEST for value in values):
                raise BadChart(f"The series {name[:100]!r} has a value that is not a number, or beyond ±1e15")


class ChartView(ReadyView):
    """A chart. `chart()` makes it."""

    kind: ClassVar[str] = "chart"
    scripts: ClassVar[tuple[str, ...]] = ("table", "chart_view")
    styles: ClassVar[tuple[str, ...]] = ("table", "chart")
    reads_structured: ClassVar[bool] = True

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {}

    def present(self, result: CallToolResult) -> CallToolResult:
        data = data_of(result)
        if data is None:
            return result
        shown = msgspec.convert(data, Chart)
        if not shown.labels or not shown.series:
            return with_text(result, self.empty)
        drawn = {"wide": draw(shown, *_WIDE), "narrow": draw(shown, *_NARROW)}
        # A result that was made of a value has no `_meta` yet.
        result.meta = {CHART_KEY: drawn}
        return with_text(result, _text(shown))


def chart(*, title: str = "", description: str = "", empty: str = "There are no numbers.") -> ChartView:
    """Make a view of the `Chart` that a tool returns.

    The text of the result is a table of the numbers.

    The drawing travels in `_meta` of the result, for the view alone. A host that does not carry it shows the table.
    """
    return ChartView(title, description, empty)


def _text(chart: Chart) -> str:
    unit = f" ({chart.unit})" if chart.unit else ""
    titles = [chart.axis or "label", *(f"{name}{unit}" for name in chart.series)]
    table = markdown_table(titles, list(zip(chart.labels, *chart.series.values(), strict=True)))
    return f"{chart.title}\n\n{table}" if chart.title else table


# --- The drawing ------------------------------------------------------------------------------------------------------


class _Frame(NamedTuple):
    """The part of a drawing that shows the values, and their range."""

    left: float
    top: float
    right: float
    bottom: float
    low: float
    high: float

    def y(self, value: float) -> float:
        return self.top + (self.high - value) / (self.high - self.low) * (self.bottom - self.top)

    def slot(self, count: int) -> float:
        return (self.right - self.left) / count


def draw(chart: Chart, width: int, height: int) -> str:
    """Return a chart as SVG. Classes name the colours, which are those of the page."""
    ticks = _ticks(chart, height)
    left = 8 + _LETTER * max(len(_short(tick)) for tick in ticks)
    frame = _Frame(left, 8, width - 8, height - 26, ticks[0], ticks[-1])
    parts = [*_grid(frame, ticks), *_labels(frame, chart.labels)]
    for number, (name, values) in enumerate(chart.series.items()):
        parts += _bars(frame, chart, number, name, values) if chart.kind == "bar" else _line(frame, number, values)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def _ticks(chart: Chart, height: int) -> list[float]:
    values = [value for each in chart.series.values() for value in each if value is not None] or [0.0]
    low, high = min(values), max(values)
    # Bars start at zero, and a line does unless it would be flat then.
    if chart.kind == "bar" or low <= 0 or high - low > 0.3 * high:
        low, high = min(0.0, low), max(0.0, high)
    # A smaller range has no steps that a float can have.
    if high - low < _SMALLEST:
        high = low + 1
    rough = (high - low) / (height / 60)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 2.5, 5, 10) if each * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _grid(frame: _Frame, ticks: Sequence[float]) -> Iterator[str]:
    for tick in ticks:
        kind, y = ("zero" if tick == 0 else "grid"), frame.y(tick)
        yield f'<line class="{kind}" x1="{frame.left:.1f}" x2="{frame.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield (
            f'<text x="{frame.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end" data-value="{tick:.10g}">'
            f"{_short(tick)}</text>"
        )


def _labels(frame: _Frame, labels: Sequence[str]) -> Iterator[str]:
    shown = [label if len(label) <= 14 else f"{label[:13]}…" for label in labels]
    slot = frame.slot(len(labels))
    # As many labels as have room beside each other.
    step = max(1, math.ceil((max(map(len, shown)) * _LETTER + 16) / slot))
    for at in range(0, len(labels), step):
        x = frame.left + slot * (at + 0.5)
        half = len(shown[at]) * _LETTER / 2
        x = min(max(x, half), frame.right + 8 - half)
        yield f'<text x="{x:.1f}" y="{frame.bottom + 18:.1f}" text-anchor="middle">{_safe(shown[at])}</text>'


def _bars(frame: _Frame, chart: Chart, number: int, name: str, values: Sequence[float | None]) -> Iterator[str]:
    slot = frame.slot(len(values))
    width = slot * 0.76 / len(chart.series)
    if width < 1.5:
        # There is no room for bars beside each other.
        yield from [_columns(frame, number, values)] if len(chart.series) == 1 else _line(frame, number, values)
        return
    width = min(width, 64)
    start = frame.left + (slot - width * len(chart.series)) / 2 + number * width
    for at, value in enumerate(values):
        if value is None:
            continue
        top, bottom = sorted((frame.y(value), frame.y(0)))
        where = f'x="{start + slot * at + 0.5:.1f}" y="{top:.1f}"'
        size = f'width="{max(1.0, width - 1):.1f}" height="{max(0.5, bottom - top):.1f}" rx="{min(2.0, width / 4):.1f}"'
        title = _safe(_hover_text(chart, at, name, value))
        yield f'<rect class="bar s{number}" {where} {size}><title>{title}</title></rect>'


def _hover_text(chart: Chart, at: int, name: str, value: float) -> str:
    """Return the text that the pointer shows over a bar."""
    parts = [chart.labels[at], *([name] if name else [])]
    return f"{', '.join(parts)}: {value:,.10g} {chart.unit}".rstrip()


def _columns(frame: _Frame, number: int, values: Sequence[float | None]) -> str:
    """Draw more bars than pixels: one stroke for each pixel, from low to high."""
    strokes = []
    for x, low, high in _pixels(frame, values):
        top, bottom = frame.y(max(high, 0)), frame.y(min(low, 0))
        strokes.append(f"M{x:.1f} {bottom:.1f}V{top:.1f}")
    return f'<path class="bars s{number}" d="{"".join(strokes)}"/>'


def _line(frame: _Frame, number: int, values: Sequence[float | None]) -> Iterator[str]:
    slot = frame.slot(len(values))
    if slot < 1:
        points = [
            (x, frame.y(value)) for x, low, high in _pixels(frame, values) for value in dict.fromkeys((low, high))
        ]
        yield _path(number, points)
        return
    run: list[tuple[float, float]] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            run.append((frame.left + slot * (at + 0.5), frame.y(value)))
            continue
        # A gap ends a line. A value between two gaps is a dot.
        if len(run) == 1:
            yield f'<circle class="dot s{number}" cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="3"/>'
        elif run:
            yield _path(number, run)
        run = []


def _path(number: int, points: Sequence[tuple[float, float]]) -> str:
    places = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="line s{number}" d="M{places}"/>'


def _pixels(frame: _Frame, values: Sequence[float | None]) -> Iterator[tuple[float, float, float]]:
    """Return the lowest and the highest value for each pixel of the width."""
    count = int(frame.right - frame.left)
    for pixel in range(count):
        part = values[
            pixel * len(values) // count : max(pixel * len(values) // count + 1, (pixel + 1) * len(values) // count)
        ]
        found = [value for value in part if value is not None]
        if found:
            yield frame.left + pixel + 0.5, min(found), max(found)


def _safe(text: str) -> str:
    """Return a text for XML, without the characters that XML cannot have."""
    return escape("".join(each for each in text if each.isprintable()))
