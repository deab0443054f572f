"""A server with every ready view: few rows, many, none, and texts of somebody who means harm."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta

from toolwire import Context, Image, Server, ToolError
from toolwire.apps import views
from toolwire.content import ToolResult

#: Characters that are not seen, or that look like a space.
UNSEEN = (
    "\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200d\u2003\u2028\u202e\u2060\u2065\u2800"
    "\u3000\u3164\ufe00\ufe0f\ufeff\uffa0\ufffc\U0001d159\U0001d173\U000e0041\U000e0100"
)

server = Server("views", instructions="Shows views.")

#: Texts that would run, load, break out or mislead if they were markup, an address or a format.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "[a](javascript:alert(1)) ![b](https://evil.example/x.png)",
    "{{constructor.constructor('alert(1)')()}}",
    "x" * 5000,
    "\u202egnp.exe \u0000\u0007 \u200b \ud7ff",
    "| a | b |\n|---|---|",
    "<!-- <script>",
    "__proto__",
    "</style><style>body{display:none}",
]

# --- table ---

table = server.app(views.table(title="Rows", empty="Nobody has ordered anything."))
columns = server.app(
    views.table(
        [
            views.Column("name"),
            views.Column("price", "Price", format="currency", currency="NOK"),
            views.Column("share", format="percent"),
            views.Column("day", format="date"),
            views.Column("site", format="link"),
        ],
        rows="found",
        title="Columns",
    )
)


@dataclass
class Row:
    number: int
    name: str
    amount: float | None
    done: bool


@server.tool(app=table)
def rows(count: int = 10_000) -> list[Row]:
    return [
        Row(number, f"Name {(number * 7919) % 10_007}", None if number % 10 == 3 else number * 1.5, number % 2 == 0)
        for number in range(count)
    ]


@server.tool(app=table)
def hostile_rows() -> list[dict[str, str]]:
    return [{"text": text, f"<b>{number}": "1", "__proto__": text} for number, text in enumerate(HOSTILE)]


@dataclass
class Found:
    query: str
    found: list[dict[str, Any]]


@server.tool(app=columns)
def columned() -> Found:
    one = {"name": "Tea", "price": 1234.5, "share": 0.25, "day": "2026-05-01", "site": "https://tea.example/a"}
    other = {"name": "Milk", "price": "free", "share": None, "day": "soon", "site": "javascript:alert(1)"}
    return Found("t", [one, other])


@server.tool(app=table)
def failing_rows() -> list[Row]:
    raise ToolError("The archive is closed on Sundays.")


# --- chart ---

chart = server.app(views.chart(title="Chart"))


@server.tool(app=chart)
def numbers(count: int = 6, kind: Literal["bar", "line"] = "bar") -> views.Chart:
    labels = [f"Day {number}" for number in range(count)]
    series: dict[str, list[float | None]] = {
        "North": [float(number % 50) - 10 for number in range(count)],
        "South": [None if number % 5 == 3 else float(number % 30) for number in range(count)],
    }
    return views.Chart(labels, series, kind=kind, title="Two series", unit="tons", axis="Day")


@server.tool(app=chart)
def hostile_numbers() -> views.Chart:
    series: dict[str, list[float | None]] = {text: [float(len(HOSTILE))] * len(HOSTILE) for text in HOSTILE[:6]}
    return views.Chart(list(HOSTILE), series, title=HOSTILE[0], unit=HOSTILE[1])


# --- form ---


class Urgency(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Address:
    street: str
    city: str = "Oslo"


@dataclass
class Ticket:
    subject: Annotated[str, Meta(min_length=3, max_length=80, description="What it is about.")]
    urgency: Urgency
    count: Annotated[int, Meta(ge=1, le=10)] = 1
    due: date | None = None
    body: Annotated[str, Meta(max_length=2000)] = ""
    agreed: bool = False
    colours: list[Literal["red", "green", "blue"]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    address: Address | None = None
    extra: dict[str, int] = field(default_factory=dict)


ticket = views.form(Ticket, title="New ticket", description="Somebody reads it within a day.", button="Create")
tickets = server.app(ticket)
SAVED: list[Ticket] = []


@tickets.tool
def save_ticket(ticket: Ticket) -> str:
    if ticket.subject == "no":
        raise ToolError("A ticket needs a better subject.")
    SAVED.append(ticket)
    return f"Ticket {len(SAVED)} is saved."


@server.tool(app=tickets)
async def new_ticket(ctx: Context, subject: str = "") -> ToolResult:
    return await ticket.fill(ctx, save_ticket, {"subject": subject} if subject else {})


# --- diff ---

change = server.app(views.diff(approve="apply", reject="drop", comment=True, title="Change"))
read_only = server.app(views.diff(title="Read only"))
DECIDED: list[tuple[str, int, str]] = []


@server.tool(app=change)
def propose(count: int = 30) -> views.Diff:
    before = [f"line {number}" for number in range(count)]
    after = [f"line {number}{' changed' if number % 7 == 3 else ''}" for number in range(count)]
    return views.Diff.of("\n".join(before), "\n".join(after), name="notes.txt", arguments={"id": count})


@server.tool(app=change)
def hostile_change() -> views.Diff:
    return views.Diff.of("", "\n".join(HOSTILE), name=HOSTILE[0], arguments={"id": 1})


@server.tool(app=read_only)
def look(count: int = 5) -> views.Diff:
    return views.Diff.of("a\n" * count, "a\n" * count + "b\n")


@server.tool(app=read_only)
def hidden() -> views.Diff:
    return views.Diff.of("same\n# safe\u2028run()", "same\r\n# \u202esafe\nrun()\n", name="\u202etxt.exe")


@server.tool(app=read_only)
def unseen() -> views.Diff:
    after = "".join(f"ad{each}min\n" for each in UNSEEN)
    return views.Diff.of("admin\n", after)


@change.tool
def apply(id: int, comment: str = "") -> str:
    if comment == "no":
        raise ToolError("Somebody else has changed the file.")
    DECIDED.append(("apply", id, comment))
    return "The file is written."


@change.tool
def drop(id: int, comment: str = "") -> str:
    DECIDED.append(("drop", id, comment))
    return "The file stays."


# --- image ---

image = server.app(views.image("A field of one colour", title="Picture"))


def png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(colour) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@server.tool(app=image)
def picture(width: int = 300) -> Image:
    return Image(data=png(width, 120, (70, 130, 180)))


@server.tool(app=image)
def pictures() -> list[Any]:
    return [
        Image(data=png(300, 80, (70, 130, 180))),
        "Blue, for the sky.",
        Image(data=png(300, 80, (60, 120, 60))),
        HOSTILE[0],
        Image(data=b"no picture at all", mime_type="image/png"),
    ]


@server.tool(app=image)
def no_picture() -> list[Image]:
    return []


# --- Markdown ---

text = server.app(views.markdown(title="Notes"))

DOCUMENT = """# Plan

Some *words* with **weight**, `code`, and [a link](https://tea.example/a).

## Steps

1. Boil water
2. Wait
   - four minutes

> Not longer.

| tea | minutes |
|---|---|
| green | 2 |
| black | 4 |

```python
print("tea")
```
"""


@server.tool(app=text)
def document(kind: Literal["plan", "empty", "hostile", "long"] = "plan") -> str:
    long = "\n\n".join(f"## Part {number}\n\nText of part {number}." for number in range(5_000))
    return {"plan": DOCUMENT, "empty": " ", "hostile": "\n\n".join(HOSTILE), "long": long}[kind]
