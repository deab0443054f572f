"""Charts as pictures: bars as PNG, lines as SVG, drawn with the standard library alone.

Run it with `toolwire run examples/charts.py`.
"""

import struct
import zlib
from typing import Annotated
from xml.sax.saxutils import escape

from msgspec import Meta

from toolwire import File, Image, Server, ToolError

server = Server("charts", version="1.0.0", instructions="Draws charts. Bars to compare things, lines for a course.")

Numbers = Annotated[list[float], Meta(min_length=1, max_length=100)]
WIDTH, HEIGHT, MARGIN = 640, 360, 20
PAPER, INK, COLOURS = (255, 255, 255), (60, 60, 60), [(66, 133, 204), (230, 130, 50), (90, 170, 90), (160, 100, 180)]

Colour = tuple[int, int, int]


class Canvas:
    """A picture of pixels that can be filled with rectangles and written as PNG."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._rows = [bytearray(bytes(PAPER) * width) for _ in range(height)]

    def fill(self, left: int, top: int, right: int, bottom: int, colour: Colour) -> None:
        left, right = max(0, left), min(self.width, right)
        for row in self._rows[max(0, top) : min(self.height, bottom)]:
            row[left * 3 : right * 3] = bytes(colour) * max(0, right - left)

    def png(self) -> bytes:
        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def scale(values: list[float]) -> tuple[float, float]:
    """The lowest and the highest value of the axis; zero is always on it."""
    low, high = min(0.0, *values), max(0.0, *values)
    if not -1e12 < low <= high < 1e12:
        raise ToolError("The values are too large to be drawn, or are not numbers.")
    return (low, high) if high > low else (low, low + 1.0)


@server.tool(annotations={"readOnlyHint": True})
def draw_bars(values: Numbers) -> Image:
    """Draw a bar for each value. Returns a picture (PNG).

    Args:
        values: The values, such as [3, 5, 2].
    """
    low, high = scale(values)
    canvas = Canvas(WIDTH, HEIGHT)

    def y(value: float) -> int:
        return round(MARGIN + (high - value) / (high - low) * (HEIGHT - 2 * MARGIN))

    step = (WIDTH - 2 * MARGIN) / len(values)
    for number, value in enumerate(values):
        left, right = MARGIN + round(step * (number + 0.1)), MARGIN + round(step * (number + 0.9))
        canvas.fill(left, min(y(value), y(0)), right, max(y(value), y(0)), COLOURS[number % len(COLOURS)])
    canvas.fill(MARGIN, y(0), WIDTH - MARGIN, y(0) + 2, INK)
    return Image(data=canvas.png())


@server.tool(annotations={"readOnlyHint": True})
def draw_lines(series: Annotated[dict[str, Numbers], Meta(min_length=1, max_length=8)], title: str = "") -> File:
    """Draw the course of one or several series. Returns a picture (SVG).

    Args:
        series: The values of each series by its name, for example {"sales": [3, 5, 4]}.
        title: What stands above the chart.
    """
    low, high = scale([value for values in series.values() for value in values])
    drawn = []
    for number, (name, values) in enumerate(series.items()):
        step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
        points = " ".join(
            f"{MARGIN + step * at:.1f},{MARGIN + (high - value) / (high - low) * (HEIGHT - 2 * MARGIN):.1f}"
            for at, value in enumerate(values)
        )
        colour = "#{:02x}{:02x}{:02x}".format(*COLOURS[number % len(COLOURS)])
        # Names come from outside and go into a document: escaped, they stay text.
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        drawn.append(f'<text x="{MARGIN}" y="{HEIGHT - 4 - 14 * number}" fill="{colour}">{escape(name)}</text>')
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
        f'<text x="{WIDTH / 2}" y="14" text-anchor="middle">{escape(title)}</text>{"".join(drawn)}</svg>'
    )
    return File(data=svg.encode(), name="chart.svg", mime_type="image/svg+xml")


if __name__ == "__main__":
    server.run()
